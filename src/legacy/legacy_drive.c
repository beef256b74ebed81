/* legacy/legacy_drive.c - the loop between a legacy machine and an etcd.
 *
 * The machine is told if a request got no answer; nothing is repeated here. Errors that a retry
 * cannot cure, such as an etcd without its v2 API or a refused user, end the operation. */
#include "legacy/legacy_drive.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/prng.h"
#include "etcd/legacy_doc.h"

/* An etcd that has lost its leader reports that after seven seconds. */
#define CALL_MS_MAX 8000

/* A refreshed key expires after ten seconds, and must be tried more than once before. */
#define REFRESH_MS_MAX 3000

/* The current operation. */
struct run {
    const struct mst__legacy_drive *drive;
    struct mst__legacy *legacy;
    bool is_interrupted;
    bool is_told;       /* the machine knows of the interruption */
    bool is_failing;    /* the last request got no answer */
    int64_t tidy_ms;    /* deadline of the cleanup, if is_interrupted */
    struct mst_err err; /* the last error */
    struct mst__prng prng;

    /* The round before our entries were removed; version 0 = none. */
    int64_t version;
    enum mst__legacy_status status;
    size_t participant_count;
    int64_t waiting_count;
};

/* The parts of an answer to an effect; event points into it. */
struct answer {
    struct mst__legacy_event event;
    struct mst__v2_answer v2;
    struct mst__legacy_doc doc;
    struct mst__legacy_entry *entries;
};

static void answer_init(struct answer *answer)
{
    *answer = (struct answer){.entries = NULL};
    mst__v2_answer_init(&answer->v2);
    mst__legacy_doc_init(&answer->doc);
}

/* Release the memory of the last event. */
static void answer_clear(struct answer *answer)
{
    mst__v2_answer_close(&answer->v2);
    mst__legacy_doc_close(&answer->doc);
    mst__free(answer->entries);
    answer->entries = NULL;
}

/* --- interruption --- */

/* Check for an interruption. */
static void run_notice(struct run *run)
{
    if (run->is_interrupted) {
        return;
    }
    run->is_interrupted = mst__until_is_woken(run->drive->wake_fd);
    run->tidy_ms = mst__clock_deadline_ms(MST_LEGACY_TIDY_US / 1000);
}

/* The deadline of a request. */
static struct mst__until run_until(const struct run *run, int64_t most_ms)
{
    int64_t call_ms = mst__min(run->drive->call_ms, most_ms);
    int64_t deadline_ms = mst__clock_ms() + call_ms;
    int64_t end_ms = run->legacy->deadline_us / 1000 + MST_LEGACY_TIDY_US / 1000;
    deadline_ms = mst__min(end_ms, deadline_ms);
    if (run->is_interrupted && run->tidy_ms < deadline_ms) {
        deadline_ms = run->tidy_ms;
    }
    return (struct mst__until){.deadline_ms = deadline_ms,
                               .wake_fd = run->is_interrupted ? -1 : run->drive->wake_fd};
}

/* --- answers --- */

/* Whether a retry could help. */
static bool is_passing(int rv)
{
    return rv == MST_ECONN || rv == MST_ETIMEOUT || rv == MST_EUNKNOWN || rv == MST_ECANCELED ||
           rv == MST_ERESOLVE;
}

/* The request got the answer in @answer->v2, or failed with @rv. 0, or @rv if that is final. */
static int run_heard(struct run *run, int rv, bool is_write, struct answer *answer)
{
    const struct mst__legacy_drive *drive = run->drive;
    if (rv != 0 && !is_passing(rv)) {
        return rv;
    }
    if (rv != 0) {
        bool may_be_done = is_write && (rv == MST_EUNKNOWN || rv == MST_ECANCELED);
        answer->event.kind = may_be_done ? MST_LEGACY_EVENT_UNKNOWN : MST_LEGACY_EVENT_FAILED;
        run_notice(run);
        if (drive->on_reach != NULL && !run->is_interrupted) {
            run->is_failing = true;
            drive->on_reach(drive->arg, &run->err);
        }
        return 0;
    }
    answer->event.kind = MST_LEGACY_EVENT_ANSWER;
    answer->event.code = (int)answer->v2.code;
    answer->event.index = answer->v2.index;
    answer->event.modified = answer->v2.node.modified;
    if (run->is_failing) {
        run->is_failing = false;
        drive->on_reach(drive->arg, NULL);
    }
    return 0;
}

