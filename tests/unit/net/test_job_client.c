/* unit/net/test_job_client.c - the bytes with which a node begins a connection to a server, against
 * a socket that knows no more than the protocol's description. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/job_client.h"
#include "unit/store_unit.h"

#define PATIENCE_MS 10000
#define GREETING_SIZE 63

/* The opcode that switches to frames, and a HEARTBEAT; what answers it. */
#define FRAMES_SIZE 7
static const uint8_t frames[FRAMES_SIZE] = {0x42, 2, 0, 0, 0, 2, 1};
static const uint8_t pong[] = {1, 0, 0, 0, 43};

/* A server for one connection, in a thread: it answers the greeting and keeps what it reads. */
struct unit_server {
    int listener;
    uint8_t answer;
    bool has_news; /* it answers the first message */
    pthread_t thread;
    uint8_t bytes[256];
    size_t size;
};

/* Read until there are @size bytes or the peer has closed. */
static void server_read(struct unit_server *server, int conn, size_t size)
{
    ssize_t got = 1;
    while (got > 0 && server->size < size) {
        got = recv(conn, server->bytes + server->size, size - server->size, 0);
        server->size += got > 0 ? (size_t)got : 0;
    }
}

static void *server_run(void *arg)
{
    struct unit_server *server = arg;
    const struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    int conn = accept(server->listener, NULL, NULL);
    if (conn >= 0) {
        (void)setsockopt(conn, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience); /* else late */
        server_read(server, conn, GREETING_SIZE);
        const uint8_t answers[] = {1, server->answer};           /* it tells no refusals */
        (void)send(conn, answers, sizeof answers, MSG_NOSIGNAL); /* the client notices */
        if (server->has_news) {
            server_read(server, conn, GREETING_SIZE + FRAMES_SIZE);
            (void)send(conn, pong, sizeof pong, MSG_NOSIGNAL); /* the client waits for it */
        }
        server_read(server, conn, sizeof server->bytes);
        (void)close(conn);
    }
    return NULL;
}

