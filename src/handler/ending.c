/* handler/ending.c - the end of work without an authority. */
#include "handler/ending.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/until.h"
#include "store/store.h"
#include "wire/job.h"

/* Time for one call of the store: a write, and a read, during which no heartbeat is sent. */
#define SAY_MS 5000
#define LOOK_MS 1000

#define KEY_SIZE 96

/* Keys of the job. */
#define END_KEY "end"
#define RESTARTS_KEY "restarts"

/* Keys of a round. */
#define CAUSE_KEY "muster.work/cause"
#define FINISHED_KEY "muster.work/finished/" /* and the rank */
#define LEAVING_KEY "muster.run/leaving"     /* the name of the node; launchers of 0.2 write it */

/* Keys of a round, of torch's agents. With a newer torch they count themselves, and the last one
 * sets the last key. With an older one each sets a key with its rank, and a second one when it
 * has seen the keys of all. */
#define TORCH_COUNT_KEY "torchelastic/agent/terminal_state/num_members"
#define TORCH_LAST_KEY "torchelastic/agent/terminal_state/last_member"
#define TORCH_KEY "torchelastic/agent/terminal_state" /* and the rank */

/* --- restarts --- */

/* The stored form: four numbers with blanks between them; an earlier release wrote two. */
struct restarts {
    int64_t count;    /* in the current window */
    int64_t since_us; /* start of the window, wall clock */
    int64_t total;
    int64_t round; /* the last one that failed */
};

static struct restarts restarts_parse(struct mst_bytes text)
{
    int64_t numbers[4] = {0, 0, -1, -1};
    for (size_t i = 0; i < 4 && text.size > 0; i++) {
        (void)mst__number_parse_prefix(text, &numbers[i]);
        const uint8_t *blank = memchr(text.data, ' ', text.size);
        text = mst__bytes_skip(text, blank == NULL ? text.size : (size_t)(blank - text.data) + 1);
    }
    return (struct restarts){
        .count = numbers[0],
        .since_us = numbers[1],
        .total = numbers[2] < 0 ? numbers[0] : numbers[2],
        .round = numbers[3],
    };
}

/* The limit of one call that reports something. */
static struct mst__until say_until(const struct mst__ending *ending)
{
    return mst__until_sooner(mst__until_by(ending->wake_fd, SAY_MS), ending->say_deadline_ms);
}

/* Returns 0, also if there were none, or an error of the store. @ret_value (may be NULL) is the
 * stored value; the caller releases it. */
static int restarts_get(const struct mst__ending *ending,
                        struct restarts *ret_restarts,
                        struct mst_buffer *ret_value,
                        struct mst_err *reterr)
{
    struct mst_buffer value = {.size = 0};
    int rv = mst__store_fetch(ending->job, mst_bytes_str(RESTARTS_KEY), MST_OP_GET, false,
                              say_until(ending), &value, reterr);
    *ret_restarts = restarts_parse(mst_bytes_of(value.data, value.size));
    if (ret_value != NULL) {
        *ret_value = value;
    } else {
        mst_buffer_free(&value);
    }
    return rv == MST_ENOTFOUND ? 0 : rv;
}

/* --- life --- */

void mst__ending_init(struct mst__ending *ending,
                      const char *node,
                      const struct mst__budget *budget,
                      int wake_fd,
                      mst__ending_open_fn open,
                      void *self)
{
    *ending = (struct mst__ending){
        .budget = *budget,
        .node = node,
        .wake_fd = wake_fd,
        .say_deadline_ms = INT64_MAX,
        .open = open,
        .self = self,
    };
}

void mst__ending_leave(struct mst__ending *ending)
{
    mst_store_close(ending->job);
    mst_store_close(ending->round);
    mst_buffer_free(&ending->end);
    mst_buffer_free(&ending->cause);
    mst__free(ending->finished);
    mst__ending_init(ending, ending->node, &ending->budget, ending->wake_fd, ending->open,
                     ending->self);
}

