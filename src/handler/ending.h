/* handler/ending.h - the end of work without an authority: reports in keys beside the record.
 *
 * The store of a round has the first cause of its failure and the ranks that have finished. The
 * store of the job has the number of restarts and the outcome. The first node with a cause counts
 * it; the last node that finishes ends the job. Both store the outcome before they close the
 * rendezvous, so that every node that finds it closed can read why. A node that finishes also takes
 * part in the exit barriers of torch's agents.
 *
 * All of it belongs to the owner. docs/protocol.md has the keys. */
#ifndef MST_HANDLER_ENDING_H
#define MST_HANDLER_ENDING_H

#include <muster/store.h>

#include "core/state.h"
#include "handler/view.h"
#include "handler/work.h"

/* Instead of the number of a round: the job. */
#define MST_ENDING_JOB (-1)

/* Open the store of @round, or with MST_ENDING_JOB of the job, for the handler @self. */
typedef int (*mst__ending_open_fn)(void *self,
                                   int64_t round,
                                   struct mst_store **ret_store,
                                   struct mst_err *reterr);

struct mst__ending {
    struct mst__budget budget;
    const char *node; /* the handler's */
    int wake_fd;
    int64_t say_deadline_ms; /* of the report that is being made */
    mst__ending_open_fn open;
    void *self;
    struct mst_store *job;
    struct mst_store *round; /* NULL = no round is joined */
    int64_t number, rank, world;
    int64_t restarts; /* of the job, before the round */

    /* Reported by this node. */
    bool has_failed;
    bool has_arrived; /* at the barrier of torch's agents */

    /* Read from the store. */
    bool is_end_known;       /* @end was looked for; empty = it was not stored */
    struct mst_buffer end;   /* CLOSED */
    struct mst_buffer cause; /* REOPENED; empty = there is none */
    int64_t cause_changed;   /* how many nodes waited or were lost at the last look */
    uint8_t *finished;       /* by rank: 0 = not known, 1 = no, 2 = yes; heap */
};

/* @node is borrowed; @self is the argument of @open. A report ends early when @wake_fd is
 * readable; -1 = never. */
void mst__ending_init(struct mst__ending *ending,
                      const char *node,
                      const struct mst__budget *budget,
                      int wake_fd,
                      mst__ending_open_fn open,
                      void *self);

/* A round is joined. Returns 0, MST_ENOMEM, or an error of a store. */
int mst__ending_begin(struct mst__ending *ending,
                      int64_t number,
                      int64_t rank,
                      int64_t world,
                      struct mst_err *reterr);

/* The round is left: release its state. */
void mst__ending_leave(struct mst__ending *ending);

/* Report @word. @ret_closes: the outcome is stored, and the caller must close the rendezvous.
 * Returns 0, MST_EINVAL without a round, or an error of the store, after which it may be called
 * again. */
int mst__ending_say(struct mst__ending *ending,
                    const struct mst__word *word,
                    bool *ret_closes,
                    struct mst_err *reterr);

/* Count the finished ones among the members of the sealed round that are no longer in the record
 * @state. The count ends at the first that has not finished. Returns 0, MST_ENOMEM, or an error
 * of a store. */
int mst__ending_count_finished(const struct mst__ending *ending,
                               const struct mst__state *state,
                               int64_t *ret_count,
                               struct mst_err *reterr);

/* Whether @rank of the round has finished. */
bool mst__ending_has_finished(struct mst__ending *ending, int64_t rank);

/* Add to @view the outcome if the rendezvous is closed, and the cause if nodes wait or are lost. */
void mst__ending_note(struct mst__ending *ending, struct mst_changes *view);

/* A call failed with @rv because the rendezvous is closed: explain it with the stored outcome.
 * Returns MST_EFINISHED, MST_ECLOSED, or @rv with @reterr unchanged. */
int mst__ending_explain(const struct mst__ending *ending,
                        int rv,
                        struct mst__view *view,
                        struct mst_err *reterr);

#endif /* MST_HANDLER_ENDING_H */
