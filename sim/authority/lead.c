/* sim/authority/lead.c - the authority on the node whose key is the oldest, rebuilt from the store
 * by the product's own core/authority_keep.c.
 *
 * Keys are announcements, and vanished keys are losses. Decisions of the machine are written to
 * the round in one transaction, if the own key still exists and no other node has written. If
 * that fails, or its result is unknown, the machine is dropped and built anew. */
#include <inttypes.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/mem.h"
#include "sim/authority/authority.h"

struct lead_key {
    uint64_t created;
    mst__authority_id id;
};

struct mst__sim_auth_lead {
    struct mst__sim_auth *sim;
    struct mst__authority authority;
    uint64_t key; /* of this node */
    struct lead_key *keys;
    size_t count, capacity;
    struct mst__sim_auth_round round;   /* stored */
    struct mst__sim_auth_round written; /* being written */
    struct mst__sim_auth_round next;    /* to write next */
    uint64_t drops[4];
    size_t drops_count;
    bool has_to_write;
    bool is_writing;
};

/* --- keys --- */

static uint32_t lead_rank(const struct mst__sim_auth_lead *lead, uint64_t created)
{
    for (uint32_t rank = 0; rank < lead->round.world; rank++) {
        if (lead->round.members[rank] == created) {
            return rank;
        }
    }
    return MST_AUTHORITY_RANK_NONE;
}

static void lead_keep(struct mst__sim_auth_lead *lead, uint64_t created, mst__authority_id id)
{
    for (size_t i = 0; i < lead->count; i++) {
        if (lead->keys[i].created == created) {
            lead->keys[i].id = id;
            return;
        }
    }
    if (lead->count == lead->capacity) {
        lead->capacity = lead->capacity == 0 ? 16 : 2 * lead->capacity;
        lead->keys = mst__realloc(lead->keys, lead->capacity * sizeof *lead->keys);
        MST_ASSERT(lead->keys != NULL);
    }
    lead->keys[lead->count++] = (struct lead_key){.created = created, .id = id};
}

static void lead_drop(struct mst__sim_auth_lead *lead, uint64_t created)
{
    if (lead->drops_count < sizeof lead->drops / sizeof lead->drops[0]) {
        lead->drops[lead->drops_count++] = created;
    } /* else the key expires */
}

static void lead_announce(struct mst__sim_auth_lead *lead,
                          const struct mst__sim_auth_key *key,
                          const struct mst__claim *claim)
{
    const struct mst__claim said = {
        .epoch = key->doc.epoch,
        .round = key->doc.round,
        .world = key->doc.world,
        .rank = key->doc.rank,
    };
    struct mst__sim_auth *sim = lead->sim;
    const struct mst__sim_auth_plan *plan = &sim->plan;
    char name[24];
    (void)snprintf(name, sizeof name, "node%" PRIu32, key->node); /* fits */
    const struct mst__announcement announcement = {
        .name = mst_bytes_str(name),
        .incarnation = key->life,
        .session = key->created,
        .address = mst_bytes_str(name),
        .nodes_min = plan->nodes_min,
        .nodes_max = plan->nodes_max,
        .last_call_us = plan->last_call_us,
        .rank_by = mst_bytes_str(""),
        .pinned_rank = MST_AUTHORITY_RANK_NONE,
        .budget = plan->budget,
        .is_fixed = plan->is_fixed,
        .claim = claim == NULL ? said : *claim,
        .driver = (void *)(uintptr_t)key->created,
    };
    const struct mst__authority_event event = {
        .kind = MST_AUTHORITY_EVENT_KEPT, .now_us = sim->now_us, .announcement = &announcement};
    struct mst_err err = {0};
    int rv = mst__authority_step(&lead->authority, &event, &err);
    enum mst__refusal refusal = lead->authority.refusal;
    mst__authority_check(&lead->authority);
    if (rv == 0) {
        lead_keep(lead, key->created, lead->authority.announced);
    } else if (refusal == MST_REFUSAL_STALE) {
        lead_drop(lead, key->created);
    } else if (refusal != MST_REFUSAL_CLOSED) {
        mst__sim_auth_break(sim, "alive", "key %" PRIu64 " is refused: %s", key->created, err.msg);
    }
}

static mst__authority_id lead_id(const struct mst__sim_auth_lead *lead, uint64_t created)
{
    for (size_t i = 0; i < lead->count; i++) {
        if (lead->keys[i].created == created) {
            return lead->keys[i].id;
        }
    }
    return MST_AUTHORITY_NOBODY;
}

