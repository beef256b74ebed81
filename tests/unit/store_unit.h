/* unit/store_unit.h - shared by the tests of the stores. */
#ifndef MST_UNIT_STORE_UNIT_H
#define MST_UNIT_STORE_UNIT_H

#include "unit/unit.h"

#include <arpa/inet.h>
#include <muster/muster.h>
#include <string.h>
#include <sys/socket.h>

/* Long enough for a busy machine; only a failure waits that long. */
#define PLENTY_MS 20000

/* For events that must not happen: a passing test takes this long. */
#define SHORT_MS 60

#define STR(text) mst_bytes_str(text)

/* The error of the last call of the test's main thread. */
static struct mst_err err;

/* The call, which ends in `&err`, succeeds. */
#define assert_ok(call)                         \
    do {                                        \
        err = (struct mst_err){0};              \
        if ((call) != 0) {                      \
            fail_msg("%s: %s", #call, err.msg); \
        }                                       \
    } while (0)

/* Parameters with all that a test may want to say; @local_addr may be NULL. */
static inline int unit_params(const char *backend,
                              const char *endpoint,
                              const char *run_id,
                              int64_t nodes_min,
                              int64_t nodes_max,
                              const char *local_addr,
                              struct mst_params **ret_params,
                              struct mst_err *reterr)
{
    struct mst_params *params = NULL;
    int rv = mst_params_new(backend, run_id, &params, reterr);
    rv = rv == 0 ? mst_params_set_endpoint(params, endpoint, reterr) : rv;
    rv = rv == 0 ? mst_params_set_nodes(params, nodes_min, nodes_max, reterr) : rv;
    rv = rv == 0 ? mst_params_set_local_addr(params, local_addr, reterr) : rv;
    if (rv != 0) {
        mst_params_free(params);
        return rv;
    }
    *ret_params = params;
    return 0;
}

/* The call failed with @code, and its message has @part in it. */
#define assert_fails(call, wanted, part)                                               \
    do {                                                                               \
        err = (struct mst_err){0};                                                     \
        int code = (call);                                                             \
        if (code != (wanted) || err.code != code || strstr(err.msg, (part)) == NULL) { \
            fail_msg("%s gives %s: %s", #call, mst_errname(code), err.msg);            \
        }                                                                              \
    } while (0)

/* A free port of 127.0.0.1 that stays free for servers of this test until @ret_fd is closed: the
 * kernel gives a bound port to no other program, and a socket that is bound for reuse without
 * listening does not conflict with a server. */
static inline uint16_t hold_port(int *ret_fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    const int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *ret_fd = fd;
    return ntohs(address.sin_port);
}

static inline struct mst_store *open_store(const char *url)
{
    struct mst_store *store = NULL;
    assert_ok(mst_store_open(url, NULL, PLENTY_MS, &store, &err));
    return store;
}

static inline void assert_value(struct mst_store *store, const char *key, struct mst_bytes wanted)
{
    struct mst_buffer value = {0};
    assert_ok(mst_store_try_get(store, STR(key), PLENTY_MS, &value, &err));
    assert_bytes(mst_bytes_of(value.data, value.size), wanted);
    assert_int_equal(value.data[value.size], 0); /* usable as a C string */
    mst_buffer_free(&value);
}

static inline void assert_absent(struct mst_store *store, const char *key)
{
    struct mst_buffer value = {0};
    assert_fails(mst_store_try_get(store, STR(key), PLENTY_MS, &value, &err), MST_ENOTFOUND, key);
    assert_null(value.data);
}

/* Whether the kernel reports that thread @tid of this process sleeps. */
static inline bool unit_is_asleep(int tid)
{
    char path[64];
    char text[200];
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    const char *line = fgets(text, sizeof text, file);
    assert_non_null(line);
    assert_int_equal(fclose(file), 0);
    const char *state = strrchr(line, ')');
    assert_non_null(state);
    return state[2] == 'S';
}

#endif /* MST_UNIT_STORE_UNIT_H */
