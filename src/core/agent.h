/* core/agent.h - what the launcher of one node decides: when its workers start, are told to stop,
 * are killed, and when the node ends.
 *
 * Pure: one event goes in, a few effects come out; time is part of the event. The driver (processes
 * and a handler, or the simulator) carries the effects out in their order and feeds what comes of
 * them. It owns processes, pipes and the rendezvous; the agent decides.
 *
 * All workers of a node start and stop together: a generation. A worker that fails ends it on all
 * nodes: the agent says so to the job (RESTART), which counts failures, stops its other workers,
 * and wants the next round. A node that is lost ends it as well, on all other nodes, and so does a
 * newcomer if that is wanted. A node whose workers have all succeeded says so (FINISH) and stays in
 * its round until all nodes have: if a later round is needed, its workers run again. */
#ifndef MST_CORE_AGENT_H
#define MST_CORE_AGENT_H

#include "core/authority.h"

/*
 *             sealed              assigned, pause is over         all succeeded
 *   WAITING ----------> STARTING -----------------------> RUNNING -------------> FINISHED
 *     ^ ^ |               | |                                |                      | |
 *     | | | refused,      | | round is over                  | failed, round is     | |
 *     | | | signal        | | (nothing runs yet)             | over, signal, closed | |
 *     | | |     +---------+-|---- signal, closed             v                      | |
 *     | +-|-----|-----------+                            STOPPING                   | |
 *     |   v     v                  next is the end        |   | none is left        | |
 *     |   ENDED <-----------------------------------------+   |                     | |
 *     |     ^                                                 |                     | |
 *     +-----|-------------------------------------------------+                     | |
 *     |     +---------------------------- closed, signal ---------------------------+ |
 *     +---------------------------------- round is over ------------------------------+
 */
#define MST_AGENT_PHASE_MAP(X)                                                     \
    X(WAITING, "waiting")   /* wants a round; no worker runs */                    \
    X(STARTING, "starting") /* has one; ranks are exchanged, a pause may pass */   \
    X(RUNNING, "running")                                                          \
    X(FINISHED, "finished") /* all workers have succeeded; other nodes have not */ \
    X(STOPPING, "stopping") /* workers are told to stop, and are waited for */     \
    X(ENDED, "ended")

enum mst__agent_phase {
#define MST_AGENT_PHASE_ENUM(name, text) MST_AGENT_##name,
    MST_AGENT_PHASE_MAP(MST_AGENT_PHASE_ENUM)
#undef MST_AGENT_PHASE_ENUM
};
#define MST_AGENT_PHASE_COUNT (MST_AGENT_ENDED + 1)

/* "waiting" for MST_AGENT_WAITING. Static memory. */
const char *mst__agent_phase_name(enum mst__agent_phase phase);

/* Why a generation starts, and so why the last one has ended. */
#define MST_AGENT_REASON_MAP(X) \
    X(FIRST, "first")           \
    X(FAILURE, "failure")       \
    X(JOIN, "join")             \
    X(LEAVE, "leave")           \
    X(REQUEST, "request")

enum mst__agent_reason {
#define MST_AGENT_REASON_ENUM(name, text) MST_AGENT_REASON_##name,
    MST_AGENT_REASON_MAP(MST_AGENT_REASON_ENUM)
#undef MST_AGENT_REASON_ENUM
};
#define MST_AGENT_REASON_COUNT (MST_AGENT_REASON_REQUEST + 1)
const char *mst__agent_reason_name(enum mst__agent_reason reason);

/* How the node ends. */
#define MST_AGENT_END_MAP(X)                                                      \
    X(FINISHED, "finished")   /* the job is done, with our work or without it */  \
    X(FAILED, "failed")       /* the job has failed: agent->cause */              \
    X(CLOSED, "closed")       /* somebody has closed it: agent->text */           \
    X(SIGNAL, "signal")       /* we were told to: agent->signal */                \
    X(DRAINED, "drained")     /* we were asked to leave, and the job goes on */   \
    X(REFUSED, "refused")     /* there is no round for us: agent->err */          \
    X(UNSTARTED, "unstarted") /* the workers cannot be started: agent->err */     \
    X(STUCK, "stuck")         /* a worker does not end, even when it is killed */ \
    X(EXCLUDED, "excluded")   /* too many failures were this node's */            \
    X(LOST, "lost")           /* the rendezvous stays out of reach: agent->err */

