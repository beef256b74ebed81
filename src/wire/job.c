/* wire/job.c - converts the messages of a job to bytes and back.
 *
 * Each message is a list of fields, written and read by the same function: it visits the fields in
 * order, and the visitor either appends or takes them. So the two directions cannot differ. */
#include "wire/job.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "wire/visit.h"

/* Bytes at the end of a SEALED: from the rank, and the ranks of the workers. */
#define SEALED_RANK_SIZE 28
#define SEALED_WORKER_RANKS_SIZE 16

static void visit_finish(struct mst__visitor *visitor, struct mst__job_finish *finish)
{
    mst__visit_u64(visitor, &finish->epoch);
    mst__visit_i64(visitor, &finish->round);
    mst__visit_i32(visitor, &finish->status);
    mst__visit_text(visitor, &finish->text);
}

static void visit_leaving(struct mst__visitor *visitor, struct mst__job_leaving *leaving)
{
    mst__visit_u64(visitor, &leaving->epoch);
    mst__visit_i64(visitor, &leaving->round);
    mst__visit_i64(visitor, &leaving->in_us);
}

static void visit_restart(struct mst__visitor *visitor, struct mst__job_restart *restart)
{
    mst__visit_u64(visitor, &restart->epoch);
    mst__visit_i64(visitor, &restart->round);
    mst__visit_failure(visitor, &restart->cause);
    mst__visit_report(visitor, &restart->cause);
}

static void visit_announce(struct mst__visitor *visitor, struct mst__job_announce *announce)
{
    mst__visit_u32(visitor, &announce->version);
    mst__visit_text(visitor, &announce->run_id);
    mst__visit_i64(visitor, &announce->heartbeat_us);
    mst__visit_announcement(visitor, &announce->announcement, announce->labels);
    if (mst__visit_more(visitor)) {
        mst__visit_bool(visitor, &announce->is_new);
    }
    if (mst__visit_more(visitor)) {
        mst__visit_bool(visitor, &announce->announcement.is_fixed);
    }
    if (mst__visit_more(visitor)) {
        mst__visit_workers(visitor, &announce->announcement);
    }
}

static void visit_round(struct mst__visitor *visitor, struct mst__job_round *round, bool is_sealed)
{
    mst__visit_u64(visitor, &round->epoch);
    mst__visit_i64(visitor, &round->round);
    mst__visit_u32(visitor, &round->world);
    if (is_sealed) {
        mst__visit_text(visitor, &round->address);
        mst__visit_u32(visitor, &round->rank);
    }
    if (is_sealed && mst__visit_more(visitor)) {
        mst__visit_u32(visitor, &round->restarts);
        mst__visit_u32(visitor, &round->start);
    }
    if (is_sealed && mst__visit_more(visitor)) {
        mst__visit_worker_ranks(visitor, &round->worker_ranks);
    }
}

static void visit_lost(struct mst__visitor *visitor, struct mst__job_lost *lost)
{
    mst__visit_i64(visitor, &lost->round);
    mst__visit_u32(visitor, &lost->count);
    mst__visit_count(visitor, &lost->named, MST_JOB_NAMES_MAX);
    MST_ASSERT(lost->named <= MST_JOB_NAMES_MAX);
    for (uint32_t i = 0; i < lost->named; i++) {
        mst__visit_u32(visitor, &lost->ranks[i]);
        mst__visit_text(visitor, &lost->names[i]);
    }
    mst__visit_u32(visitor, &lost->total);
}

static void visit_status(struct mst__visitor *visitor, struct mst__job_status *status)
{
    mst__visit_text(visitor, &status->run_id);
    mst__visit_u32(visitor, &status->phase);
    mst__visit_u64(visitor, &status->epoch);
    mst__visit_i64(visitor, &status->round);
    mst__visit_i64(visitor, &status->round_next);
    mst__visit_u32(visitor, &status->world);
    mst__visit_u32(visitor, &status->nodes_min);
    mst__visit_u32(visitor, &status->nodes_max);
    mst__visit_i64(visitor, &status->last_call_us);
    mst__visit_text(visitor, &status->sentence);
    mst__visit_text(visitor, &status->reason);
    mst__visit_text(visitor, &status->owner);
    mst__visit_u32(visitor, &status->member_count);
    mst__visit_bool(visitor, &status->is_cut);
    mst__visit_text(visitor, &status->members);
    mst__visit_i64(visitor, &status->heartbeat_us);
    if (mst__visit_more(visitor)) {
        mst__visit_end(visitor, &status->end);
        mst__visit_budget(visitor, &status->budget);
        mst__visit_u32(visitor, &status->restarts);
        mst__visit_u32(visitor, &status->finished);
    }
    if (mst__visit_more(visitor)) {
        mst__visit_i64(visitor, &status->last_call_left_us);
        mst__visit_text(visitor, &status->details);
    } else {
        status->last_call_left_us = INT64_MAX;
    }
    if (mst__visit_more(visitor)) {
        mst__visit_u32(visitor, &status->restarts_total);
    } else {
        status->restarts_total = status->restarts;
    }
}

