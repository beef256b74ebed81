/* record/record.c - the dynamic handler: the calls of the application. See record_self.h for who
 * may do what. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/number.h"
#include "core/saturate.h"
#include "handler/host.h"
#include "handler/stay.h"
#include "record/record_self.h"

/* How long to wait for rank 0 to publish the address of the workers' store. It does, unless it
 * dies now, but an overloaded machine or store may need the time. Agents of torch before 2.4
 * publish late, and only if there is an agent. */
#define BOOTSTRAP_MS 30000
#define BOOTSTRAP_OLD_MS 2500

/* How often to check meanwhile whether rank 0 is still there. */
#define BOOTSTRAP_LOOK_US 1000000

/* Time to leave a round after a failure. */
#define WITHDRAW_US 2000000

/* How long the store of a closed rendezvous stays: torch's nodes look once a second at a copy
 * that may be a second old. */
#define PART_US 2500000

/* --- the server --- */

/* Our own server of the store, while it serves, and where it is (may be NULL); else NULL. */
static const struct mst__hosted *hosted_of(const struct mst__record *record,
                                           const struct mst__endpoint **ret_server)
{
    const struct mst__record_home *home = &record->home;
    const struct mst__endpoint *server = NULL;
    const struct mst__hosted *hosted =
        home->ops->hosted != NULL ? home->ops->hosted(home->self, &server) : NULL;
    if (ret_server != NULL) {
        *ret_server = server;
    }
    return hosted == NULL || mst__hosted_gave_way(hosted) ? NULL : hosted;
}

static bool serves(void *self)
{
    return hosted_of(self, NULL) != NULL;
}

static struct mst__stay stay_of(struct mst__record *record)
{
    struct mst__stay stay = {.where = record->where,
                             .owner = &record->head.owner,
                             .events = &record->events,
                             .linger_ms = record->linger_ms,
                             .records_ms = MST_STAY_RECORDS_MS};
    stay.hosted = hosted_of(record, &stay.server);
    return stay;
}

static int record_linger(void *self, int64_t timeout_ms, struct mst_err *reterr)
{
    struct mst__stay stay = stay_of(self);
    int rv = stay.hosted != NULL ? mst__stay(&stay, timeout_ms, reterr) : 0;
    mst__stay_close(&stay);
    return rv;
}

/* --- next --- */

static struct mst__session_options session_options(const struct mst__record *record)
{
    return (struct mst__session_options){
        .node = record->node,
        .settings = record->dynamic.settings,
        .mode = MST_SESSION_DEFAULT,
        .dialect = record->dynamic.dialect,
        .can_watch = record->home.ops->wait_change != NULL,
        .write_us = record->home.write_us,
    };
}

/* Report that this node serves, if it does. */
static void tell_host(struct mst__record *record)
{
    if (!record->is_host_told && hosted_of(record, NULL) != NULL) {
        record->is_host_told = true;
        mst__event(&record->events, "host", MST_NODE_INIT, -1, -1,
                   "Node '%s' is serving on %s: the store of rendezvous '%s'.", record->node_text,
                   record->where, record->params->run_id);
    }
}

/* The server of the store may start last: wait for it as long as for the other nodes. */
static int next_connect(struct mst__record *record, int64_t deadline_us, struct mst_err *reterr)
{
    struct mst_store *store = NULL;
    struct mst__until until = {.deadline_ms = deadline_us / 1000,
                               .wake_fd = record->head.owner.cancel_fd};
    int rv = record->home.ops->store(record->home.self, until, &store, reterr);
    tell_host(record); /* its name may have become known */
    if (rv == 0 || rv == MST_ENOMEM || rv == MST_ELIMIT) {
        return rv;
    }
    if (mst__owner_is_cancelled(&record->head.owner)) {
        return mst__owner_fail_cancelled(reterr);
    }
    /* Errors that a retry cannot cure. */
    bool is_final = rv == MST_ENOTSUP || rv == MST_EAUTH;
    return mst__err_wrap(reterr, is_final ? rv : MST_ECONN, "%.80s, where the record is kept",
                         record->home.where);
}

