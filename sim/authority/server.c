/* sim/authority/server.c - the server of the engine muster, like the product's, around the same
 * machine: seats of connections, effects as frames at the end of each turn of the loop, one
 * timer. */
#include <inttypes.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/mem.h"
#include "sim/authority/authority.h"

#define SECOND_US MST_SIM_SECOND_US

/* Members that may be checked for every event. */
#define CHECK_MEMBERS 64

static void server_trace(void *arg,
                         enum mst__authority_phase from,
                         enum mst__authority_phase to,
                         enum mst__authority_why why,
                         int64_t round)
{
    struct mst__sim_auth *sim = arg;
    struct mst__sim_auth_server *server = &sim->server;
    if (to == MST_AUTHORITY_RUNNING && why != MST_AUTHORITY_WHY_WHOLE) {
        server->sealed_claim =
            server->claiming > server->claimed_max ? server->claiming : server->claimed_max;
        server->sealed_shut = server->is_shut;
        mst__sim_auth_ranks_sealed(sim);
    } else if (to == MST_AUTHORITY_RECLAIMING) {
        mst__sim_auth_ranks_adopted(sim);
    }
    mst__sim_auth_work_moved(sim, from, to, why);
    mst__sim_auth_say(sim, MST_SIM_AUTH_NOBODY, "%s -> %s: %s, round %" PRId64,
                      mst__authority_phase_name(from), mst__authority_phase_name(to),
                      mst__authority_why_name(why), round);
}

/* --- life --- */

void mst__sim_auth_server_start(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_server *server = &sim->server;
    server->starts++;
    bool goes_back = sim->plan.steps_back && mst__sim_auth_chance(sim, 300000);
    server->epoch = goes_back ? server->epoch - 100 - server->starts
                              : server->epoch + 1000 + (uint64_t)server->starts;
    server->has_job = false;
    server->has_turn = false;
    server->due = ++sim->serials;
    mst__listening_init(&server->listening);
}

static void server_forget(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_server *server = &sim->server;
    if (server->has_job) {
        mst__authority_close(&server->authority);
        mst__sim_auth_work_forget(sim);
    }
    for (size_t i = 0; i < sim->links_count && !server->is_stopping; i++) {
        const struct mst__sim_auth_link *link = sim->links[i];
        if (link->is_open_server && link->is_seated) {
            mst__sim_auth_break(sim, "driver",
                                "connection %" PRIu64 " has a seat in a run that is forgotten",
                                link->id);
        }
    }
    server->has_job = false;
    sim->is_closed = false;
}

void mst__sim_auth_server_stop(struct mst__sim_auth *sim)
{
    sim->server.is_stopping = true;
    server_forget(sim);
    sim->server.is_stopping = false;
    for (size_t i = 0; i < sim->server.inbox_count; i++) {
        const struct mst__sim_event *event = &sim->server.inbox[i];
        struct mst__sim_auth_link *link = sim->links[event->id - 1];
        if (!link->is_accepted && !link->is_torn) {
            link->is_torn = true; /* never accepted */
            mst__sim_auth_link_close(sim, link, true, false);
        }
        mst__free(event->bytes);
    }
    sim->server.inbox_count = 0;
    for (size_t i = 0; i < sim->links_count; i++) {
        struct mst__sim_auth_link *link = sim->links[i];
        if (link->is_accepted && link->is_open_server) {
            link->is_seated = false;
            /* Some nodes notice at once, others at their next message. */
            mst__sim_auth_link_close(sim, link, true, mst__sim_auth_chance(sim, 300000));
        }
    }
}

