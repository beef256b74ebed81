/* unit/agent/test_control.c - the thread for commands: it ends in time although its etcd hangs, and
 * shows what a command has changed before it says that it is done. */
#include <arpa/inet.h>
#include <muster/rendezvous.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/control.h"
#include "agent/control_keys.h"
#include "base/clock.h"
#include "base/limits.h"
#include "unit/server_unit.h"
#include "unit/store/tap_unit.h"

#define PATIENCE_S 10

static const struct timeval patience = {.tv_sec = PATIENCE_S};

/* An etcd that accepts connections and answers nothing. */
static int silent_etcd(char *ret_endpoint, size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t address_size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, address_size), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &address_size), 0);
    (void)snprintf(ret_endpoint, size, "127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
    return listener;
}

static bool no_command(void *arg, const struct mst__control_command *command)
{
    (void)arg;
    (void)command;
    return false;
}

static void opening_ends_at_once(void **state)
{
    (void)state;
#ifndef MST_WITH_ETCD
    MST_SKIP("this muster was built without etcd");
#endif
    char endpoint[32];
    int listener = silent_etcd(endpoint, sizeof endpoint);
    struct mst_params *params = NULL;
    assert_int_equal(mst_params_new("etcd-v3", "job", &params, NULL), 0);
    assert_int_equal(mst_params_set_endpoint(params, endpoint, NULL), 0);
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    struct mst__control *control = NULL;
    assert_int_equal(
        mst__control_new(&loop, NULL, params, "node", no_command, NULL, &control, NULL), 0);

    int conn = accept(listener, NULL, NULL);
    assert_true(conn >= 0);
    assert_int_equal(setsockopt(conn, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    char byte;
    assert_int_equal(recv(conn, &byte, 1, 0), 1); /* of a request: now it waits for the answer */

    int64_t begin_ms = mst__clock_ms();
    mst__control_free(control);
    int64_t took_ms = mst__clock_ms() - begin_ms;
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    mst_params_free(params);
    assert_int_equal(close(conn), 0);
    assert_int_equal(close(listener), 0);
    assert_true(took_ms < MST_CONTROL_CALL_MS / 2);
}

/* --- an agent behind a relay --- */

struct agent {
    void *server; /* a struct fixture */
    struct tap tap;
    struct mst_params *params;
    struct mst_store *store;
    uv_loop_t loop;
    uv_timer_t ticks;
    struct mst__control *control;
    struct mst_store *keys; /* of the job, not through the relay */
    char seen[40];          /* the state in the store when the answer was sent */
    int commands_count;
};

/* An mst__control_fn. The command changes the state. */
static bool change(void *arg, const struct mst__control_command *command)
{
    struct agent *agent = arg;
    (void)command;
    agent->commands_count++;
    mst__control_publish(agent->control, STR("leaves"), "", 1, 0, 0);
    return true;
}

/* The loop of an agent has other things to do, too; without them it would not run. */
static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

/* Called by the relay before it passes the answer on. */
static void look(void *arg)
{
    struct agent *agent = arg;
    struct mst_buffer value = {0};
    struct mst_err own;
    if (mst_store_try_get(agent->keys, STR(MST_CONTROL_NODES "node"), PLENTY_MS, &value, &own) ==
        0) {
        (void)snprintf(agent->seen, sizeof agent->seen, "%s", (const char *)value.data);
    }
    mst_buffer_free(&value);
}

static void agent_open(struct agent *agent)
{
    char url[64];
    *agent = (struct agent){.seen = ""};
    assert_int_equal(fixture_open(&agent->server), 0);
    const struct fixture *f = agent->server;
    tap_open(&agent->tap, f->endpoint.port);
    (void)snprintf(url, sizeof url, "tcp://127.0.0.1:%u", (unsigned)agent->tap.port);
    agent->store = open_store(url);
    (void)snprintf(url, sizeof url, "tcp://%s?prefix=" MST_CONTROL_PREFIX "job", f->text);
    agent->keys = open_store(url);
    assert_ok(mst_params_new("muster", "job", &agent->params, &err));
    assert_int_equal(uv_loop_init(&agent->loop), 0);
    assert_int_equal(uv_timer_init(&agent->loop, &agent->ticks), 0);
    assert_int_equal(uv_timer_start(&agent->ticks, on_tick, 1, 1), 0);
}

/* It takes commands from here on. */
static void agent_start(struct agent *agent, const char *log_dir)
{
    assert_ok(mst__control_new(&agent->loop, agent->store, agent->params, "node", change, agent,
                               &agent->control, &err));
    mst__control_publish(agent->control, STR("works"), log_dir, 1, 0, 1);
    struct mst_bytes node = STR(MST_CONTROL_NODES "node");
    assert_ok(mst_store_wait(agent->keys, &node, 1, PLENTY_MS, &err));
}

static void agent_close(struct agent *agent)
{
    mst__control_free(agent->control);
    uv_close((uv_handle_t *)&agent->ticks, NULL);
    assert_int_equal(uv_run(&agent->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&agent->loop), 0);
    mst_store_close(agent->keys);
    mst_store_close(agent->store);
    mst_params_free(agent->params);
    tap_close(&agent->tap);
    assert_int_equal(fixture_close(&agent->server), 0);
}

static void send_command(const struct agent *agent,
                         const struct mst__control_command *command,
                         int64_t number)
{
    struct mst__buf text;
    char key[40];
    int64_t count = 0;
    mst__buf_init(&text, MST_CONTROL_TEXT_SIZE_MAX);
    assert_int_equal(mst__control_write(command, &text), 0);
    assert_ok(mst_store_add(agent->keys, STR(MST_CONTROL_COUNT), 1, PLENTY_MS, &count, &err));
    assert_int_equal(count, number);
    (void)snprintf(key, sizeof key, "commands/%lld", (long long)number);
    assert_ok(
        mst_store_set(agent->keys, mst_bytes_str(key), mst__buf_bytes(&text), PLENTY_MS, &err));
    mst__buf_close(&text);
}

static const struct mst__control_command restart = {.kind = MST_CONTROL_RESTART};

/* Whoever has drained a node, and drains the next one, has to see in the store that the first one
 * leaves. */
static void state_comes_before_the_answer(void **state)
{
    (void)state;
    struct agent agent;
    agent_open(&agent);
    agent_start(&agent, "");
    tap_set_before(&agent.tap, "replies/1", TAP_PASS, look, &agent);
    send_command(&agent, &restart, 1);
    int64_t end_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (!tap_is_done(&agent.tap) && mst__clock_ms() < end_ms) {
        (void)uv_run(&agent.loop, UV_RUN_ONCE);
    }
    assert_string_equal(agent.seen, "leaves");
    agent_close(&agent);
}

/* Commands from before an agent was there are not for it. */
static void earlier_commands_are_for_others(void **state)
{
    (void)state;
    struct agent agent;
    bool is_answered = false;
    agent_open(&agent);
    send_command(&agent, &restart, 1);
    send_command(&agent, &restart, 2);
    agent_start(&agent, "");
    send_command(&agent, &restart, 3);
    struct mst_bytes reply = STR("replies/3");
    int64_t end_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (!is_answered && mst__clock_ms() < end_ms) {
        (void)uv_run(&agent.loop, UV_RUN_ONCE);
        assert_ok(mst_store_check(agent.keys, &reply, 1, PLENTY_MS, &is_answered, &err));
    }
    assert_true(is_answered);
    assert_int_equal(agent.commands_count, 1);
    assert_absent(agent.keys, "replies/1");
    agent_close(&agent);
}

/* --- logs --- */

static void assert_popped(const struct agent *agent, int reader, const char *wanted)
{
    char key[40];
    struct mst_buffer piece = {0};
    (void)snprintf(key, sizeof key, "logs/reader%d", reader);
    assert_ok(mst_store_queue_pop(agent->keys, mst_bytes_str(key), true, PLENTY_MS, &piece, &err));
    assert_bytes_str(mst_bytes_of(piece.data, piece.size), wanted);
    mst_buffer_free(&piece);
}

/* Of more readers than a node serves the last one is told so; the others read on. */
static void too_many_readers(void **state)
{
    (void)state;
    struct agent agent;
    char folder[] = "/tmp/muster-unit-XXXXXX";
    char paths[3][80];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(paths[0], sizeof paths[0], "%s/gen_1", folder);
    (void)snprintf(paths[1], sizeof paths[1], "%s/rank_0.local_0", paths[0]);
    (void)snprintf(paths[2], sizeof paths[2], "%s/stdout.log", paths[1]);
    assert_int_equal(mkdir(paths[0], 0700), 0);
    assert_int_equal(mkdir(paths[1], 0700), 0);
    FILE *log = fopen(paths[2], "we");
    assert_non_null(log);
    assert_true(fputs("line\n", log) >= 0);
    assert_int_equal(fclose(log), 0);
    agent_open(&agent);
    agent_start(&agent, folder);
    for (int reader = 1; reader <= MST_CONTROL_READERS_MAX + 1; reader++) {
        struct mst__control_command command = {
            .kind = MST_CONTROL_LOGS, .lines = -1, .follows = true};
        (void)snprintf(command.token, sizeof command.token, "reader%d", reader);
        send_command(&agent, &command, reader);
    }
    assert_popped(&agent, MST_CONTROL_READERS_MAX + 1, "etoo many readers of logs on this node");
    assert_popped(&agent, 1, "dline\n");
    assert_popped(&agent, MST_CONTROL_READERS_MAX, "dline\n");
    agent_close(&agent);
    assert_int_equal(unlink(paths[2]), 0);
    assert_int_equal(rmdir(paths[1]), 0);
    assert_int_equal(rmdir(paths[0]), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_ends_at_once),
        cmocka_unit_test(state_comes_before_the_answer),
        cmocka_unit_test(earlier_commands_are_for_others),
        cmocka_unit_test(too_many_readers),
    };
    return MST_RUN_TESTS(tests);
}
