/* unit/kv/test_kv.c - the engine where scripts of bytes do not reach: failing allocations, the
 * memory limit byte by byte, accounting, the lifetime of clients and replies. The golden scripts
 * and test_kv_model.c test the operations. */
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/siphash.h"
#include "kv/entry.h"
#include "unit/kv/kv_unit.h"
#include "unit/unit.h"

static const uint8_t hash_key[MST_SIPHASH_KEY_SIZE] = {9};

enum { CLIENTS = 5 };

struct fixture {
    struct mst__kv kv;
    struct mst__kv_client clients[CLIENTS];
};

static void fixture_open(struct fixture *f, size_t memory_max)
{
    struct mst__kv_limits limits = {.memory_max = memory_max, .reply_max = 8192, .value_max = 4096};
    mst__kv_init(&f->kv, &limits, hash_key);
    for (size_t i = 0; i < CLIENTS; i++) {
        mst__kv_client_init(&f->clients[i]);
    }
}

static void drain(struct fixture *f)
{
    struct mst__kv_notice notice;
    while (mst__kv_next_released(&f->kv) != NULL) {
    }
    while (mst__kv_next_notice(&f->kv, &notice)) {
    }
}

static void fixture_close(struct fixture *f)
{
    for (size_t i = 0; i < CLIENTS; i++) {
        mst__kv_client_close(&f->kv, &f->clients[i]);
        drain(f);
    }
    mst__kv_close(&f->kv);
}

static int apply(struct fixture *f,
                 size_t client,
                 const struct mst__command *command,
                 struct mst__reply *ret_reply)
{
    return mst__kv_apply(&f->kv, &f->clients[client], command, ret_reply);
}

static void set(struct fixture *f, const char *key, const char *value)
{
    struct mst__command command = {
        .op = MST_OP_SET, .key = mst_bytes_str(key), .value = mst_bytes_str(value)};
    struct mst__reply reply;
    assert_int_equal(apply(f, 0, &command, &reply), 0);
}

static struct mst__reply run(struct fixture *f, size_t client, enum mst__op op, const char *key)
{
    struct mst__command command = {.op = op, .key = mst_bytes_str(key), .number = 100};
    struct mst__reply reply = {0};
    assert_int_equal(apply(f, client, &command, &reply), 0);
    return reply;
}

/* A WAIT for one or two keys; the kind of the reply, or an error. */
static int wait_for(struct fixture *f, size_t client, const char *a, const char *b)
{
    struct mst__buf items;
    mst__buf_init(&items, 1000);
    assert_int_equal(mst__buf_append_str(&items, mst_bytes_str(a)), 0);
    if (b != NULL) {
        assert_int_equal(mst__buf_append_str(&items, mst_bytes_str(b)), 0);
    }
    struct mst__command command = {
        .op = MST_OP_WAIT, .count = b == NULL ? 1 : 2, .items = mst__buf_bytes(&items)};
    struct mst__reply reply = {0};
    int rv = apply(f, client, &command, &reply);
    mst__buf_close(&items);
    return rv != 0 ? rv : (int)reply.kind;
}

/* A part of a WAIT of client 1, for one key; the kind of the reply. */
static enum mst__reply_kind wait_part(struct fixture *f,
                                      const char *key,
                                      bool is_begun,
                                      bool goes_on)
{
    struct mst__buf items;
    mst__buf_init(&items, 1000);
    assert_int_equal(mst__buf_append_str(&items, mst_bytes_str(key)), 0);
    struct mst__command command = {.op = MST_OP_WAIT,
                                   .count = 1,
                                   .items = mst__buf_bytes(&items),
                                   .is_begun = is_begun,
                                   .goes_on = goes_on};
    struct mst__reply reply = {0};
    assert_int_equal(apply(f, 1, &command, &reply), 0);
    mst__buf_close(&items);
    return reply.kind;
}

static void snapshot(const struct fixture *f, struct mst__buf *ret_text)
{
    mst__kv_snapshot(&f->kv, f->clients, CLIENTS, ret_text);
}

/* A number, a text, a large value, a queue; 1 waits for one key, 2 for two, 3 watches. */
static void fill(struct fixture *f)
{
    char large[2001];
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    set(f, "/n", "5");
    set(f, "/t", "text");
    set(f, "/large", large);
    set(f, "/large2", large);
    struct mst__command push = {
        .op = MST_OP_QUEUE_PUSH, .key = mst_bytes_str("/q"), .value = mst_bytes_str("item")};
    struct mst__reply reply;
    assert_int_equal(apply(f, 0, &push, &reply), 0);
    assert_int_equal(wait_for(f, 1, "/w", NULL), MST_REPLY_LATER);
    assert_int_equal(wait_for(f, 2, "/w", "/w2"), MST_REPLY_LATER);
    assert_int_equal(run(f, 3, MST_OP_WATCH, "/n").kind, MST_REPLY_STATUS);
}

struct step {
    const char *name;
    struct mst__command command;
};

enum { STEPS_MAX = 64 };

struct steps {
    struct step all[STEPS_MAX];
    size_t count;
    struct mst__buf memory[8]; /* of item lists */
    size_t memory_count;
};

static void steps_add(struct steps *steps, const char *name, struct mst__command command)
{
    assert_true(steps->count < STEPS_MAX);
    steps->all[steps->count++] = (struct step){.name = name, .command = command};
}

