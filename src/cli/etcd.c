/* cli/etcd.c - `muster etcd`: a private etcd that lives as long as this program. */
#include <errno.h>
#include <muster/etcd.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/err.h"
#include "cli/cli.h"
#include "cli/log.h"
#include "cli/port_file.h"

struct etcd {
    struct mst_etcd_options options;
    int64_t port, peer_port, attempts, timeout_ms;
    const char *port_file;
    const char *output;
    const char *log_level;
};

static const char etcd_text[] =
    "Start a single-member etcd with a private data directory on free ports, wait until it is "
    "healthy, and print its address. SIGTERM and SIGINT stop it. It never outlives this program. "
    "Files created for it are removed at the end.\n"
    "\n"
    "The program is that of --binary, or of $TORCHELASTIC_ETCD_BINARY_PATH, or `etcd` beside "
    "muster itself, or `etcd` in $PATH. Arguments after `--` are passed to it and override ours. "
    "ETCD_ variables are ignored.";

/* --- signals --- */

static int signal_fd = -1; /* readable after a signal */
static volatile sig_atomic_t signal_number;

static void on_signal(int number)
{
    int saved_errno = errno;
    uint64_t one = 1;
    signal_number = number == SIGCHLD ? signal_number : number;
    ssize_t written = write(signal_fd, &one, sizeof one);
    (void)written; /* if the counter is full, it is readable */
    errno = saved_errno;
}

/* The end of a child wakes the wait below; before that, it must not interrupt the start. */
static void catch_signals(bool with_children)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGCHLD};
    mst__cli_catch_signals(numbers, with_children ? 3 : 2, on_signal);
}

/* --- the command --- */

static int fill_output(struct etcd *etcd)
{
    if (strcmp(etcd->output, "none") == 0) {
        etcd->options.output = MST_ETCD_OUTPUT_NONE;
    } else if (strcmp(etcd->output, "inherit") == 0) {
        etcd->options.output = MST_ETCD_OUTPUT_INHERIT;
    } else if (*etcd->output != '\0') {
        etcd->options.output = MST_ETCD_OUTPUT_FILE;
        etcd->options.output_path = etcd->output;
    } else {
        return mst__cli_usage_error("muster etcd", "--output: give none, inherit or a file");
    }
    return MST_EXIT_OK;
}

/* Wait until a signal arrives (true), or etcd has ended. */
static bool wait_for_end(struct mst_etcd_server *server, struct mst_err *reterr)
{
    while (signal_number == 0) {
        if (!mst_etcd_server_is_running(server, reterr)) {
            return false;
        }
        struct pollfd fd = {.fd = signal_fd, .events = POLLIN};
        (void)poll(&fd, 1, -1); /* the state is checked in any case */
        uint64_t count;
        ssize_t size = read(signal_fd, &count, sizeof count);
        (void)size; /* the state is checked in any case */
    }
    return true;
}

static int run_server(struct mst_etcd_server *server,
                      const struct etcd *etcd,
                      struct mst__port_file *port_file)
{
    struct mst_err err = {0};
    catch_signals(true);
    (void)printf("listening on %s://%s\n", etcd->options.cert_path == NULL ? "http" : "https",
                 mst_etcd_server_endpoint(server));
    (void)fflush(stdout); /* a closed stdout does not end the server */
    bool is_good = mst__port_file_write(port_file, mst_etcd_server_port(server), &err) == 0 &&
                   wait_for_end(server, &err);
    mst__port_file_end(port_file);
    return is_good ? MST_EXIT_OK : mst__cli_fail(&err);
}

static int etcd_with(struct etcd *etcd)
{
    struct mst_err err = {0};
    struct mst__port_file port_file;
    if (mst__port_file_begin(&port_file, etcd->port_file, &err) != 0) {
        return mst__cli_fail(&err);
    }
    signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (signal_fd < 0) {
        mst__err_fill(&err, MST_ESYS, errno, "eventfd");
        return mst__cli_fail(&err);
    }
    catch_signals(false);
    etcd->options.cancel_fd = signal_fd;
    struct mst_etcd_server *server = NULL;
    int rv = mst_etcd_server_start(&etcd->options, etcd->timeout_ms, &server, &err);
    if (rv == MST_ECANCELED && signal_number != 0) {
        return MST_EXIT_SIGNAL + signal_number;
    }
    if (rv != 0) {
        int exit_code = mst__cli_fail(&err);
        return rv == MST_ENOTFOUND ? MST_EXIT_NO_COMMAND : exit_code;
    }
    int exit_code = run_server(server, etcd, &port_file);
    mst_etcd_server_stop(server);
    return exit_code;
}

