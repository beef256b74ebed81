/* authority/etcd_v3_look.c - reading the stored keys, and closing, which any node may do. */
#include <stdio.h>

#include "authority/etcd_v3.h"
#include "authority/etcd_v3_self.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/until.h"

/* Pause after losing a race to write. */
#define RACE_US 20000

int mst__etcd_v3_round_of(const struct mst__v3_kvs *kvs,
                          struct mst__etcd_v3_round *ret_round,
                          int64_t *ret_revision,
                          struct mst_err *reterr)
{
    if (kvs->count == 0) {
        *ret_round = (struct mst__etcd_v3_round){.state = MST_ETCD_V3_NONE};
        *ret_revision = 0;
        return 0;
    }
    const struct mst__v3_kv *kv = &kvs->items[0];
    int rv =
        mst__etcd_v3_round_read(mst_bytes_of(kv->value.data, kv->value.size), ret_round, reterr);
    if (rv == MST_EPROTO) {
        return mst__err_wrap(reterr, MST_ESTATE, "the data under '%.*s' is not a rendezvous",
                             kv->key.size < 80 ? (int)kv->key.size : 80,
                             (const char *)kv->key.data);
    }
    if (rv == 0) {
        *ret_revision = kv->mod_revision;
    }
    return rv;
}

int mst__etcd_v3_read_round(struct mst__v3 *v3,
                            const struct mst__etcd_v3_keys *keys,
                            struct mst__until until,
                            struct mst__etcd_v3_round *ret_round,
                            int64_t *ret_revision,
                            struct mst_err *reterr)
{
    const struct mst__v3_range range = {.key = mst_bytes_str(keys->round)};
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    int rv = mst__v3_range(v3, &range, until, &result, reterr);
    if (rv == 0) {
        rv = mst__etcd_v3_round_of(&result.ranges[0], ret_round, ret_revision, reterr);
    }
    mst__v3_result_close(&result);
    return rv;
}

/* --- closing --- */

/* Put @round, closed, if the stored one still has @revision. */
static int shut_put(struct mst__v3 *v3,
                    const struct mst__etcd_v3_keys *keys,
                    const struct mst__etcd_v3_round *round,
                    int64_t revision,
                    struct mst__until until,
                    bool *ret_won,
                    struct mst_err *reterr)
{
    struct mst__buf text;
    mst__buf_init(&text, MST_ETCD_V3_TEXT_MAX);
    int rv = mst__etcd_v3_round_write(round, &text);
    if (rv != 0) {
        mst__buf_close(&text);
        return mst__fail(reterr, rv, 0, "close");
    }
    const struct mst__v3_compare compare = {
        .key = mst_bytes_str(keys->round), .target = MST_V3_MOD, .number = revision};
    const struct mst__v3_op put = {
        .kind = MST_V3_OP_PUT,
        .u.put = {.key = mst_bytes_str(keys->round), .value = mst__buf_bytes(&text)}};
    const struct mst__v3_txn txn = {
        .compares = &compare, .compare_count = 1, .success = &put, .success_count = 1};
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    rv = mst__v3_txn(v3, &txn, until, &result, reterr);
    *ret_won = rv == 0 && result.succeeded;
    mst__v3_result_close(&result);
    mst__buf_close(&text);
    return rv;
}

int mst__etcd_v3_shut(struct mst__v3 *v3,
                      const struct mst__etcd_v3_keys *keys,
                      const char *reason,
                      const char *owner,
                      struct mst__until until,
                      struct mst_err *reterr)
{
    struct mst_err lost = {0}; /* the last missing answer */
    for (;;) {
        struct mst__etcd_v3_round round;
        int64_t revision = 0;
        int rv = mst__etcd_v3_read_round(v3, keys, until, &round, &revision, reterr);
        if (rv != 0) {
            if (lost.code != 0 && reterr != NULL) {
                *reterr = lost;
            }
            return lost.code != 0 ? lost.code : rv;
        }
        bool is_closed = round.state == MST_ETCD_V3_CLOSED;
        if (!is_closed) {
            round.state = MST_ETCD_V3_CLOSED;
            (void)snprintf(round.reason, sizeof round.reason, "%s", reason); /* cut off when long */
            (void)snprintf(round.owner, sizeof round.owner, "%s", owner);    /* fits */
            rv = shut_put(v3, keys, &round, revision, until, &is_closed, reterr);
        }
        mst__etcd_v3_round_close(&round);
        if (rv != 0 && rv != MST_EUNKNOWN) {
            return rv;
        }
        if (is_closed) {
            return 0;
        }
        /* Another node was faster, or the result is unknown: read again. */
        lost.code = 0;
        if (rv == MST_EUNKNOWN && reterr != NULL) {
            lost = *reterr;
        }
        if (mst__until_is_over(until) ||
            !mst__until_pause(until.wake_fd, mst__clock_us() + RACE_US)) {
            return rv != 0 ? rv
                           : mst__fail(reterr, MST_ETIMEOUT, 0,
                                       "close: other nodes kept changing the round");
        }
    }
}

/* --- everything --- */

void mst__etcd_v3_survey_init(struct mst__etcd_v3_survey *survey)
{
    *survey = (struct mst__etcd_v3_survey){.round_revision = 0};
    mst__v3_result_init(&survey->nodes);
    mst__v3_result_init(&survey->letters);
}

