/* sim/authority/keeper.c - a node of the engine etcd-v3: it keeps its key with a lease, watches the
 * round and its predecessor, and becomes the authority when its key is the oldest. */
#include <inttypes.h>

#include "base/assert.h"
#include "base/mem.h"
#include "sim/authority/authority.h"

#define SECOND_US MST_SIM_SECOND_US
#define CALL_US (2 * SECOND_US)
#define AGAIN_US 200000

/* Ask for the round after the known one; repeat the report of a failure in that round. */
static void keeper_say(struct mst__sim_auth_node *node)
{
    struct mst__sim_auth_doc before = node->doc;
    node->doc = (struct mst__sim_auth_doc){
        .epoch = node->member.claim.epoch,
        .round = node->member.claim.round,
        .world = node->member.claim.world,
        .rank = node->member.claim.rank,
    };
    if (before.has_word && !before.is_finish && before.word_round == node->doc.round) {
        node->doc.has_word = true;
        node->doc.word_epoch = before.word_epoch;
        node->doc.word_round = before.word_round;
        node->doc.failure = before.failure;
    }
    node->has_to_put = node->key != 0;
}

/* Report the end of the work in the current round. A report is not a return. */
static void keeper_say_word(struct mst__sim_auth_node *node,
                            const struct mst__member_effect *effect)
{
    struct mst__job_message message;
    mst__member_message(&node->member, effect, &message);
    bool is_finish = effect->type == MST_JOB_FINISH;
    node->doc = (struct mst__sim_auth_doc){
        .rank = MST_AUTHORITY_RANK_NONE,
        .has_word = true,
        .is_finish = is_finish,
        .word_epoch = is_finish ? message.u.finish.epoch : message.u.restart.epoch,
        .word_round = is_finish ? message.u.finish.round : message.u.restart.round,
        .failure = is_finish ? 0 : message.u.restart.cause.status,
    };
    node->has_to_put = node->key != 0;
}

static void keeper_send(struct mst__sim_auth *sim,
                        const struct mst__sim_auth_node *node,
                        const struct mst__sim_auth_ask *ask)
{
    mst__sim_auth_at(sim, sim->now_us + mst__sim_auth_delay(sim), MST_SIM_AUTH_ASK,
                     (struct mst__sim_event){.node = node->index,
                                             .pid = (int64_t)node->life,
                                             .bytes = mst__sim_auth_copy(ask, sizeof *ask),
                                             .size = sizeof *ask});
}

/* Choose the next request; false = none. */
static bool keeper_choose(struct mst__sim_auth_node *node, struct mst__sim_auth_ask *ret_ask)
{
    *ret_ask =
        (struct mst__sim_auth_ask){.key = node->key, .session = node->session, .doc = node->doc};
    if (node->has_to_leave) {
        ret_ask->verb = MST_SIM_AUTH_ASK_LEAVE;
        return true;
    }
    if (!mst__sim_auth_is_up(node)) {
        return false;
    }
    if (node->key == 0) {
        ret_ask->verb = MST_SIM_AUTH_ASK_JOIN;
        return node->app == MST_SIM_AUTH_JOINING;
    }
    if (node->has_to_read) {
        ret_ask->verb = MST_SIM_AUTH_ASK_READ;
        return true;
    }
    if (node->has_to_put) {
        ret_ask->verb = MST_SIM_AUTH_ASK_PUT;
        ret_ask->modified = node->key_rev;
        return true;
    }
    if (node->wants_close) {
        ret_ask->verb = MST_SIM_AUTH_ASK_CLOSE;
        ret_ask->modified = node->round->modified;
        return true;
    }
    return mst__sim_auth_lead_ask(node, ret_ask);
}

void mst__sim_auth_keeper_step(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    struct mst__sim_auth_ask ask;
    bool is_pausing = node->retry_us != INT64_MAX && node->retry_us > sim->now_us;
    if (node->asked != 0 || is_pausing || !keeper_choose(node, &ask)) {
        return;
    }
    node->retry_us = INT64_MAX;
    ask.serial = ++sim->serials;
    node->asked = ask.serial;
    node->answer_us = sim->now_us + CALL_US;
    keeper_send(sim, node, &ask);
}

/* The session is over: drop the watch and the authority. */
static void keeper_let_go(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (node->key != 0) {
        node->session = ++sim->serials;
    } /* else the request for the key may be under way: keep the session */
    mst__sim_auth_lead_end(sim, node);
    node->watch = 0;
    node->has_to_put = false;
    node->has_to_read = false;
    node->beat_us = INT64_MAX;
}

