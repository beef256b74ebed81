/* net/job.c - run ids and the connections of their nodes. */
#include "net/job.h"

#include <muster/version.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/number.h"
#include "net/give_way.h"
#include "net/job_status.h"
#include "net/job_tell.h"
#include "net/server.h"

/* Memory of the table of names, and the overhead of allocations. */
#define JOB_TABLES_SIZE 1024

static struct mst__job *job_of(void *value)
{
    return *(struct mst__job **)value;
}

/* --- events --- */

/* @seat: the connection concerned; NULL = none. */
static int job_step(struct mst__job *job,
                    const struct mst__job_seat *seat,
                    const struct mst__authority_event *event,
                    struct mst_err *reterr)
{
    mst__job_journal_before(job);
    int rv = mst__authority_step(&job->authority, event, reterr);
    mst__job_journal_event(job, event, seat == NULL ? 0 : seat->contact, rv);
    return rv;
}

/* An event of the node in @seat, without further data. */
static int seat_step(const struct mst__job_seat *seat, enum mst__authority_event_kind kind)
{
    const struct mst__authority_event event = {
        .kind = kind, .now_us = mst__clock_us(), .id = seat->id};
    return job_step(seat->job, seat, &event, NULL);
}

/* --- the time of a job --- */

static void on_awake(uv_idle_t *awake)
{
    (void)awake; /* an idle handle makes the loop poll without waiting */
}

static void on_polling(uv_prepare_t *polling)
{
    struct mst_server *server = polling->data;
    if (!mst__poller_has_more(&server->poller)) {
        mst__listening_poll(&server->jobs.listening, mst__clock_us());
    }
}

static void on_polled(uv_check_t *polled);

/* Examine @job after the current poll, or after the next one. */
static void job_touch(struct mst__job *job)
{
    struct mst__jobs *jobs = &job->server->jobs;
    if (job->is_dirty) {
        return;
    }
    job->is_dirty = true;
    job->dirty_next = jobs->dirty;
    jobs->dirty = job;
    if (uv_is_active((const uv_handle_t *)&jobs->polled) == 0) {
        int rv = uv_idle_start(&jobs->awake, on_awake);
        MST_ASSERT(rv == 0);
        rv = uv_prepare_start(&jobs->polling, on_polling);
        MST_ASSERT(rv == 0);
        rv = uv_check_start(&jobs->polled, on_polled);
        MST_ASSERT(rv == 0);
    }
}

static void jobs_rest(struct mst__jobs *jobs)
{
    /* These always return 0. */
    (void)uv_idle_stop(&jobs->awake);
    (void)uv_prepare_stop(&jobs->polling);
    (void)uv_check_stop(&jobs->polled);
}

/* --- the memory of jobs --- */

/* Memory of a job without its members. */
static size_t job_base_size(const struct mst__jobs *jobs, size_t run_id_size)
{
    return sizeof(struct mst__job) + mst__map_cost(&jobs->map, run_id_size) + run_id_size +
           JOB_TABLES_SIZE;
}

/* Charge the present memory of the job. What did not fit was refused; otherwise it only shrinks. */
static void job_account(struct mst__job *job)
{
    struct mst_server *server = job->server;
    size_t size = job_base_size(&server->jobs, job->run_id_size) + job->authority.memory_used;
    if (size < job->charged) {
        mst__kv_discharge(&server->kv, job->charged - size);
    } else {
        bool fits = mst__kv_charge(&server->kv, size - job->charged);
        MST_ASSERT(fits);
    }
    job->charged = size;
}

/* The job may use what is left of the limit. */
static size_t job_memory_max(const struct mst__job *job)
{
    size_t max = job->authority.memory_used + mst__kv_room(&job->server->kv);
    return max == 0 ? 1 : max; /* 0 would mean unlimited */
}

/* --- jobs without nodes --- */

