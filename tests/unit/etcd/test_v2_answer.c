/* unit/etcd/test_v2_answer.c - recorded answers of etcds to the v2 API.
 *
 * The arguments are files of recorded exchanges: every answer about keys is parsed and compared
 * with the text, member by member. */
#include <jansson.h>

#include "base/err.h"
#include "base/mem.h"
#include "etcd/v2.h"
#include "unit/unit.h"

#define WHERE "http://node0:2379"

static char **files;
static int file_count;

/* An answer made of its parts. */
static void make_response(struct mst__http_response *response,
                          int status,
                          bool is_json,
                          const char *body)
{
    mst__http_response_init(response);
    response->status = status;
    response->is_json = is_json;
    assert_int_equal(mst__buf_append(&response->body, mst_bytes_str(body)), 0);
}

static int read_text(int status,
                     bool is_json,
                     const char *body,
                     struct mst__v2_answer *answer,
                     struct mst_err *reterr)
{
    struct mst__http_response response;
    make_response(&response, status, is_json, body);
    int rv = mst__v2_answer_read(&response, WHERE, answer, reterr);
    mst__http_response_close(&response);
    return rv;
}

/* --- recorded answers --- */

static void assert_text_member(const json_t *json, const char *name, const char *text, size_t size)
{
    const json_t *member = json_object_get(json, name);
    if (member == NULL) {
        assert_int_equal(size, 0);
        return;
    }
    assert_bytes(mst_bytes_of(text, size),
                 mst_bytes_of(json_string_value(member), json_string_length(member)));
    assert_int_equal(text[size], 0); /* usable as a C string */
}

static void assert_node(const json_t *json, const struct mst__v2_node *node)
{
    assert_true(json_is_object(json));
    assert_text_member(json, "key", node->key, strlen(node->key));
    assert_text_member(json, "value", (const char *)node->value.data, node->value.size);
    assert_int_equal(node->is_dir, json_is_true(json_object_get(json, "dir")));
    assert_int_equal(node->modified, json_integer_value(json_object_get(json, "modifiedIndex")));
    assert_int_equal(node->created, json_integer_value(json_object_get(json, "createdIndex")));
    assert_int_equal(node->has_ttl, json_object_get(json, "expiration") != NULL);
    assert_int_equal(node->ttl_s, json_integer_value(json_object_get(json, "ttl")));
    const json_t *nodes = json_object_get(json, "nodes");
    assert_int_equal(node->node_count, json_array_size(nodes));
    for (size_t i = 0; i < node->node_count; i++) {
        assert_node(json_array_get(nodes, i), &node->nodes[i]);
    }
}

static void assert_event(const json_t *body, const struct mst__v2_answer *answer)
{
    static const char *const names[] = {
        [MST_V2_GET] = "get",
        [MST_V2_SET] = "set",
        [MST_V2_CREATE] = "create",
        [MST_V2_UPDATE] = "update",
        [MST_V2_COMPARE_AND_SWAP] = "compareAndSwap",
        [MST_V2_COMPARE_AND_DELETE] = "compareAndDelete",
        [MST_V2_DELETE] = "delete",
        [MST_V2_EXPIRE] = "expire",
    };
    assert_int_equal(answer->code, MST_V2_OK);
    assert_string_equal(names[answer->action], json_string_value(json_object_get(body, "action")));
    assert_node(json_object_get(body, "node"), &answer->node);
    const json_t *previous = json_object_get(body, "prevNode");
    assert_int_equal(answer->has_previous, previous != NULL);
    if (previous != NULL) {
        assert_node(previous, &answer->previous);
    }
}

/* The mapping of etcd's codes: 0 = an answer about keys. */
static int code_wanted(json_int_t code)
{
    switch (code) {
        case 100:
        case 101:
        case 102:
        case 104:
        case 105:
        case 107:
        case 108:
        case 401:
            return 0;
        case 110:
            return MST_EAUTH;
        case 201:
        case 202:
        case 203:
        case 209:
        case 211:
        case 212:
            return MST_EINVAL;
        case 300:
            return MST_EUNKNOWN;
        default:
            fail_msg("code %lld is new here", (long long)code);
            return 0;
    }
}

static void assert_error(const json_t *body,
                         int rv,
                         const struct mst__v2_answer *answer,
                         const struct mst_err *err)
{
    json_int_t code = json_integer_value(json_object_get(body, "errorCode"));
    assert_int_equal(rv, code_wanted(code));
    if (rv != 0) {
        assert_int_equal(err->code, rv);
        assert_non_null(strstr(err->msg, WHERE));
        return;
    }
    assert_int_equal(answer->code, code);
    assert_string_equal(answer->message, json_string_value(json_object_get(body, "message")));
    assert_string_equal(answer->cause, json_string_value(json_object_get(body, "cause")));
    assert_int_equal(answer->index, json_integer_value(json_object_get(body, "index")));
    assert_null(answer->node.key);
}

