/* unit/agent/test_output.c - output of workers, with pipes that the test writes to: where lines go,
 * that none is lost or mixed, that memory is bounded, and which files there are. */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "agent/line_format.h"
#include "agent/output.h"
#include "base/limits.h"
#include "unit/unit.h"

#define WORKERS_MAX 8

static char directory[] = "/tmp/muster-output-XXXXXX";
static uv_loop_t loop;
static struct mst__output *output;
static int console[2][2]; /* pipes that stand for stdout and stderr */
static int fds[WORKERS_MAX][2];
static struct mst__rank_streams redirects, teed;
static struct mst__rank_set ranks;

static int remove_one(const char *path, const struct stat *stat, int kind, struct FTW *ftw)
{
    (void)stat;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static int start(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof directory, "/tmp/muster-output-XXXXXX");
    redirects = teed = (struct mst__rank_streams){0};
    ranks = (struct mst__rank_set){0};
    for (int i = 0; i < 2; i++) {
        if (pipe2(console[i], O_CLOEXEC) != 0 || fcntl(console[i][0], F_SETFL, O_NONBLOCK) != 0) {
            return 1;
        }
    }
    return mkdtemp(directory) == NULL || uv_loop_init(&loop) != 0;
}

static void turn(void)
{
    (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static void close_output(bool is_success)
{
    mst__output_free(output, is_success);
    output = NULL;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

static int stop(void **state)
{
    (void)state;
    if (output != NULL) {
        close_output(true);
    }
    for (int i = 0; i < 2; i++) {
        (void)close(console[i][0]);
        (void)close(console[i][1]);
    }
    int rv = uv_loop_close(&loop);
    return nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0 || rv != 0;
}

static struct mst__output_options options_for(size_t workers)
{
    return (struct mst__output_options){
        .workers_count = workers,
        .log_dir = directory,
        .run_id = "a/job",
        .role = "default",
        .hostname = "h",
        .redirects = &redirects,
        .tee = &teed,
        .console_ranks = &ranks,
        .prefix_template = "[${role_name}${local_rank}]:",
        .stdout_fd = console[0][1],
        .stderr_fd = console[1][1],
    };
}

static void open_with(struct mst__output_options options)
{
    struct mst_err err;
    assert_int_equal(mst__output_new(&loop, &options, &output, &err), 0);
}

static void begin(size_t workers, int64_t generation, int64_t restarts, int64_t first_rank)
{
    struct mst_err err;
    assert_int_equal(mst__output_begin(output, generation, restarts, first_rank, &err), 0);
    for (size_t i = 0; i < workers; i++) {
        assert_int_equal(mst__output_open_worker(output, i, fds[i], &err), 0);
    }
}

static void finish(size_t workers)
{
    for (size_t i = 0; i < workers; i++) {
        (void)close(fds[i][0]);
        (void)close(fds[i][1]);
        mst__output_finish_worker(output, i);
    }
}

static void write_to(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    turn();
}

/* The output so far. */
static const char *shown(int which)
{
    static char text[65537];
    ssize_t size = read(console[which][0], text, sizeof text - 1);
    text[size > 0 ? size : 0] = '\0';
    return text;
}

static const char *file(const char *name)
{
    static char text[4096];
    char path[2 * PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", mst__output_directory(output), name);
    int fd = open(path, O_RDONLY);
    ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[size] = '\0';
    if (fd >= 0) {
        (void)close(fd);
    }
    return fd < 0 ? NULL : text;
}

static void whole_lines(void **state)
{
    (void)state;
    open_with(options_for(2));
    begin(2, 1, 0, 0);
    write_to(fds[0][0], "he");
    write_to(fds[1][0], "you\n");
    write_to(fds[0][0], "llo\nrest");
    assert_string_equal(shown(0), "you\nhello\n");
    write_to(fds[1][1], "trouble\n");
    assert_string_equal(shown(1), "trouble\n");
    finish(2);
    assert_string_equal(shown(0), "rest\n");
}

/* The streams of one worker alone are passed on as they come. */
static void single_worker(void **state)
{
    (void)state;
    open_with(options_for(1));
    begin(1, 1, 0, 0);
    write_to(fds[0][0], "name? ");
    assert_string_equal(shown(0), "name? ");
    finish(1);
    assert_string_equal(shown(0), "");
}

static void tee_and_redirect(void **state)
{
    (void)state;
    static const char *const filters[] = {"loss", NULL};
    teed = (struct mst__rank_streams){
        .ranges = {{.first = 0, .last = 0, .streams = 1}, {.first = 2, .last = 2, .streams = 3}},
        .count = 2};
    redirects =
        (struct mst__rank_streams){.ranges = {{.first = 1, .last = 2, .streams = 3}}, .count = 1};
    struct mst__output_options options = options_for(3);
    options.stdout_filters = filters;
    open_with(options);
    begin(3, 1, 0, 6);
    write_to(fds[0][0], "a loss\n");
    write_to(fds[0][1], "e\n");
    write_to(fds[1][0], "to a file, loss\n");
    write_to(fds[2][0], "both\n");
    write_to(fds[2][1], "err\n");
    finish(3);
    assert_string_equal(shown(0), "[default0]:a loss\n[default2]:both\n");
    assert_string_equal(shown(1), "e\n[default2]:err\n");
    assert_string_equal(file("gen_1/rank_6.local_0/stdout.log"), "a loss\n");
    assert_null(file("gen_1/rank_6.local_0/stderr.log"));
    assert_string_equal(file("gen_1/rank_7.local_1/stdout.log"), "to a file, loss\n");
    assert_string_equal(file("gen_1/rank_8.local_2/stderr.log"), "err\n");
    assert_string_equal(file("attempt_0/2/stdout.log"), "both\n");
    assert_string_equal(file("gen_1/filtered_stdout.log"), "[default0]:a loss\n");
}

static size_t count_descriptors(void)
{
    size_t count = 0;
    DIR *all = opendir("/proc/self/fd");
    assert_non_null(all);
    while (readdir(all) != NULL) {
        count++;
    }
    (void)closedir(all);
    return count;
}

/* A generation leaves nothing open: there may be thousands. */
static void descriptors(void **state)
{
    (void)state;
    teed = (struct mst__rank_streams){.everywhere = 3};
    open_with(options_for(2));
    size_t before = count_descriptors();
    for (int generation = 1; generation <= 2; generation++) {
        begin(2, generation, generation, 0);
        write_to(fds[0][0], "x\n");
        assert_true(count_descriptors() > before);
        finish(2);
        turn();
        assert_int_equal(count_descriptors(), before);
    }
}

static void console_filter(void **state)
{
    (void)state;
    ranks = (struct mst__rank_set){.ranges = {{.first = 1, .last = 1}}, .count = 1};
    teed = (struct mst__rank_streams){.everywhere = 1};
    open_with(options_for(2));
    begin(2, 1, 0, 0);
    write_to(fds[0][0], "hidden\n");
    write_to(fds[0][1], "kept for the report\n");
    write_to(fds[1][0], "seen\n");
    finish(2);
    assert_string_equal(shown(0), "[default1]:seen\n");
    assert_string_equal(shown(1), "");
    assert_string_equal(file("gen_1/rank_0.local_0/stdout.log"), "hidden\n");
    struct mst__buf tail;
    mst__buf_init(&tail, 1000);
    assert_int_equal(mst__output_tail(output, 0, &tail), 0);
    assert_bytes_str(mst__buf_bytes(&tail), "kept for the report\n");
    mst__buf_close(&tail);
}

/* The last lines of stderr, from the pipe or from the file. */
static void tails(void **state)
{
    (void)state;
    redirects =
        (struct mst__rank_streams){.ranges = {{.first = 1, .last = 1, .streams = 2}}, .count = 1};
    open_with(options_for(2));
    begin(2, 1, 0, 0);
    char wanted[1000] = "";
    for (int i = 0; i < 50; i++) {
        char line[20];
        (void)snprintf(line, sizeof line, "line %d\n", i);
        write_to(fds[0][1], line);
        write_to(fds[1][1], line);
        size_t used = strlen(wanted);
        if (i >= 30) {
            (void)snprintf(wanted + used, sizeof wanted - used, "%s", line);
        }
    }
    finish(2);
    for (size_t i = 0; i < 2; i++) {
        struct mst__buf tail;
        mst__buf_init(&tail, 4000);
        assert_int_equal(mst__output_tail(output, i, &tail), 0);
        assert_bytes_str(mst__buf_bytes(&tail), wanted);
        mst__buf_close(&tail);
    }
}

/* A long line counts once. */
static void tail_of_a_long_line(void **state)
{
    (void)state;
    open_with(options_for(2));
    begin(2, 1, 0, 0);
    char part[MST_OUTPUT_LINE_SIZE_MAX / 16 + 1]; /* less than is read in a turn */
    memset(part, 'x', sizeof part - 1);
    part[sizeof part - 1] = '\0';
    write_to(fds[0][1], "before\n");
    for (int i = 0; i < 40; i++) { /* 2.5 pieces */
        write_to(fds[0][1], part);
        (void)shown(1); /* make room */
    }
    write_to(fds[0][1], "\nafter\n");
    struct mst__buf tail;
    mst__buf_init(&tail, 4000);
    assert_int_equal(mst__output_tail(output, 0, &tail), 0);
    part[MST_OUTPUT_TAIL_LINE_SIZE] = '\0';
    char wanted[sizeof part + 100];
    (void)snprintf(wanted, sizeof wanted, "before\n%s\nafter\n", part);
    assert_bytes_str(mst__buf_bytes(&tail), wanted);
    mst__buf_close(&tail);
    finish(2);
}

/* Each generation has a directory of its own; those without a file go. */
static void generations(void **state)
{
    (void)state;
    teed = (struct mst__rank_streams){.everywhere = 1};
    open_with(options_for(1));
    begin(1, 1, 0, 0);
    write_to(fds[0][0], "first\n");
    finish(1);
    begin(1, 2, 0, 3);
    write_to(fds[0][0], "second\n");
    finish(1);
    assert_string_equal(file("gen_1/rank_0.local_0/stdout.log"), "first\n");
    assert_string_equal(file("gen_2/rank_3.local_0/stdout.log"), "second\n");
    assert_string_equal(file("attempt_0/0/stdout.log"), "second\n");
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", mst__output_path(output, 0, "error.json"));
    assert_non_null(strstr(path, "/a_job_"));
    assert_non_null(strstr(path, "/gen_2/rank_3.local_0/error.json"));
}

/* Nothing of a generation is taken for the next one's: the end of stderr, matching lines, pids. */
static void generations_apart(void **state)
{
    (void)state;
    static const char *const filters[] = {"loss", NULL};
    teed = (struct mst__rank_streams){.everywhere = 1};
    struct mst__output_options options = options_for(1);
    options.stdout_filters = filters;
    options.prefix_template = "${pid}:";
    open_with(options);
    begin(1, 1, 0, 0);
    mst__output_set_pid(output, 0, 4711);
    write_to(fds[0][0], "loss 1\n");
    write_to(fds[0][1], "the first died\n");
    finish(1);
    begin(1, 2, 1, 0);
    mst__output_set_pid(output, 0, 4712);
    write_to(fds[0][0], "loss 2\n");
    finish(1);
    assert_string_equal(shown(0), "4711:loss 1\n4712:loss 2\n");
    assert_string_equal(file("gen_1/filtered_stdout.log"), "4711:loss 1\n");
    assert_string_equal(file("gen_2/filtered_stdout.log"), "4712:loss 2\n");
    struct mst__buf tail;
    mst__buf_init(&tail, 1000);
    assert_int_equal(mst__output_tail(output, 0, &tail), 0);
    assert_int_equal(mst__buf_size(&tail), 0);
    mst__buf_close(&tail);
}

static void empty_generations(void **state)
{
    (void)state;
    char path[PATH_MAX];
    char root[PATH_MAX];
    open_with(options_for(2));
    (void)snprintf(root, sizeof root, "%s", mst__output_directory(output));
    for (int generation = 1; generation <= 3; generation++) {
        begin(2, generation, generation, 0);
        finish(2);
    }
    (void)snprintf(path, sizeof path, "%.200s/gen_2", root);
    assert_int_equal(access(path, F_OK), -1);
    (void)snprintf(path, sizeof path, "%.200s/attempt_2", root);
    assert_int_equal(access(path, F_OK), -1);
    close_output(false);
    assert_int_equal(access(root, F_OK), -1);
}

/* Logs were not asked for: a job does not end because there is no place for them. */
static void no_place_for_files(void **state)
{
    (void)state;
    struct mst_err err = {.code = MST_EINVAL};
    assert_int_equal(setenv("TMPDIR", "/proc", 1), 0);
    struct mst__output_options options = options_for(1);
    options.log_dir = NULL;
    open_with(options);
    assert_non_null(strstr(shown(1), "muster: workers have no files: mkdir '/proc/muster_"));
    assert_string_equal(mst__output_directory(output), "");
    begin(1, 1, 0, 0);
    assert_null(mst__output_path(output, 0, "error.json"));
    write_to(fds[0][1], "still shown\n");
    finish(1);
    assert_string_equal(shown(1), "still shown\n");
    close_output(true);
    options.needs_files = true;
    assert_int_equal(mst__output_new(&loop, &options, &output, &err), MST_ESYS);
    options.needs_files = false;
    redirects.everywhere = MST_STREAM_STDOUT;
    assert_int_equal(mst__output_new(&loop, &options, &output, &err), MST_ESYS);
    redirects.everywhere = 0;
    teed.everywhere = MST_STREAM_STDERR;
    assert_int_equal(mst__output_new(&loop, &options, &output, &err), MST_ESYS);
    options.log_dir = "/proc/muster";
    teed.everywhere = 0;
    assert_int_equal(mst__output_new(&loop, &options, &output, &err), MST_ESYS);
    output = NULL;
    assert_int_equal(unsetenv("TMPDIR"), 0);
}

static void temporary_tree(void **state)
{
    (void)state;
    assert_int_equal(setenv("TMPDIR", directory, 1), 0);
    teed = (struct mst__rank_streams){.everywhere = 3};
    for (int i = 0; i < 3; i++) {
        bool is_success = i > 0;
        char root[PATH_MAX];
        struct mst__output_options options = options_for(1);
        options.log_dir = NULL;
        options.keeps_logs = i == 2;
        open_with(options);
        (void)snprintf(root, sizeof root, "%s", mst__output_directory(output));
        begin(1, 1, 0, 0);
        finish(1);
        close_output(is_success);
        assert_int_equal(access(root, F_OK), i == 1 ? -1 : 0);
    }
    assert_int_equal(unsetenv("TMPDIR"), 0);
    struct mst__output_options options = options_for(1);
    options.log_dir = "";
    open_with(options);
    begin(1, 1, 0, 0);
    assert_null(mst__output_path(output, 0, "error.json"));
    assert_string_equal(mst__output_directory(output), "");
    write_to(fds[0][0], "x\n");
    finish(1);
    assert_string_equal(shown(0), "[default0]:x\n");
}

/* A process that holds the pipe does not delay the end. */
static void pipe_held_open(void **state)
{
    (void)state;
    open_with(options_for(2));
    begin(2, 1, 0, 0);
    int held = fcntl(fds[0][0], F_DUPFD_CLOEXEC, 0);
    assert_int_equal(write(fds[0][0], "last words", 10), 10);
    finish(2);
    assert_string_equal(shown(0), "last words\n");
    (void)close(held);
}

/* Of as many last words as a pipe holds none is lost. */
static void many_last_words(void **state)
{
    (void)state;
    enum { LINES = 60, LINE_SIZE = 1000 };
    char line[LINE_SIZE];
    open_with(options_for(2));
    begin(2, 1, 0, 0);
    assert_true(fcntl(fds[0][0], F_GETPIPE_SZ) >= LINES * LINE_SIZE);
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (int i = 0; i < LINES; i++) {
        assert_int_equal(write(fds[0][0], line, sizeof line), (ssize_t)sizeof line);
    }
    finish(2);
    size_t size = strlen(shown(0));
    assert_int_equal(size, LINES * LINE_SIZE);
}

/* A process that the worker has left behind: it answers each line that is read with another one. */
static size_t answers;

static bool answer(void *arg, size_t local_rank, bool is_stderr, struct mst_bytes line)
{
    enum { ANSWERS_MAX = 10000 };
    (void)local_rank;
    (void)is_stderr;
    answers++;
    if (answers < ANSWERS_MAX) { /* else the reader would never stop */
        assert_int_equal(write(*(int *)arg, line.data, line.size), (ssize_t)line.size);
        assert_int_equal(write(*(int *)arg, "\n", 1), 1);
    }
    return true;
}

/* Output without end does not delay the end, either. */
static void endless_writer(void **state)
{
    (void)state;
    char line[1000];
    struct mst__output_options options = options_for(1);
    options.takes_line = answer;
    options.takes_line_arg = &fds[0][0];
    open_with(options);
    begin(1, 1, 0, 0);
    int held = fcntl(fds[0][0], F_GETPIPE_SZ);
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    assert_int_equal(write(fds[0][0], line, sizeof line), (ssize_t)sizeof line);
    answers = 0;
    mst__output_finish_worker(output, 0);
    assert_in_range(answers, 1, (size_t)held / sizeof line + 1);
    finish(1);
}

/* A console that takes nothing: pipes are not read beyond the bound, and nothing is lost when it
 * takes again. */
static void slow_console(void **state)
{
    (void)state;
    teed = (struct mst__rank_streams){.everywhere = 1};
    struct mst__output_options options = options_for(2);
    options.log_dir = "";
    open_with(options);
    begin(2, 1, 0, 0);
    assert_int_equal(fcntl(fds[0][0], F_SETFL, O_NONBLOCK), 0);
    char line[128];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    size_t written = 0;
    for (int refused = 0; refused < 10;) {
        bool is_taken = write(fds[0][0], line, sizeof line) == (ssize_t)sizeof line;
        written += is_taken ? 1 : 0;
        refused = is_taken ? 0 : refused + 1;
        if (!is_taken) {
            turn();
        }
        assert_true(written * sizeof line < 2 * MST_OUTPUT_CONSOLE_SIZE_MAX);
    }
    assert_true(written * sizeof line > MST_OUTPUT_CONSOLE_SIZE_MAX);
    size_t lines = 0;
    for (int idle = 0; idle < 10;) {
        const char *text = shown(0);
        idle = *text == '\0' ? idle + 1 : 0;
        for (; *text != '\0'; text++) {
            lines += *text == '\n' ? 1 : 0;
        }
        turn();
    }
    assert_int_equal(lines, written);
    finish(2);
}

/* What does not go to the console does not wait for it. */
static void slow_console_of_others(void **state)
{
    (void)state;
    ranks = (struct mst__rank_set){.ranges = {{.first = 0, .last = 0}}, .count = 1};
    teed = (struct mst__rank_streams){.everywhere = 1};
    open_with(options_for(2));
    begin(2, 1, 0, 0);
    char line[1000];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (int i = 0; !mst__output_is_full(output); i++) {
        assert_true(i < 100000);
        assert_int_equal(write(fds[0][0], line, sizeof line), (ssize_t)sizeof line);
        turn();
    }
    for (int i = 0; i < 3; i++) {
        write_to(fds[1][0], "file\n");
        turn();
    }
    assert_string_equal(file("gen_1/rank_1.local_1/stdout.log"), "file\nfile\nfile\n");
    finish(2);
}

/* Somebody reads the console after all, but late. */
static volatile sig_atomic_t reads;

static void read_late(int number)
{
    char text[4096];
    (void)number;
    reads++;
    while (read(console[0][0], text, sizeof text) > 0) {
    }
}

/* The end does not wait for a console that nobody reads. */
static void console_without_reader(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = read_late};
    struct sigaction before;
    static const struct itimerval late = {.it_value = {.tv_sec = 5},
                                          .it_interval = {.tv_usec = 10000}};
    static const struct itimerval never;
    char line[1000];
    open_with(options_for(1));
    begin(1, 1, 0, 0);
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (int i = 0; i < 200; i++) { /* three times what a pipe holds */
        assert_int_equal(write(fds[0][0], line, sizeof line), (ssize_t)sizeof line);
        turn();
    }
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &late, NULL), 0);
    mst__output_drain(output, 20);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_int_equal(reads, 0);
    finish(1);
}

/* Both streams on one pipe, which is full at times: lines of any length stay whole. */
static void one_pipe(void **state)
{
    (void)state;
    struct mst__output_options options = options_for(2);
    options.log_dir = "";
    options.stderr_fd = console[0][1];
    open_with(options);
    begin(2, 1, 0, 0);
    char lines[2][6000];
    size_t seen[2] = {0};
    char held[20000] = "";
    for (int i = 0; i < 200; i++) {
        for (int j = 0; j < 2; j++) {
            size_t size = j == 0 ? 6000 : (size_t)(i * 37 % 300 + 2);
            memset(lines[j], 'a' + j, size);
            lines[j][size - 1] = '\n';
            assert_int_equal(write(fds[j][j], lines[j], size), (ssize_t)size);
        }
        turn();
        turn();
        if (i % 15 != 14) { /* more than a pipe holds */
            continue;
        }
        for (const char *at = shown(0); *at != '\0'; at = shown(0)) {
            for (; *at != '\0'; at++) {
                size_t used = strlen(held);
                held[used] = *at;
                held[used + 1] = '\0';
                if (*at == '\n') {
                    assert_true(strspn(held, "a") == used || strspn(held, "b") == used);
                    seen[held[0] == 'a' ? 0 : 1]++;
                    held[0] = '\0';
                }
            }
            turn();
        }
    }
    assert_true(seen[0] > 150);
    assert_true(seen[1] > 150);
    finish(2);
}

/* ${time} as others count days, around the ends of months. */
static void times(void **state)
{
    (void)state;
    static const struct {
        int64_t day; /* since 1970 */
        const char *text;
    } cases[] = {
        {0, "1970-01-01T00:00:01.000002Z"},     {58, "1970-02-28T00:00:01.000002Z"},
        {59, "1970-03-01T00:00:01.000002Z"},    {364, "1970-12-31T00:00:01.000002Z"},
        {11016, "2000-02-29T00:00:01.000002Z"}, {11017, "2000-03-01T00:00:01.000002Z"},
        {20484, "2026-01-31T00:00:01.000002Z"}, {20485, "2026-02-01T00:00:01.000002Z"},
    };
    const struct mst__line_source source = {.role = "", .hostname = ""};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__buf text;
        mst__buf_init(&text, 100);
        assert_int_equal(
            mst__line_prefix("${time}", &source, (cases[i].day * 86400 + 1) * 1000000 + 2, &text),
            0);
        assert_bytes_str(mst__buf_bytes(&text), cases[i].text);
        mst__buf_close(&text);
    }
}

