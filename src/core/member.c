/* core/member.c - a node's side of an authority: the effects of each event. */
#include "core/member.h"

#include <string.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/number.h"
#include "core/saturate.h"

void mst__member_init(struct mst__member *member, const struct mst__member_options *options)
{
    MST_ASSERT(options->beat_us > 0);
    MST_ASSERT(options->expiry_us > 0);
    MST_ASSERT(options->beats_per_answer >= 1);
    *member = (struct mst__member){
        .options = *options,
        .now_us = INT64_MIN,
        .join_us = INT64_MAX,
        .connect_us = INT64_MAX,
        .pause_us = MST_MEMBER_AGAIN_US,
        .beat_us = INT64_MAX,
        .answer_us = INT64_MAX,
        .heard_us = INT64_MIN,
    };
    mst__prng_init(&member->prng, options->seed);
}

/* The allowed moves between phases. */
static bool may_move(enum mst__member_phase from, enum mst__member_phase to)
{
#define TO(phase) (1U << MST_MEMBER_##phase)
    static const unsigned allowed[MST_MEMBER_PHASE_COUNT] = {
        [MST_MEMBER_OUT] = TO(JOINING),
        [MST_MEMBER_JOINING] = TO(OUT) | TO(HOLDING),
        [MST_MEMBER_HOLDING] = TO(OUT) | TO(JOINING) | TO(EXPELLED) | TO(CLOSED),
        [MST_MEMBER_EXPELLED] = TO(OUT) | TO(JOINING),
        [MST_MEMBER_CLOSED] = TO(OUT) | TO(JOINING),
    };
#undef TO
    return (allowed[from] & 1U << to) != 0;
}

static void move_to(struct mst__member *member, enum mst__member_phase phase)
{
    MST_ASSERT(may_move(member->phase, phase));
    member->phase = phase;
    member->claim.holds = phase == MST_MEMBER_HOLDING;
    member->finish = MST_MEMBER_WORD_NONE;
    if (phase != MST_MEMBER_JOINING) {
        member->restart = MST_MEMBER_WORD_NONE;
    }
}

static bool is_connected(const struct mst__member *member)
{
    return member->link == MST_MEMBER_CONNECTED || member->link == MST_MEMBER_WELCOME;
}

/* Whether a lost connection must be made again. */
static bool wants_link(const struct mst__member *member)
{
    return member->phase == MST_MEMBER_JOINING || member->phase == MST_MEMBER_HOLDING;
}

static int64_t after(const struct mst__member *member, int64_t us)
{
    return mst__saturate_add(member->now_us, us);
}

/* Uniform in 0 … @bound. */
static int64_t up_to(struct mst__member *member, int64_t bound)
{
    return (int64_t)mst__prng_below(&member->prng, (uint64_t)bound + 1);
}

/* --- effects --- */

static void put(struct mst__member *member, struct mst__member_effect effect)
{
    MST_ASSERT(member->effects_count < MST_MEMBER_EFFECTS_MAX);
    member->effects[member->effects_count++] = effect;
}

static void put_send(struct mst__member *member, enum mst__job_type type)
{
    put(member, (struct mst__member_effect){.kind = MST_MEMBER_SEND, .type = type});
}

static void put_notice(struct mst__member *member,
                       enum mst__member_notice notice,
                       const struct mst__job_message *message,
                       struct mst_bytes text)
{
    put(member, (struct mst__member_effect){
                    .kind = MST_MEMBER_NOTICE, .notice = notice, .message = message, .text = text});
}

static void announce(struct mst__member *member)
{
    put_send(member, MST_JOB_ANNOUNCE);
    /* The announcement counts as a heartbeat; and the first heartbeats of many nodes are spread. */
    int64_t beat_us = member->options.beat_us;
    member->beat_us =
        beat_us == INT64_MAX ? INT64_MAX : after(member, beat_us / 2 + up_to(member, beat_us / 2));
    member->answer_us = beat_us == INT64_MAX ? INT64_MAX : after(member, member->options.expiry_us);
    member->beats = 0;
}

/* --- words of the work --- */

static void text_keep(char *to, size_t to_size, struct mst_bytes text)
{
    size_t size = text.size < to_size ? text.size : to_size - 1;
    if (size > 0) {
        memcpy(to, text.data, size);
    }
    to[size] = '\0';
}

static void word_keep(struct mst__member *member, struct mst_bytes text, struct mst_bytes report)
{
    text_keep(member->word_text, sizeof member->word_text, text);
    text_keep(member->word_report, sizeof member->word_report, report);
}

