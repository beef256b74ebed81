/* base/err.c - error texts come from MST_ERR_MAP alone, so names and sentences cannot drift. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

_Noreturn void mst__assert_failed(const char *condition,
                                  const char *file,
                                  int line,
                                  const char *function)
{
    (void)fprintf(stderr, "muster: assertion '%s' failed at %s:%d in %s; please report this bug\n",
                  condition, file, line, function); /* about to abort: nothing to do if it fails */
    abort();
}

const char *mst_errname(int code)
{
    switch (code) {
#define ERR_NAME(number, name, text) \
    case (number):                   \
        return #name;
        MST_ERR_MAP(ERR_NAME)
#undef ERR_NAME
        default:
            return code == 0 ? "OK" : "EUNDEFINED";
    }
}

const char *mst_strerror(int code)
{
    switch (code) {
#define ERR_TEXT(number, name, text) \
    case (number):                   \
        return (text);
        MST_ERR_MAP(ERR_TEXT)
#undef ERR_TEXT
        default:
            return code == 0 ? "no error" : "number is no error code";
    }
}

/* Put ": " and @text behind the @used bytes of the message, as far as they fit. */
static void err_append(struct mst_err *err, int used, const char *text)
{
    if (used < 0 || (size_t)used + 2 >= sizeof err->msg) {
        return;
    }
    char *to = err->msg + used;
    size_t room = sizeof err->msg - (size_t)used - 3;
    size_t size = strlen(text) < room ? strlen(text) : room;
    memcpy(to, ": ", 2);
    memcpy(to + 2, text, size);
    to[2 + size] = '\0';
}

/* Memory and limits are run into while something is done, and callers know only what; so the code
 * says the rest, unless the message does. */
static void err_name_cause(struct mst_err *err, const char *cause, const char *word)
{
    if (strstr(err->msg, word) != NULL) {
        return;
    }
    char text[sizeof err->msg];
    memcpy(text, err->msg, sizeof text);
    int length = snprintf(err->msg, sizeof err->msg, "%s (%s)", cause, text);
    if (length < 0 || (size_t)length >= sizeof err->msg) {
        err->msg[sizeof err->msg - 2] = ')';
    }
}

void mst__err_fill(struct mst_err *reterr, int code, int sys, const char *format, ...)
{
    MST_ASSERT(code < 0);
    if (reterr == NULL) {
        return;
    }
    reterr->code = code;
    reterr->sys = sys;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(reterr->msg, sizeof reterr->msg, format, args);
    va_end(args);
    if (sys != 0) {
        char reason[80];
        if (strerror_r(sys, reason, sizeof reason) != 0) {
            (void)snprintf(reason, sizeof reason, "error %d", sys);
        }
        err_append(reterr, length, reason);
    } else if (code == MST_ENOMEM) {
        err_name_cause(reterr, "out of memory", "memory");
    } else if (code == MST_ELIMIT) {
        err_name_cause(reterr, "limit reached", "limit");
    }
}

int mst__err_wrap(struct mst_err *reterr, int code, const char *format, ...)
{
    MST_ASSERT(code < 0);
    if (reterr == NULL) {
        return code;
    }
    char inner[sizeof reterr->msg];
    memcpy(inner, reterr->msg, sizeof inner);
    inner[sizeof inner - 1] = '\0';
    va_list args;
    va_start(args, format);
    int length = vsnprintf(reterr->msg, sizeof reterr->msg, format, args);
    va_end(args);
    err_append(reterr, length, inner);
    reterr->code = code;
    return code;
}

int mst__err_pass(struct mst_err *reterr, int code, const struct mst_err *err)
{
    MST_ASSERT(code < 0);
    if (reterr != NULL) {
        *reterr = *err;
        reterr->code = code;
    }
    return code;
}
