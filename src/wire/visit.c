/* wire/visit.c - integers, texts and parts of messages to bytes and back. */
#include "wire/visit.h"

#include "base/assert.h"
#include "base/bytes.h"

void mst__visit_appended(struct mst__visitor *visitor, int rv)
{
    visitor->rv = visitor->rv != 0 ? visitor->rv : rv;
}

/* The next @size bytes of the input, or NULL. */
static const uint8_t *visit_take(struct mst__visitor *visitor, size_t size)
{
    MST_ASSERT(visitor->output == NULL);
    if (visitor->rv != 0 || visitor->input.size < size) {
        mst__visit_appended(visitor, MST_EPROTO);
        return NULL;
    }
    const uint8_t *at = visitor->input.data;
    visitor->input = mst__bytes_skip(visitor->input, size);
    return at;
}

/* --- integers --- */

void mst__visit_u8(struct mst__visitor *visitor, uint8_t *value)
{
    if (visitor->output != NULL) {
        mst__visit_appended(visitor, mst__buf_append_u8(visitor->output, *value));
        return;
    }
    const uint8_t *at = visit_take(visitor, 1);
    *value = at == NULL ? 0 : *at;
}

/* The lowest seven bits first; each byte except the last has the eighth bit set. */
static void write_compact(struct mst__visitor *visitor, uint64_t value)
{
    uint8_t bytes[10];
    size_t size = 0;
    for (; value >= 0x80; value >>= 7) {
        bytes[size++] = (uint8_t)(value | 0x80);
    }
    MST_ASSERT(size < sizeof bytes);
    bytes[size++] = (uint8_t)value;
    mst__visit_appended(visitor, mst__buf_append(visitor->output, mst_bytes_of(bytes, size)));
}

static uint64_t read_compact(struct mst__visitor *visitor)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const uint8_t *at = visit_take(visitor, 1);
        if (at == NULL) {
            return 0;
        }
        value |= (uint64_t)(*at & 0x7f) << shift;
        if ((*at & 0x80) == 0) {
            return value;
        }
    }
    mst__visit_appended(visitor, MST_EPROTO);
    return 0;
}

void mst__visit_u64(struct mst__visitor *visitor, uint64_t *value)
{
    if (visitor->output != NULL && visitor->is_compact) {
        write_compact(visitor, *value);
    } else if (visitor->output != NULL) {
        mst__visit_appended(visitor, mst__buf_append_u64(visitor->output, *value));
    } else if (visitor->is_compact) {
        *value = read_compact(visitor);
    } else {
        const uint8_t *at = visit_take(visitor, 8);
        *value = at == NULL ? 0 : mst__load_u64(at);
    }
}

void mst__visit_u32(struct mst__visitor *visitor, uint32_t *value)
{
    if (visitor->is_compact) {
        uint64_t wide = *value;
        mst__visit_u64(visitor, &wide);
        if (wide > UINT32_MAX) {
            mst__visit_appended(visitor, MST_EPROTO);
        }
        *value = (uint32_t)wide;
    } else if (visitor->output != NULL) {
        mst__visit_appended(visitor, mst__buf_append_u32(visitor->output, *value));
    } else {
        const uint8_t *at = visit_take(visitor, 4);
        *value = at == NULL ? 0 : mst__load_u32(at);
    }
}

void mst__visit_i64(struct mst__visitor *visitor, int64_t *value)
{
    uint64_t bits = (uint64_t)*value;
    if (visitor->is_compact) {
        bits = bits << 1 ^ (*value < 0 ? UINT64_MAX : 0); /* small numbers stay small */
    }
    mst__visit_u64(visitor, &bits);
    if (visitor->is_compact) {
        bits = bits >> 1 ^ ((bits & 1) != 0 ? UINT64_MAX : 0);
    }
    *value = (int64_t)bits;
}

void mst__visit_i32(struct mst__visitor *visitor, int32_t *value)
{
    uint32_t bits = (uint32_t)*value;
    mst__visit_u32(visitor, &bits);
    *value = (int32_t)bits;
}

void mst__visit_bool(struct mst__visitor *visitor, bool *value)
{
    uint8_t byte = *value ? 1 : 0;
    mst__visit_u8(visitor, &byte);
    if (byte > 1) {
        mst__visit_appended(visitor, MST_EPROTO);
    }
    *value = byte == 1;
}

void mst__visit_count(struct mst__visitor *visitor, uint32_t *count, uint32_t count_max)
{
    mst__visit_u32(visitor, count);
    if (*count > count_max) {
        mst__visit_appended(visitor, MST_EPROTO);
        *count = 0;
    }
}

/* --- texts --- */

void mst__visit_text(struct mst__visitor *visitor, struct mst_bytes *text)
{
    bool is_writing = visitor->output != NULL;
    MST_ASSERT(!is_writing || text->size <= UINT32_MAX);
    uint32_t size = is_writing ? (uint32_t)text->size : 0;
    mst__visit_u32(visitor, &size);
    if (is_writing) {
        mst__visit_appended(visitor, mst__buf_append(visitor->output, *text));
        return;
    }
    const uint8_t *at = visit_take(visitor, size);
    *text = at == NULL ? mst_bytes_of((const uint8_t *)"", 0) : mst_bytes_of(at, size);
}

