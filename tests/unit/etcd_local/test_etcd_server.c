/* unit/etcd_local/test_etcd_server.c - the local etcd: real ones, and programs that pretend to be
 * one. After each test no child and no directory is left. */
#include "unit/store_unit.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <muster/etcd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/until.h"
#include "etcd/http.h"
#include "etcd_local/process.h"

#define START_MS 60000

/* --- fixture: a directory that is $TMPDIR, and our own for files --- */

struct fixture {
    char tmp[64];   /* $TMPDIR: empty after each test */
    char files[64]; /* what a test makes */
    struct mst_etcd_options options;
    char script[128];
};

static struct fixture fixture;

static bool is_etcd_there(void)
{
    return system("command -v etcd >/dev/null 2>&1") == 0;
}

#define NEED_ETCD()                                \
    do {                                           \
        if (!is_etcd_there()) {                    \
            MST_SKIP("there is no etcd in $PATH"); \
        }                                          \
    } while (0)

static int fixture_open(void **state)
{
    fixture =
        (struct fixture){.tmp = "/tmp/muster-unit-XXXXXX", .files = "/tmp/muster-unit-XXXXXX"};
    assert_non_null(mkdtemp(fixture.tmp));
    assert_non_null(mkdtemp(fixture.files));
    assert_int_equal(setenv("TMPDIR", fixture.tmp, 1), 0);
    (void)unsetenv("TORCHELASTIC_ETCD_BINARY_PATH");
    mst_etcd_options_init(&fixture.options, sizeof fixture.options);
    *state = &fixture;
    return 0;
}

static size_t count_entries(const char *path)
{
    DIR *dir = opendir(path);
    assert_non_null(dir);
    size_t count = 0;
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        count += entry->d_name[0] == '.' ? 0 : 1;
    }
    (void)closedir(dir);
    return count;
}

static int fixture_close(void **state)
{
    (void)state;
    assert_int_equal(count_entries(fixture.tmp), 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(rmdir(fixture.tmp), 0);
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf %s", fixture.files);
    assert_int_equal(system(command), 0);
    return 0;
}

/* A path in the test's directory; good for fifteen more calls. */
static const char *path_of(const char *name)
{
    static char paths[16][128];
    static unsigned turn;
    char *path = paths[turn++ % 16];
    (void)snprintf(path, sizeof paths[0], "%s/%s", fixture.files, name);
    return path;
}

/* A program for options.binary_path: @body as a shell script that runs in the test's directory. */
static const char *script(const char *body)
{
    (void)snprintf(fixture.script, sizeof fixture.script, "%s/script", fixture.files);
    FILE *file = fopen(fixture.script, "we");
    assert_non_null(file);
    (void)fprintf(file, "#!/bin/sh\ncd %s\n%s\n", fixture.files, body);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(fixture.script, 0700), 0);
    return fixture.script;
}

/* The first lines of a script that make it an etcd. */
#define SAYS_VERSION(version) \
    "if [ \"$1\" = --version ]; then echo 'etcd Version: " version "'; exit 0; fi\n"

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static struct mst_etcd_server *start(void)
{
    struct mst_etcd_server *server = NULL;
    assert_ok(mst_etcd_server_start(&fixture.options, START_MS, &server, &err));
    return server;
}

/* Ask @server by HTTP; the status, and the beginning of the body in @ret_body. */
static int ask_method(const struct mst_etcd_server *server,
                      enum mst__http_method method,
                      const char *path,
                      const char *body,
                      char ret_body[256])
{
    struct mst__endpoint endpoint;
    assert_ok(mst__endpoint_parse(STR(mst_etcd_server_endpoint(server)), &endpoint, &err));
    const struct mst__http_options options = {.endpoints = &endpoint, .endpoint_count = 1};
    struct mst__http *http = NULL;
    assert_ok(mst__http_new(&options, &http, &err));
    const struct mst__http_request request = {
        .method = method,
        .path = path,
        .body = STR(body),
        .content_type = *body == '\0' ? NULL : "application/x-www-form-urlencoded",
        .is_repeatable = true,
    };
    struct mst__http_response response;
    mst__http_response_init(&response);
    assert_ok(mst__http_call(http, &request, mst__until_in(PLENTY_MS), &response, &err));
    struct mst_bytes answer = mst__buf_bytes(&response.body);
    (void)snprintf(ret_body, 256, "%.*s", (int)answer.size, (const char *)answer.data);
    int status = response.status;
    mst__http_response_close(&response);
    mst__http_free(http);
    return status;
}