/* Feed the report of a node. */
static void lead_word(struct mst__sim_auth_lead *lead, const struct mst__sim_auth_key *key)
{
    const struct mst__sim_auth_doc *doc = &key->doc;
    const struct mst__cause cause = {.worker = 1, .status = doc->failure};
    mst__authority_id id = lead_id(lead, key->created);
    if (!doc->has_word || id == MST_AUTHORITY_NOBODY) {
        return;
    }
    const struct mst__authority_event event = {
        .kind = doc->is_finish ? MST_AUTHORITY_EVENT_FINISHED : MST_AUTHORITY_EVENT_FAILED,
        .now_us = lead->sim->now_us,
        .id = id,
        .epoch = doc->word_epoch,
        .round = doc->word_round,
        .cause = &cause,
    };
    (void)mst__authority_step(&lead->authority, &event, NULL); /* perhaps of another round */
    mst__authority_check(&lead->authority);
}

/* --- effects --- */

/* A round was sealed just now. */
static void lead_sealed(struct mst__sim_auth_lead *lead, const struct mst__authority_effect *effect)
{
    struct mst__sim_auth_round *next = &lead->next;
    *next = (struct mst__sim_auth_round){
        .epoch = effect->epoch,
        .round = effect->round,
        .world = effect->world,
        .first_world = lead->authority.first_world,
        .restarts = lead->next.restarts,
        .restarts_us = lead->next.restarts_us,
        .restarts_total = lead->next.restarts_total,
        .restarts_before = effect->restarts,
    };
    for (uint32_t rank = 0; rank < effect->world; rank++) {
        const struct mst__authority_member *member = mst__authority_ranked(&lead->authority, rank);
        MST_ASSERT(member != NULL);
        next->members[rank] = member->session;
    }
}

/* Take all effects at once: the seats of a round are its members at the seal. */
static void lead_take(struct mst__sim_auth_lead *lead)
{
    struct mst__authority_effect effect;
    while (mst__authority_next_effect(&lead->authority, &effect)) {
        if (effect.kind == MST_TOLD_SEALED && effect.id == MST_AUTHORITY_NOBODY) {
            lead_sealed(lead, &effect);
        } else if (effect.kind == MST_TOLD_EXPELLED) {
            lead_drop(lead, (uint64_t)(uintptr_t)effect.driver);
        }
    }
    mst__authority_check(&lead->authority);
}

static bool round_is(const struct mst__sim_auth_round *a, const struct mst__sim_auth_round *b)
{
    return a->state == b->state && a->epoch == b->epoch && a->round == b->round &&
           a->why == b->why && a->waiting == b->waiting && a->restarts_total == b->restarts_total &&
           memcmp(a->is_finished, b->is_finished, sizeof a->is_finished) == 0 &&
           memcmp(a->is_gone, b->is_gone, sizeof a->is_gone) == 0;
}

/* Fill in the end of work. */
static void lead_work(struct mst__sim_auth_lead *lead, const struct mst__kept *kept, bool has_cause)
{
    struct mst__sim_auth_round *next = &lead->next;
    if (next->restarts_total != kept->restarts_total) {
        next->restarts_total = kept->restarts_total;
        next->restarts = kept->restarts;
        next->restarts_us = lead->sim->now_us - kept->restarts_age_us;
    }
    const struct mst__cause cause = mst__authority_cause(&lead->authority);
    next->has_cause = has_cause;
    next->failure = has_cause ? cause.status : 0;
    next->failure_rank = has_cause ? cause.rank : MST_AUTHORITY_RANK_NONE;
}

/* Compute the round to write from the state of the machine. */
static void lead_flow(struct mst__sim_auth_lead *lead)
{
    struct mst__sim_auth_round *next = &lead->next;
    struct mst__kept kept;
    lead_take(lead);
    bool is_kept = mst__authority_kept(&lead->authority, &kept);
    if (lead->authority.phase == MST_AUTHORITY_CLOSED) {
        next->state = MST_SIM_AUTH_CLOSED;
        next->waiting = 0;
        next->outcome = lead->authority.outcome;
        lead_work(lead, &kept, next->outcome == MST_JOB_OUTCOME_FAILED);
    } else if (is_kept) {
        MST_ASSERT(next->epoch == kept.epoch);
        MST_ASSERT(next->round == kept.round);
        next->state = kept.is_over ? MST_SIM_AUTH_OPEN : MST_SIM_AUTH_SEALED;
        next->why = kept.why;
        next->waiting = kept.waiting;
        lead_work(lead, &kept, kept.has_cause);
        (void)mst__authority_finished(&lead->authority, next->is_finished);
        memset(next->is_gone, 0, sizeof next->is_gone);
        if (kept.is_over) {
            (void)mst__authority_gone(&lead->authority, next->members, next->is_gone);
        }
    }
    const struct mst__sim_auth_round *stored = lead->is_writing ? &lead->written : &lead->round;
    lead->has_to_write = !round_is(next, stored) || lead->drops_count > 0;
}

