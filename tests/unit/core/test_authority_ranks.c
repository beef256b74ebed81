/* unit/core/test_authority_ranks.c - admission to a round, and ranks. */
#include "core/authority_ranks.h"
#include "unit/core/authority_unit.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* --- natural order --- */

static void natural_order(void **state)
{
    (void)state;
    /* Each before the next. */
    static const char *const names[] = {
        "",
        "-",
        "0",
        "00",
        "1",
        "01",
        "2",
        "9",
        "10",
        "99999999999999999999999",
        "100000000000000000000000",
        "1000000000000000000000000",
        "a",
        "a0",
        "a1",
        "a1b",
        "a1b2",
        "a1b10",
        "a2",
        "a10",
        "a10-1",
        "ab",
        "node2",
        "node10",
        "node10.x2",
        "node10.x10",
        "node010.x10",
        "nodes",
    };
    for (size_t i = 0; i < COUNT(names); i++) {
        for (size_t j = 0; j < COUNT(names); j++) {
            int order = mst__natural_compare(mst_bytes_str(names[i]), mst_bytes_str(names[j]));
            int wanted = i < j ? -1 : i > j;
            if ((order > 0) - (order < 0) != wanted) {
                fail_msg("'%s' against '%s': %d", names[i], names[j], order);
            }
        }
    }
}

/* --- scenarios --- */

/* "name:pinned:rack:host", empty parts at the end may be left out. */
static void ranks_announce(struct unit_run *run, const char *spec)
{
    char text[128];
    (void)snprintf(text, sizeof text, "%s", spec);
    char *parts[4] = {text, NULL, NULL, NULL};
    for (size_t i = 1; i < COUNT(parts) && parts[i - 1] != NULL; i++) {
        parts[i] = strchr(parts[i - 1], ':');
        if (parts[i] != NULL) {
            *parts[i]++ = '\0';
        }
    }
    struct mst__announcement said = run_announcement(run, parts[0]);
    if (parts[1] != NULL && parts[1][0] != '\0') {
        said.pinned_rank = (uint32_t)strtoul(parts[1], NULL, 10);
    }
    struct mst__label labels[2];
    static const char *const keys[] = {"rack", "host"};
    for (size_t i = 2; i < COUNT(parts); i++) {
        if (parts[i] != NULL && parts[i][0] != '\0') {
            labels[said.labels_count++] =
                (struct mst__label){mst_bytes_str(keys[i - 2]), mst_bytes_str(parts[i])};
        }
    }
    said.labels = labels;
    said.driver = (void *)(uintptr_t) "somebody";
    said.claim = run_claim(run, parts[0]);
    assert_int_equal(step_announce(&run->authority, &said, run->now_us, &run->err), 0);
    mst__authority_check(&run->authority);
}

/* Announce all of @specs, separated by blanks. */
static void ranks_announce_all(struct unit_run *run, const char *specs)
{
    char text[512];
    (void)snprintf(text, sizeof text, "%s", specs);
    for (char *at = text; at != NULL;) {
        char *blank = strchr(at, ' ');
        if (blank != NULL) {
            *blank++ = '\0';
        }
        ranks_announce(run, at);
        at = blank;
    }
}

static void assert_ranks(struct unit_run *run, const char *wanted)
{
    char text[512] = "";
    size_t size = 0;
    for (uint32_t rank = 0; rank < run->authority.world; rank++) {
        int count = snprintf(text + size, sizeof text - size, "%s%s", rank == 0 ? "" : " ",
                             member_text(mst__authority_ranked(&run->authority, rank)));
        size += (size_t)count;
    }
    assert_int_equal(run->authority.phase, MST_AUTHORITY_RUNNING);
    assert_string_equal(text, wanted);
}

