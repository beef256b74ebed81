/* cli/join.c - `muster join`: join a rendezvous from a shell.
 *
 * One thread waits for a signal, a change of the group, or the end of the command. A signal, and
 * the end of the hold, cancel the current call of the handler; then the node only leaves. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json_writer.h"
#include "base/limits.h"
#include "base/number.h"
#include "cli/child.h"
#include "cli/cli.h"
#include "cli/log.h"
#include "cli/rdzv.h"
#include "cli/waiting.h"
#include "handler/handler.h"
#include "handler/registry.h"

#define COMMAND "muster join"

/* How long a node that does not stay waits for the others to learn the outcome: it may serve the
 * store. */
#define PART_MS 3000

/* How often to check whether the store can still be reached. */
#define CHECK_MS 500

#define READ_MS_DEFAULT 60000 /* the default of the handlers */

static const char join_synopsis[] =
    "--rdzv-id ID --nnodes MIN:MAX [options]\n"
    "--rdzv-id ID --nnodes MIN:MAX --hold SECONDS [--rejoin] [options]\n"
    "--rdzv-id ID --nnodes MIN:MAX [--rejoin] [options] -- COMMAND [ARGUMENT...]";

static const char join_text[] =
    "Take part in a rendezvous: wait until its round is complete and print the outcome as one line "
    "of JSON. Then leave, or stay for some time, or run a command as a member of the group. "
    "Further "
    "lines tell what happens: nodes wait to be let in, participants are lost, the rendezvous is "
    "closed, this node is expelled. The first node on the machine that the endpoint names serves "
    "the others if none does yet.\n"
    "\n"
    "SIGTERM and SIGINT make it leave at once, so that the others need not wait for this node to "
    "expire. Exit status: that of the command, or 0 done, 2 wrong arguments, 4 timeout, 5 no "
    "connection, 8 closed, 9 closed while a spare, 10 no rendezvous record, 11 group changed "
    "without --rejoin, 12 expelled, 126 and 127 command not runnable or not there.";

/* Options and state. */
struct join {
    struct mst__rdzv rdzv;
    const char *nodes;
    const char *local_addr;
    const char *serve;       /* NULL = not given */
    const char *expect_text; /* NULL = not given */
    int64_t hold_ms;         /* -1 = not given, 0 = until a signal */
    int64_t stop_ms;         /* -1 = not given */
    bool rejoin;
    bool close;
    bool is_new;
    const char *events_path;
    const char *log_level;
    char **command; /* NULL = none */

    int events_fd;
    struct mst_params *params;
    struct mst_handler *handler;
    struct mst_expected *expected; /* NULL = not given */
    struct mst__waiting *waiting;
    struct mst__child child;
    struct mst__json_writer line;
    int64_t read_ms; /* time limit of a store call */
    int64_t lost_ms; /* since when the store is unreachable; 0 = it is reachable */
    bool was_member;
    atomic_bool serves;            /* the others need this process; set by any thread */
    bool is_command_bad;           /* it could not be started: join->err */
    bool is_untold;                /* the end of the command, to the others */
    struct mst_rendezvous outcome; /* of the last round */
    bool is_closed, is_expelled, is_cause_told;
    int64_t waiting_count;
    int64_t gone;           /* how many of its members are lost or have left */
    struct mst_err trouble; /* why the store is unreachable */
    struct mst_err err;
};

/* Why a membership is over. */
enum end {
    END_NOT,     /* it is not over */
    END_DONE,    /* the hold is over, a signal came, or there was no hold */
    END_COMMAND, /* the command has ended */
    END_CHANGED,
    END_EXPELLED,
    END_CLOSED,
    END_FAILED, /* join->err */
};

/* --- signals --- */

static struct mst_handler *volatile signalled_handler;
static volatile sig_atomic_t stop_signal;
static int wake_fd = -1; /* readable after any signal */

static void on_signal(int number)
{
    int saved_errno = errno;
    if (number != SIGCHLD) {
        stop_signal = number;
        mst_handler_cancel(signalled_handler);
    }
    uint64_t one = 1;
    ssize_t written = write(wake_fd, &one, sizeof one);
    (void)written; /* it fails only if the counter is full, and then it is readable */
    errno = saved_errno;
}

static void take_signals(void)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGALRM, SIGCHLD};
    mst__cli_catch_signals(numbers, sizeof numbers / sizeof numbers[0], on_signal);
}

