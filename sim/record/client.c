/* sim/record/client.c - a session's effects as requests to the store, and the answers as its
 * events.
 *
 * The same steps as in the c10d backend: one key, a sentinel for "no record yet", base64 of a
 * pickle as value, and compare-and-set by value. */
#include "base/assert.h"
#include "base/base64.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "codec/pickle.h"
#include "sim/record/record.h"

static void client_compare_set(struct mst__sim_world *world,
                               struct mst__sim_node *node,
                               struct mst_bytes expected,
                               struct mst_bytes desired)
{
    struct mst__command command = {
        .op = MST_OP_COMPARE_SET,
        .key = mst__sim_store_key(),
        .expected = expected,
        .value = desired,
    };
    mst__sim_link_send(world, node, &command);
}

static void client_create(struct mst__sim_world *world,
                          struct mst__sim_node *node,
                          enum mst__sim_ask ask)
{
    node->ask = ask;
    client_compare_set(world, node, mst_bytes_of("", 0), mst__sim_store_sentinel());
}

void mst__sim_client_create(struct mst__sim_world *world, struct mst__sim_node *node)
{
    client_create(world, node, MST_SIM_ASK_CREATE);
}

static void client_write(struct mst__sim_world *world,
                         struct mst__sim_node *node,
                         const struct mst__effect *effect)
{
    node->ask = MST_SIM_ASK_WRITE;
    node->may_be_unread = effect->may_be_unread;
    mst__buf_clear(&node->pickle);
    mst__buf_clear(&node->desired);
    mst__buf_clear(&node->expected);
    int rv = mst__pickle_write(&node->pickle, effect->state);
    if (rv != 0) {
        mst__sim_break(world, "encodes", "n%u wants to write what cannot be encoded: %d",
                       node->index, rv);
        return;
    }
    rv = mst__base64_write(&node->desired, mst__buf_bytes(&node->pickle));
    MST_ASSERT(rv == 0);
    rv = mst__buf_append(&node->expected,
                         effect->has_token ? effect->token : mst__sim_store_sentinel());
    MST_ASSERT(rv == 0);
    client_compare_set(world, node, mst__buf_bytes(&node->expected),
                       mst__buf_bytes(&node->desired));
}

static void client_get(struct mst__sim_world *world,
                       struct mst__sim_node *node,
                       enum mst__sim_ask ask)
{
    node->ask = ask;
    struct mst__command command = {.op = MST_OP_GET, .key = mst__sim_store_key()};
    mst__sim_link_send(world, node, &command);
}

void mst__sim_client_effect(struct mst__sim_world *world,
                            struct mst__sim_node *node,
                            const struct mst__effect *effect)
{
    if (effect->kind == MST_EFFECT_WRITE) {
        client_write(world, node, effect);
        return;
    }
    MST_ASSERT(effect->kind == MST_EFFECT_READ);
    client_get(world, node, MST_SIM_ASK_READ);
}

void mst__sim_client_look(struct mst__sim_world *world, struct mst__sim_node *node)
{
    client_get(world, node, MST_SIM_ASK_LOOK);
}

/* Decode the record in @value. The checker has decoded the stored value already, and equal bytes
 * are the same record: decoding them again for each node took half of the time. */
static int client_read(struct mst__sim_world *world,
                       struct mst__sim_node *node,
                       struct mst_bytes value,
                       struct mst__state *ret_state,
                       struct mst_err *reterr)
{
    const struct mst__sim_check *check = &world->check;
    if (mst__bytes_equal(value, mst_bytes_of(check->value, check->value_size))) {
        return mst__state_copy(ret_state, &check->state);
    }
    mst__buf_clear(&node->pickle);
    int rv = mst__base64_read(&node->pickle, value);
    return rv != 0 ? rv : mst__pickle_read(mst__buf_bytes(&node->pickle), ret_state, reterr);
}

/* The same, with itself as token. */
static bool client_decode(struct mst__sim_world *world,
                          struct mst__sim_node *node,
                          struct mst_bytes value,
                          struct mst__state *ret_state,
                          struct mst_buffer *ret_token)
{
    struct mst_err err = {.code = 0};
    int rv = client_read(world, node, value, ret_state, &err);
    if (rv != 0) {
        mst__sim_break(world, "decodes", "n%u cannot read what is stored: %d, %s", node->index, rv,
                       err.msg);
        return false;
    }
    *ret_token = (struct mst_buffer){(uint8_t *)mst__memdup(value.data, value.size), value.size};
    MST_ASSERT(ret_token->data != NULL);
    return true;
}

static bool client_answer_write(struct mst__sim_world *world,
                                struct mst__sim_node *node,
                                enum mst__sim_ask ask,
                                struct mst_bytes value,
                                struct mst_buffer *ret_token,
                                struct mst__session_event *event)
{
    if (mst__bytes_equal(value, mst__buf_bytes(&node->desired))) {
        *ret_token =
            (struct mst_buffer){(uint8_t *)mst__memdup(value.data, value.size), value.size};
        MST_ASSERT(ret_token->data != NULL);
        *event = (struct mst__session_event){.kind = MST_EVENT_WON, .token = ret_token};
        return true;
    }
    bool is_echo =
        ask == MST_SIM_ASK_WRITE && mst__bytes_equal(value, mst__buf_bytes(&node->expected));
    if (is_echo || value.size == 0) {
        /* The value was echoed and not written, or the read found nothing: there is no such key. */
        client_create(world, node, MST_SIM_ASK_CREATE_WRITE);
        return false;
    }
    if (mst__bytes_equal(value, mst__sim_store_sentinel())) {
        *event = (struct mst__session_event){.kind = MST_EVENT_ABSENT};
        return true;
    }
    event->kind = node->may_be_unread ? MST_EVENT_LOST_UNREAD : MST_EVENT_LOST;
    return true;
}

bool mst__sim_client_answer(struct mst__sim_world *world,
                            struct mst__sim_node *node,
                            struct mst_bytes value,
                            struct mst__state *ret_state,
                            struct mst_buffer *ret_token,
                            struct mst__session_event *ret_event)
{
    enum mst__sim_ask ask = node->ask;
    node->ask = MST_SIM_ASK_NONE;
    if (ask == MST_SIM_ASK_CREATE) {
        node->is_created = true;
        return false;
    }
    *ret_event = (struct mst__session_event){.kind = MST_EVENT_READ};
    if (ask == MST_SIM_ASK_WRITE || ask == MST_SIM_ASK_LOOK) {
        if (!client_answer_write(world, node, ask, value, ret_token, ret_event)) {
            return false;
        }
        if (ret_event->kind != MST_EVENT_LOST) {
            return true;
        }
    } else if (ask == MST_SIM_ASK_CREATE_WRITE) {
        ret_event->kind = MST_EVENT_LOST;
    } else if (ask == MST_SIM_ASK_READ && value.size == 0) {
        client_create(world, node, MST_SIM_ASK_CREATE_READ);
        return false;
    }
    if (mst__bytes_equal(value, mst__sim_store_sentinel())) {
        ret_event->kind =
            ret_event->kind == MST_EVENT_LOST ? MST_EVENT_ABSENT : MST_EVENT_READ_NONE;
        return true;
    }
    if (!client_decode(world, node, value, ret_state, ret_token)) {
        ret_event->kind = MST_EVENT_BROKEN;
        return true;
    }
    ret_event->state = ret_state;
    ret_event->token = ret_token;
    return true;
}
