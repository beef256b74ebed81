/* core/authority.h - one authority decides for all nodes of a run: who is in a round, with which
 * rank, who waits, who is lost.
 *
 * Pure: events go in, effects come out; time is an argument. A driver (the server's loop, the
 * holder of the oldest key in an etcd, the simulator) feeds what its nodes say, then takes the
 * effects until there are none and sends them. Only an announcement allocates; when it fails
 * nothing has changed. An announcement, a heartbeat and a loss cost O(1), a seal O(n log n).
 *
 * Nodes are known by name. A process of a node has a session, a number of its own, and an
 * incarnation, which is told and, where contacts say so, not trusted. Of two processes with one
 * name the one with the newer contact counts: the other is over, and does not come back. A round
 * is known by its number together with the epoch of the authority that sealed it; the number alone
 * is the fencing number, it only grows.
 *
 * A node announces itself to get into the next round, says from which round it comes (what it
 * knows), and keeps its session alive. A message that comes twice or late changes nothing: who
 * announces itself without knowing the round that it is in is told again, and only who knows it can
 * come back from it. */
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
 *             at min when everybody who was here before is back
 *
 * A round that runs or is reclaimed is also opened by the failure of a member's work, within the
 * budget of restarts; while another member at work has no connection that counts as its loss.
 * CLOSED follows and stays: on any of them when asked to close; on RUNNING when all members have
 * finished, and on RUNNING and RECLAIMING when work fails beyond the budget; on OPEN when too few
 * nodes are left because members that had finished are gone.
 *
 * While the next round is open, members of the last one may still hold it; no round is sealed
 * before all of them have come back, left or been lost, so that there is never a second world
 * beside a living one.
 *
 * A member that has finished holds its round, and nothing that happens to it is a loss or ends the
 * round: when it leaves, dies or is replaced its place is released. While any member has finished
 * the others are not asked to give way to newcomers. When such a round is opened all the same, who
 * has finished and is connected is called back with the others, and who is not is released, as soon
 * as its grace is over.
 */