static int catch_signals(struct join *join)
{
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0) {
        return mst__fail(&join->err, MST_ESYS, errno, "eventfd");
    }
    signalled_handler = join->handler;
    take_signals();
    return 0;
}

/* The hold begins with the first round. */
static void start_hold(const struct join *join)
{
    if (join->hold_ms <= 0) {
        return;
    }
    struct itimerval timer = {
        .it_value = {.tv_sec = join->hold_ms / 1000, .tv_usec = join->hold_ms % 1000 * 1000}};
    int rv = setitimer(ITIMER_REAL, &timer, NULL);
    MST_ASSERT(rv == 0);
}

/* --- lines --- */

static int tell_joined(struct join *join)
{
    const struct mst_rendezvous *outcome = &join->outcome;
    struct mst__json_writer *line = &join->line;
    mst__json_put_begin(line, NULL, '{');
    mst__json_put_text(line, "event", mst_bytes_str("joined"));
    mst__json_put_number(line, "round", outcome->round);
    mst__json_put_number(line, "rank", outcome->rank);
    mst__json_put_number(line, "world_size", outcome->world_size);
    mst__json_put_text(line, "master_addr", mst_bytes_str(outcome->master_addr));
    mst__json_put_number(line, "master_port", outcome->master_port);
    if (outcome->epoch != 0) {
        mst__json_put_number(line, "epoch", (int64_t)outcome->epoch);
    }
    mst__json_put_text(line, "node", mst_bytes_str(mst_handler_node(join->handler)));
    mst__json_put_end(line, '}');
    return mst__cli_json_print(line, &join->err);
}

static int tell(struct join *join, const char *event)
{
    mst__json_put_begin(&join->line, NULL, '{');
    mst__json_put_text(&join->line, "event", mst_bytes_str(event));
    mst__json_put_end(&join->line, '}');
    return mst__cli_json_print(&join->line, &join->err);
}

/* @name: the member of the line that describes the end, if known. */
static int tell_closed(struct join *join,
                       enum mst_outcome outcome,
                       const char *name,
                       const char *text)
{
    mst__json_put_begin(&join->line, NULL, '{');
    mst__json_put_text(&join->line, "event", mst_bytes_str("closed"));
    if (outcome == MST_OUTCOME_FINISHED || outcome == MST_OUTCOME_FAILED) {
        mst__json_put_text(&join->line, "outcome", mst_bytes_str(mst_status_outcome_name(outcome)));
    }
    if (*text != '\0') {
        mst__json_put_text(&join->line, name, mst_bytes_str(text));
    }
    mst__json_put_end(&join->line, '}');
    return mst__cli_json_print(&join->line, &join->err);
}

static int tell_round(struct join *join, const char *event, int64_t round)
{
    mst__json_put_begin(&join->line, NULL, '{');
    mst__json_put_text(&join->line, "event", mst_bytes_str(event));
    mst__json_put_number(&join->line, "round", round);
    mst__json_put_end(&join->line, '}');
    return mst__cli_json_print(&join->line, &join->err);
}

/* Print events of the handler. Being queued or a spare happens inside our own call of next, which
 * does not report it. */
static void on_event(void *arg, const struct mst_event *event)
{
    struct join *join = arg;
    if (join->events_fd >= 0) {
        mst_event_json(&join->events_fd, event);
    }
    bool is_host = strcmp(event->name, "host") == 0;
    if (is_host) {
        join->serves = true;
    }
    bool is_former = strcmp(event->name, "gave_way") == 0;
    if (is_former) {
        join->serves = false;
    }
    if (is_host || is_former || strcmp(event->name, "linger") == 0) {
        mst__cli_say("muster: %s", event->message);
    }
    if (strcmp(event->name, "queued") == 0 || strcmp(event->name, "spare") == 0) {
        (void)tell_round(join, event->name, event->round); /* the next line fails as well */
    }
}

/* The store is unreachable, with the reason @err, or reachable again. */
static int tell_reachable(struct join *join, const struct mst_err *err)
{
    mst__json_put_begin(&join->line, NULL, '{');
    mst__json_put_text(&join->line, "event",
                       mst_bytes_str(err == NULL ? "reachable" : "unreachable"));
    if (err != NULL) {
        mst__json_put_text(&join->line, "error", mst_bytes_str(err->msg));
    }
    mst__json_put_end(&join->line, '}');
    return mst__cli_json_print(&join->line, &join->err);
}

