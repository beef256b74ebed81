/* authority/etcd_v3_link.c - drives the member machine over an etcd: stored keys become messages
 * of an authority. */
#include <stdio.h>
#include <string.h>

#include "authority/etcd_v3.h"
#include "authority/etcd_v3_self.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/number.h"
#include "base/until.h"

/* Time to revoke our lease; if that fails, it expires. */
#define TIDY_MS 1000

/* Time to find out what a round waits for. */
#define DESCRIBE_MS 2000

void mst__etcd_v3_member(struct mst__etcd_v3 *self)
{
    /* Our key has the rest. */
    const struct mst__member_options options = {
        .run_id = mst_bytes_str(self->params->run_id),
        .where = self->settings.etcd.endpoints[0].host,
        .beat_us = INT64_MAX, /* the lease replaces heartbeats */
        .expiry_us = INT64_MAX,
        .beats_per_answer = 1,
        .seed = mst__clock_random_u64(),
    };
    mst__member_init(&self->member, &options);
    self->notices = (struct mst__notices){.member = &self->member,
                                          .events = &self->events,
                                          .params = self->params,
                                          .view = &self->head.view,
                                          .where = options.where};
}

/* --- effects --- */

static bool round_is_full(const struct mst__etcd_v3 *self)
{
    const struct mst__muster_settings *job = &self->settings.job;
    bool is_full = (int64_t)self->round.world >= job->job.nodes_max ||
                   (job->is_fixed && self->round.world >= self->round.first_world);
    return self->round.state == MST_ETCD_V3_RUNNING && is_full;
}

/* Tell the member what the next round waits for. */
static void explain(struct mst__etcd_v3 *self, int wake_fd)
{
    char sentence[sizeof((struct mst_err *)0)->msg];
    struct mst_err ignored;
    if (mst__etcd_v3_describe(self->v3, &self->keys, mst__until_by(wake_fd, DESCRIBE_MS), sentence,
                              sizeof sentence, &ignored) != 0) {
        (void)snprintf(sentence, sizeof sentence, "no round was sealed in time"); /* fits */
    }
    mst__etcd_v3_feed(self, (struct mst__member_event){.kind = MST_MEMBER_EVENT_EXPLAINED,
                                                       .is_spare = round_is_full(self),
                                                       .text = mst_bytes_str(sentence)});
}

static void carry_out_send(struct mst__etcd_v3 *self, const struct mst__member_effect *effect)
{
    const struct mst__member *member = &self->member;
    struct mst__job_message message;
    mst__member_message(member, effect, &message);
    /* A node in a round has announced itself with its key. */
    if (effect->type == MST_JOB_ANNOUNCE && member->phase == MST_MEMBER_JOINING) {
        self->claim = member->claim;
        self->has_to_enter = true;
        self->was_full = false;
        self->word.is_said =
            self->word.is_said && !self->word.is_finish && self->word.round == self->claim.round;
    } else if (effect->type == MST_JOB_FINISH) {
        self->word = (struct mst__etcd_v3_word){
            .is_said = true,
            .is_finish = true,
            .epoch = message.u.finish.epoch,
            .round = message.u.finish.round,
            .cause = {.worker = MST_CAUSE_WORKER_NONE,
                      .status = message.u.finish.status,
                      .wall_us = mst__clock_wall_us(),
                      .text = message.u.finish.text},
        };
        self->has_to_say = true;
    } else if (effect->type == MST_JOB_RESTART) {
        self->word = (struct mst__etcd_v3_word){.is_said = true,
                                                .epoch = message.u.restart.epoch,
                                                .round = message.u.restart.round,
                                                .cause = message.u.restart.cause};
        self->has_to_say = true;
    }
}

