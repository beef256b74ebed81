/* cli/serve.c - `muster serve`: the store server as a program. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/number.h"
#include "cli/claim.h"
#include "cli/cli.h"
#include "cli/log.h"
#include "cli/port_file.h"
#include "cli/rdzv.h"
#include "cli/systemd.h"
#include "net/server.h"

/* Descriptors other than connections: listeners, the loop's own, logs. */
#define SERVE_OTHER_FDS 64

struct serve {
    struct mst__option_list hosts;
    int64_t port;
    bool ipv6_only;
    const char *port_file;
    const char *http_address;
    int64_t connections_max; /* -1 = not given */
    int64_t memory_max, key_max, value_max;
    int64_t idle_timeout_ms, request_timeout_ms;
    const char *run_id;
    int64_t job_grace_ms, job_reclaim_ms, job_expiry_ms;
    const char *journal; /* NULL = none */
    int64_t journal_size;
    const char *log_format;
    const char *log_level;
    const char *log_file; /* NULL = stderr */
};

static const char serve_text[] =
    "Run a store server. It speaks the TCPStore protocol of PyTorch, all dialects (torch up to "
    "2.0, 2.1, and from 2.2) on one port, so clients of any version can share it. All data is in "
    "memory. There is no authentication: listen on trusted networks only.\n"
    "\n"
    "On the same port it is the authority of the rendezvous backend muster, for any number of jobs "
    "at once: it decides who is in a round and tells all nodes.\n"
    "\n"
    "SIGTERM and SIGINT stop it within a second, after it has answered all requests that have "
    "arrived. SIGUSR1 logs "
    "the counters. SIGHUP opens the files of --log-file and --journal again.";

/* --- signals --- */

static struct mst_server *volatile signalled_server;

static void on_signal(int number)
{
    struct mst_server *server = signalled_server;
    int saved_errno = errno;
    if (number == SIGUSR1) {
        mst_server_dump(server);
    } else if (number == SIGHUP) {
        mst__cli_log_reopen();
        mst__server_journal_reopen(server);
    } else {
        mst__systemd_notify("STOPPING=1");
        mst_server_stop(server);
    }
    errno = saved_errno;
}

static void catch_signals(struct mst_server *server)
{
    signalled_server = server;
    static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};
    mst__cli_catch_signals(numbers, sizeof numbers / sizeof numbers[0], on_signal);
}

/* --- limits of the system --- */

/* Raise the soft limit as needed and allowed; warn if it is too low. */
static void check_descriptors(const struct mst_log *log,
                              size_t connections_max,
                              size_t http_connections)
{
    struct rlimit limit;
    rlim_t needed = connections_max + MST_SPARES_MAX + http_connections + SERVE_OTHER_FDS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) {
        return;
    }
    limit.rlim_cur = limit.rlim_max < needed ? limit.rlim_max : needed;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* the result is checked next */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < needed) {
        mst__log(log, MST_LOG_WARN, "serve.descriptors",
                 "limit=%llu needed=%llu max_connections=%zu "
                 "advice=\"raise the limit (ulimit -n, LimitNOFILE=) or lower --max-connections\"",
                 (unsigned long long)limit.rlim_cur, (unsigned long long)needed, connections_max);
    }
}

static int64_t read_somaxconn(void)
{
    char text[32];
    FILE *file = fopen("/proc/sys/net/core/somaxconn", "re");
    if (file == NULL) {
        return -1;
    }
    size_t size = fread(text, 1, sizeof text, file);
    (void)fclose(file); /* only read */
    int64_t somaxconn = -1;
    if (!mst__number_parse_prefix(mst_bytes_of(text, size), &somaxconn)) {
        return -1;
    }
    return somaxconn;
}

/* The kernel delays connections beyond its queue, and does not refuse them. So unless the user
 * asked for that many, this is only a note. */
static void check_backlog(const struct mst_log *log, size_t connections_max, bool explicit_wish)
{
    int64_t somaxconn = read_somaxconn();
    if (somaxconn < 0 || (uint64_t)somaxconn >= connections_max) {
        return;
    }
    mst__log(log, explicit_wish ? MST_LOG_WARN : MST_LOG_INFO, "serve.somaxconn",
             "somaxconn=%lld max_connections=%zu advice=\"more connects at once than somaxconn "
             "wait a second or more: sysctl net.core.somaxconn=%zu\"",
             (long long)somaxconn, connections_max, connections_max);
}

