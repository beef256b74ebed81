/* agent/line_format.h - a worker's line as the console shows it. Pure. */
#ifndef MST_AGENT_LINE_FORMAT_H
#define MST_AGENT_LINE_FORMAT_H

#include <muster/types.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/json_writer.h"

/* The worker that wrote a line. Texts are borrowed. */
struct mst__line_source {
    const char *role, *hostname;
    int64_t rank, local_rank, generation, pid;
    bool is_stderr;
};

/* Append @template_text and replace ${role_name}, ${rank}, ${local_rank}, ${hostname}, ${pid},
 * ${time} and ${generation}; other ${...} stay. Appends at most MST_OUTPUT_PREFIX_SIZE_MAX bytes.
 * Returns 0 or MST_ENOMEM. */
int mst__line_prefix(const char *template_text,
                     const struct mst__line_source *source,
                     int64_t wall_us,
                     struct mst__buf *text);

/* Make one object, without a newline: `ts`, `level`, `host`, `role`, `rank`, `local_rank`,
 * `generation`, `stream`, `msg`, and `part` for a piece of a line. @json is emptied first; its code
 * has the error. */
void mst__line_json(struct mst__json_writer *json,
                    const struct mst__line_source *source,
                    int64_t wall_us,
                    struct mst_bytes line,
                    bool is_part);

/* Whether @line contains one of @filters, a list that NULL ends. */
bool mst__line_matches(struct mst_bytes line, const char *const *filters);

#endif /* MST_AGENT_LINE_FORMAT_H */
