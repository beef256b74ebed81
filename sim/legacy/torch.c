/* sim/legacy/torch.c - a peer: torch's legacy handler, request by request, with its pauses and its
 * defects.
 *
 * It does not know the member `muster`, and writes it back unchanged. */
#include <inttypes.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/number.h"
#include "sim/legacy/legacy.h"

#define ROOT "/torchelastic/p2p/run_s/rdzv/"
#define PAUSE_US 100000
#define LATER_US 1000000
#define POLL_US 1000000

static char *torch_key(const char *name)
{
    char text[128];
    (void)snprintf(text, sizeof text, ROOT "%s", name);
    char *key = mst__strdup(text);
    MST_ASSERT(key != NULL);
    return key;
}

static char *torch_rank_key(const struct mst__sim_torch *torch)
{
    char name[64];
    (void)snprintf(name, sizeof name, "v_%" PRId64 "/rank_%" PRId64, torch->version, torch->rank);
    return torch_key(name);
}

static void torch_send(struct mst__sim_legacy *sim,
                       struct mst__sim_legacy_node *node,
                       enum mst__sim_torch_at at,
                       struct mst__sim_v2_request *request)
{
    node->torch.at = at;
    mst__sim_legacy_send(sim, node, request);
}

static void torch_read(struct mst__sim_legacy *sim,
                       struct mst__sim_legacy_node *node,
                       enum mst__sim_torch_at at)
{
    struct mst__sim_v2_request *request = mst__sim_v2_request_new();
    request->key = torch_key("active_version");
    torch_send(sim, node, at, request);
}

static void torch_sleep(struct mst__sim_legacy *sim,
                        struct mst__sim_legacy_node *node,
                        int64_t delay_us,
                        enum mst__sim_torch_at then)
{
    node->torch.at = MST_TORCH_SLEEP;
    node->torch.then = then;
    mst__sim_legacy_timer(sim, node, sim->now_us + delay_us);
}

static void torch_rnd(struct mst__sim_legacy *sim,
                      struct mst__sim_legacy_node *node,
                      enum mst__sim_torch_at then)
{
    torch_sleep(sim, node, mst__sim_legacy_below(sim, PAUSE_US), then);
}

static void torch_later(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    torch_sleep(sim, node, LATER_US, MST_TORCH_INIT);
}

static void torch_wait(struct mst__sim_legacy *sim,
                       struct mst__sim_legacy_node *node,
                       enum mst__sim_torch_at at,
                       enum mst__sim_v2_verb verb,
                       int64_t limit_us)
{
    int64_t left_us = node->torch.deadline_us - sim->now_us + LATER_US;
    struct mst__sim_v2_request *request = mst__sim_v2_request_new();
    request->verb = verb;
    request->key = torch_key("active_version");
    request->from_index = node->torch.index + 1;
    torch_send(sim, node, at, request);
    struct mst__sim_legacy_event event = {.kind = MST_SIM_LEGACY_TIMER,
                                          .node = node->index,
                                          .life = node->life,
                                          .serial = node->serial};
    mst__sim_legacy_after(sim, limit_us < left_us ? limit_us : left_us < 0 ? 0 : left_us, event);
}

/* Compare-and-swap the last read document with @doc, which is taken. */
static void torch_swap(struct mst__sim_legacy *sim,
                       struct mst__sim_legacy_node *node,
                       enum mst__sim_torch_at at,
                       struct mst__legacy_doc *doc,
                       int64_t ttl_s)
{
    struct mst__sim_v2_request *request = mst__sim_v2_request_new();
    request->verb = MST_SIM_V2_PUT;
    request->key = torch_key("active_version");
    request->has_previous = true;
    int rv = mst__legacy_doc_copy(&request->previous, &node->torch.doc);
    MST_ASSERT(rv == 0);
    request->has_doc = true;
    mst__legacy_doc_move(&request->doc, doc);
    request->ttl_s = ttl_s;
    torch_send(sim, node, at, request);
}

