/* core/agent.h - the decisions of the launcher of one node: when its workers start, are told to
 * stop, are killed, and when the node ends.
 *
 * Pure: one event in, a few effects out; time is part of the event. The driver (processes and a
 * handler, or the simulator) carries out the effects in order and feeds their results back. It owns
 * processes, pipes and the rendezvous; the agent decides. It also decides how long its reports may
 * take to arrive: a rendezvous that does not answer delays no end for long.
 *
 * All workers of a node start and stop together: a generation. A worker that fails ends the
 * generation on all nodes: the agent reports the failure to the job (RESTART), which counts
 * failures; then it stops its other workers and, when the report has arrived, wants the next round.
 * A lost node also ends the generation on all other nodes, and so does a new node if the options
 * say so. A node whose workers have all succeeded reports that (FINISH) and stays in its round
 * until all nodes have finished: if another round is needed, its workers run again. A report that
 * does not arrive is repeated for a while; then the node ends as its own workers have. */
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
 *     |   v     v                  next is the end        | | | none is left        | |
 *     |   ENDED <-----------------------------------------+ | |                     | |
 *     |     ^                                               | |                     | |
 *     |     |              none is left, failure not told   | |                     | |
 *     |     +--- time is over, signal, --- TELLING <--------+ |                     | |
 *     |     |    closed, next is the end      |               |                     | |
 *     +-----|---- told, round is over --------+               |                     | |
 *     +-----|-------------------------------------------------+                     | |
 *     |     +-------- closed, signal, not told in time -----------------------------+ |
 *     +---------------------------------- round is over ------------------------------+
 */
#define MST_AGENT_PHASE_MAP(X)                                                           \
    X(WAITING, "waiting")   /* wants a round; no worker runs */                          \
    X(STARTING, "starting") /* has a round; exchanges ranks, may pause */                \
    X(RUNNING, "running")                                                                \
    X(FINISHED, "finished") /* all workers have succeeded; other nodes still work */     \
    X(STOPPING, "stopping") /* workers are told to stop; waits for them */               \
    X(TELLING, "telling")   /* no worker runs; the report of the failure is under way */ \
    X(ENDED, "ended")

enum mst__agent_phase {
#define MST_AGENT_PHASE_ENUM(name, text) MST_AGENT_##name,
    MST_AGENT_PHASE_MAP(MST_AGENT_PHASE_ENUM)
#undef MST_AGENT_PHASE_ENUM
};
#define MST_AGENT_PHASE_COUNT (MST_AGENT_ENDED + 1)

/* "waiting" for MST_AGENT_WAITING. Static memory. */
const char *mst__agent_phase_name(enum mst__agent_phase phase);

/* Why a generation starts, and so why the previous one ended. */
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

/* How the node ends. A drain is never forgotten: whatever else ends the generation, the node enters
 * no other round. Nor does it when its time is over. */
#define MST_AGENT_END_MAP(X)                                                             \
    X(FINISHED, "finished")   /* the job is done, with this node's work or without it */ \
    X(FAILED, "failed")       /* the job has failed: agent->cause */                     \
    X(CLOSED, "closed")       /* the job was closed: agent->text */                      \
    X(SIGNAL, "signal")       /* stopped by a signal: agent->signal */                   \
    X(DRAINED, "drained")     /* asked to leave; the job goes on */                      \
    X(REFUSED, "refused")     /* no round for this node: agent->err */                   \
    X(UNSTARTED, "unstarted") /* workers cannot be started: agent->err */                \
    X(STUCK, "stuck")         /* a worker was killed and does not end */                 \
    X(EXCLUDED, "excluded")   /* this node caused too many failures */                   \
    X(LOST, "lost")           /* the rendezvous stays unreachable: agent->err */

enum mst__agent_end {
#define MST_AGENT_END_ENUM(name, text) MST_AGENT_END_##name,
    MST_AGENT_END_MAP(MST_AGENT_END_ENUM)
#undef MST_AGENT_END_ENUM
};
#define MST_AGENT_END_COUNT (MST_AGENT_END_LOST + 1)

/* "finished" for MST_AGENT_END_FINISHED. Static memory. */
const char *mst__agent_end_name(enum mst__agent_end end);

/* What happens to running workers when a new node waits and there is room for it. */
enum mst__agent_on_join {
    MST_AGENT_JOIN_RESTART,
    MST_AGENT_JOIN_NEXT_RESTART, /* the new node waits for a restart with another reason */
};

