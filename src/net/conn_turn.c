/* net/conn_turn.c - whose turn it is: connections whose requests wait for the others'.
 *
 * Work is counted in steps of the engine, and what connections cost beside it in steps like them. A
 * connection that has had its share in this turn of the loop keeps the rest of its input and stands
 * in line; so do closed connections that are still to be taken apart, and listeners with more
 * callers than one turn takes. While anybody stands in line the loop does not sleep, and between
 * two turns it reads, writes and looks at its timers as ever. */
#include "base/assert.h"
#include "net/conn.h"

static void on_turn(uv_idle_t *idle);

void mst__turns_open(struct mst_server *server)
{
    int rv = uv_idle_init(&server->loop, &server->turns.idle);
    MST_ASSERT(rv == 0);
    server->turns.idle.data = server;
}

void mst__turns_stop(struct mst_server *server)
{
    uv_close((uv_handle_t *)&server->turns.idle, NULL);
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
