/* core/session_wait.c - spreads writes over time, backs off, polls.
 *
 * If several nodes write at the same time, one wins and the others have written in vain. A write
 * takes a slot: from reading the record to changing it. If c nodes want to write and each picks a
 * random moment within c slots, each has a good chance to succeed at the first attempt, and the
 * last one is done after c slots: one after the other would not be much faster. So the only
 * question is how many others want to write, and the record and the settings mostly tell. */
#include "core/session_wait.h"

#include "base/assert.h"
#include "base/limits.h"
#include "base/number.h"
#include "core/saturate.h"

/* Few enough to try at once. */
#define HOLD_FEW 4
/* The first guess after a loss, if their number is unknown. */
#define HOLD_LOST_MIN 8
/* Each further loss multiplies the guess by 2 to this. */
#define HOLD_LOST_BITS 2
#define HOLD_LOST_BITS_MAX 12

/* The share of a join's time that may be used to spread the first reads. */
#define SPREAD_SHARE 4

/* A slot if the store is on the same machine or network. If c nodes come at once, the last gets its
 * answer after c slots, which gives the length of one; the rest is a margin. Each loss makes it
 * longer, up to the two trips of a read and a write: the store is busy, or far away. */
#define SLOT_US 350
#define SLOT_US_MAX 4000
#define SLOT_TRIPS 8
#define SLOT_LOST_BITS 2
#define SLOT_LOST_BITS_MAX 8

/* Polling: soon after a change, because more are likely; then less and less often. */
#define POLL_US_MIN 20000
#define POLL_US_SLOW 500000
#define POLL_QUIET_SHARE 4
#define POLL_NODES_FEW 8
/* If changes wake us, this is only a precaution. */
#define POLL_US_WATCHING 5000000

/* For the node that completes the round, after the end of the last call. */
#define LAST_CALL_LATE_US 1000000

/* A storm is over when nothing has changed for this time. */
#define SKIP_STORM_US 2000000

#define GATHER_NODES_FEW 8
#define GATHER_US_PER_WRITE 400
#define GATHER_US_PER_NODE 100
#define GATHER_TRIPS 4
#define GATHER_US_MAX 250000

/* How many nodes, including this one, are likely to want a write like @action now. */
static int64_t hold_contenders(const struct mst__session *session, enum mst__action action)
{
    const struct mst__state *state = &session->state;
    int64_t count = (int64_t)state->participants.count;
    int64_t missing = mst__max(session->options.settings.nodes_min - count, 0);
    switch (action) {
        case MST_ACTION_ADD_TO_PARTICIPANTS:
        case MST_ACTION_REMOVE_FROM_REDUNDANCY_LIST:
            /* A round has opened, and all waiting nodes come. */
            missing = mst__min(missing, MST_MEMBERS_MAX);
            return mst__max(missing, (int64_t)(state->waiting.count + state->spares.count));
        case MST_ACTION_REMOVE_FROM_PARTICIPANTS:
        case MST_ACTION_MARK_RENDEZVOUS_COMPLETE:
        case MST_ACTION_START_LAST_CALL:
            /* All nodes have the same reason to write. */
            return count;
        case MST_ACTION_KEEP_ALIVE:
            /* All nodes have found the same lost ones. */
            return session->dead.count > 0 ? (int64_t)state->heartbeats.count : 1;
        default:
            return 1;
    }
}

/* Their maximum: the free places, or the nodes in the record. */
static int64_t hold_contenders_max(const struct mst__session *session, enum mst__action action)
{
    if (action != MST_ACTION_ADD_TO_PARTICIPANTS) {
        return (int64_t)session->state.heartbeats.count;
    }
    int64_t room = session->options.settings.nodes_max - (int64_t)session->state.participants.count;
    return mst__min(room, MST_MEMBERS_MAX);
}

