/* sim/fault.c - the faults by name. */
#include "sim/sim.h"

const char *mst__sim_fault_name(enum mst__sim_fault fault)
{
    static const char *const names[MST_SIM_FAULT_COUNT] = {
        [MST_SIM_FAULT_RESTART] = "restart", [MST_SIM_FAULT_CRASH] = "crash",
        [MST_SIM_FAULT_REVIVE] = "revive",   [MST_SIM_FAULT_BLACKOUT] = "blackout",
        [MST_SIM_FAULT_FREEZE] = "freeze",   [MST_SIM_FAULT_PARTITION] = "partition",
        [MST_SIM_FAULT_LEAVE] = "leave",     [MST_SIM_FAULT_CANCEL] = "cancel",
        [MST_SIM_FAULT_STEP] = "step",       [MST_SIM_FAULT_WIPE] = "wipe",
        [MST_SIM_FAULT_CLOSE] = "close",
    };
    return names[fault];
}