static void keeper_part(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    keeper_let_go(sim, node);
    node->asked = 0;
    node->has_to_leave = node->key != 0;
    node->wants_close = false;
    mst__sim_auth_keeper_step(sim, node);
    node->key = 0; /* if LEAVE is lost, the lease expires */
    node->has_to_leave = false;
}

void mst__sim_auth_keeper_shut(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    node->wants_close = node->round != NULL && node->key != 0;
    mst__sim_auth_keeper_step(sim, node);
    mst__sim_auth_node_arm(sim, node);
}

int64_t mst__sim_auth_keeper_due_us(const struct mst__sim_auth_node *node)
{
    int64_t due_us = node->beat_us < node->retry_us ? node->beat_us : node->retry_us;
    int64_t lead_us = mst__sim_auth_lead_due_us(node);
    due_us = lead_us < due_us ? lead_us : due_us;
    return node->asked != 0 && node->answer_us < due_us ? node->answer_us : due_us;
}

void mst__sim_auth_keeper_wake(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (node->key != 0 && node->beat_us <= sim->now_us) {
        const struct mst__sim_auth_ask ask = {.verb = MST_SIM_AUTH_ASK_ALIVE, .key = node->key};
        keeper_send(sim, node, &ask);
        node->beat_us = sim->now_us + sim->plan.beat_us;
    }
    if (node->asked != 0 && node->answer_us <= sim->now_us) {
        /* The result of the request is unknown. */
        node->asked = 0;
        node->has_to_read = node->key != 0;
        mst__sim_auth_lead_end(sim, node);
    }
    mst__sim_auth_lead_wake(sim, node);
    if (node->retry_us <= sim->now_us) {
        node->retry_us = INT64_MAX;
    }
    mst__sim_auth_keeper_step(sim, node);
}

/* --- what it learns --- */

static void keeper_expelled(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);

static void keeper_lost_key(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    mst__sim_auth_say(sim, node->index, "its key is gone");
    keeper_let_go(sim, node);
    node->key = 0;
    node->asked = 0;
    node->bad_us = node->bad_us < sim->now_us ? sim->now_us : node->bad_us;
    if (node->member.phase == MST_MEMBER_HOLDING) {
        keeper_expelled(sim, node);
    }
}

static uint32_t round_rank(const struct mst__sim_auth_round *round, uint64_t key)
{
    for (uint32_t rank = 0; key != 0 && rank < round->world; rank++) {
        if (round->members[rank] == key) {
            return rank;
        }
    }
    return MST_AUTHORITY_RANK_NONE;
}

static bool round_is_full(const struct mst__sim_auth *sim, const struct mst__sim_auth_round *round)
{
    bool is_full = round->world >= sim->plan.nodes_max ||
                   (sim->plan.is_fixed && round->world >= round->first_world);
    return round->state == MST_SIM_AUTH_SEALED && is_full;
}

static void keeper_joining(struct mst__sim_auth *sim,
                           struct mst__sim_auth_node *node,
                           const struct mst__sim_auth_round *round)
{
    uint32_t rank = round_rank(round, node->key);
    bool is_in = rank != MST_AUTHORITY_RANK_NONE && round->round > node->member.claim.round;
    bool runs = round->state == MST_SIM_AUTH_SEALED;
    const struct mst__job_message message = {.type = is_in                       ? MST_JOB_SEALED
                                                     : round_is_full(sim, round) ? MST_JOB_SPARE
                                                                                 : MST_JOB_QUEUED,
                                             .u.round = {.epoch = round->epoch,
                                                         .round = round->round,
                                                         .world = round->world,
                                                         .rank = rank,
                                                         .restarts = round->restarts_before}};
    if (is_in) {
        mst__sim_auth_check_told(sim, node, &message.u.round);
        node->has_to_put = false;
        node->doc.has_word = false;
    }
    if (is_in || (runs && rank == MST_AUTHORITY_RANK_NONE)) {
        mst__sim_auth_member_heard(sim, node, &message);
    }
}

/* The outcome of the job, or the cause that ended its round. */
static struct mst__job_end round_end(const struct mst__sim_auth_round *round)
{
    return (struct mst__job_end){.outcome = (uint32_t)round->outcome,
                                 .has_cause = round->has_cause,
                                 .cause = {.status = round->failure, .rank = round->failure_rank}};
}

static void keeper_expelled(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    const struct mst__job_message message = {.type = MST_JOB_EXPELLED,
                                             .u.text = mst_bytes_str("its session has ended")};
    mst__sim_auth_member_heard(sim, node, &message);
}

