/* store/barrier.c - barriers on stores without BARRIER, made of set, compare_set and wait.
 *
 * The participants of a barrier are a list under one key: the number of uses that are complete, the
 * id of the participant that completed the last of them, and the ids of those that wait now. Each
 * step is one COMPARE_SET of the list. An id is random and belongs to one call and its retries: a
 * participant that cannot tell whether it is in the list keeps its id, in the handle, and a retry
 * finds itself. Every list that a step writes differs from all earlier ones, because it contains or
 * lacks that id; so COMPARE_SET, which cannot tell "done" from "already there", is exact here.
 *
 * PyTorch's processes meet on stores without BARRIER by a counter under another key. The first use
 * counts them too, and they are released by the key that they wait for. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "store/backoff.h"
#include "store/store.h"

#define LIST_KEY "/participants"
#define TORCH_COUNT_KEY "/num_members"
#define RELEASE_KEY "/last_member" /* of the first use; a later one appends ".N" */

#define NAME_SIZE_MORE 48 /* for the longest of them, with a number */

#define NOBODY "-"
#define ID_SIZE 16 /* hexadecimal */

/* Pauses after another participant was faster. */
#define AGAIN_MS_FIRST 1
#define AGAIN_MS_MAX 50

/* --- ids --- */

/* A participant. It is in the handle's list during its call; afterwards only if it may still be in
 * the barrier's. */
struct mst__arrival {
    struct mst__arrival *next;
    bool is_here;   /* its call is under way */
    bool is_listed; /* it is, or may be, in the barrier's list, since @use */
    bool is_unsure; /* it does not know whether the list was written */
    int64_t use;
    char id[ID_SIZE + 1];
    size_t key_size;
    char key[];
};

/* Get the participant that continues an earlier call for @key, or a new one. */
static int arrival_begin(struct mst_store *store,
                         struct mst_bytes key,
                         struct mst__arrival **ret_arrival,
                         struct mst_err *reterr)
{
    size_t in_doubt = 0;
    struct mst__arrival *fresh = mst__malloc(sizeof *fresh + key.size);
    if (fresh == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "participant of a barrier");
    }
    *fresh = (struct mst__arrival){.is_here = true, .key_size = key.size};
    (void)snprintf(fresh->id, sizeof fresh->id, "%016" PRIx64, mst__clock_random_u64());
    if (key.size > 0) {
        memcpy(fresh->key, key.data, key.size);
    }
    (void)pthread_mutex_lock(&store->mutex); /* a default mutex: cannot fail */
    struct mst__arrival *arrival = store->arrivals;
    while (arrival != NULL &&
           (arrival->is_here ||
            !mst__bytes_equal(mst_bytes_of(arrival->key, arrival->key_size), key))) {
        in_doubt += arrival->is_here ? 0 : 1;
        arrival = arrival->next;
    }
    if (arrival != NULL) {
        arrival->is_here = true;
    } else if (in_doubt < MST_BARRIERS_IN_DOUBT_MAX) {
        arrival = fresh;
        fresh = NULL;
        arrival->next = store->arrivals;
        store->arrivals = arrival;
    }
    (void)pthread_mutex_unlock(&store->mutex);
    mst__free(fresh);
    if (arrival == NULL) {
        return mst__fail(reterr, MST_ELIMIT, 0,
                         "%d barriers of this store failed and may still count it",
                         MST_BARRIERS_IN_DOUBT_MAX);
    }
    *ret_arrival = arrival;
    return 0;
}

/* The call is over; the participant is kept for a retry if @is_kept. */
static void arrival_end(struct mst_store *store, struct mst__arrival *arrival, bool is_kept)
{
    (void)pthread_mutex_lock(&store->mutex); /* a default mutex: cannot fail */
    arrival->is_here = false;
    if (!is_kept) {
        struct mst__arrival **link = &store->arrivals;
        while (*link != arrival) {
            link = &(*link)->next;
        }
        *link = arrival->next;
    }
    (void)pthread_mutex_unlock(&store->mutex);
    if (!is_kept) {
        mst__free(arrival);
    }
}

void mst__arrivals_free(struct mst__arrival *arrivals)
{
    while (arrivals != NULL) {
        struct mst__arrival *next = arrivals->next;
        mst__free(arrivals);
        arrivals = next;
    }
}

/* --- the list --- */

/* "USES BY ID ID ..."; absent = nobody came yet. */
struct list {
    int64_t uses;
    struct mst_bytes start; /* "USES BY" */
    struct mst_bytes ids;   /* " ID ID ..." */
    size_t count;
    size_t place; /* of the id that was looked for, in ids; ids.size = it is not there */
};

