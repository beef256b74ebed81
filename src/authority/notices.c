/* authority/notices.c - news for the application of a node. */
#include "authority/notices.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "handler/work.h"

void mst__notices_begin_round(struct mst__notices *notices)
{
    notices->is_waited_for = false;
    notices->left = 0;
    notices->changes = (struct mst_changes){.size = sizeof notices->changes};
    mst__view_publish(notices->view, &notices->changes);
}

static void watch_event(struct mst__notices *notices, const char *name, const char *sentence)
{
    const struct mst__claim *claim = &notices->member->claim;
    mst__event(notices->events, name, MST_NODE_RUNNING, claim->round, (int64_t)claim->rank,
               "Node '%s', round %" PRId64 " of rendezvous '%s': %s", notices->events->node,
               claim->round, notices->params->run_id, sentence);
}

/* --- what has changed --- */

static void take_lost(struct mst__notices *notices, const struct mst__job_lost *lost)
{
    char names[180] = "";
    for (uint32_t i = 0; i < lost->named; i++) {
        struct mst_bytes name = lost->names[i];
        size_t used = strlen(names);
        int64_t rank = lost->ranks[i] == MST_AUTHORITY_RANK_NONE ? -1 : (int64_t)lost->ranks[i];
        mst__view_lost(notices->view, name, rank, false);
        const char *blank = used == 0 ? "" : " ";
        if (name.size == 0) { /* both are cut off when long */
            (void)snprintf(names + used, sizeof names - used, "%srank %" PRId64, blank, rank);
        } else {
            (void)snprintf(names + used, sizeof names - used, "%s%.*s", blank, (int)name.size,
                           (const char *)name.data);
        }
    }
    int64_t total = (int64_t)lost->total + notices->left;
    if (total > notices->changes.participants_lost) {
        notices->changes.participants_lost = total;
    }
    char sentence[MST_EVENT_MESSAGE_SIZE / 2];
    (void)snprintf(sentence, sizeof sentence, "%" PRIu32 " lost: %s", lost->total, names);
    watch_event(notices, "lost", sentence);
}

static void take_waiting(struct mst__notices *notices, uint32_t count)
{
    bool is_more = notices->is_waited_for && count == 0;
    notices->changes.nodes_waiting = is_more ? 1 : (int64_t)count;
}

static void take_reopened(struct mst__notices *notices, const struct mst__job_message *message)
{
    notices->changes.reopened = true;
    mst__work_reopened(&notices->changes, &message->u.reopened.end);
    enum mst__authority_why why = (enum mst__authority_why)message->u.reopened.why;
    struct mst_bytes name = message->u.reopened.name;
    if (why == MST_AUTHORITY_WHY_LEFT) {
        if (message->u.reopened.rank != MST_AUTHORITY_RANK_NONE) { /* else counted by LOST */
            notices->left = 1;
            notices->changes.participants_lost++;
            mst__view_lost(notices->view, name, (int64_t)message->u.reopened.rank, true);
        }
    } else if (why != MST_AUTHORITY_WHY_LOST) {
        /* That node waits for us now. */
        notices->is_waited_for = true;
        if (notices->changes.nodes_waiting == 0) {
            notices->changes.nodes_waiting = 1;
        }
    }
    char sentence[MST_EVENT_MESSAGE_SIZE / 2];
    (void)snprintf(sentence, sizeof sentence, "over, round %" PRId64 " gathers: %s, %.*s",
                   message->u.reopened.round_next, mst__authority_why_name(why),
                   (int)(name.size < 100 ? name.size : 100), (const char *)name.data);
    watch_event(notices, "reopened", sentence);
}

/* Our place in the round is lost; @text says why. */
static void take_expelled(struct mst__notices *notices, struct mst_bytes text)
{
    char sentence[MST_EVENT_MESSAGE_SIZE / 2];
    (void)snprintf(sentence, sizeof sentence, "expelled: %.*s",
                   (int)(text.size < 200 ? text.size : 200), (const char *)text.data);
    watch_event(notices, "expelled", sentence);
    notices->changes.expelled = true;
}