static struct mst__endpoint listener_open(struct unit_server *server, uint8_t answer)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    socklen_t size = sizeof address;
    *server = (struct unit_server){.answer = answer};
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(server->listener >= 0);
    assert_int_equal(bind(server->listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(server->listener, 1), 0);
    assert_int_equal(
        setsockopt(server->listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(getsockname(server->listener, (struct sockaddr *)&address, &size), 0);
    struct mst__endpoint endpoint = {.port = ntohs(address.sin_port)};
    (void)snprintf(endpoint.host, sizeof endpoint.host, "127.0.0.1");
    return endpoint;
}

static struct mst__endpoint server_start(struct unit_server *server, uint8_t answer)
{
    struct mst__endpoint endpoint = listener_open(server, answer);
    assert_int_equal(pthread_create(&server->thread, NULL, server_run, server), 0);
    return endpoint;
}

static void server_stop(struct unit_server *server)
{
    assert_int_equal(pthread_join(server->thread, NULL), 0);
    assert_int_equal(close(server->listener), 0);
}

/* VALIDATE, and CHECKs of the keys `muster.refusal` and `muster.job`. */
static const uint8_t greeting[GREETING_SIZE] =
    "\x00\xce\xf7\x85\x3c"
    "\x05\x01\x00\x00\x00\x00\x00\x00\x00\x0e\x00\x00\x00\x00\x00\x00\x00muster.refusal"
    "\x05\x01\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00muster.job";

static void opens(void **state)
{
    (void)state;
    struct unit_server server;
    struct mst__endpoint endpoint = server_start(&server, 0);
    struct mst__job_client *client = NULL;
    struct mst__until until = mst__until_at(mst__clock_deadline_ms(PATIENCE_MS));
    assert_int_equal(mst__job_client_open(&endpoint, until, &client, &err), 0);
    const struct mst__job_message message = {.type = MST_JOB_HEARTBEAT,
                                             .u.heartbeat = {.wants_pong = true}};
    assert_int_equal(mst__job_client_send(client, &message, until, &err), 0);
    mst__job_client_close(client);
    server_stop(&server);
    assert_int_equal(server.size, sizeof greeting + sizeof frames);
    assert_memory_equal(server.bytes, greeting, sizeof greeting);
    assert_memory_equal(server.bytes + sizeof greeting, frames, sizeof frames);
}

/* PyTorch's server, or one of before: nothing but the greeting is sent. */
static void is_not_musters(void **state)
{
    (void)state;
    struct unit_server server;
    struct mst__endpoint endpoint = server_start(&server, 1);
    struct mst__job_client *client = NULL;
    struct mst__until until = mst__until_at(mst__clock_deadline_ms(PATIENCE_MS));
    assert_int_equal(mst__job_client_open(&endpoint, until, &client, &err), MST_ENOTSUP);
    assert_null(client);
    server_stop(&server);
    assert_int_equal(server.size, sizeof greeting);
    assert_memory_equal(server.bytes, greeting, sizeof greeting);
}

/* What has arrived is heard, also when the time is over: a process that was stopped learns why. */
static void hears_late(void **state)
{
    (void)state;
    struct unit_server server;
    struct mst__endpoint endpoint = listener_open(&server, 0);
    server.has_news = true;
    assert_int_equal(pthread_create(&server.thread, NULL, server_run, &server), 0);
    struct mst__job_client *client = NULL;
    struct mst__until until = mst__until_in(PATIENCE_MS);
    assert_int_equal(mst__job_client_open(&endpoint, until, &client, &err), 0);
    struct mst__job_message message = {.type = MST_JOB_HEARTBEAT,
                                       .u.heartbeat = {.wants_pong = true}};
    assert_int_equal(mst__job_client_send(client, &message, until, &err), 0);
    while (mst__job_client_is_usable(client)) { /* nothing has arrived */
        assert_false(mst__until_is_over(until));
        (void)sched_yield();
    }
    assert_int_equal(mst__job_client_receive(client, mst__until_at(0), &message, &err), 0);
    assert_int_equal(message.type, MST_JOB_PONG);
    mst__job_client_close(client);
    server_stop(&server);
}

/* A port where somebody takes connections and says nothing costs some seconds, not all the time. */
static void is_mute(void **state)
{
    (void)state;
    struct unit_server server;
    struct mst__endpoint endpoint = listener_open(&server, 0);
    struct mst__job_client *client = NULL;
    struct mst__until until = mst__until_in(3 * PATIENCE_MS);
    int64_t begin_ms = mst__clock_ms();
    assert_int_equal(mst__job_client_open(&endpoint, until, &client, &err), MST_ETIMEOUT);
    assert_null(client);
    assert_in_range(mst__clock_ms() - begin_ms, 0, PATIENCE_MS);
    assert_int_equal(close(server.listener), 0);
}

/* A server that answers the greeting, and reads on only when the client waits for it to. */
struct unit_slow_server {
    struct unit_server common;
    int tid; /* of the client */
    size_t size;
};

static void await_asleep(int tid)
{
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    while (!unit_is_asleep(tid) && mst__clock_ms() < end_ms) {
        (void)sched_yield();
    }
}

static void *slow_server_run(void *arg)
{
    static uint8_t memory[1 << 16];
    struct unit_slow_server *server = arg;
    const struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    const uint8_t answers[] = {1, 0};
    int conn = accept(server->common.listener, NULL, NULL);
    if (conn < 0) {
        return NULL;
    }
    (void)setsockopt(conn, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience); /* else late */
    server_read(&server->common, conn, GREETING_SIZE);
    (void)send(conn, answers, sizeof answers, MSG_NOSIGNAL); /* the client notices */
    server_read(&server->common, conn, GREETING_SIZE + 1);
    (void)send(conn, pong, sizeof pong, MSG_NOSIGNAL); /* nobody reads it */
    await_asleep(server->tid);
    ssize_t got;
    while ((got = recv(conn, memory, sizeof memory, 0)) > 0) {
        server->size += (size_t)got;
    }
    (void)close(conn);
    return NULL;
}

/* Whatever a node has to say to a slow server is sent, and not more of it kept than a little. What
 * the server has said meanwhile does not end the connection before. */
static void sends_to_a_slow_server(void **state)
{
    (void)state;
    enum { MESSAGES = 400 };
    static uint8_t text[60000];
    struct unit_slow_server server = {.tid = (int)syscall(SYS_gettid)};
    struct mst__endpoint endpoint = listener_open(&server.common, 0);
    assert_int_equal(pthread_create(&server.common.thread, NULL, slow_server_run, &server), 0);
    struct mst__job_client *client = NULL;
    struct mst__until until = mst__until_at(mst__clock_deadline_ms(PATIENCE_MS));
    assert_int_equal(mst__job_client_open(&endpoint, until, &client, &err), 0);
    const struct mst__job_message message = {.type = MST_JOB_EXPELLED,
                                             .u.text = mst_bytes_of(text, sizeof text)};
    for (int i = 0; i < MESSAGES; i++) {
        assert_int_equal(mst__job_client_send(client, &message, until, &err), 0);
    }
    mst__job_client_finish(client, until);
    server_stop(&server.common);
    assert_int_equal(server.size, MESSAGES * (MST_JOB_HEAD_SIZE + sizeof text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens),
        cmocka_unit_test(is_not_musters),
        cmocka_unit_test(hears_late),
        cmocka_unit_test(is_mute),
        cmocka_unit_test(sends_to_a_slow_server),
    };
    return MST_RUN_TESTS(tests);
}