/* --- the command --- */

static void announce(const struct mst_server *server, const struct mst_log *log)
{
    for (size_t i = 0; i < mst_server_addresses_count(server); i++) {
        const char *address = mst_server_address(server, i);
        MST_ASSERT(address != NULL);
        bool is_unix = strncmp(address, "unix:", 5) == 0;
        (void)printf("listening on %s%s\n", is_unix ? "" : "tcp://", address);
        mst__log(log, MST_LOG_INFO, "server.listening", "address=%s", MST_LOG_TEXT(address));
    }
    const char *http_address = mst_server_http_address(server);
    if (http_address != NULL) {
        (void)printf("listening on http://%s\n", http_address);
        mst__log(log, MST_LOG_INFO, "http.listening", "address=%s", MST_LOG_TEXT(http_address));
    }
    (void)fflush(stdout); /* a closed stdout does not end the server */
}

static int open_log(const struct serve *serve, struct mst_log *ret_log)
{
    struct mst__cli_log_options options = {
        .path = serve->log_file,
        .is_json = strcmp(serve->log_format, "json") == 0,
    };
    if (!options.is_json && strcmp(serve->log_format, "text") != 0) {
        return mst__cli_usage_error("muster serve", "--log-format: '%s' is not text or json",
                                    serve->log_format);
    }
    if (!mst__cli_log_level(serve->log_level, &options.level)) {
        return mst__cli_usage_error("muster serve",
                                    "--log-level: '%s' is not debug, info, warn or error",
                                    serve->log_level);
    }
    struct mst_err err;
    return mst__cli_log_open(&options, ret_log, &err) == 0 ? MST_EXIT_OK : mst__cli_fail(&err);
}

/* Print the error to stderr, and also to the log if that is elsewhere. */
static int fail(const struct serve *serve, const struct mst_log *log, const struct mst_err *err)
{
    if (serve->log_file != NULL) {
        mst__log(log, MST_LOG_ERROR, "serve.failed", "detail=%s", MST_LOG_TEXT(err->msg));
    }
    return mst__cli_fail(err);
}

static int run_server(struct mst_server *server,
                      struct mst__port_file *port_file,
                      const struct mst_log *log,
                      struct mst_err *reterr)
{
    mst__systemd_init();
    catch_signals(server);
    announce(server, log);
    int rv = mst__port_file_write(port_file, mst_server_port(server), reterr);
    if (rv == 0) {
        mst__systemd_notify("READY=1");
        rv = mst_server_run(server, reterr);
    }
    mst__port_file_end(port_file);
    return rv;
}

static int serve_with(const struct serve *serve)
{
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    int exit_code = open_log(serve, &options.log);
    if (exit_code != MST_EXIT_OK) {
        return exit_code;
    }
    struct mst_err err;
    struct mst__port_file port_file;
    if (mst__port_file_begin(&port_file, serve->port_file, &err) != 0) {
        return fail(serve, &options.log, &err);
    }
    int fds[MST_LISTENERS_MAX];
    options.listen_fds = fds;
    options.listen_fds_count = mst__systemd_listen_fds();
    for (size_t i = 0; i < options.listen_fds_count; i++) {
        fds[i] = 3 + (int)i;
    }
    options.hosts = serve->hosts.values;
    options.hosts_count = serve->hosts.count;
    options.port = (int)serve->port;
    options.ipv6_only = serve->ipv6_only;
    bool explicit_wish = serve->connections_max > 0;
    if (explicit_wish) {
        options.connections_max = (size_t)serve->connections_max;
    }
    options.memory_max = (size_t)serve->memory_max;
    options.key_size_max = (size_t)serve->key_max;
    options.value_size_max = (size_t)serve->value_max;
    options.idle_timeout_ms = serve->idle_timeout_ms;
    options.request_timeout_ms = serve->request_timeout_ms;
    options.http_address = serve->http_address;
    options.run_id = serve->run_id;
    options.job_grace_ms = serve->job_grace_ms;
    options.job_reclaim_ms = serve->job_reclaim_ms;
    options.job_expiry_ms = serve->job_expiry_ms;
    size_t http_connections = serve->http_address == NULL ? 0 : MST_HTTP_CONNECTIONS_MAX;
    check_descriptors(&options.log, options.connections_max, http_connections);
    check_backlog(&options.log, options.connections_max, explicit_wish);
    struct mst_server *server = NULL;
    mst__mem_tune();
    int rv = mst__claim_server(&options, &server, &err);
    if (rv != 0) {
        exit_code = fail(serve, &options.log, &err);
        mst__rdzv_advise_taken(&err, serve->hosts.count == 0 ? "*" : serve->hosts.values[0],
                               serve->port);
        return exit_code;
    }
    mst__heap_watch(server);
    rv = serve->journal == NULL
             ? 0
             : mst__server_journal(server, serve->journal, (uint64_t)serve->journal_size, &err);
    rv = rv == 0 ? run_server(server, &port_file, &options.log, &err) : rv;
    mst_server_free(server);
    return rv == 0 ? MST_EXIT_OK : fail(serve, &options.log, &err);
}

