/* core/member.h - a node's side of an authority: it announces itself, keeps its session alive, is
 * in a round, comes back for the next one, is refused or expelled, leaves.
 *
 * Pure: one event goes in, a few effects come out; time is part of the event. The driver (a
 * connection to a server, a session at an etcd, the simulator) carries the effects out in their
 * order and feeds what comes of them. It owns the connection and its clock; the member decides when
 * there should be one, what is said on it, and what an answer means.
 *
 * A connection that is lost is made anew, and the place in the round is claimed again; the
 * authority keeps it for a while. The authority hears the node all the time and answers when it is
 * asked to, with every few heartbeats, so both notice when the other one is gone without a word.
 *
 * That its work is done, or has failed, a node says again on every new connection, until the round
 * is over or the job is closed. An authority of the first version of the protocol does not know
 * these words, and is not told. */
#ifndef MST_CORE_MEMBER_H
#define MST_CORE_MEMBER_H

#include "base/prng.h"
#include "core/job_message.h"

/*
 *            wanted                     sealed
 *    OUT --------------> JOINING ------------------> HOLDING
 *     ^                  | ^ ^ ^        wanted        | | |
 *     |   refused, late, | | | +----------------------+ | |
 *     |   closed         | | |          wanted          | | expelled, claim refused
 *     +------------------+ | +------------- EXPELLED <--|-+
 *                          |            wanted          |
 *                          +--------------- CLOSED <----+ closed
 *
 * Whoever leaves is OUT, from everywhere. A word of the work, FINISH or RESTART, changes no phase:
 *
 *            finish, restart            welcome                 the round is over, closed, left
 *    NONE -------------------> PENDING ---------> SAID ----------------------------------> NONE
 *                                 ^                |
 *                                 +----------------+ disconnected
 */
enum mst__member_phase {
    MST_MEMBER_OUT,      /* wants nothing */
    MST_MEMBER_JOINING,  /* wants the next round */
    MST_MEMBER_HOLDING,  /* is in a round, also when that is over and the others wait for it */
    MST_MEMBER_EXPELLED, /* the place in the round is gone */
    MST_MEMBER_CLOSED,   /* the job is */
};
#define MST_MEMBER_PHASE_COUNT (MST_MEMBER_CLOSED + 1)

enum mst__member_link {
    MST_MEMBER_APART,      /* no connection; the next attempt is at connect_us */
    MST_MEMBER_CONNECTING, /* the driver tries */
    MST_MEMBER_CONNECTED,  /* announced, and not answered yet */
    MST_MEMBER_WELCOME,    /* the announcement was accepted */
};

enum mst__member_event_kind {
    MST_MEMBER_EVENT_TIME,         /* time has passed */
    MST_MEMBER_EVENT_CONNECTED,    /* an attempt to connect has succeeded */
    MST_MEMBER_EVENT_DISCONNECTED, /* @err: it has failed, or there is no connection any more */
    MST_MEMBER_EVENT_HEARD,        /* @message */
    MST_MEMBER_EVENT_ALIVE,        /* at @now_us something came that is no message for us */
    MST_MEMBER_EVENT_EXPLAINED,    /* the answer to EXPLAIN: @is_spare, @text */
    MST_MEMBER_EVENT_WANTED,       /* the application wants the next round: @address, @timeout_us.
                                      Not while JOINING */
    MST_MEMBER_EVENT_LEAVE,        /* it wants none any more. Does not wait until a word is SAID */
    MST_MEMBER_EVENT_FINISH,       /* its work is done: @status, @text. Of a round that is over, or
                                      without one, nothing; the same of RESTART */
    MST_MEMBER_EVENT_RESTART,      /* its work has failed: @cause. WANTED follows */
};

/* What it points to is borrowed for the call; of @address: until the next WANTED. */
struct mst__member_event {
    enum mst__member_event_kind kind;
    int64_t now_us;
    const struct mst_err *err;
    const struct mst__job_message *message;
    bool is_spare;
    struct mst_bytes text;
    struct mst_bytes address;
    int64_t timeout_us; /* INT64_MAX = as long as it takes; a spare is not late */
    int32_t status;
    const struct mst__cause *cause; /* without rank and node */
};

/* What happens to a node in a round, or on the way to one. */
#define MST_MEMBER_NOTICE_MAP(X)                                                           \
    X(CUT, "disconnected")  /* @err */                                                     \
    X(AGAIN, "connected")   /* after a CUT */                                              \
    X(STANDBY, "standby")   /* @message: QUEUED or SPARE */                                \
    X(LOST, "lost")         /* @message */                                                 \
    X(WAITING, "waiting")   /* @message */                                                 \
    X(REOPENED, "reopened") /* @message; once for a round */                               \
    X(EXPELLED, "expelled") /* @text */                                                    \
    X(CLOSED, "closed")     /* @text, @end; once. While JOINING there is FAILED instead */ \
    X(UNSAID, "unsaid")     /* @err: FINISH or RESTART is not for this authority */

enum mst__member_notice {
#define MST_MEMBER_NOTICE_ENUM(name, text) MST_MEMBER_NOTICE_##name,
    MST_MEMBER_NOTICE_MAP(MST_MEMBER_NOTICE_ENUM)
#undef MST_MEMBER_NOTICE_ENUM
};

