/* unit/etcd/test_etcd_http.c - HTTP against a server with a script: what is sent how often, and
 * the result if the server misbehaves. */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/until.h"
#include "etcd/http.h"
#include "unit/unit.h"

/* Long enough for a busy machine; only a failure waits that long. */
#define PLENTY_MS 20000
/* For events that must not happen: a passing test takes this long. */
#define SHORT_MS 60

/* The least time that a call takes which is refused everywhere, less the inaccuracy of clocks: the
 * server may be about to start. */
#define REFUSED_MS 95

#define CONNS 16
#define REQUESTS 32
#define REQUEST_SIZE 2048

#define OK(body) "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Etcd-Index: 7\r\n" body
#define OK_EMPTY OK("Content-Length: 0\r\n\r\n")

/* --- a server that follows a script --- */

/* The reaction to a complete request. */
struct fake_step {
    const char *answer; /* NULL = none */
    bool is_closing;    /* after that */
};

struct fake {
    int listen_fd;
    int stop_fd;
    uint16_t port;
    pthread_t thread;
    const struct fake_step *steps; /* the last one for all that follow */
    size_t step_count;

    struct pollfd polls[CONNS + 2];
    char input[CONNS][REQUEST_SIZE];
    size_t input_size[CONNS];

    pthread_mutex_t mutex;
    pthread_cond_t changed;  /* what follows */
    _Atomic size_t conns;    /* accepted so far */
    _Atomic size_t closed;   /* by us */
    _Atomic size_t requests; /* complete ones, which are in received */
    char received[REQUESTS][REQUEST_SIZE];
};

/* Whether the @size bytes of @text are a complete request. */
static bool is_request(const char *text, size_t size)
{
    const char *end = memmem(text, size, "\r\n\r\n", 4);
    if (end == NULL) {
        return false;
    }
    const char *length = strcasestr(text, "Content-Length:");
    size_t body = length == NULL || length > end ? 0 : strtoul(length + 15, NULL, 10);
    return size >= (size_t)(end - text) + 4 + body;
}

static void fake_close(struct fake *fake, size_t at)
{
    (void)pthread_mutex_lock(&fake->mutex);
    (void)close(fake->polls[at + 2].fd);
    fake->polls[at + 2].fd = -1;
    fake->closed++;
    (void)pthread_cond_broadcast(&fake->changed);
    (void)pthread_mutex_unlock(&fake->mutex);
}

static void fake_receive(struct fake *fake, size_t at)
{
    char *input = fake->input[at];
    size_t *size = &fake->input_size[at];
    ssize_t got = recv(fake->polls[at + 2].fd, input + *size, REQUEST_SIZE - 1 - *size, 0);
    if (got <= 0) {
        fake_close(fake, at);
        return;
    }
    *size += (size_t)got;
    input[*size] = '\0';
    if (!is_request(input, *size)) {
        return;
    }
    (void)pthread_mutex_lock(&fake->mutex);
    size_t number = fake->requests;
    memcpy(fake->received[number % REQUESTS], input, *size + 1);
    fake->requests++;
    (void)pthread_cond_broadcast(&fake->changed);
    (void)pthread_mutex_unlock(&fake->mutex);
    *size = 0;
    const struct fake_step *step =
        &fake->steps[number < fake->step_count ? number : fake->step_count - 1];
    if (step->answer != NULL) {
        size_t length = strlen(step->answer);
        (void)send(fake->polls[at + 2].fd, step->answer, length, MSG_NOSIGNAL); /* or not */
    }
    if (step->is_closing) {
        fake_close(fake, at);
    }
}

static void *fake_run(void *arg)
{
    struct fake *fake = arg;
    for (;;) {
        (void)poll(fake->polls, CONNS + 2, -1);
        if (fake->polls[0].revents != 0) {
            return NULL;
        }
        for (size_t i = 0; i < CONNS; i++) {
            if (fake->polls[i + 2].fd >= 0 && fake->polls[i + 2].revents != 0) {
                fake_receive(fake, i);
            }
        }
        if (fake->polls[1].revents == 0) {
            continue;
        }
        int fd = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        size_t at = 0;
        while (at < CONNS && fake->polls[at + 2].fd >= 0) {
            at++;
        }
        assert_true(fd >= 0 && at < CONNS);
        fake->polls[at + 2] = (struct pollfd){.fd = fd, .events = POLLIN};
        fake->input_size[at] = 0;
        fake->conns++;
    }
}

