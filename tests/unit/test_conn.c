/* unit/test_conn.c - connections of the server: deadlines, backlogs, and whose turn it is. */
#include "base/mem.h"
#include "unit/conn_unit.h"

/* So long that what passes of the real clock meanwhile does not matter. */
#define TIMEOUT_MS 100000
#define MARGIN_MS 20000

static int fixture_open_with(void **state, size_t memory_max)
{
    struct mst_server_options options;
    mst_server_options_init(&options);
    options.request_timeout_ms = TIMEOUT_MS;
    options.memory_max = memory_max;
    return fixture_new(state, &options);
}

static int fixture_open(void **state)
{
    return fixture_open_with(state, MST_MEMORY_DEFAULT);
}

static int fixture_open_small(void **state)
{
    return fixture_open_with(state, MST_MIB(16));
}

/* Bytes of no interest. */
static struct mst_bytes filler(size_t size)
{
    static uint8_t memory[1 << 23];
    assert_true(size <= sizeof memory);
    return mst_bytes_of(memory, size);
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
    peer_send(f->server, fd, mst_bytes_of(all.data, 6));
    for (size_t i = 6; i < 9; i++) {
        pass_ms(f->server, TIMEOUT_MS / 4);
        peer_send(f->server, fd, mst_bytes_of(all.data + i, 1));
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
    peer_send(f->server, fd, mst_bytes_of(all.data, 20));
    pass_ms(f->server, TIMEOUT_MS - MARGIN_MS);
    peer_send(f->server, fd, mst_bytes_of(all.data + 20, all.size - 21));
    pass_ms(f->server, TIMEOUT_MS - MARGIN_MS);
    peer_send(f->server, fd, mst_bytes_of(all.data + all.size - 1, 1));
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
        peer_send(f->server, fd, mst_bytes_of(all.data, half));
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
        put_store(&f->bytes, mst_bytes_of(request + i, 1));
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

/* --- framed connections --- */

/* What has come on a framed connection. */
struct frames {
    size_t stream_size;      /* bytes in STORE_REPLYs */
    size_t largest;          /* frame */
    size_t counts[256];      /* frames by type */
    size_t stream_when[256]; /* stream_size when the first of a type came */
    uint8_t head[MST_JOB_HEAD_SIZE];
    size_t head_size, body_left;
};

/* Take in what is there; false when the connection has ended. */
static bool frames_read(struct frames *frames, int fd, size_t size_max)
{
    static uint8_t memory[1 << 16];
    while (size_max > 0) {
        size_t room = size_max < sizeof memory ? size_max : sizeof memory;
        if (frames->head_size < sizeof frames->head) {
            room = sizeof frames->head - frames->head_size;
        } else if (frames->body_left < room) {
            room = frames->body_left;
        }
        ssize_t got = room == 0 ? 0 : recv(fd, memory, room, 0);
        if (got <= 0 && room > 0) {
            return got < 0 && errno == EAGAIN;
        }
        size_max -= (size_t)got < size_max ? (size_t)got : size_max;
        if (frames->head_size < sizeof frames->head) {
            memcpy(frames->head + frames->head_size, memory, (size_t)got);
            frames->head_size += (size_t)got;
            if (frames->head_size < sizeof frames->head) {
                continue;
            }
            uint8_t type = frames->head[4];
            frames->body_left = mst__load_u32(frames->head) - 1;
            frames->stream_when[type] =
                frames->counts[type] == 0 ? frames->stream_size : frames->stream_when[type];
            frames->counts[type]++;
            frames->largest =
                frames->body_left > frames->largest ? frames->body_left : frames->largest;
        } else {
            frames->body_left -= (size_t)got;
            frames->stream_size += frames->head[4] == MST_JOB_STORE_REPLY ? (size_t)got : 0;
        }
        frames->head_size = frames->body_left == 0 ? 0 : frames->head_size;
    }
    return true;
}

/* Read until @count frames of @type have come. */
static void frames_await(struct fixture *f, struct frames *frames, int fd, int type, size_t count)
{
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    while (frames->counts[type] < count || frames->body_left > 0) {
        assert_true(frames_read(frames, fd, SIZE_MAX));
        turn(f->server);
        assert_true(mst__clock_ms() < end_ms);
    }
}

static void frames_await_stream(struct fixture *f, struct frames *frames, int fd, size_t size)
{
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    while (frames->stream_size < size) {
        assert_true(frames_read(frames, fd, SIZE_MAX));
        turn(f->server);
        assert_true(mst__clock_ms() < end_ms);
    }
    assert_int_equal(frames->stream_size, size);
}

static void put_status(struct mst__buf *output)
{
    const struct mst__job_message message = {.type = MST_JOB_STATUS,
                                             .u.close = {.run_id = mst_bytes_str("none")}};
    put_message(output, &message);
}

/* @requests in STOREs of a size that a node uses. */
static void put_stores(struct mst__buf *output, struct mst_bytes requests)
{
    while (requests.size > 0) {
        size_t size = requests.size < MST_KIB(32) ? requests.size : MST_KIB(32);
        put_store(output, mst_bytes_of(requests.data, size));
        requests = mst__bytes_skip(requests, size);
    }
}

static int node_new(struct fixture *f)
{
    int fd = peer_new(f->server, 1 << 16);
    put_greeting(&f->bytes);
    send_all(f, fd);
    return fd;
}

static void node_ask(struct fixture *f, int fd, const struct mst__buf *requests)
{
    put_stores(&f->bytes, mst__buf_bytes(requests));
    send_all(f, fd);
}

/* A value of @size bytes under /value. */
static void set_value(struct fixture *f, size_t size)
{
    int fd = peer_new(f->server, 0);
    assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
    put_set(&f->bytes, "/value", filler(size));
    send_all(f, fd);
    (void)close(fd);
    settle(f->server);
    assert_int_equal(f->server->kv.keys_count, 1);
    assert_int_equal(f->server->conns_count, 0);
}

/* Messages are answered while a reply waits for its reader, and before the rest of it. */
static void messages_overtake_replies(void **state)
{
    struct fixture *f = *state;
    const size_t size = MST_MIB(8);
    set_value(f, size);
    int fd = node_new(f);
    struct mst__buf requests;
    mst__buf_init(&requests, 1024);
    put_get(&requests, "/value");
    put_get(&requests, "/value");
    node_ask(f, fd, &requests);
    put_status(&f->bytes);
    send_all(f, fd);
    struct frames frames = {0};
    frames_await_stream(f, &frames, fd, 2 * (size + 8));
    assert_int_equal(frames.counts[MST_JOB_REFUSED], 1);
    assert_true(frames.stream_when[MST_JOB_REFUSED] < size);
    assert_true(frames.largest <= MST_PIECE_SIZE);
    mst__buf_close(&requests);
    (void)close(fd);
}

/* Requests are kept back while replies are not read, but not without end; the node stays. */
static void requests_that_wait_are_bounded(void **state)
{
    struct fixture *f = *state;
    const size_t held_max = f->server->wire_limits.message_size_max;
    set_value(f, MST_MIB(8));
    int fd = node_new(f);
    struct mst__buf requests;
    mst__buf_init(&requests, held_max + MST_MIB(9));
    put_get(&requests, "/value");
    node_ask(f, fd, &requests);
    mst__buf_clear(&requests);
    while (mst__buf_size(&requests) <= held_max) {
        put_set(&requests, "/other", filler(MST_MIB(1)));
    }
    struct frames frames = {0};
    mst__buf_truncate(&requests, held_max);
    node_ask(f, fd, &requests);
    assert_int_equal(closed_for(f, MST_WHY_DOES_NOT_READ), 0);
    assert_true(f->server->kv.memory_used > held_max);
    put_get(&f->bytes, "/value");
    mst__buf_clear(&requests);
    assert_int_equal(mst__buf_append(&requests, mst__buf_bytes(&f->bytes)), 0);
    mst__buf_clear(&f->bytes);
    node_ask(f, fd, &requests);
    assert_true(f->server->kv.memory_used < MST_MIB(9));
    frames_await(f, &frames, fd, MST_JOB_STORE_END, 1);
    put_status(&f->bytes);
    send_all(f, fd);
    frames_await(f, &frames, fd, MST_JOB_REFUSED, 1);
    assert_int_equal(frames.stream_size, MST_MIB(8) + 8);
    assert_int_equal(f->server->conns_count, 1);
    mst__buf_close(&requests);
    (void)close(fd);
}

/* Many want one value, which is there once; it can be replaced meanwhile. */
static void values_are_shared(void **state)
{
    struct fixture *f = *state;
    enum { NODES = 30 };
    const size_t size = MST_MIB(7);
    set_value(f, size);
    size_t before = f->server->kv.memory_used;
    int fds[NODES];
    struct frames frames[NODES] = {0};
    struct mst__buf requests;
    mst__buf_init(&requests, 1024);
    put_get(&requests, "/value");
    for (size_t i = 0; i < NODES; i++) {
        fds[i] = node_new(f);
        node_ask(f, fds[i], &requests);
    }
    assert_true(f->server->kv.memory_used < size + MST_MIB(1));
    for (size_t i = 0; i < NODES; i++) {
        frames_await_stream(f, &frames[i], fds[i], size + 8);
        assert_int_equal(frames[i].counts[MST_JOB_STORE_END], 0);
    }
    assert_int_equal(f->server->conns_count, NODES);
    for (size_t i = 0; i < NODES; i++) {
        (void)close(fds[i]);
    }
    settle(f->server);
    assert_int_equal(f->server->kv.memory_used, before);
    mst__buf_close(&requests);
}

/* A reply that cannot be kept for its reader ends the stream, and not the node. */
static void reply_without_memory_ends_the_stream(void **state)
{
    struct fixture *f = *state;
    const size_t size = MST_KIB(7); /* is copied */
    set_value(f, size);
    int fd = node_new(f);
    struct mst__buf items;
    mst__buf_init(&items, MST_KIB(64));
    for (size_t i = 0; i < 3500; i++) {
        assert_int_equal(mst__buf_append_str(&items, mst_bytes_str("/value")), 0);
    }
    const struct mst__command command = {
        .op = MST_OP_MULTI_GET, .count = 3500, .items = mst__buf_bytes(&items)};
    struct mst__buf requests;
    mst__buf_init(&requests, MST_KIB(64));
    put_command(&requests, &command);
    node_ask(f, fd, &requests);
    struct frames frames = {0};
    frames_await(f, &frames, fd, MST_JOB_STORE_END, 1);
    put_store(&f->bytes, mst_bytes_of("", 0)); /* begin anew */
    send_all(f, fd);
    size_t replies = frames.counts[MST_JOB_STORE_REPLY];
    frames_await(f, &frames, fd, MST_JOB_STORE_REPLY, replies + 1);
    size_t before = frames.stream_size;
    mst__buf_clear(&requests);
    put_get(&requests, "/value");
    node_ask(f, fd, &requests);
    frames_await_stream(f, &frames, fd, before + size + 8);
    assert_int_equal(f->server->conns_count, 1);
    mst__buf_close(&items);
    mst__buf_close(&requests);
    (void)close(fd);
}

/* The same when there is room for nothing, be it that a value is held or that it is copied. */
static void full_memory_ends_the_stream(void **state)
{
    struct fixture *f = *state;
    struct mst__kv *kv = &f->server->kv;
    set_value(f, MST_MIB(5));
    const struct mst__command set = {.op = MST_OP_SET, .key = filler(8000)};
    const struct mst__command commands[] = {
        {.op = MST_OP_GET, .key = mst_bytes_str("/value")},
        {.op = MST_OP_LIST_KEYS},
    };
    int setter = peer_new(f->server, 0);
    assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
    put_command(&f->bytes, &set);
    send_all(f, setter);
    (void)close(setter);
    settle(f->server);
    for (size_t i = 0; i < 2; i++) {
        int fd = node_new(f);
        struct mst__buf requests;
        mst__buf_init(&requests, 1024);
        put_command(&requests, &commands[i]);
        size_t rest = kv->limits.memory_max - kv->memory_used;
        assert_true(mst__kv_charge(kv, rest));
        node_ask(f, fd, &requests);
        mst__kv_discharge(kv, rest);
        struct frames frames = {0};
        frames_await(f, &frames, fd, MST_JOB_STORE_END, 1);
        put_status(&f->bytes);
        send_all(f, fd);
        frames_await(f, &frames, fd, MST_JOB_REFUSED, 1);
        assert_int_equal(f->server->conns_count, 1);
        (void)close(fd);
        settle(f->server);
        mst__buf_close(&requests);
    }
}

/* Replies that nobody wants any more are not sent. */
static void new_stream_drops_the_old_replies(void **state)
{
    struct fixture *f = *state;
    set_value(f, MST_MIB(8));
    int fd = node_new(f);
    struct mst__buf requests;
    mst__buf_init(&requests, 1024);
    put_get(&requests, "/value");
    node_ask(f, fd, &requests);
    struct mst__conn *conn = f->server->conns;
    assert_true(conn->replies.pending > MST_MIB(1));
    put_store(&f->bytes, mst_bytes_of("", 0));
    send_all(f, fd);
    assert_true(conn->replies.pending <= MST_PIECE_SIZE + MST_JOB_HEAD_SIZE);
    put_status(&f->bytes);
    send_all(f, fd);
    struct frames frames = {0};
    frames_await(f, &frames, fd, MST_JOB_REFUSED, 1);
    assert_true(frames.stream_size < MST_MIB(8));
    assert_int_equal(conn->replies.pending, 0);
    mst__buf_close(&requests);
    (void)close(fd);
}

/* Messages whose answers are not read wait: what they cost has a bound. */
static void deaf_node_is_not_read(void **state)
{
    struct fixture *f = *state;
    int fd = node_new(f);
    const struct mst__conn *conn = f->server->conns;
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    for (size_t i = 0; i < 5000; i++) {
        put_status(&f->bytes);
    }
    struct mst_bytes all = mst__buf_bytes(&f->bytes);
    for (size_t at = 0; conn->is_reading;) {
        ssize_t sent = send(fd, all.data + at, all.size - at, MSG_NOSIGNAL);
        at = (at + (sent > 0 ? (size_t)sent : 0)) % all.size;
        settle(f->server);
        assert_true(conn->told.pending <= MST_TOLD_SIZE_MAX + MST_FLUSH_SIZE + MST_KIB(1));
        assert_true(mst__clock_ms() < end_ms);
    }
    assert_true(conn->told.pending > MST_TOLD_SIZE_MAX);
    while (peer_drain(fd, SIZE_MAX) > 0 || mst__conn_has_output(conn)) {
        settle(f->server);
        assert_true(mst__clock_ms() < end_ms);
    }
    assert_true(conn->is_reading);
    (void)close(fd);
}

/* --- who is cut off --- */

/* A client of dialect A that is told of /value. */
static int watcher_new(struct fixture *f)
{
    int fd = peer_new(f->server, 1 << 16);
    assert_int_equal(mst__buf_append_u8(&f->bytes, 7), 0); /* WATCH */
    assert_int_equal(mst__buf_append_str(&f->bytes, mst_bytes_str("/value")), 0);
    send_all(f, fd);
    return fd;
}

/* Notices are not kept without end for a watcher that does not read them; others get theirs. */
static void unread_notices_are_bounded(void **state)
{
    struct fixture *f = *state;
    const size_t size = MST_MIB(1);
    int deaf = watcher_new(f);
    const struct mst__conn *conn = f->server->conns;
    int watcher = watcher_new(f);
    int setter = peer_new(f->server, 0);
    assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
    size_t pending_max = 0;
    size_t got = 0;
    for (size_t i = 0; i < 40; i++) {
        put_set(&f->bytes, "/value", filler(size));
        send_all(f, setter);
        if (closed_for(f, MST_WHY_DOES_NOT_READ) == 0) {
            pending_max = conn->replies.pending > pending_max ? conn->replies.pending : pending_max;
        }
        ssize_t some;
        while ((some = peer_drain(watcher, SIZE_MAX)) > 0) {
            got += (size_t)some;
            settle(f->server);
        }
        assert_int_equal(some, 0);
    }
    assert_int_equal(closed_for(f, MST_WHY_DOES_NOT_READ), 1);
    assert_true(peer_is_closed(f->server, deaf));
    assert_in_range(pending_max, MST_BACKLOG_SIZE_MAX - 3 * size, MST_BACKLOG_SIZE_MAX + 3 * size);
    assert_true(got > 78 * size); /* old and new value, 40 times */
    assert_int_equal(f->server->conns_count, 2);
    put_get(&f->bytes, "/absent"); /* the engine lets go of the last notice */
    send_all(f, setter);
    assert_true(f->server->kv.memory_used < 2 * size);
    (void)close(deaf);
    (void)close(watcher);
    (void)close(setter);
}

/* Every byte that was counted for unsent output is given back, with what its keeping cost. */
static void sent_output_costs_nothing(void **state)
{
    struct fixture *f = *state;
    set_value(f, MST_KIB(48)); /* is copied */
    size_t before = f->server->kv.memory_used;
    int plain = peer_new(f->server, 1 << 16);
    assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
    for (size_t i = 0; i < 200; i++) {
        put_get(&f->bytes, "/value");
    }
    send_all(f, plain);
    int node = node_new(f);
    struct mst__buf requests;
    mst__buf_init(&requests, MST_KIB(64));
    for (size_t i = 0; i < 200; i++) {
        put_get(&requests, "/value");
    }
    node_ask(f, node, &requests);
    assert_true(f->server->kv.memory_used > before);
    const size_t size = 200 * (MST_KIB(48) + 8);
    struct frames frames = {0};
    frames_await_stream(f, &frames, node, size);
    for (size_t got = 0; got < size;) {
        ssize_t some = peer_drain(plain, size - got);
        assert_true(some >= 0);
        got += (size_t)some;
        turn(f->server);
    }
    settle(f->server);
    assert_int_equal(f->server->conns_count, 2);
    assert_int_equal(f->server->kv.memory_used, before);
    mst__buf_close(&requests);
    (void)close(plain);
    (void)close(node);
}

/* What a connection keeps is counted as the system gives it: with what is beside it, in pages. */
static void own_buffers_cost_what_they_take(void **state)
{
    struct fixture *f = *state;
    for (size_t size = 100; size <= MST_KIB(48); size = size < MST_KIB(1) ? size + 7 : size * 3) {
        int fd = peer_new(f->server, 0);
        assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
        static uint8_t value[MST_KIB(64)];
        put_set(&f->bytes, "/half", mst_bytes_of(value, size));
        peer_send(f->server, fd,
                  mst_bytes_of(mst__buf_bytes(&f->bytes).data, mst__buf_size(&f->bytes) - 1));
        mst__buf_clear(&f->bytes);
        settle(f->server);
        assert_int_equal(f->server->kv.memory_used,
                         mst__mem_cost(f->server->conns->input.capacity));
        (void)close(fd);
        settle(f->server);
        assert_int_equal(f->server->kv.memory_used, 0);
    }
}

static struct mst__job_message announcement(int64_t expiry_us)
{
    return (struct mst__job_message){
        .type = MST_JOB_ANNOUNCE,
        .u.announce = {.version = MST_JOB_VERSION,
                       .run_id = mst_bytes_str("job"),
                       .heartbeat_us = 1000000000,
                       .expiry_us = expiry_us,
                       .announcement = {.name = mst_bytes_str("node"),
                                        .incarnation = 1,
                                        .session = 1,
                                        .nodes_min = 2,
                                        .nodes_max = 2,
                                        .pinned_rank = MST_AUTHORITY_RANK_NONE}}};
}

/* A node cannot have it that nobody of its run is ever taken for lost. */
static void silence_has_a_limit(void **state)
{
    struct fixture *f = *state;
    const int64_t refused[] = {0, MST_JOB_EXPIRY_US_MAX + 1, INT64_MAX};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        int fd = node_new(f);
        const struct mst__job_message announce = announcement(refused[i]);
        struct frames frames = {0};
        put_message(&f->bytes, &announce);
        send_all(f, fd);
        frames_await(f, &frames, fd, MST_JOB_REFUSED, 1);
        assert_int_equal(mst__map_count(&f->server->jobs.map), 0);
        (void)close(fd);
    }
    int fd = node_new(f);
    const struct mst__job_message announce = announcement(MST_JOB_EXPIRY_US_MAX);
    struct frames frames = {0};
    put_message(&f->bytes, &announce);
    send_all(f, fd);
    frames_await(f, &frames, fd, MST_JOB_WELCOME, 1);
    (void)close(fd);
}

/* Silence costs a plain connection its life, but not one that waits, nor a member of a job. */
static void idle_timeout_spares_members(void **state)
{
    struct fixture *f = *state;
    f->server->options.idle_timeout_ms = TIMEOUT_MS;
    int idle = peer_new(f->server, 0);
    int waiting = peer_new(f->server, 0);
    struct mst__buf items;
    mst__buf_init(&items, 64);
    assert_int_equal(mst__buf_append_str(&items, mst_bytes_str("/never")), 0);
    const struct mst__command wait = {
        .op = MST_OP_WAIT, .count = 1, .items = mst__buf_bytes(&items)};
    assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
    put_command(&f->bytes, &wait);
    send_all(f, waiting);
    int node = node_new(f);
    const struct mst__job_message announce = announcement(3000000000);
    put_message(&f->bytes, &announce);
    send_all(f, node);
    int stranger = node_new(f); /* framed, but of no job */
    pass_ms(f->server, TIMEOUT_MS + MARGIN_MS);
    assert_int_equal(closed_for(f, MST_WHY_IDLE), 2);
    assert_true(peer_is_closed(f->server, idle));
    assert_true(peer_is_closed(f->server, stranger));
    assert_false(peer_is_closed(f->server, waiting));
    assert_false(peer_is_closed(f->server, node));
    mst__buf_close(&items);
    (void)close(idle);
    (void)close(waiting);
    (void)close(node);
    (void)close(stranger);
}

/* --- emptying --- */

/* Who empties a server whose loop does not run is told so. What is written later stays. */
static void emptying_has_a_deadline(void **state)
{
    struct fixture *f = *state;
    struct mst_err err = {0};
    set_value(f, 1);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(mst__server_empty(f->server, mst__clock_deadline_ms(10), &err),
                         MST_ETIMEOUT);
        assert_non_null(strstr(err.msg, "not emptied"));
        settle(f->server);
        assert_int_equal(f->server->kv.keys_count, 1);
    }
}

#define CASE_SMALL(name) cmocka_unit_test_setup_teardown(name, fixture_open_small, fixture_close)
#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(request_has_a_deadline),
        CASE(deadline_is_of_each_request),
        CASE(deadline_grows_with_the_request),
        CASE(store_request_has_a_deadline),
        CASE(slow_reader_is_served),
        CASE(trickling_reader_is_not),
        CASE(silent_reader_has_its_time),
        CASE(messages_overtake_replies),
        CASE(requests_that_wait_are_bounded),
        CASE_SMALL(values_are_shared),
        CASE_SMALL(reply_without_memory_ends_the_stream),
        CASE_SMALL(full_memory_ends_the_stream),
        CASE(new_stream_drops_the_old_replies),
        CASE(deaf_node_is_not_read),
        CASE(unread_notices_are_bounded),
        CASE(sent_output_costs_nothing),
        CASE(own_buffers_cost_what_they_take),
        CASE(silence_has_a_limit),
        CASE(idle_timeout_spares_members),
        CASE(emptying_has_a_deadline),
    };
    return MST_RUN_TESTS(tests);
}