static void idle_remove(struct mst__job *job)
{
    struct mst__job_idle *list = job->idle;
    if (list == NULL) {
        return;
    }
    if (job->idle_prev == NULL) {
        list->first = job->idle_next;
    } else {
        job->idle_prev->idle_next = job->idle_next;
    }
    if (job->idle_next == NULL) {
        list->last = job->idle_prev;
    } else {
        job->idle_next->idle_prev = job->idle_prev;
    }
    job->idle = NULL;
    job->server->jobs.idle_count--;
}

/* Add a job whose last node is gone. If there are too many, one without a round goes first, because
 * strangers can create those with a single message. */
static void idle_add(struct mst__job *job)
{
    struct mst__jobs *jobs = &job->server->jobs;
    struct mst__job_idle *list = job->authority.round == 0 ? &jobs->barren : &jobs->left;
    job->idle = list;
    job->idle_prev = list->last;
    job->idle_next = NULL;
    if (list->last == NULL) {
        list->first = job;
    } else {
        list->last->idle_next = job;
    }
    list->last = job;
    if (++jobs->idle_count > MST_JOBS_IDLE_MAX) {
        struct mst__job *oldest =
            jobs->barren.first != NULL ? jobs->barren.first : jobs->left.first;
        idle_remove(oldest);
        oldest->is_crowded_out = true;
        job_touch(oldest);
    }
}

static void job_update_idle(struct mst__job *job, int64_t now_us)
{
    if (job->authority.living_count > 0) {
        idle_remove(job);
        job->idle_us = INT64_MAX;
        job->is_crowded_out = false;
    } else if (job->idle_us == INT64_MAX) {
        job->idle_us = now_us;
        idle_add(job);
    }
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct mst__job *job = handle->data;
    mst__kv_discharge(&job->server->kv, job->charged);
    mst__authority_close(&job->authority);
    mst__free(job);
}

/* Whether the job has nothing to remember: it never had a round and is not closed. */
static bool job_is_blank(const struct mst__job *job)
{
    return job->authority.phase == MST_AUTHORITY_OPEN && job->authority.round == 0;
}

static void dirty_remove(struct mst__job *job)
{
    struct mst__job **at = &job->server->jobs.dirty;
    if (!job->is_dirty) {
        return;
    }
    while (*at != job) {
        at = &(*at)->dirty_next;
    }
    *at = job->dirty_next;
    job->is_dirty = false;
}

/* Forget the job. It has no members, and those whose session has ended have been told. */
static void job_remove(struct mst__job *job)
{
    struct mst__jobs *jobs = &job->server->jobs;
    MST_ASSERT(job->seats_count == 0);
    dirty_remove(job);
    void *value = mst__map_get(&jobs->map, mst_bytes_of(job->run_id, job->run_id_size));
    MST_ASSERT(value != NULL && job_of(value) == job);
    mst__map_remove(&jobs->map, value);
    idle_remove(job);
    mst__job_journal_mark(job, MST_JOURNAL_FORGOTTEN);
    mst__job_log_forgotten(job, !job_is_blank(job));
    uv_close((uv_handle_t *)&job->timer, on_timer_closed);
    mst__job_keys_want(job->server);
}

/* A node begins a new job of this id: a closed job without nodes makes room. */
static void job_make_room(struct mst__job *job)
{
    if (job->authority.phase == MST_AUTHORITY_CLOSED && job->authority.living_count == 0) {
        mst__job_tell(job);
        job_remove(job);
    }
}

/* When the job is forgotten if no node comes; INT64_MAX = it has nodes. */
static int64_t job_end_us(const struct mst__job *job)
{
    if (job->idle_us == INT64_MAX) {
        return INT64_MAX;
    }
    bool is_kept = !job_is_blank(job) && !job->is_crowded_out;
    return job->idle_us + (is_kept ? job->server->options.job_expiry_ms * 1000 : 0);
}

static int64_t job_due_us(const struct mst__job *job)
{
    int64_t due_us = mst__authority_due_us(&job->authority);
    int64_t end_us = job_end_us(job);
    return mst__min(end_us, due_us);
}

/* A timer runs before arrived bytes are read, so it decides nothing. */
static void on_due(uv_timer_t *timer)
{
    struct mst__job *job = timer->data;
    job_touch(job);
}

