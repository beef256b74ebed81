/* sim/legacy/store.c - a model of etcd's v2 keys: indexes, TTLs, conditions, long polls, and a
 * history that ends. */
#include "base/assert.h"
#include "base/mem.h"
#include "base/number.h"
#include "sim/legacy/legacy.h"

struct mst__sim_v2_request *mst__sim_v2_request_new(void)
{
    struct mst__sim_v2_request *request = mst__malloc(sizeof *request);
    MST_ASSERT(request != NULL);
    *request = (struct mst__sim_v2_request){.ttl_s = MST_LEGACY_NO_TTL};
    return request;
}

void mst__sim_v2_request_free(struct mst__sim_v2_request *request)
{
    if (request != NULL) {
        mst__free(request->key);
        mst__legacy_doc_close(&request->previous);
        mst__legacy_doc_close(&request->doc);
        mst__free(request);
    }
}

void mst__sim_v2_answer_free(struct mst__sim_v2_answer *answer)
{
    if (answer == NULL) {
        return;
    }
    mst__legacy_doc_close(&answer->doc);
    for (size_t i = 0; i < answer->entry_count; i++) {
        mst__free((void *)(uintptr_t)answer->entries[i].name);
        mst__free((void *)(uintptr_t)answer->entries[i].value.data);
    }
    mst__free(answer->entries);
    mst__free(answer);
}

static void copy_doc(struct mst__legacy_doc *to, const struct mst__legacy_doc *from)
{
    int rv = mst__legacy_doc_copy(to, from);
    MST_ASSERT(rv == 0);
}

static struct mst__sim_v2_answer *answer_new(const struct mst__sim_legacy *sim, int code)
{
    struct mst__sim_v2_answer *answer = mst__malloc(sizeof *answer);
    MST_ASSERT(answer != NULL);
    *answer = (struct mst__sim_v2_answer){.code = code, .index = sim->v2.index};
    return answer;
}

static void key_close(struct mst__sim_v2_key *key)
{
    mst__free(key->key);
    mst__legacy_doc_close(&key->doc);
}

void mst__sim_v2_close(struct mst__sim_v2 *v2)
{
    for (size_t i = 0; i < v2->count; i++) {
        key_close(&v2->keys[i]);
    }
    mst__free(v2->keys);
    for (size_t i = 0; i < MST_SIM_LEGACY_HISTORY; i++) {
        mst__free(v2->past[i].key);
        mst__legacy_doc_close(&v2->past[i].doc);
    }
    for (size_t i = 0; i < v2->watch_count; i++) {
        mst__sim_v2_request_free(v2->watches[i].request);
    }
    mst__free(v2->watches);
}

static struct mst__sim_v2_key *key_find(struct mst__sim_v2 *v2, const char *name)
{
    for (size_t i = 0; i < v2->count; i++) {
        if (strcmp(v2->keys[i].key, name) == 0) {
            return &v2->keys[i];
        }
    }
    return NULL;
}

static bool is_active(const char *key)
{
    size_t size = strlen(key);
    return size >= 14 && strcmp(key + size - 14, "active_version") == 0;
}

const struct mst__legacy_doc *mst__sim_v2_doc(const struct mst__sim_legacy *sim)
{
    for (size_t i = 0; i < sim->v2.count; i++) {
        if (is_active(sim->v2.keys[i].key)) {
            return &sim->v2.keys[i].doc;
        }
    }
    return NULL;
}

uint64_t mst__sim_v2_doc_index(const struct mst__sim_legacy *sim)
{
    for (size_t i = 0; i < sim->v2.count; i++) {
        if (is_active(sim->v2.keys[i].key)) {
            return sim->v2.keys[i].modified;
        }
    }
    return 0;
}

/* --- history and watches --- */

static void answer_past(struct mst__sim_v2_answer *answer, const struct mst__sim_v2_past *past)
{
    answer->index = past->index;
    answer->modified = past->index;
    answer->code = past->is_gone ? 100 : 0;
    answer->has_doc = past->has_doc;
    if (past->has_doc) {
        copy_doc(&answer->doc, &past->doc);
    }
}

