/* sim/authority/check.c - rules of an authority and its nodes: those that always hold, and those
 * that must hold some time after the faults have stopped. world.c explains their names. */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/number.h"
#include "sim/authority/authority.h"

#define SECOND_US MST_SIM_SECOND_US
#define LOOK_US (SECOND_US / 20)

/* --- what was sealed --- */

const struct mst__sim_auth_seal *mst__sim_auth_seal_find(const struct mst__sim_auth *sim,
                                                         uint64_t epoch,
                                                         int64_t round)
{
    for (size_t i = sim->seals_count; i > 0; i--) {
        const struct mst__sim_auth_seal *seal = &sim->seals[i - 1];
        if (seal->round == round && seal->epoch == epoch) {
            return seal;
        }
    }
    return NULL;
}

static struct mst__sim_auth_seal *seal_add(struct mst__sim_auth *sim,
                                           uint64_t epoch,
                                           int64_t round,
                                           uint32_t world)
{
    if (mst__sim_auth_seal_find(sim, epoch, round) != NULL) {
        mst__sim_auth_break(sim, "seal", "round %" PRId64 " of epoch %" PRIu64 " is sealed twice",
                            round, epoch);
    }
    if (sim->seals_count == sim->seals_capacity) {
        sim->seals_capacity = sim->seals_capacity == 0 ? 64 : 2 * sim->seals_capacity;
        sim->seals = mst__realloc(sim->seals, sim->seals_capacity * sizeof *sim->seals);
        MST_ASSERT(sim->seals != NULL);
    }
    struct mst__sim_auth_seal *seal = &sim->seals[sim->seals_count++];
    *seal = (struct mst__sim_auth_seal){
        .epoch = epoch, .round = round, .world = world, .time_us = sim->now_us};
    seal->seats = mst__calloc(world == 0 ? 1 : world, sizeof *seal->seats);
    MST_ASSERT(seal->seats != NULL);
    sim->stats.rounds++;
    return seal;
}

/* In a job that does not grow, no round is larger than @largest. It is 0 before the first round. */
static void seal_check_size(struct mst__sim_auth *sim,
                            const struct mst__sim_auth_seal *seal,
                            uint32_t *largest)
{
    if (sim->plan.is_fixed && *largest > 0 && seal->world > *largest) {
        mst__sim_auth_break(sim, "fixed",
                            "round %" PRId64 " has %" PRIu32 " members, and none may have more "
                            "than %" PRIu32,
                            seal->round, seal->world, *largest);
    }
    *largest = *largest > 0 ? *largest : seal->world;
}

/* Each node is a member once. */
static void seal_check(struct mst__sim_auth *sim, const struct mst__sim_auth_seal *seal)
{
    bool *is_in = mst__calloc(sim->plan.nodes, sizeof *is_in);
    MST_ASSERT(is_in != NULL);
    for (uint32_t rank = 0; rank < seal->world; rank++) {
        uint32_t node = seal->seats[rank].node;
        if (node >= sim->plan.nodes || is_in[node]) {
            mst__sim_auth_break(sim, "seal",
                                "rank %" PRIu32 " of round %" PRId64
                                " is nobody's, or of one who has another one",
                                rank, seal->round);
            break;
        }
        is_in[node] = true;
    }
    mst__free(is_in);
    uint32_t most = sim->plan.nodes_max + (sim->plan.has_odd ? 1 : 0);
    if (seal->world < sim->plan.nodes_min || seal->world > most) {
        mst__sim_auth_break(sim, "seal", "round %" PRId64 " has %" PRIu32 " members", seal->round,
                            seal->world);
    }
    mst__sim_auth_say(sim, MST_SIM_AUTH_NOBODY, "seals round %" PRId64 " with %" PRIu32,
                      seal->round, seal->world);
}

/* The process of its node that has this session. */
static uint32_t session_life(uint64_t session)
{
    return (uint32_t)session;
}

