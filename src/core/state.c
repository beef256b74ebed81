/* core/state.c - the shared record: members in one array, found by hash, listed in order.
 *
 * A member is never removed from the array, so that ids stay valid; it is then in no list. Each
 * list holds ids without repetition; a flag of the member says whether it is in it. */
#include "core/state.h"

#include <stdio.h>
#include <string.h>

#include <muster/error.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/siphash.h"

static_assert(MST_MEMBERS_MAX < MST_PEER_NONE, "every id must differ from none");

/* Addresses, several per allocation. They do not move. */
struct mst__text {
    struct mst__text *next;
    size_t used;
    size_t capacity;
    uint8_t bytes[];
};

#define STATE_TEXT_SIZE_MIN 1000
#define STATE_MEMBERS_MIN 8
#define STATE_SLOTS_MIN 16

/* --- nodes --- */

int mst__node_compare(const struct mst__node *a, const struct mst__node *b)
{
    size_t size = a->addr.size < b->addr.size ? a->addr.size : b->addr.size;
    int order = size == 0 ? 0 : memcmp(a->addr.data, b->addr.data, size);
    if (order != 0) {
        return order;
    }
    if (a->addr.size != b->addr.size) {
        return a->addr.size < b->addr.size ? -1 : 1;
    }
    if (a->pid != b->pid) {
        return a->pid < b->pid ? -1 : 1;
    }
    if (a->local_id != b->local_id) {
        return a->local_id < b->local_id ? -1 : 1;
    }
    return 0;
}

void mst__node_format(const struct mst__node *node, char *ret_text, size_t ret_size)
{
    MST_ASSERT(ret_size > 0);
    int size = node->addr.size > INT32_MAX ? INT32_MAX : (int)node->addr.size;
    const char *addr = size == 0 ? "" : (const char *)node->addr.data;
    (void)snprintf(ret_text, ret_size, "%.*s_%lld_%lld", size, addr, (long long)node->pid,
                   (long long)node->local_id); /* the caller chose the size */
}

static uint64_t node_mix(uint64_t value)
{
    value = (value ^ (value >> 31)) * 0x9e3779b97f4a7c15U;
    return value ^ (value >> 29);
}

/* The key is not secret: the number of members is limited, which bounds the cost of collisions. */
static uint32_t node_hash(const struct mst__node *node)
{
    static const uint8_t key[MST_SIPHASH_KEY_SIZE] = {'m', 'u', 's', 't', 'e', 'r'};
    uint64_t hash = mst__siphash(key, node->addr.size == 0 ? (const uint8_t *)"" : node->addr.data,
                                 node->addr.size);
    hash = node_mix(hash + (uint64_t)node->pid);
    hash = node_mix(hash + (uint64_t)node->local_id);
    return (uint32_t)(hash >> 16);
}

/* --- life --- */

void mst__state_init(struct mst__state *state)
{
    *state = (struct mst__state){.dialect = MST_RECORD_D4};
}

void mst__state_close(struct mst__state *state)
{
    if (state == NULL) {
        return;
    }
    while (state->texts != NULL) {
        struct mst__text *next = state->texts->next;
        mst__free(state->texts);
        state->texts = next;
    }
    mst__free(state->members);
    mst__free(state->slots);
    mst__free(state->participants.ids);
    mst__free(state->waiting.ids);
    mst__free(state->spares.ids);
    mst__free(state->heartbeats.ids);
    mst__free(state->extra.data);
    mst__state_init(state);
}

void mst__state_move(struct mst__state *to, struct mst__state *from)
{
    MST_ASSERT(to != from);
    mst__state_close(to);
    *to = *from;
    mst__state_init(from);
}

static struct mst__text *text_new(size_t capacity)
{
    struct mst__text *text = mst__malloc(sizeof *text + capacity);
    if (text != NULL) {
        *text = (struct mst__text){.capacity = capacity};
    }
    return text;
}

/* Put @bytes into @text, which has room for them. */
static struct mst_bytes text_add(struct mst__text *text, struct mst_bytes bytes)
{
    MST_ASSERT(bytes.size <= text->capacity - text->used);
    uint8_t *place = text->bytes + text->used;
    if (bytes.size > 0) {
        memcpy(place, bytes.data, bytes.size);
    }
    text->used += bytes.size;
    return mst_bytes_of(place, bytes.size);
}

