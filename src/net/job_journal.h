/* net/job_journal.h - writes the events of a server's authorities to its journal.
 *
 * Without a journal these functions do nothing. If a job is not yet in the present file, its whole
 * state is written before its next event: at the beginning, when another file begins, and after a
 * gap because the buffer or the disk was full. */
#ifndef MST_NET_JOB_JOURNAL_H
#define MST_NET_JOB_JOURNAL_H

#include "core/authority.h"
#include "wire/journal.h"

struct mst_server;
struct mst__job;
struct mst__job_journal; /* of a server; opaque */

/* A job in the journal. Zeroed: not in it. */
struct mst__job_journaled {
    uint32_t number;
    uint32_t generation; /* its state is in the journal of this generation */
    uint64_t missing;    /* records that could not be written */
    bool has_gap;
};

/* Write all events to the file at @path from now on, and rotate it at @size_max bytes. Before the
 * server runs. 0 or the error of mst__journal_file_open. */
int mst__server_journal(struct mst_server *server,
                        const char *path,
                        uint64_t size_max,
                        struct mst_err *reterr);

/* Reopen the file soon. From any thread or signal handler. */
void mst__server_journal_reopen(struct mst_server *server);

/* Called when the loop was woken: check whether a reopen was requested. */
void mst__job_journal_look(struct mst_server *server);

/* Close the journal at the end of the server. */
void mst__job_journal_close(struct mst_server *server);

/* Called before an event of @job. */
void mst__job_journal_before(struct mst__job *job);

/* Record @event of @job and its result @rv; for DISCONNECTED with the connection @contact. */
void mst__job_journal_event(struct mst__job *job,
                            const struct mst__authority_event *event,
                            uint64_t contact,
                            int rv);

/* Record TAKEN or FORGOTTEN. */
void mst__job_journal_mark(struct mst__job *job, enum mst__journal_kind kind);

#endif /* MST_NET_JOB_JOURNAL_H */
