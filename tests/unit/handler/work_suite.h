/* unit/handler/work_suite.h - how work ends, for every handler that can tell: all have finished,
 * one has failed, too often, one is gone. */
#ifndef MST_UNIT_WORK_SUITE_H
#define MST_UNIT_WORK_SUITE_H

#include "unit/unit.h"

struct work_suite {
    const char *backend;
    const char *endpoint; /* NULL = there is none: the tests are skipped */
    const char *options;
    bool has_authority; /* which decides; agents of torch cannot take part */
};

#define WORK_SUITE_TESTS 9

/* The tests of @suite, which outlives them. */
void work_suite_add(const struct work_suite *suite, struct CMUnitTest ret_tests[WORK_SUITE_TESTS]);

#endif /* MST_UNIT_WORK_SUITE_H */
