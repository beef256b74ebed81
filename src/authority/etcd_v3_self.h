/* authority/etcd_v3_self.h - what the files of the handler `etcd-v3` share.
 *
 * The owner (handler/owner.h) drives a member machine (core/member.h) over our session: a lease, a
 * key on it, one watch, and, if ours is the oldest key, the authority.
 *
 * Everybody but the authority watches `round`, the letters to it, and the key of its predecessor,
 * the node that came before it. When that goes, it looks for the one before; if there is none it is
 * the authority, reads everything, and goes on where the last one has stopped. What an authority
 * writes is bound to its own key still being there and to `round` being what it has read, so one
 * that was stopped and has lost its lease writes nothing any more. */
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
    struct mst_params *params; /* a copy, which the settings borrow from */
    struct mst__etcd_v3_settings settings;
    struct mst__v3 *v3;
    struct mst__etcd_v3_keys keys;
    char node[MST_AUTHORITY_NAME_SIZE_MAX + 1];
    struct mst__events events;

    /* The owner: our session. */
    int64_t lease; /* 0 = none: nothing below up to the round counts */
    int64_t ttl_ms;
    int64_t alive_ms; /* it lives at least until then */
    int64_t beat_ms;  /* when to keep it alive next */
    uint64_t session;
    char *key;
    char *letter_key;
    int64_t create_revision;     /* of our key */
    int64_t incarnation;         /* that of our first key; 0 = there was none yet */
    char *before;                /* the key of our predecessor; NULL = it is not known */
    bool is_authority;           /* there is none */
    struct mst__v3_watch *watch; /* NULL = everything has to be read again */

    /* The owner: what is stored. */
    struct mst__etcd_v3_round round;
    int64_t round_revision; /* at which it was put; 0 = there is none */
    struct mst__etcd_v3_letter letter;
    struct mst__etcd_v3_authority authority;

    /* The owner: our place. */
    struct mst__member member;
    struct mst__notices notices;
    struct mst__claim claim;       /* what our key says, or what we are in */
    bool has_to_enter;             /* our key is to say so */
    bool has_to_say;               /* our key is to have @word */
    struct mst__etcd_v3_word word; /* its text is the member's */
    bool has_to_explain;
    bool was_full;   /* JOINING: the round that ran last had no place for us */
    int64_t part_ms; /* the time to say goodbye */
    int part_rv;     /* and what came of it */
    struct mst_err part_err;

    char addr[MST_HOST_SIZE];             /* what others call this machine; empty = not known yet */
    char address[MST_ENDPOINT_TEXT_SIZE]; /* and the port that is reserved for our workers */
};

/* --- etcd_v3_session.c: the owner --- */

/* Enter, or say that we want the next round, if we are in already. 0; MST_ENOTFOUND when our
 * session has ended: then it can be tried again; other errors of etcd/v3.h. */
int mst__etcd_v3_enter(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr);

/**
 * Keep the session alive, and do what there is to do, until something has been seen.
 *
 * Returns 0, also when nothing has changed for us; MST_ETIMEOUT, MST_ECANCELED; MST_ENOTFOUND when
 * our session has ended; other errors of etcd/v3.h, after which it can be tried again.
 */
int mst__etcd_v3_step(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr);

/* Put our key again, with a word of our work: we stay in our round. As mst__etcd_v3_enter. */
int mst__etcd_v3_say(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr);

/* Say that we go, and go: forget the session. */
int mst__etcd_v3_part(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr);

/* Forget the session: its lease is revoked, and with it goes all that is on it. 0 or an error of
 * etcd/v3.h; then that goes when the lease expires. If our key may still come then, the next one to
 * enter goes on with this session; else there is none afterwards. */
int mst__etcd_v3_forget(struct mst__etcd_v3 *self, struct mst__until until, struct mst_err *reterr);

/* Release what we have of the session: its lease is gone, or expires. */
void mst__etcd_v3_release(struct mst__etcd_v3 *self);

/* Our rank in `round`, if we are in it, or MST_AUTHORITY_RANK_NONE. */
uint32_t mst__etcd_v3_rank(const struct mst__etcd_v3 *self);

/* --- etcd_v3_look.c: reading and closing, by anybody --- */

/* Read @kvs, of one key, as `round`; without a key there is none. 0, MST_ESTATE, MST_ENOMEM. */
int mst__etcd_v3_round_of(const struct mst__v3_kvs *kvs,
                          struct mst__etcd_v3_round *ret_round,
                          int64_t *ret_revision,
                          struct mst_err *reterr);

/* Read `round`. 0, MST_ESTATE, or an error of mst__v3_range. The caller closes @ret_round. */
int mst__etcd_v3_read_round(struct mst__v3 *v3,
                            const struct mst__etcd_v3_keys *keys,
                            struct mst__until until,
                            struct mst__etcd_v3_round *ret_round,
                            int64_t *ret_revision,
                            struct mst_err *reterr);

/* Close the run for good. 0, also when it was closed; MST_ESTATE, MST_EUNKNOWN, MST_ETIMEOUT or
 * another error of mst__v3_txn. */
int mst__etcd_v3_shut(struct mst__v3 *v3,
                      const struct mst__etcd_v3_keys *keys,
                      const char *reason,
                      const char *owner,
                      struct mst__until until,
                      struct mst_err *reterr);

/* Everything that is stored, for an authority. */
struct mst__etcd_v3_survey {
    struct mst__v3_result nodes;   /* the nodes, oldest first, and `round` */
    struct mst__v3_result letters; /* of a sharded round */
    struct mst__etcd_v3_round round;
    int64_t round_revision;
};

void mst__etcd_v3_survey_init(struct mst__etcd_v3_survey *survey);
void mst__etcd_v3_survey_close(struct mst__etcd_v3_survey *survey);

/* 0, MST_ESTATE, or an error of mst__v3_txn. @survey is initialised. */
int mst__etcd_v3_survey_read(struct mst__v3 *v3,
                             const struct mst__etcd_v3_keys *keys,
                             struct mst__until until,
                             struct mst__etcd_v3_survey *survey,
                             struct mst_err *reterr);

/* For mst__etcd_v3_authority_build; borrows from @survey. */
struct mst__etcd_v3_stored mst__etcd_v3_survey_stored(const struct mst__etcd_v3_survey *survey);

/* --- etcd_v3_link.c: the owner --- */

/* Make the member, which wants nothing yet. */
void mst__etcd_v3_member(struct mst__etcd_v3 *self);

/* Feed @event, stamped with the present time, and carry out what comes of it. @arg is the
 * handler, as struct mst__wait has it. */
void mst__etcd_v3_feed(void *arg, struct mst__member_event event);

/* Wait until something has happened, but not beyond @until, and feed it to the member. */
void mst__etcd_v3_turn(void *arg, struct mst__until until);

#endif /* MST_AUTHORITY_ETCD_V3_SELF_H */
