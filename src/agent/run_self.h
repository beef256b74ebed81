/* agent/run_self.h - internals of a run, for its own files only. */
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
    MST_CALL_OPEN,    /* make the handler */
    MST_CALL_BEGIN,   /* begin a round */
    MST_CALL_ASSIGN,  /* exchange ranks in the round */
    MST_CALL_FINISH,  /* report that the work of this node is done */
    MST_CALL_AWAIT,   /* wait for the other nodes, because there is no authority to report to */
    MST_CALL_LEAVING, /* tell the other nodes that this node and its workers are about to end */
    MST_CALL_ASKED,   /* tell the other nodes of a request to restart all workers; then restart */
    MST_CALL_WHY,     /* ask whether a round without another reason ended by such a request */
    MST_CALL_RESTART, /* report that the work of this node has failed */
    MST_CALL_CLOSE,   /* close the job */
    MST_CALL_LEAVE,   /* leave the job */
};

struct mst__call {
    enum mst__call_kind kind;
    struct mst__run *run;
    struct mst__call *next;
    int rv;
    struct mst_err err;
    bool is_said; /* WHY: there was a request */

    struct mst_rendezvous round;                    /* ASSIGN: with its own store */
    struct mst__assignment assignment;              /* ASSIGN */
    struct mst_failure failure;                     /* RESTART */
    char text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1];    /* of the failure, */
    char report[MST_AUTHORITY_REPORT_SIZE_MAX + 1]; /* as its report */
    int64_t until_ms;                               /* LEAVE: when it must be over */
};

/* The thread that makes calls, one at a time, because each call needs the results of earlier ones.
 * libuv's pool would start four threads. The thread starts with the first call, not before: on a
 * busy machine a new thread waits long. */
struct mst__caller {
    pthread_t thread;
    uv_async_t async; /* wakes the loop when a call is done */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct mst__call *call; /* pending or under way; NULL = done */
    bool is_ending;
    bool has_async, has_thread;
};

#define MST_RUN_STORE_URL_SIZE 2048

struct mst__run {
    const struct mst__run_options *options;
    const struct mst__run_settings *settings;
    struct mst__run_end *ret;

    uv_loop_t loop;
    uv_poll_t news;
    uv_timer_t timer, look;
    uv_signal_t signals[2 * MST_SIGNALS_MAX + 1];
    size_t signals_count;
    uv_poll_t parent; /* readable when the process that has started this one is gone */
    int parent_fd;
    bool has_parent;

    struct mst__group group;
    struct mst__group preflight;
    struct mst__output *output;
    struct mst__events events;
    struct mst__control *control; /* NULL = not yet, or not available */
    struct mst__arena arena;      /* memory of the generation */

    struct mst__agent agent;
    struct mst_handler *handler;
    struct mst__caller caller;
    struct mst__call *calls;     /* the first is under way */
    struct mst__call *assigning; /* ASSIGN of the current round; NULL = none */

    struct mst_rendezvous round; /* last round with ranks; has a store */
    struct mst__assignment assignment;
    int64_t prev_world_size; /* 0 = none */
    int64_t *beats_ns;       /* per worker: last known time of its heartbeat file */
    int64_t *last_pids;      /* per worker, also after its end */
    char store_url[MST_RUN_STORE_URL_SIZE];
    struct mst__watchdog watchdog;

    struct mst__buf block; /* about the last known failure, see agent/report.h */
    int64_t own_wall_us;   /* time of this node's last failure, as reported */
    int64_t told_round;    /* last round with a failure elsewhere that was printed */

    bool has_news;    /* @news is initialized */
    bool is_checking; /* the preflight command runs */
    bool has_group;
    bool has_agent;
    bool is_ended; /* the loop stops when no call is left */
    bool is_leaving_told;
    bool leaves;         /* reports are not waited for any more */
    bool was_asked;      /* the last round ended on request */
    bool has_own_block;  /* @block is about a worker of this node */
    bool is_waiting;     /* for a round, as last told to on_wait */
    bool is_untold_said; /* that a report has not arrived yet was printed */
};

