/* status/expect.c - a list of names with ranges, compared with the nodes of a job. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/require.h"
#include "base/text.h"
#include "handler/registry.h"
#include "snapshot/fold.h"
#include "snapshot/snapshot.h"

#define SUMMARY_SIZE_MAX MST_KIB(64)

/* In the given order. */
struct mst_expected {
    struct mst__map map; /* name to struct seen */
};

struct seen {
    bool is_here;
    bool was_here; /* ever */
};

/* --- reading --- */

static int add_name(void *arg, const char *text, struct mst_err *reterr)
{
    struct mst_expected *expected = arg;
    struct mst_bytes name = mst_bytes_str(text);
    if (mst__map_get(&expected->map, name) != NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "'%.60s': given twice", text);
    }
    if (mst__map_count(&expected->map) == MST_AUTHORITY_MEMBERS_MAX) {
        return mst__fail(reterr, MST_ELIMIT, 0, "more than %d names", MST_AUTHORITY_MEMBERS_MAX);
    }
    return mst__map_add(&expected->map, name) != NULL
               ? 0
               : mst__fail(reterr, MST_ENOMEM, 0, "names of nodes");
}

int mst_expected_new(const char *names, struct mst_expected **ret_expected, struct mst_err *reterr)
{
    MST_REQUIRE(names, reterr);
    MST_REQUIRE(ret_expected, reterr);
    struct mst_expected *expected = mst__calloc(1, sizeof *expected);
    if (expected == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "names of nodes");
    }
    uint8_t key[MST_SIPHASH_KEY_SIZE];
    mst__clock_random(key, sizeof key);
    mst__map_init(&expected->map, sizeof(struct seen), key);
    int rv = mst__names_walk(names, add_name, expected, reterr);
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
    return expected != NULL && node != NULL && find(expected, node) != NULL;
}

/* Mark the names that are in @status. */
static void names_mark(struct mst_expected *expected, const struct mst_status *status)
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

/* The absent names; with @ever, those never seen. NULL if out of memory. */
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

/* Append "Of 3 nodes expected, 2 are missing: a, b." to the summary. */
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
    MST_REQUIRE(status, reterr);
    MST_REQUIRE(expected, reterr);
    struct mst__snapshot *snapshot = mst__snapshot_of(status);
    if (!mst__backend_can(status->backend, MST_BACKEND_NAMES)) {
        return mst__fail(reterr, MST_ENOTSUP, 0, "nodes of backend '%.60s' have no names",
                         status->backend);
    }
    names_mark(expected, status);
    status->has_expected = true;
    status->expected_count = mst__map_count(&expected->map);
    status->missing = list_missing(snapshot, expected, false, &status->missing_count);
    status->unseen = list_missing(snapshot, expected, true, &status->unseen_count);
    int rv = status->missing == NULL || status->unseen == NULL ? MST_ENOMEM : snapshot->code;
    rv = rv == 0 ? tell_missing(snapshot) : rv;
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "names of nodes");
}
