/* unit/test_conn.c - connections of the server: deadlines, backlogs, and whose turn it is. */
#include "unit/conn_unit.h"

/* So long that what passes of the real clock meanwhile does not matter. */
#define TIMEOUT_MS 100000
#define MARGIN_MS 20000

struct fixture {
    struct mst_server *server;
    struct mst__buf bytes; /* to be sent */
};

static int fixture_open(void **state)
{
    static struct fixture f;
    struct mst_server_options options;
    mst_server_options_init(&options);
    options.request_timeout_ms = TIMEOUT_MS;
    f.server = unit_server_new(&options);
    mst__buf_init(&f.bytes, MST_MIB(80));
    *state = &f;
    return 0;
}

static int fixture_close(void **state)
{
    struct fixture *f = *state;
    mst_server_free(f->server);
    mst__buf_close(&f->bytes);
    return 0;
}

static void send_all(struct fixture *f, int fd)
{
    peer_send(f->server, fd, mst__buf_bytes(&f->bytes));
    mst__buf_clear(&f->bytes);
    settle(f->server);
}

/* Bytes of no interest. */
static struct mst_bytes filler(size_t size)
{
    static uint8_t memory[1 << 23];
    assert_true(size <= sizeof memory);
    return mst_bytes(memory, size);
}

static uint64_t closed_for(const struct fixture *f, enum mst__why why)
{
    return f->server->counters.closed[why];
}

/* --- deadlines --- */

/* A byte now and then is no reason to wait for ever. */
static void request_has_a_deadline(void **state)
{
    struct fixture *f = *state;
    int fd = peer_new(f->server, 0);
    assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
    put_set(&f->bytes, "/key", filler(40));
    struct mst_bytes all = mst__buf_bytes(&f->bytes);
    peer_send(f->server, fd, mst_bytes(all.data, 6));
    for (size_t i = 6; i < 9; i++) {
        pass_ms(f->server, TIMEOUT_MS / 4);
        peer_send(f->server, fd, mst_bytes(all.data + i, 1));
        settle(f->server);
    }
    assert_int_equal(f->server->conns_count, 1);
    pass_ms(f->server, TIMEOUT_MS / 4);
    assert_true(peer_is_closed(f->server, fd));
    assert_int_equal(closed_for(f, MST_WHY_STUCK_REQUEST), 1);
    assert_int_equal(f->server->kv.memory_used, 0);
    (void)close(fd);
}

/* The next request has its own time, also when it came together with the end of the last. */
static void deadline_is_of_each_request(void **state)
{
    struct fixture *f = *state;
    int fd = peer_new(f->server, 0);
    assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
    put_set(&f->bytes, "/key", filler(40));
    put_set(&f->bytes, "/key2", filler(40));
    struct mst_bytes all = mst__buf_bytes(&f->bytes);
    peer_send(f->server, fd, mst_bytes(all.data, 20));
    pass_ms(f->server, TIMEOUT_MS - MARGIN_MS);
    peer_send(f->server, fd, mst_bytes(all.data + 20, all.size - 21));
    pass_ms(f->server, TIMEOUT_MS - MARGIN_MS);
    peer_send(f->server, fd, mst_bytes(all.data + all.size - 1, 1));
    settle(f->server);
    assert_int_equal(f->server->kv.keys_count, 2);
    (void)close(fd);
}

/* A large request may take longer: what it has announced, or what has come of it, counts. */
static void deadline_grows_with_the_request(void **state)
{
    struct fixture *f = *state;
    const size_t size = MST_MIB(2);
    const int64_t bytes_ms = (int64_t)(size * 1000 / MST_RATE_MIN);
    for (int announced = 0; announced < 2; announced++) {
        int fd = peer_new(f->server, 0);
        assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
        if (announced) {
            put_set(&f->bytes, "/key", filler(size));
        } else {
            /* Many small keys, which announce nothing. */
            struct mst__buf items;
            mst__buf_init(&items, 2 * size);
            for (size_t i = 0; i < size / 16; i++) {
                assert_int_equal(mst__buf_append_str(&items, filler(8)), 0);
            }
            const struct mst__command check = {
                .op = MST_OP_CHECK, .count = size / 16, .items = mst__buf_bytes(&items)};
            put_command(&f->bytes, &check);
            mst__buf_close(&items);
        }
        struct mst_bytes all = mst__buf_bytes(&f->bytes);
        size_t half = announced ? 40 : all.size - 40;
        peer_send(f->server, fd, mst_bytes(all.data, half));
        settle(f->server);
        pass_ms(f->server, bytes_ms + TIMEOUT_MS - MARGIN_MS);
        assert_int_equal(f->server->conns_count, 1);
        pass_ms(f->server, 2 * MARGIN_MS);
        assert_true(peer_is_closed(f->server, fd));
        (void)close(fd);
        mst__buf_clear(&f->bytes);
    }
    assert_int_equal(closed_for(f, MST_WHY_STUCK_REQUEST), 2);
}

