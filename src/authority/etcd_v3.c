/* authority/etcd_v3.c - the handler `etcd-v3`: the calls of the application over a session.
 *
 * The session belongs to the owner (handler/owner.h). Checking whether the rendezvous is closed,
 * and closing it, need no session. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "authority/etcd_v3.h"
#include "authority/etcd_v3_self.h"
#include "authority/wait.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "handler/bootstrap.h"
#include "handler/builtin.h"
#include "handler/host.h"
#include "handler/work.h"
#include "store/store.h"

/* Time to leave when the application frees a handler without leaving. */
#define TIDY_MS 2000

/* In the store of a round: the node that has said that it leaves. Time to look. */
#define LEAVING_KEY "muster.run/leaving"
#define LEAVING_MS 200

/* --- next --- */

/* If our lease was not kept alive, it has expired, or is about to: there is nothing to wait for. */
static void leave_within(struct mst__etcd_v3 *self, int64_t timeout_ms)
{
    bool has_expired = mst__clock_ms() >= self->alive_ms;
    self->part_ms = has_expired && timeout_ms > TIDY_MS ? TIDY_MS : timeout_ms;
    self->part_rv = 0;
    mst__etcd_v3_feed(self, (struct mst__member_event){.kind = MST_MEMBER_EVENT_LEAVE});
}

/* Open the store of the round; it sends no request before its first use. */
static int next_store(struct mst__etcd_v3 *self,
                      const struct mst__etcd_v3_round *round,
                      struct mst_store **ret_store,
                      struct mst_err *reterr)
{
    struct mst__http_options http = mst__etcd_http(&self->settings.etcd, &self->params->log);
    http.first = mst__v3_current(self->v3);
    struct mst_store_options options;
    mst_store_options_init(&options, sizeof options);
    options.log = self->params->log;
    struct mst__storage *storage = NULL;
    char *root = mst__etcd_v3_key_store(&self->keys, round->round, round->epoch);
    int rv = root == NULL ? mst__fail(reterr, MST_ENOMEM, 0, "store")
                          : mst__etcd3_new(&http, root, &options, &storage, reterr);
    mst__free(root);
    return rv == 0 ? mst__store_first(storage, ret_store, reterr) : rv;
}

/* Fill in the result of the round. In the owner. */
static int next_outcome(struct mst__etcd_v3 *self,
                        struct mst_rendezvous *ret,
                        struct mst_err *reterr)
{
    const struct mst__etcd_v3_round *round = &self->round;
    struct mst__endpoint master = {.port = 0};
    struct mst_err ignored; /* an invalid address counts as none */
    struct mst_store *store = NULL;
    int rv = next_store(self, round, &store, reterr);
    if (rv != 0) {
        return rv;
    }
    if (mst__endpoint_parse(mst_bytes_str(round->address), &master, &ignored) != 0) {
        master = (struct mst__endpoint){.port = 0};
    }
    size_t size = ret->size;
    *ret = (struct mst_rendezvous){
        .size = size,
        .round = round->round,
        .rank = (int64_t)self->claim.rank,
        .world_size = (int64_t)round->world,
        .store = store,
        .master_port = master.port,
        .epoch = round->epoch,
        .restarts = round->restarts_before,
        .start = mst__work_start((uint32_t)round->start),
        .first_worker = self->worker_ranks.first,
        .workers = self->worker_ranks.world,
        .role_first_worker = self->worker_ranks.role_first,
        .role_workers = self->worker_ranks.role_world,
    };
    memcpy(ret->master_addr, master.host, sizeof ret->master_addr);
    static_assert(sizeof ret->master_addr == sizeof master.host, "the same size");
    return 0;
}

/* Whether our report is in our key and, for finished work, also in `round`: then we may leave,
 * and no authority counts us as lost. */
static bool is_heard(const void *arg, const struct mst__word *word)
{
    const struct mst__etcd_v3 *self = arg;
    const struct mst__member *member = &self->member;
    const struct mst__etcd_v3_round *round = &self->round;
    bool is_at_work = member->phase == MST_MEMBER_HOLDING && round->state == MST_ETCD_V3_RUNNING &&
                      round->round == member->claim.round && round->epoch == member->claim.epoch;
    return !self->has_to_say &&
           (!word->is_finish || !is_at_work ||
            (round->is_finished != NULL && round->is_finished[member->claim.rank]));
}

