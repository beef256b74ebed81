/* agent/events.c - writes events as lines of JSON. */
#include "agent/events.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/number.h"

int mst__events_open(struct mst__events *events,
                     const char *target,
                     const char *host,
                     const char *run_id,
                     struct mst_err *reterr)
{
    *events = (struct mst__events){.fd = -1, .host = host, .run_id = run_id};
    mst__json_writer_init(&events->line, MST_EVENT_SIZE_MAX);
    if (target == NULL) {
        return 0;
    }
    if (strncmp(target, "fd:", 3) == 0) {
        int64_t number = 0;
        if (!mst__number_parse(mst_bytes_str(target + 3), 0, INT32_MAX, &number) ||
            fcntl((int)number, F_GETFD) < 0) {
            return mst__fail(reterr, MST_EINVAL, 0, "--events: '%.60s' is not an open descriptor",
                             target);
        }
        events->fd = (int)number;
        if (number > STDERR_FILENO) {
            (void)fcntl(events->fd, F_SETFD, FD_CLOEXEC); /* cannot fail: it is open */
        }
        return 0;
    }
    events->fd = open(target, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
    events->is_own = true;
    return events->fd >= 0 ? 0 : mst__fail(reterr, MST_ESYS, errno, "open '%.150s'", target);
}

void mst__events_close(struct mst__events *events)
{
    if (events->is_own && events->fd >= 0) {
        (void)close(events->fd); /* each line was written or counted as dropped */
    }
    mst__json_writer_close(&events->line);
    events->fd = -1;
}

struct mst__json_writer *mst__events_begin(struct mst__events *events, const char *event)
{
    if (events->fd < 0) {
        return NULL;
    }
    struct mst__json_writer *line = &events->line;
    mst__buf_clear(&line->text);
    line->code = 0;
    line->has_value = false;
    mst__json_put_begin(line, NULL, '{');
    mst__json_put_micro(line, "time", mst__clock_wall_us());
    mst__json_put_text(line, "event", mst_bytes_str(event));
    mst__json_put_text(line, "host", mst_bytes_str(events->host));
    mst__json_put_number(line, "pid", getpid());
    mst__json_put_text(line, "run_id", mst_bytes_str(events->run_id));
    if (events->dropped_count > 0) {
        mst__json_put_number(line, "dropped", (int64_t)events->dropped_count);
    }
    return line;
}

void mst__events_end(struct mst__events *events)
{
    if (events->fd < 0) {
        return;
    }
    struct mst__json_writer *line = &events->line;
    mst__json_put_end(line, '}');
    int rv = line->code != 0 ? line->code : mst__buf_append_u8(&line->text, '\n');
    struct mst_bytes text = mst__buf_bytes(&line->text);
    ssize_t size = -1;
    do {
        size = rv != 0 ? -1 : write(events->fd, text.data, text.size);
    } while (rv == 0 && size < 0 && errno == EINTR);
    bool is_written = size >= 0 && (size_t)size == text.size;
    events->dropped_count = is_written ? 0 : events->dropped_count + 1;
}
