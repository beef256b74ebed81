/* base/base64.h - base64 as Python's b64encode and b64decode have it. */
#ifndef MST_BASE_BASE64_H
#define MST_BASE_BASE64_H

#include <muster/error.h>

#include "base/buf.h"

/* Append the encoded or decoded bytes to @output. Reading ignores characters outside the alphabet
 * and ends at the padding, as Python does; MST_EPROTO for a wrong length or padding. Both return 0,
 * MST_ELIMIT or MST_ENOMEM; on error @output is unchanged. */
int mst__base64_write(struct mst__buf *output, struct mst_bytes bytes);
int mst__base64_read(struct mst__buf *output, struct mst_bytes text);

#endif /* MST_BASE_BASE64_H */
