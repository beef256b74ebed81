/* net/server.c - the store server: options, loop, timers, stopping.
 *
 * One thread runs the loop and owns everything. Other threads only set a flag and wake it. */
#include <muster/server.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/require.h"
#include "base/sized.h"
#include "net/conn.h"
#include "net/http.h"

/* Stopping: arrived requests are still read for a moment, and unsent output has until the end. */
#define STOP_READ_MS 50
#define STOP_END_MS 800
#define STOP_TICK_MS 10

/* How often the grace of conn.c is checked, while there is one. */
#define GRACE_TICK_MS 10

#define SWEEP_TICK_MS_MAX 1000
#define SWEEP_TICK_MS_MIN 10

void mst_server_options_init(struct mst_server_options *options, size_t size)
{
    static const struct mst_server_options defaults = {
        .size = sizeof defaults,
        .connections_max = MST_CONNECTIONS_DEFAULT,
        .memory_max = MST_MEMORY_DEFAULT,
        .key_size_max = MST_KEY_SIZE_DEFAULT,
        .value_size_max = MST_VALUE_SIZE_DEFAULT,
        .request_timeout_ms = 60000,
        .job_grace_ms = 1000,
        .job_reclaim_ms = 5000,
        .job_expiry_ms = 600000,
        .log = {.level = MST_LOG_INFO},
    };
    mst__sized_init(options, size, &defaults, sizeof defaults);
}

/* Refuse NULL in the arrays of @options. */
static int server_check_arrays(const struct mst_server_options *options, struct mst_err *reterr)
{
    if ((options->hosts == NULL && options->hosts_count > 0) ||
        (options->listen_fds == NULL && options->listen_fds_count > 0)) {
        return mst__fail(reterr, MST_EINVAL, 0, "mst_server_new: options->%s is NULL",
                         options->hosts == NULL && options->hosts_count > 0 ? "hosts"
                                                                            : "listen_fds");
    }
    for (size_t i = 0; i < options->hosts_count; i++) {
        if (options->hosts[i] == NULL) {
            return mst__fail(reterr, MST_EINVAL, 0, "mst_server_new: options->hosts[%zu] is NULL",
                             i);
        }
    }
    return 0;
}

static int server_check_options(const struct mst_server_options *options, struct mst_err *reterr)
{
    if (options->port < 0 || options->port > 65535) {
        return mst__fail(reterr, MST_EINVAL, 0, "port %d is not within 0 … 65535", options->port);
    }
    if (options->connections_max == 0 || options->connections_max > MST_CONNECTIONS_MAX) {
        return mst__fail(reterr, MST_EINVAL, 0, "%zu connections are not within 1 … %d",
                         options->connections_max, MST_CONNECTIONS_MAX);
    }
    if (options->key_size_max == 0 || options->key_size_max > MST_KEY_SIZE_MAX ||
        options->value_size_max == 0 || options->value_size_max > MST_VALUE_SIZE_MAX) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "keys of up to %zu and values of up to %zu bytes: at most %zu and %zu",
                         options->key_size_max, options->value_size_max, MST_KEY_SIZE_MAX,
                         MST_VALUE_SIZE_MAX);
    }
    if (options->job_grace_ms < 0 || options->job_reclaim_ms < 0 || options->job_expiry_ms < 0 ||
        options->job_grace_ms > MST_JOB_MS_MAX || options->job_reclaim_ms > MST_JOB_MS_MAX ||
        options->job_expiry_ms > MST_JOB_MS_MAX) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "a time of the server's jobs is not within 0 … %lld ms",
                         (long long)MST_JOB_MS_MAX);
    }
    if (options->idle_timeout_ms < 0 || options->request_timeout_ms <= 0) {
        return mst__fail(reterr, MST_EINVAL, 0, "a timeout of the server is negative or zero");
    }
    return 0;
}

/* --- timers --- */

static void on_grace(uv_timer_t *timer)
{
    struct mst_server *server = timer->data;
    mst__conns_settle(server, mst__server_now_ms(server));
    if (server->grace_count == 0) {
        (void)uv_timer_stop(timer); /* always returns 0 */
    }
}

void mst__server_want_grace(struct mst_server *server)
{
    if (uv_is_active((const uv_handle_t *)&server->grace) == 0) {
        int rv = uv_timer_start(&server->grace, on_grace, GRACE_TICK_MS, GRACE_TICK_MS);
        MST_ASSERT(rv == 0);
    }
}