enum mst__authority_phase {
    MST_AUTHORITY_OPEN,       /* the next round gathers */
    MST_AUTHORITY_RECLAIMING, /* a round that another authority sealed is being taken over */
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
 * take any number that a peer has sent: "undefined". Static memory. */
const char *mst__authority_why_name(enum mst__authority_why why);
const char *mst__authority_phase_name(enum mst__authority_phase phase);

/* @round is the round that runs or, of OPEN, that gathers. */
typedef void (*mst__authority_trace_fn)(void *arg,
                                        enum mst__authority_phase from,
                                        enum mst__authority_phase to,
                                        enum mst__authority_why why,
                                        int64_t round);

/* How a session ended. */
#define MST_AUTHORITY_ENDED_MAP(X)                                                            \
    X(LEFT, "left")                                                                           \
    X(DISCONNECTED, "disconnected") /* its connection was closed, and the grace is over */    \
    X(SILENT, "silent")             /* connected, and not heard of */                         \
    X(DEAD, "dead")                 /* as the driver knows */                                 \
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
 * announced here. The run is as it was before. */
typedef void (*mst__authority_ended_fn)(void *arg,
                                        const struct mst__authority_member *member,
                                        enum mst__authority_ended how,
                                        uint32_t count);

/* A node's session with the authority: index and generation of a member. A session that has ended
 * is never mistaken for another one. */
typedef uint64_t mst__authority_id;
#define MST_AUTHORITY_NOBODY UINT64_MAX

#define MST_AUTHORITY_RANK_NONE UINT32_MAX

/* A driver that comes later than this with what was due has been stopped. Those who have no
 * connection get as long again to make one and say who they are, which takes its answers. */
#define MST_AUTHORITY_LATE_US 1000000

/* While some wait, how many is told at most so often; that they are the first or that none is left
 * is told at once. */
#define MST_AUTHORITY_WAITING_US 1000000

/* What a node knows of the last round that it was told of. A spare or a queued node knows the round
 * and its size, and has no rank in it. */
struct mst__claim {
    uint64_t epoch;
    int64_t round; /* 0 = knows of none */
    uint32_t world;
    uint32_t rank; /* MST_AUTHORITY_RANK_NONE = was not in it */
    bool holds;    /* is in it still and does not want the next one: goes on in @round */
};

struct mst__label {
    struct mst_bytes key, value;
};

#define MST_CAUSE_WORKER_NONE UINT32_MAX

/* Why work has failed. */
struct mst__cause {
    uint32_t rank;   /* of the node; MST_AUTHORITY_RANK_NONE = nobody's */
    uint32_t worker; /* on the node; MST_CAUSE_WORKER_NONE */
    int32_t status;  /* with which it exited */
    uint32_t signal; /* that has ended it; 0 = none */
    int64_t wall_us; /* when, on the node's clock; 0 = not known */
    struct mst_bytes node;
    struct mst_bytes text;
};

/* How a job that is closed has ended. */
enum mst__job_outcome {
    MST_JOB_OUTCOME_ASKED,    /* somebody has closed it */
    MST_JOB_OUTCOME_FINISHED, /* the work of all its nodes is done */
    MST_JOB_OUTCOME_FAILED,   /* of a cause */
};
#define MST_JOB_OUTCOME_COUNT (MST_JOB_OUTCOME_FAILED + 1)

/* "finished" for MST_JOB_OUTCOME_FINISHED. Static memory. */
const char *mst__job_outcome_name(enum mst__job_outcome outcome);

/* Why a round has begun. Numbers are those of enum mst_start and of the protocol. */
enum mst__job_start {
    MST_JOB_START_UNKNOWN, /* nobody has told */
    MST_JOB_START_FIRST,   /* there was none before it */
    MST_JOB_START_JOINED,  /* the last one gave way to nodes that waited */
    MST_JOB_START_LOST,    /* a member of the last one was lost */
    MST_JOB_START_LEFT,    /* one has left */
    MST_JOB_START_FAILED,  /* the work of one has failed */
    MST_JOB_START_ASKED,   /* one wanted another round, and nobody new has come */
};
#define MST_JOB_START_COUNT (MST_JOB_START_ASKED + 1)

/* "joined" for MST_JOB_START_JOINED. Static memory. */
const char *mst__job_start_name(enum mst__job_start start);

/* All bytes are borrowed for the call, and copied. Names, addresses and labels are text without
 * control characters. */
struct mst__announcement {
    struct mst_bytes name; /* of the node, the same after a restart; not empty */
    uint64_t incarnation;  /* of the process: larger for each start of the node, says its clock */
    uint64_t session;      /* of the process, which has drawn it */
    /* How new the way is by which this has come, for the driver knows which of two connections is
     * the newer one; 0 = the incarnation says it. */
    uint64_t contact;
    int64_t expiry_us; /* silence after which it counts as lost; the most patient one counts */
    size_t memory_max; /* what the authority may have allocated afterwards; 0 = any */
    struct mst_bytes address; /* where others reach it; of rank 0: the bootstrap address */
    const struct mst__label *labels;
    size_t labels_count;
    /* All nodes of a run agree on these. */
    uint32_t nodes_min, nodes_max; /* 1 <= min <= max */
    int64_t last_call_us;
    struct mst_bytes rank_by;  /* label keys, the outermost first, with commas: "rack,host" */
    uint32_t pinned_rank;      /* preference; MST_AUTHORITY_RANK_NONE */
    struct mst__budget budget; /* equal on all nodes, too */
    struct mst__claim claim;
    bool has_wall; /* the two clocks were read: the node's when it sent, ours when it came */
    int64_t wall_us, wall_here_us;
    void *driver; /* what the driver knows the session by; handed back, never looked at */
};

/* Why an announcement was refused. */
enum mst__refusal {
    MST_REFUSAL_NONE,
    MST_REFUSAL_CLOSED,    /* MST_ECLOSED, MST_EFINISHED: who closed the run and why */
    MST_REFUSAL_SETTINGS,  /* MST_EINVAL: min, max, last call, order of ranks or budget conflict */
    MST_REFUSAL_STALE,     /* MST_EEXPELLED: a newer process of the node is known */
    MST_REFUSAL_TWIN,      /* MST_EEXPELLED: another process with the same name and contact lives */
    MST_REFUSAL_CLAIM,     /* MST_EEXPELLED: the round that it claims to hold is over, or not its
                              own: it has to announce itself for the next one */
    MST_REFUSAL_MALFORMED, /* MST_EINVAL, MST_ELIMIT: a field is out of its limits */
    MST_REFUSAL_FULL,      /* MST_ELIMIT: too many nodes */
    MST_REFUSAL_MEMORY,    /* MST_ENOMEM; MST_ELIMIT: memory_max */
};

/* Where a member is. */
enum mst__authority_place {
    MST_PLACE_FREE,    /* the entry is not in use */
    MST_PLACE_WAITING, /* for a round to be sealed: gathered, queued or spare */
    MST_PLACE_HOLDING, /* in the current round */
    MST_PLACE_GONE,    /* lost, left or replaced; remembered until the next seal */
};

/* How a waiting member stands; see mst__authority_standing. */
enum mst__authority_standing {
    MST_STANDING_GATHERED, /* the next round is open and will count it */
    MST_STANDING_QUEUED,   /* came late; the running round has room and is asked to give way */
    MST_STANDING_SPARE,    /* the running round is full; takes the place of the next one lost */
    MST_STANDING_MEMBER,   /* in the round that runs */
    MST_STANDING_CALLED,   /* in the last round, which is over: has to come back */
    MST_STANDING_GONE,
    MST_STANDING_FINISHED, /* in the round that runs, and its work is done */
};
#define MST_STANDING_COUNT (MST_STANDING_FINISHED + 1)

const char *mst__authority_standing_name(enum mst__authority_standing standing);

/* Plain data; to be read and not written by drivers. Indices end with UINT32_MAX. */
struct mst__authority_member {
    enum mst__authority_place place : 8;
    uint8_t pending;  /* a notice to this one: an effect kind + 1, 0 = none */
    bool is_listed;   /* in the list of pending notices */
    bool is_linked;   /* in the list of the present or the absent */
    bool is_absent;   /* its connection is closed, the grace runs */
    bool is_lost;     /* GONE: lost, not left */
    bool is_named;    /* the name leads to this entry */
    bool is_returned; /* WAITING: came back from the last round itself, not as a new process */
    bool is_finished; /* HOLDING: its work is done; GONE: it was */
    bool has_skew;    /* skew_us was measured */
    uint8_t expelled; /* GONE: why, for the notice */
    uint32_t generation;
    uint32_t prev, next;   /* in the list of the present or the absent, oldest first */
    uint32_t pending_next; /* in the list of notices; of a free entry: the next free one */
    uint32_t rank;         /* in the current round, also when back or gone; else RANK_NONE */
    uint32_t pinned_rank;
    uint16_t labels_count;
    uint16_t text_size;
    void *driver; /* NULL while absent */
    char *text;   /* name, address, labels as key and value; each with a NUL behind it */
    uint64_t incarnation;
    uint64_t session;
    uint64_t contact; /* or the incarnation, if the driver does not say */
    uint64_t replaced[MST_AUTHORITY_REPLACED_MAX]; /* sessions with this name before it; 0 = none */
    uint64_t order;   /* of the announcement of the session: the smaller, the earlier */
    int64_t heard_us; /* last heartbeat or announcement; of the absent and gone: since when */
    int64_t skew_us;  /* the node's clock minus ours, at the announcement; told, never acted on */
};

/* What is to be sent, in this order except that EXPELLED may come earlier. */
enum mst__authority_effect_kind {
    /* To everybody in the round (mst__authority_next_holder): @epoch, @round, @world, @address,
     * @restarts, @start, and to each its rank. With an id: to that one, which may not know; with
     * @waiting_count, and with REOPENED behind it when the round is over. */
    MST_TOLD_SEALED,
    /* To one. */
    MST_TOLD_QUEUED,   /* @epoch, @round, @world of the round that runs */
    MST_TOLD_SPARE,    /* the same */
    MST_TOLD_EXPELLED, /* @driver, @text: its session has ended here */
    /* To everybody who still holds the round. */
    MST_TOLD_LOST,     /* @lost: ranks of those lost since the last such effect */
    MST_TOLD_REOPENED, /* the round is over, come back: @why, @rank, @round_next; @cause of a
                          failure. Who was absent when it was sealed says what it knows, and is
                          told the round first. With an id: to that one, with all @lost of the
                          round */
    MST_TOLD_WAITING,  /* @waiting_count nodes want in and there is room. With an id: to that one */
    /* To everybody (mst__authority_next_member). */
    MST_TOLD_CLOSED, /* @text: the reason, @owner, @outcome; @cause of a failure */
};

/* Borrowed until the next call on the authority. */
struct mst__authority_effect {
    enum mst__authority_effect_kind kind;
    mst__authority_id id; /* MST_AUTHORITY_NOBODY: to all that the kind names */
    void *driver;         /* of an effect to one */
    uint64_t epoch;       /* of the round that runs or ran last */
    int64_t round;
    int64_t round_next;
    uint32_t world;
    uint32_t rank;            /* of SEALED to one: its own; of REOPENED: who was the first */
    struct mst_bytes address; /* of SEALED: rank 0's */
    uint32_t restarts;        /* of the job, before the round was sealed */
    enum mst__job_start start;
    enum mst__authority_why why;
    uint32_t waiting_count;
    const uint32_t *lost; /* mst__authority_ranked tells who they were */
    size_t lost_count;
    size_t lost_unlisted; /* so many more, whose places nobody had claimed */
    size_t lost_total;    /* in this round, told by now */
    const char *text;
    const char *owner;
    enum mst__job_outcome outcome;
    bool has_cause;
    struct mst__cause cause;
};

struct mst__authority_options {
    uint64_t epoch;       /* new and larger at each start; > 0 */
    int64_t expiry_us;    /* silence after which a connected node is lost, unless one of them asks
                             for more; INT64_MAX = never */
    int64_t grace_us;     /* after its connection closed */
    int64_t reclaim_us;   /* for the members of a round after a restart of the authority */
    int64_t return_us;    /* for members to come back from a round that is over before they are
                              expelled; INT64_MAX = as long as they live */
    uint32_t members_max; /* living ones; up to MST_AUTHORITY_MEMBERS_MAX */
    uint8_t hash_key[MST_SIPHASH_KEY_SIZE]; /* random: nodes choose their names */
    mst__authority_trace_fn trace;          /* may be NULL */
    mst__authority_ended_fn ended;          /* may be NULL */
    void *trace_arg;                        /* of both */
};

/* What all nodes agree on; valid while there are living members. */
struct mst__authority_settings {
    bool is_set;
    uint32_t nodes_min, nodes_max;
    int64_t last_call_us;
    struct mst__budget budget;
    char rank_by[MST_AUTHORITY_RANK_BY_SIZE_MAX + 1];
    char setter[MST_AUTHORITY_NAME_SIZE_MAX + 1]; /* the node whose announcement said so */
};

struct mst__authority_list {
    uint32_t first, last;
};

/* Counted since the authority began. @steps counts the members that were looked at. */
struct mst__authority_stats {
    uint64_t announcements, refusals, heartbeats, seals, losses, leaves, replacements;
    uint64_t finishes, restarts;
    uint64_t steps;
};

/* Plain data; the fields are the authority's own, to be read and not written. */
struct mst__authority {
    struct mst__authority_options options;
    struct mst__authority_settings settings;
    enum mst__authority_phase phase;
    enum mst__job_outcome outcome; /* CLOSED */
    int64_t now_us;                /* of the last event; it never falls */
    int64_t listen_us;             /* no absent one is lost before this, after a stop */

