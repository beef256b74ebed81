/* unit/net/test_job_server.c - jobs of a server: the connections of their nodes, their memory, and
 * the order in which they end. */
#include "net/give_way.h"
#include "unit/net/job_unit.h"

static const struct mst__job *job_first(const struct fixture *f)
{
    return *(struct mst__job **)mst__map_first(&f->server->jobs.map);
}

/* --- seats --- */

/* A connection that must end has no place in a job any more, even if it cannot be closed yet,
 * because a list of keys is under way: the job may be forgotten first. */
static void doomed_connections_have_no_seat(void **state)
{
    struct fixture *f = *state;
    set_keys(f, LISTED);
    int client = client_new(f);
    int nodes[] = {node_new(f), node_new(f)};
    const struct mst__job_message announce = announcement("node", 1);
    put_message(&f->bytes, &announce);
    send_all(f, nodes[0]);
    assert_int_equal(frame_await(f, nodes[0]), MST_JOB_WELCOME);
    list_begin(f, client);
    put_message(&f->bytes, &announce);
    put_leave(&f->bytes);
    send_unread(f, nodes + 1, 1);
    while (mst__map_count(&f->server->jobs.map) > 0) {
        assert_true(mst__kv_is_listing(&f->server->kv));
        turn(f->server);
    }
    turn(f->server);
    assert_true(mst__kv_is_listing(&f->server->kv));
    assert_int_equal(f->server->conns_count, 3);
    (void)close(client);
    settle(f->server);
    assert_int_equal(f->server->counters.closed[MST_WHY_SUPERSEDED], 1);
    assert_int_equal(f->server->conns_count, 1);
    (void)close(nodes[0]);
    (void)close(nodes[1]);
}

/* The same for a connection that its peer has closed, and whose node has come back since. */
static void closed_connections_have_no_seat(void **state)
{
    struct fixture *f = *state;
    set_keys(f, LISTED);
    int client = client_new(f);
    int nodes[] = {node_new(f), node_new(f)};
    const struct mst__job_message announce = announcement("node", 1);
    put_message(&f->bytes, &announce);
    send_all(f, nodes[0]);
    list_begin(f, client);
    (void)close(nodes[0]);
    turn(f->server);
    put_message(&f->bytes, &announce);
    put_leave(&f->bytes);
    send_unread(f, nodes + 1, 1);
    while (mst__map_count(&f->server->jobs.map) > 0) {
        assert_true(mst__kv_is_listing(&f->server->kv));
        turn(f->server);
    }
    settle(f->server);
    assert_int_equal(f->server->counters.closed[MST_WHY_PEER_CLOSED], 1);
    (void)close(client);
    (void)close(nodes[1]);
}

/* The session goes on with another connection: a late FINISH on the old one does not end its
 * work. */
static void old_connections_are_not_heard(void **state)
{
    struct fixture *f = *state;
    struct mst__job_message announce = announcement("node", 1);
    struct mst__announcement *said = &announce.u.announce.announcement;
    struct mst__job_message told;
    set_keys(f, LISTED);
    int client = client_new(f);
    int nodes[] = {node_new(f), node_new(f)};
    said->nodes_min = 1;
    said->nodes_max = 1;
    put_message(&f->bytes, &announce);
    send_all(f, nodes[0]);
    assert_int_equal(frame_await(f, nodes[0]), MST_JOB_WELCOME);
    frame_read(f, nodes[0], &told);
    assert_int_equal(told.type, MST_JOB_SEALED);
    list_begin(f, client);
    said->claim = (struct mst__claim){
        .epoch = told.u.round.epoch, .round = told.u.round.round, .world = 1, .holds = true};
    put_message(&f->bytes, &announce);
    send_unread(f, nodes + 1, 1);
    turn(f->server);
    const struct mst__job_message finish = {
        .type = MST_JOB_FINISH,
        .u.finish = {.epoch = told.u.round.epoch, .round = told.u.round.round}};
    put_message(&f->bytes, &finish);
    send_unread(f, nodes, 1);
    turn(f->server);
    assert_true(mst__kv_is_listing(&f->server->kv));
    (void)close(client);
    settle(f->server);
    assert_int_equal(frame_await(f, nodes[1]), MST_JOB_WELCOME);
    assert_int_equal(job_first(f)->authority.phase, MST_AUTHORITY_RUNNING);
    assert_int_equal(job_first(f)->authority.finished_count, 0);
    put_message(&f->bytes, &finish);
    send_all(f, nodes[1]);
    assert_int_equal(frame_await(f, nodes[1]), MST_JOB_CLOSED);
    (void)close(nodes[0]);
    (void)close(nodes[1]);
}