static bool members_copy(struct mst__peers *to, const struct mst__peers *from)
{
    if (from->count == 0) {
        return true;
    }
    to->ids = mst__malloc(from->count * sizeof *to->ids);
    if (to->ids == NULL) {
        return false;
    }
    memcpy(to->ids, from->ids, from->count * sizeof *to->ids);
    to->count = from->count;
    to->capacity = from->count;
    return true;
}

static bool state_copy_members(struct mst__state *to, const struct mst__state *from)
{
    size_t text_size = 0;
    for (size_t i = 0; i < from->members_count; i++) {
        text_size += from->members[i].node.addr.size;
    }
    to->members = mst__malloc(from->members_count * sizeof *to->members);
    to->slots = mst__malloc(from->slots_count * sizeof *to->slots);
    to->texts = text_new(text_size);
    if (to->members == NULL || to->slots == NULL || to->texts == NULL) {
        return false;
    }
    memcpy(to->members, from->members, from->members_count * sizeof *to->members);
    memcpy(to->slots, from->slots, from->slots_count * sizeof *to->slots);
    to->members_count = from->members_count;
    to->members_capacity = from->members_count;
    to->slots_count = from->slots_count;
    for (size_t i = 0; i < to->members_count; i++) {
        to->members[i].node.addr = text_add(to->texts, from->members[i].node.addr);
    }
    return true;
}

int mst__state_copy(struct mst__state *to, const struct mst__state *from)
{
    MST_ASSERT(to != from);
    mst__state_close(to);
    if (from->members_count > 0 && !state_copy_members(to, from)) {
        goto fail;
    }
    if (!members_copy(&to->participants, &from->participants) ||
        !members_copy(&to->waiting, &from->waiting) || !members_copy(&to->spares, &from->spares) ||
        !members_copy(&to->heartbeats, &from->heartbeats)) {
        goto fail;
    }
    if (from->extra.size > 0) {
        to->extra.data = (uint8_t *)mst__memdup(from->extra.data, from->extra.size);
        if (to->extra.data == NULL) {
            goto fail;
        }
        to->extra.size = from->extra.size;
    }
    to->round = from->round;
    to->complete = from->complete;
    to->closed = from->closed;
    to->has_deadline = from->has_deadline;
    to->deadline_us = from->deadline_us;
    to->sealed_round = from->sealed_round;
    to->sealed_count = from->sealed_count;
    to->dialect = from->dialect;
    return 0;
fail:
    mst__state_close(to);
    return MST_ENOMEM;
}

/* --- comparing --- */

static bool maps_equal(const struct mst__state *a,
                       const struct mst__peers *a_map,
                       const struct mst__state *b,
                       const struct mst__peers *b_map,
                       bool are_heartbeats)
{
    if (a_map->count != b_map->count) {
        return false;
    }
    for (size_t i = 0; i < a_map->count; i++) {
        const struct mst__peer *in_a = &a->members[a_map->ids[i]];
        const struct mst__peer *in_b = &b->members[b_map->ids[i]];
        bool values_equal = are_heartbeats ? in_a->heartbeat_us == in_b->heartbeat_us &&
                                                 in_a->is_ours == in_b->is_ours
                                           : in_a->rank == in_b->rank;
        if (!values_equal || mst__node_compare(&in_a->node, &in_b->node) != 0) {
            return false;
        }
    }
    return true;
}

static bool sets_equal(const struct mst__state *a, const struct mst__state *b, bool are_spares)
{
    const struct mst__peers *a_set = are_spares ? &a->spares : &a->waiting;
    const struct mst__peers *b_set = are_spares ? &b->spares : &b->waiting;
    if (a_set->count != b_set->count) {
        return false;
    }
    for (size_t i = 0; i < a_set->count; i++) {
        mst__peer_id id = mst__state_find(b, &a->members[a_set->ids[i]].node);
        if (id == MST_PEER_NONE ||
            !(are_spares ? b->members[id].is_spare : b->members[id].is_waiting)) {
            return false;
        }
    }
    return true;
}

bool mst__state_equal(const struct mst__state *a, const struct mst__state *b)
{
    return a->round == b->round && a->complete == b->complete && a->closed == b->closed &&
           a->has_deadline == b->has_deadline &&
           (!a->has_deadline || a->deadline_us == b->deadline_us) &&
           a->sealed_round == b->sealed_round && a->sealed_count == b->sealed_count &&
           a->dialect == b->dialect &&
           mst__bytes_equal(mst_bytes_of(a->extra.data, a->extra.size),
                            mst_bytes_of(b->extra.data, b->extra.size)) &&
           maps_equal(a, &a->participants, b, &b->participants, false) &&
           maps_equal(a, &a->heartbeats, b, &b->heartbeats, true) && sets_equal(a, b, false) &&
           sets_equal(a, b, true);
}

