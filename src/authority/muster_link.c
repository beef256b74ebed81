/* authority/muster_link.c - drives the member machine over the connection to the server. Stores
 * of rounds use other connections, so that their data never delays a heartbeat. */
#include <stdio.h>

#include "authority/muster_self.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/number.h"
#include "base/until.h"
#include "core/expire.h"

/* Time for one attempt to connect. */
#define CONNECT_MS 5000

/* @us in milliseconds, rounded up. */
static int64_t ms_after(int64_t us)
{
    return us == INT64_MAX ? INT64_MAX : us / 1000 + 1;
}

void mst__muster_member(struct mst__muster *muster)
{
    const struct mst__muster_settings *settings = &muster->settings;
    const struct mst__settings *job = &settings->job;
    int64_t expiry_ms = mst__expire_after_us(job) / 1000;
    const struct mst__member_options options = {
        .self = {.name = mst_bytes_str(muster->node),
                 .incarnation = (uint64_t)mst__clock_wall_us(), /* larger for a later start */
                 .session = mst__clock_random_u64(),
                 .labels = settings->labels,
                 .labels_count = settings->labels_count,
                 .nodes_min = (uint32_t)job->nodes_min,
                 .nodes_max = (uint32_t)job->nodes_max,
                 .last_call_us = job->last_call_us,
                 .rank_by = mst_bytes_str(settings->rank_by),
                 .pinned_rank = settings->pinned_rank,
                 .budget = job->budget,
                 .is_fixed = settings->is_fixed,
                 .workers = settings->workers,
                 .role = mst_bytes_str(settings->role)},
        .run_id = mst_bytes_str(muster->params->run_id),
        .is_new = settings->is_new,
        .where = muster->where,
        .beat_us = job->keep_alive_interval_us,
        .expiry_us = expiry_ms < 1 ? 1000 : expiry_ms * 1000,
        .beats_per_answer = job->keep_alive_max_attempt,
        .seed = mst__clock_random_u64(),
    };
    mst__member_init(&muster->member, &options);
    muster->notices = (struct mst__notices){.member = &muster->member,
                                            .events = &muster->events,
                                            .params = muster->params,
                                            .view = &muster->head.view,
                                            .where = muster->where};
}

/* --- effects --- */

static void link_close(struct mst__muster *muster)
{
    mst__job_client_close(muster->client);
    muster->client = NULL;
}

/* Send without interruption: half a message would break the connection. */
static int link_send(struct mst__muster *muster,
                     const struct mst__job_message *message,
                     struct mst_err *reterr)
{
    if (muster->client == NULL) {
        return mst__fail(reterr, MST_ECONN, 0, "%.60s: no connection", muster->where);
    }
    return mst__job_client_send(muster->client, message, mst__until_in(MST_MUSTER_SEND_MS), reterr);
}

static int link_say(struct mst__muster *muster,
                    const struct mst__member_effect *effect,
                    struct mst_err *reterr)
{
    struct mst__job_message message;
    mst__member_message(&muster->member, effect, &message);
    if (message.type == MST_JOB_ANNOUNCE) {
        message.u.announce.announcement.has_wall = true;
        message.u.announce.announcement.wall_us = mst__clock_wall_us();
    }
    int rv = link_send(muster, &message, reterr);
    if (message.type == MST_JOB_LEAVE) {
        muster->part_rv = rv;
        return 0; /* the connection ends in any case */
    }
    return rv;
}

static int link_ask_why(struct mst__muster *muster, struct mst_err *reterr)
{
    const struct mst__job_message question = {
        .type = MST_JOB_STATUS, .u.question.run_id = mst_bytes_str(muster->params->run_id)};
    return link_send(muster, &question, reterr);
}

static void link_end(struct mst__muster *muster, bool is_parting)
{
    if (is_parting && muster->part_rv == 0) {
        mst__job_client_finish(muster->client, mst__until_in(muster->part_ms));
        muster->client = NULL;
    }
    link_close(muster);
}