void mst__visit_rest(struct mst__visitor *visitor, struct mst_bytes *bytes)
{
    if (visitor->output != NULL) {
        mst__visit_appended(visitor, mst__buf_append(visitor->output, *bytes));
        return;
    }
    *bytes = visitor->input;
    visitor->input = mst__bytes_skip(visitor->input, visitor->input.size);
}

bool mst__visit_more(const struct mst__visitor *visitor)
{
    return visitor->output != NULL || (visitor->rv == 0 && visitor->input.size > 0);
}

/* --- parts of messages --- */

void mst__visit_budget(struct mst__visitor *visitor, struct mst__budget *budget)
{
    uint32_t restarts_max = budget->is_limited ? budget->restarts_max : UINT32_MAX;
    mst__visit_u32(visitor, &restarts_max);
    mst__visit_i64(visitor, &budget->window_us);
    budget->is_limited = restarts_max != UINT32_MAX;
    budget->restarts_max = budget->is_limited ? restarts_max : 0;
}

void mst__visit_workers(struct mst__visitor *visitor, struct mst__announcement *announcement)
{
    mst__visit_u32(visitor, &announcement->workers);
    mst__visit_text(visitor, &announcement->role);
}

void mst__visit_worker_ranks(struct mst__visitor *visitor, struct mst__worker_ranks *ranks)
{
    mst__visit_u32(visitor, &ranks->first);
    mst__visit_u32(visitor, &ranks->world);
    mst__visit_u32(visitor, &ranks->role_first);
    mst__visit_u32(visitor, &ranks->role_world);
}

void mst__visit_failure(struct mst__visitor *visitor, struct mst__cause *cause)
{
    mst__visit_u32(visitor, &cause->worker);
    mst__visit_i32(visitor, &cause->status);
    mst__visit_u32(visitor, &cause->signal);
    mst__visit_i64(visitor, &cause->wall_us);
    mst__visit_text(visitor, &cause->text);
}

void mst__visit_report(struct mst__visitor *visitor, struct mst__cause *cause)
{
    if (mst__visit_more(visitor)) {
        mst__visit_text(visitor, &cause->report);
    }
}

void mst__visit_cause(struct mst__visitor *visitor, struct mst__job_end *end)
{
    mst__visit_bool(visitor, &end->has_cause);
    if (end->has_cause) {
        mst__visit_u32(visitor, &end->cause.rank);
        mst__visit_text(visitor, &end->cause.node);
        mst__visit_failure(visitor, &end->cause);
    }
}

void mst__visit_end(struct mst__visitor *visitor, struct mst__job_end *end)
{
    mst__visit_u32(visitor, &end->outcome);
    mst__visit_cause(visitor, end);
}

static void visit_claim(struct mst__visitor *visitor, struct mst__claim *claim)
{
    mst__visit_u64(visitor, &claim->epoch);
    mst__visit_i64(visitor, &claim->round);
    mst__visit_u32(visitor, &claim->world);
    mst__visit_u32(visitor, &claim->rank);
    mst__visit_bool(visitor, &claim->holds);
}

void mst__visit_labels(struct mst__visitor *visitor,
                       const struct mst__label *from,
                       struct mst__label *labels,
                       uint32_t *count)
{
    bool is_writing = visitor->output != NULL;
    mst__visit_count(visitor, count, MST_AUTHORITY_LABELS_MAX);
    MST_ASSERT(*count <= MST_AUTHORITY_LABELS_MAX); /* as many as @labels has room for */
    for (uint32_t i = 0; i < *count; i++) {
        struct mst__label label = is_writing ? from[i] : labels[i];
        mst__visit_text(visitor, &label.key);
        mst__visit_text(visitor, &label.value);
        labels[i] = label;
    }
}

void mst__visit_announcement(struct mst__visitor *visitor,
                             struct mst__announcement *announcement,
                             struct mst__label labels[MST_AUTHORITY_LABELS_MAX])
{
    mst__visit_i64(visitor, &announcement->expiry_us);
    mst__visit_text(visitor, &announcement->name);
    mst__visit_u64(visitor, &announcement->incarnation);
    mst__visit_u64(visitor, &announcement->session);
    mst__visit_text(visitor, &announcement->address);
    mst__visit_u32(visitor, &announcement->nodes_min);
    mst__visit_u32(visitor, &announcement->nodes_max);
    mst__visit_i64(visitor, &announcement->last_call_us);
    mst__visit_text(visitor, &announcement->rank_by);
    mst__visit_u32(visitor, &announcement->pinned_rank);
    visit_claim(visitor, &announcement->claim);
    mst__visit_bool(visitor, &announcement->has_wall);
    mst__visit_i64(visitor, &announcement->wall_us);
    uint32_t labels_count = (uint32_t)announcement->labels_count;
    mst__visit_labels(visitor, announcement->labels, labels, &labels_count);
    announcement->labels_count = labels_count;
    if (mst__visit_more(visitor)) {
        mst__visit_budget(visitor, &announcement->budget);
    }
}
