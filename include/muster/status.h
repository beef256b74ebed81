/* muster/status.h - jobs seen from outside: the jobs of a server, the nodes of a job, what it waits
 * for, how it ended.
 *
 * Looking joins, changes and serves nothing. Threads: every call is thread-safe. A snapshot belongs
 * to the caller and never changes. Lists hold pointers, because later versions may append fields to
 * the structs; @size says how much of a struct this library has filled. After fork, a child process
 * may use and release snapshots and lists; a watch it may only release. */
#ifndef MST_STATUS_H
#define MST_STATUS_H

#include <muster/error.h>
#include <muster/rendezvous.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- a job --- */

/* number, name, text. The numbers are ABI. */
#define MST_STATUS_PHASE_MAP(X)                                                                  \
    X(0, OPEN, "open")             /* the next round gathers */                                  \
    X(1, RECLAIMING, "reclaiming") /* a server has begun anew, and the round's nodes come back \
                                    */ \
    X(2, RUNNING, "running")       /* a round is complete */                                     \
    X(3, CLOSED, "closed")         /* no node can join any more */

enum mst_status_phase {
#define MST_STATUS_PHASE_ENUM(number, name, text) MST_STATUS_##name = (number),
    MST_STATUS_PHASE_MAP(MST_STATUS_PHASE_ENUM)
#undef MST_STATUS_PHASE_ENUM
};

#define MST_STATUS_STANDING_MAP(X)                                                      \
    X(0, GATHERED, "gathered") /* the next round is open and will count it */           \
    X(1, QUEUED, "queued")     /* waits beside a round that runs, and gets in */        \
    X(2, SPARE, "spare")       /* stands by: the round is full */                       \
    X(3, MEMBER, "member")     /* in the round that runs */                             \
    X(4, CALLED, "called")     /* in the last round, which is over: has to come back */ \
    X(5, GONE, "gone")         /* @cause says how */                                    \
    X(6, FINISHED, "finished") /* in the round that runs, and its work is done */

enum mst_status_standing {
#define MST_STATUS_STANDING_ENUM(number, name, text) MST_STATUS_NODE_##name = (number),
    MST_STATUS_STANDING_MAP(MST_STATUS_STANDING_ENUM)
#undef MST_STATUS_STANDING_ENUM
};

/** "running" for MST_STATUS_RUNNING, "queued" for MST_STATUS_NODE_QUEUED, "failed" for
 * MST_OUTCOME_FAILED, "asked" for MST_OUTCOME_CLOSED; "undefined" for any other number. Static
 * memory. */
MST_API const char *mst_status_phase_name(enum mst_status_phase phase);
MST_API const char *mst_status_standing_name(enum mst_status_standing standing);
MST_API const char *mst_status_outcome_name(enum mst_outcome outcome);

struct mst_status_label {
    const char *key, *value;
};

/** One node of a job. No text is NULL; "" = not known. */
struct mst_status_node {
    size_t size;
    const char *name; /* "" if the peer has no name */
    const char *address;
    enum mst_status_standing standing;
    int64_t rank;          /* in the last complete round; -1 = none */
    bool has_heard;        /* heard_ms is known */
    int64_t heard_ms;      /* age of the last sign of life; negative: its clock is ahead */
    bool is_late;          /* its heartbeat is overdue */
    bool has_skew;         /* skew_ms is known */
    int64_t skew_ms;       /* its clock minus the server's */
    const char *cause;     /* of one that is gone: "lost", "left" or "finished" */
    int64_t pid, local_id; /* of a record; -1 = not known */
    uint64_t incarnation;  /* of the process: another one after a restart; 0 = not known */
    const struct mst_status_label *labels;
    size_t label_count;
};

