/* core/session.c - the state holder and the executor of a node, step by step.
 *
 * Invariants: in the default mode there is no unsaved change while reading and waiting; the exact
 * mode keeps what could not be written, as the peers do. While writing there is a change to write.
 * Results come only from a record that was read or written, never from an unsaved one. */
#include "core/session.h"

#include <string.h>

#include <muster/error.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "core/saturate.h"
#include "core/session_result.h"
#include "core/session_wait.h"

/* The age up to which the peers use a cached record. */
#define EXACT_CACHE_US 1000000
/* Changes in one write; leaving, entering and completing are three. */
#define CHANGES_MAX 8

/* The arguments of a step. */
struct session_step {
    struct mst__session *session;
    int64_t now_us;
    int64_t now_mono_us;
    struct mst__prng prng;
    struct mst__effect *effect;
};

/* --- moves --- */

static bool session_is_exact(const struct mst__session *session)
{
    return session->options.mode == MST_SESSION_EXACT;
}

static void session_check(const struct mst__session *session)
{
    bool may_be_dirty = session_is_exact(session) || session->phase == MST_SESSION_WRITING;
    bool is_dirty = session->is_dirty;
    MST_ASSERT(may_be_dirty || !is_dirty);
    MST_ASSERT(session->phase != MST_SESSION_WRITING || is_dirty);
    MST_ASSERT(session->has_token || session->token.size == 0);
}

static void session_move(struct mst__session *session, enum mst__session_phase to)
{
    /* From the row to the column: idle, reading, writing, waiting. */
    static const bool is_allowed[4][4] = {
        [MST_SESSION_IDLE] = {true, true, true, true},
        [MST_SESSION_READING] = {true, false, true, true},
        [MST_SESSION_WRITING] = {true, false, true, true},
        [MST_SESSION_WAITING] = {true, true, true, true},
    };
    enum mst__session_phase from = session->phase;
    MST_ASSERT(is_allowed[from][to]);
    session->phase = to;
    session_check(session);
}

/* --- life --- */

int mst__session_init(struct mst__session *session, const struct mst__session_options *options)
{
    *session = (struct mst__session){
        .options = *options,
        .synced_us = -EXACT_CACHE_US,
    };
    session->options.node.addr = mst_bytes_of(NULL, 0);
    mst__state_init(&session->state);
    mst__state_init(&session->before);
    mst__state_init(&session->joined);
    mst__observer_init(&session->observer);
    session->state.dialect = options->dialect;
    size_t size = options->node.addr.size;
    session->address =
        (uint8_t *)mst__memdup(size == 0 ? (const uint8_t *)"" : options->node.addr.data, size);
    if (session->address == NULL) {
        return MST_ENOMEM;
    }
    session->options.node.addr = mst_bytes_of(session->address, size);
    return 0;
}

static void session_drop_token(struct mst__session *session)
{
    mst__free(session->token.data);
    session->token = (struct mst_buffer){NULL, 0};
    session->has_token = false;
}

void mst__session_close(struct mst__session *session)
{
    mst__free(session->address);
    session->address = NULL;
    session->options.node.addr = mst_bytes_of(NULL, 0);
    mst__state_close(&session->state);
    mst__state_close(&session->before);
    mst__state_close(&session->joined);
    mst__observer_close(&session->observer);
    mst__free(session->dead.ids);
    session->dead = (struct mst__peers){NULL, 0, 0};
    session_drop_token(session);
}

/* --- effects --- */

static int step_done(struct session_step *step, struct mst__outcome outcome)
{
    session_move(step->session, MST_SESSION_IDLE);
    *step->effect = (struct mst__effect){.kind = MST_EFFECT_DONE, .outcome = outcome};
    return 0;
}

static int step_fail(struct session_step *step, enum mst__result result)
{
    struct mst__outcome outcome = {.result = result};
    return step_done(step, outcome);
}

/* Undo a stage that was not written. */
static void session_revert_stage(struct mst__session *session)
{
    if (session->is_stage_unsaved) {
        session->stage = MST_OPERATION_EXIT;
    }
    session->is_stage_unsaved = false;
}

