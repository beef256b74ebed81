/* agent/assign.c - the exchange of ranks through the store of a round. */
#include "agent/assign.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/number.h"

#define INFO_KEY "torchelastic/role_info/"       /* followed by the rank */
#define RANKS_KEY "torchelastic/assigned_ranks/" /* followed by the rank */
#define OLD_INFO_KEY "torchelastic/role_info"    /* followed by the rank */
#define OLD_END ".FIN"

#define KEY_SIZE 80
#define ROLE_SIZE_MAX 4096
#define RANKS_SIZE 120

/* How long to wait for the address of the workers' store before earlier rounds are tried, and how
 * many rounds are tried. */
#define MASTER_MS 3000
#define FORMER_ROUNDS 64
#define PREFIX_SIZE 1200

/* How often to check for an answer in the other form. */
#define LOOK_MS 20

struct exchange {
    const struct mst__assign *assign;
    struct mst_store *store;
    size_t count, rank; /* number of nodes; rank of this node */
    int64_t deadline_ms;
    struct mst_buffer *values; /* JSON of each node; empty = not known yet */
    struct mst__role_info *infos;
    struct mst__assignment *parts;
};

static struct mst_bytes key_of(const char *key, size_t rank, const char *end, char text[KEY_SIZE])
{
    (void)snprintf(text, KEY_SIZE, "%s%zu%s", key, rank, end); /* fits */
    return mst_bytes_str(text);
}

static int64_t exchange_left_ms(const struct exchange *exchange)
{
    return mst__clock_left_ms(exchange->deadline_ms);
}

/* --- sending --- */

static int say_info(const struct exchange *exchange, struct mst_err *reterr)
{
    const struct mst__assign *assign = exchange->assign;
    struct mst__buf text;
    char number[MST_NUMBER_SIZE * 2 + 60];
    mst__buf_init(&text, ROLE_SIZE_MAX + sizeof number);
    (void)snprintf(number, sizeof number, ", \"rank\": %zu, \"local_world_size\": %" PRId64 "}",
                   exchange->rank, assign->nproc);
    int rv = mst__buf_append(&text, mst_bytes_str("{\"role\": "));
    rv = rv == 0 ? mst__role_write(&text, assign->role) : rv;
    rv = rv == 0 ? mst__buf_append(&text, mst_bytes_str(number)) : rv;
    if (rv != 0) {
        rv = mst__fail(reterr, rv, 0, "role '%.60s'", assign->role);
    }
    char name[KEY_SIZE];
    char old[KEY_SIZE];
    const struct mst_bytes keys[] = {key_of(INFO_KEY, exchange->rank, "", name),
                                     key_of(OLD_INFO_KEY, exchange->rank, "", old)};
    const struct mst_bytes values[] = {mst__buf_bytes(&text), mst__buf_bytes(&text)};
    if (rv == 0) {
        rv = mst_store_multi_set(exchange->store, keys, values, 2, exchange_left_ms(exchange),
                                 reterr);
    }
    mst__buf_close(&text);
    return rv;
}

/* An older agent of torch with rank 0 waits for this key of every node. */
static int say_end(const struct exchange *exchange, struct mst_err *reterr)
{
    char name[KEY_SIZE];
    return mst_store_set(exchange->store, key_of(OLD_INFO_KEY, exchange->rank, OLD_END, name),
                         mst_bytes_str("FIN"), exchange_left_ms(exchange), reterr);
}

/* Send each node its ranks. */
static int say_ranks(const struct exchange *exchange, struct mst_err *reterr)
{
    size_t count = exchange->count;
    struct mst_bytes *keys = mst__calloc(count, sizeof *keys);
    struct mst_bytes *values = mst__calloc(count, sizeof *values);
    char(*names)[KEY_SIZE] = mst__calloc(count, sizeof *names);
    char(*texts)[RANKS_SIZE] = mst__calloc(count, sizeof *texts);
    int rv = 0;
    if (keys == NULL || values == NULL || names == NULL || texts == NULL) {
        rv = mst__fail(reterr, MST_ENOMEM, 0, "ranks of %zu nodes", count);
    }
    for (size_t i = 0; i < count && rv == 0; i++) {
        const struct mst__assignment *part = &exchange->parts[i];
        (void)snprintf(texts[i], sizeof texts[i],
                       "[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]", part->first_rank,
                       part->world_size, part->role_first_rank, part->role_world_size);
        keys[i] = key_of(RANKS_KEY, i, "", names[i]);
        values[i] = mst_bytes_str(texts[i]);
    }
    if (rv == 0) {
        rv = mst_store_multi_set(exchange->store, keys, values, count, exchange_left_ms(exchange),
                                 reterr);
    }
    mst__free(texts);
    mst__free(names);
    mst__free(values);
    mst__free(keys);
    return rv;
}

