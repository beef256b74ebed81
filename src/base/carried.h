/* base/carried.h - how many bytes this process has sent and received over TCP. The kernel counts
 * them for each socket, so the count is the same for every protocol, TLS included. For
 * benchmarks. */
#ifndef MST_BASE_CARRIED_H
#define MST_BASE_CARRIED_H

#include <stdint.h>

/* Bytes that the connection @fd has sent and received so far; 0 if it is not a TCP connection or
 * the kernel does not count. */
uint64_t mst__carried(int fd);

/* Add the bytes of @fd, which is about to be closed, to the total. */
void mst__carried_keep(int fd);

/* The total of the closed connections. */
uint64_t mst__carried_closed(void);

#endif /* MST_BASE_CARRIED_H */
