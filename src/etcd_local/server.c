/* etcd_local/server.c - a private etcd: find it, start it, wait until it is healthy, clean up.
 *
 * Invariant: server_free releases every part of a server that exists, first the process, then
 * the data directory; so a failed start leaves nothing behind. */
#include <muster/etcd.h>

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/require.h"
#include "base/sized.h"
#include "base/until.h"
#include "etcd/http.h"
#include "etcd_local/binary.h"
#include "etcd_local/ports.h"
#include "etcd_local/process.h"
#include "etcd_local/scratch.h"

#define ATTEMPTS_DEFAULT 3
#define STOP_GRACE_MS 5000

/* etcd is healthy half a second after its start at best. If another program accepts the probe
 * and does not answer, the probe ends after PROBE_TIMEOUT_MS. */
#define PROBE_INTERVAL_US 20000
#define PROBE_TIMEOUT_MS 1000

/* Exit status of a Go program with invalid arguments. */
#define EXIT_STATUS_USAGE 2

/* Lines of its output that are logged after a failed start. */
#define LOGGED_LINES_MAX 20

struct mst_etcd_server {
    struct mst_log log;
    struct mst__binary binary;
    struct mst__scratch scratch;
    struct mst__process *process; /* NULL = not running */
    struct mst__endpoint endpoint;
    char endpoint_text[MST_ENDPOINT_TEXT_SIZE];
    int output_fd;     /* a file or our stderr; -1 = the process keeps it */
    char *output_path; /* MST_ETCD_OUTPUT_FILE */
    off_t output_from; /* where its output begins in the file */
    bool is_healthy;   /* it was at least once */
};

void mst_etcd_options_init(struct mst_etcd_options *options, size_t size)
{
    static const struct mst_etcd_options defaults = {
        .size = sizeof defaults,
        .host = "localhost",
        .attempts = ATTEMPTS_DEFAULT,
        .cancel_fd = -1,
    };
    mst__sized_init(options, size, &defaults, sizeof defaults);
}

/* --- last words --- */