static void carry_out(struct mst__etcd_v3 *self, const struct mst__member_effect *effect)
{
    switch (effect->kind) {
        case MST_MEMBER_CONNECT:
            return; /* the next turn connects */
        case MST_MEMBER_FAILED:
            mst__view_ended(&self->head.view, effect->end, effect->text);
            return; /* the member has the error */
        case MST_MEMBER_SEND:
            carry_out_send(self, effect);
            return;
        case MST_MEMBER_DISCONNECT:
            self->has_to_enter = false;
            self->has_to_say = false;
            return;
        case MST_MEMBER_EXPLAIN:
            self->has_to_explain = true; /* in the next turn */
            return;
        case MST_MEMBER_SEALED:
            self->claim = self->member.claim;
            self->word.is_said = false;
            mst__notices_begin_round(&self->notices);
            return;
        case MST_MEMBER_NOTICE:
            mst__notices_take(&self->notices, effect);
            return;
    }
}

void mst__etcd_v3_feed(void *arg, struct mst__member_event event)
{
    struct mst__etcd_v3 *self = arg;
    event.now_us = mst__clock_us();
    mst__member_step(&self->member, &event);
    for (size_t i = 0; i < self->member.effects_count; i++) {
        carry_out(self, &self->member.effects[i]);
    }
    if (self->member.phase == MST_MEMBER_OUT && self->lease != 0) {
        self->part_rv = mst__etcd_v3_part(self, mst__until_in(self->part_ms), &self->part_err);
        self->claim.holds = false;
    }
}

static void hear(struct mst__etcd_v3 *self, const struct mst__job_message *message)
{
    mst__etcd_v3_feed(
        self, (struct mst__member_event){.kind = MST_MEMBER_EVENT_HEARD, .message = message});
}

/* --- what is stored --- */

/* The others have ended our session. */
static void hear_expelled(struct mst__etcd_v3 *self, const char *text)
{
    const struct mst__job_message message = {.type = MST_JOB_EXPELLED,
                                             .u.text = mst_bytes_str(text)};
    struct mst_err ignored; /* the lease expires */
    self->claim.holds = false;
    hear(self, &message);
    (void)mst__etcd_v3_forget(self, mst__until_in(TIDY_MS), &ignored);
}

/* Whether `round` says that our session has ended: by rank, because a new process may have our
 * name. */
static bool is_gone(const struct mst__etcd_v3 *self)
{
    const struct mst__etcd_v3_round *round = &self->round;
    return round->is_gone != NULL && self->claim.rank < round->world &&
           round->is_gone[self->claim.rank];
}

static void hear_lost(struct mst__etcd_v3 *self)
{
    const struct mst__etcd_v3_round *round = &self->round;
    struct mst__job_message message = {
        .type = MST_JOB_LOST,
        .u.lost = {.round = round->round, .count = round->gone_count, .total = round->gone_count}};
    struct mst__job_lost *lost = &message.u.lost;
    for (const char *at = round->gone; *at != '\0' && lost->named < MST_JOB_NAMES_MAX;
         at += strspn(at, " ")) {
        size_t size = strcspn(at, " ");
        lost->ranks[lost->named] = MST_AUTHORITY_RANK_NONE;
        lost->names[lost->named++] = mst_bytes_of(at, size);
        at += size;
    }
    hear(self, &message);
}

/* Our round was reopened. */
static void hear_open(struct mst__etcd_v3 *self)
{
    const struct mst__etcd_v3_round *round = &self->round;
    if (is_gone(self)) {
        hear_expelled(self, "the lease of this node was lost, or a newer process has come in its "
                            "place");
        return;
    }
    if ((int64_t)round->gone_count > self->notices.changes.participants_lost) {
        hear_lost(self);
    }
    const struct mst__job_message message = {
        .type = MST_JOB_REOPENED,
        .u.reopened = {.round_next = round->round + 1,
                       .why = (uint32_t)round->why,
                       .rank = MST_AUTHORITY_RANK_NONE, /* hear_lost has told who */
                       .end = mst__etcd_v3_round_end(round)}};
    hear(self, &message);
}

