/* wire/refusal.c - refusals of store requests, both directions. */
#include "wire/refusal.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"

/* As a length or a count it is beyond every limit, and its first byte is no status. */
static const uint8_t head[MST_WIRE_REFUSAL_HEAD_SIZE] = {
    MST_WIRE_REFUSAL_FIRST, 'm', 'u', 's', 't', 'e', 'r', '!'};

int mst__wire_write_refusal(struct mst__buf *output,
                            int code,
                            enum mst__refusal refusal,
                            struct mst_bytes text)
{
    const struct mst__job_message message = {
        .type = MST_JOB_REFUSED,
        .u.refused = {.code = code, .refusal = (uint32_t)refusal, .text = text},
    };
    size_t size_before = mst__buf_size(output);
    int rv = mst__buf_append(output, mst_bytes_of(head, sizeof head));
    rv = rv != 0 ? rv : mst__job_write(output, &message);
    if (rv != 0) {
        mst__buf_truncate(output, size_before);
    }
    return rv;
}

int mst__wire_read_refusal(struct mst_bytes input,
                           struct mst__job_message *ret_message,
                           size_t *ret_size,
                           struct mst_err *reterr)
{
    MST_ASSERT(input.size > 0 && input.data[0] == MST_WIRE_REFUSAL_FIRST);
    size_t have = input.size < sizeof head ? input.size : sizeof head;
    if (memcmp(input.data, head, have) != 0) {
        return MST_ENOTFOUND;
    }
    *ret_size = sizeof head;
    if (have < sizeof head) {
        return 0;
    }
    int rv = mst__job_read(mst__bytes_skip(input, sizeof head), MST_JOB_SIZE_MAX, ret_message,
                           ret_size, reterr);
    *ret_size += sizeof head;
    if (rv == 1 && ret_message->type != MST_JOB_REFUSED) {
        return mst__fail(reterr, MST_EPROTO, 0, "message '%s' in place of a refusal",
                         mst__job_type_name(ret_message->type));
    }
    return rv;
}