enum mst__agent_event_kind {
    MST_AGENT_EVENT_TIME,       /* time has passed */
    MST_AGENT_EVENT_SEALED,     /* the wanted round is complete */
    MST_AGENT_EVENT_REFUSED,    /* the round does not come: @err. CLOSED if the job has ended */
    MST_AGENT_EVENT_ASSIGNED,   /* ASSIGN has succeeded: @restarts of the job after failures */
    MST_AGENT_EVENT_UNASSIGNED, /* ASSIGN has failed: @err */
    MST_AGENT_EVENT_TOLD,       /* FINISH or RESTART has arrived, or nobody needs it any more */
    MST_AGENT_EVENT_UNTOLD,     /* it has not: @err */
    MST_AGENT_EVENT_OVER,       /* the round is over or a member is gone: @reason, perhaps @cause */
    MST_AGENT_EVENT_WAITING,    /* @count nodes wait for the next round */
    MST_AGENT_EVENT_CLOSED,     /* the job has ended: @outcome, @cause, @text */
    MST_AGENT_EVENT_CUT,        /* the rendezvous is unreachable: @err */
    MST_AGENT_EVENT_AGAIN,      /* the rendezvous is reachable again */
    MST_AGENT_EVENT_UNSTARTED,  /* START has failed at @worker; later ones were not started: @err,
                                   and @status as of a shell */
    MST_AGENT_EVENT_EXITED,     /* @worker has ended: @status or @signal, @text, @wall_us */
    MST_AGENT_EVENT_BEAT,       /* @worker has sent a heartbeat */
    MST_AGENT_EVENT_HEARS,      /* @worker would survive the notice signal: it handles it */
    MST_AGENT_EVENT_SAVED,      /* @worker has answered a notice */
    MST_AGENT_EVENT_SIGNAL,     /* @signal tells the agent to stop; @hastens: a second one kills */
    MST_AGENT_EVENT_RESTART,    /* request for a new generation on all nodes */
    MST_AGENT_EVENT_DRAIN,      /* request that this node leaves, by @deadline_us */
};

/* What the pointers refer to is borrowed for the call. */
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
    bool hastens;
    int64_t wall_us;     /* TIME, EXITED, UNSTARTED: time of the failure on the node's clock */
    int64_t deadline_us; /* INT64_MAX = none */
};

#define MST_AGENT_ALL UINT32_MAX

/* The node ends after so many rounds in a row whose ranks cannot be exchanged: that is a fault of
 * the store, not an accident. */
#define MST_AGENT_UNASSIGNED_MAX 3

enum mst__agent_effect_kind {
    MST_AGENT_WANT,    /* begin the next round: SEALED, REFUSED or CLOSED follows */
    MST_AGENT_ASSIGN,  /* exchange ranks in the round: ASSIGNED or UNASSIGNED follows */
    MST_AGENT_START,   /* start all workers, as generation agent->generation */
    MST_AGENT_SIGNAL,  /* send @signal to @worker; MST_AGENT_ALL = to all that run */
    MST_AGENT_KILL,    /* kill all workers that run, with their children */
    MST_AGENT_FINISH,  /* report to the job that this node's work is done; as RESTART, it may come
                          again. TOLD or UNTOLD follows */
    MST_AGENT_RESTART, /* report to the job that this node's work has failed: @cause */
    MST_AGENT_CLOSE,   /* close the job */
    MST_AGENT_LEAVE,   /* leave the round, or the queue, by @until_us; reports under way are sent,
                          and their arrival is not waited for */
    MST_AGENT_END,     /* nothing is left to do: agent->end */
};

struct mst__agent_effect {
    enum mst__agent_effect_kind kind;
    uint32_t worker;
    uint32_t signal;
    bool is_again; /* FINISH, RESTART: it is repeated */
    const struct mst__cause *cause;
    int64_t until_us;
};
#define MST_AGENT_EFFECTS_MAX 6

struct mst__agent_worker {
    bool is_running;
    bool has_beaten;
    bool is_noticed; /* the notice was sent to it */
    bool has_saved;  /* it has answered the notice */
    int64_t beat_us; /* time of the last heartbeat, or of the start */
};

