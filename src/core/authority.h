/* core/authority.h - one authority decides for all nodes of a run: members of a round, ranks,
 * waiting nodes, lost nodes.
 *
 * Pure: events go in, effects come out; time is an argument. A driver (the server's loop, the
 * holder of the oldest key in an etcd, the simulator) feeds the messages of its nodes, then takes
 * the effects until there are none and sends them. Only an announcement allocates; if that fails,
 * nothing has changed. An announcement, a heartbeat and a loss cost O(1), a seal O(n log n).
 *
 * Nodes are known by name. A process of a node has a session, its own random number, and an
 * incarnation, which is for information if there are contacts. If two processes have one name, the
 * one with the newer contact counts: the other is over, and does not come back. A round is
 * identified by its number and the epoch of the authority that sealed it; the number alone only
 * grows and serves as a fence.
 *
 * A node announces itself to get into the next round, names the last round that it knows, and keeps
 * its session alive. A duplicate or late message changes nothing: a member that announces itself
 * without knowing its round is told again, and only a member that knows its round can come back
 * from it. */
#ifndef MST_CORE_AUTHORITY_H
#define MST_CORE_AUTHORITY_H

#include <muster/error.h>
#include <stdbool.h>

#include "base/limits.h"
#include "base/map.h"
#include "core/settings.h"

/*
 *            first claim of a round         all its members have claimed their places
 *     OPEN ------------------------> RECLAIMING -------------------------------+
 *     ^  ^                            |      ^                                 |
 *     |  |  a member lost, left, back |      | claim of a later round          |
 *     |  +----------------------------+      +--------------------------+      |
 *     |                                                                 |      v
 *     |            a member lost, left, back                            +-- RUNNING
 *     +--------------------------------------------------------------------  ^
 *     |                                                                      |
 *     +------ sealed: at max, at min after the last call, or ----------------+
 *             at min when all nodes that were here before are back
 *
 * The failure of a member's work also opens a round that runs or is reclaimed, within the budget
 * of restarts; while another member at work has no connection, it counts as the loss of that one,
 * and while another one has said that it leaves, as its leaving.
 * CLOSED is final. It follows on any phase on request; on RUNNING when all members have finished;
 * on RUNNING and RECLAIMING when work fails beyond the budget; on OPEN when too few nodes are left
 * because finished members are gone.
 *
 * While the next round is open, members of the last one may still hold it. No round is sealed
 * before all of them have come back, left or been lost, so that there is never a second world
 * beside a living one.
 *
 * A finished member holds its round, and its end is neither a loss nor the end of the round: if it
 * leaves, dies or is replaced, its place is released. While a member has finished, the others are
 * not asked to give way to newcomers. If such a round is opened anyway, finished members that are
 * connected are called back with the others, and the rest is released when its grace is over.
 */
enum mst__authority_phase {
    MST_AUTHORITY_OPEN,       /* the next round gathers */
    MST_AUTHORITY_RECLAIMING, /* a round of another authority is being taken over */
    MST_AUTHORITY_RUNNING,    /* a round is sealed and whole */
    MST_AUTHORITY_CLOSED,
};

/* Why the phase changed. */
#define MST_AUTHORITY_WHY_MAP(X) \
    X(NONE, "none")              \
    X(FULL, "full")              \
    X(LAST_CALL, "last call")    \
    X(BACK, "everybody back")    \
    X(LOST, "lost")              \
    X(LEFT, "left")              \
    X(RETURNED, "returned")      \
    X(CLAIMED, "claimed")        \
    X(WHOLE, "whole")            \
    X(ASKED, "asked")            \
    X(FAILED, "failed")          \
    X(FINISHED, "finished")

enum mst__authority_why {
#define MST_AUTHORITY_WHY_ENUM(name, text) MST_AUTHORITY_WHY_##name,
    MST_AUTHORITY_WHY_MAP(MST_AUTHORITY_WHY_ENUM)
#undef MST_AUTHORITY_WHY_ENUM
};

/* "last call" for MST_AUTHORITY_WHY_LAST_CALL, "open" for MST_AUTHORITY_OPEN. These and those below
 * accept any number from a peer: "undefined". Static memory. */
