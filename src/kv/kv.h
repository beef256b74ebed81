/* kv/kv.h - the key-value engine: a map, queues, and the clients that wait for keys.
 *
 * Pure: a command goes in, a reply comes out, and the clients whose waiting ended are handed out
 * one by one. The engine knows nothing of sockets; a client is whoever applies commands. Semantics
 * are those of c10d stores (docs/protocol.md), without their defects:
 *   - COMPARE_SET that creates a key wakes its waiters;
 *   - a second WAIT replaces the first;
 *   - a push wakes one waiter that is still there, and an item is never left behind asleep;
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

/* What those in a line wait for. Each has a line of its own, so that whoever is woken is found
 * without a look at the others. */
enum mst__kv_line {
    MST_KV_LINE_KEY,     /* the key, see WAIT */
    MST_KV_LINE_BARRIER, /* the last one to come, see BARRIER */
    MST_KV_LINE_CHANGE,  /* another value, see WAIT_CHANGE */
};
#define MST_KV_LINE_COUNT (MST_KV_LINE_CHANGE + 1)

/* A client's place in a line of those who wait for a key. */
struct mst__kv_place {
    struct mst__kv_place *prev, *next; /* a ring */
    struct mst__kv_entry *entry;       /* NULL when the key has come */
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

/* What the engine knows of a client. Memory is the caller's: mst__kv_client_init, and
 * mst__kv_client_close before it goes away. */
struct mst__kv_client {
    struct mst__kv_place place;     /* in a wait for one thing */
    struct mst__kv_part *parts;     /* of a wait for several keys */
    size_t keys_missing;            /* places whose key has not come, and one more if it is held */
    struct mst__kv_entry *promised; /* woken by a push to this queue, has not come for it yet */
    struct mst__kv_watch *watches;
    size_t watches_count;
    struct mst__kv_client *released_prev, *released_next;
    struct mst__kv_client *lost_prev, *lost_next;
    struct mst__kv_entry *lost; /* lost a notice of this watched key; NULL = none */
    bool released;              /* in the list of released clients */
    bool is_held;               /* not all of its wait has been asked for, or given up */
};

void mst__kv_client_init(struct mst__kv_client *client);

struct mst__kv_limits {
    size_t memory_max; /* keys, values, queues, waiting clients */
    size_t reply_max;  /* MULTI_GET and LIST_KEYS */
    size_t part_max;   /* of a list, at which it is handed out in parts; 0 = as a whole */
    size_t value_max;  /* what APPEND may grow a value to */
};

/* A key that a server seems to have if it knows WAIT_CHANGE. It cannot be a user's: on the wire
 * those begin with a slash. */
#define MST_KV_ANNOUNCEMENT "muster.wait_change"
/* The same for a server that is the authority of jobs. */
#define MST_KV_ANNOUNCEMENT_JOB "muster.job"

/* A buffer of the engine's own. What it has beyond MST_KEPT_SIZE_MAX is counted, and freed as soon
 * as it can be. */
struct mst__kv_buf {
    struct mst__buf buf;
    size_t charged; /* bytes that are counted, or need not be */
};

struct mst__kv {
    struct mst__slabs slabs; /* whatever is small and counted */
    struct mst__map map;     /* of struct mst__kv_entry */
    struct mst__kv_limits limits;
    size_t memory_used;
    size_t memory_withheld; /* lost to holes between allocations, as far as somebody knows */
    uint64_t memory_freed;  /* ever */
    size_t keys_count;
    /* What has been done, ever: one step per object looked at (entry, place, watcher, notice,
     * item), one more per entry made or removed, one per KiB copied, compared or hashed, and one
     * per 4 KiB freed. Who shares the engine sees from it when a client has had its turn. */
    uint64_t steps;
    struct mst__kv_entry *keys;         /* the entries with a value, a ring */
    size_t keys_size;                   /* of the list of them */
    struct mst__kv_client *list_client; /* whose list is being made; NULL = nobody's */
    struct mst__kv_entry *list_next;    /* what it goes on with, and how many are left */
    size_t list_left;
    struct mst__kv_client *released_first, *released_last;
    struct mst__kv_buf items;           /* the reply of MULTI_GET and LIST_KEYS */
    struct mst__kv_buf notices;         /* for watchers, see watch.c */
    struct mst__kv_watch *notice_watch; /* whom the front notice goes to next */
    struct mst__kv_client *lost_first;  /* clients that lost a notice */
    struct mst__kv_block *popped;       /* the last QUEUE_POP: its reply borrows the bytes */
    struct mst__kv_entry *sweep_next;   /* the entry that a sweep goes on with; NULL = no sweep */
    struct mst__kv_entry *compact_next; /* the same for moving them together */
    bool announces;                     /* a CHECK of an announcement finds it; set by a server */
};

/* @hash_key is copied. The engine stays where it is: it has pointers to itself. */
void mst__kv_init(struct mst__kv *kv,
                  const struct mst__kv_limits *limits,
                  const uint8_t hash_key[MST_SIPHASH_KEY_SIZE]);

/* All clients have been closed. */
void mst__kv_close(struct mst__kv *kv);

/**
 * Apply @command for @client.
 *
 * @ret_reply means something on success only; its bytes stay valid as long as @command's and until
 * the next call on @kv. Afterwards the caller takes mst__kv_next_released and mst__kv_next_notice
 * until they are empty, and mst__kv_list_next while mst__kv_is_listing.
 *
 * Returns 0, MST_ETYPE when ADD or BARRIER meets a value that is no number, MST_ELIMIT or
 * MST_ENOMEM. On error everything is as it was: keys, waits, watches, promises, memory. What the
 * reply before it borrowed is gone in any case.
 */
int mst__kv_apply(struct mst__kv *kv,
                  struct mst__kv_client *client,
                  const struct mst__command *command,
                  struct mst__reply *ret_reply);

/* Keep the bytes of a reply: @shared is the reply's, held before the next call on @kv. They stay as
 * they are, whatever becomes of the key, and count as used memory until the last one who holds them
 * has released them. */
void mst__kv_hold(struct mst__kv *kv, void *shared);
/* A copy of @bytes to be shared in the same way, which the caller holds; its bytes in @ret_bytes.
 * NULL when there is no room. */
void *mst__kv_share(struct mst__kv *kv, struct mst_bytes bytes, struct mst_bytes *ret_bytes);
void mst__kv_release(struct mst__kv *kv, void *shared);

/* Forget what @client waits for, as CANCEL_WAIT does, without a reply. */
void mst__kv_cancel_wait(struct mst__kv *kv, struct mst__kv_client *client);

static inline bool mst__kv_is_waiting(const struct mst__kv_client *client)
{
    return client->keys_missing > 0;
}

/* The same bit by bit: forget one part of a WAIT that was asked for in parts. False when there are
 * more; who waits is not released any more and gives up the rest, too. */
bool mst__kv_shed_wait(struct mst__kv *kv, struct mst__kv_client *client);

/* Forget @client altogether. May release other clients and, when it leaves a barrier, leave
 * notices: the caller takes both afterwards as it does after mst__kv_apply. */
void mst__kv_client_close(struct mst__kv *kv, struct mst__kv_client *client);

/* Whether a list of keys is being made. Until it is done no command is applied, no client closed
 * that is in a barrier, and nothing swept: its first bytes say how many keys there are. */
static inline bool mst__kv_is_listing(const struct mst__kv *kv)
{
    return kv->list_client != NULL;
}

/* The next part of the list that is being made, which the reply to LIST_KEYS has begun. Borrowed
 * until the next call on @kv. 0, or MST_ELIMIT or MST_ENOMEM and the list has ended. */
int mst__kv_list_next(struct mst__kv *kv, struct mst_bytes *ret_items);

/* Nobody wants the rest of the list. */
void mst__kv_list_end(struct mst__kv *kv);

/* The next client whose WAIT, BARRIER or WAIT_CHANGE is over, each once; NULL if there is none. */
struct mst__kv_client *mst__kv_next_released(struct mst__kv *kv);

/* Whether nobody needs what is under @key any more. */
typedef bool mst__kv_is_dead_fn(void *arg, struct mst_bytes key);

/* Begin to sweep, from the first key on, whether or not a sweep is under way. */
void mst__kv_sweep_begin(struct mst__kv *kv);

/**
 * Go on: delete the values and queues under keys that @is_dead, as DELETE and QUEUE_POP do.
 *
 * @steps bounds the work; a single value may exceed it. Afterwards the caller takes what was
 * released and the notices as it does after mst__kv_apply.
 *
 * Returns false at the end of the sweep.
 */
bool mst__kv_sweep(struct mst__kv *kv, uint64_t steps, mst__kv_is_dead_fn *is_dead, void *arg);

/* Begin to move keys and values together, from the first key on. */
void mst__kv_compact_begin(struct mst__kv *kv);

/**
 * Go on: move keys and values out of slabs that are mostly empty, or, with @moves_all, which is for
 * tests, all that can be moved, so that the slabs' pages go back to the system. Nobody else notices
 * anything of it.
 *
 * @steps bounds the work; a single value may exceed it. Not while mst__kv_is_busy.
 *
 * Returns false at the end.
 */
bool mst__kv_compact(struct mst__kv *kv, uint64_t steps, bool moves_all);

/* Count memory that belongs to the clients' connections under the same limit; false when there is
 * no room. */
bool mst__kv_charge(struct mst__kv *kv, size_t size);
void mst__kv_discharge(struct mst__kv *kv, size_t size);

enum mst__kv_change {
    MST_KV_UPDATED,
    MST_KV_CREATED,
    MST_KV_DELETED,
    MST_KV_LOST, /* there was no memory to record a change; the values are empty */
};

struct mst__kv_notice {
    struct mst__kv_client *client;
    bool is_first; /* of the notices of one change, which differ in the client only */
    enum mst__kv_change change;
    struct mst_bytes key;
    struct mst_bytes old_value;
    struct mst_bytes new_value;
};

/* Whether there is a notice to be taken. */
static inline bool mst__kv_has_notices(const struct mst__kv *kv)
{
    return mst__buf_size(&kv->notices.buf) > 0 || kv->lost_first != NULL;
}

/* Whether somebody is still to get what was there before the next command: it has to wait. */
static inline bool mst__kv_is_busy(const struct mst__kv *kv)
{
    return mst__kv_has_notices(kv) || mst__kv_is_listing(kv);
}

/* The next notice for a watcher; false when there is none. Borrowed until the next call on @kv.
 * MST_KV_LOST comes once per client, behind all others: it has missed something and should be cut
 * off. */
bool mst__kv_next_notice(struct mst__kv *kv, struct mst__kv_notice *ret_notice);

#endif /* MST_KV_KV_H */
