/* kv/entry.h - shared by the files of kv/: an entry of the map.
 *
 * One entry holds everything under one key: the value, the queue of the same name, waiting clients,
 * watchers. It exists while there is any of these. */
#ifndef MST_KV_ENTRY_H
#define MST_KV_ENTRY_H

#include "base/assert.h"
#include "kv/kv.h"

/* A value, or an item of a queue. A caller that sends the bytes later holds the block; while it is
 * held, it is not written: a changed value gets a new block. */
struct mst__kv_block {
    union {
        size_t capacity;            /* of a value, or of an item that has left its queue */
        struct mst__kv_block *next; /* in a queue */
    } u;
    uint32_t size;
    uint32_t holders; /* references, including that of the entry or queue */
    uint8_t bytes[];
};

struct mst__kv_queue {
    struct mst__kv_block *first, *last;
    size_t count;
    size_t promised_count; /* clients woken for an item that have not yet taken it */
};

struct mst__kv_entry {
    struct mst__kv_block *block;                    /* the value; NULL = none */
    struct mst__kv_entry *key_prev, *key_next;      /* ring of the entries with a value */
    struct mst__kv_place *lines[MST_KV_LINE_COUNT]; /* the first client of each line */
    struct mst__kv_queue queue;
    struct mst__kv_watch *watches;
    uint64_t fingerprint;    /* of the value, unless it is old */
    uint32_t writes;         /* counts changes other than those of BARRIER */
    uint32_t pins;           /* a current command uses the entry: keep it */
    bool made_by_barrier;    /* BARRIER created the value and no other operation has written it */
    bool fingerprint_is_old; /* of an earlier value; never while a client waits for a change */
};

struct mst__kv_watch {
    struct mst__kv_watch *prev_of_entry, *next_of_entry;
    struct mst__kv_watch *next_of_client;
    struct mst__kv_entry *entry;
    struct mst__kv_client *client;
};

/* @size bytes in steps. */
static inline uint64_t mst__kv_steps_of(size_t size)
{
    return size >> 10;
}

/* --- kv.c: memory and entries --- */

/* Whether @size more bytes fit under the memory limit; otherwise kv->memory_lacked is set. */
bool mst__kv_has_room(struct mst__kv *kv, size_t size);

/* Charge the present size of @buf: 0, or MST_ELIMIT. */
int mst__kv_buf_charge(struct mst__kv *kv, struct mst__kv_buf *buf);

/* Append to a buffer of the engine: 0, MST_ELIMIT, MST_ENOMEM. On error the bytes may have been
 * appended: truncate or close the buffer. */
static inline int mst__kv_buf_append_str(struct mst__kv *kv,
                                         struct mst__kv_buf *buf,
                                         struct mst_bytes bytes)
{
    int rv = mst__buf_append_str(&buf->buf, bytes);
    return MST_LIKELY(buf->buf.capacity <= buf->charged) || rv != 0 ? rv
                                                                    : mst__kv_buf_charge(kv, buf);
}
void mst__kv_buf_close(struct mst__kv *kv, struct mst__kv_buf *buf);

/* Find or create the entry under @key: 0, MST_ELIMIT, MST_ENOMEM. */
int mst__kv_entry_obtain(struct mst__kv *kv,
                         struct mst_bytes key,
                         struct mst__kv_entry **ret_entry);

/* Remove @entry if it is empty and no command needs it. */
void mst__kv_entry_tidy(struct mst__kv *kv, struct mst__kv_entry *entry);

/* A block for @capacity bytes, held by the caller: 0, MST_ELIMIT, MST_ENOMEM. */
int mst__kv_block_new(struct mst__kv *kv, size_t capacity, struct mst__kv_block **ret_block);

static inline bool mst__kv_entry_exists(const struct mst__kv_entry *entry)
{
    return entry->block != NULL;
}

static inline bool mst__kv_entry_is_waited_for(const struct mst__kv_entry *entry)
{
    return entry->lines[MST_KV_LINE_KEY] != NULL || entry->lines[MST_KV_LINE_BARRIER] != NULL ||
           entry->lines[MST_KV_LINE_CHANGE] != NULL;
}

