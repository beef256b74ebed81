/* base/carried.c - counts bytes over TCP, of open and of closed connections. */
#include "base/carried.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/socket.h>

static _Atomic uint64_t closed_total;

uint64_t mst__carried(int fd)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
        size < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received) {
        return 0;
    }
    return info.tcpi_bytes_acked + info.tcpi_bytes_received;
}

void mst__carried_keep(int fd)
{
    atomic_fetch_add(&closed_total, mst__carried(fd));
}

uint64_t mst__carried_closed(void)
{
    return atomic_load(&closed_total);
}
