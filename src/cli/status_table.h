/* cli/status_table.h - tables of jobs for people. */
#ifndef MST_CLI_STATUS_TABLE_H
#define MST_CLI_STATUS_TABLE_H

#include <muster/status.h>

#include "base/buf.h"

/* Append @job: a line that names it, its nodes, the summary. If there are many nodes, those of the
 * same standing share a line, unless @all. The first error is kept in @rv. */
void mst__status_table(const struct mst_status *job, bool all, struct mst__buf *text, int *rv);

/* Append @list, one line per job. */
void mst__status_list_table(const struct mst_status_list *list, struct mst__buf *text, int *rv);

#endif /* MST_CLI_STATUS_TABLE_H */
