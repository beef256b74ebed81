/* unit/net/test_conn_turn.c - no client keeps the others waiting: the cost of one connection in
 * a turn of the loop, counted in steps. */
#include "unit/net/conn_unit.h"

#define FLOOD_SIZE MST_KIB(64)

static int fixture_open(void **state)
{
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    return fixture_new(state, &options);
}

/* A client of dialect A that has @count watches, of /key or of as many keys. */
static int watcher_new(struct fixture *f, size_t count, bool of_one_key)
{
    int fd = peer_new(f->server, 0);
    for (size_t i = 0; i < count; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "/key%zu", i);
        assert_int_equal(mst__buf_append_u8(&f->bytes, 7), 0); /* WATCH */
        assert_int_equal(mst__buf_append_str(&f->bytes, mst_bytes_str(of_one_key ? "/key" : key)),
                         0);
    }
    send_all(f, fd);
    uint8_t answers[MST_WATCHES_MAX];
    peer_receive(f->server, fd, answers, count);
    return fd;
}

/* As many of @command as fit into a flood. */
static size_t put_flood(struct fixture *f, const struct mst__command *command)
{
    size_t count = 0;
    while (mst__buf_size(&f->bytes) < FLOOD_SIZE) {
        put_command(&f->bytes, command);
        count++;
    }
    return count;
}

/* Send f->bytes through @fd, and drop the replies until all is done. No turn may cost more than
 * its share, one request, which costs @request_max, and its last write. */
static void flood(struct fixture *f, int fd, uint64_t request_max)
{
    struct mst_server *server = f->server;
    server->counters.turn_steps_max = 0;
    uint64_t start = server->kv.steps;
    peer_send(server, fd, mst__buf_bytes(&f->bytes));
    mst__buf_clear(&f->bytes);
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    do {
        settle(server);
        assert_true(mst__clock_ms() < end_ms);
    } while (peer_drain(fd, SIZE_MAX) > 0 || server->turns.first != NULL);
    assert_true(server->kv.steps - start > 2 * MST_TURN_STEPS); /* so that it says something */
    assert_in_range(server->counters.turn_steps_max, 1,
                    MST_TURN_STEPS + request_max + MST_STEPS_SENT * (MST_FLUSH_SIZE >> 10));
}

/* --- how long a turn takes --- */

/* The last turn of the loop began @ago_us earlier than it did; for @waited_us of that time there
 * was nothing to do. */
static void turn_began_earlier(struct fixture *f, uint64_t ago_us, uint64_t waited_us)
{
    settle(f->server);
    f->server->turns.ended_ns -= ago_us * 1000;
    f->server->turns.waited_ns -= waited_us * 1000;
    turn(f->server);
}

static void turns_are_measured(void **state)
{
    struct fixture *f = *state;
    const struct mst__counters *counters = &f->server->counters;
    const uint64_t hour_us = 3600ULL * 1000000;
    turn_began_earlier(f, hour_us, 0);
    assert_in_range(counters->loop_us_max, hour_us, 2 * hour_us);
    assert_int_equal(counters->loop_seconds[MST_LOOP_SECONDS_COUNT - 1], 1);
    turn_began_earlier(f, 10 * hour_us, 10 * hour_us);
    assert_in_range(counters->loop_us_max, hour_us, 2 * hour_us);
    assert_in_range(counters->loop_us, hour_us, 2 * hour_us);
}

/* The longest turn is reported for a minute, and then forgotten, also if nothing happens since. */
static void long_turns_are_forgotten(void **state)
{
    struct fixture *f = *state;
    const uint64_t hour_us = 3600ULL * 1000000;
    const uint64_t minute_ns = 60ULL * 1000000000;
    turn_began_earlier(f, hour_us, 0);
    const uint64_t ended_ns = f->server->turns.ended_ns;
    turn(f->server);
    assert_in_range(mst__turns_longest_us(f->server, ended_ns), hour_us, 2 * hour_us);
    assert_in_range(mst__turns_longest_us(f->server, ended_ns + minute_ns), hour_us, 2 * hour_us);
    assert_in_range(mst__turns_longest_us(f->server, ended_ns + 2 * minute_ns), 0, hour_us - 1);
    /* A turn in the span that has the same place. */
    for (unsigned i = 0; i < MST_LOOP_SPANS; i++) {
        f->server->turns.longest[i].span -= MST_LOOP_SPANS;
    }
    turn(f->server);
    assert_in_range(mst__turns_longest_us(f->server, uv_hrtime()), 0, hour_us - 1);
}

/* --- floods --- */

