/* status/expect.c - a list of names with ranges, and who of it is there. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/text.h"
#include "snapshot/fold.h"
#include "snapshot/snapshot.h"

#define DIGITS_MAX 9 /* of a number in a range */
#define SUMMARY_SIZE_MAX MST_KIB(64)

/* In the order in which they were given. */
struct mst_expected {
    struct mst__map map; /* name to struct seen */
};

struct seen {
    bool is_here;
    bool was_here; /* ever */
};

/* --- reading --- */

/* One name in the making: brackets are replaced from the left to the right. */
struct item {
    struct mst_expected *expected;
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
    if (mst__map_get(&item->expected->map, name) != NULL) {
        return item_fail(item, mst_bytes_of("", 0), "is there twice");
    }
    if (mst__map_count(&item->expected->map) == MST_AUTHORITY_MEMBERS_MAX) {
        return mst__fail(item->reterr, MST_ELIMIT, 0, "more than %d names",
                         MST_AUTHORITY_MEMBERS_MAX);
    }
    return mst__map_add(&item->expected->map, name) != NULL
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

static int parse(const char *names, struct mst_expected *expected, struct mst_err *reterr)
{
    struct item item = {.expected = expected, .reterr = reterr};
    int rv = 0;
    do {
        item.name[0] = '\0';
        rv = item_expand(&item, 0, next_item(&names));
    } while (rv == 0 && *names != '\0');
    return rv;
}

int mst_expected_new(const char *names, struct mst_expected **ret_expected, struct mst_err *reterr)
{
    struct mst_expected *expected = mst__calloc(1, sizeof *expected);
    if (expected == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "names of nodes");
    }
    uint8_t key[MST_SIPHASH_KEY_SIZE];
    mst__clock_random(key, sizeof key);
    mst__map_init(&expected->map, sizeof(struct seen), key);
    int rv = parse(names, expected, reterr);
    if (rv != 0) {
        mst_expected_free(expected);
        return rv;
    }
    *ret_expected = expected;
    return 0;
}

void mst_expected_free(struct mst_expected *expected)
{
    if (expected != NULL) {
        mst__map_close(&expected->map);
        mst__free(expected);
    }
}

/* --- seeing --- */

static struct seen *find(const struct mst_expected *expected, const char *name)
{
    struct mst_bytes node = mst_bytes_str(name);
    struct mst_bytes host = mst__fold_host(node);
    const uint8_t *dot = host.size == 0 ? NULL : memchr(host.data, '.', host.size);
    struct mst_bytes names[] = {
        node, host, mst_bytes_of(host.data, dot == NULL ? host.size : (size_t)(dot - host.data))};
    struct seen *seen = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && seen == NULL; i++) {
        seen = mst__map_get(&expected->map, names[i]);
    }
    return seen;
}

bool mst_expected_has(const struct mst_expected *expected, const char *node)
{
    return find(expected, node) != NULL;
}

/* Those who are there in @status, and no others. */
static void see(struct mst_expected *expected, const struct mst_status *status)
{
    for (struct seen *at = mst__map_first(&expected->map); at != NULL; at = mst__map_next(at)) {
        at->is_here = false;
    }
    for (size_t i = 0; i < status->node_count; i++) {
        const struct mst_status_node *node = status->nodes[i];
        struct seen *seen =
            node->standing == MST_STATUS_NODE_GONE ? NULL : find(expected, node->name);
        if (seen != NULL) {
            *seen = (struct seen){.is_here = true, .was_here = true};
        }
    }
}

/* Those who are not there; with @ever, have never been. NULL when there is no memory. */
static const char **list_missing(struct mst__snapshot *snapshot,
                                 const struct mst_expected *expected,
                                 bool ever,
                                 size_t *ret_count)
{
    size_t count = mst__map_count(&expected->map);
    const char **names = mst__arena_take(&snapshot->arena, (count + 1) * sizeof *names);
    *ret_count = 0;
    const struct seen *at = mst__map_first(&expected->map);
    for (; at != NULL && names != NULL; at = mst__map_next(at)) {
        if (ever ? !at->was_here : !at->is_here) {
            names[(*ret_count)++] = mst__snapshot_text(snapshot, mst__map_key(at));
        }
    }
    return names;
}

/* "Of 3 nodes expected, 2 are missing: a, b.", behind what is said already. */
static int tell_missing(struct mst__snapshot *snapshot)
{
    struct mst_status *status = &snapshot->status;
    size_t count = status->missing_count;
    size_t length = strlen(status->summary);
    bool has_end = length == 0 || status->summary[length - 1] == '.';
    struct mst_bytes *names = mst__calloc(count + 1, sizeof *names);
    struct mst__buf text;
    int rv = names == NULL ? MST_ENOMEM : 0;
    for (size_t i = 0; i < count && rv == 0; i++) {
        names[i] = mst_bytes_str(status->missing[i]);
    }
    mst__buf_init(&text, SUMMARY_SIZE_MAX);
    rv = rv == 0 ? mst__buf_append(&text, mst_bytes_str(status->summary)) : rv;
    mst__text_put(&text, &rv, "%s Of %zu node%s expected, %zu %s missing%s", has_end ? "" : ".",
                  status->expected_count, mst__text_plural(status->expected_count), count,
                  count == 1 ? "is" : "are", count == 0 ? "" : ": ");
    if (rv == 0) {
        mst__fold_put(&text, &rv, names, count);
    }
    mst__text_put(&text, &rv, ".");
    if (rv == 0) {
        status->summary = mst__snapshot_text(snapshot, mst__buf_bytes(&text));
        rv = snapshot->code;
    }
    mst__buf_close(&text);
    mst__free(names);
    return rv;
}

int mst_status_expect(struct mst_status *status,
                      struct mst_expected *expected,
                      struct mst_err *reterr)
{
    struct mst__snapshot *snapshot = mst__snapshot_of(status);
    if (strcmp(status->backend, "etcd") == 0) {
        return mst__fail(reterr, MST_ENOTSUP, 0, "nodes of backend 'etcd' have no names");
    }
    see(expected, status);
    status->has_expected = true;
    status->expected_count = mst__map_count(&expected->map);
    status->missing = list_missing(snapshot, expected, false, &status->missing_count);
    status->unseen = list_missing(snapshot, expected, true, &status->unseen_count);
    int rv = status->missing == NULL || status->unseen == NULL ? MST_ENOMEM : snapshot->code;
    rv = rv == 0 ? tell_missing(snapshot) : rv;
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "names of nodes");
}
