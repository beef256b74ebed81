/* agent/line_splitter.h - bytes of a stream in, whole lines out. Pure; memory is bounded.
 *
 * A line ends with a newline. A line longer than MST_OUTPUT_LINE_SIZE_MAX is returned in pieces;
 * the last piece ends the line. */
#ifndef MST_AGENT_LINE_SPLITTER_H
#define MST_AGENT_LINE_SPLITTER_H

#include <muster/types.h>
#include <stdbool.h>

#include "base/buf.h"

struct mst__line_splitter {
    struct mst__buf held;   /* the beginning of an incomplete line */
    bool is_continued;      /* a piece of this line was returned */
    struct mst_bytes input; /* bytes that are not split yet */
    bool has_held;          /* the last line was returned from @held */
};

struct mst__line {
    struct mst_bytes text; /* without the newline; valid until the next call */
    bool is_first;         /* begins a line */
    bool is_last;          /* ends a line */
};

void mst__line_splitter_init(struct mst__line_splitter *splitter);
void mst__line_splitter_close(struct mst__line_splitter *splitter);

/* Set the next bytes. They are borrowed until mst__line_splitter_next returns false. */
void mst__line_splitter_feed(struct mst__line_splitter *splitter, struct mst_bytes bytes);

/* Get the next line. Returns false if there is no whole line; the rest is kept. If memory runs out,
 * the kept bytes are returned as a piece. */
bool mst__line_splitter_next(struct mst__line_splitter *splitter, struct mst__line *ret_line);

/* At the end of the stream: get the text after the last newline. Returns false if there is none. */
bool mst__line_splitter_rest(struct mst__line_splitter *splitter, struct mst__line *ret_line);

#endif /* MST_AGENT_LINE_SPLITTER_H */