/* @texts, up to a NULL, as items. */
static void steps_add_items(struct steps *steps,
                            const char *name,
                            enum mst__op op,
                            const char *const *texts)
{
    struct mst__buf *items = &steps->memory[steps->memory_count++];
    mst__buf_init(items, 100000);
    uint64_t count = 0;
    for (; texts[count] != NULL; count++) {
        assert_int_equal(mst__buf_append_str(items, mst_bytes_str(texts[count])), 0);
    }
    struct mst__command command = {.op = op,
                                   .count = op == MST_OP_MULTI_SET ? count / 2 : count,
                                   .items = mst__buf_bytes(items)};
    steps_add(steps, name, command);
}

#define STR(text) mst_bytes_str(text)
#define HUNDRED                                            \
    "0123456789012345678901234567890123456789012345678901" \
    "234567890123456789012345678901234567890123456789"

static void steps_open(struct steps *steps)
{
    *steps = (struct steps){0};
    struct mst_bytes n = STR("/n");
    struct mst_bytes fresh = STR("/new");
    struct mst_bytes v = STR(HUNDRED);
    steps_add(steps, "set new", (struct mst__command){.op = MST_OP_SET, .key = fresh, .value = v});
    steps_add(steps, "set old", (struct mst__command){.op = MST_OP_SET, .key = n, .value = v});
    steps_add(steps, "set empty", (struct mst__command){.op = MST_OP_SET, .key = fresh});
    steps_add(steps, "set waited",
              (struct mst__command){.op = MST_OP_SET, .key = STR("/w"), .value = v});
    steps_add(steps, "set smaller",
              (struct mst__command){.op = MST_OP_SET, .key = STR("/large"), .value = STR("s")});
    steps_add(steps, "compare_set new",
              (struct mst__command){.op = MST_OP_COMPARE_SET, .key = fresh, .value = v});
    steps_add(steps, "compare_set old",
              (struct mst__command){
                  .op = MST_OP_COMPARE_SET, .key = n, .expected = STR("5"), .value = v});
    steps_add(steps, "add new", (struct mst__command){.op = MST_OP_ADD, .key = fresh, .number = 1});
    steps_add(steps, "add old", (struct mst__command){.op = MST_OP_ADD, .key = n, .number = 1});
    steps_add(steps, "append new",
              (struct mst__command){.op = MST_OP_APPEND, .key = fresh, .value = v});
    steps_add(steps, "append old",
              (struct mst__command){.op = MST_OP_APPEND, .key = STR("/large"), .value = v});
    steps_add(steps, "push new",
              (struct mst__command){.op = MST_OP_QUEUE_PUSH, .key = fresh, .value = v});
    steps_add(steps, "push old",
              (struct mst__command){.op = MST_OP_QUEUE_PUSH, .key = STR("/q"), .value = v});
    steps_add(steps, "push waited",
              (struct mst__command){.op = MST_OP_QUEUE_PUSH, .key = STR("/w"), .value = v});
    steps_add(steps, "watch new", (struct mst__command){.op = MST_OP_WATCH, .key = fresh});
    steps_add(steps, "watch old", (struct mst__command){.op = MST_OP_WATCH, .key = n});
    steps_add(steps, "barrier new",
              (struct mst__command){.op = MST_OP_BARRIER, .key = fresh, .number = 2});
    steps_add(steps, "barrier old",
              (struct mst__command){.op = MST_OP_BARRIER, .key = n, .number = 9});
    steps_add(steps, "barrier complete",
              (struct mst__command){.op = MST_OP_BARRIER, .key = fresh, .number = 1});
    steps_add(steps, "wait_change new",
              (struct mst__command){.op = MST_OP_WAIT_CHANGE, .key = fresh, .number = 0});
    steps_add(steps, "wait_change told",
              (struct mst__command){.op = MST_OP_WAIT_CHANGE, .key = fresh, .number = 1});
    steps_add(steps, "wait_change old",
              (struct mst__command){.op = MST_OP_WAIT_CHANGE,
                                    .key = n,
                                    .number = (int64_t)mst__fingerprint(STR("5"))});
    steps_add(steps, "delete", (struct mst__command){.op = MST_OP_DELETE, .key = n});
    steps_add(steps, "list", (struct mst__command){.op = MST_OP_LIST_KEYS});
    steps_add(steps, "pop", (struct mst__command){.op = MST_OP_QUEUE_POP, .key = STR("/q")});
    steps_add(steps, "get", (struct mst__command){.op = MST_OP_GET, .key = n});
    steps_add(steps, "num_keys", (struct mst__command){.op = MST_OP_NUM_KEYS});
    steps_add(steps, "ping", (struct mst__command){.op = MST_OP_PING, .number = 1});
    steps_add(steps, "cancel", (struct mst__command){.op = MST_OP_CANCEL_WAIT});
    steps_add_items(steps, "wait one", MST_OP_WAIT, (const char *const[]){"/x", "/n", NULL});
    steps_add_items(steps, "wait many", MST_OP_WAIT,
                    (const char *const[]){"/x", "/w", "/n", "/y", "/x", "/z", NULL});
    steps_add_items(steps, "check", MST_OP_CHECK, (const char *const[]){"/x", "/n", NULL});
    steps_add_items(steps, "multi_get", MST_OP_MULTI_GET,
                    (const char *const[]){"/large", "/n", "/none", NULL});
    steps_add_items(steps, "multi_set", MST_OP_MULTI_SET,
                    (const char *const[]){"/new", "1", "/n", HUNDRED, "/w", HUNDRED, "/large",
                                          "small", "/new", HUNDRED HUNDRED, "/new2", "x", "/new3",
                                          HUNDRED, NULL});
}

