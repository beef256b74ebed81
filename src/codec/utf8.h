/* codec/utf8.h - UTF-8 as Python accepts it. */
#ifndef MST_CODEC_UTF8_H
#define MST_CODEC_UTF8_H

#include <muster/types.h>
#include <stdbool.h>

/* Whether @bytes are UTF-8. Lone surrogates are accepted, as in Python's pickles: a host name that
 * is not UTF-8 contains them. */
bool mst__utf8_is_valid(struct mst_bytes bytes);

#endif /* MST_CODEC_UTF8_H */
