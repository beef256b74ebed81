/* legacy/legacy_look.c - reads a legacy rendezvous from outside, and the extra data of a round;
 * needs no machine. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/until.h"
#include "etcd/json.h"
#include "etcd/legacy_doc.h"
#include "handler/params.h"
#include "legacy/legacy.h"

/* Pause after a lost compare-and-swap of extra data. */
#define EXTRA_PAUSE_US 20000

/* --- from outside --- */

void mst__legacy_view_init(struct mst__legacy_view *view)
{
    *view = (struct mst__legacy_view){.exists = false};
    mst__legacy_doc_init(&view->doc);
}

void mst__legacy_view_close(struct mst__legacy_view *view)
{
    mst__legacy_doc_close(&view->doc);
    mst__free(view->seats);
    view->seats = NULL;
    view->exists = false;
}

int mst__legacy_look_open(struct mst__legacy_look *look,
                          const struct mst_params *params,
                          struct mst_err *reterr)
{
    *look = (struct mst__legacy_look){.v2 = NULL};
    int rv = mst__legacy_read(params, &look->settings, reterr);
    if (rv != 0) {
        return rv;
    }
    const struct mst__legacy_options options = {
        .prefix = look->settings.prefix,
        .run_id = mst_params_run_id(params),
        .nonce = 1, /* never visible to others */
        .nodes_min = look->settings.nodes_min,
        .nodes_max = look->settings.nodes_max,
    };
    rv = mst__legacy_init(&look->paths, &options);
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "rendezvous '%.60s'", mst_params_run_id(params));
    }
    const struct mst__http_options http = mst__etcd_http(&look->settings.etcd, &params->log);
    return mst__v2_new(&http, &look->v2, reterr);
}

void mst__legacy_look_close(struct mst__legacy_look *look)
{
    mst__v2_free(look->v2);
    look->v2 = NULL;
    mst__legacy_close(&look->paths);
    mst__legacy_settings_close(&look->settings);
}

/* The rank in the name of a key, `rank_3`, or -1. */
static int64_t rank_of(const char *key)
{
    const char *name = strrchr(key, '/');
    int64_t rank = -1;
    if (name == NULL || strncmp(name, "/rank_", 6) != 0 ||
        !mst__number_parse(mst_bytes_str(name + 6), 0, INT64_MAX, &rank)) {
        return -1;
    }
    return rank;
}

/* Find the existing keys of members. */
static int read_seats(struct mst__legacy_look *look,
                      struct mst__until until,
                      struct mst__legacy_view *view,
                      struct mst_err *reterr)
{
    size_t count = view->doc.participant_count;
    char path[MST_LEGACY_PATH_MAX];
    if (count == 0 || view->doc.version <= 0 ||
        !mst__legacy_path(&look->paths, view->doc.version, NULL, path, sizeof path)) {
        return 0;
    }
    view->seats = mst__calloc(count, sizeof *view->seats);
    if (view->seats == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "%zu participants", count);
    }
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    int rv = mst__v2_get(look->v2, path, false, false, until, &answer, reterr);
    for (size_t i = 0; rv == 0 && answer.code == MST_V2_OK && i < answer.node.node_count; i++) {
        const struct mst__v2_node *node = &answer.node.nodes[i];
        int64_t rank = rank_of(node->key);
        if (rank >= 0 && rank < (int64_t)count) {
            view->seats[rank] = (struct mst__legacy_seat){
                .is_alive = true, .has_ttl = node->has_ttl, .ttl_s = node->ttl_s};
        }
    }
    mst__v2_answer_close(&answer);
    return rv;
}

