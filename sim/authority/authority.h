/* sim/authority/authority.h - the authority machine in virtual time: nodes that announce
 * themselves, an authority that decides, and an adversary between them. There are two engines. In
 * `muster`, a server is the authority, and real frames go over connections. In `etcd-v3`, the node
 * with the oldest key in a modelled store is the authority, and writes its decisions there.
 *
 * The machines are the product's own; nodes, server and driver are models of the product's. */
#ifndef MST_SIM_AUTHORITY_H
#define MST_SIM_AUTHORITY_H

#include <stdio.h>

#include "base/prng.h"
#include "core/authority_keep.h"
#include "core/listening.h"
#include "core/member.h"
#include "sim/sim.h"
#include "wire/job.h"
#include "wire/replay.h"

#define MST_SIM_AUTH_NODES_MAX 3000
#define MST_SIM_AUTH_V3_NODES_MAX 48
#define MST_SIM_AUTH_V3_LIVES_MAX 16 /* keys of a node's processes at once */

/* --- the plan --- */

enum mst__sim_auth_engine { MST_SIM_AUTH_MUSTER, MST_SIM_AUTH_V3 };

enum mst__sim_auth_fault {
    MST_SIM_AUTH_FAULT_AGAIN, /* a node enters again without need, as if its workers had failed */
    MST_SIM_AUTH_FAULT_CRASH,
    MST_SIM_AUTH_FAULT_VANISH, /* a crash that does not close the connection */
    MST_SIM_AUTH_FAULT_REVIVE,
    MST_SIM_AUTH_FAULT_BLACKOUT, /* nearly all nodes crash, and come back */
    MST_SIM_AUTH_FAULT_FREEZE,
    MST_SIM_AUTH_FAULT_PARTITION,
    MST_SIM_AUTH_FAULT_LEAVE,
    MST_SIM_AUTH_FAULT_CANCEL,
    MST_SIM_AUTH_FAULT_SERVER,        /* the server restarts; the v3 store is out of reach */
    MST_SIM_AUTH_FAULT_SERVER_FREEZE, /* the server stops; the v3 store loses all watches */
    MST_SIM_AUTH_FAULT_SHUT,
    MST_SIM_AUTH_FAULT_TEAR,  /* a connection breaks, and messages under way are lost */
    MST_SIM_AUTH_FAULT_STALL, /* a connection breaks, and its last messages come late */
    MST_SIM_AUTH_FAULT_HOLE,  /* a connection loses everything, and neither end notices */
    MST_SIM_AUTH_FAULT_EXODUS,
};
#define MST_SIM_AUTH_FAULTS (MST_SIM_AUTH_FAULT_EXODUS + 1)

struct mst__sim_auth_plan {
    enum mst__sim_auth_engine engine;
    uint32_t nodes;
    uint32_t nodes_min, nodes_max;
    int64_t last_call_us;
    bool has_odd;     /* the last node has other limits */
    bool has_racks;   /* ranks by a label */
    bool has_pinned;  /* some nodes want a rank */
    bool steps_back;  /* a restart sets the server's clock back, and so its epoch */
    bool has_jumps;   /* a restart changes a node's clock, and so its incarnation */
    bool has_patient; /* some processes may be silent for much longer than the others */
    bool has_work;    /* programs finish or fail */
    bool is_fixed;    /* no round is larger than the first one */
    bool is_old;      /* engine muster: the server has version 1 of the protocol */
    bool has_agents;
    bool gives_way; /* members give way to newcomers at once */
    /* Of the engine. */
    int64_t beat_us;
    int64_t expiry_us; /* etcd-v3: of the lease */
    int64_t grace_us;
    int64_t reclaim_us;
    int64_t forget_us; /* a run without nodes is forgotten */
    /* Network. */
    int64_t latency_us;
    uint32_t slow_ppm;
    int64_t slow_us;
    uint32_t twice_ppm; /* messages that come twice; etcd-v3: lost answers */
    int64_t skew_us_max;
    /* Behaviour. */
    int64_t start_us_max;
    int64_t reaction_us_max;
    int64_t join_us;
    int64_t fault_us; /* mean time between faults */
    uint32_t weights[MST_SIM_AUTH_FAULTS];
    int64_t outage_us_max; /* of partitions, freezes and servers */
    int64_t active_us;
    int64_t bound_us; /* time for the group to come to rest after the faults */
    /* The work of a round. */
    int64_t work_us_max; /* of one member */
    uint32_t fail_ppm;   /* members that fail */
    uint32_t end_ppm;    /* programs that end after they have finished */
    struct mst__budget budget;
    /* Nodes that are launchers of workers. */
    int64_t stop_us_max;   /* of a worker that is told to stop */
    int64_t stop_grace_us; /* until a worker is killed */
    int64_t hang_us;       /* INT64_MAX = hanging workers are not noticed, and none hangs */
    int64_t notice_us;     /* 0 = none */
    int64_t pause_us;
    int64_t cut_us;
    uint32_t quick_max;
};

