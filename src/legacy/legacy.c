/* legacy/legacy.c - the handler `etcd`: the calls of the application on the legacy machine.
 *
 * The machine belongs to the owner (handler/owner.h). Checking whether the rendezvous is closed,
 * and closing it, use a separate machine. */
#include "legacy/legacy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "handler/builtin.h"
#include "handler/ending.h"
#include "handler/head.h"
#include "legacy/legacy_drive.h"

/* How long to wait for rank 0 to publish the address of the workers' store: for ours, which does so
 * unless it dies now, and for a torch agent, which may publish it late or not at all. */
#define BOOTSTRAP_MS 30000
#define BOOTSTRAP_PEER_MS 2500

/* How often to check meanwhile whether rank 0 is still there, and for how long: enough for an etcd
 * to answer at once. Keys that are kept alive expire after ten seconds. */
#define BOOTSTRAP_LOOK_MS 1000
#define BOOTSTRAP_GLANCE_US 250000

/* Pauses while the etcd is unreachable, and when it refuses a watch. */
#define AGAIN_US_FIRST 50000
#define AGAIN_US_MAX 1000000

struct handler {
    struct mst__head head;
    struct mst_params *params; /* a copy; the settings borrow from it */
    struct mst__legacy_settings settings;
    struct mst__v2 *v2;
    mst__legacy_nonce nonce;
    char node[MST_LEGACY_NODE_SIZE];
    struct mst__events events;

    /* Used by the owner. */
    struct mst__legacy machine;
    bool is_set_up;
    bool is_failing;                   /* the last request of the watch had no answer */
    struct mst__legacy_nonces members; /* of the joined round, by rank; 0 = a peer */
    struct mst__ending ending;

    struct mst__bootstrap bootstrap;

    /* Guarded by the owner's lock. */
    int64_t version; /* of our round, for extra data; 0 = none */
};

void mst__legacy_node_name(mst__legacy_nonce nonce,
                           int64_t rank,
                           char ret_text[MST_LEGACY_NODE_SIZE])
{
    char hex[MST_LEGACY_NONCE_SIZE];
    if (nonce == 0) {
        (void)snprintf(ret_text, MST_LEGACY_NODE_SIZE, "rank_%d", (int)rank); /* both fit */
        return;
    }
    mst__legacy_nonce_format(nonce, hex);
    (void)snprintf(ret_text, MST_LEGACY_NODE_SIZE, "muster_%s", hex);
}

/* The time in @timeout_ms from now. */
static int64_t deadline_us(int64_t timeout_ms)
{
    int64_t us = 0;
    if (__builtin_mul_overflow(timeout_ms, 1000, &us) ||
        __builtin_add_overflow(us, mst__clock_us(), &us)) {
        return INT64_MAX;
    }
    return us;
}

/* --- the view --- */

/* Name the lost members; finished ones are not lost. In the owner. */
static void view_name_lost(struct handler *handler, struct mst_changes *view)
{
    const struct mst__legacy *machine = &handler->machine;
    for (int64_t rank = 0; rank < machine->world && machine->lost != NULL; rank++) {
        if (machine->lost[rank] == 0) {
            continue;
        }
        if (mst__ending_has_finished(&handler->ending, rank)) {
            view->participants_lost--;
            continue;
        }
        char name[MST_LEGACY_NODE_SIZE];
        bool is_known = (size_t)rank < handler->members.count;
        mst__legacy_node_name(is_known ? handler->members.items[rank] : 0, rank, name);
        mst__view_lost(&handler->head.view, mst_bytes_str(name), rank, false);
    }
}

/* Report how the document differs from the joined round. In the owner. */
static void publish_changes(struct handler *handler)
{
    struct mst__legacy_changes changes;
    mst__legacy_changes(&handler->machine, &changes);
    struct mst_changes view = {
        .nodes_waiting = changes.waiting_count,
        .participants_lost = (int64_t)changes.lost_count,
        .closed = changes.closed,
        .expelled = changes.expelled,
    };
    if (view.participants_lost > 0) {
        view_name_lost(handler, &view);
    }
    mst__ending_note(&handler->ending, &view);
    if (!changes.is_known) {
        view = handler->head.view.now; /* no other thread writes it */
        view.expelled = view.expelled || changes.expelled;
    }
    mst__view_publish(&handler->head.view, &view);
}

