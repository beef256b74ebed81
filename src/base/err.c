/* base/err.c - error texts come from MST_ERR_MAP only, so names and sentences cannot drift
 * apart. */
#include "base/err.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/unicode.h"

static void on_alarm(int number)
{
    (void)number;
    abort();
}

/* Limit the wait for stderr: it may be blocked, and another thread may hold it. The program must
 * end anyway. */
static void limit_last_words(void)
{
    const struct sigaction end = {.sa_handler = on_alarm};
    sigset_t set;
    (void)sigemptyset(&set); /* these cannot fail with such arguments */
    (void)sigaddset(&set, SIGALRM);
    (void)sigaction(SIGALRM, &end, NULL);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    (void)alarm(MST_LAST_WORDS_S);
}

_Noreturn void mst__assert_failed(const char *condition,
                                  const char *file,
                                  int line,
                                  const char *function)
{
    limit_last_words();
    (void)fprintf(stderr, "muster: assertion '%s' failed at %s:%d in %s; please report this bug\n",
                  condition, file, line, function); /* about to abort: a failed write changes
                                                       nothing */
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

/* The size of a message before it is cut, and the mark of a cut. */
#define ERR_WHOLE_SIZE 1024
#define ERR_MORE "…"
/* Longer words are cut inside: a path, a key. */
#define ERR_WORD_MAX 40

/* Where to cut @text, of which @end bytes fit: at the end of a word. */
static size_t err_cut(const char *text, size_t end)
{
    while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80) {
        end--; /* inside a UTF-8 character */
    }
    size_t word = end;
    while (word > 0 && text[word] != ' ') {
        word--;
    }
    end = word > 0 && end - word <= ERR_WORD_MAX ? word : end;
    while (end > 0 && strchr(" :;,", text[end - 1]) != NULL) {
        end--;
    }
    return end;
}

/* A precision in a format counts bytes and may have cut a character in two: drop its first half.
 * Bytes that never were UTF-8 stay, unless they look like such a half. */
static void err_drop_halves(char *text)
{
    size_t to = 0;
    for (size_t at = 0; text[at] != '\0';) {
        unsigned char first = (unsigned char)text[at];
        size_t wanted = 1;
        if (first >= 0xc2 && first <= 0xf4) {
            wanted = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
        }
        size_t size = 1;
        while (size < wanted && ((unsigned char)text[at + size] & 0xc0) == 0x80) {
            size++;
        }
        if (size == wanted) {
            memmove(text + to, text + at, size);
            to += size;
        }
        at += size;
    }
    text[to] = '\0';
}

/* Store @whole, cut to the size of the message. Names and reasons of peers may be in it, and
 * programs print it as it is: what is not plain text is made visible. */
static void err_set(struct mst_err *err, char whole[ERR_WHOLE_SIZE])
{
    char shown[ERR_WHOLE_SIZE];
    err_drop_halves(whole);
    mst__unicode_show(mst_bytes_str(whole), shown, sizeof shown);
    size_t size = strlen(shown);
    if (size < sizeof err->msg) {
        memcpy(err->msg, shown, size + 1);
        return;
    }
    size = err_cut(shown, sizeof err->msg - sizeof ERR_MORE);
    memcpy(err->msg, shown, size);
    memcpy(err->msg + size, ERR_MORE, sizeof ERR_MORE);
}

/* Append ": " and @text to @whole, as far as they fit. */
static void err_append(char whole[ERR_WHOLE_SIZE], const char *text)
{
    size_t used = strlen(whole);
    (void)snprintf(whole + used, ERR_WHOLE_SIZE - used, ": %s", text);
}

/* Callers of MST_ENOMEM and MST_ELIMIT often say only what they were doing. Add the text of the
 * code, unless the message has it. */
static void err_name_cause(char whole[ERR_WHOLE_SIZE], const char *cause, const char *word)
{
    if (strstr(whole, word) != NULL) {
        return;
    }
    char text[ERR_WHOLE_SIZE];
    memcpy(text, whole, sizeof text);
    (void)snprintf(whole, ERR_WHOLE_SIZE, "%s (%.900s)", cause, text); /* cut by err_set */
}

void mst__err_fill(struct mst_err *reterr, int code, int sys, const char *format, ...)
{
    MST_ASSERT(code < 0);
    if (reterr == NULL) {
        return;
    }
    char whole[ERR_WHOLE_SIZE];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(whole, sizeof whole, format, args);
    va_end(args);
    if (sys != 0) {
        char reason[80];
        if (strerror_r(sys, reason, sizeof reason) != 0) {
            (void)snprintf(reason, sizeof reason, "error %d", sys);
        }
        err_append(whole, reason);
    } else if (code == MST_ENOMEM) {
        err_name_cause(whole, "out of memory", "memory");
    } else if (code == MST_ELIMIT) {
        err_name_cause(whole, "limit reached", "limit");
    }
    reterr->code = code;
    mst__err_code(reterr, sys == 0 ? MST_DOMAIN_NONE : MST_DOMAIN_ERRNO, sys);
    err_set(reterr, whole);
}

void mst__err_code(struct mst_err *reterr, enum mst_err_domain domain, int sys)
{
    if (reterr != NULL) {
        reterr->sys = sys;
        reterr->domain = domain;
    }
}

bool mst__err_is_errno(const struct mst_err *err, int number)
{
    MST_ASSERT(number != 0);
    return err->domain == MST_DOMAIN_ERRNO && err->sys == number;
}

int mst__err_wrap(struct mst_err *reterr, int code, const char *format, ...)
{
    MST_ASSERT(code < 0);
    if (reterr == NULL) {
        return code;
    }
    char whole[ERR_WHOLE_SIZE];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(whole, sizeof whole, format, args);
    va_end(args);
    reterr->msg[sizeof reterr->msg - 1] = '\0';
    err_append(whole, reterr->msg);
    reterr->code = code;
    err_set(reterr, whole);
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
