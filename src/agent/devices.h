/* agent/devices.h - CPUs and GPUs of this machine that workers may use. */
#ifndef MST_AGENT_DEVICES_H
#define MST_AGENT_DEVICES_H

#include "agent/settings.h"

/* The machine to examine. Tests have their own. */
struct mst__devices_place {
    const char *root; /* prefix of /dev, /sys and /proc; "" = this machine */
    struct mst__env environment;
    int64_t affinity_cpus; /* CPUs in the affinity mask; 0 = ask the system */
};

/* Find the CPUs and GPUs. The CPUs are those of the affinity mask, at most the cgroup's quota,
 * rounded up, and at least 1. The GPUs are the entries of CUDA_VISIBLE_DEVICES up to the first -1,
 * none if it is empty, or /dev/nvidia0, 1, ... if it is not set. Also fills in the host name, which
 * is static, and random bytes. */
void mst__devices_find(const struct mst__devices_place *place, struct mst__machine *ret_machine);

#endif /* MST_AGENT_DEVICES_H */