static void torch_copy(const struct mst__sim_torch *torch, struct mst__legacy_doc *ret_doc)
{
    mst__legacy_doc_init(ret_doc);
    int rv = mst__legacy_doc_copy(ret_doc, &torch->doc);
    MST_ASSERT(rv == 0);
}

static void torch_give_up(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    node->torch.at = MST_TORCH_IDLE;
    node->app = MST_SIM_LEGACY_PAUSED;
    mst__sim_legacy_timer(sim, node, sim->now_us + LATER_US);
}

static void torch_init(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    node->torch.is_alive = false;
    if (sim->now_us > node->torch.deadline_us) {
        mst__sim_legacy_say(sim, node->index, "times out");
        torch_give_up(sim, node);
        return;
    }
    struct mst__sim_v2_request *request = mst__sim_v2_request_new();
    request->verb = MST_SIM_V2_PUT;
    request->key = torch_key("active_version");
    request->condition = MST_LEGACY_IF_ABSENT;
    request->has_doc = true;
    request->ttl_s = 5;
    torch_send(sim, node, MST_TORCH_INIT, request);
}

void mst__sim_torch_begin(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    node->app = MST_SIM_LEGACY_JOINING;
    node->began_us = sim->now_us;
    node->torch.deadline_us = sim->now_us + sim->plan.join_us;
    torch_init(sim, node);
}

/* --- each state --- */

static void torch_dispatch(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    struct mst__sim_torch *torch = &node->torch;
    torch->version = torch->doc.version;
    switch (torch->doc.status) {
        case MST_LEGACY_CLOSED:
            mst__sim_legacy_say(sim, node->index, "is told that it is closed");
            torch->at = MST_TORCH_IDLE;
            node->app = MST_SIM_LEGACY_ENDED;
            return;
        case MST_LEGACY_JOINABLE:
            torch_rnd(sim, node, MST_TORCH_JOIN_READ);
            return;
        case MST_LEGACY_FINAL:
            torch_rnd(sim, node, MST_TORCH_ANNOUNCE_READ);
            return;
        default:
            torch_wait(sim, node, MST_TORCH_LATER_WAIT, MST_SIM_V2_WAIT, INT64_MAX);
    }
}

static void torch_join(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    struct mst__sim_torch *torch = &node->torch;
    int64_t count = (int64_t)torch->doc.participant_count;
    if (torch->doc.status != MST_LEGACY_JOINABLE || count >= sim->plan.nodes_max) {
        torch_later(sim, node);
        return;
    }
    if (torch->doc.version != torch->version) {
        torch_init(sim, node);
        return;
    }
    struct mst__legacy_doc doc;
    torch_copy(torch, &doc);
    torch->rank = count;
    doc.participant_count++;
    int64_t ttl_s = count + 1 >= sim->plan.nodes_min ? 10 : MST_LEGACY_NO_TTL;
    if (count + 1 == sim->plan.nodes_max) {
        doc.status = MST_LEGACY_FROZEN;
        doc.has_keep_alives = true;
        ttl_s = 10;
    }
    torch_swap(sim, node, MST_TORCH_JOIN_SWAP, &doc, ttl_s);
}

static bool torch_is(const struct mst__sim_torch *torch, enum mst__legacy_status status)
{
    return torch->doc.status == status && torch->doc.version == torch->version;
}

static void torch_call(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    struct mst__sim_torch *torch = &node->torch;
    if (torch_is(torch, MST_LEGACY_FROZEN)) {
        torch_read(sim, node, MST_TORCH_FROZEN_READ);
    } else if (!torch_is(torch, MST_LEGACY_JOINABLE)) {
        torch_later(sim, node);
    } else {
        struct mst__legacy_doc doc;
        torch_copy(torch, &doc);
        if (sim->now_us >= torch->call_us) {
            doc.status = MST_LEGACY_FROZEN;
            doc.has_keep_alives = true;
        }
        torch_swap(sim, node, MST_TORCH_CALL_SWAP, &doc, 10);
    }
}

