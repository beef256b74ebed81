/* core/authority_members.c - entries, names, lists and notices of an authority's members.
 *
 * Invariants: a living member is in a list of the present or in that of the absent ones, which are
 * in the order of heard_us, unless it has finished and its round is whole; a gone one is in none. A
 * name refers to a living member, or to a gone one with a rank in the current round. An entry is
 * free if it is not living, has no name and no notice. */
#include "core/authority_members.h"

#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "core/authority_moves.h"
#include "core/saturate.h"

/* Initial entries of the table. */
#define MEMBERS_CAPACITY_MIN 16
/* Arrays in authority->arrays. */
#define ARRAYS_COUNT 4
/* Ranks in a page of places. */
#define PLACES_PAGE 128

bool mst__members_is_ranked(const struct mst__authority *authority,
                            const struct mst__authority_member *member)
{
    return member->rank != MST_AUTHORITY_RANK_NONE && member->rank < authority->world &&
           mst__places_get(authority, member->rank) == mst__members_index(authority, member);
}

/* --- memory --- */

static bool members_has_room(const struct mst__authority *authority, size_t size)
{
    size_t max = authority->memory_max;
    return max == 0 || (authority->memory_used <= max && size <= max - authority->memory_used);
}

static int members_reserve_arrays(struct mst__authority *authority, uint32_t capacity)
{
    if (capacity <= authority->arrays_capacity) {
        return 0;
    }
    size_t old_size = ARRAYS_COUNT * (size_t)authority->arrays_capacity * sizeof(uint32_t);
    size_t size = ARRAYS_COUNT * (size_t)capacity * sizeof(uint32_t);
    if (!members_has_room(authority, size)) {
        return MST_ELIMIT;
    }
    uint32_t *arrays = mst__malloc(size);
    if (arrays == NULL) {
        return MST_ENOMEM;
    }
    if (authority->lost_count > 0) {
        memcpy(arrays, authority->lost, authority->lost_count * sizeof *arrays);
    }
    mst__free(authority->arrays);
    authority->memory_used += size - old_size;
    authority->arrays = arrays;
    authority->arrays_capacity = capacity;
    authority->lost = arrays;
    return 0;
}

int mst__members_reserve(struct mst__authority *authority)
{
    uint32_t capacity = authority->members_capacity;
    bool is_full = authority->free_first == MST_INDEX_NONE && authority->members_count == capacity;
    if (is_full) {
        uint32_t more = capacity < MEMBERS_CAPACITY_MIN ? MEMBERS_CAPACITY_MIN : capacity;
        if (!members_has_room(authority, more * sizeof *authority->members)) {
            return MST_ELIMIT;
        }
        capacity += more;
        struct mst__authority_member *members =
            mst__realloc(authority->members, capacity * sizeof *members);
        if (members == NULL) {
            return MST_ENOMEM;
        }
        authority->members = members;
        authority->members_capacity = capacity;
        authority->memory_used += more * sizeof *members;
    }
    int rv = members_reserve_arrays(authority, capacity);
    return rv == 0 ? mst__places_reserve(authority, 0, capacity) : rv;
}

struct mst__authority_member *mst__members_take(struct mst__authority *authority)
{
    uint32_t generation = 1;
    uint32_t index = authority->free_first;
    if (index == MST_INDEX_NONE) {
        MST_ASSERT(authority->members_count < authority->members_capacity);
        index = authority->members_count++;
    } else {
        generation = authority->members[index].generation;
        authority->free_first = authority->members[index].pending_next;
    }
    struct mst__authority_member *member = mst__members_at(authority, index);
    *member = (struct mst__authority_member){
        .place = MST_PLACE_FREE,
        .generation = generation,
        .prev = MST_INDEX_NONE,
        .next = MST_INDEX_NONE,
        .pending_next = MST_INDEX_NONE,
        .rank = MST_AUTHORITY_RANK_NONE,
        .pinned_rank = MST_AUTHORITY_RANK_NONE,
    };
    authority->used_count++;
    return member;
}

