/* cli/job_logs.c - `muster logs`: the log of a worker, sent by the agent that has the file. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/unicode.h"
#include "cli/job.h"
#include "cli/log.h"

#define COMMAND "muster logs"
#define ALIVE_MS 4000

static volatile sig_atomic_t stop_signal;
static struct mst_store *volatile signalled_store;

static void on_signal(int number)
{
    stop_signal = number;
    mst_store_interrupt(signalled_store);
}

/* Add 1 to the number that tells the agent that its reader is alive. */
static void say_alive(const struct mst__cli_job *job, const char *token)
{
    char key[MST_CONTROL_KEY_SIZE];
    int64_t number = 0;
    struct mst_err err; /* on failure, the next call may succeed */
    (void)snprintf(key, sizeof key, "logs/%s/alive", token);
    (void)mst_store_add(job->store, mst_bytes_str(key), 1, job->timeout_ms, &number, &err);
}

/* Print a piece of a log: as it is into a file or a pipe; on a terminal, whose owner did not write
 * the program, control characters are made visible. */
static int print_piece(struct mst_bytes piece, struct mst_err *reterr)
{
    struct mst__buf text;
    int rv = 0;
    if (isatty(STDOUT_FILENO) != 1) {
        return mst__cli_write(piece, reterr);
    }
    mst__buf_init(&text, MST_UNICODE_SHOWN_SIZE * (piece.size + 1));
    while (rv == 0 && piece.size > 0) {
        char c = (char)piece.data[0];
        if (c == '\n' || c == '\t' || c == '\r') {
            rv = mst__buf_append_u8(&text, (uint8_t)c);
            piece = mst__bytes_skip(piece, 1);
        } else {
            char shown[MST_UNICODE_SHOWN_SIZE];
            size_t size = mst__unicode_take_shown(&piece, shown);
            rv = mst__buf_append(&text, mst_bytes_of(shown, size));
        }
    }
    rv = rv == 0 ? mst__cli_write(mst__buf_bytes(&text), reterr)
                 : mst__fail(reterr, rv, 0, "piece of a log");
    mst__buf_close(&text);
    return rv;
}

/* Read pieces until the end of the log. */
static int read_pieces(const struct mst__cli_job *job, const char *token, struct mst_err *reterr)
{
    char key[MST_CONTROL_KEY_SIZE];
    int64_t alive_ms = 0;
    (void)snprintf(key, sizeof key, "logs/%s", token);
    for (;;) {
        struct mst_buffer piece = {0};
        if (mst__clock_ms() - alive_ms >= ALIVE_MS) {
            say_alive(job, token);
            alive_ms = mst__clock_ms();
        }
        int rv =
            mst_store_queue_pop(job->store, mst_bytes_str(key), true, ALIVE_MS, &piece, reterr);
        if (stop_signal != 0 || (rv != 0 && rv != MST_ETIMEOUT)) {
            mst_buffer_free(&piece);
            return stop_signal != 0 ? 0 : rv;
        }
        if (rv == 0 && piece.size > 0 && piece.data[0] == 'e') {
            rv =
                piece.size == 1 ? 0 : mst__fail(reterr, MST_ENOTFOUND, 0, "%.180s", piece.data + 1);
            mst_buffer_free(&piece);
            return rv;
        }
        if (rv == 0) {
            rv = print_piece(mst_bytes_of(piece.data + 1, piece.size - 1), reterr);
        }
        mst_buffer_free(&piece);
        if (rv == MST_ESYS) {
            return rv;
        }
    }
}

/* Remove the keys of this reader. */
static void clean(const struct mst__cli_job *job, const char *token)
{
    static const char *const behind[] = {"", "/alive"};
    for (size_t i = 0; i < 2; i++) {
        char key[MST_CONTROL_KEY_SIZE];
        bool existed;
        struct mst_err err; /* on failure, the agent removes the key */
        (void)snprintf(key, sizeof key, "logs/%s%s", token, behind[i]);
        (void)mst_store_delete(job->store, mst_bytes_str(key), job->timeout_ms, &existed, &err);
    }
}

static const char *missing(const void *arg)
{
    const struct mst__control_command *command = arg;
    return command->rank < 0 ? "--rank is missing" : NULL;
}

static int show_log(const struct mst__cli_job *job, const char *argument, void *arg)
{
    struct mst__control_command *command = arg;
    (void)argument; /* NULL */
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct mst_buffer node = {0};
    struct mst_err err;
    (void)snprintf(command->token, sizeof command->token, "%016" PRIx64, mst__clock_random_u64());
    signalled_store = job->store;
    mst__cli_catch_signals(numbers, sizeof numbers / sizeof numbers[0], on_signal);
    int rv = mst__cli_job_ask(job, command, &node, &err);
    if (rv == MST_ETIMEOUT) {
        rv = mst__fail(&err, rv, 0, "no node of the job has a worker of rank %" PRId64,
                       command->rank);
    }
    rv = rv == 0 ? read_pieces(job, command->token, &err) : rv;
    clean(job, command->token);
    mst_buffer_free(&node);
    if (stop_signal != 0) {
        return MST_EXIT_SIGNAL + stop_signal;
    }
    return rv == 0 ? MST_EXIT_OK : mst__cli_job_fail(job, &err);
}

int mst__cli_logs(int argc, char **argv)
{
    struct mst__cli_job job =
        MST_CLI_JOB_DEFAULTS(COMMAND, "read the files below --log-dir on that node");
    job.needs_queue = true;
    struct mst__control_command command = {.kind = MST_CONTROL_LOGS, .rank = -1, .lines = -1};
    const struct mst__option options[] = {
        MST_CLI_JOB_OPTIONS(job),
        {"rank", "R", "The rank of the worker in the whole job. Required.", MST_OPTION_NUMBER,
         &command.rank, 0, INT32_MAX},
        {"follow", NULL, "Follow the log, also after restarts. Also -f.", MST_OPTION_FLAG,
         &command.follows, 0, 0},
        {"lines", "N", "The last N lines only. Also -n.", MST_OPTION_NUMBER, &command.lines, 0,
         INT32_MAX},
        {"stderr", NULL, "Show stderr, not stdout.", MST_OPTION_FLAG, &command.is_stderr, 0, 0},
    };
    static const struct mst__option_letter letters[] = {
        {'f', "follow"}, {'n', "lines"}, {'\0', NULL}};
    const struct mst__usage usage = {
        .command = COMMAND,
        .synopsis = "--rdzv-id ID --rank R [-f] [-n N] [--rdzv-endpoint ENDPOINT] [options]",
        .text = "Show the log of a worker, wherever it runs. Its agent reads the file and sends it "
                "through the server, so that the job must run and must have been started with "
                "--tee or --redirects. Exit status: 0, 2 wrong arguments, 3 there is no file, 4 no "
                "node has such a worker, 5 no connection, 128 and the signal's number.",
        .options = options,
        .options_count = sizeof options / sizeof options[0],
        .letters = letters,
    };
    const struct mst__cli_job_act act = {.fn = show_log, .missing = missing, .arg = &command};
    return mst__cli_job_main(&job, &usage, &act, argc, argv);
}
