/* wire/job.c - the messages of a job to bytes and back.
 *
 * Each message is a list of fields, written and read by the same function: it visits the fields in
 * order, and the visitor either appends or takes them. So the two directions cannot differ. */
#include "wire/job.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"

/* Goes over the fields of a message. One of the two is set: output to write, input to read. */
struct visitor {
    struct mst__buf *output;
    struct mst_bytes input;
    int rv; /* the first error; the fields behind it are left alone */
};

/* Note what came of appending. */
static void visit_appended(struct visitor *visitor, int rv)
{
    visitor->rv = visitor->rv != 0 ? visitor->rv : rv;
}

/* The next @size bytes of the input, or NULL. */
static const uint8_t *visit_take(struct visitor *visitor, size_t size)
{
    if (visitor->rv != 0 || visitor->input.size < size) {
        visit_appended(visitor, MST_EPROTO);
        return NULL;
    }
    const uint8_t *at = visitor->input.data;
    visitor->input = mst__bytes_skip(visitor->input, size);
    return at;
}

static void visit_u32(struct visitor *visitor, uint32_t *value)
{
    if (visitor->output != NULL) {
        visit_appended(visitor, mst__buf_append_u32(visitor->output, *value));
        return;
    }
    const uint8_t *at = visit_take(visitor, 4);
    *value = at == NULL ? 0 : mst__load_u32(at);
}

static void visit_u64(struct visitor *visitor, uint64_t *value)
{
    if (visitor->output != NULL) {
        visit_appended(visitor, mst__buf_append_u64(visitor->output, *value));
        return;
    }
    const uint8_t *at = visit_take(visitor, 8);
    *value = at == NULL ? 0 : mst__load_u64(at);
}

static void visit_i64(struct visitor *visitor, int64_t *value)
{
    uint64_t bits = (uint64_t)*value;
    visit_u64(visitor, &bits);
    *value = (int64_t)bits;
}

static void visit_bool(struct visitor *visitor, bool *value)
{
    if (visitor->output != NULL) {
        visit_appended(visitor, mst__buf_append_u8(visitor->output, *value ? 1 : 0));
        return;
    }
    const uint8_t *at = visit_take(visitor, 1);
    if (at != NULL && *at > 1) {
        visitor->rv = MST_EPROTO;
    }
    *value = at != NULL && *at == 1;
}

static void visit_text(struct visitor *visitor, struct mst_bytes *text)
{
    bool is_writing = visitor->output != NULL;
    MST_ASSERT(!is_writing || text->size <= UINT32_MAX);
    uint32_t size = is_writing ? (uint32_t)text->size : 0;
    visit_u32(visitor, &size);
    if (is_writing) {
        visit_appended(visitor, mst__buf_append(visitor->output, *text));
        return;
    }
    const uint8_t *at = visit_take(visitor, size);
    *text = at == NULL ? mst_bytes_of((const uint8_t *)"", 0) : mst_bytes_of(at, size);
}

/* The whole rest of the frame. */
static void visit_rest(struct visitor *visitor, struct mst_bytes *bytes)
{
    if (visitor->output != NULL) {
        visit_appended(visitor, mst__buf_append(visitor->output, *bytes));
        return;
    }
    *bytes = visitor->input;
    visitor->input = mst__bytes_skip(visitor->input, visitor->input.size);
}

/* A count of at most @count_max. */
static void visit_count(struct visitor *visitor, uint32_t *count, uint32_t count_max)
{
    visit_u32(visitor, count);
    if (*count > count_max) {
        visit_appended(visitor, MST_EPROTO);
        *count = 0;
    }
}

/* Whether there are more fields: those of a later version, which an earlier one does not send. */
static bool visit_more(const struct visitor *visitor)
{
    return visitor->output != NULL || (visitor->rv == 0 && visitor->input.size > 0);
}

static void visit_i32(struct visitor *visitor, int32_t *value)
{
    uint32_t bits = (uint32_t)*value;
    visit_u32(visitor, &bits);
    *value = (int32_t)bits;
}

static void visit_budget(struct visitor *visitor, struct mst__budget *budget)
{
    uint32_t restarts_max = budget->is_limited ? budget->restarts_max : UINT32_MAX;
    visit_u32(visitor, &restarts_max);
    visit_i64(visitor, &budget->window_us);
    budget->is_limited = restarts_max != UINT32_MAX;
    budget->restarts_max = budget->is_limited ? restarts_max : 0;
}

/* What a node says of its own work. */
static void visit_failure(struct visitor *visitor, struct mst__cause *cause)
{
    visit_u32(visitor, &cause->worker);
    visit_i32(visitor, &cause->status);
    visit_u32(visitor, &cause->signal);
    visit_i64(visitor, &cause->wall_us);
    visit_text(visitor, &cause->text);
}

