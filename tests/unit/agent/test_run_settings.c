/* unit/agent/test_run_settings.c - settings of `muster run`: precedence, meaning, refusals. */
#include <signal.h>
#include <string.h>

#include "agent/settings.h"
#include "unit/unit.h"

static struct mst__machine machine = {.cpus = 8,
                                      .gpus = 2,
                                      .hostname = "here",
                                      .cpus_origin = "affinity",
                                      .gpus_origin = "/dev"};
static char *const program[] = {(char *)"./train", (char *)"--lr", (char *)"1", NULL};

/* The input of a case; environment entries end with NULL. */
struct given {
    struct mst__setting_input input;
    const char *const *environment;
    struct mst__scheduler scheduler;
    char *const *program;
};

static int read_given(const struct given *given,
                      struct mst__run_settings *ret,
                      struct mst_err *reterr)
{
    static const char *const nothing[] = {NULL};
    const char *const *entries = given->environment == NULL ? nothing : given->environment;
    return mst__run_settings_read(&given->input, mst__env_entries(entries), &given->scheduler,
                                  &machine, given->program == NULL ? program : given->program, ret,
                                  reterr);
}

#define GIVEN(...) (&(const struct given){__VA_ARGS__})
#define TEXT(name, value) .input.texts[MST_SETTING_##name] = (value)

static void assert_read(const struct given *given, struct mst__run_settings *ret)
{
    struct mst_err err;
    int rv = read_given(given, ret, &err);
    if (rv != 0) {
        print_error("%s\n", err.msg);
    }
    assert_int_equal(rv, 0);
}

static void assert_refused(const struct given *given, const char *message)
{
    struct mst__run_settings settings;
    struct mst_err err;
    assert_int_equal(read_given(given, &settings, &err), MST_EINVAL);
    if (strstr(err.msg, message) == NULL) {
        print_error("'%s' lacks '%s'\n", err.msg, message);
        fail();
    }
}

static void defaults(void **state)
{
    (void)state;
    struct mst__run_settings settings;
    assert_read(GIVEN(0), &settings);
    assert_int_equal(settings.nodes_min, 1);
    assert_int_equal(settings.nodes_max, 1);
    assert_int_equal(settings.nproc, 1);
    assert_true(settings.is_standalone);
    assert_string_equal(settings.backend, "muster");
    assert_string_equal(settings.endpoint, "unix:");
    assert_int_equal(strlen(settings.run_id), 36);
    assert_int_equal(settings.max_restarts, 0);
    assert_int_equal(settings.grace_ms, 30000);
    assert_int_equal(settings.stop_signals.count, 4);
    assert_int_equal(settings.stop_signals.numbers[0], SIGTERM);
    assert_int_equal(settings.stop_signal, SIGTERM);
    assert_int_equal(settings.preempt_status, 75);
    assert_int_equal(settings.node_rank, -1);
    assert_int_equal(settings.omp_threads, 8);
    assert_string_equal(settings.prefix_template, "[${role_name}${local_rank}]:");
    assert_int_equal(settings.program_kind, MST_PROGRAM_PLAIN);
    assert_null(settings.log_dir);
    assert_int_equal(settings.values[MST_SETTING_NNODES].source, MST_SOURCE_DEFAULT);
    assert_int_equal(settings.values[MST_SETTING_RDZV_ID].source, MST_SOURCE_DERIVED);
    mst__run_settings_close(&settings);
}

/* The command line, MUSTER_*, PET_*, the scheduler, the default: each takes precedence over the
 * next. */