static void take_closed(struct mst__notices *notices,
                        struct mst_bytes reason,
                        const struct mst__job_end *end)
{
    struct mst_changes *changes = &notices->changes;
    mst__work_ended(changes, end);
    char sentence[MST_EVENT_MESSAGE_SIZE / 2];
    (void)snprintf(sentence, sizeof sentence, "%s: %.*s",
                   changes->outcome == MST_OUTCOME_FINISHED ? "finished"
                   : changes->outcome == MST_OUTCOME_FAILED ? "failed"
                                                            : "closed",
                   (int)(reason.size < 200 ? reason.size : 200), (const char *)reason.data);
    watch_event(notices, "closed", sentence);
    (void)snprintf(changes->reason, sizeof changes->reason, "%.*s",
                   (int)(reason.size < sizeof changes->reason ? reason.size : 255),
                   (const char *)reason.data); /* cut off when long */
}

/* The running round has no place for us now. */
static void take_standby(struct mst__notices *notices, const struct mst__job_message *message)
{
    const struct mst__job_round *round = &message->u.round;
    bool is_spare = message->type == MST_JOB_SPARE;
    mst__event(notices->events, is_spare ? "spare" : "queued", MST_NODE_RUNNING, round->round, -1,
               "Node '%s' %s: round %" PRId64 " of rendezvous '%s' runs with %" PRIu32 " node%s%s.",
               notices->events->node, is_spare ? "is a spare" : "waits", round->round,
               notices->params->run_id, round->world, round->world == 1 ? "" : "s",
               is_spare ? " and is full" : "");
}

/* --- the connection --- */

static void take_cut(struct mst__notices *notices, const struct mst_err *err)
{
    char detail[MST_LOG_QUOTE_SIZE];
    mst__log(&notices->params->log, MST_LOG_WARN, "rendezvous.disconnected", "node=%s detail=%s",
             MST_LOG_TEXT(notices->events->node), mst__log_quote(mst_bytes_str(err->msg), detail));
    mst__event(notices->events, "disconnected", MST_NODE_RUNNING, -1, -1,
               "Node '%s' has lost its connection: %s", notices->events->node, err->msg);
}

/* The present authority does not support FINISH or RESTART. */
static void take_unsaid(struct mst__notices *notices, const struct mst_err *err)
{
    char detail[MST_LOG_QUOTE_SIZE];
    mst__log(&notices->params->log, MST_LOG_WARN, "rendezvous.unsaid", "node=%s detail=%s",
             MST_LOG_TEXT(notices->events->node), mst__log_quote(mst_bytes_str(err->msg), detail));
}

static void take_again(struct mst__notices *notices)
{
    mst__log(&notices->params->log, MST_LOG_INFO, "rendezvous.connected", "node=%s server=%s",
             MST_LOG_TEXT(notices->events->node), MST_LOG_TEXT(notices->where));
    mst__event(notices->events, "connected", MST_NODE_RUNNING, -1, -1,
               "Node '%s' has its connection to %s again.", notices->events->node, notices->where);
}

void mst__notices_take(struct mst__notices *notices, const struct mst__member_effect *effect)
{
    switch (effect->notice) {
        case MST_MEMBER_NOTICE_CUT:
            take_cut(notices, effect->err);
            return;
        case MST_MEMBER_NOTICE_AGAIN:
            take_again(notices);
            mst__view_reach(notices->view, NULL);
            return; /* what was told of the last round is no news */
        case MST_MEMBER_NOTICE_STANDBY:
            take_standby(notices, effect->message);
            return;
        case MST_MEMBER_NOTICE_LOST:
            take_lost(notices, &effect->message->u.lost);
            break;
        case MST_MEMBER_NOTICE_WAITING:
            take_waiting(notices, effect->message->u.waiting.count);
            break;
        case MST_MEMBER_NOTICE_REOPENED:
            take_reopened(notices, effect->message);
            break;
        case MST_MEMBER_NOTICE_EXPELLED:
            take_expelled(notices, effect->text);
            break;
        case MST_MEMBER_NOTICE_CLOSED:
            take_closed(notices, effect->text, effect->end);
            break;
        case MST_MEMBER_NOTICE_UNSAID:
            take_unsaid(notices, effect->err);
            return;
    }
    mst__view_publish(notices->view, &notices->changes);
    mst__view_reach(notices->view, NULL);
}
