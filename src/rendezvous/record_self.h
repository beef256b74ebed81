/* rendezvous/record_self.h - what the files of the dynamic handler share.
 *
 * There is one session, and one thread at a time drives it: the caller of next or leave for as long
 * as that takes, otherwise the watcher, which beats and looks for changes. A caller that wants the
 * session interrupts the watcher and gets it; the watcher never waits for anybody but the store. No
 * lock is held while the store is asked. Everything else that the application may call works on
 * what the watcher has published, or with a session of its own.
 *
 * Whether the handler was cancelled is told by cancel_fd alone: a signal handler can write to it,
 * and it wakes whoever waits. */
#ifndef MST_RENDEZVOUS_RECORD_SELF_H
#define MST_RENDEZVOUS_RECORD_SELF_H

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "base/prng.h"
#include "rendezvous/bootstrap.h"
#include "rendezvous/drive.h"
#include "rendezvous/params.h"
#include "rendezvous/record.h"

/* The first pause of the watcher after a failure. */
#define MST_RECORD_AGAIN_US 100000

struct mst__record {
    struct mst_params *params;
    struct mst__record_backend backend;
    struct mst__dynamic dynamic;
    char addr[MST_HOST_SIZE];
    char node_text[MST_BOOTSTRAP_NODE_SIZE];
    struct mst__node node;
    struct mst__events events;
    bool is_host;  /* the store goes when we go */
    int cancel_fd; /* readable = cancelled */
    int stop_fd;   /* readable = the watcher shall let go of the session */
    int news_fd;   /* readable = poll has something to tell */

    /* Whoever drives. */
    struct mst__session session;
    struct mst__members lost;
    struct mst__prng prng;
    int64_t again_us;  /* the next pause after a failure */
    int64_t spread_us; /* by how much the next beat is put off */

    /* Whoever is busy. */
    struct mst__bootstrap bootstrap;
    pthread_t thread; /* the watcher */
    bool has_thread;

    pthread_mutex_t mutex; /* everything below */
    pthread_cond_t cond;
    bool is_ending;
    bool is_busy;     /* a call is under way that changes our membership, */
    bool is_wanted;   /* and it needs the session */
    bool is_driven;   /* somebody has the session, */
    bool is_watching; /* and it is the watcher */
    bool is_joined;   /* there is something to keep alive and to watch */
    bool is_known;    /* the view is the record's */
    bool has_closed;  /* we have closed it ourselves */
    struct mst_changes view;
    struct mst_changes told; /* as the last poll told it */
    struct mst_err view_err; /* why the view is not known */
};

static inline void mst__record_lock(struct mst__record *record)
{
    (void)pthread_mutex_lock(&record->mutex); /* a default mutex: cannot fail */
}

static inline void mst__record_unlock(struct mst__record *record)
{
    (void)pthread_mutex_unlock(&record->mutex);
}

/* --- eventfds --- */

static inline bool mst__record_is_rung(int fd)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    return poll(&pollfd, 1, 0) > 0;
}

static inline void mst__record_ring(int fd)
{
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written; /* it fails only when the counter is full, and then the descriptor is readable */
}

static inline void mst__record_silence(int fd)
{
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got; /* nothing there is fine */
}

static inline bool mst__record_is_cancelled(const struct mst__record *record)
{
    return mst__record_is_rung(record->cancel_fd);
}

/* --- record_watch.c: what poll, is_closed and nodes_waiting tell --- */

/* Whether poll has something to tell. With the lock held. */
bool mst__record_has_news(const struct mst__record *record);

/* Tell how the record as last read differs from the round that was joined; @err (may be NULL) says
 * why it could not be read. 0 or MST_ENOMEM. Whoever drives. */
int mst__record_publish(struct mst__record *record,
                        const struct mst_err *err,
                        struct mst__changes *ret_changes);

/* Nothing is joined, so there is nothing to tell. */
void mst__record_reset(struct mst__record *record);

/* --- record_watch.c: the watcher --- */

/* Start the thread, if it is not there yet: 0 or MST_ESYS. Whoever is busy. */
int mst__record_watch(struct mst__record *record, struct mst_err *reterr);

/* End it. */
void mst__record_unwatch(struct mst__record *record);

/* Choose by how much the next beat is put off. Whoever drives. */
void mst__record_spread(struct mst__record *record);

/* --- record_watch.c: taking the session --- */

/* Begin a call that changes our membership, one at a time, with the session. With @may_cancel
 * MST_ECANCELED is possible. */
int mst__record_begin(struct mst__record *record, bool may_cancel, struct mst_err *reterr);

/* The session is free, and the call goes on without it. With @is_joined the watcher may have it. */
void mst__record_release(struct mst__record *record, bool is_joined);

/* Take it again. With the lock held. */
void mst__record_take(struct mst__record *record);

/* The call is over. */
void mst__record_end(struct mst__record *record);

#endif /* MST_RENDEZVOUS_RECORD_SELF_H */
