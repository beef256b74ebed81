/* store/etcd2.c - a store in the v2 API of an etcd, compatible with torch's EtcdStore: one
 * directory, names and values in base64.
 *
 * Names. Base64 may contain a `/`, which etcd takes for a directory separator: torch writes such
 * keys and never finds them again. In exactly these names we write `-` for it, which is not a
 * base64 character; the empty key is called `=`. Torch reads only names that it asks for, so it is
 * not affected. (The URL-safe alphabet does not work: it has `_` for `/`, and etcd hides names that
 * begin with one.) Other entries of the directory are not keys.
 *
 * Changes that depend on the current value are conditional writes on the index of the value that
 * was read; such a condition cannot be fulfilled twice. If the answer is lost, we read the key. If
 * it is unchanged, the write can be sent again: at most one of the two succeeds. Else etcd's
 * history shows which client changed it first. A write that looks like ours may still be another
 * client's, which added the same number to the same sum: only then the result is unknown. Two
 * clients that compare-and-set the same value need not be distinguished.
 *
 * A directory that does not exist is an empty store; the first write creates it. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/base64.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/siphash.h"
#include "etcd/v2.h"
#include "store/etcd.h"

/* How long one poll may take before the next, in case the server hangs or has vanished without
 * closing the connection. A poll takes half of the time that is left, so that there is a next. */
#define POLL_MS_MAX 10000
#define POLL_MS_MIN 1000

struct etcd2 {
    struct mst__storage storage; /* first: the storage is cast to this struct */
    struct mst__v2 *v2;
    char *root; /* "" or "/a/b" */
    atomic_uint_fast64_t retries;
};

/* One call of the store. */
struct call {
    struct etcd2 *etcd2;
    const struct mst__command *command;
    struct mst__etcd_attempts attempts;
    struct mst__buf name;  /* of the current key: "/a/b/a2V5", with a NUL */
    struct mst__buf value; /* the current value, decoded */
    struct mst__buf text;  /* the new value, in base64 */
    struct mst__v2_answer answer;
    struct mst_err *reterr;
};

/* --- names and values --- */

static void replace(uint8_t *text, size_t size, uint8_t from, uint8_t to)
{
    for (size_t i = 0; i < size; i++) {
        text[i] = text[i] == from ? to : text[i];
    }
}

/* Append the name of @key. */
static int name_append(struct mst__buf *name, struct mst_bytes key)
{
    if (key.size == 0) {
        return mst__buf_append_u8(name, '=');
    }
    size_t before = mst__buf_size(name);
    int rv = mst__base64_write(name, key);
    if (rv == 0) {
        replace(name->memory + name->start + before, mst__buf_size(name) - before, '/', '-');
    }
    return rv;
}

bool mst__etcd2_name_read(struct mst_bytes name, struct mst__buf *key, int *ret_code)
{
    *ret_code = 0;
    if (mst__bytes_equal(name, mst_bytes_str("="))) {
        return true;
    }
    struct mst__buf text;
    struct mst__buf again;
    mst__buf_init(&text, name.size);
    mst__buf_init(&again, name.size);
    size_t before = mst__buf_size(key);
    int rv = mst__buf_append(&text, name);
    if (rv == 0 && name.size > 0) {
        replace(text.memory + text.start, name.size, '-', '/');
        rv = mst__base64_read(key, mst__buf_bytes(&text));
    }
    struct mst_bytes decoded = mst__bytes_skip(mst__buf_bytes(key), before);
    bool is_name = false;
    if (rv == 0 && decoded.size > 0) {
        /* Accept only the form that we write; base64 has several. */
        rv = name_append(&again, decoded);
        is_name = rv == 0 && mst__bytes_equal(mst__buf_bytes(&again), name);
    }
    if (!is_name) {
        mst__buf_truncate(key, before);
    }
    *ret_code = rv == MST_ENOMEM ? rv : 0;
    mst__buf_close(&text);
    mst__buf_close(&again);
    return is_name;
}

