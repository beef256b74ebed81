/* base/assert.h - assertions that stay on in release builds.
 * They are for our own bugs; input from users, peers, files and the system gets an error code. */
#ifndef MST_BASE_ASSERT_H
#define MST_BASE_ASSERT_H

#include <assert.h> /* static_assert */

#define MST_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define MST_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

#define MST_ASSERT(condition) \
    (MST_LIKELY(condition) ? (void)0 : mst__assert_failed(#condition, __FILE__, __LINE__, __func__))

/* Prints one line to stderr and aborts. */
_Noreturn void mst__assert_failed(const char *condition,
                                  const char *file,
                                  int line,
                                  const char *function);

#endif /* MST_BASE_ASSERT_H */
