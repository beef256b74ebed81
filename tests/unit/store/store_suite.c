/* unit/store/store_suite.c - the duties of every store. */
#include "unit/store/store_suite.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

/* --- calls --- */

void suite_values(struct mst_store *store)
{
    static const uint8_t odd[] = {0, 0xff, '\n', 0};
    assert_absent(store, "k");
    assert_ok(mst_store_set(store, STR("k"), STR("v"), PLENTY_MS, &err));
    assert_value(store, "k", STR("v"));
    assert_ok(mst_store_set(store, STR("k"), mst_bytes_of(odd, sizeof odd), PLENTY_MS, &err));
    assert_value(store, "k", mst_bytes_of(odd, sizeof odd));
    assert_ok(mst_store_set(store, STR("k"), mst_bytes_of(NULL, 0), PLENTY_MS, &err));
    assert_value(store, "k", mst_bytes_of(NULL, 0));
    /* The empty key is a key too, and so is one with a NUL. */
    assert_ok(mst_store_set(store, mst_bytes_of(NULL, 0), STR("empty"), PLENTY_MS, &err));
    assert_value(store, "", STR("empty"));
    assert_ok(mst_store_set(store, mst_bytes_of("a\0b", 3), STR("nul"), PLENTY_MS, &err));
    assert_absent(store, "a");
    bool existed = false;
    assert_ok(mst_store_delete(store, STR("k"), PLENTY_MS, &existed, &err));
    assert_true(existed);
    assert_ok(mst_store_delete(store, STR("k"), PLENTY_MS, &existed, &err));
    assert_false(existed);
    assert_absent(store, "k");
}

