/* base/names.c - expands lists of names with ranges. */
#include "base/names.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/number.h"

#define DIGITS_MAX 9 /* digits of a number in a range */

/* A name that is being built: brackets are expanded from left to right. */
struct item {
    mst__names_fn fn;
    void *arg;
    struct mst_err *reterr;
    char name[MST_AUTHORITY_NAME_SIZE_MAX + 1];
};

static int item_fail(const struct item *item, struct mst_bytes rest, const char *wrong)
{
    return mst__fail(item->reterr, MST_EINVAL, 0, "'%.60s%.*s': %s", item->name,
                     (int)(rest.size < 60 ? rest.size : 60), (const char *)rest.data, wrong);
}

/* Write @bytes after the first @used bytes of the name. */
static int item_put(struct item *item, size_t used, struct mst_bytes bytes)
{
    if (bytes.size > MST_AUTHORITY_NAME_SIZE_MAX - used) {
        return item_fail(item, bytes, "the name is too long");
    }
    if (bytes.size > 0) {
        memcpy(item->name + used, bytes.data, bytes.size);
    }
    item->name[used + bytes.size] = '\0';
    return 0;
}

static int item_add(struct item *item)
{
    struct mst_bytes name = mst_bytes_str(item->name);
    if (name.size == 0 || strpbrk(item->name, "[] \t") != NULL) {
        return item_fail(item, mst_bytes_of("", 0), "not a name such as node[1-20]");
    }
    return item->fn(item->arg, item->name, item->reterr);
}

static int item_expand(struct item *item, size_t used, struct mst_bytes rest);

/* The part of @rest before @separator; both are removed from @rest. */
static struct mst_bytes next_part(struct mst_bytes *rest, char separator)
{
    const uint8_t *at = rest->size == 0 ? NULL : memchr(rest->data, separator, rest->size);
    size_t size = at == NULL ? rest->size : (size_t)(at - rest->data);
    struct mst_bytes part = mst_bytes_of(rest->data, size);
    *rest = mst__bytes_skip(*rest, size + (at == NULL ? 0 : 1));
    return part;
}

static bool read_number(struct mst_bytes text, int64_t *ret_number)
{
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') {
            return false;
        }
    }
    return text.size <= DIGITS_MAX && mst__number_parse(text, 0, INT64_MAX, ret_number);
}

/* Expand each number of @range, `3` or `1-20`, and then @rest. */
static int item_range(struct item *item, size_t used, struct mst_bytes range, struct mst_bytes rest)
{
    struct mst_bytes last_text = range;
    struct mst_bytes first_text = next_part(&last_text, '-');
    int64_t first = 0;
    int64_t last = 0;
    bool is_range = first_text.size < range.size;
    if (!read_number(first_text, &first) || (is_range && !read_number(last_text, &last)) ||
        (is_range && last < first)) {
        item->name[used] = '\0';
        return item_fail(item, range, "not a range such as 1-20");
    }
    last = is_range ? last : first;
    int width = first_text.data[0] == '0' ? (int)first_text.size : 1;
    int rv = 0;
    for (int64_t number = first; number <= last && rv == 0; number++) {
        char text[2 * DIGITS_MAX];
        int size = snprintf(text, sizeof text, "%0*" PRId64, width, number); /* fits */
        rv = item_put(item, used, mst_bytes_str(text));
        rv = rv == 0 ? item_expand(item, used + (size_t)size, rest) : rv;
    }
    return rv;
}

/* Expand the names that begin with the first @used bytes. Each bracket is one level of recursion,
 * and takes at least one byte of the name. */
static int item_expand(struct item *item, size_t used, struct mst_bytes rest)
{
    struct mst_bytes ranges = rest;
    struct mst_bytes plain = next_part(&ranges, '[');
    bool has_ranges = plain.size < rest.size;
    struct mst_bytes bracket = mst__bytes_skip(rest, plain.size);
    int rv = item_put(item, used, plain);
    used += plain.size;
    if (rv != 0 || !has_ranges) {
        return rv == 0 ? item_add(item) : rv;
    }
    if (ranges.size == 0 || memchr(ranges.data, ']', ranges.size) == NULL) {
        return item_fail(item, bracket, "missing ']'");
    }
    rest = ranges;
    ranges = next_part(&rest, ']');
    if (ranges.size == 0) {
        return item_fail(item, bracket, "no numbers in the brackets");
    }
    while (rv == 0 && ranges.size > 0) {
        rv = item_range(item, used, next_part(&ranges, ','), rest);
    }
    return rv;
}

/* The part of @text before the first comma outside brackets. */
static struct mst_bytes next_item(const char **text)
{
    const char *begin = *text;
    const char *at = begin;
    for (bool is_inside = false; *at != '\0' && (is_inside || *at != ','); at++) {
        is_inside = *at == '[' || (is_inside && *at != ']');
    }
    *text = *at == ',' ? at + 1 : at;
    return mst_bytes_of(begin, (size_t)(at - begin));
}

int mst__names_walk(const char *text, mst__names_fn fn, void *arg, struct mst_err *reterr)
{
    struct item item = {.fn = fn, .arg = arg, .reterr = reterr};
    int rv = 0;
    do {
        item.name[0] = '\0';
        rv = item_expand(&item, 0, next_item(&text));
    } while (rv == 0 && *text != '\0');
    return rv;
}