/* Forget the record and unsaved changes. */
static void session_forget(struct mst__session *session)
{
    session_revert_stage(session);
    session->is_dirty = false;
    session->is_known = false;
    session_drop_token(session);
}

/* The peers keep their cache and unsaved changes. */
static int step_failed(struct session_step *step, enum mst__result result)
{
    if (!session_is_exact(step->session)) {
        session_forget(step->session);
    }
    return step_fail(step, result);
}

static int step_abandon(struct session_step *step, int code)
{
    session_forget(step->session);
    session_move(step->session, MST_SESSION_IDLE);
    return code;
}

static int step_read(struct session_step *step)
{
    struct mst__session *session = step->session;
    session_move(session, MST_SESSION_READING);
    session->stats.reads++;
    session->asked_us = step->now_mono_us;
    *step->effect = (struct mst__effect){.kind = MST_EFFECT_READ};
    return 0;
}

/* A node that enters and loses is not in the record, so the record does not matter to it before its
 * next attempt. */
static bool session_may_lose_unread(const struct mst__session *session)
{
    return session->options.write_us > 0 && !session_is_exact(session) &&
           session->action == MST_ACTION_ADD_TO_PARTICIPANTS && !session->pending_exit;
}

static int step_write(struct session_step *step)
{
    struct mst__session *session = step->session;
    session_move(session, MST_SESSION_WRITING);
    session->stats.writes++;
    session->asked_us = step->now_mono_us;
    *step->effect = (struct mst__effect){
        .kind = MST_EFFECT_WRITE,
        .state = &session->state,
        .has_token = session->has_token,
        .token = mst_bytes_of(session->token.data, session->token.size),
        .may_be_unread = session_may_lose_unread(session),
    };
    return 0;
}

static int step_wait(struct session_step *step,
                     enum mst__session_wait wait,
                     bool wants_change,
                     int64_t until_us)
{
    struct mst__session *session = step->session;
    session->wait = wait;
    session->wants_change = wants_change;
    session->until_us = until_us;
    session_move(session, MST_SESSION_WAITING);
    *step->effect = (struct mst__effect){
        .kind = MST_EFFECT_WAIT,
        .until_us = until_us,
        .wants_change = wants_change,
        .skip = wait == MST_WAIT_POLL ? session->skip : 0,
    };
    return 0;
}

/* --- deciding --- */

static const struct mst__peer *session_self(const struct mst__session *session)
{
    mst__peer_id id = mst__state_find(&session->state, &session->options.node);
    return id == MST_PEER_NONE ? NULL : &session->state.members[id];
}

/* By our own clock: a stepped wall clock must not change our heartbeats. */
static bool session_is_beat_due(const struct session_step *step)
{
    const struct mst__session *session = step->session;
    if (session->pending_beat) {
        return false;
    }
    if (session->dead.count > 0) {
        return true; /* so that newcomers do not take lost nodes for living ones */
    }
    return !session->has_beat ||
           step->now_mono_us - session->beat_us >= session->options.settings.keep_alive_interval_us;
}

static bool session_is_last_call_over(const struct session_step *step)
{
    const struct mst__observer *observer = &step->session->observer;
    return observer->has_deadline &&
           mst__observer_last_call_end_us(observer, &step->session->options.settings) <
               step->now_mono_us;
}

static enum mst__action step_decide(struct session_step *step)
{
    struct mst__session *session = step->session;
    struct mst__question question = {
        .state = &session->state,
        .node = &session->options.node,
        .settings = &session->options.settings,
        .now_us = step->now_us,
        .left_us = mst__saturate_subtract(mst__session_deadline_us(session), step->now_mono_us),
        .semantics = mst__semantics_of(session->state.dialect),
    };
    if (session_is_exact(session)) {
        return mst__decide(&question, session->stage);
    }
    question.is_corrected = true;
    question.heartbeat_due = session_is_beat_due(step) ? MST_JUDGE_YES : MST_JUDGE_NO;
    question.last_call_over = session_is_last_call_over(step) ? MST_JUDGE_YES : MST_JUDGE_NO;
    const struct mst__peer *self = session_self(session);
    if (session->is_cancelled && self != NULL && self->is_spare && !session->state.closed) {
        return MST_ACTION_REMOVE_FROM_REDUNDANCY_LIST;
    }
    if (session->stage == MST_OPERATION_EXIT && session->operation == MST_OPERATION_JOIN) {
        question.left_us = 0; /* a doubtful round is left even if it is late */
    }
    return mst__decide(&question, session->stage);
}

