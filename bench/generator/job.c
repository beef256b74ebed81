/* bench/generator/job.c - thousands of nodes of backend `muster` in one process.
 *
 * Every node is a connection that acts as a real node: it greets, announces itself, sends
 * heartbeats, and announces itself again when a round is over. One thread drives them all. The
 * server is a separate process, and so is the echo server of the floor, which shows the cost of as
 * many connections with one answer each on this machine.
 *
 *   GREETING --knows jobs--> ANNOUNCED --sealed--> MEMBER --lost--> TOLD --sealed--> MEMBER
 *
 * At most MST_BENCH_UNDER_WAY_MAX connections are being opened, so that no backlog overflows. */
#include "bench/generator/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <muster/server.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "bench/generator/bench.h"
#include "bench/generator/echo.h"
#include "kv/kv.h"
#include "wire/job.h"
#include "wire/wire.h"

#define EVENTS_MAX 512
#define INPUT_SIZE 512 /* the longest input of a node: a welcome and a seal, or a loss */
#define HEARTBEAT_US 5000000
#define EXPIRY_US 15000000
#define GRACE_MS 50
#define RUN_ID "bench"

enum job_state {
    JOB_GREETING,
    JOB_ANNOUNCED,
    JOB_MEMBER,
    JOB_TOLD, /* of the death; has announced itself again */
    JOB_DEAD,
};

struct job_node {
    int fd;
    enum job_state state;
    uint32_t index;
    uint32_t rank, world;
    int64_t round;
    uint64_t epoch;
    int64_t beat_ns; /* when the next heartbeat is due */
    size_t got;
    uint8_t input[INPUT_SIZE];
};

struct job_bench {
    const struct mst__bench_job_options *options;
    struct mst__bench_target target;
    struct job_node *nodes;
    int epoll_fd;
    size_t opened, greeted, sealed, told;
    uint64_t requests;
    uint64_t bytes;
    struct mst__buf output;
    pid_t server_pid;
    int nap_ms; /* how long to wait for more events when there are some */
};

/* --- the server --- */

/* Never returns. */
static void server_run(size_t nodes, int port_fd)
{
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    const char *const hosts[] = {"127.0.0.1"};
    options.hosts = hosts;
    options.hosts_count = 1;
    options.connections_max = nodes + 64;
    options.job_grace_ms = GRACE_MS;
    options.log = (struct mst_log){.level = MST_LOG_ERROR};
    struct mst_server *server = NULL;
    struct mst_err err;
    int rv = mst_server_new(&options, &server, &err);
    int port = rv == 0 ? mst_server_port(server) : 0;
    if (rv == 0 && write(port_fd, &port, sizeof port) == (ssize_t)sizeof port) {
        rv = mst_server_run(server, &err);
    }
    _exit(rv == 0 ? 0 : 1);
}

/* Start a child that serves @nodes, or echoes if that is 0; its port comes through a pipe. */
static int child_start(size_t nodes,
                       pid_t *ret_pid,
                       struct mst__bench_target *ret_target,
                       struct mst_err *reterr)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "pipe");
    }
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* cannot fail for a valid signal */
        if (getppid() != parent) {
            _exit(1);
        }
        if (nodes == 0) {
            mst__bench_echo_run(fds[1]);
        }
        server_run(nodes, fds[1]);
    }
    (void)close(fds[1]);
    int port = 0;
    ssize_t got = pid < 0 ? 0 : read(fds[0], &port, sizeof port);
    (void)close(fds[0]);
    if (pid < 0) {
        return mst__fail(reterr, MST_ESYS, errno, "fork");
    }
    *ret_pid = pid;
    if (got != (ssize_t)sizeof port) {
        return mst__fail(reterr, MST_ESYS, 0, "the server did not start");
    }
    return mst__bench_resolve("127.0.0.1", port, MST_BENCH_TORCH_C, ret_target, reterr);
}

static void child_stop(pid_t pid)
{
    if (pid > 0) {
        (void)kill(pid, SIGKILL); /* it is our child and has not been waited for */
        (void)waitpid(pid, NULL, 0);
    }
}

/* --- messages of a node --- */