/* Set the call's name to that of @key. */
static int call_name(struct call *call, struct mst_bytes key)
{
    mst__buf_clear(&call->name);
    int rv = mst__buf_append(&call->name, mst_bytes_str(call->etcd2->root));
    if (rv == 0) {
        rv = mst__buf_append_u8(&call->name, '/');
    }
    if (rv == 0) {
        rv = name_append(&call->name, key);
    }
    if (rv == 0) {
        rv = mst__buf_append_u8(&call->name, '\0');
    }
    return rv == 0 ? 0 : mst__etcd_fail(rv, call->reterr);
}

static const char *call_path(const struct call *call)
{
    return (const char *)mst__buf_bytes(&call->name).data;
}

/* --- requests --- */

/* An answer about keys that cannot be used. */
static int call_refused(struct call *call, const char *path)
{
    const struct mst__v2_answer *answer = &call->answer;
    return mst__fail(call->reterr, MST_EPROTO, 0, "'%.60s' at %s: %s%s%.60s", path,
                     mst__v2_where(call->etcd2->v2), answer->message,
                     answer->cause[0] == '\0' ? "" : ": ", answer->cause);
}

/* Read @path until a server answers. Absent is an answer. */
static int call_get(struct call *call, const char *path)
{
    int rv;
    do {
        rv = mst__v2_get(call->etcd2->v2, path, false, true, call->attempts.until, &call->answer,
                         call->reterr);
    } while (mst__etcd_again(&call->attempts, rv, call->reterr));
    if (rv != 0) {
        return mst__etcd_read_failed(&call->attempts, rv, call->reterr);
    }
    /* A value in place of the directory: the key does not exist, but a write fails. */
    enum mst__v2_code code = call->answer.code;
    bool is_usable = code == MST_V2_OK || code == MST_V2_NOT_FOUND || code == MST_V2_NOT_DIR;
    return is_usable ? 0 : call_refused(call, path);
}

/* Decode the answer about a key to call->value if it @ret_exists. */
static int call_decode(struct call *call, bool *ret_exists)
{
    const struct mst__v2_node *node = &call->answer.node;
    mst__buf_clear(&call->value);
    *ret_exists = call->answer.code == MST_V2_OK;
    if (!*ret_exists) {
        return 0;
    }
    if (node->is_dir) {
        return mst__fail(call->reterr, MST_EPROTO, 0,
                         "'%.60s' at %s is a directory; another program uses it", node->key,
                         mst__v2_where(call->etcd2->v2));
    }
    int rv = mst__base64_read(&call->value, mst_bytes_of(node->value.data, node->value.size));
    if (rv == MST_EPROTO) {
        return mst__fail(call->reterr, rv, 0, "'%.60s' at %s is not base64", node->key,
                         mst__v2_where(call->etcd2->v2));
    }
    return rv == 0 ? 0 : mst__etcd_fail(rv, call->reterr);
}

/* Read the key with the call's name. */
static int call_read(struct call *call, bool *ret_exists)
{
    int rv = call_get(call, call_path(call));
    return rv == 0 ? call_decode(call, ret_exists) : rv;
}

/* One long poll for @path. 0 also if it brought nothing and the keys must be read again;
 * @ret_is_event says whether there was an event. */
static int call_poll(struct call *call, const char *path, uint64_t from_index, bool *ret_is_event)
{
    int64_t now_ms = mst__clock_ms();
    int64_t poll_ms = (call->attempts.until.deadline_ms - now_ms) / 2;
    poll_ms = poll_ms > POLL_MS_MAX ? POLL_MS_MAX : poll_ms;
    poll_ms = poll_ms < POLL_MS_MIN ? POLL_MS_MIN : poll_ms;
    struct mst__until until = mst__until_sooner(call->attempts.until, now_ms + poll_ms);
    bool is_slice = until.deadline_ms < call->attempts.until.deadline_ms;
    *ret_is_event = false;
    int rv =
        mst__v2_wait(call->etcd2->v2, path, false, from_index, until, &call->answer, call->reterr);
    if (rv == 0) {
        /* Otherwise the history, or etcd's watcher, was cleared: read again. */
        *ret_is_event = call->answer.code == MST_V2_OK;
        return 0;
    }
    if ((rv == MST_ETIMEOUT && is_slice) || mst__etcd_again(&call->attempts, rv, call->reterr)) {
        return 0;
    }
    if (rv == MST_ETIMEOUT) {
        return mst__fail(call->reterr, rv, 0, "not at %s when the deadline passed",
                         mst__v2_where(call->etcd2->v2));
    }
    return mst__etcd_read_failed(&call->attempts, rv, call->reterr);
}

