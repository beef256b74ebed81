/* nulls.c - every public call gets NULL for one argument after the other. It refuses that with an
 * error that names the argument, or takes it where the header says so; a call without an error does
 * no harm. make_calls writes the calls from the headers. Each is made in a child process, so that
 * one that crashes is one that fails. */
#include <muster/backend.h>
#include <muster/legacy.h>
#include <muster/muster.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALL_S_MAX 20 /* a call that takes longer is killed */

/* --- objects --- */

#define GIVEN_COUNT 8 /* so large is every list, and a size has room for a size */

/* For results, and for all that is refused before it is looked at. */
static void *given_memory(void)
{
    static alignas(max_align_t) char memory[4096];
    return memory;
}

static void need(bool is_there)
{
    if (!is_there) {
        (void)printf("an object for the test could not be made\n");
        (void)fflush(stdout);
        _exit(2);
    }
}

static struct mst_bytes given_bytes(void)
{
    return mst_bytes_str("text");
}

static struct mst_bytes *given_list(void)
{
    static struct mst_bytes list[GIVEN_COUNT];
    for (size_t i = 0; i < GIVEN_COUNT; i++) {
        list[i] = given_bytes();
    }
    return list;
}

static struct mst_bytes bytes_of_null(void)
{
    return mst_bytes_of(NULL, 1);
}

static struct mst_bytes *list_of_null(void)
{
    static struct mst_bytes list[GIVEN_COUNT];
    list[0] = bytes_of_null();
    return list;
}

static void given_wait(void *arg)
{
    (void)arg;
}

static bool given_keep(void *arg, const struct mst_status_node *node)
{
    (void)arg;
    return node != NULL;
}

static struct mst_params *given_params(void)
{
    struct mst_params *params = NULL;
    need(mst_params_new("muster", "run", &params, NULL) == 0);
    need(mst_params_set_endpoint(params, "127.0.0.1:1", NULL) == 0);
    need(mst_params_set(params, "serve", "never", NULL) == 0);
    return params;
}

static int no_round(void *self,
                    int64_t timeout_ms,
                    struct mst_rendezvous *ret,
                    struct mst_err *reterr)
{
    (void)self;
    (void)timeout_ms;
    (void)ret;
    (void)reterr;
    return MST_ETIMEOUT;
}

static struct mst_handler *given_handler(void)
{
    struct mst_handler *handler = NULL;
    struct mst_handler_ops ops;
    mst_handler_ops_init(&ops, sizeof ops);
    ops.next = no_round;
    ops.free = given_wait;
    need(mst_handler_wrap(&ops, NULL, &handler, NULL) == 0);
    return handler;
}

static struct mst_store *given_store(void)
{
    struct mst_store *store = NULL;
    need(mst_store_open("hash:", NULL, 1000, &store, NULL) == 0);
    return store;
}

/* Nobody may look at its node, which does not exist. */
static struct mst_status *given_status(void)
{
    static struct mst_status status = {.size = sizeof status, .node_count = 1};
    return &status;
}

static struct mst_status_watch *given_watch(void)
{
    struct mst_status_watch *watch = NULL;
    need(mst_status_watch_new(given_params(), &watch, NULL) == 0);
    return watch;
}

static struct mst_expected *given_expected(void)
{
    struct mst_expected *expected = NULL;
    need(mst_expected_new("node", &expected, NULL) == 0);
    return expected;
}

/* --- verdicts --- */

/* Whether the call has refused @what, "call: argument". @err is NULL if it tells no reason. */
static bool is_refused(int code, const struct mst_err *err, const char *what)
{
    char wanted[128];
    (void)snprintf(wanted, sizeof wanted, "%s is NULL", what);
    if (code == MST_EINVAL && (err == NULL || strcmp(err->msg, wanted) == 0)) {
        return true;
    }
    (void)printf("returned %s, '%s'; wanted EINVAL, '%s'\n", mst_errname(code),
                 err == NULL ? "" : err->msg, wanted);
    return false;
}

/* Whether the call has not refused a NULL; what else becomes of it does not matter. */
static bool is_allowed(int code, const struct mst_err *err)
{
    if (code != MST_EINVAL || strstr(err->msg, " is NULL") == NULL) {
        return true;
    }
    (void)printf("refused with '%s', although it may be NULL\n", err->msg);
    return false;
}

