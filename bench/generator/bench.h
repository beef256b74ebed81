/* bench/generator/bench.h - shared by the files of `muster-bench store`.
 *
 *   store.c     options, measurements, output
 *   message.c   requests and their correct replies in each protocol
 *   conn.c      connecting, greeting, one request at a time
 *   load.c      the closed loop: every connection sends again when it was answered
 *   storm.c     the barrier storm
 *   measure.c   the server's CPU time and memory, the latency histogram
 *
 * rendezvous.c is `muster-bench rendezvous`, which shares only this with them. It uses job.c and
 * echo.c, thousands of nodes and their floor, and tally.c. */
#ifndef MST_BENCH_H
#define MST_BENCH_H

#include <muster/error.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"

#define MST_BENCH_CONNECTIONS_MAX 100000
#define MST_BENCH_DEPTH_MAX 1024

/* Connections that are opened and not yet answered: fewer than any server's listen backlog, so that
 * dropped connection attempts do not count. */
#define MST_BENCH_UNDER_WAY_MAX 64

/* A counter that starts here keeps its number of digits, and Redis its size of reply, for 900
 * million additions. */
#define MST_BENCH_ADD_START "100000000"

/* A server that is silent for this time is given up. */
#define MST_BENCH_SILENCE_MS 20000

enum mst__bench_protocol {
    MST_BENCH_TORCH_C, /* torch from 2.2; muster */
    MST_BENCH_TORCH_A, /* torch up to 2.0; muster */
    MST_BENCH_REDIS,
    MST_BENCH_FLOOR,      /* bench/floor.c: every request is answered at once */
    MST_BENCH_FLOOR_HOLD, /* the same, but the wait of a storm is real */
};

static inline bool mst__bench_is_floor(enum mst__bench_protocol protocol)
{
    return protocol == MST_BENCH_FLOOR || protocol == MST_BENCH_FLOOR_HOLD;
}

#define MST_BENCH_OP_MAP(X)       \
    X(SET, "set")                 \
    X(GET, "get")                 \
    X(ADD, "add")                 \
    X(CHECK, "check")             \
    X(COMPARE_SET, "compare_set") \
    X(SET_GET, "set_get")

enum mst__bench_op {
#define OP_ENUM(name, text) MST_BENCH_##name,
    MST_BENCH_OP_MAP(OP_ENUM)
#undef OP_ENUM
};
#define MST_BENCH_OP_COUNT (MST_BENCH_SET_GET + 1)

const char *mst__bench_op_name(enum mst__bench_op op);

/* --- messages --- */

/* A request, and its correct reply. */
struct mst__bench_message {
    struct mst__buf request;
    struct mst__buf reply;
    size_t reply_known; /* the first bytes, which are known beforehand; the rest may differ */
};

void mst__bench_message_init(struct mst__bench_message *message);
void mst__bench_message_close(struct mst__bench_message *message);

/* The key of connection @index for @op. They belong to this process only. */
#define MST_BENCH_KEY_SIZE 64
struct mst_bytes mst__bench_key(enum mst__bench_op op,
                                size_t index,
                                char ret_key[MST_BENCH_KEY_SIZE]);

/* Fill the empty @message; each returns 0 or MST_ENOMEM. */

/* @op on @key. @value is the present value of the key and the value that is stored, so that the
 * request can be repeated and always does the same work. */
int mst__bench_message_op(struct mst__bench_message *message,
                          enum mst__bench_protocol protocol,
                          enum mst__bench_op op,
                          struct mst_bytes key,
                          struct mst_bytes value);
/* The first request of a connection: proves that the server has accepted it and understands us. */
int mst__bench_message_greeting(struct mst__bench_message *message,
                                enum mst__bench_protocol protocol);
int mst__bench_message_delete(struct mst__bench_message *message,
                              enum mst__bench_protocol protocol,
                              struct mst_bytes key);
/* The storm: count this connection, wait, and release all @count. */
int mst__bench_message_arrive(struct mst__bench_message *message,
                              enum mst__bench_protocol protocol,
                              struct mst_bytes counter);
int mst__bench_message_wait(struct mst__bench_message *message,
                            enum mst__bench_protocol protocol,
                            struct mst_bytes key);
int mst__bench_message_open(struct mst__bench_message *message,
                            enum mst__bench_protocol protocol,
                            struct mst_bytes key,
                            size_t count);

/* --- connections --- */

struct mst__bench_target {
    enum mst__bench_protocol protocol;
    struct sockaddr_storage address;
    socklen_t address_size;
    char name[300]; /* "127.0.0.1:29500", for messages */
};