/* --- conditional writes --- */

/* The state that a write depends on. */
struct base {
    bool exists;
    uint64_t modified; /* index of the value, if it exists */
    uint64_t index;    /* index of the store at the read */
};

static int change_unknown(struct call *call)
{
    return mst__fail(
        call->reterr, MST_EUNKNOWN, 0,
        "the answer of %s was lost; the change of the key may be ours or another client's",
        mst__v2_where(call->etcd2->v2));
}

/* The first event of the key since @base; there is one. */
static int change_first_event(struct call *call, const struct base *base)
{
    uint64_t from = (base->exists ? base->modified : base->index) + 1;
    int rv;
    do {
        rv = mst__v2_wait(call->etcd2->v2, call_path(call), false, from, call->attempts.until,
                          &call->answer, call->reterr);
    } while (mst__etcd_again(&call->attempts, rv, call->reterr));
    if (rv != 0) {
        return mst__etcd_write_failed(&call->attempts, rv, true, call->reterr);
    }
    return call->answer.code == MST_V2_OK ? 0 : change_unknown(call);
}

/* Whether the event in the answer equals our write. */
static bool change_is_like_ours(const struct call *call,
                                const struct base *base,
                                enum mst__etcd_change change)
{
    const struct mst__v2_answer *event = &call->answer;
    if (change == MST_ETCD_DELETE) {
        return event->action == MST_V2_COMPARE_AND_DELETE;
    }
    return event->action == (base->exists ? MST_V2_COMPARE_AND_SWAP : MST_V2_CREATE) &&
           mst__bytes_equal(mst_bytes_of(event->node.value.data, event->node.value.size),
                            mst__buf_bytes(&call->text));
}

/* It is unknown whether our write was executed: find out. */
static int change_resolve(struct call *call,
                          const struct base *base,
                          enum mst__etcd_change change,
                          enum mst__etcd_outcome *ret_outcome)
{
    int rv = call_get(call, call_path(call));
    if (rv != 0) {
        return mst__etcd_write_failed(&call->attempts, rv, true, call->reterr);
    }
    bool exists = call->answer.code == MST_V2_OK;
    if (exists == base->exists && (!exists || call->answer.node.modified == base->modified)) {
        *ret_outcome = MST_ETCD_UNCHANGED;
        return 0;
    }
    rv = change_first_event(call, base);
    if (rv != 0) {
        return rv;
    }
    bool is_like_ours = change_is_like_ours(call, base, change);
    *ret_outcome = is_like_ours ? MST_ETCD_DONE : MST_ETCD_LOST;
    /* A key with the desired value counts as set, whichever client set it. */
    return is_like_ours && call->command->op != MST_OP_COMPARE_SET ? change_unknown(call) : 0;
}