/* --- finding and entering --- */

/* The slot of @node, or its free slot. */
static size_t state_slot(const struct mst__state *state,
                         const struct mst__node *node,
                         uint32_t hash)
{
    size_t mask = state->slots_count - 1;
    size_t slot = hash & mask;
    while (state->slots[slot] != 0) {
        const struct mst__peer *member = &state->members[state->slots[slot] - 1];
        if (member->hash == hash && mst__node_compare(&member->node, node) == 0) {
            break;
        }
        slot = (slot + 1) & mask;
    }
    return slot;
}

mst__peer_id mst__state_find(const struct mst__state *state, const struct mst__node *node)
{
    if (state->slots_count == 0) {
        return MST_PEER_NONE;
    }
    uint32_t found = state->slots[state_slot(state, node, node_hash(node))];
    return found == 0 ? MST_PEER_NONE : found - 1;
}

/* Reserve room for one more member in the index, which is at most half full. */
static bool state_grow_slots(struct mst__state *state)
{
    if (2 * (state->members_count + 1) <= state->slots_count) {
        return true;
    }
    size_t count = state->slots_count == 0 ? STATE_SLOTS_MIN : 2 * state->slots_count;
    uint32_t *slots = mst__calloc(count, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    mst__free(state->slots);
    state->slots = slots;
    state->slots_count = count;
    for (size_t i = 0; i < state->members_count; i++) {
        size_t slot = state->members[i].hash & (count - 1);
        while (slots[slot] != 0) {
            slot = (slot + 1) & (count - 1);
        }
        slots[slot] = (uint32_t)i + 1;
    }
    return true;
}

static bool state_grow_members(struct mst__state *state)
{
    if (state->members_count < state->members_capacity) {
        return true;
    }
    size_t capacity =
        state->members_capacity == 0 ? STATE_MEMBERS_MIN : 2 * state->members_capacity;
    struct mst__peer *members = mst__realloc(state->members, capacity * sizeof *members);
    if (members == NULL) {
        return false;
    }
    state->members = members;
    state->members_capacity = capacity;
    return true;
}

static bool state_grow_texts(struct mst__state *state, size_t size)
{
    if (state->texts != NULL && size <= state->texts->capacity - state->texts->used) {
        return true;
    }
    /* Twice the last one, so that there are few. */
    size_t capacity = state->texts == NULL ? STATE_TEXT_SIZE_MIN : 2 * state->texts->capacity;
    struct mst__text *text = text_new(capacity < size ? size : capacity);
    if (text == NULL) {
        return false;
    }
    text->next = state->texts;
    state->texts = text;
    return true;
}

int mst__state_obtain(struct mst__state *state, const struct mst__node *node, mst__peer_id *ret_id)
{
    uint32_t hash = node_hash(node);
    if (state->slots_count > 0) {
        uint32_t found = state->slots[state_slot(state, node, hash)];
        if (found != 0) {
            *ret_id = found - 1;
            return 0;
        }
    }
    if (state->members_count >= MST_MEMBERS_MAX) {
        return MST_ELIMIT;
    }
    if (!state_grow_slots(state) || !state_grow_members(state) ||
        !state_grow_texts(state, node->addr.size)) {
        return MST_ENOMEM;
    }
    struct mst__peer *member = &state->members[state->members_count];
    *member = (struct mst__peer){.node = *node, .hash = hash};
    member->node.addr = text_add(state->texts, node->addr);
    size_t slot = state_slot(state, node, hash);
    MST_ASSERT(state->slots[slot] == 0);
    state->slots[slot] = (uint32_t)state->members_count + 1;
    *ret_id = (mst__peer_id)state->members_count;
    state->members_count++;
    return 0;
}

/* --- lists --- */

static struct mst__peer *state_member(struct mst__state *state, mst__peer_id id)
{
    MST_ASSERT(id < state->members_count);
    return &state->members[id];
}

static int members_add(struct mst__peers *members, mst__peer_id id)
{
    if (members->count == members->capacity) {
        size_t capacity = members->capacity == 0 ? STATE_MEMBERS_MIN : 2 * members->capacity;
        mst__peer_id *ids = mst__realloc(members->ids, capacity * sizeof *ids);
        if (ids == NULL) {
            return MST_ENOMEM;
        }
        members->ids = ids;
        members->capacity = capacity;
    }
    members->ids[members->count] = id;
    members->count++;
    return 0;
}

static void members_drop(struct mst__peers *members, mst__peer_id id)
{
    size_t index = 0;
    while (members->ids[index] != id) {
        index++;
        MST_ASSERT(index < members->count);
    }
    members->count--;
    memmove(members->ids + index, members->ids + index + 1,
            (members->count - index) * sizeof *members->ids);
}

/* @flag, a field of the member, says whether it is in @members. */
static int flag_put(struct mst__peers *members, mst__peer_id id, bool *flag)
{
    if (*flag) {
        return 0;
    }
    int rv = members_add(members, id);
    if (rv == 0) {
        *flag = true;
    }
    return rv;
}

static bool flag_drop(struct mst__peers *members, mst__peer_id id, bool *flag)
{
    if (!*flag) {
        return false;
    }
    members_drop(members, id);
    *flag = false;
    return true;
}

int mst__state_put_participant(struct mst__state *state, mst__peer_id id, int64_t rank)
{
    struct mst__peer *member = state_member(state, id);
    int rv = flag_put(&state->participants, id, &member->is_participant);
    if (rv == 0) {
        member->rank = rank;
    }
    return rv;
}

int mst__state_put_waiting(struct mst__state *state, mst__peer_id id)
{
    return flag_put(&state->waiting, id, &state_member(state, id)->is_waiting);
}

int mst__state_put_spare(struct mst__state *state, mst__peer_id id)
{
    return flag_put(&state->spares, id, &state_member(state, id)->is_spare);
}

int mst__state_put_heartbeat(struct mst__state *state, mst__peer_id id, int64_t time_us)
{
    struct mst__peer *member = state_member(state, id);
    int rv = flag_put(&state->heartbeats, id, &member->has_heartbeat);
    if (rv == 0) {
        member->heartbeat_us = time_us;
    }
    return rv;
}

bool mst__state_drop_participant(struct mst__state *state, mst__peer_id id)
{
    return flag_drop(&state->participants, id, &state_member(state, id)->is_participant);
}

bool mst__state_drop_waiting(struct mst__state *state, mst__peer_id id)
{
    return flag_drop(&state->waiting, id, &state_member(state, id)->is_waiting);
}

bool mst__state_drop_spare(struct mst__state *state, mst__peer_id id)
{
    return flag_drop(&state->spares, id, &state_member(state, id)->is_spare);
}

void mst__state_mark(struct mst__state *state, mst__peer_id id)
{
    struct mst__peer *member = state_member(state, id);
    MST_ASSERT(member->has_heartbeat);
    member->is_ours = true;
}

bool mst__state_drop_heartbeat(struct mst__state *state, mst__peer_id id)
{
    state_member(state, id)->is_ours = false;
    return flag_drop(&state->heartbeats, id, &state_member(state, id)->has_heartbeat);
}

/* --- ranks --- */

/* Sort the ids in @from by their nodes; @to has the same size. Returns the one with the result.
 * Merges runs of 1, 2, 4 ... */
static mst__peer_id *ranks_sort(const struct mst__state *state,
                                mst__peer_id *from,
                                mst__peer_id *to,
                                size_t count)
{
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t start = 0; start < count; start += 2 * width) {
            size_t middle = start + width < count ? start + width : count;
            size_t end = middle + width < count ? middle + width : count;
            size_t left = start;
            size_t right = middle;
            for (size_t place = start; place < end; place++) {
                bool takes_left =
                    right == end ||
                    (left < middle && mst__node_compare(&state->members[from[left]].node,
                                                        &state->members[from[right]].node) <= 0);
                to[place] = takes_left ? from[left++] : from[right++];
            }
        }
        mst__peer_id *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

int mst__state_assign_ranks(struct mst__state *state)
{
    size_t count = state->participants.count;
    if (count == 0) {
        return 0;
    }
    mst__peer_id *ids = mst__malloc(2 * count * sizeof *ids);
    if (ids == NULL) {
        return MST_ENOMEM;
    }
    memcpy(ids, state->participants.ids, count * sizeof *ids);
    const mst__peer_id *sorted = ranks_sort(state, ids, ids + count, count);
    for (size_t i = 0; i < count; i++) {
        state->members[sorted[i]].rank = (int64_t)i;
    }
    mst__free(ids);
    return 0;
}
