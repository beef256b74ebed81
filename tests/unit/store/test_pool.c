/* unit/store/test_pool.c - the connections of a store: their maximum, and which calls it holds
 * for. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "store/backoff.h"
#include "store/pool.h"
#include "unit/server_unit.h"

static void pool_open(struct mst__pool *pool, const struct fixture *f)
{
    const struct mst__url url = {.scheme = MST_URL_TCP, .endpoint = f->endpoint};
    const struct mst__wire_limits limits =
        mst__wire_limits(MST_KEY_SIZE_DEFAULT, MST_VALUE_SIZE_DEFAULT);
    const struct mst_log log = {0};
    mst__pool_init(pool, &url, &limits, &log);
}

/* A thread that wants a connection. */
struct wanting {
    struct mst__pool *pool;
    enum mst__pool_use use;
    pthread_t thread;
    atomic_int tid;     /* 0 = it has not begun */
    int64_t timeout_ms; /* of a call that waits */
    int rv;
    struct mst__pool_conn *conn;
    struct mst_err err;
};

static void *want(void *arg)
{
    struct wanting *wanting = arg;
    atomic_store(&wanting->tid, (int)syscall(SYS_gettid));
    wanting->rv = mst__pool_get(wanting->pool, wanting->use, mst__until_in(PLENTY_MS),
                                &wanting->conn, &wanting->err);
    return NULL;
}

static void wanting_start(struct wanting *wanting, struct mst__pool *pool, enum mst__pool_use use)
{
    *wanting = (struct wanting){.pool = pool, .use = use};
    assert_int_equal(pthread_create(&wanting->thread, NULL, want, wanting), 0);
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (atomic_load(&wanting->tid) == 0 || !unit_is_asleep(atomic_load(&wanting->tid))) {
        assert_true(mst__clock_ms() < deadline_ms);
        (void)poll(NULL, 0, 1);
    }
}

/* It was woken: a thread that is not finds the connection only when its deadline has passed. */
static void wanting_join(struct wanting *wanting)
{
    int64_t start_ms = mst__clock_ms();
    assert_int_equal(pthread_join(wanting->thread, NULL), 0);
    assert_in_range(mst__clock_ms() - start_ms, 0, PLENTY_MS / 2);
    if (wanting->rv != 0) {
        fail_msg("no connection: %s", wanting->err.msg);
    }
}

/* A waiting thread goes on when a connection comes back, and also when one is dropped, which
 * makes room for a new one. */
static void all_in_use(void **state)
{
    const struct fixture *f = *state;
    struct mst__pool pool;
    struct mst__pool_conn *conns[MST_POOL_MAX];
    pool_open(&pool, f);
    for (size_t i = 0; i < MST_POOL_MAX; i++) {
        assert_ok(mst__pool_get(&pool, MST_POOL_SHORT, mst__until_in(PLENTY_MS), &conns[i], &err));
    }
    struct mst__pool_conn *none = NULL;
    assert_fails(mst__pool_get(&pool, MST_POOL_SHORT, mst__until_in(SHORT_MS), &none, &err),
                 MST_ETIMEOUT, "stayed in use");
    struct wanting wanting;
    wanting_start(&wanting, &pool, MST_POOL_SHORT);
    mst__pool_put(&pool, conns[0]);
    wanting_join(&wanting);
    assert_ptr_equal(wanting.conn, conns[0]);
    wanting_start(&wanting, &pool, MST_POOL_SHORT);
    mst__pool_drop(&pool, conns[1]);
    wanting_join(&wanting);
    assert_int_equal(pool.open_count, MST_POOL_MAX);
    assert_int_equal(pool.connects, MST_POOL_MAX + 1);
    conns[1] = wanting.conn;
    for (size_t i = 0; i < MST_POOL_MAX; i++) {
        mst__pool_drop(&pool, conns[i]);
    }
    mst__pool_close(&pool);
}

