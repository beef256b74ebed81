/* The v3 client of etcd against a server with a script: versions that are not installed, missing
 * answers, and requests that must not be sent twice. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "etcd/v3_self.h"
#include "unit/store_unit.h"

#define BYTES(text) mst_bytes_of((text), sizeof(text) - 1)
#define HEADER "\"header\":{\"member_id\":\"2\",\"revision\":\"7\"}"
#define EMPTY "{" HEADER "}"

/* A request that is expected, by its beginning and by a piece of the rest, and the answer. */
struct step {
    const char *request;
    int status; /* 0 = hang up, with STAYS no answer; with flags */
    const char *answer;
    const char *part; /* NULL = any body */
};

/* The answer does not end: the connection stays. */
#define STAYS 0x1000
/* A pause before the answer, unless another client connects meanwhile. */
#define SLOW 0x2000
#define SLOW_MS 500
#define FLAGS (STAYS | SLOW)

#define OPEN_MAX 8

static const struct step *script;
static size_t script_count;
static atomic_size_t script_at;
static char script_error[2048]; /* read when the thread is gone */
static int listen_fd = -1;
static int open_fds[OPEN_MAX]; /* of answers that do not end */
static size_t open_count;
static struct mst__endpoint endpoint;
static pthread_t server;
static struct mst__v3 *v3;

/* --- the server --- */

/* Read one request: its head, and as much as that announces. */
static bool read_request(int fd, char *request, size_t size_max)
{
    size_t size = 0;
    size_t wanted = size_max - 1;
    while (size < wanted) {
        ssize_t got = recv(fd, request + size, wanted - size, 0);
        if (got <= 0) {
            return false;
        }
        size += (size_t)got;
        request[size] = '\0';
        const char *end = strstr(request, "\r\n\r\n");
        const char *length = strcasestr(request, "Content-Length:");
        if (end != NULL) {
            wanted = (size_t)(end - request) + 4;
            wanted += length != NULL && length < end ? strtoul(length + 15, NULL, 10) : 0;
        }
    }
    return true;
}

static void answer(int fd, const struct step *step)
{
    char head[256];
    char length[48] = "";
    if ((step->status & STAYS) == 0) {
        (void)snprintf(length, sizeof length, "Content-Length: %zu\r\n", strlen(step->answer));
    }
    int size = snprintf(head, sizeof head,
                        "HTTP/1.1 %d Whatever\r\nContent-Type: application/json\r\n"
                        "%sConnection: close\r\n\r\n",
                        step->status & ~FLAGS, length);
    /* A client that is gone does not need it. */
    (void)send(fd, head, (size_t)size, MSG_NOSIGNAL);
    (void)send(fd, step->answer, strlen(step->answer), MSG_NOSIGNAL);
}

static void *serve(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            return NULL; /* the test is over */
        }
        char request[4096];
        bool is_open = false;
        if (read_request(fd, request, sizeof request)) {
            size_t at = atomic_load(&script_at);
            const struct step *step = at < script_count ? &script[at] : NULL;
            bool is_right = step != NULL &&
                            strncmp(request, step->request, strlen(step->request)) == 0 &&
                            request[strlen(step->request)] == ' ' &&
                            (step->part == NULL || strstr(request, step->part) != NULL);
            if (!is_right && script_error[0] == '\0') {
                (void)snprintf(script_error, sizeof script_error, "request %zu: %.1900s", at,
                               request);
            }
            atomic_store(&script_at, at + 1);
            is_open = is_right && (step->status & STAYS) != 0 && open_count < OPEN_MAX;
            if (is_right && (step->status & SLOW) != 0) {
                struct pollfd next = {.fd = listen_fd, .events = POLLIN};
                (void)poll(&next, 1, SLOW_MS);
            }
            if (is_right && (step->status & ~FLAGS) != 0) {
                answer(fd, step);
            }
        }
        if (is_open) {
            open_fds[open_count++] = fd;
            continue;
        }
        (void)shutdown(fd, SHUT_RDWR);
        (void)close(fd); /* only its end matters */
    }
}

static void begin(const struct step *steps, size_t count, const char *user)
{
    script = steps;
    script_count = count;
    atomic_store(&script_at, 0);
    script_error[0] = '\0';
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listen_fd >= 0);
    assert_int_equal(bind(listen_fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listen_fd, 16), 0);
    assert_int_equal(getsockname(listen_fd, (struct sockaddr *)&address, &size), 0);
    endpoint = (struct mst__endpoint){.host = "127.0.0.1", .port = ntohs(address.sin_port)};
    assert_int_equal(pthread_create(&server, NULL, serve, NULL), 0);
    struct mst__http_options options = {.endpoints = &endpoint,
                                        .endpoint_count = 1,
                                        .user = user,
                                        .password = user == NULL ? NULL : "secret"};
    assert_ok(mst__v3_new(&options, &v3, &err));
}

