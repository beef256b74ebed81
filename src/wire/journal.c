/* wire/journal.c - records, and events in them. */
#include "wire/journal.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/siphash.h"
#include "wire/journal_self.h"

static_assert(MST_JOURNAL_RECORD_SIZE_MAX <= UINT16_MAX, "sizes have two bytes");

/* --- records --- */

static uint32_t record_check(struct mst_bytes fields)
{
    static const uint8_t key[MST_SIPHASH_KEY_SIZE] = {0};
    return (uint32_t)mst__siphash(key, fields.data, fields.size);
}

void mst__journal_init(struct mst__journal *journal, size_t size_max)
{
    *journal = (struct mst__journal){.last_us = 0};
    mst__buf_init(&journal->output, size_max);
}

void mst__journal_close(struct mst__journal *journal)
{
    mst__buf_close(&journal->output);
}

void mst__journal_make(struct mst__journal_making *making,
                       struct mst__journal *journal,
                       enum mst__journal_kind kind,
                       uint32_t job)
{
    static const uint8_t head[MST_JOURNAL_HEAD_SIZE] = {0};
    *making = (struct mst__journal_making){
        .journal = journal,
        .before = mst__buf_size(&journal->output),
        .visitor = {.output = &journal->output, .is_compact = true},
    };
    struct mst__visitor *visitor = &making->visitor;
    uint8_t number = (uint8_t)kind;
    mst__visit_appended(visitor,
                        mst__buf_append(&journal->output, mst_bytes_of(head, sizeof head)));
    mst__visit_u8(visitor, &number);
    if (kind != MST_JOURNAL_BEGIN) {
        mst__visit_u32(visitor, &job);
    }
}

int mst__journal_made(struct mst__journal_making *making)
{
    struct mst__buf *output = &making->journal->output;
    struct mst_bytes record = mst__bytes_skip(mst__buf_bytes(output), making->before);
    int rv = making->visitor.rv;
    if (rv == 0 && record.size > MST_JOURNAL_HEAD_SIZE + MST_JOURNAL_RECORD_SIZE_MAX) {
        rv = MST_ELIMIT;
    }
    if (rv != 0) {
        mst__buf_truncate(output, making->before);
        return rv == MST_EPROTO ? MST_ELIMIT : rv; /* too large for the format */
    }
    struct mst_bytes fields = mst__bytes_skip(record, MST_JOURNAL_HEAD_SIZE);
    uint8_t *head = output->memory + output->start + making->before;
    mst__store_u32(head, record_check(fields));
    head[4] = (uint8_t)fields.size;
    head[5] = (uint8_t)(fields.size >> 8);
    return 0;
}

int mst__journal_read(struct mst_bytes input, struct mst_bytes *ret_fields, size_t *ret_size)
{
    if (input.size < MST_JOURNAL_HEAD_SIZE) {
        return 0;
    }
    size_t size = (size_t)input.data[4] | (size_t)input.data[5] << 8;
    if (size == 0 || size > MST_JOURNAL_RECORD_SIZE_MAX) {
        return MST_EPROTO;
    }
    if (input.size < MST_JOURNAL_HEAD_SIZE + size) {
        return 0;
    }
    *ret_fields = mst_bytes_of(input.data + MST_JOURNAL_HEAD_SIZE, size);
    *ret_size = MST_JOURNAL_HEAD_SIZE + size;
    MST_ASSERT(*ret_size <= input.size);
    return record_check(*ret_fields) == mst__load_u32(input.data) ? 1 : MST_EPROTO;
}

/* --- fields --- */

static void visit_begin(struct mst__visitor *visitor, struct mst__journal_begin *begin)
{
    struct mst_bytes magic = mst_bytes_str(MST_JOURNAL_MAGIC);
    mst__visit_text(visitor, &magic);
    if (!mst__bytes_equal(magic, mst_bytes_str(MST_JOURNAL_MAGIC))) {
        mst__visit_appended(visitor, MST_EPROTO);
    }
    mst__visit_u32(visitor, &begin->version);
    mst__visit_text(visitor, &begin->software);
    mst__visit_i64(visitor, &begin->wall_us);
    mst__visit_i64(visitor, &begin->now_us);
}

