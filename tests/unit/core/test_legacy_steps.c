/* unit/core/test_legacy_steps.c - the machine of the legacy rendezvous from round to round: what is
 * left of the one before, who has left it, and answers that fail, are late, or lag behind. */
#include "core/legacy_self.h"
#include "unit/core/legacy_unit.h"

#define ME 0xabc
#define OTHER 0xdef
#define STRANGER 0x123

/* --- several nodes --- */

/* Each round has a store of its own, and those of earlier rounds go: but not the last one, which
 * slow members may still read. */
static void each_round_has_a_store(void **state)
{
    (void)state;
    struct world *world = world_new();
    for (int i = 0; i < 3; i++) {
        (void)world_join(world, 3, 3, 0);
    }
    for (int64_t round = 1; round <= 5; round++) {
        world_next(world);
        assert_true(world_run(world, 5 * SECOND_US));
        world_check(world, 3);
        for (int64_t version = 1; version <= round; version++) {
            char name[128];
            (void)snprintf(name, sizeof name, "/p/run_j/rdzv/v_%" PRId64 "/kv", version);
            assert_int_equal(world_find(world, name) != NULL, version >= round - 1);
        }
    }
    world_free(world);
}

/* All who leave at the same moment are known at once, although only one of them says so in the
 * document. */
static void two_leave_together(void **state)
{
    (void)state;
    struct world *world = world_new();
    for (int i = 0; i < 3; i++) {
        (void)world_join(world, 3, 3, 0);
    }
    world_next(world);
    assert_true(world_run(world, 5 * SECOND_US));
    struct actor *other = &world->actors[2];
    actor_begin(world, other, MST_LEGACY_OP_WATCH, 60 * SECOND_US);
    for (size_t i = 0; i < 2; i++) {
        actor_begin(world, &world->actors[i], MST_LEGACY_OP_LEAVE, 5 * SECOND_US);
    }
    assert_true(world_run(world, SECOND_US / 2));
    struct mst__legacy_changes changes;
    mst__legacy_changes(&other->machine, &changes);
    assert_int_equal(changes.lost_count, 2);
    /* They have no key to keep alive, and nothing more to leave. */
    for (size_t i = 0; i < 2; i++) {
        struct actor *leaver = &world->actors[i];
        assert_true(mst__legacy_beat_us(&leaver->machine) == INT64_MAX);
        uint64_t requests = leaver->machine.stats.requests;
        actor_begin(world, leaver, MST_LEGACY_OP_LEAVE, 5 * SECOND_US);
        assert_true(leaver->is_done);
        assert_int_equal(leaver->outcome.result, MST_LEGACY_OK);
        assert_int_equal(leaver->machine.stats.requests, requests);
    }
    world_free(world);
}

/* Peers sleep for a second between two looks, so a shorter last call would shut them out. */
static void last_call_waits_for_peers(void **state)
{
    (void)state;
    struct world *world = world_new();
    struct actor *actor = world_join(world, 1, 2, 0);
    actor_begin(world, actor, MST_LEGACY_OP_NEXT, 60 * SECOND_US);
    assert_false(world_run(world, SECOND_US + SECOND_US / 5));
    assert_int_equal(world_doc(world)->status, MST_LEGACY_JOINABLE);
    assert_true(world_run(world, SECOND_US));
    world_check(world, 1);
    world_free(world);
}

static void other_limits_are_told(void **state)
{
    (void)state;
    struct world *world = world_new();
    for (int i = 0; i < 2; i++) {
        (void)world_join(world, 2, 3, 0);
    }
    world_next(world);
    assert_true(world_run(world, 5 * SECOND_US));
    struct actor *odd = world_join(world, 1, 4, 0);
    actor_begin(world, odd, MST_LEGACY_OP_NEXT, 60 * SECOND_US);
    assert_true(world_run(world, 5 * SECOND_US));
    assert_int_equal(odd->outcome.result, MST_LEGACY_MISMATCH);
    assert_int_equal(odd->outcome.theirs_min, 2);
    assert_int_equal(odd->outcome.theirs_max, 3);
    world_free(world);
}

