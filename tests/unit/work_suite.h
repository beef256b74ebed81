/* unit/work_suite.h - how work ends, for every handler that can tell: all have finished, one has
 * failed, too often, one is gone. */
#ifndef MST_UNIT_WORK_SUITE_H
#define MST_UNIT_WORK_SUITE_H

struct work_suite {
    const char *backend;
    const char *endpoint;
    const char *options;
};

/* Run all tests, and say how many have failed. */
int work_suite_run(const struct work_suite *suite);

#endif /* MST_UNIT_WORK_SUITE_H */