/* Split @text and look for @id. False if it is no list. */
static bool list_parse(struct mst_bytes text, const char *id, struct list *ret_list)
{
    *ret_list = (struct list){.start = mst_bytes_str("0 " NOBODY)};
    if (text.size == 0) {
        return true;
    }
    const uint8_t *blank = memchr(text.data, ' ', text.size);
    size_t size = blank == NULL ? 0 : (size_t)(blank - text.data);
    if (blank == NULL ||
        !mst__number_parse(mst_bytes_of(text.data, size), 0, INT64_MAX - 1, &ret_list->uses)) {
        return false;
    }
    blank = memchr(blank + 1, ' ', text.size - size - 1);
    size = blank == NULL ? text.size : (size_t)(blank - text.data);
    ret_list->start = mst_bytes_of(text.data, size);
    ret_list->ids = mst__bytes_skip(text, size);
    ret_list->count = ret_list->ids.size / (ID_SIZE + 1);
    ret_list->place = ret_list->ids.size;
    if (ret_list->ids.size % (ID_SIZE + 1) != 0) {
        return false;
    }
    for (size_t i = 0; i < ret_list->ids.size; i += ID_SIZE + 1) {
        if (ret_list->ids.data[i] != ' ') {
            return false;
        }
        if (memcmp(ret_list->ids.data + i + 1, id, ID_SIZE) == 0) {
            ret_list->place = i;
        }
    }
    return true;
}

static bool list_has(const struct list *list)
{
    return list->place < list->ids.size;
}

/* --- one call --- */

struct meeting {
    struct mst_store *store;
    struct mst_bytes key;
    int64_t size;
    struct mst__until until;
    struct mst__arrival *arrival;
    bool is_released;     /* the key that tells of the end is there */
    struct mst__buf name; /* the key of a request */
    struct mst__buf next; /* a list to be written */
    struct mst_buffer text;
    struct list list; /* of text */
    struct mst_err *reterr;
    struct mst_err ignored; /* the errors of leaving */
};

/* The barrier's key with @suffix, and with ".@use" unless that is 0. */
static int meeting_name(struct meeting *meeting,
                        const char *suffix,
                        int64_t use,
                        struct mst_bytes *ret_name)
{
    char number[MST_NUMBER_SIZE + 2] = "";
    if (use > 0) {
        (void)snprintf(number, sizeof number, ".%" PRId64, use); /* fits */
    }
    mst__buf_clear(&meeting->name);
    int rv = mst__buf_append(&meeting->name, meeting->key);
    if (rv == 0) {
        rv = mst__buf_append(&meeting->name, mst_bytes_str(suffix));
    }
    if (rv == 0) {
        rv = mst__buf_append(&meeting->name, mst_bytes_str(number));
    }
    *ret_name = mst__buf_bytes(&meeting->name);
    return rv == 0
               ? 0
               : mst__fail(meeting->reterr, rv, 0, "barrier key of %zu bytes", meeting->key.size);
}

/* Get the value under the key with @suffix; empty if absent. */
static int meeting_get(struct meeting *meeting, const char *suffix, struct mst_buffer *ret_value)
{
    struct mst_bytes name;
    *ret_value = (struct mst_buffer){0};
    int rv = meeting_name(meeting, suffix, 0, &name);
    if (rv == 0) {
        rv = mst__store_fetch(meeting->store, name, MST_OP_GET, false, meeting->until, ret_value,
                              meeting->reterr);
    }
    return rv == MST_ENOTFOUND ? 0 : rv;
}

/* Take @text as the present list. */
static int meeting_take(struct meeting *meeting, struct mst_buffer *text)
{
    mst_buffer_free(&meeting->text);
    meeting->text = *text;
    *text = (struct mst_buffer){0};
    bool is_list = list_parse(mst_bytes_of(meeting->text.data, meeting->text.size),
                              meeting->arrival->id, &meeting->list);
    return is_list ? 0
                   : mst__fail(meeting->reterr, MST_ETYPE, 0,
                               "the value under " LIST_KEY " is not a list of participants");
}

static int meeting_look(struct meeting *meeting)
{
    struct mst_buffer text;
    int rv = meeting_get(meeting, LIST_KEY, &text);
    return rv != 0 ? rv : meeting_take(meeting, &text);
}

