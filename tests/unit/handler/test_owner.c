/* unit/handler/test_owner.c - the thread that owns the machine of a handler. */
#include "handler/owner.h"

#include <errno.h>
#include <muster/wait.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "unit/unit.h"

#define PLENTY_MS 30000
#define CANCEL_MS 10000
#define ROUNDS 100

/* One is static, as all that threads use: a test that fails leaves them behind. */
struct machine {
    struct mst__owner owner;
    int joined_count;
    bool was_begun; /* when an outcome was told */
    atomic_bool is_watching, may_stop_watching;
    atomic_bool is_working;
    int result; /* of the task */
    bool is_polite;
    atomic_int watches; /* that have ended */
};

static int join(void *self, void *arg, struct mst_err *reterr)
{
    struct machine *machine = self;
    (void)arg;
    (void)reterr;
    machine->joined_count++;
    return 0;
}

static void tell(void *self)
{
    struct machine *machine = self;
    machine->was_begun = machine->was_begun || machine->owner.is_begun;
    mst__owner_ring(machine->owner.news_fd);
}

/* Until the test says so, or if that is all, as handlers do, until there is something to do. */
static void watch(void *self)
{
    struct machine *machine = self;
    if (machine->is_polite) {
        struct pollfd stop = {.fd = machine->owner.stop_fd, .events = POLLIN};
        atomic_store(&machine->is_watching, true);
        (void)poll(&stop, 1, CANCEL_MS);
        atomic_store(&machine->is_watching, false);
        atomic_fetch_add(&machine->watches, 1);
        return;
    }
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    atomic_store(&machine->is_watching, true);
    while (!atomic_load(&machine->may_stop_watching) && mst__clock_ms() < deadline_ms) {
        (void)poll(NULL, 0, 1);
    }
}

static void machine_open(struct machine *machine)
{
    struct mst_err err;
    assert_int_equal(mst__owner_init(&machine->owner, watch, machine, &err), 0);
}

static void machine_close(struct machine *machine)
{
    mst__owner_stop(&machine->owner);
    mst__owner_close(&machine->owner);
}

static bool is_readable(int fd)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    return poll(&pollfd, 1, 0) == 1;
}

static void await_true(atomic_bool *flag)
{
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (!atomic_load(flag) && mst__clock_ms() < deadline_ms) {
        (void)poll(NULL, 0, 1);
    }
    assert_true(atomic_load(flag));
}

/* A task: a round is joined. */
static int enter(void *self, void *arg, struct mst_err *reterr)
{
    struct machine *machine = self;
    (void)arg;
    (void)reterr;
    mst__owner_joined(&machine->owner, true);
    return 0;
}

/* Run a task that succeeds. */
static void run(struct machine *machine, mst__owner_task_fn task, void *arg)
{
    struct mst_err err;
    assert_int_equal(mst__owner_begin(&machine->owner, true, &err), 0);
    assert_int_equal(mst__owner_run(&machine->owner, task, arg, &err), 0);
    mst__owner_end(&machine->owner);
}

/* An application that hears that its round is there may want the next one at once. */
static void begun_again_at_once(void **state)
{
    (void)state;
    static struct machine machine;
    struct mst_err err;
    machine_open(&machine);
    for (int i = 1; i <= ROUNDS; i++) {
        assert_int_equal(mst__owner_want(&machine.owner, join, tell, &err), 0);
        struct pollfd news = {.fd = machine.owner.news_fd, .events = POLLIN};
        assert_int_equal(poll(&news, 1, PLENTY_MS), 1);
        mst__owner_silence(machine.owner.news_fd);
        mst__owner_lock(&machine.owner);
        assert_int_equal(machine.joined_count, i);
        mst__owner_unlock(&machine.owner);
    }
    assert_false(machine.was_begun);
    machine_close(&machine);
}

#define WAITERS 32

struct waiter {
    pthread_t thread;
    struct machine *machine;
    atomic_size_t *waiting;
    int rv;
};

/* Nothing ever happens. */
static int look(void *self, void *arg, struct mst_err *reterr)
{
    struct waiter *waiter = arg;
    (void)self;
    (void)reterr;
    if (waiter->waiting != NULL) {
        atomic_fetch_add(waiter->waiting, 1);
        waiter->waiting = NULL;
    }
    return MST_ETIMEOUT;
}

