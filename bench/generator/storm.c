/* bench/generator/storm.c - the barrier storm: the load on a server when a large job starts.
 *
 * Each connection is opened, adds one to a counter and waits for a key. The connection that reaches
 * the number of connections sets the key, and waits for it as well. The storm is over when all are
 * released. At most MST_BENCH_UNDER_WAY_MAX connections are between their connect and the answer
 * to their ADD, so that no listen backlog overflows.
 *
 *   ADDING --the sum--> WAITING --the release--> RELEASED */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "bench/generator/bench.h"

#define EVENTS_MAX 512
#define STORM_INPUT_SIZE 160 /* the longest is Redis's answer to the push and to the pop */

enum storm_state { STORM_ADDING, STORM_WAITING, STORM_RELEASED };

struct storm_conn {
    int fd;
    enum storm_state state;
    bool is_last;
    int64_t started_ns;
    size_t got;
    uint8_t input[STORM_INPUT_SIZE];
};

struct storm {
    const struct mst__bench_target *target;
    size_t connections;
    struct storm_conn *conns;
    int epoll_fd;
    size_t opened;
    size_t added;
    size_t released;
    char counter[MST_BENCH_KEY_SIZE];
    char gate[MST_BENCH_KEY_SIZE];
    struct mst__bench_message arrive;
    struct mst__bench_message wait;
    struct mst__bench_message last; /* sets the key, then waits */
    struct mst__bench_histogram *histogram;
};

static void storm_close(struct storm *storm)
{
    for (size_t i = 0; storm->conns != NULL && i < storm->opened; i++) {
        mst__bench_hang_up(storm->conns[i].fd);
    }
    if (storm->epoll_fd >= 0) {
        (void)close(storm->epoll_fd); /* holds nothing that could be lost */
    }
    mst__bench_message_close(&storm->arrive);
    mst__bench_message_close(&storm->wait);
    mst__bench_message_close(&storm->last);
    mst__free(storm->histogram);
    mst__free(storm->conns);
}

/* The requests of the last connection: release all, and wait as the others. The floor releases only
 * connections that already wait, so there it waits first. */
static int storm_build_last(struct storm *storm)
{
    struct mst__bench_message open;
    mst__bench_message_init(&open);
    int rv = mst__bench_message_open(&open, storm->target->protocol, mst_bytes_str(storm->gate),
                                     storm->connections);
    bool waits_first = mst__bench_is_floor(storm->target->protocol);
    const struct mst__bench_message *first = waits_first ? &storm->wait : &open;
    const struct mst__bench_message *second = waits_first ? &open : &storm->wait;
    const struct mst__bench_message *const parts[] = {first, second};
    for (size_t i = 0; rv == 0 && i < 2; i++) {
        rv = mst__buf_append(&storm->last.request, mst__buf_bytes(&parts[i]->request));
        if (rv == 0) {
            rv = mst__buf_append(&storm->last.reply, mst__buf_bytes(&parts[i]->reply));
        }
    }
    mst__bench_message_close(&open);
    return rv;
}

static int storm_init(struct storm *storm,
                      const struct mst__bench_target *target,
                      size_t connections,
                      struct mst_err *reterr)
{
    *storm = (struct storm){.target = target, .connections = connections, .epoll_fd = -1};
    (void)snprintf(storm->counter, sizeof storm->counter, "/bench/%07d/storm/count", (int)getpid());
    (void)snprintf(storm->gate, sizeof storm->gate, "/bench/%07d/storm/gate", (int)getpid());
    mst__bench_message_init(&storm->arrive);
    mst__bench_message_init(&storm->wait);
    mst__bench_message_init(&storm->last);
    enum mst__bench_protocol protocol = target->protocol;
    struct mst_bytes gate = mst_bytes_str(storm->gate);
    storm->conns = mst__calloc(connections, sizeof *storm->conns);
    storm->histogram = mst__calloc(1, sizeof *storm->histogram);
    int rv = storm->conns == NULL || storm->histogram == NULL ? MST_ENOMEM : 0;
    if (rv == 0) {
        rv = mst__bench_message_arrive(&storm->arrive, protocol, mst_bytes_str(storm->counter));
    }
    if (rv == 0) {
        rv = mst__bench_message_wait(&storm->wait, protocol, gate);
    }
    if (rv == 0) {
        rv = storm_build_last(storm);
    }
    if (rv != 0) {
        rv = mst__fail(reterr, rv, 0, "storm of %zu connections", connections);
        goto fail;
    }
    MST_ASSERT(mst__buf_size(&storm->last.reply) <= STORM_INPUT_SIZE);
    storm->last.reply_known = mst__bench_is_floor(protocol) ? 0 : mst__buf_size(&storm->last.reply);
    storm->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (storm->epoll_fd < 0) {
        rv = mst__fail(reterr, MST_ESYS, errno, "epoll");
        goto fail;
    }
    return 0;
fail:
    storm_close(storm);
    return rv;
}

