/* bench/generator/rendezvous.c - `muster-bench rendezvous`: many nodes of one process meet.
 *
 * Each node is a handler in its own thread, with its own connections. All handlers are made first;
 * then all threads start together, and the time is measured until the last one has its outcome.
 * Then the idle nodes are observed for a while. With --death another process holds the last node:
 * it is killed, and the time is measured until the others are notified and until they have a round
 * without it.
 *
 * Requests are counted until all have met: leaving at the end does not count. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json_writer.h"
#include "base/mem.h"
#include "base/until.h"
#include "bench/generator/bench.h"
#include "bench/generator/job.h"
#include "bench/generator/tally.h"
#include "cli/cli.h"
#include "cli/rdzv.h"

#define COMMAND "muster-bench rendezvous"
/* Each node is a thread or, with backend muster and our own server, a connection. */
#define THREADS_MAX 4096
#define NODES_MAX 60000

/* How long idle nodes are observed by default. */
#define STEADY_MS 10000
#define STEADY_MS_MAX 3600000

/* How long to wait for the notice of a death; more than any sensible expiry. */
#define TOLD_MS 120000

static const char text[] =
    "Measure how long nodes need to meet: each is a thread with a handler and connections of its "
    "own. Time is taken from the moment when all handlers exist until the last node has its "
    "outcome; then nodes at rest are looked at. With --death the last node is a process, which is "
    "then killed; measured are how long it takes until the others are told and until they have a "
    "round without it, last call included. All outcomes are checked: one round, one world, every "
    "rank once.\n\n"
    "With --backend muster and no --rdzv-endpoint the bench starts a server of its own, and every "
    "node is a connection: tens of thousands of them fit. Then a death is always measured.\n\n"
    "--json prints an object with the same members for every backend; what was not measured is "
    "null. join_s: until all have met. floor_s: the same number of connections with --floor. "
    "notice_s: from the death until the last node is told; grace_s is the part of it in which the "
    "bench's own server waits for the connection to come back. reform_s: from there until all are "
    "in a round without the dead one. steady_cpu_pct: CPU time of the server while nodes are at "
    "rest, in percent of a core. steady_bytes_per_s: what one of them sends and receives over TCP. "
    "requests_per_node, until all have met: requests to an etcd, messages to a server with backend "
    "muster, else operations of the store; watches_per_node: those that are answered when "
    "something happens. server_bytes_per_node: memory of the bench's own server.";

struct meeting {
    struct mst__rdzv rdzv;
    char backend[64]; /* also if a URL has it */
    char run_id[64];  /* made here if none is given */
    int64_t nodes;
    int64_t steady_ms;
    int64_t server_pid; /* 0 = not known */
    bool death;
    bool floor;
    bool json;

    struct mst__bench_figures figures;
    double told_s, reformed_s; /* with a death, both measured from it */

    size_t threads; /* nodes in this process */
    pthread_barrier_t barrier;
    atomic_bool failed;
    atomic_size_t met_count;
    struct mst__bench_tally before, after; /* when all handlers exist; when all have met */
    int64_t begin_ns;
    int64_t kill_ns;
    pid_t child; /* the node that will be killed; 0 = none */
    int to_child, from_child;
};

struct node {
    struct meeting *meeting;
    pthread_t thread;
    struct mst_params *params;
    struct mst_handler *handler;
    int64_t round, rank, world_size;
    int64_t met_ns, told_ns, reformed_ns; /* times */
    int rv;
    struct mst_err err;
};

/* --- nodes --- */

static int node_next(struct node *node)
{
    struct mst_rendezvous outcome = {.size = sizeof outcome};
    int rv = mst_handler_next(node->handler, -1, &outcome, &node->err);
    if (rv == 0) {
        node->round = outcome.round;
        node->rank = outcome.rank;
        node->world_size = outcome.world_size;
        mst_store_close(outcome.store);
    }
    return rv;
}

static int node_await_news(struct node *node)
{
    struct mst_changes changes = {.size = sizeof changes};
    return mst_handler_poll(node->handler, TOLD_MS, &changes, &node->err);
}

