/* muster/legacy.h - calls that only backend `etcd` has, for programs that come from torch's handler
 * of that name. */
#ifndef MST_LEGACY_H
#define MST_LEGACY_H

#include <muster/rendezvous.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Extra data of the round that was joined: @name stands for a JSON value, given and returned as
 * text. Getting waits until a node has set it; the caller releases @ret_json with mst_buffer_free.
 * Other nodes of that backend, torch's among them, see the same. From any thread, as all calls on a
 * handler.
 *
 * Return 0; MST_ENOTSUP: the backend has none. MST_EINVAL: no JSON, or no round is joined.
 * MST_ETIMEOUT, MST_ECONN, MST_EUNKNOWN, MST_ESTATE (what is stored there is something else),
 * MST_EAUTH, MST_ENOMEM.
 */
MST_API int mst_handler_set_extra(struct mst_handler *handler,
                                  const char *name,
                                  const char *json,
                                  int64_t timeout_ms,
                                  struct mst_err *reterr);
MST_API int mst_handler_get_extra(struct mst_handler *handler,
                                  const char *name,
                                  int64_t timeout_ms,
                                  struct mst_buffer *ret_json,
                                  struct mst_err *reterr);

#ifdef __cplusplus
}
#endif
#endif /* MST_LEGACY_H */