static void steps_close(struct steps *steps)
{
    for (size_t i = 0; i < steps->memory_count; i++) {
        mst__buf_close(&steps->memory[i]);
    }
}

/* The engine goes on: its content is there and new things fit. */
static void assert_alive(struct fixture *f)
{
    assert_bytes_str(run(f, 0, MST_OP_GET, "/t").bytes, "text");
    set(f, "/t", "T");
    set(f, "/t", "text");
    drain(f);
}

/* Whether @client, and no other, is told once that it has missed a notice. */
static bool lost_a_notice(struct fixture *f, size_t client)
{
    struct mst__kv_notice notice;
    int count = 0;
    while (mst__kv_next_notice(&f->kv, &notice)) {
        if (notice.change == MST_KV_LOST) {
            assert_ptr_equal(notice.client, &f->clients[client]);
            count++;
        }
    }
    assert_true(count <= 1);
    return count == 1;
}

static void every_failing_allocation(void **state)
{
    (void)state;
    static struct steps steps;
    steps_open(&steps);
    unsigned failures = 0;
    for (size_t i = 0; i < steps.count; i++) {
        const struct step *step = &steps.all[i];
        bool reached = true;
        for (unsigned long nth = 1; reached; nth++) {
            struct fixture f;
            fixture_open(&f, 1 << 20);
            fill(&f);
            struct mst__buf before;
            struct mst__buf after;
            snapshot(&f, &before);
            size_t used = f.kv.memory_used;
            struct mst__reply reply;
            mst__mem_fail_nth(nth);
            int rv = apply(&f, 4, &step->command, &reply);
            reached = mst__mem_failed();
            mst__mem_fail_nth(0);
            if (rv != 0) {
                assert_true(reached);
                failures++;
                assert_int_equal(rv, MST_ENOMEM);
                assert_null(mst__kv_next_released(&f.kv));
                snapshot(&f, &after);
                if (!mst__bytes_equal(mst__buf_bytes(&before), mst__buf_bytes(&after)) ||
                    f.kv.memory_used != used) {
                    fail_msg("%s changed something when allocation %lu failed", step->name, nth);
                }
                mst__buf_close(&after);
                /* Now that there is memory the same command passes. */
                assert_int_equal(apply(&f, 4, &step->command, &reply), 0);
            } else if (reached) {
                /* Went on without: a notice that is lost, or memory that is not given back. */
                bool lost = lost_a_notice(&f, 3);
                bool kept =
                    strcmp(step->name, "set smaller") == 0 || strcmp(step->name, "multi_set") == 0;
                assert_true(lost || kept);
            }
            drain(&f);
            assert_alive(&f);
            mst__buf_close(&before);
            fixture_close(&f);
        }
    }
    /* Each operation that allocates was met; otherwise this test has gone blind. */
    assert_true(failures >= 30);
    steps_close(&steps);
}

static void memory_limit_byte_by_byte(void **state)
{
    (void)state;
    static struct steps steps;
    steps_open(&steps);
    unsigned refused = 0;
    for (size_t i = 0; i < steps.count; i++) {
        const struct step *step = &steps.all[i];
        int rv = MST_ELIMIT;
        for (size_t room = 0; rv != 0; room++) {
            assert_true(room < 10000);
            struct fixture f;
            fixture_open(&f, 1 << 20);
            fill(&f);
            size_t used = f.kv.memory_used;
            f.kv.limits.memory_max = used + room;
            struct mst__buf before;
            struct mst__buf after;
            snapshot(&f, &before);
            struct mst__reply reply;
            rv = apply(&f, 4, &step->command, &reply);
            assert_true(f.kv.memory_used <= used + room);
            if (rv != 0) {
                refused++;
                assert_int_equal(rv, MST_ELIMIT);
                assert_null(mst__kv_next_released(&f.kv));
                snapshot(&f, &after);
                if (!mst__bytes_equal(mst__buf_bytes(&before), mst__buf_bytes(&after)) ||
                    f.kv.memory_used != used) {
                    fail_msg("%s changed something with %zu bytes of room", step->name, room);
                }
                mst__buf_close(&after);
            }
            drain(&f);
            f.kv.limits.memory_max = 1 << 20;
            assert_alive(&f);
            mst__buf_close(&before);
            fixture_close(&f);
        }
    }
    assert_true(refused > 1000);
    steps_close(&steps);
}

