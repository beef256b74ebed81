/* bench/bench_tally.h - what the nodes of this process send: requests, and bytes over TCP. */
#ifndef MST_BENCH_BENCH_TALLY_H
#define MST_BENCH_BENCH_TALLY_H

#include <muster/error.h>
#include <stdint.h>

/* Of all nodes together, so far. Watches and waits are answered when something happens. */
struct mst__bench_tally {
    uint64_t http_requests, http_watches;
    uint64_t store_operations, store_waits;
    uint64_t messages;
};

struct mst__bench_tally mst__bench_tally(void);

/* What counts with @backend: requests of HTTP with an etcd, messages to the server with muster,
 * operations of the store where nodes meet at one. */
void mst__bench_tally_between(const struct mst__bench_tally *before,
                              const struct mst__bench_tally *after,
                              const char *backend,
                              uint64_t *ret_requests,
                              uint64_t *ret_watches);

/* Bytes that all connections of this process have carried so far, both ways; of those that have
 * both ends here, because this process serves, once. 0, MST_ESYS, MST_ENOMEM. */
int mst__bench_traffic(uint64_t *ret_bytes, struct mst_err *reterr);

#endif /* MST_BENCH_BENCH_TALLY_H */