static void *wait_for_news(void *arg)
{
    struct waiter *waiter = arg;
    struct mst_err err;
    waiter->rv =
        mst__owner_await(&waiter->machine->owner, CANCEL_MS, look, waiter->machine, waiter, &err);
    return NULL;
}

/* A cancellation ends all calls that wait, and none that comes later. So many threads cannot all
 * have noticed it before the first of them is gone. */
static void all_are_cancelled(void **state)
{
    (void)state;
    static struct waiter waiters[WAITERS];
    static struct machine machine;
    static atomic_size_t waiting;
    struct mst_err err;
    machine_open(&machine);
    for (size_t i = 0; i < WAITERS; i++) {
        waiters[i] = (struct waiter){.machine = &machine, .waiting = &waiting};
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_for_news, &waiters[i]), 0);
    }
    int64_t deadline_ms = mst__clock_deadline_ms(CANCEL_MS);
    while (atomic_load(&waiting) < WAITERS && mst__clock_ms() < deadline_ms) {
        (void)poll(NULL, 0, 1);
    }
    mst__owner_cancel(&machine.owner);
    for (size_t i = 0; i < WAITERS; i++) {
        assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
    }
    for (size_t i = 0; i < WAITERS; i++) {
        assert_int_equal(waiters[i].rv, MST_ECANCELED);
    }
    struct waiter late = {.machine = &machine};
    assert_int_equal(mst__owner_await(&machine.owner, 1, look, &machine, &late, &err),
                     MST_ETIMEOUT);
    machine_close(&machine);
}

/* A task that works until it is cancelled. */
static int work(void *self, void *arg, struct mst_err *reterr)
{
    struct machine *machine = self;
    struct pollfd cancelled = {.fd = machine->owner.cancel_fd, .events = POLLIN};
    (void)arg;
    atomic_store(&machine->is_working, true);
    if (poll(&cancelled, 1, CANCEL_MS) != 1) {
        return MST_ETIMEOUT;
    }
    return machine->result == MST_ECANCELED ? mst__owner_fail_cancelled(reterr) : machine->result;
}

struct worker {
    pthread_t thread;
    struct machine *machine;
    int rv;
};

static void *run_task(void *arg)
{
    struct worker *worker = arg;
    struct mst__owner *owner = &worker->machine->owner;
    struct mst_err err;
    worker->rv = mst__owner_begin(owner, true, &err);
    if (worker->rv == 0) {
        worker->rv = mst__owner_run(owner, work, NULL, &err);
        mst__owner_end(owner);
    }
    return NULL;
}

static void start_task(struct worker *worker, struct machine *machine)
{
    *worker = (struct worker){.machine = machine};
    assert_int_equal(pthread_create(&worker->thread, NULL, run_task, worker), 0);
}

/* What a call that waits for 1 ms returns. */
static int await_shortly(struct machine *machine)
{
    struct waiter late = {.machine = machine};
    struct mst_err err;
    return mst__owner_await(&machine->owner, 1, look, machine, &late, &err);
}

static int tell_cancelled(void *self, void *arg, struct mst_err *reterr)
{
    struct machine *machine = self;
    (void)reterr;
    *(bool *)arg = mst__owner_is_cancelled(&machine->owner);
    return 0;
}

/* A cancellation ends the task of a call, and is over with that, for later tasks and calls. One
 * that no call has noticed, because its task was done all the same or because there was none, is
 * for the next call. */
static void one_call_is_cancelled(void **state)
{
    (void)state;
    static const int results[] = {MST_ECANCELED, 0};
    static struct machine machine;
    machine_open(&machine);
    for (size_t i = 0; i < 2; i++) {
        static struct worker worker;
        bool is_cancelled = true;
        machine.result = results[i];
        atomic_store(&machine.is_working, false);
        start_task(&worker, &machine);
        await_true(&machine.is_working);
        mst__owner_cancel(&machine.owner);
        assert_int_equal(pthread_join(worker.thread, NULL), 0);
        assert_int_equal(worker.rv, results[i]);
        assert_int_equal(await_shortly(&machine), results[i] == 0 ? MST_ECANCELED : MST_ETIMEOUT);
        run(&machine, tell_cancelled, &is_cancelled);
        assert_false(is_cancelled);
    }
    mst__owner_cancel(&machine.owner);
    assert_int_equal(await_shortly(&machine), MST_ECANCELED);
    assert_int_equal(await_shortly(&machine), MST_ETIMEOUT);
    machine_close(&machine);
}