    /* The current round: the last one that was sealed, here or by a predecessor. */
    uint64_t round_epoch;
    int64_t round;       /* 0 = none yet */
    int64_t sealed_us;   /* when, on our clock */
    int64_t round_floor; /* the next one is larger than this, too: the highest ever claimed */
    int64_t reclaim_us;  /* until when places may be claimed */
    uint32_t world;
    uint32_t held_count;     /* members that hold it */
    uint32_t unknown_count;  /* ranks that have not claimed their places */
    uint32_t finished_count; /* of those that hold it: who has finished */
    uint32_t released_count; /* ranks of those who had finished and are gone */
    uint32_t round_restarts; /* of the job, before it was sealed; of one that was sealed here */
    enum mst__job_start round_start; /* the same */

    /* The next one. */
    uint32_t waiting_count;        /* WAITING, absent ones included */
    uint32_t waiting_absent_count; /* of those */
    uint32_t waiting_back_count;   /* of those: with a rank in the last round */
    uint32_t survivors_count; /* of those: processes that were here when the round was opened */
    uint64_t reopened_order;  /* those are older than this, or is_returned */
    int64_t last_call_us;     /* when it ends; INT64_MAX = has not begun */
    int64_t return_us;        /* when those who hold a round that is over are expelled */
    enum mst__authority_why reopened_why;
    uint32_t reopened_rank;

