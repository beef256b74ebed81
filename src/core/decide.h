/* core/decide.h - decides the next action of a node from the record: join, exit, close, keep alive.
 *
 * Pure and total: every question has an answer, and the record is never changed. */
#ifndef MST_CORE_DECIDE_H
#define MST_CORE_DECIDE_H

#include "core/settings.h"
#include "core/state.h"

#define MST_ACTION_MAP(X)                                         \
    X(KEEP_ALIVE)                                                 \
    X(ADD_TO_PARTICIPANTS)                                        \
    X(ADD_TO_WAIT_LIST)                                           \
    X(ADD_TO_REDUNDANCY_LIST)                                     \
    X(REMOVE_FROM_PARTICIPANTS)                                   \
    X(REMOVE_FROM_WAIT_LIST)                                      \
    X(REMOVE_FROM_REDUNDANCY_LIST)                                \
    X(MARK_RENDEZVOUS_COMPLETE)                                   \
    X(MARK_RENDEZVOUS_CLOSED)                                     \
    X(START_LAST_CALL) /* only ours: set a missing deadline */    \
    X(SYNC)            /* wait, then read again */                \
    X(FINISH)                                                     \
    X(ERROR_CLOSED)                                               \
    X(ERROR_TIMEOUT)                                              \
    X(ERROR_GRACEFUL_EXIT) /* a spare that is no longer needed */ \
    X(ERROR_NO_DEADLINE)   /* only 1.13: min reached and no last call */

enum mst__action {
#define MST_ACTION_ENUM(name) MST_ACTION_##name,
    MST_ACTION_MAP(MST_ACTION_ENUM)
#undef MST_ACTION_ENUM
};

/* "KEEP_ALIVE" for MST_ACTION_KEEP_ALIVE. Static memory. */
const char *mst__action_name(enum mst__action action);

/* Whether the action changes the record. */
bool mst__action_writes(enum mst__action action);

enum mst__operation {
    MST_OPERATION_EXIT, /* leave the participants */
    MST_OPERATION_JOIN,
    MST_OPERATION_CLOSE,
    MST_OPERATION_KEEP_ALIVE,
    MST_OPERATION_POLL, /* read only; for mst__session_step */
    MST_OPERATION_NEXT, /* exit, then join; for mst__session_step */
};

/* The peers' rules that apply. */
enum mst__semantics {
    MST_SEMANTICS_NEWEST, /* spares; torch from 2.3 */
    MST_SEMANTICS_113,    /* torch 1.9 to 2.2 */
};

/* The rules of a record's peers. */
enum mst__semantics mst__semantics_of(enum mst__record_dialect dialect);

/* The basis of a judgement: the peers compare stamps with their wall clock; ours observe. */
enum mst__judgement {
    MST_JUDGE_STAMP, /* compare the record's stamp with now_us */
    MST_JUDGE_YES,
    MST_JUDGE_NO,
};

struct mst__question {
    const struct mst__state *state;
    const struct mst__node *node; /* the deciding node */
    const struct mst__settings *settings;
    int64_t now_us;  /* wall clock */
    int64_t left_us; /* deadline of the operation minus now, monotonic; below 0 = overdue */
    enum mst__semantics semantics;
    enum mst__judgement heartbeat_due;  /* used only if the node has a heartbeat entry */
    enum mst__judgement last_call_over; /* used only if the record has a deadline */
    /* Where the peers spin or hang, answer better, in ways that they cannot distinguish from their
     * own: a full group of others with a larger maximum, a missing last call. */
    bool is_corrected;
};

/* How long after its deadline a join may still remove its entry. */
#define MST_ROLLBACK_US 5000000

/* The action for @operation, one of the first four. */
enum mst__action mst__decide(const struct mst__question *question, enum mst__operation operation);

#endif /* MST_CORE_DECIDE_H */