static const char *header(const json_t *response, const char *name)
{
    return json_string_value(json_object_get(json_object_get(response, "headers"), name));
}

/* Whether the vector is an answer about keys, and was read. */
static bool replay_vector(const json_t *vector)
{
    const json_t *recorded = json_object_get(vector, "response");
    const json_t *request = json_object_get(vector, "request");
    const char *path = json_string_value(json_object_get(request, "path"));
    const char *text = json_string_value(json_object_get(recorded, "body"));
    /* Streams hold several answers; we never request one. */
    if (text == NULL || path == NULL || strncmp(path, "/v2/keys/", 9) != 0 ||
        strstr(path, "stream=true") != NULL) {
        return false;
    }
    struct mst__http_response response;
    const char *type = header(recorded, "Content-Type");
    const char *index = header(recorded, "X-Etcd-Index");
    int status = (int)json_integer_value(json_object_get(recorded, "status"));
    make_response(&response, status, type != NULL && strcmp(type, "application/json") == 0, text);
    response.has_index = index != NULL;
    response.etcd_index = index == NULL ? 0 : strtoull(index, NULL, 10);
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    struct mst_err err = {0};
    print_message("%s\n", json_string_value(json_object_get(vector, "name")));
    int rv = mst__v2_answer_read(&response, WHERE, &answer, &err);
    if (!response.is_json) {
        assert_int_equal(rv, status == 404 ? MST_ENOTSUP : MST_EPROTO);
    } else {
        json_t *body = json_loads(text, 0, NULL);
        assert_non_null(body);
        if (status == 200 || status == 201) {
            assert_int_equal(rv, 0);
            assert_int_equal(answer.index, response.etcd_index);
            assert_int_equal(answer.is_created, status == 201);
            assert_event(body, &answer);
        } else {
            assert_error(body, rv, &answer, &err);
        }
        json_decref(body);
    }
    mst__v2_answer_close(&answer);
    mst__http_response_close(&response);
    return true;
}

static void test_recorded(void **state)
{
    (void)state;
    for (int i = 0; i < file_count; i++) {
        json_error_t error;
        json_t *document = json_load_file(files[i], 0, &error);
        if (document == NULL) {
            fail_msg("%s: %s", files[i], error.text);
        }
        const json_t *vectors = json_object_get(document, "vectors");
        size_t count = 0;
        for (size_t j = 0; j < json_array_size(vectors); j++) {
            count += replay_vector(json_array_get(vectors, j)) ? 1 : 0;
        }
        print_message("%s: %zu answers\n", files[i], count);
        assert_true(count >= 4);
        json_decref(document);
    }
    assert_true(file_count > 0);
}

/* --- what was not recorded --- */

static void test_off(void **state)
{
    (void)state;
    struct mst__v2_answer answer;
    struct mst_err err = {0};
    mst__v2_answer_init(&answer);
    assert_int_equal(read_text(404, false, "404 page not found\n", &answer, &err), MST_ENOTSUP);
    assert_non_null(strstr(err.msg, WHERE));
    assert_non_null(strstr(err.msg, "--enable-v2"));
    assert_non_null(strstr(err.msg, "3.6"));
    /* A missing key is something else. */
    assert_int_equal(read_text(404, true,
                               "{\"errorCode\":100,\"message\":\"\",\"cause\":\"/a\",\"index\":3}",
                               &answer, &err),
                     0);
    assert_int_equal(answer.code, MST_V2_NOT_FOUND);
    assert_string_equal(answer.cause, "/a");
    assert_int_equal(answer.index, 3);
    mst__v2_answer_close(&answer);
}