/* --- events --- */

enum mst__sim_auth_kind {
    MST_SIM_AUTH_TO_SERVER, /* bytes of link @id */
    MST_SIM_AUTH_TO_NODE,
    MST_SIM_AUTH_HANGUP_SERVER, /* the network reports the end of link @id */
    MST_SIM_AUTH_HANGUP_NODE,
    MST_SIM_AUTH_TURN,  /* a turn of the server's loop: timers, then input */
    MST_SIM_AUTH_DUE,   /* the server's timer ends the wait of its loop */
    MST_SIM_AUTH_TIMER, /* of @node */
    MST_SIM_AUTH_START, /* @node comes up */
    MST_SIM_AUTH_FAULT,
    MST_SIM_AUTH_CALM, /* the faults stop */
    MST_SIM_AUTH_LOOK, /* check whether the group is at rest */
    MST_SIM_AUTH_ASK,  /* a request at the v3 store */
    MST_SIM_AUTH_ANSWER,
    MST_SIM_AUTH_WATCH, /* an event of a watch at a node */
    MST_SIM_AUTH_LEASE, /* leases may have ended */
};

/* --- a node --- */

enum mst__sim_auth_app {
    MST_SIM_AUTH_DOWN,
    MST_SIM_AUTH_JOINING,
    MST_SIM_AUTH_HOLDING,
    MST_SIM_AUTH_AWAY,  /* has left and comes back */
    MST_SIM_AUTH_ENDED, /* was told that it is closed */
    MST_SIM_AUTH_DONE,  /* has ended after its work was done */
};

/* A connection: two ends, which need not agree on whether it is open. */
struct mst__sim_auth_link {
    uint64_t id;
    uint32_t node;
    uint32_t life;
    bool is_open_node;
    bool is_accepted;
    bool is_open_server;
    bool is_torn;    /* messages under way are lost */
    bool is_hole;    /* the news of a close is lost, too */
    bool is_seated;  /* the node has announced itself */
    bool has_parted; /* the node has sent LEAVE */
    uint32_t server; /* the start of the server that has accepted it */
    uint64_t turn;   /* the turn of the server's loop that has accepted it */
    mst__authority_id seat;
    int64_t to_server_us; /* arrival of the last message in this direction */
    int64_t to_node_us;
    int64_t stalled_us; /* messages to the server are delayed until then */
    uint32_t sent[2];   /* messages to the node, and to the server */
    uint32_t heard[2];  /* those that have arrived, in order */
};

/* The content of a node's key in a v3 store. */
struct mst__sim_auth_doc {
    uint64_t epoch; /* of the known round, from which the node returns */
    int64_t round;  /* 0 = it returns from none */
    uint32_t world;
    uint32_t rank;
    /* The end of its work in a round. */
    bool has_word;
    bool is_finish;
    uint64_t word_epoch;
    int64_t word_round;
    int32_t failure; /* the number of a failure */
};

struct mst__sim_auth_lead;     /* an authority on a node, in lead.c */
struct mst__sim_auth_launcher; /* in launch.h */

struct mst__sim_auth_node {
    uint32_t index;
    uint32_t life;
    uint64_t incarnation; /* by its clock */
    enum mst__sim_auth_app app;
    bool is_coming; /* it will start, or enter */
    bool is_odd;
    uint64_t session;
    int64_t skew_us;
    struct mst__member member; /* the product's */
    char name[24], rack[24];   /* borrowed by @member */
    struct mst__label label;
    uint64_t timer;
    int64_t react_us;       /* when the program enters again; INT64_MAX = it does not */
    bool reacts_to_waiting; /* only because nodes wait */
    int64_t work_us;        /* when its work ends; INT64_MAX = it has none */
    int64_t end_us;         /* when it ends after it has finished */
    bool is_done;           /* its work is done, and it waits for the others */
    int64_t cut_us;         /* off the network until then */
    int64_t frozen_us;
    int64_t bad_us;    /* time of its last disturbance */
    int64_t lost_us;   /* when an authority last counted it as lost */
    uint64_t accepted; /* the newest of its connections that the server has seen */
    struct mst__sim_auth_launcher *launcher; /* with has_agents; NULL = is not up */
    /* muster */
    struct mst__sim_auth_link *link;
    int64_t unsure_round; /* in which the server may not know its rank; 0 = none */
    uint64_t unsure_epoch;
    /* etcd-v3 */
    int64_t beat_us;
    int64_t answer_us;
    uint64_t key;                 /* create revision; 0 = has none */
    uint64_t key_rev;             /* its last known modification */
    uint64_t asked;               /* serial of the request under way; 0 = none */
    struct mst__sim_auth_doc doc; /* the wanted content of its key */
    bool has_to_put;              /* the key is not known to have @doc */
    bool has_to_read;             /* its knowledge is out of date */
    bool has_to_leave;            /* revoke the lease, then go */
    bool wants_close;
    uint64_t watch;     /* the current one; 0 = none */
    uint64_t watch_rev; /* older news are known */
    uint32_t watch_heard;
    uint64_t predecessor;
    struct mst__sim_auth_round *round; /* as last seen; NULL = not yet */
    int64_t retry_us;
    struct mst__sim_auth_lead *lead; /* NULL = is not the authority */
};

