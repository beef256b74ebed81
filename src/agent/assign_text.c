/* agent/assign_text.c - ranks as prefix sums, and the messages of nodes as text. No I/O. */
#include <stdio.h>
#include <string.h>

#include "agent/assign.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/unicode.h"

/* Maximum number of workers of a node, and of a job. */
#define NPROC_MAX 65536
#define RANK_MAX ((int64_t)1 << 40)

/* --- reading --- */

static bool is_one_of(uint8_t byte, const char *bytes)
{
    return byte != '\0' && strchr(bytes, byte) != NULL;
}

static void skip_blanks(struct mst_bytes *text)
{
    while (text->size > 0 && is_one_of(text->data[0], " \t\r\n")) {
        *text = mst__bytes_skip(*text, 1);
    }
}

/* Take @c and the blanks around it. */
static bool take(struct mst_bytes *text, char c)
{
    skip_blanks(text);
    if (text->size == 0 || text->data[0] != (uint8_t)c) {
        return false;
    }
    *text = mst__bytes_skip(*text, 1);
    skip_blanks(text);
    return true;
}

/* Take a string. *ret_string is the text between the quotes, with its escapes. */
static bool take_string(struct mst_bytes *text, struct mst_bytes *ret_string)
{
    if (!take(text, '"')) {
        return false;
    }
    size_t size = 0;
    while (size < text->size && text->data[size] != '"') {
        size += text->data[size] == '\\' ? 2 : 1;
    }
    if (size >= text->size) {
        return false;
    }
    *ret_string = mst_bytes_of(text->data, size);
    *text = mst__bytes_skip(*text, size + 1);
    return true;
}

static bool take_number(struct mst_bytes *text, int64_t min, int64_t max, int64_t *ret_number)
{
    size_t size = 0;
    skip_blanks(text);
    while (size < text->size && is_one_of(text->data[size], "-0123456789")) {
        size++;
    }
    bool is_number = mst__number_parse(mst_bytes_of(text->data, size), min, max, ret_number);
    *text = mst__bytes_skip(*text, size);
    return is_number;
}

bool mst__role_info_read(struct mst_bytes text, struct mst__role_info *ret_info)
{
    bool has_role = false;
    bool has_nproc = false;
    if (!take(&text, '{')) {
        return false;
    }
    do {
        struct mst_bytes name;
        int64_t ignored = 0;
        bool is_fine = take_string(&text, &name) && take(&text, ':');
        if (is_fine && mst__bytes_equal(name, mst_bytes_str("role"))) {
            is_fine = take_string(&text, &ret_info->role);
            has_role = true;
        } else if (is_fine && mst__bytes_equal(name, mst_bytes_str("local_world_size"))) {
            is_fine = take_number(&text, 1, NPROC_MAX, &ret_info->nproc);
            has_nproc = true;
        } else if (is_fine) {
            is_fine = take_number(&text, INT64_MIN, INT64_MAX, &ignored);
        }
        if (!is_fine) {
            return false;
        }
    } while (take(&text, ','));
    return take(&text, '}') && text.size == 0 && has_role && has_nproc;
}

bool mst__assigned_ranks_read(struct mst_bytes text, struct mst__assignment *ret_assignment)
{
    int64_t *const numbers[] = {&ret_assignment->first_rank, &ret_assignment->world_size,
                                &ret_assignment->role_first_rank, &ret_assignment->role_world_size};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (!take(&text, i == 0 ? '[' : ',') || !take_number(&text, 0, RANK_MAX, numbers[i])) {
            return false;
        }
    }
    return take(&text, ']') && text.size == 0;
}

/* --- writing --- */

static int write_unit(struct mst__buf *text, uint32_t unit)
{
    char escape[8];
    int size = snprintf(escape, sizeof escape, "\\u%04x", (unsigned)unit);
    return mst__buf_append(text, mst_bytes_of(escape, (size_t)size));
}

/* The letter of the short escape of @c; 0 if it has none. */
static char escape_letter(uint32_t c)
{
    static const char pairs[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    for (size_t i = 0; pairs[i] != '\0'; i += 2) {
        if (c == (uint32_t)pairs[i]) {
            return pairs[i + 1];
        }
    }
    return '\0';
}

int mst__role_write(struct mst__buf *text, const char *role)
{
    struct mst_bytes rest = mst_bytes_str(role);
    int rv = mst__buf_append(text, mst_bytes_str("\""));
    while (rest.size > 0 && rv == 0) {
        uint32_t c = 0;
        size_t size = mst__unicode_next(rest, &c);
        c = size == 0 ? 0xfffd : c;
        char letter = escape_letter(c);
        if (letter != '\0') {
            const char pair[] = {'\\', letter};
            rv = mst__buf_append(text, mst_bytes_of(pair, 2));
        } else if (c >= 0x20 && c < 0x7f) {
            rv = mst__buf_append_u8(text, (uint8_t)c);
        } else if (c < 0x10000) {
            rv = write_unit(text, c);
        } else {
            rv = write_unit(text, 0xd800 + ((c - 0x10000) >> 10));
            rv = rv == 0 ? write_unit(text, 0xdc00 + ((c - 0x10000) & 0x3ff)) : rv;
        }
        rest = mst__bytes_skip(rest, size == 0 ? 1 : size);
    }
    return rv == 0 ? mst__buf_append(text, mst_bytes_str("\"")) : rv;
}

/* --- prefix sums --- */

struct role_sum {
    struct mst_bytes role;
    int64_t sum;
};

/* Find or add the sum of @role. Jobs have few roles, so a list is fast enough. */
static int64_t *find_sum(struct role_sum *sums, size_t *count, struct mst_bytes role)
{
    for (size_t i = 0; i < *count; i++) {
        if (mst__bytes_equal(sums[i].role, role)) {
            return &sums[i].sum;
        }
    }
    sums[*count] = (struct role_sum){.role = role};
    return &sums[(*count)++].sum;
}

int mst__assign_compute(const struct mst__role_info *infos,
                        size_t count,
                        struct mst__assignment *ret_assignments)
{
    struct role_sum *sums = mst__calloc(count, sizeof *sums);
    size_t sums_count = 0;
    int64_t world = 0;
    if (sums == NULL) {
        return MST_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        int64_t *sum = find_sum(sums, &sums_count, infos[i].role);
        ret_assignments[i].first_rank = world;
        ret_assignments[i].role_first_rank = *sum;
        world += infos[i].nproc;
        *sum += infos[i].nproc;
    }
    for (size_t i = 0; i < count; i++) {
        ret_assignments[i].world_size = world;
        ret_assignments[i].role_world_size = *find_sum(sums, &sums_count, infos[i].role);
    }
    mst__free(sums);
    return 0;
}