static int ask(const struct mst_etcd_server *server, const char *path, char ret_body[256])
{
    return ask_method(server, MST_HTTP_GET, path, "", ret_body);
}

static void assert_healthy(const struct mst_etcd_server *server)
{
    char body[256];
    assert_int_equal(ask(server, "/health", body), 200);
    assert_non_null(strstr(body, "true"));
}

/* --- it runs --- */

static void test_default(void **state)
{
    (void)state;
    NEED_ETCD();
    struct mst_etcd_server *server = NULL;
    assert_ok(mst_etcd_server_start(NULL, START_MS, &server, &err));
    char wanted[32];
    (void)snprintf(wanted, sizeof wanted, "localhost:%u", (unsigned)mst_etcd_server_port(server));
    assert_string_equal(mst_etcd_server_endpoint(server), wanted);
    assert_true(mst_etcd_server_port(server) > 0);
    assert_true(mst_etcd_server_version(server)[0] >= '2');
    int pid = mst_etcd_server_pid(server);
    assert_int_equal(kill(pid, 0), 0);
    assert_true(mst_etcd_server_is_running(server, &err));
    assert_healthy(server);
    char body[256];
    assert_int_equal(ask(server, "/version", body), 200);
    assert_non_null(strstr(body, mst_etcd_server_version(server)));
    assert_int_equal(count_entries(fixture.tmp), 1);
    mst_etcd_server_stop(server);
    assert_int_equal(kill(pid, 0), -1);
    mst_etcd_server_stop(NULL);
}

static void test_two_at_once(void **state)
{
    (void)state;
    NEED_ETCD();
    size_t open_count = count_entries("/proc/self/fd");
    struct mst_etcd_server *one = start();
    struct mst_etcd_server *two = start();
    assert_int_not_equal(mst_etcd_server_port(one), mst_etcd_server_port(two));
    assert_healthy(one);
    assert_healthy(two);
    assert_int_equal(count_entries(fixture.tmp), 2);
    mst_etcd_server_stop(one);
    assert_true(mst_etcd_server_is_running(two, &err));
    assert_int_equal(count_entries(fixture.tmp), 1);
    assert_healthy(two);
    mst_etcd_server_stop(two);
    assert_int_equal(count_entries("/proc/self/fd"), open_count); /* ports that were held, too */
}

static void test_v2(void **state)
{
    (void)state;
    NEED_ETCD();
    char body[256];
    for (int is_on = 0; is_on <= 1; is_on++) {
        fixture.options.enable_v2 = is_on != 0;
        struct mst_etcd_server *server = start();
        if (strncmp(mst_etcd_server_version(server), "3.4.", 4) == 0) {
            assert_int_equal(ask(server, "/v2/keys", body), is_on != 0 ? 200 : 404);
        }
        mst_etcd_server_stop(server);
    }
}

static void *start_in_thread(void *arg)
{
    struct mst_err thread_err;
    int rv = mst_etcd_server_start(&fixture.options, START_MS, arg, &thread_err);
    return rv == 0 ? arg : NULL;
}

/* The kernel kills a child when the thread that made it ends; that thread is ours. */
static void test_outlives_its_thread(void **state)
{
    (void)state;
    NEED_ETCD();
    struct mst_etcd_server *server = NULL;
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, start_in_thread, &server), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
    assert_healthy(server);
    assert_true(mst_etcd_server_is_running(server, &err));
    mst_etcd_server_stop(server);
}

static void test_more_arguments(void **state)
{
    (void)state;
    NEED_ETCD();
    static const char *const arguments[] = {"--name=somebody", NULL};
    fixture.options.arguments = arguments;
    fixture.options.enable_v2 = true;
    struct mst_etcd_server *server = start();
    char body[256];
    assert_int_equal(ask(server, "/v2/stats/self", body), 200);
    assert_non_null(strstr(body, "somebody"));
    mst_etcd_server_stop(server);
}