static void read_tail(struct mst_etcd_server *server, char ret_tail[MST_PROCESS_TAIL_SIZE + 1])
{
    ret_tail[0] = '\0';
    if (server->output_path == NULL) {
        (void)mst__process_tail(server->process, ret_tail); /* empty if it went to our stderr */
        return;
    }
    int fd = open(server->output_path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd >= 0 && fstat(fd, &status) == 0) {
        off_t from = status.st_size - MST_PROCESS_TAIL_SIZE;
        from = from < server->output_from ? server->output_from : from;
        ssize_t size = pread(fd, ret_tail, MST_PROCESS_TAIL_SIZE, from);
        ret_tail[size < 0 ? 0 : size] = '\0';
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* Fill @reterr with the formatted text and as much of the end of etcd's output as fits; for a
 * usage error the beginning, because a long explanation follows. */
static int MST_PRINTF(5, 6) fail_with_words(struct mst_etcd_server *server,
                                            struct mst_err *reterr,
                                            int code,
                                            bool is_usage,
                                            const char *format,
                                            ...)
{
    static const char lead[] = "; it printed: ";
    char text[150];
    char words[sizeof reterr->msg];
    char tail[MST_PROCESS_TAIL_SIZE + 1];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    read_tail(server, tail);
    if (is_usage) {
        tail[strcspn(tail, "\n")] = '\0';
    }
    size_t room = sizeof words - strlen(text) - (sizeof lead - 1);
    (void)mst__process_last_words(tail, words, room);
    return mst__fail(reterr, code, 0, "%s%s%s", text, words[0] == '\0' ? "" : lead, words);
}

/* Log the output: an error message has little room. */
static void log_tail(struct mst_etcd_server *server)
{
    char tail[MST_PROCESS_TAIL_SIZE + 1];
    char quoted[MST_LOG_QUOTE_SIZE];
    read_tail(server, tail);
    size_t from = strlen(tail);
    for (unsigned lines = 0; from > 0; from--) {
        lines += tail[from - 1] == '\n' ? 1 : 0;
        if (lines > LOGGED_LINES_MAX) {
            break;
        }
    }
    const char *at = tail + from;
    while (*at != '\0') {
        size_t length = strcspn(at, "\n");
        if (length > 0) {
            mst__log(&server->log, MST_LOG_INFO, "etcd.output", "line=%s",
                     mst__log_quote(mst_bytes_of(at, length), quoted));
        }
        at += length + (at[length] == '\n' ? 1 : 0);
    }
}

/* --- its arguments and environment --- */

/* A list of strings on the heap, ended by NULL. */
struct words {
    char **items;
    size_t count;
    size_t capacity; /* without the NULL */
};

static void words_close(struct words *words)
{
    for (size_t i = 0; i < words->count; i++) {
        mst__free(words->items[i]);
    }
    mst__free(words->items);
    *words = (struct words){0};
}

static bool words_init(struct words *words, size_t capacity)
{
    *words = (struct words){.items = mst__calloc(capacity + 1, sizeof(char *))};
    words->capacity = words->items == NULL ? 0 : capacity;
    return words->items != NULL;
}

/* Add @option and @value as one word; false if out of memory. */
static bool words_add(struct words *words, const char *option, const char *value)
{
    MST_ASSERT(words->count < words->capacity);
    size_t size = strlen(option) + strlen(value) + 1;
    char *word = mst__malloc(size);
    if (word == NULL) {
        return false;
    }
    (void)snprintf(word, size, "%s%s", option, value);
    words->items[words->count++] = word;
    return true;
}

/* ETCD_ variables are for another etcd, except the one for untested processors. */
static bool fill_environment(struct words *words)
{
    static const char exception[] = "ETCD_UNSUPPORTED_ARCH=";
    size_t count = 0;
    while (environ[count] != NULL) {
        count++;
    }
    if (!words_init(words, count)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        bool is_taken = strncmp(environ[i], "ETCD_", 5) != 0 ||
                        strncmp(environ[i], exception, sizeof exception - 1) == 0;
        if (is_taken && !words_add(words, environ[i], "")) {
            return false;
        }
    }
    return true;
}

static bool add_tls(struct words *words, const struct mst_etcd_options *options)
{
    const char *key = options->key_path == NULL ? options->cert_path : options->key_path;
    return words_add(words, "--cert-file=", options->cert_path) &&
           words_add(words, "--key-file=", key) &&
           (options->client_ca_path == NULL ||
            (words_add(words, "--client-cert-auth=true", "") &&
             words_add(words, "--trusted-ca-file=", options->client_ca_path)));
}

#define OWN_ARGUMENTS_MAX 16

/* Member and cluster keep their default names. The caller's arguments come last and take
 * precedence. */
static bool fill_arguments(const struct mst_etcd_server *server,
                           const struct mst_etcd_options *options,
                           const struct mst__port *client,
                           const struct mst__port *peer,
                           struct words *words)
{
    char urls[MST_PORTS_URLS_SIZE];
    char advertised[MST_ENDPOINT_TEXT_SIZE + sizeof "https://"];
    bool is_tls = options->cert_path != NULL;
    size_t more = 0;
    while (options->arguments != NULL && options->arguments[more] != NULL) {
        more++;
    }
    (void)snprintf(advertised, sizeof advertised, "%s://%s", is_tls ? "https" : "http",
                   server->endpoint_text);
    bool done = words_init(words, OWN_ARGUMENTS_MAX + more) &&
                words_add(words, server->binary.path, "") &&
                words_add(words, "--data-dir=", server->scratch.path) &&
                words_add(words, "--listen-client-urls=", mst__port_urls(client, is_tls, urls)) &&
                words_add(words, "--advertise-client-urls=", advertised) &&
                words_add(words, "--listen-peer-urls=", mst__port_urls(peer, false, urls));
    /* Before 3.3 the API is always on, and the option does not exist. */
    if (done && options->enable_v2 && mst__binary_is_from(&server->binary, 3, 3)) {
        done = words_add(words, "--enable-v2=true", "");
    }
    if (done && is_tls) {
        done = add_tls(words, options);
    }
    for (size_t i = 0; done && i < more; i++) {
        done = words_add(words, options->arguments[i], "");
    }
    return done;
}

/* --- one attempt --- */

static int fail_ended(struct mst_etcd_server *server,
                      const struct mst__process_end *end,
                      struct mst_err *reterr)
{
    char how[MST_PROCESS_END_SIZE];
    bool is_usage = end->is_known && !end->is_signal && end->number == EXIT_STATUS_USAGE;
    int rv =
        fail_with_words(server, reterr, MST_ECONN, is_usage, "etcd %s ('%.50s') %s%s",
                        server->binary.version, server->binary.path,
                        mst__process_describe(end, how), server->is_healthy ? "" : " at its start");
    if (end->is_known) {
        mst__err_code(reterr, end->is_signal ? MST_DOMAIN_SIGNAL : MST_DOMAIN_EXIT, end->number);
    }
    return rv;
}

/* Ask once whether it is healthy. If not, @ret_why has its answer or the error. */
static int ask_health(struct mst__http *http,
                      struct mst__until until,
                      bool *ret_is_healthy,
                      struct mst_err *ret_why)
{
    const struct mst__http_request request = {
        .method = MST_HTTP_GET,
        .path = "/health",
        .is_repeatable = true,
    };
    struct mst__http_response response;
    mst__http_response_init(&response);
    until = mst__until_sooner(until, mst__clock_deadline_ms(PROBE_TIMEOUT_MS));
    int rv = mst__http_call(http, &request, until, &response, ret_why);
    *ret_is_healthy = rv == 0 && response.status == 200;
    if (rv == 0 && !*ret_is_healthy) {
        mst__err_fill(ret_why, MST_ECONN, 0, "GET /health: status %d", response.status);
    }
    mst__http_response_close(&response);
    return rv;
}

static int await_health_by(struct mst_etcd_server *server,
                           struct mst__http *http,
                           struct mst__until until,
                           struct mst_err *reterr)
{
    struct mst_err why = {0};
    for (;;) {
        bool is_healthy = false;
        struct mst__process_end end;
        int rv = ask_health(http, until, &is_healthy, &why);
        if (mst__process_has_ended(server->process, &end)) {
            return fail_ended(server, &end, reterr);
        }
        if (is_healthy) {
            return 0;
        }
        if (rv == MST_ECANCELED || rv == MST_EAUTH || rv == MST_ENOMEM) {
            return mst__fail(reterr, rv, 0, "etcd: %s", why.msg);
        }
        if (mst__until_is_over(until)) {
            return fail_with_words(server, reterr, MST_ETIMEOUT, false,
                                   "etcd %s was not healthy in time: %.70s", server->binary.version,
                                   why.msg);
        }
        if (!mst__until_pause(until.wake_fd, mst__clock_us() + PROBE_INTERVAL_US)) {
            return mst__fail(reterr, MST_ECANCELED, 0, "etcd: its start was interrupted");
        }
    }
}

static int await_health(struct mst_etcd_server *server,
                        const struct mst_etcd_options *options,
                        struct mst__until until,
                        struct mst_err *reterr)
{
    bool shows_cert = options->client_ca_path != NULL;
    const struct mst__http_options http_options = {
        .endpoints = &server->endpoint,
        .endpoint_count = 1,
        .is_tls = options->cert_path != NULL,
        /* Only this certificate, so that no other server is accepted. */
        .ca_path = options->cert_path,
        .cert_path = shows_cert ? options->cert_path : NULL,
        .key_path = shows_cert ? options->key_path : NULL,
    };
    struct mst__http *http = NULL;
    int rv = mst__http_new(&http_options, &http, reterr);
    if (rv != 0) {
        return rv;
    }
    rv = await_health_by(server, http, until, reterr);
    mst__http_free(http);
    return rv;
}

static int run_etcd(struct mst_etcd_server *server,
                    const struct mst_etcd_options *options,
                    const struct mst__port *client,
                    const struct mst__port *peer,
                    struct mst_err *reterr)
{
    struct words arguments = {0};
    struct words environment = {0};
    int rv;
    if (fill_arguments(server, options, client, peer, &arguments) &&
        fill_environment(&environment)) {
        rv = mst__process_start(arguments.items, environment.items, server->output_fd,
                                &server->process, reterr);
    } else {
        rv = mst__fail(reterr, MST_ENOMEM, 0, "arguments of etcd");
    }
    words_close(&arguments);
    words_close(&environment);
    return rv;
}

static int attempt_start(struct mst_etcd_server *server,
                         const struct mst_etcd_options *options,
                         unsigned attempt,
                         struct mst__until until,
                         struct mst_err *reterr)
{
    struct mst__port client = {0};
    struct mst__port peer = {0};
    int rv = mst__scratch_next(&server->scratch, attempt, reterr);
    if (rv == 0) {
        rv = mst__port_hold(server->endpoint.host, options->client_port, &client, reterr);
    }
    if (rv == 0) {
        rv = mst__port_hold("localhost", options->peer_port, &peer, reterr);
    }
    if (rv == 0) {
        server->endpoint.port = client.number;
        (void)mst__endpoint_format(&server->endpoint, server->endpoint_text);
        rv = run_etcd(server, options, &client, &peer, reterr);
    }
    if (rv == 0) {
        rv = await_health(server, options, until, reterr);
    }
    mst__port_release(&client);
    mst__port_release(&peer);
    if (rv != 0 && server->process != NULL) {
        log_tail(server);
        /* Existing data deserves a clean shutdown. */
        mst__process_stop(server->process, server->scratch.has_data ? STOP_GRACE_MS : 0);
        mst__process_free(server->process);
        server->process = NULL;
    }
    return rv;
}

/* --- starting --- */

static int check_options(const struct mst_etcd_options *options, struct mst_err *reterr)
{
    if (options->host == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "mst_etcd_server_start: options->host is NULL");
    }
    if (options->output == MST_ETCD_OUTPUT_FILE && options->output_path == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "etcd options: output to a file, and no path");
    }
    if (options->cert_path == NULL &&
        (options->key_path != NULL || options->client_ca_path != NULL)) {
        return mst__fail(reterr, MST_EINVAL, 0, "etcd options: %s without a certificate of its own",
                         options->key_path != NULL ? "a key" : "an authority for clients");
    }
    const char *paths[] = {options->cert_path, options->key_path, options->client_ca_path};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (paths[i] != NULL && access(paths[i], R_OK) != 0) {
            return mst__fail(reterr, MST_EINVAL, errno, "etcd: read '%.120s'", paths[i]);
        }
    }
    return 0;
}

