/* core/legacy_self.h - what the files of the legacy machine share. */
#ifndef MST_CORE_LEGACY_SELF_H
#define MST_CORE_LEGACY_SELF_H

#include "base/prng.h"
#include "core/legacy.h"

/* Keys are refreshed this long after the last time: a stall of etcd of the 7 s that it takes to
 * give up a proposal must fit in behind it, nearly. */
#define MST_LEGACY_BEAT_US 3000000
/* An answer of etcd is trusted for this long without hearing from it. */
#define MST_LEGACY_TRUST_US 15000000
/* etcd's own delay in removing what has expired. */
#define MST_LEGACY_EXPIRY_LATE_US 300000
#define MST_LEGACY_SECOND_US INT64_C(1000000)

/* What was asked for. */
enum mst__legacy_ask {
    MST_ASK_NONE,
    MST_ASK_DOC,         /* read the document */
    MST_ASK_SWAP,        /* write `next` over it */
    MST_ASK_CREATE,      /* write `next` where there is none */
    MST_ASK_DROP,        /* delete it */
    MST_ASK_LIST,        /* list the keys of its version */
    MST_ASK_COUNTER,     /* read the counter */
    MST_ASK_COUNTER_NEW, /* make it */
    MST_ASK_CLAIM,       /* count one up */
    MST_ASK_KEY,         /* put muster_<nonce> */
    MST_ASK_KEY_BEAT,
    MST_ASK_KEY_DROP,
    MST_ASK_RANK, /* put rank_<r> */
    MST_ASK_RANK_BEAT,
    MST_ASK_RANK_DROP,
    MST_ASK_JOB, /* make the job's directory */
    MST_ASK_JOB_BEAT,
    MST_ASK_STORE, /* make the directory of the round's store */
    MST_ASK_CLEAN, /* delete an old version */
    MST_ASK_WAIT,
    MST_ASK_PAUSE,
};

/* What one step works with. */
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
/* Write legacy->next over the document, with the TTL that belongs to its status. */
int mst__legacy_ask_swap(struct mst__legacy_turn *turn);
int mst__legacy_ask_create(struct mst__legacy_turn *turn);
int mst__legacy_ask_drop(struct mst__legacy_turn *turn);
int mst__legacy_ask_list(struct mst__legacy_turn *turn);
int mst__legacy_ask_counter(struct mst__legacy_turn *turn);
int mst__legacy_ask_key(struct mst__legacy_turn *turn, int64_t version);
int mst__legacy_ask_rank(struct mst__legacy_turn *turn, int64_t version, int64_t rank);
/* One of the others, which need nothing but the state. */
int mst__legacy_ask_plain(struct mst__legacy_turn *turn, enum mst__legacy_ask ask);
/* For the document to change, until @until_us at most; keys that are due and the deadline, and
 * knowledge that is too old, end it before. */
int mst__legacy_wait(struct mst__legacy_turn *turn, int64_t until_us);
int mst__legacy_pause(struct mst__legacy_turn *turn, int64_t until_us);

/* Our limits as the value of our key, `min:max`; the size. */
#define MST_LEGACY_LIMITS_SIZE 48
size_t mst__legacy_limits(const struct mst__legacy *legacy, char ret_text[MST_LEGACY_LIMITS_SIZE]);
/* The rank that the keep-alive @path of the document stands for; -1 when it is no such path. */
int64_t mst__legacy_path_rank(const struct mst__legacy *legacy, const char *path);

/* --- legacy_learn.c: answers, and questions about what they have said --- */

/* Whether etcd can say that, as things are to be: a key that is a directory, or a counter that does
 * not count, is none of ours. */
bool mst__legacy_is_legal(struct mst__legacy *legacy, const struct mst__legacy_event *event);
/* Whether what @event says is older than what we know: a member of the cluster lags behind. */
bool mst__legacy_is_stale(struct mst__legacy *legacy, const struct mst__legacy_event *event);
/* Remember what @event, the answer to what was asked for, says. 0 or an error. */
int mst__legacy_learn(struct mst__legacy_turn *turn, const struct mst__legacy_event *event);
void mst__legacy_listing_close(struct mst__legacy_listing *listing);

/* Whether rank_<rank> of the document's version was there when its keys were last listed. */
bool mst__legacy_is_rank_listed(const struct mst__legacy *legacy, int64_t rank);
/* The same of muster_<nonce>, whatever its limits. */
bool mst__legacy_is_node_listed(const struct mst__legacy *legacy, mst__legacy_nonce nonce);
/* Whether the keys of the document's version were listed, and that was asked for at @since_us or
 * later. */
bool mst__legacy_is_listed(const struct mst__legacy *legacy, int64_t since_us);
/* Whether a key that the document's keep-alives name was not listed. */
bool mst__legacy_is_keep_alive_missing(const struct mst__legacy *legacy);
/* When a key that matters for the document could be found expired; far off when there is none. */
int64_t mst__legacy_expiry_us(const struct mst__legacy *legacy, int64_t now_us);

/* --- legacy_edit.c: what to write, in legacy->next. 0 or an error; @ret_changed. --- */

/* Let in all who wait for it, give the seats of the dead away, freeze when it is full or when
 * @freezes. */
int mst__legacy_edit_join(struct mst__legacy *legacy, bool freezes, bool *ret_changed);
/* Confirm for all muster nodes whose key is there, and make it final when nobody is missing. */
int mst__legacy_edit_confirm(struct mst__legacy *legacy, bool *ret_changed);
/* Announce all who wait for the next round. */
int mst__legacy_edit_announce(struct mst__legacy *legacy, bool *ret_changed);
/* Remove the dead from those who wait. */
int mst__legacy_edit_waiting(struct mst__legacy *legacy, bool *ret_changed);
/* The first document of version legacy->claimed, with us in it. */
int mst__legacy_edit_open(struct mst__legacy *legacy);
/* Take ourselves out of a document that we are in or wait at. */
int mst__legacy_edit_withdraw(struct mst__legacy *legacy, bool *ret_changed);
/* Whether a muster node that is not confirmed has no key any more. */
bool mst__legacy_has_dead(const struct mst__legacy *legacy);
/* The TTL of the document legacy->next. */
int64_t mst__legacy_edit_ttl_s(const struct mst__legacy *legacy);

/* --- deciding: what to do next for the operation --- */

int mst__legacy_next(struct mst__legacy_turn *turn); /* legacy_next.c */
void mst__legacy_next_begin(struct mst__legacy_turn *turn);
void mst__legacy_tidy(struct mst__legacy_turn *turn, struct mst__legacy_outcome outcome);
int mst__legacy_others(struct mst__legacy_turn *turn); /* legacy_watch.c: the other ones */

#endif /* MST_CORE_LEGACY_SELF_H */
