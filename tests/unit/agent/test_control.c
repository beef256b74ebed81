/* unit/agent/test_control.c - the thread for commands ends in time although its etcd hangs. */
#include <arpa/inet.h>
#include <muster/rendezvous.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/control.h"
#include "base/clock.h"
#include "base/limits.h"
#include "unit/unit.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_ends_at_once),
    };
    return MST_RUN_TESTS(tests);
}
