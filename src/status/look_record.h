/* status/look_record.h - makes a snapshot from a record. */
#ifndef MST_STATUS_LOOK_RECORD_H
#define MST_STATUS_LOOK_RECORD_H

#include <muster/rendezvous.h>

#include "core/settings.h"
#include "snapshot/snapshot.h"

/* The record @pickle, empty if there is none yet, of the job @params. 0, MST_ESTATE if it is not a
 * record, MST_ENOMEM. @reterr is not NULL. */
int mst__look_record(const struct mst_params *params,
                     const struct mst__settings *settings,
                     struct mst_bytes pickle,
                     struct mst__snapshot **ret_snapshot,
                     struct mst_err *reterr);

#endif /* MST_STATUS_LOOK_RECORD_H */
