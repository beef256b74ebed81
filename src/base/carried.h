/* base/carried.h - how many bytes this process has carried over TCP, by the kernel's own account of
 * each socket: the same thing for every protocol, TLS included. For those who measure. */
#ifndef MST_BASE_CARRIED_H
#define MST_BASE_CARRIED_H

#include <stdint.h>

/* What the connection @fd has carried so far, both ways; 0 when it is none, or the kernel does not
 * say. */
uint64_t mst__carried(int fd);

/* @fd is about to be closed: keep account of what it has carried. */
void mst__carried_keep(int fd);

/* What the connections have carried that were closed this way. */
uint64_t mst__carried_closed(void);

#endif /* MST_BASE_CARRIED_H */