static void visit_detail(struct mst__visitor *visitor, struct mst__job_detail *detail)
{
    mst__visit_u32(visitor, &detail->gone);
    mst__visit_labels(visitor, detail->labels, detail->labels, &detail->labels_count);
}

static void visit_list(struct mst__visitor *visitor, struct mst__job_list *list)
{
    mst__visit_text(visitor, &list->server);
    mst__visit_u32(visitor, &list->total);
    mst__visit_u32(visitor, &list->count);
    mst__visit_text(visitor, &list->jobs);
    if (mst__visit_more(visitor)) {
        mst__visit_bool(visitor, &list->gives_way);
    }
}

static void visit_entry(struct mst__visitor *visitor, struct mst__job_entry *entry)
{
    mst__visit_text(visitor, &entry->run_id);
    mst__visit_u32(visitor, &entry->phase);
    mst__visit_u64(visitor, &entry->epoch);
    mst__visit_i64(visitor, &entry->round);
    mst__visit_u32(visitor, &entry->world);
    mst__visit_u32(visitor, &entry->nodes_min);
    mst__visit_u32(visitor, &entry->nodes_max);
    mst__visit_u32(visitor, &entry->members);
    mst__visit_u32(visitor, &entry->waiting);
    mst__visit_u32(visitor, &entry->spares);
    mst__visit_u32(visitor, &entry->finished);
    mst__visit_u32(visitor, &entry->outcome);
    mst__visit_text(visitor, &entry->reason);
}

static void visit_member(struct mst__visitor *visitor, struct mst__job_member *member)
{
    mst__visit_text(visitor, &member->name);
    mst__visit_text(visitor, &member->address);
    mst__visit_u32(visitor, &member->standing);
    mst__visit_u32(visitor, &member->rank);
    mst__visit_u64(visitor, &member->incarnation);
    mst__visit_i64(visitor, &member->silent_us);
    mst__visit_bool(visitor, &member->has_skew);
    mst__visit_i64(visitor, &member->skew_us);
}

static void visit_welcome(struct mst__visitor *visitor, struct mst__job_message *message)
{
    mst__visit_u32(visitor, &message->u.welcome.version);
    mst__visit_u64(visitor, &message->u.welcome.epoch);
    mst__visit_bool(visitor, &message->u.welcome.has_skew);
    mst__visit_i64(visitor, &message->u.welcome.skew_us);
    mst__visit_text(visitor, &message->u.welcome.server);
}

static void visit_refused(struct mst__visitor *visitor, struct mst__job_message *message)
{
    mst__visit_i32(visitor, &message->u.refused.code);
    mst__visit_u32(visitor, &message->u.refused.refusal);
    mst__visit_text(visitor, &message->u.refused.text);
    if (mst__visit_more(visitor)) {
        mst__visit_end(visitor, &message->u.refused.end);
    }
    mst__visit_report(visitor, &message->u.refused.end.cause);
}

static void visit_reopened(struct mst__visitor *visitor, struct mst__job_message *message)
{
    mst__visit_i64(visitor, &message->u.reopened.round_next);
    mst__visit_u32(visitor, &message->u.reopened.why);
    mst__visit_u32(visitor, &message->u.reopened.rank);
    mst__visit_text(visitor, &message->u.reopened.name);
    if (mst__visit_more(visitor)) {
        mst__visit_cause(visitor, &message->u.reopened.end);
    }
    mst__visit_report(visitor, &message->u.reopened.end.cause);
}

static void visit_question(struct mst__visitor *visitor, struct mst__job_message *message)
{
    mst__visit_text(visitor, &message->u.question.run_id);
    if (mst__visit_more(visitor)) {
        mst__visit_u32(visitor, &message->u.question.version);
    }
}

