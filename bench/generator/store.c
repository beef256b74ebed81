/* bench/generator/store.c - `muster-bench store`: load for our server, PyTorch's, Redis, and the
 * floor. This file has the options, the measurements and the output. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "bench/generator/bench.h"
#include "cli/cli.h"

#define COMMAND "muster-bench store"

struct bench {
    const char *host;
    int64_t port;
    const char *protocol_name;
    const char *label;
    struct mst__option_list ops;
    int64_t connections;
    int64_t depth;
    int64_t duration_ms;
    int64_t warmup_ms;
    int64_t requests;
    int64_t value_size;
    int64_t idle;
    int64_t storm;
    int64_t server_pid;
    bool memory;
    bool json;

    struct mst__bench_target target;
    bool is_wanted[MST_BENCH_OP_COUNT];
    bool has_header; /* the table's head is printed */
    int *idle_fds;
    int64_t rss_before; /* memory before the idle connections */
};

static const char bench_text[] =
    "Measure a store server. One thread keeps every connection busy: it sends --depth requests at "
    "once, waits for all replies, and sends again. Each reply is checked. It prints operations per "
    "second, latencies from sending to the reply, and, with --server-pid, the server's CPU time "
    "per operation. Give server and load generator a core each: on one core each waits for the "
    "other.\n"
    "\n"
    "set is a SET followed by a CHECK of no keys, because a SET has no answer; set_get is a SET "
    "and a GET of the same key, sent together and counted as one; compare_set always finds the "
    "expected value. In Redis they are SET, SET + GET, and SET … XX GET, which compares nothing; "
    "get, add and check are GET, INCRBY and EXISTS. Every connection uses a key of its own below "
    "/bench/, deleted at the end.\n"
    "\n"
    "--storm N instead measures how long N connections need that each connect, add one to a "
    "counter, and wait for a key that the last one sets; in Redis INCR, BLPOP, and an RPUSH of N "
    "items. Latencies of a storm go from the start of a connection to its release.\n"
    "\n"
    "In the output of --json, server_cpu_s and server_cpu_us_per_op are CPU time of --server-pid, "
    "all threads, user and system; rss_kib is its memory at the end. If client_cpu_us_per_op fills "
    "a core, the result shows the generator and not the server. rss_per_connection_bytes is "
    "without the kernel's memory of sockets. errors counts lost connections; the exit status is "
    "then not 0. It is 4 if the server did not answer for 20 seconds, and 5 if a connection "
    "failed.";

/* --- printing --- */

/* A logfmt line, which can be converted to JSON. */
struct line {
    char text[MST_LOG_LINE_SIZE];
    size_t size;
};

static void line_add(struct line *line, const char *format, ...) MST_PRINTF(2, 3);

static void line_add(struct line *line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int size = vsnprintf(line->text + line->size, sizeof line->text - line->size, format, args);
    va_end(args);
    MST_ASSERT(size >= 0);
    line->size += (size_t)size;
    MST_ASSERT(line->size < sizeof line->text); /* the fields are few and short */
}

static void line_begin(struct line *line, const struct bench *bench, const char *kind)
{
    char label[MST_LOG_QUOTE_SIZE];
    line->size = 0;
    line_add(line, "bench=store.%s server=%s protocol=%s", kind,
             mst__log_quote(mst_bytes_str(bench->label), label), bench->protocol_name);
}

static void line_print(const struct line *line)
{
    char json[2 * MST_LOG_LINE_SIZE];
    mst__log_to_json(line->text, json, sizeof json);
    (void)printf("{%s}\n", json);
    (void)fflush(stdout); /* main sees whether stdout still works */
}

static double per(int64_t total, int64_t count)
{
    return count == 0 ? 0.0 : (double)total / (double)count;
}

static void print_head(struct bench *bench)
{
    if (!bench->has_header) {
        (void)printf("%-14s %-12s %6s %5s %6s %10s %8s %10s %9s %9s %10s %6s\n", "server", "op",
                     "conns", "depth", "idle", "ops", "seconds", "ops/s", "p50 us", "p99 us",
                     "CPU us/op", "errors");
        bench->has_header = true;
    }
}

static void print_row(struct bench *bench,
                      const char *op,
                      size_t connections,
                      size_t depth,
                      const struct mst__bench_result *result)
{
    print_head(bench);
    char cpu[32] = "-";
    if (result->server_cpu_ns >= 0) {
        (void)snprintf(cpu, sizeof cpu, "%.2f", per(result->server_cpu_ns, result->ops) / 1e3);
    }
    double seconds = (double)result->elapsed_ns / 1e9;
    (void)printf("%-14s %-12s %6zu %5zu %6lld %10lld %8.3f %10.0f %9.1f %9.1f %10s %6lld\n",
                 bench->label, op, connections, depth, (long long)bench->idle,
                 (long long)result->ops, seconds, (double)result->ops / seconds,
                 (double)result->p50_ns / 1e3, (double)result->p99_ns / 1e3, cpu,
                 (long long)result->errors);
    (void)fflush(stdout); /* main sees whether stdout still works */
}

