/* fuzz/fuzz_journal.c - any bytes as a journal.
 *
 * The input is a journal file. Checksums are not checked, because the fuzzer would not get past
 * them. As in `muster replay`, each record is either invalid, which ends the run, or leaves
 * authorities whose invariants hold. The state of a job is written and read once more, and must
 * be the same. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "wire/replay.h"

/* Limits that keep any input cheap. */
enum { RECORDS_MAX = 2000 };

static void on_told(void *arg,
                    const struct mst__replay_job *job,
                    const struct mst__authority_effect *effect)
{
    (void)effect;
    size_t *count = arg;
    MST_ASSERT((*count)++ < 10000000);
    MST_ASSERT(job->state.is_ready);
}

static void write_state(struct mst__journal *journal, const struct mst__replay_job *job)
{
    mst__journal_init(journal, MST_MIB(64));
    const struct mst__journal_begin begin = {.version = MST_JOURNAL_VERSION,
                                             .software = mst_bytes_str("fuzz")};
    int rv = mst__journal_write_begin(journal, &begin);
    MST_ASSERT(rv == 0);
    rv = mst__journal_write_job(journal, job->number, mst_bytes_of(job->run_id, job->run_id_size),
                                &job->authority);
    MST_ASSERT(rv == 0);
}

static void write_and_read(const struct mst__replay_job *job)
{
    static const struct mst__replay_listener nobody = {.arg = NULL};
    struct mst__journal first;
    struct mst__journal second;
    struct mst__replay replay;
    write_state(&first, job);
    mst__replay_init(&replay, &nobody);
    struct mst_bytes rest = mst__buf_bytes(&first.output);
    while (rest.size > 0) {
        struct mst_bytes fields;
        size_t size = 0;
        int rv = mst__journal_read(rest, &fields, &size);
        MST_ASSERT(rv == 1);
        rv = mst__replay_take(&replay, fields);
        MST_ASSERT(rv == 0);
        rest = mst__bytes_skip(rest, size);
    }
    const struct mst__replay_job *again = mst__replay_job(&replay, job->number);
    MST_ASSERT(again != NULL);
    write_state(&second, again);
    MST_ASSERT(mst__bytes_equal(mst__buf_bytes(&first.output), mst__buf_bytes(&second.output)));
    mst__replay_close(&replay);
    mst__journal_close(&first);
    mst__journal_close(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t told = 0;
    const struct mst__replay_listener listener = {.told = on_told, .arg = &told};
    struct mst__replay replay;
    mst__replay_init(&replay, &listener);
    int rv = 0;
    for (size_t at = 0, count = 0; rv == 0 && count < RECORDS_MAX; count++) {
        struct mst_bytes fields;
        size_t record_size;
        (void)mst__journal_read(mst_bytes_of(data + at, size - at), &fields, &record_size);
        if (size - at < MST_JOURNAL_HEAD_SIZE) {
            break;
        }
        size_t length = (size_t)data[at + 4] | (size_t)data[at + 5] << 8;
        at += MST_JOURNAL_HEAD_SIZE;
        length = length < size - at ? length : size - at;
        rv = mst__replay_take(&replay, mst_bytes_of(data + at, length));
        at += length;
        void *cursor = NULL;
        const struct mst__replay_job *job;
        while (rv == 0 && (job = mst__replay_next(&replay, &cursor)) != NULL) {
            mst__authority_check(&job->authority);
        }
    }
    void *cursor = NULL;
    const struct mst__replay_job *job;
    while (rv == 0 && (job = mst__replay_next(&replay, &cursor)) != NULL) {
        write_and_read(job);
    }
    mst__replay_close(&replay);
    return 0;
}
