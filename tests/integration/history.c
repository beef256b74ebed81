/* history.c - a linearizability checker for the history of one key.
 *
 * A depth-first search after Wing and Gong, with Lowe's memory of tried states: two paths that
 * have placed the same set of operations and reached the same state have the same future, so the
 * second is not followed. Operations are in a list of events ordered by time; the next
 * candidates are those invoked before the first return in the list. Placing an operation removes
 * its events from the list, undoing it puts them back. */
#include "history.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/siphash.h"

/* Sets of placed operations with their state; some 400 MB at 200 operations per key. */
#define TRIED_MAX ((size_t)8 << 20)

#define ABSENT 0u /* the state without the key */

struct event {
    struct event *prev, *next;
    size_t op;
    int64_t time_ns;
    bool is_return;
};

struct step {
    size_t op;
    uint32_t state_before;
    bool skipped; /* an optional operation was taken as not done */
};

/* Texts and sets of operations are numbered in tables. */
struct search {
    struct mst__history *history;
    struct event *events; /* 2 * i = call of operation i, 2 * i + 1 = its return */
    struct event head;
    char **texts; /* by state - 1 */
    size_t texts_count, texts_capacity;
    uint64_t *placed; /* bits */
    size_t words;
    uint64_t *tried; /* records of words + 1: the bits and the state */
    size_t tried_count, tried_capacity;
    uint32_t *table; /* of record numbers + 1, open addressing */
    size_t table_size;
    struct step *steps;
    size_t steps_count;
    size_t required_left;
    uint32_t state;
};

static void *checked(void *memory)
{
    MST_ASSERT(memory != NULL);
    return memory;
}

void mst__history_add(struct mst__history *history, const struct mst__history_op *op)
{
    if (history->count == history->capacity) {
        history->capacity = history->capacity == 0 ? 64 : 2 * history->capacity;
        history->ops =
            checked(mst__realloc(history->ops, history->capacity * sizeof *history->ops));
    }
    history->ops[history->count++] = *op;
}

void mst__history_close(struct mst__history *history)
{
    for (size_t i = 0; i < history->count; i++) {
        mst__free(history->ops[i].value);
        mst__free(history->ops[i].expected);
        mst__free(history->ops[i].seen);
    }
    mst__free(history->ops);
    *history = (struct mst__history){0};
}

static void print_seen(const char *seen, FILE *out)
{
    if (seen == NULL) {
        (void)fputs("absent", out);
    } else {
        (void)fprintf(out, "'%s'", seen);
    }
}

static void op_print(const struct mst__history_op *op, int64_t start_ns, FILE *out)
{
    (void)fprintf(out, "  [%9.3f ", (double)(op->invoke_ns - start_ns) / 1e6);
    if (op->return_ns == MST_HISTORY_FOREVER) {
        (void)fprintf(out, "      ...] ");
    } else {
        (void)fprintf(out, "%9.3f] ", (double)(op->return_ns - start_ns) / 1e6);
    }
    (void)fprintf(out, "thread %d%s ", op->thread, op->is_optional ? " (perhaps)" : "");
    switch (op->kind) {
        case MST_HISTORY_SET:
            (void)fprintf(out, "set '%s'", op->value);
            break;
        case MST_HISTORY_APPEND:
            (void)fprintf(out, "append '%s'", op->value);
            break;
        case MST_HISTORY_GET:
            (void)fprintf(out, "get");
            break;
        case MST_HISTORY_ADD:
            (void)fprintf(out, "add %" PRId64, op->delta);
            break;
        case MST_HISTORY_COMPARE_SET:
            (void)fprintf(out, "compare_set '%s' to '%s'", op->expected, op->value);
            break;
        case MST_HISTORY_DELETE:
            (void)fprintf(out, "delete");
            break;
        case MST_HISTORY_CHECK:
            (void)fprintf(out, "check");
            break;
    }
    (void)fprintf(out, " -> ");
    if (!op->has_result) {
        (void)fprintf(out, "?");
    } else if (op->kind == MST_HISTORY_GET) {
        print_seen(op->seen, out);
    } else if (op->kind == MST_HISTORY_COMPARE_SET) {
        static const char *const names[] = {"done, now ", "differs, is ", "absent, "};
        (void)fprintf(out, "%s", names[op->outcome]);
        print_seen(op->seen, out);
    } else if (op->kind == MST_HISTORY_ADD) {
        (void)fprintf(out, "%" PRId64, op->sum);
    } else if (op->kind == MST_HISTORY_DELETE || op->kind == MST_HISTORY_CHECK) {
        (void)fprintf(out, "%s", op->existed ? "existed" : "was absent");
    } else {
        (void)fprintf(out, "ok");
    }
    (void)fprintf(out, "\n");
}