int mst__ending_begin(struct mst__ending *ending,
                      int64_t number,
                      int64_t rank,
                      int64_t world,
                      struct mst_err *reterr)
{
    struct restarts restarts = {.count = 0};
    mst__ending_leave(ending);
    ending->number = number;
    ending->rank = rank;
    ending->world = world;
    ending->finished = mst__calloc((size_t)world, 1);
    int rv = ending->finished == NULL ? mst__fail(reterr, MST_ENOMEM, 0, "round") : 0;
    rv = rv == 0 ? ending->open(ending->self, MST_ENDING_JOB, &ending->job, reterr) : rv;
    rv = rv == 0 ? ending->open(ending->self, number, &ending->round, reterr) : rv;
    rv = rv == 0 ? restarts_get(ending, &restarts, NULL, reterr) : rv;
    /* Another node may have counted the failure of this round already. */
    ending->restarts = restarts.total - (restarts.total > 0 && restarts.round >= number ? 1 : 0);
    if (rv != 0) {
        mst__ending_leave(ending);
    }
    return rv;
}

/* --- values --- */

/* Store @message as a frame under @key unless the key exists. @ret_is_ours: the value is now
 * ours. */
static int put_first(const struct mst__ending *ending,
                     struct mst_store *store,
                     const char *key,
                     const struct mst__job_message *message,
                     bool *ret_is_ours,
                     struct mst_err *reterr)
{
    struct mst__buf frame;
    enum mst_compare_set done = MST_COMPARE_SET_DIFFERS;
    mst__buf_init(&frame, MST_JOB_SIZE_MAX);
    int rv = mst__job_write(&frame, message);
    rv = rv == 0 ? mst__store_compare_set(store, mst_bytes_str(key), mst_bytes_str(""),
                                          mst__buf_bytes(&frame), say_until(ending), &done, NULL,
                                          reterr)
                 : mst__fail(reterr, rv, 0, "%s", key);
    mst__buf_close(&frame);
    *ret_is_ours = done == MST_COMPARE_SET_DONE;
    return rv;
}

/* Read the frame under @key. Returns 0 or an error of the store. @ret_frame is empty if there is
 * no key, or no frame of @type in it. */
static int get_frame(struct mst_store *store,
                     const char *key,
                     enum mst__job_type type,
                     struct mst_buffer *ret_frame)
{
    struct mst_err err;
    struct mst__job_message message;
    size_t size;
    *ret_frame = (struct mst_buffer){.size = 0};
    int rv = mst_store_try_get(store, mst_bytes_str(key), LOOK_MS, ret_frame, &err);
    if (rv == 0 && (mst__job_read(mst_bytes_of(ret_frame->data, ret_frame->size), MST_JOB_SIZE_MAX,
                                  &message, &size, &err) != 1 ||
                    message.type != type)) {
        mst_buffer_free(ret_frame); /* another program's */
    }
    return rv == MST_ENOTFOUND ? 0 : rv;
}

/* The message that get_frame has read; borrows from @frame. */
static struct mst__job_message message_of(const struct mst_buffer *frame)
{
    struct mst__job_message message;
    struct mst_err err;
    size_t size;
    int rv = mst__job_read(mst_bytes_of(frame->data, frame->size), MST_JOB_SIZE_MAX, &message,
                           &size, &err);
    MST_ASSERT(rv == 1);
    return message;
}

/* Store the end of the job. */
static int put_end(struct mst__ending *ending,
                   enum mst__job_outcome outcome,
                   const struct mst__cause *cause,
                   struct mst_err *reterr)
{
    char reason[MST_AUTHORITY_REASON_SIZE_MAX + 1];
    if (cause == NULL) {
        (void)snprintf(reason, sizeof reason, "all %" PRId64 " nodes of round %" PRId64,
                       ending->world, ending->number); /* fits */
    } else {
        mst__cause_describe(cause, reason, sizeof reason);
    }
    struct mst__job_message message = {
        .type = MST_JOB_CLOSED,
        .u.closed = {.reason = mst_bytes_str(reason),
                     .owner = mst_bytes_str(ending->node),
                     .end = {.outcome = outcome, .has_cause = cause != NULL}},
    };
    if (cause != NULL) {
        message.u.closed.end.cause = *cause;
    }
    bool is_ours;
    return put_first(ending, ending->job, END_KEY, &message, &is_ours, reterr);
}

/* --- failed --- */

/* Use one restart of the budget, unless an earlier try has done so for this round. @ret_count: how
 * many were used in this window. Only one node of a round gets here, so the loop hardly ever runs
 * twice. */
