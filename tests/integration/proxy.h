/* proxy.h - a TCP relay that cuts connections at random, to test clients and servers. */
#ifndef MST_TESTS_PROXY_H
#define MST_TESTS_PROXY_H

#include <stdint.h>

struct mst__proxy; /* opaque */

struct mst__proxy_counts {
    uint64_t connections;
    uint64_t cut_before; /* a piece was lost with the connection */
    uint64_t cut_within; /* a part of it had been forwarded */
    uint64_t cut_after;  /* all of it had, and the answer was lost */
};

/* Relay connections to 127.0.0.1:@target_port in a thread, and cut one for about every
 * @pieces_per_cut forwarded pieces. Connect to @ret_port. Aborts if that is not possible. */
struct mst__proxy *mst__proxy_open(int target_port,
                                   uint64_t seed,
                                   uint64_t pieces_per_cut,
                                   int *ret_port);

/* End it and its connections. */
void mst__proxy_close(struct mst__proxy *proxy, struct mst__proxy_counts *ret_counts);

#endif /* MST_TESTS_PROXY_H */
