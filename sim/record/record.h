/* sim/record/record.h - the record machine in virtual time: nodes with the real session machine,
 * the real codecs and the real key-value engine, and an adversary between them. */
#ifndef MST_SIM_RECORD_H
#define MST_SIM_RECORD_H

#include <stdio.h>

#include "base/prng.h"
#include "core/session.h"
#include "kv/kv.h"
#include "sim/sim.h"
#include "wire/wire.h"

#define MST_SIM_NODES_MAX 64

/* --- the plan: what a seed says, drawn before anything happens --- */

struct mst__sim_plan {
    uint64_t seed;
    size_t nodes_count;
    bool is_exact[MST_SIM_NODES_MAX]; /* a stand-in for a torch peer */
    size_t exact_count;
    bool can_watch[MST_SIM_NODES_MAX];
    int64_t write_us; /* the write time that our nodes assume */
    struct mst__settings settings[MST_SIM_NODES_MAX];
    bool is_unequal;     /* the settings differ */
    bool is_one_address; /* all nodes have the same address and differ in their process */
    enum mst__record_dialect dialect;
    enum mst__dialect wire; /* C or A */
    /* Network. Chances are per million messages. */
    int64_t latency_us; /* of a message: 0.5 to 1.5 times this */
    uint32_t slow_ppm;  /* up to slow_us instead */
    int64_t slow_us;
    uint32_t cut_before_ppm; /* the connection breaks and the request is lost */
    uint32_t cut_after_ppm;  /* the connection breaks and the answer is lost */
    uint32_t twice_ppm;      /* the answer comes a second time */
    int64_t read_timeout_us; /* the timeout of a client */
    bool looks;              /* after a lost answer to a write, a client reads the record */
    /* Clocks. */
    int64_t skew_us_max;
    int64_t drift_ppm_max;
    int64_t step_us_max;
    /* Behaviour. */
    int64_t start_us_max;    /* nodes come within this time */
    int64_t reaction_us_max; /* from the news of a change to entering the next round */
    int64_t restart_us;      /* mean time between restarts; 0 = none */
    int64_t fault_us;        /* mean time between other faults */
    uint32_t weights[MST_SIM_FAULT_COUNT];
    int64_t partition_us_max; /* and of a freeze */
    uint32_t hasty_ppm;       /* a node that enters a round leaves it at once */
    int64_t active_us;        /* then the faults stop */
    int64_t quiet_us;         /* how long to observe the formed group */
};

void mst__sim_plan_draw(struct mst__sim_plan *plan, uint64_t seed);

/* The time after which a silent node is removed. */
int64_t mst__sim_plan_expiry_us(const struct mst__sim_plan *plan);
/* An allowance for what the bounds of the rules do not count: requests under way when the faults
 * stop, reactions, polling. */
int64_t mst__sim_plan_slack_us(const struct mst__sim_plan *plan);

/* --- events --- */

enum mst__sim_event_kind {
    MST_SIM_REQUEST,   /* bytes of link @id have arrived at the store */
    MST_SIM_REPLY,     /* and back */
    MST_SIM_CLOSED,    /* the store hears that the client has closed link @id */
    MST_SIM_BROKEN,    /* the client hears that link @id is broken */
    MST_SIM_WATCH,     /* a client asks for notices over link @id */
    MST_SIM_NOTICE,    /* a notice, or the answer to MST_SIM_WATCH */
    MST_SIM_UNWATCHED, /* link @id was for notices and is broken */
    MST_SIM_TIMER,     /* of @node; @id says whether it is still valid */
    MST_SIM_START,     /* @node comes up */
    MST_SIM_HEAL,      /* the partition @id of @node ends */
    MST_SIM_RESTART,   /* the next restart is due */
    MST_SIM_DISTURB,   /* the next other fault is due */
    MST_SIM_CALM,      /* the faults stop */
    MST_SIM_END,       /* the bound of rule @id is reached */
};

