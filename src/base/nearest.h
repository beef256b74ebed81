/* base/nearest.h - "did you mean …": the known word nearest to a misspelt one. */
#ifndef MST_BASE_NEAREST_H
#define MST_BASE_NEAREST_H

#include <stddef.h>

/* How many letters must be changed, added or left out to turn @a into @b; words are looked at up
 * to 63 letters. */
size_t mst__nearest_distance(const char *a, const char *b);

/* The one of @words nearest to @word, or NULL when none is near enough to be what was meant. */
const char *mst__nearest(const char *word, const char *const *words, size_t words_count);

#endif /* MST_BASE_NEAREST_H */
