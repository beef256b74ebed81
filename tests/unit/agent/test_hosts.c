/* unit/agent/test_hosts.c - hosts of a job, their tree, and the message to each. */
#include <string.h>
#include <unistd.h>

#include "agent/hosts.h"
#include "agent/relay.h"
#include "base/limits.h"
#include "unit/unit.h"

static struct mst__arena arena;

static int reset(void **state)
{
    (void)state;
    mst__arena_close(&arena);
    return 0;
}

static void lists(void **state)
{
    (void)state;
    struct mst__host_list list;
    struct mst_err err;
    assert_int_equal(mst__hosts_parse("a,me@n[08-10].x,b", &arena, &list, &err), 0);
    assert_int_equal(list.count, 5);
    assert_string_equal(list.hosts[1].name, "me@n08.x");
    assert_string_equal(list.hosts[3].name, "me@n10.x");
    assert_int_equal(list.hosts[4].index, 4);
    static const char *const wrong[] = {"", "a,a", "a,,b", "-oProxyCommand=x", "a b", "a;b", "a["};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(mst__hosts_parse(wrong[i], &arena, &list, &err), MST_EINVAL);
    }
}

static void host_files(void **state)
{
    (void)state;
    struct mst__host_list list;
    struct mst_err err;
    assert_int_equal(mst__hosts_parse_file(
                         mst_bytes_str("# all of them\n\n  a  slots=4 # big\nb[1-2]\r\nc # too"),
                         &arena, &list, &err),
                     0);
    assert_int_equal(list.count, 4);
    assert_string_equal(list.hosts[0].name, "a");
    assert_int_equal(list.hosts[0].slots, 4);
    assert_string_equal(list.hosts[2].name, "b2");
    assert_int_equal(list.hosts[2].slots, 0);
    assert_int_equal(mst__hosts_parse_file(mst_bytes_str("a 4\n"), &arena, &list, &err),
                     MST_EINVAL);
    assert_int_equal(mst__hosts_parse_file(mst_bytes_str("#\n"), &arena, &list, &err), MST_EINVAL);
}

/* Walk the tree of @count hosts: each is there once, and none has too many children. */
static size_t walk(size_t begin, size_t count, uint8_t *seen, size_t depth)
{
    size_t deepest = depth;
    size_t first = 0;
    size_t below = 0;
    for (size_t child = 0; mst__hosts_child(count, child, &first, &below); child++) {
        assert_true(child < MST_HOSTS_CHILDREN_MAX);
        assert_true(first + below < count);
        seen[begin + first]++;
        size_t depth_there = walk(begin + first + 1, below, seen, depth + 1);
        deepest = depth_there > deepest ? depth_there : deepest;
    }
    return deepest;
}

static void trees(void **state)
{
    (void)state;
    static const struct {
        size_t count, depth;
    } cases[] = {{0, 0}, {1, 1}, {32, 1}, {33, 2}, {64, 2}, {1056, 2}, {1057, 3}, {20000, 3}};
    static uint8_t seen[20000];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memset(seen, 0, sizeof seen);
        assert_int_equal(walk(0, cases[i].count, seen, 0), cases[i].depth);
        for (size_t j = 0; j < cases[i].count; j++) {
            assert_int_equal(seen[j], 1);
        }
        assert_int_equal(mst__hosts_levels(cases[i].count), cases[i].depth);
    }
}

/* A message names as many hosts as fit, and counts the others. */
static void names(void **state)
{
    (void)state;
    struct mst__host_names few = {0};
    mst__host_names_add(&few, "a");
    mst__host_names_add(&few, "b.x");
    assert_string_equal(mst__host_names_end(&few), "a, b.x");
    struct mst__host_names many = {0};
    char name[60];
    for (size_t i = 0; i < MST_HOSTS_MAX; i++) {
        (void)snprintf(name, sizeof name, "host-with-a-name-of-forty-characters-%03zu", i % 1000);
        mst__host_names_add(&many, i == 7 ? "short" : name);
    }
    assert_string_equal(mst__host_names_end(&many),
                        "host-with-a-name-of-forty-characters-000, "
                        "host-with-a-name-of-forty-characters-001, "
                        "host-with-a-name-of-forty-characters-002, "
                        "host-with-a-name-of-forty-characters-003, "
                        "host-with-a-name-of-forty-characters-004 and 65531 more");
    struct mst__host_names long_one = {0};
    char longest[400];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    mst__host_names_add(&long_one, longest);
    assert_string_equal(mst__host_names_end(&long_one), "1 more");
}