static void server_job(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_server *server = &sim->server;
    if (server->has_job) {
        return;
    }
    const struct mst__authority_options options = {
        .epoch = server->epoch++,
        .expiry_us = sim->plan.expiry_us,
        .grace_us = sim->plan.grace_us,
        .reclaim_us = sim->plan.reclaim_us,
        .return_us = INT64_MAX,
        .members_max = 4 * MST_SIM_AUTH_NODES_MAX,
        .hash_key = {7},
        .trace = server_trace,
        .trace_arg = sim,
    };
    mst__authority_init(&server->authority, &options);
    server->has_job = true;
    server->is_shut = false;
    server->idle_us = INT64_MAX;
    server->claimed_max = 0;
    server->sealed_max = 0;
    server->fixed_world = 0;
    server->adopted_round = 0;
    server->adopted_epoch = 0;
    server->roster.world = 0;
    mst__sim_auth_journal_job(sim);
}

static int server_step(struct mst__sim_auth *sim,
                       const struct mst__authority_event *event,
                       struct mst_err *reterr)
{
    struct mst__sim_auth_server *server = &sim->server;
    const struct mst__authority *authority = &server->authority;
    int rv = mst__authority_step(&server->authority, event, reterr);
    mst__sim_auth_journal_step(sim, event);
    server->fixed_world = authority->living_count == 0 ? 0 : server->fixed_world;
    server->steps++;
    if (authority->used_count <= CHECK_MEMBERS || server->steps > authority->used_count) {
        mst__authority_check(authority);
        server->steps = 0;
    }
    return rv;
}

/* Feed an event of the node with the seat of @link. */
static int seat_step(struct mst__sim_auth *sim,
                     const struct mst__sim_auth_link *link,
                     enum mst__authority_event_kind kind)
{
    struct mst__authority_event event = {.kind = kind, .now_us = sim->now_us, .id = link->seat};
    if (kind == MST_AUTHORITY_EVENT_DISCONNECTED) {
        event.driver = link;
    }
    return server_step(sim, &event, NULL);
}

/* End the waiting of the loop. */
static void server_want_turn(struct mst__sim_auth *sim, int64_t delay_us)
{
    struct mst__sim_auth_server *server = &sim->server;
    if (!server->has_turn) {
        server->has_turn = true;
        mst__sim_auth_at(sim, sim->now_us + delay_us, MST_SIM_AUTH_TURN,
                         (struct mst__sim_event){.request = server->starts});
    }
}

static int64_t server_end_us(const struct mst__sim_auth *sim)
{
    const struct mst__sim_auth_server *server = &sim->server;
    if (server->idle_us == INT64_MAX) {
        return INT64_MAX;
    }
    bool is_blank = server->authority.phase == MST_AUTHORITY_OPEN && server->authority.round == 0;
    return server->idle_us + (is_blank ? 0 : sim->plan.forget_us);
}

static int64_t server_due_us(const struct mst__sim_auth *sim)
{
    int64_t due_us = mst__authority_due_us(&sim->server.authority);
    int64_t end_us = server_end_us(sim);
    return end_us < due_us ? end_us : due_us;
}

static void server_schedule(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_server *server = &sim->server;
    if (server->authority.living_count > 0) {
        server->idle_us = INT64_MAX;
    } else if (server->idle_us == INT64_MAX) {
        server->idle_us = sim->now_us;
    }
    if (server_end_us(sim) <= server->listening.heard_us) {
        mst__sim_auth_say(sim, MST_SIM_AUTH_NOBODY, "forgets the run");
        server_forget(sim);
        return;
    }
    int64_t due_us = server_due_us(sim);
    server->due = ++sim->serials;
    if (due_us <= sim->now_us) {
        server_want_turn(sim, 1 + mst__sim_auth_below(sim, 100));
    } else if (due_us != INT64_MAX) {
        int64_t delay_us = (due_us - sim->now_us + 999) / 1000 * 1000;
        mst__sim_auth_at(sim, sim->now_us + delay_us, MST_SIM_AUTH_DUE,
                         (struct mst__sim_event){.id = server->due});
    }
}

void mst__sim_auth_server_due(struct mst__sim_auth *sim)
{
    server_want_turn(sim, 0);
}