const char *mst__authority_why_name(enum mst__authority_why why);
const char *mst__authority_phase_name(enum mst__authority_phase phase);

/* @round is the running round or, for OPEN, the one that gathers. */
typedef void (*mst__authority_trace_fn)(void *arg,
                                        enum mst__authority_phase from,
                                        enum mst__authority_phase to,
                                        enum mst__authority_why why,
                                        int64_t round);

/* How a session ended. */
#define MST_AUTHORITY_ENDED_MAP(X)                                                            \
    X(LEFT, "left")                                                                           \
    X(DISCONNECTED, "disconnected") /* its connection was closed, and the grace is over */    \
    X(SILENT, "silent")             /* connected and silent */                                \
    X(DEAD, "dead")                 /* reported by the driver */                              \
    X(UNCLAIMED, "unclaimed")       /* did not come back after a restart of the authority */  \
    X(REPLACED, "replaced")         /* by a newer process of the node */                      \
    X(OVER, "over")                 /* held a round, and others claim a later one */          \
    X(LATE, "late")                 /* did not come back in time from a round that is over */ \
    X(FINISHED, "finished")         /* its work was done */

enum mst__authority_ended {
#define MST_AUTHORITY_ENDED_ENUM(name, text) MST_AUTHORITY_ENDED_##name,
    MST_AUTHORITY_ENDED_MAP(MST_AUTHORITY_ENDED_ENUM)
#undef MST_AUTHORITY_ENDED_ENUM
};
#define MST_AUTHORITY_ENDED_COUNT (MST_AUTHORITY_ENDED_FINISHED + 1)

/* "silent" for MST_AUTHORITY_ENDED_SILENT. Static memory. */
const char *mst__authority_ended_name(enum mst__authority_ended how);

struct mst__authority_member;

/* The session of @member has ended; NULL: those of @count members of the round that were never
 * announced here. Called before the run changes. */
typedef void (*mst__authority_ended_fn)(void *arg,
                                        const struct mst__authority_member *member,
                                        enum mst__authority_ended how,
                                        uint32_t count);

/* A node's session with the authority: index and generation of a member. An ended session is never
 * mistaken for another one. */
typedef uint64_t mst__authority_id;
#define MST_AUTHORITY_NOBODY UINT64_MAX

#define MST_AUTHORITY_RANK_NONE UINT32_MAX

/* A driver that is later than this with a deadline was stopped. Nodes without a connection then get
 * as much time again to connect and announce themselves, which takes its answers. */
#define MST_AUTHORITY_LATE_US 1000000

/* While nodes wait, their number is reported at most this often; the first one, and none, are
 * reported at once. */
#define MST_AUTHORITY_WAITING_US 1000000

/* A node's knowledge of its last round. A spare or a queued node knows the round and its size, and
 * has no rank in it. */
struct mst__claim {
    uint64_t epoch;
    int64_t round; /* 0 = none */
    uint32_t world;
    uint32_t rank; /* MST_AUTHORITY_RANK_NONE = was not in it */
    bool holds;    /* still in @round, and does not want the next one */
};

struct mst__label {
    struct mst_bytes key, value;
};

/* The ranks of a node's workers in a round: @first and following of @world. Workers are numbered
 * through all nodes of the round, in the order of the nodes' ranks, and once more through those
 * with the same role. Zeroed: not known. */
struct mst__worker_ranks {
    uint32_t first, world;
    uint32_t role_first, role_world;
};

#define MST_CAUSE_WORKER_NONE UINT32_MAX

/* Why work failed. */
struct mst__cause {
    uint32_t rank;   /* of the node; MST_AUTHORITY_RANK_NONE = none */
    uint32_t worker; /* on the node; MST_CAUSE_WORKER_NONE */
    int32_t status;  /* exit status */
    uint32_t signal; /* that ended it; 0 = none */
    int64_t wall_us; /* time on the node's clock; 0 = not known */
    struct mst_bytes node;
    struct mst_bytes text;
    struct mst_bytes report; /* lines for people */
};

