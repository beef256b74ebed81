/* kv/watch.c - clients that are told of every change of a key (WATCH_KEY of dialect A).
 *
 * A change of a watched key is recorded once, as bytes in kv->notices, and handed out once per
 * watcher afterwards. When it cannot be recorded the watchers are marked as overrun instead: a
 * watcher must never make a write fail. */
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/mem.h"
#include "kv/entry.h"

struct mst__kv_watch {
    struct mst__kv_watch *next_of_entry;
    struct mst__kv_watch *next_of_client;
    struct mst__kv_entry *entry;
    struct mst__kv_client *client;
};

/* A recorded change: this head, then old and new value as strs. */
struct notice_head {
    struct mst__kv_entry *entry;
    enum mst__kv_change change;
};

int mst__kv_watch(struct mst__kv *kv, struct mst__kv_client *client, struct mst_bytes key)
{
    if (client->watches_count >= MST_WATCHES_MAX) {
        return MST_ELIMIT;
    }
    struct mst__kv_entry *entry = NULL;
    int rv = mst__kv_entry_obtain(kv, key, &entry);
    if (rv != 0) {
        return rv;
    }
    struct mst__kv_watch *watch = NULL;
    if (!mst__kv_has_room(kv, sizeof *watch)) {
        rv = MST_ELIMIT;
    } else {
        watch = mst__malloc(sizeof *watch);
        rv = watch == NULL ? MST_ENOMEM : 0;
    }
    if (rv != 0) {
        mst__kv_entry_tidy(kv, entry);
        return rv;
    }
    *watch = (struct mst__kv_watch){.next_of_entry = entry->watches,
                                    .next_of_client = client->watches,
                                    .entry = entry,
                                    .client = client};
    entry->watches = watch;
    client->watches = watch;
    client->watches_count++;
    kv->memory_used += sizeof *watch;
    return 0;
}

void mst__kv_unwatch_all(struct mst__kv *kv, struct mst__kv_client *client)
{
    /* Notices are handed out right after each command, so none can be under way here. */
    MST_ASSERT(client->watches == NULL || mst__buf_size(&kv->notices) == 0);
    while (client->watches != NULL) {
        struct mst__kv_watch *watch = client->watches;
        client->watches = watch->next_of_client;
        struct mst__kv_watch **link = &watch->entry->watches;
        while (*link != watch) {
            link = &(*link)->next_of_entry;
        }
        *link = watch->next_of_entry;
        mst__kv_entry_tidy(kv, watch->entry);
        mst__free(watch);
        kv->memory_used -= sizeof *watch;
    }
    client->watches_count = 0;
}

void mst__kv_notify(struct mst__kv *kv,
                    struct mst__kv_entry *entry,
                    enum mst__kv_change change,
                    struct mst_bytes new_value)
{
    struct notice_head head;
    memset(&head, 0, sizeof head);
    head.entry = entry;
    head.change = change;
    size_t size_before = mst__buf_size(&kv->notices);
    int rv = mst__buf_append(&kv->notices, mst_bytes(&head, sizeof head));
    if (rv == 0) {
        rv = mst__buf_append_str(&kv->notices, mst__kv_entry_value(entry));
    }
    if (rv == 0) {
        rv = mst__buf_append_str(&kv->notices, new_value);
    }
    if (rv == 0) {
        return;
    }
    mst__buf_truncate(&kv->notices, size_before);
    for (struct mst__kv_watch *watch = entry->watches; watch != NULL;
         watch = watch->next_of_entry) {
        watch->client->overrun = true;
    }
    kv->overrun = true;
}

/* A client that has missed a notice. Rare enough to look through everything. */
static bool next_lost(struct mst__kv *kv, struct mst__kv_notice *ret_notice)
{
    for (struct mst__kv_entry *entry = mst__map_first(&kv->map); entry != NULL;
         entry = mst__map_next(entry)) {
        for (struct mst__kv_watch *watch = entry->watches; watch != NULL;
             watch = watch->next_of_entry) {
            if (watch->client->overrun) {
                watch->client->overrun = false;
                *ret_notice = (struct mst__kv_notice){
                    .client = watch->client, .change = MST_KV_LOST, .key = mst__map_key(entry)};
                return true;
            }
        }
    }
    kv->overrun = false;
    return false;
}

bool mst__kv_next_notice(struct mst__kv *kv, struct mst__kv_notice *ret_notice)
{
    if (MST_LIKELY(mst__buf_size(&kv->notices) == 0)) {
        return MST_UNLIKELY(kv->overrun) && next_lost(kv, ret_notice);
    }
    struct mst_bytes record = mst__buf_bytes(&kv->notices);
    struct notice_head head;
    memcpy(&head, record.data, sizeof head);
    record = mst__bytes_skip(record, sizeof head);
    struct mst_bytes old_value = {0};
    struct mst_bytes new_value = {0};
    bool whole = mst__items_next(&record, &old_value) && mst__items_next(&record, &new_value);
    MST_ASSERT(whole);
    if (kv->notice_watch == NULL) {
        kv->notice_watch = head.entry->watches;
        MST_ASSERT(kv->notice_watch != NULL);
    }
    *ret_notice = (struct mst__kv_notice){.client = kv->notice_watch->client,
                                          .change = head.change,
                                          .key = mst__map_key(head.entry),
                                          .old_value = old_value,
                                          .new_value = new_value};
    kv->notice_watch = kv->notice_watch->next_of_entry;
    if (kv->notice_watch == NULL) {
        /* The bytes stay where they are until the next command appends. */
        mst__buf_consume(&kv->notices, sizeof head + 16 + old_value.size + new_value.size);
    }
    return true;
}
