/* net/conn_turn.c - whose turn it is: connections whose requests wait for the others'.
 *
 * Work is counted in steps of the engine, and what connections cost beside it in steps like them. A
 * connection that has had its share in this turn of the loop keeps the rest of its input and stands
 * in line; so do closed connections that are still to be taken apart, and listeners with more
 * callers than one turn takes. While anybody stands in line the loop does not sleep, and between
 * two turns it reads, writes and looks at its timers as ever. */
#include "base/assert.h"
#include "net/conn.h"

/* --- how long turns of the loop take --- */

/* A turn is all that is done between two polls and behind one. Waiting in a poll is no part of
 * it. */
static void on_turn_end(uv_prepare_t *clock)
{
    static const uint64_t bounds_us[] = {
#define BOUND_US(text, us) (us),
        MST_LOOP_SECONDS_MAP(BOUND_US)
#undef BOUND_US
    };
    static_assert(sizeof bounds_us / sizeof bounds_us[0] + 1 == MST_LOOP_SECONDS_COUNT,
                  "one bucket for each bound, and one for the rest");
    struct mst_server *server = clock->data;
    struct mst__turns *turns = &server->turns;
    struct mst__counters *counters = &server->counters;
    uint64_t now_ns = uv_hrtime();
    uint64_t waited_ns = uv_metrics_idle_time(&server->loop);
    uint64_t took_us = (now_ns - turns->ended_ns - (waited_ns - turns->waited_ns)) / 1000;
    turns->ended_ns = now_ns;
    turns->waited_ns = waited_ns;
    size_t bucket = 0;
    while (bucket < MST_LOOP_SECONDS_COUNT - 1 && took_us > bounds_us[bucket]) {
        bucket++;
    }
    counters->loop_seconds[bucket]++;
    counters->loop_us += took_us;
    counters->loop_us_max = took_us > counters->loop_us_max ? took_us : counters->loop_us_max;
}

static void clock_open(struct mst_server *server)
{
    struct mst__turns *turns = &server->turns;
    int rv = uv_loop_configure(&server->loop, UV_METRICS_IDLE_TIME);
    MST_ASSERT(rv == 0);
    rv = uv_prepare_init(&server->loop, &turns->clock);
    MST_ASSERT(rv == 0);
    turns->clock.data = server;
    turns->ended_ns = uv_hrtime();
    rv = uv_prepare_start(&turns->clock, on_turn_end);
    MST_ASSERT(rv == 0);
    uv_unref((uv_handle_t *)&turns->clock);
}

/* --- the line --- */

static void on_turn(uv_idle_t *idle);

void mst__turns_open(struct mst_server *server)
{
    int rv = uv_idle_init(&server->loop, &server->turns.idle);
    MST_ASSERT(rv == 0);
    server->turns.idle.data = server;
    clock_open(server);
}

void mst__turns_stop(struct mst_server *server)
{
    uv_close((uv_handle_t *)&server->turns.idle, NULL);
    uv_close((uv_handle_t *)&server->turns.clock, NULL);
}

void mst__turns_want(struct mst_server *server)
{
    uv_handle_t *handle = (uv_handle_t *)&server->turns.idle;
    if (uv_is_active(handle) == 0 && uv_is_closing(handle) == 0) {
        int rv = uv_idle_start(&server->turns.idle, on_turn);
        MST_ASSERT(rv == 0);
    }
}

void mst__conn_want_turn(struct mst__conn *conn)
{
    struct mst__turns *turns = &conn->server->turns;
    if (conn->is_in_line || conn->is_closing) {
        return;
    }
    conn->is_in_line = true;
    conn->line_next = NULL;
    conn->line_prev = turns->last;
    if (turns->last == NULL) {
        turns->first = conn;
    } else {
        turns->last->line_next = conn;
    }
    turns->last = conn;
    turns->count++;
    mst__turns_want(conn->server);
}

void mst__conn_leave_line(struct mst__conn *conn)
{
    struct mst__turns *turns = &conn->server->turns;
    if (!conn->is_in_line) {
        return;
    }
    conn->is_in_line = false;
    if (conn->line_prev == NULL) {
        turns->first = conn->line_next;
    } else {
        conn->line_prev->line_next = conn->line_next;
    }
    if (conn->line_next == NULL) {
        turns->last = conn->line_prev;
    } else {
        conn->line_next->line_prev = conn->line_prev;
    }
    turns->count--;
}

bool mst__turns_is_full(struct mst_server *server)
{
    struct mst__turns *turns = &server->turns;
    int64_t now_ms = (int64_t)uv_now(&server->loop); /* the same during a turn */
    turns->pushes = now_ms == turns->pushes_ms ? turns->pushes + 1 : 1;
    turns->pushes_ms = now_ms;
    return turns->pushes > MST_PUSHES_MAX;
}

/* Everybody who stands in line now has one turn, as long as all of them do not take too long. */
static void on_turn(uv_idle_t *idle)
{
    struct mst_server *server = idle->data;
    struct mst__turns *turns = &server->turns;
    uint64_t end = server->kv.steps + 2 * MST_TURN_STEPS;
    for (size_t left = turns->count; left > 0 && turns->first != NULL && server->kv.steps < end;
         left--) {
        struct mst__conn *conn = turns->first;
        mst__conn_leave_line(conn);
        mst__conn_take_turn(conn);
    }
    bool is_listening = mst__listen_go_on(server);
    mst__conns_close_doomed(server);
    if (turns->first == NULL && server->doomed == NULL && is_listening) {
        (void)uv_idle_stop(idle); /* always returns 0 */
    }
}