/* The same; @err is the reason if that is unknown. In the owner. */
static void publish(struct handler *handler, const struct mst_err *err)
{
    publish_changes(handler);
    mst__view_reach(&handler->head.view, err);
}

/* Forget the round, and so its extra data. */
static void reset(struct handler *handler)
{
    mst__owner_lock(&handler->head.owner);
    handler->version = 0;
    mst__owner_unlock(&handler->head.owner);
}

/* --- watching --- */

/* The etcd has not answered, or answers again. */
static void watch_reach(void *arg, const struct mst_err *err)
{
    struct handler *handler = arg;
    handler->is_failing = err != NULL;
    if (err != NULL) {
        char detail[MST_LOG_QUOTE_SIZE];
        mst__log(&handler->params->log, MST_LOG_WARN, "rendezvous.watch_failed",
                 "node=%s detail=%s", MST_LOG_TEXT(handler->node),
                 mst__log_quote(mst_bytes_str(err->msg), detail));
        mst__event(&handler->events, "keep_alive", MST_NODE_FAILED, handler->machine.version, -1,
                   "Node '%s' could not reach rendezvous '%s': %s", handler->node,
                   handler->params->run_id, err->msg);
    }
    publish(handler, err);
}

/* Wait until there is news, @end_us or an interruption: 0, MST_ETIMEOUT, MST_ECANCELED, other
 * errors of mst__legacy_drive. */
static int watch_until(struct handler *handler, int wake_fd, int64_t end_us)
{
    const struct mst__legacy_drive drive = {
        .v2 = handler->v2,
        .wake_fd = wake_fd,
        .call_ms = handler->settings.etcd.read_timeout_ms,
        .on_reach = watch_reach,
        .arg = handler,
    };
    struct mst_err err = {0};
    bool was_expelled = handler->machine.is_expelled;
    handler->is_failing = false;
    int rv = mst__legacy_drive(&drive, &handler->machine, MST_LEGACY_OP_WATCH, end_us, NULL, &err);
    if (rv == MST_ECANCELED || rv == MST_ETIMEOUT) {
        return rv;
    }
    if (rv == 0 && handler->is_failing) { /* our own clock says that our key has expired */
        publish_changes(handler);
    } else {
        watch_reach(handler, rv == 0 ? NULL : &err);
    }
    if (handler->machine.is_expelled && !was_expelled) {
        mst__event(&handler->events, "keep_alive", MST_NODE_FAILED, handler->machine.version, -1,
                   "Node '%s' has lost its membership in rendezvous '%s': its key "
                   "has expired.",
                   handler->node, handler->params->run_id);
    }
    return rv;
}

/* An mst__owner_watch_fn. */
static void watch(void *arg)
{
    struct handler *handler = arg;
    int fd = handler->head.owner.stop_fd;
    int rv = watch_until(handler, fd, INT64_MAX);
    if (rv != 0 && rv != MST_ECANCELED) {
        (void)mst__until_pause(fd, mst__clock_us() + AGAIN_US_MAX); /* the owner calls again */
    }
}

/* --- next --- */

static struct mst__legacy_drive drive_with(const struct handler *handler, int wake_fd)
{
    return (struct mst__legacy_drive){
        .v2 = handler->v2,
        .wake_fd = wake_fd,
        .is_tidy = true,
        .call_ms = handler->settings.etcd.read_timeout_ms,
    };
}

/* Create the keys that every job has. The etcd may be started last. */
static int set_up(const struct mst__legacy_drive *drive,
                  struct mst__legacy *machine,
                  int64_t end_us,
                  struct mst_err *reterr)
{
    int64_t pause_us = AGAIN_US_FIRST;
    for (;;) {
        int rv = mst__legacy_drive(drive, machine, MST_LEGACY_OP_SETUP, end_us, NULL, reterr);
        if (rv != MST_ECONN || mst__clock_us() + pause_us >= end_us) {
            return rv;
        }
        if (!mst__until_pause(drive->wake_fd, mst__clock_us() + pause_us)) {
            return mst__owner_fail_cancelled(reterr);
        }
        pause_us = pause_us * 2 > AGAIN_US_MAX ? AGAIN_US_MAX : pause_us * 2;
    }
}