/* A WAIT for @count keys in @dialect, in f->bytes. */
static void put_wait_in(struct fixture *f, enum mst__dialect dialect, size_t count)
{
    struct mst__buf items;
    mst__buf_init(&items, MST_MIB(4));
    for (size_t i = 0; i < count; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "/waited/%zu", i);
        assert_int_equal(mst__buf_append_str(&items, mst_bytes_str(key)), 0);
    }
    const struct mst__command wait = {
        .op = MST_OP_WAIT, .count = count, .items = mst__buf_bytes(&items)};
    assert_int_equal(mst__wire_write_request(&f->bytes, dialect, &wait), 0);
    mst__buf_close(&items);
}

static void put_wait(struct fixture *f, size_t count)
{
    put_wait_in(f, MST_DIALECT_C, count);
}

/* Keys that exist only because a client waits for them do not count, nor does the number of
 * requests in one read. */
static void list_keys(void **state)
{
    struct fixture *f = *state;
    int waiting = client_new(f);
    put_wait(f, MST_ITEMS_MAX);
    send_all(f, waiting);
    int fd = client_new(f);
    const struct mst__command list = {.op = MST_OP_LIST_KEYS};
    (void)put_flood(f, &list);
    flood(f, fd, 16);
    set_keys(f, 1000);
    for (size_t i = 0; i < 100; i++) {
        put_command(&f->bytes, &list);
    }
    flood(f, fd, 1100);
    (void)close(waiting);
    (void)close(fd);
}

/* A wait for many keys begins over several turns, and ends so: whether it is given up, replaced,
 * over, or its connection closed. */
static void long_wait(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 10 * MST_WAIT_PART };
    const uint64_t part = 3 * MST_WAIT_PART;
    struct mst__kv *kv = &f->server->kv;
    int fd = client_new(f);
    put_wait(f, COUNT);
    flood(f, fd, part);
    assert_int_equal(mst__map_count(&kv->map), COUNT);
    assert_int_equal(f->server->counters.ops[MST_OP_WAIT], 1);
    const struct mst__command cancel = {.op = MST_OP_CANCEL_WAIT};
    put_command(&f->bytes, &cancel);
    flood(f, fd, part);
    assert_int_equal(mst__map_count(&kv->map), 0);
    put_wait(f, COUNT);
    put_wait(f, COUNT);
    flood(f, fd, part);
    int other = client_new(f);
    for (size_t i = 0; i < COUNT; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "/waited/%zu", i);
        put_set(&f->bytes, key, mst_bytes_str("v"));
        if (mst__buf_size(&f->bytes) >= FLOOD_SIZE || i == COUNT - 1) {
            assert_int_equal(peer_drain(fd, SIZE_MAX), 0);
            send_all(f, other);
        }
    }
    assert_int_equal(peer_drain(fd, SIZE_MAX), 1); /* it is over, once */
    const struct mst__command gone = {.op = MST_OP_DELETE, .key = mst_bytes_str("/waited/7")};
    put_command(&f->bytes, &gone);
    send_all(f, other);
    put_wait(f, COUNT);
    flood(f, fd, part); /* all but one are there */
    assert_int_equal(kv->keys_count, COUNT - 1);
    put_set(&f->bytes, "/waited/7", mst_bytes_str("v"));
    send_all(f, other);
    assert_int_equal(peer_drain(fd, SIZE_MAX), 1);
    (void)close(other);
    (void)close(fd);
}

/* The same of an old client, whose next request would give a wait up. */
static void long_wait_of_an_old_client(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 10 * MST_WAIT_PART };
    int other = client_new(f);
    int fd = peer_new(f->server, 0);
    put_wait_in(f, MST_DIALECT_B, COUNT);
    flood(f, fd, 3 * MST_WAIT_PART);
    assert_int_equal(mst__map_count(&f->server->kv.map), COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "/waited/%zu", i);
        put_set(&f->bytes, key, mst_bytes_str("v"));
    }
    send_all(f, other);
    assert_int_equal(peer_drain(fd, SIZE_MAX), 1);
    (void)close(other);
    (void)close(fd);
}

/* The same when its connection ends. */
static void long_wait_ends(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 10 * MST_WAIT_PART };
    struct mst_server *server = f->server;
    int fd = client_new(f);
    put_wait(f, COUNT);
    flood(f, fd, 3 * MST_WAIT_PART);
    (void)close(fd);
    uint64_t steps_max = 0;
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    while (server->conns_count > 0) {
        uint64_t before = server->kv.steps;
        turn(server);
        uint64_t steps = server->kv.steps - before;
        steps_max = steps > steps_max ? steps : steps_max;
        assert_true(mst__clock_ms() < end_ms);
    }
    assert_in_range(steps_max, MST_WAIT_PART, MST_TURN_STEPS + 3 * MST_WAIT_PART);
    assert_int_equal(server->kv.memory_used, 0);
}