uint32_t mst__sim_auth_member_node(const struct mst__sim_auth *sim,
                                   const struct mst__authority_member *member)
{
    struct mst_bytes name = mst__authority_name(member);
    int64_t index = 0;
    bool is_it = name.size > 4 && mst__number_parse(mst_bytes_of(name.data + 4, name.size - 4), 0,
                                                    (int64_t)sim->plan.nodes - 1, &index);
    return is_it ? (uint32_t)index : sim->plan.nodes;
}

/* The server's living member for this process; NULL = none. */
static const struct mst__authority_member *member_of(const struct mst__sim_auth *sim,
                                                     const struct mst__sim_auth_node *node)
{
    const struct mst__authority *authority = &sim->server.authority;
    mst__authority_id id = mst__authority_find(authority, mst_bytes_str(node->name));
    const struct mst__authority_member *member = mst__authority_get(authority, id);
    return member != NULL && member->session == node->session ? member : NULL;
}

/* How long a node may count as lost, or as a member of an old round, after a disturbance. */
static int64_t doubt_us(const struct mst__sim_auth *sim, const struct mst__sim_auth_node *node)
{
    const struct mst__sim_auth_plan *plan = &sim->plan;
    return 2 * node->member.options.expiry_us + plan->grace_us + plan->reclaim_us + plan->slow_us +
           3 * plan->beat_us + 20 * plan->latency_us + 2 * SECOND_US;
}

static bool is_well(const struct mst__sim_auth *sim, const struct mst__sim_auth_node *node)
{
    /* A node that was in doubt while the server was stopped stays so until the server has read
     * its messages. */
    const struct mst__sim_auth_server *server = &sim->server;
    bool was_stopped = node->bad_us < server->frozen_us &&
                       node->bad_us > server->froze_us - doubt_us(sim, node) &&
                       server->froze_us > 0;
    int64_t bad_us = was_stopped ? server->frozen_us : node->bad_us;
    return sim->now_us - bad_us > doubt_us(sim, node);
}

/* Find living nodes in another round than the one that is sealed now. */
static void seal_check_beside(struct mst__sim_auth *sim, const struct mst__sim_auth_seal *seal)
{
    for (uint32_t i = 0; i < sim->plan.nodes && !sim->is_over; i++) {
        const struct mst__sim_auth_node *node = &sim->nodes[i];
        if (!mst__sim_auth_is_up(node) || node->member.phase != MST_MEMBER_HOLDING) {
            continue;
        }
        /* A node that counts as lost blocks no round, whatever it has sent meanwhile. */
        const struct mst__sim_auth_seal *own =
            mst__sim_auth_seal_find(sim, node->member.claim.epoch, node->member.claim.round);
        bool is_here = member_of(sim, node) != NULL && own != NULL && node->lost_us < own->time_us;
        if (is_here || is_well(sim, node)) {
            mst__sim_auth_break(sim, "beside",
                                "round %" PRId64 " is sealed while node %" PRIu32
                                " is in round %" PRId64 "%s",
                                seal->round, i, node->member.claim.round,
                                is_here ? " and has not come back" : " and can be reached");
        }
    }
}

void mst__sim_auth_check_seal(struct mst__sim_auth *sim, const struct mst__authority_effect *effect)
{
    struct mst__sim_auth_server *server = &sim->server;
    const struct mst__authority *authority = &server->authority;
    struct mst__sim_auth_seal *seal = seal_add(sim, effect->epoch, effect->round, effect->world);
    for (uint32_t rank = 0; rank < effect->world; rank++) {
        const struct mst__authority_member *member = mst__authority_ranked(authority, rank);
        struct mst__sim_auth_seat *seat = &seal->seats[rank];
        seat->node = member == NULL ? sim->plan.nodes : mst__sim_auth_member_node(sim, member);
        seat->life = member == NULL ? 0 : session_life(member->session);
    }
    seal->is_whole = authority->held_count == effect->world;
    seal->restarts = server->restarts_total;
    seal_check(sim, seal);
    seal_check_size(sim, seal, &server->fixed_world);
    if (effect->epoch != authority->options.epoch || effect->round <= server->sealed_max ||
        effect->round <= server->sealed_claim) {
        mst__sim_auth_break(sim, "seal",
                            "round %" PRId64 " after %" PRId64 ", and %" PRId64 " was claimed",
                            effect->round, server->sealed_max, server->sealed_claim);
    }
    if (server->sealed_shut) {
        mst__sim_auth_break(sim, "closed", "round %" PRId64 " is sealed although all is closed",
                            effect->round);
    }
    server->sealed_max = effect->round;
    seal_check_beside(sim, seal);
}

