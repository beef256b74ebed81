/* muster/rendezvous.h - nodes of a job meet, agree who is in, and get ranks and a world size.
 *
 * A node describes the rendezvous (parameters), makes a handler, and calls mst_handler_next, which
 * returns when a round is complete. Then the handler keeps the node alive in the background and
 * reports changes (mst_handler_take, mst_handler_poll). Another mst_handler_next leaves the round
 * and enters the next one. Programs with an event loop use mst_handler_begin instead.
 *
 * See <muster/backend.h> for custom backends, <muster/legacy.h> for extra data of backend `etcd`.
 *
 * Threads: handlers are thread-safe. Parameters are thread-safe once no longer modified. Every
 * blocking call has a deadline. After fork, a child process may use its parent's parameters. It
 * has none of the threads, connections and other descriptors of its parent's handlers: the latter
 * are closed in the child at the fork, so that a child that lives on does not hide the death of a
 * node. Calls on such a handler fail with MST_EINVAL. */
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
 * Make the parameters of a rendezvous: its @backend (`muster`, `c10d`, `etcd-v2`, `etcd-v3`,
 * `etcd`, `static`, or a custom one) and its job, @run_id. Both are copied. The setters below add
 * the rest; only mst_params_set_nodes is required. @run_id may be NULL: that is an empty one. The
 * caller releases @ret_params with mst_params_free.
 *
 * Returns 0, MST_EINVAL for an empty backend, MST_ENOMEM. mst_handler_new refuses an empty run id
 * and an unknown backend.
 */
MST_API int mst_params_new(const char *backend,
                           const char *run_id,
                           struct mst_params **ret_params,
                           struct mst_err *reterr);

/**
 * Make parameters from a URL, `etcd://host:port/run_id?min_workers=2&max_workers=4&timeout=60`. The
 * scheme is the backend; the rest of the query are its options. `max_workers` defaults to
 * `min_workers`. `%XX` is any byte except NUL; commas separate several endpoints.
 *
 * Returns 0, MST_EINVAL, which names the wrong part, MST_ELIMIT for too many options, MST_ENOMEM.
 */
MST_API int mst_params_from_url(const char *url,
                                struct mst_params **ret_params,
                                struct mst_err *reterr);

/** Release @params, which may be NULL. Handlers made from it have copies. */
MST_API void mst_params_free(struct mst_params *params);

/** Where nodes meet: `host:port`, `[::1]:29400`, `unix:/path`, a path; for an etcd also a list with
 * commas. Copied. @endpoint may be NULL: that and "" select the backend's default on this machine.
 * mst_handler_new checks it. Returns 0, or MST_ENOMEM without an effect. */
MST_API int mst_params_set_endpoint(struct mst_params *params,
                                    const char *endpoint,
                                    struct mst_err *reterr);

/** The size of a round: at least @nodes_min, at most @nodes_max nodes. Returns 0, or MST_EINVAL
 * without an effect if nodes_min < 1 or nodes_max < nodes_min. */
MST_API int mst_params_set_nodes(struct mst_params *params,
                                 int64_t nodes_min,
                                 int64_t nodes_max,
                                 struct mst_err *reterr);

/** The host name or address under which others reach this node. Copied. @local_addr may be NULL,
 * the default: detect it. Returns 0, or MST_ENOMEM without an effect. */
MST_API int mst_params_set_local_addr(struct mst_params *params,
                                      const char *local_addr,
                                      struct mst_err *reterr);

/** Set option @key to @value (both copied); the last call wins. mst_handler_new checks options.
 * Returns 0, MST_EINVAL for an empty key, MST_ELIMIT for too many options, MST_ENOMEM; on failure
 * without an effect. */
MST_API int mst_params_set(struct mst_params *params,
                           const char *key,
                           const char *value,
                           struct mst_err *reterr);

/** Reset option @key to its default. An option that is not set is allowed. */
MST_API void mst_params_unset(struct mst_params *params, const char *key);

/** The names of the options of @backend, in static memory. NULL and 0 if this build has no such
 * backend, or if it was added without a list. Thread-safe. */
MST_API const char *const *mst_backend_options(const char *backend, size_t *ret_count);

/** Set options from `key=value,key=value`. MST_EINVAL names the wrong part; then no option is
 * set. */
