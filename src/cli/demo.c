/* cli/demo.c - `muster demo`: a store and four nodes as processes of this machine, with a story.
 *
 * Every node is a process with its own connection, as it would be on a machine of its own. What is
 * printed has happened: each step ends the demo with an error if it does not. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "cli/cli.h"

#define DEMO_NODES 4
#define DEMO_VICTIM 3
#define DEMO_TIMEOUT_MS 10000

static const char demo_text[] =
    "Show the store at work on this machine, in a few seconds: a server, four nodes that find each "
    "other through it, one that is killed, and the rest who notice and go on. Every node is a "
    "process with its own connection.";

static int64_t demo_start_ns;

/* One line of the story, with the milliseconds since its beginning. */
static void tell(const char *who, const char *format, ...) MST_PRINTF(2, 3);

static void tell(const char *who, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    double ms = (double)(mst__clock_ns() - demo_start_ns) / 1e6;
    /* One write, so that lines of different processes do not mix. */
    (void)printf("%8.1f ms  %-7s %s\n", ms, who, text);
    (void)fflush(stdout);
}

/* --- a node --- */

struct node {
    struct mst_store *store;
    int64_t rank;
    char name[32];
    struct mst_err err;
};

static struct mst_bytes key_of(char *text, size_t size, const char *format, int64_t number)
{
    int length = snprintf(text, size, "%s%" PRId64, format, number);
    return mst_bytes(text, (size_t)length);
}

static int node_open(struct node *node, int port)
{
    char url[64];
    (void)snprintf(url, sizeof url, "tcp://127.0.0.1:%d", port);
    return mst_store_open(url, NULL, DEMO_TIMEOUT_MS, &node->store, &node->err);
}

/* Who am I? A counter gives everybody a number of his own, and the name is put up under it. */
static int node_meet(struct node *node)
{
    int64_t place = 0;
    int rv = mst_store_add(node->store, mst_bytes_str("arrived"), 1, DEMO_TIMEOUT_MS, &place,
                           &node->err);
    if (rv != 0) {
        return rv;
    }
    node->rank = place - 1;
    (void)snprintf(node->name, sizeof node->name, "node%" PRId64, node->rank);
    char text[32];
    rv = mst_store_set(node->store, key_of(text, sizeof text, "address/", node->rank),
                       mst_bytes_str(node->name), DEMO_TIMEOUT_MS, &node->err);
    if (rv != 0) {
        return rv;
    }
    tell(node->name, "arrived as number %" PRId64 ", my address is in the store", node->rank);
    rv = mst_store_barrier(node->store, mst_bytes_str("all-here"), DEMO_NODES, DEMO_TIMEOUT_MS,
                           &node->err);
    if (rv == 0) {
        tell(node->name, "all %d are here", DEMO_NODES);
    }
    return rv;
}

/* Everybody wants the key; compare-and-set lets one have it. */
static int node_elect(struct node *node)
{
    enum mst_compare_set outcome;
    struct mst_buffer leader = {0};
    int rv = mst_store_compare_set(node->store, mst_bytes_str("leader"), mst_bytes(NULL, 0),
                                   mst_bytes_str(node->name), DEMO_TIMEOUT_MS, &outcome, &leader,
                                   &node->err);
    if (rv != 0) {
        return rv;
    }
    if (outcome == MST_COMPARE_SET_DONE) {
        tell(node->name, "compare-and-set: I lead");
    } else {
        tell(node->name, "compare-and-set: %s leads", (const char *)leader.data);
    }
    mst_buffer_free(&leader);
    return 0;
}

/* The victim comes to a barrier and is killed there; the others must not be let through by it. */
static int node_lose_one(struct node *node)
{
    struct mst_bytes survivors = mst_bytes_str("after-loss");
    struct mst_bytes dead = mst_bytes_str("victim-is-dead");
    if (node->rank == DEMO_VICTIM) {
        char pid[24];
        (void)snprintf(pid, sizeof pid, "%ld", (long)getpid());
        int rv = mst_store_set(node->store, mst_bytes_str("victim"), mst_bytes_str(pid),
                               DEMO_TIMEOUT_MS, &node->err);
        return rv != 0 ? rv
                       : mst_store_barrier(node->store, survivors, DEMO_NODES - 1, DEMO_TIMEOUT_MS,
                                           &node->err);
    }
    int rv = mst_store_wait(node->store, &dead, 1, DEMO_TIMEOUT_MS, &node->err);
    if (rv != 0) {
        return rv;
    }
    tell(node->name, "node%d is gone: going on without it", DEMO_VICTIM);
    rv = mst_store_barrier(node->store, survivors, DEMO_NODES - 1, DEMO_TIMEOUT_MS, &node->err);
    if (rv == 0) {
        tell(node->name, "the %d survivors have met again; the dead one was not counted",
             DEMO_NODES - 1);
    }
    return rv;
}

/* The leader hands out work through a queue, the others take it. */
static int node_work(struct node *node)
{
    struct mst_bytes queue = mst_bytes_str("work");
    if (node->rank == 0) {
        int rv = 0;
        for (int i = 1; i < DEMO_NODES - 1 && rv == 0; i++) {
            char text[32];
            rv = mst_store_queue_push(node->store, queue, key_of(text, sizeof text, "shard-", i),
                                      DEMO_TIMEOUT_MS, &node->err);
        }
        return rv;
    }
    struct mst_buffer item = {0};
    int64_t before_ns = mst__clock_ns();
    int rv = mst_store_queue_pop(node->store, queue, true, DEMO_TIMEOUT_MS, &item, &node->err);
    if (rv == 0) {
        tell(node->name, "took %s from the queue after %" PRId64 " us", (const char *)item.data,
             (mst__clock_ns() - before_ns) / 1000);
        mst_buffer_free(&item);
    }
    return rv;
}

