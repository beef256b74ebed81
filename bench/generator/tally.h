/* bench/generator/tally.h - requests and bytes over TCP of the nodes in this process. */
#ifndef MST_BENCH_TALLY_H
#define MST_BENCH_TALLY_H

#include <muster/error.h>
#include <stdint.h>

/* Totals of all nodes. Watches and waits are answered when something happens. */
struct mst__bench_tally {
    uint64_t http_requests, http_watches;
    uint64_t store_operations, store_waits;
    uint64_t messages;
};

struct mst__bench_tally mst__bench_tally(void);

/* The requests that count with @backend: HTTP requests to an etcd, messages to a server that knows
 * jobs, operations of the store otherwise. */
void mst__bench_tally_between(const struct mst__bench_tally *before,
                              const struct mst__bench_tally *after,
                              const char *backend,
                              uint64_t *ret_requests,
                              uint64_t *ret_watches);

/* Bytes of all connections of this process, sent and received; once for connections with both ends
 * here, because this process serves. 0, MST_ESYS, MST_ENOMEM. */
int mst__bench_traffic(uint64_t *ret_bytes, struct mst_err *reterr);

#endif /* MST_BENCH_TALLY_H */
