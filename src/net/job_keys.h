/* net/job_keys.h - the keys of rounds in the server's store: removed when the round is two rounds
 * old, and all of a run when it is forgotten. */
#ifndef MST_NET_JOB_KEYS_H
#define MST_NET_JOB_KEYS_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct mst_server;
struct mst__job;

struct mst__job_keys {
    uv_timer_t timer;     /* active while there is a sweep */
    uint64_t epoch_first; /* of this server's own */
    int64_t opened_ms;
    bool is_sweeping;
    bool is_wanted; /* something has died since the sweep has begun */
};

/* After the epochs of @server have begun. */
void mst__job_keys_open(struct mst_server *server);

/* The loop is about to end. */
void mst__job_keys_stop(struct mst_server *server);

/* A round of some run is out of date, or a run was forgotten. */
void mst__job_keys_want(struct mst_server *server);

/* @job may have sealed a round since this was last called. */
void mst__job_keys_look(struct mst__job *job);

#endif /* MST_NET_JOB_KEYS_H */