/* As the time since @last_us. */
static void visit_time(struct mst__visitor *visitor, int64_t last_us, int64_t *now_us)
{
    int64_t since_us = (int64_t)((uint64_t)*now_us - (uint64_t)last_us);
    mst__visit_i64(visitor, &since_us);
    *now_us = (int64_t)((uint64_t)last_us + (uint64_t)since_us);
    if (*now_us > MST_JOURNAL_TIME_MAX) {
        mst__visit_appended(visitor, MST_EPROTO);
    }
}

static void visit_announced(struct mst__visitor *visitor, struct mst__journal_event *record)
{
    struct mst__announcement *announcement = &record->announcement;
    mst__visit_bool(visitor, &record->is_starved);
    mst__visit_u64(visitor, &announcement->contact);
    mst__visit_i64(visitor, &announcement->wall_here_us);
    mst__visit_announcement(visitor, announcement, record->labels);
    if (mst__visit_more(visitor)) { /* missing in the first journals */
        mst__visit_bool(visitor, &announcement->is_fixed);
    }
    if (mst__visit_more(visitor)) { /* the same */
        mst__visit_workers(visitor, announcement);
    }
}

/* The two halves separately: both are small. */
static void visit_id(struct mst__visitor *visitor, mst__authority_id *id)
{
    uint32_t index = (uint32_t)*id;
    uint32_t generation = (uint32_t)(*id >> 32);
    mst__visit_u32(visitor, &index);
    mst__visit_u32(visitor, &generation);
    *id = (uint64_t)generation << 32 | index;
}

/* The fields of an event whose kind is set. */
static void visit_event(struct mst__visitor *visitor, struct mst__journal_event *record)
{
    struct mst__authority_event *event = &record->event;
    switch (event->kind) {
        case MST_AUTHORITY_EVENT_ANNOUNCED:
        case MST_AUTHORITY_EVENT_KEPT:
            visit_announced(visitor, record);
            return;
        case MST_AUTHORITY_EVENT_DISCONNECTED:
            visit_id(visitor, &event->id);
            mst__visit_u64(visitor, &record->contact);
            return;
        case MST_AUTHORITY_EVENT_FINISHED:
        case MST_AUTHORITY_EVENT_FAILED:
        case MST_AUTHORITY_EVENT_LEAVING:
            visit_id(visitor, &event->id);
            mst__visit_u64(visitor, &event->epoch);
            mst__visit_i64(visitor, &event->round);
            if (event->kind == MST_AUTHORITY_EVENT_FAILED) {
                mst__visit_failure(visitor, &record->cause);
                mst__visit_report(visitor, &record->cause);
            } else if (event->kind == MST_AUTHORITY_EVENT_LEAVING) {
                mst__visit_i64(visitor, &event->in_us);
            }
            return;
        case MST_AUTHORITY_EVENT_RESTORED:
            mst__visit_u64(visitor, &event->epoch);
            mst__visit_i64(visitor, &event->round);
            mst__visit_u32(visitor, &event->world);
            return;
        case MST_AUTHORITY_EVENT_SHUT:
            mst__visit_text(visitor, &event->reason);
            mst__visit_text(visitor, &event->owner);
            return;
        case MST_AUTHORITY_EVENT_HEARD:
        case MST_AUTHORITY_EVENT_LEFT:
        case MST_AUTHORITY_EVENT_DEAD:
            visit_id(visitor, &event->id);
            return;
        case MST_AUTHORITY_EVENT_TIME:
        case MST_AUTHORITY_EVENT_SETTLED:
            return;
    }
}

/* --- writing --- */

int mst__journal_write_begin(struct mst__journal *journal, const struct mst__journal_begin *begin)
{
    struct mst__journal_making making;
    struct mst__journal_begin copy = *begin;
    mst__journal_make(&making, journal, MST_JOURNAL_BEGIN, 0);
    visit_begin(&making.visitor, &copy);
    int rv = mst__journal_made(&making);
    if (rv == 0) {
        journal->last_us = begin->now_us;
    }
    return rv;
}