bool mst__member_has_word(const struct mst__member *member)
{
    return member->finish == MST_MEMBER_WORD_PENDING ||
           member->restart == MST_MEMBER_WORD_PENDING || member->leaving == MST_MEMBER_WORD_PENDING;
}

bool mst__member_is_heard(const struct mst__member *member)
{
    bool is_said = member->finish == MST_MEMBER_WORD_SAID ||
                   member->restart == MST_MEMBER_WORD_SAID ||
                   member->leaving == MST_MEMBER_WORD_SAID;
    return !mst__member_has_word(member) && !(is_said && member->word_answers > 0);
}

/* Send a heartbeat that wants an answer. */
static void ask(struct mst__member *member)
{
    int64_t until_us = after(member, member->options.expiry_us);
    member->answer_us = until_us < member->answer_us ? until_us : member->answer_us;
    member->beats = 0;
    member->answers_due++;
    put(member, (struct mst__member_effect){
                    .kind = MST_MEMBER_SEND, .type = MST_JOB_HEARTBEAT, .wants_pong = true});
}

/* The authority has answered a heartbeat. */
static void be_answered(struct mst__member *member)
{
    member->answers_due -= member->answers_due > 0;
    member->word_answers -= member->word_answers > 0;
}

/* Say that this node leaves. To an earlier version that would mean nothing. */
static void say_leaving(struct mst__member *member)
{
    bool is_known = member->version >= MST_JOB_VERSION_LEAVING;
    member->leaving = is_known ? MST_MEMBER_WORD_SAID : MST_MEMBER_WORD_NONE;
    if (is_known) {
        put_send(member, MST_JOB_LEAVING);
    }
}

/* Send a pending finish or restart. False if the authority has neither. */
static bool say_work(struct mst__member *member)
{
    bool is_finish = member->finish == MST_MEMBER_WORD_PENDING;
    if (member->version < MST_JOB_VERSION_FINISH) {
        (void)mst__fail(&member->word_err, MST_ENOTSUP, 0,
                        "%.60s has an earlier version without '%s'", member->options.where,
                        mst__job_type_name(is_finish ? MST_JOB_FINISH : MST_JOB_RESTART));
        member->finish = MST_MEMBER_WORD_NONE;
        member->restart = MST_MEMBER_WORD_NONE;
        put(member, (struct mst__member_effect){.kind = MST_MEMBER_NOTICE,
                                                .notice = MST_MEMBER_NOTICE_UNSAID,
                                                .err = &member->word_err});
        return false;
    }
    if (is_finish) {
        member->finish = MST_MEMBER_WORD_SAID;
        put_send(member, MST_JOB_FINISH);
    } else {
        member->restart = MST_MEMBER_WORD_SAID;
        put_send(member, MST_JOB_RESTART);
    }
    return true;
}

/* Send pending reports, if the authority supports them. */
static void say_words(struct mst__member *member)
{
    if (member->link != MST_MEMBER_WELCOME || !mst__member_has_word(member)) {
        return;
    }
    bool is_said = false;
    if (member->leaving == MST_MEMBER_WORD_PENDING) {
        say_leaving(member);
        is_said = member->leaving == MST_MEMBER_WORD_SAID;
    }
    if (mst__member_has_word(member)) {
        is_said = say_work(member) || is_said;
    }
    if (is_said && member->options.beat_us != INT64_MAX) {
        ask(member);
        member->word_answers = member->answers_due;
    }
}

/* The connection is lost: it is unknown whether the reports arrived. */
static void repeat_words(struct mst__member *member)
{
    if (member->finish == MST_MEMBER_WORD_SAID) {
        member->finish = MST_MEMBER_WORD_PENDING;
    }
    if (member->restart == MST_MEMBER_WORD_SAID) {
        member->restart = MST_MEMBER_WORD_PENDING;
    }
    if (member->leaving == MST_MEMBER_WORD_SAID) {
        member->leaving = MST_MEMBER_WORD_PENDING;
    }
}

static void forget_work(struct mst__member *member)
{
    member->finish = MST_MEMBER_WORD_NONE;
    member->restart = MST_MEMBER_WORD_NONE;
}

static void forget_words(struct mst__member *member)
{
    forget_work(member);
    member->leaving = MST_MEMBER_WORD_NONE;
}

static void on_leaving(struct mst__member *member, int64_t in_us)
{
    member->word_err = (struct mst_err){.code = 0};
    if (member->phase != MST_MEMBER_HOLDING || member->is_reopened) {
        return;
    }
    member->leaving = MST_MEMBER_WORD_PENDING;
    member->leaving_us = after(member, in_us);
    say_words(member);
}