static void which_counts(void **state)
{
    (void)state;
    struct mst__run_settings settings;
    const struct mst__scheduler scheduler = {
        .name = "Slurm",
        .nnodes = {"5", "SLURM_JOB_NUM_NODES"},
        .id = {"slurm-7", "SLURM_JOB_ID"},
        .endpoint = {"n1:29407", "SLURM_JOB_NODELIST"},
    };
    const char *const all[] = {"MUSTER_NNODES=3", "PET_NNODES=4", "PET_RDZV_ID=pet", NULL};
    const char *const pet[] = {"MUSTER_NNODES=", "PET_NNODES=4", NULL};
    assert_read(GIVEN(TEXT(NNODES, "2"), .environment = all, .scheduler = scheduler), &settings);
    assert_int_equal(settings.nodes_max, 2);
    assert_string_equal(settings.values[MST_SETTING_NNODES].origin, "--nnodes");
    assert_string_equal(settings.run_id, "pet");
    assert_string_equal(settings.values[MST_SETTING_RDZV_ID].origin, "PET_RDZV_ID");
    assert_string_equal(settings.endpoint, "n1:29407");
    mst__run_settings_close(&settings);

    assert_read(GIVEN(.environment = all, .scheduler = scheduler), &settings);
    assert_int_equal(settings.nodes_max, 3);
    assert_string_equal(settings.values[MST_SETTING_NNODES].origin, "MUSTER_NNODES");
    mst__run_settings_close(&settings);

    assert_read(GIVEN(.environment = pet, .scheduler = scheduler), &settings);
    assert_int_equal(settings.nodes_max, 4);
    assert_int_equal(settings.values[MST_SETTING_NNODES].source, MST_SOURCE_PET);
    mst__run_settings_close(&settings);

    assert_read(GIVEN(.scheduler = scheduler), &settings);
    assert_int_equal(settings.nodes_max, 5);
    assert_string_equal(settings.values[MST_SETTING_NNODES].origin, "SLURM_JOB_NUM_NODES");
    assert_string_equal(settings.run_id, "slurm-7");
    mst__run_settings_close(&settings);

    /* On one node the scheduler's host is of no use, but its id is. */
    assert_read(GIVEN(TEXT(NNODES, "1"), .scheduler = scheduler), &settings);
    assert_true(settings.is_standalone);
    assert_string_equal(settings.run_id, "slurm-7");
    mst__run_settings_close(&settings);
}

static void flags_from_variables(void **state)
{
    (void)state;
    struct mst__run_settings settings;
    const char *const on[] = {"PET_STANDALONE=1", "PET_VIRTUAL_LOCAL_RANK=0", "PET_NO_PYTHON=2",
                              NULL};
    const char *const wrong[] = {"PET_STANDALONE=yes", NULL};
    assert_read(GIVEN(.environment = on), &settings);
    assert_true(settings.is_standalone);
    assert_false(settings.is_virtual_local_rank);
    mst__run_settings_close(&settings);
    assert_refused(GIVEN(.environment = wrong), "PET_STANDALONE: 'yes' is not a number");
}

static void nodes_and_workers(void **state)
{
    (void)state;
    static const struct {
        const char *nproc;
        int64_t count;
    } cases[] = {{"3", 3}, {"cpu", 8}, {"gpu", 2}, {"auto", 2}, {"20", 20}};
    struct mst__run_settings settings;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_read(GIVEN(TEXT(NPROC, cases[i].nproc)), &settings);
        assert_int_equal(settings.nproc, cases[i].count);
        assert_int_equal(settings.omp_threads, cases[i].count > 8 ? 1 : 8 / cases[i].count);
        mst__run_settings_close(&settings);
    }
    static const char *const wrong[] = {"0", "-1", "2:1", "1:2:3", "x", ":", "1:", "0:2", "1.5"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_refused(GIVEN(TEXT(NNODES, wrong[i])), "--nnodes: '");
    }
    assert_refused(GIVEN(TEXT(NPROC, "0")), "--nproc-per-node: '0'");
    assert_refused(GIVEN(TEXT(NPROC, "xpu")), "give their number");
    assert_read(GIVEN(TEXT(NNODES, "2:4"), TEXT(RDZV_ENDPOINT, "h"), TEXT(RDZV_ID, "j")),
                &settings);
    assert_int_equal(settings.nodes_min, 2);
    assert_int_equal(settings.nodes_max, 4);
    mst__run_settings_close(&settings);
}