static int tell_waiting(struct join *join, int64_t nodes)
{
    mst__json_put_begin(&join->line, NULL, '{');
    mst__json_put_text(&join->line, "event", mst_bytes_str("waiting"));
    mst__json_put_number(&join->line, "round", join->outcome.round);
    mst__json_put_number(&join->line, "nodes", nodes);
    mst__json_put_end(&join->line, '}');
    return mst__cli_json_print(&join->line, &join->err);
}

/* --- how work ends --- */

static int report_end(const struct join *join, struct mst_err *reterr)
{
    int code = join->child.exit_code;
    if (code == 0) {
        return mst__handler_finish(join->handler, code, join->command[0], MST_AGENT_TELL_MS,
                                   reterr);
    }
    struct mst_failure failure;
    mst_failure_init(&failure, sizeof failure);
    failure.exit_status = code > MST_EXIT_SIGNAL ? 0 : code;
    failure.signal = code > MST_EXIT_SIGNAL ? code - MST_EXIT_SIGNAL : 0;
    failure.text = join->command[0];
    return mst__handler_restart(join->handler, &failure, MST_AGENT_TELL_MS, reterr);
}

/* Report the end of our command before leaving, so that a finished node is not missed and a failure
 * has a cause. The status of the command counts, also if nobody hears of it. */
static void announce_end(struct join *join)
{
    struct mst_err err = join->trouble;
    int rv = join->lost_ms == 0 ? report_end(join, &err) : MST_ECONN;
    bool is_moot = rv == MST_EINVAL || rv == MST_ENOTSUP || rv == MST_ECANCELED;
    if (rv != 0 && !is_moot) {
        join->is_untold = true;
        mst__cli_say("muster: the command has ended, and the others were not told: the rendezvous "
                     "at %s could not be reached. They will take this node for lost: %s",
                     mst_params_endpoint(join->params), err.msg);
    }
}

/* Members are lost or have left. */
static int tell_lost(struct join *join, const struct mst_notice *notice)
{
    struct mst__json_writer *line = &join->line;
    mst__json_put_begin(line, NULL, '{');
    mst__json_put_text(line, "event", mst_bytes_str("lost"));
    mst__json_put_number(line, "round", join->outcome.round);
    mst__json_put_begin(line, "nodes", '[');
    for (size_t i = 0; i < notice->node_count; i++) {
        if (notice->nodes[i].name[0] != '\0') {
            mst__json_put_text(line, NULL, mst_bytes_str(notice->nodes[i].name));
        }
    }
    mst__json_put_end(line, ']');
    mst__json_put_number(line, "total", notice->nodes_lost);
    mst__json_put_end(line, '}');
    join->gone = notice->nodes_lost;
    return mst__cli_json_print(line, &join->err);
}

/* The first failure of the round. */
static int tell_failed(struct join *join, const struct mst_cause *cause)
{
    struct mst__json_writer *line = &join->line;
    mst__json_put_begin(line, NULL, '{');
    mst__json_put_text(line, "event", mst_bytes_str("failed"));
    mst__json_put_number(line, "round", join->outcome.round);
    mst__json_put_text(line, "node", mst_bytes_str(cause->node));
    mst__json_put_number(line, "rank", cause->rank);
    mst__json_put_number(line, cause->signal != 0 ? "signal" : "exit_status",
                         cause->signal != 0 ? cause->signal : cause->exit_status);
    mst__json_put_text(line, "text", mst_bytes_str(cause->text));
    mst__json_put_end(line, '}');
    return mst__cli_json_print(line, &join->err);
}

/* Process a notice, and print it. */
static int hear(struct join *join, const struct mst_notice *notice)
{
    if (notice->has_cause && !join->is_cause_told) {
        join->is_cause_told = true;
        int rv = tell_failed(join, &notice->cause);
        if (rv != 0) {
            return rv;
        }
    }
    switch (notice->kind) {
        case MST_NOTICE_CLOSED:
            join->is_closed = true;
            return tell_closed(join, notice->outcome, "reason", notice->reason);
        case MST_NOTICE_LOST:
            return tell_lost(join, notice);
        case MST_NOTICE_WAITING:
            join->waiting_count = notice->nodes_waiting;
            return tell_waiting(join, notice->nodes_waiting);
        case MST_NOTICE_REOPENED:
            return tell_round(join, "reopened", join->outcome.round);
        case MST_NOTICE_EXPELLED:
            join->is_expelled = true;
            return tell(join, "expelled");
        case MST_NOTICE_UNREACHABLE:
            join->lost_ms = mst__clock_ms();
            join->trouble = notice->err;
            return tell_reachable(join, &notice->err);
        case MST_NOTICE_REACHABLE:
            join->lost_ms = 0;
            return tell_reachable(join, NULL);
        case MST_NOTICE_COMPLETE:
        case MST_NOTICE_FAILED:
            break; /* mst_handler_next reports them */
    }
    return 0;
}