static void torch_confirm(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    struct mst__sim_torch *torch = &node->torch;
    if (!torch_is(torch, MST_LEGACY_FROZEN)) {
        torch_init(sim, node);
        return;
    }
    struct mst__sim_v2_request *request = mst__sim_v2_request_new();
    request->verb = MST_SIM_V2_PUT;
    request->key = torch_rank_key(torch);
    request->ttl_s = 10;
    torch_send(sim, node, MST_TORCH_CONFIRM_KEY, request);
}

static void torch_confirmed(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    struct mst__sim_torch *torch = &node->torch;
    struct mst__legacy_doc doc;
    torch_copy(torch, &doc);
    char *path = torch_rank_key(torch);
    int rv = mst__legacy_doc_add_keep_alive(&doc, path);
    MST_ASSERT(rv == 0);
    mst__free(path);
    int64_t ttl_s = 10;
    if (doc.keep_alive_count == doc.participant_count) {
        doc.status = MST_LEGACY_FINAL;
        doc.has_waiting = true;
        doc.waiting_count = 0;
        ttl_s = MST_LEGACY_NO_TTL;
    }
    torch_swap(sim, node, MST_TORCH_CONFIRM_SWAP, &doc, ttl_s);
}

static void torch_final(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    struct mst__sim_torch *torch = &node->torch;
    if (torch_is(torch, MST_LEGACY_FINAL)) {
        torch->world = (int64_t)torch->doc.participant_count;
        mst__sim_legacy_told(sim, node, torch->version, torch->rank, torch->world);
        torch->at = MST_TORCH_HOLD;
        mst__sim_legacy_timer(sim, node, sim->now_us + POLL_US);
    } else if (torch_is(torch, MST_LEGACY_FROZEN)) {
        torch_wait(sim, node, MST_TORCH_FINAL_WAIT, MST_SIM_V2_WAIT, INT64_MAX);
    } else {
        torch_later(sim, node);
    }
}

static void torch_announce(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    struct mst__sim_torch *torch = &node->torch;
    if (!torch_is(torch, MST_LEGACY_FINAL)) {
        torch_init(sim, node);
        return;
    }
    struct mst__legacy_doc doc;
    torch_copy(torch, &doc);
    doc.waiting_count++;
    torch_swap(sim, node, MST_TORCH_ANNOUNCE_SWAP, &doc, MST_LEGACY_NO_TTL);
}

static void torch_free(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    struct mst__sim_torch *torch = &node->torch;
    if (!torch_is(torch, MST_LEGACY_FINAL)) {
        torch_init(sim, node);
        return;
    }
    char name[64];
    (void)snprintf(name, sizeof name, "v_%" PRId64, torch->version);
    struct mst__sim_v2_request *request = mst__sim_v2_request_new();
    request->verb = MST_SIM_V2_LIST;
    request->key = torch_key(name);
    torch_send(sim, node, MST_TORCH_FREE_LIST, request);
}

static void torch_listed(struct mst__sim_legacy *sim,
                         struct mst__sim_legacy_node *node,
                         const struct mst__sim_v2_answer *answer)
{
    struct mst__sim_torch *torch = &node->torch;
    for (size_t i = 0; i < torch->doc.keep_alive_count; i++) {
        const char *name = strrchr(torch->doc.keep_alives[i], '/') + 1;
        bool is_there = false;
        for (size_t k = 0; k < answer->entry_count; k++) {
            is_there = is_there || strcmp(answer->entries[k].name, name) == 0;
        }
        if (!is_there) {
            struct mst__sim_v2_request *request = mst__sim_v2_request_new();
            request->verb = MST_SIM_V2_DELETE;
            request->key = torch_key("active_version");
            request->has_previous = true;
            int rv = mst__legacy_doc_copy(&request->previous, &torch->doc);
            MST_ASSERT(rv == 0);
            torch_send(sim, node, MST_TORCH_FREE_DROP, request);
            return;
        }
    }
    torch_wait(sim, node, MST_TORCH_FREE_WAIT, MST_SIM_V2_WAIT_TREE, INT64_MAX);
}

