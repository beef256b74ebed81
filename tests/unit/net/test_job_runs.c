/* unit/net/test_job_runs.c - the run ids of a server: which are served and which are forgotten, and
 * their keys; what is counted of their rounds, and told to a node that returns. */
#include "unit/net/job_unit.h"
#include "wire/round_key.h"

/* --- run ids --- */

/* A node that a full server refuses again and again is welcome when there is room. */
static void refused_jobs_do_not_count(void **state)
{
    struct fixture *f = *state;
    struct mst__kv *kv = &f->server->kv;
    int fd = node_new(f);
    kv->memory_withheld = kv->limits.memory_max;
    const struct mst__job_message announce = lonely("job");
    for (int i = 0; i <= MST_JOBS_FOUNDED_MAX; i++) {
        assert_int_equal(ask(f, fd, &announce).type, MST_JOB_REFUSED);
    }
    kv->memory_withheld = 0;
    assert_int_equal(ask(f, fd, &announce).type, MST_JOB_WELCOME);
    (void)close(fd);
}

/* A job without nodes makes room for others, unless its node comes back just in time: then it has
 * its round, and is left like any other. */
static void crowded_out_job_comes_back(void **state)
{
    struct fixture *f = *state;
    struct mst__job_message one = lonely("one");
    struct mst__job_message two = lonely("two");
    int first = node_new(f);
    int second = node_new(f);
    int third = node_new(f);
    assert_int_equal(ask(f, first, &one).type, MST_JOB_WELCOME);
    put_leave(&f->bytes);
    send_all(f, first);
    assert_int_equal(ask(f, second, &two).type, MST_JOB_WELCOME);
    f->server->jobs.idle_count += MST_JOBS_IDLE_MAX - 1;
    put_leave(&f->bytes);
    send_unread(f, &second, 1);
    const struct mst__job *job = mst__job_find(f->server, mst_bytes_str("one"));
    for (int i = 0; !job->is_crowded_out; i++) {
        assert_in_range(i, 0, 100);
        turn(f->server);
    }
    f->server->jobs.idle_count -= MST_JOBS_IDLE_MAX - 1;
    put_message(&f->bytes, &one);
    send_all(f, third);
    put_leave(&f->bytes);
    send_all(f, third);
    assert_ptr_equal(mst__job_find(f->server, mst_bytes_str("one")), job);
    assert_int_equal(job->authority.round, 2);
    (void)close(first);
    (void)close(second);
    (void)close(third);
}

/* The server of a node serves its run alone; ids that are similar are others. */
static int fixture_open_only(void **state)
{
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    options.run_id = "run";
    return fixture_new(state, &options);
}

static void one_run_is_served(void **state)
{
    struct fixture *f = *state;
    static const char *const others[] = {"run2", "ru", "Run"};
    for (size_t i = 0; i < 3; i++) {
        int fd = node_new(f);
        const struct mst__job_message announce = lonely(others[i]);
        const struct mst__job_message told = ask(f, fd, &announce);
        assert_int_equal(told.type, MST_JOB_REFUSED);
        assert_int_equal(told.u.refused.code, MST_EINVAL);
        (void)close(fd);
    }
    int fd = node_new(f);
    const struct mst__job_message announce = lonely("run");
    assert_int_equal(ask(f, fd, &announce).type, MST_JOB_WELCOME);
    (void)close(fd);
}

/* Whoever asks for an unknown run is told those with similar ids, the nearest first. */
static void similar_runs_are_told(void **state)
{
    struct fixture *f = *state;
    static const char *const runs[] = {"train-abc", "train-a", "train-ab", "other"};
    int fds[4];
    for (size_t i = 0; i < 4; i++) {
        const struct mst__job_message announce = lonely(runs[i]);
        fds[i] = node_new(f);
        assert_int_equal(ask(f, fds[i], &announce).type, MST_JOB_WELCOME);
    }
    const struct mst__job_message question = {
        .type = MST_JOB_STATUS,
        .u.question = {.run_id = mst_bytes_str("train-"), .version = MST_JOB_VERSION}};
    int fd = node_new(f);
    struct mst__job_message told = ask(f, fd, &question);
    assert_int_equal(told.u.refused.code, MST_ENOTFOUND);
    assert_bytes_str(told.u.refused.text, "no node has joined run 'train-'; similar: 'train-a', "
                                          "'train-ab', 'train-abc'");
    (void)close(fd);
    for (size_t i = 0; i < 4; i++) {
        (void)close(fds[i]);
    }
}

