/* cli/signals.c - installs signal handlers. */
#include <signal.h>

#include "base/assert.h"
#include "cli/cli.h"

void mst__cli_catch_signals(const int *numbers, size_t count, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    (void)sigemptyset(&action.sa_mask); /* cannot fail */
    for (size_t i = 0; i < count; i++) {
        int rv = sigaction(numbers[i], &action, NULL);
        MST_ASSERT(rv == 0);
    }
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    int rv = sigaction(SIGPIPE, &ignore, NULL);
    MST_ASSERT(rv == 0);
}
