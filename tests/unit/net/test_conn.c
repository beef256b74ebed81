/* unit/net/test_conn.c - connections of the server: deadlines, backlogs, turns. */
#include <sys/resource.h>

#include "base/mem.h"
#include "unit/net/conn_unit.h"

/* So long that the real time of the test does not matter. */
#define TIMEOUT_MS 100000
#define MARGIN_MS 20000

static int fixture_open_with(void **state, size_t memory_max)
{
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
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

/* A byte now and then does not extend the deadline. */
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

/* A large request may take longer: its announced or received size counts. */
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

/* --- unsent output --- */

/* A peer that has requested @size bytes, and reads nothing yet. */
static int reader_new(struct fixture *f, size_t size)
{
    int fd = peer_new(f->server, 1 << 16);
    assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
    put_set(&f->bytes, "/value", filler(size));
    put_get(&f->bytes, "/value");
    send_all(f, fd);
    return fd;
}

/* A client may end its own wait: the answer to that comes in its turn. */
static void replies_keep_their_order(void **state)
{
    struct fixture *f = *state;
    uint8_t replies[9 + 1];
    int fd = client_new(f);
    put_set(&f->bytes, "/a", mst_bytes_str("x"));
    put_get(&f->bytes, "/a");
    const struct mst__command wait = {.op = MST_OP_WAIT, .count = 1};
    put_command(&f->bytes, &wait);
    assert_int_equal(mst__buf_append_str(&f->bytes, mst_bytes_str("/k")), 0);
    put_set(&f->bytes, "/k", mst_bytes_str("v"));
    send_all(f, fd);
    peer_receive(f->server, fd, replies, sizeof replies);
    static const uint8_t wanted[] = {1, 0, 0, 0, 0, 0, 0, 0, 'x', 0};
    assert_memory_equal(replies, wanted, sizeof wanted);
    (void)close(fd);
}

/* A peer that reads its replies slowly gets all of them. */
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

/* A peer that reads next to nothing does not. */
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

/* Read @size bytes, which are all that come. */
static void stream_await(struct fixture *f, int fd, size_t size)
{
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    for (size_t got = 0; got < size;) {
        ssize_t some = peer_drain(fd, size - got);
        assert_true(some >= 0);
        got += (size_t)some;
        turn(f->server);
        assert_true(mst__clock_ms() < end_ms);
    }
    settle(f->server);
    assert_int_equal(peer_drain(fd, 1), 0);
}

/* A peer that was slow and has caught up has the whole time again. */
static void earlier_slowness_is_forgotten(void **state)
{
    struct fixture *f = *state;
    const size_t size = MST_MIB(8);
    int fd = reader_new(f, size);
    pass_ms(f->server, 1); /* what the kernel takes is no slowness */
    for (int i = 0; i < 2; i++) {
        pass_ms(f->server, TIMEOUT_MS - MARGIN_MS);
        assert_int_equal(f->server->conns_count, 1);
        stream_await(f, fd, size + 8);
        put_get(&f->bytes, "/value");
        send_all(f, fd);
        pass_ms(f->server, 1);
    }
    (void)close(fd);
}

static void silent_reader_has_its_time(void **state)
{
    struct fixture *f = *state;
    int fd = reader_new(f, MST_MIB(8));
    pass_ms(f->server, TIMEOUT_MS - MARGIN_MS);
    assert_int_equal(f->server->conns_count, 1);
    pass_ms(f->server, 5 * TIMEOUT_MS); /* bytes that the kernel still moves count as read */
    pass_ms(f->server, TIMEOUT_MS);
    assert_int_equal(f->server->conns_count, 0);
    assert_int_equal(closed_for(f, MST_WHY_DOES_NOT_READ), 1);
    (void)close(fd);
}

/* --- framed connections --- */

static void put_status(struct mst__buf *output)
{
    const struct mst__job_message message = {.type = MST_JOB_STATUS,
                                             .u.question = {.run_id = mst_bytes_str("none")}};
    put_message(output, &message);
}

/* A node that does not read much. */
static int slow_node_new(struct fixture *f)
{
    int fd = peer_new(f->server, 1 << 16);
    put_greeting(&f->bytes);
    send_all(f, fd);
    return fd;
}

/* A client of the store that does not read yet and has sent the gathered bytes. */
static int slow_client_new(struct fixture *f)
{
    struct mst__buf requests = f->bytes;
    mst__buf_init(&f->bytes, MST_MIB(80));
    assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
    assert_int_equal(mst__buf_append(&f->bytes, mst__buf_bytes(&requests)), 0);
    mst__buf_close(&requests);
    int fd = peer_new(f->server, 1 << 16);
    send_all(f, fd);
    return fd;
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

/* Many want one value, which is there once; it can be replaced meanwhile. */
static void values_are_shared(void **state)
{
    struct fixture *f = *state;
    enum { CLIENTS = 30 };
    const size_t size = MST_MIB(7);
    set_value(f, size);
    size_t before = f->server->kv.memory_used;
    int fds[CLIENTS];
    for (size_t i = 0; i < CLIENTS; i++) {
        put_get(&f->bytes, "/value");
        fds[i] = slow_client_new(f);
    }
    assert_true(f->server->kv.memory_used < size + MST_MIB(1));
    for (size_t i = 0; i < CLIENTS; i++) {
        stream_await(f, fds[i], size + 8);
    }
    assert_int_equal(f->server->conns_count, CLIENTS);
    for (size_t i = 0; i < CLIENTS; i++) {
        (void)close(fds[i]);
    }
    settle(f->server);
    assert_int_equal(f->server->kv.memory_used, before);
}

/* The values of a MULTI_GET together are a message: more than its limit end the connection. */
static void values_together_have_a_limit(void **state)
{
    struct fixture *f = *state;
    const size_t size = MST_KIB(10);
    f->server->wire_limits.message_size_max = 3 * (size + 8);
    set_value(f, size);
    for (uint64_t count = 3; count <= 4; count++) {
        struct mst__buf items;
        mst__buf_init(&items, 1024);
        for (uint64_t i = 0; i < count; i++) {
            assert_int_equal(mst__buf_append_str(&items, mst_bytes_str("/value")), 0);
        }
        const struct mst__command command = {
            .op = MST_OP_MULTI_GET, .count = count, .items = mst__buf_bytes(&items)};
        int fd = peer_new(f->server, 0);
        assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
        put_command(&f->bytes, &command);
        send_all(f, fd);
        if (count == 3) {
            stream_await(f, fd, 3 * (size + 8));
        }
        settle(f->server);
        assert_int_equal(f->server->conns_count, count == 3 ? 1 : 0);
        assert_int_equal(closed_for(f, MST_WHY_LIMIT), count == 3 ? 0 : 1);
        (void)close(fd);
        settle(f->server);
        mst__buf_close(&items);
    }
}

/* Requests to the store in frames are refused one by one, and the node stays. */
static void store_frames_are_refused(void **state)
{
    struct fixture *f = *state;
    int fd = slow_node_new(f);
    struct mst__buf requests;
    mst__buf_init(&requests, 1024);
    put_set(&requests, "/key", filler(40));
    const struct mst__job_message stores[] = {
        {.type = MST_JOB_STORE, .u.text = mst__buf_bytes(&requests)},
        {.type = MST_JOB_STORE, .u.text = mst_bytes_of("", 0)},
    };
    put_message(&f->bytes, &stores[0]);
    put_message(&f->bytes, &stores[1]);
    put_status(&f->bytes);
    send_all(f, fd);
    assert_int_equal(frame_await(f, fd), MST_JOB_STORE_END);
    assert_int_equal(frame_await(f, fd), MST_JOB_STORE_END);
    assert_int_equal(frame_await(f, fd), MST_JOB_REFUSED);
    assert_int_equal(f->server->conns_count, 1);
    assert_int_equal(f->server->kv.keys_count, 0);
    mst__buf_close(&requests);
    (void)close(fd);
}

/* Nothing of the store comes between messages: a client that waits for keys cannot begin with
 * messages. */
static void frames_are_not_mixed_with_replies(void **state)
{
    struct fixture *f = *state;
    const struct mst__command wait = {
        .op = MST_OP_WAIT_CHANGE, .key = mst_bytes_str("/never"), .value = mst_bytes_str("")};
    put_command(&f->bytes, &wait);
    assert_int_equal(mst__buf_append_u8(&f->bytes, MST_WIRE_OPCODE_JOB), 0);
    int fd = slow_client_new(f);
    assert_true(peer_is_closed(f->server, fd));
    assert_int_equal(closed_for(f, MST_WHY_PROTOCOL), 1);
    (void)close(fd);
}

/* Messages whose answers are not read wait: their cost has a bound. */
static void deaf_node_is_not_read(void **state)
{
    struct fixture *f = *state;
    int fd = slow_node_new(f);
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
        assert_true(conn->output.pending <= MST_TOLD_SIZE_MAX + MST_FLUSH_SIZE + MST_KIB(1));
        assert_true(mst__clock_ms() < end_ms);
    }
    assert_true(conn->output.pending > MST_TOLD_SIZE_MAX);
    while (peer_drain(fd, SIZE_MAX) > 0 || mst__conn_has_output(conn)) {
        settle(f->server);
        assert_true(mst__clock_ms() < end_ms);
    }
    assert_true(conn->is_reading);
    (void)close(fd);
}

/* --- who is cut off --- */

/* A client of dialect A that watches /value. */
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
            pending_max = conn->output.pending > pending_max ? conn->output.pending : pending_max;
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

/* Every counted byte of unsent output is discharged, with the cost of keeping it. */
static void sent_output_costs_nothing(void **state)
{
    struct fixture *f = *state;
    set_value(f, MST_KIB(48)); /* is copied */
    size_t before = f->server->kv.memory_used;
    for (size_t i = 0; i < 200; i++) {
        put_get(&f->bytes, "/value");
    }
    int fd = slow_client_new(f);
    assert_true(f->server->kv.memory_used > before);
    stream_await(f, fd, 200 * (MST_KIB(48) + 8));
    assert_int_equal(f->server->conns_count, 1);
    assert_int_equal(f->server->kv.memory_used, before);
    (void)close(fd);
}

/* The memory of a connection is counted as the system grants it: with its overhead, in pages. */
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
                         mst__slab_cost(f->server->conns->input.capacity));
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
                       .announcement = {.name = mst_bytes_str("node"),
                                        .incarnation = 1,
                                        .session = 1,
                                        .expiry_us = expiry_us,
                                        .nodes_min = 2,
                                        .nodes_max = 2,
                                        .pinned_rank = MST_AUTHORITY_RANK_NONE}}};
}