/* --- keys --- */

static void sweep_on(struct fixture *f)
{
    settle(f->server);
    while (uv_is_active((const uv_handle_t *)&f->server->jobs.keys.timer) != 0) {
        turn(f->server);
    }
}

/* Append a request that sets key @index of round 1 of @run_id. */
static void put_key(struct fixture *f, const char *run_id, uint64_t epoch, size_t index)
{
    char key[MST_ROUND_PREFIX_SIZE + 24];
    char prefix[MST_ROUND_PREFIX_SIZE];
    mst__round_prefix(mst_bytes_str(run_id), epoch, 1, prefix);
    (void)snprintf(key, sizeof key, "/%s/%zu", prefix, index);
    put_set(&f->bytes, key, mst_bytes_str("v"));
}

/* With a job, the keys of its rounds are forgotten. */
static void keys_of_forgotten_jobs_go(void **state)
{
    struct fixture *f = *state;
    const struct mst__job_message one = lonely("one");
    const struct mst__job_message two = lonely("two");
    int first = node_new(f);
    int second = node_new(f);
    int client = client_new(f);
    assert_int_equal(ask(f, first, &one).type, MST_JOB_WELCOME);
    put_key(f, "one", round_await(f, first).epoch, 1);
    send_all(f, client);
    put_leave(&f->bytes);
    send_all(f, first);
    assert_int_equal(ask(f, second, &two).type, MST_JOB_WELCOME);
    sweep_on(f);
    assert_int_equal(f->server->kv.keys_count, 1);
    f->server->jobs.idle_count += MST_JOBS_IDLE_MAX - 1;
    put_leave(&f->bytes);
    send_all(f, second);
    f->server->jobs.idle_count -= MST_JOBS_IDLE_MAX - 1;
    assert_null(mst__job_find(f->server, mst_bytes_str("one")));
    sweep_on(f);
    assert_int_equal(f->server->kv.keys_count, 0);
    (void)close(first);
    (void)close(second);
    (void)close(client);
}

/* Keys that are not needed any more when half of them have been looked at: they are looked at
 * again. */
static void sweep_is_wanted_meanwhile(void **state)
{
    struct fixture *f = *state;
    const struct mst__job_keys *keys = &f->server->jobs.keys;
    int client = client_new(f);
    for (size_t i = 0; i < 4 * (size_t)MST_SWEEP_STEPS; i++) {
        put_key(f, "job", 1, i);
    }
    send_all(f, client);
    mst__job_keys_want(f->server);
    for (int i = 0; !keys->is_sweeping; i++) {
        assert_in_range(i, 0, PATIENCE_MS);
        (void)poll(NULL, 0, 1);
        turn(f->server);
    }
    f->server->jobs.keys.opened_ms -= f->server->options.job_expiry_ms;
    mst__job_keys_want(f->server);
    sweep_on(f);
    assert_int_equal(f->server->kv.keys_count, 0);
    (void)close(client);
}

/* Keys of a round of an earlier server stay for as long as its nodes may take to come back. */
static void keys_of_claimed_rounds_stay(void **state)
{
    struct fixture *f = *state;
    int fd = client_new(f);
    put_key(f, "job", 1, 1);
    send_all(f, fd);
    assert_int_equal(f->server->kv.keys_count, 1);
    mst__job_keys_want(f->server);
    sweep_on(f);
    assert_int_equal(f->server->kv.keys_count, 1);
    f->server->jobs.keys.opened_ms -= f->server->options.job_expiry_ms;
    mst__job_keys_want(f->server);
    sweep_on(f);
    assert_int_equal(f->server->kv.keys_count, 0);
    (void)close(fd);
}

/* --- counts --- */