/* Set the timer for the next deadline. */
static void job_schedule(struct mst__job *job, int64_t now_us)
{
    int64_t due_us = job_due_us(job);
    (void)uv_timer_stop(&job->timer); /* always returns 0 */
    if (due_us <= now_us) {
        job_touch(job); /* bytes that had arrived by then are unread */
    } else if (due_us != INT64_MAX) {
        uint64_t delay_ms = (uint64_t)(due_us - now_us + 999) / 1000;
        int rv = uv_timer_start(&job->timer, on_due, delay_ms, 0);
        MST_ASSERT(rv == 0);
    }
}

/* Process deadlines, and send the messages of this turn of the loop. */
static void job_turn(struct mst__job *job)
{
    const struct mst__listening *listening = &job->server->jobs.listening;
    int64_t now_us = mst__clock_us();
    if (mst__listening_judge(listening, job_due_us(job), now_us) == MST_LISTENING_DUE) {
        const struct mst__authority_event passed = {.kind = MST_AUTHORITY_EVENT_TIME,
                                                    .now_us = listening->heard_us};
        (void)job_step(job, NULL, &passed, NULL); /* always 0 */
    }
    mst__job_tell(job);
    mst__job_keys_look(job);
    job_account(job);
    job_update_idle(job, now_us);
    if (job_end_us(job) <= listening->heard_us) {
        job_remove(job);
    } else {
        job_schedule(job, now_us);
    }
}

static void on_polled(uv_check_t *polled)
{
    struct mst_server *server = polled->data;
    struct mst__jobs *jobs = &server->jobs;
    struct mst__job *job = jobs->dirty;
    if (mst__poller_has_more(&server->poller)) {
        return; /* the poll goes on in the next turn */
    }
    jobs->dirty = NULL;
    while (job != NULL) {
        struct mst__job *next = job->dirty_next;
        job->is_dirty = false;
        job_turn(job);
        job = next;
    }
    mst__conns_close_doomed(server);
    if (jobs->dirty == NULL) {
        jobs_rest(jobs);
    }
}

/* --- jobs --- */

void mst__jobs_open(struct mst_server *server)
{
    struct mst__jobs *jobs = &server->jobs;
    uint8_t hash_key[MST_SIPHASH_KEY_SIZE];
    mst__clock_random(hash_key, sizeof hash_key);
    mst__map_init(&jobs->map, sizeof(struct mst__job *), hash_key);
    mst__buf_init(&jobs->shared, MST_MIB(1));
    /* A later start has a larger epoch if the clock goes forward; in any case a different one. */
    jobs->epoch = (uint64_t)mst__clock_wall_us();
    server->kv.epoch_first = jobs->epoch;
    server->kv.epoch_end = jobs->epoch;
    mst__listening_init(&jobs->listening);
    int rv = uv_idle_init(&server->loop, &jobs->awake);
    MST_ASSERT(rv == 0);
    rv = uv_prepare_init(&server->loop, &jobs->polling);
    MST_ASSERT(rv == 0);
    jobs->polling.data = server;
    rv = uv_check_init(&server->loop, &jobs->polled);
    MST_ASSERT(rv == 0);
    jobs->polled.data = server;
    mst__job_keys_open(server);
}

void mst__jobs_stop(struct mst_server *server)
{
    struct mst__jobs *jobs = &server->jobs;
    for (void *value = mst__map_first(&jobs->map); value != NULL; value = mst__map_next(value)) {
        MST_ASSERT(job_of(value)->seats_count == 0);
        uv_close((uv_handle_t *)&job_of(value)->timer, on_timer_closed);
    }
    mst__map_close(&jobs->map);
    jobs->newest = NULL;
    jobs->dirty = NULL;
    uv_close((uv_handle_t *)&jobs->awake, NULL);
    uv_close((uv_handle_t *)&jobs->polling, NULL);
    uv_close((uv_handle_t *)&jobs->polled, NULL);
    mst__job_keys_stop(server);
}

void mst__jobs_close(struct mst_server *server)
{
    mst__buf_close(&server->jobs.shared);
    mst__job_journal_close(server);
}

