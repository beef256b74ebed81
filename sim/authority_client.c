/* sim/authority_client.c - a node's side of its connection to the server, as the handler `muster`
 * behaves: announce, beat, ask for an answer now and then, connect anew and claim the place. */
#include <inttypes.h>

#include "base/assert.h"
#include "base/err.h"
#include "sim/authority.h"

#define SECOND_US MST_SIM_SECOND_US
#define AGAIN_US 50000
#define AGAIN_US_MAX SECOND_US
#define BEATS_PER_ANSWER 3

static void client_send(struct mst__sim_auth *sim,
                        struct mst__sim_auth_node *node,
                        const struct mst__job_message *message)
{
    mst__buf_clear(&sim->frame);
    int rv = mst__job_write(&sim->frame, message);
    MST_ASSERT(rv == 0);
    /* A claim that comes twice would be refused after the place was given up. */
    bool can_repeat = message->type == MST_JOB_HEARTBEAT ||
                      (message->type == MST_JOB_ANNOUNCE && !node->claim.holds);
    mst__sim_auth_link_send(sim, node->link, true, can_repeat, mst__buf_bytes(&sim->frame));
}

static void client_announce(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    const struct mst__sim_auth_plan *plan = &sim->plan;
    char name[24];
    char rack[24];
    (void)snprintf(name, sizeof name, "node%" PRIu32, node->index);      /* fits */
    (void)snprintf(rack, sizeof rack, "r%" PRIu32, node->index * 7 % 5); /* the same */
    const struct mst__label label = {mst_bytes_str("rack"), mst_bytes_str(rack)};
    uint32_t pinned =
        plan->has_pinned && node->index % 3 == 0 ? node->index % 4 : MST_AUTHORITY_RANK_NONE;
    const struct mst__job_message message = {
        .type = MST_JOB_ANNOUNCE,
        .u.announce = {.version = MST_JOB_VERSION,
                       .run_id = mst_bytes_str("run"),
                       .heartbeat_us = plan->beat_us,
                       .expiry_us = plan->expiry_us,
                       .announcement = {.name = mst_bytes_str(name),
                                        .incarnation = node->incarnation,
                                        .session = node->session,
                                        .address = mst_bytes_str(name),
                                        .labels = &label,
                                        .labels_count = 1,
                                        .nodes_min = plan->nodes_min,
                                        .nodes_max = plan->nodes_max + (node->is_odd ? 1 : 0),
                                        .last_call_us = plan->last_call_us,
                                        .rank_by = mst_bytes_str(plan->has_racks ? "rack" : ""),
                                        .pinned_rank = pinned,
                                        .claim = node->claim,
                                        .has_wall = true,
                                        .wall_us = sim->now_us + node->skew_us}},
    };
    client_send(sim, node, &message);
    int64_t interval_us = plan->beat_us;
    node->beat_us = sim->now_us + interval_us / 2 + mst__sim_auth_below(sim, interval_us / 2);
    node->answer_us = sim->now_us + plan->expiry_us;
    node->beats = 0;
}

static void client_connect(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    node->link = mst__sim_auth_link_open(sim, node);
    node->is_welcome = false;
    node->connect_us = INT64_MAX;
    client_announce(sim, node);
}

void mst__sim_auth_client_next(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (node->link != NULL) {
        client_announce(sim, node);
    } else if (node->connect_us == INT64_MAX) {
        client_connect(sim, node);
    }
}

