/* unit/store/test_barrier.c - barriers on a store without BARRIER whose requests or answers are
 * lost: a participant that does not know whether it counts comes again, and counts once. */
#include "unit/store_unit.h"

#include <pthread.h>

#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "store/store.h"

/* --- a store without BARRIER that fails from its n-th command on --- */

struct faulty {
    struct mst__storage storage; /* first: the storage is cast to this struct */
    struct mst__storage *inner;
    atomic_int commands_left;     /* before the fault; negative = none comes */
    atomic_bool is_executed;      /* the first command that fails is executed, its answer is lost */
    struct mst_store *quicker[2]; /* they meet before the next list is written; NULL = nobody */
    struct mst_store *last;       /* it comes just after a wait has timed out; NULL = nobody */
    bool is_late;                 /* the next list to be written is only kept in @late */
    struct mst_buffer late;
};

static void meet(struct mst_store *one, struct mst_store *other);

static int faulty_execute(struct mst__storage *storage,
                          const struct mst__command *command,
                          struct mst__until until,
                          struct mst__answer *result,
                          struct mst_err *reterr)
{
    struct faulty *faulty = (struct faulty *)storage;
    if (command->op == MST_OP_BARRIER) {
        return mst__fail(reterr, MST_ENOTSUP, 0, "no barrier");
    }
    if (command->op == MST_OP_COMPARE_SET && faulty->quicker[0] != NULL) {
        struct mst_store *quicker[] = {faulty->quicker[0], faulty->quicker[1]};
        faulty->quicker[0] = NULL;
        meet(quicker[0], quicker[1]);
    }
    if (command->op == MST_OP_COMPARE_SET && faulty->is_late) {
        faulty->is_late = false;
        faulty->late.size = command->value.size;
        faulty->late.data =
            (uint8_t *)mst__memdup((const char *)command->value.data, command->value.size);
        return mst__fail(reterr, MST_EUNKNOWN, 0, "request late");
    }
    int left = atomic_load(&faulty->commands_left);
    if (left > 0) {
        atomic_store(&faulty->commands_left, left - 1);
    }
    if (left == 0 && !atomic_exchange(&faulty->is_executed, false)) {
        return mst__fail(reterr, MST_EUNKNOWN, 0, "request lost");
    }
    int rv = faulty->inner->ops->execute(faulty->inner, command, until, result, reterr);
    if (command->op == MST_OP_WAIT && rv == MST_ETIMEOUT && faulty->last != NULL) {
        struct mst_err own;
        assert_ok(mst_store_barrier(faulty->last, STR("b"), 2, PLENTY_MS, &own));
    }
    return left == 0 ? mst__fail(reterr, MST_EUNKNOWN, 0, "answer lost") : rv;
}

static void faulty_free(struct mst__storage *storage)
{
    struct faulty *faulty = (struct faulty *)storage;
    faulty->inner->ops->free(faulty->inner);
    free(faulty);
}

static struct mst_store *faulty_open(struct faulty **ret_faulty)
{
    static const struct mst__storage_ops ops = {.execute = faulty_execute, .free = faulty_free};
    struct faulty *faulty = calloc(1, sizeof *faulty);
    struct mst_store *store = NULL;
    struct mst_store_options options;
    assert_non_null(faulty);
    mst_store_options_init(&options, sizeof options);
    assert_ok(mst__hash_open(&options, &faulty->inner, &err));
    faulty->storage = *faulty->inner;
    faulty->storage.ops = &ops;
    atomic_init(&faulty->storage.handles, 0);
    atomic_init(&faulty->commands_left, -1);
    atomic_init(&faulty->is_executed, false);
    assert_ok(mst__store_first(&faulty->storage, &store, &err));
    *ret_faulty = faulty;
    return store;
}

/* --- tests --- */

static int come(struct mst_store *store, int64_t timeout_ms)
{
    return mst_store_barrier(store, STR("b"), 2, timeout_ms, &err);
}

static void *come_in_thread(void *arg)
{
    struct mst_err own; /* the other thread has its own, too */
    return mst_store_barrier(arg, STR("b"), 2, PLENTY_MS, &own) == 0 ? NULL : arg;
}

