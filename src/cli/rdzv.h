/* cli/rdzv.h - shared by the rendezvous commands: options and errors. */
#ifndef MST_CLI_RDZV_H
#define MST_CLI_RDZV_H

#include "base/endpoint.h"
#include "cli/cli.h"

/* The rendezvous of the options. */
struct mst__rdzv {
    const char *command; /* "muster join", for messages */
    const char *backend; /* NULL = not given */
    const char *endpoint;
    const char *run_id;
    struct mst__option_list conf;
};

#define MST_RDZV_DEFAULTS(name) .command = (name), .endpoint = ""

/* Rows for the table of a command's options; @id_help describes --rdzv-id. */
#define MST_RDZV_OPTIONS(rdzv, id_help)                                                       \
    {"rdzv-backend",                                                                          \
     "NAME",                                                                                  \
     "How nodes meet: muster, c10d, etcd-v2, etcd-v3, etcd or static. Default: "              \
     "MUSTER_RDZV_BACKEND, else muster.",                                                     \
     MST_OPTION_TEXT,                                                                         \
     &(rdzv).backend,                                                                         \
     0,                                                                                       \
     0},                                                                                      \
        {"rdzv-endpoint",                                                                     \
         "ADDR",                                                                              \
         "Where: host:port, [ipv6]:port or unix:/path of the store, or a file's path with "   \
         "--rdzv-conf store_type=file; for an etcd, one or more, separated by commas. Or a "  \
         "URL: etcd://host:port/ID?min_workers=2&max_workers=4. Default: "                    \
         "MUSTER_RDZV_ENDPOINT, else localhost:29400, for an etcd localhost:2379.",           \
         MST_OPTION_TEXT,                                                                     \
         &(rdzv).endpoint,                                                                    \
         0,                                                                                   \
         0},                                                                                  \
        {"rdzv-id", "ID", id_help, MST_OPTION_TEXT, &(rdzv).run_id, 0, 0},                    \
    {                                                                                         \
        "rdzv-conf", "K=V,...",                                                               \
            "Options of the backend, such as join_timeout=60,last_call_timeout=5; durations " \
            "are seconds or carry a unit. muster-join(1) lists them. May be given several "   \
            "times.",                                                                         \
            MST_OPTION_LIST, &(rdzv).conf, 0, 0                                               \
    }

/* Take the backend, the endpoint and the id from the variables that `muster run` reads, where the
 * command line says nothing. A URL as endpoint has the other two. */
void mst__rdzv_complete(struct mst__rdzv *rdzv);

/* Parse `MIN:MAX` or `N`; false if malformed. Does not check the range of the numbers. */
bool mst__rdzv_nodes(const char *text, int64_t *ret_min, int64_t *ret_max);

/* Whether the endpoint is a URL with the other settings. */
bool mst__rdzv_is_url(const struct mst__rdzv *rdzv);

/* The backend of the options, or the default. */
const char *mst__rdzv_backend(const struct mst__rdzv *rdzv);

/* Make parameters from the options; @nodes_max 0 = not given, which is enough for a status or if a
 * URL has the limits. Returns true, or false after an error that has been printed, with the exit
 * code in @ret_exit. */
bool mst__rdzv_params(const struct mst__rdzv *rdzv,
                      int64_t nodes_min,
                      int64_t nodes_max,
                      const char *local_addr,
                      struct mst_params **ret_params,
                      int *ret_exit);

/* --- errors --- */

/* As mst__cli_fail, with the names of options instead of the library's; if no server listens at the
 * endpoint of @params (may be NULL), with advice. */
int mst__rdzv_fail(const struct mst__rdzv *rdzv,
                   const struct mst_params *params,
                   const struct mst_err *err);

/* Print how to start a server at @endpoint if @err means that none listens there. */
void mst__rdzv_advise(const struct mst_err *err, const struct mst__endpoint *endpoint);

/* Print which program has @port of @host if @err means that it is in use, and advice if it is
 * muster. */
void mst__rdzv_advise_taken(const struct mst_err *err, const char *host, int64_t port);

#endif /* MST_CLI_RDZV_H */
