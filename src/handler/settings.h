/* handler/settings.h - the options of the dynamic handlers, checked: names, types, ranges, in
 * the order of the peers. */
#ifndef MST_HANDLER_SETTINGS_H
#define MST_HANDLER_SETTINGS_H

#include "base/endpoint.h"
#include "core/settings.h"
#include "core/state.h"
#include "handler/params.h"

/* What every dynamic handler is told, whatever its store is. */
struct mst__dynamic {
    struct mst__settings settings;
    enum mst__record_dialect dialect; /* to write when nobody has written yet */
};

/* Options of every dynamic handler, for lists of those that one of them knows. */
#define MST_DYNAMIC_OPTIONS                                                               \
    "join_timeout", "last_call_timeout", "close_timeout", "heartbeat_timeout",            \
        "keep_alive_interval", "keep_alive_max_attempt", "read_timeout", "state_dialect", \
        "clock_skew", "max_restarts",                                                     \
        "timeout" /* the peers' launcher always passes it, and it has no effect there either */

/* `max_restarts`: 3, or 3/1h. 0 or MST_EINVAL. */
int mst__budget_read(const struct mst_params *params,
                     struct mst__budget *ret_budget,
                     struct mst_err *reterr);

/* mst__dynamic_read for a handler that knows the options @known. */
int mst__dynamic_read_known(const struct mst_params *params,
                            const struct mst__known *known,
                            struct mst__dynamic *ret_dynamic,
                            struct mst_err *reterr);

/**
 * Read the settings of @params for c10d: limits, times and the record's dialect. Options that it
 * does not know are refused first.
 *
 * Returns 0 or MST_EINVAL, which names the option, `run_id`, `nodes_min` or `nodes_max`.
 */
int mst__dynamic_read(const struct mst_params *params,
                      struct mst__dynamic *ret_dynamic,
                      struct mst_err *reterr);

/* Where the record of a c10d rendezvous is. */
struct mst__c10d {
    bool is_file;
    const char *path;              /* the params' own; with is_file. Empty = none was given */
    struct mst__endpoint endpoint; /* otherwise; port 0 = a free one */
    bool is_host_known;            /* the options serve or is_host say */
    bool is_host;
    int64_t give_way_ms;     /* who may serve waits so long for somebody else to */
    int64_t read_timeout_ms; /* for one call of the store */
};

/**
 * Read the c10d options of @params.
 *
 * Returns 0 or MST_EINVAL, which names the option, the port or the host. @ret_c10d borrows from
 * @params.
 */
int mst__c10d_read(const struct mst_params *params,
                   struct mst__c10d *ret_c10d,
                   struct mst_err *reterr);

#define MST_C10D_ATTEMPTS_MAX 2

/* How to get at the store, in turn until one succeeds: as its server and client (true) or as client
 * alone (false). @host_is_me counts unless the options say who serves; then there is one attempt
 * only. Returns how many there are. */
size_t mst__c10d_attempts(const struct mst__c10d *c10d,
                          bool host_is_me,
                          bool ret_as_server[MST_C10D_ATTEMPTS_MAX]);

#endif /* MST_HANDLER_SETTINGS_H */
