/* agent/numa.h - which CPUs a worker is bound to. From sysfs; the root is a parameter for tests. */
#ifndef MST_AGENT_NUMA_H
#define MST_AGENT_NUMA_H

#include <sched.h>

#include "agent/settings.h"

#define MST_CPUS_MAX 4096

struct mst__cpu_set {
    uint64_t words[MST_CPUS_MAX / 64];
};

bool mst__cpu_set_has(const struct mst__cpu_set *set, size_t cpu);
void mst__cpu_set_add(struct mst__cpu_set *set, size_t cpu);
size_t mst__cpu_set_count(const struct mst__cpu_set *set);
/* "0-3,8,10-11", as sysfs writes it; false when it is none. */
bool mst__cpu_set_parse(const char *text, struct mst__cpu_set *ret_set);

/* CPUs that this process may use. */
void mst__cpu_set_allowed(struct mst__cpu_set *ret_set);
/* Bind the calling thread: for a child between fork and exec; system calls only. 0 or errno. */
int mst__cpu_set_bind(const struct mst__cpu_set *set);

/**
 * CPUs of worker @local_rank of @nproc: near GPU @local_rank as the driver lists them below
 * @root/sys, or, without GPUs, an even share of the NUMA nodes. @allowed bounds them.
 *
 * Returns 0, MST_EINVAL with a sentence when nothing is left, MST_ESYS when sysfs cannot be read.
 */
int mst__numa_cpus(const char *root,
                   enum mst__numa_mode mode,
                   int64_t local_rank,
                   int64_t nproc,
                   const struct mst__cpu_set *allowed,
                   struct mst__cpu_set *ret_cpus,
                   struct mst_err *reterr);

#endif /* MST_AGENT_NUMA_H */
