/* unit/handler/test_etcd_settings.c - the options of the handlers at an etcd, and rendezvous as
 * URLs. */
#include "unit/store_unit.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "etcd/secret.h"
#include "handler/etcd_settings.h"
#include "handler/params.h"

static struct mst_params *new_params(const char *backend, const char *endpoint, const char *options)
{
    struct mst_params *params = NULL;
    assert_ok(unit_params(backend, endpoint, "job", 2, 4, NULL, &params, &err));
    assert_ok(mst_params_parse(params, options, &err));
    return params;
}

static int read_v2(const char *endpoint,
                   const char *options,
                   struct mst_params **ret_params,
                   struct mst__etcd_v2_settings *ret_settings)
{
    *ret_params = new_params("etcd-v2", endpoint, options);
    return mst__etcd_v2_read(*ret_params, ret_settings, &err);
}

static int read_legacy(const char *endpoint,
                       const char *options,
                       struct mst_params **ret_params,
                       struct mst__legacy_settings *ret_settings)
{
    *ret_params = new_params("etcd", endpoint, options);
    return mst__legacy_read(*ret_params, ret_settings, &err);
}

static void defaults(void **state)
{
    (void)state;
    struct mst_params *params;
    struct mst__etcd_v2_settings v2;
    assert_ok(read_v2("", "", &params, &v2));
    assert_int_equal(v2.etcd.endpoint_count, 1);
    assert_string_equal(v2.etcd.endpoints[0].host, "localhost");
    assert_int_equal(v2.etcd.endpoints[0].port, 2379);
    assert_false(v2.etcd.is_tls);
    assert_null(v2.etcd.user);
    assert_int_equal(v2.etcd.read_timeout_ms, 60000);
    assert_int_equal(v2.dynamic.settings.join_us, 600000000);
    mst__etcd_v2_settings_close(&v2);
    mst_params_free(params);
    struct mst__legacy_settings legacy;
    assert_ok(read_legacy("", "", &params, &legacy));
    assert_int_equal(legacy.etcd.endpoints[0].port, 2379);
    assert_int_equal(legacy.nodes_min, 2);
    assert_int_equal(legacy.nodes_max, 4);
    assert_int_equal(legacy.timeout_ms, 600000);
    assert_int_equal(legacy.last_call_ms, 30000);
    assert_string_equal(legacy.prefix, "/torchelastic/p2p");
    mst__legacy_settings_close(&legacy);
    mst_params_free(params);
}

static void several_endpoints(void **state)
{
    (void)state;
    struct mst_params *params;
    struct mst__legacy_settings legacy;
    assert_ok(read_legacy("a:1, b ,[::1]:3", "", &params, &legacy));
    assert_int_equal(legacy.etcd.endpoint_count, 3);
    assert_string_equal(legacy.etcd.endpoints[0].host, "a");
    assert_int_equal(legacy.etcd.endpoints[0].port, 1);
    assert_string_equal(legacy.etcd.endpoints[1].host, "b");
    assert_int_equal(legacy.etcd.endpoints[1].port, 2379);
    assert_string_equal(legacy.etcd.endpoints[2].host, "::1");
    assert_int_equal(legacy.etcd.endpoints[2].port, 3);
    mst__legacy_settings_close(&legacy);
    mst_params_free(params);
    static const char *const bad[] = {
        "a:1,,b:2", "a,",    ",",   "a:0",
        "a:65536",  "a b:1", "a:x", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_fails(read_legacy(bad[i], "", &params, &legacy), MST_EINVAL, "endpoint '");
        mst_params_free(params);
    }
}

static void tls_names(void **state)
{
    (void)state;
    struct mst_params *params;
    struct mst__etcd_v2_settings v2;
    struct mst__legacy_settings legacy;
    static const char *const both[] = {"protocol=https,cert=c,key=k,cacert=a",
                                       "protocol=https,ssl_cert=c,ssl_cert_key=k,ca_cert=a"};
    for (size_t i = 0; i < 2; i++) {
        assert_ok(read_v2("h", both[i], &params, &v2));
        assert_true(v2.etcd.is_tls);
        assert_string_equal(v2.etcd.cert_path, "c");
        assert_string_equal(v2.etcd.key_path, "k");
        assert_string_equal(v2.etcd.ca_path, "a");
        struct mst_log log = {0};
        struct mst__http_options http = mst__etcd_http(&v2.etcd, &log);
        assert_true(http.is_tls);
        assert_string_equal(http.ca_path, "a");
        mst__etcd_v2_settings_close(&v2);
        mst_params_free(params);
        assert_ok(read_legacy("h", both[i], &params, &legacy));
        assert_string_equal(legacy.etcd.key_path, "k");
        mst__legacy_settings_close(&legacy);
        mst_params_free(params);
    }
    assert_ok(read_v2("h", "protocol= HTTPS ", &params, &v2));
    assert_true(v2.etcd.is_tls);
    mst__etcd_v2_settings_close(&v2);
    mst_params_free(params);
    assert_fails(read_legacy("h", "protocol=HTTPS", &params, &legacy), MST_EINVAL,
                 "'HTTPS' is neither http nor https");
    mst_params_free(params);
    assert_fails(read_v2("h", "protocol=https,cert=a,ssl_cert=b", &params, &v2), MST_EINVAL,
                 "'cert' and 'ssl_cert' are two names");
    mst_params_free(params);
    assert_fails(read_v2("h", "ca_cert=a", &params, &v2), MST_EINVAL, "'ca_cert' is for TLS");
    mst_params_free(params);
    assert_fails(read_v2("h", "protocol=https,ssl_cert_key=k", &params, &v2), MST_EINVAL,
                 "key without its certificate");
    mst_params_free(params);
}