/* A few bytes change a large value, whose fingerprint is then computed anew. */
static void wait_change(void **state)
{
    struct fixture *f = *state;
    int fd = client_new(f);
    static uint8_t value[1 << 22];
    put_set(&f->bytes, "/key", mst_bytes_of(value, sizeof value));
    send_all(f, fd);
    const struct mst__command append = {
        .op = MST_OP_APPEND, .key = mst_bytes_str("/key"), .value = mst_bytes_str("x")};
    const struct mst__command change = {
        .op = MST_OP_WAIT_CHANGE, .key = mst_bytes_str("/key"), .number = 1};
    for (size_t i = 0; i < 100; i++) {
        put_command(&f->bytes, &append);
        put_command(&f->bytes, &change);
    }
    flood(f, fd, 3 * sizeof value / 1024);
    /* The same value again and again costs nothing. */
    uint64_t before = f->server->kv.steps;
    size_t count = put_flood(f, &change);
    send_all(f, fd);
    assert_true(f->server->kv.steps - before < 8 * count + sizeof value / 1024);
    (void)close(fd);
}

/* A change is sent to many watchers, each with a system call. */
static void watched_key(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 100 };
    int watchers[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        watchers[i] = watcher_new(f, i < 4 ? MST_WATCHES_MAX : 1, true);
    }
    int fd = client_new(f);
    size_t sets = 0;
    for (; mst__buf_size(&f->bytes) < 19000; sets++) {
        put_set(&f->bytes, "/key", mst_bytes_str("v"));
    }
    uint64_t before = f->server->kv.steps;
    flood(f, fd, COUNT * (MST_STEPS_WRITE + 4)); /* the notices are not read */
    assert_true(f->server->kv.steps - before > sets * COUNT * MST_STEPS_WRITE);
    for (size_t i = 0; i < COUNT; i++) {
        (void)close(watchers[i]);
    }
    (void)close(fd);
}

/* Messages are counted by their cost. */
static void messages(void **state)
{
    struct fixture *f = *state;
    int node = node_new(f);
    const struct mst__job_message close_run = {.type = MST_JOB_CLOSE,
                                               .u.close = {.run_id = mst_bytes_str("run")}};
    while (mst__buf_size(&f->bytes) < FLOOD_SIZE) {
        put_message(&f->bytes, &close_run);
    }
    flood(f, node, 64);
    (void)close(node);
}

/* Peers that leave at once are seen in one turn, and taken apart over several. */
static void many_leave(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 100 };
    int fds[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        fds[i] = watcher_new(f, MST_WATCHES_MAX, false);
    }
    for (size_t i = 0; i < COUNT; i++) {
        (void)close(fds[i]);
    }
    uint64_t start = f->server->kv.steps;
    uint64_t steps_max = 0;
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    while (f->server->conns_count > 0) {
        uint64_t before = f->server->kv.steps;
        turn(f->server);
        uint64_t steps = f->server->kv.steps - before;
        steps_max = steps > steps_max ? steps : steps_max;
        assert_true(mst__clock_ms() < end_ms);
    }
    const uint64_t one = 2 * MST_WATCHES_MAX + MST_STEPS_CLOSE + 64;
    assert_true(f->server->kv.steps - start > (uint64_t)COUNT * MST_WATCHES_MAX);
    assert_in_range(steps_max, one, MST_LOOP_STEPS + MST_TURN_STEPS + 2 * one);
}

/* Many connections that end at once are taken apart over several turns. */
static void many_ends(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 200 };
    int fds[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        fds[i] = watcher_new(f, MST_WATCHES_MAX, false);
    }
    uint64_t start = f->server->kv.steps;
    f->server->options.idle_timeout_ms = 1000;
    f->server->ahead_ms += 2000;
    (void)mst__conns_sweep(f->server, mst__server_now_ms(f->server));
    /* Its timer has a share of its own, and is due in one of the turns when they are slow. */
    assert_int_equal(uv_timer_stop(&f->server->sweep), 0);
    /* The last watcher of a key removes it. */
    const uint64_t one = 2 * MST_WATCHES_MAX + MST_STEPS_CLOSE + 64;
    uint64_t steps_max = f->server->kv.steps - start;
    while (f->server->conns_count > 0) {
        uint64_t before = f->server->kv.steps;
        turn(f->server);
        uint64_t steps = f->server->kv.steps - before;
        steps_max = steps > steps_max ? steps : steps_max;
    }
    assert_true(f->server->kv.steps - start > (uint64_t)COUNT * MST_WATCHES_MAX);
    assert_in_range(steps_max, one, MST_TURN_STEPS + one);
    assert_int_equal(f->server->kv.memory_used, 0);
    for (size_t i = 0; i < COUNT; i++) {
        (void)close(fds[i]);
    }
}