/* --- one node, step by step --- */

/* One machine, for two nodes, and the time. */
struct bench {
    struct mst__legacy machine;
    struct mst__legacy_effect effect;
    int64_t now_us;
    uint64_t index;
};

static void bench_open(struct bench *bench)
{
    *bench = (struct bench){.now_us = 100 * SECOND_US, .index = 1000};
    struct mst__legacy_options options = {
        .prefix = "p", .run_id = "j", .nonce = ME, .nodes_min = 2, .nodes_max = 2};
    assert_int_equal(mst__legacy_init(&bench->machine, &options), 0);
}

static void bench_close(struct bench *bench)
{
    mst__legacy_close(&bench->machine);
}

static enum mst__legacy_effect_kind bench_feed(struct bench *bench, struct mst__legacy_event event)
{
    bench->effect = script(&bench->machine, event, bench->now_us);
    return bench->effect.kind;
}

static enum mst__legacy_effect_kind bench_event(struct bench *bench,
                                                enum mst__legacy_event_kind kind)
{
    return bench_feed(bench, (struct mst__legacy_event){.kind = kind});
}

static enum mst__legacy_effect_kind bench_begin(struct bench *bench,
                                                enum mst__legacy_operation operation)
{
    return bench_feed(bench,
                      (struct mst__legacy_event){.kind = MST_LEGACY_EVENT_BEGIN,
                                                 .operation = operation,
                                                 .deadline_us = bench->now_us + 60 * SECOND_US});
}

static enum mst__legacy_effect_kind bench_time(struct bench *bench)
{
    bench->now_us = bench->effect.until_us;
    return bench_event(bench, MST_LEGACY_EVENT_TIME);
}

static enum mst__legacy_effect_kind bench_answer(struct bench *bench, int code)
{
    return bench_feed(bench, answer(code, ++bench->index));
}

/* Answer with a document of @me and @other, 0 for a peer, who has confirmed; and of one who waits
 * for the next round, 0 for nobody. */
static enum mst__legacy_effect_kind bench_doc(struct bench *bench,
                                              enum mst__legacy_status status,
                                              int64_t version,
                                              mst__legacy_nonce me,
                                              mst__legacy_nonce other,
                                              mst__legacy_nonce waiting)
{
    char path[64];
    struct mst__legacy_doc doc;
    mst__legacy_doc_init(&doc);
    doc.status = status;
    doc.version = version;
    assert_int_equal(mst__legacy_doc_append(&doc, me), 0);
    assert_int_equal(mst__legacy_doc_append(&doc, other), 0);
    (void)snprintf(path, sizeof path, "/p/run_j/rdzv/v_%" PRId64 "/rank_1", version);
    assert_int_equal(mst__legacy_doc_add_keep_alive(&doc, path), 0);
    if (waiting != 0) {
        assert_int_equal(mst__legacy_nonces_add(&doc.waiting, waiting), 0);
        doc.waiting_count = 1;
    }
    struct mst__legacy_event event = answer(0, ++bench->index);
    event.doc = &doc;
    enum mst__legacy_effect_kind kind = bench_feed(bench, event);
    mst__legacy_doc_close(&doc);
    return kind;
}

/* Answer with the keys of both ranks, and with that of @node if it is not 0. */
static enum mst__legacy_effect_kind bench_list(struct bench *bench, mst__legacy_nonce node)
{
    char name[32] = "muster_";
    struct mst__legacy_entry entries[] = {
        {.name = "rank_0", .has_ttl = true, .ttl_s = 10},
        {.name = "rank_1", .has_ttl = true, .ttl_s = 10},
        {.name = name, .value = mst_bytes_str("2:2"), .has_ttl = true, .ttl_s = 10},
    };
    assert_int_equal(bench->effect.kind, MST_LEGACY_LIST);
    mst__legacy_nonce_format(node, name + strlen(name));
    struct mst__legacy_event event = answer(0, ++bench->index);
    event.entries = entries;
    event.entry_count = node == 0 ? 2 : 3;
    return bench_feed(bench, event);
}