static void visit_close(struct mst__visitor *visitor, struct mst__job_message *message)
{
    mst__visit_text(visitor, &message->u.close.run_id);
    mst__visit_text(visitor, &message->u.close.reason);
    mst__visit_text(visitor, &message->u.close.owner);
}

static void visit_closed(struct mst__visitor *visitor, struct mst__job_message *message)
{
    mst__visit_text(visitor, &message->u.closed.reason);
    mst__visit_text(visitor, &message->u.closed.owner);
    if (mst__visit_more(visitor)) {
        mst__visit_end(visitor, &message->u.closed.end);
        mst__visit_report(visitor, &message->u.closed.end.cause);
    }
}

/* Visit the fields of @message, whose type is set. */
static void visit_message(struct mst__visitor *visitor, struct mst__job_message *message)
{
    switch (message->type) {
        case MST_JOB_ANNOUNCE:
            visit_announce(visitor, &message->u.announce);
            break;
        case MST_JOB_HEARTBEAT:
            mst__visit_bool(visitor, &message->u.heartbeat.wants_pong);
            break;
        case MST_JOB_CLOSE:
            visit_close(visitor, message);
            break;
        case MST_JOB_STATUS:
            visit_question(visitor, message);
            break;
        case MST_JOB_CLOSED:
            visit_closed(visitor, message);
            break;
        case MST_JOB_WELCOME:
            visit_welcome(visitor, message);
            break;
        case MST_JOB_REFUSED:
            visit_refused(visitor, message);
            break;
        case MST_JOB_SEALED:
        case MST_JOB_QUEUED:
        case MST_JOB_SPARE:
            visit_round(visitor, &message->u.round, message->type == MST_JOB_SEALED);
            break;
        case MST_JOB_WAITING:
            mst__visit_u32(visitor, &message->u.waiting.count);
            break;
        case MST_JOB_LOST:
            visit_lost(visitor, &message->u.lost);
            break;
        case MST_JOB_REOPENED:
            visit_reopened(visitor, message);
            break;
        case MST_JOB_STATUS_TOLD:
            visit_status(visitor, &message->u.status);
            break;
        case MST_JOB_JOBS_TOLD:
            visit_list(visitor, &message->u.list);
            break;
        case MST_JOB_EXPELLED:
        case MST_JOB_STORE:
        case MST_JOB_STORE_END:
            mst__visit_rest(visitor, &message->u.text);
            break;
        case MST_JOB_FINISH:
            visit_finish(visitor, &message->u.finish);
            break;
        case MST_JOB_RESTART:
            visit_restart(visitor, &message->u.restart);
            break;
        case MST_JOB_LEAVING:
            visit_leaving(visitor, &message->u.leaving);
            break;
        case MST_JOB_LEAVE:
        case MST_JOB_PONG:
        case MST_JOB_GIVE_WAY:
            break;
    }
}

int mst__job_write(struct mst__buf *output, const struct mst__job_message *message)
{
    MST_ASSERT(mst__job_type_name(message->type) != NULL);
    size_t before = mst__buf_size(output);
    struct mst__job_message copy = *message; /* visiting works in both directions and takes no
                                                constants */
    struct mst__visitor visitor = {.output = output};
    mst__visit_appended(&visitor, mst__buf_append_u32(output, 0));
    mst__visit_appended(&visitor, mst__buf_append_u8(output, (uint8_t)message->type));
    visit_message(&visitor, &copy);
    if (visitor.rv != 0) {
        output->end = output->start + before;
        return visitor.rv == MST_EPROTO ? MST_ELIMIT : visitor.rv; /* too large for the format */
    }
    size_t size = mst__buf_size(output) - before - 4;
    MST_ASSERT(size > 0);
    MST_ASSERT(size <= UINT32_MAX);
    mst__store_u32(output->memory + output->start + before, (uint32_t)size);
    return 0;
}

/* Finish an item of a packed list: if there was no room, the list is unchanged. */
static int packed_end(const struct mst__visitor *visitor, size_t before)
{
    MST_ASSERT(mst__buf_size(visitor->output) >= before);
    if (visitor->rv != 0) {
        visitor->output->end = visitor->output->start + before;
    }
    return visitor->rv;
}

int mst__job_member_write(struct mst__buf *members, const struct mst__job_member *member)
{
    size_t before = mst__buf_size(members);
    struct mst__job_member copy = *member;
    struct mst__visitor visitor = {.output = members};
    visit_member(&visitor, &copy);
    return packed_end(&visitor, before);
}