/* A task that is cancelled before it begins ends as soon as it does. */
static void cancelled_before_it_begins(void **state)
{
    (void)state;
    static struct machine machine = {.result = MST_ECANCELED};
    static struct worker worker;
    struct mst_err err;
    machine_open(&machine);
    assert_int_equal(mst__owner_want(&machine.owner, join, tell, &err), 0);
    assert_int_equal(mst__owner_await_begun(&machine.owner, PLENTY_MS, &err), 0);
    run(&machine, enter, NULL);
    await_true(&machine.is_watching);
    start_task(&worker, &machine);
    mst__owner_cancel(&machine.owner);
    struct pollfd cancelled = {.fd = machine.owner.cancel_fd, .events = POLLIN};
    assert_int_equal(poll(&cancelled, 1, CANCEL_MS), 1);
    assert_false(atomic_load(&machine.is_working));
    atomic_store(&machine.may_stop_watching, true);
    int64_t begin_ms = mst__clock_ms();
    assert_int_equal(pthread_join(worker.thread, NULL), 0);
    assert_int_equal(worker.rv, MST_ECANCELED);
    assert_true(mst__clock_ms() - begin_ms < CANCEL_MS / 2);
    machine_close(&machine);
}

/* The descriptor of a begun round tells its end, and not that of the round before. */
static void end_of_a_begun_round(void **state)
{
    (void)state;
    static struct machine machine;
    struct mst_err err;
    machine_open(&machine);
    struct pollfd over = {.fd = machine.owner.begun_fd, .events = POLLIN};
    for (int i = 0; i < 2; i++) {
        atomic_store(&machine.is_working, false);
        assert_int_equal(mst__owner_want(&machine.owner, work, tell, &err), 0);
        await_true(&machine.is_working);
        assert_int_equal(poll(&over, 1, 0), 0);
        assert_int_equal(mst__owner_await_begun(&machine.owner, 1, &err), MST_ETIMEOUT);
        assert_true(mst__owner_withdraw(&machine.owner));
        assert_int_equal(poll(&over, 1, PLENTY_MS), 1);
        assert_int_equal(mst__owner_await_begun(&machine.owner, PLENTY_MS, &err), 0);
    }
    machine_close(&machine);
}

/* A call that needs the present round begins only if there is one, and neither another call nor
 * another round has begun. */
static void only_in_a_quiet_round(void **state)
{
    (void)state;
    static struct machine machine;
    struct mst_err err;
    machine_open(&machine);
    assert_false(mst__owner_try_begin(&machine.owner));
    assert_int_equal(mst__owner_want(&machine.owner, work, tell, &err), 0);
    await_true(&machine.is_working);
    assert_false(mst__owner_try_begin(&machine.owner));
    assert_true(mst__owner_is_busy(&machine.owner));
    assert_true(mst__owner_withdraw(&machine.owner));
    assert_false(mst__owner_is_busy(&machine.owner));
    assert_false(mst__owner_try_begin(&machine.owner));
    run(&machine, enter, NULL);
    assert_int_equal(mst__owner_want(&machine.owner, work, tell, &err), 0);
    assert_false(mst__owner_try_begin(&machine.owner));
    atomic_store(&machine.may_stop_watching, true);
    assert_true(mst__owner_withdraw(&machine.owner));
    assert_true(mst__owner_try_begin(&machine.owner));
    assert_false(mst__owner_try_begin(&machine.owner));
    mst__owner_end(&machine.owner);
    machine_close(&machine);
}

/* --- a task and its answer --- */

struct question {
    int asked;
    int answer;
    bool is_in_owner, has_signals, has_memory;
};

static int answer(void *self, void *arg, struct mst_err *reterr)
{
    const struct machine *machine = self;
    struct question *question = arg;
    sigset_t blocked;
    void *memory = mst__malloc(1);
    question->answer = question->asked + 1;
    question->is_in_owner = pthread_equal(machine->owner.thread, pthread_self()) != 0;
    question->has_memory = memory != NULL;
    question->has_signals =
        pthread_sigmask(SIG_SETMASK, NULL, &blocked) != 0 || sigismember(&blocked, SIGINT) != 1;
    mst__free(memory);
    return mst__fail(reterr, MST_ECONN, 0, "no answer but %d", question->answer);
}

/* All tasks run in one thread, without the signals of the program, and their results and errors
 * come back. A fault of the caller's memory is found there, once. */
