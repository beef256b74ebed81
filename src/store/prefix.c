/* store/prefix.c - keys under prefixes.
 *
 * As with PyTorch's PrefixStore, key `k` under prefix `p` is `p/k`, and a prefix on top of another
 * follows it: inner/outer/k. So one string before the key works for any depth, and torch's workers
 * and ours use the same keys. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "store/store.h"

const char *mst__key_text(struct mst_bytes key, char ret_text[MST_KEY_TEXT_SIZE])
{
    /* Leave room for the longest escape, "...", the quote and the NUL. */
    size_t used = 0;
    ret_text[used++] = '\'';
    size_t i = 0;
    for (; i < key.size && used + 4 + 3 + 2 <= MST_KEY_TEXT_SIZE; i++) {
        uint8_t c = key.data[i];
        if (c >= 0x20 && c < 0x7f && c != '\\' && c != '\'') {
            ret_text[used++] = (char)c;
        } else {
            used += (size_t)snprintf(ret_text + used, 5, "\\x%02x", c);
        }
    }
    (void)snprintf(ret_text + used, MST_KEY_TEXT_SIZE - used, "%s'", i < key.size ? "..." : "");
    return ret_text;
}

/* Append one str: the prefix and @key. */
static int append_key(const struct mst_store *store,
                      struct mst_bytes key,
                      struct mst__buf *items,
                      struct mst_err *reterr)
{
    size_t key_size_max = store->storage->options.key_size_max;
    MST_ASSERT(store->prefix_size <= key_size_max);
    if (key.size > key_size_max - store->prefix_size) {
        return mst__fail(reterr, MST_ELIMIT, 0,
                         "a key of %zu bytes and its prefix of %zu exceed the limit of %zu",
                         key.size, store->prefix_size, key_size_max);
    }
    int rv = mst__buf_append_u64(items, store->prefix_size + key.size);
    if (rv == 0) {
        rv = mst__buf_append(items, mst_bytes_of(store->prefix, store->prefix_size));
    }
    if (rv == 0) {
        rv = mst__buf_append(items, key);
    }
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "request of %zu bytes", mst__buf_size(items));
}

static int append_value(const struct mst_store *store,
                        struct mst_bytes value,
                        struct mst__buf *items,
                        struct mst_err *reterr)
{
    size_t value_size_max = store->storage->options.value_size_max;
    if (value.size > value_size_max) {
        return mst__fail(reterr, MST_ELIMIT, 0, "a value of %zu bytes exceeds the limit of %zu",
                         value.size, value_size_max);
    }
    int rv = mst__buf_append_str(items, value);
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "request of %zu bytes", mst__buf_size(items));
}

int mst__prefix_keys(const struct mst_store *store,
                     const struct mst_bytes *keys,
                     const struct mst_bytes *values,
                     size_t count,
                     struct mst__buf *items,
                     struct mst_err *reterr)
{
    if (count > MST_ITEMS_MAX) {
        return mst__fail(reterr, MST_ELIMIT, 0, "%zu keys in one call, the limit is %d", count,
                         MST_ITEMS_MAX);
    }
    int rv = 0;
    for (size_t i = 0; i < count && rv == 0; i++) {
        rv = append_key(store, keys[i], items, reterr);
        if (rv == 0 && values != NULL) {
            rv = append_value(store, values[i], items, reterr);
        }
    }
    return rv;
}

int mst__prefix_strip(const struct mst_store *store,
                      struct mst__answer *result,
                      struct mst_keys *ret_keys,
                      struct mst_err *reterr)
{
    int64_t count = result->reply.number;
    struct mst_bytes prefix = mst_bytes_of(store->prefix, store->prefix_size);
    struct mst_bytes items = result->reply.bytes;
    /* A str takes at least eight bytes, so the size of the reply bounds the count. */
    if (count < 0 || (uint64_t)count > items.size / 8) {
        return mst__fail(reterr, MST_EPROTO, 0, "list of %lld keys in %zu bytes", (long long)count,
                         items.size);
    }
    struct mst_keys list = {0};
    list.keys = mst__malloc(((size_t)count + 1) * sizeof *list.keys);
    if (list.keys == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "list of %lld keys", (long long)count);
    }
    int rv = mst__buf_release(&result->memory, &list.memory);
    if (rv != 0) {
        mst__free(list.keys);
        return mst__fail(reterr, rv, 0, "list of %lld keys", (long long)count);
    }
    items = mst_bytes_of(list.memory.data, list.memory.size);
    struct mst_bytes key;
    for (int64_t i = 0; i < count && mst__items_next(&items, &key); i++) {
        if (mst__bytes_start_with(key, prefix)) {
            list.keys[list.count++] = mst__bytes_skip(key, prefix.size);
        }
    }
    *ret_keys = list;
    return 0;
}

void mst_keys_free(struct mst_keys *keys)
{
    if (keys != NULL) {
        mst__free(keys->keys);
        mst_buffer_free(&keys->memory);
        *keys = (struct mst_keys){0};
    }
}
