/* net/client.c - connects, sends and receives with a deadline.
 *
 * Streams never block; poll waits. Connecting tries the addresses of a name in turn, alternating
 * the families, and starts the next attempt when the last one has failed or has not answered for a
 * quarter of a second, so that one dead address or family costs little. */
#include "net/client.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/carried.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/until.h"
#include "net/resolve.h"
#include "wire/refusal.h"

#define CLIENT_STAGGER_MS 250

/* Addresses of one name that are tried. */
#define CLIENT_ADDRESSES_MAX 16

/* The smallest read. */
#define CLIENT_READ_SIZE MST_KIB(4)

/* Counts for the whole process, for benchmarks. */
static _Atomic uint64_t messages_total;

static int fail_interrupted(struct mst_err *reterr)
{
    return mst__fail(reterr, MST_ECANCELED, 0, "interrupted");
}

int mst__client_wait(const struct mst__client *client,
                     bool reads,
                     bool writes,
                     struct mst__until until,
                     struct mst_err *reterr)
{
    if (reads && client->has_more) {
        return 0;
    }
    int rv = mst__until_ready(until, client->stream.fd,
                              mst__stream_events(&client->stream, reads, writes));
    switch (rv) {
        case 0:
            return 0;
        case MST_ECANCELED:
            return fail_interrupted(reterr);
        case MST_ETIMEOUT:
            return mst__fail(reterr, rv, 0, "deadline passed");
        default:
            return mst__fail(reterr, rv, errno, "poll");
    }
}

/* Report that a call of the stream failed with @sys. */
static int fail_stream(struct mst_err *reterr, int sys, const char *call)
{
    bool is_lost = sys == EPIPE || sys == ECONNRESET || sys == ECONNABORTED || sys == ETIMEDOUT ||
                   sys == EHOSTUNREACH || sys == ENETUNREACH || sys == ENETDOWN || sys == ENOTCONN;
    return mst__fail(reterr, is_lost ? MST_ECONN : MST_ESYS, sys, "%s", call);
}

/* --- connecting --- */

struct attempt {
    struct sockaddr_storage address;
    socklen_t address_size;
    struct mst__stream stream; /* closed = not started, or over */
};

struct race {
    struct attempt attempts[CLIENT_ADDRESSES_MAX];
    size_t count;
    size_t started;
    int last_sys;       /* why the last attempt failed, */
    size_t last_failed; /* and which one it was */
    int64_t next_start_ms;
};

static void race_add(struct race *race, const struct sockaddr *address, socklen_t size)
{
    if (race->count == CLIENT_ADDRESSES_MAX || size > sizeof race->attempts[0].address) {
        return;
    }
    struct attempt *attempt = &race->attempts[race->count++];
    memcpy(&attempt->address, address, size);
    attempt->address_size = size;
    attempt->stream.fd = -1;
}

/* The next address from @at on that is (not) of @family. */
static const struct addrinfo *next_of(const struct addrinfo *at, int family, bool same)
{
    while (at != NULL && (at->ai_family == family) != same) {
        at = at->ai_next;
    }
    return at;
}

/* Add the addresses in the resolver's order, with the families alternating. */
static void race_add_all(struct race *race, const struct addrinfo *addresses)
{
    int family = addresses->ai_family;
    const struct addrinfo *same = next_of(addresses, family, true);
    const struct addrinfo *other = next_of(addresses, family, false);
    while (same != NULL || other != NULL) {
        if (same != NULL) {
            race_add(race, same->ai_addr, same->ai_addrlen);
            same = next_of(same->ai_next, family, true);
        }
        if (other != NULL) {
            race_add(race, other->ai_addr, other->ai_addrlen);
            other = next_of(other->ai_next, family, false);
        }
    }
}

static void race_failed(struct race *race, size_t index, int sys)
{
    mst__stream_close(&race->attempts[index].stream);
    race->last_sys = sys;
    race->last_failed = index;
    race->next_start_ms = 0; /* start the next one at once */
}

