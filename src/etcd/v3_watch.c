/* etcd/v3_watch.c - a watch that survives the end of its stream.
 *
 * Each range has its own `next`, the first revision that it has not seen: with several ranges in
 * one stream, the messages of one may run ahead of those of another. A message holds whole
 * revisions of one range. When it is read, its events go to the queue and `next` moves beyond
 * them. So wherever the stream breaks, a new one from `next` misses nothing and repeats nothing.
 * An event in several ranges belongs to the first one.
 *
 *   no stream --> creating --> watching
 *       ^             |            |      end, cut, error, silence: a new stream,
 *       +-------------+------------+      from the next endpoint
 *
 * A stream is silent while nothing happens, but also if the member hangs. So after some silence we
 * request the member's status, and use another member if it does not answer. If another call has
 * left the endpoint of the stream meanwhile, the stream follows at once. A member that is cut
 * off from the others ends the stream by itself, because we ask for that. */
#include <stdio.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/until.h"
#include "etcd/v3_self.h"

/* How long a stream may be silent before its member is checked, and the time for that check and for
 * the beginning of a stream. */
#define SILENCE_MS 15000
#define ANSWER_MS 5000

struct watch_range {
    struct mst_buffer key;
    enum mst__v3_span span;
    bool is_without_puts;
    int64_t next; /* the next revision; 0 = from the beginning of the stream */
    int64_t id;   /* etcd's id in this stream */
};

struct mst__v3_watch {
    struct mst__v3 *v3;
    int64_t silence_ms;
    int64_t answer_ms;
    int64_t compact_revision; /* not 0: the watch has ended */

    struct mst__http_stream *stream;
    struct mst__v3_access access; /* used to open the stream */
    struct mst__v3_trial trial;   /* since the stream last worked */
    size_t created_count;         /* ranges that etcd has confirmed, in order */
    uint64_t member;
    int64_t since_ms;  /* creating: the start; watching: the last sign of life */
    int64_t asking_ms; /* since when the member owes an answer; 0 = no check is under way */
    bool is_failing;   /* no stream since the last one was lost; failure has the reason */
    int64_t again_ms;  /* is_failing: time of the next attempt, by any call; 0 = not decided */
    struct mst_err failure;

    struct mst__v3_event *events; /* the queue */
    size_t event_at;
    size_t event_count;

    size_t range_count;
    struct watch_range ranges[];
};

/* --- making --- */

int mst__v3_watch_new(struct mst__v3 *v3,
                      const struct mst__v3_watched *watched,
                      size_t count,
                      int64_t from,
                      struct mst__v3_watch **ret_watch,
                      struct mst_err *reterr)
{
    if (count == 0 || count > MST_WATCHES_MAX || from < 0) {
        return mst__fail(reterr, MST_EINVAL, 0, "etcd watch: %zu ranges from revision %lld", count,
                         (long long)from);
    }
    struct mst__v3_watch *watch = mst__calloc(1, sizeof *watch + count * sizeof watch->ranges[0]);
    if (watch == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "etcd watch");
    }
    watch->v3 = v3;
    watch->silence_ms = SILENCE_MS;
    watch->answer_ms = ANSWER_MS;
    watch->range_count = count;
    int rv = 0;
    for (size_t i = 0; i < count && rv == 0; i++) {
        struct watch_range *range = &watch->ranges[i];
        range->span = watched[i].span;
        range->is_without_puts = watched[i].is_without_puts;
        range->next = from;
        struct mst_bytes key = watched[i].key;
        range->key.data =
            (uint8_t *)mst__memdup(key.size == 0 ? "" : (const char *)key.data, key.size);
        range->key.size = key.size;
        if (range->key.data == NULL) {
            rv = mst__fail(reterr, MST_ENOMEM, 0, "etcd watch");
        } else if (key.size == 0 && range->span == MST_V3_KEY) {
            rv = mst__fail(reterr, MST_EINVAL, 0, "etcd watch: a key is empty");
        }
    }
    if (rv != 0) {
        mst__v3_watch_close(watch);
        return rv;
    }
    *ret_watch = watch;
    return 0;
}

