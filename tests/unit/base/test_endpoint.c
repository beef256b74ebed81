/* unit/base/test_endpoint.c - host:port and store URLs: accepted ones, and the texts of errors. */
#include "unit/unit.h"

#include <string.h>

#include "base/endpoint.h"
#include "base/mem.h"

static void endpoint_accepts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *host;
        uint16_t port;
        const char *back;
    } cases[] = {
        {"localhost:29500", "localhost", 29500, "localhost:29500"},
        {"10.0.0.7:1", "10.0.0.7", 1, "10.0.0.7:1"},
        {"[::1]:65535", "::1", 65535, "[::1]:65535"},
        {"[fe80::1%eth0]:80", "fe80::1%eth0", 80, "[fe80::1%eth0]:80"},
        {"[node7]:80", "node7", 80, "node7:80"},
        {"a-b.c_d:029500", "a-b.c_d", 29500, "a-b.c_d:29500"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__endpoint endpoint;
        struct mst_err err = {0};
        assert_int_equal(mst__endpoint_parse(mst_bytes_str(cases[i].text), &endpoint, &err), 0);
        assert_string_equal(endpoint.host, cases[i].host);
        assert_int_equal(endpoint.port, cases[i].port);
        char text[MST_ENDPOINT_TEXT_SIZE];
        assert_string_equal(mst__endpoint_format(&endpoint, text), cases[i].back);
    }
}

static void endpoint_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *named;
    } cases[] = {
        {"", "no host"},
        {":29500", "no host"},
        {"[]:29500", "no host"},
        {"host", "lacks a port"},
        {"[::1]", "lacks a port"},
        {"[::1]29500", "lacks a port"},
        {"host:", "port ''"},
        {"host:0", "port '0'"},
        {"host:65536", "port '65536'"},
        {"host:+80", "port '+80'"},
        {"host:80x", "port '80x'"},
        {"::1:29500", "brackets"},
        {"[::1:29500", "closing bracket"},
        {"user@host:80", "not a host name"},
        {"ho st:80", "not a host name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__endpoint endpoint = {.port = 4711};
        struct mst_err err = {0};
        assert_int_equal(mst__endpoint_parse(mst_bytes_str(cases[i].text), &endpoint, &err),
                         MST_EINVAL);
        if (strstr(err.msg, cases[i].named) == NULL) {
            fail_msg("'%s' gives '%s' without '%s'", cases[i].text, err.msg, cases[i].named);
        }
        assert_int_equal(endpoint.port, 4711);
    }
}

static void endpoint_long_host(void **state)
{
    (void)state;
    char text[400];
    struct mst__endpoint endpoint;
    memset(text, 'h', sizeof text);
    memcpy(text + 255, ":80", 4);
    assert_int_equal(mst__endpoint_parse(mst_bytes_str(text), &endpoint, NULL), 0);
    assert_int_equal(strlen(endpoint.host), 255);
    memset(text, 'h', sizeof text);
    memcpy(text + 256, ":80", 4);
    assert_int_equal(mst__endpoint_parse(mst_bytes_str(text), &endpoint, NULL), MST_EINVAL);
}

/* The shared vectors have the rest: here are our own answers, and a required port. */
static void endpoint_default(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        uint16_t port; /* 0 = refused, and the message begins with host */
    } cases[] = {
        {"::1", "::1", 7},
        {"2001:db8::1:123", "2001:db8::1:123", 7},
        {"fe80::1%eth0", "fe80::1%eth0", 7},
        {"[fe80::1%eth0]:80", "fe80::1%eth0", 80},
        {" node7 ", "node7", 7},
        {"", "localhost", 7},
        {"::65535", "':' is not a host name", 0},
        {"fe80::1%", "port '1%'", 0},
        {"*:1", "'*' is not a host name", 0},
        {"h\n:1", "'h\\x0a' is not a host name", 0},
        {"h\xff:1", "'h\\xff' is not a host name", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__endpoint endpoint = {0};
        struct mst_err err = {0};
        int rv = mst__endpoint_parse_default(mst_bytes_str(cases[i].text), 7, &endpoint, &err);
        assert_int_equal(rv, cases[i].port == 0 ? MST_EINVAL : 0);
        if (rv != 0) {
            assert_ptr_equal(strstr(err.msg, cases[i].host), err.msg);
            continue;
        }
        assert_string_equal(endpoint.host, cases[i].host);
        assert_int_equal(endpoint.port, cases[i].port);
    }
    struct mst__endpoint endpoint;
    struct mst_err err = {0};
    assert_int_equal(mst__endpoint_parse_default(mst_bytes_str("h"), -1, &endpoint, &err),
                     MST_EINVAL);
    assert_ptr_equal(strstr(err.msg, "port missing"), err.msg);
    assert_int_equal(mst__endpoint_parse_default(mst_bytes_str("h:0"), -1, &endpoint, &err), 0);
    assert_int_equal(mst__endpoint_parse_listen(mst_bytes_str("*:0"), &endpoint, &err), 0);
    assert_string_equal(endpoint.host, "*");
    assert_int_equal(mst__endpoint_parse(mst_bytes_str("*:1"), &endpoint, &err), MST_EINVAL);
}

