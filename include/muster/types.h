/* muster/types.h - what every other public header needs: visibility, byte strings.
 *
 * Structs whose first field is `size` may grow at their end. The caller's size decides: a library
 * that is newer than its caller takes defaults for options that the caller lacks, and writes no
 * result beyond the caller's size. One that is older takes a larger struct when all that it does
 * not know is zero, else MST_ENOTSUP, and leaves zero in results that it does not know. Each such
 * struct that a caller makes has a function `mst_NAME_init(&name, sizeof name)`, which works in C,
 * in C++ and through a foreign function interface. Structs without `size` never change. */
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

/** The bytes of a C string, without its NUL, borrowed. @text must not be NULL. */
static inline struct mst_bytes mst_bytes_str(const char *text)
{
    return mst_bytes_of(text, strlen(text));
}

/** Bytes that the library allocated for the caller, who releases them with mst_buffer_free. There
 * is always a NUL behind the last byte, so text can be used as a C string. */
struct mst_buffer {
    uint8_t *data;
    size_t size;
};

/** Release what @buffer holds and empty it. An empty (zeroed) buffer is fine. From any thread, and
 * in a child process after fork as well. */
MST_API void mst_buffer_free(struct mst_buffer *buffer);

#ifdef __cplusplus
}
#endif
#endif /* MST_TYPES_H */