void mst__v3_watch_close(struct mst__v3_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    mst__http_stream_close(watch->stream);
    mst__v3_access_close(&watch->access);
    for (size_t i = watch->event_at; i < watch->event_count; i++) {
        mst__v3_kv_close(&watch->events[i].kv);
    }
    mst__free(watch->events);
    for (size_t i = 0; i < watch->range_count; i++) {
        mst_buffer_free(&watch->ranges[i].key);
    }
    mst__free(watch);
}

void mst__v3_watch_set_patience(struct mst__v3_watch *watch, int64_t silence_ms, int64_t answer_ms)
{
    watch->silence_ms = silence_ms;
    watch->answer_ms = answer_ms;
}

/* --- the stream --- */

/* Errors that another stream would not cure. */
static bool is_final(int code)
{
    switch (code) {
        case MST_ECONN:
        case MST_ETIMEOUT:
        case MST_ENOTFOUND:
        case MST_EUNKNOWN:
        case MST_ERESOLVE:
            return false;
        default:
            return true;
    }
}

/* The stream is lost, or could not be opened. */
static void watch_lose(struct mst__v3_watch *watch, const struct mst_err *why)
{
    if (watch->stream != NULL) {
        char quoted[MST_LOG_QUOTE_SIZE];
        mst__log(mst__v3_log(watch->v3), MST_LOG_INFO, "etcd.watch_lost", "why=%s",
                 mst__log_quote(mst_bytes_str(why->msg), quoted));
    }
    mst__http_stream_close(watch->stream);
    watch->stream = NULL;
    watch->created_count = 0;
    watch->asking_ms = 0;
    watch->is_failing = true;
    watch->failure = *why;
}

/* The same, and it was the endpoint's failure: it is left. */
static void watch_leave(struct mst__v3_watch *watch, const struct mst_err *why)
{
    mst__http_stream_leave(watch->stream, why->msg);
    watch_lose(watch, why);
}

/* One body with a request for each range, from its next revision. */
static int watch_write(const struct mst__v3_watch *watch,
                       struct mst__buf *body,
                       struct mst_err *reterr)
{
    int rv = 0;
    for (size_t i = 0; i < watch->range_count && rv == 0; i++) {
        const struct watch_range *range = &watch->ranges[i];
        struct mst__v3_watched watched = {
            .key = mst_bytes_of(range->key.data, range->key.size),
            .span = range->span,
            .is_without_puts = range->is_without_puts,
        };
        rv = mst__v3_write_watch(body, &watched, range->next);
    }
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "etcd watch: the request cannot be made");
}

/* Open a stream; etcd confirms the ranges in it. */
static int watch_open(struct mst__v3_watch *watch, struct mst__until until, struct mst_err *reterr)
{
    int64_t now_ms = mst__clock_ms();
    until = mst__until_sooner(until, now_ms + watch->answer_ms);
    struct mst__buf body;
    mst__buf_init(&body, MST_V3_REQUEST_SIZE_MAX);
    int rv = watch_write(watch, &body, reterr);
    if (rv == 0) {
        rv = mst__v3_access(watch->v3, "/watch", true, until, &watch->access, reterr);
    }
    if (rv == 0) {
        struct mst__http_request request = {
            .method = MST_HTTP_POST,
            .path = watch->access.path,
            .body = mst__buf_bytes(&body),
            .content_type = "application/json",
            .token = watch->access.token,
            .needs_leader = true,
            .is_watch = true,
            .is_repeatable = true,
        };
        rv =
            mst__http_stream_open(mst__v3_http(watch->v3), &request, until, &watch->stream, reterr);
    }
    mst__buf_close(&body);
    watch->since_ms = now_ms;
    return rv == 0 ? 0 : mst__err_wrap(reterr, rv, "etcd watch");
}

/* Recover from an error of etcd, and begin a new stream. */
static int watch_recover(struct mst__v3_watch *watch,
                         const struct mst__v3_error *error,
                         struct mst__until until,
                         struct mst_err *reterr)
{
    struct mst_err why;
    mst__err_fill(&why, MST_ECONN, 0, "etcd watch: '%.60s': %.100s",
                  mst__http_where(mst__v3_http(watch->v3)), error->message);
    if (error->fate == MST_V3_TRANSIENT) {
        /* The pause comes with the next attempt, so it does not depend on this deadline. */
        watch_leave(watch, &why);
        return 0;
    }
    watch_lose(watch, &why);
    int rv = mst__v3_recover(watch->v3, &watch->access, error, false, until, &watch->trial, reterr);
    return rv == 0 ? 0 : mst__err_wrap(reterr, rv, "etcd watch");
}

