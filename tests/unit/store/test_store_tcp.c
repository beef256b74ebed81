/* unit/store/test_store_tcp.c - the tcp store against a server that follows a script byte for byte:
 * lost connections, old dialects, missing operations, cancelled waits. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "store/store.h"
#include "unit/store_unit.h"

/* --- a server with a script --- */

/* One string per connection, in the order in which they come. In it, words separated by spaces:
 *   <hex  receive exactly these bytes      >hex  send these bytes, one at a time
 *   ~N    receive N bytes, whatever        =     wait until the client closes
 *   ^N    receive N bytes that end in a value of 16, and send that value back
 *   !     listen no longer
 * At its end the connection is closed. "<" and ">" may use names, see words. */
struct script {
    const char *const *conns;
    size_t conns_count;
    int fd;
    pthread_t thread;
    char url[64];
    char trouble[200];
    sem_t closed; /* posted whenever a connection has been closed */
};

#define U(n) #n "00000000000000"

/* Names for repeated bytes on the wire. */
static const struct {
    const char *name, *hex;
} words[] = {
    /* VALIDATE, 4 times CANCEL_WAIT, CHECK of muster.refusal; a server that does not tell them */
    {"HELLO_C", "00cef7853c0c0c0c0c05" U(01) U(0e) "6d75737465722e7265667573616c"},
    {"HI_C", "0101010101"},
    {"HI_TELLING", "0101010100"},
    /* REFUSED with ELIMIT, the reason and the text "full" */
    {"NO_MEMORY", "ff6d757374657221"
                  "16000000"
                  "21"
                  "fdffffff"
                  "08000000"
                  "04000000"
                  "66756c6c"
                  "0000000000"},
    {"NO_PLACE", "ff6d757374657221"
                 "16000000"
                 "21"
                 "fdffffff"
                 "07000000"
                 "04000000"
                 "66756c6c"
                 "0000000000"},
    {"TOO_LARGE", "ff6d757374657221"
                  "16000000"
                  "21"
                  "fdffffff"
                  "06000000"
                  "04000000"
                  "66756c6c"
                  "0000000000"},
    /* CANCEL_WAIT, or CHECK of no keys, and CHECK of muster.wait_change */
    {"HELLO_B", "0b04" U(01) U(12) "6d75737465722e776169745f6368616e6765"},
    {"HI_B", "0101"},
    {"HI_B_OF_MUSTER", "0100"},
    {"HELLO_A", "04" U(00) "04" U(01) U(12) "6d75737465722e776169745f6368616e6765"},
    {"HI_A", "0001"},
    {"HI_A_OF_MUSTER", "0000"},
    {"NONE_A", "04" U(00)},
    {"SET", "01" U(02) "2f6b" U(01) "76"}, /* k = v, and the CHECK behind it */
    {"CHECK_NONE", "05" U(00)},
    {"ADD", "04" U(02) "2f6b" U(01)},
    {"CHECK", "05" U(01) U(02) "2f6b"},
    {"GET", "03" U(02) "2f6b"},
    {"WAIT", "06" U(01) U(02) "2f6b"},
    {"NUM_KEYS", "07"},
    {"ZERO", U(00)},
    {"ONE", U(01)},
    {"FIVE", U(01) "35"}, /* as a value */
    {"ABC", U(03) "616263"},
    /* CHECK of muster.epoch and of muster.epoch.7 */
    {"EPOCH", "05" U(01) U(0c) "6d75737465722e65706f6368"},
    {"EPOCH_7", "05" U(01) U(0e) "6d75737465722e65706f63682e37"},
    {"HAS_BARRIER", "05" U(01) U(0e) "6d75737465722e62617272696572"},
    {"PARTICIPANTS", U(0f) "2f6b2f7061727469636970616e7473"},
    {"PROBE_KEY", U(0c) "6d75737465722f70726f6265"},
};

static const char *word_hex(const char *word)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(words[i].name, word) == 0) {
            return words[i].hex;
        }
    }
    return word;
}

/* "GET+CHECK" or plain hex to bytes. */
static size_t step_bytes(const char *step, uint8_t *ret_bytes, size_t size_max)
{
    size_t size = 0;
    char part[200];
    while (*step != '\0') {
        size_t length = strcspn(step, "+");
        (void)snprintf(part, sizeof part, "%.*s", (int)length, step);
        step += length + (step[length] == '+' ? 1 : 0);
        for (const char *hex = word_hex(part); *hex != '\0'; hex += 2) {
            unsigned byte = 0;
            if (size == size_max || sscanf(hex, "%2x", &byte) != 1) {
                abort();
            }
            ret_bytes[size++] = (uint8_t)byte;
        }
    }
    return size;
}