struct mst__job *mst__job_find(const struct mst_server *server, struct mst_bytes run_id)
{
    void *value = mst__map_get(&server->jobs.map, run_id);
    return value == NULL ? NULL : job_of(value);
}

static int job_add(struct mst_server *server,
                   struct mst_bytes run_id,
                   struct mst__job **ret_job,
                   struct mst_err *reterr)
{
    struct mst__jobs *jobs = &server->jobs;
    size_t size = job_base_size(jobs, run_id.size);
    if (!mst__kv_charge(&server->kv, size)) {
        char text[MST_FULL_TEXT_SIZE];
        bool is_refused = mst__full_refuse_memory(server, 0, text);
        MST_ASSERT(is_refused);
        return mst__fail(reterr, MST_ELIMIT, 0, "%s; none is left for a new run id", text);
    }
    struct mst__job *job = mst__calloc(1, sizeof *job + run_id.size + 1);
    void *value = job == NULL ? NULL : mst__map_add(&jobs->map, run_id);
    if (value == NULL) {
        mst__free(job);
        mst__kv_discharge(&server->kv, size);
        return mst__fail(reterr, MST_ENOMEM, 0, "a new run id");
    }
    *(struct mst__job **)value = job;
    job->server = server;
    job->charged = size;
    job->idle_us = INT64_MAX; /* set in its first turn */
    job->run_id_size = run_id.size;
    memcpy(job->run_id, run_id.data, run_id.size);
    size_t conns_max = server->options.connections_max;
    struct mst__authority_options options = {
        /* Each job has its own epoch: a forgotten run id that comes again begins with round 1. */
        .epoch = jobs->epoch++,
        .expiry_us = 0, /* the nodes set it */
        .grace_us = server->options.job_grace_ms * 1000,
        .reclaim_us = server->options.job_reclaim_ms * 1000,
        .return_us = INT64_MAX,
        .members_max =
            conns_max < MST_AUTHORITY_MEMBERS_MAX ? (uint32_t)conns_max : MST_AUTHORITY_MEMBERS_MAX,
    };
    server->kv.epoch_end = jobs->epoch;
    mst__clock_random(options.hash_key, sizeof options.hash_key);
    mst__job_log_init(job, &options);
    mst__authority_init(&job->authority, &options);
    int rv = uv_timer_init(&server->loop, &job->timer);
    MST_ASSERT(rv == 0);
    job->timer.data = job;
    *ret_job = job;
    return 0;
}

/* The job of a message, created if necessary. */
static int job_get(struct mst_server *server,
                   struct mst__job_seat *seat,
                   struct mst_bytes run_id,
                   struct mst__job **ret_job,
                   struct mst_err *reterr)
{
    if (run_id.size == 0 || run_id.size > MST_JOB_RUN_ID_SIZE_MAX) {
        return mst__fail(reterr, MST_EINVAL, 0, "a run id of %zu bytes, not 1 … %d", run_id.size,
                         MST_JOB_RUN_ID_SIZE_MAX);
    }
    const char *only = server->run_id;
    if (only != NULL &&
        !(strlen(only) == run_id.size && memcmp(only, run_id.data, run_id.size) == 0)) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "this server serves run '%.60s', not '%.*s': is this another job's port?",
                         only, (int)(run_id.size < 60 ? run_id.size : 60),
                         (const char *)run_id.data);
    }
    *ret_job = mst__job_find(server, run_id);
    if (*ret_job != NULL) {
        return 0;
    }
    if (seat->founded >= MST_JOBS_FOUNDED_MAX) {
        return mst__fail(reterr, MST_ELIMIT, 0,
                         "this connection has named %d new run ids; no more are accepted",
                         MST_JOBS_FOUNDED_MAX);
    }
    int rv = job_add(server, run_id, ret_job, reterr);
    seat->founded += rv == 0;
    return rv;
}

/* --- messages --- */

/* Whether @conn is the connection of the session in @seat, unless that is over. */
static bool seat_is_own(const struct mst__conn *conn, const struct mst__job_seat *seat)
{
    const struct mst__authority_member *member =
        seat->job == NULL ? NULL : mst__authority_get(&seat->job->authority, seat->id);
    return member == NULL || member->driver == conn;
}