/* Bookkeeping before the record is changed. */
static int step_prepare(struct session_step *step, enum mst__action action)
{
    struct mst__session *session = step->session;
    if (action == MST_ACTION_MARK_RENDEZVOUS_COMPLETE) {
        /* If another node is faster, this is our view of the round before. */
        session->has_before = false;
        int rv = mst__state_copy(&session->before, &session->state);
        session->has_before = rv == 0;
        session->before_left_us = 0;
        return rv;
    }
    const struct mst__peer *self = session_self(session);
    if (action >= MST_ACTION_REMOVE_FROM_PARTICIPANTS &&
        action <= MST_ACTION_REMOVE_FROM_REDUNDANCY_LIST && self != NULL && !self->has_heartbeat) {
        /* The peers fail at an entry without a heartbeat and leave it there. */
        return mst__state_put_heartbeat(&session->state,
                                        mst__state_find(&session->state, &session->options.node),
                                        step->now_us);
    }
    return 0;
}

/* A stamp that differs from the last one, because others watch its changes. */
static int64_t step_stamp_us(const struct session_step *step)
{
    const struct mst__peer *self = session_self(step->session);
    bool is_same = self != NULL && self->has_heartbeat && self->heartbeat_us == step->now_us;
    return is_same ? mst__saturate_add(step->now_us, 1) : step->now_us;
}

/* Apply @action, which changes the record, to our copy. */
static int step_act(struct session_step *step, enum mst__action action)
{
    struct mst__session *session = step->session;
    struct mst__state *state = &session->state;
    bool is_exact = session_is_exact(session);
    int rv = is_exact ? 0 : step_prepare(step, action);
    if (rv != 0) {
        return rv;
    }
    bool was_complete = state->complete;
    struct mst__applied applied;
    rv = mst__apply(state, action, &session->options.node, &session->options.settings,
                    is_exact ? step->now_us : step_stamp_us(step), &applied);
    if (rv != 0) {
        return rv;
    }
    session->is_dirty = applied.dirty;
    mst__peer_id id = mst__state_find(state, &session->options.node);
    if (!is_exact && id != MST_PEER_NONE && state->members[id].has_heartbeat) {
        mst__state_mark(state, id);
    }
    if (applied.restarts_deadline && !session->is_cancelled) {
        session->deadline_us =
            mst__saturate_add(step->now_mono_us, session->options.settings.join_us);
    }
    const struct mst__peer *self = session_self(session);
    session->pending_beat = self != NULL && self->has_heartbeat &&
                            (session->pending_beat || action <= MST_ACTION_ADD_TO_REDUNDANCY_LIST);
    session->pending_beat_us = step->now_mono_us;
    if (action == MST_ACTION_REMOVE_FROM_PARTICIPANTS) {
        session->pending_exit = true;
    }
    session->pending_complete = state->complete && (session->pending_complete || !was_complete);
    if (session->pending_complete && !is_exact) {
        state->sealed_round = state->round;
        state->sealed_count = (int64_t)state->participants.count;
    }
    mst__observer_last_call(&session->observer, state, step->now_mono_us);
    return 0;
}

static enum mst__result step_result(const struct session_step *step, enum mst__action action)
{
    switch (action) {
        case MST_ACTION_ERROR_CLOSED:
            return MST_RESULT_CLOSED;
        case MST_ACTION_ERROR_TIMEOUT:
            return step->session->is_cancelled ? MST_RESULT_CANCELLED : MST_RESULT_TIMEOUT;
        case MST_ACTION_ERROR_GRACEFUL_EXIT:
            return MST_RESULT_GRACEFUL_EXIT;
        default:
            MST_ASSERT(action == MST_ACTION_ERROR_NO_DEADLINE);
            return MST_RESULT_STATE;
    }
}

