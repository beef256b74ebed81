/* sim/legacy/check.c - the rules that always hold for the legacy machine: of a document that is
 * stored, of what members are told, and of what a node leaves behind.
 *
 * `rank`: no two members of a round have one rank.
 * `world`: all members get the same world size.
 * `version`: versions only grow.
 * `closed`: closing is final.
 * `legal`: peers can read every document, and it counts right.
 * `small`: no round is frozen below the minimum.
 * `shrunk`: a round that a peer takes part in does not fall below the minimum.
 * `sealed`: a final round keeps its members.
 * `left`: a member says only of itself that it has left.
 * `withdrawn`: a node that gives up has left the document that it knows.
 * `directory`: the job's directory lives as long as a node is in the job. */
#include <inttypes.h>

#include "base/assert.h"
#include "base/mem.h"
#include "sim/legacy/legacy.h"

/* --- a document that follows another one of its version --- */

/* No round is frozen with too few nodes. */
static void follows_frozen(struct mst__sim_legacy *sim, const struct mst__legacy_doc *doc)
{
    if (sim->before.status != MST_LEGACY_FROZEN &&
        (int64_t)doc->participant_count < sim->plan.nodes_min) {
        mst__sim_legacy_break(sim, "small", "v%" PRId64 " is frozen with %zu of %" PRId64,
                              doc->version, doc->participant_count, sim->plan.nodes_min);
    }
}

/* A peer that reached the minimum does not count again. */
static void follows_joinable(struct mst__sim_legacy *sim, const struct mst__legacy_doc *doc)
{
    const struct mst__legacy_doc *before = &sim->before;
    int64_t min = sim->plan.nodes_min;
    if ((int64_t)before->participant_count >= min && (int64_t)doc->participant_count < min &&
        !mst__legacy_doc_is_ours(before)) {
        mst__sim_legacy_break(sim, "shrunk",
                              "v%" PRId64 " with a peer falls from %zu to %zu of %" PRId64,
                              doc->version, before->participant_count, doc->participant_count, min);
    }
}

/* A final round changes no more, except that nodes wait for its end, and members leave it, each
 * for itself. */
static void follows_final(struct mst__sim_legacy *sim,
                          const struct mst__sim_v2_request *request,
                          const struct mst__legacy_doc *doc)
{
    const struct mst__legacy_doc *before = &sim->before;
    if (doc->status != MST_LEGACY_FINAL && doc->status != MST_LEGACY_CLOSED) {
        mst__sim_legacy_break(sim, "sealed", "v%" PRId64 " is open again", doc->version);
    }
    bool is_same = doc->participant_count == before->participant_count &&
                   doc->keep_alive_count == before->keep_alive_count;
    for (size_t rank = 0; is_same && rank < doc->participant_count; rank++) {
        is_same = mst__legacy_doc_node(doc, rank) == mst__legacy_doc_node(before, rank);
    }
    if (!is_same) {
        mst__sim_legacy_break(sim, "sealed", "v%" PRId64 " has other members", doc->version);
    }
    mst__legacy_nonce writer = sim->nodes[request->node].machine.options.nonce;
    for (size_t i = 0; i < doc->left.count; i++) {
        mst__legacy_nonce nonce = doc->left.items[i];
        if (nonce != writer && mst__legacy_nonces_find(&before->left, nonce) < 0) {
            mst__sim_legacy_break(sim, "left", "n%" PRIu32 " says it for another", request->node);
        }
    }
    if (doc->left.count < before->left.count) {
        mst__sim_legacy_break(sim, "left", "n%" PRIu32 " takes it back", request->node);
    }
}

static void check_follows(struct mst__sim_legacy *sim,
                          const struct mst__sim_v2_request *request,
                          const struct mst__legacy_doc *doc)
{
    const struct mst__sim_legacy_node *node = &sim->nodes[request->node];
    /* A node with other limits has another minimum; peers know no rules. */
    if (node->is_odd || node->is_torch || sim->before.version != doc->version) {
        return;
    }
    switch (sim->before.status) {
        case MST_LEGACY_FINAL:
            follows_final(sim, request, doc);
            break;
        case MST_LEGACY_JOINABLE:
            follows_joinable(sim, doc);
            break;
        default:
            break;
    }
    if (doc->status == MST_LEGACY_FROZEN) {
        follows_frozen(sim, doc);
    }
}

