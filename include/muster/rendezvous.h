/* muster/rendezvous.h - nodes of a job meet, agree who is in, and get ranks and a world size.
 *
 * A node describes what it wants (parameters), gets a handler for it (from the registry, by the
 * backend's name), and calls mst_handler_next: it returns when a round is complete. Afterwards
 * the handler keeps the node alive in the background and tells of changes (mst_handler_take,
 * mst_handler_poll); calling mst_handler_next again leaves the round and enters the next one.
 * mst_handler_begin is for programs that do not wait in a call.
 *
 * Backends of one's own are in <muster/backend.h>, extra data of backend `etcd` in
 * <muster/legacy.h>.
 *
 * Every handle may be used from several threads; parameters, once they are not changed any more.
 * Every blocking call has a deadline.
 *
 * Parameters are plain memory: a child process after fork may use those of its parent. A handler
 * has threads and connections, which a child does not have: it makes one of its own. */
#ifndef MST_RENDEZVOUS_H
#define MST_RENDEZVOUS_H

#include <muster/error.h>
#include <muster/log.h>
#include <muster/store.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- parameters --- */

struct mst_params; /* opaque */

/**
 * Begin the description of a rendezvous: which @backend (`muster`, `c10d`, `etcd-v2`, `etcd-v3`,
 * `etcd`, `static`, or one that was added) meets for which job, @run_id. Both are copied. The
 * setters below say the rest; the limits of mst_params_set_nodes are the only part that every
 * handler needs. The caller releases @ret_params with mst_params_free.
 *
 * Returns 0, MST_EINVAL for an empty backend, MST_ENOMEM. An empty run id and a backend that does
 * not exist are refused by mst_handler_new.
 */
MST_API int mst_params_new(const char *backend,
                           const char *run_id,
                           struct mst_params **ret_params,
                           struct mst_err *reterr);

/**
 * The same from one URL, `etcd://host:port/run_id?min_workers=2&max_workers=4&timeout=60`: the
 * scheme is the backend, the rest of the query its options. Without `max_workers` it is
 * `min_workers`. `%XX` stands for any byte but NUL, several endpoints have commas between them.
 *
 * Returns 0, MST_EINVAL, which names the part that is wrong, MST_ELIMIT for too many options,
 * MST_ENOMEM.
 */
MST_API int mst_params_from_url(const char *url,
                                struct mst_params **ret_params,
                                struct mst_err *reterr);

/** Release @params. Handlers that were made from it have copies. NULL is fine. */
MST_API void mst_params_free(struct mst_params *params);

/** Where nodes meet: `host:port`, `[::1]:29400`, a path; of an etcd several with commas between
 * them. Copied. NULL and "" stand for the default of the backend, which is this machine. Returns 0
 * or MST_ENOMEM, and then nothing has changed. Whether it is an endpoint is checked by
 * mst_handler_new. */
MST_API int mst_params_set_endpoint(struct mst_params *params,
                                    const char *endpoint,
                                    struct mst_err *reterr);

/** How many nodes make a round: at least @nodes_min, at most @nodes_max. Returns 0, or MST_EINVAL
 * for nodes_min < 1 or nodes_max < nodes_min, and then nothing has changed. */
MST_API int mst_params_set_nodes(struct mst_params *params,
                                 int64_t nodes_min,
                                 int64_t nodes_max,
                                 struct mst_err *reterr);

/** What other nodes call this one, a host name or an address. Copied. NULL = found out, which is
 * the default. Returns 0 or MST_ENOMEM, and then nothing has changed. */
MST_API int mst_params_set_local_addr(struct mst_params *params,
                                      const char *local_addr,
                                      struct mst_err *reterr);

/** Set option @key to @value (both copied); the last one wins. Which options there are, and what
 * they may be, is checked when a handler is made. Returns 0, MST_EINVAL for an empty key or no
 * value, MST_ELIMIT for too many options, MST_ENOMEM; on failure nothing has changed. */