/* Remember the members of the round, for the names of lost ones. In the owner. */
static int remember_members(struct handler *handler,
                            const struct mst__legacy_outcome *outcome,
                            struct mst_err *reterr)
{
    const struct mst__legacy *machine = &handler->machine;
    bool is_known =
        machine->is_known && machine->exists && machine->doc.version == outcome->version;
    handler->members.count = 0;
    int rv = 0;
    for (int64_t rank = 0; rank < outcome->world && rv == 0; rank++) {
        rv = mst__legacy_nonces_add(
            &handler->members, is_known ? mst__legacy_doc_node(&machine->doc, (size_t)rank) : 0);
    }
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "%" PRId64 " members", outcome->world);
}

/* The etcd2 store in the directory @path. */
static int open_store(struct handler *handler,
                      const char *path,
                      struct mst_store **ret_store,
                      struct mst_err *reterr)
{
    struct mst__http_options http = mst__etcd_http(&handler->settings.etcd, &handler->params->log);
    http.first = mst__v2_current(handler->v2);
    return mst__etcd_store_new(&http, path, ret_store, reterr);
}

/* The store of a round, or of the job. An mst__ending_open_fn. */
static int open_round(void *self,
                      int64_t version,
                      struct mst_store **ret_store,
                      struct mst_err *reterr)
{
    struct handler *handler = self;
    char path[MST_LEGACY_PATH_MAX];
    bool fits;
    if (version == MST_ENDING_JOB) {
        int size = snprintf(path, sizeof path, "%s/work", handler->machine.job);
        fits = size >= 0 && (size_t)size < sizeof path;
    } else {
        fits = mst__legacy_path(&handler->machine, version, "kv", path, sizeof path);
    }
    return fits ? open_store(handler, path, ret_store, reterr)
                : mst__fail(reterr, MST_ELIMIT, 0, "path of the store of round %" PRId64, version);
}

/* Enter a round and wait until it is final. In the owner. */
static int next_join(struct handler *handler,
                     int64_t timeout_ms,
                     struct mst__legacy_outcome *ret_outcome,
                     struct mst_err *reterr)
{
    const struct mst__legacy_drive drive = drive_with(handler, handler->head.owner.cancel_fd);
    int64_t end_us = deadline_us(timeout_ms < 0 ? handler->settings.timeout_ms : timeout_ms);
    int rv = 0;
    if (!handler->is_set_up) {
        rv = set_up(&drive, &handler->machine, end_us, reterr);
        handler->is_set_up = rv == 0;
    }
    if (rv == 0) {
        rv = mst__legacy_drive(&drive, &handler->machine, MST_LEGACY_OP_NEXT, end_us, ret_outcome,
                               reterr);
    }
    if (rv == MST_ECLOSED || rv == MST_ESPARE) {
        return mst__ending_explain(&handler->ending, rv, &handler->head.view, reterr);
    }
    if (rv == 0) {
        rv = remember_members(handler, ret_outcome, reterr);
    }
    rv = rv == 0 ? mst__ending_begin(&handler->ending, ret_outcome->version, ret_outcome->rank,
                                     ret_outcome->world, reterr)
                 : rv;
    if (rv == 0) {
        publish(handler, NULL);
    }
    return rv;
}

/* A round that waits for the address of its rank 0. */
struct waiting {
    struct handler *handler;
    int64_t look_ms; /* when to check next whether rank 0 is still there */
};

/* In the form of struct mst__bootstrap_round. */
static int64_t next_watch(void *self)
{
    struct waiting *waiting = self;
    struct handler *handler = waiting->handler;
    const struct mst__legacy *machine = &handler->machine;
    int fd = handler->head.owner.cancel_fd;
    if (mst__clock_ms() < waiting->look_ms) {
        return waiting->look_ms;
    }
    (void)watch_until(handler, fd,
                      mst__clock_us() + BOOTSTRAP_GLANCE_US); /* the next call tries again */
    waiting->look_ms = mst__clock_deadline_ms(BOOTSTRAP_LOOK_MS);
    struct mst__legacy_changes changes;
    mst__legacy_changes(machine, &changes);
    bool is_over = changes.closed || changes.expelled || changes.is_over ||
                   (changes.lost_count > 0 && machine->lost[0] != 0);
    return is_over ? 0 : waiting->look_ms;
}