static void on_word(struct mst__member *member, const struct mst__member_event *event)
{
    member->word_err = (struct mst_err){.code = 0};
    if (member->phase != MST_MEMBER_HOLDING || member->is_reopened) {
        return;
    }
    bool is_finish = event->kind == MST_MEMBER_EVENT_FINISH;
    if (is_finish && member->restart != MST_MEMBER_WORD_NONE) {
        return; /* it has failed */
    }
    forget_work(member);
    if (is_finish) {
        member->finish = MST_MEMBER_WORD_PENDING;
        member->finish_status = event->status;
        word_keep(member, event->text, mst_bytes_str(""));
    } else {
        member->restart = MST_MEMBER_WORD_PENDING;
        member->cause = *event->cause;
        word_keep(member, event->cause->text, event->cause->report);
    }
    say_words(member);
}

/* --- the connection --- */

static void be_apart(struct mst__member *member)
{
    repeat_words(member);
    member->link = MST_MEMBER_APART;
    member->connect_us = INT64_MAX;
    member->beat_us = INT64_MAX;
    member->answer_us = INT64_MAX;
    member->answers_due = 0;
    member->word_answers = 0;
}

/* Whether the connection that ends has worked. Several in a row that end as soon as they have begun
 * have not: the server is broken, or has no memory for its answers. */
static bool has_worked(struct mst__member *member)
{
    if (member->link != MST_MEMBER_WELCOME) {
        return false;
    }
    int64_t age_us = member->now_us - member->welcome_us;
    member->brief_count = age_us < MST_MEMBER_BRIEF_US ? member->brief_count + 1 : 0;
    return member->brief_count <= MST_MEMBER_BRIEF_MAX;
}

/* The connection is lost, or the attempt has failed. */
static void lose_link(struct mst__member *member, const struct mst_err *err)
{
    bool was_connected = is_connected(member);
    bool is_at_once = has_worked(member);
    be_apart(member);
    member->link_err = *err;
    if (was_connected && !member->is_cut_told) {
        member->is_cut_told = true;
        put(member, (struct mst__member_effect){.kind = MST_MEMBER_NOTICE,
                                                .notice = MST_MEMBER_NOTICE_CUT,
                                                .err = &member->link_err});
    }
    if (!wants_link(member)) {
        return;
    }
    if (is_at_once) {
        member->connect_us = member->now_us;
        member->pause_us = MST_MEMBER_AGAIN_US;
        return;
    }
    int64_t half_us = member->pause_us / 2;
    member->connect_us = after(member, half_us + up_to(member, half_us));
    member->pause_us += half_us;
    if (member->pause_us > MST_MEMBER_AGAIN_US_MAX) {
        member->pause_us = MST_MEMBER_AGAIN_US_MAX;
    }
}

/* Give the connection up. */
static void drop_link(struct mst__member *member, const struct mst_err *err)
{
    put(member, (struct mst__member_effect){.kind = MST_MEMBER_DISCONNECT});
    lose_link(member, err);
}

/* Leave: send LEAVE if there is a connection, and disconnect. */
static void part(struct mst__member *member)
{
    if (is_connected(member)) {
        put_send(member, MST_JOB_LEAVE);
    }
    if (member->link != MST_MEMBER_APART) {
        put(member, (struct mst__member_effect){.kind = MST_MEMBER_DISCONNECT,
                                                .is_parting = is_connected(member)});
    }
    be_apart(member);
    member->is_cut_told = false;
    member->pause_us = MST_MEMBER_AGAIN_US;
    member->join_us = INT64_MAX;
    move_to(member, MST_MEMBER_OUT);
}

static void beat(struct mst__member *member)
{
    member->beat_us = after(member, member->options.beat_us);
    if (++member->beats >= member->options.beats_per_answer) {
        ask(member);
    } else {
        put_send(member, MST_JOB_HEARTBEAT);
    }
}

/* --- joining --- */

/* The wanted round does not come: member->err has the reason and, for a job that has ended, @end
 * the outcome. The authority should not wait for us. */
static void fail_ended(struct mst__member *member,
                       struct mst_bytes reason,
                       const struct mst__job_end *end)
{
    MST_ASSERT(member->phase == MST_MEMBER_JOINING);
    MST_ASSERT(member->err.code != 0);
    put(member, (struct mst__member_effect){
                    .kind = MST_MEMBER_FAILED, .err = &member->err, .text = reason, .end = end});
    part(member);
}

static void fail(struct mst__member *member)
{
    fail_ended(member, mst_bytes_str(""), NULL);
}

