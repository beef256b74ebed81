/* examples/backend.c - your own backend: a scheduler has given the ranks, in the variables RANK and
 * WORLD_SIZE, as Slurm and MPI's launchers do under other names. The nodes meet at a store.
 *
 * Usage: RANK=0 WORLD_SIZE=2 backend ENDPOINT RUN_ID
 *
 * A backend makes handlers, here with only the calls `next` and `free`. Without the other calls
 * no node waits, and nothing changes. */
#include <muster/backend.h>
#include <muster/muster.h>
#include <stdio.h>
#include <stdlib.h>

/* The data of a handler. */
struct scheduled {
    struct mst_store *store; /* all rounds of the job */
    int64_t rank;
    int64_t world_size;
    int64_t timeout_ms;
    int64_t round; /* the next one */
};

/* All nodes meet at the barrier of the round. */
static int scheduled_next(void *self,
                          int64_t timeout_ms,
                          struct mst_rendezvous *ret,
                          struct mst_err *reterr)
{
    struct scheduled *scheduled = self;
    char prefix[32];
    struct mst_store *store = NULL;
    (void)snprintf(prefix, sizeof prefix, "round/%lld", (long long)scheduled->round);
    int rv = mst_store_prefix(scheduled->store, mst_bytes_str(prefix), &store, reterr);
    if (rv == 0) {
        rv = mst_store_barrier(store, mst_bytes_str("all"), scheduled->world_size,
                               timeout_ms < 0 ? scheduled->timeout_ms : timeout_ms, reterr);
    }
    if (rv != 0) {
        mst_store_close(store);
        return rv;
    }
    ret->round = scheduled->round++;
    ret->rank = scheduled->rank;
    ret->world_size = scheduled->world_size;
    ret->store = store; /* the caller closes it */
    return 0;
}

static void scheduled_free(void *self)
{
    struct scheduled *scheduled = self;
    mst_store_close(scheduled->store);
    free(scheduled);
}

static int variable(const char *name, int64_t *ret_number, struct mst_err *reterr)
{
    const char *text = getenv(name);
    char *end = NULL;
    *ret_number = text == NULL ? -1 : strtoll(text, &end, 10);
    if (text == NULL || *end != '\0' || *ret_number < 0) {
        *reterr = (struct mst_err){.code = MST_EINVAL};
        (void)snprintf(reterr->msg, sizeof reterr->msg, "variable %s is not a number from 0", name);
        return MST_EINVAL;
    }
    return 0;
}

static int open_store(const struct mst_params *params,
                      int64_t timeout_ms,
                      struct mst_store **ret_store,
                      struct mst_err *reterr)
{
    char url[300];
    struct mst_store *whole = NULL;
    (void)snprintf(url, sizeof url, "tcp://%.280s", mst_params_endpoint(params));
    int rv = mst_store_open(url, NULL, timeout_ms, &whole, reterr);
    if (rv == 0) {
        rv = mst_store_prefix(whole, mst_bytes_str(mst_params_run_id(params)), ret_store, reterr);
        mst_store_close(whole); /* the view keeps it open */
    }
    return rv;
}

/* The creator: it checks the values of options; the library has checked their names. */
static int scheduled_create(const struct mst_params *params,
                            void *arg,
                            struct mst_handler **ret_handler,
                            struct mst_err *reterr)
{
    (void)arg;
    struct mst_handler_ops ops;
    mst_handler_ops_init(&ops, sizeof ops);
    ops.next = scheduled_next;
    ops.free = scheduled_free;
    struct scheduled *scheduled = calloc(1, sizeof *scheduled);
    if (scheduled == NULL) {
        return MST_ENOMEM;
    }
    int rv = variable("RANK", &scheduled->rank, reterr);
    rv = rv == 0 ? variable("WORLD_SIZE", &scheduled->world_size, reterr) : rv;
    if (rv == 0) {
        rv = mst_params_duration_ms(params, "timeout", 60000, &scheduled->timeout_ms, reterr);
    }
    if (rv == 0) {
        rv = open_store(params, scheduled->timeout_ms, &scheduled->store, reterr);
    }
    if (rv == 0) {
        rv = mst_handler_wrap(&ops, scheduled, ret_handler, reterr);
    }
    if (rv != 0) {
        scheduled_free(scheduled);
    }
    return rv;
}

/* --- a program that uses it; the calls are those for any backend --- */

static int join_twice(struct mst_handler *handler, struct mst_err *err)
{
    int rv = 0;
    for (int i = 0; i < 2 && rv == 0; i++) {
        struct mst_rendezvous round;
        mst_rendezvous_init(&round, sizeof round);
        rv = mst_handler_next(handler, -1, &round, err);
        if (rv == 0) {
            printf("round %lld: rank %lld of %lld\n", (long long)round.round, (long long)round.rank,
                   (long long)round.world_size);
            mst_store_close(round.store);
        }
    }
    return rv;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        (void)fprintf(stderr, "Usage: RANK=R WORLD_SIZE=W %s ENDPOINT RUN_ID [OPTIONS]\n", argv[0]);
        return 2;
    }
    static const char *const options[] = {"timeout"};
    struct mst_err err = {0};
    struct mst_backend backend;
    mst_backend_init(&backend, sizeof backend);
    backend.name = "scheduled";
    backend.creator = scheduled_create;
    backend.options = options;
    backend.options_count = 1;
    struct mst_params *params = NULL;
    struct mst_handler *handler = NULL;
    int rv = mst_registry_add(&backend, &err);
    rv = rv == 0 ? mst_params_new("scheduled", argv[2], &params, &err) : rv;
    rv = rv == 0 ? mst_params_set_endpoint(params, argv[1], &err) : rv;
    rv = rv == 0 ? mst_params_parse(params, argc > 3 ? argv[3] : "", &err) : rv;
    rv = rv == 0 ? mst_handler_new(params, &handler, &err) : rv;
    rv = rv == 0 ? join_twice(handler, &err) : rv;
    if (rv != 0) {
        (void)fprintf(stderr, "backend: %s\n", err.msg);
    }
    mst_handler_free(handler);
    mst_params_free(params);
    return rv == 0 ? 0 : 1;
}
