/* muster/backend.h - what the author of a rendezvous backend needs.
 *
 * A backend is a creator that is registered under a name. It reads the options of its parameters,
 * and wraps its own object and a table of calls as a handler. Programs that only use backends need
 * <muster/rendezvous.h> alone.
 *
 * Threads: operations are called from several threads at the same time, except `free`, which comes
 * last. The library has checked the pointers and sizes that it passes; structs have its own size.
 * After fork, a child process has its parent's registry. */
#ifndef MST_BACKEND_H
#define MST_BACKEND_H

#include <muster/rendezvous.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The operations of a handler. Each has the meaning of the function of the same name in
 * <muster/rendezvous.h> or <muster/legacy.h>. All but the first two may be NULL: then no node
 * waits, nothing is closed, there is no descriptor, connect and linger do nothing, and begin,
 * await, take, round and abandon return MST_ENOTSUP.
 */
struct mst_handler_ops {
    size_t size; /* sizeof(struct mst_handler_ops), see mst_handler_ops_init */
    int (*next)(void *self, int64_t timeout_ms, struct mst_rendezvous *ret, struct mst_err *reterr);
    void (*free)(void *self);
    const char *(*backend)(void *self);
    const char *(*run_id)(void *self);
    int (*is_closed)(void *self, bool *ret, struct mst_err *reterr);
    int (*set_closed)(void *self, struct mst_err *reterr);
    int (*nodes_waiting)(void *self, int64_t *ret, struct mst_err *reterr);
    int (*poll)(void *self, int64_t timeout_ms, struct mst_changes *ret, struct mst_err *reterr);
    int (*fd)(void *self);
    void (*cancel)(void *self);
    bool (*use_agent_store)(void *self);
    int (*shutdown)(void *self, struct mst_err *reterr);
    int (*leave)(void *self, struct mst_err *reterr);
    const char *(*node)(void *self);
    int (*set_extra)(void *self,
                     const char *name,
                     const char *json,
                     int64_t timeout_ms,
                     struct mst_err *reterr);
    int (*get_extra)(void *self,
                     const char *name,
                     int64_t timeout_ms,
                     struct mst_buffer *ret_json,
                     struct mst_err *reterr);
    int (*finish)(void *self, int status, const char *text, struct mst_err *reterr);
    int (*restart)(void *self, const struct mst_failure *failure, struct mst_err *reterr);
    int (*begin)(void *self, int64_t timeout_ms, struct mst_err *reterr);
    int (*take)(void *self,
                int64_t timeout_ms,
                struct mst_notice **ret_notice,
                struct mst_err *reterr);
    int (*round)(void *self, struct mst_rendezvous *ret, struct mst_err *reterr);
    int (*abandon)(void *self, struct mst_err *reterr);
    int (*await)(void *self, int64_t timeout_ms, bool *ret_is_over, struct mst_err *reterr);
    int (*connect)(void *self, int64_t timeout_ms, struct mst_err *reterr);
    int (*linger)(void *self, int64_t timeout_ms, struct mst_err *reterr);
    int (*leaving)(void *self, int64_t in_ms, struct mst_err *reterr);
};

/** Clear @ops and set its size. @size is `sizeof *ops`. Thread-safe; cannot fail. */
MST_API void mst_handler_ops_init(struct mst_handler_ops *ops, size_t size);

/** Wrap @self (may be NULL; taken on success) as a handler. @ops is copied.
 *
 * Returns 0, MST_EINVAL if next or free is missing or the size is invalid, MST_ENOTSUP for
 * operations that this library does not know, MST_ENOMEM. Thread-safe. */
MST_API int mst_handler_wrap(const struct mst_handler_ops *ops,
                             void *self,
                             struct mst_handler **ret_handler,
                             struct mst_err *reterr);

/** Makes a handler for @params, which is borrowed for the call, and wraps it with mst_handler_wrap.
 * @arg is that of struct mst_backend. Called from the thread that calls mst_handler_new, from
 * several at the same time. Returns 0 or an error, which mst_handler_new passes on. */
typedef int (*mst_handler_creator)(const struct mst_params *params,
                                   void *arg,
                                   struct mst_handler **ret_handler,
                                   struct mst_err *reterr);

/** What a backend is and can do, as bits, for launchers and commands, which know backends only by
 * this word and by their options. Numbers are ABI: append, never renumber. */
enum mst_capability {
    MST_BACKEND_SERVER = 1,     /* the endpoint is a server of muster or PyTorch */
    MST_BACKEND_ETCD = 2,       /* the endpoint is an etcd */
    MST_BACKEND_SHARED = 4,     /* nodes of PyTorch may be in the job */
    MST_BACKEND_GIVEN = 8,      /* the nodes and their ranks are given, and never change */
    MST_BACKEND_NAMES = 16,     /* nodes have names, which mst_status_job tells */
    MST_BACKEND_REASONS = 32,   /* who closes a job may give a reason, which all nodes are told */
    MST_BACKEND_LISTS = 64,     /* the server lists its jobs: mst_status_jobs */
    MST_BACKEND_COMMANDS = 128, /* launchers take commands: ps, logs, drain, restart */
};

/** A backend, as its author describes it. */
struct mst_backend {
    size_t size;      /* sizeof(struct mst_backend), see mst_backend_init */
    const char *name; /* copied */
    mst_handler_creator creator;
    void *arg; /* for the creator; it stays the author's, for the life of the process */

    /** The options that it knows (copied). mst_handler_new refuses others with the nearest of these
     * before it calls the creator, or leaves them out, see mst_params_ignore_unknown. NULL = the
     * creator looks at the options itself. */
    const char *const *options;
    size_t options_count;
    uint32_t capabilities; /* of enum mst_capability; 0 = none */
};

/** Clear @backend and set its size. @size is `sizeof *backend`. Thread-safe; cannot fail. */
MST_API void mst_backend_init(struct mst_backend *backend, size_t size);

/** Register @backend for the whole process. Registering the same name with the same creator and
 * argument again is allowed. Built in are `muster`, `c10d`, `etcd-v2`, `etcd-v3`, `etcd` and
 * `static`.
 *
 * Returns 0, MST_EINVAL (no name, no creator, a name that has another creator), MST_ELIMIT (too
 * many backends), MST_ENOTSUP (fields that this library does not know), MST_ENOMEM. From any
 * thread. */
MST_API int mst_registry_add(const struct mst_backend *backend, struct mst_err *reterr);

/** The capabilities of @backend, as bits of enum mst_capability; 0 if there is no such backend.
 * Thread-safe. */
MST_API uint32_t mst_backend_capabilities(const char *backend);

#ifdef __cplusplus
}
#endif
#endif /* MST_BACKEND_H */