static void passwords(void **state)
{
    (void)state;
    struct mst_params *params;
    struct mst__etcd_v2_settings v2;
    assert_int_equal(unsetenv(MST_ETCD_ENV_PASSWORD), 0);
    assert_ok(read_v2("h", "user=u,password=p=q", &params, &v2));
    assert_string_equal(v2.etcd.user, "u");
    assert_string_equal(v2.etcd.password, "p=q");
    mst__etcd_v2_settings_close(&v2);
    mst_params_free(params);
    assert_fails(read_v2("h", "user=u", &params, &v2), MST_EINVAL, MST_ETCD_ENV_PASSWORD);
    mst_params_free(params);
    assert_int_equal(setenv(MST_ETCD_ENV_PASSWORD, "from here", 1), 0);
    assert_ok(read_v2("h", "user=u", &params, &v2));
    assert_string_equal(v2.etcd.password, "from here");
    mst__etcd_v2_settings_close(&v2);
    mst_params_free(params);
    assert_ok(read_v2("h", "", &params, &v2)); /* the variable alone is not a user */
    assert_null(v2.etcd.password);
    mst__etcd_v2_settings_close(&v2);
    mst_params_free(params);
    assert_int_equal(unsetenv(MST_ETCD_ENV_PASSWORD), 0);
    assert_fails(read_v2("h", "password=x", &params, &v2), MST_EINVAL,
                 "'password' without a 'user'");
    mst_params_free(params);
}

static void password_file(void **state)
{
    (void)state;
    char path[] = "/tmp/muster-test-password-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "secret\nsecond line", 18), 18);
    char options[128];
    (void)snprintf(options, sizeof options, "user=u,password_file=%s", path);
    struct mst_params *params;
    struct mst__etcd_v2_settings v2;
    assert_ok(read_v2("h", options, &params, &v2));
    assert_string_equal(v2.etcd.password, "secret");
    mst__etcd_v2_settings_close(&v2);
    mst_params_free(params);
    (void)snprintf(options, sizeof options, "user=u,password=x,password_file=%s", path);
    assert_fails(read_v2("h", options, &params, &v2), MST_EINVAL, "set one of them");
    mst_params_free(params);
    static char longest[MST_ETCD_PASSWORD_SIZE_MAX + 8];
    memset(longest, 'x', sizeof longest);
    assert_int_equal(pwrite(fd, longest, sizeof longest, 0), sizeof longest);
    (void)snprintf(options, sizeof options, "user=u,password_file=%s", path);
    assert_fails(read_v2("h", options, &params, &v2), MST_EINVAL, "does not begin with a password");
    mst_params_free(params);
    (void)close(fd);
    (void)unlink(path);
    assert_fails(read_v2("h", options, &params, &v2), MST_ESYS, "password_file");
    mst_params_free(params);
}

