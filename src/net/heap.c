/* net/heap.c - holds the resident memory of a server's process near its limit.
 *
 * The engine counts what its allocations cost. What it cannot count are the holes that are left
 * when some of many are freed. So the process is looked at whenever much memory has come or gone.
 * When there are many holes, what is between them is moved together, some of it in each turn of the
 * loop, and the pages go back. What the process has all the same and its store cannot explain is
 * withheld from the limit, eight times over, so that memory can grow by a ninth of the limit and no
 * more. */
#include "base/assert.h"
#include "base/limits.h"
#include "base/mem.h"
#include "net/server.h"

/* How much must have come or gone before the process is looked at again: a part of the limit. */
#define HEAP_LOOK_PART 64

/* Holes of this part of the limit are worth a walk over all keys, if so much was freed since the
 * last one. */
#define HEAP_HOLES_PART 16

/* How long the loop is left to others between two parts of that walk. */
#define HEAP_PAUSE_MS 1

/* More than this part of the limit, and this, is not explained by what is stored. */
#define HEAP_SLACK_PART 16
#define HEAP_SLACK_SIZE MST_MIB(4)

#define HEAP_GAIN 8

size_t mst__heap_withheld(size_t resident, size_t base, size_t memory_max)
{
    size_t explained = base + memory_max + memory_max / HEAP_SLACK_PART + HEAP_SLACK_SIZE;
    return resident <= explained ? 0 : HEAP_GAIN * (resident - explained);
}

static void heap_withhold(struct mst_server *server)
{
    server->kv.memory_withheld =
        mst__heap_withheld(mst__mem_resident(), server->heap_base, server->options.memory_max);
}

static void on_compact(uv_timer_t *timer)
{
    struct mst_server *server = timer->data;
    if (mst__kv_is_busy(&server->kv)) {
        return; /* that goes first */
    }
    if (!mst__kv_compact(&server->kv, MST_SWEEP_STEPS, false)) {
        (void)uv_timer_stop(timer); /* always returns 0 */
        heap_withhold(server);
    }
}

static void heap_look(struct mst_server *server)
{
    struct mst__kv *kv = &server->kv;
    size_t holes_max = server->options.memory_max / HEAP_HOLES_PART;
    heap_withhold(server);
    if (kv->slabs.free_size >= holes_max &&
        kv->memory_freed - server->heap_compacted_freed >= holes_max &&
        uv_is_active((const uv_handle_t *)&server->heap_compact) == 0) {
        server->heap_compacted_freed = kv->memory_freed;
        mst__kv_compact_begin(kv);
        int rv = uv_timer_start(&server->heap_compact, on_compact, 0, HEAP_PAUSE_MS);
        MST_ASSERT(rv == 0);
    }
}

static void on_prepare(uv_prepare_t *handle)
{
    struct mst_server *server = handle->data;
    const struct mst__kv *kv = &server->kv;
    size_t used = kv->memory_used;
    size_t seen = server->heap_seen_used;
    size_t moved = used > seen ? used - seen : seen - used;
    size_t part = server->options.memory_max / HEAP_LOOK_PART;
    if (moved >= part || kv->memory_freed - server->heap_seen_freed >= part) {
        server->heap_seen_used = used;
        server->heap_seen_freed = kv->memory_freed;
        heap_look(server);
    }
}

void mst__heap_open(struct mst_server *server)
{
    int rv = uv_prepare_init(&server->loop, &server->heap);
    MST_ASSERT(rv == 0);
    server->heap.data = server;
    rv = uv_timer_init(&server->loop, &server->heap_compact);
    MST_ASSERT(rv == 0);
    server->heap_compact.data = server;
}

void mst__heap_stop(struct mst_server *server)
{
    uv_close((uv_handle_t *)&server->heap, NULL);
    uv_close((uv_handle_t *)&server->heap_compact, NULL);
}

void mst__heap_watch(struct mst_server *server)
{
    server->heap_base = mst__mem_resident();
    int rv = uv_prepare_start(&server->heap, on_prepare);
    MST_ASSERT(rv == 0);
    uv_unref((uv_handle_t *)&server->heap);
}
