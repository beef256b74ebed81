/* core/authority_ranks.c - choosing the members of a round and giving them and their workers ranks.
 * Invariant: every rank from 0 to n - 1 is given once, to a different member; so are those of the
 * workers, of all and of each role. */
#include "core/authority_ranks.h"

#include <string.h>

#include "core/authority_members.h"

/* --- natural order --- */

static bool is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

/* Where the digits that start at @at are over. */
static size_t digits_end(struct mst_bytes text, size_t at)
{
    while (at < text.size && is_digit(text.data[at])) {
        at++;
    }
    return at;
}

/* The same of zeros, at most @end. */
static size_t zeros_end(struct mst_bytes text, size_t at, size_t end)
{
    while (at < end && text.data[at] == '0') {
        at++;
    }
    return at;
}

static int compare_sizes(size_t a, size_t b)
{
    return a < b ? -1 : a > b;
}

/* Compare the numbers that start at *@a_at and *@b_at, and step over them. */
static int compare_numbers(struct mst_bytes a, struct mst_bytes b, size_t *a_at, size_t *b_at)
{
    size_t a_end = digits_end(a, *a_at);
    size_t b_end = digits_end(b, *b_at);
    size_t a_start = zeros_end(a, *a_at, a_end);
    size_t b_start = zeros_end(b, *b_at, b_end);
    *a_at = a_end;
    *b_at = b_end;
    int order = compare_sizes(a_end - a_start, b_end - b_start);
    if (order == 0 && a_end > a_start) {
        order = memcmp(a.data + a_start, b.data + b_start, a_end - a_start);
    }
    return order;
}

int mst__natural_compare(struct mst_bytes a, struct mst_bytes b)
{
    size_t a_at = 0;
    size_t b_at = 0;
    while (a_at < a.size && b_at < b.size) {
        int order;
        if (is_digit(a.data[a_at]) && is_digit(b.data[b_at])) {
            order = compare_numbers(a, b, &a_at, &b_at);
        } else {
            order = (int)a.data[a_at++] - (int)b.data[b_at++];
        }
        if (order != 0) {
            return order;
        }
    }
    int order = compare_sizes(a.size - a_at, b.size - b_at);
    if (order != 0) {
        return order;
    }
    /* The same but for leading zeros: 7 before 07. */
    order = compare_sizes(a.size, b.size);
    return order != 0 || a.size == 0 ? order : memcmp(a.data, b.data, a.size);
}

/* --- sorting --- */

typedef int (*ranks_compare_fn)(const struct mst__authority *authority,
                                const struct mst__authority_member *a,
                                const struct mst__authority_member *b);

/* Merge @from[start … middle) and @from[middle … end) into @to. */
static void ranks_merge(struct mst__authority *authority,
                        ranks_compare_fn compare,
                        const uint32_t *from,
                        uint32_t *to,
                        const size_t bounds[3])
{
    size_t left = bounds[0];
    size_t right = bounds[1];
    for (size_t place = bounds[0]; place < bounds[2]; place++) {
        bool takes_left = right == bounds[2];
        if (!takes_left && left < bounds[1]) {
            authority->stats.steps++;
            takes_left = compare(authority, mst__members_at(authority, from[left]),
                                 mst__members_at(authority, from[right])) <= 0;
        }
        MST_ASSERT(takes_left ? left < bounds[1] : right < bounds[2]);
        to[place] = takes_left ? from[left++] : from[right++];
    }
}

/* Sort @indices; @work is as long. */
static void ranks_sort(struct mst__authority *authority,
                       ranks_compare_fn compare,
                       uint32_t *indices,
                       uint32_t *work,
                       size_t count)
{
    uint32_t *from = indices;
    uint32_t *to = work;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t start = 0; start < count; start += 2 * width) {
            size_t middle = start + width < count ? start + width : count;
            size_t end = middle + width < count ? middle + width : count;
            ranks_merge(authority, compare, from, to, (const size_t[3]){start, middle, end});
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != indices) {
        memcpy(indices, from, count * sizeof *indices);
    }
}

/* --- choosing --- */

uint32_t mst__authority_nodes_max(const struct mst__authority *authority)
{
    const struct mst__authority_settings *settings = &authority->settings;
    uint32_t first = authority->first_world;
    if (!settings->is_fixed || first == 0 || first >= settings->nodes_max) {
        return settings->nodes_max;
    }
    return first > settings->nodes_min ? first : settings->nodes_min;
}

static int choose_class(const struct mst__authority *authority,
                        const struct mst__authority_member *member)
{
    if (member->rank != MST_AUTHORITY_RANK_NONE) {
        return 0;
    }
    return member->pinned_rank < mst__authority_nodes_max(authority) ? 1 : 2;
}

static int choose_compare(const struct mst__authority *authority,
                          const struct mst__authority_member *a,
                          const struct mst__authority_member *b)
{
    int order = choose_class(authority, a) - choose_class(authority, b);
    return order != 0 ? order : a->order < b->order ? -1 : a->order > b->order;
}

uint32_t mst__authority_choose(struct mst__authority *authority,
                               uint32_t count_max,
                               uint32_t *chosen,
                               uint32_t *work)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < authority->members_count; i++) {
        const struct mst__authority_member *member = &authority->members[i];
        if (member->place == MST_PLACE_WAITING && !member->is_absent) {
            chosen[count++] = i;
        }
    }
    authority->stats.steps += authority->members_count;
    if (count > count_max) {
        ranks_sort(authority, choose_compare, chosen, work, count);
        count = count_max;
    }
    return count;
}

/* --- ranks --- */