/* A session that another process has ended, and whose connection announces another one before it
 * was told: it hears both, in order. */
static void ended_sessions_are_told(void **state)
{
    struct fixture *f = *state;
    int nodes[] = {node_new(f), node_new(f)};
    struct mst__job_message announce = announcement("node", 1);
    put_message(&f->bytes, &announce);
    send_all(f, nodes[0]);
    assert_int_equal(frame_await(f, nodes[0]), MST_JOB_WELCOME);
    announce = announcement("node", 2);
    announce.u.announce.announcement.incarnation = 2;
    put_message(&f->bytes, &announce);
    send_unread(f, nodes + 1, 1);
    announce = announcement("other", 3);
    put_message(&f->bytes, &announce);
    send_unread(f, nodes, 1);
    assert_int_equal(frame_await(f, nodes[0]), MST_JOB_EXPELLED);
    assert_int_equal(frame_await(f, nodes[0]), MST_JOB_WELCOME);
    assert_int_equal(frame_await(f, nodes[1]), MST_JOB_WELCOME);
    (void)close(nodes[0]);
    (void)close(nodes[1]);
}

/* A connection is for one job: the node of another one is not taken in, and the first is lost. */
static void one_job_for_a_connection(void **state)
{
    struct fixture *f = *state;
    int node = node_new(f);
    struct mst__job_message announce = announcement("node", 1);
    put_message(&f->bytes, &announce);
    announce.u.announce.run_id = mst_bytes_str("other");
    put_message(&f->bytes, &announce);
    send_unread(f, &node, 1);
    assert_true(peer_is_closed(f->server, node));
    assert_int_equal(f->server->counters.closed[MST_WHY_PROTOCOL], 1);
    assert_int_equal(mst__map_count(&f->server->jobs.map), 1);
    assert_int_equal(job_first(f)->run_id_size, 3);
    assert_int_equal(job_first(f)->seats_count, 0);
    (void)close(node);
}

/* A finished job whose last node leaves makes room for another one of its id in the same turn. */
static void another_job_at_once(void **state)
{
    struct fixture *f = *state;
    int nodes[] = {node_new(f), node_new(f)};
    struct mst__job_message announce = announcement("node", 1);
    struct mst__job_message told;
    announce.u.announce.announcement.nodes_min = 1;
    announce.u.announce.announcement.nodes_max = 1;
    put_message(&f->bytes, &announce);
    send_all(f, nodes[0]);
    assert_int_equal(frame_await(f, nodes[0]), MST_JOB_WELCOME);
    frame_read(f, nodes[0], &told);
    assert_int_equal(told.type, MST_JOB_SEALED);
    const struct mst__job_message finish = {
        .type = MST_JOB_FINISH,
        .u.finish = {.epoch = told.u.round.epoch, .round = told.u.round.round}};
    put_message(&f->bytes, &finish);
    send_all(f, nodes[0]);
    assert_int_equal(frame_await(f, nodes[0]), MST_JOB_CLOSED);
    put_leave(&f->bytes);
    send_unread(f, nodes, 1);
    announce.u.announce.is_new = true;
    announce.u.announce.announcement.session = 2;
    put_message(&f->bytes, &announce);
    send_unread(f, nodes + 1, 1);
    assert_int_equal(frame_await(f, nodes[1]), MST_JOB_WELCOME);
    assert_int_equal(frame_await(f, nodes[1]), MST_JOB_SEALED);
    settle(f->server);
    assert_int_equal(mst__map_count(&f->server->jobs.map), 1);
    assert_int_equal(job_first(f)->authority.phase, MST_AUTHORITY_RUNNING);
    (void)close(nodes[0]);
    (void)close(nodes[1]);
}

