/* unit/core/test_authority.c - the authority machine: the effects of each event. */
#include "unit/core/authority_unit.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* --- sealing --- */

static void sealed_at_max(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 3);
    run_join(&run, "node10");
    run_join(&run, "node2");
    assert_told(&run, "");
    run_join(&run, "node1");
    assert_told(&run, "sealed 7/1 of 3 at node1 node1=0 node2=1 node10=2; ");
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RUNNING);
    run_close(&run);
}

static void sealed_after_last_call(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 4);
    run_join(&run, "a");
    run_pass(&run, 100 * SECOND_US, true);
    assert_told(&run, "");
    run_join(&run, "b");
    run_pass(&run, 29 * SECOND_US, true);
    run_join(&run, "c");
    assert_told(&run, "");
    run_pass(&run, SECOND_US, true);
    assert_told(&run, "sealed 7/1 of 3 at a a=0 b=1 c=2; ");
    run_close(&run);
}

static void last_call_starts_anew_below_min(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 4);
    run_join(&run, "a");
    run_join(&run, "b");
    run_pass(&run, 20 * SECOND_US, true);
    run_leave(&run, "b");
    run_pass(&run, 20 * SECOND_US, true);
    run_join(&run, "c");
    run_pass(&run, 29 * SECOND_US, true);
    assert_told(&run, "");
    run_pass(&run, SECOND_US, true);
    assert_told(&run, "sealed 7/1 of 2 at a a=0 c=1; ");
    run_close(&run);
}

/* A connection that is cut for a moment does not begin the last call anew, nor is it counted. */
static void absent_is_not_sealed(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 4);
    run_join(&run, "a");
    run_join(&run, "b");
    run_pass(&run, 29900000, true);
    run_cut(&run, "b");
    run_pass(&run, 500000, true);
    assert_told(&run, "");
    run_join(&run, "b");
    assert_told(&run, "sealed 7/1 of 2 at a a=0 b=1; ");
    run_close(&run);
}

/* Nor is a round sealed early with all others back: it may return in a moment. */
static void absent_is_waited_for(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 5);
    run_join(&run, "a");
    run_join(&run, "b");
    run_join(&run, "c");
    run_join(&run, "d");
    run_pass(&run, 30 * SECOND_US, true);
    assert_told(&run, "sealed 7/1 of 4 at a a=0 b=1 c=2 d=3; ");
    run_lose(&run, "d");
    assert_told(&run, "lost d=3; reopened 2 lost d; ");
    run_back(&run, "a");
    run_cut(&run, "a");
    run_back(&run, "b");
    run_back(&run, "c");
    assert_told(&run, "");
    run_join(&run, "a");
    assert_told(&run, "sealed 7/2 of 3 at a a=0 b=1 c=2; ");
    run_close(&run);
}

/* --- spares, late ones --- */

static void surplus_is_spare(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    run_join(&run, "a");
    run_join(&run, "b");
    run_join(&run, "c");
    run_join(&run, "d");
    assert_told(&run, "sealed 7/1 of 2 at a a=0 b=1; spare c; spare d; ");
    /* A spare takes the place of a lost node at once, without a last call. */
    run_lose(&run, "a");
    assert_told(&run, "lost a=0; reopened 2 lost a; ");
    run_back(&run, "b");
    assert_told(&run, "sealed 7/2 of 2 at c c=0 b=1; spare d; ");
    run_close(&run);
}

/* A member of the last round goes before a spare, even if the spare has waited longer. */
static void previous_before_spare(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    run_join(&run, "b");
    run_join(&run, "c");
    run_join(&run, "a");
    assert_told(&run, "sealed 7/1 of 2 at b b=0 c=1; spare a; ");
    run_back(&run, "b");
    assert_told(&run, "reopened 2 returned b; ");
    run_back(&run, "c");
    assert_told(&run, "sealed 7/2 of 2 at b b=0 c=1; spare a; ");
    /* Also as a new process, if it is here in time. */
    struct mst__announcement again = run_announcement(&run, "c");
    again.incarnation = 2;
    assert_int_equal(run_say(&run, &again), 0);
    assert_told(&run, "expelled c; lost c=1; reopened 3 lost c; ");
    run_back(&run, "b");
    assert_told(&run, "sealed 7/3 of 2 at b b=0 c=1; spare a; ");
    run_close(&run);
}

