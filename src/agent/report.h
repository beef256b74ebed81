/* agent/report.h - why a job has failed, for people: the same text on all nodes.
 *
 * The node whose worker has failed writes a block about it, and puts that into the store of the
 * round; the others take it from there. Without it they tell what the cause itself says. */
#ifndef MST_AGENT_REPORT_H
#define MST_AGENT_REPORT_H

#include <muster/error.h>

#include "base/buf.h"

/* A worker's failure, as its own node sees it. */
struct mst__failed_worker {
    int64_t rank, local_rank;
    int64_t pid;
    int status, signal;
    int64_t wall_us;
    const char *host;
    const char *error_file; /* NULL = it has written none */
    const char *message;    /* from there, or what is known otherwise; may have several lines */
    struct mst_bytes tail;  /* the last lines of its stderr, if there is no error file */
};

/* "SIGKILL" for 9, "signal 50" for what has no name. */
#define MST_SIGNAL_NAME_SIZE 24
void mst__report_signal(int signal, char ret_name[MST_SIGNAL_NAME_SIZE]);

/* The block about one failure; each line has two blanks before it. 0, MST_ELIMIT, MST_ENOMEM. */
int mst__report_block(struct mst__buf *text, const struct mst__failed_worker *failed);

/* The same from what the job tells of it. */
struct mst__cause;
int mst__report_cause(struct mst__buf *text, const struct mst__cause *cause);

/* All of it: which @program has failed, and the block of the cause. */
int mst__report(struct mst__buf *text, const char *program, struct mst_bytes block);

#endif /* MST_AGENT_REPORT_H */