/* Feed the time, if something is due. */
static void server_tick(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_server *server = &sim->server;
    const struct mst__listening *listening = &server->listening;
    if (!server->has_job ||
        mst__listening_judge(listening, server_due_us(sim), sim->now_us) != MST_LISTENING_DUE) {
        return;
    }
    const struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_TIME,
                                               .now_us = listening->heard_us};
    (void)server_step(sim, &event, NULL); /* always 0 */
}

/* --- effects --- */

static void server_write(struct mst__sim_auth *sim, const struct mst__job_message *message)
{
    mst__buf_clear(&sim->server.shared);
    int rv = mst__job_write(&sim->server.shared, message);
    MST_ASSERT(rv == 0);
}

static void tell_link(struct mst__sim_auth *sim, void *driver)
{
    struct mst__sim_auth_link *link = driver;
    if (link == NULL) {
        return;
    }
    if (!link->is_open_server || link->server != sim->server.starts) {
        mst__sim_auth_break(sim, "driver",
                            "a message for node %" PRIu32 " over connection %" PRIu64
                            ", which is gone",
                            link->node, link->id);
        return;
    }
    mst__sim_auth_link_send(sim, link, false, false, mst__buf_bytes(&sim->server.shared));
}

static void tell_many(struct mst__sim_auth *sim,
                      bool is_to_all,
                      const struct mst__job_message *message)
{
    struct mst__buf *shared = &sim->server.shared;
    const struct mst__authority *authority = &sim->server.authority;
    server_write(sim, message);
    const struct mst__authority_member *member;
    uint32_t cursor = 0;
    while ((member = is_to_all ? mst__authority_next_member(authority, &cursor)
                               : mst__authority_next_holder(authority, &cursor)) != NULL) {
        if (message->type == MST_JOB_SEALED) {
            mst__job_patch_ranks(shared->memory + shared->start, mst__buf_size(shared),
                                 member->rank, &member->worker_ranks);
        }
        tell_link(sim, member->driver);
    }
}

static void tell_whom(struct mst__sim_auth *sim,
                      const struct mst__authority_effect *effect,
                      const struct mst__job_message *message)
{
    if (effect->id == MST_AUTHORITY_NOBODY) {
        tell_many(sim, false, message);
    } else {
        server_write(sim, message);
        tell_link(sim, effect->driver);
    }
}

static void tell_waiting(struct mst__sim_auth *sim, const struct mst__authority_effect *effect)
{
    const struct mst__job_message message = {.type = MST_JOB_WAITING,
                                             .u.waiting = {.count = effect->waiting_count}};
    tell_whom(sim, effect, &message);
}

static void tell_lost(struct mst__sim_auth *sim, const struct mst__authority_effect *effect)
{
    if (effect->lost_total == 0) {
        return;
    }
    struct mst__job_message message = {.type = MST_JOB_LOST};
    message.u.lost.round = effect->round;
    message.u.lost.count = (uint32_t)(effect->lost_count + effect->lost_unlisted);
    message.u.lost.total = (uint32_t)effect->lost_total;
    tell_whom(sim, effect, &message);
}

static void tell_round(struct mst__sim_auth *sim, const struct mst__authority_effect *effect)
{
    enum mst__job_type type = effect->kind == MST_TOLD_SEALED   ? MST_JOB_SEALED
                              : effect->kind == MST_TOLD_QUEUED ? MST_JOB_QUEUED
                                                                : MST_JOB_SPARE;
    const struct mst__job_message message = {.type = type,
                                             .u.round = {.epoch = effect->epoch,
                                                         .round = effect->round,
                                                         .world = effect->world,
                                                         .rank = effect->rank,
                                                         .address = effect->address,
                                                         .restarts = effect->restarts,
                                                         .start = (uint32_t)effect->start,
                                                         .worker_ranks = effect->worker_ranks}};
    tell_whom(sim, effect, &message);
    if (effect->kind == MST_TOLD_SEALED && effect->id != MST_AUTHORITY_NOBODY &&
        effect->waiting_count > 0) {
        tell_waiting(sim, effect);
    }
}