/* Calls that wait need no turn, and leave the turns to the others. */
static void waiting_ones_are_not_counted(void **state)
{
    const struct fixture *f = *state;
    enum { WAITS = 2 * MST_POOL_MAX };
    struct mst__pool pool;
    struct mst__pool_conn *waits[WAITS];
    struct mst__pool_conn *conn = NULL;
    pool_open(&pool, f);
    for (size_t i = 0; i < WAITS; i++) {
        assert_ok(mst__pool_get(&pool, MST_POOL_WAIT, mst__until_in(PLENTY_MS), &waits[i], &err));
    }
    assert_int_equal(pool.waiting_count, WAITS);
    /* One connection is there for the call that they wait for, however long ago it was made. */
    assert_int_equal(pool.open_count, 1);
    mst__pool_prune(&pool, 0);
    assert_ok(mst__pool_get(&pool, MST_POOL_SHORT, mst__until_in(PLENTY_MS), &conn, &err));
    assert_int_equal(pool.connects, WAITS + 1);
    /* A wait does not take the last connection... */
    mst__pool_put(&pool, conn);
    mst__pool_drop(&pool, waits[0]);
    assert_ok(mst__pool_get(&pool, MST_POOL_WAIT, mst__until_in(PLENTY_MS), &waits[0], &err));
    assert_ptr_equal(pool.idle, conn);
    assert_int_equal(pool.open_count, 1);
    /* ...unless it is the only one that waits. */
    for (size_t i = 0; i < WAITS; i++) {
        mst__pool_drop(&pool, waits[i]);
    }
    assert_int_equal(pool.waiting_count, 0);
    assert_ok(mst__pool_get(&pool, MST_POOL_WAIT, mst__until_in(PLENTY_MS), &waits[0], &err));
    assert_ptr_equal(waits[0], conn);
    assert_int_equal(pool.open_count, 0);
    mst__pool_put(&pool, conn);
    assert_int_equal(pool.open_count, 1);
    mst__pool_close(&pool);
}