/* Delay a write that others are likely to make as well; another read follows. */
static int step_hold_until(struct session_step *step, int64_t held_us, bool wants_change)
{
    step->session->is_held = true;
    step->session->held_us = held_us;
    return step_wait(step, MST_WAIT_HOLD, wants_change, held_us);
}

/* Whether to wait before @action, which changes the record; the effect is then set. */
static bool step_hold(struct session_step *step, enum mst__action action)
{
    struct mst__session *session = step->session;
    if (session_is_exact(session) || session->is_dirty || session->is_hold_over) {
        return false;
    }
    int64_t held_us = session->held_us;
    if (!session->is_held) {
        held_us = step->now_mono_us + mst__session_hold_us(session, action, &step->prng);
    }
    if (held_us <= step->now_mono_us) {
        return false;
    }
    /* Completing a round and removing lost nodes are done once for all: another node's write saves
     * ours. */
    bool wants_change =
        action == MST_ACTION_MARK_RENDEZVOUS_COMPLETE || action == MST_ACTION_KEEP_ALIVE;
    (void)step_hold_until(step, held_us, wants_change);
    return true;
}

static int step_poll(struct session_step *step)
{
    struct mst__session *session = step->session;
    session->is_held = false;
    session->is_hold_over = false;
    if (session_is_exact(session)) {
        int64_t until_us = mst__saturate_add(step->now_mono_us, MST_SYNC_DELAY_US);
        return step_wait(step, MST_WAIT_POLL, false, until_us);
    }
    int64_t until_us = mst__session_poll_us(session, step->now_mono_us, &step->prng);
    session->skip = mst__session_skip(session, step->now_mono_us);
    if (session->skip > 0 && until_us > step->now_mono_us + MST_SKIP_US_MAX) {
        until_us = step->now_mono_us + MST_SKIP_US_MAX;
    }
    return step_wait(step, MST_WAIT_POLL, true, until_us);
}

/* The join has ended: return the result. */
static int step_joined(struct session_step *step)
{
    struct mst__session *session = step->session;
    int rv = mst__state_copy(&session->joined, &session->state);
    session->has_joined = rv == 0;
    if (rv != 0) {
        return step_abandon(step, rv);
    }
    const struct mst__peer *self = session_self(session);
    MST_ASSERT(self != NULL);
    struct mst__outcome outcome = {
        .result = MST_RESULT_OK,
        .round = session->state.round,
        .rank = self->rank,
        .world = mst__session_world(session),
    };
    return step_done(step, outcome);
}

/* Leaving ends and joining begins: both are one write, if it wins. */
static bool step_next_stage(struct session_step *step)
{
    struct mst__session *session = step->session;
    if (session->stage != MST_OPERATION_EXIT || session->operation == MST_OPERATION_EXIT) {
        return false;
    }
    session->stage = MST_OPERATION_JOIN;
    session->is_stage_unsaved = session->is_dirty;
    return true;
}

/* The operation has ended. True if it continues because its result is in doubt; else the effect is
 * set and *@ret_code is the value of the step. */
static bool step_finish(struct session_step *step, int *ret_code)
{
    struct mst__session *session = step->session;
    if (session->stage != MST_OPERATION_JOIN) {
        struct mst__outcome outcome = {.result = MST_RESULT_OK};
        *ret_code = step_done(step, outcome);
        return false;
    }
    bool is_certain = true;
    int rv = session_is_exact(session) ? 0 : mst__session_is_certain(session, &is_certain);
    if (rv != 0) {
        *ret_code = step_abandon(step, rv);
        return false;
    }
    if (is_certain) {
        *ret_code = step_joined(step);
        return false;
    }
    session->stats.doubts++;
    session->operation = MST_OPERATION_JOIN;
    session->stage = MST_OPERATION_EXIT;
    return true;
}