static int check_v2(const struct mst__binary *binary, struct mst_err *reterr)
{
    if (!mst__binary_is_from(binary, 3, 6)) {
        return 0;
    }
    return mst__fail(reterr, MST_ENOTSUP, 0,
                     "etcd %s ('%.50s') has no v2 API, which 3.6 has removed; use 3.5 or older, or "
                     "omit --enable-v2",
                     binary->version, binary->path);
}

static int open_output(struct mst_etcd_server *server,
                       const struct mst_etcd_options *options,
                       struct mst_err *reterr)
{
    if (options->output == MST_ETCD_OUTPUT_NONE) {
        return 0;
    }
    if (options->output == MST_ETCD_OUTPUT_INHERIT) {
        server->output_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        return server->output_fd >= 0 ? 0 : mst__fail(reterr, MST_ESYS, errno, "etcd: our stderr");
    }
    const char *path = options->output_path;
    server->output_path = mst__strdup(path);
    if (server->output_path == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "output of etcd");
    }
    server->output_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0640);
    struct stat status;
    if (server->output_fd < 0 || fstat(server->output_fd, &status) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "etcd: open '%.120s' for its output", path);
    }
    server->output_from = status.st_size;
    return 0;
}

static void server_free(struct mst_etcd_server *server)
{
    if (server->process != NULL) {
        mst__process_stop(server->process, STOP_GRACE_MS);
        mst__process_free(server->process);
    }
    mst__scratch_close(&server->scratch, server->is_healthy);
    if (server->output_fd >= 0) {
        (void)close(server->output_fd);
    }
    mst__free(server->output_path);
    mst__free(server);
}

