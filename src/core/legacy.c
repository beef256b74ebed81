/* core/legacy.c - the machine of the legacy rendezvous: its life, its steps and its requests.
 * legacy_learn.c processes the answers; legacy_next.c and legacy_watch.c decide the next step.
 *
 * Invariants: while idle, no request is under way; a known document is the one that etcd had at
 * doc_index, and only a known one is overwritten. After a failure it is not known. */
#include "core/legacy.h"

#include <muster/error.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "core/legacy_self.h"
#include "core/saturate.h"

/* Pause after a failure; doubled each time. */
#define FAILED_US 50000
#define FAILED_BITS_MAX 4
/* Pause for a member of the cluster that lags behind. */
#define STALE_US 20000
/* Peers sleep for a second when they find a round in setup; if it were complete by then, it
 * would shut them out, round after round. */
#define LAST_CALL_US_MIN 1300000

/* --- paths --- */

/* Append @text to the path of @size bytes at *@at; false if it does not fit. */
static bool path_add(char *path, size_t size, size_t *at, const char *text)
{
    size_t length = strlen(text);
    if (length >= size - *at) {
        return false;
    }
    memcpy(path + *at, text, length + 1);
    *at += length;
    return true;
}

static bool path_add_number(char *path, size_t size, size_t *at, int64_t number)
{
    char digits[MST_NUMBER_SIZE + 1];
    digits[mst__number_format(number, digits)] = '\0';
    return path_add(path, size, at, digits);
}

bool mst__legacy_path(const struct mst__legacy *legacy,
                      int64_t version,
                      const char *name,
                      char *ret_path,
                      size_t size)
{
    size_t at = 0;
    ret_path[0] = '\0';
    return path_add(ret_path, size, &at, legacy->job) &&
           path_add(ret_path, size, &at, "/rdzv/v_") &&
           path_add_number(ret_path, size, &at, version) &&
           (name == NULL ||
            (path_add(ret_path, size, &at, "/") && path_add(ret_path, size, &at, name)));
}

/* A path of this job; it fits, because init has checked the sizes. */
static const char *turn_path(struct mst__legacy_turn *turn, int64_t version, const char *name)
{
    struct mst__legacy *legacy = turn->legacy;
    bool fits = mst__legacy_path(legacy, version, name, legacy->path, sizeof legacy->path);
    MST_ASSERT(fits);
    return legacy->path;
}

static const char *turn_key_path(struct mst__legacy_turn *turn)
{
    char name[32] = "muster_";
    mst__legacy_nonce_format(turn->legacy->options.nonce, name + strlen(name));
    return turn_path(turn, turn->legacy->key_version, name);
}

static const char *turn_rank_path(struct mst__legacy_turn *turn)
{
    char name[32] = "rank_";
    size_t at = strlen(name);
    (void)path_add_number(name, sizeof name, &at, turn->legacy->rank); /* 20 digits fit */
    return turn_path(turn, turn->legacy->rank_version, name);
}

int64_t mst__legacy_path_rank(const struct mst__legacy *legacy, const char *path)
{
    char start[MST_LEGACY_PATH_MAX];
    if (!mst__legacy_path(legacy, legacy->doc.version, "rank_", start, sizeof start)) {
        return -1;
    }
    /* A peer with a prefix without a slash leaves it out here, too. */
    const char *expected = path[0] == '/' ? start : start + 1;
    size_t size = strlen(expected);
    int64_t rank;
    if (strncmp(path, expected, size) != 0 ||
        !mst__number_parse(mst_bytes_str(path + size), 0, MST_MEMBERS_MAX, &rank)) {
        return -1;
    }
    return rank;
}

size_t mst__legacy_limits(const struct mst__legacy *legacy, char ret_text[MST_LEGACY_LIMITS_SIZE])
{
    size_t at = 0;
    bool fits = path_add_number(ret_text, MST_LEGACY_LIMITS_SIZE, &at, legacy->options.nodes_min) &&
                path_add(ret_text, MST_LEGACY_LIMITS_SIZE, &at, ":") &&
                path_add_number(ret_text, MST_LEGACY_LIMITS_SIZE, &at, legacy->options.nodes_max);
    MST_ASSERT(fits);
    return at;
}

