/* record/record_watch.c - the owner's watching: it keeps the node alive and publishes changes. */
#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/number.h"
#include "base/until.h"
#include "record/record_self.h"

/* Pauses after failures. */
#define AGAIN_US_MAX 1000000

/* With more nodes than this, heartbeats are delayed at random, by up to this much per node. */
#define SPREAD_NODES_FEW 4
#define SPREAD_US_PER_NODE 4000

/* --- the view --- */

/* Name the nodes in record->lost, except those that have finished: they are not lost. */
static void view_name_lost(struct mst__record *record, struct mst_changes *changes)
{
    const struct mst__state *joined = &record->session.joined;
    for (size_t i = 0; i < record->lost.count; i++) {
        const struct mst__peer *member = &joined->members[record->lost.ids[i]];
        if (mst__ending_has_finished(&record->ending, member->rank)) {
            changes->participants_lost--;
            continue;
        }
        char text[MST_BOOTSTRAP_NODE_SIZE];
        mst__node_format(&member->node, text, sizeof text);
        mst__view_lost(&record->head.view, mst_bytes_str(text), member->rank, false);
    }
}

/* How many members had finished and left when we joined their round. */
static int64_t gone(const struct mst__record *record)
{
    int64_t joined_count = (int64_t)record->session.joined.participants.count;
    return record->ending.round == NULL ? 0 : record->ending.world - joined_count;
}

int mst__record_publish(struct mst__record *record,
                        const struct mst_err *err,
                        struct mst__changes *ret_changes)
{
    struct mst__changes changes;
    int rv = mst__session_changes(&record->session, &record->lost, &changes);
    if (rv != 0) {
        return rv;
    }
    if (changes.is_known) {
        struct mst_changes view = {
            .nodes_waiting = (int64_t)changes.waiting_count,
            .participants_lost = (int64_t)changes.lost_count,
            .closed = changes.closed,
            .expelled = changes.expelled,
        };
        view_name_lost(record, &view);
        /* A finished node keeps its place: members do not make room for a spare. */
        int64_t finished = (int64_t)changes.lost_count - view.participants_lost + gone(record);
        int64_t taken = (int64_t)record->session.state.participants.count + finished;
        if (finished > 0 && taken >= record->session.options.settings.nodes_max) {
            view.nodes_waiting = 0;
        }
        mst__ending_note(&record->ending, &view);
        mst__view_publish(&record->head.view, &view);
        mst__view_reach(&record->head.view, NULL);
    } else if (err != NULL) {
        mst__view_reach(&record->head.view, err);
    }
    *ret_changes = changes;
    return 0;
}

/* --- watching --- */

/* Nodes that have joined at the same moment should not send heartbeats at the same moment. */
void mst__record_spread(struct mst__record *record)
{
    int64_t nodes = (int64_t)record->session.state.heartbeats.count;
    int64_t most_us =
        mst__min(nodes * SPREAD_US_PER_NODE, record->dynamic.settings.keep_alive_interval_us / 4);
    record->spread_us = 0;
    if (nodes > SPREAD_NODES_FEW && most_us > 0) {
        record->spread_us = (int64_t)mst__prng_below(&record->prng, (uint64_t)most_us);
    }
}

static void watch_failed(struct mst__record *record,
                         enum mst__operation operation,
                         struct mst_err *err)
{
    char detail[MST_LOG_QUOTE_SIZE];
    mst__log(&record->params->log, MST_LOG_WARN, "rendezvous.watch_failed",
             "node=%s op=%s detail=%s", MST_LOG_TEXT(record->node_text),
             operation == MST_OPERATION_POLL ? "poll" : "keep_alive",
             mst__log_quote(mst_bytes_str(err->msg), detail));
    mst__event(&record->events, "keep_alive", MST_NODE_FAILED, record->session.joined.round, -1,
               "Node '%s' could not reach the record of rendezvous '%s': %s", record->node_text,
               record->params->run_id, err->msg);
    struct mst__changes changes;
    if (mst__record_publish(record, err, &changes) != 0) {
        return; /* no memory: published the next time */
    }
}

/* Choose the next operation and wait until it is due. Returns false if it was woken. */
static bool watch_wait(struct mst__record *record,
                       const struct mst__drive *drive,
                       enum mst__operation *ret_operation)
{
    struct mst__changes changes;
    *ret_operation = MST_OPERATION_KEEP_ALIVE;
    bool is_known = mst__record_publish(record, NULL, &changes) == 0 && changes.is_known;
    if (!is_known) {
        bool is_over = mst__until_pause(drive->wake_fd, mst__clock_us() + record->again_us);
        record->again_us = mst__min(record->again_us * 2, AGAIN_US_MAX);
        return is_over;
    }
    record->again_us = MST_RECORD_AGAIN_US;
    int64_t beat_us = changes.beat_us;
    if (beat_us < INT64_MAX - record->spread_us) {
        beat_us += record->spread_us;
    }
    int64_t until_us = mst__min(beat_us, changes.poll_us);
    int rv = mst__drive_wait(drive, &record->session, until_us);
    if (rv == 0 && mst__clock_us() < changes.poll_us_min) {
        rv = mst__until_pause(drive->wake_fd, mst__min(changes.poll_us_min, until_us))
                 ? 0
                 : MST_ECANCELED;
    }
    if (mst__clock_us() < beat_us) {
        *ret_operation = MST_OPERATION_POLL;
    }
    return rv != MST_ECANCELED;
}

void mst__record_operate(struct mst__record *record, int wake_fd, enum mst__operation operation)
{
    const struct mst__drive drive = {
        .home = &record->home, .events = &record->events, .wake_fd = wake_fd};
    struct mst_err err = {0};
    int64_t deadline_us = mst__clock_us() + record->dynamic.settings.heartbeat_us;
    int rv = mst__drive(&drive, &record->session, operation, deadline_us, NULL, &err);
    if (rv != 0 && rv != MST_ECANCELED) {
        watch_failed(record, operation, &err);
    }
    if (rv == 0 && operation == MST_OPERATION_KEEP_ALIVE) {
        mst__record_spread(record);
    }
}

/* In the owner's thread, so the session is ours. */
void mst__record_watch(void *arg)
{
    struct mst__record *record = arg;
    const struct mst__drive drive = {
        .home = &record->home,
        .events = &record->events,
        .wake_fd = record->head.owner.stop_fd,
    };
    enum mst__operation operation;
    if (watch_wait(record, &drive, &operation)) {
        mst__record_operate(record, drive.wake_fd, operation);
    }
}