static void late_is_queued(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 4);
    run_join(&run, "a");
    run_join(&run, "b");
    run_pass(&run, 30 * SECOND_US, true);
    assert_told(&run, "sealed 7/1 of 2 at a a=0 b=1; ");
    run_join(&run, "c");
    assert_told(&run, "queued c; waiting 1; ");
    /* The number is reported at most once a second. */
    run_join(&run, "d");
    run_join(&run, "e");
    assert_told(&run, "queued d; queued e; ");
    run_pass(&run, SECOND_US, true);
    assert_told(&run, "waiting 3; ");
    run_leave(&run, "e");
    run_leave(&run, "d");
    run_leave(&run, "c");
    assert_told(&run, "waiting 0; ");
    run_join(&run, "c");
    assert_told(&run, "queued c; waiting 1; ");
    /* No seal before all have come back. */
    run_back(&run, "b");
    assert_told(&run, "reopened 2 returned b; ");
    run_pass(&run, 1000 * SECOND_US, true);
    assert_told(&run, "");
    run_back(&run, "a");
    assert_told(&run, "sealed 7/2 of 3 at a a=0 b=1 c=2; ");
    run_close(&run);
}

/* --- loss --- */

static void silence_is_loss(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 3);
    run_join(&run, "a");
    run_join(&run, "b");
    run_join(&run, "c");
    assert_told(&run, "sealed 7/1 of 3 at a a=0 b=1 c=2; ");
    run.now_us += 10 * SECOND_US;
    mst__authority_id a = run_id(&run, "a");
    assert_int_equal(step_heard(&run.authority, a, run.now_us), 0);
    run_pass(&run, 5 * SECOND_US - 1, false);
    assert_told(&run, "");
    run_pass(&run, 1, false);
    assert_told(&run, "expelled b; expelled c; lost b=1 c=2; reopened 2 lost b; ");
    assert_int_equal(run.authority.held_count, 1);
    run_back(&run, "a");
    assert_told(&run, "sealed 7/2 of 1 at a a=0; ");
    run_close(&run);
}

static void heartbeat_of_the_lost(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 1);
    run_join(&run, "a");
    mst__authority_id id = run_id(&run, "a");
    run_pass(&run, 15 * SECOND_US, false);
    assert_told(&run, "sealed 7/1 of 1 at a a=0; expelled a; ");
    assert_false(run.authority.settings.is_set); /* nobody is left who asks for them */
    assert_int_equal(step_heard(&run.authority, id, run.now_us), MST_ENOTFOUND);
    assert_int_equal(step_session(&run.authority, MST_AUTHORITY_EVENT_LEFT, id, run.now_us),
                     MST_ENOTFOUND);
    assert_int_equal(step_session(&run.authority, MST_AUTHORITY_EVENT_DEAD, id, run.now_us),
                     MST_ENOTFOUND);
    /* The same process may come again, and its old id stays that of a session that is over. */
    run_join(&run, "a");
    assert_told(&run, "sealed 7/2 of 1 at a a=0; ");
    assert_true(id != run_id(&run, "a"));
    assert_int_equal(step_heard(&run.authority, id, run.now_us), MST_ENOTFOUND);
    run_close(&run);
}

static void grace(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    run_join(&run, "a");
    run_join(&run, "b");
    assert_told(&run, "sealed 7/1 of 2 at a a=0 b=1; ");
    run_cut(&run, "b");
    assert_int_equal(step_heard(&run.authority, run_id(&run, "b"), run.now_us), MST_EINVAL);
    run_pass(&run, 900000, true);
    run_join(&run, "b");
    run_pass(&run, 10 * SECOND_US, true);
    assert_told(&run, "sealed 7/1 of 2 at a b=1; ");
    const struct mst__authority_member *b = mst__authority_get(&run.authority, run_id(&run, "b"));
    assert_int_equal(mst__authority_standing(&run.authority, b), MST_STANDING_MEMBER);
    run_cut(&run, "b");
    run_pass(&run, 999999, true);
    assert_told(&run, "");
    run_pass(&run, 1, true);
    assert_told(&run, "lost b=1; reopened 2 lost b; ");
    run_close(&run);
}

/* The end of a connection that has been followed by another one ends nothing. */
static void old_connection(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 1);
    run_join(&run, "a");
    assert_told(&run, "sealed 7/1 of 1 at a a=0; ");
    mst__authority_id id = run_id(&run, "a");
    const void *first = mst__authority_get(&run.authority, id)->driver;
    char second[] = "a, by another way";
    struct mst__announcement said = run_announcement(&run, "a");
    said.driver = second;
    assert_int_equal(run_say(&run, &said), 0);
    assert_true(run_id(&run, "a") == id);
    assert_int_equal(step_cut(&run.authority, id, first, run.now_us), MST_ENOTFOUND);
    run_pass(&run, 10 * SECOND_US, true);
    assert_told(&run, "sealed 7/1 of 1 at a a, by another way=0; ");
    run_close(&run);
}