static void seat_take(struct mst__job_seat *seat, struct mst__job *job, mst__authority_id id)
{
    job->seats_count += seat->job == NULL;
    seat->job = job;
    seat->id = id;
}

static int reply(struct mst_server *server, const struct mst__job_message *message)
{
    return mst__job_write(&server->replies, message);
}

/* The outcome of the run, as in CLOSED. */
static struct mst__job_end job_outcome(const struct mst__authority *authority)
{
    struct mst__job_end end = {.outcome = (uint32_t)authority->outcome};
    if (authority->outcome == MST_JOB_OUTCOME_FAILED) {
        end.has_cause = true;
        end.cause = mst__authority_cause(authority);
    }
    return end;
}

static bool reply_refused(struct mst_server *server,
                          int code,
                          enum mst__refusal refusal,
                          const struct mst_err *err,
                          struct mst_err *reterr)
{
    const struct mst__job_message message = {
        .type = MST_JOB_REFUSED,
        .u.refused = {.code = code, .refusal = (uint32_t)refusal, .text = mst_bytes_str(err->msg)},
    };
    int rv = reply(server, &message);
    if (rv != 0) {
        (void)mst__fail(reterr, rv, 0, "no memory for a refusal");
    }
    return rv == 0;
}

/* Advice for a node that was never in the closed job. */
static void advise_closed(const struct mst__job *job,
                          bool is_new,
                          const struct mst_err *why,
                          struct mst_err *ret_err)
{
    bool is_finished = job->authority.outcome == MST_JOB_OUTCOME_FINISHED;
    char what[120];
    (void)snprintf(what, sizeof what, is_finished ? "job '%.60s' has finished" : "%.110s",
                   is_finished ? job->run_id : why->msg);
    if (is_new) {
        (void)mst__fail(ret_err, why->code, 0, "%s, and %u of its nodes %s still here", what,
                        job->authority.living_count,
                        job->authority.living_count == 1 ? "is" : "are");
        return;
    }
    int64_t end_us = job_end_us(job);
    int64_t left_s = end_us == INT64_MAX ? job->server->options.job_expiry_ms / 1000
                                         : (end_us - mst__clock_us()) / 1000000 + 1;
    bool is_minutes = left_s >= 120;
    (void)mst__fail(ret_err, why->code, 0, "%s; --new begins another, or wait %lld%s", what,
                    (long long)(is_minutes ? (left_s + 59) / 60 : left_s), is_minutes ? "m" : "s");
}

/* Answer an announcement for a closed run. */
static bool reply_closed(struct mst_server *server,
                         const struct mst__job *job,
                         const struct mst__job_announce *announce,
                         const struct mst_err *err,
                         struct mst_err *reterr)
{
    bool is_old = announce->version < MST_JOB_VERSION_FINISH;
    struct mst_err advice = *err;
    if (announce->version >= MST_JOB_VERSION_LIST && announce->announcement.claim.round == 0) {
        advise_closed(job, announce->is_new, err, &advice);
    }
    const struct mst__job_message message = {
        .type = MST_JOB_REFUSED,
        .u.refused = {.code = is_old ? MST_ECLOSED : err->code,
                      .refusal = MST_REFUSAL_CLOSED,
                      .text = mst_bytes_str(advice.msg),
                      .end = job_outcome(&job->authority)},
    };
    int rv = reply(server, &message);
    if (rv != 0) {
        (void)mst__fail(reterr, rv, 0, "no memory for a refusal");
    }
    return rv == 0;
}

static bool reply_expelled(struct mst_server *server, struct mst_err *reterr)
{
    const struct mst__job_message message = {
        .type = MST_JOB_EXPELLED,
        .u.text = mst_bytes_str("not heard of in time, or replaced by a newer process")};
    int rv = reply(server, &message);
    if (rv != 0) {
        (void)mst__fail(reterr, rv, 0, "no memory for an expulsion");
    }
    return rv == 0;
}

