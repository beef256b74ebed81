/* cli/run_hosts.c - agents on other hosts: their hosts, command line and environment. */
#include "cli/run_hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/relay.h"
#include "agent/run.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/log.h"

#define COMMAND "muster run"
#define HOSTFILE_SIZE_MAX MST_MIB(16)
#define PORT_FIRST 29400
#define PORTS_COUNT 1000 /* makes a common port of two jobs on one host unlikely */

/* Prefixes of the environment variables that agents get, and exceptions, which would make an agent
 * start agents on other hosts again. */
static const char *const passed_prefixes[] = {
    "MUSTER_", "PET_", "NCCL_", "TORCH", "PYTHON", "OMP_", "LD_LIBRARY_PATH=", "LOGLEVEL=",
};
static const char *const launching[] = {
    "MUSTER_HOSTS", "MUSTER_HOSTFILE", "MUSTER_LAUNCH", "PET_HOSTS", "PET_HOSTFILE", "PET_LAUNCH",
};

/* --- hosts --- */

static int read_hostfile(const char *path,
                         struct mst__arena *arena,
                         struct mst__host_list *ret_list,
                         struct mst_err *reterr)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return mst__fail(reterr, MST_ESYS, errno, "open '%.150s'", path);
    }
    struct mst__buf text;
    mst__buf_init(&text, HOSTFILE_SIZE_MAX);
    int rv = 0;
    size_t size = 0;
    do {
        uint8_t *room = mst__buf_reserve(&text, 4096, &rv);
        size = room == NULL ? 0 : fread(room, 1, 4096, file);
        mst__buf_commit(&text, size);
    } while (size > 0);
    (void)fclose(file); /* opened for reading only */
    rv = rv != 0 ? mst__fail(reterr, rv, 0, "host file '%.100s'", path)
                 : mst__hosts_parse_file(mst__buf_bytes(&text), arena, ret_list, reterr);
    mst__buf_close(&text);
    return rv;
}

static int find_hosts(const struct mst__run_settings *settings,
                      struct mst__arena *arena,
                      struct mst__host_list *ret_list,
                      struct mst_err *reterr)
{
    if (settings->hostfile != NULL) {
        return read_hostfile(settings->hostfile, arena, ret_list, reterr);
    }
    const char *text = settings->hosts != NULL ? settings->hosts : settings->scheduler.hosts.text;
    if (text == NULL) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "--launch needs --hosts, --hostfile or a scheduler");
    }
    return mst__hosts_parse(text, arena, ret_list, reterr);
}

/* --- the command line of agents --- */

struct words {
    struct mst__arena *arena;
    char **list;
    size_t count;
    bool is_out_of_memory;
};

static void add(struct words *words, const char *format, ...) MST_PRINTF(2, 3);
static void add(struct words *words, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = size < 0 ? NULL : mst__arena_take(words->arena, (size_t)size + 1);
    if (text == NULL) {
        words->is_out_of_memory = true;
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, (size_t)size + 1, format, args);
    va_end(args);
    words->list[words->count++] = text;
}

/* Whether agents get the option. Some options are for this process only; make_words and the agent's
 * relay set others. */
static bool is_passed(enum mst__setting setting)
{
    switch (setting) {
        case MST_SETTING_HOSTS:
        case MST_SETTING_HOSTFILE:
        case MST_SETTING_LAUNCH:
        case MST_SETTING_SSH:
        case MST_SETTING_REMOTE_MUSTER:
        case MST_SETTING_HOST_TIMEOUT:
        case MST_SETTING_NNODES:
        case MST_SETTING_RDZV_ENDPOINT:
        case MST_SETTING_RDZV_ID:
        case MST_SETTING_NODE_RANK:
        case MST_SETTING_DRY_RUN:
        case MST_SETTING_EXPLAIN:
            return false;
        default:
            return true;
    }
}

static void add_setting(struct words *words,
                        const struct mst__run_settings *settings,
                        enum mst__setting setting)
{
    const struct mst__setting_info *info = mst__setting_info(setting);
    const struct mst__setting_value *value = &settings->values[setting];
    if (value->source != MST_SOURCE_OPTION || !is_passed(setting)) {
        return;
    }
    if (info->kind == MST_SETTING_FLAG) {
        add(words, "--%s", info->name);
    } else if (info->kind == MST_SETTING_TEXT) {
        add(words, "--%s=%s", info->name, value->text);
    } else {
        const struct mst__setting_list *list =
            setting == MST_SETTING_ENV ? &settings->env : &settings->rdzv_conf;
        for (size_t i = 0; i < list->count; i++) {
            add(words, "--%s=%s", info->name, list->values[i]);
        }
    }
}