/* --- life --- */

static char *init_join(const char *a, const char *b, const char *c)
{
    size_t size = strlen(a) + strlen(b) + strlen(c) + 1;
    char *text = mst__malloc(size);
    size_t at = 0;
    if (text != NULL) {
        bool fits = path_add(text, size, &at, a) && path_add(text, size, &at, b) &&
                    path_add(text, size, &at, c);
        MST_ASSERT(fits);
    }
    return text;
}

/* The directory of the job: a slash before the prefix, none after it, none doubled. */
static char *init_job(const char *prefix, const char *run_id)
{
    size_t size = strlen(prefix) + strlen(run_id) + sizeof "//run_";
    char *job = mst__malloc(size);
    if (job == NULL) {
        return NULL;
    }
    size_t at = 0;
    job[at++] = '/';
    for (const char *from = prefix; *from != '\0'; from++) {
        if (*from != '/' || job[at - 1] != '/') {
            job[at++] = *from;
        }
    }
    if (job[at - 1] != '/') {
        job[at++] = '/';
    }
    bool fits = path_add(job, size, &at, "run_") && path_add(job, size, &at, run_id);
    MST_ASSERT(fits);
    return job;
}

int mst__legacy_init(struct mst__legacy *legacy, const struct mst__legacy_options *options)
{
    *legacy = (struct mst__legacy){.options = *options};
    legacy->options.prefix = NULL;
    legacy->options.run_id = NULL;
    mst__legacy_doc_init(&legacy->doc);
    mst__legacy_doc_init(&legacy->next);
    MST_ASSERT(options->nonce != 0);
    MST_ASSERT(options->nodes_min >= 1);
    MST_ASSERT(options->nodes_max >= options->nodes_min);
    if (options->nodes_max > MST_MEMBERS_MAX) {
        legacy->options.nodes_max = MST_MEMBERS_MAX;
    }
    if (options->last_call_us < LAST_CALL_US_MIN) {
        legacy->options.last_call_us = LAST_CALL_US_MIN;
    }
    /* The longest suffix: "/rdzv/v_<20 digits>/muster_<16 digits>". */
    if (strlen(options->prefix) + strlen(options->run_id) + 80 > MST_LEGACY_PATH_MAX) {
        return MST_EINVAL;
    }
    legacy->job = init_job(options->prefix, options->run_id);
    if (legacy->job != NULL) {
        legacy->active = init_join(legacy->job, "/rdzv/", "active_version");
        legacy->counter = init_join(legacy->job, "/rdzv/", "version_counter");
    }
    return legacy->active == NULL || legacy->counter == NULL ? MST_ENOMEM : 0;
}

void mst__legacy_close(struct mst__legacy *legacy)
{
    mst__free(legacy->job);
    mst__free(legacy->active);
    mst__free(legacy->counter);
    mst__free(legacy->lost);
    legacy->job = legacy->active = legacy->counter = NULL;
    legacy->lost = NULL;
    mst__legacy_doc_close(&legacy->doc);
    mst__legacy_doc_close(&legacy->next);
    mst__legacy_listing_close(&legacy->listing);
}

void mst__legacy_abort(struct mst__legacy *legacy)
{
    legacy->phase = MST_LEGACY_IDLE;
    legacy->ask = MST_ASK_NONE;
    legacy->is_known = false;
    legacy->is_tidying = false;
}

/* --- effects --- */

static void turn_move(struct mst__legacy_turn *turn, enum mst__legacy_phase to)
{
    /* A step may end an operation at once, so every phase can follow every other one. */
    turn->legacy->phase = to;
    MST_ASSERT(turn->legacy->job != NULL);
}

int mst__legacy_done(struct mst__legacy_turn *turn, struct mst__legacy_outcome outcome)
{
    turn_move(turn, MST_LEGACY_IDLE);
    turn->legacy->ask = MST_ASK_NONE;
    turn->legacy->is_tidying = false;
    *turn->effect = (struct mst__legacy_effect){.kind = MST_LEGACY_DONE, .outcome = outcome};
    return 0;
}