/* A node cannot prevent for ever that nodes of its run are lost. */
static void silence_has_a_limit(void **state)
{
    struct fixture *f = *state;
    const int64_t refused[] = {0, MST_JOB_EXPIRY_US_MAX + 1, INT64_MAX};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        int fd = slow_node_new(f);
        const struct mst__job_message announce = announcement(refused[i]);
        put_message(&f->bytes, &announce);
        send_all(f, fd);
        assert_int_equal(frame_await(f, fd), MST_JOB_REFUSED);
        assert_int_equal(mst__map_count(&f->server->jobs.map), 0);
        (void)close(fd);
    }
    int fd = slow_node_new(f);
    const struct mst__job_message announce = announcement(MST_JOB_EXPIRY_US_MAX);
    put_message(&f->bytes, &announce);
    send_all(f, fd);
    assert_int_equal(frame_await(f, fd), MST_JOB_WELCOME);
    (void)close(fd);
}

/* Silence ends a plain connection, but not one that waits, nor a member of a job. */
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
    int node = slow_node_new(f);
    const struct mst__job_message announce = announcement(3000000000);
    put_message(&f->bytes, &announce);
    send_all(f, node);
    int stranger = slow_node_new(f); /* framed, but of no job */
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

/* Emptying a server whose loop does not run fails. Later writes stay. */
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