static void meet(struct mst_store *one, struct mst_store *other)
{
    pthread_t thread;
    void *failed = NULL;
    assert_int_equal(pthread_create(&thread, NULL, come_in_thread, other), 0);
    assert_ok(mst_store_barrier(one, STR("b"), 2, PLENTY_MS, &err));
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
}

/* Fail the n-th and all later commands of a call, n = 0, 1, ..., until it waits for the others.
 * Whatever the store has done, the participant is one participant afterwards. */
static void lost_answers(void **state)
{
    (void)state;
    bool is_through = false;
    for (int i = 0; !is_through; i++) {
        struct faulty *faulty = NULL;
        struct mst_store *store = faulty_open(&faulty);
        struct mst_store *other = NULL;
        assert_ok(mst_store_clone(store, &other, &err));
        assert_true(i < 40);
        for (int failures = 0; failures < 2; failures++) {
            atomic_store(&faulty->is_executed, i % 2 == 1);
            atomic_store(&faulty->commands_left, i / 2);
            int rv = come(store, SHORT_MS);
            assert_int_not_equal(rv, 0);
            is_through = atomic_load(&faulty->commands_left) > 0;
            atomic_store(&faulty->commands_left, -1);
        }
        if (i % 3 == 0) {
            assert_fails(come(store, SHORT_MS), MST_ETIMEOUT, "not complete");
        }
        meet(store, other);
        meet(store, other);
        assert_fails(come(other, SHORT_MS), MST_ETIMEOUT, "not complete");
        mst_store_close(other);
        mst_store_close(store);
    }
}

/* A participant that lost the answer that would have told it of the end: the barrier was complete,
 * and its retry passes at once, and only that. */
static void lost_end(void **state)
{
    (void)state;
    struct faulty *faulty = NULL;
    struct mst_store *store = faulty_open(&faulty);
    struct mst_store *other = NULL;
    assert_ok(mst_store_clone(store, &other, &err));
    atomic_store(&faulty->commands_left, 3); /* it is in the list, and cannot leave it */
    assert_fails(come(store, SHORT_MS), MST_EUNKNOWN, "request lost");
    atomic_store(&faulty->commands_left, -1);
    assert_ok(mst_store_barrier(other, STR("b"), 2, PLENTY_MS, &err));
    assert_ok(mst_store_barrier(store, STR("b"), 2, PLENTY_MS, &err));
    assert_fails(come(store, SHORT_MS), MST_ETIMEOUT, "not complete");
    mst_store_close(other);
    mst_store_close(store);
}

/* Others meet between the look of a participant and its write, which is lost. It is none of them,
 * and waits for the next ones. */
static void others_were_quicker(void **state)
{
    (void)state;
    struct faulty *faulty = NULL;
    struct mst_store *store = faulty_open(&faulty);
    for (size_t i = 0; i < 2; i++) {
        assert_ok(mst_store_clone(store, &faulty->quicker[i], &err));
    }
    struct mst_store *quicker[] = {faulty->quicker[0], faulty->quicker[1]};
    assert_fails(come(store, SHORT_MS), MST_ETIMEOUT, "not complete");
    assert_null(faulty->quicker[0]);
    meet(store, quicker[0]);
    mst_store_close(quicker[0]);
    mst_store_close(quicker[1]);
    mst_store_close(store);
}

/* The request of a participant arrives after its call has failed. It and its retry count once. */
static void request_comes_late(void **state)
{
    (void)state;
    struct faulty *faulty = NULL;
    struct mst_store *store = faulty_open(&faulty);
    struct mst_store *other = NULL;
    enum mst_compare_set outcome;
    struct mst_buffer value = {0};
    assert_ok(mst_store_clone(store, &other, &err));
    faulty->is_late = true;
    assert_fails(come(store, SHORT_MS), MST_EUNKNOWN, "request late");
    assert_ok(mst_store_compare_set(other, STR("b/participants"), STR(""),
                                    mst_bytes_of(faulty->late.data, faulty->late.size), PLENTY_MS,
                                    &outcome, &value, &err));
    assert_int_equal(outcome, MST_COMPARE_SET_DONE);
    mst_buffer_free(&value);
    mst_buffer_free(&faulty->late);
    assert_fails(come(store, SHORT_MS), MST_ETIMEOUT, "not complete");
    meet(store, other);
    mst_store_close(other);
    mst_store_close(store);
}