/* When there are no more descriptors, a call that waits fails, and one that does not is served. */
static void waiting_ones_leave_one(void **state)
{
    const struct fixture *f = *state;
    struct mst__pool pool;
    struct mst__pool_conn *waits[2];
    struct mst__pool_conn *conn = NULL;
    struct rlimit before;
    pool_open(&pool, f);
    for (size_t i = 0; i < 2; i++) {
        assert_ok(mst__pool_get(&pool, MST_POOL_WAIT, mst__until_in(PLENTY_MS), &waits[i], &err));
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int rv = mst__pool_get(&pool, MST_POOL_WAIT, mst__until_in(PLENTY_MS), &conn, &err);
    int short_rv = mst__pool_get(&pool, MST_POOL_SHORT, mst__until_in(PLENTY_MS), &conn, NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(rv, MST_ESYS);
    assert_ok(short_rv);
    mst__pool_drop(&pool, conn);
    mst__pool_drop(&pool, waits[0]);
    mst__pool_drop(&pool, waits[1]);
    mst__pool_close(&pool);
}

/* The time of the call that makes a connection for others, and of the one that waits for that. */
#define FIRST_MS (6 * SHORT_MS)
#define SECOND_MS (40 * SHORT_MS)

static void *want_to_wait(void *arg)
{
    struct wanting *wanting = arg;
    wanting->rv = mst__pool_get(wanting->pool, MST_POOL_WAIT, mst__until_in(wanting->timeout_ms),
                                &wanting->conn, &wanting->err);
    return NULL;
}

/* While a call that waits makes a connection for others, here at a server that does not answer, no
 * other one that waits makes its own. */
static void the_one_for_others_comes_first(void **state)
{
    (void)state;
    struct fixture f = {.endpoint = {.host = "127.0.0.1"}};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct mst__pool pool;
    struct wanting wantings[2];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    f.endpoint.port = ntohs(address.sin_port);
    pool_open(&pool, &f);
    pool.waiting_count = 1; /* the first one, which has a connection */
    struct pollfd arrivals = {.fd = fd, .events = POLLIN};
    int accepted[2];
    for (size_t i = 0; i < 2; i++) {
        wantings[i] = (struct wanting){.pool = &pool, .timeout_ms = i == 0 ? FIRST_MS : SECOND_MS};
        assert_int_equal(pthread_create(&wantings[i].thread, NULL, want_to_wait, &wantings[i]), 0);
        if (i == 0) {
            assert_int_equal(poll(&arrivals, 1, PLENTY_MS), 1);
            accepted[0] = accept(fd, NULL, NULL);
            assert_true(accepted[0] >= 0);
        }
    }
    assert_int_equal(poll(&arrivals, 1, 2 * SHORT_MS), 0);
    /* When it has failed, the other one tries, and not only when its own time is over. */
    assert_int_equal(poll(&arrivals, 1, SECOND_MS / 2), 1);
    accepted[1] = accept(fd, NULL, NULL);
    assert_true(accepted[1] >= 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(wantings[i].thread, NULL), 0);
        assert_int_equal(wantings[i].rv, MST_ETIMEOUT);
    }
    assert_int_equal(pool.open_count, 0);
    assert_int_equal(pool.connecting_count, 0);
    pool.waiting_count--;
    mst__pool_close(&pool);
    assert_int_equal(close(accepted[0]), 0);
    assert_int_equal(close(accepted[1]), 0);
    assert_int_equal(close(fd), 0);
}

/* A server that has no more places is asked again and again. A connection that comes back meanwhile
 * serves instead, but the last one is left to calls that do not wait. */
static void one_that_comes_back_serves(void **state)
{
    const struct fixture *f = *state;
    struct mst__pool pool;
    struct mst__pool_conn *conns[3];
    struct mst__pool_conn *none = NULL;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    pool_open(&pool, f);
    for (size_t i = 0; i < 3; i++) {
        assert_ok(mst__pool_get(&pool, MST_POOL_SHORT, mst__until_in(PLENTY_MS), &conns[i], &err));
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* which refuses connections */
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    pool.endpoint = (struct mst__endpoint){.host = "127.0.0.1", .port = ntohs(address.sin_port)};
    struct wanting wanting;
    wanting_start(&wanting, &pool, MST_POOL_SHORT);
    mst__pool_put(&pool, conns[0]);
    wanting_join(&wanting);
    assert_ptr_equal(wanting.conn, conns[0]);
    pool.waiting_count = 1; /* another one */
    wanting_start(&wanting, &pool, MST_POOL_WAIT);
    mst__pool_put(&pool, conns[0]);
    wanting_join(&wanting);
    assert_ptr_equal(wanting.conn, conns[0]);
    mst__pool_drop(&pool, conns[0]);
    mst__pool_drop(&pool, conns[1]);
    mst__pool_put(&pool, conns[2]); /* the last one */
    assert_fails(mst__pool_get(&pool, MST_POOL_WAIT, mst__until_in(SHORT_MS), &none, &err),
                 MST_ECONN, "refused");
    assert_ptr_equal(pool.idle, conns[2]);
    assert_int_equal(pool.open_count, 1);
    assert_int_equal(pool.connecting_count, 0);
    pool.waiting_count--;
    assert_int_equal(pool.waiting_count, 0);
    mst__pool_close(&pool);
    assert_int_equal(close(fd), 0);
}

/* Of many connections that come back from waits, as many are kept as may be idle. */
static void some_waiting_ones_are_kept(void **state)
{
    const struct fixture *f = *state;
    struct mst__pool pool;
    struct mst__pool_conn *waits[MST_POOL_MAX + 1];
    pool_open(&pool, f);
    for (size_t i = 0; i <= MST_POOL_MAX; i++) {
        assert_ok(mst__pool_get(&pool, MST_POOL_WAIT, mst__until_in(PLENTY_MS), &waits[i], &err));
    }
    for (size_t i = 0; i <= MST_POOL_MAX; i++) {
        mst__pool_put(&pool, waits[i]);
    }
    assert_int_equal(pool.open_count, MST_POOL_MAX);
    assert_int_equal(pool.waiting_count, 0);
    mst__pool_close(&pool);
}

/* Connections that lie idle are closed when they have done so for long enough, the others are
 * kept. */
static void idle_ones_are_closed(void **state)
{
    struct fixture *f = *state;
    struct mst__pool pool;
    struct mst__pool_conn *conns[3];
    pool_open(&pool, f);
    for (size_t i = 0; i < 3; i++) {
        assert_ok(mst__pool_get(&pool, MST_POOL_FRESH, mst__until_in(PLENTY_MS), &conns[i], &err));
    }
    mst__pool_put(&pool, conns[0]);
    mst__pool_put(&pool, conns[1]);
    mst__pool_prune(&pool, PLENTY_MS);
    assert_int_equal(pool.open_count, 3);
    conns[0]->idle_ms -= PLENTY_MS; /* the first that came back */
    mst__pool_prune(&pool, PLENTY_MS);
    assert_int_equal(pool.open_count, 2);
    assert_ptr_equal(pool.idle, conns[1]);
    mst__pool_prune(&pool, 0);
    assert_int_equal(pool.open_count, 1);
    assert_null(pool.idle);
    mst__pool_put(&pool, conns[2]);
    mst__pool_close(&pool);
}

/* The newest idle connection is taken, unless a fresh one is wanted; that takes the place of an
 * idle one if there is no other. One with many cancellations outstanding is not kept. */
static void which_one_is_taken(void **state)
{
    const struct fixture *f = *state;
    struct mst__pool pool;
    struct mst__pool_conn *conns[MST_POOL_MAX];
    struct mst__pool_conn *conn = NULL;
    pool_open(&pool, f);
    for (size_t i = 0; i < MST_POOL_MAX; i++) {
        assert_ok(mst__pool_get(&pool, MST_POOL_SHORT, mst__until_in(PLENTY_MS), &conns[i], &err));
    }
    for (size_t i = 0; i < MST_POOL_MAX; i++) {
        mst__pool_put(&pool, conns[i]);
    }
    assert_ok(mst__pool_get(&pool, MST_POOL_SHORT, mst__until_in(PLENTY_MS), &conn, &err));
    assert_ptr_equal(conn, conns[MST_POOL_MAX - 1]);
    assert_int_equal(pool.connects, MST_POOL_MAX);
    mst__pool_put(&pool, conn);
    assert_ok(mst__pool_get(&pool, MST_POOL_FRESH, mst__until_in(PLENTY_MS), &conn, &err));
    assert_int_equal(pool.connects, MST_POOL_MAX + 1);
    assert_int_equal(pool.open_count, MST_POOL_MAX);
    conn->unconfirmed = 16;
    mst__pool_put(&pool, conn);
    assert_int_equal(pool.open_count, MST_POOL_MAX);
    conn = pool.idle;
    pool.idle = conn->next;
    conn->unconfirmed = 17;
    mst__pool_put(&pool, conn);
    assert_int_equal(pool.open_count, MST_POOL_MAX - 1);
    mst__pool_close(&pool);
}

/* A peer that closes connections, five for one attempt to connect, and then says nothing. */
#define REFUSED 5

static void *refuse(void *arg)
{
    const int *listener = arg;
    for (int i = 0; i < REFUSED; i++) {
        int fd = accept(*listener, NULL, NULL);
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    return NULL;
}

/* Whoever connects in vain until the time is over hears why, and not that the time was over. */
static void reason_outlives_the_deadline(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = PLENTY_MS / 1000};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    struct fixture f = {.endpoint = {.host = "127.0.0.1", .port = ntohs(address.sin_port)}};
    struct mst__pool pool;
    struct mst__pool_conn *conn = NULL;
    pthread_t thread;
    pool_open(&pool, &f);
    assert_int_equal(pthread_create(&thread, NULL, refuse, &listener), 0);
    assert_fails(mst__pool_get(&pool, MST_POOL_SHORT, mst__until_in(1000), &conn, &err), MST_ECONN,
                 "it closes every connection");
    assert_non_null(strstr(err.msg, "(2 attempts)"));
    mst__pool_close(&pool);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(close(listener), 0);
}

/* Pauses grow, and not beyond their limit: a server that comes back late is found soon. */
static void pauses_are_bounded(void **state)
{
    (void)state;
    uint64_t one = 1;
    struct mst__backoff backoff;
    int wake_fd = eventfd(0, EFD_CLOEXEC); /* readable: no pause takes any time */
    assert_true(wake_fd >= 0);
    assert_int_equal(write(wake_fd, &one, sizeof one), sizeof one);
    mst__backoff_init(&backoff, 20, 1000);
    for (int i = 0; i < 30; i++) {
        int64_t before_us = backoff.pause_us;
        (void)mst__backoff_pause(&backoff, mst__until_by(wake_fd, PLENTY_MS));
        assert_true(backoff.pause_us > before_us || before_us == 1000000);
    }
    assert_int_equal(backoff.pause_us, 1000000);
    assert_int_equal(close(wake_fd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_in_use, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(waiting_ones_are_not_counted, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(waiting_ones_leave_one, fixture_open, fixture_close),
        cmocka_unit_test(the_one_for_others_comes_first),
        cmocka_unit_test_setup_teardown(one_that_comes_back_serves, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(some_waiting_ones_are_kept, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(idle_ones_are_closed, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(which_one_is_taken, fixture_open, fixture_close),
        cmocka_unit_test(reason_outlives_the_deadline),
        cmocka_unit_test(pauses_are_bounded),
    };
    return MST_RUN_TESTS(tests);
}