/* What --master-addr and --master-port do not say is the first host and a random port. */
static void add_endpoint(struct words *words,
                         const struct mst__run_settings *settings,
                         const char *first,
                         uint32_t random)
{
    const char *addr = settings->values[MST_SETTING_MASTER_ADDR].text;
    const char *port = settings->values[MST_SETTING_MASTER_PORT].text;
    const char *at = strrchr(first, '@');
    char number[16];
    (void)snprintf(number, sizeof number, "%" PRIu32, PORT_FIRST + random % PORTS_COUNT);
    addr = addr != NULL ? addr : at != NULL ? at + 1 : first;
    bool is_bare_v6 = strchr(addr, ':') != NULL && addr[0] != '[';
    add(words, "--rdzv-endpoint=%s%s%s:%s", is_bare_v6 ? "[" : "", addr, is_bare_v6 ? "]" : "",
        port != NULL ? port : number);
}

/* Add where the agents meet, and the id. What only a scheduler says is of its whole job, which may
 * launch several at once. So agents that srun starts follow from their step; others meet on the
 * first host, at a random port. */
static void add_place(struct words *words,
                      const struct mst__run_settings *settings,
                      const char *first)
{
    const struct mst__setting_value *endpoint = &settings->values[MST_SETTING_RDZV_ENDPOINT];
    const struct mst__setting_value *id = &settings->values[MST_SETTING_RDZV_ID];
    bool is_srun = settings->launch == MST_LAUNCH_SRUN;
    uint32_t random[2];
    static_assert(sizeof random <= sizeof settings->machine.random, "bytes for both");
    memcpy(random, settings->machine.random, sizeof random);
    if (endpoint->source >= MST_SOURCE_PET) {
        add(words, "--rdzv-endpoint=%s", settings->endpoint);
    } else if (!is_srun) {
        add_endpoint(words, settings, first, random[0]);
    }
    if (id->source == MST_SOURCE_SCHEDULER && !is_srun) {
        add(words, "--rdzv-id=%s-%08" PRIx32, settings->run_id, random[1]);
    } else if (id->source >= MST_SOURCE_PET || !is_srun) {
        add(words, "--rdzv-id=%s", settings->run_id);
    }
}

static int make_words(const struct mst__run_settings *settings,
                      const struct mst__host_list *hosts,
                      struct words *ret_words)
{
    size_t program_count = 0;
    while (settings->program[program_count] != NULL) {
        program_count++;
    }
    ret_words->list = mst__arena_take(
        ret_words->arena, (MST_SETTING_COUNT + 2 * MST_SETTING_LIST_MAX + program_count + 8) *
                              sizeof *ret_words->list);
    if (ret_words->list == NULL) {
        return MST_ENOMEM;
    }
    for (size_t i = 0; i < MST_SETTING_COUNT; i++) {
        add_setting(ret_words, settings, (enum mst__setting)i);
    }
    const struct mst__setting_value *nodes = &settings->values[MST_SETTING_NNODES];
    if (nodes->source >= MST_SOURCE_PET) {
        add(ret_words, "--nnodes=%s", nodes->text);
    } else {
        add(ret_words, "--nnodes=%zu", hosts->count);
    }
    add_place(ret_words, settings, hosts->hosts[0].name);
    add(ret_words, "--");
    for (size_t i = 0; i < program_count; i++) {
        add(ret_words, "%s", settings->program[i]);
    }
    return ret_words->is_out_of_memory ? MST_ENOMEM : 0;
}

/* --- environment --- */

static bool begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

static bool is_variable_passed(const char *entry)
{
    for (size_t i = 0; i < sizeof launching / sizeof launching[0]; i++) {
        size_t size = strlen(launching[i]);
        if (begins_with(entry, launching[i]) && entry[size] == '=') {
            return false;
        }
    }
    for (size_t i = 0; i < sizeof passed_prefixes / sizeof passed_prefixes[0]; i++) {
        if (begins_with(entry, passed_prefixes[i])) {
            return true;
        }
    }
    return false;
}

