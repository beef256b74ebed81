/* agent/settings_self.h - the two halves of settings. */
#ifndef MST_AGENT_SETTINGS_SELF_H
#define MST_AGENT_SETTINGS_SELF_H

#include "agent/settings.h"

/* From texts to what they mean. 0, MST_EINVAL, MST_ENOMEM. */
int mst__run_settings_interpret(struct mst__run_settings *settings, struct mst_err *reterr);

#endif /* MST_AGENT_SETTINGS_SELF_H */
