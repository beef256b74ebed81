/* handler/builtin.h - the creators of the built-in handlers and their options, for the registry. */
#ifndef MST_HANDLER_BUILTIN_H
#define MST_HANDLER_BUILTIN_H

#include <muster/backend.h>

#include "handler/params.h"

/* How the status of a job is read, see status/look.h. */
struct mst__look_ops;
extern const struct mst__look_ops mst__look_c10d;
extern const struct mst__look_ops mst__look_etcd;
extern const struct mst__look_ops mst__look_etcd_v2;
extern const struct mst__look_ops mst__look_etcd_v3;
extern const struct mst__look_ops mst__look_muster;

/* Each is an mst_handler_creator; @arg is not used. */
int mst__c10d_create(const struct mst_params *params,
                     void *arg,
                     struct mst_handler **ret_handler,
                     struct mst_err *reterr);
int mst__etcd_v2_create(const struct mst_params *params,
                        void *arg,
                        struct mst_handler **ret_handler,
                        struct mst_err *reterr);
int mst__etcd_v3_create(const struct mst_params *params,
                        void *arg,
                        struct mst_handler **ret_handler,
                        struct mst_err *reterr);
int mst__legacy_create(const struct mst_params *params,
                       void *arg,
                       struct mst_handler **ret_handler,
                       struct mst_err *reterr);
int mst__muster_create(const struct mst_params *params,
                       void *arg,
                       struct mst_handler **ret_handler,
                       struct mst_err *reterr);
int mst__static_create(const struct mst_params *params,
                       void *arg,
                       struct mst_handler **ret_handler,
                       struct mst_err *reterr);

extern const struct mst__known mst__c10d_known;
extern const struct mst__known mst__etcd_v2_known;
extern const struct mst__known mst__etcd_v3_known;
extern const struct mst__known mst__legacy_known;
extern const struct mst__known mst__muster_known;
extern const struct mst__known mst__static_known;

#endif /* MST_HANDLER_BUILTIN_H */