MST_API int mst_params_parse(struct mst_params *params, const char *text, struct mst_err *reterr);

/** Ignore options that the backend does not know, each with a log line (`ev=params.ignored`),
 * instead of refusing them. For bindings whose callers pass the same options to all backends, as
 * torch does. Misspelt options then go unnoticed. Default: false. */
MST_API void mst_params_ignore_unknown(struct mst_params *params, bool ignores);

/** The values that were set. Texts are owned by @params until they are set again. The local address
 * is NULL if muster detects it; the limits are 0 before they are set. */
MST_API const char *mst_params_backend(const struct mst_params *params);
MST_API const char *mst_params_endpoint(const struct mst_params *params);
MST_API const char *mst_params_run_id(const struct mst_params *params);
MST_API const char *mst_params_local_addr(const struct mst_params *params);
MST_API int64_t mst_params_nodes_min(const struct mst_params *params);
MST_API int64_t mst_params_nodes_max(const struct mst_params *params);

/** Typed access to options. @ret is @fallback if the option is not set; a text's @fallback may be
 * NULL. MST_EINVAL, which names option and value, if it has another type. Text is owned by @params.
 * Booleans are `1 true t yes y` and `0 false f no n`, in upper or lower case. Durations are
 * seconds, or have a unit: `250ms`, `1.5s`, `5m`, `2h`. */
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

/** An action of a handler, for monitoring. Borrowed for the call. Later versions may append fields
 * and increase size. */
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

/** Receives events. Called concurrently from threads that call the handler and from the handler's
 * own, until mst_handler_free returns. It must not call the handler. */
typedef void (*mst_event_fn)(void *arg, const struct mst_event *event);

/** Set the receivers of events and log lines of handlers made from @params. @log is copied. @fn and
 * @arg, and those of @log, must outlive the handlers. @fn and @log may be NULL, the default:
 * none. */
MST_API void mst_params_on_event(struct mst_params *params, mst_event_fn fn, void *arg);
MST_API void mst_params_log(struct mst_params *params, const struct mst_log *log);

/** An mst_event_fn: writes each event as one JSON line to the descriptor that @arg points to
 * (an int), in one write. An event that cannot be written is lost. */
MST_API void mst_event_json(void *arg, const struct mst_event *event);

/* --- handlers --- */

struct mst_handler; /* opaque */

/** Why a round began. Numbers are ABI: append, never renumber. */
enum mst_start {
    MST_START_UNKNOWN = 0, /* not known */
    MST_START_FIRST = 1,   /* there was none before it */
    MST_START_JOINED = 2,  /* the last round gave way to waiting nodes */
    MST_START_LOST = 3,    /* a member of the last round was lost */
    MST_START_LEFT = 4,    /* a member left */
    MST_START_FAILED = 5,  /* a member's work failed */
    MST_START_ASKED = 6,   /* a member wanted another round, without a new node */
};

/** The outcome of a round. */
struct mst_rendezvous {
    size_t size; /* sizeof(struct mst_rendezvous), see mst_rendezvous_init */
    int64_t round;
    int64_t rank;
    int64_t world_size;
    /** Keys of this round only; the caller closes it. Those of a round before the last may be gone.
     * A restart of the server does not end a round of backend `muster`, but loses its keys: all
     * later calls on this store fail with MST_ECLOSED, and the next round has a store again. */
    struct mst_store *store;
    /** The address of the workers' store. Empty, with port 0, if rank 0 has not published it in
     * time: torch's agents before 2.4 write the keys MASTER_ADDR and MASTER_PORT into @store after
     * the rendezvous. Then wait for these keys; on rank 0, choose an address and write them. */
    char master_addr[256];
    int master_port;
    uint64_t epoch; /* of the authority that made the round; 0 = the backend has none */
    /** The number of earlier rounds of the job that ended because work failed; the same for all
     * members. A restarted `muster serve` counts from 0. */
    int64_t restarts;
    enum mst_start start; /* of `muster` and `etcd-v3`; of the others FIRST or UNKNOWN */
    /** When the node connected to the server that completed the round, by CLOCK_MONOTONIC; 0 = not
     * known, for all backends but `muster`. A connection of the program's own to the same address
     * that has worked since then leads to that server, and not to one before a restart. */
    int64_t connected_us;
    /** With the options `workers` (how many this node starts) and, if wanted, `role`, on all nodes
     * of `muster` or `etcd-v3`: workers have ranks, too. Those of this node are @first_worker and
     * following of @workers, and within its role @role_first_worker and following of
     * @role_workers. All 0: not known. */
    int64_t first_worker, workers;
    int64_t role_first_worker, role_workers;
};

