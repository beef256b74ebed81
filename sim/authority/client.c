/* sim/authority/client.c - a node of the engine muster: its connection to the simulated server. */
#include <inttypes.h>

#include "base/assert.h"
#include "base/err.h"
#include "sim/authority/authority.h"

static void client_send(struct mst__sim_auth *sim,
                        struct mst__sim_auth_node *node,
                        const struct mst__member_effect *effect)
{
    struct mst__job_message message;
    mst__member_message(&node->member, effect, &message);
    if (message.type == MST_JOB_ANNOUNCE) {
        message.u.announce.announcement.has_wall = true;
        message.u.announce.announcement.wall_us = sim->now_us + node->skew_us;
    }
    if (message.type == MST_JOB_FINISH || message.type == MST_JOB_RESTART) {
        sim->word_us = sim->now_us;
    }
    mst__buf_clear(&sim->frame);
    int rv = mst__job_write(&sim->frame, &message);
    MST_ASSERT(rv == 0);
    /* A repeated claim would be refused after the place was given up. */
    bool can_repeat =
        message.type == MST_JOB_HEARTBEAT || message.type == MST_JOB_FINISH ||
        message.type == MST_JOB_RESTART ||
        (message.type == MST_JOB_ANNOUNCE && !message.u.announce.announcement.claim.holds);
    mst__sim_auth_link_send(sim, node->link, true, can_repeat, mst__buf_bytes(&sim->frame));
}

static void client_hang_up(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (node->link != NULL) {
        mst__sim_auth_link_close(sim, node->link, false, false);
        node->link = NULL;
    }
}

static void client_explain(struct mst__sim_auth *sim, const struct mst__sim_auth_node *node)
{
    const struct mst__job_message message = {.type = MST_JOB_STATUS,
                                             .u.question.run_id = mst_bytes_str("run")};
    mst__buf_clear(&sim->frame);
    int rv = mst__job_write(&sim->frame, &message);
    MST_ASSERT(rv == 0);
    mst__sim_auth_link_send(sim, node->link, true, false, mst__buf_bytes(&sim->frame));
}

void mst__sim_auth_client_effect(struct mst__sim_auth *sim,
                                 struct mst__sim_auth_node *node,
                                 const struct mst__member_effect *effect)
{
    if (effect->kind == MST_MEMBER_CONNECT) {
        node->link = mst__sim_auth_link_open(sim, node);
    } else if (effect->kind == MST_MEMBER_DISCONNECT) {
        /* A stopped server hears of the next connection when it is made. */
        const struct mst__sim_auth_server *server = &sim->server;
        bool was_stopped =
            server->froze_us > 0 && sim->now_us <= server->frozen_us + sim->plan.slow_us;
        if (was_stopped && !effect->is_parting && node->bad_us < sim->now_us) {
            node->bad_us = sim->now_us;
        }
        client_hang_up(sim, node);
    } else if (effect->kind == MST_MEMBER_SEND) {
        client_send(sim, node, effect);
    } else if (effect->kind == MST_MEMBER_EXPLAIN) {
        client_explain(sim, node);
    }
}

void mst__sim_auth_client_shut(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    /* CLOSE has its own connection. */
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

void mst__sim_auth_client_drop(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    struct mst_err err;
    (void)mst__fail(&err, MST_ECONN, 0, "the connection is lost");
    client_hang_up(sim, node);
    node->bad_us = node->bad_us < sim->now_us ? sim->now_us : node->bad_us;
    mst__sim_auth_member_step(
        sim, node, (struct mst__member_event){.kind = MST_MEMBER_EVENT_DISCONNECTED, .err = &err});
    mst__sim_auth_member_wake(sim, node);
    mst__sim_auth_node_arm(sim, node);
}

/* --- messages --- */

static void client_welcome(struct mst__sim_auth *sim,
                           const struct mst__sim_auth_node *node,
                           const struct mst__job_message *message)
{
    int64_t error_us = message->u.welcome.skew_us - node->skew_us;
    bool is_right = message->u.welcome.has_skew && error_us <= 0 && error_us >= -sim->now_us;
    if (!is_right) {
        mst__sim_auth_break(sim, "told",
                            "node %" PRIu32 " has a skew of %" PRId64 " us and is told %" PRId64,
                            node->index, node->skew_us, message->u.welcome.skew_us);
    }
}

/* Check for messages that no node should get. */
static void client_check(struct mst__sim_auth *sim,
                         const struct mst__sim_auth_node *node,
                         const struct mst__job_message *message)
{
    mst__sim_auth_work_check_heard(sim, node, message);
    if (message->type == MST_JOB_WELCOME) {
        client_welcome(sim, node, message);
    } else if (message->type == MST_JOB_SEALED) {
        mst__sim_auth_check_told(sim, node, &message->u.round);
    } else if (message->type == MST_JOB_REFUSED) {
        enum mst__refusal refusal = (enum mst__refusal)message->u.refused.refusal;
        /* The refusal concerns a place that the node no longer wants. */
        bool is_past = refusal == MST_REFUSAL_CLAIM && node->member.phase != MST_MEMBER_HOLDING;
        if (refusal != MST_REFUSAL_CLOSED && !is_past) {
            mst__sim_auth_check_refused(sim, node, message);
        }
    }
}

static void client_explained(struct mst__sim_auth *sim,
                             struct mst__sim_auth_node *node,
                             const struct mst__job_status *status)
{
    struct mst_bytes members = status->members;
    struct mst__job_member member = {.standing = MST_STANDING_GONE};
    bool is_spare =
        mst__job_member_next(&members, &member) && member.standing == MST_STANDING_SPARE;
    mst__sim_auth_member_step(sim, node,
                              (struct mst__member_event){.kind = MST_MEMBER_EVENT_EXPLAINED,
                                                         .is_spare = is_spare,
                                                         .text = status->sentence});
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
        client_check(sim, node, &message);
        if (message.type == MST_JOB_STATUS_TOLD) {
            client_explained(sim, node, &message.u.status);
        } else {
            mst__sim_auth_member_heard(sim, node, &message);
        }
        bytes = mst_bytes_of(bytes.data + size, bytes.size - size);
    }
    mst__sim_auth_member_wake(sim, node);
    mst__sim_auth_node_arm(sim, node);
}
