/* sim/record/check.c - the rules that always hold, checked after every change of the record and
 * every result of a node.
 *
 * Stand-ins for torch peers break some rules by themselves: they expel living nodes if clocks
 * differ, and report other worlds than other members. So their results are not checked, nor whom
 * they expel; but our nodes must not expel them before they can send a heartbeat. In a round
 * that a peer completed, our nodes may report too small a world if they cannot know better; that
 * is counted. With unequal settings, a group within every node's limits is not guaranteed. */
#include "base/assert.h"
#include "base/base64.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/mem.h"
#include "codec/pickle.h"
#include "sim/record/record.h"

/* Twice the fastest clock that a plan draws. */
#define CHECK_DRIFT_PERCENT 97
/* As in core/expire.c. */
#define CHECK_BEAT_LATE_US 2500000
/* The default interval of torch's nodes, and their allowed lateness. */
#define CHECK_PEER_BEAT_US 5000000
#define CHECK_PEER_LATE_US 3000000

void mst__sim_check_init(struct mst__sim_world *world)
{
    mst__state_init(&world->check.state);
}

static void check_forget(struct mst__sim_check *check)
{
    mst__state_close(&check->state);
    mst__state_init(&check->state);
    mst__free(check->value);
    check->value = NULL;
    check->value_size = 0;
    check->has_record = false;
}

void mst__sim_check_close(struct mst__sim_world *world)
{
    struct mst__sim_check *check = &world->check;
    check_forget(check);
    for (size_t i = 0; i < check->completions_count; i++) {
        mst__free(check->completions[i].seats);
    }
    mst__free(check->completions);
    mst__free(check->lives);
}

void mst__sim_check_wiped(struct mst__sim_world *world)
{
    check_forget(&world->check);
    for (size_t i = 0; i < world->check.lives_count; i++) {
        world->check.lives[i].has_stamp = false;
    }
}

int64_t mst__sim_check_born(struct mst__sim_world *world, uint32_t node)
{
    struct mst__sim_check *check = &world->check;
    if (check->lives_count == check->lives_capacity) {
        size_t capacity = check->lives_capacity == 0 ? 64 : 2 * check->lives_capacity;
        struct mst__sim_life *lives = mst__realloc(check->lives, capacity * sizeof *lives);
        MST_ASSERT(lives != NULL);
        check->lives = lives;
        check->lives_capacity = capacity;
    }
    check->lives[check->lives_count++] =
        (struct mst__sim_life){.node = node, .is_exact = world->plan.is_exact[node]};
    return (int64_t)check->lives_count;
}

struct mst__sim_life *mst__sim_check_life(struct mst__sim_world *world, int64_t pid)
{
    MST_ASSERT(pid > 0);
    MST_ASSERT((size_t)pid <= world->check.lives_count);
    return &world->check.lives[pid - 1];
}

/* --- rounds --- */

const struct mst__sim_completion *mst__sim_check_find(const struct mst__sim_world *world,
                                                      uint32_t epoch,
                                                      int64_t round)
{
    const struct mst__sim_check *check = &world->check;
    for (size_t i = check->completions_count; i > 0; i--) {
        const struct mst__sim_completion *completion = &check->completions[i - 1];
        if (completion->epoch == epoch && completion->round == round) {
            return completion;
        }
    }
    return NULL;
}

static void check_ranks(struct mst__sim_world *world, const struct mst__sim_completion *completion)
{
    for (size_t rank = 0; rank < completion->count; rank++) {
        size_t found = 0;
        for (size_t i = 0; i < completion->count; i++) {
            found += completion->seats[i].rank == (int64_t)rank ? 1 : 0;
        }
        if (found != 1) {
            mst__sim_break(world, "ranks", "round %lld of %zu has rank %zu %zu times",
                           (long long)completion->round, completion->count, rank, found);
        }
    }
}

static void check_size(struct mst__sim_world *world, int64_t round, int64_t count)
{
    const struct mst__settings *settings = &world->plan.settings[0];
    bool is_within = count >= settings->nodes_min && count <= settings->nodes_max;
    if (!world->plan.is_unequal && !is_within) {
        mst__sim_break(world, "size", "round %lld is complete with %lld nodes, not %lld to %lld",
                       (long long)round, (long long)count, (long long)settings->nodes_min,
                       (long long)settings->nodes_max);
    }
}