void mst__history_print(const struct mst__history *history, FILE *out)
{
    int64_t start_ns = history->count == 0 ? 0 : history->ops[0].invoke_ns;
    for (size_t i = 0; i < history->count; i++) {
        if (history->ops[i].invoke_ns < start_ns) {
            start_ns = history->ops[i].invoke_ns;
        }
    }
    for (size_t i = 0; i < history->count; i++) {
        op_print(&history->ops[i], start_ns, out);
    }
}

/* --- states --- */

/* The number of the state with @text; takes no ownership. */
static uint32_t state_of(struct search *search, const char *text)
{
    for (size_t i = search->texts_count; i > 0; i--) {
        if (strcmp(search->texts[i - 1], text) == 0) {
            return (uint32_t)i;
        }
    }
    if (search->texts_count == search->texts_capacity) {
        search->texts_capacity = 2 * search->texts_capacity + 16;
        search->texts =
            checked(mst__realloc(search->texts, search->texts_capacity * sizeof *search->texts));
    }
    search->texts[search->texts_count++] = checked(mst__strdup(text));
    return (uint32_t)search->texts_count;
}

static const char *text_of(const struct search *search, uint32_t state)
{
    if (state == ABSENT) {
        return NULL;
    }
    MST_ASSERT(state <= search->texts_count);
    MST_ASSERT(search->texts[state - 1] != NULL);
    return search->texts[state - 1];
}