/* How many of PyTorch's processes have come. */
static int meeting_count_theirs(struct meeting *meeting, int64_t *ret_count)
{
    struct mst_buffer value;
    *ret_count = 0;
    int rv = meeting_get(meeting, TORCH_COUNT_KEY, &value);
    if (rv == 0 && value.size > 0 &&
        (!mst__number_parse_prefix(mst_bytes_of(value.data, value.size), ret_count) ||
         *ret_count < 0)) {
        *ret_count = 0;
    }
    mst_buffer_free(&value);
    return rv;
}

/* The use that this participant came for is complete. */
static bool meeting_is_over(const struct meeting *meeting)
{
    return meeting->arrival->is_listed && meeting->list.uses > meeting->arrival->use;
}

/* Write meeting->next in place of the list, or look at the list that is there instead. */
static int meeting_write(struct meeting *meeting, bool *ret_done)
{
    struct mst_bytes name;
    struct mst_buffer text = {0};
    enum mst_compare_set outcome = MST_COMPARE_SET_DIFFERS;
    int rv = meeting_name(meeting, LIST_KEY, 0, &name);
    if (rv == 0) {
        meeting->arrival->is_unsure = true;
        rv = mst__store_compare_set(
            meeting->store, name, mst_bytes_of(meeting->text.data, meeting->text.size),
            mst__buf_bytes(&meeting->next), meeting->until, &outcome, &text, meeting->reterr);
    }
    if (rv == 0) {
        meeting->arrival->is_unsure = false;
        rv = meeting_take(meeting, &text);
    }
    *ret_done = outcome == MST_COMPARE_SET_DONE;
    mst_buffer_free(&text);
    return rv;
}

/* Make meeting->next: with this participant, without those of a use that it completes, or, if it
 * @leaves, without it. */
static int meeting_prepare(struct meeting *meeting, bool completes, bool leaves)
{
    const struct list *list = &meeting->list;
    struct mst__buf *next = &meeting->next;
    char start[MST_NUMBER_SIZE + ID_SIZE + 4];
    struct mst_bytes before = mst_bytes_of(list->ids.data, list->place);
    struct mst_bytes after =
        list_has(list) ? mst__bytes_skip(list->ids, list->place + ID_SIZE + 1) : mst_bytes_str("");
    mst__buf_clear(next);
    if (completes) {
        (void)snprintf(start, sizeof start, "%" PRId64 " %s", list->uses + 1, meeting->arrival->id);
    }
    int rv = mst__buf_append(next, completes ? mst_bytes_str(start) : list->start);
    if (rv == 0 && !completes) {
        rv = mst__buf_append(next, before);
    }
    if (rv == 0 && !completes) {
        rv = mst__buf_append(next, after);
    }
    if (rv == 0 && !completes && !leaves) {
        rv = mst__buf_append_u8(next, ' ');
        rv = rv != 0 ? rv : mst__buf_append(next, mst_bytes_str(meeting->arrival->id));
    }
    return rv == 0 ? 0 : mst__fail(meeting->reterr, rv, 0, "list of %zu participants", list->count);
}

/* Release those who wait for the end of @use. The key of the use before it is not needed any more:
 * whoever comes late to it finds the number of uses. */
static int meeting_release(struct meeting *meeting, int64_t use)
{
    struct mst_bytes name;
    int rv = meeting_name(meeting, RELEASE_KEY, use, &name);
    if (rv == 0) {
        rv = mst__store_set(meeting->store, name, mst_bytes_str("1"), meeting->until,
                            meeting->reterr);
    }
    if (rv == 0 && use > 1) {
        rv = meeting_name(meeting, RELEASE_KEY, use - 1, &name);
        rv = rv != 0
                 ? rv
                 : mst__store_delete(meeting->store, name, meeting->until, NULL, meeting->reterr);
    }
    return rv;
}

