/* agent/control_self.h - internals of the two halves of control: commands and logs. */
#ifndef MST_AGENT_CONTROL_SELF_H
#define MST_AGENT_CONTROL_SELF_H

#include <limits.h>
#include <pthread.h>

#include "agent/control.h"
#include "base/limits.h"

/* The place of the present workers' log files. */
struct mst__control_place {
    char log_dir[PATH_MAX];
    int64_t generation, first_rank, workers_count;
};

/* A reader of a log. */
struct mst__control_reader {
    bool is_used;
    struct mst__control_command command;
    int fd;             /* -1 = none */
    int64_t generation; /* of the open file */
    int64_t alive;      /* the last number from the reader */
    int64_t alive_ms;   /* when the number changed */
    int64_t looked_ms;  /* when it was last read */
};

struct mst__control {
    char node[256];
    const struct mst_params *params; /* NULL = the store is open from the beginning */
    mst__control_fn fn;
    void *arg;
    uv_async_t async;
    pthread_t thread;
    int end_fd; /* readable = the thread must end; wakes it while it opens the store */

    pthread_mutex_t mutex;
    struct mst_store *store; /* NULL = not open; only the thread changes it */
    pthread_cond_t cond;
    struct mst_buffer text;
    struct mst__control_place place;
    struct mst__control_command command;
    bool is_ending;
    bool is_text_new;
    bool is_waiting; /* the thread waits for a command and may be interrupted */
    bool has_command, is_done;

    bool has_thread; /* belongs to the loop */
    bool has_count;  /* from here on, fields belong to the thread */
    bool has_sent;   /* the state was sent and may be in the store */
    int64_t commands_count;
    char store_name[20]; /* "" = not known yet */
    int64_t call_ms;     /* time limit of a call */
    struct mst__control_reader readers[MST_CONTROL_READERS_MAX];
    uint8_t piece[MST_CONTROL_PIECE_SIZE + 1];
};

/* Begin to send a log, or send the reader a refusal. Returns false if the rank is not of this node
 * or the token is malformed. */
bool mst__control_logs_begin(struct mst__control *control,
                             const struct mst__control_command *command);

/* Returns the number of logs that are being sent. */
size_t mst__control_logs_count(const struct mst__control *control);

/* Send new bytes of the files. Returns 0 or an error of the store. */
int mst__control_logs_pump(struct mst__control *control);

/* Send readers the end of their logs, if the store answers each call within MST_CONTROL_END_MS. */
void mst__control_logs_close(struct mst__control *control);

#endif /* MST_AGENT_CONTROL_SELF_H */
