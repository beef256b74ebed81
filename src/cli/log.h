/* cli/log.h - the log of a command: lines go to stderr or a file, and no caller waits for it.
 *
 * A thread writes. Callers put lines into a bounded buffer; if it is full, lines are dropped and
 * counted. Lines of one event beyond MST_LOG_LINES_PER_SECOND are counted as well. Lines of level
 * debug have no limit: a person has enabled them to find something, and they must not use up the
 * limit of graver ones. `ev=log.dropped count=N` and `ev=log.suppressed event=NAME count=N`
 * report the counts.
 *
 * Why a thread, not poll or O_NONBLOCK: stderr is often shared. O_NONBLOCK would apply to every
 * process that has it, and another process may fill the pipe between poll and write. Files and
 * terminals block regardless of poll. */
#ifndef MST_CLI_LOG_H
#define MST_CLI_LOG_H

#include <muster/log.h>
#include <stdbool.h>

struct mst_err;

struct mst__cli_log_options {
    const char *path; /* of a file to append to, borrowed; NULL = stderr */
    enum mst_log_level level;
    bool is_json;      /* one object per line, else `2026-01-31T12:00:00.123456Z info ev=…` */
    bool is_unlimited; /* no limit of lines per event */
};

/* Open the log of this process, once. Any thread may use @ret_log until mst__cli_log_close. 0,
 * MST_ENOMEM, MST_ESYS. */
int mst__cli_log_open(const struct mst__cli_log_options *options,
                      struct mst_log *ret_log,
                      struct mst_err *reterr);

/* Print one line to stderr that is not a log line, such as the error that ends a command: after
 * earlier log lines if the log goes to stderr, else at once. Untrusted text is printed in the form
 * of mst__unicode_take_shown. */
void mst__cli_say(const char *format, ...) MST_PRINTF(1, 2);

/* Reopen the file of the log, which may have been renamed, and log that; on failure keep the open
 * one. A log on stderr only logs the request. For signal handlers. */
void mst__cli_log_reopen(void);

/* End the log, if there is one. Waits for the last lines, at most MST_LOG_FLUSH_MS while stderr is
 * blocked and MST_LOG_FLUSH_MAX_MS in total. No other thread may log any more. */
void mst__cli_log_close(void);

#endif /* MST_CLI_LOG_H */