/* --- messages --- */

/* Whether @range reports this event. */
static bool range_takes(const struct watch_range *range, const struct mst__v3_event *event)
{
    struct mst_bytes key = mst_bytes_of(event->kv.key.data, event->kv.key.size);
    struct mst_bytes own = mst_bytes_of(range->key.data, range->key.size);
    bool is_inside =
        range->span == MST_V3_KEY ? mst__bytes_equal(key, own) : mst__bytes_start_with(key, own);
    return is_inside && (event->is_delete || !range->is_without_puts);
}

/* Whether the event is new, and in no earlier range. */
static bool watch_takes(const struct mst__v3_watch *watch,
                        size_t at,
                        const struct mst__v3_event *event)
{
    if (event->kv.mod_revision < watch->ranges[at].next ||
        !range_takes(&watch->ranges[at], event)) {
        return false;
    }
    for (size_t i = 0; i < at; i++) {
        if (range_takes(&watch->ranges[i], event)) {
            return false;
        }
    }
    return true;
}

/* Move the events of @line to the queue, which is empty, and advance the range. */
static int watch_take(struct mst__v3_watch *watch,
                      size_t at,
                      struct mst__v3_line *line,
                      struct mst_err *reterr)
{
    MST_ASSERT(watch->event_at == watch->event_count);
    struct mst__v3_event *events = mst__calloc(line->event_count, sizeof *events);
    if (events == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "etcd watch: %zu events", line->event_count);
    }
    size_t count = 0;
    int64_t next = watch->ranges[at].next;
    for (size_t i = 0; i < line->event_count; i++) {
        struct mst__v3_event *event = &line->events[i];
        int64_t behind =
            event->kv.mod_revision == INT64_MAX ? INT64_MAX : event->kv.mod_revision + 1;
        if (watch_takes(watch, at, event)) {
            events[count++] = *event;
            *event = (struct mst__v3_event){0};
        }
        next = mst__max(behind, next);
    }
    watch->ranges[at].next = next;
    mst__free(watch->events);
    watch->events = events;
    watch->event_at = 0;
    watch->event_count = count;
    return 0;
}

/* The range with etcd's @id; range_count if there is none. */
static size_t watch_find(const struct mst__v3_watch *watch, int64_t id)
{
    size_t at = 0;
    while (at < watch->created_count && watch->ranges[at].id != id) {
        at++;
    }
    return at < watch->created_count ? at : watch->range_count;
}

/* etcd has confirmed the next range; the confirmations come in the order of the requests. */
static int watch_created(struct mst__v3_watch *watch,
                         const struct mst__v3_line *line,
                         struct mst_err *reterr)
{
    if (watch->created_count == watch->range_count) {
        return mst__fail(reterr, MST_EPROTO, 0, "etcd watch: more ranges than requested");
    }
    struct watch_range *range = &watch->ranges[watch->created_count++];
    range->id = line->watch_id;
    if (range->next == 0) {
        range->next = line->revision + 1;
    }
    watch->member = line->member;
    if (watch->created_count == watch->range_count) {
        watch->is_failing = false;
        watch->trial = (struct mst__v3_trial){0};
    }
    return 0;
}

static int watch_line(struct mst__v3_watch *watch,
                      struct mst__v3_line *line,
                      struct mst__until until,
                      struct mst_err *reterr)
{
    size_t at = watch_find(watch, line->watch_id);
    switch (line->kind) {
        case MST_V3_LINE_CREATED:
            return watch_created(watch, line, reterr);
        case MST_V3_LINE_EVENTS:
            if (at == watch->range_count) {
                return mst__fail(reterr, MST_EPROTO, 0, "etcd watch: events of an unknown range");
            }
            return watch_take(watch, at, line, reterr);
        case MST_V3_LINE_PROGRESS:
            if (at < watch->range_count && line->revision >= watch->ranges[at].next) {
                watch->ranges[at].next = line->revision + 1;
            }
            return 0;
        case MST_V3_LINE_CANCELED:
            if (line->compact_revision > 0) {
                watch->compact_revision = line->compact_revision;
                return 0;
            }
            return watch_recover(watch, &line->error, until, reterr);
        case MST_V3_LINE_ERROR:
            break;
    }
    return watch_recover(watch, &line->error, until, reterr);
}

