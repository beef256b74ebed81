/* agent/control.c - the thread that waits for commands in the job's store.
 *
 * The mutex protects the fields that the loop writes (text, place, is_ending), the pointer to the
 * store, and the one command that waits to be executed. The rest belongs to the thread. */
#include "agent/control.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/control_self.h"
#include "agent/control_store.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fork.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/thread.h"
#include "base/until.h"
#include "store/store.h"

#define RETRY_MS 1000

/* --- keys --- */

static struct mst_bytes key_of(char text[MST_CONTROL_KEY_SIZE], const char *format, ...)
    MST_PRINTF(2, 3);
static struct mst_bytes key_of(char text[MST_CONTROL_KEY_SIZE], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, MST_CONTROL_KEY_SIZE, format, args); /* fits */
    va_end(args);
    return mst_bytes_str(text);
}

/* --- in the thread --- */

static bool is_ending(struct mst__control *control)
{
    pthread_mutex_lock(&control->mutex);
    bool is_it = control->is_ending;
    pthread_mutex_unlock(&control->mutex);
    return is_it;
}

/* Send the state of the node, if it is new. */
static int send_text(struct mst__control *control)
{
    char key[MST_CONTROL_KEY_SIZE];
    struct mst_err err;
    pthread_mutex_lock(&control->mutex);
    bool is_new = control->is_text_new;
    control->is_text_new = false;
    char *copy = is_new ? mst__memdup(control->text.data, control->text.size) : NULL;
    size_t size = control->text.size;
    pthread_mutex_unlock(&control->mutex);
    if (copy == NULL) {
        return 0;
    }
    control->has_sent = true;
    int rv = mst_store_set(control->store, key_of(key, MST_CONTROL_NODES "%s", control->node),
                           mst_bytes_of(copy, size), MST_CONTROL_CALL_MS, &err);
    mst__free(copy);
    if (rv != 0) {
        pthread_mutex_lock(&control->mutex);
        control->is_text_new = true;
        pthread_mutex_unlock(&control->mutex);
    }
    return rv;
}

/* Read the number of commands so far; 0 if there is no count. */
static int read_count(struct mst__control *control, int64_t *ret_count)
{
    struct mst_buffer value = {0};
    struct mst_err err;
    *ret_count = 0;
    int rv = mst_store_try_get(control->store, mst_bytes_str(MST_CONTROL_COUNT),
                               MST_CONTROL_CALL_MS, &value, &err);
    if (rv == 0) {
        (void)mst__number_parse_prefix(mst_bytes_of(value.data, value.size), ret_count);
        mst_buffer_free(&value);
    }
    return rv == MST_ENOTFOUND ? 0 : rv;
}

static void reply(struct mst__control *control, int64_t number, const char *text)
{
    char key[MST_CONTROL_KEY_SIZE];
    struct mst_err err; /* ignored: the sender then times out and reports it */
    int rv = MST_ECANCELED;
    /* An interrupt that comes too late for a wait ends the next call. */
    for (int i = 0; i < 2 && rv == MST_ECANCELED && !is_ending(control); i++) {
        rv = mst_store_set(control->store, key_of(key, "replies/%" PRId64, number),
                           mst_bytes_str(text), MST_CONTROL_CALL_MS, &err);
    }
}

/* Pass the command to the loop and wait for the answer. Returns whether this node executes it. */
static bool ask_loop(struct mst__control *control, const struct mst__control_command *command)
{
    pthread_mutex_lock(&control->mutex);
    control->command = *command;
    control->has_command = true;
    control->is_done = false;
    bool is_ending = control->is_ending;
    if (!is_ending) {
        (void)uv_async_send(&control->async); /* cannot fail */
        while (control->has_command && !control->is_ending) {
            pthread_cond_wait(&control->cond, &control->mutex);
        }
    }
    bool is_done = control->is_done;
    pthread_mutex_unlock(&control->mutex);
    return is_done;
}

static void carry_out(struct mst__control *control, int64_t number, struct mst_bytes text)
{
    struct mst__control_command command;
    if (!mst__control_read(text, &command)) {
        return; /* malformed, or of a later version */
    }
    bool is_done = command.kind == MST_CONTROL_LOGS ? mst__control_logs_begin(control, &command)
                                                    : ask_loop(control, &command);
    if (is_done) {
        (void)send_text(control); /* the sender sees what has changed, or it is sent again */
        reply(control, number, control->node);
    }
}

/* Begin a wait for a command. Until the end, only such a wait is interrupted, so that the outcome
 * of every write is known. Returns false if there is a new state to send or the thread must end. */
static bool begin_wait(struct mst__control *control)
{
    pthread_mutex_lock(&control->mutex);
    control->is_waiting = !control->is_text_new && !control->is_ending;
    bool waits = control->is_waiting;
    pthread_mutex_unlock(&control->mutex);
    return waits;
}

static void end_wait(struct mst__control *control)
{
    pthread_mutex_lock(&control->mutex);
    control->is_waiting = false;
    pthread_mutex_unlock(&control->mutex);
}

