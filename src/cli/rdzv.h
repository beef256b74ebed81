/* cli/rdzv.h - what the commands on a rendezvous share: its options, and its record as it is in the
 * store. */
#ifndef MST_CLI_RDZV_H
#define MST_CLI_RDZV_H

#include "base/endpoint.h"
#include "cli/cli.h"
#include "core/settings.h"
#include "core/state.h"

/* Which rendezvous, as the options say. */
struct mst__rdzv {
    const char *command; /* "muster join", for messages */
    const char *backend; /* NULL = not given */
    const char *endpoint;
    const char *run_id;
    struct mst__option_list conf;
};

#define MST_RDZV_DEFAULTS(name) .command = (name), .endpoint = ""

/* Rows for the table of a command's options. */
#define MST_RDZV_OPTIONS(rdzv)                                                                \
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
        {"rdzv-id",                                                                           \
         "ID",                                                                                \
         "Which job: the same on all of its nodes. Required.",                                \
         MST_OPTION_TEXT,                                                                     \
         &(rdzv).run_id,                                                                      \
         0,                                                                                   \
         0},                                                                                  \
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

/* Whether an authority decides in @backend, whose jobs look_job.h looks at. */
bool mst__rdzv_has_authority(const char *backend);

/* The parameters that the options describe; @nodes_max of 0 = not given, which only an URL makes
 * good for. Returns true, or false after an error that has been printed; @ret_exit is then what to
 * exit with. */
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

/* --- the record --- */

/* A look at the record from outside: nothing is written, no store is served. */
struct mst__look {
    struct mst_store *store; /* NULL while there is none */
    const char *path;        /* the params' own: the file where there will be one */
    struct mst__settings settings;
    struct mst_buffer key;
    struct mst_buffer value; /* as stored; empty before the first reading and when there is none */
    struct mst__look_etcd *etcd; /* NULL = it is not at an etcd */
    struct mst__look_job *job;   /* NULL = it has no authority: else cli/look_job.h tells it */
    bool is_legacy;          /* it has a document instead of a record: cli/look_etcd.h tells it */
    bool exists;             /* there is a key */
    struct mst__state state; /* empty when nobody has joined yet */
    bool has_state;
};

/**
 * Open the store of the rendezvous @params, which outlives @look, for reading its record. A file
 * that does not exist is not created: then there is no record, until there is a file.
 *
 * Returns 0, MST_EINVAL, MST_ENOTSUP for a backend without a record, or an error of mst_store_open.
 * Of an etcd, nothing is asked yet.
 */
int mst__look_open(struct mst__look *look,
                   const struct mst_params *params,
                   int64_t timeout_ms,
                   struct mst_err *reterr);

/**
 * Read the record; @ret_changed (may be NULL) tells whether it is another one than before.
 *
 * Returns 0, MST_ESTATE when what is there is no record, or an error of mst_store_try_get.
 */
int mst__look_read(struct mst__look *look,
                   int64_t timeout_ms,
                   bool *ret_changed,
                   struct mst_err *reterr);

/* Who is there, in numbers, as the last reading says. */
struct mst__look_group {
    bool is_closed;
    bool is_running; /* a round runs: who waits, waits for the next one */
    int64_t round;   /* the one that runs, or is open */
    int64_t here;    /* in that round */
    int64_t waiting; /* beside one that runs */
};

void mst__look_group(const struct mst__look *look, struct mst__look_group *ret_group);

/* Call @fn with the name of each node that is there. */
typedef void (*mst__look_node_fn)(void *arg, struct mst_bytes name);
void mst__look_nodes(const struct mst__look *look, mst__look_node_fn fn, void *arg);

/* Whether a node that was last heard of @silent_us ago is late when it has something to say every
 * @interval_us: half a turn beyond the one that is due. */
bool mst__look_is_late(int64_t silent_us, int64_t interval_us);

/* A zeroed one is fine. */
void mst__look_close(struct mst__look *look);

#endif /* MST_CLI_RDZV_H */