MST_API int mst_params_set(struct mst_params *params,
                           const char *key,
                           const char *value,
                           struct mst_err *reterr);

/** Forget option @key, so that it has its default. One that is not set is fine. */
MST_API void mst_params_unset(struct mst_params *params, const char *key);

/** The options that @backend knows, @ret_count names in static memory, which are there for the life
 * of the process. NULL and 0 when there is no such backend in this build, or when it was added
 * without a list of them. From any thread. */
MST_API const char *const *mst_backend_options(const char *backend, size_t *ret_count);

/** Set options from `key=value,key=value`. MST_EINVAL names the part that is wrong; nothing has
 * been set then. */
MST_API int mst_params_parse(struct mst_params *params, const char *text, struct mst_err *reterr);

/** Whether options that the backend does not know are left out, each with a line in the log
 * (`ev=params.ignored`), instead of refused. For bindings whose callers hand options to all
 * backends alike, as torch does; a person's slip goes unnoticed by it. False unless set. */
MST_API void mst_params_ignore_unknown(struct mst_params *params, bool ignores);

/** What has been set. Text is owned by @params until it is set again; the local address is NULL
 * when it is to be found out, and the limits are 0 before they are set. */
MST_API const char *mst_params_backend(const struct mst_params *params);
MST_API const char *mst_params_endpoint(const struct mst_params *params);
MST_API const char *mst_params_run_id(const struct mst_params *params);
MST_API const char *mst_params_local_addr(const struct mst_params *params);
MST_API int64_t mst_params_nodes_min(const struct mst_params *params);
MST_API int64_t mst_params_nodes_max(const struct mst_params *params);

/** Typed access to options. @ret is @fallback when the option is not set; MST_EINVAL names the
 * option and its value when it is of another type. Text is owned by @params. Booleans are
 * `1 true t yes y` and `0 false f no n` in any case; durations are seconds, or carry a unit:
 * `250ms`, `1.5s`, `5m`, `2h`. */
MST_API const char *mst_params_text(const struct mst_params *params,
                                    const char *key,
                                    const char *fallback);
MST_API int mst_params_bool(const struct mst_params *params,
                            const char *key,
                            bool fallback,
                            bool *ret,
                            struct mst_err *reterr);
MST_API int mst_params_int(const struct mst_params *params,
                           const char *key,
                           int64_t fallback,
                           int64_t *ret,
                           struct mst_err *reterr);
MST_API int mst_params_duration_ms(const struct mst_params *params,
                                   const char *key,
                                   int64_t fallback_ms,
                                   int64_t *ret_ms,
                                   struct mst_err *reterr);

/* --- events --- */

enum mst_node_state { MST_NODE_INIT, MST_NODE_RUNNING, MST_NODE_SUCCEEDED, MST_NODE_FAILED };

/** What a handler does, for those who watch. Borrowed for the call; fields that are new in a later
 * library come behind these, and size grows. */
struct mst_event {
    size_t size;
    const char *name; /* "next_rendezvous", "keep_alive", "add_to_participants" … */
    const char *run_id;
    const char *node;    /* addr_pid_local_id */
    const char *message; /* a sentence */
    enum mst_node_state state;
    int64_t round;   /* -1 = none yet */
    int64_t rank;    /* -1 = none yet */
    int64_t time_us; /* wall clock */
};

/** Receives events. It is called from the threads that call the handler and from the handler's own,
 * several at the same time, until mst_handler_free has returned. It must not call the handler. */
typedef void (*mst_event_fn)(void *arg, const struct mst_event *event);

/** Where events and log lines of handlers made from @params go. @log is copied; @fn and @arg, and
 * those of @log, must live as long as the handlers do, not as long as @params. NULL = nowhere,
 * which is the default. */
MST_API void mst_params_on_event(struct mst_params *params, mst_event_fn fn, void *arg);
MST_API void mst_params_log(struct mst_params *params, const struct mst_log *log);

/** An mst_event_fn: writes each event as one JSON line to the descriptor that @arg points to
 * (an int), in one write. An event that cannot be written is lost. */
