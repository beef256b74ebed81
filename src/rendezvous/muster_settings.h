/* rendezvous/muster_settings.h - the options of the handler `muster`, checked. */
#ifndef MST_RENDEZVOUS_MUSTER_SETTINGS_H
#define MST_RENDEZVOUS_MUSTER_SETTINGS_H

#include "core/authority.h"
#include "rendezvous/settings.h"

struct mst__muster_settings {
    struct mst__c10d place;   /* where, and who serves there */
    struct mst__settings job; /* limits and times */
    const char *node_name;    /* NULL = made up, another one for each handler */
    struct mst__label labels[MST_AUTHORITY_LABELS_MAX];
    size_t labels_count;
    char rank_by[MST_AUTHORITY_RANK_BY_SIZE_MAX + 1]; /* "rack,host" */
    uint32_t pinned_rank;                             /* MST_AUTHORITY_RANK_NONE = none */
};

/**
 * Read the options of @params.
 *
 * Returns 0 or MST_EINVAL, which names the option, the endpoint, `run_id` or a limit. @ret_settings
 * borrows from @params.
 */
int mst__muster_read(const struct mst_params *params,
                     struct mst__muster_settings *ret_settings,
                     struct mst_err *reterr);

#endif /* MST_RENDEZVOUS_MUSTER_SETTINGS_H */