static bool is_no_text(const char *text)
{
    return text == NULL || text[0] == '\0' || strcmp(text, "text") == 0; /* the fallback */
}

/* -1 is no descriptor. */
static bool is_nothing(intptr_t value)
{
    return value == 0 || value == -1;
}

/* --- calls --- */

struct null_call {
    const char *name;
    const char *argument;
    bool (*run)(struct mst_err *reterr);
};

#include "null_calls.h"

/* --- pointers in structs --- */

static bool hosts(struct mst_err *reterr)
{
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    options.hosts_count = 1;
    return is_refused(mst_server_new(&options, given_memory(), reterr), reterr,
                      "mst_server_new: options->hosts");
}

static bool host(struct mst_err *reterr)
{
    static const char *const one[] = {NULL};
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    options.hosts = one;
    options.hosts_count = 1;
    return is_refused(mst_server_new(&options, given_memory(), reterr), reterr,
                      "mst_server_new: options->hosts[0]");
}

static bool listen_fds(struct mst_err *reterr)
{
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    options.listen_fds_count = 1;
    return is_refused(mst_server_new(&options, given_memory(), reterr), reterr,
                      "mst_server_new: options->listen_fds");
}

static int no_handler(const struct mst_params *params,
                      void *arg,
                      struct mst_handler **ret_handler,
                      struct mst_err *reterr)
{
    (void)params;
    (void)arg;
    (void)ret_handler;
    (void)reterr;
    return MST_ENOTSUP;
}

static bool backend_option(struct mst_err *reterr)
{
    static const char *const one[] = {NULL};
    struct mst_backend backend;
    mst_backend_init(&backend, sizeof backend);
    backend.name = "text";
    backend.creator = no_handler;
    backend.options = one;
    backend.options_count = 1;
    return is_refused(mst_registry_add(&backend, reterr), reterr,
                      "mst_registry_add: backend->options[0]");
}

/* Lists without elements may be NULL. */
static bool empty_lists(struct mst_err *reterr)
{
    struct mst_store *store = given_store();
    return mst_store_wait(store, NULL, 0, 0, reterr) == 0 &&
           mst_store_multi_set(store, NULL, NULL, 0, 0, reterr) == 0 &&
           mst_store_multi_get(store, NULL, 0, 0, NULL, reterr) == 0 &&
           mst_store_set(store, mst_bytes_of(NULL, 0), mst_bytes_of(NULL, 0), 0, reterr) == 0;
}

static bool text(struct mst_err *reterr)
{
    (void)reterr;
    return mst_bytes_str(NULL).size == 0;
}

static const struct null_call more_calls[] = {
    {"mst_server_new", "options->hosts", hosts},
    {"mst_server_new", "options->hosts[0]", host},
    {"mst_server_new", "options->listen_fds", listen_fds},
    {"mst_registry_add", "backend->options[0]", backend_option},
    {"mst_store_*", "empty lists", empty_lists},
    {"mst_bytes_str", "text", text},
};

/* --- main --- */

/* Whether the call does well, in a child process. */
static bool passes(const struct null_call *call)
{
    (void)printf("%s(%s = NULL): ", call->name, call->argument);
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct mst_err err = {0};
        (void)alarm(CALL_S_MAX);
        bool is_good = call->run(&err);
        (void)fflush(stdout);
        _exit(is_good ? 0 : 1); /* without a look for leaks: objects stay */
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        (void)printf("no child process\n");
        return false;
    }
    if (WIFSIGNALED(status)) {
        (void)printf("FAIL ended with %d\n", -WTERMSIG(status));
    } else {
        (void)printf("%s\n", WEXITSTATUS(status) == 0 ? "ok" : "FAIL");
    }
    return status == 0;
}

int main(void)
{
    const size_t counts[] = {sizeof calls / sizeof calls[0],
                             sizeof more_calls / sizeof more_calls[0]};
    const struct null_call *const tables[] = {calls, more_calls};
    size_t passed = 0;
    /* No etcd is started, and no address outside asked. */
    (void)setenv("TORCHELASTIC_ETCD_BINARY_PATH", "/nonexistent", 1);
    for (size_t t = 0; t < 2; t++) {
        for (size_t i = 0; i < counts[t]; i++) {
            passed += passes(&tables[t][i]) ? 1 : 0;
        }
    }
    size_t failed = counts[0] + counts[1] - passed;
    (void)printf("%zu passed, %zu failed, 0 skipped\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