static bool wait_readable(int fd)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    int ready;
    do {
        ready = poll(&pollfd, 1, PLENTY_MS);
    } while (ready < 0 && errno == EINTR);
    return ready == 1;
}

/* Receive @size bytes, into @ret_bytes unless that is NULL. How many came before the end. */
static size_t receive_all(int fd, uint8_t *ret_bytes, size_t size)
{
    uint8_t scratch[65536] = {0};
    size_t got = 0;
    while (got < size && wait_readable(fd)) {
        size_t room = size - got < sizeof scratch ? size - got : sizeof scratch;
        ssize_t count = recv(fd, ret_bytes == NULL ? scratch : ret_bytes + got, room, 0);
        if (count <= 0) {
            break;
        }
        got += (size_t)count;
    }
    return got;
}

/* One step; false when the client does not keep to the script. */
static bool play_step(struct script *script, int fd, size_t conn, const char *step)
{
    uint8_t wanted[512];
    uint8_t got[512];
    size_t size = step_bytes(step + 1, wanted, step[0] == '~' ? 0 : sizeof wanted);
    size_t count = 0;
    switch (step[0]) {
        case '>':
            for (size_t i = 0; i < size; i++) {
                (void)send(fd, wanted + i, 1, MSG_NOSIGNAL); /* the client may have left */
            }
            return true;
        case '=':
            count = receive_all(fd, got, 1);
            break;
        default:
            count = receive_all(fd, got, size);
            if (count == size && memcmp(got, wanted, size) == 0) {
                return true;
            }
            break;
    }
    if (step[0] == '=' && count == 0) {
        return true;
    }
    int used = snprintf(script->trouble, sizeof script->trouble,
                        "connection %zu, step %s: got %zu bytes:", conn, step, count);
    for (size_t i = 0; i < count && used > 0 && (size_t)used < sizeof script->trouble - 4; i++) {
        used += snprintf(script->trouble + used, sizeof script->trouble - (size_t)used, " %02x",
                         got[i]);
    }
    return false;
}

static bool play_conn(struct script *script, size_t conn)
{
    if (!wait_readable(script->fd)) {
        (void)snprintf(script->trouble, sizeof script->trouble, "connection %zu never came", conn);
        return false;
    }
    int fd = accept(script->fd, NULL, NULL);
    if (fd < 0) {
        return false;
    }
    const char *at = script->conns[conn];
    bool good = true;
    while (good && *at != '\0') {
        char step[256];
        size_t length = strcspn(at, " ");
        (void)snprintf(step, sizeof step, "%.*s", (int)length, at);
        at += length + strspn(at + length, " ");
        size_t size = (size_t)strtoul(step + 1, NULL, 10);
        uint8_t echo[256];
        if (step[0] == '~') {
            good = receive_all(fd, NULL, size) == size;
        } else if (step[0] == '!') {
            good = shutdown(script->fd, SHUT_RDWR) == 0;
        } else if (step[0] == '^') {
            good = size <= sizeof echo && receive_all(fd, echo, size) == size &&
                   send(fd, echo + size - 24, 24, MSG_NOSIGNAL) == 24;
        } else {
            good = play_step(script, fd, conn, step);
        }
    }
    (void)close(fd);
    (void)sem_post(&script->closed);
    return good;
}

static void *play(void *arg)
{
    struct script *script = arg;
    for (size_t i = 0; i < script->conns_count && play_conn(script, i); i++) {
    }
    return NULL;
}

