/* net/job_keys.h - the keys of rounds in the server's store: removed when the round is two rounds
 * old, and with the run when it is forgotten. */
#ifndef MST_NET_JOB_KEYS_H
#define MST_NET_JOB_KEYS_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct mst_server;
struct mst__job;

struct mst__job_keys {
    uv_timer_t timer;     /* active during a sweep */
    uint64_t epoch_first; /* the first epoch of this server */
    int64_t opened_ms;
    bool is_sweeping;
    bool is_wanted; /* another sweep is needed after this one */
};

/* Call after the first epoch of @server is set. */
void mst__job_keys_open(struct mst_server *server);

/* The loop is about to end. */
void mst__job_keys_stop(struct mst_server *server);

/* Start a sweep: a round is outdated, or a run was forgotten. */
void mst__job_keys_want(struct mst_server *server);

/* Start a sweep if @job has sealed a round since the last call. */
void mst__job_keys_look(struct mst__job *job);

#endif /* MST_NET_JOB_KEYS_H */
