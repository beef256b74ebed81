/* agent/allocation.h - asks the scheduler what its variables do not say. */
#ifndef MST_AGENT_ALLOCATION_H
#define MST_AGENT_ALLOCATION_H

#include "agent/settings.h"

/* If the end of this node's time matters, for a notice or for --explain, and no variable has it,
 * ask squeue when the job of Slurm ends. That takes a few seconds at most. Afterwards @settings has
 * the time, or in end_time_none why there is none. */
void mst__allocation_find_end(struct mst__run_settings *settings);

#endif /* MST_AGENT_ALLOCATION_H */