static bool past_matches(const struct mst__sim_v2_past *past,
                         const struct mst__sim_v2_request *request)
{
    return !past->is_silent && past->index >= request->from_index &&
           (request->verb == MST_SIM_V2_WAIT_TREE || strcmp(past->key, request->key) == 0);
}

static void watch_wake(struct mst__sim_legacy *sim, const struct mst__sim_v2_past *past)
{
    struct mst__sim_v2 *v2 = &sim->v2;
    for (size_t i = v2->watch_count; i-- > 0;) {
        struct mst__sim_v2_request *request = v2->watches[i].request;
        if (past_matches(past, request)) {
            v2->watches[i] = v2->watches[--v2->watch_count];
            struct mst__sim_v2_answer *answer = answer_new(sim, 0);
            answer_past(answer, past);
            mst__sim_legacy_reply(sim, request, answer);
            mst__sim_v2_request_free(request);
        }
    }
}

void mst__sim_v2_hangup(struct mst__sim_legacy *sim)
{
    struct mst__sim_v2 *v2 = &sim->v2;
    for (size_t i = 0; i < v2->watch_count; i++) {
        struct mst__sim_v2_request *request = v2->watches[i].request;
        struct mst__sim_legacy_event event = {.kind = MST_SIM_LEGACY_REFUSED,
                                              .node = request->node,
                                              .life = request->life,
                                              .serial = request->serial};
        mst__sim_legacy_after(sim, mst__sim_legacy_below(sim, sim->plan.delay_us_max), event);
        mst__sim_v2_request_free(request);
    }
    v2->watch_count = 0;
}

static void past_add(struct mst__sim_legacy *sim,
                     const struct mst__sim_v2_key *key,
                     bool is_gone,
                     bool is_silent)
{
    struct mst__sim_v2 *v2 = &sim->v2;
    struct mst__sim_v2_past *past = &v2->past[v2->index % MST_SIM_LEGACY_HISTORY];
    mst__free(past->key);
    mst__legacy_doc_close(&past->doc);
    *past = (struct mst__sim_v2_past){
        .index = v2->index,
        .key = mst__strdup(key->key),
        .is_gone = is_gone,
        .is_silent = is_silent,
        .has_doc = !is_gone && key->has_doc,
    };
    MST_ASSERT(past->key != NULL);
    if (past->has_doc) {
        copy_doc(&past->doc, &key->doc);
    }
    if (!is_silent) {
        watch_wake(sim, past);
    }
}

static void serve_wait(struct mst__sim_legacy *sim, struct mst__sim_v2_request *request)
{
    struct mst__sim_v2 *v2 = &sim->v2;
    uint64_t oldest =
        v2->index < MST_SIM_LEGACY_HISTORY ? 1 : v2->index - MST_SIM_LEGACY_HISTORY + 1;
    if (request->from_index < oldest) {
        mst__sim_legacy_reply(sim, request, answer_new(sim, 401));
        mst__sim_v2_request_free(request);
        return;
    }
    for (uint64_t index = request->from_index; index <= v2->index; index++) {
        const struct mst__sim_v2_past *past = &v2->past[index % MST_SIM_LEGACY_HISTORY];
        if (past_matches(past, request)) {
            struct mst__sim_v2_answer *answer = answer_new(sim, 0);
            answer_past(answer, past);
            mst__sim_legacy_reply(sim, request, answer);
            mst__sim_v2_request_free(request);
            return;
        }
    }
    size_t size = (v2->watch_count + 1) * sizeof *v2->watches;
    v2->watches = mst__realloc(v2->watches, size);
    MST_ASSERT(v2->watches != NULL);
    v2->watches[v2->watch_count++].request = request;
}

/* --- writing --- */

static void key_remove(struct mst__sim_legacy *sim,
                       struct mst__sim_v2_key *key,
                       const struct mst__sim_v2_request *request)
{
    struct mst__sim_v2 *v2 = &sim->v2;
    struct mst__sim_v2_key gone = *key;
    *key = v2->keys[--v2->count];
    v2->index++;
    past_add(sim, &gone, true, false);
    if (is_active(gone.key)) {
        mst__sim_legacy_stored(sim, request, NULL);
    }
    key_close(&gone);
}

