/* unit/kv/kv_unit.c - see kv_unit.h. */
#include "unit/kv/kv_unit.h"

#include "base/assert.h"
#include "base/mem.h"
#include "kv/entry.h"
#include "unit/unit.h"

struct snapshot {
    struct mst__buf *text;
    const struct mst__kv_client *clients;
};

static void put_number(struct snapshot *s, uint64_t number)
{
    int rv = mst__buf_append_u64(s->text, number);
    MST_ASSERT(rv == 0);
}

static void put_bytes(struct snapshot *s, struct mst_bytes bytes)
{
    int rv = mst__buf_append_str(s->text, bytes);
    MST_ASSERT(rv == 0);
}

static void put_client(struct snapshot *s, const struct mst__kv_client *client)
{
    put_number(s, client == NULL ? UINT64_MAX : (uint64_t)(client - s->clients));
}

static void put_key(struct snapshot *s, const struct mst__kv_entry *entry)
{
    put_number(s, entry == NULL);
    put_bytes(s, entry == NULL ? mst_bytes_of(NULL, 0) : mst__map_key(entry));
}

static void put_entry(struct snapshot *s, const struct mst__kv_entry *entry)
{
    put_key(s, entry);
    put_number(s, entry->block == NULL);
    if (entry->block != NULL) {
        put_bytes(s, mst__kv_entry_value(entry));
        put_number(s, entry->block->u.capacity);
        put_number(s, entry->block->holders);
    }
    put_number(s, entry->queue.count);
    put_number(s, entry->queue.promised_count);
    for (const struct mst__kv_block *item = entry->queue.first; item != NULL; item = item->u.next) {
        put_bytes(s, mst_bytes_of(item->bytes, item->size));
        put_number(s, item->holders);
    }
    for (size_t i = 0; i < MST_KV_LINE_COUNT; i++) {
        put_number(s, i);
        for (const struct mst__kv_place *place = entry->lines[i]; place != NULL;
             place = mst__kv_place_next(place)) {
            put_client(s, place->client);
            put_number(s, place->writes);
        }
    }
    for (const struct mst__kv_watch *watch = entry->watches; watch != NULL;
         watch = watch->next_of_entry) {
        put_client(s, watch->client);
    }
    put_number(s, entry->writes);
    put_number(s, entry->pins);
    put_number(s, entry->made_by_barrier);
}

static void put_state_of_client(struct snapshot *s, const struct mst__kv_client *client)
{
    put_number(s, client->keys_missing);
    put_number(s, client->is_held);
    put_key(s, client->place.entry);
    put_number(s, client->place.line);
    for (const struct mst__kv_part *part = client->parts; part != NULL; part = part->next) {
        for (size_t i = 0; i < part->count; i++) {
            put_key(s, part->places[i].entry);
        }
    }
    put_key(s, client->promised);
    put_number(s, client->watches_count);
    for (const struct mst__kv_watch *watch = client->watches; watch != NULL;
         watch = watch->next_of_client) {
        put_key(s, watch->entry);
    }
    put_key(s, client->lost);
    put_number(s, client->released);
}

void mst__kv_snapshot(const struct mst__kv *kv,
                      const struct mst__kv_client *clients,
                      size_t clients_count,
                      struct mst__buf *ret_text)
{
    struct snapshot s = {.text = ret_text, .clients = clients};
    mst__buf_init(ret_text, 1 << 20);
    for (const struct mst__kv_entry *entry = mst__map_first(&kv->map); entry != NULL;
         entry = mst__map_next(entry)) {
        put_entry(&s, entry);
    }
    const struct mst__kv_entry *entry = kv->keys;
    for (size_t i = 0; i < kv->keys_count; i++, entry = entry->key_next) {
        put_key(&s, entry);
    }
    for (size_t i = 0; i < clients_count; i++) {
        put_state_of_client(&s, &clients[i]);
    }
    for (const struct mst__kv_client *client = kv->released_first; client != NULL;
         client = client->released_next) {
        put_client(&s, client);
    }
    for (const struct mst__kv_client *client = kv->lost_first; client != NULL;
         client = client->lost_next) {
        put_client(&s, client);
    }
    put_number(&s, kv->keys_count);
    put_number(&s, kv->memory_used);
    put_number(&s, mst__buf_size(&kv->notices.buf));
}

void mst__kv_check_compact(struct mst__kv *kv,
                           const struct mst__kv_client *clients,
                           size_t clients_count,
                           unsigned long failure,
                           uint64_t steps)
{
    struct mst__buf before;
    struct mst__buf after;
    mst__kv_snapshot(kv, clients, clients_count, &before);
    if (kv->compact_next == NULL) {
        mst__kv_compact_begin(kv);
    }
    mst__mem_fail_nth(failure);
    (void)mst__kv_compact(kv, steps, true);
    mst__mem_fail_nth(0);
    mst__kv_snapshot(kv, clients, clients_count, &after);
    assert_bytes(mst__buf_bytes(&after), mst__buf_bytes(&before));
    mst__buf_close(&before);
    mst__buf_close(&after);
}

int mst__kv_apply_parts(struct mst__kv *kv,
                        struct mst__kv_client *client,
                        const struct mst__command *command,
                        uint64_t keys,
                        struct mst__reply *ret_reply)
{
    if (command->op != MST_OP_WAIT || command->count <= keys || client->place.entry != NULL) {
        return mst__kv_apply(kv, client, command, ret_reply);
    }
    struct mst__command part = *command;
    part.count = keys;
    part.goes_on = true;
    assert_int_equal(mst__kv_apply(kv, client, &part, ret_reply), 0);
    assert_int_equal(ret_reply->kind, MST_REPLY_LATER);
    struct mst_bytes key;
    for (uint64_t i = 0; i < keys; i++) {
        assert_true(mst__items_next(&part.items, &key));
    }
    part.count = command->count - keys;
    part.is_begun = true;
    part.goes_on = false;
    return mst__kv_apply(kv, client, &part, ret_reply);
}
