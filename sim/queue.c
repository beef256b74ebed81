/* sim/queue.c - future events as a binary heap: earliest first, at equal times in the order of
 * queueing. */
#include "base/assert.h"
#include "base/mem.h"
#include "sim/sim.h"

static bool event_is_before(const struct mst__sim_event *a, const struct mst__sim_event *b)
{
    return a->time_us != b->time_us ? a->time_us < b->time_us : a->order < b->order;
}

void mst__sim_queue_push(struct mst__sim_queue *queue, struct mst__sim_event event)
{
    if (queue->count == queue->capacity) {
        size_t capacity = queue->capacity == 0 ? 64 : 2 * queue->capacity;
        struct mst__sim_event *events =
            mst__realloc(queue->events, capacity * sizeof *queue->events);
        MST_ASSERT(events != NULL);
        queue->events = events;
        queue->capacity = capacity;
    }
    event.order = queue->order++;
    size_t at = queue->count++;
    while (at > 0 && event_is_before(&event, &queue->events[(at - 1) / 2])) {
        queue->events[at] = queue->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    queue->events[at] = event;
}

bool mst__sim_queue_pop(struct mst__sim_queue *queue, struct mst__sim_event *ret_event)
{
    if (queue->count == 0) {
        return false;
    }
    *ret_event = queue->events[0];
    struct mst__sim_event last = queue->events[--queue->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= queue->count) {
            break;
        }
        if (child + 1 < queue->count &&
            event_is_before(&queue->events[child + 1], &queue->events[child])) {
            child++;
        }
        if (!event_is_before(&queue->events[child], &last)) {
            break;
        }
        queue->events[at] = queue->events[child];
        at = child;
    }
    queue->events[at] = last;
    return true;
}

void mst__sim_queue_close(struct mst__sim_queue *queue)
{
    for (size_t i = 0; i < queue->count; i++) {
        mst__free(queue->events[i].bytes);
    }
    mst__free(queue->events);
    *queue = (struct mst__sim_queue){.events = NULL};
}