/* Resolve @host; 0 or MST_ERESOLVE. */
int mst__bench_resolve(const char *host,
                       int64_t port,
                       enum mst__bench_protocol protocol,
                       struct mst__bench_target *ret_target,
                       struct mst_err *reterr);

/* Allow this process to open @count sockets: raise the soft limit to the hard one. MST_ELIMIT if
 * that is too low. */
int mst__bench_need_files(size_t count, struct mst_err *reterr);

/* A connected, blocking socket without delay and with deadlines. MST_ECONN or MST_ESYS. */
int mst__bench_connect(const struct mst__bench_target *target, int *ret_fd, struct mst_err *reterr);

/* Send the request of @message; receive and check its reply; both. MST_ECONN, MST_ETIMEOUT or
 * MST_EPROTO. */
int mst__bench_send(const struct mst__bench_target *target,
                    int fd,
                    const struct mst__bench_message *message,
                    struct mst_err *reterr);
int mst__bench_receive(const struct mst__bench_target *target,
                       int fd,
                       const struct mst__bench_message *message,
                       struct mst_err *reterr);
int mst__bench_exchange(const struct mst__bench_target *target,
                        int fd,
                        const struct mst__bench_message *message,
                        struct mst_err *reterr);

/* Open @count connections and greet on each. All or none; @ret_fds has room for @count. */
int mst__bench_open_many(const struct mst__bench_target *target,
                         size_t count,
                         int *ret_fds,
                         struct mst_err *reterr);

/* Close with a reset, so that no port stays in TIME_WAIT. -1 is allowed. */
void mst__bench_hang_up(int fd);
void mst__bench_hang_up_many(const int *fds, size_t count);

/* Describe a reply that differs from that of @message: MST_EPROTO. */
int mst__bench_wrong_reply(const struct mst__bench_target *target,
                           const struct mst__bench_message *message,
                           size_t offset,
                           struct mst_bytes got,
                           struct mst_err *reterr);

/* --- measuring --- */

/* CPU time of process @pid; MST_ESYS if there is no such process. */
int mst__bench_cpu_ns(pid_t pid, int64_t *ret_ns, struct mst_err *reterr);
/* Its resident memory. */
int mst__bench_rss(pid_t pid, int64_t *ret_bytes, struct mst_err *reterr);

/* Log-linear: 64 steps per doubling, so the error of a value is below one percent. */
#define MST_BENCH_HISTOGRAM_STEPS 64
#define MST_BENCH_HISTOGRAM_SIZE (59 * MST_BENCH_HISTOGRAM_STEPS)

struct mst__bench_histogram {
    uint64_t count;
    int64_t max_ns;
    uint64_t counts[MST_BENCH_HISTOGRAM_SIZE];
};

void mst__bench_histogram_add(struct mst__bench_histogram *histogram, int64_t ns);
/* The value that @share (0 … 1) of all values do not exceed; 0 if there are none. */
int64_t mst__bench_histogram_at(const struct mst__bench_histogram *histogram, double share);

/* --- the measurements --- */

struct mst__bench_load_options {
    enum mst__bench_op op;
    size_t connections;
    size_t depth;
    size_t value_size;
    int64_t warmup_ms;
    int64_t duration_ms;
    int64_t requests; /* stop after this number; 0 = by time */
    pid_t server_pid; /* 0 = not known */
};

struct mst__bench_result {
    int64_t ops;
    int64_t elapsed_ns;
    int64_t server_cpu_ns; /* -1 = not known */
    int64_t client_cpu_ns;
    int64_t p50_ns, p99_ns, max_ns;
    int64_t errors;             /* lost connections */
    struct mst_err first_error; /* the error of the first one */
};

/* Errors of single connections are counted; it fails only if nothing could be measured. */
int mst__bench_load(const struct mst__bench_target *target,
                    const struct mst__bench_load_options *options,
                    struct mst__bench_result *ret_result,
                    struct mst_err *reterr);

/* ops = connections, elapsed = from the first connect to the last release, latencies = from the
 * start of a connection to its release. */
int mst__bench_storm(const struct mst__bench_target *target,
                     size_t connections,
                     pid_t server_pid,
                     struct mst__bench_result *ret_result,
                     struct mst_err *reterr);

/* --- the subcommands --- */

/* Each has its own options, and returns the exit code. argv[0] is its name. */
int mst__bench_store(int argc, char **argv);
int mst__bench_rendezvous(int argc, char **argv);

#endif /* MST_BENCH_H */