/* --- what was sealed --- */

struct mst__sim_auth_seat {
    uint32_t node;
    uint32_t life;
    uint64_t key;
};

#define MST_SIM_AUTH_CAUSES_MAX 16

struct mst__sim_auth_seal {
    uint64_t epoch;
    int64_t round;
    uint32_t world;
    uint32_t restarts; /* of the job before this round, counted by the checker */
    int64_t time_us;
    bool was_told; /* etcd-v3: it was written as running, not at once as over */
    bool is_whole; /* muster: all its members were still there when the server told it */
    /* The first failure of this round at each server. A restarted server does not know its
     * predecessor's decision, so there may be several. */
    int32_t causes[MST_SIM_AUTH_CAUSES_MAX];
    uint32_t cause_ranks[MST_SIM_AUTH_CAUSES_MAX]; /* who reported them */
    size_t causes_count;
    /* etcd-v3: reports stored by its members. */
    int32_t failed[MST_SIM_AUTH_V3_NODES_MAX]; /* the last failure of each; 0 = none */
    bool has_finished[MST_SIM_AUTH_V3_NODES_MAX];
    struct mst__sim_auth_seat *seats; /* by rank */
};

/* The checker's own count of the reports in the running round. */
struct mst__sim_auth_ledger {
    uint64_t epoch;
    int64_t round;
    bool *is_finished;   /* by rank */
    int64_t *leaving_us; /* by rank: until then failures of others follow from its leaving */
    uint32_t finished;
    uint32_t world;
};

/* The last round of an authority, as the checker has seen it: also one that was over before anybody
 * was told. */
struct mst__sim_auth_roster {
    uint64_t epoch;
    int64_t round;
    uint32_t world;
    bool is_adopted; /* from an earlier server */
    uint32_t *nodes; /* by rank; plan.nodes = not known */
    uint32_t capacity;
};

/* The report of a failure that a server decides on just now. */
struct mst__sim_auth_blame {
    bool is_on;
    bool is_missing; /* another member at work has no connection, or is about to leave */
    uint64_t epoch;
    int64_t round;
    uint32_t node;
    uint32_t rank;
    int32_t number;
};

/* The end of a job. */
struct mst__sim_auth_end {
    enum mst__job_outcome outcome;
    int32_t failure; /* the cause */
    uint32_t rank;
};

/* --- the server of the engine muster --- */

struct mst__sim_auth_server {
    uint32_t starts;
    uint32_t fixed_world;  /* the largest round that there may be now; 0 = any */
    int64_t adopted_round; /* the last round of an earlier server; 0 = none */
    uint64_t adopted_epoch;
    uint64_t epoch; /* of the next job */
    int64_t down_us;
    int64_t froze_us; /* when it was last stopped */
    int64_t frozen_us;
    struct mst__sim_event *inbox; /* arrived in its sockets, not read yet */
    size_t inbox_count, inbox_capacity;
    uint64_t turns;
    bool has_turn; /* a turn is queued */
    bool has_job;
    bool is_stopping;
    struct mst__authority authority;
    bool is_shut;
    int64_t idle_us;
    struct mst__listening listening;
    uint64_t due;         /* serial of the timer */
    int64_t claimed_max;  /* the highest round in an accepted announcement */
    int64_t claiming;     /* the round in the current announcement */
    int64_t sealed_claim; /* claimed_max at the last seal */
    bool sealed_shut;     /* the run was closed at the last seal */
    int64_t sealed_max;
    uint64_t steps; /* since the last full check */
    struct mst__sim_auth_ledger ledger;
    struct mst__sim_auth_roster roster;
    struct mst__sim_auth_blame blame;
    uint32_t restarts; /* of this job, in the window of its budget */
    int64_t restarts_us;
    uint32_t restarts_total;
    struct mst__buf shared;
    struct mst__buf replies;
};

/* A replay of the server's authority, see journal.c. */
struct mst__sim_auth_journal {
    bool is_on;
    uint64_t events; /* since the whole state was written */
    uint64_t news;   /* events since the states were compared */
    struct mst__journal writer;
    struct mst__replay replay;
    struct mst__buf told, retold;  /* effects, as text */
    struct mst__journal states[2]; /* of the server and of its replay */
};