static int node_send(struct job_bench *bench, struct job_node *node, struct mst_err *reterr)
{
    struct mst_bytes bytes = mst__buf_bytes(&bench->output);
    ssize_t sent = send(node->fd, bytes.data, bytes.size, MSG_NOSIGNAL);
    mst__buf_clear(&bench->output);
    if (sent != (ssize_t)bytes.size) {
        return mst__fail(reterr, MST_ECONN, sent < 0 ? errno : 0, "send to '%s'",
                         bench->target.name);
    }
    bench->bytes += (uint64_t)sent;
    return 0;
}

static int node_greet(struct job_bench *bench, struct job_node *node, struct mst_err *reterr)
{
    struct mst__buf key;
    mst__buf_init(&key, 64);
    int rv = mst__buf_append_str(&key, mst_bytes_str(MST_KV_ANNOUNCEMENT_JOB));
    struct mst__command check = {.op = MST_OP_CHECK, .count = 1, .items = mst__buf_bytes(&key)};
    rv = rv != 0 ? rv : mst__wire_write_validate(&bench->output);
    rv = rv != 0 ? rv : mst__wire_write_request(&bench->output, MST_DIALECT_C, &check);
    mst__buf_close(&key);
    bench->requests++;
    return rv != 0 ? mst__fail(reterr, rv, 0, "greeting") : node_send(bench, node, reterr);
}

static int node_announce(struct job_bench *bench, struct job_node *node, struct mst_err *reterr)
{
    char name[32];
    (void)snprintf(name, sizeof name, "node%u", node->index);
    uint32_t nodes = (uint32_t)bench->options->nodes;
    bool knows = node->round > 0;
    const struct mst__job_message message = {
        .type = MST_JOB_ANNOUNCE,
        .u.announce = {.version = MST_JOB_VERSION,
                       .run_id = mst_bytes_str(RUN_ID),
                       .heartbeat_us = HEARTBEAT_US,
                       .announcement = {.name = mst_bytes_str(name),
                                        .incarnation = 1,
                                        .session = node->index + 1,
                                        .expiry_us = EXPIRY_US,
                                        .address = mst_bytes_str("127.0.0.1:29500"),
                                        .nodes_min = nodes > 1 ? nodes - 1 : 1,
                                        .nodes_max = nodes,
                                        .last_call_us = 30000000,
                                        .rank_by = mst_bytes_str(""),
                                        .pinned_rank = MST_AUTHORITY_RANK_NONE,
                                        .claim = {.epoch = node->epoch,
                                                  .round = node->round,
                                                  .world = node->world,
                                                  .rank =
                                                      knows ? node->rank : MST_AUTHORITY_RANK_NONE},
                                        .has_wall = true,
                                        .wall_us = mst__clock_wall_us()}},
    };
    int rv = knows ? 0 : mst__buf_append_u8(&bench->output, MST_WIRE_OPCODE_JOB);
    rv = rv != 0 ? rv : mst__job_write(&bench->output, &message);
    bench->requests++;
    return rv != 0 ? mst__fail(reterr, rv, 0, "announcement") : node_send(bench, node, reterr);
}

static int node_beat(struct job_bench *bench, struct job_node *node, struct mst_err *reterr)
{
    const struct mst__job_message message = {.type = MST_JOB_HEARTBEAT};
    int rv = mst__job_write(&bench->output, &message);
    return rv != 0 ? mst__fail(reterr, rv, 0, "heartbeat") : node_send(bench, node, reterr);
}

/* --- messages to a node --- */

static int node_wrong(const struct job_node *node,
                      const struct mst__job_message *message,
                      struct mst_err *reterr)
{
    struct mst_bytes text = message->type == MST_JOB_REFUSED    ? message->u.refused.text
                            : message->type == MST_JOB_EXPELLED ? message->u.text
                                                                : mst_bytes_str("");
    return mst__fail(reterr, MST_EPROTO, 0, "node%u: unexpected message '%s': %.*s", node->index,
                     mst__job_type_name(message->type), (int)text.size, (const char *)text.data);
}