/* The common part of load and storm. */
static int add_result(struct line *line,
                      const struct bench *bench,
                      const struct mst__bench_result *result,
                      struct mst_err *reterr)
{
    double seconds = (double)result->elapsed_ns / 1e9;
    line_add(line, " ops=%lld seconds=%.6f ops_per_s=%.1f p50_us=%.3f p99_us=%.3f max_us=%.3f",
             (long long)result->ops, seconds, (double)result->ops / seconds,
             (double)result->p50_ns / 1e3, (double)result->p99_ns / 1e3,
             (double)result->max_ns / 1e3);
    if (result->server_cpu_ns >= 0) {
        int64_t rss = 0;
        int rv = mst__bench_rss((pid_t)bench->server_pid, &rss, reterr);
        if (rv != 0) {
            return rv;
        }
        line_add(line, " server_cpu_us_per_op=%.4f server_cpu_s=%.6f rss_kib=%lld",
                 per(result->server_cpu_ns, result->ops) / 1e3, (double)result->server_cpu_ns / 1e9,
                 (long long)(rss / 1024));
    }
    line_add(line, " client_cpu_us_per_op=%.4f errors=%lld",
             per(result->client_cpu_ns, result->ops) / 1e3, (long long)result->errors);
    return 0;
}

/* --- the measurements --- */

static int bench_op(struct bench *bench, enum mst__bench_op op, struct mst_err *reterr)
{
    const struct mst__bench_load_options options = {
        .op = op,
        .connections = (size_t)bench->connections,
        .depth = (size_t)bench->depth,
        .value_size = (size_t)bench->value_size,
        .warmup_ms = bench->warmup_ms,
        .duration_ms = bench->duration_ms,
        .requests = bench->requests,
        .server_pid = (pid_t)bench->server_pid,
    };
    struct mst__bench_result result;
    int rv = mst__bench_load(&bench->target, &options, &result, reterr);
    if (rv != 0) {
        return mst__err_wrap(reterr, rv, "%s", mst__bench_op_name(op));
    }
    if (bench->json) {
        struct line line;
        line_begin(&line, bench, "load");
        line_add(&line, " op=%s connections=%zu depth=%zu idle=%lld value_size=%zu",
                 mst__bench_op_name(op), options.connections, options.depth, (long long)bench->idle,
                 options.value_size);
        rv = add_result(&line, bench, &result, reterr);
        if (rv != 0) {
            return rv;
        }
        line_print(&line);
    } else {
        print_row(bench, mst__bench_op_name(op), options.connections, options.depth, &result);
    }
    if (result.errors > 0) {
        *reterr = result.first_error;
        return mst__err_wrap(reterr, reterr->code, "%lld of %zu connections lost, the first one",
                             (long long)result.errors, options.connections);
    }
    return 0;
}

static int bench_storm(struct bench *bench, struct mst_err *reterr)
{
    struct mst__bench_result result;
    size_t connections = (size_t)bench->storm;
    int rv =
        mst__bench_storm(&bench->target, connections, (pid_t)bench->server_pid, &result, reterr);
    if (rv != 0) {
        return rv;
    }
    if (!bench->json) {
        print_row(bench, "storm", connections, 1, &result);
        return 0;
    }
    struct line line;
    line_begin(&line, bench, "storm");
    line_add(&line, " op=storm connections=%zu depth=1 idle=%lld", connections,
             (long long)bench->idle);
    rv = add_result(&line, bench, &result, reterr);
    if (rv == 0) {
        line_print(&line);
    }
    return rv;
}

/* Open the idle connections; the server's memory is measured before. */
static int bench_open_idle(struct bench *bench, struct mst_err *reterr)
{
    int rv = 0;
    if (bench->memory) {
        /* Open one connection first, so that one-time allocations of the server do not count. */
        int fd = -1;
        rv = mst__bench_open_many(&bench->target, 1, &fd, reterr);
        if (rv != 0) {
            return rv;
        }
        mst__bench_hang_up(fd);
        rv = mst__bench_rss((pid_t)bench->server_pid, &bench->rss_before, reterr);
    }
    if (rv != 0 || bench->idle == 0) {
        return rv;
    }
    int *fds = mst__calloc((size_t)bench->idle, sizeof *fds);
    if (fds == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "%lld idle connections", (long long)bench->idle);
    }
    rv = mst__bench_open_many(&bench->target, (size_t)bench->idle, fds, reterr);
    if (rv != 0) {
        mst__free(fds);
        return mst__err_wrap(reterr, rv, "idle connections");
    }
    bench->idle_fds = fds;
    return 0;
}