static struct mst__wait wait_of(struct mst__etcd_v3 *self)
{
    return (struct mst__wait){.self = self,
                              .member = &self->member,
                              .where = self->settings.etcd.endpoints[0].host,
                              .step = mst__etcd_v3_feed,
                              .turn = mst__etcd_v3_turn,
                              .is_heard = is_heard};
}

/* Whether another node has said that it leaves; or, with @says, say that this one does. There is no
 * server that would count a failure beside that as what it is. */
static int look_leaving(struct mst__etcd_v3 *self, bool says, bool *ret_is, struct mst_err *reterr)
{
    struct mst_store *store = NULL;
    struct mst_buffer name = {.size = 0};
    int rv = next_store(self, &self->round, &store, reterr);
    if (rv == 0 && says) {
        rv = mst_store_set(store, mst_bytes_str(LEAVING_KEY), mst_bytes_str(self->node), LEAVING_MS,
                           reterr);
    } else if (rv == 0) {
        rv = mst_store_try_get(store, mst_bytes_str(LEAVING_KEY), LEAVING_MS, &name, reterr);
    }
    *ret_is = rv == 0 && !says &&
              !mst__bytes_equal(mst_bytes_of(name.data, name.size), mst_bytes_str(self->node));
    mst_buffer_free(&name);
    mst_store_close(store);
    return rv;
}

/* A task, with a struct mst__word. */
static int say_word(void *arg, void *said, struct mst_err *reterr)
{
    struct mst__etcd_v3 *self = arg;
    const struct mst__word *word = said;
    const struct mst__wait wait = wait_of(self);
    bool is_other = false;
    struct mst_err ignored; /* then it is a failure */
    if (self->member.phase == MST_MEMBER_HOLDING && word->is_leaving) {
        return look_leaving(self, true, &is_other, reterr);
    }
    if (self->member.phase == MST_MEMBER_HOLDING && !word->is_finish && self->round.world > 1) {
        (void)look_leaving(self, false, &is_other, &ignored);
    }
    if (is_other) {
        return 0; /* this node comes back, and the round is over */
    }
    return mst__wait_word(&wait, word, self->settings.job.job.close_us / 1000, reterr);
}

static int etcd_v3_join(void *arg,
                        int64_t timeout_ms,
                        struct mst_rendezvous *ret,
                        struct mst_err *reterr)
{
    struct mst__etcd_v3 *self = arg;
    int fd = -1;
    const struct mst__wait wait = wait_of(self);
    const struct mst__wait_place place = {.params = self->params,
                                          .endpoint = &self->settings.etcd.endpoints[0],
                                          .addr = self->addr,
                                          .address = self->address};
    self->part_ms = TIDY_MS;
    int rv =
        mst__wait_round(&wait, &place, timeout_ms, self->settings.job.job.join_us, &fd, reterr);
    if (rv == 0) {
        rv = next_outcome(self, ret, reterr);
    }
    if (rv != 0) {
        leave_within(self, TIDY_MS);
    }
    if (fd >= 0) {
        (void)mst__fork_close(fd); /* reserved for the workers, never used */
    }
    return rv;
}

/* --- the other calls --- */

static int etcd_v3_look(void *arg, bool *ret_closed, int64_t *ret_waiting, struct mst_err *reterr)
{
    struct mst__etcd_v3 *self = arg;
    struct mst__etcd_v3_round round;
    int64_t revision;
    int rv = mst__etcd_v3_read_round(self->v3, &self->keys,
                                     mst__until_in(self->settings.etcd.read_timeout_ms), &round,
                                     &revision, reterr);
    if (rv == 0) {
        *ret_closed = round.state == MST_ETCD_V3_CLOSED || mst__view_has_closed(&self->head.view);
        *ret_waiting = (int64_t)round.waiting;
        mst__etcd_v3_round_close(&round);
    }
    return rv;
}

static int close_for_good(struct mst__etcd_v3 *self, const char *name, struct mst_err *reterr)
{
    struct mst_err err = {0};
    int rv = mst__etcd_v3_shut(self->v3, &self->keys, "asked to", self->node,
                               mst__until_in(self->settings.job.job.close_us / 1000), &err);
    return mst__head_after_close(&self->head, name, rv, &err, reterr);
}

