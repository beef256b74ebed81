/* agent/relay_input.c - polls a descriptor through an epoll of its own, because libuv would make
 * the descriptor non-blocking for every process that has it. */
#include "agent/relay_input.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/limits.h"

static bool may_read(const struct mst__relay_input *input)
{
    return isatty(input->fd) == 0 || tcgetpgrp(input->fd) == getpgrp();
}

static void take(struct mst__relay_input *input)
{
    uint8_t part[MST_RELAY_INPUT_MAX];
    ssize_t size = read(input->fd, part, sizeof part);
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) {
        return; /* it is looked at again */
    }
    input->is_wanted = false;
    input->is_over = size <= 0; /* what cannot be read has ended */
    input->fn(input->arg, mst_bytes_of(part, size > 0 ? (size_t)size : 0));
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct mst__relay_input *input = poll->data;
    (void)status;
    (void)events; /* the read tells */
    if (may_read(input)) {
        take(input);
    }
    if (!input->is_wanted || !may_read(input)) {
        (void)uv_poll_stop(poll); /* cannot fail */
    }
}

void mst__relay_input_look(struct mst__relay_input *input)
{
    if (!input->is_wanted || !may_read(input)) {
        return;
    }
    if (input->epoll_fd < 0) {
        take(input);
    } else {
        (void)uv_poll_start(&input->poll, UV_READABLE, on_ready); /* cannot fail */
    }
}

void mst__relay_input_want(struct mst__relay_input *input)
{
    input->is_wanted = !input->is_over;
    mst__relay_input_look(input);
}

void mst__relay_input_open(struct mst__relay_input *input,
                           uv_loop_t *loop,
                           int fd,
                           mst__relay_input_fn fn,
                           void *arg)
{
    struct epoll_event readable = {.events = EPOLLIN};
    *input = (struct mst__relay_input){
        .fd = fd, .fn = fn, .arg = arg, .epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
    if (input->epoll_fd >= 0 && epoll_ctl(input->epoll_fd, EPOLL_CTL_ADD, fd, &readable) != 0) {
        (void)close(input->epoll_fd); /* files, and closed descriptors */
        input->epoll_fd = -1;
    }
    if (input->epoll_fd >= 0) {
        int rv = uv_poll_init(loop, &input->poll, input->epoll_fd);
        MST_ASSERT(rv == 0);
        input->poll.data = input;
    }
}

void mst__relay_input_close(struct mst__relay_input *input)
{
    input->is_wanted = false;
    if (input->epoll_fd >= 0) {
        uv_close((uv_handle_t *)&input->poll, NULL);
        (void)close(input->epoll_fd); /* nothing was written */
    }
}