/* Get the store and the address of the round. In a task. */
static int next_bootstrap(struct handler *handler,
                          const struct mst__legacy_outcome *outcome,
                          struct mst_rendezvous *ret,
                          struct mst_err *reterr)
{
    struct mst_store *store = NULL;
    struct mst__bootstrap_info info = {.port = 0};
    char name[MST_LEGACY_NODE_SIZE];
    mst__legacy_nonce master = handler->members.items[0];
    mst__legacy_node_name(master, 0, name);
    int rv = open_round(handler, outcome->version, &store, reterr);
    if (rv == 0) {
        struct waiting waiting = {.handler = handler,
                                  .look_ms = mst__clock_deadline_ms(BOOTSTRAP_LOOK_MS)};
        const struct mst__bootstrap_round round = {
            .store = store,
            .rank = outcome->rank,
            .master = name,
            .call_ms = handler->settings.etcd.read_timeout_ms,
            .wait_ms = master == 0 ? BOOTSTRAP_PEER_MS : BOOTSTRAP_MS,
            .is_repeated = true, /* every round has its own store */
            .is_by_key = true,
            .wake_fd = handler->head.owner.cancel_fd,
            .watch = next_watch,
            .self = &waiting,
        };
        rv = mst__bootstrap_run(&handler->bootstrap, &round, &info, reterr);
    }
    if (mst__owner_is_cancelled(&handler->head.owner)) {
        rv = mst__owner_fail_cancelled(reterr);
    }
    if (rv != 0) {
        mst_store_close(store);
        return rv;
    }
    *ret = (struct mst_rendezvous){
        .size = ret->size,
        .round = outcome->version,
        .rank = outcome->rank,
        .world_size = outcome->world,
        .store = store,
        .master_port = info.port,
        .restarts = handler->ending.restarts,
        .start = MST_START_UNKNOWN,
    };
    static_assert(sizeof ret->master_addr >= sizeof info.addr, "a host fits");
    memcpy(ret->master_addr, info.addr, sizeof info.addr);
    return 0;
}

/* Leave the round; our keys expire. In a task. */
static int withdraw(struct handler *handler, int64_t timeout_ms, struct mst_err *reterr)
{
    const struct mst__legacy_drive drive = drive_with(handler, -1);
    return mst__legacy_drive(&drive, &handler->machine, MST_LEGACY_OP_LEAVE,
                             deadline_us(timeout_ms), NULL, reterr);
}

/* A task. */
static int leave_round(void *self, void *arg, struct mst_err *reterr)
{
    struct handler *handler = self;
    const int64_t *timeout_ms = arg;
    mst__owner_joined(&handler->head.owner, false);
    mst__ending_leave(&handler->ending);
    return withdraw(handler, *timeout_ms, reterr);
}

static int legacy_join(void *self,
                       int64_t timeout_ms,
                       struct mst_rendezvous *ret,
                       struct mst_err *reterr)
{
    struct handler *handler = self;
    struct mst__legacy_outcome outcome = {.version = 0};
    reset(handler);
    int rv = next_join(handler, timeout_ms, &outcome, reterr);
    if (rv != 0) {
        return rv;
    }
    rv = next_bootstrap(handler, &outcome, ret, reterr);
    if (rv != 0) {
        struct mst_err ignored; /* the first error counts */
        (void)withdraw(handler, MST_LEGACY_TIDY_US / 1000, &ignored);
        return rv;
    }
    mst__owner_lock(&handler->head.owner);
    handler->version = outcome.version;
    mst__owner_unlock(&handler->head.owner);
    return 0;
}

/* --- the other calls --- */

