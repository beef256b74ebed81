/* net/address.c - socket addresses as text. */
#include "net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/un.h>

static void format_inet(const struct sockaddr *address, char ret_text[MST_ADDRESS_SIZE])
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in4 = (const struct sockaddr_in *)(const void *)address;
        (void)inet_ntop(AF_INET, &in4->sin_addr, host,
                        sizeof host); /* cannot fail: size is right */
        (void)snprintf(ret_text, MST_ADDRESS_SIZE, "%s:%u", host, (unsigned)ntohs(in4->sin_port));
        return;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
    (void)inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host); /* as above */
    (void)snprintf(ret_text, MST_ADDRESS_SIZE, "[%s]:%u", host, (unsigned)ntohs(in6->sin6_port));
}

void mst__address_format(const struct sockaddr *address,
                         size_t size,
                         char ret_text[MST_ADDRESS_SIZE])
{
    if (address->sa_family == AF_INET || address->sa_family == AF_INET6) {
        format_inet(address, ret_text);
        return;
    }
    const struct sockaddr_un *un = (const struct sockaddr_un *)(const void *)address;
    size_t path_start = offsetof(struct sockaddr_un, sun_path);
    size_t path_size = size > path_start ? size - path_start : 0;
    (void)snprintf(ret_text, MST_ADDRESS_SIZE, "unix:%.*s", (int)path_size, un->sun_path);
}
