/* base/log.h - builds log lines. */
#ifndef MST_BASE_LOG_H
#define MST_BASE_LOG_H

#include <muster/log.h>
#include <stdbool.h>

#define MST_LOG_LINE_SIZE 1024

static inline bool mst__log_wants(const struct mst_log *log, enum mst_log_level level)
{
    return log->fn != NULL && level >= log->level;
}

/* Pass one line to the sink: `ev=@event` and the formatted logfmt fields. Text that may contain
 * spaces or comes from outside must go through mst__log_quote; other control characters become
 * question marks. */
void mst__log(const struct mst_log *log,
              enum mst_log_level level,
              const char *event,
              const char *format,
              ...) MST_PRINTF(4, 5);

#define MST_LOG_QUOTE_SIZE 260

/* @text as a logfmt value in @ret_quoted: unchanged if harmless, else in double quotes, with an
 * escape for everything that a terminal does not show; cut off if long. Returns @ret_quoted. */
const char *mst__log_quote(struct mst_bytes text, char ret_quoted[MST_LOG_QUOTE_SIZE]);

/* The same for the arguments of mst__log: the memory belongs to the enclosing block. */
#define MST_LOG_TEXT(text) mst__log_quote(mst_bytes_str(text), (char[MST_LOG_QUOTE_SIZE]){""})

/* Convert a logfmt line to the members of a JSON object, `"ev":"conn.closed","peer":"…"`, without
 * the braces. Values that look like numbers stay numbers. If @ret_size is too small, the result is
 * cut off but well-formed. */
void mst__log_to_json(const char *line, char *ret_json, size_t ret_size);

#endif /* MST_BASE_LOG_H */
