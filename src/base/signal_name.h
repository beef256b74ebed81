/* base/signal_name.h - names of signals. */
#ifndef MST_BASE_SIGNAL_NAME_H
#define MST_BASE_SIGNAL_NAME_H

#include <muster/types.h>

/* The number of signal "SIGTERM", "TERM" or "15", in either case; 0 = no such signal. */
int mst__signal_number(struct mst_bytes name);

/* The name "SIGTERM" of a number, in static memory; NULL = it has none. */
const char *mst__signal_name(int number);

#endif /* MST_BASE_SIGNAL_NAME_H */