/* --- the command --- */

static int start_command(struct join *join)
{
    const struct mst_rendezvous *outcome = &join->outcome;
    char rank[MST_NUMBER_SIZE + 1];
    char world[MST_NUMBER_SIZE + 1];
    char round[MST_NUMBER_SIZE + 1];
    char port[MST_NUMBER_SIZE + 1];
    rank[mst__number_format(outcome->rank, rank)] = '\0';
    world[mst__number_format(outcome->world_size, world)] = '\0';
    round[mst__number_format(outcome->round, round)] = '\0';
    port[mst__number_format(outcome->master_port, port)] = '\0';
    /* The last two tell PyTorch that a store is already served, and tell older releases under which
     * name the workers of this start meet there: it must be the same on all nodes. */
    const struct mst__variable variables[] = {
        {"RANK", rank},
        {"WORLD_SIZE", world},
        {"MASTER_ADDR", outcome->master_addr},
        {"MASTER_PORT", port},
        {"MUSTER_ROUND", round},
        {"TORCHELASTIC_USE_AGENT_STORE",
         mst_handler_use_agent_store(join->handler) ? "True" : "False"},
        {"TORCHELASTIC_RESTART_COUNT", round},
    };
    return mst__child_start(join->command, variables, sizeof variables / sizeof variables[0],
                            &join->child, &join->err);
}

/* --- being a member --- */

/* A closed rendezvous has no further round: a command then runs to its end. */
static enum end judge(const struct join *join)
{
    if (join->is_closed) {
        return join->command == NULL ? END_CLOSED : END_NOT;
    }
    if (join->is_expelled) {
        return END_EXPELLED;
    }
    bool has_changed = join->waiting_count > 0 || join->gone > 0;
    return has_changed && (join->rejoin || join->command != NULL) ? END_CHANGED : END_NOT;
}

static enum end look(struct join *join)
{
    int rv = 0;
    for (struct mst_notice *notice = NULL; rv == 0; mst_notice_free(notice)) {
        notice = NULL;
        rv = mst_handler_take(join->handler, 0, &notice, &join->err);
        if (rv == 0 && hear(join, notice) != 0) {
            rv = MST_ESYS;
        } else if (rv == 0 && judge(join) == END_CLOSED) {
            rv = MST_ETIMEOUT; /* all nodes leave, and so do we */
        }
    }
    return rv == MST_ETIMEOUT ? judge(join) : END_FAILED;
}

/* A store that is unreachable for longer than a call may take is gone; a command runs to its end
 * without it. */
static enum end check_store(struct join *join)
{
    if (join->lost_ms == 0 || join->command != NULL ||
        mst__clock_ms() - join->lost_ms < join->read_ms) {
        return END_NOT;
    }
    join->err = join->trouble;
    return END_FAILED;
}

/* Wait for a signal, for a notice, or until the next check: whether there is a notice. */
static bool await_notice(const struct join *join)
{
    struct pollfd fds[] = {
        {.fd = wake_fd, .events = POLLIN},
        {.fd = mst_handler_fd(join->handler), .events = POLLIN}, /* -1: nothing ever changes */
    };
    bool has_notice = poll(fds, 2, CHECK_MS) > 0 && fds[1].revents != 0;
    uint64_t count;
    ssize_t size = read(wake_fd, &count, sizeof count);
    (void)size; /* the caller checks the cause */
    return has_notice;
}

/* Stay until an event ends the membership. */
static enum end stay(struct join *join)
{
    for (;;) {
        if (join->child.pid != 0 && mst__child_ended(&join->child)) {
            return END_COMMAND;
        }
        if (stop_signal != 0) {
            return join->command == NULL ? END_DONE : END_COMMAND;
        }
        bool has_notice = await_notice(join);
        if (stop_signal != 0) {
            continue;
        }
        enum end end = has_notice ? look(join) : check_store(join);
        if (end != END_NOT) {
            return end;
        }
    }
}

