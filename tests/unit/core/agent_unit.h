/* unit/core/agent_unit.h - the machine of a launcher with short names for events, and a log of its
 * effects, as text. */
#ifndef MST_UNIT_AGENT_UNIT_H
#define MST_UNIT_AGENT_UNIT_H

#include <muster/error.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "core/agent.h"
#include "unit/unit.h"

#define SECOND_US 1000000
#define TERM 15
#define USR1 10
#define INT 2

static struct mst__agent agent;
static struct mst__agent_worker workers[4];
static struct mst__agent_options options;
static char told[512];

static inline void print_effects(void)
{
    static const char *const names[] = {
        [MST_AGENT_WANT] = "want",       [MST_AGENT_ASSIGN] = "assign",
        [MST_AGENT_START] = "start",     [MST_AGENT_SIGNAL] = "signal",
        [MST_AGENT_KILL] = "kill",       [MST_AGENT_FINISH] = "finish",
        [MST_AGENT_RESTART] = "restart", [MST_AGENT_CLOSE] = "close",
        [MST_AGENT_LEAVE] = "leave",     [MST_AGENT_END] = "end",
    };
    size_t size = strlen(told);
    for (size_t i = 0; i < agent.effects_count; i++) {
        const struct mst__agent_effect *effect = &agent.effects[i];
        char detail[40] = "";
        if (effect->kind == MST_AGENT_SIGNAL && effect->worker != MST_AGENT_ALL) {
            (void)snprintf(detail, sizeof detail, " %u@%u", effect->signal, effect->worker);
        } else if (effect->kind == MST_AGENT_SIGNAL) {
            (void)snprintf(detail, sizeof detail, " %u", effect->signal);
        } else if (effect->kind == MST_AGENT_RESTART) {
            (void)snprintf(detail, sizeof detail, " %u:%d/%u", effect->cause->worker,
                           effect->cause->status, effect->cause->signal);
        } else if (effect->kind == MST_AGENT_END) {
            (void)snprintf(detail, sizeof detail, " %d", (int)agent.end);
        }
        int count =
            snprintf(told + size, sizeof told - size, "%s%s; ", names[effect->kind], detail);
        assert_in_range(count, 1, (int)(sizeof told - size) - 1);
        size += (size_t)count;
    }
}

#define assert_effects(text)             \
    do {                                 \
        assert_string_equal(told, text); \
        told[0] = '\0';                  \
    } while (0)

static inline int reset(void **state)
{
    (void)state;
    options = (struct mst__agent_options){
        .workers = workers,
        .workers_count = 2,
        .stop_signal = TERM,
        .grace_us = 30 * SECOND_US,
        .kill_us = 5 * SECOND_US,
        .startup_us = INT64_MAX,
        .hang_us = INT64_MAX,
        .cut_us = 60 * SECOND_US,
        .tell_us = 10 * SECOND_US,
        .again_us = SECOND_US,
        .leave_us = 2 * SECOND_US,
        .restarts_max = UINT32_MAX,
    };
    told[0] = '\0';
    return 0;
}

static inline void begin(void)
{
    mst__agent_init(&agent, &options, 100 * SECOND_US);
    print_effects();
    assert_effects("want; ");
}

static inline void step(struct mst__agent_event event)
{
    event.now_us = agent.now_us;
    mst__agent_step(&agent, &event);
    mst__agent_check(&agent);
    print_effects();
}

static inline void happens(enum mst__agent_event_kind kind)
{
    step((struct mst__agent_event){.kind = kind});
}

static inline void pass(int64_t us)
{
    struct mst__agent_event event = {.kind = MST_AGENT_EVENT_TIME, .now_us = agent.now_us + us};
    mst__agent_step(&agent, &event);
    mst__agent_check(&agent);
    print_effects();
}

static inline void assigned(uint32_t restarts)
{
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_ASSIGNED, .restarts = restarts});
}

static inline void exits(uint32_t worker, int32_t status, uint32_t signal)
{
    step((struct mst__agent_event){
        .kind = MST_AGENT_EVENT_EXITED, .worker = worker, .status = status, .signal = signal});
}

static inline void over(enum mst__agent_reason reason)
{
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_OVER, .reason = reason});
}

static inline void others_wait(uint32_t count)
{
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_WAITING, .count = count});
}

static inline void signalled(uint32_t signal)
{
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_SIGNAL, .signal = signal});
}

static inline void hastened(uint32_t signal)
{
    step((struct mst__agent_event){
        .kind = MST_AGENT_EVENT_SIGNAL, .signal = signal, .hastens = true});
}

static inline void hears(uint32_t worker)
{
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_HEARS, .worker = worker});
}

static inline void saves(uint32_t worker)
{
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_SAVED, .worker = worker});
}

static inline void beats(uint32_t worker)
{
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_BEAT, .worker = worker});
}

/* A request to leave within @us; INT64_MAX = as the options say. */
static inline void drain(int64_t us)
{
    step((struct mst__agent_event){
        .kind = MST_AGENT_EVENT_DRAIN,
        .deadline_us = us == INT64_MAX ? INT64_MAX : agent.now_us + us,
    });
}

static inline void cut(void)
{
    struct mst_err err;
    (void)mst__fail(&err, MST_ECONN, 0, "gone");
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_CUT, .err = &err});
}

static inline void untold(void)
{
    struct mst_err err;
    (void)mst__fail(&err, MST_ECONN, 0, "silence");
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_UNTOLD, .err = &err});
}

static inline void told_all(void)
{
    happens(MST_AGENT_EVENT_TOLD);
}

static inline void both_exit(void)
{
    exits(0, 0, TERM);
    exits(1, 0, TERM);
}

static inline bool is_due_in(int64_t us)
{
    return mst__agent_due_us(&agent) == agent.now_us + us;
}

static inline void closed(enum mst__job_outcome outcome, const struct mst__cause *cause)
{
    step((struct mst__agent_event){.kind = MST_AGENT_EVENT_CLOSED,
                                   .outcome = outcome,
                                   .cause = cause,
                                   .text = mst_bytes_str("why")});
}

/* The round is complete and the workers run. */
static inline void run(uint32_t restarts)
{
    happens(MST_AGENT_EVENT_SEALED);
    assert_effects("assign; ");
    assigned(restarts);
    assert_effects("start; ");
    assert_int_equal(agent.phase, MST_AGENT_RUNNING);
    assert_int_equal(agent.restarts, restarts);
}

/* One generation of a single worker that fails after @us, which is told. */
static inline void fails_after(int64_t us)
{
    run(0);
    pass(us);
    exits(0, 1, 0);
    told_all();
}

#endif /* MST_UNIT_AGENT_UNIT_H */
