/* muster/backend.h - what the author of a rendezvous backend needs.
 *
 * A backend is a creator that is registered under a name. It reads the options of its parameters,
 * and wraps its own object and a table of calls as a handler. Programs that only use backends need
 * <muster/rendezvous.h> alone. */
#ifndef MST_BACKEND_H
#define MST_BACKEND_H

#include <muster/rendezvous.h>

#ifdef __cplusplus
extern "C" {
#endif

/** MST_EINVAL if an option is set that is not among @known; names it and the nearest known one. 0
 * if such options are to be ignored. Called once by each handler that is made. */
MST_API int mst_params_check_known(const struct mst_params *params,
                                   const char *const *known,
                                   size_t known_count,
                                   struct mst_err *reterr);

/**
 * What a handler has to offer; handlers of programs fill one in. All but the first two may be NULL
 * where the backend has nothing to say: then nobody waits, nothing is closed, there is no fd.
 * Calls mean what the functions of the same name in <muster/rendezvous.h> and
 * <muster/legacy.h> say.
 */
struct mst_handler_ops {
    size_t size; /* sizeof(struct mst_handler_ops), see mst_handler_ops_init */
    int (*next)(void *self, struct mst_rendezvous *ret, struct mst_err *reterr);
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
};

/** Empty @ops and note in it that the caller has @size bytes: `sizeof ops`.
 * From any thread; it cannot fail. */
MST_API void mst_handler_ops_init(struct mst_handler_ops *ops, size_t size);

/** Wrap @self (taken on success) as a handler. @ops is copied.
 *
 * Returns 0, MST_EINVAL for operations without next or free or of no sensible size, MST_ENOTSUP for
 * ones that this library does not know, MST_ENOMEM. From any thread. */
MST_API int mst_handler_wrap(const struct mst_handler_ops *ops,
                             void *self,
                             struct mst_handler **ret_handler,
                             struct mst_err *reterr);

typedef int (*mst_handler_creator)(const struct mst_params *params,
                                   void *arg,
                                   struct mst_handler **ret_handler,
                                   struct mst_err *reterr);

/** Let @creator make the handlers of backend @name. The same creator twice is fine, another one for
 * a known name is MST_EINVAL. For the whole process; built in are `muster`, `c10d`, `etcd-v2`,
 * `etcd-v3`, `etcd` and `static`. */
MST_API int mst_registry_add(const char *name,
                             mst_handler_creator creator,
                             void *arg,
                             struct mst_err *reterr);

#ifdef __cplusplus
}
#endif
#endif /* MST_BACKEND_H */
