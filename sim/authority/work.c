/* sim/authority/work.c - members whose work finishes or fails, and the rules for that.
 *
 * The ledger counts what the server hears: who has finished in the running round, and the first
 * failure. */
#include <inttypes.h>

#include "base/assert.h"
#include "base/mem.h"
#include "sim/authority/authority.h"

#define SECOND_US MST_SIM_SECOND_US

/* The longest stay of a program that has finished. */
#define STAY_US_MAX (5 * SECOND_US)

/* Share of programs that stop waiting for the answer, each tenth of a second. */
#define LEAVES_UNHEARD_PPM 20000

/* --- programs --- */

void mst__sim_auth_work_begin(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    mst__sim_auth_work_stop(node);
    if (sim->plan.has_work) {
        node->work_us = sim->now_us + mst__sim_auth_below(sim, sim->plan.work_us_max);
    }
}

void mst__sim_auth_work_stop(struct mst__sim_auth_node *node)
{
    node->work_us = INT64_MAX;
    node->end_us = INT64_MAX;
    node->is_done = false;
}

int64_t mst__sim_auth_work_due_us(const struct mst__sim_auth_node *node)
{
    if (node->app != MST_SIM_AUTH_HOLDING) {
        return INT64_MAX;
    }
    return node->work_us < node->end_us ? node->work_us : node->end_us;
}

static void work_finish(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    mst__sim_auth_say(sim, node->index, "has finished");
    node->is_done = true;
    if (mst__sim_auth_chance(sim, sim->plan.end_ppm)) {
        node->end_us = sim->now_us + mst__sim_auth_below(sim, STAY_US_MAX);
    }
    mst__sim_auth_member_step(
        sim, node,
        (struct mst__member_event){.kind = MST_MEMBER_EVENT_FINISH, .text = mst_bytes_str("done")});
}

static void work_fail(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    const struct mst__cause cause = {
        .worker = 1, .status = ++sim->failures, .text = mst_bytes_str(node->name)};
    mst__sim_auth_say(sim, node->index, "fails, number %" PRId32, cause.status);
    mst__sim_auth_member_step(
        sim, node, (struct mst__member_event){.kind = MST_MEMBER_EVENT_RESTART, .cause = &cause});
    mst__sim_auth_node_react(sim, node, false);
}

/* The program ends, with a report or without. */
static void work_end(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    bool says_so = mst__sim_auth_chance(sim, 500000);
    mst__sim_auth_say(sim, node->index, says_so ? "ends" : "ends without a word");
    if (says_so) {
        mst__sim_auth_member_leave(sim, node);
        mst__sim_auth_node_arm(sim, node);
    }
    mst__sim_auth_node_crash(sim, node, mst__sim_auth_chance(sim, 500000));
    node->app = MST_SIM_AUTH_DONE;
    mst__sim_auth_work_stop(node);
}

/* Engine etcd-v3: whether its report is in the round that it has seen. The product's call waits
 * for that, and gives up after a time. */
static bool is_heard(const struct mst__sim_auth_node *node)
{
    const struct mst__sim_auth_round *round = node->round;
    const struct mst__claim *claim = &node->member.claim;
    bool is_at_work = round != NULL && round->state == MST_SIM_AUTH_SEALED &&
                      round->round == claim->round && round->epoch == claim->epoch;
    return !is_at_work || round->is_finished[claim->rank];
}

bool mst__sim_auth_work_refuses(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (!node->is_done || !mst__sim_auth_chance(sim, sim->plan.end_ppm)) {
        return false;
    }
    node->end_us = sim->now_us + mst__sim_auth_below(sim, SECOND_US);
    return true;
}

void mst__sim_auth_work_wake(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (node->app != MST_SIM_AUTH_HOLDING) {
        return;
    }
    if (node->work_us <= sim->now_us) {
        node->work_us = INT64_MAX;
        if (!sim->is_calm && mst__sim_auth_chance(sim, sim->plan.fail_ppm)) {
            work_fail(sim, node);
        } else {
            work_finish(sim, node);
        }
    } else if (node->end_us <= sim->now_us && !is_heard(node) &&
               !mst__sim_auth_chance(sim, LEAVES_UNHEARD_PPM)) {
        node->end_us = sim->now_us + SECOND_US / 10;
    } else if (node->end_us <= sim->now_us) {
        work_end(sim, node);
    }
}