/* --- nodes --- */

enum mst__sim_app {
    MST_SIM_DOWN,    /* not started, or crashed */
    MST_SIM_JOINING, /* in next_rendezvous, or about to call it again */
    MST_SIM_HOLDING, /* in a round */
    MST_SIM_LEAVING,
    MST_SIM_PAUSED, /* has left and comes back */
    MST_SIM_CLOSING,
    MST_SIM_ENDED, /* told that the rendezvous is closed */
};

/* The request that a client waits for. */
enum mst__sim_ask {
    MST_SIM_ASK_NONE,
    MST_SIM_ASK_CREATE, /* create the key */
    MST_SIM_ASK_READ,
    MST_SIM_ASK_WRITE,
    MST_SIM_ASK_LOOK,        /* read the result of a write whose answer was lost */
    MST_SIM_ASK_CREATE_READ, /* create it again after it vanished */
    MST_SIM_ASK_CREATE_WRITE,
};

struct mst__sim_node {
    uint32_t index;
    enum mst__sim_app app;
    int64_t pid;    /* of this life */
    bool is_coming; /* it will start */
    bool has_session;
    enum mst__operation operation; /* the last one */
    struct mst__session session;
    int64_t drift_ppm;
    int64_t skew_us;
    /* The link to the store: one request at a time. */
    enum mst__sim_ask ask;
    uint32_t link_epoch;
    uint64_t link; /* 0 = not open */
    uint32_t request;
    uint32_t epoch;      /* of the last answer */
    int64_t to_store_us; /* arrival of the last message in this direction */
    int64_t to_node_us;
    struct mst__buf pickle;
    struct mst__buf desired;
    bool may_be_unread; /* of the current write */
    int64_t skip;       /* notices that do not end the current wait */
    struct mst__buf expected;
    struct mst__buf output;
    bool is_created;   /* the key was created */
    bool has_notice;   /* since the last answer */
    unsigned failures; /* consecutive */
    uint64_t watch;    /* the link for notices, 0 = none */
    uint64_t timer;
    /* Holding. */
    int64_t round;
    uint32_t round_epoch;
    bool is_reacting;
    int64_t beat_us;  /* of an exact node: its next heartbeat */
    int64_t began_us; /* of the operation */
    int64_t poll_us;
    int64_t react_us;
    /* Faults. */
    uint64_t partition; /* 0 = none */
    int64_t paused_us;  /* when it was last stopped: from then */
    int64_t frozen_us;  /* until when */
    int64_t well_us;    /* time of its last disturbance */
};

/* --- the store --- */

/* The store's side of a connection. */
struct mst__sim_conn {
    struct mst__kv_client client; /* first: the engine gives it back */
    struct mst__wire_reader reader;
    uint64_t link;
    uint32_t node;
    int64_t pid;
};

struct mst__sim_store {
    struct mst__kv kv;
    uint32_t epoch;
    int64_t down_us;              /* refuses connections until then */
    struct mst__sim_conn **conns; /* by link; NULL = none */
    size_t conns_count;
    struct mst__kv_client inspector;
    struct mst__buf output;
};

/* --- the checker --- */

struct mst__sim_seat {
    int64_t pid;
    int64_t rank;
};

/* A completed round. */
struct mst__sim_completion {
    uint32_t epoch;
    int64_t round;
    int64_t time_us;
    bool is_by_exact;
    size_t count;
    struct mst__sim_seat *seats;
};

/* One life of a node, by its pid. */
struct mst__sim_life {
    uint32_t node;
    bool is_exact;
    bool is_over; /* crashed */
    int64_t over_us;
    bool has_stamp;
    int64_t stamp_us;
    int64_t stamped_us; /* when it last changed in the store */
};

struct mst__sim_check {
    struct mst__state state; /* the stored record */
    bool has_record;
    uint8_t *value;
    size_t value_size;
    struct mst__sim_completion *completions;
    size_t completions_count;
    size_t completions_capacity;
    struct mst__sim_life *lives; /* by pid - 1 */
    size_t lives_count;
    size_t lives_capacity;
};

