/* status/look_etcd.c - jobs at an etcd: a record (`etcd-v2`), the keys of an authority
 * (`etcd-v3`), a document (`etcd`). */
#include <inttypes.h>
#include <stdio.h>

#include "authority/etcd_v3.h"
#include "authority/etcd_v3_self.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"
#include "legacy/legacy.h"
#include "record/etcd_v2.h"
#include "status/look.h"
#include "status/look_record.h"
#include "wire/job_status.h"

#define SUMMARY_SIZE_MAX MST_KIB(4)
#define MEMBERS_SIZE_MAX MST_MIB(64)

/* --- etcd-v2 --- */

struct look_v2 {
    const struct mst_params *params;
    struct mst__record_home home;
    struct mst__settings settings;
};

static void v2_close(void *self)
{
    struct look_v2 *look = self;
    look->home.ops->close(look->home.self);
    mst__free(look);
}

static int v2_open(const struct mst_params *params,
                   int64_t nodes_min,
                   int64_t nodes_max,
                   void **ret_self,
                   struct mst_err *reterr)
{
    struct look_v2 *look = mst__calloc(1, sizeof *look);
    if (look == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    struct mst__dynamic dynamic;
    int rv = mst__etcd_v2_home_new(params, &look->home, &dynamic, reterr);
    if (rv != 0) {
        mst__free(look);
        return rv;
    }
    look->params = params;
    look->settings = dynamic.settings;
    look->settings.nodes_min = nodes_min;
    look->settings.nodes_max = nodes_max;
    *ret_self = look;
    return 0;
}

static int v2_read(void *self,
                   int64_t timeout_ms,
                   struct mst__snapshot **ret_snapshot,
                   struct mst_err *reterr)
{
    struct look_v2 *look = self;
    struct mst__stored stored = {0};
    struct mst_err err = {0};
    int rv = look->home.ops->get_state(look->home.self, mst__until_in(timeout_ms), &stored, &err);
    if (rv == 0 && !stored.exists) {
        rv = mst__look_absent(look->params, MST_LOOK_NONE, ret_snapshot, &err);
    } else if (rv == 0) {
        rv = mst__look_record(look->params, &look->settings,
                              mst_bytes_of(stored.record.data, stored.record.size), ret_snapshot,
                              &err);
    }
    mst_buffer_free(&stored.token);
    mst_buffer_free(&stored.record);
    return rv == 0 ? 0 : mst__err_pass(reterr, rv, &err);
}

const struct mst__look_ops mst__look_etcd_v2 = {
    .open = v2_open,
    .read = v2_read,
    .close = v2_close,
};

/* --- etcd-v3 --- */

struct look_v3 {
    const struct mst_params *params;
    struct mst__etcd_v3_look look;
    struct mst__job_status_room room;
};

static void v3_close(void *self)
{
    struct look_v3 *look = self;
    mst__etcd_v3_look_close(&look->look);
    mst__job_status_room_close(&look->room);
    mst__free(look);
}

static int v3_open(const struct mst_params *params,
                   int64_t nodes_min,
                   int64_t nodes_max,
                   void **ret_self,
                   struct mst_err *reterr)
{
    (void)nodes_min; /* the nodes' keys have them */
    (void)nodes_max;
    struct look_v3 *look = mst__calloc(1, sizeof *look);
    if (look == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    look->params = params;
    mst__job_status_room_init(&look->room, MEMBERS_SIZE_MAX);
    int rv = mst__etcd_v3_look_open(&look->look, params, reterr);
    if (rv != 0) {
        v3_close(look);
        return rv;
    }
    *ret_self = look;
    return 0;
}

static int v3_read(void *self,
                   int64_t timeout_ms,
                   struct mst__snapshot **ret_snapshot,
                   struct mst_err *reterr)
{
    struct look_v3 *look = self;
    const struct mst__authority *machine = &look->look.authority.machine;
    int rv = mst__etcd_v3_look_read(&look->look, mst__until_in(timeout_ms), reterr);
    if (rv != 0) {
        return rv;
    }
    if (!look->look.exists) {
        return mst__look_absent(look->params, MST_LOOK_NONE, ret_snapshot, reterr);
    }
    struct mst__job_status status;
    mst__job_status_fill(machine, MST_JOB_VERSION, mst__clock_us(), false, &look->room, &status);
    status.run_id = mst_bytes_str(mst_params_run_id(look->params));
    status.epoch = machine->round_epoch;
    *ret_snapshot = mst__snapshot_of_job(mst_params_backend(look->params), &status, &rv);
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "status");
}

static int v3_shut(void *self,
                   const char *reason,
                   const char *owner,
                   int64_t timeout_ms,
                   struct mst_err *reterr)
{
    struct look_v3 *look = self;
    return mst__etcd_v3_shut(look->look.v3, &look->look.keys, reason, owner,
                             mst__until_in(timeout_ms), reterr);
}

const struct mst__look_ops mst__look_etcd_v3 = {
    .open = v3_open,
    .read = v3_read,
    .shut = v3_shut,
    .close = v3_close,
};

/* --- etcd --- */

struct look_legacy {
    const struct mst_params *params;
    int64_t nodes_min, nodes_max; /* 0 = not given */
    struct mst__legacy_look look;
    struct mst__legacy_view view;
};

static void legacy_close(void *self)
{
    struct look_legacy *look = self;
    mst__legacy_look_close(&look->look);
    mst__legacy_view_close(&look->view);
    mst__free(look);
}

static int legacy_open(const struct mst_params *params,
                       int64_t nodes_min,
                       int64_t nodes_max,
                       void **ret_self,
                       struct mst_err *reterr)
{
    struct look_legacy *look = mst__calloc(1, sizeof *look);
    if (look == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    look->params = params;
    look->nodes_min = nodes_min;
    look->nodes_max = nodes_max;
    mst__legacy_view_init(&look->view);
    int rv = mst__legacy_look_open(&look->look, params, reterr);
    if (rv != 0) {
        legacy_close(look);
        return rv;
    }
    *ret_self = look;
    return 0;
}

/* The number of members that have confirmed the round and have no key any more, without having
 * left. */
static int64_t count_silent(const struct mst__legacy_view *view)
{
    int64_t count = 0;
    for (size_t rank = 0; view->seats != NULL && rank < view->doc.participant_count; rank++) {
        mst__legacy_nonce nonce = mst__legacy_doc_node(&view->doc, rank);
        bool has_left = nonce != 0 && mst__legacy_nonces_find(&view->doc.left, nonce) >= 0;
        count += view->seats[rank].is_alive || has_left ? 0 : 1;
    }
    return count;
}

static void put_joinable(const struct mst__legacy_doc *doc,
                         int64_t nodes_min,
                         int64_t nodes_max,
                         struct mst__buf *text,
                         int *rv)
{
    int64_t count = (int64_t)doc->participant_count;
    if (nodes_min > count) {
        int64_t more = nodes_min - count;
        mst__text_put(text, rv,
                      "Round %" PRId64 " is waiting for %" PRId64 " more node%s (%" PRId64
                      " of min %" PRId64 ").",
                      doc->version, more, mst__text_plural((uint64_t)more), count, nodes_min);
    } else if (nodes_max > count) {
        int64_t more = nodes_max - count;
        mst__text_put(text, rv,
                      "Round %" PRId64 " is waiting for up to %" PRId64 " more node%s (%" PRId64
                      " of max %" PRId64 ") until its last call ends.",
                      doc->version, more, mst__text_plural((uint64_t)more), count, nodes_max);
    } else {
        mst__text_put(text, rv,
                      "Round %" PRId64 " is waiting for more nodes: %" PRId64 " %s there.",
                      doc->version, count, count == 1 ? "is" : "are");
    }
}

static void put_final(const struct mst__legacy_view *view, struct mst__buf *text, int *rv)
{
    const struct mst__legacy_doc *doc = &view->doc;
    int64_t count = (int64_t)doc->participant_count;
    int64_t waiting = doc->waiting_count;
    int64_t left = (int64_t)doc->left.count;
    int64_t silent = count_silent(view);
    if (waiting > 0) {
        mst__text_put(text, rv,
                      "%" PRId64 " node%s %s waiting for the %" PRId64 " member%s of round %" PRId64
                      " to leave; then another round begins.",
                      waiting, mst__text_plural((uint64_t)waiting), waiting == 1 ? "is" : "are",
                      count, mst__text_plural((uint64_t)count), doc->version);
    } else {
        mst__text_put(text, rv,
                      "Round %" PRId64 " is running with %" PRId64
                      " node%s and waiting for nobody.",
                      doc->version, count, mst__text_plural((uint64_t)count));
    }
    if (left > 0) {
        mst__text_put(text, rv, " %" PRId64 " %s left.", left, left == 1 ? "has" : "have");
    }
    if (silent > 0) {
        mst__text_put(text, rv, " %" PRId64 " %s been silent for more than %d s.", silent,
                      silent == 1 ? "has" : "have", MST_LEGACY_TTL_KEY);
    }
}

static void tell(const struct mst__legacy_view *view,
                 const struct mst_status *status,
                 struct mst__buf *text,
                 int *rv)
{
    const struct mst__legacy_doc *doc = &view->doc;
    int64_t unconfirmed = (int64_t)doc->participant_count - (int64_t)doc->keep_alive_count;
    switch (doc->status) {
        case MST_LEGACY_SETUP:
            mst__text_put(text, rv, "A node is about to open a round; it has %d s for that.",
                          MST_LEGACY_TTL_SETUP);
            break;
        case MST_LEGACY_JOINABLE:
            put_joinable(doc, status->nodes_min, status->nodes_max, text, rv);
            break;
        case MST_LEGACY_FROZEN:
            mst__text_put(text, rv,
                          "Round %" PRId64 " takes no more nodes and is waiting for %" PRId64
                          " of its %zu to confirm.",
                          doc->version, unconfirmed, doc->participant_count);
            break;
        case MST_LEGACY_FINAL:
            put_final(view, text, rv);
            break;
        case MST_LEGACY_CLOSED:
            mst__text_put(text, rv, "The rendezvous is closed: nobody can join it any more.");
            break;
        case MST_LEGACY_OTHER:
            mst__text_put(text, rv, "Its status is one that this muster does not know.");
            break;
    }
}

static void take_participants(struct mst__snapshot *snapshot, const struct mst__legacy_view *view)
{
    const struct mst__legacy_doc *doc = &view->doc;
    bool is_final = doc->status == MST_LEGACY_FINAL;
    for (size_t rank = 0; rank < doc->participant_count; rank++) {
        struct mst_status_node *node = mst__snapshot_add(snapshot, MST_SNAPSHOT_MEMBERS);
        if (node == NULL) {
            return;
        }
        char name[MST_LEGACY_NODE_SIZE];
        mst__legacy_nonce nonce = mst__legacy_doc_node(doc, rank);
        mst__legacy_node_name(nonce, (int64_t)rank, name);
        node->name = mst__snapshot_text(snapshot, mst_bytes_str(name));
        node->standing = is_final ? MST_STATUS_NODE_MEMBER : MST_STATUS_NODE_GATHERED;
        node->rank = is_final ? (int64_t)rank : -1;
        node->has_heard = view->seats != NULL && view->seats[rank].is_alive;
        if (node->has_heard) {
            node->heard_ms = (MST_LEGACY_TTL_KEY - view->seats[rank].ttl_s) * 1000;
        }
        if (nonce != 0 && mst__legacy_nonces_find(&doc->left, nonce) >= 0) {
            node->cause = "left"; /* and the round goes on */
        }
    }
}

static void take_waiting(struct mst__snapshot *snapshot, const struct mst__legacy_doc *doc)
{
    for (int64_t i = 0; i < doc->waiting_count; i++) {
        struct mst_status_node *node = mst__snapshot_add(snapshot, MST_SNAPSHOT_WAITING);
        if (node == NULL) {
            snapshot->status.is_cut = true;
            return;
        }
        node->standing = MST_STATUS_NODE_QUEUED;
        if (i < (int64_t)doc->waiting.count) { /* else a peer, which has no name */
            char name[MST_LEGACY_NODE_SIZE];
            mst__legacy_node_name(doc->waiting.items[i], 0, name);
            node->name = mst__snapshot_text(snapshot, mst_bytes_str(name));
        }
    }
}

static int take_document(const struct look_legacy *look, struct mst__snapshot *snapshot)
{
    const struct mst__legacy_view *view = &look->view;
    const struct mst__legacy_doc *doc = &view->doc;
    struct mst_status *status = &snapshot->status;
    struct mst__buf text;
    int rv = 0;
    int64_t count = (int64_t)doc->participant_count;
    bool is_final = doc->status == MST_LEGACY_FINAL;
    status->exists = true;
    status->phase = is_final                           ? MST_STATUS_RUNNING
                    : doc->status == MST_LEGACY_CLOSED ? MST_STATUS_CLOSED
                                                       : MST_STATUS_OPEN;
    status->outcome = doc->status == MST_LEGACY_CLOSED ? MST_OUTCOME_CLOSED : MST_OUTCOME_NONE;
    status->round = doc->version;
    status->round_next = is_final ? doc->version + 1 : doc->version;
    status->world_size = is_final ? count : 0;
    status->nodes_min = look->nodes_min > 0 ? look->nodes_min : doc->nodes_min;
    status->nodes_max = look->nodes_max > 0 ? look->nodes_max : doc->nodes_max;
    bool is_joinable = doc->status == MST_LEGACY_JOINABLE;
    status->needed = is_joinable && status->nodes_min > count ? status->nodes_min - count : 0;
    if (doc->status != MST_LEGACY_OTHER) {
        status->document =
            mst__snapshot_text(snapshot, mst_bytes_str(mst__legacy_status_name(doc->status)));
    }
    /* The number of waiting nodes is untrusted. */
    int64_t waiting = doc->waiting_count < MST_AUTHORITY_MEMBERS_MAX ? doc->waiting_count
                                                                     : MST_AUTHORITY_MEMBERS_MAX;
    mst__snapshot_expect_nodes(snapshot, doc->participant_count + (size_t)waiting);
    take_participants(snapshot, view);
    take_waiting(snapshot, doc);
    mst__buf_init(&text, SUMMARY_SIZE_MAX);
    tell(view, status, &text, &rv);
    status->summary = mst__snapshot_text(snapshot, mst__buf_bytes(&text));
    mst__buf_close(&text);
    return rv != 0 ? rv : mst__snapshot_end(snapshot);
}

static int legacy_read(void *self,
                       int64_t timeout_ms,
                       struct mst__snapshot **ret_snapshot,
                       struct mst_err *reterr)
{
    struct look_legacy *look = self;
    struct mst__snapshot *snapshot = NULL;
    int rv = mst__legacy_look_read(&look->look, mst__until_in(timeout_ms), &look->view, reterr);
    if (rv == 0) {
        rv = mst__look_absent(
            look->params,
            "There is no round: nobody has tried to join it yet, or the last one is over.",
            &snapshot, reterr);
    }
    if (rv == 0 && look->view.exists) {
        rv = take_document(look, snapshot);
        rv = rv == 0 ? 0 : mst__fail(reterr, rv, 0, "status");
    }
    if (rv != 0) {
        mst__snapshot_free(snapshot);
        return rv;
    }
    *ret_snapshot = snapshot;
    return 0;
}

const struct mst__look_ops mst__look_etcd = {
    .open = legacy_open,
    .read = legacy_read,
    .close = legacy_close,
};
