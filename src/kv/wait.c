/* kv/wait.c - waiting for keys: lines of clients per key, barriers, changes, promises.
 *
 * A client waits for at most one thing: a set of keys, a barrier, or a change. Every key it misses
 * gives it a place in a line of that key. When the key is written the place is used up; when none
 * is left the client is released. Lines keep the order of arrival. Whoever looks at a place in a
 * line takes it out, so that no work is done twice.
 *
 * All who wait for a change of one key wait for the same: a value other than the present one, whose
 * fingerprint the entry holds. It is computed once for a value, however many ask. */
#include "base/assert.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/siphash.h"
#include "kv/entry.h"

bool mst__kv_entry_is_ready(const struct mst__kv_entry *entry)
{
    return entry != NULL && (entry->block != NULL || entry->queue.count > 0);
}

static void place_enter(struct mst__kv_place *place,
                        struct mst__kv_client *client,
                        struct mst__kv_entry *entry,
                        enum mst__kv_line line)
{
    *place = (struct mst__kv_place){
        .entry = entry, .client = client, .writes = entry->writes, .line = line};
    struct mst__kv_place *first = entry->lines[line];
    if (first == NULL) {
        place->prev = place;
        place->next = place;
        entry->lines[line] = place;
    } else {
        place->prev = first->prev;
        place->next = first;
        first->prev->next = place;
        first->prev = place;
    }
    client->keys_missing++;
}

static void place_leave(struct mst__kv *kv, struct mst__kv_place *place)
{
    struct mst__kv_entry *entry = place->entry;
    MST_ASSERT(entry != NULL);
    MST_ASSERT(place->client->keys_missing > 0);
    kv->steps++;
    place->prev->next = place->next;
    place->next->prev = place->prev;
    if (entry->lines[place->line] == place) {
        entry->lines[place->line] = place->next == place ? NULL : place->next;
    }
    place->entry = NULL;
    place->client->keys_missing--;
}

/* The memory of a client's places is counted when it is more than the one it brings along. */
static size_t places_cost(size_t count)
{
    return count > 1 ? count * sizeof(struct mst__kv_place) : 0;
}

static int client_take_places(struct mst__kv *kv, struct mst__kv_client *client, size_t count)
{
    MST_ASSERT(client->places == NULL);
    if (count == 1) {
        client->places = &client->place;
    } else {
        if (!mst__kv_has_room(kv, places_cost(count))) {
            return MST_ELIMIT;
        }
        client->places = mst__calloc(count, sizeof *client->places);
        if (client->places == NULL) {
            return MST_ENOMEM;
        }
        kv->memory_used += places_cost(count);
    }
    client->places_count = count;
    return 0;
}

static void client_drop_places(struct mst__kv *kv, struct mst__kv_client *client)
{
    MST_ASSERT(client->keys_missing == 0);
    kv->memory_used -= places_cost(client->places_count);
    if (client->places != &client->place) {
        mst__free(client->places);
    }
    client->places = NULL;
    client->places_count = 0;
}

/* All that @client waited for has come. */
static void client_release(struct mst__kv *kv, struct mst__kv_client *client)
{
    client_drop_places(kv, client);
    MST_ASSERT(!client->released);
    client->released = true;
    client->released_prev = kv->released_last;
    client->released_next = NULL;
    if (kv->released_last == NULL) {
        kv->released_first = client;
    } else {
        kv->released_last->released_next = client;
    }
    kv->released_last = client;
}

/* @place is used up; the client goes on if it was its last. */
static void place_use_up(struct mst__kv *kv, struct mst__kv_place *place)
{
    struct mst__kv_client *client = place->client;
    place_leave(kv, place);
    if (client->keys_missing == 0) {
        client_release(kv, client);
    }
}

/* The fingerprint of the value of @entry, 0 if it has none; computed once for a value. */
static uint64_t entry_fingerprint(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    if (entry->fingerprint_is_old) {
        struct mst_bytes value = mst__kv_entry_value(entry);
        kv->steps += mst__kv_steps_of(value.size);
        entry->fingerprint = entry->block == NULL ? 0 : mst__fingerprint(value);
        entry->fingerprint_is_old = false;
    }
    return entry->fingerprint;
}

