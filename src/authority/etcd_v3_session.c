/* authority/etcd_v3_session.c - a session: a lease, a key on it, a watch; and being the authority.
 *
 * Writes are bounded, but not interrupted, so that the next task finds the session in one of few
 * states. If the result of a write is unknown, the key is read: our own by entering again,
 * `round` by building the authority anew. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "authority/etcd_v3_self.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/until.h"

/* The shortest lease that etcd grants; shorter ones are rounded up. */
#define TTL_S_MIN 2

/* Time for one write. */
#define WRITE_MS 4000

/* Time to revoke a lease when no call waits for it. */
#define REVOKE_MS 2000

/* Pause after a failed keep-alive. */
#define BEAT_AGAIN_MS 250

/* Ranks in one transaction. */
#define LETTERS_MAX (MST_V3_TXN_MAX - 1)

/* Events to take before the next write. */
#define BATCH_MAX 4096

/* A transaction that writes. */
static int write_txn(struct mst__etcd_v3 *self,
                     const struct mst__v3_txn *txn,
                     struct mst__v3_result *result,
                     struct mst_err *reterr)
{
    return mst__v3_txn(self->v3, txn, mst__until_in(WRITE_MS), result, reterr);
}

/* --- life --- */

void mst__etcd_v3_release(struct mst__etcd_v3 *self)
{
    mst__v3_watch_close(self->watch);
    self->watch = NULL;
    mst__etcd_v3_authority_close(&self->authority);
    self->is_authority = false;
    mst__free(self->before);
    mst__free(self->key);
    mst__free(self->letter_key);
    self->before = NULL;
    self->key = NULL;
    self->letter_key = NULL;
    self->create_revision = 0;
    self->lease = 0;
    self->letter = (struct mst__etcd_v3_letter){.kind = MST_ETCD_V3_LETTER_NONE};
}

int mst__etcd_v3_forget(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr)
{
    if (self->lease == 0) {
        mst__etcd_v3_release(self);
        return 0;
    }
    int rv = mst__v3_lease_revoke(self->v3, self->lease, until, reterr);
    rv = rv == MST_ENOTFOUND ? 0 : rv; /* it had expired */
    /* Our key may still be written, and be newer than that of the next session, as if we had
     * entered in that order. So the next session is this one again. */
    bool can_come = rv != 0 && self->create_revision == 0;
    if (!can_come) {
        mst__etcd_v3_release(self);
    }
    return rv;
}

/* Our key is gone, and usually our lease; if only the key was deleted, the lease must go, too. */
static int fail_ended(struct mst__etcd_v3 *self, struct mst_err *reterr)
{
    struct mst_err ignored; /* the lease expires */
    (void)mst__etcd_v3_forget(self, mst__until_in(REVOKE_MS), &ignored);
    mst__etcd_v3_release(self);
    return mst__fail(reterr, MST_ENOTFOUND, 0,
                     "node '%.60s': its lease has expired, the others count it as lost",
                     self->node);
}

/* Read everything again. */
static void drop_watch(struct mst__etcd_v3 *self)
{
    mst__v3_watch_close(self->watch);
    self->watch = NULL;
    mst__free(self->before);
    self->before = NULL;
}

/* Store @round, which is taken. */
static void take_round(struct mst__etcd_v3 *self,
                       struct mst__etcd_v3_round *round,
                       int64_t revision)
{
    mst__etcd_v3_round_close(&self->round);
    self->round = *round;
    self->round_revision = revision;
    *round = (struct mst__etcd_v3_round){0};
}

static int take_round_of(struct mst__etcd_v3 *self,
                         const struct mst__v3_kvs *kvs,
                         struct mst_err *reterr)
{
    struct mst__etcd_v3_round round;
    int64_t revision;
    int rv = mst__etcd_v3_round_of(kvs, &round, &revision, reterr);
    if (rv == 0) {
        take_round(self, &round, revision);
    }
    return rv;
}

static int take_letter(struct mst__etcd_v3 *self, const struct mst__v3_kv *kv)
{
    struct mst_err ignored; /* an unreadable letter is ignored */
    struct mst__etcd_v3_letter letter;
    int rv =
        mst__etcd_v3_letter_read(mst_bytes_of(kv->value.data, kv->value.size), &letter, &ignored);
    if (rv == 0) {
        self->letter = letter;
    }
    return rv == MST_ENOMEM ? rv : 0;
}

