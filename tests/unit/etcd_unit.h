/* unit/etcd_unit.h - real etcds for the unit tests: free ports of 127.0.0.1, a data directory of
 * their own, stopped and started again at will. They die with the test's main thread. */
#ifndef MST_UNIT_ETCD_UNIT_H
#define MST_UNIT_ETCD_UNIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ETCD_UNIT_MEMBERS_MAX 5

struct etcd_unit {
    pid_t pid;     /* 0 = not running */
    uint16_t port; /* of the clients */
    uint16_t peer_port;
    uint16_t health_port; /* plain HTTP, also with TLS for the clients */
    char dir[64];         /* data directory, and `log` */
    bool is_tls;
    const char *const *arguments; /* borrowed for its life */
    char name[16];
    char cluster[256]; /* --initial-cluster */
};

/* Whether there is an etcd to start, in $PATH. */
bool etcd_unit_is_there(void);

/* Start one and wait until it is healthy. @arguments, NULL at the end or NULL, come behind our own;
 * with @is_tls they name the certificates. The test fails when it does not start. */
void etcd_unit_start(struct etcd_unit *ret_etcd, bool is_tls, const char *const *arguments);

/* The same for the @count members of one cluster. */
void etcd_unit_start_cluster(struct etcd_unit *ret_members,
                             size_t count,
                             bool is_tls,
                             const char *const *arguments);

/* Send @signal, which ends it, and wait for that end. Data and ports stay. */
void etcd_unit_end(struct etcd_unit *etcd, int signal);

/* Start it again after that, where it was; wait until it is healthy if @is_waiting. */
void etcd_unit_again(struct etcd_unit *etcd, bool is_waiting);

/* Let it stand still until it gets SIGCONT. It does when this returns: the signal alone stops the
 * threads of a process one after the other, and they may answer meanwhile. */
void etcd_unit_pause(struct etcd_unit *etcd);

/* End it if it runs, and remove its directory. A zeroed one is allowed. */
void etcd_unit_stop(struct etcd_unit *etcd);

#endif /* MST_UNIT_ETCD_UNIT_H */
