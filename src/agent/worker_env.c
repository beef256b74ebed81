/* agent/worker_env.c - variables and arguments of a worker.
 *
 * Variables are those of torchrun, in its formats and with the names of its older and newer
 * releases, and those of muster. Variables of --env replace them. */
#include "agent/worker_env.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "agent/report.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/text.h"

#define VARIABLES_MAX (40 + MST_SETTING_LIST_MAX)
#define ENTRY_SIZE_MAX MST_KIB(128)

struct making {
    struct mst__arena *arena;
    struct mst__env inherited;
    char *entries[VARIABLES_MAX];
    size_t count;
    int rv;
};

static void put_entry(struct making *making, char *entry)
{
    if (entry == NULL || making->count == VARIABLES_MAX) {
        making->rv = making->rv != 0 ? making->rv : entry == NULL ? MST_ENOMEM : MST_ELIMIT;
        return;
    }
    making->entries[making->count++] = entry;
}

static void put(struct making *making, const char *name, const char *value)
{
    if (value == NULL) {
        return;
    }
    size_t size = strlen(name) + strlen(value) + 2;
    char *entry = mst__arena_take(making->arena, size);
    if (entry != NULL) {
        (void)snprintf(entry, size, "%s=%s", name, value);
    }
    put_entry(making, entry);
}

static void put_number(struct making *making, const char *name, int64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, value);
    put(making, name, text);
}

/* Set the agent's own value, or else @preset. */
static void put_passed(struct making *making, const char *name, const char *preset)
{
    const char *value = mst__env_get(making->inherited, name);
    put(making, name, value != NULL ? value : preset);
}

static void put_ranks(struct making *making,
                      const struct mst__run_settings *settings,
                      const struct mst__worker_place *place)
{
    put_number(making, "RANK", place->rank);
    put_number(making, "WORLD_SIZE", place->world_size);
    put_number(making, "LOCAL_RANK", settings->is_virtual_local_rank ? 0 : place->local_rank);
    put_number(making, "LOCAL_WORLD_SIZE", place->local_world_size);
    put_number(making, "GROUP_RANK", place->group_rank);
    put_number(making, "GROUP_WORLD_SIZE", place->group_world_size);
    put(making, "ROLE_NAME", settings->role);
    put_number(making, "ROLE_RANK", place->role_rank);
    put_number(making, "ROLE_WORLD_SIZE", place->role_world_size);
}

static void put_torchelastic(struct making *making,
                             const struct mst__run_settings *settings,
                             const struct mst__worker_place *place)
{
    char signals[MST_SIGNALS_MAX * 12] = "";
    size_t used = 0;
    for (size_t i = 0; i < settings->stop_signals.count; i++) {
        char name[MST_SIGNAL_NAME_SIZE];
        mst__report_signal(settings->stop_signals.numbers[i], name);
        int size = snprintf(signals + used, sizeof signals - used, "%s%s", i == 0 ? "" : ",", name);
        used += size > 0 && (size_t)size < sizeof signals - used ? (size_t)size : 0;
    }
    put(making, "MASTER_ADDR", place->master_addr);
    put_number(making, "MASTER_PORT", place->master_port);
    put_number(making, "TORCHELASTIC_RESTART_COUNT", place->restart_count);
    put_number(making, "TORCHELASTIC_MAX_RESTARTS", settings->max_restarts);
    put(making, "TORCHELASTIC_RUN_ID", settings->run_id);
    put(making, "TORCHELASTIC_USE_AGENT_STORE", place->use_agent_store ? "True" : "False");
    put(making, "TORCHELASTIC_ERROR_FILE", place->error_file == NULL ? "" : place->error_file);
    put(making, "TORCHELASTIC_SIGNALS_TO_HANDLE", signals);
    put(making, "TORCHELASTIC_TIMER_FILE", place->timer_file);
    /* The names of newer and older releases of torch. */
    put_passed(making, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    put_passed(making, "NCCL_ASYNC_ERROR_HANDLING", "1");
}

static void put_muster(struct making *making, const struct mst__worker_place *place)
{
    put_number(making, "MUSTER_GENERATION", place->generation);
    put_number(making, "MUSTER_ROUND", place->round);
    put(making, "MUSTER_START_REASON", place->start_reason);
    put_number(making, "MUSTER_PREV_WORLD_SIZE", place->prev_world_size);
    put(making, "MUSTER_STORE", place->store_url);
    put(making, "MUSTER_ACK_FILE", place->ack_file);
    put(making, "MUSTER_HEARTBEAT_FILE", place->heartbeat_file);
}

/* With a virtual local rank, a worker sees only its own GPU. */
static int put_gpus(struct making *making,
                    const struct mst__run_settings *settings,
                    const struct mst__worker_place *place,
                    struct mst_err *reterr)
{
    if (!settings->is_virtual_local_rank) {
        return 0; /* inherited */
    }
    const char *list = mst__env_get(making->inherited, "CUDA_VISIBLE_DEVICES");
    if (list == NULL) {
        put_number(making, "CUDA_VISIBLE_DEVICES", place->local_rank);
        return 0;
    }
    const char *at = list;
    for (int64_t i = 0; i < place->local_rank && at != NULL; i++) {
        at = strchr(at, ',');
        at = at == NULL ? NULL : at + 1;
    }
    size_t size = at == NULL ? 0 : strcspn(at, ",");
    if (size == 0) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "--virtual-local-rank: CUDA_VISIBLE_DEVICES is '%.60s', which has no GPU "
                         "for local rank %" PRId64,
                         list, place->local_rank);
    }
    put(making, "CUDA_VISIBLE_DEVICES", mst__arena_text(making->arena, mst_bytes_of(at, size)));
    return 0;
}