static int machine_new(const struct handler *handler,
                       mst__legacy_nonce nonce,
                       struct mst__legacy *machine,
                       struct mst_err *reterr)
{
    const struct mst__legacy_options options = {
        .prefix = handler->settings.prefix,
        .run_id = handler->params->run_id,
        .nonce = nonce,
        .nodes_min = handler->settings.nodes_min,
        .nodes_max = handler->settings.nodes_max,
        .last_call_us = handler->settings.last_call_ms * 1000,
    };
    int rv = mst__legacy_init(machine, &options);
    if (rv == MST_EINVAL) {
        return mst__fail(reterr, rv, 0, "etcd_prefix and run id are longer than %d bytes",
                         MST_LEGACY_PATH_MAX);
    }
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "rendezvous '%.60s'", handler->params->run_id);
}

static mst__legacy_nonce make_nonce(void)
{
    mst__legacy_nonce nonce = mst__clock_random_u64();
    return nonce == 0 ? 1 : nonce;
}

/* Run @operation with a separate machine, at most until @wake_fd is readable; returns the state
 * afterwards. */
static int ask(struct handler *handler,
               enum mst__legacy_operation operation,
               int wake_fd,
               struct mst__legacy_changes *ret_changes,
               struct mst_err *reterr)
{
    struct mst__legacy *machine = mst__calloc(1, sizeof *machine);
    if (machine == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    const struct mst__legacy_drive drive = drive_with(handler, wake_fd);
    int64_t end_us = deadline_us(handler->settings.etcd.read_timeout_ms);
    int rv = machine_new(handler, make_nonce(), machine, reterr);
    if (rv == 0 && operation == MST_LEGACY_OP_CLOSE) {
        rv = set_up(&drive, machine, end_us, reterr);
    }
    if (rv == 0) {
        rv = mst__legacy_drive(&drive, machine, operation, end_us, NULL, reterr);
    }
    if (rv == 0) {
        mst__legacy_changes(machine, ret_changes);
    }
    mst__legacy_close(machine);
    mst__free(machine);
    return rv;
}

static int legacy_look(void *self, bool *ret_closed, int64_t *ret_waiting, struct mst_err *reterr)
{
    struct mst__legacy_changes changes;
    int rv = ask(self, MST_LEGACY_OP_LOOK, -1, &changes, reterr);
    if (rv == 0) {
        *ret_closed = changes.closed;
        *ret_waiting = changes.waiting_count;
    }
    return rv;
}

static int close_for_good(struct handler *handler, const char *name, struct mst_err *reterr)
{
    struct mst_err err = {0};
    struct mst__legacy_changes changes;
    int rv = ask(handler, MST_LEGACY_OP_CLOSE, -1, &changes, &err);
    return mst__head_after_close(&handler->head, name, rv, &err, reterr);
}

static int legacy_set_closed(void *self, struct mst_err *reterr)
{
    return close_for_good(self, "set_closed", reterr);
}

/* A task, with a struct mst__word. */
static int legacy_say(void *self, void *word, struct mst_err *reterr)
{
    struct handler *handler = self;
    struct mst__legacy_changes changes;
    bool closes = false;
    mst__legacy_changes(&handler->machine, &changes);
    if (handler->ending.round != NULL && changes.closed) {
        return 0; /* too late */
    }
    int rv = mst__ending_say(&handler->ending, word, &closes, reterr);
    if (rv == 0 && closes) {
        rv = ask(handler, MST_LEGACY_OP_CLOSE, handler->head.owner.cancel_fd, &changes, reterr);
        mst__view_set_closed(&handler->head.view); /* or will be: the outcome is stored */
    }
    return rv;
}

static int legacy_shutdown(void *self, struct mst_err *reterr)
{
    struct handler *handler = self;
    /* The next of another thread keeps its keys alive while it waits, and ends when it sees that
     * the rendezvous is closed. */
    mst__owner_retire(&handler->head.owner);
    return close_for_good(handler, "shutdown", reterr);
}

/* --- extra data --- */

/* The key of our round's extra data. */
static int extra_key(struct handler *handler,
                     char ret_key[MST_LEGACY_PATH_MAX],
                     struct mst_err *reterr)
{
    mst__owner_lock(&handler->head.owner);
    int64_t version = handler->version;
    mst__owner_unlock(&handler->head.owner);
    if (version == 0) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "extra data belongs to a round, and none is joined");
    }
    if (!mst__legacy_path(&handler->machine, version, "extra_data", ret_key, MST_LEGACY_PATH_MAX)) {
        return mst__fail(reterr, MST_ELIMIT, 0, "path of extra data");
    }
    return 0;
}

