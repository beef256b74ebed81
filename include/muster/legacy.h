/* muster/legacy.h - calls that only backend `etcd` has, for programs that come from torch's handler
 * of that name. */
#ifndef MST_LEGACY_H
#define MST_LEGACY_H

#include <muster/rendezvous.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Extra data of the round that was joined, which only backend `etcd` has: @name stands for a JSON
 * value, given and returned as text. Getting waits until somebody has set it. The peers of that
 * backend see the same.
 *
 * MST_ENOTSUP: the backend has none. MST_EINVAL: no JSON, or no round is joined. MST_ETIMEOUT,
 * MST_ECONN, MST_EUNKNOWN, MST_ESTATE (what is stored there is something else).
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