static int start_all(struct mst_etcd_server *server,
                     const struct mst_etcd_options *options,
                     struct mst__until until,
                     struct mst_err *reterr)
{
    unsigned attempts = options->attempts == 0 ? 1 : options->attempts;
    for (unsigned attempt = 0;; attempt++) {
        struct mst_err err = {0};
        int rv = attempt_start(server, options, attempt, until, &err);
        if (rv == 0) {
            server->is_healthy = true;
            return 0;
        }
        /* Another attempt may help only if the etcd has exited. */
        if (rv != MST_ECONN || attempt + 1 >= attempts) {
            return mst__err_pass(reterr, rv, &err);
        }
        char quoted[MST_LOG_QUOTE_SIZE];
        mst__log(&server->log, MST_LOG_WARN, "etcd.start_failed", "attempt=%u of=%u why=%s",
                 attempt + 1, attempts, mst__log_quote(mst_bytes_str(err.msg), quoted));
    }
}

static int server_start(struct mst_etcd_server *server,
                        const struct mst_etcd_options *options,
                        struct mst__until until,
                        struct mst_err *reterr)
{
    const char *host = options->host == NULL ? "localhost" : options->host;
    int length = snprintf(server->endpoint.host, sizeof server->endpoint.host, "%s", host);
    if (length <= 0 || (size_t)length >= sizeof server->endpoint.host) {
        return mst__fail(reterr, MST_EINVAL, 0, "etcd: '%.80s' is not a host to listen on", host);
    }
    int rv = mst__binary_find(options->binary_path, &server->log, &server->binary, reterr);
    if (rv == 0) {
        rv = mst__binary_probe(&server->binary, until, reterr);
    }
    if (rv == 0 && options->enable_v2) {
        rv = check_v2(&server->binary, reterr);
    }
    if (rv == 0) {
        rv = open_output(server, options, reterr);
    }
    if (rv == 0) {
        rv = mst__scratch_open(options->data_dir, &server->log, &server->scratch, reterr);
    }
    return rv == 0 ? start_all(server, options, until, reterr) : rv;
}