static void check_completed(struct mst__sim_world *world, const struct mst__sim_conn *conn)
{
    struct mst__sim_check *check = &world->check;
    const struct mst__state *state = &check->state;
    if (mst__sim_check_find(world, world->store.epoch, state->round) != NULL) {
        mst__sim_break(world, "twice", "round %lld is completed a second time",
                       (long long)state->round);
        return;
    }
    if (check->completions_count == check->completions_capacity) {
        size_t capacity = check->completions_capacity == 0 ? 64 : 2 * check->completions_capacity;
        struct mst__sim_completion *completions =
            mst__realloc(check->completions, capacity * sizeof *completions);
        MST_ASSERT(completions != NULL);
        check->completions = completions;
        check->completions_capacity = capacity;
    }
    struct mst__sim_completion *completion = &check->completions[check->completions_count++];
    size_t count = state->participants.count;
    *completion = (struct mst__sim_completion){
        .epoch = world->store.epoch,
        .round = state->round,
        .time_us = world->now_us,
        .is_by_exact = world->plan.is_exact[conn->node],
        .count = count,
        .seats = mst__calloc(count == 0 ? 1 : count, sizeof(struct mst__sim_seat)),
    };
    MST_ASSERT(completion->seats != NULL);
    for (size_t i = 0; i < count; i++) {
        const struct mst__peer *member = &state->members[state->participants.ids[i]];
        completion->seats[i] = (struct mst__sim_seat){member->node.pid, member->rank};
    }
    world->stats.rounds++;
    check_ranks(world, completion);
    check_size(world, state->round, (int64_t)count);
}

/* A complete round only loses participants, and ranks do not change. */
static void check_still_complete(struct mst__sim_world *world)
{
    const struct mst__state *state = &world->check.state;
    const struct mst__sim_completion *completion =
        mst__sim_check_find(world, world->store.epoch, state->round);
    for (size_t i = 0; completion != NULL && i < state->participants.count; i++) {
        const struct mst__peer *member = &state->members[state->participants.ids[i]];
        bool is_found = false;
        for (size_t k = 0; k < completion->count; k++) {
            is_found = is_found || (completion->seats[k].pid == member->node.pid &&
                                    completion->seats[k].rank == member->rank);
        }
        if (!is_found) {
            mst__sim_break(world, "sealed", "round %lld was changed after it was complete",
                           (long long)state->round);
        }
    }
}

/* --- members --- */

static int member_places(const struct mst__peer *member)
{
    return (member->is_participant ? 1 : 0) + (member->is_waiting ? 1 : 0) +
           (member->is_spare ? 1 : 0);
}

static void check_members(struct mst__sim_world *world)
{
    const struct mst__state *state = &world->check.state;
    for (size_t i = 0; i < state->members_count; i++) {
        const struct mst__peer *member = &state->members[i];
        char name[24];
        mst__sim_name(world, member->node.pid, name);
        if (member_places(member) > 1) {
            mst__sim_break(world, "places", "%s is in %d lists", name, member_places(member));
        }
        if (member_places(member) > 0 && !member->has_heartbeat) {
            mst__sim_break(world, "heartbeat", "%s has no heartbeat", name);
        }
    }
}

static void check_stamps(struct mst__sim_world *world)
{
    const struct mst__state *state = &world->check.state;
    for (size_t i = 0; i < state->heartbeats.count; i++) {
        const struct mst__peer *member = &state->members[state->heartbeats.ids[i]];
        struct mst__sim_life *life = mst__sim_check_life(world, member->node.pid);
        if (!life->has_stamp || life->stamp_us != member->heartbeat_us) {
            life->has_stamp = true;
            life->stamp_us = member->heartbeat_us;
            life->stamped_us = world->now_us;
        }
    }
}

/* The shortest silence after which a node may be removed. */
static int64_t check_patience_us(const struct mst__settings *settings, bool is_exact)
{
    if (is_exact) {
        int64_t interval_us = settings->keep_alive_interval_us;
        interval_us = interval_us > CHECK_PEER_BEAT_US ? interval_us : CHECK_PEER_BEAT_US;
        return (interval_us + CHECK_PEER_LATE_US) * CHECK_DRIFT_PERCENT / 100;
    }
    int64_t half_us = settings->keep_alive_interval_us / 2;
    int64_t beat_us = settings->keep_alive_interval_us +
                      (half_us > CHECK_BEAT_LATE_US ? half_us : CHECK_BEAT_LATE_US);
    int64_t after_us = mst__expire_patience_us(settings, true);
    return (after_us < beat_us ? after_us : beat_us) * CHECK_DRIFT_PERCENT / 100;
}