/* Close all handles, so that the loop ends. */
static void server_close_handles(struct mst_server *server)
{
    mst__listen_close(server);
    mst__http_close(server->http);
    server->http = NULL;
    if (uv_is_closing((const uv_handle_t *)&server->wake) == 0) {
        uv_close((uv_handle_t *)&server->wake, NULL);
        uv_close((uv_handle_t *)&server->sweep, NULL);
        uv_close((uv_handle_t *)&server->grace, NULL);
        mst__spares_close(server);
        mst__poller_stop(&server->poller);
        mst__turns_stop(server);
        mst__empty_stop(server);
        mst__heap_stop(server);
        mst__jobs_stop(server);
    }
}

static void server_stop_step(struct mst_server *server, int64_t now_ms)
{
    int64_t since_ms = now_ms - server->stop_began_ms;
    if (since_ms >= STOP_READ_MS) {
        mst__conns_shut_down(server, since_ms >= STOP_END_MS);
    }
    if (server->conns_count == 0) {
        server_close_handles(server);
    }
}

static void on_sweep(uv_timer_t *timer)
{
    struct mst_server *server = timer->data;
    int64_t now_ms = mst__server_now_ms(server);
    bool again = mst__conns_sweep(server, now_ms);
    if (server->stopping) {
        server_stop_step(server, now_ms);
    } else if (!again) {
        (void)uv_timer_stop(timer); /* always returns 0 */
    }
}

static void server_start_sweep(struct mst_server *server, int64_t tick_ms)
{
    int rv = uv_timer_start(&server->sweep, on_sweep, (uint64_t)tick_ms, (uint64_t)tick_ms);
    MST_ASSERT(rv == 0);
}

void mst__server_want_sweep(struct mst_server *server)
{
    if (uv_is_active((const uv_handle_t *)&server->sweep) != 0) {
        return;
    }
    int64_t shortest_ms = server->options.request_timeout_ms;
    int64_t idle_ms = server->options.idle_timeout_ms;
    if (idle_ms > 0 && idle_ms < shortest_ms) {
        shortest_ms = idle_ms;
    }
    int64_t tick_ms = shortest_ms / 4;
    tick_ms = tick_ms > SWEEP_TICK_MS_MAX ? SWEEP_TICK_MS_MAX : tick_ms;
    server_start_sweep(server, tick_ms < SWEEP_TICK_MS_MIN ? SWEEP_TICK_MS_MIN : tick_ms);
}

/* --- requests from elsewhere --- */

/* Append `name=count` to the @size bytes of @text, unless count is 0; returns the new size. All
 * counters share one line, so that a log limit does not drop them. */
static size_t append_counter(char text[MST_LOG_LINE_SIZE],
                             size_t size,
                             const char *name,
                             uint64_t count)
{
    if (count == 0) {
        return size;
    }
    int length = snprintf(text + size, MST_LOG_LINE_SIZE - size, "%s%s=%llu", size == 0 ? "" : " ",
                          name, (unsigned long long)count);
    MST_ASSERT(length > 0 && (size_t)length < MST_LOG_LINE_SIZE - size);
    return size + (size_t)length;
}

static void server_log_counters(const struct mst_server *server)
{
    const struct mst_log *log = &server->options.log;
    const struct mst__counters *counters = &server->counters;
    mst__log(log, MST_LOG_INFO, "server.counters",
             "connections=%zu accepted=%llu keys=%zu memory=%zu bytes_in=%llu bytes_out=%llu "
             "released=%llu loop_us_max=%llu",
             server->conns_count, (unsigned long long)counters->accepted, server->kv.keys_count,
             server->kv.memory_used, (unsigned long long)counters->bytes_in,
             (unsigned long long)counters->bytes_out, (unsigned long long)counters->released,
             (unsigned long long)counters->loop_us_max);
    char text[MST_LOG_LINE_SIZE];
    size_t size = 0;
    for (unsigned op = 0; op < MST_OP_COUNT; op++) {
        size = append_counter(text, size, mst__op_name((enum mst__op)op), counters->ops[op]);
    }
    mst__log(log, MST_LOG_INFO, "server.ops", "%.*s", (int)size, text);
    size = 0;
    for (unsigned why = 0; why < MST_WHY_COUNT; why++) {
        size = append_counter(text, size, mst__why_name((enum mst__why)why), counters->closed[why]);
    }
    mst__log(log, MST_LOG_INFO, "server.closed", "%.*s", (int)size, text);
}

