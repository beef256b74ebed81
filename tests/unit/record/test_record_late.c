/* unit/record/test_record_late.c - the dynamic handler with a gate before its record: a node that
 * reads it late, and the times of its heartbeats. */
#include <stdatomic.h>

#include "handler/settings.h"
#include "record/record_self.h"
#include "unit/record/record_unit.h"

/* A home whose readers wait while it is shut. */
struct gate {
    struct mst__record_home home;
    atomic_bool is_shut;
    atomic_size_t writes; /* that were stored */
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
    int rv = gate->home.ops->set_state(gate->home.self, record, token, may_be_unread, until,
                                       ret_won, ret_stored, reterr);
    atomic_fetch_add(&gate->writes, rv == 0 && *ret_won ? 1 : 0);
    return rv;
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
static struct mst_handler *gated_handler(const struct fixture *f,
                                         struct gate *gate,
                                         int64_t nodes,
                                         const char *options_text)
{
    struct mst_params *params = new_params(f->text, nodes, nodes, "node01", options_text);
    struct mst__record_options options = {.endpoint = &f->endpoint};
    struct mst_handler *handler = NULL;
    assert_ok(mst__dynamic_read(params, &options.dynamic, &err));
    assert_ok(mst__c10d_home_new(server_store(f), "job", "server", PLENTY_MS, &gate->home, &err));
    atomic_init(&gate->is_shut, false);
    atomic_init(&gate->writes, 0);
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
    struct node late = {.handler =
                            gated_handler(f, &gate, 2, "last_call_timeout=100ms,join_timeout=20")};
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

/* --- heartbeats --- */

#define CROWD 12
#define BEATS 12

/* A record of a round with so many nodes, as far as the delay of the next heartbeat needs it. */
static int64_t delay_us(uint64_t seed, size_t nodes, int64_t interval_us)
{
    static struct mst__record record;
    mst__prng_init(&record.prng, seed);
    record.session.state.heartbeats.count = nodes;
    record.dynamic.settings.keep_alive_interval_us = interval_us;
    mst__record_spread(&record);
    return record.spread_us;
}

/* Few nodes do not disturb each other. More of them, which have joined at the same moment, each
 * take another delay: up to 4 ms per node, and a quarter of the interval at most. */
static void delays_of_heartbeats(void **state)
{
    (void)state;
    static const struct {
        size_t nodes;
        int64_t interval_us;
        int64_t most_us; /* 0 = none */
    } rows[] = {
        {1, 5000000, 0},          {4, 5000000, 0},  {5, 5000000, 20000}, {100, 5000000, 400000},
        {1000, 5000000, 1250000}, {100, 1000, 250}, {100, 3, 0},
    };
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        int64_t least_us = INT64_MAX;
        int64_t most_us = 0;
        for (uint64_t seed = 1; seed <= 200; seed++) {
            int64_t us = delay_us(seed, rows[row].nodes, rows[row].interval_us);
            assert_true(us >= 0 && (us < rows[row].most_us || us == 0));
            least_us = us < least_us ? us : least_us;
            most_us = us > most_us ? us : most_us;
        }
        assert_true(least_us <= rows[row].most_us / 10);
        assert_true(most_us >= rows[row].most_us * 9 / 10);
    }
}

/* The delays are waited for: on the average, heartbeats come later than their interval. */
static void heartbeats_are_spread(void **state)
{
    struct fixture *f = *state;
    struct gate gate;
    struct node nodes[CROWD];
    static const char beating[] = BEATING ",join_timeout=20";
    nodes[0] = (struct node){.handler = gated_handler(f, &gate, CROWD, beating)};
    for (size_t i = 1; i < CROWD; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "other%02zu", i);
        nodes[i] = (struct node){.handler = new_handler(f->text, CROWD, CROWD, name, beating)};
    }
    for (size_t i = 0; i < CROWD; i++) {
        node_start(&nodes[i]);
    }
    for (size_t i = 0; i < CROWD; i++) {
        assert_int_equal(node_join(&nodes[i]), 0);
        node_drop_store(&nodes[i]);
    }
    size_t first = atomic_load(&gate.writes);
    int64_t begin_ms = 0;
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (atomic_load(&gate.writes) < first + 1 + BEATS && mst__clock_ms() < deadline_ms) {
        begin_ms =
            atomic_load(&gate.writes) == first + 1 && begin_ms == 0 ? mst__clock_ms() : begin_ms;
        (void)poll(NULL, 0, 1);
    }
    assert_true(atomic_load(&gate.writes) >= first + 1 + BEATS); /* they do come */
    /* 250 ms, and between 0 and 48 ms more. */
    assert_true(mst__clock_ms() - begin_ms >= BEATS * 258);
    for (size_t i = 0; i < CROWD; i++) {
        mst_handler_free(nodes[i].handler);
    }
}

/* --- leaving --- */

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

/* The store that rank 0 serves for its workers ends when it leaves, not only with its handler. */
static void workers_store_ends_with_its_round(void **state)
{
    struct fixture *f = *state;
    struct node node = {.handler = new_handler(f->text, 1, 1, "127.0.0.1", CALM)};
    char url[400];
    struct mst_store *store = NULL;
    node_start(&node);
    assert_int_equal(node_join(&node), 0);
    assert_true(mst_handler_use_agent_store(node.handler));
    (void)snprintf(url, sizeof url, "tcp://%s:%d", node.got.master_addr, node.got.master_port);
    mst_store_close(open_store(url));
    node_drop_store(&node);
    assert_ok(mst_handler_leave(node.handler, &err));
    assert_int_not_equal(mst_store_open(url, NULL, 200, &store, &err), 0);
    mst_handler_free(node.handler);
}

/* A caller that does not want to wait does not get the default instead. */
static void no_time_to_join(void **state)
{
    struct fixture *f = *state;
    struct mst_handler *handler = new_handler(f->text, 2, 2, NULL, CALM ",join_timeout=4");
    struct mst_rendezvous got = {.size = sizeof got};
    int64_t begin_ms = mst__clock_ms();
    assert_int_not_equal(mst_handler_next(handler, 0, &got, &err), 0); /* in one way or another */
    assert_true(mst__clock_ms() - begin_ms < 3500);
    mst_handler_free(handler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_serves_goes_last, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(who_reads_late_is_a_member, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(workers_store_ends_with_its_round, fixture_open,
                                        fixture_close),
        cmocka_unit_test_setup_teardown(no_time_to_join, fixture_open, fixture_close),
        cmocka_unit_test(delays_of_heartbeats),
        cmocka_unit_test_setup_teardown(heartbeats_are_spread, fixture_open, fixture_close),
    };
    return MST_RUN_TESTS(tests);
}
