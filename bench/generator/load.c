/* bench/generator/load.c - the closed loop: every connection sends again when it was answered.
 *
 * A connection sends @depth requests with one call, waits until all are answered, and sends the
 * same bytes again. One thread, one epoll; during the measurement nothing is allocated or built,
 * and every reply is checked. The server's CPU time is read at the beginning and at the end of the
 * measurement, under load. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "bench/generator/bench.h"

#define EVENTS_MAX 512

struct load_conn {
    int fd;
    bool wants_room; /* the kernel did not take all requests */
    size_t sent;     /* bytes that it took */
    size_t left;     /* replies to come */
    size_t got;      /* received bytes of the next reply */
    int64_t sent_ns;
    uint8_t *requests;
};

struct load {
    const struct mst__bench_target *target;
    const struct mst__bench_load_options *options;
    struct load_conn *conns;
    int *fds;
    uint8_t *value;
    uint8_t *requests;                /* of all connections, one after the other */
    size_t requests_size;             /* of one connection */
    struct mst__bench_message sample; /* its reply is that of all connections */
    int epoll_fd;
    size_t alive;
    size_t busy; /* connections with replies to come */
    bool measuring;
    bool stopping;
    int64_t ops; /* measured */
    struct mst__bench_histogram *histogram;
    struct mst__bench_result result;
    uint8_t input[MST_KIB(64)];
};

static void load_close(struct load *load)
{
    if (load == NULL) {
        return;
    }
    if (load->epoll_fd >= 0) {
        (void)close(load->epoll_fd); /* holds nothing that could be lost */
    }
    for (size_t i = 0; load->fds != NULL && i < load->options->connections; i++) {
        mst__bench_hang_up(load->fds[i]);
    }
    mst__bench_message_close(&load->sample);
    mst__free(load->histogram);
    mst__free(load->conns);
    mst__free(load->fds);
    mst__free(load->value);
    mst__free(load->requests);
    mst__free(load);
}

/* The value of the keys of this operation. */
static struct mst_bytes load_value(const struct load *load)
{
    return load->options->op == MST_BENCH_ADD
               ? mst_bytes_str(MST_BENCH_ADD_START)
               : mst_bytes_of(load->value, load->options->value_size);
}

static int load_new(const struct mst__bench_target *target,
                    const struct mst__bench_load_options *options,
                    struct load **ret_load,
                    struct mst_err *reterr)
{
    struct load *load = mst__malloc(sizeof *load);
    if (load == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "load for '%s'", target->name);
    }
    *load = (struct load){.target = target, .options = options, .epoll_fd = -1};
    mst__bench_message_init(&load->sample);
    load->conns = mst__calloc(options->connections, sizeof *load->conns);
    load->fds = mst__calloc(options->connections, sizeof *load->fds);
    load->value = mst__malloc(options->value_size + 1);
    load->histogram = mst__calloc(1, sizeof *load->histogram);
    if (load->conns == NULL || load->fds == NULL || load->value == NULL ||
        load->histogram == NULL) {
        load_close(load);
        return mst__fail(reterr, MST_ENOMEM, 0, "load for '%s'", target->name);
    }
    memset(load->fds, -1, options->connections * sizeof *load->fds);
    for (size_t i = 0; i < options->value_size; i++) {
        load->value[i] = (uint8_t)('a' + i % 26);
    }
    *ret_load = load;
    return 0;
}

/* Build the requests of connection @index, and set its key to the expected value. */
static int load_prepare_one(struct load *load, size_t index, struct mst_err *reterr)
{
    const struct mst__bench_load_options *options = load->options;
    char key_text[MST_BENCH_KEY_SIZE];
    struct mst_bytes key = mst__bench_key(options->op, index, key_text);
    struct mst__bench_message stored;
    struct mst__bench_message message;
    mst__bench_message_init(&stored);
    mst__bench_message_init(&message);
    enum mst__bench_protocol protocol = load->target->protocol;
    int rv = mst__bench_message_op(&stored, protocol, MST_BENCH_SET, key, load_value(load));
    if (rv == 0) {
        rv = mst__bench_message_op(&message, protocol, options->op, key, load_value(load));
    }
    if (rv != 0) {
        rv = mst__fail(reterr, rv, 0, "requests for '%s'", load->target->name);
        goto out;
    }
    struct mst_bytes request = mst__buf_bytes(&message.request);
    if (load->requests == NULL) {
        load->requests_size = request.size * options->depth;
        load->requests = mst__calloc(options->connections, load->requests_size);
        if (load->requests == NULL) {
            rv = mst__fail(reterr, MST_ENOMEM, 0, "%zu × %zu bytes of requests",
                           options->connections, load->requests_size);
            goto out;
        }
    }
    MST_ASSERT(request.size * options->depth == load->requests_size);
    load->conns[index].requests = load->requests + index * load->requests_size;
    for (size_t i = 0; i < options->depth; i++) {
        memcpy(load->conns[index].requests + i * request.size, request.data, request.size);
    }
    rv = mst__bench_exchange(load->target, load->fds[index], &stored, reterr);
out:
    mst__bench_message_close(&stored);
    mst__bench_message_close(&message);
    return rv;
}

