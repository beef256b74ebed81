/* etcd_local/scratch.h - the data directory of an etcd: a fresh one that does not outlive this
 * program, or one of the caller's, in which nothing is removed but what a failed start has put
 * there.
 *
 * A fresh one is also removed when this program is killed: a shell that waits for our end sees to
 * that. */
#ifndef MST_ETCD_LOCAL_SCRATCH_H
#define MST_ETCD_LOCAL_SCRATCH_H

#include <limits.h>
#include <muster/error.h>
#include <muster/log.h>
#include <stdbool.h>
#include <sys/types.h>

struct mst__scratch {
    char base[PATH_MAX]; /* the caller's, or the fresh one */
    char path[PATH_MAX]; /* what etcd is given */
    bool is_fresh;
    bool has_made_base;
    bool has_data;     /* the caller's had some before, which is never removed */
    pid_t sweeper_pid; /* 0 = none */
    int sweeper_fd;    /* closed by our end, which the sweeper waits for */
};

/**
 * With @dir NULL make a fresh directory under $TMPDIR or /tmp; else take @dir, and make it if need
 * be.
 *
 * Returns 0; MST_ESYS, MST_EINVAL (path too long). Closed with mst__scratch_close.
 */
int mst__scratch_open(const char *dir,
                      const struct mst_log *log,
                      struct mst__scratch *ret_scratch,
                      struct mst_err *reterr);

/* Set path to one without the leavings of earlier attempts. 0 or MST_ESYS. */
int mst__scratch_next(struct mst__scratch *scratch, unsigned attempt, struct mst_err *reterr);

/* No etcd uses it any more. A fresh one goes. One of the caller's stays, with all its data if
 * @is_kept; otherwise what was put in is taken out again. A zeroed one is fine. */
void mst__scratch_close(struct mst__scratch *scratch, bool is_kept);

#endif /* MST_ETCD_LOCAL_SCRATCH_H */