/* Check an attempt that is under way. True if it is connected. */
static bool race_look(struct race *race, size_t index)
{
    int rv = mst__stream_connected(&race->attempts[index].stream);
    if (rv != 0 && rv != -EAGAIN) {
        race_failed(race, index, -rv);
    }
    return rv == 0;
}

/* Start the next attempt. True if it is connected at once. */
static bool race_start(struct race *race, int64_t now_ms)
{
    size_t index = race->started++;
    struct attempt *attempt = &race->attempts[index];
    race->next_start_ms = now_ms + CLIENT_STAGGER_MS;
    const struct sockaddr *address = (const struct sockaddr *)&attempt->address;
    int rv = mst__stream_connect(address, attempt->address_size, &attempt->stream);
    if (rv != 0) {
        race_failed(race, index, -rv);
        return false;
    }
    return race_look(race, index);
}

/* Check which attempts have ended. The index of a successful one, or SIZE_MAX. */
static size_t race_collect(struct race *race, const struct pollfd *pollfds)
{
    for (size_t i = 0; i < race->started; i++) {
        if (race->attempts[i].stream.fd >= 0 && pollfds[i].revents != 0 && race_look(race, i)) {
            return i;
        }
    }
    return SIZE_MAX;
}

static size_t race_running(const struct race *race)
{
    size_t running = 0;
    for (size_t i = 0; i < race->started; i++) {
        running += race->attempts[i].stream.fd >= 0 ? 1 : 0;
    }
    return running;
}

static int race_lost(const struct race *race, struct mst_err *reterr)
{
    const struct attempt *attempt = &race->attempts[race->last_failed];
    char text[MST_ADDRESS_SIZE];
    mst__address_format((const struct sockaddr *)&attempt->address, attempt->address_size, text);
    /* A lack of descriptors or memory is our own problem, not the peer's. */
    int sys = race->last_sys;
    bool own = sys == EMFILE || sys == ENFILE || sys == ENOBUFS || sys == ENOMEM;
    return mst__fail(reterr, own ? MST_ESYS : MST_ECONN, sys, "%s", text);
}

/* Run all attempts; @ret_winner is the first that connects. */
static int race_run(struct race *race,
                    struct mst__until until,
                    size_t *ret_winner,
                    struct mst_err *reterr)
{
    for (;;) {
        int64_t now_ms = mst__clock_ms();
        while (race->started < race->count && now_ms >= race->next_start_ms) {
            if (race_start(race, now_ms)) {
                *ret_winner = race->started - 1;
                return 0;
            }
        }
        if (race_running(race) == 0) {
            return race_lost(race, reterr);
        }
        if (now_ms >= until.deadline_ms) {
            return mst__fail(reterr, MST_ETIMEOUT, 0, "no answer in time");
        }
        struct pollfd pollfds[CLIENT_ADDRESSES_MAX + 1];
        for (size_t i = 0; i < race->started; i++) {
            const struct mst__stream *stream = &race->attempts[i].stream;
            pollfds[i] = (struct pollfd){.fd = stream->fd,
                                         .events = mst__stream_events(stream, false, true)};
        }
        bool more = race->started < race->count && race->next_start_ms < until.deadline_ms;
        int timeout =
            mst__until_poll_ms(more ? mst__until_with(until, race->next_start_ms) : until);
        struct pollfd *wake = &pollfds[race->started];
        *wake = (struct pollfd){.fd = until.wake_fd, .events = POLLIN};
        int ready = poll(pollfds, (nfds_t)race->started + 1, timeout);
        if (ready < 0 && errno != EINTR) {
            return mst__fail(reterr, MST_ESYS, errno, "poll");
        }
        if (ready > 0 && wake->revents != 0) {
            return fail_interrupted(reterr);
        }
        if (ready <= 0) {
            mst__until_tell();
        }
        size_t winner = ready > 0 ? race_collect(race, pollfds) : SIZE_MAX;
        if (winner != SIZE_MAX) {
            *ret_winner = winner;
            return 0;
        }
    }
}

