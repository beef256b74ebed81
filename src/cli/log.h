/* cli/log.h - the log of a command: lines go to stderr or a file, and nobody waits for it.
 *
 * A thread writes. Callers put lines into a bounded buffer; when that is full, lines are dropped
 * and counted. Lines of one event beyond MST_LOG_LINES_PER_SECOND are counted, too, but for those
 * of level debug: they are on for somebody who looks for something, and must not use up what
 * graver ones may have. `ev=log.dropped count=N` and `ev=log.suppressed event=NAME count=N` tell.
 *
 * A thread and not poll or O_NONBLOCK: stderr is often shared. O_NONBLOCK would be set for
 * everybody who has it, and between poll and write somebody else may fill the pipe. Files and
 * terminals block whatever poll says. */
#ifndef MST_CLI_LOG_H
#define MST_CLI_LOG_H

#include <muster/log.h>
#include <stdbool.h>

struct mst_err;

struct mst__cli_log_options {
    const char *path; /* of a file to append to, borrowed; NULL = stderr */
    enum mst_log_level level;
    bool is_json;      /* one object per line, else `2026-01-31T12:00:00.123456Z info ev=…` */
    bool is_unlimited; /* every line of every event */
};

/* Open the log of this process, once. @ret_log can be used in any thread until mst__cli_log_close.
 * 0, MST_ENOMEM, MST_ESYS. */
int mst__cli_log_open(const struct mst__cli_log_options *options,
                      struct mst_log *ret_log,
                      struct mst_err *reterr);

/* Print one line to stderr that is no log line, such as the error that ends a command: behind the
 * log lines that were put before it if the log goes there, else at once. Text from elsewhere may be
 * in it: it is shown as mst__unicode_take_shown has it. */
void mst__cli_say(const char *format, ...) MST_PRINTF(1, 2);

/* Open the file of the log again, which somebody may have renamed, and log that; on failure go on
 * with the one that is open. A log on stderr just says so. For signal handlers. */
void mst__cli_log_reopen(void);

/* End the log, if there is one. Waits for the last lines to be written, at most
 * MST_LOG_FLUSH_MS while stderr takes nothing and MST_LOG_FLUSH_MAX_MS in all. No other thread may
 * log any more. */
void mst__cli_log_close(void);

#endif /* MST_CLI_LOG_H */