static void fail_late(struct mst__member *member, struct mst_bytes why)
{
    long long ms = (long long)(member->timeout_us / 1000);
    if (why.size > 0) {
        (void)mst__fail(&member->err, MST_ETIMEOUT, 0, "no round within %lld ms: %.*s", ms,
                        (int)why.size, (const char *)why.data);
    } else {
        (void)mst__fail(&member->err, MST_ETIMEOUT, 0,
                        "no round within %lld ms; %.60s does not answer", ms,
                        member->options.where);
    }
    fail(member);
}

/* The time is over. A spare is not late, and a former spare gets the full time again; so ask the
 * authority for our standing. */
static void be_late(struct mst__member *member)
{
    bool is_first = !member->is_explaining;
    if (is_first && is_connected(member)) {
        member->is_explaining = true;
        member->join_us = after(member, MST_MEMBER_EXPLAIN_US);
        put(member, (struct mst__member_effect){.kind = MST_MEMBER_EXPLAIN});
    } else if (is_first && member->link_err.code != 0) {
        (void)mst__err_pass(&member->err, MST_ECONN, &member->link_err);
        fail(member);
    } else {
        fail_late(member, (struct mst_bytes){.data = NULL});
    }
}

static void on_explained(struct mst__member *member, const struct mst__member_event *event)
{
    if (member->phase != MST_MEMBER_JOINING || !member->is_explaining) {
        return; /* too late */
    }
    if (!event->is_spare && !member->is_patient) {
        fail_late(member, event->text);
        return;
    }
    member->is_explaining = false;
    member->is_patient = event->is_spare;
    member->join_us = after(member, member->timeout_us);
}

static void on_wanted(struct mst__member *member, const struct mst__member_event *event)
{
    MST_ASSERT(member->phase != MST_MEMBER_JOINING);
    move_to(member, MST_MEMBER_JOINING);
    member->leaving = MST_MEMBER_WORD_NONE; /* it stays in the job after all */
    member->is_spare = false;
    member->is_patient = false;
    member->is_explaining = false;
    member->address = event->address;
    member->timeout_us = event->timeout_us;
    member->join_us = after(member, event->timeout_us - event->spent_us);
    member->err = (struct mst_err){.code = 0};
    if (member->restart == MST_MEMBER_WORD_PENDING && is_connected(member)) {
        return; /* the claim is under way; its answer comes first */
    }
    if (is_connected(member)) {
        announce(member);
    } else if (member->link == MST_MEMBER_APART && member->connect_us == INT64_MAX) {
        member->connect_us = member->now_us;
    }
}

/* The running round has no place for us now. */
static void stand_by(struct mst__member *member, const struct mst__job_message *message)
{
    const struct mst__job_round *round = &message->u.round;
    member->is_spare = message->type == MST_JOB_SPARE;
    member->is_patient = member->is_spare;
    if (round->round > member->claim.round) {
        forget_words(member);
        member->claim = (struct mst__claim){
            .epoch = round->epoch,
            .round = round->round,
            .world = round->world,
            .rank = MST_AUTHORITY_RANK_NONE,
        };
    }
    put_notice(member, MST_MEMBER_NOTICE_STANDBY, message, (struct mst_bytes){.data = NULL});
}

static bool are_ranks(uint32_t first, uint32_t count, uint32_t world)
{
    return world <= MST_AUTHORITY_MEMBERS_MAX * MST_NPROC_MAX && count <= world &&
           first <= world - count;
}

/* Check the numbers of a new round: the application makes room for each node and worker of it. */
static int check_seal(struct mst__member *member, const struct mst__job_round *round)
{
    const struct mst__worker_ranks *ranks = &round->worker_ranks;
    uint32_t workers = member->options.self.workers;
    if (round->rank >= round->world || round->world > MST_AUTHORITY_MEMBERS_MAX) {
        return mst__fail(&member->err, MST_EPROTO, 0,
                         "%.60s is broken: it gave this node rank %u of %u; a round has at most %d "
                         "nodes",
                         member->options.where, round->rank, round->world,
                         MST_AUTHORITY_MEMBERS_MAX);
    }
    if (workers > 0 && ranks->world == 0) { /* with an etcd, another node decides */
        return mst__fail(&member->err, MST_ENOTSUP, 0,
                         "%.60s: an older muster decides there, which does not number workers",
                         member->options.where);
    }
    if (workers > 0 && !(are_ranks(ranks->first, workers, ranks->world) &&
                         are_ranks(ranks->role_first, workers, ranks->role_world))) {
        return mst__fail(&member->err, MST_EPROTO, 0,
                         "%.60s is broken: it gave the %u workers of this node the ranks from %u "
                         "of %u",
                         member->options.where, workers, ranks->first, ranks->world);
    }
    return 0;
}

