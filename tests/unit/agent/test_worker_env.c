/* unit/agent/test_worker_env.c - the environment and the arguments of workers. */
#include <string.h>

#include "agent/worker_env.h"
#include "unit/unit.h"

static struct mst__arena arena;
static char *const program[] = {(char *)"train.py", (char *)"--out=${rank}/${local_rank}.txt",
                                (char *)"${x}$", (char *)"$$", NULL};

static int reset(void **state)
{
    (void)state;
    mst__arena_close(&arena);
    return 0;
}

static const struct mst__run_settings *settings_with(struct mst__run_settings settings)
{
    static struct mst__run_settings made;
    made = settings;
    made.program = program;
    made.role = made.role == NULL ? "default" : made.role;
    made.interpreter = "python3";
    made.run_id = "job";
    return &made;
}

static const struct mst__worker_place place = {
    .rank = 5,
    .world_size = 8,
    .local_rank = 1,
    .local_world_size = 4,
    .group_rank = 1,
    .group_world_size = 2,
    .role_rank = 3,
    .role_world_size = 6,
    .master_addr = "10.0.0.1",
    .master_port = 4321,
    .use_agent_store = true,
    .round = 7,
    .restart_count = 2,
    .generation = 4,
    .start_reason = "failure",
    .prev_world_size = 6,
    .store_url = "tcp://10.0.0.1:29400/x",
    .error_file = "/logs/error.json",
};

static char **environment_of(const struct mst__run_settings *settings, char *const *inherited)
{
    struct mst__worker_command command = {0};
    struct mst_err err;
    assert_int_equal(mst__worker_command_make(settings, &place, inherited, &arena, &command, &err),
                     0);
    return command.environment;
}

/* The value of @name, which is there exactly once. */
static const char *value_of(char **environment, const char *name)
{
    const char *value = NULL;
    size_t size = strlen(name);
    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, name, size) == 0 && (*environment)[size] == '=') {
            assert_null(value);
            value = *environment + size + 1;
        }
    }
    return value;
}

#define assert_variable(environment, name, value) \
    assert_string_equal(value_of((environment), (name)), (value))