static int race_prepare(struct race *race,
                        const struct mst__endpoint *endpoint,
                        struct mst__until until,
                        struct mst_err *reterr)
{
    *race = (struct race){0};
    const char *path = mst__endpoint_path(endpoint);
    if (path != NULL) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        size_t size = strlen(path);
        if (size == 0 || size >= sizeof address.sun_path) {
            return mst__fail(reterr, MST_EINVAL, 0, "unix path of %zu characters, the limit is %zu",
                             size, sizeof address.sun_path - 1);
        }
        memcpy(address.sun_path, path, size + 1);
        race_add(race, (const struct sockaddr *)&address, sizeof address);
        return 0;
    }
    struct addrinfo *addresses = NULL;
    int rv = mst__resolve(endpoint, until, &addresses, reterr);
    if (rv == 0) {
        race_add_all(race, addresses);
        freeaddrinfo(addresses);
    }
    return rv;
}

/* A client that is not yet connected: 0, MST_ENOMEM. */
static int client_init(struct mst__client *client, size_t input_max, struct mst_err *reterr)
{
    int rv = 0;
    *client = (struct mst__client){.stream = {.fd = -1}};
    mst__buf_init(&client->input, input_max);
    /* Reserve room for every small reply before sending: a reply must not be lost for lack of eight
     * bytes of memory. */
    if (mst__buf_reserve(&client->input, 1, &rv) == NULL) {
        return mst__fail(reterr, rv, 0, "input buffer");
    }
    return 0;
}

int mst__client_open(const struct mst__endpoint *endpoint,
                     size_t input_max,
                     struct mst__until until,
                     struct mst__client *ret_client,
                     struct mst_err *reterr)
{
    struct race race;
    int rv = race_prepare(&race, endpoint, until, reterr);
    if (rv != 0) {
        return rv;
    }
    struct mst__client client;
    rv = client_init(&client, input_max, reterr);
    if (rv != 0) {
        return rv;
    }
    size_t winner = SIZE_MAX;
    rv = race_run(&race, until, &winner, reterr);
    for (size_t i = 0; i < race.started; i++) {
        if (i != winner) {
            mst__stream_close(&race.attempts[i].stream); /* came too late */
        }
    }
    if (rv != 0) {
        mst__buf_close(&client.input);
        return rv;
    }
    const struct attempt *won = &race.attempts[winner];
    client.stream = won->stream;
    mst__address_format((const struct sockaddr *)&won->address, won->address_size, client.peer);
    *ret_client = client;
    return 0;
}

void mst__client_close(struct mst__client *client)
{
    if (client->stream.fd >= 0) {
        mst__carried_keep(client->stream.fd);
        mst__stream_close(&client->stream);
    }
    mst__buf_close(&client->input);
}

/* --- sending and receiving --- */

int mst__client_send(struct mst__client *client,
                     struct mst_bytes bytes,
                     struct mst__until until,
                     size_t *ret_sent,
                     struct mst_err *reterr)
{
    MST_ASSERT(client->stream.fd >= 0);
    size_t sent = 0;
    int rv = 0;
    atomic_fetch_add(&messages_total, 1);
    while (rv == 0 && sent < bytes.size) {
        ssize_t took = mst__stream_write(&client->stream, mst__bytes_skip(bytes, sent));
        if (took >= 0) {
            sent += (size_t)took;
        } else if (took == -EAGAIN) {
            rv = mst__client_wait(client, false, true, until, reterr);
        } else {
            rv = fail_stream(reterr, (int)-took, "send");
        }
    }
    *ret_sent = sent;
    return rv;
}

uint64_t mst__client_messages(void)
{
    return atomic_load(&messages_total);
}