static int pick_environment(struct mst__arena *arena, struct mst__relay_job *job)
{
    size_t count = 0;
    while (environ[count] != NULL) {
        count++;
    }
    char **list = mst__arena_take(arena, (count + 1) * sizeof *list);
    if (list == NULL) {
        return MST_ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        if (is_variable_passed(environ[i])) {
            list[job->environment_count++] = environ[i];
        }
    }
    job->environment = list;
    return 0;
}

/* --- starting --- */

static const char *own_path(struct mst__arena *arena)
{
    char path[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path);
    return size <= 0 ? "muster" : mst__arena_text(arena, mst_bytes_of(path, (size_t)size));
}

static bool has_nodes(const struct mst__run_settings *settings)
{
    return settings->values[MST_SETTING_NNODES].source >= MST_SOURCE_PET;
}

/* Whether the job ends when one host is lost. */
static bool needs_all(const struct mst__run_settings *settings, const struct mst__host_list *hosts)
{
    return !has_nodes(settings) || settings->nodes_min == (int64_t)hosts->count;
}

static int check(const struct mst__run_settings *settings,
                 const struct mst__host_list *hosts,
                 const char *muster,
                 struct mst_err *reterr)
{
    if (settings->events != NULL && begins_with(settings->events, "fd:")) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "--events: %s cannot be reached from other hosts; name a file",
                         settings->events);
    }
    if (muster == NULL || strchr(muster, '\'') != NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "--remote-muster: there is a ' in the path");
    }
    if (has_nodes(settings) && settings->nodes_min > (int64_t)hosts->count) {
        return mst__fail(reterr, MST_EINVAL, 0, "there are %zu hosts, fewer than %" PRId64 " nodes",
                         hosts->count, settings->nodes_min);
    }
    return 0;
}

/* Replace this process by srun, which starts the agents and passes on the environment. Returns only
 * on failure. */
static int run_srun(const struct mst__run_settings *settings,
                    const struct mst__host_list *hosts,
                    const struct words *words,
                    const char *muster,
                    struct mst_err *reterr)
{
    char nodes[40];
    char tasks[40];
    const char **argv = mst__arena_take(words->arena, (words->count + 13) * sizeof *argv);
    size_t at = 0;
    if (argv == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "srun");
    }
    (void)snprintf(nodes, sizeof nodes, "--nodes=%zu", hosts->count);
    (void)snprintf(tasks, sizeof tasks, "--ntasks=%zu", hosts->count);
    argv[at++] = "srun";
    argv[at++] = nodes;
    argv[at++] = tasks; /* without it, srun takes the number of tasks of the job */
    argv[at++] = "--ntasks-per-node=1";
    argv[at++] = "--cpu-bind=none"; /* an agent's workers may use all CPUs of the step */
    argv[at++] = "--kill-on-bad-exit=0";
    argv[at++] = "--input=0"; /* the others do not read it, and would hold it up */
    if (!needs_all(settings, hosts)) {
        argv[at++] = "--no-kill"; /* the others go on without a node that fails */
    }
    if (settings->hosts != NULL) {
        argv[at++] = "--nodelist";
        argv[at++] = settings->hosts;
    }
    argv[at++] = muster;
    argv[at++] = "run";
    for (size_t i = 0; i < words->count; i++) {
        argv[at++] = words->list[i];
    }
    for (size_t i = 0; i < sizeof launching / sizeof launching[0]; i++) {
        (void)unsetenv(launching[i]); /* cannot fail: the name is valid */
    }
    (void)execvp(argv[0], (char *const *)argv);
    return mst__fail(reterr, MST_ESYS, errno, "start srun (--launch ssh does without it)");
}

