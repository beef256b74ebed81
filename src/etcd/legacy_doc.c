/* etcd/legacy_doc.c - converts the document of a legacy rendezvous from and to text.
 *
 * Torch's agents read members by name, write back what they have read with their changes, and
 * compare whole texts. So order and spaces are free, and unknown members are preserved. */
#include "etcd/legacy_doc.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "etcd/json.h"

/* --- reading --- */

static int parse_fail(struct mst_err *reterr, const char *what)
{
    return mst__fail(
        reterr, MST_ESTATE, 0,
        "what is stored as 'active_version' is not a document of a legacy rendezvous: %s", what);
}

static enum mst__legacy_status parse_status(struct mst_bytes word)
{
    for (int i = 0; i < MST_LEGACY_OTHER; i++) {
        enum mst__legacy_status status = (enum mst__legacy_status)i;
        if (mst__bytes_equal(word, mst_bytes_str(mst__legacy_status_name(status)))) {
            return status;
        }
    }
    return MST_LEGACY_OTHER;
}

static bool parse_version(const struct mst__json *json, int64_t *ret_version)
{
    struct mst_bytes text;
    if (mst__json_text(json, &text)) {
        return mst__number_parse(text, 0, INT64_MAX - 1, ret_version);
    }
    return mst__json_int(json, ret_version) && *ret_version >= 0 && *ret_version < INT64_MAX;
}

static int parse_participants(const struct mst__json *json,
                              struct mst__legacy_doc *doc,
                              struct mst_err *reterr)
{
    if (!mst__json_is_array(json)) {
        return parse_fail(reterr, "its participants are no array");
    }
    size_t count = mst__json_count(json);
    if (count > MST_MEMBERS_MAX) {
        return mst__fail(reterr, MST_ELIMIT, 0, "a legacy rendezvous with %zu participants", count);
    }
    for (size_t i = 0; i < count; i++) {
        int64_t rank;
        if (!mst__json_int(mst__json_at(json, i), &rank) || rank != (int64_t)i) {
            return parse_fail(reterr, "its participants are not 0, 1, 2 and so on");
        }
    }
    doc->has_participants = true;
    doc->participant_count = count;
    return 0;
}

static int parse_keep_alives(const struct mst__json *json,
                             struct mst__legacy_doc *doc,
                             struct mst_err *reterr)
{
    if (!mst__json_is_array(json)) {
        return parse_fail(reterr, "its keep-alives are no array");
    }
    doc->has_keep_alives = true;
    for (size_t i = 0; i < mst__json_count(json); i++) {
        struct mst_bytes path;
        if (!mst__json_text(mst__json_at(json, i), &path) ||
            memchr(path.data, '\0', path.size) != NULL) {
            return parse_fail(reterr, "its keep-alives are not the paths of keys");
        }
        char *text = mst__memdup(path.data, path.size);
        int rv = text == NULL ? MST_ENOMEM : mst__legacy_doc_add_keep_alive(doc, text);
        mst__free(text);
        if (rv != 0) {
            return mst__fail(reterr, rv, 0, "keep-alives of a legacy rendezvous");
        }
    }
    return 0;
}

/* Peers never write this. A malformed value counts as absent. */
static int parse_nonces(const struct mst__json *json, struct mst__legacy_nonces *nonces)
{
    int rv = 0;
    for (size_t i = 0; rv == 0 && i < mst__json_count(json); i++) {
        struct mst_bytes text;
        mst__legacy_nonce nonce = 0;
        if (mst__json_text(mst__json_at(json, i), &text)) {
            (void)mst__legacy_nonce_parse(text, &nonce); /* 0 otherwise */
        }
        rv = mst__legacy_nonces_add(nonces, nonce);
    }
    return rv;
}

/* @json without the members of @names, as text; empty if nothing is left. */
static int parse_extra(const struct mst__json *json,
                       const char *const *names,
                       struct mst_buffer *ret_extra)
{
    struct mst__json *copy = mst__json_copy(json);
    if (copy == NULL) {
        return MST_ENOMEM;
    }
    for (size_t i = 0; names[i] != NULL; i++) {
        (void)mst__json_remove(copy, names[i]); /* it may be absent */
    }
    struct mst__buf buf;
    mst__buf_init(&buf, MST_PICKLE_EXTRA_SIZE_MAX);
    int rv = mst__json_write(copy, false, &buf);
    mst__json_free(copy);
    if (rv == 0 && mst__buf_size(&buf) > sizeof "{}" - 1) {
        rv = mst__buf_release(&buf, ret_extra);
    }
    mst__buf_close(&buf);
    return rv;
}