int mst__legacy_end(struct mst__legacy_turn *turn, enum mst__legacy_result result)
{
    struct mst__legacy_outcome outcome = {.result = result};
    return mst__legacy_done(turn, outcome);
}

static int turn_ask(struct mst__legacy_turn *turn,
                    enum mst__legacy_ask ask,
                    struct mst__legacy_effect effect)
{
    struct mst__legacy *legacy = turn->legacy;
    turn_move(turn, MST_LEGACY_ASKING);
    legacy->ask = (int)ask;
    legacy->asked_us = turn->now_us;
    legacy->stats.requests++;
    *turn->effect = effect;
    return 0;
}

int mst__legacy_ask_doc(struct mst__legacy_turn *turn)
{
    return turn_ask(turn, MST_ASK_DOC,
                    (struct mst__legacy_effect){
                        .kind = MST_LEGACY_GET, .key = turn->legacy->active, .is_doc = true});
}

static int turn_write(struct mst__legacy_turn *turn,
                      enum mst__legacy_ask ask,
                      enum mst__legacy_if condition)
{
    struct mst__legacy *legacy = turn->legacy;
    legacy->stats.swaps++;
    legacy->has_written = true;
    return turn_ask(turn, ask,
                    (struct mst__legacy_effect){
                        .kind = MST_LEGACY_PUT,
                        .key = legacy->active,
                        .is_doc = true,
                        .condition = condition,
                        .previous_index = condition == MST_LEGACY_IF_INDEX ? legacy->doc_index : 0,
                        .doc = &legacy->next,
                        .ttl_s = mst__legacy_edit_ttl_s(legacy),
                    });
}

int mst__legacy_ask_swap(struct mst__legacy_turn *turn)
{
    MST_ASSERT(turn->legacy->is_known);
    MST_ASSERT(turn->legacy->exists);
    MST_ASSERT(turn->legacy->next.status != MST_LEGACY_OTHER);
    return turn_write(turn, MST_ASK_SWAP, MST_LEGACY_IF_INDEX);
}

int mst__legacy_ask_create(struct mst__legacy_turn *turn)
{
    return turn_write(turn, MST_ASK_CREATE, MST_LEGACY_IF_ABSENT);
}

int mst__legacy_ask_drop(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    MST_ASSERT(legacy->is_known);
    MST_ASSERT(legacy->doc.status != MST_LEGACY_CLOSED);
    return turn_ask(turn, MST_ASK_DROP,
                    (struct mst__legacy_effect){.kind = MST_LEGACY_DELETE,
                                                .key = legacy->active,
                                                .condition = MST_LEGACY_IF_INDEX,
                                                .previous_index = legacy->doc_index});
}

int mst__legacy_ask_list(struct mst__legacy_turn *turn)
{
    return turn_ask(
        turn, MST_ASK_LIST,
        (struct mst__legacy_effect){.kind = MST_LEGACY_LIST,
                                    .key = turn_path(turn, turn->legacy->doc.version, NULL)});
}

/* Read the counter, create it, or take the next number. */
int mst__legacy_ask_counter(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    struct mst__legacy_effect effect = {
        .kind = MST_LEGACY_PUT, .key = legacy->counter, .ttl_s = MST_LEGACY_NO_TTL};
    if (legacy->is_counter_absent) {
        effect.condition = MST_LEGACY_IF_ABSENT;
        effect.value = mst_bytes_str("0");
        return turn_ask(turn, MST_ASK_COUNTER_NEW, effect);
    }
    if (legacy->counter_index == 0) {
        effect.kind = MST_LEGACY_GET;
        return turn_ask(turn, MST_ASK_COUNTER, effect);
    }
    size_t size = mst__number_format(legacy->counter_value + 1, legacy->text);
    effect.condition = MST_LEGACY_IF_INDEX;
    effect.previous_index = legacy->counter_index;
    effect.value = mst_bytes_of(legacy->text, size);
    return turn_ask(turn, MST_ASK_CLAIM, effect);
}