static int load_prepare(struct load *load, struct mst_err *reterr)
{
    const struct mst__bench_load_options *options = load->options;
    int rv = mst__bench_open_many(load->target, options->connections, load->fds, reterr);
    if (rv != 0) {
        memset(load->fds, -1, options->connections * sizeof *load->fds);
        return rv;
    }
    load->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (load->epoll_fd < 0) {
        return mst__fail(reterr, MST_ESYS, errno, "epoll");
    }
    char key_text[MST_BENCH_KEY_SIZE];
    struct mst_bytes key = mst__bench_key(options->op, 0, key_text);
    rv = mst__bench_message_op(&load->sample, load->target->protocol, options->op, key,
                               load_value(load));
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "requests for '%s'", load->target->name);
    }
    for (size_t i = 0; i < options->connections; i++) {
        rv = load_prepare_one(load, i, reterr);
        if (rv != 0) {
            return rv;
        }
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &load->conns[i]};
        load->conns[i].fd = load->fds[i];
        if (fcntl(load->fds[i], F_SETFL, O_NONBLOCK) != 0 ||
            epoll_ctl(load->epoll_fd, EPOLL_CTL_ADD, load->fds[i], &event) != 0) {
            return mst__fail(reterr, MST_ESYS, errno, "watch a connection to '%s'",
                             load->target->name);
        }
    }
    load->alive = options->connections;
    return 0;
}

/* Delete the keys. A failure is ignored, because the server works with them. */
static void load_clean_up(struct load *load)
{
    int fd = -1;
    if (mst__bench_is_floor(load->target->protocol) ||
        mst__bench_open_many(load->target, 1, &fd, NULL) != 0) {
        return;
    }
    int rv = 0;
    for (size_t i = 0; rv == 0 && i < load->options->connections; i++) {
        char key_text[MST_BENCH_KEY_SIZE];
        struct mst__bench_message message;
        mst__bench_message_init(&message);
        rv = mst__bench_message_delete(&message, load->target->protocol,
                                       mst__bench_key(load->options->op, i, key_text));
        if (rv == 0) {
            rv = mst__bench_exchange(load->target, fd, &message, NULL);
        }
        mst__bench_message_close(&message);
    }
    mst__bench_hang_up(fd);
}

/* Count a lost connection; @err is the reason. */
static void load_lose(struct load *load, struct load_conn *conn, const struct mst_err *err)
{
    if (load->result.errors++ == 0) {
        load->result.first_error = *err;
    }
    if (conn->left > 0) {
        load->busy--;
    }
    load->alive--;
    load->fds[conn - load->conns] = -1;
    mst__bench_hang_up(conn->fd); /* this removes it from epoll */
    conn->fd = -1;
}

/* Pass the rest of the requests to the kernel; false if the connection was lost. */
static bool load_send(struct load *load, struct load_conn *conn)
{
    size_t rest = load->requests_size - conn->sent;
    ssize_t sent = send(conn->fd, conn->requests + conn->sent, rest, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        struct mst_err err;
        (void)mst__fail(&err, MST_ECONN, errno, "send to '%s'", load->target->name);
        load_lose(load, conn, &err);
        return false;
    }
    conn->sent += sent < 0 ? 0 : (size_t)sent;
    bool wants_room = conn->sent < load->requests_size;
    if (wants_room != conn->wants_room) {
        struct epoll_event event = {.events = wants_room ? EPOLLIN | EPOLLOUT : EPOLLIN,
                                    .data.ptr = conn};
        /* It is in the set and has its memory. */
        MST_ASSERT(epoll_ctl(load->epoll_fd, EPOLL_CTL_MOD, conn->fd, &event) == 0);
        conn->wants_room = wants_room;
    }
    return true;
}

static void load_begin(struct load *load, struct load_conn *conn, int64_t now_ns)
{
    conn->sent = 0;
    conn->left = load->options->depth;
    conn->sent_ns = now_ns;
    load->busy++;
    (void)load_send(load, conn); /* a loss has been counted */
}

/* Compare the received bytes with the expected replies; false if they differ. */
static bool load_take(struct load *load, struct load_conn *conn, size_t size, int64_t now_ns)
{
    struct mst_bytes reply = mst__buf_bytes(&load->sample.reply);
    const uint8_t *at = load->input;
    while (size > 0) {
        size_t part = reply.size - conn->got < size ? reply.size - conn->got : size;
        size_t known =
            load->sample.reply_known <= conn->got ? 0 : load->sample.reply_known - conn->got;
        if (conn->left == 0 ||
            memcmp(at, reply.data + conn->got, known < part ? known : part) != 0) {
            struct mst_err err;
            (void)mst__bench_wrong_reply(load->target, &load->sample, conn->got,
                                         mst_bytes_of(at, part), &err);
            load_lose(load, conn, &err);
            return false;
        }
        at += part;
        size -= part;
        conn->got += part;
        if (conn->got < reply.size) {
            return true;
        }
        conn->got = 0;
        conn->left--;
        if (load->measuring) {
            load->ops++;
            mst__bench_histogram_add(load->histogram, now_ns - conn->sent_ns);
        }
    }
    return true;
}