static void a_task_answers(void **state)
{
    (void)state;
    static struct machine machine;
    machine_open(&machine);
    for (int i = 0; i < 3; i++) {
        struct mst_err err = {0};
        struct question question = {.asked = 41 + i};
        assert_int_equal(mst__owner_begin(&machine.owner, true, &err), 0);
        mst__mem_fail_nth(i == 1 ? 1 : 0);
        assert_int_equal(mst__owner_run(&machine.owner, answer, &question, &err), MST_ECONN);
        assert_int_equal(mst__mem_failed(), i == 1);
        mst__mem_fail_nth(0);
        mst__owner_end(&machine.owner);
        assert_int_equal(question.answer, 42 + i);
        assert_true(question.is_in_owner);
        assert_false(question.has_signals);
        assert_int_equal(question.has_memory, i != 1);
        assert_int_equal(err.code, MST_ECONN);
        assert_non_null(strstr(err.msg, "no answer but 4"));
    }
    machine_close(&machine);
}

/* Where no thread can be started, the call says so, and a later one succeeds. */
static void no_thread_starts(void **state)
{
    (void)state;
    static struct machine machine;
    struct mst_err err = {0};
    pthread_attr_t usual;
    pthread_attr_t huge;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_getattr_default_np(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 62), 0);
    if (pthread_setattr_default_np(&huge) != 0) {
        MST_SKIP("this C library has a limit for stacks");
    }
    machine_open(&machine);
    int wanted = mst__owner_want(&machine.owner, join, tell, &err);
    int begun = mst__owner_begin(&machine.owner, true, &err);
    int ran = mst__owner_run(&machine.owner, enter, NULL, &err);
    mst__owner_end(&machine.owner);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    (void)pthread_attr_destroy(&usual);
    (void)pthread_attr_destroy(&huge);
    assert_int_equal(wanted, MST_ESYS);
    assert_int_equal(begun, 0);
    assert_int_equal(ran, MST_ESYS);
    assert_non_null(strstr(err.msg, "start a thread"));
    assert_false(mst__owner_is_busy(&machine.owner));
    assert_int_equal(mst__owner_await_begun(&machine.owner, 0, &err), 0);
    machine.is_polite = true;
    run(&machine, enter, NULL);
    await_true(&machine.is_watching);
    machine_close(&machine);
}

/* The owner watches between tasks; a task and the end interrupt that at once. */
static void watching_is_interrupted(void **state)
{
    (void)state;
    static struct machine machine = {.is_polite = true};
    int64_t begin_ms = mst__clock_ms();
    machine_open(&machine);
    run(&machine, enter, NULL);
    for (int i = 0; i < 3; i++) {
        await_true(&machine.is_watching);
        int before = atomic_load(&machine.watches);
        run(&machine, join, NULL);
        assert_int_equal(atomic_load(&machine.watches), before + 1);
    }
    await_true(&machine.is_watching);
    machine_close(&machine);
    assert_int_equal(machine.joined_count, 3);
    assert_true(mst__clock_ms() - begin_ms < CANCEL_MS / 2);
    assert_int_equal(atomic_load(&machine.watches), 4);
}

/* One that retires watches no more, but works. */
static void retired(void **state)
{
    (void)state;
    static struct machine machine = {.is_polite = true};
    machine_open(&machine);
    mst__owner_retire(&machine.owner); /* no round: nothing to do */
    assert_false(machine.owner.has_thread);
    run(&machine, enter, NULL);
    await_true(&machine.is_watching);
    mst__owner_retire(&machine.owner);
    assert_false(mst__owner_try_begin(&machine.owner));
    int watches = atomic_load(&machine.watches);
    for (int i = 0; i < 3; i++) {
        run(&machine, join, NULL);
    }
    assert_int_equal(atomic_load(&machine.watches), watches);
    machine_close(&machine);
}

/* --- a round that is begun while a task runs --- */

/* A task. The second wish changes nothing. */
static int begin_a_round(void *self, void *arg, struct mst_err *reterr)
{
    struct machine *machine = self;
    (void)arg;
    int rv = mst__owner_want(&machine->owner, work, tell, reterr);
    return rv == 0 ? mst__owner_want(&machine->owner, join, tell, reterr) : rv;
}

/* A task that is cancelled when it is nearly done; its caller waits by then. */
static int begin_and_cancel(void *self, void *arg, struct mst_err *reterr)
{
    struct machine *machine = self;
    int rv = begin_a_round(self, arg, reterr);
    (void)poll(NULL, 0, 5);
    mst__owner_cancel(&machine->owner);
    return rv;
}