static void rendezvous(void **state)
{
    (void)state;
    struct mst__run_settings settings;
    assert_refused(GIVEN(TEXT(NNODES, "2")), "--rdzv-endpoint is missing");
    assert_refused(GIVEN(TEXT(NNODES, "2"), TEXT(RDZV_ENDPOINT, "h:1")), "--rdzv-id is missing");
    assert_refused(GIVEN(TEXT(NNODES, "2"), TEXT(STANDALONE, "1")), "has one node");
    assert_refused(GIVEN(TEXT(RDZV_ENDPOINT, "h:99999"), TEXT(RDZV_ID, "x")), "is not host[:port]");
    /* One node with an endpoint is not a standalone job; it makes its own id. */
    assert_read(GIVEN(TEXT(RDZV_ENDPOINT, "h:1")), &settings);
    assert_false(settings.is_standalone);
    assert_int_equal(strlen(settings.run_id), 36);
    mst__run_settings_close(&settings);
    /* As Kubeflow has it. */
    const char *const kubeflow[] = {"PET_NNODES=2",
                                    "PET_NODE_RANK=1",
                                    "PET_MASTER_ADDR=job-0",
                                    "PET_MASTER_PORT=23456",
                                    "PET_NPROC_PER_NODE=auto",
                                    "PET_RDZV_ID=job",
                                    NULL};
    assert_read(GIVEN(.environment = kubeflow), &settings);
    assert_string_equal(settings.endpoint, "job-0:23456");
    assert_string_equal(settings.values[MST_SETTING_RDZV_ENDPOINT].origin, "PET_MASTER_ADDR");
    assert_int_equal(settings.node_rank, 1);
    mst__run_settings_close(&settings);
    assert_read(GIVEN(TEXT(RDZV_BACKEND, "static"), TEXT(NNODES, "2"), TEXT(NODE_RANK, "1"),
                      TEXT(MASTER_ADDR, "fe80::1"), TEXT(RDZV_ID, "x")),
                &settings);
    assert_string_equal(settings.endpoint, "[fe80::1]:29500");
    mst__run_settings_close(&settings);
    assert_refused(GIVEN(TEXT(RDZV_CONF, "a"), .input.rdzv_conf = {.values = {"a"}, .count = 1}),
                   "--rdzv-conf: 'a' is not KEY=VALUE");
    assert_refused(
        GIVEN(TEXT(RDZV_CONF, "x"), .input.rdzv_conf = {.values = {"a=1", "b= "}, .count = 2}),
        "'b= ' is not KEY=VALUE");
}