int mst__legacy_ask_key(struct mst__legacy_turn *turn, int64_t version)
{
    struct mst__legacy *legacy = turn->legacy;
    legacy->key_version = version;
    legacy->has_key = false;
    legacy->is_withdrawn = false;
    size_t size = mst__legacy_limits(legacy, legacy->text);
    return turn_ask(turn, MST_ASK_KEY,
                    (struct mst__legacy_effect){.kind = MST_LEGACY_PUT,
                                                .key = turn_key_path(turn),
                                                .value = mst_bytes_of(legacy->text, size),
                                                .ttl_s = MST_LEGACY_TTL_KEY});
}

int mst__legacy_ask_rank(struct mst__legacy_turn *turn, int64_t version, int64_t rank)
{
    struct mst__legacy *legacy = turn->legacy;
    legacy->rank_version = version;
    legacy->rank = rank;
    legacy->has_rank = false;
    return turn_ask(turn, MST_ASK_RANK,
                    (struct mst__legacy_effect){.kind = MST_LEGACY_PUT,
                                                .key = turn_rank_path(turn),
                                                .ttl_s = MST_LEGACY_TTL_KEY});
}

int mst__legacy_ask_plain(struct mst__legacy_turn *turn, enum mst__legacy_ask ask)
{
    struct mst__legacy *legacy = turn->legacy;
    struct mst__legacy_effect refresh = {.kind = MST_LEGACY_PUT,
                                         .condition = MST_LEGACY_IF_PRESENT,
                                         .ttl_s = MST_LEGACY_TTL_KEY,
                                         .is_refresh = true};
    struct mst__legacy_effect make = {.kind = MST_LEGACY_PUT,
                                      .condition = MST_LEGACY_IF_ABSENT,
                                      .ttl_s = MST_LEGACY_NO_TTL,
                                      .is_dir = true};
    struct mst__legacy_effect drop = {.kind = MST_LEGACY_DELETE, .condition = MST_LEGACY_ALWAYS};
    switch (ask) {
        case MST_ASK_KEY_BEAT:
            refresh.key = turn_key_path(turn);
            return turn_ask(turn, ask, refresh);
        case MST_ASK_RANK_BEAT:
            refresh.key = turn_rank_path(turn);
            return turn_ask(turn, ask, refresh);
        case MST_ASK_JOB_BEAT:
            refresh.key = legacy->job;
            refresh.ttl_s = MST_LEGACY_TTL_JOB;
            return turn_ask(turn, ask, refresh);
        case MST_ASK_KEY_DROP:
            drop.key = turn_key_path(turn);
            return turn_ask(turn, ask, drop);
        case MST_ASK_RANK_DROP:
            drop.key = turn_rank_path(turn);
            return turn_ask(turn, ask, drop);
        case MST_ASK_CLEAN:
            drop.key = turn_path(turn, legacy->old_versions[1], NULL);
            drop.is_dir = true;
            return turn_ask(turn, ask, drop);
        case MST_ASK_JOB:
            make.key = legacy->job;
            make.ttl_s = MST_LEGACY_TTL_JOB;
            return turn_ask(turn, ask, make);
        default:
            MST_ASSERT(ask == MST_ASK_STORE);
            make.key = turn_path(turn, legacy->doc.version, "kv");
            return turn_ask(turn, ask, make);
    }
}

bool mst__legacy_ask_job_beat(struct mst__legacy_turn *turn)
{
    const struct mst__legacy *legacy = turn->legacy;
    if (!legacy->has_job || turn->now_us < legacy->job_us + MST_LEGACY_JOB_BEAT_US) {
        return false;
    }
    (void)mst__legacy_ask_plain(turn, MST_ASK_JOB_BEAT); /* cannot fail */
    return true;
}

int mst__legacy_pause(struct mst__legacy_turn *turn, int64_t until_us)
{
    turn_move(turn, MST_LEGACY_WAITING);
    turn->legacy->ask = MST_ASK_PAUSE;
    *turn->effect = (struct mst__legacy_effect){.kind = MST_LEGACY_PAUSE, .until_us = until_us};
    return 0;
}

