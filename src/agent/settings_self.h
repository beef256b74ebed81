/* agent/settings_self.h - shared by settings.c and settings_read.c. */
#ifndef MST_AGENT_SETTINGS_SELF_H
#define MST_AGENT_SETTINGS_SELF_H

#include "agent/settings.h"

/* Interpret the texts. Returns 0, MST_EINVAL or MST_ENOMEM. */
int mst__run_settings_interpret(struct mst__run_settings *settings, struct mst_err *reterr);

#endif /* MST_AGENT_SETTINGS_SELF_H */