#define BEGIN(steps) begin((steps), sizeof(steps) / sizeof(steps)[0], NULL)
#define BEGIN_AS(steps, user) begin((steps), sizeof(steps) / sizeof(steps)[0], (user))

/* The script is done, all of it and nothing else. */
static void end(void)
{
    mst__v3_free(v3);
    v3 = NULL;
    (void)shutdown(listen_fd, SHUT_RDWR); /* accept fails */
    assert_int_equal(pthread_join(server, NULL), 0);
    (void)close(listen_fd);
    while (open_count > 0) {
        (void)close(open_fds[--open_count]);
    }
    if (script_error[0] != '\0') {
        fail_msg("%s", script_error);
    }
    assert_int_equal(atomic_load(&script_at), script_count);
}

static struct mst__until plenty(void)
{
    return mst__until_in(PLENTY_MS);
}

static int do_range(void)
{
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    struct mst__v3_range range = {.key = BYTES("a")};
    int rv = mst__v3_range(v3, &range, plenty(), &result, &err);
    mst__v3_result_close(&result);
    return rv;
}

static int do_put(void)
{
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    struct mst__v3_put put = {.key = BYTES("a"), .value = BYTES("1")};
    int rv = mst__v3_put(v3, &put, plenty(), &result, &err);
    mst__v3_result_close(&result);
    return rv;
}

/* --- versions --- */

static void test_etcd_33(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {"POST /v3/kv/range", 404, "404 page not found\n", NULL},
        {"POST /v3beta/kv/range", 200, EMPTY, "{\"key\":\"YQ==\"}"},
        {"POST /v3beta/lease/grant", 200, "{" HEADER ",\"ID\":\"5\",\"TTL\":\"9\"}", NULL},
        {"POST /v3beta/lease/keepalive", 200, "{\"result\":{\"ID\":\"5\",\"TTL\":\"9\"}}\n", NULL},
        {"POST /v3beta/kv/lease/timetolive", 200, "{" HEADER ",\"ID\":\"5\",\"TTL\":\"9\"}", NULL},
        {"POST /v3beta/kv/lease/revoke", 200, EMPTY, "{\"ID\":\"5\"}"},
    };
    BEGIN(steps);
    int64_t lease = 0;
    int64_t ttl_s = 0;
    assert_ok(do_range());
    assert_ok(mst__v3_lease_grant(v3, 9, plenty(), &lease, &ttl_s, &err));
    assert_ok(mst__v3_lease_keep_alive(v3, lease, plenty(), &ttl_s, &err));
    assert_ok(mst__v3_lease_time_to_live(v3, lease, plenty(), &ttl_s, &err));
    assert_ok(mst__v3_lease_revoke(v3, lease, plenty(), &err));
    end();
}

/* The paths are tried, with a write as well. */
static void test_prefix_by_trial(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {"POST /v3/kv/put", 404, "404 page not found\n", NULL},
        {"POST /v3beta/kv/put", 404, "{\"code\":5,\"message\":\"Not Found\",\"details\":[]}", NULL},
        {"POST /v3alpha/kv/put", 200, EMPTY, NULL},
        {"POST /v3alpha/kv/range", 200, EMPTY, NULL},
    };
    BEGIN(steps);
    assert_ok(do_put());
    assert_ok(do_range());
    end();
}

static void test_no_gateway(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {"POST /v3/kv/range", 404, "404 page not found\n", NULL},
        {"POST /v3beta/kv/range", 404, "404 page not found\n", NULL},
        {"POST /v3alpha/kv/range", 404, "404 page not found\n", NULL},
        /* The next one may reach another server, and begins with the newest. */
        {"POST /v3/kv/range", 200, EMPTY, NULL},
    };
    BEGIN(steps);
    assert_fails(do_range(), MST_ENOTSUP, "no v3 JSON gateway");
    assert_non_null(strstr(err.msg, "--enable-grpc-gateway"));
    assert_ok(do_range());
    end();
}

/* An etcd that cannot answer for long is asked less and less often, but not too rarely. */
static void test_pauses_grow(void **state)
{
    (void)state;
    static const int64_t expected_ms[] = {50, 100, 200, 400, 800, 1000, 1000};
    struct mst__v3_trial trial = {0};
    for (size_t i = 0; i < sizeof expected_ms / sizeof expected_ms[0]; i++) {
        int64_t before_ms = mst__clock_ms();
        int64_t until_ms = mst__v3_pause_until_ms(&trial);
        assert_in_range(until_ms, before_ms + expected_ms[i], mst__clock_ms() + expected_ms[i]);
    }
}