static _Noreturn void node_process(int port)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody outlives the demo */
    struct node node = {.name = "node"};
    int (*const steps[])(struct node *) = {node_meet, node_elect, node_lose_one, node_work};
    int rv = node_open(&node, port);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && rv == 0; i++) {
        rv = steps[i](&node);
    }
    if (rv != 0) {
        tell(node.name, "failed: %s", node.err.msg);
    }
    mst_store_close(node.store);
    _exit(rv == 0 ? 0 : 1);
}

/* --- the stage --- */

static _Noreturn void server_process(int port_pipe)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* as above */
    struct mst_server_options options;
    struct mst_server *server = NULL;
    struct mst_err err;
    static const char *const hosts[] = {"127.0.0.1"};
    mst_server_options_init(&options);
    options.hosts = hosts;
    options.hosts_count = 1;
    if (mst_server_new(&options, &server, &err) != 0) {
        _exit(mst__cli_fail(&err));
    }
    int port = mst_server_port(server);
    if (write(port_pipe, &port, sizeof port) != sizeof port) {
        _exit(MST_EXIT_FAILED);
    }
    (void)mst_server_run(server, &err); /* ends when it is killed */
    _exit(MST_EXIT_OK);
}

/* Start the server; its port, or 0. */
static int start_server(pid_t *ret_pid)
{
    int ends[2];
    int port = 0;
    if (pipe(ends) != 0) {
        return 0;
    }
    *ret_pid = fork();
    if (*ret_pid == 0) {
        server_process(ends[1]);
    }
    (void)close(ends[1]);
    if (*ret_pid < 0 || read(ends[0], &port, sizeof port) != sizeof port) {
        port = 0;
    }
    (void)close(ends[0]);
    return port;
}

/* Wait until the first participant stands in the barrier. A WAIT for its key would last until the
 * barrier is complete, so look again and again. */
static int await_barrier(struct mst_store *store, struct mst_err *reterr)
{
    struct mst_bytes barrier = mst_bytes_str("after-loss");
    int64_t deadline_ms = mst__clock_deadline_ms(DEMO_TIMEOUT_MS);
    for (;;) {
        bool exists = false;
        int rv = mst_store_check(store, &barrier, 1, DEMO_TIMEOUT_MS, &exists, reterr);
        if (rv != 0 || exists) {
            return rv;
        }
        if (mst__clock_ms() >= deadline_ms) {
            return mst__fail(reterr, MST_ETIMEOUT, 0, "nobody came to the barrier");
        }
        (void)usleep(1000); /* a signal makes it shorter, which does no harm */
    }
}

/* Kill the victim while it waits in the barrier. */
static int kill_victim(struct mst_store *store, struct mst_err *reterr)
{
    struct mst_buffer pid = {0};
    int rv = mst_store_get(store, mst_bytes_str("victim"), DEMO_TIMEOUT_MS, &pid, reterr);
    if (rv != 0) {
        return rv;
    }
    pid_t victim = (pid_t)strtol((const char *)pid.data, NULL, 10);
    mst_buffer_free(&pid);
    rv = await_barrier(store, reterr);
    if (rv != 0) {
        return rv;
    }
    tell("demo", "kill -9 node%d (process %ld), which waits in a barrier", DEMO_VICTIM,
         (long)victim);
    if (kill(victim, SIGKILL) != 0 || waitpid(victim, NULL, 0) != victim) {
        return mst__fail(reterr, MST_ESYS, errno, "kill process %ld", (long)victim);
    }
    return mst_store_set(store, mst_bytes_str("victim-is-dead"), mst_bytes_str("1"),
                         DEMO_TIMEOUT_MS, reterr);
}

/* The survivors end by themselves; whether all of them did well. */
static bool await_survivors(void)
{
    bool good = true;
    for (int i = 0; i < DEMO_NODES - 1; i++) {
        int status = 0;
        if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            good = false;
        }
    }
    return good;
}

static int direct(int port)
{
    char url[64];
    struct mst_store *store = NULL;
    struct mst_err err;
    (void)snprintf(url, sizeof url, "tcp://127.0.0.1:%d", port);
    for (int i = 0; i < DEMO_NODES; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            node_process(port);
        }
        if (pid < 0) {
            (void)mst__fail(&err, MST_ESYS, errno, "fork");
            return mst__cli_fail(&err);
        }
    }
    int rv = mst_store_open(url, NULL, DEMO_TIMEOUT_MS, &store, &err);
    if (rv == 0) {
        rv = kill_victim(store, &err);
    }
    mst_store_close(store);
    if (rv != 0) {
        return mst__cli_fail(&err);
    }
    return await_survivors() ? MST_EXIT_OK : MST_EXIT_FAILED;
}

int mst__cli_demo(int argc, char **argv)
{
    const struct mst__usage usage = {.command = "muster demo", .synopsis = "", .text = demo_text};
    int arguments = 0;
    int exit_code = 0;
    if (!mst__options_parse(&usage, argc, argv, &arguments, &exit_code)) {
        return exit_code;
    }
    demo_start_ns = mst__clock_ns();
    pid_t server = 0;
    int port = start_server(&server);
    if (port == 0) {
        struct mst_err err;
        (void)mst__fail(&err, MST_ESYS, errno, "start the store server");
        return mst__cli_fail(&err);
    }
    tell("demo", "a store listens on tcp://127.0.0.1:%d; PyTorch's clients could use it too", port);
    exit_code = direct(port);
    if (exit_code == MST_EXIT_OK) {
        tell("demo", "done. Next: `muster serve --help`, `muster store --help`");
    }
    (void)kill(server, SIGKILL); /* it holds nothing that would be lost */
    (void)waitpid(server, NULL, 0);
    return exit_code;
}