static int legacy_set_extra(void *self,
                            const char *name,
                            const char *json,
                            int64_t timeout_ms,
                            struct mst_err *reterr)
{
    struct handler *handler = self;
    char key[MST_LEGACY_PATH_MAX];
    int rv = extra_key(handler, key, reterr);
    return rv != 0 ? rv
                   : mst__legacy_extra_set(handler->v2, key, name, mst_bytes_str(json),
                                           mst__until_in(timeout_ms), reterr);
}

static int legacy_get_extra(void *self,
                            const char *name,
                            int64_t timeout_ms,
                            struct mst_buffer *ret_json,
                            struct mst_err *reterr)
{
    struct handler *handler = self;
    char key[MST_LEGACY_PATH_MAX];
    int rv = extra_key(handler, key, reterr);
    if (rv != 0) {
        return rv;
    }
    return mst__legacy_extra_get(handler->v2, key, name, mst__until_in(timeout_ms), ret_json,
                                 reterr);
}

/* --- making one --- */

static void legacy_free(void *self)
{
    struct handler *handler = self;
    if (handler == NULL) {
        return;
    }
    mst__head_stop(&handler->head);
    if (handler->v2 != NULL) {
        mst__log(&handler->params->log, MST_LOG_DEBUG, "etcd.requests", "node=%s count=%" PRIu64,
                 MST_LOG_TEXT(handler->node), mst__v2_requests(handler->v2));
    }
    mst__ending_leave(&handler->ending);
    mst__legacy_close(&handler->machine);
    mst__free(handler->members.items);
    mst__v2_free(handler->v2);
    mst__head_close(&handler->head);
    mst__legacy_settings_close(&handler->settings);
    mst_params_free(handler->params);
    mst__free(handler);
}

static const struct mst__head_ops legacy_ops = {
    .join = legacy_join,
    .look = legacy_look,
    .leave = leave_round,
    .say = legacy_say,
    .set_closed = legacy_set_closed,
    .shutdown = legacy_shutdown,
    .set_extra = legacy_set_extra,
    .get_extra = legacy_get_extra,
    .free = legacy_free,
};

static int prepare(struct handler *handler, const struct mst_params *params, struct mst_err *reterr)
{
    handler->nonce = make_nonce();
    mst__legacy_node_name(handler->nonce, 0, handler->node);
    int rv = mst__head_init(&handler->head, &legacy_ops, watch, handler, reterr);
    if (rv == 0) {
        rv = mst__params_copy(params, &handler->params, reterr);
    }
    if (rv == 0) {
        rv = mst__legacy_read(handler->params, &handler->settings, reterr);
    }
    if (rv != 0) {
        return rv;
    }
    handler->head.leave_ms = handler->settings.etcd.read_timeout_ms;
    mst__head_identify(&handler->head, handler->params, handler->node, &handler->events);
    mst__ending_init(&handler->ending, handler->node, &handler->settings.budget,
                     handler->head.owner.cancel_fd, open_round, handler);
    mst__bootstrap_init(&handler->bootstrap, handler->params->local_addr,
                        &handler->settings.etcd.endpoints[0], &handler->params->log);
    /* As torch's handler of this name: the workers' rank 0 serves their store, on a free port. */
    handler->bootstrap.is_shared = false;
    const struct mst__http_options http =
        mst__etcd_http(&handler->settings.etcd, &handler->params->log);
    rv = mst__v2_new(&http, &handler->v2, reterr);
    return rv == 0 ? machine_new(handler, handler->nonce, &handler->machine, reterr) : rv;
}

int mst__legacy_create(const struct mst_params *params,
                       void *arg,
                       struct mst_handler **ret_handler,
                       struct mst_err *reterr)
{
    (void)arg; /* the same for all */
    struct handler *handler = mst__calloc(1, sizeof *handler);
    if (handler == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    int rv = prepare(handler, params, reterr);
    if (rv == 0) {
        rv = mst__head_wrap(&handler->head, ret_handler, reterr);
    }
    if (rv != 0) {
        legacy_free(handler);
    }
    return rv;
}
