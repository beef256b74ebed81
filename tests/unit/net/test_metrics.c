/* unit/net/test_metrics.c - the metrics page as text, and the server's option that serves it. */
#include <errno.h>
#include <muster/server.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/metrics.h"
#include "unit/unit.h"

/* --- the text --- */

/* A different number everywhere, so that no mix-up goes unnoticed. */
static struct mst__metrics sample(void)
{
    struct mst__metrics metrics = {
        .version = "1.2.3",
        .connections = 3,
        .keys = 17,
        .memory = 4096,
        .memory_max = 1073741824,
        .loop_us_longest = 1234567,
        .jobs = {.runs = 6,
                 .members = 77,
                 .jobs_unlisted = 8,
                 .tally = {.rounds = 12, .gathering_us = 34500000}},
        .counters = {.accepted = 9,
                     .bytes_in = UINT64_MAX,
                     .bytes_out = 4294967296,
                     .released = 5,
                     .turn_steps_max = 8,
                     .loop_us = 6500000,
                     .loop_us_max = 7654321},
    };
    for (unsigned op = 0; op < MST_OP_COUNT; op++) {
        metrics.counters.ops[op] = 100 + op;
    }
    for (unsigned why = 0; why < MST_WHY_COUNT; why++) {
        metrics.counters.closed[why] = 200 + why;
    }
    metrics.is_full[MST_FULL_OF_MEMORY] = true;
    for (unsigned of = 0; of < MST_FULL_COUNT; of++) {
        metrics.counters.refused[of] = 600 + of;
    }
    for (unsigned i = 0; i < MST_STANDING_COUNT; i++) {
        metrics.jobs.standings[i] = 300 + i;
    }
    for (unsigned i = 0; i < MST_AUTHORITY_ENDED_COUNT; i++) {
        metrics.jobs.tally.ended[i] = 400 + i;
    }
    for (unsigned i = 0; i < MST_JOB_OUTCOME_COUNT; i++) {
        metrics.jobs.tally.outcomes[i] = 500 + i;
    }
    metrics.jobs.tally.restarts = 13;
    for (unsigned i = 0; i < MST_JOB_SECONDS_COUNT; i++) {
        metrics.jobs.seconds[i] = 1;
    }
    for (unsigned i = 0; i < MST_LOOP_SECONDS_COUNT; i++) {
        metrics.counters.loop_seconds[i] = 2;
    }
    return metrics;
}

