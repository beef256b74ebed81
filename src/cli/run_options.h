/* cli/run_options.h - the command line of `muster run`: reads it into settings, and prints them. */
#ifndef MST_CLI_RUN_OPTIONS_H
#define MST_CLI_RUN_OPTIONS_H

#include "agent/settings.h"
#include "cli/cli.h"

/**
 * Read the settings from the command line, the environment, the scheduler's variables and the
 * machine.
 *
 * Returns true if the job should run. The caller then closes @ret_settings. Returns false after
 * --help, --explain and --dry-run, and after an error. The text is then printed, and @ret_exit is
 * the exit code.
 */
bool mst__run_options_read(int argc,
                           char **argv,
                           struct mst__run_settings *ret_settings,
                           int *ret_exit);

/* Print the settings with their origins, and the values found for machine and scheduler. Returns 0,
 * MST_ENOMEM or MST_ESYS. */
int mst__run_explain(const struct mst__run_settings *settings, struct mst_err *reterr);

/* Print the command and the variables of each worker of this node. Returns 0, MST_EINVAL,
 * MST_ENOMEM or MST_ESYS. */
int mst__run_dry(const struct mst__run_settings *settings, struct mst_err *reterr);

#endif /* MST_CLI_RUN_OPTIONS_H */
