/* net/address.h - formats socket addresses, always numeric: there are no reverse lookups. */
#ifndef MST_NET_ADDRESS_H
#define MST_NET_ADDRESS_H

#include <stddef.h>
#include <sys/socket.h>

#define MST_ADDRESS_SIZE 128

/* `127.0.0.1:29500`, `[::1]:29500`, `unix:/path` (`unix:` for an unnamed socket). */
void mst__address_format(const struct sockaddr *address,
                         size_t size,
                         char ret_text[MST_ADDRESS_SIZE]);

#endif /* MST_NET_ADDRESS_H */
