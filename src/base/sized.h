/* base/sized.h - public structs whose first field, a size_t, is the size that their caller knows.
 *
 * Caller and library may be of different age, so that either may know more fields than the other.
 * <muster/types.h> has the rules. */
#ifndef MST_BASE_SIZED_H
#define MST_BASE_SIZED_H

#include <muster/error.h>

/* Whether the size of @given makes sense. @name, of the struct, is for the message. 0 or
 * MST_EINVAL. */
int mst__sized_check(const void *given, const char *name, struct mst_err *reterr);

/* Fill @size bytes of @to, of which the first are the size, from @defaults (may be NULL). The rest
 * is zeroed. Nothing is written when @size has no room for a size. */
void mst__sized_init(void *to, size_t size, const void *defaults, size_t defaults_size);

/* Take the caller's @given over what is in @to, a struct of @to_size bytes. Fields that an older
 * caller lacks stay as they are. 0; MST_EINVAL for a size that makes no sense and MST_ENOTSUP for
 * something in fields that only a newer library knows, with @to as it was. */
int mst__sized_take(void *to,
                    size_t to_size,
                    const void *given,
                    const char *name,
                    struct mst_err *reterr);

/* Give @from, a struct of @from_size bytes, to the caller's @ret, whose size has been checked and
 * stays. Fields that only a newer caller knows are zeroed. */
void mst__sized_give(void *ret, const void *from, size_t from_size);

#endif /* MST_BASE_SIZED_H */
