/* agent/group.c - signals to workers, and their ends, through the keeper. */
#include "agent/group.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/keeper.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"

/* The connection to a keeper. */
struct mst__group_link {
    struct mst__group *group;
    uv_poll_t poll;
    struct mst__keeper_pipes pipes;
};

/* --- the keeper --- */

static void on_link_closed(uv_handle_t *handle)
{
    mst__free(handle->data);
}

static void close_link(struct mst__group *group)
{
    struct mst__group_link *link = group->link;
    group->link = NULL;
    if (link != NULL) {
        uv_close((uv_handle_t *)&link->poll, on_link_closed);
        mst__keeper_let_go(&link->pipes);
    }
}

/* The keeper was killed, and its workers with it. The processes that workers started are our
 * children now. After these are gone, or at the deadline, report the ends of all workers. */
static void on_sweep(uv_timer_t *timer)
{
    struct mst__group *group = timer->data;
    if (!mst__keeper_is_childless() && mst__clock_ms() < group->sweep_ms) {
        mst__keeper_kill_children();
        return;
    }
    (void)uv_timer_stop(timer); /* cannot fail */
    for (uint32_t i = 0; i < group->count; i++) {
        if (group->pids[i] != 0) {
            group->pids[i] = 0;
            group->running_count--;
            group->ended(group->arg, i, 0, SIGKILL);
        }
    }
}

static void lose_keeper(struct mst__group *group)
{
    close_link(group);
    if (group->running_count > 0) {
        group->sweep_ms = mst__clock_deadline_ms(MST_GROUP_SWEEP_MS);
        (void)uv_timer_start(&group->sweep, on_sweep, 0, MST_GROUP_LOOK_MS); /* cannot fail */
    }
}

static void hear(struct mst__group *group, const struct mst__keeper_word *word)
{
    MST_ASSERT(word->kind == MST_KEEPER_ENDED && group->pids[word->worker] != 0);
    group->pids[word->worker] = 0;
    group->running_count--;
    if (group->running_count == 0) {
        close_link(group);
    }
    group->ended(group->arg, word->worker, word->status, word->signal);
}

static void on_words(uv_poll_t *poll, int status, int events)
{
    struct mst__group_link *link = poll->data;
    struct mst__group *group = link->group;
    struct mst__keeper_word word;
    (void)status;
    (void)events; /* the read reports errors */
    /* The end of the last worker closes this link, and may start a generation with another one. */
    while (group->link == link) {
        ssize_t size = read(link->pipes.words_fd, &word, sizeof word);
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (size == (ssize_t)sizeof word) {
            hear(group, &word);
        } else {
            lose_keeper(group);
        }
    }
}

/* Reap keepers that have ended, and the processes of lost keepers. */
static void on_child(uv_signal_t *handle, int number)
{
    (void)handle;
    (void)number;
    (void)mst__keeper_is_childless();
}

/* --- life --- */

int mst__group_init(struct mst__group *group,
                    uv_loop_t *loop,
                    uint32_t count,
                    mst__group_ended_fn ended,
                    void *arg,
                    struct mst_err *reterr)
{
    *group = (struct mst__group){.count = count, .ended = ended, .arg = arg, .loop = loop};
    (void)uv_timer_init(loop, &group->sweep); /* cannot fail */
    group->sweep.data = group;
    group->child.data = group;
    int reason = uv_signal_init(loop, &group->child);
    if (reason == 0) {
        reason = uv_signal_start(&group->child, on_child, SIGCHLD);
    }
    if (reason != 0) {
        return mst__fail(reterr, MST_ESYS, -reason, "signal handler");
    }
    group->pids = mst__calloc(count, sizeof *group->pids);
    if (group->pids == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "%u workers", count);
    }
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        return mst__fail(reterr, MST_ESYS, errno,
                         "become the reaper of processes that workers start");
    }
    return 0;
}

void mst__group_stop(struct mst__group *group)
{
    close_link(group);
    uv_close((uv_handle_t *)&group->sweep, NULL);
    uv_close((uv_handle_t *)&group->child, NULL);
}

void mst__group_close(struct mst__group *group)
{
    mst__free(group->pids);
    group->pids = NULL;
}

/* --- starting --- */

/* Wait until the keeper has started all workers, or one cannot be started. */
static int hear_starts(struct mst__group *group,
                       const struct mst__keeper_pipes *pipes,
                       uint32_t *ret_failed,
                       struct mst_err *reterr)
{
    for (*ret_failed = 0; *ret_failed < group->count; ++*ret_failed) {
        struct mst__keeper_word word;
        ssize_t size;
        do {
            size = read(pipes->words_fd, &word, sizeof word);
        } while (size < 0 && errno == EINTR);
        if (size != (ssize_t)sizeof word) {
            return mst__fail(reterr, MST_ESYS, 0, "the keeper of the workers was killed");
        }
        if (word.kind == MST_KEEPER_FAILED) {
            *reterr = word.err;
            return word.err.code;
        }
        group->pids[word.worker] = word.pid;
        group->running_count++;
    }
    return 0;
}

static int open_link(struct mst__group *group,
                     const struct mst__keeper_pipes *pipes,
                     struct mst_err *reterr)
{
    struct mst__group_link *link = mst__calloc(1, sizeof *link);
    if (link == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "link to the keeper of workers");
    }
    int reason = uv_poll_init(group->loop, &link->poll, pipes->words_fd);
    if (reason != 0) {
        mst__free(link);
        return mst__fail(reterr, MST_ESYS, -reason, "watch the keeper of workers");
    }
    link->group = group;
    link->pipes = *pipes;
    link->poll.data = link;
    group->link = link;
    reason = uv_poll_start(&link->poll, UV_READABLE, on_words);
    MST_ASSERT(reason == 0);
    return 0;
}

int mst__group_start(struct mst__group *group,
                     const struct mst__spawn_worker *spawns,
                     uint32_t *ret_failed,
                     struct mst_err *reterr)
{
    struct mst__keeper_pipes pipes;
    MST_ASSERT(group->running_count == 0 && group->link == NULL);
    *ret_failed = 0;
    int rv = mst__keeper_start(spawns, group->pids, group->count, &pipes, reterr);
    if (rv != 0) {
        return rv;
    }
    rv = hear_starts(group, &pipes, ret_failed, reterr);
    if (group->running_count == 0) {
        mst__keeper_let_go(&pipes);
        return rv;
    }
    struct mst_err err;
    if (open_link(group, &pipes, &err) != 0) {
        mst__keeper_let_go(&pipes); /* the keeper kills the workers */
        memset(group->pids, 0, group->count * sizeof *group->pids);
        group->running_count = 0;
        *ret_failed = 0;
        *reterr = rv != 0 ? *reterr : err;
        return reterr->code;
    }
    return rv;
}

/* --- signals --- */

static void order(struct mst__group *group, uint32_t worker, int signal, bool to_group)
{
    const struct mst__keeper_order order = {
        .worker = worker, .signal = signal, .to_group = to_group};
    if (group->link != NULL) {
        ssize_t size = write(group->link->pipes.orders_fd, &order, sizeof order);
        (void)size; /* fails only if the keeper was killed or is stopped */
    }
}

void mst__group_signal(struct mst__group *group, uint32_t worker, int signal)
{
    order(group, worker, signal, group->signals_all);
}

void mst__group_kill(struct mst__group *group)
{
    order(group, UINT32_MAX, SIGKILL, true);
}