/* --- the others --- */

/* While one connection has much to do, another is served in every turn; the first is not read. */
static void others_have_their_turn(void **state)
{
    struct fixture *f = *state;
    set_keys(f, 4 * MST_TURN_STEPS);
    int busy = client_new(f);
    const struct mst__conn *conn = f->server->conns;
    int other = client_new(f);
    /* Requests without a reply, so that only the work delays it. */
    const struct mst__command list = {.op = MST_OP_QUEUE_LEN, .key = mst_bytes_str("/q")};
    const struct mst__command ping = {.op = MST_OP_PING, .number = 7};
    for (size_t i = 0; i < 20; i++) {
        struct mst__buf items;
        mst__buf_init(&items, MST_MIB(1));
        for (size_t key = 0; key < MST_TURN_STEPS; key++) {
            assert_int_equal(mst__buf_append_str(&items, mst_bytes_str("/1")), 0);
        }
        const struct mst__command check = {
            .op = MST_OP_CHECK, .count = MST_TURN_STEPS, .items = mst__buf_bytes(&items)};
        put_command(&f->bytes, &check);
        mst__buf_close(&items);
    }
    put_command(&f->bytes, &list);
    peer_send(f->server, busy, mst__buf_bytes(&f->bytes));
    mst__buf_clear(&f->bytes);
    size_t rounds = 0;
    for (int64_t end_ms = mst__clock_ms() + PATIENCE_MS; conn->input.end > conn->input.start;) {
        assert_true(mst__clock_ms() < end_ms);
        put_command(&f->bytes, &ping);
        struct mst_bytes bytes = mst__buf_bytes(&f->bytes);
        assert_int_equal(send(other, bytes.data, bytes.size, MSG_NOSIGNAL), bytes.size);
        mst__buf_clear(&f->bytes);
        turn(f->server);
        turn(f->server);
        uint8_t answer[4];
        assert_int_equal(recv(other, answer, sizeof answer, 0), 4);
        rounds += conn->is_in_line && !conn->is_reading ? 1 : 0;
    }
    assert_true(rounds > 0);
    uint8_t answers[20 + 8];
    peer_receive(f->server, busy, answers, sizeof answers);
    assert_int_equal(f->server->conns_count, 3 - 1);
    (void)close(busy);
    (void)close(other);
}

/* The clients that one request releases or notifies are written to over several turns. */
static void one_for_many(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 6 * MST_PUSHES_MAX };
    static int fds[COUNT];
    struct mst__buf items;
    mst__buf_init(&items, 64);
    assert_int_equal(mst__buf_append_str(&items, mst_bytes_str("/key")), 0);
    const struct mst__command wait = {
        .op = MST_OP_WAIT, .count = 1, .items = mst__buf_bytes(&items)};
    const struct mst__command cancel = {.op = MST_OP_CANCEL_WAIT};
    for (size_t i = 0; i < COUNT; i++) {
        fds[i] = client_new(f);
        put_command(&f->bytes, &wait);
        send_all(f, fds[i]);
    }
    int fd = client_new(f);
    put_set(&f->bytes, "/key", mst_bytes_str("v"));
    /* The last one gives up in the same turn: its answers are in order all the same. */
    struct mst_bytes set = mst__buf_bytes(&f->bytes);
    assert_int_equal(send(fd, set.data, set.size, MSG_NOSIGNAL), set.size);
    size_t most = 0;
    uint64_t before = f->server->counters.bytes_out;
    for (uint64_t all = before + COUNT, now = before; now < all;) {
        turn(f->server);
        uint64_t out = f->server->counters.bytes_out;
        most = out - now > most ? (size_t)(out - now) : most;
        if (now == before && out > before) {
            mst__buf_clear(&f->bytes);
            put_command(&f->bytes, &cancel);
            struct mst_bytes bytes = mst__buf_bytes(&f->bytes);
            assert_int_equal(send(fds[COUNT - 1], bytes.data, bytes.size, MSG_NOSIGNAL),
                             bytes.size);
        }
        now = out;
    }
    assert_in_range(most, 1, 2 * MST_TURN_STEPS / MST_STEPS_WRITE + MST_PUSHES_MAX + 8);
    assert_true(most < COUNT);
    uint8_t answer[2];
    peer_receive(f->server, fds[COUNT - 1], answer, 2);
    assert_memory_equal(answer, ((uint8_t[]){0, 1}), 2);
    for (size_t i = 0; i < COUNT - 1; i++) {
        peer_receive(f->server, fds[i], answer, 1);
        assert_int_equal(answer[0], 0);
        (void)close(fds[i]);
    }
    mst__buf_clear(&f->bytes);
    mst__buf_close(&items);
    (void)close(fds[COUNT - 1]);
    (void)close(fd);
}

