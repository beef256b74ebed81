/* fuzz/fuzz_pickle.c - any bytes as a record, and as base64.
 *
 * A record that is read can be written in its own dialect and is then read as the same; writing
 * twice gives the same bytes. */
#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/base64.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "codec/pickle.h"

/* The record is written with its unknown attributes; that may be longer than the input. */
#define OUTPUT_SIZE_MAX (4 * MST_PICKLE_SIZE_MAX)

static void check_record(const struct mst__state *state)
{
    struct mst__buf output;
    struct mst__buf output_again;
    mst__buf_init(&output, OUTPUT_SIZE_MAX);
    mst__buf_init(&output_again, OUTPUT_SIZE_MAX);
    int rv = mst__pickle_write(&output, state);
    MST_ASSERT(rv == 0);
    struct mst__state again;
    mst__state_init(&again);
    struct mst_err err;
    rv = mst__pickle_read(mst__buf_bytes(&output), &again, &err);
    MST_ASSERT(rv == 0);
    MST_ASSERT(mst__state_equal(state, &again));
    rv = mst__pickle_write(&output_again, &again);
    MST_ASSERT(rv == 0);
    MST_ASSERT(mst__bytes_equal(mst__buf_bytes(&output), mst__buf_bytes(&output_again)));
    mst__state_close(&again);
    mst__buf_close(&output);
    mst__buf_close(&output_again);
}

static void check_base64(struct mst_bytes bytes)
{
    struct mst__buf text;
    struct mst__buf decoded;
    mst__buf_init(&text, OUTPUT_SIZE_MAX);
    mst__buf_init(&decoded, OUTPUT_SIZE_MAX);
    int rv = mst__base64_write(&text, bytes);
    MST_ASSERT(rv == 0);
    rv = mst__base64_read(&decoded, mst__buf_bytes(&text));
    MST_ASSERT(rv == 0);
    MST_ASSERT(mst__bytes_equal(mst__buf_bytes(&decoded), bytes));
    /* The input itself as base64: any result within bounds. */
    mst__buf_clear(&decoded);
    rv = mst__base64_read(&decoded, bytes);
    MST_ASSERT(rv == 0 || rv == MST_EPROTO);
    MST_ASSERT(mst__buf_size(&decoded) <= bytes.size);
    mst__buf_close(&text);
    mst__buf_close(&decoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mst__state state;
    mst__state_init(&state);
    struct mst_err err = {0};
    int rv = mst__pickle_read(mst_bytes_of(data, size), &state, &err);
    if (rv == 0) {
        check_record(&state);
    } else {
        MST_ASSERT(rv == MST_EPROTO || rv == MST_ELIMIT);
        MST_ASSERT(err.code == rv);
        MST_ASSERT(err.msg[0] != '\0');
        MST_ASSERT(state.members_count == 0);
        MST_ASSERT(state.extra.size == 0);
    }
    mst__state_close(&state);
    check_base64(mst_bytes_of(data, size));
    return 0;
}