/* --- the world --- */

struct mst__sim_world {
    struct mst__sim_plan plan;
    struct mst__prng prng;
    int64_t now_us;
    struct mst__sim_queue queue;
    struct mst__sim_node nodes[MST_SIM_NODES_MAX];
    struct mst__sim_store store;
    struct mst__sim_check check;
    uint64_t links;
    uint64_t partitions;
    bool is_calm;
    int64_t calm_us;
    int64_t settled_us; /* 0 = not yet */
    int64_t gave_up_us; /* the last timeout of a join that began before the calm; 0 = none */
    bool is_over;
    FILE *history; /* NULL = none */
    struct mst__sim_stats stats;
    const char *rule; /* the broken one; NULL = none */
    char broken[400];
};

/* Run @seed to its end; @history may be NULL. True if no rule was broken; else see rule and
 * broken of @ret_world. Close it in any case. */
bool mst__sim_world_run(struct mst__sim_world *ret_world, uint64_t seed, FILE *history);
void mst__sim_world_close(struct mst__sim_world *world);

/* Report a broken rule; the first one counts, and the run ends. */
void mst__sim_break(struct mst__sim_world *world, const char *rule, const char *format, ...)
    MST_PRINTF(3, 4);

/* Uniform in 0 … @bound - 1; 0 if that is empty. */
int64_t mst__sim_below(struct mst__sim_world *world, int64_t bound);
bool mst__sim_chance(struct mst__sim_world *world, uint32_t ppm);

/* Queue an event @delay_us from now. */
void mst__sim_after(struct mst__sim_world *world, int64_t delay_us, struct mst__sim_event event);

/* --- history.c: lines for people --- */

void mst__sim_say(struct mst__sim_world *world, const char *who, const char *format, ...)
    MST_PRINTF(3, 4);
/* The same, of a node. */
void mst__sim_say_node(struct mst__sim_world *world,
                       const struct mst__sim_node *node,
                       const char *format,
                       ...) MST_PRINTF(3, 4);
void mst__sim_say_plan(struct mst__sim_world *world);
/* Print the stored record, after @conn has written it. */
void mst__sim_say_record(struct mst__sim_world *world, const struct mst__sim_conn *conn);
/* `n3`, or `n3.2` in its second life. */
void mst__sim_name(const struct mst__sim_world *world, int64_t pid, char ret_name[24]);

/* --- store.c --- */

void mst__sim_store_init(struct mst__sim_world *world);
void mst__sim_store_close(struct mst__sim_world *world);
void mst__sim_store_request(struct mst__sim_world *world, const struct mst__sim_event *event);
void mst__sim_store_watch(struct mst__sim_world *world, const struct mst__sim_event *event);
void mst__sim_store_hangup(struct mst__sim_world *world, uint64_t link);
/* Drop all data and connections. */
void mst__sim_store_wipe(struct mst__sim_world *world);
struct mst_bytes mst__sim_store_key(void);
struct mst_bytes mst__sim_store_sentinel(void);

/* --- link.c: the network between a node and the store --- */

/* The duration of a message; a slow one disturbs @node. */
int64_t mst__sim_link_delay_us(struct mst__sim_world *world, struct mst__sim_node *node);
void mst__sim_link_send(struct mst__sim_world *world,
                        struct mst__sim_node *node,
                        const struct mst__command *command);
void mst__sim_link_close(struct mst__sim_world *world, struct mst__sim_node *node);
/* The store's answer to request @event; @bytes are copied. */
void mst__sim_link_reply(struct mst__sim_world *world,
                         const struct mst__sim_event *event,
                         struct mst_bytes bytes);
/* The link breaks, and the client notices. */
void mst__sim_link_break(struct mst__sim_world *world, struct mst__sim_node *node, uint64_t link);
void mst__sim_link_watch(struct mst__sim_world *world, struct mst__sim_node *node);