/* Report that we have our outcome. A node that does not stay leaves when all have theirs, because
 * it may serve the store. Peers of another kind do not take part, so this has a time limit, and
 * errors are ignored. */
static void part(const struct join *join, bool stays)
{
    struct mst_store *store = join->outcome.store;
    struct mst_bytes all = mst_bytes_str("muster.join/all");
    struct mst_err err;
    int64_t count = 0;
    int rv = mst_store_add(store, mst_bytes_str("muster.join/count"), 1, PART_MS, &count, &err);
    if (rv == 0 && count == join->outcome.world_size) {
        (void)mst_store_set(store, all, mst_bytes_str("1"), PART_MS, &err);
    } else if (rv == 0 && !stays) {
        (void)mst_store_wait(store, &all, 1, PART_MS, &err);
    }
}

/* Whether the job goes on, with nodes that need the store or the authority that we serve. */
static bool is_needed(const struct join *join)
{
    bool has_left = join->child.exit_code != MST_EXIT_OK;
    struct mst_status *status = NULL;
    struct mst_err ignored; /* if our server does not answer us, it does not serve others either */
    if (mst_status_job(join->params, PART_MS, &status, &ignored) != 0) {
        return false;
    }
    size_t count = status->member_count + status->waiting_count + status->spare_count;
    bool goes_on = status->outcome == MST_OUTCOME_NONE;
    mst_status_free(status);
    return goes_on && count > (has_left ? 0 : 1);
}

/* Our command has ended and those of others have not. They need our server to reach each other, so
 * we serve until the job is over, no other node is left, or a signal comes. The next round does not
 * wait for a node that has failed. */
static void serve_on(struct join *join)
{
    struct mst_err ignored; /* then the others see that we are gone */
    if (join->child.exit_code != MST_EXIT_OK) {
        (void)mst_handler_leave(join->handler, &ignored);
    }
    bool is_over = false;
    for (bool is_told = false; stop_signal == 0 && !is_over && !join->is_closed; is_told = true) {
        bool is_alone = !is_needed(join);
        if (!is_alone && !is_told) {
            mst__cli_say("muster: this node serves the others and stays until they are done");
        }
        /* The last of the others may be gone before we hear how the job has ended. */
        is_over = (await_notice(join) && look(join) == END_FAILED) || is_alone;
    }
}

static enum end be_member(struct join *join)
{
    if (tell_joined(join) != 0) {
        return END_FAILED;
    }
    if (!join->was_member) {
        start_hold(join);
    }
    join->was_member = true;
    bool stays = join->command != NULL || join->hold_ms >= 0;
    if (join->outcome.epoch == 0) {
        part(join, stays);
    } /* an authority has told all nodes */
    if (!stays) {
        return END_DONE;
    }
    if (join->command != NULL && start_command(join) != 0) {
        join->is_command_bad = true;
        return END_FAILED;
    }
    enum end end = stay(join);
    bool has_ended = end == END_COMMAND && join->child.pid == 0;
    if (has_ended) {
        announce_end(join);
        if (join->serves && !join->is_untold) {
            serve_on(join);
        }
    }
    mst__child_stop(&join->child, join->stop_ms, wake_fd);
    return end;
}

/* --- the whole --- */

/* Join repeatedly, as the options say; returns why it ended. */
static enum end take_part(struct join *join)
{
    for (;;) {
        join->outcome = (struct mst_rendezvous){.size = sizeof join->outcome};
        mst__waiting_begin(join->waiting);
        int rv = mst_handler_next(join->handler, -1, &join->outcome, &join->err);
        mst__waiting_end(join->waiting, rv == MST_ETIMEOUT);
        if (rv != 0) {
            return END_FAILED;
        }
        join->is_closed = false;
        join->is_expelled = false;
        join->is_cause_told = false;
        join->waiting_count = 0;
        join->gone = 0;
        join->lost_ms = 0;
        enum end end = be_member(join);
        mst_store_close(join->outcome.store);
        join->outcome.store = NULL;
        bool again = end == END_CHANGED || end == END_EXPELLED;
        if (!again || !join->rejoin) {
            return end;
        }
        if (stop_signal != 0) {
            return join->command == NULL ? END_DONE : END_COMMAND;
        }
    }
}

