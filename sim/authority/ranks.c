/* sim/authority/ranks.c - the rules of admission and ranks, from core/authority_ranks.h. They are
 * judged by the rounds that the checker has seen, not by the authority's notes about its members.
 *
 * Where a new authority may not know the place that a node had, or the work of the place is done,
 * the checker is not sure of it and expects nothing. */
#include <inttypes.h>

#include "base/assert.h"
#include "base/mem.h"
#include "sim/authority/authority.h"

#define NONE MST_AUTHORITY_RANK_NONE
#define UNSURE (MST_AUTHORITY_RANK_NONE - 1)

/* One node at a seal. */
struct place {
    uint32_t had;   /* its rank in the last round; NONE, UNSURE */
    uint32_t has;   /* its rank in the new one; NONE */
    uint32_t wants; /* NONE */
    bool is_left;   /* is here and waits, and was not admitted */
    uint64_t order; /* of its announcement */
};

struct seating {
    struct mst__sim_auth *sim;
    int64_t round;
    struct place *places; /* by node */
    uint32_t *ranked;     /* nodes by rank in the new round; plan.nodes = none of them */
    uint32_t world;
    uint32_t wanted_max; /* a wish below it comes before the wait for a place */
};

/* --- what a node may expect --- */

uint32_t mst__sim_auth_pinned(const struct mst__sim_auth *sim, uint32_t node)
{
    return sim->plan.has_pinned && node % 3 == 0 ? node % 4 : NONE;
}

uint32_t mst__sim_auth_rack(uint32_t node)
{
    return node * 7 % 5;
}

/* --- ranks --- */

static const struct place *holder(const struct seating *seating, uint32_t rank)
{
    uint32_t node = seating->ranked[rank];
    return node < seating->sim->plan.nodes ? &seating->places[node] : NULL;
}

static bool is_pinned_to(const struct place *place, uint32_t rank)
{
    return place != NULL && place->wants == rank;
}

/* A wanted rank goes to a node that wants it, and to the one that had it before all others. */
static void check_pinned(const struct seating *seating, uint32_t node)
{
    const struct place *place = &seating->places[node];
    if (place->has == NONE || place->wants >= seating->world || place->has == place->wants) {
        return;
    }
    const struct place *other = holder(seating, place->wants);
    if (!is_pinned_to(other, place->wants)) {
        mst__sim_auth_break(seating->sim, "pinned",
                            "node %" PRIu32 " asks for rank %" PRIu32 " of round %" PRId64
                            ", and another one gets it that does not",
                            node, place->wants, seating->round);
    } else if (place->had == place->wants) {
        mst__sim_auth_break(seating->sim, "pinned",
                            "node %" PRIu32 " asks for rank %" PRIu32 " of round %" PRId64
                            ", which it had, and another one gets it",
                            node, place->wants, seating->round);
    }
}

static bool is_sticky(const struct seating *seating, const struct place *place)
{
    return place->had < seating->world && !is_pinned_to(holder(seating, place->had), place->had);
}

static void check_sticky(const struct seating *seating, uint32_t node)
{
    const struct place *place = &seating->places[node];
    bool is_placed = place->has == NONE || place->has == place->wants || place->has == place->had;
    if (!is_placed && is_sticky(seating, place)) {
        mst__sim_auth_break(seating->sim, "sticky",
                            "node %" PRIu32 " had rank %" PRIu32 " and has rank %" PRIu32
                            " of round %" PRId64,
                            node, place->had, place->has, seating->round);
    }
}

/* Nodes without a claim to a rank fill the free ones by rack, if the run is ordered by it, and by
 * number. */
static uint64_t order_of(const struct seating *seating, uint32_t node)
{
    const struct mst__sim_auth_plan *plan = &seating->sim->plan;
    bool has_racks = plan->has_racks && plan->engine == MST_SIM_AUTH_MUSTER;
    uint64_t rack = has_racks ? mst__sim_auth_rack(node) : 0;
    return rack << 32 | node;
}

static void check_order(const struct seating *seating)
{
    uint32_t nodes = seating->sim->plan.nodes;
    uint32_t last = nodes;
    for (uint32_t rank = 0; rank < seating->world; rank++) {
        uint32_t node = seating->ranked[rank];
        const struct place *place = holder(seating, rank);
        if (place == NULL || place->had == UNSURE || place->wants == rank ||
            is_sticky(seating, place)) {
            continue;
        }
        if (last < nodes && order_of(seating, last) > order_of(seating, node)) {
            mst__sim_auth_break(seating->sim, "order",
                                "in round %" PRId64 " node %" PRIu32 " comes before node %" PRIu32,
                                seating->round, last, node);
        }
        last = node;
    }
}

