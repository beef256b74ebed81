/* agent/watchdog.c - timers that workers set through a pipe. */
#include "agent/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json_reader.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/siphash.h"

/* --- lines --- */

bool mst__watchdog_read(struct mst_bytes line, struct mst__watchdog_timer *ret_timer)
{
    struct mst_bytes object;
    struct mst_bytes value;
    int64_t pid = 0;
    int64_t signal = 0;
    bool is_fine =
        mst__json_read_value(line, &object) && mst__json_read_member(object, "pid", &value) &&
        mst__json_read_number(value, &pid) && pid > 1 && pid <= INT32_MAX &&
        mst__json_read_member(object, "expiration_time", &value) &&
        mst__json_read_micro(value, &ret_timer->expiry_us) &&
        mst__json_read_member(object, "signal", &value) && mst__json_read_number(value, &signal) &&
        signal < NSIG && mst__json_read_member(object, "scope_id", &value);
    if (is_fine) {
        ret_timer->pid = (pid_t)pid;
        ret_timer->signal = signal > 0 ? (int)signal : 0;
        ret_timer->scope = mst__fingerprint(value); /* only workers choose the names */
    }
    return is_fine;
}

/* --- timers --- */

static void drop(struct mst__watchdog *watchdog, size_t index)
{
    watchdog->timers[index] = watchdog->timers[--watchdog->count];
}

static void set(struct mst__watchdog *watchdog, const struct mst__watchdog_timer *timer)
{
    size_t at = 0;
    while (at < watchdog->count &&
           (watchdog->timers[at].pid != timer->pid || watchdog->timers[at].scope != timer->scope)) {
        at++;
    }
    if (timer->expiry_us < 0) {
        if (at < watchdog->count) {
            drop(watchdog, at);
        }
    } else if (at < MST_WATCHDOG_TIMERS_MAX) {
        watchdog->timers[at] = *timer;
        watchdog->count += at == watchdog->count;
    } /* else: too many, ignored */
}

static void arm(struct mst__watchdog *watchdog);

/* Of the expired timers of a process, the first one with a signal counts and releases all
 * others. */
static void expire(struct mst__watchdog *watchdog, size_t first)
{
    const struct mst__watchdog_timer timer = watchdog->timers[first];
    drop(watchdog, first);
    if (!watchdog->is_own(watchdog->arg, timer.pid)) {
        return; /* the process has ended */
    }
    if (timer.signal > 0) {
        (void)kill(timer.pid, timer.signal); /* the process may have ended */
        for (size_t i = watchdog->count; i > 0; i--) {
            if (watchdog->timers[i - 1].pid == timer.pid) {
                drop(watchdog, i - 1);
            }
        }
    }
    watchdog->expired(watchdog->arg, timer.pid, timer.signal);
}

static void on_timer(uv_timer_t *handle)
{
    struct mst__watchdog *watchdog = handle->data;
    int64_t now_us = mst__clock_wall_us();
    for (;;) {
        size_t first = watchdog->count;
        for (size_t i = 0; i < watchdog->count; i++) {
            bool is_due = watchdog->timers[i].expiry_us <= now_us;
            if (is_due && (first == watchdog->count ||
                           watchdog->timers[i].expiry_us < watchdog->timers[first].expiry_us)) {
                first = i;
            }
        }
        if (first == watchdog->count) {
            break;
        }
        expire(watchdog, first);
    }
    arm(watchdog);
}

static void arm(struct mst__watchdog *watchdog)
{
    int64_t first_us = INT64_MAX;
    for (size_t i = 0; i < watchdog->count; i++) {
        int64_t expiry_us = watchdog->timers[i].expiry_us;
        first_us = mst__min(expiry_us, first_us);
    }
    if (first_us == INT64_MAX) {
        (void)uv_timer_stop(&watchdog->timer); /* cannot fail */
        return;
    }
    int64_t left_us = first_us - mst__clock_wall_us();
    uv_update_time(watchdog->loop);
    (void)uv_timer_start(&watchdog->timer, on_timer,
                         left_us > 0 ? (uint64_t)(left_us + 999) / 1000 : 0, 0);
}

/* --- the pipe --- */

