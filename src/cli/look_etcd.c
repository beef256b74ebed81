/* cli/look_etcd.c - what the commands see of a rendezvous at an etcd. */
#include "cli/look_etcd.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "legacy/legacy.h"
#include "record/etcd_v2.h"

/* What is behind a look at an etcd. */
struct mst__look_etcd {
    struct mst__record_backend backend; /* of etcd-v2 */
    struct mst__legacy_look legacy;     /* of etcd */
    struct mst__legacy_view view;
    bool is_legacy;
};

int mst__look_etcd_open(struct mst__look *look,
                        const struct mst_params *params,
                        struct mst_err *reterr)
{
    struct mst__look_etcd *etcd = mst__calloc(1, sizeof *etcd);
    if (etcd == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    look->etcd = etcd;
    mst__legacy_view_init(&etcd->view);
    etcd->is_legacy = strcmp(mst_params_backend(params), "etcd") == 0;
    look->is_legacy = etcd->is_legacy;
    if (etcd->is_legacy) {
        return mst__legacy_look_open(&etcd->legacy, params, reterr);
    }
    struct mst__dynamic dynamic;
    int rv = mst__etcd_v2_backend_new(params, &etcd->backend, &dynamic, reterr);
    if (rv == 0) {
        look->settings = dynamic.settings;
    }
    return rv;
}

void mst__look_etcd_close(struct mst__look *look)
{
    struct mst__look_etcd *etcd = look->etcd;
    if (etcd == NULL) {
        return;
    }
    if (etcd->is_legacy) {
        mst__legacy_look_close(&etcd->legacy);
    } else if (etcd->backend.ops != NULL) {
        etcd->backend.ops->close(etcd->backend.self);
    }
    mst__legacy_view_close(&etcd->view);
    mst__free(etcd);
    look->etcd = NULL;
}

int mst__look_etcd_read(struct mst__look *look,
                        int64_t timeout_ms,
                        bool *ret_changed,
                        struct mst_err *reterr)
{
    struct mst__look_etcd *etcd = look->etcd;
    struct mst__until until = mst__until_in(timeout_ms);
    if (etcd->is_legacy) {
        uint64_t before = etcd->view.exists ? etcd->view.modified : 0;
        int rv = mst__legacy_look_read(&etcd->legacy, until, &etcd->view, reterr);
        look->exists = rv == 0 && etcd->view.exists;
        *ret_changed = (look->exists ? etcd->view.modified : 0) != before;
        return rv;
    }
    struct mst__stored stored = {0};
    int rv = etcd->backend.ops->get_state(etcd->backend.self, until, &stored, reterr);
    if (rv != 0) {
        return rv;
    }
    bool is_same = stored.exists == look->exists && stored.record.size == look->value.size &&
                   (stored.record.size == 0 ||
                    memcmp(stored.record.data, look->value.data, stored.record.size) == 0);
    mst_buffer_free(&stored.token);
    mst_buffer_free(&look->value);
    look->value = stored.record;
    look->exists = stored.exists;
    *ret_changed = !is_same;
    return 0;
}

void mst__look_legacy_group(const struct mst__look *look, struct mst__look_group *ret_group)
{
    const struct mst__legacy_doc *doc = &look->etcd->view.doc;
    *ret_group = (struct mst__look_group){
        .is_closed = doc->status == MST_LEGACY_CLOSED,
        .is_running = doc->status == MST_LEGACY_FINAL,
        .round = doc->version,
        .here = (int64_t)doc->participant_count,
        .waiting = doc->waiting_count,
    };
}

void mst__look_legacy_nodes(const struct mst__look *look, mst__look_node_fn fn, void *arg)
{
    const struct mst__legacy_doc *doc = &look->etcd->view.doc;
    for (size_t rank = 0; rank < doc->participant_count; rank++) {
        char name[MST_LEGACY_NODE_SIZE];
        mst__legacy_node_name(mst__legacy_doc_node(doc, rank), (int64_t)rank, name);
        fn(arg, mst_bytes_str(name));
    }
}

/* --- telling of a legacy rendezvous --- */

static void put(struct mst__buf *text, int *rv, const char *format, ...) MST_PRINTF(3, 4);

static void put(struct mst__buf *text, int *rv, const char *format, ...)
{
    char line[300];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line, format, args); /* nothing in here is as long */
    va_end(args);
    if (*rv == 0 && length > 0) {
        *rv = mst__buf_append(text, mst_bytes_str(line));
    }
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* How many have confirmed the round and have no key any more, without having left. */
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
        put(text, rv,
            "Round %" PRId64 " is waiting for %" PRId64 " more node%s (%" PRId64 " of min %" PRId64
            ").",
            doc->version, more, plural(more), count, nodes_min);
    } else if (nodes_max > count) {
        int64_t more = nodes_max - count;
        put(text, rv,
            "Round %" PRId64 " is waiting for up to %" PRId64 " more node%s (%" PRId64
            " of max %" PRId64 ") until its last call ends.",
            doc->version, more, plural(more), count, nodes_max);
    } else {
        put(text, rv, "Round %" PRId64 " is waiting for more nodes: %" PRId64 " %s there.",
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
        put(text, rv,
            "%" PRId64 " node%s %s waiting for the %" PRId64 " member%s of round %" PRId64
            " to leave; then another round begins.",
            waiting, plural(waiting), waiting == 1 ? "is" : "are", count, plural(count),
            doc->version);
    } else {
        put(text, rv,
            "Round %" PRId64 " is running with %" PRId64 " node%s and waiting for nobody.",
            doc->version, count, plural(count));
    }
    if (left > 0) {
        put(text, rv, " %" PRId64 " %s left.", left, left == 1 ? "has" : "have");
    }
    if (silent > 0) {
        put(text, rv, " %" PRId64 " %s been silent for more than %d s.", silent,
            silent == 1 ? "has" : "have", MST_LEGACY_TTL_KEY);
    }
}