/* Until the round of @version is final, by our own write, and its store is made. */
static enum mst__legacy_effect_kind bench_confirm(struct bench *bench,
                                                  int64_t version,
                                                  mst__legacy_nonce other)
{
    assert_int_equal(bench_begin(bench, MST_LEGACY_OP_NEXT), MST_LEGACY_GET);
    assert_int_equal(bench_doc(bench, MST_LEGACY_FROZEN, version, ME, other, 0), MST_LEGACY_PUT);
    assert_int_equal(bench_answer(bench, 0), MST_LEGACY_LIST); /* the key of our rank is put */
    assert_int_equal(bench_list(bench, 0), MST_LEGACY_PUT);
    assert_int_equal(bench->effect.doc->status, MST_LEGACY_FINAL);
    assert_int_equal(bench_answer(bench, 0), MST_LEGACY_PUT);
    assert_true(bench->effect.is_dir);
    return bench_answer(bench, 0);
}

static void bench_round(struct bench *bench, int64_t version, mst__legacy_nonce other)
{
    assert_int_equal(bench_confirm(bench, version, other), MST_LEGACY_DONE);
    assert_int_equal(bench->effect.outcome.result, MST_LEGACY_OK);
    assert_int_equal(bench->effect.outcome.version, version);
}

/* The store of a round with a peer stays, for the peer; of others, the last but one goes. */
static void stores_of_peers_stay(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct bench bench;
        bench_open(&bench);
        bench_round(&bench, 5, 0);
        bench_round(&bench, 6, OTHER);
        bench_round(&bench, 7, OTHER);
        assert_int_equal(bench_confirm(&bench, 8, OTHER), MST_LEGACY_DELETE);
        assert_string_equal(bench.effect.key, "/p/run_j/rdzv/v_6");
        assert_true(bench.effect.is_dir);
        if (fails == 0) {
            assert_int_equal(bench_answer(&bench, 0), MST_LEGACY_DONE);
        } else {
            /* An etcd that does not let us tidy up does not cost us the round. */
            assert_int_equal(bench_event(&bench, MST_LEGACY_EVENT_FAILED), MST_LEGACY_PAUSE);
            assert_int_equal(bench_time(&bench), MST_LEGACY_GET);
            assert_int_equal(bench_doc(&bench, MST_LEGACY_FINAL, 8, ME, OTHER, 0), MST_LEGACY_DONE);
        }
        assert_int_equal(bench.effect.outcome.result, MST_LEGACY_OK);
        bench_close(&bench);
    }
}

/* Enter a frozen round, confirm, and wait for the other node. */
static void bench_wait(struct bench *bench)
{
    assert_int_equal(bench_begin(bench, MST_LEGACY_OP_NEXT), MST_LEGACY_GET);
    assert_int_equal(bench_doc(bench, MST_LEGACY_FROZEN, 7, ME, OTHER, 0), MST_LEGACY_PUT);
    assert_int_equal(bench_answer(bench, 0), MST_LEGACY_LIST);
    assert_int_equal(bench_event(bench, MST_LEGACY_EVENT_FAILED), MST_LEGACY_PAUSE);
}

/* The time is over, or the caller has another wish, at the moment at which the others complete the
 * round: one who is late has joined, one who has cancelled leaves it at once. */
