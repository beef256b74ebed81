/* cli/run_options.c - options of `muster run`, from the table of agent/settings.h. */
#include "cli/run_options.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "agent/allocation.h"
#include "agent/devices.h"
#include "agent/worker_env.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/log.h"

#define COMMAND "muster run"
#define SHOWN_SIZE_MAX MST_MIB(64)

static const char run_synopsis[] = "[options] [--] PROGRAM [ARGUMENT...]\n"
                                   "-m [options] [--] MODULE [ARGUMENT...]\n"
                                   "--hosts LIST [options] [--] PROGRAM [ARGUMENT...]";

static const char run_text[] =
    "Run PROGRAM as the workers of an elastic job: start them on this node, give each its rank, "
    "restart all of them together when one fails or the nodes change, and stop them together. "
    "Options have the names and meanings of torchrun's. An option that is not given is read from "
    "MUSTER_NAME, then PET_NAME, then the scheduler (Slurm, Kubernetes, Open MPI, PMI, Flux, LSF, "
    "PBS); --explain shows which. A program whose name ends in .py is run by python3 -u.\n"
    "\n"
    "In arguments, ${local_rank} and ${rank} are replaced by those of the worker. Exit status: "
    "that "
    "of the worker that failed first in the whole job, 128+N if signal N ended it; 0 for success "
    "or "
    "an unneeded spare. muster-run(1) lists the others.";

static const struct mst__option_letter run_letters[] = {
    {'m', "module"},
    {'r', "redirects"},
    {'t', "tee"},
    {'\0', NULL},
};

/* The targets of the option table. */
struct targets {
    bool flags[MST_SETTING_COUNT];
    struct mst__option_list lists[MST_SETTING_COUNT];
    struct mst__setting_input input;
};

static void fill_options(struct targets *targets, struct mst__option ret_options[MST_SETTING_COUNT])
{
    for (size_t i = 0; i < MST_SETTING_COUNT; i++) {
        const struct mst__setting_info *info = mst__setting_info((enum mst__setting)i);
        struct mst__option *option = &ret_options[i];
        *option = (struct mst__option){
            .name = info->name, .argument = info->argument, .help = info->help};
        switch (info->kind) {
            case MST_SETTING_FLAG:
                option->kind = MST_OPTION_FLAG;
                option->target = &targets->flags[i];
                break;
            case MST_SETTING_TEXT:
                option->kind = MST_OPTION_TEXT;
                option->target = (void *)&targets->input.texts[i];
                break;
            case MST_SETTING_LIST:
                option->kind = MST_OPTION_LIST;
                option->target = &targets->lists[i];
                break;
        }
    }
}

static void take_list(struct targets *targets,
                      enum mst__setting setting,
                      struct mst__setting_list *ret_list)
{
    const struct mst__option_list *list = &targets->lists[setting];
    static_assert((int)MST_SETTING_LIST_MAX >= (int)MST_OPTION_LIST_MAX, "all of them fit");
    for (size_t i = 0; i < list->count; i++) {
        ret_list->values[ret_list->count++] = list->values[i];
        targets->input.texts[setting] = list->values[i];
    }
}

static void take_targets(struct targets *targets)
{
    for (size_t i = 0; i < MST_SETTING_COUNT; i++) {
        if (targets->flags[i]) {
            targets->input.texts[i] = "1";
        }
    }
    take_list(targets, MST_SETTING_RDZV_CONF, &targets->input.rdzv_conf);
    take_list(targets, MST_SETTING_ENV, &targets->input.env);
}

/* --- printing --- */

static int print(struct mst__buf *text, int rv, struct mst_err *reterr)
{
    rv = rv == 0 ? mst__cli_write(mst__buf_bytes(text), reterr)
                 : mst__fail(reterr, rv, 0, "settings");
    mst__buf_close(text);
    return rv;
}