/* --- node.c: a program that takes part --- */

void mst__sim_node_init(struct mst__sim_world *world, uint32_t index);
void mst__sim_node_close(struct mst__sim_world *world, struct mst__sim_node *node);
void mst__sim_node_start(struct mst__sim_world *world, struct mst__sim_node *node);
void mst__sim_node_crash(struct mst__sim_world *world, struct mst__sim_node *node);
void mst__sim_node_timer(struct mst__sim_world *world, struct mst__sim_node *node);
void mst__sim_node_reply(struct mst__sim_world *world,
                         struct mst__sim_node *node,
                         const struct mst__sim_event *event);
void mst__sim_node_broken(struct mst__sim_world *world, struct mst__sim_node *node);
void mst__sim_node_notice(struct mst__sim_world *world, struct mst__sim_node *node);
/* The program wants JOINING, LEAVING or CLOSING. Returns whether that is possible now. */
bool mst__sim_node_want(struct mst__sim_world *world,
                        struct mst__sim_node *node,
                        enum mst__sim_app app);
bool mst__sim_node_cancel(struct mst__sim_world *world, struct mst__sim_node *node);
int64_t mst__sim_node_mono_us(const struct mst__sim_world *world, const struct mst__sim_node *node);
bool mst__sim_node_is_up(const struct mst__sim_node *node);

/* --- client.c: the session's effects as requests, and the answers as its events --- */

void mst__sim_client_effect(struct mst__sim_world *world,
                            struct mst__sim_node *node,
                            const struct mst__effect *effect);
void mst__sim_client_create(struct mst__sim_world *world, struct mst__sim_node *node);
void mst__sim_client_look(struct mst__sim_world *world, struct mst__sim_node *node);
/* True if @ret_event must be fed to the session, with @ret_state and @ret_token. False: another
 * request was sent, or the key exists now. */
bool mst__sim_client_answer(struct mst__sim_world *world,
                            struct mst__sim_node *node,
                            struct mst_bytes value,
                            struct mst__state *ret_state,
                            struct mst_buffer *ret_token,
                            struct mst__session_event *ret_event);

/* --- fault.c --- */

void mst__sim_fault_restart(struct mst__sim_world *world);
void mst__sim_fault_strike(struct mst__sim_world *world);
void mst__sim_fault_heal(struct mst__sim_world *world, struct mst__sim_node *node);
void mst__sim_fault_calm(struct mst__sim_world *world);

/* --- check.c: what must always be true --- */

void mst__sim_check_init(struct mst__sim_world *world);
void mst__sim_check_close(struct mst__sim_world *world);
/* A new life of a node; returns its pid. */
int64_t mst__sim_check_born(struct mst__sim_world *world, uint32_t node);
/* @conn has stored @value. */
void mst__sim_check_stored(struct mst__sim_world *world,
                           const struct mst__sim_conn *conn,
                           struct mst_bytes value);
void mst__sim_check_wiped(struct mst__sim_world *world);
/* @node has got @outcome. */
void mst__sim_check_told(struct mst__sim_world *world,
                         const struct mst__sim_node *node,
                         const struct mst__outcome *outcome);
/* The completion of round @round; NULL if it was not completed. */
const struct mst__sim_completion *mst__sim_check_find(const struct mst__sim_world *world,
                                                      uint32_t epoch,
                                                      int64_t round);
struct mst__sim_life *mst__sim_check_life(struct mst__sim_world *world, int64_t pid);

/* --- settle.c: what must come true once the faults have stopped --- */

/* Something has changed: look whether the group has formed. */
void mst__sim_settle_look(struct mst__sim_world *world);
void mst__sim_settle_calm(struct mst__sim_world *world);
void mst__sim_settle_bound(struct mst__sim_world *world, uint64_t bound);

#endif /* MST_SIM_RECORD_H */