/* Open the store of the keys that begin with the run id, a dot and @name. The caller closes it. */
static int open_store(struct mst__record *record,
                      const char *name,
                      struct mst_store **ret_store,
                      struct mst_err *reterr)
{
    struct mst_store *store = NULL;
    int rv = record->home.ops->store(record->home.self, mst__until_in(record->home.call_ms), &store,
                                     reterr);
    if (rv != 0) {
        return rv;
    }
    const char *run_id = record->params->run_id;
    size_t size = sizeof MST_RECORD_PREFIX + strlen(run_id) + 32;
    char *prefix = mst__malloc(size);
    if (prefix == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "prefix of the round");
    }
    (void)snprintf(prefix, size, MST_RECORD_PREFIX "%s.%s", run_id, name); /* fits */
    rv = mst_store_prefix(store, mst_bytes_str(prefix), ret_store, reterr);
    mst__free(prefix);
    return rv;
}

/* The store of a round, or of the job. An mst__ending_open_fn. */
static int open_round(void *self,
                      int64_t round,
                      struct mst_store **ret_store,
                      struct mst_err *reterr)
{
    char name[MST_NUMBER_SIZE + 1];
    name[mst__number_format(round, name)] = '\0';
    return open_store(self, round == MST_ENDING_JOB ? MST_RECORD_JOB : name, ret_store, reterr);
}

/* For struct mst__drive. */
static int count_finished(void *self,
                          const struct mst__state *state,
                          int64_t *ret_count,
                          struct mst_err *reterr)
{
    struct mst__record *record = self;
    return mst__ending_count_finished(&record->ending, state, ret_count, reterr);
}

/* Enter the record and wait for the round. In a task. */
static int next_join(struct mst__record *record,
                     int64_t timeout_ms,
                     struct mst__outcome *ret_outcome,
                     struct mst_err *reterr)
{
    int64_t timeout_us = timeout_ms < 0 ? record->dynamic.settings.join_us
                                        : mst__saturate_multiply(timeout_ms, 1000);
    const struct mst__drive drive = {
        .home = &record->home,
        .events = &record->events,
        .wake_fd = record->head.owner.cancel_fd,
        .is_tidy = true,
        .count_finished = count_finished,
        .self = record,
    };
    int64_t deadline_us = mst__saturate_add(mst__clock_us(), timeout_us);
    record->session.options.can_watch = record->home.ops->wait_change != NULL;
    int rv = next_connect(record, deadline_us, reterr);
    if (rv == 0) {
        rv = mst__drive(&drive, &record->session, MST_OPERATION_NEXT, deadline_us, ret_outcome,
                        reterr);
    }
    if (rv == MST_ECLOSED || rv == MST_ESPARE) {
        return mst__ending_explain(&record->ending, rv, &record->head.view, reterr);
    }
    rv = rv == 0 ? mst__ending_begin(&record->ending, ret_outcome->round, ret_outcome->rank,
                                     ret_outcome->world, reterr)
                 : rv;
    struct mst__changes changes;
    if (rv == 0) {
        rv = mst__record_publish(record, NULL, &changes);
        rv = rv == 0 ? 0 : mst__fail(reterr, rv, 0, "round");
    }
    mst__record_spread(record);
    return rv;
}

/* The name of rank 0 of the joined round. In a task. */
static void next_master(const struct mst__record *record, char *ret_text, size_t ret_size)
{
    const struct mst__state *joined = &record->session.joined;
    ret_text[0] = '\0';
    for (size_t i = 0; i < joined->participants.count; i++) {
        const struct mst__peer *member = &joined->members[joined->participants.ids[i]];
        if (member->rank == 0) {
            mst__node_format(&member->node, ret_text, ret_size);
        }
    }
}

/* A round that waits for the address of its rank 0. */
struct waiting {
    struct mst__record *record;
    int64_t look_us; /* when to check next whether rank 0 is still there */
};

/* Whether rank 0 may still publish the address of the workers' store. */
static bool can_be_told(const struct mst__record *record, const struct mst__changes *changes)
{
    const struct mst__state *joined = &record->session.joined;
    bool is_lost = false;
    for (size_t i = 0; i < record->lost.count; i++) {
        is_lost = is_lost || joined->members[record->lost.ids[i]].rank == 0;
    }
    return !is_lost && !changes->closed && !changes->expelled;
}

