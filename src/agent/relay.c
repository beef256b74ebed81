/* agent/relay.c - one relay of the tree, on one loop. */
#include "agent/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/output.h"
#include "agent/spawn.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"

#define SSH_WORDS_MAX 64
#define LINE_SIZE_MAX 64
#define COMMAND_SIZE (2 * PATH_MAX)

struct relay;

/* The agent on this host, or a relay on another. */
struct child {
    struct relay *relay;
    size_t index;
    const char *name; /* name of the host */
    bool is_running;
    pid_t agent_pid; /* 0 = a relay */
    uv_process_t process;
    uv_pipe_t input;
    bool has_input;
};

struct relay {
    const struct mst__relay_job *job;
    uv_loop_t loop;
    struct mst__output *output;
    struct child *children;
    size_t count, running_count;
    struct mst__relay_result result;
    bool is_stopping;
    bool is_short; /* a needed host is missing: statuses of the others follow from that */
    uv_signal_t signals[2 * MST_SIGNALS_MAX + 1]; /* the last is SIGCHLD */
    size_t signals_count;
    uv_pipe_t control;
    bool has_control;
    struct mst__buf lines; /* unparsed input from @control */
    uint8_t input[4096];
};

/* A message on its way to a child. */
struct sending {
    uv_write_t request;
    struct mst__buf text;
};

static void say(struct relay *relay, const char *format, ...) MST_PRINTF(2, 3);
static void say(struct relay *relay, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(text, sizeof text - 1, format, args);
    va_end(args);
    size = size < 0 ? 0 : size > (int)sizeof text - 2 ? (int)sizeof text - 2 : size;
    text[size] = '\n';
    mst__output_say(relay->output, mst_bytes_of(text, (size_t)size + 1));
}

/* --- sending --- */

static void on_sent(uv_write_t *request, int status)
{
    (void)status; /* a child that does not read has ended; its exit is handled */
    struct sending *sending = request->data;
    mst__buf_close(&sending->text);
    mst__free(sending);
}

/* Send @sending, which is taken. */
static void send_to(struct child *child, struct sending *sending)
{
    struct mst_bytes bytes = mst__buf_bytes(&sending->text);
    uv_buf_t buf = uv_buf_init((char *)bytes.data, (unsigned)bytes.size);
    sending->request.data = sending;
    if (!child->has_input ||
        uv_write(&sending->request, (uv_stream_t *)&child->input, &buf, 1, on_sent) != 0) {
        on_sent(&sending->request, UV_ECANCELED);
    }
}

static struct sending *sending_new(void)
{
    struct sending *sending = mst__calloc(1, sizeof *sending);
    if (sending != NULL) {
        mst__buf_init(&sending->text, MST_RELAY_JOB_SIZE_MAX);
    }
    return sending;
}

static void signal_child(struct child *child, const char *word, int number)
{
    char line[LINE_SIZE_MAX];
    if (!child->is_running) {
        return;
    }
    if (child->agent_pid != 0) {
        (void)kill(child->agent_pid, number); /* the pid is valid until waitpid */
        return;
    }
    struct sending *sending = sending_new();
    (void)snprintf(line, sizeof line, "%s %d\n", word, number);
    if (sending == NULL || mst__buf_append(&sending->text, mst_bytes_str(line)) != 0) {
        mst__free(sending);
        return; /* no memory: the user can send the signal again */
    }
    send_to(child, sending);
}

static void signal_all(struct relay *relay, const char *word, int number)
{
    for (size_t i = 0; i < relay->count; i++) {
        signal_child(&relay->children[i], word, number);
    }
}

/* Everything below is told to stop: from now on, ends are no losses. */
static void stop_all(struct relay *relay, int number)
{
    relay->is_stopping = true;
    signal_all(relay, "signal", number);
}

/* Nothing stops because of this signal. */
static void forward_all(struct relay *relay, int number)
{
    signal_all(relay, "forward", number);
}

/* --- ends --- */

static void finish_loop(void *arg)
{
    struct relay *relay = arg;
    uv_stop(&relay->loop);
}

static void close_input(struct child *child)
{
    if (child->has_input) {
        child->has_input = false;
        uv_close((uv_handle_t *)&child->input, NULL);
    }
}

static void child_ended(struct child *child, int status, int number)
{
    struct relay *relay = child->relay;
    bool is_lost = number != 0 || status == MST_RELAY_LOST;
    child->is_running = false;
    relay->running_count--;
    mst__output_finish_worker(relay->output, child->index);
    close_input(child);
    if (is_lost && !relay->is_stopping) {
        say(relay, "muster: host %s is lost: %s %d", child->name,
            number != 0 ? "ended by signal" : "status", number != 0 ? number : status);
    }
    mst__relay_result_add(&relay->result, is_lost || relay->is_short ? MST_RELAY_LOST : status,
                          relay->job->preempt_status);
    if (is_lost && relay->job->needs_all && !relay->is_stopping) {
        relay->is_short = true;
        stop_all(relay, SIGTERM);
    }
    if (relay->running_count == 0 && mst__output_flushed(relay->output, finish_loop, relay)) {
        uv_stop(&relay->loop);
    }
}