/* --- what the server hears --- */

void mst__sim_auth_work_forget(struct mst__sim_auth *sim)
{
    mst__free(sim->server.ledger.is_finished);
    sim->server.ledger = (struct mst__sim_auth_ledger){.epoch = 0};
    sim->server.restarts = 0;
    sim->server.restarts_us = 0;
    sim->server.restarts_total = 0;
}

/* The ledger of the current round. */
static struct mst__sim_auth_ledger *ledger(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_ledger *now = &sim->server.ledger;
    const struct mst__authority *authority = &sim->server.authority;
    if (now->epoch != authority->round_epoch || now->round != authority->round) {
        mst__free(now->is_finished);
        *now = (struct mst__sim_auth_ledger){
            .epoch = authority->round_epoch, .round = authority->round, .world = authority->world};
        now->is_finished = mst__calloc(now->world + 1, sizeof *now->is_finished);
        MST_ASSERT(now->is_finished != NULL);
    }
    return now;
}

static struct mst__sim_auth_seal *work_seal(struct mst__sim_auth *sim,
                                            uint64_t epoch,
                                            int64_t round)
{
    for (size_t i = sim->seals_count; i > 0; i--) {
        struct mst__sim_auth_seal *seal = &sim->seals[i - 1];
        if (seal->round == round && seal->epoch == epoch) {
            return seal;
        }
    }
    return NULL;
}

void mst__sim_auth_work_word(struct mst__sim_auth *sim,
                             const struct mst__sim_auth_link *link,
                             const struct mst__job_message *message)
{
    const struct mst__authority *authority = &sim->server.authority;
    bool is_finish = message->type == MST_JOB_FINISH;
    uint64_t epoch = is_finish ? message->u.finish.epoch : message->u.restart.epoch;
    int64_t round = is_finish ? message->u.finish.round : message->u.restart.round;
    bool is_whole =
        authority->phase == MST_AUTHORITY_RUNNING || authority->phase == MST_AUTHORITY_RECLAIMING;
    bool is_current = authority->round == round && authority->round_epoch == epoch;
    const struct mst__authority_member *member = mst__authority_get(authority, link->seat);
    struct mst__sim_auth_seal *seal = work_seal(sim, epoch, round);
    if (!is_whole || !is_current || member == NULL || member->place != MST_PLACE_HOLDING ||
        seal == NULL) {
        return;
    }
    struct mst__sim_auth_ledger *now = ledger(sim);
    bool *is_finished = &now->is_finished[member->rank];
    now->finished += is_finish && !*is_finished ? 1 : 0;
    now->finished -= !is_finish && *is_finished ? 1 : 0;
    *is_finished = is_finish;
    if (!is_finish) {
        MST_ASSERT(seal->causes_count < MST_SIM_AUTH_CAUSES_MAX);
        seal->causes[seal->causes_count++] = message->u.restart.cause.status;
    }
}

/* --- what it decides --- */

static void end_add(struct mst__sim_auth *sim, struct mst__sim_auth_end end)
{
    if (sim->ends_count == sim->ends_capacity) {
        sim->ends_capacity = sim->ends_capacity == 0 ? 8 : 2 * sim->ends_capacity;
        sim->ends = mst__realloc(sim->ends, sim->ends_capacity * sizeof *sim->ends);
        MST_ASSERT(sim->ends != NULL);
    }
    sim->ends[sim->ends_count++] = end;
    sim->is_closed = true;
    sim->was_closed = true;
}

/* A failure has begun a new round: check the budget of the window. */
static void check_restart(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_server *server = &sim->server;
    const struct mst__budget *budget = &sim->plan.budget;
    bool is_over = budget->window_us > 0 && sim->now_us - server->restarts_us >= budget->window_us;
    if (server->restarts == 0 || is_over) {
        server->restarts = 0;
        server->restarts_us = sim->now_us;
    }
    server->restarts++;
    server->restarts_total++;
    if (budget->is_limited && server->restarts > budget->restarts_max) {
        mst__sim_auth_break(sim, "budget", "%" PRIu32 " restarts, and %" PRIu32 " are allowed",
                            server->restarts, budget->restarts_max);
    }
}

