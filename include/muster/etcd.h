/* muster/etcd.h - a private etcd, started and stopped by this process.
 *
 * For tests, for jobs on one machine, and for the node that is to bring its own etcd along. The
 * etcd dies with the process that started it. Any thread may make any call here, but for
 * mst_etcd_server_stop, after which there is none. A child process after fork has no etcd: it must
 * not make a call on its parent's. */
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
    MST_ETCD_OUTPUT_NONE,    /* thrown away, but the end of it is in the error of a failed start */
    MST_ETCD_OUTPUT_INHERIT, /* to our own stderr */
    MST_ETCD_OUTPUT_FILE,    /* appended to output_path */
};

struct mst_etcd_options {
    size_t size;             /* sizeof(struct mst_etcd_options), see mst_etcd_options_init */
    const char *binary_path; /* NULL: $TORCHELASTIC_ETCD_BINARY_PATH, then `etcd` beside this
                                program, then on $PATH */
    const char *data_dir;    /* NULL: a fresh one under $TMPDIR, removed when the server stops and
                                when this process dies. A given one is made if need be and stays,
                                with the data in it, for the next start; what a failed start has
                                put there is taken out again */
    const char *host;        /* to listen on and to tell others; default "localhost" */
    uint16_t client_port;    /* 0 = a free one */
    uint16_t peer_port;      /* 0 = a free one; only on localhost, for there is no other member */
    bool enable_v2;          /* refused, with the reason, where this etcd has no v2 API */
    unsigned attempts;       /* as long as it ends at once; each with a fresh data directory and
                                fresh ports, where these are not given; default 3 */
    enum mst_etcd_output output;
    const char *output_path;
    const char *const *arguments; /* more for etcd, NULL at the end; may be NULL */

    /** Files in PEM: with a certificate, which must be for @host, clients talk TLS; without
     * key_path it holds the key, too. With client_ca_path clients have to show a certificate that
     * it has signed; this server's own must do for that as well, because etcd calls itself. */
    const char *cert_path;
    const char *key_path;
    const char *client_ca_path;

    /** Readable = give up the start with MST_ECANCELED: an eventfd or the like; -1 = nothing. */
    int cancel_fd;

    struct mst_log log;
};

/** Fill @options, which the caller has @size bytes of, with the defaults: call it with
 * `sizeof options`. From any thread; it cannot fail. */
MST_API void mst_etcd_options_init(struct mst_etcd_options *options, size_t size);

/**
 * Start an etcd and wait until it is healthy. @options may be NULL; what it points to is copied.
 *
 * It has no descriptor of ours, none of our signal handlers and masks, none of the ETCD_ variables
 * of our environment. It is a child of this process, and so is, with a fresh data directory, a
 * shell that removes the directory should this process be killed: SIGCHLD may come, and waiting
 * for any child may collect them, which makes their exit status unknown but does no harm. Any
 * thread may start one; it lives on when that thread ends, and dies when the process does.
 *
 * The deadline holds for all attempts together.
 *
 * Returns 0, MST_ENOTFOUND (no etcd binary), MST_ENOTSUP (v2 asked for, and this etcd has none),
 * MST_ETIMEOUT, MST_ECANCELED, MST_ESYS, MST_ECONN (it ended at once, or is no etcd: the message
 * has the end of what it printed), MST_EAUTH (its certificate is not for the host), MST_ERESOLVE,
 * MST_EINVAL, MST_ELIMIT, MST_ENOMEM. Nothing of a failed start is left behind.
 */
MST_API int mst_etcd_server_start(const struct mst_etcd_options *options,
                                  int64_t timeout_ms,
                                  struct mst_etcd_server **ret_server,
                                  struct mst_err *reterr);

/** Where it listens for clients: "localhost:2379", and the port of that. Text is owned by @server,
 * here and below. */
MST_API const char *mst_etcd_server_endpoint(const struct mst_etcd_server *server);
MST_API uint16_t mst_etcd_server_port(const struct mst_etcd_server *server);

/** Its version: "3.4.23". */
MST_API const char *mst_etcd_server_version(const struct mst_etcd_server *server);

/** Its process, to watch it by. */
MST_API int mst_etcd_server_pid(const struct mst_etcd_server *server);

/** Whether it is still running. If not, @reterr says how it ended, with its exit status or signal
 * as system code. */
MST_API bool mst_etcd_server_is_running(struct mst_etcd_server *server, struct mst_err *reterr);

/** Stop it, by force when it takes longer than five seconds, and remove what was made for it. NULL
 * is fine. */
MST_API void mst_etcd_server_stop(struct mst_etcd_server *server);

#ifdef __cplusplus
}
#endif
#endif /* MST_ETCD_H */