static void not_back_in_time(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 3);
    run.authority.options.return_us = 60 * SECOND_US;
    run_join(&run, "a");
    run_join(&run, "b");
    run_join(&run, "c");
    run_lose(&run, "c");
    assert_told(&run, "sealed 7/1 of 3 at a a=0 b=1 c=2; lost c=2; reopened 2 lost c; ");
    run_back(&run, "a");
    run_pass(&run, 60 * SECOND_US - 1, true);
    assert_told(&run, "");
    run_pass(&run, 1, true);
    assert_told(&run, "sealed 7/2 of 1 at a a=0; expelled b; ");
    run_close(&run);
}

/* --- coming back --- */

static void leaving_is_not_closing(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    run_join(&run, "a");
    run_join(&run, "b");
    run_leave(&run, "a");
    assert_told(&run, "sealed 7/1 of 2 at a a=0 b=1; reopened 2 left a; ");
    run_back(&run, "b");
    run_pass(&run, 100 * SECOND_US, true);
    assert_told(&run, "");
    struct mst__announcement again = run_announcement(&run, "a");
    again.incarnation = 2;
    assert_int_equal(run_say(&run, &again), 0);
    assert_told(&run, "sealed 7/2 of 2 at a a=0 b=1; ");
    run_close(&run);
}

static void newer_replaces_ghost(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    run_join(&run, "a");
    run_join(&run, "b");
    assert_told(&run, "sealed 7/1 of 2 at a a=0 b=1; ");
    struct mst__announcement again = run_announcement(&run, "a");
    again.incarnation = 2;
    again.session = 2;
    char second[] = "a, again";
    again.driver = second;
    assert_int_equal(run_say(&run, &again), 0);
    assert_told(&run, "expelled a; lost a=0; reopened 2 lost a; ");
    run_back(&run, "b");
    assert_told(&run, "sealed 7/2 of 2 at a a=0 b=1; ");
    again.incarnation = 1;
    assert_int_equal(run_say(&run, &again), MST_EEXPELLED);
    assert_int_equal(run.refusal, MST_REFUSAL_STALE);
    assert_string_equal(run.err.msg, "replaced by a newer process of node 'a', at 'a'; nodes need "
                                     "different names");
    again.incarnation = 2;
    again.session = 9;
    assert_int_equal(run_say(&run, &again), MST_EEXPELLED);
    assert_int_equal(run.refusal, MST_REFUSAL_TWIN);
    assert_told(&run, "");
    run_close(&run);
}

/* A process that is replaced twice before the effects are taken is told for each session. */
static void replaced_twice(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    struct mst__announcement said = run_announcement(&run, "a");
    char drivers[][3] = {"a1", "a2", "a3"};
    for (size_t i = 0; i < COUNT(drivers); i++) {
        said.incarnation = i + 1;
        said.session = i + 1;
        said.driver = drivers[i];
        assert_int_equal(step_announce(&run.authority, &said, run.now_us, &run.err), 0);
        mst__authority_id id = run.authority.announced;
        if (i == 1) {
            /* Its connection is closed before it can be told. */
            assert_int_equal(step_cut(&run.authority, id, drivers[1], run.now_us), 0);
        }
    }
    assert_told(&run, "expelled a1; ");
    assert_int_equal(run.authority.used_count, 1);
    run_close(&run);
}

/* A lost member that comes back before the next seal has its rank again. */
static void lost_keeps_rank(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 3, 3);
    run_join(&run, "a");
    run_join(&run, "b");
    run_join(&run, "c");
    run_lose(&run, "a");
    run_lose(&run, "b");
    run_back(&run, "c");
    assert_told(&run, "sealed 7/1 of 3 at a a=0 b=1 c=2; lost a=0; reopened 2 lost a; lost b=1; ");
    run_join(&run, "b");
    run_join(&run, "z");
    assert_told(&run, "sealed 7/2 of 3 at z z=0 b=1 c=2; ");
    run_close(&run);
}

/* The last call ends early when all of the last round are back, even as new processes. */
static void last_call_ends_early(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 8);
    run_join(&run, "a");
    run_join(&run, "b");
    run_join(&run, "c");
    run_pass(&run, 30 * SECOND_US, true);
    run_lose(&run, "a");
    run_lose(&run, "b");
    run_back(&run, "c");
    assert_told(&run, "sealed 7/1 of 3 at a a=0 b=1 c=2; lost a=0; reopened 2 lost a; lost b=1; ");
    /* One process alone is not enough, so the others are waited for. */
    run_join(&run, "a");
    run_pass(&run, 10 * SECOND_US, true);
    assert_told(&run, "");
    run_join(&run, "b");
    assert_told(&run, "sealed 7/2 of 3 at a a=0 b=1 c=2; ");
    /* If the rest is enough, it goes on at once. */
    run_lose(&run, "a");
    run_back(&run, "b");
    assert_told(&run, "lost a=0; reopened 3 lost a; ");
    run_back(&run, "c");
    assert_told(&run, "sealed 7/3 of 2 at c c=0 b=1; ");
    run_close(&run);
}