/* It comes after the task. */
static void begun_by_a_task(void **state)
{
    (void)state;
    static struct machine machine;
    machine_open(&machine);
    run(&machine, begin_a_round, NULL);
    await_true(&machine.is_working);
    assert_true(mst__owner_withdraw(&machine.owner));
    assert_int_equal(machine.joined_count, 0);
    assert_false(mst__owner_withdraw(&machine.owner));
    machine_close(&machine);
}

/* The cancellation of a task that was done all the same does not end the round that follows. */
static void cancelled_too_late(void **state)
{
    (void)state;
    static struct machine machine;
    struct mst_err err;
    machine_open(&machine);
    for (int i = 0; i < 10; i++) {
        atomic_store(&machine.is_working, false);
        run(&machine, begin_and_cancel, NULL);
        await_true(&machine.is_working);
        assert_int_equal(mst__owner_await_begun(&machine.owner, CANCEL_MS, &err), MST_ECANCELED);
        assert_int_equal(mst__owner_await_begun(&machine.owner, 10, &err), MST_ETIMEOUT);
        assert_true(mst__owner_withdraw(&machine.owner));
    }
    machine_close(&machine);
}

/* The descriptor that ends a task is silent when it is over: others wait with it as well. */
static void silent_after_a_cancelled_task(void **state)
{
    (void)state;
    static struct machine machine = {.result = MST_ECANCELED};
    static struct worker worker;
    struct mst_err err;
    machine_open(&machine);
    start_task(&worker, &machine);
    await_true(&machine.is_working);
    mst__owner_cancel(&machine.owner);
    assert_int_equal(pthread_join(worker.thread, NULL), 0);
    assert_int_equal(worker.rv, MST_ECANCELED);
    assert_false(is_readable(machine.owner.cancel_fd));
    assert_int_equal(mst__owner_want(&machine.owner, work, tell, &err), 0);
    assert_true(mst__owner_withdraw(&machine.owner));
    assert_false(is_readable(machine.owner.cancel_fd));
    machine_close(&machine);
}

/* --- calls that wait --- */

enum call { CALL_AWAIT, CALL_AWAIT_BEGUN, CALL_BEGIN, CALL_BEGIN_ANYHOW, CALL_COUNT };

struct caller {
    pthread_t thread;
    struct machine *machine;
    enum call call;
    int64_t timeout_ms;
    atomic_bool is_calling, is_back, may_look;
    atomic_int looks;
    int rv;
    int64_t spent_ms;
};

/* Nothing ever happens; the second look waits for the test. */
static int look_often(void *self, void *arg, struct mst_err *reterr)
{
    struct caller *caller = arg;
    (void)self;
    (void)reterr;
    if (atomic_fetch_add(&caller->looks, 1) == 1) {
        await_true(&caller->may_look);
    }
    return MST_ETIMEOUT;
}

static void *call(void *arg)
{
    struct caller *caller = arg;
    struct mst__owner *owner = &caller->machine->owner;
    struct mst_err err;
    int64_t begin_ms = mst__clock_ms();
    atomic_store(&caller->is_calling, true);
    switch (caller->call) {
        case CALL_AWAIT:
            caller->rv =
                mst__owner_await(owner, caller->timeout_ms, look_often, NULL, caller, &err);
            break;
        case CALL_AWAIT_BEGUN:
            caller->rv = mst__owner_await_begun(owner, caller->timeout_ms, &err);
            break;
        case CALL_BEGIN:
        case CALL_BEGIN_ANYHOW:
            caller->rv = mst__owner_begin(owner, caller->call == CALL_BEGIN, &err);
            break;
        case CALL_COUNT:
            break;
    }
    caller->spent_ms = mst__clock_ms() - begin_ms;
    atomic_store(&caller->is_back, true);
    return NULL;
}

static size_t waiters(struct machine *machine)
{
    mst__owner_lock(&machine->owner);
    size_t count = machine->owner.waiters;
    mst__owner_unlock(&machine->owner);
    return count;
}

static void await_waiters(struct machine *machine, size_t count)
{
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (waiters(machine) != count && mst__clock_ms() < deadline_ms) {
        (void)poll(NULL, 0, 1);
    }
    assert_int_equal(waiters(machine), count);
}

