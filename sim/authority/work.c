/* sim/authority/work.c - members whose work finishes or fails, and the rules for that.
 *
 * The ledger counts what the server hears: who has finished in the running round, and the first
 * failure. */
#include <inttypes.h>

#include "base/assert.h"
#include "base/bytes.h"
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
    const struct mst__cause cause = {.worker = 1,
                                     .status = ++sim->failures,
                                     .text = mst_bytes_str(node->name),
                                     .report = mst_bytes_str(node->name)};
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
    mst__free(sim->server.ledger.leaving_us);
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
        mst__free(now->leaving_us);
        *now = (struct mst__sim_auth_ledger){
            .epoch = authority->round_epoch, .round = authority->round, .world = authority->world};
        now->is_finished = mst__calloc(now->world + 1, sizeof *now->is_finished);
        now->leaving_us = mst__calloc(now->world + 1, sizeof *now->leaving_us);
        MST_ASSERT(now->is_finished != NULL && now->leaving_us != NULL);
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

static bool is_whole(const struct mst__authority *authority)
{
    return authority->phase == MST_AUTHORITY_RUNNING ||
           authority->phase == MST_AUTHORITY_RECLAIMING;
}

/* Whether a member at work other than @self has no connection. */
static bool is_missing(const struct mst__sim_auth *sim, const struct mst__authority_member *self)
{
    const struct mst__authority_member *member;
    uint32_t cursor = 0;
    while ((member = mst__authority_next_holder(&sim->server.authority, &cursor)) != NULL) {
        if (member != self && member->driver == NULL && !member->is_finished) {
            return true;
        }
    }
    return false;
}

/* Whether a member other than @self has said that it leaves about now. */
static bool is_leaving(struct mst__sim_auth *sim, const struct mst__authority_member *self)
{
    const struct mst__sim_auth_ledger *now = ledger(sim);
    for (uint32_t rank = 0; rank < now->world; rank++) {
        const struct mst__authority_member *member =
            mst__authority_ranked(&sim->server.authority, rank);
        bool is_there = member != NULL && member->place == MST_PLACE_HOLDING;
        if (is_there && member != self && now->leaving_us[rank] >= sim->now_us) {
            return true;
        }
    }
    return false;
}

void mst__sim_auth_work_leaving(struct mst__sim_auth *sim,
                                const struct mst__sim_auth_link *link,
                                const struct mst__job_leaving *leaving)
{
    const struct mst__authority *authority = &sim->server.authority;
    const struct mst__authority_member *member = mst__authority_get(authority, link->seat);
    bool is_current =
        authority->round == leaving->round && authority->round_epoch == leaving->epoch;
    if (is_whole(authority) && is_current && member != NULL && member->place == MST_PLACE_HOLDING) {
        ledger(sim)->leaving_us[member->rank] = sim->now_us + leaving->in_us + sim->plan.expiry_us;
    }
}

void mst__sim_auth_work_word(struct mst__sim_auth *sim,
                             const struct mst__sim_auth_link *link,
                             const struct mst__job_message *message)
{
    const struct mst__authority *authority = &sim->server.authority;
    bool is_finish = message->type == MST_JOB_FINISH;
    uint64_t epoch = is_finish ? message->u.finish.epoch : message->u.restart.epoch;
    int64_t round = is_finish ? message->u.finish.round : message->u.restart.round;
    bool is_current = authority->round == round && authority->round_epoch == epoch;
    const struct mst__authority_member *member = mst__authority_get(authority, link->seat);
    struct mst__sim_auth_seal *seal = work_seal(sim, epoch, round);
    if (!is_whole(authority) || !is_current || member == NULL ||
        member->place != MST_PLACE_HOLDING || seal == NULL) {
        return;
    }
    struct mst__sim_auth_ledger *now = ledger(sim);
    bool *is_finished = &now->is_finished[member->rank];
    now->finished += is_finish && !*is_finished ? 1 : 0;
    now->finished -= !is_finish && *is_finished ? 1 : 0;
    *is_finished = is_finish;
    if (is_finish) {
        return;
    }
    struct mst__sim_auth_blame *blame = &sim->server.blame;
    *blame = (struct mst__sim_auth_blame){.is_on = true,
                                          .is_missing =
                                              is_missing(sim, member) || is_leaving(sim, member),
                                          .epoch = epoch,
                                          .round = round,
                                          .node = link->node,
                                          .rank = member->rank,
                                          .number = message->u.restart.cause.status};
    if (!blame->is_missing) {
        MST_ASSERT(seal->causes_count < MST_SIM_AUTH_CAUSES_MAX);
        seal->cause_ranks[seal->causes_count] = blame->rank;
        seal->causes[seal->causes_count++] = blame->number;
    }
}

