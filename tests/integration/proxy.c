/* proxy.c - a TCP relay that cuts connections at random.
 *
 * One thread, poll, blocking writes: the pieces are small. The place of a cut matters, so there
 * are three kinds: before a piece is forwarded, within it, and right after it. The second leaves
 * half a request behind, the third loses the answer to an executed request. */
#include "proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/prng.h"

#define PAIRS_MAX 256
#define PIECE_SIZE 4096

struct mst__proxy {
    pthread_t thread;
    int listen_fd;
    int target_port;
    int stop_fds[2]; /* a pipe; closing its end stops the thread */
    uint64_t pieces_per_cut;
    struct mst__prng prng;
    struct mst__proxy_counts counts;
    int pairs[PAIRS_MAX][2]; /* client, server */
    size_t pairs_count;
};

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

/* Close @fd, by RST if @abruptly. */
static void end(int fd, bool abruptly)
{
    if (abruptly) {
        struct linger linger = {.l_onoff = 1};
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger); /* FIN is fine too */
    }
    (void)close(fd); /* only intended losses */
}

static void pair_end(struct mst__proxy *proxy, size_t index, bool abruptly)
{
    end(proxy->pairs[index][0], abruptly);
    end(proxy->pairs[index][1], abruptly);
    proxy->pairs_count--;
    memcpy(proxy->pairs[index], proxy->pairs[proxy->pairs_count], sizeof proxy->pairs[index]);
}

static bool write_all(int fd, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            return false;
        }
        bytes += sent;
        size -= (size_t)sent;
    }
    return true;
}

static void proxy_accept(struct mst__proxy *proxy)
{
    int client = accept4(proxy->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (client < 0) {
        return; /* it has closed again */
    }
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MST_ASSERT(server >= 0);
    struct sockaddr_in address = loopback(proxy->target_port);
    if (proxy->pairs_count == PAIRS_MAX ||
        connect(server, (const struct sockaddr *)&address, sizeof address) != 0) {
        end(client, true);
        end(server, true);
        return;
    }
    int on = 1;
    (void)setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* speed only */
    (void)setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    proxy->counts.connections++;
    proxy->pairs[proxy->pairs_count][0] = client;
    proxy->pairs[proxy->pairs_count][1] = server;
    proxy->pairs_count++;
}

/* Forward the bytes that have arrived on one side; false if the pair must end. */
static bool proxy_relay(struct mst__proxy *proxy, size_t index, int side, bool *ret_abruptly)
{
    uint8_t piece[PIECE_SIZE];
    ssize_t size = recv(proxy->pairs[index][side], piece, sizeof piece, 0);
    int to = proxy->pairs[index][1 - side];
    *ret_abruptly = false;
    if (size <= 0) {
        return false;
    }
    if (mst__prng_below(&proxy->prng, proxy->pieces_per_cut) != 0) {
        return write_all(to, piece, (size_t)size);
    }
    *ret_abruptly = mst__prng_below(&proxy->prng, 2) == 0;
    switch (mst__prng_below(&proxy->prng, 3)) {
        case 0:
            proxy->counts.cut_before++;
            break;
        case 1:
            proxy->counts.cut_within++;
            (void)write_all(to, piece, (size_t)mst__prng_below(&proxy->prng, (uint64_t)size));
            break;
        default:
            proxy->counts.cut_after++;
            (void)write_all(to, piece, (size_t)size); /* it ends in any case */
            break;
    }
    return false;
}

static void *proxy_run(void *arg)
{
    struct mst__proxy *proxy = arg;
    for (;;) {
        struct pollfd fds[2 + 2 * PAIRS_MAX];
        fds[0] = (struct pollfd){.fd = proxy->stop_fds[0], .events = POLLIN};
        fds[1] = (struct pollfd){.fd = proxy->listen_fd, .events = POLLIN};
        size_t count = proxy->pairs_count;
        for (size_t i = 0; i < 2 * count; i++) {
            fds[2 + i] = (struct pollfd){.fd = proxy->pairs[i / 2][i % 2], .events = POLLIN};
        }
        int ready = poll(fds, 2 + 2 * count, -1);
        MST_ASSERT(ready > 0 || errno == EINTR);
        if (fds[0].revents != 0) {
            break;
        }
        /* From the end, because an ended pair is replaced by the last one. */
        for (size_t i = count; i > 0; i--) {
            for (int side = 0; side < 2; side++) {
                bool abruptly = false;
                if (fds[2 * i + (size_t)side].revents != 0 &&
                    !proxy_relay(proxy, i - 1, side, &abruptly)) {
                    pair_end(proxy, i - 1, abruptly);
                    break;
                }
            }
        }
        if (fds[1].revents != 0) {
            proxy_accept(proxy);
        }
    }
    while (proxy->pairs_count > 0) {
        pair_end(proxy, proxy->pairs_count - 1, true);
    }
    return NULL;
}

struct mst__proxy *mst__proxy_open(int target_port,
                                   uint64_t seed,
                                   uint64_t pieces_per_cut,
                                   int *ret_port)
{
    struct mst__proxy *proxy = mst__calloc(1, sizeof *proxy);
    MST_ASSERT(proxy != NULL);
    proxy->target_port = target_port;
    proxy->pieces_per_cut = pieces_per_cut;
    mst__prng_init(&proxy->prng, seed);
    int rv = pipe2(proxy->stop_fds, O_CLOEXEC);
    MST_ASSERT(rv == 0);
    proxy->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MST_ASSERT(proxy->listen_fd >= 0);
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    rv = bind(proxy->listen_fd, (const struct sockaddr *)&address, size);
    MST_ASSERT(rv == 0);
    rv = listen(proxy->listen_fd, 256);
    MST_ASSERT(rv == 0);
    rv = getsockname(proxy->listen_fd, (struct sockaddr *)&address, &size);
    MST_ASSERT(rv == 0);
    *ret_port = ntohs(address.sin_port);
    rv = pthread_create(&proxy->thread, NULL, proxy_run, proxy);
    MST_ASSERT(rv == 0);
    return proxy;
}

void mst__proxy_close(struct mst__proxy *proxy, struct mst__proxy_counts *ret_counts)
{
    (void)close(proxy->stop_fds[1]); /* which tells the thread */
    int rv = pthread_join(proxy->thread, NULL);
    MST_ASSERT(rv == 0);
    (void)close(proxy->stop_fds[0]);
    (void)close(proxy->listen_fd);
    *ret_counts = proxy->counts;
    mst__free(proxy);
}
