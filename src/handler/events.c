/* handler/events.c - events to the callback, and the callback that writes JSON lines. */
#include "handler/events.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/number.h"
#include "base/unicode.h"

#define LINE_SIZE_MAX MST_KIB(64)

void mst__event(const struct mst__events *events,
                const char *name,
                enum mst_node_state state,
                int64_t round,
                int64_t rank,
                const char *format,
                ...)
{
    if (events->fn == NULL) {
        return;
    }
    char message[MST_EVENT_MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args); /* cut off when long */
    va_end(args);
    struct mst_event event = {
        .size = sizeof event,
        .name = name,
        .run_id = events->run_id,
        .node = events->node,
        .message = message,
        .state = state,
        .round = round,
        .rank = rank,
        .time_us = mst__clock_wall_us(),
    };
    events->fn(events->arg, &event);
}

/* --- what all dynamic handlers tell --- */

void mst__event_joining(const struct mst__events *events)
{
    mst__event(events, "next_rendezvous", MST_NODE_RUNNING, -1, -1,
               "Node '%s' wants to join the next round of rendezvous '%s'.", events->node,
               events->run_id);
}

void mst__event_joined(const struct mst__events *events, const struct mst_rendezvous *round)
{
    mst__event(events, "next_rendezvous", MST_NODE_RUNNING, round->round, round->rank,
               "Node '%s' has joined round %" PRId64 " of rendezvous '%s' as rank %" PRId64
               " of %" PRId64 ".",
               events->node, round->round, events->run_id, round->rank, round->world_size);
}

void mst__event_closed(const struct mst__events *events, const char *name)
{
    mst__event(events, name, MST_NODE_SUCCEEDED, -1, -1, "Node '%s' has closed rendezvous '%s'.",
               events->node, events->run_id);
}

int mst__event_failed(const struct mst__events *events,
                      const char *name,
                      int rv,
                      struct mst_err *err,
                      struct mst_err *reterr)
{
    (void)mst__err_wrap(err, rv, "rendezvous '%.40s'", events->run_id);
    mst__event(events, name, MST_NODE_FAILED, -1, -1, "%s", err->msg);
    return mst__err_pass(reterr, rv, err);
}

/* --- JSON lines --- */

static void put(struct mst__buf *line, const char *text, int *rv)
{
    if (*rv == 0) {
        *rv = mst__buf_append(line, mst_bytes_str(text));
    }
}

/* One character of a JSON string. @bytes is how it came; empty when it is malformed. */
static void put_char(struct mst__buf *line, struct mst_bytes bytes, uint32_t c, int *rv)
{
    char escape[8];
    if (bytes.size == 0) {
        put(line, "\\ufffd", rv);
    } else if (c == '"' || c == '\\') {
        (void)snprintf(escape, sizeof escape, "\\%c", (char)c); /* fits */
        put(line, escape, rv);
    } else if (!mst__unicode_is_shown(c)) {
        (void)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c & 0xffff); /* all there is */
        put(line, escape, rv);
    } else if (*rv == 0) {
        *rv = mst__buf_append(line, bytes);
    }
}

/* `"name":"text",` */
static void put_text(struct mst__buf *line, const char *name, const char *text, int *rv)
{
    put(line, "\"", rv);
    put(line, name, rv);
    put(line, "\":\"", rv);
    struct mst_bytes rest = mst_bytes_str(text == NULL ? "" : text);
    while (rest.size > 0) {
        uint32_t c = 0;
        size_t size = mst__unicode_next(rest, &c);
        put_char(line, mst_bytes_of(rest.data, size), c, rv);
        size = size == 0 ? 1 : size;
        rest = mst_bytes_of(rest.data + size, rest.size - size);
    }
    put(line, "\",", rv);
}

/* `"name":number,`; null for a negative one where that means that there is none. */
static void put_number(struct mst__buf *line,
                       const char *name,
                       int64_t number,
                       bool may_be_none,
                       int *rv)
{
    char text[MST_NUMBER_SIZE + 1];
    text[mst__number_format(number, text)] = '\0';
    put(line, "\"", rv);
    put(line, name, rv);
    put(line, "\":", rv);
    put(line, may_be_none && number < 0 ? "null" : text, rv);
    put(line, ",", rv);
}

static const char *state_name(enum mst_node_state state)
{
    switch (state) {
        case MST_NODE_INIT:
            return "INIT";
        case MST_NODE_RUNNING:
            return "RUNNING";
        case MST_NODE_SUCCEEDED:
            return "SUCCEEDED";
        case MST_NODE_FAILED:
            break;
    }
    return "FAILED";
}

void mst_event_json(void *arg, const struct mst_event *event)
{
    const int *fd = arg;
    struct mst__buf line;
    mst__buf_init(&line, LINE_SIZE_MAX);
    int rv = 0;
    put(&line, "{", &rv);
    put_text(&line, "name", event->name, &rv);
    put_text(&line, "run_id", event->run_id, &rv);
    put_text(&line, "node", event->node, &rv);
    put_text(&line, "message", event->message, &rv);
    put_text(&line, "node_state", state_name(event->state), &rv);
    put_number(&line, "round", event->round, true, &rv);
    put_number(&line, "rank", event->rank, true, &rv);
    put_number(&line, "time_us", event->time_us, false, &rv);
    if (rv == 0) {
        mst__buf_truncate(&line, mst__buf_size(&line) - 1); /* the last comma */
    }
    put(&line, "}\n", &rv);
    struct mst_bytes bytes = mst__buf_bytes(&line);
    ssize_t written = 0;
    do {
        written = rv == 0 ? write(*fd, bytes.data, bytes.size) : 0;
    } while (written < 0 && errno == EINTR);
    /* A sink that is full or gone, or no memory for the line: events are for those who watch, and
     * the rendezvous goes on without them. */
    mst__buf_close(&line);
}