static void variables(void **state)
{
    (void)state;
    char *const inherited[] = {(char *)"PATH=/bin", (char *)"RANK=99", (char *)"A=b=c", NULL};
    char **made = environment_of(settings_with((struct mst__run_settings){
                                     .max_restarts = 3,
                                     .omp_threads = 2,
                                     .role = "trainer",
                                     .stop_signals = {.numbers = {15, 2}, .count = 2},
                                 }),
                                 inherited);
    static const char *const wanted[][2] = {
        {"RANK", "5"},
        {"WORLD_SIZE", "8"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "4"},
        {"GROUP_RANK", "1"},
        {"GROUP_WORLD_SIZE", "2"},
        {"ROLE_NAME", "trainer"},
        {"ROLE_RANK", "3"},
        {"ROLE_WORLD_SIZE", "6"},
        {"MASTER_ADDR", "10.0.0.1"},
        {"MASTER_PORT", "4321"},
        {"TORCHELASTIC_RESTART_COUNT", "2"},
        {"TORCHELASTIC_MAX_RESTARTS", "3"},
        {"TORCHELASTIC_RUN_ID", "job"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_ERROR_FILE", "/logs/error.json"},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"OMP_NUM_THREADS", "2"},
        {"MUSTER_GENERATION", "4"},
        {"MUSTER_ROUND", "7"},
        {"MUSTER_START_REASON", "failure"},
        {"MUSTER_PREV_WORLD_SIZE", "6"},
        {"MUSTER_STORE", "tcp://10.0.0.1:29400/x"},
        {"PATH", "/bin"},
        {"A", "b=c"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        assert_variable(made, wanted[i][0], wanted[i][1]);
    }
    assert_null(value_of(made, "MUSTER_ACK_FILE"));
    assert_null(value_of(made, "TORCHELASTIC_TIMER_FILE"));
    assert_null(value_of(made, "CUDA_VISIBLE_DEVICES"));
}

static void passed_on(void **state)
{
    (void)state;
    char *const inherited[] = {(char *)"TORCH_NCCL_ASYNC_ERROR_HANDLING=3",
                               (char *)"OMP_NUM_THREADS=9", (char *)"CUDA_VISIBLE_DEVICES=4,5",
                               (char *)"MASTER=theirs", NULL};
    struct mst__run_settings settings = {
        .env = {.values = {"RANK=mine", "NEW=1", "LOCAL=mine"}, .count = 3}};
    char **made = environment_of(settings_with(settings), inherited);
    assert_variable(made, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "3");
    assert_variable(made, "OMP_NUM_THREADS", "9");
    assert_variable(made, "CUDA_VISIBLE_DEVICES", "4,5");
    assert_variable(made, "RANK", "mine");
    assert_variable(made, "NEW", "1");
    /* Names that others begin with. */
    assert_variable(made, "LOCAL", "mine");
    assert_variable(made, "LOCAL_RANK", "1");
    assert_variable(made, "MASTER", "theirs");
    assert_variable(made, "MASTER_ADDR", "10.0.0.1");
}

static void virtual_local_rank(void **state)
{
    (void)state;
    char *const none[] = {NULL};
    char *const two[] = {(char *)"CUDA_VISIBLE_DEVICES=GPU-a,GPU-b", NULL};
    char *const one[] = {(char *)"CUDA_VISIBLE_DEVICES=3", NULL};
    const struct mst__run_settings *settings =
        settings_with((struct mst__run_settings){.is_virtual_local_rank = true});
    char **made = environment_of(settings, none);
    assert_variable(made, "LOCAL_RANK", "0");
    assert_variable(made, "CUDA_VISIBLE_DEVICES", "1");
    assert_variable(environment_of(settings, two), "CUDA_VISIBLE_DEVICES", "GPU-b");
    struct mst__worker_command command;
    struct mst_err err;
    assert_int_equal(mst__worker_command_make(settings, &place, one, &arena, &command, &err),
                     MST_EINVAL);
    assert_non_null(strstr(err.msg, "no GPU for local rank 1"));
}

static void arguments(void **state)
{
    (void)state;
    static const struct {
        enum mst__program_kind kind;
        const char *words[8];
    } cases[] = {
        {MST_PROGRAM_PLAIN, {"train.py", "--out=5/1.txt", "${x}$", "$$", NULL}},
        {MST_PROGRAM_SCRIPT, {"python3", "-u", "train.py", "--out=5/1.txt", "${x}$", "$$", NULL}},
        {MST_PROGRAM_MODULE,
         {"python3", "-u", "-m", "train.py", "--out=5/1.txt", "${x}$", "$$", NULL}},
    };
    char *const none[] = {NULL};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__worker_command command;
        assert_int_equal(mst__worker_command_make(settings_with((struct mst__run_settings){
                                                      .program_kind = cases[i].kind}),
                                                  &place, none, &arena, &command, NULL),
                         0);
        size_t at = 0;
        for (; cases[i].words[at] != NULL; at++) {
            assert_string_equal(command.argv[at], cases[i].words[at]);
        }
        assert_null(command.argv[at]);
    }
}

static void without_memory(void **state)
{
    (void)state;
    char *const none[] = {NULL};
    const struct mst__run_settings *settings = settings_with((struct mst__run_settings){0});
    int rv = MST_ENOMEM;
    for (unsigned long nth = 1; rv != 0; nth++) {
        struct mst__arena own = {0};
        struct mst__worker_command command;
        mst__mem_fail_nth(nth);
        rv = mst__worker_command_make(settings, &place, none, &own, &command, NULL);
        mst__mem_fail_nth(0);
        mst__arena_close(&own);
        assert_true(rv == 0 || rv == MST_ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(variables, reset),
        cmocka_unit_test_teardown(passed_on, reset),
        cmocka_unit_test_teardown(virtual_local_rank, reset),
        cmocka_unit_test_teardown(arguments, reset),
        cmocka_unit_test_teardown(without_memory, reset),
    };
    return MST_RUN_TESTS(tests);
}
