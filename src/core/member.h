/* core/member.h - a node's side of an authority: it announces itself, keeps its session alive, is
 * in a round, comes back for the next one, is refused or expelled, leaves.
 *
 * Pure: one event goes in, a few effects come out; time is part of the event. The driver (a
 * connection to a server, a session at an etcd, the simulator) executes the effects in order and
 * feeds the results. It owns the connection and its clock; the member decides when to connect, what
 * to send, and what an answer means.
 *
 * A lost connection is made again, and the place in the round is claimed; the authority keeps it
 * for a while. The node sends heartbeats all the time, and the authority answers every few of them,
 * so both notice if the other one is gone silently.
 *
 * A node repeats that its work is done, or has failed, on every new connection until the round is
 * over or the job is closed. An authority of version 1 of the protocol does not know these messages
 * and does not get them. */
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
 * A node that leaves is OUT, from any phase. A word of the work, FINISH or RESTART, changes no
 * phase:
 *
 *            finish, restart            welcome                 the round is over, closed, left
 *    NONE -------------------> PENDING ---------> SAID ----------------------------------> NONE
 *                                 ^                |
 *                                 +----------------+ disconnected
 */
enum mst__member_phase {
    MST_MEMBER_OUT,      /* wants no round */
    MST_MEMBER_JOINING,  /* wants the next round */
    MST_MEMBER_HOLDING,  /* is in a round, also if that is over and the others wait for it */
    MST_MEMBER_EXPELLED, /* has lost its place in the round */
    MST_MEMBER_CLOSED,   /* the job is closed */
};
#define MST_MEMBER_PHASE_COUNT (MST_MEMBER_CLOSED + 1)

enum mst__member_link {
    MST_MEMBER_APART,      /* no connection; the next attempt is at connect_us */
    MST_MEMBER_CONNECTING, /* the driver is connecting */
    MST_MEMBER_CONNECTED,  /* announced, and not yet answered */
    MST_MEMBER_WELCOME,    /* the announcement was accepted */
};

enum mst__member_event_kind {
    MST_MEMBER_EVENT_TIME,         /* time has passed */
    MST_MEMBER_EVENT_CONNECTED,    /* an attempt to connect has succeeded */
    MST_MEMBER_EVENT_DISCONNECTED, /* @err: it has failed, or the connection is lost */
    MST_MEMBER_EVENT_HEARD,        /* @message */
    MST_MEMBER_EVENT_ALIVE,        /* at @now_us bytes came that are not a message for us */
    MST_MEMBER_EVENT_EXPLAINED,    /* the answer to EXPLAIN: @is_spare, @text */
    MST_MEMBER_EVENT_WANTED,       /* the application wants the next round: @address, @timeout_us,
                                      @spent_us. Not while JOINING */
    MST_MEMBER_EVENT_LEAVE,   /* it wants no round any more; does not wait for pending reports */
    MST_MEMBER_EVENT_FINISH,  /* its work is done: @status, @text. Ignored without a current
                                      round, as RESTART */
    MST_MEMBER_EVENT_RESTART, /* its work has failed: @cause. WANTED follows */
    MST_MEMBER_EVENT_LEAVING, /* it will leave the round in @in_us. Ignored as these, and for an
                                 authority of an earlier version */
};

/* Pointers are borrowed for the call; @address until the next WANTED. */
struct mst__member_event {
    enum mst__member_event_kind kind;
    int64_t now_us;
    const struct mst_err *err;
    const struct mst__job_message *message;
    bool is_spare;
    struct mst_bytes text;
    struct mst_bytes address;
    int64_t timeout_us; /* INT64_MAX = no limit; a spare is not late */
    int64_t spent_us;   /* of @timeout_us, before this event */
    int32_t status;
    const struct mst__cause *cause; /* without rank and node */
    int64_t in_us;
};

/* Events of a node in a round, or on the way to one. */
#define MST_MEMBER_NOTICE_MAP(X)                                                           \
    X(CUT, "disconnected")  /* @err */                                                     \
    X(AGAIN, "connected")   /* after a CUT */                                              \
    X(STANDBY, "standby")   /* @message: QUEUED or SPARE */                                \
    X(LOST, "lost")         /* @message */                                                 \
    X(WAITING, "waiting")   /* @message */                                                 \
    X(REOPENED, "reopened") /* @message; once for a round */                               \
    X(EXPELLED, "expelled") /* @text */                                                    \
    X(CLOSED, "closed")     /* @text, @end; once. While JOINING there is FAILED instead */ \
    X(UNSAID, "unsaid")     /* @err: this authority does not support FINISH or RESTART */

enum mst__member_notice {
#define MST_MEMBER_NOTICE_ENUM(name, text) MST_MEMBER_NOTICE_##name,
    MST_MEMBER_NOTICE_MAP(MST_MEMBER_NOTICE_ENUM)
#undef MST_MEMBER_NOTICE_ENUM
};

enum mst__member_effect_kind {
    MST_MEMBER_CONNECT,    /* connect once: CONNECTED or DISCONNECTED follows */
    MST_MEMBER_DISCONNECT, /* close the connection. @is_parting: after all output has arrived */
    MST_MEMBER_SEND,       /* send mst__member_message. A failure is a DISCONNECTED */
    MST_MEMBER_EXPLAIN,    /* find out why there is no round yet: EXPLAINED or TIME follows */
    MST_MEMBER_SEALED,     /* the wanted round: @message */
    MST_MEMBER_FAILED,     /* it does not come: member->err. MST_EFINISHED: the job has finished,
                              which is not a failure; MST_ECLOSED: it is closed, or has failed. At
                              the end of our job: @end, @text */
    MST_MEMBER_NOTICE,
};

