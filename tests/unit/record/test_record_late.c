/* unit/record/test_record_late.c - the dynamic handler: a node that reads its record late. */
#include <stdatomic.h>

#include "handler/settings.h"
#include "record/record.h"
#include "unit/record/record_unit.h"

/* A home whose readers wait while it is shut. */
struct gate {
    struct mst__record_home home;
    atomic_bool is_shut;
};

static int gate_get(void *self,
                    struct mst__until until,
                    struct mst__stored *ret_stored,
                    struct mst_err *reterr)
{
    struct gate *gate = self;
    while (atomic_load(&gate->is_shut)) {
        (void)poll(NULL, 0, 1);
    }
    return gate->home.ops->get_state(gate->home.self, until, ret_stored, reterr);
}

static int gate_set(void *self,
                    struct mst_bytes record,
                    const struct mst_bytes *token,
                    bool may_be_unread,
                    struct mst__until until,
                    bool *ret_won,
                    struct mst__stored *ret_stored,
                    struct mst_err *reterr)
{
    struct gate *gate = self;
    return gate->home.ops->set_state(gate->home.self, record, token, may_be_unread, until, ret_won,
                                     ret_stored, reterr);
}

static int gate_store(void *self,
                      struct mst__until until,
                      struct mst_store **ret_store,
                      struct mst_err *reterr)
{
    struct gate *gate = self;
    return gate->home.ops->store(gate->home.self, until, ret_store, reterr);
}

static void gate_close(void *self)
{
    struct gate *gate = self;
    gate->home.ops->close(gate->home.self);
}

static const struct mst__record_home_ops gate_ops = {.get_state = gate_get,
                                                     .set_state = gate_set,
                                                     .store = gate_store,
                                                     .close = gate_close};

/* A node whose record is behind @gate. */
static struct mst_handler *gated_handler(const struct fixture *f, struct gate *gate)
{
    struct mst_params *params =
        new_params(f->text, 2, 2, "node01", "last_call_timeout=100ms,join_timeout=20");
    struct mst__record_options options = {.endpoint = &f->endpoint};
    struct mst_handler *handler = NULL;
    assert_ok(mst__dynamic_read(params, &options.dynamic, &err));
    assert_ok(mst__c10d_home_new(server_store(f), "job", "server", PLENTY_MS, &gate->home, &err));
    atomic_init(&gate->is_shut, false);
    options.home = gate->home;
    options.home.ops = &gate_ops;
    options.home.self = gate;
    assert_ok(mst__record_handler(params, &options, &handler, &err));
    mst_params_free(params);
    return handler;
}

/* The others have finished and are gone before a member reads that the round is complete: it is
 * a member all the same, and the last one to finish. No node takes the place of a finished one,
 * so the member is not told that a node waits. */
static void who_reads_late_is_a_member(void **state)
{
    struct fixture *f = *state;
    struct gate gate;
    struct node late = {.handler = gated_handler(f, &gate)};
    struct node node = {.handler = new_handler(f->text, 2, 2, "node00", CALM)};
    struct node newcomer = {.handler = new_handler(f->text, 2, 2, "node02", CALM)};
    node_start(&late);
    await_record(f, 1, 0);
    atomic_store(&gate.is_shut, true);
    node_start(&node);
    assert_int_equal(node_join(&node), 0);
    assert_ok(mst_handler_finish(node.handler, 0, NULL, &err));
    node_drop_store(&node);
    assert_ok(mst_handler_leave(node.handler, &err));
    mst_handler_free(node.handler);
    await_record(f, 1, 0);
    node_start(&newcomer);
    await_record(f, 1, 1);
    atomic_store(&gate.is_shut, false);
    if (node_join(&late) != 0) {
        fail_msg("%s", late.err.msg);
    }
    assert_int_equal(late.got.round, 0);
    assert_int_equal(late.got.world_size, 2);
    assert_int_equal(late.got.rank, 1);
    assert_int_equal(glance(late.handler).nodes_waiting, 0);
    node_drop_store(&late);
    assert_ok(mst_handler_finish(late.handler, 0, NULL, &err));
    struct mst_changes changes = poll_changes(late.handler);
    assert_true(changes.closed);
    assert_int_equal(changes.outcome, MST_OUTCOME_FINISHED);
    assert_int_equal(node_join(&newcomer), MST_EFINISHED);
    mst_handler_free(newcomer.handler);
    mst_handler_free(late.handler);
}

struct leaving {
    struct mst_handler *handler;
    atomic_bool is_gone;
};

static void *leave_and_free(void *arg)
{
    struct leaving *leaving = arg;
    struct mst_err ignored; /* the test checks what the other node can do */
    (void)mst_handler_leave(leaving->handler, &ignored);
    mst_handler_free(leaving->handler);
    atomic_store(&leaving->is_gone, true);
    return NULL;
}

/* The rendezvous was closed. The node that serves the store stays after leaving the record until
 * the other one has left, too. */
static void who_serves_goes_last(void **state)
{
    struct fixture *f = *state;
    mst__hosted_stop(f->hosted);
    f->hosted = NULL;
    static const char calm[] = "last_call_timeout=100ms";
    struct node host = {.handler = new_handler(f->text, 2, 2, "node00", calm)};
    struct node other = {.handler = new_handler(f->text, 2, 2, "node01", CALM)};
    node_start(&host);
    node_start(&other);
    assert_int_equal(node_join(&host), 0);
    assert_int_equal(node_join(&other), 0);
    node_drop_store(&host);
    node_drop_store(&other);
    assert_ok(mst_handler_set_closed(other.handler, &err));
    while (!poll_changes(host.handler).closed) {
    }
    struct leaving leaving = {.handler = host.handler};
    atomic_init(&leaving.is_gone, false);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, leave_and_free, &leaving), 0);
    await_record(f, 1, 0); /* it has left */
    for (int i = 0; i < 50 && !atomic_load(&leaving.is_gone); i++) {
        (void)poll(NULL, 0, 5);
    }
    assert_ok(mst_handler_leave(other.handler, &err));
    assert_int_equal(pthread_join(thread, NULL), 0);
    mst_handler_free(other.handler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_serves_goes_last, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(who_reads_late_is_a_member, fixture_open, fixture_close),
    };
    return MST_RUN_TESTS(tests);
}
