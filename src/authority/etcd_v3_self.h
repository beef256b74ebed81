/* authority/etcd_v3_self.h - shared by the files of the handler `etcd-v3`.
 *
 * The owner (handler/owner.h) drives a member machine (core/member.h) over our session: a lease, a
 * key on it, one watch and, if ours is the oldest key, the authority.
 *
 * Every other node watches `round`, its letters, and the key of its predecessor, the node that
 * came before it. When that key disappears, it looks for an older one. If there is none, the
 * node becomes the authority: it reads all keys and continues where the last authority stopped.
 * Every write of an authority requires that its own key still exists and that `round` is
 * unchanged since its read. So an authority that was stopped and has lost its lease writes
 * nothing. */
#ifndef MST_AUTHORITY_ETCD_V3_SELF_H
#define MST_AUTHORITY_ETCD_V3_SELF_H

#include "authority/etcd_v3_authority.h"
#include "authority/notices.h"
#include "core/member.h"
#include "etcd/v3.h"
#include "handler/etcd_settings.h"
#include "handler/head.h"

struct mst__etcd_v3 {
    struct mst__head head;
    struct mst_params *params; /* a copy; the settings borrow from it */
    struct mst__etcd_v3_settings settings;
    struct mst__v3 *v3;
    struct mst__etcd_v3_keys keys;
    char node[MST_AUTHORITY_NAME_SIZE_MAX + 1];
    struct mst__events events;

    /* Used by the owner: our session. */
    int64_t lease; /* 0 = none: then the fields up to the round are not valid */
    int64_t ttl_ms;
    int64_t alive_ms; /* it is valid at least until then */
    int64_t beat_ms;  /* time of the next keep-alive */
    uint64_t session;
    char *key;
    char *letter_key;
    int64_t create_revision;     /* of our key */
    int64_t incarnation;         /* create revision of our first key; 0 = none yet */
    char *before;                /* the key of our predecessor; NULL = not known */
    bool is_authority;           /* there is no predecessor */
    struct mst__v3_watch *watch; /* NULL = read everything again */

    /* Used by the owner: the stored round. */
    struct mst__etcd_v3_round round;
    int64_t round_revision; /* its revision; 0 = there is none */
    struct mst__etcd_v3_letter letter;
    struct mst__etcd_v3_authority authority;

    /* Used by the owner: our place. */
    struct mst__member member;
    struct mst__notices notices;
    struct mst__claim claim;               /* in our key, or of our round */
    struct mst__worker_ranks worker_ranks; /* in our round */
    bool has_to_enter;                     /* put our key */
    bool has_to_say;                       /* put our key with @word */
    struct mst__etcd_v3_word word;         /* its text belongs to the member */
    bool has_to_explain;
    bool was_full;   /* JOINING: the last round had no place for us */
    int64_t part_ms; /* time to leave */
    int part_rv;     /* and the result */
    struct mst_err part_err;

    char addr[MST_HOST_SIZE];             /* our address for others; empty = not known yet */
    char address[MST_ENDPOINT_TEXT_SIZE]; /* the port that is reserved for our workers */
};

/* --- etcd_v3_session.c: the owner --- */

/* Enter, or if we are in already, ask for the next round. Returns 0; MST_ENOTFOUND if our
 * session has ended, and a retry may succeed; other errors of etcd/v3.h. */
int mst__etcd_v3_enter(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr);

/**
 * Keep the session alive and do pending work until there is news.
 *
 * Returns 0, also if nothing has changed for us; MST_ETIMEOUT, MST_ECANCELED; MST_ENOTFOUND if
 * our session has ended; other errors of etcd/v3.h, after which it can be called again.
 */
int mst__etcd_v3_step(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr);

/* Put our key again, with the report of our work: we stay in our round. Returns as
 * mst__etcd_v3_enter. */
int mst__etcd_v3_say(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr);

/* Announce that we leave, and forget the session. */
int mst__etcd_v3_part(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr);

/* Revoke the lease, and with it delete our keys. Returns 0 or an error of etcd/v3.h; then they
 * are deleted when the lease expires. If our key may still be written then, the next enter
 * continues this session; else there is no session afterwards. */
int mst__etcd_v3_forget(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr);

/* Release our state of the session: its lease is gone, or will expire. */
void mst__etcd_v3_release(struct mst__etcd_v3 *self);

/* Our rank in `round`, or MST_AUTHORITY_RANK_NONE. */
uint32_t mst__etcd_v3_rank(const struct mst__etcd_v3 *self);

/* --- etcd_v3_look.c: reading and closing, by anybody --- */

/* Parse @kvs, of one key, as `round`; without a key there is none. Returns 0, MST_ESTATE,
 * MST_ENOMEM. */
int mst__etcd_v3_round_of(const struct mst__v3_kvs *kvs,
                          struct mst__etcd_v3_round *ret_round,
                          int64_t *ret_revision,
                          struct mst_err *reterr);

/* Read `round`. Returns 0, MST_ESTATE, or an error of mst__v3_range. The caller closes
 * @ret_round. */
int mst__etcd_v3_read_round(struct mst__v3 *v3,
                            const struct mst__etcd_v3_keys *keys,
                            struct mst__until until,
                            struct mst__etcd_v3_round *ret_round,
                            int64_t *ret_revision,
                            struct mst_err *reterr);

/* Close the job for good. Returns 0, also if it was closed; MST_ESTATE, MST_EUNKNOWN,
 * MST_ETIMEOUT or another error of mst__v3_txn. */
int mst__etcd_v3_shut(struct mst__v3 *v3,
                      const struct mst__etcd_v3_keys *keys,
                      const char *reason,
                      const char *owner,
                      struct mst__until until,
                      struct mst_err *reterr);

/* All stored keys, for an authority. */
struct mst__etcd_v3_survey {
    struct mst__v3_result nodes;   /* the nodes, oldest first, and `round` */
    struct mst__v3_result letters; /* of a sharded round */
    struct mst__etcd_v3_round round;
    int64_t round_revision;
};

void mst__etcd_v3_survey_init(struct mst__etcd_v3_survey *survey);
void mst__etcd_v3_survey_close(struct mst__etcd_v3_survey *survey);

/* Returns 0, MST_ESTATE, or an error of mst__v3_txn. @survey must be initialised. */
int mst__etcd_v3_survey_read(struct mst__v3 *v3,
                             const struct mst__etcd_v3_keys *keys,
                             struct mst__until until,
                             struct mst__etcd_v3_survey *survey,
                             struct mst_err *reterr);

/* For mst__etcd_v3_authority_build; borrows from @survey. */
struct mst__etcd_v3_stored mst__etcd_v3_survey_stored(const struct mst__etcd_v3_survey *survey);

/* --- etcd_v3_link.c: the owner --- */

/* Make the member, which wants no round yet. */
void mst__etcd_v3_member(struct mst__etcd_v3 *self);

/* Feed @event with the present time, and carry out its effects. @arg is the handler, as in
 * struct mst__wait. */
void mst__etcd_v3_feed(void *arg, struct mst__member_event event);

/* Wait for news, at most until @until, and feed it to the member. */
void mst__etcd_v3_turn(void *arg, struct mst__until until);

#endif /* MST_AUTHORITY_ETCD_V3_SELF_H */