static int node_take(struct job_bench *bench,
                     struct job_node *node,
                     const struct mst__job_message *message,
                     struct mst_err *reterr)
{
    switch (message->type) {
        case MST_JOB_WELCOME:
        case MST_JOB_REOPENED:
            return 0;
        case MST_JOB_SEALED:
            if (node->state != JOB_ANNOUNCED && node->state != JOB_TOLD) {
                break;
            }
            node->state = JOB_MEMBER;
            node->epoch = message->u.round.epoch;
            node->round = message->u.round.round;
            node->rank = message->u.round.rank;
            node->world = message->u.round.world;
            bench->sealed++;
            return 0;
        case MST_JOB_LOST:
            if (node->state != JOB_MEMBER) {
                break;
            }
            node->state = JOB_TOLD;
            bench->told++;
            return 0;
        default:
            break;
    }
    return node_wrong(node, message, reterr);
}

/* Process received messages. */
static int node_turn(struct job_bench *bench, struct job_node *node, struct mst_err *reterr)
{
    ssize_t got = recv(node->fd, node->input + node->got, INPUT_SIZE - node->got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (got <= 0) {
        return mst__fail(reterr, MST_ECONN, got == 0 ? 0 : errno, "'%s' closed a connection",
                         bench->target.name);
    }
    node->got += (size_t)got;
    bench->bytes += (uint64_t)got;
    size_t used = 0;
    int rv = 0;
    if (node->state == JOB_GREETING) {
        if (node->input[0] != 0) {
            return mst__fail(reterr, MST_ENOTSUP, 0, "'%s' does not serve jobs",
                             bench->target.name);
        }
        used = 1;
        bench->greeted++;
        node->state = JOB_ANNOUNCED;
        rv = node_announce(bench, node, reterr);
    }
    while (rv == 0) {
        struct mst__job_message message;
        size_t size = 0;
        int found = mst__job_read(mst_bytes_of(node->input + used, node->got - used), INPUT_SIZE,
                                  &message, &size, reterr);
        if (found != 1) {
            rv = found < 0 ? found : 0;
            break;
        }
        rv = node_take(bench, node, &message, reterr);
        used += size;
    }
    node->got -= used;
    memmove(node->input, node->input + used, node->got);
    return rv;
}

/* Wait for events for up to @wait_ms and process them. Returns their number, or an error. */
static int bench_serve(struct job_bench *bench, int wait_ms, struct mst_err *reterr)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(bench->epoll_fd, events, EVENTS_MAX, wait_ms);
    if (count < 0 && errno != EINTR) {
        return mst__fail(reterr, MST_ESYS, errno, "epoll_wait");
    }
    for (int i = 0; i < count; i++) {
        int rv = node_turn(bench, events[i].data.ptr, reterr);
        if (rv != 0) {
            return rv;
        }
    }
    if (count > 0 && count < EVENTS_MAX && bench->nap_ms > 0) {
        /* All nodes share one thread here, on the server's machine. Waking it for each of them
         * would double the cost. */
        (void)poll(NULL, 0, bench->nap_ms); /* waking early is harmless */
    }
    return count < 0 ? 0 : count;
}

/* Process events until @counter reaches @goal. */
static int bench_await(struct job_bench *bench,
                       const size_t *counter,
                       size_t goal,
                       const char *what,
                       struct mst_err *reterr)
{
    while (*counter < goal) {
        int count = bench_serve(bench, MST_BENCH_SILENCE_MS, reterr);
        if (count < 0) {
            return count;
        }
        if (count == 0) {
            return mst__fail(reterr, MST_ETIMEOUT, 0, "%zu of %zu %s, then nothing for %d s",
                             *counter, goal, what, MST_BENCH_SILENCE_MS / 1000);
        }
    }
    return 0;
}

/* --- the measurements --- */

static int open_one(struct job_bench *bench, struct mst_err *reterr)
{
    struct job_node *node = &bench->nodes[bench->opened];
    int rv = mst__bench_connect(&bench->target, &node->fd, reterr);
    if (rv != 0) {
        return rv;
    }
    bench->opened++;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = node};
    if (epoll_ctl(bench->epoll_fd, EPOLL_CTL_ADD, node->fd, &event) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "watch a connection to '%s'", bench->target.name);
    }
    return node_greet(bench, node, reterr);
}

