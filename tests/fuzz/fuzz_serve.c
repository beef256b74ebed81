/* fuzz/fuzz_serve.c - a real server with several connections and small limits.
 *
 * The input is a list of steps. A step is a byte that chooses a connection and an action, and a
 * few more bytes: requests of any dialect, whole, in part or repeated, messages of jobs, raw
 * bytes; reading a part of the output, closing, connecting again, passing time, memory that holes
 * take away. After each step the loop turns and the invariants are checked; at the end all clients
 * leave, and nothing may be left of them. The server is in the same thread, and its clock advances
 * by the steps. Its turns are short, so that a list of some keys takes several. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "net/conn.h"
#include "wire/opcode.h"

enum {
    PEERS = 4,
    KEY_SIZE_MAX = 64,
    VALUE_SIZE_MAX = 1 << 15,
    MEMORY_MAX = 1 << 19,
    TIMEOUT_MS = 1000,
    STEPS_MAX = 200,
    LIST_PART_SIZE = 256,
    TEXT_SIZE_MAX = MST_AUTHORITY_NAME_SIZE_MAX + 1,
};

enum kind { KIND_NONE, KIND_A, KIND_B, KIND_C, KIND_FRAMED };

enum action {
    ACTION_RAW,
    ACTION_REQUEST,
    ACTION_REQUESTS, /* many equal ones */
    ACTION_HALF,     /* a request without its last bytes */
    ACTION_MESSAGE,
    ACTION_READ,
    ACTION_READ_ALL,
    ACTION_HANG_UP,
    ACTION_CONNECT,
    ACTION_SHUT, /* for writing */
    ACTION_TIME,
    ACTION_TURNS,
    ACTION_KEYS,     /* many different ones */
    ACTION_WITHHOLD, /* a part of the memory */
    ACTIONS,
};

struct peer {
    int fd; /* -1 = not connected */
    enum kind kind;
};

struct run {
    struct mst_server *server;
    struct peer peers[PEERS];
    struct mst_bytes input;
    struct mst__buf output;
    char path[64];
};

static uint8_t take(struct run *run)
{
    if (run->input.size == 0) {
        return 0;
    }
    uint8_t byte = run->input.data[0];
    run->input = mst__bytes_skip(run->input, 1);
    return byte;
}

/* --- peers --- */

static void peer_hang_up(struct peer *peer)
{
    if (peer->fd >= 0) {
        (void)close(peer->fd); /* an error does not matter */
    }
    *peer = (struct peer){.fd = -1};
}

static void peer_send(struct run *run, struct peer *peer)
{
    struct mst_bytes bytes = mst__buf_bytes(&run->output);
    if (peer->fd >= 0 && bytes.size > 0) {
        (void)send(peer->fd, bytes.data, bytes.size, MSG_NOSIGNAL); /* as much as there is room */
    }
    mst__buf_clear(&run->output);
}

static void peer_read(const struct peer *peer, size_t size)
{
    uint8_t memory[4096];
    while (peer->fd >= 0 && size > 0) {
        size_t room = size < sizeof memory ? size : sizeof memory;
        ssize_t got = recv(peer->fd, memory, room, 0);
        if (got <= 0) {
            break;
        }
        size -= (size_t)got;
    }
}

static void peer_connect(struct run *run, struct peer *peer, enum kind kind)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    peer_hang_up(peer);
    memcpy(to.sun_path, run->path, strlen(run->path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    MST_ASSERT(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) != 0) {
        (void)close(fd); /* nothing was written */
        return;
    }
    *peer = (struct peer){.fd = fd, .kind = kind};
    if (kind == KIND_C || kind == KIND_FRAMED) {
        int rv = mst__wire_write_validate(&run->output);
        MST_ASSERT(rv == 0);
    }
    if (kind == KIND_FRAMED) {
        int rv = mst__buf_append_u8(&run->output, MST_WIRE_OPCODE_JOB);
        MST_ASSERT(rv == 0);
    }
    peer_send(run, peer);
}

/* --- requests --- */

static struct mst_bytes take_key(struct run *run)
{
    static const char *const keys[] = {"/a", "/b",      "/c",         "/queue",
                                       "",   "/number", "muster.job", "muster.refusal"};
    return mst_bytes_str(keys[take(run) % 8]);
}

static struct mst_bytes take_value(struct run *run)
{
    static const uint8_t memory[VALUE_SIZE_MAX];
    uint8_t size = take(run);
    return size < 16   ? mst_bytes_str("12345")
           : size < 64 ? mst_bytes_of(memory, size)
                       : mst_bytes_of(memory, (size_t)size * 129 % VALUE_SIZE_MAX);
}