/* The outcome of a closed job. */
enum mst__job_outcome {
    MST_JOB_OUTCOME_ASKED,    /* closed on request */
    MST_JOB_OUTCOME_FINISHED, /* the work of all its nodes is done */
    MST_JOB_OUTCOME_FAILED,   /* of a cause */
};
#define MST_JOB_OUTCOME_COUNT (MST_JOB_OUTCOME_FAILED + 1)

/* "finished" for MST_JOB_OUTCOME_FINISHED. Static memory. */
const char *mst__job_outcome_name(enum mst__job_outcome outcome);

/* Why a round began. Numbers are those of enum mst_start and of the protocol. */
enum mst__job_start {
    MST_JOB_START_UNKNOWN, /* not known */
    MST_JOB_START_FIRST,   /* there was none before it */
    MST_JOB_START_JOINED,  /* the last round gave way to waiting nodes */
    MST_JOB_START_LOST,    /* a member of the last round was lost */
    MST_JOB_START_LEFT,    /* a member left */
    MST_JOB_START_FAILED,  /* a member's work failed */
    MST_JOB_START_ASKED,   /* a member wanted another round, without a new node */
};
#define MST_JOB_START_COUNT (MST_JOB_START_ASKED + 1)

/* "joined" for MST_JOB_START_JOINED. Static memory. */
const char *mst__job_start_name(enum mst__job_start start);

/* All bytes are borrowed for the call, and copied. Names, addresses and labels are text without
 * control characters. */
struct mst__announcement {
    struct mst_bytes name; /* of the node, the same after a restart; not empty */
    uint64_t incarnation;  /* of the process: larger for each start of the node, by its clock */
    uint64_t session;      /* of the process: random */
    /* The order of contacts, because the driver knows which of two connections is newer; 0 = use
     * the incarnation. */
    uint64_t contact;
    int64_t expiry_us;        /* silence after which it is lost, and only it */
    size_t memory_max;        /* the memory limit of the authority afterwards; 0 = none */
    struct mst_bytes address; /* where others reach it; of rank 0: for the workers */
    const struct mst__label *labels;
    size_t labels_count;
    uint32_t workers;      /* that it starts; 0 = it does not say: all nodes of a run, or none */
    struct mst_bytes role; /* of its workers */
    /* Equal on all nodes of a run. */
    uint32_t nodes_min, nodes_max; /* 1 <= min <= max */
    int64_t last_call_us;
    struct mst_bytes rank_by;  /* label keys, the outermost first, separated by commas:
                                  "rack,host" */
    uint32_t pinned_rank;      /* preference; MST_AUTHORITY_RANK_NONE */
    struct mst__budget budget; /* equal on all nodes as well */
    bool is_fixed;             /* no round is larger than the first one; equal on all nodes */
    struct mst__claim claim;
    bool has_wall; /* both clocks were read: the node's at the sending, ours at the arrival */
    int64_t wall_us, wall_here_us;
    void *driver; /* the driver's handle of the session; opaque */
};

/* Why an announcement was refused. */
enum mst__refusal {
    MST_REFUSAL_NONE,
    MST_REFUSAL_CLOSED,    /* MST_ECLOSED, MST_EFINISHED: who closed the run and why */
    MST_REFUSAL_SETTINGS,  /* MST_EINVAL: min, max, last call, order of ranks, budget, is_fixed or
                              whether nodes say their workers conflict */
    MST_REFUSAL_STALE,     /* MST_EEXPELLED: a newer process of the node is known */
    MST_REFUSAL_TWIN,      /* MST_EEXPELLED: another process with the same name and contact lives */
    MST_REFUSAL_CLAIM,     /* MST_EEXPELLED: the round that it claims to hold is over, or not its
                              own: announce for the next one */
    MST_REFUSAL_MALFORMED, /* MST_EINVAL, MST_ELIMIT: a field is out of its limits */
    MST_REFUSAL_FULL,      /* MST_ELIMIT: too many nodes */
    MST_REFUSAL_MEMORY,    /* MST_ENOMEM; MST_ELIMIT: memory_max */
};

