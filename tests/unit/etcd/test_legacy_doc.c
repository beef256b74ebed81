/* unit/etcd/test_legacy_doc.c - the document of a legacy rendezvous as text: recorded ones of
 * real agents, writing, and refused ones. */
#include <inttypes.h>
#include <jansson.h>
#include <muster/error.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "etcd/legacy_doc.h"
#include "unit/unit.h"

static void doc_parse(const char *text, struct mst__legacy_doc *ret_doc)
{
    struct mst_err err = {0};
    mst__legacy_doc_init(ret_doc);
    int rv = mst__legacy_doc_parse(mst_bytes_str(text), ret_doc, &err);
    if (rv != 0) {
        print_error("%s: %s\n", text, err.msg);
    }
    assert_int_equal(rv, 0);
}

/* The text of @doc as a JSON value. */
static json_t *doc_write(const struct mst__legacy_doc *doc)
{
    struct mst__buf buf;
    mst__buf_init(&buf, 1 << 20);
    assert_int_equal(mst__legacy_doc_write(doc, &buf), 0);
    struct mst_bytes text = mst__buf_bytes(&buf);
    json_t *json = json_loadb((const char *)text.data, text.size, 0, NULL);
    assert_non_null(json);
    mst__buf_close(&buf);
    return json;
}

static void assert_written(const struct mst__legacy_doc *doc, const char *text)
{
    json_t *wanted = json_loads(text, 0, NULL);
    assert_non_null(wanted);
    json_t *json = doc_write(doc);
    if (!json_equal(json, wanted)) {
        char *got = json_dumps(json, 0);
        print_error("written %s, wanted %s\n", got, text);
        free(got);
        fail();
    }
    json_decref(json);
    json_decref(wanted);
}

/* Every document of a recorded group of real agents: read, and written with the same members. */
static void test_recorded_documents(void **state)
{
    (void)state;
    json_t *file = json_load_file(MST_VECTORS "/legacy_states_3workers.json", 0, NULL);
    assert_non_null(file);
    bool is_seen[MST_LEGACY_OTHER + 1] = {false};
    size_t count = 0;
    size_t at;
    json_t *recorded;
    json_array_foreach(json_object_get(file, "states"), at, recorded)
    {
        const char *key;
        json_t *node;
        json_object_foreach(json_object_get(recorded, "keys"), key, node)
        {
            if (strstr(key, "/active_version") == NULL) {
                continue;
            }
            const char *text = json_string_value(json_object_get(node, "value"));
            struct mst__legacy_doc doc;
            doc_parse(text, &doc);
            assert_written(&doc, text);
            assert_int_not_equal(doc.status, MST_LEGACY_OTHER);
            assert_false(doc.has_muster);
            is_seen[doc.status] = true;
            mst__legacy_doc_close(&doc);
            count++;
        }
    }
    json_decref(file);
    assert_true(count >= 8);
    assert_true(is_seen[MST_LEGACY_SETUP]);
    assert_true(is_seen[MST_LEGACY_JOINABLE]);
    assert_true(is_seen[MST_LEGACY_FROZEN]);
    assert_true(is_seen[MST_LEGACY_FINAL]);
}

static void test_members(void **state)
{
    (void)state;
    struct mst__legacy_doc doc;
    doc_parse("{\"status\": \"final\", \"version\": \"7\", \"participants\": [0, 1], "
              "\"keep_alives\": [\"/a/rank_1\", \"/a/rank_0\"], \"num_workers_waiting\": 3, "
              "\"more\": {\"x\": [1, null]}, \"muster\": {\"min\": 2, \"max\": 5, "
              "\"nodes\": [\"\", \"00000000000000ff\"], \"waiting\": [\"000000000000000a\"], "
              "\"left\": [\"00000000000000ff\"], \"new\": true}}",
              &doc);
    assert_int_equal(doc.status, MST_LEGACY_FINAL);
    assert_int_equal(doc.version, 7);
    assert_int_equal(doc.participant_count, 2);
    assert_int_equal(doc.keep_alive_count, 2);
    assert_string_equal(doc.keep_alives[0], "/a/rank_1");
    assert_int_equal(doc.waiting_count, 3);
    assert_int_equal(doc.nodes_min, 2);
    assert_int_equal(doc.nodes_max, 5);
    assert_int_equal(mst__legacy_doc_rank(&doc, 0xff), 1);
    assert_int_equal(mst__legacy_doc_node(&doc, 0), 0);
    assert_int_equal(doc.waiting.items[0], 10);
    /* A change, and all that we do not know is still there. */
    doc.waiting_count = 4;
    assert_int_equal(mst__legacy_nonces_add(&doc.waiting, 11), 0);
    assert_written(&doc,
                   "{\"status\": \"final\", \"version\": \"7\", \"participants\": [0, 1], "
                   "\"keep_alives\": [\"/a/rank_1\", \"/a/rank_0\"], \"num_workers_waiting\": 4, "
                   "\"more\": {\"x\": [1, null]}, \"muster\": {\"min\": 2, \"max\": 5, "
                   "\"nodes\": [\"\", \"00000000000000ff\"], "
                   "\"waiting\": [\"000000000000000a\", \"000000000000000b\"], "
                   "\"left\": [\"00000000000000ff\"], \"new\": true}}");
    mst__legacy_doc_close(&doc);
}

