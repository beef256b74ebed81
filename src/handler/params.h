/* handler/params.h - struct mst_params, for the handlers.
 *
 * Options are text with a size: a parsed value may have a NUL in it, and then it is neither
 * number nor boolean. */
#ifndef MST_HANDLER_PARAMS_H
#define MST_HANDLER_PARAMS_H

#include <muster/rendezvous.h>

struct mst__param_option {
    char *key; /* heap, as the value; both end with a NUL */
    size_t key_size;
    char *value;
    size_t value_size;
};

/* Options in the order of their first setting. */
struct mst__param_options {
    struct mst__param_option *list;
    size_t count;
    size_t capacity;
};

struct mst_params {
    char *backend;
    char *endpoint;
    char *run_id;
    char *local_addr;             /* may be NULL */
    int64_t nodes_min, nodes_max; /* 0 = not set */
    struct mst__param_options options;
    bool ignores_unknown;  /* unknown options are allowed */
    mst_event_fn on_event; /* may be NULL */
    void *on_event_arg;
    struct mst_log log;
};

/* The options of a backend. */
struct mst__known {
    const char *const *names;
    size_t count;
};

/* A struct mst__known from the array @options. */
#define MST_KNOWN(options)                              \
    {                                                   \
        (options), sizeof(options) / sizeof(options)[0] \
    }

/* Returns MST_EINVAL if an option is set that is not in @known; the error names it and the
 * nearest known one. Returns 0 if unknown options are allowed, and logs them. Each new handler
 * calls it once. */
int mst__params_check_known(const struct mst_params *params,
                            const struct mst__known *known,
                            struct mst_err *reterr);

/* mst_params_parse for text with NULs. */
int mst__params_parse(struct mst_params *params, struct mst_bytes text, struct mst_err *reterr);

/* Returns 0, or MST_EINVAL for impossible limits. */
int mst__params_check_nodes(int64_t nodes_min, int64_t nodes_max, struct mst_err *reterr);

/* A rate: `3`, or `3/1h`, three times in an hour. @ret_count is -1 if the option is not set,
 * @ret_window_ms is 0 for a number alone. Returns 0 or MST_EINVAL, which names the option. */
int mst__params_rate(const struct mst_params *params,
                     const char *key,
                     int64_t *ret_count,
                     int64_t *ret_window_ms,
                     struct mst_err *reterr);

/* A copy for a handler. Returns 0 or MST_ENOMEM. */
int mst__params_copy(const struct mst_params *params,
                     struct mst_params **ret_params,
                     struct mst_err *reterr);

#endif /* MST_HANDLER_PARAMS_H */
