/* status/look_handler.c - inspects a job of a custom backend by the calls of its handler: whether
 * it is closed, and how many nodes wait. */
#include <inttypes.h>

#include "base/err.h"
#include "status/look.h"

static int look_open(const struct mst_params *params,
                     int64_t nodes_min,
                     int64_t nodes_max,
                     void **ret_self,
                     struct mst_err *reterr)
{
    struct mst_handler *handler = NULL;
    (void)nodes_min; /* those of @params count, as for a node */
    (void)nodes_max;
    int rv = mst_handler_new(params, &handler, reterr);
    *ret_self = handler;
    return rv;
}

static void fill(struct mst__snapshot *snapshot, bool is_closed, int64_t waiting)
{
    struct mst_status *status = &snapshot->status;
    char text[80];
    (void)snprintf(text, sizeof text,
                   is_closed ? "The rendezvous is closed: nobody can join it any more."
                             : "The rendezvous is open; %" PRId64 " nodes wait for a round.",
                   waiting); /* fits */
    status->exists = true;
    status->phase = is_closed ? MST_STATUS_CLOSED : MST_STATUS_OPEN;
    status->outcome = is_closed ? MST_OUTCOME_CLOSED : MST_OUTCOME_NONE;
    status->summary = mst__snapshot_text(snapshot, mst_bytes_str(text));
}

static int look_read(void *self,
                     int64_t timeout_ms,
                     struct mst__snapshot **ret_snapshot,
                     struct mst_err *reterr)
{
    struct mst_handler *handler = self;
    bool is_closed = false;
    int64_t waiting = 0;
    (void)timeout_ms; /* the handler limits its calls */
    int rv = mst_handler_is_closed(handler, &is_closed, reterr);
    rv = rv == 0 ? mst_handler_nodes_waiting(handler, &waiting, reterr) : rv;
    if (rv != 0) {
        return rv;
    }
    struct mst__snapshot *snapshot =
        mst__snapshot_new(mst_handler_backend(handler), mst_bytes_str(mst_handler_run_id(handler)));
    if (snapshot != NULL) {
        fill(snapshot, is_closed, waiting);
    }
    rv = snapshot == NULL ? MST_ENOMEM : mst__snapshot_end(snapshot);
    if (rv != 0) {
        mst__snapshot_free(snapshot);
        return mst__fail(reterr, rv, 0, "status");
    }
    *ret_snapshot = snapshot;
    return 0;
}

static void look_close(void *self)
{
    mst_handler_free(self);
}

const struct mst__look_ops mst__look_handler = {.open = look_open,
                                                .read = look_read,
                                                .close = look_close};