static const char sample_page[] =
    "# HELP muster_connections Connections of store clients that are open.\n"
    "# TYPE muster_connections gauge\n"
    "muster_connections 3\n"
    "# HELP muster_connections_accepted_total Connections accepted so far.\n"
    "# TYPE muster_connections_accepted_total counter\n"
    "muster_connections_accepted_total 9\n"
    "# HELP muster_keys Keys in the store.\n"
    "# TYPE muster_keys gauge\n"
    "muster_keys 17\n"
    "# HELP muster_memory_bytes Memory of stored data and connections' buffers.\n"
    "# TYPE muster_memory_bytes gauge\n"
    "muster_memory_bytes 4096\n"
    "# HELP muster_memory_limit_bytes What that memory may grow to.\n"
    "# TYPE muster_memory_limit_bytes gauge\n"
    "muster_memory_limit_bytes 1073741824\n"
    "# HELP muster_nodes Nodes of rendezvous that this server decides.\n"
    "# TYPE muster_nodes gauge\n"
    "muster_nodes 77\n"
    "# HELP muster_received_bytes_total Bytes received from store clients.\n"
    "# TYPE muster_received_bytes_total counter\n"
    "muster_received_bytes_total 18446744073709551615\n"
    "# HELP muster_rendezvous Rendezvous that this server decides.\n"
    "# TYPE muster_rendezvous gauge\n"
    "muster_rendezvous 6\n"
    "# HELP muster_sent_bytes_total Bytes sent to store clients.\n"
    "# TYPE muster_sent_bytes_total counter\n"
    "muster_sent_bytes_total 4294967296\n"
    "# HELP muster_turn_steps_max Most work for one connection in a turn of the loop.\n"
    "# TYPE muster_turn_steps_max gauge\n"
    "muster_turn_steps_max 8\n"
    "# HELP muster_waits_released_total Waits that ended because their keys came.\n"
    "# TYPE muster_waits_released_total counter\n"
    "muster_waits_released_total 5\n"
    "# HELP muster_loop_turn_seconds Turns of the event loop, without the time in which it waits.\n"
    "# TYPE muster_loop_turn_seconds histogram\n"
    "muster_loop_turn_seconds_bucket{le=\"0.001\"} 2\n"
    "muster_loop_turn_seconds_bucket{le=\"0.01\"} 4\n"
    "muster_loop_turn_seconds_bucket{le=\"0.05\"} 6\n"
    "muster_loop_turn_seconds_bucket{le=\"0.1\"} 8\n"
    "muster_loop_turn_seconds_bucket{le=\"1\"} 10\n"
    "muster_loop_turn_seconds_bucket{le=\"+Inf\"} 12\n"
    "muster_loop_turn_seconds_sum 6.500000\n"
    "muster_loop_turn_seconds_count 12\n"
    "# HELP muster_loop_turn_seconds_max The longest of the last minute.\n"
    "# TYPE muster_loop_turn_seconds_max gauge\n"
    "muster_loop_turn_seconds_max 1.234567\n"
    "# HELP muster_full 1 while there is no room for more.\n"
    "# TYPE muster_full gauge\n"
    "muster_full{of=\"connections\"} 0\n"
    "muster_full{of=\"memory\"} 1\n"
    "# HELP muster_full_refused_total Connections and requests that were refused because "
    "it was full.\n"
    "# TYPE muster_full_refused_total counter\n"
    "muster_full_refused_total{of=\"connections\"} 600\n"
    "muster_full_refused_total{of=\"memory\"} 601\n"
    "# HELP muster_connections_closed_total Connections that have ended, by reason.\n"
    "# TYPE muster_connections_closed_total counter\n"
    "muster_connections_closed_total{why=\"peer_closed\"} 200\n"
    "muster_connections_closed_total{why=\"peer_reset\"} 201\n"
    "muster_connections_closed_total{why=\"half_request\"} 202\n"
    "muster_connections_closed_total{why=\"protocol\"} 203\n"
    "muster_connections_closed_total{why=\"limit\"} 204\n"
    "muster_connections_closed_total{why=\"memory\"} 205\n"
    "muster_connections_closed_total{why=\"not_a_number\"} 206\n"
    "muster_connections_closed_total{why=\"stuck_request\"} 207\n"
    "muster_connections_closed_total{why=\"does_not_read\"} 208\n"
    "muster_connections_closed_total{why=\"idle\"} 209\n"
    "muster_connections_closed_total{why=\"too_many_connections\"} 210\n"
    "muster_connections_closed_total{why=\"silent\"} 211\n"
    "muster_connections_closed_total{why=\"superseded\"} 212\n"
    "muster_connections_closed_total{why=\"shutdown\"} 213\n"
    "# HELP muster_ops_total Requests served, by operation.\n"
    "# TYPE muster_ops_total counter\n"
    "muster_ops_total{op=\"set\"} 100\n"
    "muster_ops_total{op=\"compare_set\"} 101\n"
    "muster_ops_total{op=\"get\"} 102\n"
    "muster_ops_total{op=\"add\"} 103\n"
    "muster_ops_total{op=\"check\"} 104\n"
    "muster_ops_total{op=\"wait\"} 105\n"
    "muster_ops_total{op=\"num_keys\"} 106\n"
    "muster_ops_total{op=\"watch\"} 107\n"
    "muster_ops_total{op=\"delete\"} 108\n"
    "muster_ops_total{op=\"append\"} 109\n"
    "muster_ops_total{op=\"multi_get\"} 110\n"
    "muster_ops_total{op=\"multi_set\"} 111\n"
    "muster_ops_total{op=\"cancel_wait\"} 112\n"
    "muster_ops_total{op=\"ping\"} 113\n"
    "muster_ops_total{op=\"queue_push\"} 114\n"
    "muster_ops_total{op=\"queue_pop\"} 115\n"
    "muster_ops_total{op=\"queue_len\"} 116\n"
    "muster_ops_total{op=\"list_keys\"} 117\n"
    "muster_ops_total{op=\"barrier\"} 118\n"
    "muster_ops_total{op=\"wait_change\"} 119\n"
    "# HELP muster_build_info The version that runs; always 1.\n"
    "# TYPE muster_build_info gauge\n"
    "muster_build_info{version=\"1.2.3\"} 1\n"
    "# HELP muster_rounds_total Rounds that were completed.\n"
    "# TYPE muster_rounds_total counter\n"
    "muster_rounds_total 12\n"
    "# HELP muster_round_complete_seconds From the first node that waits for a round until it is "
    "complete.\n"
    "# TYPE muster_round_complete_seconds histogram\n"
    "muster_round_complete_seconds_bucket{le=\"0.1\"} 1\n"
    "muster_round_complete_seconds_bucket{le=\"0.3\"} 2\n"
    "muster_round_complete_seconds_bucket{le=\"1\"} 3\n"
    "muster_round_complete_seconds_bucket{le=\"3\"} 4\n"
    "muster_round_complete_seconds_bucket{le=\"10\"} 5\n"
    "muster_round_complete_seconds_bucket{le=\"30\"} 6\n"
    "muster_round_complete_seconds_bucket{le=\"100\"} 7\n"
    "muster_round_complete_seconds_bucket{le=\"300\"} 8\n"
    "muster_round_complete_seconds_bucket{le=\"1000\"} 9\n"
    "muster_round_complete_seconds_bucket{le=\"+Inf\"} 10\n"
    "muster_round_complete_seconds_sum 34.500000\n"
    "muster_round_complete_seconds_count 10\n"
    "# HELP muster_nodes_standing Nodes of all jobs, by standing.\n"
    "# TYPE muster_nodes_standing gauge\n"
    "muster_nodes_standing{standing=\"gathered\"} 300\n"
    "muster_nodes_standing{standing=\"queued\"} 301\n"
    "muster_nodes_standing{standing=\"spare\"} 302\n"
    "muster_nodes_standing{standing=\"member\"} 303\n"
    "muster_nodes_standing{standing=\"called\"} 304\n"
    "muster_nodes_standing{standing=\"finished\"} 306\n"
    "# HELP muster_nodes_ended_total Nodes that left, were lost or expelled, by cause.\n"
    "# TYPE muster_nodes_ended_total counter\n"
    "muster_nodes_ended_total{cause=\"left\"} 400\n"
    "muster_nodes_ended_total{cause=\"disconnected\"} 401\n"
    "muster_nodes_ended_total{cause=\"silent\"} 402\n"
    "muster_nodes_ended_total{cause=\"dead\"} 403\n"
    "muster_nodes_ended_total{cause=\"unclaimed\"} 404\n"
    "muster_nodes_ended_total{cause=\"replaced\"} 405\n"
    "muster_nodes_ended_total{cause=\"over\"} 406\n"
    "muster_nodes_ended_total{cause=\"late\"} 407\n"
    "muster_nodes_ended_total{cause=\"finished\"} 408\n"
    "# HELP muster_restarts_total Rounds that were over because work had failed.\n"
    "# TYPE muster_restarts_total counter\n"
    "muster_restarts_total 13\n"
    "# HELP muster_jobs_closed_total Jobs that were closed, by outcome.\n"
    "# TYPE muster_jobs_closed_total counter\n"
    "muster_jobs_closed_total{outcome=\"asked\"} 500\n"
    "muster_jobs_closed_total{outcome=\"finished\"} 501\n"
    "muster_jobs_closed_total{outcome=\"failed\"} 502\n"
    "# HELP muster_jobs_unlisted Jobs with nodes that have no series of their own.\n"
    "# TYPE muster_jobs_unlisted gauge\n"
    "muster_jobs_unlisted 8\n";