/* Rows of the option table for jobs, and their defaults. */
#define SERVE_JOB_DEFAULTS .job_grace_ms = 1000, .job_reclaim_ms = 5000, .job_expiry_ms = 600000
#define SERVE_JOB_OPTIONS(serve)                                                                  \
    {                                                                                             \
        "run-id", "ID", "Serve only this job. Default: any.", MST_OPTION_TEXT, &(serve).run_id,   \
        0,        0},                                                                             \
        {"job-grace",                                                                             \
         "TIME",                                                                                  \
         "Time to reconnect before a node is declared lost. Default: 1s.",                        \
         MST_OPTION_DURATION,                                                                     \
         &(serve).job_grace_ms,                                                                   \
         0,                                                                                       \
         MST_JOB_MS_MAX},                                                                         \
        {"job-reclaim",                                                                           \
         "TIME",                                                                                  \
         "After a restart of the server, time for the members of a running round to reconnect "   \
         "before the round ends. Default: 5s.",                                                   \
         MST_OPTION_DURATION,                                                                     \
         &(serve).job_reclaim_ms,                                                                 \
         0,                                                                                       \
         MST_JOB_MS_MAX},                                                                         \
    {                                                                                             \
        "job-expiry", "TIME",                                                                     \
            "Time after which a job without nodes is forgotten, closed or not, with the keys of " \
            "its rounds. Default: 10m.",                                                          \
            MST_OPTION_DURATION, &(serve).job_expiry_ms, 0, MST_JOB_MS_MAX                        \
    }

/* The same for the journal and the log. */
#define SERVE_LOG_DEFAULTS \
    .journal_size = (int64_t)MST_JOURNAL_SIZE_DEFAULT, .log_format = "text", .log_level = "info"
#define SERVE_LOG_OPTIONS(serve)                                                                 \
    {"journal",                                                                                  \
     "FILE",                                                                                     \
     "Append all events of jobs to this file, for muster replay. The file contains names and "   \
     "addresses of nodes. Default: none.",                                                       \
     MST_OPTION_TEXT,                                                                            \
     &(serve).journal,                                                                           \
     0,                                                                                          \
     0},                                                                                         \
        {"journal-size",                                                                         \
         "SIZE",                                                                                 \
         "Rotate the journal at this size: it becomes FILE.1, which is replaced. Default: 64M.", \
         MST_OPTION_SIZE,                                                                        \
         &(serve).journal_size,                                                                  \
         (int64_t)MST_JOURNAL_SIZE_MIN,                                                          \
         INT64_MAX},                                                                             \
        {"log-file",                                                                             \
         "FILE",                                                                                 \
         "Append the log to this file. SIGHUP reopens it after a rotation. Default: stderr.",    \
         MST_OPTION_TEXT,                                                                        \
         &(serve).log_file,                                                                      \
         0,                                                                                      \
         0},                                                                                     \
        {"log-format",                                                                           \
         "FORMAT",                                                                               \
         "text or json, one line per event. Default: text.",                                     \
         MST_OPTION_TEXT,                                                                        \
         &(serve).log_format,                                                                    \
         0,                                                                                      \
         0},                                                                                     \
    {                                                                                            \
        "log-level", "LEVEL", "debug, info, warn or error. Default: info.", MST_OPTION_TEXT,     \
            &(serve).log_level, 0, 0                                                             \
    }