int mst_etcd_server_start(const struct mst_etcd_options *options,
                          int64_t timeout_ms,
                          struct mst_etcd_server **ret_server,
                          struct mst_err *reterr)
{
    MST_REQUIRE(ret_server, reterr);
    struct mst_etcd_options taken;
    mst_etcd_options_init(&taken, sizeof taken);
    int rv = 0;
    if (options != NULL) {
        rv = mst__sized_take(&taken, sizeof taken, options, "mst_etcd_options", reterr);
    }
    options = &taken;
    if (rv == 0) {
        rv = check_options(options, reterr);
    }
    if (rv != 0) {
        return rv;
    }
    struct mst_etcd_server *server = mst__malloc(sizeof *server);
    if (server == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "etcd server");
    }
    *server = (struct mst_etcd_server){.log = options->log, .output_fd = -1};
    rv = server_start(server, options, mst__until_by(options->cancel_fd, timeout_ms), reterr);
    if (rv != 0) {
        server_free(server);
        return rv;
    }
    mst__log(&server->log, MST_LOG_INFO, "etcd.started", "endpoint=%s version=%s pid=%d",
             MST_LOG_TEXT(server->endpoint_text), MST_LOG_TEXT(server->binary.version),
             mst_etcd_server_pid(server));
    *ret_server = server;
    return 0;
}

/* --- one that runs --- */

const char *mst_etcd_server_endpoint(const struct mst_etcd_server *server)
{
    return server == NULL ? "" : server->endpoint_text;
}

uint16_t mst_etcd_server_port(const struct mst_etcd_server *server)
{
    return server == NULL ? 0 : server->endpoint.port;
}

const char *mst_etcd_server_version(const struct mst_etcd_server *server)
{
    return server == NULL ? "" : server->binary.version;
}

int mst_etcd_server_pid(const struct mst_etcd_server *server)
{
    return server == NULL ? 0 : (int)mst__process_pid(server->process);
}

bool mst_etcd_server_is_running(struct mst_etcd_server *server, struct mst_err *reterr)
{
    struct mst__process_end end;
    if (server == NULL) {
        (void)mst__fail(reterr, MST_EINVAL, 0, "%s: server is NULL", __func__);
        return false;
    }
    if (!mst__process_has_ended(server->process, &end)) {
        return true;
    }
    (void)fail_ended(server, &end, reterr);
    return false;
}

void mst_etcd_server_stop(struct mst_etcd_server *server)
{
    if (server != NULL) {
        server_free(server);
    }
}
