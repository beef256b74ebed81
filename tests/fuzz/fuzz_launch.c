/* fuzz/fuzz_launch.c - texts that a launcher reads: JSON, and lists of names. */
#include <string.h>

#include "base/assert.h"
#include "base/json_reader.h"
#include "base/mem.h"
#include "base/names.h"

#define NAMES_MAX 10000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int count_name(void *arg, const char *name, struct mst_err *reterr)
{
    (void)reterr;
    size_t *count = arg;
    MST_ASSERT(name[0] != '\0');
    return ++*count < NAMES_MAX ? 0 : MST_ELIMIT;
}

/* Parts of a value lie inside it. */
static void look(struct mst_bytes value, int depth)
{
    static const char *const names[] = {"message", "timestamp", "workers", "do"};
    struct mst_bytes found;
    struct mst__buf text;
    int64_t number;
    mst__buf_init(&text, 4 * value.size + 16);
    (void)mst__json_read_text(value, &text);
    (void)mst__json_read_number(value, &number);
    (void)mst__json_read_micro(value, &number);
    mst__buf_close(&text);
    for (size_t i = 0; i < sizeof names / sizeof names[0] && depth < 4; i++) {
        if (mst__json_read_member(value, names[i], &found)) {
            MST_ASSERT(found.data >= value.data);
            MST_ASSERT(found.data + found.size <= value.data + value.size);
            look(found, depth + 1);
        }
    }
    for (bool more = depth < 4 && mst__json_read_begin(&value); more;) {
        more = mst__json_read_item(&value, &found);
        if (more) {
            look(found, depth + 1);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mst_bytes value;
    size_t count = 0;
    char *text = mst__malloc(size + 1);
    if (text == NULL) {
        return 0;
    }
    if (mst__json_read_value(mst_bytes_of(data, size), &value)) {
        look(value, 0);
    }
    look(mst_bytes_of(data, size), 3);
    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    (void)mst__names_walk(text, count_name, &count, NULL);
    mst__free(text);
    return 0;
}
