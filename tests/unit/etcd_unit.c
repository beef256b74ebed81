/* unit/etcd_unit.c - real etcds for the unit tests. */
#include "unit/etcd_unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "unit/unit.h"

/* Long enough for a busy machine; only a failure waits that long. */
#define READY_MS 30000

/* Another program may take a free port before etcd has it. */
#define ATTEMPTS 5

#define ARGUMENTS_MAX 64

/* Running servers, for the end of the program: a failed test does not clean up. */
#define LEFT_MAX 64
static struct {
    pid_t pid;
    char dir[64];
} left[LEFT_MAX];

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

bool etcd_unit_is_there(void)
{
    const char *path = getenv("PATH");
    char *copy = strdup(path == NULL ? "/usr/bin" : path);
    assert_non_null(copy);
    bool is_there = false;
    char *rest = copy;
    for (char *dir = strsep(&rest, ":"); dir != NULL && !is_there; dir = strsep(&rest, ":")) {
        char file[512];
        (void)snprintf(file, sizeof file, "%s/etcd", dir);
        is_there = access(file, X_OK) == 0;
    }
    free(copy);
    return is_there;
}

/* Ports that are free now, and all different: the sockets are closed only when all are open. */
static void choose_ports(struct etcd_unit *members, size_t count)
{
    int fds[3 * ETCD_UNIT_MEMBERS_MAX];
    for (size_t i = 0; i < 3 * count; i++) {
        struct sockaddr_in address = loopback(0);
        socklen_t size = sizeof address;
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fds[i] >= 0);
        assert_int_equal(bind(fds[i], (struct sockaddr *)&address, size), 0);
        assert_int_equal(getsockname(fds[i], (struct sockaddr *)&address, &size), 0);
        uint16_t port = ntohs(address.sin_port);
        struct etcd_unit *etcd = &members[i / 3];
        *(i % 3 == 0 ? &etcd->port : i % 3 == 1 ? &etcd->peer_port : &etcd->health_port) = port;
    }
    for (size_t i = 0; i < 3 * count; i++) {
        (void)close(fds[i]); /* nothing was sent on it */
    }
    char cluster[sizeof members->cluster] = "";
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(members[i].name, sizeof members[i].name, "m%u", (unsigned)i);
        size_t used = strlen(cluster);
        (void)snprintf(cluster + used, sizeof cluster - used, "%s%s=http://127.0.0.1:%u",
                       i == 0 ? "" : ",", members[i].name, members[i].peer_port);
    }
    for (size_t i = 0; i < count; i++) {
        memcpy(members[i].cluster, cluster, sizeof cluster);
    }
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static void remove_all(const char *dir)
{
    (void)nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS); /* a leftover does no harm */
}

static void clean_up(void)
{
    for (size_t i = 0; i < LEFT_MAX; i++) {
        if (left[i].pid > 0) {
            (void)kill(left[i].pid, SIGKILL); /* a child that was not waited for is always there */
            (void)waitpid(left[i].pid, NULL, 0);
        }
        if (left[i].dir[0] != '\0') {
            remove_all(left[i].dir);
        }
    }
}

/* Record the remains of @etcd, found by its directory. */
static void note(const struct etcd_unit *etcd, bool is_gone)
{
    static bool is_set_up;
    if (!is_set_up) {
        is_set_up = true;
        assert_int_equal(atexit(clean_up), 0);
    }
    size_t at = 0;
    while (at < LEFT_MAX && strcmp(left[at].dir, etcd->dir) != 0) {
        at++;
    }
    for (size_t i = 0; at == LEFT_MAX && i < LEFT_MAX; i++) {
        at = left[i].dir[0] == '\0' ? i : at;
    }
    assert_true(at < LEFT_MAX);
    left[at].pid = etcd->pid;
    (void)snprintf(left[at].dir, sizeof left[at].dir, "%s", is_gone ? "" : etcd->dir);
}

/* In the child: nothing but calls that are allowed after a fork in a process with threads. */
static _Noreturn void launch_child(int log_fd, pid_t parent, char **argv)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* the check below decides */
    if (getppid() == parent && dup2(log_fd, 1) == 1 && dup2(log_fd, 2) == 2) {
        (void)execvp(argv[0], argv);
    }
    _exit(127);
}

static void launch(struct etcd_unit *etcd)
{
    char data[80];
    char log[80];
    char client[48];
    char peer[48];
    char health[48];
    (void)snprintf(data, sizeof data, "%s/data", etcd->dir);
    (void)snprintf(log, sizeof log, "%s/log", etcd->dir);
    (void)snprintf(client, sizeof client, "http%s://127.0.0.1:%u", etcd->is_tls ? "s" : "",
                   etcd->port);
    (void)snprintf(peer, sizeof peer, "http://127.0.0.1:%u", etcd->peer_port);
    (void)snprintf(health, sizeof health, "http://127.0.0.1:%u", etcd->health_port);
    /* execvp takes them as they are and changes none. */
    const char *argv[ARGUMENTS_MAX] = {"etcd",        "--name",
                                       etcd->name,    "--data-dir",
                                       data,          "--listen-client-urls",
                                       client,        "--advertise-client-urls",
                                       client,        "--listen-peer-urls",
                                       peer,          "--initial-advertise-peer-urls",
                                       peer,          "--initial-cluster",
                                       etcd->cluster, "--listen-metrics-urls",
                                       health,        "--log-level",
                                       "warn",        "--logger",
                                       "zap"};
    size_t count = 0;
    while (argv[count] != NULL) {
        count++;
    }
    for (size_t i = 0; etcd->arguments != NULL && etcd->arguments[i] != NULL; i++) {
        assert_true(count < ARGUMENTS_MAX - 1);
        argv[count++] = etcd->arguments[i];
    }
    int log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(log_fd >= 0);
    pid_t parent = getpid();
    etcd->pid = fork();
    assert_true(etcd->pid >= 0);
    if (etcd->pid == 0) {
        launch_child(log_fd, parent, (char **)(uintptr_t)argv);
    }
    (void)close(log_fd); /* the child writes to it */
    note(etcd, false);
}

