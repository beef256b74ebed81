/* net/heap.c - holds the resident memory of a server's process near its limit.
 *
 * The engine counts what its allocations cost. What it cannot count are the holes that are left
 * when some of many are freed: small ones are of no use for larger values, and their pages stay. So
 * the process is looked at whenever much memory has come or gone. When it has more than its store
 * can explain, free pages are given back; what is missing after that is withheld from the limit,
 * eight times over, so that memory can grow by a ninth of the limit and no more. */
#include "base/assert.h"
#include "base/limits.h"
#include "base/mem.h"
#include "net/server.h"

/* How much must have come or gone before the process is looked at again, or trimmed again, which
 * costs more: parts of the limit. */
#define HEAP_LOOK_PART 64
#define HEAP_TRIM_PART 8

/* More than this part of the limit, and this, is not explained by what is stored. */
#define HEAP_SLACK_PART 16
#define HEAP_SLACK_SIZE MST_MIB(4)

#define HEAP_GAIN 8

size_t mst__heap_withheld(size_t resident, size_t base, size_t memory_max)
{
    size_t explained = base + memory_max + memory_max / HEAP_SLACK_PART + HEAP_SLACK_SIZE;
    return resident <= explained ? 0 : HEAP_GAIN * (resident - explained);
}

static void heap_look(struct mst_server *server)
{
    struct mst__kv *kv = &server->kv;
    size_t memory_max = server->options.memory_max;
    size_t withheld = mst__heap_withheld(mst__mem_resident(), server->heap_base, memory_max);
    if (withheld > 0 &&
        kv->memory_freed - server->heap_trimmed_freed >= memory_max / HEAP_TRIM_PART) {
        mst__mem_trim();
        server->heap_trimmed_freed = kv->memory_freed;
        withheld = mst__heap_withheld(mst__mem_resident(), server->heap_base, memory_max);
    }
    kv->memory_withheld = withheld;
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

void mst__heap_watch(struct mst_server *server)
{
    server->heap_base = mst__mem_resident();
    int rv = uv_prepare_start(&server->heap, on_prepare);
    MST_ASSERT(rv == 0);
    uv_unref((uv_handle_t *)&server->heap);
}
