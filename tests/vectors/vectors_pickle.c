/* vectors/vectors_pickle.c - serialized states: each is read, compared with its content, written by
 * ours in its dialect and read again; what is to be refused is refused. */
#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/mem.h"
#include "codec/pickle.h"
#include "vectors/vectors.h"

/* --- reading a vector --- */

static int hex_digit(char digit)
{
    return digit >= '0' && digit <= '9'   ? digit - '0'
           : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                                          : -1;
}

/* The bytes that are written in @hex, in a block of exactly their size. NULL when it is not hex. */
static uint8_t *read_hex(const char *hex, size_t *ret_size)
{
    size_t size = hex == NULL ? 1 : strlen(hex);
    uint8_t *bytes = size % 2 != 0 ? NULL : mst__malloc(size == 0 ? 1 : size / 2);
    for (size_t i = 0; bytes != NULL && i < size / 2; i++) {
        int high = hex_digit(hex[2 * i]);
        int low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0) {
            mst__free(bytes);
            return NULL;
        }
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    *ret_size = size / 2;
    return bytes;
}

static bool is_leap(int year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* Microseconds since 1970 of {"iso": "2026-05-08T13:37:45.123456", ...}, counted year by year so
 * that it shares nothing with the code under test. */
static int read_iso(const json_t *json, int64_t *ret_us)
{
    static const int month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day, hour, minute, second, us;
    const char *iso = vectors_text(json, "iso");
    if (iso == NULL || sscanf(iso, "%4d-%2d-%2dT%2d:%2d:%2d.%6d", &year, &month, &day, &hour,
                              &minute, &second, &us) != 7) {
        return -1;
    }
    int64_t days = day - 1;
    for (int i = 1970; i < year; i++) {
        days += is_leap(i) ? 366 : 365;
    }
    for (int i = year; i < 1970; i++) {
        days -= is_leap(i) ? 366 : 365;
    }
    for (int i = 0; i < month - 1; i++) {
        days += month_days[i] + (i == 1 && is_leap(year) ? 1 : 0);
    }
    *ret_us = (((days * 24 + hour) * 60 + minute) * 60 + second) * INT64_C(1000000) + us;
    return 0;
}

static int read_member(struct mst__state *state, const json_t *json, mst__peer_id *ret_id)
{
    const json_t *addr = json_object_get(json, "addr");
    struct mst__node node = {
        .addr = mst_bytes_of(json_string_value(addr), json_string_length(addr)),
        .pid = vectors_int(json, "pid"),
        .local_id = vectors_int(json, "local_id"),
    };
    return addr == NULL || mst__state_obtain(state, &node, ret_id) != 0 ? -1 : 0;
}

static int read_set(struct mst__state *state,
                    const json_t *json,
                    int (*put)(struct mst__state *state, mst__peer_id id))
{
    size_t i;
    json_t *item;
    json_array_foreach(json, i, item)
    {
        mst__peer_id id;
        if (read_member(state, item, &id) != 0 || put(state, id) != 0) {
            return -1;
        }
    }
    return 0;
}

/* What a vector says is in it. The dialect is what can be told from an empty record, too. */
static int read_content(const json_t *vector, struct mst__state *ret_state)
{
    const json_t *content = json_object_get(vector, "content");
    const json_t *deadline = json_object_get(content, "deadline");
    ret_state->round = vectors_int(content, "round");
    ret_state->complete = vectors_bool(content, "complete");
    ret_state->closed = vectors_bool(content, "closed");
    ret_state->has_deadline = json_is_object(deadline);
    if (ret_state->has_deadline && read_iso(deadline, &ret_state->deadline_us) != 0) {
        return -1;
    }
    size_t i;
    json_t *item;
    mst__peer_id id;
    json_array_foreach(json_object_get(content, "participants"), i, item)
    {
        if (read_member(ret_state, item, &id) != 0 ||
            mst__state_put_participant(ret_state, id, vectors_int(item, "rank")) != 0) {
            return -1;
        }
    }
    json_array_foreach(json_object_get(content, "last_heartbeats"), i, item)
    {
        int64_t us;
        if (read_member(ret_state, item, &id) != 0 ||
            read_iso(json_object_get(item, "time"), &us) != 0 ||
            mst__state_put_heartbeat(ret_state, id, us) != 0) {
            return -1;
        }
    }
    const char *style = vectors_text(vector, "style");
    if (style == NULL || style[0] != 'D' || style[1] < '1' || style[1] > '4' ||
        read_set(ret_state, json_object_get(content, "wait_list"), mst__state_put_waiting) != 0 ||
        read_set(ret_state, json_object_get(content, "redundancy_list"), mst__state_put_spare) !=
            0) {
        return -1;
    }
    ret_state->dialect = (enum mst__record_dialect)(style[1] - '0');
    if (ret_state->members_count == 0 && ret_state->dialect == MST_RECORD_D2) {
        ret_state->dialect = MST_RECORD_D1;
    }
    if (ret_state->heartbeats.count == 0 && !ret_state->has_deadline &&
        ret_state->dialect == MST_RECORD_D3) {
        ret_state->dialect = MST_RECORD_D4;
    }
    return 0;
}

/* --- checking --- */

/* The names of the attributes that we do not know are in what is carried along. */
static int check_extra(const json_t *vector,
                       const struct mst__state *state,
                       char *why,
                       size_t why_size)
{
    const json_t *names = json_object_get(json_object_get(vector, "content"), "unknown_attributes");
    if (json_array_size(names) == 0 && state->extra.size != 0) {
        return vectors_differ(why, why_size, "carries %zu bytes that nobody wrote",
                              state->extra.size);
    }
    size_t i;
    json_t *name;
    json_array_foreach(names, i, name)
    {
        size_t size = json_string_length(name);
        bool is_there = false;
        for (size_t at = 0; at + size <= state->extra.size; at++) {
            is_there |= memcmp(state->extra.data + at, json_string_value(name), size) == 0;
        }
        if (!is_there) {
            return vectors_differ(why, why_size, "attribute %s is lost", json_string_value(name));
        }
    }
    return 0;
}

/* Our own writing of @state says the same, and is no longer than the compact form of the vector. */
static int check_rewrite(const json_t *vector,
                         const struct mst__state *state,
                         size_t size,
                         char *why,
                         size_t why_size)
{
    struct mst__buf output;
    mst__buf_init(&output, MST_PICKLE_SIZE_MAX);
    struct mst__state again;
    mst__state_init(&again);
    struct mst_err err = {0};
    int rv = 0;
    if (mst__pickle_write(&output, state) != 0) {
        rv = vectors_differ(why, why_size, "cannot be written");
    } else if (mst__pickle_read(mst__buf_bytes(&output), &again, &err) != 0) {
        rv = vectors_differ(why, why_size, "what we wrote is refused: %s", err.msg);
    } else if (!mst__state_equal(state, &again)) {
        (void)vectors_compare_state(&again, state, "written and read again", why, why_size);
        rv = -1;
    } else if (strstr(vectors_text(vector, "id"), "/canon_compact") != NULL &&
               mst__buf_size(&output) > size) {
        rv = vectors_differ(why, why_size, "we write %zu bytes, others %zu", mst__buf_size(&output),
                            size);
    }
    mst__state_close(&again);
    mst__buf_close(&output);
    return rv;
}

static int check_accept(const json_t *vector, struct mst_bytes bytes, char *why, size_t why_size)
{
    struct mst__state wanted;
    struct mst__state got;
    mst__state_init(&wanted);
    mst__state_init(&got);
    struct mst_err err = {0};
    int rv = 0;
    if (read_content(vector, &wanted) != 0) {
        rv = vectors_differ(why, why_size, "its content is not in the described form");
    } else if (mst__pickle_read(bytes, &got, &err) != 0) {
        rv = vectors_differ(why, why_size, "refused: %s", err.msg);
    } else if (check_extra(vector, &got, why, why_size) != 0) {
        rv = -1;
    } else {
        /* Only names are known of what is carried along; the rest must be equal without it. */
        struct mst_buffer extra = got.extra;
        got.extra = (struct mst_buffer){0};
        if (!mst__state_equal(&got, &wanted)) {
            rv = vectors_differ(why, why_size, "dialect D%d, wanted D%d", (int)got.dialect,
                                (int)wanted.dialect);
            if (got.dialect == wanted.dialect) {
                (void)vectors_compare_state(&got, &wanted, "content", why, why_size);
            }
        }
        got.extra = extra;
        if (rv == 0) {
            rv = check_rewrite(vector, &got, bytes.size, why, why_size);
        }
    }
    mst__state_close(&got);
    mst__state_close(&wanted);
    return rv;
}

static int check_reject(struct mst_bytes bytes, char *why, size_t why_size)
{
    struct mst__state state;
    mst__state_init(&state);
    struct mst_err err = {0};
    int code = mst__pickle_read(bytes, &state, &err);
    int rv = 0;
    if (code != MST_EPROTO && code != MST_ELIMIT) {
        rv = vectors_differ(why, why_size, "not refused, but %d", code);
    } else if (err.code != code || err.msg[0] == '\0') {
        rv = vectors_differ(why, why_size, "refused without a reason");
    } else if (state.members_count != 0 || state.extra.size != 0) {
        rv = vectors_differ(why, why_size, "refused, but the state is not empty");
    }
    mst__state_close(&state);
    return rv;
}

void vectors_pickle_document(const json_t *document, struct vectors_count *count)
{
    static const char *const lists[] = {"vectors", "reject_vectors"};
    for (size_t list = 0; list < 2; list++) {
        size_t i;
        json_t *vector;
        json_array_foreach(json_object_get(document, lists[list]), i, vector)
        {
            char why[400] = "";
            size_t size = 0;
            uint8_t *bytes = read_hex(vectors_text(vector, "hex"), &size);
            const char *id = vectors_text(vector, "id");
            const char *expect = vectors_text(vector, "expect");
            int rv;
            if (bytes == NULL || id == NULL || expect == NULL) {
                rv = vectors_differ(why, sizeof why, "a vector has an id, expect and hex");
            } else if (strcmp(expect, "accept") == 0) {
                rv = check_accept(vector, mst_bytes_of(bytes, size), why, sizeof why);
            } else {
                rv = check_reject(mst_bytes_of(bytes, size), why, sizeof why);
            }
            vectors_count_one(count, id == NULL ? lists[list] : id, rv, why);
            mst__free(bytes);
        }
    }
}