/* Enter a round of all nodes. The last call may end before the last node comes, which then waits
 * until the others make room for it. */
static int node_meet(struct node *node)
{
    int rv = node_next(node);
    while (rv == 0 && node->world_size < node->meeting->nodes) {
        rv = node_await_news(node);
        rv = rv == 0 ? node_next(node)
                     : mst__err_wrap(&node->err, rv, "round %" PRId64 " has %" PRId64 " nodes",
                                     node->round, node->world_size);
    }
    return rv;
}

/* Wait for the notice of the death, and enter the next round. */
static int node_survive(struct node *node)
{
    int rv = node_await_news(node);
    if (rv != 0) {
        return mst__err_wrap(&node->err, rv, "no node was notified of the killed one");
    }
    node->told_ns = mst__clock_ns();
    rv = node_next(node);
    node->reformed_ns = mst__clock_ns();
    return rv;
}

/* The barrier: all handlers exist. Then, with a death: all have met; the node is dead. Then: all is
 * measured. A thread that has failed continues to come, or the others would wait for ever. */
static void *node_run(void *arg)
{
    struct node *node = arg;
    struct meeting *meeting = node->meeting;
    node->rv = mst_handler_new(node->params, &node->handler, &node->err);
    if (node->rv != 0) {
        atomic_store(&meeting->failed, true);
    }
    (void)pthread_barrier_wait(&meeting->barrier); /* the result only names the last thread */
    (void)pthread_barrier_wait(&meeting->barrier); /* the time is taken */
    if (node->rv == 0 && !atomic_load(&meeting->failed)) {
        node->rv = node_meet(node);
        node->met_ns = mst__clock_ns();
        if (atomic_fetch_add(&meeting->met_count, 1) + 1 == meeting->threads) {
            meeting->after = mst__bench_tally();
        }
    }
    if (meeting->death) {
        (void)pthread_barrier_wait(&meeting->barrier);
        (void)pthread_barrier_wait(&meeting->barrier);
        if (node->rv == 0 && !atomic_load(&meeting->failed)) {
            node->rv = node_survive(node);
        }
    }
    (void)pthread_barrier_wait(&meeting->barrier);
    (void)pthread_barrier_wait(&meeting->barrier);
    /* All at once: otherwise a remaining node would see the others leave one by one. */
    mst_handler_free(node->handler);
    return NULL;
}

/* --- the node that is killed --- */

/* In the child: send a byte when the handler exists, wait for one to begin, send one when it has
 * met. */
static void victim_run(struct meeting *meeting, struct mst_params *params, int input, int output)
{
    struct node node = {.meeting = meeting, .params = params};
    char byte = 0;
    int rv = mst_handler_new(params, &node.handler, &node.err);
    if (rv == 0 && write(output, &byte, 1) == 1 && read(input, &byte, 1) == 1) {
        rv = node_meet(&node);
        if (rv == 0 && write(output, &byte, 1) == 1) {
            for (;;) {
                (void)pause(); /* until killed */
            }
        }
    }
    _exit(rv == 0 ? MST_EXIT_FAILED : mst__cli_fail(&node.err));
}

/* Call it before there are threads. */
static int victim_start(struct meeting *meeting, struct mst_params *params, struct mst_err *reterr)
{
    int down[2];
    int up[2];
    if (pipe2(down, O_CLOEXEC) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "pipe");
    }
    if (pipe2(up, O_CLOEXEC) != 0) {
        (void)close(down[0]);
        (void)close(down[1]);
        return mst__fail(reterr, MST_ESYS, errno, "pipe");
    }
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* cannot fail for a valid signal */
        if (getppid() != parent) {
            _exit(MST_EXIT_FAILED);
        }
        victim_run(meeting, params, down[0], up[1]);
    }
    (void)close(down[0]);
    (void)close(up[1]);
    meeting->to_child = down[1];
    meeting->from_child = up[0];
    if (pid < 0) {
        return mst__fail(reterr, MST_ESYS, errno, "fork");
    }
    meeting->child = pid;
    return 0;
}