/** Clear @round and set its size. @size is `sizeof *round`. Thread-safe; cannot fail. */
MST_API void mst_rendezvous_init(struct mst_rendezvous *round, size_t size);

/** The outcome of a closed rendezvous. Numbers are ABI: append, never renumber. */
enum mst_outcome {
    MST_OUTCOME_NONE = 0,     /* it is not closed, or the outcome is not known */
    MST_OUTCOME_CLOSED = 1,   /* closed on request */
    MST_OUTCOME_FINISHED = 2, /* the work of all its nodes is done */
    MST_OUTCOME_FAILED = 3,   /* it failed; see the cause */
};

/** Why work has failed: the first failure of a round, which is the same for all its nodes. */
struct mst_cause {
    int64_t rank;      /* of the node; -1 = none */
    int64_t worker;    /* on the node; -1 = not known */
    int exit_status;   /* of the worker */
    int signal;        /* the signal that ended it; 0 = none */
    int64_t time_us;   /* when, on the node's clock; 0 = not known */
    char node[256];    /* as mst_handler_node calls it */
    char text[256];    /* a sentence; cut off when long */
    char report[4096]; /* lines for people, such as a stack trace; cut off when long */
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
    /** Should this node call mst_handler_next? A node waits or is lost, the round is over
     * or this node is expelled. */
    bool should_return;
};

/** Clear @changes and set its size. @size is `sizeof *changes`. Thread-safe; cannot fail. */
MST_API void mst_changes_init(struct mst_changes *changes, size_t size);

/** Make a handler for @params, which are copied. MST_EINVAL for an unknown backend (the message
 * names the known ones) or an invalid option; MST_ECONN if the backend cannot be reached. */
MST_API int mst_handler_new(const struct mst_params *params,
                            struct mst_handler **ret_handler,
                            struct mst_err *reterr);

/** Release @handler, which may be NULL. No other call on it may be under way. A node that is in a
 * round or waits for one leaves first, which takes at most 2 s. A node that serves a closed
 * rendezvous first waits up to 2.5 s for the others to notice.
 *
 * After fork, all other calls fail with MST_EINVAL in the child. This one releases the memory and
 * does not affect the parent. */
MST_API void mst_handler_free(struct mst_handler *handler);

/* --- rounds ---
 *
 * A program may simply wait in mst_handler_next. A program with an event loop calls
 * mst_handler_begin, polls the descriptor, takes notices until MST_NOTICE_COMPLETE or
 * MST_NOTICE_FAILED, and calls mst_handler_round. Later notices report what happens to the
 * round. */

/** What has happened. Numbers are ABI: append, never renumber. */
enum mst_notice_kind {
    MST_NOTICE_COMPLETE = 0,    /* the begun round is joined: mst_handler_round */
    MST_NOTICE_FAILED = 1,      /* the begun round does not come: @err, as of mst_handler_next */
    MST_NOTICE_WAITING = 2,     /* more nodes wait for the next round: @nodes_waiting */
    MST_NOTICE_LOST = 3,        /* members are gone: @nodes, @nodes_lost */
    MST_NOTICE_REOPENED = 4,    /* the round is over and the next one gathers; perhaps of a cause */
    MST_NOTICE_EXPELLED = 5,    /* the others count us as dead */
    MST_NOTICE_CLOSED = 6,      /* the rendezvous is closed: @reason, @outcome, perhaps a cause */
    MST_NOTICE_UNREACHABLE = 7, /* the state may be out of date: @err. The handler keeps trying */
    MST_NOTICE_REACHABLE = 8,   /* it is not any more */
};

/** A node of which a notice tells. */
struct mst_node {
    const char *name; /* as mst_handler_node calls it; "" = not known */
    int64_t rank;     /* in the round; -1 = not known */
    bool has_left;    /* it left; else it was lost */
};