static void complete_at_the_last_moment(void **state)
{
    (void)state;
    for (int is_cancelled = 0; is_cancelled < 2; is_cancelled++) {
        struct bench bench;
        bench_open(&bench);
        bench_wait(&bench);
        bench.now_us += is_cancelled != 0 ? 0 : 60 * SECOND_US;
        bench.machine.has_written = true; /* it might have been our confirmation that failed */
        assert_int_equal(bench_event(&bench, is_cancelled != 0 ? MST_LEGACY_EVENT_CANCEL
                                                               : MST_LEGACY_EVENT_TIME),
                         MST_LEGACY_GET);
        enum mst__legacy_effect_kind kind = bench_doc(&bench, MST_LEGACY_FINAL, 7, ME, OTHER, 0);
        if (is_cancelled == 0) {
            assert_int_equal(kind, MST_LEGACY_PUT);
            assert_string_equal(bench.effect.key, "/p/run_j/rdzv/v_7/kv");
            assert_int_equal(bench_answer(&bench, 0), MST_LEGACY_DONE);
            assert_int_equal(bench.effect.outcome.result, MST_LEGACY_OK);
            assert_int_equal(bench.effect.outcome.world, 2);
        } else {
            assert_int_equal(kind, MST_LEGACY_DELETE);
            assert_string_equal(bench.effect.key, "/p/run_j/rdzv/v_7/rank_0");
            assert_int_equal(bench_answer(&bench, 0), MST_LEGACY_PUT);
            assert_int_equal(bench.effect.doc->left.count, 1);
            assert_int_equal(bench_answer(&bench, 0), MST_LEGACY_DONE);
            assert_int_equal(bench.effect.outcome.result, MST_LEGACY_CANCELLED);
        }
        bench_close(&bench);
    }
}

static struct mst__legacy_changes bench_look(struct bench *bench, mst__legacy_nonce waiting)
{
    struct mst__legacy_changes changes;
    bench->now_us += 1000;
    assert_int_equal(bench_begin(bench, MST_LEGACY_OP_LOOK), MST_LEGACY_GET);
    assert_int_equal(bench_doc(bench, MST_LEGACY_FINAL, 7, ME, OTHER, waiting), MST_LEGACY_LIST);
    assert_int_equal(bench_list(bench, waiting), MST_LEGACY_DONE);
    mst__legacy_changes(&bench->machine, &changes);
    assert_true(changes.is_known);
    return changes;
}

/* In a full round a stranger waits in vain, but not a member, who has left its place. */
static void members_that_wait(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    bench_round(&bench, 7, OTHER);
    assert_int_equal(bench_look(&bench, 0).waiting_count, 0);
    assert_int_equal(bench_look(&bench, STRANGER).waiting_count, 0);
    assert_int_equal(bench_look(&bench, OTHER).waiting_count, 1);
    /* Who has ended the round waits, too. */
    struct mst__legacy_changes changes;
    assert_int_equal(bench_begin(&bench, MST_LEGACY_OP_LOOK), MST_LEGACY_GET);
    assert_int_equal(bench_answer(&bench, 100), MST_LEGACY_DONE);
    mst__legacy_changes(&bench.machine, &changes);
    assert_true(changes.is_over);
    assert_int_equal(changes.waiting_count, 1);
    bench_close(&bench);
}

/* A member whose key is gone learns it from the answer to its next heartbeat. */
static void a_lost_key_is_noticed(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    bench_round(&bench, 7, OTHER);
    bench.now_us = mst__legacy_beat_us(&bench.machine);
    assert_int_equal(bench_begin(&bench, MST_LEGACY_OP_BEAT), MST_LEGACY_PUT);
    assert_int_equal(bench_answer(&bench, 100), MST_LEGACY_DONE);
    struct mst__legacy_changes changes;
    mst__legacy_changes(&bench.machine, &changes);
    assert_true(changes.expelled);
    assert_true(mst__legacy_beat_us(&bench.machine) == INT64_MAX);
    bench_close(&bench);
}