enum mst__agent_end {
#define MST_AGENT_END_ENUM(name, text) MST_AGENT_END_##name,
    MST_AGENT_END_MAP(MST_AGENT_END_ENUM)
#undef MST_AGENT_END_ENUM
};
#define MST_AGENT_END_COUNT (MST_AGENT_END_LOST + 1)

/* "finished" for MST_AGENT_END_FINISHED. Static memory. */
const char *mst__agent_end_name(enum mst__agent_end end);

/* What a newcomer, for whom there is room, does to workers that run. */
enum mst__agent_on_join {
    MST_AGENT_JOIN_RESTART,
    MST_AGENT_JOIN_NEXT_RESTART, /* it waits until a generation ends anyway */
};

enum mst__agent_event_kind {
    MST_AGENT_EVENT_TIME,       /* time has passed */
    MST_AGENT_EVENT_SEALED,     /* the round that was wanted is complete */
    MST_AGENT_EVENT_REFUSED,    /* it does not come: @err. A job that has ended: CLOSED instead */
    MST_AGENT_EVENT_ASSIGNED,   /* the answer to ASSIGN: @restarts of the job, failures alone */
    MST_AGENT_EVENT_UNASSIGNED, /* the same: @err */
    MST_AGENT_EVENT_OVER,       /* the round is over, or a member of it is gone: @reason, of a
                                   failure @cause */
    MST_AGENT_EVENT_WAITING,    /* @count nodes wait for the next one */
    MST_AGENT_EVENT_CLOSED,     /* the job has ended: @outcome, @cause, @text */
    MST_AGENT_EVENT_CUT,        /* the rendezvous cannot be reached: @err */
    MST_AGENT_EVENT_AGAIN,      /* it can again */
    MST_AGENT_EVENT_UNSTARTED,  /* the answer to START, when @worker cannot be started, and those
                                   after it were not: @err, and what a shell would @status */
    MST_AGENT_EVENT_EXITED,     /* @worker has ended: @status or @signal, @text, @wall_us */
    MST_AGENT_EVENT_BEAT,       /* @worker says that it goes on */
    MST_AGENT_EVENT_SAVED,      /* @worker answers a notice */
    MST_AGENT_EVENT_SIGNAL,     /* we are told to stop: @signal */
    MST_AGENT_EVENT_RESTART,    /* somebody asks for a new generation of the job */
    MST_AGENT_EVENT_DRAIN,      /* somebody asks this node to leave, by @deadline_us */
};

/* What it points to is borrowed for the call. */
struct mst__agent_event {
    enum mst__agent_event_kind kind;
    int64_t now_us;
    const struct mst_err *err;
    uint32_t restarts;
    enum mst__agent_reason reason;
    uint32_t count;
    enum mst__job_outcome outcome;
    const struct mst__cause *cause;
    struct mst_bytes text;
    uint32_t worker;
    int32_t status;
    uint32_t signal;
    int64_t wall_us;
    int64_t deadline_us; /* INT64_MAX = none */
    int64_t ago_us;      /* BEAT: when it was; 0 = now */
};

#define MST_AGENT_ALL UINT32_MAX

/* So many rounds whose ranks cannot be exchanged are the store's fault and no accident. */
#define MST_AGENT_UNASSIGNED_MAX 3

enum mst__agent_effect_kind {
    MST_AGENT_WANT,    /* the next round: SEALED, REFUSED or CLOSED follows */
    MST_AGENT_ASSIGN,  /* exchange ranks in the round: ASSIGNED or UNASSIGNED follows */
    MST_AGENT_START,   /* all workers, of generation agent->generation */
    MST_AGENT_SIGNAL,  /* @signal to @worker, which may be ALL of those that run */
    MST_AGENT_KILL,    /* all that is left of @worker, with its children */
    MST_AGENT_FINISH,  /* tell the job that our work is done */
    MST_AGENT_RESTART, /* tell it that our work has failed: @cause */
    MST_AGENT_CLOSE,   /* close the job: agent->text */
    MST_AGENT_LEAVE,   /* the round, or the queue */
    MST_AGENT_END,     /* nothing is left to do: agent->end */
};