int mst__cli_run_hosts(const struct mst__run_settings *settings)
{
    struct mst__arena arena = {0};
    struct mst__host_list hosts = {0};
    struct words words = {.arena = &arena};
    char word[MST_RELAY_WORD_SIZE];
    struct mst__relay_job job = {.ssh = settings->ssh,
                                 .preempt_status = settings->preempt_status,
                                 .grace_ms = settings->grace_ms,
                                 .host_ms = settings->host_ms,
                                 .word = word};
    struct mst_err err = {0};
    char cwd[PATH_MAX];
    (void)snprintf(word, sizeof word, "%016" PRIx64 "%016" PRIx64, mst__clock_random_u64(),
                   mst__clock_random_u64());
    const char *remote = settings->values[MST_SETTING_REMOTE_MUSTER].text;
    job.muster = remote != NULL ? remote : own_path(&arena);
    int rv = find_hosts(settings, &arena, &hosts, &err);
    rv = rv == 0 ? check(settings, &hosts, job.muster, &err) : rv;
    if (rv == 0 && (make_words(settings, &hosts, &words) != 0 || pick_environment(&arena, &job))) {
        rv = mst__fail(&err, MST_ENOMEM, 0, "agents on %zu hosts", hosts.count);
    }
    if (rv == 0 && settings->launch == MST_LAUNCH_SRUN) {
        rv = run_srun(settings, &hosts, &words, job.muster, &err);
    }
    int exit_code = MST_EXIT_OK;
    if (rv != 0) {
        exit_code =
            rv == MST_EINVAL ? mst__cli_usage_error(COMMAND, "%s", err.msg) : mst__cli_fail(&err);
    } else {
        job.cwd = getcwd(cwd, sizeof cwd);
        job.arguments = words.list;
        job.arguments_count = words.count;
        job.below = hosts;
        job.needs_all = needs_all(settings, &hosts);
        const struct mst__relay_signals signals = {.stop = settings->stop_signals,
                                                   .forward = settings->forward_signals,
                                                   .kills_on_second = settings->kills_on_second};
        err.code = 0;
        exit_code = mst__relay_run(&job, &signals, -1, mst_bytes_of("", 0), &err);
        if (exit_code == MST_RELAY_LOST) {
            exit_code = err.code != 0 ? mst__cli_fail(&err) : MST_EXIT_CONNECT;
        }
    }
    mst__arena_close(&arena);
    return exit_code;
}

/* --- being a relay --- */

/* Move standard input, which carries the relay's job, to another descriptor, so that the agent does
 * not read it. Returns the descriptor, or -1 with errno. */
static int move_input(void)
{
    int control = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (control < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0) {
        return -1;
    }
    (void)close(null);
    return control;
}

static int take_over(const struct mst__relay_job *job, struct mst_err *reterr)
{
    for (size_t i = 0; i < sizeof launching / sizeof launching[0]; i++) {
        (void)unsetenv(launching[i]); /* cannot fail: the name is valid */
    }
    for (size_t i = 0; i < job->environment_count; i++) {
        char *equals = strchr(job->environment[i], '=');
        if (equals != NULL) {
            *equals = '\0';
            (void)setenv(job->environment[i], equals + 1, 1); /* missing if out of memory */
            *equals = '=';
        }
    }
    (void)setenv(MST_REPORT_VARIABLE, "cause", 1); /* if out of memory, all agents report */
    if (job->cwd != NULL && chdir(job->cwd) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "on host %.60s: directory '%.100s'",
                         job->self.name, job->cwd);
    }
    return 0;
}

int mst__cli_run_relay(void)
{
    static const struct mst__relay_signals signals = {
        .stop = {.numbers = {SIGTERM, SIGINT, SIGHUP, SIGQUIT}, .count = 4}};
    struct mst__arena arena = {0};
    struct mst__relay_job job = {0};
    struct mst__buf input;
    struct mst_err err = {0};
    size_t size = 0;
    int status = MST_RELAY_LOST;
    mst__buf_init(&input, MST_RELAY_JOB_SIZE_MAX);
    int control = move_input();
    int rv = control < 0 ? mst__fail(&err, MST_ESYS, errno, "standard input of a relay")
                         : mst__relay_receive(control, MST_RELAY_JOB_WAIT_MS, &arena, &input, &job,
                                              &size, &err);
    rv = rv == 0 ? take_over(&job, &err) : rv;
    if (rv == 0) {
        mst__buf_consume(&input, size);
        err.code = 0;
        status = mst__relay_run(&job, &signals, control, mst__buf_bytes(&input), &err);
        rv = err.code;
    }
    if (rv != 0) {
        (void)mst__cli_fail(&err); /* the status of a relay is MST_RELAY_LOST */
        status = MST_RELAY_LOST;
    }
    mst__buf_close(&input);
    mst__arena_close(&arena);
    return status;
}