static enum mst__dialect dialect_of(const struct peer *peer)
{
    return peer->kind == KIND_A   ? MST_DIALECT_A
           : peer->kind == KIND_B ? MST_DIALECT_B
                                  : MST_DIALECT_C;
}

/* Append a request in the dialect of @peer to @output; nothing if the dialect does not have it. */
static void put_request(struct run *run, const struct peer *peer, struct mst__buf *output)
{
    struct mst__buf items;
    struct mst__command command = {.op = (enum mst__op)(take(run) % MST_OP_COUNT)};
    mst__buf_init(&items, MST_MIB(1));
    command.key = take_key(run);
    command.value = take_value(run);
    command.number = (int64_t)take(run) - 128;
    switch (mst__opcode_of(command.op)->shape) {
        case MST_SHAPE_KEYS:
        case MST_SHAPE_PAIRS:
            command.count = (uint64_t)(command.number & 7);
            for (uint64_t i = 0; i < command.count; i++) {
                int rv = mst__buf_append_str(&items, take_key(run));
                if (rv == 0 && mst__opcode_of(command.op)->shape == MST_SHAPE_PAIRS) {
                    rv = mst__buf_append_str(&items, take_value(run));
                }
                MST_ASSERT(rv == 0);
            }
            break;
        case MST_SHAPE_KEY_VALUE_VALUE:
            command.expected = take_value(run);
            break;
        default:
            break;
    }
    command.items = mst__buf_bytes(&items);
    (void)mst__wire_write_request(output, dialect_of(peer),
                                  &command); /* MST_ENOTSUP, MST_ELIMIT: none */
    mst__buf_close(&items);
}

static void send_bytes(struct run *run, struct peer *peer, struct mst_bytes requests)
{
    if (peer->kind == KIND_FRAMED) {
        const struct mst__job_message message = {.type = MST_JOB_STORE, .u.text = requests};
        (void)mst__job_write(&run->output, &message); /* MST_ELIMIT: none */
    } else {
        (void)mst__buf_append(&run->output, requests); /* the same */
    }
    peer_send(run, peer);
}

/* @count times the same request, the last one without its last @cut bytes, as @peer would send
 * it. */
static void send_requests(struct run *run, struct peer *peer, size_t count, size_t cut)
{
    struct mst__buf one;
    struct mst__buf all;
    mst__buf_init(&one, MST_MIB(1));
    mst__buf_init(&all, MST_MIB(1));
    put_request(run, peer, &one);
    for (size_t i = 0; i < count; i++) {
        (void)mst__buf_append(&all, mst__buf_bytes(&one)); /* as many as fit */
    }
    size_t size = mst__buf_size(&all);
    mst__buf_truncate(&all, size > cut ? size - cut : 0);
    send_bytes(run, peer, mst__buf_bytes(&all));
    mst__buf_close(&one);
    mst__buf_close(&all);
}

/* Store up to 1020 keys, so that a list of them takes several turns. */
static void send_keys(struct run *run, struct peer *peer)
{
    struct mst__buf all;
    size_t count = (size_t)take(run) * 4;
    enum mst__dialect dialect = dialect_of(peer);
    mst__buf_init(&all, MST_MIB(1));
    for (size_t i = 0; i < count; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "/key%zu", i); /* fits */
        const struct mst__command set = {
            .op = MST_OP_SET, .key = mst_bytes_str(key), .value = mst_bytes_str("1")};
        int rv = mst__wire_write_request(&all, dialect, &set);
        MST_ASSERT(rv == 0);
    }
    send_bytes(run, peer, mst__buf_bytes(&all));
    mst__buf_close(&all);
}

/* Empty, short, up to as long as is allowed, or too long. */
static struct mst_bytes take_text(struct run *run)
{
    static uint8_t memory[TEXT_SIZE_MAX];
    uint8_t size = take(run);
    memset(memory, 'x', sizeof memory);
    size_t length = size < 128 ? size % 16 : size == 128 ? TEXT_SIZE_MAX : size;
    return mst_bytes_of(memory, length);
}

static const char *const names[] = {"one", "two", "three", "four"}; /* of runs and nodes */