bool mst__sim_auth_lead_ask(struct mst__sim_auth_node *node, struct mst__sim_auth_ask *ret_ask)
{
    struct mst__sim_auth_lead *lead = node->lead;
    if (lead == NULL || !lead->has_to_write || lead->is_writing) {
        return false;
    }
    lead->is_writing = true;
    lead->has_to_write = false;
    ret_ask->verb = MST_SIM_AUTH_ASK_WRITE;
    ret_ask->key = lead->key;
    ret_ask->modified = lead->round.modified;
    ret_ask->round = lead->next;
    lead->written = lead->next;
    static_assert(sizeof ret_ask->drops == sizeof lead->drops, "the same");
    memcpy(ret_ask->drops, lead->drops, sizeof lead->drops);
    memset(lead->drops, 0, sizeof lead->drops);
    lead->drops_count = 0;
    return true;
}

void mst__sim_auth_lead_written(struct mst__sim_auth *sim,
                                struct mst__sim_auth_node *node,
                                const struct mst__sim_auth_answer *answer)
{
    struct mst__sim_auth_lead *lead = node->lead;
    if (lead == NULL) {
        return;
    }
    if (!answer->is_done) {
        mst__sim_auth_say(sim, node->index, "is fenced off");
        mst__sim_auth_lead_end(sim, node);
        return;
    }
    lead->is_writing = false;
    lead->round = lead->written;
    lead->round.modified = answer->modified_round;
    lead_flow(lead);
}

/* --- life --- */

static void lead_trace(void *arg,
                       enum mst__authority_phase from,
                       enum mst__authority_phase to,
                       enum mst__authority_why why,
                       int64_t round)
{
    struct mst__sim_auth_lead *lead = arg;
    const struct mst__sim_auth_owner *owner = mst__sim_auth_owner(lead->sim, lead->key);
    mst__sim_auth_say(lead->sim, owner == NULL ? MST_SIM_AUTH_NOBODY : owner->node,
                      "decides %s -> %s: %s, round %" PRId64, mst__authority_phase_name(from),
                      mst__authority_phase_name(to), mst__authority_why_name(why), round);
}

struct lead_build {
    struct mst__sim_auth_lead *lead;
    const struct mst__sim_auth_answer *answer;
};

static int build_announce(void *arg, size_t index, const struct mst__claim *claim)
{
    const struct lead_build *build = arg;
    lead_announce(build->lead, &build->answer->keys[index], claim);
    lead_take(build->lead);
    return 0;
}

static int build_say(void *arg, size_t index)
{
    const struct lead_build *build = arg;
    lead_word(build->lead, &build->answer->keys[index]);
    lead_take(build->lead);
    return 0;
}

static void lead_build(struct mst__sim_auth_lead *lead, const struct mst__sim_auth_answer *answer)
{
    const struct mst__sim_auth_round *round = &answer->round;
    struct mst__kept_session *sessions = mst__calloc(answer->count + 1, sizeof *sessions);
    MST_ASSERT(sessions != NULL);
    for (size_t i = 0; i < answer->count; i++) {
        const struct mst__sim_auth_key *key = &answer->keys[i];
        uint32_t rank = lead_rank(lead, key->created);
        sessions[i] = (struct mst__kept_session){
            .node = mst_bytes_of(&key->node, sizeof key->node),
            .incarnation = key->life,
            .session = key->created,
            .rank = rank,
            .is_back = key->doc.round == round->round && key->doc.epoch == round->epoch,
            .is_ended = rank != MST_AUTHORITY_RANK_NONE && round->is_gone[rank],
            .has_word = key->doc.has_word,
            .has_failed = key->doc.has_word && !key->doc.is_finish && round->round > 0 &&
                          key->doc.word_round == round->round &&
                          key->doc.word_epoch == round->epoch,
        };
    }
    const struct mst__kept kept = {
        .epoch = round->epoch,
        .round = round->round,
        .world = round->world,
        .first_world = round->first_world,
        .is_over = round->state == MST_SIM_AUTH_OPEN,
        .why = round->why,
        .restarts = round->restarts,
        .restarts_age_us = round->restarts > 0 ? lead->sim->now_us - round->restarts_us : 0,
        .restarts_total = round->restarts_total,
        .is_finished = round->is_finished,
        .has_cause = round->has_cause,
        .cause = {.rank = round->failure_rank, .worker = 1, .status = round->failure},
    };
    struct lead_build build = {.lead = lead, .answer = answer};
    const struct mst__kept_driver driver = {
        .announce = build_announce, .say = build_say, .arg = &build};
    int rv = mst__authority_rebuild(&lead->authority, round->round > 0 ? &kept : NULL, sessions,
                                    answer->count, &driver, lead->sim->now_us);
    MST_ASSERT(rv == 0);
    mst__free(sessions);
}