/* --- without descriptors --- */

enum { TURNED_AWAY = 20 };

static void count_line(void *arg, enum mst_log_level level, const char *line)
{
    size_t *count = arg;
    (void)level;
    *count += strncmp(line, "ev=accept.failed ", 17) == 0 ? 1 : 0;
}

/* Every client that cannot be accepted is turned away, not only the first; the log says so once a
 * second. */
static void turned_away(void **state)
{
    struct fixture *f = *state;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)mst_server_port(f->server)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fds[TURNED_AWAY];
    static size_t lines; /* the server writes more at its end */
    struct rlimit before;
    f->server->options.log = (struct mst_log){.fn = count_line, .arg = &lines};
    for (size_t i = 0; i < TURNED_AWAY; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fds[i] >= 0);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = {.rlim_cur = (rlim_t)dup(fds[0]), .rlim_max = before.rlim_max};
    assert_int_equal(close((int)none.rlim_cur), 0);
    int64_t begin_ms = mst__clock_ms();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (size_t i = 0; i < TURNED_AWAY; i++) {
        assert_int_equal(connect(fds[i], (const struct sockaddr *)&to, sizeof to), 0);
        assert_int_equal(fcntl(fds[i], F_SETFL, O_NONBLOCK), 0);
    }
    for (int i = 0; i < 10 * TURNED_AWAY; i++) {
        turn(f->server);
    }
    int64_t took_ms = mst__clock_ms() - begin_ms;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(f->server->conns_count, 0);
    for (size_t i = 0; i < TURNED_AWAY; i++) {
        assert_int_equal(peer_drain(fds[i], 1), -1);
        (void)close(fds[i]);
    }
    assert_in_range(lines, 1, (size_t)took_ms / 1000 + 1);
    int fd = client_new(f); /* as soon as there are some again */
    assert_int_equal(f->server->conns_count, 1);
    (void)close(fd);
}