static int parse_muster(const struct mst__json *json, struct mst__legacy_doc *doc)
{
    static const char *const names[] = {"min", "max", "creator", "nodes", "waiting", "left", NULL};
    if (!mst__json_is_object(json)) {
        return 0;
    }
    doc->has_muster = true;
    if (!mst__json_int(mst__json_member(json, "min"), &doc->nodes_min) ||
        !mst__json_int(mst__json_member(json, "max"), &doc->nodes_max) || doc->nodes_min < 1) {
        doc->nodes_min = 0;
        doc->nodes_max = 0;
    }
    struct mst_bytes creator;
    if (mst__json_text(mst__json_member(json, "creator"), &creator)) {
        (void)mst__legacy_nonce_parse(creator, &doc->creator); /* 0 otherwise */
    }
    int rv = parse_nonces(mst__json_member(json, "nodes"), &doc->nodes);
    rv = rv != 0 ? rv : parse_nonces(mst__json_member(json, "waiting"), &doc->waiting);
    rv = rv != 0 ? rv : parse_nonces(mst__json_member(json, "left"), &doc->left);
    if (doc->nodes.count > doc->participant_count) {
        doc->nodes.count = doc->participant_count;
    }
    return rv != 0 ? rv : parse_extra(json, names, &doc->muster_extra);
}

static int parse_members(const struct mst__json *json,
                         struct mst__legacy_doc *doc,
                         struct mst_err *reterr)
{
    static const char *const names[] = {
        "status", "version", "participants", "keep_alives", "num_workers_waiting", "muster", NULL};
    struct mst_bytes status;
    if (!mst__json_text(mst__json_member(json, "status"), &status)) {
        return parse_fail(reterr, "it has no status");
    }
    doc->status = parse_status(status);
    const struct mst__json *version = mst__json_member(json, "version");
    if (version != NULL && !parse_version(version, &doc->version)) {
        return parse_fail(reterr, "its version is no number");
    }
    const struct mst__json *participants = mst__json_member(json, "participants");
    int rv = participants == NULL ? 0 : parse_participants(participants, doc, reterr);
    const struct mst__json *keep_alives = mst__json_member(json, "keep_alives");
    if (rv == 0 && keep_alives != NULL) {
        rv = parse_keep_alives(keep_alives, doc, reterr);
    }
    if (rv != 0) {
        return rv;
    }
    const struct mst__json *waiting = mst__json_member(json, "num_workers_waiting");
    doc->has_waiting = waiting != NULL;
    if (waiting != NULL && !mst__json_int(waiting, &doc->waiting_count)) {
        return parse_fail(reterr, "its count of waiting workers is no number");
    }
    bool has_round = doc->status == MST_LEGACY_JOINABLE || doc->status == MST_LEGACY_FROZEN ||
                     doc->status == MST_LEGACY_FINAL;
    if (has_round && (version == NULL || participants == NULL)) {
        return parse_fail(reterr, "it lacks the version or the participants");
    }
    if ((doc->status == MST_LEGACY_FROZEN || doc->status == MST_LEGACY_FINAL) &&
        keep_alives == NULL) {
        return parse_fail(reterr, "it lacks the keep-alives");
    }
    rv = parse_muster(mst__json_member(json, "muster"), doc);
    rv = rv != 0 ? rv : parse_extra(json, names, &doc->extra);
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "document of a legacy rendezvous");
}

int mst__legacy_doc_parse(struct mst_bytes text,
                          struct mst__legacy_doc *ret_doc,
                          struct mst_err *reterr)
{
    mst__legacy_doc_close(ret_doc);
    struct mst__json *json = NULL;
    int rv = mst__json_parse(text, &json, reterr);
    if (rv == MST_EPROTO) {
        return parse_fail(reterr, "it is not JSON");
    }
    if (rv != 0) {
        return rv;
    }
    rv = mst__json_is_object(json) ? parse_members(json, ret_doc, reterr)
                                   : parse_fail(reterr, "it is not an object");
    mst__json_free(json);
    if (rv != 0) {
        mst__legacy_doc_close(ret_doc);
    }
    return rv;
}

/* --- writing --- */

/* An object with the members of @extra, or an empty one. NULL when out of memory. */
static struct mst__json *write_begin(const struct mst_buffer *extra)
{
    struct mst__json *json = NULL;
    if (extra->size == 0) {
        return mst__json_new_object();
    }
    struct mst_err ignored; /* we wrote it, so only memory can fail */
    return mst__json_parse(mst_bytes_of(extra->data, extra->size), &json, &ignored) == 0 ? json
                                                                                         : NULL;
}