void suite_numbers(struct mst_store *store)
{
    int64_t sum = 0;
    assert_ok(mst_store_add(store, STR("n"), 5, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, 5);
    assert_ok(mst_store_add(store, STR("n"), -7, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, -2);
    assert_value(store, "n", STR("-2"));
    assert_ok(mst_store_set(store, STR("n"), STR(" 12abc"), PLENTY_MS, &err));
    assert_ok(mst_store_add(store, STR("n"), 1, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, 13);
    assert_ok(mst_store_set(store, STR("text"), STR("abc"), PLENTY_MS, &err));
    assert_fails(mst_store_add(store, STR("text"), 1, PLENTY_MS, &sum, &err), MST_ETYPE, "'text'");
    assert_int_equal(sum, 13);
    assert_value(store, "text", STR("abc"));
}

void suite_compare_and_set(struct mst_store *store)
{
    static const struct {
        const char *expected, *desired;
        enum mst_compare_set outcome;
        const char *value;
    } steps[] = {
        {"exp", "new", MST_COMPARE_SET_ABSENT, ""},   {"", "v1", MST_COMPARE_SET_DONE, "v1"},
        {"bad", "v2", MST_COMPARE_SET_DIFFERS, "v1"}, {"v1", "v2", MST_COMPARE_SET_DONE, "v2"},
        {"", "v3", MST_COMPARE_SET_DIFFERS, "v2"},    {"v2", "", MST_COMPARE_SET_DONE, ""},
        {"", "v4", MST_COMPARE_SET_DONE, "v4"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        enum mst_compare_set outcome = MST_COMPARE_SET_DONE;
        struct mst_buffer value = {0};
        assert_ok(mst_store_compare_set(store, STR("c"), STR(steps[i].expected),
                                        STR(steps[i].desired), PLENTY_MS, &outcome, &value, &err));
        assert_int_equal(outcome, steps[i].outcome);
        assert_bytes_str(mst_bytes_of(value.data, value.size), steps[i].value);
        mst_buffer_free(&value);
        if (i == 0) {
            assert_absent(store, "c");
        }
    }
    assert_value(store, "c", STR("v4"));
}

void suite_several_keys(struct mst_store *store)
{
    struct mst_bytes keys[] = {STR("m1"), STR("m2"), STR("m3")};
    struct mst_bytes contents[] = {STR("a"), STR(""), STR("ccc")};
    bool exist = true;
    assert_ok(mst_store_check(store, keys, 3, PLENTY_MS, &exist, &err));
    assert_false(exist);
    assert_ok(mst_store_check(store, NULL, 0, PLENTY_MS, &exist, &err));
    assert_true(exist);
    assert_ok(mst_store_multi_set(store, keys, contents, 3, PLENTY_MS, &err));
    assert_ok(mst_store_multi_set(store, NULL, NULL, 0, PLENTY_MS, &err));
    assert_ok(mst_store_check(store, keys, 3, PLENTY_MS, &exist, &err));
    assert_true(exist);
    assert_ok(mst_store_wait(store, keys, 3, PLENTY_MS, &err));
    struct mst_buffer found[3] = {{0}};
    assert_ok(mst_store_multi_get(store, keys, 3, PLENTY_MS, found, &err));
    for (size_t i = 0; i < 3; i++) {
        assert_bytes(mst_bytes_of(found[i].data, found[i].size), contents[i]);
        mst_buffer_free(&found[i]);
    }
    assert_ok(mst_store_append(store, STR("m1"), STR("bc"), PLENTY_MS, &err));
    assert_ok(mst_store_append(store, STR("new"), STR("n"), PLENTY_MS, &err));
    assert_value(store, "m1", STR("abc"));
    struct mst_bytes repeated[] = {STR("m1"), STR("m2"), STR("m1")};
    assert_ok(mst_store_multi_set(store, repeated, contents, 3, PLENTY_MS, &err));
    assert_value(store, "m1", STR("ccc")); /* the last one counts */
    assert_value(store, "new", STR("n"));
    struct mst_keys list = {0};
    assert_ok(mst_store_list(store, PLENTY_MS, &list, &err));
    assert_int_equal(list.count, 4);
    size_t seen = 0;
    for (size_t i = 0; i < list.count; i++) {
        assert_true(list.keys[i].size == 2 || list.keys[i].size == 3);
        seen += list.keys[i].data[0] == 'm' || list.keys[i].data[0] == 'n' ? 1 : 0;
    }
    assert_int_equal(seen, 4);
    mst_keys_free(&list);
    int64_t count = 0;
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
    assert_int_equal(count, 4);
}

/* It writes before it waits. A deadline that passes meanwhile leaves open whether it has written,
 * which is another error; so it gets more time until it has come to the waiting. */
static void barrier_times_out(struct mst_store *store)
{
    int rv = MST_EUNKNOWN;
    for (int64_t wait_ms = SHORT_MS; rv == MST_EUNKNOWN; wait_ms *= 2) {
        char key[32];
        assert_true(wait_ms < PLENTY_MS);
        (void)snprintf(key, sizeof key, "bar%d", (int)wait_ms); /* not written yet */
        rv = mst_store_barrier(store, STR(key), 2, wait_ms, &err);
    }
    assert_int_equal(rv, MST_ETIMEOUT);
}

void suite_timeouts(struct mst_store *store)
{
    struct mst_bytes keys[] = {STR("here"), STR("nowhere")};
    assert_ok(mst_store_set(store, STR("here"), STR("1"), PLENTY_MS, &err));
    int64_t start_ms = mst__clock_ms();
    assert_fails(mst_store_wait(store, keys, 2, SHORT_MS, &err), MST_ETIMEOUT,
                 "wait 'here' and 1 more");
    struct mst_buffer value = {0};
    assert_fails(mst_store_get(store, keys[1], SHORT_MS, &value, &err), MST_ETIMEOUT, "");
    assert_fails(mst_store_multi_get(store, keys, 2, SHORT_MS, &value, &err), MST_ETIMEOUT, "");
    assert_null(value.data);
    barrier_times_out(store);
    int64_t took_ms = mst__clock_ms() - start_ms;
    assert_in_range(took_ms, 4 * SHORT_MS - 8, PLENTY_MS);
    /* The stream is in step: a cancelled call does not answer later ones. */
    assert_ok(mst_store_set(store, STR("nowhere"), STR("2"), PLENTY_MS, &err));
    assert_value(store, "nowhere", STR("2"));
    assert_ok(mst_store_wait(store, keys, 2, PLENTY_MS, &err));
}

/* --- prefixes and limits --- */

void suite_prefixes(const char *url)
{
    struct mst_store *root = open_store(url);
    struct mst_store *inner = NULL;
    struct mst_store *outer = NULL;
    struct mst_store *other = NULL;
    assert_ok(mst_store_prefix(root, STR("inner"), &inner, &err));
    assert_ok(mst_store_prefix(inner, STR("outer"), &outer, &err));
    assert_ok(mst_store_prefix(root, STR("inn"), &other, &err));
    assert_ok(mst_store_set(outer, STR("k"), STR("v"), PLENTY_MS, &err));
    assert_value(root, "inner/outer/k", STR("v"));
    assert_value(inner, "outer/k", STR("v"));
    /* A prefix that merely begins alike sees nothing of it. */
    struct mst_keys keys = {0};
    assert_ok(mst_store_list(other, PLENTY_MS, &keys, &err));
    assert_int_equal(keys.count, 0);
    mst_keys_free(&keys);
    int64_t count = 0;
    assert_ok(mst_store_num_keys(other, PLENTY_MS, &count, &err));
    assert_int_equal(count, 1);
    /* Either may be closed first. */
    mst_store_close(root);
    mst_store_close(inner);
    assert_value(outer, "k", STR("v"));
    assert_ok(mst_store_barrier(outer, STR("b"), 1, PLENTY_MS, &err));
    assert_ok(mst_store_list(outer, PLENTY_MS, &keys, &err));
    assert_true(keys.count > 1); /* of the barrier */
    mst_keys_free(&keys);
    mst_store_close(outer);
    mst_store_close(other);
}

void suite_limits(const char *url, bool has_own_limits)
{
    struct mst_store_options options;
    mst_store_options_init(&options, sizeof options);
    options.key_size_max = 16;
    options.value_size_max = 8;
    struct mst_store *store = NULL;
    assert_ok(mst_store_open(url, &options, PLENTY_MS, &store, &err));
    assert_fails(mst_store_set(store, STR("k"), STR("123456789"), PLENTY_MS, &err), MST_ELIMIT,
                 "9 bytes");
    assert_fails(mst_store_set(store, STR("12345678901234567"), STR("v"), PLENTY_MS, &err),
                 MST_ELIMIT, "");
    struct mst_store *view = NULL;
    assert_fails(mst_store_prefix(store, STR("1234567890123456"), &view, &err), MST_ELIMIT, "");
    /* The longest key that fits, with what goes before it: a slash, and the prefix. */
    assert_ok(mst_store_set(store, STR("123456789012345"), STR("v"), PLENTY_MS, &err));
    assert_ok(mst_store_delete(store, STR("123456789012345"), PLENTY_MS, NULL, &err));
    assert_ok(mst_store_prefix(store, STR("p"), &view, &err));
    assert_ok(mst_store_set(view, STR("1234567890123"), STR("v"), PLENTY_MS, &err));
    assert_fails(mst_store_set(view, STR("123456789012345"), STR("v"), PLENTY_MS, &err), MST_ELIMIT,
                 "");
    assert_ok(mst_store_delete(view, STR("1234567890123"), PLENTY_MS, NULL, &err));
    mst_store_close(view);
    assert_ok(mst_store_set(store, STR("k"), STR("12345678"), PLENTY_MS, &err));
    if (!has_own_limits) {
        assert_fails(mst_store_append(store, STR("k"), STR("9"), PLENTY_MS, &err), MST_ELIMIT, "");
    }
    assert_value(store, "k", STR("12345678"));
    assert_ok(mst_store_delete(store, STR("k"), PLENTY_MS, NULL, &err));
    mst_store_close(store);
    /* Options of an older caller, and of a newer one with unknown fields. */
    options.size = offsetof(struct mst_store_options, value_size_max);
    assert_ok(mst_store_open(url, &options, PLENTY_MS, &store, &err));
    assert_ok(mst_store_set(store, STR("k"), STR("123456789"), PLENTY_MS, &err));
    assert_ok(mst_store_delete(store, STR("k"), PLENTY_MS, NULL, &err));
    mst_store_close(store);
    struct {
        struct mst_store_options known;
        int unknown;
    } more;
    mst_store_options_init(&more.known, sizeof more);
    assert_ok(mst_store_open(url, &more.known, PLENTY_MS, &store, &err));
    mst_store_close(store);
    more.unknown = 1;
    assert_fails(mst_store_open(url, &more.known, PLENTY_MS, &store, &err), MST_ENOTSUP, "newer");
    options.size = 3;
    assert_fails(mst_store_open(url, &options, PLENTY_MS, &store, &err), MST_EINVAL, "");
    options.size = sizeof options;
    options.key_size_max = 0;
    assert_fails(mst_store_open(url, &options, PLENTY_MS, &store, &err), MST_EINVAL, "");
}

/* --- threads --- */

void *suite_wait_for_value(void *arg)
{
    struct suite_waiter *waiter = arg;
    struct mst_buffer value = {0};
    waiter->rv =
        waiter->is_pop
            ? mst_store_queue_pop(waiter->store, STR(waiter->key), true, PLENTY_MS, &value, NULL)
            : mst_store_get(waiter->store, STR(waiter->key), PLENTY_MS, &value, NULL);
    if (waiter->rv == 0) {
        (void)snprintf(waiter->got, sizeof waiter->got, "%s", (const char *)value.data);
    }
    mst_buffer_free(&value);
    return NULL;
}

struct adder {
    struct mst_store *store;
    pthread_t thread;
    int failures;
};

#define ADDERS 6
#define ADDS 50

static void *add_many(void *arg)
{
    struct adder *adder = arg;
    for (int i = 0; i < ADDS; i++) {
        int64_t sum;
        adder->failures +=
            mst_store_add(adder->store, STR("sum"), 1, PLENTY_MS, &sum, NULL) == 0 ? 0 : 1;
    }
    return NULL;
}

/* One thread waits for a key all the while; the others get on, and then let it go. */
void suite_threads(struct mst_store *store)
{
    struct suite_waiter waiter = {.store = store, .key = "late"};
    assert_int_equal(pthread_create(&waiter.thread, NULL, suite_wait_for_value, &waiter), 0);
    struct adder adders[ADDERS];
    for (size_t i = 0; i < ADDERS; i++) {
        adders[i] = (struct adder){.store = store};
        assert_int_equal(pthread_create(&adders[i].thread, NULL, add_many, &adders[i]), 0);
    }
    for (size_t i = 0; i < ADDERS; i++) {
        assert_int_equal(pthread_join(adders[i].thread, NULL), 0);
        assert_int_equal(adders[i].failures, 0);
    }
    int64_t sum = 0;
    assert_ok(mst_store_add(store, STR("sum"), 0, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, ADDERS * ADDS);
    assert_ok(mst_store_set(store, STR("late"), STR("come"), PLENTY_MS, &err));
    assert_int_equal(pthread_join(waiter.thread, NULL), 0);
    assert_int_equal(waiter.rv, 0);
    assert_string_equal(waiter.got, "come");
}

struct comer {
    struct mst_store *store;
    int64_t size;
    pthread_t thread;
    int rv;
};

static void *come_to_barrier(void *arg)
{
    struct comer *comer = arg;
    comer->rv = mst_store_barrier(comer->store, STR("bar"), comer->size, PLENTY_MS, NULL);
    return NULL;
}

/* @count threads meet, alternately on @store and @other. */
static void meet(struct mst_store *store, struct mst_store *other, size_t count)
{
    struct comer comers[5];
    assert_true(count <= 5);
    for (size_t i = 0; i < count; i++) {
        comers[i] =
            (struct comer){.store = i % 2 == 0 ? store : other, .size = (int64_t)count, .rv = -1};
        assert_int_equal(pthread_create(&comers[i].thread, NULL, come_to_barrier, &comers[i]), 0);
    }
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(pthread_join(comers[i].thread, NULL), 0);
        assert_int_equal(comers[i].rv, 0);
    }
}

void suite_barriers(struct mst_store *store)
{
    meet(store, store, 5);
}

static void come_alone(struct mst_store *store)
{
    int rv = mst_store_barrier(store, STR("bar"), 2, SHORT_MS, &err);
    assert_true(rv == MST_ETIMEOUT || rv == MST_EUNKNOWN); /* the latter before it waits */
}

/* A participant whose time is over does not count, however often it comes; a barrier that is
 * complete begins anew. */
void suite_barriers_again(struct mst_store *store)
{
    struct mst_store *other = NULL;
    assert_ok(mst_store_clone(store, &other, &err));
    for (int use = 0; use < 4; use++) {
        come_alone(store);
        come_alone(store);
        come_alone(other);
        meet(store, other, 2);
    }
    mst_store_close(other);
}

/* --- out of memory --- */

static const struct mst_bytes oom_keys[] = {{(const uint8_t *)"f1", 2}, {(const uint8_t *)"f2", 2}};

static int get_calls(struct mst_store *store, struct mst_err *reterr)
{
    struct mst_buffer value = {0};
    struct mst_buffer found[2] = {{0}};
    int rv = mst_store_get(store, oom_keys[0], PLENTY_MS, &value, reterr);
    rv = rv != 0 ? rv : mst_store_multi_get(store, oom_keys, 2, PLENTY_MS, found, reterr);
    mst_buffer_free(&value);
    mst_buffer_free(&found[0]);
    mst_buffer_free(&found[1]);
    return rv;
}

static int compare_call(struct mst_store *store, struct mst_err *reterr)
{
    struct mst_buffer value = {0};
    enum mst_compare_set outcome;
    int rv = mst_store_compare_set(store, oom_keys[0], STR("a"), STR("c"), PLENTY_MS, &outcome,
                                   &value, reterr);
    mst_buffer_free(&value);
    return rv;
}

static int list_call(struct mst_store *store, struct mst_err *reterr)
{
    struct mst_keys list = {0};
    int rv = mst_store_list(store, PLENTY_MS, &list, reterr);
    mst_keys_free(&list);
    return rv;
}

static int queue_calls(struct mst_store *store, struct mst_err *reterr)
{
    struct mst_buffer value = {0};
    int64_t number;
    int rv = mst_store_queue_push(store, STR("fq"), STR("x"), PLENTY_MS, reterr);
    rv = rv != 0 ? rv : mst_store_queue_len(store, STR("fq"), PLENTY_MS, &number, reterr);
    rv = rv != 0 ? rv : mst_store_queue_pop(store, STR("fq"), false, PLENTY_MS, &value, reterr);
    mst_buffer_free(&value);
    return rv;
}

enum { OOM_CALLS = 12, OOM_CALLS_WITH_QUEUES };

/* One of all calls, each on keys of its own or of those before it. */
static int oom_call(struct mst_store *store, int which, struct mst_err *reterr)
{
    const struct mst_bytes contents[] = {STR("a"), STR("b")};
    int64_t number;
    bool flag;
    switch (which) {
        case 0:
            return mst_store_set(store, oom_keys[0], STR("value"), PLENTY_MS, reterr);
        case 1:
            return mst_store_add(store, STR("fn"), 1, PLENTY_MS, &number, reterr);
        case 2:
            return mst_store_multi_set(store, oom_keys, contents, 2, PLENTY_MS, reterr);
        case 3:
            return mst_store_check(store, oom_keys, 2, PLENTY_MS, &flag, reterr);
        case 4:
            return mst_store_wait(store, oom_keys, 2, PLENTY_MS, reterr);
        case 5:
            return get_calls(store, reterr);
        case 6:
            return compare_call(store, reterr);
        case 7:
            return mst_store_append(store, oom_keys[0], STR("d"), PLENTY_MS, reterr);
        case 8:
            return list_call(store, reterr);
        case 9:
            return mst_store_num_keys(store, PLENTY_MS, &number, reterr);
        case 10:
            return mst_store_barrier(store, STR("fb"), 1, PLENTY_MS, reterr);
        case 11:
            return mst_store_delete(store, oom_keys[0], PLENTY_MS, &flag, reterr);
        default:
            return queue_calls(store, reterr);
    }
}

/* Have each allocation of one call, or of opening @store if @which is -1, fail in turn. Returns how
 * often it made the call fail. */
static unsigned long fail_each(const char *url,
                               struct mst_store **store,
                               int which,
                               const char *grows_path)
{
    unsigned long failures = 0;
    bool has_failed = true;
    for (unsigned long nth = 1; has_failed; nth++) {
        assert_true(nth < 20000);
        err = (struct mst_err){0};
        if (which < 0) {
            mst_store_close(*store);
            *store = NULL;
            if (grows_path != NULL) {
                (void)unlink(grows_path); /* a log that grew would need more memory every time */
            }
        }
        mst__mem_fail_nth(nth);
        int rv = which < 0 ? mst_store_open(url, NULL, PLENTY_MS, store, &err)
                           : oom_call(*store, which, &err);
        has_failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        if (rv != 0 && (rv != MST_ENOMEM || !has_failed)) {
            fail_msg("%s: call %d, allocation %lu: %s", url, which, nth, err.msg);
        }
        failures += rv != 0 ? 1 : 0;
    }
    return failures;
}

/* After any failure, the same store works on. */
void suite_out_of_memory(const char *url, bool has_queues, const char *grows_path)
{
    struct mst_store *store = NULL;
    assert_true(fail_each(url, &store, -1, grows_path) >= 2);
    unsigned long failures = 0;
    int count = has_queues ? OOM_CALLS_WITH_QUEUES : OOM_CALLS;
    for (int which = 0; which < count; which++) {
        /* The first time it may have to connect. */
        failures += fail_each(url, &store, which, NULL);
        failures += fail_each(url, &store, which, NULL);
    }
    assert_true(failures >= 15);
    for (int which = 0; which < count; which++) {
        assert_ok(oom_call(store, which, &err));
    }
    mst_store_close(store);
}