/* In a round: restart if a node waits, or if the workers of another member are gone. */
static void torch_hold(struct mst__sim_legacy *sim,
                       struct mst__sim_legacy_node *node,
                       const struct mst__sim_v2_answer *answer)
{
    struct mst__sim_torch *torch = &node->torch;
    if (answer == NULL) {
        torch_read(sim, node, MST_TORCH_HOLD);
        return;
    }
    bool is_waited = answer->code == 0 && answer->doc.status == MST_LEGACY_FINAL &&
                     answer->doc.waiting_count > 0;
    bool is_closed = answer->code == 0 && answer->doc.status == MST_LEGACY_CLOSED;
    int64_t others = 0;
    for (uint32_t i = 0; i < sim->plan.nodes; i++) {
        others +=
            sim->nodes[i].app == MST_SIM_LEGACY_HOLDING && sim->nodes[i].version == torch->version;
    }
    if (is_closed) {
        torch->at = MST_TORCH_IDLE;
        node->app = MST_SIM_LEGACY_ENDED;
    } else if (is_waited || others < torch->world) {
        mst__sim_torch_begin(sim, node);
    } else {
        mst__sim_legacy_timer(sim, node, sim->now_us + POLL_US);
    }
}

static void torch_woken(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    switch (node->torch.then) {
        case MST_TORCH_INIT:
            torch_init(sim, node);
            return;
        default:
            torch_read(sim, node, node->torch.then);
    }
}

static void torch_create(struct mst__sim_legacy *sim,
                         struct mst__sim_legacy_node *node,
                         const struct mst__sim_v2_answer *answer)
{
    struct mst__sim_torch *torch = &node->torch;
    struct mst__sim_v2_request *request = mst__sim_v2_request_new();
    if (torch->at == MST_TORCH_INIT) {
        mst__legacy_doc_close(&torch->doc);
        request->key = torch_key("version_counter");
        torch_send(sim, node, MST_TORCH_COUNTER, request);
        return;
    }
    request->verb = MST_SIM_V2_PUT;
    if (torch->at == MST_TORCH_COUNTER) {
        bool is_number =
            mst__number_parse(mst_bytes_str(answer->value), 0, INT64_MAX - 1, &torch->counter);
        MST_ASSERT(is_number);
        request->key = torch_key("version_counter");
        request->condition = MST_LEGACY_IF_INDEX;
        request->previous_index = answer->modified;
        (void)snprintf(request->value, sizeof request->value, "%" PRId64, torch->counter + 1);
        torch_send(sim, node, MST_TORCH_CLAIM, request);
        return;
    }
    torch->version = torch->counter + 1;
    char name[64];
    (void)snprintf(name, sizeof name, "v_%" PRId64, torch->version);
    request->key = torch_key(name);
    request->condition = MST_LEGACY_IF_ABSENT;
    request->is_dir = true;
    torch_send(sim, node, MST_TORCH_DIR, request);
}

static void torch_open(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    struct mst__legacy_doc doc;
    torch_copy(&node->torch, &doc);
    doc.status = MST_LEGACY_JOINABLE;
    doc.version = node->torch.version;
    doc.has_participants = true;
    torch_swap(sim, node, MST_TORCH_OPEN, &doc, MST_LEGACY_NO_TTL);
}

