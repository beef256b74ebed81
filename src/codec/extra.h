/* codec/extra.h - unknown attributes, as self-contained opcodes. */
#ifndef MST_CODEC_EXTRA_H
#define MST_CODEC_EXTRA_H

#include "base/buf.h"
#include "codec/machine.h"

/* Append the attribute @key and its @value as opcodes that use no memo: 0; MST_EPROTO if it cannot
 * be preserved; MST_ELIMIT, MST_ENOMEM. On an error the end of @output is undefined. */
int mst__extra_write(struct mst__buf *output,
                     const struct mst__machine *machine,
                     const struct mst__value *key,
                     const struct mst__value *value);

#endif /* MST_CODEC_EXTRA_H */
