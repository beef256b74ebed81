/* sim/authority/store.c - a model of a v3 store for the engine etcd-v3: keys with leases,
 * revisions, transactions that compare, watches. A request that was given up still takes effect. */
#include <inttypes.h>

#include "base/assert.h"
#include "base/mem.h"
#include "sim/authority/authority.h"

#define SECOND_US MST_SIM_SECOND_US
#define KEYS_MAX (MST_SIM_AUTH_V3_LIVES_MAX * (size_t)MST_SIM_AUTH_V3_NODES_MAX)

/* --- keys --- */

struct mst__sim_auth_key *mst__sim_auth_store_find(struct mst__sim_auth *sim, uint64_t created)
{
    struct mst__sim_auth_store *store = &sim->store;
    for (size_t i = 0; created != 0 && i < store->count; i++) {
        if (store->keys[i].created == created) {
            return &store->keys[i];
        }
    }
    return NULL;
}

const struct mst__sim_auth_owner *mst__sim_auth_owner(const struct mst__sim_auth *sim,
                                                      uint64_t created)
{
    const struct mst__sim_auth_store *store = &sim->store;
    for (size_t i = store->owners_count; i > 0; i--) {
        if (store->owners[i - 1].created == created) {
            return &store->owners[i - 1];
        }
    }
    return NULL;
}

static struct mst__sim_auth_key *store_add(struct mst__sim_auth *sim, uint32_t node, uint32_t life)
{
    struct mst__sim_auth_store *store = &sim->store;
    MST_ASSERT(store->count < KEYS_MAX);
    if (store->owners_count == store->owners_capacity) {
        store->owners_capacity = store->owners_capacity == 0 ? 64 : 2 * store->owners_capacity;
        store->owners = mst__realloc(store->owners, store->owners_capacity * sizeof *store->owners);
        MST_ASSERT(store->owners != NULL);
    }
    struct mst__sim_auth_key *key = &store->keys[store->count++];
    *key = (struct mst__sim_auth_key){.node = node, .life = life, .created = ++store->revision};
    key->modified = key->created;
    store->owners[store->owners_count++] =
        (struct mst__sim_auth_owner){.created = key->created, .node = node, .life = life};
    return key;
}

/* --- watches --- */

static void watch_send(struct mst__sim_auth *sim, uint32_t node, struct mst__sim_auth_news *news)
{
    struct mst__sim_auth_watch *watch = &sim->store.watches[node];
    news->watch = watch->id;
    int64_t time_us = sim->now_us + mst__sim_auth_delay(sim);
    time_us = time_us < watch->to_node_us ? watch->to_node_us : time_us;
    watch->to_node_us = time_us;
    mst__sim_auth_at(sim, time_us, MST_SIM_AUTH_WATCH,
                     (struct mst__sim_event){.node = node,
                                             .pid = (int64_t)watch->life,
                                             .epoch = ++watch->sent,
                                             .bytes = mst__sim_auth_copy(news, sizeof *news),
                                             .size = sizeof *news});
}

static void watch_key(struct mst__sim_auth *sim, const struct mst__sim_auth_key *key, bool is_gone)
{
    struct mst__sim_auth_news news = {
        .revision = sim->store.revision, .is_gone = is_gone, .key = *key};
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        const struct mst__sim_auth_watch *watch = &sim->store.watches[i];
        bool is_it = watch->predecessor == 0 || key->created == watch->predecessor ||
                     key->created == watch->key;
        if (watch->id != 0 && is_it && (is_gone || watch->predecessor == 0)) {
            watch_send(sim, i, &news);
        }
    }
}

static void watch_round(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_news news = {
        .revision = sim->store.revision, .is_round = true, .round = sim->store.round};
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        if (sim->store.watches[i].id != 0) {
            watch_send(sim, i, &news);
        }
    }
}

void mst__sim_auth_store_unwatch_one(struct mst__sim_auth *sim, uint32_t node)
{
    struct mst__sim_auth_watch *watch = &sim->store.watches[node];
    if (watch->id != 0) {
        struct mst__sim_auth_news news = {.is_lost = true};
        watch_send(sim, node, &news);
        watch->id = 0;
    }
}

void mst__sim_auth_store_unwatch(struct mst__sim_auth *sim)
{
    mst__sim_auth_say(sim, MST_SIM_AUTH_NOBODY, "all watches are gone");
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        mst__sim_auth_store_unwatch_one(sim, i);
    }
}

/* --- leases --- */

