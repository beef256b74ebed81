/* base/library.h - shared libraries that are loaded when they are first needed.
 *
 * Some bring a dozen others along, whose start costs milliseconds and megabytes in every process
 * that is linked with them. */
#ifndef MST_BASE_LIBRARY_H
#define MST_BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* Why a library cannot be had. */
#define MST_LIBRARY_PROBLEM_SIZE 128

struct mst__library_function {
    const char *name;
    void *ret_function; /* a pointer to a pointer to a function */
};

/* Load the library @file for the rest of the process, and find all @functions in it. False: the
 * reason is in @ret_problem, cut off when it is long, and nothing may be called. */
bool mst__library_load(const char *file,
                       const struct mst__library_function *functions,
                       size_t functions_count,
                       char ret_problem[MST_LIBRARY_PROBLEM_SIZE]);

#endif /* MST_BASE_LIBRARY_H */