/* Wait for the next command and execute it. Fails with MST_ETIMEOUT if there is none, with
 * MST_ECANCELED if the wait ends early, or with MST_ECONN if the connection is lost: the next
 * server may have neither our state nor the commands so far. */
static int take_command(struct mst__control *control)
{
    char text[MST_CONTROL_KEY_SIZE];
    struct mst_buffer value = {0};
    struct mst_err err;
    int64_t wait_ms = mst__control_logs_count(control) > 0 ? MST_CONTROL_LOOK_MS : INT32_MAX;
    int64_t number = control->commands_count + 1;
    if (!begin_wait(control)) {
        return MST_ECANCELED;
    }
    struct mst_bytes key = key_of(text, "commands/%" PRId64, number);
    int rv = mst__store_await(control->store, key, wait_ms, &err);
    end_wait(control);
    if (rv == 0) {
        rv = mst_store_try_get(control->store, key, MST_CONTROL_CALL_MS, &value, &err);
        rv = rv == MST_ENOTFOUND ? MST_ECANCELED : rv;
    }
    if (rv == 0) {
        control->commands_count = number;
        carry_out(control, number, mst_bytes_of(value.data, value.size));
        mst_buffer_free(&value);
    }
    return rv;
}

/* Pause, because the store cannot be reached. The end of the thread cuts the pause short. */
static void pause_thread(struct mst__control *control)
{
    pthread_mutex_lock(&control->mutex);
    if (!control->is_ending) {
        mst__cond_wait_until(&control->cond, &control->mutex, mst__clock_deadline_ms(RETRY_MS));
    }
    pthread_mutex_unlock(&control->mutex);
}

/* Whether @rv is not a failure of the store: no command, an interrupt, or an unknown outcome. */
static bool is_passing(int rv)
{
    return rv == MST_ETIMEOUT || rv == MST_ECANCELED || rv == MST_EUNKNOWN;
}

static uint64_t count_connects(const struct mst__control *control)
{
    struct mst_store_stats stats;
    mst_store_stats_init(&stats, sizeof stats);
    (void)mst_store_get_stats(control->store, &stats); /* cannot fail here */
    return stats.connects;
}

/* A server that has restarted has lost all keys. So the first agent there names the store. Commands
 * in one that is new were sent to this job, too; those before our first look were not for us. */
static int find_place(struct mst__control *control)
{
    char name[sizeof control->store_name];
    enum mst_compare_set outcome;
    struct mst_buffer found = {0};
    struct mst_err err;
    (void)snprintf(name, sizeof name, "%016" PRIx64, mst__clock_random_u64());
    int rv =
        mst_store_compare_set(control->store, mst_bytes_str(MST_CONTROL_STORE), mst_bytes_str(""),
                              mst_bytes_str(name), MST_CONTROL_CALL_MS, &outcome, &found, &err);
    if (rv != 0) {
        return rv;
    }
    (void)snprintf(name, sizeof name, "%s", (const char *)found.data);
    mst_buffer_free(&found);
    if (strcmp(name, control->store_name) != 0) {
        memcpy(control->store_name, name, sizeof name);
        control->commands_count = 0;
    }
    if (!control->has_count) {
        rv = read_count(control, &control->commands_count);
        control->has_count = rv == 0;
    }
    return rv;
}

/* Serve the job until the store fails or may be that of another server, or the thread must end. */
static void serve(struct mst__control *control)
{
    int rv = find_place(control);
    uint64_t connects = count_connects(control);
    while (rv == 0 && !is_ending(control)) {
        rv = send_text(control);
        if (count_connects(control) != connects) {
            return; /* calls go on at the next server */
        }
        rv = rv == 0 ? take_command(control) : rv;
        rv = is_passing(rv) ? 0 : rv;
        rv = rv == 0 ? mst__control_logs_pump(control) : rv;
        rv = is_passing(rv) ? 0 : rv;
    }
}

/* Open the store at an etcd. This is done in the thread, because it sends requests. Only the thread
 * changes the pointer, so it reads the pointer without the mutex. */
static bool open_store(struct mst__control *control)
{
    struct mst_store *store = NULL;
    struct mst_err err; /* ignored: the thread tries again */
    if (control->params == NULL) {
        return true;
    }
    const struct mst__until until = mst__until_by(control->end_fd, MST_CONTROL_CALL_MS);
    if (mst__control_store_open(control->params, until, &store, &err) != 0) {
        return false;
    }
    pthread_mutex_lock(&control->mutex);
    control->store = store;
    pthread_mutex_unlock(&control->mutex);
    return true;
}

/* Close the store at an etcd after an error, because its lease may have ended. */
static void close_store(struct mst__control *control)
{
    struct mst_store *store = control->store;
    if (control->params != NULL) {
        pthread_mutex_lock(&control->mutex);
        control->store = NULL;
        pthread_mutex_unlock(&control->mutex);
        mst_store_close(store);
    }
}

