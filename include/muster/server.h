/* muster/server.h - a store server inside a program: PyTorch's TCPStore protocol, all dialects, and
 * the authority of jobs of the rendezvous backend `muster`, on one port. `muster serve` is this.
 *
 * One thread runs a server and has it to itself; other threads may call mst_server_stop and
 * mst_server_dump. The calls that only tell something may be made from any thread as long as the
 * server lives. A server belongs to the process that made it: a child process must not make any
 * call on it after fork, not even mst_server_free. */
#ifndef MST_SERVER_H
#define MST_SERVER_H

#include <muster/error.h>
#include <muster/log.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mst_server; /* opaque */

struct mst_server_options {
    size_t size; /* sizeof(struct mst_server_options), see mst_server_options_init */

    /** Where to listen: names, numeric addresses, `*` (every address of both families) or
     * `unix:/path`. `::` takes IPv4 too unless ipv6_only is set or `0.0.0.0` is listed. None means
     * the loopback addresses. Borrowed for mst_server_new. */
    const char *const *hosts;
    size_t hosts_count;
    int port; /* 0 = a free one */
    bool ipv6_only;

    /** Already bound or listening stream sockets (socket activation); taken. When given,
     * hosts and port are not used. */
    const int *listen_fds;
    size_t listen_fds_count;

    size_t connections_max;
    size_t memory_max; /* stored data, jobs and connections' buffers */
    size_t key_size_max;
    size_t value_size_max;
    int64_t idle_timeout_ms;    /* close silent connections; 0 = never, which torch needs */
    int64_t request_timeout_ms; /* from the first byte of a request to its last, and how far behind
                                   a peer may be with reading; 64 KiB more have a second more */

    /** Serve a metrics and health page here: `127.0.0.1:9090`, `[::1]:9090`, `*:9090`; port 0 = a
     * free one. NULL = none. A muster that was built without http refuses it with MST_ENOTSUP.
     * Borrowed for mst_server_new. */
    const char *http_address;

    /** The server is the authority of the rendezvous backend `muster`. With a run id it serves that
     * one alone and refuses others by name; NULL = any. Borrowed for mst_server_new. */
    const char *run_id;
    int64_t job_grace_ms;   /* a node whose connection was lost may come back within it */
    int64_t job_reclaim_ms; /* the same for all nodes of a round after a restart of the server */
    int64_t job_expiry_ms;  /* a run id without nodes is forgotten after it, with its keys */

    struct mst_log log;
};

/** Fill @options, which the caller has @size bytes of, with the defaults: call it with
 * `sizeof options`. From any thread; it cannot fail. */
MST_API void mst_server_options_init(struct mst_server_options *options, size_t size);

/**
 * Bind and listen; connections are accepted by the kernel from now on and served once
 * mst_server_run is called.
 *
 * Returns 0; MST_EINVAL for options that make no sense, MST_ERESOLVE, MST_ESYS (address in use, no
 * permission), MST_ENOTSUP, MST_ENOMEM. The caller releases @ret_server with mst_server_free.
 */
MST_API int mst_server_new(const struct mst_server_options *options,
                           struct mst_server **ret_server,
                           struct mst_err *reterr);

/** The TCP port that it listens on, also when a free one was asked for; 0 when there are only unix
 * sockets. */
MST_API int mst_server_port(const struct mst_server *server);

/** How many addresses it listens on, and each as text: `127.0.0.1:29500`, `[::1]:29500`,
 * `unix:/run/muster`. Owned by @server. NULL for an index that is too large. */
MST_API size_t mst_server_addresses_count(const struct mst_server *server);
MST_API const char *mst_server_address(const struct mst_server *server, size_t index);

/** Where the metrics page is: `127.0.0.1:9090`. NULL when there is none. Owned by @server. */
MST_API const char *mst_server_http_address(const struct mst_server *server);

/**
 * Serve until mst_server_stop, in the calling thread. On stop: no new connections, requests that
 * have arrived are answered, and it returns within a second.
 *
 * Returns 0 or MST_ESYS.
 */
MST_API int mst_server_run(struct mst_server *server, struct mst_err *reterr);

/** Make mst_server_run return. From any thread or signal handler; also before it was called. */
MST_API void mst_server_stop(struct mst_server *server);

/** Log the counters, soon. From any thread or signal handler. */
MST_API void mst_server_dump(struct mst_server *server);

/** Release @server and close what it listens on; mst_server_run has returned or was never called.
 * NULL is fine. */
MST_API void mst_server_free(struct mst_server *server);

#ifdef __cplusplus
}
#endif
#endif /* MST_SERVER_H */
