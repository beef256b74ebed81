/* cli/child.c - starts and stops a command. */
#include "cli/child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/exec.h"
#include "base/mem.h"

/* --- its environment --- */

static void environment_free(char **environment, size_t own_count)
{
    for (size_t i = 0; environment != NULL && i < own_count; i++) {
        mst__free(environment[i]);
    }
    mst__free(environment);
}

static bool is_replaced(const char *entry, const struct mst__variable *variables, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(variables[i].name);
        if (strncmp(entry, variables[i].name, length) == 0 && entry[length] == '=') {
            return true;
        }
    }
    return false;
}

/* Returns the environment of this process with @variables in front. The caller frees it and its
 * first @count entries with environment_free. */
static char **environment_new(const struct mst__variable *variables, size_t count)
{
    size_t inherited = 0;
    while (environ[inherited] != NULL) {
        inherited++;
    }
    char **environment = mst__calloc(count + inherited + 1, sizeof *environment);
    size_t at = 0;
    for (; at < count && environment != NULL; at++) {
        size_t size = strlen(variables[at].name) + strlen(variables[at].value) + 2;
        environment[at] = mst__malloc(size);
        if (environment[at] == NULL) {
            environment_free(environment, at);
            return NULL;
        }
        (void)snprintf(environment[at], size, "%s=%s", variables[at].name, variables[at].value);
    }
    for (size_t i = 0; i < inherited && environment != NULL; i++) {
        if (!is_replaced(environ[i], variables, count)) {
            environment[at++] = environ[i];
        }
    }
    return environment;
}

/* --- starting --- */

/* The program of the child. Its environment is made before the fork, because the child makes only
 * system calls. */
struct image {
    char *const *argv;
    char **environment;
};

static void image_exec(const void *arg, pid_t parent, const sigset_t *mask)
{
    const struct image *image = arg;
    (void)setpgid(0, 0); /* cannot fail in a new process */
    if (mst__exec_die_with(parent)) {
        mst__exec_allow_signals(mask);
        (void)execvpe(image->argv[0], image->argv, image->environment);
    }
}

int mst__child_start(char *const *argv,
                     const struct mst__variable *variables,
                     size_t variables_count,
                     struct mst__child *ret_child,
                     struct mst_err *reterr)
{
    char **environment = environment_new(variables, variables_count);
    if (environment == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "environment of '%.100s'", argv[0]);
    }
    const struct image image = {.argv = argv, .environment = environment};
    pid_t pid = 0;
    int rv = mst__exec_start(image_exec, &image, argv[0], &pid, reterr);
    if (rv == 0) {
        *ret_child = (struct mst__child){.pid = pid};
    }
    environment_free(environment, variables_count);
    return rv;
}

/* --- ending --- */

bool mst__child_ended(struct mst__child *child)
{
    MST_ASSERT(child->pid > 0);
    int status = 0;
    pid_t pid;
    do {
        pid = waitpid(child->pid, &status, WNOHANG);
    } while (pid < 0 && errno == EINTR);
    if (pid != child->pid) {
        return false;
    }
    child->pid = 0;
    child->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}

void mst__child_stop(struct mst__child *child, int64_t grace_ms, int wake_fd)
{
    pid_t group = child->pid;
    if (group == 0) {
        return;
    }
    (void)kill(-group, SIGTERM); /* cannot fail: the child is not reaped yet */
    int64_t deadline_ms = mst__clock_deadline_ms(grace_ms);
    bool killed = false;
    while (!mst__child_ended(child)) {
        int64_t left_ms = mst__clock_left_ms(deadline_ms);
        if (left_ms <= 0 && !killed) {
            (void)kill(-group, SIGKILL);
            killed = true;
        }
        struct pollfd wake = {.fd = wake_fd, .events = POLLIN};
        (void)poll(&wake, 1, killed ? -1 : left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
        uint64_t count;
        ssize_t size = read(wake_fd, &count, sizeof count);
        (void)size; /* nothing to read if the time is over */
    }
    (void)kill(-group, SIGKILL); /* processes that the child left behind */
}