static inline struct mst_bytes mst__kv_entry_value(const struct mst__kv_entry *entry)
{
    return entry->block == NULL ? mst_bytes_of(NULL, 0)
                                : mst_bytes_of(entry->block->bytes, entry->block->size);
}

/* A block for the next value of @entry, of up to @size bytes: its present one if that fits, else,
 * or if @entry is NULL, a new one, which the caller puts or releases. 0, MST_ELIMIT, MST_ENOMEM. */
int mst__kv_entry_room(struct mst__kv *kv,
                       const struct mst__kv_entry *entry,
                       size_t size,
                       struct mst__kv_block **ret_room);

/* Store @value in @room, which is taken; notifies watchers, wakes no waiting client. @value may
 * already be in @room. */
void mst__kv_entry_put(struct mst__kv *kv,
                       struct mst__kv_entry *entry,
                       struct mst__kv_block *room,
                       struct mst_bytes value);

/* Remove the value; notifies watchers. The entry stays. */
void mst__kv_entry_drop(struct mst__kv *kv, struct mst__kv_entry *entry);

/* Remove the value as DELETE does: wakes clients that wait for a change. The entry stays. */
void mst__kv_entry_delete(struct mst__kv *kv, struct mst__kv_entry *entry);

/* The value as a number: 0, or MST_ETYPE. A missing value counts as 0. */
int mst__kv_entry_number(const struct mst__kv_entry *entry, int64_t *ret_number);

/* --- wait.c --- */

/* The key of @entry was written: wake all clients in its lines, those that wait for a change only
 * if there was one. */
void mst__kv_wake_all(struct mst__kv *kv, struct mst__kv_entry *entry);

/* The value of @entry may have changed: if so, wake the clients that wait for a change. */
void mst__kv_wake_changes(struct mst__kv *kv, struct mst__kv_entry *entry);

/* The queue of @entry got an item: wake one waiting client. */
void mst__kv_wake_one(struct mst__kv *kv, struct mst__kv_entry *entry);

/* @client has taken its item, or never will: if there are items without a woken client, wake the
 * next one. */
void mst__kv_settle_promise(struct mst__kv *kv, struct mst__kv_client *client);

int mst__kv_wait(struct mst__kv *kv,
                 struct mst__kv_client *client,
                 const struct mst__command *command,
                 struct mst__reply *ret_reply);

int mst__kv_wait_change(struct mst__kv *kv,
                        struct mst__kv_client *client,
                        const struct mst__command *command,
                        struct mst__reply *ret_reply);

int mst__kv_barrier(struct mst__kv *kv,
                    struct mst__kv_client *client,
                    const struct mst__command *command,
                    struct mst__reply *ret_reply);

/* Whether a CHECK or WAIT for the key is satisfied. @entry may be NULL. */
bool mst__kv_entry_is_ready(const struct mst__kv_entry *entry);

/* The place after @place in its line; NULL at the end. */
static inline const struct mst__kv_place *mst__kv_place_next(const struct mst__kv_place *place)
{
    return place->next == place->entry->lines[place->line] ? NULL : place->next;
}

/* --- queue.c --- */

int mst__kv_queue_push(struct mst__kv *kv, const struct mst__command *command);
void mst__kv_queue_pop(struct mst__kv *kv,
                       const struct mst__command *command,
                       struct mst__reply *ret_reply);
int64_t mst__kv_queue_count(const struct mst__kv *kv, struct mst_bytes key);
/* Remove the first item, which exists, and keep the entry. */
void mst__kv_queue_drop(struct mst__kv *kv, struct mst__kv_entry *entry);
/* Release all items, without accounting: the engine is closing. */
void mst__kv_queue_free(struct mst__kv *kv, struct mst__kv_queue *queue);

/* --- watch.c --- */

int mst__kv_watch(struct mst__kv *kv, struct mst__kv_client *client, struct mst_bytes key);
void mst__kv_unwatch_all(struct mst__kv *kv, struct mst__kv_client *client);

/* Record a change of @entry's value for its watchers; call before the change. */
void mst__kv_notify(struct mst__kv *kv,
                    struct mst__kv_entry *entry,
                    enum mst__kv_change change,
                    struct mst_bytes new_value);

#endif /* MST_KV_ENTRY_H */
