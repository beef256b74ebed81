/* sim/legacy/legacy.h - the legacy machine in virtual time: a model of etcd's v2 keys, nodes
 * with the machine, peers that behave like torch's handler, and an adversary between them. */
#ifndef MST_SIM_LEGACY_H
#define MST_SIM_LEGACY_H

#include <stdio.h>

#include "base/prng.h"
#include "core/legacy.h"
#include "sim/sim.h"

#define MST_SIM_LEGACY_NODES_MAX 8
#define MST_SIM_LEGACY_HISTORY 1000

#define MST_SIM_LEGACY_FREEZE_US_MAX INT64_C(14000000)
/* After the faults have stopped, the last late message arrives by then. */
#define MST_SIM_LEGACY_LATE_US INT64_C(7000000)

/* --- requests and answers --- */

enum mst__sim_v2_verb {
    MST_SIM_V2_GET,
    MST_SIM_V2_PUT,
    MST_SIM_V2_DELETE,
    MST_SIM_V2_LIST,
    MST_SIM_V2_WAIT,      /* one key */
    MST_SIM_V2_WAIT_TREE, /* all keys, as the peers do below rdzv */
};

/* The holder of the pointer owns it. */
struct mst__sim_v2_request {
    uint32_t node;
    uint32_t life;
    uint64_t serial;
    enum mst__sim_v2_verb verb;
    char *key;
    enum mst__legacy_if condition;
    uint64_t previous_index;
    bool has_previous; /* compare with the document @previous, because the peers compare texts */
    struct mst__legacy_doc previous;
    bool has_doc;
    struct mst__legacy_doc doc;
    char value[64];
    int64_t ttl_s;
    bool is_dir;
    bool is_refresh;
    uint64_t from_index;
};

struct mst__sim_v2_answer {
    int code;
    uint64_t index;
    uint64_t modified;
    bool has_doc;
    struct mst__legacy_doc doc;
    char value[64];
    struct mst__legacy_entry *entries; /* names and values are owned */
    size_t entry_count;
};

struct mst__sim_v2_request *mst__sim_v2_request_new(void);
void mst__sim_v2_request_free(struct mst__sim_v2_request *request);
void mst__sim_v2_answer_free(struct mst__sim_v2_answer *answer);

/* --- the model of etcd --- */

struct mst__sim_v2_key {
    char *key;
    bool is_dir;
    bool has_doc;
    struct mst__legacy_doc doc;
    char value[64];
    bool has_ttl;
    int64_t expires_us;
    uint64_t modified;
};

struct mst__sim_v2_past {
    uint64_t index;
    char *key;
    bool is_gone;
    bool is_silent; /* a refresh: it takes an index and wakes no watcher */
    bool has_doc;
    struct mst__legacy_doc doc;
};

struct mst__sim_v2_watch {
    struct mst__sim_v2_request *request;
};

struct mst__sim_v2 {
    struct mst__sim_v2_key *keys;
    size_t count;
    uint64_t index;
    struct mst__sim_v2_past past[MST_SIM_LEGACY_HISTORY]; /* by index, as a ring */
    struct mst__sim_v2_watch *watches;
    size_t watch_count;
};

struct mst__sim_legacy;

void mst__sim_v2_close(struct mst__sim_v2 *v2);
/* Execute @request, which is taken; the answer is sent now, or when a watch has news. */
void mst__sim_v2_serve(struct mst__sim_legacy *sim, struct mst__sim_v2_request *request);
/* Remove expired keys. */
void mst__sim_v2_expire(struct mst__sim_legacy *sim);
/* The document, or NULL. */
const struct mst__legacy_doc *mst__sim_v2_doc(const struct mst__sim_legacy *sim);
/* When it was last written; 0 = never. */
uint64_t mst__sim_v2_doc_index(const struct mst__sim_legacy *sim);
/* Drop all connections; watchers are told. */
void mst__sim_v2_hangup(struct mst__sim_legacy *sim);

/* --- nodes --- */

enum mst__sim_legacy_app {
    MST_SIM_LEGACY_DOWN,
    MST_SIM_LEGACY_JOINING,
    MST_SIM_LEGACY_HOLDING,
    MST_SIM_LEGACY_PAUSED, /* between two joins */
    MST_SIM_LEGACY_ENDED,  /* told that it is closed */
};