/* Messages that come twice, or that were sent before the node knew, change nothing. */
static void twice(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    run_join(&run, "a");
    run_join(&run, "a");
    run_join(&run, "b");
    assert_told(&run, "sealed 7/1 of 2 at a a=0 b=1; ");
    run_join(&run, "a");
    assert_told(&run, "sealed 7/1 of 2 at a a=0; ");
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RUNNING);
    struct mst__announcement back = run_announcement(&run, "a");
    back.claim = run_claim(&run, "a");
    run_back(&run, "b");
    assert_int_equal(run_say(&run, &back), 0);
    assert_told(&run, "reopened 2 returned b; sealed 7/2 of 2 at a a=0 b=1; ");
    assert_int_equal(run_say(&run, &back), 0);
    assert_told(&run, "sealed 7/2 of 2 at a a=0; ");
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RUNNING);
    run_close(&run);
}

/* A message from before the node heard of a round does not count as coming back from it, even if
 * the round is over by then: it may be in it. It is told the round, and that it is over. */
static void late_word_is_no_return(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 3);
    run_join(&run, "a");
    run_join(&run, "b");
    run_join(&run, "c");
    assert_told(&run, "sealed 7/1 of 3 at a a=0 b=1 c=2; ");
    run_lose(&run, "c");
    assert_told(&run, "lost c=2; reopened 2 lost c; ");
    run_join(&run, "a"); /* sent before it knew */
    assert_told(&run, "sealed 7/1 of 3 at a a=0; reopened 2 lost a; ");
    run_back(&run, "b");
    assert_told(&run, "");
    assert_int_equal(run.authority.phase, MST_AUTHORITY_OPEN);
    assert_int_equal(run.authority.held_count, 1);
    run_back(&run, "a");
    assert_told(&run, "sealed 7/2 of 2 at a a=0 b=1; ");
    run_close(&run);
}

/* --- refusals --- */

/* An old word of a node may be all that an authority has, which then seals a round with a number
 * that the node has left behind. It would not take it: it has come back from it. */
static void knows_a_later_round(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 1);
    run_join(&run, "a");
    assert_told(&run, "sealed 7/1 of 1 at a a=0; ");
    struct mst__announcement said = run_announcement(&run, "a");
    said.claim = (struct mst__claim){.epoch = 6, .round = 4, .world = 1, .rank = 0};
    assert_int_equal(run_say(&run, &said), 0);
    assert_told(&run, "sealed 7/5 of 1 at a a=0; ");
    said.claim = (struct mst__claim){.epoch = 6, .round = 5, .world = 1, .rank = 0};
    assert_int_equal(run_say(&run, &said), 0); /* of the same number, and another one */
    assert_told(&run, "sealed 7/6 of 1 at a a=0; ");
    run_close(&run);
}

static void conflicts(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 4);
    run_join(&run, "a");
    static const struct {
        uint32_t min, max;
        int64_t last_call_us;
        const char *rank_by;
        const char *sentence;
    } rows[] = {
        {1, 4, 30 * SECOND_US, "",
         "node 'b' asks for 1 to 4 nodes, this run has 2 to 4, as node 'a' said; all have to "
         "agree"},
        {2, 5, 30 * SECOND_US, "",
         "node 'b' asks for 2 to 5 nodes, this run has 2 to 4, as node 'a' said; all have to "
         "agree"},
        {2, 4, 1500000, "",
         "node 'b' asks for a last call of 1500 ms, this run has 30000 ms, as node 'a' said; all "
         "have to agree"},
        {2, 4, 30 * SECOND_US, "rack",
         "node 'b' wants ranks by 'rack', this run has '', as node 'a' said; all have to agree"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct mst__announcement said = run_announcement(&run, "b");
        said.nodes_min = rows[i].min;
        said.nodes_max = rows[i].max;
        said.last_call_us = rows[i].last_call_us;
        said.rank_by = mst_bytes_str(rows[i].rank_by);
        assert_int_equal(run_say(&run, &said), MST_EINVAL);
        assert_int_equal(run.refusal, MST_REFUSAL_SETTINGS);
        assert_string_equal(run.err.msg, rows[i].sentence);
    }
    assert_int_equal(run.authority.living_count, 1);
    /* A node that is alone may change its settings. */
    run.nodes_min = 1;
    run.nodes_max = 1;
    run_join(&run, "a");
    assert_told(&run, "sealed 7/1 of 1 at a a=0; ");
    run_close(&run);
}