static int listen_somewhere(uint16_t *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

static struct fake *fake_start(const struct fake_step *steps, size_t count)
{
    struct fake *fake = calloc(1, sizeof *fake);
    assert_non_null(fake);
    fake->steps = steps;
    fake->step_count = count;
    fake->listen_fd = listen_somewhere(&fake->port);
    fake->stop_fd = eventfd(0, EFD_CLOEXEC);
    fake->polls[0] = (struct pollfd){.fd = fake->stop_fd, .events = POLLIN};
    fake->polls[1] = (struct pollfd){.fd = fake->listen_fd, .events = POLLIN};
    for (size_t i = 0; i < CONNS; i++) {
        fake->polls[i + 2].fd = -1;
    }
    (void)pthread_mutex_init(&fake->mutex, NULL);
    (void)pthread_cond_init(&fake->changed, NULL);
    assert_int_equal(pthread_create(&fake->thread, NULL, fake_run, fake), 0);
    return fake;
}

#define START(steps) fake_start((steps), sizeof(steps) / sizeof(steps)[0])

static void fake_stop(struct fake *fake)
{
    assert_int_equal(eventfd_write(fake->stop_fd, 1), 0);
    assert_int_equal(pthread_join(fake->thread, NULL), 0);
    for (size_t i = 0; i < CONNS + 2; i++) {
        if (fake->polls[i].fd >= 0) {
            (void)close(fake->polls[i].fd);
        }
    }
    (void)pthread_mutex_destroy(&fake->mutex);
    (void)pthread_cond_destroy(&fake->changed);
    free(fake);
}

/* Wait until *@number, of @fake, is @wanted. */
static void fake_await(struct fake *fake, const _Atomic size_t *number, size_t wanted)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PLENTY_MS / 1000;
    (void)pthread_mutex_lock(&fake->mutex);
    int rv = 0;
    while (*number < wanted && rv == 0) {
        rv = pthread_cond_timedwait(&fake->changed, &fake->mutex, &until);
    }
    size_t is = *number;
    (void)pthread_mutex_unlock(&fake->mutex);
    assert_int_equal(is, wanted);
}

/* --- the client --- */

static _Thread_local struct mst_err err;

static struct mst__endpoint endpoint_of(uint16_t port)
{
    struct mst__endpoint endpoint = {.host = "127.0.0.1", .port = port};
    return endpoint;
}