    /* Members. */
    struct mst__map names; /* name to index */
    struct mst__authority_member *members;
    uint32_t members_count; /* entries that were ever in use */
    uint32_t members_capacity;
    uint32_t living_count; /* WAITING or HOLDING */
    uint32_t used_count;   /* entries in use, with those that are remembered */
    uint32_t free_first;
    struct mst__authority_list present, absent; /* living ones, by heard_us */
    uint64_t order_next;
    /* Rank to index in the current round; UINT32_MAX = has not claimed its place. In pages, so that
     * a round that somebody claims costs nothing before its members come. */
    uint32_t **places;
    uint32_t *arrays; /* one block: lost, and three to seal with */
    uint32_t places_pages;
    uint32_t arrays_capacity;
    size_t memory_used; /* by all that was allocated; blocks' own headers left out */
    size_t memory_max;  /* of the announcement that is looked at */

    /* The answer to the last announcement. */
    mst__authority_id announced;
    enum mst__refusal refusal;

    /* What is to be told. */
    struct mst__authority_list pending; /* notices to one */
    uint32_t *lost; /* ranks lost in the current round, oldest first, as far as there is room */
    uint32_t lost_count, lost_told;             /* of those in the list: all, and those told */
    uint32_t lost_unlisted, lost_unlisted_told; /* of places that nobody has claimed */
    int64_t waiting_told_us;
    uint32_t waiting_told;
    bool is_seal_pending, is_reopen_pending, is_close_pending;