static void begin_round(struct mst__muster *muster, const struct mst__job_round *round)
{
    size_t size = round->address.size < sizeof muster->master ? round->address.size : 0;
    (void)snprintf(muster->master, sizeof muster->master, "%.*s", (int)size,
                   (const char *)round->address.data);
    muster->round = *round;
    muster->round.address = mst_bytes_str(muster->master);
    muster->sealed_ms = mst__clock_ms();
    mst__notices_begin_round(&muster->notices);
}

/* Carry out @effect. Returns 0, or an error if the connection is broken. */
static int link_effect(struct mst__muster *muster,
                       const struct mst__member_effect *effect,
                       struct mst_err *reterr)
{
    switch (effect->kind) {
        case MST_MEMBER_CONNECT:
            return 0; /* the next turn connects */
        case MST_MEMBER_DISCONNECT:
            link_end(muster, effect->is_parting);
            return 0;
        case MST_MEMBER_SEND:
            return link_say(muster, effect, reterr);
        case MST_MEMBER_EXPLAIN:
            return link_ask_why(muster, reterr);
        case MST_MEMBER_SEALED:
            begin_round(muster, &effect->message->u.round);
            return 0;
        case MST_MEMBER_FAILED:
            mst__view_ended(&muster->head.view, effect->end, effect->text);
            return 0; /* the member has the error */
        case MST_MEMBER_NOTICE:
            mst__notices_take(&muster->notices, effect);
            return 0;
    }
    return 0;
}

void mst__muster_step(void *self, struct mst__member_event event)
{
    struct mst__muster *muster = self;
    struct mst_err err = {0};
    int rv = 0;
    if (event.kind != MST_MEMBER_EVENT_ALIVE) {
        event.now_us = mst__clock_us();
    }
    mst__member_step(&muster->member, &event);
    for (size_t i = 0; i < muster->member.effects_count && rv == 0; i++) {
        rv = link_effect(muster, &muster->member.effects[i], &err);
    }
    if (rv != 0) {
        mst__muster_cut(muster, &err);
    }
}

void mst__muster_cut(struct mst__muster *muster, const struct mst_err *err)
{
    link_close(muster);
    mst__muster_step(muster,
                     (struct mst__member_event){.kind = MST_MEMBER_EVENT_DISCONNECTED, .err = err});
}

/* --- turns --- */

/* Drop an early connection that has ended meanwhile. */
static void check_early(struct mst__muster *muster)
{
    if (muster->early != NULL && !mst__job_client_is_usable(muster->early)) {
        mst__job_client_close(muster->early);
        muster->early = NULL;
    }
}

/* Find out whether this node serves, when the endpoint's name has become known. The server is
 * reached by that name; only its own thread touches it. */
static int link_settle(struct mst__muster *muster, struct mst__until until, struct mst_err *reterr)
{
    struct mst__endpoint endpoint;
    if (!muster->is_open) {
        return 0;
    }
    int rv = mst__hosted_begin(&muster->settings.place, muster->params, until, &muster->hosted,
                               &endpoint, &muster->is_open, reterr);
    mst__muster_tell_host(muster);
    return rv;
}

static int link_open(struct mst__muster *muster,
                     struct mst__until until,
                     struct mst__job_client **ret_client,
                     struct mst_err *reterr)
{
    int rv = link_settle(muster, until, reterr);
    mst__muster_tell_way(muster);
    rv = rv == 0 ? mst__job_client_open(mst__muster_server(muster), until, ret_client, reterr) : rv;
    if (rv == 0) {
        muster->connected_us = mst__clock_us();
        muster->is_open = false; /* another process serves, also when it is away for a while */
    }
    return rv;
}

int mst__muster_connect(void *self, void *until, struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    check_early(muster);
    bool is_needed = muster->early == NULL && muster->member.phase == MST_MEMBER_OUT;
    return is_needed ? link_open(muster, *(struct mst__until *)until, &muster->early, reterr) : 0;
}