void mst__members_drop(struct mst__authority *authority, struct mst__authority_member *member)
{
    MST_ASSERT(member->place == MST_PLACE_GONE);
    if (member->is_named || member->is_listed) {
        return;
    }
    mst__members_set_text(authority, member, NULL, 0);
    uint32_t index = mst__members_index(authority, member);
    *member = (struct mst__authority_member){
        .place = MST_PLACE_FREE,
        .generation = member->generation + 1,
        .pending_next = authority->free_first,
    };
    authority->free_first = index;
    MST_ASSERT(authority->used_count > 0);
    authority->used_count--;
}

void mst__members_close(struct mst__authority *authority)
{
    for (uint32_t i = 0; i < authority->members_count; i++) {
        mst__free(authority->members[i].text);
    }
    mst__free(authority->members);
    mst__free(authority->arrays);
    for (uint32_t i = 0; i < authority->places_pages; i++) {
        mst__free(authority->places[i]);
    }
    mst__free(authority->places);
    mst__map_close(&authority->names);
}

/* --- places --- */

uint32_t mst__places_get(const struct mst__authority *authority, uint32_t rank)
{
    uint32_t page = rank / PLACES_PAGE;
    bool is_there = page < authority->places_pages && authority->places[page] != NULL;
    return is_there ? authority->places[page][rank % PLACES_PAGE] : MST_INDEX_NONE;
}

void mst__places_set(struct mst__authority *authority, uint32_t rank, uint32_t index)
{
    MST_ASSERT(rank / PLACES_PAGE < authority->places_pages);
    uint32_t *page = authority->places[rank / PLACES_PAGE];
    MST_ASSERT(page != NULL);
    page[rank % PLACES_PAGE] = index;
}

static void page_clear(uint32_t *page)
{
    for (size_t i = 0; i < PLACES_PAGE; i++) {
        page[i] = MST_INDEX_NONE;
    }
}

void mst__places_clear(struct mst__authority *authority)
{
    for (uint32_t i = 0; i < authority->places_pages; i++) {
        if (authority->places[i] != NULL) {
            page_clear(authority->places[i]);
            authority->stats.steps += PLACES_PAGE;
        }
    }
}

static int places_reserve_table(struct mst__authority *authority, uint32_t pages)
{
    uint32_t old = authority->places_pages;
    if (pages <= old) {
        return 0;
    }
    size_t more = (pages - old) * sizeof *authority->places;
    if (!members_has_room(authority, more)) {
        return MST_ELIMIT;
    }
    uint32_t **places =
        (uint32_t **)mst__realloc((void *)authority->places, pages * sizeof *authority->places);
    if (places == NULL) {
        return MST_ENOMEM;
    }
    memset((void *)(places + old), 0, more);
    authority->places = places;
    authority->places_pages = pages;
    authority->memory_used += more;
    return 0;
}

int mst__places_reserve(struct mst__authority *authority, uint32_t first, uint32_t count)
{
    MST_ASSERT(count > 0);
    uint32_t last_page = (first + count - 1) / PLACES_PAGE;
    int rv = places_reserve_table(authority, last_page + 1);
    if (rv != 0) {
        return rv;
    }
    for (uint32_t i = first / PLACES_PAGE; i <= last_page; i++) {
        size_t size = PLACES_PAGE * sizeof(uint32_t);
        if (authority->places[i] != NULL) {
            continue;
        }
        if (!members_has_room(authority, size)) {
            return MST_ELIMIT;
        }
        authority->places[i] = mst__malloc(size);
        if (authority->places[i] == NULL) {
            return MST_ENOMEM;
        }
        page_clear(authority->places[i]);
        authority->memory_used += size;
    }
    return 0;
}

/* --- identity --- */

static mst__authority_id members_id(uint32_t index, uint32_t generation)
{
    return (uint64_t)generation << 32 | index;
}

struct mst__authority_member *mst__members_get(const struct mst__authority *authority,
                                               mst__authority_id id)
{
    uint32_t index = (uint32_t)id;
    if (index >= authority->members_count) {
        return NULL;
    }
    struct mst__authority_member *member = &authority->members[index];
    bool is_it = member->place != MST_PLACE_FREE && members_id(index, member->generation) == id;
    return is_it ? member : NULL;
}

const struct mst__authority_member *mst__authority_get(const struct mst__authority *authority,
                                                       mst__authority_id id)
{
    const struct mst__authority_member *member = mst__members_get(authority, id);
    return member != NULL && mst__members_is_living(member) ? member : NULL;
}