/* Put the value of the answered node into the event. */
static int run_value(struct run *run,
                     const struct mst__legacy_effect *effect,
                     struct answer *answer)
{
    const struct mst__v2_node *node = &answer->v2.node;
    struct mst_bytes value = mst_bytes_of(node->value.data, node->value.size);
    if (answer->event.kind != MST_LEGACY_EVENT_ANSWER || answer->event.code != 0) {
        return 0;
    }
    if (!effect->is_doc) {
        answer->event.value = value;
        return 0;
    }
    int rv = node->is_dir
                 ? mst__fail(&run->err, MST_ESTATE, 0, "'%.100s' is a directory", effect->key)
                 : mst__legacy_doc_parse(value, &answer->doc, &run->err);
    if (rv == MST_ESTATE) {
        (void)mst__err_wrap(&run->err, rv, "'%.80s' of %.60s", effect->key,
                            mst__v2_where(run->drive->v2));
        answer->event.kind = MST_LEGACY_EVENT_BROKEN;
        return 0;
    }
    answer->event.doc = &answer->doc;
    return rv;
}

/* --- requests --- */

static int run_get(struct run *run, const struct mst__legacy_effect *effect, struct answer *answer)
{
    struct mst__until until = run_until(run, CALL_MS_MAX);
    int rv = mst__v2_get(run->drive->v2, effect->key, false, false, until, &answer->v2, &run->err);
    rv = run_heard(run, rv, false, answer);
    return rv == 0 ? run_value(run, effect, answer) : rv;
}

static const char *last_component(const char *key)
{
    const char *slash = strrchr(key, '/');
    return slash == NULL ? key : slash + 1;
}

static int run_list(struct run *run, const struct mst__legacy_effect *effect, struct answer *answer)
{
    struct mst__until until = run_until(run, CALL_MS_MAX);
    int rv = mst__v2_get(run->drive->v2, effect->key, false, false, until, &answer->v2, &run->err);
    rv = run_heard(run, rv, false, answer);
    size_t count = answer->v2.node.node_count;
    if (rv != 0 || answer->event.kind != MST_LEGACY_EVENT_ANSWER || answer->event.code != 0 ||
        count == 0) {
        return rv;
    }
    answer->entries = mst__calloc(count, sizeof *answer->entries);
    if (answer->entries == NULL) {
        return mst__fail(&run->err, MST_ENOMEM, 0, "%zu keys", count);
    }
    for (size_t i = 0; i < count; i++) {
        const struct mst__v2_node *node = &answer->v2.node.nodes[i];
        answer->entries[i] = (struct mst__legacy_entry){
            .name = last_component(node->key),
            .value = mst_bytes_of(node->value.data, node->value.size),
            .has_ttl = node->has_ttl,
            .ttl_s = node->ttl_s,
        };
    }
    answer->event.entries = answer->entries;
    answer->event.entry_count = count;
    return 0;
}

static enum mst__v2_if condition_of(enum mst__legacy_if condition)
{
    switch (condition) {
        case MST_LEGACY_IF_ABSENT:
            return MST_V2_IF_ABSENT;
        case MST_LEGACY_IF_PRESENT:
            return MST_V2_IF_PRESENT;
        case MST_LEGACY_IF_INDEX:
            return MST_V2_IF_INDEX;
        case MST_LEGACY_ALWAYS:
            break;
    }
    return MST_V2_ALWAYS;
}

/* PUT and DELETE */
static int run_write(struct run *run,
                     const struct mst__legacy_effect *effect,
                     struct answer *answer)
{
    struct mst__buf text;
    mst__buf_init(&text, MST_VALUE_SIZE_DEFAULT);
    struct mst__v2_write write = {
        .key = effect->key,
        .condition = condition_of(effect->condition),
        .previous_index = effect->previous_index,
        .value = effect->value,
        .is_dir = effect->is_dir,
        .is_refresh = effect->is_refresh,
        .ttl_s = effect->ttl_s == MST_LEGACY_NO_TTL ? MST_V2_NO_TTL : effect->ttl_s,
    };
    int rv = 0;
    if (effect->doc != NULL) {
        rv = mst__legacy_doc_write(effect->doc, &text);
        rv = rv == 0 ? 0 : mst__fail(&run->err, rv, 0, "document of the rendezvous");
        write.value = mst__buf_bytes(&text);
    }
    if (rv == 0) {
        struct mst__until until = run_until(run, effect->is_refresh ? REFRESH_MS_MAX : CALL_MS_MAX);
        struct mst__v2 *v2 = run->drive->v2;
        rv = effect->kind == MST_LEGACY_PUT
                 ? mst__v2_put(v2, &write, until, &answer->v2, &run->err)
                 : mst__v2_delete(v2, &write, effect->is_dir, until, &answer->v2, &run->err);
        rv = run_heard(run, rv, true, answer);
    }
    mst__buf_close(&text);
    return rv;
}

