/* bench/generator/conn.c - connects, greets, and sends one request at a time. Sockets are blocking
 * here, with deadlines from the kernel; the loops make theirs non-blocking. */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/log.h"
#include "bench/generator/bench.h"

int mst__bench_resolve(const char *host,
                       int64_t port,
                       enum mst__bench_protocol protocol,
                       struct mst__bench_target *ret_target,
                       struct mst_err *reterr)
{
    char service[8];
    (void)snprintf(service, sizeof service, "%d", (int)port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(host, service, &hints, &found);
    if (error != 0) {
        return mst__fail_from(reterr, MST_ERESOLVE, MST_DOMAIN_GAI, error, "look up '%s': %s", host,
                              gai_strerror(error));
    }
    *ret_target = (struct mst__bench_target){.protocol = protocol};
    MST_ASSERT(found->ai_addrlen <= sizeof ret_target->address);
    memcpy(&ret_target->address, found->ai_addr, found->ai_addrlen);
    ret_target->address_size = found->ai_addrlen;
    (void)snprintf(ret_target->name, sizeof ret_target->name, "%s:%d", host, (int)port);
    freeaddrinfo(found);
    return 0;
}

int mst__bench_need_files(size_t count, struct mst_err *reterr)
{
    rlim_t needed = (rlim_t)count + 32; /* plus the standard streams, epoll, one for preparations */
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "limit of open files");
    }
    if (limit.rlim_cur >= needed) {
        return 0;
    }
    if (limit.rlim_max < needed) {
        return mst__fail(reterr, MST_ELIMIT, 0,
                         "%zu connections need a limit of %llu open files, the hard limit is %llu; "
                         "raise it with `ulimit -Hn`",
                         count, (unsigned long long)needed, (unsigned long long)limit.rlim_max);
    }
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "raise the limit of open files to %llu",
                         (unsigned long long)limit.rlim_max);
    }
    return 0;
}

int mst__bench_connect(const struct mst__bench_target *target, int *ret_fd, struct mst_err *reterr)
{
    int fd = socket(target->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return mst__fail(reterr, MST_ESYS, errno, "socket for '%s'", target->name);
    }
    struct timeval deadline = {.tv_sec = MST_BENCH_SILENCE_MS / 1000};
    int one = 1;
    /* Neither can fail on a new socket; without them the figures would be worse, not wrong. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof deadline);
    if (connect(fd, (const struct sockaddr *)&target->address, target->address_size) != 0) {
        int error = errno == EINPROGRESS ? ETIMEDOUT : errno;
        (void)close(fd); /* It never was connected. */
        return mst__fail(reterr, MST_ECONN, error, "connect to '%s'", target->name);
    }
    *ret_fd = fd;
    return 0;
}

void mst__bench_hang_up(int fd)
{
    if (fd < 0) {
        return;
    }
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset); /* on failure the close is
                                                                          slower */
    (void)close(fd); /* Nothing is lost: all replies that count have been read. */
}

void mst__bench_hang_up_many(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mst__bench_hang_up(fds[i]);
    }
}

int mst__bench_send(const struct mst__bench_target *target,
                    int fd,
                    const struct mst__bench_message *message,
                    struct mst_err *reterr)
{
    struct mst_bytes rest = mst__buf_bytes(&message->request);
    while (rest.size > 0) {
        ssize_t sent = send(fd, rest.data, rest.size, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) {
                continue;
            }
            return mst__fail(reterr, errno == EAGAIN ? MST_ETIMEOUT : MST_ECONN, errno,
                             "send to '%s'", target->name);
        }
        rest = mst_bytes_of(rest.data + sent, rest.size - (size_t)sent);
    }
    return 0;
}

int mst__bench_wrong_reply(const struct mst__bench_target *target,
                           const struct mst__bench_message *message,
                           size_t offset,
                           struct mst_bytes got,
                           struct mst_err *reterr)
{
    char quoted[MST_LOG_QUOTE_SIZE];
    if (got.size > 16) {
        got.size = 16;
    }
    return mst__fail(reterr, MST_EPROTO, 0,
                     "unexpected answer from '%s': %s at byte %zu of %zu; is "
                     "--protocol right?",
                     target->name, mst__log_quote(got, quoted), offset,
                     mst__buf_size(&message->reply));
}

int mst__bench_receive(const struct mst__bench_target *target,
                       int fd,
                       const struct mst__bench_message *message,
                       struct mst_err *reterr)
{
    struct mst_bytes expected = mst__buf_bytes(&message->reply);
    uint8_t memory[4096];
    for (size_t got = 0; got < expected.size;) {
        size_t wanted = expected.size - got < sizeof memory ? expected.size - got : sizeof memory;
        ssize_t received = recv(fd, memory, wanted, 0);
        if (received < 0 && errno == EINTR) {
            continue;
        }
        if (received < 0 && errno == EAGAIN) {
            return mst__fail(reterr, MST_ETIMEOUT, 0,
                             "'%s' has not answered for %d s; is --protocol right?", target->name,
                             MST_BENCH_SILENCE_MS / 1000);
        }
        if (received < 0) {
            return mst__fail(reterr, MST_ECONN, errno, "reply from '%s'", target->name);
        }
        if (received == 0) {
            return mst__fail(
                reterr, MST_ECONN, 0,
                "'%s' closed the connection instead of answering; is --protocol right?",
                target->name);
        }
        size_t size = (size_t)received;
        size_t known = got >= message->reply_known         ? 0
                       : message->reply_known - got < size ? message->reply_known - got
                                                           : size;
        if (memcmp(memory, expected.data + got, known) != 0) {
            return mst__bench_wrong_reply(target, message, got, mst_bytes_of(memory, size), reterr);
        }
        got += size;
    }
    return 0;
}

int mst__bench_exchange(const struct mst__bench_target *target,
                        int fd,
                        const struct mst__bench_message *message,
                        struct mst_err *reterr)
{
    int rv = mst__bench_send(target, fd, message, reterr);
    return rv != 0 ? rv : mst__bench_receive(target, fd, message, reterr);
}

int mst__bench_open_many(const struct mst__bench_target *target,
                         size_t count,
                         int *ret_fds,
                         struct mst_err *reterr)
{
    struct mst__bench_message greeting;
    mst__bench_message_init(&greeting);
    size_t opened = 0;
    size_t answered = 0;
    int rv = mst__bench_message_greeting(&greeting, target->protocol);
    if (rv != 0) {
        rv = mst__fail(reterr, rv, 0, "greeting for '%s'", target->name);
    }
    while (rv == 0 && answered < count) {
        while (rv == 0 && opened < count && opened - answered < MST_BENCH_UNDER_WAY_MAX) {
            rv = mst__bench_connect(target, &ret_fds[opened], reterr);
            if (rv == 0) {
                rv = mst__bench_send(target, ret_fds[opened++], &greeting, reterr);
            }
        }
        for (; rv == 0 && answered < opened; answered++) {
            rv = mst__bench_receive(target, ret_fds[answered], &greeting, reterr);
        }
    }
    mst__bench_message_close(&greeting);
    if (rv != 0) {
        mst__bench_hang_up_many(ret_fds, opened);
        return mst__err_wrap(reterr, rv, "connection %zu of %zu", answered + 1, count);
    }
    return 0;
}