/* The last node of a job is lost, and its connection ends because there is no memory to tell it:
 * the job is forgotten in the same turn. */
static void jobs_end_while_they_are_told(void **state)
{
    struct fixture *f = *state;
    struct mst__job_message announce = announcement("node", 1);
    const struct mst__job_message status = {.type = MST_JOB_STATUS,
                                            .u.question = {.run_id = mst_bytes_str("job")}};
    int64_t end_ms = mst__clock_ms() + PATIENCE_MS;
    int fd = peer_new(f->server, 1 << 12);
    put_greeting(&f->bytes);
    announce.u.announce.announcement.expiry_us = 200000;
    put_message(&f->bytes, &announce);
    send_all(f, fd);
    const struct mst__conn *conn = f->server->conns;
    while (!mst__conn_has_output(conn)) {
        put_message(&f->bytes, &status);
        send_all(f, fd);
    }
    f->server->kv.memory_withheld = f->server->options.memory_max;
    while (mst__map_count(&f->server->jobs.map) > 0) {
        turn(f->server);
        assert_true(mst__clock_ms() < end_ms);
    }
    settle(f->server);
    assert_int_equal(f->server->counters.closed[MST_WHY_MEMORY], 1);
    assert_int_equal(f->server->kv.memory_used, 0);
    (void)close(fd);
}

/* --- jobs without nodes --- */

/* Jobs without nodes are counted as long as they are there, and are in one list. */
static void expect_idle(const struct fixture *f, size_t barren, size_t left)
{
    const struct mst__jobs *jobs = &f->server->jobs;
    const struct mst__job_idle *lists[] = {&jobs->barren, &jobs->left};
    const size_t wanted[] = {barren, left};
    for (size_t i = 0; i < 2; i++) {
        size_t found = 0;
        const struct mst__job *prev = NULL;
        for (const struct mst__job *job = lists[i]->first; job != NULL; job = job->idle_next) {
            assert_ptr_equal(job->idle, lists[i]);
            assert_ptr_equal(job->idle_prev, prev);
            assert_true(job->idle_us < INT64_MAX);
            prev = job;
            found++;
        }
        assert_ptr_equal(lists[i]->last, prev);
        assert_int_equal(found, wanted[i]);
    }
    assert_int_equal(jobs->idle_count, barren + left);
}

/* Nodes come to jobs, leave and come again; jobs are closed, and forgotten. However often, no job
 * counts that is not there: otherwise jobs would be forgotten as if there were too many. */
static void idle_jobs_are_counted(void **state)
{
    struct fixture *f = *state;
    static const char *const runs[] = {"one", "two", "three"};
    int fd = -1;
    for (unsigned turns = 0; turns < 3; turns++) {
        for (size_t i = 0; i < 3; i++) {
            struct mst__job_message announce = announcement("node", 1);
            announce.u.announce.run_id = mst_bytes_str(runs[turns == 1 ? 2 - i : i]);
            announce.u.announce.announcement.nodes_min = 1;
            announce.u.announce.announcement.nodes_max = 1;
            fd = node_new(f);
            put_message(&f->bytes, &announce);
            send_all(f, fd);
            expect_idle(f, 0, turns == 0 ? i : 2);
            put_leave(&f->bytes);
            send_all(f, fd);
            (void)close(fd);
            expect_idle(f, 0, turns == 0 ? i + 1 : 3);
        }
    }
    fd = node_new(f);
    const struct mst__job_message shut = {.type = MST_JOB_CLOSE,
                                          .u.close = {.run_id = mst_bytes_str("never"),
                                                      .reason = mst_bytes_str("why"),
                                                      .owner = mst_bytes_str("me")}};
    put_message(&f->bytes, &shut);
    send_all(f, fd);
    expect_idle(f, 1, 3);
    /* They are crowded out one after the other, those without a round first. */
    f->server->jobs.idle_count = MST_JOBS_IDLE_MAX;
    put_message(&f->bytes, &shut);
    ((uint8_t *)(uintptr_t)mst__buf_bytes(&f->bytes).data)[MST_JOB_HEAD_SIZE + 4] = 'N';
    send_all(f, fd);
    f->server->jobs.idle_count -= MST_JOBS_IDLE_MAX - 4;
    assert_null(mst__job_find(f->server, mst_bytes_str("never")));
    assert_non_null(mst__job_find(f->server, mst_bytes_str("Never")));
    expect_idle(f, 1, 3);
    (void)close(fd);
}

