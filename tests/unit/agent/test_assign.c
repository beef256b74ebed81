/* unit/agent/test_assign.c - descriptions of a launcher's nodes, ranks as prefix sums, timers of
 * workers, and the report of a failure. */
#include <muster/muster.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/assign.h"
#include "agent/report.h"
#include "agent/watchdog.h"
#include "base/clock.h"
#include "core/authority.h"
#include "unit/unit.h"

static void role_infos(void **state)
{
    (void)state;
    struct mst__role_info info;
    static const char *const good[] = {
        "{\"role\": \"default\", \"rank\": 0, \"local_world_size\": 2}",
        "{\"local_world_size\":2,\"role\":\"default\"}",
        " { \"rank\" : -1 , \"role\" : \"default\" , \"local_world_size\" : 2 } \n",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(mst__role_info_read(mst_bytes_str(good[i]), &info));
        assert_int_equal(info.nproc, 2);
        assert_bytes_str(info.role, "default");
    }
    assert_true(mst__role_info_read(
        mst_bytes_str("{\"role\": \"a\\\"b\", \"local_world_size\": 65536}"), &info));
    assert_bytes_str(info.role, "a\\\"b");
    static const char *const bad[] = {
        "",
        "{}",
        "{\"role\": \"a\"}",
        "{\"local_world_size\": 2}",
        "{\"role\": \"a\", \"local_world_size\": 0}",
        "{\"role\": \"a\", \"local_world_size\": 65537}",
        "{\"role\": \"a\", \"local_world_size\": x}",
        "{\"role\": \"a, \"local_world_size\": 2}",
        "{\"role\": \"a\\",
        "{\"role\": \"a\", \"local_world_size\": 2",
        "{\"role\": \"a\", \"local_world_size\": 2} and",
        "[\"role\"]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(mst__role_info_read(mst_bytes_str(bad[i]), &info));
    }
}

static void assigned_ranks(void **state)
{
    (void)state;
    struct mst__assignment got;
    assert_true(mst__assigned_ranks_read(mst_bytes_str("[4, 8, 0, 4]"), &got));
    assert_int_equal(got.first_rank, 4);
    assert_int_equal(got.world_size, 8);
    assert_int_equal(got.role_first_rank, 0);
    assert_int_equal(got.role_world_size, 4);
    static const char *const bad[] = {"", "[]", "[1,2,3]", "[1,2,3,4,5]", "[1,2,3,-4]", "[1,2,3,4"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(mst__assigned_ranks_read(mst_bytes_str(bad[i]), &got));
    }
}

static void prefix_sums(void **state)
{
    (void)state;
    const struct mst__role_info infos[] = {
        {mst_bytes_str("trainer"), 2}, {mst_bytes_str("reader"), 1}, {mst_bytes_str("trainer"), 3}};
    struct mst__assignment parts[3];
    assert_int_equal(mst__assign_compute(infos, 3, parts), 0);
    static const int64_t expected[3][4] = {{0, 6, 0, 5}, {2, 6, 0, 1}, {3, 6, 2, 5}};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(parts[i].first_rank, expected[i][0]);
        assert_int_equal(parts[i].world_size, expected[i][1]);
        assert_int_equal(parts[i].role_first_rank, expected[i][2]);
        assert_int_equal(parts[i].role_world_size, expected[i][3]);
    }
}

/* Put the address of the workers' store into the store of round @number. */
static void put_master(struct mst_store *root, const char *number, const char *address)
{
    struct mst_store *round = NULL;
    const struct mst_bytes keys[] = {mst_bytes_str("MASTER_ADDR"), mst_bytes_str("MASTER_PORT")};
    const struct mst_bytes values[] = {mst_bytes_str(address), mst_bytes_str("4321")};
    assert_int_equal(mst_store_prefix(root, mst_bytes_str(number), &round, NULL), 0);
    assert_int_equal(mst_store_multi_set(round, keys, values, 2, 1000, NULL), 0);
    mst_store_close(round);
}

/* An agent of torch that has stayed rank 0 has written the address in an earlier round: the last
 * one counts. */
