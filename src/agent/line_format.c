/* agent/line_format.c - prefixes from templates, and lines as JSON. */
#include "agent/line_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"

#define WORD_SIZE 300

/* Format as 2026-01-31T12:00:00.123456Z. Computes the date itself, so no time zone is read. */
static void format_time(int64_t wall_us, char ret_text[WORD_SIZE])
{
    int64_t seconds = wall_us / 1000000;
    int64_t days = seconds / 86400;
    int64_t second = seconds % 86400;
    /* Days since 0000-03-01, in eras of 400 years: leap days come last in a year. */
    int64_t z = days + 719468;
    int64_t era = z / 146097;
    int64_t doe = z % 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;
    int64_t day = doy - (153 * mp + 2) / 5 + 1;
    int64_t month = mp < 10 ? mp + 3 : mp - 9;
    int64_t year = yoe + era * 400 + (month <= 2 ? 1 : 0);
    (void)snprintf(ret_text, WORD_SIZE,
                   "%04" PRId64 "-%02" PRId64 "-%02" PRId64 "T%02" PRId64 ":%02" PRId64
                   ":%02" PRId64 ".%06" PRId64 "Z",
                   year, month, day, second / 3600, second / 60 % 60, second % 60,
                   wall_us % 1000000);
}

/* Find the value of macro @name. Returns false if there is no such macro. */
static bool find_macro(struct mst_bytes name,
                       const struct mst__line_source *source,
                       int64_t wall_us,
                       char ret_text[WORD_SIZE])
{
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"rank", source->rank},
        {"local_rank", source->local_rank},
        {"pid", source->pid},
        {"generation", source->generation},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (name.size == strlen(numbers[i].name) &&
            memcmp(name.data, numbers[i].name, name.size) == 0) {
            (void)snprintf(ret_text, WORD_SIZE, "%" PRId64, numbers[i].value);
            return true;
        }
    }
    if (name.size == 9 && memcmp(name.data, "role_name", 9) == 0) {
        (void)snprintf(ret_text, WORD_SIZE, "%s", source->role);
    } else if (name.size == 8 && memcmp(name.data, "hostname", 8) == 0) {
        (void)snprintf(ret_text, WORD_SIZE, "%s", source->hostname);
    } else if (name.size == 4 && memcmp(name.data, "time", 4) == 0) {
        format_time(wall_us, ret_text);
    } else {
        return false;
    }
    return true;
}

int mst__line_prefix(const char *template_text,
                     const struct mst__line_source *source,
                     int64_t wall_us,
                     struct mst__buf *text)
{
    size_t room = MST_OUTPUT_PREFIX_SIZE_MAX;
    int rv = 0;
    for (const char *at = template_text; *at != '\0' && rv == 0 && room > 0;) {
        char word[WORD_SIZE];
        size_t size = 1;
        struct mst_bytes piece = mst_bytes_of(at, 1);
        if (at[0] == '$' && at[1] == '{') {
            size_t name_size = strcspn(at + 2, "}");
            if (at[2 + name_size] == '}' &&
                find_macro(mst_bytes_of(at + 2, name_size), source, wall_us, word)) {
                size = name_size + 3;
                piece = mst_bytes_str(word);
            }
        }
        piece.size = piece.size < room ? piece.size : room;
        rv = mst__buf_append(text, piece);
        room -= piece.size;
        at += size;
    }
    return rv;
}

void mst__line_json(struct mst__json_writer *json,
                    const struct mst__line_source *source,
                    int64_t wall_us,
                    struct mst_bytes line,
                    bool is_part)
{
    mst__buf_clear(&json->text);
    json->code = 0;
    json->has_value = false;
    mst__json_put_begin(json, NULL, '{');
    mst__json_put_micro(json, "ts", wall_us);
    mst__json_put_text(json, "level", mst_bytes_str("info"));
    mst__json_put_text(json, "host", mst_bytes_str(source->hostname));
    mst__json_put_text(json, "role", mst_bytes_str(source->role));
    mst__json_put_number(json, "rank", source->rank);
    mst__json_put_number(json, "local_rank", source->local_rank);
    mst__json_put_number(json, "generation", source->generation);
    mst__json_put_text(json, "stream", mst_bytes_str(source->is_stderr ? "stderr" : "stdout"));
    mst__json_put_text(json, "msg", line);
    if (is_part) {
        mst__json_put_bool(json, "part", true);
    }
    mst__json_put_end(json, '}');
}

bool mst__line_matches(struct mst_bytes line, const char *const *filters)
{
    for (; filters != NULL && *filters != NULL; filters++) {
        size_t size = strlen(*filters);
        const uint8_t *at = line.data;
        size_t left = line.size;
        while (left >= size) {
            const uint8_t *found = memchr(at, (*filters)[0], left - size + 1);
            if (found == NULL) {
                break;
            }
            if (memcmp(found, *filters, size) == 0) {
                return true;
            }
            left -= (size_t)(found - at) + 1;
            at = found + 1;
        }
    }
    return false;
}