/* A prefix that grows beyond its limit is cut off, whatever makes it long. */
static void long_prefix(void **state)
{
    (void)state;
    char role[200];
    char template_text[MST_OUTPUT_PREFIX_SIZE_MAX] = "";
    memset(role, 'r', sizeof role - 1);
    role[sizeof role - 1] = '\0';
    const struct mst__line_source source = {.role = role, .hostname = ""};
    for (size_t i = 0; i < 20; i++) {
        size_t used = strlen(template_text);
        (void)snprintf(template_text + used, sizeof template_text - used, "${role_name}x");
    }
    struct mst__buf text;
    mst__buf_init(&text, 2 * sizeof template_text);
    assert_int_equal(mst__line_prefix(template_text, &source, 0, &text), 0);
    assert_int_equal(mst__buf_size(&text), MST_OUTPUT_PREFIX_SIZE_MAX);
    mst__buf_close(&text);
}

static void json_lines(void **state)
{
    (void)state;
    struct mst__output_options options = options_for(1);
    options.is_json = true;
    open_with(options);
    begin(1, 2, 0, 5);
    write_to(fds[0][1], "a \"b\"\n");
    const char *text = shown(1);
    assert_non_null(strstr(text, "\"rank\":5,\"local_rank\":0,\"generation\":2,\"stream\":"
                                 "\"stderr\",\"msg\":\"a \\\"b\\\"\"}\n"));
    finish(1);
}

