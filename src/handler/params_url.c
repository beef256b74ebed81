/* handler/params_url.c - parameters from one URL, as the first releases of the peers' legacy
 * handler took them: etcd://host:port/run_id?min_workers=2&max_workers=4&timeout=60. */
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/percent.h"
#include "base/require.h"
#include "handler/params.h"

#define FORM "BACKEND://ENDPOINT/RUN_ID?min_workers=N&max_workers=M&option=value"

/* The decoded parts of a URL, each ended by a NUL and without one inside. */
struct parts {
    char *backend;
    char *endpoint;
    char *run_id;
    int64_t nodes_min, nodes_max; /* 0 = not given */
};

static void parts_close(struct parts *parts)
{
    mst__free(parts->backend);
    mst__free(parts->endpoint);
    mst__free(parts->run_id);
}

/* A copy of @text with every %XX decoded, and in a query `+` as a blank. Heap. */
static int decode(struct mst_bytes text, bool is_query, char **ret_text, struct mst_err *reterr)
{
    char *copy = mst__malloc(text.size + 1);
    if (copy == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "URL");
    }
    size_t size = 0;
    while (text.size > 0) {
        bool is_blank = is_query && text.data[0] == '+';
        uint8_t c;
        if (!mst__percent_take(&text, &c) || c == 0) {
            mst__free(copy);
            return mst__fail(reterr, MST_EINVAL, 0,
                             "a '%%' is not followed by two hexadecimal digits other than 00; "
                             "a percent sign itself is written %%25");
        }
        copy[size++] = is_blank ? ' ' : (char)c;
    }
    copy[size] = '\0';
    *ret_text = copy;
    return 0;
}

/* Cut the text up to @separator off the front of @rest; all of it if there is none. */
static struct mst_bytes cut(struct mst_bytes *rest, char separator, bool *ret_found)
{
    const uint8_t *at = rest->size == 0 ? NULL : memchr(rest->data, separator, rest->size);
    *ret_found = at != NULL;
    struct mst_bytes part =
        mst_bytes_of(rest->data, at == NULL ? rest->size : (size_t)(at - rest->data));
    *rest = mst__bytes_skip(*rest, part.size + (at == NULL ? 0 : 1));
    return part;
}

/* `backend://endpoint/run_id` */
static int parse_front(struct mst_bytes front, struct parts *parts, struct mst_err *reterr)
{
    bool found;
    struct mst_bytes backend = cut(&front, ':', &found);
    if (!found || backend.size == 0 || !mst__bytes_start_with(front, mst_bytes_str("//"))) {
        return mst__fail(reterr, MST_EINVAL, 0, "it is written " FORM);
    }
    front = mst__bytes_skip(front, 2);
    struct mst_bytes endpoint = cut(&front, '/', &found);
    if (!found || front.size == 0) {
        return mst__fail(reterr, MST_EINVAL, 0, "no run id; it is written " FORM);
    }
    int rv = decode(backend, false, &parts->backend, reterr);
    rv = rv == 0 ? decode(endpoint, false, &parts->endpoint, reterr) : rv;
    return rv == 0 ? decode(front, false, &parts->run_id, reterr) : rv;
}

/* One `name=value` of the query: a limit, or with @params an option of it. */
static int take_option(const char *name,
                       const char *value,
                       struct parts *parts,
                       struct mst_params *params,
                       struct mst_err *reterr)
{
    int64_t *limit = strcmp(name, "min_workers") == 0   ? &parts->nodes_min
                     : strcmp(name, "max_workers") == 0 ? &parts->nodes_max
                                                        : NULL;
    if (limit == NULL) {
        return params == NULL ? 0 : mst_params_set(params, name, value, reterr);
    }
    if (!mst__number_parse(mst_bytes_str(value), 1, INT64_MAX, limit)) {
        return mst__fail(reterr, MST_EINVAL, 0, "%s: '%.40s' is not a positive number", name,
                         value);
    }
    return 0;
}

static int parse_query(struct mst_bytes query,
                       struct parts *parts,
                       struct mst_params *params,
                       struct mst_err *reterr)
{
    bool more = query.size > 0;
    int rv = 0;
    while (more && rv == 0) {
        struct mst_bytes value = cut(&query, '&', &more);
        bool has_value;
        struct mst_bytes name = cut(&value, '=', &has_value);
        if (name.size == 0 || !has_value) {
            return mst__fail(reterr, MST_EINVAL, 0, "'%.*s' in its query is not option=value",
                             (int)(name.size > 60 ? 60 : name.size), (const char *)name.data);
        }
        char *name_text = NULL;
        char *value_text = NULL;
        rv = decode(name, true, &name_text, reterr);
        rv = rv == 0 ? decode(value, true, &value_text, reterr) : rv;
        rv = rv == 0 ? take_option(name_text, value_text, parts, params, reterr) : rv;
        mst__free(name_text);
        mst__free(value_text);
    }
    return rv;
}

int mst_params_from_url(const char *url, struct mst_params **ret_params, struct mst_err *reterr)
{
    MST_REQUIRE(url, reterr);
    MST_REQUIRE(ret_params, reterr);
    struct mst_bytes query = mst_bytes_str(url);
    bool has_query;
    struct mst_bytes front = cut(&query, '?', &has_query);
    struct parts parts = {0};
    struct mst_params *params = NULL;
    int rv = parse_front(front, &parts, reterr);
    rv = rv == 0 ? parse_query(query, &parts, NULL, reterr) : rv;
    if (rv == 0 && parts.nodes_min == 0) {
        rv = mst__fail(reterr, MST_EINVAL, 0, "min_workers is missing; it is written " FORM);
    }
    if (rv == 0) {
        int64_t nodes_max = parts.nodes_max == 0 ? parts.nodes_min : parts.nodes_max;
        rv = mst_params_new(parts.backend, parts.run_id, &params, reterr);
        rv = rv == 0 ? mst_params_set_endpoint(params, parts.endpoint, reterr) : rv;
        rv = rv == 0 ? mst_params_set_nodes(params, parts.nodes_min, nodes_max, reterr) : rv;
    }
    rv = rv == 0 ? parse_query(query, &parts, params, reterr) : rv;
    parts_close(&parts);
    if (rv != 0) {
        mst_params_free(params);
        /* Without the query, which may hold a password. */
        return mst__err_wrap(reterr, rv, "URL '%.*s'", (int)(front.size > 60 ? 60 : front.size),
                             (const char *)front.data);
    }
    *ret_params = params;
    return 0;
}
