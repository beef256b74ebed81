/* etcd/v2_answer.c - parses answers of the v2 API.
 *
 * Pure except for memory: the answer is either complete or empty. */
#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "etcd/json.h"
#include "etcd/v2.h"

/* The nesting of nodes: each is an object in an array of JSON, which is not nested deeper than
 * this. */
#define V2_DEPTH_MAX MST_JSON_DEPTH_MAX

static void v2_node_close(struct mst__v2_node *node)
{
    for (size_t i = 0; i < node->node_count; i++) {
        v2_node_close(&node->nodes[i]);
    }
    mst__free(node->nodes);
    mst__free(node->key);
    mst_buffer_free(&node->value);
    *node = (struct mst__v2_node){0};
}

void mst__v2_answer_init(struct mst__v2_answer *answer)
{
    *answer = (struct mst__v2_answer){0};
}

void mst__v2_answer_close(struct mst__v2_answer *answer)
{
    v2_node_close(&answer->node);
    v2_node_close(&answer->previous);
    mst__v2_answer_init(answer);
}

/* --- nodes --- */

/* An optional text member. */
static int v2_node_text(const struct mst__json *json, const char *name, struct mst_bytes *ret_text)
{
    const struct mst__json *member = mst__json_member(json, name);
    *ret_text = mst_bytes_of("", 0);
    return member == NULL || mst__json_text(member, ret_text) ? 0 : MST_EPROTO;
}

static int v2_node_index(const struct mst__json *json, const char *name, uint64_t *ret_index)
{
    const struct mst__json *member = mst__json_member(json, name);
    return member == NULL || mst__json_uint(member, ret_index) ? 0 : MST_EPROTO;
}

/* Everything except the child nodes. */
static int v2_node_read_self(const struct mst__json *json, struct mst__v2_node *node)
{
    struct mst_bytes key;
    struct mst_bytes value;
    const struct mst__json *dir = mst__json_member(json, "dir");
    const struct mst__json *ttl = mst__json_member(json, "ttl");
    if (!mst__json_is_object(json) || v2_node_text(json, "key", &key) != 0 ||
        v2_node_text(json, "value", &value) != 0 ||
        v2_node_index(json, "modifiedIndex", &node->modified) != 0 ||
        v2_node_index(json, "createdIndex", &node->created) != 0 ||
        (dir != NULL && !mst__json_bool(dir, &node->is_dir)) ||
        (ttl != NULL && !mst__json_int(ttl, &node->ttl_s)) ||
        (key.size > 0 && memchr(key.data, '\0', key.size) != NULL)) {
        return MST_EPROTO;
    }
    /* A TTL of 0 is left out; then only the time of expiration shows that there is one. */
    node->has_ttl = ttl != NULL || mst__json_member(json, "expiration") != NULL;
    node->key = mst__memdup(key.data, key.size);
    node->value.data = (uint8_t *)mst__memdup(value.data, value.size);
    node->value.size = value.size;
    return node->key == NULL || node->value.data == NULL ? MST_ENOMEM : 0;
}

/* @node is zeroed; after a failure the caller releases it. */
static int v2_node_read(const struct mst__json *json, unsigned depth, struct mst__v2_node *node)
{
    int rv = depth > V2_DEPTH_MAX ? MST_EPROTO : v2_node_read_self(json, node);
    const struct mst__json *nodes = mst__json_member(json, "nodes");
    if (rv != 0 || nodes == NULL) {
        return rv;
    }
    if (!mst__json_is_array(nodes)) {
        return MST_EPROTO;
    }
    size_t count = mst__json_count(nodes);
    if (count == 0) {
        return 0;
    }
    node->nodes = mst__calloc(count, sizeof *node->nodes);
    if (node->nodes == NULL) {
        return MST_ENOMEM;
    }
    node->node_count = count;
    for (size_t i = 0; rv == 0 && i < count; i++) {
        rv = v2_node_read(mst__json_at(nodes, i), depth + 1, &node->nodes[i]);
    }
    return rv;
}

static bool v2_action_read(const struct mst__json *json, enum mst__v2_action *ret_action)
{
    static const struct {
        const char *name;
        enum mst__v2_action action;
    } actions[] = {
        {"get", MST_V2_GET},
        {"set", MST_V2_SET},
        {"create", MST_V2_CREATE},
        {"update", MST_V2_UPDATE},
        {"compareAndSwap", MST_V2_COMPARE_AND_SWAP},
        {"compareAndDelete", MST_V2_COMPARE_AND_DELETE},
        {"delete", MST_V2_DELETE},
        {"expire", MST_V2_EXPIRE},
    };
    struct mst_bytes text;
    if (!mst__json_text(json, &text)) {
        return false;
    }
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (mst__bytes_equal(text, mst_bytes_str(actions[i].name))) {
            *ret_action = actions[i].action;
            return true;
        }
    }
    return false;
}