/* Decide, and act on our copy of the record until it is time to write, to wait or to end. */
static int step_think(struct session_step *step)
{
    struct mst__session *session = step->session;
    for (unsigned changes = 0;;) {
        enum mst__action action = step_decide(step);
        if (action == MST_ACTION_FINISH && step_next_stage(step)) {
            continue;
        }
        if (!mst__action_writes(action) && session->is_dirty) {
            return step_write(step);
        }
        session->action = action;
        if (mst__action_writes(action)) {
            if (changes == CHANGES_MAX) {
                return step_write(step);
            }
            if (step_hold(step, action)) {
                return 0;
            }
            int rv = step_act(step, action);
            if (rv == MST_EINVAL) {
                return step_failed(step, MST_RESULT_STATE);
            }
            if (rv != 0) {
                return step_abandon(step, rv);
            }
            changes++;
            if (session_is_exact(session)) {
                return step_write(step);
            }
        } else if (action == MST_ACTION_SYNC) {
            return step_poll(step);
        } else if (action != MST_ACTION_FINISH) {
            return step_fail(step, step_result(step, action));
        } else {
            int code;
            if (!step_finish(step, &code)) {
                return code;
            }
        }
    }
}

/* --- the holder --- */

/* Start of a pass: with a fresh cache of the exact mode decide at once; else read or write. */
static int step_sync(struct session_step *step)
{
    struct mst__session *session = step->session;
    if (!session_is_exact(session)) {
        return step_read(step);
    }
    if (session->is_dirty) {
        return step_write(step);
    }
    int64_t oldest_us = step->now_mono_us - EXACT_CACHE_US;
    if (session->synced_us < (oldest_us > 0 ? oldest_us : 0)) {
        return step_read(step);
    }
    session->dead.count = 0;
    if (session->operation == MST_OPERATION_POLL) {
        return step_done(step, (struct mst__outcome){.result = MST_RESULT_OK});
    }
    return step_think(step);
}

/* The copy equals the record: process it, remove lost nodes, continue. */
static int step_synced(struct session_step *step, bool is_past)
{
    struct mst__session *session = step->session;
    const struct mst__settings *settings = &session->options.settings;
    const struct mst__reading reading = {.wall_us = step->now_us,
                                         .now_us = step->now_mono_us,
                                         .asked_us = session->asked_us,
                                         .is_past = is_past};
    int64_t trip_us = step->now_mono_us - session->asked_us;
    if (trip_us > 0 && (session->trip_us == 0 || trip_us < session->trip_us)) {
        session->trip_us = trip_us;
    }
    session->trip_last_us = trip_us;
    session->is_known = true;
    session->is_dirty = false;
    session->pending_beat = false;
    session->pending_complete = false;
    session->pending_exit = false;
    session->synced_us = step->now_mono_us;
    session->participants_read = session->state.participants.count;
    int rv = session_is_exact(session)
                 ? mst__expire_by_stamp(&session->state, settings, step->now_us, &session->dead)
                 : mst__observer_read(&session->observer, &session->state, &session->options.node,
                                      settings, &reading, &session->dead);
    if (rv != 0) {
        return step_abandon(step, rv);
    }
    if (session->operation == MST_OPERATION_POLL) {
        return step_done(step, (struct mst__outcome){.result = MST_RESULT_OK});
    }
    return step_think(step);
}

/* The rest of the last call; the maximum if there is none. */
static int64_t session_last_call_left_us(const struct mst__session *session, int64_t now_mono_us)
{
    if (!session->observer.has_deadline) {
        return INT64_MAX;
    }
    return mst__observer_last_call_end_us(&session->observer, &session->options.settings) -
           now_mono_us;
}