/* Where a member is. */
enum mst__authority_place {
    MST_PLACE_FREE,    /* the entry is not in use */
    MST_PLACE_WAITING, /* waits for a seal: gathered, queued or spare */
    MST_PLACE_HOLDING, /* in the current round */
    MST_PLACE_GONE,    /* lost, left or replaced; remembered until the next seal */
};

/* The standing of a member; see mst__authority_standing. */
enum mst__authority_standing {
    MST_STANDING_GATHERED, /* the next round is open and counts it */
    MST_STANDING_QUEUED,   /* came late; the running round has room and is asked to give way */
    MST_STANDING_SPARE,    /* the running round is full; takes the place of the next one lost */
    MST_STANDING_MEMBER,   /* in the running round */
    MST_STANDING_CALLED,   /* in the last round, which is over: must come back */
    MST_STANDING_GONE,
    MST_STANDING_FINISHED, /* in the running round, and its work is done */
};
#define MST_STANDING_COUNT (MST_STANDING_FINISHED + 1)

const char *mst__authority_standing_name(enum mst__authority_standing standing);

/* Plain data; drivers may read it but not write. Lists end with UINT32_MAX. */
struct mst__authority_member {
    enum mst__authority_place place : 8;
    uint8_t pending;  /* its notice: an effect kind + 1, 0 = none */
    bool is_listed;   /* in the list of pending notices */
    bool is_linked;   /* in a list of the present or the absent */
    bool is_absent;   /* its connection is closed, the grace runs */
    bool is_lost;     /* GONE: lost, not left */
    bool is_named;    /* its name refers to this entry */
    bool is_returned; /* WAITING: the same process came back from the last round */
    bool is_finished; /* HOLDING: its work is done; GONE: it was */
    bool has_skew;    /* skew_us was measured */
    uint8_t expelled; /* GONE: why, for the notice */
    uint8_t patience; /* linked and not absent: the index of its list in authority->present */
    uint32_t generation;
    uint32_t prev, next;   /* in a list of the present or the absent, oldest first */
    uint32_t pending_next; /* in the list of notices; of a free entry: the next free one */
    uint32_t rank;         /* in the current round, also if back or gone; else RANK_NONE */
    uint32_t pinned_rank;
    uint16_t labels_count;
    uint16_t text_size;
    uint16_t role_size;
    uint32_t workers;                      /* of its last announcement */
    struct mst__worker_ranks worker_ranks; /* in the current round, if it was sealed here */
    void *driver;                          /* NULL while absent */
    char *text; /* name, address, labels as key and value, role; each with a NUL after it */
    uint64_t incarnation;
    uint64_t session;
    uint64_t contact; /* or the incarnation, if the driver has no contacts */
    uint64_t replaced[MST_AUTHORITY_REPLACED_MAX]; /* earlier sessions with this name; 0 = none */
    uint64_t order;     /* order of the session's announcement: smaller is earlier */
    int64_t heard_us;   /* last heartbeat or announcement; absent and gone: since when */
    int64_t skew_us;    /* the node's clock minus ours at the announcement; for information */
    int64_t expiry_us;  /* silence after which it is lost while it is present */
    int64_t leaving_us; /* HOLDING: until then failures of others follow from its leaving; 0 = it
                           stays */
};

/* Messages to send, in this order, except that EXPELLED may come earlier. */
enum mst__authority_effect_kind {
    /* To all members of the round (mst__authority_next_holder): @epoch, @round, @world, @address,
     * @restarts, @start, and to each its rank and those of its workers. With an id: to that one,
     * which may not know the round; with @waiting_count, and followed by REOPENED if the round is
     * over. */
    MST_TOLD_SEALED,
    /* To one. */
    MST_TOLD_QUEUED,   /* @epoch, @round, @world of the running round */
    MST_TOLD_SPARE,    /* the same */
    MST_TOLD_EXPELLED, /* @driver, @text: its session has ended here */
    /* To all that still hold the round. */
    MST_TOLD_LOST,     /* @lost: ranks lost since the last such effect */
    MST_TOLD_REOPENED, /* the round is over, come back: @why, @rank, @round_next; @cause of a
                          failure. Who was absent when it was sealed says what it knows, and is
                          told the round first. With an id: to that one, with all @lost of the
                          round */
    MST_TOLD_WAITING,  /* @waiting_count nodes want in and there is room. With an id: to that one */
    /* To all nodes (mst__authority_next_member). */
    MST_TOLD_CLOSED, /* @text: the reason, @owner, @outcome; @cause of a failure */
};