/* Print the error and return the exit code. */
static int fail(struct join *join)
{
    int number = stop_signal;
    if (join->err.code == MST_ECANCELED && number != 0) {
        bool is_done = join->was_member && join->command == NULL;
        return is_done ? MST_EXIT_OK : MST_EXIT_SIGNAL + number;
    }
    int exit_code = mst__rdzv_fail(&join->rdzv, join->params, &join->err);
    if (join->is_command_bad) {
        return mst__err_is_errno(&join->err, ENOENT) ? MST_EXIT_NO_COMMAND : MST_EXIT_NOT_RUNNABLE;
    }
    if (exit_code == MST_EXIT_CLOSED || exit_code == MST_EXIT_SPARE) {
        char text[sizeof join->err.msg];
        (void)snprintf(text, sizeof text, "%s",
                       join->err.msg); /* printing the line may fail as well */
        (void)tell_closed(join, MST_OUTCOME_NONE, "error", text); /* the exit status reports it as
                                                                     well */
    }
    return exit_code;
}

static int exit_code_of(struct join *join, enum end end)
{
    switch (end) {
        case END_COMMAND:
            return join->child.exit_code;
        case END_CHANGED:
            mst__cli_say("muster: the group has changed; use --rejoin to join again");
            return MST_EXIT_CHANGED;
        case END_EXPELLED:
            mst__cli_say("muster: the others count this node as lost");
            return MST_EXIT_EXPELLED;
        case END_CLOSED:
            return MST_EXIT_CLOSED;
        case END_FAILED:
            return fail(join);
        case END_NOT:
        case END_DONE:
            break;
    }
    return MST_EXIT_OK;
}

/* Leave, so that the record does not show us any longer. If the store is gone, so is the record. */
static int leave(struct join *join, int exit_code)
{
    struct mst_err err = {0};
    int rv = 0;
    if (stop_signal != 0) {
        /* The store may be slow to answer; a second signal ends the wait. */
        struct sigaction usual = {.sa_handler = SIG_DFL};
        (void)sigaction(SIGTERM, &usual, NULL); /* cannot fail */
        (void)sigaction(SIGINT, &usual, NULL);
    }
    if (join->close && join->was_member) {
        rv = mst_handler_set_closed(join->handler, &err);
    }
    /* What the command or a signal has decided counts, also if nobody hears that we leave. */
    bool is_decided = join->command != NULL || stop_signal != 0;
    if (rv == 0 && is_decided && join->lost_ms == 0) {
        (void)mst__handler_leave(join->handler, MST_AGENT_LEAVE_MS, &err);
    } else if (rv == 0 && join->lost_ms == 0) {
        rv = mst_handler_leave(join->handler, &err);
        rv = rv == MST_ECONN || rv == MST_EUNKNOWN ? 0 : rv;
    }
    if (rv == 0) {
        return exit_code;
    }
    int failed = mst__cli_fail(&err);
    return exit_code == MST_EXIT_OK ? failed : exit_code;
}

/* Other jobs may meet at our server. A signal ends the stay; the end of the hold, an alarm, does
 * not. */
static void linger(const struct join *join)
{
    struct mst_err ignored; /* an event has told the user */
    if (stop_signal == SIGALRM) {
        stop_signal = 0;
        take_signals();
    }
    if (stop_signal == 0) {
        (void)mst_handler_linger(join->handler, -1, &ignored);
    }
}

static int run(struct join *join)
{
    if (mst_handler_new(join->params, &join->handler, &join->err) != 0) {
        return mst__rdzv_fail(&join->rdzv, join->params, &join->err);
    }
    if (catch_signals(join) != 0 ||
        mst__waiting_new(join->params, join->expected, &join->waiting, &join->err) != 0) {
        return mst__cli_fail(&join->err);
    }
    mst__json_writer_init(&join->line, MST_CLI_LINE_SIZE_MAX);
    int exit_code = leave(join, exit_code_of(join, take_part(join)));
    linger(join);
    return exit_code;
}

