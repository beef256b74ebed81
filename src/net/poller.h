/* net/poller.h - which of a server's streams can be read or written, as a part of its loop.
 *
 * All streams are in one epoll descriptor, which the loop watches. A stream costs nothing beside a
 * few bytes in its owner. In one turn of the loop at most as many are served as the owner allows;
 * the kernel keeps them in a ring, so that the others come first in the next turn. A round is over
 * when everybody was served who was ready when it began. */
#ifndef MST_NET_POLLER_H
#define MST_NET_POLLER_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "net/stream.h"

struct mst__polled;

/* @polled can be read or written, or has failed, which reading or writing tells. */
typedef void mst__polled_fn(struct mst__polled *polled, bool can_read, bool can_write);

/* A stream that is polled, in the memory of its owner. */
struct mst__polled {
    mst__polled_fn *on_ready;
    struct mst__stream stream;
    bool wants_read, wants_write;
    short armed; /* events that the kernel looks for; 0 = it does not know the stream */
};

struct mst__poller {
    int epoll_fd; /* -1 = not open */
    uv_poll_t poll;
    size_t count; /* of those that the kernel knows */
    size_t left;  /* to be served until the round is over, at most */
    bool (*is_over)(void *arg);
    void *arg;
};

/* @is_over says, with @arg, that the rest has to wait for another turn of @loop. 0, or an error of
 * libuv. */
int mst__poller_open(struct mst__poller *poller,
                     uv_loop_t *loop,
                     bool (*is_over)(void *arg),
                     void *arg);
/* The loop is about to end; what is polled is closed before. */
void mst__poller_stop(struct mst__poller *poller);
/* The loop has ended. */
void mst__poller_close(struct mst__poller *poller);

/* Whether somebody was ready when the round began, and has yet to be served. */
bool mst__poller_has_more(const struct mst__poller *poller);

/* Tell whether @polled wants to read and to write: 0, or an error. */
int mst__polled_want(struct mst__poller *poller,
                     struct mst__polled *polled,
                     bool reads,
                     bool writes);

/* Close the stream of @polled. Its memory stays until the turn of the loop is over. */
void mst__polled_close(struct mst__poller *poller, struct mst__polled *polled);

#endif /* MST_NET_POLLER_H */
