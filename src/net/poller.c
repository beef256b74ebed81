/* net/poller.c - reports which streams of a server are readable or writable. */
#include "net/poller.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/fork.h"

/* Events per epoll_wait. */
#define POLLER_EVENTS 256

static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT, "they go by the same numbers");

/* Ask the kernel for @events of @polled: 0 or an error. */
static int polled_arm(struct mst__poller *poller, struct mst__polled *polled, short events)
{
    if (polled->armed == events) {
        return 0;
    }
    int op = polled->armed == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    struct epoll_event event = {.events = (uint32_t)events, .data.ptr = polled};
    if (epoll_ctl(poller->epoll_fd, op, polled->stream.fd, &event) != 0) {
        return -errno;
    }
    poller->count += op == EPOLL_CTL_ADD ? 1 : 0;
    poller->count -= op == EPOLL_CTL_DEL ? 1 : 0;
    polled->armed = events;
    return 0;
}

static short polled_events(const struct mst__polled *polled)
{
    return mst__stream_events(&polled->stream, polled->wants_read, polled->wants_write);
}

int mst__polled_want(struct mst__poller *poller,
                     struct mst__polled *polled,
                     bool reads,
                     bool writes)
{
    polled->wants_read = reads;
    polled->wants_write = writes;
    /* A stream that stops reading usually resumes before anything arrives, so keep the
     * registration. */
    short events = polled_events(polled);
    bool is_kept = !reads && (events | POLLIN) == polled->armed;
    return is_kept ? 0 : polled_arm(poller, polled, events);
}

void mst__polled_close(struct mst__poller *poller, struct mst__polled *polled)
{
    /* A copy of the descriptor in another process would keep the registration alive. */
    int rv = polled_arm(poller, polled, 0);
    MST_ASSERT(rv == 0);
    mst__stream_close(&polled->stream);
    polled->wants_read = false;
    polled->wants_write = false;
}

int mst__polled_move(struct mst__poller *poller, struct mst__polled *from, struct mst__polled *to)
{
    int rv = polled_arm(poller, from, 0);
    MST_ASSERT(rv == 0);
    to->stream = from->stream;
    from->stream.fd = -1;
    from->wants_read = false;
    from->wants_write = false;
    rv = mst__polled_want(poller, to, true, false);
    if (rv != 0) {
        mst__polled_close(poller, to);
    }
    return rv;
}

static void polled_ready(struct mst__poller *poller, struct mst__polled *polled, uint32_t events)
{
    bool has_failed = (events & (EPOLLERR | EPOLLHUP)) != 0;
    bool can_read = polled->wants_read && ((events & EPOLLIN) != 0 || has_failed);
    bool can_write = polled->wants_write && ((events & EPOLLOUT) != 0 || has_failed);
    if (can_read || can_write) {
        polled->on_ready(polled, can_read, can_write);
    } else if (polled->stream.fd >= 0) {
        int rv = polled_arm(poller, polled, polled_events(polled));
        MST_ASSERT(rv == 0); /* it requests less */
    }
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    (void)status; /* an epoll descriptor does not fail */
    (void)events;
    struct mst__poller *poller = poll->data;
    struct epoll_event ready[POLLER_EVENTS];
    poller->left = poller->left == 0 ? poller->count : poller->left;
    while (poller->left > 0 && !poller->is_over(poller->arg)) {
        size_t room = poller->left < POLLER_EVENTS ? poller->left : POLLER_EVENTS;
        int count = epoll_wait(poller->epoll_fd, ready, (int)room, 0);
        if (count < 0) {
            MST_ASSERT(errno == EINTR);
            continue;
        }
        for (int i = 0; i < count; i++) {
            polled_ready(poller, ready[i].data.ptr, ready[i].events);
        }
        poller->left = (size_t)count < room ? 0 : poller->left - room;
    }
}

bool mst__poller_has_more(const struct mst__poller *poller)
{
    struct pollfd pollfd = {.fd = poller->epoll_fd, .events = POLLIN};
    return poller->left > 0 && poll(&pollfd, 1, 0) > 0;
}

int mst__poller_open(struct mst__poller *poller,
                     uv_loop_t *loop,
                     bool (*is_over)(void *arg),
                     void *arg)
{
    *poller = (struct mst__poller){.epoll_fd = -1, .is_over = is_over, .arg = arg};
    poller->epoll_fd = mst__fork_own(epoll_create1(EPOLL_CLOEXEC));
    if (poller->epoll_fd < 0) {
        return -errno;
    }
    int rv = uv_poll_init(loop, &poller->poll, poller->epoll_fd);
    if (rv != 0) {
        mst__poller_close(poller);
        return rv;
    }
    poller->poll.data = poller;
    rv = uv_poll_start(&poller->poll, UV_READABLE, on_ready);
    MST_ASSERT(rv == 0);
    return 0;
}

void mst__poller_stop(struct mst__poller *poller)
{
    uv_close((uv_handle_t *)&poller->poll, NULL);
}

void mst__poller_close(struct mst__poller *poller)
{
    if (poller->epoll_fd >= 0) {
        (void)mst__fork_close(poller->epoll_fd); /* nothing was written */
        poller->epoll_fd = -1;
    }
}