static void keeper_holding(struct mst__sim_auth *sim,
                           struct mst__sim_auth_node *node,
                           const struct mst__sim_auth_round *round)
{
    const struct mst__claim *claim = &node->member.claim;
    bool is_current = round->round == claim->round && round->epoch == claim->epoch;
    bool is_gone = is_current && round->state == MST_SIM_AUTH_OPEN && round->is_gone[claim->rank];
    if (is_gone || (!is_current && round->round > claim->round)) {
        keeper_expelled(sim, node);
        keeper_part(sim, node); /* the next session is a new one */
    } else if (is_current && round->state == MST_SIM_AUTH_OPEN) {
        const struct mst__job_message message = {
            .type = MST_JOB_REOPENED,
            .u.reopened = {.why = (uint32_t)round->why, .end = round_end(round)}};
        mst__sim_auth_work_check_heard(sim, node, &message);
        mst__sim_auth_member_heard(sim, node, &message);
    } else if (is_current) {
        const struct mst__job_message message = {.type = MST_JOB_WAITING,
                                                 .u.waiting.count = round->waiting};
        mst__sim_auth_member_heard(sim, node, &message);
    }
}

/* The session exists: send WELCOME to the member. */
static void keeper_welcome(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (node->member.link == MST_MEMBER_CONNECTED && mst__sim_auth_is_up(node)) {
        const struct mst__job_message message = {.type = MST_JOB_WELCOME,
                                                 .u.welcome.version = MST_JOB_VERSION};
        mst__sim_auth_member_heard(sim, node, &message);
    }
}

static void keeper_round(struct mst__sim_auth *sim,
                         struct mst__sim_auth_node *node,
                         const struct mst__sim_auth_round *round)
{
    keeper_welcome(sim, node);
    if (node->round != NULL && round->modified < node->round->modified) {
        return;
    }
    if (node->round == NULL) {
        node->round = mst__malloc(sizeof *node->round);
        MST_ASSERT(node->round != NULL);
    }
    *node->round = *round;
    if (round->state == MST_SIM_AUTH_CLOSED && mst__sim_auth_is_up(node)) {
        const struct mst__job_message message = {
            .type = MST_JOB_CLOSED,
            .u.closed = {.reason = mst_bytes_str("done"), .end = round_end(round)}};
        mst__sim_auth_work_check_heard(sim, node, &message);
        mst__sim_auth_member_heard(sim, node, &message);
    } else if (node->member.phase == MST_MEMBER_JOINING) {
        keeper_joining(sim, node, round);
    }
    if (node->member.phase == MST_MEMBER_HOLDING) {
        keeper_holding(sim, node, round);
    }
}

static bool doc_is(const struct mst__sim_auth_doc *a, const struct mst__sim_auth_doc *b)
{
    return a->epoch == b->epoch && a->round == b->round && a->rank == b->rank &&
           a->has_word == b->has_word && a->is_finish == b->is_finish && a->failure == b->failure;
}

static void keeper_answered(struct mst__sim_auth *sim,
                            struct mst__sim_auth_node *node,
                            const struct mst__sim_auth_answer *answer)
{
    bool is_said = doc_is(&answer->doc, &node->doc) ||
                   (node->app != MST_SIM_AUTH_JOINING && !node->doc.has_word);
    switch (answer->verb) {
        case MST_SIM_AUTH_ASK_JOIN:
            node->key = answer->key;
            node->key_rev = answer->modified;
            node->has_to_read = true;
            node->has_to_put = !is_said;
            node->beat_us = sim->now_us + sim->plan.beat_us / 2;
            return;
        case MST_SIM_AUTH_ASK_PUT:
            node->key_rev = answer->modified;
            node->has_to_put = !is_said;
            /* A node that comes back to a closed job has read that already. */
            if (node->round != NULL && node->round->state == MST_SIM_AUTH_CLOSED) {
                keeper_round(sim, node, node->round);
            }
            return;
        case MST_SIM_AUTH_ASK_READ:
            node->has_to_read = false;
            node->watch = answer->watch;
            node->watch_rev = answer->revision;
            node->watch_heard = 0;
            node->predecessor = answer->predecessor;
            keeper_round(sim, node, &answer->round);
            if (node->key != 0 && answer->key != 0 && answer->predecessor == 0 &&
                mst__sim_auth_is_up(node) && answer->round.state != MST_SIM_AUTH_CLOSED) {
                mst__sim_auth_lead_end(sim, node);
                mst__sim_auth_lead_begin(sim, node, answer);
            }
            return;
        case MST_SIM_AUTH_ASK_WRITE:
            mst__sim_auth_lead_written(sim, node, answer);
            node->has_to_read = node->lead == NULL;
            return;
        case MST_SIM_AUTH_ASK_CLOSE:
            node->wants_close = !answer->is_done;
            keeper_round(sim, node, &answer->round);
            return;
        case MST_SIM_AUTH_ASK_ALIVE:
        case MST_SIM_AUTH_ASK_LEAVE:
            return;
    }
}

