/* agent/relay_input.h - the launcher's standard input, read in parts for the first host.
 *
 * A part is read when the one before it was taken, so that nothing piles up if the worker there
 * does not read. The descriptor is shared with other processes: its flags stay as they are. A
 * terminal is read only in its foreground, because a read from the background stops the process. */
#ifndef MST_AGENT_RELAY_INPUT_H
#define MST_AGENT_RELAY_INPUT_H

#include <muster/types.h>
#include <stdbool.h>
#include <uv.h>

/* Called with a part of the input; with an empty one at its end, as the last. */
typedef void (*mst__relay_input_fn)(void *arg, struct mst_bytes part);

struct mst__relay_input {
    int fd;
    mst__relay_input_fn fn;
    void *arg;
    bool is_wanted; /* a part may be read */
    bool is_over;
    int epoll_fd; /* readable when @fd is; -1 if a read never waits, as of a file */
    uv_poll_t poll;
};

/* Prepare to read @fd, which is borrowed. */
void mst__relay_input_open(struct mst__relay_input *input,
                           uv_loop_t *loop,
                           int fd,
                           mst__relay_input_fn fn,
                           void *arg);

/* Read one part, when there is one. */
void mst__relay_input_want(struct mst__relay_input *input);

/* Call it now and then: the terminal may have moved this process to its foreground. */
void mst__relay_input_look(struct mst__relay_input *input);

/* The loop's next turn releases the rest. */
void mst__relay_input_close(struct mst__relay_input *input);

#endif /* MST_AGENT_RELAY_INPUT_H */
