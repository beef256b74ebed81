/* sim/authority/member.c - the product's member machine for nodes of both engines: effects go to
 * the connection or the key of the node, and to its program. */
#include <inttypes.h>

#include "sim/authority/authority.h"

#define SECOND_US MST_SIM_SECOND_US
#define BEATS_PER_ANSWER 3

/* One process in this many is patient, if there are such ones, and allows so many times the
 * silence. */
#define PATIENT_LIVES 7
#define PATIENT_TIMES 20

int64_t mst__sim_auth_expiry_us(const struct mst__sim_auth *sim, uint32_t node, uint32_t life)
{
    bool is_patient = sim->plan.has_patient && (node + 3 * life) % PATIENT_LIVES == 0;
    return (is_patient ? PATIENT_TIMES : 1) * sim->plan.expiry_us;
}

uint32_t mst__sim_auth_workers(const struct mst__sim_auth *sim, uint32_t node, uint32_t life)
{
    bool says = sim->plan.engine == MST_SIM_AUTH_MUSTER && !sim->plan.is_old;
    return says ? 1 + (5 * node + 3 * life) % 4 : 0;
}

const char *mst__sim_auth_role(uint32_t node)
{
    static const char *const roles[] = {"trainer", "reader", ""};
    return roles[node * 3 % 7 % 3];
}

void mst__sim_auth_member_begin(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    const struct mst__sim_auth_plan *plan = &sim->plan;
    (void)snprintf(node->name, sizeof node->name, "node%" PRIu32, node->index); /* fits */
    (void)snprintf(node->rack, sizeof node->rack, "r%" PRIu32,
                   mst__sim_auth_rack(node->index)); /* fits */
    node->label = (struct mst__label){mst_bytes_str("rack"), mst_bytes_str(node->rack)};
    const struct mst__member_options options = {
        .self = {.name = mst_bytes_str(node->name),
                 .incarnation = node->incarnation,
                 .session = node->session,
                 .labels = &node->label,
                 .labels_count = 1,
                 .nodes_min = plan->nodes_min,
                 .nodes_max = plan->nodes_max + (node->is_odd ? 1 : 0),
                 .last_call_us = plan->last_call_us,
                 .rank_by = mst_bytes_str(plan->has_racks ? "rack" : ""),
                 .pinned_rank = mst__sim_auth_pinned(sim, node->index),
                 .budget = plan->budget,
                 .is_fixed = plan->is_fixed,
                 .workers = mst__sim_auth_workers(sim, node->index, node->life),
                 .role = mst_bytes_str(mst__sim_auth_role(node->index))},
        .run_id = mst_bytes_str("run"),
        .where = "the server",
        .beat_us = plan->engine == MST_SIM_AUTH_MUSTER ? plan->beat_us : INT64_MAX,
        .expiry_us = mst__sim_auth_expiry_us(sim, node->index, node->life),
        .beats_per_answer = BEATS_PER_ANSWER,
        .seed = mst__prng_next(&sim->prng),
    };
    mst__member_init(&node->member, &options);
}

/* --- what the program does --- */

static void member_failed(struct mst__sim_auth *sim,
                          struct mst__sim_auth_node *node,
                          const struct mst_err *err)
{
    mst__sim_auth_say(sim, node->index, "does not get in: %s", err->msg);
    if (err->code == MST_ECLOSED || err->code == MST_ESPARE || err->code == MST_EFINISHED) {
        mst__sim_auth_node_ended(sim, node);
    } else {
        mst__sim_auth_node_part(sim, node, mst__sim_auth_below(sim, 2 * SECOND_US));
    }
}