/* Borrowed until the next call on the authority. */
struct mst__authority_effect {
    enum mst__authority_effect_kind kind;
    mst__authority_id id; /* MST_AUTHORITY_NOBODY: to all nodes of the kind */
    void *driver;         /* for an effect to one node */
    uint64_t epoch;       /* of the running or last round */
    int64_t round;
    int64_t round_next;
    uint32_t world;
    uint32_t rank;                         /* SEALED to one: its own; REOPENED: the first cause */
    struct mst__worker_ranks worker_ranks; /* SEALED to one: its own */
    struct mst_bytes address;              /* SEALED: of rank 0 */
    uint32_t restarts;                     /* of the job, before the round was sealed */
    enum mst__job_start start;
    enum mst__authority_why why;
    uint32_t waiting_count;
    const uint32_t *lost; /* see mst__authority_ranked */
    size_t lost_count;
    size_t lost_unlisted; /* this many more, whose places were never claimed */
    size_t lost_total;    /* all lost ones of this round so far */
    const char *text;
    const char *owner;
    enum mst__job_outcome outcome;
    bool has_cause;
    struct mst__cause cause;
};

struct mst__authority_options {
    uint64_t epoch;       /* different and larger at each start; > 0 */
    int64_t expiry_us;    /* silence after which a connected node is lost, unless it asks for
                             more; INT64_MAX = never */
    int64_t grace_us;     /* after its connection closed */
    int64_t reclaim_us;   /* for the members of a round after a restart of the authority */
    int64_t return_us;    /* time for members to come back from a round that is over before they are
                             expelled; INT64_MAX = no limit */
    uint32_t members_max; /* living members; up to MST_AUTHORITY_MEMBERS_MAX */
    uint8_t hash_key[MST_SIPHASH_KEY_SIZE]; /* random: nodes choose their names */
    mst__authority_trace_fn trace;          /* may be NULL */
    mst__authority_ended_fn ended;          /* may be NULL */
    void *trace_arg;                        /* of both */
};

/* Equal on all nodes; valid while there are living members. */
struct mst__authority_settings {
    bool is_set;
    bool is_fixed;    /* see mst__authority_nodes_max */
    bool has_workers; /* nodes say how many workers they start */
    uint32_t nodes_min, nodes_max;
    int64_t last_call_us;
    struct mst__budget budget;
    char rank_by[MST_AUTHORITY_RANK_BY_SIZE_MAX + 1];
    char setter[MST_AUTHORITY_NAME_SIZE_MAX + 1]; /* the node that set them */
};

struct mst__authority_list {
    uint32_t first, last;
};

/* Present members that are lost after the same time of silence, by heard_us. */
struct mst__authority_patience {
    struct mst__authority_list members;
    int64_t expiry_us; /* not less than any of theirs */
};

/* Counters since the start of the authority. @steps counts visited members. */
struct mst__authority_stats {
    uint64_t announcements, refusals, heartbeats, seals, losses, leaves, replacements;
    uint64_t finishes, restarts;
    uint64_t steps;
};

/* Plain data; drivers may read it but not write. */
struct mst__authority {
    struct mst__authority_options options;
    struct mst__authority_settings settings;
    enum mst__authority_phase phase;
    enum mst__job_outcome outcome; /* CLOSED */
    int64_t now_us;                /* of the last event; never falls */
    int64_t listen_us;             /* no absent node is lost before this, after a stop */

