/* agent/relay.c - one relay of the tree, on one loop.
 *
 * A relay below says the word of the job when it has its job, and again while it runs. One that is
 * silent for longer than --host-timeout is lost: its ssh is killed. Time is counted in ticks of a
 * timer, so that a launcher that was stopped (Ctrl-Z) does not take its own pause for theirs.
 *
 * Stopping has a limit, too: the grace of the workers and a little more, which grows with the tree
 * below, so that the lowest relay that can act does. When a relay dies, the keeper of its children
 * kills the agent and the ssh processes with all that these have started, and the relays below see
 * the end of their input. */
#include "agent/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/group.h"
#include "agent/output.h"
#include "agent/relay_input.h"
#include "agent/run.h"
#include "agent/terminal.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"

#define SSH_WORDS_MAX 64
#define LINE_SIZE_MAX 64
#define NUMBER_OPTION_SIZE 60
#define COMMAND_SIZE (2 * PATH_MAX)
/* Ticks in the time that a host may be silent; of those, between two words, until a silence is
 * worth a message, until the first message, and between two. */
#define TICKS 16
#define TICK_MS_MAX 1000
#define WORD_TICKS 4
#define QUIET_TICKS 8
#define FIRST_SAY_TICKS 5
#define SAY_TICKS 10

#define HASTEN "hasten"

struct relay;

/* The agent on this host, or a relay on another. */
struct child {
    struct relay *relay;
    size_t index;
    const char *name; /* name of the host */
    size_t below;     /* hosts that it starts */
    bool is_agent;
    bool is_running;
    bool has_answered;
    int64_t quiet_ms; /* since its start, or since its last output after it has answered */
    bool is_killed;
    int64_t killed_ms; /* since then */
    uv_pipe_t input;
    bool has_input;
};

struct relay {
    const struct mst__relay_job *job;
    uv_loop_t loop;
    struct mst__output *output;
    struct child *children;
    size_t count, running_count;
    struct mst__group group; /* the processes of the children */
    struct mst__arena arena; /* for their starts */
    struct mst__relay_result result;
    bool is_stopping;
    int64_t stopping_ms; /* since the beginning, or since it was hastened */
    int64_t stop_limit_ms;
    bool is_hastened;
    int stop_signal; /* the first that a person or the relay above has sent; 0 = none */
    bool kills_on_second;
    bool is_short; /* a needed host is missing: statuses of the others follow from that */
    uv_signal_t signals[2 * MST_SIGNALS_MAX];
    size_t signals_count;
    uv_pipe_t control;
    bool has_control;
    struct mst__buf lines;         /* unparsed input from @control */
    struct mst__relay_input input; /* of the launcher, for the first host */
    bool has_input;
    bool owes_taken; /* the first host has yet to say that a part was taken */
    uv_timer_t timer;
    int64_t tick_ms;
    uint64_t ticks;
    uint64_t waiting_ticks; /* that hosts were worth a message */
    uint8_t room[4096];     /* for what is read from @control */
};