static void all_memory_comes_back(void **state)
{
    (void)state;
    static struct steps steps;
    steps_open(&steps);
    struct fixture f;
    fixture_open(&f, 1 << 20);
    fill(&f);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < steps.count; i++) {
            struct mst__reply reply;
            /* Some find a text instead of a number, or a full queue; that is fine here. */
            (void)apply(&f, i % CLIENTS, &steps.all[i].command, &reply);
            drain(&f);
        }
    }
    for (size_t i = 1; i < CLIENTS; i++) {
        mst__kv_client_close(&f.kv, &f.clients[i]);
        drain(&f);
        mst__kv_client_init(&f.clients[i]);
    }
    static const char *const keys[] = {"/n",   "/t",    "/large", "/large2", "/q", "/w", "/w2",
                                       "/new", "/new2", "/new3",  "/x",      "/y", "/z"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        (void)run(&f, 1, MST_OP_DELETE, keys[i]);
        drain(&f);
        while (run(&f, 1, MST_OP_QUEUE_POP, keys[i]).number > 0) {
        }
    }
    mst__kv_client_close(&f.kv, &f.clients[0]);
    drain(&f);
    assert_int_equal(f.kv.keys_count, 0);
    assert_int_equal(mst__map_count(&f.kv.map), 0);
    assert_int_equal(f.kv.memory_used, 0);
    steps_close(&steps);
    fixture_close(&f);
}

/* Closing with everything still inside must not leak: the sanitizer watches. */
static void close_with_content(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 1 << 20);
    fill(&f);
    (void)run(&f, 0, MST_OP_QUEUE_POP, "/q");
    fixture_close(&f);
}

static void large_values_give_memory_back(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 1 << 20);
    fill(&f);
    size_t used = f.kv.memory_used;
    set(&f, "/large", "small");
    assert_true(f.kv.memory_used <= used - 1900);
    used = f.kv.memory_used;
    struct mst__command compare = {.op = MST_OP_COMPARE_SET,
                                   .key = STR("/large2"),
                                   .expected = run(&f, 0, MST_OP_GET, "/large2").bytes,
                                   .value = STR("small")};
    struct mst__reply reply;
    assert_int_equal(apply(&f, 0, &compare, &reply), 0);
    assert_true(f.kv.memory_used <= used - 1900);
    fixture_close(&f);
}

static void append_stops_at_its_limit(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 1 << 20);
    char piece[1000];
    memset(piece, 'p', sizeof piece);
    struct mst__command command = {
        .op = MST_OP_APPEND, .key = STR("/a"), .value = mst_bytes_of(piece, sizeof piece)};
    struct mst__reply reply;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(apply(&f, 0, &command, &reply), 0);
    }
    assert_int_equal(apply(&f, 0, &command, &reply), MST_ELIMIT);
    assert_int_equal(run(&f, 0, MST_OP_GET, "/a").bytes.size, 4000);
    command.value.size = 96;
    assert_int_equal(apply(&f, 0, &command, &reply), 0);
    command.value.size = 1;
    assert_int_equal(apply(&f, 0, &command, &reply), MST_ELIMIT);
    command.value.size = 0;
    assert_int_equal(apply(&f, 0, &command, &reply), 0);
    assert_int_equal(run(&f, 0, MST_OP_GET, "/a").bytes.size, 4096);
    fixture_close(&f);
}

static void replies_stop_at_their_limit(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 1 << 20);
    struct mst__reply reply;
    /* 8192 bytes hold 512 keys of 8 bytes. */
    for (int i = 0; i < 512; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "/%07d", i);
        set(&f, key, "");
    }
    struct mst__command list = {.op = MST_OP_LIST_KEYS};
    assert_int_equal(apply(&f, 0, &list, &reply), 0);
    assert_int_equal(reply.number, 512);
    assert_int_equal(reply.bytes.size, 8192);
    set(&f, "", "");
    assert_int_equal(apply(&f, 0, &list, &reply), MST_ELIMIT);
    f.kv.limits.part_max = 1000; /* also where it would be sent in parts */
    assert_int_equal(apply(&f, 0, &list, &reply), MST_ELIMIT);
    f.kv.limits.part_max = 0;
    assert_int_equal(run(&f, 0, MST_OP_DELETE, "").number, 1);
    assert_int_equal(apply(&f, 0, &list, &reply), 0);
    fixture_close(&f);
}

/* The memory of a large reply is given back with the next command. */
static void large_replies_leave_no_room(void **state)
{
    (void)state;
    static char value[MST_KIB(100) + 1];
    struct fixture f;
    fixture_open(&f, 1 << 24);
    mst__kv_close(&f.kv);
    const struct mst__kv_limits limits = {
        .memory_max = 1 << 24, .reply_max = 1 << 20, .value_max = 1 << 20};
    mst__kv_init(&f.kv, &limits, hash_key);
    memset(value, 'x', sizeof value - 1);
    set(&f, "a", value);
    size_t before = f.kv.memory_used;
    struct mst__buf items;
    struct mst__reply reply;
    mst__buf_init(&items, 1024);
    for (int i = 0; i < 5; i++) {
        const uint8_t item[] = {1, 0, 0, 0, 0, 0, 0, 0, 'a'};
        assert_int_equal(mst__buf_append(&items, mst_bytes_of(item, sizeof item)), 0);
    }
    const struct mst__command get = {
        .op = MST_OP_MULTI_GET, .count = 5, .items = mst__buf_bytes(&items)};
    assert_int_equal(apply(&f, 0, &get, &reply), 0);
    assert_true(reply.bytes.size > 5 * MST_KIB(100));
    assert_true(f.kv.memory_used >= before + MST_KIB(200));
    (void)run(&f, 0, MST_OP_NUM_KEYS, "");
    assert_int_equal(f.kv.memory_used, before);
    mst__buf_close(&items);
    fixture_close(&f);
}

