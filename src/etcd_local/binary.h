/* etcd_local/binary.h - which etcd there is on this machine, and what it can do. */
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
 * Find the program: @given, looked for in $PATH when it has no slash; or with NULL
 * $TORCHELASTIC_ETCD_BINARY_PATH, `etcd` beside this program, `etcd` in $PATH. A variable that
 * names no program is reported to @log, and the search goes on, as the peers do.
 *
 * Returns 0, MST_ENOTFOUND, MST_EINVAL (path too long). Only ret_binary->path is set.
 */
int mst__binary_find(const char *given,
                     const struct mst_log *log,
                     struct mst__binary *ret_binary,
                     struct mst_err *reterr);

/**
 * Ask it for its version.
 *
 * Returns 0; MST_ECONN when it is no etcd, MST_ESYS when it cannot be run, MST_ETIMEOUT,
 * MST_ECANCELED, MST_ENOMEM.
 */
int mst__binary_probe(struct mst__binary *binary, struct mst__until until, struct mst_err *reterr);

/* Whether it is at least that version. */
bool mst__binary_is_from(const struct mst__binary *binary, int64_t major, int64_t minor);

#endif /* MST_ETCD_LOCAL_BINARY_H */
