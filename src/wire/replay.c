/* wire/replay.c - the jobs of a journal by number, and their records. */
#include "wire/replay.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/mem.h"

#define TELL(replay, what, ...)                                        \
    do {                                                               \
        const struct mst__replay_listener *tell = &(replay)->listener; \
        if (tell->what != NULL) {                                      \
            tell->what(tell->arg, __VA_ARGS__);                        \
        }                                                              \
    } while (0)

/* --- jobs --- */

static struct mst__replay_job *job_find(const struct mst__replay *replay, uint32_t number)
{
    uint8_t key[4];
    mst__store_u32(key, number);
    struct mst__replay_job **value = mst__map_get(&replay->jobs, mst_bytes_of(key, sizeof key));
    return value == NULL ? NULL : *value;
}

struct mst__replay_job *mst__replay_job(const struct mst__replay *replay, uint32_t number)
{
    struct mst__replay_job *job = job_find(replay, number);
    return job != NULL && job->state.is_ready ? job : NULL;
}

const struct mst__replay_job *mst__replay_next(const struct mst__replay *replay, void **cursor)
{
    do {
        *cursor = *cursor == NULL ? mst__map_first(&replay->jobs) : mst__map_next(*cursor);
    } while (*cursor != NULL && !(*(struct mst__replay_job **)*cursor)->state.is_ready);
    return *cursor == NULL ? NULL : *(struct mst__replay_job **)*cursor;
}

/* Forget the state of @job. */
static void job_clear(struct mst__replay_job *job)
{
    if (job->state.has_begun) {
        mst__authority_close(&job->authority);
    }
    job->state = (struct mst__journal_state){.has_begun = false};
}

static void job_remove(struct mst__replay *replay, struct mst__replay_job *job)
{
    uint8_t key[4];
    mst__store_u32(key, job->number);
    struct mst__replay_job **value = mst__map_get(&replay->jobs, mst_bytes_of(key, sizeof key));
    MST_ASSERT(value != NULL);
    MST_ASSERT(*value == job);
    mst__map_remove(&replay->jobs, value);
    job_clear(job);
    mst__free(job);
}

static int job_add(struct mst__replay *replay, uint32_t number, struct mst__replay_job **ret_job)
{
    uint8_t key[4];
    mst__store_u32(key, number);
    if (mst__map_count(&replay->jobs) >= MST_JOURNAL_JOBS_MAX) {
        return MST_ELIMIT;
    }
    struct mst__replay_job *job = mst__calloc(1, sizeof *job);
    void *value = job == NULL ? NULL : mst__map_add(&replay->jobs, mst_bytes_of(key, sizeof key));
    if (value == NULL) {
        mst__free(job);
        return MST_ENOMEM;
    }
    *(struct mst__replay_job **)value = job;
    job->replay = replay;
    job->number = number;
    *ret_job = job;
    return 0;
}

static void remove_all(struct mst__replay *replay)
{
    void *value;
    while ((value = mst__map_first(&replay->jobs)) != NULL) {
        job_remove(replay, *(struct mst__replay_job **)value);
    }
}

/* --- life --- */

void mst__replay_init(struct mst__replay *replay, const struct mst__replay_listener *listener)
{
    static const uint8_t key[MST_SIPHASH_KEY_SIZE] = {0};
    *replay = (struct mst__replay){.listener = *listener};
    mst__map_init(&replay->jobs, sizeof(struct mst__replay_job *), key);
}

void mst__replay_close(struct mst__replay *replay)
{
    remove_all(replay);
    mst__map_close(&replay->jobs);
}

/* --- records --- */

static void on_moved(void *arg,
                     enum mst__authority_phase from,
                     enum mst__authority_phase to,
                     enum mst__authority_why why,
                     int64_t round)
{
    const struct mst__replay_job *job = arg;
    TELL(job->replay, moved, job, from, to, why, round);
}

static void on_ended(void *arg,
                     const struct mst__authority_member *member,
                     enum mst__authority_ended how,
                     uint32_t count)
{
    const struct mst__replay_job *job = arg;
    TELL(job->replay, ended, job, member, how, count);
}

static int take_begin(struct mst__replay *replay, const struct mst__journal_begin *begin)
{
    if (begin->version != MST_JOURNAL_VERSION) {
        return MST_EPROTO;
    }
    remove_all(replay);
    replay->has_begun = true;
    replay->wall_us = (int64_t)((uint64_t)begin->wall_us - (uint64_t)begin->now_us);
    TELL(replay, begun, begin);
    return 0;
}

static int take_state(struct mst__replay *replay, const struct mst__journal_record *record)
{
    struct mst__replay_job *job = job_find(replay, record->job);
    int rv = 0;
    if (record->kind == MST_JOURNAL_JOB && job == NULL) {
        rv = job_add(replay, record->job, &job);
    } else if (record->kind == MST_JOURNAL_JOB) {
        job_clear(job);
    }
    if (rv != 0 || job == NULL) {
        return rv != 0 ? rv : MST_EPROTO;
    }
    const struct mst__authority_options options = {
        .trace = on_moved, .ended = on_ended, .trace_arg = job};
    rv = mst__journal_restore(&job->state, record, &options, &job->authority);
    if (rv == 0 && record->kind == MST_JOURNAL_JOB) {
        job->run_id_size = job->state.run_id.size;
        MST_ASSERT(job->run_id_size < sizeof job->run_id);
        memcpy(job->run_id, job->state.run_id.data, job->run_id_size);
        job->run_id[job->run_id_size] = '\0';
    } else if (rv == 0 && job->state.is_ready) {
        TELL(replay, founded, job);
    }
    return rv;
}

static void take_event(struct mst__replay_job *job, const struct mst__authority_event *event)
{
    struct mst_err err = {0};
    MST_ASSERT(job->state.is_ready);
    TELL(job->replay, fed, job, event);
    int rv = mst__authority_step(&job->authority, event, &err);
    TELL(job->replay, answered, job, event, rv, &err);
}

static void take_effect(struct mst__replay_job *job)
{
    struct mst__authority_effect effect;
    if (mst__authority_next_effect(&job->authority, &effect)) {
        TELL(job->replay, told, job, &effect);
    }
}

int mst__replay_take(struct mst__replay *replay, struct mst_bytes fields)
{
    struct mst__journal_record record;
    int rv = mst__journal_decode(fields, &replay->last_us, &record);
    if (rv != 0) {
        return rv;
    }
    if (record.kind == MST_JOURNAL_BEGIN) {
        return take_begin(replay, &record.u.begin);
    }
    if (!replay->has_begun) {
        return MST_EPROTO;
    }
    if (record.kind >= MST_JOURNAL_JOB && record.kind <= MST_JOURNAL_READY) {
        return take_state(replay, &record);
    }
    struct mst__replay_job *job = mst__replay_job(replay, record.job);
    if (job == NULL) {
        return MST_EPROTO;
    }
    switch (record.kind) {
        case MST_JOURNAL_TAKEN:
            take_effect(job);
            return 0;
        case MST_JOURNAL_GAP:
            TELL(replay, missing, job, record.u.count);
            return 0;
        case MST_JOURNAL_FORGOTTEN:
            TELL(replay, forgotten, job);
            job_remove(replay, job);
            return 0;
        default:
            take_event(job, &record.u.event.event);
            return 0;
    }
}