static void address_of_an_earlier_round(void **state)
{
    (void)state;
    char directory[] = "/tmp/muster-assign-XXXXXX";
    char url[100];
    struct mst_store *root = NULL;
    struct mst_err err;
    assert_non_null(mkdtemp(directory));
    (void)snprintf(url, sizeof url, "file://%s/store", directory);
    assert_int_equal(mst_store_open(url, NULL, 1000, &root, &err), 0);
    put_master(root, "job.7", "oldest");
    put_master(root, "job.8", "last");
    struct mst_rendezvous round = {.size = sizeof round, .round = 10, .world_size = 1};
    assert_int_equal(mst_store_prefix(root, mst_bytes_str("job.10"), &round.store, &err), 0);
    const struct mst__assign assign = {
        .round = &round, .role = "default", .nproc = 1, .timeout_ms = 50};
    struct mst__assignment got;
    assert_int_equal(mst__assign(&assign, &got, &err), 0);
    assert_string_equal(got.master_addr, "last");
    assert_int_equal(got.master_port, 4321);
    mst_store_close(round.store);
    mst_store_close(root);
    (void)snprintf(url, sizeof url, "%s/store", directory);
    assert_int_equal(unlink(url), 0);
    assert_int_equal(rmdir(directory), 0);
}

/* The wait for an address that nobody writes ends in time. */
static void address_that_never_comes(void **state)
{
    (void)state;
    char directory[] = "/tmp/muster-assign-XXXXXX";
    char url[100];
    struct mst_store *root = NULL;
    struct mst_err err;
    assert_non_null(mkdtemp(directory));
    (void)snprintf(url, sizeof url, "file://%s/store", directory);
    assert_int_equal(mst_store_open(url, NULL, 1000, &root, &err), 0);
    struct mst_rendezvous round = {.size = sizeof round, .round = 0, .world_size = 1};
    assert_int_equal(mst_store_prefix(root, mst_bytes_str("job.0"), &round.store, &err), 0);
    const struct mst__assign assign = {
        .round = &round, .role = "default", .nproc = 1, .timeout_ms = 20};
    struct mst__assignment got;
    int64_t begin_ms = mst__clock_ms();
    assert_int_equal(mst__assign(&assign, &got, &err), MST_ETIMEOUT);
    assert_true(mst__clock_ms() - begin_ms < 2500); /* less than the time for this round alone */
    mst_store_close(round.store);
    mst_store_close(root);
    (void)snprintf(url, sizeof url, "%s/store", directory);
    (void)unlink(url); /* nothing was written */
    assert_int_equal(rmdir(directory), 0);
}

/* Ranks that came with the round are taken as they are, without the store. */
static void ranks_of_the_round(void **state)
{
    (void)state;
    const struct mst_rendezvous round = {.size = sizeof round,
                                         .rank = 2,
                                         .world_size = 4,
                                         .master_addr = "host",
                                         .master_port = 4321,
                                         .first_worker = 5,
                                         .workers = 9,
                                         .role_first_worker = 3,
                                         .role_workers = 7};
    const struct mst__assign assign = {
        .round = &round, .role = "default", .nproc = 2, .timeout_ms = 20};
    struct mst__assignment got;
    struct mst_err err;
    assert_int_equal(mst__assign(&assign, &got, &err), 0);
    assert_int_equal(got.first_rank, 5);
    assert_int_equal(got.world_size, 9);
    assert_int_equal(got.role_first_rank, 3);
    assert_int_equal(got.role_world_size, 7);
    assert_string_equal(got.master_addr, "host");
    assert_int_equal(got.master_port, 4321);
}

/* What rank 0 of two nodes tells the other one, whose role is told in the form of its agent. */
static void ranks_of_another_node(void **state)
{
    (void)state;
    static const char *const keys[] = {"torchelastic/role_info/1", "torchelastic/role_info1"};
    for (size_t i = 0; i < 2; i++) {
        struct mst_err err;
        struct mst_rendezvous round = {.size = sizeof round, .world_size = 2, .master_port = 1};
        struct mst__assignment got;
        struct mst_buffer told = {0};
        assert_int_equal(mst_store_open("hash:", NULL, 1000, &round.store, &err), 0);
        assert_int_equal(
            mst_store_set(round.store, mst_bytes_str(keys[i]),
                          mst_bytes_str("{\"role\": \"other\", \"local_world_size\": 3}"), 1000,
                          &err),
            0);
        const struct mst__assign assign = {
            .round = &round, .role = "default", .nproc = 2, .timeout_ms = 2000};
        assert_int_equal(mst__assign(&assign, &got, &err), 0);
        assert_int_equal(got.world_size, 5);
        assert_int_equal(got.role_world_size, 2);
        assert_int_equal(mst_store_try_get(round.store,
                                           mst_bytes_str("torchelastic/assigned_ranks/1"), 1000,
                                           &told, &err),
                         0);
        assert_bytes_str(mst_bytes_of(told.data, told.size), "[2, 5, 0, 3]");
        mst_buffer_free(&told);
        mst_store_close(round.store);
    }
}

