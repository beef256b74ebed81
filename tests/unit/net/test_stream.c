/* unit/net/test_stream.c - streams, and which of many are ready. */
#include "net/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/until.h"
#include "net/client.h"
#include "net/poller.h"
#include "unit/unit.h"

/* --- streams --- */

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static struct mst__stream listener_new(int *ret_port)
{
    struct sockaddr_in any = loopback(0);
    struct mst__stream listener;
    char text[MST_ADDRESS_SIZE];
    assert_int_equal(
        mst__stream_listen((const struct sockaddr *)&any, sizeof any, false, &listener), 0);
    assert_int_equal(mst__stream_local(&listener, text, ret_port), 0);
    assert_true(*ret_port > 0);
    assert_memory_equal(text, "127.0.0.1:", 10);
    return listener;
}

static int connect_to(int port, struct mst__stream *ret_stream)
{
    struct sockaddr_in to = loopback(port);
    return mst__stream_connect((const struct sockaddr *)&to, sizeof to, ret_stream);
}

static void await_ready(const struct mst__stream *stream, bool reads)
{
    struct pollfd pollfd = {.fd = stream->fd, .events = mst__stream_events(stream, reads, !reads)};
    assert_int_equal(poll(&pollfd, 1, 10000), 1);
}

/* Both ends of a connection. */
static void pair_new(struct mst__stream *ret_client, struct mst__stream *ret_server)
{
    int port = 0;
    struct mst__stream listener = listener_new(&port);
    struct mst__stream_name peer;
    char peer_text[MST_ADDRESS_SIZE];
    char local_text[MST_ADDRESS_SIZE];
    assert_int_equal(mst__stream_accept(&listener, ret_server, &peer), -EAGAIN);
    assert_int_equal(connect_to(port, ret_client), 0);
    await_ready(ret_client, false);
    assert_int_equal(mst__stream_connected(ret_client), 0);
    await_ready(&listener, true);
    assert_int_equal(mst__stream_accept(&listener, ret_server, &peer), 0);
    mst__stream_name_format(&peer, peer_text);
    assert_int_equal(mst__stream_local(ret_client, local_text, &port), 0);
    assert_string_equal(peer_text, local_text);
    mst__stream_close(&listener);
    mst__stream_close(&listener); /* again is fine */
}