/* Fill in the options that the table cannot. */
static int fill_options(struct etcd *etcd, char **more)
{
    etcd->options.client_port = (uint16_t)etcd->port;
    etcd->options.peer_port = (uint16_t)etcd->peer_port;
    etcd->options.attempts = (unsigned)etcd->attempts;
    etcd->options.arguments = (const char *const *)more;
    int exit_code = fill_output(etcd);
    if (exit_code != MST_EXIT_OK) {
        return exit_code;
    }
    /* All lines of etcd are one event, and it prints many when it starts. */
    struct mst__cli_log_options log_options = {.is_unlimited = true};
    if (!mst__cli_log_level(etcd->log_level, &log_options.level)) {
        return mst__cli_usage_error(
            "muster etcd", "--log-level: '%s' is not debug, info, warn or error", etcd->log_level);
    }
    struct mst_err err;
    return mst__cli_log_open(&log_options, &etcd->options.log, &err) == 0 ? MST_EXIT_OK
                                                                          : mst__cli_fail(&err);
}

int mst__cli_etcd(int argc, char **argv)
{
    struct etcd etcd = {.attempts = 3, .timeout_ms = 60000, .output = "none", .log_level = "warn"};
    mst_etcd_options_init(&etcd.options, sizeof etcd.options);
    const struct mst__option options[] = {
        {"enable-v2", NULL,
         "Enable the v2 API, which the backends etcd and etcd-v2 and PyTorch's need. An error with "
         "etcd 3.6 and later, which lack it.",
         MST_OPTION_FLAG, &etcd.options.enable_v2, 0, 0},
        {"host", "HOST",
         "Name or address of this machine to listen on and to advertise. Default: localhost, which "
         "other machines cannot reach.",
         MST_OPTION_TEXT, &etcd.options.host, 0, 0},
        {"port", "PORT", "Port for clients, 0 for a free one. Default: 0.", MST_OPTION_NUMBER,
         &etcd.port, 0, 65535},
        {"peer-port", "PORT", "Port for members, on localhost, 0 for a free one. Default: 0.",
         MST_OPTION_NUMBER, &etcd.peer_port, 0, 65535},
        {"port-file", "FILE",
         "Write the client port to this file once etcd is healthy. An existing regular file is "
         "removed at the start, the new one at the end.",
         MST_OPTION_TEXT, &etcd.port_file, 0, 0},
        {"data-dir", "DIR",
         "Keep the data in this directory across starts; created if missing. Default: a temporary "
         "directory under $TMPDIR or /tmp, removed at the end, even after a kill.",
         MST_OPTION_TEXT, &etcd.options.data_dir, 0, 0},
        {"binary", "PATH", "Program to run. A name without a slash is searched in $PATH.",
         MST_OPTION_TEXT, &etcd.options.binary_path, 0, 0},
        {"output", "WHERE",
         "Where etcd's output goes: none (discarded; a failed start reports its last lines), "
         "inherit (our stderr), or a file to append to. Default: none.",
         MST_OPTION_TEXT, &etcd.output, 0, 0},
        {"cert", "FILE", "Serve clients over TLS with this certificate for HOST, in PEM format.",
         MST_OPTION_TEXT, &etcd.options.cert_path, 0, 0},
        {"key", "FILE", "Private key of --cert. Default: in the same file.", MST_OPTION_TEXT,
         &etcd.options.key_path, 0, 0},
        {"client-ca", "FILE",
         "Require client certificates signed by this authority. The one of --cert must be valid "
         "for a client too, because etcd calls itself.",
         MST_OPTION_TEXT, &etcd.options.client_ca_path, 0, 0},
        {"attempts", "N",
         "Total number of starts: retries if etcd exits immediately, each with a new directory and "
         "other free ports. Default: 3.",
         MST_OPTION_NUMBER, &etcd.attempts, 1, 100},
        {"timeout", "TIME", "Time for etcd to become healthy. Default: 60s.", MST_OPTION_DURATION,
         &etcd.timeout_ms, 1, INT32_MAX},
        {"log-level", "LEVEL",
         "debug, info, warn or error, one line per event on stderr. Default: warn; info also has "
         "the last lines of an etcd that did not start.",
         MST_OPTION_TEXT, &etcd.log_level, 0, 0},
    };
    const struct mst__usage usage = {
        .command = "muster etcd",
        .synopsis = "[options] [-- ARGUMENT...]",
        .text = etcd_text,
        .options = options,
        .options_count = sizeof options / sizeof options[0],
        .arguments_max = SIZE_MAX,
    };
    int arguments = 0;
    int exit_code = 0;
    if (!mst__options_parse(&usage, argc, argv, &arguments, &exit_code)) {
        return exit_code;
    }
    exit_code = fill_options(&etcd, argv + arguments);
    return exit_code == MST_EXIT_OK ? etcd_with(&etcd) : exit_code;
}
