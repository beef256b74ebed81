/* net/lane.c - the lane: how a store of this process uses a node's connection. */
#include "net/lane.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "wire/job.h"

/* What is taken at once. A heartbeat waits behind no more than this. */
#define LANE_CHUNK MST_KIB(32)

static_assert(LANE_CHUNK <= MST_JOB_SIZE_MAX, "a heartbeat goes behind it into the same buffer");

void mst__lane_init(struct mst__lane *lane)
{
    *lane = (struct mst__lane){.state = MST_LANE_CLEAN, .fd = -1, .give_up_ms = INT64_MAX};
}

void mst__lane_close(struct mst__lane *lane)
{
    if (lane->fd >= 0) {
        (void)close(lane->fd); /* whatever it says, the descriptor is gone */
        lane->fd = -1;
    }
}

int mst__lane_open(struct mst__lane *lane, int64_t stall_ms, int *ret_fd, struct mst_err *reterr)
{
    MST_ASSERT(lane->state == MST_LANE_CLEAN);
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "a pair of sockets");
    }
    lane->state = MST_LANE_OPEN;
    lane->fd = fds[0];
    lane->stall_ms = stall_ms;
    *ret_fd = fds[1];
    return 0;
}

void mst__lane_end(struct mst__lane *lane)
{
    if (lane->state == MST_LANE_OPEN) {
        mst__lane_close(lane);
        lane->state = MST_LANE_OVER;
        lane->is_asked = false;
        lane->give_up_ms = INT64_MAX;
    }
}

static bool is_for_later(int sys)
{
    return sys == EAGAIN || sys == EWOULDBLOCK || sys == EINTR;
}

/* --- to the server --- */

int mst__lane_take(struct mst__lane *lane, struct mst__buf *output)
{
    const struct mst__job_message message = {.type = MST_JOB_STORE};
    size_t at = mst__buf_size(output);
    int rv = 0;
    if (lane->is_last) {
        return 0;
    }
    if (lane->state == MST_LANE_OPEN) {
        if (mst__buf_reserve(output, MST_JOB_HEAD_SIZE + LANE_CHUNK, &rv) == NULL) {
            return rv;
        }
        rv = mst__job_write(output, &message);
        MST_ASSERT(rv == 0); /* there is room */
        ssize_t got = recv(lane->fd, output->memory + output->end, LANE_CHUNK, 0);
        if (got > 0) {
            mst__buf_commit(output, (size_t)got);
            mst__store_u32(output->memory + output->start + at, (uint32_t)got + 1);
            return 0;
        }
        mst__buf_truncate(output, at);
        if (got == 0 || !is_for_later(errno)) {
            mst__lane_end(lane);
        }
    }
    if (mst__lane_is_due(lane)) {
        rv = mst__job_write(output, &message);
        lane->is_asked = rv == 0;
    }
    return rv;
}

/* --- from the server --- */

bool mst__lane_reply(struct mst__lane *lane, size_t size)
{
    MST_ASSERT(lane->body_left == 0);
    lane->body_left = size;
    if (size > 0 || lane->state != MST_LANE_OVER || !lane->is_asked) {
        return false;
    }
    lane->state = MST_LANE_CLEAN;
    return true;
}

bool mst__lane_pass(struct mst__lane *lane, struct mst__buf *input)
{
    while (lane->body_left > 0 && mst__buf_size(input) > 0) {
        struct mst_bytes body = mst__buf_bytes(input);
        size_t size = body.size < lane->body_left ? body.size : lane->body_left;
        if (lane->state == MST_LANE_OPEN) {
            ssize_t took = send(lane->fd, body.data, size, MSG_NOSIGNAL);
            if (took < 0 && is_for_later(errno)) {
                if (lane->give_up_ms == INT64_MAX) {
                    lane->give_up_ms = mst__clock_deadline_ms(lane->stall_ms);
                }
                return false;
            }
            if (took < 0) {
                mst__lane_end(lane); /* its reader is gone, and the rest is nobody's */
            }
            size = took < 0 ? size : (size_t)took;
            lane->give_up_ms = INT64_MAX;
        }
        mst__buf_consume(input, size);
        lane->body_left -= size;
    }
    return lane->body_left == 0;
}

short mst__lane_events(const struct mst__lane *lane, bool has_room)
{
    if (lane->state != MST_LANE_OPEN) {
        return 0;
    }
    bool takes = has_room && !lane->is_last;
    return (short)((takes ? POLLIN : 0) | (mst__lane_is_stuck(lane) ? POLLOUT : 0));
}