static void prefixes(void **state)
{
    (void)state;
    static const struct {
        const char *option, *prefix;
    } cases[] = {
        {"etcd_prefix=/a/b", "/a/b"},     {"etcd_prefix=a/b/", "/a/b"},
        {"etcd_prefix=//a//b//", "/a/b"}, {"etcd_prefix=/", "/"},
        {"etcd_prefix=a", "/a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst_params *params;
        struct mst__legacy_settings legacy;
        assert_ok(read_legacy("h", cases[i].option, &params, &legacy));
        assert_string_equal(legacy.prefix, cases[i].prefix);
        mst__legacy_settings_close(&legacy);
        mst_params_free(params);
    }
}

static void refuses(void **state)
{
    (void)state;
    static const struct {
        const char *options, *named;
        bool is_legacy;
    } cases[] = {
        {"timeout=0", "'timeout' must be longer than 0", true},
        {"timeout=x", "'timeout'", true},
        {"last_call_timeout=-1", "'last_call_timeout' must be 0", true},
        {"read_timeout=0", "'read_timeout' must be longer than 0", true},
        {"join_timeout=5", "unknown option 'join_timeout'", true},
        {"etcd_prefx=/a", "did you mean 'etcd_prefix'?", true},
        {"read_timeout=0", "'read_timeout' must be longer than 0", false},
        {"join_timeout=0", "'join_timeout' must be longer than 0", false},
        {"is_host=1", "unknown option 'is_host'", false},
        {"ssl_crt=/a", "did you mean 'ssl_cert'?", false},
        {"etcd_prefix=/a", "unknown option 'etcd_prefix'", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst_params *params;
        struct mst__etcd_v2_settings v2;
        struct mst__legacy_settings legacy;
        assert_fails(cases[i].is_legacy ? read_legacy("h", cases[i].options, &params, &legacy)
                                        : read_v2("h", cases[i].options, &params, &v2),
                     MST_EINVAL, cases[i].named);
        mst_params_free(params);
    }
    struct mst_params *params = NULL;
    struct mst__legacy_settings legacy;
    assert_ok(unit_params("etcd", "h", "", 1, 1, NULL, &params, &err));
    assert_fails(mst__legacy_read(params, &legacy, &err), MST_EINVAL, "run_id");
    mst_params_free(params);
}

/* --- URLs --- */

static void url_parts(void **state)
{
    (void)state;
    struct mst_params *params = NULL;
    assert_ok(mst_params_from_url("etcd://h:1,i:2/a%2Fb/c?min_workers=2&max_workers=4&timeout=60"
                                  "&etcd_prefix=%2Fp+q",
                                  &params, &err));
    assert_string_equal(mst_params_backend(params), "etcd");
    assert_string_equal(mst_params_endpoint(params), "h:1,i:2");
    assert_string_equal(mst_params_run_id(params), "a/b/c");
    assert_null(mst_params_local_addr(params));
    assert_int_equal(mst_params_nodes_min(params), 2);
    assert_int_equal(mst_params_nodes_max(params), 4);
    assert_string_equal(mst_params_text(params, "timeout", ""), "60");
    assert_string_equal(mst_params_text(params, "etcd_prefix", ""), "/p q");
    assert_null(mst_params_text(params, "min_workers", NULL));
    assert_ok(mst_params_set_nodes(params, 3, 3, &err));
    assert_int_equal(mst_params_nodes_max(params), 3);
    assert_fails(mst_params_set_nodes(params, 3, 2, &err), MST_EINVAL, "nodes_max");
    assert_int_equal(mst_params_nodes_min(params), 3);
    mst_params_free(params);
    assert_ok(mst_params_from_url("etcd-v2:///job?min_workers=2", &params, &err));
    assert_string_equal(mst_params_endpoint(params), "");
    assert_int_equal(mst_params_nodes_max(params), 2);
    mst_params_free(params);
}

static void url_refused(void **state)
{
    (void)state;
    static const struct {
        const char *url, *named;
    } cases[] = {
        {"", "it is written BACKEND://"},
        {"etcd", "it is written"},
        {"etcd:/h/job?min_workers=1", "it is written"},
        {"://h/job?min_workers=1", "it is written"},
        {"etcd://h?min_workers=1", "no run id"},
        {"etcd://h/?min_workers=1", "no run id"},
        {"etcd://h/job", "min_workers is missing"},
        {"etcd://h/job?min_workers=0", "min_workers: '0'"},
        {"etcd://h/job?min_workers=x", "min_workers: 'x'"},
        {"etcd://h/job?min_workers=3&max_workers=2", "nodes_max is 2"},
        {"etcd://h/job?min_workers=1&&a=b", "is not option=value"},
        {"etcd://h/job?min_workers=1&a", "is not option=value"},
        {"etcd://h/job%2?min_workers=1", "two hexadecimal digits"},
        {"etcd://h/job%00?min_workers=1", "two hexadecimal digits"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst_params *params = NULL;
        assert_fails(mst_params_from_url(cases[i].url, &params, &err), MST_EINVAL, cases[i].named);
        assert_null(params);
    }
    /* The query may hold a password, and is not repeated. */
    struct mst_params *params = NULL;
    assert_fails(mst_params_from_url("etcd://h/job?password=pst&min_workers=0", &params, &err),
                 MST_EINVAL, "URL 'etcd://h/job'");
    assert_null(strstr(err.msg, "pst"));
}

/* Every allocation fails once; nothing is leaked and nothing is half made. */
static void no_memory(void **state)
{
    (void)state;
    struct mst__sweep sweep = {0};
    while (sweep_next(&sweep)) {
        struct mst_params *params = NULL;
        struct mst__legacy_settings legacy;
        int rv = mst_params_from_url("etcd://h/job?min_workers=2&user=u&password=p", &params, &err);
        if (rv == 0) {
            rv = mst__legacy_read(params, &legacy, &err);
        }
        sweep_end(&sweep, rv);
        if (rv == 0) {
            mst__legacy_settings_close(&legacy);
        }
        mst_params_free(params);
    }
    assert_true(sweep.failures > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),      cmocka_unit_test(several_endpoints),
        cmocka_unit_test(tls_names),     cmocka_unit_test(passwords),
        cmocka_unit_test(password_file), cmocka_unit_test(prefixes),
        cmocka_unit_test(refuses),       cmocka_unit_test(url_parts),
        cmocka_unit_test(url_refused),   cmocka_unit_test(no_memory),
    };
    return MST_RUN_TESTS(tests);
}
