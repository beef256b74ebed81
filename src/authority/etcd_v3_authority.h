/* authority/etcd_v3_authority.h - the authority machine, fed from the keys of an etcd.
 *
 * It makes no requests: stored keys go in, keys to write come out. The holder of the oldest key has
 * one of these. It is built from the stored keys (build), follows the keys of the nodes (event),
 * and returns the wanted content of `round` (wants) and letters to nodes. If a write fails, or its
 * result is unknown, it is built anew.
 *
 * A key that disappears means a lost node, unless the node has announced that it leaves. etcd's
 * leases judge silence, so the machine's own clocks for that are off. A new process of a node
 * has a key of its own; the revision of its creation is its incarnation. It keeps that when it
 * enters again, so that an old process never replaces a newer one. The create revision of a key
 * is also the machine's session number: of two keys of one process the newer one counts.
 * core/authority_keep.h says how keys of several processes and a stored round are combined. */
#ifndef MST_AUTHORITY_ETCD_V3_AUTHORITY_H
#define MST_AUTHORITY_ETCD_V3_AUTHORITY_H

#include "authority/etcd_v3_keys.h"
#include "core/authority_keep.h"
#include "etcd/v3.h"

/* A letter and its receiver. */
struct mst__etcd_v3_outgoing {
    uint64_t session;
    int64_t lease; /* the letter expires with its receiver */
    struct mst__etcd_v3_letter letter;
};

/* Plain data; it owns its fields, except @machine. */
struct mst__etcd_v3_authority {
    bool is_built;
    struct mst__authority machine;   /* read only */
    struct mst__map entries;         /* key of a node to its state */
    struct mst__map ranks;           /* session to rank, in the machine's current round */
    struct mst__etcd_v3_seat *seats; /* the members of that round when it was sealed, by rank */
    uint64_t *seats_created;         /* create revisions of their keys; 0 = the key is gone */
    uint32_t seats_count;
    struct mst__etcd_v3_outgoing *letters; /* to write, oldest first */
    size_t letters_count;
    size_t letters_capacity;
};

/* The stored keys, at one revision. */
struct mst__etcd_v3_stored {
    int64_t revision;
    const struct mst__v3_kvs *nodes;   /* oldest first */
    const struct mst__v3_kvs *letters; /* of a sharded round; else NULL */
    const struct mst__etcd_v3_round *round;
};

void mst__etcd_v3_authority_init(struct mst__etcd_v3_authority *authority);
void mst__etcd_v3_authority_close(struct mst__etcd_v3_authority *authority);

/**
 * Build the authority from @stored; earlier state is dropped.
 *
 * Returns 0 or MST_ENOMEM, after which nothing is built.
 */
int mst__etcd_v3_authority_build(struct mst__etcd_v3_authority *authority,
                                 const struct mst__etcd_v3_stored *stored,
                                 int64_t now_us,
                                 struct mst_err *reterr);

/* The key of a node was put or deleted. Returns 0, or MST_ENOMEM: then build it anew. */
int mst__etcd_v3_authority_event(struct mst__etcd_v3_authority *authority,
                                 const struct mst__v3_event *event,
                                 int64_t now_us,
                                 struct mst_err *reterr);

/* Time has passed. @ret_due_us: when to call again, on the clock of @now_us. Returns 0,
 * MST_ENOMEM. */
int mst__etcd_v3_authority_tick(struct mst__etcd_v3_authority *authority,
                                int64_t now_us,
                                int64_t *ret_due_us,
                                struct mst_err *reterr);

/**
 * Whether `round`, now @stored, must change, and to what.
 *
 * Returns 0 or MST_ENOMEM. @ret_round is written if @ret_wants is true, and then belongs to the
 * caller; for a sharded round it has no seats, see mst__etcd_v3_authority_seat.
 */
int mst__etcd_v3_authority_wants(struct mst__etcd_v3_authority *authority,
                                 const struct mst__etcd_v3_round *stored,
                                 bool *ret_wants,
                                 struct mst__etcd_v3_round *ret_round);

/* The member with @rank in the machine's current round. */
const struct mst__etcd_v3_seat *mst__etcd_v3_authority_seat(
    const struct mst__etcd_v3_authority *authority,
    uint32_t rank);

#endif /* MST_AUTHORITY_ETCD_V3_AUTHORITY_H */