/* In the form of json.dumps, so that nodes of both kinds have one role. */
static void roles_as_python_writes_them(void **state)
{
    (void)state;
    struct mst__buf text;
    mst__buf_init(&text, 200);
    assert_int_equal(mst__role_write(&text, "a\"\\\n\xc3\xa9\xf0\x9f\x98\x80\xff"), 0);
    assert_bytes_str(mst__buf_bytes(&text), "\"a\\\"\\\\\\n\\u00e9\\ud83d\\ude00\\ufffd\"");
    mst__buf_clear(&text);
    assert_int_equal(mst__role_write(&text, "/\b\f\r\t\x01\x1f ~\x7f"), 0);
    assert_bytes_str(mst__buf_bytes(&text), "\"/\\b\\f\\r\\t\\u0001\\u001f ~\\u007f\"");
    mst__buf_close(&text);
}

static void timers(void **state)
{
    (void)state;
    struct mst__watchdog_timer timer;
    struct mst__watchdog_timer other;
    assert_true(
        mst__watchdog_read(mst_bytes_str("{\"version\": 1, \"pid\": 7, \"scope_id\": \"a\", "
                                         "\"expiration_time\": 1700000000.25, \"signal\": 9}"),
                           &timer));
    assert_int_equal(timer.pid, 7);
    assert_int_equal(timer.expiry_us, 1700000000250000);
    assert_int_equal(timer.signal, 9);
    assert_true(mst__watchdog_read(
        mst_bytes_str("{\"pid\":7,\"scope_id\":\"b\",\"expiration_time\":-1,\"signal\":-1}"),
        &other));
    assert_true(other.scope != timer.scope);
    assert_true(other.expiry_us < 0);
    assert_int_equal(other.signal, 0);
    static const char *const bad[] = {
        "",
        "{}",
        "{\"pid\":1,\"scope_id\":\"b\",\"expiration_time\":1,\"signal\":9}",
        "{\"pid\":-7,\"scope_id\":\"b\",\"expiration_time\":1,\"signal\":9}",
        "{\"pid\":7,\"scope_id\":\"b\",\"expiration_time\":1,\"signal\":900}",
        "{\"pid\":7,\"scope_id\":\"b\",\"expiration_time\":\"x\",\"signal\":9}",
        "{\"pid\":7,\"expiration_time\":1,\"signal\":9}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(mst__watchdog_read(mst_bytes_str(bad[i]), &timer));
    }
}

static void report(void **state)
{
    (void)state;
    struct mst__buf block;
    struct mst__buf text;
    mst__buf_init(&block, 4096);
    mst__buf_init(&text, 8192);
    const struct mst__failed_worker failed = {
        .rank = 5,
        .local_rank = 1,
        .pid = 77,
        .signal = 9,
        .host = "here",
        .message = "first\nsecond",
        .tail = mst_bytes_str("one\ntwo\n"),
    };
    assert_int_equal(mst__report_block(&block, &failed), 0);
    assert_int_equal(mst__report(&text, "./train", mst__buf_bytes(&block)), 0);
    assert_int_equal(mst__buf_append_u8(&text, '\0'), 0);
    const char *told = (const char *)mst__buf_bytes(&text).data;
    assert_non_null(strstr(told, "=\n./train FAILED\n-"));
    assert_non_null(strstr(told, "  rank      : 5 (local_rank: 1)\n"));
    assert_non_null(strstr(told, "  exitcode  : -9 (pid: 77): SIGKILL\n"));
    assert_non_null(strstr(told, "  traceback : first\n    second\n"));
    assert_non_null(strstr(told, "the last lines\n    one\n    two\n=="));
    mst__buf_clear(&block);
    const struct mst__cause cause = {
        .worker = 2, .status = 3, .node = mst_bytes_str("n"), .text = mst_bytes_str("why")};
    assert_int_equal(mst__report_cause(&block, &cause), 0);
    assert_int_equal(mst__buf_append_u8(&block, '\0'), 0);
    told = (const char *)mst__buf_bytes(&block).data;
    assert_non_null(strstr(told, "  node      : n\n  local_rank: 2\n  exitcode  : 3\n"));
    /* A value that does not fit is an error, and not cut off. */
    struct mst__buf small;
    mst__buf_init(&small, 40);
    assert_int_equal(mst__report_block(&small, &failed), MST_ELIMIT);
    mst__buf_close(&small);
    mst__buf_close(&text);
    mst__buf_close(&block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(role_infos),
        cmocka_unit_test(assigned_ranks),
        cmocka_unit_test(prefix_sums),
        cmocka_unit_test(ranks_of_the_round),
        cmocka_unit_test(roles_as_python_writes_them),
        cmocka_unit_test(timers),
        cmocka_unit_test(report),
        cmocka_unit_test(address_of_an_earlier_round),
        cmocka_unit_test(address_that_never_comes),
        cmocka_unit_test(ranks_of_another_node),
    };
    return MST_RUN_TESTS(tests);
}