/* --- once, or again --- */

/* A write with an unknown result is sent only once, for any reason. */
static void test_write_unknown(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {"POST /v3/kv/put", 0, NULL, NULL},
        {"POST /v3/kv/put", 500,
         "{\"error\":\"context deadline exceeded\",\"message\":\"context deadline exceeded\","
         "\"code\":2}",
         NULL},
        {"POST /v3/kv/put", 503, "{\"code\":14,\"message\":\"etcdserver: request timed out\"}",
         NULL},
        {"POST /v3/kv/put", 502, "<html>", NULL},
        {"POST /v3/kv/put", 200, "{}", NULL},
    };
    BEGIN(steps);
    assert_fails(do_put(), MST_EUNKNOWN, "etcd put");
    assert_fails(do_put(), MST_EUNKNOWN, "context deadline exceeded");
    assert_fails(do_put(), MST_EUNKNOWN, "request timed out");
    assert_fails(do_put(), MST_EUNKNOWN, "502");
    assert_fails(do_put(), MST_EUNKNOWN, "answer of etcd");
    end();
}

/* So is everything that changes something; a transaction that only reads is sent again. */
static void test_changes_unknown(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {"POST /v3/kv/txn", 0, NULL, NULL},
        {"POST /v3/kv/deleterange", 0, NULL, NULL},
        {"POST /v3/lease/revoke", 0, NULL, NULL},
        {"POST /v3/kv/compaction", 0, NULL, NULL},
        {"POST /v3/kv/txn", 0, NULL, NULL},
        {"POST /v3/kv/txn", 200,
         "{\"header\":{\"revision\":\"1\"},\"succeeded\":true,\"responses\":"
         "[{\"response_range\":{\"header\":{\"revision\":\"1\"}}}]}",
         NULL},
    };
    BEGIN(steps);
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    struct mst__v3_op op = {.kind = MST_V3_OP_PUT, .u.put = {.key = BYTES("a")}};
    const struct mst__v3_txn txn = {.success = &op, .success_count = 1};
    const struct mst__v3_delete del = {.key = BYTES("a")};
    assert_fails(mst__v3_txn(v3, &txn, plenty(), &result, &err), MST_EUNKNOWN, "etcd transaction");
    assert_fails(mst__v3_delete(v3, &del, plenty(), &result, &err), MST_EUNKNOWN, "etcd delete");
    assert_fails(mst__v3_lease_revoke(v3, 1, plenty(), &err), MST_EUNKNOWN, "etcd lease revoke");
    assert_fails(mst__v3_compact(v3, 1, plenty(), &err), MST_EUNKNOWN, "etcd compaction");
    op = (struct mst__v3_op){.kind = MST_V3_OP_RANGE, .u.range = {.key = BYTES("a")}};
    assert_ok(mst__v3_txn(v3, &txn, plenty(), &result, &err));
    mst__v3_result_close(&result);
    end();
}

/* A member without a leader has done nothing. */
static void test_write_no_leader(void **state)
{
    (void)state;
    static const char no_leader[] =
        "{\"error\":\"etcdserver: no leader\",\"message\":\"etcdserver: "
        "no leader\",\"code\":14}";
    static const struct step steps[] = {
        {"POST /v3/kv/put", 503, no_leader, "Grpc-Metadata-Hasleader: true"},
        {"POST /v3/kv/put", 503, no_leader, NULL},
        {"POST /v3/kv/put", 200, EMPTY, NULL},
    };
    BEGIN(steps);
    assert_ok(do_put());
    end();
}

static void test_read_again(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {"POST /v3/kv/range", 503, "{\"error\":\"x\",\"message\":\"x\",\"code\":14}", NULL},
        {"POST /v3/kv/range", 500, "{\"code\":2,\"message\":\"x\"}", NULL},
        {"POST /v3/kv/range", 0, NULL, NULL},
        {"POST /v3/kv/range", 200, EMPTY, NULL},
        /* A transaction that changes nothing is a read. */
        {"POST /v3/kv/txn", 0, NULL, NULL},
        {"POST /v3/kv/txn", 200,
         "{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_range\":{}}]}", NULL},
        /* In the stream of a keep-alive an error has status 200. */
        {"POST /v3/lease/keepalive", 200, "{\"error\":{\"code\":14,\"message\":\"x\"}}", NULL},
        {"POST /v3/lease/keepalive", 200, "{\"result\":{" HEADER ",\"ID\":\"5\"}}\n", NULL},
    };
    BEGIN(steps);
    assert_ok(do_range());
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    const struct mst__v3_op op = {.kind = MST_V3_OP_RANGE, .u.range = {.key = BYTES("a")}};
    struct mst__v3_txn txn = {.success = &op, .success_count = 1};
    assert_ok(mst__v3_txn(v3, &txn, plenty(), &result, &err));
    mst__v3_result_close(&result);
    int64_t ttl_s = 0;
    assert_fails(mst__v3_lease_keep_alive(v3, 5, plenty(), &ttl_s, &err), MST_ENOTFOUND, "gone");
    end();
}