static void test_failures(void **state)
{
    (void)state;
    static const struct {
        int status;
        bool is_json;
        const char *body;
        int wanted;
        const char *part;
    } cases[] = {
        {500, true, "{\"errorCode\":301,\"message\":\"During Leader Election\",\"cause\":\"\"}",
         MST_EUNKNOWN, "301: During Leader Election"},
        {500, false, "Internal Server Error\n", MST_EUNKNOWN, "500: Internal Server Error"},
        {503, false, "", MST_EUNKNOWN, "503"},
        {401, false, "go away", MST_EAUTH, "go away"},
        {400, false, "Client sent an HTTP request to an HTTPS server.\n", MST_EPROTO,
         "HTTPS server"},
        {301, false, "", MST_EPROTO, "301"},
        {200, false, "<html>\n<p>", MST_EPROTO, "<html> <p>"},
        {200, true, "", MST_EPROTO, "invalid JSON"},
        {200, true, "{\"action\":\"get\",\"node\":{\"key\":\"/a\"", MST_EPROTO, "invalid JSON"},
        {200, true, "{}", MST_EPROTO, "not of the v2 API"},
        {200, true, "[]", MST_EPROTO, "not of the v2 API"},
        {200, true, "{\"action\":\"get\"}", MST_EPROTO, "not of the v2 API"},
        {200, true, "{\"action\":\"fly\",\"node\":{\"key\":\"/a\"}}", MST_EPROTO, "not of"},
        {200, true, "{\"action\":\"get\",\"node\":{\"key\":7}}", MST_EPROTO, "not of"},
        {200, true, "{\"action\":\"get\",\"node\":{\"key\":\"/a\\u0000b\"}}", MST_EPROTO, "not of"},
        {200, true, "{\"action\":\"get\",\"node\":{\"value\":null}}", MST_EPROTO, "not of"},
        {200, true, "{\"action\":\"get\",\"node\":{\"modifiedIndex\":-1}}", MST_EPROTO, "not of"},
        {200, true, "{\"action\":\"get\",\"node\":{\"dir\":1}}", MST_EPROTO, "not of"},
        {200, true, "{\"action\":\"get\",\"node\":{\"ttl\":\"x\"}}", MST_EPROTO, "not of"},
        {200, true, "{\"action\":\"get\",\"node\":{\"nodes\":{}}}", MST_EPROTO, "not of"},
        {200, true, "{\"action\":\"get\",\"node\":{\"nodes\":[1]}}", MST_EPROTO, "not of"},
        {200, true, "{\"action\":\"set\",\"node\":{},\"prevNode\":1}", MST_EPROTO, "not of"},
        {404, true, "{}", MST_EPROTO, "no code"},
        {404, true, "{\"errorCode\":\"x\"}", MST_EPROTO, "no code"},
        {400, true, "{\"errorCode\":100,\"message\":{}}", MST_EPROTO, "no code"},
        {400, true, "{\"errorCode\":999,\"message\":\"new\"}", MST_EPROTO, "999: new"},
    };
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        /* Something of an earlier answer is in there, and does not survive. */
        assert_int_equal(
            read_text(200, true, "{\"action\":\"get\",\"node\":{\"key\":\"/old\"}}", &answer, NULL),
            0);
        struct mst_err err = {0};
        int rv = read_text(cases[i].status, cases[i].is_json, cases[i].body, &answer, &err);
        if (rv != cases[i].wanted || err.code != rv || strstr(err.msg, WHERE) == NULL ||
            strstr(err.msg, cases[i].part) == NULL) {
            fail_msg("'%s' gives %s: %s", cases[i].body, mst_errname(rv), err.msg);
        }
        assert_null(answer.node.key);
        assert_int_equal(answer.index, 0);
    }
    mst__v2_answer_close(&answer);
}

/* A cause can hold whole values: it is cut off, and stays one line. */
static void test_long_cause(void **state)
{
    (void)state;
    char body[1200] = "{\"errorCode\":101,\"message\":\"Compare\\nfailed\",\"cause\":\"";
    size_t used = strlen(body);
    memset(body + used, 'x', 1000);
    memcpy(body + used + 1000, "\"}", 3);
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    assert_int_equal(read_text(412, true, body, &answer, NULL), 0);
    assert_int_equal(answer.code, MST_V2_COMPARE_FAILED);
    assert_string_equal(answer.message, "Compare failed");
    assert_int_equal(strlen(answer.cause), sizeof answer.cause - 1);
    mst__v2_answer_close(&answer);
}

/* Each allocation fails once, and nothing is left behind. */
static void test_faults(void **state)
{
    (void)state;
    static const char body[] =
        "{\"action\":\"set\",\"node\":{\"key\":\"/d\",\"dir\":true,\"nodes\":[{\"key\":\"/d/a\","
        "\"value\":\"1\"},{\"key\":\"/d/b\",\"nodes\":[{\"key\":\"/d/b/c\",\"value\":\"2\"}]}]},"
        "\"prevNode\":{\"key\":\"/d\",\"value\":\"old\"}}";
    struct mst__http_response response;
    make_response(&response, 200, true, body);
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    struct mst__sweep sweep = {0};
    while (sweep_next(&sweep)) {
        struct mst_err err = {0};
        int rv = mst__v2_answer_read(&response, WHERE, &answer, &err);
        sweep_end(&sweep, rv);
        assert_int_equal(err.code, rv);
        if (rv != 0) {
            assert_null(answer.node.key);
            assert_false(answer.has_previous);
        }
    }
    assert_true(sweep.failures > 8);
    assert_int_equal(answer.node.node_count, 2);
    assert_string_equal(answer.node.nodes[1].nodes[0].key, "/d/b/c");
    mst__v2_answer_close(&answer);
    mst__http_response_close(&response);
}

int main(int argc, char **argv)
{
    files = argv + 1;
    file_count = argc - 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded), cmocka_unit_test(test_off),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_long_cause),
        cmocka_unit_test(test_faults),
    };
    return MST_RUN_TESTS(tests);
}
