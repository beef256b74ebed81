/* fuzz/fuzz_job.c - any bytes as the frames of a job, both ways.
 *
 * The input is a list of pieces: a byte that chooses a connection and an action, a byte that is
 * the length, the bytes. The bytes of a connection are a stream of frames. Each is read from the
 * whole stream and from every prefix of it; a message must be the same after it was written and
 * read once more. Then it goes to an authority, as in a server; messages of a server are
 * dropped. The effects of the authority are written and read, too. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "core/authority.h"
#include "wire/job.h"

enum { CONNS = 4, STREAM_SIZE_MAX = 4096, STORE_SIZE_MAX = 300 };

/* Actions of a piece. */
enum { HANG_UP, WAIT_SHORT, WAIT_LONG, SHUT, FEED_FIRST, ACTIONS = 16 };

struct conn {
    struct mst__buf input;
    bool has_seat;
    mst__authority_id id;
};

struct run {
    struct mst__authority authority;
    struct conn conns[CONNS];
    int64_t now_us;
    int64_t round; /* the last one that was sent to all */
};

static int step(struct run *run,
                const struct conn *conn,
                enum mst__authority_event_kind kind,
                const struct mst__job_message *message)
{
    struct mst__authority_event event = {.kind = kind, .now_us = run->now_us, .id = conn->id};
    if (kind == MST_AUTHORITY_EVENT_DISCONNECTED) {
        event.driver = conn;
    } else if (kind == MST_AUTHORITY_EVENT_FINISHED) {
        event.epoch = message->u.finish.epoch;
        event.round = message->u.finish.round;
    } else if (kind == MST_AUTHORITY_EVENT_FAILED) {
        event.epoch = message->u.restart.epoch;
        event.round = message->u.restart.round;
        event.cause = &message->u.restart.cause;
    } else if (kind == MST_AUTHORITY_EVENT_SHUT) {
        event.reason = mst_bytes_str("why");
        event.owner = mst_bytes_str("who");
    }
    return mst__authority_step(&run->authority, &event, NULL);
}

static void write_and_read(const struct mst__job_message *message)
{
    struct mst__buf first;
    struct mst__buf second;
    mst__buf_init(&first, MST_MIB(1));
    mst__buf_init(&second, MST_MIB(1));
    struct mst__job_message given = *message;
    if (given.type == MST_JOB_ANNOUNCE) {
        given.u.announce.announcement.labels = given.u.announce.labels;
    }
    int rv = mst__job_write(&first, &given);
    MST_ASSERT(rv == 0);
    struct mst__job_message again;
    size_t size = 0;
    struct mst_err err;
    rv = mst__job_read(mst__buf_bytes(&first), MST_MIB(1), &again, &size, &err);
    MST_ASSERT(rv == 1);
    MST_ASSERT(size == mst__buf_size(&first));
    if (again.type == MST_JOB_ANNOUNCE) {
        again.u.announce.announcement.labels = again.u.announce.labels;
    }
    rv = mst__job_write(&second, &again);
    MST_ASSERT(rv == 0);
    MST_ASSERT(mst__bytes_equal(mst__buf_bytes(&first), mst__buf_bytes(&second)));
    mst__buf_close(&first);
    mst__buf_close(&second);
}

/* Read one frame from growing prefixes of @input. */
static int read_growing(struct mst_bytes input, size_t *ret_size)
{
    size_t wanted = 0;
    for (size_t have = 0; have <= input.size; have++) {
        struct mst__job_message message;
        int rv =
            mst__job_read(mst_bytes_of(input.data, have), STORE_SIZE_MAX, &message, ret_size, NULL);
        if (rv != 0) {
            return rv;
        }
        MST_ASSERT(*ret_size > have);
        MST_ASSERT(*ret_size >= wanted);
        MST_ASSERT(*ret_size <= MST_JOB_SIZE_MAX + 4);
        wanted = *ret_size;
    }
    return 0;
}

static void tell(struct run *run)
{
    struct mst__authority_effect effect;
    size_t count = 0;
    while (mst__authority_next_effect(&run->authority, &effect)) {
        MST_ASSERT(count++ < 100000);
        if (effect.kind == MST_TOLD_SEALED) {
            const struct mst__job_message message = {
                .type = MST_JOB_SEALED,
                .u.round = {.epoch = effect.epoch,
                            .round = effect.round,
                            .world = effect.world,
                            .rank = effect.rank,
                            .address = effect.address},
            };
            write_and_read(&message);
            MST_ASSERT(effect.round >= run->round);
            run->round = effect.round;
        } else if (effect.kind == MST_TOLD_CLOSED) {
            const struct mst__job_message message = {
                .type = MST_JOB_CLOSED,
                .u.closed = {.reason = mst_bytes_str(effect.text),
                             .owner = mst_bytes_str(effect.owner),
                             .end = {.outcome = (uint32_t)effect.outcome,
                                     .has_cause = effect.has_cause,
                                     .cause = effect.cause}},
            };
            write_and_read(&message);
        } else if (effect.kind == MST_TOLD_EXPELLED && effect.driver != NULL) {
            ((struct conn *)effect.driver)->has_seat = false;
        }
    }
    mst__authority_check(&run->authority);
}

