/* unit/handler/work_suite.c - how work ends, for every handler that can tell. */
#include "unit/handler/work_suite.h"

#include <muster/status.h>

#include "base/clock.h"
#include "base/until.h"
#include "unit/node_unit.h"

#define NODES 3

static int runs;

/* --- nodes --- */

struct job {
    const struct work_suite *suite;
    char run_id[40];
    char options[200];
    struct node nodes[NODES];
};

static struct mst_params *job_params(const struct job *job)
{
    struct mst_params *params = NULL;
    assert_ok(mst_params_new(job->suite->backend, job->run_id, &params, &err));
    assert_ok(mst_params_set_endpoint(params, job->suite->endpoint, &err));
    assert_ok(mst_params_set_nodes(params, NODES, NODES, &err));
    assert_ok(mst_params_set_local_addr(params, "127.0.0.1", &err));
    assert_ok(mst_params_parse(params, job->options, &err));
    return params;
}

static void job_add(const struct job *job, struct node *node)
{
    struct mst_params *params = job_params(job);
    *node = (struct node){.rv = 0};
    assert_ok(mst_handler_new(params, &node->handler, &err));
    mst_params_free(params);
}

/* Wait until a node is known to be a spare. */
static void job_await_spare(const struct job *job)
{
    struct mst_params *params = job_params(job);
    bool has_spare = false;
    for (int tries = 0; !has_spare && tries < 2000; tries++) {
        struct mst_status *status = NULL;
        assert_ok(mst_status_job(params, 5000, &status, &err));
        has_spare = status->spare_count + status->waiting_count > 0;
        mst_status_free(status);
        (void)mst__until_pause(-1, mst__clock_us() + 5000); /* nothing wakes */
    }
    assert_true(has_spare);
    mst_params_free(params);
}

/* All enter the next round. */
static void job_meet(struct job *job)
{
    for (size_t i = 0; i < NODES; i++) {
        node_drop_store(&job->nodes[i]);
        node_start(&job->nodes[i]);
    }
    for (size_t i = 0; i < NODES; i++) {
        if (node_join(&job->nodes[i]) != 0) {
            fail_msg("node %zu: %s", i, job->nodes[i].err.msg);
        }
    }
}

static void job_begin(struct job *job, void **state, const char *options)
{
    *job = (struct job){.suite = *state};
    if (job->suite->endpoint == NULL) {
        MST_SKIP("there is no etcd in $PATH");
    }
    (void)snprintf(job->run_id, sizeof job->run_id, "work-%s-%d", job->suite->backend, runs++);
    (void)snprintf(job->options, sizeof job->options, "%s%s", job->suite->options, options);
}

static void job_open(struct job *job, void **state, const char *options)
{
    job_begin(job, state, options);
    for (size_t i = 0; i < NODES; i++) {
        job_add(job, &job->nodes[i]);
    }
    job_meet(job);
}

static void node_close(struct node *node)
{
    node_drop_store(node);
    mst_handler_free(node->handler);
}

static void job_close(struct job *job)
{
    for (size_t i = 0; i < NODES; i++) {
        node_close(&job->nodes[i]);
    }
}

/* The notices when the rendezvous is closed; no node is lost before. */
static struct mst_changes await_closed(struct mst_handler *handler)
{
    struct mst_changes changes = poll_changes(handler);
    while (!changes.closed) {
        changes = poll_changes(handler);
    }
    assert_int_equal(changes.participants_lost, 0);
    return changes;
}

/* Another round is wanted: the result of mst_handler_next, in @ret_err. */
static int want(struct mst_handler *handler, struct mst_err *ret_err)
{
    struct mst_rendezvous got;
    mst_rendezvous_init(&got, sizeof got);
    int rv = mst_handler_next(handler, -1, &got, ret_err);
    mst_store_close(got.store);
    return rv;
}

static struct mst_failure boom(void)
{
    struct mst_failure failure;
    mst_failure_init(&failure, sizeof failure);
    assert_int_equal(failure.worker, -1);
    failure.worker = 2;
    failure.exit_status = 7;
    failure.text = "boom\nand\x1b[1m more";
    failure.report = "first\n\tsecond \xff\xc3\xa9\n";
    failure.time_us = 1700000000000000;
    return failure;
}