static int bench_memory(struct bench *bench, struct mst_err *reterr)
{
    int64_t rss = 0;
    int rv = mst__bench_rss((pid_t)bench->server_pid, &rss, reterr);
    if (rv != 0) {
        return rv;
    }
    double each = per(rss - bench->rss_before, bench->idle);
    if (!bench->json) {
        (void)printf(
            "%s: %lld idle connections: %lld KiB before, %lld KiB after, %.0f bytes each\n",
            bench->label, (long long)bench->idle, (long long)(bench->rss_before / 1024),
            (long long)(rss / 1024), each);
        return 0;
    }
    struct line line;
    line_begin(&line, bench, "memory");
    line_add(&line, " op=idle connections=%lld idle=%lld rss_before_kib=%lld rss_kib=%lld",
             (long long)bench->idle, (long long)bench->idle, (long long)(bench->rss_before / 1024),
             (long long)(rss / 1024));
    line_add(&line, " rss_per_connection_bytes=%.1f", each);
    line_print(&line);
    return 0;
}

static int bench_run(struct bench *bench, struct mst_err *reterr)
{
    size_t busy = (size_t)(bench->storm > bench->connections ? bench->storm : bench->connections);
    int rv = mst__bench_need_files((size_t)bench->idle + busy, reterr);
    if (rv == 0) {
        rv = bench_open_idle(bench, reterr);
    }
    if (rv == 0 && bench->memory) {
        rv = bench_memory(bench, reterr);
    }
    if (rv == 0 && bench->storm > 0) {
        rv = bench_storm(bench, reterr);
    }
    for (size_t op = 0; rv == 0 && op < MST_BENCH_OP_COUNT; op++) {
        if (bench->is_wanted[op]) {
            rv = bench_op(bench, (enum mst__bench_op)op, reterr);
        }
    }
    if (bench->idle_fds != NULL) {
        mst__bench_hang_up_many(bench->idle_fds, (size_t)bench->idle);
        mst__free(bench->idle_fds);
    }
    return rv;
}

/* --- options --- */

static bool find_protocol(const char *name, enum mst__bench_protocol *ret_protocol)
{
    static const struct {
        const char *name;
        enum mst__bench_protocol protocol;
    } known[] = {
        {"torch-c", MST_BENCH_TORCH_C},       {"torch-a", MST_BENCH_TORCH_A},
        {"redis", MST_BENCH_REDIS},           {"floor", MST_BENCH_FLOOR},
        {"floor-hold", MST_BENCH_FLOOR_HOLD},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, name) == 0) {
            *ret_protocol = known[i].protocol;
            return true;
        }
    }
    return false;
}

/* Mark the requested operations; false for an unknown one, which is then in @ret_unknown. */
static bool choose_ops(struct bench *bench, const char **ret_unknown)
{
    if (bench->ops.count == 0 && bench->storm == 0 && !bench->memory) {
        bench->is_wanted[MST_BENCH_GET] = true;
    }
    for (size_t i = 0; i < bench->ops.count; i++) {
        bool found = false;
        for (size_t op = 0; op < MST_BENCH_OP_COUNT; op++) {
            if (strcmp(bench->ops.values[i], "all") == 0 ||
                strcmp(bench->ops.values[i], mst__bench_op_name((enum mst__bench_op)op)) == 0) {
                bench->is_wanted[op] = true;
                found = true;
            }
        }
        if (!found) {
            *ret_unknown = bench->ops.values[i];
            return false;
        }
    }
    return true;
}

/* Checks that the option table cannot do. */
static int check_options(struct bench *bench)
{
    enum mst__bench_protocol protocol = MST_BENCH_TORCH_C;
    const char *unknown = NULL;
    if (bench->port == 0) {
        return mst__cli_usage_error(COMMAND, "--port is missing");
    }
    if (!find_protocol(bench->protocol_name, &protocol)) {
        return mst__cli_usage_error(COMMAND,
                                    "--protocol: '%s' is not torch-c, torch-a, redis, floor "
                                    "or floor-hold",
                                    bench->protocol_name);
    }
    if (!choose_ops(bench, &unknown)) {
        return mst__cli_usage_error(COMMAND,
                                    "--op: '%s' is not set, get, add, check, compare_set, set_get "
                                    "or all",
                                    unknown);
    }
    if (bench->memory && (bench->idle == 0 || bench->server_pid == 0)) {
        return mst__cli_usage_error(COMMAND, "--memory needs --idle and --server-pid");
    }
    if (bench->label == NULL) {
        bench->label = bench->protocol_name;
    }
    bench->target.protocol = protocol;
    return MST_EXIT_OK;
}

