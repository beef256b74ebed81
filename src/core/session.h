/* core/session.h - one node's work on the record, as a step function without I/O.
 *
 * An event goes in, one effect comes out; the caller executes it and feeds the answer as the next
 * event. Between operations the session is idle and remembers the record, the nodes that it has
 * observed and its round. Time and randomness are arguments. */
#ifndef MST_CORE_SESSION_H
#define MST_CORE_SESSION_H

#include "core/apply.h"
#include "core/expire.h"

enum mst__session_mode {
    /* Ours: related changes in one write, jitter where many would write at once, backoff after a
     * lost compare-and-set, liveness by observation, no torn results. */
    MST_SESSION_DEFAULT,
    /* The peers' state holder and executor to the letter: a cache of one second, one write per
     * action, immediate retries, liveness by stamps. To replay their histories. */
    MST_SESSION_EXACT,
};

/*
 *                  begin                      time, change, cancel
 *     IDLE ------------------> READING <----------------------------- WAITING
 *      ^                        |  |                                   ^  ^
 *      |    finished, failed    |  |   nothing to do yet, or many      |  |
 *      +------------------------+  |   others are about to write, too  |  |
 *      |                        |  +-----------------------------------+  |
 *      |                        | something to write                      |
 *      |    finished, failed    v                                         |
 *      +--------------------- WRITING ------------------------------------+
 *                              |   ^   nothing to do yet, or lost
 *                              +---+
 *                              won or lost, and there is something to write
 *
 * The exact mode does not read when its cache is fresh, nor before it writes what could not be
 * written: there IDLE and WAITING also go where READING does.
 */
enum mst__session_phase {
    MST_SESSION_IDLE,
    MST_SESSION_READING, /* a read was requested */
    MST_SESSION_WRITING, /* a compare-and-set was requested */
    MST_SESSION_WAITING, /* for a time, or for a change of the record */
};

enum mst__event_kind {
    MST_EVENT_BEGIN,       /* idle: operation, deadline_us */
    MST_EVENT_READ,        /* reading: state, token */
    MST_EVENT_READ_NONE,   /* reading: there is no record */
    MST_EVENT_WON,         /* writing: the record is ours now; token */
    MST_EVENT_LOST,        /* writing: another node was faster; state, token */
    MST_EVENT_LOST_UNREAD, /* the same, without the current record; only if @may_be_unread */
    MST_EVENT_ABSENT,      /* writing: nothing written, there is no record */
    MST_EVENT_FAILED,      /* reading, writing: the backend failed; a write may have happened */
    MST_EVENT_BROKEN,      /* reading, writing: the stored data is not a record */
    MST_EVENT_WOKEN,       /* waiting: the record may have changed */
    MST_EVENT_TIME,        /* waiting: time has passed */
    MST_EVENT_CANCEL,      /* waiting: end the operation and remove our entries */
};

struct mst__session_event {
    enum mst__event_kind kind;
    enum mst__operation operation;
    int64_t deadline_us;      /* monotonic */
    struct mst__state *state; /* taken in any case; empty afterwards */
    struct mst_buffer *token; /* the same */
    /* With a state for which mst__session_misses_members is true: how many of them have
     * finished. */
    int64_t finished;
    bool is_past; /* with a state: a change that was told of, and others may have followed before
                     the read was requested */
};

enum mst__result {
    MST_RESULT_OK,
    MST_RESULT_CLOSED,
    MST_RESULT_TIMEOUT,
    MST_RESULT_GRACEFUL_EXIT, /* a spare, and the rendezvous was closed: not needed */
    MST_RESULT_CONNECTION,
    MST_RESULT_STATE, /* not a record, or unexpected content */
    MST_RESULT_CANCELLED,
};

struct mst__outcome {
    enum mst__result result;
    /* Of a join that is OK. */
    int64_t round;
    int64_t rank;
    int64_t world;
};

enum mst__effect_kind {
    MST_EFFECT_READ,  /* get the record: READ, READ_NONE, FAILED or BROKEN */
    MST_EFFECT_WRITE, /* compare-and-set @state under @token: WON, LOST, ABSENT, FAILED, BROKEN;
                         if @may_be_unread also LOST_UNREAD */
    MST_EFFECT_WAIT,  /* until @until_us: TIME; earlier WOKEN if @wants_change, or CANCEL */
    MST_EFFECT_DONE,  /* the operation has ended; @outcome */
};

/* @state and @token are valid until the next step. */
struct mst__effect {
    enum mst__effect_kind kind;
    const struct mst__state *state;
    bool has_token; /* false: only if there is no record yet */
    struct mst_bytes token;
    bool may_be_unread; /* after a loss it waits and then reads, so the record need not be
                           fetched */
    int64_t until_us;   /* monotonic */
    bool wants_change;
    int64_t skip; /* so many changes may pass unnoticed */
    struct mst__outcome outcome;
};

struct mst__session_options {
    struct mst__node node; /* copied */
    struct mst__settings settings;
    enum mst__session_mode mode;
    enum mst__record_dialect dialect; /* of a record that this node writes first */
    bool can_watch;                   /* a change of the record ends a wait; the driver may update
                                         it between steps */
    int64_t write_us;                 /* minimum time of a write that goes to a disk; 0 = almost
                                         none */
};