static struct mst__http *client_with(struct mst__http_options options,
                                     uint16_t port,
                                     uint16_t other_port)
{
    /* One that is given again is the same. */
    struct mst__endpoint endpoints[] = {endpoint_of(port), endpoint_of(other_port),
                                        endpoint_of(port)};
    options.endpoints = endpoints;
    options.endpoint_count = other_port == 0 ? 1 : 3;
    struct mst__http *http = NULL;
    if (mst__http_new(&options, &http, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    return http;
}

static struct mst__http *client(uint16_t port)
{
    struct mst__http_options options = {0};
    return client_with(options, port, 0);
}

static const struct mst__http_request read_request = {.method = MST_HTTP_GET,
                                                      .path = "/r",
                                                      .is_repeatable = true};

static struct mst__http_request write_request(void)
{
    struct mst__http_request request = {
        .method = MST_HTTP_PUT,
        .path = "/w",
        .body = mst_bytes_str("a=1"),
        .content_type = "application/x-www-form-urlencoded",
    };
    return request;
}

/* Call and compare the code; the answer is thrown away. */
static void expect_by(struct mst__http *http,
                      struct mst__http_request request,
                      struct mst__until until,
                      int wanted)
{
    struct mst__http_response response;
    mst__http_response_init(&response);
    err = (struct mst_err){0};
    int rv = mst__http_call(http, &request, until, &response, &err);
    if (rv != wanted) {
        fail_msg("%s %s gives %s: %s", request.method == MST_HTTP_GET ? "GET" : "PUT", request.path,
                 mst_errname(rv), err.msg);
    }
    if (rv != 0) {
        assert_int_equal(err.code, rv);
        assert_non_null(strstr(err.msg, "http://127.0.0.1:"));
    }
    mst__http_response_close(&response);
}

static void expect(struct mst__http *http,
                   struct mst__http_request request,
                   int64_t timeout_ms,
                   int wanted)
{
    expect_by(http, request, mst__until_in(timeout_ms), wanted);
}

static void test_kept_alive(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {
        {"HTTP/1.1 201 Created\r\ncontent-type: application/json; x=y\r\nX-ETCD-index:  42 \r\n"
         "Content-Length: 5\r\n\r\nhello",
         false},
        {"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n"
         "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
         false},
    };
    struct fake *fake = START(steps);
    struct mst__http *http = client(fake->port);
    struct mst__http_response response;
    mst__http_response_init(&response);
    struct mst__http_request request = write_request();
    struct mst__until until = mst__until_in(PLENTY_MS);
    assert_int_equal(mst__http_call(http, &request, until, &response, &err), 0);
    assert_int_equal(response.status, 201);
    assert_true(response.is_json);
    assert_true(response.has_index);
    assert_int_equal(response.etcd_index, 42);
    assert_bytes_str(mst__buf_bytes(&response.body), "hello");

    assert_int_equal(mst__http_call(http, &read_request, until, &response, &err), 0);
    assert_int_equal(response.status, 404);
    assert_false(response.is_json);
    assert_false(response.has_index);
    assert_bytes_str(mst__buf_bytes(&response.body), "abcde");
    expect(http, (struct mst__http_request){.method = MST_HTTP_DELETE, .path = "/a%2F../b?c=d"},
           PLENTY_MS, 0);
    expect(http, (struct mst__http_request){.method = MST_HTTP_POST, .path = "/p"}, PLENTY_MS, 0);

    assert_int_equal(fake->conns, 1);
    assert_int_equal(mst__http_requests(http), 4);
    assert_int_equal(strncmp(fake->received[0], "PUT /w HTTP/1.1\r\n", 17), 0);
    assert_non_null(strstr(fake->received[0], "\r\nContent-Length: 3\r\n"));
    assert_non_null(
        strstr(fake->received[0], "\r\nContent-Type: application/x-www-form-urlencoded\r\n"));
    assert_non_null(strstr(fake->received[0], "\r\n\r\na=1"));
    assert_null(strstr(fake->received[0], "Expect"));
    assert_null(strstr(fake->received[0], "Authorization"));
    assert_int_equal(strncmp(fake->received[1], "GET /r HTTP/1.1\r\n", 17), 0);
    assert_null(strstr(fake->received[1], "Content-"));
    assert_int_equal(strncmp(fake->received[2], "DELETE /a%2F../b?c=d HTTP/1.1\r\n", 31), 0);
    assert_null(strstr(fake->received[2], "Content-"));
    assert_non_null(strstr(fake->received[3], "\r\nContent-Length: 0\r\n"));
    assert_null(strstr(fake->received[3], "Content-Type"));
    mst__http_response_close(&response);
    mst__http_free(http);
    fake_stop(fake);
}

/* The server has closed a kept connection: we notice before a write is sent. */
static void test_closed_in_between(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {{OK_EMPTY, true}, {OK_EMPTY, false}};
    struct fake *fake = START(steps);
    struct mst__http *http = client(fake->port);
    expect(http, write_request(), PLENTY_MS, 0);
    fake_await(fake, &fake->closed, 1);
    expect(http, write_request(), PLENTY_MS, 0);
    assert_int_equal(fake->conns, 2);
    assert_int_equal(fake->requests, 2);
    mst__http_free(http);
    fake_stop(fake);
}

/* It is closed instead of an answer: a write is not sent again, on any connection. */
static void test_lost_write(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {
        {OK_EMPTY, false}, {NULL, true}, {NULL, true}, {OK_EMPTY, false}};
    struct fake *fake = START(steps);
    struct mst__http *http = client(fake->port);
    expect(http, write_request(), PLENTY_MS, 0);
    expect(http, write_request(), PLENTY_MS, MST_EUNKNOWN);
    assert_int_equal(fake->requests, 2);
    assert_int_equal(mst__http_requests(http), 2);
    /* The same on a connection that is new. */
    expect(http, write_request(), PLENTY_MS, MST_EUNKNOWN);
    assert_int_equal(fake->requests, 3);
    expect(http, write_request(), PLENTY_MS, 0);
    mst__http_free(http);
    fake_stop(fake);
}

static void test_lost_read(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {
        {OK_EMPTY, false}, {NULL, true}, {NULL, true}, {OK_EMPTY, false}, {NULL, true}};
    struct fake *fake = START(steps);
    struct mst__http *http = client(fake->port);
    expect(http, read_request, PLENTY_MS, 0);
    expect(http, read_request, PLENTY_MS, 0);
    assert_int_equal(fake->requests, 4);
    /* Not for ever. */
    expect(http, read_request, PLENTY_MS, MST_ECONN);
    mst__http_free(http);
    fake_stop(fake);
}

static void test_cut_off(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {
        {OK("Content-Length: 9\r\n\r\nhalf"), true},
        {OK("Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"), true},
        {OK("Content-Len"), true},
        {OK("Content-Length: 9\r\n\r\nhalf"), true},
        {OK("Content-Length: 4\r\n\r\nfull"), false},
    };
    struct fake *fake = START(steps);
    struct mst__http *http = client(fake->port);
    for (size_t i = 1; i <= 3; i++) {
        expect(http, write_request(), PLENTY_MS, MST_EUNKNOWN);
        assert_int_equal(fake->requests, i);
    }
    struct mst__http_response response;
    mst__http_response_init(&response);
    assert_int_equal(mst__http_call(http, &read_request, mst__until_in(PLENTY_MS), &response, &err),
                     0);
    assert_bytes_str(mst__buf_bytes(&response.body), "full");
    mst__http_response_close(&response);
    mst__http_free(http);
    fake_stop(fake);
}

static void test_refused(void **state)
{
    (void)state;
    uint16_t port = 0;
    (void)close(listen_somewhere(&port));
    struct mst__http *http = client(port);
    int64_t begin_ms = mst__clock_ms();
    expect(http, write_request(), PLENTY_MS, MST_ECONN);
    assert_true(mst__clock_ms() - begin_ms >= REFUSED_MS);
    assert_int_equal(mst__http_requests(http), 0);
    mst__http_free(http);
    struct mst__endpoint nowhere = {.host = "nowhere.invalid", .port = 1};
    struct mst__http_options options = {.endpoints = &nowhere, .endpoint_count = 1};
    assert_int_equal(mst__http_new(&options, &http, &err), 0);
    struct mst__http_response response;
    mst__http_response_init(&response);
    int rv = mst__http_call(http, &read_request, mst__until_in(PLENTY_MS), &response, &err);
    assert_int_equal(rv, MST_ERESOLVE);
    assert_non_null(strstr(err.msg, "nowhere.invalid"));
    assert_int_equal(err.domain, MST_DOMAIN_CURL);
    mst__http_response_close(&response);
    mst__http_free(http);
}

static void test_rotation(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {{OK_EMPTY, false}};
    struct fake *fake = START(steps);
    uint16_t port = 0;
    (void)close(listen_somewhere(&port));
    struct mst__http_options options = {0};
    struct mst__http *http = client_with(options, port, fake->port);
    char where[64];
    (void)snprintf(where, sizeof where, "http://127.0.0.1:%u", fake->port);
    assert_string_not_equal(mst__http_where(http), where);
    expect(http, write_request(), PLENTY_MS, 0);
    assert_string_equal(mst__http_where(http), where);
    expect(http, write_request(), PLENTY_MS, 0);
    assert_int_equal(fake->conns, 1);
    mst__http_rotate(http);
    assert_string_not_equal(mst__http_where(http), where);
    expect(http, read_request, PLENTY_MS, 0);
    assert_string_equal(mst__http_where(http), where);
    mst__http_free(http);

    /* One that is given twice counts once. */
    http = client_with(options, fake->port, fake->port);
    mst__http_rotate(http);
    assert_string_equal(mst__http_where(http), where);
    mst__http_free(http);
    fake_stop(fake);
}

static void test_silence(void **state)
{
    (void)state;
    static const struct fake_step silent_steps[] = {{NULL, false}};
    static const struct fake_step good_steps[] = {{OK_EMPTY, false}};
    struct fake *silent = START(silent_steps);
    struct mst__http *http = client(silent->port);
    expect(http, write_request(), SHORT_MS, MST_EUNKNOWN);
    expect(http, read_request, SHORT_MS, MST_ETIMEOUT);
    expect(http, write_request(), 0, MST_ETIMEOUT); /* the deadline has passed: nothing is sent */
    mst__http_free(http);

    /* With another endpoint there is no wait for the deadline. */
    struct fake *good = START(good_steps);
    struct mst__http_options options = {.patience_ms = SHORT_MS};
    http = client_with(options, silent->port, good->port);
    expect(http, read_request, PLENTY_MS, 0);
    assert_int_equal(good->requests, 1);
    mst__http_rotate(http);
    expect(http, write_request(), PLENTY_MS, MST_EUNKNOWN);
    assert_int_equal(good->requests, 1);
    expect(http, write_request(), PLENTY_MS, 0);
    assert_int_equal(good->requests, 2);
    mst__http_free(http);
    fake_stop(good);
    fake_stop(silent);
}

static void where_of(const struct fake *fake, char ret_text[64])
{
    (void)snprintf(ret_text, 64, "http://127.0.0.1:%u", fake->port);
}

static int64_t took_ms(int64_t begin_ms)
{
    return mst__clock_ms() - begin_ms;
}

/* A member that hangs gets a part of the call's time, whatever the patience, and is left. */
static void test_shares(void **state)
{
    (void)state;
    static const struct fake_step silent_steps[] = {{NULL, false}};
    static const struct fake_step good_steps[] = {{OK_EMPTY, false}};
    struct fake *silent = START(silent_steps);
    struct fake *good = START(good_steps);
    char silent_where[64];
    where_of(silent, silent_where);
    struct mst__http_options options = {.patience_ms = PLENTY_MS};
    struct mst__http *http = client_with(options, silent->port, good->port);
    int64_t begin_ms = mst__clock_ms();
    expect(http, read_request, 3000, 0);
    assert_in_range(took_ms(begin_ms), 1400, 2900);
    assert_int_equal(silent->requests, 1);
    assert_int_equal(good->requests, 1);
    assert_string_not_equal(mst__http_where(http), silent_where);
    assert_int_equal(mst__http_current(http), 1);

    /* A write is sent once: the caller looks with what is left of its time, elsewhere. */
    mst__http_rotate(http);
    assert_string_equal(mst__http_where(http), silent_where);
    begin_ms = mst__clock_ms();
    expect(http, write_request(), 3000, MST_EUNKNOWN);
    assert_in_range(took_ms(begin_ms), 1400, 2900);
    assert_non_null(strstr(err.msg, silent_where));
    assert_string_not_equal(mst__http_where(http), silent_where);
    mst__http_free(http);

    /* A client may begin where another one is. */
    options.first = 1;
    http = client_with(options, silent->port, good->port);
    expect(http, write_request(), PLENTY_MS, 0);
    mst__http_free(http);
    assert_int_equal(silent->requests, 2);

    /* All hang: the call uses its time, and is not over before. */
    struct fake *other = START(silent_steps);
    options = (struct mst__http_options){.patience_ms = SHORT_MS};
    http = client_with(options, silent->port, other->port);
    begin_ms = mst__clock_ms();
    expect(http, read_request, 10 * SHORT_MS, MST_ETIMEOUT);
    assert_true(took_ms(begin_ms) >= 10 * SHORT_MS - 1);
    assert_true(silent->requests >= 4 && other->requests >= 2);
    mst__http_free(http);

    /* The last one has all that is left, because nobody comes after it. */
    size_t before[] = {silent->requests, other->requests};
    options.patience_ms = PLENTY_MS;
    http = client_with(options, silent->port, other->port);
    expect(http, read_request, 2000, MST_ETIMEOUT);
    assert_int_equal(silent->requests, before[0] + 1);
    assert_int_equal(other->requests, before[1] + 1);
    mst__http_free(http);
    fake_stop(other);
    fake_stop(good);
    fake_stop(silent);
}

static _Atomic size_t rotated;

static void count_rotated(void *arg, enum mst_log_level level, const char *line)
{
    (void)arg;
    rotated += level == MST_LOG_WARN && strstr(line, "ev=etcd.rotated ") != NULL;
}

/* Leaving an endpoint is logged once, as long as it keeps failing. */
static void test_rotations_in_the_log(void **state)
{
    (void)state;
    uint16_t port = 0;
    uint16_t other_port = 0;
    (void)close(listen_somewhere(&port));
    (void)close(listen_somewhere(&other_port));
    rotated = 0;
    struct mst__http_options options = {.patience_ms = SHORT_MS, .log = {.fn = count_rotated}};
    struct mst__http *http = client_with(options, port, other_port);
    for (size_t i = 0; i < 3; i++) {
        expect(http, read_request, PLENTY_MS, MST_ECONN);
    }
    assert_int_equal(rotated, 2);
    (void)poll(NULL, 0, 12 * SHORT_MS);
    expect(http, read_request, PLENTY_MS, MST_ECONN);
    assert_int_equal(rotated, 4); /* it was quiet in between */
    mst__http_free(http);
}

static void test_limits(void **state)
{
    (void)state;
    static char long_head[80000] = "HTTP/1.1 200 OK\r\n";
    for (size_t used = strlen(long_head); used + 40 < sizeof long_head; used += 32) {
        memcpy(long_head + used, "X-Something: 12345678901234567\r\n", 33);
    }
    const struct fake_step steps[] = {
        {OK("Content-Length: 10\r\n\r\n0123456789"), false},
        {OK("Content-Length: 11\r\n\r\n0123456789a"), false},
        {OK("Transfer-Encoding: chunked\r\n\r\n6\r\n012345\r\n5\r\n6789a\r\n0\r\n\r\n"), false},
        {long_head, true},
    };
    struct fake *fake = START(steps);
    struct mst__http_options options = {.response_size_max = 10};
    struct mst__http *http = client_with(options, fake->port, 0);
    expect(http, read_request, PLENTY_MS, 0);
    expect(http, read_request, PLENTY_MS, MST_ELIMIT);
    expect(http, read_request, PLENTY_MS, MST_ELIMIT);
    expect(http, read_request, PLENTY_MS, MST_ELIMIT);
    assert_int_equal(fake->requests, 4);
    mst__http_free(http);
    fake_stop(fake);
}

static void test_not_http(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {
        {"220 mail.example ESMTP\r\n", true},
        {"220 mail.example ESMTP\r\n", true},
        {"HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", false},
        {"HTTP/1.1 100 Continue\r\n\r\n" OK("Content-Length: 1\r\n\r\nx"), false},
    };
    struct fake *fake = START(steps);
    struct mst__http *http = client(fake->port);
    expect(http, read_request, PLENTY_MS, MST_EPROTO);
    expect(http, write_request(), PLENTY_MS, MST_EUNKNOWN);
    struct mst__http_response response;
    mst__http_response_init(&response);
    struct mst__until until = mst__until_in(PLENTY_MS);
    assert_int_equal(mst__http_call(http, &read_request, until, &response, &err), 0);
    assert_int_equal(response.status, 301);
    assert_int_equal(mst__http_call(http, &read_request, until, &response, &err), 0);
    assert_int_equal(response.status, 200);
    assert_int_equal(response.etcd_index, 7);
    assert_int_equal(fake->requests, 4);
    mst__http_response_close(&response);
    mst__http_free(http);
    fake_stop(fake);
}

/* Users of v2 are sent with v2 alone; nothing of the environment counts. */
static void test_headers(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {{OK_EMPTY, false}};
    struct fake *fake = START(steps);
    uint16_t port = 0;
    (void)close(listen_somewhere(&port));
    char proxy[64];
    (void)snprintf(proxy, sizeof proxy, "http://127.0.0.1:%u", port);
    assert_int_equal(setenv("http_proxy", proxy, 1), 0);
    assert_int_equal(setenv("ALL_PROXY", proxy, 1), 0);
    struct mst__http_options options = {.user = "tr", .password = "tr:pw"};
    struct mst__http *http = client_with(options, fake->port, 0);
    struct mst__http_request request = read_request;
    request.path = "/v2/keys/a";
    expect(http, request, PLENTY_MS, 0);
    request.path = "/v3/kv/range";
    expect(http, request, PLENTY_MS, 0);
    request.token = "a.1";
    expect(http, request, PLENTY_MS, 0);
    request.token = NULL;
    expect(http, request, PLENTY_MS, 0);
    assert_non_null(strstr(fake->received[0], "\r\nAuthorization: Basic dHI6dHI6cHc=\r\n"));
    assert_null(strstr(fake->received[1], "Authorization"));
    assert_non_null(strstr(fake->received[2], "\r\nAuthorization: a.1\r\n"));
    assert_null(strstr(fake->received[3], "Authorization"));
    request.token = "a\r\nX-Other: 1";
    expect(http, request, PLENTY_MS, MST_EINVAL);
    assert_int_equal(fake->requests, 4);
    assert_int_equal(unsetenv("http_proxy"), 0);
    assert_int_equal(unsetenv("ALL_PROXY"), 0);
    mst__http_free(http);
    fake_stop(fake);
}

struct interrupter {
    struct fake *fake;
    int fd;
};

static void *interrupter_run(void *arg)
{
    struct interrupter *interrupter = arg;
    fake_await(interrupter->fake, &interrupter->fake->requests, 1);
    assert_int_equal(eventfd_write(interrupter->fd, 1), 0);
    return NULL;
}

static void test_interrupt(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {{NULL, false}};
    struct fake *fake = START(steps);
    struct mst__http *http = client(fake->port);
    struct interrupter interrupter = {.fake = fake, .fd = eventfd(0, EFD_CLOEXEC)};
    struct mst__until until = mst__until_by(interrupter.fd, PLENTY_MS);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, interrupter_run, &interrupter), 0);
    expect_by(http, read_request, until, MST_ECANCELED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    /* It stays so, and nothing is sent any more. */
    expect_by(http, write_request(), until, MST_ECANCELED);
    assert_int_equal(mst__http_requests(http), 1);
    (void)close(interrupter.fd);
    mst__http_free(http);
    fake_stop(fake);
}

/* A deadline that is short says nothing by itself; many of them do. A call that was cancelled says
 * nothing at all. */
static void test_owing(void **state)
{
    (void)state;
    static const struct fake_step silent_steps[] = {{NULL, false}};
    static const struct fake_step slow_steps[] = {
        {NULL, false}, {NULL, false}, {OK_EMPTY, false}, {NULL, false}};
    struct fake *silent = START(silent_steps);
    struct fake *slow = START(slow_steps);
    char where[64];
    where_of(slow, where);
    struct mst__http_options options = {.patience_ms = PLENTY_MS};
    struct mst__http *http = client_with(options, slow->port, silent->port);
    struct interrupter interrupter = {.fake = slow, .fd = eventfd(0, EFD_CLOEXEC)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, interrupter_run, &interrupter), 0);
    expect_by(http, read_request, mst__until_by(interrupter.fd, PLENTY_MS), MST_ECANCELED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(interrupter.fd);
    (void)poll(NULL, 0, 500);
    expect(http, read_request, SHORT_MS, MST_ETIMEOUT);
    assert_string_equal(mst__http_where(http), where);
    expect(http, read_request, PLENTY_MS, 0); /* this answer pays for what was owed */
    (void)poll(NULL, 0, 500);
    expect(http, read_request, SHORT_MS, MST_ETIMEOUT);
    assert_string_equal(mst__http_where(http), where);
    int64_t begin_ms = mst__clock_ms();
    while (strcmp(mst__http_where(http), where) == 0 && took_ms(begin_ms) < PLENTY_MS) {
        expect(http, read_request, SHORT_MS, MST_ETIMEOUT);
    }
    assert_in_range(took_ms(begin_ms), 300, PLENTY_MS - 1);
    mst__http_free(http);
    fake_stop(slow);
    fake_stop(silent);
}

/* --- streams --- */

static struct mst__http_stream *open_stream(struct mst__http *http)
{
    struct mst__http_stream *stream = NULL;
    if (mst__http_stream_open(http, &read_request, mst__until_in(PLENTY_MS), &stream, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    return stream;
}

static void assert_line(struct mst__http_stream *stream, const char *wanted)
{
    struct mst_bytes line;
    if (mst__http_stream_read(stream, mst__until_in(PLENTY_MS), &line, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    assert_bytes_str(line, wanted);
}

static void assert_stream_fails(struct mst__http_stream *stream, int64_t timeout_ms, int wanted)
{
    struct mst_bytes line;
    err = (struct mst_err){0};
    int rv = mst__http_stream_read(stream, mst__until_in(timeout_ms), &line, &err);
    if (rv != wanted || err.code != rv || strstr(err.msg, "http://127.0.0.1:") == NULL) {
        fail_msg("stream gives %s: %s", mst_errname(rv), err.msg);
    }
}

static void test_stream(void **state)
{
    (void)state;
    /* Chunks are not lines. */
    static const struct fake_step steps[] = {
        {OK("Transfer-Encoding: chunked\r\n\r\n2\r\non\r\n6\r\ne\ntwo\n\r\n1\r\n\n\r\n"
            "5\r\nthree\r\n0\r\n\r\n"),
         false},
        {OK("Transfer-Encoding: chunked\r\n\r\n5\r\none\nt\r\n"), false},
        {OK("Transfer-Encoding: chunked\r\n\r\n5\r\none\nt\r\n"), true},
        {"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nsad\n", false},
    };
    struct fake *fake = START(steps);
    struct mst__http *http = client(fake->port);
    struct mst__http_stream *stream = open_stream(http);
    assert_int_equal(mst__http_stream_status(stream), 200);
    assert_int_equal(mst__http_stream_head(stream)->etcd_index, 7);
    assert_line(stream, "one");
    assert_line(stream, "two");
    assert_line(stream, "");
    assert_line(stream, "three");
    assert_stream_fails(stream, PLENTY_MS, MST_ENOTFOUND);
    mst__http_stream_close(stream);

    /* Its end was regular, so the connection is used again; this one goes on and on. */
    stream = open_stream(http);
    assert_int_equal(fake->conns, 1);
    assert_line(stream, "one");
    assert_stream_fails(stream, SHORT_MS, MST_ETIMEOUT);
    assert_stream_fails(stream, 0, MST_ETIMEOUT);
    mst__http_stream_close(stream);

    stream = open_stream(http);
    assert_int_equal(fake->conns, 2);
    assert_line(stream, "one");
    assert_stream_fails(stream, PLENTY_MS, MST_ECONN);
    assert_stream_fails(stream, PLENTY_MS, MST_ECONN);
    mst__http_stream_close(stream);

    stream = open_stream(http);
    assert_int_equal(mst__http_stream_status(stream), 500);
    assert_line(stream, "sad");
    assert_stream_fails(stream, PLENTY_MS, MST_ENOTFOUND);
    mst__http_stream_close(stream);
    mst__http_stream_close(NULL);
    mst__http_free(http);
    fake_stop(fake);
}

/* Two streams of an endpoint that fails: it is left once, for a good one. */
static void test_streams_leave_once(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {
        {OK("Transfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n"), false},
    };
    struct fake *bad = START(steps);
    struct fake *good = START(steps);
    struct mst__http_options options = {0};
    struct mst__http *http = client_with(options, bad->port, good->port);
    struct mst__http_stream *streams[] = {open_stream(http), open_stream(http)};
    for (size_t i = 0; i < 2; i++) {
        mst__http_stream_leave(streams[i], "it is silent");
        assert_int_equal(mst__http_current(http), 1);
        assert_true(mst__http_stream_is_left(streams[i]));
    }
    for (size_t i = 0; i < 2; i++) {
        mst__http_stream_close(streams[i]);
    }
    mst__http_free(http);
    fake_stop(good);
    fake_stop(bad);
}

static void test_stream_limit(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {
        {OK("Content-Length: 22\r\n\r\n0123456789\n0123456789\n"), false},
        {OK("Content-Length: 22\r\n\r\n0123456789abcdef012345"), false},
    };
    struct fake *fake = START(steps);
    struct mst__http_options options = {.response_size_max = 22};
    struct mst__http *http = client_with(options, fake->port, 0);
    struct mst__http_stream *stream = open_stream(http);
    assert_line(stream, "0123456789");
    assert_line(stream, "0123456789");
    mst__http_stream_close(stream);
    mst__http_free(http);
    options.response_size_max = 21;
    http = client_with(options, fake->port, 0);
    stream = open_stream(http);
    assert_stream_fails(stream, PLENTY_MS, MST_ELIMIT);
    mst__http_stream_close(stream);
    mst__http_free(http);
    fake_stop(fake);
}

/* --- the whole --- */

static void *call_often(void *arg)
{
    for (int i = 0; i < 50; i++) {
        expect(arg, i % 2 == 0 ? read_request : write_request(), PLENTY_MS, 0);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {{OK_EMPTY, false}};
    struct fake *fake = START(steps);
    struct mst__http *http = client(fake->port);
    pthread_t threads[8];
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, http), 0);
    }
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(mst__http_requests(http), 8 * 50);
    assert_true(fake->conns <= 8);
    mst__http_free(http);
    fake_stop(fake);
}

static void test_options_refused(void **state)
{
    (void)state;
    struct mst__endpoint endpoint = endpoint_of(1);
    struct mst__http *http = NULL;
    const struct {
        struct mst__http_options options;
        const char *part;
    } cases[] = {
        {{.endpoint_count = 0}, "0 endpoints"},
        {{.endpoint_count = MST_HTTP_ENDPOINTS_MAX + 1}, "17 endpoints"},
        {{.endpoint_count = 1, .is_tls = true, .ca_path = "/no/such"}, "CA '/no/such'"},
        {{.endpoint_count = 1, .is_tls = true, .cert_path = "/no/such"}, "certificate '/no/such'"},
        {{.endpoint_count = 1, .is_tls = true, .key_path = "/no/such"}, "without its certificate"},
        {{.endpoint_count = 1, .is_tls = true, .server_name = ""}, "server name"},
        {{.endpoint_count = 1, .ca_path = "/dev/null"}, "https"},
        {{.endpoint_count = 1, .password = "x"}, "without a user"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__http_options options = cases[i].options;
        options.endpoints = &endpoint;
        assert_int_equal(mst__http_new(&options, &http, &err), MST_EINVAL);
        if (strstr(err.msg, cases[i].part) == NULL) {
            fail_msg("not '%s', but: %s", cases[i].part, err.msg);
        }
    }
    mst__http_free(NULL);
}

/* Each of our allocations fails once. */
static void test_faults(void **state)
{
    (void)state;
    static const struct fake_step steps[] = {{OK("Content-Length: 4\r\n\r\nline"), false}};
    struct fake *fake = START(steps);
    struct mst__endpoint endpoint = endpoint_of(fake->port);
    struct mst__http_options options = {
        .endpoints = &endpoint, .endpoint_count = 1, .user = "u", .password = "p"};
    struct mst__http_request request = write_request();
    request.token = "t";
    struct mst__sweep sweep = {0};
    while (sweep_next(&sweep)) {
        struct mst__http *http = NULL;
        struct mst__http_stream *stream = NULL;
        struct mst__http_response response;
        mst__http_response_init(&response);
        struct mst_bytes line;
        struct mst__until until = mst__until_in(PLENTY_MS);
        err = (struct mst_err){0};
        int rv = mst__http_new(&options, &http, &err);
        rv = rv != 0 ? rv : mst__http_call(http, &request, until, &response, &err);
        rv = rv != 0 ? rv : mst__http_stream_open(http, &request, until, &stream, &err);
        rv = rv != 0 ? rv : mst__http_stream_read(stream, until, &line, &err);
        sweep_end(&sweep, rv);
        assert_int_equal(err.code, rv);
        mst__http_stream_close(stream);
        mst__http_response_close(&response);
        mst__http_free(http);
    }
    assert_true(sweep.failures > 8);
    fake_stop(fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_alive),
        cmocka_unit_test(test_closed_in_between),
        cmocka_unit_test(test_lost_write),
        cmocka_unit_test(test_lost_read),
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_owing),
        cmocka_unit_test(test_rotations_in_the_log),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_not_http),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_streams_leave_once),
        cmocka_unit_test(test_stream_limit),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_options_refused),
        cmocka_unit_test(test_faults),
    };
    return MST_RUN_TESTS(tests);
}
