/* rendezvous/events.h - telling those who watch what a handler does. */
#ifndef MST_RENDEZVOUS_EVENTS_H
#define MST_RENDEZVOUS_EVENTS_H

#include <muster/rendezvous.h>

/* Who tells, and whom. The texts are the handler's and outlive it. */
struct mst__events {
    mst_event_fn fn; /* NULL = nobody watches, and nothing is built */
    void *arg;
    const char *run_id;
    const char *node; /* addr_pid_local_id */
};

#define MST_EVENT_MESSAGE_SIZE 512

/* Tell one event, stamped with the present time; the formatted message is cut off when long. @round
 * and @rank are -1 when there is none yet. */
void mst__event(const struct mst__events *events,
                const char *name,
                enum mst_node_state state,
                int64_t round,
                int64_t rank,
                const char *format,
                ...) MST_PRINTF(6, 7);

#endif /* MST_RENDEZVOUS_EVENTS_H */
