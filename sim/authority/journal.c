/* sim/authority/journal.c - the server's events are written to a journal and replayed into another
 * authority, which must make the same decisions: after each batch, effects and states of both are
 * compared (rule "replay"). From time to time the replay begins anew from the state in the journal.
 * A state with many members is compared less often, so that the cost per event does not grow. A
 * difference is not missed: it stays until the replay begins anew.
 *
 * Only some runs do this, because it takes time. */
#include <inttypes.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "sim/authority/authority.h"

/* One run in this many has a journal, with the whole state after this many events, or as many as
 * there are members. */
#define RUNS 8
#define STATE_EVENTS 150

/* Up to this many members the states are compared after every event. */
#define COMPARED_MEMBERS 64

/* The number of the job and its origin; any values. */
#define JOB 7

static void effect_put(struct mst__buf *to, const struct mst__authority_effect *effect)
{
    char text[200];
    int size = snprintf(text, sizeof text,
                        "%d %" PRIu64 " %" PRIu64 "/%" PRId64 " %" PRId64 " %" PRIu32 " %" PRIu32
                        " %d %" PRIu32 " %zu %zu %d %d|",
                        (int)effect->kind, effect->id, effect->epoch, effect->round,
                        effect->round_next, effect->world, effect->rank, (int)effect->why,
                        effect->waiting_count, effect->lost_count, effect->lost_total,
                        (int)effect->outcome, (int)effect->has_cause);
    MST_ASSERT(size > 0 && (size_t)size < sizeof text);
    int rv = mst__buf_append(to, mst_bytes_of(text, (size_t)size));
    MST_ASSERT(rv == 0);
}

static void on_told(void *arg,
                    const struct mst__replay_job *job,
                    const struct mst__authority_effect *effect)
{
    struct mst__sim_auth_journal *journal = arg;
    (void)job;
    effect_put(&journal->retold, effect);
}

/* Feed the journal to the replay. */
static void journal_feed(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_journal *journal = &sim->journal;
    struct mst__buf *output = &journal->writer.output;
    int rv = 0;
    while (rv == 0 && mst__buf_size(output) > 0) {
        struct mst_bytes fields;
        size_t size = 0;
        rv = mst__journal_read(mst__buf_bytes(output), &fields, &size) == 1
                 ? mst__replay_take(&journal->replay, fields)
                 : MST_EPROTO;
        mst__buf_consume(output, size);
    }
    if (rv != 0) {
        mst__buf_clear(output);
        mst__sim_auth_break(sim, "replay", "a record cannot be read: %s", mst_errname(rv));
    }
}

static void journal_state(struct mst__sim_auth *sim)
{
    int rv = mst__journal_write_job(&sim->journal.writer, JOB, mst_bytes_str("sim"),
                                    &sim->server.authority);
    MST_ASSERT(rv == 0);
    journal_feed(sim);
}

static void journal_compare(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_journal *journal = &sim->journal;
    const struct mst__replay_job *job = mst__replay_job(&journal->replay, JOB);
    const struct mst__authority *authorities[2] = {&sim->server.authority, &job->authority};
    for (size_t i = 0; i < 2; i++) {
        mst__buf_clear(&journal->states[i].output);
        int rv =
            mst__journal_write_job(&journal->states[i], JOB, mst_bytes_str("sim"), authorities[i]);
        MST_ASSERT(rv == 0);
    }
    if (!mst__bytes_equal(mst__buf_bytes(&journal->states[0].output),
                          mst__buf_bytes(&journal->states[1].output))) {
        mst__sim_auth_break(sim, "replay", "the server has another state than a replay of it");
    }
    journal->news = 0;
}