/* A server is up only if it listens on all that it was told to. */
static void every_address_is_needed(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "192.0.2.1", "127.0.0.2"};
    struct mst_server_options options;
    struct mst_server *server = NULL;
    struct mst_err err = {0};
    (void)state;
    mst_server_options_init(&options, sizeof options);
    options.hosts = hosts;
    options.hosts_count = sizeof hosts / sizeof hosts[0];
    assert_int_equal(mst_server_new(&options, &server, &err), MST_ESYS);
    assert_int_equal(err.sys, EADDRNOTAVAIL);
    assert_non_null(strstr(err.msg, "192.0.2.1"));
    assert_null(server);
}

#ifdef MST_WITH_HTTP

/* --- the page --- */

static int fixture_open_page(void **state)
{
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    options.http_address = "127.0.0.1:0";
    return fixture_new(state, &options);
}

/* A scraper that comes back in time keeps its connection: each request has its own deadline. */
static void scraper_keeps_its_connection(void **state)
{
    static const char request[] = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    struct fixture *f = *state;
    unsigned port = 0;
    assert_int_equal(sscanf(mst_server_http_address(f->server), "127.0.0.1:%u", &port), 1);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    for (int i = 0; i < 4; i++) {
        char answer[1024];
        size_t size = 0;
        int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
        peer_send(f->server, fd, mst_bytes_str(request));
        do {
            ssize_t got = recv(fd, answer + size, sizeof answer - 1 - size, 0);
            assert_true(got > 0 || (got < 0 && errno == EAGAIN));
            size += got > 0 ? (size_t)got : 0;
            answer[size] = '\0';
            turn(f->server);
            assert_true(mst__clock_ms() < end_ms);
        } while (strstr(answer, "\r\n\r\nok\n") == NULL);
        f->server->ahead_ms += 6000; /* of ten seconds */
        settle(f->server);
    }
    (void)close(fd);
}

#endif /* MST_WITH_HTTP */

#define CASE_SMALL(name) cmocka_unit_test_setup_teardown(name, fixture_open_small, fixture_close)
#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(request_has_a_deadline),
        CASE(deadline_is_of_each_request),
        CASE(deadline_grows_with_the_request),
        CASE(slow_reader_is_served),
        CASE(trickling_reader_is_not),
        CASE(replies_keep_their_order),
        CASE(earlier_slowness_is_forgotten),
        CASE(silent_reader_has_its_time),
        CASE_SMALL(values_are_shared),
        CASE_SMALL(values_together_have_a_limit),
        CASE(store_frames_are_refused),
        CASE(frames_are_not_mixed_with_replies),
        CASE(deaf_node_is_not_read),
        CASE(unread_notices_are_bounded),
        CASE(sent_output_costs_nothing),
        CASE(own_buffers_cost_what_they_take),
        CASE(silence_has_a_limit),
        CASE(idle_timeout_spares_members),
        CASE(emptying_has_a_deadline),
        CASE(turned_away),
        cmocka_unit_test(every_address_is_needed),
#ifdef MST_WITH_HTTP
        cmocka_unit_test_setup_teardown(scraper_keeps_its_connection, fixture_open_page,
                                        fixture_close),
#endif
    };
    return MST_RUN_TESTS(tests);
}