/* --- the stored document --- */

static bool stored_is_whole(const struct mst__legacy_doc *doc)
{
    /* A peer whose answer was lost can confirm twice; then another confirmation is missing. */
    return doc->keep_alive_count == doc->participant_count;
}

void mst__sim_legacy_stored(struct mst__sim_legacy *sim,
                            const struct mst__sim_v2_request *request,
                            const struct mst__legacy_doc *doc)
{
    if (sim->is_closed && (doc == NULL || doc->status != MST_LEGACY_CLOSED)) {
        mst__sim_legacy_break(sim, "closed", "what was closed is open again");
    }
    if (doc == NULL) {
        mst__sim_legacy_say(sim, request == NULL ? UINT32_MAX : request->node, "removes it");
        mst__legacy_doc_close(&sim->before);
        return;
    }
    check_follows(sim, request, doc);
    int rv = mst__legacy_doc_copy(&sim->before, doc);
    MST_ASSERT(rv == 0);
    int64_t count = (int64_t)doc->participant_count;
    mst__sim_legacy_say(sim, request->node, "writes %s v%" PRId64 " n=%" PRId64 " k=%zu w=%" PRId64,
                        mst__legacy_status_name(doc->status), doc->version, count,
                        doc->keep_alive_count, doc->waiting_count);
    bool is_odd = sim->nodes[request->node].is_odd;
    bool has_ttl = request->ttl_s != MST_LEGACY_NO_TTL;
    sim->is_closed = sim->is_closed || doc->status == MST_LEGACY_CLOSED;
    bool wants_ttl = doc->status == MST_LEGACY_SETUP || doc->status == MST_LEGACY_FROZEN ||
                     (doc->status == MST_LEGACY_JOINABLE && count >= sim->plan.nodes_min);
    if (!is_odd && has_ttl != wants_ttl) {
        mst__sim_legacy_break(sim, "legal", "%s with %" PRId64 " of %" PRId64 " has %s TTL",
                              mst__legacy_status_name(doc->status), count, sim->plan.nodes_min,
                              has_ttl ? "a" : "no");
    }
    if (!is_odd && count > sim->plan.nodes_max && doc->status != MST_LEGACY_CLOSED) {
        mst__sim_legacy_break(sim, "legal", "%" PRId64 " participants", count);
    }
    if (doc->status != MST_LEGACY_FINAL) {
        return;
    }
    if (doc->version < sim->final_version) {
        mst__sim_legacy_break(sim, "version", "%" PRId64 " after %" PRId64, doc->version,
                              sim->final_version);
    }
    if (doc->version > sim->final_version) {
        sim->stats.rounds++;
    }
    sim->final_version = doc->version;
    if (!sim->nodes[request->node].is_torch && !stored_is_whole(doc) && sim->plan.torch == 0) {
        mst__sim_legacy_break(sim, "legal", "final with %zu of %" PRId64, doc->keep_alive_count,
                              count);
    }
    if (sim->plan.torch == 0 && doc->waiting_count != (int64_t)doc->waiting.count) {
        mst__sim_legacy_break(sim, "legal", "%" PRId64 " wait, and %zu are named",
                              doc->waiting_count, doc->waiting.count);
    }
}

static struct mst__sim_legacy_round *told_round(struct mst__sim_legacy *sim, int64_t version)
{
    for (size_t i = 0; i < sim->round_count; i++) {
        if (sim->rounds[i].version == version) {
            return &sim->rounds[i];
        }
    }
    sim->rounds = mst__realloc(sim->rounds, (sim->round_count + 1) * sizeof *sim->rounds);
    MST_ASSERT(sim->rounds != NULL);
    struct mst__sim_legacy_round *round = &sim->rounds[sim->round_count++];
    *round = (struct mst__sim_legacy_round){.version = version};
    return round;
}

