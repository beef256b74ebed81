/* kv/watch.c - clients that are notified of every change of a key (WATCH of dialect A).
 *
 * A change of a watched key is recorded once, as bytes in kv->notices, and handed out once per
 * watcher afterwards. If it cannot be recorded, the watchers are marked as having lost a notice: a
 * watcher must never make a write fail. */
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/mem.h"
#include "kv/entry.h"

/* A recorded change: this head, then old and new value as strs. */
struct notice_head {
    struct mst__kv_entry *entry;
    enum mst__kv_change change;
};

static bool is_watched_by(struct mst__kv *kv,
                          const struct mst__kv_entry *entry,
                          const struct mst__kv_client *client)
{
    const struct mst__kv_watch *watch = entry->watches == NULL ? NULL : client->watches;
    while (watch != NULL && watch->entry != entry) {
        kv->steps++;
        watch = watch->next_of_client;
    }
    return watch != NULL;
}

int mst__kv_watch(struct mst__kv *kv, struct mst__kv_client *client, struct mst_bytes key)
{
    struct mst__kv_entry *entry = mst__map_get(&kv->map, key);
    if (entry != NULL && is_watched_by(kv, entry, client)) {
        return 0;
    }
    if (client->watches_count >= MST_WATCHES_MAX) {
        return MST_ELIMIT;
    }
    int rv = mst__kv_entry_obtain(kv, key, &entry);
    if (rv != 0) {
        return rv;
    }
    struct mst__kv_watch *watch = NULL;
    if (!mst__kv_has_room(kv, mst__slab_cost(sizeof *watch))) {
        rv = MST_ELIMIT;
    } else {
        watch = mst__slab_malloc(&kv->slabs, sizeof *watch);
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
    if (entry->watches != NULL) {
        entry->watches->prev_of_entry = watch;
    }
    entry->watches = watch;
    client->watches = watch;
    client->watches_count++;
    kv->memory_used += mst__slab_cost(sizeof *watch);
    return 0;
}

static void lost_leave(struct mst__kv *kv, struct mst__kv_client *client)
{
    kv->steps++;
    MST_ASSERT(client->lost != NULL);
    MST_ASSERT((client->lost_prev == NULL) == (kv->lost_first == client));
    if (client->lost_prev == NULL) {
        kv->lost_first = client->lost_next;
    } else {
        client->lost_prev->lost_next = client->lost_next;
    }
    if (client->lost_next != NULL) {
        client->lost_next->lost_prev = client->lost_prev;
    }
    client->lost = NULL;
}

static void lost_enter(struct mst__kv *kv,
                       struct mst__kv_client *client,
                       struct mst__kv_entry *entry)
{
    MST_ASSERT(client->lost == NULL);
    client->lost = entry;
    client->lost_prev = NULL;
    client->lost_next = kv->lost_first;
    if (kv->lost_first != NULL) {
        kv->lost_first->lost_prev = client;
    }
    kv->lost_first = client;
}

static void unwatch(struct mst__kv *kv, struct mst__kv_watch *watch)
{
    struct mst__kv_entry *entry = watch->entry;
    kv->steps++;
    MST_ASSERT((watch->prev_of_entry == NULL) == (entry->watches == watch));
    if (watch->prev_of_entry == NULL) {
        entry->watches = watch->next_of_entry;
    } else {
        watch->prev_of_entry->next_of_entry = watch->next_of_entry;
    }
    if (watch->next_of_entry != NULL) {
        watch->next_of_entry->prev_of_entry = watch->prev_of_entry;
    }
    mst__slab_free(&kv->slabs, watch, sizeof *watch);
    mst__kv_discharge(kv, mst__slab_cost(sizeof *watch));
    mst__kv_entry_tidy(kv, entry);
}

void mst__kv_unwatch_all(struct mst__kv *kv, struct mst__kv_client *client)
{
    /* Notices are handed out right after each command, so none is pending here. */
    MST_ASSERT(client->watches == NULL || mst__buf_size(&kv->notices.buf) == 0);
    if (client->lost != NULL) {
        lost_leave(kv, client);
    }
    while (client->watches != NULL) {
        struct mst__kv_watch *watch = client->watches;
        client->watches = watch->next_of_client;
        client->watches_count--;
        unwatch(kv, watch);
    }
    MST_ASSERT(client->watches_count == 0);
}

void mst__kv_notify(struct mst__kv *kv,
                    struct mst__kv_entry *entry,
                    enum mst__kv_change change,
                    struct mst_bytes new_value)
{
    struct notice_head head;
    MST_ASSERT(entry->watches != NULL);
    memset(&head, 0, sizeof head);
    head.entry = entry;
    head.change = change;
    size_t size_before = mst__buf_size(&kv->notices.buf);
    int rv = mst__buf_append(&kv->notices.buf, mst_bytes_of(&head, sizeof head));
    if (rv == 0) {
        rv = mst__kv_buf_append_str(kv, &kv->notices, mst__kv_entry_value(entry));
    }
    if (rv == 0) {
        rv = mst__kv_buf_append_str(kv, &kv->notices, new_value);
    }
    kv->steps += 1 + mst__kv_steps_of(mst__buf_size(&kv->notices.buf) - size_before);
    if (rv == 0) {
        return;
    }
    mst__buf_truncate(&kv->notices.buf, size_before);
    for (struct mst__kv_watch *watch = entry->watches; watch != NULL;
         watch = watch->next_of_entry) {
        kv->steps++;
        if (watch->client->lost == NULL) {
            lost_enter(kv, watch->client, entry);
        }
    }
}

static bool next_lost(struct mst__kv *kv, struct mst__kv_notice *ret_notice)
{
    struct mst__kv_client *client = kv->lost_first;
    if (MST_LIKELY(client == NULL)) {
        return false;
    }
    *ret_notice = (struct mst__kv_notice){
        .client = client, .change = MST_KV_LOST, .key = mst__map_key(client->lost)};
    lost_leave(kv, client);
    return true;
}

bool mst__kv_next_notice(struct mst__kv *kv, struct mst__kv_notice *ret_notice)
{
    if (MST_LIKELY(mst__buf_size(&kv->notices.buf) == 0)) {
        return next_lost(kv, ret_notice);
    }
    struct mst_bytes record = mst__buf_bytes(&kv->notices.buf);
    struct notice_head head;
    memcpy(&head, record.data, sizeof head);
    record = mst__bytes_skip(record, sizeof head);
    struct mst_bytes old_value = {0};
    struct mst_bytes new_value = {0};
    bool whole = mst__items_next(&record, &old_value) && mst__items_next(&record, &new_value);
    MST_ASSERT(whole);
    bool is_first = kv->notice_watch == NULL;
    if (is_first) {
        kv->notice_watch = head.entry->watches;
        MST_ASSERT(kv->notice_watch != NULL);
    }
    *ret_notice = (struct mst__kv_notice){.client = kv->notice_watch->client,
                                          .is_first = is_first,
                                          .change = head.change,
                                          .key = mst__map_key(head.entry),
                                          .old_value = old_value,
                                          .new_value = new_value};
    /* The bytes are the same for all watchers. */
    kv->steps += 1 + (is_first ? mst__kv_steps_of(old_value.size + new_value.size) : 0);
    kv->notice_watch = kv->notice_watch->next_of_entry;
    if (kv->notice_watch == NULL) {
        /* The bytes stay in place until the next command appends. */
        mst__buf_consume(&kv->notices.buf, sizeof head + 16 + old_value.size + new_value.size);
    }
    return true;
}
