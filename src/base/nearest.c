/* base/nearest.c - edit distance (Levenshtein), one row at a time. */
#include "base/nearest.h"

#include <string.h>

#define WORD_MAX 63

static size_t edits_min(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

size_t mst__nearest_distance(const char *a, const char *b)
{
    size_t a_size = strnlen(a, WORD_MAX);
    size_t b_size = strnlen(b, WORD_MAX);
    size_t row[WORD_MAX + 1];
    for (size_t j = 0; j <= b_size; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_size; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t above = row[j];
            size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = edits_min(above + 1, row[j - 1] + 1, change);
            diagonal = above;
        }
    }
    return row[b_size];
}

const char *mst__nearest(const char *word, const char *const *words, size_t words_count)
{
    const char *best = NULL;
    /* A third of the letters may be wrong; a prefix counts as a match. */
    size_t best_distance = strlen(word) / 3 + 1;
    for (size_t i = 0; i < words_count; i++) {
        size_t distance = mst__nearest_distance(word, words[i]);
        if (strncmp(word, words[i], strlen(word)) == 0) {
            distance = 0;
        }
        if (distance <= best_distance && (best == NULL || distance < best_distance)) {
            best = words[i];
            best_distance = distance;
        }
    }
    return best;
}