/* Callers beyond the limit of a turn are accepted in the next ones. */
static void storm(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 2 * MST_ACCEPTS_MAX + 100 };
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)mst_server_port(f->server)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    static int fds[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fds[i], (const struct sockaddr *)&to, sizeof to), 0);
    }
    size_t most = 0;
    for (size_t before = 0; f->server->conns_count < COUNT; before = f->server->conns_count) {
        turn(f->server);
        size_t came = f->server->conns_count - before;
        most = came > most ? came : most;
    }
    /* Connections accepted while others wait, and the last of those. */
    assert_in_range(most, 1, 2 * MST_ACCEPTS_MAX);
    for (size_t i = 0; i < COUNT; i++) {
        (void)close(fds[i]);
    }
    settle(f->server);
    assert_int_equal(f->server->conns_count, 0);
}

/* Large requests are read in parts, however fast they come: others do not wait until the kernel
 * has no more. */
static void large_requests(void **state)
{
    struct fixture *f = *state;
    static uint8_t value[MST_MIB(8)];
    int fd = client_new(f);
    for (size_t i = 0; i < 4; i++) {
        put_set(&f->bytes, "/key", mst_bytes_of(value, sizeof value));
    }
    struct mst_bytes bytes = mst__buf_bytes(&f->bytes);
    uint64_t most = 0;
    for (int64_t end_ms = mst__clock_ms() + PATIENCE_MS; bytes.size > 0;) {
        assert_true(mst__clock_ms() < end_ms);
        ssize_t sent = 0;
        do { /* as much as there is room for */
            bytes = mst__bytes_skip(bytes, (size_t)sent);
            sent = send(fd, bytes.data, bytes.size, MSG_NOSIGNAL);
        } while (sent > 0 && bytes.size > 0);
        uint64_t before = f->server->counters.bytes_in;
        turn(f->server);
        uint64_t came = f->server->counters.bytes_in - before;
        most = came > most ? came : most;
    }
    /* Its share, reached with the last of several reads. */
    assert_in_range(most, 1, 2 * MST_TURN_READ_SIZE);
    (void)close(fd);
}

/* --- all together --- */

/* The maximum of *@counter in one turn of the loop, over the turns until the queue is empty. */
static uint64_t most_in_a_turn(struct fixture *f, const uint64_t *counter)
{
    uint64_t most = 0;
    do {
        uint64_t before = *counter;
        turn(f->server);
        most = *counter - before > most ? *counter - before : most;
    } while (f->server->turns.first != NULL || mst__kv_is_busy(&f->server->kv));
    return most;
}

/* Each of many has done no more than its share, and all together no more than theirs: those in
 * the queue, and those that have just become ready. */
static void many_have_one_share(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 100, KEYS = 4000 };
    int fds[COUNT];
    set_keys(f, KEYS);
    for (size_t i = 0; i < COUNT; i++) {
        fds[i] = client_new(f);
    }
    const struct mst__command list = {.op = MST_OP_LIST_KEYS};
    put_command(&f->bytes, &list);
    uint64_t before = f->server->kv.steps;
    send_unread(f, fds, COUNT);
    uint64_t most = most_in_a_turn(f, &f->server->kv.steps);
    assert_true(f->server->kv.steps - before > (uint64_t)COUNT * KEYS);
    assert_in_range(most, KEYS, 2 * (MST_LOOP_STEPS + 2 * KEYS));
    assert_int_equal(f->server->counters.ops[MST_OP_LIST_KEYS], COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        (void)close(fds[i]);
    }
}

/* Any number of connections that can be written to at once shares one share. */
static void pieces_are_a_share(void **state)
{
    (void)state;
    assert_int_equal(mst__conn_piece_size(1), MST_PIECE_SIZE);
    for (size_t count = 1; count * MST_PIECE_SIZE_MIN <= MST_KIB(MST_LOOP_STEPS / MST_STEPS_SENT);
         count++) {
        assert_true(count * mst__conn_piece_size(count) <=
                    MST_KIB(MST_LOOP_STEPS / MST_STEPS_SENT));
    }
    assert_int_equal(mst__conn_piece_size(MST_CONNECTIONS_MAX), MST_PIECE_SIZE_MIN);
}