/* A lease without a wanted id that was granted in vain expires; one with an id is there. */
static void test_grant_again(void **state)
{
    (void)state;
    static const char granted[] = "{" HEADER ",\"ID\":\"5\",\"TTL\":\"9\"}";
    static const struct step steps[] = {
        {"POST /v3/lease/grant", 0, NULL, NULL},
        {"POST /v3/lease/grant", 200, granted, NULL},
        {"POST /v3/lease/grant", 0, NULL, NULL},
    };
    BEGIN(steps);
    int64_t lease = 0;
    int64_t ttl_s = 0;
    assert_ok(mst__v3_lease_grant(v3, 9, plenty(), &lease, &ttl_s, &err));
    assert_int_equal(lease, 5);
    lease = 6;
    assert_fails(mst__v3_lease_grant(v3, 9, plenty(), &lease, &ttl_s, &err), MST_EUNKNOWN,
                 "etcd lease grant");
    end();
}

/* --- tokens --- */

#define TOKEN_STEP(token)                                                          \
    {                                                                              \
        "POST /v3/auth/authenticate", 200, "{" HEADER ",\"token\":\"" token "\"}", \
            "{\"name\":\"me\",\"password\":\"secret\"}"                            \
    }

static void test_token(void **state)
{
    (void)state;
    static const struct step steps[] = {
        TOKEN_STEP("one.1"),
        {"POST /v3/kv/put", 200, EMPTY, "Authorization: one.1\r\n"},
        /* Expired: a write was not executed, and is sent again. Both shapes. */
        {"POST /v3/kv/put", 401,
         "{\"error\":\"etcdserver: invalid auth token\",\"message\":\"etcdserver: invalid auth "
         "token\",\"code\":16}",
         "Authorization: one.1\r\n"},
        TOKEN_STEP("two.2"),
        {"POST /v3/kv/put", 401, "{\"code\":16,\"message\":\"x\",\"details\":[]}",
         "Authorization: two.2\r\n"},
        TOKEN_STEP("three.3"),
        {"POST /v3/kv/put", 200, EMPTY, "Authorization: three.3\r\n"},
    };
    BEGIN_AS(steps, "me");
    assert_ok(do_put());
    assert_ok(do_put());
    end();
}

/* A token that never is good enough. */
static void test_token_refused(void **state)
{
    (void)state;
    static const char refusal[] = "{\"code\":16,\"message\":\"etcdserver: invalid auth token\"}";
    static const struct step steps[] = {
        TOKEN_STEP("one.1"),
        {"POST /v3/kv/range", 401, refusal, NULL},
        TOKEN_STEP("two.2"),
        {"POST /v3/kv/range", 401, refusal, NULL},
        TOKEN_STEP("three.3"),
        {"POST /v3/kv/range", 401, refusal, NULL},
        /* The next call begins anew. */
        TOKEN_STEP("four.4"),
        {"POST /v3/kv/range", 200, EMPTY, "Authorization: four.4\r\n"},
    };
    BEGIN_AS(steps, "me");
    assert_fails(do_range(), MST_EAUTH, "refuses user 'me'");
    assert_ok(do_range());
    end();
}

#define ASKERS 4

static void *ask(void *arg)
{
    int *rv = arg;
    struct mst_err own = {0};
    struct mst__v3_result result;
    mst__v3_result_init(&result);
    struct mst__v3_range range = {.key = BYTES("a")};
    *rv = mst__v3_range(v3, &range, plenty(), &result, &own);
    mst__v3_result_close(&result);
    return NULL;
}

/* Threads that need a token at the same time: one asks for it, and if it gets none, the next. */
static void ask_together(const int wanted)
{
    pthread_t threads[ASKERS];
    int rvs[ASKERS];
    for (size_t i = 0; i < ASKERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &rvs[i]), 0);
    }
    for (size_t i = 0; i < ASKERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(rvs[i], wanted);
    }
}