static void load_turn(struct load *load, struct load_conn *conn, uint32_t events)
{
    if (conn->fd < 0) {
        return;
    }
    if ((events & EPOLLOUT) != 0 && !load_send(load, conn)) {
        return;
    }
    if ((events & ~(uint32_t)EPOLLOUT) == 0) {
        return;
    }
    ssize_t received = recv(conn->fd, load->input, sizeof load->input, 0);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (received <= 0) {
        struct mst_err err;
        (void)mst__fail(&err, MST_ECONN, received == 0 ? 0 : errno, "'%s' closed a connection",
                        load->target->name);
        load_lose(load, conn, &err);
        return;
    }
    int64_t now_ns = mst__clock_ns();
    if (!load_take(load, conn, (size_t)received, now_ns) || conn->left > 0) {
        return;
    }
    load->busy--;
    if (!load->stopping) {
        load_begin(load, conn, now_ns);
    }
}

/* Read the clocks at the beginning (@sign = -1) and the end (1) of the measurement. */
static int load_mark(struct load *load, int sign, struct mst_err *reterr)
{
    struct mst__bench_result *result = &load->result;
    int64_t server_ns = 0;
    int64_t client_ns = 0;
    if (load->options->server_pid != 0) {
        int rv = mst__bench_cpu_ns(load->options->server_pid, &server_ns, reterr);
        if (rv != 0) {
            return rv;
        }
    }
    int rv = mst__bench_cpu_ns(getpid(), &client_ns, reterr);
    if (rv != 0) {
        return rv;
    }
    result->server_cpu_ns += sign * server_ns;
    result->client_cpu_ns += sign * client_ns;
    result->elapsed_ns += sign * mst__clock_ns();
    load->measuring = sign < 0;
    load->stopping = sign > 0;
    return 0;
}

/* Whether @until_ns has passed or, when measuring by count, all operations are done. */
static bool load_is_over(const struct load *load, int64_t until_ns)
{
    if (load->stopping) {
        return load->busy == 0;
    }
    if (load->measuring && load->options->requests > 0) {
        return load->ops >= load->options->requests;
    }
    return mst__clock_ns() >= until_ns;
}

static int load_run(struct load *load, int64_t until_ns, struct mst_err *reterr)
{
    struct epoll_event events[EVENTS_MAX];
    while (load->alive > 0 && !load_is_over(load, until_ns)) {
        int count = epoll_wait(load->epoll_fd, events, EVENTS_MAX, MST_BENCH_SILENCE_MS);
        if (count < 0 && errno != EINTR) {
            return mst__fail(reterr, MST_ESYS, errno, "epoll_wait");
        }
        if (count == 0) {
            return mst__fail(reterr, MST_ETIMEOUT, 0, "'%s' has not answered for %d s",
                             load->target->name, MST_BENCH_SILENCE_MS / 1000);
        }
        for (int i = 0; i < count; i++) {
            load_turn(load, events[i].data.ptr, events[i].events);
        }
    }
    if (load->alive == 0) {
        *reterr = load->result.first_error;
        return mst__err_wrap(reterr, reterr->code, "all connections are lost");
    }
    return 0;
}

static int load_measure(struct load *load, struct mst_err *reterr)
{
    const struct mst__bench_load_options *options = load->options;
    int64_t now_ns = mst__clock_ns();
    for (size_t i = 0; i < options->connections; i++) {
        load_begin(load, &load->conns[i], now_ns);
    }
    int rv = load_run(load, now_ns + options->warmup_ms * 1000000, reterr);
    if (rv == 0) {
        rv = load_mark(load, -1, reterr);
    }
    if (rv == 0) {
        rv = load_run(load, mst__clock_ns() + options->duration_ms * 1000000, reterr);
    }
    if (rv == 0) {
        rv = load_mark(load, 1, reterr);
    }
    /* Wait for the last replies, so that none is cut off. */
    return rv != 0 ? rv : load_run(load, INT64_MAX, reterr);
}

int mst__bench_load(const struct mst__bench_target *target,
                    const struct mst__bench_load_options *options,
                    struct mst__bench_result *ret_result,
                    struct mst_err *reterr)
{
    MST_ASSERT(options->connections > 0);
    MST_ASSERT(options->depth > 0);
    struct load *load = NULL;
    int rv = load_new(target, options, &load, reterr);
    if (rv != 0) {
        return rv;
    }
    struct mst_err err = {0};
    rv = load_prepare(load, &err);
    if (rv == 0) {
        rv = load_measure(load, &err);
    }
    if (rv == 0) {
        load_clean_up(load);
        struct mst__bench_result *result = &load->result;
        result->ops = load->ops;
        result->p50_ns = mst__bench_histogram_at(load->histogram, 0.50);
        result->p99_ns = mst__bench_histogram_at(load->histogram, 0.99);
        result->max_ns = load->histogram->max_ns;
        if (options->server_pid == 0) {
            result->server_cpu_ns = -1;
        }
        *ret_result = *result;
    } else if (reterr != NULL) {
        *reterr = err;
    }
    load_close(load);
    return rv;
}
