/* unit/handler/test_ending.c - the end of work without an authority, with a store that loses
 * answers. */
#include "handler/ending.h"

#include "base/err.h"
#include "store/store.h"
#include "unit/store_unit.h"

/* A store that executes everything. If it is told to, it loses the next answer to an ADD, or the
 * ADD itself. */
struct lossy {
    struct mst__storage storage; /* first: the storage is cast to this struct */
    struct mst__storage *inner;
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
    if (command->op == MST_OP_ADD && self->loses_request) {
        self->loses_request = false;
        return mst__fail(reterr, MST_ECONN, 0, "the request is lost");
    }
    int rv = self->inner->ops->execute(self->inner, command, until, result, reterr);
    if (rv == 0 && command->op == MST_OP_ADD && self->loses) {
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
    lossy = (struct lossy){.storage = {.ops = &lossy_ops, .key_root = "", .options = options}};
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
    const char *name = round == MST_ENDING_JOB ? "job" : "round";
    return mst_store_prefix(root, mst_bytes_str(name), ret_store, reterr);
}

static void begin(struct mst__ending *ending, const char *node, int64_t rank, int64_t world)
{
    const struct mst__budget budget = {.is_limited = false};
    mst__ending_init(ending, node, &budget, -1, open_part, NULL);
    assert_ok(mst__ending_begin(ending, 1, rank, world, &err));
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(finished_again, start, stop),
        cmocka_unit_test_setup_teardown(last_one_finished_again, start, stop),
        cmocka_unit_test_setup_teardown(finished_and_not_counted, start, stop),
    };
    return MST_RUN_TESTS(tests);
}
