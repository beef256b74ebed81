/* core/state.h - the shared record of a rendezvous: participants, waiting nodes, heartbeats.
 *
 * Pure data with an owner. All times are microseconds since 1970 in UTC, as in the peers' records.
 * Maps keep the order of insertion; a changed value keeps its place. */
#ifndef MST_CORE_STATE_H
#define MST_CORE_STATE_H

#include <muster/types.h>
#include <stdbool.h>

/* A node: address, process, and handler within the process. */
struct mst__node {
    struct mst_bytes addr; /* UTF-8 */
    int64_t pid;
    int64_t local_id;
};

/* By address as bytes, then pid, then local_id: the order of ranks. <0, 0, >0. */
int mst__node_compare(const struct mst__node *a, const struct mst__node *b);

/* `addr_pid_local_id`, cut off if @ret_size is too small. */
void mst__node_format(const struct mst__node *node, char *ret_text, size_t ret_size);

/* An index into state->members; valid as long as the state. */
typedef uint32_t mst__peer_id;
#define MST_PEER_NONE UINT32_MAX

/* The record of one node. */
struct mst__peer {
    struct mst__node node; /* the state owns its address */
    uint32_t hash;         /* of the node, for the index */
    bool is_participant;
    bool is_waiting;
    bool is_spare;
    bool has_heartbeat;
    bool is_ours; /* a muster node, according to the record; only with a heartbeat */
    int64_t rank;
    int64_t heartbeat_us;
};

/* Members of a map or set, oldest first. */
struct mst__peers {
    mst__peer_id *ids;
    size_t count;
    size_t capacity;
};

/* The form of the record in different releases of torch (docs/protocol.md, "The record"). */
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
    struct mst__text *texts;        /* memory of the addresses; opaque */
    struct mst__peers participants; /* a map to ranks */
    struct mst__peers waiting;      /* a set */
    struct mst__peers spares;       /* a set: the redundancy list */
    struct mst__peers heartbeats;   /* a map to times */
    /* The seal, if a muster node completed the round: the number of participants. 0 = no seal. */
    int64_t sealed_round;
    int64_t sealed_count;
    /* Unknown attributes in the codec's form; preserved in a rewrite. */
    struct mst_buffer extra;
    enum mst__record_dialect dialect;
};

void mst__state_init(struct mst__state *state);
/* Release everything; NULL and half-built states are allowed. The state can be initialised
 * again. */
void mst__state_close(struct mst__state *state);
/* Make @to, which is initialised, equal to @from, with the same ids: 0, or MST_ENOMEM with @to
 * empty. */
int mst__state_copy(struct mst__state *to, const struct mst__state *from);
/* Move everything from @from, which is then as after mst__state_init, to @to, whose content is
 * released. */
void mst__state_move(struct mst__state *to, struct mst__state *from);
/* Equal in content: maps with their order, sets without. Dialect, seal and extra count as well. */
bool mst__state_equal(const struct mst__state *a, const struct mst__state *b);

/* The member of @node, MST_PEER_NONE if it is not in the record. */
mst__peer_id mst__state_find(const struct mst__state *state, const struct mst__node *node);
/* The same, added if necessary (@node is copied): 0, MST_ENOMEM, or MST_ELIMIT beyond
 * MST_MEMBERS_MAX. A new member is in no map or set. */
int mst__state_obtain(struct mst__state *state, const struct mst__node *node, mst__peer_id *ret_id);

/* Put a member into a map or set; an existing one keeps its place and gets the new value. 0, or
 * MST_ENOMEM with nothing changed. */
int mst__state_put_participant(struct mst__state *state, mst__peer_id id, int64_t rank);
int mst__state_put_waiting(struct mst__state *state, mst__peer_id id);
int mst__state_put_spare(struct mst__state *state, mst__peer_id id);
int mst__state_put_heartbeat(struct mst__state *state, mst__peer_id id, int64_t time_us);

/* Mark a member that has a heartbeat as a muster node. */
void mst__state_mark(struct mst__state *state, mst__peer_id id);

/* Remove a member; returns whether it was there. The mark is removed with the heartbeat. */
bool mst__state_drop_participant(struct mst__state *state, mst__peer_id id);
bool mst__state_drop_waiting(struct mst__state *state, mst__peer_id id);
bool mst__state_drop_spare(struct mst__state *state, mst__peer_id id);
bool mst__state_drop_heartbeat(struct mst__state *state, mst__peer_id id);

/* Number the participants by mst__node_compare, from 0. 0 or MST_ENOMEM, then unchanged. */
int mst__state_assign_ranks(struct mst__state *state);

#endif /* MST_CORE_STATE_H */
