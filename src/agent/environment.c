/* agent/environment.c - variables of the process or of a list. */
#include "agent/environment.h"

#include <stdlib.h>
#include <string.h>

static const char *process_get(const void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

struct mst__env mst__env_process(void)
{
    return (struct mst__env){.get = process_get};
}

static const char *entries_get(const void *arg, const char *name)
{
    size_t length = strlen(name);
    for (const char *const *entry = arg; *entry != NULL; entry++) {
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') {
            return *entry + length + 1;
        }
    }
    return NULL;
}

struct mst__env mst__env_entries(const char *const *entries)
{
    return (struct mst__env){.get = entries_get, .arg = entries};
}

const char *mst__env_get(struct mst__env environment, const char *name)
{
    const char *value = environment.get(environment.arg, name);
    return value == NULL || *value == '\0' ? NULL : value;
}
