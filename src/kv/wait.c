/* kv/wait.c - waiting for keys: lines of clients per key, barriers, changes, promises.
 *
 * A client waits for at most one thing: a set of keys, a barrier, or a change. Every missing key
 * gives it a place in a line of that key. When the key is written, the place is used up; when none
 * is left, the client is released. Lines keep the order of arrival. A visited place is removed from
 * its line, so that no work is done twice. A WAIT for many keys may be registered, and given up, in
 * parts: meanwhile the client is held, as if it missed one more key.
 *
 * All clients that wait for a change of one key wait for the same: a value other than the present
 * one, whose fingerprint is in the entry. It is computed once per value. */
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

static size_t part_size(size_t count)
{
    return sizeof(struct mst__kv_part) + count * sizeof(struct mst__kv_place);
}

static int part_new(struct mst__kv *kv, size_t count, struct mst__kv_part **ret_part)
{
    size_t cost = mst__slab_cost(part_size(count));
    if (!mst__kv_has_room(kv, cost)) {
        return MST_ELIMIT;
    }
    struct mst__kv_part *part = mst__slab_malloc(&kv->slabs, part_size(count));
    if (part == NULL) {
        return MST_ENOMEM;
    }
    part->count = count;
    kv->memory_used += cost;
    *ret_part = part;
    return 0;
}

static void part_free(struct mst__kv *kv, struct mst__kv_part *part)
{
    size_t size = part_size(part->count);
    mst__slab_free(&kv->slabs, part, size);
    mst__kv_discharge(kv, mst__slab_cost(size));
}

/* @client no longer waits. */
static void client_drop_parts(struct mst__kv *kv, struct mst__kv_client *client)
{
    MST_ASSERT(client->keys_missing == 0);
    while (client->parts != NULL) {
        struct mst__kv_part *part = client->parts;
        client->parts = part->next;
        part_free(kv, part);
    }
}

/* While held, @client is not released. */
static void client_hold(struct mst__kv_client *client)
{
    MST_ASSERT(!client->is_held);
    client->is_held = true;
    client->keys_missing++;
}

static void client_let_go(struct mst__kv_client *client)
{
    MST_ASSERT(client->is_held);
    client->is_held = false;
    client->keys_missing--;
}