/* In the form of struct mst__bootstrap_round. */
static int64_t next_watch(void *self)
{
    struct waiting *waiting = self;
    struct mst__record *record = waiting->record;
    int fd = record->head.owner.cancel_fd;
    struct mst__changes changes = {0};
    int64_t now_us = mst__clock_us();
    int rv = mst__record_publish(record, NULL, &changes);
    if (rv == 0 && (now_us >= waiting->look_us || now_us >= changes.beat_us)) {
        mst__record_operate(
            record, fd, now_us < changes.beat_us ? MST_OPERATION_POLL : MST_OPERATION_KEEP_ALIVE);
        waiting->look_us = mst__clock_us() + BOOTSTRAP_LOOK_US;
        rv = mst__record_publish(record, NULL, &changes);
    }
    if (rv == 0 && changes.is_known && !can_be_told(record, &changes)) {
        return 0;
    }
    bool is_beat_next = rv == 0 && changes.is_known && changes.beat_us < waiting->look_us;
    return (is_beat_next ? changes.beat_us : waiting->look_us) / 1000 + 1;
}

/* Get the store and the address of the round. In a task. */
static int next_bootstrap(struct mst__record *record,
                          const struct mst__outcome *outcome,
                          struct mst_rendezvous *ret,
                          struct mst_err *reterr)
{
    struct mst_store *store = NULL;
    int rv = open_round(record, outcome->round, &store, reterr);
    struct mst__bootstrap_info info = {.port = 0};
    if (rv == 0) {
        char master[MST_BOOTSTRAP_NODE_SIZE];
        next_master(record, master, sizeof master);
        bool is_old = record->session.joined.dialect <= MST_RECORD_D2;
        struct waiting waiting = {.record = record, .look_us = mst__clock_us() + BOOTSTRAP_LOOK_US};
        const struct mst__bootstrap_round round = {
            .store = store,
            .rank = outcome->rank,
            .master = master,
            .call_ms = record->home.call_ms,
            .wait_ms = is_old ? BOOTSTRAP_OLD_MS : BOOTSTRAP_MS,
            .is_repeated = is_old,
            .is_by_key = record->home.is_by_key,
            .wake_fd = record->head.owner.cancel_fd,
            .watch = next_watch,
            .self = &waiting,
        };
        rv = mst__bootstrap_run(&record->bootstrap, &round, &info, reterr);
        if (mst__owner_is_cancelled(&record->head.owner)) {
            rv = mst__owner_fail_cancelled(reterr);
        }
    }
    if (rv != 0) {
        mst_store_close(store);
        return rv;
    }
    *ret = (struct mst_rendezvous){
        .size = ret->size,
        .round = outcome->round,
        .rank = outcome->rank,
        .world_size = outcome->world,
        .store = store,
        .master_port = info.port,
        .restarts = record->ending.restarts,
        .start = outcome->round == 0 ? MST_START_FIRST : MST_START_UNKNOWN,
    };
    static_assert(sizeof ret->master_addr >= sizeof info.addr, "a host fits");
    memcpy(ret->master_addr, info.addr, sizeof info.addr);
    return 0;
}

/* Leave the round; if that fails, our entry expires. In a task. */
static int withdraw(struct mst__record *record, int64_t timeout_us, struct mst_err *reterr)
{
    const struct mst__drive drive = {
        .home = &record->home, .events = &record->events, .wake_fd = -1};
    mst__ending_leave(&record->ending);
    if (record->session.stats.writes == 0) {
        return 0; /* we are not in the record */
    }
    return mst__drive(&drive, &record->session, MST_OPERATION_EXIT, mst__clock_us() + timeout_us,
                      NULL, reterr);
}

/* A task. */
static int leave_round(void *self, void *arg, struct mst_err *reterr)
{
    struct mst__record *record = self;
    const int64_t *timeout_ms = arg;
    mst__owner_joined(&record->head.owner, false);
    int rv = withdraw(record, mst__saturate_multiply(*timeout_ms, 1000), reterr);
    mst__bootstrap_close(&record->bootstrap);
    return rv;
}

