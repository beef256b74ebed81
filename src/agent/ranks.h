/* agent/ranks.h - sets of local ranks, and streams per local rank, as options say them.
 *
 *   `3`            all ranks (0 none, 1 stdout, 2 stderr, 3 both)
 *   `0:3,1:1`      by rank; ranks that are not named have none
 *   `0-7:3,12:1`   by range
 *
 * Reading is pure. Ranks that do not exist are kept and never asked for. */
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

/* Which streams of which ranks. */
struct mst__rank_streams {
    int everywhere; /* of ranks in no range */
    struct mst__rank_range ranges[MST_RANK_RANGES_MAX];
    size_t count;
};

/* Ranks; without ranges, all of them. */
struct mst__rank_set {
    struct mst__rank_range ranges[MST_RANK_RANGES_MAX];
    size_t count;
};

/* 0 or MST_EINVAL with a sentence without its beginning: "'x' is not ...". */
int mst__rank_streams_parse(const char *text,
                            struct mst__rank_streams *ret_streams,
                            struct mst_err *reterr);
int mst__rank_set_parse(const char *text, struct mst__rank_set *ret_set, struct mst_err *reterr);

/* The last range that names @rank counts. */
int mst__rank_streams_of(const struct mst__rank_streams *streams, int64_t rank);
bool mst__rank_set_has(const struct mst__rank_set *set, int64_t rank);

#endif /* MST_AGENT_RANKS_H */