/* Wait for the next byte of the child. */
static int victim_await(struct meeting *meeting, struct mst_err *reterr)
{
    char byte;
    if (meeting->child == 0 || read(meeting->from_child, &byte, 1) == 1) {
        return 0;
    }
    return mst__fail(reterr, MST_ESYS, 0, "the node to be killed has exited by itself");
}

static void victim_kill(struct meeting *meeting)
{
    if (meeting->child == 0) {
        return;
    }
    (void)kill(meeting->child, SIGKILL); /* it is our child and has not been waited for */
    (void)waitpid(meeting->child, NULL, 0);
    meeting->child = 0;
}

/* --- the measurement --- */

/* Observe idle nodes in a round. */
static int measure_steady(struct meeting *meeting, struct mst_err *reterr)
{
    if (meeting->steady_ms == 0) {
        return 0;
    }
    pid_t pid = (pid_t)meeting->server_pid;
    uint64_t begin_bytes = 0;
    uint64_t end_bytes = 0;
    int64_t begin_cpu_ns = 0;
    int64_t end_cpu_ns = 0;
    int rv = pid == 0 ? 0 : mst__bench_cpu_ns(pid, &begin_cpu_ns, reterr);
    int64_t begin_ns = mst__clock_ns();
    rv = rv != 0 ? rv : mst__bench_traffic(&begin_bytes, reterr);
    if (rv == 0) {
        (void)mst__until_pause(-1, begin_ns / 1000 + meeting->steady_ms * 1000); /* it cannot be
                                                                                    woken */
        rv = mst__bench_traffic(&end_bytes, reterr);
    }
    rv = rv != 0 || pid == 0 ? rv : mst__bench_cpu_ns(pid, &end_cpu_ns, reterr);
    double took_s = (double)(mst__clock_ns() - begin_ns) / 1e9;
    if (rv == 0 && pid != 0) {
        meeting->figures.steady_cpu_pct = (double)(end_cpu_ns - begin_cpu_ns) / 1e9 / took_s * 100;
    }
    if (rv == 0) {
        meeting->figures.steady_bytes_per_s =
            (double)(end_bytes - begin_bytes) / took_s / (double)meeting->threads;
    }
    return rv;
}

static void run_nodes(struct meeting *meeting, struct mst_err *reterr, int *ret_rv)
{
    int rv = victim_await(meeting, reterr);
    (void)pthread_barrier_wait(&meeting->barrier);
    if (rv != 0) {
        atomic_store(&meeting->failed, true);
    }
    meeting->begin_ns = mst__clock_ns();
    bool is_child_told = rv != 0 || meeting->child == 0 || write(meeting->to_child, "", 1) == 1;
    (void)pthread_barrier_wait(&meeting->barrier);
    if (meeting->death) {
        if (rv == 0 && is_child_told) {
            rv = victim_await(meeting, reterr);
        }
        (void)pthread_barrier_wait(&meeting->barrier);
        rv = rv != 0 ? rv : measure_steady(meeting, reterr);
        if (rv != 0) {
            atomic_store(&meeting->failed, true);
        }
        meeting->kill_ns = mst__clock_ns();
        victim_kill(meeting);
        (void)pthread_barrier_wait(&meeting->barrier);
    }
    *ret_rv = rv;
}

/* Check that all are in one round, and every rank exists once. */
static int check_nodes(const struct meeting *meeting,
                       const struct node *nodes,
                       struct mst_err *reterr)
{
    bool *is_taken = mst__calloc(meeting->threads, sizeof *is_taken);
    if (is_taken == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "%zu nodes", meeting->threads);
    }
    int rv = 0;
    for (size_t i = 0; i < meeting->threads && rv == 0; i++) {
        const struct node *node = &nodes[i];
        int64_t rank = node->rank;
        if (node->rv != 0) {
            *reterr = node->err;
            rv = mst__err_wrap(reterr, node->rv, "node %zu of %zu", i, meeting->threads);
        } else if (node->round != nodes[0].round || node->world_size != (int64_t)meeting->threads ||
                   rank < 0 || rank >= node->world_size || is_taken[rank]) {
            rv = mst__fail(reterr, MST_ESTATE, 0,
                           "node %zu has rank %" PRId64 " of %" PRId64 " in round %" PRId64
                           ", which does not fit the others",
                           i, rank, node->world_size, node->round);
        } else {
            is_taken[rank] = true;
        }
    }
    mst__free(is_taken);
    return rv;
}

