/* unit/handler/test_ending.c - the end of work without an authority, with a store that loses
 * answers. */
#include "handler/ending.h"

#include "base/clock.h"
#include "base/err.h"
#include "store/store.h"
#include "unit/store_unit.h"

/* A store that executes everything. If it is told to, it loses the answer to the next request with
 * @op but @spared ones, or the request itself. */
struct lossy {
    struct mst__storage storage; /* first: the storage is cast to this struct */
    struct mst__storage *inner;
    enum mst__op op;
    size_t spared;
    bool loses, loses_request;
};

static struct lossy lossy;
static struct mst_store *root;

static int lossy_execute(struct mst__storage *storage,
                         const struct mst__command *command,
                         struct mst__until until,
                         struct mst__answer *result,
                         struct mst_err *reterr)
{
    struct lossy *self = (struct lossy *)storage;
    bool is_it = command->op == self->op && self->spared == 0;
    self->spared -= command->op == self->op && self->spared > 0 ? 1 : 0;
    if (is_it && self->loses_request) {
        self->loses_request = false;
        return mst__fail(reterr, MST_ECONN, 0, "the request is lost");
    }
    int rv = self->inner->ops->execute(self->inner, command, until, result, reterr);
    if (rv == 0 && is_it && self->loses) {
        self->loses = false;
        mst__buf_clear(&result->memory);
        rv = mst__fail(reterr, MST_EUNKNOWN, 0, "the answer is lost");
    }
    return rv;
}

static void lossy_free(struct mst__storage *storage)
{
    struct lossy *self = (struct lossy *)storage;
    self->inner->ops->free(self->inner);
}

static const struct mst__storage_ops lossy_ops = {.execute = lossy_execute, .free = lossy_free};

static int start(void **state)
{
    struct mst_store_options options;
    (void)state;
    mst_store_options_init(&options, sizeof options);
    lossy = (struct lossy){.storage = {.ops = &lossy_ops, .key_root = "", .options = options},
                           .op = MST_OP_ADD};
    atomic_init(&lossy.storage.handles, 0);
    assert_ok(mst__hash_open(&options, &lossy.inner, &err));
    assert_ok(mst__store_first(&lossy.storage, &root, &err));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    mst_store_close(root);
    return 0;
}

/* An mst__ending_open_fn. */
static int open_part(void *self,
                     int64_t round,
                     struct mst_store **ret_store,
                     struct mst_err *reterr)
{
    (void)self;
    char name[40];
    (void)snprintf(name, sizeof name, round == MST_ENDING_JOB ? "job" : "%lld", (long long)round);
    return mst_store_prefix(root, mst_bytes_str(name), ret_store, reterr);
}

static void begin(struct mst__ending *ending, const char *node, int64_t rank, int64_t world)
{
    const struct mst__budget budget = {.is_limited = false};
    mst__ending_init(ending, node, &budget, -1, open_part, NULL);
    assert_ok(mst__ending_begin(ending, 1, rank, world, &err));
}

/* --- finished --- */

/* A node that finishes, and again because the answer was lost, is still one node: the other one
 * works on, and the job ends with that. */
static void finished_again(void **state)
{
    (void)state;
    struct mst__ending nodes[2];
    struct mst__word word;
    bool closes = true;
    begin(&nodes[0], "node0", 0, 2);
    begin(&nodes[1], "node1", 1, 2);
    mst__word_finish(&word, 0, "");
    lossy.loses = true;
    assert_fails(mst__ending_say(&nodes[0], &word, &closes, &err), MST_EUNKNOWN, "lost");
    assert_false(closes);
    for (int i = 0; i < 2; i++) {
        assert_ok(mst__ending_say(&nodes[0], &word, &closes, &err));
        assert_false(closes);
    }
    assert_ok(mst__ending_say(&nodes[1], &word, &closes, &err));
    assert_true(closes);
    mst__ending_leave(&nodes[0]);
    mst__ending_leave(&nodes[1]);
}

/* The same for the last one, whose answer nobody else can give: the job still ends. */
static void last_one_finished_again(void **state)
{
    (void)state;
    struct mst__ending nodes[2];
    struct mst__word word;
    bool closes = true;
    begin(&nodes[0], "node0", 0, 2);
    begin(&nodes[1], "node1", 1, 2);
    mst__word_finish(&word, 0, "");
    assert_ok(mst__ending_say(&nodes[1], &word, &closes, &err));
    assert_false(closes);
    lossy.loses = true;
    assert_fails(mst__ending_say(&nodes[0], &word, &closes, &err), MST_EUNKNOWN, "lost");
    assert_ok(mst__ending_say(&nodes[0], &word, &closes, &err));
    assert_true(closes);
    mst__ending_leave(&nodes[0]);
    mst__ending_leave(&nodes[1]);
}