static bool reply_welcome(struct mst_server *server,
                          const struct mst__job_seat *seat,
                          const struct mst__job_announce *announce,
                          struct mst_err *reterr)
{
    const struct mst__authority_member *member =
        mst__authority_get(&seat->job->authority, seat->id);
    MST_ASSERT(member != NULL);
    const struct mst__job_message message = {
        .type = MST_JOB_WELCOME,
        .u.welcome = {.version =
                          announce->version < MST_JOB_VERSION ? announce->version : MST_JOB_VERSION,
                      .epoch = seat->job->authority.options.epoch,
                      .has_skew = member->has_skew,
                      .skew_us = member->skew_us,
                      .server = mst_bytes_str(mst_version())},
    };
    int rv = reply(server, &message);
    if (rv != 0) {
        (void)mst__fail(reterr, rv, 0, "no memory for a welcome");
    }
    return rv == 0;
}

/* End the session of @conn, which announces a new one. If it had ended before, the node must learn
 * that first: it may have sent this in the belief that it is in a round. */
static bool unseat(struct mst_server *server,
                   const struct mst__conn *conn,
                   struct mst__job_seat *seat,
                   struct mst_err *reterr)
{
    int rv = seat_step(seat, MST_AUTHORITY_EVENT_LEFT);
    mst__job_leave_seat(conn, seat);
    return rv == 0 || reply_expelled(server, reterr);
}

/* The authority had no room under --max-memory for node @name: say how full the server is. */
static void lack_for_node(struct mst_server *server, struct mst_bytes name, struct mst_err *ret_err)
{
    char text[MST_FULL_TEXT_SIZE];
    server->kv.memory_lacked = server->kv.memory_lacked == 0 ? 1 : server->kv.memory_lacked;
    (void)mst__full_refuse_memory(server, 0, text);
    (void)mst__fail(ret_err, MST_ELIMIT, 0, "%s; none is left for node '%.*s'", text,
                    (int)(name.size < 40 ? name.size : 40), (const char *)name.data);
}

static bool take_announce(struct mst_server *server,
                          struct mst__conn *conn,
                          struct mst__job_seat *seat,
                          const struct mst__job_announce *announce,
                          struct mst_err *reterr)
{
    struct mst_err err = {0};
    struct mst__job *job = NULL;
    int64_t expiry_us = announce->announcement.expiry_us;
    if (announce->version == 0 || expiry_us <= 0) {
        (void)mst__fail(&err, MST_EPROTO, 0, "version %u of the job protocol, expiry %lld us",
                        announce->version, (long long)expiry_us);
        return reply_refused(server, MST_EPROTO, MST_REFUSAL_MALFORMED, &err, reterr);
    }
    if (expiry_us > MST_JOB_EXPIRY_US_MAX) {
        (void)mst__fail(
            &err, MST_ELIMIT, 0,
            "keep_alive_interval x keep_alive_max_attempt is %lld s; at most %lld s are allowed",
            (long long)(expiry_us / 1000000), (long long)(MST_JOB_EXPIRY_US_MAX / 1000000));
        return reply_refused(server, MST_ELIMIT, MST_REFUSAL_MALFORMED, &err, reterr);
    }
    if (seat->job != NULL && seat->job != mst__job_find(server, announce->run_id)) {
        (void)mst__fail(reterr, MST_EPROTO, 0, "announced for a second run id");
        return false;
    }
    job = announce->is_new ? mst__job_find(server, announce->run_id) : NULL;
    if (job != NULL && job != seat->job) {
        job_make_room(job);
    }
    int rv = job_get(server, seat, announce->run_id, &job, &err);
    if (rv != 0) {
        return reply_refused(server, rv, MST_REFUSAL_MALFORMED, &err, reterr);
    }
    struct mst__announcement announcement = announce->announcement;
    announcement.labels = announce->labels;
    announcement.wall_here_us = mst__clock_wall_us();
    announcement.driver = conn;
    announcement.contact = seat->contact;
    announcement.memory_max = job_memory_max(job);
    mst__authority_id known = mst__authority_find(&job->authority, announcement.name);
    const struct mst__authority_member *member = mst__authority_get(&job->authority, known);
    struct mst__conn *other = member == NULL ? NULL : member->driver;
    const struct mst__authority_event announced = {.kind = MST_AUTHORITY_EVENT_ANNOUNCED,
                                                   .now_us = mst__clock_us(),
                                                   .announcement = &announcement};
    mst__job_log_announcing(job, &announcement);
    rv = job_step(job, seat, &announced, &err);
    mst__job_log_announced(job, rv == 0);
    job_account(job);
    job_touch(job);
    mst__authority_id id = job->authority.announced;
    enum mst__refusal refusal = job->authority.refusal;
    if (refusal == MST_REFUSAL_CLOSED) {
        return reply_closed(server, job, announce, &err, reterr);
    }
    if (rv == MST_ELIMIT && refusal == MST_REFUSAL_MEMORY) {
        lack_for_node(server, announcement.name, &err);
    }
    if (rv != 0) {
        return reply_refused(server, rv, refusal, &err, reterr);
    }
    bool is_told = seat->job == NULL || seat->id == id || unseat(server, conn, seat, reterr);
    if (known == id && other != NULL && other != conn) {
        /* The session continues here; later messages on the old connection are obsolete. */
        mst__conn_give_up(other, MST_WHY_SUPERSEDED, "the node has another connection");
    }
    seat_take(seat, job, id);
    seat->heartbeat_us = announce->heartbeat_us;
    return is_told && reply_welcome(server, seat, announce, reterr);
}

