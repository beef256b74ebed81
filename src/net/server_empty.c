/* net/server_empty.c - removes all keys of a server, for the thread that owns it.
 *
 * Keys that clients have already sent must go as well, even if they are still in the kernel. So the
 * loop turns until a turn has brought nothing new; then the keys are removed. Clients that write
 * all the time delay that by a limited number of turns only.
 *
 * A request has a number. A caller that does not wait any longer withdraws its request, so that
 * later keys are safe. */
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "net/conn.h"
#include "net/server.h"

static bool is_any(void *arg, struct mst_bytes key)
{
    (void)arg; /* all keys match */
    (void)key;
    return true;
}

static uint64_t find_wish(struct mst__empty *empty)
{
    uv_mutex_lock(&empty->mutex);
    uint64_t wanted = empty->wanted;
    uv_mutex_unlock(&empty->mutex);
    return wanted;
}

/* Without a limit of time: no client may see a part of the keys removed. */
static void deliver_all(struct mst_server *server)
{
    do {
        server->turns.begun = server->kv.steps;
        mst__list_go_on(server);
        mst__conns_deliver(server);
    } while (mst__kv_is_busy(&server->kv));
}

static void on_turn(uv_idle_t *idle)
{
    struct mst_server *server = idle->data;
    struct mst__empty *empty = &server->empty;
    uint64_t wanted = find_wish(empty);
    if (wanted == 0) {
        (void)uv_idle_stop(idle); /* always returns 0 */
        return;
    }
    empty->turns = wanted == empty->number ? empty->turns : 0;
    empty->number = wanted;
    const struct mst__counters *counters = &server->counters;
    bool is_quiet = empty->bytes_in == counters->bytes_in &&
                    empty->accepted == counters->accepted && server->turns.first == NULL;
    empty->bytes_in = counters->bytes_in;
    empty->accepted = counters->accepted;
    if (empty->turns++ == 0 || (!is_quiet && empty->turns < MST_EMPTY_TURNS_MAX)) {
        return;
    }
    deliver_all(server);
    mst__kv_sweep_begin(&server->kv);
    while (mst__kv_sweep(&server->kv, MST_SWEEP_STEPS, is_any, NULL)) {
        deliver_all(server);
    }
    deliver_all(server);
    uv_mutex_lock(&empty->mutex);
    empty->done = empty->number;
    empty->wanted = empty->wanted == empty->number ? 0 : empty->wanted;
    uv_cond_signal(&empty->cond);
    uv_mutex_unlock(&empty->mutex);
}

int mst__empty_open(struct mst_server *server)
{
    struct mst__empty *empty = &server->empty;
    int rv = uv_mutex_init(&empty->mutex);
    if (rv != 0) {
        return rv;
    }
    rv = uv_cond_init(&empty->cond);
    if (rv != 0) {
        uv_mutex_destroy(&empty->mutex);
        return rv;
    }
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
    uv_cond_destroy(&server->empty.cond);
    uv_mutex_destroy(&server->empty.mutex);
}

void mst__empty_look(struct mst_server *server)
{
    struct mst__empty *empty = &server->empty;
    if (find_wish(empty) == 0 || server->stopping) {
        return;
    }
    int rv = uv_idle_start(&empty->idle, on_turn); /* an idle handle keeps the loop from sleeping */
    MST_ASSERT(rv == 0);
}

int mst__server_empty(struct mst_server *server, int64_t deadline_ms, struct mst_err *reterr)
{
    struct mst__empty *empty = &server->empty;
    uv_mutex_lock(&empty->mutex);
    uint64_t number = ++empty->last;
    empty->wanted = number;
    uv_mutex_unlock(&empty->mutex);
    int rv = uv_async_send(&server->wake);
    MST_ASSERT(rv == 0);
    uv_mutex_lock(&empty->mutex);
    int64_t left_ms = mst__clock_left_ms(deadline_ms);
    while (empty->done != number && left_ms > 0) {
        /* The loop checks the reason. */
        (void)uv_cond_timedwait(&empty->cond, &empty->mutex, (uint64_t)left_ms * 1000000);
        left_ms = mst__clock_left_ms(deadline_ms);
    }
    bool is_done = empty->done == number;
    empty->wanted = 0;
    uv_mutex_unlock(&empty->mutex);
    return is_done ? 0
                   : mst__fail(reterr, MST_ETIMEOUT, 0,
                               "the store at port %d was not emptied: its server is too busy",
                               server->port);
}
