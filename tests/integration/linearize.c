/* linearize.c - are the operations of many clients on one server explained by some order, even when
 * their connections are cut at random?
 *
 *     linearize MUSTER [SEED...]
 *
 * A real `muster serve` child, a proxy that cuts connections, and threads with a store handle each
 * that do random operations on few keys. What they asked and were told is recorded per key with the
 * monotonic clock and judged by history.c. The rules for what is not known:
 *   - MST_ECONN promises that nothing was done, so nothing is recorded;
 *   - after MST_EUNKNOWN and MST_ETIMEOUT a write may take effect at any later time, or never;
 *   - a SET that was sent again may have been done more than once while it was under way. Nothing
 *     else may: whatever the client repeated, it must have been done exactly once.
 * Without seeds, it runs a fixed list and a new one. The seed fixes what the threads ask and when
 * the proxy cuts, though not how the threads are scheduled. */
#include <errno.h>
#include <fcntl.h>
#include <muster/store.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/prng.h"
#include "history.h"
#include "history_test.h"
#include "proxy.h"

#define THREADS 8
#define ROUNDS 70
#define OPS_PER_ROUND 60 /* of each thread */
#define REGISTERS 4
#define COUNTERS 2
#define KEYS (REGISTERS + COUNTERS)
#define PIECES_PER_CUT 40
#define TIMEOUT_MS 10000
#define START_TIMEOUT_MS 20000

extern char **environ;

struct worker {
    int index;
    int round;
    uint64_t seed;
    struct mst__prng prng;
    struct mst_store *store;
    struct mst__history histories[KEYS];
    char last_seen[KEYS][128]; /* expected by compare_set; empty = absent */
    int values_count;
    int unknown_count;
    int nothing_count;
    int again_count;
    int failures; /* unexpected errors */
};

struct totals {
    size_t ops, steps;
    int unknown, nothing, again;
};

/* --- the server --- */

struct child {
    pid_t pid;
    int port;
    char directory[64];
    char port_file[96];
    char log_file[96];
};

static bool child_read_port(struct child *child)
{
    FILE *file = fopen(child->port_file, "re");
    if (file == NULL) {
        return false;
    }
    char text[16] = "";
    bool read = fgets(text, sizeof text, file) != NULL;
    (void)fclose(file); /* only read */
    child->port = (int)strtol(text, NULL, 10);
    return read;
}

static bool child_start(struct child *child, char *muster)
{
    (void)snprintf(child->directory, sizeof child->directory, "/tmp/muster-linearize-XXXXXX");
    if (mkdtemp(child->directory) == NULL) {
        perror(child->directory);
        return false;
    }
    (void)snprintf(child->port_file, sizeof child->port_file, "%s/port", child->directory);
    (void)snprintf(child->log_file, sizeof child->log_file, "%s/log", child->directory);
    char serve[] = "serve", host[] = "--host", address[] = "127.0.0.1", port[] = "--port";
    char zero[] = "0", port_file[] = "--port-file";
    char *argv[] = {muster, serve, host, address, port, zero, port_file, child->port_file, NULL};
    posix_spawn_file_actions_t actions;
    int rv = posix_spawn_file_actions_init(&actions);
    MST_ASSERT(rv == 0);
    rv = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, child->log_file,
                                          O_WRONLY | O_CREAT | O_TRUNC, 0600);
    MST_ASSERT(rv == 0);
    rv = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    MST_ASSERT(rv == 0);
    rv = posix_spawn(&child->pid, muster, &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions); /* always 0 */
    if (rv != 0) {
        (void)fprintf(stderr, "%s: %s\n", muster, strerror(rv));
        return false;
    }
    int64_t deadline_ms = mst__clock_deadline_ms(START_TIMEOUT_MS);
    while (!child_read_port(child)) {
        if (mst__clock_ms() > deadline_ms || waitpid(child->pid, NULL, WNOHANG) != 0) {
            (void)fprintf(stderr, "%s serve did not start, see %s\n", muster, child->log_file);
            return false;
        }
        struct timespec pause = {.tv_nsec = 5000000};
        (void)nanosleep(&pause, NULL); /* it looks again in any case */
    }
    return true;
}

/* SIGTERM; false if it ended with an error. */
static bool child_stop(struct child *child)
{
    int status = 0;
    (void)kill(child->pid, SIGTERM); /* if it has ended already, waitpid tells how */
    pid_t pid = waitpid(child->pid, &status, 0);
    if (pid != child->pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        (void)printf("the server ended with %d, see %s\n",
                     WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status),
                     child->log_file);
        return false;
    }
    (void)unlink(child->port_file); /* a leftover in /tmp does no harm */
    (void)unlink(child->log_file);
    (void)rmdir(child->directory);
    return true;
}

/* --- the clients --- */

