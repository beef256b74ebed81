/* sim/record/store.c - the store: the real engine behind the real wire codec, without a socket.
 *
 * A connection is identified by its link. A request under way takes effect even if its client
 * has given up, as with a real server; bytes on a closed link do not. */
#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/mem.h"
#include "sim/record/record.h"

struct mst_bytes mst__sim_store_key(void)
{
    return mst_bytes_str("/torch.rendezvous.sim");
}

struct mst_bytes mst__sim_store_sentinel(void)
{
    return mst_bytes_str("Y2FuaW1hZGFt");
}

static void store_open_engine(struct mst__sim_store *store)
{
    static const uint8_t hash_key[MST_SIPHASH_KEY_SIZE] = {'s', 'i', 'm'};
    struct mst__kv_limits limits = {
        .memory_max = MST_MEMORY_DEFAULT,
        .reply_max = MST_MESSAGE_SIZE_MAX,
        .value_max = MST_VALUE_SIZE_DEFAULT,
    };
    mst__kv_init(&store->kv, &limits, hash_key);
    mst__kv_client_init(&store->inspector);
}

void mst__sim_store_init(struct mst__sim_world *world)
{
    struct mst__sim_store *store = &world->store;
    store_open_engine(store);
    mst__buf_init(&store->output, MST_MESSAGE_SIZE_MAX);
}

static void store_drain(struct mst__sim_world *world);

void mst__sim_store_hangup(struct mst__sim_world *world, uint64_t link)
{
    struct mst__sim_store *store = &world->store;
    if (link >= store->conns_count || store->conns[link] == NULL) {
        return;
    }
    mst__kv_client_close(&store->kv, &store->conns[link]->client);
    mst__free(store->conns[link]);
    store->conns[link] = NULL;
    store_drain(world);
}

static void store_close_engine(struct mst__sim_world *world)
{
    for (size_t i = 0; i < world->store.conns_count; i++) {
        mst__sim_store_hangup(world, i);
    }
    mst__kv_client_close(&world->store.kv, &world->store.inspector);
    mst__kv_close(&world->store.kv);
}

void mst__sim_store_close(struct mst__sim_world *world)
{
    store_close_engine(world);
    mst__free(world->store.conns);
    mst__buf_close(&world->store.output);
}

void mst__sim_store_wipe(struct mst__sim_world *world)
{
    store_close_engine(world);
    store_open_engine(&world->store);
    world->store.epoch++;
    mst__sim_check_wiped(world);
}

/* The connection of link @event->id, created with its first bytes. */
static struct mst__sim_conn *store_conn(struct mst__sim_world *world,
                                        const struct mst__sim_event *event)
{
    struct mst__sim_store *store = &world->store;
    if (event->id >= store->conns_count) {
        size_t count = 2 * (size_t)event->id + 16;
        struct mst__sim_conn **conns =
            mst__realloc(store->conns, count * sizeof(struct mst__sim_conn *));
        MST_ASSERT(conns != NULL);
        for (size_t i = store->conns_count; i < count; i++) {
            conns[i] = NULL;
        }
        store->conns = conns;
        store->conns_count = count;
    }
    if (store->conns[event->id] == NULL) {
        struct mst__sim_conn *conn = mst__calloc(1, sizeof *conn);
        MST_ASSERT(conn != NULL);
        conn->link = event->id;
        conn->node = event->node;
        conn->pid = event->pid;
        mst__wire_reader_init(&conn->reader);
        mst__kv_client_init(&conn->client);
        store->conns[event->id] = conn;
    }
    return store->conns[event->id];
}

/* Send a notice; returns a link to hang up, 0 = none. */
static uint64_t store_notify(struct mst__sim_world *world, const struct mst__sim_conn *conn)
{
    struct mst__sim_node *node = &world->nodes[conn->node];
    uint64_t link = conn->link;
    if (node->partition != 0 || node->watch != link) {
        return 0; /* lost */
    }
    int64_t delay_us = mst__sim_link_delay_us(world, node);
    bool is_cut = !world->is_calm && mst__sim_chance(world, world->plan.cut_after_ppm);
    mst__sim_after(world, delay_us,
                   (struct mst__sim_event){.kind = is_cut ? MST_SIM_UNWATCHED : MST_SIM_NOTICE,
                                           .node = node->index,
                                           .id = link});
    return is_cut ? link : 0;
}