MST_API void mst_event_json(void *arg, const struct mst_event *event);

/* --- handlers --- */

struct mst_handler; /* opaque */

/** Why a round has begun. Numbers are ABI: append, never renumber. */
enum mst_start {
    MST_START_UNKNOWN = 0, /* nobody has told */
    MST_START_FIRST = 1,   /* there was none before it */
    MST_START_JOINED = 2,  /* the last one gave way to nodes that waited */
    MST_START_LOST = 3,    /* a member of the last one was lost */
    MST_START_LEFT = 4,    /* one has left */
    MST_START_FAILED = 5,  /* the work of one has failed */
    MST_START_ASKED = 6,   /* one wanted another round, and nobody new has come */
};

/** The outcome of a round. */
struct mst_rendezvous {
    size_t size; /* sizeof(struct mst_rendezvous), see mst_rendezvous_init */
    int64_t round;
    int64_t rank;
    int64_t world_size;
    struct mst_store *store; /* keys of this round only; the caller closes it. Those of a round
                              * before the last may be gone */
    /** Where the workers' own store is. Empty, with port 0, when the node with rank 0 has not told
     * it in time: torch's agents before 2.4 tell after the rendezvous. Its agent then writes the
     * keys MASTER_ADDR and MASTER_PORT into @store: wait for them there, or on rank 0, choose an
     * address and write them. */
    char master_addr[256];
    int master_port;
    uint64_t epoch; /* of the authority that made the round; 0 = the backend has none */
    /** How many rounds of the job were over because work had failed, before this one: the same for
     * all members. A server of `muster` that was restarted counts anew. */
    int64_t restarts;
    enum mst_start start; /* of `muster` and `etcd-v3`; of the others FIRST or UNKNOWN */
};

/** Empty @round and note in it that the caller has @size bytes: `sizeof round`.
 * From any thread; it cannot fail. */
MST_API void mst_rendezvous_init(struct mst_rendezvous *round, size_t size);

/** How a rendezvous that is closed has ended. Numbers are ABI: append, never renumber. */
enum mst_outcome {
    MST_OUTCOME_NONE = 0,     /* it is not closed, or nobody has told how */
    MST_OUTCOME_CLOSED = 1,   /* somebody has closed it */
    MST_OUTCOME_FINISHED = 2, /* the work of all its nodes is done */
    MST_OUTCOME_FAILED = 3,   /* of a cause */
};

/** Why work has failed: the first failure of a round, which is the same for all its nodes. */
struct mst_cause {
    int64_t rank;    /* of the node; -1 = nobody's */
    int64_t worker;  /* on the node; -1 = none in particular */
    int exit_status; /* with which it has ended */
    int signal;      /* that has ended it; 0 = none */
    int64_t time_us; /* when, on the node's clock; 0 = not known */
    char node[256];  /* as mst_handler_node calls it */
    char text[256];  /* a sentence; cut off when long */
};

/** How the round has changed since it was complete. Which nodes are lost is told by notices. */
struct mst_changes {
    size_t size; /* sizeof(struct mst_changes), see mst_changes_init */
    int64_t nodes_waiting;
    int64_t participants_lost; /* how many members of our round are gone */
    bool closed;
    bool expelled;    /* the others count us as dead */
    bool reopened;    /* our round is over, the next one gathers; what backend `muster` tells */
    char reason[256]; /* closed: why, cut off when long; "" where the backend does not know */
    enum mst_outcome outcome; /* closed: how it has ended */
    bool has_cause;           /* reopened or closed because work has failed */
    struct mst_cause cause;   /* with has_cause */
    /** Should this node come back with mst_handler_next? Somebody waits, is lost, the round is over
     * or this node is expelled. */
    bool should_return;
};

/** Empty @changes and note in it that the caller has @size bytes: `sizeof changes`.
 * From any thread; it cannot fail. */
MST_API void mst_changes_init(struct mst_changes *changes, size_t size);