static int record_join(void *self,
                       int64_t timeout_ms,
                       struct mst_rendezvous *ret,
                       struct mst_err *reterr)
{
    struct mst__record *record = self;
    struct mst__outcome outcome = {.round = 0};
    int rv = mst__bootstrap_leave(&record->bootstrap, reterr);
    rv = rv == 0 ? next_join(record, timeout_ms, &outcome, reterr) : rv;
    if (rv != 0) {
        return rv;
    }
    rv = next_bootstrap(record, &outcome, ret, reterr);
    if (rv != 0) {
        struct mst_err ignored; /* the first error counts */
        (void)withdraw(record, WITHDRAW_US, &ignored);
    }
    return rv;
}

/* --- the other calls --- */

/* Run @operation with a separate session until @timeout_us or until @wake_fd is readable; returns
 * its state afterwards. */
static int ask(struct mst__record *record,
               enum mst__operation operation,
               int wake_fd,
               int64_t timeout_us,
               bool *ret_closed,
               int64_t *ret_waiting,
               struct mst_err *reterr)
{
    const struct mst__drive drive = {
        .home = &record->home, .events = &record->events, .wake_fd = wake_fd};
    const struct mst__session_options options = session_options(record);
    struct mst__session session;
    int rv = mst__session_init(&session, &options);
    if (rv != 0) {
        rv = mst__fail(reterr, rv, 0, "session");
    } else {
        rv = mst__drive(&drive, &session, operation, mst__clock_us() + timeout_us, NULL, reterr);
    }
    if (rv == 0) {
        *ret_closed = session.state.closed;
        *ret_waiting = (int64_t)session.state.waiting.count;
    }
    mst__session_close(&session);
    return rv;
}

static int record_look(void *self, bool *ret_closed, int64_t *ret_waiting, struct mst_err *reterr)
{
    struct mst__record *record = self;
    return ask(record, MST_OPERATION_POLL, -1, record->home.call_ms * 1000, ret_closed, ret_waiting,
               reterr);
}

static int close_for_good(struct mst__record *record, const char *name, struct mst_err *reterr)
{
    struct mst_err err = {0};
    bool is_closed;
    int64_t waiting;
    int rv = ask(record, MST_OPERATION_CLOSE, -1, record->dynamic.settings.close_us, &is_closed,
                 &waiting, &err);
    return mst__head_after_close(&record->head, name, rv, &err, reterr);
}

static int record_set_closed(void *self, struct mst_err *reterr)
{
    return close_for_good(self, "set_closed", reterr);
}

/* A task, with a struct mst__word. */
static int record_say(void *self, void *word, struct mst_err *reterr)
{
    struct mst__record *record = self;
    bool closes = false;
    bool is_closed;
    int64_t waiting;
    if (record->ending.round != NULL && record->session.state.closed) {
        return 0; /* too late */
    }
    int rv = mst__ending_say(&record->ending, word, &closes, reterr);
    if (rv == 0 && closes) {
        rv = ask(record, MST_OPERATION_CLOSE, record->head.owner.cancel_fd,
                 record->dynamic.settings.close_us, &is_closed, &waiting, reterr);
        mst__view_set_closed(&record->head.view); /* or will be: the outcome is stored */
    }
    return rv;
}

static int record_shutdown(void *self, struct mst_err *reterr)
{
    struct mst__record *record = self;
    /* The next of another thread sends heartbeats while it waits, and ends when it sees that the
     * rendezvous is closed. */
    mst__owner_retire(&record->head.owner);
    return close_for_good(record, "shutdown", reterr);
}

/* Release all but the home, which belongs to the creator until there is a handler. */
static void record_dispose(struct mst__record *record)
{
    mst__owner_stop(&record->head.owner);
    mst__bootstrap_close(&record->bootstrap);
    mst__ending_leave(&record->ending);
    mst__session_close(&record->session);
    mst__free(record->lost.ids);
    mst__head_close(&record->head);
    mst_params_free(record->params);
    mst__free(record);
}

/* The store ends with us. A node that has not read that the rendezvous is closed would take that
 * for a failure. So stay until all nodes have left or had time to look. */