static void scenarios(void **state)
{
    (void)state;
    static const struct {
        const char *title;
        const char *rank_by;
        const char *first; /* announced, then sealed by the last call */
        const char *ranks;
        const char *gone;  /* a lost one, or none */
        const char *again; /* announced next: new nodes, then returning ones */
        const char *ranks_again;
    } rows[] = {
        {"by name, in natural order", "", "n10 n9 n2 n1", "n1 n2 n9 n10", NULL, NULL, NULL},
        {"labels count only where asked for", "", "a::r2 b::r1", "a b", NULL, NULL, NULL},
        {"by rack", "rack", "a::r2 b::r10 c::r1 d::r2", "c a d b", NULL, NULL, NULL},
        {"by rack and host", "rack,host", "a::r1:h2 b::r1:h1 c::r0:h9 d::r1:h1 e::r0:h10",
         "c e b d a", NULL, NULL, NULL},
        {"without a label at the end", "rack", "a b::r1 c::r2", "b c a", NULL, NULL, NULL},
        {"pinned", "", "a b:0 c d:2", "b a d c", NULL, NULL, NULL},
        {"pinned twice: the first by name", "", "a c:0 b:0", "b a c", NULL, NULL, NULL},
        {"pinned beyond the size", "", "a:7 b", "a b", NULL, NULL, NULL},
        {"pinned before labels", "rack", "a::r2 b:2:r1 c::r1", "c a b", NULL, NULL, NULL},
        {"sticky, one place is filled", "", "b c d", "b c d", "c", "a d b", "b a d"},
        {"sticky, shrunk: the last one moves", "", "a b c d", "a b c d", "b", "a c d", "a d c"},
        {"sticky before labels", "rack", "a::r1 c::r1 d::r2", "a c d", "a", "b::r1 c::r1 d::r2",
         "b c d"},
        {"grown: the new ones behind", "", "m n", "m n", NULL, "a m n", "m n a"},
        {"pinned before sticky", "", "a b c", "a b c", "c", "z:0 a b", "z b a"},
        {"who had the pinned rank keeps it", "", "b:0 c d", "b c d", "d", "a:0 c b:0", "b c a"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct unit_run run;
        print_message("%s\n", rows[i].title);
        run_init(&run, 2, 8);
        run.rank_by = rows[i].rank_by;
        ranks_announce_all(&run, rows[i].first);
        run_pass(&run, 30 * SECOND_US, true);
        assert_ranks(&run, rows[i].ranks);
        run.log_size = 0;
        if (rows[i].gone != NULL) {
            run_lose(&run, rows[i].gone);
        }
        if (rows[i].again != NULL) {
            ranks_announce_all(&run, rows[i].again);
            run_pass(&run, 30 * SECOND_US, true);
            assert_ranks(&run, rows[i].ranks_again);
        }
        run_close(&run);
    }
}

/* --- who gets in --- */

static void chosen(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 3, 3);
    ranks_announce_all(&run, "x y z a b c:1 d:9");
    assert_ranks(&run, "x y z");
    /* One is lost: a node that asks for a rank goes before earlier ones. */
    run_lose(&run, "x");
    ranks_announce_all(&run, "y z");
    assert_ranks(&run, "y c z");
    run_lose(&run, "c");
    ranks_announce_all(&run, "z y");
    assert_ranks(&run, "y a z");
    run_close(&run);
}

/* --- properties --- */

#define WISHES_MAX 32

/* The wishes and last ranks of the nodes n0, n1 …, and their new ranks. */
struct wishes {
    uint32_t count;
    uint32_t pinned[WISHES_MAX];
    uint32_t previous[WISHES_MAX];
    uint32_t ranks[WISHES_MAX];
    uint32_t owners[WISHES_MAX]; /* rank to node */
};

static const struct mst__authority_member *wishes_member(const struct unit_run *run, uint32_t i)
{
    char name[16];
    (void)snprintf(name, sizeof name, "n%u", i);
    return mst__authority_get(&run->authority,
                              mst__authority_find(&run->authority, mst_bytes_str(name)));
}