/** Make a handler for @params (copied as needed). MST_EINVAL for an unknown backend (the known ones
 * are named), a bad option, or a handler that calls itself by another name; MST_ECONN when the
 * backend cannot be reached. */
MST_API int mst_handler_new(const struct mst_params *params,
                            struct mst_handler **ret_handler,
                            struct mst_err *reterr);

/** Release @handler; no call on it is under way. NULL is fine. A node that is still in, or on its
 * way, leaves first, which takes 2 s at most. A node that serves the store of a closed rendezvous
 * first gives the others up to 2.5 s to see that it is closed.
 *
 * A handler belongs to the process that has made it. In a child after fork all calls but this one
 * fail with MST_EINVAL, or tell nothing; this one releases the handler and leaves the round, its
 * connections and its thread to the parent. */
MST_API void mst_handler_free(struct mst_handler *handler);

/* --- rounds ---
 *
 * A program that waits in mst_handler_next needs nothing else. One with a loop of its own begins a
 * round, polls the descriptor, takes notices until MST_NOTICE_COMPLETE or MST_NOTICE_FAILED, and
 * asks for the round. Notices go on to tell what happens to it, until the next one is begun. */

/** What has happened. Numbers are ABI: append, never renumber. */
enum mst_notice_kind {
    MST_NOTICE_COMPLETE = 0,    /* the begun round is joined: mst_handler_round */
    MST_NOTICE_FAILED = 1,      /* the begun round does not come: @err, as of mst_handler_next */
    MST_NOTICE_WAITING = 2,     /* more nodes wait for the next round: @nodes_waiting */
    MST_NOTICE_LOST = 3,        /* members are gone: @nodes, @nodes_lost */
    MST_NOTICE_REOPENED = 4,    /* the round is over and the next one gathers; perhaps of a cause */
    MST_NOTICE_EXPELLED = 5,    /* the others count us as dead */
    MST_NOTICE_CLOSED = 6,      /* the rendezvous is closed: @reason, @outcome, perhaps a cause */
    MST_NOTICE_UNREACHABLE = 7, /* what is known may be old: @err. The handler goes on trying */
    MST_NOTICE_REACHABLE = 8,   /* it is not any more */
};

/** A node of which a notice tells. */
struct mst_node {
    const char *name; /* as mst_handler_node calls it */
    int64_t rank;     /* in the round; -1 = not known */
    bool has_left;    /* it has said so; else nobody has heard of it */
};

/** What has happened, at most one of each kind: what nobody has taken is told together with what
 * comes. Released with mst_notice_free, and the nodes with it. */
struct mst_notice {
    size_t size; /* sizeof(struct mst_notice), as the library knows it */
    enum mst_notice_kind kind;
    int64_t round;         /* -1 = none */
    int64_t nodes_waiting; /* how many wait now */
    int64_t nodes_lost;    /* how many members are gone in all */
    /** LOST: those of whom no notice has told, as far as their names are known; at most 1,024 of
     * one round. */
    const struct mst_node *nodes;
    size_t node_count;
    char reason[256]; /* CLOSED: why, cut off when long; also FAILED, as below */
    enum mst_outcome
        outcome;    /* CLOSED: how it has ended; FAILED, if the job has, and it is known */
    bool has_cause; /* work has failed, and that is why: REOPENED, CLOSED, FAILED, LOST, WAITING */
    struct mst_cause cause;
    struct mst_err err; /* FAILED, UNREACHABLE */
};

/** Release @notice; NULL is fine. From any thread. */
MST_API void mst_notice_free(struct mst_notice *notice);

/**
 * Want the next round, and leave the one that is joined for it. Returns at once: a notice tells
 * what comes of it, within @timeout_ms, or, if that is below 0, the option `join_timeout`. While
 * a round is begun another call changes nothing. Notices that nobody has taken are dropped.
 *
 * Returns 0, MST_ESYS when there is no thread for it, MST_ENOTSUP of a backend that only has next.
 * From any thread.
 */
