/* unit/net/conn_unit.h - a real server without a thread: tests run the turns of its loop and
 * advance its clock; peers are sockets of the same thread. */
#ifndef MST_UNIT_CONN_UNIT_H
#define MST_UNIT_CONN_UNIT_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <muster/server.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "net/conn.h"
#include "unit/unit.h"
#include "wire/wire.h"

/* How long anything that should come soon may take, of the real clock. */
#define PATIENCE_MS 20000

static inline struct mst_server *unit_server_new(const struct mst_server_options *options)
{
    static const char *const hosts[] = {"127.0.0.1"};
    struct mst_server_options own = *options;
    struct mst_server *server = NULL;
    own.hosts = hosts;
    own.hosts_count = 1;
    own.log = (struct mst_log){0};
    assert_int_equal(mst_server_new(&own, &server, NULL), 0);
    return server;
}

static inline void turn(struct mst_server *server)
{
    (void)uv_run(&server->loop, UV_RUN_NOWAIT);
}

/* Take turns until the loop has nothing to do at once. */
static inline void settle(struct mst_server *server)
{
    for (unsigned quiet = 0, i = 0; quiet < 3; i++) {
        assert_true(i < 1000000);
        struct pollfd loop = {.fd = uv_backend_fd(&server->loop), .events = POLLIN};
        quiet = poll(&loop, 1, 0) == 0 && uv_backend_timeout(&server->loop) != 0 ? quiet + 1 : 0;
        turn(server);
    }
}

/* Advance the clock; the server looks for overdue work. */
static inline void pass_ms(struct mst_server *server, int64_t ms)
{
    server->ahead_ms += ms;
    (void)mst__conns_sweep(server, mst__server_now_ms(server));
    settle(server);
}

/* A peer. @receive_size of 0 leaves the kernel's buffer as it is. */
static inline int peer_new(struct mst_server *server, int receive_size)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)mst_server_port(server)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (receive_size > 0) {
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_size, sizeof receive_size),
                         0);
    }
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    settle(server);
    return fd;
}

static inline void peer_send(struct mst_server *server, int fd, struct mst_bytes bytes)
{
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    while (bytes.size > 0) {
        ssize_t sent = send(fd, bytes.data, bytes.size, MSG_NOSIGNAL);
        assert_true(sent > 0 || errno == EAGAIN);
        bytes = mst__bytes_skip(bytes, sent > 0 ? (size_t)sent : 0);
        turn(server);
        assert_true(mst__clock_ms() < end_ms);
    }
}

/* Up to @size bytes that are there, thrown away. Returns how many, or -1 when the connection has
 * ended. */
static inline ssize_t peer_drain(int fd, size_t size)
{
    static uint8_t memory[1 << 16];
    size_t got = 0;
    while (got < size) {
        size_t room = size - got < sizeof memory ? size - got : sizeof memory;
        ssize_t rv = recv(fd, memory, room, 0);
        if (rv <= 0) {
            return rv < 0 && errno == EAGAIN ? (ssize_t)got : -1;
        }
        got += (size_t)rv;
    }
    return (ssize_t)got;
}

/* Exactly @size bytes. */
static inline void peer_receive(struct mst_server *server, int fd, void *ret_bytes, size_t size)
{
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    size_t got = 0;
    while (got < size) {
        ssize_t rv = recv(fd, (uint8_t *)ret_bytes + got, size - got, 0);
        assert_true(rv > 0 || (rv < 0 && errno == EAGAIN));
        got += rv > 0 ? (size_t)rv : 0;
        turn(server);
        assert_true(mst__clock_ms() < end_ms);
    }
}

/* The connection has ended; bytes before the end are dropped. */
static inline bool peer_is_closed(struct mst_server *server, int fd)
{
    settle(server);
    return peer_drain(fd, SIZE_MAX) < 0;
}

/* --- requests --- */

/* @command of dialect C appended to @output. */
static inline void put_command(struct mst__buf *output, const struct mst__command *command)
{
    assert_int_equal(mst__wire_write_request(output, MST_DIALECT_C, command), 0);
}

static inline void put_set(struct mst__buf *output, const char *key, struct mst_bytes value)
{
    const struct mst__command command = {
        .op = MST_OP_SET, .key = mst_bytes_str(key), .value = value};
    put_command(output, &command);
}