/* The job has failed: the budget was used up, or too few nodes are left. */
static void check_failed(struct mst__sim_auth *sim, enum mst__authority_phase from)
{
    const struct mst__sim_auth_server *server = &sim->server;
    const struct mst__authority *authority = &server->authority;
    const struct mst__budget *budget = &sim->plan.budget;
    bool is_used_up = budget->is_limited && server->restarts >= budget->restarts_max;
    bool is_too_few = authority->living_count < sim->plan.nodes_min;
    if (from == MST_AUTHORITY_OPEN ? !is_too_few : !is_used_up) {
        mst__sim_auth_break(sim, "budget",
                            "the job has failed with %" PRIu32 " restarts and %" PRIu32 " nodes",
                            server->restarts, authority->living_count);
    }
    const struct mst__sim_auth_seal *seal =
        work_seal(sim, authority->round_epoch, authority->round);
    bool is_failure = authority->cause.status != 0;
    bool is_last = seal != NULL && seal->causes_count > 0 &&
                   seal->causes[seal->causes_count - 1] == authority->cause.status;
    if (is_failure && !is_last) {
        mst__sim_auth_break(sim, "outcome",
                            "the job has failed of number %" PRId32
                            ", which was not the first of its round",
                            authority->cause.status);
    }
}

void mst__sim_auth_work_moved(struct mst__sim_auth *sim,
                              enum mst__authority_phase from,
                              enum mst__authority_phase to,
                              enum mst__authority_why why)
{
    struct mst__sim_auth_server *server = &sim->server;
    const struct mst__authority *authority = &server->authority;
    if (to == MST_AUTHORITY_OPEN && why == MST_AUTHORITY_WHY_FAILED) {
        check_restart(sim);
    }
    if (to != MST_AUTHORITY_CLOSED) {
        return;
    }
    bool has_failed = authority->outcome == MST_JOB_OUTCOME_FAILED;
    end_add(sim, (struct mst__sim_auth_end){
                     .outcome = authority->outcome,
                     .failure = has_failed ? authority->cause.status : 0,
                     .rank = has_failed ? authority->cause.rank : MST_AUTHORITY_RANK_NONE,
                 });
    server->is_shut = true;
    if (has_failed) {
        check_failed(sim, from);
    } else if (authority->outcome == MST_JOB_OUTCOME_FINISHED &&
               ledger(sim)->finished != authority->world) {
        mst__sim_auth_break(sim, "finish",
                            "the job has finished, and %" PRIu32 " of %" PRIu32 " members have",
                            server->ledger.finished, authority->world);
    }
}

void mst__sim_auth_work_check_lost(struct mst__sim_auth *sim, uint32_t rank)
{
    if (ledger(sim)->is_finished[rank]) {
        mst__sim_auth_break(sim, "finish",
                            "rank %" PRIu32 " of round %" PRId64 " has finished, and is lost", rank,
                            sim->server.authority.round);
    }
}

void mst__sim_auth_work_check_turn(struct mst__sim_auth *sim)
{
    const struct mst__authority *authority = &sim->server.authority;
    bool is_whole =
        authority->phase == MST_AUTHORITY_RUNNING || authority->phase == MST_AUTHORITY_RECLAIMING;
    if (is_whole && ledger(sim)->finished == authority->world) {
        mst__sim_auth_break(sim, "finish", "all %" PRIu32 " members have finished, the job has not",
                            authority->world);
    }
}

/* --- what is stored; engine etcd-v3 --- */

void mst__sim_auth_work_stored(struct mst__sim_auth *sim, const struct mst__sim_auth_key *key)
{
    const struct mst__sim_auth_doc *doc = &key->doc;
    struct mst__sim_auth_seal *seal =
        doc->has_word ? work_seal(sim, doc->word_epoch, doc->word_round) : NULL;
    for (uint32_t rank = 0; seal != NULL && rank < seal->world; rank++) {
        if (seal->seats[rank].key != key->created) {
            continue;
        }
        seal->has_finished[rank] = seal->has_finished[rank] || doc->is_finish;
        seal->failed[rank] = doc->is_finish ? seal->failed[rank] : doc->failure;
    }
}