static uint64_t store_retries(struct mst_store *store)
{
    struct mst_store_stats stats = {.size = sizeof stats};
    int rv = mst_store_get_stats(store, &stats);
    MST_ASSERT(rv == 0);
    return stats.retries;
}

static char *text_copy(const char *text)
{
    char *copy = mst__strdup(text);
    MST_ASSERT(copy != NULL);
    return copy;
}

static struct mst_bytes key_name(const struct worker *worker, size_t key, char ret_name[64])
{
    (void)snprintf(ret_name, 64, "%llu/%d/%s%zu", (unsigned long long)worker->seed, worker->round,
                   key < REGISTERS ? "register" : "counter", key);
    return mst_bytes_str(ret_name);
}

/* Choose an operation on @key. */
static struct mst__history_op choose_op(struct worker *worker, size_t key)
{
    static const enum mst__history_kind of_register[] = {
        MST_HISTORY_SET,         MST_HISTORY_SET,         MST_HISTORY_GET,
        MST_HISTORY_GET,         MST_HISTORY_GET,         MST_HISTORY_CHECK,
        MST_HISTORY_COMPARE_SET, MST_HISTORY_COMPARE_SET, MST_HISTORY_COMPARE_SET,
        MST_HISTORY_DELETE,      MST_HISTORY_APPEND,      MST_HISTORY_APPEND,
    };
    static const enum mst__history_kind of_counter[] = {
        MST_HISTORY_ADD, MST_HISTORY_ADD, MST_HISTORY_ADD,    MST_HISTORY_ADD, MST_HISTORY_ADD,
        MST_HISTORY_ADD, MST_HISTORY_ADD, MST_HISTORY_DELETE, MST_HISTORY_GET, MST_HISTORY_CHECK,
    };
    struct mst__history_op op = {.thread = worker->index, .has_result = true};
    uint64_t roll = mst__prng_next(&worker->prng) >> 8;
    op.kind = key < REGISTERS ? of_register[roll % (sizeof of_register / sizeof of_register[0])]
                              : of_counter[roll % (sizeof of_counter / sizeof of_counter[0])];
    op.delta = 1 + (int64_t)mst__prng_below(&worker->prng, 5);
    if (op.kind == MST_HISTORY_SET || op.kind == MST_HISTORY_APPEND ||
        op.kind == MST_HISTORY_COMPARE_SET) {
        /* All written values differ, so that a reader can identify the writer; and a compare_set
         * never expects its own value, which the protocol could not answer. */
        char value[32];
        (void)snprintf(value, sizeof value, "%c%d.%d", op.kind == MST_HISTORY_APPEND ? '+' : 'v',
                       worker->index, worker->values_count++);
        op.value = text_copy(value);
    }
    if (op.kind == MST_HISTORY_COMPARE_SET) {
        op.expected = text_copy(worker->last_seen[key]);
    }
    return op;
}

/* Call the store, and note the result in @op. */
static int ask(struct worker *worker,
               struct mst_bytes key,
               int64_t timeout_ms,
               struct mst__history_op *op,
               struct mst_err *reterr)
{
    struct mst_store *store = worker->store;
    struct mst_bytes value = op->value == NULL ? mst_bytes_of("", 0) : mst_bytes_str(op->value);
    struct mst_buffer seen = {0};
    int rv = 0;
    switch (op->kind) {
        case MST_HISTORY_SET:
            return mst_store_set(store, key, value, timeout_ms, reterr);
        case MST_HISTORY_APPEND:
            return mst_store_append(store, key, value, timeout_ms, reterr);
        case MST_HISTORY_ADD:
            return mst_store_add(store, key, op->delta, timeout_ms, &op->sum, reterr);
        case MST_HISTORY_DELETE:
            return mst_store_delete(store, key, timeout_ms, &op->existed, reterr);
        case MST_HISTORY_CHECK:
            return mst_store_check(store, &key, 1, timeout_ms, &op->existed, reterr);
        case MST_HISTORY_GET:
            rv = mst_store_try_get(store, key, timeout_ms, &seen, reterr);
            if (rv == MST_ENOTFOUND) {
                return 0; /* op->seen stays NULL: absent */
            }
            break;
        case MST_HISTORY_COMPARE_SET:
            MST_ASSERT(op->expected != NULL);
            rv = mst_store_compare_set(store, key, mst_bytes_str(op->expected), value, timeout_ms,
                                       &op->outcome, &seen, reterr);
            break;
    }
    if (rv == 0 && (op->kind == MST_HISTORY_GET || op->outcome != MST_COMPARE_SET_ABSENT)) {
        op->seen = text_copy(seen.data == NULL ? "" : (const char *)seen.data);
    }
    mst_buffer_free(&seen);
    return rv;
}

static bool is_read(const struct mst__history_op *op)
{
    return op->kind == MST_HISTORY_GET || op->kind == MST_HISTORY_CHECK;
}

