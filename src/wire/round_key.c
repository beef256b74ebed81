/* wire/round_key.c - writes and reads the keys of a round. */
#include "wire/round_key.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/percent.h"

#define BEGIN "muster."

void mst__round_prefix(struct mst_bytes run_id,
                       uint64_t epoch,
                       int64_t round,
                       char ret_text[MST_ROUND_PREFIX_SIZE])
{
    MST_ASSERT(run_id.size <= MST_JOB_RUN_ID_SIZE_MAX);
    size_t used = sizeof BEGIN - 1;
    memcpy(ret_text, BEGIN, used);
    /* A slash in the run id would end the prefix. */
    used +=
        mst__percent_write(run_id, MST_PERCENT_NAME, ret_text + used, MST_ROUND_PREFIX_SIZE - used);
    (void)snprintf(ret_text + used, MST_ROUND_PREFIX_SIZE - used, ".%" PRIu64 ".%" PRId64, epoch,
                   round); /* sized to fit */
}

/* Take the number after the last dot off @text. */
static bool take_number(struct mst_bytes *text, uint64_t max, uint64_t *ret_number)
{
    size_t at = text->size;
    while (at > 0 && text->data[at - 1] >= '0' && text->data[at - 1] <= '9') {
        at--;
    }
    size_t count = text->size - at;
    /* Accept one form of a number only, so that each round has one prefix. */
    if (at == 0 || text->data[at - 1] != '.' || count == 0 ||
        (count > 1 && text->data[at] == '0')) {
        return false;
    }
    uint64_t number = 0;
    for (size_t i = at; i < text->size; i++) {
        unsigned digit = (unsigned)(text->data[i] - '0');
        if (number > (max - digit) / 10) {
            return false;
        }
        number = number * 10 + digit;
    }
    text->size = at - 1;
    *ret_number = number;
    return true;
}

/* Decode the run id as mst__round_prefix encodes it. */
static bool read_run_id(struct mst_bytes text, struct mst__round_key *ret_key)
{
    ret_key->run_id_size = 0;
    while (text.size > 0) {
        if (!mst__percent_is_plain(text.data[0], MST_PERCENT_NAME "%") ||
            ret_key->run_id_size == sizeof ret_key->run_id ||
            !mst__percent_take(&text, &ret_key->run_id[ret_key->run_id_size])) {
            return false;
        }
        ret_key->run_id_size++;
    }
    return ret_key->run_id_size > 0;
}

bool mst__round_key_read(struct mst_bytes key, struct mst__round_key *ret_key)
{
    struct mst_bytes begin = mst_bytes_str("/" BEGIN);
    if (!mst__bytes_start_with(key, begin)) {
        return false;
    }
    struct mst_bytes text = mst__bytes_skip(key, begin.size);
    const uint8_t *end = memchr(text.data, '/', text.size);
    uint64_t round;
    if (end == NULL) {
        return false;
    }
    text.size = (size_t)(end - text.data);
    if (!take_number(&text, INT64_MAX, &round) ||
        !take_number(&text, UINT64_MAX, &ret_key->epoch)) {
        return false;
    }
    ret_key->round = (int64_t)round;
    return read_run_id(text, ret_key);
}