    /* The current round: the last one that was sealed, here or by a predecessor. */
    uint64_t round_epoch;
    int64_t round;       /* 0 = none yet */
    int64_t sealed_us;   /* on our clock */
    int64_t round_floor; /* the highest round ever claimed; the next one is larger */
    int64_t reclaim_us;  /* until when places may be claimed */
    uint32_t world;
    uint32_t first_world;    /* of the first round since there are nodes, as far as it is known;
                                0 = there was none */
    uint32_t held_count;     /* members that hold it */
    uint32_t unknown_count;  /* ranks whose places are not claimed */
    uint32_t finished_count; /* finished members that hold it */
    uint32_t released_count; /* ranks of finished members that are gone */
    uint32_t round_restarts; /* restarts of the job before its seal, if it was sealed here */
    enum mst__job_start round_start; /* the same */

    /* The next one. */
    uint32_t waiting_count;        /* WAITING, including absent ones */
    uint32_t waiting_absent_count; /* absent ones of those */
    uint32_t waiting_back_count;   /* those with a rank in the last round */
    uint32_t survivors_count;      /* those that were present when the round was opened */
    uint64_t reopened_order;       /* they are older than this, or is_returned */
    int64_t last_call_us;          /* end of the last call; INT64_MAX = not begun */
    int64_t return_us;             /* when members that hold a round that is over are expelled */
    enum mst__authority_why reopened_why;
    uint32_t reopened_rank;

    /* Members. */
    struct mst__map names; /* name to index */
    struct mst__authority_member *members;
    uint32_t members_count; /* entries ever used */
    uint32_t members_capacity;
    uint32_t living_count; /* WAITING or HOLDING */
    uint32_t used_count;   /* used entries, including remembered ones */
    uint32_t free_first;
    /* Living ones. A list of present ones that is empty serves for any expiry. */
    struct mst__authority_patience present[MST_AUTHORITY_EXPIRIES_MAX];
    struct mst__authority_list absent; /* by heard_us */
    uint64_t order_next;
    /* Rank to index in the current round; UINT32_MAX = not claimed. In pages, so that a claimed
     * round takes no memory before its members come. */
    uint32_t **places;
    uint32_t *arrays; /* one block: lost, and three for a seal */
    uint32_t places_pages;
    uint32_t arrays_capacity;
    size_t memory_used; /* of all allocations, without their headers */
    size_t memory_max;  /* limit of the current announcement */

    /* The answer to the last announcement. */
    mst__authority_id announced;
    enum mst__refusal refusal;

    /* Pending effects. */
    struct mst__authority_list pending; /* notices to single members */
    uint32_t *lost; /* ranks lost in the current round, oldest first, as far as there is room */
    uint32_t lost_count, lost_told;             /* in the list: all, and those reported */
    uint32_t lost_unlisted, lost_unlisted_told; /* of unclaimed places */
    int64_t waiting_told_us;
    uint32_t waiting_told;
    bool is_seal_pending, is_reopen_pending, is_close_pending;

    /* Failures. */
    bool has_cause;          /* mst__authority_cause: of the last failure */
    int64_t leaving_us;      /* not before the last of the members; 0 = all stay */
    int64_t restarts_us;     /* start of the budget's window */
    uint32_t restarts;       /* used in the window */
    uint32_t restarts_total; /* of the job, in all windows */
    struct mst__cause cause; /* without its texts, which are below */
    char cause_node[MST_AUTHORITY_NAME_SIZE_MAX + 1];
    char cause_text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1];
    char cause_report[MST_AUTHORITY_REPORT_SIZE_MAX + 1];

    char close_reason[MST_AUTHORITY_REASON_SIZE_MAX + 1];
    char close_owner[MST_AUTHORITY_NAME_SIZE_MAX + 1];
    struct mst__authority_stats stats;
};

/* @options are copied. Nothing is allocated. */
void mst__authority_init(struct mst__authority *authority,
                         const struct mst__authority_options *options);
void mst__authority_close(struct mst__authority *authority);