static bool seen_equal(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool apply_compare_set(struct search *search,
                              const struct mst__history_op *op,
                              uint32_t *ret_state)
{
    const char *text = text_of(search, search->state);
    enum mst_compare_set outcome = MST_COMPARE_SET_DIFFERS;
    uint32_t state = search->state;
    if (text == NULL ? op->expected[0] == '\0' : strcmp(text, op->expected) == 0) {
        outcome = MST_COMPARE_SET_DONE;
        state = state_of(search, op->value);
    } else if (text == NULL) {
        outcome = MST_COMPARE_SET_ABSENT;
    }
    *ret_state = state;
    return !op->has_result ||
           (op->outcome == outcome && seen_equal(op->seen, text_of(search, state)));
}

static bool apply_add(struct search *search, const struct mst__history_op *op, uint32_t *ret_state)
{
    const char *text = text_of(search, search->state);
    int64_t sum = (text == NULL ? 0 : strtoll(text, NULL, 10)) + op->delta;
    char number[32];
    (void)snprintf(number, sizeof number, "%" PRId64, sum);
    *ret_state = state_of(search, number);
    return !op->has_result || op->sum == sum;
}

/* The effect of @op on the present state; false if its result does not fit that state. */
static bool apply(struct search *search, const struct mst__history_op *op, uint32_t *ret_state)
{
    const char *text = text_of(search, search->state);
    *ret_state = search->state;
    switch (op->kind) {
        case MST_HISTORY_SET:
            *ret_state = state_of(search, op->value);
            return true;
        case MST_HISTORY_GET:
            return !op->has_result || seen_equal(op->seen, text);
        case MST_HISTORY_ADD:
            return apply_add(search, op, ret_state);
        case MST_HISTORY_COMPARE_SET:
            return apply_compare_set(search, op, ret_state);
        case MST_HISTORY_DELETE:
            *ret_state = ABSENT;
            return !op->has_result || op->existed == (text != NULL);
        case MST_HISTORY_CHECK:
            return !op->has_result || op->existed == (text != NULL);
        case MST_HISTORY_APPEND:
            break;
    }
    const char *old = text == NULL ? "" : text;
    size_t joined_size = strlen(old) + strlen(op->value) + 1;
    char *joined = checked(mst__malloc(joined_size));
    (void)snprintf(joined, joined_size, "%s%s", old, op->value);
    *ret_state = state_of(search, joined);
    mst__free(joined);
    return true;
}

/* --- what has been tried --- */

static uint64_t record_hash(const struct search *search, const uint64_t *record)
{
    static const uint8_t key[MST_SIPHASH_KEY_SIZE] = {1};
    return mst__siphash(key, record, (search->words + 1) * sizeof *record);
}

static void table_insert(struct search *search, size_t number)
{
    size_t mask = search->table_size - 1;
    size_t slot = record_hash(search, search->tried + number * (search->words + 1)) & mask;
    while (search->table[slot] != 0) {
        slot = (slot + 1) & mask;
    }
    search->table[slot] = (uint32_t)(number + 1);
}

static void table_grow(struct search *search)
{
    mst__free(search->table);
    search->table_size = search->table_size == 0 ? 1024 : 2 * search->table_size;
    search->table = checked(mst__calloc(search->table_size, sizeof *search->table));
    for (size_t i = 0; i < search->tried_count; i++) {
        table_insert(search, i);
    }
}

/* Remember the placed set with @state; false when it was known. */
static bool tried_add(struct search *search, uint32_t state)
{
    size_t size = search->words + 1;
    if (search->tried_count == search->tried_capacity) {
        search->tried_capacity = 2 * search->tried_capacity + 256;
        search->tried = checked(
            mst__realloc(search->tried, search->tried_capacity * size * sizeof *search->tried));
    }
    if (2 * (search->tried_count + 1) > search->table_size) {
        table_grow(search);
    }
    uint64_t *record = search->tried + search->tried_count * size;
    memcpy(record, search->placed, search->words * sizeof *record);
    record[search->words] = state;
    size_t mask = search->table_size - 1;
    for (size_t slot = record_hash(search, record) & mask; search->table[slot] != 0;
         slot = (slot + 1) & mask) {
        const uint64_t *other = search->tried + (search->table[slot] - 1) * size;
        if (memcmp(other, record, size * sizeof *record) == 0) {
            return false;
        }
    }
    table_insert(search, search->tried_count++);
    return true;
}

/* --- the search --- */

static int event_compare(const void *a, const void *b)
{
    const struct event *x = *(const struct event *const *)a;
    const struct event *y = *(const struct event *const *)b;
    if (x->time_ns != y->time_ns) {
        return x->time_ns < y->time_ns ? -1 : 1;
    }
    /* At the same instant the order is not known: calls first leaves it open. */
    return (int)x->is_return - (int)y->is_return;
}

static void search_open(struct search *search, struct mst__history *history)
{
    size_t count = history->count;
    *search = (struct search){.history = history, .words = (count + 63) / 64 + 1};
    search->events = checked(mst__calloc(2 * count + 1, sizeof *search->events));
    search->placed = checked(mst__calloc(search->words, sizeof *search->placed));
    search->steps = checked(mst__calloc(count + 1, sizeof *search->steps));
    struct event **order = checked(mst__calloc(2 * count + 1, sizeof(struct event *)));
    size_t events_count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct mst__history_op *op = &history->ops[i];
        search->required_left += !op->is_optional;
        search->events[2 * i] = (struct event){.op = i, .time_ns = op->invoke_ns};
        order[events_count++] = &search->events[2 * i];
        /* An operation without an end has no return that could limit the others. */
        if (op->return_ns != MST_HISTORY_FOREVER) {
            search->events[2 * i + 1] =
                (struct event){.op = i, .time_ns = op->return_ns, .is_return = true};
            order[events_count++] = &search->events[2 * i + 1];
        }
    }
    qsort(order, events_count, sizeof(struct event *), event_compare);
    struct event *last = &search->head;
    for (size_t i = 0; i < events_count; i++) {
        last->next = order[i];
        order[i]->prev = last;
        last = order[i];
    }
    mst__free(order);
}