/* Bind a port of the kernel's choice, without listening. */
static void script_bind(struct script *script, const char *const *conns, size_t conns_count)
{
    *script = (struct script){.conns = conns, .conns_count = conns_count};
    assert_int_equal(sem_init(&script->closed, 0, 0), 0);
    script->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(script->fd >= 0);
    /* A small window, so that a large request does not leave at once. */
    int window = 16384;
    assert_int_equal(setsockopt(script->fd, SOL_SOCKET, SO_RCVBUF, &window, sizeof window), 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    assert_int_equal(bind(script->fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(script->fd, (struct sockaddr *)&address, &size), 0);
    (void)snprintf(script->url, sizeof script->url, "tcp://127.0.0.1:%d", ntohs(address.sin_port));
}

static void script_listen(struct script *script)
{
    assert_int_equal(listen(script->fd, 64), 0);
    assert_int_equal(pthread_create(&script->thread, NULL, play, script), 0);
}

#define SCRIPT(script, ...)                                                       \
    static const char *const script##_conns[] = {__VA_ARGS__};                    \
    struct script script;                                                         \
    script_bind(&script, script##_conns, sizeof script##_conns / sizeof(char *)); \
    script_listen(&script)

/* The script was played to its end, and nothing else was tried. */
static void script_end(struct script *script)
{
    assert_int_equal(pthread_join(script->thread, NULL), 0);
    if (script->trouble[0] != '\0') {
        fail_msg("%s", script->trouble);
    }
    struct pollfd pollfd = {.fd = script->fd, .events = POLLIN};
    (void)poll(&pollfd, 1, 0);
    bool listens = (pollfd.revents & POLLHUP) == 0;
    assert_false(listens && pollfd.revents != 0); /* no further connection */
    assert_int_equal(close(script->fd), 0);
    assert_int_equal(sem_destroy(&script->closed), 0);
}

static void assert_stats(struct mst_store *store,
                         uint64_t connects,
                         uint64_t retries,
                         const char *dialect)
{
    struct mst_store_stats stats = {.size = sizeof stats};
    assert_int_equal(mst_store_get_stats(store, &stats), 0);
    assert_int_equal(stats.connects, connects);
    assert_int_equal(stats.retries, retries);
    assert_string_equal(stats.dialect, dialect);
}

#define HELLO "<HELLO_C >HI_C "

static const struct mst_bytes key_k = {(const uint8_t *)"k", 1};

/* --- lost connections --- */

static void test_idle_closed(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "<SET+CHECK_NONE >00", HELLO "<ADD >ONE");
    struct mst_store *store = open_store(script.url);
    assert_ok(mst_store_set(store, key_k, STR("v"), PLENTY_MS, &err));
    assert_int_equal(sem_wait(&script.closed), 0);
    /* Not even an ADD is harmed by a connection that died of old age. */
    int64_t sum = 0;
    assert_ok(mst_store_add(store, key_k, 1, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, 1);
    assert_stats(store, 2, 0, "C");
    mst_store_close(store);
    script_end(&script);
}

static void test_set_again(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "<SET", HELLO "<SET+CHECK_NONE", HELLO "<SET+CHECK_NONE >00");
    struct mst_store *store = open_store(script.url);
    assert_ok(mst_store_set(store, key_k, STR("v"), PLENTY_MS, &err));
    assert_stats(store, 3, 2, "C");
    mst_store_close(store);
    script_end(&script);
}

static void test_get_again(void **state)
{
    (void)state;
    /* Lost before, in the middle of, and after the CHECK's answer. */
    SCRIPT(script, HELLO "<CHECK+GET", HELLO "<CHECK+GET >00", HELLO "<CHECK+GET >00+01000000",
           HELLO "<CHECK+GET >00+FIVE");
    struct mst_store *store = open_store(script.url);
    assert_value(store, "k", STR("5"));
    assert_stats(store, 4, 3, "C");
    mst_store_close(store);
    script_end(&script);
}

static void test_add_unknown(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "<ADD", HELLO "<CHECK+GET >00+FIVE <NUM_KEYS >ONE");
    struct mst_store *store = open_store(script.url);
    int64_t sum = 4711;
    assert_fails(mst_store_add(store, key_k, 1, PLENTY_MS, &sum, &err), MST_EUNKNOWN,
                 "may or may not have been done");
    assert_int_equal(sum, 4711);
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, 1);
    mst_store_close(store);
    script_end(&script);
}

static void test_add_type(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "<ADD", HELLO "<CHECK+GET >00+ABC");
    struct mst_store *store = open_store(script.url);
    int64_t sum;
    assert_fails(mst_store_add(store, key_k, 1, PLENTY_MS, &sum, &err), MST_ETYPE, "'k'");
    mst_store_close(store);
    script_end(&script);
}

static void test_other_unknown(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "<08+0200000000000000+2f6b",
           HELLO "<02+0200000000000000+2f6b+ZERO+0100000000000000+76 >01",
           HELLO "<09+0200000000000000+2f6b+0100000000000000+76+CHECK_NONE");
    struct mst_store *store = open_store(script.url);
    enum mst_compare_set outcome;
    assert_fails(mst_store_delete(store, key_k, PLENTY_MS, NULL, &err), MST_EUNKNOWN, "delete");
    assert_fails(
        mst_store_compare_set(store, key_k, STR(""), STR("v"), PLENTY_MS, &outcome, NULL, &err),
        MST_EUNKNOWN, "compare_set");
    assert_fails(mst_store_append(store, key_k, STR("v"), PLENTY_MS, &err), MST_EUNKNOWN, "append");
    assert_stats(store, 3, 0, "C");
    mst_store_close(store);
    script_end(&script);
}

/* A request of which the server cannot have seen the end was not executed, and goes out again even
 * if it must not be executed twice. */
