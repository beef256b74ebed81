/* record/drive.c - the loop between a session and a home.
 *
 * An interrupted write is not left in doubt if there is time: the record is read again, and
 * shows whether the write has arrived. */
#include "record/drive.h"

#include <inttypes.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/number.h"
#include "base/prng.h"
#include "codec/pickle.h"

/* Time for an interrupted operation to remove its entries from the record. */
#define TIDY_MS 2000

/* A spare waits without a deadline, but each call must end. */
#define CALL_MS_MIN 5000

/* The current operation. */
struct run {
    const struct mst__drive *drive;
    struct mst__session *session;
    bool is_interrupted;
    bool is_told;       /* the session knows of the interruption */
    int64_t tidy_ms;    /* deadline of the cleanup, if is_interrupted */
    struct mst_err err; /* the last error */
    struct mst__prng prng;
};

/* The parts of an answer to an effect; event points into it. */
struct answer {
    struct mst__session_event event;
    struct mst__state state;
    struct mst_buffer token;
};

/* --- interruption --- */

/* The descriptor that ends a wait of the run; -1 once it is interrupted. */
static int run_wake_fd(const struct run *run)
{
    return run->is_interrupted ? -1 : run->drive->wake_fd;
}

/* Whether the run was interrupted just now. */
static bool run_notice(struct run *run)
{
    if (run->is_interrupted) {
        return false;
    }
    run->is_interrupted = mst__until_is_woken(run->drive->wake_fd);
    run->tidy_ms = mst__clock_deadline_ms(TIDY_MS);
    return run->is_interrupted;
}

/* The deadline of a call of the home. */
static struct mst__until run_until(const struct run *run)
{
    const struct mst__session *session = run->session;
    int64_t now_ms = mst__clock_ms();
    int64_t deadline_ms = now_ms + run->drive->home->call_ms;
    int64_t end_ms = session->deadline_us / 1000;
    bool has_answered = session->trip_us > 0;
    if (run->drive->home->is_lazy && !has_answered) {
        /* The server may start last: wait for it as long as for the other nodes. */
        deadline_ms = end_ms;
    } else if (session->operation == MST_OPERATION_NEXT ||
               session->operation == MST_OPERATION_JOIN) {
        end_ms += MST_ROLLBACK_US / 1000;
        end_ms = end_ms < now_ms + CALL_MS_MIN ? now_ms + CALL_MS_MIN : end_ms;
    }
    deadline_ms = mst__min(end_ms, deadline_ms);
    if (run->is_interrupted && run->tidy_ms < deadline_ms) {
        deadline_ms = run->tidy_ms;
    }
    return (struct mst__until){.deadline_ms = deadline_ms, .wake_fd = run_wake_fd(run)};
}

/* --- reading and writing --- */

static int call_get(struct run *run, struct mst__stored *ret_stored)
{
    const struct mst__record_home *home = run->drive->home;
    int rv = home->ops->get_state(home->self, run_until(run), ret_stored, &run->err);
    /* Without a write, nothing in the record needs cleaning up. */
    bool is_in_doubt = run->drive->is_tidy && run->session->stats.writes > 0;
    if (rv != 0 && run_notice(run) && is_in_doubt) {
        rv = home->ops->get_state(home->self, run_until(run), ret_stored, &run->err);
    }
    return rv;
}

static void answer_with(struct answer *answer, enum mst__event_kind kind)
{
    answer->event = (struct mst__session_event){.kind = kind};
}

static void answer_error(struct answer *answer, int rv)
{
    answer_with(answer, rv == MST_ESTATE ? MST_EVENT_BROKEN : MST_EVENT_FAILED);
}