/* Check that every rank exists once, in one round. */
static int check_ranks(const struct job_bench *bench, uint32_t world, struct mst_err *reterr)
{
    bool *is_taken = mst__calloc(world, sizeof *is_taken);
    if (is_taken == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "%u nodes", world);
    }
    int rv = 0;
    const struct job_node *first = NULL;
    for (size_t i = 0; i < bench->options->nodes && rv == 0; i++) {
        const struct job_node *node = &bench->nodes[i];
        if (node->state == JOB_DEAD) {
            continue;
        }
        first = first == NULL ? node : first;
        if (node->world != world || node->round != first->round || node->rank >= world ||
            is_taken[node->rank]) {
            rv = mst__fail(reterr, MST_ESTATE, 0,
                           "node%u has rank %u of %u in round %" PRId64
                           ", which does not fit the others",
                           node->index, node->rank, node->world, node->round);
        } else {
            is_taken[node->rank] = true;
        }
    }
    mst__free(is_taken);
    return rv;
}

static double seconds_since(int64_t begin_ns)
{
    return (double)(mst__clock_ns() - begin_ns) / 1e9;
}

static int measure_join(struct job_bench *bench,
                        struct mst__bench_figures *result,
                        struct mst_err *reterr)
{
    size_t nodes = bench->options->nodes;
    int64_t empty_bytes = 0;
    int rv = mst__bench_rss(bench->server_pid, &empty_bytes, reterr);
    int64_t begin_ns = mst__clock_ns();
    while (rv == 0 && bench->opened < nodes) {
        rv = open_one(bench, reterr);
        while (rv == 0 && bench->opened - bench->greeted >= MST_BENCH_UNDER_WAY_MAX) {
            int count = bench_serve(bench, MST_BENCH_SILENCE_MS, reterr);
            rv = count > 0    ? 0
                 : count == 0 ? mst__fail(reterr, MST_ETIMEOUT, 0, "%zu of %zu nodes were greeted",
                                          bench->greeted, nodes)
                              : count;
        }
    }
    rv = rv != 0 ? rv : bench_await(bench, &bench->sealed, nodes, "nodes have their rank", reterr);
    if (rv != 0) {
        return rv;
    }
    result->join_s = seconds_since(begin_ns);
    result->requests_per_node = (double)bench->requests / (double)nodes;
    result->watches_per_node = 0; /* the server notifies unasked */
    int64_t full_bytes = 0;
    rv = mst__bench_rss(bench->server_pid, &full_bytes, reterr);
    result->memory_per_node = (double)(full_bytes - empty_bytes) / (double)nodes;
    return rv != 0 ? rv : check_ranks(bench, (uint32_t)nodes, reterr);
}

/* The nodes only send heartbeats, each at its own time. */
static int measure_steady(struct job_bench *bench,
                          struct mst__bench_figures *result,
                          struct mst_err *reterr)
{
    size_t nodes = bench->options->nodes;
    MST_ASSERT(nodes > 0);
    int64_t begin_ns = mst__clock_ns();
    int64_t end_ns = begin_ns + bench->options->steady_ms * 1000000;
    int64_t begin_cpu_ns = 0;
    int64_t end_cpu_ns = 0;
    bench->bytes = 0;
    for (size_t i = 0; i < nodes; i++) {
        bench->nodes[i].beat_ns =
            begin_ns + (int64_t)((double)HEARTBEAT_US * 1000 * (double)i / (double)nodes);
    }
    int rv = mst__bench_cpu_ns(bench->server_pid, &begin_cpu_ns, reterr);
    size_t next = 0;
    while (rv == 0 && mst__clock_ns() < end_ns) {
        struct job_node *node = &bench->nodes[next];
        int64_t wait_ns = node->beat_ns - mst__clock_ns();
        if (wait_ns > 0) {
            int count = bench_serve(bench, (int)(wait_ns / 1000000) + 1, reterr);
            rv = count < 0 ? count : 0;
            continue;
        }
        rv = node_beat(bench, node, reterr);
        node->beat_ns += (int64_t)HEARTBEAT_US * 1000;
        next = (next + 1) % nodes;
    }
    rv = rv != 0 ? rv : mst__bench_cpu_ns(bench->server_pid, &end_cpu_ns, reterr);
    double took_s = seconds_since(begin_ns);
    result->steady_cpu_pct = (double)(end_cpu_ns - begin_cpu_ns) / 1e9 / took_s * 100;
    result->steady_bytes_per_s = (double)bench->bytes / took_s / (double)nodes;
    return rv;
}