static void caller_start(struct caller *caller,
                         struct machine *machine,
                         enum call which,
                         int64_t timeout_ms)
{
    *caller = (struct caller){
        .machine = machine, .call = which, .timeout_ms = timeout_ms, .may_look = true};
    assert_int_equal(pthread_create(&caller->thread, NULL, call, caller), 0);
    await_true(&caller->is_calling);
}

static int caller_join(struct caller *caller)
{
    assert_int_equal(pthread_join(caller->thread, NULL), 0);
    return caller->rv;
}

/* Calls that change the membership wait for each other. A cancellation ends that, but not for one
 * that must come through; the call that they wait for goes on. */
static void one_call_at_a_time(void **state)
{
    (void)state;
    static struct machine machine;
    struct mst_err err;
    static struct caller callers[3];
    machine_open(&machine);
    assert_int_equal(mst__owner_begin(&machine.owner, true, &err), 0);
    caller_start(&callers[0], &machine, CALL_BEGIN, 0);
    caller_start(&callers[1], &machine, CALL_BEGIN, 0);
    caller_start(&callers[2], &machine, CALL_BEGIN_ANYHOW, 0);
    await_waiters(&machine, 2);
    mst__owner_cancel(&machine.owner);
    assert_int_equal(caller_join(&callers[0]), MST_ECANCELED);
    assert_int_equal(caller_join(&callers[1]), MST_ECANCELED);
    assert_true(mst__owner_is_busy(&machine.owner));
    assert_false(atomic_load(&callers[2].is_back));
    mst__owner_end(&machine.owner);
    assert_int_equal(caller_join(&callers[2]), 0);
    caller_start(&callers[0], &machine, CALL_BEGIN, 0);
    await_waiters(&machine, 1);
    mst__owner_end(&machine.owner);
    assert_int_equal(caller_join(&callers[0]), 0);
    mst__owner_end(&machine.owner);
    assert_false(mst__owner_is_busy(&machine.owner));
    machine_close(&machine);
}

/* A task whose call is cancelled while it waits for a begun round ends as soon as it begins, and
 * the round lets it begin. */
static void cancelled_behind_a_round(void **state)
{
    (void)state;
    static struct machine machine = {.result = MST_ECANCELED};
    static struct worker worker;
    struct mst_err err;
    machine_open(&machine);
    assert_int_equal(mst__owner_want(&machine.owner, work, tell, &err), 0);
    await_true(&machine.is_working);
    start_task(&worker, &machine);
    await_waiters(&machine, 1);
    mst__owner_cancel(&machine.owner);
    assert_int_equal(pthread_join(worker.thread, NULL), 0);
    assert_int_equal(worker.rv, MST_ECANCELED);
    assert_int_equal(mst__owner_await_begun(&machine.owner, 0, &err), 0);
    machine_close(&machine);
}

/* All that wait for the begun round hear of its end, and are cancelled together, which leaves the
 * round alone. */
static void two_wait_for_the_round(void **state)
{
    (void)state;
    static struct machine machine;
    struct mst_err err;
    static struct caller callers[2];
    machine_open(&machine);
    assert_int_equal(mst__owner_want(&machine.owner, work, tell, &err), 0);
    await_true(&machine.is_working);
    for (int is_over = 0; is_over < 2; is_over++) {
        caller_start(&callers[0], &machine, CALL_AWAIT_BEGUN, CANCEL_MS);
        caller_start(&callers[1], &machine, CALL_AWAIT_BEGUN, CANCEL_MS);
        await_waiters(&machine, 2);
        if (is_over == 0) {
            mst__owner_cancel(&machine.owner);
        } else {
            assert_true(mst__owner_withdraw(&machine.owner));
        }
        assert_int_equal(caller_join(&callers[0]), is_over ? 0 : MST_ECANCELED);
        assert_int_equal(caller_join(&callers[1]), is_over ? 0 : MST_ECANCELED);
        assert_int_equal(mst__owner_is_busy(&machine.owner), !is_over);
    }
    machine_close(&machine);
}

/* A call that begins after a cancellation was returned sleeps, although a slow one, which is to
 * return it as well, is still under way when it begins. */