/* Take whole lines. Lines that are not timers, or too long, are skipped. */
static void take_lines(struct mst__watchdog *watchdog)
{
    for (;;) {
        struct mst_bytes input = mst__buf_bytes(&watchdog->input);
        const uint8_t *end = memchr(input.data, '\n', input.size);
        if (end == NULL) {
            break;
        }
        size_t size = (size_t)(end - input.data);
        struct mst__watchdog_timer timer;
        if (mst__watchdog_read(mst_bytes_of(input.data, size), &timer)) {
            set(watchdog, &timer);
        }
        mst__buf_consume(&watchdog->input, size + 1);
    }
    if (mst__buf_size(&watchdog->input) >= MST_WATCHDOG_LINE_SIZE_MAX) {
        mst__buf_clear(&watchdog->input);
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct mst__watchdog *watchdog = poll->data;
    (void)status;
    (void)events; /* read reports errors */
    for (;;) {
        int code;
        uint8_t *room = mst__buf_reserve(&watchdog->input, PIPE_BUF, &code);
        ssize_t size = room == NULL ? 0 : read(watchdog->fd, room, PIPE_BUF);
        if (size <= 0) {
            break;
        }
        mst__buf_commit(&watchdog->input, (size_t)size);
        take_lines(watchdog);
    }
    arm(watchdog);
}

/* --- life --- */

static int make_pipe(struct mst__watchdog *watchdog, const char *path, struct mst_err *reterr)
{
    const char *directory = getenv("TMPDIR");
    struct stat status;
    int size = path != NULL ? snprintf(watchdog->path, sizeof watchdog->path, "%s", path)
                            : snprintf(watchdog->path, sizeof watchdog->path,
                                       "%s/watchdog_timer_%016" PRIx64,
                                       directory == NULL || *directory == '\0' ? "/tmp" : directory,
                                       mst__clock_random_u64());
    if (size < 0 || (size_t)size >= sizeof watchdog->path) {
        return mst__fail(reterr, MST_EINVAL, 0, "the path of the timer file is too long");
    }
    if (lstat(watchdog->path, &status) == 0 && S_ISFIFO(status.st_mode)) {
        (void)unlink(watchdog->path); /* mkfifo reports errors */
    }
    if (mkfifo(watchdog->path, 0600) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "timer file '%.100s'", watchdog->path);
    }
    /* Also for writing: without a writer the pipe would always be readable. */
    watchdog->fd = open(watchdog->path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    return watchdog->fd >= 0
               ? 0
               : mst__fail(reterr, MST_ESYS, errno, "timer file '%.100s'", watchdog->path);
}

int mst__watchdog_open(struct mst__watchdog *watchdog,
                       uv_loop_t *loop,
                       const char *path,
                       mst__watchdog_own_fn is_own,
                       mst__watchdog_expired_fn expired,
                       void *arg,
                       struct mst_err *reterr)
{
    *watchdog = (struct mst__watchdog){.fd = -1, .is_own = is_own, .expired = expired, .arg = arg};
    mst__buf_init(&watchdog->input, MST_WATCHDOG_LINE_SIZE_MAX + PIPE_BUF);
    watchdog->timers = mst__calloc(MST_WATCHDOG_TIMERS_MAX, sizeof *watchdog->timers);
    int rv = watchdog->timers == NULL ? mst__fail(reterr, MST_ENOMEM, 0, "timers")
                                      : make_pipe(watchdog, path, reterr);
    if (rv != 0) {
        mst__watchdog_close(watchdog);
        return rv;
    }
    watchdog->loop = loop;
    (void)uv_timer_init(loop, &watchdog->timer); /* cannot fail */
    watchdog->timer.data = watchdog;
    watchdog->poll.data = watchdog;
    int reason = uv_poll_init(loop, &watchdog->poll, watchdog->fd);
    reason = reason == 0 ? uv_poll_start(&watchdog->poll, UV_READABLE, on_readable) : reason;
    return reason == 0 ? 0 : mst__fail(reterr, MST_ESYS, -reason, "timer file");
}

void mst__watchdog_forget(struct mst__watchdog *watchdog)
{
    if (watchdog->loop != NULL) {
        watchdog->count = 0;
        arm(watchdog);
    }
}

void mst__watchdog_stop(struct mst__watchdog *watchdog)
{
    if (watchdog->loop != NULL) {
        (void)unlink(watchdog->path); /* it may be gone */
        uv_close((uv_handle_t *)&watchdog->poll, NULL);
        uv_close((uv_handle_t *)&watchdog->timer, NULL);
    }
}

void mst__watchdog_close(struct mst__watchdog *watchdog)
{
    if (watchdog->loop != NULL && watchdog->fd >= 0) {
        (void)close(watchdog->fd); /* only read from */
    }
    mst__buf_close(&watchdog->input);
    mst__free(watchdog->timers);
    *watchdog = (struct mst__watchdog){.fd = -1};
}