static void be_sealed(struct mst__member *member, const struct mst__job_message *message)
{
    const struct mst__job_round *round = &message->u.round;
    if (member->phase != MST_MEMBER_JOINING || round->round <= member->claim.round) {
        return; /* our current or last round, told again */
    }
    if (check_seal(member, round) != 0) {
        fail(member);
        return;
    }
    move_to(member, MST_MEMBER_HOLDING);
    member->claim = (struct mst__claim){
        .epoch = round->epoch,
        .round = round->round,
        .world = round->world,
        .rank = round->rank,
        .holds = true,
    };
    member->is_spare = false;
    member->is_reopened = false;
    member->join_us = INT64_MAX;
    member->news_count = 0; /* many rounds within a second are not a broken server */
    put(member, (struct mst__member_effect){.kind = MST_MEMBER_SEALED, .message = message});
}

static void fail_closed(struct mst__member *member, const struct mst__job_message *message)
{
    struct mst_bytes reason = message->u.closed.reason;
    struct mst_bytes owner = message->u.closed.owner;
    uint32_t outcome = message->u.closed.end.outcome;
    if (outcome == MST_JOB_OUTCOME_FINISHED || outcome == MST_JOB_OUTCOME_FAILED) {
        bool is_finished = outcome == MST_JOB_OUTCOME_FINISHED;
        (void)mst__fail(&member->err, is_finished ? MST_EFINISHED : MST_ECLOSED, 0,
                        "the job has %s: %.*s", is_finished ? "finished" : "failed",
                        (int)reason.size, (const char *)reason.data);
    } else {
        (void)mst__fail(&member->err, member->is_spare ? MST_ESPARE : MST_ECLOSED, 0,
                        "closed by '%.*s': %.*s", (int)(owner.size < 60 ? owner.size : 60),
                        (const char *)owner.data, (int)reason.size, (const char *)reason.data);
    }
    fail_ended(member, reason, &message->u.closed.end);
}

/* Codes of later releases are unknown here. */
static int refused_code(const struct mst__job_message *message)
{
    int code = message->u.refused.code;
    bool is_known = code < 0 && strcmp(mst_errname(code), "EUNDEFINED") != 0;
    return is_known ? code : MST_EPROTO;
}

static void fail_refused(struct mst__member *member, const struct mst__job_message *message)
{
    int code = refused_code(message);
    struct mst_bytes text = message->u.refused.text;
    bool was_spare = code == MST_ECLOSED && member->is_spare &&
                     message->u.refused.end.outcome != MST_JOB_OUTCOME_FAILED;
    if (code == MST_EFINISHED && !member->was_welcome) {
        code = MST_ECLOSED; /* another job has finished, and ours has not begun */
    }
    (void)mst__fail(&member->err, was_spare ? MST_ESPARE : code, 0, "%s%.*s",
                    was_spare ? "a spare: " : "", (int)text.size, (const char *)text.data);
    bool is_end = message->u.refused.refusal == MST_REFUSAL_CLOSED && member->was_welcome;
    fail_ended(member, text, is_end ? &message->u.refused.end : NULL);
}

/* Whether to ask again: a closed job makes room for ours when its last node is gone. */
static bool waits_for_room(const struct mst__member *member, const struct mst__job_message *message)
{
    return message->u.refused.refusal == MST_REFUSAL_CLOSED && member->options.is_new &&
           !member->was_welcome;
}

static void ask_later(struct mst__member *member, const struct mst__job_message *message)
{
    struct mst_bytes text = message->u.refused.text;
    struct mst_err err;
    (void)mst__fail(&err, refused_code(message), 0, "%.*s", (int)text.size,
                    (const char *)text.data);
    drop_link(member, &err);
}

/* News of a round that we may not know, or of a session that is over, may cross an announcement. A
 * server that answers each one with such news is broken: it is asked again after pauses. */
static void announce_again(struct mst__member *member, const struct mst__job_message *message)
{
    forget_words(member);
    if (member->now_us - member->news_us >= MST_MEMBER_BRIEF_US) {
        member->news_us = member->now_us;
        member->news_count = 0;
    }
    if (member->news_count < MST_MEMBER_BRIEF_MAX) {
        member->news_count++;
        announce(member);
        return;
    }
    struct mst_err err;
    (void)mst__fail(&err, MST_EPROTO, 0, "%.60s answers announcements with '%s'",
                    member->options.where, mst__job_type_name(message->type));
    drop_link(member, &err);
}

