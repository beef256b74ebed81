/* codec/datetime.h - the packed form of Python's datetime. */
#ifndef MST_CODEC_DATETIME_H
#define MST_CODEC_DATETIME_H

#include <stdbool.h>
#include <stdint.h>

/* Year in two bytes, month, day, hour, minute, second, microsecond in three; big-endian. */
#define MST_DATETIME_SIZE 10

/* 0001-01-01T00:00:00 and 9999-12-31T23:59:59.999999 in microseconds since 1970. */
#define MST_DATETIME_MIN_US INT64_C(-62135596800000000)
#define MST_DATETIME_MAX_US INT64_C(253402300799999999)

/* Microseconds since 1970; false if it is not a date. The mark of the second of two equal wall
 * clock times (`fold`) means nothing in UTC and is dropped. */
bool mst__datetime_read(const uint8_t raw[MST_DATETIME_SIZE], int64_t *ret_us);

/* The reverse; false if Python has no such year. */
bool mst__datetime_write(int64_t us, uint8_t ret_raw[MST_DATETIME_SIZE]);

#endif /* MST_CODEC_DATETIME_H */