/* An announcement for @run_id, perhaps as a member of the round (@epoch, @round). */
static struct mst__job_announce make_announce(struct run *run,
                                              uint8_t choice,
                                              struct mst_bytes run_id,
                                              uint64_t epoch,
                                              int64_t round,
                                              struct mst__label *label)
{
    struct mst__job_announce announce = {
        .version = choice < 128 ? 1 : MST_JOB_VERSION,
        .run_id = run_id,
        .heartbeat_us = 1000000,
        .announcement = {.name = mst_bytes_str(names[take(run) % 4]),
                         .incarnation = 1 + take(run) % 2,
                         .session = 1 + take(run) % 2,
                         .expiry_us = 1000000,
                         .nodes_min = 1 + choice / 16 % 2,
                         .nodes_max = 2 + choice / 32 % 2,
                         .labels = label,
                         .labels_count = 1,
                         .workers = choice / 8 % 3,
                         .role = label->key,
                         .pinned_rank = MST_AUTHORITY_RANK_NONE}};
    announce.announcement.address = take_text(run);
    label->value = announce.announcement.address;
    if (choice / 64 % 2 == 1 && label->value.size > 0) {
        announce.announcement.name = label->value;
    }
    switch (take(run) % 4) {
        case 2: /* a closed job without nodes makes room */
            announce.is_new = true;
            break;
        case 3: /* it believes that it is in the round */
            announce.announcement.claim = (struct mst__claim){
                .epoch = epoch, .round = round, .world = 2, .rank = choice / 16 % 2};
            break;
        default:
            break;
    }
    return announce;
}

static void send_message(struct run *run, struct peer *peer)
{
    uint8_t choice = take(run);
    struct mst__job_message message = {.type = (enum mst__job_type)(1 + choice % 10)};
    struct mst_bytes run_id = mst_bytes_str(names[choice / 8 % 2]);
    const struct mst__job *job = mst__job_find(run->server, run_id);
    uint64_t epoch = job == NULL ? 0 : job->authority.options.epoch;
    int64_t round = job == NULL ? 0 : job->authority.round;
    struct mst__label label = {.key = mst_bytes_str("rack")};
    switch (message.type) {
        case MST_JOB_ANNOUNCE:
            message.u.announce = make_announce(run, choice, run_id, epoch, round, &label);
            break;
        case MST_JOB_HEARTBEAT:
            message.u.heartbeat.wants_pong = choice / 8 % 2 == 1;
            break;
        case MST_JOB_CLOSE:
            message.u.close.run_id = mst_bytes_str(names[choice / 8 % 4]);
            message.u.close.reason = take_text(run);
            break;
        case MST_JOB_STATUS:
            message.u.question.run_id = mst_bytes_str(names[choice / 8 % 4]);
            message.u.question.version = choice / 32 % 2 * MST_JOB_VERSION;
            break;
        case MST_JOB_FINISH:
            message.u.finish.epoch = epoch;
            message.u.finish.round = round;
            message.u.finish.text = take_text(run);
            break;
        case MST_JOB_LEAVING:
            message.u.leaving.epoch = epoch;
            message.u.leaving.round = round;
            message.u.leaving.in_us = choice * 10000;
            break;
        case MST_JOB_RESTART:
            message.u.restart.epoch = epoch;
            message.u.restart.round = round;
            message.u.restart.cause.text = take_text(run);
            message.u.restart.cause.report = message.u.restart.cause.text;
            break;
        default:
            break; /* LEAVE, and a STORE */
    }
    size_t count = choice >= 250 ? 500 : 1;
    for (size_t i = 0; i < count; i++) {
        (void)mst__job_write(&run->output, &message); /* as many as fit */
    }
    peer_send(run, peer);
}

/* --- what must always hold --- */

static void check_conn(const struct mst__conn *conn)
{
    MST_ASSERT(!conn->is_doomed || conn->seat.job == NULL);
    MST_ASSERT(!conn->is_served);
    MST_ASSERT(!conn->is_closing);
    MST_ASSERT(!conn->is_input_waiting || conn->is_in_line || conn->is_doomed);
    MST_ASSERT(!conn->is_released || conn->is_in_line || conn->is_doomed);
    MST_ASSERT((conn->output.first == NULL) == (conn->output.pending == 0));
    if (!conn->is_doomed) {
        bool is_held = conn->is_framed ? mst__conn_is_deaf(conn) : mst__conn_has_output(conn);
        MST_ASSERT(conn->is_reading == !(is_held || conn->is_input_waiting));
        bool has_something = mst__buf_size(&conn->input) > 0 || mst__conn_has_output(conn);
        MST_ASSERT(!has_something || conn->is_overdue);
    }
    MST_ASSERT(!mst__conn_has_output(conn) || conn->io.wants_write || conn->is_in_line ||
               conn->is_doomed);
    /* A connection beyond the maximum gets into no job and no wait. */
    MST_ASSERT(!conn->is_extra || (conn->seat.job == NULL && !conn->is_framed));
    MST_ASSERT(!conn->is_extra || !(conn->is_silent || mst__kv_is_waiting(&conn->client)));
}