uint32_t mst__etcd_v3_rank(const struct mst__etcd_v3 *self)
{
    const struct mst__etcd_v3_round *round = &self->round;
    const struct mst__etcd_v3_letter *letter = &self->letter;
    if (round->round == 0 || self->lease == 0) {
        return MST_AUTHORITY_RANK_NONE;
    }
    if (!round->is_sharded) {
        return mst__etcd_v3_round_rank(round, self->session);
    }
    bool is_it = letter->kind == MST_ETCD_V3_LETTER_RANK && letter->epoch == round->epoch &&
                 letter->round == round->round && letter->rank < round->world;
    return is_it ? letter->rank : MST_AUTHORITY_RANK_NONE;
}

/* --- the lease --- */

static int64_t beat_interval_ms(const struct mst__etcd_v3 *self)
{
    int64_t ms = self->settings.job.job.keep_alive_interval_us / 1000;
    ms = mst__min(ms, self->ttl_ms / 3);
    return ms < 1 ? 1 : ms;
}

/* Seconds of silence until a node is lost, rounded up. */
static int64_t ttl_s(const struct mst__etcd_v3 *self)
{
    const struct mst__settings *job = &self->settings.job.job;
    int64_t us;
    if (__builtin_mul_overflow(job->keep_alive_interval_us, job->keep_alive_max_attempt, &us)) {
        us = INT64_MAX;
    }
    int64_t seconds = us / 1000000 + (us % 1000000 > 0 ? 1 : 0);
    return seconds < TTL_S_MIN ? TTL_S_MIN : seconds;
}

static int grant(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr)
{
    int64_t lease = 0;
    int64_t seconds = 0;
    int64_t begin_ms = mst__clock_ms();
    int rv = mst__v3_lease_grant(self->v3, ttl_s(self), until, &lease, &seconds, reterr);
    if (rv != 0) {
        return rv; /* an unused lease expires */
    }
    self->session = mst__clock_random_u64();
    self->key = mst__etcd_v3_key_node(&self->keys, self->node, self->session);
    self->letter_key = mst__etcd_v3_key_letter(&self->keys, self->session);
    self->lease = lease;
    self->ttl_ms = seconds > INT64_MAX / 1000 ? INT64_MAX / 2 : seconds * 1000;
    self->alive_ms = begin_ms + self->ttl_ms;
    /* Nodes that enter together should not send keep-alives together. */
    int64_t interval_ms = beat_interval_ms(self);
    self->beat_ms = begin_ms + interval_ms / 2 +
                    (int64_t)(mst__clock_random_u64() % (uint64_t)(interval_ms / 2 + 1));
    if (self->key == NULL || self->letter_key == NULL) {
        mst__etcd_v3_release(self); /* no key is on the lease */
        return mst__fail(reterr, MST_ENOMEM, 0, "keys");
    }
    return 0;
}

static int beat(struct mst__etcd_v3 *self, int wake_fd, struct mst_err *reterr)
{
    int64_t begin_ms = mst__clock_ms();
    int64_t wait_ms = self->ttl_ms / 3 < 1000 ? 1000 : self->ttl_ms / 3;
    int64_t seconds = 0;
    int rv = mst__v3_lease_keep_alive(self->v3, self->lease, mst__until_by(wake_fd, wait_ms),
                                      &seconds, reterr);
    if (rv == MST_ENOTFOUND) {
        self->lease = 0;
        return fail_ended(self, reterr);
    }
    if (rv == 0) {
        self->alive_ms = begin_ms + self->ttl_ms;
        self->beat_ms = begin_ms + beat_interval_ms(self);
    } else if (rv != MST_ECANCELED) {
        self->beat_ms = mst__clock_deadline_ms(BEAT_AGAIN_MS);
    }
    /* The deadline was ours, and not that of a wait in which nothing happened. */
    return rv == MST_ETIMEOUT ? mst__err_wrap(reterr, MST_ECONN, "keep-alive") : rv;
}

/* --- entering --- */

/* Write our announcement. The same announcement is the same text, so that a node that does not know
 * whether it was put can tell. */