/* A message on its way to a child. */
struct sending {
    uv_write_t request;
    struct relay *taker; /* that of a part of the input; NULL for others */
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

static struct sending *sending_new(void)
{
    struct sending *sending = mst__calloc(1, sizeof *sending);
    if (sending != NULL) {
        mst__buf_init(&sending->text, MST_RELAY_JOB_SIZE_MAX);
    }
    return sending;
}

static void sending_free(struct sending *sending)
{
    if (sending != NULL) {
        mst__buf_close(&sending->text);
        mst__free(sending);
    }
}

static void close_input(struct child *child)
{
    if (child->has_input) {
        child->has_input = false;
        uv_close((uv_handle_t *)&child->input, NULL);
    }
}

/* The agent has the part of the input: ask for the next one, when the console has room for that. */
static void say_taken(struct relay *relay)
{
    char line[MST_RELAY_WORD_SIZE + 2];
    relay->owes_taken = mst__output_is_full(relay->output);
    if (!relay->owes_taken) {
        (void)snprintf(line, sizeof line, "%s+\n", relay->job->word);
        mst__output_print(relay->output, mst_bytes_str(line));
    }
}

static void on_sent(uv_write_t *request, int status)
{
    struct sending *sending = request->data;
    if (status == 0 && sending->taker != NULL) {
        say_taken(sending->taker);
    } /* a child that does not read has ended; its exit is handled */
    sending_free(sending);
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

static void signal_child(struct child *child, const char *word, int number)
{
    char line[LINE_SIZE_MAX];
    if (!child->is_running) {
        return;
    }
    if (child->is_agent) {
        bool hastens = strcmp(word, HASTEN) == 0;
        mst__group_signal(&child->relay->group, (uint32_t)child->index,
                          hastens ? MST_HASTEN_SIGNAL : number);
        return;
    }
    struct sending *sending = sending_new();
    (void)snprintf(line, sizeof line, "%s %d\n", word, number);
    if (sending == NULL || mst__buf_append(&sending->text, mst_bytes_str(line)) != 0) {
        sending_free(sending);
        return; /* no memory: the host is given up in the end */
    }
    send_to(child, sending);
}

static void signal_all(struct relay *relay, const char *word, int number)
{
    for (size_t i = 0; i < relay->count; i++) {
        signal_child(&relay->children[i], word, number);
    }
}

/* A mst__relay_input_fn of the launcher. The first host is the first child's. */
static void send_input(void *arg, struct mst_bytes part)
{
    struct relay *relay = arg;
    struct sending *sending = sending_new();
    char line[LINE_SIZE_MAX];
    (void)snprintf(line, sizeof line, "input %zu\n", part.size);
    if (sending == NULL || mst__buf_append(&sending->text, mst_bytes_str(line)) != 0 ||
        mst__buf_append(&sending->text, part) != 0) {
        sending_free(sending); /* no memory: there is no more input */
    } else {
        send_to(&relay->children[0], sending);
    }
}

/* Pass a part of the input on to the agent. */
static void pass_input(struct relay *relay, struct mst_bytes part)
{
    struct child *agent = &relay->children[0];
    struct sending *sending = part.size == 0 ? NULL : sending_new();
    if (part.size == 0) {
        close_input(agent);
    } else if (sending != NULL && mst__buf_append(&sending->text, part) == 0) {
        sending->taker = relay;
        send_to(agent, sending);
    } else {
        sending_free(sending);
    }
}

/* --- ends --- */

static void finish_loop(void *arg)
{
    struct relay *relay = arg;
    uv_stop(&relay->loop);
}

/* Everything below is told to stop: from now on, ends are no losses. A repeated call changes
 * nothing, like a repeated signal. */
static void stop_all(struct relay *relay, int number)
{
    if (!relay->is_stopping) {
        relay->is_stopping = true;
        relay->stopping_ms = 0;
        signal_all(relay, "signal", number);
    }
}

/* Kill the agent, or ssh and what else leads to the host; the relay there sees the end of its input
 * and stops. */
static void kill_child(struct child *child)
{
    child->is_killed = true;
    mst__group_signal(&child->relay->group, (uint32_t)child->index, SIGKILL);
}

static void child_ended(struct child *child, int status, int number)
{
    struct relay *relay = child->relay;
    bool is_lost = number != 0 || status == MST_RELAY_LOST;
    child->is_running = false;
    relay->running_count--;
    mst__output_finish_worker(relay->output, child->index);
    close_input(child);
    if (is_lost && !relay->is_stopping && !child->is_killed) {
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

/* A mst__group_ended_fn. */
static void on_ended(void *arg, uint32_t index, int status, int number)
{
    struct relay *relay = arg;
    if (relay->children[index].is_running) { /* else it is not waited for any more */
        child_ended(&relay->children[index], status, number);
    }
}

/* --- time --- */

static bool is_quiet(const struct child *child)
{
    return !child->is_agent &&
           (!child->has_answered || child->quiet_ms >= QUIET_TICKS * child->relay->tick_ms);
}

/* A host that has never answered has no workers that need a grace. */
static int64_t stop_limit_ms(const struct child *child)
{
    bool has_workers = child->is_agent || child->has_answered;
    return has_workers ? child->relay->stop_limit_ms : MST_RELAY_END_MS;
}

/* End the agents' grace. Hosts that may not hear it are not waited for; after a third signal, no
 * host is. */
static void hasten_all(struct relay *relay, int number)
{
    bool is_third = relay->is_hastened;
    relay->is_stopping = relay->is_hastened = true;
    relay->stopping_ms = 0;
    relay->stop_limit_ms -= is_third ? 0 : relay->job->grace_ms;
    for (size_t i = 0; i < relay->count; i++) {
        struct child *child = &relay->children[i];
        if (child->is_running && (is_third || is_quiet(child))) {
            kill_child(child);
        } else {
            signal_child(child, HASTEN, number);
        }
    }
}

static void check_child(struct child *child)
{
    struct relay *relay = child->relay;
    char below[40] = "";
    if (child->below > 0) {
        (void)snprintf(below, sizeof below, " (and %zu below it)", child->below);
    }
    if (child->is_killed) {
        child->killed_ms += relay->tick_ms;
        if (child->killed_ms >= MST_RELAY_KILL_MS) {
            child_ended(child, MST_RELAY_LOST, 0);
        }
    } else if (relay->is_stopping && relay->stopping_ms >= stop_limit_ms(child)) {
        say(relay, "muster: host %s%s: not stopped in %" PRId64 " s, given up", child->name, below,
            relay->stopping_ms / 1000);
        kill_child(child);
    } else if (!child->is_agent && child->quiet_ms >= relay->job->host_ms) {
        say(relay, "muster: host %s%s is lost: %s for %g s (--host-timeout)", child->name, below,
            child->has_answered ? "silent" : "muster has not started there",
            (double)relay->job->host_ms / 1000);
        kill_child(child);
    }
}

/* Name the hosts that are waited for. */
static void say_waiting(struct relay *relay)
{
    struct mst__host_names names = {0};
    for (size_t i = 0; i < relay->count; i++) {
        const struct child *child = &relay->children[i];
        if (child->is_running && !child->is_agent && (relay->is_stopping || is_quiet(child))) {
            mst__host_names_add(&names, child->name);
        }
    }
    relay->waiting_ticks = names.count == 0 ? 0 : relay->waiting_ticks + 1;
    if (relay->waiting_ticks % SAY_TICKS == FIRST_SAY_TICKS) {
        const char *text = mst__host_names_end(&names);
        say(relay, "muster: waiting for %zu of %zu hosts to %s: %s", names.count,
            relay->count - (relay->job->has_self ? 1 : 0), relay->is_stopping ? "end" : "answer",
            text);
    }
}

/* Tell the relay above that this one is there. */
static void say_word(struct relay *relay)
{
    char line[MST_RELAY_WORD_SIZE + 1];
    if (relay->job->has_self && !mst__output_is_full(relay->output)) {
        (void)snprintf(line, sizeof line, "%s\n", relay->job->word);
        mst__output_print(relay->output, mst_bytes_str(line));
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct relay *relay = timer->data;
    bool reads = !mst__output_is_full(relay->output);
    relay->stopping_ms += relay->tick_ms;
    relay->ticks++;
    if (relay->ticks % WORD_TICKS == 0) {
        say_word(relay);
    }
    if (relay->owes_taken) {
        say_taken(relay);
    }
    if (relay->has_input) {
        mst__relay_input_look(&relay->input);
    }
    for (size_t i = 0; i < relay->count; i++) {
        struct child *child = &relay->children[i];
        if (child->is_running) {
            child->quiet_ms += reads ? relay->tick_ms : 0; /* else the silence is ours */
            check_child(child);
        }
    }
    say_waiting(relay);
}

/* Whether a host asks for more of the input. */
static bool is_taken(const struct relay *relay, struct mst_bytes line)
{
    size_t size = MST_RELAY_WORD_SIZE - 1;
    return line.size == size + 1 && memcmp(line.data, relay->job->word, size) == 0 &&
           line.data[size] == '+';
}

static bool is_word(const struct relay *relay, struct mst_bytes line)
{
    size_t size = MST_RELAY_WORD_SIZE - 1;
    return line.size >= size && memcmp(line.data + line.size - size, relay->job->word, size) == 0;
}

/* The option takes_line of the output. The word may follow the rest of a line that the host's shell
 * has printed. What a host prints before the word is not the job's output: it goes to stderr. */
static bool take_line(void *arg, size_t index, bool is_stderr, struct mst_bytes line)
{
    struct relay *relay = arg;
    struct child *child = &relay->children[index];
    if (child->has_answered) { /* what a host prints before is no sign of muster */
        child->quiet_ms = 0;
    }
    if (child->is_agent || is_stderr) {
        return false;
    }
    if (is_word(relay, line)) {
        size_t before = line.size - (MST_RELAY_WORD_SIZE - 1);
        if (relay->has_input && index == 0 && !child->has_answered) {
            mst__relay_input_want(&relay->input);
        }
        child->has_answered = true;
        child->quiet_ms = 0;
        if (before > 0) {
            say(relay, "%.*s", (int)before, (const char *)line.data);
        }
        return true;
    }
    if (relay->has_input && is_taken(relay, line)) {
        mst__relay_input_want(&relay->input);
        return true;
    }
    if (!child->has_answered) {
        say(relay, "%.*s", (int)line.size, (const char *)line.data);
        return true;
    }
    return false;
}

/* --- signals and control --- */

/* A stop signal. Schedulers repeat theirs, so only some of the later ones hasten. */
static void take_stop(struct relay *relay, int number, bool hastens)
{
    if (hastens && relay->stop_signal != 0) {
        hasten_all(relay, number);
        return;
    }
    relay->stop_signal = relay->stop_signal == 0 ? number : relay->stop_signal;
    stop_all(relay, number);
    if (relay->running_count == 0) {
        uv_stop(&relay->loop); /* only a console that accepts nothing was waited for */
    }
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct relay *relay = handle->data;
    take_stop(relay, number,
              relay->kills_on_second || (number == SIGINT && mst__terminal_is_ours()));
}

/* Nothing stops because of this signal. */
static void on_forward(uv_signal_t *handle, int number)
{
    signal_all(handle->data, "forward", number);
}

/* Whether the line @text is @word and a number from @min to @max. */
static bool number_in(struct mst_bytes text,
                      const char *word,
                      int64_t min,
                      int64_t max,
                      int64_t *ret_number)
{
    size_t size = strlen(word);
    return text.size > size + 1 && memcmp(text.data, word, size) == 0 && text.data[size] == ' ' &&
           mst__number_parse(mst_bytes_of(text.data + size + 1, text.size - size - 1), min, max,
                             ret_number);
}

/* Execute the line, if it is `signal N`, `hasten N` or `forward N`. Other lines come from a later
 * version and are skipped. */
static void take_signal(struct relay *relay, struct mst_bytes line)
{
    int64_t number = 0;
    if (number_in(line, "signal", 1, NSIG - 1, &number)) {
        take_stop(relay, (int)number, false);
    } else if (number_in(line, HASTEN, 1, NSIG - 1, &number)) {
        take_stop(relay, (int)number, true);
    } else if (number_in(line, "forward", 1, NSIG - 1, &number)) {
        signal_all(relay, "forward", (int)number);
    }
}

/* Execute whole lines, and pass on whole parts of the input. */
static void take_lines(struct relay *relay)
{
    for (;;) {
        struct mst_bytes text = mst__buf_bytes(&relay->lines);
        const uint8_t *end = memchr(text.data, '\n', text.size);
        if (end == NULL) {
            return;
        }
        struct mst_bytes line = mst_bytes_of(text.data, (size_t)(end - text.data));
        struct mst_bytes part = mst__bytes_skip(text, line.size + 1);
        int64_t size = 0;
        bool is_input = number_in(line, "input", 0, MST_RELAY_INPUT_MAX, &size);
        if (part.size < (size_t)size) {
            return;
        }
        part.size = (size_t)size;
        if (is_input) {
            pass_input(relay, part);
        } else {
            take_signal(relay, line);
        }
        mst__buf_consume(&relay->lines, line.size + 1 + part.size);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf)
{
    (void)suggested;
    struct relay *relay = handle->data;
    *ret_buf = uv_buf_init((char *)relay->room, sizeof relay->room);
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
        .takes_line = take_line,
        .takes_line_arg = relay,
    };
    return mst__output_new(&relay->loop, &options, &relay->output, reterr);
}

/* Make a pipe to the standard input of @child. @ret_fd becomes its descriptor 0. */
static int open_input(struct child *child, int *ret_fd, struct mst_err *reterr)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "pipe to host %.60s", child->name);
    }
    int rv = uv_pipe_init(&child->relay->loop, &child->input, 0);
    MST_ASSERT(rv == 0);
    child->has_input = true;
    rv = uv_pipe_open(&child->input, fds[1]);
    if (rv != 0) {
        (void)close(fds[0]);
        (void)close(fds[1]);
        return mst__fail(reterr, MST_ESYS, -rv, "pipe to host %.60s", child->name);
    }
    *ret_fd = fds[0];
    return 0;
}

static int plan_agent(struct child *child, struct mst__spawn_worker *spawn, struct mst_err *reterr)
{
    const struct mst__relay_job *job = child->relay->job;
    const struct mst__host *self = &job->self;
    struct mst__arena *arena = &child->relay->arena;
    char **argv = mst__arena_take(arena, (job->arguments_count + 5) * sizeof *argv);
    char *rank = mst__arena_take(arena, NUMBER_OPTION_SIZE);
    char *slots = mst__arena_take(arena, NUMBER_OPTION_SIZE);
    if (argv == NULL || rank == NULL || slots == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "agent");
    }
    size_t at = 0;
    (void)snprintf(rank, NUMBER_OPTION_SIZE, "--node-rank=%" PRId64, self->index);
    (void)snprintf(slots, NUMBER_OPTION_SIZE, "--nproc-per-node=%" PRId64, self->slots);
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
    spawn->argv = argv;
    return self->index == 0 ? open_input(child, &spawn->input_fd, reterr) : 0;
}

/* Whether @program is ssh itself, and not a script that has other options. */
static bool is_ssh(const char *program)
{
    const char *slash = strrchr(program, '/');
    return strcmp(slash == NULL ? program : slash + 1, "ssh") == 0;
}

/* The words of the ssh command, the host, and one text for the shell there. */
static int plan_relay(struct child *child, struct mst__spawn_worker *spawn, struct mst_err *reterr)
{
    const struct mst__relay_job *job = child->relay->job;
    struct mst__arena *arena = &child->relay->arena;
    char **argv = mst__arena_take(arena, (SSH_WORDS_MAX + 6) * sizeof *argv);
    char *words = mst__arena_text(arena, mst_bytes_str(job->ssh));
    char *command = mst__arena_take(arena, COMMAND_SIZE);
    if (argv == NULL || words == NULL || command == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "ssh for host %.60s", child->name);
    }
    size_t count = 0;
    for (char *at = words + strspn(words, " "); *at != '\0' && count < SSH_WORDS_MAX;) {
        argv[count++] = at;
        at += strcspn(at, " ");
        while (*at == ' ') {
            *at++ = '\0';
        }
    }
    if (count > 0 && is_ssh(argv[0])) {
        argv[count++] = (char *)"-oBatchMode=yes"; /* a question would have nobody to answer it */
        argv[count++] = (char *)"-oControlMaster=no"; /* no process that other ssh commands need */
    }
    (void)snprintf(command, COMMAND_SIZE, "exec '%s' run --relay", job->muster);
    argv[count++] = (char *)child->name;
    argv[count++] = command;
    spawn->argv = argv;
    return open_input(child, &spawn->input_fd, reterr);
}