static void wake_line(struct mst__kv *kv, struct mst__kv_entry *entry, enum mst__kv_line line)
{
    while (entry->lines[line] != NULL) {
        place_use_up(kv, entry->lines[line]);
    }
}

void mst__kv_wake_all(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    wake_line(kv, entry, MST_KV_LINE_KEY);
    wake_line(kv, entry, MST_KV_LINE_BARRIER);
    mst__kv_wake_changes(kv, entry);
}

void mst__kv_wake_changes(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    if (MST_LIKELY(entry->lines[MST_KV_LINE_CHANGE] == NULL)) {
        return;
    }
    uint64_t before = entry->fingerprint; /* somebody came with it and has waited since */
    if (entry_fingerprint(kv, entry) != before) {
        wake_line(kv, entry, MST_KV_LINE_CHANGE);
    }
}

void mst__kv_wake_one(struct mst__kv *kv, struct mst__kv_entry *entry)
{
    while (entry->lines[MST_KV_LINE_KEY] != NULL) {
        struct mst__kv_place *place = entry->lines[MST_KV_LINE_KEY];
        struct mst__kv_client *client = place->client;
        place_leave(kv, place);
        /* One that still misses other keys has seen this one; go on to one that can act. */
        if (client->keys_missing == 0) {
            MST_ASSERT(client->promised == NULL);
            client->promised = entry;
            entry->queue.promised_count++;
            client_release(kv, client);
            return;
        }
    }
}

void mst__kv_settle_promise(struct mst__kv *kv, struct mst__kv_client *client)
{
    struct mst__kv_entry *entry = client->promised;
    MST_ASSERT(entry->queue.promised_count > 0);
    client->promised = NULL;
    entry->queue.promised_count--;
    if (entry->queue.count > entry->queue.promised_count) {
        mst__kv_wake_one(kv, entry);
    }
    mst__kv_entry_tidy(kv, entry);
}

/* A participant leaves a barrier that is not complete: as if it had never come. If somebody else
 * has written the key since, the count is not the barrier's any more and stays. */
static void barrier_withdraw(struct mst__kv *kv, struct mst__kv_entry *entry, uint32_t writes)
{
    int64_t count = 0;
    if (entry->block == NULL || entry->writes != writes ||
        mst__kv_entry_number(entry, &count) != 0) {
        return;
    }
    if (count <= 1 && entry->made_by_barrier) {
        mst__kv_entry_drop(kv, entry);
    } else {
        char text[MST_NUMBER_SIZE];
        size_t size = mst__number_format((int64_t)((uint64_t)count - 1), text);
        /* The block of a value holds any number, and so short a value is not shared. */
        mst__kv_entry_put(kv, entry, entry->block, mst_bytes(text, size));
    }
    mst__kv_wake_changes(kv, entry);
}

void mst__kv_cancel_wait(struct mst__kv *kv, struct mst__kv_client *client)
{
    if (client->places == NULL) {
        return;
    }
    for (size_t i = 0; i < client->places_count; i++) {
        struct mst__kv_place *place = &client->places[i];
        struct mst__kv_entry *entry = place->entry;
        if (entry == NULL) {
            continue;
        }
        place_leave(kv, place);
        if (place->line == MST_KV_LINE_BARRIER) {
            barrier_withdraw(kv, entry, place->writes);
        }
        mst__kv_entry_tidy(kv, entry);
    }
    client_drop_places(kv, client);
}

/* How many of the keys of @command are missing; a key named twice counts twice. */
static size_t wait_count_missing(const struct mst__kv *kv, const struct mst__command *command)
{
    size_t missing = 0;
    struct mst_bytes items = command->items;
    struct mst_bytes key;
    for (uint64_t i = 0; i < command->count && mst__items_next(&items, &key); i++) {
        if (!mst__kv_entry_is_ready(mst__map_get(&kv->map, key))) {
            missing++;
        }
    }
    return missing;
}