/* --- reading --- */

/* A stream that is refused at its beginning: its text is the error, whatever the status. */
static int watch_refused(struct mst__v3_watch *watch,
                         struct mst_bytes text,
                         struct mst__until until,
                         struct mst_err *reterr)
{
    struct mst__v3_error error;
    int status = mst__http_stream_status(watch->stream);
    (void)mst__v3_read_error(status, text, &error); /* with this status it is one */
    return watch_recover(watch, &error, until, reterr);
}

/* The stream was silent for long: check its member. 0 in any case; if the member does not answer,
 * or is not the current one any more, the stream is lost. */
static int watch_check(struct mst__v3_watch *watch, struct mst__until until, struct mst_err *reterr)
{
    int64_t now_ms = mst__clock_ms();
    if (watch->asking_ms == 0) {
        watch->asking_ms = now_ms;
    }
    int64_t until_ms = watch->asking_ms + watch->answer_ms;
    bool is_cut_short = until.deadline_ms < until_ms;
    struct mst_err why;
    struct mst__v3_status status;
    int rv = mst__v3_status(watch->v3, mst__until_sooner(until, until_ms), &status, &why);
    if (rv == MST_ETIMEOUT && is_cut_short) {
        return 0; /* the next call continues the check */
    }
    if (rv == MST_ECANCELED || rv == MST_ENOMEM) {
        return mst__fail(reterr, rv, 0, "etcd watch: %s", why.msg);
    }
    watch->asking_ms = 0;
    watch->since_ms = now_ms;
    if (rv == 0 && status.member == watch->member) {
        return 0;
    }
    if (rv == 0) {
        mst__err_fill(&why, MST_ECONN, 0, "etcd watch: the client uses another member now");
        watch_lose(watch, &why);
    } else {
        watch_leave(watch, &why);
    }
    return 0;
}

/* The deadline has passed. */
static int watch_fail_late(const struct mst__v3_watch *watch, struct mst_err *reterr)
{
    if (watch->is_failing) {
        return mst__fail(reterr, MST_ECONN, 0, "no stream until the deadline: %.160s",
                         watch->failure.msg);
    }
    return mst__fail(reterr, MST_ETIMEOUT, 0, "etcd watch: no event from '%.60s' in time",
                     mst__http_where(mst__v3_http(watch->v3)));
}

/* Pause between two attempts, possibly longer than a single call may wait. */
static int watch_pause(struct mst__v3_watch *watch, struct mst__until until, struct mst_err *reterr)
{
    if (watch->again_ms == 0) {
        watch->again_ms = mst__v3_pause_until_ms(&watch->trial);
    }
    int64_t until_ms = mst__min(watch->again_ms, until.deadline_ms);
    if (!mst__until_pause(until.wake_fd, until_ms * 1000)) {
        return mst__fail(reterr, MST_ECANCELED, 0, "etcd watch: cancelled");
    }
    if (until_ms < watch->again_ms) {
        return watch_fail_late(watch, reterr);
    }
    watch->again_ms = 0;
    return 0;
}

/* Open a stream if there is none. 0 also if there is none yet but time left. */
static int watch_connect(struct mst__v3_watch *watch,
                         struct mst__until until,
                         struct mst_err *reterr)
{
    int paused = watch->is_failing ? watch_pause(watch, until, reterr) : 0;
    if (paused != 0) {
        return paused;
    }
    struct mst_err why;
    int rv = watch_open(watch, until, &why);
    if (rv != 0 && is_final(rv)) {
        return mst__fail(reterr, rv, 0, "%s", why.msg);
    }
    if (rv == MST_ETIMEOUT && mst__until_is_over(until)) {
        /* It was the caller's deadline, which does not concern the member. */
        return watch_fail_late(watch, reterr);
    }
    if (rv != 0) {
        watch_lose(watch, &why);
    }
    return 0;
}

/* When the wait for a line of this stream ends. */
static int64_t watch_patience_ms(const struct mst__v3_watch *watch)
{
    bool is_creating = watch->created_count < watch->range_count;
    return watch->since_ms + (is_creating ? watch->answer_ms : watch->silence_ms);
}

