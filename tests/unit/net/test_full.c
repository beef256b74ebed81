/* unit/net/test_full.c - a full server: who is told, in which words, and who loses a place. */
#include "net/metrics.h"
#include "unit/net/conn_unit.h"
#include "wire/refusal.h"

enum { CONNECTIONS = 2, MEMORY = 1 << 20 };

static int fixture_open(void **state)
{
    struct mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    options.connections_max = CONNECTIONS;
    options.memory_max = MEMORY;
    options.key_size_max = 64;
    return fixture_new(state, &options);
}

static uint64_t closed_for(const struct fixture *f, enum mst__why why)
{
    return f->server->counters.closed[why];
}

static struct mst_bytes filler(size_t size)
{
    static uint8_t memory[MEMORY];
    assert_true(size <= sizeof memory);
    return mst_bytes_of(memory, size);
}

static void put_check(struct fixture *f, const char *key)
{
    const struct mst__command check = {.op = MST_OP_CHECK, .count = 1};
    put_command(&f->bytes, &check);
    assert_int_equal(mst__buf_append_str(&f->bytes, mst_bytes_str(key)), 0);
}

/* The start of a client of muster that has not read the answer. */
static int asker_new(struct fixture *f)
{
    int fd = peer_new(f->server, 0);
    assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
    put_check(f, MST_KV_ANNOUNCEMENT_REFUSAL);
    send_all(f, fd);
    return fd;
}

/* The same with a place. */
static int told_new(struct fixture *f)
{
    uint8_t status = 0xff;
    int fd = asker_new(f);
    peer_receive(f->server, fd, &status, 1);
    assert_int_equal(status, 0);
    return fd;
}

/* A refusal is next, and then the end of the stream. The text is valid until the next call. */
static const char *refusal_read(struct fixture *f, int fd, enum mst__refusal refusal, int code)
{
    static uint8_t memory[512];
    static char text[200];
    struct mst__job_message message;
    struct mst_err err;
    size_t size = 0;
    settle(f->server);
    ssize_t got = recv(fd, memory, sizeof memory, 0);
    assert_true(got > 0);
    assert_int_equal(memory[0], MST_WIRE_REFUSAL_FIRST);
    struct mst_bytes bytes = mst_bytes_of(memory, (size_t)got);
    assert_int_equal(mst__wire_read_refusal(bytes, &message, &size, &err), 1);
    assert_int_equal(size, got);
    assert_int_equal(message.u.refused.refusal, refusal);
    assert_int_equal(message.u.refused.code, code);
    (void)snprintf(text, sizeof text, "%.*s", (int)message.u.refused.text.size,
                   (const char *)message.u.refused.text.data);
    assert_int_equal(recv(fd, memory, sizeof memory, 0), 0);
    return text;
}

static bool is_ready(const struct fixture *f, char text[MST_FULL_TEXT_SIZE])
{
    text[0] = '\0';
    return !mst__full_text(f->server, text);
}

/* --- memory --- */

/* Store values of 100 KB until one does not fit; how many did. */
static unsigned fill(struct fixture *f, int fd)
{
    for (unsigned i = 0;; i++) {
        char key[16];
        assert_true(i < 20);
        (void)snprintf(key, sizeof key, "/%u", i);
        put_set(&f->bytes, key, filler(100000));
        send_all(f, fd);
        if (f->server->counters.refused[MST_FULL_OF_MEMORY] > 0) {
            return i;
        }
    }
}

static void full_memory_is_told(void **state)
{
    struct fixture *f = *state;
    char text[MST_FULL_TEXT_SIZE];
    char wanted[MST_FULL_TEXT_SIZE];
    int fd = told_new(f);
    assert_true(is_ready(f, text));
    assert_in_range(fill(f, fd), 7, 10);
    assert_int_equal(closed_for(f, MST_WHY_MEMORY), 1);
    assert_int_equal(closed_for(f, MST_WHY_LIMIT), 0);
    const char *told = refusal_read(f, fd, MST_REFUSAL_MEMORY, MST_ELIMIT);
    assert_false(is_ready(f, text));
    size_t used = 0;
    assert_int_equal(sscanf(told, "the server is full: %zu of", &used), 1);
    assert_in_range(used, MEMORY / 2, MEMORY);
    (void)snprintf(wanted, sizeof wanted,
                   "the server is full: %zu of %d bytes of --max-memory are used", used, MEMORY);
    assert_string_equal(told, wanted);
    assert_non_null(strstr(text, "of 1048576 bytes of --max-memory are used"));
    (void)close(fd);
    settle(f->server);
    assert_false(is_ready(f, text)); /* although its own buffer is free */
    fd = told_new(f);
    for (unsigned i = 0; i < 4; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "/%u", i);
        const struct mst__command remove = {.op = MST_OP_DELETE, .key = mst_bytes_str(key)};
        put_command(&f->bytes, &remove);
        send_all(f, fd);
    }
    assert_true(is_ready(f, text));
    for (unsigned i = 0; i < 4; i++) { /* as many as before fit, and nothing is refused */
        char key[16];
        (void)snprintf(key, sizeof key, "/%u", i);
        put_set(&f->bytes, key, filler(100000));
        send_all(f, fd);
    }
    settle(f->server);
    assert_int_equal(f->server->counters.refused[MST_FULL_OF_MEMORY], 1);
    assert_true(is_ready(f, text));
    (void)close(fd);
}