static void look_holding(struct mst__etcd_v3 *self)
{
    const struct mst__etcd_v3_round *round = &self->round;
    bool is_ours = round->round == self->claim.round && round->epoch == self->claim.epoch;
    if (is_ours && round->state == MST_ETCD_V3_OPEN) {
        hear_open(self);
    } else if (is_ours && round->state == MST_ETCD_V3_RUNNING) {
        const struct mst__job_message message = {.type = MST_JOB_WAITING,
                                                 .u.waiting.count = round->waiting};
        hear(self, &message);
    } else if (round->round > self->claim.round) {
        if (mst__etcd_v3_rank(self) == MST_AUTHORITY_RANK_NONE) {
            hear_expelled(self, "a later round was sealed without this node");
            return;
        }
        /* A newer process has returned with our name. */
        const struct mst__job_message message = {.type = MST_JOB_REOPENED,
                                                 .u.reopened = {.round_next = round->round,
                                                                .why = MST_AUTHORITY_WHY_RETURNED,
                                                                .rank = MST_AUTHORITY_RANK_NONE}};
        hear(self, &message);
    }
}

static void hear_round(struct mst__etcd_v3 *self, enum mst__job_type type, uint32_t rank)
{
    const struct mst__etcd_v3_round *round = &self->round;
    struct mst__job_message message = {.type = type};
    message.u.round = (struct mst__job_round){.epoch = round->epoch,
                                              .round = round->round,
                                              .world = round->world,
                                              .rank = rank,
                                              .address = mst_bytes_str(round->address),
                                              .restarts = round->restarts_before,
                                              .start = (uint32_t)round->start};
    if (rank != MST_AUTHORITY_RANK_NONE) {
        message.u.round.worker_ranks =
            round->is_sharded ? self->letter.worker_ranks : round->seats[rank].worker_ranks;
        self->worker_ranks = message.u.round.worker_ranks;
    }
    hear(self, &message);
}

static void look_joining(struct mst__etcd_v3 *self)
{
    const struct mst__etcd_v3_round *round = &self->round;
    if (round->round <= self->member.claim.round) {
        return; /* the round that we come from, or stand by for */
    }
    uint32_t rank = mst__etcd_v3_rank(self);
    bool is_full = round_is_full(self);
    self->was_full = is_full && rank == MST_AUTHORITY_RANK_NONE;
    if (rank != MST_AUTHORITY_RANK_NONE) {
        hear_round(self, MST_JOB_SEALED, rank);
    } else if (round->state == MST_ETCD_V3_RUNNING && !round->is_sharded) {
        hear_round(self, is_full ? MST_JOB_SPARE : MST_JOB_QUEUED, rank);
    } /* else a letter with our rank may still come: watches have no common order */
}

/* Tell the member the news of the last read. */
static void look(struct mst__etcd_v3 *self)
{
    const struct mst__etcd_v3_round *round = &self->round;
    const struct mst__etcd_v3_letter *letter = &self->letter;
    if (self->member.link == MST_MEMBER_CONNECTED) {
        const struct mst__job_message message = {.type = MST_JOB_WELCOME,
                                                 .u.welcome.version = MST_JOB_VERSION};
        hear(self, &message);
    }
    if (letter->kind > MST_ETCD_V3_LETTER_RANK && self->member.phase == MST_MEMBER_HOLDING) {
        hear_expelled(self, letter->text);
    } else if (letter->kind > MST_ETCD_V3_LETTER_RANK) {
        const struct mst__job_message message = {
            .type = MST_JOB_REFUSED,
            .u.refused = {.code = letter->code == 0 ? MST_ESTATE : letter->code,
                          .text = mst_bytes_str(letter->text)}};
        hear(self, &message);
    } else if (round->state == MST_ETCD_V3_CLOSED) {
        if (self->was_full && self->member.phase == MST_MEMBER_JOINING) {
            hear_round(self, MST_JOB_SPARE, MST_AUTHORITY_RANK_NONE);
        }
        const struct mst__job_message message = {
            .type = MST_JOB_CLOSED,
            .u.closed = {.reason = mst_bytes_str(round->reason),
                         .owner = mst_bytes_str(round->owner),
                         .end = mst__etcd_v3_round_end(round)}};
        hear(self, &message);
    }
    if (self->member.phase == MST_MEMBER_JOINING) {
        look_joining(self);
    }
    if (self->member.phase == MST_MEMBER_HOLDING) {
        look_holding(self);
    }
}