static void quiet_after_a_cancellation(void **state)
{
    (void)state;
    static struct machine machine;
    static struct caller slow;
    static struct caller quick;
    static struct caller late;
    machine_open(&machine);
    caller_start(&slow, &machine, CALL_AWAIT, CANCEL_MS);
    await_waiters(&machine, 1);
    atomic_store(&slow.may_look, false);
    caller_start(&quick, &machine, CALL_AWAIT, CANCEL_MS);
    await_waiters(&machine, 2);
    mst__owner_cancel(&machine.owner);
    assert_int_equal(caller_join(&quick), MST_ECANCELED);
    caller_start(&late, &machine, CALL_AWAIT, CANCEL_MS);
    await_waiters(&machine, 2);
    atomic_store(&slow.may_look, true);
    assert_int_equal(caller_join(&slow), MST_ECANCELED);
    assert_false(is_readable(machine.owner.call_fd));
    int looks = atomic_load(&late.looks);
    (void)poll(NULL, 0, 50);
    assert_true(atomic_load(&late.looks) <= looks + 1);
    mst__owner_cancel(&machine.owner);
    assert_int_equal(caller_join(&late), MST_ECANCELED);
    assert_true(late.spent_ms < CANCEL_MS / 2);
    machine_close(&machine);
}

/* Nothing yet, but a cancellation while it looks, and then a result. */
static int look_twice(void *self, void *arg, struct mst_err *reterr)
{
    struct machine *machine = self;
    int *looks = arg;
    (void)reterr;
    if ((*looks)++ == 0) {
        mst__owner_cancel(&machine->owner);
        return MST_ETIMEOUT;
    }
    return 0;
}

/* A call that has a result returns it; the cancellation is for the next one. */
static void a_result_comes_first(void **state)
{
    (void)state;
    static struct machine machine;
    struct mst_err err;
    int looks = 0;
    machine_open(&machine);
    assert_int_equal(
        mst__owner_await(&machine.owner, CANCEL_MS, look_twice, &machine, &looks, &err), 0);
    assert_int_equal(looks, 2);
    assert_int_equal(await_shortly(&machine), MST_ECANCELED);
    assert_int_equal(await_shortly(&machine), MST_ETIMEOUT);
    machine_close(&machine);
}

/* The bell of news ends no call that finds none, as other wake-ups do not, but its deadline does,
 * and not before its time. */
static void deadlines_and_idle_wake_ups(void **state)
{
    (void)state;
    static struct machine machine;
    struct mst_err err;
    static struct caller callers[CALL_COUNT];
    machine_open(&machine);
    assert_int_equal(mst__owner_begin(&machine.owner, true, &err), 0);
    assert_int_equal(mst__owner_want(&machine.owner, work, tell, &err), 0);
    for (int i = 0; i < CALL_COUNT; i++) {
        caller_start(&callers[i], &machine, (enum call)i, 200);
    }
    mst__owner_ring(machine.owner.news_fd);
    while (!atomic_load(&callers[CALL_AWAIT].is_back) ||
           !atomic_load(&callers[CALL_AWAIT_BEGUN].is_back)) {
        mst__owner_lock(&machine.owner);
        (void)pthread_cond_broadcast(&machine.owner.cond);
        mst__owner_unlock(&machine.owner);
        mst__owner_ring(machine.owner.stop_fd);
        (void)poll(NULL, 0, 1);
    }
    for (int i = 0; i < CALL_BEGIN; i++) {
        assert_int_equal(caller_join(&callers[i]), MST_ETIMEOUT);
        assert_true(callers[i].spent_ms >= 200);
    }
    assert_true(atomic_load(&callers[CALL_AWAIT].looks) > 2);
    for (int i = CALL_BEGIN; i < CALL_COUNT; i++) {
        assert_false(atomic_load(&callers[i].is_back));
    }
    assert_true(mst__owner_withdraw(&machine.owner)); /* it is still begun */
    for (int i = CALL_BEGIN; i < CALL_COUNT; i++) {   /* one after the other, in any order */
        int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
        mst__owner_end(&machine.owner);
        while (!mst__owner_is_busy(&machine.owner) && mst__clock_ms() < deadline_ms) {
            (void)poll(NULL, 0, 1);
        }
    }
    assert_int_equal(caller_join(&callers[CALL_BEGIN]), 0);
    assert_int_equal(caller_join(&callers[CALL_BEGIN_ANYHOW]), 0);
    mst__owner_end(&machine.owner);
    machine_close(&machine);
}

/* --- signals --- */

static struct mst__owner *signalled;

static void on_signal(int number)
{
    if (number == SIGUSR1) {
        mst__owner_cancel(signalled);
    }
}