static void tell_effect(struct mst__sim_auth *sim, const struct mst__authority_effect *effect)
{
    struct mst__job_message message = {.type = MST_JOB_REOPENED};
    switch (effect->kind) {
        case MST_TOLD_SEALED:
            if (effect->id == MST_AUTHORITY_NOBODY) {
                mst__sim_auth_check_seal(sim, effect);
            }
            tell_round(sim, effect);
            return;
        case MST_TOLD_QUEUED:
        case MST_TOLD_SPARE:
            tell_round(sim, effect);
            return;
        case MST_TOLD_EXPELLED:
            message.type = MST_JOB_EXPELLED;
            message.u.text = mst_bytes_str(effect->text);
            server_write(sim, &message);
            tell_link(sim, effect->driver);
            if (effect->driver != NULL) {
                mst__sim_auth_check_expelled(sim, effect->driver);
                ((struct mst__sim_auth_link *)effect->driver)->is_seated = false;
            }
            return;
        case MST_TOLD_LOST:
            mst__sim_auth_check_lost(sim, effect);
            tell_lost(sim, effect);
            return;
        case MST_TOLD_REOPENED:
            if (effect->id != MST_AUTHORITY_NOBODY) {
                tell_lost(sim, effect);
            }
            message.u.reopened.round_next = effect->round_next;
            message.u.reopened.why = (uint32_t)effect->why;
            message.u.reopened.rank = effect->rank;
            message.u.reopened.end.has_cause = effect->has_cause;
            message.u.reopened.end.cause = effect->cause;
            tell_whom(sim, effect, &message);
            return;
        case MST_TOLD_WAITING:
            tell_waiting(sim, effect);
            return;
        case MST_TOLD_CLOSED:
            message.type = MST_JOB_CLOSED;
            message.u.closed.reason = mst_bytes_str(effect->text);
            message.u.closed.owner = mst_bytes_str(effect->owner);
            message.u.closed.end = (struct mst__job_end){.outcome = (uint32_t)effect->outcome,
                                                         .has_cause = effect->has_cause,
                                                         .cause = effect->cause};
            tell_many(sim, true, &message);
            return;
    }
}

static void server_tell(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_server *server = &sim->server;
    if (!server->has_job) {
        return;
    }
    struct mst__authority_effect effect;
    while (!sim->is_over && mst__authority_next_effect(&server->authority, &effect)) {
        mst__sim_auth_journal_told(sim, &effect);
        tell_effect(sim, &effect);
    }
    mst__sim_auth_journal_taken(sim);
    mst__sim_auth_work_check_turn(sim);
    if (server->is_shut != (server->authority.phase == MST_AUTHORITY_CLOSED)) {
        mst__sim_auth_break(sim, "closed", "the run is %s and was%s closed",
                            mst__authority_phase_name(server->authority.phase),
                            server->is_shut ? "" : " not");
    }
    server_schedule(sim);
}

/* --- the loop --- */

void mst__sim_auth_server_arrived(struct mst__sim_auth *sim, struct mst__sim_event *event)
{
    struct mst__sim_auth_server *server = &sim->server;
    if (server->inbox_count == server->inbox_capacity) {
        server->inbox_capacity = server->inbox_capacity == 0 ? 64 : 2 * server->inbox_capacity;
        server->inbox = mst__realloc(server->inbox, server->inbox_capacity * sizeof *server->inbox);
        MST_ASSERT(server->inbox != NULL);
    }
    server->inbox[server->inbox_count++] = *event;
    event->bytes = NULL;
    server_want_turn(sim, mst__sim_auth_below(sim, 2000));
}

