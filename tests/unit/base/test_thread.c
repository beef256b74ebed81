/* unit/base/test_thread.c - what threads wait for. */
#include "base/clock.h"
#include "base/thread.h"
#include "unit/unit.h"

/* A wait by the wall clock would end at once: by that clock the deadline was decades ago. */
static void waits_by_the_monotonic_clock(void **state)
{
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    mst__cond_init(&cond);
    int64_t deadline_ms = mst__clock_deadline_ms(30);
    int waits = 0;
    (void)pthread_mutex_lock(&mutex);
    while (mst__clock_ms() < deadline_ms && waits < 100) {
        mst__cond_wait_until(&cond, &mutex, deadline_ms);
        waits++;
    }
    (void)pthread_mutex_unlock(&mutex);
    assert_in_range(waits, 0, 99); /* one, but for wake-ups without a reason */
    assert_true(mst__clock_ms() >= deadline_ms);
    (void)pthread_cond_destroy(&cond);
}

/* A machine that runs for less than a second has such times. */
static void ends_when_it_is_over(void **state)
{
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    mst__cond_init(&cond);
    (void)pthread_mutex_lock(&mutex);
    mst__cond_wait_until(&cond, &mutex, 0);
    mst__cond_wait_until(&cond, &mutex, mst__clock_ms());
    (void)pthread_mutex_unlock(&mutex);
    (void)pthread_cond_destroy(&cond);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_by_the_monotonic_clock),
        cmocka_unit_test(ends_when_it_is_over),
    };
    return MST_RUN_TESTS(tests);
}