/* The version is always a string, and ranks are integers: peers compare texts. */
static void test_types(void **state)
{
    (void)state;
    struct mst__legacy_doc doc;
    mst__legacy_doc_init(&doc);
    doc.status = MST_LEGACY_JOINABLE;
    doc.version = 12;
    assert_int_equal(mst__legacy_doc_append(&doc, 1), 0);
    json_t *json = doc_write(&doc);
    assert_true(json_is_string(json_object_get(json, "version")));
    assert_true(json_is_integer(json_array_get(json_object_get(json, "participants"), 0)));
    assert_null(json_object_get(json, "keep_alives"));
    assert_null(json_object_get(json, "num_workers_waiting"));
    json_decref(json);
    mst__legacy_doc_close(&doc);
    doc_parse("{\"status\": \"closed\"}", &doc);
    assert_written(&doc, "{\"status\": \"closed\"}");
    mst__legacy_doc_close(&doc);
    /* Members of later releases are read, and never written. */
    doc_parse("{\"status\": \"melting\"}", &doc);
    assert_int_equal(doc.status, MST_LEGACY_OTHER);
    struct mst__buf buf;
    mst__buf_init(&buf, 100);
    assert_int_equal(mst__legacy_doc_write(&doc, &buf), MST_EINVAL);
    mst__buf_close(&buf);
    mst__legacy_doc_close(&doc);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "nothing",
        "[]",
        "{}",
        "{\"status\": 1}",
        "{\"status\": \"joinable\"}",
        "{\"status\": \"joinable\", \"version\": \"1\"}",
        "{\"status\": \"joinable\", \"version\": \"x\", \"participants\": []}",
        "{\"status\": \"joinable\", \"version\": \"-1\", \"participants\": []}",
        "{\"status\": \"joinable\", \"version\": -1, \"participants\": []}",
        "{\"status\": \"joinable\", \"version\": \"1\", \"participants\": {}}",
        "{\"status\": \"joinable\", \"version\": \"1\", \"participants\": [1]}",
        "{\"status\": \"frozen\", \"version\": \"1\", \"participants\": [0]}",
        "{\"status\": \"frozen\", \"version\": \"1\", \"participants\": [0], \"keep_alives\": [1]}",
        ("{\"status\": \"final\", \"version\": \"1\", \"participants\": [0], \"keep_alives\": [], "
         "\"num_workers_waiting\": \"many\"}"),
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct mst__legacy_doc doc;
        mst__legacy_doc_init(&doc);
        struct mst_err err = {0};
        int rv = mst__legacy_doc_parse(mst_bytes_str(texts[i]), &doc, &err);
        if (rv != MST_ESTATE) {
            print_error("'%s' is taken: %d\n", texts[i], rv);
        }
        assert_int_equal(rv, MST_ESTATE);
        assert_non_null(strstr(err.msg, "active_version"));
        mst__legacy_doc_close(&doc);
    }
}

/* Foreign data in `muster` is no error: peers must be able to go on. */
static void test_strange_muster(void **state)
{
    (void)state;
    struct mst__legacy_doc doc;
    doc_parse(
        "{\"status\": \"setup\", \"muster\": {\"creator\": 5, \"nodes\": \"all\", \"min\": 0}}",
        &doc);
    assert_true(doc.has_muster);
    assert_int_equal(doc.creator, 0);
    assert_int_equal(doc.nodes.count, 0);
    assert_int_equal(doc.nodes_min, 0);
    mst__legacy_doc_close(&doc);
    /* Limits that cannot be those of a job. */
    doc_parse("{\"status\": \"setup\", \"muster\": {\"min\": -1, \"max\": 4}}", &doc);
    assert_int_equal(doc.nodes_min, 0);
    assert_int_equal(doc.nodes_max, 0);
    mst__legacy_doc_close(&doc);
    /* More nodes than ranks. */
    doc_parse("{\"status\": \"joinable\", \"version\": \"1\", \"participants\": [0], "
              "\"muster\": {\"nodes\": [\"000000000000000a\", \"000000000000000b\"]}}",
              &doc);
    assert_int_equal(doc.nodes.count, 1);
    assert_int_equal(mst__legacy_doc_rank(&doc, 0xb), -1);
    mst__legacy_doc_close(&doc);
    doc_parse("{\"status\": \"setup\", \"muster\": 5}", &doc);
    assert_false(doc.has_muster);
    mst__legacy_doc_close(&doc);
}

/* Every allocation fails once. */
static void test_no_memory(void **state)
{
    (void)state;
    static const char text[] =
        "{\"status\": \"final\", \"version\": \"7\", \"participants\": [0], \"x\": 1, "
        "\"keep_alives\": [\"/a/rank_0\"], \"num_workers_waiting\": 0, "
        "\"muster\": {\"nodes\": [\"00000000000000ff\"], \"y\": 2}}";
    struct mst__sweep sweep = {0};
    while (sweep_next(&sweep)) {
        struct mst__legacy_doc doc;
        mst__legacy_doc_init(&doc);
        struct mst__buf buf;
        mst__buf_init(&buf, 1 << 16);
        struct mst_err err = {0};
        int rv = mst__legacy_doc_parse(mst_bytes_str(text), &doc, &err);
        rv = rv != 0 ? rv : mst__legacy_doc_write(&doc, &buf);
        sweep_end(&sweep, rv);
        mst__buf_close(&buf);
        mst__legacy_doc_close(&doc);
    }
    assert_true(sweep.failures > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_documents),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_strange_muster),
        cmocka_unit_test(test_no_memory),
    };
    return MST_RUN_TESTS(tests);
}
