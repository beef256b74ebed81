/* base/library.c - loads a shared library and finds its functions. */
#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

bool mst__library_load(const char *file,
                       const struct mst__library_function *functions,
                       size_t functions_count,
                       char ret_problem[MST_LIBRARY_PROBLEM_SIZE])
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    bool is_whole = library != NULL;
    for (size_t i = 0; i < functions_count && is_whole; i++) {
        void *symbol = dlsym(library, functions[i].name);
        /* dlsym returns a pointer to data; POSIX guarantees this conversion. */
        memcpy(functions[i].ret_function, &symbol, sizeof symbol);
        is_whole = symbol != NULL;
    }
    if (!is_whole) {
        const char *problem = dlerror();
        (void)snprintf(ret_problem, MST_LIBRARY_PROBLEM_SIZE, "%s",
                       problem == NULL ? "incomplete" : problem);
    }
    return is_whole;
}
