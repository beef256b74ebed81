/* unit/store/test_etcd3_lease.c - the lease of a store in a real etcd: one for all that share it,
 * and kept through outages. */
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/until.h"
#include "etcd/http.h"
#include "etcd/v3.h"
#include "unit/etcd_unit.h"
#include "unit/store/tap_unit.h"
#include "unit/store_unit.h"

/* A third of it is between two keep-alives, and a second after a failed one. */
#define TTL_S 15
#define AGAIN_MS 1000

#define URL_SIZE 128

static struct etcd_unit etcd;
static struct tap tap;

#define NEEDS_ETCD()                              \
    do {                                          \
        if (!etcd_unit_is_there()) {              \
            MST_SKIP("there is no etcd in PATH"); \
        }                                         \
    } while (0)

static const char *url_of(char url[URL_SIZE], uint16_t port, const char *rest)
{
    (void)snprintf(url, URL_SIZE, "etcd3://127.0.0.1:%u/%s", port, rest);
    return url;
}

/* How many leases the etcd has. */
static size_t count_leases(void)
{
    const struct mst__endpoint endpoint = {.host = "127.0.0.1", .port = etcd.port};
    const struct mst__http_options options = {.endpoints = &endpoint, .endpoint_count = 1};
    const struct mst__http_request request = {.method = MST_HTTP_POST,
                                              .path = "/v3/lease/leases",
                                              .body = STR("{}"),
                                              .content_type = "application/json"};
    struct mst__http *http = NULL;
    struct mst__http_response response;
    mst__http_response_init(&response);
    assert_ok(mst__http_new(&options, &http, &err));
    assert_ok(mst__http_call(http, &request, mst__until_in(PLENTY_MS), &response, &err));
    assert_int_equal(response.status, 200);
    size_t count = 0;
    struct mst_bytes rest = mst__buf_bytes(&response.body);
    const uint8_t *found;
    while ((found = memmem(rest.data, rest.size, "\"ID\"", 4)) != NULL) {
        count++;
        rest = mst__bytes_skip(rest, (size_t)(found - rest.data) + 4);
    }
    mst__http_response_close(&response);
    mst__http_free(http);
    return count;
}

static void open_first(void *arg)
{
    struct mst_store **first = arg;
    char url[URL_SIZE];
    *first = open_store(url_of(url, etcd.port, "raced?lease=600"));
}

/* Of two stores that grant one at the same time, the second takes that of the first, and leaves
 * none of its own. */
static void one_lease_for_all(void **state)
{
    (void)state;
    NEEDS_ETCD();
    char url[URL_SIZE];
    struct mst_store *first = NULL;
    size_t before = count_leases();
    tap_set_before(&tap, "/lease/grant", TAP_PASS, open_first, &first);
    struct mst_store *second = open_store(url_of(url, tap.port, "raced?lease=600"));
    assert_non_null(first);
    assert_int_equal(count_leases(), before + 1);
    assert_ok(mst_store_set(second, STR("k"), STR("v"), PLENTY_MS, &err));
    assert_value(first, "k", STR("v"));
    mst_store_close(first);
    mst_store_close(second);
}

/* Another program's key in its place is not overwritten. */
static void key_of_another_program(void **state)
{
    (void)state;
    NEEDS_ETCD();
    const struct mst__endpoint endpoint = {.host = "127.0.0.1", .port = etcd.port};
    const struct mst__http_options options = {.endpoints = &endpoint, .endpoint_count = 1};
    const struct mst__v3_put put = {.key = STR("/foreign!lease"), .value = STR("text")};
    struct mst__v3 *v3 = NULL;
    struct mst__v3_result result;
    struct mst_store *store = NULL;
    char url[URL_SIZE];
    mst__v3_result_init(&result);
    assert_ok(mst__v3_new(&options, &v3, &err));
    assert_ok(mst__v3_put(v3, &put, mst__until_in(PLENTY_MS), &result, &err));
    assert_fails(
        mst_store_open(url_of(url, etcd.port, "foreign?lease=9"), NULL, PLENTY_MS, &store, &err),
        MST_EPROTO, "'/foreign!lease'");
    mst__v3_result_close(&result);
    mst__v3_free(v3);
}

struct log_seen {
    atomic_int stalled, kept;
};

static void note_log(void *arg, enum mst_log_level level, const char *line)
{
    struct log_seen *seen = arg;
    (void)level;
    atomic_fetch_add(&seen->stalled, strstr(line, "ev=store.lease_stalled") != NULL ? 1 : 0);
    atomic_fetch_add(&seen->kept, strstr(line, "ev=store.lease_kept") != NULL ? 1 : 0);
}

static struct mst_store *open_logged(const char *url, struct log_seen *seen)
{
    struct mst_store_options options;
    struct mst_store *store = NULL;
    mst_store_options_init(&options, sizeof options);
    options.log = (struct mst_log){.fn = note_log, .arg = seen, .level = MST_LOG_DEBUG};
    assert_ok(mst_store_open(url, &options, PLENTY_MS, &store, &err));
    return store;
}

static void await_count(atomic_int *count, int wanted)
{
    struct mst__until until = mst__until_in(PLENTY_MS);
    while (atomic_load(count) < wanted) {
        assert_true(!mst__until_is_over(until));
        (void)poll(NULL, 0, 20); /* between two looks */
    }
}

/* An outage is logged when it begins and when it ends, however many attempts are in between; they
 * are more frequent than keep-alives, which are not logged. */
static void outage(void **state)
{
    (void)state;
    NEEDS_ETCD();
    char url[URL_SIZE];
    char rest[40];
    struct log_seen seen = {0};
    struct log_seen undisturbed = {0};
    (void)snprintf(rest, sizeof rest, "outage?lease=%d", TTL_S);
    struct mst_store *store = open_logged(url_of(url, tap.port, rest), &seen);
    struct mst_store *other =
        open_logged(url_of(url, etcd.port, "undisturbed?lease=3"), &undisturbed);
    tap_set(&tap, "/lease/keepalive", TAP_CUT, 6); /* two keep-alives, sent again at once */
    await_count(&seen.stalled, 1);
    int64_t begin_ms = mst__clock_ms();
    await_count(&seen.kept, 1);
    assert_in_range(mst__clock_ms() - begin_ms, 2 * AGAIN_MS - 500, TTL_S * 1000 / 3);
    assert_true(tap_is_done(&tap));
    assert_int_equal(atomic_load(&seen.stalled), 1);
    assert_int_equal(atomic_load(&undisturbed.stalled), 0);
    assert_int_equal(atomic_load(&undisturbed.kept), 0);
    mst_store_close(other);
    mst_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_lease_for_all),
        cmocka_unit_test(key_of_another_program),
        cmocka_unit_test(outage),
    };
    bool is_there = etcd_unit_is_there();
    if (is_there) {
        etcd_unit_start(&etcd, false, NULL);
        tap_open(&tap, etcd.port);
    }
    int rv = MST_RUN_TESTS(tests);
    if (is_there) {
        tap_close(&tap);
        etcd_unit_stop(&etcd);
    }
    return rv;
}