int mst__kv_wait(struct mst__kv *kv,
                 struct mst__kv_client *client,
                 const struct mst__command *command,
                 struct mst__reply *ret_reply)
{
    mst__kv_cancel_wait(kv, client);
    size_t missing = wait_count_missing(kv, command);
    if (missing == 0) {
        *ret_reply =
            (struct mst__reply){.kind = MST_REPLY_STATUS, .status = MST_STATUS_STOP_WAITING};
        return 0;
    }
    int rv = client_take_places(kv, client, missing);
    if (rv != 0) {
        return rv;
    }
    struct mst_bytes items = command->items;
    struct mst_bytes key;
    size_t next = 0;
    while (next < missing && mst__items_next(&items, &key)) {
        struct mst__kv_entry *entry = NULL;
        rv = mst__kv_entry_obtain(kv, key, &entry);
        if (rv != 0) {
            mst__kv_cancel_wait(kv, client);
            return rv;
        }
        if (!mst__kv_entry_is_ready(entry)) {
            place_enter(&client->places[next], client, entry, MST_KV_LINE_KEY);
            next++;
        }
    }
    MST_ASSERT(client->keys_missing == missing);
    *ret_reply = (struct mst__reply){.kind = MST_REPLY_LATER};
    return 0;
}

int mst__kv_wait_change(struct mst__kv *kv,
                        struct mst__kv_client *client,
                        const struct mst__command *command,
                        struct mst__reply *ret_reply)
{
    mst__kv_cancel_wait(kv, client);
    struct mst__kv_entry *entry = NULL;
    int rv = mst__kv_entry_obtain(kv, command->key, &entry);
    if (rv != 0) {
        return rv;
    }
    if ((uint64_t)command->number != entry_fingerprint(kv, entry)) {
        mst__kv_entry_tidy(kv, entry);
        *ret_reply =
            (struct mst__reply){.kind = MST_REPLY_STATUS, .status = MST_STATUS_STOP_WAITING};
        return 0;
    }
    rv = client_take_places(kv, client, 1);
    MST_ASSERT(rv == 0); /* one place is the client's own */
    place_enter(&client->place, client, entry, MST_KV_LINE_CHANGE);
    *ret_reply = (struct mst__reply){.kind = MST_REPLY_LATER};
    return 0;
}

int mst__kv_barrier(struct mst__kv *kv,
                    struct mst__kv_client *client,
                    const struct mst__command *command,
                    struct mst__reply *ret_reply)
{
    mst__kv_cancel_wait(kv, client);
    struct mst__kv_entry *entry = NULL;
    int rv = mst__kv_entry_obtain(kv, command->key, &entry);
    if (rv != 0) {
        return rv;
    }
    int64_t count = 0;
    struct mst__kv_block *room = NULL;
    rv = mst__kv_entry_number(entry, &count);
    if (rv == 0) {
        rv = mst__kv_entry_room(kv, entry, MST_NUMBER_SIZE, &room);
    }
    if (rv != 0) {
        mst__kv_entry_tidy(kv, entry);
        return rv;
    }
    count = (int64_t)((uint64_t)count + 1);
    bool created = entry->block == NULL;
    char text[MST_NUMBER_SIZE];
    mst__kv_entry_put(kv, entry, room, mst_bytes(text, mst__number_format(count, text)));
    entry->made_by_barrier = entry->made_by_barrier || created;
    if (count >= command->number) {
        mst__kv_wake_all(kv, entry);
        *ret_reply =
            (struct mst__reply){.kind = MST_REPLY_STATUS, .status = MST_STATUS_STOP_WAITING};
        return 0;
    }
    mst__kv_wake_changes(kv, entry);
    rv = client_take_places(kv, client, 1);
    MST_ASSERT(rv == 0); /* one place is the client's own */
    place_enter(&client->place, client, entry, MST_KV_LINE_BARRIER);
    *ret_reply = (struct mst__reply){.kind = MST_REPLY_LATER};
    return 0;
}