/* A peer that has not asked gets no words: it would take them for a reply. */
static void full_memory_is_not_told_to_others(void **state)
{
    struct fixture *f = *state;
    uint8_t byte;
    int fd = client_new(f);
    (void)fill(f, fd);
    settle(f->server);
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    assert_int_equal(closed_for(f, MST_WHY_MEMORY), 1);
    (void)close(fd);
}

/* A request that is large beside the limit says nothing about others. */
static void large_request_is_no_full_server(void **state)
{
    struct fixture *f = *state;
    char text[MST_FULL_TEXT_SIZE];
    int fd = told_new(f);
    put_set(&f->bytes, "/large", filler(MEMORY));
    send_all(f, fd);
    const char *told = refusal_read(f, fd, MST_REFUSAL_MEMORY, MST_ELIMIT);
    assert_non_null(strstr(told, "no room for "));
    assert_true(is_ready(f, text));
    (void)close(fd);
}

/* A node is told in the words of its protocol, and keeps its connection. */
static void full_memory_is_told_to_nodes(void **state)
{
    struct fixture *f = *state;
    struct mst__job_message message;
    int fd = node_new(f);
    size_t room = mst__kv_room(&f->server->kv);
    assert_true(mst__kv_charge(&f->server->kv, room - 64));
    const struct mst__job_message announce = {
        .type = MST_JOB_ANNOUNCE,
        .u.announce = {.version = MST_JOB_VERSION,
                       .run_id = mst_bytes_str("job"),
                       .announcement = {.name = mst_bytes_str("node"),
                                        .session = 1,
                                        .expiry_us = 1000000,
                                        .nodes_min = 1,
                                        .nodes_max = 1,
                                        .pinned_rank = MST_AUTHORITY_RANK_NONE}}};
    put_message(&f->bytes, &announce);
    send_all(f, fd);
    frame_read(f, fd, &message);
    assert_int_equal(message.type, MST_JOB_REFUSED);
    assert_int_equal(message.u.refused.code, MST_ELIMIT);
    char text[200];
    (void)snprintf(text, sizeof text, "%.*s", (int)message.u.refused.text.size,
                   (const char *)message.u.refused.text.data);
    assert_non_null(strstr(text, "the server is full: "));
    assert_non_null(strstr(text, "of 1048576 bytes of --max-memory are used"));
    assert_int_equal(f->server->counters.refused[MST_FULL_OF_MEMORY], 1);
    assert_false(is_ready(f, text));
    mst__kv_discharge(&f->server->kv, room - 64);
    settle(f->server);
    assert_true(is_ready(f, text));
    put_message(&f->bytes, &announce);
    send_all(f, fd);
    assert_int_equal(frame_await(f, fd), MST_JOB_WELCOME);
    (void)close(fd);
    settle(f->server);
}

/* --- other refusals --- */

static void limits_are_told(void **state)
{
    struct fixture *f = *state;
    char text[MST_FULL_TEXT_SIZE];
    char key[66] = {0};
    memset(key, 'k', 65);
    int fd = told_new(f);
    put_set(&f->bytes, key, mst_bytes_str("v"));
    send_all(f, fd);
    assert_string_equal(refusal_read(f, fd, MST_REFUSAL_MALFORMED, MST_ELIMIT),
                        "key of 65 bytes, the limit is 64");
    assert_int_equal(closed_for(f, MST_WHY_LIMIT), 1);
    assert_true(is_ready(f, text));
    (void)close(fd);
    fd = told_new(f);
    put_set(&f->bytes, "/x", mst_bytes_str("x"));
    const struct mst__command add = {.op = MST_OP_ADD, .key = mst_bytes_str("/x"), .number = 1};
    put_command(&f->bytes, &add);
    send_all(f, fd);
    assert_string_equal(refusal_read(f, fd, MST_REFUSAL_MALFORMED, MST_ETYPE),
                        "add: the value is not a number");
    (void)close(fd);
}