int mst__legacy_wait(struct mst__legacy_turn *turn, int64_t until_us)
{
    struct mst__legacy *legacy = turn->legacy;
    MST_ASSERT(legacy->is_known);
    until_us = mst__min(until_us, mst__saturate_add(legacy->read_us, MST_LEGACY_TRUST_US));
    until_us = mst__min(until_us, legacy->is_tidying ? legacy->tidy_us : legacy->deadline_us);
    bool is_next = legacy->operation == MST_LEGACY_OP_NEXT;
    if (is_next && legacy->has_key) {
        until_us = mst__min(until_us, legacy->key_us + MST_LEGACY_BEAT_US);
    }
    if (is_next && legacy->has_rank) {
        until_us = mst__min(until_us, legacy->rank_us + MST_LEGACY_BEAT_US);
    }
    /* Everything that was due is done; a millisecond prevents spinning. */
    int64_t soon_us = turn->now_us + 1000;
    until_us = mst__max(until_us, soon_us);
    turn_move(turn, MST_LEGACY_WAITING);
    legacy->ask = MST_ASK_WAIT;
    legacy->stats.requests++;
    *turn->effect = (struct mst__legacy_effect){.kind = MST_LEGACY_WAIT,
                                                .key = legacy->active,
                                                .is_doc = true,
                                                .from_index = legacy->from_index,
                                                .until_us = until_us};
    return 0;
}

/* --- steps --- */

static int turn_decide(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    if (legacy->is_known && turn->now_us - legacy->read_us >= MST_LEGACY_TRUST_US) {
        legacy->is_known = false;
    }
    int rv =
        legacy->operation == MST_LEGACY_OP_NEXT ? mst__legacy_next(turn) : mst__legacy_others(turn);
    if (rv != 0) {
        mst__legacy_abort(legacy);
    }
    return rv;
}

static int turn_begin(struct mst__legacy_turn *turn, const struct mst__legacy_event *event)
{
    struct mst__legacy *legacy = turn->legacy;
    legacy->operation = event->operation;
    legacy->deadline_us = event->deadline_us;
    legacy->failures = 0;
    legacy->losses = 0;
    legacy->stale_count = 0;
    legacy->is_held = false;
    legacy->is_tidying = false;
    if (event->operation == MST_LEGACY_OP_NEXT) {
        mst__legacy_next_begin(turn);
    } else if (event->operation == MST_LEGACY_OP_LOOK) {
        legacy->is_known = false;
    }
    return turn_decide(turn);
}

static int turn_answer(struct mst__legacy_turn *turn, const struct mst__legacy_event *event)
{
    struct mst__legacy *legacy = turn->legacy;
    legacy->failures = 0;
    if (legacy->ask != MST_ASK_WAIT) {
        legacy->trip_us = turn->now_us - legacy->asked_us;
    }
    if (!mst__legacy_is_legal(legacy, event)) {
        mst__legacy_abort(legacy);
        return mst__legacy_end(turn, MST_LEGACY_STATE);
    }
    bool is_reading = legacy->ask == MST_ASK_DOC || legacy->ask == MST_ASK_LIST;
    if (is_reading && mst__legacy_is_stale(legacy, event)) {
        return mst__legacy_pause(turn, turn->now_us + STALE_US);
    }
    int rv = mst__legacy_learn(turn, event);
    if (rv != 0) {
        mst__legacy_abort(legacy);
        return rv;
    }
    return turn_decide(turn);
}