/* Be in the list, and complete the use if all are there. @ret_over tells whether it is complete. */
static int meeting_come(struct meeting *meeting, bool *ret_over)
{
    struct mst__arrival *arrival = meeting->arrival;
    const struct list *list = &meeting->list;
    struct mst__backoff backoff;
    mst__backoff_init(&backoff, AGAIN_MS_FIRST, AGAIN_MS_MAX);
    int rv = meeting_look(meeting);
    while (rv == 0) {
        int64_t theirs = 0;
        *ret_over = meeting_is_over(meeting);
        if (*ret_over) {
            return 0;
        }
        rv = list->uses == 0 ? meeting_count_theirs(meeting, &theirs) : 0;
        bool was_listed = list_has(list);
        int64_t ours = (int64_t)list->count + (was_listed ? 0 : 1);
        bool completes = ours >= meeting->size || theirs >= meeting->size - ours ||
                         (meeting->is_released && was_listed);
        int64_t use = list->uses;
        if (rv == 0 && was_listed && !completes) {
            arrival->is_listed = true;
            arrival->use = use;
            return 0;
        }
        rv = rv != 0 ? rv : meeting_prepare(meeting, completes, false);
        if (rv != 0) {
            return rv;
        }
        arrival->is_listed = true;
        arrival->use = use;
        bool done = false;
        rv = meeting_write(meeting, &done);
        if (rv == 0 && done) {
            *ret_over = completes;
            return completes ? meeting_release(meeting, use) : 0;
        }
        if (rv == 0) {
            arrival->is_listed = was_listed;
            rv = mst__backoff_pause(&backoff, meeting->until)
                     ? 0
                     : mst__fail(meeting->reterr, MST_ETIMEOUT, 0, "others kept arriving");
        }
    }
    return rv;
}

/* Wait until the use is complete. The key that tells so may be missed, or its writer may be dead
 * before it has set it; so look at the list now and then. */
static int meeting_wait(struct meeting *meeting)
{
    for (;;) {
        bool is_over = false;
        struct mst_bytes name;
        int rv = meeting_come(meeting, &is_over);
        if (rv != 0 || is_over) {
            return rv;
        }
        rv = meeting_name(meeting, RELEASE_KEY, meeting->arrival->use, &name);
        if (rv == 0) {
            int64_t look_ms = mst__clock_deadline_ms(MST_BARRIER_LOOK_MS);
            rv = mst__store_wait(meeting->store, &name, 1,
                                 mst__until_sooner(meeting->until, look_ms), meeting->reterr);
        }
        meeting->is_released = rv == 0;
        /* Not every store tells an interrupt from the end of the time. */
        if (rv == MST_ETIMEOUT &&
            (mst__until_is_over(meeting->until) || mst__until_is_woken(meeting->until.wake_fd))) {
            return mst__fail(meeting->reterr, MST_ETIMEOUT, 0,
                             "not complete when the deadline passed");
        }
        if (rv != 0 && rv != MST_ETIMEOUT) {
            return rv;
        }
    }
}

/* The call fails with @rv: leave the list. Returns 0 if the use was complete before. @ret_is_kept
 * tells whether the participant may still be in the list. */
static int meeting_leave(struct meeting *meeting, int rv, bool *ret_is_kept)
{
    struct mst__backoff backoff;
    mst__backoff_init(&backoff, AGAIN_MS_FIRST, AGAIN_MS_MAX);
    *ret_is_kept = meeting->arrival->is_listed;
    if (!meeting->arrival->is_listed) {
        return rv;
    }
    bool was_unsure = meeting->arrival->is_unsure;
    meeting->until = mst__until_in(MST_BARRIER_LEAVE_MS);
    meeting->reterr = &meeting->ignored;
    int left = meeting_look(meeting);
    while (left == 0) {
        if (meeting_is_over(meeting)) {
            *ret_is_kept = false;
            return 0;
        }
        bool done = !list_has(&meeting->list);
        if (done) {
            *ret_is_kept = was_unsure; /* a list with it may still be on its way */
            return rv;
        }
        left = meeting_prepare(meeting, false, true);
        if (left == 0) {
            left = meeting_write(meeting, &done);
        }
        if (left == 0 && done) {
            *ret_is_kept = false;
            return rv;
        }
        if (left == 0 && !mst__backoff_pause(&backoff, meeting->until)) {
            left = MST_ETIMEOUT;
        }
    }
    return rv;
}

int mst__barrier_by_list(struct mst_store *store,
                         struct mst_bytes key,
                         int64_t size,
                         struct mst__until until,
                         struct mst_err *reterr)
{
    struct meeting meeting = {
        .store = store, .key = key, .size = size, .until = until, .reterr = reterr};
    int rv = arrival_begin(store, key, &meeting.arrival, reterr);
    if (rv != 0) {
        return rv;
    }
    mst__buf_init(&meeting.name, key.size + NAME_SIZE_MORE);
    mst__buf_init(&meeting.next, store->storage->options.value_size_max);
    bool is_kept = false;
    rv = meeting_wait(&meeting);
    if (rv != 0) {
        rv = meeting_leave(&meeting, rv, &is_kept);
    }
    arrival_end(store, meeting.arrival, is_kept);
    mst_buffer_free(&meeting.text);
    mst__buf_close(&meeting.name);
    mst__buf_close(&meeting.next);
    return rv;
}
