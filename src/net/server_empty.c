/* net/server_empty.c - removing all keys of a server, for the thread that owns it.
 *
 * What clients had sent before is part of what goes, also if it still is in the kernel. So the loop
 * turns until a turn has brought nothing new, and the keys go then. Clients that write all the time
 * do not hold that up for ever. */
#include "base/assert.h"
#include "base/limits.h"
#include "net/conn.h"
#include "net/server.h"

static bool is_any(void *arg, struct mst_bytes key)
{
    (void)arg; /* whatever it is */
    (void)key;
    return true;
}

static void on_turn(uv_idle_t *idle)
{
    struct mst_server *server = idle->data;
    struct mst__empty *empty = &server->empty;
    const struct mst__counters *counters = &server->counters;
    bool is_quiet = empty->bytes_in == counters->bytes_in &&
                    empty->accepted == counters->accepted && server->turns.first == NULL;
    empty->bytes_in = counters->bytes_in;
    empty->accepted = counters->accepted;
    if (empty->turns++ == 0 || (!is_quiet && empty->turns < MST_EMPTY_TURNS_MAX)) {
        return;
    }
    mst__kv_sweep_begin(&server->kv);
    while (mst__kv_sweep(&server->kv, MST_SWEEP_STEPS, is_any, NULL)) {
        mst__conns_deliver(server);
    }
    mst__conns_deliver(server);
    (void)uv_idle_stop(idle); /* always returns 0 */
    uv_sem_post(&empty->done);
}

int mst__empty_open(struct mst_server *server)
{
    struct mst__empty *empty = &server->empty;
    int rv = uv_sem_init(&empty->done, 0);
    if (rv != 0) {
        return rv;
    }
    atomic_init(&empty->is_wanted, false);
    rv = uv_idle_init(&server->loop, &empty->idle);
    MST_ASSERT(rv == 0);
    empty->idle.data = server;
    return 0;
}

void mst__empty_stop(struct mst_server *server)
{
    uv_close((uv_handle_t *)&server->empty.idle, NULL);
}

void mst__empty_close(struct mst_server *server)
{
    uv_sem_destroy(&server->empty.done);
}

void mst__empty_look(struct mst_server *server)
{
    struct mst__empty *empty = &server->empty;
    if (!atomic_exchange(&empty->is_wanted, false) || server->stopping) {
        return;
    }
    empty->turns = 0;
    int rv = uv_idle_start(&empty->idle, on_turn); /* the loop does not sleep while it is active */
    MST_ASSERT(rv == 0);
}

void mst__server_empty(struct mst_server *server)
{
    atomic_store(&server->empty.is_wanted, true);
    int rv = uv_async_send(&server->wake);
    MST_ASSERT(rv == 0);
    uv_sem_wait(&server->empty.done);
}