/* --- waiting --- */

static bool is_removal(enum mst__v2_action action)
{
    return action == MST_V2_DELETE || action == MST_V2_EXPIRE ||
           action == MST_V2_COMPARE_AND_DELETE;
}

static int run_poll(struct run *run, const struct mst__legacy_effect *effect, struct answer *answer)
{
    struct mst__until until = {
        .deadline_ms = effect->until_us / 1000 + (effect->until_us % 1000 == 0 ? 0 : 1),
        .wake_fd = run->drive->wake_fd,
    };
    int rv = mst__v2_wait(run->drive->v2, effect->key, false, effect->from_index, until,
                          &answer->v2, &run->err);
    if (rv == MST_ETIMEOUT && mst__until_is_over(until)) {
        run->err = (struct mst_err){0}; /* nothing has failed */
        answer->event.kind = MST_LEGACY_EVENT_TIME;
        return 0;
    }
    rv = run_heard(run, rv, false, answer);
    if (rv != 0 || answer->event.kind != MST_LEGACY_EVENT_ANSWER || answer->event.code != 0) {
        return rv;
    }
    answer->event.index = answer->v2.node.modified;
    if (is_removal(answer->v2.action) || strcmp(answer->v2.node.key, effect->key) != 0) {
        answer->event.code = MST_V2_NOT_FOUND;
        return 0;
    }
    return run_value(run, effect, answer);
}

static int run_wait(struct run *run, const struct mst__legacy_effect *effect, struct answer *answer)
{
    int rv = 0;
    if (!run->is_interrupted) {
        if (effect->kind == MST_LEGACY_WAIT) {
            rv = run_poll(run, effect, answer);
        } else {
            (void)mst__until_pause(run->drive->wake_fd, effect->until_us); /* checked below */
            answer->event.kind = MST_LEGACY_EVENT_TIME;
        }
        run_notice(run);
    } else if (run->is_told) {
        /* The machine knows, and pauses before its next request: as long as the cleanup may
         * take. */
        int64_t tidy_us = run->tidy_ms * 1000;
        (void)mst__until_pause(-1, mst__min(effect->until_us, tidy_us));
        answer->event.kind = MST_LEGACY_EVENT_TIME;
    }
    if (run->is_interrupted && !run->is_told) {
        run->is_told = true;
        answer_clear(answer); /* a simultaneous change does not matter any more */
        answer->event = (struct mst__legacy_event){.kind = MST_LEGACY_EVENT_CANCEL};
        rv = 0;
    }
    return rv;
}

/* --- the end --- */

static int end_late(const struct run *run, struct mst_err *reterr)
{
    const struct mst__legacy *legacy = run->legacy;
    if (legacy->operation == MST_LEGACY_OP_WATCH) {
        return mst__fail(reterr, MST_ETIMEOUT, 0, "nothing has changed");
    }
    if (legacy->operation != MST_LEGACY_OP_NEXT || run->err.code != 0) {
        const char *why = run->err.code != 0 ? run->err.msg : "others were always quicker";
        return mst__fail(reterr, MST_ETIMEOUT, 0, "not done in time: %s", why);
    }
    if (run->version == 0) {
        return mst__fail(reterr, MST_ETIMEOUT, 0, "no round was opened in time");
    }
    return mst__fail(reterr, MST_ETIMEOUT, 0,
                     "round %" PRId64 " was still %s when the time was over: %zu took part, "
                     "%" PRId64 " waited, and at least %" PRId64 " nodes are wanted",
                     run->version, mst__legacy_status_name(run->status), run->participant_count,
                     run->waiting_count, legacy->options.nodes_min);
}

