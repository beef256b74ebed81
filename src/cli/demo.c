/* cli/demo.c - `muster demo`: a rendezvous on this machine.
 *
 * Every node is a process that runs `muster join`, as on a separate machine; the output is made
 * from their lines. So everything that is printed has happened, and the demo fails if the next step
 * does not happen in time. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
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
#include "base/number.h"
#include "cli/cli.h"

#define DEMO_NODES 4
#define DEMO_NODES_ALL 5 /* with the newcomer */
#define DEMO_VICTIM_RANK 1
#define DEMO_TIMEOUT_MS 14000
#define DEMO_ID "demo"
/* Short times for a short demo. A killed node has the server's grace of 1 s to come back. */
#define DEMO_CONF \
    "keep_alive_interval=500ms,keep_alive_max_attempt=2,last_call_timeout=1s,join_timeout=10s"

static const char demo_text[] =
    "Show a rendezvous on this machine, in a few seconds: a server, four nodes that meet and get "
    "ranks, one that is killed, the others that notice it and form the next round, and a newcomer "
    "that joins. Every node is a process.";

struct demo_node {
    pid_t pid;    /* 0 = never there */
    bool is_gone; /* it has ended */
    int fd;       /* its standard output */
    char name[8];
    char line[1024]; /* the incomplete last line */
    size_t line_size;
    int64_t round, rank, world; /* -1 = in none yet */
};

struct demo {
    int64_t start_ns;
    int64_t deadline_ms;
    pid_t server;
    char endpoint[32];
    struct demo_node nodes[DEMO_NODES_ALL];
    struct mst_err err;
};

/* Print one line, with the milliseconds since the start. */
static void tell(const struct demo *demo, const char *who, const char *format, ...)
    MST_PRINTF(3, 4);

static void tell(const struct demo *demo, const char *who, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    double ms = (double)(mst__clock_ns() - demo->start_ns) / 1e6;
    (void)printf("%8.1f ms  %-7s %s\n", ms, who, text);
    (void)fflush(stdout); /* a closed stdout does not end the demo */
}

/* --- the server --- */

static _Noreturn void server_process(int port_pipe)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* no process outlives the demo */
    struct mst_server_options options;
    struct mst_server *server = NULL;
    struct mst_err err;
    static const char *const hosts[] = {"127.0.0.1"};
    mst_server_options_init(&options, sizeof options);
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

static int start_server(struct demo *demo)
{
    int ends[2];
    int port = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return mst__fail(&demo->err, MST_ESYS, errno, "pipe");
    }
    demo->server = fork();
    if (demo->server == 0) {
        server_process(ends[1]);
    }
    (void)close(ends[1]);
    if (demo->server < 0 || read(ends[0], &port, sizeof port) != sizeof port) {
        (void)close(ends[0]);
        return mst__fail(&demo->err, MST_ESYS, errno, "start the server");
    }
    (void)close(ends[0]);
    (void)snprintf(demo->endpoint, sizeof demo->endpoint, "127.0.0.1:%d", port); /* fits */
    tell(demo, "demo", "a server listens on tcp://%s: it decides for jobs, and is a store for all",
         demo->endpoint);
    return 0;
}

/* --- nodes --- */

/* Run this binary; its standard output goes to @fd. */
static pid_t spawn(const char *const *argv, int fd)
{
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* as above */
    if (dup2(fd, STDOUT_FILENO) >= 0) {
        (void)execv("/proc/self/exe", (char *const *)argv);
    }
    _exit(MST_EXIT_FAILED);
}

static int start_node(struct demo *demo, size_t index)
{
    const char *const argv[] = {
        "muster",   "join", "--rdzv-endpoint", demo->endpoint, "--rdzv-id", DEMO_ID,
        "--nnodes", "2:4",  "--rdzv-conf",     DEMO_CONF,      "--hold",    "0",
        "--rejoin", NULL,
    };
    struct demo_node *node = &demo->nodes[index];
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return mst__fail(&demo->err, MST_ESYS, errno, "pipe");
    }
    *node = (struct demo_node){.fd = ends[0], .round = -1, .rank = -1, .world = -1};
    (void)snprintf(node->name, sizeof node->name, "node %c", (char)('A' + index)); /* fits */
    node->pid = spawn(argv, ends[1]);
    (void)close(ends[1]);
    return node->pid > 0 ? 0 : mst__fail(&demo->err, MST_ESYS, errno, "fork");
}

