/* core/legacy_doc.h - the document that the nodes of a legacy etcd rendezvous edit, as data.
 *
 * torch's agents know the status, the version, the participants, the keep-alives and the number
 * of waiting nodes. All else is in one more member, which they keep unread: the nonces of the
 * muster nodes, and the limits. */
#ifndef MST_CORE_LEGACY_DOC_H
#define MST_CORE_LEGACY_DOC_H

#include <muster/types.h>
#include <stdbool.h>

enum mst__legacy_status {
    MST_LEGACY_SETUP,    /* a node is about to open a round */
    MST_LEGACY_JOINABLE, /* nodes enter */
    MST_LEGACY_FROZEN,   /* no more nodes enter; participants confirm */
    MST_LEGACY_FINAL,    /* all have confirmed */
    MST_LEGACY_CLOSED,   /* for good */
    MST_LEGACY_OTHER,    /* an unknown word; we must not change the document */
};

/* "joinable" for MST_LEGACY_JOINABLE; "" for OTHER. Static memory. */
const char *mst__legacy_status_name(enum mst__legacy_status status);

/* Identifies a node: random and never 0, which stands for a peer. */
typedef uint64_t mst__legacy_nonce;

/* 16 hexadecimal digits and a NUL: a nonce in documents and keys. */
#define MST_LEGACY_NONCE_SIZE 17
void mst__legacy_nonce_format(mst__legacy_nonce nonce, char ret_text[MST_LEGACY_NONCE_SIZE]);
/* Returns false and writes nothing unless @text is 16 lower-case hexadecimal digits, not all 0. */
bool mst__legacy_nonce_parse(struct mst_bytes text, mst__legacy_nonce *ret_nonce);

struct mst__legacy_nonces {
    mst__legacy_nonce *items;
    size_t count;
    size_t capacity;
};

/* Zeroed: a document with the status setup and nothing else. */
struct mst__legacy_doc {
    enum mst__legacy_status status;
    bool has_participants;
    bool has_keep_alives;
    bool has_waiting;
    bool has_muster;
    int64_t version; /* 0 = none; a decimal string in the JSON text */
    /* Ranks are 0 … participant_count - 1, in order; anything else is invalid. */
    size_t participant_count;
    /* Full paths of keys, in order of confirmation. */
    char **keep_alives;
    size_t keep_alive_count;
    int64_t waiting_count; /* num_workers_waiting */

    /* The member `muster`. */
    int64_t nodes_min, nodes_max;      /* 0 = not known */
    mst__legacy_nonce creator;         /* the node that has written `setup`; 0 = not known */
    struct mst__legacy_nonces nodes;   /* by rank, 0 for a peer; may be shorter than the
                                        * participants */
    struct mst__legacy_nonces waiting; /* the muster nodes in waiting_count */
    struct mst__legacy_nonces left;    /* members of the final round that have left it */

    /* Unknown members, as the text of a JSON object; empty if there are none. Of the document,
     * and of `muster`. */
    struct mst_buffer extra;
    struct mst_buffer muster_extra;
};

void mst__legacy_doc_init(struct mst__legacy_doc *doc);
/* Release its content; it is as after init. */
void mst__legacy_doc_close(struct mst__legacy_doc *doc);
/* @to is emptied first. Returns 0, or MST_ENOMEM with @to empty. */
int mst__legacy_doc_copy(struct mst__legacy_doc *to, const struct mst__legacy_doc *from);
/* @from is empty afterwards. */
void mst__legacy_doc_move(struct mst__legacy_doc *to, struct mst__legacy_doc *from);

/* 0, MST_ENOMEM or MST_ELIMIT. @path is copied. */
int mst__legacy_doc_add_keep_alive(struct mst__legacy_doc *doc, const char *path);

/* Add, remove, find. Return 0 or MST_ENOMEM, MST_ELIMIT; find returns the position or -1. */
int mst__legacy_nonces_add(struct mst__legacy_nonces *nonces, mst__legacy_nonce nonce);
void mst__legacy_nonces_remove(struct mst__legacy_nonces *nonces, mst__legacy_nonce nonce);
int64_t mst__legacy_nonces_find(const struct mst__legacy_nonces *nonces, mst__legacy_nonce nonce);
/* Returns 0, or MST_ENOMEM with @to incomplete. */
int mst__legacy_nonces_copy(struct mst__legacy_nonces *to, const struct mst__legacy_nonces *from);
void mst__legacy_nonces_close(struct mst__legacy_nonces *nonces);

/* The nonce of @rank, or 0 for a peer. */
mst__legacy_nonce mst__legacy_doc_node(const struct mst__legacy_doc *doc, size_t rank);
/* The rank of @nonce, or -1. */
int64_t mst__legacy_doc_rank(const struct mst__legacy_doc *doc, mst__legacy_nonce nonce);
/* Whether every participant is a muster node. */
bool mst__legacy_doc_is_ours(const struct mst__legacy_doc *doc);

/* Give @rank, below participant_count, to a node. Returns 0, MST_ENOMEM, MST_ELIMIT. */
int mst__legacy_doc_seat(struct mst__legacy_doc *doc, size_t rank, mst__legacy_nonce nonce);
/* Add a participant. Returns 0, MST_ENOMEM, MST_ELIMIT. */
int mst__legacy_doc_append(struct mst__legacy_doc *doc, mst__legacy_nonce nonce);
/**
 * Remove @nonce, so that ranks stay 0 … n - 1 and no peer's rank changes: the last participant,
 * if it is a muster node, gets the free rank. Returns false if the last one is a peer; then the
 * entry stays until a new node gets its rank.
 */
bool mst__legacy_doc_unseat(struct mst__legacy_doc *doc, mst__legacy_nonce nonce);

#endif /* MST_CORE_LEGACY_DOC_H */