void mst__sim_auth_client_drop(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    mst__sim_auth_say(sim, node->index, "has lost its connection");
    if (node->link != NULL) {
        mst__sim_auth_link_close(sim, node->link, false, false);
        node->link = NULL;
    }
    node->bad_us = node->bad_us < sim->now_us ? sim->now_us : node->bad_us;
    node->beat_us = INT64_MAX;
    node->answer_us = INT64_MAX;
    if (mst__sim_auth_is_up(node) && !node->is_over) {
        int64_t pause_us = 0;
        if (!node->is_welcome) {
            node->failures += node->failures < 5;
            int64_t most_us = AGAIN_US << node->failures;
            most_us = most_us > AGAIN_US_MAX ? AGAIN_US_MAX : most_us;
            pause_us = most_us / 2 + mst__sim_auth_below(sim, most_us / 2);
        }
        node->connect_us = sim->now_us + pause_us;
    }
    node->is_welcome = false;
    mst__sim_auth_node_arm(sim, node);
}

void mst__sim_auth_client_part(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (node->link != NULL) {
        const struct mst__job_message message = {.type = MST_JOB_LEAVE};
        client_send(sim, node, &message);
        mst__sim_auth_link_close(sim, node->link, false, false);
        node->link = NULL;
    }
    node->connect_us = INT64_MAX;
    node->beat_us = INT64_MAX;
    node->answer_us = INT64_MAX;
}

void mst__sim_auth_client_shut(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    /* On a connection of its own. */
    struct mst__sim_auth_link *link = mst__sim_auth_link_open(sim, node);
    const struct mst__job_message message = {
        .type = MST_JOB_CLOSE,
        .u.close = {.run_id = mst_bytes_str("run"),
                    .reason = mst_bytes_str("done"),
                    .owner = mst_bytes_str("somebody")},
    };
    mst__buf_clear(&sim->frame);
    int rv = mst__job_write(&sim->frame, &message);
    MST_ASSERT(rv == 0);
    mst__sim_auth_link_send(sim, link, true, false, mst__buf_bytes(&sim->frame));
    mst__sim_auth_link_close(sim, link, false, false);
}

static void client_beat(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    bool wants_pong = ++node->beats >= BEATS_PER_ANSWER;
    const struct mst__job_message message = {.type = MST_JOB_HEARTBEAT,
                                             .u.heartbeat = {.wants_pong = wants_pong}};
    node->beat_us = sim->now_us + sim->plan.beat_us;
    if (wants_pong) {
        node->beats = 0;
        int64_t until_us = sim->now_us + sim->plan.expiry_us;
        node->answer_us = until_us < node->answer_us ? until_us : node->answer_us;
    }
    client_send(sim, node, &message);
}

int64_t mst__sim_auth_client_due_us(const struct mst__sim_auth_node *node)
{
    if (node->link == NULL) {
        return node->connect_us;
    }
    return node->beat_us < node->answer_us ? node->beat_us : node->answer_us;
}

void mst__sim_auth_client_wake(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (node->link == NULL) {
        if (node->connect_us <= sim->now_us && mst__sim_auth_is_up(node)) {
            client_connect(sim, node);
        }
    } else if (node->answer_us <= sim->now_us) {
        mst__sim_auth_client_drop(sim, node);
    } else if (node->beat_us <= sim->now_us) {
        client_beat(sim, node);
    }
}

/* --- messages --- */

static void client_welcome(struct mst__sim_auth *sim,
                           struct mst__sim_auth_node *node,
                           const struct mst__job_message *message)
{
    int64_t error_us = message->u.welcome.skew_us - node->skew_us;
    bool is_right = message->u.welcome.has_skew && error_us <= 0 && error_us >= -sim->now_us;
    if (!is_right) {
        mst__sim_auth_break(sim, "told",
                            "node %" PRIu32 " has a skew of %" PRId64 " us and is told %" PRId64,
                            node->index, node->skew_us, message->u.welcome.skew_us);
    }
    node->is_welcome = true;
    node->failures = 0;
}