static void test_host(void **state)
{
    (void)state;
    NEED_ETCD();
    fixture.options.host = "127.0.0.2";
    struct mst_etcd_server *server = start();
    assert_memory_equal(mst_etcd_server_endpoint(server), "127.0.0.2:", 10);
    assert_healthy(server);
    mst_etcd_server_stop(server);

    struct mst_etcd_server *none = NULL;
    fixture.options.host = "0.0.0.0";
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &none, &err), MST_EINVAL,
                 "every address");
    fixture.options.host = "192.0.2.1";
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &none, &err), MST_EINVAL,
                 "not an address of this machine");
    fixture.options.host = "";
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &none, &err), MST_EINVAL,
                 "not a host");
}

static void test_ipv6(void **state)
{
    (void)state;
    NEED_ETCD();
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has_ipv6 = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (!has_ipv6) {
        MST_SKIP("this machine has no IPv6");
    }
    fixture.options.host = "::1";
    struct mst_etcd_server *server = start();
    assert_memory_equal(mst_etcd_server_endpoint(server), "[::1]:", 6);
    assert_healthy(server);
    mst_etcd_server_stop(server);
}

static void test_given_port(void **state)
{
    (void)state;
    NEED_ETCD();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    fixture.options.host = "127.0.0.1";
    fixture.options.client_port = ntohs(address.sin_port);
    /* Bound without listening: that is how we hold a port ourselves. */
    struct mst_etcd_server *server = start();
    assert_int_equal(mst_etcd_server_port(server), ntohs(address.sin_port));
    assert_healthy(server);
    mst_etcd_server_stop(server);

    assert_int_equal(listen(fd, 1), 0);
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &server, &err), MST_ESYS,
                 "already in use");
    (void)close(fd);
}

/* --- it ends --- */

static void test_dies(void **state)
{
    (void)state;
    NEED_ETCD();
    struct mst_etcd_server *server = start();
    assert_int_equal(kill(mst_etcd_server_pid(server), SIGKILL), 0);
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (mst_etcd_server_is_running(server, &err)) {
        assert_true(mst__clock_ms() < deadline_ms);
        (void)poll(NULL, 0, 1);
    }
    assert_int_equal(err.code, MST_ECONN);
    assert_non_null(strstr(err.msg, "killed by signal 9"));
    assert_int_equal(err.domain, MST_DOMAIN_SIGNAL);
    assert_int_equal(err.sys, SIGKILL);
    assert_non_null(strstr(err.msg, "it printed: "));
    assert_null(strstr(err.msg, "at its start"));
    mst_etcd_server_stop(server);
}

/* What it has started ends with it. We inherit the orphan, so that we see its end for certain. */
static void test_leaves_nothing_running(void **state)
{
    (void)state;
    fixture.options.binary_path = script(SAYS_VERSION("3.4.23") "sleep 1000 >/dev/null 2>&1 &\n"
                                                                "echo $! >child\n"
                                                                "exit 3");
    fixture.options.attempts = 1;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    struct mst_etcd_server *server = NULL;
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &server, &err), MST_ECONN,
                 "exit status 3");
    int child = 0;
    FILE *file = fopen(path_of("child"), "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%d", &child), 1);
    (void)fclose(file);
    int status = 0;
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (waitpid(child, &status, WNOHANG) == 0 && mst__clock_ms() < deadline_ms) {
        (void)poll(NULL, 0, 1);
    }
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

/* A stopped process does not hear SIGTERM. */
static void test_stopped_by_force(void **state)
{
    (void)state;
    NEED_ETCD();
    struct mst_etcd_server *server = start();
    assert_int_equal(kill(mst_etcd_server_pid(server), SIGSTOP), 0);
    int64_t before_ms = mst__clock_ms();
    mst_etcd_server_stop(server);
    int64_t took_ms = mst__clock_ms() - before_ms;
    assert_in_range((uint64_t)took_ms, 4900, 5000 + PLENTY_MS);
}

/* Another part of the program may wait for any child, or ignore them all. */
static void test_collected_by_others(void **state)
{
    (void)state;
    NEED_ETCD();
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before;
    assert_int_equal(sigaction(SIGCHLD, &ignore, &before), 0);
    struct mst_etcd_server *server = start();
    assert_true(mst_etcd_server_is_running(server, &err));
    assert_int_equal(kill(mst_etcd_server_pid(server), SIGKILL), 0);
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (mst_etcd_server_is_running(server, &err)) {
        assert_true(mst__clock_ms() < deadline_ms);
        (void)poll(NULL, 0, 1);
    }
    assert_non_null(strstr(err.msg, "collected"));
    mst_etcd_server_stop(server);
    assert_int_equal(sigaction(SIGCHLD, &before, NULL), 0);
}