static int etcd_v3_set_closed(void *arg, struct mst_err *reterr)
{
    return close_for_good(arg, "set_closed", reterr);
}

/* A task. */
static int leave_round(void *arg, void *timeout, struct mst_err *reterr)
{
    struct mst__etcd_v3 *self = arg;
    const int64_t *timeout_ms = timeout;
    mst__owner_joined(&self->head.owner, false);
    leave_within(self, *timeout_ms);
    return self->part_rv == 0 ? 0 : mst__err_pass(reterr, self->part_rv, &self->part_err);
}

static int etcd_v3_shutdown(void *arg, struct mst_err *reterr)
{
    struct mst__etcd_v3 *self = arg;
    int rv = close_for_good(self, "shutdown", reterr);
    /* The next of another thread leaves by itself when it sees that the rendezvous is closed. */
    if (!mst__owner_is_busy(&self->head.owner)) {
        struct mst_err ignored; /* the lease expires */
        (void)mst__head_leave(self, &ignored);
    }
    return rv;
}

/* --- making one --- */

static void etcd_v3_free(void *arg)
{
    struct mst__etcd_v3 *self = arg;
    if (self == NULL) {
        return;
    }
    mst__head_stop(&self->head);
    struct mst_err ignored; /* the lease expires */
    (void)mst__etcd_v3_forget(self, mst__until_in(TIDY_MS), &ignored);
    mst__etcd_v3_release(self);
    mst__etcd_v3_round_close(&self->round);
    if (self->v3 != NULL) {
        mst__log(&self->params->log, MST_LOG_DEBUG, "etcd.requests", "node=%s count=%" PRIu64,
                 MST_LOG_TEXT(self->node), mst__v3_requests(self->v3));
    }
    mst__v3_free(self->v3);
    mst__etcd_v3_keys_close(&self->keys);
    mst__head_close(&self->head);
    mst__etcd_v3_settings_close(&self->settings);
    mst_params_free(self->params);
    mst__free(self);
}

/* An mst__owner_watch_fn. */
static void watch(void *arg)
{
    struct mst__etcd_v3 *self = arg;
    mst__etcd_v3_turn(self, mst__until_by(self->head.owner.stop_fd, INT64_MAX));
}

static const struct mst__head_ops etcd_v3_ops = {
    .join = etcd_v3_join,
    .look = etcd_v3_look,
    .leave = leave_round,
    .say = say_word,
    .set_closed = etcd_v3_set_closed,
    .shutdown = etcd_v3_shutdown,
    .free = etcd_v3_free,
};

static int prepare(struct mst__etcd_v3 *self,
                   const struct mst_params *params,
                   struct mst_err *reterr)
{
    self->claim.rank = MST_AUTHORITY_RANK_NONE;
    int rv = mst__head_init(&self->head, &etcd_v3_ops, watch, self, reterr);
    if (rv == 0) {
        rv = mst__params_copy(params, &self->params, reterr);
    }
    if (rv == 0) {
        rv = mst__etcd_v3_read(self->params, &self->settings, reterr);
    }
    if (rv != 0) {
        return rv;
    }
    self->head.leave_ms = self->settings.job.job.close_us / 1000;
    mst__host_node_name(self->settings.job.node_name, self->params->local_addr, sizeof self->node,
                        self->node);
    mst__head_identify(&self->head, self->params, self->node, &self->events);
    rv = mst__etcd_v3_keys_init(&self->keys, self->params->run_id);
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "keys");
    }
    mst__etcd_v3_member(self);
    const struct mst__http_options http = mst__etcd_http(&self->settings.etcd, &self->params->log);
    return mst__v3_new(&http, &self->v3, reterr);
}

int mst__etcd_v3_create(const struct mst_params *params,
                        void *arg,
                        struct mst_handler **ret_handler,
                        struct mst_err *reterr)
{
    (void)arg; /* the same for all */
    struct mst__etcd_v3 *self = mst__calloc(1, sizeof *self);
    if (self == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    int rv = prepare(self, params, reterr);
    if (rv == 0) {
        rv = mst__head_wrap(&self->head, ret_handler, reterr);
    }
    if (rv != 0) {
        etcd_v3_free(self);
    }
    return rv;
}
