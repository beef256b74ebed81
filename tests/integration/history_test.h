/* history_test.h - does the checker accept what is right and reject what is wrong? */
#ifndef MST_TESTS_HISTORY_TEST_H
#define MST_TESTS_HISTORY_TEST_H

/* Judge histories whose verdict is known; prints and returns how many were judged wrongly. */
int mst__history_self_test(void);

#endif /* MST_TESTS_HISTORY_TEST_H */