/* --- admission --- */

static int class_of(const struct seating *seating, const struct place *place)
{
    if (place->had != NONE) {
        return 0;
    }
    return place->wants < seating->wanted_max ? 1 : 2;
}

static bool comes_before(const struct seating *seating,
                         const struct place *a,
                         const struct place *b)
{
    int a_class = class_of(seating, a);
    int b_class = class_of(seating, b);
    return a_class != b_class ? a_class < b_class : a->order < b->order;
}

/* Members of the last round come before others, then those with a wish, then by their wait. */
static void check_admission(const struct seating *seating)
{
    uint32_t nodes = seating->sim->plan.nodes;
    uint32_t last = nodes;  /* admitted as the last */
    uint32_t first = nodes; /* not admitted as the first */
    for (uint32_t i = 0; i < nodes; i++) {
        const struct place *place = &seating->places[i];
        if (place->had == UNSURE) {
            continue;
        }
        if (place->has != NONE &&
            (last == nodes || comes_before(seating, &seating->places[last], place))) {
            last = i;
        } else if (place->is_left &&
                   (first == nodes || comes_before(seating, place, &seating->places[first]))) {
            first = i;
        }
    }
    if (last < nodes && first < nodes &&
        comes_before(seating, &seating->places[first], &seating->places[last])) {
        mst__sim_auth_break(seating->sim, "admission",
                            "node %" PRIu32 " has a place in round %" PRId64
                            " before node %" PRIu32,
                            last, seating->round, first);
    }
}

/* --- both engines --- */

static void seating_open(struct seating *ret_seating, struct mst__sim_auth *sim, uint32_t world)
{
    *ret_seating = (struct seating){
        .sim = sim,
        .places = mst__calloc(sim->plan.nodes, sizeof *ret_seating->places),
        .ranked = mst__calloc(world + 1, sizeof *ret_seating->ranked),
        .world = world,
    };
    MST_ASSERT(ret_seating->places != NULL);
    MST_ASSERT(ret_seating->ranked != NULL);
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        ret_seating->places[i] = (struct place){.had = NONE, .has = NONE, .wants = NONE};
    }
    for (uint32_t rank = 0; rank < world; rank++) {
        ret_seating->ranked[rank] = sim->plan.nodes;
    }
}

static void seating_place(struct seating *seating, uint32_t node, uint32_t rank)
{
    if (node < seating->sim->plan.nodes && rank < seating->world) {
        seating->places[node].has = rank;
        seating->ranked[rank] = node;
    } /* else another rule is broken */
}

static void seating_check(const struct seating *seating)
{
    for (uint32_t i = 0; i < seating->sim->plan.nodes; i++) {
        check_pinned(seating, i);
        check_sticky(seating, i);
    }
    check_order(seating);
}

static void seating_close(struct seating *seating)
{
    mst__free(seating->places);
    mst__free(seating->ranked);
}

/* --- the engine muster --- */

static void roster_reserve(struct mst__sim_auth_roster *roster, uint32_t world)
{
    if (roster->capacity < world) {
        roster->nodes = mst__realloc(roster->nodes, world * sizeof *roster->nodes);
        MST_ASSERT(roster->nodes != NULL);
        roster->capacity = world;
    }
    roster->world = world;
}

/* The rank that @node had; the place of finished work is free. */
static uint32_t rank_before(const struct mst__sim_auth *sim, uint32_t rank, uint32_t node)
{
    const struct mst__sim_auth_server *server = &sim->server;
    const struct mst__sim_auth_roster *roster = &server->roster;
    const struct mst__sim_auth_ledger *ledger = &server->ledger;
    bool is_finished = ledger->epoch == roster->epoch && ledger->round == roster->round &&
                       rank < ledger->world && ledger->is_finished[rank];
    if (is_finished || !roster->is_adopted) {
        return is_finished ? UNSURE : rank;
    }
    const struct mst__sim_auth_node *who = &sim->nodes[node];
    const struct mst__claim *claim = &who->member.claim;
    bool is_unsure = who->unsure_round == roster->round && who->unsure_epoch == roster->epoch;
    bool is_known = claim->round == roster->round && claim->epoch == roster->epoch && !is_unsure;
    return is_known && claim->rank == rank ? rank : UNSURE;
}

static void roster_take(struct mst__sim_auth *sim)
{
    const struct mst__authority *authority = &sim->server.authority;
    struct mst__sim_auth_roster *roster = &sim->server.roster;
    roster_reserve(roster, authority->world);
    roster->epoch = authority->round_epoch;
    roster->round = authority->round;
    roster->is_adopted = false;
    for (uint32_t rank = 0; rank < authority->world; rank++) {
        const struct mst__authority_member *member = mst__authority_ranked(authority, rank);
        roster->nodes[rank] =
            member == NULL ? sim->plan.nodes : mst__sim_auth_member_node(sim, member);
    }
}