int mst__legacy_look_read(struct mst__legacy_look *look,
                          struct mst__until until,
                          struct mst__legacy_view *view,
                          struct mst_err *reterr)
{
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    mst__legacy_view_close(view);
    const char *key = look->paths.active;
    int rv = mst__v2_get(look->v2, key, false, false, until, &answer, reterr);
    if (rv == 0 && answer.code == MST_V2_OK && answer.node.is_dir) {
        rv = mst__fail(reterr, MST_ESTATE, 0, "'%.100s' is a directory", key);
    } else if (rv == 0 && answer.code == MST_V2_OK) {
        const struct mst_buffer *value = &answer.node.value;
        rv = mst__legacy_doc_parse(mst_bytes_of(value->data, value->size), &view->doc, reterr);
        rv = rv == MST_ESTATE ? mst__err_wrap(reterr, rv, "'%.100s'", key) : rv;
        view->exists = rv == 0;
        view->modified = answer.node.modified;
    } else if (rv == 0 && answer.code != MST_V2_NOT_FOUND) {
        rv =
            mst__fail(reterr, MST_ESTATE, 0, "'%.80s': %s (%s)", key, answer.message, answer.cause);
    }
    mst__v2_answer_close(&answer);
    return rv == 0 && view->exists ? read_seats(look, until, view, reterr) : rv;
}

/* --- extra data --- */

/* The object in @node, or a new one if @node is NULL. */
static int extra_object(const char *key,
                        const struct mst__v2_node *node,
                        struct mst__json **ret_object,
                        struct mst_err *reterr)
{
    if (node == NULL) {
        *ret_object = mst__json_new_object();
        return *ret_object != NULL ? 0 : mst__fail(reterr, MST_ENOMEM, 0, "extra data");
    }
    int rv = mst__json_parse(mst_bytes_of(node->value.data, node->value.size), ret_object, reterr);
    if (rv == 0 && !mst__json_is_object(*ret_object)) {
        mst__json_free(*ret_object);
        rv = mst__fail(reterr, MST_EPROTO, 0, "not a JSON object");
    }
    return rv == MST_EPROTO ? mst__err_wrap(reterr, MST_ESTATE, "data of '%.80s'", key) : rv;
}

/* Write @object with @name set to @value, if the key is unchanged since @node. */
static int extra_write(struct mst__v2 *v2,
                       const char *key,
                       const struct mst__v2_node *node,
                       const char *name,
                       const struct mst__json *value,
                       struct mst__until until,
                       struct mst__v2_answer *answer,
                       struct mst_err *reterr)
{
    struct mst__json *object = NULL;
    struct mst__buf text;
    mst__buf_init(&text, MST_VALUE_SIZE_DEFAULT);
    int rv = extra_object(key, node, &object, reterr);
    if (rv == 0) {
        rv = mst__json_add(object, name, mst__json_copy(value));
        rv = rv == 0 ? mst__json_write(object, true, &text) : rv;
        rv = rv == 0 ? 0 : mst__fail(reterr, rv, 0, "extra data '%.60s'", name);
    }
    mst__json_free(object);
    if (rv == 0) {
        const struct mst__v2_write write = {
            .key = key,
            .condition = node == NULL ? MST_V2_IF_ABSENT : MST_V2_IF_INDEX,
            .previous_index = node == NULL ? 0 : node->modified,
            .value = mst__buf_bytes(&text),
            .ttl_s = MST_V2_NO_TTL,
        };
        rv = mst__v2_put(v2, &write, until, answer, reterr);
    }
    mst__buf_close(&text);
    return rv;
}

/* One attempt; @ret_done says whether it succeeded. */
static int extra_try(struct mst__v2 *v2,
                     const char *key,
                     const char *name,
                     const struct mst__json *value,
                     struct mst__until until,
                     bool *ret_done,
                     struct mst_err *reterr)
{
    struct mst__v2_answer read;
    struct mst__v2_answer written;
    mst__v2_answer_init(&read);
    mst__v2_answer_init(&written);
    int rv = mst__v2_get(v2, key, false, false, until, &read, reterr);
    if (rv == 0 && read.code != MST_V2_OK && read.code != MST_V2_NOT_FOUND) {
        rv = mst__fail(reterr, MST_ESTATE, 0, "'%.80s': %s (%s)", key, read.message, read.cause);
    }
    if (rv == 0) {
        rv = extra_write(v2, key, read.code == MST_V2_OK ? &read.node : NULL, name, value, until,
                         &written, reterr);
    }
    *ret_done = rv == 0 && written.code == MST_V2_OK;
    bool is_lost = written.code == MST_V2_EXISTS || written.code == MST_V2_COMPARE_FAILED ||
                   written.code == MST_V2_NOT_FOUND;
    if (rv == 0 && !*ret_done && !is_lost) {
        rv = mst__fail(reterr, MST_ESTATE, 0, "'%.80s': %s (%s)", key, written.message,
                       written.cause);
    }
    mst__v2_answer_close(&read);
    mst__v2_answer_close(&written);
    return rv;
}