static void on_relay_exit(uv_process_t *process, int64_t status, int number)
{
    struct child *child = process->data;
    uv_close((uv_handle_t *)process, NULL);
    child_ended(child, (int)status, number);
}

/* --- signals and control --- */

static void on_signal(uv_signal_t *handle, int number)
{
    struct relay *relay = handle->data;
    if (number != SIGCHLD) {
        stop_all(relay, number);
        return;
    }
    for (size_t i = 0; i < relay->count; i++) {
        struct child *child = &relay->children[i];
        int status = 0;
        if (child->is_running && child->agent_pid != 0 &&
            waitpid(child->agent_pid, &status, WNOHANG) == child->agent_pid) {
            child_ended(child, WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                        WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        }
    }
}

static void on_forward(uv_signal_t *handle, int number)
{
    forward_all(handle->data, number);
}

/* If the line @text is @word and the number of a signal, returns that, else 0. */
static int signal_in(struct mst_bytes text, const char *word)
{
    size_t size = strlen(word);
    int64_t number = 0;
    bool is_it = text.size > size + 1 && memcmp(text.data, word, size) == 0 &&
                 text.data[size] == ' ' &&
                 mst__number_parse(mst_bytes_of(text.data + size + 1, text.size - size - 1), 1,
                                   NSIG - 1, &number);
    return is_it ? (int)number : 0;
}

/* Execute whole lines: `signal N`, `forward N`. Other lines come from a later version and are
 * skipped. */
static void take_lines(struct relay *relay)
{
    for (;;) {
        struct mst_bytes text = mst__buf_bytes(&relay->lines);
        const uint8_t *end = memchr(text.data, '\n', text.size);
        if (end == NULL) {
            return;
        }
        size_t size = (size_t)(end - text.data);
        struct mst_bytes line = mst_bytes_of(text.data, size);
        int stops = signal_in(line, "signal");
        int forwards = signal_in(line, "forward");
        if (stops != 0) {
            stop_all(relay, stops);
        } else if (forwards != 0) {
            forward_all(relay, forwards);
        }
        mst__buf_consume(&relay->lines, size + 1);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf)
{
    (void)suggested;
    struct relay *relay = handle->data;
    *ret_buf = uv_buf_init((char *)relay->input, sizeof relay->input);
}

static void on_control(uv_stream_t *stream, ssize_t size, const uv_buf_t *buf)
{
    struct relay *relay = stream->data;
    if (size > 0) {
        if (mst__buf_append(&relay->lines, mst_bytes_of(buf->base, (size_t)size)) != 0) {
            mst__buf_clear(&relay->lines); /* no line is that long */
        }
        take_lines(relay);
    } else if (size < 0) {
        (void)uv_read_stop(stream); /* cannot fail */
        stop_all(relay, SIGTERM);   /* the relay above is gone */
    }
}

/* --- starting --- */

static int make_output(struct relay *relay, struct mst_err *reterr)
{
    static const struct mst__rank_streams no_files;
    static const struct mst__rank_set all;
    const struct mst__output_options options = {
        .workers_count = relay->count,
        .log_dir = "",
        .run_id = "",
        .role = "",
        .hostname = "",
        .redirects = &no_files,
        .tee = &no_files,
        .console_ranks = &all,
        .prefix_template = "",
        .stdout_fd = STDOUT_FILENO,
        .stderr_fd = STDERR_FILENO,
    };
    return mst__output_new(&relay->loop, &options, &relay->output, reterr);
}

static int start_agent(struct child *child, const int fds[2], struct mst_err *reterr)
{
    const struct mst__relay_job *job = child->relay->job;
    const struct mst__host *self = &job->self;
    char rank[40];
    char slots[60];
    char **argv = mst__calloc(job->arguments_count + 6, sizeof *argv);
    if (argv == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "agent");
    }
    size_t at = 0;
    (void)snprintf(rank, sizeof rank, "--node-rank=%" PRId64, self->index);
    (void)snprintf(slots, sizeof slots, "--nproc-per-node=%" PRId64, self->slots);
    argv[at++] = (char *)job->muster;
    argv[at++] = (char *)"run";
    argv[at++] = rank;
    bool has_slots = self->slots == 0;
    for (size_t i = 0; i < job->arguments_count; i++) {
        if (!has_slots && strcmp(job->arguments[i], "--") == 0) {
            argv[at++] = slots; /* the last --nproc-per-node counts */
            has_slots = true;
        }
        argv[at++] = job->arguments[i];
    }
    const struct mst__spawn_worker spawn = {.argv = argv,
                                            .environment = environ,
                                            .input_fd = -1,
                                            .output_fd = fds[0],
                                            .error_fd = fds[1]};
    int rv = mst__spawn_worker(&spawn, &child->agent_pid, reterr);
    mst__free(argv);
    return rv;
}

/* Start a relay: the words of the ssh command, the host, and one text for the shell there. */
static int start_relay(struct child *child,
                       const struct mst__host *host,
                       const int fds[2],
                       struct mst_err *reterr)
{
    struct relay *relay = child->relay;
    char words[1024];
    char command[COMMAND_SIZE];
    char *argv[SSH_WORDS_MAX + 3];
    size_t count = 0;
    (void)snprintf(words, sizeof words, "%s", relay->job->ssh);
    for (char *at = words + strspn(words, " "); *at != '\0' && count < SSH_WORDS_MAX;) {
        argv[count++] = at;
        at += strcspn(at, " ");
        while (*at == ' ') {
            *at++ = '\0';
        }
    }
    (void)snprintf(command, sizeof command, "exec '%s' run --relay", relay->job->muster);
    argv[count++] = (char *)host->name;
    argv[count++] = command;
    argv[count] = NULL;
    int rv = uv_pipe_init(&relay->loop, &child->input, 0);
    MST_ASSERT(rv == 0);
    child->has_input = true;
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&child->input},
        {.flags = UV_INHERIT_FD, .data.fd = fds[0]},
        {.flags = UV_INHERIT_FD, .data.fd = fds[1]},
    };
    const uv_process_options_t options = {
        .exit_cb = on_relay_exit,
        .file = argv[0],
        .args = argv,
        .flags = UV_PROCESS_DETACHED, /* a session: this process passes on the terminal's signals */
        .stdio_count = 3,
        .stdio = stdio,
    };
    child->process.data = child;
    rv = uv_spawn(&relay->loop, &child->process, &options);
    if (rv != 0) {
        uv_close((uv_handle_t *)&child->process, NULL);
        return mst__fail(reterr, MST_ESYS, -rv, "start '%.100s' for host %.60s", argv[0],
                         host->name);
    }
    return 0;
}

