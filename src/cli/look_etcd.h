/* cli/look_etcd.h - a rendezvous at an etcd, read from outside, and told. */
#ifndef MST_CLI_LOOK_ETCD_H
#define MST_CLI_LOOK_ETCD_H

#include "cli/json.h"
#include "cli/rdzv.h"

/* As mst__look_open, _read and _close, for the backends `etcd-v2` and `etcd`. */
int mst__look_etcd_open(struct mst__look *look,
                        const struct mst_params *params,
                        struct mst_err *reterr);
int mst__look_etcd_read(struct mst__look *look,
                        int64_t timeout_ms,
                        bool *ret_changed,
                        struct mst_err *reterr);
void mst__look_etcd_close(struct mst__look *look);

/* As mst__look_group and _nodes, of one that exists. Peers have no names. */
void mst__look_legacy_group(const struct mst__look *look, struct mst__look_group *ret_group);
void mst__look_legacy_nodes(const struct mst__look *look, mst__look_node_fn fn, void *arg);

/* Append what the legacy rendezvous of @look waits for, in a sentence or a few. Limits of 0 were
 * not given. 0, MST_ELIMIT, MST_ENOMEM. */
int mst__look_legacy_summary(const struct mst__look *look,
                             int64_t nodes_min,
                             int64_t nodes_max,
                             struct mst__buf *text);

/* Append the rest of the line that names it, and the table of its nodes. The same. */
int mst__look_legacy_table(const struct mst__look *look, struct mst__buf *text);

/* Put the members of an object that say the same as those of another rendezvous. */
void mst__look_legacy_json(const struct mst__look *look, struct mst__cli_json *json);

#endif /* MST_CLI_LOOK_ETCD_H */