/* Take the record and the token of @event; without them there is none. */
static void session_install(struct mst__session *session,
                            const struct mst__session_event *event,
                            int64_t now_mono_us)
{
    struct mst__state fresh;
    mst__state_init(&fresh);
    fresh.dialect = session->options.dialect;
    if (event->state == NULL || event->state->round < session->state.round) {
        /* The store has lost its data: our knowledge is of another round. */
        session->completed_count = 0;
        session->has_before = false;
    }
    if (event->state != NULL) {
        mst__state_move(&fresh, event->state);
    }
    bool was_open = session->is_known && !session->state.complete;
    if (was_open && fresh.complete && fresh.round == session->state.round) {
        mst__state_move(&session->before, &session->state);
        session->has_before = true;
        session->before_left_us = session_last_call_left_us(session, now_mono_us);
    }
    mst__state_move(&session->state, &fresh);
    session->finished = event->finished;
    struct mst_buffer token = {NULL, 0};
    if (event->token != NULL) {
        token = *event->token;
        *event->token = (struct mst_buffer){NULL, 0};
    }
    bool is_same = session->has_token == (event->token != NULL) &&
                   mst__bytes_equal(mst_bytes_of(session->token.data, session->token.size),
                                    mst_bytes_of(token.data, token.size));
    if (!is_same) {
        session->changed_us = now_mono_us;
    }
    session_drop_token(session);
    session->token = token;
    session->has_token = event->token != NULL;
}

static int step_won(struct session_step *step, const struct mst__session_event *event)
{
    struct mst__session *session = step->session;
    session_drop_token(session);
    session->token = *event->token;
    *event->token = (struct mst_buffer){NULL, 0};
    session->has_token = true;
    session->changed_us = step->now_mono_us;
    if (session->pending_complete) {
        session->completed_round = session->state.round;
        session->completed_count = (int64_t)session->state.participants.count;
    }
    if (session->pending_exit) {
        session->has_joined = false;
        mst__state_close(&session->joined);
        session->finished = 0; /* of the round that was left */
    }
    if (session->pending_beat) {
        session->has_beat = true;
        session->beat_us = session->pending_beat_us;
    }
    session->is_stage_unsaved = false;
    session->losses = 0;
    session->is_held = false;
    session->is_hold_over = false;
    return step_synced(step, false);
}

static void session_count_loss(struct mst__session *session)
{
    session->stats.losses++;
    session->losses++;
    session_revert_stage(session);
    session->is_held = false;
    session->is_hold_over = false;
}

/* Our copy is only good for deciding how long to wait. */
static int step_lost_unread(struct session_step *step)
{
    struct mst__session *session = step->session;
    session_count_loss(session);
    int64_t hold_us = mst__session_hold_us(session, session->action, &step->prng);
    session_forget(session);
    return step_hold_until(step, step->now_mono_us + hold_us, false);
}

static int step_lost(struct session_step *step, const struct mst__session_event *event)
{
    struct mst__session *session = step->session;
    session_count_loss(session);
    if (event->kind == MST_EVENT_ABSENT && session_is_exact(session)) {
        session_drop_token(session); /* the unsaved copy stays for one decision */
    } else {
        session_install(session, event, step->now_mono_us);
    }
    return step_synced(step, event->is_past);
}

/* --- steps --- */

static int step_begin(struct session_step *step, const struct mst__session_event *event)
{
    struct mst__session *session = step->session;
    session->operation = event->operation;
    session->stage = event->operation == MST_OPERATION_NEXT ? MST_OPERATION_EXIT : event->operation;
    session->is_stage_unsaved = false;
    session->deadline_us = event->deadline_us;
    session->is_cancelled = false;
    session->losses = 0;
    session->is_held = false;
    session->is_hold_over = false;
    int64_t spread_us = mst__session_spread_us(session, step->now_mono_us, &step->prng);
    if (spread_us > 0) {
        return step_hold_until(step, step->now_mono_us + spread_us, false);
    }
    return step_sync(step);
}

/* The wait is over, or another one is better. */
static int step_waited(struct session_step *step, enum mst__event_kind kind)
{
    struct mst__session *session = step->session;
    if (kind == MST_EVENT_CANCEL) {
        session->is_cancelled = true;
        session->deadline_us = step->now_mono_us - 1;
        session->is_hold_over = true;
        return step_sync(step);
    }
    bool is_over = step->now_mono_us >= session->until_us;
    if (is_over) {
        session->is_hold_over = session->is_hold_over || session->wait == MST_WAIT_HOLD;
        return step_sync(step);
    }
    if (kind == MST_EVENT_TIME || !session->wants_change) {
        /* Not yet; repeat the effect. */
        return step_wait(step, session->wait, session->wants_change, session->until_us);
    }
    int64_t gathered_us = mst__saturate_add(session->synced_us, mst__session_gather_us(session));
    if (session->wait == MST_WAIT_POLL && gathered_us > step->now_mono_us &&
        gathered_us < session->until_us) {
        return step_wait(step, MST_WAIT_GATHER, false, gathered_us);
    }
    return step_sync(step);
}

