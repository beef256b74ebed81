/* kv/kv.h - the key-value engine: a map, queues, and the clients that wait for keys.
 *
 * Pure: a command goes in, a reply comes out, and the clients whose wait has ended are returned one
 * by one. The engine does not know sockets; a client is any caller that applies commands. The
 * semantics are those of c10d stores (docs/protocol.md), without their defects:
 *   - a COMPARE_SET that creates a key wakes its waiting clients;
 *   - a second WAIT replaces the first;
 *   - a push wakes one client that is still waiting, and no item is left behind;
 *   - a participant that leaves a barrier before it is complete does not count. */
#ifndef MST_KV_KV_H
#define MST_KV_KV_H

#include <muster/error.h>

#include "base/buf.h"
#include "base/command.h"
#include "base/map.h"
#include "base/slab.h"

struct mst__kv_entry;
struct mst__kv_client;
struct mst__kv_block;

/* What the clients in a line wait for. Each kind has its own line, so that waking one kind does not
 * visit the others. */
enum mst__kv_line {
    MST_KV_LINE_KEY,     /* the key, see WAIT */
    MST_KV_LINE_BARRIER, /* the last participant, see BARRIER */
    MST_KV_LINE_CHANGE,  /* another value, see WAIT_CHANGE */
};
#define MST_KV_LINE_COUNT (MST_KV_LINE_CHANGE + 1)

/* A client's place in a line of a key. */
struct mst__kv_place {
    struct mst__kv_place *prev, *next; /* a ring */
    struct mst__kv_entry *entry;       /* NULL when the key has been written */
    struct mst__kv_client *client;
    uint32_t writes; /* of a barrier: entry->writes at arrival */
    enum mst__kv_line line;
};

/* The places of a wait for several keys, or of a part of it. */
struct mst__kv_part {
    struct mst__kv_part *next;
    size_t count;
    struct mst__kv_place places[];
};

/* The engine's state of a client, in the caller's memory: mst__kv_client_init first, and
 * mst__kv_client_close at the end. */
struct mst__kv_client {
    struct mst__kv_place place;     /* of a wait for a single key */
    struct mst__kv_part *parts;     /* of a wait for several keys */
    size_t keys_missing;            /* places whose key has not been written, plus one if held */
    struct mst__kv_entry *promised; /* woken for an item of this queue, not yet taken */
    struct mst__kv_watch *watches;
    size_t watches_count;
    struct mst__kv_client *released_prev, *released_next;
    struct mst__kv_client *lost_prev, *lost_next;
    struct mst__kv_entry *lost; /* lost a notice of this watched key; NULL = none */
    bool released;              /* in the list of released clients */
    bool is_held;               /* a part of its wait is still to be registered or given up */
    bool asks_why;              /* it has asked to be told why it is refused */
};

void mst__kv_client_init(struct mst__kv_client *client);

struct mst__kv_limits {
    size_t memory_max; /* keys, values, queues, waiting clients */
    size_t reply_max;  /* MULTI_GET and LIST_KEYS */
    size_t part_max;   /* a longer list is returned in parts; 0 = as a whole */
    size_t value_max;  /* the maximum for APPEND */
};

/* A key that a server with WAIT_CHANGE pretends to have. It cannot be a user's: on the wire those
 * begin with a slash. */
#define MST_KV_ANNOUNCEMENT "muster.wait_change"
/* The same for a server that serves jobs. */
#define MST_KV_ANNOUNCEMENT_JOB "muster.job"
/* The same for a server whose BARRIER can be used again and forgets participants that leave. */
#define MST_KV_ANNOUNCEMENT_BARRIER "muster.barrier"
/* The same for a server that tells its epochs, which are those of the rounds that it has sealed:
 * it has the key, and `muster.epoch.N` for each epoch N of its own. */
#define MST_KV_ANNOUNCEMENT_EPOCH "muster.epoch"
/* The same for a server that tells a client why it is refused, see wire/refusal.h, once the client
 * has sent this CHECK. */
#define MST_KV_ANNOUNCEMENT_REFUSAL "muster.refusal"

