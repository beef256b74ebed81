/* cli/systemd.h - the two things a service manager wants: sockets it opened for us, and to be told
 * when we are ready. Both protocols are a few lines, so there is no library behind this. */
#ifndef MST_CLI_SYSTEMD_H
#define MST_CLI_SYSTEMD_H

#include <stddef.h>

/* Sockets passed by socket activation (LISTEN_PID, LISTEN_FDS): how many; they are descriptors 3,
 * 4, … and have been made close-on-exec. The variables are removed from the environment. */
size_t mst__systemd_listen_fds(void);

/* Find out whether a service manager wants to be told (NOTIFY_SOCKET). */
void mst__systemd_init(void);

/* Tell the service manager that our state is @state, such as "READY=1". Nothing happens when there
 * is none. May be called in a signal handler. */
void mst__systemd_notify(const char *state);

#endif /* MST_CLI_SYSTEMD_H */