static void visit_cause(struct visitor *visitor, struct mst__job_end *end)
{
    visit_bool(visitor, &end->has_cause);
    if (end->has_cause) {
        visit_u32(visitor, &end->cause.rank);
        visit_text(visitor, &end->cause.node);
        visit_failure(visitor, &end->cause);
    }
}

static void visit_end(struct visitor *visitor, struct mst__job_end *end)
{
    visit_u32(visitor, &end->outcome);
    visit_cause(visitor, end);
}

static void visit_finish(struct visitor *visitor, struct mst__job_finish *finish)
{
    visit_u64(visitor, &finish->epoch);
    visit_i64(visitor, &finish->round);
    visit_i32(visitor, &finish->status);
    visit_text(visitor, &finish->text);
}

static void visit_restart(struct visitor *visitor, struct mst__job_restart *restart)
{
    visit_u64(visitor, &restart->epoch);
    visit_i64(visitor, &restart->round);
    visit_failure(visitor, &restart->cause);
}

static void visit_claim(struct visitor *visitor, struct mst__claim *claim)
{
    visit_u64(visitor, &claim->epoch);
    visit_i64(visitor, &claim->round);
    visit_u32(visitor, &claim->world);
    visit_u32(visitor, &claim->rank);
    visit_bool(visitor, &claim->holds);
}

/* @from is written, @labels is what is read, or a copy. */
static void visit_labels(struct visitor *visitor,
                         const struct mst__label *from,
                         struct mst__label *labels,
                         uint32_t *count)
{
    bool is_writing = visitor->output != NULL;
    visit_count(visitor, count, MST_AUTHORITY_LABELS_MAX);
    for (uint32_t i = 0; i < *count; i++) {
        struct mst__label label = is_writing ? from[i] : labels[i];
        visit_text(visitor, &label.key);
        visit_text(visitor, &label.value);
        labels[i] = label;
    }
}

static void visit_announce(struct visitor *visitor, struct mst__job_announce *announce)
{
    struct mst__announcement *announcement = &announce->announcement;
    visit_u32(visitor, &announce->version);
    visit_text(visitor, &announce->run_id);
    visit_i64(visitor, &announce->heartbeat_us);
    visit_i64(visitor, &announcement->expiry_us);
    visit_text(visitor, &announcement->name);
    visit_u64(visitor, &announcement->incarnation);
    visit_u64(visitor, &announcement->session);
    visit_text(visitor, &announcement->address);
    visit_u32(visitor, &announcement->nodes_min);
    visit_u32(visitor, &announcement->nodes_max);
    visit_i64(visitor, &announcement->last_call_us);
    visit_text(visitor, &announcement->rank_by);
    visit_u32(visitor, &announcement->pinned_rank);
    visit_claim(visitor, &announcement->claim);
    visit_bool(visitor, &announcement->has_wall);
    visit_i64(visitor, &announcement->wall_us);
    uint32_t labels_count = (uint32_t)announcement->labels_count;
    visit_labels(visitor, announcement->labels, announce->labels, &labels_count);
    announcement->labels_count = labels_count;
    if (visit_more(visitor)) {
        visit_budget(visitor, &announcement->budget);
    }
    if (visit_more(visitor)) {
        visit_bool(visitor, &announce->is_new);
    }
}

static void visit_round(struct visitor *visitor, struct mst__job_round *round, bool is_sealed)
{
    visit_u64(visitor, &round->epoch);
    visit_i64(visitor, &round->round);
    visit_u32(visitor, &round->world);
    if (is_sealed) {
        visit_text(visitor, &round->address);
        visit_u32(visitor, &round->rank);
    }
}

static void visit_lost(struct visitor *visitor, struct mst__job_lost *lost)
{
    visit_i64(visitor, &lost->round);
    visit_u32(visitor, &lost->count);
    visit_count(visitor, &lost->named, MST_JOB_NAMES_MAX);
    for (uint32_t i = 0; i < lost->named; i++) {
        visit_u32(visitor, &lost->ranks[i]);
        visit_text(visitor, &lost->names[i]);
    }
    visit_u32(visitor, &lost->total);
}