/* ADD and BARRIER on a value that is not a number: MST_ETYPE, nothing changed, for any memory. */
/* A barrier's count has one digit less than at its start. Whatever is refused meanwhile, the
 * digit is there when the participant leaves. */
static void refused_multi_set_leaves_a_barrier_alone(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 1 << 20);
    set(&f, "/b", "-1000000000000000");
    const struct mst__command barrier = {.op = MST_OP_BARRIER, .key = STR("/b"), .number = 5};
    struct mst__reply reply;
    assert_int_equal(apply(&f, 1, &barrier, &reply), 0);
    assert_int_equal(reply.kind, MST_REPLY_LATER);
    assert_bytes_str(run(&f, 0, MST_OP_GET, "/b").bytes, "-999999999999999");
    struct mst__buf items;
    mst__buf_init(&items, 1 << 20);
    assert_int_equal(mst__buf_append_str(&items, STR("/b")), 0);
    assert_int_equal(mst__buf_append_str(&items, STR("1")), 0);
    for (int i = 0; i < 500; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "/small%d", i);
        assert_int_equal(mst__buf_append_str(&items, mst_bytes_str(key)), 0);
        assert_int_equal(mst__buf_append_str(&items, STR("1")), 0);
    }
    const struct mst__command many = {
        .op = MST_OP_MULTI_SET, .count = 501, .items = mst__buf_bytes(&items)};
    f.kv.limits.memory_max = f.kv.memory_used + 50000;
    struct mst__buf before;
    struct mst__buf after;
    snapshot(&f, &before);
    assert_int_equal(apply(&f, 0, &many, &reply), MST_ELIMIT);
    snapshot(&f, &after);
    assert_bytes(mst__buf_bytes(&after), mst__buf_bytes(&before));
    mst__kv_client_close(&f.kv, &f.clients[1]);
    assert_bytes_str(run(&f, 0, MST_OP_GET, "/b").bytes, "-1000000000000000");
    mst__buf_close(&before);
    mst__buf_close(&after);
    mst__buf_close(&items);
    fixture_close(&f);
}

static void no_number(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 1 << 20);
    fill(&f);
    size_t used = f.kv.memory_used;
    f.kv.limits.memory_max = used;
    struct mst__reply reply;
    for (int i = 0; i < 2; i++) {
        struct mst__command command = {
            .op = i == 0 ? MST_OP_ADD : MST_OP_BARRIER, .key = STR("/t"), .number = 1};
        assert_int_equal(apply(&f, 0, &command, &reply), MST_ETYPE);
        assert_int_equal(f.kv.memory_used, used);
        assert_bytes_str(run(&f, 0, MST_OP_GET, "/t").bytes, "text");
    }
    fixture_close(&f);
}

static void waits_survive_nothing_of_a_closed_client(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 1 << 20);
    assert_int_equal(wait_for(&f, 1, "/a", "/b"), MST_REPLY_LATER);
    assert_int_equal(wait_for(&f, 2, "/a", NULL), MST_REPLY_LATER);
    assert_int_equal(wait_for(&f, 3, "/a", NULL), MST_REPLY_LATER);
    set(&f, "/a", "1");
    /* 2 and 3 are released but not handed out yet; 2 goes, being the first in the list. */
    mst__kv_client_close(&f.kv, &f.clients[2]);
    assert_ptr_equal(mst__kv_next_released(&f.kv), &f.clients[3]);
    assert_null(mst__kv_next_released(&f.kv));
    assert_int_equal(wait_for(&f, 3, "/c", NULL), MST_REPLY_LATER);
    assert_int_equal(wait_for(&f, 4, "/c", NULL), MST_REPLY_LATER);
    set(&f, "/c", "1");
    /* The last in the list goes, and the list still takes more. */
    mst__kv_client_close(&f.kv, &f.clients[4]);
    assert_true(mst__kv_is_waiting(&f.clients[1]));
    set(&f, "/b", "1");
    assert_ptr_equal(mst__kv_next_released(&f.kv), &f.clients[3]);
    assert_ptr_equal(mst__kv_next_released(&f.kv), &f.clients[1]);
    assert_null(mst__kv_next_released(&f.kv));
    assert_false(mst__kv_is_waiting(&f.clients[1]));
    mst__kv_client_init(&f.clients[2]);
    mst__kv_client_init(&f.clients[4]);
    fixture_close(&f);
}

/* A client in a barrier of a key that it watches may close at any time. */
/* Changes between the parts of a wait count, and the wait is not over before the last part. */
static void a_wait_in_parts(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 1 << 20);
    assert_int_equal(wait_for(&f, 1, "/old", "/older"), MST_REPLY_LATER);
    assert_int_equal(wait_part(&f, "/a", false, true), MST_REPLY_LATER);
    set(&f, "/old", "v"); /* it was replaced */
    set(&f, "/older", "v");
    set(&f, "/a", "v");
    assert_null(mst__kv_next_released(&f.kv));
    assert_int_equal(run(&f, 0, MST_OP_DELETE, "/a").number, 1); /* it has been there */
    assert_int_equal(wait_part(&f, "/old", true, true), MST_REPLY_LATER);
    assert_true(mst__kv_is_waiting(&f.clients[1]));
    assert_int_equal(wait_part(&f, "/older", true, false), MST_REPLY_STATUS);
    assert_false(mst__kv_is_waiting(&f.clients[1]));
    assert_null(f.clients[1].parts); /* and costs nothing */
    assert_int_equal(wait_part(&f, "/b", false, true), MST_REPLY_LATER);
    assert_int_equal(wait_part(&f, "/c", true, false), MST_REPLY_LATER);
    set(&f, "/c", "v");
    assert_null(mst__kv_next_released(&f.kv));
    set(&f, "/b", "v");
    assert_ptr_equal(mst__kv_next_released(&f.kv), &f.clients[1]);
    assert_null(mst__kv_next_released(&f.kv));
    fixture_close(&f);
}