/* --- turns --- */

/* Whether a retry may succeed. */
static bool is_passing(int rv)
{
    return rv == MST_ECONN || rv == MST_ETIMEOUT || rv == MST_EUNKNOWN || rv == MST_ENOTFOUND ||
           rv == MST_ERESOLVE;
}

/* The etcd does not answer, or reports an error. */
static void fail(struct mst__etcd_v3 *self, int rv, const struct mst_err *err)
{
    if (!is_passing(rv) && self->member.phase == MST_MEMBER_JOINING) {
        const struct mst__job_message message = {
            .type = MST_JOB_REFUSED, .u.refused = {.code = rv, .text = mst_bytes_str(err->msg)}};
        hear(self, &message);
        return;
    }
    /* While our lease must still be alive, this is not worth reporting. */
    if (mst__clock_ms() >= self->alive_ms) {
        mst__view_reach(&self->head.view, err);
    }
    mst__etcd_v3_feed(
        self, (struct mst__member_event){.kind = MST_MEMBER_EVENT_DISCONNECTED, .err = err});
}

/* Our session is over. */
static void end(struct mst__etcd_v3 *self, const struct mst_err *err)
{
    if (self->member.phase == MST_MEMBER_HOLDING) {
        hear_expelled(self, err->msg);
    } else {
        self->has_to_enter = self->member.phase == MST_MEMBER_JOINING;
    }
}

static void turn_connected(struct mst__etcd_v3 *self, struct mst__until until)
{
    struct mst_err err = {0};
    int64_t due_us = mst__member_due_us(&self->member);
    until = mst__until_sooner(until, due_us == INT64_MAX ? INT64_MAX : due_us / 1000 + 1);
    bool is_entering = self->has_to_enter;
    bool is_saying = self->has_to_say && !is_entering; /* entering writes the report, too */
    self->has_to_enter = false;
    self->has_to_say = false;
    int rv = is_entering ? mst__etcd_v3_enter(self, until, &err)
             : is_saying ? mst__etcd_v3_say(self, until, &err)
                         : mst__etcd_v3_step(self, until, &err);
    if (rv == 0) {
        look(self);
    } else if (rv == MST_ECANCELED || (rv == MST_ETIMEOUT && !is_entering && !is_saying)) {
        self->has_to_enter = is_entering;
        self->has_to_say = is_saying;
    } else if (rv == MST_ENOTFOUND && !is_entering) {
        end(self, &err);
    } else {
        fail(self, rv, &err);
    }
}

void mst__etcd_v3_turn(void *arg, struct mst__until until)
{
    struct mst__etcd_v3 *self = arg;
    const struct mst__member *member = &self->member;
    bool is_over = member->phase == MST_MEMBER_EXPELLED || self->lease == 0;
    if (self->has_to_explain) {
        self->has_to_explain = false;
        explain(self, until.wake_fd);
    } else if (member->link == MST_MEMBER_CONNECTING) {
        self->beat_ms = mst__clock_ms(); /* only an answer shows that the etcd can be reached */
        mst__etcd_v3_feed(self, (struct mst__member_event){.kind = MST_MEMBER_EVENT_CONNECTED});
    } else if (member->link != MST_MEMBER_APART && (!is_over || self->has_to_enter)) {
        turn_connected(self, until);
    } else {
        int64_t deadline_us =
            until.deadline_ms > INT64_MAX / 1000 ? INT64_MAX : until.deadline_ms * 1000;
        /* If woken early, the caller checks why. */
        (void)mst__until_pause(until.wake_fd, mst__min(mst__member_due_us(member), deadline_us));
    }
    if (mst__clock_us() >= mst__member_due_us(member)) {
        mst__etcd_v3_feed(self, (struct mst__member_event){.kind = MST_MEMBER_EVENT_TIME});
    }
}