/* Master address and port take precedence over an endpoint from a weaker source. */
static void master(void **state)
{
    (void)state;
    struct mst__run_settings settings;
    const struct mst__scheduler slurm = {
        .name = "Slurm",
        .nnodes = {"2", "SLURM_JOB_NUM_NODES"},
        .id = {"slurm-7", "SLURM_JOB_ID"},
        .endpoint = {"n1:29407", "SLURM_JOB_NODELIST"},
    };
    const char *const pet[] = {"PET_MASTER_ADDR=job-master-0", "PET_MASTER_PORT=23456", NULL};
    const char *const endpoint[] = {"PET_RDZV_ENDPOINT=e:1", "PET_MASTER_ADDR=m", NULL};
    const struct {
        struct given given;
        const char *endpoint, *origin;
    } cases[] = {
        {{TEXT(MASTER_ADDR, "m"), TEXT(MASTER_PORT, "5")}, "m:5", "--master-addr"},
        {{TEXT(MASTER_ADDR, "m")}, "m:29407", "--master-addr"},
        {{TEXT(MASTER_PORT, "5")}, "n1:5", "--master-port"},
        {{.environment = pet}, "job-master-0:23456", "PET_MASTER_ADDR"},
        {{TEXT(RDZV_ENDPOINT, "e"), TEXT(MASTER_ADDR, "m")}, "e", "--rdzv-endpoint"},
        {{TEXT(RDZV_ENDPOINT, "e"), .environment = pet}, "e", "--rdzv-endpoint"},
        {{.environment = endpoint}, "e:1", "PET_RDZV_ENDPOINT"},
        {{TEXT(MASTER_ADDR, "o"), .environment = endpoint}, "o:29500", "--master-addr"},
        {.endpoint = "n1:29407", .origin = "SLURM_JOB_NODELIST"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct given given = cases[i].given;
        given.scheduler = slurm;
        assert_read(&given, &settings);
        assert_string_equal(settings.endpoint, cases[i].endpoint);
        assert_string_equal(settings.values[MST_SETTING_RDZV_ENDPOINT].origin, cases[i].origin);
        assert_string_equal(settings.run_id, "slurm-7");
        mst__run_settings_close(&settings);
    }
}

/* A batch script would wait for agents that nobody starts. */
static void batch_script(void **state)
{
    (void)state;
    struct mst__run_settings settings;
    const struct mst__scheduler batch = {
        .name = "Slurm",
        .batch_nodes = {"4", "SLURM_JOB_NUM_NODES"},
        .id = {"slurm-7", "SLURM_JOB_ID"},
        .hosts = {"n[1-4]", "SLURM_JOB_NODELIST"},
    };
    assert_refused(GIVEN(.scheduler = batch), "4 nodes, and it runs on one of them: use srun or "
                                              "--launch srun");
    const struct given allowed[] = {
        {TEXT(NNODES, "1")},       {TEXT(STANDALONE, "1")},
        {TEXT(LAUNCH, "srun")},    {TEXT(NNODES, "4"), TEXT(RDZV_ENDPOINT, "n1")},
        {TEXT(MASTER_ADDR, "n1")},
    };
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        struct given given = allowed[i];
        given.scheduler = batch;
        assert_read(&given, &settings);
        mst__run_settings_close(&settings);
    }
}