/* Collect the times of the nodes. */
static void gather(struct meeting *meeting, const struct node *nodes)
{
    int64_t met_ns = meeting->begin_ns;
    int64_t told_ns = 0;
    int64_t reformed_ns = 0;
    for (size_t i = 0; i < meeting->threads; i++) {
        met_ns = nodes[i].met_ns > met_ns ? nodes[i].met_ns : met_ns;
        told_ns = nodes[i].told_ns > told_ns ? nodes[i].told_ns : told_ns;
        reformed_ns = nodes[i].reformed_ns > reformed_ns ? nodes[i].reformed_ns : reformed_ns;
    }
    struct mst__bench_figures *figures = &meeting->figures;
    double threads = (double)meeting->threads;
    figures->join_s = (double)(met_ns - meeting->begin_ns) / 1e9;
    uint64_t requests = 0;
    uint64_t watches = 0;
    const char *backend = mst_handler_backend(nodes[0].handler);
    (void)snprintf(meeting->backend, sizeof meeting->backend, "%s", backend); /* for people */
    mst__bench_tally_between(&meeting->before, &meeting->after, backend, &requests, &watches);
    figures->requests_per_node = (double)requests / threads;
    figures->watches_per_node = (double)watches / threads;
    if (meeting->death) {
        meeting->told_s = (double)(told_ns - meeting->kill_ns) / 1e9;
        meeting->reformed_s = (double)(reformed_ns - meeting->kill_ns) / 1e9;
        figures->notice_s = meeting->told_s;
        figures->reform_s = meeting->reformed_s - meeting->told_s;
    }
}

struct figure {
    const char *name;
    double value; /* below 0 = was not measured */
};

static int print_json(const struct meeting *meeting, const struct figure *rows, size_t count)
{
    struct mst_err err = {0};
    struct mst__json_writer json;
    mst__json_writer_init(&json, MST_CLI_LINE_SIZE_MAX);
    mst__json_put_begin(&json, NULL, '{');
    mst__json_put_text(&json, "bench", mst_bytes_str("rendezvous"));
    mst__json_put_text(&json, "backend", mst_bytes_str(meeting->backend));
    mst__json_put_number(&json, "nodes", meeting->nodes);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].value < 0) {
            mst__json_put_null(&json, rows[i].name);
        } else {
            mst__json_put_real(&json, rows[i].name, rows[i].value);
        }
    }
    mst__json_put_end(&json, '}');
    int rv = mst__cli_json_print(&json, &err);
    mst__json_writer_close(&json);
    return rv == 0 ? MST_EXIT_OK : mst__cli_fail(&err);
}

/* Print a line without unmeasured values, or a JSON object in which these are null. Returns the
 * exit code. */
static int print_figures(const struct meeting *meeting)
{
    const struct mst__bench_figures *figures = &meeting->figures;
    const struct figure rows[] = {
        {"seconds", figures->join_s},
        {"join_s", figures->join_s},
        {"floor_s", figures->floor_s},
        {"notice_s", figures->notice_s},
        {"reform_s", figures->reform_s},
        {"grace_s", figures->grace_s},
        {"steady_cpu_pct", figures->steady_cpu_pct},
        {"steady_bytes_per_s", figures->steady_bytes_per_s},
        {"requests_per_node", figures->requests_per_node},
        {"watches_per_node", figures->watches_per_node},
        {"server_bytes_per_node", figures->memory_per_node},
        /* Present if a node was killed. */
        {"told_seconds", meeting->told_s},
        {"reformed_seconds", meeting->reformed_s},
    };
    size_t count = sizeof rows / sizeof rows[0] - (meeting->told_s > 0 ? 0 : 2);
    if (meeting->json) {
        return print_json(meeting, rows, count);
    }
    (void)printf("bench=rendezvous backend=%s nodes=%" PRId64, meeting->backend, meeting->nodes);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].value >= 0) {
            (void)printf(" %s=%.6g", rows[i].name, rows[i].value);
        }
    }
    (void)printf("\n");
    (void)fflush(stdout); /* main sees whether stdout still works */
    return MST_EXIT_OK;
}