static int write_nonces(struct mst__json *json,
                        const char *name,
                        const struct mst__legacy_nonces *nonces)
{
    struct mst__json *array = mst__json_new_array();
    int rv = array == NULL ? MST_ENOMEM : 0;
    for (size_t i = 0; rv == 0 && i < nonces->count; i++) {
        char text[MST_LEGACY_NONCE_SIZE] = "";
        if (nonces->items[i] != 0) {
            mst__legacy_nonce_format(nonces->items[i], text);
        }
        rv = mst__json_add_text(array, NULL, mst_bytes_str(text));
    }
    if (rv != 0) {
        mst__json_free(array);
        return rv;
    }
    return mst__json_add(json, name, array);
}

static int write_muster(const struct mst__legacy_doc *doc, struct mst__json *json)
{
    struct mst__json *muster = write_begin(&doc->muster_extra);
    int rv = muster == NULL ? MST_ENOMEM : 0;
    if (rv == 0 && doc->nodes_min != 0) {
        rv = mst__json_add_int(muster, "min", doc->nodes_min);
        rv = rv != 0 ? rv : mst__json_add_int(muster, "max", doc->nodes_max);
    }
    if (rv == 0 && doc->creator != 0) {
        char text[MST_LEGACY_NONCE_SIZE];
        mst__legacy_nonce_format(doc->creator, text);
        rv = mst__json_add_text(muster, "creator", mst_bytes_str(text));
    }
    if (rv == 0 && doc->nodes.count > 0) {
        rv = write_nonces(muster, "nodes", &doc->nodes);
    }
    if (rv == 0 && doc->waiting.count > 0) {
        rv = write_nonces(muster, "waiting", &doc->waiting);
    }
    if (rv == 0 && doc->left.count > 0) {
        rv = write_nonces(muster, "left", &doc->left);
    }
    if (rv != 0) {
        mst__json_free(muster);
        return rv;
    }
    return mst__json_add(json, "muster", muster);
}

static int write_participants(const struct mst__legacy_doc *doc, struct mst__json *json)
{
    struct mst__json *array = mst__json_new_array();
    int rv = array == NULL ? MST_ENOMEM : 0;
    for (size_t i = 0; rv == 0 && i < doc->participant_count; i++) {
        rv = mst__json_add_int(array, NULL, (int64_t)i);
    }
    if (rv != 0) {
        mst__json_free(array);
        return rv;
    }
    return mst__json_add(json, "participants", array);
}

static int write_keep_alives(const struct mst__legacy_doc *doc, struct mst__json *json)
{
    struct mst__json *array = mst__json_new_array();
    int rv = array == NULL ? MST_ENOMEM : 0;
    for (size_t i = 0; rv == 0 && i < doc->keep_alive_count; i++) {
        rv = mst__json_add_text(array, NULL, mst_bytes_str(doc->keep_alives[i]));
    }
    if (rv != 0) {
        mst__json_free(array);
        return rv;
    }
    return mst__json_add(json, "keep_alives", array);
}

static int write_members(const struct mst__legacy_doc *doc, struct mst__json *json)
{
    int rv =
        mst__json_add_text(json, "status", mst_bytes_str(mst__legacy_status_name(doc->status)));
    if (rv == 0 && doc->version != 0) {
        char text[MST_NUMBER_SIZE];
        size_t size = mst__number_format(doc->version, text);
        rv = mst__json_add_text(json, "version", mst_bytes_of(text, size));
    }
    if (rv == 0 && doc->has_participants) {
        rv = write_participants(doc, json);
    }
    if (rv == 0 && doc->has_keep_alives) {
        rv = write_keep_alives(doc, json);
    }
    if (rv == 0 && doc->has_waiting) {
        rv = mst__json_add_int(json, "num_workers_waiting", doc->waiting_count);
    }
    return rv == 0 && doc->has_muster ? write_muster(doc, json) : rv;
}

int mst__legacy_doc_write(const struct mst__legacy_doc *doc, struct mst__buf *buf)
{
    if (doc->status == MST_LEGACY_OTHER) {
        return MST_EINVAL;
    }
    struct mst__json *json = write_begin(&doc->extra);
    int rv = json == NULL ? MST_ENOMEM : write_members(doc, json);
    rv = rv != 0 ? rv : mst__json_write(json, true, buf);
    mst__json_free(json);
    return rv;
}