/* Set the option of the backend for --serve; some backends have no server of ours. */
static bool set_serve(struct join *join, int *ret_exit)
{
    static const char *const words[] = {"auto", "never", "always"};
    const char *backend = mst_params_backend(join->params);
    struct mst_err err;
    bool is_word = false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        is_word = is_word || strcmp(join->serve, words[i]) == 0;
    }
    if (!is_word) {
        *ret_exit = mst__cli_usage_error(COMMAND, "--serve: '%s' is not auto, never or always",
                                         join->serve);
    } else if (!mst__backend_has_option(backend, "serve")) {
        *ret_exit = mst__cli_usage_error(COMMAND, "--serve: nodes of backend '%.40s' do not serve",
                                         backend);
        is_word = false;
    } else if (mst_params_set(join->params, "serve", join->serve, &err) != 0) {
        *ret_exit = mst__cli_fail(&err);
        is_word = false;
    }
    return is_word;
}

/* Set the option of the backend for --new. */
static bool set_new(struct join *join, int *ret_exit)
{
    const char *backend = mst_params_backend(join->params);
    struct mst_err err;
    if (!mst__backend_has_option(backend, "new")) {
        *ret_exit = mst__cli_usage_error(
            COMMAND, "--new: backend '%.40s' keeps old jobs; choose another --rdzv-id", backend);
        return false;
    }
    if (mst_params_set(join->params, "new", "1", &err) != 0) {
        *ret_exit = mst__cli_fail(&err);
        return false;
    }
    return true;
}

static bool set_expect(struct join *join, int *ret_exit)
{
    const char *backend = mst_params_backend(join->params);
    struct mst_err err;
    if (!mst__backend_can(backend, MST_BACKEND_NAMES)) {
        *ret_exit = mst__cli_usage_error(
            COMMAND, "--expect: nodes of backend '%.40s' have no names", backend);
        return false;
    }
    if (mst_expected_new(join->expect_text, &join->expected, &err) != 0) {
        *ret_exit = mst__cli_usage_error(COMMAND, "--expect: %s", err.msg);
        return false;
    }
    return true;
}