void mst__sim_auth_work_decided(struct mst__sim_auth *sim)
{
    const struct mst__authority *authority = &sim->server.authority;
    struct mst__sim_auth_blame *blame = &sim->server.blame;
    bool goes_on = is_whole(authority) && authority->round == blame->round &&
                   authority->round_epoch == blame->epoch;
    if (blame->is_on && goes_on) {
        mst__sim_auth_break(sim, "cause",
                            "node %" PRIu32 " fails, number %" PRId32 ", and round %" PRId64
                            " goes on",
                            blame->node, blame->number, blame->round);
    }
    blame->is_on = false;
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

/* Whether the stored cause names the member that had its rank. */
static bool is_named(const struct mst__sim_auth *sim)
{
    const struct mst__authority *authority = &sim->server.authority;
    const struct mst__sim_auth_roster *roster = &sim->server.roster;
    uint32_t rank = authority->cause.rank;
    char name[24] = "";
    if (rank < roster->world && roster->nodes[rank] < sim->plan.nodes) {
        (void)snprintf(name, sizeof name, "node%" PRIu32, roster->nodes[rank]); /* fits */
    }
    /* The name of a member that has not come to this authority is not known. */
    return strcmp(authority->cause_node, name) == 0 ||
           (roster->is_adopted && authority->cause_node[0] == '\0');
}

/* A round that was whole is over because of the report of a failure, or the job is. */
static void check_blame(struct mst__sim_auth *sim, enum mst__authority_why why)
{
    const struct mst__authority *authority = &sim->server.authority;
    const struct mst__sim_auth_blame *blame = &sim->server.blame;
    bool is_it = blame->is_on && !blame->is_missing && authority->cause.rank == blame->rank &&
                 authority->cause.status == blame->number && is_named(sim);
    if (why == MST_AUTHORITY_WHY_FAILED && !is_it) {
        mst__sim_auth_break(sim, "cause",
                            "failure %" PRId32 " of '%s', rank %" PRIu32
                            ", is the cause, and was not reported now, or follows from a loss",
                            authority->cause.status, authority->cause_node, authority->cause.rank);
    } else if (why == MST_AUTHORITY_WHY_LOST && blame->is_on && !blame->is_missing) {
        mst__sim_auth_break(sim, "cause",
                            "node %" PRIu32 " fails, and rank %" PRIu32
                            " is blamed, which is not missing",
                            blame->node, authority->reopened_rank);
    }
}

/* A round is over because a member is lost or has left: it is gone, or without a connection when
 * another one fails. */
static void check_gone(struct mst__sim_auth *sim, enum mst__authority_why why)
{
    const struct mst__authority *authority = &sim->server.authority;
    uint32_t rank = authority->reopened_rank;
    bool is_rank = rank < authority->world;
    const struct mst__authority_member *member =
        is_rank ? mst__authority_ranked(authority, rank) : NULL;
    /* Its successor, of the same name, may have the place already. */
    bool is_gone = member == NULL || member->place != MST_PLACE_HOLDING;
    bool is_cut = sim->server.blame.is_on && member != NULL && member->driver == NULL &&
                  member->place == MST_PLACE_HOLDING && !member->is_finished;
    bool is_about_to_go = sim->server.blame.is_on && why == MST_AUTHORITY_WHY_LEFT && is_rank &&
                          ledger(sim)->leaving_us[rank] >= sim->now_us;
    if (!is_rank || !(is_gone || is_cut || is_about_to_go)) {
        mst__sim_auth_break(sim, "cause",
                            "round %" PRId64 " is over, %s, because of rank %" PRIu32
                            ", which is there",
                            authority->round, mst__authority_why_name(why), rank);
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
    bool is_over = to == MST_AUTHORITY_OPEN || to == MST_AUTHORITY_CLOSED;
    if (is_over && from != MST_AUTHORITY_OPEN) {
        check_blame(sim, why);
    }
    if (to == MST_AUTHORITY_OPEN &&
        (why == MST_AUTHORITY_WHY_LOST || why == MST_AUTHORITY_WHY_LEFT)) {
        check_gone(sim, why);
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
    if (has_failed && !is_named(sim)) {
        mst__sim_auth_break(sim, "cause", "the job has failed because of '%s', rank %" PRIu32,
                            authority->cause_node, authority->cause.rank);
    }
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
    if (is_whole(authority) && ledger(sim)->finished == authority->world) {
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

/* Whether a member of @seal has reported a failure. */
static bool has_failed_of(const struct mst__sim_auth_seal *seal)
{
    for (uint32_t rank = 0; seal != NULL && rank < seal->world; rank++) {
        if (seal->failed[rank] != 0) {
            return true;
        }
    }
    return false;
}

/* Whether @rank of @seal has reported failure @number, which counted at a server, or is stored. */
static bool is_cause_of(const struct mst__sim_auth_seal *seal, int32_t number, uint32_t rank)
{
    bool is_it = seal != NULL && rank < seal->world && rank < MST_SIM_AUTH_V3_NODES_MAX &&
                 seal->failed[rank] == number;
    for (size_t i = 0; seal != NULL && i < seal->causes_count; i++) {
        is_it = is_it || (seal->causes[i] == number && seal->cause_ranks[i] == rank);
    }
    return is_it;
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
    if (added > 1 || (added == 1 && !has_failed_of(seal)) || (is_failure && added != 1)) {
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
    if (is_new && round->has_cause && round->failure != 0 &&
        !is_cause_of(seal, round->failure, round->failure_rank)) {
        mst__sim_auth_break(
            sim, "cause", "number %" PRId32 " is no failure of rank %" PRIu32 " in round %" PRId64,
            round->failure, round->failure_rank, round->round);
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

/* The report of a failure is that of its own sentence; a job that gives out has none. */
static void check_report(struct mst__sim_auth *sim,
                         const struct mst__sim_auth_node *node,
                         const struct mst__job_end *end)
{
    bool is_reported = end->has_cause && end->cause.status != 0;
    struct mst_bytes wanted = is_reported ? end->cause.text : mst_bytes_str("");
    if (sim->plan.engine == MST_SIM_AUTH_MUSTER && !mst__bytes_equal(end->cause.report, wanted)) {
        mst__sim_auth_break(
            sim, "report",
            "node %" PRIu32 " hears of number %" PRId32 " the report of another, '%.*s' for '%.*s'",
            node->index, end->cause.status, (int)end->cause.report.size,
            (const char *)end->cause.report.data, (int)wanted.size, (const char *)wanted.data);
    }
}

static void check_end(struct mst__sim_auth *sim,
                      const struct mst__sim_auth_node *node,
                      const struct mst__job_end *end)
{
    check_report(sim, node, end);
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

void mst__sim_auth_work_check_heard(struct mst__sim_auth *sim,
                                    const struct mst__sim_auth_node *node,
                                    const struct mst__job_message *message)
{
    const struct mst__claim *claim = &node->member.claim;
    if (message->type == MST_JOB_CLOSED) {
        check_end(sim, node, &message->u.closed.end);
    } else if (message->type == MST_JOB_REFUSED &&
               message->u.refused.refusal == MST_REFUSAL_CLOSED) {
        check_end(sim, node, &message->u.refused.end);
    } else if (message->type == MST_JOB_REOPENED && node->member.phase == MST_MEMBER_HOLDING &&
               message->u.reopened.why == MST_AUTHORITY_WHY_FAILED) {
        const struct mst__sim_auth_seal *seal = work_seal(sim, claim->epoch, claim->round);
        const struct mst__job_end *end = &message->u.reopened.end;
        check_report(sim, node, end);
        if (!end->has_cause || !is_cause_of(seal, end->cause.status, end->cause.rank)) {
            mst__sim_auth_break(sim, "outcome",
                                "node %" PRIu32 " hears that its round is over because of "
                                "number %" PRId32 ", and it was another one",
                                node->index, end->cause.status);
        }
    }
}
