/* base/nearest.h - "did you mean …": the known word nearest to a misspelt one. */
#ifndef MST_BASE_NEAREST_H
#define MST_BASE_NEAREST_H

#include <stddef.h>

/* How many letters to change, add or omit to turn @a into @b; only the first 63 letters count. */
size_t mst__nearest_distance(const char *a, const char *b);

/* The one of @words that is nearest to @word, or NULL if none is near enough. */
const char *mst__nearest(const char *word, const char *const *words, size_t words_count);

#endif /* MST_BASE_NEAREST_H */