static void test_half_sent(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "~100",
           /* opcode, three lengths, the key, two bytes, the value */
           HELLO "~8388637 >0200000000000000+7879");
    struct mst_store *store = open_store(script.url);
    size_t size = MST_VALUE_SIZE_DEFAULT;
    uint8_t *value = calloc(1, size);
    assert_non_null(value);
    enum mst_compare_set outcome = MST_COMPARE_SET_DONE;
    assert_ok(mst_store_compare_set(store, key_k, STR("no"), mst_bytes_of(value, size), PLENTY_MS,
                                    &outcome, NULL, &err));
    assert_int_equal(outcome, MST_COMPARE_SET_DIFFERS);
    assert_stats(store, 2, 1, "C");
    free(value);
    mst_store_close(store);
    script_end(&script);
}

#define TELLING "<HELLO_C >HI_TELLING "

/* A server that tells has done nothing: every request is tried again for which there may be memory
 * later, and no other. */
static void test_told_why(void **state)
{
    (void)state;
    SCRIPT(script, TELLING "<ADD >NO_MEMORY", TELLING "<ADD >ONE <SET+CHECK_NONE >TOO_LARGE",
           TELLING "<CHECK+GET >TOO_LARGE", TELLING "<CHECK+GET >00+NO_MEMORY",
           TELLING "<CHECK+GET >00+FIVE");
    struct mst_store *store = open_store(script.url);
    int64_t sum = 0;
    assert_ok(mst_store_add(store, key_k, 1, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, 1);
    assert_stats(store, 2, 1, "C");
    assert_fails(mst_store_set(store, key_k, STR("v"), PLENTY_MS, &err), MST_ELIMIT, "full");
    struct mst_buffer value = {0};
    assert_fails(mst_store_get(store, key_k, PLENTY_MS, &value, &err), MST_ELIMIT, "full");
    assert_ok(mst_store_get(store, key_k, PLENTY_MS, &value, &err));
    mst_buffer_free(&value);
    mst_store_close(store);
    script_end(&script);
}

static void test_told_again_and_again(void **state)
{
    (void)state;
    SCRIPT(script, TELLING "<ADD >NO_MEMORY", TELLING "<ADD >NO_MEMORY", TELLING "<ADD >NO_MEMORY",
           TELLING "<ADD >NO_MEMORY", TELLING "<ADD >NO_MEMORY", TELLING "<SET",
           TELLING "<SET+CHECK_NONE", TELLING "<SET+CHECK_NONE >TOO_LARGE");
    struct mst_store *store = open_store(script.url);
    int64_t sum = 0;
    assert_fails(mst_store_add(store, key_k, 1, PLENTY_MS, &sum, &err), MST_ELIMIT, "full");
    /* An earlier attempt may have arrived. */
    assert_fails(mst_store_set(store, key_k, STR("v"), PLENTY_MS, &err), MST_EUNKNOWN, "full");
    mst_store_close(store);
    script_end(&script);
}

/* Only the whole number begins a refusal. */
static void test_sums_like_refusals(void **state)
{
    (void)state;
    SCRIPT(script, TELLING "<ADD >ffffffffffffffff <ADD >ff6d757374657220 =");
    struct mst_store *store = open_store(script.url);
    int64_t sum = 0;
    assert_ok(mst_store_add(store, key_k, 1, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, -1);
    assert_ok(mst_store_add(store, key_k, 1, PLENTY_MS, &sum, &err));
    assert_int_equal(sum, 0x2072657473756dff);
    mst_store_close(store);
    script_end(&script);
}

/* A full server is there, and has a place as soon as another client goes. */
static void test_no_place(void **state)
{
    (void)state;
    SCRIPT(script, "<HELLO_C >01010101+NO_PLACE =", "<HELLO_C >01010101+NO_PLACE =",
           TELLING "<NUM_KEYS >ONE");
    struct mst_store *store = open_store(script.url);
    int64_t count = 0;
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
    mst_store_close(store);
    script_end(&script);
}

static void test_refused_again_and_again(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "<SET+CHECK_NONE", HELLO "<SET+CHECK_NONE", HELLO "<SET+CHECK_NONE",
           HELLO "<SET+CHECK_NONE", HELLO "<SET+CHECK_NONE");
    struct mst_store *store = open_store(script.url);
    assert_fails(mst_store_set(store, key_k, STR("v"), PLENTY_MS, &err), MST_EUNKNOWN, "limits");
    mst_store_close(store);
    script_end(&script);
}

/* --- the store of a round --- */

static struct mst_store *open_round(const struct script *script)
{
    struct mst_store *store = open_store(script->url);
    mst__store_bind(store, 7);
    return store;
}

/* A connection is asked once whether its server has sealed the round. */
static void test_epoch(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "<EPOCH+EPOCH_7 >00+00 <ADD >ONE <ADD >ONE =", HELLO "<EPOCH+EPOCH_7 >00",
           HELLO "<EPOCH+EPOCH_7 >00+01 <EPOCH+EPOCH_7 >00+01 =");
    struct mst_store *store = open_round(&script);
    int64_t sum = 0;
    assert_ok(mst_store_add(store, key_k, 1, PLENTY_MS, &sum, &err));
    assert_ok(mst_store_add(store, key_k, 1, PLENTY_MS, &sum, &err));
    mst_store_close(store);
    /* A connection that is lost before the answer says nothing. Nothing of the call was sent. */
    store = open_round(&script);
    for (int i = 0; i < 2; i++) {
        assert_fails(mst_store_add(store, key_k, 1, PLENTY_MS, &sum, &err), MST_ECLOSED,
                     "the server restarted: the keys of this round are gone");
    }
    assert_stats(store, 2, 1, "C");
    mst_store_close(store);
    script_end(&script);
}