/* Agents on one node share its local ranks, unless the scheduler gave each GPUs of its own. */
static void local_ranks(void **state)
{
    (void)state;
    struct mst__run_settings settings;
    const struct {
        const char *nproc, *rank, *size; /* the machine has two GPUs */
        int64_t first, workers;
    } cases[] = {
        {"1", "1", "2", 1, 2}, {"1", "0", "2", 0, 2}, {"2", "0", "1", 0, 2}, {"2", "1", "2", 0, 2},
        {"1", "3", "4", 0, 1}, {"1", "2", "2", 0, 1}, {"1", "x", "2", 0, 1}, {"1", NULL, "2", 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_read(GIVEN(TEXT(NPROC, cases[i].nproc),
                          .scheduler = {.local_rank = {cases[i].rank, "SLURM_LOCALID"},
                                        .local_size = {cases[i].size, "SLURM_TASKS"}}),
                    &settings);
        assert_int_equal(settings.local_first, cases[i].first);
        assert_int_equal(settings.local_size, cases[i].workers);
        mst__run_settings_close(&settings);
    }
    const struct mst__machine plain = {.cpus = 4, .hostname = "here"};
    const struct mst__scheduler scheduler = {.local_rank = {"1", "SLURM_LOCALID"},
                                             .local_size = {"2", "SLURM_TASKS"}};
    const struct mst__setting_input input = {.texts = {[MST_SETTING_NPROC] = "3"}};
    const char *const nothing[] = {NULL};
    assert_int_equal(mst__run_settings_read(&input, mst__env_entries(nothing), &scheduler, &plain,
                                            program, &settings, NULL),
                     0);
    assert_int_equal(settings.local_first, 3);
    assert_int_equal(settings.local_size, 6);
    mst__run_settings_close(&settings);
}

static void restarts(void **state)
{
    (void)state;
    struct mst__run_settings settings;
    assert_read(GIVEN(TEXT(MAX_RESTARTS, "3/1h"), TEXT(RESTART_BACKOFF, "1s:60s"),
                      TEXT(ON_JOIN, "next-restart"), TEXT(EXIT_STATUS, "torchrun"),
                      TEXT(GIVE_UP, "0")),
                &settings);
    assert_int_equal(settings.max_restarts, 3);
    assert_int_equal(settings.max_restarts_window_ms, 3600000);
    assert_int_equal(settings.backoff_min_ms, 1000);
    assert_int_equal(settings.backoff_max_ms, 60000);
    assert_int_equal(settings.on_join, MST_ON_JOIN_NEXT_RESTART);
    assert_true(settings.is_exit_torchrun);
    assert_int_equal(settings.give_up_count, 0);
    mst__run_settings_close(&settings);
    assert_refused(GIVEN(TEXT(MAX_RESTARTS, "-1")), "--max-restarts: '-1'");
    assert_refused(GIVEN(TEXT(MAX_RESTARTS, "3/")), "such as 3/1h");
    assert_refused(GIVEN(TEXT(RESTART_BACKOFF, "5s:1s")), "--restart-backoff");
    assert_refused(GIVEN(TEXT(ON_JOIN, "later")), "is not restart, next-restart or never");
    assert_refused(GIVEN(TEXT(GIVE_UP, "3")), "such as 10/3s");
}

static void stopping(void **state)
{
    (void)state;
    struct mst__run_settings settings;
    const char *const variable[] = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7", NULL};
    assert_read(GIVEN(.environment = variable), &settings);
    assert_int_equal(settings.grace_ms, 7000);
    mst__run_settings_close(&settings);
    assert_read(GIVEN(TEXT(GRACE, "1.5s"), TEXT(SHUTDOWN_TIMEOUT, "9"),
                      TEXT(SIGNALS, "SIGUSR1, term"), TEXT(NOTICE_SIGNAL, "USR1"),
                      TEXT(SIGNAL_SCOPE, "group"), TEXT(FORWARD_SIGNALS, "USR2")),
                &settings);
    assert_int_equal(settings.grace_ms, 1500);
    assert_int_equal(settings.stop_signals.count, 2);
    assert_int_equal(settings.stop_signals.numbers[1], SIGTERM);
    assert_int_equal(settings.notice_signal, SIGUSR1);
    assert_int_equal(settings.signal_scope, MST_SIGNAL_SCOPE_GROUP);
    assert_int_equal(settings.forward_signals.count, 1);
    assert_int_equal(settings.forward_signals.numbers[0], SIGUSR2);
    mst__run_settings_close(&settings);
    assert_refused(GIVEN(TEXT(SIGNALS, "SIGTERM,SIGKILL")), "'SIGKILL' is not a signal");
    assert_refused(GIVEN(TEXT(SIGNALS, "SIGFOO")), "'SIGFOO' is not a signal");
    assert_refused(GIVEN(TEXT(GRACE, "soon")), "--grace: 'soon' is not a duration");
    assert_refused(GIVEN(TEXT(HOST_TIMEOUT, "0")), "--host-timeout: '0' is not a duration from");
}

static void programs(void **state)
{
    (void)state;
    struct mst__run_settings settings;
    char *const script[] = {(char *)"train.py", NULL};
    const char *const python[] = {"PYTHON_EXEC=/opt/python", "OMP_NUM_THREADS=3", NULL};
    assert_read(GIVEN(.program = script, .environment = python), &settings);
    assert_int_equal(settings.program_kind, MST_PROGRAM_SCRIPT);
    assert_string_equal(settings.interpreter, "/opt/python");
    assert_int_equal(settings.omp_threads, 0);
    mst__run_settings_close(&settings);
    assert_read(GIVEN(.program = script, TEXT(NO_PYTHON, "1")), &settings);
    assert_int_equal(settings.program_kind, MST_PROGRAM_PLAIN);
    mst__run_settings_close(&settings);
    assert_read(GIVEN(TEXT(MODULE, "1")), &settings);
    assert_int_equal(settings.program_kind, MST_PROGRAM_MODULE);
    mst__run_settings_close(&settings);
    assert_refused(GIVEN(TEXT(MODULE, "1"), TEXT(NO_PYTHON, "1")), "exclude each other");
}

static void output(void **state)
{
    (void)state;
    struct mst__run_settings settings;
    assert_read(GIVEN(TEXT(TEE, "0-1:3,12:1,0:2"), TEXT(REDIRECTS, "2"),
                      TEXT(LOCAL_RANKS_FILTER, "0,3-4"), TEXT(DUPLICATE_STDOUT, "a,,b,c,"),
                      TEXT(LOG_DIR, "/dev/null"), TEXT(LOG_FORMAT, "json")),
                &settings);
    assert_int_equal(mst__rank_streams_of(&settings.tee, 0), 2); /* the last range counts */
    assert_int_equal(mst__rank_streams_of(&settings.tee, 1), 3);
    assert_int_equal(mst__rank_streams_of(&settings.tee, 2), 0);
    assert_int_equal(mst__rank_streams_of(&settings.tee, 12), 1);
    assert_int_equal(mst__rank_streams_of(&settings.redirects, 99), 2);
    assert_true(mst__rank_set_has(&settings.console_ranks, 4));
    assert_false(mst__rank_set_has(&settings.console_ranks, 1));
    assert_string_equal(settings.stdout_filters[0], "a,b");
    assert_string_equal(settings.stdout_filters[1], "c");
    assert_null(settings.stdout_filters[2]);
    assert_null(settings.stderr_filters[0]);
    assert_string_equal(settings.log_dir, "");
    assert_true(settings.is_log_json);
    mst__run_settings_close(&settings);
    static const char *const wrong[] = {"4", "", "0:", ":3", "0:4", "0:3,", "1-0:3", "a:1", "0:33"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_refused(GIVEN(TEXT(REDIRECTS, wrong[i])), "--redirects: '");
    }
    assert_refused(GIVEN(TEXT(LOCAL_RANKS_FILTER, "0,x")), "--local-ranks-filter: '0,x'");
}

/* Options of torchrun that the launcher cannot honour are refused; the rest is accepted. */
static void of_torchrun(void **state)
{
    (void)state;
    struct mst__run_settings settings;
    const char *const run_path[] = {"PET_RUN_PATH=1", NULL};
    assert_refused(GIVEN(TEXT(RUN_PATH, "1")), "--run-path cannot be honoured");
    assert_refused(GIVEN(.environment = run_path), "PET_RUN_PATH cannot be honoured");
    assert_refused(GIVEN(TEXT(LOGS_SPECS, "mine")), "--logs-specs: 'mine' cannot be honoured");
    assert_refused(GIVEN(TEXT(START_METHOD, "thread")), "is not spawn, fork or forkserver");
    assert_refused(GIVEN(TEXT(EVENT_LOG_HANDLER, "mine")), "is not null or console");
    assert_refused(GIVEN(TEXT(MONITOR_INTERVAL, "0")), "--monitor-interval: '0' is not above 0");
    assert_refused(GIVEN(TEXT(NUMA_BINDING, "near")), "node, socket, exclusive or core-complex");
    assert_read(GIVEN(TEXT(START_METHOD, "fork"), TEXT(MONITOR_INTERVAL, "0.1"),
                      TEXT(EVENT_LOG_HANDLER, "console"), TEXT(LOGS_SPECS, "default")),
                &settings);
    assert_string_equal(settings.events, "fd:2");
    mst__run_settings_close(&settings);
}

/* Each allocation fails once; nothing is left behind. */
static void without_memory(void **state)
{
    (void)state;
    const char *const variables[] = {"PET_NNODES=1", "MUSTER_TEE=3", NULL};
    int rv = MST_ENOMEM;
    for (unsigned long nth = 1; rv == MST_ENOMEM; nth++) {
        struct mst__run_settings settings;
        mst__mem_fail_nth(nth);
        rv = read_given(GIVEN(.environment = variables, TEXT(ROLE, "r")), &settings, NULL);
        mst__mem_fail_nth(0);
        if (rv == 0) {
            mst__run_settings_close(&settings);
        }
        assert_true(nth < 1000);
    }
    assert_int_equal(rv, 0);
}

static bool has(const struct mst__signal_list *list, int number)
{
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        count += list->numbers[i] == number;
    }
    assert_true(count <= 1);
    return count == 1;
}

