/* cli/run_options.h - the command line of `muster run`: to settings, and what is told of them. */
#ifndef MST_CLI_RUN_OPTIONS_H
#define MST_CLI_RUN_OPTIONS_H

#include "agent/settings.h"
#include "cli/cli.h"

/**
 * Read the command line, the environment, the scheduler's variables and what the machine has.
 *
 * Returns true when the job should run; close @ret_settings in the end. Returns false when it
 * should not: after --help, --explain and --dry-run, which are printed, and after an error, which
 * is; then @ret_exit is what to exit with.
 */
bool mst__run_options_read(int argc,
                           char **argv,
                           struct mst__run_settings *ret_settings,
                           int *ret_exit);

/* Print each setting that has a value, with its origin, and what was found out about the machine
 * and the scheduler. 0, MST_ENOMEM, MST_ESYS. */
int mst__run_explain(const struct mst__run_settings *settings, struct mst_err *reterr);

/* Print the command and the variables of each worker of this node. 0, MST_EINVAL, MST_ENOMEM,
 * MST_ESYS. */
int mst__run_dry(const struct mst__run_settings *settings, struct mst_err *reterr);

#endif /* MST_CLI_RUN_OPTIONS_H */