void mst__sim_auth_launch_check_restarts(struct mst__sim_auth *sim,
                                         const struct mst__sim_auth_node *node,
                                         uint64_t epoch,
                                         int64_t round,
                                         uint32_t restarts)
{
    const struct mst__sim_auth_seal *seal = mst__sim_auth_seal_find(sim, epoch, round);
    bool is_muster = sim->plan.engine == MST_SIM_AUTH_MUSTER;
    if (seal == NULL || (is_muster && seal->restarts != restarts)) {
        mst__sim_auth_break(sim, "restarts",
                            "node %" PRIu32 " starts workers of round %" PRId64 " with %" PRIu32
                            " restarts",
                            node->index, round, restarts);
    }
}

/* --- who takes part --- */

void mst__sim_auth_check_announced(struct mst__sim_auth *sim,
                                   const struct mst__sim_auth_link *link,
                                   const struct mst__announcement *announcement,
                                   uint64_t contact,
                                   bool was_shut)
{
    struct mst__sim_auth_server *server = &sim->server;
    const struct mst__authority *authority = &server->authority;
    const struct mst__claim *claim = &announcement->claim;
    if (claim->round > server->claimed_max) {
        server->claimed_max = claim->round;
    }
    mst__sim_auth_ranks_announced(sim, link->node, claim);
    /* The size of an earlier server's round counts when the round is adopted. When all nodes are
     * gone, the next ones begin anew. */
    bool is_inherited = authority->round > 0 && authority->round_epoch != authority->options.epoch;
    bool is_adopted = is_inherited && (authority->round != server->adopted_round ||
                                       authority->round_epoch != server->adopted_epoch);
    if (is_adopted) {
        server->adopted_round = authority->round;
        server->adopted_epoch = authority->round_epoch;
    }
    if (is_adopted && authority->world > server->fixed_world) {
        server->fixed_world = authority->world;
    }
    if (was_shut) {
        mst__sim_auth_break(sim, "closed", "node %" PRIu32 " is accepted although all is closed",
                            link->node);
    }
    if (link->id < contact) {
        mst__sim_auth_break(sim, "stale",
                            "process %" PRIu32 " of node %" PRIu32
                            " takes the place of one with a newer connection",
                            session_life(announcement->session), link->node);
    }
    if (!claim->holds) {
        return;
    }
    const struct mst__sim_auth_seal *seal =
        mst__sim_auth_seal_find(sim, claim->epoch, claim->round);
    bool is_current = authority->round == claim->round && authority->round_epoch == claim->epoch;
    bool is_own =
        seal != NULL && claim->rank < seal->world && seal->seats[claim->rank].node == link->node;
    if (!is_current || !is_own || mst__authority_ranked(authority, claim->rank) == NULL) {
        mst__sim_auth_break(sim, "stale",
                            "node %" PRIu32 " goes on in round %" PRId64 " while %" PRId64
                            " is current",
                            link->node, claim->round, authority->round);
    }
}

void mst__sim_auth_check_unclaimed(struct mst__sim_auth *sim,
                                   const struct mst__sim_auth_link *link,
                                   const struct mst__announcement *announcement,
                                   enum mst__refusal refusal)
{
    const struct mst__authority *authority = &sim->server.authority;
    const struct mst__claim *claim = &announcement->claim;
    bool has_own = authority->round > 0 && authority->round_epoch == authority->options.epoch;
    if (refusal == MST_REFUSAL_CLAIM && !has_own && authority->round < claim->round) {
        mst__sim_auth_break(sim, "stale",
                            "node %" PRIu32 " is not let back into round %" PRId64
                            ", and nobody knows of a later one",
                            link->node, claim->round);
    }
}