/* The handler is there: start the machine. */
void mst__run_begin(struct mst__run *run);

/* Feed @event to the machine, and carry out the effects. */
void mst__run_step(struct mst__run *run, struct mst__agent_event event);

/* --- run_calls.c --- */

/* Prepare for calls. Returns 0 or MST_ESYS; in both cases mst__caller_close must follow, when no
 * call is left. */
int mst__caller_open(struct mst__run *run, struct mst_err *reterr);
void mst__caller_close(struct mst__caller *caller);

/* Make a call, after the earlier ones are done. Without memory the process aborts. */
struct mst__call *mst__run_call_new(struct mst__run *run, enum mst__call_kind kind);
void mst__run_call(struct mst__run *run, struct mst__call *call);

/* Make a non-blocking call at once, before the pending ones. */
void mst__run_call_now(struct mst__run *run, struct mst__call *call);

/* The round is over for this node: stop the exchange of ranks. */
void mst__run_drop_assign(struct mst__run *run);

/* Whether torch's agents may be nodes of the job. */
bool mst__run_is_shared(const struct mst__run *run);

/* Leave the job by @until_us, and do not wait for a rendezvous that does not answer. */
void mst__run_leave(struct mst__run *run, int64_t until_us);

/* --- run_signals.c --- */

/* Handle the signals of the settings. Returns 0 or MST_ESYS. */
int mst__run_catch_signals(struct mst__run *run, struct mst_err *reterr);

/* Stop when the parent is gone, if it is a launcher whose death nobody else notices. Without
 * pidfd_open (Linux 5.3) this does nothing. */
void mst__run_watch_parent(struct mst__run *run);
void mst__run_forget_parent(struct mst__run *run);

/* --- run_workers.c --- */

/* Start a generation. A failure becomes an event of the machine. */
void mst__run_start(struct mst__run *run);

/* A mst__group_ended_fn. */
void mst__run_ended(void *arg, uint32_t worker, int status, int signal);

/* Check the files of workers for heartbeats, and for answers to a notice. */
void mst__run_look_beats(struct mst__run *run);
void mst__run_look_acks(struct mst__run *run);

/* Remove the worker's answer to an earlier notice, because it gets a new one. */
void mst__run_forget_ack(struct mst__run *run, uint32_t worker);

/* Tell the machine which workers can get the notice that is due. */
void mst__run_look_handlers(struct mst__run *run);

/* Pass @signal on to the workers that it does not end. */
void mst__run_forward(struct mst__run *run, int signal);

/* --- run_control.c --- */

/* Listen for commands in the round's store, if the backend supports them. May be called again. */
void mst__run_listen(struct mst__run *run);

/* Publish the current state of this node. */
void mst__run_publish(struct mst__run *run);

/* --- run_linger.c --- */

/* Hold the signals from before the loop ends: no worker runs any more, and a repeated signal must
 * not end the process halfway. */
void mst__run_hold_signals(const struct mst__run *run);

/* If this node serves others, stay for them, unless a signal has stopped it. Meanwhile signals are
 * taken, and end the stay. */
void mst__run_linger(const struct mst__run *run);

/* --- run_report.c --- */

/* Make the block about the failure of a worker of this node, and the sentence for other nodes. */
void mst__run_describe(struct mst__run *run,
                       const struct mst__cause *cause,
                       char ret_text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1]);

/* Report the end of the run, to the user and as an event. */
void mst__run_report(struct mst__run *run);

/* Tell the user why workers stop and that they start again: a worker of this node failed; the round
 * is over by @notice; a node joins; a generation starts. */
void mst__run_tell_failure(struct mst__run *run, const struct mst__cause *cause);
void mst__run_tell_over(struct mst__run *run, const struct mst_notice *notice);
void mst__run_tell_stop(struct mst__run *run);
void mst__run_tell_start(struct mst__run *run);

/* Print a line between whole lines of workers. */
void mst__run_say(struct mst__run *run, const char *format, ...) MST_PRINTF(2, 3);

#endif /* MST_AGENT_RUN_SELF_H */
