/* handler/owner.h - the thread that owns the machine of a handler.
 *
 * The machine belongs to this thread for the handler's life; nobody else touches it. A call of the
 * application posts what it wants and waits until that is done, or comes back for it: the round
 * that is begun is the one thing that nobody has to wait for. Between them, while a round is
 * joined, the owner watches: it keeps the node alive and looks for changes.
 *
 *              task posted                    done, and a round is joined
 *     IDLE ------------------> WORKING --------------------------------> WATCHING
 *      ^                        |   ^                                       |
 *      +------------------------+   +---------------------------------------+
 *        done, and none is                       task posted
 *
 * Calls that change our membership are made one at a time, so there is one task at most, and one
 * round that is begun, whose turn comes after the task. stop_fd ends the watching. cancel_fd ends
 * what is under way before its time: a round that nobody wants any more, a word that nobody waits
 * for. call_fd wakes the application's threads that are blocked in a call, see mst__owner_cancel.
 * They are descriptors, because a signal handler can write to them. */
#ifndef MST_HANDLER_OWNER_H
#define MST_HANDLER_OWNER_H

#include <muster/error.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/mem.h"

/* In the owner's thread. A watch waits for something to do, does it, and comes back; soon when
 * stop_fd is readable. The outcome of a begun round is told with the lock held. */
typedef int (*mst__owner_task_fn)(void *self, void *arg, struct mst_err *reterr);
typedef void (*mst__owner_watch_fn)(void *self);
typedef void (*mst__owner_tell_fn)(void *self);

struct mst__owner_task {
    mst__owner_task_fn fn;
    void *arg;
    struct mst_err *reterr;
    struct mst__mem_fault fault; /* of the one who waits */
    bool is_cancelled;           /* end it soon */
    int rv;
};

struct mst__owner {
    int cancel_fd;                /* readable = end what is under way */
    int call_fd;                  /* readable = calls of the application are cancelled */
    int stop_fd;                  /* readable = there is a task, or the end */
    int news_fd;                  /* readable = there is a notice to take */
    atomic_uint_fast64_t cancels; /* how often that was asked for */
    mst__owner_watch_fn watch;
    void *self;

    pthread_mutex_t mutex; /* everything below, and what the handler publishes */
    pthread_cond_t cond;
    pthread_t thread;
    bool has_thread;
    bool is_ending;
    bool is_busy;                  /* a call is under way that changes our membership */
    bool is_joined;                /* there is something to keep alive and to watch */
    struct mst__owner_task *task;  /* on the stack of the one who waits for it */
    struct mst__owner_task begun;  /* with is_begun */
    bool is_begun;                 /* a round is wanted and not there */
    mst__owner_tell_fn tell_begun; /* with is_begun */
    uint64_t served;               /* the cancellation that a call was told of last */
    size_t waiters;                /* calls that may block */
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

/* Whether what is under way should end. */
bool mst__owner_is_cancelled(const struct mst__owner *owner);
static inline int mst__owner_fail_cancelled(struct mst_err *reterr)
{
    return mst__fail(reterr, MST_ECANCELED, 0, "cancelled");
}

/* --- calls that may block --- */

/* End the calls that are blocked now, or, if there is none, the next one that would. From a signal
 * handler, too, so errno is left as it was. */
void mst__owner_cancel(struct mst__owner *owner);

/* What has come for a call: 0 or an error; MST_ETIMEOUT when nothing has. */
typedef int (*mst__owner_look_fn)(void *self, void *arg, struct mst_err *reterr);

/* Wait until @look has something, and return that; it is asked again whenever news_fd is readable.
 * MST_ETIMEOUT, MST_ECANCELED. */
int mst__owner_await(struct mst__owner *owner,
                     int64_t timeout_ms,
                     mst__owner_look_fn look,
                     void *self,
                     void *arg,
                     struct mst_err *reterr);

/* --- calls that change our membership --- */

/* Begin one; others wait until it ends. With @may_cancel MST_ECANCELED is possible. */
int mst__owner_begin(struct mst__owner *owner, bool may_cancel, struct mst_err *reterr);

/* The same, but only if a round is joined and nothing else is under way: whether that was so. */
bool mst__owner_try_begin(struct mst__owner *owner);

void mst__owner_end(struct mst__owner *owner);

/* Whether something is under way: such a call, or a round that is begun. */
bool mst__owner_is_busy(struct mst__owner *owner);

/**
 * Have the owner do @task, and wait until it is done; within a call, and with no round begun. The
 * value is the task's, or MST_ESYS when there is no thread. A cancelled call makes the task end
 * soon.
 */
int mst__owner_run(struct mst__owner *owner,
                   mst__owner_task_fn task,
                   void *arg,
                   struct mst_err *reterr);

/* --- the round that is begun --- */

/* Have the owner do @task, which enters a round, and return at once: 0 or MST_ESYS. With one begun
 * already nothing changes. When the task is done and the round no longer begun, the owner calls
 * @tell, before anybody can see that: an application that hears the outcome may begin at once. */
int mst__owner_want(struct mst__owner *owner,
                    mst__owner_task_fn task,
                    mst__owner_tell_fn tell,
                    struct mst_err *reterr);

/* Wait until that is done: 0; MST_ETIMEOUT, MST_ECANCELED: it is still under way. */
int mst__owner_await_begun(struct mst__owner *owner, int64_t timeout_ms, struct mst_err *reterr);

/* End it, if it is under way, and wait for that: whether there was one. */
bool mst__owner_withdraw(struct mst__owner *owner);

/* Whether a round is joined from now on, so that the owner watches it. In a task. */
void mst__owner_joined(struct mst__owner *owner, bool is_joined);

/* Stop watching for good, unless something is under way. */
void mst__owner_retire(struct mst__owner *owner);

#endif /* MST_HANDLER_OWNER_H */