/* Start one, tell its pid, and wait to be killed. */
static _Noreturn void be_killed(int fd)
{
    struct mst_etcd_server *server = NULL;
    struct mst_err child_err = {0};
    int pid = 0;
    if (mst_etcd_server_start(&fixture.options, START_MS, &server, &child_err) == 0) {
        pid = mst_etcd_server_pid(server);
    } else {
        (void)fprintf(stderr, "%s\n", child_err.msg);
    }
    if (write(fd, &pid, sizeof pid) == sizeof pid) {
        (void)pause();
    }
    _exit(1);
}

static void wait_for_empty(const char *path)
{
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (count_entries(path) > 0) {
        assert_true(mst__clock_ms() < deadline_ms);
        (void)poll(NULL, 0, 10);
    }
}

/* Its etcd dies at once, and the directory is removed, too. We inherit the orphans, so that we
 * see their end for certain. */
static void test_parent_killed(void **state)
{
    (void)state;
    NEED_ETCD();
    int fds[2];
    int etcd = 0;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t parent = fork();
    assert_true(parent >= 0);
    if (parent == 0) {
        be_killed(fds[1]);
    }
    assert_int_equal(read(fds[0], &etcd, sizeof etcd), sizeof etcd);
    assert_true(etcd > 0);
    assert_int_equal(kill(etcd, 0), 0);
    assert_int_equal(count_entries(fixture.tmp), 1);
    assert_int_equal(kill(parent, SIGKILL), 0);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    int status = 0;
    assert_int_equal(waitpid(etcd, &status, 0), etcd); /* the test's own time limit is the bound */
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    wait_for_empty(fixture.tmp);
    assert_true(waitpid(-1, NULL, 0) > 0); /* the sweeper */
    (void)close(fds[0]);
    (void)close(fds[1]);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

/* --- what it gets of us --- */

static void read_proc(int pid, const char *name, char *ret_text, size_t size)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t got = fread(ret_text, 1, size - 1, file);
    ret_text[got] = '\0';
    for (size_t i = 0; i < got; i++) {
        ret_text[i] = ret_text[i] == '\0' ? '\n' : ret_text[i]; /* environ */
    }
    (void)fclose(file);
}

/* A line of the status that the script below has saved: the Go runtime changes its own. */
static uint64_t signal_set(const char *name)
{
    char text[8192];
    FILE *file = fopen(path_of("status"), "re");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    const char *at = strstr(text, name);
    assert_non_null(at);
    return strtoull(at + strlen(name), NULL, 16);
}

static bool has_open(int pid, const char *path)
{
    char name[64];
    char target[256];
    for (int fd = 0; fd < 1024; fd++) {
        (void)snprintf(name, sizeof name, "/proc/%d/fd/%d", pid, fd);
        ssize_t size = readlink(name, target, sizeof target - 1);
        if (size > 0) {
            target[size] = '\0';
            if (strcmp(target, path) == 0) {
                return true;
            }
        }
    }
    return false;
}

static void test_inherits_nothing(void **state)
{
    (void)state;
    NEED_ETCD();
    char path[128];
    (void)snprintf(path, sizeof path, "%s", path_of("open"));
    int fd = open(path, O_RDWR | O_CREAT, 0600); /* survives an exec */
    assert_true(fd > 2);
    assert_true(has_open((int)getpid(), path));
    sigset_t set;
    sigset_t before;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGUSR2);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, &before), 0);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction usual = {.sa_handler = SIG_DFL};
    assert_int_equal(sigaction(SIGUSR1, &ignore, NULL), 0);
    assert_int_equal(setenv("ETCD_NAME", "stranger", 1), 0);

    fixture.options.binary_path = script("cat /proc/self/status >status; exec etcd \"$@\"");
    struct mst_etcd_server *server = start();
    int pid = mst_etcd_server_pid(server);
    char text[65536];
    assert_false(has_open(pid, path));
    assert_int_equal(signal_set("SigBlk:"), 0);
    assert_int_equal(signal_set("SigIgn:"), 0);
    read_proc(pid, "environ", text, sizeof text);
    assert_null(strstr(text, "ETCD_NAME"));
    assert_non_null(strstr(text, "TMPDIR="));
    assert_int_equal(getpgid(pid), pid); /* Ctrl-C is not for it */
    mst_etcd_server_stop(server);

    assert_int_equal(unsetenv("ETCD_NAME"), 0);
    assert_int_equal(sigaction(SIGUSR1, &usual, NULL), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    (void)close(fd);
}

