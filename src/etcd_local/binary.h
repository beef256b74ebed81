/* etcd_local/binary.h - finds the etcd program of this machine and its version. */
#ifndef MST_ETCD_LOCAL_BINARY_H
#define MST_ETCD_LOCAL_BINARY_H

#include <limits.h>
#include <muster/error.h>
#include <muster/log.h>
#include <stdbool.h>

#include "base/until.h"

struct mst__binary {
    char path[PATH_MAX];
    char version[32]; /* "3.4.23" */
    int64_t major, minor;
};

/**
 * Find the program: @given, searched in $PATH if it has no slash; with NULL
 * $TORCHELASTIC_ETCD_BINARY_PATH, `etcd` beside this program, `etcd` in $PATH. If the variable
 * names no program, that is logged and the search continues, as with the peers.
 *
 * Returns 0, MST_ENOTFOUND, MST_EINVAL (path too long). Only ret_binary->path is set.
 */
int mst__binary_find(const char *given,
                     const struct mst_log *log,
                     struct mst__binary *ret_binary,
                     struct mst_err *reterr);

/**
 * Run it to get its version.
 *
 * Returns 0; MST_ECONN if it is not an etcd, MST_ESYS if it cannot be run, MST_ETIMEOUT,
 * MST_ECANCELED, MST_ENOMEM.
 */
int mst__binary_probe(struct mst__binary *binary, struct mst__until until, struct mst_err *reterr);

/* Whether it has at least that version. */
bool mst__binary_is_from(const struct mst__binary *binary, int64_t major, int64_t minor);

#endif /* MST_ETCD_LOCAL_BINARY_H */
