/* agent/control_self.h - the two halves of control: commands, and logs. */
#ifndef MST_AGENT_CONTROL_SELF_H
#define MST_AGENT_CONTROL_SELF_H

#include <limits.h>
#include <pthread.h>

#include "agent/control.h"
#include "base/limits.h"

/* Where the files of the present workers are. */
struct mst__control_place {
    char log_dir[PATH_MAX];
    int64_t generation, first_rank, workers_count;
};

/* Somebody reads a log. */
struct mst__control_reader {
    bool is_used;
    struct mst__control_command command;
    int fd;             /* -1 = none */
    int64_t generation; /* that it is of */
    int64_t alive;      /* the reader's number, and when it has changed */
    int64_t alive_ms;
    int64_t looked_ms;
};

struct mst__control {
    char node[256];
    const struct mst_params *params; /* NULL = the store is there from the beginning */
    mst__control_fn fn;
    void *arg;
    uv_async_t async;
    pthread_t thread;

    pthread_mutex_t mutex;
    struct mst_store *store; /* NULL = not open; changed by the thread alone */
    pthread_cond_t cond;
    struct mst_buffer text;
    struct mst__control_place place;
    struct mst__control_command command;
    bool is_ending;
    bool is_text_new;
    bool is_waiting; /* the thread, for a command: it may be interrupted */
    bool has_command, is_done;

    bool has_thread; /* of the loop */
    bool has_count;  /* of the thread, from here on */
    bool has_sent;   /* the state was sent; it may be in the store */
    int64_t commands_count;
    int64_t call_ms; /* how long a call may take */
    struct mst__control_reader readers[MST_CONTROL_READERS_MAX];
    uint8_t piece[MST_CONTROL_PIECE_SIZE + 1];
};

/* Whether the log is of a worker of ours; then it is sent from now on. */
bool mst__control_logs_begin(struct mst__control *control,
                             const struct mst__control_command *command);

/* Logs that are being sent. */
size_t mst__control_logs_count(const struct mst__control *control);

/* Send what is in the files. 0, or an error of the store. */
int mst__control_logs_pump(struct mst__control *control);

/* Tell readers that there is no more, as far as that can be done at once. */
void mst__control_logs_close(struct mst__control *control);

#endif /* MST_AGENT_CONTROL_SELF_H */