/* --- lost nodes --- */

/* The sentence of the job's status, and its nodes that are gone, as "b lost 1 " with the rank. */
static void expect_status(struct fixture *f, const char *gone, const char *sentence)
{
    struct mst__job_message message = {
        .type = MST_JOB_STATUS,
        .u.question = {.run_id = mst_bytes_str("job"), .version = MST_JOB_VERSION}};
    int fd = node_new(f);
    put_message(&f->bytes, &message);
    send_all(f, fd);
    frame_read(f, fd, &message);
    assert_int_equal(message.type, MST_JOB_STATUS_TOLD);
    struct mst__job_status *told = &message.u.status;
    struct mst__job_member member;
    struct mst__job_detail detail;
    char found[100] = "";
    size_t used = 0;
    uint32_t count = 0;
    for (; mst__job_member_next(&told->members, &member); count++) {
        assert_true(mst__job_detail_next(&told->details, &detail));
        if (member.standing == MST_STANDING_GONE) {
            int rank = member.rank == MST_AUTHORITY_RANK_NONE ? -1 : (int)member.rank;
            assert_in_range(member.silent_us, 0, PATIENCE_MS * 1000LL);
            used += (size_t)snprintf(found + used, sizeof found - used, "%.*s %s %d ",
                                     (int)member.name.size, (const char *)member.name.data,
                                     mst__job_gone_name((enum mst__job_gone)detail.gone), rank);
        }
    }
    assert_int_equal(count, told->member_count);
    assert_string_equal(found, gone);
    assert_bytes_str(told->sentence, sentence);
    (void)close(fd);
}

static void member_lose(struct fixture *f, int fd)
{
    (void)close(fd);
    settle(f->server);
}

/* A node that was lost in an earlier round is in the status until it comes back. */
static void lost_nodes_are_remembered(void **state)
{
    struct fixture *f = *state;
    const struct mst__claim none = {.rank = MST_AUTHORITY_RANK_NONE};
    f->server->options.job_grace_ms = 0;
    int a = member_new(f, "a", &none);
    int b = member_new(f, "b", &none);
    struct mst__claim first = round_await(f, a);
    member_lose(f, b);
    expect_status(f, "b lost 1 ",
                  "round 2 is open: 0 waiting, 1 of round 1 not back yet: a, 2 more needed for the "
                  "minimum of 2; gone since the last round: b (lost)");
    struct mst__job_message announce = announcement("a", 'a');
    announce.u.announce.announcement.claim = first;
    put_message(&f->bytes, &announce);
    send_all(f, a);
    int c = member_new(f, "c", &none);
    assert_int_equal(round_await(f, c).round, 2);
    expect_status(f, "b lost -1 ", "round 2 runs with 2 nodes; lost before: b (round 1)");
    /* Of more than there is room for, the others are counted. */
    struct mst__job *job = (struct mst__job *)(uintptr_t)job_first(f);
    job->life.losses.unlisted = 4;
    expect_status(f, "b lost -1 ",
                  "round 2 runs with 2 nodes; lost before: b (round 1) and 4 more");
    job->life.losses.unlisted = 0;
    int d = member_new(f, "d", &none);
    member_lose(f, d); /* it was in no round */
    b = member_new(f, "b", &none);
    expect_status(f, "", "round 2 runs with 2 nodes; 1 on standby: b");
    member_lose(f, b);
    expect_status(f, "", "round 2 runs with 2 nodes");
    announce.u.announce.announcement.claim = round_await(f, a);
    member_lose(f, c);
    put_message(&f->bytes, &announce);
    send_all(f, a);
    int e = member_new(f, "e", &none);
    assert_int_equal(round_await(f, e).round, 3);
    expect_status(f, "c lost -1 ", "round 3 runs with 2 nodes; lost before: c (round 2)");
    c = member_new(f, "c", &none);
    /* Without a name. */
    job->life.losses.unlisted = 3;
    expect_status(f, "", "round 3 runs with 2 nodes; 1 on standby: c; lost before: 3");
    (void)close(a);
    (void)close(c);
    (void)close(e);
}