/* Setting a member twice is harmless, so an unknown result leads to a retry. */
int mst__legacy_extra_set(struct mst__v2 *v2,
                          const char *key,
                          const char *name,
                          struct mst_bytes json,
                          struct mst__until until,
                          struct mst_err *reterr)
{
    struct mst__json *value = NULL;
    int rv = mst__json_parse(json, &value, reterr);
    if (rv != 0) {
        return mst__err_wrap(reterr, rv == MST_EPROTO ? MST_EINVAL : rv, "extra data '%.60s'",
                             name);
    }
    bool is_done = false;
    while (rv == 0 && !is_done) {
        rv = extra_try(v2, key, name, value, until, &is_done, reterr);
        bool is_late = mst__until_is_over(until);
        if ((rv == MST_EUNKNOWN || rv == MST_ECONN) && !is_late) {
            rv = 0;
        }
        if (rv == 0 && !is_done && is_late) {
            rv = mst__fail(reterr, MST_ETIMEOUT, 0,
                           "extra data '%.60s': other nodes kept changing it", name);
        }
        if (rv == 0 && !is_done) {
            (void)mst__until_pause(until.wake_fd, mst__clock_us() + EXTRA_PAUSE_US);
        }
    }
    mst__json_free(value);
    return rv;
}

/* Member @name in @answer; @ret_found if it exists. */
static int extra_take(const char *key,
                      const struct mst__v2_answer *answer,
                      const char *name,
                      bool *ret_found,
                      struct mst_buffer *ret_json,
                      struct mst_err *reterr)
{
    *ret_found = false;
    if (answer->code == MST_V2_NOT_FOUND) {
        return 0;
    }
    if (answer->code != MST_V2_OK) {
        return mst__fail(reterr, MST_ESTATE, 0, "'%.80s': %s (%s)", key, answer->message,
                         answer->cause);
    }
    struct mst__json *object = NULL;
    struct mst__buf text;
    mst__buf_init(&text, MST_VALUE_SIZE_DEFAULT);
    int rv = extra_object(key, &answer->node, &object, reterr);
    const struct mst__json *value = rv == 0 ? mst__json_member(object, name) : NULL;
    if (value != NULL) {
        rv = mst__json_write(value, false, &text);
        rv = rv == 0 ? mst__buf_release(&text, ret_json) : rv;
        rv = rv == 0 ? 0 : mst__fail(reterr, rv, 0, "extra data '%.60s'", name);
        *ret_found = rv == 0;
    }
    mst__buf_close(&text);
    mst__json_free(object);
    return rv;
}

int mst__legacy_extra_get(struct mst__v2 *v2,
                          const char *key,
                          const char *name,
                          struct mst__until until,
                          struct mst_buffer *ret_json,
                          struct mst_err *reterr)
{
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    bool is_found = false;
    int rv = 0;
    while (rv == 0 && !is_found) {
        rv = mst__v2_get(v2, key, false, false, until, &answer, reterr);
        if (rv == 0) {
            rv = extra_take(key, &answer, name, &is_found, ret_json, reterr);
        }
        if (rv == 0 && !is_found) {
            uint64_t from = answer.index + 1;
            rv = mst__v2_wait(v2, key, false, from, until, &answer, reterr);
            rv = rv == MST_ECONN && mst__clock_ms() < until.deadline_ms ? 0 : rv;
        }
    }
    mst__v2_answer_close(&answer);
    return rv == MST_ETIMEOUT
               ? mst__fail(reterr, rv, 0, "extra data '%.60s' was not set in time", name)
               : rv;
}
