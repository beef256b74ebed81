/* handler/registry.h - what is known about a backend, for rooms that must not know its name. */
#ifndef MST_HANDLER_REGISTRY_H
#define MST_HANDLER_REGISTRY_H

#include <muster/backend.h>
#include <stdbool.h>

struct mst__look_ops;

/* False if there is no such backend. */
bool mst__backend_can(const char *backend, enum mst_capability capability);
bool mst__backend_has_option(const char *backend, const char *option);

/* How the status of its jobs is read; NULL = it has no way of its own. Returns 0, or MST_EINVAL
 * with the names of the known backends. */
int mst__backend_look(const char *backend,
                      const struct mst__look_ops **ret_ops,
                      struct mst_err *reterr);

#endif /* MST_HANDLER_REGISTRY_H */