/* PyTorch's servers and older ones of ours do not tell: they get everything. */
static void test_epoch_not_told(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "<EPOCH+EPOCH_7 >01+01 <ADD >ONE <SET+CHECK_NONE >00",
           HELLO "<EPOCH+EPOCH_7 >01+01 <ADD >ONE");
    struct mst_store *store = open_round(&script);
    int64_t sum = 0;
    assert_ok(mst_store_add(store, key_k, 1, PLENTY_MS, &sum, &err));
    assert_ok(mst_store_set(store, key_k, STR("v"), PLENTY_MS, &err));
    assert_int_equal(sem_wait(&script.closed), 0);
    assert_ok(mst_store_add(store, key_k, 1, PLENTY_MS, &sum, &err));
    mst_store_close(store);
    script_end(&script);
}

/* --- absent keys --- */

static void test_get_closes(void **state)
{
    (void)state;
    /* A server that closes on a GET of an absent key is asked in two steps from then on. */
    SCRIPT(script, HELLO "<CHECK+GET >01", HELLO "<CHECK >01 <CHECK >00 <GET >FIVE");
    struct mst_store *store = open_store(script.url);
    assert_absent(store, "k");
    assert_absent(store, "k");
    assert_value(store, "k", STR("5"));
    mst_store_close(store);
    script_end(&script);
}

static void test_get_empty(void **state)
{
    (void)state;
    /* Empty, or deleted since the CHECK: a COMPARE_SET that cannot match tells. */
    SCRIPT(script, HELLO "<CHECK+GET >00+ZERO ~59 >ZERO " /* empty */
                         "<CHECK+GET >00+ZERO ^59 "       /* deleted */
                         "<CHECK+GET >00+ZERO ~59 >FIVE " /* deleted and made anew */
                         "<CHECK+GET >01+ZERO "           /* absent */
                         "<CHECK+GET >01+FIVE" /* made since the CHECK */);
    struct mst_store *store = open_store(script.url);
    assert_value(store, "k", STR(""));
    assert_absent(store, "k");
    assert_value(store, "k", STR("5"));
    assert_absent(store, "k");
    assert_value(store, "k", STR("5"));
    mst_store_close(store);
    script_end(&script);
}

/* A key that is deleted between the wait and the MULTI_GET has an empty value there, and is waited
 * for again. */
static void test_multi_get_vanished(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "<WAIT >00 <0a+ONE+0200000000000000+2f6b >ZERO <CHECK >01 "
                         "<WAIT >00 <0a+ONE+0200000000000000+2f6b >FIVE");
    struct mst_store *store = open_store(script.url);
    struct mst_buffer value = {0};
    assert_ok(mst_store_multi_get(store, &key_k, 1, PLENTY_MS, &value, &err));
    assert_bytes_str(mst_bytes_of(value.data, value.size), "5");
    mst_buffer_free(&value);
    mst_store_close(store);
    script_end(&script);
}

/* --- waits --- */

static void test_cancel(void **state)
{
    (void)state;
    /* The second time the wait ends just when it is cancelled. */
    SCRIPT(script, HELLO "<WAIT <0c >01 <NUM_KEYS >ONE <WAIT <0c >00+01 <NUM_KEYS >ONE "
                         /* Two in a row, confirmed late. */
                         "<WAIT <0c <WAIT <0c >01+00+01 <NUM_KEYS >ONE =");
    struct mst_store *store = open_store(script.url);
    for (int i = 0; i < 4; i++) {
        assert_fails(mst_store_wait(store, &key_k, 1, SHORT_MS, &err), MST_ETIMEOUT, "'k'");
        int64_t count = 0;
        if (i != 2) {
            assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
            assert_int_equal(count, 1);
        }
    }
    assert_stats(store, 1, 0, "C");
    mst_store_close(store);
    script_end(&script);
}