static int send_job(struct child *child, size_t position, struct mst_err *reterr)
{
    struct sending *sending = sending_new();
    int rv = sending == NULL ? MST_ENOMEM
                             : mst__relay_job_write(child->relay->job, position, &sending->text);
    if (rv != 0) {
        if (sending != NULL) {
            mst__buf_close(&sending->text);
        }
        mst__free(sending);
        return mst__fail(reterr, rv, 0, "job of host %.60s", child->name);
    }
    send_to(child, sending);
    return 0;
}

/* Start a child. The first is the agent, if this host has one. */
static int start_child(struct relay *relay, size_t index, struct mst_err *reterr)
{
    const struct mst__relay_job *job = relay->job;
    struct child *child = &relay->children[index];
    bool is_agent = job->has_self && index == 0;
    size_t position = index - (job->has_self ? 1 : 0);
    size_t first = 0;
    size_t below = 0;
    int fds[2];
    const struct mst__host *host = &job->self;
    if (!is_agent) {
        bool is_there = mst__hosts_child(job->below.count, position, &first, &below);
        MST_ASSERT(is_there);
        host = &job->below.hosts[first];
    }
    *child = (struct child){.relay = relay, .index = index, .name = host->name};
    child->input.data = child;
    int rv = mst__output_open_worker(relay->output, index, fds, reterr);
    rv = rv != 0    ? rv
         : is_agent ? start_agent(child, fds, reterr)
                    : start_relay(child, host, fds, reterr);
    for (size_t i = 0; i < 2; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]); /* the child has copies */
        }
    }
    child->is_running = rv == 0;
    relay->running_count += rv == 0 ? 1 : 0;
    return rv != 0 || is_agent ? rv : send_job(child, position, reterr);
}

static void catch_signal(struct relay *relay, uv_signal_cb callback, int number)
{
    uv_signal_t *handle = &relay->signals[relay->signals_count++];
    int rv = uv_signal_init(&relay->loop, handle);
    MST_ASSERT(rv == 0);
    handle->data = relay;
    (void)uv_signal_start(handle, callback, number); /* on failure it has its usual effect */
}

static void catch_signals(struct relay *relay, const struct mst__relay_signals *signals)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL); /* cannot fail */
    for (size_t i = 0; i < signals->stop.count; i++) {
        catch_signal(relay, on_signal, signals->stop.numbers[i]);
    }
    for (size_t i = 0; i < signals->forward.count; i++) {
        catch_signal(relay, on_forward, signals->forward.numbers[i]);
    }
    catch_signal(relay, on_signal, SIGCHLD);
}