enum mst__member_effect_kind {
    MST_MEMBER_CONNECT,    /* try to, once: CONNECTED or DISCONNECTED follows */
    MST_MEMBER_DISCONNECT, /* close the connection. @is_parting: after what was sent has arrived */
    MST_MEMBER_SEND,       /* what mst__member_message says. A failure is a DISCONNECTED */
    MST_MEMBER_EXPLAIN,    /* find out why there is no round yet: EXPLAINED follows, or time does */
    MST_MEMBER_SEALED,     /* the round that was wanted: @message */
    MST_MEMBER_FAILED,     /* it does not come: member->err. MST_EFINISHED: the job has finished,
                              which is no failure; MST_ECLOSED: it is closed, or has failed. Of
                              our job's end: @end, @text */
    MST_MEMBER_NOTICE,
};

/* What it points to is borrowed from the member and the event, until the next step. */
struct mst__member_effect {
    enum mst__member_effect_kind kind;
    enum mst__job_type type; /* SEND */
    bool wants_pong;         /* of a HEARTBEAT */
    bool is_parting;
    enum mst__member_notice notice;
    const struct mst__job_message *message;
    const struct mst_err *err;
    struct mst_bytes text;
    const struct mst__job_end *end; /* how the job has ended */
};
#define MST_MEMBER_EFFECTS_MAX 4

/* What becomes of a word of the work. */
enum mst__member_word {
    MST_MEMBER_WORD_NONE,
    MST_MEMBER_WORD_PENDING, /* to be said when there is a connection */
    MST_MEMBER_WORD_SAID,    /* on this one */
};

struct mst__member_options {
    /* Who it is and what it wants; the member fills in claim and address. Texts and labels are
     * borrowed for the member's life. */
    struct mst__announcement self;
    struct mst_bytes run_id;
    bool is_new;              /* a job of this id that is closed makes room for another one */
    const char *where;        /* what messages call the authority; borrowed, too */
    int64_t beat_us;          /* INT64_MAX = the driver keeps the session alive */
    int64_t expiry_us;        /* silence after which the other side is gone */
    int64_t beats_per_answer; /* >= 1 */
    uint64_t seed;            /* for pauses */
};

/* Pauses between attempts to connect. */
#define MST_MEMBER_AGAIN_US 50000
#define MST_MEMBER_AGAIN_US_MAX 1000000

/* How long an explanation is waited for. */
#define MST_MEMBER_EXPLAIN_US 1000000

/* Plain data; to be read and not written by drivers. */
struct mst__member {
    struct mst__member_options options;
    struct mst__prng prng;
    enum mst__member_phase phase;
    enum mst__member_link link;
    int64_t now_us;

    /* The round. */
    struct mst__claim claim; /* the last one that it was told of; holds = is in it */
    bool is_reopened;        /* it is over, and that was told */
    struct mst_bytes address;

    /* Its work. */
    enum mst__member_word finish;  /* HOLDING */
    enum mst__member_word restart; /* HOLDING, and JOINING until it has said so */
    int32_t finish_status;
    struct mst__cause cause; /* of the restart; its text is below */
    char word_text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1];
    struct mst_err
        word_err; /* UNSAID: of the last word; code 0 = it could be said, or was not yet */

    /* JOINING. */
    bool is_spare;      /* was told so */
    bool is_patient;    /* was one when the time was last looked at */
    bool is_explaining; /* the time is over: join_us is that of the explanation */
    int64_t timeout_us;
    int64_t join_us; /* when it gives up; INT64_MAX = never */

    /* The connection. */
    bool was_welcome;   /* ever: the job is the one that it has come for */
    uint32_t version;   /* WELCOME: of the protocol */
    int64_t connect_us; /* APART: the next attempt; INT64_MAX = none */
    int64_t pause_us;   /* the next one after a failure */
    int64_t beat_us;    /* when to say something; INT64_MAX = nothing to keep alive */
    int64_t answer_us;  /* when the authority must have answered; INT64_MAX = it was not asked */
    int64_t heard_us;   /* when anything last came */
    int64_t beats;      /* since it was last asked */
    bool is_cut_told;
    struct mst_err link_err; /* why there is no connection; code 0 = nothing has failed yet */
    struct mst_err err;      /* FAILED */

    struct mst__member_effect effects[MST_MEMBER_EFFECTS_MAX];
    size_t effects_count;
};

/* @options are copied. Nothing is ever allocated. */
void mst__member_init(struct mst__member *member, const struct mst__member_options *options);

/* The effects of @event are in member->effects. Time that goes back counts as none. */
void mst__member_step(struct mst__member *member, const struct mst__member_event *event);

/* When the next TIME is due; INT64_MAX = nothing is. */
int64_t mst__member_due_us(const struct mst__member *member);

/* The message of the effect SEND. Of an ANNOUNCE the driver adds the wall clock. Borrows from
 * @member. */
void mst__member_message(const struct mst__member *member,
                         const struct mst__member_effect *effect,
                         struct mst__job_message *ret_message);

/* Whether there is a word of the work that was not said yet. */
bool mst__member_has_word(const struct mst__member *member);

/* Assert everything that must be true between two steps. */
void mst__member_check(const struct mst__member *member);

#endif /* MST_CORE_MEMBER_H */
