/* cli/port_file.h - a file with the port of this process, while it listens. */
#ifndef MST_CLI_PORT_FILE_H
#define MST_CLI_PORT_FILE_H

#include <muster/error.h>
#include <stdbool.h>
#include <sys/stat.h>

struct mst__port_file {
    const char *path; /* NULL = no file */
    struct stat info; /* of the written file */
    bool is_written;
};

/* At the start: remove the file of an earlier process, whose port could be taken for ours. @path is
 * borrowed. 0, MST_EINVAL if it is not a regular file, MST_ESYS. */
int mst__port_file_begin(struct mst__port_file *file, const char *path, struct mst_err *reterr);

/* Write @port and a newline to a temporary file and rename it, so that a reader never sees a part
 * of it. 0, MST_EINVAL (path too long, not a regular file), MST_ESYS. */
int mst__port_file_write(struct mst__port_file *file, int port, struct mst_err *reterr);

/* At the end: remove the file, unless another process has replaced it. */
void mst__port_file_end(struct mst__port_file *file);

#endif /* MST_CLI_PORT_FILE_H */
