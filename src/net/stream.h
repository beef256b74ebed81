/* net/stream.h - a connection as a stream of bytes, and where connections come from.
 *
 * The server, its metrics page and the clients use nothing else of the system's sockets. There is
 * one kind of stream today, over TCP or a unix socket.
 *
 * No call waits. What cannot be done yet is -EAGAIN: then the caller polls the stream for what
 * mst__stream_events says, and calls again. That leaves room for a kind that encrypts:
 *
 * - Its handshake is part of connecting, reading and writing, whichever comes first. Meanwhile
 *   mst__stream_events tells what the handshake waits for, and not what the caller wants.
 * - A read gives all that there is, up to the room that is offered. Only one that fills its room
 *   may leave something behind that a poll does not show, and is repeated before the next poll.
 * - A write that took nothing, or not all, is repeated with the same bytes, wherever they lie by
 *   then.
 *
 * Errors are negative numbers of errno. */
#ifndef MST_NET_STREAM_H
#define MST_NET_STREAM_H

#include <muster/types.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "net/address.h"

struct mst__stream {
    int fd; /* to be polled; -1 = none */
};

/* An address of the kinds that there are, in as few bytes as possible. */
struct mst__stream_name {
    uint8_t family;
    uint16_t port;
    uint32_t scope;
    uint8_t address[16];
};

/* The name as text: `127.0.0.1:29500`, `[::1]:29500`, `unix:`. */
void mst__stream_name_format(const struct mst__stream_name *name, char ret_text[MST_ADDRESS_SIZE]);

/* --- a server's side --- */

/* Listen on exactly @address. Accepted streams are found dead by keep-alive probes, because silent
 * ones must not be timed out. 0 or an error. */
int mst__stream_listen(const struct sockaddr *address,
                       size_t size,
                       bool ipv6_only,
                       struct mst__stream *ret_listener);

/* Listen on @fd, which is taken: 0; -ENOTSOCK and others when it is no stream socket. */
int mst__stream_listen_fd(int fd, struct mst__stream *ret_listener);

/* Take the next one who has called: 0, -EAGAIN, or an error. */
int mst__stream_accept(const struct mst__stream *listener,
                       struct mst__stream *ret_stream,
                       struct mst__stream_name *ret_peer);

/* --- a client's side --- */

/* Begin to connect to @address: 0, or an error. mst__stream_connected follows. */
int mst__stream_connect(const struct sockaddr *address,
                        size_t size,
                        struct mst__stream *ret_stream);

/* How that went: 0, -EAGAIN, or why it failed. */
int mst__stream_connected(const struct mst__stream *stream);

/* --- both --- */

/* What to poll @stream for, as poll(2) says it, by who wants to read or to write or both. */
short mst__stream_events(const struct mst__stream *stream, bool reads, bool writes);

/* Read into @memory: how many bytes; 0 = the peer has ended the stream; -EAGAIN; an error. */
ssize_t mst__stream_read(const struct mst__stream *stream, void *memory, size_t size);

/* Write what is taken of @bytes: how many; -EAGAIN; an error. */
ssize_t mst__stream_write(const struct mst__stream *stream, struct mst_bytes bytes);

/* Whether a read would give something: 1; 0 = not now; an error, -EPIPE when the peer has ended. */
int mst__stream_has_input(const struct mst__stream *stream);

/* How many bytes were written and have not arrived at the peer's machine; 0 if that is not
 * known. */
size_t mst__stream_unsent(const struct mst__stream *stream);

/* Write no more, and with @reads read no more: the peer reads the end. 0 or an error. */
int mst__stream_end(const struct mst__stream *stream, bool reads);

/* The address that the kernel settled on: 0 or an error. @ret_port is 0 where there is none. */
int mst__stream_local(const struct mst__stream *stream,
                      char ret_text[MST_ADDRESS_SIZE],
                      int *ret_port);

/* One that is closed is fine. */
void mst__stream_close(struct mst__stream *stream);

#endif /* MST_NET_STREAM_H */
