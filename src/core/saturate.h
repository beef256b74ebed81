/* core/saturate.h - sums of times that saturate instead of wrapping: records and settings may
 * contain any number. */
#ifndef MST_CORE_SATURATE_H
#define MST_CORE_SATURATE_H

#include <stdint.h>

static inline int64_t mst__saturate_add(int64_t a, int64_t b)
{
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) {
        return b < 0 ? INT64_MIN : INT64_MAX;
    }
    return sum;
}

static inline int64_t mst__saturate_subtract(int64_t a, int64_t b)
{
    int64_t difference;
    if (__builtin_sub_overflow(a, b, &difference)) {
        return b < 0 ? INT64_MAX : INT64_MIN;
    }
    return difference;
}

static inline int64_t mst__saturate_multiply(int64_t a, int64_t b)
{
    int64_t product;
    if (__builtin_mul_overflow(a, b, &product)) {
        return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
    }
    return product;
}

#endif /* MST_CORE_SATURATE_H */