/* No answer: retry, or end the operation if it does not retry. */
static int turn_failed(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    legacy->is_known = false;
    legacy->is_held = false;
    legacy->counter_index = 0;
    if (legacy->ask == MST_ASK_RANK_BEAT) {
        legacy->beat_try_us = turn->now_us + FAILED_US;
    }
    unsigned bits = legacy->failures < FAILED_BITS_MAX ? legacy->failures : FAILED_BITS_MAX;
    legacy->failures++;
    bool goes_on =
        legacy->operation == MST_LEGACY_OP_NEXT || legacy->operation == MST_LEGACY_OP_WATCH ||
        legacy->operation == MST_LEGACY_OP_CLOSE || legacy->operation == MST_LEGACY_OP_LEAVE;
    if (legacy->ask == MST_ASK_CLEAN) {
        legacy->is_cleaning = false;
    }
    int64_t end_us = legacy->is_tidying ? legacy->tidy_us : legacy->deadline_us;
    bool is_short =
        legacy->operation == MST_LEGACY_OP_CLOSE || legacy->operation == MST_LEGACY_OP_LEAVE;
    if (!goes_on || (is_short && turn->now_us >= end_us)) {
        return mst__legacy_end(turn, MST_LEGACY_CONNECTION);
    }
    int64_t pause_us = (int64_t)FAILED_US << bits;
    pause_us = pause_us / 2 + (int64_t)mst__prng_below(&turn->prng, (uint64_t)pause_us);
    return mst__legacy_pause(turn, turn->now_us + pause_us);
}

static int turn_cancel(struct mst__legacy_turn *turn)
{
    struct mst__legacy *legacy = turn->legacy;
    struct mst__legacy_outcome outcome = {.result = MST_LEGACY_CANCELLED};
    if (legacy->operation != MST_LEGACY_OP_NEXT) {
        return mst__legacy_done(turn, outcome);
    }
    mst__legacy_tidy(turn, outcome);
    return turn_decide(turn);
}

static bool step_is_allowed(const struct mst__legacy *legacy, enum mst__legacy_event_kind kind)
{
    switch (kind) {
        case MST_LEGACY_EVENT_BEGIN:
            return legacy->phase == MST_LEGACY_IDLE;
        case MST_LEGACY_EVENT_ANSWER:
        case MST_LEGACY_EVENT_FAILED:
        case MST_LEGACY_EVENT_BROKEN:
            return legacy->phase == MST_LEGACY_ASKING ||
                   (legacy->phase == MST_LEGACY_WAITING && legacy->ask == MST_ASK_WAIT);
        case MST_LEGACY_EVENT_UNKNOWN:
            return legacy->phase == MST_LEGACY_ASKING;
        case MST_LEGACY_EVENT_TIME:
        case MST_LEGACY_EVENT_CANCEL:
            return legacy->phase == MST_LEGACY_WAITING;
    }
    return false;
}

int mst__legacy_step(struct mst__legacy *legacy,
                     const struct mst__legacy_event *event,
                     int64_t now_us,
                     uint64_t seed,
                     struct mst__legacy_effect *ret_effect)
{
    if (!step_is_allowed(legacy, event->kind)) {
        return MST_EINVAL;
    }
    struct mst__legacy_turn turn = {.legacy = legacy, .now_us = now_us, .effect = ret_effect};
    mst__prng_init(&turn.prng, seed);
    switch (event->kind) {
        case MST_LEGACY_EVENT_BEGIN:
            return turn_begin(&turn, event);
        case MST_LEGACY_EVENT_ANSWER:
            return turn_answer(&turn, event);
        case MST_LEGACY_EVENT_FAILED:
        case MST_LEGACY_EVENT_UNKNOWN:
            return turn_failed(&turn);
        case MST_LEGACY_EVENT_BROKEN:
            mst__legacy_abort(legacy);
            return mst__legacy_end(&turn, MST_LEGACY_STATE);
        case MST_LEGACY_EVENT_TIME:
            return turn_decide(&turn);
        case MST_LEGACY_EVENT_CANCEL:
            break;
    }
    return turn_cancel(&turn);
}

int64_t mst__legacy_beat_us(const struct mst__legacy *legacy)
{
    int64_t beat_us = INT64_MAX;
    if (legacy->is_member && !legacy->is_expelled) {
        beat_us = mst__saturate_add(legacy->rank_us, MST_LEGACY_BEAT_US);
        beat_us = mst__max(beat_us, legacy->beat_try_us);
    }
    return legacy->has_job ? mst__min(beat_us, legacy->job_us + MST_LEGACY_JOB_BEAT_US) : beat_us;
}