static void malformed(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 4);
    char long_text[1024];
    memset(long_text, 'x', sizeof long_text);
    struct mst__label labels[MST_AUTHORITY_LABELS_MAX + 1];
    for (size_t i = 0; i < COUNT(labels); i++) {
        labels[i] = (struct mst__label){mst_bytes_str("k"), mst_bytes_of(long_text, 61)};
    }
    for (int i = 0; i < 14; i++) {
        struct mst__announcement said = run_announcement(&run, "a");
        int wanted = MST_EINVAL;
        switch (i) {
            case 0:
                said.name = mst_bytes_of("", 0);
                break;
            case 1:
                said.name = mst_bytes_of(long_text, MST_AUTHORITY_NAME_SIZE_MAX + 1);
                break;
            case 2:
                said.name = mst_bytes_str("a\nb");
                break;
            case 3:
                said.address = mst_bytes_of(long_text, MST_AUTHORITY_ADDRESS_SIZE_MAX + 1);
                break;
            case 4:
                said.rank_by = mst_bytes_of(long_text, MST_AUTHORITY_RANK_BY_SIZE_MAX + 1);
                break;
            case 5:
                said.labels = labels;
                said.labels_count = COUNT(labels);
                wanted = MST_ELIMIT;
                break;
            case 6:
                said.labels = labels;
                said.labels_count =
                    COUNT(labels) - 1; /* each is fine, together they are too long */
                wanted = MST_ELIMIT;
                break;
            case 7:
                said.nodes_min = 0;
                break;
            case 8:
                said.nodes_max = 1;
                break;
            case 9:
                said.last_call_us = -1;
                break;
            case 10:
                said.claim = (struct mst__claim){.epoch = 3, .round = 1, .world = 2, .rank = 2};
                break;
            case 11:
                said.claim = (struct mst__claim){.epoch = 3, .round = -1, .world = 2, .rank = 1};
                break;
            case 12:
                said.claim = (struct mst__claim){
                    .epoch = 3, .round = INT64_MAX, .world = 2, .rank = 1, .holds = true};
                break;
            default:
                said.claim = (struct mst__claim){.holds = true};
                break;
        }
        assert_int_equal(run_say(&run, &said), wanted);
        assert_int_equal(run.refusal, MST_REFUSAL_MALFORMED);
        assert_true(strlen(run.err.msg) > 0);
    }
    assert_int_equal(run.authority.used_count, 0);
    run_close(&run);
}

static void full(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 3);
    run.authority.options.members_max = 3;
    run_join(&run, "a");
    run_join(&run, "b");
    run_join(&run, "c");
    struct mst__announcement said = run_announcement(&run, "d");
    assert_int_equal(run_say(&run, &said), MST_ELIMIT);
    assert_int_equal(run.refusal, MST_REFUSAL_FULL);
    /* A ghost does not count. */
    run_lose(&run, "a");
    run_join(&run, "d");
    run_close(&run);
}

static void closed_for_good(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    run_join(&run, "a");
    run_join(&run, "b");
    run_join(&run, "c");
    assert_told(&run, "sealed 7/1 of 2 at a a=0 b=1; spare c; ");
    assert_int_equal(step_shut(&run.authority, "training is done", "a", run.now_us), 0);
    assert_told(&run, "closed by a: training is done; ");
    const struct mst__authority_member *c = mst__authority_get(&run.authority, run_id(&run, "c"));
    assert_int_equal(mst__authority_standing(&run.authority, c), MST_STANDING_GATHERED);
    assert_int_equal(step_shut(&run.authority, "again", "b", run.now_us), MST_ECLOSED);
    struct mst__announcement said = run_announcement(&run, "d");
    assert_int_equal(run_say(&run, &said), MST_ECLOSED);
    assert_int_equal(run.refusal, MST_REFUSAL_CLOSED);
    assert_string_equal(run.err.msg, "the run was closed by 'a': training is done");
    run_lose(&run, "a");
    run_leave(&run, "c");
    run_pass(&run, 100 * SECOND_US, false);
    assert_told(&run, "expelled b; ");
    assert_int_equal(run.authority.phase, MST_AUTHORITY_CLOSED);
    assert_int_equal(run.authority.living_count, 0);
    run_close(&run);
}

/* --- a restart of the authority --- */

static int run_hold(struct unit_run *run, const char *name, struct mst__claim claim)
{
    struct mst__announcement said = run_announcement(run, name);
    said.claim = claim;
    said.claim.holds = true;
    return run_say(run, &said);
}

static const struct mst__claim claim_first = {.epoch = 7, .round = 4, .world = 3, .rank = 0};
static const struct mst__claim claim_second = {.epoch = 7, .round = 4, .world = 3, .rank = 1};
static const struct mst__claim claim_third = {.epoch = 7, .round = 4, .world = 3, .rank = 2};

