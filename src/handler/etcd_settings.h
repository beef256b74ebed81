/* handler/etcd_settings.h - the checked options of the handlers for etcd.
 *
 * The peers' two handlers have different names for the TLS files; each handler here accepts
 * both. */
#ifndef MST_HANDLER_ETCD_SETTINGS_H
#define MST_HANDLER_ETCD_SETTINGS_H

#include "etcd/http.h"
#include "handler/muster_settings.h"
#include "handler/settings.h"

#define MST_ETCD_PORT_DEFAULT 2379

/* How to reach an etcd. Texts belong to the parameters, except the password. */
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

/* Settings of the etcd-v2 handler. */
struct mst__etcd_v2_settings {
    struct mst__etcd_settings etcd;
    struct mst__dynamic dynamic;
};

/* Settings of the etcd-v3 handler. */
struct mst__etcd_v3_settings {
    struct mst__etcd_settings etcd;
    struct mst__muster_settings job; /* its place is not read */
};

/* Settings of the legacy handler. */
struct mst__legacy_settings {
    struct mst__etcd_settings etcd;
    int64_t nodes_min, nodes_max;
    int64_t timeout_ms;   /* for a whole barrier */
    int64_t last_call_ms; /* after nodes_min nodes have arrived */
    struct mst__budget budget;
    char *prefix; /* heap; begins with a slash and has none at the end, except "/" itself */
};

/**
 * Read the options of @params for the handlers `etcd-v2`, `etcd-v3` and `etcd`.
 *
 * Returns 0; MST_EINVAL, which names the option, the endpoint, `run_id` or a limit; MST_ESYS if
 * a password file cannot be read; MST_ENOMEM. The settings borrow from @params; close them with
 * the function below.
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

/* Release the settings; zeroed ones are allowed. Passwords are wiped. */
void mst__etcd_v2_settings_close(struct mst__etcd_v2_settings *settings);
void mst__etcd_v3_settings_close(struct mst__etcd_v3_settings *settings);
void mst__legacy_settings_close(struct mst__legacy_settings *settings);

/* HTTP options for this etcd; borrows from @settings. */
struct mst__http_options mst__etcd_http(const struct mst__etcd_settings *settings,
                                        const struct mst_log *log);

/* Make the store of torch's agents in the directory @root of that etcd. No request is sent.
 * Returns 0, MST_EINVAL, MST_ENOMEM. */
int mst__etcd_store_new(const struct mst__http_options *http,
                        const char *root,
                        struct mst_store **ret_store,
                        struct mst_err *reterr);

#endif /* MST_HANDLER_ETCD_SETTINGS_H */