static int64_t hold_slot_us(const struct mst__session *session, int64_t contenders)
{
    int64_t slot_us = SLOT_TRIPS * session->trip_last_us / contenders;
    slot_us = mst__min(mst__max(slot_us, SLOT_US), SLOT_US_MAX);
    if (session->losses < 2) {
        return slot_us;
    }
    unsigned bits = SLOT_LOST_BITS * (session->losses - 1);
    bits = bits > SLOT_LOST_BITS_MAX ? SLOT_LOST_BITS_MAX : bits;
    int64_t long_us = mst__min(slot_us << bits, 2 * session->trip_last_us);
    if (session->options.write_us > 0) {
        /* Answers are late because the disk is busy with the writes of others, not because ours
         * would take so long. */
        long_us = mst__min(long_us, 2 * session->options.write_us);
    }
    return mst__max(slot_us, long_us);
}

int64_t mst__session_hold_us(const struct mst__session *session,
                             enum mst__action action,
                             struct mst__prng *prng)
{
    int64_t contenders = hold_contenders(session, action);
    if (session->losses == 0) {
        if (contenders <= HOLD_FEW) {
            return 0;
        }
    } else {
        unsigned bits = HOLD_LOST_BITS * (session->losses - 1);
        bits = bits > HOLD_LOST_BITS_MAX ? HOLD_LOST_BITS_MAX : bits;
        int64_t guess =
            mst__min((int64_t)HOLD_LOST_MIN << bits, hold_contenders_max(session, action));
        contenders = mst__max(mst__max(contenders, guess), HOLD_LOST_MIN);
        if (session->options.write_us > 0) {
            contenders = mst__min(contenders, mst__max(hold_contenders_max(session, action), 2));
        }
    }
    int64_t window_us = mst__saturate_multiply(contenders, hold_slot_us(session, contenders));
    /* Our own heartbeat may become due meanwhile, and must not be late. */
    int64_t half_us = session->options.settings.keep_alive_interval_us / 2;
    window_us = mst__min(window_us, mst__max(mst__min(half_us, MST_HOLD_US_MAX), SLOT_US));
    MST_ASSERT(window_us > 0);
    return 1 + (int64_t)mst__prng_below(prng, (uint64_t)window_us);
}

int64_t mst__session_spread_us(const struct mst__session *session,
                               int64_t now_us,
                               struct mst__prng *prng)
{
    int64_t nodes = session->options.settings.nodes_min;
    bool is_entering =
        session->operation == MST_OPERATION_NEXT || session->operation == MST_OPERATION_JOIN;
    bool has_read = session->stats.reads > 0;
    /* Only if writes are slow: otherwise a second read costs almost nothing. */
    if (!is_entering || has_read || session->options.mode == MST_SESSION_EXACT ||
        session->options.write_us == 0 || nodes <= HOLD_FEW) {
        return 0;
    }
    int64_t window_us = mst__saturate_multiply(nodes, session->options.write_us);
    window_us = mst__min(window_us, MST_HOLD_US_MAX);
    /* Most of the node's time is for waiting for the others. */
    int64_t left_us = mst__saturate_subtract(session->deadline_us, now_us);
    window_us = mst__min(window_us, left_us / SPREAD_SHARE);
    return window_us <= 0 ? 0 : 1 + (int64_t)mst__prng_below(prng, (uint64_t)window_us);
}

int64_t mst__session_deadline_us(const struct mst__session *session)
{
    const struct mst__settings *settings = &session->options.settings;
    const struct mst__state *state = &session->state;
    bool is_joining = session->stage == MST_OPERATION_JOIN && !session->is_cancelled;
    bool has_last_call = state->has_deadline && session->observer.has_deadline && !state->complete;
    if (session->options.mode == MST_SESSION_EXACT || !is_joining || !has_last_call) {
        return session->deadline_us;
    }
    mst__peer_id self = mst__state_find(state, &session->options.node);
    if (self == MST_PEER_NONE || !state->members[self].is_participant) {
        return session->deadline_us;
    }
    int64_t end_us = mst__observer_last_call_end_us(&session->observer, settings);
    int64_t latest_us = mst__saturate_add(session->deadline_us, settings->last_call_us);
    int64_t until_us = mst__saturate_add(mst__min(end_us, latest_us), LAST_CALL_LATE_US);
    return mst__max(session->deadline_us, until_us);
}