static void page_is_exact(void **state)
{
    (void)state;
    struct mst__metrics metrics = sample();
    struct mst__buf page;
    mst__buf_init(&page, MST_HTTP_PAGE_SIZE_MAX);
    assert_int_equal(mst__metrics_render(&metrics, &page), 0);
    assert_bytes_str(mst__buf_bytes(&page), sample_page);
    mst__buf_close(&page);
}

/* Every number at its longest still fits into a page. */
static void largest_page_fits(void **state)
{
    (void)state;
    struct mst__metrics metrics = {.version = "1000.1000.1000"};
    static struct mst__job_metrics jobs[MST_METRICS_JOBS_MAX];
    memset(&metrics.connections, 0xff, sizeof metrics - offsetof(struct mst__metrics, connections));
    memset(jobs, 0xff, sizeof jobs);
    for (size_t i = 0; i < MST_FULL_COUNT; i++) {
        metrics.is_full[i] = true; /* 0xff is not a bool */
    }
    metrics.jobs.jobs_unlisted = 0;
    metrics.jobs.jobs = jobs;
    metrics.jobs.jobs_count = MST_METRICS_JOBS_MAX;
    static char evil[MST_METRICS_RUN_ID_SIZE_MAX];
    memset(evil, 0x1b, sizeof evil);
    for (size_t i = 0; i < MST_METRICS_JOBS_MAX; i++) {
        jobs[i].run_id = mst_bytes_of(evil, sizeof evil);
    }
    struct mst__buf page;
    mst__buf_init(&page, MST_HTTP_PAGE_SIZE_MAX);
    assert_int_equal(mst__metrics_render(&metrics, &page), 0);
    assert_true(mst__buf_size(&page) > sizeof sample_page);
    /* Not all of the jobs; the number of the others is given. */
    assert_int_equal(mst__buf_append(&page, mst_bytes_of("", 1)), 0);
    const char *text = (const char *)mst__buf_bytes(&page).data;
    assert_non_null(strstr(text, "\nmuster_jobs_unlisted 384\n"));
    unsigned listed = 0;
    for (const char *at = text; (at = strstr(at, "\nmuster_job_rounds_total{")) != NULL; at++) {
        listed++;
    }
    assert_int_equal(listed, 128);
    mst__buf_close(&page);
}