/* @handler had this @rank in the round that it failed in. */
static void assert_boom(const struct mst_changes *changes,
                        const struct mst_handler *handler,
                        int64_t rank)
{
    assert_true(changes->has_cause);
    assert_int_equal(changes->cause.rank, rank);
    assert_int_equal(changes->cause.worker, 2);
    assert_int_equal(changes->cause.exit_status, 7);
    assert_int_equal(changes->cause.signal, 0);
    assert_int_equal(changes->cause.time_us, 1700000000000000);
    assert_string_equal(changes->cause.node, mst_handler_node(handler));
    assert_string_equal(changes->cause.text, "boom and [1m more");
    assert_string_equal(changes->cause.report, "first\n\tsecond  \xc3\xa9\n");
}

/* Another round is wanted, and the notice that it does not come tells how the job has ended. */
static void assert_told_of_boom(struct mst_handler *handler,
                                const struct mst_handler *failed,
                                int64_t rank)
{
    struct mst_notice *notice = NULL;
    assert_ok(mst_handler_begin(handler, -1, &err));
    assert_ok(mst_handler_take(handler, 20000, &notice, &err));
    assert_int_equal(notice->kind, MST_NOTICE_FAILED);
    assert_int_equal(notice->err.code, MST_ECLOSED);
    assert_int_equal(notice->outcome, MST_OUTCOME_FAILED);
    const struct mst_changes changes = {.has_cause = notice->has_cause, .cause = notice->cause};
    assert_boom(&changes, failed, rank);
    mst_notice_free(notice);
}

/* --- tests --- */

static void all_finish(void **state)
{
    struct job job;
    struct node spare;
    struct node late;
    job_open(&job, state, "");
    job_add(&job, &spare);
    job_add(&job, &late);
    node_start(&spare);
    if (job.suite->has_authority) {
        job_await_spare(&job);
    }
    for (size_t i = 0; i < NODES; i++) {
        assert_ok(mst_handler_finish(job.nodes[i].handler, 0, i == 0 ? "well" : NULL, &err));
        bool is_closed = true;
        assert_ok(mst_handler_is_closed(late.handler, &is_closed, &err));
        assert_int_equal(is_closed, i == NODES - 1);
        if (!job.suite->has_authority) { /* the one that has closed it knows that at once */
            assert_ok(mst_handler_is_closed(job.nodes[i].handler, &is_closed, &err));
            assert_int_equal(is_closed, i == NODES - 1);
        }
    }
    for (size_t i = 0; i < NODES; i++) {
        struct mst_changes changes = await_closed(job.nodes[i].handler);
        assert_int_equal(changes.outcome, MST_OUTCOME_FINISHED);
        assert_false(changes.has_cause);
    }
    for (size_t i = 0; i < NODES; i++) {
        assert_int_equal(want(job.nodes[i].handler, &err), MST_EFINISHED);
    }
    assert_int_equal(node_join(&spare), MST_EFINISHED);
    /* A node that no server has welcomed may have meant another job of this id. */
    bool has_server = strcmp(job.suite->backend, "muster") == 0;
    assert_fails(want(late.handler, &err), has_server ? MST_ECLOSED : MST_EFINISHED, "finished");
    node_close(&spare);
    node_close(&late);
    job_close(&job);
}

/* Once is allowed, and the second failure is the end. */
static void one_fails(void **state)
{
    struct job job;
    job_open(&job, state, ",max_restarts=1");
    struct mst_failure failure = boom();
    struct node *failed = &job.nodes[1];
    int64_t round = failed->got.round;
    int64_t rank = failed->got.rank;
    assert_int_equal(failed->got.restarts, 0);
    assert_ok(mst_handler_restart(failed->handler, &failure, &err));
    node_drop_store(failed);
    node_start(failed);
    for (size_t i = 0; i < NODES; i++) {
        if (&job.nodes[i] != failed) {
            struct mst_changes changes = poll_changes(job.nodes[i].handler);
            while (changes.nodes_waiting == 0) {
                changes = poll_changes(job.nodes[i].handler);
            }
            assert_false(changes.closed);
            assert_boom(&changes, failed->handler, rank);
            node_drop_store(&job.nodes[i]);
            node_start(&job.nodes[i]);
        }
    }
    for (size_t i = 0; i < NODES; i++) {
        assert_int_equal(node_join(&job.nodes[i]), 0);
        assert_int_equal(job.nodes[i].got.round, round + 1);
        assert_int_equal(job.nodes[i].got.restarts, 1);
        assert_int_equal(job.nodes[i].got.start,
                         job.suite->has_authority ? MST_START_FAILED : MST_START_UNKNOWN);
    }

    failed = &job.nodes[2];
    rank = failed->got.rank;
    assert_ok(mst_handler_restart(failed->handler, &failure, &err));
    failure.text = "a consequence";
    assert_ok(mst_handler_restart(job.nodes[0].handler, &failure, &err));
    for (size_t i = 0; i < NODES; i++) {
        struct mst_changes changes = await_closed(job.nodes[i].handler);
        assert_int_equal(changes.outcome, MST_OUTCOME_FAILED);
        assert_boom(&changes, failed->handler, rank);
    }
    for (size_t i = 0; i < NODES; i++) {
        assert_fails(want(job.nodes[i].handler, &err), MST_ECLOSED, "exit status 7: boom");
        assert_told_of_boom(job.nodes[i].handler, failed->handler, rank);
    }
    job_close(&job);
}

