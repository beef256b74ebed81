/* authority/etcd_v3_authority.h - the authority machine, fed from the keys of an etcd.
 *
 * Nothing here talks to anybody: what was read goes in, what is to be written comes out. The holder
 * of the oldest key has one of these. It is built from what is stored (build), follows the keys of
 * the nodes (event) and says what `round` should be (wants) and whom to write letters to. When
 * something could not be written, or nobody knows whether it was, it is built anew.
 *
 * That a key goes means that its node is lost, unless it has said that it leaves: etcd's leases
 * judge silence, so the machine's own clocks for that are off. A new process of a node has a key
 * of its own, created later, which makes the revision of its creation its incarnation; it keeps
 * that when it has to enter again, so that an old process does not take the place of a newer
 * one. The create revision of a key is also the machine's number of the session: of two keys of one
 * process the newer one counts. What is made of keys of several processes, and of a round that is
 * stored, is said in core/authority_keep.h. */
#ifndef MST_AUTHORITY_ETCD_V3_AUTHORITY_H
#define MST_AUTHORITY_ETCD_V3_AUTHORITY_H

#include "authority/etcd_v3_keys.h"
#include "core/authority_keep.h"
#include "etcd/v3.h"

/* Somebody to write to. */
struct mst__etcd_v3_outgoing {
    uint64_t session;
    int64_t lease; /* the letter goes with its receiver */
    struct mst__etcd_v3_letter letter;
};

/* Plain data; the fields but @machine are its own. */
struct mst__etcd_v3_authority {
    bool is_built;
    struct mst__authority machine;   /* to be read */
    struct mst__map entries;         /* key of a node to what is known of it */
    struct mst__map ranks;           /* session to rank, in the machine's current round */
    struct mst__etcd_v3_seat *seats; /* who sat in that round when it was sealed, by rank */
    uint64_t *seats_created;         /* their keys' create revisions; 0 = the key is gone */
    uint32_t seats_count;
    struct mst__etcd_v3_outgoing *letters; /* to be written, oldest first */
    size_t letters_count;
    size_t letters_capacity;
};

/* What is stored, at one revision. */
struct mst__etcd_v3_stored {
    int64_t revision;
    const struct mst__v3_kvs *nodes;   /* oldest first */
    const struct mst__v3_kvs *letters; /* of a sharded round; else NULL */
    const struct mst__etcd_v3_round *round;
};

void mst__etcd_v3_authority_init(struct mst__etcd_v3_authority *authority);
void mst__etcd_v3_authority_close(struct mst__etcd_v3_authority *authority);

/**
 * Begin with what is stored; what was before is forgotten.
 *
 * Returns 0 or MST_ENOMEM; then nothing is built.
 */
int mst__etcd_v3_authority_build(struct mst__etcd_v3_authority *authority,
                                 const struct mst__etcd_v3_stored *stored,
                                 int64_t now_us,
                                 struct mst_err *reterr);

/* The key of a node was put or has gone. 0 or MST_ENOMEM: it has to be built anew. */
int mst__etcd_v3_authority_event(struct mst__etcd_v3_authority *authority,
                                 const struct mst__v3_event *event,
                                 int64_t now_us,
                                 struct mst_err *reterr);

/* Time has passed. When something is due next, on the clock of @now_us. 0, MST_ENOMEM. */
int mst__etcd_v3_authority_tick(struct mst__etcd_v3_authority *authority,
                                int64_t now_us,
                                int64_t *ret_due_us,
                                struct mst_err *reterr);

/**
 * Whether `round`, which is @stored, should be something else, and what.
 *
 * Returns 0 or MST_ENOMEM. @ret_round is written when @ret_wants is true, and then the caller's; of
 * a sharded round it has no seats, see mst__etcd_v3_authority_seat.
 */
int mst__etcd_v3_authority_wants(struct mst__etcd_v3_authority *authority,
                                 const struct mst__etcd_v3_round *stored,
                                 bool *ret_wants,
                                 struct mst__etcd_v3_round *ret_round);

/* Who has @rank in the machine's current round. */
const struct mst__etcd_v3_seat *mst__etcd_v3_authority_seat(
    const struct mst__etcd_v3_authority *authority,
    uint32_t rank);

#endif /* MST_AUTHORITY_ETCD_V3_AUTHORITY_H */
