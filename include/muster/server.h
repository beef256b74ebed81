/* muster/server.h - a store server inside a program: PyTorch's TCPStore protocol, all dialects, and
 * the authority of jobs of the rendezvous backend `muster`, on one port. `muster serve` is this.
 *
 * Threads: one thread runs a server. Other threads may call mst_server_stop, mst_server_dump and
 * the getters while the server exists. After fork, a child process has no socket of it, and cannot
 * use it: mst_server_run returns MST_EINVAL there, and mst_server_free and the others do
 * nothing. */
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
    int64_t request_timeout_ms; /* from the first byte of a request to its last, and for a peer
                                   to read its replies; each 64 KiB adds a second */

    /** Address of the metrics and health page: `127.0.0.1:9090`, `[::1]:9090`, `*:9090`; port 0 = a
     * free one. NULL = none. MST_ENOTSUP if muster was built without http.
     * Borrowed for mst_server_new. */
    const char *http_address;

    /** Serve only the job with this run id; NULL = any. Borrowed for mst_server_new. */
    const char *run_id;
    int64_t job_grace_ms;   /* time to reconnect before a node is declared lost */
    int64_t job_reclaim_ms; /* the same for a whole round after a restart of the server */
    int64_t job_expiry_ms;  /* time until a job without nodes is forgotten, with its keys */

    struct mst_log log;
};

/** Fill @options with the defaults. @size is `sizeof *options`. Thread-safe; cannot fail. */
MST_API void mst_server_options_init(struct mst_server_options *options, size_t size);

/**
 * Bind and listen. The kernel accepts connections from now on; mst_server_run serves them.
 *
 * Returns 0; MST_EINVAL for invalid options, MST_ERESOLVE, MST_ESYS (address in use, no
 * permission), MST_ENOTSUP, MST_ENOMEM. The caller releases @ret_server with mst_server_free.
 */
MST_API int mst_server_new(const struct mst_server_options *options,
                           struct mst_server **ret_server,
                           struct mst_err *reterr);

/** The TCP port, also if a free one was requested; 0 if there are only unix sockets. */
MST_API int mst_server_port(const struct mst_server *server);

/** The addresses that it listens on, as text: `127.0.0.1:29500`, `[::1]:29500`,
 * `unix:/run/muster`. Owned by @server. NULL if @index is out of range. */
MST_API size_t mst_server_addresses_count(const struct mst_server *server);
MST_API const char *mst_server_address(const struct mst_server *server, size_t index);

/** Address of the metrics page, such as `127.0.0.1:9090`; NULL if there is none. Owned by
 * @server. */
MST_API const char *mst_server_http_address(const struct mst_server *server);

/**
 * Serve in the calling thread until mst_server_stop. Then no connection is accepted any more,
 * requests that have arrived are answered, and the call returns within a second.
 *
 * Returns 0 or MST_ESYS.
 */
MST_API int mst_server_run(struct mst_server *server, struct mst_err *reterr);

/** Make mst_server_run return. Thread-safe and async-signal-safe; may precede mst_server_run. */
MST_API void mst_server_stop(struct mst_server *server);

/** Log the counters soon. Thread-safe and async-signal-safe. */
MST_API void mst_server_dump(struct mst_server *server);

/** Close the listening sockets and release @server. mst_server_run must have returned, or not have
 * been called. @server may be NULL. */
MST_API void mst_server_free(struct mst_server *server);

#ifdef __cplusplus
}
#endif
#endif /* MST_SERVER_H */
