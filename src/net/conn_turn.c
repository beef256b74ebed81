/* net/conn_turn.c - shares the loop among connections.
 *
 * Work is counted in steps of the engine; other costs of a connection are expressed in the same
 * steps. A connection that has used its share of this turn of the loop keeps the rest of its input
 * and joins the line. When all connections together have used theirs, all others join the line as
 * well, and closed connections that must still be freed wait. While the line is not empty, the loop
 * does not sleep; between two turns it reads, writes and runs its timers as usual.
 *
 * A long list of keys is also spread over turns, with a share of each. No key changes meanwhile. */
#include "base/assert.h"
#include "net/conn.h"

/* --- how long turns of the loop take --- */

static uint64_t span_of(uint64_t now_ns)
{
    return now_ns / 1000000 / MST_LOOP_SPAN_MS;
}

static void note_turn(struct mst__turns *turns, uint64_t now_ns, uint64_t took_us)
{
    uint64_t span = span_of(now_ns);
    struct mst__longest *longest = &turns->longest[span % MST_LOOP_SPANS];
    if (longest->span != span) {
        *longest = (struct mst__longest){.span = span};
    }
    longest->turn_us = took_us > longest->turn_us ? took_us : longest->turn_us;
}

uint64_t mst__turns_longest_us(const struct mst_server *server, uint64_t now_ns)
{
    uint64_t longest_us = 0;
    for (unsigned i = 0; i < MST_LOOP_SPANS; i++) {
        const struct mst__longest *longest = &server->turns.longest[i];
        bool is_recent = longest->span + MST_LOOP_SPANS > span_of(now_ns);
        longest_us = is_recent && longest->turn_us > longest_us ? longest->turn_us : longest_us;
    }
    return longest_us;
}

/* A turn is all work between two polls. The wait in a poll does not count. */
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
    uint64_t passed_ns = now_ns - turns->ended_ns;
    uint64_t idle_ns = waited_ns - turns->waited_ns;
    uint64_t took_us = passed_ns > idle_ns ? (passed_ns - idle_ns) / 1000 : 0;
    mst__conns_free_closed(server);
    mst__full_turn(server);
    turns->ended_ns = now_ns;
    turns->waited_ns = waited_ns;
    turns->begun = server->kv.steps;
    turns->accepts = 0;
    turns->pushes = 0;
    size_t bucket = 0;
    while (bucket < MST_LOOP_SECONDS_COUNT - 1 && took_us > bounds_us[bucket]) {
        bucket++;
    }
    counters->loop_seconds[bucket]++;
    counters->loop_us += took_us;
    counters->loop_us_max = took_us > counters->loop_us_max ? took_us : counters->loop_us_max;
    note_turn(turns, now_ns, took_us);
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
    return ++server->turns.pushes > MST_PUSHES_MAX || mst__turns_is_over(server);
}

/* --- lists of keys --- */

void mst__list_go_on(struct mst_server *server)
{
    struct mst__kv *kv = &server->kv;
    uint64_t end = kv->steps + MST_TURN_STEPS;
    while (mst__kv_is_listing(kv) && kv->steps < end) {
        struct mst__conn *conn = mst__conn_of(kv->list_client);
        struct mst_bytes items;
        if (mst__kv_list_next(kv, &items) != 0) {
            mst__conn_doom(conn, MST_WHY_MEMORY, "no memory for a list of keys");
        } else {
            mst__conn_send(conn, items, NULL);
        }
        if (!mst__kv_is_listing(kv) && !conn->is_doomed) {
            mst__conn_update_overdue(conn);
        }
    }
}

void mst__list_leave(struct mst__conn *conn)
{
    struct mst__kv *kv = &conn->server->kv;
    if (kv->list_client == &conn->client) {
        mst__kv_list_end(kv);
    }
}

/* --- turns --- */

/* Give every connection in the line one turn, until all together have used their share. Earlier
 * reads do not count, so the line moves on however much arrives. */
static void on_turn(uv_idle_t *idle)
{
    struct mst_server *server = idle->data;
    struct mst__turns *turns = &server->turns;
    turns->begun = server->kv.steps;
    if (mst__kv_is_busy(&server->kv)) { /* before any other change of a key */
        mst__list_go_on(server);
        mst__conns_deliver(server);
    }
    for (size_t left = turns->count; left > 0 && turns->first != NULL &&
                                     !mst__turns_is_over(server) && !mst__kv_is_busy(&server->kv);
         left--) {
        struct mst__conn *conn = turns->first;
        mst__conn_leave_line(conn);
        mst__conn_take_turn(conn);
    }
    mst__conns_close_doomed(server);
    if (turns->first == NULL && server->doomed == NULL && !mst__kv_is_busy(&server->kv)) {
        (void)uv_idle_stop(idle); /* always returns 0 */
    }
}