static void test_wait_again(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "<WAIT", HELLO "<WAIT >00");
    struct mst_store *store = open_store(script.url);
    assert_ok(mst_store_wait(store, &key_k, 1, PLENTY_MS, &err));
    assert_stats(store, 2, 1, "C");
    mst_store_close(store);
    script_end(&script);
}

static void test_no_answer(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "<ADD =", HELLO "<SET+CHECK_NONE =", HELLO "<NUM_KEYS >0100 =");
    struct mst_store *store = open_store(script.url);
    int64_t sum;
    assert_fails(mst_store_add(store, key_k, 1, SHORT_MS, &sum, &err), MST_EUNKNOWN,
                 "deadline passed after the request was sent");
    assert_fails(mst_store_set(store, key_k, STR("v"), SHORT_MS, &err), MST_ETIMEOUT, "'k'");
    assert_fails(mst_store_num_keys(store, SHORT_MS, &sum, &err), MST_ETIMEOUT, "num_keys");
    mst_store_close(store);
    script_end(&script);
}

/* --- servers that lack something --- */

#define PUSH "<0e+0200000000000000+2f6b+0100000000000000+76+CHECK_NONE"
#define POP "<0f+0200000000000000+2f6b"
#define LEN_PROBE "<10+PROBE_KEY"
#define BARRIER "<12+0200000000000000+2f6b+ONE"

static void test_no_queues(void **state)
{
    (void)state;
    SCRIPT(script, HELLO PUSH, HELLO LEN_PROBE, HELLO LEN_PROBE, HELLO LEN_PROBE);
    struct mst_store *store = open_store(script.url);
    assert_fails(mst_store_queue_push(store, key_k, STR("v"), PLENTY_MS, &err), MST_ENOTSUP,
                 "has no queue_push");
    int64_t count;
    assert_fails(mst_store_queue_len(store, key_k, PLENTY_MS, &count, &err), MST_ENOTSUP,
                 "has no queue_len");
    mst_store_close(store);
    script_end(&script);
}

static void test_has_queues(void **state)
{
    (void)state;
    SCRIPT(script, HELLO POP, HELLO LEN_PROBE, HELLO LEN_PROBE " >ZERO " POP);
    struct mst_store *store = open_store(script.url);
    struct mst_buffer value = {0};
    assert_fails(mst_store_queue_pop(store, key_k, false, PLENTY_MS, &value, &err), MST_EUNKNOWN,
                 "may or may not");
    /* Known by now: the next loss needs no probe. */
    assert_fails(mst_store_queue_pop(store, key_k, false, PLENTY_MS, &value, &err), MST_EUNKNOWN,
                 "may or may not");
    mst_store_close(store);
    script_end(&script);
}

/* A server that ends during an operation does not lack it. */
static void test_no_server_to_ask(void **state)
{
    (void)state;
    SCRIPT(script, HELLO PUSH " !");
    struct mst_store *store = open_store(script.url);
    assert_fails(mst_store_queue_push(store, key_k, STR("v"), SHORT_MS, &err), MST_EUNKNOWN,
                 "may or may not");
    mst_store_close(store);
    script_end(&script);
}

/* What a server lacks is forgotten once it is away: the next one may have it. */
static void test_queues_later(void **state)
{
    (void)state;
    SCRIPT(script, HELLO PUSH, HELLO LEN_PROBE, HELLO LEN_PROBE, HELLO LEN_PROBE, "<HELLO_C",
           HELLO "<NUM_KEYS >ONE " PUSH " >00");
    struct mst_store *store = open_store(script.url);
    assert_fails(mst_store_queue_push(store, key_k, STR("v"), PLENTY_MS, &err), MST_ENOTSUP,
                 "has no queue_push");
    int64_t count = 0;
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
    assert_ok(mst_store_queue_push(store, key_k, STR("v"), PLENTY_MS, &err));
    mst_store_close(store);
    script_end(&script);
}

/* A server that does not announce our kind of BARRIER never gets one. */
static void test_no_barrier(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "<HAS_BARRIER >01 <05+ONE+PARTICIPANTS+03+PARTICIPANTS >00+ABC =");
    struct mst_store *store = open_store(script.url);
    assert_fails(mst_store_barrier(store, key_k, 1, PLENTY_MS, &err), MST_ETYPE,
                 "not a list of participants");
    mst_store_close(store);
    script_end(&script);
}