void mst__sim_auth_journal_open(struct mst__sim_auth *sim, uint64_t seed)
{
    struct mst__sim_auth_journal *journal = &sim->journal;
    const struct mst__replay_listener listener = {.told = on_told, .arg = journal};
    journal->is_on = seed % RUNS == 0;
    mst__journal_init(&journal->writer, MST_MIB(16));
    mst__replay_init(&journal->replay, &listener);
    for (size_t i = 0; i < 2; i++) {
        mst__journal_init(&journal->states[i], MST_MIB(16));
    }
    mst__buf_init(&journal->told, MST_MIB(16));
    mst__buf_init(&journal->retold, MST_MIB(16));
}

void mst__sim_auth_journal_close(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_journal *journal = &sim->journal;
    mst__journal_close(&journal->writer);
    mst__replay_close(&journal->replay);
    for (size_t i = 0; i < 2; i++) {
        mst__journal_close(&journal->states[i]);
    }
    mst__buf_close(&journal->told);
    mst__buf_close(&journal->retold);
}

void mst__sim_auth_journal_job(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_journal *journal = &sim->journal;
    if (!journal->is_on) {
        return;
    }
    const struct mst__journal_begin begin = {.version = MST_JOURNAL_VERSION,
                                             .software = mst_bytes_str("sim"),
                                             .wall_us = sim->now_us,
                                             .now_us = sim->now_us};
    int rv = mst__journal_write_begin(&journal->writer, &begin);
    MST_ASSERT(rv == 0);
    journal_state(sim);
    journal->events = 0;
    journal->news = 0;
}

void mst__sim_auth_journal_step(struct mst__sim_auth *sim, const struct mst__authority_event *event)
{
    struct mst__sim_auth_journal *journal = &sim->journal;
    if (!journal->is_on || sim->is_over) {
        return;
    }
    bool is_cut = event->kind == MST_AUTHORITY_EVENT_DISCONNECTED;
    uint64_t contact = is_cut ? ((const struct mst__sim_auth_link *)event->driver)->id : 0;
    int rv = mst__journal_write_event(&journal->writer, JOB, event, contact, false);
    MST_ASSERT(rv == 0);
    journal_feed(sim);
    journal->news++;
    journal->events++;
    if (journal->events >= STATE_EVENTS && journal->events >= sim->server.authority.used_count &&
        !sim->is_over) {
        journal_compare(sim);
        journal_state(sim);
        journal->events = 0;
    }
}

static void journal_mark(struct mst__sim_auth *sim)
{
    int rv = mst__journal_write_mark(&sim->journal.writer, JOB, MST_JOURNAL_TAKEN, 0);
    MST_ASSERT(rv == 0);
    journal_feed(sim);
}

void mst__sim_auth_journal_told(struct mst__sim_auth *sim,
                                const struct mst__authority_effect *effect)
{
    if (sim->journal.is_on && !sim->is_over) {
        effect_put(&sim->journal.told, effect);
        journal_mark(sim);
    }
}

void mst__sim_auth_journal_taken(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_journal *journal = &sim->journal;
    if (!journal->is_on || sim->is_over) {
        return;
    }
    journal_mark(sim);
    if (sim->is_over) {
        return;
    }
    if (!mst__bytes_equal(mst__buf_bytes(&journal->told), mst__buf_bytes(&journal->retold))) {
        mst__sim_auth_break(sim, "replay", "the server tells %.*s, a replay of it %.*s",
                            (int)mst__buf_size(&journal->told),
                            (const char *)mst__buf_bytes(&journal->told).data,
                            (int)mst__buf_size(&journal->retold),
                            (const char *)mst__buf_bytes(&journal->retold).data);
    }
    size_t members = sim->server.authority.used_count;
    if (journal->news > 0 && (members <= COMPARED_MEMBERS || journal->news > members)) {
        journal_compare(sim);
    }
    mst__buf_clear(&journal->told);
    mst__buf_clear(&journal->retold);
}

void mst__sim_auth_journal_end(struct mst__sim_auth *sim)
{
    if (sim->journal.news > 0 && sim->server.has_job && sim->rule == NULL) {
        journal_compare(sim);
    }
}