/* Delete the keys. A failure is ignored, because two small keys are harmless. */
static void storm_clean_up(const struct storm *storm)
{
    int fd = -1;
    if (mst__bench_is_floor(storm->target->protocol) ||
        mst__bench_open_many(storm->target, 1, &fd, NULL) != 0) {
        return;
    }
    const char *const keys[] = {storm->counter, storm->gate};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct mst__bench_message message;
        mst__bench_message_init(&message);
        if (mst__bench_message_delete(&message, storm->target->protocol, mst_bytes_str(keys[i])) ==
            0) {
            (void)mst__bench_exchange(storm->target, fd, &message, NULL); /* as said above */
        }
        mst__bench_message_close(&message);
    }
    mst__bench_hang_up(fd);
}

/* Open one more connection and send its ADD. */
static int storm_open_one(struct storm *storm, struct mst_err *reterr)
{
    struct storm_conn *conn = &storm->conns[storm->opened];
    conn->started_ns = mst__clock_ns();
    int rv = mst__bench_connect(storm->target, &conn->fd, reterr);
    if (rv != 0) {
        return rv;
    }
    storm->opened++;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (epoll_ctl(storm->epoll_fd, EPOLL_CTL_ADD, conn->fd, &event) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "watch a connection to '%s'",
                         storm->target->name);
    }
    return mst__bench_send(storm->target, conn->fd, &storm->arrive, reterr);
}

/* Parse the sum in the answer. False if it is incomplete; an impossible sum is 0. */
static bool storm_sum(const struct storm *storm, const struct storm_conn *conn, size_t *ret_sum)
{
    if (storm->target->protocol == MST_BENCH_REDIS) {
        if (memchr(conn->input, '\n', conn->got) == NULL) {
            return false;
        }
        *ret_sum =
            conn->input[0] == ':' ? (size_t)strtoul((const char *)conn->input + 1, NULL, 10) : 0;
        return true;
    }
    if (conn->got < mst__buf_size(&storm->arrive.reply)) {
        return false;
    }
    /* The floor does not count, so we count here. */
    *ret_sum = mst__bench_is_floor(storm->target->protocol) ? storm->added + 1
                                                            : (size_t)mst__load_u64(conn->input);
    return true;
}

static int storm_take(struct storm *storm, struct storm_conn *conn, struct mst_err *reterr)
{
    if (conn->state == STORM_ADDING) {
        size_t sum = 0;
        if (!storm_sum(storm, conn, &sum)) {
            return 0;
        }
        if (sum == 0 || sum > storm->connections) {
            return mst__bench_wrong_reply(storm->target, &storm->arrive, 0,
                                          mst_bytes_of(conn->input, conn->got), reterr);
        }
        storm->added++;
        conn->is_last = sum == storm->connections;
        conn->state = STORM_WAITING;
        conn->got = 0;
        return mst__bench_send(storm->target, conn->fd, conn->is_last ? &storm->last : &storm->wait,
                               reterr);
    }
    const struct mst__bench_message *message = conn->is_last ? &storm->last : &storm->wait;
    struct mst_bytes reply = mst__buf_bytes(&message->reply);
    size_t known = conn->got < message->reply_known ? conn->got : message->reply_known;
    if (conn->state != STORM_WAITING || conn->got > reply.size ||
        memcmp(conn->input, reply.data, known) != 0) {
        return mst__bench_wrong_reply(storm->target, message, 0,
                                      mst_bytes_of(conn->input, conn->got), reterr);
    }
    if (conn->got == reply.size) {
        conn->state = STORM_RELEASED;
        storm->released++;
        mst__bench_histogram_add(storm->histogram, mst__clock_ns() - conn->started_ns);
    }
    return 0;
}