static int budget_use(struct mst__ending *ending, int64_t *ret_count, struct mst_err *reterr)
{
    struct mst_buffer value;
    struct restarts used;
    int rv = restarts_get(ending, &used, &value, reterr);
    enum mst_compare_set done = MST_COMPARE_SET_DIFFERS;
    while (rv == 0 && done != MST_COMPARE_SET_DONE) {
        int64_t now_us = mst__clock_wall_us();
        struct mst_bytes stored = mst_bytes_of(value.data, value.size);
        used = restarts_parse(stored);
        if (used.round == ending->number) {
            *ret_count = used.count;
            break;
        }
        bool is_over =
            ending->budget.window_us > 0 && now_us - used.since_us >= ending->budget.window_us;
        if (used.count <= 0 || is_over) {
            used.count = 0;
            used.since_us = now_us;
        }
        char text[4 * MST_NUMBER_SIZE + 4];
        (void)snprintf(text, sizeof text, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
                       used.count + 1, used.since_us, used.total + 1, ending->number); /* fits */
        struct mst_buffer other = {.size = 0};
        rv = mst__store_compare_set(ending->job, mst_bytes_str(RESTARTS_KEY), stored,
                                    mst_bytes_str(text), say_until(ending), &done, &other, reterr);
        mst_buffer_free(&value);
        value = other;
        *ret_count = used.count + 1;
    }
    mst_buffer_free(&value);
    return rv;
}

/* Whether the stored cause of the round is a failure of this node. */
static bool is_own_cause(const struct mst__ending *ending)
{
    struct mst_buffer frame;
    bool is_own = false;
    if (get_frame(ending->round, CAUSE_KEY, MST_JOB_REOPENED, &frame) == 0 && frame.size > 0) {
        is_own = mst__bytes_equal(message_of(&frame).u.reopened.name, mst_bytes_str(ending->node));
    }
    mst_buffer_free(&frame);
    return is_own;
}

/* Whether another node of the round has said that it leaves. Then a failure here is a consequence
 * of that, and is not reported: the round is over when that node leaves, or this one comes back. */
static bool is_other_leaving(const struct mst__ending *ending)
{
    struct mst_buffer name = {.size = 0};
    struct mst_err ignored;
    bool is_other =
        ending->world > 1 &&
        mst_store_try_get(ending->round, mst_bytes_str(LEAVING_KEY), LOOK_MS, &name, &ignored) ==
            0 &&
        !mst__bytes_equal(mst_bytes_of(name.data, name.size), mst_bytes_str(ending->node));
    mst_buffer_free(&name);
    return is_other;
}

static int say_leaving(struct mst__ending *ending, struct mst_err *reterr)
{
    return mst__store_set(ending->round, mst_bytes_str(LEAVING_KEY), mst_bytes_str(ending->node),
                          say_until(ending), reterr);
}

static int say_failed(struct mst__ending *ending,
                      const struct mst__word *word,
                      bool *ret_closes,
                      struct mst_err *reterr)
{
    struct mst__cause cause = word->cause;
    cause.rank = (uint32_t)ending->rank;
    cause.node = mst_bytes_str(ending->node);
    const struct mst__job_message message = {
        .type = MST_JOB_REOPENED,
        .u.reopened = {.round_next = ending->number + 1,
                       .why = MST_AUTHORITY_WHY_FAILED,
                       .rank = cause.rank,
                       .name = cause.node,
                       .end = {.outcome = MST_JOB_OUTCOME_FAILED,
                               .has_cause = true,
                               .cause = cause}},
    };
    bool is_first = false;
    int64_t count = 0;
    int rv = put_first(ending, ending->round, CAUSE_KEY, &message, &is_first, reterr);
    is_first = rv == 0 && (is_first || is_own_cause(ending)); /* or was, before an error */
    if (is_first) {
        rv = budget_use(ending, &count, reterr);
    }
    bool is_end = ending->budget.is_limited && count > (int64_t)ending->budget.restarts_max;
    if (rv == 0 && is_end) {
        rv = put_end(ending, MST_JOB_OUTCOME_FAILED, &cause, reterr);
        *ret_closes = rv == 0;
    }
    ending->has_failed = rv == 0;
    return rv;
}

/* --- finished --- */

static struct mst_bytes ranked_key(const char *key,
                                   int64_t rank,
                                   const char *behind,
                                   char *ret_text)
{
    (void)snprintf(ret_text, KEY_SIZE, "%s%" PRId64 "%s", key, rank, behind); /* fits */
    return mst_bytes_str(ret_text);
}

