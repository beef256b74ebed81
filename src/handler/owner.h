/* handler/owner.h - the thread that owns the machine of a handler.
 *
 * The machine belongs to this thread for the handler's life; nobody else touches it. A call of the
 * application that needs it posts a task and waits until that is done. Between tasks, while a round
 * is joined, the owner watches: it keeps the node alive and looks for changes.
 *
 *              task posted                    done, and a round is joined
 *     IDLE ------------------> WORKING --------------------------------> WATCHING
 *      ^                        |   ^                                       |
 *      +------------------------+   +---------------------------------------+
 *        done, and none is                       task posted
 *
 * Calls that change our membership are made one at a time, so there is one task at most. cancel_fd
 * interrupts such a call and what it waits for, stop_fd the watching. Both are descriptors, because
 * a signal handler can write to them, and they wake whoever waits. */
#ifndef MST_HANDLER_OWNER_H
#define MST_HANDLER_OWNER_H

#include <muster/error.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"

/* In the owner's thread. A watch waits for something to do, does it, and comes back; soon when
 * stop_fd is readable. */
typedef int (*mst__owner_task_fn)(void *self, void *arg, struct mst_err *reterr);
typedef void (*mst__owner_watch_fn)(void *self);

struct mst__owner_task; /* on the stack of the one who waits for it */

struct mst__owner {
    int cancel_fd; /* readable = cancelled */
    int stop_fd;   /* readable = there is a task, or the end */
    int news_fd;   /* readable = poll has something to tell */
    mst__owner_watch_fn watch;
    void *self;

    pthread_mutex_t mutex; /* everything below, and what the handler publishes */
    pthread_cond_t cond;
    pthread_t thread;
    bool has_thread;
    bool is_ending;
    bool is_busy;   /* a call is under way that changes our membership */
    bool is_joined; /* there is something to keep alive and to watch */
    struct mst__owner_task *task;
};

/* 0 or MST_ESYS; @owner can be closed either way. The thread starts with the first task. */
int mst__owner_init(struct mst__owner *owner,
                    mst__owner_watch_fn watch,
                    void *self,
                    struct mst_err *reterr);

/* End the thread, if there is one. No call is under way. */
void mst__owner_stop(struct mst__owner *owner);

/* The thread has ended. */
void mst__owner_close(struct mst__owner *owner);

static inline void mst__owner_lock(struct mst__owner *owner)
{
    (void)pthread_mutex_lock(&owner->mutex); /* a default mutex: cannot fail */
}

static inline void mst__owner_unlock(struct mst__owner *owner)
{
    (void)pthread_mutex_unlock(&owner->mutex);
}

/* Eventfds: make it readable, make it not. */
void mst__owner_ring(int fd);
void mst__owner_silence(int fd);

bool mst__owner_is_cancelled(const struct mst__owner *owner);
static inline int mst__owner_fail_cancelled(struct mst_err *reterr)
{
    return mst__fail(reterr, MST_ECANCELED, 0, "cancelled");
}

/* For good. From a signal handler, too, so errno is left as it was. */
void mst__owner_cancel(struct mst__owner *owner);

/* Wait until poll has something to tell, cancelled, or @deadline_ms; false when that is over. */
bool mst__owner_await_news(const struct mst__owner *owner, int64_t deadline_ms);

/* --- calls --- */

/* Begin a call that changes our membership; others wait until it ends. With @may_cancel
 * MST_ECANCELED is possible. */
int mst__owner_begin(struct mst__owner *owner, bool may_cancel, struct mst_err *reterr);

/* The same, but only if a round is joined and no other call is under way: whether that was so. */
bool mst__owner_try_begin(struct mst__owner *owner);

void mst__owner_end(struct mst__owner *owner);

/* Whether such a call is under way. */
bool mst__owner_is_busy(struct mst__owner *owner);

/**
 * Have the owner do @task, and wait until it is done; within a call. The value is the task's, or
 * MST_ESYS when there is no thread.
 */
int mst__owner_run(struct mst__owner *owner,
                   mst__owner_task_fn task,
                   void *arg,
                   struct mst_err *reterr);

/* Whether a round is joined from now on, so that the owner watches it. In a task. */
void mst__owner_joined(struct mst__owner *owner, bool is_joined);

/* Stop watching for good, unless a call is under way. */
void mst__owner_retire(struct mst__owner *owner);

#endif /* MST_HANDLER_OWNER_H */