static void forwarded_signals(void **state)
{
    (void)state;
    struct mst__run_settings settings;
    assert_read(GIVEN(0), &settings);
    assert_int_equal(settings.forward_signals.count, 4);
    assert_true(has(&settings.forward_signals, SIGUSR1));
    assert_true(has(&settings.forward_signals, SIGUSR2));
    assert_true(has(&settings.forward_signals, SIGWINCH));
    assert_true(has(&settings.forward_signals, SIGCONT));
    mst__run_settings_close(&settings);
    assert_read(GIVEN(TEXT(FORWARD_SIGNALS, "none")), &settings);
    assert_int_equal(settings.forward_signals.count, 0);
    mst__run_settings_close(&settings);
    assert_read(GIVEN(TEXT(SIGNALS, "TERM,USR1")), &settings); /* a signal that stops */
    assert_false(has(&settings.forward_signals, SIGUSR1));
    assert_true(has(&settings.forward_signals, SIGUSR2));
    mst__run_settings_close(&settings);
    assert_refused(GIVEN(TEXT(FORWARD_SIGNALS, "USR1,none")), "'none' is not a signal");
}

/* Ignored since the start, as with nohup, or in the background of a shell script. */
static void ignored_signals(void **state)
{
    (void)state;
    static const int of_terminals[] = {SIGHUP, SIGINT, SIGQUIT};
    struct mst__run_settings settings;
    for (size_t i = 0; i < sizeof of_terminals / sizeof of_terminals[0]; i++) {
        machine.ignored_signals = UINT64_C(1) << (of_terminals[i] - 1);
        assert_read(GIVEN(0), &settings);
        assert_int_equal(settings.stop_signals.count, 3);
        assert_false(has(&settings.stop_signals, of_terminals[i]));
        mst__run_settings_close(&settings);
        assert_read(GIVEN(TEXT(SIGNALS, "HUP,INT,QUIT")), &settings); /* they are asked for */
        assert_int_equal(settings.stop_signals.count, 3);
        mst__run_settings_close(&settings);
    }
    machine.ignored_signals = UINT64_MAX; /* a scheduler's signal stops in any case */
    assert_read(GIVEN(0), &settings);
    assert_int_equal(settings.stop_signals.count, 1);
    assert_true(has(&settings.stop_signals, SIGTERM));
    mst__run_settings_close(&settings);
    machine.ignored_signals = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(which_counts),
        cmocka_unit_test(flags_from_variables),
        cmocka_unit_test(nodes_and_workers),
        cmocka_unit_test(rendezvous),
        cmocka_unit_test(master),
        cmocka_unit_test(batch_script),
        cmocka_unit_test(local_ranks),
        cmocka_unit_test(restarts),
        cmocka_unit_test(stopping),
        cmocka_unit_test(programs),
        cmocka_unit_test(output),
        cmocka_unit_test(of_torchrun),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(forwarded_signals),
        cmocka_unit_test(ignored_signals),
    };
    return MST_RUN_TESTS(tests);
}