/* A write that was done is not told to be refused because its confirmation is. */
static void done_writes_are_not_refused(void **state)
{
    struct fixture *f = *state;
    struct mst__kv *kv = &f->server->kv;
    uint8_t byte;
    int fd = told_new(f);
    put_set(&f->bytes, "/k", mst_bytes_str("v"));
    send_all(f, fd);
    size_t room = mst__kv_room(kv);
    assert_true(mst__kv_charge(kv, room));
    put_set(&f->bytes, "/k", mst_bytes_str("w"));
    const struct mst__command check = {.op = MST_OP_CHECK};
    put_command(&f->bytes, &check);
    mst__buf_truncate(&f->bytes, mst__buf_size(&f->bytes) - 1);
    send_all(f, fd);
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    assert_int_equal(f->server->conns_count, 0);
    assert_int_equal(closed_for(f, MST_WHY_MEMORY), 1);
    (void)close(fd);
    fd = client_new(f);
    put_get(&f->bytes, "/k");
    send_all(f, fd);
    uint8_t reply[9];
    peer_receive(f->server, fd, reply, sizeof reply);
    assert_int_equal(reply[8], 'w');
    mst__kv_discharge(kv, room);
    (void)close(fd);
}

/* What the peer is still sending does not cost it the words, and not for ever. */
static void words_outlive_unread_input(void **state)
{
    struct fixture *f = *state;
    int fd = told_new(f);
    put_set(&f->bytes, "/large", filler(MEMORY / 2));
    put_set(&f->bytes, "/large2", filler(MEMORY));
    put_set(&f->bytes, "/large3", filler(MEMORY));
    send_all(f, fd);
    assert_int_equal(f->server->conns_count, 0);
    assert_int_equal(f->server->spares_count, 1);
    (void)refusal_read(f, fd, MST_REFUSAL_MEMORY, MST_ELIMIT);
    pass_ms(f->server, MST_SPARE_MS);
    assert_int_equal(f->server->spares_count, 0);
    (void)close(fd);
}

/* --- connections --- */

static void full_of_connections_is_told(void **state)
{
    struct fixture *f = *state;
    char text[MST_FULL_TEXT_SIZE];
    int first = told_new(f);
    assert_true(is_ready(f, text));
    int second = told_new(f);
    assert_false(is_ready(f, text));
    assert_string_equal(text, "the server is full: 2 connections, its --max-connections");
    int third = asker_new(f);
    assert_string_equal(refusal_read(f, third, MST_REFUSAL_FULL, MST_ELIMIT), text);
    assert_int_equal(closed_for(f, MST_WHY_TOO_MANY), 1);
    assert_int_equal(f->server->counters.refused[MST_FULL_OF_CONNECTIONS], 1);
    (void)close(third);
    settle(f->server);
    assert_int_equal(f->server->spares_count, 0);
    /* Others still have theirs, and one that goes makes room. */
    put_set(&f->bytes, "/k", mst_bytes_str("v"));
    send_all(f, first);
    assert_int_equal(f->server->kv.keys_count, 1);
    (void)close(second);
    settle(f->server);
    assert_true(is_ready(f, text));
    third = told_new(f);
    (void)close(first);
    (void)close(third);
}

/* Any other request of a connection without a place ends it without effect. */
static void extra_connections_are_not_served(void **state)
{
    struct fixture *f = *state;
    int fds[CONNECTIONS] = {told_new(f), told_new(f)};
    int fd = peer_new(f->server, 0);
    assert_int_equal(mst__wire_write_validate(&f->bytes), 0);
    put_set(&f->bytes, "/k", mst_bytes_str("v"));
    put_check(f, MST_KV_ANNOUNCEMENT_REFUSAL);
    send_all(f, fd);
    assert_true(peer_is_closed(f->server, fd));
    assert_int_equal(f->server->kv.keys_count, 0);
    (void)close(fd);
    fd = node_new(f);
    assert_true(peer_is_closed(f->server, fd));
    (void)close(fd);
    for (size_t i = 0; i < CONNECTIONS; i++) {
        (void)close(fds[i]);
    }
}

/* The reserve is bounded in number and in time. */
static void reserve_is_bounded(void **state)
{
    struct fixture *f = *state;
    int fds[CONNECTIONS + MST_SPARES_MAX + 1];
    for (size_t i = 0; i < CONNECTIONS; i++) {
        fds[i] = told_new(f);
    }
    for (size_t i = CONNECTIONS; i < CONNECTIONS + MST_SPARES_MAX; i++) {
        fds[i] = peer_new(f->server, 0);
    }
    assert_int_equal(f->server->extras_count, MST_SPARES_MAX);
    int last = asker_new(f);
    assert_true(peer_is_closed(f->server, last));
    assert_int_equal(f->server->extras_count, MST_SPARES_MAX);
    pass_ms(f->server, MST_SPARE_MS);
    assert_int_equal(f->server->extras_count, 0);
    assert_int_equal(f->server->spares_count, 0);
    assert_int_equal(f->server->conns_count, CONNECTIONS);
    assert_int_equal(closed_for(f, MST_WHY_TOO_MANY), MST_SPARES_MAX + 1);
    fds[CONNECTIONS + MST_SPARES_MAX] = last;
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        (void)close(fds[i]);
    }
}