/* A wait that is given up in parts is not over when its other keys come. */
static void a_wait_is_shed(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 1 << 20);
    size_t before = f.kv.memory_used;
    assert_int_equal(wait_for(&f, 1, "/a", "/b"), MST_REPLY_LATER);
    assert_true(mst__kv_shed_wait(&f.kv, &f.clients[1])); /* it has one part */
    assert_int_equal(wait_part(&f, "/a", false, true), MST_REPLY_LATER);
    assert_int_equal(wait_part(&f, "/b", true, true), MST_REPLY_LATER);
    assert_int_equal(wait_part(&f, "/c", true, false), MST_REPLY_LATER);
    assert_false(mst__kv_shed_wait(&f.kv, &f.clients[1]));
    assert_false(mst__kv_shed_wait(&f.kv, &f.clients[1]));
    assert_true(mst__kv_shed_wait(&f.kv, &f.clients[1]));
    assert_true(mst__kv_is_waiting(&f.clients[1]));
    set(&f, "/a", "v");
    assert_null(mst__kv_next_released(&f.kv));
    (void)run(&f, 0, MST_OP_DELETE, "/a");
    (void)run(&f, 1, MST_OP_CANCEL_WAIT, "");
    assert_false(mst__kv_is_waiting(&f.clients[1]));
    assert_int_equal(f.kv.memory_used, before);
    fixture_close(&f);
}

static void watcher_in_a_barrier_goes(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 1 << 20);
    for (size_t i = 1; i <= 2; i++) {
        (void)run(&f, i, MST_OP_WATCH, "/b");
        drain(&f);
        (void)run(&f, i, MST_OP_BARRIER, "/b");
        drain(&f);
    }
    mst__kv_client_close(&f.kv, &f.clients[1]);
    struct mst__kv_notice notice;
    assert_true(mst__kv_next_notice(&f.kv, &notice));
    assert_ptr_equal(notice.client, &f.clients[2]);
    assert_int_equal(notice.change, MST_KV_UPDATED);
    assert_bytes_str(notice.old_value, "2");
    assert_bytes_str(notice.new_value, "1");
    assert_false(mst__kv_next_notice(&f.kv, &notice));
    mst__kv_client_close(&f.kv, &f.clients[2]);
    assert_false(mst__kv_next_notice(&f.kv, &notice));
    assert_int_equal(f.kv.keys_count, 0);
    assert_int_equal(f.kv.memory_used, 0);
    mst__kv_client_init(&f.clients[1]);
    mst__kv_client_init(&f.clients[2]);
    fixture_close(&f);
}

static void watches_are_limited(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 1 << 24);
    for (int i = 0; i < MST_WATCHES_MAX; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "/%d", i);
        (void)run(&f, 1, MST_OP_WATCH, key);
    }
    struct mst__command command = {.op = MST_OP_WATCH, .key = STR("/more")};
    struct mst__reply reply;
    assert_int_equal(apply(&f, 1, &command, &reply), MST_ELIMIT);
    assert_int_equal(apply(&f, 2, &command, &reply), 0);
    fixture_close(&f);
    assert_int_equal(f.kv.memory_used, 0);
}

/* A watcher that misses news of two keys at once is told once. */
static void two_lost_notices(void **state)
{
    (void)state;
    struct fixture f;
    struct mst__buf pairs;
    static uint8_t value[MST_KEPT_SIZE_MAX + 1]; /* smaller notices always fit */
    fixture_open(&f, MST_MIB(8));
    f.kv.limits.value_max = sizeof value;
    mst__buf_init(&pairs, MST_MIB(1));
    static const char *const keys[] = {"/a", "/b"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(mst__buf_append_str(&pairs, mst_bytes_str(keys[i])), 0);
        assert_int_equal(mst__buf_append_str(&pairs, mst_bytes_of(value, sizeof value)), 0);
    }
    const struct mst__command command = {
        .op = MST_OP_MULTI_SET, .count = 2, .items = mst__buf_bytes(&pairs)};
    struct mst__reply reply;
    assert_int_equal(apply(&f, 0, &command, &reply), 0);
    for (size_t i = 0; i < 2; i++) {
        (void)run(&f, 3, MST_OP_WATCH, keys[i]);
    }
    drain(&f);
    size_t charge = mst__kv_room(&f.kv) - MST_KIB(4); /* enough for the command itself */
    assert_true(mst__kv_charge(&f.kv, charge));
    assert_int_equal(apply(&f, 0, &command, &reply), 0);
    assert_true(lost_a_notice(&f, 3));
    mst__kv_discharge(&f.kv, charge);
    mst__buf_close(&pairs);
    fixture_close(&f);
}

