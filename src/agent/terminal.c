/* agent/terminal.c - asks the terminal for its foreground. */
#include "agent/terminal.h"

#include <fcntl.h>
#include <unistd.h>

bool mst__terminal_is_ours(void)
{
    int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bool is_foreground = tcgetpgrp(fd) == getpgrp();
    (void)close(fd); /* it was only asked */
    return is_foreground;
}