/* Whether all ranks of the round have reported that they have finished. */
static int is_complete(struct mst__ending *ending, bool *ret_is, struct mst_err *reterr)
{
    int rv = 0;
    *ret_is = true;
    for (int64_t rank = 0; rank < ending->world && rv == 0 && *ret_is; rank++) {
        char text[KEY_SIZE];
        struct mst_bytes key = ranked_key(FINISHED_KEY, rank, "", text);
        rv = mst__store_check(ending->round, &key, 1, say_until(ending), ret_is, reterr);
    }
    return rv;
}

static int say_finished(struct mst__ending *ending,
                        const struct mst__word *word,
                        bool *ret_closes,
                        struct mst_err *reterr)
{
    char texts[3][KEY_SIZE];
    char rank[MST_NUMBER_SIZE + 1];
    char said[sizeof word->text + MST_NUMBER_SIZE + 2];
    rank[mst__number_format(ending->rank, rank)] = '\0';
    (void)snprintf(said, sizeof said, "%d %s", word->cause.status, word->text); /* fits */
    const struct mst_bytes keys[] = {
        ranked_key(FINISHED_KEY, ending->rank, "", texts[0]),
        ranked_key(TORCH_KEY, ending->rank, "", texts[1]),
        ranked_key(TORCH_KEY, ending->rank, ".FIN", texts[2]),
    };
    const struct mst_bytes values[] = {mst_bytes_str(said), mst_bytes_str(rank),
                                       mst_bytes_str("FIN")};
    int rv = 0;
    for (size_t i = 0; i < 3 && rv == 0; i++) { /* not every store can set several at once */
        rv = mst__store_set(ending->round, keys[i], values[i], say_until(ending), reterr);
    }
    bool is_last = false;
    if (rv == 0 && !ending->has_arrived) {
        int64_t count = 0;
        ending->has_arrived = true; /* also if the add fails: counting twice would end the job
                                     * too soon */
        rv = mst__store_add(ending->round, mst_bytes_str(TORCH_COUNT_KEY), 1, say_until(ending),
                            &count, reterr);
        is_last = rv == 0 && count >= ending->world;
    }
    if (rv == 0 && !is_last) { /* the count lacks a node whose request was lost */
        rv = is_complete(ending, &is_last, reterr);
    }
    if (rv == 0 && is_last) {
        rv = mst__store_set(ending->round, mst_bytes_str(TORCH_LAST_KEY), mst_bytes_str("1"),
                            say_until(ending), reterr);
        rv = rv == 0 ? put_end(ending, MST_JOB_OUTCOME_FINISHED, NULL, reterr) : rv;
        *ret_closes = rv == 0;
    }
    return rv;
}

int mst__ending_say(struct mst__ending *ending,
                    const struct mst__word *word,
                    bool *ret_closes,
                    struct mst_err *reterr)
{
    *ret_closes = false;
    if (ending->round == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "no round is joined");
    }
    if (ending->has_failed) {
        return 0; /* the round is over for this node */
    }
    ending->say_deadline_ms = mst__clock_deadline_ms(word->limit_ms);
    int rv = word->is_leaving           ? say_leaving(ending, reterr)
             : word->is_finish          ? say_finished(ending, word, ret_closes, reterr)
             : is_other_leaving(ending) ? 0
                                        : say_failed(ending, word, ret_closes, reterr);
    ending->say_deadline_ms = INT64_MAX;
    return rv;
}

/* --- what is found --- */

static int find_finished(struct mst_store *round,
                         int64_t rank,
                         bool *ret_exists,
                         struct mst_err *reterr)
{
    char text[KEY_SIZE];
    struct mst_bytes key = ranked_key(FINISHED_KEY, rank, "", text);
    return mst_store_check(round, &key, 1, LOOK_MS, ret_exists, reterr);
}

int mst__ending_count_finished(const struct mst__ending *ending,
                               const struct mst__state *state,
                               int64_t *ret_count,
                               struct mst_err *reterr)
{
    int64_t world = state->sealed_count;
    struct mst_store *round = NULL;
    bool *is_here = mst__calloc((size_t)world, sizeof *is_here);
    int rv = is_here == NULL ? mst__fail(reterr, MST_ENOMEM, 0, "round") : 0;
    rv = rv == 0 ? ending->open(ending->self, state->round, &round, reterr) : rv;
    for (size_t i = 0; rv == 0 && i < state->participants.count; i++) {
        int64_t rank = state->members[state->participants.ids[i]].rank;
        if (rank >= 0 && rank < world) {
            is_here[rank] = true;
        }
    }
    bool has_finished = true;
    *ret_count = 0;
    for (int64_t rank = 0; rv == 0 && has_finished && rank < world; rank++) {
        if (!is_here[rank]) {
            rv = find_finished(round, rank, &has_finished, reterr);
            *ret_count += has_finished ? 1 : 0;
        }
    }
    mst_store_close(round);
    mst__free(is_here);
    return rv;
}