static void endpoint_unix(void **state)
{
    (void)state;
    static const struct {
        const char *text, *path, *url; /* no path = a host */
        bool is_own;
    } cases[] = {
        {" unix:/run/m x ", "/run/m x", "unix:///run/m%20x", false},
        {"unix:", "", "unix://", true},
        {"unix:0", NULL, "tcp://unix:0", true},
        {"unix:x:1", NULL, "tcp://[unix:x]:1", false},
        {"unix", NULL, "tcp://unix:7", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__endpoint endpoint;
        struct mst_err err = {0};
        char text[MST_ENDPOINT_TEXT_SIZE];
        assert_int_equal(
            mst__endpoint_parse_server(mst_bytes_str(cases[i].text), 7, &endpoint, &err), 0);
        const char *path = mst__endpoint_path(&endpoint);
        assert_int_equal(path != NULL, cases[i].path != NULL);
        if (path != NULL) {
            assert_string_equal(path, cases[i].path);
            assert_string_equal(mst__endpoint_format(&endpoint, text), endpoint.host);
            assert_int_equal(endpoint.port, 0);
        }
        assert_int_equal(mst__endpoint_is_own(&endpoint), cases[i].is_own);
        char *url = mst__endpoint_url(&endpoint);
        assert_string_equal(url, cases[i].url);
        mst__free(url);
    }
    char longest[300] = "unix:/";
    struct mst__endpoint endpoint;
    struct mst_err err = {0};
    memset(longest + 6, 'x', sizeof longest - 7);
    assert_int_equal(mst__endpoint_parse_server(mst_bytes_of(longest, 299), 7, &endpoint, &err),
                     MST_EINVAL);
    assert_int_equal(mst__endpoint_parse_server(mst_bytes_of(longest, 255), 7, &endpoint, &err), 0);
    assert_int_equal(mst__endpoint_parse_server(mst_bytes_of(longest, 256), 7, &endpoint, &err),
                     MST_EINVAL);
    assert_int_equal(mst__endpoint_parse_server(mst_bytes_of("unix:/\0", 7), 7, &endpoint, &err),
                     MST_EINVAL);
}

static void url_accepts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum mst__url_scheme scheme;
        const char *host; /* or path */
        const char *prefix;
        size_t prefix_size;
    } cases[] = {
        {"tcp://h:29500", MST_URL_TCP, "h", NULL, 0},
        {"tcp://h:29500/", MST_URL_TCP, "h", NULL, 0},
        {"tcp://[::1]:29500/a/b", MST_URL_TCP, "::1", "a/b", 3},
        {"tcp://h:29500//worker/attempt_0", MST_URL_TCP, "h", "/worker/attempt_0", 17},
        {"tcp://h:29500/p%2fq%00r%25", MST_URL_TCP, "h", "p/q\0r%", 6},
        {"tcp://h:29500?prefix=x%26y", MST_URL_TCP, "h", "x&y", 3},
        {"tcp://h:29500/?prefix=", MST_URL_TCP, "h", "", 0},
        {"unix:///run/muster", MST_URL_UNIX, "/run/muster", NULL, 0},
        {"unix:///run/muster?prefix=p", MST_URL_UNIX, "/run/muster", "p", 1},
        {"file:///tmp/a%20b", MST_URL_FILE, "/tmp/a b", NULL, 0},
        {"file:///tmp/a%3Fb?prefix=p", MST_URL_FILE, "/tmp/a?b", "p", 1},
        {"hash:", MST_URL_HASH, NULL, NULL, 0},
        {"hash:?prefix=p/q", MST_URL_HASH, NULL, "p/q", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__url url;
        struct mst_err err = {0};
        if (mst__url_parse(cases[i].text, &url, &err) != 0) {
            fail_msg("'%s': %s", cases[i].text, err.msg);
        }
        assert_int_equal(url.scheme, cases[i].scheme);
        if (cases[i].host != NULL) {
            assert_string_equal(url.path != NULL ? url.path : url.endpoint.host, cases[i].host);
        }
        assert_int_equal(url.prefix == NULL, cases[i].prefix == NULL);
        if (cases[i].prefix != NULL) {
            assert_int_equal(url.prefix_size, cases[i].prefix_size);
            assert_memory_equal(url.prefix, cases[i].prefix, cases[i].prefix_size);
        }
        mst__url_close(&url);
    }
}

