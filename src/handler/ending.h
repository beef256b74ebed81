/* handler/ending.h - how work ends where there is no authority: words in keys beside the record.
 *
 * In the store of a round are the first cause of its failure and who has finished, in the store of
 * the job how many restarts were used and how it has ended. Whoever is the first with a cause
 * counts it, whoever completes the number of those who have finished ends the job; both close the
 * rendezvous after they have stored the outcome, so that everybody who sees it closed finds out
 * why. A node that finishes also takes part in the exit barriers of torch's agents.
 *
 * Everything belongs to the owner. docs/protocol.md has the keys. */
#ifndef MST_HANDLER_ENDING_H
#define MST_HANDLER_ENDING_H

#include <muster/store.h>

#include "core/state.h"
#include "handler/view.h"
#include "handler/work.h"

/* In place of a round: the job. */
#define MST_ENDING_JOB (-1)

/* Open the store of @round, or MST_ENDING_JOB, of the handler @self. */
typedef int (*mst__ending_open_fn)(void *self,
                                   int64_t round,
                                   struct mst_store **ret_store,
                                   struct mst_err *reterr);

struct mst__ending {
    struct mst__budget budget;
    const char *node; /* the handler's */
    mst__ending_open_fn open;
    void *self;
    struct mst_store *job;
    struct mst_store *round; /* NULL = none is joined */
    int64_t number, rank, world;
    int64_t restarts; /* of the job, before the round */

    /* What was said. */
    bool has_failed;
    bool has_arrived; /* at the barrier of torch's agents */

    /* What was found. */
    bool is_end_known;       /* @end is; empty = nobody has told */
    struct mst_buffer end;   /* CLOSED */
    struct mst_buffer cause; /* REOPENED; empty = there is none */
    int64_t cause_changed;   /* it was looked for when so many waited or were lost */
    uint8_t *finished;       /* by rank: 0 = not known, else 1 + whether it has; heap */
};

/* @node is borrowed, @self is that of @open. */
void mst__ending_init(struct mst__ending *ending,
                      const char *node,
                      const struct mst__budget *budget,
                      mst__ending_open_fn open,
                      void *self);

/* A round is joined: 0, MST_ENOMEM, or an error of a store. */
int mst__ending_begin(struct mst__ending *ending,
                      int64_t number,
                      int64_t rank,
                      int64_t world,
                      struct mst_err *reterr);

/* The round is left: release what there is of it. */
void mst__ending_leave(struct mst__ending *ending);

/* Say @word. @ret_closes: the job is to be closed, and the outcome is stored. 0, MST_EINVAL without
 * a round, or an error of the store: then it may be said again. */
int mst__ending_say(struct mst__ending *ending,
                    const struct mst__word *word,
                    bool *ret_closes,
                    struct mst_err *reterr);

/* How many of the members that the seal of the record @state counts, and that are not in it, have
 * finished. The first one that has not ends the count. 0, MST_ENOMEM, or an error of a store. */
int mst__ending_count_finished(const struct mst__ending *ending,
                               const struct mst__state *state,
                               int64_t *ret_count,
                               struct mst_err *reterr);

/* Whether @rank of the round has finished. */
bool mst__ending_has_finished(struct mst__ending *ending, int64_t rank);

/* Add to @view what is known: the outcome if it is closed, the cause if nodes
 * wait or are lost. */
void mst__ending_note(struct mst__ending *ending, struct mst_changes *view);

/* The rendezvous was found closed, @rv: what to say of it instead, by what is stored. Returns
 * MST_EFINISHED, MST_ECLOSED, or @rv with @reterr as it was. */
int mst__ending_explain(const struct mst__ending *ending,
                        int rv,
                        struct mst__view *view,
                        struct mst_err *reterr);

#endif /* MST_HANDLER_ENDING_H */