/* Send the write once. */
static int change_send(struct call *call,
                       const struct base *base,
                       enum mst__etcd_change change,
                       enum mst__etcd_outcome *ret_outcome)
{
    struct mst__v2_write write = {
        .key = call_path(call),
        .condition = base->exists ? MST_V2_IF_INDEX : MST_V2_IF_ABSENT,
        .previous_index = base->modified,
        .value = mst__buf_bytes(&call->text),
        .ttl_s = MST_V2_NO_TTL,
    };
    struct mst__until until = call->attempts.until;
    struct mst__v2 *v2 = call->etcd2->v2;
    int rv = change == MST_ETCD_DELETE
                 ? mst__v2_delete(v2, &write, false, until, &call->answer, call->reterr)
                 : mst__v2_put(v2, &write, until, &call->answer, call->reterr);
    if (rv != 0) {
        return rv;
    }
    switch (call->answer.code) {
        case MST_V2_OK:
            *ret_outcome = MST_ETCD_DONE;
            return 0;
        case MST_V2_COMPARE_FAILED:
        case MST_V2_EXISTS:
        case MST_V2_NOT_FOUND:
            *ret_outcome = MST_ETCD_LOST;
            return 0;
        default:
            return call_refused(call, write.key);
    }
}

/* A second attempt created the key. Check that the first one did not create it as well, with a
 * deletion in between. */
static int change_check_created(struct call *call, const struct base *base)
{
    uint64_t modified = call->answer.node.modified;
    int rv = change_first_event(call, base);
    if (rv != 0) {
        return rv;
    }
    return call->answer.node.modified == modified ? 0 : change_unknown(call);
}

/* Write call->text, or delete the key, if it is still in the state of @base. */
static int change_write(struct call *call,
                        const struct base *base,
                        enum mst__etcd_change change,
                        enum mst__etcd_outcome *ret_outcome)
{
    bool maybe_done = false;
    for (;;) {
        int rv = change_send(call, base, change, ret_outcome);
        if (rv == 0 && !maybe_done) {
            return 0;
        }
        if (rv == 0 && *ret_outcome == MST_ETCD_DONE) {
            return base->exists ? 0 : change_check_created(call, base);
        }
        maybe_done = maybe_done || rv == MST_EUNKNOWN;
        if (rv != 0 && !mst__etcd_again(&call->attempts, rv, call->reterr)) {
            return mst__etcd_write_failed(&call->attempts, rv, maybe_done, call->reterr);
        }
        if (maybe_done) {
            rv = change_resolve(call, base, change, ret_outcome);
            if (rv != 0 || *ret_outcome != MST_ETCD_UNCHANGED) {
                return rv;
            }
        }
    }
}

static int execute_begin_change(void *arg)
{
    struct call *call = arg;
    return call_name(call, call->command->key);
}

/* Read, compute, and write unless another client has written in between. */
static int execute_try_change(void *arg,
                              struct mst__buf *value,
                              struct mst__answer *result,
                              bool *ret_is_over)
{
    struct call *call = arg;
    bool exists = false;
    enum mst__etcd_change change = MST_ETCD_KEEP;
    enum mst__etcd_outcome outcome = MST_ETCD_LOST;
    int rv = call_read(call, &exists);
    if (rv == 0) {
        struct mst_bytes present = mst__buf_bytes(&call->value);
        rv = mst__etcd_change(call->command, exists ? &present : NULL, value, result, &change,
                              call->reterr);
    }
    *ret_is_over = rv != 0 || change == MST_ETCD_KEEP;
    if (*ret_is_over) {
        return rv;
    }
    struct base base = {
        .exists = exists,
        .modified = exists ? call->answer.node.modified : 0,
        .index = call->answer.index,
    };
    mst__buf_clear(&call->text);
    rv = mst__base64_write(&call->text, mst__buf_bytes(value));
    rv = rv == 0 ? change_write(call, &base, change, &outcome) : mst__etcd_fail(rv, call->reterr);
    *ret_is_over = rv != 0 || outcome == MST_ETCD_DONE;
    return rv;
}

