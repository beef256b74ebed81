/* legacy/legacy.h - shared by the files of the legacy etcd handler, and a look at such a rendezvous
 * from outside. */
#ifndef MST_LEGACY_LEGACY_H
#define MST_LEGACY_LEGACY_H

#include "core/legacy.h"
#include "etcd/v2.h"
#include "handler/etcd_settings.h"

/* "muster_" and a nonce: the name of a node in its key, in messages and in lists of lost nodes. */
#define MST_LEGACY_NODE_SIZE (sizeof "muster_" + MST_LEGACY_NONCE_SIZE)

/* The name of @rank with its nonce; "rank_3" for a peer. */
void mst__legacy_node_name(mst__legacy_nonce nonce,
                           int64_t rank,
                           char ret_text[MST_LEGACY_NODE_SIZE]);

/* --- from outside --- */

/* One key of a member. */
struct mst__legacy_seat {
    bool is_alive; /* the key exists, */
    bool has_ttl;
    int64_t ttl_s; /* and expires in this time, unless it is refreshed */
};

/* A rendezvous in its stored form. */
struct mst__legacy_view {
    bool exists; /* there is a document */
    struct mst__legacy_doc doc;
    uint64_t modified;              /* of the document */
    struct mst__legacy_seat *seats; /* by rank, one for each participant; heap */
};

void mst__legacy_view_init(struct mst__legacy_view *view);
void mst__legacy_view_close(struct mst__legacy_view *view);

/* Access to a rendezvous without joining it. */
struct mst__legacy_look {
    struct mst__v2 *v2;
    struct mst__legacy paths; /* a machine that never runs; it has the keys */
    struct mst__legacy_settings settings;
};

/* 0, MST_ENOMEM, or as mst__legacy_read. @params must outlive @look, which can be closed in any
 * case. */
int mst__legacy_look_open(struct mst__legacy_look *look,
                          const struct mst_params *params,
                          struct mst_err *reterr);
void mst__legacy_look_close(struct mst__legacy_look *look);

/* Read it; writes nothing. @view is initialised, and emptied first. 0, MST_ESTATE if the data is
 * not a document, or an error of mst__v2_get. */
int mst__legacy_look_read(struct mst__legacy_look *look,
                          struct mst__until until,
                          struct mst__legacy_view *view,
                          struct mst_err *reterr);

/* --- beside the store: the extra data of a round --- */

/* Set member @name of the JSON object under @key to @json, the text of a JSON value, and keep the
 * others. 0, MST_EINVAL if it is malformed, MST_ESTATE if the key has other data, MST_ETIMEOUT, or
 * an error of mst__v2_put. */
int mst__legacy_extra_set(struct mst__v2 *v2,
                          const char *key,
                          const char *name,
                          struct mst_bytes json,
                          struct mst__until until,
                          struct mst_err *reterr);

/* Wait until the member exists and read it, as the text of a JSON value. 0, MST_ETIMEOUT,
 * MST_ESTATE, or an error of mst__v2_get. */
int mst__legacy_extra_get(struct mst__v2 *v2,
                          const char *key,
                          const char *name,
                          struct mst__until until,
                          struct mst_buffer *ret_json,
                          struct mst_err *reterr);

#endif /* MST_LEGACY_LEGACY_H */