/* The position of a peer in its barrier. */
enum mst__sim_torch_at {
    MST_TORCH_IDLE,
    MST_TORCH_INIT,
    MST_TORCH_COUNTER,
    MST_TORCH_CLAIM,
    MST_TORCH_DIR,
    MST_TORCH_OPEN,
    MST_TORCH_DISPATCH,
    MST_TORCH_LATER_WAIT, /* waits for a change, then LATER */
    MST_TORCH_SLEEP,
    MST_TORCH_JOIN_READ,
    MST_TORCH_JOIN_SWAP,
    MST_TORCH_CALL_READ,
    MST_TORCH_CALL_SWAP,
    MST_TORCH_CALL_WAIT,
    MST_TORCH_FROZEN_READ,
    MST_TORCH_FROZEN_WAIT,
    MST_TORCH_CONFIRM_READ,
    MST_TORCH_CONFIRM_KEY,
    MST_TORCH_CONFIRM_SWAP,
    MST_TORCH_FINAL_READ,
    MST_TORCH_FINAL_WAIT,
    MST_TORCH_ANNOUNCE_READ,
    MST_TORCH_ANNOUNCE_SWAP,
    MST_TORCH_FREE_READ,
    MST_TORCH_FREE_LIST,
    MST_TORCH_FREE_DROP,
    MST_TORCH_FREE_WAIT,
    MST_TORCH_HOLD, /* polls for waiting nodes */
};

struct mst__sim_torch {
    enum mst__sim_torch_at at;
    enum mst__sim_torch_at then; /* after a sleep */
    int64_t deadline_us;
    int64_t version;
    int64_t rank;
    int64_t world;
    int64_t call_us; /* the end of the last call */
    uint64_t index;  /* X-Etcd-Index of the last answer, and of the counter */
    int64_t counter;
    struct mst__legacy_doc doc; /* as last read */
    bool is_alive;              /* the thread that refreshes the rank key */
    uint64_t beat_timer;
};

struct mst__sim_legacy_node {
    uint32_t index;
    uint32_t life;
    bool is_torch;
    bool is_odd; /* with other limits */
    bool has_machine;
    enum mst__sim_legacy_app app;
    enum mst__legacy_operation operation;
    struct mst__legacy machine;
    struct mst__sim_torch torch;
    enum mst__legacy_effect_kind effect; /* the effect under way */
    uint64_t serial;                     /* of the request, or of the timer */
    bool wants_cancel;
    bool wants_next;  /* as soon as the current operation ends */
    bool wants_close; /* the same */
    bool wants_leave;
    int64_t began_us;
    int64_t busy_us; /* the second in which busy requests were sent */
    uint32_t busy_count;
    int64_t version; /* of its current or last round */
    int64_t rank;
    int64_t world;
    int64_t frozen_us; /* stopped until then */
    int64_t woken_us;  /* when events reach it that came while it was stopped */
    int64_t cut_us;    /* off the network until then */
};

/* --- the world --- */

struct mst__sim_legacy_plan {
    uint32_t nodes;
    uint32_t torch; /* the last ones */
    bool has_odd;
    int64_t nodes_min, nodes_max;
    int64_t last_call_us;
    int64_t join_us;
    int64_t delay_us_max;
    uint32_t lost_ppm; /* answers, and requests */
    uint32_t slow_ppm;
    int64_t fault_us; /* mean time between faults */
    uint32_t close_ppm;
    int64_t active_us;
    bool has_leaver;  /* at the end, a node leaves the round */
    bool is_long;     /* and the job works for hours */
    int64_t bound_us; /* time for the group to form after the faults */
};

enum mst__sim_legacy_kind {
    MST_SIM_LEGACY_ARRIVE,  /* a request at etcd */
    MST_SIM_LEGACY_ANSWER,  /* an answer at the node */
    MST_SIM_LEGACY_GIVE_UP, /* the node stops waiting for the answer */
    MST_SIM_LEGACY_REFUSED, /* etcd was down */
    MST_SIM_LEGACY_TIMER,
    MST_SIM_LEGACY_BEAT, /* of a peer's thread */
    MST_SIM_LEGACY_START,
    MST_SIM_LEGACY_EXPIRE,
    MST_SIM_LEGACY_FAULT,
    MST_SIM_LEGACY_CALM,
    MST_SIM_LEGACY_LOOK, /* check whether the group has formed */
};

struct mst__sim_legacy_event {
    int64_t time_us;
    uint64_t order;
    enum mst__sim_legacy_kind kind;
    uint32_t node;
    uint32_t life;
    uint64_t serial;
    struct mst__sim_v2_request *request;
    struct mst__sim_v2_answer *answer;
};