int mst__look_legacy_summary(const struct mst__look *look,
                             int64_t nodes_min,
                             int64_t nodes_max,
                             struct mst__buf *text)
{
    const struct mst__legacy_view *view = &look->etcd->view;
    const struct mst__legacy_doc *doc = &view->doc;
    int64_t unconfirmed = (int64_t)doc->participant_count - (int64_t)doc->keep_alive_count;
    int rv = 0;
    if (!look->exists) {
        put(text, &rv,
            "There is no round: nobody has tried to join it yet, or the last one is over.");
        return rv;
    }
    switch (doc->status) {
        case MST_LEGACY_SETUP:
            put(text, &rv, "A node is about to open a round; it has %d s for that.",
                MST_LEGACY_TTL_SETUP);
            break;
        case MST_LEGACY_JOINABLE:
            put_joinable(doc, nodes_min > 0 ? nodes_min : doc->nodes_min,
                         nodes_max > 0 ? nodes_max : doc->nodes_max, text, &rv);
            break;
        case MST_LEGACY_FROZEN:
            put(text, &rv,
                "Round %" PRId64 " takes no more nodes and is waiting for %" PRId64
                " of its %zu to confirm.",
                doc->version, unconfirmed, doc->participant_count);
            break;
        case MST_LEGACY_FINAL:
            put_final(view, text, &rv);
            break;
        case MST_LEGACY_CLOSED:
            put(text, &rv, "The rendezvous is closed: nobody can join it any more.");
            break;
        case MST_LEGACY_OTHER:
            put(text, &rv, "Its status is one that this muster does not know.");
            break;
    }
    return rv;
}

/* Whether ranks are settled. */
static bool is_complete(const struct mst__look *look)
{
    return look->exists && look->etcd->view.doc.status == MST_LEGACY_FINAL;
}