/* Answer with the record in @stored, which is taken. */
static void answer_stored(struct run *run,
                          struct mst__stored *stored,
                          enum mst__event_kind kind,
                          enum mst__event_kind kind_none,
                          struct answer *answer)
{
    if (!stored->exists) {
        answer_with(answer, kind_none);
        return;
    }
    struct mst_bytes record = mst_bytes_of(stored->record.data, stored->record.size);
    const struct mst__drive *drive = run->drive;
    int64_t finished = 0;
    int rv = mst__pickle_read(record, &answer->state, &run->err);
    mst_buffer_free(&stored->record);
    if (rv == 0 && drive->count_finished != NULL &&
        mst__session_misses_members(run->session, &answer->state)) {
        rv = drive->count_finished(drive->self, &answer->state, &finished, &run->err);
    }
    if (rv != 0) {
        mst__state_close(&answer->state);
        mst_buffer_free(&stored->token);
        run->err.code = rv == MST_EPROTO ? MST_ESTATE : rv;
        answer_error(answer, run->err.code);
        return;
    }
    answer->token = stored->token;
    answer->event = (struct mst__session_event){.kind = kind,
                                                .state = &answer->state,
                                                .token = &answer->token,
                                                .finished = finished,
                                                .is_past = stored->is_past};
}

static void run_read(struct run *run, struct answer *answer)
{
    struct mst__stored stored = {0};
    int rv = call_get(run, &stored);
    if (rv != 0) {
        answer_error(answer, rv);
        return;
    }
    answer_stored(run, &stored, MST_EVENT_READ, MST_EVENT_READ_NONE, answer);
}

/* It is unknown whether @record was stored: read the record to find out. */
static int write_look(struct run *run,
                      struct mst_bytes record,
                      bool *ret_won,
                      struct mst__stored *ret_stored)
{
    int rv = call_get(run, ret_stored);
    if (rv != 0) {
        return rv;
    }
    *ret_won =
        ret_stored->exists &&
        mst__bytes_equal(mst_bytes_of(ret_stored->record.data, ret_stored->record.size), record);
    if (*ret_won) {
        mst_buffer_free(&ret_stored->record);
    }
    return 0;
}

static int write_record(struct run *run,
                        const struct mst__effect *effect,
                        struct mst_bytes record,
                        bool *ret_won,
                        struct mst__stored *ret_stored)
{
    const struct mst__record_home *home = run->drive->home;
    int rv =
        home->ops->set_state(home->self, record, effect->has_token ? &effect->token : NULL,
                             effect->may_be_unread, run_until(run), ret_won, ret_stored, &run->err);
    if (rv == 0 || rv == MST_ESTATE) {
        return rv;
    }
    bool is_interrupted = run_notice(run);
    if (is_interrupted ? run->drive->is_tidy : rv == MST_EUNKNOWN) {
        rv = write_look(run, record, ret_won, ret_stored);
    }
    return rv;
}

static void tell_write(const struct run *run)
{
    const struct mst__session *session = run->session;
    static const struct {
        const char *name;
        const char *message;
        enum mst_node_state state;
    } actions[] = {
        [MST_ACTION_KEEP_ALIVE] = {"keep_alive", "sends a heartbeat", MST_NODE_RUNNING},
        [MST_ACTION_ADD_TO_PARTICIPANTS] = {"add_to_participants", "enters the participants",
                                            MST_NODE_RUNNING},
        [MST_ACTION_ADD_TO_WAIT_LIST] = {"add_to_wait_list", "waits for the next round",
                                         MST_NODE_RUNNING},
        [MST_ACTION_ADD_TO_REDUNDANCY_LIST] = {"add_to_redundancy_list", "waits as a spare",
                                               MST_NODE_RUNNING},
        [MST_ACTION_REMOVE_FROM_PARTICIPANTS] = {"remove_from_participants",
                                                 "leaves the participants", MST_NODE_RUNNING},
        [MST_ACTION_REMOVE_FROM_WAIT_LIST] = {"remove_from_wait_list", "leaves the wait list",
                                              MST_NODE_RUNNING},
        [MST_ACTION_REMOVE_FROM_REDUNDANCY_LIST] = {"remove_from_redundancy_list",
                                                    "leaves the spares", MST_NODE_RUNNING},
        [MST_ACTION_MARK_RENDEZVOUS_COMPLETE] = {"mark_rendezvous_complete", "completes the round",
                                                 MST_NODE_SUCCEEDED},
        [MST_ACTION_MARK_RENDEZVOUS_CLOSED] = {"mark_rendezvous_closed", "closes the rendezvous",
                                               MST_NODE_SUCCEEDED},
        [MST_ACTION_START_LAST_CALL] = {"start_last_call", "starts the last call",
                                        MST_NODE_RUNNING},
    };
    MST_ASSERT(session->action < sizeof actions / sizeof actions[0]);
    const struct mst__events *events = run->drive->events;
    int64_t round = session->state.round;
    mst__event(events, actions[session->action].name, actions[session->action].state, round, -1,
               "Node '%s' %s of round %" PRId64 " of rendezvous '%s', if nobody is quicker.",
               events->node, actions[session->action].message, round, events->run_id);
}