static int execute_set(void *arg)
{
    struct call *call = arg;
    int rv = call_name(call, call->command->key);
    if (rv == 0) {
        rv = mst__base64_write(&call->text, call->command->value);
        rv = rv == 0 ? 0 : mst__etcd_fail(rv, call->reterr);
    }
    if (rv != 0) {
        return rv;
    }
    struct mst__v2_write write = {
        .key = call_path(call),
        .value = mst__buf_bytes(&call->text),
        .ttl_s = MST_V2_NO_TTL,
    };
    bool maybe_done = false;
    do {
        rv =
            mst__v2_put(call->etcd2->v2, &write, call->attempts.until, &call->answer, call->reterr);
        maybe_done = maybe_done || rv == MST_EUNKNOWN;
    } while (mst__etcd_again(&call->attempts, rv, call->reterr));
    if (rv != 0) {
        return mst__etcd_write_failed(&call->attempts, rv, maybe_done, call->reterr);
    }
    return call->answer.code == MST_V2_OK ? 0 : call_refused(call, write.key);
}

/* --- reading --- */

/* Whether the answer is that of an existing key. */
static bool call_has_key(const struct call *call)
{
    return call->answer.code == MST_V2_OK && !call->answer.node.is_dir;
}

/* Whether an event sets a value. */
static bool event_is_value(const struct mst__v2_answer *event)
{
    return event->action == MST_V2_SET || event->action == MST_V2_CREATE ||
           event->action == MST_V2_UPDATE || event->action == MST_V2_COMPARE_AND_SWAP;
}

/* Wait until @key exists; the answer then has it. */
static int wait_for_key(struct call *call, struct mst_bytes key)
{
    int rv = call_name(call, key);
    while (rv == 0) {
        rv = call_get(call, call_path(call));
        if (rv != 0 || call_has_key(call)) {
            break;
        }
        bool is_event;
        rv = call_poll(call, call_path(call), call->answer.index + 1, &is_event);
        if (rv == 0 && is_event && event_is_value(&call->answer)) {
            break;
        }
    }
    return rv;
}

static int execute_get(void *arg, struct mst__answer *result)
{
    struct call *call = arg;
    bool exists = false;
    int rv;
    if (call->command->blocks) {
        rv = wait_for_key(call, call->command->key);
        rv = rv == 0 ? call_decode(call, &exists) : rv;
    } else {
        rv = call_name(call, call->command->key);
        rv = rv == 0 ? call_read(call, &exists) : rv;
    }
    if (rv != 0) {
        return rv;
    }
    result->reply = (struct mst__reply){.kind = MST_REPLY_BYTES, .found = exists};
    rv = mst__answer_take(result, mst__buf_bytes(&call->value));
    return rv == 0 ? 0 : mst__etcd_fail(rv, call->reterr);
}

/* Read the directory. If there is none, there are no keys. */
static int call_list(struct call *call)
{
    const char *root = call->etcd2->root;
    int rv = call_get(call, root[0] == '\0' ? "/" : root);
    if (rv == 0 && call->answer.code == MST_V2_OK && !call->answer.node.is_dir) {
        rv = mst__fail(call->reterr, MST_EPROTO, 0, "'%.60s' at %s is a value, not a directory",
                       root, mst__v2_where(call->etcd2->v2));
    }
    return rv;
}

/* The name of an entry without that of the directory. */
static struct mst_bytes entry_name(const struct call *call, const struct mst__v2_node *node)
{
    struct mst_bytes key = mst_bytes_str(node->key == NULL ? "" : node->key);
    size_t front = strlen(call->etcd2->root) + 1;
    return key.size < front ? mst_bytes_of(NULL, 0) : mst__bytes_skip(key, front);
}

/* Names are decoded in any case, to find those that are keys. */
static int execute_list(void *arg, struct mst__buf *keys, int64_t *ret_count)
{
    struct call *call = arg;
    int rv = call_list(call);
    if (rv != 0) {
        return rv;
    }
    int64_t count = 0;
    struct mst__buf key;
    mst__buf_init(&key, MST_KEY_SIZE_MAX);
    for (size_t i = 0; i < call->answer.node.node_count && rv == 0; i++) {
        const struct mst__v2_node *node = &call->answer.node.nodes[i];
        mst__buf_clear(&key);
        if (node->is_dir || !mst__etcd2_name_read(entry_name(call, node), &key, &rv)) {
            continue;
        }
        count++;
        if (keys != NULL) {
            rv = mst__buf_append_str(keys, mst__buf_bytes(&key));
        }
    }
    mst__buf_close(&key);
    *ret_count = count;
    return rv == 0 ? 0 : mst__etcd_fail(rv, call->reterr);
}