/* The barrier is complete when the time of a participant is over: it has passed, as the others. */
static void complete_in_the_end(void **state)
{
    (void)state;
    struct faulty *faulty = NULL;
    struct mst_store *store = faulty_open(&faulty);
    struct mst_store *other = NULL;
    assert_ok(mst_store_clone(store, &other, &err));
    faulty->last = other;
    assert_ok(come(store, SHORT_MS));
    faulty->last = NULL;
    assert_fails(come(store, SHORT_MS), MST_ETIMEOUT, "not complete");
    mst_store_close(other);
    mst_store_close(store);
}

/* PyTorch's processes count in another key, and wait for one that the last one sets. */
static void torchs_processes(void **state)
{
    (void)state;
    struct faulty *faulty = NULL;
    struct mst_store *store = faulty_open(&faulty);
    int64_t sum = 0;
    bool exists = false;
    const struct mst_bytes last = STR("b/last_member");
    assert_fails(come(store, SHORT_MS), MST_ETIMEOUT, "not complete");
    assert_ok(mst_store_add(store, STR("b/num_members"), 1, PLENTY_MS, &sum, &err));
    assert_ok(mst_store_check(store, &last, 1, PLENTY_MS, &exists, &err));
    assert_false(exists);
    assert_ok(mst_store_barrier(store, STR("b"), 2, PLENTY_MS, &err));
    assert_ok(mst_store_check(store, &last, 1, PLENTY_MS, &exists, &err));
    assert_true(exists);
    /* Only in the first use. */
    assert_fails(come(store, SHORT_MS), MST_ETIMEOUT, "not complete");
    mst_store_close(store);
}

/* The keys of uses that are over do not pile up. */
static void keys_of_many_uses(void **state)
{
    (void)state;
    struct faulty *faulty = NULL;
    struct mst_store *store = faulty_open(&faulty);
    int64_t count = 0;
    for (int i = 0; i < 20; i++) {
        assert_ok(mst_store_barrier(store, STR("b"), 1, PLENTY_MS, &err));
    }
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
    assert_int_equal(count, 3); /* the list, and the first and the last key that tell of an end */
    mst_store_close(store);
}

/* Failed participants are kept for their retries, but not without bound. */
static void many_in_doubt(void **state)
{
    (void)state;
    struct faulty *faulty = NULL;
    struct mst_store *store = faulty_open(&faulty);
    char key[16];
    for (int i = 0; i < MST_BARRIERS_IN_DOUBT_MAX; i++) {
        (void)snprintf(key, sizeof key, "b%d", i);
        atomic_store(&faulty->commands_left, 3);
        assert_fails(mst_store_barrier(store, STR(key), 2, SHORT_MS, &err), MST_EUNKNOWN, "lost");
    }
    atomic_store(&faulty->commands_left, -1);
    assert_fails(mst_store_barrier(store, STR("new"), 1, SHORT_MS, &err), MST_ELIMIT, "64");
    assert_ok(mst_store_barrier(store, STR("b7"), 1, PLENTY_MS, &err));
    assert_ok(mst_store_barrier(store, STR("new"), 1, PLENTY_MS, &err));
    mst_store_close(store);
}

/* Another value under the key of the list. */
static void no_list(void **state)
{
    (void)state;
    static const char *const texts[] = {"x",
                                        "1",
                                        "-1 -",
                                        "0 - 0123",
                                        "0 -x0123456789abcdef",
                                        "0 - 0123456789abcdefx0123456789abcdef"};
    struct faulty *faulty = NULL;
    struct mst_store *store = faulty_open(&faulty);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        bool is_name = i == 4; /* of the participant that completed the last use */
        assert_ok(mst_store_set(store, STR("b/participants"), STR(texts[i]), PLENTY_MS, &err));
        int rv = mst_store_barrier(store, STR("b"), 1, PLENTY_MS, &err);
        assert_int_equal(rv, is_name ? 0 : MST_ETYPE);
    }
    mst_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lost_answers),
        cmocka_unit_test(lost_end),
        cmocka_unit_test(others_were_quicker),
        cmocka_unit_test(torchs_processes),
        cmocka_unit_test(keys_of_many_uses),
        cmocka_unit_test(request_comes_late),
        cmocka_unit_test(complete_in_the_end),
        cmocka_unit_test(many_in_doubt),
        cmocka_unit_test(no_list),
    };
    return MST_RUN_TESTS(tests);
}
