/* base/sized.h - public structs whose first field, a size_t, is the size that the caller knows.
 *
 * Caller and library may be of different age, so either may know more fields than the other.
 * <muster/types.h> has the rules. */
#ifndef MST_BASE_SIZED_H
#define MST_BASE_SIZED_H

#include <muster/error.h>

/* Check the size in @given. @name, of the struct, is for the message. 0 or MST_EINVAL. */
int mst__sized_check(const void *given, const char *name, struct mst_err *reterr);

/* Set the size and fill the rest of the @size bytes of @to from @defaults (may be NULL), then with
 * zeros. Writes nothing if @to is NULL or @size has no room for a size. */
void mst__sized_init(void *to, size_t size, const void *defaults, size_t defaults_size);

/* Copy the caller's @given to @to, a struct of @to_size bytes. Fields that an older caller lacks
 * keep their values. 0; MST_EINVAL for an impossible size, MST_ENOTSUP for nonzero bytes in fields
 * of a newer library, both with @to unchanged. */
int mst__sized_take(void *to,
                    size_t to_size,
                    const void *given,
                    const char *name,
                    struct mst_err *reterr);

/* Copy @from, a struct of @from_size bytes, to the caller's @ret, whose size was checked and stays.
 * Fields that only a newer caller knows are zeroed. */
void mst__sized_give(void *ret, const void *from, size_t from_size);

#endif /* MST_BASE_SIZED_H */