static int start_threads(struct meeting *meeting,
                         struct mst_params *params,
                         struct node *nodes,
                         struct mst_err *reterr)
{
    int rv = pthread_barrier_init(&meeting->barrier, NULL, (unsigned)meeting->threads + 1);
    MST_ASSERT(rv == 0);
    for (size_t i = 0; i < meeting->threads; i++) {
        nodes[i] = (struct node){.meeting = meeting, .params = params};
        rv = pthread_create(&nodes[i].thread, NULL, node_run, &nodes[i]);
        if (rv != 0) {
            /* The others wait at the barrier; only the end of the process releases them. */
            return mst__fail(reterr, MST_ESYS, rv, "start thread %zu of %zu", i + 1,
                             meeting->threads);
        }
    }
    return 0;
}

static int meet(struct meeting *meeting, struct mst_params *params, struct mst_err *reterr)
{
    struct node *nodes = mst__calloc(meeting->threads, sizeof *nodes);
    if (nodes == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "%zu nodes", meeting->threads);
    }
    meeting->before = mst__bench_tally();
    int rv = start_threads(meeting, params, nodes, reterr);
    if (rv != 0) {
        (void)mst__cli_fail(reterr);
        _exit(MST_EXIT_FAILED);
    }
    run_nodes(meeting, reterr, &rv);
    (void)pthread_barrier_wait(&meeting->barrier);
    if (rv == 0) {
        rv = check_nodes(meeting, nodes, reterr);
    }
    if (rv == 0 && !meeting->death) {
        rv = measure_steady(meeting, reterr);
    }
    if (rv == 0) {
        gather(meeting, nodes);
    }
    (void)pthread_barrier_wait(&meeting->barrier);
    for (size_t i = 0; i < meeting->threads; i++) {
        (void)pthread_join(nodes[i].thread, NULL); /* ours, and joined once */
    }
    (void)pthread_barrier_destroy(&meeting->barrier); /* no thread uses it */
    mst__free(nodes);
    return rv;
}

/* Handlers in threads. */
static int meet_in_threads(struct meeting *meeting)
{
    int64_t nodes_min = meeting->death ? meeting->nodes - 1 : meeting->nodes;
    meeting->threads = (size_t)nodes_min;
    if (meeting->rdzv.run_id == NULL && !mst__rdzv_is_url(&meeting->rdzv)) {
        (void)snprintf(meeting->run_id, sizeof meeting->run_id, "bench-%d-%" PRId64, (int)getpid(),
                       mst__clock_wall_us()); /* fits */
        meeting->rdzv.run_id = meeting->run_id;
    }
    struct mst_params *params = NULL;
    int exit_code = MST_EXIT_OK;
    if (!mst__rdzv_params(&meeting->rdzv, nodes_min, meeting->nodes, NULL, &params, &exit_code)) {
        return exit_code;
    }
    struct mst_err err = {0};
    /* A node has a few connections, and its keep-alive may have one. */
    int rv = mst__bench_need_files(8 * (size_t)meeting->nodes, &err);
    if (rv == 0 && meeting->death) {
        rv = victim_start(meeting, params, &err);
    }
    if (rv == 0) {
        rv = meet(meeting, params, &err);
    }
    victim_kill(meeting);
    mst_params_free(params);
    return rv == 0 ? MST_EXIT_OK : mst__cli_fail(&err);
}

