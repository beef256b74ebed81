/* etcd/secret.c - passwords of etcd's users. */
#include "etcd/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"

/* Read the first line of a file; a newline at its end is ignored. */
static int password_read(const char *path, char **ret_password, struct mst_err *reterr)
{
    char text[MST_ETCD_PASSWORD_SIZE_MAX + 1];
    size_t size = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t got = fd < 0 ? -1 : 1;
    while (got > 0 && size < sizeof text) {
        got = read(fd, text + size, sizeof text - size);
        size += got > 0 ? (size_t)got : 0;
    }
    int sys = errno;
    if (fd >= 0) {
        (void)close(fd); /* it was only read */
    }
    int rv = 0;
    const char *newline = memchr(text, '\n', size);
    size_t line = newline == NULL ? size : (size_t)(newline - text);
    if (got < 0) {
        rv = mst__fail(reterr, MST_ESYS, sys, "password_file '%.100s'", path);
    } else if (line > MST_ETCD_PASSWORD_SIZE_MAX || memchr(text, '\0', line) != NULL) {
        rv = mst__fail(reterr, MST_EINVAL, 0,
                       "password_file '%.100s' does not begin with a password: a line of at most "
                       "%d bytes",
                       path, MST_ETCD_PASSWORD_SIZE_MAX);
    } else {
        *ret_password = mst__memdup(text, line);
        rv = *ret_password != NULL ? 0 : mst__fail(reterr, MST_ENOMEM, 0, "password");
    }
    explicit_bzero(text, sizeof text);
    return rv;
}

int mst__secret_password(const char *user,
                         const char *path,
                         char **ret_password,
                         struct mst_err *reterr)
{
    if (path != NULL) {
        return password_read(path, ret_password, reterr);
    }
    const char *text = getenv(MST_ETCD_ENV_PASSWORD);
    if (text == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "user '%.40s' without a password; set password_file=PATH or the "
                         "environment variable " MST_ETCD_ENV_PASSWORD,
                         user);
    }
    *ret_password = mst__strdup(text);
    return *ret_password != NULL ? 0 : mst__fail(reterr, MST_ENOMEM, 0, "password");
}

void mst__secret_free(char *text)
{
    if (text != NULL) {
        explicit_bzero(text, strlen(text));
    }
    mst__free(text);
}
