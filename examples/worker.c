/* examples/worker.c - an elastic worker: joins a job, works step by step with the other nodes, and
 * joins again when a node has come or gone.
 *
 * Usage: worker ENDPOINT RUN_ID MIN MAX STEPS [OPTIONS]
 *
 * Start `muster serve`, then as many workers as you like, between MIN and MAX of them, and more
 * later or kill some. OPTIONS are those of the backend, such as last_call_timeout=2. */
#include <errno.h>
#include <muster/muster.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TIMEOUT_MS 10000
#define WORK_MS 20

static struct mst_handler *handler;
static volatile sig_atomic_t is_stopped;

/* Async-signal-safe: a node that waits for a round returns MST_ECANCELED. */
static void on_signal(int number)
{
    (void)number;
    is_stopped = 1;
    mst_handler_cancel(handler);
}

enum outcome {
    AGAIN,    /* the round is over, there will be another one */
    FINISHED, /* this node has done all steps */
    CLOSED,   /* the job is over */
    FAILED,   /* the error says why */
};

/* Wait until there is news or @timeout_ms is over, and say whether the round goes on. */
static bool goes_on(int timeout_ms, enum outcome *ret_outcome, struct mst_err *err)
{
    struct pollfd news = {.fd = mst_handler_fd(handler), .events = POLLIN};
    if (poll(&news, 1, timeout_ms) <= 0) { /* a program would poll its own descriptors here, too */
        return !is_stopped;
    }
    struct mst_changes changes;
    mst_changes_init(&changes, sizeof changes);
    int rv = mst_handler_poll(handler, 0, &changes, err);
    if (rv != 0 && rv != MST_ETIMEOUT) {
        *ret_outcome = is_stopped ? AGAIN : FAILED;
        return false;
    }
    if (changes.closed) {
        *ret_outcome = CLOSED;
        return false;
    }
    *ret_outcome = AGAIN;
    return changes.nodes_waiting == 0 && changes.participants_lost == 0 && !changes.reopened &&
           !changes.expelled;
}

/* Nodes may have come from different steps: all go on from the last one that any of them did. */
static int agree_on_step(const struct mst_rendezvous *round, int64_t *step, struct mst_err *err)
{
    char key[32];
    char text[32];
    (void)snprintf(key, sizeof key, "from/%lld", (long long)round->rank);
    (void)snprintf(text, sizeof text, "%lld", (long long)*step);
    int rv = mst_store_set(round->store, mst_bytes_str(key), mst_bytes_str(text), TIMEOUT_MS, err);
    for (int64_t rank = 0; rank < round->world_size && rv == 0; rank++) {
        struct mst_buffer value = {0};
        (void)snprintf(key, sizeof key, "from/%lld", (long long)rank);
        rv = mst_store_get(round->store, mst_bytes_str(key), TIMEOUT_MS, &value, err);
        if (rv == 0) {
            int64_t other = strtoll((const char *)value.data, NULL, 10);
            *step = other > *step ? other : *step;
            mst_buffer_free(&value);
        }
    }
    return rv;
}

/* One step of work, at whose end all nodes of the round meet. */
static int do_step(const struct mst_rendezvous *round,
                   int64_t step,
                   bool *ret_is_done,
                   enum outcome *ret_outcome,
                   struct mst_err *err)
{
    nanosleep(&(struct timespec){.tv_nsec = WORK_MS * 1000000L}, NULL);
    char count_key[32];
    char done_key[32];
    int64_t arrived = 0;
    (void)snprintf(count_key, sizeof count_key, "count/%lld", (long long)step);
    (void)snprintf(done_key, sizeof done_key, "done/%lld", (long long)step);
    const struct mst_bytes done = mst_bytes_str(done_key);
    int rv = mst_store_add(round->store, mst_bytes_str(count_key), 1, TIMEOUT_MS, &arrived, err);
    if (rv == 0 && arrived == round->world_size) {
        rv = mst_store_set(round->store, done, mst_bytes_str("1"), TIMEOUT_MS, err);
    }
    *ret_is_done = false;
    while (rv == 0 && !*ret_is_done) {
        rv = mst_store_check(round->store, &done, 1, TIMEOUT_MS, ret_is_done, err);
        if (rv == 0 && !*ret_is_done && !goes_on(5, ret_outcome, err)) {
            return 0;
        }
    }
    return rv;
}