static int announcement_write(struct mst__etcd_v3 *self,
                              bool has_left,
                              struct mst__buf *text,
                              struct mst_err *reterr)
{
    const struct mst__muster_settings *job = &self->settings.job;
    static const struct mst__claim no_claim = {.rank = MST_AUTHORITY_RANK_NONE};
    const struct mst__announcement said = {
        .name = mst_bytes_str(self->node),
        .incarnation = (uint64_t)self->incarnation,
        .address = mst_bytes_str(self->address),
        .labels = job->labels,
        .labels_count = job->labels_count,
        .nodes_min = (uint32_t)job->job.nodes_min,
        .nodes_max = (uint32_t)job->job.nodes_max,
        .last_call_us = job->job.last_call_us,
        .rank_by = mst_bytes_str(job->rank_by),
        .pinned_rank = job->pinned_rank,
        /* A report from within a round is not a return from it. */
        .claim = self->claim.holds ? no_claim : self->claim,
        .budget = job->job.budget,
        .is_fixed = job->is_fixed,
        .workers = job->workers,
        .role = mst_bytes_str(job->role),
    };
    int rv = mst__etcd_v3_node_write(&said, &self->word, has_left, text);
    return rv == 0 ? 0
                   : mst__fail(reterr, rv, 0,
                               rv == MST_EINVAL ? "the name, the address, the role or a label of "
                                                  "this node is not UTF-8"
                                                : "announcement");
}

static struct mst__v3_compare is_ours(const struct mst__etcd_v3 *self)
{
    return (struct mst__v3_compare){
        .key = mst_bytes_str(self->key), .target = MST_V3_CREATE, .number = self->create_revision};
}

static struct mst__v3_op op_range(const char *key)
{
    return (struct mst__v3_op){.kind = MST_V3_OP_RANGE, .u.range = {.key = mst_bytes_str(key)}};
}

/* Watch the keys that concern us, from revision @from on. */
static int follow(struct mst__etcd_v3 *self, int64_t from, struct mst_err *reterr)
{
    struct mst__v3_watched watched[3] = {{.key = mst_bytes_str(self->keys.round)}};
    size_t count = 1;
    if (self->is_authority) {
        watched[count++] =
            (struct mst__v3_watched){.key = mst_bytes_str(self->keys.nodes), .span = MST_V3_PREFIX};
    } else {
        watched[count++] = (struct mst__v3_watched){.key = mst_bytes_str(self->letter_key)};
        watched[count++] =
            (struct mst__v3_watched){.key = mst_bytes_str(self->before), .is_without_puts = true};
    }
    return mst__v3_watch_new(self->v3, watched, count, from, &self->watch, reterr);
}

/* Older processes of this node are dead, or should be: delete their keys now, which also ends an
 * authority among them. */
static void join_replace(struct mst__etcd_v3 *self, const struct mst__v3_kvs *ghosts)
{
    for (size_t i = 0; i < ghosts->count; i++) {
        const struct mst__v3_kv *kv = &ghosts->items[i];
        struct mst__etcd_v3_node node;
        struct mst_err ignored; /* its key expires with its lease */
        if (kv->lease == 0 || mst__etcd_v3_node_read(mst_bytes_of(kv->value.data, kv->value.size),
                                                     &node, &ignored) != 0) {
            continue;
        }
        uint64_t incarnation =
            node.said.incarnation > 0 ? node.said.incarnation : (uint64_t)kv->create_revision;
        mst__etcd_v3_node_close(&node);
        if (incarnation < (uint64_t)self->incarnation) {
            (void)mst__v3_lease_revoke(self->v3, kv->lease, mst__until_in(WRITE_MS), &ignored);
        }
    }
}

/* We are in: take our predecessor and the stored round from @result. */
static int join_take(struct mst__etcd_v3 *self,
                     const struct mst__v3_result *result,
                     struct mst_err *reterr)
{
    if (!result->succeeded) {
        /* An earlier attempt has succeeded, but its answer was lost. The predecessor is looked
         * up later. */
        const struct mst__v3_kvs *own = &result->ranges[0];
        if (own->count == 0 || own->items[0].lease != self->lease) {
            return fail_ended(self, reterr);
        }
        self->create_revision = own->items[0].create_revision;
        self->incarnation = self->incarnation == 0 ? self->create_revision : self->incarnation;
        return take_round_of(self, &result->ranges[1], reterr);
    }
    self->create_revision = result->revision;
    self->incarnation = self->incarnation == 0 ? result->revision : self->incarnation;
    join_replace(self, &result->ranges[2]);
    int rv = take_round_of(self, &result->ranges[1], reterr);
    const struct mst__v3_kvs *last = &result->ranges[0];
    if (rv != 0 || last->count == 0) {
        self->is_authority = rv == 0; /* find_place checks this */
        return rv;
    }
    self->before = mst__memdup((const char *)last->items[0].value.data, last->items[0].value.size);
    if (self->before == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "predecessor");
    }
    return follow(self, result->revision + 1, reterr);
}

/* Whether the first of @kvs has @text. */
static bool holds(const struct mst__v3_kvs *kvs, struct mst_bytes text)
{
    const struct mst_buffer *value = kvs->count == 0 ? NULL : &kvs->items[0].value;
    return value != NULL && mst__bytes_equal(mst_bytes_of(value->data, value->size), text);
}

