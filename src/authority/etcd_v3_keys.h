/* authority/etcd_v3_keys.h - the keys of a rendezvous of `etcd-v3`: names and content. Makes no
 * requests.
 *
 * With R = /muster/<run id>/, unusual characters as %XX:
 *
 *   R n/<name>/<session>  one for each node, on the node's lease: its announcement
 *   R last                the key of the node that came last, on its lease, so that both
 *                         expire together; the next node watches that key
 *   R round               the last sealed round and its state; written by the authority,
 *                         and by any node that closes
 *   R a/<session>         a letter to one node: its rank in a large round, or why it is refused
 *   R kv/<round>.<epoch>/…  the store of a round */
#ifndef MST_AUTHORITY_ETCD_V3_KEYS_H
#define MST_AUTHORITY_ETCD_V3_KEYS_H

#include <muster/rendezvous.h>

#include "core/job_message.h"
#include "etcd/json.h"

/* Larger rounds have their ranks in letters. */
#define MST_ETCD_V3_SEATS_MAX 256

/* Maximum size of a document; etcd's own limit is 1.5 MiB. */
#define MST_ETCD_V3_TEXT_MAX MST_MIB(1)

/* --- names --- */

/* Digits of a session at the end of a key. */
#define MST_ETCD_V3_SESSION_SIZE 16

struct mst__etcd_v3_keys {
    char *root;    /* "/muster/job/" */
    char *nodes;   /* "/muster/job/n/" */
    char *letters; /* "/muster/job/a/" */
    char *round;
    char *last;
};

/* Returns 0 or MST_ENOMEM; close it in both cases. */
int mst__etcd_v3_keys_init(struct mst__etcd_v3_keys *keys, const char *run_id);
void mst__etcd_v3_keys_close(struct mst__etcd_v3_keys *keys);

/* Heap, or NULL if out of memory. That of the store has no slash at its end. */
char *mst__etcd_v3_key_node(const struct mst__etcd_v3_keys *keys,
                            const char *name,
                            uint64_t session);
char *mst__etcd_v3_key_letter(const struct mst__etcd_v3_keys *keys, uint64_t session);
char *mst__etcd_v3_key_store(const struct mst__etcd_v3_keys *keys, int64_t round, uint64_t epoch);
/* The common prefix of all stores of a round, for any epoch. */
char *mst__etcd_v3_key_stores(const struct mst__etcd_v3_keys *keys, int64_t round);

/* The session at the end of the key of a node or letter; false if there is none. */
bool mst__etcd_v3_key_session(struct mst_bytes key, uint64_t *ret_session);

/* --- a node --- */

/* A node's report of its work in a round. */
struct mst__etcd_v3_word {
    bool is_said;
    bool is_finish; /* the work is done; else it has failed */
    uint64_t epoch;
    int64_t round;
    struct mst__cause cause; /* without rank and node; for finished work only status and text */
};

struct mst__etcd_v3_node {
    /* The session is in the key, not in the document. The incarnation is the create revision of
     * the first key of the process: 0 = of this key. */
    struct mst__announcement said;
    bool has_left; /* it leaves, and its key will be deleted */
    struct mst__etcd_v3_word word;
    /* @said and @word borrow from it. */
    struct mst__json *json;
    struct mst__label labels[MST_AUTHORITY_LABELS_MAX];
};

/* Append the document. Returns 0, MST_EINVAL (a text is not UTF-8), MST_ELIMIT, MST_ENOMEM. */
int mst__etcd_v3_node_write(const struct mst__announcement *said,
                            const struct mst__etcd_v3_word *word,
                            bool has_left,
                            struct mst__buf *buf);

/* Parse it. Returns 0, MST_EPROTO, MST_ENOMEM. The caller closes it after success. */
int mst__etcd_v3_node_read(struct mst_bytes text,
                           struct mst__etcd_v3_node *ret_node,
                           struct mst_err *reterr);
void mst__etcd_v3_node_close(struct mst__etcd_v3_node *node);

/* --- the round --- */

enum mst__etcd_v3_state {
    MST_ETCD_V3_NONE,    /* no round was sealed yet */
    MST_ETCD_V3_RUNNING, /* sealed and complete */
    MST_ETCD_V3_OPEN,    /* reopened, the next one gathers */
    MST_ETCD_V3_CLOSED,
};

const char *mst__etcd_v3_state_name(enum mst__etcd_v3_state state);