/* The answer to a write, with @code. */
static void torch_wrote(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node, int code)
{
    struct mst__sim_torch *torch = &node->torch;
    switch (torch->at) {
        case MST_TORCH_JOIN_SWAP:
            if (code == 101) {
                torch_rnd(sim, node, MST_TORCH_JOIN_READ);
            } else if (code != 0) {
                torch_later(sim, node);
            } else if (torch->rank == sim->plan.nodes_min - 1 &&
                       torch->rank + 1 < sim->plan.nodes_max) {
                torch->call_us = sim->now_us + sim->plan.last_call_us;
                torch_read(sim, node, MST_TORCH_CALL_READ);
            } else {
                torch_read(sim, node, MST_TORCH_FROZEN_READ);
            }
            return;
        case MST_TORCH_CALL_SWAP:
            if (code == 0 && sim->now_us < torch->call_us) {
                int64_t left_us = torch->call_us - sim->now_us + LATER_US;
                torch_wait(sim, node, MST_TORCH_CALL_WAIT, MST_SIM_V2_WAIT,
                           left_us < 5 * LATER_US ? left_us : 5 * LATER_US);
            } else if (code == 0) {
                torch_read(sim, node, MST_TORCH_CALL_READ);
            } else {
                torch_rnd(sim, node, MST_TORCH_CALL_READ);
            }
            return;
        case MST_TORCH_CONFIRM_SWAP:
            if (code == 101) {
                torch_rnd(sim, node, MST_TORCH_CONFIRM_READ);
            } else if (code != 0) {
                torch_later(sim, node);
            } else {
                torch->is_alive = true;
                mst__sim_torch_beat(sim, node);
                torch_read(sim, node, MST_TORCH_FINAL_READ);
            }
            return;
        case MST_TORCH_ANNOUNCE_SWAP:
            if (code == 101) {
                torch_rnd(sim, node, MST_TORCH_ANNOUNCE_READ);
            } else if (code != 0) {
                torch_later(sim, node);
            } else {
                torch_read(sim, node, MST_TORCH_FREE_READ);
            }
            return;
        default:
            MST_ASSERT(torch->at == MST_TORCH_FREE_DROP);
            if (code == 0) {
                torch_init(sim, node);
            } else {
                torch_later(sim, node);
            }
    }
}

/* The answer to a read of the document. */
static void torch_has_read(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    switch (node->torch.at) {
        case MST_TORCH_DISPATCH:
            torch_dispatch(sim, node);
            return;
        case MST_TORCH_JOIN_READ:
            torch_join(sim, node);
            return;
        case MST_TORCH_CALL_READ:
            torch_call(sim, node);
            return;
        case MST_TORCH_FROZEN_READ:
            if (torch_is(&node->torch, MST_LEGACY_FROZEN)) {
                torch_rnd(sim, node, MST_TORCH_CONFIRM_READ);
            } else if (torch_is(&node->torch, MST_LEGACY_JOINABLE)) {
                torch_wait(sim, node, MST_TORCH_FROZEN_WAIT, MST_SIM_V2_WAIT, INT64_MAX);
            } else {
                torch_later(sim, node);
            }
            return;
        case MST_TORCH_CONFIRM_READ:
            torch_confirm(sim, node);
            return;
        case MST_TORCH_FINAL_READ:
            torch_final(sim, node);
            return;
        case MST_TORCH_ANNOUNCE_READ:
            torch_announce(sim, node);
            return;
        default:
            MST_ASSERT(node->torch.at == MST_TORCH_FREE_READ);
            torch_free(sim, node);
    }
}

/* A wait has ended. */
static bool torch_waited(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    switch (node->torch.at) {
        case MST_TORCH_LATER_WAIT:
            torch_later(sim, node);
            return true;
        case MST_TORCH_CALL_WAIT:
            torch_read(sim, node, MST_TORCH_CALL_READ);
            return true;
        case MST_TORCH_FROZEN_WAIT:
            torch_read(sim, node, MST_TORCH_FROZEN_READ);
            return true;
        case MST_TORCH_FINAL_WAIT:
            torch_read(sim, node, MST_TORCH_FINAL_READ);
            return true;
        case MST_TORCH_FREE_WAIT:
            torch_read(sim, node, MST_TORCH_FREE_READ);
            return true;
        default:
            return false;
    }
}