struct mst__agent_options {
    struct mst__agent_worker *workers; /* must outlive the agent, which fills it in */
    uint32_t workers_count;            /* > 0 */
    uint32_t stop_signal;
    int64_t grace_us; /* from the stop signal to KILL */
    int64_t kill_us;  /* from KILL until a worker counts as stuck */
    enum mst__agent_on_join on_join;
    uint32_t notice_signal;      /* sent before a planned stop, to workers that HEAR it; 0 = none */
    int64_t notice_us;           /* time for workers to save their work */
    int64_t end_us;              /* end of this node's time; 0 = not known. Needs a notice_signal */
    int64_t startup_us, hang_us; /* to the first heartbeat, and between two; INT64_MAX = no limit */
    int64_t pause_us, pause_us_max; /* after the first failure, doubled up to this; 0 = none */
    int64_t quick_us;               /* a generation that fails before this has failed at once */
    uint32_t quick_max;             /* so many in a row end the job; 0 = no limit */
    int64_t cut_us;                 /* how long the rendezvous may be unreachable */
    int64_t tell_us;                /* how long the report of an end of all work may take */
    int64_t again_us;               /* the pause before a report is repeated */
    int64_t leave_us;               /* how long leaving may take */
    uint32_t restarts_max;          /* a failure after so many is the job's end; UINT32_MAX = not
                                       known. A report of another failure may take cut_us */
    uint32_t exclude_max;           /* so many failures of this node exclude it; 0 = no limit */
};

/* Plain data, which drivers may read and must not write. */
struct mst__agent {
    struct mst__agent_options options;
    enum mst__agent_phase phase;
    int64_t now_us;

    uint32_t generation;           /* grows with each START; 0 = none yet */
    enum mst__agent_reason reason; /* of the next generation, or of the one that runs */
    uint32_t restarts;             /* of the job, from the last ASSIGNED */
    uint32_t running_count;
    uint32_t failures;    /* of this node's workers, at most one per generation */
    uint32_t quick_count; /* generations of the job that failed at once, in a row */
    int64_t cut_us;       /* when the node ends without the rendezvous; INT64_MAX = reachable */

    uint32_t unassigned_count; /* rounds in a row whose ranks were not exchanged */
    bool is_assigned;          /* STARTING: ranks are exchanged */
    int64_t start_us;          /* STARTING: end of the pause. RUNNING: start of the workers */
    int64_t notice_us;         /* RUNNING: end of the notice; INT64_MAX = none was given */
    enum mst__agent_reason notice_reason;
    bool drains;      /* the node leaves after this generation, however that ends */
    bool tells;       /* its report has not arrived yet */
    int64_t told_us;  /* FINISHED, TELLING: when the node ends without that; INT64_MAX = never */
    int64_t again_us; /* with tells: when to repeat the report; INT64_MAX = it is under way */
    int64_t kill_us;  /* STOPPING: when workers are killed */
    int64_t stuck_us; /* STOPPING: when killed workers must have ended */
    bool is_killed;   /* STOPPING: workers were killed */
    bool ends;        /* the node ends when no worker runs */

    enum mst__agent_end end;
    bool is_stuck; /* ENDED: workers still run, although they were killed */
    bool is_alone; /* ENDED: by the work of this node, as the rendezvous does not answer: @silence.
                        If it tells, no other node knows */
    uint32_t signal;         /* the first one that told this node to stop; 0 = none */
    struct mst__cause cause; /* of the job's failure, or of this node's last; its texts follow */
    char cause_node[MST_AUTHORITY_NAME_SIZE_MAX + 1];
    char cause_text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1];
    char text[MST_AUTHORITY_REASON_SIZE_MAX + 1];
    struct mst_err err;
    struct mst_err silence; /* why the rendezvous does not answer, of the last CUT or UNTOLD */

    struct mst__agent_effect effects[MST_AGENT_EFFECTS_MAX];
    size_t effects_count;
};

/* Initialize the agent: it is WAITING, and its first effect is WANT. @options is copied. */
void mst__agent_init(struct mst__agent *agent,
                     const struct mst__agent_options *options,
                     int64_t now_us);

/* Process @event. Its effects are in agent->effects. If the time goes back, it counts as unchanged.
 * Events that come too late for the phase are ignored. */
void mst__agent_step(struct mst__agent *agent, const struct mst__agent_event *event);

/* When the next TIME is due; INT64_MAX = never. */
int64_t mst__agent_due_us(const struct mst__agent *agent);

/* The invariant that is violated between two steps; NULL = none. Static memory. */
const char *mst__agent_flaw(const struct mst__agent *agent);
/* Assert that no invariant is violated. */
void mst__agent_check(const struct mst__agent *agent);

#endif /* MST_CORE_AGENT_H */