static int run_end(const struct run *run,
                   const struct mst__legacy_outcome *outcome,
                   struct mst_err *reterr)
{
    switch (outcome->result) {
        case MST_LEGACY_OK:
            return 0;
        case MST_LEGACY_RESULT_CLOSED:
            return mst__fail(reterr, MST_ECLOSED, 0, "it is closed");
        case MST_LEGACY_TIMEOUT:
            return end_late(run, reterr);
        case MST_LEGACY_CANCELLED:
            return mst__fail(reterr, MST_ECANCELED, 0, "cancelled");
        case MST_LEGACY_MISMATCH:
            return mst__fail(reterr, MST_EINVAL, 0,
                             "the other nodes have the limits %" PRId64 ":%" PRId64
                             ", this one %" PRId64 ":%" PRId64 "; they must be the same",
                             outcome->theirs_min, outcome->theirs_max,
                             run->legacy->options.nodes_min, run->legacy->options.nodes_max);
        case MST_LEGACY_STATE:
        case MST_LEGACY_CONNECTION:
            break;
    }
    bool is_state = outcome->result == MST_LEGACY_STATE;
    int code = is_state ? MST_ESTATE : MST_ECONN;
    if (run->err.code == 0) {
        return mst__fail(reterr, code, 0, "unexpected state of '%.100s' at %.60s",
                         run->legacy->active, mst__v2_where(run->drive->v2));
    }
    return mst__err_pass(reterr, code, &run->err);
}

static int run_effect(struct run *run,
                      const struct mst__legacy_effect *effect,
                      struct answer *answer)
{
    int rv = 0;
    run->err = (struct mst_err){0};
    answer->event = (struct mst__legacy_event){.kind = MST_LEGACY_EVENT_FAILED};
    if (effect->kind == MST_LEGACY_WAIT || effect->kind == MST_LEGACY_PAUSE) {
        return run_wait(run, effect, answer);
    }
    switch (effect->kind) {
        case MST_LEGACY_GET:
            rv = run_get(run, effect, answer);
            break;
        case MST_LEGACY_LIST:
            rv = run_list(run, effect, answer);
            break;
        case MST_LEGACY_PUT:
        case MST_LEGACY_DELETE:
            rv = run_write(run, effect, answer);
            break;
        case MST_LEGACY_WAIT:
        case MST_LEGACY_PAUSE:
        case MST_LEGACY_DONE:
            MST_ASSERT(effect->kind != MST_LEGACY_DONE);
            break;
    }
    return rv;
}

/* Remember the state for a message about a timeout. */
static void run_see(struct run *run)
{
    const struct mst__legacy *legacy = run->legacy;
    if (!legacy->is_tidying && legacy->is_known && legacy->exists) {
        run->version = legacy->doc.version;
        run->status = legacy->doc.status;
        run->participant_count = legacy->doc.participant_count;
        run->waiting_count = legacy->doc.waiting_count;
    }
}

/* End the operation before the machine does. */
static int run_abort(struct run *run, int rv, struct mst_err *reterr)
{
    mst__legacy_abort(run->legacy);
    return mst__err_pass(reterr, rv, &run->err);
}

int mst__legacy_drive(const struct mst__legacy_drive *drive,
                      struct mst__legacy *legacy,
                      enum mst__legacy_operation operation,
                      int64_t deadline_us,
                      struct mst__legacy_outcome *ret_outcome,
                      struct mst_err *reterr)
{
    struct run run = {.drive = drive, .legacy = legacy};
    struct answer answer;
    answer_init(&answer);
    answer.event = (struct mst__legacy_event){
        .kind = MST_LEGACY_EVENT_BEGIN, .operation = operation, .deadline_us = deadline_us};
    mst__prng_init(&run.prng, mst__clock_random_u64());
    for (;;) {
        struct mst__legacy_effect effect;
        int rv = mst__legacy_step(legacy, &answer.event, mst__clock_us(), mst__prng_next(&run.prng),
                                  &effect);
        answer_clear(&answer);
        run_see(&run);
        MST_ASSERT(rv != MST_EINVAL);
        if (rv != 0) {
            return mst__fail(reterr, rv, 0, "%s", mst_strerror(rv));
        }
        if (effect.kind == MST_LEGACY_DONE) {
            if (effect.outcome.result == MST_LEGACY_OK && ret_outcome != NULL) {
                *ret_outcome = effect.outcome;
            }
            return run_end(&run, &effect.outcome, reterr);
        }
        if (run.is_interrupted && !drive->is_tidy) {
            (void)mst__fail(&run.err, MST_ECANCELED, 0, "cancelled");
            return run_abort(&run, MST_ECANCELED, reterr);
        }
        rv = run_effect(&run, &effect, &answer);
        if (rv != 0) {
            answer_clear(&answer);
            return run_abort(&run, rv, reterr);
        }
    }
}
