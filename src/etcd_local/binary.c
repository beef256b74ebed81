/* etcd_local/binary.c - finds the etcd program of this machine and its version. */
#include "etcd_local/binary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/number.h"
#include "etcd_local/process.h"

#define BINARY_VARIABLE "TORCHELASTIC_ETCD_BINARY_PATH"

/* --- finding --- */

static bool is_program(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* Set the path to @dir/@name if that is a program. */
static bool try_in(struct mst__binary *binary, struct mst_bytes dir, const char *name)
{
    int length = snprintf(binary->path, sizeof binary->path, "%.*s/%s", (int)dir.size,
                          (const char *)dir.data, name);
    return length > 0 && (size_t)length < sizeof binary->path && is_program(binary->path);
}

static bool try_path_variable(struct mst__binary *binary, const char *name)
{
    const char *at = getenv("PATH");
    while (at != NULL) {
        const char *colon = strchr(at, ':');
        size_t length = colon == NULL ? strlen(at) : (size_t)(colon - at);
        /* An empty entry is the current directory. */
        struct mst_bytes dir = length == 0 ? mst_bytes_str(".") : mst_bytes_of(at, length);
        if (try_in(binary, dir, name)) {
            return true;
        }
        at = colon == NULL ? NULL : colon + 1;
    }
    return false;
}

static bool try_beside_us(struct mst__binary *binary)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self);
    while (length > 0 && self[length - 1] != '/') {
        length--;
    }
    return length > 1 && try_in(binary, mst_bytes_of(self, (size_t)length - 1), "etcd");
}

static bool try_as_is(struct mst__binary *binary, const char *path)
{
    int length = snprintf(binary->path, sizeof binary->path, "%s", path);
    return length > 0 && (size_t)length < sizeof binary->path && is_program(binary->path);
}

int mst__binary_find(const char *given,
                     const struct mst_log *log,
                     struct mst__binary *ret_binary,
                     struct mst_err *reterr)
{
    *ret_binary = (struct mst__binary){0};
    if (given != NULL) {
        bool has_slash = strchr(given, '/') != NULL;
        if (has_slash ? try_as_is(ret_binary, given) : try_path_variable(ret_binary, given)) {
            return 0;
        }
        return mst__fail(reterr, MST_ENOTFOUND, 0, "etcd: there is no program '%.100s'%s", given,
                         has_slash ? "" : " in $PATH");
    }
    const char *variable = getenv(BINARY_VARIABLE);
    if (variable != NULL && *variable != '\0') {
        if (try_as_is(ret_binary, variable)) {
            return 0;
        }
        char quoted[MST_LOG_QUOTE_SIZE];
        mst__log(log, MST_LOG_WARN, "etcd.variable",
                 "name=" BINARY_VARIABLE " value=%s why=\"no such program, looking elsewhere\"",
                 mst__log_quote(mst_bytes_str(variable), quoted));
    }
    if (try_beside_us(ret_binary) || try_path_variable(ret_binary, "etcd")) {
        return 0;
    }
    return mst__fail(
        reterr, MST_ENOTFOUND, 0,
        "no etcd: not in $" BINARY_VARIABLE
        ", not beside this program, not in $PATH; install etcd-server, or give its path");
}

/* --- its version --- */

/* "etcd Version: 3.4.23\nGit SHA: …" */
static bool parse_version(struct mst__binary *binary, const char *text)
{
    static const char lead[] = "etcd Version: ";
    const char *at = strstr(text, lead);
    if (at == NULL) {
        return false;
    }
    at += sizeof lead - 1;
    int length = (int)strcspn(at, " \r\n");
    (void)snprintf(binary->version, sizeof binary->version, "%.*s", length, at);
    size_t major = strspn(binary->version, "0123456789");
    if (binary->version[major] != '.') {
        return false;
    }
    const char *rest = binary->version + major + 1;
    return mst__number_parse(mst_bytes_of(binary->version, major), 0, INT32_MAX, &binary->major) &&
           mst__number_parse(mst_bytes_of(rest, strspn(rest, "0123456789")), 0, INT32_MAX,
                             &binary->minor);
}

static int read_version(struct mst__binary *binary,
                        struct mst__process *process,
                        struct mst__until until,
                        struct mst_err *reterr)
{
    int rv = mst__process_wait(process, until);
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "etcd: '%.100s --version' %s", binary->path,
                         rv == MST_ETIMEOUT ? "does not end" : "was interrupted");
    }
    char tail[MST_PROCESS_TAIL_SIZE + 1];
    char words[60];
    char how[MST_PROCESS_END_SIZE];
    struct mst__process_end end = {0};
    bool has_ended = mst__process_has_ended(process, &end);
    (void)mst__process_tail(process, tail);
    bool is_good = has_ended && end.is_known && !end.is_signal && end.number == 0;
    if ((is_good || !end.is_known) && parse_version(binary, tail)) {
        return 0;
    }
    return mst__fail(
        reterr, MST_ECONN, 0, "'%.60s' is not an etcd: with --version it %s; it printed: %s",
        binary->path, mst__process_describe(&end, how),
        tail[0] == '\0' ? "nothing" : mst__process_last_words(tail, words, sizeof words));
}

int mst__binary_probe(struct mst__binary *binary, struct mst__until until, struct mst_err *reterr)
{
    char option[] = "--version";
    char *argv[] = {binary->path, option, NULL};
    struct mst__process *process = NULL;
    int rv = mst__process_start(argv, NULL, -1, &process, reterr);
    if (rv != 0) {
        return rv;
    }
    rv = read_version(binary, process, until, reterr);
    mst__process_free(process);
    return rv;
}

bool mst__binary_is_from(const struct mst__binary *binary, int64_t major, int64_t minor)
{
    return binary->major > major || (binary->major == major && binary->minor >= minor);
}
