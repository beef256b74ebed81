/* base/base64.h - base64 as Python's b64encode and b64decode have it. */
#ifndef MST_BASE_BASE64_H
#define MST_BASE_BASE64_H

#include <muster/error.h>

#include "base/buf.h"

/* The encoded or decoded bytes are appended to @output. Reading drops characters outside
 * the alphabet and ends at the padding, as Python does; MST_EPROTO for a wrong length or padding.
 * Both: 0, MST_ELIMIT, MST_ENOMEM; on error @output is unchanged. */
int mst__base64_write(struct mst__buf *output, struct mst_bytes bytes);
int mst__base64_read(struct mst__buf *output, struct mst_bytes text);

#endif /* MST_BASE_BASE64_H */
