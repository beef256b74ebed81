/* handler/owner.h - the thread that owns the machine of a handler.
 *
 * The machine belongs to this thread for the life of the handler; no other thread touches it. A
 * call of the application posts a task and waits for its end. Only a begun round needs no waiting:
 * a later call picks up its result. Between tasks, while a round is joined, the owner watches: it
 * keeps the node alive and looks for changes.
 *
 *              task posted                    done, and a round is joined
 *     IDLE ------------------> WORKING --------------------------------> WATCHING
 *      ^                        |   ^                                       |
 *      +------------------------+   +---------------------------------------+
 *        done, and none is                       task posted
 *
 * Calls that change our membership run one at a time, so there is at most one task and one begun
 * round, which comes after the task. stop_fd ends the watching. cancel_fd ends the current task
 * early: a withdrawn round, a report that no call waits for; it is silent once that is over, so
 * that nothing else ends with it. call_fd wakes the threads of the application that are blocked in
 * a call, see mst__owner_cancel; calls that begin when the cancellation was returned sleep. They
 * are descriptors, because a signal handler can write to them; begun_fd is one, because a signal
 * ends a wait for it. */
#ifndef MST_HANDLER_OWNER_H
#define MST_HANDLER_OWNER_H

#include <muster/error.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/mem.h"

/* In the owner's thread. A watch waits for something to do, does it, and returns; it returns
 * soon if stop_fd is readable. The result of a begun round is told with the lock held. */
typedef int (*mst__owner_task_fn)(void *self, void *arg, struct mst_err *reterr);
typedef void (*mst__owner_watch_fn)(void *self);
typedef void (*mst__owner_tell_fn)(void *self);

struct mst__owner_task {
    mst__owner_task_fn fn;
    void *arg;
    struct mst_err *reterr;
    struct mst__mem_fault fault; /* of the waiting thread */
    bool is_cancelled;           /* end it soon */
    int rv;
};

struct mst__owner {
    int cancel_fd;                /* readable = end the current task */
    int call_fd;                  /* readable = calls of the application are cancelled */
    int stop_fd;                  /* readable = there is a task, or the thread must end */
    int news_fd;                  /* readable = there is a notice to take */
    int begun_fd;                 /* readable = the last begun round is over */
    atomic_uint_fast64_t cancels; /* calls of mst__owner_cancel */
    mst__owner_watch_fn watch;
    void *self;

    pthread_mutex_t mutex; /* guards all below, and what the handler publishes */
    pthread_cond_t cond;
    pthread_t thread;
    bool has_thread;
    bool is_ending;
    bool is_busy;                  /* a call that changes our membership is under way */
    bool is_joined;                /* a round is joined: watch it */
    struct mst__owner_task *task;  /* on the stack of the waiting thread */
    struct mst__owner_task begun;  /* with is_begun */
    bool is_begun;                 /* a round is wanted and not complete */
    mst__owner_tell_fn tell_begun; /* with is_begun */
    uint64_t served;               /* the last cancellation that a call has returned */
    size_t waiters;                /* calls that may block now */
    size_t behind;                 /* those that began before that: they are to return it, too */
};

/* Returns 0 or MST_ESYS; @owner must be closed in both cases. The thread starts with the first
 * task. */
int mst__owner_init(struct mst__owner *owner,
                    mst__owner_watch_fn watch,
                    void *self,
                    struct mst_err *reterr);

/* End the thread, if there is one. No call may be under way, and none may follow. */
void mst__owner_stop(struct mst__owner *owner);

/* The thread must have ended. */
void mst__owner_close(struct mst__owner *owner);

static inline void mst__owner_lock(struct mst__owner *owner)
{
    (void)pthread_mutex_lock(&owner->mutex); /* a default mutex: cannot fail */
}

static inline void mst__owner_unlock(struct mst__owner *owner)
{
    (void)pthread_mutex_unlock(&owner->mutex);
}

/* Make an eventfd readable, or not readable. */
void mst__owner_ring(int fd);
void mst__owner_silence(int fd);

/* Whether the current task should end. */
bool mst__owner_is_cancelled(const struct mst__owner *owner);
static inline int mst__owner_fail_cancelled(struct mst_err *reterr)
{
    return mst__fail(reterr, MST_ECANCELED, 0, "cancelled");
}

/* --- calls that may block --- */

/* Cancel the calls that are blocked now, or if there are none, the next one that would block. A
 * signal handler may call it; errno is kept. */
void mst__owner_cancel(struct mst__owner *owner);

/* Returns 0 or an error if there is a result for the call, MST_ETIMEOUT if there is none yet. */
typedef int (*mst__owner_look_fn)(void *self, void *arg, struct mst_err *reterr);

/* Wait until @look has a result, and return it. @look is called again whenever news_fd is
 * readable. MST_ETIMEOUT, MST_ECANCELED. */
int mst__owner_await(struct mst__owner *owner,
                     int64_t timeout_ms,
                     mst__owner_look_fn look,
                     void *self,
                     void *arg,
                     struct mst_err *reterr);

/* The same for a result that no notice announces: @look is called every @period_ms. */
int mst__owner_await_slowly(struct mst__owner *owner,
                            int64_t timeout_ms,
                            int64_t period_ms,
                            mst__owner_look_fn look,
                            void *self,
                            void *arg,
                            struct mst_err *reterr);

/* --- calls that change our membership --- */

/* Begin such a call; others wait until it ends. MST_ECANCELED only with @may_cancel. */
int mst__owner_begin(struct mst__owner *owner, bool may_cancel, struct mst_err *reterr);

/* Begin one only if a round is joined and nothing else is under way. Returns whether it has
 * begun. */
bool mst__owner_try_begin(struct mst__owner *owner);

void mst__owner_end(struct mst__owner *owner);

/* Whether such a call is under way or a round is begun. */
bool mst__owner_is_busy(struct mst__owner *owner);

/**
 * Run @task in the owner's thread and wait for it; within a call, and with no round begun.
 * Returns the task's value, or MST_ESYS if the thread does not start. Cancelling the call makes
 * the task end soon.
 */
int mst__owner_run(struct mst__owner *owner,
                   mst__owner_task_fn task,
                   void *arg,
                   struct mst_err *reterr);

/* --- the round that is begun --- */

/* Run @task, which enters a round, in the owner's thread, and return at once: 0 or MST_ESYS. If
 * a round is begun already, nothing changes. When the task is done, the owner ends the begun
 * round and calls @tell under one lock: an application that hears the result may begin again at
 * once. */
int mst__owner_want(struct mst__owner *owner,
                    mst__owner_task_fn task,
                    mst__owner_tell_fn tell,
                    struct mst_err *reterr);

/* Wait for the end of the begun round. Returns 0; MST_ETIMEOUT or MST_ECANCELED if it is still
 * under way. */
int mst__owner_await_begun(struct mst__owner *owner, int64_t timeout_ms, struct mst_err *reterr);

/* Cancel the begun round, if there is one, and wait for its end. No task may be posted. Returns
 * whether there was one. */
bool mst__owner_withdraw(struct mst__owner *owner);

/* Set whether a round is joined, for the owner to watch. In a task. */
void mst__owner_joined(struct mst__owner *owner, bool is_joined);

/* Stop watching for good, unless something is under way. */
void mst__owner_retire(struct mst__owner *owner);

#endif /* MST_HANDLER_OWNER_H */