/* A client whose source port happens to be the port that it calls: there is no server. */
static void connected_to_itself(void **state)
{
    (void)state;
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    struct mst__stream stream = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_true(stream.fd >= 0);
    assert_int_equal(bind(stream.fd, (const struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(stream.fd, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(connect(stream.fd, (const struct sockaddr *)&address, size), 0);
    await_ready(&stream, false);
    assert_int_equal(mst__stream_connected(&stream), -ECONNREFUSED);
    mst__stream_close(&stream);
}

/* A peer whose machine is gone without a word is noticed in the end, at both ends. */
static void dead_peers_are_noticed(void **state)
{
    (void)state;
    struct mst__stream ends[2];
    pair_new(&ends[0], &ends[1]);
    for (size_t i = 0; i < 2; i++) {
        int keeps_alive = 0;
        socklen_t size = sizeof keeps_alive;
        assert_int_equal(getsockopt(ends[i].fd, SOL_SOCKET, SO_KEEPALIVE, &keeps_alive, &size), 0);
        assert_int_equal(keeps_alive, 1);
        mst__stream_close(&ends[i]);
    }
}

/* A socket that another process has opened: it does not block, and no child keeps it. */
static void given_listener(void **state)
{
    (void)state;
    struct sockaddr_in any = loopback(0);
    struct mst__stream listener = {.fd = -1};
    struct mst__stream accepted = {.fd = -1};
    struct mst__stream_name peer;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&any, sizeof any), 0);
    assert_int_equal(mst__stream_listen_fd(fd, &listener), 0);
    assert_int_equal(listener.fd, fd);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(mst__stream_accept(&listener, &accepted, &peer), -EAGAIN);
    mst__stream_close(&listener);
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(mst__stream_listen_fd(fd, &listener), -EPROTOTYPE);
    assert_int_equal(close(fd), 0);
}

/* A read returns all there is, and reports when there is nothing, and the end. */
static void reading(void **state)
{
    (void)state;
    struct mst__stream client;
    struct mst__stream server;
    char bytes[16];
    pair_new(&client, &server);
    assert_int_equal(mst__stream_read(&server, bytes, sizeof bytes), -EAGAIN);
    assert_int_equal(mst__stream_has_input(&server), 0);
    assert_int_equal(mst__stream_write(&client, mst_bytes_str("hello")), 5);
    await_ready(&server, true);
    assert_int_equal(mst__stream_has_input(&server), 1);
    assert_int_equal(mst__stream_read(&server, bytes, sizeof bytes), 5);
    assert_memory_equal(bytes, "hello", 5);
    assert_int_equal(mst__stream_end(&client, false), 0);
    await_ready(&server, true);
    assert_int_equal(mst__stream_has_input(&server), -EPIPE);
    assert_int_equal(mst__stream_read(&server, bytes, sizeof bytes), 0);
    /* The other direction goes on. */
    assert_int_equal(mst__stream_write(&server, mst_bytes_str("bye")), 3);
    await_ready(&client, true);
    assert_int_equal(mst__stream_read(&client, bytes, sizeof bytes), 3);
    mst__stream_close(&client);
    mst__stream_close(&server);
}

/* A write reports how much was not taken and how much has not arrived; a closed peer raises no
 * signal. */
static void writing(void **state)
{
    (void)state;
    struct mst__stream client;
    struct mst__stream server;
    static uint8_t memory[1 << 20];
    struct mst_bytes bytes = mst_bytes_of(memory, sizeof memory);
    pair_new(&client, &server);
    ssize_t took;
    size_t total = 0;
    while ((took = mst__stream_write(&server, bytes)) > 0) {
        total += (size_t)took;
    }
    assert_int_equal(took, -EAGAIN);
    assert_in_range(mst__stream_unsent(&server), 1, total);
    ssize_t got = mst__stream_read(&client, memory, sizeof memory);
    assert_true(got > 0);
    mst__stream_close(&client); /* with something unread: a reset */
    await_ready(&server, true);
    while ((took = mst__stream_write(&server, bytes)) > 0) {
    }
    assert_true(took == -ECONNRESET || took == -EPIPE);
    mst__stream_close(&server);
}

static void refusals(void **state)
{
    (void)state;
    int port = 0;
    struct mst__stream listener = listener_new(&port);
    struct sockaddr_in taken = loopback(port);
    struct mst__stream stream;
    assert_int_equal(
        mst__stream_listen((const struct sockaddr *)&taken, sizeof taken, false, &stream),
        -EADDRINUSE);
    mst__stream_close(&listener);
    int rv = connect_to(port, &stream);
    if (rv == 0) {
        await_ready(&stream, false);
        rv = mst__stream_connected(&stream);
        mst__stream_close(&stream);
    }
    assert_int_equal(rv, -ECONNREFUSED);
    int datagrams = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(mst__stream_listen_fd(datagrams, &stream), -EPROTOTYPE);
    assert_int_equal(close(datagrams), 0);
    assert_int_equal(mst__stream_listen_fd(datagrams, &stream), -EBADF);
}

/* A client does not wait for bytes that a full read may have left where a poll does not look. */
static void full_read_is_repeated(void **state)
{
    (void)state;
    struct mst__client client = {0};
    struct mst__stream server;
    static uint8_t memory[MST_KIB(8)];
    mst__buf_init(&client.input, MST_KIB(64));
    pair_new(&client.stream, &server);
    struct mst__until now = mst__until_in(0);
    assert_int_equal(mst__client_wait(&client, true, false, now, NULL), MST_ETIMEOUT);
    assert_int_equal(mst__stream_write(&server, mst_bytes_of(memory, sizeof memory)),
                     sizeof memory);
    await_ready(&client.stream, true);
    assert_int_equal(mst__client_read(&client, sizeof memory, NULL), 0);
    assert_int_equal(mst__buf_size(&client.input), sizeof memory);
    assert_int_equal(mst__client_wait(&client, true, false, now, NULL), 0);
    assert_int_equal(mst__client_read(&client, 0, NULL), 0); /* there is nothing after all */
    assert_int_equal(mst__client_wait(&client, true, false, now, NULL), MST_ETIMEOUT);
    mst__client_close(&client);
    mst__stream_close(&server);
}

/* --- which of many are ready --- */

enum { STREAMS = 400 };

struct run;

struct item {
    struct mst__polled polled; /* first */
    struct run *run;
    struct mst__stream other;
    unsigned served;
};

struct run {
    uv_loop_t loop;
    struct mst__poller poller;
    struct item items[STREAMS];
    unsigned served;     /* in this turn */
    unsigned served_max; /* in a turn */
    struct item *victim; /* closed by the next one served; NULL = none */
};

static bool is_over(void *arg)
{
    const struct run *run = arg;
    return run->served >= run->served_max;
}

static void on_item(struct mst__polled *polled, bool can_read, bool can_write)
{
    struct item *item = (struct item *)polled;
    struct run *run = item->run;
    assert_true(polled->stream.fd >= 0);
    assert_true(can_read || can_write);
    assert_true(!can_read || polled->wants_read);
    assert_true(!can_write || polled->wants_write);
    item->served++;
    run->served++;
    if (run->victim != NULL && run->victim != item) {
        mst__polled_close(&run->poller, &run->victim->polled);
        run->victim = NULL;
    }
}

static void turn(struct run *run)
{
    run->served = 0;
    (void)uv_run(&run->loop, UV_RUN_NOWAIT);
}

static struct run *run_new(unsigned served_max)
{
    struct run *run = mst__calloc(1, sizeof *run);
    assert_non_null(run);
    run->served_max = served_max;
    assert_int_equal(uv_loop_init(&run->loop), 0);
    assert_int_equal(mst__poller_open(&run->poller, &run->loop, is_over, run), 0);
    for (size_t i = 0; i < STREAMS; i++) {
        struct item *item = &run->items[i];
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
                         0);
        item->polled = (struct mst__polled){.on_ready = on_item, .stream = {.fd = fds[0]}};
        item->other.fd = fds[1];
        item->run = run;
        assert_int_equal(mst__polled_want(&run->poller, &item->polled, true, false), 0);
    }
    return run;
}

static void run_free(struct run *run)
{
    for (size_t i = 0; i < STREAMS; i++) {
        mst__polled_close(&run->poller, &run->items[i].polled);
        mst__stream_close(&run->items[i].other);
    }
    mst__poller_stop(&run->poller);
    assert_int_equal(uv_run(&run->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&run->loop), 0);
    assert_int_equal(run->poller.count, 0);
    mst__poller_close(&run->poller);
    mst__free(run);
}

static void make_readable(struct run *run, size_t index)
{
    assert_int_equal(mst__stream_write(&run->items[index].other, mst_bytes_str("x")), 1);
}

/* No stream is served twice before every ready one was served, over any number of turns,
 * although all stay ready. */
static void turns_are_short_and_fair(void **state)
{
    (void)state;
    struct run *run = run_new(1);
    for (size_t i = 0; i < STREAMS; i++) {
        make_readable(run, i);
    }
    for (unsigned round = 1; round <= 3; round++) {
        unsigned turns = 0;
        do {
            turn(run);
            assert_in_range(run->served, 1, 256);
            turns++;
        } while (mst__poller_has_more(&run->poller));
        assert_true(turns > 1);
        for (size_t i = 0; i < STREAMS; i++) {
            assert_int_equal(run->items[i].served, round);
        }
    }
    run_free(run);
}

/* Ready streams are gone: the round ends although not all were served. */
static void round_ends_without_the_rest(void **state)
{
    (void)state;
    struct run *run = run_new(1);
    for (size_t i = 0; i < STREAMS; i++) {
        make_readable(run, i);
    }
    turn(run);
    assert_true(mst__poller_has_more(&run->poller));
    for (size_t i = 0; i < STREAMS; i++) {
        mst__polled_close(&run->poller, &run->items[i].polled);
    }
    assert_false(mst__poller_has_more(&run->poller));
    run_free(run);
}

/* A stream that is closed while ready is not served. */
static void closed_meanwhile(void **state)
{
    (void)state;
    struct run *run = run_new(UINT32_MAX);
    make_readable(run, 1);
    make_readable(run, 2);
    run->victim = &run->items[2];
    turn(run);
    assert_int_equal(run->items[1].served + run->items[2].served, 1);
    assert_null(run->victim);
    run_free(run);
}

/* A stream that does not want to read is left alone, and does not keep the loop awake. */
static void not_wanted(void **state)
{
    (void)state;
    struct run *run = run_new(UINT32_MAX);
    struct item *item = &run->items[0];
    struct pollfd loop = {.fd = uv_backend_fd(&run->loop), .events = POLLIN};
    assert_int_equal(mst__polled_want(&run->poller, &item->polled, false, false), 0);
    make_readable(run, 0);
    turn(run);
    mst__stream_close(&item->other); /* it would be reported without a request */
    turn(run);
    assert_int_equal(item->served, 0);
    assert_int_equal(poll(&loop, 1, 0), 0);
    /* To write is another matter. */
    assert_int_equal(mst__polled_want(&run->poller, &item->polled, false, true), 0);
    turn(run);
    assert_int_equal(item->served, 1);
    assert_int_equal(mst__polled_want(&run->poller, &item->polled, true, false), 0);
    turn(run);
    assert_int_equal(item->served, 2);
    run_free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connected_to_itself),
        cmocka_unit_test(dead_peers_are_noticed),
        cmocka_unit_test(given_listener),
        cmocka_unit_test(reading),
        cmocka_unit_test(writing),
        cmocka_unit_test(refusals),
        cmocka_unit_test(full_read_is_repeated),
        cmocka_unit_test(turns_are_short_and_fair),
        cmocka_unit_test(round_ends_without_the_rest),
        cmocka_unit_test(closed_meanwhile),
        cmocka_unit_test(not_wanted),
    };
    return MST_RUN_TESTS(tests);
}