/* The place of a child among those below this host. */
static size_t position_of(const struct relay *relay, size_t index)
{
    return index - (relay->job->has_self ? 1 : 0);
}

static int send_job(struct child *child, struct mst_err *reterr)
{
    const struct relay *relay = child->relay;
    struct sending *sending = sending_new();
    int rv = sending == NULL ? MST_ENOMEM
                             : mst__relay_job_write(relay->job, position_of(relay, child->index),
                                                    &sending->text);
    if (rv != 0) {
        sending_free(sending);
        return mst__fail(reterr, rv, 0, "job of host %.60s", child->name);
    }
    send_to(child, sending);
    return 0;
}

/* Prepare the start of a child. The first is the agent, if this host has one. The caller closes the
 * descriptors of @ret_spawn, also after an error. */
static int plan_child(struct relay *relay,
                      size_t index,
                      struct mst__spawn_worker *ret_spawn,
                      struct mst_err *reterr)
{
    const struct mst__relay_job *job = relay->job;
    struct child *child = &relay->children[index];
    bool is_agent = job->has_self && index == 0;
    size_t first = 0;
    size_t below = 0;
    int fds[2] = {-1, -1};
    const struct mst__host *host = &job->self;
    if (!is_agent) {
        bool is_there =
            mst__hosts_child(job->below.count, position_of(relay, index), &first, &below);
        MST_ASSERT(is_there);
        host = &job->below.hosts[first];
    }
    *child = (struct child){.relay = relay,
                            .index = index,
                            .name = host->name,
                            .below = is_agent ? 0 : below,
                            .is_agent = is_agent};
    child->input.data = child;
    int rv = mst__output_open_worker(relay->output, index, fds, reterr);
    *ret_spawn = (struct mst__spawn_worker){
        .environment = environ, .input_fd = -1, .output_fd = fds[0], .error_fd = fds[1]};
    return rv != 0    ? rv
           : is_agent ? plan_agent(child, ret_spawn, reterr)
                      : plan_relay(child, ret_spawn, reterr);
}