/* A buffer of the engine. Memory beyond MST_KEPT_SIZE_MAX is counted, and freed as soon as
 * possible. */
struct mst__kv_buf {
    struct mst__buf buf;
    size_t charged; /* bytes that are counted, or exempt */
};

struct mst__kv {
    struct mst__slabs slabs; /* small counted allocations */
    struct mst__map map;     /* of struct mst__kv_entry */
    struct mst__kv_limits limits;
    size_t memory_used;
    size_t memory_withheld; /* lost to holes between allocations, as far as known */
    uint64_t memory_freed;  /* total */
    size_t memory_lacked;   /* the size of the last allocation that did not fit; set by the engine,
                               and set back to 0 by its owner */
    size_t keys_count;
    /* Total work: one step per visited object (entry, place, watcher, notice, item), one more per
     * entry created or removed, one per KiB copied, compared or hashed, and one per 4 KiB freed.
     * Callers use it to share the engine among clients. */
    uint64_t steps;
    struct mst__kv_entry *keys;         /* ring of the entries with a value */
    size_t keys_size;                   /* size of a list of them */
    struct mst__kv_client *list_client; /* the client of the current list; NULL = none */
    struct mst__kv_entry *list_next;    /* its next key, and the number of keys left */
    size_t list_left;
    struct mst__kv_client *released_first, *released_last;
    struct mst__kv_buf items;           /* the reply of MULTI_GET and LIST_KEYS */
    struct mst__kv_buf notices;         /* for watchers, see watch.c */
    struct mst__kv_watch *notice_watch; /* the next watcher of the front notice */
    struct mst__kv_client *lost_first;  /* clients that lost a notice */
    struct mst__kv_block *popped;       /* the last QUEUE_POP: its reply borrows the bytes */
    struct mst__kv_entry *sweep_next;   /* the next entry of a sweep; NULL = no sweep */
    struct mst__kv_entry *compact_next; /* the same for compaction */
    bool announces;                     /* CHECK finds the announcements; set by a server */
    uint64_t epoch_first, epoch_end;    /* its epochs: from the first one up to before the end */
};

/* @hash_key is copied. The engine must not be moved: it points to itself. */
void mst__kv_init(struct mst__kv *kv,
                  const struct mst__kv_limits *limits,
                  const uint8_t hash_key[MST_SIPHASH_KEY_SIZE]);

/* All clients have been closed. */
void mst__kv_close(struct mst__kv *kv);

/**
 * Apply @command for @client.
 *
 * @ret_reply is valid on success only; its bytes stay valid as long as @command's and until the
 * next call on @kv. Afterwards the caller takes mst__kv_next_released and mst__kv_next_notice until
 * they are empty, and mst__kv_list_next while mst__kv_is_listing.
 *
 * Returns 0, MST_ETYPE if ADD or BARRIER finds a value that is not a number, MST_ELIMIT or
 * MST_ENOMEM. On error everything is unchanged: keys, waits, watches, promises, memory. The bytes
 * of the previous reply are invalid in any case.
 */
int mst__kv_apply(struct mst__kv *kv,
                  struct mst__kv_client *client,
                  const struct mst__command *command,
                  struct mst__reply *ret_reply);

/* Keep the bytes of a reply: @shared is that of the reply; call before the next call on @kv. They
 * do not change, whatever happens to the key, and count as used memory until the last holder has
 * released them. */
void mst__kv_hold(struct mst__kv *kv, void *shared);
/* A copy of @bytes to be shared in the same way, held by the caller; its bytes in @ret_bytes. NULL
 * if there is no room. */
void *mst__kv_share(struct mst__kv *kv, struct mst_bytes bytes, struct mst_bytes *ret_bytes);
void mst__kv_release(struct mst__kv *kv, void *shared);

/* End the wait of @client as CANCEL_WAIT does, without a reply. */
void mst__kv_cancel_wait(struct mst__kv *kv, struct mst__kv_client *client);

static inline bool mst__kv_is_waiting(const struct mst__kv_client *client)
{
    return client->keys_missing > 0;
}

/* The same in parts: give up one part of a WAIT that was registered in parts. False if there are
 * more. The client is not released any more, and must give up the rest as well. */