/* Accept new connections, and read what has arrived on the others. */
static void server_poll(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_server *server = &sim->server;
    size_t count = server->inbox_count;
    server->inbox_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct mst__sim_event *event = &server->inbox[i];
        if (sim->is_over || mst__sim_auth_link_read(sim, event)) {
            mst__free(event->bytes);
        } else {
            server->inbox[server->inbox_count++] = *event;
        }
    }
    if (server->inbox_count > 0) {
        server_want_turn(sim, 0);
    }
}

/* As in the product's loop, a timer only begins a turn. */
void mst__sim_auth_server_turn(struct mst__sim_auth *sim)
{
    struct mst__sim_auth_server *server = &sim->server;
    server->has_turn = false;
    server->turns++;
    mst__listening_poll(&server->listening, sim->now_us);
    server_poll(sim);
    server_tick(sim);
    server_tell(sim);
}

/* --- messages --- */

/* Take the seat of @link away, also in the machine. */
static void seat_leave(struct mst__sim_auth *sim, struct mst__sim_auth_link *link)
{
    if (link->is_seated) {
        (void)seat_step(sim, link, MST_AUTHORITY_EVENT_DISCONNECTED); /* perhaps over already */
    }
    link->is_seated = false;
    link->seat = MST_AUTHORITY_NOBODY;
}

static void reply(struct mst__sim_auth *sim,
                  struct mst__sim_auth_link *link,
                  const struct mst__job_message *message)
{
    struct mst__buf *replies = &sim->server.replies;
    mst__buf_clear(replies);
    int rv = mst__job_write(replies, message);
    MST_ASSERT(rv == 0);
    mst__sim_auth_link_send(sim, link, false, false, mst__buf_bytes(replies));
}

/* Tell the node that its session is over. */
static void reply_expelled(struct mst__sim_auth *sim, struct mst__sim_auth_link *link)
{
    const struct mst__job_message message = {
        .type = MST_JOB_EXPELLED,
        .u.text = mst_bytes_str("not heard of in time, or replaced by a newer process")};
    mst__sim_auth_check_expelled(sim, link);
    reply(sim, link, &message);
}

static struct mst__job_end server_end(const struct mst__authority *authority)
{
    bool has_cause = authority->outcome == MST_JOB_OUTCOME_FAILED;
    return (struct mst__job_end){.outcome = (uint32_t)authority->outcome,
                                 .has_cause = has_cause,
                                 .cause = has_cause ? mst__authority_cause(authority)
                                                    : (struct mst__cause){.rank = 0}};
}

static void take_announce(struct mst__sim_auth *sim,
                          struct mst__sim_auth_link *link,
                          const struct mst__job_announce *announce)
{
    struct mst__sim_auth_server *server = &sim->server;
    server_job(sim);
    struct mst__authority *authority = &server->authority;
    struct mst__announcement announcement = announce->announcement;
    announcement.labels = announce->labels;
    announcement.wall_here_us = sim->now_us;
    announcement.driver = link;
    announcement.contact = link->id;
    mst__authority_id known = mst__authority_find(authority, announcement.name);
    const struct mst__authority_member *before = mst__authority_get(authority, known);
    struct mst__sim_auth_link *other = before == NULL ? NULL : before->driver;
    uint64_t contact = before == NULL ? 0 : before->contact;
    const struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_ANNOUNCED,
                                               .now_us = sim->now_us,
                                               .announcement = &announcement};
    struct mst_err err = {0};
    server->claiming = announcement.claim.round;
    bool was_shut = server->is_shut;
    int rv = server_step(sim, &event, &err);
    server->claiming = 0;
    mst__authority_id id = authority->announced;
    enum mst__refusal refusal = authority->refusal;
    if (rv != 0) {
        mst__sim_auth_say(sim, MST_SIM_AUTH_NOBODY, "refuses: %s", err.msg);
        mst__sim_auth_check_unclaimed(sim, link, &announcement, refusal);
        const struct mst__job_message message = {
            .type = MST_JOB_REFUSED,
            .u.refused = {.code = rv,
                          .refusal = (uint32_t)refusal,
                          .text = mst_bytes_str(err.msg),
                          .end = server_end(authority)},
        };
        reply(sim, link, &message);
        return;
    }
    mst__sim_auth_check_announced(sim, link, &announcement, contact, was_shut);
    if (link->is_seated && link->seat != id) {
        bool was_over = seat_step(sim, link, MST_AUTHORITY_EVENT_LEFT) != 0;
        seat_leave(sim, link);
        if (was_over) {
            reply_expelled(sim, link);
        }
    }
    if (known == id && other != NULL && other != link) {
        /* Later messages on the older connection are obsolete. */
        seat_leave(sim, other);
        mst__sim_auth_link_close(sim, other, true, false);
    }
    link->is_seated = true;
    link->seat = id;
    const struct mst__authority_member *member = mst__authority_get(authority, id);
    MST_ASSERT(member != NULL);
    const struct mst__job_message message = {
        .type = MST_JOB_WELCOME,
        .u.welcome = {.version = sim->plan.is_old ? 1 : MST_JOB_VERSION,
                      .epoch = authority->options.epoch,
                      .has_skew = member->has_skew,
                      .skew_us = member->skew_us,
                      .server = mst_bytes_str("sim")},
    };
    reply(sim, link, &message);
}