static void check_alive(struct mst__sim_auth *sim, uint32_t index, uint64_t life)
{
    struct mst__sim_auth_node *node = mst__sim_auth_node(sim, index);
    node->lost_us = sim->now_us;
    if (mst__sim_auth_is_up(node) && node->life == life && is_well(sim, node)) {
        mst__sim_auth_break(sim, "alive", "node %" PRIu32 " is lost, and nothing was wrong with it",
                            index);
    }
}

/* A member of a later round, of an earlier server, has come back, and that round is current again.
 * It may come long after the others: each node allows a silence of its own. */
static bool is_displaced(const struct mst__sim_auth *sim, const struct mst__sim_auth_node *node)
{
    const struct mst__authority *authority = &sim->server.authority;
    return authority->round_epoch != authority->options.epoch &&
           authority->round > node->member.claim.round &&
           mst__sim_auth_seal_find(sim, authority->round_epoch, authority->round) != NULL;
}

void mst__sim_auth_check_expelled(struct mst__sim_auth *sim, const struct mst__sim_auth_link *link)
{
    if (!is_displaced(sim, mst__sim_auth_node(sim, link->node))) {
        check_alive(sim, link->node, link->life);
    }
}

void mst__sim_auth_check_lost(struct mst__sim_auth *sim, const struct mst__authority_effect *effect)
{
    const struct mst__authority *authority = &sim->server.authority;
    for (size_t i = 0; i < effect->lost_count; i++) {
        const struct mst__authority_member *member =
            mst__authority_ranked(authority, effect->lost[i]);
        mst__sim_auth_work_check_lost(sim, effect->lost[i]);
        bool is_lost = member != NULL && member->place == MST_PLACE_GONE && member->is_lost;
        uint32_t index = is_lost ? mst__sim_auth_member_node(sim, member) : sim->plan.nodes;
        if (index < sim->plan.nodes) {
            check_alive(sim, index, session_life(member->session));
        }
    }
}

void mst__sim_auth_check_refused(struct mst__sim_auth *sim,
                                 const struct mst__sim_auth_node *node,
                                 const struct mst__job_message *message)
{
    enum mst__refusal refusal = (enum mst__refusal)message->u.refused.refusal;
    bool is_fair = (refusal == MST_REFUSAL_SETTINGS && sim->plan.has_odd) ||
                   (refusal == MST_REFUSAL_CLAIM && !is_well(sim, node));
    if (!is_fair) {
        mst__sim_auth_break(sim, "alive", "node %" PRIu32 " is refused: %.*s", node->index,
                            (int)message->u.refused.text.size,
                            (const char *)message->u.refused.text.data);
    }
}

/* The ranks that the workers of @rank have in the round. */
static struct mst__worker_ranks worker_ranks(const struct mst__sim_auth *sim,
                                             const struct mst__sim_auth_seal *seal,
                                             uint32_t rank)
{
    const char *role = mst__sim_auth_role(seal->seats[rank].node);
    struct mst__worker_ranks ranks = {.first = 0};
    for (uint32_t i = 0; i < seal->world; i++) {
        const struct mst__sim_auth_seat *seat = &seal->seats[i];
        uint32_t workers = mst__sim_auth_workers(sim, seat->node, seat->life);
        bool is_same = strcmp(mst__sim_auth_role(seat->node), role) == 0;
        ranks.first += i < rank ? workers : 0;
        ranks.world += workers;
        ranks.role_first += i < rank && is_same ? workers : 0;
        ranks.role_world += is_same ? workers : 0;
    }
    return ranks;
}

static void check_told_workers(struct mst__sim_auth *sim,
                               const struct mst__sim_auth_node *node,
                               const struct mst__sim_auth_seal *seal,
                               const struct mst__job_round *round)
{
    const struct mst__worker_ranks *told = &round->worker_ranks;
    const struct mst__worker_ranks ranks = worker_ranks(sim, seal, round->rank);
    if (!seal->is_whole) {
        return; /* another process may have the place of one that was numbered */
    }
    if (told->first != ranks.first || told->world != ranks.world ||
        told->role_first != ranks.role_first || told->role_world != ranks.role_world) {
        mst__sim_auth_break(sim, "workers",
                            "the workers of node %" PRIu32 " get the ranks from %" PRIu32
                            " of %" PRIu32 ", in their role from %" PRIu32 " of %" PRIu32
                            "; they have %" PRIu32 " of %" PRIu32 " and %" PRIu32 " of %" PRIu32,
                            node->index, told->first, told->world, told->role_first,
                            told->role_world, ranks.first, ranks.world, ranks.role_first,
                            ranks.role_world);
    }
}