/* Put our key, unless it exists, and find our predecessor. If `last` exists, so does that node's
 * key: both are on one lease. */
static int join(struct mst__etcd_v3 *self, bool *ret_is_put, struct mst_err *reterr)
{
    struct mst__buf text;
    mst__buf_init(&text, MST_ETCD_V3_TEXT_MAX);
    int rv = announcement_write(self, false, &text, reterr);
    const struct mst__v3_compare is_new = is_ours(self); /* create revision 0: it does not exist */
    /* Our key without the session: the prefix of all processes of this node. */
    const struct mst_bytes node =
        mst_bytes_of(self->key, strlen(self->key) - MST_ETCD_V3_SESSION_SIZE);
    const struct mst__v3_op success[] = {
        op_range(self->keys.last),
        op_range(self->keys.round),
        {.kind = MST_V3_OP_RANGE, .u.range = {.key = node, .span = MST_V3_PREFIX}},
        {.kind = MST_V3_OP_PUT,
         .u.put = {.key = mst_bytes_str(self->key),
                   .value = mst__buf_bytes(&text),
                   .lease = self->lease}},
        {.kind = MST_V3_OP_PUT,
         .u.put = {.key = mst_bytes_str(self->keys.last),
                   .value = mst_bytes_str(self->key),
                   .lease = self->lease}},
    };
    const struct mst__v3_op failure[] = {op_range(self->key), op_range(self->keys.round)};
    const struct mst__v3_txn txn = {.compares = &is_new,
                                    .compare_count = 1,
                                    .success = success,
                                    .success_count = 5,
                                    .failure = failure,
                                    .failure_count = 2};
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    if (rv == 0) {
        rv = write_txn(self, &txn, &result, reterr);
    }
    if (rv == MST_ENOTFOUND) {
        self->lease = 0;
        rv = fail_ended(self, reterr);
    } else if (rv == 0) {
        *ret_is_put = result.succeeded || holds(&result.ranges[0], mst__buf_bytes(&text));
        rv = join_take(self, &result, reterr);
    }
    mst__v3_result_close(&result);
    mst__buf_close(&text);
    return rv;
}

/* It is unknown whether our key was put: check whether it has @text. */
static int rejoin_check(struct mst__etcd_v3 *self,
                        struct mst_bytes text,
                        struct mst__until until,
                        bool *ret_is_put,
                        struct mst_err *reterr)
{
    const struct mst__v3_op reads[] = {op_range(self->key), op_range(self->keys.round)};
    const struct mst__v3_txn txn = {.success = reads, .success_count = 2};
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    int rv = mst__v3_txn(self->v3, &txn, until, &result, reterr);
    if (rv == 0 && result.ranges[0].count == 0) {
        rv = fail_ended(self, reterr);
    }
    if (rv == 0) {
        *ret_is_put = holds(&result.ranges[0], text);
        rv = take_round_of(self, &result.ranges[1], reterr);
    }
    mst__v3_result_close(&result);
    return rv;
}

/* Put our key again, to ask for the next round. */
static int rejoin(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr)
{
    struct mst__buf text;
    mst__buf_init(&text, MST_ETCD_V3_TEXT_MAX);
    int rv = announcement_write(self, false, &text, reterr);
    const struct mst__v3_compare ours = is_ours(self);
    const struct mst__v3_op success[] = {
        {.kind = MST_V3_OP_PUT,
         .u.put = {.key = mst_bytes_str(self->key),
                   .value = mst__buf_bytes(&text),
                   .lease = self->lease}},
        op_range(self->keys.round),
    };
    const struct mst__v3_txn txn = {
        .compares = &ours, .compare_count = 1, .success = success, .success_count = 2};
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    for (bool is_put = false; rv == 0 && !is_put;) {
        rv = write_txn(self, &txn, &result, reterr);
        if (rv == 0 && result.succeeded) {
            is_put = true;
            rv = take_round_of(self, &result.ranges[1], reterr);
        } else if (rv == 0 || rv == MST_ENOTFOUND) {
            rv = fail_ended(self, reterr);
        } else if (rv == MST_EUNKNOWN) {
            rv = rejoin_check(self, mst__buf_bytes(&text), until, &is_put, reterr);
        }
    }
    mst__v3_result_close(&result);
    mst__buf_close(&text);
    return rv;
}

