/* handler/muster_settings.c - options to settings. A comma separates options, so lists within an
 * option use semicolons. */
#include "handler/muster_settings.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/unicode.h"
#include "handler/builtin.h"

static const char *const muster_options[] = {MST_MUSTER_OPTIONS, "serve", "is_host", "linger",
                                             "new"};
const struct mst__known mst__muster_known = MST_KNOWN(muster_options);

static int fail_option(const char *key, const char *value, const char *rule, struct mst_err *reterr)
{
    return mst__fail(reterr, MST_EINVAL, 0, "option '%s': '%.60s' %s", key, value, rule);
}

/* Cut the part up to @separator off the front of @rest. */
static struct mst_bytes next_part(struct mst_bytes *rest, char separator)
{
    const uint8_t *at = rest->size == 0 ? NULL : memchr(rest->data, separator, rest->size);
    struct mst_bytes part =
        mst_bytes_of(rest->data, at == NULL ? rest->size : (size_t)(at - rest->data));
    *rest = mst__bytes_skip(*rest, part.size + (at == NULL ? 0 : 1));
    return mst__unicode_trim(part);
}

/* `rack=r1;host=h2` */
static int read_labels(const struct mst_params *params,
                       struct mst__muster_settings *settings,
                       struct mst_err *reterr)
{
    const char *text = mst_params_text(params, "labels", "");
    struct mst_bytes rest = mst_bytes_str(text);
    while (rest.size > 0) {
        struct mst_bytes value = next_part(&rest, ';');
        bool has_value = value.size > 0 && memchr(value.data, '=', value.size) != NULL;
        struct mst_bytes key = next_part(&value, '=');
        if (key.size == 0 || !has_value) {
            return fail_option("labels", text, "is not a list such as rack=r1;host=h2", reterr);
        }
        if (settings->labels_count == MST_AUTHORITY_LABELS_MAX) {
            return mst__fail(reterr, MST_EINVAL, 0, "option 'labels': more than %d labels",
                             MST_AUTHORITY_LABELS_MAX);
        }
        settings->labels[settings->labels_count++] =
            (struct mst__label){.key = key, .value = mst__unicode_trim(value)};
    }
    return 0;
}

/* `rack;host` */
static int read_rank_by(const struct mst_params *params,
                        struct mst__muster_settings *settings,
                        struct mst_err *reterr)
{
    const char *text = mst_params_text(params, "rank_by", "");
    struct mst_bytes rest = mst_bytes_str(text);
    size_t used = 0;
    while (rest.size > 0) {
        struct mst_bytes key = next_part(&rest, ';');
        if (key.size == 0 || memchr(key.data, ',', key.size) != NULL) {
            return fail_option("rank_by", text, "is not a list of labels such as rack;host",
                               reterr);
        }
        if (key.size + 1 > MST_AUTHORITY_RANK_BY_SIZE_MAX - used) {
            return fail_option("rank_by", text, "is too long", reterr);
        }
        if (used > 0) {
            settings->rank_by[used++] = ',';
        }
        memcpy(settings->rank_by + used, key.data, key.size);
        used += key.size;
    }
    return 0;
}

/* A name must not have blanks: lists of names use them as separators. */
static int read_name(const struct mst_params *params,
                     struct mst__muster_settings *settings,
                     struct mst_err *reterr)
{
    const char *name = mst_params_text(params, "node_name", NULL);
    if (name == NULL) {
        return 0;
    }
    size_t size = strlen(name);
    for (size_t i = 0; i < size; i++) {
        if ((uint8_t)name[i] <= ' ' || name[i] == 0x7f) {
            return fail_option("node_name", name, "has a blank or a control character in it",
                               reterr);
        }
    }
    if (size == 0 || size > MST_AUTHORITY_NAME_SIZE_MAX) {
        return mst__fail(reterr, MST_EINVAL, 0, "option 'node_name': %zu bytes, not 1 … %d", size,
                         MST_AUTHORITY_NAME_SIZE_MAX);
    }
    settings->node_name = name;
    return 0;
}

static int read_rank(const struct mst_params *params,
                     struct mst__muster_settings *settings,
                     struct mst_err *reterr)
{
    int64_t rank = -1;
    int rv = mst_params_int(params, "rank", -1, &rank, reterr);
    if (rv != 0) {
        return rv;
    }
    if (rank < -1 || rank >= settings->job.nodes_max) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "option 'rank': %" PRId64 " is not within 0 … %" PRId64
                         ", or -1 for no preference",
                         rank, settings->job.nodes_max - 1);
    }
    settings->pinned_rank = rank == -1 ? MST_AUTHORITY_RANK_NONE : (uint32_t)rank;
    return 0;
}

static int read_workers(const struct mst_params *params,
                        struct mst__muster_settings *settings,
                        struct mst_err *reterr)
{
    int64_t workers = 0;
    const char *role = mst_params_text(params, "role", "");
    int rv = mst_params_int(params, "workers", 0, &workers, reterr);
    if (rv != 0) {
        return rv;
    }
    if (workers < 0 || workers > MST_NPROC_MAX) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "option 'workers': %" PRId64 " is not within 1 … %d, or 0 for not known",
                         workers, MST_NPROC_MAX);
    }
    if (strlen(role) > MST_AUTHORITY_ROLE_SIZE_MAX) {
        return mst__fail(reterr, MST_EINVAL, 0, "option 'role': %zu bytes, the limit is %d",
                         strlen(role), MST_AUTHORITY_ROLE_SIZE_MAX);
    }
    for (const char *at = role; *at != '\0'; at++) {
        if ((uint8_t)*at < ' ' || *at == 0x7f) {
            return fail_option("role", role, "has a control character in it", reterr);
        }
    }
    settings->workers = (uint32_t)workers;
    settings->role = role;
    return 0;
}

int mst__muster_read_node(const struct mst_params *params,
                          struct mst__muster_settings *settings,
                          struct mst_err *reterr)
{
    if (settings->job.nodes_max > MST_AUTHORITY_MEMBERS_MAX) {
        return mst__fail(reterr, MST_EINVAL, 0, "nodes_max is %" PRId64 ", the limit is %d",
                         settings->job.nodes_max, MST_AUTHORITY_MEMBERS_MAX);
    }
    int rv = read_name(params, settings, reterr);
    if (rv == 0) {
        rv = read_labels(params, settings, reterr);
    }
    if (rv == 0) {
        rv = read_rank_by(params, settings, reterr);
    }
    bool grows = true;
    if (rv == 0) {
        rv = mst_params_bool(params, "grow", true, &grows, reterr);
        settings->is_fixed = !grows;
    }
    rv = rv == 0 ? read_workers(params, settings, reterr) : rv;
    return rv == 0 ? read_rank(params, settings, reterr) : rv;
}

int mst__muster_read(const struct mst_params *params,
                     struct mst__muster_settings *ret_settings,
                     struct mst_err *reterr)
{
    struct mst__muster_settings settings = {.pinned_rank = MST_AUTHORITY_RANK_NONE};
    struct mst__dynamic dynamic;
    int rv = mst__dynamic_read_known(params, &mst__muster_known, &dynamic, reterr);
    if (rv != 0) {
        return rv;
    }
    settings.job = dynamic.settings;
    rv = mst__muster_read_node(params, &settings, reterr);
    if (rv == 0) {
        rv = mst__c10d_read(params, &settings.place, reterr);
    }
    if (rv == 0) {
        rv = mst_params_bool(params, "new", false, &settings.is_new, reterr);
    }
    if (rv == 0) {
        *ret_settings = settings;
    }
    return rv;
}