/* The number after `"name":` in a line, or -1. */
static int64_t number_in(const char *line, const char *name)
{
    char needle[32];
    int64_t number = -1;
    (void)snprintf(needle, sizeof needle, "\"%s\":", name); /* fits */
    const char *at = strstr(line, needle);
    if (at != NULL) {
        (void)mst__number_parse_prefix(mst_bytes_str(at + strlen(needle)), &number);
    }
    return number;
}

/* The nodes named in a line, by their names in the demo. */
static void names_in(const struct demo *demo, const char *line, char *ret_names, size_t size)
{
    size_t length = 0;
    ret_names[0] = '\0';
    for (size_t i = 0; i < DEMO_NODES_ALL; i++) {
        char needle[40];
        (void)snprintf(needle, sizeof needle, "_%ld_", (long)demo->nodes[i].pid); /* fits */
        if (demo->nodes[i].pid > 0 && strstr(line, needle) != NULL && length + 16 < size) {
            length += (size_t)snprintf(ret_names + length, size - length, "%s%s",
                                       length == 0 ? "" : ", ", demo->nodes[i].name);
        }
    }
}

static void retell(struct demo *demo, struct demo_node *node, const char *line)
{
    if (strstr(line, "\"joined\"") != NULL) {
        node->round = number_in(line, "round");
        node->rank = number_in(line, "rank");
        node->world = number_in(line, "world_size");
        tell(demo, node->name, "round %" PRId64 " is complete: I am rank %" PRId64 " of %" PRId64,
             node->round, node->rank, node->world);
    } else if (strstr(line, "\"lost\"") != NULL) {
        char names[64];
        names_in(demo, line, names, sizeof names);
        tell(demo, node->name, "%s is gone", names);
    } else if (strstr(line, "\"waiting\"") != NULL) {
        tell(demo, node->name, "a node waits: on to the next round");
    } else if (strstr(line, "\"reopened\"") != NULL) {
        tell(demo, node->name, "round %" PRId64 " is over: on to the next one",
             number_in(line, "round"));
    } else if (strstr(line, "\"queued\"") != NULL) {
        tell(demo, node->name, "round %" PRId64 " runs without me: I ask to be let in",
             number_in(line, "round"));
    } else if (strstr(line, "\"closed\"") != NULL) {
        tell(demo, node->name, "closed: I am done");
    } else {
        tell(demo, node->name, "says %s", line);
    }
}

/* Read the lines of a node; false at the end of its output. */
static bool listen_to(struct demo *demo, struct demo_node *node)
{
    ssize_t size =
        read(node->fd, node->line + node->line_size, sizeof node->line - 1 - node->line_size);
    if (size <= 0) {
        return size < 0 && (errno == EAGAIN || errno == EINTR);
    }
    node->line_size += (size_t)size;
    node->line[node->line_size] = '\0';
    char *end;
    while ((end = strchr(node->line, '\n')) != NULL) {
        *end = '\0';
        retell(demo, node, node->line);
        node->line_size -= (size_t)(end + 1 - node->line);
        memmove(node->line, end + 1, node->line_size + 1);
    }
    return true;
}

/* --- the story --- */

static bool is_there(const struct demo_node *node)
{
    return node->pid > 0 && !node->is_gone;
}

/* Whether all running nodes are in one round with a world of @world. */
static bool are_together(const struct demo *demo, int64_t world)
{
    int64_t count = 0;
    int64_t round = -1;
    for (size_t i = 0; i < DEMO_NODES_ALL; i++) {
        const struct demo_node *node = &demo->nodes[i];
        if (!is_there(node)) {
            continue;
        }
        if (node->world != world || (round >= 0 && node->round != round)) {
            return false;
        }
        round = node->round;
        count++;
    }
    return count == world;
}

/* Wait for lines of the nodes. A node may end only if the demo is @closing. */
static int listen_all(struct demo *demo, bool closing)
{
    struct pollfd fds[DEMO_NODES_ALL];
    for (size_t i = 0; i < DEMO_NODES_ALL; i++) {
        fds[i] = (struct pollfd){.fd = is_there(&demo->nodes[i]) ? demo->nodes[i].fd : -1,
                                 .events = POLLIN};
    }
    int64_t left_ms = mst__clock_left_ms(demo->deadline_ms);
    if (left_ms <= 0) {
        return mst__fail(&demo->err, MST_ETIMEOUT, 0,
                         "the next step did not happen in time; is the machine busy?");
    }
    (void)poll(fds, DEMO_NODES_ALL, (int)left_ms); /* the clock is checked again */
    for (size_t i = 0; i < DEMO_NODES_ALL; i++) {
        struct demo_node *node = &demo->nodes[i];
        if (fds[i].revents == 0 || listen_to(demo, node)) {
            continue;
        }
        int status = 0;
        (void)waitpid(node->pid, &status, 0); /* its output has ended, so it has ended or is about
                                                 to */
        node->is_gone = true;
        if (!closing || !WIFEXITED(status) || WEXITSTATUS(status) != MST_EXIT_CLOSED) {
            return mst__fail(&demo->err, MST_ESYS, 0, "%s has ended unexpectedly", node->name);
        }
    }
    return 0;
}

