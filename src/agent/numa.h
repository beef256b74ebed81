/* agent/numa.h - choose the CPUs of a worker from sysfs; tests pass another root. */
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
/* Parse "0-3,8,10-11", the format of sysfs. Returns false if the text is malformed. */
bool mst__cpu_set_parse(const char *text, struct mst__cpu_set *ret_set);

/* CPUs that this process may use. */
void mst__cpu_set_allowed(struct mst__cpu_set *ret_set);
/* Bind the calling thread. Makes system calls only, for use between fork and exec. Returns 0 or
 * errno. */
int mst__cpu_set_bind(const struct mst__cpu_set *set);

/**
 * Choose the CPUs of worker @local_rank of @nproc, out of @allowed: those near GPU @local_rank, in
 * the driver's order below @root/sys, or without GPUs an even share of the NUMA nodes.
 *
 * Returns 0, MST_EINVAL if no CPU is left, or MST_ESYS if sysfs cannot be read.
 */
int mst__numa_cpus(const char *root,
                   enum mst__numa_mode mode,
                   int64_t local_rank,
                   int64_t nproc,
                   const struct mst__cpu_set *allowed,
                   struct mst__cpu_set *ret_cpus,
                   struct mst_err *reterr);

#endif /* MST_AGENT_NUMA_H */