/** A job. No text is NULL; "" = not known. */
struct mst_status {
    size_t size;
    const char *backend;
    const char *run_id;
    bool exists; /* false: no node has joined it, and only @summary is set */
    enum mst_status_phase phase;
    int64_t round; /* the last one that was complete, or of a record the one that it is about */
    int64_t round_next; /* the one that gathers or comes next */
    uint64_t epoch;     /* of the authority that made the round; 0 = the backend has none */
    int64_t world_size; /* of the round; 0 = there was none */
    int64_t nodes_min, nodes_max; /* 0 = not known */
    int64_t needed;               /* so many more nodes until a round can begin; 0 = none, or not
                                     known */
    bool has_last_call;           /* last_call_ms is known */
    int64_t last_call_ms; /* how long the open round still takes nodes; negative: that is over */
    const char *closed_by, *reason;
    enum mst_outcome outcome;            /* NONE = the job is not closed */
    const struct mst_cause *cause;       /* of the last failure; NULL = there was none */
    const char *failure;                 /* the same as a sentence */
    int64_t finished;                    /* members of the round whose work is done */
    int64_t restarts;                    /* of the budget, used */
    int64_t restarts_max, restarts_left; /* -1 = any number */
    int64_t restarts_window_ms;          /* the budget is for so much time; 0 = in total */
    const char *dialect;                 /* of a record: "D1" … "D4" */
    const char *document;                /* the status of a document of backend `etcd` */
    const char *summary;                 /* what the job does or waits for, in a sentence or two */

    /* All nodes: first the members of the round by rank, then waiting nodes, then spares, then
     * gone nodes; each by name, n2 before n10. While a round gathers, nodes of a
     * record or document are its members already. */
    const struct mst_status_node *const *nodes;
    size_t node_count;
    size_t member_count, waiting_count, spare_count, gone_count;
    bool is_cut; /* there are more, and the server did not tell them all */

    /* Set by mst_status_expect. */
    bool has_expected;
    size_t expected_count;
    const char *const *missing; /* expected and absent */
    size_t missing_count;
    const char *const *unseen; /* in none of the compared snapshots */
    size_t unseen_count;

    int64_t restarts_total; /* of the whole job, in all windows of the budget */
};

/**
 * Take a snapshot of the job that @params name, within @timeout_ms. @params need no limits; a
 * record does not contain them, so that the number of missing nodes is unknown without.
 *
 * Of a custom backend, @ret_status has only what a handler of it tells: whether the job is closed,
 * and in the summary how many nodes wait.
 *
 * Returns 0, also if there is no such job (`exists` is false); MST_ENOTSUP: backend `static`, or
 * the server does not serve jobs; MST_EINVAL: unknown backend or invalid option; MST_ESTATE: the
 * stored data is not a rendezvous; MST_ECONN, MST_ERESOLVE, MST_ETIMEOUT, MST_EAUTH, MST_EPROTO,
 * MST_ENOMEM.
 */
MST_API int mst_status_job(const struct mst_params *params,
                           int64_t timeout_ms,
                           struct mst_status **ret_status,
                           struct mst_err *reterr);

/** Release @status, which may be NULL, and everything in it. */
MST_API void mst_status_free(struct mst_status *status);

/** Remove the nodes for which @keep returns false from @status, and adjust the counts. */
MST_API void mst_status_filter(struct mst_status *status,
                               bool (*keep)(void *arg, const struct mst_status_node *node),
                               void *arg);

/** @status as one line of JSON, without a newline: what `muster status --json` prints and
 * `/jobs/ID` answers, see muster-status(1). 0 or MST_ENOMEM. */
MST_API int mst_status_json(const struct mst_status *status,
                            struct mst_buffer *ret_json,
                            struct mst_err *reterr);

/**
 * Take a snapshot of the members of @round, as returned by mst_handler_next: nodes[] are the
 * members by rank, with names, addresses and labels, including those that are gone since. Rank r
 * is nodes[r], unless the server was restarted and r has not come back yet.
 *
 * Returns 0; MST_ESTATE: the job is in another round now; or an error of mst_status_job.
 */
MST_API int mst_status_members(const struct mst_params *params,
                               const struct mst_rendezvous *round,
                               int64_t timeout_ms,
                               struct mst_status **ret_status,
                               struct mst_err *reterr);

/**
 * The members of the round that @handler has joined. Costs one connection or one read of the store.
 *
 * Returns 0; MST_EINVAL: no round is joined, or another process made the handler; MST_ENOTSUP:
 * `static` and custom backends; or an error of mst_status_members. The caller releases @ret_status
 * with mst_status_free. Thread-safe. mst_handler_cancel does not end it.
 */
MST_API int mst_handler_members(struct mst_handler *handler,
                                int64_t timeout_ms,
                                struct mst_status **ret_status,
                                struct mst_err *reterr);

/* --- changes --- */

struct mst_status_watch; /* opaque */

/** Prepare a watch of the job that @params name. @params are copied. Nothing is sent yet. Returns
 * as mst_status_job does. */
