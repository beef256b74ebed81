/* net/stream.h - a connection as a stream of bytes, and listening sockets.
 *
 * The server, its HTTP page and the clients use only this interface to sockets. There is one kind
 * of stream today, over TCP or a unix socket.
 *
 * No call blocks. A call that cannot proceed returns -EAGAIN: the caller polls the stream for the
 * result of mst__stream_events and calls again. That leaves room for an encrypted kind:
 *
 * - Its handshake is part of connecting, reading and writing, whichever comes first. Meanwhile
 *   mst__stream_events returns what the handshake waits for, not what the caller wants.
 * - A read returns everything available, up to the size of the buffer. Only a read that fills its
 *   buffer may leave something behind that poll does not show; repeat it before the next poll.
 * - A write that was refused, or partial, is repeated with the same bytes, possibly at another
 *   address.
 *
 * Errors are negative errno values. */
#ifndef MST_NET_STREAM_H
#define MST_NET_STREAM_H

#include <muster/types.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "net/address.h"

struct mst__stream {
    int fd; /* for poll; -1 = none */
};

/* An address of the supported families, in as few bytes as possible. */
struct mst__stream_name {
    uint8_t family;
    uint16_t port;
    uint32_t scope;
    uint8_t address[16];
};

/* The name as text: `127.0.0.1:29500`, `[::1]:29500`, `unix:`. */
void mst__stream_name_format(const struct mst__stream_name *name, char ret_text[MST_ADDRESS_SIZE]);

/* --- a server's side --- */

/* Listen on exactly @address. Keep-alive probes find dead peers of accepted streams, because silent
 * ones must not time out. 0 or an error. */
int mst__stream_listen(const struct sockaddr *address,
                       size_t size,
                       bool ipv6_only,
                       struct mst__stream *ret_listener);

/* Listen on @fd, which is taken: 0; -ENOTSOCK or another error if it is not a stream socket. */
int mst__stream_listen_fd(int fd, struct mst__stream *ret_listener);

/* Accept the next connection: 0, -EAGAIN, or an error. */
int mst__stream_accept(const struct mst__stream *listener,
                       struct mst__stream *ret_stream,
                       struct mst__stream_name *ret_peer);

/* --- a client's side --- */

/* Begin to connect to @address: 0 or an error. Then call mst__stream_connected. */
int mst__stream_connect(const struct sockaddr *address,
                        size_t size,
                        struct mst__stream *ret_stream);

/* The result: 0, -EAGAIN, or the error. */
int mst__stream_connected(const struct mst__stream *stream);

/* --- both --- */

/* The events to poll @stream for, in order to read, to write or both. */
short mst__stream_events(const struct mst__stream *stream, bool reads, bool writes);

/* Read into @memory: the number of bytes; 0 = end of the stream; -EAGAIN; an error. */
ssize_t mst__stream_read(const struct mst__stream *stream, void *memory, size_t size);

/* Write @bytes as far as possible: the number of bytes; -EAGAIN; an error. */
ssize_t mst__stream_write(const struct mst__stream *stream, struct mst_bytes bytes);

/* Whether a read would return something: 1; 0 = not now; an error, -EPIPE at the end of the
 * stream. */
int mst__stream_has_input(const struct mst__stream *stream);

/* Bytes written that have not reached the peer's machine; 0 if unknown. */
size_t mst__stream_unsent(const struct mst__stream *stream);

/* Stop writing, and with @reads also reading: the peer reads the end of the stream. 0 or an
 * error. */
int mst__stream_end(const struct mst__stream *stream, bool reads);

/* The address that the kernel has chosen: 0 or an error. @ret_port is 0 if there is none. */
int mst__stream_local(const struct mst__stream *stream,
                      char ret_text[MST_ADDRESS_SIZE],
                      int *ret_port);

/* Where the peer of a stream is. */
enum mst__stream_peer {
    MST_STREAM_ELSEWHERE, /* or not known */
    MST_STREAM_HERE,      /* on this machine: it has one of our addresses, and called one that other
                           * machines can call as well */
    MST_STREAM_LOOPBACK,  /* on this machine: it called a loopback address, or a unix socket */
};

enum mst__stream_peer mst__stream_peer(const struct mst__stream *stream);

/* Whether only this machine can connect to @listener: a loopback address or a unix socket. */
bool mst__stream_is_loopback(const struct mst__stream *listener);

/* A closed stream is allowed. */
void mst__stream_close(struct mst__stream *stream);

#endif /* MST_NET_STREAM_H */