/* Whether a member of @seal has reported @failure; 0 = any failure. */
static bool has_failed_of(const struct mst__sim_auth_seal *seal, int32_t failure)
{
    for (uint32_t rank = 0; seal != NULL && rank < seal->world; rank++) {
        if (seal->failed[rank] != 0 && (failure == 0 || seal->failed[rank] == failure)) {
            return true;
        }
    }
    return false;
}

/* Each failed round counts as one restart, within the budget. */
static void check_restarts(struct mst__sim_auth *sim,
                           const struct mst__sim_auth_round *before,
                           const struct mst__sim_auth_round *round)
{
    const struct mst__budget *budget = &sim->plan.budget;
    bool is_same = round->epoch == before->epoch && round->round == before->round;
    const struct mst__sim_auth_seal *seal = work_seal(sim, before->epoch, before->round);
    uint32_t added = round->restarts_total - before->restarts_total;
    bool is_failure = is_same && before->state == MST_SIM_AUTH_SEALED &&
                      round->state == MST_SIM_AUTH_OPEN && round->why == MST_AUTHORITY_WHY_FAILED;
    if (added > 1 || (added == 1 && !has_failed_of(seal, 0)) || (is_failure && added != 1)) {
        mst__sim_auth_break(sim, "restarts",
                            "%" PRIu32 " restarts behind %" PRIu32 " in round %" PRId64,
                            round->restarts_total, before->restarts_total, before->round);
    }
    if (budget->is_limited &&
        (round->restarts > budget->restarts_max ||
         (budget->window_us == 0 && round->restarts_total > budget->restarts_max))) {
        mst__sim_auth_break(sim, "budget", "%" PRIu32 " restarts, and %" PRIu32 " are allowed",
                            round->restarts_total, budget->restarts_max);
    }
    if (is_same ? round->restarts_before != before->restarts_before
                : round->restarts_before != round->restarts_total) {
        mst__sim_auth_break(sim, "restarts",
                            "%" PRIu32 " restarts before round %" PRId64 ", and %" PRIu32 " in all",
                            round->restarts_before, round->round, round->restarts_total);
    }
}

void mst__sim_auth_work_closed(struct mst__sim_auth *sim, const struct mst__sim_auth_round *round)
{
    end_add(sim, (struct mst__sim_auth_end){
                     .outcome = round->outcome,
                     .failure = round->failure,
                     .rank = round->failure_rank,
                 });
}

/* The job has ended: all have finished, or a failure exceeds the budget. */
static void check_end_written(struct mst__sim_auth *sim, const struct mst__sim_auth_round *round)
{
    const struct mst__budget *budget = &sim->plan.budget;
    const struct mst__sim_auth_seal *seal = work_seal(sim, round->epoch, round->round);
    uint32_t finished = 0;
    for (uint32_t rank = 0; seal != NULL && rank < seal->world; rank++) {
        finished += seal->has_finished[rank];
    }
    bool has_failed = round->outcome == MST_JOB_OUTCOME_FAILED;
    bool is_used_up = budget->is_limited && round->restarts >= budget->restarts_max;
    if (round->outcome == MST_JOB_OUTCOME_FINISHED && finished != round->world) {
        mst__sim_auth_break(sim, "finish",
                            "the job has finished, and %" PRIu32 " of %" PRIu32 " members have",
                            finished, round->world);
    } else if (has_failed && !is_used_up && finished == 0) {
        mst__sim_auth_break(sim, "budget", "the job has failed with %" PRIu32 " restarts",
                            round->restarts);
    }
    mst__sim_auth_work_closed(sim, round);
}

/* Only members whose work is not done may be lost. */
static void check_missed(struct mst__sim_auth *sim, const struct mst__sim_auth_round *round)
{
    bool is_missed = false;
    for (uint32_t rank = 0; rank < round->world; rank++) {
        is_missed = is_missed || (round->is_gone[rank] && !round->is_finished[rank]);
    }
    if (!is_missed) {
        mst__sim_auth_break(sim, "finish",
                            "round %" PRId64 " is over because of those who have finished",
                            round->round);
    }
}

/* A failure counts before the return of its node: a round is over because of a return only if a
 * member returned that has not failed. */