static int await_together(struct demo *demo, int64_t world)
{
    int rv = 0;
    while (rv == 0 && !are_together(demo, world)) {
        rv = listen_all(demo, false);
    }
    return rv;
}

static int act_meet(struct demo *demo)
{
    tell(demo, "demo", "four nodes start: `muster join --nnodes 2:4 --hold 0 --rejoin …`");
    int rv = 0;
    for (size_t i = 0; i < DEMO_NODES && rv == 0; i++) {
        rv = start_node(demo, i);
    }
    return rv == 0 ? await_together(demo, DEMO_NODES) : rv;
}

static int act_lose(struct demo *demo)
{
    struct demo_node *victim = NULL;
    for (size_t i = 0; i < DEMO_NODES; i++) {
        if (demo->nodes[i].rank == DEMO_VICTIM_RANK) {
            victim = &demo->nodes[i];
        }
    }
    MST_ASSERT(victim != NULL);
    tell(demo, "demo",
         "kill -9 %s, rank %" PRId64 ": its connection ends, and it has 1 s to come back",
         victim->name, victim->rank);
    pid_t pid = victim->pid;
    if (kill(pid, SIGKILL) != 0 || waitpid(pid, NULL, 0) != pid) {
        return mst__fail(&demo->err, MST_ESYS, errno, "kill %s", victim->name);
    }
    victim->is_gone = true;
    return await_together(demo, DEMO_NODES - 1);
}

static int act_grow(struct demo *demo)
{
    tell(demo, "demo", "a newcomer starts: node E");
    int rv = start_node(demo, DEMO_NODES);
    return rv == 0 ? await_together(demo, DEMO_NODES) : rv;
}

static int act_close(struct demo *demo)
{
    const char *const argv[] = {"muster", "close", "--rdzv-endpoint", demo->endpoint, "--rdzv-id",
                                DEMO_ID,  NULL};
    tell(demo, "demo", "the job is over: `muster close`");
    int status = 0;
    pid_t pid = spawn(argv, STDOUT_FILENO);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        return mst__fail(&demo->err, MST_ESYS, 0, "muster close has failed");
    }
    int rv = 0;
    bool is_anybody = true;
    while (rv == 0 && is_anybody) {
        rv = listen_all(demo, true);
        is_anybody = false;
        for (size_t i = 0; i < DEMO_NODES_ALL; i++) {
            is_anybody = is_anybody || is_there(&demo->nodes[i]);
        }
    }
    return rv;
}

static void end_all(struct demo *demo)
{
    for (size_t i = 0; i < DEMO_NODES_ALL; i++) {
        if (is_there(&demo->nodes[i])) {
            (void)kill(demo->nodes[i].pid, SIGKILL); /* only after an error */
            (void)waitpid(demo->nodes[i].pid, NULL, 0);
        }
    }
    if (demo->server > 0) {
        (void)kill(demo->server, SIGKILL); /* it has nothing to lose */
        (void)waitpid(demo->server, NULL, 0);
    }
}

int mst__cli_demo(int argc, char **argv)
{
    const struct mst__usage usage = {
        .command = "muster demo", .synopsis = "[--help]", .text = demo_text};
    int arguments = 0;
    int exit_code = 0;
    if (!mst__options_parse(&usage, argc, argv, &arguments, &exit_code)) {
        return exit_code;
    }
    exit_code = MST_EXIT_OK;
    struct demo demo = {
        .start_ns = mst__clock_ns(),
        .deadline_ms = mst__clock_deadline_ms(DEMO_TIMEOUT_MS),
    };
    int (*const acts[])(struct demo *) = {start_server, act_meet, act_lose, act_grow, act_close};
    int rv = 0;
    for (size_t i = 0; i < sizeof acts / sizeof acts[0] && rv == 0; i++) {
        rv = acts[i](&demo);
    }
    if (rv != 0) {
        exit_code = mst__cli_fail(&demo.err);
    } else {
        tell(&demo, "demo", "done. Next: `muster join --help`, `muster status --help`");
    }
    end_all(&demo);
    return exit_code;
}
