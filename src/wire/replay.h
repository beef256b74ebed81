/* wire/replay.h - restores the jobs of a journal, record by record.
 *
 * Pure. The authorities are the product's own: they get the events of the server's authorities, so
 * they make the same decisions, which are reported to a listener. */
#ifndef MST_WIRE_REPLAY_H
#define MST_WIRE_REPLAY_H

#include "wire/journal.h"

struct mst__replay_job {
    struct mst__replay *replay;
    uint32_t number;
    struct mst__journal_state state;
    struct mst__authority authority; /* valid if state.has_begun */
    size_t run_id_size;
    char run_id[MST_JOB_RUN_ID_SIZE_MAX + 1];
};

/* Each may be NULL. Arguments are borrowed for the call. */
struct mst__replay_listener {
    void (*begun)(void *arg, const struct mst__journal_begin *begin);
    void (*founded)(void *arg, const struct mst__replay_job *job); /* its state is complete */
    void (*missing)(void *arg, const struct mst__replay_job *job, uint64_t count);
    void (*forgotten)(void *arg, const struct mst__replay_job *job);
    /* Called before and after @event is fed to @job, with @rv and, for an announcement, @err. */
    void (*fed)(void *arg,
                const struct mst__replay_job *job,
                const struct mst__authority_event *event);
    void (*answered)(void *arg,
                     const struct mst__replay_job *job,
                     const struct mst__authority_event *event,
                     int rv,
                     const struct mst_err *err);
    void (*told)(void *arg,
                 const struct mst__replay_job *job,
                 const struct mst__authority_effect *effect);
    void (*moved)(void *arg,
                  const struct mst__replay_job *job,
                  enum mst__authority_phase from,
                  enum mst__authority_phase to,
                  enum mst__authority_why why,
                  int64_t round);
    void (*ended)(void *arg,
                  const struct mst__replay_job *job,
                  const struct mst__authority_member *member,
                  enum mst__authority_ended how,
                  uint32_t count);
    void *arg;
};

struct mst__replay {
    struct mst__replay_listener listener;
    struct mst__map jobs; /* number to struct mst__replay_job pointer */
    bool has_begun;
    int64_t wall_us; /* minus the server's clock */
    int64_t last_us; /* of the last record, on the server's clock */
};

void mst__replay_init(struct mst__replay *replay, const struct mst__replay_listener *listener);
void mst__replay_close(struct mst__replay *replay);

/* Process the record with the @fields of mst__journal_read. 0; MST_EPROTO if it is not allowed
 * here, MST_ELIMIT for too many jobs, MST_ENOMEM. After an error the replay can only be closed. */
int mst__replay_take(struct mst__replay *replay, struct mst_bytes fields);

/* The job with @number, if its state is complete, or NULL. */
struct mst__replay_job *mst__replay_job(const struct mst__replay *replay, uint32_t number);
/* Iterate: @cursor begins as NULL; NULL at the end. Only jobs whose state is complete. */
const struct mst__replay_job *mst__replay_next(const struct mst__replay *replay, void **cursor);

#endif /* MST_WIRE_REPLAY_H */