/* --- receiving --- */

/* Compute the ranks of all nodes from their roles. */
static int compute(struct exchange *exchange, struct mst_err *reterr)
{
    for (size_t i = 0; i < exchange->count; i++) {
        struct mst_bytes text = mst_bytes_of(exchange->values[i].data, exchange->values[i].size);
        if (!mst__role_info_read(text, &exchange->infos[i])) {
            return mst__fail(reterr, MST_ESTATE, 0, "malformed description of node %zu: %.*s", i,
                             (int)(text.size < 100 ? text.size : 100), (const char *)text.data);
        }
    }
    int rv = mst__assign_compute(exchange->infos, exchange->count, exchange->parts);
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "ranks of %zu nodes", exchange->count);
}

/* Get the roles that have arrived, in either form, and the number of missing ones. */
static int hear_some(struct exchange *exchange, size_t *ret_missing, struct mst_err *reterr)
{
    *ret_missing = 0;
    for (size_t i = 0; i < exchange->count; i++) {
        char name[KEY_SIZE];
        struct mst_buffer *value = &exchange->values[i];
        int rv = value->size > 0 ? 0 : MST_ENOTFOUND;
        if (rv == MST_ENOTFOUND) {
            rv = mst_store_try_get(exchange->store, key_of(INFO_KEY, i, "", name),
                                   exchange_left_ms(exchange), value, reterr);
        }
        if (rv == MST_ENOTFOUND) {
            rv = mst_store_try_get(exchange->store, key_of(OLD_INFO_KEY, i, "", name),
                                   exchange_left_ms(exchange), value, reterr);
        }
        if (rv != 0 && rv != MST_ENOTFOUND) {
            return rv;
        }
        *ret_missing += rv == MST_ENOTFOUND;
    }
    return 0;
}

/* Get our ranks from rank 0. Fails with MST_ETIMEOUT after @timeout_ms. */
static int hear_ranks(const struct exchange *exchange,
                      int64_t timeout_ms,
                      struct mst__assignment *ret_assignment,
                      struct mst_err *reterr)
{
    char name[KEY_SIZE];
    struct mst_buffer value = {0};
    int rv = mst_store_get(exchange->store, key_of(RANKS_KEY, exchange->rank, "", name), timeout_ms,
                           &value, reterr);
    if (rv == 0 &&
        !mst__assigned_ranks_read(mst_bytes_of(value.data, value.size), ret_assignment)) {
        rv = mst__fail(reterr, MST_ESTATE, 0, "malformed ranks from rank 0: %.100s",
                       (const char *)value.data);
    }
    mst_buffer_free(&value);
    return rv;
}

/* --- the exchange --- */

/* Use the first to come, the roles of all nodes or the ranks from rank 0. */
static int exchange_ranks(struct exchange *exchange,
                          struct mst__assignment *ret_assignment,
                          struct mst_err *reterr)
{
    size_t missing = exchange->count;
    int rv = MST_ETIMEOUT;
    while (rv == MST_ETIMEOUT && exchange_left_ms(exchange) > 0) {
        rv = hear_some(exchange, &missing, reterr);
        if (rv != 0 || missing == 0) {
            break;
        }
        int64_t ms = mst__min(exchange_left_ms(exchange), LOOK_MS);
        rv = hear_ranks(exchange, ms, ret_assignment, reterr); /* only a pause on rank 0 */
    }
    if (rv != 0) {
        return rv;
    }
    if (missing == 0) {
        rv = compute(exchange, reterr);
        rv = rv == 0 && exchange->rank == 0 ? say_ranks(exchange, reterr) : rv;
        *ret_assignment = exchange->parts[exchange->rank];
    }
    return rv == 0 ? say_end(exchange, reterr) : rv;
}

/* Get the address of the workers' store from @store, within @timeout_ms. */
static int get_master(struct mst_store *store,
                      int64_t timeout_ms,
                      struct mst__assignment *ret_assignment,
                      struct mst_err *reterr)
{
    const struct mst_bytes keys[] = {mst_bytes_str("MASTER_ADDR"), mst_bytes_str("MASTER_PORT")};
    struct mst_buffer values[2] = {{0}, {0}};
    int rv = mst_store_multi_get(store, keys, 2, timeout_ms, values, reterr);
    if (rv == 0 && (values[0].size == 0 || values[0].size >= sizeof ret_assignment->master_addr ||
                    !mst__number_parse(mst_bytes_of(values[1].data, values[1].size), 1, 65535,
                                       &ret_assignment->master_port))) {
        rv = mst__fail(reterr, MST_ESTATE, 0,
                       "MASTER_ADDR and MASTER_PORT are not an address and a port");
    } else if (rv == 0) {
        memcpy(ret_assignment->master_addr, values[0].data, values[0].size + 1);
    }
    mst_buffer_free(&values[0]);
    mst_buffer_free(&values[1]);
    return rv;
}