/* --- the v3 store --- */

struct mst__sim_auth_key {
    uint32_t node;
    uint32_t life;
    uint64_t session;
    uint64_t created;
    uint64_t modified;
    int64_t until_us; /* the end of its lease */
    struct mst__sim_auth_doc doc;
};

enum mst__sim_auth_state {
    MST_SIM_AUTH_NONE,
    MST_SIM_AUTH_OPEN,   /* the round is over, the next one gathers */
    MST_SIM_AUTH_SEALED, /* it runs */
    MST_SIM_AUTH_CLOSED,
};

/* The key of the round. */
struct mst__sim_auth_round {
    enum mst__sim_auth_state state;
    uint64_t modified;
    uint64_t epoch;
    int64_t round;
    uint32_t world;
    uint32_t first_world;
    uint32_t waiting;
    enum mst__authority_why why;                 /* OPEN */
    uint64_t members[MST_SIM_AUTH_V3_NODES_MAX]; /* create revisions of keys, by rank */
    bool is_gone[MST_SIM_AUTH_V3_NODES_MAX];     /* OPEN: whose sessions have ended */
    bool is_finished[MST_SIM_AUTH_V3_NODES_MAX]; /* whose work is done */
    uint32_t restarts;                           /* of the budget, used in its window */
    int64_t restarts_us;                         /* when the window began */
    uint32_t restarts_total;
    uint32_t restarts_before; /* of restarts_total: before this round */
    bool has_cause;           /* OPEN, CLOSED */
    int32_t failure;          /* the cause */
    uint32_t failure_rank;
    enum mst__job_outcome outcome; /* CLOSED */
};

/* The owner of a key, also of one that is gone. */
struct mst__sim_auth_owner {
    uint64_t created;
    uint32_t node;
    uint32_t life;
};

struct mst__sim_auth_watch {
    uint64_t id;     /* 0 = none */
    uint64_t serial; /* of the request that began it */
    uint32_t life;
    uint64_t key;
    uint64_t predecessor; /* 0 = none: all keys */
    int64_t to_node_us;
    uint32_t sent;
};

struct mst__sim_auth_store {
    struct mst__sim_auth_key
        keys[MST_SIM_AUTH_V3_LIVES_MAX * MST_SIM_AUTH_V3_NODES_MAX]; /* by create revision */
    size_t count;
    struct mst__sim_auth_round round;
    uint32_t fixed_world; /* as in mst__sim_auth_server */
    int64_t round_us;     /* when it was last written */
    uint64_t revision;
    struct mst__sim_auth_watch watches[MST_SIM_AUTH_V3_NODES_MAX]; /* by node */
    struct mst__sim_auth_owner *owners;
    size_t owners_count, owners_capacity;
    int64_t down_us;
    uint64_t lease_timer;
};

/* --- the world --- */

struct mst__sim_auth {
    struct mst__sim_auth_plan plan;
    struct mst__prng prng;
    int64_t now_us;
    struct mst__sim_queue queue;
    struct mst__sim_auth_node *nodes;
    struct mst__sim_auth_link **links; /* by id - 1 */
    size_t links_count, links_capacity;
    struct mst__sim_auth_server server;
    struct mst__sim_auth_journal journal;
    struct mst__sim_auth_store store;
    struct mst__sim_auth_seal *seals;
    size_t seals_count, seals_capacity;
    struct mst__sim_auth_end *ends; /* of all jobs so far */
    size_t ends_count, ends_capacity;
    int32_t failures; /* failures so far; each has its number */
    uint64_t serials;
    bool is_calm;
    bool is_over;
    bool is_closed;  /* a close was requested and has arrived */
    bool was_closed; /* the same, also after the run was forgotten */
    int64_t calm_us;
    int64_t word_us;     /* when a node last sent a FINISH or RESTART */
    int64_t rest_us;     /* since when the group is at rest; 0 = it is not */
    int64_t patience_us; /* the longest silence of a process that the server took for alive */
    struct mst__buf frame;
    FILE *history;
    struct mst__sim_stats stats;
    const char *rule;
    char broken[400];
};

/* Like mst__sim_world_run. */
bool mst__sim_auth_run(struct mst__sim_auth *ret_sim, uint64_t seed, FILE *history);
/* Like mst__sim_auth_run, with launchers. */
bool mst__sim_auth_run_agents(struct mst__sim_auth *ret_sim, uint64_t seed, FILE *history);
void mst__sim_auth_close(struct mst__sim_auth *sim);

/* --- world.c: time, network, history --- */

#define MST_SIM_AUTH_NOBODY UINT32_MAX

/* When to look again for an event that is out of order. */
#define MST_SIM_AUTH_ORDER_US 20000

/* The longest delay of the second copy of a message. */
#define MST_SIM_AUTH_COPY_US (3 * MST_SIM_SECOND_US)

