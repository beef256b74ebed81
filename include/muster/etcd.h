/* muster/etcd.h - a private etcd, started and stopped by this process.
 *
 * For tests, for jobs on one machine, and for the node that is to bring its own etcd along. The
 * etcd dies with the process that started it. */
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
    const char *data_dir;    /* NULL: a fresh one under $TMPDIR, removed when the server stops. A
                                given one is made if need be, and only what was put in is removed */
    const char *host;        /* to listen on and to tell others; default "localhost" */
    uint16_t client_port;    /* 0 = a free one */
    uint16_t peer_port;      /* 0 = a free one */
    bool enable_v2;          /* refused, with the reason, where this etcd has no v2 API */
    unsigned attempts;       /* each with a fresh data directory and fresh ports; default 3 */
    enum mst_etcd_output output;
    const char *output_path;
    const char *const *arguments; /* more for etcd, NULL at the end; may be NULL */
    struct mst_log log;
};

MST_API void mst_etcd_options_init(struct mst_etcd_options *options);

/**
 * Start an etcd and wait until it is healthy. @options may be NULL.
 *
 * Returns 0, MST_ENOTFOUND (no etcd binary), MST_ENOTSUP (v2 asked for, and this etcd has none),
 * MST_ETIMEOUT, MST_ESYS, MST_ECONN (it ended at once: the message has the end of what it printed),
 * MST_EINVAL, MST_ENOMEM. Nothing of a failed start is left behind.
 */
MST_API int mst_etcd_server_start(const struct mst_etcd_options *options,
                                  int64_t timeout_ms,
                                  struct mst_etcd_server **ret_server,
                                  struct mst_err *reterr);

/** "localhost:2379", valid as long as @server. */
MST_API const char *mst_etcd_server_endpoint(const struct mst_etcd_server *server);
MST_API uint16_t mst_etcd_server_port(const struct mst_etcd_server *server);
/** "3.4.23" */
MST_API const char *mst_etcd_server_version(const struct mst_etcd_server *server);
/** The process, for those who want to watch it. */
MST_API int mst_etcd_server_pid(const struct mst_etcd_server *server);

/** Whether it is still running; if not, @reterr says how it ended. */
MST_API bool mst_etcd_server_is_running(struct mst_etcd_server *server, struct mst_err *reterr);

/** Stop it, by force when it takes longer than five seconds, and remove what was made for it. NULL
 * is fine. */
MST_API void mst_etcd_server_stop(struct mst_etcd_server *server);

#ifdef __cplusplus
}
#endif
#endif /* MST_ETCD_H */