void mst__etcd_v3_survey_close(struct mst__etcd_v3_survey *survey)
{
    mst__v3_result_close(&survey->nodes);
    mst__v3_result_close(&survey->letters);
    mst__etcd_v3_round_close(&survey->round);
}

int mst__etcd_v3_survey_read(struct mst__v3 *v3,
                             const struct mst__etcd_v3_keys *keys,
                             struct mst__until until,
                             struct mst__etcd_v3_survey *survey,
                             struct mst_err *reterr)
{
    const struct mst__v3_op reads[] = {
        {.kind = MST_V3_OP_RANGE,
         .u.range = {.key = mst_bytes_str(keys->nodes),
                     .span = MST_V3_PREFIX,
                     .sort = MST_V3_OLDEST_FIRST}},
        {.kind = MST_V3_OP_RANGE, .u.range = {.key = mst_bytes_str(keys->round)}},
    };
    const struct mst__v3_txn txn = {.success = reads, .success_count = 2};
    int rv = mst__v3_txn(v3, &txn, until, &survey->nodes, reterr);
    if (rv != 0) {
        return rv;
    }
    struct mst__etcd_v3_round round;
    rv = mst__etcd_v3_round_of(&survey->nodes.ranges[1], &round, &survey->round_revision, reterr);
    if (rv != 0) {
        return rv;
    }
    mst__etcd_v3_round_close(&survey->round);
    survey->round = round;
    if (!round.is_sharded) {
        return 0;
    }
    /* The letters were written before the round and stay until the next one. */
    const struct mst__v3_range letters = {.key = mst_bytes_str(keys->letters),
                                          .span = MST_V3_PREFIX};
    return mst__v3_range(v3, &letters, until, &survey->letters, reterr);
}

struct mst__etcd_v3_stored mst__etcd_v3_survey_stored(const struct mst__etcd_v3_survey *survey)
{
    return (struct mst__etcd_v3_stored){
        .revision = survey->nodes.revision,
        .nodes = &survey->nodes.ranges[0],
        .letters = survey->letters.range_count > 0 ? &survey->letters.ranges[0] : NULL,
        .round = &survey->round,
    };
}

/* --- from outside --- */

int mst__etcd_v3_look_open(struct mst__etcd_v3_look *look,
                           const struct mst_params *params,
                           struct mst_err *reterr)
{
    const struct mst_log log = {0};
    *look = (struct mst__etcd_v3_look){0};
    mst__etcd_v3_authority_init(&look->authority);
    int rv = mst__etcd_v3_read(params, &look->settings, reterr);
    if (rv != 0) {
        return rv;
    }
    rv = mst__etcd_v3_keys_init(&look->keys, mst_params_run_id(params));
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "keys");
    }
    const struct mst__http_options http = mst__etcd_http(&look->settings.etcd, &log);
    return mst__v3_new(&http, &look->v3, reterr);
}

void mst__etcd_v3_look_close(struct mst__etcd_v3_look *look)
{
    mst__etcd_v3_authority_close(&look->authority);
    mst__etcd_v3_keys_close(&look->keys);
    mst__v3_free(look->v3);
    mst__etcd_v3_settings_close(&look->settings);
    *look = (struct mst__etcd_v3_look){0};
}

/* Build the authority's state from the stored keys. */
static int look_build(struct mst__v3 *v3,
                      const struct mst__etcd_v3_keys *keys,
                      struct mst__until until,
                      struct mst__etcd_v3_survey *survey,
                      struct mst__etcd_v3_authority *authority,
                      struct mst_err *reterr)
{
    mst__etcd_v3_survey_init(survey);
    int rv = mst__etcd_v3_survey_read(v3, keys, until, survey, reterr);
    if (rv == 0) {
        const struct mst__etcd_v3_stored stored = mst__etcd_v3_survey_stored(survey);
        rv = mst__etcd_v3_authority_build(authority, &stored, mst__clock_us(), reterr);
    }
    if (rv == 0) {
        authority->machine.last_call_us = INT64_MAX; /* our last call has only just begun */
    }
    return rv;
}

int mst__etcd_v3_look_read(struct mst__etcd_v3_look *look,
                           struct mst__until until,
                           struct mst_err *reterr)
{
    struct mst__etcd_v3_survey survey;
    int rv = look_build(look->v3, &look->keys, until, &survey, &look->authority, reterr);
    if (rv == 0) {
        const struct mst__v3_kvs *nodes = &survey.nodes.ranges[0];
        look->modified = survey.round_revision;
        for (size_t i = 0; i < nodes->count; i++) {
            int64_t revision = nodes->items[i].mod_revision;
            look->modified = revision > look->modified ? revision : look->modified;
        }
        look->nodes = nodes->count;
        look->exists = nodes->count > 0 || survey.round_revision > 0;
    }
    mst__etcd_v3_survey_close(&survey);
    return rv;
}

int mst__etcd_v3_describe(struct mst__v3 *v3,
                          const struct mst__etcd_v3_keys *keys,
                          struct mst__until until,
                          char *ret_text,
                          size_t ret_size,
                          struct mst_err *reterr)
{
    struct mst__etcd_v3_survey survey;
    struct mst__etcd_v3_authority authority;
    mst__etcd_v3_authority_init(&authority);
    int rv = look_build(v3, keys, until, &survey, &authority, reterr);
    if (rv == 0) {
        mst__authority_describe(&authority.machine, mst__clock_us(), ret_text, ret_size);
    }
    mst__etcd_v3_authority_close(&authority);
    mst__etcd_v3_survey_close(&survey);
    return rv;
}
