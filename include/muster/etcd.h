/* muster/etcd.h - a private etcd, started and stopped by this process.
 *
 * For tests, for jobs on one machine, and for a node that brings its own etcd. The etcd never
 * outlives the process that started it. Threads: every call is thread-safe; no call may follow
 * mst_etcd_server_stop. After fork, a child process must not use its parent's handle. */
#ifndef MST_ETCD_H
#define MST_ETCD_H

#include <muster/error.h>
#include <muster/log.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mst_etcd_server;

/** Where the output of etcd goes. */
enum mst_etcd_output {
    MST_ETCD_OUTPUT_NONE,    /* discarded; the error of a failed start has its last lines */
    MST_ETCD_OUTPUT_INHERIT, /* to our own stderr */
    MST_ETCD_OUTPUT_FILE,    /* appended to output_path */
};

struct mst_etcd_options {
    size_t size;             /* sizeof(struct mst_etcd_options), see mst_etcd_options_init */
    const char *binary_path; /* NULL: $TORCHELASTIC_ETCD_BINARY_PATH, then `etcd` beside this
                                program, then on $PATH */
    const char *data_dir;    /* NULL: a temporary one under $TMPDIR, removed when the server stops
                                or this process dies. A given one is created if missing, and kept
                                for the next start; a failed start leaves nothing in it */
    const char *host;        /* to listen on and to advertise; default "localhost" */
    uint16_t client_port;    /* 0 = a free one */
    uint16_t peer_port;      /* 0 = a free one; on localhost only */
    bool enable_v2;          /* MST_ENOTSUP if this etcd has no v2 API */
    unsigned attempts;       /* starts in total: retries if etcd exits immediately, with a new data
                                directory and new ports unless these are given; default 3 */
    enum mst_etcd_output output;
    const char *output_path;
    const char *const *arguments; /* further arguments of etcd, ended by NULL; may be NULL */

    /** PEM files. cert_path, valid for @host, enables TLS; it contains the key too unless key_path
     * is given. client_ca_path requires client certificates signed by it; the server's own must be
     * valid for a client, because etcd calls itself. */
    const char *cert_path;
    const char *key_path;
    const char *client_ca_path;

    /** A descriptor, such as an eventfd. When readable, the start fails with MST_ECANCELED; -1 =
     * none. */
    int cancel_fd;

    struct mst_log log;
};

/** Fill @options with the defaults. @size is `sizeof *options`. Thread-safe; cannot fail. */
MST_API void mst_etcd_options_init(struct mst_etcd_options *options, size_t size);

/**
 * Start an etcd and wait until it is healthy. @options may be NULL; it is copied.
 *
 * The etcd inherits no descriptor, signal handler, signal mask or ETCD_ variable. It is a child of
 * this process. With a temporary data directory there is a second child, a shell that removes the
 * directory if this process is killed. SIGCHLD may be delivered; a wait for any child may collect
 * them, which only makes their exit status unknown. The etcd outlives the thread that started it.
 *
 * @timeout_ms limits all attempts together.
 *
 * Returns 0, MST_ENOTFOUND (no etcd binary), MST_ENOTSUP (this etcd has no v2 API),
 * MST_ETIMEOUT, MST_ECANCELED, MST_ESYS, MST_ECONN (it exited immediately, or is not an etcd; the
 * message has its last lines), MST_EAUTH (its certificate is not for the host), MST_ERESOLVE,
 * MST_EINVAL, MST_ELIMIT, MST_ENOMEM. Nothing of a failed start is left behind.
 */
MST_API int mst_etcd_server_start(const struct mst_etcd_options *options,
                                  int64_t timeout_ms,
                                  struct mst_etcd_server **ret_server,
                                  struct mst_err *reterr);

/** Its address for clients, such as "localhost:2379", and the port. Texts are owned by @server,
 * here and below. */
MST_API const char *mst_etcd_server_endpoint(const struct mst_etcd_server *server);
MST_API uint16_t mst_etcd_server_port(const struct mst_etcd_server *server);

/** Its version: "3.4.23". */
MST_API const char *mst_etcd_server_version(const struct mst_etcd_server *server);

/** Its process id. */
MST_API int mst_etcd_server_pid(const struct mst_etcd_server *server);

/** Whether it is still running. If not, @reterr says how it ended; the system code is the exit
 * status or signal. */
MST_API bool mst_etcd_server_is_running(struct mst_etcd_server *server, struct mst_err *reterr);

/** Stop it, after five seconds by force, and remove its temporary files. @server may be NULL. */
MST_API void mst_etcd_server_stop(struct mst_etcd_server *server);

#ifdef __cplusplus
}
#endif
#endif /* MST_ETCD_H */
