/* agent/line_splitter.h - bytes of a stream in, whole lines out. Pure; memory is bounded.
 *
 * A line ends with a newline. One that is longer than MST_OUTPUT_LINE_SIZE_MAX comes in pieces, the
 * last of which is the one that ends. */
#ifndef MST_AGENT_LINE_SPLITTER_H
#define MST_AGENT_LINE_SPLITTER_H

#include <muster/types.h>
#include <stdbool.h>

#include "base/buf.h"

struct mst__line_splitter {
    struct mst__buf held;   /* the beginning of a line */
    bool is_continued;      /* a piece of this line is out already */
    struct mst_bytes input; /* what is left of it */
    bool has_held;          /* the last line came from @held */
};

struct mst__line {
    struct mst_bytes text; /* without the newline; valid until the next call */
    bool is_first;         /* begins a line */
    bool is_last;          /* ends one */
};

void mst__line_splitter_init(struct mst__line_splitter *splitter);
void mst__line_splitter_close(struct mst__line_splitter *splitter);

/* More bytes, borrowed until all of them are taken: mst__line_splitter_next returns false then. */
void mst__line_splitter_feed(struct mst__line_splitter *splitter, struct mst_bytes bytes);

/* The next line. False when there is no whole one; the rest is kept. When memory runs out, what is
 * held comes out as a piece. */
bool mst__line_splitter_next(struct mst__line_splitter *splitter, struct mst__line *ret_line);

/* At the end of the stream: what has no newline. False when there is nothing. */
bool mst__line_splitter_rest(struct mst__line_splitter *splitter, struct mst__line *ret_line);

#endif /* MST_AGENT_LINE_SPLITTER_H */
