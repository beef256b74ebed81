/* handler/events.c - events to the callback, and the callback that writes JSON lines. */
#include "handler/events.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json_writer.h"
#include "base/limits.h"
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
    char given[MST_EVENT_MESSAGE_SIZE];
    char message[MST_EVENT_MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(given, sizeof given, format, args); /* cut off when long */
    va_end(args);
    mst__unicode_show(mst_bytes_str(given), message, sizeof message); /* names of others */
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

/* Negative = no number: nothing is written. */
static void put_number(struct mst__json_writer *line, const char *name, int64_t number)
{
    if (number < 0) {
        mst__json_put_null(line, name);
    } else {
        mst__json_put_number(line, name, number);
    }
}

static void put_text(struct mst__json_writer *line, const char *name, const char *text)
{
    mst__json_put_text(line, name, mst_bytes_str(text == NULL ? "" : text));
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
    if (fd == NULL || event == NULL) {
        return;
    }
    struct mst__json_writer line;
    mst__json_writer_init(&line, LINE_SIZE_MAX);
    mst__json_put_begin(&line, NULL, '{');
    put_text(&line, "name", event->name);
    put_text(&line, "run_id", event->run_id);
    put_text(&line, "node", event->node);
    put_text(&line, "message", event->message);
    put_text(&line, "node_state", state_name(event->state));
    put_number(&line, "round", event->round);
    put_number(&line, "rank", event->rank);
    mst__json_put_number(&line, "time_us", event->time_us);
    mst__json_put_end(&line, '}');
    int rv = line.code != 0 ? line.code : mst__buf_append_u8(&line.text, '\n');
    struct mst_bytes bytes = mst__buf_bytes(&line.text);
    ssize_t written = 0;
    do {
        written = rv == 0 ? write(*fd, bytes.data, bytes.size) : 0;
    } while (written < 0 && errno == EINTR);
    /* Errors are ignored, of the sink and of memory: the rendezvous goes on without this event. */
    mst__json_writer_close(&line);
}
