/* cli/expect.c - a list of names with ranges, and who of it is there. */
#include "cli/expect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/number.h"

#define DIGITS_MAX 9 /* of a number in a range */

/* --- lists of names --- */

void mst__names_put(struct mst__buf *text, size_t *count, struct mst_bytes name, int *rv)
{
    if (*count < MST_NAMES_SHOWN) {
        if (*rv == 0 && *count > 0) {
            *rv = mst__buf_append(text, mst_bytes_str(", "));
        }
        (void)mst__cli_put_foreign(text, name, rv);
    }
    (*count)++;
}

void mst__names_put_more(struct mst__buf *text, size_t count, int *rv)
{
    if (count > MST_NAMES_SHOWN && *rv == 0) {
        char more[40];
        (void)snprintf(more, sizeof more, " and %zu more", count - MST_NAMES_SHOWN); /* fits */
        *rv = mst__buf_append(text, mst_bytes_str(more));
    }
}

/* --- reading --- */

/* One name in the making: brackets are replaced from the left to the right. */
struct item {
    struct mst__expect *expect;
    struct mst_err *reterr;
    char name[MST_AUTHORITY_NAME_SIZE_MAX + 1];
};

static int item_fail(const struct item *item, struct mst_bytes rest, const char *wrong)
{
    return mst__fail(item->reterr, MST_EINVAL, 0, "'%.60s%.*s': %s", item->name,
                     (int)(rest.size < 60 ? rest.size : 60), (const char *)rest.data, wrong);
}

/* Put @bytes behind the @used ones of the name. */
static int item_put(struct item *item, size_t used, struct mst_bytes bytes)
{
    if (bytes.size > MST_AUTHORITY_NAME_SIZE_MAX - used) {
        return item_fail(item, bytes, "is longer than a name can be");
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
        return item_fail(item, mst_bytes_of("", 0), "is no name such as node[1-20]");
    }
    if (mst__map_get(&item->expect->map, name) != NULL) {
        return item_fail(item, mst_bytes_of("", 0), "is there twice");
    }
    if (mst__map_count(&item->expect->map) == MST_AUTHORITY_MEMBERS_MAX) {
        return mst__fail(item->reterr, MST_ELIMIT, 0, "more than %d names",
                         MST_AUTHORITY_MEMBERS_MAX);
    }
    return mst__map_add(&item->expect->map, name) != NULL
               ? 0
               : mst__fail(item->reterr, MST_ENOMEM, 0, "names of nodes");
}

static int item_expand(struct item *item, size_t used, struct mst_bytes rest);

/* The part of @rest up to @separator, which is skipped as well. */
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

/* Each number of @range, `3` or `1-20`, in the name and @rest behind it. */
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
        return item_fail(item, range, "is no range such as 1-20");
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

/* Names that begin with the @used bytes in the making. Each bracket is a level, which takes a byte
 * of the name at least. */
static int item_expand(struct item *item, size_t used, struct mst_bytes rest)
{
    struct mst_bytes ranges = rest;
    struct mst_bytes plain = next_part(&ranges, '[');
    bool has_ranges = plain.size < rest.size;
    int rv = item_put(item, used, plain);
    used += plain.size;
    if (rv != 0 || !has_ranges) {
        return rv == 0 ? item_add(item) : rv;
    }
    if (ranges.size == 0 || memchr(ranges.data, ']', ranges.size) == NULL) {
        return item_fail(item, ranges, "lacks a ']'");
    }
    rest = ranges;
    ranges = next_part(&rest, ']');
    if (ranges.size == 0) {
        return item_fail(item, rest, "has no numbers in its brackets");
    }
    while (rv == 0 && ranges.size > 0) {
        rv = item_range(item, used, next_part(&ranges, ','), rest);
    }
    return rv;
}

/* The part of @text up to a comma that is in no bracket. */
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

int mst__expect_parse(const char *text, struct mst__expect *ret_expect, struct mst_err *reterr)
{
    uint8_t key[MST_SIPHASH_KEY_SIZE];
    mst__clock_random(key, sizeof key);
    mst__map_init(&ret_expect->map, sizeof(struct mst__expected), key);
    struct item item = {.expect = ret_expect, .reterr = reterr};
    int rv = 0;
    do {
        item.name[0] = '\0';
        rv = item_expand(&item, 0, next_item(&text));
    } while (rv == 0 && *text != '\0');
    return rv;
}

bool mst__expect_is_possible(const char *backend)
{
    return strcmp(backend, "etcd") != 0 && strcmp(backend, "static") != 0;
}

void mst__expect_close(struct mst__expect *expect)
{
    mst__map_close(&expect->map);
}

/* --- seeing --- */

void mst__expect_begin(struct mst__expect *expect)
{
    struct mst__expected *at = mst__map_first(&expect->map);
    for (; at != NULL; at = mst__map_next(at)) {
        at->is_here = false;
    }
}

/* `node7` of `node7_4711_803`; all of it when it has another form. */
static struct mst_bytes host_of(struct mst_bytes node)
{
    size_t size = node.size;
    for (int part = 0; part < 2; part++) {
        size_t digits = 0;
        while (digits < size && node.data[size - 1 - digits] >= '0' &&
               node.data[size - 1 - digits] <= '9') {
            digits++;
        }
        if (digits == 0 || digits + 1 >= size || node.data[size - 1 - digits] != '_') {
            return node;
        }
        size -= digits + 1;
    }
    return mst_bytes_of(node.data, size);
}

void mst__expect_see(struct mst__expect *expect, struct mst_bytes node)
{
    struct mst_bytes host = host_of(node);
    const uint8_t *dot = host.size == 0 ? NULL : memchr(host.data, '.', host.size);
    struct mst_bytes names[] = {
        node, host, mst_bytes_of(host.data, dot == NULL ? host.size : (size_t)(dot - host.data))};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct mst__expected *expected = mst__map_get(&expect->map, names[i]);
        if (expected != NULL) {
            *expected = (struct mst__expected){.is_here = true, .was_here = true};
            return;
        }
    }
}

static bool is_missing(const struct mst__expected *expected, bool ever)
{
    return ever ? !expected->was_here : !expected->is_here;
}

size_t mst__expect_missing(const struct mst__expect *expect, bool ever)
{
    size_t count = 0;
    const struct mst__expected *at = mst__map_first(&expect->map);
    for (; at != NULL; at = mst__map_next(at)) {
        count += is_missing(at, ever) ? 1 : 0;
    }
    return count;
}

void mst__expect_put_missing(const struct mst__expect *expect,
                             bool ever,
                             struct mst__buf *text,
                             int *rv)
{
    size_t count = 0;
    const struct mst__expected *at = mst__map_first(&expect->map);
    for (; at != NULL; at = mst__map_next(at)) {
        if (is_missing(at, ever)) {
            mst__names_put(text, &count, mst__map_key(at), rv);
        }
    }
    mst__names_put_more(text, count, rv);
}

void mst__expect_json(const struct mst__expect *expect, struct mst__cli_json *json)
{
    mst__cli_json_begin(json, "missing", '[');
    const struct mst__expected *at = mst__map_first(&expect->map);
    for (; at != NULL; at = mst__map_next(at)) {
        if (is_missing(at, false)) {
            mst__cli_json_text(json, NULL, mst__map_key(at));
        }
    }
    mst__cli_json_end(json, ']');
}
