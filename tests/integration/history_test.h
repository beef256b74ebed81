/* history_test.h - a test of the checker: it accepts right histories and rejects wrong ones. */
#ifndef MST_TESTS_HISTORY_TEST_H
#define MST_TESTS_HISTORY_TEST_H

/* Judge histories with known verdicts; prints and returns the number of wrong judgements. */
int mst__history_self_test(void);

#endif /* MST_TESTS_HISTORY_TEST_H */