/* The confirmation tells whether the participant has left or whether the barrier was complete. */
static void test_barrier_ends_late(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "<HAS_BARRIER >00 " BARRIER " <0c >01 " BARRIER " <0c >00+01 "
                         /* The confirmations of a wait come first. */
                         "<WAIT <0c " BARRIER " <0c >00+01+00+01 <NUM_KEYS >ONE " BARRIER " <0c =");
    struct mst_store *store = open_store(script.url);
    assert_fails(mst_store_barrier(store, key_k, 1, SHORT_MS, &err), MST_ETIMEOUT, "not complete");
    assert_ok(mst_store_barrier(store, key_k, 1, SHORT_MS, &err));
    assert_fails(mst_store_wait(store, &key_k, 1, SHORT_MS, &err), MST_ETIMEOUT, "'k'");
    assert_ok(mst_store_barrier(store, key_k, 1, SHORT_MS, &err));
    int64_t count = 0;
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
    assert_fails(mst_store_barrier(store, key_k, 1, SHORT_MS, &err), MST_EUNKNOWN,
                 "does not tell whether it was complete");
    mst_store_close(store);
    script_end(&script);
}

/* --- older dialects --- */

#define NO_C "<HELLO_C", "<HELLO_C", "<HELLO_C"

static void test_dialect_a(void **state)
{
    (void)state;
    SCRIPT(script, NO_C, "<HELLO_B",
           "<HELLO_A >HI_A <04+ONE+0200000000000000+2f6b >01 "         /* get: absent */
           "<00+0200000000000000+2f6b+0100000000000000+76+NONE_A >00 " /* set, check of none */
           "<05+ONE+0200000000000000+2f6b =",                          /* wait: closed */
           "<HELLO_A >HI_A <08+0200000000000000+2f6b >ONE "            /* delete */
           /* append as compare_set */
           "<04+ONE+0200000000000000+2f6b >01 "
           "<01+0200000000000000+2f6b+ZERO+0100000000000000+78 >0100000000000000+78");
    struct mst_store *store = open_store(script.url);
    assert_stats(store, 1, 0, "A");
    struct mst_keys keys;
    assert_fails(mst_store_list(store, PLENTY_MS, &keys, &err), MST_ENOTSUP, "dialect A");
    assert_absent(store, "k");
    assert_ok(mst_store_set(store, key_k, STR("v"), PLENTY_MS, &err));
    assert_fails(mst_store_wait(store, &key_k, 1, SHORT_MS, &err), MST_ETIMEOUT, "'k'");
    bool existed = false;
    assert_ok(mst_store_delete(store, key_k, PLENTY_MS, &existed, &err));
    assert_true(existed);
    assert_ok(mst_store_append(store, key_k, STR("x"), PLENTY_MS, &err));
    mst_store_close(store);
    script_end(&script);
}

static void test_dialect_b(void **state)
{
    (void)state;
    SCRIPT(script, NO_C,
           "<HELLO_B >HI_B <07+0200000000000000+2f6b >ZERO "
           "<05+ONE+0200000000000000+2f6b <0b >01 <06 >ONE");
    struct mst_store *store = open_store(script.url);
    assert_stats(store, 1, 0, "B");
    bool existed = true;
    assert_ok(mst_store_delete(store, key_k, PLENTY_MS, &existed, &err));
    assert_false(existed);
    assert_fails(mst_store_wait(store, &key_k, 1, SHORT_MS, &err), MST_ETIMEOUT, "'k'");
    int64_t count = 0;
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
    assert_int_equal(count, 1);
    mst_store_close(store);
    script_end(&script);
}

/* An old server has taken the place of a new one. */
static void test_dialect_changes(void **state)
{
    (void)state;
    SCRIPT(script, HELLO "<SET+CHECK_NONE", "<HELLO_C", NO_C,
           "<HELLO_B >HI_B "
           "<00+0200000000000000+2f6b+0100000000000000+76+NONE_A >00");
    struct mst_store *store = open_store(script.url);
    assert_ok(mst_store_set(store, key_k, STR("v"), PLENTY_MS, &err));
    assert_stats(store, 2, 1, "B");
    mst_store_close(store);
    script_end(&script);
}

/* A server of muster speaks each dialect. One that has closed the connections in dialect C because
 * it was full is greeted in C again: the older ones have no queues and no barriers. */
static void test_full_for_a_moment(void **state)
{
    (void)state;
    SCRIPT(script, NO_C, "<HELLO_B >HI_B_OF_MUSTER =", NO_C, "<HELLO_B",
           "<HELLO_A >HI_A_OF_MUSTER =", NO_C, "<HELLO_B >01", "<HELLO_A",
           "<HELLO_C >HI_C <NUM_KEYS >ONE");
    struct mst_store *store = open_store(script.url);
    assert_stats(store, 1, 0, "C");
    int64_t count = 0;
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
    assert_int_equal(count, 1);
    mst_store_close(store);
    script_end(&script);
}

