/* history_test.c - a test of the checker: it accepts right histories and rejects wrong ones.
 *
 * Hand-made histories are written as text, one operation per item:
 *
 *     0-1 set a; 2-3 get a; 2-9 add 1 = 1; 4-5 cas a b = done; 6-7 del yes; 8-9 check no
 *
 * times of invocation and return, `-*` for "perhaps, at any time after", `?` before the
 * operation for "perhaps, within this time". `get -` is an absent key, a result of `?` is
 * unknown. */
#include "history_test.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/prng.h"
#include "history.h"

struct example {
    const char *name;
    bool is_fine;
    const char *text;
};

static const struct example examples[] = {
    {"nothing", true, ""},
    {"one after the other", true, "0-1 set a; 2-3 get a; 4-5 del yes; 6-7 get -"},
    {"lost write", false, "0-1 set a; 2-3 get -"},
    {"stale read", false, "0-1 set a; 2-3 set b; 4-5 get a"},
    {"value from nowhere", false, "0-1 set a; 2-3 get b"},
    {"read before its write", false, "0-1 get a; 2-3 set a"},
    {"read during its write", true, "0-5 set a; 1-2 get a; 6-7 get a"},
    {"old value during a write", true, "0-1 set a; 2-9 set b; 3-4 get a; 5-6 get b"},
    {"new, then old again", false, "0-1 set a; 2-9 set b; 3-4 get b; 5-6 get a"},
    {"concurrent writes, either wins", true, "0-5 set a; 0-5 set b; 6-7 get a; 8-9 get a"},
    {"concurrent writes, both win", false, "0-5 set a; 0-5 set b; 6-7 get a; 8-9 get b"},
    {"readers see writes in different orders", false,
     "0-20 set a; 0-20 set b; 1-2 get a; 3-4 get b; 5-6 get a"},

    {"sent twice", true, "0-20 set a; ?0-20 set a; 0-20 set b; 1-2 get a; 3-4 get b; 5-6 get a"},
    {"sent twice, but not later", false,
     "0-5 set a; ?0-5 set a; 6-7 set b; 8-9 get b; 10-11 get a"},
    {"sent twice does not mean thrice", false,
     "0-20 set a; ?0-20 set a; 0-20 set b; ?0-20 set b; "
     "1-2 get a; 3-4 get b; 5-6 get a; 7-8 get b; 9-10 get a"},
    {"perhaps not at all", true, "0-1 set a; ?2-3 set b; 4-5 get a"},
    {"perhaps after all", true, "0-1 set a; ?2-3 set b; 4-5 get b"},
    {"perhaps, then gone", false, "0-1 set a; ?2-3 set b; 4-5 get b; 6-7 get a"},

    {"unknown, never happened", true, "0-1 set a; 2-* set b; 4-5 get a; 6-7 get a"},
    {"unknown, happened late", true, "0-1 set a; 2-* set b; 4-5 get a; 6-7 get b"},
    {"unknown, happened and unhappened", false, "0-1 set a; 2-* set b; 4-5 get b; 6-7 get a"},
    {"unknown, before it was sent", false, "0-1 set a; 2-3 get b; 4-* set b"},
    {"unknown add counted once", true, "0-1 add 1 = 1; 2-* add 5 = ?; 4-5 add 1 = 7"},
    {"unknown add counted twice", false, "0-1 add 1 = 1; 2-* add 5 = ?; 4-5 add 1 = 12"},
    {"unknown add not counted", true, "0-1 add 1 = 1; 2-* add 5 = ?; 4-5 add 1 = 2"},
    {"unknown add counted between", true,
     "0-1 add 1 = 1; 2-* add 5 = ?; 4-5 add 1 = 2; 6-7 add 1 = 8"},

    {"adds", true, "0-5 add 1 = 2; 0-5 add 1 = 1; 6-7 add -2 = 0; 8-9 get 0"},
    {"the same sum twice", false, "0-5 add 1 = 1; 0-5 add 1 = 1"},
    {"add out of order", false, "0-1 add 1 = 2; 2-3 add 1 = 1"},
    {"add after delete", true, "0-1 add 4 = 4; 2-3 del yes; 4-5 add 1 = 1"},
    {"add resurrects", false, "0-1 add 4 = 4; 2-3 del yes; 4-5 add 1 = 5"},

    {"compare_set", true, "0-1 set a; 2-3 cas a b = done; 4-5 cas a c = b; 6-7 get b"},
    {"two winners", false, "0-1 set a; 2-9 cas a b = done; 2-9 cas a c = done"},
    {"one winner", true, "0-1 set a; 2-9 cas a b = done; 2-9 cas a c = b"},
    {"winner that left nothing", false, "0-1 set a; 2-3 cas a b = done; 4-5 get a"},
    {"loser that wrote", false, "0-1 set a; 2-3 cas x b = a; 4-5 get b"},
    {"created", true, "0-1 cas _ a = done; 2-3 cas _ b = a; 4-5 get a"},
    {"created twice", false, "0-9 cas _ a = done; 0-9 cas _ b = done"},
    {"created twice with a delete between", true,
     "0-9 cas _ a = done; 0-9 cas _ b = done; 0-9 del yes"},
    {"absent although it is there", false, "0-1 set a; 2-3 cas x b = -"},
    {"absent", true, "0-1 cas x b = -; 2-3 get -"},
    {"unknown compare_set", true, "0-1 set a; 2-* cas a b = ?; 3-4 get a; 5-6 get b"},
    {"unknown compare_set that could not win", false, "0-1 set a; 2-* cas x b = ?; 5-6 get b"},

    {"deleted once", false, "0-1 set a; 2-9 del yes; 2-9 del yes"},
    {"deleted by one of two", true, "0-1 set a; 2-9 del yes; 2-9 del no; 10-11 get -"},
    {"check", true, "0-1 check no; 2-3 set a; 4-5 check yes; 6-7 del yes; 8-9 check no"},
    {"check misses a key", false, "0-1 set a; 2-3 check no"},
    {"check sees a ghost", false, "0-1 set a; 2-3 del yes; 4-5 check yes"},

    {"append", true, "0-1 append a; 2-3 append b; 4-5 get ab"},
    {"appends in either order", true, "0-5 append a; 0-5 append b; 6-7 get ba"},
    {"append in the wrong order", false, "0-1 append a; 2-3 append b; 4-5 get ba"},
    {"append lost", false, "0-5 append a; 0-5 append b; 6-7 get a"},
    {"append twice", false, "0-1 append a; 2-3 get aa"},
    {"unknown append", true, "0-1 append a; 2-* append b; 3-4 get a; 5-6 append c; 7-8 get abc"},
    {"unknown append that undid", false,
     "0-1 append a; 2-* append b; 3-4 get ab; 5-6 append c; 7-8 get acb"},
};