static void hear_joining(struct mst__member *member, const struct mst__job_message *message)
{
    switch (message->type) {
        case MST_JOB_REFUSED:
            if (waits_for_room(member, message)) {
                ask_later(member, message);
            } else if (message->u.refused.refusal != MST_REFUSAL_CLAIM) {
                fail_refused(member, message);
            } else if (member->restart == MST_MEMBER_WORD_PENDING) {
                forget_words(member); /* the round is over, so the reports are obsolete */
                announce(member);
            } /* else: a leftover claim, sent just before we wanted another round */
            return;
        case MST_JOB_CLOSED:
            fail_closed(member, message);
            return;
        case MST_JOB_QUEUED:
        case MST_JOB_SPARE:
            stand_by(member, message);
            return;
        case MST_JOB_REOPENED:
        case MST_JOB_EXPELLED: /* a newer process would be refused */
            announce_again(member, message);
            return;
        default:
            return; /* of our last round, or of a later server */
    }
}

/* --- in a round --- */

static void be_closed(struct mst__member *member,
                      struct mst_bytes reason,
                      const struct mst__job_end *end)
{
    move_to(member, MST_MEMBER_CLOSED);
    put(member, (struct mst__member_effect){.kind = MST_MEMBER_NOTICE,
                                            .notice = MST_MEMBER_NOTICE_CLOSED,
                                            .text = reason,
                                            .end = end});
}

static void be_expelled(struct mst__member *member, struct mst_bytes text)
{
    move_to(member, MST_MEMBER_EXPELLED);
    member->beat_us = INT64_MAX;
    member->answer_us = INT64_MAX;
    put_notice(member, MST_MEMBER_NOTICE_EXPELLED, NULL, text);
}

/* Our claim on a new connection was refused. */
static void be_refused(struct mst__member *member, const struct mst__job_message *message)
{
    struct mst_bytes text = message->u.refused.text;
    switch ((enum mst__refusal)message->u.refused.refusal) {
        case MST_REFUSAL_CLOSED:
            be_closed(member, text, &message->u.refused.end);
            return;
        case MST_REFUSAL_CLAIM:
        case MST_REFUSAL_STALE:
        case MST_REFUSAL_TWIN:
        case MST_REFUSAL_SETTINGS:
            be_expelled(member, text);
            return;
        case MST_REFUSAL_NONE:
        case MST_REFUSAL_MALFORMED:
        case MST_REFUSAL_FULL:
        case MST_REFUSAL_MEMORY:
            break;
    }
    ask_later(member, message); /* no room, or another job's server at this address */
}

static void hear_holding(struct mst__member *member, const struct mst__job_message *message)
{
    const struct mst_bytes none = {.data = NULL};
    switch (message->type) {
        case MST_JOB_REFUSED:
            be_refused(member, message);
            return;
        case MST_JOB_CLOSED:
            be_closed(member, message->u.closed.reason, &message->u.closed.end);
            return;
        case MST_JOB_EXPELLED:
            be_expelled(member, message->u.text);
            return;
        case MST_JOB_LOST:
            if (message->u.lost.round == member->claim.round) {
                put_notice(member, MST_MEMBER_NOTICE_LOST, message, none);
            } /* else: of an earlier round */
            return;
        case MST_JOB_WAITING:
            put_notice(member, MST_MEMBER_NOTICE_WAITING, message, none);
            return;
        case MST_JOB_REOPENED:
            forget_words(member);
            if (!member->is_reopened) {
                member->is_reopened = true;
                put_notice(member, MST_MEMBER_NOTICE_REOPENED, message, none);
            } /* else: told again, on another connection */
            return;
        default:
            return; /* answers, repetitions, messages of a later server */
    }
}

/* --- events --- */

/* What an authority of this version does not do for this node; NULL = nothing. */
static const char *lack_of(const struct mst__member *member)
{
    const struct mst__announcement *self = &member->options.self;
    if (self->is_fixed && member->version < MST_JOB_VERSION_FIXED) {
        return "with which every job may grow";
    }
    if (self->workers > 0 && member->version < MST_JOB_VERSION_WORKERS) {
        return "which does not number the workers of nodes";
    }
    return NULL;
}

