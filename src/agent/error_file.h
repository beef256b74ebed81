/* agent/error_file.h - the report of a failed worker, $TORCHELASTIC_ERROR_FILE.
 *
 * Two shapes are understood, see the table in docs; anything else is kept as it is: a report that
 * cannot be read must not hide the failure. */
#ifndef MST_AGENT_ERROR_FILE_H
#define MST_AGENT_ERROR_FILE_H

#include <muster/error.h>
#include <stdbool.h>

#include "base/arena.h"

struct mst__error_report {
    const char *message;          /* never NULL once read; the raw text if nothing else is known */
    const char *call_stack;       /* "" = none */
    int64_t timestamp_s;          /* since 1970; 0 = not known */
    int64_t code;                 /* errorCode; 0 = none */
    bool is_structured, is_plain; /* neither: raw text */
};

/* Pure. Texts are of @arena. 0 or MST_ENOMEM. */
int mst__error_report_parse(struct mst_bytes text,
                            struct mst__arena *arena,
                            struct mst__error_report *ret_report,
                            struct mst_err *reterr);

/* Read the file at @path, up to MST_ERROR_FILE_SIZE_MAX. 0; MST_ENOTFOUND when there is none or it
 * is empty; MST_ESYS, MST_ENOMEM. */
int mst__error_file_read(const char *path,
                         struct mst__arena *arena,
                         struct mst__error_report *ret_report,
                         struct mst_err *reterr);

/* Copy a worker's error file to our own, @target, with @code as errorCode if it is structured. What
 * fails is told and changes nothing else. */
int mst__error_file_copy(const char *path, const char *target, int code, struct mst_err *reterr);

#endif /* MST_AGENT_ERROR_FILE_H */