/* Work that fails beside a node that has said that it leaves uses no restart. */
static void failure_beside_a_leaving_node(void **state)
{
    struct job job;
    job_open(&job, state, ",max_restarts=0");
    struct mst_failure failure = boom();
    int64_t round = job.nodes[0].got.round;
    assert_ok(mst_handler_leaving(job.nodes[2].handler, 60000, &err));
    assert_ok(mst_handler_restart(job.nodes[1].handler, &failure, &err));
    job_meet(&job);
    for (size_t i = 0; i < NODES; i++) {
        assert_int_equal(job.nodes[i].got.round, round + 1);
        assert_int_equal(job.nodes[i].got.restarts, 0);
    }
    /* That was said of the last round. */
    assert_ok(mst_handler_restart(job.nodes[1].handler, &failure, &err));
    assert_int_equal(await_closed(job.nodes[0].handler).outcome, MST_OUTCOME_FAILED);
    job_close(&job);
}

/* A finished node may leave and is not lost; its place is not free for a spare. */
static void finished_one_goes(void **state)
{
    struct job job;
    struct node spare;
    job_open(&job, state, "");
    /* The old protocol has no spares: members give way to every node. */
    bool has_spare = strcmp(job.suite->backend, "etcd") != 0;
    if (has_spare) {
        job_add(&job, &spare);
        node_start(&spare);
        job_await_spare(&job);
    }
    assert_ok(mst_handler_finish(job.nodes[1].handler, 0, "", &err));
    assert_ok(mst_handler_leave(job.nodes[1].handler, &err));
    assert_ok(mst_handler_finish(job.nodes[0].handler, 0, "", &err));
    node_close(&job.nodes[0]);
    job.nodes[0].handler = NULL;
    struct mst_changes changes;
    mst_changes_init(&changes, sizeof changes);
    assert_fails(mst_handler_poll(job.nodes[2].handler, 10 * SHORT_MS, &changes, &err),
                 MST_ETIMEOUT, "");
    assert_int_equal(changes.participants_lost, 0);
    assert_int_equal(changes.nodes_waiting, 0);
    assert_ok(mst_handler_finish(job.nodes[2].handler, 0, "", &err));
    changes = await_closed(job.nodes[2].handler);
    assert_int_equal(changes.outcome, MST_OUTCOME_FINISHED);
    if (has_spare) {
        assert_int_equal(node_join(&spare), MST_EFINISHED);
        node_close(&spare);
    }
    job_close(&job);
}

/* A finished node is still a member when another one fails, and takes part again. */
static void failure_after_finish(void **state)
{
    struct job job;
    job_open(&job, state, "");
    assert_ok(mst_handler_finish(job.nodes[0].handler, 0, "", &err));
    assert_ok(mst_handler_finish(job.nodes[1].handler, 0, "", &err));
    struct mst_failure failure = boom();
    assert_ok(mst_handler_restart(job.nodes[2].handler, &failure, &err));
    job_meet(&job);
    for (size_t i = 0; i < NODES; i++) {
        assert_ok(mst_handler_finish(job.nodes[i].handler, 0, "", &err));
    }
    for (size_t i = 0; i < NODES; i++) {
        assert_int_equal(await_closed(job.nodes[i].handler).outcome, MST_OUTCOME_FINISHED);
    }
    job_close(&job);
}

