/* handler/events.h - events of a handler, for the callback of the application. */
#ifndef MST_HANDLER_EVENTS_H
#define MST_HANDLER_EVENTS_H

#include <muster/rendezvous.h>

/* Where events come from and go to. The texts are the handler's and outlive it. */
struct mst__events {
    mst_event_fn fn; /* NULL = no callback, and no event is built */
    void *arg;
    const char *run_id;
    const char *node; /* addr_pid_local_id */
};

#define MST_EVENT_MESSAGE_SIZE 512

/* Send an event with the present time; the formatted message is cut off when long. @round and
 * @rank are -1 if there is none yet. */
void mst__event(const struct mst__events *events,
                const char *name,
                enum mst_node_state state,
                int64_t round,
                int64_t rank,
                const char *format,
                ...) MST_PRINTF(6, 7);

/* Events of all dynamic handlers: this node wants the next round, it is in a round, it has
 * closed the rendezvous with the call @name. */
void mst__event_joining(const struct mst__events *events);
void mst__event_joined(const struct mst__events *events, const struct mst_rendezvous *round);
void mst__event_closed(const struct mst__events *events, const char *name);

/* The call @name has failed with @rv and @err: add the rendezvous to @err, send the event, and
 * copy @err to @reterr (may be NULL). Returns @rv. */
int mst__event_failed(const struct mst__events *events,
                      const char *name,
                      int rv,
                      struct mst_err *err,
                      struct mst_err *reterr);

#endif /* MST_HANDLER_EVENTS_H */