/* The same for bytes that the kernel is given. */
static void many_readers(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 100 };
    static uint8_t value[1 << 22];
    int fds[COUNT];
    int setter = client_new(f);
    put_set(&f->bytes, "/key", mst_bytes_of(value, sizeof value));
    send_all(f, setter);
    for (size_t i = 0; i < COUNT; i++) {
        fds[i] = client_new(f);
    }
    put_get(&f->bytes, "/key");
    send_unread(f, fds, COUNT);
    const uint64_t most =
        2 * (MST_KIB(MST_LOOP_STEPS / MST_STEPS_SENT) + sizeof value) + COUNT * MST_PIECE_SIZE;
    uint64_t total = COUNT * (sizeof value + 8);
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    while (total > 0) {
        assert_in_range(most_in_a_turn(f, &f->server->counters.bytes_out), 0, most);
        for (size_t i = 0; i < COUNT; i++) {
            total -= (uint64_t)peer_drain(fds[i], SIZE_MAX);
        }
        assert_true(mst__clock_ms() < end_ms);
    }
    for (size_t i = 0; i < COUNT; i++) {
        (void)close(fds[i]);
    }
    (void)close(setter);
}

static bool is_always_over(void *arg)
{
    unsigned *asked = arg;
    return (*asked)++ > 0;
}

/* When many can be read at once, some are in one turn and the others in the next. A job decides
 * behind all of them. */
static void many_are_ready(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 400 };
    static int fds[COUNT];
    unsigned asked = 0;
    int node = node_new(f);
    for (size_t i = 0; i < COUNT; i++) {
        fds[i] = client_new(f);
    }
    f->server->poller.is_over = is_always_over;
    f->server->poller.arg = &asked;
    const struct mst__job_message announce = {
        .type = MST_JOB_ANNOUNCE,
        .u.announce = {.version = MST_JOB_VERSION,
                       .run_id = mst_bytes_str("job"),
                       .heartbeat_us = 1000000,
                       .announcement = {.name = mst_bytes_str("node"),
                                        .expiry_us = 60000000,
                                        .incarnation = 1,
                                        .session = 1,
                                        .nodes_min = 1,
                                        .nodes_max = 1,
                                        .pinned_rank = MST_AUTHORITY_RANK_NONE}}};
    put_message(&f->bytes, &announce);
    send_unread(f, &node, 1);
    put_get(&f->bytes, "/absent");
    send_unread(f, fds, COUNT);
    turn(f->server);
    assert_in_range(f->server->counters.ops[MST_OP_GET], 1, 256);
    assert_true(mst__poller_has_more(&f->server->poller));
    assert_int_equal(f->server->jobs.told, 0);
    asked = 0;
    turn(f->server);
    assert_int_equal(f->server->counters.ops[MST_OP_GET], COUNT);
    assert_int_equal(f->server->jobs.told, 1);
    for (size_t i = 0; i < COUNT; i++) {
        (void)close(fds[i]);
    }
    (void)close(node);
}

/* The changes of one command go to many watchers over several turns. Other clients are served
 * after that, and every watcher gets every change. */
static void many_notices(void **state)
{
    struct fixture *f = *state;
    enum { WATCHERS = 64, KEYS = 500 };
    int watchers[WATCHERS];
    for (size_t i = 0; i < WATCHERS; i++) {
        watchers[i] = watcher_new(f, KEYS, false);
    }
    int fds[] = {client_new(f), client_new(f)};
    settle(f->server);
    uint64_t sent_before = f->server->counters.bytes_out;
    struct mst__buf items;
    mst__buf_init(&items, MST_MIB(1));
    for (size_t i = 0; i < KEYS; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "/key%zu", i);
        assert_int_equal(mst__buf_append_str(&items, mst_bytes_str(key)), 0);
        assert_int_equal(mst__buf_append_str(&items, mst_bytes_str("v")), 0);
    }
    const struct mst__command set = {
        .op = MST_OP_MULTI_SET, .count = KEYS, .items = mst__buf_bytes(&items)};
    put_command(&f->bytes, &set);
    send_unread(f, fds, 1);
    turn(f->server);
    assert_true(mst__kv_has_notices(&f->server->kv));
    put_set(&f->bytes, "/key0", mst_bytes_str("w"));
    send_unread(f, fds + 1, 1);
    uint64_t before = f->server->kv.steps;
    uint64_t most = most_in_a_turn(f, &f->server->kv.steps);
    assert_true(f->server->kv.steps - before > (uint64_t)(WATCHERS / 2) * KEYS * MST_STEPS_WRITE);
    assert_in_range(most, 1, 2 * (MST_LOOP_STEPS + WATCHERS * (MST_STEPS_WRITE + 4)));
    settle(f->server);
    assert_int_equal(f->server->kv.keys_count, KEYS);
    /* Bytes that were sent may still be in the kernel. */
    size_t told[WATCHERS] = {0};
    uint64_t sent = f->server->counters.bytes_out - sent_before;
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    for (uint64_t got = 0; got < sent;) {
        assert_true(mst__clock_ms() < end_ms);
        got += (uint64_t)peer_drain(fds[0], SIZE_MAX) + (uint64_t)peer_drain(fds[1], SIZE_MAX);
        for (size_t i = 0; i < WATCHERS; i++) {
            size_t more = (size_t)peer_drain(watchers[i], SIZE_MAX);
            told[i] += more;
            got += more;
        }
    }
    for (size_t i = 0; i < WATCHERS; i++) {
        assert_int_equal(told[i], told[0]);
        (void)close(watchers[i]);
    }
    assert_true(told[0] > (size_t)KEYS * 24); /* two values and a key, each with its size */
    mst__buf_close(&items);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

