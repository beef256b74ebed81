/* agent/terminal.h - the terminal of this process. */
#ifndef MST_AGENT_TERMINAL_H
#define MST_AGENT_TERMINAL_H

#include <stdbool.h>

/* Whether Ctrl-C at a terminal reaches this process: it is in the foreground of its terminal.
 * Schedulers start agents without one. */
bool mst__terminal_is_ours(void);

#endif /* MST_AGENT_TERMINAL_H */
