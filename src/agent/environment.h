/* agent/environment.h - the environment as a function, so that tests can replace it. */
#ifndef MST_AGENT_ENVIRONMENT_H
#define MST_AGENT_ENVIRONMENT_H

#include <stddef.h>

/* Returns the value of variable @name, or NULL if it is not set. */
typedef const char *(*mst__env_fn)(const void *arg, const char *name);

struct mst__env {
    mst__env_fn get;
    const void *arg;
};

/* Returns the environment of the process. */
struct mst__env mst__env_process(void);

/* Returns the environment in @entries, "NAME=value" each, ended by NULL. @entries is borrowed. */
struct mst__env mst__env_entries(const char *const *entries);

/* Returns the value of @name, or NULL if it is not set or empty. */
const char *mst__env_get(struct mst__env environment, const char *name);

#endif /* MST_AGENT_ENVIRONMENT_H */
