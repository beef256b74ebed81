/* net/poller.h - reports which streams of a server are readable or writable, on its loop.
 *
 * All streams are in one epoll descriptor, which the loop watches. A stream needs only a few bytes
 * in its owner. One turn of the loop serves at most as many streams as the owner allows; the kernel
 * keeps ready streams in a ring, so that the others come first in the next turn. A round is over
 * when all streams that were ready at its beginning were served. */
#ifndef MST_NET_POLLER_H
#define MST_NET_POLLER_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "net/stream.h"

struct mst__polled;

/* @polled is readable or writable, or has failed, which a read or write reports. */
typedef void mst__polled_fn(struct mst__polled *polled, bool can_read, bool can_write);

/* A polled stream, in the memory of its owner. */
struct mst__polled {
    mst__polled_fn *on_ready;
    struct mst__stream stream;
    bool wants_read, wants_write;
    short armed; /* registered events; 0 = not registered */
};

struct mst__poller {
    int epoll_fd; /* -1 = not open */
    uv_poll_t poll;
    size_t count; /* registered streams */
    size_t left;  /* streams to serve until the round is over, at most */
    bool (*is_over)(void *arg);
    void *arg;
};

/* @is_over, called with @arg, says whether the rest must wait for another turn of @loop. 0, or an
 * error of libuv. */
int mst__poller_open(struct mst__poller *poller,
                     uv_loop_t *loop,
                     bool (*is_over)(void *arg),
                     void *arg);
/* The loop is about to end; all polled streams are closed. */
void mst__poller_stop(struct mst__poller *poller);
/* The loop has ended. */
void mst__poller_close(struct mst__poller *poller);

/* Whether a stream that was ready at the beginning of the round is not yet served. */
bool mst__poller_has_more(const struct mst__poller *poller);

/* Set whether @polled wants to read and to write: 0 or an error. */
int mst__polled_want(struct mst__poller *poller,
                     struct mst__polled *polled,
                     bool reads,
                     bool writes);

/* Move the stream of @from to @to, which reads; @from is then closed, and its
 * memory must stay until the turn of the loop is over. 0, or an error with @to closed as well. */
int mst__polled_move(struct mst__poller *poller, struct mst__polled *from, struct mst__polled *to);

/* Close the stream of @polled. Its memory must stay until the turn of the loop is over. */
void mst__polled_close(struct mst__poller *poller, struct mst__polled *polled);

#endif /* MST_NET_POLLER_H */