void mst__sim_auth_ranks_sealed(struct mst__sim_auth *sim)
{
    const struct mst__authority *authority = &sim->server.authority;
    const struct mst__sim_auth_roster *roster = &sim->server.roster;
    struct seating seating;
    seating_open(&seating, sim, authority->world);
    seating.round = authority->round;
    uint32_t fixed = sim->server.fixed_world;
    bool is_less = sim->plan.is_fixed && fixed > 0 && fixed < authority->settings.nodes_max;
    seating.wanted_max =
        is_less ? mst__authority_nodes_max(authority) : authority->settings.nodes_max;
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        seating.places[i].wants = mst__sim_auth_pinned(sim, i);
    }
    for (uint32_t rank = 0; rank < roster->world; rank++) {
        uint32_t node = roster->nodes[rank];
        if (node < sim->plan.nodes) {
            seating.places[node].had = rank_before(sim, rank, node);
        }
    }
    const struct mst__authority_member *member;
    uint32_t cursor = 0;
    while ((member = mst__authority_next_member(authority, &cursor)) != NULL) {
        uint32_t node = mst__sim_auth_member_node(sim, member);
        if (node < sim->plan.nodes && member->place == MST_PLACE_HOLDING) {
            seating_place(&seating, node, member->rank);
            seating.places[node].order = member->order;
        } else if (node < sim->plan.nodes && member->place == MST_PLACE_WAITING) {
            seating.places[node].is_left = !member->is_absent;
            seating.places[node].order = member->order;
        }
    }
    seating_check(&seating);
    check_admission(&seating);
    seating_close(&seating);
    roster_take(sim);
}

void mst__sim_auth_ranks_adopted(struct mst__sim_auth *sim)
{
    const struct mst__authority *authority = &sim->server.authority;
    struct mst__sim_auth_roster *roster = &sim->server.roster;
    const struct mst__sim_auth_seal *seal =
        mst__sim_auth_seal_find(sim, authority->round_epoch, authority->round);
    roster_reserve(roster, seal == NULL ? 0 : seal->world);
    roster->epoch = authority->round_epoch;
    roster->round = authority->round;
    roster->is_adopted = true;
    for (uint32_t rank = 0; rank < roster->world; rank++) {
        roster->nodes[rank] = seal->seats[rank].node;
    }
}

void mst__sim_auth_ranks_announced(struct mst__sim_auth *sim,
                                   uint32_t index,
                                   const struct mst__claim *claim)
{
    const struct mst__authority *authority = &sim->server.authority;
    const struct mst__authority_member *member =
        mst__authority_get(authority, authority->announced);
    if (claim->round == 0 && member->rank == MST_AUTHORITY_RANK_NONE) {
        struct mst__sim_auth_node *node = mst__sim_auth_node(sim, index);
        node->unsure_epoch = authority->round_epoch;
        node->unsure_round = authority->round;
    }
}

bool mst__sim_auth_ranks_remember(const struct mst__sim_auth *sim, uint32_t node)
{
    const struct mst__sim_auth_roster *roster = &sim->server.roster;
    for (uint32_t rank = 0; rank < roster->world; rank++) {
        if (roster->nodes[rank] == node) {
            return rank_before(sim, rank, node) == rank;
        }
    }
    return false;
}

/* --- the engine etcd-v3 --- */

void mst__sim_auth_ranks_written(struct mst__sim_auth *sim,
                                 const struct mst__sim_auth_round *before,
                                 const struct mst__sim_auth_round *round)
{
    if (round->round != before->round + 1) {
        return; /* there was a round between them that was over before it was written */
    }
    struct seating seating;
    seating_open(&seating, sim, round->world);
    seating.round = round->round;
    for (uint32_t rank = 0; rank < round->world; rank++) {
        const struct mst__sim_auth_owner *owner = mst__sim_auth_owner(sim, round->members[rank]);
        seating_place(&seating, owner == NULL ? sim->plan.nodes : owner->node, rank);
    }
    for (uint32_t rank = 0; rank < before->world; rank++) {
        const struct mst__sim_auth_owner *owner = mst__sim_auth_owner(sim, before->members[rank]);
        if (owner == NULL) {
            continue;
        }
        struct place *place = &seating.places[owner->node];
        bool is_same = place->has != NONE && round->members[place->has] == before->members[rank];
        bool is_sure = is_same && !before->is_finished[rank] && !before->is_gone[rank];
        place->had = is_sure ? rank : UNSURE;
    }
    seating_check(&seating);
    seating_close(&seating);
}
