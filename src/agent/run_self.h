/* agent/run_self.h - the parts of a run, for its files alone. */
#ifndef MST_AGENT_RUN_SELF_H
#define MST_AGENT_RUN_SELF_H

#include <pthread.h>
#include <uv.h>

#include "agent/assign.h"
#include "agent/control.h"
#include "agent/events.h"
#include "agent/group.h"
#include "agent/output.h"
#include "agent/run.h"
#include "agent/watchdog.h"
#include "base/arena.h"

/* --- calls that may block --- */

enum mst__call_kind {
    MST_CALL_OPEN,    /* the rendezvous */
    MST_CALL_BEGIN,   /* a round */
    MST_CALL_ASSIGN,  /* ranks in it */
    MST_CALL_FINISH,  /* our work is done */
    MST_CALL_LEAVING, /* tell the others that we are about to go, and our workers before us */
    MST_CALL_ASKED,   /* tell the others that we were asked to restart all workers; then we do */
    MST_CALL_WHY,     /* see whether one was, when a round is over for no other reason */
    MST_CALL_RESTART, /* it has failed */
    MST_CALL_CLOSE,   /* the job */
    MST_CALL_LEAVE,   /* it */
    MST_CALL_EXPLAIN, /* get the report of another node */
};

struct mst__call {
    enum mst__call_kind kind;
    struct mst__run *run;
    struct mst__call *next;
    int rv;
    struct mst_err err;
    bool is_untold; /* FINISH: there is no authority to report to */
    bool is_said;   /* WHY */

    struct mst_rendezvous round;       /* ASSIGN: has a store of its own */
    struct mst__assignment assignment; /* ASSIGN */
    struct mst_failure failure;        /* RESTART */
    char text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1];
    int64_t rank; /* EXPLAIN: of the node */
};

/* The thread that makes calls: one at a time, for each needs the results of those before. libuv's
 * pool would start four. It starts with the first call: new threads wait long on a busy machine. */
struct mst__caller {
    pthread_t thread;
    uv_async_t async; /* by which the thread says that a call is made */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct mst__call *call; /* to be made, or under way; NULL = it is made */
    bool is_ending;
    bool has_async, has_thread; /* of the loop */
};

#define MST_RUN_STORE_URL_SIZE 2048

struct mst__run {
    const struct mst__run_options *options;
    const struct mst__run_settings *settings;
    struct mst__run_end *ret;

    uv_loop_t loop;
    uv_poll_t news;
    uv_timer_t timer, look;
    uv_signal_t signals[2 * MST_SIGNALS_MAX];
    size_t signals_count;

    struct mst__group group;
    struct mst__group preflight;
    struct mst__output *output;
    struct mst__events events;
    struct mst__control *control; /* NULL = not yet, or it cannot be had */
    struct mst__arena arena;      /* of the generation */

    struct mst__agent agent;
    struct mst_handler *handler;
    struct mst__caller caller;
    struct mst__call *calls;     /* the first one is under way */
    struct mst__call *assigning; /* ASSIGN of the present round; NULL = none */

    struct mst_rendezvous round; /* the last one with ranks; has a store */
    struct mst__assignment assignment;
    int64_t prev_world_size; /* 0 = none */
    int64_t *beats_us;       /* of each worker: the stamp of its heartbeat file, last seen */
    int64_t *last_pids;      /* of each worker, also after its end */
    char store_url[MST_RUN_STORE_URL_SIZE];
    struct mst__watchdog watchdog;

    struct mst__buf block; /* about the failure that the job fails of */
    int64_t own_wall_us;   /* with which it was told */
    int64_t told_round;    /* the last round whose failure elsewhere was told */

    bool has_news;    /* the handle is there */
    bool is_checking; /* the preflight command runs */
    bool has_group;
    bool has_agent;
    bool is_ended; /* when no call is left all is done */
    bool is_leaving_told;
    bool was_asked;     /* the last round ended on request */
    bool has_own_block; /* it is of our worker */
    bool is_waiting;    /* for a round, as told to on_wait */
};

/* The rendezvous is there: take part. */
void mst__run_begin(struct mst__run *run);

/* Feed the machine and carry out its effects. */
void mst__run_step(struct mst__run *run, struct mst__agent_event event);

/* --- run_calls.c --- */

/* Be ready for calls; close it in any case, when no call is left. 0, MST_ESYS. */
int mst__caller_open(struct mst__run *run, struct mst_err *reterr);
void mst__caller_close(struct mst__caller *caller);

/* Make a call when those before it are done. Without memory the process ends. */
struct mst__call *mst__run_call_new(struct mst__run *run, enum mst__call_kind kind);
void mst__run_call(struct mst__run *run, struct mst__call *call);

/* Make a call that does not block, whatever waits to be made. */
void mst__run_call_now(struct mst__run *run, struct mst__call *call);

/* The round is over for us: drop the exchange of its ranks. */
void mst__run_drop_assign(struct mst__run *run);

/* Whether agents of torch may be nodes of the job. */
bool mst__run_is_shared(const struct mst__run *run);

/* We leave: do not wait for a rendezvous that does not answer. */
void mst__run_hurry(struct mst__run *run);

/* --- run_workers.c --- */

/* Start a generation. A failure is an event. */
void mst__run_start(struct mst__run *run);

/* A mst__group_ended_fn. */
void mst__run_ended(void *arg, uint32_t worker, int status, int signal);

/* Look for heartbeats, and for answers to a notice. */
void mst__run_look_beats(struct mst__run *run);
void mst__run_look_acks(struct mst__run *run);

/* A notice is given: answers to earlier ones do not count. */
void mst__run_forget_acks(struct mst__run *run);

/* --- run_control.c --- */

/* There is a store: listen there for commands, if the backend has them. May be called again. */
void mst__run_listen(struct mst__run *run);

/* Publish the present state of this node. */
void mst__run_publish(struct mst__run *run);

/* --- run_report.c --- */

/* Our worker has failed: make the block about it, and the sentence for the others. */
void mst__run_describe(struct mst__run *run,
                       const struct mst__cause *cause,
                       char ret_text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1]);

/* The end, for people. */
void mst__run_report(struct mst__run *run);

/* Tell people why the workers stop, and that they start again: a worker of ours has failed; the
 * round is over by @notice; a node joins; a generation starts. */
void mst__run_tell_failure(struct mst__run *run, const struct mst__cause *cause);
void mst__run_tell_over(struct mst__run *run, const struct mst_notice *notice);
void mst__run_tell_stop(struct mst__run *run);
void mst__run_tell_start(struct mst__run *run);

/* A line of ours among the lines of workers. */
void mst__run_say(struct mst__run *run, const char *format, ...) MST_PRINTF(2, 3);

#endif /* MST_AGENT_RUN_SELF_H */