static void listen_above(struct relay *relay, int control_fd, struct mst_bytes pending)
{
    int rv = uv_pipe_init(&relay->loop, &relay->control, 0);
    MST_ASSERT(rv == 0);
    relay->has_control = true;
    relay->control.data = relay;
    if (uv_pipe_open(&relay->control, control_fd) != 0 ||
        uv_read_start((uv_stream_t *)&relay->control, on_alloc, on_control) != 0) {
        on_control((uv_stream_t *)&relay->control, UV_EOF, NULL);
    }
    if (mst__buf_append(&relay->lines, pending) == 0) {
        take_lines(relay);
    }
}

static void close_all(struct relay *relay)
{
    for (size_t i = 0; i < relay->signals_count; i++) {
        uv_close((uv_handle_t *)&relay->signals[i], NULL);
    }
    for (size_t i = 0; i < relay->count; i++) {
        close_input(&relay->children[i]);
    }
    if (relay->has_control) {
        uv_close((uv_handle_t *)&relay->control, NULL);
    }
    mst__output_free(relay->output, true);
    (void)uv_run(&relay->loop, UV_RUN_DEFAULT);
    int rv = uv_loop_close(&relay->loop);
    MST_ASSERT(rv == 0);
    mst__buf_close(&relay->lines);
    mst__free(relay->children);
}

int mst__relay_run(const struct mst__relay_job *job,
                   const struct mst__relay_signals *signals,
                   int control_fd,
                   struct mst_bytes pending,
                   struct mst_err *reterr)
{
    size_t below =
        job->below.count < MST_HOSTS_CHILDREN_MAX ? job->below.count : MST_HOSTS_CHILDREN_MAX;
    struct relay relay = {.job = job, .count = below + (job->has_self ? 1 : 0)};
    mst__buf_init(&relay.lines, MST_KIB(64));
    relay.children = mst__calloc(relay.count, sizeof *relay.children);
    int rv = uv_loop_init(&relay.loop);
    MST_ASSERT(rv == 0);
    rv = relay.children == NULL ? mst__fail(reterr, MST_ENOMEM, 0, "%zu hosts", relay.count)
                                : make_output(&relay, reterr);
    if (rv != 0) {
        (void)uv_loop_close(&relay.loop); /* the loop has no handles */
        mst__free(relay.children);
        return MST_RELAY_LOST;
    }
    catch_signals(&relay, signals);
    for (size_t i = 0; i < relay.count; i++) {
        struct mst_err err;
        if (start_child(&relay, i, &err) != 0) {
            say(&relay, "muster: %s", err.msg);
            mst__relay_result_add(&relay.result, MST_RELAY_LOST, job->preempt_status);
            mst__output_finish_worker(relay.output, i);
            relay.is_stopping = relay.is_short = relay.is_short || job->needs_all;
        }
    }
    if (relay.is_stopping) {
        stop_all(&relay, SIGTERM);
    }
    if (control_fd >= 0) {
        listen_above(&relay, control_fd, pending);
    }
    if (relay.running_count > 0) {
        (void)uv_run(&relay.loop, UV_RUN_DEFAULT);
    }
    int status = mst__relay_result_status(&relay.result);
    mst__output_drain(relay.output, MST_LOG_FLUSH_MAX_MS);
    close_all(&relay);
    return status;
}

/* Whether the last @size bytes complete what looks like the end of a job. */
static bool has_end(struct mst_bytes input, size_t size)
{
    static const char end[] = "\ngo 0\n\n";
    size_t looked = size + sizeof end;
    looked = looked < input.size ? looked : input.size;
    return memmem(input.data + input.size - looked, looked, end, sizeof end - 1) != NULL;
}

int mst__relay_receive(int fd,
                       struct mst__arena *arena,
                       struct mst__buf *input,
                       struct mst__relay_job *ret_job,
                       size_t *ret_size,
                       struct mst_err *reterr)
{
    *ret_size = 0;
    for (;;) {
        int rv = 0;
        uint8_t *room = mst__buf_reserve(input, MST_KIB(64), &rv);
        ssize_t size = room == NULL ? 0 : read(fd, room, MST_KIB(64));
        if (room == NULL) {
            return mst__fail(reterr, rv, 0, "job of a relay");
        }
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size <= 0) {
            return size == 0 ? mst__fail(reterr, MST_ECONN, 0, "incomplete job for a relay")
                             : mst__fail(reterr, MST_ESYS, errno, "read the job of a relay");
        }
        mst__buf_commit(input, (size_t)size);
        if (!has_end(mst__buf_bytes(input), (size_t)size)) {
            continue; /* parsing from the start each time would take quadratic time */
        }
        rv = mst__relay_job_read(mst__buf_bytes(input), arena, ret_job, ret_size, reterr);
        if (rv != 0 || *ret_size > 0) {
            return rv;
        }
    }
}