/* Take the notices of the last command. */
static void store_drain(struct mst__sim_world *world)
{
    struct mst__sim_store *store = &world->store;
    struct mst__kv_client *released = mst__kv_next_released(&store->kv);
    MST_ASSERT(released == NULL); /* no client waits for a key */
    struct mst__kv_notice notice;
    uint64_t cut[MST_SIM_NODES_MAX];
    size_t cut_count = 0;
    while (mst__kv_next_notice(&store->kv, &notice)) {
        uint64_t link = store_notify(world, (const struct mst__sim_conn *)(void *)notice.client);
        if (link != 0 && cut_count < MST_SIM_NODES_MAX) {
            cut[cut_count++] = link;
        }
    }
    for (size_t i = 0; i < cut_count; i++) {
        mst__sim_store_hangup(world, cut[i]);
    }
}

static void store_inspect(struct mst__sim_world *world, const struct mst__sim_conn *conn)
{
    struct mst__command command = {.op = MST_OP_GET, .key = mst__sim_store_key()};
    struct mst__reply reply;
    int rv = mst__kv_apply(&world->store.kv, &world->store.inspector, &command, &reply);
    MST_ASSERT(rv == 0);
    mst__sim_check_stored(world, conn, reply.bytes);
}

static void store_apply(struct mst__sim_world *world,
                        struct mst__sim_conn *conn,
                        const struct mst__command *command,
                        const struct mst__sim_event *event)
{
    struct mst__sim_store *store = &world->store;
    struct mst__reply reply;
    int rv = mst__kv_apply(&store->kv, &conn->client, command, &reply);
    MST_ASSERT(rv == 0);
    mst__buf_clear(&store->output);
    rv = mst__wire_write_reply(&store->output, &reply);
    MST_ASSERT(rv == 0);
    store_drain(world);
    if (command->op == MST_OP_COMPARE_SET) {
        store_inspect(world, conn);
    }
    mst__sim_link_reply(world, event, mst__buf_bytes(&store->output));
}

void mst__sim_store_request(struct mst__sim_world *world, const struct mst__sim_event *event)
{
    if (event->epoch != world->store.epoch) {
        mst__sim_link_break(world, &world->nodes[event->node], event->id);
        return; /* it was for the store before the restart */
    }
    struct mst__sim_conn *conn = store_conn(world, event);
    struct mst__wire_limits limits = mst__wire_limits(MST_KEY_SIZE_DEFAULT, MST_VALUE_SIZE_DEFAULT);
    struct mst_bytes input = mst_bytes_of(event->bytes, event->size);
    while (input.size > 0) {
        struct mst__command command;
        size_t size;
        struct mst_err err;
        int rv = mst__wire_read_request(&conn->reader, &limits, input, &command, &size, &err);
        if (rv == MST_WIRE_REQUEST) {
            store_apply(world, conn, &command, event);
        } else if (rv != MST_WIRE_VALIDATE) {
            mst__sim_break(world, "wire", "a request was not understood: %d, %s", rv,
                           rv < 0 ? err.msg : "not complete");
            return;
        }
        input = mst__bytes_skip(input, size);
    }
}

void mst__sim_store_watch(struct mst__sim_world *world, const struct mst__sim_event *event)
{
    if (event->epoch != world->store.epoch) {
        return; /* the client knows by the restart */
    }
    struct mst__sim_conn *conn = store_conn(world, event);
    struct mst__command command = {.op = MST_OP_WATCH, .key = mst__sim_store_key()};
    struct mst__reply reply;
    int rv = mst__kv_apply(&world->store.kv, &conn->client, &command, &reply);
    MST_ASSERT(rv == 0);
    store_drain(world);
    (void)store_notify(world, conn); /* the answer; nothing to hang up if it is cut */
}