static int v2_answer_read_event(const struct mst__json *json, struct mst__v2_answer *answer)
{
    if (!v2_action_read(mst__json_member(json, "action"), &answer->action)) {
        return MST_EPROTO;
    }
    int rv = v2_node_read(mst__json_member(json, "node"), 0, &answer->node);
    const struct mst__json *previous = mst__json_member(json, "prevNode");
    if (rv == 0 && previous != NULL) {
        answer->has_previous = true;
        rv = v2_node_read(previous, 0, &answer->previous);
    }
    return rv;
}

/* --- errors --- */

/* Copy as much of @text as fits, without control characters. */
static void copy_line(struct mst_bytes text, char *ret_line, size_t ret_size)
{
    size_t size = text.size < ret_size - 1 ? text.size : ret_size - 1;
    for (size_t i = 0; i < size; i++) {
        ret_line[i] = text.data[i] < ' ' || text.data[i] == 0x7f ? ' ' : (char)text.data[i];
    }
    while (size > 0 && ret_line[size - 1] == ' ') {
        size--;
    }
    ret_line[size] = '\0';
}

/* An error described by etcd: about keys it is an answer, else it becomes an error of ours. */
static int v2_answer_read_error(const struct mst__json *json,
                                const char *where,
                                struct mst__v2_answer *answer,
                                struct mst_err *reterr)
{
    int64_t code = 0;
    struct mst_bytes message;
    struct mst_bytes cause;
    uint64_t index = 0;
    if (!mst__json_int(mst__json_member(json, "errorCode"), &code) ||
        v2_node_text(json, "message", &message) != 0 || v2_node_text(json, "cause", &cause) != 0 ||
        v2_node_index(json, "index", &index) != 0) {
        return mst__fail(reterr, MST_EPROTO, 0, "'%s' answered with an error that has no code",
                         where);
    }
    answer->index = answer->index == 0 ? index : answer->index;
    copy_line(message, answer->message, sizeof answer->message);
    copy_line(cause, answer->cause, sizeof answer->cause);
    switch (code) {
        case MST_V2_NOT_FOUND:
        case MST_V2_COMPARE_FAILED:
        case MST_V2_NOT_FILE:
        case MST_V2_NOT_DIR:
        case MST_V2_EXISTS:
        case MST_V2_ROOT:
        case MST_V2_DIR_NOT_EMPTY:
        case MST_V2_WATCHER_CLEARED:
        case MST_V2_INDEX_CLEARED:
            answer->code = (enum mst__v2_code)code;
            return 0;
        case 110:
            return mst__fail(reterr, MST_EAUTH, 0,
                             "'%s' does not allow this: %.60s; see user, password and their roles",
                             where, answer->cause);
        default:
            break;
    }
    /* 2xx: the request is wrong. 3xx: the cluster failed, and may have executed it. */
    int rv = code >= 200 && code < 300 ? MST_EINVAL : code < 400 ? MST_EUNKNOWN : MST_EPROTO;
    return mst__fail(reterr, rv, 0, "'%s' answered with error %lld: %.50s: %.60s", where,
                     (long long)code, answer->message, answer->cause);
}

/* An answer that is not JSON comes from a server without this API, or from another server. */
static int v2_answer_fail(const struct mst__http_response *response,
                          const char *where,
                          struct mst_err *reterr)
{
    char text[64];
    copy_line(mst__buf_bytes(&response->body), text, sizeof text);
    if (response->status == 404) {
        return mst__fail(reterr, MST_ENOTSUP, 0,
                         "'%s' has no v2 API: start that etcd with --enable-v2; etcd 3.6 and later "
                         "have none",
                         where);
    }
    if (response->status == 401) {
        return mst__fail(reterr, MST_EAUTH, 0, "'%s' does not allow this: %s; see user, password",
                         where, text);
    }
    return mst__fail(reterr, response->status >= 500 ? MST_EUNKNOWN : MST_EPROTO, 0,
                     "'%s' answered with HTTP status %d: %s", where, response->status, text);
}

int mst__v2_answer_read(const struct mst__http_response *response,
                        const char *where,
                        struct mst__v2_answer *answer,
                        struct mst_err *reterr)
{
    mst__v2_answer_close(answer);
    if (!response->is_json) {
        return v2_answer_fail(response, where, reterr);
    }
    struct mst__json *json = NULL;
    int rv = mst__json_parse(mst__buf_bytes(&response->body), &json, reterr);
    if (rv != 0) {
        return mst__err_wrap(reterr, rv, "answer of '%s'", where);
    }
    answer->index = response->has_index ? response->etcd_index : 0;
    if (response->status == 200 || response->status == 201) {
        answer->is_created = response->status == 201;
        rv = v2_answer_read_event(json, answer);
        if (rv != 0) {
            mst__err_fill(reterr, rv, 0, "answer of '%s' is not of the v2 API", where);
        }
    } else {
        rv = v2_answer_read_error(json, where, answer, reterr);
    }
    mst__json_free(json);
    if (rv != 0) {
        mst__v2_answer_close(answer);
    }
    return rv;
}