/* --- metrics --- */

/* Nodes of the jobs from @first to @end come, each on its own connection, and lose it. */
static void jobs_begin(struct fixture *f, size_t first, size_t end)
{
    for (size_t done = first; done < end;) {
        int fds[64];
        size_t count = end - done < 64 ? end - done : 64;
        for (size_t i = 0; i < count; i++) {
            char run_id[32];
            struct mst__job_message announce = announcement("node", 1);
            (void)snprintf(run_id, sizeof run_id, "job-%zu", done + i);
            announce.u.announce.run_id = mst_bytes_str(run_id);
            fds[i] = peer_new(f->server, 0);
            put_greeting(&f->bytes);
            put_message(&f->bytes, &announce);
            send_unread(f, fds + i, 1);
        }
        settle(f->server);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(frame_await(f, fds[i]), MST_JOB_WELCOME);
            (void)close(fds[i]);
        }
        settle(f->server);
        done += count;
    }
}

/* @name has the series number @index. */
static void expect_series(const struct mst__jobs_metrics *metrics, size_t index, const char *name)
{
    assert_true(index < metrics->jobs_count);
    assert_bytes_str(metrics->jobs[index].run_id, name);
}

/* The jobs that have changed last have series; the others are counted. */
static void changed_jobs_are_listed(void **state)
{
    struct fixture *f = *state;
    static struct mst__job_metrics jobs[MST_METRICS_JOBS_MAX];
    struct mst__jobs_metrics metrics;
    const struct mst__job_message closed = {
        .type = MST_JOB_CLOSE,
        .u.close = {.run_id = mst_bytes_str("job-1"), .reason = mst_bytes_str("over")}};
    f->server->options.job_grace_ms = MST_JOB_MS_MAX;
    jobs_begin(f, 0, MST_METRICS_JOBS_MAX);
    mst__jobs_measure(f->server, jobs, &metrics);
    assert_int_equal(metrics.jobs_count, MST_METRICS_JOBS_MAX);
    assert_int_equal(metrics.jobs_unlisted, 0);
    jobs_begin(f, MST_METRICS_JOBS_MAX, MST_METRICS_JOBS_MAX + 2);
    mst__jobs_measure(f->server, jobs, &metrics);
    assert_int_equal(metrics.jobs_count, MST_METRICS_JOBS_MAX);
    assert_int_equal(metrics.jobs_unlisted, 2);
    expect_series(&metrics, MST_METRICS_JOBS_MAX - 1, "job-2");
    /* A node that comes back, and another phase, are changes. */
    jobs_begin(f, 0, 1);
    mst__jobs_measure(f->server, jobs, &metrics);
    assert_int_equal(metrics.jobs_unlisted, 2);
    expect_series(&metrics, 0, "job-0");
    expect_series(&metrics, MST_METRICS_JOBS_MAX - 1, "job-3");
    int fd = node_new(f);
    put_message(&f->bytes, &closed);
    send_all(f, fd);
    assert_int_equal(frame_await(f, fd), MST_JOB_CLOSED);
    mst__jobs_measure(f->server, jobs, &metrics);
    expect_series(&metrics, 0, "job-1");
    (void)close(fd);
}

/* --- memory --- */

/* The code and the refusal of a REFUSED, which comes next. */
static void expect_refused(struct fixture *f, int fd, enum mst__refusal refusal)
{
    struct mst__job_message message;
    frame_read(f, fd, &message);
    assert_int_equal(message.type, MST_JOB_REFUSED);
    assert_int_equal(message.u.refused.refusal, refusal);
    assert_int_equal(message.u.refused.code, MST_ELIMIT);
    assert_non_null(
        memmem(message.u.refused.text.data, message.u.refused.text.size, "--max-memory", 12));
}