mst__authority_id mst__authority_id_of(const struct mst__authority *authority,
                                       const struct mst__authority_member *member)
{
    return members_id(mst__members_index(authority, member), member->generation);
}

mst__authority_id mst__authority_find(const struct mst__authority *authority, struct mst_bytes name)
{
    const struct mst__authority_member *member = mst__members_named(authority, name);
    return member != NULL && mst__members_is_living(member)
               ? mst__authority_id_of(authority, member)
               : MST_AUTHORITY_NOBODY;
}

struct mst__authority_member *mst__members_named(const struct mst__authority *authority,
                                                 struct mst_bytes name)
{
    const uint32_t *index = mst__map_get(&authority->names, name);
    return index == NULL || *index == MST_INDEX_NONE ? NULL : mst__members_at(authority, *index);
}

int mst__members_reserve_name(struct mst__authority *authority, struct mst_bytes name)
{
    if (mst__map_get(&authority->names, name) != NULL) {
        return 0;
    }
    size_t size = mst__map_cost(&authority->names, name.size);
    if (!members_has_room(authority, size)) {
        return MST_ELIMIT;
    }
    uint32_t *index = mst__map_add(&authority->names, name);
    if (index == NULL) {
        return MST_ENOMEM;
    }
    authority->memory_used += size;
    *index = MST_INDEX_NONE;
    return 0;
}

void mst__members_name(struct mst__authority *authority, struct mst__authority_member *member)
{
    uint32_t *index = mst__map_get(&authority->names, mst__authority_name(member));
    MST_ASSERT(index != NULL);
    if (*index != MST_INDEX_NONE) {
        mst__members_at(authority, *index)->is_named = false;
    }
    *index = mst__members_index(authority, member);
    member->is_named = true;
}

void mst__members_unname(struct mst__authority *authority, struct mst__authority_member *member)
{
    if (!member->is_named) {
        return;
    }
    struct mst_bytes name = mst__authority_name(member);
    uint32_t *index = mst__map_get(&authority->names, name);
    MST_ASSERT(index != NULL);
    MST_ASSERT(*index == mst__members_index(authority, member));
    mst__map_remove(&authority->names, index);
    authority->memory_used -= mst__map_cost(&authority->names, name.size);
    member->is_named = false;
}

/* --- texts --- */

static char *text_put(char *to, struct mst_bytes bytes)
{
    if (bytes.size > 0) {
        memcpy(to, bytes.data, bytes.size);
    }
    to[bytes.size] = '\0';
    return to + bytes.size + 1;
}

int mst__members_text(struct mst__authority *authority,
                      const struct mst__announcement *announcement,
                      char **ret_text,
                      uint16_t *ret_size)
{
    size_t size = announcement->name.size + 1 + announcement->address.size + 1;
    for (size_t i = 0; i < announcement->labels_count; i++) {
        const struct mst__label *label = &announcement->labels[i];
        size += label->key.size + 1 + label->value.size + 1;
    }
    size += announcement->role.size + 1;
    MST_ASSERT(size <= MST_AUTHORITY_TEXT_SIZE_MAX);
    if (!members_has_room(authority, size)) {
        return MST_ELIMIT;
    }
    char *text = mst__malloc(size);
    if (text == NULL) {
        return MST_ENOMEM;
    }
    char *to = text_put(text, announcement->name);
    to = text_put(to, announcement->address);
    for (size_t i = 0; i < announcement->labels_count; i++) {
        to = text_put(to, announcement->labels[i].key);
        to = text_put(to, announcement->labels[i].value);
    }
    to = text_put(to, announcement->role);
    MST_ASSERT(to == text + size);
    authority->memory_used += size;
    *ret_size = (uint16_t)size;
    *ret_text = text;
    return 0;
}

void mst__members_drop_text(struct mst__authority *authority, char *text, uint16_t text_size)
{
    MST_ASSERT(authority->memory_used >= text_size);
    authority->memory_used -= text_size;
    mst__free(text);
}

void mst__members_set_text(struct mst__authority *authority,
                           struct mst__authority_member *member,
                           char *text,
                           uint16_t text_size)
{
    mst__members_drop_text(authority, member->text, member->text_size);
    member->text = text;
    member->text_size = text_size;
}