int mst__etcd_v3_enter(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr)
{
    self->claim.holds = false;
    if (self->lease != 0 && self->create_revision != 0) {
        return rejoin(self, until, reterr);
    }
    bool is_put = false;
    int rv = self->lease == 0 ? grant(self, until, reterr) : 0;
    rv = rv == 0 ? join(self, &is_put, reterr) : rv;
    /* The key of an earlier attempt may be out of date. If it is not, it must not be put again: it
     * may be in a round by now, which would be over then. */
    return rv == 0 && !is_put ? rejoin(self, until, reterr) : rv;
}

int mst__etcd_v3_say(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr)
{
    return rejoin(self, until, reterr);
}

int mst__etcd_v3_part(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr)
{
    if (self->lease == 0) {
        return 0;
    }
    if (self->claim.holds && self->create_revision != 0) {
        struct mst__buf text;
        struct mst_err ignored; /* then the others count us as lost, which does no harm */
        mst__buf_init(&text, MST_ETCD_V3_TEXT_MAX);
        const struct mst__v3_compare ours = is_ours(self);
        if (announcement_write(self, true, &text, &ignored) == 0) {
            const struct mst__v3_op put = {.kind = MST_V3_OP_PUT,
                                           .u.put = {.key = mst_bytes_str(self->key),
                                                     .value = mst__buf_bytes(&text),
                                                     .lease = self->lease}};
            const struct mst__v3_txn txn = {
                .compares = &ours, .compare_count = 1, .success = &put, .success_count = 1};
            struct mst__v3_result result;
            mst__v3_result_init(&result);
            (void)mst__v3_txn(self->v3, &txn, until, &result, &ignored);
            mst__v3_result_close(&result);
        }
        mst__buf_close(&text);
    }
    return mst__etcd_v3_forget(self, until, reterr);
}

/* --- our place among the keys --- */

/* Find our predecessor. @ret_found is false if there is none. */
static int look_before(struct mst__etcd_v3 *self,
                       struct mst__until until,
                       bool *ret_found,
                       struct mst_err *reterr)
{
    const struct mst__v3_op reads[] = {
        op_range(self->key),
        {.kind = MST_V3_OP_RANGE,
         .u.range = {.key = mst_bytes_str(self->keys.nodes),
                     .span = MST_V3_PREFIX,
                     .limit = 1,
                     .sort = MST_V3_NEWEST_FIRST,
                     .create_revision_max = self->create_revision - 1,
                     .is_keys_only = true}},
        op_range(self->keys.round),
        op_range(self->letter_key),
    };
    const struct mst__v3_txn txn = {.success = reads, .success_count = 4};
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    int rv = mst__v3_txn(self->v3, &txn, until, &result, reterr);
    *ret_found = rv == 0 && result.ranges[1].count > 0;
    if (rv == 0 && (result.ranges[0].count == 0 ||
                    result.ranges[0].items[0].create_revision != self->create_revision)) {
        rv = fail_ended(self, reterr);
    }
    if (rv == 0 && *ret_found) {
        const struct mst_buffer *key = &result.ranges[1].items[0].key;
        self->before = mst__memdup((const char *)key->data, key->size);
        rv = self->before == NULL ? mst__fail(reterr, MST_ENOMEM, 0, "predecessor")
                                  : take_round_of(self, &result.ranges[2], reterr);
        if (rv == 0 && result.ranges[3].count > 0) {
            rv = take_letter(self, &result.ranges[3].items[0]);
        }
        rv = rv == 0 ? follow(self, result.revision + 1, reterr) : rv;
    }
    mst__v3_result_close(&result);
    return rv;
}

/* Read all keys and become the authority, if our key is the oldest. */
static int take_over(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr)
{
    struct mst__etcd_v3_survey survey;
    mst__etcd_v3_survey_init(&survey);
    self->is_authority = false;
    int rv = mst__etcd_v3_survey_read(self->v3, &self->keys, until, &survey, reterr);
    if (rv != 0) {
        mst__etcd_v3_survey_close(&survey);
        return rv;
    }
    const struct mst__v3_kvs *nodes = &survey.nodes.ranges[0];
    struct mst_bytes own = mst_bytes_str(self->key);
    bool is_first =
        nodes->count > 0 &&
        mst__bytes_equal(mst_bytes_of(nodes->items[0].key.data, nodes->items[0].key.size), own);
    if (is_first) {
        const struct mst__etcd_v3_stored stored = mst__etcd_v3_survey_stored(&survey);
        rv = mst__etcd_v3_authority_build(&self->authority, &stored, mst__clock_us(), reterr);
        self->is_authority = rv == 0;
        if (rv == 0) {
            mst__log(&self->params->log, MST_LOG_INFO, "rendezvous.authority",
                     "node=%s epoch=%" PRIu64 " nodes=%zu round=%" PRId64, MST_LOG_TEXT(self->node),
                     self->authority.machine.options.epoch, nodes->count, survey.round.round);
            take_round(self, &survey.round, survey.round_revision);
            rv = follow(self, survey.nodes.revision + 1, reterr);
        }
    } else {
        bool is_found;
        rv = look_before(self, until, &is_found, reterr);
    }
    mst__etcd_v3_survey_close(&survey);
    return rv;
}

