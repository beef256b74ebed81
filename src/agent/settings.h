/* agent/settings.h - the settings of `muster run`: their table, the origin of each value, and its
 * meaning.
 *
 * A value comes from the command line, else from MUSTER_NAME, else from PET_NAME (the variable of
 * torchrun), else from the scheduler, else it is the built-in default. The text and its origin are
 * kept for `--explain`. Reading does no I/O: the environment is a function, and what the machine
 * has is an argument. */
#ifndef MST_AGENT_SETTINGS_H
#define MST_AGENT_SETTINGS_H

#include <muster/error.h>
#include <stdbool.h>
#include <sys/types.h>

#include "agent/environment.h"
#include "agent/ranks.h"
#include "agent/scheduler.h"
#include "base/arena.h"

/* --- the table --- */

enum mst__setting_kind {
    MST_SETTING_FLAG,
    MST_SETTING_TEXT,
    MST_SETTING_LIST, /* may be repeated; a variable is one value */
};

/* NAME, option, kind, argument, default (NULL = none), another variable of torchrun or NULL, help.
 * The man page's list of options is made from this table. */
#define MST_SETTING_MAP(X)                                                                         \
    X(NNODES, "nnodes", TEXT, "MIN:MAX", "1", NULL,                                                \
      "Least and greatest number of nodes; one number is both.")                                   \
    X(NPROC, "nproc-per-node", TEXT, "N", "1", NULL,                                               \
      "Workers on this node: a number; gpu, one per GPU; cpu, one per usable CPU; auto, gpu if "   \
      "there is a GPU, else cpu.")                                                                 \
    X(RDZV_BACKEND, "rdzv-backend", TEXT, "NAME", "muster", NULL,                                  \
      "How nodes meet: muster, c10d, etcd-v2, etcd-v3, etcd or static.")                           \
    X(RDZV_ENDPOINT, "rdzv-endpoint", TEXT, "ADDR", "", NULL,                                      \
      "Where nodes meet: host[:port]. The port defaults to 29400, or 2379 for etcd.")              \
    X(RDZV_ID, "rdzv-id", TEXT, "ID", NULL, NULL,                                                  \
      "Name of the job, the same on all of its nodes. Required for more than one node.")           \
    X(RDZV_CONF, "rdzv-conf", LIST, "K=V,...", NULL, NULL,                                         \
      "Backend options, such as join_timeout=60. Repeatable.")                                     \
    X(STANDALONE, "standalone", FLAG, NULL, NULL, NULL,                                            \
      "Run a job on this node alone, with its own id, and a server that only its user can reach.") \
    X(MAX_RESTARTS, "max-restarts", TEXT, "N[/TIME]", "0", NULL,                                   \
      "Restarts of the workers after failures, counted over all nodes; with a time, restarts "     \
      "within it. A membership change uses none.")                                                 \
    X(RESTART_BACKOFF, "restart-backoff", TEXT, "MIN:MAX", "0:0", NULL,                            \
      "Pause before a restart after a failure: MIN, doubled each time up to MAX.")                 \
    X(GIVE_UP, "give-up", TEXT, "N/TIME", "10/3s", NULL,                                           \
      "Fail early, with restarts left, when workers have died N times in a row within TIME of "    \
      "their start; 0 = never.")                                                                   \
    X(MONITOR_INTERVAL, "monitor-interval", TEXT, "SECONDS", "0.1", NULL,                          \
      "Accepted for compatibility with torchrun. No effect: nothing is polled.")                   \
    X(START_METHOD, "start-method", TEXT, "NAME", "spawn", NULL,                                   \
      "spawn, fork or forkserver. Accepted for compatibility with torchrun. No effect on "         \
      "programs.")                                                                                 \
    X(EVENT_LOG_HANDLER, "event-log-handler", TEXT, "NAME", "null", NULL,                          \
      "null, or console: same as --events fd:2.")                                                  \
    X(ROLE, "role", TEXT, "NAME", "default", NULL, "Role of the workers of this node.")            \
    X(MODULE, "module", FLAG, NULL, NULL, NULL,                                                    \
      "PROGRAM is a Python module: python3 -u -m PROGRAM. Also -m.")                               \
    X(NO_PYTHON, "no-python", FLAG, NULL, NULL, NULL,                                              \
      "Run PROGRAM itself even if its name ends in .py.")                                          \
    X(RUN_PATH, "run-path", FLAG, NULL, NULL, NULL,                                                \
      "Refused: the agent has no Python that could run the script.")                               \
    X(LOG_DIR, "log-dir", TEXT, "DIR", NULL, NULL,                                                 \
      "Directory of the log files, with a subdirectory per run and generation. Default: a "        \
      "temporary directory, removed after success. /dev/null: no files.")                          \
    X(REDIRECTS, "redirects", TEXT, "SPEC", "0", NULL,                                             \
      "Streams that go to a file instead of the console: 0 none, 1 stdout, 2 stderr, 3 both; or "  \
      "by local rank, 0:3,1:1 or 0-7:3. Also -r.")                                                 \
    X(TEE, "tee", TEXT, "SPEC", "0", NULL,                                                         \
      "Streams that go to a file and, with a prefix, to the console. Syntax of --redirects. Also " \
      "-t.")                                                                                       \
    X(LOCAL_RANKS_FILTER, "local-ranks-filter", TEXT, "RANKS", "", NULL,                           \
      "Show only workers with these local ranks on the console: 0,1,4-7.")                         \
    X(DUPLICATE_STDOUT, "duplicate-stdout-filters", TEXT, "TEXTS", "", NULL,                       \
      "Copy lines of teed stdout that contain one of these texts to filtered_stdout.log. "         \
      "Separate texts by commas; write a comma twice inside a text.")                              \
    X(DUPLICATE_STDERR, "duplicate-stderr-filters", TEXT, "TEXTS", "", NULL,                       \
      "The same for stderr and filtered_stderr.log.")                                              \
    X(PREFIX_TEMPLATE, "log-line-prefix-template", TEXT, "TEXT",                                   \
      "[${role_name}${local_rank}]:", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",                     \
      "Prefix of teed lines on the console: ${role_name}, ${rank}, ${local_rank}, ${hostname}, "   \
      "${pid}, ${time}, ${generation}.")                                                           \
    X(LOG_FORMAT, "log-format", TEXT, "FORMAT", "text", NULL,                                      \
      "Format of worker lines on the console: text, or json (one object per line).")               \
    X(KEEP_LOGS, "keep-logs", FLAG, NULL, NULL, NULL,                                              \
      "Keep a temporary log directory after success.")                                             \
    X(LOGS_SPECS, "logs-specs", TEXT, "NAME", "default", NULL,                                     \
      "Only default is accepted: plug-ins of torchrun are Python.")                                \
    X(NODE_RANK, "node-rank", TEXT, "N", NULL, NULL,                                               \
      "Rank of this node with backend static; position in the order of nodes with muster.")        \
    X(MASTER_ADDR, "master-addr", TEXT, "HOST", NULL, NULL,                                        \
      "Host of the endpoint if --rdzv-endpoint is not given in the same way or a stronger one.")   \
    X(MASTER_PORT, "master-port", TEXT, "PORT", NULL, NULL,                                        \
      "Port of the endpoint, in the same way. Default: the scheduler's, else 29500.")              \
    X(LOCAL_ADDR, "local-addr", TEXT, "ADDRESS", NULL, NULL,                                       \
      "Address of this node as told to others: in its name and as MASTER_ADDR of workers.")        \
    X(NUMA_BINDING, "numa-binding", TEXT, "MODE", NULL, NULL,                                      \
      "Bind each worker to the CPUs near its GPU: node, socket, exclusive or core-complex. "       \
      "Without GPUs, workers are spread over the NUMA nodes.")                                     \
    X(SIGNALS, "signals-to-handle", TEXT, "NAMES", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", NULL,          \
      "Signals that stop the workers of this node. Workers receive the same signal. Of the "       \
      "default, those that nohup or a shell made this process ignore stay ignored.")               \
    X(GRACE, "grace", TEXT, "TIME", NULL, NULL,                                                    \
      "Time for workers to stop before they are killed. Default 30s.")                             \
    X(SHUTDOWN_TIMEOUT, "shutdown-timeout", TEXT, "SECONDS", "30",                                 \
      "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "torchrun's name for --grace.")                            \
    X(KILL_ON_SECOND, "kill-on-second", FLAG, NULL, NULL, NULL,                                    \
      "A second signal of any kind ends the grace. Default: only a second Ctrl-C at a terminal.")  \
    X(STOP_SIGNAL, "stop-signal", TEXT, "NAME", "SIGTERM", NULL,                                   \
      "Signal that stops workers, unless a received signal is passed on.")                         \
    X(SIGNAL_SCOPE, "signal-scope", TEXT, "SCOPE", "leader", NULL,                                 \
      "leader: send stop signals to the worker alone, and kill the rest of its session after the " \
      "grace; group: send them to its whole process group.")                                       \
    X(FORWARD_SIGNALS, "forward-signals", TEXT, "NAMES", "SIGUSR1,SIGUSR2,SIGWINCH,SIGCONT", NULL, \
      "Signals passed on to workers without stopping them, or none. A worker without a handler "   \
      "does not get a signal that would end it.")                                                  \
    X(ON_JOIN, "on-join", TEXT, "WHEN", "restart", NULL,                                           \
      "When a node comes later: restart at once; next-restart: it waits for the next restart; "    \
      "never: it waits until a node is lost, and the job has never more nodes than in its first "  \
      "round.")                                                                                    \
    X(NOTICE_SIGNAL, "notice-signal", TEXT, "NAME", NULL, NULL,                                    \
      "Signal that warns workers of a planned restart. A worker gets it as soon as it handles "    \
      "it.")                                                                                       \
    X(NOTICE, "notice", TEXT, "TIME", "60s", NULL,                                                 \
      "Time between that signal and the restart. It ends early when each worker has touched "      \
      "$MUSTER_ACK_FILE or exited.")                                                               \
    X(END_TIME, "end-time", TEXT, "SECONDS", NULL, NULL,                                           \
      "End of the time of this node, in seconds since 1970; 0 = none. Default: from Slurm. "       \
      "With --notice-signal, workers are warned --notice before it, and the node leaves the job.") \
    X(PREEMPT_STATUS, "preempt-status", TEXT, "N", "75", NULL,                                     \
      "Exit status of a node that is drained, or stopped by a signal while the job goes on.")      \
    X(EXIT_STATUS, "exit-status", TEXT, "HOW", "worker", NULL,                                     \
      "worker: exit with the status of the worker that failed first; torchrun: exit with 1.")      \
    X(HANG_TIMEOUT, "hang-timeout", TEXT, "TIME", "0", NULL,                                       \
      "Longest pause between two touches of $MUSTER_HEARTBEAT_FILE by a worker. A longer pause "   \
      "is a failure. 0 = no limit.")                                                               \
    X(STARTUP_TIMEOUT, "startup-timeout", TEXT, "TIME", "0", NULL,                                 \
      "Longest time until a worker first touches $MUSTER_HEARTBEAT_FILE. More is a failure. 0 = "  \
      "no limit.")                                                                                 \
    X(PREFLIGHT, "preflight", TEXT, "COMMAND", NULL, NULL,                                         \
      "Shell command to run before this node joins. The node joins only if it succeeds.")          \
    X(EXCLUDE_AFTER, "exclude-after", TEXT, "K", "0", NULL,                                        \
      "Leave the job when workers of this node were the root cause of K failures; 0 = never.")     \
    X(OMP, "omp", TEXT, "N", "auto", NULL,                                                         \
      "OMP_NUM_THREADS of workers, unless set already: a number, auto (usable CPUs / workers) or " \
      "keep.")                                                                                     \
    X(ENV, "env", LIST, "K=V", NULL, NULL, "Set a variable for workers. Repeatable.")              \
    X(CWD, "cwd", TEXT, "DIR", NULL, NULL, "Working directory of workers.")                        \
    X(VIRTUAL_LOCAL_RANK, "virtual-local-rank", FLAG, NULL, NULL, NULL,                            \
      "Every worker sees LOCAL_RANK=0 and one GPU.")                                               \
    X(EVENTS, "events", TEXT, "FILE|fd:N", NULL, NULL,                                             \
      "Append events to a file or descriptor, one JSON object per line.")                          \
    X(LINGER, "linger", TEXT, "TIME", "24h", NULL,                                                 \
      "A node that serves other jobs at the endpoint stays for them at its end, so long at most. " \
      "A signal ends the stay at once. The exit status is that of its own job.")                   \
    X(SERVE, "serve", TEXT, "WHEN", "auto", NULL,                                                  \
      "Whether this node serves the others: auto, never or always, as in muster-join(1).")         \
    X(HOSTS, "hosts", TEXT, "LIST", NULL, NULL,                                                    \
      "Start an agent on each of these hosts: a,b,node[01-16].")                                   \
    X(HOSTFILE, "hostfile", TEXT, "FILE", NULL, NULL, "File with the same hosts, one per line.")   \
    X(LAUNCH, "launch", TEXT, "HOW", NULL, NULL,                                                   \
      "How to start agents on --hosts or on the nodes of the scheduler: ssh or srun.")             \
    X(SSH, "ssh", TEXT, "COMMAND", "ssh", NULL,                                                    \
      "Command for --launch ssh. Its arguments are a host and a command line.")                    \
    X(HOST_TIMEOUT, "host-timeout", TEXT, "TIME", "60s", NULL,                                     \
      "Longest time for such a host to start muster, and later to be silent. It is lost then.")    \
    X(REMOTE_MUSTER, "remote-muster", TEXT, "PATH", NULL, NULL,                                    \
      "Path of muster on these hosts. Default: same as here.")                                     \
    X(LOG_LEVEL, "log-level", TEXT, "LEVEL", "warn", NULL,                                         \
      "Log level of the agent, on stderr: debug, info, warn or error.")                            \
    X(DRY_RUN, "dry-run", FLAG, NULL, NULL, NULL,                                                  \
      "Print the command and variables of each worker, then exit.")                                \
    X(EXPLAIN, "explain", FLAG, NULL, NULL, NULL, "Print each setting with its origin, then exit.")

enum mst__setting {
#define SETTING_ENUM(id, name, kind, argument, preset, other, help) MST_SETTING_##id,
    MST_SETTING_MAP(SETTING_ENUM)
#undef SETTING_ENUM
};
#define MST_SETTING_COUNT (MST_SETTING_EXPLAIN + 1)

struct mst__setting_info {
    const char *name; /* of the option, without leading dashes */
    enum mst__setting_kind kind;
    const char *argument;
    const char *preset; /* NULL = none */
    const char *other;  /* another variable, or NULL */
    const char *help;
};

const struct mst__setting_info *mst__setting_info(enum mst__setting setting);

/* Where a value comes from. Later ones take precedence. */
enum mst__setting_source {
    MST_SOURCE_NONE,
    MST_SOURCE_DEFAULT,
    MST_SOURCE_DERIVED, /* follows from other settings */
    MST_SOURCE_SCHEDULER,
    MST_SOURCE_PET,
    MST_SOURCE_MUSTER,
    MST_SOURCE_OPTION,
};

#define MST_SETTING_LIST_MAX 64

struct mst__setting_value {
    const char *text;   /* NULL = none, or a flag that is off; the last value of a list */
    const char *origin; /* "--nnodes", "PET_NNODES", "SLURM_JOB_NUM_NODES", "default" */
    enum mst__setting_source source;
};

struct mst__setting_list {
    const char *values[MST_SETTING_LIST_MAX];
    size_t count;
};

/* --- values --- */

enum mst__on_join { MST_ON_JOIN_RESTART, MST_ON_JOIN_NEXT_RESTART, MST_ON_JOIN_NEVER };
enum mst__signal_scope { MST_SIGNAL_SCOPE_LEADER, MST_SIGNAL_SCOPE_GROUP };
enum mst__numa_mode {
    MST_NUMA_OFF,
    MST_NUMA_NODE,
    MST_NUMA_SOCKET,
    MST_NUMA_EXCLUSIVE,
    MST_NUMA_CORE_COMPLEX,
};
enum mst__launch { MST_LAUNCH_NONE, MST_LAUNCH_SSH, MST_LAUNCH_SRUN };
enum mst__program_kind { MST_PROGRAM_PLAIN, MST_PROGRAM_SCRIPT, MST_PROGRAM_MODULE };

#define MST_SIGNALS_MAX 32
struct mst__signal_list {
    int numbers[MST_SIGNALS_MAX];
    size_t count;
};

/* What this machine has, see agent/devices.h. */
struct mst__machine {
    int64_t cpus; /* usable ones, > 0 */
    int64_t gpus;
    const char *cpus_origin; /* "cgroup", "affinity"; for --explain */
    const char *gpus_origin;
    const char *hostname;
    uint64_t ignored_signals; /* when this process started: bit N - 1 for signal N */
    uint8_t random[16];       /* for a random run id */
};

struct mst__run_settings {
    struct mst__arena arena;           /* memory of the settings */
    struct mst__arena scheduler_arena; /* the scheduler's texts, see mst__run_settings_adopt */
    struct mst__setting_value values[MST_SETTING_COUNT];
    struct mst__setting_list rdzv_conf, env;
    struct mst__scheduler scheduler;
    struct mst__env environment;
    struct mst__machine machine;

    int64_t nodes_min, nodes_max;
    int64_t nproc;
    int64_t local_first, local_size; /* first LOCAL_RANK of our workers, and LOCAL_WORLD_SIZE */
    const char *backend, *endpoint, *run_id;
    int64_t node_rank;                            /* -1 = not given */
    const char *local_addr;                       /* NULL = not given */
    int64_t max_restarts, max_restarts_window_ms; /* window 0 = the whole run */
    int64_t backoff_min_ms, backoff_max_ms;
    int64_t give_up_count, give_up_ms; /* count 0 = never */
    int64_t grace_ms;
    struct mst__signal_list stop_signals;    /* stop the workers */
    struct mst__signal_list forward_signals; /* are only passed on */
    int64_t notice_ms;
    int64_t end_time_s;          /* 0 = not known */
    const char *end_time_none;   /* why not, see agent/allocation.h */
    int64_t hang_ms, startup_ms; /* 0 = no limit */
    const char *preflight;       /* NULL = none */
    int64_t exclude_after;       /* 0 = never */

    const char *role;
    const char *interpreter; /* of a script or module */
    char *const *program;    /* the program and its arguments, ended by NULL; borrowed */
    const char *cwd;         /* NULL = that of the agent */
    int64_t omp_threads;     /* 0 = do not set OMP_NUM_THREADS */

    const char *log_dir;                           /* NULL = temporary; "" = no files */
    struct mst__rank_streams redirects, tee;       /* per local rank: 1 stdout, 2 stderr */
    struct mst__rank_set console_ranks;            /* empty = all */
    const char **stdout_filters, **stderr_filters; /* ended by NULL */
    const char *prefix_template;
    const char *events; /* NULL = none */
    const char *serve;
    int64_t linger_ms;
    const char *log_level;
    const char *hosts, *hostfile; /* NULL = none */
    const char *ssh;
    int64_t host_ms; /* --host-timeout */

    int stop_signal;
    int notice_signal; /* 0 = none */
    int preempt_status;
    enum mst__signal_scope signal_scope;
    enum mst__on_join on_join;
    enum mst__program_kind program_kind;
    enum mst__numa_mode numa;
    enum mst__launch launch;
    bool is_standalone; /* a private server on a unix socket: backend muster */
    bool is_exit_torchrun;
    bool kills_on_second; /* any second signal ends the grace */
    bool is_virtual_local_rank;
    bool keeps_logs;
    bool is_log_json;
    bool is_dry_run, is_explain;
    bool end_time_is_unknown; /* the scheduler did not answer */
};

/* The options of the command line; zeroed = none. */
struct mst__setting_input {
    const char *texts[MST_SETTING_COUNT]; /* a flag is on if it is not NULL */
    struct mst__setting_list rdzv_conf, env;
};

/**
 * Read all settings: @input, then @environment, then @scheduler (copied). @program and the texts of
 * @input and @environment are borrowed and must outlive the settings.
 *
 * Returns 0, MST_EINVAL with a sentence that names the origin of the wrong value, or MST_ENOMEM.
 * After an error there is nothing to close.
 */
int mst__run_settings_read(const struct mst__setting_input *input,
                           struct mst__env environment,
                           const struct mst__scheduler *scheduler,
                           const struct mst__machine *machine,
                           char *const *program,
                           struct mst__run_settings *ret_settings,
                           struct mst_err *reterr);

/* Take @arena, which has the scheduler's texts. It is empty afterwards. */
void mst__run_settings_adopt(struct mst__run_settings *settings, struct mst__arena *arena);

void mst__run_settings_close(struct mst__run_settings *settings);

#endif /* MST_AGENT_SETTINGS_H */
