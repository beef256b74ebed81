/* bench/instructions.c - the store without sockets, and the codec of records, for counting
 * instructions.
 *
 * Request bytes are parsed, applied and answered as the server does it, a fixed number of times and
 * with a fixed hash key, so that two runs of one build execute the same instructions. bench/gate
 * runs it under callgrind, which counts inside of measured() only.
 *
 *   instructions --list            the operations, one per line
 *   instructions --about           the compiler: figures of different ones cannot be compared
 *   instructions OP ITERATIONS */
#include <muster/error.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/number.h"
#include "codec/pickle.h"
#include "kv/kv.h"
#include "wire/wire.h"

#define KEYS_COUNT 1000
#define KEYS_LISTED 16 /* of the store that LIST_KEYS is measured on */
#define VALUE_SIZE 64
#define REQUESTS_MAX 3
#define CLIENTS_COUNT 2
#define NODES_COUNT 100 /* of the record that is written and read */

/* What one iteration consists of: bytes that arrive from one of the clients. */
struct request {
    struct mst__buf bytes;
    size_t client;
};

struct session {
    struct mst__kv kv;
    struct mst__wire_limits limits;
    struct mst__kv_client clients[CLIENTS_COUNT];
    struct mst__wire_reader readers[CLIENTS_COUNT];
    struct mst__buf output;
    struct request requests[REQUESTS_MAX];
    size_t requests_count;
    struct mst__state record;
    struct mst__buf pickle; /* the same record, written */
    uint64_t output_size;   /* of all replies, to see that something was done */
};

struct measured_op {
    const char *name;
    size_t keys_count;
    void (*build)(struct session *session);
    void (*run)(struct session *session); /* NULL = serve the requests */
};

/* --- building --- */

static struct mst_bytes key_at(size_t index, char ret_text[32])
{
    int size = snprintf(ret_text, 32, "/bench/key/%06zu", index);
    MST_ASSERT(size > 0);
    return mst_bytes_of(ret_text, (size_t)size);
}