/* Jobs of ordinary names all fit, and their families are not mixed. */
static void jobs_have_series(void **state)
{
    (void)state;
    struct mst__metrics metrics = sample();
    static struct mst__job_metrics jobs[MST_METRICS_JOBS_MAX];
    metrics.jobs.jobs = jobs;
    metrics.jobs.jobs_count = MST_METRICS_JOBS_MAX;
    static char names[MST_METRICS_JOBS_MAX][80];
    for (size_t i = 0; i < MST_METRICS_JOBS_MAX; i++) {
        (void)snprintf(names[i], sizeof names[i],
                       "training-of-somebody-with-a-name-of-the-length-that-a-scheduler-makes-%zu",
                       i);
        jobs[i].run_id = mst_bytes_str(names[i]);
        jobs[i].tally.rounds = i;
    }
    jobs[1] = (struct mst__job_metrics){
        .run_id = mst_bytes_str("a\\b\"c\nz\x1b\xff\\x1b"),
        .standings = {[MST_STANDING_MEMBER] = 5},
        .tally = {.rounds = 77,
                  .gathering_us = 1250000,
                  .ended = {[MST_AUTHORITY_ENDED_SILENT] = 3}},
    };
    struct mst__buf page;
    mst__buf_init(&page, MST_HTTP_PAGE_SIZE_MAX);
    assert_int_equal(mst__metrics_render(&metrics, &page), 0);
    assert_int_equal(mst__buf_append(&page, mst_bytes_of("", 1)), 0);
    const char *text = (const char *)mst__buf_bytes(&page).data;
#define EVIL "{run=\"a\\\\\\\\b\\\"c\\\\x0az\\\\x1b\\\\xff\\\\\\\\x1b\""
    static const char *const lines[] = {
        "\nmuster_jobs_unlisted 8\n",
        "-makes-511\"} 511\n",
        "\nmuster_job_rounds_total" EVIL "} 77\n",
        "\nmuster_job_gathering_seconds_total" EVIL "} 1.250000\n",
        "\nmuster_job_nodes" EVIL ",standing=\"member\"} 5\n",
        "\nmuster_job_nodes" EVIL ",standing=\"called\"} 0\n",
        "\nmuster_job_nodes_ended_total" EVIL ",cause=\"silent\"} 3\n",
        "\nmuster_job_nodes_ended_total" EVIL ",cause=\"left\"} 0\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (strstr(text, lines[i]) == NULL) {
            fail_msg("no line %s", lines[i]);
        }
    }
    /* All lines after the heading of a family are of that family. */
    const char *at = strstr(text, "# TYPE muster_job_nodes gauge\n");
    assert_non_null(at);
    const char *end = strstr(at, "# HELP muster_job_nodes_ended_total");
    assert_non_null(end);
    for (at = strchr(at, '\n') + 1; at < end; at = strchr(at, '\n') + 1) {
        assert_memory_equal(at, "muster_job_nodes{", strlen("muster_job_nodes{"));
    }
    mst__buf_close(&page);
}