    /* Failures. */
    bool has_cause;          /* mst__authority_cause: of the last one */
    int64_t restarts_us;     /* when the budget's window began */
    uint32_t restarts;       /* used of it */
    uint32_t restarts_total; /* of the job, in all windows */
    struct mst__cause cause; /* without its texts, which are here */
    char cause_node[MST_AUTHORITY_NAME_SIZE_MAX + 1];
    char cause_text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1];

    char close_reason[MST_AUTHORITY_REASON_SIZE_MAX + 1];
    char close_owner[MST_AUTHORITY_NAME_SIZE_MAX + 1];
    struct mst__authority_stats stats;
};

/* @options are copied. Nothing is allocated. */
void mst__authority_init(struct mst__authority *authority,
                         const struct mst__authority_options *options);
void mst__authority_close(struct mst__authority *authority);

/* What happens to an authority. Those of a session @id fail with MST_ENOTFOUND when it is over: the
 * node was lost or replaced, and has to announce itself anew.
 *
 * ANNOUNCED: a node announces itself (@announcement): for the next round, coming back from its
 * round, or, with claim.holds, as one who is in a round already. Of the same name, a process with a
 * newer contact replaces another one at once. The session is present afterwards, and told anew how
 * it stands, for effects are not delivered to the absent. 0, with authority->announced, which is
 * the id that it had if it is known; or the code beside authority->refusal, with a sentence, and
 * nothing has changed.
 *
 * KEPT: the same, for core/authority_keep.h: an older session of the same process is lost, and one
 * that has a newer one is refused as stale.
 *
 * HEARD: @id is alive. MST_EINVAL while it is absent.
 *
 * DISCONNECTED: the connection @driver of @id was closed; the node has grace_us to come again.
 * Always to be told before the driver forgets what @driver points to, also for sessions that are
 * over. MST_ENOTFOUND also when the session has another connection by now: nothing has changed.
 *
 * FINISHED: the work of @id in the round (@epoch, @round) is done. When that of all is, the job is
 * closed as finished. To be said again after a new authority has taken over. MST_ESTATE when it is
 * not in that round any more, or the round is over: nothing has changed.
 *
 * FAILED: the work of @id in the round (@epoch, @round) has failed of @cause, whose rank and node
 * need not be filled in, and it needs a new round. The first failure of a round is its cause and
 * uses one restart of the budget: the round is over. When there is none left the job is closed as
 * failed. MST_ESTATE as above: later failures of a round follow from the first.
 *
 * LEFT: @id wants nothing any more. This closes nothing.
 *
 * DEAD: the driver knows that @id is.
 *
 * SHUT: end the run for good. @reason and @owner are cut off at their limits. MST_ECLOSED when it
 * was closed before, and the first reason stays.
 *
 * TIME: time has passed, and the driver has fed everything that its nodes had said until @now_us,
 * which may be before the last event: see core/listening.h. Silence is judged at that time.
 *
 * RESTORED: the round (@epoch, @round) was sealed with @world members before this authority took
 * over, for a driver that has it in store: the next one gets a larger number, and the places 0 to
 * @world - 1 wait for reclaim_us to be claimed. The driver then announces the members with claims,
 * those who hold the round and those who have come back. MST_EINVAL, also behind the first
 * announcement.
 *
 * SETTLED: members that have not claimed their places are lost now: for a driver that knows that it
 * has announced all there are. */
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
    X(SETTLED, "settled")

