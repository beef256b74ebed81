/* unit/store/tap_unit.c - a relay in front of an etcd. A thread for each connection; requests of
 * one connection do not overlap, so the bytes before the next answer are one request. */
#include "unit/store/tap_unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unit/unit.h"

#define REQUEST_SIZE 65536

/* How soon a thread notices that all is over. */
#define SLICE_MS 20

struct relay {
    struct tap *tap;
    int client, server;
    size_t size; /* of the request so far */
    bool is_chosen;
    bool is_hung;           /* nothing is passed on any more */
    enum tap_action action; /* of a chosen one */
    char request[REQUEST_SIZE];
};

static bool pass_on(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* Check whether the request, as far as it has come, is a chosen one. */
static void choose(struct relay *relay)
{
    struct tap *tap = relay->tap;
    (void)pthread_mutex_lock(&tap->mutex); /* a default mutex: cannot fail */
    relay->is_chosen = tap->count > 0 && memmem(relay->request, relay->size, tap->needle,
                                                strlen(tap->needle)) != NULL;
    relay->action = tap->action;
    tap->count -= relay->is_chosen ? 1 : 0;
    void (*before)(void *arg) = relay->is_chosen ? tap->before : NULL;
    void *arg = tap->before_arg;
    (void)pthread_mutex_unlock(&tap->mutex);
    if (before != NULL) {
        before(arg);
    }
}

/* It has happened. */
static void note_done(struct relay *relay)
{
    (void)pthread_mutex_lock(&relay->tap->mutex);
    relay->tap->pending--;
    (void)pthread_mutex_unlock(&relay->tap->mutex);
}

/* Bytes of the client: false when the connection is to end. */
static bool from_client(struct relay *relay)
{
    char data[16384];
    ssize_t got = recv(relay->client, data, sizeof data, 0);
    if (got <= 0) {
        return false;
    }
    size_t room = sizeof relay->request - relay->size;
    size_t kept = (size_t)got < room ? (size_t)got : room;
    memcpy(relay->request + relay->size, data, kept);
    relay->size += kept;
    if (!relay->is_chosen) {
        choose(relay);
    }
    if (relay->is_chosen && relay->action != TAP_SWALLOW) {
        note_done(relay);
        relay->is_chosen = false;
        if (relay->action == TAP_CUT) {
            return false;
        }
        relay->is_hung = relay->action == TAP_HANG;
    }
    return relay->is_hung || pass_on(relay->server, data, (size_t)got);
}

static bool from_server(struct relay *relay)
{
    char data[16384];
    ssize_t got = recv(relay->server, data, sizeof data, 0);
    relay->size = 0; /* the next bytes are another request */
    if (relay->is_chosen) {
        note_done(relay);
        return false;
    }
    return got > 0 && pass_on(relay->client, data, (size_t)got);
}

static void *run_relay(void *arg)
{
    struct relay *relay = arg;
    bool is_open = relay->server >= 0;
    while (is_open && !atomic_load(&relay->tap->is_ended)) {
        struct pollfd fds[] = {{.fd = relay->client, .events = POLLIN},
                               {.fd = relay->server, .events = POLLIN}};
        if (poll(fds, 2, SLICE_MS) <= 0) {
            continue;
        }
        is_open = fds[1].revents == 0 || from_server(relay);
        is_open = is_open && (fds[0].revents == 0 || from_client(relay));
    }
    (void)close(relay->client); /* its loss is the point */
    if (relay->server >= 0) {
        (void)close(relay->server);
    }
    free(relay);
    return NULL;
}

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int connect_to(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = loopback(port);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        (void)close(fd); /* no server: the client sees a closed connection */
        fd = -1;
    }
    return fd;
}

static void *run_tap(void *arg)
{
    struct tap *tap = arg;
    while (!atomic_load(&tap->is_ended)) {
        struct pollfd listener = {.fd = tap->listener, .events = POLLIN};
        if (poll(&listener, 1, SLICE_MS) <= 0) {
            continue;
        }
        int client = accept4(tap->listener, NULL, NULL, SOCK_CLOEXEC);
        struct relay *relay = calloc(1, sizeof *relay);
        if (client < 0 || relay == NULL || tap->thread_count == TAP_CONNECTIONS_MAX) {
            abort();
        }
        *relay =
            (struct relay){.tap = tap, .client = client, .server = connect_to(tap->target_port)};
        if (pthread_create(&tap->threads[tap->thread_count++], NULL, run_relay, relay) != 0) {
            abort();
        }
    }
    return NULL;
}

void tap_open(struct tap *tap, uint16_t target_port)
{
    memset(tap, 0, sizeof *tap);
    tap->target_port = target_port;
    tap->needle = "";
    atomic_init(&tap->is_ended, false);
    (void)pthread_mutex_init(&tap->mutex, NULL); /* never fails on Linux */
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    tap->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(tap->listener >= 0);
    assert_int_equal(bind(tap->listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(tap->listener, 64), 0);
    assert_int_equal(getsockname(tap->listener, (struct sockaddr *)&address, &size), 0);
    tap->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&tap->thread, NULL, run_tap, tap), 0);
}

static void set(struct tap *tap,
                const char *needle,
                enum tap_action action,
                int count,
                void (*before)(void *arg),
                void *arg)
{
    (void)pthread_mutex_lock(&tap->mutex);
    int pending = tap->pending;
    tap->needle = needle;
    tap->action = action;
    tap->count = count;
    tap->pending = count;
    tap->before = before;
    tap->before_arg = arg;
    (void)pthread_mutex_unlock(&tap->mutex);
    assert_int_equal(pending, 0);
}

void tap_set(struct tap *tap, const char *needle, enum tap_action action, int count)
{
    set(tap, needle, action, count, NULL, NULL);
}

void tap_set_before(struct tap *tap,
                    const char *needle,
                    enum tap_action action,
                    void (*before)(void *arg),
                    void *arg)
{
    set(tap, needle, action, 1, before, arg);
}

bool tap_is_done(struct tap *tap)
{
    (void)pthread_mutex_lock(&tap->mutex);
    bool is_done = tap->pending == 0;
    (void)pthread_mutex_unlock(&tap->mutex);
    return is_done;
}

void tap_close(struct tap *tap)
{
    atomic_store(&tap->is_ended, true);
    assert_int_equal(pthread_join(tap->thread, NULL), 0);
    for (size_t i = 0; i < tap->thread_count; i++) {
        assert_int_equal(pthread_join(tap->threads[i], NULL), 0);
    }
    (void)close(tap->listener); /* no client is interested any more */
    (void)pthread_mutex_destroy(&tap->mutex);
}