static void take_heartbeat(struct mst__sim_auth *sim,
                           struct mst__sim_auth_link *link,
                           bool wants_pong)
{
    if (!link->is_seated) {
        return;
    }
    if (seat_step(sim, link, MST_AUTHORITY_EVENT_HEARD) != 0) {
        seat_leave(sim, link);
        reply_expelled(sim, link);
    } else if (wants_pong) {
        const struct mst__job_message message = {.type = MST_JOB_PONG};
        reply(sim, link, &message);
    }
}

/* Tell the standing of the node that asks. */
static void take_status(struct mst__sim_auth *sim, struct mst__sim_auth_link *link)
{
    const struct mst__authority *authority = &sim->server.authority;
    const struct mst__authority_member *member =
        link->is_seated ? mst__authority_get(authority, link->seat) : NULL;
    struct mst__buf members;
    mst__buf_init(&members, MST_KIB(1));
    struct mst__job_message message = {.type = MST_JOB_STATUS_TOLD,
                                       .u.status = {.sentence = mst_bytes_str("few are here")}};
    if (member != NULL) {
        const struct mst__job_member told = {
            .name = mst__authority_name(member),
            .standing = (uint32_t)mst__authority_standing(authority, member),
            .rank = member->rank};
        int rv = mst__job_member_write(&members, &told);
        MST_ASSERT(rv == 0);
        message.u.status.member_count = 1;
        message.u.status.members = mst__buf_bytes(&members);
    }
    reply(sim, link, &message);
    mst__buf_close(&members);
}

static void take_leave(struct mst__sim_auth *sim, struct mst__sim_auth_link *link)
{
    link->has_parted = true;
    if (!link->is_seated) {
        return;
    }
    (void)seat_step(sim, link, MST_AUTHORITY_EVENT_LEFT); /* perhaps over already */
    seat_leave(sim, link);
}

static void take_close(struct mst__sim_auth *sim, struct mst__sim_auth_link *link)
{
    server_job(sim);
    struct mst__authority *authority = &sim->server.authority;
    const struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_SHUT,
                                               .now_us = sim->now_us,
                                               .reason = mst_bytes_str("done"),
                                               .owner = mst_bytes_str("somebody")};
    (void)server_step(sim, &event, NULL); /* perhaps closed already */
    const struct mst__job_message message = {
        .type = MST_JOB_CLOSED,
        .u.closed = {.reason = mst_bytes_str(authority->close_reason),
                     .owner = mst_bytes_str(authority->close_owner),
                     .end = server_end(authority)},
    };
    reply(sim, link, &message);
}