static void forget(struct mst__history_op *op)
{
    mst__free(op->value);
    mst__free(op->expected);
    mst__free(op->seen);
}

/* Record @op, whose call returned @rv; it was sent @again more times. */
static void record(struct worker *worker,
                   size_t key,
                   struct mst__history_op *op,
                   int rv,
                   uint64_t again,
                   const struct mst_err *err)
{
    if (rv == MST_EUNKNOWN || rv == MST_ETIMEOUT) {
        worker->unknown_count++;
        op->has_result = false;
        op->is_optional = true;
        op->return_ns = MST_HISTORY_FOREVER;
    } else if (rv != 0 && rv != MST_ECONN) {
        (void)printf("thread %d: unexpected %s: %s\n", worker->index, mst_errname(rv), err->msg);
        worker->failures++;
    }
    /* A read without an answer tells nothing. */
    if ((rv != 0 && rv != MST_EUNKNOWN && rv != MST_ETIMEOUT) || (op->is_optional && is_read(op))) {
        worker->nothing_count++;
        forget(op);
        return;
    }
    for (uint64_t i = 0; op->kind == MST_HISTORY_SET && i < again; i++) {
        struct mst__history_op twin = *op;
        twin.value = text_copy(op->value);
        twin.is_optional = true;
        mst__history_add(&worker->histories[key], &twin);
    }
    mst__history_add(&worker->histories[key], op);
}

static void *worker_run(void *arg)
{
    struct worker *worker = arg;
    for (int i = 0; i < OPS_PER_ROUND; i++) {
        size_t key = (size_t)mst__prng_below(&worker->prng, KEYS);
        char name[64];
        struct mst_bytes key_bytes = key_name(worker, key, name);
        struct mst__history_op op = choose_op(worker, key);
        /* Some calls have a short timeout. */
        int64_t timeout_ms = mst__prng_below(&worker->prng, 50) == 0
                                 ? (int64_t)mst__prng_below(&worker->prng, 3)
                                 : TIMEOUT_MS;
        uint64_t retries = store_retries(worker->store);
        struct mst_err err = {0};
        op.invoke_ns = mst__clock_ns();
        int rv = ask(worker, key_bytes, timeout_ms, &op, &err);
        op.return_ns = mst__clock_ns();
        uint64_t again = store_retries(worker->store) - retries;
        worker->again_count += again > 0;
        if (rv == 0 && op.seen != NULL) {
            (void)snprintf(worker->last_seen[key], sizeof worker->last_seen[key], "%s", op.seen);
        } else if (rv == 0 && op.kind == MST_HISTORY_GET) {
            worker->last_seen[key][0] = '\0';
        }
        record(worker, key, &op, rv, again, &err);
    }
    return NULL;
}

/* --- rounds --- */

/* The final value of each key, read without the proxy when all is quiet. */
static bool read_final(struct mst_store *store,
                       const struct worker *any,
                       size_t key,
                       struct mst__history *history)
{
    char name[64];
    struct mst_bytes key_bytes = key_name(any, key, name);
    struct mst_buffer seen = {0};
    struct mst_err err;
    struct mst__history_op op = {
        .kind = MST_HISTORY_GET, .thread = -1, .has_result = true, .invoke_ns = mst__clock_ns()};
    int rv = mst_store_try_get(store, key_bytes, TIMEOUT_MS, &seen, &err);
    op.return_ns = mst__clock_ns();
    if (rv != 0 && rv != MST_ENOTFOUND) {
        (void)printf("final read: %s\n", err.msg);
        return false;
    }
    op.seen = rv == 0 ? text_copy(seen.data == NULL ? "" : (const char *)seen.data) : NULL;
    mst_buffer_free(&seen);
    mst__history_add(history, &op);
    return true;
}

static bool judge_key(struct worker workers[THREADS],
                      struct mst_store *direct,
                      size_t key,
                      struct totals *totals)
{
    struct mst__history history = {0};
    for (size_t i = 0; i < THREADS; i++) {
        struct mst__history *part = &workers[i].histories[key];
        for (size_t j = 0; j < part->count; j++) {
            mst__history_add(&history, &part->ops[j]);
        }
        mst__free(part->ops); /* the texts have moved */
        *part = (struct mst__history){0};
    }
    bool good = read_final(direct, &workers[0], key, &history);
    size_t steps = 0;
    enum mst__history_verdict verdict = mst__history_judge(&history, &steps);
    if (verdict != MST_HISTORY_FINE) {
        char name[64];
        (void)key_name(&workers[0], key, name);
        (void)printf("seed %llu, key '%s': %s after %zu states\n",
                     (unsigned long long)workers[0].seed, name,
                     verdict == MST_HISTORY_BROKEN ? "no order explains this history"
                                                   : "gave up on this history",
                     steps);
        mst__history_print(&history, stdout);
        good = false;
    }
    totals->ops += history.count;
    totals->steps += steps;
    mst__history_close(&history);
    return good;
}