/* The reader @by was stopped and goes on: it may count the pause as one heartbeat's time, not as
 * silence of the others. Judged if no clock makes the stamp of @pid look like an old job's. */
static void check_paused(struct mst__sim_world *world, int64_t pid, const struct mst__sim_node *by)
{
    const struct mst__sim_plan *plan = &world->plan;
    const struct mst__sim_life *life = mst__sim_check_life(world, pid);
    const struct mst__settings *settings = &plan->settings[by->index];
    bool is_near = plan->skew_us_max <= 2 * MST_SIM_SECOND_US &&
                   plan->weights[MST_SIM_FAULT_STEP] == 0 &&
                   world->now_us - life->stamped_us < settings->clock_skew_us / 2;
    if (!is_near || by->paused_us < life->stamped_us) {
        return;
    }
    /* What it sent before it was stopped may arrive meanwhile. */
    int64_t until_us = by->frozen_us < world->now_us ? by->frozen_us : world->now_us;
    int64_t pause_us = until_us - by->paused_us;
    int64_t beat_us = settings->keep_alive_interval_us + CHECK_BEAT_LATE_US;
    int64_t counts_us = pause_us < beat_us ? pause_us : beat_us;
    int64_t watched_us = world->now_us - life->stamped_us - pause_us + counts_us;
    if (watched_us < mst__expire_patience_us(settings, true) * CHECK_DRIFT_PERCENT / 100) {
        char name[24];
        mst__sim_name(world, pid, name);
        mst__sim_break(world, "paused",
                       "n%u was stopped for %lld ms and expelled %s after %lld ms of watching",
                       by->index, (long long)(pause_us / 1000), name,
                       (long long)(watched_us / 1000));
    }
}

/* @pid was removed by another node. */
static void check_expelled(struct mst__sim_world *world, int64_t pid, const char *by)
{
    const struct mst__sim_life *life = mst__sim_check_life(world, pid);
    const struct mst__sim_node *node = &world->nodes[life->node];
    const struct mst__settings *settings = &world->plan.settings[life->node];
    bool takes_part = node->app == MST_SIM_JOINING || node->app == MST_SIM_HOLDING;
    if (life->is_over || !takes_part) {
        return;
    }
    char name[24];
    mst__sim_name(world, pid, name);
    int64_t silent_us = world->now_us - life->stamped_us;
    if (silent_us < check_patience_us(settings, life->is_exact)) {
        mst__sim_break(world, "expelled", "%s was expelled by %s %lld ms after its last beat", name,
                       by, (long long)(silent_us / 1000));
    }
    int64_t since_us = node->frozen_us > node->well_us ? node->frozen_us : node->well_us;
    int64_t well_us = world->now_us - since_us; /* it may still be frozen */
    int64_t enough_us = mst__expire_after_us(settings) + 2 * settings->keep_alive_interval_us;
    if (node->partition == 0 && well_us > enough_us && !life->is_exact) {
        mst__sim_break(world, "expelled",
                       "%s reaches the store since %lld ms and was expelled by %s", name,
                       (long long)(well_us / 1000), by);
    }
}

/* Check the nodes that have vanished from the record, or moved in it. */
static void check_others(struct mst__sim_world *world,
                         const struct mst__state *before,
                         const struct mst__sim_conn *conn)
{
    if (world->plan.is_exact[conn->node]) {
        return;
    }
    const struct mst__state *state = &world->check.state;
    char by[24];
    mst__sim_name(world, conn->pid, by);
    for (size_t i = 0; i < before->heartbeats.count; i++) {
        const struct mst__peer *member = &before->members[before->heartbeats.ids[i]];
        if (member->node.pid == conn->pid) {
            continue;
        }
        mst__peer_id id = mst__state_find(state, &member->node);
        if (id == MST_PEER_NONE || !state->members[id].has_heartbeat) {
            check_paused(world, member->node.pid, &world->nodes[conn->node]);
            check_expelled(world, member->node.pid, by);
            continue;
        }
        const struct mst__peer *now = &state->members[id];
        if (now->is_participant != member->is_participant ||
            now->is_waiting != member->is_waiting || now->is_spare != member->is_spare ||
            now->heartbeat_us != member->heartbeat_us) {
            char name[24];
            mst__sim_name(world, member->node.pid, name);
            mst__sim_break(world, "meddles", "%s changes the entry of %s", by, name);
        }
    }
}

/* --- the record --- */

