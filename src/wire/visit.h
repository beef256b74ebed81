/* wire/visit.h - the fields of a message or a record, written and read by one function.
 *
 * The function visits the fields in order, and the visitor either appends or takes them. So the two
 * directions cannot differ. */
#ifndef MST_WIRE_VISIT_H
#define MST_WIRE_VISIT_H

#include "base/buf.h"
#include "core/job_message.h"

/* One of the two is set: output to write, input to read. */
struct mst__visitor {
    struct mst__buf *output;
    struct mst_bytes input;
    bool is_compact; /* integers take as many bytes as they need, seven bits in each */
    int rv;          /* the first error; later fields are not touched */
};

/* Record the result of appending, or that the input is malformed. */
void mst__visit_appended(struct mst__visitor *visitor, int rv);

void mst__visit_u8(struct mst__visitor *visitor, uint8_t *value);
void mst__visit_u32(struct mst__visitor *visitor, uint32_t *value);
void mst__visit_u64(struct mst__visitor *visitor, uint64_t *value);
void mst__visit_i32(struct mst__visitor *visitor, int32_t *value);
void mst__visit_i64(struct mst__visitor *visitor, int64_t *value);
void mst__visit_bool(struct mst__visitor *visitor, bool *value);
void mst__visit_text(struct mst__visitor *visitor, struct mst_bytes *text);

/* The whole rest of the input. */
void mst__visit_rest(struct mst__visitor *visitor, struct mst_bytes *bytes);

/* A count of at most @count_max. */
void mst__visit_count(struct mst__visitor *visitor, uint32_t *count, uint32_t count_max);

/* Whether there are more fields: those of a later version, which an earlier peer does not send. */
bool mst__visit_more(const struct mst__visitor *visitor);

/* Parts of messages. @from is written; labels that are read, or a copy, go to @labels. */
void mst__visit_labels(struct mst__visitor *visitor,
                       const struct mst__label *from,
                       struct mst__label *labels,
                       uint32_t *count);
void mst__visit_budget(struct mst__visitor *visitor, struct mst__budget *budget);
/* Those that a node brings, and their ranks in a round. */
void mst__visit_workers(struct mst__visitor *visitor, struct mst__announcement *announcement);
void mst__visit_worker_ranks(struct mst__visitor *visitor, struct mst__worker_ranks *ranks);
void mst__visit_failure(struct mst__visitor *visitor, struct mst__cause *cause);
/* The report of a failure, at the end of a message or record: earlier ones have none. */
void mst__visit_report(struct mst__visitor *visitor, struct mst__cause *cause);
void mst__visit_cause(struct mst__visitor *visitor, struct mst__job_end *end);
void mst__visit_end(struct mst__visitor *visitor, struct mst__job_end *end);
/* Labels as above, written from the announcement. */
void mst__visit_announcement(struct mst__visitor *visitor,
                             struct mst__announcement *announcement,
                             struct mst__label labels[MST_AUTHORITY_LABELS_MAX]);

#endif /* MST_WIRE_VISIT_H */