static bool prepare(struct join *join, int *ret_exit)
{
    int64_t nodes_min = 0;
    int64_t nodes_max = 0;
    struct mst__cli_log_options log_options = {0};
    bool is_given = join->nodes != NULL || !mst__rdzv_is_url(&join->rdzv);
    if (is_given &&
        (join->nodes == NULL || !mst__rdzv_nodes(join->nodes, &nodes_min, &nodes_max))) {
        *ret_exit =
            mst__cli_usage_error(COMMAND, "--nnodes %s: give MIN:MAX, such as 2:4, or one number",
                                 join->nodes == NULL ? "is missing" : join->nodes);
        return false;
    }
    if (!mst__cli_log_level(join->log_level, &log_options.level)) {
        *ret_exit = mst__cli_usage_error(
            COMMAND, "--log-level: '%s' is not debug, info, warn or error", join->log_level);
        return false;
    }
    if (!mst__rdzv_params(&join->rdzv, nodes_min, nodes_max, join->local_addr, &join->params,
                          ret_exit)) {
        return false;
    }
    struct mst_log log;
    struct mst_err err;
    if (mst__cli_log_open(&log_options, &log, &err) != 0) {
        *ret_exit = mst__cli_fail(&err);
        return false;
    }
    mst_params_log(join->params, &log);
    if (join->serve != NULL && !set_serve(join, ret_exit)) {
        return false;
    }
    if (join->expect_text != NULL && !set_expect(join, ret_exit)) {
        return false;
    }
    if (join->is_new && !set_new(join, ret_exit)) {
        return false;
    }
    if (mst_params_duration_ms(join->params, "read_timeout", READ_MS_DEFAULT, &join->read_ms,
                               &err) != 0) {
        *ret_exit = mst__rdzv_fail(&join->rdzv, join->params, &err);
        return false;
    }
    mst_params_on_event(join->params, on_event, join);
    if (join->events_path == NULL) {
        return true;
    }
    join->events_fd =
        open(join->events_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
    if (join->events_fd < 0) {
        (void)mst__fail(&err, MST_ESYS, errno, "--events '%.100s'", join->events_path);
        *ret_exit = mst__cli_fail(&err);
        return false;
    }
    return true;
}

/* Check options that exclude or need each other. */
static bool check_usage(const struct join *join)
{
    const char *wrong = NULL;
    if (join->command != NULL && join->hold_ms >= 0) {
        wrong = "--hold and a command exclude each other: one is held for as long as it runs";
    } else if (join->command == NULL && join->stop_ms >= 0) {
        wrong = "--stop-timeout makes sense with a command only";
    } else if (join->command == NULL && join->hold_ms < 0 && join->rejoin) {
        wrong = "--rejoin makes sense with --hold or a command only";
    }
    if (wrong != NULL) {
        (void)mst__cli_usage_error(COMMAND, "%s", wrong);
    }
    return wrong == NULL;
}

static int join_with(struct join *join)
{
    int exit_code = MST_EXIT_USAGE;
    if (!check_usage(join)) {
        return exit_code;
    }
    if (join->stop_ms < 0) {
        join->stop_ms = 10000;
    }
    join->events_fd = -1;
    if (prepare(join, &exit_code)) {
        exit_code = run(join);
    }
    if (wake_fd >= 0) {
        signalled_handler = NULL; /* a late signal has nothing to cancel */
    }
    mst__waiting_free(join->waiting);
    mst_handler_free(join->handler);
    mst_expected_free(join->expected);
    mst_params_free(join->params);
    mst__json_writer_close(&join->line);
    if (join->events_fd >= 0) {
        (void)close(join->events_fd); /* every event was written at once */
    }
    return exit_code;
}

int mst__cli_join(int argc, char **argv)
{
    struct join join = {
        .rdzv = {MST_RDZV_DEFAULTS(COMMAND)},
        .hold_ms = -1,
        .stop_ms = -1,
        .log_level = "warn",
    };
    const struct mst__option options[] = {
        MST_RDZV_OPTIONS(join.rdzv,
                         "The id of the job, the same on all of its nodes. Required, here or "
                         "as MUSTER_RDZV_ID."),
        {"nnodes", "MIN:MAX", "How many nodes a round needs and takes; or one number. Required.",
         MST_OPTION_TEXT, &join.nodes, 0, 0},
        {"local-addr", "ADDRESS",
         "The address of this node for others, in names and as the workers' MASTER_ADDR. "
         "Default: "
         "the host name in names, the address by which it reaches the endpoint for workers.",
         MST_OPTION_TEXT, &join.local_addr, 0, 0},
        {"expect", "NODES",
         "The expected nodes, by their names or hosts, such as node[1-20],master. While this "
         "node waits, it names the missing ones.",
         MST_OPTION_TEXT, &join.expect_text, 0, 0},
        {"serve", "WHEN",
         "Whether this node serves the others, with backends muster and c10d. auto: if the "
         "endpoint is this machine, and no server is there or begins within half a second; it "
         "says so. never: another process does. always: fail if it cannot. Default auto.",
         MST_OPTION_TEXT, &join.serve, 0, 0},
        {"hold", "DURATION", "Stay a member for so long after joining; 0 = until a signal.",
         MST_OPTION_DURATION, &join.hold_ms, 0, (int64_t)10 * 365 * 86400 * 1000},
        {"rejoin", NULL,
         "When nodes wait, participants are lost or this node is expelled: enter the next round. "
         "Without it a command is stopped and join ends; a hold goes on.",
         MST_OPTION_FLAG, &join.rejoin, 0, 0},
        {"stop-timeout", "DURATION",
         "When the command has to stop: how long after SIGTERM it is killed. Default 10s.",
         MST_OPTION_DURATION, &join.stop_ms, 0, (int64_t)86400 * 1000},
        {"close", NULL, "At the end, close the rendezvous for all nodes.", MST_OPTION_FLAG,
         &join.close, 0, 0},
        {"new", NULL,
         "Begin another job when the server knows one of this id that has finished, has failed or "
         "was closed; as soon as its last node is gone. Of backend muster only.",
         MST_OPTION_FLAG, &join.is_new, 0, 0},
        {"events", "FILE", "Append the events of the handler to FILE, one line of JSON each.",
         MST_OPTION_TEXT, &join.events_path, 0, 0},
        {"log-level", "LEVEL", "Log level on stderr: debug, info, warn or error. Default warn.",
         MST_OPTION_TEXT, &join.log_level, 0, 0},
    };
    const struct mst__usage usage = {
        .command = COMMAND,
        .synopsis = join_synopsis,
        .text = join_text,
        .options = options,
        .options_count = sizeof options / sizeof options[0],
        .arguments_max = SIZE_MAX,
    };
    int first = 0;
    int exit_code = MST_EXIT_OK;
    if (!mst__options_parse(&usage, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    mst__rdzv_complete(&join.rdzv);
    join.command = first < argc ? argv + first : NULL;
    return join_with(&join);
}