void mst__sim_auth_break(struct mst__sim_auth *sim, const char *rule, const char *format, ...)
    MST_PRINTF(3, 4);
/* @node may be MST_SIM_AUTH_NOBODY: the server, or the store. */
void mst__sim_auth_say(struct mst__sim_auth *sim, uint32_t node, const char *format, ...)
    MST_PRINTF(3, 4);
int64_t mst__sim_auth_below(struct mst__sim_auth *sim, int64_t bound);
bool mst__sim_auth_chance(struct mst__sim_auth *sim, uint32_t ppm);
/* Takes the bytes of @event. */
void mst__sim_auth_at(struct mst__sim_auth *sim,
                      int64_t time_us,
                      enum mst__sim_auth_kind kind,
                      struct mst__sim_event event);
/* The duration of a message. */
int64_t mst__sim_auth_delay(struct mst__sim_auth *sim);
/* A copy that mst__free frees. */
void *mst__sim_auth_copy(const void *data, size_t size);

/* --- plan.c --- */

void mst__sim_auth_draw(struct mst__sim_auth *sim, uint64_t seed);

/* --- fault.c --- */

void mst__sim_auth_strike(struct mst__sim_auth *sim);
void mst__sim_auth_calm(struct mst__sim_auth *sim);

/* --- link.c --- */

struct mst__sim_auth_link *mst__sim_auth_link_open(struct mst__sim_auth *sim,
                                                   struct mst__sim_auth_node *node);
void mst__sim_auth_link_send(struct mst__sim_auth *sim,
                             struct mst__sim_auth_link *link,
                             bool to_server,
                             bool can_repeat, /* the message may come twice */
                             struct mst_bytes bytes);
/* Close one end. If @is_silent, the other end does not notice. */
void mst__sim_auth_link_close(struct mst__sim_auth *sim,
                              struct mst__sim_auth_link *link,
                              bool by_server,
                              bool is_silent);
/* Bytes or the end of a link arrive. If the network delays them, @event is queued again. */
void mst__sim_auth_link_arrive(struct mst__sim_auth *sim, struct mst__sim_event *event);
/* The server accepts the connection, or reads its input. False if that must wait for the next
 * turn of its loop. */
bool mst__sim_auth_link_read(struct mst__sim_auth *sim, const struct mst__sim_event *event);

/* --- node.c: a program that takes part --- */

struct mst__sim_auth_node *mst__sim_auth_node(struct mst__sim_auth *sim, uint32_t index);
bool mst__sim_auth_is_up(const struct mst__sim_auth_node *node);
void mst__sim_auth_node_come(struct mst__sim_auth *sim,
                             struct mst__sim_auth_node *node,
                             int64_t delay_us);
