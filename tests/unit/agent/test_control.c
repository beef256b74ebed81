/* unit/agent/test_control.c - the thread for commands: it ends in time although its etcd hangs, and
 * shows what a command has changed before it says that it is done. */
#include <arpa/inet.h>
#include <muster/rendezvous.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
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
    struct mst__control *control;
    struct mst_store *keys; /* of the job, not through the relay */
    char seen[40];          /* the state in the store when the answer was sent */
};

/* An mst__control_fn. The command changes the state. */
static bool change(void *arg, const struct mst__control_command *command)
{
    struct agent *agent = arg;
    (void)command;
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

static void send_command(struct mst_store *keys)
{
    const struct mst__control_command command = {.kind = MST_CONTROL_RESTART};
    struct mst__buf text;
    int64_t number = 0;
    mst__buf_init(&text, MST_CONTROL_TEXT_SIZE_MAX);
    assert_int_equal(mst__control_write(&command, &text), 0);
    assert_ok(mst_store_add(keys, STR(MST_CONTROL_COUNT), 1, PLENTY_MS, &number, &err));
    assert_int_equal(number, 1);
    assert_ok(mst_store_set(keys, STR("commands/1"), mst__buf_bytes(&text), PLENTY_MS, &err));
    mst__buf_close(&text);
}

/* Whoever has drained a node, and drains the next one, has to see in the store that the first one
 * leaves. */
static void state_comes_before_the_answer(void **state)
{
    struct fixture *f = NULL;
    void *opened = NULL;
    (void)state;
    assert_int_equal(fixture_open(&opened), 0);
    f = opened;
    struct tap tap;
    struct agent agent = {.seen = ""};
    struct mst_params *params = NULL;
    uv_loop_t loop;
    uv_timer_t ticks;
    char url[64];
    tap_open(&tap, f->endpoint.port);
    (void)snprintf(url, sizeof url, "tcp://127.0.0.1:%u", (unsigned)tap.port);
    struct mst_store *store = open_store(url);
    (void)snprintf(url, sizeof url, "tcp://%s?prefix=" MST_CONTROL_PREFIX "job", f->text);
    agent.keys = open_store(url);
    assert_ok(mst_params_new("muster", "job", &params, &err));
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_timer_init(&loop, &ticks), 0);
    assert_int_equal(uv_timer_start(&ticks, on_tick, 1, 1), 0);
    assert_ok(mst__control_new(&loop, store, params, "node", change, &agent, &agent.control, &err));
    mst__control_publish(agent.control, STR("works"), "", 1, 0, 0);
    struct mst_bytes node = STR(MST_CONTROL_NODES "node");
    assert_ok(mst_store_wait(agent.keys, &node, 1, PLENTY_MS, &err)); /* it takes commands now */
    tap_set_before(&tap, "replies/1", TAP_PASS, look, &agent);
    send_command(agent.keys);
    int64_t end_ms = mst__clock_deadline_ms(PLENTY_MS);
    while (!tap_is_done(&tap) && mst__clock_ms() < end_ms) {
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    assert_string_equal(agent.seen, "leaves");
    mst__control_free(agent.control);
    uv_close((uv_handle_t *)&ticks, NULL);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    mst_store_close(agent.keys);
    mst_store_close(store);
    mst_params_free(params);
    tap_close(&tap);
    assert_int_equal(fixture_close(&opened), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_ends_at_once),
        cmocka_unit_test(state_comes_before_the_answer),
    };
    return MST_RUN_TESTS(tests);
}