/* The reserve of places, and the list of silent connections. */
static void check_places(const struct mst_server *server)
{
    size_t used = 0;
    size_t extras = 0;
    for (size_t i = 0; i < MST_SPARES_MAX; i++) {
        const struct mst__spare *spare = &server->spares[i];
        MST_ASSERT(spare->conn == NULL || spare->conn->is_extra);
        MST_ASSERT(spare->conn == NULL || spare->io.stream.fd < 0);
        extras += spare->conn != NULL ? 1 : 0;
        used += spare->conn != NULL || spare->io.stream.fd >= 0 ? 1 : 0;
    }
    MST_ASSERT(used == server->spares_count);
    MST_ASSERT(extras == server->extras_count);
    MST_ASSERT(used == 0 || uv_is_active((const uv_handle_t *)&server->sweep) != 0);
    size_t silent = 0;
    for (const struct mst__conn *conn = server->silents.first; conn != NULL;
         conn = conn->silent_next) {
        MST_ASSERT(conn->is_silent);
        silent++;
    }
    size_t places = 0;
    for (const struct mst__conn *conn = server->conns; conn != NULL; conn = conn->next) {
        silent -= conn->is_silent ? 1 : 0;
        places += conn->is_doomed || conn->is_extra ? 0 : 1;
    }
    MST_ASSERT(silent == 0);
    MST_ASSERT(places <= server->options.connections_max);
}

static void check_job(const struct mst_server *server, const struct mst__job *job)
{
    uint32_t seats_count = 0;
    for (const struct mst__conn *conn = server->conns; conn != NULL; conn = conn->next) {
        seats_count += conn->seat.job == job ? 1 : 0;
    }
    MST_ASSERT(seats_count == job->seats_count);
    MST_ASSERT((job->idle == NULL) == (job->idle_us == INT64_MAX));
    MST_ASSERT(job->authority.living_count > 0 || job->idle != NULL || job->is_dirty);
    mst__authority_check(&job->authority);
}

static void check_jobs(const struct mst_server *server)
{
    const struct mst__jobs *jobs = &server->jobs;
    size_t idle_count = 0;
    for (void *value = mst__map_first(&jobs->map); value != NULL; value = mst__map_next(value)) {
        const struct mst__job *job = *(struct mst__job **)value;
        check_job(server, job);
        idle_count += job->idle != NULL ? 1 : 0;
    }
    MST_ASSERT(idle_count == jobs->idle_count);
}

static void check(const struct run *run)
{
    const struct mst_server *server = run->server;
    size_t count = 0;
    size_t doomed = 0;
    MST_ASSERT(server->kv.memory_used <= MEMORY_MAX);
    MST_ASSERT(mst__buf_size(&server->replies) == 0);
    for (const struct mst__conn *conn = server->conns; conn != NULL; conn = conn->next) {
        check_conn(conn);
        count++;
        doomed += conn->is_doomed ? 1 : 0;
    }
    check_jobs(server);
    check_places(server);
    MST_ASSERT(count <= server->conns_count);
    MST_ASSERT(doomed == 0 || server->doomed != NULL);
}

static void turns(struct run *run, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        (void)uv_run(&run->server->loop, UV_RUN_NOWAIT); /* says whether there is more */
        check(run);
    }
}

static void pass_time(struct run *run, int64_t ms)
{
    struct mst_server *server = run->server;
    server->ahead_ms += ms;
    (void)mst__conns_sweep(server, mst__server_now_ms(server)); /* it is called again */
    mst__conns_settle(server, mst__server_now_ms(server));
}

/* Holes between allocations take away all but 0 … 16 KiB of what is left. */
static void withhold(struct run *run)
{
    struct mst__kv *kv = &run->server->kv;
    size_t room = (size_t)take(run) * 64;
    size_t left = kv->limits.memory_max - kv->memory_used;
    kv->memory_withheld = left > room ? left - room : 0;
}

/* --- steps --- */

