/* agent/devices.h - CPUs and GPUs of this machine that workers may use. */
#ifndef MST_AGENT_DEVICES_H
#define MST_AGENT_DEVICES_H

#include "agent/settings.h"

/* Where things are; "" = the machine itself. Tests have their own. */
struct mst__devices_place {
    const char *root; /* before /dev, /sys, /proc */
    struct mst__env environment;
    int64_t affinity_cpus; /* CPUs of our affinity mask; 0 = ask the system */
};

/* CPUs: those of our affinity mask, but no more than the cgroup's quota, rounded up; at least 1.
 * GPUs: entries of CUDA_VISIBLE_DEVICES (up to the first that is -1, none if it is empty), else
 * /dev/nvidia0, 1, ... The host name and random bytes are filled in, too; the name is static. */
void mst__devices_find(const struct mst__devices_place *place, struct mst__machine *ret_machine);

#endif /* MST_AGENT_DEVICES_H */