static void count_told(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

static atomic_int told;

static void *call_and_tell(void *arg)
{
    mst_on_wait(count_told, &told);
    return call(arg);
}

/* A signal ends no call by itself, but the wait function of the thread hears of it; a signal
 * handler can cancel the call. */
static void signals(void **state)
{
    (void)state;
    static struct machine machine;
    struct mst_err err;
    struct sigaction action = {.sa_handler = on_signal};
    machine_open(&machine);
    signalled = &machine.owner;
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    assert_int_equal(sigaction(SIGUSR2, &action, NULL), 0);
    assert_int_equal(mst__owner_begin(&machine.owner, true, &err), 0);
    assert_int_equal(mst__owner_want(&machine.owner, work, tell, &err), 0);
    for (int i = 0; i < CALL_BEGIN_ANYHOW; i++) {
        static struct caller caller;
        caller = (struct caller){
            .machine = &machine, .call = (enum call)i, .timeout_ms = CANCEL_MS, .may_look = true};
        assert_int_equal(pthread_create(&caller.thread, NULL, call_and_tell, &caller), 0);
        await_waiters(&machine, 1);
        int before = atomic_load(&told);
        int64_t deadline_ms = mst__clock_deadline_ms(CANCEL_MS / 2);
        while (atomic_load(&told) < before + 3 && mst__clock_ms() < deadline_ms) {
            assert_int_equal(pthread_kill(caller.thread, SIGUSR2), 0);
            (void)poll(NULL, 0, 1);
        }
        assert_true(atomic_load(&told) >= before + 3);
        assert_false(atomic_load(&caller.is_back));
        assert_int_equal(pthread_kill(caller.thread, SIGUSR1), 0);
        assert_int_equal(caller_join(&caller), MST_ECANCELED);
        assert_true(caller.spent_ms < CANCEL_MS);
    }
    assert_true(mst__owner_withdraw(&machine.owner));
    mst__owner_end(&machine.owner);
    machine_close(&machine);
}

/* Also with a descriptor that takes no more. */
static void errno_is_kept(void **state)
{
    (void)state;
    static struct machine machine;
    machine_open(&machine);
    assert_int_equal(eventfd_write(machine.owner.call_fd, UINT64_MAX - 1), 0);
    errno = ENOTTY;
    mst__owner_cancel(&machine.owner);
    assert_int_equal(errno, ENOTTY);
    assert_int_equal(await_shortly(&machine), MST_ECANCELED);
    assert_int_equal(await_shortly(&machine), MST_ETIMEOUT);
    assert_false(is_readable(machine.owner.call_fd));
    machine_close(&machine);
}

/* --- its end --- */

/* Whatever the owner does, it ends soon. */
static void stopped_at_any_time(void **state)
{
    (void)state;
    static struct machine idle;
    static struct machine working;
    static struct machine unused;
    struct mst_err err;
    int64_t begin_ms = mst__clock_ms();
    machine_open(&unused);
    machine_open(&idle);
    run(&idle, join, NULL);
    machine_open(&working);
    assert_int_equal(mst__owner_want(&working.owner, work, tell, &err), 0);
    await_true(&working.is_working);
    machine_close(&unused);
    machine_close(&idle);
    machine_close(&working);
    assert_true(mst__clock_ms() - begin_ms < CANCEL_MS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begun_again_at_once),
        cmocka_unit_test(all_are_cancelled),
        cmocka_unit_test(one_call_is_cancelled),
        cmocka_unit_test(cancelled_before_it_begins),
        cmocka_unit_test(end_of_a_begun_round),
        cmocka_unit_test(only_in_a_quiet_round),
        cmocka_unit_test(a_task_answers),
        cmocka_unit_test(no_thread_starts),
        cmocka_unit_test(watching_is_interrupted),
        cmocka_unit_test(retired),
        cmocka_unit_test(begun_by_a_task),
        cmocka_unit_test(cancelled_too_late),
        cmocka_unit_test(silent_after_a_cancelled_task),
        cmocka_unit_test(one_call_at_a_time),
        cmocka_unit_test(cancelled_behind_a_round),
        cmocka_unit_test(two_wait_for_the_round),
        cmocka_unit_test(quiet_after_a_cancellation),
        cmocka_unit_test(a_result_comes_first),
        cmocka_unit_test(deadlines_and_idle_wake_ups),
        cmocka_unit_test(signals),
        cmocka_unit_test(errno_is_kept),
        cmocka_unit_test(stopped_at_any_time),
    };
    return MST_RUN_TESTS(tests);
}
