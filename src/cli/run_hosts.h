/* cli/run_hosts.h - `muster run` for other hosts. */
#ifndef MST_CLI_RUN_HOSTS_H
#define MST_CLI_RUN_HOSTS_H

#include "agent/settings.h"

/* Start agents on the hosts of @settings, and wait for them. Returns what to exit with. */
int mst__cli_run_hosts(const struct mst__run_settings *settings);

/* `muster run --relay`: be a relay, whose job comes over standard input. */
int mst__cli_run_relay(void);

#endif /* MST_CLI_RUN_HOSTS_H */