static void test_output_file(void **state)
{
    (void)state;
    NEED_ETCD();
    const char *path = path_of("log");
    fixture.options.output = MST_ETCD_OUTPUT_FILE;
    fixture.options.output_path = path;
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    (void)fprintf(file, "before\n");
    assert_int_equal(fclose(file), 0);
    struct mst_etcd_server *server = start();
    mst_etcd_server_stop(server);
    char text[65536];
    file = fopen(path, "re");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    assert_memory_equal(text, "before\n", 7);
    assert_non_null(strstr(text, "etcd"));

    /* The end of its output, and not earlier output, is in the error. */
    fixture.options.binary_path = script(SAYS_VERSION("3.4.0") "echo whimper >&2; exit 3");
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &server, &err), MST_ECONN,
                 "exit status 3 at its start; it printed: whimper");
    fixture.options.binary_path = script(SAYS_VERSION("3.4.0") "exit 4");
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &server, &err), MST_ECONN,
                 "exit status 4 at its start");
    assert_null(strstr(err.msg, "it printed"));
    fixture.options.output_path = "/nonexistent/log";
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &server, &err), MST_ESYS,
                 "/nonexistent/log");
}

/* --- the data directory --- */

static void test_data_dir(void **state)
{
    (void)state;
    NEED_ETCD();
    char body[256];
    const char *dir = path_of("data");
    fixture.options.data_dir = dir;
    fixture.options.enable_v2 = true;
    struct mst_etcd_server *server = start();
    assert_int_equal(ask_method(server, MST_HTTP_PUT, "/v2/keys/kept", "value=yes", body), 201);
    mst_etcd_server_stop(server);
    assert_true(exists(path_of("data/member")));

    server = start();
    assert_int_equal(ask(server, "/v2/keys/kept", body), 200);
    assert_non_null(strstr(body, "yes"));
    mst_etcd_server_stop(server);

    /* A failed start removes none of the existing files. */
    static const char *const nonsense[] = {"--no-such-option", NULL};
    fixture.options.arguments = nonsense;
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &server, &err), MST_ECONN,
                 "no-such-option");
    assert_true(exists(path_of("data/member")));
}

/* A failed start removes its own files. */
static void test_data_dir_of_failed_start(void **state)
{
    (void)state;
    struct mst_etcd_server *none = NULL;
    fixture.options.binary_path =
        script(SAYS_VERSION("3.4.0") "mkdir -p data/member/wal; echo x >data/member/wal/1; exit 1");
    fixture.options.data_dir = path_of("data");
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &none, &err), MST_ECONN, "1");
    assert_false(exists(path_of("data")));

    /* Foreign files stay, and so does the directory. */
    assert_int_equal(mkdir(path_of("data"), 0700), 0);
    assert_int_equal(mkdir(path_of("data/notes"), 0700), 0);
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &none, &err), MST_ECONN, "1");
    assert_false(exists(path_of("data/member")));
    assert_true(exists(path_of("data/notes")));

    fixture.options.data_dir = "/proc/version";
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &none, &err), MST_ESYS,
                 "/proc/version");
    fixture.options.data_dir = "/nonexistent/data";
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &none, &err), MST_ESYS,
                 "/nonexistent/data");
}

static void test_no_tmpdir(void **state)
{
    (void)state;
    NEED_ETCD();
    struct mst_etcd_server *none = NULL;
    assert_int_equal(setenv("TMPDIR", "/nonexistent", 1), 0);
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &none, &err), MST_ESYS,
                 "/nonexistent");
}

/* --- programs that fail --- */

static void assert_start_fails(const char *binary, int wanted_code, const char *part)
{
    struct mst_etcd_server *none = NULL;
    fixture.options.binary_path = binary;
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &none, &err), wanted_code, part);
    assert_null(none);
}