/* There is no watch: find our predecessor, or become the authority, and watch. */
static int find_place(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr)
{
    mst__etcd_v3_authority_close(&self->authority);
    mst__free(self->before);
    self->before = NULL;
    if (!self->is_authority) {
        bool is_found;
        int rv = look_before(self, until, &is_found, reterr);
        if (rv != 0 || is_found) {
            return rv;
        }
    }
    return take_over(self, until, reterr);
}

/* --- being the authority --- */

/* A write failed, or its result is unknown: read everything again. */
static void lose_hold(struct mst__etcd_v3 *self, const char *what, const struct mst_err *err)
{
    char detail[MST_LOG_QUOTE_SIZE];
    mst__log(&self->params->log, MST_LOG_INFO, "rendezvous.not_written",
             "node=%s what=%s detail=%s", MST_LOG_TEXT(self->node), what,
             mst__log_quote(mst_bytes_str(err == NULL ? "" : err->msg), detail));
    drop_watch(self);
}

/* Write @ops as the authority, if `round` is unchanged. MST_ESTATE if it is not, or our key is
 * gone. */
static int rule(struct mst__etcd_v3 *self,
                const struct mst__v3_op *ops,
                size_t count,
                int64_t *ret_revision,
                struct mst_err *reterr)
{
    const struct mst__v3_compare compares[] = {
        is_ours(self),
        {.key = mst_bytes_str(self->keys.round),
         .target = MST_V3_MOD,
         .number = self->round_revision},
    };
    const struct mst__v3_txn txn = {
        .compares = compares, .compare_count = 2, .success = ops, .success_count = count};
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    int rv = write_txn(self, &txn, &result, reterr);
    if (rv == 0 && !result.succeeded) {
        rv = mst__fail(reterr, MST_ESTATE, 0, "another node has written, or our key is gone");
    }
    *ret_revision = result.revision;
    mst__v3_result_close(&result);
    return rv;
}

/* Write some ranks of a large round, before the round itself is put. */
static int write_ranks(struct mst__etcd_v3 *self,
                       const struct mst__etcd_v3_round *round,
                       uint32_t first,
                       uint32_t count,
                       struct mst_err *reterr)
{
    struct mst__buf texts[LETTERS_MAX];
    char *keys[LETTERS_MAX] = {NULL};
    struct mst__v3_op ops[LETTERS_MAX];
    int rv = 0;
    for (uint32_t i = 0; i < count; i++) {
        mst__buf_init(&texts[i], MST_ETCD_V3_TEXT_MAX);
    }
    for (uint32_t i = 0; i < count && rv == 0; i++) {
        const struct mst__etcd_v3_seat *seat =
            mst__etcd_v3_authority_seat(&self->authority, first + i);
        struct mst__etcd_v3_letter letter = {.kind = MST_ETCD_V3_LETTER_RANK,
                                             .epoch = round->epoch,
                                             .round = round->round,
                                             .rank = first + i,
                                             .worker_ranks = seat->worker_ranks};
        memcpy(letter.name, seat->name, strlen(seat->name) + 1);
        keys[i] = mst__etcd_v3_key_letter(&self->keys, seat->session);
        rv = keys[i] == NULL ? MST_ENOMEM : mst__etcd_v3_letter_write(&letter, &texts[i]);
        ops[i] = (struct mst__v3_op){.kind = MST_V3_OP_PUT,
                                     .u.put = {.key = mst_bytes_str(keys[i] == NULL ? "" : keys[i]),
                                               .value = mst__buf_bytes(&texts[i])}};
        if (seat->session == self->session) {
            self->letter = letter;
        }
    }
    int64_t revision;
    rv = rv == 0 ? rule(self, ops, count, &revision, reterr) : mst__fail(reterr, rv, 0, "ranks");
    for (uint32_t i = 0; i < count; i++) {
        mst__buf_close(&texts[i]);
        mst__free(keys[i]);
    }
    return rv;
}