int mst__run_explain(const struct mst__run_settings *settings, struct mst_err *reterr)
{
    struct mst__buf text;
    int rv = 0;
    mst__buf_init(&text, SHOWN_SIZE_MAX);
    for (size_t i = 0; i < MST_SETTING_COUNT; i++) {
        const struct mst__setting_value *value = &settings->values[i];
        if (value->text == NULL || i == MST_SETTING_EXPLAIN) {
            continue;
        }
        mst__text_put(&text, &rv, "%-26s ", mst__setting_info((enum mst__setting)i)->name);
        (void)mst__text_put_foreign(&text, &rv, mst_bytes_str(value->text));
        mst__text_put(&text, &rv, "  (%s)\n", value->origin);
    }
    if (settings->values[MST_SETTING_END_TIME].text == NULL) {
        mst__text_put(&text, &rv, "%-26s none  (%s)\n", "end-time", settings->end_time_none);
    }
    const struct mst__machine *machine = &settings->machine;
    mst__text_put(&text, &rv, "%-26s %" PRId64 "  (%s)\n", "workers on this node", settings->nproc,
                  settings->values[MST_SETTING_NPROC].origin);
    if (settings->local_size != settings->nproc) {
        mst__text_put(&text, &rv, "%-26s %" PRId64 " of %" PRId64 "  (%s)\n", "first local rank",
                      settings->local_first, settings->local_size,
                      settings->scheduler.local_rank.origin);
    }
    mst__text_put(&text, &rv, "%-26s %" PRId64 "  (%s)\n", "usable CPUs", machine->cpus,
                  machine->cpus_origin);
    mst__text_put(&text, &rv, "%-26s %" PRId64 "  (%s)\n", "GPUs", machine->gpus,
                  machine->gpus_origin);
    const struct mst__scheduler *scheduler = &settings->scheduler;
    mst__text_put(&text, &rv, "%-26s %s\n", "scheduler",
                  scheduler->name == NULL ? "none" : scheduler->name);
    const struct {
        const char *name;
        const struct mst__scheduler_value *value;
    } values[] = {
        {"its hosts", &scheduler->hosts},
        {"its CPUs per task", &scheduler->cpus},
        {"its topology", &scheduler->topology},
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (values[i].value->text != NULL) {
            mst__text_put(&text, &rv, "%-26s ", values[i].name);
            (void)mst__text_put_foreign(&text, &rv, mst_bytes_str(values[i].value->text));
            mst__text_put(&text, &rv, "  (%s)\n", values[i].value->origin);
        }
    }
    return print(&text, rv, reterr);
}

/* Append @word, quoted for a shell. */
static void put_quoted(struct mst__buf *text, int *rv, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=./:,@%";
    if (*word != '\0' && strspn(word, plain) == strlen(word)) {
        *rv = *rv == 0 ? mst__buf_append(text, mst_bytes_str(word)) : *rv;
        return;
    }
    *rv = *rv == 0 ? mst__buf_append_u8(text, '\'') : *rv;
    for (; *word != '\0'; word++) {
        struct mst_bytes piece = *word == '\'' ? mst_bytes_str("'\\''") : mst_bytes_of(word, 1);
        *rv = *rv == 0 ? mst__buf_append(text, piece) : *rv;
    }
    *rv = *rv == 0 ? mst__buf_append_u8(text, '\'') : *rv;
}

/* Guess the place of a worker before there is a round: all nodes have as many workers as this one,
 * and the rank of this node is --node-rank, or 0. */
static struct mst__worker_place guess_place(const struct mst__run_settings *settings, int64_t rank)
{
    int64_t node = settings->node_rank < 0 ? 0 : settings->node_rank;
    int64_t world = settings->nodes_max * settings->nproc;
    return (struct mst__worker_place){
        .rank = node * settings->nproc + rank,
        .world_size = world,
        .local_rank = settings->local_first + rank,
        .local_world_size = settings->local_size,
        .group_rank = node,
        .group_world_size = settings->nodes_max,
        .role_rank = node * settings->nproc + rank,
        .role_world_size = world,
        .master_addr = "<rank 0's address>",
        .use_agent_store = true,
        .generation = 1,
        .start_reason = "first",
        .error_file =
            settings->log_dir != NULL && *settings->log_dir == '\0' ? NULL : "<log directory>",
    };
}