/* A request of ours has ended, and we have not learned what the record is. */
static void step_missed(struct session_step *step)
{
    struct mst__session *session = step->session;
    if (!session_is_exact(session)) {
        mst__observer_pass(&session->observer, &session->options.settings, session->asked_us,
                           step->now_mono_us);
    }
}

static int step_event(struct session_step *step, const struct mst__session_event *event)
{
    switch (event->kind) {
        case MST_EVENT_BEGIN:
            return step_begin(step, event);
        case MST_EVENT_READ:
        case MST_EVENT_READ_NONE:
            session_install(step->session, event, step->now_mono_us);
            return step_synced(step, event->is_past);
        case MST_EVENT_WON:
            return step_won(step, event);
        case MST_EVENT_LOST:
        case MST_EVENT_ABSENT:
            return step_lost(step, event);
        case MST_EVENT_LOST_UNREAD:
            step_missed(step);
            return step_lost_unread(step);
        case MST_EVENT_FAILED:
            step_missed(step);
            return step_failed(step, MST_RESULT_CONNECTION);
        case MST_EVENT_BROKEN:
            step_missed(step);
            return step_failed(step, MST_RESULT_STATE);
        case MST_EVENT_WOKEN:
        case MST_EVENT_TIME:
        case MST_EVENT_CANCEL:
            break;
    }
    return step_waited(step, event->kind);
}

/* Whether @event is allowed in this phase and complete. */
static bool session_knows(const struct mst__session *session,
                          const struct mst__session_event *event)
{
    bool has_state = event->state != NULL;
    bool has_token = event->token != NULL;
    enum mst__session_phase phase = session->phase;
    switch (event->kind) {
        case MST_EVENT_BEGIN:
            return phase == MST_SESSION_IDLE && !has_state && !has_token;
        case MST_EVENT_READ:
            return phase == MST_SESSION_READING && has_state && has_token;
        case MST_EVENT_READ_NONE:
            return phase == MST_SESSION_READING && !has_state && !has_token;
        case MST_EVENT_WON:
            return phase == MST_SESSION_WRITING && !has_state && has_token;
        case MST_EVENT_LOST:
            return phase == MST_SESSION_WRITING && has_state && has_token;
        case MST_EVENT_ABSENT:
            return phase == MST_SESSION_WRITING && !has_state && !has_token;
        case MST_EVENT_LOST_UNREAD:
            return phase == MST_SESSION_WRITING && !has_state && !has_token &&
                   session_may_lose_unread(session);
        case MST_EVENT_FAILED:
        case MST_EVENT_BROKEN:
            return (phase == MST_SESSION_READING || phase == MST_SESSION_WRITING) && !has_state &&
                   !has_token;
        case MST_EVENT_WOKEN:
        case MST_EVENT_TIME:
        case MST_EVENT_CANCEL:
            return phase == MST_SESSION_WAITING && !has_state && !has_token;
    }
    return false;
}

int mst__session_step(struct mst__session *session,
                      const struct mst__session_event *event,
                      int64_t now_us,
                      int64_t now_mono_us,
                      uint64_t seed,
                      struct mst__effect *ret_effect)
{
    int rv = MST_EINVAL;
    if (session_knows(session, event)) {
        struct session_step step = {
            .session = session,
            .now_us = now_us,
            .now_mono_us = now_mono_us,
            .effect = ret_effect,
        };
        mst__prng_init(&step.prng, seed);
        rv = step_event(&step, event);
    }
    /* Taken in any case, so that callers need not check. */
    if (event->state != NULL) {
        mst__state_close(event->state);
    }
    if (event->token != NULL) {
        mst__free(event->token->data);
        *event->token = (struct mst_buffer){NULL, 0};
    }
    return rv;
}
