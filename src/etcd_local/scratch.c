/* etcd_local/scratch.c - the data directory of an etcd.
 *
 * etcd keeps all its data in the subdirectory `member`, so only that must be removed from a
 * directory of the caller after a failed start. */
#include "etcd_local/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "etcd_local/spawn.h"

/* Depth of nested directories; etcd makes two. */
#define REMOVE_DEPTH_MAX 16

/* --- removing --- */

static void remove_children(int dir_fd, unsigned depth);

static void remove_entry(int dir_fd, const char *name, unsigned depth)
{
    if (unlinkat(dir_fd, name, 0) == 0 || depth == REMOVE_DEPTH_MAX) {
        return;
    }
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        remove_children(fd, depth + 1);
        (void)unlinkat(dir_fd, name, AT_REMOVEDIR); /* best effort, like the rest */
    }
}

/* @dir_fd is taken. */
static void remove_children(int dir_fd, unsigned depth)
{
    DIR *dir = fdopendir(dir_fd);
    if (dir == NULL) {
        (void)close(dir_fd);
        return;
    }
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            remove_entry(dirfd(dir), entry->d_name, depth);
        }
    }
    (void)closedir(dir);
}

/* --- the sweeper --- */

/* It waits for a line or for the end of its input, which means our end. etcd ends a moment after
 * us and may still create a file. */
static const char sweeper_script[] = "read -r line\n"
                                     "tries=0\n"
                                     "while [ -e \"$1\" ] && [ $tries -lt 50 ]; do\n"
                                     "    rm -rf -- \"$1\" || sleep 0.1\n"
                                     "    tries=$((tries + 1))\n"
                                     "done\n";

static void start_sweeper(struct mst__scratch *scratch, const struct mst_log *log)
{
    int input[2];
    struct mst_err err = {0};
    char shell[] = "/bin/sh";
    char option[] = "-c";
    char script[sizeof sweeper_script];
    char name[] = "muster-etcd-sweeper";
    memcpy(script, sweeper_script, sizeof script);
    char *argv[] = {shell, option, script, name, scratch->base, NULL};
    /* Not a pipe: writing to a pipe without a reader raises SIGPIPE. */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input) != 0) {
        mst__err_fill(&err, MST_ESYS, errno, "socketpair");
    } else {
        const struct mst__spawn spawn = {.argv = argv, .input_fd = input[0], .output_fd = -1};
        bool is_started = mst__spawn(&spawn, &scratch->sweeper_pid, &err) == 0;
        (void)close(input[0]);
        if (is_started) {
            scratch->sweeper_fd = input[1];
            return;
        }
        scratch->sweeper_pid = 0;
        (void)close(input[1]);
    }
    mst__log(log, MST_LOG_WARN, "etcd.no_sweeper",
             "why=%s left=%s effect=\"a kill leaves it behind\"", MST_LOG_TEXT(err.msg),
             MST_LOG_TEXT(scratch->base));
}

static void stop_sweeper(struct mst__scratch *scratch)
{
    if (scratch->sweeper_pid == 0) {
        return;
    }
    /* Send a line, because a process that was forked from us may keep the other end open. The
     * sweeper then finds nothing to remove. */
    ssize_t sent = send(scratch->sweeper_fd, "\n", 1, MSG_NOSIGNAL);
    (void)sent; /* if it is gone, waitpid returns at once */
    (void)close(scratch->sweeper_fd);
    pid_t pid;
    do {
        pid = waitpid(scratch->sweeper_pid, NULL, 0);
    } while (pid < 0 && errno == EINTR);
    scratch->sweeper_pid = 0;
}

/* --- opening --- */

static int make_fresh(struct mst__scratch *scratch, struct mst_err *reterr)
{
    const char *parent = getenv("TMPDIR");
    parent = parent == NULL || *parent == '\0' ? "/tmp" : parent;
    int length = snprintf(scratch->base, sizeof scratch->base, "%s/muster-etcd-XXXXXX", parent);
    if (length < 0 || (size_t)length >= sizeof scratch->base) {
        return mst__fail(reterr, MST_EINVAL, 0, "etcd: $TMPDIR is too long");
    }
    if (mkdtemp(scratch->base) == NULL) {
        return mst__fail(reterr, MST_ESYS, errno, "etcd: make a directory in '%.100s' ($TMPDIR)",
                         parent);
    }
    scratch->is_fresh = true;
    scratch->has_made_base = true;
    return 0;
}

static int take_given(struct mst__scratch *scratch, const char *dir, struct mst_err *reterr)
{
    char member[PATH_MAX + 8];
    int length = snprintf(member, sizeof member, "%s/member", dir);
    if (length < 0 || (size_t)length >= sizeof scratch->base) {
        return mst__fail(reterr, MST_EINVAL, 0, "etcd: data directory '%.100s…': path too long",
                         dir);
    }
    memcpy(scratch->base, dir, strlen(dir) + 1);
    if (mkdir(dir, 0700) == 0) {
        scratch->has_made_base = true;
    } else if (errno != EEXIST) {
        return mst__fail(reterr, MST_ESYS, errno, "etcd: make data directory '%.100s'", dir);
    }
    struct stat status;
    if (stat(dir, &status) != 0 || !S_ISDIR(status.st_mode)) {
        return mst__fail(reterr, MST_ESYS, ENOTDIR, "etcd: data directory '%.100s'", dir);
    }
    scratch->has_data = stat(member, &status) == 0;
    return 0;
}

int mst__scratch_open(const char *dir,
                      const struct mst_log *log,
                      struct mst__scratch *ret_scratch,
                      struct mst_err *reterr)
{
    *ret_scratch = (struct mst__scratch){.sweeper_fd = -1};
    if (dir != NULL) {
        return take_given(ret_scratch, dir, reterr);
    }
    int rv = make_fresh(ret_scratch, reterr);
    if (rv == 0) {
        start_sweeper(ret_scratch, log);
    }
    return rv;
}

int mst__scratch_next(struct mst__scratch *scratch, unsigned attempt, struct mst_err *reterr)
{
    if (!scratch->is_fresh) {
        if (!scratch->has_data && attempt > 0) {
            int fd = open(scratch->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (fd >= 0) {
                remove_entry(fd, "member", 0);
                (void)close(fd);
            }
        }
        memcpy(scratch->path, scratch->base, sizeof scratch->path);
        return 0;
    }
    int length = snprintf(scratch->path, sizeof scratch->path, "%.*s/%u",
                          (int)(sizeof scratch->path - 16), scratch->base, attempt);
    if (length < 0 || mkdir(scratch->path, 0700) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "etcd: make data directory '%.100s'",
                         scratch->path);
    }
    return 0;
}

void mst__scratch_close(struct mst__scratch *scratch, bool is_kept)
{
    bool is_cleared = scratch->is_fresh || (!is_kept && !scratch->has_data);
    int fd = is_cleared && scratch->base[0] != '\0'
                 ? open(scratch->base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                 : -1;
    if (fd >= 0 && scratch->is_fresh) {
        remove_children(fd, 0);
    } else if (fd >= 0) {
        remove_entry(fd, "member", 0);
        (void)close(fd);
    }
    if (scratch->has_made_base && is_cleared) {
        (void)rmdir(scratch->base); /* unless it has other files */
    }
    stop_sweeper(scratch);
    *scratch = (struct mst__scratch){.sweeper_fd = -1};
}