static void test_one_token_for_all(void **state)
{
    (void)state;
    static const struct step token[] = {
        {"POST /v3/auth/authenticate", 200 | SLOW, "{" HEADER ",\"token\":\"one.1\"}", NULL},
        {"POST /v3/kv/range", 200, EMPTY, "Authorization: one.1\r\n"},
        {"POST /v3/kv/range", 200, EMPTY, "Authorization: one.1\r\n"},
        {"POST /v3/kv/range", 200, EMPTY, "Authorization: one.1\r\n"},
        {"POST /v3/kv/range", 200, EMPTY, "Authorization: one.1\r\n"},
    };
    BEGIN_AS(token, "me");
    ask_together(0);
    end();
#define WRONG                                                       \
    {                                                               \
        "POST /v3/auth/authenticate", 400 | SLOW,                   \
            "{\"code\":3,\"message\":\"etcdserver: authentication " \
            "failed, invalid user ID or password\"}",               \
            NULL                                                    \
    }
    static const struct step wrong[] = {WRONG, WRONG, WRONG, WRONG};
    BEGIN_AS(wrong, "me");
    ask_together(MST_EAUTH);
    end();
}

/* Two calls had the token that was refused: the second one uses what the first has got. */
static void test_token_of_others(void **state)
{
    (void)state;
    static const struct step steps[] = {TOKEN_STEP("one.1"), TOKEN_STEP("two.2")};
    const struct mst__v3_error refused = {.fate = MST_V3_TOKEN};
    struct mst__v3_access access[2] = {{.token = NULL}};
    BEGIN_AS(steps, "me");
    for (size_t i = 0; i < 2; i++) {
        assert_ok(mst__v3_access(v3, "/kv/range", true, plenty(), &access[i], &err));
        assert_string_equal(access[i].token, "one.1");
    }
    for (size_t i = 0; i < 2; i++) {
        struct mst__v3_trial trial = {0};
        assert_ok(mst__v3_recover(v3, &access[i], &refused, true, plenty(), &trial, &err));
        assert_ok(mst__v3_access(v3, "/kv/range", true, plenty(), &access[i], &err));
        assert_string_equal(access[i].token, "two.2");
        mst__v3_access_close(&access[i]);
    }
    end();
}

/* Authentication is off, and switched on later. */
static void test_token_late(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {"POST /v3/auth/authenticate", 412,
         "{\"error\":\"etcdserver: authentication is not enabled\",\"message\":\"etcdserver: "
         "authentication is not enabled\",\"code\":9}",
         NULL},
        {"POST /v3/kv/range", 200, EMPTY, NULL},
        {"POST /v3/kv/range", 400,
         "{\"error\":\"etcdserver: user name is empty\",\"message\":\"etcdserver: user name is "
         "empty\",\"code\":3}",
         NULL},
        TOKEN_STEP("one.1"),
        {"POST /v3/kv/range", 200, EMPTY, "Authorization: one.1\r\n"},
    };
    BEGIN_AS(steps, "me");
    assert_ok(do_range());
    assert_ok(do_range());
    end();
}

/* --- watches --- */

#define CREATED "{\"result\":{" HEADER ",\"created\":true}}\n"
#define EVENT(key, revision)                                      \
    "{\"result\":{" HEADER ",\"events\":[{\"kv\":{\"key\":\"" key \
    "\",\"mod_revision\":\"" revision "\"}}]}}\n"

static void expect_event(struct mst__v3_watch *watch, const char *key, int64_t revision)
{
    struct mst__v3_events events = {0};
    assert_ok(mst__v3_watch_next(watch, plenty(), &events, &err));
    assert_int_equal(events.count, 1);
    assert_int_equal(events.revision, revision);
    assert_int_equal(events.items[0].kv.mod_revision, revision);
    assert_bytes_str(mst_bytes_of(events.items[0].kv.key.data, events.items[0].kv.key.size), key);
    mst__v3_events_close(&events);
}

/* Go on with the first answer that did not end. */
static void send_more(const char *text)
{
    size_t size = strlen(text);
    assert_int_equal(send(open_fds[0], text, size, MSG_NOSIGNAL), size);
}

/* The stream ends in every possible way; each new one begins after the last event, and repeated
 * events are dropped. */
