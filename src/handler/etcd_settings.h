/* handler/etcd_settings.h - the options of the handlers that meet at an etcd, checked.
 *
 * The peers call the files of TLS by one set of names in one handler and by another in the other;
 * both handlers here know both. */
#ifndef MST_HANDLER_ETCD_SETTINGS_H
#define MST_HANDLER_ETCD_SETTINGS_H

#include "etcd/http.h"
#include "handler/muster_settings.h"
#include "handler/settings.h"

#define MST_ETCD_PORT_DEFAULT 2379

/* How to reach an etcd. Texts are those of the parameters, but for the password. */
struct mst__etcd_settings {
    struct mst__endpoint endpoints[MST_HTTP_ENDPOINTS_MAX];
    size_t endpoint_count;
    bool is_tls;
    const char *ca_path; /* these may be NULL */
    const char *cert_path;
    const char *key_path;
    const char *user;
    char *password;          /* heap */
    int64_t read_timeout_ms; /* for one call */
};

/* What the etcd-v2 handler is told. */
struct mst__etcd_v2_settings {
    struct mst__etcd_settings etcd;
    struct mst__dynamic dynamic;
};

/* What the etcd-v3 handler is told. */
struct mst__etcd_v3_settings {
    struct mst__etcd_settings etcd;
    struct mst__muster_settings job; /* its place is not read */
};

/* What the legacy handler is told. */
struct mst__legacy_settings {
    struct mst__etcd_settings etcd;
    int64_t nodes_min, nodes_max;
    int64_t timeout_ms;   /* for a whole barrier */
    int64_t last_call_ms; /* after the minimum has come */
    struct mst__budget budget;
    char *prefix; /* heap: one slash in front, none at the end but of the root; "/" */
};

/**
 * Read the options of @params for the handlers `etcd-v2` and `etcd-v3`, or for the legacy one,
 * `etcd`.
 *
 * Returns 0; MST_EINVAL, which names the option, the endpoint, `run_id` or a limit; MST_ESYS when a
 * file with a password cannot be read; MST_ENOMEM. What is written on success borrows from @params
 * and is released by the function of the same kind below.
 */
int mst__etcd_v2_read(const struct mst_params *params,
                      struct mst__etcd_v2_settings *ret_settings,
                      struct mst_err *reterr);
int mst__etcd_v3_read(const struct mst_params *params,
                      struct mst__etcd_v3_settings *ret_settings,
                      struct mst_err *reterr);
int mst__legacy_read(const struct mst_params *params,
                     struct mst__legacy_settings *ret_settings,
                     struct mst_err *reterr);

/* Release what they hold; zeroed ones are fine. Passwords are wiped. */
void mst__etcd_v2_settings_close(struct mst__etcd_v2_settings *settings);
void mst__etcd_v3_settings_close(struct mst__etcd_v3_settings *settings);
void mst__legacy_settings_close(struct mst__legacy_settings *settings);

/* How to talk to the etcd; borrows from @settings. */
struct mst__http_options mst__etcd_http(const struct mst__etcd_settings *settings,
                                        const struct mst_log *log);

/* The store that torch's agents have in the directory @root of that etcd, which is not asked
 * anything yet. 0, MST_EINVAL, MST_ENOMEM. */
int mst__etcd_store_new(const struct mst__http_options *http,
                        const char *root,
                        struct mst_store **ret_store,
                        struct mst_err *reterr);

#endif /* MST_HANDLER_ETCD_SETTINGS_H */
