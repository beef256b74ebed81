/* snapshot/fold.c - finds the number in which neighbouring names differ. */
#include "snapshot/fold.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/text.h"

#define DIGITS_MAX 9 /* digits of a number in a range */
#define FOLDED_MIN 3 /* fewer names are shorter without a range */

static bool is_digit(struct mst_bytes text, size_t at)
{
    return at < text.size && text.data[at] >= '0' && text.data[at] <= '9';
}

struct mst_bytes mst__fold_host(struct mst_bytes node)
{
    size_t size = node.size;
    for (int part = 0; part < 2; part++) {
        size_t digits = 0;
        while (digits < size && is_digit(node, size - 1 - digits)) {
            digits++;
        }
        if (digits == 0 || digits + 1 >= size || node.data[size - 1 - digits] != '_') {
            return node;
        }
        size -= digits + 1;
    }
    return mst_bytes_of(node.data, size);
}

/* A number in a name. */
struct number {
    size_t at, size; /* where */
    int64_t value;
};

/* The digits of @name from @at on; false if there are none, or too many. */
static bool number_read(struct mst_bytes name, size_t at, struct number *ret_number)
{
    *ret_number = (struct number){.at = at};
    while (is_digit(name, at + ret_number->size)) {
        ret_number->value = ret_number->value * 10 + (name.data[at + ret_number->size] - '0');
        if (++ret_number->size > DIGITS_MAX) {
            return false;
        }
    }
    return ret_number->size > 0;
}

static struct mst_bytes behind(struct mst_bytes name, const struct number *number)
{
    return mst__bytes_skip(name, number->at + number->size);
}

/* Whether @b is @a with one number increased by one. */
static bool follows(struct mst_bytes a,
                    struct mst_bytes b,
                    struct number *ret_a,
                    struct number *ret_b)
{
    size_t at = 0;
    while (at < a.size && at < b.size && a.data[at] == b.data[at]) {
        at++;
    }
    while (at > 0 && is_digit(a, at - 1)) {
        at--;
    }
    if (!number_read(a, at, ret_a) || !number_read(b, at, ret_b) ||
        ret_b->value != ret_a->value + 1) {
        return false;
    }
    bool is_padded = a.data[at] == '0' || b.data[at] == '0';
    return (!is_padded || ret_a->size == ret_b->size) &&
           mst__bytes_equal(behind(a, ret_a), behind(b, ret_b));
}

/* The number of equal names at the start. */
static size_t count_equal(const struct mst_bytes *names, size_t count)
{
    size_t equal = 1;
    while (equal < count && mst__bytes_equal(names[0], names[equal])) {
        equal++;
    }
    return equal;
}

/* Names at the start that make one part. */
struct run {
    size_t count;    /* names, including repeated ones */
    size_t distinct; /* different names */
    struct number first;
    struct mst_bytes last; /* the name, */
    struct number last_number;
};

static struct run run_read(const struct mst_bytes *names, size_t count)
{
    struct run run = {.count = count_equal(names, count), .distinct = 1, .last = names[0]};
    while (run.count < count) {
        struct number a;
        struct number b;
        if (!follows(run.last, names[run.count], &a, &b) ||
            (run.distinct > 1 && a.at != run.first.at)) {
            break;
        }
        run.first = run.distinct == 1 ? a : run.first;
        run.last = names[run.count];
        run.last_number = b;
        run.distinct++;
        run.count += count_equal(names + run.count, count - run.count);
    }
    if (run.distinct < FOLDED_MIN) {
        run = (struct run){.count = count_equal(names, count), .distinct = 1};
    }
    return run;
}

static void put_run(struct mst__buf *text, int *rv, struct mst_bytes name, const struct run *run)
{
    if (run->distinct == 1) {
        (void)mst__text_put_foreign(text, rv, name);
        return;
    }
    (void)mst__text_put_foreign(text, rv, mst_bytes_of(name.data, run->first.at));
    mst__text_put(text, rv, "[%.*s-%.*s]", (int)run->first.size,
                  (const char *)name.data + run->first.at, (int)run->last_number.size,
                  (const char *)run->last.data + run->last_number.at);
    (void)mst__text_put_foreign(text, rv, behind(name, &run->first));
}

void mst__fold_put(struct mst__buf *text, int *rv, const struct mst_bytes *names, size_t count)
{
    size_t parts = 0;
    for (size_t i = 0; i < count;) {
        if (parts == MST_NAMES_SHOWN) {
            mst__text_put(text, rv, " and %zu more", count - i);
            return;
        }
        struct run run = run_read(names + i, count - i);
        mst__text_put(text, rv, "%s", parts == 0 ? "" : ", ");
        put_run(text, rv, names[i], &run);
        i += run.count;
        parts++;
    }
}