/** One notice. At most one of each kind is pending: later news are merged into it. The caller
 * releases it, with its nodes, with mst_notice_free. */
struct mst_notice {
    size_t size; /* sizeof(struct mst_notice), as the library knows it */
    enum mst_notice_kind kind;
    int64_t round;         /* -1 = none */
    int64_t nodes_waiting; /* how many wait now */
    int64_t nodes_lost;    /* how many members are gone in all */
    /** LOST: the nodes that no notice has reported yet, as far as their names or ranks are
     * known; at most 1,024 of one round. */
    const struct mst_node *nodes;
    size_t node_count;
    char reason[256]; /* CLOSED: why, cut off when long; also FAILED, as below */
    enum mst_outcome
        outcome;    /* CLOSED: how it has ended; FAILED, if the job has, and it is known */
    bool has_cause; /* work has failed, and that is why: REOPENED, CLOSED, FAILED, LOST, WAITING */
    struct mst_cause cause;
    struct mst_err err; /* FAILED, UNREACHABLE */
};

/** Release @notice, which may be NULL. Thread-safe. */
MST_API void mst_notice_free(struct mst_notice *notice);

/**
 * Connect to the server before the first round, which then takes one message and one answer. This
 * is optional: mst_handler_begin connects, too, and waits for a server. Tries once. No effect if
 * the node is connected, in a round or waiting for one, and with the other backends than `muster`.
 *
 * Returns 0, MST_ECONN, MST_ERESOLVE, MST_ETIMEOUT, MST_ENOTSUP if the server does not serve jobs,
 * MST_ECANCELED, MST_ESYS, MST_ENOMEM. Thread-safe.
 */
MST_API int mst_handler_connect(struct mst_handler *handler,
                                int64_t timeout_ms,
                                struct mst_err *reterr);

/**
 * Ask for the next round and leave the present one. Returns at once; a notice reports the result
 * within @timeout_ms, or within the option `join_timeout` if that is negative. While a round is
 * begun, further calls have no effect. Pending notices are dropped.
 *
 * Returns 0, MST_ESYS if no thread can be started, MST_ENOTSUP for a custom backend that has only
 * next. Thread-safe.
 */
MST_API int mst_handler_begin(struct mst_handler *handler,
                              int64_t timeout_ms,
                              struct mst_err *reterr);

/**
 * Take the next notice; wait for it up to @timeout_ms, 0 = do not wait.
 *
 * Returns 0, MST_ETIMEOUT if there is none, MST_ECANCELED, MST_ENOMEM (the notice stays pending),
 * MST_ENOTSUP. Thread-safe; each notice is delivered once.
 */
MST_API int mst_handler_take(struct mst_handler *handler,
                             int64_t timeout_ms,
                             struct mst_notice **ret_notice,
                             struct mst_err *reterr);

/**
 * Wait up to @timeout_ms for the begun round. *@ret_is_over: whether it is complete or does not
 * come; its notice is dropped then. Else it stays begun.
 *
 * If it is over, returns 0 for a complete round, see mst_handler_round, or an error of
 * mst_handler_next. If not, MST_ETIMEOUT or MST_ECANCELED. MST_EINVAL if no round was begun,
 * MST_ENOTSUP. Thread-safe; all threads that wait are told.
 */
MST_API int mst_handler_await(struct mst_handler *handler,
                              int64_t timeout_ms,
                              bool *ret_is_over,
                              struct mst_err *reterr);

/** The joined round, with a store that the caller closes. MST_EINVAL if no round is joined,
 * MST_ENOMEM, MST_ENOTSUP. Thread-safe. */
MST_API int mst_handler_round(struct mst_handler *handler,
                              struct mst_rendezvous *ret,
                              struct mst_err *reterr);

/** Withdraw from the round that is begun. A round that is complete, and no call has told so, is
 * left. Its notice is dropped. The handler remains usable. Returns 0, also if no round is begun, an
 * error of leaving, or MST_ENOTSUP. Takes a few seconds at most. Thread-safe. */
MST_API int mst_handler_abandon(struct mst_handler *handler, struct mst_err *reterr);

