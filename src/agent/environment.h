/* agent/environment.h - the environment as a function, so that tests can fake it. */
#ifndef MST_AGENT_ENVIRONMENT_H
#define MST_AGENT_ENVIRONMENT_H

#include <stddef.h>

/* The value of variable @name, or NULL. */
typedef const char *(*mst__env_fn)(const void *arg, const char *name);

struct mst__env {
    mst__env_fn get;
    const void *arg;
};

/* That of the process. */
struct mst__env mst__env_process(void);

/* That of @entries, "NAME=value" each, ended by NULL; borrowed. */
struct mst__env mst__env_entries(const char *const *entries);

/* The value of @name; NULL when it is not set, or empty. */
const char *mst__env_get(struct mst__env environment, const char *name);

#endif /* MST_AGENT_ENVIRONMENT_H */