/* An announcement was accepted. */
static void be_welcome(struct mst__member *member, const struct mst__job_message *message)
{
    if (member->link != MST_MEMBER_WELCOME) {
        member->link = MST_MEMBER_WELCOME;
        member->welcome_us = member->now_us;
    }
    member->was_welcome = true;
    member->version = message->u.welcome.version;
    const char *lack = lack_of(member);
    if (lack != NULL && member->phase == MST_MEMBER_JOINING) {
        (void)mst__fail(&member->err, MST_ENOTSUP, 0, "%.60s has an earlier version, %s",
                        member->options.where, lack);
        fail(member);
        return;
    }
    if (member->is_cut_told) {
        put_notice(member, MST_MEMBER_NOTICE_AGAIN, message, (struct mst_bytes){.data = NULL});
    }
    member->is_cut_told = false;
    if (member->phase == MST_MEMBER_JOINING && member->restart == MST_MEMBER_WORD_SAID) {
        member->restart = MST_MEMBER_WORD_NONE; /* also reports sent before the announcement */
    }
    bool was_claim =
        member->phase == MST_MEMBER_JOINING && member->restart == MST_MEMBER_WORD_PENDING;
    say_words(member);
    if (was_claim) {
        announce(member);
    }
}

static void on_heard(struct mst__member *member, const struct mst__job_message *message)
{
    if (!is_connected(member)) {
        return;
    }
    member->heard_us = member->now_us;
    member->answer_us = INT64_MAX;
    if (message->type == MST_JOB_PONG) {
        be_answered(member);
    } else if (message->type == MST_JOB_WELCOME) {
        be_welcome(member, message);
    } else if (message->type == MST_JOB_SEALED) {
        be_sealed(member, message);
    } else if (member->phase == MST_MEMBER_JOINING) {
        hear_joining(member, message);
    } else if (member->phase == MST_MEMBER_HOLDING) {
        hear_holding(member, message);
    }
}

static void on_connected(struct mst__member *member)
{
    if (member->link != MST_MEMBER_CONNECTING) {
        return; /* it is no longer wanted and is being closed */
    }
    member->link = MST_MEMBER_CONNECTED;
    member->heard_us = member->now_us;
    announce(member);
}

static void on_disconnected(struct mst__member *member, const struct mst_err *err)
{
    if (member->link == MST_MEMBER_APART) {
        return;
    }
    lose_link(member, err);
    bool is_final = err->code == MST_ENOTSUP || err->code == MST_ENOMEM || err->code == MST_ELIMIT;
    if (is_final && member->phase == MST_MEMBER_JOINING) {
        (void)mst__err_pass(&member->err, err->code, err);
        fail(member);
    }
}

/* False if the connection was given up. */
static bool look_for_answer(struct mst__member *member)
{
    if (member->now_us < member->answer_us) {
        return true;
    }
    /* The answer may be queued behind other bytes. */
    int64_t alive_us = mst__saturate_add(member->heard_us, member->options.expiry_us);
    if (member->now_us < alive_us) {
        member->answer_us = alive_us;
        return true;
    }
    struct mst_err err;
    (void)mst__fail(&err, MST_ECONN, 0, "job server %.60s: no answer for %lld ms",
                    member->options.where, (long long)(member->options.expiry_us / 1000));
    drop_link(member, &err);
    return false;
}

static void on_time(struct mst__member *member)
{
    if (member->phase == MST_MEMBER_JOINING && member->now_us >= member->join_us) {
        be_late(member);
    }
    if (is_connected(member)) {
        if (look_for_answer(member) && member->now_us >= member->beat_us) {
            beat(member);
        }
    } else if (member->link == MST_MEMBER_APART && member->now_us >= member->connect_us) {
        member->link = MST_MEMBER_CONNECTING;
        member->connect_us = INT64_MAX;
        put(member, (struct mst__member_effect){.kind = MST_MEMBER_CONNECT});
    }
}

void mst__member_step(struct mst__member *member, const struct mst__member_event *event)
{
    member->effects_count = 0;
    if (event->now_us > member->now_us) {
        member->now_us = event->now_us;
    }
    switch (event->kind) {
        case MST_MEMBER_EVENT_TIME:
            on_time(member);
            return;
        case MST_MEMBER_EVENT_CONNECTED:
            on_connected(member);
            return;
        case MST_MEMBER_EVENT_DISCONNECTED:
            on_disconnected(member, event->err);
            return;
        case MST_MEMBER_EVENT_HEARD:
            on_heard(member, event->message);
            return;
        case MST_MEMBER_EVENT_ALIVE:
            if (event->now_us > member->heard_us) {
                member->heard_us = event->now_us;
            }
            return;
        case MST_MEMBER_EVENT_EXPLAINED:
            on_explained(member, event);
            return;
        case MST_MEMBER_EVENT_WANTED:
            on_wanted(member, event);
            return;
        case MST_MEMBER_EVENT_LEAVE:
            if (member->phase != MST_MEMBER_OUT) {
                part(member);
            }
            return;
        case MST_MEMBER_EVENT_FINISH:
        case MST_MEMBER_EVENT_RESTART:
            on_word(member, event);
            return;
        case MST_MEMBER_EVENT_LEAVING:
            on_leaving(member, event->in_us);
            return;
    }
}