static void url_of_etcd(void **state)
{
    (void)state;
    struct mst__url url;
    struct mst_err err = {0};
    assert_int_equal(mst__url_parse("etcd2://h:2379", &url, &err), 0);
    assert_int_equal(url.scheme, MST_URL_ETCD2);
    assert_int_equal(url.etcd.endpoint_count, 1);
    assert_string_equal(url.etcd.endpoints[0].host, "h");
    assert_int_equal(url.etcd.endpoints[0].port, 2379);
    assert_string_equal(url.path, "");
    assert_null(url.prefix);
    assert_false(url.etcd.is_tls);
    assert_int_equal(url.etcd.lease_s, 0);
    mst__url_close(&url);
    assert_int_equal(mst__url_parse("etcd3://a:1,[::1]:2,c:3//jobs///7%2f%20/?prefix=p/q&tls=1&"
                                    "lease=29.5",
                                    &url, &err),
                     0);
    assert_int_equal(url.scheme, MST_URL_ETCD3);
    assert_int_equal(url.etcd.endpoint_count, 3);
    assert_string_equal(url.etcd.endpoints[1].host, "::1");
    assert_int_equal(url.etcd.endpoints[2].port, 3);
    assert_string_equal(url.path, "/jobs/7/ ");
    assert_int_equal(url.prefix_size, 3);
    assert_true(url.etcd.is_tls);
    assert_null(url.etcd.user);
    assert_int_equal(url.etcd.lease_s, 30);
    mst__url_close(&url);
    /* Both spellings of the files, any of which switches TLS on. */
    static const char *const texts[] = {
        "etcd2://h:1/p?cacert=/a%26b&cert=/c&key=/k&server_name=n&user=u&password_file=/w",
        "etcd2://h:1/p?ca_cert=/a%26b&ssl_cert=/c&ssl_cert_key=/k&server_name=n&user=u&"
        "password_file=/w",
    };
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(mst__url_parse(texts[i], &url, &err), 0);
        assert_true(url.etcd.is_tls);
        assert_string_equal(url.etcd.ca_path, "/a&b");
        assert_string_equal(url.etcd.cert_path, "/c");
        assert_string_equal(url.etcd.key_path, "/k");
        assert_string_equal(url.etcd.server_name, "n");
        assert_string_equal(url.etcd.user, "u");
        assert_string_equal(url.etcd.password_path, "/w");
        mst__url_close(&url);
    }
    /* A password that was written where none goes is not repeated. */
    assert_int_equal(mst__url_parse("etcd2://u:pass@h:1/p", &url, &err), MST_EINVAL);
    assert_null(strstr(err.msg, "pass@"));
    assert_non_null(strstr(err.msg, "@h:1/p"));
    assert_non_null(strstr(err.msg, "password_file=PATH"));
    assert_int_equal(mst__url_parse("etcd3://a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,"
                                    "a:1,a:1,a:1,a:1",
                                    &url, &err),
                     MST_EINVAL);
    assert_non_null(strstr(err.msg, "more than 16 endpoints"));
}

