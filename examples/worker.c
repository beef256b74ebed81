/* examples/worker.c - an elastic worker: joins a job, works step by step with the other nodes, and
 * joins again when a node has come or gone. One loop polls the handler's descriptor and its own.
 *
 * Usage: worker ENDPOINT RUN_ID MIN MAX STEPS [OPTIONS]
 *
 * Start `muster serve`, then between MIN and MAX workers. Start more later, or kill some.
 * OPTIONS are those of the backend, such as last_call_timeout=2. */
#include <errno.h>
#include <muster/muster.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_MS 10000
#define WORK_MS 20

static struct mst_handler *handler;
static int signals[2]; /* a pipe: signals become bytes that can be polled for */

static void on_signal(int number)
{
    char byte = (char)number;
    (void)!write(signals[1], &byte, 1);
}

enum news {
    NOTHING,
    JOINED,  /* the round that was begun is complete */
    AGAIN,   /* the round is over: begin the next one */
    CLOSED,  /* the job is over */
    STOPPED, /* by a signal */
    FAILED,  /* the error says why */
};

/* The meaning of @notice for this node. */
static enum news understand(const struct mst_notice *notice, struct mst_err *err)
{
    switch (notice->kind) {
        case MST_NOTICE_COMPLETE:
            return JOINED;
        case MST_NOTICE_FAILED:
            *err = notice->err;
            return err->code == MST_EFINISHED || err->code == MST_ESPARE ? CLOSED : FAILED;
        case MST_NOTICE_LOST:
            for (size_t i = 0; i < notice->node_count; i++) {
                printf("lost: %s\n", notice->nodes[i].name);
            }
            return AGAIN;
        case MST_NOTICE_WAITING:
        case MST_NOTICE_REOPENED:
        case MST_NOTICE_EXPELLED:
            return AGAIN;
        case MST_NOTICE_CLOSED:
            return CLOSED;
        default: /* the server is away for a while, or the kind is of a later release */
            return NOTHING;
    }
}

/* Wait for news, at most @timeout_ms; -1 = until there is some. */
static enum news look(int timeout_ms, struct mst_err *err)
{
    enum news news = NOTHING;
    do {
        struct pollfd fds[] = {{.fd = mst_handler_fd(handler), .events = POLLIN},
                               {.fd = signals[0], .events = POLLIN}};
        if (poll(fds, 2, timeout_ms) < 0 && errno != EINTR) {
            perror("poll");
            return FAILED;
        }
        if (fds[1].revents != 0) {
            return STOPPED;
        }
        struct mst_notice *notice = NULL;
        while (news == NOTHING && mst_handler_take(handler, 0, &notice, err) == 0) {
            news = understand(notice, err);
            mst_notice_free(notice);
        }
    } while (news == NOTHING && timeout_ms < 0);
    return news;
}

/* Nodes may come from different steps: all continue from the highest one. */
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

/* One step of work, after which all nodes of the round meet. NOTHING = it is done. */
static enum news do_step(const struct mst_rendezvous *round, int64_t step, struct mst_err *err)
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
    enum news news = NOTHING;
    bool is_done = false;
    while (rv == 0 && !is_done && news == NOTHING) {
        rv = mst_store_check(round->store, &done, 1, TIMEOUT_MS, &is_done, err);
        if (rv == 0 && !is_done) {
            news = look(5, err);
        }
    }
    return rv != 0 ? FAILED : news;
}

/* Work until all steps are done, or there is news. */
static enum news work(const struct mst_rendezvous *round,
                      int64_t *step,
                      int64_t steps,
                      struct mst_err *err)
{
    if (agree_on_step(round, step, err) != 0) {
        enum news news = look(0, err); /* perhaps because a node is lost */
        return news == NOTHING ? FAILED : news;
    }
    printf("round %lld: rank %lld of %lld, from step %lld\n", (long long)round->round,
           (long long)round->rank, (long long)round->world_size, (long long)*step);
    fflush(stdout);
    while (*step < steps) {
        enum news news = do_step(round, *step, err);
        if (news != NOTHING) {
            return news;
        }
        ++*step;
        news = *step < steps ? look(0, err) : NOTHING;
        if (news != NOTHING) {
            return news;
        }
    }
    printf("finished at step %lld\n", (long long)*step);
    if (mst_handler_finish(handler, 0, NULL, err) != 0) {
        return FAILED;
    }
    return look(-1, err); /* until all are done; if one of them fails, there is another round */
}

static int run(int64_t steps, struct mst_err *err)
{
    int64_t step = 0;
    enum news news = AGAIN;
    while (news == AGAIN) {
        struct mst_rendezvous round;
        mst_rendezvous_init(&round, sizeof round);
        if (mst_handler_begin(handler, -1, err) != 0) {
            return err->code;
        }
        do {
            news = look(-1, err);
        } while (news == AGAIN); /* a round that is not complete yet may be over, too */
        if (news == JOINED) {
            if (mst_handler_round(handler, &round, err) != 0) {
                return err->code;
            }
            news = work(&round, &step, steps, err);
            mst_store_close(round.store);
        }
    }
    if (news == STOPPED) {
        printf("stopped at step %lld\n", (long long)step);
        return mst_handler_leave(handler, err); /* so that the others are told at once */
    }
    printf("%s\n", news == CLOSED ? "closed" : "failed");
    return news == CLOSED ? 0 : MST_ESYS;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        (void)fprintf(stderr, "Usage: %s ENDPOINT RUN_ID MIN MAX STEPS [OPTIONS]\n", argv[0]);
        return 2;
    }
    if (pipe(signals) != 0) {
        perror("pipe");
        return 1;
    }
    struct sigaction action = {.sa_handler = on_signal};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);

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
        rv = run(strtoll(argv[5], NULL, 10), &err);
    }
    if (rv != 0) {
        (void)fprintf(stderr, "worker: %s\n", err.msg);
    }
    mst_handler_free(handler);
    return rv == 0 ? 0 : 1;
}