void mst__sim_torch_feed(struct mst__sim_legacy *sim,
                         struct mst__sim_legacy_node *node,
                         struct mst__sim_v2_answer *answer,
                         bool has_failed)
{
    struct mst__sim_torch *torch = &node->torch;
    if (torch->at == MST_TORCH_IDLE) {
        if (node->app == MST_SIM_LEGACY_PAUSED) {
            mst__sim_torch_begin(sim, node);
        }
        return;
    }
    if (torch->at == MST_TORCH_HOLD) {
        if (has_failed) {
            mst__sim_legacy_timer(sim, node, sim->now_us + POLL_US);
        } else {
            torch_hold(sim, node, answer);
        }
        return;
    }
    if (torch->at == MST_TORCH_SLEEP) {
        torch_woken(sim, node);
        return;
    }
    if (torch_waited(sim, node)) {
        if (sim->now_us > torch->deadline_us) {
            torch_init(sim, node);
        }
        return;
    }
    if (has_failed || answer == NULL) {
        torch_later(sim, node);
        return;
    }
    int code = answer->code;
    torch->index = answer->index;
    if (torch->at == MST_TORCH_COUNTER || torch->at == MST_TORCH_CLAIM) {
        if (code != 0) {
            torch_give_up(sim, node); /* fatal */
        } else {
            torch_create(sim, node, answer);
        }
    } else if (torch->at == MST_TORCH_INIT || torch->at == MST_TORCH_DIR) {
        if (code == 105) {
            torch_read(sim, node, MST_TORCH_DISPATCH);
        } else if (torch->at == MST_TORCH_INIT) {
            torch_create(sim, node, answer);
        } else {
            torch_open(sim, node);
        }
    } else if (torch->at == MST_TORCH_OPEN) {
        if (code == 0) {
            torch_rnd(sim, node, MST_TORCH_JOIN_READ);
        } else {
            torch_later(sim, node);
        }
    } else if (torch->at == MST_TORCH_CONFIRM_KEY) {
        torch_confirmed(sim, node);
    } else if (torch->at == MST_TORCH_FREE_LIST) {
        torch_listed(sim, node, answer);
    } else if (answer->has_doc) {
        mst__legacy_doc_move(&torch->doc, &answer->doc);
        torch_has_read(sim, node);
    } else if (code == 100 && torch->at != MST_TORCH_FREE_DROP &&
               torch->at != MST_TORCH_JOIN_SWAP && torch->at != MST_TORCH_CALL_SWAP &&
               torch->at != MST_TORCH_CONFIRM_SWAP && torch->at != MST_TORCH_ANNOUNCE_SWAP) {
        torch_later(sim, node);
    } else {
        torch_wrote(sim, node, code);
    }
}

/* The thread that refreshes the key: one failure ends it for good. */
void mst__sim_torch_beat(struct mst__sim_legacy *sim, struct mst__sim_legacy_node *node)
{
    struct mst__sim_torch *torch = &node->torch;
    if (!torch->is_alive) {
        return;
    }
    if (sim->down_us > sim->now_us || node->cut_us > sim->now_us) {
        torch->is_alive = false;
        return;
    }
    struct mst__sim_v2_request *request = mst__sim_v2_request_new();
    request->node = node->index;
    request->life = node->life;
    request->serial = 0; /* the answer is not needed */
    request->verb = MST_SIM_V2_PUT;
    request->key = torch_rank_key(torch);
    request->condition = MST_LEGACY_IF_PRESENT;
    request->is_refresh = true;
    request->ttl_s = 10;
    struct mst__sim_legacy_event event = {.kind = MST_SIM_LEGACY_ARRIVE, .request = request};
    mst__sim_legacy_after(sim, mst__sim_legacy_below(sim, sim->plan.delay_us_max), event);
    struct mst__sim_legacy_event again = {.kind = MST_SIM_LEGACY_BEAT,
                                          .node = node->index,
                                          .life = node->life,
                                          .serial = ++torch->beat_timer};
    mst__sim_legacy_after(sim, 5 * LATER_US, again);
}