/* Ask for /health once. */
static bool is_healthy(const struct etcd_unit *etcd)
{
    static const char request[] = "GET /health HTTP/1.0\r\n\r\n";
    char answer[1024];
    size_t size = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    struct timeval patience = {.tv_sec = 2};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    struct sockaddr_in address = loopback(etcd->health_port);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(fd, request, sizeof request - 1, MSG_NOSIGNAL) == (ssize_t)sizeof request - 1) {
        ssize_t got;
        while (size < sizeof answer - 1 &&
               (got = recv(fd, answer + size, sizeof answer - 1 - size, 0)) > 0) {
            size += (size_t)got;
        }
    }
    (void)close(fd); /* the answer is there, or it is not */
    answer[size] = '\0';
    return strstr(answer, "\"health\":\"true\"") != NULL;
}

static void print_log(const struct etcd_unit *etcd)
{
    char log[80];
    (void)snprintf(log, sizeof log, "%s/log", etcd->dir);
    FILE *file = fopen(log, "re");
    char line[400];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        print_error("etcd: %s", line);
    }
    if (file != NULL) {
        (void)fclose(file); /* it was only read */
    }
}

/* Wait until it is healthy; false when it ended instead. */
static bool wait_ready(struct etcd_unit *etcd)
{
    int64_t deadline_ms = mst__clock_deadline_ms(READY_MS);
    while (!is_healthy(etcd)) {
        if (waitpid(etcd->pid, NULL, WNOHANG) == etcd->pid) {
            etcd->pid = 0;
            note(etcd, false);
            return false;
        }
        if (mst__clock_ms() > deadline_ms) {
            print_log(etcd);
            fail_msg("etcd '%s' is not healthy after %d ms", etcd->name, READY_MS);
        }
        (void)poll(NULL, 0, 20); /* between two looks at it */
    }
    return true;
}

void etcd_unit_start_cluster(struct etcd_unit *ret_members,
                             size_t count,
                             bool is_tls,
                             const char *const *arguments)
{
    assert_true(count >= 1 && count <= ETCD_UNIT_MEMBERS_MAX);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        memset(ret_members, 0, count * sizeof *ret_members);
        choose_ports(ret_members, count);
        const char *tmp = getenv("TMPDIR");
        for (size_t i = 0; i < count; i++) {
            struct etcd_unit *etcd = &ret_members[i];
            etcd->is_tls = is_tls;
            etcd->arguments = arguments;
            int size = snprintf(etcd->dir, sizeof etcd->dir, "%s/muster-unit-etcd-XXXXXX",
                                tmp == NULL ? "/tmp" : tmp);
            assert_true(size < (int)sizeof etcd->dir);
            assert_non_null(mkdtemp(etcd->dir));
            launch(etcd);
        }
        bool is_ready = true;
        for (size_t i = 0; i < count && is_ready; i++) {
            is_ready = wait_ready(&ret_members[i]);
            if (!is_ready && attempt == ATTEMPTS - 1) {
                print_log(&ret_members[i]);
            }
        }
        if (is_ready) {
            return;
        }
        for (size_t i = 0; i < count; i++) {
            etcd_unit_stop(&ret_members[i]);
        }
    }
    fail_msg("etcd did not start, %d times", ATTEMPTS);
}

void etcd_unit_start(struct etcd_unit *ret_etcd, bool is_tls, const char *const *arguments)
{
    etcd_unit_start_cluster(ret_etcd, 1, is_tls, arguments);
}

void etcd_unit_end(struct etcd_unit *etcd, int signal)
{
    assert_true(etcd->pid > 0);
    assert_int_equal(kill(etcd->pid, signal), 0);
    int64_t deadline_ms = mst__clock_deadline_ms(READY_MS);
    while (waitpid(etcd->pid, NULL, WNOHANG) == 0) {
        if (mst__clock_ms() > deadline_ms) {
            (void)kill(etcd->pid, SIGKILL); /* it is ours and there */
            fail_msg("etcd '%s' did not end by signal %d", etcd->name, signal);
        }
        (void)poll(NULL, 0, 5); /* between two looks at it */
    }
    etcd->pid = 0;
    note(etcd, false);
}

void etcd_unit_pause(struct etcd_unit *etcd)
{
    int status = 0;
    assert_int_equal(kill(etcd->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(etcd->pid, &status, WUNTRACED), etcd->pid);
    assert_true(WIFSTOPPED(status));
}

void etcd_unit_again(struct etcd_unit *etcd, bool is_waiting)
{
    assert_int_equal(etcd->pid, 0);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        launch(etcd);
        if (!is_waiting || wait_ready(etcd)) {
            return;
        }
        (void)poll(NULL, 0, 200); /* its port may be taken for a moment */
    }
    print_log(etcd);
    fail_msg("etcd '%s' did not start again", etcd->name);
}

void etcd_unit_stop(struct etcd_unit *etcd)
{
    if (etcd->pid > 0) {
        (void)kill(etcd->pid, SIGKILL); /* a child that was not waited for is always there */
        (void)waitpid(etcd->pid, NULL, 0);
        etcd->pid = 0;
    }
    if (etcd->dir[0] != '\0') {
        remove_all(etcd->dir);
        note(etcd, true);
        etcd->dir[0] = '\0';
    }
}
