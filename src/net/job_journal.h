/* net/job_journal.h - what happens to the authorities of a server goes to its journal.
 *
 * Of a server without one all this does nothing. When a job is not in the present file yet, its
 * whole state is written before the next thing that happens to it: at the beginning, when another
 * file begins, and when something of it is missing because there was no room or the disk was
 * full. */
#ifndef MST_NET_JOB_JOURNAL_H
#define MST_NET_JOB_JOURNAL_H

#include "core/authority.h"
#include "wire/journal.h"

struct mst_server;
struct mst__job;
struct mst__job_journal; /* of a server; opaque */

/* A job in the journal. Zeroed: it is not. */
struct mst__job_journaled {
    uint32_t number;
    uint32_t generation; /* its state is in the journal of this generation */
    uint64_t missing;    /* records that could not be written */
    bool has_gap;
};

/* From now on everything goes to the file at @path, which is rotated behind @size_max bytes. Before
 * the server runs. 0 or the error of mst__journal_file_open. */
int mst__server_journal(struct mst_server *server,
                        const char *path,
                        uint64_t size_max,
                        struct mst_err *reterr);

/* Open the file again, soon. From any thread or signal handler. */
void mst__server_journal_reopen(struct mst_server *server);

/* The loop was woken: see whether it was for this. */
void mst__job_journal_look(struct mst_server *server);

/* The server ends. */
void mst__job_journal_close(struct mst_server *server);

/* Something is about to happen to @job. */
void mst__job_journal_before(struct mst__job *job);

/* @event has happened to @job, with @rv; of DISCONNECTED: to the connection @contact. */
void mst__job_journal_event(struct mst__job *job,
                            const struct mst__authority_event *event,
                            uint64_t contact,
                            int rv);

/* TAKEN or FORGOTTEN. */
void mst__job_journal_mark(struct mst__job *job, enum mst__journal_kind kind);

#endif /* MST_NET_JOB_JOURNAL_H */