static void announce(struct run *run, struct conn *conn, const struct mst__job_announce *said)
{
    struct mst__announcement announcement = said->announcement;
    announcement.labels = said->labels;
    announcement.driver = conn;
    const struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_ANNOUNCED,
                                               .now_us = run->now_us,
                                               .announcement = &announcement};
    struct mst_err err = {0};
    int rv = mst__authority_step(&run->authority, &event, &err);
    enum mst__refusal refusal = run->authority.refusal;
    mst__authority_id id = run->authority.announced;
    MST_ASSERT((rv == 0) == (refusal == MST_REFUSAL_NONE));
    if (rv != 0) {
        const struct mst__job_message refused = {
            .type = MST_JOB_REFUSED,
            .u.refused = {.code = rv, .refusal = (uint32_t)refusal, .text = mst_bytes_str(err.msg)},
        };
        MST_ASSERT(err.msg[0] != '\0');
        write_and_read(&refused);
        return;
    }
    if (conn->has_seat && conn->id != id) {
        (void)step(run, conn, MST_AUTHORITY_EVENT_LEFT, NULL); /* may be over */
    }
    conn->has_seat = true;
    conn->id = id;
}

static void take(struct run *run, struct conn *conn, const struct mst__job_message *message)
{
    struct mst_bytes members;
    struct mst__job_member member;
    switch (message->type) {
        case MST_JOB_ANNOUNCE:
            announce(run, conn, &message->u.announce);
            break;
        case MST_JOB_HEARTBEAT:
            if (conn->has_seat) {
                (void)step(run, conn, MST_AUTHORITY_EVENT_HEARD, message);
            }
            break;
        case MST_JOB_LEAVE:
            if (conn->has_seat) {
                (void)step(run, conn, MST_AUTHORITY_EVENT_LEFT, message);
            }
            conn->has_seat = false;
            break;
        case MST_JOB_FINISH:
            if (conn->has_seat) {
                (void)step(run, conn, MST_AUTHORITY_EVENT_FINISHED, message);
            }
            break;
        case MST_JOB_RESTART:
            if (conn->has_seat) {
                (void)step(run, conn, MST_AUTHORITY_EVENT_FAILED, message);
            }
            break;
        case MST_JOB_STATUS_TOLD:
            members = message->u.status.members;
            while (mst__job_member_next(&members, &member)) {
                MST_ASSERT(member.name.size <= STORE_SIZE_MAX);
            }
            break;
        default:
            break;
    }
}

static void hang_up(struct run *run, struct conn *conn)
{
    if (conn->has_seat) {
        (void)step(run, conn, MST_AUTHORITY_EVENT_DISCONNECTED, NULL);
    }
    conn->has_seat = false;
    mst__buf_clear(&conn->input);
}

static void feed(struct run *run, struct conn *conn, struct mst_bytes bytes)
{
    if (mst__buf_append(&conn->input, bytes) != 0) {
        hang_up(run, conn);
        return;
    }
    for (;;) {
        struct mst__job_message message;
        struct mst_err err = {0};
        size_t size = 0;
        size_t grown_size = 0;
        struct mst_bytes input = mst__buf_bytes(&conn->input);
        int rv = mst__job_read(input, STORE_SIZE_MAX, &message, &size, &err);
        MST_ASSERT(rv == read_growing(input, &grown_size));
        MST_ASSERT(size == grown_size);
        if (rv < 0) {
            MST_ASSERT(err.code == rv);
            hang_up(run, conn);
        }
        if (rv != 1) {
            return;
        }
        write_and_read(&message);
        take(run, conn, &message);
        tell(run);
        mst__buf_consume(&conn->input, size);
    }
}

static void act(struct run *run, struct conn *conn, unsigned action)
{
    if (action == HANG_UP) {
        hang_up(run, conn);
    } else if (action == WAIT_SHORT || action == WAIT_LONG) {
        run->now_us += action == WAIT_SHORT ? 50000 : 500000;
        (void)step(run, conn, MST_AUTHORITY_EVENT_TIME, NULL); /* the input says when */
    } else if (action == SHUT) {
        (void)step(run, conn, MST_AUTHORITY_EVENT_SHUT, NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct mst__authority_options options = {.epoch = 1000,
                                                          .expiry_us = 1000000,
                                                          .grace_us = 100000,
                                                          .reclaim_us = 200000,
                                                          .return_us = 2000000,
                                                          .members_max = 8};
    struct run run = {.now_us = 1};
    mst__authority_init(&run.authority, &options);
    for (size_t i = 0; i < CONNS; i++) {
        mst__buf_init(&run.conns[i].input, STREAM_SIZE_MAX);
    }
    for (size_t at = 0; at + 2 <= size;) {
        struct conn *conn = &run.conns[data[at] % CONNS];
        unsigned action = data[at] / CONNS % ACTIONS;
        size_t length = data[at + 1];
        at += 2;
        act(&run, conn, action);
        if (action >= FEED_FIRST) {
            length = length < size - at ? length : size - at;
            feed(&run, conn, mst_bytes_of(data + at, length));
            at += length;
        }
        tell(&run);
    }
    for (size_t i = 0; i < CONNS; i++) {
        hang_up(&run, &run.conns[i]);
        mst__buf_close(&run.conns[i].input);
    }
    mst__authority_close(&run.authority);
    return 0;
}
