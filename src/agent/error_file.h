/* agent/error_file.h - the report of a failed worker, $TORCHELASTIC_ERROR_FILE.
 *
 * A report has one of the two shapes in error_file.c. Any other text is kept as it is, because a
 * malformed report must not hide the failure. */
#ifndef MST_AGENT_ERROR_FILE_H
#define MST_AGENT_ERROR_FILE_H

#include <muster/error.h>
#include <stdbool.h>

#include "base/arena.h"

struct mst__error_report {
    const char *message;    /* never NULL after a read; the raw text if the shape is unknown */
    const char *call_stack; /* "" = none */
    int64_t timestamp_s;    /* since 1970; 0 = not known */
    int64_t code;           /* errorCode; 0 = none */
    bool is_structured, is_plain; /* neither = raw text */
};

/* Parse a report. The texts are in @arena. Pure. Returns 0 or MST_ENOMEM. */
int mst__error_report_parse(struct mst_bytes text,
                            struct mst__arena *arena,
                            struct mst__error_report *ret_report,
                            struct mst_err *reterr);

/* Read the file at @path, up to MST_ERROR_FILE_SIZE_MAX bytes. Returns 0; MST_ENOTFOUND if the file
 * is missing or empty; MST_ESYS; MST_ENOMEM. */
int mst__error_file_read(const char *path,
                         struct mst__arena *arena,
                         struct mst__error_report *ret_report,
                         struct mst_err *reterr);

/* Copy a worker's error file to @target, the error file of this agent. A structured report without
 * errorCode gets @code. Returns 0, MST_ENOTFOUND, MST_ESYS or MST_ENOMEM. */
int mst__error_file_copy(const char *path, const char *target, int code, struct mst_err *reterr);

#endif /* MST_AGENT_ERROR_FILE_H */