/* --- queries --- */

int64_t mst__member_due_us(const struct mst__member *member)
{
    int64_t due_us = member->phase == MST_MEMBER_JOINING ? member->join_us : INT64_MAX;
    if (member->link == MST_MEMBER_APART) {
        return mst__min(due_us, member->connect_us);
    }
    return is_connected(member) ? mst__min(due_us, mst__min(member->beat_us, member->answer_us))
                                : due_us;
}

void mst__member_message(const struct mst__member *member,
                         const struct mst__member_effect *effect,
                         struct mst__job_message *ret_message)
{
    const struct mst__member_options *options = &member->options;
    MST_ASSERT(effect->kind == MST_MEMBER_SEND);
    *ret_message = (struct mst__job_message){.type = effect->type};
    if (effect->type == MST_JOB_HEARTBEAT) {
        ret_message->u.heartbeat.wants_pong = effect->wants_pong;
    } else if (effect->type == MST_JOB_ANNOUNCE) {
        struct mst__job_announce *announce = &ret_message->u.announce;
        announce->version = MST_JOB_VERSION;
        announce->run_id = options->run_id;
        announce->heartbeat_us = options->beat_us;
        announce->is_new = options->is_new && !member->was_welcome;
        announce->announcement = options->self;
        announce->announcement.expiry_us = options->expiry_us;
        announce->announcement.address = member->address;
        announce->announcement.claim = member->claim;
        /* A node whose failure is not yet sent stays in its round until it is. */
        announce->announcement.claim.holds =
            member->claim.holds || member->restart == MST_MEMBER_WORD_PENDING;
    } else if (effect->type == MST_JOB_FINISH) {
        ret_message->u.finish = (struct mst__job_finish){
            .epoch = member->claim.epoch,
            .round = member->claim.round,
            .status = member->finish_status,
            .text = mst_bytes_str(member->word_text),
        };
    } else if (effect->type == MST_JOB_LEAVING) {
        ret_message->u.leaving = (struct mst__job_leaving){
            .epoch = member->claim.epoch,
            .round = member->claim.round,
            .in_us = mst__max(0, mst__saturate_subtract(member->leaving_us, member->now_us)),
        };
    } else if (effect->type == MST_JOB_RESTART) {
        ret_message->u.restart = (struct mst__job_restart){
            .epoch = member->claim.epoch,
            .round = member->claim.round,
            .cause = member->cause,
        };
        ret_message->u.restart.cause.text = mst_bytes_str(member->word_text);
        ret_message->u.restart.cause.report = mst_bytes_str(member->word_report);
    }
}

void mst__member_check(const struct mst__member *member)
{
    MST_ASSERT(member->claim.holds == (member->phase == MST_MEMBER_HOLDING));
    MST_ASSERT(!member->claim.holds || member->claim.rank < member->claim.world);
    MST_ASSERT(member->phase != MST_MEMBER_OUT || member->link == MST_MEMBER_APART);
    MST_ASSERT(member->link == MST_MEMBER_APART || member->connect_us == INT64_MAX);
    MST_ASSERT(is_connected(member) || member->beat_us == INT64_MAX);
    MST_ASSERT(is_connected(member) || member->answer_us == INT64_MAX);
    /* If a connection is wanted, there is one, or an attempt is due. */
    MST_ASSERT(!wants_link(member) || member->link != MST_MEMBER_APART ||
               member->connect_us != INT64_MAX);
    MST_ASSERT(member->phase == MST_MEMBER_JOINING || member->join_us == INT64_MAX);
    bool has_finish = member->finish != MST_MEMBER_WORD_NONE;
    bool has_restart = member->restart != MST_MEMBER_WORD_NONE;
    MST_ASSERT(!has_finish || member->phase == MST_MEMBER_HOLDING);
    MST_ASSERT(!has_restart || wants_link(member));
    MST_ASSERT(!(has_finish && has_restart));
    MST_ASSERT(member->word_answers <= member->answers_due);
    MST_ASSERT(is_connected(member) || member->answers_due == 0);
    MST_ASSERT(!(has_finish || has_restart) || member->claim.rank < member->claim.world);
    /* All reports were sent, and only on this connection. */
    bool is_welcome = member->link == MST_MEMBER_WELCOME;
    MST_ASSERT(!has_finish || (member->finish == MST_MEMBER_WORD_SAID) == is_welcome);
    MST_ASSERT(!has_restart || (member->restart == MST_MEMBER_WORD_SAID) == is_welcome);
}