static void page_beyond_the_limit_leaves_nothing(void **state)
{
    (void)state;
    struct mst__metrics metrics = sample();
    for (size_t size_max = 5; size_max < sizeof sample_page + 4; size_max += 97) {
        struct mst__buf page;
        mst__buf_init(&page, size_max);
        assert_int_equal(mst__buf_append(&page, mst_bytes_str("head\n")), 0);
        assert_int_equal(mst__metrics_render(&metrics, &page), MST_ELIMIT);
        assert_bytes_str(mst__buf_bytes(&page), "head\n");
        mst__buf_close(&page);
    }
}

static void render_meets_no_memory(void **state)
{
    (void)state;
    struct mst__metrics metrics = sample();
    unsigned long failures = 0;
    for (unsigned long nth = 1;; nth++) {
        struct mst__buf page;
        mst__buf_init(&page, MST_HTTP_PAGE_SIZE_MAX);
        mst__mem_fail_nth(nth);
        int rv = mst__metrics_render(&metrics, &page);
        bool failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        assert_int_equal(rv, failed ? MST_ENOMEM : 0);
        if (failed) {
            assert_int_equal(mst__buf_size(&page), 0);
            failures++;
        }
        mst__buf_close(&page);
        if (!failed) {
            break;
        }
    }
    assert_true(failures > 0);
}

/* --- the server's option --- */

static int server_with(const char *http_address,
                       struct mst_server **ret_server,
                       struct mst_err *reterr)
{
    static const char *const hosts[] = {"127.0.0.1"};
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    options.hosts = hosts;
    options.hosts_count = 1;
    options.http_address = http_address;
    return mst_server_new(&options, ret_server, reterr);
}

static void no_address_no_page(void **state)
{
    (void)state;
    struct mst_server *server = NULL;
    assert_int_equal(server_with(NULL, &server, NULL), 0);
    assert_null(mst_server_http_address(server));
    mst_server_free(server);
}

#ifdef MST_WITH_HTTP

static uint16_t http_port(const struct mst_server *server)
{
    unsigned port = 0;
    assert_int_equal(sscanf(mst_server_http_address(server), "127.0.0.1:%u", &port), 1);
    assert_in_range(port, 1, 65535);
    return (uint16_t)port;
}

/* No name server is asked about a label of 64 characters: it cannot be put into a question. */
#define LONG_LABEL "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd"

static void wrong_addresses_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        int code;
        const char *says;
    } cases[] = {
        {"", MST_EINVAL, "names no host"},
        {"9090", MST_EINVAL, "lacks a port"},
        {":9090", MST_EINVAL, "names no host"},
        {"127.0.0.1", MST_EINVAL, "lacks a port"},
        {"127.0.0.1:65536", MST_EINVAL, "from 0 to 65535"},
        {"::1:9090", MST_EINVAL, "brackets"},
        {"[::1:9090", MST_EINVAL, "bracket"},
        {LONG_LABEL ":0", MST_ERESOLVE, LONG_LABEL},
        {"192.0.2.1:0", MST_ESYS, "listen on '192.0.2.1:0'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst_server *server = NULL;
        struct mst_err err = {0};
        assert_int_equal(server_with(cases[i].address, &server, &err), cases[i].code);
        assert_null(server);
        assert_non_null(strstr(err.msg, "http address '"));
        assert_non_null(strstr(err.msg, cases[i].says));
        assert_int_equal(err.domain, cases[i].code == MST_ERESOLVE ? MST_DOMAIN_GAI
                                     : cases[i].code == MST_ESYS   ? MST_DOMAIN_ERRNO
                                                                   : MST_DOMAIN_NONE);
        assert_int_equal(server_with(cases[i].address, &server, NULL), cases[i].code);
    }
}

