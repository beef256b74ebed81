/* cli/rdzv.h - what the commands on a rendezvous share: its options and its errors. */
#ifndef MST_CLI_RDZV_H
#define MST_CLI_RDZV_H

#include "base/endpoint.h"
#include "cli/cli.h"

/* Which rendezvous, as the options say. */
struct mst__rdzv {
    const char *command; /* "muster join", for messages */
    const char *backend; /* NULL = not given */
    const char *endpoint;
    const char *run_id;
    struct mst__option_list conf;
};

#define MST_RDZV_DEFAULTS(name) .command = (name), .endpoint = ""

/* Rows for the table of a command's options; @id_help says what --rdzv-id is for. */
#define MST_RDZV_OPTIONS(rdzv, id_help)                                                       \
    {"rdzv-backend",                                                                          \
     "NAME",                                                                                  \
     "How nodes meet: muster, c10d, etcd-v2, etcd-v3, etcd or static. Default muster.",       \
     MST_OPTION_TEXT,                                                                         \
     &(rdzv).backend,                                                                         \
     0,                                                                                       \
     0},                                                                                      \
        {"rdzv-endpoint",                                                                     \
         "ADDR",                                                                              \
         "Where: host:port or [ipv6]:port of the store, or the path of a file with "          \
         "--rdzv-conf store_type=file; of an etcd, several with commas between them. Or all " \
         "in one: etcd://host:port/ID?min_workers=2&max_workers=4. Default localhost:29400, " \
         "of an etcd localhost:2379.",                                                        \
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

/* Read `MIN:MAX` or `N`; false when it is neither. Whether the numbers make sense is not asked. */
bool mst__rdzv_nodes(const char *text, int64_t *ret_min, int64_t *ret_max);

/* Whether the endpoint is an URL that says the rest, too. */
bool mst__rdzv_is_url(const struct mst__rdzv *rdzv);

/* The backend that was asked for, or the default one. */
const char *mst__rdzv_backend(const struct mst__rdzv *rdzv);

/* Whether nodes of @backend have names that can be expected. */
bool mst__rdzv_has_names(const char *backend);

/* The parameters that the options describe; @nodes_max of 0 = not given, which is enough for a look
 * and which an URL makes good for. Returns true, or false after an error that has been printed;
 * @ret_exit is then what to exit with. */
bool mst__rdzv_params(const struct mst__rdzv *rdzv,
                      int64_t nodes_min,
                      int64_t nodes_max,
                      const char *local_addr,
                      struct mst_params **ret_params,
                      int *ret_exit);

/* --- errors --- */

/* As mst__cli_fail, with the names of options in place of the library's; when nobody listens at the
 * endpoint of @params (may be NULL), also how to change that. */
int mst__rdzv_fail(const struct mst__rdzv *rdzv,
                   const struct mst_params *params,
                   const struct mst_err *err);

/* Say how to start a server at @endpoint if @err is that nobody listens there. */
void mst__rdzv_advise(const struct mst_err *err, const struct mst__endpoint *endpoint);

/* Say who has @port of @host if @err is that it is taken, and what to do when that is a muster. */
void mst__rdzv_advise_taken(const struct mst_err *err, const char *host, int64_t port);

#endif /* MST_CLI_RDZV_H */