enum mst__authority_event_kind {
#define MST_AUTHORITY_EVENT_ENUM(name, text) MST_AUTHORITY_EVENT_##name,
    MST_AUTHORITY_EVENT_MAP(MST_AUTHORITY_EVENT_ENUM)
#undef MST_AUTHORITY_EVENT_ENUM
};
#define MST_AUTHORITY_EVENT_COUNT (MST_AUTHORITY_EVENT_SETTLED + 1)

/* "heard" for MST_AUTHORITY_EVENT_HEARD. Static memory. */
const char *mst__authority_event_name(enum mst__authority_event_kind kind);

/* What it points to is borrowed for the call. */
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
        };                                  /* FINISHED, FAILED, RESTORED */
        struct {
            struct mst_bytes reason, owner;
        }; /* SHUT */
    };
};

/* Feed @event: 0, or the code that its kind names and, of an announcement, a sentence in @reterr,
 * which else may be NULL. */
int mst__authority_step(struct mst__authority *authority,
                        const struct mst__authority_event *event,
                        struct mst_err *reterr);

/* When the next TIME is due; INT64_MAX = nothing is. Each event may make it earlier. */
int64_t mst__authority_due_us(const struct mst__authority *authority);

/**
 * Take the next effect; false when there is none. To be taken until then after every event or after
 * a batch of them; effects that were overtaken by later events are left out.
 */
bool mst__authority_next_effect(struct mst__authority *authority,
                                struct mst__authority_effect *ret_effect);

/* Iterate: @cursor begins with 0; NULL at the end. Of the current round, by rank: who holds it. */
const struct mst__authority_member *mst__authority_next_holder(
    const struct mst__authority *authority,
    uint32_t *cursor);
/* Everybody in the table, with those that are remembered as gone. */
const struct mst__authority_member *mst__authority_next_member(
    const struct mst__authority *authority,
    uint32_t *cursor);

/* Who has or had @rank in the current round; NULL when it has not claimed its place. */
const struct mst__authority_member *mst__authority_ranked(const struct mst__authority *authority,
                                                          uint32_t rank);

/* The living session @id, or NULL; that of the node @name, or MST_AUTHORITY_NOBODY. */
const struct mst__authority_member *mst__authority_get(const struct mst__authority *authority,
                                                       mst__authority_id id);
mst__authority_id mst__authority_find(const struct mst__authority *authority,
                                      struct mst_bytes name);
mst__authority_id mst__authority_id_of(const struct mst__authority *authority,
                                       const struct mst__authority_member *member);

/* What a member said. The bytes have a NUL behind them. */
struct mst_bytes mst__authority_name(const struct mst__authority_member *member);
struct mst_bytes mst__authority_address(const struct mst__authority_member *member);
/* @index < member->labels_count. */
struct mst__label mst__authority_label(const struct mst__authority_member *member, size_t index);
/* The value of @key; empty, with data NULL, when there is no such label. */
struct mst_bytes mst__authority_label_value(const struct mst__authority_member *member,
                                            struct mst_bytes key);

/* How a member stands. Of MEMBER and CALLED: authority->round_epoch, round, world and its rank are
 * what SEALED said; of CALLED also authority->lost and reopened_why. */
enum mst__authority_standing mst__authority_standing(const struct mst__authority *authority,
                                                     const struct mst__authority_member *member);

/* How many living members stand how. O(1). */
void mst__authority_count_standings(const struct mst__authority *authority,
                                    uint32_t ret_counts[MST_STANDING_COUNT]);

/* The cause of the last failure; of has_cause. Borrows from @authority. */
struct mst__cause mst__authority_cause(const struct mst__authority *authority);

/* "node 'a' (rank 3), worker 1: exit status 7: out of memory"; cut off when @ret_size is too
 * small. */
void mst__cause_describe(const struct mst__cause *cause, char *ret_text, size_t ret_size);

/* The round that gathers or comes next. */
int64_t mst__authority_round_next(const struct mst__authority *authority);

/* One sentence: what the run does or waits for, naming up to MST_AUTHORITY_NAMES_TOLD nodes; cut
 * off when @ret_size is too small. Looks at every member. */
void mst__authority_describe(const struct mst__authority *authority,
                             int64_t now_us,
                             char *ret_text,
                             size_t ret_size);

/* What must be true of an authority and is not, NULL if there is nothing: for one that was read
 * from a file. Looks at every member. Static memory. */
const char *mst__authority_flaw(const struct mst__authority *authority);
/* Assert that there is nothing: for tests and the simulator. */
void mst__authority_check(const struct mst__authority *authority);

#endif /* MST_CORE_AUTHORITY_H */