/* While it waits for a round. */
static void client_joining(struct mst__sim_auth *sim,
                           struct mst__sim_auth_node *node,
                           const struct mst__job_message *message)
{
    const struct mst__job_round *round = &message->u.round;
    switch (message->type) {
        case MST_JOB_REFUSED:
            if (message->u.refused.refusal == MST_REFUSAL_CLOSED) {
                mst__sim_auth_node_ended(sim, node);
            } else if (message->u.refused.refusal != MST_REFUSAL_CLAIM) {
                mst__sim_auth_check_refused(sim, node, message);
                mst__sim_auth_node_part(sim, node, mst__sim_auth_below(sim, 2 * SECOND_US));
            } /* else: of the place that it does not want any more */
            return;
        case MST_JOB_QUEUED:
        case MST_JOB_SPARE:
            node->is_spare = message->type == MST_JOB_SPARE;
            if (round->round > node->claim.round) {
                node->claim = (struct mst__claim){.epoch = round->epoch,
                                                  .round = round->round,
                                                  .world = round->world,
                                                  .rank = MST_AUTHORITY_RANK_NONE};
            }
            return;
        case MST_JOB_REOPENED:
        case MST_JOB_EXPELLED:
            client_announce(sim, node);
            return;
        default:
            return;
    }
}

/* While it is in one. */
static void client_holding(struct mst__sim_auth *sim,
                           struct mst__sim_auth_node *node,
                           const struct mst__job_message *message)
{
    switch (message->type) {
        case MST_JOB_REFUSED:
            if (message->u.refused.refusal == MST_REFUSAL_CLOSED) {
                mst__sim_auth_node_ended(sim, node);
            } else {
                mst__sim_auth_check_refused(sim, node, message);
                mst__sim_auth_node_expelled(sim, node);
                node->beat_us = INT64_MAX;
            }
            return;
        case MST_JOB_LOST:
            if (message->u.lost.round == node->claim.round) {
                mst__sim_auth_node_react(sim, node, false);
            }
            return;
        case MST_JOB_REOPENED:
            mst__sim_auth_node_react(sim, node, false);
            return;
        case MST_JOB_WAITING:
            if (message->u.waiting.count > 0) {
                mst__sim_auth_node_react(sim, node, true);
            } else if (node->reacts_to_waiting) {
                node->react_us = INT64_MAX;
            }
            return;
        case MST_JOB_EXPELLED:
            mst__sim_auth_node_expelled(sim, node);
            node->beat_us = INT64_MAX;
            return;
        default:
            return;
    }
}

static void client_message(struct mst__sim_auth *sim,
                           struct mst__sim_auth_node *node,
                           const struct mst__job_message *message)
{
    mst__sim_auth_say(sim, node->index, "hears %s", mst__job_type_name(message->type));
    node->answer_us = INT64_MAX;
    switch (message->type) {
        case MST_JOB_WELCOME:
            client_welcome(sim, node, message);
            return;
        case MST_JOB_SEALED:
            mst__sim_auth_node_sealed(sim, node, &message->u.round);
            return;
        case MST_JOB_CLOSED:
            mst__sim_auth_node_ended(sim, node);
            return;
        default:
            break;
    }
    if (node->app == MST_SIM_AUTH_JOINING) {
        client_joining(sim, node, message);
    } else if (node->app == MST_SIM_AUTH_HOLDING) {
        client_holding(sim, node, message);
    }
}

void mst__sim_auth_client_receive(struct mst__sim_auth *sim,
                                  struct mst__sim_auth_node *node,
                                  struct mst_bytes bytes)
{
    const struct mst__sim_auth_link *link = node->link;
    while (bytes.size > 0 && node->link == link) {
        struct mst__job_message message;
        struct mst_err err = {0};
        size_t size = 0;
        int rv = mst__job_read(bytes, MST_MIB(1), &message, &size, &err);
        if (rv != 1) {
            mst__sim_auth_break(sim, "told", "a frame that cannot be read: %s", err.msg);
            return;
        }
        client_message(sim, node, &message);
        bytes = mst_bytes(bytes.data + size, bytes.size - size);
    }
    mst__sim_auth_node_arm(sim, node);
}
