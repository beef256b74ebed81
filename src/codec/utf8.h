/* codec/utf8.h - which bytes Python takes for text. */
#ifndef MST_CODEC_UTF8_H
#define MST_CODEC_UTF8_H

#include <muster/types.h>
#include <stdbool.h>

/* Whether @bytes are UTF-8. Lone surrogates pass, as they do in Python's pickles: a host name that
 * is not UTF-8 holds them. */
bool mst__utf8_is_valid(struct mst_bytes bytes);

#endif /* MST_CODEC_UTF8_H */
