/* cli/claim.h - the port of `muster serve`, which a node may have taken while there was no
 * server. */
#ifndef MST_CLI_CLAIM_H
#define MST_CLI_CLAIM_H

#include <muster/server.h>

/**
 * Make a server. If its port is taken, try again for 2 s, and ask a node of this machine that
 * serves at one of the addresses of @options to give way; then it has 5 s.
 *
 * Returns 0 or an error of mst_server_new.
 */
int mst__claim_server(const struct mst_server_options *options,
                      struct mst_server **ret_server,
                      struct mst_err *reterr);

#endif /* MST_CLI_CLAIM_H */
