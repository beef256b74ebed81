/* cli/expect.h - the nodes that should come, by name, and which of them are there. */
#ifndef MST_CLI_EXPECT_H
#define MST_CLI_EXPECT_H

#include <muster/error.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/map.h"
#include "cli/json.h"

/* Append @name to a list of which the first MST_NAMES_SHOWN are shown, as number *@count, which is
 * increased; and at the end how many were not shown. @rv as of mst__cli_put_foreign. */
void mst__names_put(struct mst__buf *text, size_t *count, struct mst_bytes name, int *rv);
void mst__names_put_more(struct mst__buf *text, size_t count, int *rv);

/* Whether nodes of @backend have names that can be expected. */
bool mst__expect_is_possible(const char *backend);

/* In the order in which they were given. */
struct mst__expect {
    struct mst__map map; /* name to struct mst__expected */
};

struct mst__expected {
    bool is_here;
    bool was_here; /* ever */
};

/**
 * Read `node[1-20],master`: names with commas between them, in which `[1-3,07]` stands for each of
 * the numbers; as many digits as the first one has if that begins with a zero.
 *
 * Returns 0, MST_EINVAL with what is wrong, MST_ELIMIT, MST_ENOMEM. Released with mst__expect_close
 * also after an error.
 */
int mst__expect_parse(const char *text, struct mst__expect *ret_expect, struct mst_err *reterr);

void mst__expect_close(struct mst__expect *expect);

/* A new look: nobody has been seen to be there yet. */
void mst__expect_begin(struct mst__expect *expect);

/* @node is there. It is the one of its name; or else of its host, `node7` of `node7_4711_803` and
 * of `node7.cluster.example_4711_803`. */
void mst__expect_see(struct mst__expect *expect, struct mst_bytes node);

/* How many are not there; with @ever, have never been. */
size_t mst__expect_missing(const struct mst__expect *expect, bool ever);

/* Append the first few of those, "a, b and 3 more". @rv as of mst__cli_put_foreign. */
void mst__expect_put_missing(const struct mst__expect *expect,
                             bool ever,
                             struct mst__buf *text,
                             int *rv);

/* Put those who are not there as an array "missing". */
void mst__expect_json(const struct mst__expect *expect, struct mst__cli_json *json);

#endif /* MST_CLI_EXPECT_H */