void mst__sim_auth_node_start(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
void mst__sim_auth_node_crash(struct mst__sim_auth *sim,
                              struct mst__sim_auth_node *node,
                              bool is_silent);
/* The application enters the next round. */
void mst__sim_auth_node_next(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
/* Go away for a while: leave, or stop waiting. */
void mst__sim_auth_node_part(struct mst__sim_auth *sim,
                             struct mst__sim_auth_node *node,
                             int64_t away_us);
void mst__sim_auth_node_shut(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
void mst__sim_auth_node_timer(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
void mst__sim_auth_node_arm(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
/* Both engines: news for a node. */
void mst__sim_auth_node_sealed(struct mst__sim_auth *sim,
                               struct mst__sim_auth_node *node,
                               const struct mst__job_round *round);
void mst__sim_auth_node_react(struct mst__sim_auth *sim,
                              struct mst__sim_auth_node *node,
                              bool is_waiting);
void mst__sim_auth_node_expelled(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
void mst__sim_auth_node_ended(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);

/* --- launch.c: a launcher in the place of a program --- */

void mst__sim_auth_launch_begin(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
void mst__sim_auth_launch_free(struct mst__sim_auth_node *node);
void mst__sim_auth_launch_sealed(struct mst__sim_auth *sim,
                                 struct mst__sim_auth_node *node,
                                 const struct mst__job_round *round);
void mst__sim_auth_launch_failed(struct mst__sim_auth *sim,
                                 struct mst__sim_auth_node *node,
                                 const struct mst__member_effect *effect);
void mst__sim_auth_launch_notice(struct mst__sim_auth *sim,
                                 struct mst__sim_auth_node *node,
                                 const struct mst__member_effect *effect);
/* The member has made a step: its report may have been heard. */
void mst__sim_auth_launch_heard(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
/* Request a restart of the workers. Request the end of the node, which comes back after
 * @away_us. */
void mst__sim_auth_launch_ask(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
void mst__sim_auth_launch_signal(struct mst__sim_auth *sim,
                                 struct mst__sim_auth_node *node,
                                 int64_t away_us);
int64_t mst__sim_auth_launch_due_us(const struct mst__sim_auth_node *node);
void mst__sim_auth_launch_wake(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);

/* --- member.c: the member machine of a node --- */

/* The silence after which a process of @node is lost. */
int64_t mst__sim_auth_expiry_us(const struct mst__sim_auth *sim, uint32_t node, uint32_t life);
/* The workers of a process of @node, and their role. */
uint32_t mst__sim_auth_workers(const struct mst__sim_auth *sim, uint32_t node, uint32_t life);
const char *mst__sim_auth_role(uint32_t node);
/* A process of @node has started. */
void mst__sim_auth_member_begin(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
void mst__sim_auth_member_step(struct mst__sim_auth *sim,
                               struct mst__sim_auth_node *node,
                               struct mst__member_event event);
void mst__sim_auth_member_heard(struct mst__sim_auth *sim,
                                struct mst__sim_auth_node *node,
                                const struct mst__job_message *message);
/* Feed the time, if something is due. */
void mst__sim_auth_member_wake(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
void mst__sim_auth_member_want(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
void mst__sim_auth_member_leave(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);

/* --- client.c: a node's connection to the server --- */

void mst__sim_auth_client_effect(struct mst__sim_auth *sim,
                                 struct mst__sim_auth_node *node,
                                 const struct mst__member_effect *effect);
void mst__sim_auth_client_receive(struct mst__sim_auth *sim,
                                  struct mst__sim_auth_node *node,
                                  struct mst_bytes bytes);
/* Drop the connection. */
void mst__sim_auth_client_drop(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
void mst__sim_auth_client_shut(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);

/* --- server.c --- */

void mst__sim_auth_server_receive(struct mst__sim_auth *sim,
                                  struct mst__sim_auth_link *link,
                                  struct mst_bytes bytes);
void mst__sim_auth_server_hangup(struct mst__sim_auth *sim, struct mst__sim_auth_link *link);

/* --- journal.c --- */

void mst__sim_auth_journal_open(struct mst__sim_auth *sim, uint64_t seed);
void mst__sim_auth_journal_close(struct mst__sim_auth *sim);
/* The server has a new job, has fed @event to its authority, has taken @effect, has taken all
 * effects. */
void mst__sim_auth_journal_job(struct mst__sim_auth *sim);
void mst__sim_auth_journal_step(struct mst__sim_auth *sim,
                                const struct mst__authority_event *event);
void mst__sim_auth_journal_told(struct mst__sim_auth *sim,
                                const struct mst__authority_effect *effect);
void mst__sim_auth_journal_taken(struct mst__sim_auth *sim);
/* The run is over. */
void mst__sim_auth_journal_end(struct mst__sim_auth *sim);
/* Bytes or an end have arrived in a socket; takes the bytes of @event. */
void mst__sim_auth_server_arrived(struct mst__sim_auth *sim, struct mst__sim_event *event);
void mst__sim_auth_server_turn(struct mst__sim_auth *sim);
void mst__sim_auth_server_due(struct mst__sim_auth *sim);
void mst__sim_auth_server_start(struct mst__sim_auth *sim);
void mst__sim_auth_server_stop(struct mst__sim_auth *sim);

/* Workers of @node start in that round: check their number of restarts. */
void mst__sim_auth_launch_check_restarts(struct mst__sim_auth *sim,
                                         const struct mst__sim_auth_node *node,
                                         uint64_t epoch,
                                         int64_t round,
                                         uint32_t restarts);

/* --- work.c: members that finish and fail --- */

/* @node is in a round and begins its work. */
void mst__sim_auth_work_begin(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
/* It stops working. */
void mst__sim_auth_work_stop(struct mst__sim_auth_node *node);
void mst__sim_auth_work_wake(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
int64_t mst__sim_auth_work_due_us(const struct mst__sim_auth_node *node);
/* The round of a finished node is over: whether it ends instead of coming back. */
bool mst__sim_auth_work_refuses(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
/* The server gets a report on @link, and has decided. */
void mst__sim_auth_work_word(struct mst__sim_auth *sim,
                             const struct mst__sim_auth_link *link,
                             const struct mst__job_message *message);
/* The server hears on @link that a member leaves. */
void mst__sim_auth_work_leaving(struct mst__sim_auth *sim,
                                const struct mst__sim_auth_link *link,
                                const struct mst__job_leaving *leaving);
void mst__sim_auth_work_decided(struct mst__sim_auth *sim);
/* The phase of the run has changed. */
void mst__sim_auth_work_moved(struct mst__sim_auth *sim,
                              enum mst__authority_phase from,
                              enum mst__authority_phase to,
                              enum mst__authority_why why);
/* Messages of the server, and those that a node hears. */
void mst__sim_auth_work_check_lost(struct mst__sim_auth *sim, uint32_t rank);
void mst__sim_auth_work_check_turn(struct mst__sim_auth *sim);
void mst__sim_auth_work_check_heard(struct mst__sim_auth *sim,
                                    const struct mst__sim_auth_node *node,
                                    const struct mst__job_message *message);
void mst__sim_auth_work_forget(struct mst__sim_auth *sim);
/* Engine etcd-v3: a node has stored @key; the round was written, or closed. */
void mst__sim_auth_work_stored(struct mst__sim_auth *sim, const struct mst__sim_auth_key *key);
void mst__sim_auth_work_check_written(struct mst__sim_auth *sim,
                                      const struct mst__sim_auth_round *before,
                                      const struct mst__sim_auth_round *round);
void mst__sim_auth_work_closed(struct mst__sim_auth *sim, const struct mst__sim_auth_round *round);

/* --- store.c: the v3 store --- */

enum mst__sim_auth_verb {
    MST_SIM_AUTH_ASK_JOIN,  /* create a lease and the session's key, if the key does not exist */
    MST_SIM_AUTH_ASK_PUT,   /* write the own key, if it is unchanged */
    MST_SIM_AUTH_ASK_ALIVE, /* renew the lease */
    MST_SIM_AUTH_ASK_READ,  /* read all keys, and watch from that revision on */
    MST_SIM_AUTH_ASK_WRITE, /* write the round, if the own key exists and the round is unchanged */
    MST_SIM_AUTH_ASK_CLOSE, /* close the round, if it is unchanged */
    MST_SIM_AUTH_ASK_LEAVE, /* revoke the lease */
};

/* Plain data, as the bytes of an event. */
struct mst__sim_auth_ask {
    enum mst__sim_auth_verb verb;
    uint64_t serial;
    uint64_t key;
    uint64_t session; /* JOIN */
    struct mst__sim_auth_doc doc;
    uint64_t modified; /* PUT: of the key; WRITE and CLOSE: of the round */
    struct mst__sim_auth_round round;
    uint64_t drops[4]; /* WRITE: keys of processes that were replaced; 0 = none */
};

struct mst__sim_auth_answer {
    enum mst__sim_auth_verb verb;
    uint64_t serial;
    bool is_done;      /* the comparisons held */
    bool is_failed;    /* its result is unknown */
    uint64_t key;      /* of this node; 0 = none */
    uint64_t modified; /* of that key */
    struct mst__sim_auth_doc doc;
    uint64_t revision; /* of the store at this answer */
    uint64_t watch;    /* READ */
    uint64_t predecessor;
    struct mst__sim_auth_round round;
    uint64_t modified_round;
    size_t count; /* entries that follow */
    struct mst__sim_auth_key keys[MST_SIM_AUTH_V3_LIVES_MAX * MST_SIM_AUTH_V3_NODES_MAX];
};

/* News of a watch. */
struct mst__sim_auth_news {
    uint64_t revision;
    uint64_t watch;
    bool is_lost;  /* the watch itself is lost */
    bool is_round; /* else a key */
    bool is_gone;
    struct mst__sim_auth_key key;
    struct mst__sim_auth_round round;
};

void mst__sim_auth_store_ask(struct mst__sim_auth *sim, struct mst__sim_event *event);
void mst__sim_auth_store_expire(struct mst__sim_auth *sim);
/* The store is out of reach until @until_us. */
void mst__sim_auth_store_down(struct mst__sim_auth *sim, int64_t until_us);
/* Watches are gone: compaction, or another member of the cluster. */
void mst__sim_auth_store_unwatch(struct mst__sim_auth *sim);
/* Drop the watch of one node, with its news. */
void mst__sim_auth_store_unwatch_one(struct mst__sim_auth *sim, uint32_t node);
struct mst__sim_auth_key *mst__sim_auth_store_find(struct mst__sim_auth *sim, uint64_t created);
const struct mst__sim_auth_owner *mst__sim_auth_owner(const struct mst__sim_auth *sim,
                                                      uint64_t created);

/* --- keeper.c: a node's key in the v3 store --- */

void mst__sim_auth_keeper_effect(struct mst__sim_auth *sim,
                                 struct mst__sim_auth_node *node,
                                 const struct mst__member_effect *effect);
void mst__sim_auth_keeper_shut(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
void mst__sim_auth_keeper_wake(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
int64_t mst__sim_auth_keeper_due_us(const struct mst__sim_auth_node *node);
/* An answer or news of a watch. */
void mst__sim_auth_keeper_heard(struct mst__sim_auth *sim, struct mst__sim_event *event);
/* Send the next request, unless one is under way. */
void mst__sim_auth_keeper_step(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);

/* --- lead.c: the authority on the node with the oldest key --- */

/* @answer shows that @node has the oldest key. */
void mst__sim_auth_lead_begin(struct mst__sim_auth *sim,
                              struct mst__sim_auth_node *node,
                              const struct mst__sim_auth_answer *answer);
/* Drop the authority, if there is one. */
void mst__sim_auth_lead_end(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
void mst__sim_auth_lead_news(struct mst__sim_auth *sim,
                             struct mst__sim_auth_node *node,
                             const struct mst__sim_auth_news *news);
/* Whether there is something to write; it is then in @ret_ask. */
bool mst__sim_auth_lead_ask(struct mst__sim_auth_node *node, struct mst__sim_auth_ask *ret_ask);
void mst__sim_auth_lead_written(struct mst__sim_auth *sim,
                                struct mst__sim_auth_node *node,
                                const struct mst__sim_auth_answer *answer);
void mst__sim_auth_lead_wake(struct mst__sim_auth *sim, struct mst__sim_auth_node *node);
int64_t mst__sim_auth_lead_due_us(const struct mst__sim_auth_node *node);
/* The number of nodes that it knows; 0 without an authority. */
uint32_t mst__sim_auth_lead_count(const struct mst__sim_auth_node *node);
/* Whether its authority has something to write, or a write under way. */
bool mst__sim_auth_lead_is_writing(const struct mst__sim_auth_node *node);
/* What the authority on @node waits for; empty without one. */
void mst__sim_auth_lead_describe(const struct mst__sim_auth_node *node, char *text, size_t size);

/* --- check.c: what must always be true, and what must come true --- */

/* The engine muster: decisions and accepted announcements of the authority. */
void mst__sim_auth_check_seal(struct mst__sim_auth *sim,
                              const struct mst__authority_effect *effect);
/* @contact: the connection of the node's earlier process; 0 = none. @was_shut: the run was
 * closed before this event, which may itself have closed it. */
void mst__sim_auth_check_announced(struct mst__sim_auth *sim,
                                   const struct mst__sim_auth_link *link,
                                   const struct mst__announcement *announcement,
                                   uint64_t contact,
                                   bool was_shut);
void mst__sim_auth_check_unclaimed(struct mst__sim_auth *sim,
                                   const struct mst__sim_auth_link *link,
                                   const struct mst__announcement *announcement,
                                   enum mst__refusal refusal);
void mst__sim_auth_check_expelled(struct mst__sim_auth *sim, const struct mst__sim_auth_link *link);
void mst__sim_auth_check_lost(struct mst__sim_auth *sim,
                              const struct mst__authority_effect *effect);
void mst__sim_auth_check_refused(struct mst__sim_auth *sim,
                                 const struct mst__sim_auth_node *node,
                                 const struct mst__job_message *message);
/* The engine etcd-v3: @round was written over @before with the key @writer. */
void mst__sim_auth_check_written(struct mst__sim_auth *sim,
                                 const struct mst__sim_auth_round *before,
                                 const struct mst__sim_auth_round *round,
                                 uint64_t writer);
/* The node of a member; plan.nodes = none. What was sealed, NULL = nothing. */
uint32_t mst__sim_auth_member_node(const struct mst__sim_auth *sim,
                                   const struct mst__authority_member *member);
const struct mst__sim_auth_seal *mst__sim_auth_seal_find(const struct mst__sim_auth *sim,
                                                         uint64_t epoch,
                                                         int64_t round);
/* Both engines. */
void mst__sim_auth_check_told(struct mst__sim_auth *sim,
                              const struct mst__sim_auth_node *node,
                              const struct mst__job_round *round);
void mst__sim_auth_look(struct mst__sim_auth *sim);

/* --- ranks.c: who is admitted, and with which rank --- */

/* The rank that a node asks for; MST_AUTHORITY_RANK_NONE. The number of its rack. */
uint32_t mst__sim_auth_pinned(const struct mst__sim_auth *sim, uint32_t node);
uint32_t mst__sim_auth_rack(uint32_t node);
/* The engine muster: the server seals a round just now; it takes one over from an earlier
 * server. */
void mst__sim_auth_ranks_sealed(struct mst__sim_auth *sim);
void mst__sim_auth_ranks_adopted(struct mst__sim_auth *sim);
/* The server has accepted an announcement of this node with this claim. If that has none, it may be
 * older than the node's place in a round of an earlier server: then nobody may know that place. */
void mst__sim_auth_ranks_announced(struct mst__sim_auth *sim,
                                   uint32_t index,
                                   const struct mst__claim *claim);
/* Whether @node has a place in the server's last round, and the server must know that. */
bool mst__sim_auth_ranks_remember(const struct mst__sim_auth *sim, uint32_t node);
/* The engine etcd-v3: the first write of @round, over @before. */
void mst__sim_auth_ranks_written(struct mst__sim_auth *sim,
                                 const struct mst__sim_auth_round *before,
                                 const struct mst__sim_auth_round *round);

#endif /* MST_SIM_AUTHORITY_H */