void mst__sim_auth_lead_begin(struct mst__sim_auth *sim,
                              struct mst__sim_auth_node *node,
                              const struct mst__sim_auth_answer *answer)
{
    struct mst__sim_auth_lead *lead = mst__calloc(1, sizeof *lead);
    MST_ASSERT(lead != NULL);
    node->lead = lead;
    lead->sim = sim;
    lead->key = node->key;
    lead->round = answer->round;
    lead->next = answer->round;
    mst__sim_auth_say(sim, node->index, "is the authority");
    const struct mst__authority_options options = {
        .epoch = answer->revision,
        .expiry_us = INT64_MAX,
        .grace_us = INT64_MAX,
        .reclaim_us = INT64_MAX,
        .return_us = INT64_MAX,
        .members_max = 4 * MST_SIM_AUTH_V3_NODES_MAX,
        .hash_key = {3},
        .trace = lead_trace,
        .trace_arg = lead,
    };
    mst__authority_init(&lead->authority, &options);
    lead_build(lead, answer);
    lead_flow(lead);
}

void mst__sim_auth_lead_end(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    struct mst__sim_auth_lead *lead = node->lead;
    if (lead == NULL) {
        return;
    }
    mst__sim_auth_say(sim, node->index, "is the authority no longer");
    mst__authority_close(&lead->authority);
    mst__free(lead->keys);
    mst__free(lead);
    node->lead = NULL;
}

void mst__sim_auth_lead_news(struct mst__sim_auth *sim,
                             struct mst__sim_auth_node *node,
                             const struct mst__sim_auth_news *news)
{
    struct mst__sim_auth_lead *lead = node->lead;
    const struct mst__sim_auth_doc *doc = &news->key.doc;
    const struct mst__claim claim = {.epoch = doc->epoch, .round = doc->round};
    mst__authority_id id = lead_id(lead, news->key.created);
    if (news->is_gone) {
        const struct mst__authority_event event = {
            .kind = MST_AUTHORITY_EVENT_DEAD, .now_us = sim->now_us, .id = id};
        (void)mst__authority_step(&lead->authority, &event, NULL); /* perhaps replaced already */
        lead_flow(lead);
        return;
    }
    lead_word(lead, &news->key);
    if (mst__kept_announces(doc->has_word, &claim, id != MST_AUTHORITY_NOBODY)) {
        lead_announce(lead, &news->key, NULL);
    }
    lead_flow(lead);
}

void mst__sim_auth_lead_wake(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (node->lead != NULL) {
        const struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_TIME,
                                                   .now_us = sim->now_us};
        (void)mst__authority_step(&node->lead->authority, &event, NULL); /* always 0 */
        lead_flow(node->lead);
    }
}

int64_t mst__sim_auth_lead_due_us(const struct mst__sim_auth_node *node)
{
    return node->lead == NULL ? INT64_MAX : mst__authority_due_us(&node->lead->authority);
}

uint32_t mst__sim_auth_lead_count(const struct mst__sim_auth_node *node)
{
    return node->lead == NULL ? 0 : node->lead->authority.living_count;
}

bool mst__sim_auth_lead_is_writing(const struct mst__sim_auth_node *node)
{
    return node->lead != NULL && (node->lead->is_writing || node->lead->has_to_write);
}

void mst__sim_auth_lead_describe(const struct mst__sim_auth_node *node, char *text, size_t size)
{
    if (node->lead != NULL) {
        mst__authority_describe(&node->lead->authority, node->lead->sim->now_us, text, size);
    }
}