static int write_all_ranks(struct mst__etcd_v3 *self,
                           const struct mst__etcd_v3_round *round,
                           struct mst_err *reterr)
{
    int64_t revision;
    int rv = 0;
    if (self->round.is_sharded) {
        /* All nodes have returned from that round and know its result. */
        const struct mst__v3_op old = {
            .kind = MST_V3_OP_DELETE,
            .u.del = {.key = mst_bytes_str(self->keys.letters), .span = MST_V3_PREFIX}};
        rv = rule(self, &old, 1, &revision, reterr);
    }
    for (uint32_t rank = 0; round->is_sharded && rank < round->world && rv == 0;
         rank += LETTERS_MAX) {
        uint32_t count = round->world - rank < LETTERS_MAX ? round->world - rank : LETTERS_MAX;
        rv = write_ranks(self, round, rank, count, reterr);
    }
    return rv;
}

/* Put `round`; a new round deletes the store of the round before the last one. */
static int write_round(struct mst__etcd_v3 *self,
                       struct mst__etcd_v3_round *round,
                       struct mst_err *reterr)
{
    struct mst__buf text;
    mst__buf_init(&text, MST_ETCD_V3_TEXT_MAX);
    bool is_new = round->round != self->round.round;
    int64_t dead = is_new ? self->round.before : 0;
    char *stores = dead > 0 ? mst__etcd_v3_key_stores(&self->keys, dead) : NULL;
    int rv = is_new ? write_all_ranks(self, round, reterr) : 0;
    if (rv == 0) {
        rv = mst__etcd_v3_round_write(round, &text);
        rv = rv == 0 ? 0 : mst__fail(reterr, rv, 0, "round");
    }
    struct mst__v3_op ops[2] = {
        {.kind = MST_V3_OP_PUT,
         .u.put = {.key = mst_bytes_str(self->keys.round), .value = mst__buf_bytes(&text)}}};
    size_t count = 1;
    if (stores != NULL) {
        ops[count++] =
            (struct mst__v3_op){.kind = MST_V3_OP_DELETE,
                                .u.del = {.key = mst_bytes_str(stores), .span = MST_V3_PREFIX}};
    }
    int64_t revision = 0;
    rv = rv == 0 ? rule(self, ops, count, &revision, reterr) : rv;
    if (rv == 0) {
        take_round(self, round, revision);
    }
    mst__free(stores);
    mst__buf_close(&text);
    return rv;
}

static int write_letter(struct mst__etcd_v3 *self,
                        const struct mst__etcd_v3_outgoing *outgoing,
                        struct mst_err *reterr)
{
    if (outgoing->session == self->session) {
        self->letter = outgoing->letter;
        return 0;
    }
    struct mst__buf text;
    mst__buf_init(&text, MST_ETCD_V3_TEXT_MAX);
    char *key = mst__etcd_v3_key_letter(&self->keys, outgoing->session);
    int rv = key == NULL ? MST_ENOMEM : mst__etcd_v3_letter_write(&outgoing->letter, &text);
    if (rv != 0) {
        (void)mst__fail(reterr, rv, 0, "letter");
    } else {
        const struct mst__v3_op put = {.kind = MST_V3_OP_PUT,
                                       .u.put = {.key = mst_bytes_str(key),
                                                 .value = mst__buf_bytes(&text),
                                                 .lease = outgoing->lease}};
        int64_t revision;
        rv = rule(self, &put, 1, &revision, reterr);
    }
    mst__free(key);
    mst__buf_close(&text);
    return rv == MST_ENOTFOUND ? 0 : rv; /* the receiver is gone */
}

static int write_letters(struct mst__etcd_v3 *self, struct mst_err *reterr)
{
    struct mst__etcd_v3_authority *authority = &self->authority;
    int rv = 0;
    for (size_t i = 0; i < authority->letters_count && rv == 0; i++) {
        rv = write_letter(self, &authority->letters[i], reterr);
    }
    if (rv == 0) {
        authority->letters_count = 0;
    }
    return rv;
}

/* Let time pass and write what is pending. @ret_due_ms: when to call again. */
static int govern(struct mst__etcd_v3 *self, int64_t *ret_due_ms, struct mst_err *reterr)
{
    int64_t due_us = INT64_MAX;
    bool wants = true;
    int rv = 0;
    while (rv == 0 && wants) {
        struct mst__etcd_v3_round round;
        rv = mst__etcd_v3_authority_tick(&self->authority, mst__clock_us(), &due_us, reterr);
        if (rv == 0 && self->authority.letters_count > 0) {
            rv = write_letters(self, reterr);
        }
        if (rv == 0) {
            rv = mst__etcd_v3_authority_wants(&self->authority, &self->round, &wants, &round);
            rv = rv == 0 ? 0 : mst__fail(reterr, rv, 0, "round");
        }
        if (rv == 0 && wants) {
            rv = write_round(self, &round, reterr);
            mst__etcd_v3_round_close(&round);
        }
    }
    *ret_due_ms = due_us == INT64_MAX ? INT64_MAX : due_us / 1000 + 1;
    return rv;
}

