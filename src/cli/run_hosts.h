/* cli/run_hosts.h - `muster run` with agents on other hosts. */
#ifndef MST_CLI_RUN_HOSTS_H
#define MST_CLI_RUN_HOSTS_H

#include "agent/settings.h"

/* Start agents on the hosts in @settings, and wait for their end. Returns the exit code. */
int mst__cli_run_hosts(const struct mst__run_settings *settings);

/* `muster run --relay`: run a relay, which reads its job from standard input. Returns the exit
 * code. */
int mst__cli_run_relay(void);

#endif /* MST_CLI_RUN_HOSTS_H */
