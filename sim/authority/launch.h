/* sim/authority/launch.h - a launcher in the simulator, and what its rules remember of it. */
#ifndef MST_SIM_AUTHORITY_LAUNCH_H
#define MST_SIM_AUTHORITY_LAUNCH_H

#include "core/agent.h"
#include "sim/authority/authority.h"

#define MST_SIM_LAUNCH_WORKERS_MAX 3
#define MST_SIM_LAUNCH_INBOX_MAX 16
#define MST_SIM_LAUNCH_KILLED_US 1000 /* time from the kill to the end of a process */
#define MST_SIM_LAUNCH_TELL_US (10 * (int64_t)MST_SIM_SECOND_US)
#define MST_SIM_LAUNCH_QUICK_US ((int64_t)MST_SIM_SECOND_US)

struct mst__sim_process {
    bool lives;
    bool fails;
    bool is_stubborn;  /* ends only if it is killed, and answers no notice */
    bool is_noticed;   /* has got notice */
    bool has_answered; /* the notice */
    int64_t answer_us; /* when it answers the notice; INT64_MAX = it does not */
    int64_t end_us;    /* INT64_MAX = it hangs */
    uint32_t signal;   /* the signal that ended it */
};

/* News that the agent has not taken. */
struct mst__sim_news {
    struct mst__agent_event event;
    struct mst__cause cause;
    bool has_cause;
};

/* What the rules know, from what the agent was told and has done. A time is INT64_MAX if it does
 * not apply. */
struct mst__sim_launch_rules {
    bool is_after_failure;     /* that is why the next generation starts */
    uint32_t restarts;         /* as it was told with its ranks */
    int64_t assigned_us;       /* when it had its ranks */
    int64_t started_us;        /* start of the last generation */
    uint32_t quick_count;      /* generations that failed at once, in a row */
    int64_t notice_us;         /* when the notice has to end */
    int64_t drain_us;          /* the same, because of a drain */
    bool is_notice_for_join;   /* only because nodes wait */
    bool must_leave;           /* no generation may start any more */
    int64_t cut_us;            /* since when the rendezvous is out of reach */
    int64_t tell_us;           /* TELLING: when that has to end */
    int64_t over_us;           /* when its workers were told to stop */
    enum mst__agent_phase was; /* before the last event */
    bool has_told;             /* before the last event, it had told everything */
    bool has_ended;            /* before the last event, it was to end */
};

struct mst__sim_auth_launcher {
    struct mst__agent agent;
    struct mst__agent_worker workers[MST_SIM_LAUNCH_WORKERS_MAX];
    struct mst__sim_process processes[MST_SIM_LAUNCH_WORKERS_MAX];
    uint32_t count;
    struct mst__sim_news inbox[MST_SIM_LAUNCH_INBOX_MAX];
    size_t inbox_count;
    int64_t take_us; /* when the agent takes the news */
    int64_t assign_us;
    bool assign_fails;
    int64_t restarts; /* from SEALED */
    uint64_t epoch;
    int64_t round;
    uint32_t rank;
    int64_t away_us; /* how long it stays away after leaving */
    struct mst__sim_launch_rules rules;
};

uint32_t mst__sim_launch_living(const struct mst__sim_auth_launcher *launcher);

/* --- launch_rules.c --- */

void mst__sim_launch_rules_init(struct mst__sim_launch_rules *rules);
/* An event comes. */
void mst__sim_launch_rules_before(struct mst__sim_auth_launcher *launcher);
/* The agent has processed @event; its effects are not carried out yet. */
void mst__sim_launch_rules_after(struct mst__sim_auth *sim,
                                 const struct mst__sim_auth_node *node,
                                 const struct mst__agent_event *event);
/* Check what must not last too long. */
void mst__sim_launch_rules_look(struct mst__sim_auth *sim, const struct mst__sim_auth_node *node);
/* The job has failed, says the agent. */
void mst__sim_launch_rules_failed(struct mst__sim_auth *sim, const struct mst__sim_auth_node *node);

#endif /* MST_SIM_AUTHORITY_LAUNCH_H */