static void messages(void **state)
{
    (void)state;
    struct mst__relay_job job = {
        .cwd = "/a dir\n",
        .environment = (char *const[]){(char *)"A=1\ngo 0\n\n", (char *)"B="},
        .environment_count = 2,
        .arguments = (char *const[]){(char *)"--nnodes=3", (char *)"", (char *)"x y"},
        .arguments_count = 3,
        .ssh = "ssh -p 22",
        .muster = "/usr/bin/muster",
        .needs_all = true,
        .preempt_status = 75,
        .grace_ms = 0,
        .host_ms = 60000,
        .word = "0123456789abcdef0123456789abcdef",
    };
    struct mst__relay_job read;
    struct mst__buf text;
    size_t size = 0;
    assert_int_equal(mst__hosts_parse("n[1-40]", &arena, &job.below, NULL), 0);
    job.below.hosts[0].slots = 8;
    mst__buf_init(&text, MST_RELAY_JOB_SIZE_MAX);
    assert_int_equal(mst__relay_job_write(&job, 0, &text), 0);
    struct mst_bytes whole = mst__buf_bytes(&text);
    for (size_t i = 0; i < whole.size; i++) {
        assert_int_equal(
            mst__relay_job_read(mst_bytes_of(whole.data, i), &arena, &read, &size, NULL), 0);
        assert_int_equal(size, 0);
    }
    assert_int_equal(mst__buf_append(&text, mst_bytes_str("signal 15\n")), 0);
    size_t wanted = whole.size;
    whole = mst__buf_bytes(&text);
    assert_int_equal(mst__relay_job_read(whole, &arena, &read, &size, NULL), 0);
    assert_int_equal(size, wanted);
    assert_string_equal(read.cwd, job.cwd);
    assert_int_equal(read.environment_count, 2);
    assert_string_equal(read.environment[0], job.environment[0]);
    assert_int_equal(read.arguments_count, 3);
    assert_string_equal(read.arguments[1], "");
    assert_string_equal(read.arguments[2], "x y");
    assert_string_equal(read.ssh, "ssh -p 22");
    assert_string_equal(read.muster, "/usr/bin/muster");
    assert_true(read.needs_all);
    assert_int_equal(read.preempt_status, 75);
    assert_int_equal(read.grace_ms, 0);
    assert_int_equal(read.host_ms, 60000);
    assert_string_equal(read.word, job.word);
    assert_true(read.has_self);
    assert_string_equal(read.self.name, "n1");
    assert_int_equal(read.self.slots, 8);
    assert_int_equal(read.below.count, 1);
    assert_string_equal(read.below.hosts[0].name, "n2");
    assert_int_equal(read.below.hosts[0].index, 1);
    mst__buf_close(&text);
    static const char *const wrong[] = {
        "hello\n",  "muster-relay 1\n1\ngo 0\n\n", "go 0\n\n",           "self 3\nx y\ngo 0\n\n",
        "cwd -1\n", "cwd 99999999999999\nx",       "word 0\n\ngo 0\n\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(mst__relay_job_read(mst_bytes_str(wrong[i]), &arena, &read, &size, NULL),
                         MST_EINVAL);
    }
}

/* A relay does not wait for ever for a job that never comes. */
static void receiving(void **state)
{
    (void)state;
    int fds[2];
    struct mst__buf input;
    struct mst__relay_job job;
    struct mst_err err;
    size_t size = 0;
    mst__buf_init(&input, MST_RELAY_JOB_SIZE_MAX);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "cwd 1\n", 6), 6);
    assert_int_equal(mst__relay_receive(fds[0], 20, &arena, &input, &job, &size, &err),
                     MST_ETIMEOUT);
    (void)close(fds[1]);
    assert_int_equal(mst__relay_receive(fds[0], 20, &arena, &input, &job, &size, &err), MST_ECONN);
    (void)close(fds[0]);
    mst__buf_close(&input);
}

static int status_of(const int *statuses, size_t count)
{
    struct mst__relay_result result = {0};
    for (size_t i = 0; i < count; i++) {
        mst__relay_result_add(&result, statuses[i], 75);
    }
    return mst__relay_result_status(&result);
}

#define STATUS(...) \
    status_of((const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

/* A failure counts before an end, and that before nodes that left or are lost. */
static void statuses(void **state)
{
    (void)state;
    assert_int_equal(STATUS(0, 0), 0);
    assert_int_equal(STATUS(0, 85, 1), 85);
    assert_int_equal(STATUS(255, 0), 0);
    assert_int_equal(STATUS(75, 0), 0);
    assert_int_equal(STATUS(255, 137), 137);
    assert_int_equal(STATUS(75, 75), 75);
    assert_int_equal(STATUS(255, 255), 255);
    /* Of several of a kind, the first one. */
    assert_int_equal(STATUS(255, 75), 255);
    assert_int_equal(STATUS(75, 255), 75);
    assert_int_equal(STATUS(3, 4), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(lists, reset),     cmocka_unit_test_teardown(host_files, reset),
        cmocka_unit_test_teardown(trees, reset),     cmocka_unit_test_teardown(messages, reset),
        cmocka_unit_test_teardown(statuses, reset),  cmocka_unit_test(names),
        cmocka_unit_test_teardown(receiving, reset),
    };
    return MST_RUN_TESTS(tests);
}
