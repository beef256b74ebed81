/* net/job_journal.c - the loop's side of the journal: which jobs are in the file, and what is
 * missing. */
#include "net/job_journal.h"

#include <muster/version.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/journal_file.h"
#include "net/server.h"

struct mst__job_journal {
    struct mst__journal_file *file;
    atomic_bool reopen_wanted;
    bool needs_begin;    /* the next record must be a BEGIN */
    uint32_t generation; /* jobs of another generation are not in the file */
    uint32_t failed;     /* records of this generation or an earlier one may be missing */
    uint32_t numbers;    /* numbers given to jobs */
    uint64_t size_max;
    uint64_t size; /* bytes of the file and of the buffer */
    /* Of those, bytes that another file would not begin with: events, and all of earlier
     * generations. */
    uint64_t past_size;
};

/* The written records cannot be continued: begin a new generation. */
static void journal_renew(struct mst__job_journal *journal)
{
    journal->needs_begin = true;
    journal->generation++;
    journal->past_size = journal->size;
}

/* Begin another file with a new generation. False if the last such request is pending. */
static bool journal_cut(struct mst__job_journal *journal, bool renames)
{
    if (!mst__journal_file_cut(journal->file, renames)) {
        return false;
    }
    journal->size = 0; /* also if the old file could not be moved: it is rotated later */
    journal_renew(journal);
    return true;
}

int mst__server_journal(struct mst_server *server,
                        const char *path,
                        uint64_t size_max,
                        struct mst_err *reterr)
{
    struct mst__job_journal *journal = mst__calloc(1, sizeof *journal);
    if (journal == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "journal");
    }
    atomic_init(&journal->reopen_wanted, false);
    journal->size_max = size_max;
    int rv =
        mst__journal_file_open(path, &server->options.log, &journal->file, &journal->size, reterr);
    if (rv != 0) {
        mst__free(journal);
        return rv;
    }
    journal_renew(journal);
    server->jobs.journal = journal;
    return 0;
}

void mst__job_journal_close(struct mst_server *server)
{
    struct mst__job_journal *journal = server->jobs.journal;
    if (journal != NULL) {
        mst__journal_file_close(journal->file);
        mst__free(journal);
    }
    server->jobs.journal = NULL;
}

void mst__server_journal_reopen(struct mst_server *server)
{
    if (server->jobs.journal != NULL) {
        atomic_store(&server->jobs.journal->reopen_wanted, true);
        (void)uv_async_send(&server->wake); /* fails only on a closed handle: then it has stopped */
    }
}

void mst__job_journal_look(struct mst_server *server)
{
    struct mst__job_journal *journal = server->jobs.journal;
    if (journal == NULL || !atomic_exchange(&journal->reopen_wanted, false)) {
        return;
    }
    (void)mst__journal_file_lock(journal->file);
    (void)journal_cut(journal, false); /* one is enough */
    mst__journal_file_unlock(journal->file);
}

/* Begin another file when this one has its size and a good part of it is of the past: the state of
 * many jobs alone may be larger. */
static void journal_rotate(struct mst__job_journal *journal)
{
    if (journal->size >= journal->size_max && journal->past_size >= journal->size_max / 2) {
        (void)journal_cut(journal, true); /* else one is under way */
    }
}

static int write_begin(struct mst__job_journal *journal, struct mst__journal *to)
{
    const struct mst__journal_begin begin = {
        .version = MST_JOURNAL_VERSION,
        .software = mst_bytes_str(mst_version()),
        .wall_us = mst__clock_wall_us(),
        .now_us = mst__clock_us(),
    };
    int rv = journal->needs_begin ? mst__journal_write_begin(to, &begin) : 0;
    journal->needs_begin = journal->needs_begin && rv != 0;
    return rv;
}

