/* handler/muster_settings.h - the checked options of the handler `muster`. */
#ifndef MST_HANDLER_MUSTER_SETTINGS_H
#define MST_HANDLER_MUSTER_SETTINGS_H

#include "core/authority.h"
#include "handler/settings.h"

/* Options of every handler with an authority. */
#define MST_MUSTER_OPTIONS                                                                  \
    "join_timeout", "last_call_timeout", "close_timeout", "keep_alive_interval",            \
        "keep_alive_max_attempt", "read_timeout", "node_name", "labels", "rank_by", "rank", \
        "max_restarts", "grow", "workers", "role",                                          \
        "timeout" /* the peers' launcher always passes it; without effect there, too */

struct mst__muster_settings {
    struct mst__c10d place;   /* the endpoint, and who serves there */
    struct mst__settings job; /* limits and times */
    const char *node_name;    /* NULL = drawn for each handler */
    struct mst__label labels[MST_AUTHORITY_LABELS_MAX];
    size_t labels_count;
    char rank_by[MST_AUTHORITY_RANK_BY_SIZE_MAX + 1]; /* "rack,host" */
    uint32_t pinned_rank;                             /* MST_AUTHORITY_RANK_NONE = none */
    bool is_new;      /* begin a new job if the one with this run id is closed */
    bool is_fixed;    /* no round is larger than the first one */
    uint32_t workers; /* that this node starts; 0 = not said */
    const char *role; /* of these */
};

/**
 * Read the options of @params.
 *
 * Returns 0 or MST_EINVAL, which names the option, the endpoint, `run_id` or a limit.
 * @ret_settings borrows from @params.
 */
int mst__muster_read(const struct mst_params *params,
                     struct mst__muster_settings *ret_settings,
                     struct mst_err *reterr);

/* Read only the node's options, from name to rank, for handlers that meet elsewhere. The limits
 * must be set already. Returns as mst__muster_read. */
int mst__muster_read_node(const struct mst_params *params,
                          struct mst__muster_settings *settings,
                          struct mst_err *reterr);

#endif /* MST_HANDLER_MUSTER_SETTINGS_H */