/* A budget in a window: when that is over there is another one. */
static void one_fails_rarely(void **state)
{
    struct job job;
    job_open(&job, state, ",max_restarts=1/50ms");
    struct mst_failure failure = boom();
    for (int i = 0; i < 3; i++) {
        assert_ok(mst_handler_restart(job.nodes[i].handler, &failure, &err));
        job_meet(&job);
        for (size_t n = 0; n < NODES; n++) { /* of all windows */
            assert_int_equal(job.nodes[n].got.restarts, i + 1);
        }
        (void)poll(NULL, 0, 51);
    }
    job_close(&job);
}

/* With an agent of torch among the nodes: its behaviour when its work is done, and closing. It
 * waits for the others before that. */
static void torch_finishes(void **state)
{
    struct job job;
    const struct work_suite *suite = *state;
    static const char count_key[] = "torchelastic/agent/terminal_state/num_members";
    static const char last_key[] = "torchelastic/agent/terminal_state/last_member";
    for (int is_last = 0; is_last < 2 && !suite->has_authority; is_last++) {
        job_open(&job, state, "");
        struct mst_store *store = job.nodes[2].got.store;
        int64_t count = 0;
        if (is_last == 0) {
            assert_ok(mst_store_add(store, STR(count_key), 1, PLENTY_MS, &count, &err));
        }
        for (size_t i = 0; i < 2; i++) {
            char key[64];
            assert_absent(store, last_key);
            assert_ok(mst_handler_finish(job.nodes[i].handler, 0, "", &err));
            (void)snprintf(key, sizeof key, "torchelastic/agent/terminal_state%d",
                           (int)job.nodes[i].got.rank);
            assert_value(store, key, mst_bytes_str(key + strlen(key) - 1));
            (void)snprintf(key + strlen(key), sizeof key - strlen(key), ".FIN");
            assert_value(store, key, STR("FIN"));
        }
        if (is_last == 1) {
            assert_ok(mst_store_add(store, STR(count_key), 1, PLENTY_MS, &count, &err));
            assert_int_equal(count, NODES);
            assert_ok(mst_store_set(store, STR(last_key), STR("1"), PLENTY_MS, &err));
            assert_ok(mst_handler_set_closed(job.nodes[2].handler, &err));
        }
        for (size_t i = 0; i < 2; i++) {
            assert_int_equal(await_closed(job.nodes[i].handler).outcome, MST_OUTCOME_FINISHED);
        }
        assert_value(store, last_key, STR("1"));
        job_close(&job);
    }
}

static void closed_by_somebody(void **state)
{
    struct job job;
    job_open(&job, state, "");
    assert_ok(mst_handler_finish(job.nodes[0].handler, 0, "", &err));
    assert_ok(mst_handler_set_closed(job.nodes[0].handler, &err));
    for (size_t i = 0; i < NODES; i++) {
        assert_int_equal(await_closed(job.nodes[i].handler).outcome, MST_OUTCOME_CLOSED);
        /* Too late, and no error. */
        assert_ok(mst_handler_finish(job.nodes[i].handler, 0, "", &err));
    }
    for (size_t i = 0; i < NODES; i++) {
        assert_int_equal(want(job.nodes[i].handler, &err), MST_ECLOSED);
    }
    job_close(&job);
}

static void without_a_round(void **state)
{
    struct job job;
    struct node node;
    struct mst_failure failure = boom();
    job_begin(&job, state, ",max_restarts=3/1h");
    job_add(&job, &node);
    assert_fails(mst_handler_finish(node.handler, 0, NULL, &err), MST_EINVAL, "no round");
    assert_fails(mst_handler_restart(node.handler, &failure, &err), MST_EINVAL, "no round");
    node_close(&node);
}

void work_suite_add(const struct work_suite *suite, struct CMUnitTest ret_tests[WORK_SUITE_TESTS])
{
    void *state = (void *)(uintptr_t)suite;
    const struct CMUnitTest tests[WORK_SUITE_TESTS] = {
        cmocka_unit_test_prestate(all_finish, state),
        cmocka_unit_test_prestate(one_fails, state),
        cmocka_unit_test_prestate(failure_beside_a_leaving_node, state),
        cmocka_unit_test_prestate(finished_one_goes, state),
        cmocka_unit_test_prestate(failure_after_finish, state),
        cmocka_unit_test_prestate(one_fails_rarely, state),
        cmocka_unit_test_prestate(torch_finishes, state),
        cmocka_unit_test_prestate(closed_by_somebody, state),
        cmocka_unit_test_prestate(without_a_round, state),
    };
    memcpy(ret_tests, tests, sizeof tests);
}