void mst__sim_auth_check_told(struct mst__sim_auth *sim,
                              const struct mst__sim_auth_node *node,
                              const struct mst__job_round *round)
{
    const struct mst__sim_auth_seal *seal =
        mst__sim_auth_seal_find(sim, round->epoch, round->round);
    bool is_it = seal != NULL && seal->world == round->world && round->rank < seal->world &&
                 seal->seats[round->rank].node == node->index &&
                 seal->seats[round->rank].life == node->life;
    if (!is_it) {
        mst__sim_auth_break(sim, "told",
                            "node %" PRIu32 " is told rank %" PRIu32 " of %" PRIu32
                            " in round %" PRId64 ", which is not so",
                            node->index, round->rank, round->world, round->round);
    } else {
        check_told_workers(sim, node, seal, round);
    }
    const struct mst__budget *budget = &sim->plan.budget;
    bool is_beyond =
        budget->is_limited && budget->window_us == 0 && round->restarts > budget->restarts_max;
    if (seal != NULL && (round->restarts != seal->restarts || is_beyond)) {
        mst__sim_auth_break(sim, "restarts",
                            "node %" PRIu32 " is told of %" PRIu32 " restarts before round %" PRId64
                            ", and there were %" PRIu32,
                            node->index, round->restarts, round->round, seal->restarts);
    }
    bool is_same =
        round->round == node->member.claim.round && round->epoch == node->member.claim.epoch;
    if (node->app == MST_SIM_AUTH_JOINING && round->round <= node->member.claim.round && !is_same) {
        mst__sim_auth_break(sim, "grow",
                            "node %" PRIu32 " knows round %" PRId64 " and is told round %" PRId64,
                            node->index, node->member.claim.round, round->round);
    }
}

/* --- what is written to a v3 store --- */

/* Whether the node has had a newer key, from a newer process or from the same one. The newer key
 * may be gone by now. */
static bool is_replaced(const struct mst__sim_auth *sim, const struct mst__sim_auth_key *key)
{
    for (size_t i = 0; i < sim->store.owners_count; i++) {
        const struct mst__sim_auth_owner *other = &sim->store.owners[i];
        bool is_newer =
            other->life > key->life || (other->life == key->life && other->created > key->created);
        if (other->node == key->node && is_newer) {
            return true;
        }
    }
    return false;
}

static void check_sealed_doc(struct mst__sim_auth *sim,
                             const struct mst__sim_auth_round *before,
                             const struct mst__sim_auth_round *round)
{
    struct mst__sim_auth_seal *seal = seal_add(sim, round->epoch, round->round, round->world);
    for (uint32_t rank = 0; rank < round->world; rank++) {
        /* A node that died after the authority's look is still a member. */
        const struct mst__sim_auth_owner *owner = mst__sim_auth_owner(sim, round->members[rank]);
        seal->seats[rank] = (struct mst__sim_auth_seat){
            .node = owner == NULL ? sim->plan.nodes : owner->node,
            .life = owner == NULL ? 0 : owner->life,
            .key = round->members[rank],
        };
    }
    seal->restarts = round->restarts_before;
    seal_check(sim, seal);
    bool is_deserted = true; /* no member is left: other nodes begin anew */
    for (uint32_t rank = 0; rank < before->world; rank++) {
        is_deserted = is_deserted && mst__sim_auth_store_find(sim, before->members[rank]) == NULL;
    }
    uint32_t largest = is_deserted ? 0 : sim->store.fixed_world;
    seal_check_size(sim, seal, &largest);
    /* If the last member went after the authority's look, the job has kept its size. */
    bool is_kept = largest < sim->store.fixed_world;
    sim->store.fixed_world = is_kept ? sim->store.fixed_world : largest;
    mst__sim_auth_ranks_written(sim, before, round);
    if (round->round <= before->round) {
        mst__sim_auth_break(sim, "seal", "round %" PRId64 " after %" PRId64, round->round,
                            before->round);
    }
    seal->was_told = round->state == MST_SIM_AUTH_SEALED;
    const struct mst__sim_auth_seal *last =
        mst__sim_auth_seal_find(sim, before->epoch, before->round);
    for (uint32_t rank = 0; last != NULL && last->was_told && rank < before->world; rank++) {
        const struct mst__sim_auth_key *key = mst__sim_auth_store_find(sim, before->members[rank]);
        bool is_back = key == NULL || is_replaced(sim, key) ||
                       (key->doc.round == before->round && key->doc.epoch == before->epoch);
        if (!is_back) {
            mst__sim_auth_break(sim, "beside",
                                "round %" PRId64 " is sealed while node %" PRIu32
                                " is in round %" PRId64,
                                round->round, key->node, before->round);
        }
    }
}

