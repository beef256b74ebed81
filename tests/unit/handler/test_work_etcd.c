/* unit/handler/test_work_etcd.c - how work ends, of the handlers that meet at a real etcd. */
#include "unit/etcd_unit.h"
#include "unit/handler/work_suite.h"
#include "unit/node_unit.h"

#include <stdio.h>

#define DYNAMIC "join_timeout=20,last_call_timeout=50ms,keep_alive_interval=400ms"

int main(void)
{
    static const char *const arguments[] = {"--enable-v2", NULL};
    struct work_suite suites[] = {
        {.backend = "etcd-v2", .options = DYNAMIC},
        {.backend = "etcd", .options = "timeout=20,last_call_timeout=50ms"},
        {.backend = "etcd-v3", .options = DYNAMIC, .has_authority = true},
    };
    struct CMUnitTest tests[sizeof suites / sizeof suites[0] * WORK_SUITE_TESTS];
    struct etcd_unit etcd;
    char endpoint[32];
    bool is_there = etcd_unit_is_there();
    if (is_there) {
        etcd_unit_start(&etcd, false, arguments);
        (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", etcd.port);
    }
    for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++) {
        suites[i].endpoint = is_there ? endpoint : NULL;
        work_suite_add(&suites[i], tests + i * WORK_SUITE_TESTS);
    }
    int rv = MST_RUN_TESTS(tests);
    if (is_there) {
        etcd_unit_stop(&etcd);
    }
    return rv;
}
