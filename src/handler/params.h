/* handler/params.h - what is behind struct mst_params, for the handlers.
 *
 * Options are text with a size: what comes out of a parser may hold a NUL, and then it is no number
 * and no boolean, instead of being one up to there. */
#ifndef MST_HANDLER_PARAMS_H
#define MST_HANDLER_PARAMS_H

#include <muster/rendezvous.h>

struct mst__param_option {
    char *key; /* heap, as the value; a NUL behind each */
    size_t key_size;
    char *value;
    size_t value_size;
};

/* Options in the order in which their keys came first. */
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
    bool ignores_unknown;  /* options */
    mst_event_fn on_event; /* may be NULL */
    void *on_event_arg;
    struct mst_log log;
};

/* The options that a backend knows. */
struct mst__known {
    const char *const *names;
    size_t count;
};

/* A struct mst__known of the array @options. */
#define MST_KNOWN(options)                              \
    {                                                   \
        (options), sizeof(options) / sizeof(options)[0] \
    }

/* MST_EINVAL if an option is set that is not among @known; names it and the nearest known one. 0 if
 * such options are to be ignored, which is logged. Called once by each handler that is made. */
int mst__params_check_known(const struct mst_params *params,
                            const struct mst__known *known,
                            struct mst_err *reterr);

/* mst_params_parse for text that may hold a NUL. */
int mst__params_parse(struct mst_params *params, struct mst_bytes text, struct mst_err *reterr);

/* 0, or MST_EINVAL for limits that no group can have. */
int mst__params_check_nodes(int64_t nodes_min, int64_t nodes_max, struct mst_err *reterr);

/* How often something may happen: `3`, or `3/1h`, three times in an hour. @ret_count is -1 when the
 * option is not set, @ret_window_ms is 0 for a number alone. 0 or MST_EINVAL, which names it. */
int mst__params_rate(const struct mst_params *params,
                     const char *key,
                     int64_t *ret_count,
                     int64_t *ret_window_ms,
                     struct mst_err *reterr);

/* A copy for a handler to keep. 0 or MST_ENOMEM. */
int mst__params_copy(const struct mst_params *params,
                     struct mst_params **ret_params,
                     struct mst_err *reterr);

#endif /* MST_HANDLER_PARAMS_H */
