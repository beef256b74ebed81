/* agent/run.h - the launcher of one node: drives the machine of core/agent.h with real processes
 * and a real rendezvous, on one loop.
 *
 * The rendezvous handler has its own thread, and its calls may block. Another thread makes these
 * calls one by one, in the order in which the machine wants them. Everything else happens on the
 * loop, in the calling thread: notices of the handler (by its descriptor), ends of workers,
 * signals, time, output. */
#ifndef MST_AGENT_RUN_H
#define MST_AGENT_RUN_H

#include <muster/rendezvous.h>
#include <signal.h>

#include "agent/settings.h"
#include "core/agent.h"

/* Environment variable. If it is `cause`, only the node whose worker failed first reports the
 * failure. */
#define MST_REPORT_VARIABLE "MUSTER_REPORT"

/* The relay of this host sends it to end the grace of the workers. A repeated stop signal does not
 * tell that, because others send these to relay and agent: pkill, or the host when it shuts down.
 * The last of the signals, which is no constant. */
#define MST_HASTEN_SIGNAL SIGRTMAX

/* Whether the agents of all nodes share a console: MST_REPORT_VARIABLE is `cause`. They would print
 * the same messages, so one prints for all. */
bool mst__run_shares_console(const struct mst__run_settings *settings);

/* A wait for a round begins or ends. @is_late: it ended by its timeout, without a round. */
typedef void (*mst__run_wait_fn)(void *arg, bool is_waiting, bool is_late);

struct mst__run_options {
    const struct mst__run_settings *settings;
    const struct mst_params *params; /* of the rendezvous */
    int64_t cut_ms;                  /* how long the rendezvous may be unreachable */
    char *const *environment;        /* for workers to inherit, ended by NULL */
    mst__run_wait_fn on_wait;        /* called on the loop; NULL = none */
    void *on_wait_arg;
};

enum mst__run_failure {
    MST_RUN_WENT,      /* it went to its end: @end */
    MST_RUN_NOT_BEGUN, /* no rendezvous, or no memory: @err */
    MST_RUN_PREFLIGHT, /* the preflight command failed: @err */
};

struct mst__run_end {
    enum mst__run_failure failure;
    enum mst__agent_end end;
    struct mst_err err;     /* NOT_BEGUN, PREFLIGHT, REFUSED, UNSTARTED, LOST */
    struct mst_err silence; /* is_alone: why the rendezvous does not answer */
    int status, signal;     /* of the cause; SIGNAL: the received signal */
    bool goes_on;           /* SIGNAL: enough nodes are left for the job */
    bool is_alone;          /* this node's own end: the rendezvous does not answer, */
    bool is_told;           /* and knows it */
    char text[256];         /* CLOSED, DRAINED: the reason, or nothing */
};

/* Run this node's part of the job to its end, and print messages for the user. The node has left
 * the rendezvous when this returns. */
void mst__run(const struct mst__run_options *options, struct mst__run_end *ret_end);

#endif /* MST_AGENT_RUN_H */