static bool run_round(struct worker workers[THREADS],
                      struct mst_store *direct,
                      int round,
                      struct totals *totals)
{
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        workers[i].round = round;
        memset(workers[i].last_seen, 0, sizeof workers[i].last_seen);
        int rv = pthread_create(&threads[i], NULL, worker_run, &workers[i]);
        MST_ASSERT(rv == 0);
    }
    bool good = true;
    for (size_t i = 0; i < THREADS; i++) {
        int rv = pthread_join(threads[i], NULL);
        MST_ASSERT(rv == 0);
        good = good && workers[i].failures == 0;
    }
    for (size_t key = 0; key < KEYS; key++) {
        good = judge_key(workers, direct, key, totals) && good;
    }
    return good;
}

static struct mst_store *open_store(int port)
{
    char url[64];
    (void)snprintf(url, sizeof url, "tcp://127.0.0.1:%d", port);
    struct mst_store *store = NULL;
    struct mst_err err;
    if (mst_store_open(url, NULL, START_TIMEOUT_MS, &store, &err) != 0) {
        (void)printf("%s: %s\n", url, err.msg);
        return NULL;
    }
    return store;
}

static void print_totals(uint64_t seed,
                         const struct totals *totals,
                         const struct mst__proxy_counts *counts)
{
    (void)printf("seed %llu: %zu operations, %d unknown, %d without effect or answer, %d sent "
                 "again; %llu connections, cut %llu before, %llu within, %llu after a piece; "
                 "%zu states\n",
                 (unsigned long long)seed, totals->ops, totals->unknown, totals->nothing,
                 totals->again, (unsigned long long)counts->connections,
                 (unsigned long long)counts->cut_before, (unsigned long long)counts->cut_within,
                 (unsigned long long)counts->cut_after, totals->steps);
    (void)fflush(stdout); /* so that a hang can be told from slow work */
}

static bool run_seed(int port, uint64_t seed)
{
    int proxy_port = 0;
    struct mst__proxy *proxy = mst__proxy_open(port, seed, PIECES_PER_CUT, &proxy_port);
    struct mst_store *direct = open_store(port);
    struct worker workers[THREADS];
    memset(workers, 0, sizeof workers);
    bool good = direct != NULL;
    for (int i = 0; i < THREADS; i++) {
        workers[i].index = i;
        workers[i].seed = seed;
        mst__prng_init(&workers[i].prng, seed * 1000 + (uint64_t)i);
        workers[i].store = open_store(proxy_port);
        good = good && workers[i].store != NULL;
    }
    struct totals totals = {0};
    for (int round = 0; good && round < ROUNDS; round++) {
        good = run_round(workers, direct, round, &totals);
    }
    for (int i = 0; i < THREADS; i++) {
        totals.unknown += workers[i].unknown_count;
        totals.nothing += workers[i].nothing_count;
        totals.again += workers[i].again_count;
        mst_store_close(workers[i].store);
    }
    mst_store_close(direct);
    struct mst__proxy_counts counts;
    mst__proxy_close(proxy, &counts);
    print_totals(seed, &totals, &counts);
    /* Otherwise it proved nothing. */
    if (good && (counts.cut_after == 0 || totals.unknown == 0 || totals.again == 0)) {
        (void)printf("seed %llu: the cuts went by unnoticed\n", (unsigned long long)seed);
        good = false;
    }
    return good;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        (void)fprintf(stderr, "usage: linearize MUSTER [SEED...]\n");
        return 2;
    }
    int wrong = mst__history_self_test();
    if (wrong != 0) {
        (void)printf("the checker judged %d histories wrongly\n", wrong);
        (void)printf("0 passed, 1 failed, 0 skipped\n");
        return 1;
    }
    struct child child = {0};
    if (!child_start(&child, argv[1])) {
        (void)printf("0 passed, 1 failed, 0 skipped\n");
        return 1;
    }
    const uint64_t seeds[] = {1, 2, 3, 20261, (uint64_t)mst__clock_wall_us() % 1000000000};
    bool is_chosen = argc > 2;
    size_t seeds_count = is_chosen ? (size_t)argc - 2 : sizeof seeds / sizeof seeds[0];
    int passed = 1; /* the checker's own test */
    int failed = 0;
    for (size_t i = 0; i < seeds_count; i++) {
        uint64_t seed = is_chosen ? strtoull(argv[i + 2], NULL, 10) : seeds[i];
        bool good = run_seed(child.port, seed);
        passed += good ? 1 : 0;
        failed += good ? 0 : 1;
    }
    if (!child_stop(&child)) {
        failed++;
    }
    (void)printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
