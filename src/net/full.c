/* net/full.c - whether a server is full, of connections or of memory, and the words for it.
 *
 * It is full of connections while it would refuse the next one. It is full of memory from a request
 * that did not fit until as much fits again. A request that is large beside the limit says little
 * about others, and one that is small would fit again at once; so this amount is at least a 64th of
 * the limit, and at most a quarter. */
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"
#include "net/conn.h"

#define FULL_PART_MIN 64
#define FULL_PART_MAX 4

void mst__full_init(struct mst_server *server)
{
    for (unsigned i = 0; i < MST_FULL_COUNT; i++) {
        server->full.logged_ms[i] = INT64_MIN / 2; /* long ago */
    }
}

static bool is_full_of_memory(const struct mst_server *server)
{
    size_t max = server->kv.limits.memory_max;
    size_t lacked = server->full.lacked;
    if (lacked == 0) {
        return false;
    }
    lacked = lacked < max / FULL_PART_MIN ? max / FULL_PART_MIN : lacked;
    lacked = lacked > max / FULL_PART_MAX ? max / FULL_PART_MAX : lacked;
    return mst__kv_room(&server->kv) < lacked;
}

bool mst__full_is_of(const struct mst_server *server, enum mst__full_of of)
{
    return of == MST_FULL_OF_MEMORY ? is_full_of_memory(server)
                                    : mst__conns_places(server) == 0 && !mst__silent_is_due(server);
}

/* --- words --- */

void mst__full_connections_text(const struct mst_server *server, char ret_text[MST_FULL_TEXT_SIZE])
{
    (void)snprintf(ret_text, MST_FULL_TEXT_SIZE,
                   "the server is full: %zu connections, its --max-connections",
                   server->options.connections_max); /* fits */
}

static void put_memory(const struct mst_server *server, char ret_text[MST_FULL_TEXT_SIZE])
{
    const struct mst__kv *kv = &server->kv;
    bool is_full = is_full_of_memory(server);
    char what[48] = "the server is full";
    char holes[48] = "";
    if (!is_full) { /* but for one request it is */
        (void)snprintf(what, sizeof what, "no room for %zu bytes", server->full.lacked); /* fits */
    }
    if (kv->memory_withheld > 0) {
        (void)snprintf(holes, sizeof holes, ", and %zu are lost to holes",
                       kv->memory_withheld); /* fits */
    }
    (void)snprintf(ret_text, MST_FULL_TEXT_SIZE, "%s: %zu of %zu bytes of --max-memory are used%s",
                   what, kv->memory_used, kv->limits.memory_max, holes); /* fits */
}

bool mst__full_text(const struct mst_server *server, char ret_text[MST_FULL_TEXT_SIZE])
{
    if (is_full_of_memory(server)) {
        put_memory(server, ret_text);
        return true;
    }
    if (mst__full_is_of(server, MST_FULL_OF_CONNECTIONS)) {
        mst__full_connections_text(server, ret_text);
        return true;
    }
    return false;
}

/* --- refusals --- */

/* Count a refusal. The log has a line at the first one, and then one in a while. */
static void refuse(struct mst_server *server, enum mst__full_of of, const char *text)
{
    static const char *const names[MST_FULL_COUNT] = {
        [MST_FULL_OF_CONNECTIONS] = "connections",
        [MST_FULL_OF_MEMORY] = "memory",
    };
    int64_t now_ms = mst__server_now_ms(server);
    uint64_t count = ++server->counters.refused[of];
    if (now_ms - server->full.logged_ms[of] < MST_FULL_LOG_MS) {
        return;
    }
    server->full.logged_ms[of] = now_ms;
    mst__log(&server->options.log, MST_LOG_ERROR, "server.full", "of=%s refused=%llu detail=%s",
             names[of], (unsigned long long)count, MST_LOG_TEXT(text));
}

void mst__full_refuse_conn(struct mst_server *server, char ret_text[MST_FULL_TEXT_SIZE])
{
    mst__full_connections_text(server, ret_text);
    refuse(server, MST_FULL_OF_CONNECTIONS, ret_text);
}

bool mst__full_refuse_memory(struct mst_server *server,
                             size_t own,
                             char ret_text[MST_FULL_TEXT_SIZE])
{
    if (server->kv.memory_lacked == 0) {
        return false;
    }
    server->full.lacked = server->kv.memory_lacked + own;
    server->kv.memory_lacked = 0;
    put_memory(server, ret_text);
    refuse(server, MST_FULL_OF_MEMORY, ret_text);
    return true;
}

void mst__full_turn(struct mst_server *server)
{
    if (server->kv.memory_lacked != 0) { /* for output, which has ended its connection */
        server->full.lacked = server->kv.memory_lacked;
        server->kv.memory_lacked = 0;
    }
    if (server->full.lacked != 0 && !is_full_of_memory(server)) {
        server->full.lacked = 0;
    }
}