/* Within one round, the seats do not change, and gone members do not come back. */
static void check_seats(struct mst__sim_auth *sim,
                        const struct mst__sim_auth_round *before,
                        const struct mst__sim_auth_round *round)
{
    for (uint32_t rank = 0; rank < round->world; rank++) {
        if (round->members[rank] != before->members[rank]) {
            mst__sim_auth_break(
                sim, "seal", "rank %" PRIu32 " of round %" PRId64 " is of another one than before",
                rank, round->round);
        } else if (before->is_gone[rank] && !round->is_gone[rank]) {
            mst__sim_auth_break(sim, "seal",
                                "rank %" PRIu32 " of round %" PRId64 " was gone and is back", rank,
                                round->round);
        }
    }
}

void mst__sim_auth_check_written(struct mst__sim_auth *sim,
                                 const struct mst__sim_auth_round *before,
                                 const struct mst__sim_auth_round *round,
                                 uint64_t writer)
{
    const struct mst__sim_auth_store *store = &sim->store;
    if (before->state == MST_SIM_AUTH_CLOSED) {
        mst__sim_auth_break(sim, "closed", "what was closed is written again");
    }
    if (writer != 0 && (store->count == 0 || store->keys[0].created != writer)) {
        mst__sim_auth_break(sim, "fence", "key %" PRIu64 " writes and is not the oldest", writer);
    }
    bool is_same = round->epoch == before->epoch && round->round == before->round;
    mst__sim_auth_work_check_written(sim, before, round);
    if (!is_same) {
        check_sealed_doc(sim, before, round);
    } else if (before->state == MST_SIM_AUTH_OPEN && round->state == MST_SIM_AUTH_SEALED) {
        mst__sim_auth_break(sim, "seal", "round %" PRId64 " was over and runs again", round->round);
    } else {
        check_seats(sim, before, round);
    }
}

/* --- at rest --- */

/* Why the nodes are not at rest; NULL = they are. */
static const char *rest_of_nodes(const struct mst__sim_auth *sim,
                                 uint64_t epoch,
                                 int64_t round,
                                 uint32_t world,
                                 uint32_t world_max,
                                 uint32_t *ret_up)
{
    uint32_t up = 0;
    uint32_t in = 0;
    uint32_t spare = 0;
    bool is_behind = false;
    bool is_coming = false;
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        const struct mst__sim_auth_node *node = &sim->nodes[i];
        bool is_in = node->app == MST_SIM_AUTH_HOLDING;
        bool is_current = node->member.claim.round == round && node->member.claim.epoch == epoch;
        up += mst__sim_auth_is_up(node);
        in += is_in;
        spare += node->app == MST_SIM_AUTH_JOINING && node->member.is_spare;
        is_behind = is_behind || (is_in && (!is_current || node->react_us != INT64_MAX));
        is_coming = is_coming || (node->is_coming && !node->is_odd);
    }
    *ret_up = up;
    if (is_coming || is_behind) {
        return is_coming ? "somebody comes" : "somebody is in a round that is over";
    }
    if (sim->is_closed) {
        return up == 0 ? NULL : "somebody has not heard that all is closed";
    }
    if (up < sim->plan.nodes_min) {
        return in == 0 ? NULL : "somebody is in a round and there are too few";
    }
    if (sim->plan.has_work && !sim->plan.is_old) {
        return "the work is not done";
    }
    uint32_t wanted = up < world_max ? up : world_max;
    if (in != wanted || world != wanted) {
        return "somebody who lives has no rank, or somebody who is gone has one";
    }
    return spare == up - in ? NULL : "somebody is no spare and should be";
}

