/* authority/notices.h - news for the application of a node: notices of the member machine to
 * changes, events and log lines. */
#ifndef MST_AUTHORITY_NOTICES_H
#define MST_AUTHORITY_NOTICES_H

#include "core/member.h"
#include "handler/events.h"
#include "handler/params.h"
#include "handler/view.h"

struct mst__notices {
    /* They belong to the handler. */
    const struct mst__member *member;
    const struct mst__events *events;
    const struct mst_params *params;
    struct mst__view *view;
    const char *where; /* its name in messages */

    /* Of the node's current or last round. */
    bool is_waited_for;         /* REOPENED: a member has returned from it */
    int64_t left;               /* REOPENED: members that have left it, if that was told */
    struct mst_changes changes; /* its changes since it was sealed */
};

/* The node is in a new round. */
void mst__notices_begin_round(struct mst__notices *notices);

/* Tell the application the notice of @effect. */
void mst__notices_take(struct mst__notices *notices, const struct mst__member_effect *effect);

#endif /* MST_AUTHORITY_NOTICES_H */
