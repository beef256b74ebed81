/* base/exec.c - whether a child has become another program. */
#include "base/exec.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"

_Noreturn void mst__exec_failed(int report_fd)
{
    int reason = errno;
    ssize_t written = write(report_fd, &reason, sizeof reason);
    (void)written; /* nobody is left to tell */
    _exit(127);
}

int mst__exec_await(int report_fd, pid_t pid, const char *program, struct mst_err *reterr)
{
    int reason = 0;
    ssize_t size;
    do {
        size = read(report_fd, &reason, sizeof reason);
    } while (size < 0 && errno == EINTR);
    if (size != sizeof reason) {
        return 0; /* closed by exec */
    }
    pid_t ended;
    do {
        ended = waitpid(pid, NULL, 0); /* it is at its end */
    } while (ended < 0 && errno == EINTR);
    return mst__fail(reterr, MST_ESYS, reason, "run '%.100s'", program);
}