static void restart_disturbs_nobody(void **state)
{
    (void)state;
    struct unit_run run;
    run_init_epoch(&run, 2, 3, 8);
    assert_int_equal(run_hold(&run, "b", claim_second), 0);
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RECLAIMING);
    run_join(&run, "new");
    run_pass(&run, 4 * SECOND_US, true);
    assert_int_equal(run_hold(&run, "a", claim_first), 0);
    assert_told(&run, "spare new; ");
    assert_int_equal(run_hold(&run, "c", claim_third), 0);
    run_pass(&run, 100 * SECOND_US, true);
    assert_told(&run, "");
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RUNNING);
    /* The next round is one more than was claimed, of the new epoch, and ranks stay. */
    run_lose(&run, "a");
    run_back(&run, "c");
    run_back(&run, "b");
    assert_told(&run, "lost a=0; reopened 5 lost a; sealed 8/5 of 3 at new new=0 b=1 c=2; ");
    run_close(&run);
}

static void restart_misses_one(void **state)
{
    (void)state;
    struct unit_run run;
    run_init_epoch(&run, 2, 3, 8);
    assert_int_equal(run_hold(&run, "b", claim_second), 0);
    assert_int_equal(run_hold(&run, "a", claim_first), 0);
    run_pass(&run, 5 * SECOND_US - 1, true);
    assert_told(&run, "");
    run_pass(&run, 1, true);
    assert_told(&run, "lost ?=2; reopened 5 lost ?; ");
    /* Too late to hold it, not too late for its rank. */
    assert_int_equal(run_hold(&run, "c", claim_third), MST_EEXPELLED);
    assert_int_equal(run.refusal, MST_REFUSAL_CLAIM);
    run_back(&run, "a");
    struct mst__announcement late = run_announcement(&run, "c");
    late.claim = claim_third;
    assert_int_equal(run_say(&run, &late), 0);
    run_back(&run, "b");
    assert_told(&run, "sealed 8/5 of 3 at a a=0 b=1 c=2; ");
    run_close(&run);
}

/* One came back while there was no authority: the others are told, and waited for. */
static void restart_while_coming_back(void **state)
{
    (void)state;
    struct unit_run run;
    run_init_epoch(&run, 1, 3, 8);
    struct mst__announcement said = run_announcement(&run, "b");
    said.claim = claim_second;
    assert_int_equal(run_say(&run, &said), 0);
    assert_told(&run, "");
    assert_int_equal(run.authority.phase, MST_AUTHORITY_OPEN);
    assert_int_equal(run_hold(&run, "a", claim_first), 0);
    assert_told(&run, "reopened 5 returned b; ");
    run_back(&run, "a");
    assert_told(&run, "");
    run_pass(&run, 5 * SECOND_US, true);
    assert_told(&run, "sealed 8/5 of 2 at a a=0 b=1; ");
    run_close(&run);
    /* Also one that comes when the others have been told. */
    run_init_epoch(&run, 1, 3, 8);
    assert_int_equal(run_hold(&run, "a", claim_first), 0);
    assert_int_equal(run_say(&run, &said), 0);
    assert_told(&run, "reopened 5 returned b; ");
    assert_int_equal(run_hold(&run, "c", claim_third), 0);
    assert_told(&run, "reopened 5 returned c; ");
    run_close(&run);
}

static void claims_of_several_rounds(void **state)
{
    (void)state;
    struct unit_run run;
    run_init_epoch(&run, 1, 3, 9);
    struct mst__claim old = claim_first;
    old.round = 3;
    assert_int_equal(run_hold(&run, "paused", old), 0);
    assert_int_equal(run_hold(&run, "b", claim_second), 0);
    assert_told(&run, "expelled paused; ");
    /* The same number of an earlier epoch, the same place, another size: all refused. */
    old = claim_first;
    old.epoch = 6;
    assert_int_equal(run_hold(&run, "x", old), MST_EEXPELLED);
    assert_int_equal(run_hold(&run, "x", claim_second), MST_EEXPELLED);
    old = claim_first;
    old.world = 2;
    assert_int_equal(run_hold(&run, "x", old), MST_EEXPELLED);
    assert_int_equal(run.refusal, MST_REFUSAL_CLAIM);
    assert_string_equal(run.err.msg,
                        "node 'x' holds rank 0 of 2 in round 4, but it has another size (round 4, "
                        "3 nodes): it has to announce itself for the next one");
    /* A later epoch of the same number wins. */
    struct mst__claim later = claim_first;
    later.epoch = 8;
    later.world = 1;
    assert_int_equal(run_hold(&run, "y", later), 0);
    assert_told(&run, "expelled b; ");
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RUNNING);
    /* A round that this authority has sealed is not given up for a claim, but the next number is
     * above the claim. */
    run_back(&run, "y");
    run_pass(&run, 30 * SECOND_US, true);
    assert_told(&run, "sealed 9/5 of 1 at y y=0; ");
    later.round = 11;
    assert_int_equal(run_hold(&run, "z", later), MST_EEXPELLED);
    struct mst__announcement said = run_announcement(&run, "z");
    said.claim = later;
    assert_int_equal(run_say(&run, &said), 0);
    assert_told(&run, "queued z; waiting 1; ");
    run_back(&run, "y");
    assert_told(&run, "sealed 9/12 of 2 at y y=0 z=1; ");
    run_close(&run);
}

