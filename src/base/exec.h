/* base/exec.h - a child that is to become another program tells its parent why it could not,
 * through a pipe that exec closes. */
#ifndef MST_BASE_EXEC_H
#define MST_BASE_EXEC_H

#include <muster/error.h>
#include <sys/types.h>

/* In the child, after exec: tell errno and end. Nothing but system calls. */
_Noreturn void mst__exec_failed(int report_fd);

/* In the parent, whose other end of the pipe is closed: wait until child @pid is @program, or
 * cannot be it, and collect it then. 0, or MST_ESYS with the child's errno in reterr->sys. */
int mst__exec_await(int report_fd, pid_t pid, const char *program, struct mst_err *reterr);

#endif /* MST_BASE_EXEC_H */