static inline void put_get(struct mst__buf *output, const char *key)
{
    const struct mst__command command = {.op = MST_OP_GET, .key = mst_bytes_str(key)};
    put_command(output, &command);
}

static inline void put_message(struct mst__buf *output, const struct mst__job_message *message)
{
    assert_int_equal(mst__job_write(output, message), 0);
}

/* The greeting of a node, after which the connection is framed. */
static inline void put_greeting(struct mst__buf *output)
{
    assert_int_equal(mst__wire_write_validate(output), 0);
    assert_int_equal(mst__buf_append_u8(output, MST_WIRE_OPCODE_JOB), 0);
}

/* The fixture of most tests: a server, and bytes gathered for it. */
struct fixture {
    struct mst_server *server;
    struct mst__buf bytes; /* to be sent */
};

static inline int fixture_new(void **state, const struct mst_server_options *options)
{
    static struct fixture f;
    f.server = unit_server_new(options);
    mst__buf_init(&f.bytes, MST_MIB(80));
    *state = &f;
    return 0;
}

static inline int fixture_close(void **state)
{
    struct fixture *f = *state;
    mst_server_free(f->server);
    mst__buf_close(&f->bytes);
    return 0;
}

static inline void send_all(struct fixture *f, int fd)
{
    peer_send(f->server, fd, mst__buf_bytes(&f->bytes));
    mst__buf_clear(&f->bytes);
    settle(f->server);
}

/* --- clients and nodes --- */

static inline int client_new(struct fixture *f)
{
    int fd = peer_new(f->server, 0);
    assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
    send_all(f, fd);
    return fd;
}

static inline int node_new(struct fixture *f)
{
    int fd = peer_new(f->server, 0);
    put_greeting(&f->bytes);
    send_all(f, fd);
    return fd;
}

/* The next frame; its texts are valid until the next call. */
static inline void frame_read(struct fixture *f, int fd, struct mst__job_message *ret_message)
{
    static uint8_t frame[MST_JOB_SIZE_MAX + MST_JOB_HEAD_SIZE];
    struct mst_err err;
    size_t size = MST_JOB_HEAD_SIZE;
    peer_receive(f->server, fd, frame, size);
    assert_in_range(mst__load_u32(frame), 1, MST_JOB_SIZE_MAX);
    size_t rest = mst__load_u32(frame) - 1;
    peer_receive(f->server, fd, frame + size, rest);
    struct mst_bytes bytes = mst_bytes_of(frame, size + rest);
    assert_int_equal(mst__job_read(bytes, MST_JOB_SIZE_MAX, ret_message, &size, &err), 1);
    assert_int_equal(size, bytes.size);
}

/* The type of the next frame. */
static inline uint8_t frame_await(struct fixture *f, int fd)
{
    struct mst__job_message message;
    frame_read(f, fd, &message);
    return (uint8_t)message.type;
}

/* Send f->bytes through each of @fds; nothing of it is read yet. */
static inline void send_unread(struct fixture *f, const int *fds, size_t count)
{
    struct mst_bytes bytes = mst__buf_bytes(&f->bytes);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(send(fds[i], bytes.data, bytes.size, MSG_NOSIGNAL), bytes.size);
    }
    mst__buf_clear(&f->bytes);
}

static inline void set_keys(struct fixture *f, size_t count)
{
    int fd = client_new(f);
    for (size_t i = 0; i < count; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "/%zu", i);
        put_set(&f->bytes, key, mst_bytes_str("v"));
    }
    send_all(f, fd);
    assert_int_equal(f->server->kv.keys_count, count);
    (void)close(fd);
}

enum { LISTED = 8 * MST_TURN_STEPS };

/* @fd asks for a list of LISTED keys or more, which is begun. */
static inline void list_begin(struct fixture *f, int fd)
{
    const struct mst__command list = {.op = MST_OP_LIST_KEYS};
    put_command(&f->bytes, &list);
    send_unread(f, &fd, 1);
    turn(f->server);
    turn(f->server);
    assert_true(mst__kv_is_listing(&f->server->kv));
}

#endif /* MST_UNIT_CONN_UNIT_H */