static enum outcome work(const struct mst_rendezvous *round,
                         int64_t *step,
                         int64_t steps,
                         struct mst_err *err)
{
    enum outcome outcome = AGAIN;
    if (agree_on_step(round, step, err) != 0) {
        return goes_on(0, &outcome, err) ? FAILED : outcome;
    }
    printf("round %lld: rank %lld of %lld, from step %lld\n", (long long)round->round,
           (long long)round->rank, (long long)round->world_size, (long long)*step);
    fflush(stdout);
    while (*step < steps) {
        bool is_done;
        if (do_step(round, *step, &is_done, &outcome, err) != 0) {
            return FAILED;
        }
        if (!is_done) {
            return outcome;
        }
        ++*step;
        if (*step < steps && !goes_on(0, &outcome, err)) {
            return outcome;
        }
    }
    return FINISHED;
}

static int run(int64_t steps, struct mst_err *err)
{
    int64_t step = 0;
    while (!is_stopped) {
        struct mst_rendezvous round;
        mst_rendezvous_init(&round, sizeof round);
        int rv = mst_handler_next(handler, &round, err);
        if (rv == MST_EFINISHED || rv == MST_ESPARE) {
            printf("finished by others\n");
            return 0;
        }
        if (rv != 0) {
            return is_stopped ? 0 : rv;
        }
        enum outcome outcome = work(&round, &step, steps, err);
        mst_store_close(round.store);
        if (outcome == FINISHED) {
            printf("finished at step %lld\n", (long long)step);
            if (mst_handler_finish(handler, 0, NULL, err) != 0) {
                outcome = FAILED;
            }
            while (outcome != FAILED && goes_on(-1, &outcome, err)) {
                /* The others are not done yet. If one of them fails, there is another round. */
            }
        }
        if (outcome == CLOSED) {
            printf("closed\n");
            return 0;
        }
        if (outcome == FAILED) {
            return err->code;
        }
    }
    printf("stopped at step %lld\n", (long long)step);
    return mst_handler_leave(handler, err); /* so that the others need not find out */
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        (void)fprintf(stderr, "Usage: %s ENDPOINT RUN_ID MIN MAX STEPS [OPTIONS]\n", argv[0]);
        return 2;
    }
    struct mst_err err = {0};
    struct mst_params *params = NULL;
    int rv = mst_params_new("muster", argv[2], &params, &err);
    if (rv == 0) {
        rv = mst_params_set_endpoint(params, argv[1], &err);
    }
    if (rv == 0) {
        rv = mst_params_set_nodes(params, strtoll(argv[3], NULL, 10), strtoll(argv[4], NULL, 10),
                                  &err);
    }
    if (rv == 0) {
        rv = mst_params_parse(params, argc > 6 ? argv[6] : "", &err);
    }
    if (rv == 0) {
        rv = mst_handler_new(params, &handler, &err);
    }
    mst_params_free(params);
    if (rv == 0) {
        struct sigaction action = {.sa_handler = on_signal};
        (void)sigaction(SIGINT, &action, NULL);
        (void)sigaction(SIGTERM, &action, NULL);
        rv = run(strtoll(argv[5], NULL, 10), &err);
    }
    if (rv != 0) {
        (void)fprintf(stderr, "worker: %s\n", err.msg);
    }
    (void)signal(SIGINT, SIG_DFL); /* before the handler is gone */
    (void)signal(SIGTERM, SIG_DFL);
    mst_handler_free(handler);
    return rv == 0 ? 0 : 1;
}