/* Copy the next word of *@text into @ret_word and step over it; empty at the end of the item. */
static void next_word(const char **text, char ret_word[32])
{
    *text += strspn(*text, " ");
    size_t size = strcspn(*text, " ;");
    MST_ASSERT(size < 32);
    memcpy(ret_word, *text, size);
    ret_word[size] = '\0';
    *text += size;
}

static char *copy(const char *text)
{
    char *result = mst__strdup(strcmp(text, "_") == 0 ? "" : text);
    MST_ASSERT(result != NULL);
    return result;
}

static void parse_result(const char **text, struct mst__history_op *op)
{
    char word[32];
    switch (op->kind) {
        case MST_HISTORY_GET:
            next_word(text, word);
            op->seen = strcmp(word, "-") == 0 ? NULL : copy(word);
            return;
        case MST_HISTORY_DELETE:
        case MST_HISTORY_CHECK:
            next_word(text, word);
            op->existed = strcmp(word, "yes") == 0;
            return;
        case MST_HISTORY_ADD:
        case MST_HISTORY_COMPARE_SET:
            next_word(text, word);
            MST_ASSERT(strcmp(word, "=") == 0);
            next_word(text, word);
            break;
        case MST_HISTORY_SET:
        case MST_HISTORY_APPEND:
            return;
    }
    if (strcmp(word, "?") == 0) {
        op->has_result = false;
    } else if (op->kind == MST_HISTORY_ADD) {
        op->sum = strtoll(word, NULL, 10);
    } else if (strcmp(word, "done") == 0) {
        op->outcome = MST_COMPARE_SET_DONE;
        op->seen = copy(op->value);
    } else if (strcmp(word, "-") == 0) {
        op->outcome = MST_COMPARE_SET_ABSENT;
    } else {
        op->outcome = MST_COMPARE_SET_DIFFERS;
        op->seen = copy(word);
    }
}

static struct mst__history_op parse_op(const char **text)
{
    struct mst__history_op op = {.has_result = true};
    *text += strspn(*text, " ");
    if (**text == '?') {
        op.is_optional = true;
        (*text)++;
    }
    char *end = NULL;
    op.invoke_ns = strtoll(*text, &end, 10);
    MST_ASSERT(*end == '-');
    if (end[1] == '*') {
        op.is_optional = true;
        op.return_ns = MST_HISTORY_FOREVER;
        *text = end + 2;
    } else {
        op.return_ns = strtoll(end + 1, &end, 10);
        *text = end;
    }
    static const char *const names[] = {"set", "get", "add", "cas", "del", "append", "check"};
    char word[32];
    next_word(text, word);
    size_t kind = 0;
    while (strcmp(word, names[kind]) != 0) {
        kind++;
        MST_ASSERT(kind < sizeof names / sizeof names[0]);
    }
    op.kind = (enum mst__history_kind)kind;
    if (op.kind == MST_HISTORY_COMPARE_SET) {
        next_word(text, word);
        op.expected = copy(word);
    }
    if (op.kind == MST_HISTORY_ADD) {
        next_word(text, word);
        op.delta = strtoll(word, NULL, 10);
    } else if (op.kind == MST_HISTORY_SET || op.kind == MST_HISTORY_APPEND ||
               op.kind == MST_HISTORY_COMPARE_SET) {
        next_word(text, word);
        op.value = copy(word);
    }
    parse_result(text, &op);
    return op;
}