bool mst__ending_has_finished(struct mst__ending *ending, int64_t rank)
{
    if (ending->round == NULL || rank < 0 || rank >= ending->world) {
        return false;
    }
    uint8_t *known = &ending->finished[rank];
    if (*known == 0) {
        struct mst_err err;
        bool exists = false;
        if (find_finished(ending->round, rank, &exists, &err) == 0) {
            *known = exists ? 2 : 1; /* a node that is gone reports nothing more */
        }
    }
    return *known == 2;
}

/* Whether all agents of torch have arrived at their barrier. Those of a newer torch do so when
 * their work is done. */
static bool torch_has_finished(const struct mst__ending *ending)
{
    struct mst_bytes key = mst_bytes_str(TORCH_LAST_KEY);
    struct mst_err err;
    bool exists = false;
    return mst_store_check(ending->round, &key, 1, LOOK_MS, &exists, &err) == 0 && exists;
}

static void note_end(struct mst__ending *ending, struct mst_changes *view)
{
    if (!ending->is_end_known &&
        get_frame(ending->job, END_KEY, MST_JOB_CLOSED, &ending->end) == 0) {
        ending->is_end_known = true; /* it was stored before the rendezvous was closed */
    }
    view->outcome = MST_OUTCOME_CLOSED;
    if (ending->end.size > 0) {
        const struct mst__job_message message = message_of(&ending->end);
        mst__work_ended(view, &message.u.closed.end);
        (void)snprintf(view->reason, sizeof view->reason, "%.*s", (int)message.u.closed.reason.size,
                       (const char *)message.u.closed.reason.data); /* cut off when long */
    } else if (torch_has_finished(ending)) {
        view->outcome = MST_OUTCOME_FINISHED;
    }
}

static void note_cause(struct mst__ending *ending, struct mst_changes *view)
{
    int64_t changed = view->nodes_waiting + view->participants_lost;
    if (ending->cause.size == 0 && changed != ending->cause_changed &&
        get_frame(ending->round, CAUSE_KEY, MST_JOB_REOPENED, &ending->cause) == 0) {
        ending->cause_changed = changed;
    }
    if (ending->cause.size > 0) {
        const struct mst__job_message message = message_of(&ending->cause);
        mst__work_reopened(view, &message.u.reopened.end);
    }
}

void mst__ending_note(struct mst__ending *ending, struct mst_changes *view)
{
    if (ending->round == NULL) {
        view->outcome = view->closed ? MST_OUTCOME_CLOSED : MST_OUTCOME_NONE;
    } else if (view->closed) {
        note_end(ending, view);
    } else if (view->nodes_waiting > 0 || view->participants_lost > 0) {
        note_cause(ending, view);
    }
}

int mst__ending_explain(const struct mst__ending *ending,
                        int rv,
                        struct mst__view *view,
                        struct mst_err *reterr)
{
    struct mst_store *job = NULL;
    struct mst_buffer frame = {.size = 0};
    struct mst_err ignored; /* then it is not known */
    if (ending->open(ending->self, MST_ENDING_JOB, &job, &ignored) == 0) {
        (void)get_frame(job, END_KEY, MST_JOB_CLOSED, &frame);
        mst_store_close(job);
    }
    if (frame.size == 0) {
        return rv;
    }
    const struct mst__job_message message = message_of(&frame);
    bool is_finished = message.u.closed.end.outcome == MST_JOB_OUTCOME_FINISHED;
    rv = mst__fail(reterr, is_finished ? MST_EFINISHED : MST_ECLOSED, 0, "the job has %s: %.*s",
                   is_finished ? "finished" : "failed", (int)message.u.closed.reason.size,
                   (const char *)message.u.closed.reason.data);
    mst__view_ended(view, &message.u.closed.end, message.u.closed.reason);
    mst_buffer_free(&frame);
    return rv;
}
