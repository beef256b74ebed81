/* sim/sim.h - shared by the machines of the simulator. Each runs code of the product in virtual
 * time, against an adversary, in its own directory.
 *
 * A seed determines everything: the same seed gives the same history, byte for byte. There is no
 * clock, thread or socket; only main.c measures time. */
#ifndef MST_SIM_SIM_H
#define MST_SIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MST_SIM_SECOND_US INT64_C(1000000)
#define MST_SIM_MILLION 1000000U

/* --- what the adversary does --- */

enum mst__sim_fault {
    MST_SIM_FAULT_RESTART, /* a node enters the next round without need, as after a failure of
                            * its workers */
    MST_SIM_FAULT_CRASH,
    MST_SIM_FAULT_REVIVE,   /* a crashed node comes back as a new one */
    MST_SIM_FAULT_BLACKOUT, /* all nodes crash at once, and come back one by one */
    MST_SIM_FAULT_FREEZE,   /* a node stops for a while without noticing */
    MST_SIM_FAULT_PARTITION,
    MST_SIM_FAULT_LEAVE, /* and comes back after a while */
    MST_SIM_FAULT_CANCEL,
    MST_SIM_FAULT_STEP, /* of a clock */
    MST_SIM_FAULT_WIPE, /* the store restarts without its data */
    MST_SIM_FAULT_CLOSE,
};
#define MST_SIM_FAULT_COUNT (MST_SIM_FAULT_CLOSE + 1)

const char *mst__sim_fault_name(enum mst__sim_fault fault);

/* --- events to come --- */

struct mst__sim_event {
    int64_t time_us;
    uint64_t order; /* among equal times */
    unsigned kind;  /* of the machine */
    uint32_t node;
    uint64_t id;
    int64_t pid;      /* of the sending node */
    uint32_t request; /* the number of the request on its link */
    uint32_t epoch;   /* of the store, at the request or the answer */
    uint8_t *bytes;   /* owned */
    size_t size;
};

struct mst__sim_queue {
    struct mst__sim_event *events; /* a heap */
    size_t count;
    size_t capacity;
    uint64_t order;
};

/* Takes @event's bytes. */
void mst__sim_queue_push(struct mst__sim_queue *queue, struct mst__sim_event event);
/* False if there is none. The bytes belong to the caller. */
bool mst__sim_queue_pop(struct mst__sim_queue *queue, struct mst__sim_event *ret_event);
void mst__sim_queue_close(struct mst__sim_queue *queue);

/* --- what has happened in a run --- */

struct mst__sim_stats {
    uint64_t events;
    uint64_t rounds;  /* completed */
    uint64_t returns; /* results told */
    uint64_t reads;
    uint64_t writes;
    uint64_t losses;
    uint64_t doubts;
    uint64_t torn; /* results of a peer's round that are too small, and no node could know */
    uint64_t late; /* answers that came to a closed link */
    uint64_t faults[MST_SIM_FAULT_COUNT];
    int64_t virtual_us;
    int64_t settle_permille; /* of the time that the group had to settle */
};

#endif /* MST_SIM_SIM_H */
