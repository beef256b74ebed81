/* muster/log.h - where the library's log lines go.
 *
 * The library never prints. It hands finished lines to the function it was given; without one it is
 * silent. A line is logfmt and its first field is a stable event name:
 * `ev=conn.closed peer=10.0.0.7:51234 why=unknown_opcode opcode=0x47`. */
#ifndef MST_LOG_H
#define MST_LOG_H

#include <muster/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum mst_log_level {
    MST_LOG_DEBUG, /* for developers */
    MST_LOG_INFO,  /* state changes */
    MST_LOG_WARN,  /* we went on anyway */
    MST_LOG_ERROR, /* a person must act */
};

/** Receives one line without a newline, borrowed for the call. It is called from the threads that
 * call into the library and from the library's own, several at the same time, until the server,
 * store or handler that it was given to has been released. It must not call back into that one. */
typedef void (*mst_log_fn)(void *arg, enum mst_log_level level, const char *line);

/** A sink and the least level it wants. Zeroed = silent. */
struct mst_log {
    mst_log_fn fn;
    void *arg;
    enum mst_log_level level;
};

#ifdef __cplusplus
}
#endif
#endif /* MST_LOG_H */
