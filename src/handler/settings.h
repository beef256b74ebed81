/* handler/settings.h - the checked options of the dynamic handlers: names, types, ranges, in the
 * order of the peers. */
#ifndef MST_HANDLER_SETTINGS_H
#define MST_HANDLER_SETTINGS_H

#include "base/endpoint.h"
#include "core/settings.h"
#include "core/state.h"
#include "handler/params.h"

/* Settings of every dynamic handler, for any store. */
struct mst__dynamic {
    struct mst__settings settings;
    enum mst__record_dialect dialect; /* of a record that we create */
};

/* Options of every dynamic handler. */
#define MST_DYNAMIC_OPTIONS                                                               \
    "join_timeout", "last_call_timeout", "close_timeout", "heartbeat_timeout",            \
        "keep_alive_interval", "keep_alive_max_attempt", "read_timeout", "state_dialect", \
        "clock_skew", "max_restarts",                                                     \
        "timeout" /* the peers' launcher always passes it; without effect there, too */

/* `max_restarts`: 3, or 3/1h. Returns 0 or MST_EINVAL. */
int mst__budget_read(const struct mst_params *params,
                     struct mst__budget *ret_budget,
                     struct mst_err *reterr);

/* mst__dynamic_read for a handler with the options @known. */
int mst__dynamic_read_known(const struct mst_params *params,
                            const struct mst__known *known,
                            struct mst__dynamic *ret_dynamic,
                            struct mst_err *reterr);

/**
 * Read the settings of @params for c10d: limits, times and the record's dialect. Unknown options
 * are refused first.
 *
 * Returns 0 or MST_EINVAL, which names the option, `run_id`, `nodes_min` or `nodes_max`.
 */
int mst__dynamic_read(const struct mst_params *params,
                      struct mst__dynamic *ret_dynamic,
                      struct mst_err *reterr);

/* The key of a record is this and the run id; the prefix of the keys of a round is this, the run
 * id, a dot and the round. */
#define MST_RECORD_PREFIX "torch.rendezvous."

/* Instead of the round, for the keys of the job. */
#define MST_RECORD_JOB "work"

/* The place of the record of a c10d rendezvous. */
struct mst__c10d {
    bool is_file;
    const char *path;              /* belongs to the params; with is_file; empty = not given */
    struct mst__endpoint endpoint; /* without is_file; perhaps the server's own */
    bool is_host_known;            /* the options serve or is_host are set */
    bool is_host;
    int64_t give_way_ms;     /* a node that may serve waits so long for another server */
    int64_t linger_ms;       /* a node that serves stays so long for others */
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

/* The ways to reach the store, in the order to try: as its server and client (true) or as a
 * client only (false). @host_is_me counts unless the options say who serves; then there is only
 * one way. Returns how many there are. */
size_t mst__c10d_attempts(const struct mst__c10d *c10d,
                          bool host_is_me,
                          bool ret_as_server[MST_C10D_ATTEMPTS_MAX]);

#endif /* MST_HANDLER_SETTINGS_H */