/* A round, by the results of its members. */
struct mst__sim_legacy_round {
    int64_t version;
    int64_t world;
    uint32_t ranks[MST_SIM_LEGACY_NODES_MAX + 64]; /* node + 1 */
};

/* What happens after the faults. */
enum mst__sim_legacy_part {
    MST_SIM_LEGACY_FORMING,
    MST_SIM_LEGACY_RESTING,
    MST_SIM_LEGACY_WORKING, /* for hours */
    MST_SIM_LEGACY_AGAIN,   /* all nodes enter again */
    MST_SIM_LEGACY_LEAVING, /* one of them leaves */
};

struct mst__sim_legacy {
    struct mst__sim_legacy_plan plan;
    struct mst__prng prng;
    int64_t now_us;
    struct mst__sim_legacy_event *events; /* a heap */
    size_t event_count, event_capacity;
    uint64_t order;
    struct mst__sim_v2 v2;
    struct mst__sim_legacy_node nodes[MST_SIM_LEGACY_NODES_MAX];
    uint64_t serials;
    int64_t down_us; /* etcd refuses until then */
    bool is_calm;
    bool is_over;
    int64_t calm_us;
    int64_t gave_up_us; /* when the join timeout of a node was last over, after the faults */
    enum mst__sim_legacy_part part;
    int64_t since_us; /* when it began */
    uint32_t leaver;
    int64_t leave_version; /* the round that it had to leave */
    int64_t final_version; /* the last one that was stored */
    bool is_closed;
    struct mst__legacy_doc before; /* the stored document */
    struct mst__sim_legacy_round *rounds;
    size_t round_count;
    FILE *history;
    struct mst__sim_stats stats;
    const char *rule;
    char broken[400];
};

/* As mst__sim_world_run. */
bool mst__sim_legacy_run(struct mst__sim_legacy *ret_sim, uint64_t seed, FILE *history);
void mst__sim_legacy_close(struct mst__sim_legacy *sim);

void mst__sim_legacy_break(struct mst__sim_legacy *sim, const char *rule, const char *format, ...)
    MST_PRINTF(3, 4);
void mst__sim_legacy_say(struct mst__sim_legacy *sim, uint32_t node, const char *format, ...)
    MST_PRINTF(3, 4);
int64_t mst__sim_legacy_below(struct mst__sim_legacy *sim, int64_t bound);
void mst__sim_legacy_after(struct mst__sim_legacy *sim,
                           int64_t delay_us,
                           struct mst__sim_legacy_event event);
/* Send @answer, which is taken, to the sender of @request. */
void mst__sim_legacy_reply(struct mst__sim_legacy *sim,
                           const struct mst__sim_v2_request *request,
                           struct mst__sim_v2_answer *answer);
/* Send @request, which is taken, for @node. */
void mst__sim_legacy_send(struct mst__sim_legacy *sim,
                          struct mst__sim_legacy_node *node,
                          struct mst__sim_v2_request *request);
void mst__sim_legacy_timer(struct mst__sim_legacy *sim,
                           struct mst__sim_legacy_node *node,
                           int64_t until_us);

/* The document was written; NULL = deleted. */
void mst__sim_legacy_stored(struct mst__sim_legacy *sim,
                            const struct mst__sim_v2_request *request,
                            const struct mst__legacy_doc *doc);
/* @node has got a round. */
void mst__sim_legacy_told(struct mst__sim_legacy *sim,
                          struct mst__sim_legacy_node *node,
                          int64_t version,
                          int64_t rank,
                          int64_t world);

/* An operation to enter a round has ended without one. */
void mst__sim_legacy_gave_up(struct mst__sim_legacy *sim, const struct mst__sim_legacy_node *node);
/* @key is about to expire. */
void mst__sim_legacy_expired(struct mst__sim_legacy *sim, const struct mst__sim_v2_key *key);

/* --- settle.c --- */

/* Look at times whether what must come true has come. */
void mst__sim_legacy_settle(struct mst__sim_legacy *sim);

/* The program interrupts the current operation of @node, if it wants to and the node waits. Returns
 * whether it did. */
bool mst__sim_legacy_interrupt(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node);

/* --- torch.c --- */

void mst__sim_torch_begin(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node);
/* @answer is NULL if time has passed or a request has failed. */
void mst__sim_torch_feed(struct mst__sim_legacy *sim,
                         struct mst__sim_legacy_node *node,
                         struct mst__sim_v2_answer *answer,
                         bool has_failed);
void mst__sim_torch_beat(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node);

#endif /* MST_SIM_LEGACY_H */