/* A node that was never counted, because its request was lost: the last one ends the job. */
static void finished_and_not_counted(void **state)
{
    (void)state;
    struct mst__ending nodes[2];
    struct mst__word word;
    bool closes = true;
    begin(&nodes[0], "node0", 0, 2);
    begin(&nodes[1], "node1", 1, 2);
    mst__word_finish(&word, 0, "");
    lossy.loses_request = true;
    assert_fails(mst__ending_say(&nodes[0], &word, &closes, &err), MST_ECONN, "lost");
    assert_ok(mst__ending_say(&nodes[0], &word, &closes, &err));
    assert_false(closes);
    assert_ok(mst__ending_say(&nodes[1], &word, &closes, &err));
    assert_true(closes);
    mst__ending_leave(&nodes[0]);
    mst__ending_leave(&nodes[1]);
}

/* Whether a node that is gone had finished is asked again if the answer was lost. */
static void finished_is_asked_again(void **state)
{
    (void)state;
    struct mst__ending nodes[2];
    struct mst__word word;
    bool closes = true;
    begin(&nodes[0], "node0", 0, 2);
    begin(&nodes[1], "node1", 1, 2);
    mst__word_finish(&word, 0, "");
    assert_ok(mst__ending_say(&nodes[1], &word, &closes, &err));
    lossy.op = MST_OP_CHECK;
    lossy.loses_request = true;
    assert_false(mst__ending_has_finished(&nodes[0], 1));
    assert_true(mst__ending_has_finished(&nodes[0], 1));
    assert_false(mst__ending_has_finished(&nodes[1], 0));
    mst__ending_leave(&nodes[0]);
    mst__ending_leave(&nodes[1]);
}

/* --- failed --- */

/* Two nodes in a round; the budget is one restart in an hour. */
static void begin_two(struct mst__ending nodes[2], int64_t number)
{
    static const char *const names[] = {"node0", "node1"};
    const struct mst__budget budget = {
        .is_limited = true, .restarts_max = 1, .window_us = 3600000000};
    for (int64_t rank = 0; rank < 2; rank++) {
        mst__ending_init(&nodes[rank], names[rank], &budget, -1, open_part, NULL);
        assert_ok(mst__ending_begin(&nodes[rank], number, rank, 2, &err));
    }
}

static void leave_two(struct mst__ending nodes[2])
{
    mst__ending_leave(&nodes[0]);
    mst__ending_leave(&nodes[1]);
}

/* The report of a failure, each time in other words, as a program makes it. */
static struct mst__word failed_at(int64_t time_us)
{
    struct mst__word word;
    struct mst_failure failure;
    mst_failure_init(&failure, sizeof failure);
    failure.exit_status = 7;
    failure.time_us = time_us;
    mst__word_restart(&word, &failure);
    return word;
}

/* How many failures count, of all and in the hour; and the last round that failed. */
static void assert_restarts(int64_t total, int64_t count, int64_t round)
{
    long long numbers[4] = {0};
    struct mst_buffer value = {0};
    assert_ok(mst_store_try_get(root, STR("job/restarts"), PLENTY_MS, &value, &err));
    assert_int_equal(sscanf((const char *)value.data, "%lld %lld %lld %lld", &numbers[0],
                            &numbers[1], &numbers[2], &numbers[3]),
                     4);
    mst_buffer_free(&value);
    assert_int_equal(numbers[0], count);
    assert_int_equal(numbers[2], total);
    assert_int_equal(numbers[3], round);
}

/* However many nodes of a round fail, that is one failure. A node that joins late does not count
 * that of its own round as one before. Whoever has failed does not finish. */