static void tell_written(const struct run *run, bool won)
{
    const struct mst__events *events = run->drive->events;
    mst__event(events, "sync", MST_NODE_RUNNING, run->session->state.round, -1,
               won ? "The record of rendezvous '%s' is as node '%s' wrote it."
                   : "The record of rendezvous '%s' had changed before node '%s' could write it.",
               events->run_id, events->node);
}

static void run_write(struct run *run, const struct mst__effect *effect, struct answer *answer)
{
    struct mst__buf pickle;
    mst__buf_init(&pickle, MST_PICKLE_SIZE_MAX);
    struct mst__stored stored = {0};
    bool won = false;
    tell_write(run);
    int rv = mst__pickle_write(&pickle, effect->state);
    if (rv != 0) {
        rv = mst__fail(&run->err, rv == MST_EINVAL ? MST_ESTATE : rv, 0,
                       "the record cannot be written for peers of this release");
    } else {
        rv = write_record(run, effect, mst__buf_bytes(&pickle), &won, &stored);
    }
    mst__buf_close(&pickle);
    if (rv != 0) {
        answer_error(answer, rv);
        return;
    }
    tell_written(run, won);
    if (won) {
        answer->token = stored.token;
        answer->event = (struct mst__session_event){.kind = MST_EVENT_WON, .token = &answer->token};
    } else if (stored.is_unread) {
        answer_with(answer, MST_EVENT_LOST_UNREAD);
    } else {
        answer_stored(run, &stored, MST_EVENT_LOST, MST_EVENT_ABSENT, answer);
    }
}

/* --- waiting --- */

/* Wait until the record changes. Returns 0 or the error of the home. MST_ENOTSUP turns watching
 * off. */
static int wait_change(const struct mst__record_home *home,
                       struct mst__session *session,
                       int64_t skip,
                       int64_t until_us,
                       int wake_fd)
{
    struct mst_bytes token = mst_bytes_of(session->token.data, session->token.size);
    struct mst_err ignored;
    struct mst__until until = {.deadline_ms = until_us / 1000 + (until_us % 1000 == 0 ? 0 : 1),
                               .wake_fd = wake_fd};
    int rv = home->ops->wait_change(home->self, session->has_token ? &token : NULL, (uint64_t)skip,
                                    until, &ignored);
    if (rv == MST_ENOTSUP) {
        session->options.can_watch = false;
    }
    return rv;
}

static void run_wait(struct run *run, const struct mst__effect *effect, struct answer *answer)
{
    if (run->is_interrupted && !run->is_told) {
        run->is_told = true;
        answer_with(answer, MST_EVENT_CANCEL);
        return;
    }
    struct mst__session *session = run->session;
    int rv = MST_ETIMEOUT;
    if (effect->wants_change && session->options.can_watch) {
        rv = wait_change(run->drive->home, session, effect->skip, effect->until_us,
                         run_wake_fd(run));
    } else {
        (void)mst__until_pause(run_wake_fd(run), effect->until_us); /* checked below */
    }
    if (run_notice(run)) {
        run->is_told = true;
        answer_with(answer, MST_EVENT_CANCEL);
        return;
    }
    /* If the wait has failed, the next read reports the error. */
    answer_with(answer, rv == MST_ETIMEOUT ? MST_EVENT_TIME : MST_EVENT_WOKEN);
}

int mst__drive_wait(const struct mst__drive *drive, struct mst__session *session, int64_t until_us)
{
    int rv = MST_ETIMEOUT;
    if (session->options.can_watch) {
        rv = wait_change(drive->home, session, 0, until_us, drive->wake_fd);
    } else {
        (void)mst__until_pause(drive->wake_fd, until_us);
    }
    if (mst__until_is_woken(drive->wake_fd)) {
        return MST_ECANCELED;
    }
    return rv == MST_ETIMEOUT ? MST_ETIMEOUT : 0;
}