static const char *rest_of_server(const struct mst__sim_auth *sim)
{
    const struct mst__sim_auth_server *server = &sim->server;
    const struct mst__authority *authority = &server->authority;
    uint32_t up = 0;
    const char *missing = rest_of_nodes(
        sim, server->has_job ? authority->round_epoch : 0, server->has_job ? authority->round : 0,
        server->has_job ? authority->world : 0, mst__authority_nodes_max(authority), &up);
    if (missing != NULL || sim->is_closed) {
        return missing;
    }
    uint32_t living = server->has_job ? authority->living_count : 0;
    for (uint32_t i = 0; i < sim->plan.nodes && living == up; i++) {
        const struct mst__sim_auth_node *node = &sim->nodes[i];
        const struct mst__authority_member *member = member_of(sim, node);
        /* Judge by its current connection: the end of an older one may be under way. */
        bool is_known = member != NULL && node->link != NULL && member->driver == node->link &&
                        !node->link->is_hole && node->member.link == MST_MEMBER_WELCOME;
        living += mst__sim_auth_is_up(node) && !is_known;
    }
    if (living != up) {
        return "the server knows of other nodes than there are";
    }
    if (server->has_job && up > 0 && authority->released_count > 0) {
        return "somebody waits for those who have finished";
    }
    bool runs = server->has_job && authority->phase == MST_AUTHORITY_RUNNING;
    if (up >= sim->plan.nodes_min) {
        return runs ? NULL : "no round runs";
    }
    /* A round may be sealed with a node that has just died. Then its members must still hear of the
     * round, and that it is over. */
    return up > 0 && authority->held_count > 0 ? "somebody has not come back from the last round"
                                               : NULL;
}

/* The longest time of a message. */
static int64_t under_way_us(const struct mst__sim_auth *sim)
{
    return sim->plan.slow_us + 2 * sim->plan.latency_us + MST_SIM_AUTH_ORDER_US;
}

static const char *rest_of_store(const struct mst__sim_auth *sim)
{
    const struct mst__sim_auth_round *round = &sim->store.round;
    uint32_t up = 0;
    const struct mst__sim_auth_plan *plan = &sim->plan;
    bool is_less = plan->is_fixed && round->first_world < plan->nodes_max;
    const char *missing = rest_of_nodes(sim, round->epoch, round->round, round->world,
                                        is_less ? round->first_world : plan->nodes_max, &up);
    if (missing != NULL || sim->is_closed) {
        return missing;
    }
    uint32_t count = up;
    bool is_welcome = true;
    for (size_t i = 0; i < sim->store.count; i++) {
        const struct mst__sim_auth_key *key = &sim->store.keys[i];
        const struct mst__sim_auth_node *node = &sim->nodes[key->node];
        up -= mst__sim_auth_is_up(node) && node->key == key->created;
        is_welcome = is_welcome && node->member.link == MST_MEMBER_WELCOME;
    }
    if (!is_welcome) {
        return "a node with a key is not welcome";
    }
    if (up != 0 || sim->store.count != count) {
        return "there are other keys than nodes";
    }
    /* Until the news of a key arrives, the round may have a dead node. */
    const struct mst__sim_auth_node *leader =
        count > 0 ? &sim->nodes[sim->store.keys[0].node] : NULL;
    if (leader != NULL && mst__sim_auth_lead_count(leader) != count) {
        return "the authority knows of other nodes than there are";
    }
    if (leader != NULL && mst__sim_auth_lead_is_writing(leader)) {
        return "the round that the authority has made is not stored yet";
    }
    /* A round may be sealed with a node that has just died. Then its members must still hear of the
     * death and come back. */
    if (sim->now_us - sim->store.round_us <= under_way_us(sim)) {
        return "news of the round is under way";
    }
    bool runs = round->state == MST_SIM_AUTH_SEALED;
    return count < sim->plan.nodes_min || runs ? NULL : "no round runs";
}

