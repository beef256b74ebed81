/* base/library.c - dlopen, and a function by its name. */
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
        /* A pointer to a function in the clothes of one to data: POSIX has it no other way. */
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