int mst__client_read(struct mst__client *client, size_t wanted, struct mst_err *reterr)
{
    struct mst__buf *input = &client->input;
    size_t have = mst__buf_size(input);
    size_t missing = wanted > have ? wanted - have : 1;
    size_t room = missing < CLIENT_READ_SIZE ? CLIENT_READ_SIZE : missing;
    size_t room_max = input->size_max - have;
    room = room > room_max && missing <= room_max ? room_max : room;
    /* A short reply fits into the room that is already there. */
    size_t spare = input->capacity - have;
    if (missing <= spare && spare < room) {
        room = spare;
    }
    int rv = 0;
    uint8_t *to = mst__buf_reserve(input, room, &rv);
    if (to == NULL) {
        return mst__fail(reterr, rv, 0, "reply of %zu bytes", wanted);
    }
    ssize_t got = mst__stream_read(&client->stream, to, room);
    client->has_more = got == (ssize_t)room;
    if (got > 0) {
        mst__buf_commit(input, (size_t)got);
        return 0;
    }
    if (got == 0) {
        return mst__fail(reterr, MST_ECONN, 0, "closed by the server");
    }
    return got == -EAGAIN ? 0 : fail_stream(reterr, (int)-got, "receive");
}

int mst__client_receive(struct mst__client *client,
                        size_t wanted,
                        struct mst__until until,
                        struct mst_err *reterr)
{
    MST_ASSERT(client->stream.fd >= 0);
    int rv = 0;
    while (rv == 0 && mst__buf_size(&client->input) < wanted) {
        /* The answer to a request just sent cannot be there yet: wait first, and save a call. */
        size_t before = mst__buf_size(&client->input);
        rv = mst__client_wait(client, true, false, until, reterr);
        while (rv == 0 && mst__buf_size(&client->input) < wanted) {
            rv = mst__client_read(client, wanted, reterr);
            if (mst__buf_size(&client->input) == before) {
                break; /* nothing there after all */
            }
            before = mst__buf_size(&client->input);
        }
    }
    return rv;
}

int mst__client_hear_refusal(struct mst__client *client,
                             size_t at,
                             struct mst__until until,
                             struct mst__job_message *ret_message,
                             struct mst_err *reterr)
{
    MST_ASSERT(mst__buf_size(&client->input) > at);
    for (;;) {
        struct mst_bytes rest = mst__bytes_skip(mst__buf_bytes(&client->input), at);
        size_t size = 0;
        if (MST_LIKELY(rest.data[0] != MST_WIRE_REFUSAL_FIRST)) {
            return 0;
        }
        int rv = mst__wire_read_refusal(rest, ret_message, &size, reterr);
        if (rv != 0) {
            return rv == MST_ENOTFOUND ? 0 : rv;
        }
        rv = mst__client_receive(client, at + size, until, reterr);
        if (rv != 0) {
            return rv;
        }
    }
}

int mst__client_refused(const struct mst__job_message *message, struct mst_err *reterr)
{
    MST_ASSERT(message->type == MST_JOB_REFUSED);
    struct mst_bytes text = message->u.refused.text;
    int code = message->u.refused.code;
    /* Codes of later releases are unknown here. */
    bool is_known = code < 0 && strcmp(mst_errname(code), "EUNDEFINED") != 0;
    return mst__fail(reterr, is_known ? code : MST_EPROTO, 0, "%.*s",
                     (int)(text.size < 160 ? text.size : 160), (const char *)text.data);
}

int mst__client_admitted(struct mst__client *client,
                         size_t at,
                         struct mst__until until,
                         struct mst_err *reterr)
{
    struct mst__job_message message;
    int rv = mst__client_hear_refusal(client, at, until, &message, reterr);
    if (rv == 1) {
        struct mst_err err = {0};
        (void)mst__client_refused(&message, &err);
        rv =
            mst__fail(reterr, MST_ECONN, 0, "%s", err.msg); /* as if nobody were there: try again */
    }
    return rv;
}

bool mst__client_is_usable(const struct mst__client *client, bool expects_bytes)
{
    if (mst__buf_size(&client->input) > 0) {
        return expects_bytes;
    }
    int rv = mst__stream_has_input(&client->stream);
    return rv == 0 || (rv > 0 && expects_bytes);
}
