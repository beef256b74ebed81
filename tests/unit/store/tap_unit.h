/* unit/store/tap_unit.h - a relay in front of a server that loses chosen answers. */
#ifndef MST_UNIT_TAP_UNIT_H
#define MST_UNIT_TAP_UNIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What happens to a request that contains the needle. */
enum tap_action {
    TAP_SWALLOW, /* it is executed, and the connection closed instead of the answer */
    TAP_CUT,     /* the connection is closed before it is passed on */
    TAP_HANG,    /* it is not passed on, and the connection stays */
    TAP_PASS,    /* only `before` */
};

#define TAP_CONNECTIONS_MAX 256

struct tap {
    int listener;
    uint16_t port;
    uint16_t target_port;
    pthread_t thread;
    pthread_t threads[TAP_CONNECTIONS_MAX];
    size_t thread_count; /* of the listening thread until it has ended */
    atomic_bool is_ended;
    pthread_mutex_t mutex; /* everything below */
    const char *needle;    /* borrowed */
    enum tap_action action;
    int count;                        /* how many more requests it happens to, */
    int pending;                      /* and to how many it has not happened yet */
    void (*before)(void *before_arg); /* called before such a request is forwarded; may be NULL */
    void *before_arg;
};

void tap_open(struct tap *tap, uint16_t target_port);
void tap_close(struct tap *tap);

/* From now on the next @count requests that hold @needle suffer @action. */
void tap_set(struct tap *tap, const char *needle, enum tap_action action, int count);

/* The same once, and @before is called by the relay before the action. */
void tap_set_before(struct tap *tap,
                    const char *needle,
                    enum tap_action action,
                    void (*before)(void *arg),
                    void *arg);

/* Whether all of it has happened. */
bool tap_is_done(struct tap *tap);

#endif /* MST_UNIT_TAP_UNIT_H */
