/* unit/net/test_client.c - a name with several addresses. The test is the resolver. */
#include "net/client.h"

#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "unit/unit.h"

#define PLENTY_MS 20000

/* Less than the pause before the next address is tried while one does not answer. */
#define AT_ONCE_MS 200
#define ATTEMPTS 20

/* The ports that `several.test` has at 127.0.0.1, in this order. */
static const char *ports[3];

typedef int (*getaddrinfo_fn)(const char *,
                              const char *,
                              const struct addrinfo *,
                              struct addrinfo **);

/* In place of that of the C library. */
int getaddrinfo(const char *host,
                const char *service,
                const struct addrinfo *hints,
                struct addrinfo **ret_addresses)
{
    getaddrinfo_fn real;
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(host, "several.test") != 0 || (hints->ai_flags & AI_NUMERICHOST) != 0) {
        return real(host, service, hints, ret_addresses);
    }
    struct addrinfo **end = ret_addresses;
    for (size_t i = 0; ports[i] != NULL; i++) {
        int status = real("127.0.0.1", ports[i], hints, end);
        if (status != 0) {
            return status;
        }
        end = &(*end)->ai_next; /* a number has one address */
    }
    return 0;
}

/* A port; of a server if it listens. */
static int port_new(bool listens, char ret_port[8])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listens ? listen(fd, 64) : 0, 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    (void)snprintf(ret_port, 8, "%u", (unsigned)ntohs(address.sin_port));
    return fd;
}

static int connect_to_several(struct mst_err *reterr)
{
    const struct mst__endpoint endpoint = {.host = "several.test", .port = 1};
    struct mst__client client;
    int rv = mst__client_open(&endpoint, MST_KIB(1), mst__until_in(PLENTY_MS), &client, reterr);
    if (rv == 0) {
        mst__client_close(&client);
    }
    return rv;
}

/* An address that refuses costs no time: the next one is tried at once. */
static void next_address_at_once(void **state)
{
    (void)state;
    char refusing[8];
    char serving[8];
    struct mst_err err = {.code = 0};
    int fds[] = {port_new(false, refusing), port_new(true, serving)};
    ports[0] = refusing;
    ports[1] = serving;
    int64_t least_ms = PLENTY_MS;
    for (int i = 0; i < ATTEMPTS && least_ms >= AT_ONCE_MS; i++) { /* the machine may be busy */
        int64_t begin_ms = mst__clock_ms();
        assert_int_equal(connect_to_several(&err), 0);
        int64_t took_ms = mst__clock_ms() - begin_ms;
        least_ms = took_ms < least_ms ? took_ms : least_ms;
    }
    assert_in_range(least_ms, 0, AT_ONCE_MS - 1);
    (void)close(fds[1]);
    fds[1] = port_new(false, serving);
    assert_int_equal(connect_to_several(&err), MST_ECONN);
    assert_non_null(strstr(err.msg, serving)); /* the last one */
    (void)close(fds[0]);
    (void)close(fds[1]);
}

/* One that does not answer holds up the next one for a moment only. */
static void next_address_soon(void **state)
{
    (void)state;
    enum { CALLERS = 4 };
    char hung[8];
    char serving[8];
    struct mst_err err = {.code = 0};
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    int callers[CALLERS];
    int fds[] = {port_new(false, hung), port_new(true, serving)};
    assert_int_equal(listen(fds[0], 0), 0);
    assert_int_equal(getsockname(fds[0], (struct sockaddr *)&address, &size), 0);
    for (size_t i = 0; i < CALLERS; i++) { /* more than it has room for: who comes later waits */
        callers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        assert_true(callers[i] >= 0);
        (void)connect(callers[i], (struct sockaddr *)&address, size); /* it is under way */
    }
    ports[0] = hung;
    ports[1] = serving;
    int64_t begin_ms = mst__clock_ms();
    assert_int_equal(connect_to_several(&err), 0);
    assert_in_range(mst__clock_ms() - begin_ms, AT_ONCE_MS, PLENTY_MS / 4);
    for (size_t i = 0; i < CALLERS; i++) {
        (void)close(callers[i]);
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_address_at_once),
        cmocka_unit_test(next_address_soon),
    };
    return MST_RUN_TESTS(tests);
}