MST_API int mst_status_watch_new(const struct mst_params *params,
                                 struct mst_status_watch **ret_watch,
                                 struct mst_err *reterr);

/**
 * Wait until the job has changed and return a snapshot. The first call returns at once. Ages and
 * the remaining time of a last call do not count as changes. The job is looked at every
 * @interval_ms, each time for at most @look_ms, over connections that are kept. One thread at a
 * time.
 *
 * Returns 0; MST_ETIMEOUT if nothing has changed within @timeout_ms (-1 = no limit; 0 = look once);
 * or an error of mst_status_job, after which it may be called again.
 */
MST_API int mst_status_watch_next(struct mst_status_watch *watch,
                                  int64_t interval_ms,
                                  int64_t look_ms,
                                  int64_t timeout_ms,
                                  struct mst_status **ret_status,
                                  struct mst_err *reterr);

/** Release @watch, which may be NULL. */
MST_API void mst_status_watch_free(struct mst_status_watch *watch);

/* --- who should be there --- */

struct mst_expected; /* opaque */

/**
 * Parse names of expected nodes: `node[1-20],master`. `[01-20]` pads the numbers with zeros. A node
 * matches by its name or by its host: `node7` matches `node7_4711_803` and
 * `node7.cluster.example_4711_803`.
 *
 * Returns 0, MST_EINVAL with the wrong part, MST_ELIMIT, MST_ENOMEM.
 */
MST_API int mst_expected_new(const char *names,
                             struct mst_expected **ret_expected,
                             struct mst_err *reterr);
/** Release @expected, which may be NULL. */
MST_API void mst_expected_free(struct mst_expected *expected);

/** Whether @node is one of them. */
MST_API bool mst_expected_has(const struct mst_expected *expected, const char *node);

/** Determine which of @expected are missing in @status, and add it to the summary. @expected
 * remembers the nodes that were seen; one thread at a time may use it. Returns 0, MST_ENOTSUP if
 * nodes of the backend have no names, MST_ENOMEM. */
MST_API int mst_status_expect(struct mst_status *status,
                              struct mst_expected *expected,
                              struct mst_err *reterr);

/* --- all jobs of a server --- */

/** A job in short. */
struct mst_status_entry {
    size_t size;
    const char *run_id;
    enum mst_status_phase phase;
    uint64_t epoch;
    int64_t round;
    int64_t world_size;
    int64_t nodes_min, nodes_max; /* 0 = not known */
    int64_t members, waiting, spares, finished;
    enum mst_outcome outcome; /* NONE = the job is not closed */
    const char *reason;
};

struct mst_status_list {
    size_t size;
    const char *server;                         /* its version */
    const struct mst_status_entry *const *jobs; /* the oldest first */
    size_t job_count;
    int64_t job_total; /* more than those when there are too many to tell */
};

/**
 * List the jobs of the server at @endpoint: `host:port` or `unix:/path`. @endpoint may be NULL:
 * that and "" stand for localhost:29400.
 *
 * Returns 0; MST_ENOTSUP: the server does not serve jobs, or is too old to list them; MST_EINVAL;
 * MST_ECONN, MST_ERESOLVE, MST_ETIMEOUT, MST_EPROTO, MST_ENOMEM.
 */
MST_API int mst_status_jobs(const char *endpoint,
                            int64_t timeout_ms,
                            struct mst_status_list **ret_list,
                            struct mst_err *reterr);

/** Release @list, which may be NULL. */
MST_API void mst_status_list_free(struct mst_status_list *list);

/** As mst_status_json: what `/jobs` answers. */
MST_API int mst_status_list_json(const struct mst_status_list *list,
                                 struct mst_buffer *ret_json,
                                 struct mst_err *reterr);

/* --- closing --- */

/**
 * Close the job that @params name permanently. All nodes are told @reason and @owner, the name of
 * who closes it. @reason and @owner may be NULL: none. A job that is closed already is left as
 * it is.
 *
 * Returns 0; MST_ENOTFOUND: no such job; MST_ENOTSUP: `static`, or a @reason that the backend
 * cannot store; or an error of mst_status_job.
 */
MST_API int mst_status_close(const struct mst_params *params,
                             const char *reason,
                             const char *owner,
                             int64_t timeout_ms,
                             struct mst_err *reterr);

#ifdef __cplusplus
}
#endif
#endif /* MST_STATUS_H */