/* Note how long processes may be silent that the server takes for alive: one may have died, and its
 * last message came later. */
static void note_patience(struct mst__sim_auth *sim)
{
    const struct mst__authority *authority = &sim->server.authority;
    uint32_t cursor = 0;
    const struct mst__authority_member *member;
    while (sim->server.has_job &&
           (member = mst__authority_next_member(authority, &cursor)) != NULL) {
        bool is_living = member->place == MST_PLACE_WAITING || member->place == MST_PLACE_HOLDING;
        int64_t expiry_us = mst__sim_auth_expiry_us(sim, mst__sim_auth_member_node(sim, member),
                                                    session_life(member->session));
        sim->patience_us = is_living && expiry_us > sim->patience_us ? expiry_us : sim->patience_us;
    }
}

/* The time for the group to come to rest. While a process may be silent for longer than the others,
 * dead or alive, it takes that much longer; a former one makes no difference. */
static int64_t rest_bound_us(const struct mst__sim_auth *sim)
{
    int64_t longest_us =
        sim->patience_us > sim->plan.expiry_us ? sim->patience_us : sim->plan.expiry_us;
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        int64_t expiry_us = sim->nodes[i].member.options.expiry_us;
        longest_us = expiry_us > longest_us ? expiry_us : longest_us;
    }
    return sim->plan.bound_us + 10 * (longest_us - sim->plan.expiry_us);
}

void mst__sim_auth_look(struct mst__sim_auth *sim)
{
    const struct mst__sim_auth_plan *plan = &sim->plan;
    note_patience(sim);
    int64_t bound_us = rest_bound_us(sim);
    bool is_muster = plan->engine == MST_SIM_AUTH_MUSTER;
    int64_t passed_us = sim->now_us - sim->calm_us;
    /* A dead node may have sent a message just before its death. */
    int64_t copy_us = is_muster && plan->twice_ppm > 0 ? MST_SIM_AUTH_COPY_US : 0;
    /* A report of work is on its way to the authority, or its decision to the store. */
    bool is_reporting = sim->word_us != 0 && sim->now_us - sim->word_us <= 2 * under_way_us(sim);
    bool is_early = is_reporting || passed_us <= copy_us + under_way_us(sim);
    const char *missing = is_early    ? "something that was said before is under way"
                          : is_muster ? rest_of_server(sim)
                                      : rest_of_store(sim);
    if (missing != NULL && sim->rest_us != 0) {
        mst__sim_auth_break(sim, "rest", "nothing has happened, and %s", missing);
    } else if (missing != NULL && passed_us > bound_us) {
        char text[256] = "";
        if (is_muster && sim->server.has_job) {
            mst__authority_describe(&sim->server.authority, sim->now_us, text, sizeof text);
        }
        for (uint32_t i = 0; i < plan->nodes; i++) {
            mst__sim_auth_lead_describe(&sim->nodes[i], text, sizeof text);
        }
        mst__sim_auth_break(sim, "rest", "%.3f s after the last fault %s; %s",
                            (double)passed_us / 1e6, missing, text);
    } else if (missing == NULL && sim->rest_us == 0) {
        mst__sim_auth_say(sim, MST_SIM_AUTH_NOBODY, "all is as it should be");
        sim->rest_us = sim->now_us;
        sim->stats.settle_permille = passed_us * 1000 / bound_us;
    }
    if (sim->rest_us != 0 && sim->now_us - sim->rest_us > 2 * plan->expiry_us) {
        sim->is_over = true;
    }
    if (!sim->is_over) {
        mst__sim_auth_at(sim, sim->now_us + LOOK_US, MST_SIM_AUTH_LOOK,
                         (struct mst__sim_event){.bytes = NULL});
    }
}