/* A server whose memory is in use, also by holes between allocations, refuses new nodes of a job
 * that is there, and goes on with those that it has. */
static void full_server_refuses(void **state)
{
    struct fixture *f = *state;
    struct mst__kv *kv = &f->server->kv;
    int fd = node_new(f);
    struct mst__job_message announce = announcement("first", 1);
    announce.u.announce.announcement.nodes_max = 1000;
    announce.u.announce.announcement.last_call_us = 1000000000;
    put_message(&f->bytes, &announce);
    send_all(f, fd);
    assert_int_equal(frame_await(f, fd), MST_JOB_WELCOME);
    kv->memory_withheld = kv->limits.memory_max - kv->memory_used;
    size_t before = kv->memory_used;
    for (size_t room = 0; room < 512; room += 8) {
        int other = node_new(f);
        announce.u.announce.announcement.name = mst_bytes_str("second");
        announce.u.announce.announcement.session = 2;
        put_message(&f->bytes, &announce);
        kv->memory_withheld = kv->limits.memory_max - before - room;
        send_all(f, other);
        if (kv->memory_used == before) {
            expect_refused(f, other, MST_REFUSAL_MEMORY);
        } else {
            assert_int_equal(frame_await(f, other), MST_JOB_WELCOME);
            assert_in_range(kv->memory_used, before, before + room);
            put_leave(&f->bytes);
            send_all(f, other);
        }
        (void)close(other);
        settle(f->server);
    }
    kv->memory_withheld = kv->limits.memory_max;
    const struct mst__job_message beat = {.type = MST_JOB_HEARTBEAT,
                                          .u.heartbeat = {.wants_pong = true}};
    put_message(&f->bytes, &beat);
    send_all(f, fd);
    assert_int_equal(frame_await(f, fd), MST_JOB_PONG);
    (void)close(fd);
}

/* --- the interval of heartbeats --- */

static int64_t told_heartbeat_us(struct fixture *f)
{
    const struct mst__job_message question = {
        .type = MST_JOB_STATUS,
        .u.question = {.run_id = mst_bytes_str("job"), .version = MST_JOB_VERSION}};
    struct mst__job_message told;
    int fd = node_new(f);
    put_message(&f->bytes, &question);
    send_all(f, fd);
    frame_read(f, fd, &told);
    assert_int_equal(told.type, MST_JOB_STATUS_TOLD);
    (void)close(fd);
    settle(f->server);
    return told.u.status.heartbeat_us;
}

/* A node with rare heartbeats, or a stranger, delays the mark of late nodes only while it is
 * there. */
static void intervals_go_with_their_nodes(void **state)
{
    struct fixture *f = *state;
    int nodes[] = {node_new(f), node_new(f)};
    struct mst__job_message announce = announcement("node", 1);
    announce.u.announce.heartbeat_us = 5000000;
    put_message(&f->bytes, &announce);
    send_all(f, nodes[0]);
    assert_int_equal(told_heartbeat_us(f), 5000000);
    announce = announcement("stranger", 2);
    announce.u.announce.heartbeat_us = INT64_MAX;
    put_message(&f->bytes, &announce);
    send_all(f, nodes[1]);
    assert_int_equal(told_heartbeat_us(f), INT64_MAX);
    put_leave(&f->bytes);
    send_all(f, nodes[1]);
    assert_int_equal(told_heartbeat_us(f), 5000000);
    announce.u.announce.heartbeat_us = 1000000;
    put_message(&f->bytes, &announce);
    send_all(f, nodes[1]);
    assert_int_equal(told_heartbeat_us(f), 5000000);
    (void)close(nodes[0]);
    (void)close(nodes[1]);
}

/* --- announcements --- */