/* --- several keys --- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The sorted names in the listed directory; NULL if out of memory. */
static const char **sorted_names(const struct call *call, size_t *ret_count)
{
    const struct mst__v2_node *root = &call->answer.node;
    const char **names = mst__calloc(root->node_count + 1, sizeof *names);
    size_t count = 0;
    for (size_t i = 0; names != NULL && i < root->node_count; i++) {
        if (!root->nodes[i].is_dir && root->nodes[i].key != NULL) {
            names[count++] = root->nodes[i].key;
        }
    }
    if (names != NULL) {
        qsort(names, count, sizeof *names, compare_names);
    }
    *ret_count = count;
    return names;
}

/* The missing keys of the command, as strs in @missing, as of one moment: by one listing or, for a
 * single key, by reading it. */
static int execute_find_missing(void *arg, struct mst__buf *missing)
{
    struct call *call = arg;
    struct mst_bytes items = call->command->items;
    struct mst_bytes key = call->command->key;
    mst__buf_clear(missing);
    if (call->command->count == 0) {
        return 0;
    }
    if (call->command->count == 1) {
        int rv = call_name(call, key);
        if (rv == 0) {
            rv = call_get(call, call_path(call));
        }
        if (rv == 0 && !call_has_key(call)) {
            rv = mst__buf_append_str(missing, key);
            rv = rv == 0 ? 0 : mst__etcd_fail(rv, call->reterr);
        }
        return rv;
    }
    int rv = call_list(call);
    if (rv != 0) {
        return rv;
    }
    size_t count = 0;
    const char **names = sorted_names(call, &count);
    if (names == NULL) {
        return mst__etcd_fail(MST_ENOMEM, call->reterr);
    }
    while (rv == 0 && mst__items_next(&items, &key)) {
        rv = call_name(call, key);
        const char *path = call_path(call);
        if (rv == 0 && bsearch(&path, names, count, sizeof *names, compare_names) == NULL) {
            rv = mst__buf_append_str(missing, key);
            rv = rv == 0 ? 0 : mst__etcd_fail(rv, call->reterr);
        }
    }
    mst__free(names);
    return rv;
}

/* Wait for the missing keys one by one, then check again: all must exist at one time. */
static int execute_wait(void *arg)
{
    struct call *call = arg;
    if (call->command->count == 1) {
        struct mst_bytes only;
        struct mst_bytes one = call->command->items;
        bool is_there = mst__items_next(&one, &only);
        MST_ASSERT(is_there); /* store.c has put it there */
        return wait_for_key(call, only);
    }
    struct mst__buf missing;
    mst__buf_init(&missing, call->command->items.size + 1);
    int rv = execute_find_missing(call, &missing);
    while (rv == 0 && mst__buf_size(&missing) > 0) {
        struct mst_bytes items = mst__buf_bytes(&missing);
        struct mst_bytes key;
        while (rv == 0 && mst__items_next(&items, &key)) {
            rv = wait_for_key(call, key);
        }
        rv = rv == 0 ? execute_find_missing(call, &missing) : rv;
    }
    mst__buf_close(&missing);
    return rv;
}

static int execute_wait_change(void *arg)
{
    struct call *call = arg;
    bool is_over = false;
    int rv = call_name(call, call->command->key);
    while (rv == 0 && !is_over) {
        bool exists = false;
        rv = call_read(call, &exists);
        if (rv != 0) {
            break;
        }
        uint64_t print = exists ? mst__fingerprint(mst__buf_bytes(&call->value)) : 0;
        is_over = (int64_t)print != call->command->number;
        if (!is_over) {
            rv = call_poll(call, call_path(call), call->answer.index + 1, &is_over);
        }
    }
    return rv;
}

/* --- the storage --- */

