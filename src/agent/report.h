/* agent/report.h - the report to the user of why a job failed, the same on all nodes.
 *
 * The node whose worker failed writes a block about the failure and sends it with the failure, in
 * short. The other nodes are told it with the cause; without it, they report what else the cause
 * contains. */
#ifndef MST_AGENT_REPORT_H
#define MST_AGENT_REPORT_H

#include <muster/error.h>

#include "base/buf.h"
#include "base/limits.h"

/* The failure of a worker, as its own node sees it. */
struct mst__failed_worker {
    int64_t rank, local_rank;
    int64_t pid;
    int status, signal;
    int64_t wall_us;
    const char *host;
    const char *error_file; /* NULL = none was written */
    const char *message;    /* of the error file, or what else is known; may have several lines */
    struct mst_bytes tail;  /* last lines of stderr, if there is no error file */
};

/* Write the name of a signal: "SIGKILL" for 9, "signal 50" for a number without a name. */
#define MST_SIGNAL_NAME_SIZE 24
void mst__report_signal(int signal, char ret_name[MST_SIGNAL_NAME_SIZE]);

/* Append the block about one failure, each line indented by two blanks. Returns 0, MST_ELIMIT or
 * MST_ENOMEM. */
int mst__report_block(struct mst__buf *text, const struct mst__failed_worker *failed);

/* Copy @block, to @size bytes with a NUL: of a long one the beginning and the end, in whole
 * lines. */
void mst__report_shorten(struct mst_bytes block, char *ret_text, size_t size);

/* Greatest size of a report with a block of MST_AGENT_BLOCK_SIZE_MAX bytes. */
#define MST_REPORT_SIZE_MAX (5 * MST_AGENT_BLOCK_SIZE_MAX + 4096)

/* Append a block made from the cause that the job has. Returns as mst__report_block. */
struct mst__cause;
int mst__report_cause(struct mst__buf *text, const struct mst__cause *cause);

/* Append the whole report: that @program failed, and @block, which may come from another machine:
 * each of its lines is indented, and what is not plain text is made visible. Returns as
 * mst__report_block. */
int mst__report(struct mst__buf *text, const char *program, struct mst_bytes block);

#endif /* MST_AGENT_REPORT_H */