int mst__run_dry(const struct mst__run_settings *settings, struct mst_err *reterr)
{
    struct mst__buf text;
    int rv = 0;
    mst__buf_init(&text, SHOWN_SIZE_MAX);
    for (int64_t i = 0; i < settings->nproc && rv == 0; i++) {
        struct mst__arena arena = {0};
        struct mst__worker_command command = {0};
        struct mst__worker_place place = guess_place(settings, i);
        int made = mst__worker_command_make(settings, &place, environ, &arena, &command, reterr);
        if (made != 0) {
            mst__arena_close(&arena);
            mst__buf_close(&text);
            return made;
        }
        mst__text_put(&text, &rv, "# local rank %" PRId64 "\n", place.local_rank);
        for (size_t j = 0; j < command.own_count; j++) {
            put_quoted(&text, &rv, command.environment[j]);
            mst__text_put(&text, &rv, "\n");
        }
        for (char **word = command.argv; *word != NULL; word++) {
            put_quoted(&text, &rv, *word);
            mst__text_put(&text, &rv, "%s", word[1] == NULL ? "\n" : " ");
        }
        mst__arena_close(&arena);
    }
    return print(&text, rv, reterr);
}

/* --- the whole --- */

/* The signals that this process ignores: since its start, because it has not changed any yet. */
static uint64_t ignored_signals(void)
{
    uint64_t ignored = 0;
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN) {
            ignored |= UINT64_C(1) << (number - 1);
        }
    }
    return ignored;
}

static int read_settings(const struct targets *targets,
                         char *const *program,
                         struct mst__run_settings *ret_settings,
                         struct mst_err *reterr)
{
    const struct mst__devices_place place = {.root = "", .environment = mst__env_process()};
    struct mst__machine machine;
    struct mst__scheduler scheduler;
    struct mst__arena arena = {0};
    mst__devices_find(&place, &machine);
    machine.ignored_signals = ignored_signals();
    int rv = mst__scheduler_read(place.environment, machine.hostname, &arena, &scheduler, reterr);
    rv = rv == 0 ? mst__run_settings_read(&targets->input, place.environment, &scheduler, &machine,
                                          program, ret_settings, reterr)
                 : rv;
    if (rv == 0) {
        mst__run_settings_adopt(ret_settings, &arena);
        mst__allocation_find_end(ret_settings);
    }
    mst__arena_close(&arena);
    return rv;
}

bool mst__run_options_read(int argc,
                           char **argv,
                           struct mst__run_settings *ret_settings,
                           int *ret_exit)
{
    static struct targets targets; /* static, because it has some KiB */
    struct mst__option options[MST_SETTING_COUNT];
    struct mst_err err;
    fill_options(&targets, options);
    const struct mst__usage usage = {
        .command = COMMAND,
        .synopsis = run_synopsis,
        .text = run_text,
        .options = options,
        .options_count = MST_SETTING_COUNT,
        .arguments_max = SIZE_MAX,
        .letters = run_letters,
        .is_exact = true,
    };
    int first = 0;
    if (!mst__options_parse(&usage, argc, argv, &first, ret_exit)) {
        return false;
    }
    take_targets(&targets);
    int rv = read_settings(&targets, argv + first, ret_settings, &err);
    if (rv != 0) {
        *ret_exit =
            rv == MST_EINVAL ? mst__cli_usage_error(COMMAND, "%s", err.msg) : mst__cli_fail(&err);
        return false;
    }
    bool is_shown = ret_settings->is_explain || ret_settings->is_dry_run;
    if (argv[first] == NULL && !ret_settings->is_explain) {
        *ret_exit = mst__cli_usage_error(COMMAND, "no program is given");
        mst__run_settings_close(ret_settings);
        return false;
    }
    rv = ret_settings->is_explain ? mst__run_explain(ret_settings, &err) : 0;
    rv = rv == 0 && ret_settings->is_dry_run && argv[first] != NULL
             ? mst__run_dry(ret_settings, &err)
             : rv;
    if (is_shown || rv != 0) {
        *ret_exit = rv == 0 ? MST_EXIT_OK : mst__cli_fail(&err);
        mst__run_settings_close(ret_settings);
        return false;
    }
    return true;
}
