/* base/err.h - filling and wrapping struct mst_err. */
#ifndef MST_BASE_ERR_H
#define MST_BASE_ERR_H

#include <muster/error.h>
#include <stdbool.h>

/* Fill @reterr (may be NULL). The message is the formatted text, followed by the text of @sys (an
 * errno) unless that is 0. With MST_ENOMEM and MST_ELIMIT the text may be the action alone: `out of
 * memory (%zu keys)`. A long message is cut at a word and ends with `…`; a character that a
 * precision in @format has cut in two is dropped. */
void mst__err_fill(struct mst_err *reterr, int code, int sys, const char *format, ...)
    MST_PRINTF(4, 5);

/* The same, and the value is @code. A macro, so that analyzers see the error code. */
#define mst__fail(reterr, code, ...) (mst__err_fill((reterr), (code), __VA_ARGS__), (code))

/* The same for a code @sys that is not an errno, or whose text is already in the message: it is
 * stored with its @domain and adds nothing to the message. */
void mst__err_code(struct mst_err *reterr, enum mst_err_domain domain, int sys);
#define mst__fail_from(reterr, code, domain, sys, ...)                                          \
    (mst__err_fill((reterr), (code), 0, __VA_ARGS__), mst__err_code((reterr), (domain), (sys)), \
     (code))

/* Whether the cause of @err is errno @number. Other families have the same numbers, so compare with
 * this. */
bool mst__err_is_errno(const struct mst_err *err, int number);

/* Prepend "context: " to the message in @reterr (may be NULL); return @code. */
int mst__err_wrap(struct mst_err *reterr, int code, const char *format, ...) MST_PRINTF(3, 4);

/* Copy @err to @reterr (may be NULL), with @code; return @code. */
int mst__err_pass(struct mst_err *reterr, int code, const struct mst_err *err);

#endif /* MST_BASE_ERR_H */