/* --- the end --- */

/* The error of the home, as an error of a handler. */
static int outcome_failed(const struct run *run, struct mst_err *reterr)
{
    int code = run->err.code;
    if (code != MST_ENOMEM && code != MST_ELIMIT && code != MST_ESTATE && code != MST_EAUTH &&
        code != MST_ENOTSUP) {
        code = MST_ECONN;
    }
    return mst__err_pass(reterr, code, &run->err);
}

static int outcome_late(const struct run *run, struct mst_err *reterr)
{
    const struct mst__session *session = run->session;
    if (session->stage != MST_OPERATION_JOIN) {
        return mst__fail(reterr, MST_ETIMEOUT, 0, "the record at %s kept changing",
                         run->drive->home->where);
    }
    return mst__fail(reterr, MST_ETIMEOUT, 0,
                     "round %" PRId64 " not complete in time: %zu others take part, %zu wait, and "
                     "at least %" PRId64 " nodes are wanted",
                     session->state.round, session->state.participants.count,
                     session->state.waiting.count, session->options.settings.nodes_min);
}

static int run_end(const struct run *run, enum mst__result result, struct mst_err *reterr)
{
    if (run->is_interrupted && result != MST_RESULT_OK) {
        return mst__fail(reterr, MST_ECANCELED, 0, "cancelled");
    }
    switch (result) {
        case MST_RESULT_OK:
            return 0;
        case MST_RESULT_CLOSED:
            return mst__fail(reterr, MST_ECLOSED, 0, "it is closed");
        case MST_RESULT_TIMEOUT:
            return outcome_late(run, reterr);
        case MST_RESULT_GRACEFUL_EXIT:
            return mst__fail(reterr, MST_ESPARE, 0,
                             "it was closed while this node was a spare; nothing is wrong");
        case MST_RESULT_STATE:
            if (run->err.code == 0) {
                return mst__fail(reterr, MST_ESTATE, 0, "unexpected record state at %s",
                                 run->drive->home->where);
            }
            return outcome_failed(run, reterr);
        case MST_RESULT_CANCELLED:
            return mst__fail(reterr, MST_ECANCELED, 0, "cancelled");
        case MST_RESULT_CONNECTION:
            break;
    }
    return outcome_failed(run, reterr);
}

static void run_effect(struct run *run, const struct mst__effect *effect, struct answer *answer)
{
    mst__state_init(&answer->state);
    answer->token = (struct mst_buffer){NULL, 0};
    run->err = (struct mst_err){0};
    switch (effect->kind) {
        case MST_EFFECT_READ:
            run_read(run, answer);
            return;
        case MST_EFFECT_WRITE:
            run_write(run, effect, answer);
            return;
        case MST_EFFECT_WAIT:
        case MST_EFFECT_DONE:
            break;
    }
    MST_ASSERT(effect->kind == MST_EFFECT_WAIT);
    run_wait(run, effect, answer);
}

int mst__drive(const struct mst__drive *drive,
               struct mst__session *session,
               enum mst__operation operation,
               int64_t deadline_us,
               struct mst__outcome *ret_outcome,
               struct mst_err *reterr)
{
    struct run run = {.drive = drive, .session = session};
    struct answer answer = {
        .event = {.kind = MST_EVENT_BEGIN, .operation = operation, .deadline_us = deadline_us}};
    mst__prng_init(&run.prng, mst__clock_random_u64());
    for (;;) {
        struct mst__effect effect;
        int rv = mst__session_step(session, &answer.event, mst__clock_wall_us(), mst__clock_us(),
                                   mst__prng_next(&run.prng), &effect);
        MST_ASSERT(rv != MST_EINVAL);
        if (rv != 0) {
            return mst__fail(reterr, rv, 0, "%s", mst_strerror(rv));
        }
        if (effect.kind == MST_EFFECT_DONE) {
            if (effect.outcome.result == MST_RESULT_OK && ret_outcome != NULL) {
                *ret_outcome = effect.outcome;
            }
            return run_end(&run, effect.outcome.result, reterr);
        }
        run_effect(&run, &effect, &answer);
    }
}