static void visit_status(struct visitor *visitor, struct mst__job_status *status)
{
    visit_text(visitor, &status->run_id);
    visit_u32(visitor, &status->phase);
    visit_u64(visitor, &status->epoch);
    visit_i64(visitor, &status->round);
    visit_i64(visitor, &status->round_next);
    visit_u32(visitor, &status->world);
    visit_u32(visitor, &status->nodes_min);
    visit_u32(visitor, &status->nodes_max);
    visit_i64(visitor, &status->last_call_us);
    visit_text(visitor, &status->sentence);
    visit_text(visitor, &status->reason);
    visit_text(visitor, &status->owner);
    visit_u32(visitor, &status->member_count);
    visit_bool(visitor, &status->is_cut);
    visit_text(visitor, &status->members);
    visit_i64(visitor, &status->heartbeat_us);
    if (visit_more(visitor)) {
        visit_end(visitor, &status->end);
        visit_budget(visitor, &status->budget);
        visit_u32(visitor, &status->restarts);
        visit_u32(visitor, &status->finished);
    }
    if (visit_more(visitor)) {
        visit_i64(visitor, &status->last_call_left_us);
        visit_text(visitor, &status->details);
    } else {
        status->last_call_left_us = INT64_MAX;
    }
}

static void visit_detail(struct visitor *visitor, struct mst__job_detail *detail)
{
    visit_u32(visitor, &detail->gone);
    visit_labels(visitor, detail->labels, detail->labels, &detail->labels_count);
}

static void visit_list(struct visitor *visitor, struct mst__job_list *list)
{
    visit_text(visitor, &list->server);
    visit_u32(visitor, &list->total);
    visit_u32(visitor, &list->count);
    visit_text(visitor, &list->jobs);
}

static void visit_entry(struct visitor *visitor, struct mst__job_entry *entry)
{
    visit_text(visitor, &entry->run_id);
    visit_u32(visitor, &entry->phase);
    visit_u64(visitor, &entry->epoch);
    visit_i64(visitor, &entry->round);
    visit_u32(visitor, &entry->world);
    visit_u32(visitor, &entry->nodes_min);
    visit_u32(visitor, &entry->nodes_max);
    visit_u32(visitor, &entry->members);
    visit_u32(visitor, &entry->waiting);
    visit_u32(visitor, &entry->spares);
    visit_u32(visitor, &entry->finished);
    visit_u32(visitor, &entry->outcome);
    visit_text(visitor, &entry->reason);
}

static void visit_member(struct visitor *visitor, struct mst__job_member *member)
{
    visit_text(visitor, &member->name);
    visit_text(visitor, &member->address);
    visit_u32(visitor, &member->standing);
    visit_u32(visitor, &member->rank);
    visit_u64(visitor, &member->incarnation);
    visit_i64(visitor, &member->silent_us);
    visit_bool(visitor, &member->has_skew);
    visit_i64(visitor, &member->skew_us);
}

static void visit_welcome(struct visitor *visitor, struct mst__job_message *message)
{
    visit_u32(visitor, &message->u.welcome.version);
    visit_u64(visitor, &message->u.welcome.epoch);
    visit_bool(visitor, &message->u.welcome.has_skew);
    visit_i64(visitor, &message->u.welcome.skew_us);
    visit_text(visitor, &message->u.welcome.server);
}

static void visit_refused(struct visitor *visitor, struct mst__job_message *message)
{
    visit_i32(visitor, &message->u.refused.code);
    visit_u32(visitor, &message->u.refused.refusal);
    visit_text(visitor, &message->u.refused.text);
    if (visit_more(visitor)) {
        visit_end(visitor, &message->u.refused.end);
    }
}

static void visit_reopened(struct visitor *visitor, struct mst__job_message *message)
{
    visit_i64(visitor, &message->u.reopened.round_next);
    visit_u32(visitor, &message->u.reopened.why);
    visit_u32(visitor, &message->u.reopened.rank);
    visit_text(visitor, &message->u.reopened.name);
    if (visit_more(visitor)) {
        visit_cause(visitor, &message->u.reopened.end);
    }
}

/* Those about a run: CLOSE has all, STATUS the first, CLOSED the rest. */
static void visit_close(struct visitor *visitor, struct mst__job_message *message)
{
    if (message->type != MST_JOB_CLOSED) {
        visit_text(visitor, &message->u.close.run_id);
    }
    if (message->type != MST_JOB_STATUS) {
        visit_text(visitor, &message->u.close.reason);
        visit_text(visitor, &message->u.close.owner);
    }
    if (message->type == MST_JOB_CLOSED && visit_more(visitor)) {
        visit_end(visitor, &message->u.close.end);
    } else if (message->type == MST_JOB_STATUS && visit_more(visitor)) {
        visit_u32(visitor, &message->u.close.version);
    }
}