static bool take_heartbeat(struct mst_server *server,
                           const struct mst__conn *conn,
                           struct mst__job_seat *seat,
                           bool wants_pong,
                           struct mst_err *reterr)
{
    if (seat->job == NULL) {
        return true; /* its session is over, and it was or will be told */
    }
    int rv = seat_step(seat, MST_AUTHORITY_EVENT_HEARD);
    if (rv != 0) {
        mst__job_leave_seat(conn, seat);
        return reply_expelled(server, reterr);
    }
    if (wants_pong) {
        const struct mst__job_message message = {.type = MST_JOB_PONG};
        rv = reply(server, &message);
    }
    if (rv != 0) {
        (void)mst__fail(reterr, rv, 0, "no memory for an answer");
    }
    return rv == 0;
}

/* A finish, restart or planned leave of a node. Without a session it is ignored. */
static bool take_word(struct mst_server *server,
                      const struct mst__conn *conn,
                      struct mst__job_seat *seat,
                      const struct mst__job_message *message,
                      struct mst_err *reterr)
{
    if (seat->job == NULL) {
        return true;
    }
    struct mst__job *job = seat->job;
    struct mst__authority_event event = {.now_us = mst__clock_us(), .id = seat->id};
    if (message->type == MST_JOB_FINISH) {
        mst__job_log_finish(job, seat->id, &message->u.finish);
        event.kind = MST_AUTHORITY_EVENT_FINISHED;
        event.epoch = message->u.finish.epoch;
        event.round = message->u.finish.round;
    } else if (message->type == MST_JOB_LEAVING) {
        mst__job_log_leaving(job, seat->id, &message->u.leaving);
        event.kind = MST_AUTHORITY_EVENT_LEAVING;
        event.epoch = message->u.leaving.epoch;
        event.round = message->u.leaving.round;
        event.in_us = message->u.leaving.in_us;
    } else {
        mst__job_log_restart(job, seat->id, &message->u.restart);
        event.kind = MST_AUTHORITY_EVENT_FAILED;
        event.epoch = message->u.restart.epoch;
        event.round = message->u.restart.round;
        event.cause = &message->u.restart.cause;
    }
    int rv = job_step(job, seat, &event, NULL);
    job_touch(job);
    if (rv == MST_ENOTFOUND) {
        mst__job_leave_seat(conn, seat);
        return reply_expelled(server, reterr);
    }
    return true; /* else it is a duplicate, or of a round that is over */
}