int mst__journal_write_event(struct mst__journal *journal,
                             uint32_t job,
                             const struct mst__authority_event *event,
                             uint64_t contact,
                             bool is_starved)
{
    struct mst__journal_event record;
    MST_ASSERT(event->kind < MST_AUTHORITY_EVENT_COUNT);
    record.event = *event;
    record.contact = contact;
    record.is_starved = is_starved;
    if (event->kind == MST_AUTHORITY_EVENT_ANNOUNCED || event->kind == MST_AUTHORITY_EVENT_KEPT) {
        record.announcement = *event->announcement;
    } else if (event->kind == MST_AUTHORITY_EVENT_FAILED) {
        record.cause = *event->cause;
    }
    struct mst__journal_making making;
    mst__journal_make(&making, journal,
                      (enum mst__journal_kind)(MST_JOURNAL_EVENT + (unsigned)event->kind), job);
    visit_time(&making.visitor, journal->last_us, &record.event.now_us);
    visit_event(&making.visitor, &record);
    int rv = mst__journal_made(&making);
    if (rv == 0) {
        journal->last_us = event->now_us;
    }
    return rv;
}

int mst__journal_write_mark(struct mst__journal *journal,
                            uint32_t job,
                            enum mst__journal_kind kind,
                            uint64_t count)
{
    struct mst__journal_making making;
    MST_ASSERT(kind == MST_JOURNAL_TAKEN || kind == MST_JOURNAL_GAP ||
               kind == MST_JOURNAL_FORGOTTEN);
    mst__journal_make(&making, journal, kind, job);
    if (kind == MST_JOURNAL_GAP) {
        mst__visit_u64(&making.visitor, &count);
    }
    return mst__journal_made(&making);
}

/* --- reading --- */

static void decode_event(struct mst__visitor *visitor,
                         unsigned kind,
                         int64_t *last_us,
                         struct mst__journal_record *record)
{
    struct mst__journal_event *event = &record->u.event;
    MST_ASSERT(kind < MST_AUTHORITY_EVENT_COUNT);
    record->kind = MST_JOURNAL_EVENT;
    *event = (struct mst__journal_event){.event.kind = (enum mst__authority_event_kind)kind};
    visit_time(visitor, *last_us, &event->event.now_us);
    visit_event(visitor, event);
    *last_us = event->event.now_us;
    if (event->event.kind == MST_AUTHORITY_EVENT_ANNOUNCED ||
        event->event.kind == MST_AUTHORITY_EVENT_KEPT) {
        event->announcement.labels = event->labels;
        event->announcement.memory_max = event->is_starved ? 1 : 0;
        event->announcement.driver = (void *)(uintptr_t)event->announcement.contact;
        event->event.announcement = &event->announcement;
    } else if (event->event.kind == MST_AUTHORITY_EVENT_DISCONNECTED) {
        event->event.driver = (const void *)(uintptr_t)event->contact;
    } else if (event->event.kind == MST_AUTHORITY_EVENT_FAILED) {
        event->event.cause = &event->cause;
    }
}

int mst__journal_decode(struct mst_bytes fields,
                        int64_t *last_us,
                        struct mst__journal_record *ret_record)
{
    struct mst__visitor visitor = {.input = fields, .is_compact = true};
    uint8_t kind = 0;
    mst__visit_u8(&visitor, &kind);
    ret_record->kind = (enum mst__journal_kind)kind;
    ret_record->job = 0;
    if (kind == MST_JOURNAL_BEGIN) {
        ret_record->u.begin = (struct mst__journal_begin){.now_us = 0};
        visit_begin(&visitor, &ret_record->u.begin);
        *last_us = ret_record->u.begin.now_us;
    } else {
        mst__visit_u32(&visitor, &ret_record->job);
    }
    if (kind >= MST_JOURNAL_EVENT + MST_AUTHORITY_EVENT_COUNT || kind == 0 ||
        (kind > MST_JOURNAL_FORGOTTEN && kind < MST_JOURNAL_EVENT)) {
        return MST_EPROTO;
    }
    if (kind >= MST_JOURNAL_EVENT) {
        decode_event(&visitor, (unsigned)kind - MST_JOURNAL_EVENT, last_us, ret_record);
    } else if (kind == MST_JOURNAL_GAP) {
        mst__visit_u64(&visitor, &ret_record->u.count);
    } else if (kind >= MST_JOURNAL_JOB && kind <= MST_JOURNAL_READY) {
        mst__visit_rest(&visitor, &ret_record->u.rest);
    }
    ret_record->now_us = *last_us;
    return visitor.rv;
}
