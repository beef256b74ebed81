/* core/job_message.h - the messages between nodes and the authority of a job, as data. wire/job.h
 * has the bytes. */
#ifndef MST_CORE_JOB_MESSAGE_H
#define MST_CORE_JOB_MESSAGE_H

#include "core/authority.h"

/* The version of a node in ANNOUNCE, and of the server in WELCOME: the lower one counts. Fields of
 * later versions are at the end of their messages and may be missing. */
#define MST_JOB_VERSION 6
/* The version that has FINISH, RESTART, outcomes and causes. */
#define MST_JOB_VERSION_FINISH 2
/* The version that has lists of jobs, details of nodes, and announcements of a new job. */
#define MST_JOB_VERSION_LIST 3
/* Version 4 has restarts and start in SEALED, and all restarts in STATUS_TOLD. */
/* The version that has jobs that do not grow. */
#define MST_JOB_VERSION_FIXED 5
/* The version that has workers in ANNOUNCE and their ranks in SEALED, the report of a failure in
 * RESTART, REOPENED, CLOSED and REFUSED, and LEAVING. */
#define MST_JOB_VERSION_WORKERS 6
#define MST_JOB_VERSION_LEAVING 6

/* Names in one LOST; the rest is a number. */
#define MST_JOB_NAMES_MAX 16

/* type, number, name */
#define MST_JOB_TYPE_MAP(X)                                                         \
    /* From a node. */                                                              \
    X(ANNOUNCE, 1, "announce") /* first, for each round, after a lost connection */ \
    X(HEARTBEAT, 2, "heartbeat")                                                    \
    X(LEAVE, 3, "leave")                                                            \
    X(CLOSE, 4, "close")       /* of a run, by any client; needs no announcement */ \
    X(STATUS, 5, "status")     /* the same */                                       \
    X(STORE, 6, "store")       /* store requests of version 1: refused */           \
    X(FINISH, 7, "finish")     /* the work of a member is done */                   \
    X(RESTART, 8, "restart")   /* it has failed, and needs a new round */           \
    X(GIVE_WAY, 9, "give_way") /* from a muster serve that wants the port */        \
    X(LEAVING, 10, "leaving")  /* a member will leave */                            \
    /* To a node. */                                                                \
    X(WELCOME, 32, "welcome")                                                       \
    X(REFUSED, 33, "refused")                                                       \
    X(SEALED, 34, "sealed")                                                         \
    X(QUEUED, 35, "queued")                                                         \
    X(SPARE, 36, "spare")                                                           \
    X(WAITING, 37, "waiting")                                                       \
    X(LOST, 38, "lost")                                                             \
    X(REOPENED, 39, "reopened")                                                     \
    X(CLOSED, 40, "closed")                                                         \
    X(EXPELLED, 41, "expelled")                                                     \
    X(STATUS_TOLD, 42, "status_told")                                               \
    X(PONG, 43, "pong")                                                             \
    X(STORE_END, 45, "store_end") /* refuses a STORE */                             \
    X(JOBS_TOLD, 46, "jobs_told") /* answer to a STATUS without a run id */

enum mst__job_type {
#define JOB_TYPE_ENUM(name, number, text) MST_JOB_##name = (number),
    MST_JOB_TYPE_MAP(JOB_TYPE_ENUM)
#undef JOB_TYPE_ENUM
};

/* "sealed" for MST_JOB_SEALED; NULL for an unknown number. */
const char *mst__job_type_name(enum mst__job_type type);

struct mst__job_announce {
    uint32_t version;
    struct mst_bytes run_id;
    int64_t heartbeat_us; /* its heartbeat interval */
    /* Reading does not fill its labels and driver: they are in @labels. */
    struct mst__announcement announcement;
    struct mst__label labels[MST_AUTHORITY_LABELS_MAX];
    bool is_new; /* a closed job of this id without nodes makes room */
};

struct mst__job_round {
    uint64_t epoch;
    int64_t round;
    uint32_t world;
    /* SEALED. Only the ranks differ, so one frame serves all members. */
    uint32_t rank;
    struct mst_bytes address; /* rank 0's */
    uint32_t restarts;        /* of the job, before this round */
    uint32_t start;           /* enum mst__job_start */
    struct mst__worker_ranks worker_ranks;
};

struct mst__job_lost {
    int64_t round;
    uint32_t count; /* newly lost nodes, or all of them on a new connection */
    uint32_t named; /* of those, the number in names and ranks */
    uint32_t ranks[MST_JOB_NAMES_MAX];
    struct mst_bytes names[MST_JOB_NAMES_MAX];
    uint32_t total; /* all lost nodes of this round */
};

/* How a job, or its round, has ended. */
struct mst__job_end {
    uint32_t outcome; /* enum mst__job_outcome */
    bool has_cause;
    struct mst__cause cause;
};

/* For the current round of the node. */
struct mst__job_finish {
    uint64_t epoch;
    int64_t round;
    int32_t status;
    struct mst_bytes text;
};

