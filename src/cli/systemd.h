/* cli/systemd.h - socket activation and readiness notification for a service manager. Both
 * protocols are a few lines, so no library is needed. */
#ifndef MST_CLI_SYSTEMD_H
#define MST_CLI_SYSTEMD_H

#include <stddef.h>

/* The number of sockets passed by socket activation (LISTEN_PID, LISTEN_FDS); they are descriptors
 * 3, 4, … and are made close-on-exec. Removes the variables from the environment. */
size_t mst__systemd_listen_fds(void);

/* Check whether a service manager wants notifications (NOTIFY_SOCKET). */
void mst__systemd_init(void);

/* Send our state, such as "READY=1", to the service manager, if there is one. May be called in a
 * signal handler. */
void mst__systemd_notify(const char *state);

#endif /* MST_CLI_SYSTEMD_H */