/* Nodes of backend muster with our own server: connections, not threads. */
static int meet_many(struct meeting *meeting)
{
    const struct mst__bench_job_options options = {.nodes = (size_t)meeting->nodes,
                                                   .steady_ms = meeting->steady_ms};
    struct mst_err err = {0};
    (void)snprintf(meeting->backend, sizeof meeting->backend, "%s",
                   mst__rdzv_backend(&meeting->rdzv)); /* fits */
    int rv = mst__bench_job(&options, &meeting->figures, &err);
    return rv == 0 ? MST_EXIT_OK : mst__cli_fail(&err);
}

static int meeting_with(struct meeting *meeting)
{
    /* By its name: the nodes of job.c speak as those of this backend, whatever others can do. */
    bool is_muster = strcmp(mst__rdzv_backend(&meeting->rdzv), "muster") == 0;
    bool is_many = is_muster && meeting->rdzv.endpoint[0] == '\0';
    if (meeting->death && meeting->nodes < 2) {
        return mst__cli_usage_error(COMMAND, "--death needs --nodes of 2 or more");
    }
    if (is_many && meeting->server_pid != 0) {
        return mst__cli_usage_error(COMMAND, "--server-pid needs --rdzv-endpoint");
    }
    if (!is_many && meeting->nodes > THREADS_MAX) {
        return mst__cli_usage_error(COMMAND,
                                    "--nodes of more than 4096 needs backend muster and no "
                                    "--rdzv-endpoint");
    }
    double floor_s = -1;
    struct mst_err err = {0};
    if (meeting->floor && mst__bench_floor((size_t)meeting->nodes, &floor_s, &err) != 0) {
        return mst__cli_fail(&err);
    }
    meeting->figures = MST_BENCH_FIGURES_NONE;
    int exit_code = is_many ? meet_many(meeting) : meet_in_threads(meeting);
    meeting->figures.floor_s = floor_s;
    return exit_code == MST_EXIT_OK ? print_figures(meeting) : exit_code;
}

int mst__bench_rendezvous(int argc, char **argv)
{
    struct meeting meeting = {
        .rdzv = {MST_RDZV_DEFAULTS(COMMAND)}, .nodes = 8, .steady_ms = STEADY_MS};
    const struct mst__option options[] = {
        MST_RDZV_OPTIONS(meeting.rdzv, "Which job. Default: a new one."),
        {"nodes", "N", "How many nodes meet. Default: 8.", MST_OPTION_NUMBER, &meeting.nodes, 1,
         NODES_MAX},
        {"death", NULL, "Kill one after they have met, and measure how the others re-form.",
         MST_OPTION_FLAG, &meeting.death, 0, 0},
        {"backend", "NAME", "The same as --rdzv-backend.", MST_OPTION_TEXT, &meeting.rdzv.backend,
         0, 0},
        {"floor", NULL,
         "Measure the floor, too: as many connections to a bare server, and one echo each.",
         MST_OPTION_FLAG, &meeting.floor, 0, 0},
        {"steady", "TIME", "How long nodes at rest are looked at; 0 = not at all. Default: 10s.",
         MST_OPTION_DURATION, &meeting.steady_ms, 0, STEADY_MS_MAX},
        {"server-pid", "PID",
         "The server's process on this machine: measure its CPU time while nodes are at rest.",
         MST_OPTION_NUMBER, &meeting.server_pid, 1, INT32_MAX},
        {"json", NULL, "Print a JSON object.", MST_OPTION_FLAG, &meeting.json, 0, 0},
    };
    const struct mst__usage usage = {
        .command = COMMAND,
        .synopsis = "[options]",
        .text = text,
        .options = options,
        .options_count = sizeof options / sizeof options[0],
    };
    int arguments = 0;
    int exit_code = MST_EXIT_OK;
    if (!mst__options_parse(&usage, argc, argv, &arguments, &exit_code)) {
        return exit_code;
    }
    return meeting_with(&meeting);
}