static void part(struct mst__record *record)
{
    const struct mst__drive drive = {
        .home = &record->home, .events = &record->events, .wake_fd = -1};
    const struct mst__state *state = &record->session.state;
    int64_t until_us = mst__clock_us() + PART_US;
    struct mst_err ignored; /* if the record cannot be read, do not stay */
    int rv = 0;
    if (mst__view_has_closed(&record->head.view)) {
        /* Another session has closed it, so this one may not know yet. */
        rv = mst__drive(&drive, &record->session, MST_OPERATION_POLL, until_us, NULL, &ignored);
    }
    while (rv == 0 && state->closed) {
        mst__peer_id id = mst__state_find(state, &record->node); /* it may have left already */
        bool is_in = id != MST_PEER_NONE && state->members[id].has_heartbeat;
        if (state->heartbeats.count <= (is_in ? 1 : 0)) {
            return;
        }
        rv = mst__drive_wait(&drive, &record->session, until_us);
        if (rv == 0) {
            rv = mst__drive(&drive, &record->session, MST_OPERATION_POLL, until_us, NULL, &ignored);
        }
    }
}

static void record_free(void *self)
{
    struct mst__record *record = self;
    if (record == NULL) {
        return;
    }
    mst__head_stop(&record->head);
    struct mst__stay stay = stay_of(record);
    if (stay.hosted != NULL) {
        part(record);
        mst__stay_part(&stay, NULL, NULL);
    }
    mst__stay_close(&stay);
    struct mst__record_home home = record->home;
    record_dispose(record);
    home.ops->close(home.self);
}

static const struct mst__head_ops record_ops = {
    .join = record_join,
    .look = record_look,
    .leave = leave_round,
    .say = record_say,
    .set_closed = record_set_closed,
    .shutdown = record_shutdown,
    .use_agent_store = mst__head_use_agent_store,
    .serves = serves,
    .linger = record_linger,
    .free = record_free,
};

/* --- making one --- */

/* Our identity: address, process, and number of the handler in the process. */
static void name_node(struct mst__record *record)
{
    mst__host_name(record->params->local_addr, sizeof record->addr, record->addr);
    record->node = (struct mst__node){
        .addr = mst_bytes_str(record->addr),
        .pid = getpid(),
        .local_id = mst__host_local_id(),
    };
    mst__node_format(&record->node, record->node_text, sizeof record->node_text);
    mst__head_identify(&record->head, record->params, record->node_text, &record->events);
    mst__ending_init(&record->ending, record->node_text, &record->dynamic.settings.budget,
                     record->head.owner.cancel_fd, open_round, record);
}

static int record_init(struct mst__record *record,
                       const struct mst__record_options *options,
                       struct mst_err *reterr)
{
    record->home = options->home;
    record->linger_ms = options->linger_ms;
    if (options->endpoint != NULL) {
        (void)mst__endpoint_format(options->endpoint, record->where);
    }
    record->dynamic = options->dynamic;
    record->again_us = MST_RECORD_AGAIN_US;
    mst__prng_init(&record->prng, mst__clock_random_u64());
    int rv = mst__head_init(&record->head, &record_ops, mst__record_watch, record, reterr);
    record->head.leave_ms = options->dynamic.settings.close_us / 1000;
    return rv;
}

int mst__record_handler(const struct mst_params *params,
                        const struct mst__record_options *options,
                        struct mst_handler **ret_handler,
                        struct mst_err *reterr)
{
    struct mst__record *record = mst__calloc(1, sizeof *record);
    if (record == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    int rv = record_init(record, options, reterr);
    if (rv == 0) {
        rv = mst__params_copy(params, &record->params, reterr);
    }
    if (rv == 0) {
        name_node(record);
        mst__bootstrap_init(&record->bootstrap, record->params->local_addr, options->endpoint,
                            &record->params->log);
        record->head.bootstrap = &record->bootstrap;
        struct mst__session_options session = session_options(record);
        rv = mst__session_init(&record->session, &session);
        rv = rv == 0 ? 0 : mst__fail(reterr, rv, 0, "session");
    }
    if (rv == 0) {
        rv = mst__head_wrap(&record->head, ret_handler, reterr);
    }
    if (rv != 0) {
        record_dispose(record);
        return rv;
    }
    tell_host(record);
    return 0;
}
