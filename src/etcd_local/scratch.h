/* etcd_local/scratch.h - the data directory of an etcd: a new one that is removed at the end, or
 * one of the caller, from which only the files of a failed start are removed.
 *
 * A new one is removed even if this program is killed: a shell waits for our end. */
#ifndef MST_ETCD_LOCAL_SCRATCH_H
#define MST_ETCD_LOCAL_SCRATCH_H

#include <limits.h>
#include <muster/error.h>
#include <muster/log.h>
#include <stdbool.h>
#include <sys/types.h>

struct mst__scratch {
    char base[PATH_MAX]; /* the caller's, or the new one */
    char path[PATH_MAX]; /* passed to etcd */
    bool is_fresh;
    bool has_made_base;
    bool has_data;     /* the caller's directory had data before, which is never removed */
    pid_t sweeper_pid; /* 0 = none */
    int sweeper_fd;    /* closed when we end; the sweeper waits for that */
};

/**
 * With @dir NULL create a new directory under $TMPDIR or /tmp; else use @dir, and create it if
 * needed.
 *
 * Returns 0; MST_ESYS, MST_EINVAL (path too long). Release it with mst__scratch_close.
 */
int mst__scratch_open(const char *dir,
                      const struct mst_log *log,
                      struct mst__scratch *ret_scratch,
                      struct mst_err *reterr);

/* Set path to a directory without files of earlier attempts. Returns 0 or MST_ESYS. */
int mst__scratch_next(struct mst__scratch *scratch, unsigned attempt, struct mst_err *reterr);

/* The etcd has ended. A new directory is removed. One of the caller stays, with all its data if
 * @is_kept; otherwise our files are removed. A zeroed one is allowed. */
void mst__scratch_close(struct mst__scratch *scratch, bool is_kept);

#endif /* MST_ETCD_LOCAL_SCRATCH_H */