bool mst__job_member_next(struct mst_bytes *members, struct mst__job_member *ret_member)
{
    *ret_member = (struct mst__job_member){0};
    struct mst__visitor visitor = {.input = *members};
    visit_member(&visitor, ret_member);
    MST_ASSERT(visitor.input.size <= members->size);
    *members = visitor.input;
    return visitor.rv == 0;
}

int mst__job_detail_write(struct mst__buf *details, const struct mst__job_detail *detail)
{
    size_t before = mst__buf_size(details);
    struct mst__job_detail copy = *detail;
    struct mst__visitor visitor = {.output = details};
    visit_detail(&visitor, &copy);
    return packed_end(&visitor, before);
}

bool mst__job_detail_next(struct mst_bytes *details, struct mst__job_detail *ret_detail)
{
    ret_detail->gone = MST_JOB_GONE_NOT;
    ret_detail->labels_count = 0;
    struct mst__visitor visitor = {.input = *details};
    visit_detail(&visitor, ret_detail);
    MST_ASSERT(visitor.input.size <= details->size);
    *details = visitor.input;
    ret_detail->labels_count = visitor.rv == 0 ? ret_detail->labels_count : 0;
    return visitor.rv == 0;
}

int mst__job_entry_write(struct mst__buf *jobs, const struct mst__job_entry *entry)
{
    size_t before = mst__buf_size(jobs);
    struct mst__job_entry copy = *entry;
    struct mst__visitor visitor = {.output = jobs};
    visit_entry(&visitor, &copy);
    return packed_end(&visitor, before);
}

bool mst__job_entry_next(struct mst_bytes *jobs, struct mst__job_entry *ret_entry)
{
    *ret_entry = (struct mst__job_entry){0};
    struct mst__visitor visitor = {.input = *jobs};
    visit_entry(&visitor, ret_entry);
    MST_ASSERT(visitor.input.size <= jobs->size);
    *jobs = visitor.input;
    return visitor.rv == 0;
}

void mst__job_patch_ranks(uint8_t *frame,
                          size_t size,
                          uint32_t rank,
                          const struct mst__worker_ranks *worker_ranks)
{
    MST_ASSERT(size > MST_JOB_HEAD_SIZE + SEALED_RANK_SIZE);
    MST_ASSERT(frame[4] == MST_JOB_SEALED);
    mst__store_u32(frame + size - SEALED_RANK_SIZE, rank);
    uint8_t *at = frame + size - SEALED_WORKER_RANKS_SIZE;
    mst__store_u32(at, worker_ranks->first);
    mst__store_u32(at + 4, worker_ranks->world);
    mst__store_u32(at + 8, worker_ranks->role_first);
    mst__store_u32(at + 12, worker_ranks->role_world);
}

int mst__job_read(struct mst_bytes input,
                  size_t size_max,
                  struct mst__job_message *ret_message,
                  size_t *ret_size,
                  struct mst_err *reterr)
{
    *ret_size = MST_JOB_HEAD_SIZE;
    if (input.size < MST_JOB_HEAD_SIZE) {
        return 0;
    }
    uint32_t size = mst__load_u32(input.data);
    enum mst__job_type type = (enum mst__job_type)input.data[4];
    const char *name = mst__job_type_name(type);
    if (size == 0 || name == NULL) {
        return mst__fail(reterr, MST_EPROTO, 0, "job frame of %u bytes and type %u", size,
                         input.data[4]);
    }
    bool is_large = type == MST_JOB_STATUS_TOLD || type == MST_JOB_JOBS_TOLD;
    size_t limit = is_large ? size_max : MST_JOB_SIZE_MAX;
    if (size > limit) {
        return mst__fail(reterr, MST_ELIMIT, 0, "job frame %s of %u bytes, at most %zu", name, size,
                         limit);
    }
    *ret_size = 4 + (size_t)size;
    if (input.size < *ret_size) {
        return 0;
    }
    *ret_message = (struct mst__job_message){.type = type};
    struct mst__visitor visitor = {
        .input = mst_bytes_of(input.data + MST_JOB_HEAD_SIZE, *ret_size - MST_JOB_HEAD_SIZE)};
    visit_message(&visitor, ret_message);
    MST_ASSERT(visitor.input.size <= *ret_size - MST_JOB_HEAD_SIZE); /* only this frame was read */
    if (visitor.rv != 0) {
        return mst__fail(reterr, MST_EPROTO, 0, "malformed job frame %s of %u bytes", name, size);
    }
    return 1;
}