/* The events of an authority. Those of a session @id fail with MST_ENOTFOUND if it is over: the
 * node was lost or replaced, and must announce itself again.
 *
 * ANNOUNCED: a node announces itself (@announcement): for the next round, coming back from its
 * round, or, with claim.holds, as a member of a round. A process with a newer contact replaces
 * another one of the same name at once. The session is present afterwards, and is told its
 * standing again, because effects are not delivered to absent nodes. 0, with authority->announced,
 * which is its previous id if it is known; or the code beside authority->refusal, with a sentence,
 * and nothing changed.
 *
 * KEPT: the same, for core/authority_keep.h: an older session of the same process is lost, and a
 * session of a process that has a newer one is refused as stale.
 *
 * HEARD: @id is alive. MST_EINVAL while it is absent.
 *
 * DISCONNECTED: the connection @driver of @id was closed; the node has grace_us to come again.
 * Always feed it before the driver forgets @driver, also for sessions that are over. MST_ENOTFOUND
 * also if the session has another connection by now: nothing has changed.
 *
 * FINISHED: the work of @id in the round (@epoch, @round) is done. When all members have finished,
 * the job is closed as finished. Repeat it after a new authority has taken over. MST_ESTATE if it
 * is no longer in that round, or the round is over: nothing has changed.
 *
 * FAILED: the work of @id in the round (@epoch, @round) has failed with @cause, whose rank and
 * node may be empty, and it needs a new round. The first failure of a round is its cause and uses
 * one restart of the budget: the round is over. If none is left, the job is closed as failed.
 * MST_ESTATE as above: later failures of a round follow from the first.
 *
 * LEAVING: @id will leave the round (@epoch, @round) in @in_us, cut off at its limit. Work of other
 * members that fails until then, or until its silence would be noticed, fails because of that: it
 * uses no restart. MST_ESTATE as above.
 *
 * LEFT: @id leaves. This closes nothing.
 *
 * DEAD: the driver knows that @id is lost.
 *
 * SHUT: close the run. @reason and @owner are cut off at their limits. MST_ECLOSED if it is
 * already closed; the first reason stays.
 *
 * TIME: time has passed, and the driver has fed all messages up to @now_us, which may be before
 * the last event: see core/listening.h. Silence is judged at that time.
 *
 * RESTORED: the round (@epoch, @round) was sealed with @world members before this authority took
 * over, for a driver that has it in store: the next one gets a larger number, and the places 0 to
 * @world - 1 wait for reclaim_us to be claimed. The driver then announces the members with claims,
 * both those that hold the round and those that have come back. MST_EINVAL, also after the first
 * announcement.
 *
 * SETTLED: members that have not claimed their places are lost now: for a driver that has
 * announced all members. */
#define MST_AUTHORITY_EVENT_MAP(X)  \
    X(ANNOUNCED, "announced")       \
    X(KEPT, "kept")                 \
    X(HEARD, "heard")               \
    X(DISCONNECTED, "disconnected") \
    X(FINISHED, "finished")         \
    X(FAILED, "failed")             \
    X(LEFT, "left")                 \
    X(DEAD, "dead")                 \
    X(SHUT, "shut")                 \
    X(TIME, "time")                 \
    X(RESTORED, "restored")         \
    X(SETTLED, "settled")           \
    X(LEAVING, "leaving")

enum mst__authority_event_kind {
#define MST_AUTHORITY_EVENT_ENUM(name, text) MST_AUTHORITY_EVENT_##name,
    MST_AUTHORITY_EVENT_MAP(MST_AUTHORITY_EVENT_ENUM)
#undef MST_AUTHORITY_EVENT_ENUM
};
#define MST_AUTHORITY_EVENT_COUNT (MST_AUTHORITY_EVENT_LEAVING + 1)

/* "heard" for MST_AUTHORITY_EVENT_HEARD. Static memory. */
const char *mst__authority_event_name(enum mst__authority_event_kind kind);

/* Pointers are borrowed for the call. */
struct mst__authority_event {
    enum mst__authority_event_kind kind;
    int64_t now_us;
    mst__authority_id id;
    union {
        const struct mst__announcement *announcement; /* ANNOUNCED, KEPT */
        const void *driver;                           /* DISCONNECTED */
        struct {
            uint64_t epoch;
            int64_t round;
            uint32_t world;                 /* RESTORED */
            const struct mst__cause *cause; /* FAILED */
            int64_t in_us;                  /* LEAVING */
        };                                  /* FINISHED, FAILED, LEAVING, RESTORED */
        struct {
            struct mst_bytes reason, owner;
        }; /* SHUT */
    };
};

