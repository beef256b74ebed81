/* base/err.h - filling and wrapping struct mst_err. */
#ifndef MST_BASE_ERR_H
#define MST_BASE_ERR_H

#include <muster/error.h>
#include <stdbool.h>

/* Fill @reterr (may be NULL). The message is the formatted text, followed by what @sys (an errno)
 * says unless that is 0. With MST_ENOMEM and MST_ELIMIT the text may be what was being done alone:
 * `out of memory (%zu keys)`.
 * One that is too long ends with a whole word and `…`; a character that a precision in @format has
 * cut in two is left out. */
void mst__err_fill(struct mst_err *reterr, int code, int sys, const char *format, ...)
    MST_PRINTF(4, 5);

/* The same, and the value is @code. A macro, so that analyzers see that it is an error. */
#define mst__fail(reterr, code, ...) (mst__err_fill((reterr), (code), __VA_ARGS__), (code))

/* The same for a code @sys that is no errno, or whose text @format has already: it is stored with
 * its @domain and adds nothing to the message. */
void mst__err_code(struct mst_err *reterr, enum mst_err_domain domain, int sys);
#define mst__fail_from(reterr, code, domain, sys, ...)                                          \
    (mst__err_fill((reterr), (code), 0, __VA_ARGS__), mst__err_code((reterr), (domain), (sys)), \
     (code))

/* Whether errno @number is behind @err. The number alone does not tell: other families have it. */
bool mst__err_is_errno(const struct mst_err *err, int number);

/* Put "context: " before the message that @reterr (may be NULL) already has; return @code. */
int mst__err_wrap(struct mst_err *reterr, int code, const char *format, ...) MST_PRINTF(3, 4);

/* Pass @err on to @reterr (may be NULL) as it is, with @code; return @code. */
int mst__err_pass(struct mst_err *reterr, int code, const struct mst_err *err);

#endif /* MST_BASE_ERR_H */