static void store_remove(struct mst__sim_auth *sim, uint64_t created, const char *why)
{
    struct mst__sim_auth_store *store = &sim->store;
    struct mst__sim_auth_key *found = mst__sim_auth_store_find(sim, created);
    if (found == NULL) {
        return;
    }
    struct mst__sim_auth_key key = *found;
    size_t at = (size_t)(found - store->keys);
    store->count--;
    memmove(found, found + 1, (store->count - at) * sizeof *found);
    store->revision++;
    mst__sim_auth_say(sim, MST_SIM_AUTH_NOBODY, "key %" PRIu64 " of n%" PRIu32 ".%" PRIu32 " %s",
                      key.created, key.node, key.life, why);
    watch_key(sim, &key, true);
}

static void store_arm(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_store *store = &sim->store;
    int64_t due_us = INT64_MAX;
    for (size_t i = 0; i < store->count; i++) {
        due_us = store->keys[i].until_us < due_us ? store->keys[i].until_us : due_us;
    }
    store->lease_timer = ++sim->serials;
    if (due_us != INT64_MAX) {
        mst__sim_auth_at(sim, due_us, MST_SIM_AUTH_LEASE,
                         (struct mst__sim_event){.id = store->lease_timer});
    }
}

void mst__sim_auth_store_expire(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_store *store = &sim->store;
    for (size_t i = 0; i < store->count;) {
        if (store->keys[i].until_us <= sim->now_us) {
            store_remove(sim, store->keys[i].created, "has expired");
        } else {
            i++;
        }
    }
    store_arm(sim);
}

void mst__sim_auth_store_down(struct mst__sim_auth *sim, int64_t until_us)
{
    struct mst__sim_auth_store *store = &sim->store;
    store->down_us = until_us;
    mst__sim_auth_store_unwatch(sim);
    for (size_t i = 0; i < store->count; i++) {
        store->keys[i].until_us = until_us + sim->plan.expiry_us; /* a new leader renews all */
    }
    store_arm(sim);
}

/* --- requests --- */

static void ask_join(struct mst__sim_auth *sim,
                     const struct mst__sim_event *event,
                     const struct mst__sim_auth_ask *ask,
                     struct mst__sim_auth_answer *answer)
{
    struct mst__sim_auth_store *store = &sim->store;
    struct mst__sim_auth_key *key = NULL;
    for (size_t i = 0; i < store->count; i++) {
        key = store->keys[i].session == ask->session ? &store->keys[i] : key;
    }
    answer->is_done = key == NULL && store->count < KEYS_MAX;
    if (answer->is_done) {
        key = store_add(sim, event->node, (uint32_t)event->pid);
        key->session = ask->session;
        key->doc = ask->doc;
        mst__sim_auth_work_stored(sim, key);
        mst__sim_auth_say(sim, event->node, "has key %" PRIu64, key->created);
        watch_key(sim, key, false);
    }
    if (key != NULL) {
        key->until_us = sim->now_us + sim->plan.expiry_us;
        answer->key = key->created;
    }
}

static void ask_write(struct mst__sim_auth *sim,
                      const struct mst__sim_auth_ask *ask,
                      struct mst__sim_auth_answer *answer)
{
    struct mst__sim_auth_store *store = &sim->store;
    bool is_close = ask->verb == MST_SIM_AUTH_ASK_CLOSE;
    bool is_owner = is_close || mst__sim_auth_store_find(sim, ask->key) != NULL;
    if (!is_owner || store->round.modified != ask->modified) {
        mst__sim_auth_say(sim, MST_SIM_AUTH_NOBODY, "fences key %" PRIu64 " off", ask->key);
        sim->stats.losses++;
        return;
    }
    struct mst__sim_auth_round before = store->round;
    if (is_close && before.state != MST_SIM_AUTH_CLOSED) {
        store->round.state = MST_SIM_AUTH_CLOSED;
        store->round.outcome = MST_JOB_OUTCOME_ASKED;
        store->round.has_cause = false;
        mst__sim_auth_work_closed(sim, &store->round);
    } else if (!is_close) {
        mst__sim_auth_check_written(sim, &before, &ask->round, ask->key);
        store->round = ask->round;
        store->round_us = sim->now_us;
    }
    store->round.modified = ++store->revision;
    static const char *const names[] = {"none", "open", "sealed", "closed"};
    mst__sim_auth_say(sim, MST_SIM_AUTH_NOBODY, "key %" PRIu64 " writes round %" PRId64 ", %s",
                      ask->key, store->round.round, names[store->round.state]);
    answer->is_done = true;
    sim->stats.writes++;
    watch_round(sim);
    for (size_t i = 0; i < sizeof ask->drops / sizeof ask->drops[0]; i++) {
        store_remove(sim, ask->drops[i], "is replaced");
    }
}

