/* cli/cli.h - shared by the subcommands: exit codes, options, output.
 *
 * A subcommand is one file with one function. It describes its options in a table; parsing,
 * `--help` and the option list of its man page all come from that table. */
#ifndef MST_CLI_CLI_H
#define MST_CLI_CLI_H

#include <muster/muster.h>
#include <stdbool.h>

/* Exit codes, the same in all subcommands and documented in muster(1). */
enum mst__exit {
    MST_EXIT_OK = 0,
    MST_EXIT_FAILED = 1,   /* any error without its own code */
    MST_EXIT_USAGE = 2,    /* wrong arguments */
    MST_EXIT_ABSENT = 3,   /* no such key, empty queue */
    MST_EXIT_TIMEOUT = 4,  /* the deadline passed */
    MST_EXIT_CONNECT = 5,  /* no connection, or lost */
    MST_EXIT_DIFFERS = 6,  /* compare-and-set found another value */
    MST_EXIT_UNKNOWN = 7,  /* connection lost; it may or may not have been executed */
    MST_EXIT_CLOSED = 8,   /* the rendezvous is closed */
    MST_EXIT_SPARE = 9,    /* closed while this node was a spare: not needed, not a failure */
    MST_EXIT_STATE = 10,   /* the stored data is not a rendezvous, or the file not a valid
                              journal */
    MST_EXIT_CHANGED = 11, /* the group changed and the command was stopped; no --rejoin */
    MST_EXIT_EXPELLED =
        12,              /* the others count this node as lost, or a newer process has its name */
    MST_EXIT_STUCK = 13, /* run: a worker does not end although it was killed */
    MST_EXIT_EXCLUDED = 14,      /* run: too many failures were those of this node */
    MST_EXIT_PREFLIGHT = 15,     /* run: the check of this node has failed */
    MST_EXIT_NOT_RUNNABLE = 126, /* the command exists and cannot be executed */
    MST_EXIT_NO_COMMAND = 127,   /* the command does not exist */
    MST_EXIT_SIGNAL = 128,       /* plus the number of the signal that ended it, or the command */
};

struct mst__cli_command {
    const char *name;
    const char *summary; /* one line for `muster --help` */
    int (*run)(int argc, char **argv);
};

int mst__cli_serve(int argc, char **argv);
int mst__cli_store(int argc, char **argv);
int mst__cli_etcd(int argc, char **argv);
int mst__cli_join(int argc, char **argv);
int mst__cli_run(int argc, char **argv);
int mst__cli_ps(int argc, char **argv);
int mst__cli_logs(int argc, char **argv);
int mst__cli_restart(int argc, char **argv);
int mst__cli_drain(int argc, char **argv);
int mst__cli_stop(int argc, char **argv);
int mst__cli_status(int argc, char **argv);
int mst__cli_close(int argc, char **argv);
int mst__cli_replay(int argc, char **argv);
int mst__cli_demo(int argc, char **argv);

/* --- options --- */

enum mst__option_kind {
    MST_OPTION_FLAG,      /* bool *: set to true */
    MST_OPTION_TEXT,      /* const char ** */
    MST_OPTION_NUMBER,    /* int64_t *, min … max */
    MST_OPTION_SIZE,      /* int64_t *, bytes: 8K, 16M, 1G, min … max */
    MST_OPTION_DURATION,  /* int64_t *, milliseconds: 250ms, 1.5s, 5m, 2h; bare numbers: seconds */
    MST_OPTION_LIST,      /* struct mst__option_list *: may be given several times */
    MST_OPTION_NOT_BUILT, /* a feature that this build lacks: refused, not in `--help` */
};

#define MST_OPTION_LIST_MAX 64

struct mst__option_list {
    const char *values[MST_OPTION_LIST_MAX];
    size_t count;
};

struct mst__option {
    const char *name;     /* without the dashes */
    const char *argument; /* name of the value in `--help`; NULL for a flag */
    const char *help;     /* one or more sentences */
    enum mst__option_kind kind;
    void *target;
    int64_t min, max; /* NUMBER, SIZE and DURATION; both 0 = any that is not negative */
};

/* A short option, -r for --redirects. */
struct mst__option_letter {
    char letter;
    const char *name;
};

struct mst__usage {
    const char *command;  /* "muster serve" */
    const char *synopsis; /* "[options]", "get URL KEY" … one per line */
    const char *text;     /* a paragraph or more */
    const struct mst__option *options;
    size_t options_count;
    size_t arguments_min, arguments_max;      /* words that are not options */
    const struct mst__option_letter *letters; /* ended by one without a letter; NULL = none */
    bool is_exact; /* no abbreviations: a later option cannot make a command line ambiguous */
};

/**
 * Parse @argv (argv[0] is the subcommand). Underscores in options count as dashes. Options end at
 * `--` and, if a command may follow (arguments_max = SIZE_MAX), at the first word. They may be
 * abbreviated unless @usage has is_exact.
 *
 * Returns true if the subcommand should continue; @ret_arguments is then the index of the first
 * word that is not an option. Returns false if it should exit with @ret_exit: after `--help`, or
 * after an error that has been printed, with the nearest known option for a misspelt one.
 */
bool mst__options_parse(const struct mst__usage *usage,
                        int argc,
                        char **argv,
                        int *ret_arguments,
                        int *ret_exit);

/* Parse a duration or a size as options do; false if malformed. */
bool mst__option_duration(const char *text, int64_t *ret_ms);
bool mst__option_size(const char *text, int64_t *ret_size);

/* --- signals --- */

/* Install @handler for the signals @numbers; interrupted calls are restarted. SIGPIPE is ignored: a
 * closed pipe is an error of the write. */
void mst__cli_catch_signals(const int *numbers, size_t count, void (*handler)(int));

/* --- output --- */

/* Print "muster: " and the error's message to stderr; returns the matching exit code. */
int mst__cli_fail(const struct mst_err *err);

/* A usage error: print it and a pointer to --help; returns MST_EXIT_USAGE. */
int mst__cli_usage_error(const char *command, const char *format, ...) MST_PRINTF(2, 3);

/* The longest line of JSON. */
#define MST_CLI_LINE_SIZE_MAX ((size_t)16 << 20)

/* Write @text to standard output at once. 0 or MST_ESYS. */
int mst__cli_write(struct mst_bytes text, struct mst_err *reterr);

/* Write the line to standard output at once, in one write if possible, and empty it: a reader of a
 * pipe sees it as soon as it is printed. 0, MST_ENOMEM, MST_ELIMIT, MST_ESYS. */
struct mst__json_writer;
int mst__cli_json_print(struct mst__json_writer *json, struct mst_err *reterr);

/* 2026-01-31T12:00:00.123456Z */
#define MST_CLI_STAMP_SIZE 40
void mst__cli_format_stamp(int64_t wall_us, char ret_stamp[MST_CLI_STAMP_SIZE]);

/* Convert "debug", "info", "warn", "error" to a level, false for anything else; and back. */
bool mst__cli_log_level(const char *text, enum mst_log_level *ret_level);
const char *mst__cli_log_level_name(enum mst_log_level level);

#endif /* MST_CLI_CLI_H */