static void step(struct run *run)
{
    uint8_t choice = take(run);
    struct peer *peer = &run->peers[choice % PEERS];
    switch ((enum action)(choice / PEERS % ACTIONS)) {
        case ACTION_RAW: {
            size_t size = take(run);
            size = size < run->input.size ? size : run->input.size;
            (void)mst__buf_append(&run->output, mst_bytes_of(run->input.data, size)); /* fits */
            run->input = mst__bytes_skip(run->input, size);
            peer_send(run, peer);
            break;
        }
        case ACTION_REQUEST:
            send_requests(run, peer, 1, 0);
            break;
        case ACTION_REQUESTS:
            send_requests(run, peer, (size_t)take(run) * 16, 0);
            break;
        case ACTION_HALF:
            send_requests(run, peer, 1, 1 + take(run) % 16);
            break;
        case ACTION_MESSAGE:
            send_message(run, peer);
            break;
        case ACTION_READ:
            peer_read(peer, (size_t)take(run) * 32);
            break;
        case ACTION_READ_ALL:
            peer_read(peer, SIZE_MAX);
            break;
        case ACTION_HANG_UP:
            peer_hang_up(peer);
            break;
        case ACTION_CONNECT:
            peer_connect(run, peer, (enum kind)(1 + take(run) % 4));
            break;
        case ACTION_SHUT:
            if (peer->fd >= 0) {
                (void)shutdown(peer->fd, SHUT_WR); /* fails when the server has closed */
            }
            break;
        case ACTION_TIME:
            pass_time(run, take(run) * (TIMEOUT_MS / 64));
            break;
        case ACTION_TURNS:
        case ACTIONS:
            turns(run, take(run) % 64);
            break;
        case ACTION_KEYS:
            send_keys(run, peer);
            break;
        case ACTION_WITHHOLD:
            withhold(run);
            break;
    }
    turns(run, 1);
}

static bool is_any(void *arg, struct mst_bytes key)
{
    (void)arg; /* whatever it is */
    (void)key;
    return true;
}

/* All clients leave, and all keys are deleted: only jobs may be left. */
static void finish(struct run *run)
{
    struct mst_server *server = run->server;
    for (size_t i = 0; i < PEERS; i++) {
        peer_hang_up(&run->peers[i]);
    }
    for (size_t i = 0; server->conns_count > 0 || server->spares_count > 0; i++) {
        MST_ASSERT(i < 100000);
        turns(run, 1);
        if (i % 1000 == 999) {
            pass_time(run, 10 * TIMEOUT_MS); /* half requests of clients that have only shut down */
        }
    }
    MST_ASSERT(server->turns.first == NULL);
    MST_ASSERT(server->overdue == NULL);
    MST_ASSERT(server->grace_count == 0);
    MST_ASSERT(server->silents.first == NULL);
    MST_ASSERT(mst__map_count(&server->silents.old_hosts) == 0);
    mst__kv_sweep_begin(&server->kv);
    while (mst__kv_sweep(&server->kv, MST_SWEEP_STEPS, is_any, NULL)) {
        mst__conns_deliver(server);
    }
    MST_ASSERT(server->kv.keys_count == 0);
    size_t charged = 0; /* the remembered jobs */
    const struct mst__map *jobs = &server->jobs.map;
    for (void *value = mst__map_first(jobs); value != NULL; value = mst__map_next(value)) {
        charged += (*(struct mst__job **)value)->charged;
    }
    MST_ASSERT(server->kv.memory_used == charged);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct run run = {.input = mst_bytes_of(data, size)};
    char host[80];
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL); /* as in every program with a server */
    struct mst_server_options options;
    (void)snprintf(run.path, sizeof run.path, "/tmp/muster-fuzz-%d.sock", (int)getpid()); /* fits */
    (void)snprintf(host, sizeof host, "unix:%s", run.path);
    const char *const hosts[] = {host};
    mst_server_options_init(&options, sizeof options);
    options.hosts = hosts;
    options.hosts_count = 1;
    options.connections_max = PEERS - 1;
    options.memory_max = MEMORY_MAX;
    options.key_size_max = KEY_SIZE_MAX;
    options.value_size_max = VALUE_SIZE_MAX;
    options.request_timeout_ms = TIMEOUT_MS;
    options.idle_timeout_ms = size > 0 && data[0] % 2 == 0 ? 4 * TIMEOUT_MS : 0;
    options.log = (struct mst_log){0};
    int rv = mst_server_new(&options, &run.server, NULL);
    MST_ASSERT(rv == 0);
    run.server->kv.limits.part_max = LIST_PART_SIZE;
    mst__buf_init(&run.output, MST_MIB(2));
    for (size_t i = 0; i < PEERS; i++) {
        run.peers[i].fd = -1;
    }
    for (size_t i = 0; i < STEPS_MAX && run.input.size > 0; i++) {
        step(&run);
    }
    finish(&run);
    mst__buf_close(&run.output);
    mst_server_free(run.server);
    (void)unlink(run.path); /* libuv has usually done so */
    return 0;
}