/* Pointers are borrowed from the member and the event, until the next step. */
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

/* The state of a report, FINISH or RESTART. */
enum mst__member_word {
    MST_MEMBER_WORD_NONE,
    MST_MEMBER_WORD_PENDING, /* to be sent when there is a connection */
    MST_MEMBER_WORD_SAID,    /* sent on this one */
};

struct mst__member_options {
    /* The identity and settings of the node; the member fills in claim and address. Texts and
     * labels are borrowed for the member's life. */
    struct mst__announcement self;
    struct mst_bytes run_id;
    bool is_new;              /* a closed job of this id makes room for a new one */
    const char *where;        /* name of the authority in messages; borrowed as well */
    int64_t beat_us;          /* INT64_MAX = the driver keeps the session alive */
    int64_t expiry_us;        /* silence after which the authority counts as gone */
    int64_t beats_per_answer; /* >= 1 */
    uint64_t seed;            /* for pauses */
};

/* Pauses between attempts to connect. */
#define MST_MEMBER_AGAIN_US 50000
#define MST_MEMBER_AGAIN_US_MAX 1000000

/* So many connections in a row may end so soon after their WELCOME, and so many announcements in
 * that time may be answered with news of an earlier session, without a pause. */
#define MST_MEMBER_BRIEF_MAX 4
#define MST_MEMBER_BRIEF_US 1000000

/* How long to wait for an explanation. */
#define MST_MEMBER_EXPLAIN_US 1000000

/* Plain data; drivers may read it but not write. */
struct mst__member {
    struct mst__member_options options;
    struct mst__prng prng;
    enum mst__member_phase phase;
    enum mst__member_link link;
    int64_t now_us;

    /* The round. */
    struct mst__claim claim; /* the last known one; holds = is in it */
    bool is_reopened;        /* it is over, and that was reported */
    struct mst_bytes address;

    /* Its work. */
    int64_t leaving_us;            /* with @leaving: then it will leave */
    enum mst__member_word finish;  /* HOLDING */
    enum mst__member_word restart; /* HOLDING, and JOINING until it is sent */
    enum mst__member_word leaving; /* HOLDING */
    int32_t finish_status;
    struct mst__cause cause; /* of the restart; its texts are below */
    char word_text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1];
    char word_report[MST_AUTHORITY_REPORT_SIZE_MAX + 1];
    struct mst_err word_err; /* UNSAID: of the last report; code 0 = no error */
    uint32_t word_answers;   /* of @answers_due, until the authority has read the report */

    /* JOINING. */
    bool is_spare;      /* told by the authority */
    bool is_patient;    /* was a spare when the time was last checked */
    bool is_explaining; /* the time is over: join_us is that of the explanation */
    int64_t timeout_us;
    int64_t join_us; /* when it gives up; INT64_MAX = never */

    /* The connection. */
    bool was_welcome;     /* ever: it is the job that this node came for */
    uint32_t version;     /* WELCOME: of the protocol */
    int64_t connect_us;   /* APART: the next attempt; INT64_MAX = none */
    int64_t pause_us;     /* before the next attempt after a failure */
    int64_t welcome_us;   /* WELCOME: since when */
    uint32_t brief_count; /* connections in a row that ended soon after their WELCOME */
    int64_t news_us;      /* JOINING: the time of the first ... */
    uint32_t news_count;  /* ... of these announcements after news of an earlier session */
    int64_t beat_us;      /* next heartbeat; INT64_MAX = none */
    int64_t answer_us;    /* when the authority must have answered; INT64_MAX = no answer is due */
    int64_t heard_us;     /* when bytes last arrived */
    int64_t beats;        /* since the last one that wants an answer */
    uint32_t answers_due; /* heartbeats that want an answer and have none yet */
    bool is_cut_told;
    struct mst_err link_err; /* why there is no connection; code 0 = no error yet */
    struct mst_err err;      /* FAILED */

    struct mst__member_effect effects[MST_MEMBER_EFFECTS_MAX];
    size_t effects_count;
};

/* @options are copied. Nothing is ever allocated. */
void mst__member_init(struct mst__member *member, const struct mst__member_options *options);

/* The effects of @event are in member->effects. Time never goes back: an earlier time is
 * ignored. */
void mst__member_step(struct mst__member *member, const struct mst__member_event *event);

/* When the next TIME is due; INT64_MAX = never. */
int64_t mst__member_due_us(const struct mst__member *member);

/* The message of the effect SEND. The driver adds the wall clock to an ANNOUNCE. Borrows from
 * @member. */
void mst__member_message(const struct mst__member *member,
                         const struct mst__member_effect *effect,
                         struct mst__job_message *ret_message);

/* Whether a report is not yet sent, and whether no report is left that the authority may not have
 * read: it answers the heartbeat behind it. A driver that keeps the session alive finds that out
 * itself. */
bool mst__member_has_word(const struct mst__member *member);
bool mst__member_is_heard(const struct mst__member *member);

/* Assert all invariants between two steps. */
void mst__member_check(const struct mst__member *member);

#endif /* MST_CORE_MEMBER_H */