/* After fork, the child has none of the server's threads, and its descriptors are closed. */
static bool is_ours(const struct mst_server *server)
{
    return server->generation == mst__fork_generation();
}

static void on_wake(uv_async_t *wake)
{
    struct mst_server *server = wake->data;
    mst__job_journal_look(server);
    if (atomic_exchange(&server->dump_wanted, false)) {
        server_log_counters(server);
    }
    mst__empty_look(server);
    if (atomic_load(&server->stop_wanted) && !server->stopping) {
        server->stopping = true;
        server->stop_began_ms = mst__server_now_ms(server);
        mst__log(&server->options.log, MST_LOG_INFO, "server.stopping", "connections=%zu",
                 server->conns_count);
        mst__listen_close(server);
        server_start_sweep(server, STOP_TICK_MS);
        server_stop_step(server, server->stop_began_ms);
    }
}

void mst_server_stop(struct mst_server *server)
{
    if (server == NULL || !is_ours(server)) {
        return;
    }
    atomic_store(&server->stop_wanted, true);
    (void)uv_async_send(&server->wake); /* fails only on a closed handle: then it has stopped */
}

void mst_server_dump(struct mst_server *server)
{
    if (server == NULL || !is_ours(server)) {
        return;
    }
    atomic_store(&server->dump_wanted, true);
    (void)uv_async_send(&server->wake); /* as above */
}

/* --- life --- */

static bool is_turn_over(void *arg)
{
    return mst__turns_is_over(arg);
}

/* The descriptors that the loop has opened for itself. */
static void server_own_loop(struct mst_server *server, void (*change)(int fd))
{
    const uv_loop_t *loop = &server->loop;
    const int fds[] = {loop->backend_fd, loop->async_io_watcher.fd, loop->async_wfd,
                       loop->signal_pipefd[0], loop->signal_pipefd[1]};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        change(fds[i]);
    }
}

static void own(int fd)
{
    (void)mst__fork_own(fd);
}

static int server_open_loop(struct mst_server *server, struct mst_err *reterr)
{
    int rv = uv_loop_init(&server->loop);
    if (rv != 0) {
        return mst__fail(reterr, MST_ESYS, -rv, "event loop");
    }
    rv = uv_async_init(&server->loop, &server->wake, on_wake);
    bool has_wake = rv == 0;
    rv = rv != 0 ? rv : mst__poller_open(&server->poller, &server->loop, is_turn_over, server);
    bool has_poller = rv == 0;
    rv = rv != 0 ? rv : mst__empty_open(server);
    if (rv != 0) {
        if (has_wake) {
            uv_close((uv_handle_t *)&server->wake, NULL);
        }
        if (has_poller) {
            mst__poller_stop(&server->poller);
        }
        (void)uv_run(&server->loop, UV_RUN_DEFAULT); /* closes the remaining handles */
        (void)uv_loop_close(&server->loop);
        mst__poller_close(&server->poller);
        return mst__fail(reterr, MST_ESYS, -rv, "event loop");
    }
    server->wake.data = server;
    server->loop_is_open = true;
    server_own_loop(server, own);
    rv = uv_timer_init(&server->loop, &server->sweep);
    MST_ASSERT(rv == 0);
    server->sweep.data = server;
    rv = uv_timer_init(&server->loop, &server->grace);
    MST_ASSERT(rv == 0);
    server->grace.data = server;
    mst__turns_open(server);
    mst__heap_open(server);
    mst__jobs_open(server);
    return 0;
}