/* --- what happens --- */

static int take_event(struct mst__etcd_v3 *self,
                      const struct mst__v3_event *event,
                      struct mst_err *reterr)
{
    struct mst_bytes key = mst_bytes_of(event->kv.key.data, event->kv.key.size);
    if (mst__bytes_equal(key, mst_bytes_str(self->keys.round))) {
        if (event->kv.mod_revision <= self->round_revision) {
            return 0; /* our own write, or known already */
        }
        struct mst__v3_kvs one = {.items = (struct mst__v3_kv *)&event->kv,
                                  .count = event->is_delete ? 0 : 1};
        int rv = take_round_of(self, &one, reterr);
        if (self->is_authority && self->round.state != MST_ETCD_V3_CLOSED) {
            lose_hold(self, "round", NULL); /* written with etcdctl */
        }
        return rv;
    }
    if (mst__bytes_equal(key, mst_bytes_str(self->letter_key))) {
        return event->is_delete ? 0 : take_letter(self, &event->kv);
    }
    if (self->is_authority) {
        if (event->is_delete && mst__bytes_equal(key, mst_bytes_str(self->key))) {
            return fail_ended(self, reterr);
        }
        return mst__etcd_v3_authority_event(&self->authority, event, mst__clock_us(), reterr);
    }
    if (event->is_delete && self->before != NULL &&
        mst__bytes_equal(key, mst_bytes_str(self->before))) {
        drop_watch(self);
    }
    return 0;
}

/* Wait for events and take all that have come. An authority takes many at once, so that it
 * decides and writes once for all of them. */
static int take_events(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr)
{
    size_t rounds = self->is_authority ? BATCH_MAX : 1;
    for (size_t i = 0; i < rounds; i++) {
        struct mst__v3_events events = {.count = 0};
        int rv = mst__v3_watch_next(self->watch, i == 0 ? until : mst__until_with(until, 0),
                                    &events, reterr);
        if (rv == MST_ESTATE) {
            drop_watch(self); /* compacted: read everything again */
            return 0;
        }
        if (rv != 0) {
            bool is_all = i > 0 && (rv == MST_ETIMEOUT || rv == MST_ECONN);
            return is_all ? 0 : rv;
        }
        for (size_t at = 0; at < events.count && rv == 0 && self->watch != NULL; at++) {
            rv = take_event(self, &events.items[at], reterr);
        }
        mst__v3_events_close(&events);
        if (rv != 0 || self->watch == NULL) {
            return rv;
        }
    }
    return 0;
}

/* Whether there is a round newer than @revision, or a letter that is not a rank. */
static bool has_news(const struct mst__etcd_v3 *self, int64_t revision)
{
    return self->round_revision != revision || self->letter.kind > MST_ETCD_V3_LETTER_RANK;
}

int mst__etcd_v3_step(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr)
{
    if (self->lease == 0) {
        return fail_ended(self, reterr);
    }
    int rv = mst__clock_ms() >= self->beat_ms ? beat(self, until.wake_fd, reterr) : 0;
    int64_t round = self->round_revision;
    if (rv == 0 && self->watch == NULL) {
        rv = find_place(self, mst__until_sooner(until, mst__clock_deadline_ms(WRITE_MS)), reterr);
        if (rv == 0 && !self->is_authority && has_news(self, round)) {
            return 0; /* news of a read, which the watch does not report */
        }
    }
    int64_t due_ms = INT64_MAX;
    if (rv == 0 && self->is_authority && self->watch != NULL) {
        rv = govern(self, &due_ms, reterr);
        if (rv != 0) {
            lose_hold(self, "authority", reterr);
            /* Another node was faster: no error. An unreachable etcd is one. */
            return rv == MST_ESTATE || rv == MST_EUNKNOWN || rv == MST_ENOTFOUND ? 0 : rv;
        }
        if (has_news(self, round)) {
            return 0; /* it may concern us */
        }
    }
    if (rv != 0 || self->watch == NULL) {
        return rv;
    }
    rv = take_events(self, mst__until_sooner(until, mst__min(self->beat_ms, due_ms)), reterr);
    return rv == MST_ETIMEOUT && !mst__until_is_over(until) ? 0 : rv;
}
