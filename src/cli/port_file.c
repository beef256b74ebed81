/* cli/port_file.c - telling others the port that was chosen. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/cli.h"

int mst__cli_write_port(const char *path, int port, struct mst_err *reterr)
{
    char temporary[4096];
    int length = snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary) {
        return mst__fail(reterr, MST_EINVAL, 0, "port file '%.100s…': path too long", path);
    }
    FILE *file = fopen(temporary, "we");
    if (file == NULL) {
        return mst__fail(reterr, MST_ESYS, errno, "port file '%s'", temporary);
    }
    bool written = fprintf(file, "%d\n", port) > 0;
    written = fclose(file) == 0 && written;
    if (!written || rename(temporary, path) != 0) {
        int reason = errno;
        (void)unlink(temporary); /* the error is being reported already */
        return mst__fail(reterr, MST_ESYS, reason, "port file '%s'", path);
    }
    return 0;
}