int mst__look_legacy_table(const struct mst__look *look, struct mst__buf *text)
{
    const struct mst__legacy_view *view = &look->etcd->view;
    const struct mst__legacy_doc *doc = &view->doc;
    int rv = 0;
    if (!look->exists) {
        put(text, &rv, "\n");
        return rv;
    }
    put(text, &rv, ": round %" PRId64 ", %s\n", doc->version,
        doc->status == MST_LEGACY_OTHER ? "unknown" : mst__legacy_status_name(doc->status));
    if (doc->participant_count == 0) {
        return rv;
    }
    put(text, &rv, "%-11s  %5s  %-*s  %s\n", "", "rank", (int)MST_LEGACY_NODE_SIZE, "node", "key");
    for (size_t rank = 0; rank < doc->participant_count; rank++) {
        char name[MST_LEGACY_NODE_SIZE];
        char number[24] = "-";
        mst__legacy_nonce nonce = mst__legacy_doc_node(doc, rank);
        mst__legacy_node_name(nonce, (int64_t)rank, name);
        if (is_complete(look)) {
            (void)snprintf(number, sizeof number, "%zu", rank); /* fits */
        }
        bool has_left = nonce != 0 && mst__legacy_nonces_find(&doc->left, nonce) >= 0;
        bool is_alive = view->seats != NULL && view->seats[rank].is_alive;
        put(text, &rv, "%-11s  %5s  %-*s  ", "participant", number, (int)MST_LEGACY_NODE_SIZE,
            name);
        if (is_alive) {
            put(text, &rv, "expires in %" PRId64 " s\n", view->seats[rank].ttl_s);
        } else {
            /* Nobody has one before the round is frozen. */
            bool is_due = doc->status == MST_LEGACY_FROZEN || doc->status == MST_LEGACY_FINAL;
            put(text, &rv, "%s\n", has_left ? "left" : is_due ? "none" : "-");
        }
    }
    return rv;
}

static void json_participant(const struct mst__look *look, size_t rank, struct mst__cli_json *json)
{
    const struct mst__legacy_view *view = &look->etcd->view;
    char name[MST_LEGACY_NODE_SIZE];
    mst__legacy_node_name(mst__legacy_doc_node(&view->doc, rank), (int64_t)rank, name);
    mst__cli_json_begin(json, NULL, '{');
    mst__cli_json_text(json, "node", mst_bytes_str(name));
    mst__cli_json_null(json, "addr");
    mst__cli_json_null(json, "pid");
    mst__cli_json_null(json, "local_id");
    if (is_complete(look)) {
        mst__cli_json_number(json, "rank", (int64_t)rank);
    } else {
        mst__cli_json_null(json, "rank");
    }
    if (view->seats != NULL && view->seats[rank].is_alive) {
        mst__cli_json_number(json, "heartbeat_age_ms",
                             (MST_LEGACY_TTL_KEY - view->seats[rank].ttl_s) * 1000);
    } else {
        mst__cli_json_null(json, "heartbeat_age_ms");
    }
    mst__cli_json_end(json, '}');
}

void mst__look_legacy_json(const struct mst__look *look, struct mst__cli_json *json)
{
    const struct mst__legacy_doc *doc = &look->etcd->view.doc;
    mst__cli_json_number(json, "round", look->exists ? doc->version : 0);
    mst__cli_json_bool(json, "complete", is_complete(look));
    mst__cli_json_bool(json, "closed", look->exists && doc->status == MST_LEGACY_CLOSED);
    if (look->exists) {
        mst__cli_json_text(json, "status", mst_bytes_str(mst__legacy_status_name(doc->status)));
    } else {
        mst__cli_json_null(json, "status");
    }
    mst__cli_json_null(json, "dialect");
    mst__cli_json_null(json, "last_call_ms");
    mst__cli_json_begin(json, "participants", '[');
    for (size_t rank = 0; look->exists && rank < doc->participant_count; rank++) {
        json_participant(look, rank, json);
    }
    mst__cli_json_end(json, ']');
    mst__cli_json_begin(json, "waiting", '[');
    for (int64_t i = 0; look->exists && i < doc->waiting_count; i++) {
        mst__cli_json_begin(json, NULL, '{');
        if (i < (int64_t)doc->waiting.count) {
            char name[MST_LEGACY_NODE_SIZE];
            mst__legacy_node_name(doc->waiting.items[i], 0, name);
            mst__cli_json_text(json, "node", mst_bytes_str(name));
        } else {
            mst__cli_json_null(json, "node"); /* a peer, which does not say who it is */
        }
        mst__cli_json_end(json, '}');
    }
    mst__cli_json_end(json, ']');
    mst__cli_json_begin(json, "spares", '[');
    mst__cli_json_end(json, ']');
}
