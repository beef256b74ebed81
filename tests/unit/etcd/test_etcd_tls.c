/* unit/etcd/test_etcd_tls.c - TLS with a real etcd: which certificates we accept, and which it
 * accepts.
 *
 * openssl makes the certificates: an authority, another unknown one, a server for 127.0.0.1 and
 * etcd.example, a client. */
#include <ftw.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "etcd/v2.h"
#include "unit/etcd_unit.h"
#include "unit/unit.h"

/* Long enough for a busy machine; only a failure waits that long. */
#define PLENTY_MS 30000

static char dir[64];
static struct etcd_unit etcd;       /* with TLS, asks for our certificate */
static struct etcd_unit plain_etcd; /* without */
static struct mst_err err;

/* The path of a file in the directory; valid for the next eight calls. */
static const char *path_of(const char *name)
{
    static char paths[8][128];
    static size_t at;
    char *path = paths[at++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

/* Run a command of the shell in the directory. */
static bool run(const char *command)
{
    char line[1024];
    (void)snprintf(line, sizeof line, "cd '%s' && { %s; } >>log 2>&1", dir, command);
    return system(line) == 0;
}

#define KEY "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"

static bool make_certificates(void)
{
    return run("openssl req -x509 " KEY " -subj /CN=authority -keyout ca.key -out ca.pem") &&
           run("openssl req -x509 " KEY " -subj /CN=stranger -keyout other.key -out other.pem") &&
           run("openssl req -x509 " KEY " -subj /CN=server -CA ca.pem -CAkey ca.key "
               "-addext basicConstraints=critical,CA:FALSE "
               "-addext subjectAltName=IP:127.0.0.1,DNS:etcd.example "
               "-addext extendedKeyUsage=serverAuth,clientAuth -keyout server.key "
               "-out server.pem") &&
           run("openssl req -x509 " KEY " -subj /CN=client -CA ca.pem -CAkey ca.key "
               "-addext basicConstraints=critical,CA:FALSE "
               "-addext extendedKeyUsage=clientAuth -keyout client.key -out client.pem") &&
           run("openssl req -x509 " KEY " -subj /CN=impostor -CA other.pem -CAkey other.key "
               "-addext basicConstraints=critical,CA:FALSE "
               "-addext extendedKeyUsage=clientAuth -keyout bad.key -out bad.pem") &&
           run("cat client.pem client.key >both.pem && echo nonsense >nonsense.pem");
}

/* Try to write and to read with @options: 0, or the error of the write. */
static int attempt(struct mst__http_options options, uint16_t port)
{
    struct mst__endpoint endpoint = {.host = "127.0.0.1", .port = port};
    options.endpoints = &endpoint;
    options.endpoint_count = 1;
    struct mst__v2 *v2 = NULL;
    struct mst__v2_answer answer;
    mst__v2_answer_init(&answer);
    err = (struct mst_err){0};
    int rv = mst__v2_new(&options, &v2, &err);
    if (rv == 0) {
        struct mst__v2_write write = {
            .key = "/a", .value = mst_bytes_str("x"), .ttl_s = MST_V2_NO_TTL};
        struct mst__until until = mst__until_in(PLENTY_MS);
        rv = mst__v2_put(v2, &write, until, &answer, &err);
        if (rv == 0) {
            assert_int_equal(answer.code, MST_V2_OK);
            assert_int_equal(mst__v2_get(v2, "/a", false, true, until, &answer, &err), 0);
            assert_int_equal(
                mst__v2_wait(v2, "/a", false, answer.node.modified, until, &answer, &err), 0);
            assert_int_equal(answer.node.value.data[0], 'x');
            assert_int_equal(mst__v2_requests(v2), 3);
        }
    }
    mst__v2_answer_close(&answer);
    mst__v2_free(v2);
    return rv;
}

static void expect(struct mst__http_options options, uint16_t port, int wanted, const char *part)
{
    int rv = attempt(options, port);
    if (rv != wanted || (rv != 0 && (err.code != rv || strstr(err.msg, part) == NULL))) {
        fail_msg("wanted %s, got %s: %s", mst_errname(wanted), mst_errname(rv), err.msg);
    }
}

static void test_allowed(void **state)
{
    (void)state;
    struct mst__http_options options = {
        .is_tls = true,
        .ca_path = path_of("ca.pem"),
        .cert_path = path_of("client.pem"),
        .key_path = path_of("client.key"),
    };
    expect(options, etcd.port, 0, "");
    options.server_name = "etcd.example";
    expect(options, etcd.port, 0, "");
    /* Certificate and key in one file. */
    options.cert_path = path_of("both.pem");
    options.key_path = NULL;
    expect(options, etcd.port, 0, "");
}

/* We do not believe the server. */
static void test_server_refused(void **state)
{
    (void)state;
    struct mst__http_options options = {
        .is_tls = true, .cert_path = path_of("client.pem"), .key_path = path_of("client.key")};
    expect(options, etcd.port, MST_EAUTH, "certificate"); /* the system's authorities */
    options.ca_path = path_of("other.pem");
    expect(options, etcd.port, MST_EAUTH, "https://127.0.0.1");
    options.ca_path = path_of("ca.pem");
    options.server_name = "other.example";
    expect(options, etcd.port, MST_EAUTH, "other.example");
    options.server_name = NULL;
    options.ca_path = path_of("nonsense.pem");
    expect(options, etcd.port, MST_EAUTH, "see the CA");
    options.ca_path = path_of("absent.pem");
    expect(options, etcd.port, MST_EINVAL, "absent.pem");
}

/* The server does not believe us. */
static void test_client_refused(void **state)
{
    (void)state;
    struct mst__http_options options = {.is_tls = true, .ca_path = path_of("ca.pem")};
    expect(options, etcd.port, MST_EAUTH, "https://127.0.0.1");
    options.cert_path = path_of("bad.pem");
    options.key_path = path_of("bad.key");
    expect(options, etcd.port, MST_EAUTH, "https://127.0.0.1");
    options.cert_path = path_of("client.pem");
    expect(options, etcd.port, MST_EAUTH, "see the CA"); /* the key of another one */
    options.cert_path = path_of("nonsense.pem");
    expect(options, etcd.port, MST_EAUTH, "see the CA");
}

/* One side speaks TLS, the other one does not. */
static void test_mixed_up(void **state)
{
    (void)state;
    expect((struct mst__http_options){0}, etcd.port, MST_EUNKNOWN, "TLS?");
    struct mst__http_options options = {.is_tls = true, .ca_path = path_of("ca.pem")};
    expect(options, plain_etcd.port, MST_ECONN, "https://127.0.0.1");
}

/* --- the program --- */

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static int start(void **state)
{
    (void)state;
    static const char *const plain_arguments[] = {"--enable-v2", NULL};
    static char certificates[3][128];
    static const char *tls_arguments[] = {
        "--enable-v2",   "--client-cert-auth", "--trusted-ca-file",
        certificates[0], "--cert-file",        certificates[1],
        "--key-file",    certificates[2],      NULL};
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(dir, sizeof dir, "%s/muster-unit-tls-XXXXXX", tmp == NULL ? "/tmp" : tmp);
    assert_non_null(mkdtemp(dir));
    assert_true(make_certificates());
    static const char *const names[] = {"ca.pem", "server.pem", "server.key"};
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(certificates[i], sizeof certificates[i], "%s/%s", dir, names[i]);
    }
    etcd_unit_start(&etcd, true, tls_arguments);
    etcd_unit_start(&plain_etcd, false, plain_arguments);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    etcd_unit_stop(&etcd);
    etcd_unit_stop(&plain_etcd);
    if (dir[0] != '\0') {
        (void)nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS); /* a leftover does no harm */
    }
    return 0;
}

static void test_not_here(void **state)
{
    (void)state;
    MST_SKIP("there is no etcd, or no openssl 3, in $PATH");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allowed),
        cmocka_unit_test(test_server_refused),
        cmocka_unit_test(test_client_refused),
        cmocka_unit_test(test_mixed_up),
    };
    if (!etcd_unit_is_there() || system("openssl version 2>&1 | grep -q '^OpenSSL 3'") != 0) {
        const struct CMUnitTest none[] = {cmocka_unit_test(test_not_here)};
        return MST_RUN_TESTS(none);
    }
    int failed = cmocka_run_group_tests(tests, start, stop);
    return mst__unit_end(sizeof tests / sizeof tests[0], failed);
}