/* --- connecting --- */

static void test_not_a_store(void **state)
{
    (void)state;
    SCRIPT(script, "<HELLO_C >48545450");
    struct mst_store *store = NULL;
    assert_fails(mst_store_open(script.url, NULL, PLENTY_MS, &store, &err), MST_EPROTO,
                 "neither a PyTorch nor a muster store");
    assert_null(store);
    script_end(&script);
}

static void test_silent(void **state)
{
    (void)state;
    SCRIPT(script, "<HELLO_C =");
    struct mst_store *store = NULL;
    int64_t start_ms = mst__clock_ms();
    assert_fails(mst_store_open(script.url, NULL, SHORT_MS, &store, &err), MST_ETIMEOUT,
                 "no answer in time");
    assert_in_range(mst__clock_ms() - start_ms, SHORT_MS - 2, PLENTY_MS);
    script_end(&script);
}

struct late {
    struct script script;
    bool listens;
};

/* Start the server as soon as the client has found that it is not there. */
static void start_late(void *arg, enum mst_log_level level, const char *line)
{
    (void)level;
    struct late *late = arg;
    if (!late->listens && strstr(line, "ev=store.connect_again") != NULL) {
        late->listens = true;
        script_listen(&late->script);
    }
}

/* Bound, but not listening: refused until the server is there. By name, so that all its
 * addresses are tried. */
static void test_server_comes_later(void **state)
{
    (void)state;
    static const char *const conns[] = {HELLO "<NUM_KEYS >ONE"};
    struct late late = {.listens = false};
    script_bind(&late.script, conns, 1);
    char url[64];
    (void)snprintf(url, sizeof url, "tcp://localhost:%s", strrchr(late.script.url, ':') + 1);
    struct mst_store *store = NULL;
    assert_fails(mst_store_open(late.script.url, NULL, SHORT_MS, &store, &err), MST_ECONN,
                 "Connection refused (");
    struct mst_store_options options;
    mst_store_options_init(&options, sizeof options);
    options.log = (struct mst_log){.fn = start_late, .arg = &late, .level = MST_LOG_DEBUG};
    assert_ok(mst_store_open(url, &options, PLENTY_MS, &store, &err));
    assert_true(late.listens);
    int64_t count = 0;
    assert_ok(mst_store_num_keys(store, PLENTY_MS, &count, &err));
    assert_int_equal(count, 1);
    mst_store_close(store);
    script_end(&late.script);
}

static void test_unix_path(void **state)
{
    (void)state;
    struct mst_store *store = NULL;
    assert_fails(mst_store_open("unix:///no/such/socket", NULL, SHORT_MS, &store, &err), MST_ECONN,
                 "No such file");
    char url[200] = "unix:///";
    memset(url + strlen(url), 'x', sizeof url - strlen(url) - 1);
    assert_fails(mst_store_open(url, NULL, PLENTY_MS, &store, &err), MST_EINVAL, "the limit is");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_closed),
        cmocka_unit_test(test_set_again),
        cmocka_unit_test(test_get_again),
        cmocka_unit_test(test_add_unknown),
        cmocka_unit_test(test_add_type),
        cmocka_unit_test(test_other_unknown),
        cmocka_unit_test(test_half_sent),
        cmocka_unit_test(test_told_why),
        cmocka_unit_test(test_told_again_and_again),
        cmocka_unit_test(test_sums_like_refusals),
        cmocka_unit_test(test_no_place),
        cmocka_unit_test(test_refused_again_and_again),
        cmocka_unit_test(test_epoch),
        cmocka_unit_test(test_epoch_not_told),
        cmocka_unit_test(test_get_closes),
        cmocka_unit_test(test_get_empty),
        cmocka_unit_test(test_multi_get_vanished),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_wait_again),
        cmocka_unit_test(test_no_answer),
        cmocka_unit_test(test_no_queues),
        cmocka_unit_test(test_has_queues),
        cmocka_unit_test(test_no_server_to_ask),
        cmocka_unit_test(test_queues_later),
        cmocka_unit_test(test_no_barrier),
        cmocka_unit_test(test_barrier_ends_late),
        cmocka_unit_test(test_dialect_a),
        cmocka_unit_test(test_dialect_b),
        cmocka_unit_test(test_dialect_changes),
        cmocka_unit_test(test_full_for_a_moment),
        cmocka_unit_test(test_not_a_store),
        cmocka_unit_test(test_silent),
        cmocka_unit_test(test_server_comes_later),
        cmocka_unit_test(test_unix_path),
    };
    return MST_RUN_TESTS(tests);
}