static void keeper_answer(struct mst__sim_auth *sim,
                          struct mst__sim_auth_node *node,
                          const struct mst__sim_auth_answer *answer)
{
    bool is_alive = answer->verb == MST_SIM_AUTH_ASK_ALIVE;
    if (is_alive) {
        bool is_gone = node->key != 0 && !answer->is_failed && !answer->is_done;
        if (is_gone && mst__sim_auth_store_find(sim, node->key) == NULL) {
            keeper_lost_key(sim, node);
        }
        return;
    }
    if (answer->serial != node->asked) {
        sim->stats.late++;
        return;
    }
    node->asked = 0;
    if (answer->is_failed) {
        node->retry_us = sim->now_us + AGAIN_US / 2 + mst__sim_auth_below(sim, AGAIN_US);
        node->has_to_read = node->has_to_read || node->key != 0;
        mst__sim_auth_lead_end(sim, node);
    } else if (answer->key == 0 && node->key != 0) {
        keeper_lost_key(sim, node);
    } else {
        keeper_answered(sim, node, answer);
    }
}

static void keeper_news(struct mst__sim_auth *sim,
                        struct mst__sim_auth_node *node,
                        const struct mst__sim_auth_news *news)
{
    if (news->watch != node->watch || node->key == 0) {
        return;
    }
    if (news->is_lost) {
        node->watch = 0;
        node->has_to_read = true;
        mst__sim_auth_lead_end(sim, node);
        return;
    }
    if (news->revision <= node->watch_rev) {
        return;
    }
    if (news->is_round) {
        keeper_round(sim, node, &news->round);
    } else if (news->is_gone && news->key.created == node->key) {
        keeper_lost_key(sim, node);
    } else if (news->is_gone && news->key.created == node->predecessor) {
        node->has_to_read = true;
    } else if (node->lead != NULL) {
        mst__sim_auth_lead_news(sim, node, news);
    }
}

void mst__sim_auth_keeper_heard(struct mst__sim_auth *sim, struct mst__sim_event *event)
{
    struct mst__sim_auth_node *node = mst__sim_auth_node(sim, event->node);
    enum mst__sim_auth_kind kind = (enum mst__sim_auth_kind)event->kind;
    if (node->cut_us > sim->now_us) {
        mst__sim_auth_at(sim, node->cut_us, kind, *event);
        event->bytes = NULL;
        return;
    }
    if ((int64_t)node->life != event->pid || !mst__sim_auth_is_up(node)) {
        return;
    }
    if (kind == MST_SIM_AUTH_ANSWER) {
        keeper_answer(sim, node, (const struct mst__sim_auth_answer *)(void *)event->bytes);
    } else {
        const struct mst__sim_auth_news *news = (void *)event->bytes;
        /* Deliver it after earlier news and after the answer that began the watch: freezes and
         * partitions delay in turn, and could change the order. */
        bool is_early = news->watch == node->watch ? event->epoch > node->watch_heard + 1
                                                   : news->watch > node->watch && node->asked != 0;
        if (is_early) {
            mst__sim_auth_at(sim, sim->now_us + MST_SIM_AUTH_ORDER_US, kind, *event);
            event->bytes = NULL;
            return;
        }
        node->watch_heard = news->watch == node->watch ? event->epoch : node->watch_heard;
        keeper_news(sim, node, news);
    }
    mst__sim_auth_keeper_step(sim, node);
    mst__sim_auth_node_arm(sim, node);
}

/* --- effects --- */

void mst__sim_auth_keeper_effect(struct mst__sim_auth *sim,
                                 struct mst__sim_auth_node *node,
                                 const struct mst__member_effect *effect)
{
    if (effect->kind == MST_MEMBER_SEND && effect->type == MST_JOB_ANNOUNCE) {
        node->has_to_leave = false;
        keeper_say(node);
        mst__sim_auth_keeper_step(sim, node);
    } else if (effect->kind == MST_MEMBER_SEND &&
               (effect->type == MST_JOB_FINISH || effect->type == MST_JOB_RESTART)) {
        sim->word_us = sim->now_us;
        keeper_say_word(node, effect);
        mst__sim_auth_keeper_step(sim, node);
    } else if (effect->kind == MST_MEMBER_DISCONNECT) {
        keeper_part(sim, node);
    } else if (effect->kind == MST_MEMBER_EXPLAIN) {
        bool is_spare = node->round != NULL && round_is_full(sim, node->round);
        mst__sim_auth_member_step(sim, node,
                                  (struct mst__member_event){.kind = MST_MEMBER_EVENT_EXPLAINED,
                                                             .is_spare = is_spare,
                                                             .text = mst_bytes_str("few")});
    }
}