static int label_compare(const struct mst__authority_member *a,
                         const struct mst__authority_member *b,
                         struct mst_bytes key)
{
    struct mst_bytes a_value = mst__authority_label_value(a, key);
    struct mst_bytes b_value = mst__authority_label_value(b, key);
    if (a_value.data == NULL || b_value.data == NULL) {
        return (a_value.data == NULL) - (b_value.data == NULL);
    }
    return mst__natural_compare(a_value, b_value);
}

/* By the labels that the run is ordered by, then by name. */
static int place_compare(const struct mst__authority *authority,
                         const struct mst__authority_member *a,
                         const struct mst__authority_member *b)
{
    const char *key = authority->settings.rank_by;
    while (*key != '\0') {
        size_t size = strcspn(key, ",");
        int order = label_compare(a, b, mst_bytes_of(key, size));
        if (order != 0) {
            return order;
        }
        key += size;
        key += *key == ',';
    }
    return mst__natural_compare(mst__authority_name(a), mst__authority_name(b));
}

/* What a pass of mst__authority_assign gives to @member; RANK_NONE = nothing. */
enum assign_pass { ASSIGN_PINNED_AGAIN, ASSIGN_PINNED, ASSIGN_STICKY };

static uint32_t assign_wish(const struct mst__authority_member *member, enum assign_pass pass)
{
    switch (pass) {
        case ASSIGN_PINNED_AGAIN:
            return member->pinned_rank == member->rank ? member->rank : MST_AUTHORITY_RANK_NONE;
        case ASSIGN_PINNED:
            return member->pinned_rank;
        case ASSIGN_STICKY:
            break;
    }
    return member->rank;
}

void mst__authority_assign(struct mst__authority *authority,
                           uint32_t *chosen,
                           uint32_t count,
                           uint32_t *work,
                           uint32_t *ret_roster)
{
    ranks_sort(authority, place_compare, chosen, work, count);
    for (uint32_t rank = 0; rank < count; rank++) {
        ret_roster[rank] = MST_INDEX_NONE;
    }
    static const enum assign_pass passes[] = {ASSIGN_PINNED_AGAIN, ASSIGN_PINNED, ASSIGN_STICKY};
    for (size_t pass = 0; pass < sizeof passes / sizeof passes[0]; pass++) {
        for (uint32_t i = 0; i < count; i++) {
            if (chosen[i] == MST_INDEX_NONE) {
                continue; /* has its rank */
            }
            uint32_t wish = assign_wish(mst__members_at(authority, chosen[i]), passes[pass]);
            if (wish < count && ret_roster[wish] == MST_INDEX_NONE) {
                ret_roster[wish] = chosen[i];
                chosen[i] = MST_INDEX_NONE;
            }
        }
    }
    uint32_t rank = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (chosen[i] == MST_INDEX_NONE) {
            continue;
        }
        while (rank < count && ret_roster[rank] != MST_INDEX_NONE) {
            rank++;
        }
        MST_ASSERT(rank < count); /* as many ranks as members */
        ret_roster[rank] = chosen[i];
    }
    authority->stats.steps += (uint64_t)count * 4;
}

/* --- workers --- */

static int role_compare(const struct mst__authority *authority,
                        const struct mst__authority_member *a,
                        const struct mst__authority_member *b)
{
    struct mst_bytes a_role = mst__authority_role(a);
    struct mst_bytes b_role = mst__authority_role(b);
    (void)authority;
    int order = compare_sizes(a_role.size, b_role.size);
    return order != 0 || a_role.size == 0 ? order : memcmp(a_role.data, b_role.data, a_role.size);
}

static bool has_one_role(const struct mst__authority *authority,
                         const uint32_t *roster,
                         uint32_t count)
{
    for (uint32_t rank = 1; rank < count; rank++) {
        if (role_compare(authority, mst__members_at(authority, roster[0]),
                         mst__members_at(authority, roster[rank])) != 0) {
            return false;
        }
    }
    return true;
}

/* Number the workers of @indices[start … end), which have one role. */
static void number_role(struct mst__authority *authority,
                        const uint32_t *indices,
                        uint32_t start,
                        uint32_t end)
{
    uint32_t first = 0;
    for (uint32_t i = start; i < end; i++) {
        struct mst__authority_member *member = mst__members_at(authority, indices[i]);
        member->worker_ranks.role_first = first;
        first += member->workers;
    }
    for (uint32_t i = start; i < end; i++) {
        mst__members_at(authority, indices[i])->worker_ranks.role_world = first;
    }
}

static void number_all(struct mst__authority *authority, const uint32_t *roster, uint32_t count)
{
    uint32_t first = 0;
    for (uint32_t rank = 0; rank < count; rank++) {
        struct mst__authority_member *member = mst__members_at(authority, roster[rank]);
        MST_ASSERT(member->workers <= MST_NPROC_MAX); /* the sum fits */
        member->worker_ranks.first = first;
        first += member->workers;
    }
    for (uint32_t rank = 0; rank < count; rank++) {
        mst__members_at(authority, roster[rank])->worker_ranks.world = first;
    }
}

void mst__authority_number_workers(struct mst__authority *authority,
                                   const uint32_t *roster,
                                   uint32_t count,
                                   uint32_t *by_role,
                                   uint32_t *work)
{
    number_all(authority, roster, count);
    authority->stats.steps += (uint64_t)count * 4;
    if (has_one_role(authority, roster, count)) {
        number_role(authority, roster, 0, count);
        return;
    }
    memcpy(by_role, roster, count * sizeof *by_role);
    ranks_sort(authority, role_compare, by_role, work, count); /* keeps the order of equal ones */
    uint32_t start = 0;
    for (uint32_t i = 1; i <= count; i++) {
        if (i == count || role_compare(authority, mst__members_at(authority, by_role[start]),
                                       mst__members_at(authority, by_role[i])) != 0) {
            number_role(authority, by_role, start, i);
            start = i;
        }
    }
}