/* A pause, and what a round may take that waits for nothing. */
#define PAUSE_MS 500
#define AT_ONCE_US 400000

static const struct mst__job_tally *tally_of(const struct fixture *f)
{
    return &mst__job_find(f->server, mst_bytes_str("job"))->life.tally;
}

static void leave(struct fixture *f, int fd)
{
    put_leave(&f->bytes);
    send_all(f, fd);
    (void)close(fd);
    settle(f->server);
}

/* A round gathers from the moment in which the first of its nodes is there: not while nobody is. */
static void gathering_is_counted(void **state)
{
    struct fixture *f = *state;
    const struct mst__claim none = {.rank = MST_AUTHORITY_RANK_NONE};
    leave(f, member_new(f, "a", &none)); /* it waited, alone */
    (void)poll(NULL, 0, PAUSE_MS);
    int a = member_new(f, "a", &none);
    int b = member_new(f, "b", &none);
    assert_int_equal(tally_of(f)->rounds, 1);
    assert_in_range(tally_of(f)->gathering_us, 0, AT_ONCE_US);
    leave(f, a);
    leave(f, b);
    (void)poll(NULL, 0, PAUSE_MS);
    a = member_new(f, "a", &none);
    b = member_new(f, "b", &none);
    assert_int_equal(tally_of(f)->rounds, 2);
    assert_in_range(tally_of(f)->gathering_us, 0, AT_ONCE_US);
    leave(f, a);
    (void)poll(NULL, 0, PAUSE_MS); /* b is there */
    a = member_new(f, "a", &none);
    struct mst__job_message announce = announcement("b", 'b');
    announce.u.announce.announcement.claim = round_await(f, b);
    put_message(&f->bytes, &announce);
    send_all(f, b);
    assert_int_equal(tally_of(f)->rounds, 3);
    assert_in_range(tally_of(f)->gathering_us, PAUSE_MS * 1000, PAUSE_MS * 1000 + AT_ONCE_US);
    (void)close(a);
    (void)close(b);
}

/* The same of a node that is alone in its round: when it has left, nobody waits. */
static void gathering_alone_is_counted(void **state)
{
    struct fixture *f = *state;
    const struct mst__job_message announce = lonely("job");
    for (unsigned rounds = 1; rounds <= 2; rounds++) {
        int fd = node_new(f);
        assert_int_equal(ask(f, fd, &announce).type, MST_JOB_WELCOME);
        assert_int_equal(tally_of(f)->rounds, rounds);
        assert_in_range(tally_of(f)->gathering_us, 0, AT_ONCE_US);
        leave(f, fd);
        (void)poll(NULL, 0, PAUSE_MS);
    }
}

/* A restart is a round that ended with a failure, and no other. */
static void restarts_are_counted(void **state)
{
    struct fixture *f = *state;
    const struct mst__claim none = {.rank = MST_AUTHORITY_RANK_NONE};
    int a = member_new(f, "a", &none);
    int b = member_new(f, "b", &none);
    struct mst__claim claim = round_await(f, a);
    leave(f, b);
    assert_int_equal(tally_of(f)->restarts, 0);
    struct mst__job_message announce = announcement("a", 'a');
    announce.u.announce.announcement.claim = claim;
    put_message(&f->bytes, &announce);
    send_all(f, a);
    b = member_new(f, "b", &none);
    claim = round_await(f, b);
    const struct mst__job_message restart = {
        .type = MST_JOB_RESTART,
        .u.restart = {.epoch = claim.epoch,
                      .round = claim.round,
                      .cause = {.worker = MST_CAUSE_WORKER_NONE, .status = 1}}};
    put_message(&f->bytes, &restart);
    send_all(f, b);
    assert_int_equal(tally_of(f)->restarts, 1);
    assert_int_equal(tally_of(f)->rounds, 2);
    (void)close(a);
    (void)close(b);
}

