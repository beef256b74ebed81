/* fuzz/fuzz_etcd_v2.c - any bytes as JSON, and as an answer of etcd's v2 API.
 *
 * The first byte chooses the status and the headers, the rest is the body. JSON that is read can
 * be written and is then read as the same. An answer is complete, or empty with an error. */
#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "etcd/json.h"
#include "etcd/v2.h"

#define WHERE "http://node0:2379"

static void check_json(struct mst_bytes text)
{
    struct mst__json *json = NULL;
    struct mst_err err = {0};
    int rv = mst__json_parse(text, &json, &err);
    if (rv != 0) {
        MST_ASSERT(rv == MST_EPROTO);
        MST_ASSERT(err.code == rv);
        MST_ASSERT(err.msg[0] != '\0');
        return;
    }
    struct mst__buf output;
    struct mst__buf output_again;
    mst__buf_init(&output, MST_MIB(64));
    mst__buf_init(&output_again, MST_MIB(64));
    rv = mst__json_write(json, false, &output);
    MST_ASSERT(rv == 0);
    struct mst__json *again = NULL;
    rv = mst__json_parse(mst__buf_bytes(&output), &again, &err);
    MST_ASSERT(rv == 0);
    rv = mst__json_write(again, false, &output_again);
    MST_ASSERT(rv == 0);
    MST_ASSERT(mst__bytes_equal(mst__buf_bytes(&output), mst__buf_bytes(&output_again)));
    mst__json_free(again);
    mst__json_free(json);
    mst__buf_close(&output);
    mst__buf_close(&output_again);
}

static void check_node(const struct mst__v2_node *node)
{
    MST_ASSERT(node->key != NULL);
    MST_ASSERT(node->value.data != NULL);
    MST_ASSERT(node->value.data[node->value.size] == 0);
    MST_ASSERT(node->node_count == 0 || node->nodes != NULL);
    for (size_t i = 0; i < node->node_count; i++) {
        check_node(&node->nodes[i]);
    }
}

static void check_answer(const struct mst__http_response *response)
{
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    struct mst_err err = {0};
    int rv = mst__v2_answer_read(response, WHERE, &answer, &err);
    if (rv != 0) {
        MST_ASSERT(rv == MST_EPROTO || rv == MST_ENOTSUP || rv == MST_EAUTH || rv == MST_EUNKNOWN ||
                   rv == MST_EINVAL);
        MST_ASSERT(err.code == rv);
        MST_ASSERT(strstr(err.msg, WHERE) != NULL);
        MST_ASSERT(answer.node.key == NULL);
        MST_ASSERT(answer.index == 0);
    } else if (answer.code == MST_V2_OK) {
        check_node(&answer.node);
        if (answer.has_previous) {
            check_node(&answer.previous);
        }
    } else {
        MST_ASSERT(answer.node.key == NULL);
    }
    mst__v2_answer_close(&answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int statuses[] = {200, 201, 404, 412, 500, 401, 400, 403};
    if (size == 0) {
        return 0;
    }
    struct mst_bytes body = mst_bytes_of(data + 1, size - 1);
    check_json(body);
    struct mst__http_response response = {
        .status = statuses[data[0] & 7],
        .is_json = (data[0] & 8) == 0,
        .has_index = (data[0] & 16) != 0,
        .etcd_index = 7,
    };
    mst__buf_init(&response.body, MST_MIB(64));
    int rv = mst__buf_append(&response.body, body);
    MST_ASSERT(rv == 0);
    check_answer(&response);
    mst__buf_close(&response.body);
    return 0;
}