static void a_round_fails_once(void **state)
{
    (void)state;
    struct mst__ending nodes[2];
    struct mst__word word = failed_at(1);
    bool closes = true;
    begin_two(nodes, 1);
    for (size_t i = 0; i < 2; i++) {
        assert_ok(mst__ending_say(&nodes[i], &word, &closes, &err));
        assert_false(closes);
    }
    assert_restarts(1, 1, 1);
    mst__word_finish(&word, 0, "");
    assert_ok(mst__ending_say(&nodes[1], &word, &closes, &err));
    assert_absent(root, "1/muster.work/finished/1");
    assert_ok(mst__ending_begin(&nodes[1], 1, 1, 2, &err));
    assert_int_equal(nodes[1].restarts, 0);
    leave_two(nodes);
    begin_two(nodes, 2);
    assert_int_equal(nodes[0].restarts, 1);
    word = failed_at(2);
    assert_ok(mst__ending_say(&nodes[1], &word, &closes, &err));
    assert_true(closes); /* beyond the budget */
    assert_restarts(2, 2, 2);
    leave_two(nodes);
}

/* An earlier release has written two of the four numbers: how many, and since when. */
static void restarts_of_an_earlier_release(void **state)
{
    (void)state;
    struct mst__ending nodes[2];
    struct mst__word word = failed_at(1);
    char text[60];
    bool closes = true;
    (void)snprintf(text, sizeof text, "1 %lld", (long long)mst__clock_wall_us());
    assert_ok(mst_store_set(root, STR("job/restarts"), mst_bytes_str(text), PLENTY_MS, &err));
    begin_two(nodes, 5);
    assert_int_equal(nodes[0].restarts, 1);
    nodes[0].budget.restarts_max = 3;
    assert_ok(mst__ending_say(&nodes[0], &word, &closes, &err));
    assert_false(closes);
    assert_restarts(2, 2, 5);
    leave_two(nodes);
}

/* A node that reports its failure again after an error has failed once, wherever the error was. */
static void failed_again(void **state)
{
    (void)state;
    lossy.op = MST_OP_COMPARE_SET;
    for (int64_t round = 1; round <= 4; round++) {
        struct mst__ending nodes[2];
        struct mst__word word = failed_at(round);
        bool closes = true;
        begin_two(nodes, round);
        nodes[0].budget.restarts_max = 3;
        lossy.spared = (size_t)round % 2; /* the cause, or the budget */
        lossy.loses = round > 2;
        lossy.loses_request = round <= 2;
        assert_true(mst__ending_say(&nodes[0], &word, &closes, &err) != 0);
        assert_false(closes);
        word = failed_at(round + 100);
        assert_ok(mst__ending_say(&nodes[0], &word, &closes, &err));
        assert_int_equal(closes, round == 4);
        assert_restarts(round, round, round);
        leave_two(nodes);
    }
}

/* Failures before the window do not count in it. */
static void a_new_window(void **state)
{
    (void)state;
    struct mst__ending nodes[2];
    const struct mst__word word = failed_at(1);
    bool closes = true;
    assert_ok(mst_store_set(root, STR("job/restarts"), STR("1 1000000 5 3"), PLENTY_MS, &err));
    begin_two(nodes, 4);
    assert_int_equal(nodes[0].restarts, 5);
    assert_ok(mst__ending_say(&nodes[0], &word, &closes, &err));
    assert_false(closes);
    assert_restarts(6, 1, 4);
    leave_two(nodes);
}

/* The cause of a failure is found also if a node waited before it. */
static void cause_comes_later(void **state)
{
    (void)state;
    struct mst__ending nodes[2];
    const struct mst__word word = failed_at(1);
    struct mst_changes view = {.size = sizeof view, .nodes_waiting = 1};
    bool closes = true;
    begin_two(nodes, 1);
    mst__ending_note(&nodes[0], &view);
    assert_false(view.has_cause);
    assert_ok(mst__ending_say(&nodes[1], &word, &closes, &err));
    view.nodes_waiting = 2;
    mst__ending_note(&nodes[0], &view);
    assert_true(view.has_cause);
    assert_int_equal(view.cause.exit_status, 7);
    leave_two(nodes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(finished_again, start, stop),
        cmocka_unit_test_setup_teardown(last_one_finished_again, start, stop),
        cmocka_unit_test_setup_teardown(finished_and_not_counted, start, stop),
        cmocka_unit_test_setup_teardown(finished_is_asked_again, start, stop),
        cmocka_unit_test_setup_teardown(a_round_fails_once, start, stop),
        cmocka_unit_test_setup_teardown(restarts_of_an_earlier_release, start, stop),
        cmocka_unit_test_setup_teardown(failed_again, start, stop),
        cmocka_unit_test_setup_teardown(a_new_window, start, stop),
        cmocka_unit_test_setup_teardown(cause_comes_later, start, stop),
    };
    return MST_RUN_TESTS(tests);
}