/* Go over the fields of @message, whose type is set. */
static void visit_message(struct visitor *visitor, struct mst__job_message *message)
{
    switch (message->type) {
        case MST_JOB_ANNOUNCE:
            visit_announce(visitor, &message->u.announce);
            break;
        case MST_JOB_HEARTBEAT:
            visit_bool(visitor, &message->u.heartbeat.wants_pong);
            break;
        case MST_JOB_CLOSE:
        case MST_JOB_STATUS:
        case MST_JOB_CLOSED:
            visit_close(visitor, message);
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
            visit_u32(visitor, &message->u.waiting.count);
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
            visit_rest(visitor, &message->u.text);
            break;
        case MST_JOB_FINISH:
            visit_finish(visitor, &message->u.finish);
            break;
        case MST_JOB_RESTART:
            visit_restart(visitor, &message->u.restart);
            break;
        case MST_JOB_LEAVE:
        case MST_JOB_PONG:
            break;
    }
}

int mst__job_write(struct mst__buf *output, const struct mst__job_message *message)
{
    MST_ASSERT(mst__job_type_name(message->type) != NULL);
    size_t before = mst__buf_size(output);
    struct mst__job_message copy = *message; /* visiting is for both ways and takes no constants */
    struct visitor visitor = {.output = output};
    visit_appended(&visitor, mst__buf_append_u32(output, 0));
    visit_appended(&visitor, mst__buf_append_u8(output, (uint8_t)message->type));
    visit_message(&visitor, &copy);
    if (visitor.rv != 0) {
        output->end = output->start + before;
        return visitor.rv == MST_EPROTO ? MST_ELIMIT : visitor.rv; /* more than the format has */
    }
    size_t size = mst__buf_size(output) - before - 4;
    mst__store_u32(output->memory + output->start + before, (uint32_t)size);
    return 0;
}

/* What becomes of a list of packed things: when there is no room for one, it is as it was. */
static int packed_end(const struct visitor *visitor, size_t before)
{
    if (visitor->rv != 0) {
        visitor->output->end = visitor->output->start + before;
    }
    return visitor->rv;
}

int mst__job_member_write(struct mst__buf *members, const struct mst__job_member *member)
{
    size_t before = mst__buf_size(members);
    struct mst__job_member copy = *member;
    struct visitor visitor = {.output = members};
    visit_member(&visitor, &copy);
    return packed_end(&visitor, before);
}

bool mst__job_member_next(struct mst_bytes *members, struct mst__job_member *ret_member)
{
    *ret_member = (struct mst__job_member){0};
    struct visitor visitor = {.input = *members};
    visit_member(&visitor, ret_member);
    *members = visitor.input;
    return visitor.rv == 0;
}

int mst__job_detail_write(struct mst__buf *details, const struct mst__job_detail *detail)
{
    size_t before = mst__buf_size(details);
    struct mst__job_detail copy = *detail;
    struct visitor visitor = {.output = details};
    visit_detail(&visitor, &copy);
    return packed_end(&visitor, before);
}

bool mst__job_detail_next(struct mst_bytes *details, struct mst__job_detail *ret_detail)
{
    ret_detail->gone = MST_JOB_GONE_NOT;
    ret_detail->labels_count = 0;
    struct visitor visitor = {.input = *details};
    visit_detail(&visitor, ret_detail);
    *details = visitor.input;
    ret_detail->labels_count = visitor.rv == 0 ? ret_detail->labels_count : 0;
    return visitor.rv == 0;
}

int mst__job_entry_write(struct mst__buf *jobs, const struct mst__job_entry *entry)
{
    size_t before = mst__buf_size(jobs);
    struct mst__job_entry copy = *entry;
    struct visitor visitor = {.output = jobs};
    visit_entry(&visitor, &copy);
    return packed_end(&visitor, before);
}

bool mst__job_entry_next(struct mst_bytes *jobs, struct mst__job_entry *ret_entry)
{
    *ret_entry = (struct mst__job_entry){0};
    struct visitor visitor = {.input = *jobs};
    visit_entry(&visitor, ret_entry);
    *jobs = visitor.input;
    return visitor.rv == 0;
}

void mst__job_patch_rank(uint8_t *frame, size_t size, uint32_t rank)
{
    MST_ASSERT(size > MST_JOB_HEAD_SIZE + 4 && frame[4] == MST_JOB_SEALED);
    mst__store_u32(frame + size - 4, rank);
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
    struct visitor visitor = {
        .input = mst_bytes_of(input.data + MST_JOB_HEAD_SIZE, *ret_size - MST_JOB_HEAD_SIZE)};
    visit_message(&visitor, ret_message);
    if (visitor.rv != 0) {
        return mst__fail(reterr, MST_EPROTO, 0, "job frame %s of %u bytes makes no sense", name,
                         size);
    }
    return 1;
}