static void search_close(struct search *search)
{
    for (size_t i = 0; i < search->texts_count; i++) {
        mst__free(search->texts[i]);
    }
    mst__free(search->texts);
    mst__free(search->events);
    mst__free(search->placed);
    mst__free(search->tried);
    mst__free(search->table);
    mst__free(search->steps);
}

static void event_take(struct event *event)
{
    event->prev->next = event->next;
    if (event->next != NULL) {
        event->next->prev = event->prev;
    }
}

static void event_put_back(struct event *event)
{
    event->prev->next = event;
    if (event->next != NULL) {
        event->next->prev = event;
    }
}

/* Place operation @index, as done or as @skipped; false if that leads to a known state. */
static bool place(struct search *search, size_t index, bool skipped)
{
    const struct mst__history_op *op = &search->history->ops[index];
    uint32_t state = search->state;
    if (!skipped && !apply(search, op, &state)) {
        return false;
    }
    search->placed[index / 64] |= (uint64_t)1 << (index % 64);
    if (!tried_add(search, state)) {
        search->placed[index / 64] &= ~((uint64_t)1 << (index % 64));
        return false;
    }
    search->steps[search->steps_count++] =
        (struct step){.op = index, .state_before = search->state, .skipped = skipped};
    search->state = state;
    search->required_left -= !op->is_optional;
    event_take(&search->events[2 * index]);
    if (op->return_ns != MST_HISTORY_FOREVER) {
        event_take(&search->events[2 * index + 1]);
    }
    return true;
}

/* Undo the last placement. */
static struct step unplace(struct search *search)
{
    struct step step = search->steps[--search->steps_count];
    const struct mst__history_op *op = &search->history->ops[step.op];
    if (op->return_ns != MST_HISTORY_FOREVER) {
        event_put_back(&search->events[2 * step.op + 1]);
    }
    event_put_back(&search->events[2 * step.op]);
    search->placed[step.op / 64] &= ~((uint64_t)1 << (step.op % 64));
    search->required_left += !op->is_optional;
    search->state = step.state_before;
    return step;
}

/* Place the next candidate at or after @event; operations that must have happened are tried
 * before those that may have. False if there is none. */
static bool place_next(struct search *search, struct event *event, bool optional)
{
    for (;;) {
        for (; event != NULL && !event->is_return; event = event->next) {
            const struct mst__history_op *op = &search->history->ops[event->op];
            if (op->is_optional != optional) {
                continue;
            }
            if (place(search, event->op, false)) {
                return true;
            }
            /* An operation that may never happen need not be placed; one that has returned must
             * be. */
            if (optional && op->return_ns != MST_HISTORY_FOREVER &&
                place(search, event->op, true)) {
                return true;
            }
        }
        if (optional) {
            return false;
        }
        optional = true;
        event = search->head.next;
    }
}

enum mst__history_verdict mst__history_judge(struct mst__history *history, size_t *ret_steps)
{
    struct search search;
    search_open(&search, history);
    enum mst__history_verdict verdict = MST_HISTORY_FINE;
    bool forward = place_next(&search, search.head.next, false);
    while (search.required_left > 0) {
        if (search.tried_count > TRIED_MAX) {
            verdict = MST_HISTORY_TOO_BIG;
            break;
        }
        if (forward) {
            forward = place_next(&search, search.head.next, false);
            continue;
        }
        if (search.steps_count == 0) {
            verdict = MST_HISTORY_BROKEN;
            break;
        }
        struct step step = unplace(&search);
        const struct mst__history_op *op = &history->ops[step.op];
        if (op->is_optional && op->return_ns != MST_HISTORY_FOREVER && !step.skipped) {
            forward = place(&search, step.op, true);
        }
        if (!forward) {
            forward = place_next(&search, search.events[2 * step.op].next, op->is_optional);
        }
    }
    *ret_steps = search.tried_count;
    search_close(&search);
    return verdict;
}