int mst__cli_serve(int argc, char **argv)
{
    struct serve serve = {
        .port = 29400,
        .connections_max = 0,
        .memory_max = (int64_t)MST_MEMORY_DEFAULT,
        .key_max = (int64_t)MST_KEY_SIZE_DEFAULT,
        .value_max = (int64_t)MST_VALUE_SIZE_DEFAULT,
        .request_timeout_ms = 60000,
        SERVE_JOB_DEFAULTS,
        SERVE_LOG_DEFAULTS,
    };
    const struct mst__option options[] = {
        {"host", "HOST",
         "Listen here: a name, an address, '*' for every address of both families, or unix:PATH. "
         "May be given several times. '::' takes IPv4 too unless 0.0.0.0 is given beside it. "
         "Default: the loopback addresses, which other machines cannot reach.",
         MST_OPTION_LIST, &serve.hosts, 0, 0},
        {"port", "PORT", "TCP port, 0 for a free one. Default: 29400, as for join.",
         MST_OPTION_NUMBER, &serve.port, 0, 65535},
        {"port-file", "FILE",
         "Write the port to this file once connections are accepted. An existing regular file is "
         "removed at the start, the new one at the end.",
         MST_OPTION_TEXT, &serve.port_file, 0, 0},
        {"ipv6-only", NULL, "Let '::' take IPv6 only.", MST_OPTION_FLAG, &serve.ipv6_only, 0, 0},
        {"max-connections", "N", "Refuse further connections beyond this number. Default: 16384.",
         MST_OPTION_NUMBER, &serve.connections_max, 1, MST_CONNECTIONS_MAX},
        {"max-memory", "SIZE",
         "Memory for data, jobs and connections' buffers; a request that would exceed it ends its "
         "connection and changes nothing. Default: 1G.",
         MST_OPTION_SIZE, &serve.memory_max, 1 << 16, INT64_MAX},
        {"max-key", "SIZE", "Longest key. Default: 8K, as PyTorch's server.", MST_OPTION_SIZE,
         &serve.key_max, 1, (int64_t)MST_KEY_SIZE_MAX},
        {"max-value", "SIZE", "Longest value. Default: 8M, as PyTorch's server.", MST_OPTION_SIZE,
         &serve.value_max, 1, (int64_t)MST_VALUE_SIZE_MAX},
        {"idle-timeout", "TIME",
         "Close connections that have been silent for this time and wait for nothing. Default: 0, "
         "never: torch's clients are silent for hours, and torch up to 2.0 spins when its second "
         "connection is closed.",
         MST_OPTION_DURATION, &serve.idle_timeout_ms, 0, 0},
        {"request-timeout", "TIME",
         "Close a connection whose request is not complete within this time after its first byte, "
         "or that does not read its replies. Each 64 KiB adds 1 s. Default: 60s.",
         MST_OPTION_DURATION, &serve.request_timeout_ms, 1, INT64_MAX},
        SERVE_JOB_OPTIONS(serve),
#ifdef MST_WITH_HTTP
        {"http", "ADDRESS",
         "Serve /metrics, for Prometheus, /healthz, /readyz and /jobs here: HOST:PORT, [::1]:PORT "
         "or '*:PORT'; "
         "port 0 for a free one. Default: off.",
         MST_OPTION_TEXT, &serve.http_address, 0, 0},
#else
        {"http", "ADDRESS", "this muster was built without http", MST_OPTION_NOT_BUILT, NULL, 0, 0},
#endif
        SERVE_LOG_OPTIONS(serve),
    };
    const struct mst__usage usage = {
        .command = "muster serve",
        .synopsis = "[options]",
        .text = serve_text,
        .options = options,
        .options_count = sizeof options / sizeof options[0],
    };
    int arguments = 0;
    int exit_code = 0;
    if (!mst__options_parse(&usage, argc, argv, &arguments, &exit_code)) {
        return exit_code;
    }
    return serve_with(&serve);
}