MST_API int mst_handler_begin(struct mst_handler *handler,
                              int64_t timeout_ms,
                              struct mst_err *reterr);

/**
 * Take the next notice, and wait for it up to @timeout_ms; 0 = look only.
 *
 * Returns 0, MST_ETIMEOUT when there is none, MST_ECANCELED, MST_ENOMEM (it can be taken later),
 * MST_ENOTSUP. From any thread; each notice is taken once.
 */
MST_API int mst_handler_take(struct mst_handler *handler,
                             int64_t timeout_ms,
                             struct mst_notice **ret_notice,
                             struct mst_err *reterr);

/** The round that is joined, with a store that the caller closes. MST_EINVAL without one,
 * MST_ENOMEM, MST_ENOTSUP. From any thread. */
MST_API int mst_handler_round(struct mst_handler *handler,
                              struct mst_rendezvous *ret,
                              struct mst_err *reterr);

/** Withdraw the round that is begun, so that the others do not count on us; one that has become
 * complete meanwhile is left. The handler lives on. Returns 0, also when none is begun, an error of
 * leaving, MST_ENOTSUP. Takes seconds at most. From any thread. */
MST_API int mst_handler_abandon(struct mst_handler *handler, struct mst_err *reterr);

/**
 * Take part in the next round and wait until it is complete: mst_handler_begin, unless one is begun
 * already, and mst_handler_round when it is there.
 *
 * MST_ECLOSED: the rendezvous is closed, or the job has failed. MST_EFINISHED: the job has
 * finished, which is no failure. MST_ETIMEOUT. MST_ESPARE: it closed while we were a spare,
 * which is no failure. MST_ECONN. MST_ECANCELED: the round is withdrawn. MST_ESTATE: the record is
 * not one. MST_EEXPELLED, of `muster` and `etcd-v3`: a newer process has this node's name, or the
 * others count this node as dead. MST_EINVAL: other nodes were told other limits. MST_EAUTH: the
 * etcd refuses us. MST_ENOTSUP: it has no v2 API; of `muster`, the server is no authority of jobs.
 * From any thread; two that wait get the same round.
 */
MST_API int mst_handler_next(struct mst_handler *handler,
                             int64_t timeout_ms,
                             struct mst_rendezvous *ret,
                             struct mst_err *reterr);

/** Whether the rendezvous is closed, and how many nodes wait. With a round that is joined both are
 * the last known state, and do not fail while the handler is connecting again; without one, they
 * ask. Both return 0, or as mst_handler_next. */
MST_API int mst_handler_is_closed(struct mst_handler *handler, bool *ret, struct mst_err *reterr);
MST_API int mst_handler_nodes_waiting(struct mst_handler *handler,
                                      int64_t *ret,
                                      struct mst_err *reterr);

/** Close for good, for everybody. Bounded by `close_timeout`. Returns 0, also when it is closed
 * already, MST_ECONN, MST_ETIMEOUT, MST_EAUTH, MST_ENOMEM. From any thread. */
MST_API int mst_handler_set_closed(struct mst_handler *handler, struct mst_err *reterr);

/** The present state at a glance; waits up to @timeout_ms for a change that neither this call nor a
 * notice has told. MST_ETIMEOUT when there is none, with @ret filled all the same; MST_ECANCELED.
 * Notices of what it tells are taken away with it: a program uses this call or mst_handler_take. */
MST_API int mst_handler_poll(struct mst_handler *handler,
                             int64_t timeout_ms,
                             struct mst_changes *ret,
                             struct mst_err *reterr);

/** Readable while there is a notice to take; -1 if there is none. Owned by @handler. */
MST_API int mst_handler_fd(const struct mst_handler *handler);

/** Make the calls that are blocked now return MST_ECANCELED: mst_handler_next, which withdraws its
 * round, mst_handler_take, mst_handler_poll, mst_handler_finish, mst_handler_restart. If none is
 * blocked, the next one that would block does, once, so that a call about to block is not missed.
 * The handler lives on. From any thread or signal handler. */
