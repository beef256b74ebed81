/* unit/core/session_unit.h - a session alone, and answers to it. */
#ifndef MST_UNIT_CORE_SESSION_UNIT_H
#define MST_UNIT_CORE_SESSION_UNIT_H

#include "unit/core/core_unit.h"

#define SECOND 1000000

/* One session, and the time. */
struct bench {
    struct mst__session session;
    struct mst__effect effect;
    int64_t now_us;
    int64_t wall_us;
    uint64_t version;
    int64_t finished; /* missing in the next read record */
    bool is_past;     /* that record is from wait_change */
};

static inline void bench_open(struct bench *bench,
                              enum mst__session_mode mode,
                              struct mst__settings settings)
{
    *bench = (struct bench){.now_us = 10 * SECOND, .wall_us = WORLD_WALL_US};
    struct mst__session_options options = {
        .node = node_named("b", 1),
        .settings = settings,
        .mode = mode,
        .dialect = MST_RECORD_D4,
        .can_watch = true,
    };
    assert_int_equal(mst__session_init(&bench->session, &options), 0);
}

static inline void bench_close(struct bench *bench)
{
    mst__session_close(&bench->session);
}

static inline enum mst__effect_kind bench_feed(struct bench *bench, struct mst__session_event event)
{
    bench->effect =
        session_feed(&bench->session, &event, bench->wall_us + bench->now_us, bench->now_us);
    return bench->effect.kind;
}

static inline enum mst__effect_kind bench_event(struct bench *bench, enum mst__event_kind kind)
{
    return bench_feed(bench, (struct mst__session_event){.kind = kind});
}

static inline enum mst__effect_kind bench_begin(struct bench *bench, enum mst__operation operation)
{
    return bench_feed(
        bench, (struct mst__session_event){.kind = MST_EVENT_BEGIN,
                                           .operation = operation,
                                           .deadline_us = bench->now_us + 600 * (int64_t)SECOND});
}

/* Answer with @record, of which a copy is given away. */
static inline enum mst__effect_kind bench_record(struct bench *bench,
                                                 enum mst__event_kind kind,
                                                 const struct mst__state *record)
{
    struct mst__state copy;
    mst__state_init(&copy);
    assert_int_equal(mst__state_copy(&copy, record), 0);
    struct mst_buffer token = token_of(++bench->version);
    return bench_feed(bench, (struct mst__session_event){.kind = kind,
                                                         .state = &copy,
                                                         .token = &token,
                                                         .finished = bench->finished,
                                                         .is_past = bench->is_past});
}

static inline enum mst__effect_kind bench_won(struct bench *bench)
{
    struct mst_buffer token = token_of(++bench->version);
    return bench_feed(bench, (struct mst__session_event){.kind = MST_EVENT_WON, .token = &token});
}

/* Let a hold go by, with @record as the answer to the reading after it. */
static inline enum mst__effect_kind bench_hold(struct bench *bench, const struct mst__state *record)
{
    assert_int_equal(bench->effect.kind, MST_EFFECT_WAIT);
    assert_int_equal(bench->session.wait, MST_WAIT_HOLD);
    bench->now_us = bench->effect.until_us;
    assert_int_equal(bench_event(bench, MST_EVENT_TIME), MST_EFFECT_READ);
    return bench_record(bench, MST_EVENT_READ, record);
}

/* A round with a, b and so on: @count of them, all beating now. */
static inline void make_round(struct mst__state *state, int count, bool complete, int64_t stamp_us)
{
    mst__state_init(state);
    for (int i = 0; i < count; i++) {
        char name[2] = {(char)('a' + i), 0};
        state_add_participant(state, node_named(name, 1), complete ? i : 0, stamp_us);
    }
    state->complete = complete;
}

static inline void make_waiting(struct mst__state *state, const char *name, bool is_spare)
{
    mst__peer_id id = state_enter(state, node_named(name, 1));
    assert_int_equal(mst__state_put_heartbeat(state, id, WORLD_WALL_US), 0);
    assert_int_equal(is_spare ? mst__state_put_spare(state, id) : mst__state_put_waiting(state, id),
                     0);
}

static inline const struct mst__peer *written_self(const struct bench *bench)
{
    struct mst__node node = node_named("b", 1);
    mst__peer_id id = mst__state_find(bench->effect.state, &node);
    assert_true(id != MST_PEER_NONE);
    return &bench->effect.state->members[id];
}

static inline void poll_record(struct bench *bench, const struct mst__state *record)
{
    assert_int_equal(bench_begin(bench, MST_OPERATION_POLL), MST_EFFECT_READ);
    assert_int_equal(bench_record(bench, MST_EVENT_READ, record), MST_EFFECT_DONE);
}

#endif /* MST_UNIT_CORE_SESSION_UNIT_H */