/* --- silence --- */

static void silent_connections_make_room(void **state)
{
    struct fixture *f = *state;
    char text[MST_FULL_TEXT_SIZE];
    int oldest = peer_new(f->server, 0);
    pass_ms(f->server, 10);
    int younger = peer_new(f->server, 0);
    /* Too early, although there is no place. */
    pass_ms(f->server, MST_SILENT_MS - 1000);
    assert_false(is_ready(f, text));
    int asker = asker_new(f);
    (void)refusal_read(f, asker, MST_REFUSAL_FULL, MST_ELIMIT);
    (void)close(asker);
    pass_ms(f->server, 1000);
    assert_true(is_ready(f, text));
    asker = told_new(f);
    assert_true(peer_is_closed(f->server, oldest));
    assert_false(peer_is_closed(f->server, younger));
    assert_int_equal(closed_for(f, MST_WHY_SILENT), 1);
    assert_int_equal(f->server->conns_count, CONNECTIONS);
    (void)close(oldest);
    (void)close(younger);
    (void)close(asker);
}

/* Silence costs nothing while there is room, nor later those that have spoken once. */
static void silence_after_a_word_costs_nothing(void **state)
{
    struct fixture *f = *state;
    int silent = peer_new(f->server, 0);
    pass_ms(f->server, 1000 * MST_SILENT_MS);
    int spoken = told_new(f);
    assert_int_equal(f->server->conns_count, CONNECTIONS);
    const uint8_t byte = 0;
    peer_send(f->server, silent, mst_bytes_of(&byte, 1));
    settle(f->server);
    pass_ms(f->server, MST_SILENT_MS);
    int asker = asker_new(f);
    (void)refusal_read(f, asker, MST_REFUSAL_FULL, MST_ELIMIT);
    assert_int_equal(closed_for(f, MST_WHY_SILENT), 0);
    (void)close(silent);
    (void)close(spoken);
    (void)close(asker);
}

/* Who has just sent its first bytes is not silent, although they are not read yet. */
static void unread_words_count(void **state)
{
    struct fixture *f = *state;
    const uint8_t byte = 0;
    int spoken = peer_new(f->server, 0);
    int silent = peer_new(f->server, 0);
    f->server->ahead_ms += MST_SILENT_MS;
    assert_int_equal(send(spoken, &byte, 1, MSG_NOSIGNAL), 1);
    assert_true(mst__silent_make_room(f->server));
    assert_true(peer_is_closed(f->server, silent));
    assert_false(peer_is_closed(f->server, spoken));
    assert_int_equal(closed_for(f, MST_WHY_SILENT), 1);
    (void)close(silent);
    (void)close(spoken);
}

/* A client of dialect A has a second connection on which it sends nothing, and spins without it. */
static void second_connections_are_kept(void **state)
{
    struct fixture *f = *state;
    int old = peer_new(f->server, 0);
    int second = peer_new(f->server, 0);
    const struct mst__command count = {.op = MST_OP_NUM_KEYS};
    uint8_t reply[8];
    assert_int_equal(mst__wire_write_request(&f->bytes, MST_DIALECT_A, &count), 0);
    send_all(f, old);
    peer_receive(f->server, old, reply, sizeof reply);
    assert_int_equal(mst__map_count(&f->server->silents.old_hosts), 1);
    pass_ms(f->server, MST_SILENT_MS);
    int asker = asker_new(f);
    (void)refusal_read(f, asker, MST_REFUSAL_FULL, MST_ELIMIT);
    assert_false(peer_is_closed(f->server, second));
    (void)close(asker);
    (void)close(old);
    (void)close(second);
    settle(f->server);
    assert_int_equal(mst__map_count(&f->server->silents.old_hosts), 0);
    assert_int_equal(f->server->kv.memory_used, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(full_memory_is_told),
        CASE(full_memory_is_not_told_to_others),
        CASE(large_request_is_no_full_server),
        CASE(full_memory_is_told_to_nodes),
        CASE(limits_are_told),
        CASE(done_writes_are_not_refused),
        CASE(words_outlive_unread_input),
        CASE(full_of_connections_is_told),
        CASE(extra_connections_are_not_served),
        CASE(reserve_is_bounded),
        CASE(silent_connections_make_room),
        CASE(silence_after_a_word_costs_nothing),
        CASE(unread_words_count),
        CASE(second_connections_are_kept),
    };
    return MST_RUN_TESTS(tests);
}