/* --- lists that go over turns --- */

/* @fd has received a whole list of @count keys. */
static void list_receive(struct fixture *f, int fd, size_t count)
{
    size_t size = 8 + f->server->kv.keys_size;
    uint8_t *bytes = mst__malloc(size);
    assert_non_null(bytes);
    peer_receive(f->server, fd, bytes, 8);
    assert_int_equal(mst__load_u64(bytes), count);
    for (size_t i = 0; i < count; i++) {
        peer_receive(f->server, fd, bytes, 8);
        size_t key_size = mst__load_u64(bytes);
        assert_in_range(key_size, 2, 9);
        peer_receive(f->server, fd, bytes, key_size);
        assert_int_equal(bytes[0], '/');
    }
    mst__free(bytes);
}

/* The same, and nothing behind it. */
static void list_check(struct fixture *f, int fd, size_t count)
{
    list_receive(f, fd, count);
    settle(f->server);
    assert_int_equal(peer_drain(fd, SIZE_MAX), 0);
}

/* A long list is made over several turns. Nothing changes meanwhile, and nodes are answered. */
static void long_list(void **state)
{
    struct fixture *f = *state;
    set_keys(f, LISTED);
    int fds[] = {client_new(f), client_new(f)};
    int node = node_new(f);
    list_begin(f, fds[0]);
    put_set(&f->bytes, "/new", mst_bytes_str("v"));
    send_unread(f, fds + 1, 1);
    const struct mst__job_message status = {.type = MST_JOB_STATUS,
                                            .u.question = {.run_id = mst_bytes_str("none")}};
    put_message(&f->bytes, &status);
    send_unread(f, &node, 1);
    turn(f->server);
    assert_true(peer_drain(node, SIZE_MAX) > 0);
    assert_true(mst__kv_is_listing(&f->server->kv));
    assert_int_equal(f->server->kv.keys_count, LISTED);
    assert_in_range(most_in_a_turn(f, &f->server->kv.steps), 1, 2 * MST_LOOP_STEPS);
    settle(f->server);
    assert_int_equal(f->server->kv.keys_count, LISTED + 1);
    list_check(f, fds[0], LISTED);
    assert_null(f->server->overdue);
    (void)close(fds[0]);
    (void)close(fds[1]);
    (void)close(node);
}

/* It ends with the connection that it is for. */
static void list_for_nobody(void **state)
{
    struct fixture *f = *state;
    set_keys(f, LISTED);
    int fds[] = {client_new(f), client_new(f)};
    list_begin(f, fds[0]);
    const struct linger now = {.l_onoff = 1};
    assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    uint64_t before = f->server->kv.steps;
    (void)close(fds[0]);
    put_set(&f->bytes, "/new", mst_bytes_str("v"));
    send_unread(f, fds + 1, 1);
    settle(f->server);
    assert_int_equal(f->server->kv.keys_count, LISTED + 1);
    assert_int_equal(f->server->conns_count, 1);
    assert_in_range(f->server->kv.steps - before, 1, LISTED / 2);
    (void)close(fds[1]);
}

static void put_barrier(struct mst__buf *output)
{
    const struct mst__command barrier = {
        .op = MST_OP_BARRIER, .key = mst_bytes_str("/b"), .number = 9};
    put_command(output, &barrier);
}

/* A client that leaves a barrier removes its key: after the list is done. */
static void list_while_a_barrier_is_left(void **state)
{
    struct fixture *f = *state;
    set_keys(f, LISTED);
    int fds[] = {client_new(f), client_new(f)};
    put_barrier(&f->bytes);
    send_all(f, fds[1]);
    list_begin(f, fds[0]);
    (void)close(fds[1]);
    turn(f->server);
    assert_true(mst__kv_is_listing(&f->server->kv));
    assert_non_null(f->server->doomed);
    assert_int_equal(f->server->kv.keys_count, LISTED + 1);
    settle(f->server);
    assert_int_equal(f->server->conns_count, 1);
    list_check(f, fds[0], LISTED + 1);
    assert_int_equal(f->server->kv.keys_count, LISTED);
    (void)close(fds[0]);
}