/* The @index-th piece of the text. */
static struct mst_bytes text_piece(const struct mst__authority_member *member, size_t index)
{
    const char *at = member->text;
    MST_ASSERT(at != NULL);
    for (size_t i = 0; i < index; i++) {
        at += strlen(at) + 1;
        MST_ASSERT(at < member->text + member->text_size);
    }
    return mst_bytes_str(at);
}

struct mst_bytes mst__authority_name(const struct mst__authority_member *member)
{
    return text_piece(member, 0);
}

struct mst_bytes mst__authority_address(const struct mst__authority_member *member)
{
    return text_piece(member, 1);
}

struct mst_bytes mst__authority_role(const struct mst__authority_member *member)
{
    MST_ASSERT(member->role_size < member->text_size);
    return mst_bytes_of(member->text + member->text_size - member->role_size - 1,
                        member->role_size);
}

struct mst__label mst__authority_label(const struct mst__authority_member *member, size_t index)
{
    MST_ASSERT(index < member->labels_count);
    return (struct mst__label){
        .key = text_piece(member, 2 + 2 * index),
        .value = text_piece(member, 3 + 2 * index),
    };
}

struct mst_bytes mst__authority_label_value(const struct mst__authority_member *member,
                                            struct mst_bytes key)
{
    for (size_t i = 0; i < member->labels_count; i++) {
        struct mst__label label = mst__authority_label(member, i);
        if (mst__bytes_equal(label.key, key)) {
            return label.value;
        }
    }
    return mst_bytes_of(NULL, 0);
}

/* --- lists --- */

/* The list for a present member with @expiry_us. Nodes of a run usually have the same. If there are
 * more different ones than lists, those who may be silent for longer share theirs: a node is never
 * lost before its time. */
static uint8_t members_patience(struct mst__authority *authority, int64_t expiry_us)
{
    unsigned unused = MST_AUTHORITY_EXPIRIES_MAX;
    unsigned longer = MST_AUTHORITY_EXPIRIES_MAX;
    unsigned longest = 0;
    for (unsigned i = 0; i < MST_AUTHORITY_EXPIRIES_MAX; i++) {
        int64_t own_us = authority->present[i].expiry_us;
        if (authority->present[i].members.first == MST_INDEX_NONE) {
            unused = unused < MST_AUTHORITY_EXPIRIES_MAX ? unused : i;
            continue;
        }
        if (own_us == expiry_us) {
            return (uint8_t)i;
        }
        bool is_nearer =
            longer == MST_AUTHORITY_EXPIRIES_MAX || own_us < authority->present[longer].expiry_us;
        longer = own_us > expiry_us && is_nearer ? i : longer;
        longest = own_us > authority->present[longest].expiry_us ? i : longest;
    }
    if (unused == MST_AUTHORITY_EXPIRIES_MAX && longer < MST_AUTHORITY_EXPIRIES_MAX) {
        return (uint8_t)longer;
    }
    unsigned taken = unused < MST_AUTHORITY_EXPIRIES_MAX ? unused : longest;
    authority->present[taken].expiry_us = expiry_us;
    return (uint8_t)taken;
}

static struct mst__authority_list *members_list(struct mst__authority *authority,
                                                const struct mst__authority_member *member)
{
    return member->is_absent ? &authority->absent : &authority->present[member->patience].members;
}

void mst__members_link(struct mst__authority *authority, struct mst__authority_member *member)
{
    uint32_t index = mst__members_index(authority, member);
    MST_ASSERT(!member->is_linked);
    member->heard_us = authority->now_us;
    if (member->is_finished && mst__authority_is_whole(authority)) {
        return;
    }
    if (!member->is_absent) {
        member->patience = members_patience(authority, member->expiry_us);
    }
    struct mst__authority_list *list = members_list(authority, member);
    member->is_linked = true;
    member->prev = list->last;
    member->next = MST_INDEX_NONE;
    if (list->last == MST_INDEX_NONE) {
        list->first = index;
    } else {
        mst__members_at(authority, list->last)->next = index;
    }
    list->last = index;
    authority->stats.steps++;
}