static void check_returned(struct mst__sim_auth *sim, const struct mst__sim_auth_round *round)
{
    uint32_t failed = 0;
    uint32_t others = 0;
    for (uint32_t rank = 0; rank < round->world; rank++) {
        const struct mst__sim_auth_key *key = mst__sim_auth_store_find(sim, round->members[rank]);
        bool is_back =
            key != NULL && key->doc.round == round->round && key->doc.epoch == round->epoch;
        bool has_failed = is_back && key->doc.has_word && !key->doc.is_finish;
        failed += has_failed;
        others += key == NULL || (is_back && !has_failed);
    }
    if (failed > 0 && others == 0) {
        mst__sim_auth_break(sim, "restarts",
                            "round %" PRId64 " has failed, and is over because one came back",
                            round->round);
    }
}

void mst__sim_auth_work_check_written(struct mst__sim_auth *sim,
                                      const struct mst__sim_auth_round *before,
                                      const struct mst__sim_auth_round *round)
{
    bool is_same = round->epoch == before->epoch && round->round == before->round;
    const struct mst__sim_auth_seal *seal = work_seal(sim, before->epoch, before->round);
    check_restarts(sim, before, round);
    if (round->state == MST_SIM_AUTH_CLOSED) {
        check_end_written(sim, round);
    }
    bool is_new = is_same && before->state == MST_SIM_AUTH_SEALED;
    if (is_new && round->has_cause && round->failure != 0 && !has_failed_of(seal, round->failure)) {
        mst__sim_auth_break(sim, "outcome", "number %" PRId32 " is no failure of round %" PRId64,
                            round->failure, round->round);
    }
    if (is_new && round->state == MST_SIM_AUTH_OPEN &&
        (round->why == MST_AUTHORITY_WHY_LOST || round->why == MST_AUTHORITY_WHY_LEFT)) {
        check_missed(sim, round);
    } else if (is_new && round->state == MST_SIM_AUTH_OPEN &&
               round->why == MST_AUTHORITY_WHY_RETURNED) {
        check_returned(sim, round);
    }
}

/* --- what nodes hear --- */

static void check_end(struct mst__sim_auth *sim,
                      const struct mst__sim_auth_node *node,
                      const struct mst__job_end *end)
{
    for (size_t i = 0; i < sim->ends_count; i++) {
        const struct mst__sim_auth_end *decided = &sim->ends[i];
        bool is_failed = decided->outcome == MST_JOB_OUTCOME_FAILED;
        bool is_cause = end->has_cause && end->cause.status == decided->failure &&
                        end->cause.rank == decided->rank;
        if (end->outcome == (uint32_t)decided->outcome &&
            (is_failed ? is_cause : !end->has_cause)) {
            return;
        }
    }
    mst__sim_auth_break(sim, "outcome",
                        "node %" PRIu32 " hears outcome %" PRIu32 " of number %" PRId32
                        ", which was not decided",
                        node->index, end->outcome, end->cause.status);
}

static bool is_cause_of(const struct mst__sim_auth_seal *seal, int32_t number)
{
    bool is_it = false;
    for (size_t i = 0; seal != NULL && i < seal->causes_count; i++) {
        is_it = is_it || seal->causes[i] == number;
    }
    return is_it;
}

void mst__sim_auth_work_check_heard(struct mst__sim_auth *sim,
                                    const struct mst__sim_auth_node *node,
                                    const struct mst__job_message *message)
{
    const struct mst__claim *claim = &node->member.claim;
    if (message->type == MST_JOB_CLOSED) {
        check_end(sim, node, &message->u.close.end);
    } else if (message->type == MST_JOB_REFUSED &&
               message->u.refused.refusal == MST_REFUSAL_CLOSED) {
        check_end(sim, node, &message->u.refused.end);
    } else if (message->type == MST_JOB_REOPENED && node->member.phase == MST_MEMBER_HOLDING &&
               message->u.reopened.why == MST_AUTHORITY_WHY_FAILED) {
        const struct mst__sim_auth_seal *seal = work_seal(sim, claim->epoch, claim->round);
        const struct mst__job_end *end = &message->u.reopened.end;
        if (!end->has_cause ||
            !(is_cause_of(seal, end->cause.status) || has_failed_of(seal, end->cause.status))) {
            mst__sim_auth_break(sim, "outcome",
                                "node %" PRIu32 " hears that its round is over because of "
                                "number %" PRId32 ", and it was another one",
                                node->index, end->cause.status);
        }
    }
}