static void wishes_announce(struct unit_run *run, struct wishes *wishes, struct mst__prng *prng)
{
    for (uint32_t i = 0; i < wishes->count; i++) {
        const struct mst__authority_member *member = wishes_member(run, i);
        wishes->previous[i] = member == NULL ? MST_AUTHORITY_RANK_NONE : member->rank;
        wishes->pinned[i] = MST_AUTHORITY_RANK_NONE;
        if (mst__prng_below(prng, 4) == 0) {
            wishes->pinned[i] = (uint32_t)mst__prng_below(prng, WISHES_MAX + 8);
        }
    }
    /* The new ones first, for when the last of the others is back the round is sealed. */
    for (uint32_t i = wishes->count; i-- > 0;) {
        char spec[48];
        if (wishes->pinned[i] == MST_AUTHORITY_RANK_NONE) {
            (void)snprintf(spec, sizeof spec, "n%u", i);
        } else {
            (void)snprintf(spec, sizeof spec, "n%u:%u", i, wishes->pinned[i]);
        }
        ranks_announce(run, spec);
    }
    run_pass(run, 30 * SECOND_US, true);
    run->log_size = 0;
    assert_int_equal(run->authority.phase, MST_AUTHORITY_RUNNING);
    assert_int_equal(run->authority.world, wishes->count);
}

static void wishes_check(const struct unit_run *run, struct wishes *wishes)
{
    memset(wishes->owners, 0xff, sizeof wishes->owners);
    for (uint32_t i = 0; i < wishes->count; i++) {
        uint32_t rank = wishes_member(run, i)->rank;
        assert_true(rank < wishes->count);
        assert_int_equal(wishes->owners[rank], UINT32_MAX);
        wishes->owners[rank] = i;
        wishes->ranks[i] = rank;
    }
    uint32_t last = UINT32_MAX;
    for (uint32_t rank = 0; rank < wishes->count; rank++) {
        uint32_t owner = wishes->owners[rank];
        bool is_wanted = false;
        for (uint32_t i = 0; i < wishes->count; i++) {
            is_wanted = is_wanted || wishes->pinned[i] == rank;
        }
        if (is_wanted) {
            assert_int_equal(wishes->pinned[owner], rank);
            continue;
        }
        if (wishes->previous[owner] == rank) {
            continue;
        }
        /* Its former owner is pinned elsewhere now. */
        for (uint32_t i = 0; i < wishes->count; i++) {
            assert_true(wishes->previous[i] != rank || wishes->pinned[i] == wishes->ranks[i]);
        }
        assert_true(last == UINT32_MAX || last < owner);
        last = owner;
    }
}

/* Any preferences: ranks are dense, a requested rank goes to a node that requests it, a node
 * keeps its rank if it can, and the rest are in the order of their names. */
static void properties(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct mst__prng prng;
        mst__prng_init(&prng, seed);
        struct unit_run run;
        run_init(&run, 1, WISHES_MAX + 1);
        struct wishes wishes = {.count = (uint32_t)(2 + mst__prng_below(&prng, WISHES_MAX - 8))};
        for (uint32_t round = 0; round < 4; round++) {
            wishes_announce(&run, &wishes, &prng);
            wishes_check(&run, &wishes);
            wishes.count += (uint32_t)mst__prng_below(&prng, 3);
        }
        run_close(&run);
    }
}

/* --- jobs that do not grow --- */

/* Later nodes only take the places of lost ones, at most as many as the first round had. */
static void fixed_keeps_its_size(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 1, 4);
    run.is_fixed = true;
    run_join(&run, "a");
    run_join(&run, "b");
    run_pass(&run, 31 * SECOND_US, true);
    run_join(&run, "c");
    assert_told(&run, "sealed 7/1 of 2 at a a=0 b=1; spare c; ");
    run_back(&run, "a");
    run_back(&run, "b");
    assert_told(&run, "reopened 2 returned a; sealed 7/2 of 2 at a a=0 b=1; spare c; ");
    run_lose(&run, "b");
    run_back(&run, "a");
    assert_told(&run, "lost b=1; reopened 3 lost b; sealed 7/3 of 2 at a a=0 c=1; ");
    /* A smaller round has room again, for as many as are missing. */
    run_lose(&run, "c");
    run_back(&run, "a");
    assert_told(&run, "lost c=1; reopened 4 lost c; sealed 7/4 of 1 at a a=0; ");
    run_join(&run, "d");
    run_join(&run, "e");
    assert_told(&run, "queued d; waiting 1; queued e; ");
    run_back(&run, "a");
    assert_told(&run, "sealed 7/5 of 2 at a a=0 d=1; spare e; ");
    /* When all are gone, the next ones begin anew. */
    run_lose(&run, "e");
    run_lose(&run, "d");
    run_lose(&run, "a");
    run_pass(&run, 2 * SECOND_US, true);
    run.log_size = 0;
    run.log[0] = '\0';
    run_join(&run, "f");
    run_join(&run, "g");
    run_join(&run, "h");
    run_pass(&run, 31 * SECOND_US, true);
    assert_told(&run, "sealed 7/6 of 3 at f f=0 g=1 h=2; ");
    run_close(&run);
}