struct mst__agent_effect {
    enum mst__agent_effect_kind kind;
    uint32_t worker;
    uint32_t signal;
    const struct mst__cause *cause;
};
#define MST_AGENT_EFFECTS_MAX 6

struct mst__agent_worker {
    bool is_running;
    bool has_beaten;
    bool has_saved;
    int64_t beat_us; /* when it last did, or was started */
};

struct mst__agent_options {
    struct mst__agent_worker *workers; /* borrowed for the agent's life; filled in by it */
    uint32_t workers_count;            /* > 0 */
    uint32_t stop_signal;
    int64_t grace_us; /* from the stop signal to KILL */
    int64_t kill_us;  /* from KILL until a worker counts as stuck */
    enum mst__agent_on_join on_join;
    uint32_t notice_signal;      /* before a planned stop; 0 = none */
    int64_t notice_us;           /* for workers to save their work then */
    int64_t end_us;              /* when the machine is taken away; 0 = not known */
    int64_t startup_us, hang_us; /* to the first beat, and between two; INT64_MAX = not watched */
    int64_t pause_us, pause_us_max; /* after the first failure, and at most; it doubles. 0 = none */
    int64_t quick_us;     /* a generation that fails sooner than this has failed at once */
    uint32_t quick_max;   /* so many in a row end the job; 0 = any number is fine */
    int64_t cut_us;       /* without the rendezvous, until the node ends */
    uint32_t exclude_max; /* so many failures of this node exclude it; 0 = any number is fine */
};

/* Plain data; to be read and not written by drivers. */
struct mst__agent {
    struct mst__agent_options options;
    enum mst__agent_phase phase;
    int64_t now_us;

    uint32_t generation;           /* grows with each START; 0 = none yet */
    enum mst__agent_reason reason; /* of the next one, or the one that runs */
    uint32_t restarts;             /* of the job, as the last ASSIGNED has it */
    uint32_t running_count;
    uint32_t failures;    /* of our workers, one for each generation at most */
    uint32_t quick_count; /* generations of the job that failed at once, in a row */
    int64_t cut_us;       /* when the node ends without the rendezvous; INT64_MAX = it is there */

    uint32_t unassigned_count; /* of rounds in a row whose ranks were not exchanged */
    bool is_assigned;          /* STARTING */
    int64_t start_us;  /* STARTING: when the pause is over. RUNNING: when they were started */
    int64_t notice_us; /* RUNNING: until then they may save; INT64_MAX = no notice was given */
    enum mst__agent_reason notice_reason;
    bool notice_drains;
    int64_t kill_us;  /* STOPPING: when they are killed */
    int64_t stuck_us; /* STOPPING: when those that are killed must have ended */
    bool is_killed;   /* STOPPING */
    bool ends;        /* when no worker runs any more */

    enum mst__agent_end end;
    uint32_t signal;
    struct mst__cause
        cause; /* of the job's failure, or of the last one of ours; its texts follow */
    char cause_node[MST_AUTHORITY_NAME_SIZE_MAX + 1];
    char cause_text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1];
    char text[MST_AUTHORITY_REASON_SIZE_MAX + 1];
    struct mst_err err;

    struct mst__agent_effect effects[MST_AGENT_EFFECTS_MAX];
    size_t effects_count;
};

/* @options are copied. It is WAITING, and WANT is its first effect. */
void mst__agent_init(struct mst__agent *agent,
                     const struct mst__agent_options *options,
                     int64_t now_us);

/* The effects of @event are in agent->effects. Time that goes back counts as none. Events that
 * come too late for the phase change nothing. */
void mst__agent_step(struct mst__agent *agent, const struct mst__agent_event *event);

/* When the next TIME is due; INT64_MAX = nothing is. */
int64_t mst__agent_due_us(const struct mst__agent *agent);

/* What must be true between two steps and is not, NULL if there is nothing. Static memory. */
const char *mst__agent_flaw(const struct mst__agent *agent);
/* Assert that there is nothing. */
void mst__agent_check(const struct mst__agent *agent);

#endif /* MST_CORE_AGENT_H */