static int bench_with(struct bench *bench)
{
    struct mst_err err;
    int rv =
        mst__bench_resolve(bench->host, bench->port, bench->target.protocol, &bench->target, &err);
    if (rv == 0) {
        rv = bench_run(bench, &err);
    }
    return rv == 0 ? MST_EXIT_OK : mst__cli_fail(&err);
}

int mst__bench_store(int argc, char **argv)
{
    struct bench bench = {
        .host = "127.0.0.1",
        .protocol_name = "torch-c",
        .connections = 64,
        .depth = 1,
        .duration_ms = 2000,
        .warmup_ms = 200,
        .value_size = 64,
    };
    const struct mst__option options[] = {
        {"host", "HOST", "The server's name or address. Default: 127.0.0.1.", MST_OPTION_TEXT,
         &bench.host, 0, 0},
        {"port", "PORT", "The server's TCP port.", MST_OPTION_NUMBER, &bench.port, 1, 65535},
        {"protocol", "NAME",
         "What the server speaks: torch-c (torch from 2.2, and muster), torch-a (torch up to 2.0, "
         "and muster), redis, floor (the bare echo server of the source tree's bench/), or "
         "floor-hold (the same, which delays the answers of a storm). Default: torch-c.",
         MST_OPTION_TEXT, &bench.protocol_name, 0, 0},
        {"op", "OP",
         "set, get, add, check, compare_set, set_get, or all; may be given several times. Default: "
         "get, unless --storm or --memory is given.",
         MST_OPTION_LIST, &bench.ops, 0, 0},
        {"connections", "N", "Busy connections. Default: 64.", MST_OPTION_NUMBER,
         &bench.connections, 1, MST_BENCH_CONNECTIONS_MAX},
        {"depth", "N", "Requests that a connection sends at once. Default: 1.", MST_OPTION_NUMBER,
         &bench.depth, 1, MST_BENCH_DEPTH_MAX},
        {"duration", "TIME", "How long to measure each operation. Default: 2s.",
         MST_OPTION_DURATION, &bench.duration_ms, 1, INT64_C(86400000)},
        {"requests", "N", "Measure until this many operations are done, instead of --duration.",
         MST_OPTION_NUMBER, &bench.requests, 1, INT64_C(1000000000000)},
        {"warmup", "TIME", "Load before measuring. Default: 200ms.", MST_OPTION_DURATION,
         &bench.warmup_ms, 0, INT64_C(3600000)},
        {"value-size", "SIZE", "Size of the values. Default: 64.", MST_OPTION_SIZE,
         &bench.value_size, 1, 8 << 20},
        {"idle", "N", "First open this many more connections, which stay silent.",
         MST_OPTION_NUMBER, &bench.idle, 0, MST_BENCH_CONNECTIONS_MAX},
        {"memory", NULL,
         "Measure how much the server's resident memory grows for each connection of --idle. Best "
         "with a server that was just started.",
         MST_OPTION_FLAG, &bench.memory, 0, 0},
        {"storm", "N", "Measure a barrier storm of N connections.", MST_OPTION_NUMBER, &bench.storm,
         1, MST_BENCH_CONNECTIONS_MAX},
        {"server-pid", "PID",
         "The server's process on this machine: measure its CPU time and memory.",
         MST_OPTION_NUMBER, &bench.server_pid, 1, INT32_MAX},
        {"label", "TEXT", "Name of the server in the output. Default: the protocol.",
         MST_OPTION_TEXT, &bench.label, 0, 0},
        {"json", NULL, "Print one JSON object per result instead of a table.", MST_OPTION_FLAG,
         &bench.json, 0, 0},
    };
    const struct mst__usage usage = {
        .command = COMMAND,
        .synopsis = "--port PORT [options]",
        .text = bench_text,
        .options = options,
        .options_count = sizeof options / sizeof options[0],
    };
    int arguments = 0;
    int exit_code = 0;
    if (!mst__options_parse(&usage, argc, argv, &arguments, &exit_code)) {
        return exit_code;
    }
    exit_code = check_options(&bench);
    return exit_code != MST_EXIT_OK ? exit_code : bench_with(&bench);
}