static struct mst_bytes value(void)
{
    static const char text[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    static_assert(sizeof text == VALUE_SIZE + 1, "the value has the size of the load generator's");
    return mst_bytes_of(text, VALUE_SIZE);
}

static void add_request(struct session *session, size_t client, const struct mst__command *command)
{
    MST_ASSERT(session->requests_count < REQUESTS_MAX);
    struct request *request = &session->requests[session->requests_count++];
    request->client = client;
    mst__buf_init(&request->bytes, MST_MESSAGE_SIZE_MAX);
    int rv = mst__wire_write_request(&request->bytes, MST_DIALECT_C, command);
    MST_ASSERT(rv == 0);
}

/* A request with one key that exists. */
static void add_simple(struct session *session, enum mst__op op)
{
    char text[32];
    struct mst__command command = {
        .op = op, .key = key_at(0, text), .value = value(), .expected = value(), .number = 1};
    add_request(session, 0, &command);
}

/* A request with @count keys, from @first on. */
static void add_keys(struct session *session,
                     size_t client,
                     enum mst__op op,
                     size_t first,
                     size_t count)
{
    struct mst__buf items;
    mst__buf_init(&items, MST_MESSAGE_SIZE_MAX);
    for (size_t i = 0; i < count; i++) {
        char text[32];
        int rv = mst__buf_append_str(&items, key_at(first + i, text));
        MST_ASSERT(rv == 0);
    }
    struct mst__command command = {.op = op, .count = count, .items = mst__buf_bytes(&items)};
    add_request(session, client, &command);
    mst__buf_close(&items);
}

static void build_get(struct session *session)
{
    add_simple(session, MST_OP_GET);
}

static void build_set(struct session *session)
{
    add_simple(session, MST_OP_SET);
}

static void build_add(struct session *session)
{
    char text[32];
    struct mst__command command = {
        .op = MST_OP_ADD, .key = key_at(KEYS_COUNT, text), .number = 1000000000};
    add_request(session, 0, &command);
}

static void build_check(struct session *session)
{
    add_keys(session, 0, MST_OP_CHECK, 0, 1);
}

static void build_compare_set(struct session *session)
{
    add_simple(session, MST_OP_COMPARE_SET);
}

/* One client waits for a key, the other sets it, which answers the first, and deletes it. */
static void build_wait_set(struct session *session)
{
    char text[32];
    struct mst__command command = {
        .op = MST_OP_SET, .key = key_at(KEYS_COUNT, text), .value = value()};
    add_keys(session, 0, MST_OP_WAIT, KEYS_COUNT, 1);
    add_request(session, 1, &command);
    command.op = MST_OP_DELETE;
    add_request(session, 1, &command);
}

static void build_multi_get(struct session *session)
{
    add_keys(session, 0, MST_OP_MULTI_GET, 0, 8);
}

static void build_list_keys(struct session *session)
{
    struct mst__command command = {.op = MST_OP_LIST_KEYS};
    add_request(session, 0, &command);
}

/* A complete round, everybody heard of. */
static void build_record(struct session *session)
{
    int rv = 0;
    for (int64_t i = 0; rv == 0 && i < NODES_COUNT; i++) {
        char text[40];
        int size = snprintf(text, sizeof text, "n%04d.rack-a.example.org", (int)i);
        struct mst__node node = {.addr = mst_bytes_of(text, (size_t)size), .pid = 4000 + i};
        mst__peer_id id;
        rv = mst__state_obtain(&session->record, &node, &id);
        if (rv == 0) {
            rv = mst__state_put_participant(&session->record, id, i);
        }
        if (rv == 0) {
            rv = mst__state_put_heartbeat(&session->record, id, 1778247465123456 + i);
        }
    }
    if (rv == 0) {
        rv = mst__pickle_write(&session->pickle, &session->record);
    }
    MST_ASSERT(rv == 0);
}

static void run_pickle_write(struct session *session)
{
    int rv = mst__pickle_write(&session->output, &session->record);
    MST_ASSERT(rv == 0);
    session->output_size += mst__buf_size(&session->output);
    mst__buf_clear(&session->output);
}

static void run_pickle_read(struct session *session)
{
    struct mst__state state;
    mst__state_init(&state);
    int rv = mst__pickle_read(mst__buf_bytes(&session->pickle), &state, NULL);
    MST_ASSERT(rv == 0);
    session->output_size += state.members_count;
    mst__state_close(&state);
}

static const struct measured_op ops[] = {
    {"get", KEYS_COUNT, build_get, NULL},
    {"set", KEYS_COUNT, build_set, NULL},
    {"add", KEYS_COUNT, build_add, NULL},
    {"check", KEYS_COUNT, build_check, NULL},
    {"compare_set", KEYS_COUNT, build_compare_set, NULL},
    {"wait_set_delete", KEYS_COUNT, build_wait_set, NULL},
    {"multi_get_8", KEYS_COUNT, build_multi_get, NULL},
    {"list_keys_16", KEYS_LISTED, build_list_keys, NULL},
    {"pickle_write_100", 0, build_record, run_pickle_write},
    {"pickle_read_100", 0, build_record, run_pickle_read},
};
#define OPS_COUNT (sizeof ops / sizeof ops[0])

/* --- running --- */

/* What the server does with bytes that have arrived, up to the bytes it would send. */
static void serve(struct session *session, size_t client, struct mst_bytes input)
{
    struct mst_err err;
    while (input.size > 0) {
        struct mst__command command;
        size_t size = 0;
        int rv = mst__wire_read_request(&session->readers[client], &session->limits, input,
                                        &command, &size, &err);
        if (rv == MST_WIRE_REQUEST) {
            struct mst__reply reply;
            rv = mst__kv_apply(&session->kv, &session->clients[client], &command, &reply);
            MST_ASSERT(rv == 0);
            rv = mst__wire_write_reply(&session->output, &reply);
            MST_ASSERT(rv == 0);
            while (mst__kv_next_released(&session->kv) != NULL) {
                struct mst__reply over = {.kind = MST_REPLY_STATUS,
                                          .status = MST_STATUS_STOP_WAITING};
                rv = mst__wire_write_reply(&session->output, &over);
                MST_ASSERT(rv == 0);
            }
        } else {
            MST_ASSERT(rv == MST_WIRE_VALIDATE);
        }
        input = mst_bytes_of(input.data + size, input.size - size);
    }
    session->output_size += mst__buf_size(&session->output);
    mst__buf_clear(&session->output);
}

/* Callgrind counts from here on. Not static and never inlined, so that it can be found. */
void measured(const struct measured_op *op, struct session *session, int64_t iterations);

__attribute__((noinline)) void measured(const struct measured_op *op,
                                        struct session *session,
                                        int64_t iterations)
{
    for (int64_t i = 0; i < iterations; i++) {
        if (op->run != NULL) {
            op->run(session);
            continue;
        }
        for (size_t j = 0; j < session->requests_count; j++) {
            const struct request *request = &session->requests[j];
            serve(session, request->client, mst__buf_bytes(&request->bytes));
        }
    }
}

static void session_fill(struct session *session, size_t keys_count)
{
    struct mst__buf bytes;
    mst__buf_init(&bytes, MST_MESSAGE_SIZE_MAX);
    int rv = mst__wire_write_validate(&bytes);
    for (size_t i = 0; i < CLIENTS_COUNT; i++) {
        serve(session, i, mst__buf_bytes(&bytes));
    }
    mst__buf_clear(&bytes);
    for (size_t i = 0; rv == 0 && i < keys_count; i++) {
        char text[32];
        struct mst__command command = {.op = MST_OP_SET, .key = key_at(i, text), .value = value()};
        rv = mst__wire_write_request(&bytes, MST_DIALECT_C, &command);
    }
    MST_ASSERT(rv == 0);
    serve(session, 0, mst__buf_bytes(&bytes));
    mst__buf_close(&bytes);
}

static void session_run(const struct measured_op *op, int64_t iterations)
{
    static const uint8_t hash_key[MST_SIPHASH_KEY_SIZE] = "fixed hash key.";
    static struct session session;
    const struct mst__kv_limits limits = {.memory_max = MST_MEMORY_DEFAULT,
                                          .reply_max = MST_MESSAGE_SIZE_MAX,
                                          .value_max = MST_VALUE_SIZE_DEFAULT};
    session.limits = mst__wire_limits(MST_KEY_SIZE_DEFAULT, MST_VALUE_SIZE_DEFAULT);
    mst__kv_init(&session.kv, &limits, hash_key);
    mst__buf_init(&session.output, MST_MESSAGE_SIZE_MAX);
    mst__buf_init(&session.pickle, MST_PICKLE_SIZE_MAX);
    mst__state_init(&session.record);
    for (size_t i = 0; i < CLIENTS_COUNT; i++) {
        mst__kv_client_init(&session.clients[i]);
        mst__wire_reader_init(&session.readers[i]);
    }
    session_fill(&session, op->keys_count);
    op->build(&session);
    /* Once without counting: buffers have their size then. */
    for (size_t i = 0; i < session.requests_count; i++) {
        serve(&session, session.requests[i].client, mst__buf_bytes(&session.requests[i].bytes));
    }
    session.output_size = 0;
    measured(op, &session, iterations);
    (void)printf("%s %lld iterations, %llu bytes of replies\n", op->name, (long long)iterations,
                 (unsigned long long)session.output_size);
    for (size_t i = 0; i < CLIENTS_COUNT; i++) {
        mst__kv_client_close(&session.kv, &session.clients[i]);
    }
    for (size_t i = 0; i < session.requests_count; i++) {
        mst__buf_close(&session.requests[i].bytes);
    }
    mst__buf_close(&session.output);
    mst__buf_close(&session.pickle);
    mst__state_close(&session.record);
    mst__kv_close(&session.kv);
}

static void print_about(void)
{
#if defined(__clang__)
    const char *compiler = "clang " __clang_version__;
#else
    const char *compiler = "gcc " __VERSION__;
#endif
#if defined(__OPTIMIZE__)
    const char *optimized = "optimized";
#else
    const char *optimized = "not optimized";
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const char *sanitized = ", sanitizer";
#else
    const char *sanitized = "";
#endif
#if defined(__x86_64__)
    const char *machine = "x86_64";
#elif defined(__aarch64__)
    const char *machine = "aarch64";
#else
    const char *machine = "another machine";
#endif
    (void)printf("%s, %s, %s%s\n", compiler, machine, optimized, sanitized);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--about") == 0) {
        print_about();
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < OPS_COUNT; i++) {
            (void)printf("%s\n", ops[i].name);
        }
        return 0;
    }
    int64_t iterations = 0;
    if (argc == 3 && mst__number_parse(mst_bytes_str(argv[2]), 1, 1000000000, &iterations)) {
        for (size_t i = 0; i < OPS_COUNT; i++) {
            if (strcmp(argv[1], ops[i].name) == 0) {
                session_run(&ops[i], iterations);
                return 0;
            }
        }
    }
    (void)fprintf(stderr, "usage: instructions --list | --about | OP ITERATIONS\n");
    return 2;
}