/* Counters since the start of the session. */
struct mst__session_stats {
    uint64_t reads;
    uint64_t writes; /* attempts at compare-and-set */
    uint64_t losses; /* of those: another node was faster */
    uint64_t doubts; /* complete rounds that were left because the record no longer showed them
                        whole */
};

/* How often a session leaves a round that was completed before the last call can have ended. */
#define MST_SESSION_INSIST_MAX 3

/* The reason for a wait. */
enum mst__session_wait {
    MST_WAIT_POLL,   /* nothing to do yet */
    MST_WAIT_HOLD,   /* before a write that others are likely to make as well */
    MST_WAIT_GATHER, /* woken by a change; others may follow, so do not read for each */
};

/* Plain data; drivers may read it but not write. */
struct mst__session {
    struct mst__session_options options;
    uint8_t *address; /* of options.node */
    enum mst__session_phase phase;
    enum mst__operation operation; /* what was begun */
    enum mst__operation stage;     /* of NEXT and of a join that re-enters: EXIT or JOIN */
    enum mst__action action;       /* the last decision */
    int64_t deadline_us;
    struct mst__session_stats stats;
    bool is_stage_unsaved; /* the exit of the EXIT stage is not yet written */
    bool is_cancelled;
    unsigned insisted; /* rounds left because they were completed too early */

    /* The state holder. */
    bool is_known; /* the state is the record, apart from our changes */
    bool is_dirty;
    bool has_token;
    bool has_before;
    bool has_beat;
    bool has_joined;
    struct mst__state state;
    struct mst_buffer token;
    int64_t synced_us;
    struct mst__peers dead; /* found at the last read; ids of state */

    /* Judging. */
    struct mst__observer observer;
    size_t participants_read; /* their number in the record, before lost nodes were removed */
    int64_t finished;         /* members of the round that have finished and are gone */
    struct mst__state before; /* the round as last seen before its completion, if has_before */
    int64_t before_left_us;   /* and the rest of its last call at its completion */
    int64_t completed_round;  /* a round that we completed, and its size */
    int64_t completed_count;
    int64_t changed_us;       /* when the record last changed */
    int64_t beat_us;          /* when we made the stored heartbeat, if has_beat */
    struct mst__state joined; /* our round at its completion, if has_joined */

    /* Becomes true if the write wins. */
    int64_t pending_beat_us;
    bool pending_beat;
    bool pending_complete;
    bool pending_exit;

    /* Waiting. */
    int64_t skip; /* of a poll, see struct mst__effect */
    bool wants_change;
    bool is_held; /* the hold before the next write has begun; it ends at held_us */
    bool is_hold_over;
    enum mst__session_wait wait;
    unsigned losses; /* consecutive */
    int64_t until_us;
    int64_t held_us;
    int64_t asked_us; /* when the last read or write was requested */
    int64_t trip_us;  /* the fastest answer so far, and the last one */
    int64_t trip_last_us;
};

/* 0 or MST_ENOMEM; @session can be closed either way. */
int mst__session_init(struct mst__session *session, const struct mst__session_options *options);
void mst__session_close(struct mst__session *session);

/**
 * Feed @event at @now_us (wall clock) and @now_mono_us (monotonic, never falling), with @seed a
 * fresh random number. @ret_effect is the next step.
 *
 * Returns 0; MST_EINVAL if the event is not allowed in this phase, with nothing changed;
 * MST_ENOMEM, MST_ELIMIT: the operation has ended, the session is idle and will read again.
 */
int mst__session_step(struct mst__session *session,
                      const struct mst__session_event *event,
                      int64_t now_us,
                      int64_t now_mono_us,
                      uint64_t seed,
                      struct mst__effect *ret_effect);

/* Whether @state, which was just read, shows the complete round that @session wants to join with
 * fewer members than its seal: then the caller must find out how many of the missing ones have
 * finished. */
bool mst__session_misses_members(const struct mst__session *session,
                                 const struct mst__state *state);

/* The differences between the last read record and the joined round. */
struct mst__changes {
    bool is_known; /* a record was read, and no error since */
    bool closed;
    bool expelled;        /* we were in a complete round, did not leave and are out */
    size_t waiting_count; /* nodes that wait for the next round; 0 if there is no room for one */
    size_t lost_count;    /* members of our round that are gone */
    /* Poll by then, because a node could be lost; and not earlier, because the records of large
     * groups change all the time. Monotonic. */
    int64_t poll_us;
    int64_t poll_us_min;
    /* Our next heartbeat; INT64_MAX without an entry in the record. */
    int64_t beat_us;
};

/**
 * Compare. @lost is emptied and gets the ids, in session->joined, of the members that are gone;
 * release its memory with mst__free. 0, or MST_ENOMEM.
 */
int mst__session_changes(const struct mst__session *session,
                         struct mst__peers *lost,
                         struct mst__changes *ret_changes);

#endif /* MST_CORE_SESSION_H */
