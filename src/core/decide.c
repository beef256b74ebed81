/* core/decide.c - the decision tables of the four operations. The first matching row wins; rows
 * J1 to J16 are those of docs/protocol.md, "The record". */
#include "core/decide.h"

#include "base/assert.h"
#include "core/saturate.h"

const char *mst__action_name(enum mst__action action)
{
    switch (action) {
#define ACTION_NAME(name)   \
    case MST_ACTION_##name: \
        return #name;
        MST_ACTION_MAP(ACTION_NAME)
#undef ACTION_NAME
    }
    return "UNDEFINED";
}

bool mst__action_writes(enum mst__action action)
{
    return action <= MST_ACTION_START_LAST_CALL;
}

enum mst__semantics mst__semantics_of(enum mst__record_dialect dialect)
{
    return dialect <= MST_RECORD_D2 ? MST_SEMANTICS_113 : MST_SEMANTICS_NEWEST;
}

/* The record of the deciding node. */
static const struct mst__peer *decide_self(const struct mst__question *question)
{
    static const struct mst__peer nowhere = {.rank = 0};
    mst__peer_id id = mst__state_find(question->state, question->node);
    return id == MST_PEER_NONE ? &nowhere : &question->state->members[id];
}

static bool decide_is_overdue(const struct mst__question *question)
{
    return question->left_us < 0;
}

/* Without an entry nothing is due: a removed node does not enter itself again. */
static bool decide_is_heartbeat_due(const struct mst__question *question,
                                    const struct mst__peer *self)
{
    if (!self->has_heartbeat) {
        return false;
    }
    if (question->heartbeat_due != MST_JUDGE_STAMP) {
        return question->heartbeat_due == MST_JUDGE_YES;
    }
    return self->heartbeat_us <=
           mst__saturate_subtract(question->now_us, question->settings->keep_alive_interval_us);
}

static enum mst__action decide_poll(const struct mst__question *question,
                                    const struct mst__peer *self)
{
    return decide_is_heartbeat_due(question, self) ? MST_ACTION_KEEP_ALIVE : MST_ACTION_SYNC;
}

static bool decide_is_last_call_over(const struct mst__question *question)
{
    if (question->last_call_over != MST_JUDGE_STAMP) {
        return question->last_call_over == MST_JUDGE_YES;
    }
    return question->state->deadline_us < question->now_us;
}

static enum mst__action decide_exit(const struct mst__question *question)
{
    if (!decide_self(question)->is_participant) {
        return MST_ACTION_FINISH;
    }
    return decide_is_overdue(question) ? MST_ACTION_ERROR_TIMEOUT
                                       : MST_ACTION_REMOVE_FROM_PARTICIPANTS;
}

static enum mst__action decide_close(const struct mst__question *question)
{
    if (question->state->closed) {
        return MST_ACTION_FINISH;
    }
    return decide_is_overdue(question) ? MST_ACTION_ERROR_TIMEOUT
                                       : MST_ACTION_MARK_RENDEZVOUS_CLOSED;
}

static enum mst__action decide_keep_alive(const struct mst__question *question)
{
    if (!decide_is_heartbeat_due(question, decide_self(question))) {
        return MST_ACTION_FINISH;
    }
    return decide_is_overdue(question) ? MST_ACTION_ERROR_TIMEOUT : MST_ACTION_KEEP_ALIVE;
}

/* J3 to J5: a spare waits while the group is full, without a timeout. */
static enum mst__action decide_join_spare(const struct mst__question *question,
                                          const struct mst__peer *self)
{
    int64_t count = (int64_t)question->state->participants.count;
    bool is_full = count == question->settings->nodes_max;
    if (question->is_corrected && count > question->settings->nodes_max) {
        /* The others have a larger maximum. A spare that leaves would come back at once. */
        is_full = true;
    }
    return is_full ? decide_poll(question, self) : MST_ACTION_REMOVE_FROM_REDUNDANCY_LIST;
}