static void test_watch_resumes(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {"POST /v3/watch", 200, CREATED EVENT("YQ==", "5") EVENT("YQ==", "6"),
         "\"start_revision\":\"5\""},
        {"POST /v3/watch", 0, NULL, "\"start_revision\":\"7\""},
        {"POST /v3/watch", 200, CREATED EVENT("YQ==", "6") EVENT("YQ==", "9"),
         "\"start_revision\":\"7\""},
        {"POST /v3/watch", 200,
         CREATED "{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"transport is "
                 "closing\"}}",
         "\"start_revision\":\"10\""},
        {"POST /v3/watch", 503, "{\"error\":{\"code\":14,\"message\":\"etcdserver: no leader\"}}",
         "\"start_revision\":\"10\""},
        /* Progress without an event: the next stream begins after it. */
        {"POST /v3/watch", 200, CREATED "{\"result\":{\"header\":{\"revision\":\"19\"}}}\n",
         "\"start_revision\":\"10\""},
        {"POST /v3/watch", 200, CREATED EVENT("Yg==", "20") EVENT("YQ==", "21"),
         "\"start_revision\":\"20\""},
        {"POST /v3/watch", 200,
         CREATED "{\"result\":{\"canceled\":true,\"compact_revision\":\"30\"}}\n",
         "\"start_revision\":\"22\""},
    };
    BEGIN(steps);
    struct mst__v3_watched watched = {.key = BYTES("a")};
    struct mst__v3_watch *watch = NULL;
    assert_ok(mst__v3_watch_new(v3, &watched, 1, 5, &watch, &err));
    expect_event(watch, "a", 5);
    expect_event(watch, "a", 6);
    expect_event(watch, "a", 9);
    expect_event(watch, "a", 21);
    struct mst__v3_events events = {0};
    assert_fails(mst__v3_watch_next(watch, plenty(), &events, &err), MST_ESTATE, "revision 30");
    assert_fails(mst__v3_watch_next(watch, plenty(), &events, &err), MST_ESTATE, "compacted");
    mst__v3_watch_close(watch);
    end();
}

#define STATUS(member) "{\"header\":{\"member_id\":\"" member "\"},\"version\":\"3.4.23\"}"

/* A stream that is silent: its member is asked. The stream stays if that member answers, and only
 * then; whoever else answers, or nobody, shows nothing about it. */
static void test_watch_is_checked(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {"POST /v3/watch", 200 | STAYS, CREATED EVENT("YQ==", "5"), "\"start_revision\":\"5\""},
        {"POST /v3/maintenance/status", 200, STATUS("2"), NULL},
        {"POST /v3/maintenance/status", 200, STATUS("3"), NULL},
        {"POST /v3/watch", 200 | STAYS, CREATED EVENT("YQ==", "6"), "\"start_revision\":\"6\""},
        {"POST /v3/maintenance/status", STAYS, NULL, NULL},
        {"POST /v3/watch", 200 | STAYS, CREATED EVENT("YQ==", "7"), "\"start_revision\":\"7\""},
        /* It does not even begin. */
        {"POST /v3/maintenance/status", 0, NULL, NULL},
        {"POST /v3/maintenance/status", 0, NULL, NULL},
        {"POST /v3/watch", 200 | STAYS, "", "\"start_revision\":\"8\""},
        {"POST /v3/watch", 200, CREATED EVENT("YQ==", "8"), "\"start_revision\":\"8\""},
    };
    BEGIN(steps);
    struct mst__v3_watched watched = {.key = BYTES("a")};
    struct mst__v3_watch *watch = NULL;
    assert_ok(mst__v3_watch_new(v3, &watched, 1, 5, &watch, &err));
    mst__v3_watch_set_patience(watch, 200, 400);
    for (int64_t revision = 5; revision <= 8; revision++) {
        expect_event(watch, "a", revision);
    }
    mst__v3_watch_close(watch);
    end();
}

/* A check that was cut short by its caller says nothing about the member, and nothing is left of it
 * when the stream has moved on. */
static void test_watch_check_cut_short(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {"POST /v3/watch", 200 | STAYS, CREATED EVENT("YQ==", "5"), "\"start_revision\":\"5\""},
        {"POST /v3/maintenance/status", STAYS, NULL, NULL},
        {"POST /v3/maintenance/status", 200, STATUS("2"), NULL},
    };
    BEGIN(steps);
    struct mst__v3_watched watched = {.key = BYTES("a")};
    struct mst__v3_watch *watch = NULL;
    assert_ok(mst__v3_watch_new(v3, &watched, 1, 5, &watch, &err));
    mst__v3_watch_set_patience(watch, 100, PLENTY_MS);
    expect_event(watch, "a", 5);
    struct mst__v3_events events = {0};
    while (atomic_load(&script_at) < 2) { /* it is asked */
        assert_int_equal(mst__v3_watch_next(watch, mst__until_in(50), &events, &err), MST_ETIMEOUT);
    }
    send_more(EVENT("YQ==", "6"));
    expect_event(watch, "a", 6);
    mst__v3_watch_set_patience(watch, 1500, 1000);
    assert_int_equal(mst__v3_watch_next(watch, mst__until_in(2000), &events, &err), MST_ETIMEOUT);
    send_more(EVENT("YQ==", "7"));
    expect_event(watch, "a", 7);
    mst__v3_watch_close(watch);
    end();
}

/* Two names of the server: two endpoints. */
static void begin_again_with_two(void)
{
    mst__v3_free(v3);
    v3 = NULL;
    struct mst__endpoint endpoints[] = {endpoint, endpoint};
    memcpy(endpoints[1].host, "localhost", sizeof "localhost");
    struct mst__http_options options = {
        .endpoints = endpoints, .endpoint_count = 2, .patience_ms = 100};
    assert_ok(mst__v3_new(&options, &v3, &err));
}