static void test_no_program(void **state)
{
    (void)state;
    assert_start_fails("/nonexistent/etcd", MST_ENOTFOUND, "'/nonexistent/etcd'");
    assert_start_fails("no-such-etcd", MST_ENOTFOUND, "in $PATH");
    assert_start_fails("/tmp", MST_ENOTFOUND, "'/tmp'");
    assert_start_fails("/bin/false", MST_ECONN,
                       "not an etcd: with --version it ended with exit status 1");
    assert_start_fails(script("exit 1"), MST_ECONN, "exit status 1; it printed: nothing");
    assert_start_fails(script("echo something else"), MST_ECONN, "something else");
    assert_start_fails(script("kill -9 $$"), MST_ECONN, "signal 9");
    FILE *file = fopen(script(""), "we");
    assert_non_null(file);
    (void)fprintf(file, "\177ELF");
    assert_int_equal(fclose(file), 0);
    assert_start_fails(fixture.script, MST_ESYS, "Exec format error");
}

/* The variable has the peers' meaning; if it names no program, that is no error. */
static void test_search(void **state)
{
    (void)state;
    const char *path = script("echo from the variable");
    assert_int_equal(setenv("TORCHELASTIC_ETCD_BINARY_PATH", path, 1), 0);
    assert_start_fails(NULL, MST_ECONN, "from the variable");
    assert_start_fails("/bin/false", MST_ECONN, "/bin/false");

    char old_path[4096];
    (void)snprintf(old_path, sizeof old_path, "%s", getenv("PATH"));
    assert_int_equal(rename(path, path_of("etcd")), 0);
    assert_int_equal(setenv("PATH", fixture.files, 1), 0);
    assert_start_fails(NULL, MST_ECONN, "from the variable"); /* by PATH now */
    assert_non_null(strstr(err.msg, "/etcd'"));
    assert_int_equal(setenv("PATH", "/nonexistent", 1), 0);
    assert_start_fails(NULL, MST_ENOTFOUND, "TORCHELASTIC_ETCD_BINARY_PATH");
    assert_int_equal(setenv("PATH", old_path, 1), 0);
}

static void test_v2_refused(void **state)
{
    (void)state;
    fixture.options.enable_v2 = true;
    assert_start_fails(script(SAYS_VERSION("3.6.1")), MST_ENOTSUP, "3.6 has removed");
    assert_start_fails(script(SAYS_VERSION("4.0.0-rc.1")), MST_ENOTSUP, "etcd 4.0.0-rc.1");
    /* Versions with the API: from 3.3 on it needs an option; before, it is always on. */
    assert_start_fails(script(SAYS_VERSION("3.5.9") "echo \"$@\"; exit 1"), MST_ECONN,
                       "--enable-v2=true");
    assert_start_fails(script(SAYS_VERSION("3.2.26") "echo \"$@\"; exit 1"), MST_ECONN, "http");
    assert_null(strstr(err.msg, "enable-v2"));
}

static void count_failures(void *arg, enum mst_log_level level, const char *line)
{
    unsigned *count = arg;
    *count += level == MST_LOG_WARN && strncmp(line, "ev=etcd.start_failed", 20) == 0 ? 1 : 0;
}

/* A directory per attempt, and the second one works. */
static void test_retries(void **state)
{
    (void)state;
    NEED_ETCD();
    unsigned failures = 0;
    fixture.options.log = (struct mst_log){.fn = count_failures, .arg = &failures};
    fixture.options.binary_path = script("if [ \"$1\" = --version ]; then exec etcd --version; fi\n"
                                         "echo \"$1\" >>starts\n"
                                         "if [ -e once ]; then exec etcd \"$@\"; fi\n"
                                         "touch once; echo not yet; exit 7");
    struct mst_etcd_server *server = start();
    assert_healthy(server);
    mst_etcd_server_stop(server);
    assert_int_equal(failures, 1);
    FILE *file = fopen(path_of("starts"), "re");
    assert_non_null(file);
    char one[256];
    char two[256];
    assert_non_null(fgets(one, sizeof one, file));
    assert_non_null(fgets(two, sizeof two, file));
    char three[256];
    assert_null(fgets(three, sizeof three, file));
    (void)fclose(file);
    assert_memory_equal(one, "--data-dir=", 11);
    assert_string_not_equal(one, two);

    assert_int_equal(unlink(path_of("once")), 0);
    fixture.options.attempts = 1;
    assert_start_fails(fixture.script, MST_ECONN, "status 7 at its start; it printed: not yet");
}