static bool take_close(struct mst_server *server,
                       struct mst__job_seat *seat,
                       const struct mst__job_message *message,
                       struct mst_err *reterr)
{
    struct mst_err err = {0};
    struct mst__job *job = NULL;
    int rv = job_get(server, seat, message->u.close.run_id, &job, &err);
    if (rv != 0) {
        return reply_refused(server, rv, MST_REFUSAL_MALFORMED, &err, reterr);
    }
    const struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_SHUT,
                                               .now_us = mst__clock_us(),
                                               .reason = message->u.close.reason,
                                               .owner = message->u.close.owner};
    /* It may be closed already; the first reason stays, and is the answer. */
    (void)job_step(job, NULL, &event, NULL);
    job_touch(job);
    const struct mst__job_message told = {
        .type = MST_JOB_CLOSED,
        .u.closed = {.reason = mst_bytes_str(job->authority.close_reason),
                     .owner = mst_bytes_str(job->authority.close_owner),
                     .end = job_outcome(&job->authority)},
    };
    rv = reply(server, &told);
    if (rv != 0) {
        (void)mst__fail(reterr, rv, 0, "no memory for an answer");
    }
    return rv == 0;
}

static bool take_status(struct mst_server *server,
                        const struct mst__conn *conn,
                        struct mst_bytes run_id,
                        uint32_t version,
                        struct mst_err *reterr)
{
    struct mst_err err = {0};
    int rv = mst__job_answer_status(server, conn, run_id, version, &server->replies, &err);
    if (rv == MST_ENOTFOUND) {
        return reply_refused(server, rv, MST_REFUSAL_NONE, &err, reterr);
    }
    if (rv != 0) {
        (void)mst__fail(reterr, rv, 0, "no memory for the status");
    }
    return rv == 0;
}

bool mst__job_take(struct mst_server *server,
                   struct mst__conn *conn,
                   struct mst__job_seat *seat,
                   const struct mst__job_message *message,
                   struct mst_err *reterr)
{
    MST_ASSERT(seat_is_own(conn, seat));
    switch (message->type) {
        case MST_JOB_ANNOUNCE:
            return take_announce(server, conn, seat, &message->u.announce, reterr);
        case MST_JOB_HEARTBEAT:
            return take_heartbeat(server, conn, seat, message->u.heartbeat.wants_pong, reterr);
        case MST_JOB_LEAVE:
            if (seat->job != NULL) {
                (void)seat_step(seat, MST_AUTHORITY_EVENT_LEFT); /* the session may be over */
                mst__job_leave_seat(conn, seat);
            }
            return true;
        case MST_JOB_CLOSE:
            return take_close(server, seat, message, reterr);
        case MST_JOB_STATUS:
            return take_status(server, conn, message->u.question.run_id,
                               message->u.question.version, reterr);
        case MST_JOB_GIVE_WAY:
            return mst__give_way_take(conn, reterr);
        case MST_JOB_LEAVING:
        case MST_JOB_FINISH:
        case MST_JOB_RESTART:
            return take_word(server, conn, seat, message, reterr);
        default:
            break;
    }
    (void)mst__fail(reterr, MST_EPROTO, 0, "unexpected message '%s' from a node",
                    mst__job_type_name(message->type));
    return false;
}

void mst__job_heard(const struct mst__job_seat *seat)
{
    /* A node whose session is over is told so when it sends something. */
    (void)seat_step(seat, MST_AUTHORITY_EVENT_HEARD);
}

void mst__job_leave_seat(const struct mst__conn *conn, struct mst__job_seat *seat)
{
    if (seat->job == NULL) {
        return;
    }
    /* Also if the session is over or has another connection: this one must be forgotten. */
    const struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_DISCONNECTED,
                                               .now_us = mst__clock_us(),
                                               .id = seat->id,
                                               .driver = conn};
    (void)job_step(seat->job, seat, &event, NULL);
    job_touch(seat->job);
    mst__job_clear_seat(seat);
}

void mst__job_clear_seat(struct mst__job_seat *seat)
{
    if (seat->job != NULL) {
        MST_ASSERT(seat->job->seats_count > 0);
        seat->job->seats_count--;
    }
    seat->job = NULL;
    seat->id = MST_AUTHORITY_NOBODY;
}
