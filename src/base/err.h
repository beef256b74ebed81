/* base/err.h - filling and wrapping struct mst_err. */
#ifndef MST_BASE_ERR_H
#define MST_BASE_ERR_H

#include <muster/error.h>

/* Fill @reterr (may be NULL). The message is the formatted text, followed by what @sys (an errno)
 * says unless that is 0. With MST_ENOMEM and MST_ELIMIT the text may be what was being done alone:
 * `out of memory (%zu keys)`.
 * One that is too long ends with a whole word and `…`; a character that a precision in @format has
 * cut in two is left out. */
void mst__err_fill(struct mst_err *reterr, int code, int sys, const char *format, ...)
    MST_PRINTF(4, 5);

/* The same, and the value is @code. A macro, so that analyzers see that it is an error. */
#define mst__fail(reterr, code, ...) (mst__err_fill((reterr), (code), __VA_ARGS__), (code))

/* Put "context: " before the message that @reterr (may be NULL) already has; return @code. */
int mst__err_wrap(struct mst_err *reterr, int code, const char *format, ...) MST_PRINTF(3, 4);

/* Pass @err on to @reterr (may be NULL) as it is, with @code; return @code. */
int mst__err_pass(struct mst_err *reterr, int code, const struct mst_err *err);

#endif /* MST_BASE_ERR_H */