/* Wait until a script has written its process id to @name. */
static pid_t read_pid(const char *name)
{
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    for (;;) {
        char text[32] = "";
        FILE *file = fopen(path_of(name), "re");
        if (file != NULL) {
            text[fread(text, 1, sizeof text - 1, file)] = '\0';
            (void)fclose(file);
        }
        if (strchr(text, '\n') != NULL) {
            return (pid_t)strtol(text, NULL, 10);
        }
        assert_true(mst__clock_ms() < deadline_ms);
        (void)poll(NULL, 0, 5);
    }
}

/* The process that inherits orphans may take a while to collect them. */
static bool is_alive(pid_t pid)
{
    char text[512];
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    const char *behind = strrchr(text, ')');
    return behind != NULL && behind[2] != 'Z' && behind[2] != 'X';
}

#define HANGS SAYS_VERSION("3.4.0") "echo hello; sleep 1000 & echo $! >child; wait"

/* It is killed with the processes that it has started. */
static void test_never_healthy(void **state)
{
    (void)state;
    struct mst_etcd_server *none = NULL;
    fixture.options.binary_path = script(HANGS);
    int64_t before_ms = mst__clock_ms();
    assert_fails(mst_etcd_server_start(&fixture.options, 1500, &none, &err), MST_ETIMEOUT,
                 "not healthy in time");
    assert_non_null(strstr(err.msg, "it printed: hello"));
    assert_in_range((uint64_t)(mst__clock_ms() - before_ms), 1500, 1500 + PLENTY_MS);
    pid_t child = read_pid("child");
    int64_t deadline_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (is_alive(child)) {
        assert_true(mst__clock_ms() < deadline_ms);
        (void)poll(NULL, 0, 5);
    }
    fixture.options.binary_path = script("sleep 1000");
    assert_fails(mst_etcd_server_start(&fixture.options, 100, &none, &err), MST_ETIMEOUT,
                 "--version' does not end");
}

/* An etcd with data that was there before may be busy with them: it gets a signal, and time. */
static void test_data_is_put_away(void **state)
{
    (void)state;
    struct mst_etcd_server *none = NULL;
    assert_int_equal(mkdir(path_of("data"), 0700), 0);
    assert_int_equal(mkdir(path_of("data/member"), 0700), 0);
    fixture.options.data_dir = path_of("data");
    fixture.options.binary_path =
        script(SAYS_VERSION("3.4.0") "trap 'echo saved >saved; exit 0' TERM\n"
                                     "while :; do sleep 0.02; done");
    assert_fails(mst_etcd_server_start(&fixture.options, 300, &none, &err), MST_ETIMEOUT,
                 "not healthy in time");
    assert_true(exists(path_of("saved")));
}

static void *interrupt_later(void *arg)
{
    (void)read_pid("child"); /* it has begun */
    uint64_t one = 1;
    ssize_t written = write(*(int *)arg, &one, sizeof one);
    return written == sizeof one ? arg : NULL;
}

static void test_interrupted(void **state)
{
    (void)state;
    int fd = eventfd(0, EFD_CLOEXEC);
    assert_true(fd >= 0);
    fixture.options.cancel_fd = fd;
    pthread_t thread;
    void *result = NULL;
    script(HANGS);
    assert_int_equal(pthread_create(&thread, NULL, interrupt_later, &fd), 0);
    assert_start_fails(fixture.script, MST_ECANCELED, "etcd");
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
    (void)close(fd);
}

static void test_wrong_options(void **state)
{
    (void)state;
    struct mst_etcd_server *none = NULL;
    struct mst_etcd_options options = fixture.options;
    options.size = 7;
    assert_fails(mst_etcd_server_start(&options, START_MS, &none, &err), MST_EINVAL, "size");
    options = fixture.options;
    options.output = MST_ETCD_OUTPUT_FILE;
    assert_fails(mst_etcd_server_start(&options, START_MS, &none, &err), MST_EINVAL, "no path");
    options = fixture.options;
    options.host = NULL;
    assert_fails(mst_etcd_server_start(&options, START_MS, &none, &err), MST_EINVAL, "host");
    options = fixture.options;
    options.key_path = "/dev/null";
    assert_fails(mst_etcd_server_start(&options, START_MS, &none, &err), MST_EINVAL, "a key");
    options = fixture.options;
    options.cert_path = "/nonexistent/cert";
    assert_fails(mst_etcd_server_start(&options, START_MS, &none, &err), MST_EINVAL,
                 "/nonexistent/cert");
}

