/* unit/golden_bytes.h - files with the bytes of one release, and what they say.
 *
 * A reader and a writer that share their code change together, and a test that reads what it has
 * written sees nothing. These files do not change with the code. tests/vectors/README.md describes
 * them. */
#ifndef MST_UNIT_GOLDEN_BYTES_H
#define MST_UNIT_GOLDEN_BYTES_H

#include <inttypes.h>

#include "base/buf.h"
#include "unit/unit.h"

/* The pieces of a protocol or format, one for each file's `piece`. */
struct golden_format {
    size_t count;
    bool is_text; /* the bytes are text */
    const char *(*name)(size_t index);
    /* What the present writer makes of piece @index. */
    void (*write)(size_t index, struct mst__buf *bytes);
    /* The values of piece @index as text, by hand: neither reader nor writer has a part in it. */
    void (*tell)(size_t index, struct mst__buf *text);
    /* The same of @bytes, as the present reader understands them. False if it refuses them. */
    bool (*read)(const char *name, struct mst_bytes bytes, struct mst__buf *text);
    /* Whether peers of the release that has written @before understand @now, as promised. */
    bool (*keeps)(const char *name, struct mst_bytes before, struct mst_bytes now);
};

/* Check the files of the command line, or, after --rewrite, write them anew. Returns the value of
 * main. */
int golden_main(int argc, char **argv, const struct golden_format *format);

/* Append to a text, and a line to the text of a piece. */
void golden_put(struct mst__buf *text, const char *format, ...) MST_PRINTF(2, 3);
#define golden_line(text, format, ...) golden_put((text), format "\n", __VA_ARGS__)

/* Lines with the name and the value of a field. */
#define TELL_INT(text, from, field) golden_line(text, "%s %" PRId64, #field, (int64_t)(from)->field)
#define TELL_UINT(text, from, field) \
    golden_line(text, "%s %" PRIu64, #field, (uint64_t)(from)->field)
#define TELL_BOOL(text, from, field) \
    golden_line(text, "%s %s", #field, (from)->field ? "true" : "false")
#define TELL_TEXT(text, from, field)                                \
    golden_line(text, "%s '%.*s'", #field, (int)(from)->field.size, \
                (from)->field.size == 0 ? "" : (const char *)(from)->field.data)
#define TELL_CHARS(text, from, field) golden_line(text, "%s '%s'", #field, (from)->field)

#endif /* MST_UNIT_GOLDEN_BYTES_H */