static bool example_is_judged_right(const struct example *example)
{
    struct mst__history history = {0};
    const char *text = example->text;
    while (*text != '\0') {
        struct mst__history_op op = parse_op(&text);
        mst__history_add(&history, &op);
        text += strspn(text, "; ");
    }
    size_t steps = 0;
    enum mst__history_verdict verdict = mst__history_judge(&history, &steps);
    bool right = verdict == (example->is_fine ? MST_HISTORY_FINE : MST_HISTORY_BROKEN);
    if (!right) {
        (void)printf("checker: '%s' was judged %d:\n", example->name, (int)verdict);
        mst__history_print(&history, stdout);
    }
    mst__history_close(&history);
    return right;
}

/* --- histories that are right because they were made from an order --- */

/* Execute a random operation on *@state (-1 = absent) at @now, and report it with an interval
 * around that. */
static struct mst__history_op make_op(struct mst__prng *prng, int64_t now, int64_t *state)
{
    static const enum mst__history_kind kinds[] = {MST_HISTORY_ADD,    MST_HISTORY_GET,
                                                   MST_HISTORY_DELETE, MST_HISTORY_CHECK,
                                                   MST_HISTORY_ADD,    MST_HISTORY_GET};
    struct mst__history_op op = {.kind = kinds[mst__prng_below(prng, 6)], .has_result = true};
    op.invoke_ns = now - (int64_t)mst__prng_below(prng, 60);
    op.return_ns = now + 1 + (int64_t)mst__prng_below(prng, 60);
    char text[32];
    op.existed = *state >= 0;
    if (op.kind == MST_HISTORY_GET && *state >= 0) {
        (void)snprintf(text, sizeof text, "%lld", (long long)*state);
        op.seen = copy(text);
    } else if (op.kind == MST_HISTORY_ADD) {
        op.delta = 1 + (int64_t)mst__prng_below(prng, 3);
        *state = (*state < 0 ? 0 : *state) + op.delta;
        op.sum = *state;
    } else if (op.kind == MST_HISTORY_DELETE && mst__prng_below(prng, 3) == 0) {
        *state = -1;
    } else if (op.kind == MST_HISTORY_DELETE) {
        op.kind = MST_HISTORY_CHECK;
    }
    bool is_write = op.kind == MST_HISTORY_ADD || op.kind == MST_HISTORY_DELETE;
    if (is_write && mst__prng_below(prng, 12) == 0) {
        op.has_result = false;
        op.is_optional = true;
        op.return_ns = MST_HISTORY_FOREVER;
    }
    return op;
}

/* Random histories are accepted; with an impossible sum they are not. */
static int judge_random(uint64_t seed)
{
    struct mst__prng prng;
    mst__prng_init(&prng, seed);
    struct mst__history history = {0};
    int64_t state = -1;
    size_t last_add = SIZE_MAX;
    for (int i = 0; i < 60; i++) {
        struct mst__history_op op = make_op(&prng, 1000 + 10 * i, &state);
        if (op.kind == MST_HISTORY_ADD && op.has_result) {
            last_add = history.count;
        }
        mst__history_add(&history, &op);
    }
    int wrong = 0;
    size_t steps = 0;
    if (mst__history_judge(&history, &steps) != MST_HISTORY_FINE) {
        (void)printf("checker: a history made from an order was rejected, seed %llu\n",
                     (unsigned long long)seed);
        mst__history_print(&history, stdout);
        wrong++;
    }
    if (last_add != SIZE_MAX) {
        /* All deltas together are less. */
        history.ops[last_add].sum += 1000;
        if (mst__history_judge(&history, &steps) != MST_HISTORY_BROKEN) {
            (void)printf("checker: an impossible sum was accepted, seed %llu\n",
                         (unsigned long long)seed);
            wrong++;
        }
    }
    mst__history_close(&history);
    return wrong;
}

int mst__history_self_test(void)
{
    int wrong = 0;
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        wrong += !example_is_judged_right(&examples[i]);
    }
    for (uint64_t seed = 1; seed <= 200; seed++) {
        wrong += judge_random(seed);
    }
    return wrong;
}
