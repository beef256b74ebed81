/* muster/error.h - error codes, and the sentence that goes with one.
 *
 * A call that can fail returns 0 or a negative MST_E code. If it takes a `struct mst_err *`, it
 * fills that on failure only: what failed, with which peer, and what to do. It may be NULL. The
 * calls of this header are thread-safe and async-signal-safe, and cannot fail.
 *
 * An argument may be NULL where the comment of its call says so. So may the pointer for a callback,
 * an array without elements, and the data of no bytes. With any other NULL, a call that can fail
 * returns MST_EINVAL, and the error names the argument; the rest do nothing, and return 0, false,
 * NULL or an empty text. */
#ifndef MST_ERROR_H
#define MST_ERROR_H

#include <muster/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The error codes: MST_EINVAL is -1, and so on. The numbers are part of the wire and the ABI:
 * append, never renumber. */
#define MST_ERR_MAP(X)                                          \
    X(-1, EINVAL, "argument or event not valid")                \
    X(-2, ENOMEM, "out of memory")                              \
    X(-3, ELIMIT, "configured limit reached")                   \
    X(-4, EPROTO, "peer broke the wire protocol")               \
    X(-5, ESYS, "system call failed")                           \
    X(-6, ETIMEOUT, "deadline passed")                          \
    X(-7, ENOTFOUND, "no such key")                             \
    X(-8, ENOTSUP, "not supported by this store or peer")       \
    X(-9, ECONN, "connection failed or lost")                   \
    X(-10, EUNKNOWN, "connection lost, outcome unknown")        \
    X(-11, ERESOLVE, "host name not resolved")                  \
    X(-12, ETYPE, "stored value is not a number")               \
    X(-13, ECLOSED, "closed")                                   \
    X(-14, ESPARE, "closed while a spare, which is no failure") \
    X(-15, ESTATE, "stored record is not a rendezvous")         \
    X(-16, ECANCELED, "cancelled")                              \
    X(-17, EAUTH, "user, password or certificate refused")      \
    X(-18, EEXPELLED, "place of this node is lost or taken")    \
    X(-19, EFINISHED, "the job has finished")

enum mst_errcode {
#define MST_ERR_ENUM(number, name, text) MST_##name = (number),
    MST_ERR_MAP(MST_ERR_ENUM)
#undef MST_ERR_ENUM
};

/** The family of numbers that a system code belongs to. Codes of libuv are stored as the errno that
 * they stand for. Numbers are ABI: append, never renumber. */
enum mst_err_domain {
    MST_DOMAIN_NONE = 0,   /* there is no system code */
    MST_DOMAIN_ERRNO = 1,  /* errno: strerror() */
    MST_DOMAIN_GAI = 2,    /* getaddrinfo: gai_strerror() */
    MST_DOMAIN_CURL = 3,   /* CURLcode: curl_easy_strerror() */
    MST_DOMAIN_EXIT = 4,   /* exit status of a process; 0 is one */
    MST_DOMAIN_SIGNAL = 5, /* number of the signal that ended a process: strsignal() */
};

/** One error. The memory is the caller's, nothing in it is on the heap, and its size never changes.
 * One per thread: calls write it without a lock. */
struct mst_err {
    int code;                   /* MST_E... */
    int sys;                    /* the system code behind it, or 0 */
    enum mst_err_domain domain; /* the family that sys is from */
    /* "connect to 'node0:29400': Connection refused"; a long one ends with `…`. It can be printed:
     * control characters in names and reasons are written as `\xNN`. */
    char msg[200];
};

/** "ETIMEOUT" for MST_ETIMEOUT; "EUNDEFINED" for an unknown number. Static memory. */
MST_API const char *mst_errname(int code);

/** One sentence for any @code. Static memory. */
MST_API const char *mst_strerror(int code);

#ifdef __cplusplus
}
#endif
#endif /* MST_ERROR_H */
