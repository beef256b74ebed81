/* unit/net/job_unit.h - nodes of jobs at a server without a thread. */
#ifndef MST_UNIT_JOB_UNIT_H
#define MST_UNIT_JOB_UNIT_H

#include "unit/net/conn_unit.h"

static inline int fixture_open(void **state)
{
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    return fixture_new(state, &options);
}

/* @name of the job "job", whose process is @session, wants a round of two. */
static inline struct mst__job_message announcement(const char *name, uint64_t session)
{
    return (struct mst__job_message){
        .type = MST_JOB_ANNOUNCE,
        .u.announce = {.version = MST_JOB_VERSION,
                       .run_id = mst_bytes_str("job"),
                       .heartbeat_us = 1000000000,
                       .announcement = {.name = mst_bytes_str(name),
                                        .incarnation = 1,
                                        .session = session,
                                        .expiry_us = 3000000000,
                                        .nodes_min = 2,
                                        .nodes_max = 2,
                                        .pinned_rank = MST_AUTHORITY_RANK_NONE}}};
}

static inline void put_leave(struct mst__buf *output)
{
    const struct mst__job_message leave = {.type = MST_JOB_LEAVE};
    put_message(output, &leave);
}

static inline struct mst__job_message ask(struct fixture *f,
                                          int fd,
                                          const struct mst__job_message *message)
{
    struct mst__job_message told;
    put_message(&f->bytes, message);
    send_all(f, fd);
    frame_read(f, fd, &told);
    return told;
}

/* A node of the job @run_id alone. */
static inline struct mst__job_message lonely(const char *run_id)
{
    struct mst__job_message announce = announcement("node", 1);
    announce.u.announce.run_id = mst_bytes_str(run_id);
    announce.u.announce.announcement.nodes_min = 1;
    announce.u.announce.announcement.nodes_max = 1;
    return announce;
}

/* A node of the job "job" comes, or comes back from @claim. */
static inline int member_new(struct fixture *f, const char *name, const struct mst__claim *claim)
{
    struct mst__job_message announce = announcement(name, (uint64_t)name[0]);
    int fd = node_new(f);
    announce.u.announce.announcement.claim = *claim;
    put_message(&f->bytes, &announce);
    send_all(f, fd);
    assert_int_equal(frame_await(f, fd), MST_JOB_WELCOME);
    return fd;
}

/* The round that the node on @fd is in, as it claims it when it comes back. */
static inline struct mst__claim round_await(struct fixture *f, int fd)
{
    struct mst__job_message told;
    do {
        frame_read(f, fd, &told);
    } while (told.type != MST_JOB_SEALED);
    return (struct mst__claim){.epoch = told.u.round.epoch,
                               .round = told.u.round.round,
                               .world = told.u.round.world,
                               .rank = told.u.round.rank};
}

#endif /* MST_UNIT_JOB_UNIT_H */
