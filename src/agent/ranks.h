/* agent/ranks.h - sets of local ranks, and streams per local rank, as texts of options.
 *
 *   `3`            all ranks (0 none, 1 stdout, 2 stderr, 3 both)
 *   `0:3,1:1`      by rank; ranks that are not named have none
 *   `0-7:3,12:1`   by range
 *
 * Pure. Ranks that do not exist are accepted, and have no effect. */
#ifndef MST_AGENT_RANKS_H
#define MST_AGENT_RANKS_H

#include <muster/error.h>
#include <stdbool.h>

#define MST_RANK_RANGES_MAX 256

struct mst__rank_range {
    int64_t first, last;
    int streams;
};

#define MST_STREAM_STDOUT 1
#define MST_STREAM_STDERR 2

/* Streams by rank. */
struct mst__rank_streams {
    int everywhere; /* for ranks in no range */
    struct mst__rank_range ranges[MST_RANK_RANGES_MAX];
    size_t count;
};

/* A set of ranks. Without ranges it has all ranks. */
struct mst__rank_set {
    struct mst__rank_range ranges[MST_RANK_RANGES_MAX];
    size_t count;
};

/* Parse the text of an option. Return 0, or MST_EINVAL with a message such as "'x' is not ...",
 * before which the caller puts the name of the option. */
int mst__rank_streams_parse(const char *text,
                            struct mst__rank_streams *ret_streams,
                            struct mst_err *reterr);
int mst__rank_set_parse(const char *text, struct mst__rank_set *ret_set, struct mst_err *reterr);

/* The streams of @rank, by the last range that contains it. */
int mst__rank_streams_of(const struct mst__rank_streams *streams, int64_t rank);
bool mst__rank_set_has(const struct mst__rank_set *set, int64_t rank);

#endif /* MST_AGENT_RANKS_H */