/* The same in a node's stream, in which other messages go on; the node stays. */
static void store_request_has_a_deadline(void **state)
{
    struct fixture *f = *state;
    int fd = peer_new(f->server, 0);
    put_greeting(&f->bytes);
    send_all(f, fd);
    put_set(&f->bytes, "/key", filler(40));
    uint8_t request[9];
    memcpy(request, mst__buf_bytes(&f->bytes).data, sizeof request);
    mst__buf_clear(&f->bytes);
    for (size_t i = 0; i < 4; i++) {
        put_store(&f->bytes, mst_bytes(request + i, 1));
        send_all(f, fd);
        pass_ms(f->server, i < 3 ? TIMEOUT_MS / 4 : 0);
    }
    assert_int_equal(peer_drain(fd, 1), 0);
    pass_ms(f->server, TIMEOUT_MS / 4);
    uint8_t head[MST_JOB_HEAD_SIZE];
    peer_receive(f->server, fd, head, sizeof head);
    assert_int_equal(head[4], MST_JOB_STORE_END);
    assert_int_equal(f->server->conns_count, 1);
    assert_int_equal(f->server->kv.memory_used, 0);
    (void)close(fd);
}

/* --- unsent output --- */

/* A peer that has asked for @size bytes, of which it reads nothing yet. */
static int reader_new(struct fixture *f, size_t size)
{
    int fd = peer_new(f->server, 1 << 16);
    assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
    put_set(&f->bytes, "/value", filler(size));
    put_get(&f->bytes, "/value");
    send_all(f, fd);
    return fd;
}

/* Whoever takes its replies slowly gets all of them. */
static void slow_reader_is_served(void **state)
{
    struct fixture *f = *state;
    const size_t size = MST_MIB(8);
    f->server->options.request_timeout_ms = TIMEOUT_MS / 4; /* the kernel takes a part at once */
    int fd = reader_new(f, size);
    size_t got = 0;
    while (got < size + 8) {
        ssize_t some = peer_drain(fd, 2 * MST_RATE_MIN);
        assert_true(some >= 0);
        got += (size_t)some;
        pass_ms(f->server, some > 0 ? 1800 : 0);
    }
    assert_int_equal(got, size + 8);
    assert_int_equal(f->server->conns_count, 1);
    (void)close(fd);
}

/* Whoever takes next to nothing does not. */
static void trickling_reader_is_not(void **state)
{
    struct fixture *f = *state;
    int fd = reader_new(f, MST_MIB(8));
    unsigned seconds = 0;
    while (f->server->conns_count > 0) {
        (void)peer_drain(fd, MST_RATE_MIN / 64);
        pass_ms(f->server, 1000);
        seconds++;
        assert_true(seconds < 300);
    }
    assert_int_equal(closed_for(f, MST_WHY_DOES_NOT_READ), 1);
    (void)close(fd);
}

static void silent_reader_has_its_time(void **state)
{
    struct fixture *f = *state;
    int fd = reader_new(f, MST_MIB(8));
    pass_ms(f->server, TIMEOUT_MS - MARGIN_MS);
    assert_int_equal(f->server->conns_count, 1);
    pass_ms(f->server, 5 * TIMEOUT_MS); /* what the kernel still moves about counts for it */
    pass_ms(f->server, TIMEOUT_MS);
    assert_int_equal(f->server->conns_count, 0);
    assert_int_equal(closed_for(f, MST_WHY_DOES_NOT_READ), 1);
    (void)close(fd);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(request_has_a_deadline),          CASE(deadline_is_of_each_request),
        CASE(deadline_grows_with_the_request), CASE(store_request_has_a_deadline),
        CASE(slow_reader_is_served),           CASE(trickling_reader_is_not),
        CASE(silent_reader_has_its_time),
    };
    return MST_RUN_TESTS(tests);
}