/* More clients than are told in one turn get what they wait for just before a list begins: all of
 * them hear of it. */
static void list_after_many_releases(void **state)
{
    struct fixture *f = *state;
    enum { WAITING = MST_PUSHES_MAX + 20 };
    int waiting[WAITING];
    const struct mst__command list = {.op = MST_OP_LIST_KEYS};
    set_keys(f, LISTED);
    int fd = client_new(f);
    for (size_t i = 0; i < WAITING; i++) {
        waiting[i] = client_new(f);
        put_wait(f, 1);
        send_all(f, waiting[i]);
    }
    put_set(&f->bytes, "/waited/0", mst_bytes_str("v"));
    put_command(&f->bytes, &list);
    send_unread(f, &fd, 1);
    turn(f->server);
    assert_true(mst__kv_is_listing(&f->server->kv));
    list_check(f, fd, LISTED + 1);
    settle(f->server);
    for (size_t i = 0; i < WAITING; i++) {
        assert_int_equal(peer_drain(waiting[i], SIZE_MAX), 1);
        (void)close(waiting[i]);
    }
    assert_int_equal(f->server->counters.released, WAITING);
    assert_null(f->server->overdue);
    (void)close(fd);
}

/* Messages are answered after a list that was requested before them. */
static void list_before_messages(void **state)
{
    struct fixture *f = *state;
    set_keys(f, LISTED);
    int fd = client_new(f);
    const struct mst__command list = {.op = MST_OP_LIST_KEYS};
    const struct mst__job_message status = {.type = MST_JOB_STATUS,
                                            .u.question = {.run_id = mst_bytes_str("none")}};
    uint8_t head[MST_JOB_HEAD_SIZE];
    put_command(&f->bytes, &list);
    assert_int_equal(mst__buf_append_u8(&f->bytes, MST_WIRE_OPCODE_JOB), 0);
    put_message(&f->bytes, &status);
    send_unread(f, &fd, 1);
    turn(f->server);
    assert_true(mst__kv_is_listing(&f->server->kv));
    list_receive(f, fd, LISTED);
    peer_receive(f->server, fd, head, sizeof head);
    assert_int_equal(head[4], MST_JOB_REFUSED);
    (void)close(fd);
}

/* A large changed value is in memory once, for any number of watchers. */
static void large_notice(void **state)
{
    struct fixture *f = *state;
    enum { WATCHERS = 32 };
    static uint8_t value[1 << 22];
    int watchers[WATCHERS];
    int fd = client_new(f);
    put_set(&f->bytes, "/key", mst_bytes_of(value, sizeof value));
    send_all(f, fd);
    for (size_t i = 0; i < WATCHERS; i++) {
        watchers[i] = watcher_new(f, 1, true);
    }
    const struct mst__command append = {
        .op = MST_OP_APPEND, .key = mst_bytes_str("/key"), .value = mst_bytes_str("x")};
    put_command(&f->bytes, &append);
    send_all(f, fd);
    assert_in_range(f->server->kv.memory_used, 3 * sizeof value, 8 * sizeof value);
    size_t total = WATCHERS * 2 * sizeof value;
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    for (size_t got = 0; got < total;) {
        for (size_t i = 0; i < WATCHERS; i++) {
            ssize_t rv = peer_drain(watchers[i], SIZE_MAX);
            assert_true(rv >= 0);
            got += (size_t)rv;
        }
        turn(f->server);
        assert_true(mst__clock_ms() < end_ms);
    }
    settle(f->server);
    assert_in_range(f->server->kv.memory_used, sizeof value, 6 * sizeof value);
    for (size_t i = 0; i < WATCHERS; i++) {
        (void)close(watchers[i]);
    }
    (void)close(fd);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(turns_are_measured),
        CASE(long_turns_are_forgotten),
        CASE(list_keys),
        CASE(long_wait),
        CASE(long_wait_ends),
        CASE(long_wait_of_an_old_client),
        CASE(wait_change),
        CASE(watched_key),
        CASE(messages),
        CASE(many_leave),
        CASE(many_ends),
        CASE(others_have_their_turn),
        CASE(one_for_many),
        CASE(storm),
        CASE(large_requests),
        CASE(many_have_one_share),
        CASE(pieces_are_a_share),
        CASE(many_readers),
        CASE(many_are_ready),
        CASE(many_notices),
        CASE(long_list),
        CASE(list_for_nobody),
        CASE(list_while_a_barrier_is_left),
        CASE(list_after_many_releases),
        CASE(list_before_messages),
        CASE(large_notice),
    };
    return MST_RUN_TESTS(tests);
}
