/* agent/run.h - the launcher of one node: the machine of core/agent.h with real processes and a
 * real rendezvous, on one loop.
 *
 * The rendezvous handler has a thread of its own, and its calls may block; they are made one after
 * the other in a thread of libuv's pool, in the order in which the machine wants them. Everything
 * else happens on the loop, in the calling thread: what the handler tells (its descriptor), ends of
 * workers, signals, time, output. */
#ifndef MST_AGENT_RUN_H
#define MST_AGENT_RUN_H

#include <muster/rendezvous.h>

#include "agent/settings.h"
#include "core/agent.h"

/* `cause`: only the node whose worker has failed first reports it. */
#define MST_REPORT_VARIABLE "MUSTER_REPORT"

/* A wait for a round begins or is over. @is_late: its time was over before there was a round. */
typedef void (*mst__run_wait_fn)(void *arg, bool is_waiting, bool is_late);

struct mst__run_options {
    const struct mst__run_settings *settings;
    const struct mst_params *params; /* of the rendezvous */
    int64_t cut_ms;                  /* how long it may be out of reach */
    char *const *environment;        /* that workers inherit, ended by NULL */
    mst__run_wait_fn on_wait;        /* called on the loop; NULL = nobody wants to know */
    void *on_wait_arg;
};

enum mst__run_failure {
    MST_RUN_WENT,      /* @end tells */
    MST_RUN_NOT_BEGUN, /* there was no rendezvous, or no memory: @err */
    MST_RUN_PREFLIGHT, /* the command that checks this node has failed: @err */
};

struct mst__run_end {
    enum mst__run_failure failure;
    enum mst__agent_end end;
    struct mst_err err;              /* REFUSED, UNSTARTED, LOST */
    int status, signal;              /* of the cause; of SIGNAL that signal */
    bool goes_on;                    /* SIGNAL: enough nodes are left for the job */
    char text[256];                  /* CLOSED: why */
    struct mst__signal_list signals; /* that are caught still */
};

/* Run this node's part of the job to its end, and print messages for people. The rendezvous is
 * left when this returns. */
void mst__run(const struct mst__run_options *options, struct mst__run_end *ret_end);

#endif /* MST_AGENT_RUN_H */