/* No line arrived in time: the time of the caller, or of the stream. */
static int watch_silent(struct mst__v3_watch *watch,
                        struct mst__until until,
                        struct mst_err *reterr)
{
    if (mst__clock_ms() < watch_patience_ms(watch)) {
        return watch_fail_late(watch, reterr);
    }
    if (watch->created_count < watch->range_count) {
        struct mst_err why;
        mst__err_fill(&why, MST_ECONN, 0, "etcd watch: '%.60s' does not begin",
                      mst__http_where(mst__v3_http(watch->v3)));
        watch_leave(watch, &why);
        return 0;
    }
    int rv = watch_check(watch, until, reterr);
    if (rv == 0 && mst__until_is_over(until)) {
        rv = watch_fail_late(watch, reterr);
    }
    return rv;
}

/* A line has arrived. */
static int watch_read(struct mst__v3_watch *watch,
                      struct mst_bytes text,
                      struct mst__until until,
                      struct mst_err *reterr)
{
    watch->since_ms = mst__clock_ms();
    watch->asking_ms = 0;
    if (mst__http_stream_status(watch->stream) != 200) {
        return watch_refused(watch, text, until, reterr);
    }
    struct mst_err why;
    struct mst__v3_line line;
    int rv = mst__v3_read_line(text, &line, &why);
    rv = rv != 0 ? rv : watch_line(watch, &line, until, &why);
    mst__v3_line_close(&line);
    if (rv != 0) {
        /* The line is lost: a new stream sends it again. */
        watch_lose(watch, &why);
        return mst__fail(reterr, rv, 0, "%s", why.msg);
    }
    return 0;
}

/* Wait for one line of the stream, or for its end, and process it. */
static int watch_step(struct mst__v3_watch *watch, struct mst__until until, struct mst_err *reterr)
{
    struct mst__until patience = mst__until_sooner(until, watch_patience_ms(watch));
    struct mst_bytes text;
    struct mst_err why;
    if (mst__http_stream_is_left(watch->stream)) {
        mst__err_fill(&why, MST_ECONN, 0, "etcd watch: its endpoint does not answer other calls");
        watch_lose(watch, &why);
        return 0;
    }
    int rv = mst__http_stream_read(watch->stream, patience, &text, &why);
    switch (rv) {
        case 0:
            return watch_read(watch, text, until, reterr);
        case MST_ETIMEOUT:
            return watch_silent(watch, until, reterr);
        case MST_ECANCELED:
            break;
        case MST_ENOTFOUND:
        case MST_ECONN:
            if (mst__http_stream_status(watch->stream) != 200) {
                return watch_refused(watch, mst_bytes_of("", 0), until, reterr);
            }
            watch_leave(watch, &why);
            return 0;
        default:
            watch_lose(watch, &why);
            break;
    }
    return mst__fail(reterr, rv, 0, "etcd watch: %s", why.msg);
}

/* The next revision of the queue. */
static int watch_hand_out(struct mst__v3_watch *watch,
                          struct mst__v3_events *ret_events,
                          struct mst_err *reterr)
{
    struct mst__v3_event *from = &watch->events[watch->event_at];
    int64_t revision = from->kv.mod_revision;
    size_t count = 1;
    while (watch->event_at + count < watch->event_count &&
           from[count].kv.mod_revision == revision) {
        count++;
    }
    struct mst__v3_event *items = mst__calloc(count, sizeof *items);
    if (items == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "etcd watch: %zu events", count);
    }
    memcpy(items, from, count * sizeof *items);
    watch->event_at += count;
    *ret_events = (struct mst__v3_events){.items = items, .count = count, .revision = revision};
    return 0;
}

int mst__v3_watch_next(struct mst__v3_watch *watch,
                       struct mst__until until,
                       struct mst__v3_events *ret_events,
                       struct mst_err *reterr)
{
    while (watch->event_at == watch->event_count) {
        if (watch->compact_revision != 0) {
            return mst__fail(reterr, MST_ESTATE, 0,
                             "etcd watch: events before revision %lld were compacted; read the "
                             "keys and watch from there",
                             (long long)watch->compact_revision);
        }
        int rv = watch->stream == NULL ? watch_connect(watch, until, reterr)
                                       : watch_step(watch, until, reterr);
        if (rv != 0) {
            return rv;
        }
    }
    return watch_hand_out(watch, ret_events, reterr);
}