/* Some hundred thousand lines of 8 workers: each is whole and in order. */
static void many_lines(void **state)
{
    (void)state;
    enum { LINES = 20000 };
    teed = (struct mst__rank_streams){.everywhere = 1};
    struct mst__output_options options = options_for(WORKERS_MAX);
    options.log_dir = "";
    open_with(options);
    begin(WORKERS_MAX, 1, 0, 0);
    int sent[WORKERS_MAX] = {0};
    int seen[WORKERS_MAX] = {0};
    char held[300] = "";
    for (int done = 0; done < WORKERS_MAX * LINES;) {
        for (int i = 0; i < WORKERS_MAX; i++) {
            char chunk[4096];
            int used = 0;
            for (int j = 0; j < 40 && sent[i] < LINES; j++) {
                used += snprintf(chunk + used, sizeof chunk - (size_t)used, "w%d n%d of many\n", i,
                                 sent[i]++);
            }
            assert_int_equal(write(fds[i][0], chunk, (size_t)used), used);
        }
        turn();
        const char *at = shown(0);
        for (const char *end = strchr(at, '\n'); end != NULL; end = strchr(at, '\n')) {
            size_t used = strlen(held);
            (void)snprintf(held + used, sizeof held - used, "%.*s", (int)(end - at), at);
            char wanted[100];
            int rank = held[8] - '0';
            assert_in_range(rank, 0, WORKERS_MAX - 1);
            (void)snprintf(wanted, sizeof wanted, "[default%d]:w%d n%d of many", rank, rank,
                           seen[rank]++);
            assert_string_equal(held, wanted);
            held[0] = '\0';
            at = end + 1;
            done++;
        }
        size_t used = strlen(held);
        (void)snprintf(held + used, sizeof held - used, "%s", at);
    }
    finish(WORKERS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whole_lines, start, stop),
        cmocka_unit_test_setup_teardown(single_worker, start, stop),
        cmocka_unit_test_setup_teardown(tee_and_redirect, start, stop),
        cmocka_unit_test_setup_teardown(descriptors, start, stop),
        cmocka_unit_test_setup_teardown(console_filter, start, stop),
        cmocka_unit_test_setup_teardown(tails, start, stop),
        cmocka_unit_test_setup_teardown(tail_of_a_long_line, start, stop),
        cmocka_unit_test_setup_teardown(generations, start, stop),
        cmocka_unit_test_setup_teardown(generations_apart, start, stop),
        cmocka_unit_test_setup_teardown(empty_generations, start, stop),
        cmocka_unit_test_setup_teardown(temporary_tree, start, stop),
        cmocka_unit_test_setup_teardown(no_place_for_files, start, stop),
        cmocka_unit_test_setup_teardown(pipe_held_open, start, stop),
        cmocka_unit_test_setup_teardown(many_last_words, start, stop),
        cmocka_unit_test_setup_teardown(endless_writer, start, stop),
        cmocka_unit_test_setup_teardown(slow_console, start, stop),
        cmocka_unit_test_setup_teardown(slow_console_of_others, start, stop),
        cmocka_unit_test_setup_teardown(console_without_reader, start, stop),
        cmocka_unit_test_setup_teardown(one_pipe, start, stop),
        cmocka_unit_test(times),
        cmocka_unit_test(long_prefix),
        cmocka_unit_test_setup_teardown(json_lines, start, stop),
        cmocka_unit_test_setup_teardown(many_lines, start, stop),
    };
    return MST_RUN_TESTS(tests);
}
