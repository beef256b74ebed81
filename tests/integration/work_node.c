/* integration/work_node.c - a node whose work ends as requested, for test_work.py.
 *
 * work_node BACKEND ENDPOINT RUN_ID NODES OPTIONS WORD...
 *
 * One word for each round, the last one for all that follow: `finish`, `fail`, `leave` (finish,
 * and leave at once), `die` (finish, and end without leaving), `hold` (do nothing). With `@PATH`
 * after it the word takes effect when that file exists. It prints a line for each round and the
 * outcome of the job, and exits with 0 if that is a success. */
#include <inttypes.h>
#include <muster/muster.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLL_MS 60000

static struct mst_err err;

static void check(int rv, const char *what)
{
    if (rv != 0) {
        (void)fprintf(stderr, "%s: %s\n", what, err.msg);
        exit(2);
    }
}

static struct mst_handler *make(char **argv)
{
    struct mst_params *params = NULL;
    struct mst_handler *handler = NULL;
    int64_t nodes = strtoll(argv[4], NULL, 10);
    check(mst_params_new(argv[1], argv[3], &params, &err), "params");
    check(mst_params_set_endpoint(params, argv[2], &err), "endpoint");
    check(mst_params_set_nodes(params, nodes, nodes, &err), "nodes");
    check(mst_params_set_local_addr(params, "127.0.0.1", &err), "address");
    check(mst_params_parse(params, argv[5], &err), "options");
    check(mst_handler_new(params, &handler, &err), "handler");
    mst_params_free(params);
    return handler;
}

static void work(struct mst_handler *handler, char *word)
{
    char *path = strchr(word, '@');
    if (path != NULL) {
        *path++ = '\0';
    }
    while (path != NULL && access(path, F_OK) != 0) {
        (void)usleep(10000);
    }
    if (strcmp(word, "fail") == 0) {
        struct mst_failure failure;
        mst_failure_init(&failure, sizeof failure);
        failure.worker = 0;
        failure.signal = 9;
        failure.text = "out of memory";
        check(mst_handler_restart(handler, &failure, &err), "restart");
    } else if (strcmp(word, "hold") != 0) {
        check(mst_handler_finish(handler, 0, "done", &err), "finish");
    }
    if (strcmp(word, "die") == 0) {
        _exit(0);
    }
    if (strcmp(word, "leave") == 0) {
        check(mst_handler_leave(handler, &err), "leave");
        exit(0);
    }
}

/* Wait for a reason to come back. Returns whether there is another round. */
static bool stay(struct mst_handler *handler)
{
    for (;;) {
        struct mst_changes changes;
        mst_changes_init(&changes, sizeof changes);
        check(mst_handler_poll(handler, POLL_MS, &changes, &err), "poll");
        if (changes.closed) {
            static const char *const outcomes[] = {"none", "closed", "finished", "failed"};
            (void)printf("%s", outcomes[changes.outcome]);
            if (changes.has_cause) {
                (void)printf(" rank=%" PRId64 " signal=%d node=%s text=%s", changes.cause.rank,
                             changes.cause.signal, changes.cause.node, changes.cause.text);
            }
            (void)printf("\n");
            return false;
        }
        if (changes.participants_lost > 0) {
            (void)printf("lost\n");
        }
        if (changes.reopened || changes.nodes_waiting > 0 || changes.participants_lost > 0) {
            (void)printf("back%s\n", changes.has_cause ? " after a failure" : "");
            return true;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 7) {
        return 2;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    struct mst_handler *handler = make(argv);
    int at = 6;
    int rv = 0;
    bool goes_on = true;
    while (goes_on) {
        struct mst_rendezvous round;
        mst_rendezvous_init(&round, sizeof round);
        rv = mst_handler_next(handler, -1, &round, &err);
        if (rv != 0) {
            (void)printf("%s %s\n", mst_errname(rv), err.msg);
            break;
        }
        (void)printf("round rank=%" PRId64 " world=%" PRId64 " node=%s\n", round.rank,
                     round.world_size, mst_handler_node(handler));
        char *word = argv[at];
        at += at + 1 < argc ? 1 : 0;
        work(handler, word);
        /* After a failure it comes back at once, unless the job is over. */
        goes_on = strcmp(word, "fail") == 0 || stay(handler);
        mst_store_close(round.store);
    }
    mst_handler_free(handler);
    return rv == 0 || rv == MST_EFINISHED ? 0 : 1;
}
