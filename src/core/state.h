/* core/state.h - the shared record of a rendezvous: who takes part, who waits, when last heard.
 *
 * Pure data with an owner. All times are microseconds since 1970 in UTC, as in the peers' records.
 * Maps keep the order in which their keys came; a changed value keeps its place. */
#ifndef MST_CORE_STATE_H
#define MST_CORE_STATE_H

#include <muster/types.h>
#include <stdbool.h>

/* A node: where it is, its process, and which handler of that process. */
struct mst__node {
    struct mst_bytes addr; /* UTF-8 */
    int64_t pid;
    int64_t local_id;
};

/* By address as bytes, then pid, then local_id: the order of ranks. <0, 0, >0. */
int mst__node_compare(const struct mst__node *a, const struct mst__node *b);

/* `addr_pid_local_id`, cut off when @ret_size is too small. */
void mst__node_format(const struct mst__node *node, char *ret_text, size_t ret_size);

/* An index into state->members; valid as long as the state. */
typedef uint32_t mst__peer_id;
#define MST_PEER_NONE UINT32_MAX

/* What a record says of one node. */
struct mst__peer {
    struct mst__node node; /* its address is the state's own */
    uint32_t hash;         /* of the node, for the index */
    bool is_participant;
    bool is_waiting;
    bool is_spare;
    bool has_heartbeat;
    bool is_ours; /* the record says that it is a muster node; only with a heartbeat */
    int64_t rank;
    int64_t heartbeat_us;
};

/* Members of a map or set, oldest first. */
struct mst__peers {
    mst__peer_id *ids;
    size_t count;
    size_t capacity;
};

/* How peers of different releases write the record (docs/protocol.md, "The record"). */
enum mst__record_dialect {
    MST_RECORD_D1 = 1, /* torch 1.9 to 1.13: `fqdn`, no spares, naive times */
    MST_RECORD_D2 = 2, /* torch 2.0 to 2.2: `addr` */
    MST_RECORD_D3 = 3, /* torch 2.3 to 2.5: spares */
    MST_RECORD_D4 = 4, /* torch from 2.6: times with a zone */
};

struct mst__text;

struct mst__state {
    int64_t round;
    bool complete;
    bool closed;
    bool has_deadline;
    int64_t deadline_us; /* end of the last call */
    struct mst__peer *members;
    size_t members_count;
    size_t members_capacity;
    uint32_t *slots;                /* index of the members by hash: id + 1, 0 = free */
    size_t slots_count;             /* a power of two, or 0 */
    struct mst__text *texts;        /* where the addresses are; opaque */
    struct mst__peers participants; /* a map to ranks */
    struct mst__peers waiting;      /* a set */
    struct mst__peers spares;       /* a set: the redundancy list */
    struct mst__peers heartbeats;   /* a map to times */
    /* What the seal says, if a muster node completed the round: how many took part. 0 = no seal. */
    int64_t sealed_round;
    int64_t sealed_count;
    /* Attributes that we do not know, as the codec found them; carried through a rewrite. */
    struct mst_buffer extra;
    enum mst__record_dialect dialect;
};

void mst__state_init(struct mst__state *state);
/* Release everything; NULL and half-built states are fine. The state can be initialised again. */
void mst__state_close(struct mst__state *state);
/* Make @to, which is initialised, equal to @from, with the same ids: 0 or MST_ENOMEM, then @to is
 * empty. */
int mst__state_copy(struct mst__state *to, const struct mst__state *from);
/* Take everything out of @from, which is as after mst__state_init then, into @to, whose content is
 * released. */
void mst__state_move(struct mst__state *to, struct mst__state *from);
/* Equal in content: maps with their order, sets without. Dialect, seal and extra count too. */
bool mst__state_equal(const struct mst__state *a, const struct mst__state *b);

/* The member for @node, MST_PEER_NONE if the record does not know it. */
mst__peer_id mst__state_find(const struct mst__state *state, const struct mst__node *node);
/* The same, entered if need be (@node is copied): 0, MST_ENOMEM, or MST_ELIMIT beyond
 * MST_MEMBERS_MAX. An entered member is nothing yet. */
int mst__state_obtain(struct mst__state *state, const struct mst__node *node, mst__peer_id *ret_id);

/* Put a member into a map or set; one that is there keeps its place and gets the new value. 0 or
 * MST_ENOMEM, then nothing has changed. */
int mst__state_put_participant(struct mst__state *state, mst__peer_id id, int64_t rank);
int mst__state_put_waiting(struct mst__state *state, mst__peer_id id);
int mst__state_put_spare(struct mst__state *state, mst__peer_id id);
int mst__state_put_heartbeat(struct mst__state *state, mst__peer_id id, int64_t time_us);

/* Say that a member, which has a heartbeat, is a muster node. */
void mst__state_mark(struct mst__state *state, mst__peer_id id);

/* Take a member out again; whether it was there. The mark goes with the heartbeat. */
bool mst__state_drop_participant(struct mst__state *state, mst__peer_id id);
bool mst__state_drop_waiting(struct mst__state *state, mst__peer_id id);
bool mst__state_drop_spare(struct mst__state *state, mst__peer_id id);
bool mst__state_drop_heartbeat(struct mst__state *state, mst__peer_id id);

/* Number the participants by mst__node_compare, from 0. 0 or MST_ENOMEM, then unchanged. */
int mst__state_assign_ranks(struct mst__state *state);

#endif /* MST_CORE_STATE_H */