/* A member without a leader is left, by calls and by watches, and so is one that ends a stream. */
static void test_member_is_left(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {"POST /v3/kv/range", 503, "{\"code\":14,\"message\":\"etcdserver: no leader\"}", NULL},
        {"POST /v3/kv/range", 200, EMPTY, NULL},
        {"POST /v3/watch", 200, CREATED EVENT("YQ==", "5"), "\"start_revision\":\"5\""},
        {"POST /v3/watch", 200 | STAYS,
         CREATED EVENT("YQ==", "6") "{\"error\":{\"grpc_code\":14,\"http_code\":503,"
                                    "\"message\":\"etcdserver: no leader\"}}\n",
         "\"start_revision\":\"6\""},
        {"POST /v3/watch", 200 | STAYS, CREATED EVENT("YQ==", "7"), "\"start_revision\":\"7\""},
    };
    BEGIN(steps);
    begin_again_with_two();
    assert_ok(do_range());
    assert_int_equal(mst__v3_current(v3), 1);
    struct mst__v3_watched watched = {.key = BYTES("a")};
    struct mst__v3_watch *watch = NULL;
    assert_ok(mst__v3_watch_new(v3, &watched, 1, 5, &watch, &err));
    expect_event(watch, "a", 5);
    assert_int_equal(mst__v3_current(v3), 1);
    expect_event(watch, "a", 6);
    assert_int_equal(mst__v3_current(v3), 0);
    expect_event(watch, "a", 7);
    assert_int_equal(mst__v3_current(v3), 1);
    mst__v3_watch_close(watch);
    end();
}

/* The endpoint of a stream that other calls have left: the stream follows, long before its silence
 * is noticed. One that accepts connections and does nothing stands for a member that hangs. */
static void test_watch_follows(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {"POST /v3/watch", 200 | STAYS, CREATED EVENT("YQ==", "5"), "\"start_revision\":\"5\""},
        {"POST /v3/kv/range", STAYS, NULL, NULL},
        {"POST /v3/kv/range", 200, EMPTY, NULL},
        {"POST /v3/watch", 200 | STAYS, CREATED EVENT("YQ==", "6"), "\"start_revision\":\"6\""},
    };
    BEGIN(steps);
    begin_again_with_two();
    struct mst__v3_watched watched = {.key = BYTES("a")};
    struct mst__v3_watch *watch = NULL;
    assert_ok(mst__v3_watch_new(v3, &watched, 1, 5, &watch, &err));
    expect_event(watch, "a", 5);
    struct mst__v3_events events = {0};
    assert_int_equal(mst__v3_watch_next(watch, mst__until_in(50), &events, &err), MST_ETIMEOUT);
    assert_ok(do_range());
    assert_int_equal(mst__v3_current(v3), 1);
    int64_t begin_ms = mst__clock_ms();
    expect_event(watch, "a", 6);
    assert_true(mst__clock_ms() - begin_ms < 10000);
    mst__v3_watch_close(watch);
    end();
}

/* Two ranges have two numbers, and each its own place to go on from. */
static void test_watch_ranges(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {"POST /v3/watch", 200,
         CREATED "{\"result\":{" HEADER ",\"watch_id\":\"1\",\"created\":true}}\n"
                 "{\"result\":{" HEADER ",\"watch_id\":\"1\",\"events\":["
                 "{\"kv\":{\"key\":\"YWI=\",\"mod_revision\":\"8\"}},"
                 "{\"kv\":{\"key\":\"YQ==\",\"mod_revision\":\"8\"}},"
                 "{\"kv\":{\"key\":\"YWM=\",\"mod_revision\":\"9\"}}]}}\n",
         "{\"create_request\":{\"key\":\"YQ==\",\"start_revision\":\"8\",\"progress_notify\":true}}"
         "\n{\"create_request\":{\"key\":\"YQ==\",\"range_end\":\"Yg==\",\"start_revision\":"
         "\"8\","},
        {"POST /v3/watch", 200,
         CREATED "{\"result\":{" HEADER
                 ",\"watch_id\":\"1\",\"created\":true}}\n" EVENT("YQ==", "8"),
         "{\"create_request\":{\"key\":\"YQ==\",\"start_revision\":\"8\",\"progress_notify\":true}}"
         "\n{\"create_request\":{\"key\":\"YQ==\",\"range_end\":\"Yg==\",\"start_revision\":"
         "\"10\","},
    };
    BEGIN(steps);
    const struct mst__v3_watched watched[] = {{.key = BYTES("a")},
                                              {.key = BYTES("a"), .span = MST_V3_PREFIX}};
    struct mst__v3_watch *watch = NULL;
    assert_ok(mst__v3_watch_new(v3, watched, 2, 8, &watch, &err));
    /* The event of "a" belongs to the first range, and was not reported there yet. */
    expect_event(watch, "ab", 8);
    expect_event(watch, "ac", 9);
    expect_event(watch, "a", 8);
    mst__v3_watch_close(watch);
    end();
}

