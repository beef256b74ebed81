/* handler/turn.h - whose turn it is to drive the machine of a handler.
 *
 * There is one machine, and one thread at a time drives it: the caller of next or leave for as long
 * as that takes, otherwise the watcher, a thread of the handler's own, which keeps the node alive
 * and looks for changes. A caller that wants the machine interrupts the watcher and gets it; the
 * watcher never waits for anybody but the store. No lock is held while the store is asked.
 *
 * Whether the handler was cancelled is told by cancel_fd alone: a signal handler can write to it,
 * and it wakes whoever waits. */
#ifndef MST_HANDLER_TURN_H
#define MST_HANDLER_TURN_H

#include <muster/error.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"

/* One turn of the watcher: wait for something to do, do it, and come back; soon when stop_fd is
 * readable. The machine is its own for the call. */
typedef void (*mst__turn_fn)(void *arg);

struct mst__turn {
    int cancel_fd; /* readable = cancelled */
    int stop_fd;   /* readable = the watcher shall let go of the machine */
    int news_fd;   /* readable = poll has something to tell */
    mst__turn_fn watch;
    void *watch_arg;

    /* Whoever is busy. */
    pthread_t thread; /* the watcher */
    bool has_thread;

    pthread_mutex_t mutex; /* everything below, and what the handler publishes */
    pthread_cond_t cond;
    bool is_ending;
    bool is_busy;     /* a call is under way that changes our membership, */
    bool is_wanted;   /* and it needs the machine */
    bool is_driven;   /* somebody has the machine, */
    bool is_watching; /* and it is the watcher */
    bool is_joined;   /* there is something to keep alive and to watch */
};

/* 0 or MST_ESYS; @turn can be closed either way. */
int mst__turn_init(struct mst__turn *turn,
                   mst__turn_fn watch,
                   void *watch_arg,
                   struct mst_err *reterr);

/* The watcher has been stopped. */
void mst__turn_close(struct mst__turn *turn);

static inline void mst__turn_lock(struct mst__turn *turn)
{
    (void)pthread_mutex_lock(&turn->mutex); /* a default mutex: cannot fail */
}

static inline void mst__turn_unlock(struct mst__turn *turn)
{
    (void)pthread_mutex_unlock(&turn->mutex);
}

/* Eventfds: is it readable, make it so, make it not. */
bool mst__turn_is_rung(int fd);
void mst__turn_ring(int fd);
void mst__turn_silence(int fd);

bool mst__turn_is_cancelled(const struct mst__turn *turn);
static inline int mst__turn_fail_cancelled(struct mst_err *reterr)
{
    return mst__fail(reterr, MST_ECANCELED, 0, "cancelled");
}

/* For good. From a signal handler, too, so errno is left as it was. */
void mst__turn_cancel(struct mst__turn *turn);

/* Wait until poll has something to tell, cancelled, or @deadline_ms; false when that is over. */
bool mst__turn_await_news(const struct mst__turn *turn, int64_t deadline_ms);

/* --- the watcher --- */

/* Start the thread, if it is not there yet: 0 or MST_ESYS. Whoever is busy. */
int mst__turn_start(struct mst__turn *turn, struct mst_err *reterr);

/* End it. */
void mst__turn_stop(struct mst__turn *turn);

/* --- taking the machine --- */

/* Begin a call that changes our membership, one at a time, with the machine. With @may_cancel
 * MST_ECANCELED is possible. */
int mst__turn_begin(struct mst__turn *turn, bool may_cancel, struct mst_err *reterr);

/* The same, but only if there is something to watch and no other call is under way: whether that
 * was so. */
bool mst__turn_try_begin(struct mst__turn *turn);

/* The machine is free, and the call goes on without it. With @is_joined the watcher may have it. */
void mst__turn_release(struct mst__turn *turn, bool is_joined);

/* Take it again, and make the watcher let go of it: there is nothing to keep alive any more. */
void mst__turn_take_back(struct mst__turn *turn);

/* The call is over. */
void mst__turn_end(struct mst__turn *turn);

/* Whether such a call is under way. */
bool mst__turn_is_busy(struct mst__turn *turn);

/* Make the watcher let go of the machine for good, unless a call is under way. */
void mst__turn_retire(struct mst__turn *turn);

#endif /* MST_HANDLER_TURN_H */