static void close_plan(const struct mst__spawn_worker *spawn)
{
    const int fds[] = {spawn->input_fd, spawn->output_fd, spawn->error_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]); /* the child has a copy */
        }
    }
}

/* The child was started. */
static void greet(struct child *child)
{
    struct mst_err err;
    child->is_running = true;
    child->relay->running_count++;
    if (!child->is_agent && send_job(child, &err) != 0) {
        say(child->relay, "muster: %s", err.msg);
        close_input(child); /* ends it */
    }
}

/* The child was not started, because @program or one before it could not be. */
static void miss(struct child *child, const char *program, int sys)
{
    struct relay *relay = child->relay;
    struct mst_err err;
    (void)mst__fail(&err, MST_ESYS, sys, "start '%.100s' for host %.60s", program, child->name);
    say(relay, "muster: %s", err.msg);
    close_input(child);
    mst__relay_result_add(&relay->result, MST_RELAY_LOST, relay->job->preempt_status);
    mst__output_finish_worker(relay->output, child->index);
    relay->is_short = relay->is_short || relay->job->needs_all;
}

/* Start all children. They have sessions of their own, because this process passes on the signals
 * of the terminal. */
static int start_all(struct relay *relay, struct mst_err *reterr)
{
    struct mst__spawn_worker *spawns =
        mst__arena_take(&relay->arena, relay->count * sizeof *spawns);
    struct mst_err err = {0};
    size_t planned = 0;
    uint32_t started = 0;
    int rv = spawns == NULL ? mst__fail(reterr, MST_ENOMEM, 0, "%zu hosts", relay->count) : 0;
    while (rv == 0 && planned < relay->count) {
        rv = plan_child(relay, planned, &spawns[planned], reterr);
        planned++;
    }
    if (rv == 0) {
        bool all = mst__group_start(&relay->group, spawns, &started, &err) == 0;
        started = all ? relay->group.count : started;
    }
    for (size_t i = 0; i < planned; i++) {
        close_plan(&spawns[i]);
    }
    for (size_t i = 0; rv == 0 && i < relay->count; i++) {
        if (i < started) {
            greet(&relay->children[i]);
        } else {
            miss(&relay->children[i], spawns[i].argv[0], err.sys);
        }
    }
    return rv;
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
}