/* Take the early connection, or try once to connect. */
static void turn_connect(struct mst__muster *muster, struct mst__until until)
{
    struct mst_err err = {0};
    until = mst__until_sooner(until, mst__clock_deadline_ms(CONNECT_MS));
    until = mst__until_sooner(until, ms_after(mst__member_due_us(&muster->member)));
    check_early(muster);
    muster->client = muster->early;
    muster->early = NULL;
    int rv = muster->client == NULL ? link_open(muster, until, &muster->client, &err) : 0;
    if (rv == 0) {
        mst__muster_step(muster, (struct mst__member_event){.kind = MST_MEMBER_EVENT_CONNECTED});
    } else if (rv != MST_ECANCELED) {
        mst__view_reach(&muster->head.view, &err);
        mst__muster_cut(muster, &err);
    } /* else woken, and the next turn continues */
}

/* The standing of @name in @status; MST_STANDING_GONE if it is not there. */
static enum mst__authority_standing find_standing(const struct mst__job_status *status,
                                                  const char *name)
{
    struct mst_bytes members = status->members;
    struct mst__job_member member;
    while (mst__job_member_next(&members, &member)) {
        if (mst__bytes_equal(member.name, mst_bytes_str(name)) &&
            member.standing != MST_STANDING_GONE) {
            return (enum mst__authority_standing)member.standing;
        }
    }
    return MST_STANDING_GONE;
}

/* If @message answers link_ask_why, tell the member why there is no round yet. Returns whether
 * it does. */
static bool hear_why(struct mst__muster *muster, const struct mst__job_message *message)
{
    struct mst__member_event event = {.kind = MST_MEMBER_EVENT_EXPLAINED};
    bool is_refused = message->type == MST_JOB_REFUSED &&
                      message->u.refused.refusal == MST_REFUSAL_NONE &&
                      muster->member.is_explaining;
    if (message->type == MST_JOB_STATUS_TOLD) {
        enum mst__authority_standing standing = find_standing(&message->u.status, muster->node);
        event.is_spare = standing == MST_STANDING_SPARE;
        event.text = message->u.status.sentence;
    } else if (is_refused) {
        event.text = message->u.refused.text;
    } else {
        return false;
    }
    mst__muster_step(muster, event);
    return true;
}

static void turn_connected(struct mst__muster *muster, struct mst__until until)
{
    struct mst_err err = {0};
    struct mst__job_message message;
    until = mst__until_sooner(until, ms_after(mst__member_due_us(&muster->member)));
    /* First read what has arrived: after a pause of this process it tells the reason. */
    int rv = mst__job_client_receive(muster->client, until, &message, &err);
    if (rv == 0 && !hear_why(muster, &message)) {
        mst__muster_step(muster, (struct mst__member_event){.kind = MST_MEMBER_EVENT_HEARD,
                                                            .message = &message});
    } else if (rv == MST_ETIMEOUT) {
        int64_t heard_ms = mst__job_client_heard_ms(muster->client);
        mst__muster_step(muster, (struct mst__member_event){.kind = MST_MEMBER_EVENT_ALIVE,
                                                            .now_us = heard_ms * 1000});
    } else if (rv != 0 && rv != MST_ECANCELED) {
        mst__muster_cut(muster, &err);
    }
}

void mst__muster_turn(void *self, struct mst__until until)
{
    struct mst__muster *muster = self;
    int64_t due_us = mst__member_due_us(&muster->member);
    if (muster->client != NULL) {
        turn_connected(muster, until);
    } else if (muster->member.link == MST_MEMBER_CONNECTING) {
        turn_connect(muster, until);
    } else {
        int64_t deadline_us =
            until.deadline_ms > INT64_MAX / 1000 ? INT64_MAX : until.deadline_ms * 1000;
        /* If woken early, the caller checks why. */
        (void)mst__until_pause(until.wake_fd, mst__min(due_us, deadline_us));
    }
    if (mst__clock_us() >= mst__member_due_us(&muster->member)) {
        mst__muster_step(muster, (struct mst__member_event){.kind = MST_MEMBER_EVENT_TIME});
    }
}