static void ask_read(struct mst__sim_auth *sim,
                     const struct mst__sim_event *event,
                     const struct mst__sim_auth_ask *ask,
                     struct mst__sim_auth_answer *answer)
{
    struct mst__sim_auth_store *store = &sim->store;
    struct mst__sim_auth_watch *watch = &store->watches[event->node];
    if (ask->serial < watch->serial) {
        return; /* the request was given up and overtaken by a later one */
    }
    memcpy(answer->keys, store->keys, store->count * sizeof *store->keys);
    answer->count = store->count;
    *watch = (struct mst__sim_auth_watch){
        .id = ++sim->serials,
        .serial = ask->serial,
        .life = (uint32_t)event->pid,
        .key = ask->key,
    };
    for (size_t i = 0; i < store->count && store->keys[i].created < ask->key; i++) {
        watch->predecessor = store->keys[i].created;
    }
    answer->watch = watch->id;
    answer->predecessor = watch->predecessor;
    answer->is_done = true;
}

static void ask_serve(struct mst__sim_auth *sim,
                      const struct mst__sim_event *event,
                      const struct mst__sim_auth_ask *ask,
                      struct mst__sim_auth_answer *answer)
{
    struct mst__sim_auth_key *key = mst__sim_auth_store_find(sim, ask->key);
    switch (ask->verb) {
        case MST_SIM_AUTH_ASK_JOIN:
            ask_join(sim, event, ask, answer);
            break;
        case MST_SIM_AUTH_ASK_PUT:
            answer->is_done = key != NULL && key->modified == ask->modified;
            if (answer->is_done) {
                key->doc = ask->doc;
                mst__sim_auth_work_stored(sim, key);
                key->modified = ++sim->store.revision;
                watch_key(sim, key, false);
            }
            break;
        case MST_SIM_AUTH_ASK_ALIVE:
            answer->is_done = key != NULL;
            if (key != NULL) {
                key->until_us = sim->now_us + sim->plan.expiry_us;
            }
            break;
        case MST_SIM_AUTH_ASK_READ:
            ask_read(sim, event, ask, answer);
            break;
        case MST_SIM_AUTH_ASK_WRITE:
        case MST_SIM_AUTH_ASK_CLOSE:
            ask_write(sim, ask, answer);
            break;
        case MST_SIM_AUTH_ASK_LEAVE:
            store_remove(sim, ask->key, "is revoked");
            answer->is_done = true;
            break;
    }
}

void mst__sim_auth_store_ask(struct mst__sim_auth *sim, struct mst__sim_event *event)
{
    struct mst__sim_auth_store *store = &sim->store;
    const struct mst__sim_auth_ask *ask = (const struct mst__sim_auth_ask *)(void *)event->bytes;
    int64_t cut_us = sim->nodes[event->node].cut_us;
    if (cut_us > sim->now_us) {
        mst__sim_auth_at(sim, cut_us, MST_SIM_AUTH_ASK, *event);
        event->bytes = NULL;
        return;
    }
    struct mst__sim_auth_answer answer = {.verb = ask->verb, .serial = ask->serial};
    answer.is_failed = store->down_us > sim->now_us;
    if (!answer.is_failed) {
        ask_serve(sim, event, ask, &answer);
        store_arm(sim);
        answer.is_failed = !sim->is_calm && mst__sim_auth_chance(sim, sim->plan.twice_ppm);
    }
    uint64_t created = answer.key != 0 ? answer.key : ask->key;
    const struct mst__sim_auth_key *key = mst__sim_auth_store_find(sim, created);
    answer.key = key == NULL ? 0 : key->created;
    answer.modified = key == NULL ? 0 : key->modified;
    answer.doc = key == NULL ? answer.doc : key->doc;
    answer.revision = store->revision;
    answer.round = store->round;
    answer.modified_round = store->round.modified;
    size_t size = offsetof(struct mst__sim_auth_answer, keys) + answer.count * sizeof *answer.keys;
    int64_t time_us = sim->now_us + mst__sim_auth_delay(sim);
    if (ask->verb == MST_SIM_AUTH_ASK_READ && answer.is_done) {
        store->watches[event->node].to_node_us = time_us; /* its watch begins with the read */
    }
    mst__sim_auth_at(sim, time_us, MST_SIM_AUTH_ANSWER,
                     (struct mst__sim_event){.node = event->node,
                                             .pid = event->pid,
                                             .bytes = mst__sim_auth_copy(&answer, size),
                                             .size = size});
}