static void connections_share_the_memory_limit(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 10000);
    assert_true(mst__kv_charge(&f.kv, 10000));
    assert_false(mst__kv_charge(&f.kv, 1));
    struct mst__command command = {.op = MST_OP_SET, .key = STR("/k")};
    struct mst__reply reply;
    assert_int_equal(apply(&f, 0, &command, &reply), MST_ELIMIT);
    mst__kv_discharge(&f.kv, 10000);
    assert_int_equal(apply(&f, 0, &command, &reply), 0);
    assert_false(mst__kv_charge(&f.kv, SIZE_MAX));
    fixture_close(&f);
}

/* The reply of a pop stays readable until the next call, although the item is gone. */
static void popped_bytes_stay(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 1 << 20);
    fill(&f);
    struct mst__reply reply = run(&f, 0, MST_OP_QUEUE_POP, "/q");
    assert_int_equal(reply.number, 1);
    assert_bytes_str(reply.bytes, "item");
    assert_int_equal(run(&f, 0, MST_OP_QUEUE_LEN, "/q").number, 0);
    fixture_close(&f);
}

static struct mst_bytes large_value(char fill)
{
    static char bytes[MST_SHARED_SIZE_MIN];
    memset(bytes, fill, sizeof bytes);
    return mst_bytes_of(bytes, sizeof bytes);
}

/* Hold the value of @key and do @command to it: the holder sees no change, others do, and the
 * memory is counted until the release. */
static void change_held(const struct mst__command *command)
{
    struct fixture f;
    fixture_open(&f, 1 << 20);
    const struct mst__command put = {
        .op = MST_OP_SET, .key = command->key, .value = large_value('a')};
    struct mst__reply reply;
    assert_int_equal(apply(&f, 0, &put, &reply), 0);
    struct mst__reply held = run(&f, 0, MST_OP_GET, "/k");
    assert_non_null(held.shared);
    size_t used = f.kv.memory_used;
    mst__kv_hold(&f.kv, held.shared);
    mst__kv_hold(&f.kv, held.shared);
    assert_int_equal(f.kv.memory_used, used); /* once for all */
    assert_int_equal(apply(&f, 1, command, &reply), 0);
    assert_true(f.kv.memory_used > MST_SHARED_SIZE_MIN);
    assert_int_not_equal(run(&f, 0, MST_OP_GET, "/k").bytes.data == held.bytes.data, true);
    assert_bytes(held.bytes, large_value('a'));
    mst__kv_release(&f.kv, held.shared);
    assert_bytes(held.bytes, large_value('a'));
    size_t before = f.kv.memory_used;
    mst__kv_release(&f.kv, held.shared);
    assert_true(f.kv.memory_used <= before - MST_SHARED_SIZE_MIN);
    assert_int_equal(run(&f, 0, MST_OP_DELETE, "/k").number, command->op == MST_OP_DELETE ? 0 : 1);
    assert_int_equal(f.kv.memory_used, 0);
    fixture_close(&f);
}

static void held_values_do_not_change(void **state)
{
    (void)state;
    struct mst__buf pair;
    mst__buf_init(&pair, 100);
    assert_int_equal(mst__buf_append_str(&pair, STR("/k")), 0);
    assert_int_equal(mst__buf_append_str(&pair, STR("b")), 0);
    const struct mst__command commands[] = {
        {.op = MST_OP_SET, .key = STR("/k"), .value = STR("b")},
        {.op = MST_OP_APPEND, .key = STR("/k")},
        {.op = MST_OP_COMPARE_SET, .key = STR("/k"), .expected = large_value('a')},
        {.op = MST_OP_DELETE, .key = STR("/k")},
        {.op = MST_OP_MULTI_SET, .key = STR("/k"), .count = 1, .items = mst__buf_bytes(&pair)},
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        change_held(&commands[i]);
    }
    mst__buf_close(&pair);
}

/* An item that was popped can be held as a value can; small ones cannot, neither of them. */
static void what_can_be_held(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 1 << 20);
    struct mst__command push = {
        .op = MST_OP_QUEUE_PUSH, .key = STR("/q"), .value = large_value('q')};
    struct mst__reply reply;
    assert_int_equal(apply(&f, 0, &push, &reply), 0);
    push.value.size--;
    assert_int_equal(apply(&f, 0, &push, &reply), 0);
    struct mst__reply held = run(&f, 0, MST_OP_QUEUE_POP, "/q");
    assert_non_null(held.shared);
    mst__kv_hold(&f.kv, held.shared);
    assert_null(run(&f, 0, MST_OP_QUEUE_POP, "/q").shared);
    assert_int_equal(run(&f, 0, MST_OP_QUEUE_LEN, "/q").number, 0);
    assert_bytes(held.bytes, large_value('q'));
    assert_true(f.kv.memory_used > MST_SHARED_SIZE_MIN);
    mst__kv_release(&f.kv, held.shared);
    assert_int_equal(f.kv.memory_used, 0);
    /* What is held stays where it is. */
    const struct mst__command write = {
        .op = MST_OP_SET, .key = STR("/large"), .value = large_value('l')};
    assert_int_equal(apply(&f, 0, &write, &reply), 0);
    held = run(&f, 0, MST_OP_GET, "/large");
    mst__kv_hold(&f.kv, held.shared);
    mst__kv_compact_begin(&f.kv);
    assert_false(mst__kv_compact(&f.kv, 1000, true));
    assert_ptr_equal(run(&f, 0, MST_OP_GET, "/large").shared, held.shared);
    assert_bytes(held.bytes, large_value('l'));
    mst__kv_release(&f.kv, held.shared);
    set(&f, "/small", "text");
    assert_null(run(&f, 0, MST_OP_GET, "/small").shared);
    /* A failed COMPARE_SET replies with the value, which can be held; a successful one, or one
     * of an absent key, replies with the command's own bytes. */
    struct mst__command swap = {
        .op = MST_OP_COMPARE_SET, .key = STR("/c"), .value = large_value('c')};
    assert_int_equal(apply(&f, 0, &swap, &reply), 0);
    assert_null(reply.shared);
    assert_int_equal(apply(&f, 0, &swap, &reply), 0);
    assert_non_null(reply.shared);
    swap.key = STR("/none");
    swap.expected = swap.value;
    assert_int_equal(apply(&f, 0, &swap, &reply), 0);
    assert_null(reply.shared);
    fixture_close(&f);
}