static void start_timer(struct relay *relay)
{
    relay->tick_ms = relay->job->host_ms / TICKS;
    relay->tick_ms = relay->tick_ms < TICK_MS_MAX ? relay->tick_ms : TICK_MS_MAX;
    relay->stop_limit_ms =
        relay->job->grace_ms +
        MST_RELAY_END_MS * (2 + (int64_t)mst__hosts_levels(relay->job->below.count));
    relay->timer.data = relay;
    int rv = uv_timer_init(&relay->loop, &relay->timer);
    MST_ASSERT(rv == 0);
    rv = uv_timer_start(&relay->timer, on_tick, (uint64_t)relay->tick_ms, (uint64_t)relay->tick_ms);
    MST_ASSERT(rv == 0);
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
    if (relay->has_input) {
        mst__relay_input_close(&relay->input);
    }
    if (relay->has_control) {
        uv_close((uv_handle_t *)&relay->control, NULL);
    }
    uv_close((uv_handle_t *)&relay->timer, NULL);
    mst__group_stop(&relay->group);
    mst__output_free(relay->output, true);
    while (uv_run(&relay->loop, UV_RUN_DEFAULT) != 0) { /* again, if it was told to stop */
    }
    int rv = uv_loop_close(&relay->loop);
    MST_ASSERT(rv == 0);
    mst__group_close(&relay->group);
    mst__arena_close(&relay->arena);
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
    struct relay relay = {.job = job,
                          .count = below + (job->has_self ? 1 : 0),
                          .kills_on_second = signals->kills_on_second};
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
    start_timer(&relay);
    say_word(&relay);
    rv =
        mst__group_init(&relay.group, &relay.loop, (uint32_t)relay.count, on_ended, &relay, reterr);
    rv = rv == 0 ? start_all(&relay, reterr) : rv;
    if (rv == 0 && relay.is_short) {
        stop_all(&relay, SIGTERM);
    }
    if (control_fd >= 0) {
        listen_above(&relay, control_fd, pending);
    } else {
        mst__relay_input_open(&relay.input, &relay.loop, STDIN_FILENO, send_input, &relay);
        relay.has_input = true;
    }
    if (rv == 0 && relay.running_count > 0) {
        (void)uv_run(&relay.loop, UV_RUN_DEFAULT);
    }
    int status = rv != 0 ? MST_RELAY_LOST : mst__relay_result_status(&relay.result);
    if (status == MST_RELAY_LOST && relay.stop_signal != 0) {
        status = 128 + relay.stop_signal;
    }
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
                       int timeout_ms,
                       struct mst__arena *arena,
                       struct mst__buf *input,
                       struct mst__relay_job *ret_job,
                       size_t *ret_size,
                       struct mst_err *reterr)
{
    *ret_size = 0;
    for (;;) {
        int rv = 0;
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, timeout_ms) == 0) {
            return mst__fail(reterr, MST_ETIMEOUT, 0, "no job for a relay in %d s",
                             timeout_ms / 1000);
        }
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