struct mst__job_leaving {
    uint64_t epoch;
    int64_t round;
    int64_t in_us; /* it will leave in this time */
};

struct mst__job_restart {
    uint64_t epoch;
    int64_t round;
    struct mst__cause cause; /* without rank and node, which the authority knows */
};

/* The status of a run. @members and @details are packed: mst__job_member_next and
 * mst__job_detail_next take them out one by one. */
struct mst__job_status {
    struct mst_bytes run_id;
    uint32_t phase; /* enum mst__authority_phase */
    uint64_t epoch;
    int64_t round;
    int64_t round_next;
    uint32_t world;
    uint32_t nodes_min, nodes_max; /* 0 = not known */
    int64_t last_call_us;
    struct mst_bytes sentence; /* what the run does or waits for */
    struct mst_bytes reason;   /* of a closed run */
    struct mst_bytes owner;
    uint32_t member_count; /* in @members */
    bool is_cut;           /* there are more that did not fit */
    struct mst_bytes members;
    int64_t heartbeat_us;    /* the longest heartbeat interval of its nodes; 0 = not known */
    struct mst__job_end end; /* the outcome of a closed run; the cause of its last failure */
    struct mst__budget budget;
    uint32_t restarts;         /* of the budget, used */
    uint32_t finished;         /* members of the round, including those that are gone */
    int64_t last_call_left_us; /* until the last call ends; INT64_MAX = none */
    struct mst_bytes details;  /* one for each member, in the same order; empty = not known */
    uint32_t restarts_total;   /* in all windows */
};

/* How a node went. */
enum mst__job_gone {
    MST_JOB_GONE_NOT,
    MST_JOB_GONE_LOST,
    MST_JOB_GONE_LEFT,
    MST_JOB_GONE_FINISHED,
};

/* "lost" for MST_JOB_GONE_LOST; "" for any other number. Static memory. */
const char *mst__job_gone_name(enum mst__job_gone gone);

struct mst__job_detail {
    uint32_t gone; /* enum mst__job_gone */
    uint32_t labels_count;
    struct mst__label labels[MST_AUTHORITY_LABELS_MAX];
};

/* The runs of a server. @jobs are packed: mst__job_entry_next takes them out one by one. */
struct mst__job_list {
    struct mst_bytes server; /* its version */
    uint32_t total;          /* number of runs */
    uint32_t count;          /* in @jobs, the oldest ones */
    struct mst_bytes jobs;
    bool gives_way; /* the server is a node's, and ends when who asks sends GIVE_WAY */
};

/* A run in short. */
struct mst__job_entry {
    struct mst_bytes run_id;
    uint32_t phase;
    uint64_t epoch;
    int64_t round;
    uint32_t world;
    uint32_t nodes_min, nodes_max; /* 0 = not known */
    uint32_t members, waiting, spares, finished;
    uint32_t outcome;
    struct mst_bytes reason;
};

struct mst__job_member {
    struct mst_bytes name;
    struct mst_bytes address;
    uint32_t standing; /* enum mst__authority_standing */
    uint32_t rank;     /* MST_AUTHORITY_RANK_NONE = none */
    uint64_t incarnation;
    int64_t silent_us; /* since it was heard */
    bool has_skew;
    int64_t skew_us;
};

/* One message; bytes are borrowed from the frame. */
struct mst__job_message {
    enum mst__job_type type;
    union {
        struct mst__job_announce announce;
        struct {
            bool wants_pong;
        } heartbeat;
        struct {
            struct mst_bytes run_id; /* empty: all runs */
            uint32_t version;        /* of the reader */
        } question;                  /* STATUS */
        struct {
            struct mst_bytes run_id;
            struct mst_bytes reason;
            struct mst_bytes owner;
        } close;
        struct {
            struct mst_bytes reason;
            struct mst_bytes owner;
            struct mst__job_end end;
        } closed;
        struct mst__job_finish finish;
        struct mst__job_restart restart;
        struct mst__job_leaving leaving;
        struct {
            uint32_t version;
            uint64_t epoch;
            bool has_skew;
            int64_t skew_us;         /* the node's clock minus the server's */
            struct mst_bytes server; /* its version */
        } welcome;
        struct {
            int32_t code;     /* MST_E... */
            uint32_t refusal; /* enum mst__refusal */
            struct mst_bytes text;
            struct mst__job_end end; /* of a closed job */
        } refused;
        struct mst__job_round round; /* SEALED, QUEUED, SPARE */
        struct {
            uint32_t count;
        } waiting;
        struct mst__job_lost lost;
        struct {
            int64_t round_next;
            uint32_t why;            /* enum mst__authority_why */
            uint32_t rank;           /* of the member that was lost, left or returned;
                                      MST_AUTHORITY_RANK_NONE */
            struct mst_bytes name;   /* its name; empty if not known */
            struct mst__job_end end; /* the cause of a failure */
        } reopened;
        struct mst__job_status status;
        struct mst__job_list list;
        struct mst_bytes text; /* EXPELLED, STORE, STORE_END */
    } u;
};

#endif /* MST_CORE_JOB_MESSAGE_H */