void mst__sim_v2_expire(struct mst__sim_legacy *sim)
{
    for (size_t i = 0; i < sim->v2.count;) {
        struct mst__sim_v2_key *key = &sim->v2.keys[i];
        if (key->has_ttl && key->expires_us <= sim->now_us) {
            mst__sim_legacy_say(sim, UINT32_MAX, "expires %s", key->key);
            mst__sim_legacy_expired(sim, key);
            key_remove(sim, key, NULL);
        } else {
            i++;
        }
    }
}

static bool text_equal(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static bool nonces_equal(const struct mst__legacy_nonces *a, const struct mst__legacy_nonces *b)
{
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->items, b->items, a->count * sizeof *a->items) == 0);
}

/* Whether two documents have the same text. */
static bool doc_equal(const struct mst__legacy_doc *a, const struct mst__legacy_doc *b)
{
    bool is_equal = a->status == b->status && a->version == b->version &&
                    a->participant_count == b->participant_count &&
                    a->keep_alive_count == b->keep_alive_count &&
                    a->waiting_count == b->waiting_count && a->has_muster == b->has_muster &&
                    a->nodes_min == b->nodes_min && a->nodes_max == b->nodes_max &&
                    a->creator == b->creator && nonces_equal(&a->nodes, &b->nodes) &&
                    nonces_equal(&a->waiting, &b->waiting) && nonces_equal(&a->left, &b->left);
    for (size_t i = 0; is_equal && i < a->keep_alive_count; i++) {
        is_equal = text_equal(a->keep_alives[i], b->keep_alives[i]);
    }
    return is_equal;
}

/* etcd's code for the condition of @request. */
static int write_check(const struct mst__sim_v2_request *request, const struct mst__sim_v2_key *key)
{
    if (request->has_previous) {
        return key == NULL ? 100 : doc_equal(&key->doc, &request->previous) ? 0 : 101;
    }
    switch (request->condition) {
        case MST_LEGACY_ALWAYS:
            return 0;
        case MST_LEGACY_IF_ABSENT:
            return key == NULL ? 0 : 105;
        case MST_LEGACY_IF_PRESENT:
            return key != NULL ? 0 : 100;
        case MST_LEGACY_IF_INDEX:
            MST_ASSERT(request->previous_index != 0);
            return key == NULL ? 100 : key->modified == request->previous_index ? 0 : 101;
    }
    return 0;
}

static struct mst__sim_v2_key *key_new(struct mst__sim_v2 *v2, const char *name)
{
    v2->keys = mst__realloc(v2->keys, (v2->count + 1) * sizeof *v2->keys);
    MST_ASSERT(v2->keys != NULL);
    struct mst__sim_v2_key *key = &v2->keys[v2->count++];
    *key = (struct mst__sim_v2_key){.key = mst__strdup(name)};
    MST_ASSERT(key->key != NULL);
    return key;
}

static void serve_put(struct mst__sim_legacy *sim, const struct mst__sim_v2_request *request)
{
    struct mst__sim_v2 *v2 = &sim->v2;
    struct mst__sim_v2_key *key = key_find(v2, request->key);
    int code = write_check(request, key);
    if (code != 0) {
        mst__sim_legacy_reply(sim, request, answer_new(sim, code));
        return;
    }
    key = key == NULL ? key_new(v2, request->key) : key;
    key->is_dir = request->is_dir || (key->is_dir && request->is_refresh);
    v2->index++;
    key->modified = v2->index;
    key->has_ttl = request->ttl_s != MST_LEGACY_NO_TTL;
    if (key->has_ttl) {
        key->expires_us = sim->now_us + request->ttl_s * INT64_C(1000000);
        struct mst__sim_legacy_event event = {.kind = MST_SIM_LEGACY_EXPIRE};
        /* etcd removes it a little late. */
        mst__sim_legacy_after(sim, request->ttl_s * INT64_C(1000000) + 100000, event);
    }
    if (!request->is_refresh) {
        memcpy(key->value, request->value, sizeof key->value);
        key->has_doc = request->has_doc;
        mst__legacy_doc_close(&key->doc);
        if (request->has_doc) {
            copy_doc(&key->doc, &request->doc);
        }
    }
    struct mst__sim_v2_answer *answer = answer_new(sim, 0);
    answer->modified = key->modified;
    if (request->has_doc) {
        mst__sim_legacy_stored(sim, request, &key->doc);
    }
    past_add(sim, key, false, request->is_refresh);
    mst__sim_legacy_reply(sim, request, answer);
}