/* A report, FINISH or RESTART, on the current connection of the node. */
static void take_word(struct mst__sim_auth *sim,
                      struct mst__sim_auth_link *link,
                      const struct mst__job_message *message)
{
    struct mst__authority *authority = &sim->server.authority;
    if (sim->plan.is_old) {
        mst__sim_auth_break(sim, "told", "an old server hears '%s'",
                            mst__job_type_name(message->type));
        return;
    }
    if (!link->is_seated) {
        return;
    }
    const struct mst__authority_member *member = mst__authority_get(authority, link->seat);
    if (member != NULL && member->driver != link) {
        return;
    }
    mst__sim_auth_work_word(sim, link, message);
    bool is_finish = message->type == MST_JOB_FINISH;
    const struct mst__authority_event event = {
        .kind = is_finish ? MST_AUTHORITY_EVENT_FINISHED : MST_AUTHORITY_EVENT_FAILED,
        .now_us = sim->now_us,
        .id = link->seat,
        .epoch = is_finish ? message->u.finish.epoch : message->u.restart.epoch,
        .round = is_finish ? message->u.finish.round : message->u.restart.round,
        .cause = &message->u.restart.cause};
    int rv = server_step(sim, &event, NULL);
    mst__sim_auth_work_decided(sim);
    if (rv == MST_ENOTFOUND) {
        seat_leave(sim, link);
        reply_expelled(sim, link);
    }
}

static void take_leaving(struct mst__sim_auth *sim,
                         struct mst__sim_auth_link *link,
                         const struct mst__job_leaving *leaving)
{
    const struct mst__authority_member *member =
        mst__authority_get(&sim->server.authority, link->seat);
    if (!link->is_seated || (member != NULL && member->driver != link)) {
        return;
    }
    mst__sim_auth_work_leaving(sim, link, leaving);
    const struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_LEAVING,
                                               .now_us = sim->now_us,
                                               .id = link->seat,
                                               .epoch = leaving->epoch,
                                               .round = leaving->round,
                                               .in_us = leaving->in_us};
    if (server_step(sim, &event, NULL) == MST_ENOTFOUND) {
        seat_leave(sim, link);
        reply_expelled(sim, link);
    }
}

static void take(struct mst__sim_auth *sim,
                 struct mst__sim_auth_link *link,
                 const struct mst__job_message *message)
{
    switch (message->type) {
        case MST_JOB_ANNOUNCE:
            take_announce(sim, link, &message->u.announce);
            return;
        case MST_JOB_HEARTBEAT:
            take_heartbeat(sim, link, message->u.heartbeat.wants_pong);
            return;
        case MST_JOB_LEAVE:
            take_leave(sim, link);
            return;
        case MST_JOB_STATUS:
            take_status(sim, link);
            return;
        case MST_JOB_FINISH:
        case MST_JOB_RESTART:
            take_word(sim, link, message);
            return;
        case MST_JOB_LEAVING:
            take_leaving(sim, link, &message->u.leaving);
            return;
        case MST_JOB_CLOSE:
            take_close(sim, link);
            return;
        default:
            mst__sim_auth_break(sim, "told", "the server hears '%s'",
                                mst__job_type_name(message->type));
    }
}

void mst__sim_auth_server_receive(struct mst__sim_auth *sim,
                                  struct mst__sim_auth_link *link,
                                  struct mst_bytes bytes)
{
    while (bytes.size > 0 && !sim->is_over) {
        struct mst__job_message message;
        struct mst_err err = {0};
        size_t size = 0;
        int rv = mst__job_read(bytes, MST_MIB(1), &message, &size, &err);
        if (rv != 1) {
            mst__sim_auth_break(sim, "told", "a frame that cannot be read: %s", err.msg);
            return;
        }
        take(sim, link, &message);
        bytes = mst_bytes_of(bytes.data + size, bytes.size - size);
    }
}

void mst__sim_auth_server_hangup(struct mst__sim_auth *sim, struct mst__sim_auth_link *link)
{
    seat_leave(sim, link);
    link->is_open_server = false;
}