struct mst__etcd_v3_seat {
    uint64_t session;
    char *name; /* heap */
    struct mst__worker_ranks worker_ranks;
};

/* The text with the names of gone members, which all nodes read. */
#define MST_ETCD_V3_GONE_SIZE 512

/* The last sealed round. Plain data, except the arrays. */
struct mst__etcd_v3_round {
    enum mst__etcd_v3_state state;
    uint64_t epoch;
    int64_t round;  /* 0 = none */
    int64_t before; /* the one before it; 0 = none */
    uint32_t world;
    uint32_t first_world; /* of the first round of its nodes; not smaller than @world */
    bool is_sharded;      /* ranks are in letters; else in the seats, by rank */
    struct mst__etcd_v3_seat *seats;
    char address[MST_AUTHORITY_ADDRESS_SIZE_MAX + 1]; /* rank 0's */
    uint32_t waiting;                                 /* RUNNING: nodes that wait and have room */
    enum mst__authority_why why;                      /* OPEN */
    uint32_t gone_count;                              /* OPEN: of its members */
    bool *is_gone;                    /* OPEN, heap, by rank: the session has ended; NULL = none */
    bool *is_finished;                /* the same: the work is done */
    uint32_t finished_count;          /* of those */
    char gone[MST_ETCD_V3_GONE_SIZE]; /* their names, cut off when long */
    char reason[MST_AUTHORITY_REASON_SIZE_MAX + 1]; /* CLOSED */
    char owner[MST_AUTHORITY_NAME_SIZE_MAX + 1];
    enum mst__job_outcome outcome; /* CLOSED */
    bool has_cause;                /* CLOSED, OPEN: why work has failed */
    struct mst__cause cause;       /* without its texts, which are here */
    char cause_node[MST_AUTHORITY_NAME_SIZE_MAX + 1];
    char cause_text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1];
    char cause_report[MST_AUTHORITY_REPORT_SIZE_MAX + 1];
    uint32_t restarts;         /* of the budget, used in the current window */
    int64_t restarts_wall_us;  /* start of the window, on the clock of the authority */
    uint32_t restarts_total;   /* of the job */
    uint32_t restarts_before;  /* of those: before this round was sealed */
    enum mst__job_start start; /* why the round began */
};

/* The end of the job; borrows from @round. */
struct mst__job_end mst__etcd_v3_round_end(const struct mst__etcd_v3_round *round);

void mst__etcd_v3_round_close(struct mst__etcd_v3_round *round);

/* Returns 0 or MST_ENOMEM; @ret_to is written on success. */
int mst__etcd_v3_round_copy(const struct mst__etcd_v3_round *from,
                            struct mst__etcd_v3_round *ret_to);

/* The rank of @session among the seats, or MST_AUTHORITY_RANK_NONE. */
uint32_t mst__etcd_v3_round_rank(const struct mst__etcd_v3_round *round, uint64_t session);

/* Write, read and close, as for a node. */
int mst__etcd_v3_round_write(const struct mst__etcd_v3_round *round, struct mst__buf *buf);
int mst__etcd_v3_round_read(struct mst_bytes text,
                            struct mst__etcd_v3_round *ret_round,
                            struct mst_err *reterr);

/* --- letters --- */

enum mst__etcd_v3_letter_kind {
    MST_ETCD_V3_LETTER_NONE,
    MST_ETCD_V3_LETTER_RANK,
    MST_ETCD_V3_LETTER_REFUSED,
    MST_ETCD_V3_LETTER_EXPELLED,
};

/* Plain data. */
struct mst__etcd_v3_letter {
    enum mst__etcd_v3_letter_kind kind;
    uint64_t epoch; /* RANK */
    int64_t round;
    uint32_t rank;
    struct mst__worker_ranks worker_ranks;       /* RANK */
    char name[MST_AUTHORITY_NAME_SIZE_MAX + 1];  /* RANK: of the node */
    int code;                                    /* REFUSED: MST_E… */
    char text[sizeof((struct mst_err *)0)->msg]; /* REFUSED, EXPELLED */
};

int mst__etcd_v3_letter_write(const struct mst__etcd_v3_letter *letter, struct mst__buf *buf);
int mst__etcd_v3_letter_read(struct mst_bytes text,
                             struct mst__etcd_v3_letter *ret_letter,
                             struct mst_err *reterr);

#endif /* MST_AUTHORITY_ETCD_V3_KEYS_H */