bool mst__kv_shed_wait(struct mst__kv *kv, struct mst__kv_client *client);

/* Remove @client. May release other clients and, if it leaves a barrier, make notices: the caller
 * takes both as after mst__kv_apply. */
void mst__kv_client_close(struct mst__kv *kv, struct mst__kv_client *client);

/* Whether a list of keys is being returned. Until it is done, apply no command, close no client
 * that is in a barrier, and do not sweep: the first bytes of the list are the number of keys. */
static inline bool mst__kv_is_listing(const struct mst__kv *kv)
{
    return kv->list_client != NULL;
}

/* The next part of the list that the reply to LIST_KEYS began. Borrowed until the next call on @kv.
 * 0, or MST_ELIMIT or MST_ENOMEM with the list ended. */
int mst__kv_list_next(struct mst__kv *kv, struct mst_bytes *ret_items);

/* Drop the rest of the list. */
void mst__kv_list_end(struct mst__kv *kv);

/* The next client whose WAIT, BARRIER or WAIT_CHANGE is over, each once; NULL if there is none. */
struct mst__kv_client *mst__kv_next_released(struct mst__kv *kv);

/* Whether @key is no longer needed. */
typedef bool mst__kv_is_dead_fn(void *arg, struct mst_bytes key);

/* Begin a sweep from the first key; restarts a current one. */
void mst__kv_sweep_begin(struct mst__kv *kv);

/**
 * Continue the sweep: delete values and queues whose key @is_dead, as DELETE and QUEUE_POP do.
 *
 * @steps bounds the work; a single value may exceed it. Afterwards the caller takes released
 * clients and notices as after mst__kv_apply.
 *
 * Returns false at the end of the sweep.
 */
bool mst__kv_sweep(struct mst__kv *kv, uint64_t steps, mst__kv_is_dead_fn *is_dead, void *arg);

/* Begin to move keys and values together, from the first key. */
void mst__kv_compact_begin(struct mst__kv *kv);

/**
 * Continue: move keys and values out of mostly empty slabs or, with @moves_all, for tests, all that
 * can be moved, so that pages go back to the system. Clients do not notice it.
 *
 * @steps bounds the work; a single value may exceed it. Not while mst__kv_is_busy.
 *
 * Returns false at the end.
 */
bool mst__kv_compact(struct mst__kv *kv, uint64_t steps, bool moves_all);

/* What is left of the memory limit. */
static inline size_t mst__kv_room(const struct mst__kv *kv)
{
    size_t left = kv->limits.memory_max - kv->memory_used;
    return left > kv->memory_withheld ? left - kv->memory_withheld : 0;
}

/* Charge memory of the clients' connections to the same limit; false if there is no room. */
bool mst__kv_charge(struct mst__kv *kv, size_t size);
void mst__kv_discharge(struct mst__kv *kv, size_t size);

enum mst__kv_change {
    MST_KV_UPDATED,
    MST_KV_CREATED,
    MST_KV_DELETED,
    MST_KV_LOST, /* no memory to record a change; the values are empty */
};

struct mst__kv_notice {
    struct mst__kv_client *client;
    bool is_first; /* of the notices of one change, which differ only in the client */
    enum mst__kv_change change;
    struct mst_bytes key;
    struct mst_bytes old_value;
    struct mst_bytes new_value;
};

/* Whether there is a notice to take. */
static inline bool mst__kv_has_notices(const struct mst__kv *kv)
{
    return mst__buf_size(&kv->notices.buf) > 0 || kv->lost_first != NULL;
}

/* Whether notices or a list are pending: the next command must wait. */
static inline bool mst__kv_is_busy(const struct mst__kv *kv)
{
    return mst__kv_has_notices(kv) || mst__kv_is_listing(kv);
}

/* The next notice for a watcher; false if there is none. Borrowed until the next call on @kv.
 * MST_KV_LOST comes once per client, after all others: the client has missed a notice and should be
 * disconnected. */
bool mst__kv_next_notice(struct mst__kv *kv, struct mst__kv_notice *ret_notice);

#endif /* MST_KV_KV_H */