/* An authority that takes a round over knows no earlier one. */
static void fixed_after_a_restart(void **state)
{
    (void)state;
    struct unit_run run;
    run_init_epoch(&run, 1, 4, 8);
    run.is_fixed = true;
    struct mst__announcement said = run_announcement(&run, "a");
    said.claim = (struct mst__claim){.epoch = 7, .round = 4, .world = 2, .rank = 0, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    said = run_announcement(&run, "b");
    said.claim = (struct mst__claim){.epoch = 7, .round = 4, .world = 2, .rank = 1, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    run_join(&run, "c");
    assert_told(&run, "spare c; ");
    run_back(&run, "b");
    run_back(&run, "a");
    assert_told(&run, "reopened 5 returned b; sealed 8/5 of 2 at a a=0 b=1; spare c; ");
    run_close(&run);
}

/* The largest round that members tell of is nearest to the first one. */
static void fixed_by_an_older_round(void **state)
{
    (void)state;
    struct unit_run run;
    run_init_epoch(&run, 1, 4, 8);
    run.is_fixed = true;
    struct mst__announcement said = run_announcement(&run, "paused");
    said.claim = (struct mst__claim){.epoch = 7, .round = 3, .world = 3, .rank = 2, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    said = run_announcement(&run, "a");
    said.claim = (struct mst__claim){.epoch = 7, .round = 4, .world = 1, .rank = 0, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    assert_told(&run, "expelled paused; ");
    run_join(&run, "b");
    run_join(&run, "c");
    run_join(&run, "d");
    run.log_size = 0;
    run.log[0] = '\0';
    run_back(&run, "a");
    assert_told(&run, "sealed 8/5 of 3 at a a=0 b=1 c=2; spare d; ");
    run_close(&run);
    /* But a round may not be smaller than the minimum. */
    run_init_epoch(&run, 2, 4, 8);
    run.is_fixed = true;
    said = run_announcement(&run, "a");
    said.claim = (struct mst__claim){.epoch = 7, .round = 4, .world = 1, .rank = 0, .holds = true};
    assert_int_equal(run_say(&run, &said), 0);
    run_join(&run, "b");
    run_back(&run, "a");
    run.log_size = 0;
    run.log[0] = '\0';
    run_join(&run, "c");
    run_pass(&run, 31 * SECOND_US, true);
    assert_told(&run, "spare c; ");
    run_close(&run);
}

static void fixed_for_all(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 4);
    run_join(&run, "a");
    struct mst__announcement said = run_announcement(&run, "b");
    said.is_fixed = true;
    assert_int_equal(run_say(&run, &said), MST_EINVAL);
    assert_int_equal(run.refusal, MST_REFUSAL_SETTINGS);
    assert_string_equal(run.err.msg, "node 'b' asks for a run that does not grow, this run may "
                                     "grow, as node 'a' said; all have to agree");
    run_close(&run);
}

/* --- workers --- */

static void join_with(struct unit_run *run, const char *name, uint32_t workers, const char *role)
{
    struct mst__announcement said = run_announcement(run, name);
    said.claim = run_claim(run, name);
    said.workers = workers;
    said.role = mst_bytes_str(role);
    if (run_say(run, &said) != 0) {
        fail_msg("'%s' was refused: %s", name, run->err.msg);
    }
}

/* Through all nodes and through those of a role, in the order of the nodes' ranks. */
static void workers_are_numbered(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 4, 4);
    join_with(&run, "d", 4, "b");
    join_with(&run, "c", 3, "");
    join_with(&run, "b", 2, "a");
    join_with(&run, "a", 1, "b");
    assert_told(&run, "sealed 7/1 of 4 at a a=0 [0 of 10, 0 of 5] b=1 [1 of 10, 0 of 2] "
                      "c=2 [3 of 10, 0 of 3] d=3 [6 of 10, 1 of 5]; ");
    /* A node that has not heard of the round is told its own part. */
    struct mst__announcement said = run_announcement(&run, "d");
    said.workers = 4;
    said.role = mst_bytes_str("b");
    assert_int_equal(run_say(&run, &said), 0);
    assert_told(&run, "sealed 7/1 of 4 at a d=3 [6 of 10, 1 of 5]; ");
    /* The next round counts what its nodes say now. */
    join_with(&run, "a", 1, "b");
    join_with(&run, "b", 1, "b");
    join_with(&run, "c", 1, "b");
    join_with(&run, "d", 7, "b");
    assert_told(&run, "reopened 2 returned a; sealed 7/2 of 4 at a a=0 [0 of 10, 0 of 10] "
                      "b=1 [1 of 10, 1 of 10] c=2 [2 of 10, 2 of 10] d=3 [3 of 10, 3 of 10]; ");
    run_close(&run);
}

/* In the same round, a new announcement does not change what was told. */
static void workers_stay_in_a_round(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 2);
    join_with(&run, "a", 1, "");
    join_with(&run, "b", 2, "");
    assert_told(&run, "sealed 7/1 of 2 at a a=0 [0 of 3, 0 of 3] b=1 [1 of 3, 1 of 3]; ");
    struct mst__announcement said = run_announcement(&run, "b");
    said.workers = 9;
    assert_int_equal(run_say(&run, &said), 0);
    assert_told(&run, "sealed 7/1 of 2 at a b=1 [1 of 3, 1 of 3]; ");
    run_close(&run);
}

static void workers_are_said_by_all_or_none(void **state)
{
    (void)state;
    struct unit_run run;
    run_init(&run, 2, 4);
    run_join(&run, "a");
    struct mst__announcement said = run_announcement(&run, "b");
    said.workers = 2;
    assert_int_equal(run_say(&run, &said), MST_EINVAL);
    assert_int_equal(run.refusal, MST_REFUSAL_SETTINGS);
    assert_string_equal(run.err.msg,
                        "node 'b' says how many workers it starts, and node 'a' of this run does "
                        "not; all have to agree (an older muster does not say)");
    run_close(&run);
    run_init(&run, 2, 4);
    join_with(&run, "a", 1, "");
    said = run_announcement(&run, "b");
    assert_int_equal(run_say(&run, &said), MST_EINVAL);
    assert_string_equal(run.err.msg,
                        "node 'b' does not say how many workers it starts, and node 'a' of this "
                        "run does; all have to agree (an older muster does not say)");
    said.workers = MST_NPROC_MAX + 1;
    assert_int_equal(run_say(&run, &said), MST_EINVAL);
    assert_int_equal(run.refusal, MST_REFUSAL_MALFORMED);
    said.workers = MST_NPROC_MAX;
    said.role = mst_bytes_str("a\tb");
    assert_int_equal(run_say(&run, &said), MST_EINVAL);
    assert_int_equal(run.refusal, MST_REFUSAL_MALFORMED);
    said.role = mst_bytes_str("a b");
    assert_int_equal(run_say(&run, &said), 0);
    run_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(natural_order),
        cmocka_unit_test(scenarios),
        cmocka_unit_test(chosen),
        cmocka_unit_test(properties),
        cmocka_unit_test(fixed_keeps_its_size),
        cmocka_unit_test(fixed_after_a_restart),
        cmocka_unit_test(fixed_by_an_older_round),
        cmocka_unit_test(fixed_for_all),
        cmocka_unit_test(workers_are_numbered),
        cmocka_unit_test(workers_stay_in_a_round),
        cmocka_unit_test(workers_are_said_by_all_or_none),
    };
    return MST_RUN_TESTS(tests);
}