static bool check_decode(struct mst__sim_world *world, struct mst_bytes value)
{
    struct mst__buf pickle;
    mst__buf_init(&pickle, MST_PICKLE_SIZE_MAX);
    struct mst_err err = {.code = 0};
    int rv = mst__base64_read(&pickle, value);
    if (rv == 0) {
        rv = mst__pickle_read(mst__buf_bytes(&pickle), &world->check.state, &err);
    }
    mst__buf_close(&pickle);
    if (rv != 0) {
        mst__sim_break(world, "decodes", "what is stored is no record: %d, %s", rv, err.msg);
    }
    return rv == 0;
}

static void check_progress(struct mst__sim_world *world, const struct mst__state *before)
{
    const struct mst__state *state = &world->check.state;
    if (state->round < before->round || state->round > before->round + 1) {
        mst__sim_break(world, "round", "round %lld follows round %lld", (long long)state->round,
                       (long long)before->round);
    }
    if (before->closed && !state->closed) {
        mst__sim_break(world, "closed", "the rendezvous was closed and is not any more");
    }
    if (before->complete && !state->complete && state->round == before->round) {
        mst__sim_break(world, "sealed", "round %lld was complete and is open again",
                       (long long)state->round);
    }
}

void mst__sim_check_stored(struct mst__sim_world *world,
                           const struct mst__sim_conn *conn,
                           struct mst_bytes value)
{
    struct mst__sim_check *check = &world->check;
    if (mst__bytes_equal(value, mst_bytes_of(check->value, check->value_size))) {
        return;
    }
    mst__free(check->value);
    check->value = (uint8_t *)mst__memdup(value.data, value.size);
    MST_ASSERT(check->value != NULL);
    check->value_size = value.size;
    if (mst__bytes_equal(value, mst__sim_store_sentinel())) {
        if (check->has_record) {
            mst__sim_break(world, "vanished", "the record was replaced by the sentinel");
        }
        return;
    }
    struct mst__state before;
    mst__state_init(&before);
    mst__state_move(&before, &check->state);
    bool had_record = check->has_record;
    bool was_complete = had_record && before.complete;
    check->has_record = true;
    if (check_decode(world, value)) {
        mst__sim_say_record(world, conn);
        check_members(world);
        if (had_record) {
            check_progress(world, &before);
            check_others(world, &before, conn);
        }
        check_stamps(world);
        if (check->state.complete && (!was_complete || check->state.round != before.round)) {
            check_completed(world, conn);
        } else if (check->state.complete) {
            check_still_complete(world);
        }
        mst__sim_settle_look(world);
    }
    mst__state_close(&before);
}

/* --- results --- */

/* Whether @node could know that a node had left a round that a peer completed. A peer writes no
 * seal. If a node came and went between two of our looks, the ranks have no gap and no node
 * waits, then only the time tells: before the end of the last call, only a full round is
 * completed. */
static bool check_could_know(const struct mst__sim_world *world, const struct mst__sim_node *node)
{
    const struct mst__session *session = &node->session;
    return !world->plan.is_unequal && session->insisted < MST_SESSION_INSIST_MAX &&
           session->before_left_us > session->options.settings.last_call_us / 2;
}

void mst__sim_check_told(struct mst__sim_world *world,
                         const struct mst__sim_node *node,
                         const struct mst__outcome *outcome)
{
    if (world->plan.is_exact[node->index]) {
        return;
    }
    const struct mst__sim_completion *completion =
        mst__sim_check_find(world, node->epoch, outcome->round);
    if (completion == NULL) {
        mst__sim_break(world, "incomplete", "n%u was told round %lld, which was never completed",
                       node->index, (long long)outcome->round);
        return;
    }
    const struct mst__sim_seat *seat = NULL;
    for (size_t i = 0; i < completion->count; i++) {
        if (completion->seats[i].pid == node->pid) {
            seat = &completion->seats[i];
        }
    }
    if (seat == NULL) {
        mst__sim_break(world, "outsider", "n%u was told round %lld, in which it is not",
                       node->index, (long long)outcome->round);
    } else if (seat->rank != outcome->rank) {
        mst__sim_break(world, "ranks", "n%u has rank %lld in round %lld and was told %lld",
                       node->index, (long long)seat->rank, (long long)outcome->round,
                       (long long)outcome->rank);
    }
    if (outcome->world == (int64_t)completion->count) {
        return;
    }
    if (completion->is_by_exact && !check_could_know(world, node)) {
        world->stats.torn++;
    } else {
        mst__sim_break(world, "torn", "n%u was told round %lld has %lld nodes; it has %zu",
                       node->index, (long long)outcome->round, (long long)outcome->world,
                       completion->count);
    }
}