static void found_tells_absent_from_empty(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 1 << 20);
    set(&f, "/e", "");
    assert_true(run(&f, 0, MST_OP_GET, "/e").found);
    assert_false(run(&f, 0, MST_OP_GET, "/none").found);
    /* A key that a client waits for does not exist. */
    assert_int_equal(wait_for(&f, 1, "/w", NULL), MST_REPLY_LATER);
    assert_false(run(&f, 0, MST_OP_GET, "/w").found);
    assert_int_equal(run(&f, 0, MST_OP_DELETE, "/w").number, 0);
    assert_int_equal(run(&f, 0, MST_OP_NUM_KEYS, "").number, 1);
    fixture_close(&f);
}

/* Whether a CHECK of @a, and of @b unless that is NULL, finds all. */
static bool is_there(struct fixture *f, const char *a, const char *b)
{
    struct mst__buf items;
    struct mst__reply reply = {0};
    mst__buf_init(&items, 1000);
    assert_int_equal(mst__buf_append_str(&items, mst_bytes_str(a)), 0);
    if (b != NULL) {
        assert_int_equal(mst__buf_append_str(&items, mst_bytes_str(b)), 0);
    }
    const struct mst__command check = {
        .op = MST_OP_CHECK, .count = b == NULL ? 1 : 2, .items = mst__buf_bytes(&items)};
    assert_int_equal(apply(f, 0, &check, &reply), 0);
    mst__buf_close(&items);
    return reply.status == MST_STATUS_READY;
}

/* A server tells which epochs are its own, to those who ask for one. */
static void epochs_are_told(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, MST_MIB(1));
    f.kv.epoch_first = 10;
    f.kv.epoch_end = 12;
    assert_false(is_there(&f, "muster.epoch", NULL)); /* not a server */
    assert_false(is_there(&f, "muster.epoch.10", NULL));
    f.kv.announces = true;
    assert_true(is_there(&f, "muster.epoch", NULL));
    assert_false(is_there(&f, "muster.epoch.9", NULL));
    assert_true(is_there(&f, "muster.epoch.10", NULL));
    assert_true(is_there(&f, "muster.epoch.11", NULL));
    assert_false(is_there(&f, "muster.epoch.12", NULL));
    static const char *const malformed[] = {"muster.epoch.",    "muster.epoch.x",
                                            "muster.epoch.11x", "muster.epoch.-11",
                                            "/muster.epoch.11", "muster.epoc"};
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        assert_false(is_there(&f, malformed[i], NULL));
    }
    assert_false(is_there(&f, "muster.epoch.10", "muster.epoch.11"));
    /* Who has asked for refusals gets them, whatever it asks for later. */
    assert_false(f.clients[0].asks_why);
    assert_true(is_there(&f, MST_KV_ANNOUNCEMENT_REFUSAL, NULL));
    assert_true(f.clients[0].asks_why);
    assert_true(is_there(&f, "muster.epoch.10", NULL));
    assert_true(f.clients[0].asks_why);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_allocation),
        cmocka_unit_test(memory_limit_byte_by_byte),
        cmocka_unit_test(all_memory_comes_back),
        cmocka_unit_test(close_with_content),
        cmocka_unit_test(large_values_give_memory_back),
        cmocka_unit_test(append_stops_at_its_limit),
        cmocka_unit_test(replies_stop_at_their_limit),
        cmocka_unit_test(large_replies_leave_no_room),
        cmocka_unit_test(refused_multi_set_leaves_a_barrier_alone),
        cmocka_unit_test(no_number),
        cmocka_unit_test(waits_survive_nothing_of_a_closed_client),
        cmocka_unit_test(a_wait_in_parts),
        cmocka_unit_test(a_wait_is_shed),
        cmocka_unit_test(watcher_in_a_barrier_goes),
        cmocka_unit_test(watches_are_limited),
        cmocka_unit_test(two_lost_notices),
        cmocka_unit_test(connections_share_the_memory_limit),
        cmocka_unit_test(popped_bytes_stay),
        cmocka_unit_test(held_values_do_not_change),
        cmocka_unit_test(what_can_be_held),
        cmocka_unit_test(found_tells_absent_from_empty),
        cmocka_unit_test(epochs_are_told),
    };
    return MST_RUN_TESTS(tests);
}
