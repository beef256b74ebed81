/* agent/ranks.c - parse sets of local ranks. */
#include "agent/ranks.h"

#include <string.h>

#include "base/err.h"
#include "base/limits.h"
#include "base/number.h"

/* Parse `3` or `0-7`. */
static bool read_range(struct mst_bytes text, struct mst__rank_range *ret_range)
{
    const uint8_t *dash = text.size == 0 ? NULL : memchr(text.data, '-', text.size);
    size_t size = dash == NULL ? text.size : (size_t)(dash - text.data);
    if (!mst__number_parse(mst_bytes_of(text.data, size), 0, MST_NPROC_MAX, &ret_range->first)) {
        return false;
    }
    ret_range->last = ret_range->first;
    return dash == NULL || (mst__number_parse(mst_bytes_of(dash + 1, text.size - size - 1), 0,
                                              MST_NPROC_MAX, &ret_range->last) &&
                            ret_range->first <= ret_range->last);
}

static bool read_streams(struct mst_bytes text, int *ret_streams)
{
    if (text.size != 1 || text.data[0] < '0' || text.data[0] > '3') {
        return false;
    }
    *ret_streams = text.data[0] - '0';
    return true;
}

/* Take the part up to the next comma, without surrounding blanks. *text is NULL after the last
 * part. */
static struct mst_bytes next_part(const char **text)
{
    size_t size = strcspn(*text, ",");
    const char *begin = *text;
    *text = begin[size] == ',' ? begin + size + 1 : NULL;
    while (size > 0 && *begin == ' ') {
        begin++;
        size--;
    }
    while (size > 0 && begin[size - 1] == ' ') {
        size--;
    }
    return mst_bytes_of(begin, size);
}

static int too_many(struct mst_err *reterr)
{
    return mst__fail(reterr, MST_EINVAL, 0, "has more than %d parts", MST_RANK_RANGES_MAX);
}

int mst__rank_streams_parse(const char *text,
                            struct mst__rank_streams *ret_streams,
                            struct mst_err *reterr)
{
    *ret_streams = (struct mst__rank_streams){0};
    if (read_streams(mst_bytes_str(text), &ret_streams->everywhere)) {
        return 0;
    }
    const char *rest = text;
    do {
        if (ret_streams->count == MST_RANK_RANGES_MAX) {
            return too_many(reterr);
        }
        struct mst_bytes part = next_part(&rest);
        struct mst__rank_range *range = &ret_streams->ranges[ret_streams->count++];
        const uint8_t *colon = part.size == 0 ? NULL : memchr(part.data, ':', part.size);
        size_t size = colon == NULL ? 0 : (size_t)(colon - part.data);
        if (colon == NULL || !read_range(mst_bytes_of(part.data, size), range) ||
            !read_streams(mst_bytes_of(colon + 1, part.size - size - 1), &range->streams)) {
            return mst__fail(reterr, MST_EINVAL, 0,
                             "'%.60s' is not a number from 0 to 3, or a list such as 0:3,1:1",
                             text);
        }
    } while (rest != NULL);
    return 0;
}

int mst__rank_set_parse(const char *text, struct mst__rank_set *ret_set, struct mst_err *reterr)
{
    *ret_set = (struct mst__rank_set){0};
    for (const char *rest = *text == '\0' ? NULL : text; rest != NULL;) {
        if (ret_set->count == MST_RANK_RANGES_MAX) {
            return too_many(reterr);
        }
        if (!read_range(next_part(&rest), &ret_set->ranges[ret_set->count++])) {
            return mst__fail(reterr, MST_EINVAL, 0, "'%.60s' is not a list such as 0,1,4-7", text);
        }
    }
    return 0;
}

int mst__rank_streams_of(const struct mst__rank_streams *streams, int64_t rank)
{
    for (size_t i = streams->count; i > 0; i--) {
        const struct mst__rank_range *range = &streams->ranges[i - 1];
        if (range->first <= rank && rank <= range->last) {
            return range->streams;
        }
    }
    return streams->everywhere;
}

bool mst__rank_set_has(const struct mst__rank_set *set, int64_t rank)
{
    for (size_t i = 0; i < set->count; i++) {
        if (set->ranges[i].first <= rank && rank <= set->ranges[i].last) {
            return true;
        }
    }
    return set->count == 0;
}
