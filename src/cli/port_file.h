/* cli/port_file.h - a file that tells others the port of this process while it listens there. */
#ifndef MST_CLI_PORT_FILE_H
#define MST_CLI_PORT_FILE_H

#include <muster/error.h>
#include <stdbool.h>
#include <sys/stat.h>

struct mst__port_file {
    const char *path; /* NULL = nobody wants one */
    struct stat info; /* of what was written */
    bool is_written;
};

/* The process starts: remove what an earlier one left behind, so that nobody takes its port for
 * ours. @path is borrowed. 0, MST_EINVAL when it is no regular file, MST_ESYS. */
int mst__port_file_begin(struct mst__port_file *file, const char *path, struct mst_err *reterr);

/* Write @port and a newline: beside the file first and renamed then, so that a reader never sees
 * half of it. 0, MST_EINVAL (path too long, not a regular file), MST_ESYS. */
int mst__port_file_write(struct mst__port_file *file, int port, struct mst_err *reterr);

/* The process ends: remove the file, unless somebody else has replaced it. */
void mst__port_file_end(struct mst__port_file *file);

#endif /* MST_CLI_PORT_FILE_H */