/* Progress of one range says nothing about another one, whose events may still be on their way. */
static void test_watch_progress_of_one(void **state)
{
    (void)state;
    static const struct step steps[] = {
        {"POST /v3/watch", 200,
         CREATED "{\"result\":{" HEADER ",\"watch_id\":\"1\",\"created\":true}}\n"
                 "{\"result\":{\"header\":{\"revision\":\"19\"},\"watch_id\":\"1\"}}\n",
         "{\"create_request\":{\"key\":\"YQ==\",\"start_revision\":\"8\",\"progress_notify\":true}}"
         "\n{\"create_request\":{\"key\":\"Yg==\",\"start_revision\":\"8\","},
        {"POST /v3/watch", 200,
         CREATED "{\"result\":{" HEADER
                 ",\"watch_id\":\"1\",\"created\":true}}\n" EVENT("YQ==", "9"),
         "{\"create_request\":{\"key\":\"YQ==\",\"start_revision\":\"8\",\"progress_notify\":true}}"
         "\n{\"create_request\":{\"key\":\"Yg==\",\"start_revision\":\"20\","},
    };
    BEGIN(steps);
    const struct mst__v3_watched watched[] = {{.key = BYTES("a")}, {.key = BYTES("b")}};
    struct mst__v3_watch *watch = NULL;
    assert_ok(mst__v3_watch_new(v3, watched, 2, 8, &watch, &err));
    expect_event(watch, "a", 9);
    mst__v3_watch_close(watch);
    end();
}

/* A watch that is refused may lack a new token; when that does not help, it is not allowed. */
static void test_watch_token(void **state)
{
    (void)state;
    static const char denied[] = "{\"result\":{" HEADER ",\"watch_id\":\"-1\",\"created\":true,"
                                 "\"canceled\":true,\"cancel_reason\":\"rpc error: code = "
                                 "PermissionDenied desc = etcdserver: permission denied\"}}\n";
    static const struct step steps[] = {
        TOKEN_STEP("one.1"),
        {"POST /v3/watch", 200, denied, "Authorization: one.1\r\n"},
        TOKEN_STEP("two.2"),
        {"POST /v3/watch", 200, CREATED EVENT("YQ==", "5"), "Authorization: two.2\r\n"},
        {"POST /v3/watch", 401, "{\"error\":{\"grpc_code\":16,\"message\":\"x\"}}", NULL},
        TOKEN_STEP("three.3"),
        {"POST /v3/watch", 200, denied, "Authorization: three.3\r\n"},
        TOKEN_STEP("four.4"),
        {"POST /v3/watch", 200, denied, "Authorization: four.4\r\n"},
    };
    BEGIN_AS(steps, "me");
    struct mst__v3_watched watched = {.key = BYTES("a")};
    struct mst__v3_watch *watch = NULL;
    assert_ok(mst__v3_watch_new(v3, &watched, 1, 5, &watch, &err));
    expect_event(watch, "a", 5);
    struct mst__v3_events events = {0};
    assert_fails(mst__v3_watch_next(watch, plenty(), &events, &err), MST_EAUTH,
                 "permission denied");
    mst__v3_watch_close(watch);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_etcd_33),
        cmocka_unit_test(test_prefix_by_trial),
        cmocka_unit_test(test_no_gateway),
        cmocka_unit_test(test_write_unknown),
        cmocka_unit_test(test_changes_unknown),
        cmocka_unit_test(test_write_no_leader),
        cmocka_unit_test(test_read_again),
        cmocka_unit_test(test_grant_again),
        cmocka_unit_test(test_token),
        cmocka_unit_test(test_token_refused),
        cmocka_unit_test(test_token_late),
        cmocka_unit_test(test_watch_resumes),
        cmocka_unit_test(test_watch_ranges),
        cmocka_unit_test(test_watch_token),
        cmocka_unit_test(test_one_token_for_all),
        cmocka_unit_test(test_watch_is_checked),
        cmocka_unit_test(test_watch_check_cut_short),
        cmocka_unit_test(test_watch_follows),
        cmocka_unit_test(test_member_is_left),
        cmocka_unit_test(test_token_of_others),
        cmocka_unit_test(test_watch_progress_of_one),
        cmocka_unit_test(test_pauses_grow),
    };
    return MST_RUN_TESTS(tests);
}