static int write_state(struct mst__job_journal *journal,
                       struct mst__journal *to,
                       struct mst__job *job)
{
    struct mst__job_journaled *journaled = &job->journaled;
    if (journaled->number == 0) {
        journaled->number = ++journal->numbers;
    }
    bool was_in = journaled->generation > 0;
    journaled->has_gap = journaled->has_gap || (was_in && journaled->generation <= journal->failed);
    int rv = mst__journal_write_job(to, journaled->number,
                                    mst_bytes_of(job->run_id, job->run_id_size), &job->authority);
    if (rv == 0 && journaled->has_gap) {
        rv = mst__journal_write_mark(to, journaled->number, MST_JOURNAL_GAP, journaled->missing);
    }
    if (rv == 0) {
        journaled->generation = journal->generation;
        journaled->missing = 0;
        journaled->has_gap = false;
    }
    return rv;
}

/* There is no room for a record of @job. */
static void journal_miss(struct mst__job_journal *journal, struct mst__job *job)
{
    struct mst__job_journaled *journaled = &job->journaled;
    if (!journaled->has_gap) {
        mst__log(&job->server->options.log, MST_LOG_WARN, "journal.gap", "run=%s",
                 MST_LOG_TEXT(job->run_id));
    }
    journaled->has_gap = true;
    journaled->generation = 0;
    mst__journal_file_set_full(journal->file);
}

void mst__job_journal_before(struct mst__job *job)
{
    struct mst__job_journal *journal = job->server->jobs.journal;
    if (journal == NULL) {
        return;
    }
    struct mst__journal *to = mst__journal_file_lock(journal->file);
    if (mst__journal_file_take_failed(journal->file)) {
        journal->failed = journal->generation;
        journal_renew(journal);
    }
    journal_rotate(journal);
    if (job->journaled.generation != journal->generation &&
        !mst__journal_file_is_full(journal->file)) {
        size_t before = mst__buf_size(&to->output);
        int rv = write_begin(journal, to);
        rv = rv == 0 ? write_state(journal, to, job) : rv;
        journal->size += mst__buf_size(&to->output) - before;
        if (rv != 0) {
            journal_miss(journal, job);
        }
    }
    mst__journal_file_unlock(journal->file);
}

/* Handle the result of writing a record that began at @before. */
static void journal_wrote(struct mst__job_journal *journal,
                          struct mst__job *job,
                          const struct mst__journal *to,
                          size_t before,
                          int rv)
{
    if (rv == 0) {
        size_t size = mst__buf_size(&to->output) - before;
        journal->size += size;
        journal->past_size += size;
    } else {
        job->journaled.missing++;
        journal_miss(journal, job);
    }
}

void mst__job_journal_event(struct mst__job *job,
                            const struct mst__authority_event *event,
                            uint64_t contact,
                            int rv)
{
    struct mst__job_journal *journal = job->server->jobs.journal;
    if (journal == NULL) {
        return;
    }
    bool is_starved = rv != 0 && event->kind == MST_AUTHORITY_EVENT_ANNOUNCED &&
                      job->authority.refusal == MST_REFUSAL_MEMORY;
    struct mst__journal *to = mst__journal_file_lock(journal->file);
    size_t before = mst__buf_size(&to->output);
    bool is_in = job->journaled.generation == journal->generation;
    int result =
        is_in ? mst__journal_write_event(to, job->journaled.number, event, contact, is_starved)
              : MST_ELIMIT;
    journal_wrote(journal, job, to, before, result);
    mst__journal_file_unlock(journal->file);
}

void mst__job_journal_mark(struct mst__job *job, enum mst__journal_kind kind)
{
    struct mst__job_journal *journal = job->server->jobs.journal;
    if (journal == NULL || job->journaled.generation != journal->generation) {
        return; /* it was counted with its event */
    }
    struct mst__journal *to = mst__journal_file_lock(journal->file);
    size_t before = mst__buf_size(&to->output);
    int rv = mst__journal_write_mark(to, job->journaled.number, kind, 0);
    journal_wrote(journal, job, to, before, rv);
    mst__journal_file_unlock(journal->file);
}