/* Fail each allocation in turn, until one start passes. */
static void test_no_memory(void **state)
{
    (void)state;
    NEED_ETCD();
    static const char *const arguments[] = {"--name=somebody", NULL};
    fixture.options.arguments = arguments;
    fixture.options.output = MST_ETCD_OUTPUT_FILE;
    fixture.options.output_path = "/dev/null";
    struct mst_etcd_server *server = NULL;
    unsigned long nth = 1;
    for (;; nth++) {
        err = (struct mst_err){0};
        mst__mem_fail_nth(nth);
        int rv = mst_etcd_server_start(&fixture.options, START_MS, &server, &err);
        bool has_failed = mst__mem_failed();
        mst__mem_fail_nth(0);
        if (rv == 0) {
            mst_etcd_server_stop(server);
            server = NULL;
        } else {
            assert_int_equal(rv, MST_ENOMEM);
            assert_true(has_failed);
        }
        assert_int_equal(count_entries(fixture.tmp), 0);
        if (!has_failed) {
            assert_int_equal(rv, 0);
            break;
        }
    }
    assert_true(nth > 10);
}

/* --- last words --- */

static void test_last_words(void **state)
{
    (void)state;
    static const struct {
        const char *tail;
        size_t size;
        const char *wanted;
    } cases[] = {
        {"", 10, ""},
        {"\n\n", 10, ""},
        {"one\n", 10, "one"},
        {"one\ntwo\n", 20, "one | two"},
        {"one\ntwo\n", 10, "one | two"},
        {"one\ntwo\n", 9, "two"},
        {"one\ntwo\n", 4, "two"},
        {"one\ntwo\n", 3, "wo"},
        {"one\ntwo\n", 1, ""},
        {"\n\none\n\ntwo\n", 20, "one |  | two"},
        {"first\ta\x80", 20, "first?a?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[32];
        assert_string_equal(mst__process_last_words(cases[i].tail, words, cases[i].size),
                            cases[i].wanted);
    }
}

/* Of a long output, the end. */
static void test_long_output(void **state)
{
    (void)state;
    fixture.options.binary_path = script(SAYS_VERSION("3.4.23") "i=0\n"
                                                                "while [ $i -lt 60 ]; do\n"
                                                                "    printf '%0100d\\n' $i\n"
                                                                "    i=$((i + 1))\n"
                                                                "done\n"
                                                                "echo so much for that\n"
                                                                "exit 3");
    fixture.options.attempts = 1;
    struct mst_etcd_server *server = NULL;
    assert_fails(mst_etcd_server_start(&fixture.options, START_MS, &server, &err), MST_ECONN,
                 "so much for that");
}

#define UNIT(test) cmocka_unit_test_setup_teardown(test, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT(test_default),
        UNIT(test_two_at_once),
        UNIT(test_v2),
        UNIT(test_outlives_its_thread),
        UNIT(test_more_arguments),
        UNIT(test_host),
        UNIT(test_ipv6),
        UNIT(test_given_port),
        UNIT(test_dies),
        UNIT(test_leaves_nothing_running),
        UNIT(test_stopped_by_force),
        UNIT(test_collected_by_others),
        UNIT(test_parent_killed),
        UNIT(test_inherits_nothing),
        UNIT(test_output_file),
        UNIT(test_data_dir),
        UNIT(test_data_dir_of_failed_start),
        UNIT(test_no_tmpdir),
        UNIT(test_no_program),
        UNIT(test_search),
        UNIT(test_v2_refused),
        UNIT(test_retries),
        UNIT(test_never_healthy),
        UNIT(test_data_is_put_away),
        UNIT(test_interrupted),
        UNIT(test_wrong_options),
        UNIT(test_no_memory),
        UNIT(test_last_words),
        UNIT(test_long_output),
    };
    return MST_RUN_TESTS(tests);
}