/* The wait of @client is over. */
static void client_release(struct mst__kv *kv, struct mst__kv_client *client)
{
    client_drop_parts(kv, client);
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

/* @place is used up; release the client if it was its last. */
static void place_use_up(struct mst__kv *kv, struct mst__kv_place *place)
{
    struct mst__kv_client *client = place->client;
    place_leave(kv, place);
    if (client->keys_missing == 0) {
        client_release(kv, client);
    }
}

/* The fingerprint of the value of @entry, 0 if there is none; computed once per value. */
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
    uint64_t before = entry->fingerprint; /* a client passed it and has waited since */
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
        /* A client that still misses other keys has seen this one; continue to one that can act. */
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

/* Whether the key of @entry is removed with the participant of a barrier at @place: it was the only
 * one, and the barrier created the key. */
static bool barrier_drops(const struct mst__kv_entry *entry, const struct mst__kv_place *place)
{
    int64_t count = 0;
    return entry->made_by_barrier && entry->writes == place->writes &&
           mst__kv_entry_number(entry, &count) == 0 && count <= 1;
}

/* A participant leaves an incomplete barrier: count it down. If another client has written the key
 * since, the count stays. */
static void barrier_withdraw(struct mst__kv *kv,
                             struct mst__kv_entry *entry,
                             const struct mst__kv_place *place)
{
    int64_t count = 0;
    if (entry->block == NULL || entry->writes != place->writes ||
        mst__kv_entry_number(entry, &count) != 0) {
        return;
    }
    if (barrier_drops(entry, place)) {
        mst__kv_entry_drop(kv, entry);
    } else {
        char text[MST_NUMBER_SIZE];
        size_t size = mst__number_format((int64_t)((uint64_t)count - 1), text);
        /* The block of a value has room for any number, and such a short value is not shared. */
        mst__kv_entry_put(kv, entry, entry->block, mst_bytes_of(text, size));
    }
    mst__kv_wake_changes(kv, entry);
}

/* Give up @place, if its key has not been written. */
static void place_give_up(struct mst__kv *kv, struct mst__kv_place *place)
{
    struct mst__kv_entry *entry = place->entry;
    if (entry == NULL) {
        return;
    }
    place_leave(kv, place);
    if (place->line == MST_KV_LINE_BARRIER) {
        barrier_withdraw(kv, entry, place);
    }
    mst__kv_entry_tidy(kv, entry);
}

static void part_give_up(struct mst__kv *kv, struct mst__kv_client *client)
{
    struct mst__kv_part *part = client->parts;
    for (size_t i = 0; i < part->count; i++) {
        place_give_up(kv, &part->places[i]);
    }
    client->parts = part->next;
    part_free(kv, part);
}

void mst__kv_cancel_wait(struct mst__kv *kv, struct mst__kv_client *client)
{
    if (client->is_held) {
        client_let_go(client);
    }
    place_give_up(kv, &client->place);
    while (client->parts != NULL) {
        part_give_up(kv, client);
    }
    MST_ASSERT(client->keys_missing == 0);
}

bool mst__kv_shed_wait(struct mst__kv *kv, struct mst__kv_client *client)
{
    if (client->parts == NULL || client->parts->next == NULL) {
        return true;
    }
    if (!client->is_held) {
        client_hold(client);
    }
    part_give_up(kv, client);
    return false;
}

/* Whether @client need not wait for the key of @entry after it has given up its current wait:
 * leaving a barrier may remove the key. */
static bool wait_is_ready(const struct mst__kv_client *client, const struct mst__kv_entry *entry)
{
    const struct mst__kv_place *place = &client->place;
    bool is_leaving = entry != NULL && place->entry == entry &&
                      place->line == MST_KV_LINE_BARRIER && entry->queue.count == 0;
    return mst__kv_entry_is_ready(entry) && !(is_leaving && barrier_drops(entry, place));
}

/* The number of missing keys of @command; a repeated key counts twice. */
static size_t wait_count_missing(const struct mst__kv *kv,
                                 const struct mst__kv_client *client,
                                 const struct mst__command *command)
{
    size_t missing = 0;
    struct mst_bytes items = command->items;
    struct mst_bytes key;
    for (uint64_t i = 0; i < command->count && mst__items_next(&items, &key); i++) {
        if (!wait_is_ready(client, mst__map_get(&kv->map, key))) {
            missing++;
        }
    }
    return missing;
}

/* Find or create the entries for up to *@missing places, pin them, and return their number. On
 * error nothing has changed. */
static int wait_pin_entries(struct mst__kv *kv,
                            const struct mst__kv_client *client,
                            const struct mst__command *command,
                            struct mst__kv_place *places,
                            size_t *missing)
{
    struct mst_bytes items = command->items;
    struct mst_bytes key;
    size_t done = 0;
    int rv = 0;
    while (rv == 0 && done < *missing && mst__items_next(&items, &key)) {
        struct mst__kv_entry *entry = NULL;
        rv = mst__kv_entry_obtain(kv, key, &entry);
        if (rv == 0 && !wait_is_ready(client, entry)) {
            places[done++].entry = entry;
            entry->pins++;
        }
    }
    while (rv != 0 && done > 0) {
        struct mst__kv_entry *entry = places[--done].entry;
        entry->pins--;
        mst__kv_entry_tidy(kv, entry);
    }
    *missing = done;
    return rv;
}

/* Get the places of @command in @ret_part, or in @one if there is only one, and return their
 * number; their entries are pinned. On error nothing has changed. */
static int wait_prepare(struct mst__kv *kv,
                        const struct mst__kv_client *client,
                        const struct mst__command *command,
                        struct mst__kv_place *one,
                        struct mst__kv_part **ret_part,
                        size_t *ret_missing)
{
    bool is_whole = !command->is_begun && !command->goes_on;
    struct mst__kv_part *part = NULL;
    /* A single place needs no memory, so it need not be known beforehand whether it is needed. */
    size_t missing = is_whole && command->count == 1 ? 1 : wait_count_missing(kv, client, command);
    int rv = missing == 0 || (missing == 1 && is_whole) ? 0 : part_new(kv, missing, &part);
    if (rv != 0) {
        return rv;
    }
    rv = wait_pin_entries(kv, client, command, part == NULL ? one : part->places, &missing);
    if (rv != 0 && part != NULL) {
        part_free(kv, part);
        part = NULL;
    }
    MST_ASSERT(part == NULL || part->count == missing);
    *ret_part = part;
    *ret_missing = missing;
    return rv;
}

int mst__kv_wait(struct mst__kv *kv,
                 struct mst__kv_client *client,
                 const struct mst__command *command,
                 struct mst__reply *ret_reply)
{
    MST_ASSERT(client->is_held || !command->is_begun);
    struct mst__kv_place one = {0};
    struct mst__kv_part *part = NULL;
    size_t missing;
    int rv = wait_prepare(kv, client, command, &one, &part, &missing);
    if (rv != 0) {
        return rv;
    }
    if (!command->is_begun) {
        mst__kv_cancel_wait(kv, client);
        client_hold(client);
    }
    struct mst__kv_place *places = &client->place;
    if (part != NULL) {
        part->next = client->parts;
        client->parts = part;
        places = part->places;
    } else {
        client->place = one;
    }
    for (size_t i = 0; i < missing; i++) {
        struct mst__kv_entry *entry = places[i].entry;
        MST_ASSERT(entry != NULL); /* wait_pin_entries has found it */
        entry->pins--;
        place_enter(&places[i], client, entry, MST_KV_LINE_KEY);
    }
    *ret_reply = (struct mst__reply){.kind = MST_REPLY_LATER};
    if (!command->goes_on) {
        client_let_go(client);
    }
    if (client->keys_missing == 0) {
        client_drop_parts(kv, client);
        *ret_reply =
            (struct mst__reply){.kind = MST_REPLY_STATUS, .status = MST_STATUS_STOP_WAITING};
    }
    return 0;
}

/* Let @client, which is not waiting, wait in a line of @entry. */
static void client_wait(struct mst__kv_client *client,
                        struct mst__kv_entry *entry,
                        enum mst__kv_line line)
{
    MST_ASSERT(!mst__kv_is_waiting(client));
    place_enter(&client->place, client, entry, line);
}

/* Give up the wait of @client; @entry stays. */
static void cancel_wait_but_keep(struct mst__kv *kv,
                                 struct mst__kv_client *client,
                                 struct mst__kv_entry *entry)
{
    entry->pins++;
    mst__kv_cancel_wait(kv, client);
    entry->pins--;
}

int mst__kv_wait_change(struct mst__kv *kv,
                        struct mst__kv_client *client,
                        const struct mst__command *command,
                        struct mst__reply *ret_reply)
{
    struct mst__kv_entry *entry = NULL;
    int rv = mst__kv_entry_obtain(kv, command->key, &entry);
    if (rv != 0) {
        return rv;
    }
    cancel_wait_but_keep(kv, client, entry);
    if ((uint64_t)command->number != entry_fingerprint(kv, entry)) {
        mst__kv_entry_tidy(kv, entry);
        *ret_reply =
            (struct mst__reply){.kind = MST_REPLY_STATUS, .status = MST_STATUS_STOP_WAITING};
        return 0;
    }
    client_wait(client, entry, MST_KV_LINE_CHANGE);
    *ret_reply = (struct mst__reply){.kind = MST_REPLY_LATER};
    return 0;
}

/* Whether the participant that makes the number of a barrier @count completes it: every @size of
 * them do, so that a barrier can be used again. */
static bool barrier_is_complete(int64_t count, int64_t size)
{
    return size <= 1 || (count > 0 && count % size == 0);
}

int mst__kv_barrier(struct mst__kv *kv,
                    struct mst__kv_client *client,
                    const struct mst__command *command,
                    struct mst__reply *ret_reply)
{
    struct mst__kv_entry *entry = NULL;
    int rv = mst__kv_entry_obtain(kv, command->key, &entry);
    if (rv != 0) {
        return rv;
    }
    int64_t count = 0;
    struct mst__kv_block *room = NULL;
    rv = mst__kv_entry_number(entry, &count);
    if (rv == 0) {
        /* The entry's own block may be removed with a barrier that is left. */
        rv = mst__kv_entry_room(kv, mst__kv_is_waiting(client) ? NULL : entry, MST_NUMBER_SIZE,
                                &room);
    }
    if (rv != 0) {
        mst__kv_entry_tidy(kv, entry);
        return rv;
    }
    cancel_wait_but_keep(kv, client, entry);
    rv = mst__kv_entry_number(entry, &count);
    MST_ASSERT(rv == 0); /* it was a number, and has at most been counted down */
    count = (int64_t)((uint64_t)count + 1);
    bool created = entry->block == NULL;
    char text[MST_NUMBER_SIZE];
    mst__kv_entry_put(kv, entry, room, mst_bytes_of(text, mst__number_format(count, text)));
    entry->made_by_barrier = entry->made_by_barrier || created;
    if (barrier_is_complete(count, command->number)) {
        mst__kv_wake_all(kv, entry);
        *ret_reply =
            (struct mst__reply){.kind = MST_REPLY_STATUS, .status = MST_STATUS_STOP_WAITING};
        return 0;
    }
    mst__kv_wake_changes(kv, entry);
    client_wait(client, entry, MST_KV_LINE_BARRIER);
    *ret_reply = (struct mst__reply){.kind = MST_REPLY_LATER};
    return 0;
}