/* The time until the next read without a particular reason. */
static int64_t poll_delay_us(const struct mst__session *session,
                             int64_t now_us,
                             struct mst__prng *prng)
{
    if (session->options.can_watch) {
        return POLL_US_WATCHING + (int64_t)mst__prng_below(prng, POLL_US_WATCHING);
    }
    int64_t slow_us = POLL_US_SLOW + (int64_t)mst__prng_below(prng, POLL_US_SLOW);
    int64_t nodes = (int64_t)session->state.heartbeats.count;
    int64_t quick_us = POLL_US_MIN * mst__max(1, nodes / POLL_NODES_FEW);
    quick_us += (int64_t)mst__prng_below(prng, (uint64_t)quick_us);
    int64_t quiet_us = (now_us - session->changed_us) / POLL_QUIET_SHARE;
    return mst__min(mst__max(quick_us, quiet_us), slow_us);
}

int64_t mst__session_poll_us(const struct mst__session *session,
                             int64_t now_us,
                             struct mst__prng *prng)
{
    const struct mst__settings *settings = &session->options.settings;
    const struct mst__observer *observer = &session->observer;
    const struct mst__state *state = &session->state;
    int64_t until_us = mst__saturate_add(now_us, poll_delay_us(session, now_us, prng));
    until_us = mst__min(until_us, observer->next_us);
    mst__peer_id self = mst__state_find(state, &session->options.node);
    bool is_spare = self != MST_PEER_NONE && state->members[self].is_spare;
    if (!is_spare) {
        until_us = mst__min(until_us, mst__saturate_add(mst__session_deadline_us(session), 1));
    }
    if (self != MST_PEER_NONE && state->members[self].has_heartbeat && session->has_beat) {
        until_us = mst__min(until_us,
                            mst__saturate_add(session->beat_us, settings->keep_alive_interval_us));
    }
    if (state->has_deadline && observer->has_deadline) {
        /* Do not wait for a last call that is over: this node cannot be the one to end it. */
        int64_t end_us = mst__observer_last_call_end_us(observer, settings);
        if (end_us >= now_us) {
            until_us = mst__min(until_us, mst__saturate_add(end_us, 1));
        }
    }
    /* Everything that was due is done; a millisecond prevents spinning. */
    return mst__max(until_us, mst__saturate_add(now_us, 1000));
}

/* Before this many writes nothing can happen that this node waits for, except a close. */
static int64_t gather_writes(const struct mst__session *session)
{
    const struct mst__settings *settings = &session->options.settings;
    int64_t count = (int64_t)session->state.participants.count;
    if (session->state.complete) {
        return count; /* all of them must leave */
    }
    int64_t enough = count < settings->nodes_min ? settings->nodes_min : settings->nodes_max;
    return mst__min(mst__max(enough - count, 0), MST_MEMBERS_MAX);
}

int64_t mst__session_skip(const struct mst__session *session, int64_t now_us)
{
    const struct mst__state *state = &session->state;
    bool is_storm = now_us - session->changed_us < SKIP_STORM_US;
    /* Only if writes are slow: otherwise a wake-up costs almost nothing. */
    if (session->options.write_us == 0 || state->complete || state->closed || !is_storm) {
        return 0;
    }
    int64_t missing = session->options.settings.nodes_min - (int64_t)state->participants.count;
    return mst__min(mst__max(missing - 1, 0), MST_MEMBERS_MAX);
}

int64_t mst__session_gather_us(const struct mst__session *session)
{
    int64_t nodes = (int64_t)session->state.heartbeats.count;
    int64_t writes = gather_writes(session);
    bool are_many = session->options.write_us > 0 && writes > GATHER_NODES_FEW;
    if (nodes <= GATHER_NODES_FEW && !are_many) {
        return 0;
    }
    /* A store that answers slowly is overloaded. */
    int64_t gather_us = nodes * GATHER_US_PER_NODE + GATHER_TRIPS * session->trip_last_us;
    int64_t write_us = mst__max(GATHER_US_PER_WRITE, session->options.write_us);
    return mst__min(gather_us + writes * write_us, GATHER_US_MAX);
}