MST_API void mst_handler_cancel(struct mst_handler *handler);

/** The job and the backend that the handler was made for. Owned by @handler. */
MST_API const char *mst_handler_run_id(const struct mst_handler *handler);
MST_API const char *mst_handler_backend(const struct mst_handler *handler);

/** Whether workers should use the store at master_addr:master_port instead of starting one. */
MST_API bool mst_handler_use_agent_store(const struct mst_handler *handler);

/** What this node is called by others and in messages: addr_pid_local_id, the last a number
 * that each process draws, so that containers with equal host names and process ids differ; of
 * `muster` and `etcd-v3` their option `node_name` if that is given; of `etcd` muster_ and a random
 * number; "" if the backend has no names. Owned by @handler. */
MST_API const char *mst_handler_node(const struct mst_handler *handler);

/** Leave the round without closing the rendezvous: stop heartbeats and take ourselves out of the
 * group at once, so that the others need not wait for us to expire. Bounded by `close_timeout`. A
 * node that is not in is fine. mst_handler_next enters again. */
MST_API int mst_handler_leave(struct mst_handler *handler, struct mst_err *reterr);

/** The job is over: stop heartbeats, close the rendezvous. */
MST_API int mst_handler_shutdown(struct mst_handler *handler, struct mst_err *reterr);

/* --- work ---
 *
 * What a node does with its rounds is its work. When that is done or has failed the node says so,
 * and all nodes of the job are told how it ends: mst_changes has the outcome and the cause. All
 * backends but `static` know these calls. A word of a round that is over changes nothing, and is no
 * error: mst_handler_poll tells what has happened. */

/** A failure of this node's work. */
struct mst_failure {
    size_t size;      /* sizeof(struct mst_failure), see mst_failure_init */
    int64_t worker;   /* which of the node's workers; -1 = none in particular */
    int exit_status;  /* with which it has ended */
    int signal;       /* that has ended it; 0 = none */
    int64_t time_us;  /* when, wall clock; 0 = now */
    const char *text; /* a sentence; cut off behind 255 bytes. NULL = none */
};

/** Empty @failure, which is of no worker then, and note in it that the caller has @size bytes:
 * `sizeof failure`. From any thread; it cannot fail. */
MST_API void mst_failure_init(struct mst_failure *failure, size_t size);

/**
 * The work of this node in the round is done; @status and @text (may be NULL) are for people. The
 * node stays a member, and is not missed when it leaves or dies. When all members of the round
 * have finished, the rendezvous is closed as finished. Everybody is told so, nodes that wait for a
 * round and spares included: their mst_handler_next returns MST_EFINISHED, which is success. When
 * work of another node fails before that, the round is reopened, also for this one. Whoever calls
 * mst_handler_next instead of waiting for the end wants another round.
 *
 * Returns 0; MST_EINVAL without a round; MST_ECONN when nobody could be told within
 * `close_timeout`: the handler goes on trying; MST_ECANCELED; MST_ENOTSUP, of `static` and of a
 * server that is older than this call. From any thread.
 */
MST_API int mst_handler_finish(struct mst_handler *handler,
                               int status,
                               const char *text,
                               struct mst_err *reterr);

/**
 * The work of this node in the round has failed, as @failure says. The first failure of a round is
 * its cause. If the job may still restart (option `max_restarts`: `3`, or `3/1h` for three in an
 * hour; as often as it likes without it) the round is over for all, and mst_handler_next enters the
 * next one. If not, the rendezvous is closed as failed: mst_handler_next returns MST_ECLOSED with
 * the cause in its text, on all nodes the same.
 *
 * Returns as mst_handler_finish, and MST_EINVAL for a @failure of no sensible size. From any
 * thread.
 */
MST_API int mst_handler_restart(struct mst_handler *handler,
                                const struct mst_failure *failure,
                                struct mst_err *reterr);

#ifdef __cplusplus
}
#endif
#endif /* MST_RENDEZVOUS_H */