/* Nodes that go on with their round at a restarted server complete none. */
static void claimed_rounds_do_not_count(void **state)
{
    struct fixture *f = *state;
    struct mst__claim claim = {.epoch = 1, .round = 7, .world = 2, .rank = 0, .holds = true};
    int a = member_new(f, "a", &claim);
    claim.rank = 1;
    int b = member_new(f, "b", &claim);
    const struct mst__job *job = mst__job_find(f->server, mst_bytes_str("job"));
    assert_int_equal(job->authority.phase, MST_AUTHORITY_RUNNING);
    assert_int_equal(job->authority.round, 7);
    assert_int_equal(tally_of(f)->rounds, 0);
    (void)close(a);
    (void)close(b);
}

/* --- returning --- */

static struct mst__job_message announcement_of_three(const char *name)
{
    struct mst__job_message announce = announcement(name, (uint64_t)name[0]);
    announce.u.announce.announcement.nodes_max = 3;
    return announce;
}

/* A member whose connection was lost before it heard of its round hears on the next one that it has
 * begun, and that a node waits. */
static void waiting_is_told_again(void **state)
{
    struct fixture *f = *state;
    int fds[3];
    for (size_t i = 0; i < 3; i++) {
        const char *const names[] = {"a", "b", "c"};
        const struct mst__job_message announce = announcement_of_three(names[i]);
        fds[i] = node_new(f);
        assert_int_equal(ask(f, fds[i], &announce).type, MST_JOB_WELCOME);
    }
    (void)close(fds[0]);
    settle(f->server);
    const struct mst__job_message announce = announcement_of_three("a");
    fds[0] = node_new(f);
    struct mst__job_message told = ask(f, fds[0], &announce);
    assert_int_equal(told.type, MST_JOB_WELCOME);
    frame_read(f, fds[0], &told);
    assert_int_equal(told.type, MST_JOB_SEALED);
    frame_read(f, fds[0], &told);
    assert_int_equal(told.type, MST_JOB_WAITING);
    assert_int_equal(told.u.waiting.count, 1);
    for (size_t i = 0; i < 3; i++) {
        (void)close(fds[i]);
    }
}

/* A member that was away while another one was lost hears of that when it is back. */
static void loss_is_told_again(void **state)
{
    struct fixture *f = *state;
    const struct mst__claim none = {.rank = MST_AUTHORITY_RANK_NONE};
    const int64_t grace_ms = 2000;
    f->server->options.job_grace_ms = grace_ms;
    int a = member_new(f, "a", &none);
    int b = member_new(f, "b", &none);
    struct mst__job_message announce = announcement("a", 'a');
    announce.u.announce.announcement.claim = round_await(f, a);
    announce.u.announce.announcement.claim.holds = true;
    (void)close(b);
    settle(f->server);
    (void)poll(NULL, 0, (int)grace_ms / 2); /* b's time is over when half of that of a is left */
    (void)close(a);
    const struct mst__job *job = mst__job_find(f->server, mst_bytes_str("job"));
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    while (job->authority.phase != MST_AUTHORITY_OPEN) {
        assert_true(mst__clock_ms() < end_ms);
        (void)poll(NULL, 0, 1);
        turn(f->server);
    }
    a = node_new(f);
    struct mst__job_message told = ask(f, a, &announce);
    assert_int_equal(told.type, MST_JOB_WELCOME);
    frame_read(f, a, &told);
    assert_int_equal(told.type, MST_JOB_LOST);
    assert_int_equal(told.u.lost.named, 1);
    assert_bytes_str(told.u.lost.names[0], "b");
    frame_read(f, a, &told);
    assert_int_equal(told.type, MST_JOB_REOPENED);
    (void)close(a);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(refused_jobs_do_not_count),
        CASE(crowded_out_job_comes_back),
        cmocka_unit_test_setup_teardown(one_run_is_served, fixture_open_only, fixture_close),
        CASE(similar_runs_are_told),
        CASE(keys_of_claimed_rounds_stay),
        CASE(keys_of_forgotten_jobs_go),
        CASE(sweep_is_wanted_meanwhile),
        CASE(gathering_is_counted),
        CASE(gathering_alone_is_counted),
        CASE(restarts_are_counted),
        CASE(claimed_rounds_do_not_count),
        CASE(waiting_is_told_again),
        CASE(loss_is_told_again),
    };
    return MST_RUN_TESTS(tests);
}