/* This authority knows its own seals. */
static void claim_of_what_never_was(void **state)
{
    (void)state;
    struct unit_run run;
    run_init_epoch(&run, 1, 2, 7);
    assert_int_equal(run_hold(&run, "a", claim_first), MST_EEXPELLED);
    assert_int_equal(run.refusal, MST_REFUSAL_CLAIM);
    struct mst__announcement said = run_announcement(&run, "a");
    said.claim = claim_first;
    assert_int_equal(run_say(&run, &said), 0);
    assert_int_equal(run.authority.phase, MST_AUTHORITY_OPEN);
    run_pass(&run, 30 * SECOND_US, true);
    assert_told(&run, "sealed 7/1 of 1 at a a=0; ");
    run_close(&run);
}

/* A spare knows the round, so it does not found another one beside it. */
/* A round of another size is another round, with any number. */
static void claim_of_another_size(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    run_join(&run, "a");
    run_join(&run, "b");
    assert_told(&run, "sealed 7/1 of 2 at a a=0 b=1; ");
    struct mst__announcement said = run_announcement(&run, "a");
    said.claim = run_claim(&run, "a");
    said.claim.world = 3;
    said.claim.holds = true;
    assert_int_equal(run_say(&run, &said), MST_EEXPELLED);
    assert_int_equal(run.refusal, MST_REFUSAL_CLAIM);
    /* A node that does not know its round cannot come back from it. */
    said.claim.holds = false;
    assert_int_equal(run_say(&run, &said), 0);
    assert_told(&run, "sealed 7/1 of 2 at a a=0; ");
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RUNNING);
    run_close(&run);

    run_init(&run, 2, 3);
    const struct mst__claim first = {.epoch = 3, .round = 5, .world = 2, .rank = 0};
    assert_int_equal(run_hold(&run, "a", first), 0);
    /* Nor does it get a place in it. */
    said = run_announcement(&run, "b");
    said.claim = (struct mst__claim){.epoch = 3, .round = 5, .world = 9, .rank = 1};
    assert_int_equal(run_say(&run, &said), 0);
    assert_int_equal(run.authority.unknown_count, 1);
    assert_int_equal(run.authority.phase, MST_AUTHORITY_RECLAIMING);
    run_close(&run);
}

