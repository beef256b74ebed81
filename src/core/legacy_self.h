/* core/legacy_self.h - shared by the files of the legacy machine. */
#ifndef MST_CORE_LEGACY_SELF_H
#define MST_CORE_LEGACY_SELF_H

#include "base/prng.h"
#include "core/legacy.h"

/* The refresh interval of our keys. etcd takes 7 s to give up a proposal; that stall must nearly
 * fit into the rest of the TTL. */
#define MST_LEGACY_BEAT_US 3000000
/* A document is trusted for this long without an answer of etcd. */
#define MST_LEGACY_TRUST_US 15000000
/* etcd's delay in removing expired keys. */
#define MST_LEGACY_EXPIRY_LATE_US 300000
#define MST_LEGACY_SECOND_US INT64_C(1000000)
/* The refresh interval of the job's directory, half of its TTL. */
#define MST_LEGACY_JOB_BEAT_US (MST_LEGACY_TTL_JOB / 2 * MST_LEGACY_SECOND_US)

/* The last request. */
enum mst__legacy_ask {
    MST_ASK_NONE,
    MST_ASK_DOC,         /* read the document */
    MST_ASK_SWAP,        /* write `next` over it */
    MST_ASK_CREATE,      /* write `next` if there is none */
    MST_ASK_DROP,        /* delete it */
    MST_ASK_LIST,        /* list the keys of its version */
    MST_ASK_COUNTER,     /* read the counter */
    MST_ASK_COUNTER_NEW, /* create it */
    MST_ASK_CLAIM,       /* increment it */
    MST_ASK_KEY,         /* put muster_<nonce> */
    MST_ASK_KEY_BEAT,
    MST_ASK_KEY_DROP,
    MST_ASK_RANK, /* put rank_<r> */
    MST_ASK_RANK_BEAT,
    MST_ASK_RANK_DROP,
    MST_ASK_JOB, /* create the job's directory */
    MST_ASK_JOB_BEAT,
    MST_ASK_STORE, /* create the directory of the round's store */
    MST_ASK_CLEAN, /* delete an old version */
    MST_ASK_WAIT,
    MST_ASK_PAUSE,
};

/* The arguments of a step. */
struct mst__legacy_turn {
    struct mst__legacy *legacy;
    int64_t now_us;
    struct mst__prng prng;
    struct mst__legacy_effect *effect;
};

/* --- legacy.c: effects. Each ends the step. --- */

int mst__legacy_done(struct mst__legacy_turn *turn, struct mst__legacy_outcome outcome);
int mst__legacy_end(struct mst__legacy_turn *turn, enum mst__legacy_result result);
int mst__legacy_ask_doc(struct mst__legacy_turn *turn);
/* Overwrite the document with legacy->next and the TTL of its status. */
int mst__legacy_ask_swap(struct mst__legacy_turn *turn);
int mst__legacy_ask_create(struct mst__legacy_turn *turn);
int mst__legacy_ask_drop(struct mst__legacy_turn *turn);
int mst__legacy_ask_list(struct mst__legacy_turn *turn);
int mst__legacy_ask_counter(struct mst__legacy_turn *turn);
int mst__legacy_ask_key(struct mst__legacy_turn *turn, int64_t version);
int mst__legacy_ask_rank(struct mst__legacy_turn *turn, int64_t version, int64_t rank);
/* Refresh the job's directory if that is due. Returns whether a request is set. */
bool mst__legacy_ask_job_beat(struct mst__legacy_turn *turn);
/* One of the requests without further arguments. */
int mst__legacy_ask_plain(struct mst__legacy_turn *turn, enum mst__legacy_ask ask);
/* Wait for a change of the document, until @until_us at most. Keys that are due, the deadline
 * and an old document end the wait earlier. */
int mst__legacy_wait(struct mst__legacy_turn *turn, int64_t until_us);
int mst__legacy_pause(struct mst__legacy_turn *turn, int64_t until_us);

/* Our limits as the value of our key, `min:max`; returns the size. */
#define MST_LEGACY_LIMITS_SIZE 48
size_t mst__legacy_limits(const struct mst__legacy *legacy, char ret_text[MST_LEGACY_LIMITS_SIZE]);
/* The rank of the keep-alive @path in the document; -1 if it is not such a path. */
int64_t mst__legacy_path_rank(const struct mst__legacy *legacy, const char *path);

/* --- legacy_learn.c: answers, and questions about what they have said --- */

/* Whether @event is a possible answer: a key that is a directory, or a counter without a number,
 * is not ours. */
bool mst__legacy_is_legal(struct mst__legacy *legacy, const struct mst__legacy_event *event);
/* Whether @event is older than our knowledge: a member of the cluster lags behind. */
bool mst__legacy_is_stale(struct mst__legacy *legacy, const struct mst__legacy_event *event);
/* Process @event, the answer to the last request. Returns 0 or an error. */
int mst__legacy_learn(struct mst__legacy_turn *turn, const struct mst__legacy_event *event);
void mst__legacy_listing_close(struct mst__legacy_listing *listing);

/* Whether rank_<rank> of the document's version was in the last list. */
bool mst__legacy_is_rank_listed(const struct mst__legacy *legacy, int64_t rank);
/* The same for muster_<nonce>, with any limits. */
bool mst__legacy_is_node_listed(const struct mst__legacy *legacy, mst__legacy_nonce nonce);
/* Whether the keys of the document's version were listed, with a request at @since_us or later. */
bool mst__legacy_is_listed(const struct mst__legacy *legacy, int64_t since_us);
/* Whether a key of the document's keep-alives was not listed. */
bool mst__legacy_is_keep_alive_missing(const struct mst__legacy *legacy);
/* When a key that matters for the document may expire; far off if there is none. */
int64_t mst__legacy_expiry_us(const struct mst__legacy *legacy, int64_t now_us);

/* --- legacy_edit.c: what to write, in legacy->next. 0 or an error; @ret_changed. --- */

/* Let in all nodes that wait for it, give the seats of lost nodes away, and freeze if it is full
 * or @freezes. */
int mst__legacy_edit_join(struct mst__legacy *legacy, bool freezes, bool *ret_changed);
/* Confirm all muster nodes with a key, and make the round final if none is missing. */
int mst__legacy_edit_confirm(struct mst__legacy *legacy, bool *ret_changed);
/* Announce all nodes that wait for the next round. */
int mst__legacy_edit_announce(struct mst__legacy *legacy, bool *ret_changed);
/* Remove lost nodes from the waiting ones. */
int mst__legacy_edit_waiting(struct mst__legacy *legacy, bool *ret_changed);
/* The first document of version legacy->claimed, with us in it. */
int mst__legacy_edit_open(struct mst__legacy *legacy);
/* Remove us from the participants or the waiting nodes. */
int mst__legacy_edit_withdraw(struct mst__legacy *legacy, bool *ret_changed);
/* Whether an unconfirmed muster node has no key any more. */
bool mst__legacy_has_dead(const struct mst__legacy *legacy);
/* The TTL of the document legacy->next. */
int64_t mst__legacy_edit_ttl_s(const struct mst__legacy *legacy);

/* --- deciding: what to do next for the operation --- */

int mst__legacy_next(struct mst__legacy_turn *turn); /* legacy_next.c */
void mst__legacy_next_begin(struct mst__legacy_turn *turn);
void mst__legacy_tidy(struct mst__legacy_turn *turn, struct mst__legacy_outcome outcome);
int mst__legacy_others(struct mst__legacy_turn *turn); /* legacy_watch.c: the other operations */

#endif /* MST_CORE_LEGACY_SELF_H */