void mst__members_unlink(struct mst__authority *authority, struct mst__authority_member *member)
{
    struct mst__authority_list *list = members_list(authority, member);
    if (!member->is_linked) {
        return;
    }
    member->is_linked = false;
    if (member->prev == MST_INDEX_NONE) {
        MST_ASSERT(list->first == mst__members_index(authority, member));
        list->first = member->next;
    } else {
        mst__members_at(authority, member->prev)->next = member->next;
    }
    if (member->next == MST_INDEX_NONE) {
        list->last = member->prev;
    } else {
        mst__members_at(authority, member->next)->prev = member->prev;
    }
    member->prev = MST_INDEX_NONE;
    member->next = MST_INDEX_NONE;
    authority->stats.steps++;
}

struct mst__authority_member *mst__members_next_silent(const struct mst__authority *authority,
                                                       int64_t *ret_due_us)
{
    struct mst__authority_member *next = NULL;
    *ret_due_us = INT64_MAX;
    for (unsigned i = 0; i < MST_AUTHORITY_EXPIRIES_MAX; i++) {
        const struct mst__authority_patience *present = &authority->present[i];
        if (present->members.first == MST_INDEX_NONE || present->expiry_us == INT64_MAX) {
            continue;
        }
        struct mst__authority_member *oldest = mst__members_at(authority, present->members.first);
        int64_t due_us = mst__saturate_add(oldest->heard_us, present->expiry_us);
        if (due_us < *ret_due_us) {
            next = oldest;
            *ret_due_us = due_us;
        }
    }
    return next;
}

/* --- notices --- */

void mst__members_notify(struct mst__authority *authority,
                         struct mst__authority_member *member,
                         enum mst__authority_effect_kind kind)
{
    member->pending = (uint8_t)(kind + 1);
    if (member->is_listed) {
        return;
    }
    uint32_t index = mst__members_index(authority, member);
    if (authority->pending.last == MST_INDEX_NONE) {
        authority->pending.first = index;
    } else {
        mst__members_at(authority, authority->pending.last)->pending_next = index;
    }
    authority->pending.last = index;
    member->pending_next = MST_INDEX_NONE;
    member->is_listed = true;
    authority->stats.steps++;
}

struct mst__authority_member *mst__members_next_notice(struct mst__authority *authority,
                                                       enum mst__authority_effect_kind *ret_kind)
{
    while (authority->pending.first != MST_INDEX_NONE) {
        struct mst__authority_member *member = mst__members_at(authority, authority->pending.first);
        authority->pending.first = member->pending_next;
        if (authority->pending.first == MST_INDEX_NONE) {
            authority->pending.last = MST_INDEX_NONE;
        }
        uint8_t pending = member->pending;
        member->pending = 0;
        member->is_listed = false;
        member->pending_next = MST_INDEX_NONE;
        authority->stats.steps++;
        if (pending != 0 && member->driver != NULL) {
            *ret_kind = (enum mst__authority_effect_kind)(pending - 1);
            return member;
        }
        if (member->place == MST_PLACE_GONE) {
            mst__members_drop(authority, member);
        }
    }
    return NULL;
}

/* --- iterating --- */

const struct mst__authority_member *mst__authority_next_holder(
    const struct mst__authority *authority,
    uint32_t *cursor)
{
    while (*cursor < authority->world) {
        uint32_t page = *cursor / PLACES_PAGE;
        if (page >= authority->places_pages) {
            break;
        }
        if (authority->places[page] == NULL) {
            *cursor = (page + 1) * PLACES_PAGE;
            continue;
        }
        const struct mst__authority_member *member = mst__authority_ranked(authority, *cursor);
        (*cursor)++;
        if (member != NULL && member->place == MST_PLACE_HOLDING) {
            return member;
        }
    }
    return NULL;
}

const struct mst__authority_member *mst__authority_next_member(
    const struct mst__authority *authority,
    uint32_t *cursor)
{
    while (*cursor < authority->members_count) {
        const struct mst__authority_member *member = &authority->members[*cursor];
        (*cursor)++;
        if (member->place != MST_PLACE_FREE) {
            return member;
        }
    }
    return NULL;
}

const struct mst__authority_member *mst__authority_ranked(const struct mst__authority *authority,
                                                          uint32_t rank)
{
    MST_ASSERT(rank < authority->world);
    uint32_t index = mst__places_get(authority, rank);
    bool is_there = index != MST_INDEX_NONE && index != MST_INDEX_RELEASED;
    return is_there ? mst__members_at(authority, index) : NULL;
}