static int storm_turn(struct storm *storm, struct storm_conn *conn, struct mst_err *reterr)
{
    ssize_t received =
        recv(conn->fd, conn->input + conn->got, STORM_INPUT_SIZE - conn->got, MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (received <= 0) {
        return mst__fail(reterr, MST_ECONN, received == 0 ? 0 : errno, "'%s' closed a connection",
                         storm->target->name);
    }
    conn->got += (size_t)received;
    return storm_take(storm, conn, reterr);
}

static int storm_run(struct storm *storm, struct mst_err *reterr)
{
    struct epoll_event events[EVENTS_MAX];
    while (storm->released < storm->connections) {
        while (storm->opened < storm->connections &&
               storm->opened - storm->added < MST_BENCH_UNDER_WAY_MAX) {
            int rv = storm_open_one(storm, reterr);
            if (rv != 0) {
                return rv;
            }
        }
        int count = epoll_wait(storm->epoll_fd, events, EVENTS_MAX, MST_BENCH_SILENCE_MS);
        if (count < 0 && errno != EINTR) {
            return mst__fail(reterr, MST_ESYS, errno, "epoll_wait");
        }
        if (count == 0) {
            return mst__fail(reterr, MST_ETIMEOUT, 0, "'%s' has not answered for %d s",
                             storm->target->name, MST_BENCH_SILENCE_MS / 1000);
        }
        for (int i = 0; i < count; i++) {
            int rv = storm_turn(storm, events[i].data.ptr, reterr);
            if (rv != 0) {
                return rv;
            }
        }
    }
    return 0;
}

/* Add the clocks to @result, with @sign = -1 at the beginning and 1 at the end. */
static int storm_mark(pid_t server_pid,
                      int sign,
                      struct mst__bench_result *result,
                      struct mst_err *reterr)
{
    int64_t server_ns = 0;
    int64_t client_ns = 0;
    result->elapsed_ns += sign * mst__clock_ns();
    int rv = mst__bench_cpu_ns(getpid(), &client_ns, reterr);
    if (rv == 0 && server_pid != 0) {
        rv = mst__bench_cpu_ns(server_pid, &server_ns, reterr);
    }
    result->client_cpu_ns += sign * client_ns;
    result->server_cpu_ns += sign * server_ns;
    return rv;
}

int mst__bench_storm(const struct mst__bench_target *target,
                     size_t connections,
                     pid_t server_pid,
                     struct mst__bench_result *ret_result,
                     struct mst_err *reterr)
{
    MST_ASSERT(connections > 0);
    struct storm storm;
    int rv = storm_init(&storm, target, connections, reterr);
    if (rv != 0) {
        return rv;
    }
    struct mst__bench_result result = {0};
    rv = storm_mark(server_pid, -1, &result, reterr);
    if (rv == 0) {
        rv = storm_run(&storm, reterr);
    }
    if (rv == 0) {
        rv = storm_mark(server_pid, 1, &result, reterr);
        storm_clean_up(&storm);
    } else {
        rv = mst__err_wrap(reterr, rv, "storm, %zu of %zu opened, %zu released", storm.opened,
                           connections, storm.released);
    }
    if (rv == 0) {
        result.ops = (int64_t)connections;
        result.p50_ns = mst__bench_histogram_at(storm.histogram, 0.50);
        result.p99_ns = mst__bench_histogram_at(storm.histogram, 0.99);
        result.max_ns = storm.histogram->max_ns;
        if (server_pid == 0) {
            result.server_cpu_ns = -1;
        }
        *ret_result = result;
    }
    storm_close(&storm);
    return rv;
}