static void serve_delete(struct mst__sim_legacy *sim, const struct mst__sim_v2_request *request)
{
    struct mst__sim_v2 *v2 = &sim->v2;
    struct mst__sim_v2_key *key = key_find(v2, request->key);
    int code = 0;
    if (request->is_dir) {
        size_t size = strlen(request->key);
        for (size_t i = v2->count; i-- > 0;) {
            if (strncmp(v2->keys[i].key, request->key, size) == 0 &&
                (v2->keys[i].key[size] == '/' || v2->keys[i].key[size] == '\0')) {
                key_remove(sim, &v2->keys[i], request);
            }
        }
    } else if (key == NULL) {
        code = 100;
    } else {
        code = write_check(request, key);
        if (code == 0) {
            key_remove(sim, key, request);
        }
    }
    mst__sim_legacy_reply(sim, request, answer_new(sim, code));
}

/* --- reading --- */

static void serve_get(struct mst__sim_legacy *sim, const struct mst__sim_v2_request *request)
{
    const struct mst__sim_v2_key *key = key_find(&sim->v2, request->key);
    struct mst__sim_v2_answer *answer = answer_new(sim, key == NULL ? 100 : 0);
    if (key != NULL) {
        answer->modified = key->modified;
        answer->has_doc = key->has_doc;
        memcpy(answer->value, key->value, sizeof answer->value);
        if (key->has_doc) {
            copy_doc(&answer->doc, &key->doc);
        }
    }
    mst__sim_legacy_reply(sim, request, answer);
}

static void list_add(struct mst__sim_legacy *sim,
                     struct mst__sim_v2_answer *answer,
                     const struct mst__sim_v2_key *key,
                     const char *name)
{
    answer->entries =
        mst__realloc(answer->entries, (answer->entry_count + 1) * sizeof *answer->entries);
    MST_ASSERT(answer->entries != NULL);
    int64_t left_us = key->expires_us - sim->now_us;
    answer->entries[answer->entry_count++] = (struct mst__legacy_entry){
        .name = mst__strdup(name),
        .value = mst_bytes_str(mst__strdup(key->value)),
        .has_ttl = key->has_ttl && left_us > 0,
        .ttl_s = (left_us + 999999) / 1000000,
    };
}

static void serve_list(struct mst__sim_legacy *sim, const struct mst__sim_v2_request *request)
{
    struct mst__sim_v2_answer *answer = answer_new(sim, 0);
    size_t size = strlen(request->key);
    for (size_t i = 0; i < sim->v2.count; i++) {
        const struct mst__sim_v2_key *key = &sim->v2.keys[i];
        if (strncmp(key->key, request->key, size) == 0 && key->key[size] == '/' &&
            strchr(key->key + size + 1, '/') == NULL) {
            list_add(sim, answer, key, key->key + size + 1);
        }
    }
    mst__sim_legacy_reply(sim, request, answer);
}

void mst__sim_v2_serve(struct mst__sim_legacy *sim, struct mst__sim_v2_request *request)
{
    switch (request->verb) {
        case MST_SIM_V2_GET:
            serve_get(sim, request);
            break;
        case MST_SIM_V2_PUT:
            serve_put(sim, request);
            break;
        case MST_SIM_V2_DELETE:
            serve_delete(sim, request);
            break;
        case MST_SIM_V2_LIST:
            serve_list(sim, request);
            break;
        case MST_SIM_V2_WAIT:
        case MST_SIM_V2_WAIT_TREE:
            serve_wait(sim, request); /* it keeps the request */
            return;
    }
    mst__sim_v2_request_free(request);
}