/* --- the whole environment --- */

static size_t name_size(const char *entry)
{
    const char *equals = strchr(entry, '=');
    return equals == NULL ? strlen(entry) : (size_t)(equals - entry);
}

static bool has_name(char *const *entries, size_t count, const char *entry)
{
    size_t size = name_size(entry);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(entries[i], entry, size) == 0 && entries[i][size] == '=') {
            return true;
        }
    }
    return false;
}

/* Set the variables of --env, which replace others. */
static void put_user(struct making *making, const struct mst__run_settings *settings)
{
    for (size_t i = 0; i < settings->env.count; i++) {
        char *entry = mst__arena_text(making->arena, mst_bytes_str(settings->env.values[i]));
        size_t size = entry == NULL ? 0 : name_size(entry);
        size_t at = 0;
        while (
            entry != NULL && at < making->count &&
            (strncmp(making->entries[at], entry, size) != 0 || making->entries[at][size] != '=')) {
            at++;
        }
        if (entry != NULL && at < making->count) {
            making->entries[at] = entry;
        } else {
            put_entry(making, entry);
        }
    }
}

static int finish_environment(struct making *making,
                              char *const *inherited,
                              struct mst__worker_command *ret_command)
{
    size_t inherited_count = 0;
    while (inherited[inherited_count] != NULL) {
        inherited_count++;
    }
    char **environment =
        mst__arena_take(making->arena, (making->count + inherited_count + 1) * sizeof *environment);
    if (environment == NULL) {
        return MST_ENOMEM;
    }
    memcpy(environment, making->entries, making->count * sizeof *environment);
    size_t count = making->count;
    for (size_t i = 0; i < inherited_count; i++) {
        if (!has_name(making->entries, making->count, inherited[i])) {
            environment[count++] = inherited[i];
        }
    }
    ret_command->environment = environment;
    ret_command->own_count = making->count;
    return 0;
}

/* --- arguments --- */

/* A copy of @text with ${local_rank} and ${rank} replaced; other ${...} stay. NULL if there is no
 * memory. */
static char *expand(struct mst__arena *arena,
                    const char *text,
                    const struct mst__worker_place *place)
{
    static const char local_rank[] = "${local_rank}";
    static const char rank[] = "${rank}";
    struct mst__buf made;
    mst__buf_init(&made, ENTRY_SIZE_MAX + 24 * strlen(text));
    int rv = 0;
    while (*text != '\0') {
        size_t plain = strcspn(text, "$");
        rv = rv == 0 ? mst__buf_append(&made, mst_bytes_of(text, plain)) : rv;
        text += plain;
        if (strncmp(text, local_rank, sizeof local_rank - 1) == 0) {
            mst__text_put(&made, &rv, "%" PRId64, place->local_rank);
            text += sizeof local_rank - 1;
        } else if (strncmp(text, rank, sizeof rank - 1) == 0) {
            mst__text_put(&made, &rv, "%" PRId64, place->rank);
            text += sizeof rank - 1;
        } else if (*text == '$') {
            rv = rv == 0 ? mst__buf_append_u8(&made, '$') : rv;
            text++;
        }
    }
    char *copy = rv == 0 ? mst__arena_text(arena, mst__buf_bytes(&made)) : NULL;
    mst__buf_close(&made);
    return copy;
}

static int make_argv(const struct mst__run_settings *settings,
                     const struct mst__worker_place *place,
                     struct mst__arena *arena,
                     char ***ret_argv)
{
    size_t count = 1; /* there is a program */
    while (settings->program[count] != NULL) {
        count++;
    }
    char **argv = mst__arena_take(arena, (count + 4) * sizeof *argv);
    size_t at = 0;
    if (argv == NULL) {
        return MST_ENOMEM;
    }
    if (settings->program_kind != MST_PROGRAM_PLAIN) {
        argv[at++] = mst__arena_text(arena, mst_bytes_str(settings->interpreter));
        argv[at++] = mst__arena_text(arena, mst_bytes_str("-u"));
    }
    if (settings->program_kind == MST_PROGRAM_MODULE) {
        argv[at++] = mst__arena_text(arena, mst_bytes_str("-m"));
    }
    argv[at++] = mst__arena_text(arena, mst_bytes_str(settings->program[0]));
    for (size_t i = 1; i < count; i++) {
        argv[at++] = expand(arena, settings->program[i], place);
    }
    *ret_argv = argv;
    for (size_t i = 0; i < at; i++) {
        if (argv[i] == NULL) {
            return MST_ENOMEM;
        }
    }
    return 0;
}

int mst__worker_command_make(const struct mst__run_settings *settings,
                             const struct mst__worker_place *place,
                             char *const *inherited,
                             struct mst__arena *arena,
                             struct mst__worker_command *ret_command,
                             struct mst_err *reterr)
{
    struct making making = {
        .arena = arena,
        .inherited = mst__env_entries((const char *const *)inherited),
    };
    put_ranks(&making, settings, place);
    put_torchelastic(&making, settings, place);
    put_muster(&making, place);
    int rv = put_gpus(&making, settings, place, reterr);
    if (rv != 0) {
        return rv;
    }
    if (settings->omp_threads > 0) {
        put_number(&making, "OMP_NUM_THREADS", settings->omp_threads);
    }
    put_user(&making, settings);
    rv = making.rv;
    rv = rv == 0 ? finish_environment(&making, inherited, ret_command) : rv;
    rv = rv == 0 ? make_argv(settings, place, arena, &ret_command->argv) : rv;
    return rv == 0 ? 0 : mst__fail(reterr, rv, 0, "command of a worker");
}