/* J10 to J13: the round has its participants, without this node. */
static enum mst__action decide_join_complete(const struct mst__question *question,
                                             const struct mst__peer *self)
{
    bool has_spares = question->semantics == MST_SEMANTICS_NEWEST;
    bool is_full = (int64_t)question->state->participants.count >= question->settings->nodes_max;
    if (self->is_waiting) {
        /* It waited, and others filled the round. If it went on waiting, they would re-form for it
         * again and again without room for it; so it becomes a spare, or stays outside if the
         * record has no spares. */
        return question->is_corrected && is_full ? MST_ACTION_REMOVE_FROM_WAIT_LIST
                                                 : decide_poll(question, self);
    }
    if (!is_full) {
        return MST_ACTION_ADD_TO_WAIT_LIST;
    }
    return has_spares ? MST_ACTION_ADD_TO_REDUNDANCY_LIST : decide_poll(question, self);
}

/* J14 and J15: a participant waits for the others, or ends the last call. */
static enum mst__action decide_join_participant(const struct mst__question *question,
                                                const struct mst__peer *self)
{
    const struct mst__state *state = question->state;
    const struct mst__settings *settings = question->settings;
    int64_t count = (int64_t)state->participants.count;
    bool is_113 = question->semantics == MST_SEMANTICS_113;
    bool is_enough = count >= settings->nodes_min;
    bool is_within = is_enough && count <= settings->nodes_max;
    if (is_enough && !state->has_deadline) {
        if (question->is_corrected && is_within) {
            /* The node that reached our minimum has another one. No other node would end this. */
            return MST_ACTION_START_LAST_CALL;
        }
        if (is_113 && !question->is_corrected) {
            return MST_ACTION_ERROR_NO_DEADLINE;
        }
        return decide_poll(question, self);
    }
    if ((is_within || (is_113 && is_enough)) && decide_is_last_call_over(question)) {
        return MST_ACTION_MARK_RENDEZVOUS_COMPLETE;
    }
    return decide_poll(question, self);
}

/* J16: enter the open round. */
static enum mst__action decide_join_enter(const struct mst__question *question,
                                          const struct mst__peer *self)
{
    bool is_full = (int64_t)question->state->participants.count >= question->settings->nodes_max;
    if (!question->is_corrected || !is_full) {
        return MST_ACTION_ADD_TO_PARTICIPANTS;
    }
    /* An open round with our maximum: others have a larger one. With one more, we must not be part
     * of the group. */
    if (question->semantics == MST_SEMANTICS_113 || self->is_waiting) {
        return decide_poll(question, self);
    }
    return MST_ACTION_ADD_TO_REDUNDANCY_LIST;
}

static enum mst__action decide_join(const struct mst__question *question)
{
    const struct mst__state *state = question->state;
    const struct mst__peer *self = decide_self(question);
    bool is_spare = self->is_spare && question->semantics == MST_SEMANTICS_NEWEST;
    if (state->closed) {
        return is_spare ? MST_ACTION_ERROR_GRACEFUL_EXIT : MST_ACTION_ERROR_CLOSED;
    }
    if (is_spare) {
        return decide_join_spare(question, self);
    }
    if (state->complete && self->is_participant) {
        return MST_ACTION_FINISH;
    }
    if (decide_is_overdue(question)) {
        bool may_roll_back = question->left_us >= -(int64_t)MST_ROLLBACK_US;
        if (may_roll_back && self->is_participant) {
            return MST_ACTION_REMOVE_FROM_PARTICIPANTS;
        }
        if (may_roll_back && self->is_waiting) {
            return MST_ACTION_REMOVE_FROM_WAIT_LIST;
        }
        return MST_ACTION_ERROR_TIMEOUT;
    }
    if (state->complete) {
        return decide_join_complete(question, self);
    }
    return self->is_participant ? decide_join_participant(question, self)
                                : decide_join_enter(question, self);
}

enum mst__action mst__decide(const struct mst__question *question, enum mst__operation operation)
{
    switch (operation) {
        case MST_OPERATION_EXIT:
            return decide_exit(question);
        case MST_OPERATION_JOIN:
            return decide_join(question);
        case MST_OPERATION_CLOSE:
            return decide_close(question);
        case MST_OPERATION_KEEP_ALIVE:
            return decide_keep_alive(question);
        case MST_OPERATION_POLL:
        case MST_OPERATION_NEXT:
            break;
    }
    MST_ASSERT(operation <= MST_OPERATION_KEEP_ALIVE);
    return MST_ACTION_FINISH;
}