/* Get the address from the store of round @number. The prefix of that store differs from ours only
 * in the number at its end. */
static int get_former_master(const struct exchange *exchange,
                             int64_t number,
                             struct mst__assignment *ret_assignment,
                             struct mst_err *reterr)
{
    struct mst_bytes prefix = mst_store_key_prefix(exchange->store);
    char name[PREFIX_SIZE];
    size_t size = prefix.size;
    while (size > 0 && prefix.data[size - 1] >= '0' && prefix.data[size - 1] <= '9') {
        size--;
    }
    int used =
        snprintf(name, sizeof name, "%.*s%" PRId64, (int)size, (const char *)prefix.data, number);
    if (size == prefix.size || used < 0 || (size_t)used >= sizeof name) {
        return mst__fail(reterr, MST_ENOTFOUND, 0, "the prefix of the round ends without a number");
    }
    struct mst_store *root = NULL;
    struct mst_store *round = NULL;
    struct mst_store_options options;
    mst_store_options_init(&options, sizeof options);
    int rv = mst_store_open(mst_store_url(exchange->store), &options, exchange_left_ms(exchange),
                            &root, reterr);
    rv = rv == 0 ? mst_store_prefix(root, mst_bytes_str(name), &round, reterr) : rv;
    rv = rv == 0 ? get_master(round, 1, ret_assignment, reterr) : rv;
    mst_store_close(round);
    mst_store_close(root);
    return rv;
}

/* Older agents of torch write the address of the workers' store after the ranks are known. A newer
 * agent writes it in its first round as rank 0, and not again while it stays rank 0. */
static int hear_master(const struct exchange *exchange,
                       struct mst__assignment *ret_assignment,
                       struct mst_err *reterr)
{
    int64_t wait_ms = mst__min(exchange_left_ms(exchange), MASTER_MS);
    int rv = get_master(exchange->store, wait_ms, ret_assignment, reterr);
    int64_t last = exchange->assign->round->round - 1;
    for (int64_t i = 0; i < FORMER_ROUNDS && i <= last && rv == MST_ETIMEOUT; i++) {
        struct mst_err ignored;
        if (get_former_master(exchange, last - i, ret_assignment, &ignored) == 0) {
            rv = 0;
        }
    }
    return rv == MST_ETIMEOUT
               ? get_master(exchange->store, exchange_left_ms(exchange), ret_assignment, reterr)
               : rv;
}

static int exchange_all(struct exchange *exchange,
                        struct mst__assignment *ret_assignment,
                        struct mst_err *reterr)
{
    exchange->values = mst__calloc(exchange->count, sizeof *exchange->values);
    exchange->infos = mst__calloc(exchange->count, sizeof *exchange->infos);
    exchange->parts = mst__calloc(exchange->count, sizeof *exchange->parts);
    if (exchange->values == NULL || exchange->infos == NULL || exchange->parts == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "ranks of %zu nodes", exchange->count);
    }
    int rv = say_info(exchange, reterr);
    return rv == 0 ? exchange_ranks(exchange, ret_assignment, reterr) : rv;
}

int mst__assign(const struct mst__assign *assign,
                struct mst__assignment *ret_assignment,
                struct mst_err *reterr)
{
    const struct mst_rendezvous *round = assign->round;
    struct exchange exchange = {
        .assign = assign,
        .store = round->store,
        .count = (size_t)round->world_size,
        .rank = (size_t)round->rank,
        .deadline_ms = mst__clock_deadline_ms(assign->timeout_ms),
    };
    int rv = 0;
    if (round->workers > 0) {
        *ret_assignment = (struct mst__assignment){.first_rank = round->first_worker,
                                                   .world_size = round->workers,
                                                   .role_first_rank = round->role_first_worker,
                                                   .role_world_size = round->role_workers};
    } else if (exchange.count == 1) {
        *ret_assignment =
            (struct mst__assignment){.world_size = assign->nproc, .role_world_size = assign->nproc};
    } else {
        *ret_assignment = (struct mst__assignment){.first_rank = 0};
        rv = exchange_all(&exchange, ret_assignment, reterr);
    }
    for (size_t i = 0; i < exchange.count && exchange.values != NULL; i++) {
        mst_buffer_free(&exchange.values[i]);
    }
    mst__free(exchange.values);
    mst__free(exchange.infos);
    mst__free(exchange.parts);
    if (rv == 0 && round->master_port == 0) {
        return hear_master(&exchange, ret_assignment, reterr);
    }
    (void)snprintf(ret_assignment->master_addr, sizeof ret_assignment->master_addr, "%s",
                   round->master_addr); /* fits: same size */
    ret_assignment->master_port = round->master_port;
    return rv;
}
