/* core/settings.h - the settings of a node: limits and times. Microseconds. */
#ifndef MST_CORE_SETTINGS_H
#define MST_CORE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

/* How often a failure may begin a new round of the job. Zeroed: no limit. */
struct mst__budget {
    bool is_limited;
    uint32_t restarts_max;
    /* 0 = in total; else within a window of this length. A window begins with its first restart. */
    int64_t window_us;
};

struct mst__settings {
    int64_t nodes_min, nodes_max;
    int64_t join_us;      /* for one next_rendezvous */
    int64_t last_call_us; /* further wait once nodes_min are there */
    int64_t close_us;     /* for closing */
    int64_t heartbeat_us; /* for one keep-alive */
    int64_t keep_alive_interval_us;
    int64_t keep_alive_max_attempt;
    int64_t clock_skew_us; /* how far other clocks may be off before a stamp counts by itself */
    struct mst__budget budget;
};

#endif /* MST_CORE_SETTINGS_H */