static void member_notice(struct mst__sim_auth *sim,
                          struct mst__sim_auth_node *node,
                          const struct mst__member_effect *effect)
{
    if (node->launcher != NULL) {
        mst__sim_auth_launch_notice(sim, node, effect);
        return;
    }
    switch (effect->notice) {
        case MST_MEMBER_NOTICE_CUT:
            mst__sim_auth_say(sim, node->index, "has lost its connection");
            return;
        case MST_MEMBER_NOTICE_AGAIN:
        case MST_MEMBER_NOTICE_STANDBY:
            return;
        case MST_MEMBER_NOTICE_UNSAID:
            if (!sim->plan.is_old) {
                mst__sim_auth_break(sim, "told", "node %" PRIu32 " cannot say how its work ended",
                                    node->index);
            }
            return;
        case MST_MEMBER_NOTICE_LOST:
        case MST_MEMBER_NOTICE_REOPENED:
            if (!mst__sim_auth_work_refuses(sim, node)) {
                mst__sim_auth_node_react(sim, node, false);
            }
            return;
        case MST_MEMBER_NOTICE_WAITING:
            if (effect->message->u.waiting.count > 0) {
                mst__sim_auth_node_react(sim, node, true);
            } else if (node->reacts_to_waiting) {
                node->react_us = INT64_MAX;
            }
            return;
        case MST_MEMBER_NOTICE_EXPELLED:
            mst__sim_auth_node_expelled(sim, node);
            return;
        case MST_MEMBER_NOTICE_CLOSED:
            mst__sim_auth_node_ended(sim, node);
            return;
    }
}

static void member_tell(struct mst__sim_auth *sim,
                        struct mst__sim_auth_node *node,
                        const struct mst__member_effect *effect)
{
    if (effect->kind == MST_MEMBER_SEALED) {
        mst__sim_auth_node_sealed(sim, node, &effect->message->u.round);
    } else if (effect->kind == MST_MEMBER_FAILED) {
        if (node->launcher != NULL) {
            mst__sim_auth_launch_failed(sim, node, effect);
        } else {
            member_failed(sim, node, effect->err);
        }
    } else if (effect->kind == MST_MEMBER_NOTICE) {
        member_notice(sim, node, effect);
    }
}

/* --- steps --- */

void mst__sim_auth_member_step(struct mst__sim_auth *sim,
                               struct mst__sim_auth_node *node,
                               struct mst__member_event event)
{
    struct mst__member_effect effects[MST_MEMBER_EFFECTS_MAX];
    event.now_us = sim->now_us;
    mst__member_step(&node->member, &event);
    mst__member_check(&node->member);
    size_t count = node->member.effects_count;
    /* Actions of the program, which may be another step, come after all effects of this one. */
    for (size_t i = 0; i < count; i++) {
        effects[i] = node->member.effects[i];
        if (sim->plan.engine == MST_SIM_AUTH_MUSTER) {
            mst__sim_auth_client_effect(sim, node, &effects[i]);
        } else {
            mst__sim_auth_keeper_effect(sim, node, &effects[i]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (effects[i].kind == MST_MEMBER_CONNECT) {
            mst__sim_auth_member_step(
                sim, node, (struct mst__member_event){.kind = MST_MEMBER_EVENT_CONNECTED});
        }
        member_tell(sim, node, &effects[i]);
    }
    if (node->launcher != NULL) {
        mst__sim_auth_launch_heard(sim, node);
    }
}

void mst__sim_auth_member_heard(struct mst__sim_auth *sim,
                                struct mst__sim_auth_node *node,
                                const struct mst__job_message *message)
{
    mst__sim_auth_say(sim, node->index, "hears %s", mst__job_type_name(message->type));
    mst__sim_auth_member_step(
        sim, node, (struct mst__member_event){.kind = MST_MEMBER_EVENT_HEARD, .message = message});
}

void mst__sim_auth_member_wake(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (mst__sim_auth_is_up(node) && mst__member_due_us(&node->member) <= sim->now_us) {
        mst__sim_auth_member_step(sim, node,
                                  (struct mst__member_event){.kind = MST_MEMBER_EVENT_TIME});
    }
}

void mst__sim_auth_member_want(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    if (node->member.phase != MST_MEMBER_JOINING) {
        mst__sim_auth_member_step(sim, node,
                                  (struct mst__member_event){.kind = MST_MEMBER_EVENT_WANTED,
                                                             .address = mst_bytes_str(node->name),
                                                             .timeout_us = sim->plan.join_us});
    }
    mst__sim_auth_member_wake(sim, node);
}

void mst__sim_auth_member_leave(struct mst__sim_auth *sim, struct mst__sim_auth_node *node)
{
    mst__sim_auth_member_step(sim, node,
                              (struct mst__member_event){.kind = MST_MEMBER_EVENT_LEAVE});
}