static const struct mst__etcd_ops etcd2_ops = {
    .name = "etcd2",
    .set = execute_set,
    .get = execute_get,
    .begin_change = execute_begin_change,
    .try_change = execute_try_change,
    .find_missing = execute_find_missing,
    .wait = execute_wait,
    .wait_change = execute_wait_change,
    .list = execute_list,
};

static int etcd2_execute(struct mst__storage *storage,
                         const struct mst__command *command,
                         struct mst__until until,
                         struct mst__answer *result,
                         struct mst_err *reterr)
{
    struct etcd2 *etcd2 = (struct etcd2 *)storage;
    struct call call = {.etcd2 = etcd2, .command = command, .reterr = reterr};
    mst__etcd_attempts_init(&call.attempts, until, &etcd2->retries);
    /* Base64 takes a third more. */
    mst__buf_init(&call.name, strlen(etcd2->root) + 2 * MST_KEY_SIZE_MAX + 8);
    mst__buf_init(&call.value, storage->options.value_size_max + 8);
    mst__buf_init(&call.text, 2 * storage->options.value_size_max + 2 * MST_NUMBER_SIZE);
    mst__v2_answer_init(&call.answer);
    int rv = mst__etcd_run(&etcd2_ops, &call, storage, command, &call.attempts, result, reterr);
    mst__v2_answer_close(&call.answer);
    mst__buf_close(&call.name);
    mst__buf_close(&call.value);
    mst__buf_close(&call.text);
    return rv;
}

static void etcd2_stats(struct mst__storage *storage, struct mst_store_stats *stats)
{
    struct etcd2 *etcd2 = (struct etcd2 *)storage;
    mst__etcd_stats(&etcd2->retries, mst__v2_where(etcd2->v2), stats);
}

static void etcd2_free(struct mst__storage *storage)
{
    struct etcd2 *etcd2 = (struct etcd2 *)storage;
    mst__v2_free(etcd2->v2);
    mst__free(etcd2->root);
    mst__free(etcd2->storage.url);
    mst__free(etcd2);
}

int mst__etcd2_new(const struct mst__http_options *http,
                   const char *root,
                   const struct mst_store_options *options,
                   struct mst__storage **ret_storage,
                   struct mst_err *reterr)
{
    static const struct mst__storage_ops ops = {.execute = etcd2_execute,
                                                .can_block = true,
                                                .is_remote = true,
                                                .stats = etcd2_stats,
                                                .free = etcd2_free};
    struct etcd2 *etcd2 = mst__calloc(1, sizeof *etcd2);
    if (etcd2 == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "etcd2 store");
    }
    etcd2->storage.ops = &ops;
    etcd2->storage.key_root = "";
    etcd2->storage.options = *options;
    atomic_init(&etcd2->storage.handles, 0);
    atomic_init(&etcd2->retries, 0);
    int rv = 0;
    etcd2->root = mst__strdup(root);
    etcd2->storage.url = mst__etcd_url("etcd2", http, root);
    if (etcd2->root == NULL || etcd2->storage.url == NULL) {
        rv = mst__fail(reterr, MST_ENOMEM, 0, "etcd2 store '%s'", root);
        goto fail;
    }
    rv = mst__v2_new(http, &etcd2->v2, reterr);
    if (rv != 0) {
        goto fail;
    }
    *ret_storage = &etcd2->storage;
    return 0;
fail:
    etcd2_free(&etcd2->storage);
    return rv;
}

int mst__etcd2_open(const struct mst__http_options *http,
                    const char *root,
                    const struct mst_store_options *options,
                    struct mst__until until,
                    struct mst__storage **ret_storage,
                    struct mst_err *reterr)
{
    struct mst__storage *storage = NULL;
    int rv = mst__etcd2_new(http, root, options, &storage, reterr);
    if (rv != 0) {
        return rv;
    }
    rv = mst__etcd_probe(storage, until, reterr);
    if (rv != 0) {
        etcd2_free(storage);
        return rv;
    }
    *ret_storage = storage;
    return 0;
}