int mst_server_new(const struct mst_server_options *options,
                   struct mst_server **ret_server,
                   struct mst_err *reterr)
{
    MST_REQUIRE(options, reterr);
    MST_REQUIRE(ret_server, reterr);
    struct mst_server_options taken;
    mst_server_options_init(&taken, sizeof taken);
    int rv = mst__sized_take(&taken, sizeof taken, options, "mst_server_options", reterr);
    options = &taken;
    if (rv == 0) {
        rv = server_check_arrays(options, reterr);
    }
    if (rv == 0) {
        rv = server_check_options(options, reterr);
    }
    if (rv != 0) {
        return rv;
    }
    struct mst_server *server = mst__calloc(1, sizeof *server);
    if (server == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "store server");
    }
    server->options = *options;
    server->generation = mst__fork_generation();
    server->poller.epoll_fd = -1;
    server->spare_fd = -1;
    server->accept_complaint_ms = INT64_MIN / 2; /* long ago */
    mst__full_init(server);
    mst__spares_open(server);
    mst__silents_open(server);
    server->options.hosts = NULL;
    server->options.listen_fds = NULL;
    server->options.http_address = NULL;
    server->options.run_id = NULL;
    if (options->run_id != NULL) {
        server->run_id = mst__strdup(options->run_id);
        if (server->run_id == NULL) {
            mst__silents_close(server);
            mst__free(server);
            return mst__fail(reterr, MST_ENOMEM, 0, "store server");
        }
    }
    server->wire_limits = mst__wire_limits(options->key_size_max, options->value_size_max);
    atomic_init(&server->stop_wanted, false);
    atomic_init(&server->dump_wanted, false);
    atomic_init(&server->gives_way, false);
    atomic_init(&server->gave_way, false);
    uint8_t hash_key[MST_SIPHASH_KEY_SIZE];
    mst__clock_random(hash_key, sizeof hash_key);
    struct mst__kv_limits limits = {.memory_max = options->memory_max,
                                    .reply_max = server->wire_limits.message_size_max,
                                    .part_max = MST_LIST_PART_SIZE,
                                    .value_max = options->value_size_max};
    mst__kv_init(&server->kv, &limits, hash_key);
    server->kv.announces = true;
    mst__buf_init(&server->replies, MST_FLUSH_SIZE + server->wire_limits.message_size_max + 64);
    /* Room for a key, and its value before and after the change. */
    mst__buf_init(&server->notice, 64 + options->key_size_max + 2 * options->value_size_max);
    rv = server_open_loop(server, reterr);
    if (rv == 0) {
        rv = mst__listen_open(server, options, reterr);
    }
    if (rv == 0 && options->http_address != NULL) {
        rv = mst__http_open(server, options->http_address, &server->http, reterr);
    }
    if (rv != 0) {
        mst_server_free(server);
        return rv;
    }
    *ret_server = server;
    return 0;
}

int mst_server_port(const struct mst_server *server)
{
    return server == NULL ? 0 : server->port;
}

size_t mst_server_addresses_count(const struct mst_server *server)
{
    return server == NULL ? 0 : server->listeners_count;
}

const char *mst_server_address(const struct mst_server *server, size_t index)
{
    return server != NULL && index < server->listeners_count ? server->listeners[index].address
                                                             : NULL;
}

const char *mst_server_http_address(const struct mst_server *server)
{
    return server == NULL ? NULL : mst__http_address(server->http);
}

int mst_server_run(struct mst_server *server, struct mst_err *reterr)
{
    MST_REQUIRE(server, reterr);
    if (!is_ours(server)) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "mst_server_run with a server that was made by another process");
    }
    int rv = uv_run(&server->loop, UV_RUN_DEFAULT);
    if (rv < 0) {
        return mst__fail(reterr, MST_ESYS, -rv, "event loop");
    }
    mst__log(&server->options.log, MST_LOG_INFO, "server.stopped", "keys=%zu",
             server->kv.keys_count);
    return 0;
}

void mst_server_free(struct mst_server *server)
{
    if (server == NULL || !is_ours(server)) {
        return; /* in a child its threads and connections are the parent's */
    }
    if (server->loop_is_open) {
        mst__conns_shut_down(server, true);
        server_close_handles(server);
        int rv = uv_run(&server->loop, UV_RUN_DEFAULT);
        MST_ASSERT(rv == 0);
        server_own_loop(server, mst__fork_disown);
        rv = uv_loop_close(&server->loop);
        MST_ASSERT(rv == 0);
        mst__conns_free_closed(server);
        mst__poller_close(&server->poller);
        mst__empty_close(server);
    }
    mst__kv_close(&server->kv);
    mst__silents_close(server);
    mst__jobs_close(server);
    mst__free(server->run_id);
    mst__buf_close(&server->replies);
    mst__buf_close(&server->notice);
    mst__free(server);
}
