/* net/heap.c - keeps the resident memory of a server's process near its limit.
 *
 * The engine counts the cost of its allocations, but not the holes that freed allocations leave. So
 * the size of the process is checked whenever much memory has been allocated or freed. If there are
 * many holes, the allocations between them are moved together, a part in each turn of the loop, and
 * the pages go back to the system. Resident memory that the store cannot explain is withheld from
 * the limit, eight times over, so that memory grows by at most a ninth of the limit. */
#include "base/assert.h"
#include "base/limits.h"
#include "base/mem.h"
#include "net/server.h"

/* The part of the limit that must be allocated or freed before the process is checked again. */
#define HEAP_LOOK_PART 64

/* Holes of this part of the limit justify a walk over all keys, if so much was freed since the last
 * walk. */
#define HEAP_HOLES_PART 16

/* Pause between two parts of that walk, for other work. */
#define HEAP_PAUSE_MS 1

/* Memory beyond the stored data that is tolerated: this part of the limit, and this many bytes. */
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
        return; /* that must end first */
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