/* Both speak the version of the one that is older. */
static void versions_are_agreed_on(void **state)
{
    struct fixture *f = *state;
    for (uint32_t version = 1; version <= MST_JOB_VERSION + 1; version++) {
        struct mst__job_message announce = announcement("node", version);
        announce.u.announce.version = version;
        int fd = node_new(f);
        struct mst__job_message told = ask(f, fd, &announce);
        assert_int_equal(told.type, MST_JOB_WELCOME);
        assert_int_equal(told.u.welcome.version,
                         version < MST_JOB_VERSION ? version : MST_JOB_VERSION);
        (void)close(fd);
    }
}

/* What one connection may ask for: a bounded patience, and few new jobs. */
static void demands_are_bounded(void **state)
{
    struct fixture *f = *state;
    int fd = node_new(f);
    struct mst__job_message announce = announcement("node", 1);
    announce.u.announce.announcement.expiry_us = MST_JOB_EXPIRY_US_MAX + 1;
    struct mst__job_message told = ask(f, fd, &announce);
    assert_int_equal(told.type, MST_JOB_REFUSED);
    assert_int_equal(told.u.refused.code, MST_ELIMIT);
    announce.u.announce.announcement.expiry_us = MST_JOB_EXPIRY_US_MAX;
    assert_int_equal(ask(f, fd, &announce).type, MST_JOB_WELCOME);
    (void)close(fd);
    fd = node_new(f);
    for (int i = 0; i <= MST_JOBS_FOUNDED_MAX; i++) {
        char run_id[20];
        (void)snprintf(run_id, sizeof run_id, "run%d", i);
        const struct mst__job_message shut = {.type = MST_JOB_CLOSE,
                                              .u.close = {.run_id = mst_bytes_str(run_id)}};
        told = ask(f, fd, &shut);
        assert_int_equal(told.type, i < MST_JOBS_FOUNDED_MAX ? MST_JOB_CLOSED : MST_JOB_REFUSED);
    }
    assert_int_equal(told.u.refused.code, MST_ELIMIT);
    (void)close(fd);
}

/* The first reason of a close stays, and whoever comes later is told how the job has ended, in
 * words of its version; advice is for those that were in no round of it. */
static void ends_are_told(void **state)
{
    struct fixture *f = *state;
    int fd = node_new(f);
    struct mst__job_message shut = {.type = MST_JOB_CLOSE,
                                    .u.close = {.run_id = mst_bytes_str("shut"),
                                                .reason = mst_bytes_str("first"),
                                                .owner = mst_bytes_str("me")}};
    assert_bytes_str(ask(f, fd, &shut).u.closed.reason, "first");
    shut.u.close.reason = mst_bytes_str("second");
    shut.u.close.owner = mst_bytes_str("you");
    struct mst__job_message told = ask(f, fd, &shut);
    assert_bytes_str(told.u.closed.reason, "first");
    (void)close(fd);
    fd = node_new(f);
    struct mst__job_message announce = lonely("done");
    assert_int_equal(ask(f, fd, &announce).type, MST_JOB_WELCOME);
    const struct mst__claim claim = round_await(f, fd);
    struct mst__job_message finish = {.type = MST_JOB_FINISH,
                                      .u.finish = {.epoch = claim.epoch, .round = claim.round}};
    assert_int_equal(ask(f, fd, &finish).type, MST_JOB_CLOSED);
    (void)close(fd);
    fd = node_new(f);
    announce.u.announce.announcement.name = mst_bytes_str("late");
    told = ask(f, fd, &announce);
    assert_int_equal(told.u.refused.code, MST_EFINISHED);
    assert_non_null(strstr((const char *)told.u.refused.text.data, "--new"));
    announce.u.announce.announcement.claim = claim;
    told = ask(f, fd, &announce);
    assert_int_equal(told.u.refused.code, MST_EFINISHED);
    assert_null(strstr((const char *)told.u.refused.text.data, "--new"));
    announce.u.announce.version = 1;
    assert_int_equal(ask(f, fd, &announce).u.refused.code, MST_ECLOSED);
    (void)close(fd);
}

/* A job without nodes goes on for a while: one that has not ended makes no room for another of its
 * id, and is forgotten when its time is over. */