/**
 * Take part in the next round and wait until it is complete: mst_handler_begin, unless one is begun
 * already, mst_handler_await, and mst_handler_round when it is there.
 *
 * Returns 0; MST_ECLOSED: the rendezvous is closed, or the job has failed. MST_EFINISHED: the job
 * has finished, which is success. MST_ESPARE: closed while this node was a spare, which is
 * success. MST_ETIMEOUT. MST_ECONN. MST_ECANCELED: the round is withdrawn. MST_ESTATE: the stored
 * data is not a rendezvous. MST_EEXPELLED (`muster`, `etcd-v3`): a newer process has this node's
 * name, or the others count this node as lost. MST_EINVAL: other nodes have other limits.
 * MST_EAUTH: refused by etcd. MST_ENOTSUP: the etcd has no v2 API, or the server does not serve
 * jobs. Thread-safe; threads that wait at the same time get the same round.
 */
MST_API int mst_handler_next(struct mst_handler *handler,
                             int64_t timeout_ms,
                             struct mst_rendezvous *ret,
                             struct mst_err *reterr);

/** Whether the rendezvous is closed, and how many nodes wait. In a round, both report the last
 * known state and do not fail while the handler reconnects. Outside of one, they ask the server.
 * Both return 0, or an error of mst_handler_next. */
MST_API int mst_handler_is_closed(struct mst_handler *handler, bool *ret, struct mst_err *reterr);
MST_API int mst_handler_nodes_waiting(struct mst_handler *handler,
                                      int64_t *ret,
                                      struct mst_err *reterr);

/** Close the rendezvous permanently. Limited by `close_timeout`. Returns 0, also if it is closed
 * already, MST_ECONN, MST_ETIMEOUT, MST_EAUTH, MST_ENOMEM. Thread-safe. */
MST_API int mst_handler_set_closed(struct mst_handler *handler, struct mst_err *reterr);

/** The present state. Waits up to @timeout_ms for a change that was not reported before.
 * MST_ETIMEOUT if there is none; @ret is filled all the same. MST_ECANCELED. The call consumes the
 * notices of what it reports: use either this call or mst_handler_take. */
MST_API int mst_handler_poll(struct mst_handler *handler,
                             int64_t timeout_ms,
                             struct mst_changes *ret,
                             struct mst_err *reterr);

/** A descriptor that is readable while a notice is pending; -1 if the backend has none, or
 * @handler is NULL. Owned by @handler. */
MST_API int mst_handler_fd(const struct mst_handler *handler);

/** Make the calls that are blocked now return MST_ECANCELED: mst_handler_next, which withdraws its
 * round, mst_handler_await, mst_handler_take, mst_handler_poll, mst_handler_connect,
 * mst_handler_linger, mst_handler_finish, mst_handler_restart. If no call is blocked, the next one
 * that would block returns MST_ECANCELED, once. The handler remains usable. Thread-safe and
 * async-signal-safe. */
MST_API void mst_handler_cancel(struct mst_handler *handler);

/** The job and the backend that the handler was made for. Owned by @handler. */
MST_API const char *mst_handler_run_id(const struct mst_handler *handler);
MST_API const char *mst_handler_backend(const struct mst_handler *handler);

/** Whether workers should use the store at master_addr:master_port instead of starting one. */
MST_API bool mst_handler_use_agent_store(const struct mst_handler *handler);

/** The name of this node: addr_pid_local_id, where local_id is a random number, so that containers
 * with equal host names and process ids differ. With `muster` and `etcd-v3` the option `node_name`,
 * if given; with `etcd` muster_ and a random number; "" if the backend has no names. Owned by
 * @handler. */
MST_API const char *mst_handler_node(const struct mst_handler *handler);

/**
 * Tell the others that this node will leave its round in @in_ms, and stays in it until
 * mst_handler_leave. Work of theirs that fails about then, because its peer is gone, is no failure
 * of the job: mst_handler_restart of theirs uses no restart, and the next round begins when this
 * node has left.
 *
 * Returns 0 when that was read, also by a server of an earlier version, to which it means nothing;
 * MST_EINVAL if no round is joined; MST_ECONN, MST_ECANCELED, MST_ENOTSUP as mst_handler_finish.
 * Thread-safe.
 */