/* Cut one connection; the others are notified and come again. */
static int measure_death(struct job_bench *bench,
                         struct mst__bench_figures *result,
                         struct mst_err *reterr)
{
    size_t nodes = bench->options->nodes;
    struct job_node *victim = &bench->nodes[nodes / 2];
    victim->state = JOB_DEAD;
    int64_t begin_ns = mst__clock_ns();
    mst__bench_hang_up(victim->fd);
    victim->fd = -1;
    bench->sealed = 0;
    bench->nap_ms = 1;
    int rv = bench_await(bench, &bench->told, nodes - 1, "nodes were told of a death", reterr);
    bench->nap_ms = 0;
    if (rv != 0) {
        return rv;
    }
    result->notice_s = seconds_since(begin_ns);
    result->grace_s = (double)GRACE_MS / 1000;
    begin_ns = mst__clock_ns();
    for (size_t i = 0; i < nodes && rv == 0; i++) {
        if (bench->nodes[i].state == JOB_TOLD) {
            rv = node_announce(bench, &bench->nodes[i], reterr);
        }
        /* Read answers in between, as real nodes do. */
        if (rv == 0 && i % EVENTS_MAX == 0) {
            int count = bench_serve(bench, 0, reterr);
            rv = count < 0 ? count : 0;
        }
    }
    rv = rv != 0
             ? rv
             : bench_await(bench, &bench->sealed, nodes - 1, "nodes have their new rank", reterr);
    if (rv != 0) {
        return rv;
    }
    result->reform_s = seconds_since(begin_ns);
    return check_ranks(bench, (uint32_t)nodes - 1, reterr);
}

static int bench_init(struct job_bench *bench, struct mst_err *reterr)
{
    size_t nodes = bench->options->nodes;
    mst__buf_init(&bench->output, MST_KIB(64));
    bench->nodes = mst__calloc(nodes, sizeof *bench->nodes);
    bench->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (bench->nodes == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "%zu nodes", nodes);
    }
    for (size_t i = 0; i < nodes; i++) {
        bench->nodes[i].fd = -1;
        bench->nodes[i].index = (uint32_t)i;
    }
    return bench->epoll_fd >= 0 ? 0 : mst__fail(reterr, MST_ESYS, errno, "epoll");
}

static void bench_close(struct job_bench *bench)
{
    for (size_t i = 0; bench->nodes != NULL && i < bench->opened; i++) {
        mst__bench_hang_up(bench->nodes[i].fd);
    }
    if (bench->epoll_fd >= 0) {
        (void)close(bench->epoll_fd); /* holds nothing that could be lost */
    }
    mst__buf_close(&bench->output);
    mst__free(bench->nodes);
    child_stop(bench->server_pid);
}

int mst__bench_floor(size_t nodes, double *ret_seconds, struct mst_err *reterr)
{
    struct mst__bench_target target;
    pid_t pid = 0;
    int rv = mst__bench_need_files(nodes + 64, reterr);
    rv = rv != 0 ? rv : child_start(0, &pid, &target, reterr);
    rv = rv != 0 ? rv : mst__bench_echo(&target, nodes, ret_seconds, reterr);
    child_stop(pid);
    return rv;
}

int mst__bench_job(const struct mst__bench_job_options *options,
                   struct mst__bench_figures *ret_figures,
                   struct mst_err *reterr)
{
    struct job_bench bench = {.options = options, .epoll_fd = -1};
    *ret_figures = MST_BENCH_FIGURES_NONE;
    int rv = mst__bench_need_files(options->nodes + 64, reterr);
    rv = rv != 0 ? rv : bench_init(&bench, reterr);
    rv = rv != 0 ? rv : child_start(options->nodes, &bench.server_pid, &bench.target, reterr);
    rv = rv != 0 ? rv : measure_join(&bench, ret_figures, reterr);
    if (rv == 0 && options->steady_ms > 0) {
        rv = measure_steady(&bench, ret_figures, reterr);
    }
    if (rv == 0 && options->nodes > 1) {
        rv = measure_death(&bench, ret_figures, reterr);
    }
    bench_close(&bench);
    return rv;
}