static void *run(void *arg)
{
    struct mst__control *control = arg;
    char key[MST_CONTROL_KEY_SIZE];
    while (!is_ending(control)) {
        if (open_store(control)) {
            serve(control);
        }
        if (!is_ending(control)) {
            close_store(control);
            pthread_mutex_lock(&control->mutex);
            control->is_text_new = control->text.size > 0; /* the store may have lost it */
            pthread_mutex_unlock(&control->mutex);
            pause_thread(control);
        }
    }
    bool existed = false;
    struct mst_err err;
    struct mst_bytes node = key_of(key, MST_CONTROL_NODES "%s", control->node);
    /* An interrupt by mst__control_free that comes too late for a wait ends the first call. */
    if (control->has_sent && control->store != NULL &&
        mst_store_delete(control->store, node, MST_CONTROL_GONE_MS, &existed, &err) ==
            MST_ECANCELED) {
        (void)mst_store_delete(control->store, node, MST_CONTROL_GONE_MS, &existed, &err);
    }
    mst__control_logs_close(control);
    return NULL;
}

/* --- on the loop --- */

static void on_async(uv_async_t *async)
{
    struct mst__control *control = async->data;
    pthread_mutex_lock(&control->mutex);
    bool has_command = control->has_command;
    struct mst__control_command command = control->command;
    pthread_mutex_unlock(&control->mutex);
    if (!has_command) {
        return;
    }
    bool is_done = control->fn(control->arg, &command);
    pthread_mutex_lock(&control->mutex);
    control->has_command = false;
    control->is_done = is_done;
    pthread_cond_signal(&control->cond);
    pthread_mutex_unlock(&control->mutex);
}

int mst__control_new(uv_loop_t *loop,
                     struct mst_store *store,
                     const struct mst_params *params,
                     const char *node,
                     mst__control_fn fn,
                     void *arg,
                     struct mst__control **ret_control,
                     struct mst_err *reterr)
{
    struct mst__control *control = mst__calloc(1, sizeof *control);
    if (control == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "control of the job");
    }
    control->fn = fn;
    control->call_ms = MST_CONTROL_CALL_MS;
    control->arg = arg;
    (void)snprintf(control->node, sizeof control->node, "%s", node);
    control->end_fd = mst__fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    int rv = control->end_fd >= 0 ? 0 : mst__fail(reterr, MST_ESYS, errno, "eventfd");
    if (rv != 0) {
        mst__free(control);
        return rv;
    }
    if (mst__control_store_kind(mst_params_backend(params)) == MST_CONTROL_SERVER) {
        rv = mst__control_store_beside(store, mst_params_run_id(params), &control->store, reterr);
    } else {
        control->params = params;
    }
    if (rv != 0) {
        (void)mst__fork_close(control->end_fd); /* as above */
        mst__free(control);
        return rv;
    }
    (void)pthread_mutex_init(&control->mutex, NULL); /* neither fails on Linux */
    mst__cond_init(&control->cond);
    rv = uv_async_init(loop, &control->async, on_async);
    MST_ASSERT(rv == 0);
    control->async.data = control;
    uv_unref((uv_handle_t *)&control->async);
    int reason = mst__thread_start(&control->thread, run, control);
    control->has_thread = reason == 0;
    if (reason != 0) {
        rv = mst__fail(reterr, MST_ESYS, reason, "thread for the control of the job");
        mst__control_free(control);
        return rv;
    }
    *ret_control = control;
    return 0;
}

void mst__control_publish(struct mst__control *control,
                          struct mst_bytes text,
                          const char *log_dir,
                          int64_t generation,
                          int64_t first_rank,
                          int64_t workers_count)
{
    if (control == NULL) {
        return;
    }
    char *copy = mst__memdup(text.data, text.size);
    pthread_mutex_lock(&control->mutex);
    if (copy != NULL) {
        mst__free(control->text.data);
        control->text = (struct mst_buffer){.data = (uint8_t *)copy, .size = text.size};
        control->is_text_new = true;
    }
    (void)snprintf(control->place.log_dir, sizeof control->place.log_dir, "%s", log_dir);
    control->place.generation = generation;
    control->place.first_rank = first_rank;
    control->place.workers_count = workers_count;
    if (control->is_waiting) {
        mst_store_interrupt(control->store);
    }
    pthread_mutex_unlock(&control->mutex);
}

static void on_closed(uv_handle_t *handle)
{
    struct mst__control *control = handle->data;
    (void)pthread_mutex_destroy(&control->mutex);
    (void)pthread_cond_destroy(&control->cond);
    mst_store_close(control->store);
    (void)mst__fork_close(control->end_fd); /* an eventfd: nothing can be lost */
    mst__free(control->text.data);
    mst__free(control);
}

void mst__control_free(struct mst__control *control)
{
    if (control == NULL) {
        return;
    }
    pthread_mutex_lock(&control->mutex);
    control->is_ending = true;
    if (control->store != NULL) {
        mst_store_interrupt(control->store);
    }
    uint64_t one = 1;
    (void)!write(control->end_fd, &one, sizeof one); /* the counter is far from its limit */
    pthread_cond_signal(&control->cond);
    pthread_mutex_unlock(&control->mutex);
    if (control->has_thread) {
        (void)pthread_join(control->thread, NULL); /* cannot fail: joined once */
    }
    uv_close((uv_handle_t *)&control->async, on_closed);
}
