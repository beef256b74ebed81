/* authority/notices.h - what the application of a node is told: notices of the member machine to
 * changes, events and log lines. */
#ifndef MST_AUTHORITY_NOTICES_H
#define MST_AUTHORITY_NOTICES_H

#include "core/member.h"
#include "handler/events.h"
#include "handler/params.h"
#include "handler/view.h"

struct mst__notices {
    /* The handler's own. */
    const struct mst__member *member;
    const struct mst__events *events;
    const struct mst_params *params;
    struct mst__view *view;
    const char *where; /* what messages call the authority */

    /* Of the round that the node is in, or was in last. */
    bool is_waited_for;         /* REOPENED: somebody has come back from it */
    int64_t left;               /* REOPENED: who has left it, if that was told */
    struct mst_changes changes; /* how it has changed */
};

/* A round begins for the node. */
void mst__notices_begin_round(struct mst__notices *notices);

/* Tell what the member has noticed. */
void mst__notices_take(struct mst__notices *notices, const struct mst__member_effect *effect);

#endif /* MST_AUTHORITY_NOTICES_H */
