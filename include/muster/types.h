/* muster/types.h - what every other public header needs: visibility, byte strings.
 *
 * A struct whose first field is `size` may grow at its end in later versions. A library that is
 * newer than its caller uses defaults for options that the caller lacks, and never writes beyond
 * the caller's size. An older library accepts a larger struct if the unknown part is zero, else it
 * returns MST_ENOTSUP; unknown results stay zero. `mst_NAME_init(&name, sizeof name)` prepares such
 * a struct, in C, C++ and through a foreign function interface. Structs without `size` never
 * change. */
#ifndef MST_TYPES_H
#define MST_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MST_API __attribute__((visibility("default")))
#define MST_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define MST_API
#define MST_PRINTF(text, first)
#endif

/** Borrowed bytes: keys and values may hold anything, NUL included. @data may be NULL when @size
 * is 0. */
struct mst_bytes {
    const uint8_t *data;
    size_t size;
};

/** The @size bytes at @data, borrowed. It cannot fail. */
static inline struct mst_bytes mst_bytes_of(const void *data, size_t size)
{
    struct mst_bytes bytes = {(const uint8_t *)data, size};
    return bytes;
}

/** The bytes of a C string, without its NUL, borrowed. None if @text is NULL. */
static inline struct mst_bytes mst_bytes_str(const char *text)
{
    return mst_bytes_of(text, text == NULL ? 0 : strlen(text));
}

/** Bytes allocated by the library; the caller releases them with mst_buffer_free. A NUL follows the
 * last byte, so that text can be used as a C string. */
struct mst_buffer {
    uint8_t *data;
    size_t size;
};

/** Release the memory of @buffer (may be NULL) and empty it. A zeroed buffer is allowed.
 * Thread-safe, also after fork. */
MST_API void mst_buffer_free(struct mst_buffer *buffer);

#ifdef __cplusplus
}
#endif
#endif /* MST_TYPES_H */
