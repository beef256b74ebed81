/* agent/line_splitter.c - makes whole lines, mostly without a copy: a line that arrives in one
 * piece is returned in place. */
#include "agent/line_splitter.h"

#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"

void mst__line_splitter_init(struct mst__line_splitter *splitter)
{
    *splitter = (struct mst__line_splitter){0};
    mst__buf_init(&splitter->held, MST_OUTPUT_LINE_SIZE_MAX);
}

void mst__line_splitter_close(struct mst__line_splitter *splitter)
{
    mst__buf_close(&splitter->held);
}

void mst__line_splitter_feed(struct mst__line_splitter *splitter, struct mst_bytes bytes)
{
    splitter->input = bytes;
}

static void hand_out(struct mst__line_splitter *splitter,
                     struct mst_bytes text,
                     bool is_last,
                     struct mst__line *ret_line)
{
    *ret_line =
        (struct mst__line){.text = text, .is_first = !splitter->is_continued, .is_last = is_last};
    splitter->is_continued = !is_last;
}

bool mst__line_splitter_next(struct mst__line_splitter *splitter, struct mst__line *ret_line)
{
    if (splitter->has_held) {
        mst__buf_clear(&splitter->held);
        splitter->has_held = false;
    }
    struct mst_bytes input = splitter->input;
    if (input.size == 0) {
        return false;
    }
    size_t room = MST_OUTPUT_LINE_SIZE_MAX - mst__buf_size(&splitter->held);
    size_t seen = input.size < room ? input.size : room;
    const uint8_t *newline = seen == 0 ? NULL : memchr(input.data, '\n', seen);
    size_t size = newline == NULL ? seen : (size_t)(newline - input.data);
    bool is_whole = newline != NULL;
    struct mst_bytes piece = mst_bytes_of(input.data, size);
    if (mst__buf_size(&splitter->held) == 0 && (is_whole || size == MST_OUTPUT_LINE_SIZE_MAX)) {
        splitter->input = mst__bytes_skip(input, size + (is_whole ? 1 : 0));
        hand_out(splitter, piece, is_whole, ret_line);
        return true;
    }
    if (mst__buf_append(&splitter->held, piece) != 0) {
        /* No memory: return the held bytes first, then the new ones. */
        bool has_held = mst__buf_size(&splitter->held) > 0;
        splitter->has_held = has_held;
        splitter->input = has_held ? input : mst__bytes_skip(input, size + (is_whole ? 1 : 0));
        hand_out(splitter, has_held ? mst__buf_bytes(&splitter->held) : piece,
                 !has_held && is_whole, ret_line);
        return true;
    }
    splitter->input = mst__bytes_skip(input, size + (is_whole ? 1 : 0));
    if (!is_whole && mst__buf_size(&splitter->held) < MST_OUTPUT_LINE_SIZE_MAX) {
        return false;
    }
    splitter->has_held = true;
    hand_out(splitter, mst__buf_bytes(&splitter->held), is_whole, ret_line);
    return true;
}

bool mst__line_splitter_rest(struct mst__line_splitter *splitter, struct mst__line *ret_line)
{
    if (splitter->has_held || (mst__buf_size(&splitter->held) == 0 && !splitter->is_continued)) {
        return false;
    }
    splitter->has_held = true;
    hand_out(splitter, mst__buf_bytes(&splitter->held), true, ret_line);
    return true;
}