/* Pauses grow while etcd does not answer, and begin anew when it has. */
static void pauses_begin_anew(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    assert_int_equal(bench_begin(&bench, MST_LEGACY_OP_NEXT), MST_LEGACY_GET);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(bench_event(&bench, MST_LEGACY_EVENT_FAILED), MST_LEGACY_PAUSE);
        assert_true(i < 5 || bench.effect.until_us >= bench.now_us + SECOND_US * 2 / 5);
        assert_int_equal(bench_time(&bench), MST_LEGACY_GET);
    }
    assert_int_equal(bench_doc(&bench, MST_LEGACY_FROZEN, 7, STRANGER, OTHER, 0), MST_LEGACY_WAIT);
    assert_int_equal(bench_event(&bench, MST_LEGACY_EVENT_FAILED), MST_LEGACY_PAUSE);
    assert_true(bench.effect.until_us <= bench.now_us + SECOND_US / 10);
    bench_close(&bench);
}

/* Answer a read like a member of the cluster that lags behind, up to @count times, while that is
 * not believed. Returns how often it was not. */
static int bench_lag(struct bench *bench, int count)
{
    for (int i = 0; i < count; i++) {
        assert_int_equal(bench->effect.kind, MST_LEGACY_GET);
        struct mst__legacy_event late = answer(100, 0);
        late.index = 5;
        if (bench_feed(bench, late) != MST_LEGACY_PAUSE) {
            return i;
        }
        assert_int_equal(bench_time(bench), MST_LEGACY_GET);
    }
    return count;
}

/* Old answers are not believed, however often there are newer ones between them; but if there is
 * none, etcd has lost its data, and has a new beginning. */
static void old_answers(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    assert_int_equal(bench_begin(&bench, MST_LEGACY_OP_NEXT), MST_LEGACY_GET);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(bench_doc(&bench, MST_LEGACY_FROZEN, 7, STRANGER, OTHER, 0),
                         MST_LEGACY_WAIT);
        while (bench.effect.kind == MST_LEGACY_WAIT) {
            assert_true(bench.now_us < 200 * SECOND_US);
            (void)bench_time(&bench);
        }
        assert_int_equal(bench_lag(&bench, 30), 30);
    }
    mst__legacy_abort(&bench.machine);
    assert_int_equal(bench_begin(&bench, MST_LEGACY_OP_LOOK), MST_LEGACY_GET);
    assert_int_equal(bench_lag(&bench, 100), 50);
    assert_int_equal(bench.effect.kind, MST_LEGACY_DONE);
    assert_int_equal(bench_begin(&bench, MST_LEGACY_OP_LOOK), MST_LEGACY_GET);
    assert_int_equal(bench_lag(&bench, 100), 0);
    bench_close(&bench);
}

/* What a later release has written stays in each copy. */
static void unknown_members_stay(void **state)
{
    (void)state;
    struct mst__legacy_doc doc;
    struct mst__legacy_doc copy;
    mst__legacy_doc_init(&doc);
    mst__legacy_doc_init(&copy);
    doc.extra = (struct mst_buffer){(uint8_t *)mst__memdup("{\"a\":1}", 7), 7};
    doc.muster_extra = (struct mst_buffer){(uint8_t *)mst__memdup("{\"b\":2}", 7), 7};
    assert_non_null(doc.extra.data);
    assert_non_null(doc.muster_extra.data);
    assert_int_equal(mst__legacy_doc_copy(&copy, &doc), 0);
    assert_bytes_str(mst_bytes_of(copy.extra.data, copy.extra.size), "{\"a\":1}");
    assert_bytes_str(mst_bytes_of(copy.muster_extra.data, copy.muster_extra.size), "{\"b\":2}");
    mst__legacy_doc_close(&copy);
    mst__legacy_doc_close(&doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_round_has_a_store),    cmocka_unit_test(two_leave_together),
        cmocka_unit_test(last_call_waits_for_peers), cmocka_unit_test(other_limits_are_told),
        cmocka_unit_test(stores_of_peers_stay),      cmocka_unit_test(complete_at_the_last_moment),
        cmocka_unit_test(members_that_wait),         cmocka_unit_test(a_lost_key_is_noticed),
        cmocka_unit_test(pauses_begin_anew),         cmocka_unit_test(old_answers),
        cmocka_unit_test(unknown_members_stay),
    };
    return MST_RUN_TESTS(tests);
}