static void left_jobs_go_on(void **state)
{
    struct fixture *f = *state;
    struct mst__job_message announce = lonely("left");
    int fd = node_new(f);
    assert_int_equal(ask(f, fd, &announce).type, MST_JOB_WELCOME);
    assert_int_equal(round_await(f, fd).round, 1);
    put_leave(&f->bytes);
    send_all(f, fd);
    (void)close(fd);
    settle(f->server);
    uint64_t left_ms = uv_timer_get_due_in(&job_first(f)->timer);
    uint64_t expiry_ms = (uint64_t)f->server->options.job_expiry_ms;
    assert_in_range(left_ms, expiry_ms - PATIENCE_MS, expiry_ms);
    announce.u.announce.is_new = true;
    fd = node_new(f);
    assert_int_equal(ask(f, fd, &announce).type, MST_JOB_WELCOME);
    assert_int_equal(round_await(f, fd).round, 2);
    (void)close(fd);
}

/* --- giving way --- */

/* Ask the server, on a new connection, whether it gives way. */
static bool is_told_way(struct fixture *f)
{
    const struct mst__job_message question = {.type = MST_JOB_STATUS,
                                              .u.question = {.version = MST_JOB_VERSION}};
    struct mst__job_message told;
    int fd = node_new(f);
    put_message(&f->bytes, &question);
    send_all(f, fd);
    frame_read(f, fd, &told);
    assert_int_equal(told.type, MST_JOB_JOBS_TOLD);
    (void)close(fd);
    settle(f->server);
    return told.u.list.gives_way;
}

/* Ask it to give way. Its connection ends if it refuses; returns whether the server stops. */
static bool ask_way(struct fixture *f)
{
    const struct mst__job_message wish = {.type = MST_JOB_GIVE_WAY};
    int fd = node_new(f);
    put_message(&f->bytes, &wish);
    send_all(f, fd);
    bool is_stopping = f->server->stopping;
    assert_true(is_stopping || peer_is_closed(f->server, fd));
    assert_int_equal(f->server->counters.closed[MST_WHY_PROTOCOL], is_stopping ? 0 : 1);
    assert_int_equal(mst__give_way_is_done(f->server), is_stopping);
    (void)close(fd);
    return is_stopping;
}

static void only_a_node_gives_way(void **state)
{
    struct fixture *f = *state;
    assert_false(is_told_way(f));
    assert_false(ask_way(f));
}

static void a_node_gives_way(void **state)
{
    struct fixture *f = *state;
    mst__give_way_allow(f->server);
    assert_true(is_told_way(f));
    assert_true(ask_way(f));
}

/* Who calls at a loopback address may listen there alone: then the others would find nobody. */
static void not_to_a_loopback_server(void **state)
{
    struct fixture *f = *state;
    static const char *const hosts[] = {"0.0.0.0"};
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    options.hosts = hosts;
    options.hosts_count = 1;
    options.log = (struct mst_log){0};
    mst_server_free(f->server);
    f->server = NULL;
    assert_int_equal(mst_server_new(&options, &f->server, NULL), 0);
    mst__give_way_allow(f->server);
    assert_false(is_told_way(f));
    assert_false(ask_way(f));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {

        CASE(doomed_connections_have_no_seat),
        CASE(closed_connections_have_no_seat),
        CASE(old_connections_are_not_heard),
        CASE(jobs_end_while_they_are_told),
        CASE(idle_jobs_are_counted),
        CASE(full_server_refuses),
        CASE(intervals_go_with_their_nodes),
        CASE(changed_jobs_are_listed),
        CASE(lost_nodes_are_remembered),
        CASE(only_a_node_gives_way),
        CASE(a_node_gives_way),
        CASE(not_to_a_loopback_server),
        CASE(ended_sessions_are_told),
        CASE(one_job_for_a_connection),
        CASE(another_job_at_once),
        CASE(versions_are_agreed_on),
        CASE(demands_are_bounded),
        CASE(ends_are_told),
        CASE(left_jobs_go_on),
    };
    return MST_RUN_TESTS(tests);
}