static void taken_port_is_refused(void **state)
{
    (void)state;
    struct mst_server *first = NULL;
    struct mst_server *second = NULL;
    assert_int_equal(server_with("127.0.0.1:0", &first, NULL), 0);
    struct mst_err err = {0};
    assert_int_equal(server_with(mst_server_http_address(first), &second, &err), MST_ESYS);
    assert_int_equal(err.sys, EADDRINUSE);
    assert_non_null(strstr(err.msg, mst_server_http_address(first)));
    mst_server_free(first);
}

static void opening_meets_no_memory(void **state)
{
    (void)state;
    unsigned long failures = 0;
    for (unsigned long nth = 1;; nth++) {
        struct mst_server *server = NULL;
        struct mst_err err = {0};
        mst__mem_fail_nth(nth);
        int rv = server_with("127.0.0.1:0", &server, &err);
        bool failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        assert_int_equal(rv, failed ? MST_ENOMEM : 0);
        failures += failed ? 1 : 0;
        if (!failed) {
            mst_server_free(server); /* it never ran */
            break;
        }
        assert_null(server);
    }
    assert_true(failures >= 2); /* the server, and its page */
}

struct visit {
    struct mst_server *server;
    uint16_t port;
    char answer[8192];
    size_t size;
};

/* Request the metrics, keep the answer, and stop the server. */
static void *visit_run(void *arg)
{
    struct visit *visit = arg;
    static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(visit->port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval patience = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
        connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 &&
        send(fd, request, sizeof request - 1, MSG_NOSIGNAL) == (ssize_t)(sizeof request - 1)) {
        ssize_t got;
        while ((got = recv(fd, visit->answer + visit->size, sizeof visit->answer - 1 - visit->size,
                           0)) > 0) {
            visit->size += (size_t)got;
        }
    }
    visit->answer[visit->size] = '\0';
    if (fd >= 0) {
        (void)close(fd); /* only read */
    }
    mst_server_stop(visit->server);
    return NULL;
}

/* The countdown belongs to this thread, in which the server runs. */
static void serving_meets_no_memory(void **state)
{
    (void)state;
    unsigned long failures = 0;
    for (unsigned long nth = 1;; nth++) {
        struct visit visit = {0};
        assert_int_equal(server_with("127.0.0.1:0", &visit.server, NULL), 0);
        visit.port = http_port(visit.server);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, visit_run, &visit), 0);
        mst__mem_fail_nth(nth);
        int rv = mst_server_run(visit.server, NULL);
        bool failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        mst_server_free(visit.server);
        assert_int_equal(rv, 0);
        assert_non_null(strstr(visit.answer, failed ? "HTTP/1.1 500 " : "HTTP/1.1 200 "));
        assert_non_null(
            strstr(visit.answer, failed ? "\r\n\r\nno memory" : "\nmuster_build_info{version="));
        if (!failed) {
            break;
        }
        failures++;
    }
    assert_true(failures > 0);
}

#else

static void built_without_http_says_so(void **state)
{
    (void)state;
    struct mst_server *server = NULL;
    struct mst_err err = {0};
    assert_int_equal(server_with("127.0.0.1:0", &server, &err), MST_ENOTSUP);
    assert_null(server);
    assert_non_null(strstr(err.msg, "this muster was built without http"));
}

#endif /* MST_WITH_HTTP */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_is_exact),
        cmocka_unit_test(largest_page_fits),
        cmocka_unit_test(jobs_have_series),
        cmocka_unit_test(page_beyond_the_limit_leaves_nothing),
        cmocka_unit_test(render_meets_no_memory),
        cmocka_unit_test(no_address_no_page),
#ifdef MST_WITH_HTTP
        cmocka_unit_test(wrong_addresses_are_named),
        cmocka_unit_test(taken_port_is_refused),
        cmocka_unit_test(opening_meets_no_memory),
        cmocka_unit_test(serving_meets_no_memory),
#else
        cmocka_unit_test(built_without_http_says_so),
#endif
    };
    return MST_RUN_TESTS(tests);
}
