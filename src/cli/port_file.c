/* cli/port_file.c - publishes the chosen port in a file.
 *
 * Only regular files are replaced and removed: a device, a socket or a link belongs to another
 * program. */
#include "cli/port_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/err.h"

#define TEMPORARY_SIZE 4096

/* Check @path: 0 for a regular file or none. */
static int look(const char *path, struct stat *ret_info, bool *ret_exists, struct mst_err *reterr)
{
    *ret_exists = lstat(path, ret_info) == 0;
    if (!*ret_exists) {
        return errno == ENOENT ? 0 : mst__fail(reterr, MST_ESYS, errno, "port file '%s'", path);
    }
    if (S_ISREG(ret_info->st_mode)) {
        return 0;
    }
    const char *kind = S_ISDIR(ret_info->st_mode)   ? "a directory"
                       : S_ISLNK(ret_info->st_mode) ? "a symbolic link"
                                                    : "a device, pipe or socket";
    return mst__fail(reterr, MST_EINVAL, 0, "port file '%.100s' is %s, not a regular file", path,
                     kind);
}

int mst__port_file_begin(struct mst__port_file *file, const char *path, struct mst_err *reterr)
{
    *file = (struct mst__port_file){.path = path};
    struct stat info;
    bool exists = false;
    if (path == NULL) {
        return 0;
    }
    int rv = look(path, &info, &exists, reterr);
    if (rv == 0 && exists && unlink(path) != 0 && errno != ENOENT) {
        rv = mst__fail(reterr, MST_ESYS, errno, "port file '%s' of an earlier start", path);
    }
    return rv;
}

static int write_temporary(const char *path, int port, struct stat *ret_info)
{
    (void)unlink(path); /* of an earlier process with our id; open fails if it is still there */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) {
        return errno;
    }
    char text[32];
    int length = snprintf(text, sizeof text, "%d\n", port); /* fits */
    ssize_t written = write(fd, text, (size_t)length);
    int reason = written == length && fstat(fd, ret_info) == 0 ? 0 : written < 0 ? errno : ENOSPC;
    if (close(fd) != 0 && reason == 0) {
        reason = errno;
    }
    return reason;
}

int mst__port_file_write(struct mst__port_file *file, int port, struct mst_err *reterr)
{
    struct stat info;
    bool exists = false;
    if (file->path == NULL) {
        return 0;
    }
    int rv = look(file->path, &info, &exists, reterr);
    if (rv != 0) {
        return rv;
    }
    char temporary[TEMPORARY_SIZE];
    int length = snprintf(temporary, sizeof temporary, "%s.%ld", file->path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary) {
        return mst__fail(reterr, MST_EINVAL, 0, "port file '%.100s…': path too long", file->path);
    }
    int reason = write_temporary(temporary, port, &info);
    if (reason == 0 && rename(temporary, file->path) != 0) {
        reason = errno;
    }
    if (reason != 0) {
        (void)unlink(temporary); /* the first error is already reported */
        return mst__fail(reterr, MST_ESYS, reason, "port file '%s'", file->path);
    }
    file->is_written = true;
    file->info = info;
    return 0;
}

/* A successor's file may have the same inode, but is written later. */
static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

void mst__port_file_end(struct mst__port_file *file)
{
    struct stat info;
    if (file->is_written && lstat(file->path, &info) == 0 && is_same(&info, &file->info)) {
        (void)unlink(file->path); /* an error cannot be reported any more */
    }
    file->is_written = false;
}