void mst__sim_legacy_told(struct mst__sim_legacy *sim,
                          struct mst__sim_legacy_node *node,
                          int64_t version,
                          int64_t rank,
                          int64_t world)
{
    mst__sim_legacy_say(sim, node->index, "is told v%" PRId64 " rank %" PRId64 "/%" PRId64, version,
                        rank, world);
    sim->stats.returns++;
    struct mst__sim_legacy_round *round = told_round(sim, version);
    if (version <= node->version && node->app != MST_SIM_LEGACY_DOWN) {
        mst__sim_legacy_break(sim, "version", "n%" PRIu32 " is told %" PRId64 " after %" PRId64,
                              node->index, version, node->version);
    }
    if (round->world != 0 && round->world != world) {
        mst__sim_legacy_break(sim, "world", "%" PRId64 " and %" PRId64 " in v%" PRId64,
                              round->world, world, version);
    }
    round->world = world;
    bool is_small = world < sim->plan.nodes_min && !node->is_odd;
    if (rank < 0 || rank >= world || is_small || world > sim->plan.nodes_max) {
        mst__sim_legacy_break(sim, "world",
                              "n%" PRIu32 " has rank %" PRId64 " of %" PRId64 " in v%" PRId64,
                              node->index, rank, world, version);
    } else if (round->ranks[rank] != 0) {
        mst__sim_legacy_break(sim, "rank",
                              "%" PRId64 " of v%" PRId64 " is n%" PRIu32 "'s and n%" PRIu32 "'s",
                              rank, version, round->ranks[rank] - 1, node->index);
    } else {
        round->ranks[rank] = node->index + 1;
    }
    node->version = version;
    node->rank = rank;
    node->world = world;
    node->app = MST_SIM_LEGACY_HOLDING;
}

/* --- what is left behind --- */

void mst__sim_legacy_gave_up(struct mst__sim_legacy *sim, const struct mst__sim_legacy_node *node)
{
    const struct mst__legacy_doc *doc = mst__sim_v2_doc(sim);
    /* A node that was stopped while it tidied up finds that the time for it is over. */
    int64_t since_us = node->woken_us > sim->calm_us ? node->woken_us : sim->calm_us;
    if (doc == NULL || !sim->is_calm || sim->now_us - since_us < MST_SIM_LEGACY_LATE_US) {
        return;
    }
    /* It has decided by the document that it knows. A peer may have frozen the round since then. */
    if (mst__sim_v2_doc_index(sim) != node->machine.doc_index) {
        return;
    }
    mst__legacy_nonce nonce = node->machine.options.nonce;
    bool is_in = mst__legacy_doc_rank(doc, nonce) >= 0;
    /* The last participant gets the free rank, unless it is a peer. */
    size_t count = doc->participant_count;
    bool may_shrink = mst__legacy_doc_is_ours(doc) || ((int64_t)count > sim->plan.nodes_min &&
                                                       mst__legacy_doc_node(doc, count - 1) != 0);
    bool is_left = false;
    switch (doc->status) {
        case MST_LEGACY_SETUP:
            is_left = doc->creator == nonce;
            break;
        case MST_LEGACY_JOINABLE:
            is_left = is_in && may_shrink;
            break;
        case MST_LEGACY_FROZEN:
            is_left = is_in;
            break;
        case MST_LEGACY_FINAL:
            is_left = mst__legacy_nonces_find(&doc->waiting, nonce) >= 0;
            break;
        default:
            break;
    }
    if (is_left) {
        mst__sim_legacy_break(sim, "withdrawn", "n%" PRIu32 " gave up and is in the %s v%" PRId64,
                              node->index, mst__legacy_status_name(doc->status), doc->version);
    }
}

void mst__sim_legacy_expired(struct mst__sim_legacy *sim, const struct mst__sim_v2_key *key)
{
    for (uint32_t i = 0; key->is_dir && i < sim->plan.nodes; i++) {
        const struct mst__sim_legacy_node *node = &sim->nodes[i];
        /* Some programs here go on although their setup failed. */
        if (node->has_machine && node->machine.has_job && sim->is_calm && !sim->is_closed) {
            mst__sim_legacy_break(sim, "directory", "%s expires while n%" PRIu32 " is in the job",
                                  key->key, i);
        }
    }
}