static void url_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *named;
    } cases[] = {
        {"", "unknown scheme, known are: tcp://host:port"},
        {"etcd://h:2379/p", "unknown scheme, known are: tcp://host:port"},
        {"h:29500", "unknown scheme"},
        {"TCP://h:29500", "unknown scheme"},
        {"tcp:h:29500", "unknown scheme"},
        {"tcp://h", "lacks a port"},
        {"tcp://h/p", "lacks a port"},
        {"tcp://h:1/a%2", "the prefix has a '%'"},
        {"tcp://h:1/a%zz", "the prefix has a '%'"},
        {"tcp://h:1/a?prefix=b", "a prefix in the path and one in the parameter"},
        {"tcp://h:1?prefx=b", "unknown parameter 'prefx=b'"},
        {"tcp://h:1?prefix=a&b=c", "more than one parameter"},
        {"unix://run/x", "three slashes"},
        {"unix://", "three slashes"},
        {"file:///", "three slashes"},
        {"file://relative", "file:///path"},
        {"file:///a%00b", "NUL"},
        {"hash:x", "follow 'hash:'"},
        {"etcd2://h", "lacks a port"},
        {"etcd2://", "names no host"},
        {"etcd2://h:1,", "names no host"},
        {"etcd2://h:1,,g:2", "names no host"},
        {"etcd3://h:1,g/p", "'g' lacks a port"},
        {"etcd2://h:1/a/../b", "'.' and '..'"},
        {"etcd2://h:1/.", "'.' and '..'"},
        {"etcd2://h:1/a%00b", "the path has a NUL in it"},
        {"etcd2://h:1/a%0", "the path has a '%'"},
        {"etcd2://h:1/p?lease=5", "only etcd3:// has leases"},
        {"etcd3://h:1/p?lease=0", "lease is not a number of seconds from 1"},
        {"etcd3://h:1/p?lease=1.x", "lease is not a number"},
        {"etcd3://h:1/p?lease=31536000.5", "lease is not a number"},
        {"etcd3://h:1/p?lease=", "lease is not a number"},
        {"etcd3://h:1/p?lease=5&lease=5", "'lease' is given twice"},
        {"etcd3://h:1/p?tls=yes", "tls is 0 or 1"},
        {"etcd3://h:1/p?tls=1&tls=1", "'tls' is given twice"},
        {"etcd3://h:1/p?tls=0&cacert=/ca", "make no sense with tls=0"},
        {"etcd3://h:1/p?cacert=/a&ca_cert=/a", "'ca_cert' is given twice"},
        {"etcd3://h:1/p?cacert=", "'cacert=' has no value"},
        {"etcd3://h:1/p?cacert", "'cacert=' has no value"},
        {"etcd3://h:1/p?cacert=%00", "the parameter has a NUL in it"},
        {"etcd3://h:1/p?key=/k", "key without cert"},
        {"etcd3://h:1/p?password_file=/k", "password_file without user"},
        {"etcd3://h:1/p?prefix=a&prefix=b", "'prefix' is given twice"},
        {"etcd3://h:1/p?password=x", "unknown parameter 'password'"},
        {"etcd3://h:1/p?", "unknown parameter ''"},
        {"etcd3://h:1/p?tls=1&", "unknown parameter ''"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__url url;
        struct mst_err err = {0};
        assert_int_equal(mst__url_parse(cases[i].text, &url, &err), MST_EINVAL);
        char whole[80];
        (void)snprintf(whole, sizeof whole, "URL '%s'", cases[i].text);
        if (strstr(err.msg, cases[i].named) == NULL || strstr(err.msg, whole) != err.msg) {
            fail_msg("'%s' gives '%s' without '%s'", cases[i].text, err.msg, cases[i].named);
        }
    }
}

static void url_out_of_memory(void **state)
{
    (void)state;
    struct mst__sweep sweep = {0};
    while (sweep_next(&sweep)) {
        struct mst__url url;
        struct mst_err err = {0};
        int rv = mst__url_parse("etcd3://h:1/x?prefix=p&cacert=/a&user=u", &url, &err);
        sweep_end(&sweep, rv);
        if (rv == 0) {
            mst__url_close(&url);
        }
    }
    assert_int_equal(sweep.failures, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endpoint_accepts),   cmocka_unit_test(endpoint_refuses),
        cmocka_unit_test(endpoint_long_host), cmocka_unit_test(endpoint_default),
        cmocka_unit_test(endpoint_unix),      cmocka_unit_test(url_accepts),
        cmocka_unit_test(url_of_etcd),        cmocka_unit_test(url_refuses),
        cmocka_unit_test(url_out_of_memory),
    };
    return MST_RUN_TESTS(tests);
}