/* Feed @event: 0, or the code of its kind and, for an announcement, a sentence in @reterr, which
 * otherwise may be NULL. */
int mst__authority_step(struct mst__authority *authority,
                        const struct mst__authority_event *event,
                        struct mst_err *reterr);

/* The size that the next round may have: nodes_max of the settings, or, if the job is fixed, the
 * size of its first round. Nodes beyond it wait and take the places of lost ones. */
uint32_t mst__authority_nodes_max(const struct mst__authority *authority);

/* When the next TIME is due; INT64_MAX = never. Each event may make it earlier. */
int64_t mst__authority_due_us(const struct mst__authority *authority);

/**
 * Take the next effect; false if there is none. Take all of them after every event or batch of
 * events; effects that later events have overtaken are dropped.
 */
bool mst__authority_next_effect(struct mst__authority *authority,
                                struct mst__authority_effect *ret_effect);

/* Iterate: @cursor begins with 0; NULL at the end. The holders of the current round, by rank. */
const struct mst__authority_member *mst__authority_next_holder(
    const struct mst__authority *authority,
    uint32_t *cursor);
/* All members in the table, including remembered ones. */
const struct mst__authority_member *mst__authority_next_member(
    const struct mst__authority *authority,
    uint32_t *cursor);

/* The member that has or had @rank in the current round; NULL if the place is not claimed. */
const struct mst__authority_member *mst__authority_ranked(const struct mst__authority *authority,
                                                          uint32_t rank);

/* The living session @id, or NULL; that of the node @name, or MST_AUTHORITY_NOBODY. */
const struct mst__authority_member *mst__authority_get(const struct mst__authority *authority,
                                                       mst__authority_id id);
mst__authority_id mst__authority_find(const struct mst__authority *authority,
                                      struct mst_bytes name);
mst__authority_id mst__authority_id_of(const struct mst__authority *authority,
                                       const struct mst__authority_member *member);

/* Texts of a member, NUL-terminated. */
struct mst_bytes mst__authority_name(const struct mst__authority_member *member);
struct mst_bytes mst__authority_address(const struct mst__authority_member *member);
/* Of its workers; empty = not said. */
struct mst_bytes mst__authority_role(const struct mst__authority_member *member);
/* @index < member->labels_count. */
struct mst__label mst__authority_label(const struct mst__authority_member *member, size_t index);
/* The value of @key; empty, with data NULL, if there is no such label. */
struct mst_bytes mst__authority_label_value(const struct mst__authority_member *member,
                                            struct mst_bytes key);

/* The standing of a member. For MEMBER and CALLED, authority->round_epoch, round, world and its
 * rank are those of SEALED; for CALLED also authority->lost and reopened_why. */
enum mst__authority_standing mst__authority_standing(const struct mst__authority *authority,
                                                     const struct mst__authority_member *member);

/* The number of living members by standing. O(1). */
void mst__authority_count_standings(const struct mst__authority *authority,
                                    uint32_t ret_counts[MST_STANDING_COUNT]);

/* The cause of the last failure, if has_cause. Borrows from @authority. */
struct mst__cause mst__authority_cause(const struct mst__authority *authority);

/* "node 'a' (rank 3), worker 1: exit status 7: out of memory"; cut off if @ret_size is too
 * small. */
void mst__cause_describe(const struct mst__cause *cause, char *ret_text, size_t ret_size);

/* The round that gathers or comes next. */
int64_t mst__authority_round_next(const struct mst__authority *authority);

/* One sentence: what the run does or waits for, with up to MST_AUTHORITY_NAMES_TOLD names; cut off
 * if @ret_size is too small. Visits every member. */
void mst__authority_describe(const struct mst__authority *authority,
                             int64_t now_us,
                             char *ret_text,
                             size_t ret_size);

/* A violated invariant, NULL if there is none: for an authority that was read from a file. Visits
 * every member. Static memory. */
const char *mst__authority_flaw(const struct mst__authority *authority);
/* Assert all invariants: for tests and the simulator. */
void mst__authority_check(const struct mst__authority *authority);

#endif /* MST_CORE_AUTHORITY_H */