static void spare_knows_the_round(void **state)
{
    (void)state;
    struct unit_run run;
    run_init_epoch(&run, 1, 1, 8);
    struct mst__announcement said = run_announcement(&run, "spare");
    said.claim =
        (struct mst__claim){.epoch = 7, .round = 2, .world = 1, .rank = MST_AUTHORITY_RANK_NONE};
    assert_int_equal(run_say(&run, &said), 0);
    assert_told(&run, "spare spare; ");
    said = run_announcement(&run, "a");
    said.claim = (struct mst__claim){.epoch = 7, .round = 2, .world = 1, .rank = 0, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    run_pass(&run, 100 * SECOND_US, true);
    assert_told(&run, "");
    run_lose(&run, "a");
    assert_told(&run, "sealed 8/3 of 1 at spare spare=0; ");
    run_close(&run);
}

static void restored_from_store(void **state)
{
    (void)state;
    struct unit_run run;
    run_init_epoch(&run, 2, 3, 8);
    assert_int_equal(step_restore(&run.authority, 7, 0, 3, run.now_us), MST_EINVAL);
    assert_int_equal(step_restore(&run.authority, 7, 4, 0, run.now_us), MST_EINVAL);
    assert_int_equal(step_restore(&run.authority, 7, 4, 3, run.now_us), 0);
    assert_int_equal(step_restore(&run.authority, 7, 4, 3, run.now_us), MST_EINVAL);
    assert_int_equal(run_hold(&run, "b", claim_second), 0);
    assert_int_equal(run_hold(&run, "a", claim_first), 0);
    assert_told(&run, "");
    step_settle(&run.authority, run.now_us);
    assert_told(&run, "lost ?=2; reopened 5 lost ?; ");
    run_close(&run);
}

/* --- what is said of it --- */

static void described(void **state)
{
    (void)state;
    struct unit_run run;
    char text[400];
    run_init(&run, 3, 5);
#define assert_described(wanted)                                                \
    do {                                                                        \
        mst__authority_describe(&run.authority, run.now_us, text, sizeof text); \
        assert_string_equal(text, wanted);                                      \
    } while (0)
    assert_described("round 1 is open: nobody is here");
    run_join(&run, "a");
    run_join(&run, "b");
    assert_described("round 1 is open: 2 waiting, 1 more needed for the minimum of 3");
    run_join(&run, "c");
    run_pass(&run, 10500000, true);
    run_cut(&run, "b");
    assert_described("round 1 is open: 3 waiting, last call for 19.5 s more, up to 5 nodes; "
                     "connection lost: b");
    run_join(&run, "b");
    run_pass(&run, 20 * SECOND_US, true);
    assert_described("round 1 runs with 3 nodes");
    run_join(&run, "d");
    assert_described("round 1 runs with 3 nodes; 1 waiting to join: d");
    run_lose(&run, "a");
    assert_described("round 2 is open: 1 waiting, 2 of round 1 not back yet: b, c, 2 more "
                     "needed for the minimum of 3; gone since the last round: a (lost)");
    mst__authority_describe(&run.authority, run.now_us, text, 10);
    assert_string_equal(text, "round 2 i");
    assert_int_equal(step_shut(&run.authority, "done", "b", run.now_us), 0);
    assert_described("closed by 'b': done");
    run_close(&run);

    run_init_epoch(&run, 2, 3, 8);
    assert_int_equal(run_hold(&run, "b", claim_second), 0);
    assert_described("round 4 is taken over: 1 of 3 nodes are here, for 5.0 s more it waits for "
                     "those with rank 0, 2");
    run_close(&run);
#undef assert_described
}

static void skew_is_shown(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 1);
    struct mst__announcement said = run_announcement(&run, "a");
    const struct mst__label labels[] = {
        {mst_bytes_str("rack"), mst_bytes_str("r1")},
        {mst_bytes_str("host"), mst_bytes_str("")},
    };
    said.labels = labels;
    said.labels_count = 2;
    said.has_wall = true;
    said.wall_us = 1000;
    said.wall_here_us = 900 * (int64_t)SECOND_US + 1000;
    assert_int_equal(run_say(&run, &said), 0);
    assert_told(&run, "sealed 7/1 of 1 at a a=0; ");
    const struct mst__authority_member *a = mst__authority_get(&run.authority, run_id(&run, "a"));
    assert_true(a->has_skew);
    assert_int_equal(a->skew_us, -900 * (int64_t)SECOND_US);
    assert_bytes_str(mst__authority_label(a, 0).key, "rack");
    assert_bytes_str(mst__authority_label_value(a, mst_bytes_str("rack")), "r1");
    assert_non_null(mst__authority_label_value(a, mst_bytes_str("host")).data);
    assert_null(mst__authority_label_value(a, mst_bytes_str("zone")).data);
    run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sealed_at_max),
        cmocka_unit_test(sealed_after_last_call),
        cmocka_unit_test(last_call_starts_anew_below_min),
        cmocka_unit_test(absent_is_not_sealed),
        cmocka_unit_test(absent_is_waited_for),
        cmocka_unit_test(surplus_is_spare),
        cmocka_unit_test(previous_before_spare),
        cmocka_unit_test(late_is_queued),
        cmocka_unit_test(silence_is_loss),
        cmocka_unit_test(heartbeat_of_the_lost),
        cmocka_unit_test(grace),
        cmocka_unit_test(old_connection),
        cmocka_unit_test(not_back_in_time),
        cmocka_unit_test(leaving_is_not_closing),
        cmocka_unit_test(newer_replaces_ghost),
        cmocka_unit_test(replaced_twice),
        cmocka_unit_test(lost_keeps_rank),
        cmocka_unit_test(last_call_ends_early),
        cmocka_unit_test(twice),
        cmocka_unit_test(late_word_is_no_return),
        cmocka_unit_test(knows_a_later_round),
        cmocka_unit_test(conflicts),
        cmocka_unit_test(malformed),
        cmocka_unit_test(full),
        cmocka_unit_test(closed_for_good),
        cmocka_unit_test(restart_disturbs_nobody),
        cmocka_unit_test(restart_misses_one),
        cmocka_unit_test(restart_while_coming_back),
        cmocka_unit_test(claims_of_several_rounds),
        cmocka_unit_test(claim_of_what_never_was),
        cmocka_unit_test(claim_of_another_size),
        cmocka_unit_test(spare_knows_the_round),
        cmocka_unit_test(restored_from_store),
        cmocka_unit_test(described),
        cmocka_unit_test(skew_is_shown),
    };
    return MST_RUN_TESTS(tests);
}