MST_API int mst_handler_leaving(struct mst_handler *handler, int64_t in_ms, struct mst_err *reterr);

/** Leave the round at once, so that the others need not wait for this node to expire. The
 * rendezvous stays open; mst_handler_next enters again. Limited by `close_timeout`. No effect
 * outside of a round. */
MST_API int mst_handler_leave(struct mst_handler *handler, struct mst_err *reterr);

/** End the job: stop heartbeats and close the rendezvous. */
MST_API int mst_handler_shutdown(struct mst_handler *handler, struct mst_err *reterr);

/**
 * Keep serving for others. With backends `muster` and `c10d`, the first node at an endpoint may
 * serve all jobs that meet there, and its server ends with mst_handler_free. This call, made before
 * that, leaves the round as mst_handler_leave does, and waits until no node is left in any open job
 * of the server, whatever its backend, up to @timeout_ms; below 0, as the option `linger` says (24
 * hours). Nodes of backend `c10d` count as dead when none of them has sent a heartbeat for a
 * minute. An event `linger` says for whom it waits. If this node serves nobody else it returns at
 * once. If it does not serve, or its server has given way to a `muster serve` (event `gave_way`),
 * the call does nothing.
 *
 * Returns 0; MST_ETIMEOUT if there are still nodes, and the error names their jobs; MST_ECANCELED,
 * see mst_handler_cancel; MST_ECONN. The handler remains usable. Thread-safe.
 */
MST_API int mst_handler_linger(struct mst_handler *handler,
                               int64_t timeout_ms,
                               struct mst_err *reterr);

/* --- work ---
 *
 * A node reports when its work in a round is done or has failed, and all nodes of the job are told
 * how the job ends: mst_changes has the outcome and the cause. All backends but `static` have these
 * calls. A report about a round that is over has no effect and is not an error. */

/** A failure of this node's work. */
struct mst_failure {
    size_t size;      /* sizeof(struct mst_failure), see mst_failure_init */
    int64_t worker;   /* of the node; -1 = not known */
    int exit_status;  /* of the worker */
    int signal;       /* the signal that ended it; 0 = none */
    int64_t time_us;  /* when, wall clock; 0 = now */
    const char *text; /* a sentence; cut off behind 255 bytes. NULL = none */
    /** Lines for people, such as a stack trace; cut off behind 4,095 bytes. All nodes get it with
     * the cause. NULL = none. */
    const char *report;
};

/** Clear @failure, set its size, and set worker to -1. @size is `sizeof *failure`. Thread-safe;
 * cannot fail. */
MST_API void mst_failure_init(struct mst_failure *failure, size_t size);

/**
 * Report that the work of this node in the round is done. @status and @text (may be NULL) are shown
 * to people. The node stays a member; if it leaves or dies now, it is not lost. When all members
 * have finished, the rendezvous is closed as finished, and all nodes are told. mst_handler_next of
 * queued nodes and spares then returns MST_EFINISHED, which is success. If the work of another node
 * fails first, the round is reopened, for this node too. To ask for another round, call
 * mst_handler_next.
 *
 * Returns 0 when the report was read; MST_EINVAL if no round is joined; MST_ECONN if there is no
 * answer within `close_timeout` (the handler keeps trying); MST_ECANCELED; MST_ENOTSUP with
 * `static` and with an older server. Thread-safe.
 */
MST_API int mst_handler_finish(struct mst_handler *handler,
                               int status,
                               const char *text,
                               struct mst_err *reterr);

/**
 * Report that the work of this node in the round has failed. The first failure of a round is its
 * cause. If the job's budget allows a restart, the round ends for all members, and mst_handler_next
 * enters the next one. Otherwise the rendezvous is closed as failed, and mst_handler_next returns
 * MST_ECLOSED with the same cause on all nodes. The option `max_restarts` is the budget: `3`, or
 * `3/1h` for three in an hour; unlimited by default.
 *
 * Returns as mst_handler_finish, and MST_EINVAL for an invalid size of @failure. Thread-safe.
 */
MST_API int mst_handler_restart(struct mst_handler *handler,
                                const struct mst_failure *failure,
                                struct mst_err *reterr);

#ifdef __cplusplus
}
#endif
#endif /* MST_RENDEZVOUS_H */
