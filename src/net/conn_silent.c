/* net/conn_silent.c - connections that have sent nothing yet, and their places.
 *
 * A connection may be silent for ever: a client of dialect A opens a second one for watches, writes
 * nothing to it unless it watches, and spins when it is closed. So silence costs a connection
 * nothing while there are places. When there are none, the one that has been silent the longest
 * gives its place to the next client, unless it may be such a second connection: another connection
 * from its host is of dialect A or B. */
#include "base/bytes.h"
#include "base/clock.h"
#include "net/conn.h"

/* Family and address of a name; not the port. */
#define HOST_SIZE (1 + sizeof((struct mst__stream_name *)0)->address)

void mst__silents_open(struct mst_server *server)
{
    uint8_t hash_key[MST_SIPHASH_KEY_SIZE];
    mst__clock_random(hash_key, sizeof hash_key);
    mst__map_init(&server->silents.old_hosts, sizeof(uint32_t), hash_key);
}

void mst__silents_close(struct mst_server *server)
{
    mst__map_close(&server->silents.old_hosts);
}

/* --- hosts with old clients --- */

static struct mst_bytes host_of(const struct mst__conn *conn, uint8_t memory[HOST_SIZE])
{
    memory[0] = conn->peer.family;
    memcpy(memory + 1, conn->peer.address, HOST_SIZE - 1);
    return mst_bytes_of(memory, HOST_SIZE);
}

void mst__silent_know_old(struct mst__conn *conn)
{
    struct mst__map *hosts = &conn->server->silents.old_hosts;
    struct mst__kv *kv = &conn->server->kv;
    uint8_t memory[HOST_SIZE];
    struct mst_bytes host = host_of(conn, memory);
    if (conn->is_of_old || conn->is_doomed || conn->reader.dialect == MST_DIALECT_UNKNOWN) {
        return;
    }
    uint32_t *count = mst__map_get(hosts, host);
    if (count == NULL && mst__kv_room(kv) >= mst__map_cost(hosts, HOST_SIZE)) {
        count = mst__map_add(hosts, host);
        if (count != NULL) {
            bool fits = mst__kv_charge(kv, mst__map_cost(hosts, HOST_SIZE));
            MST_ASSERT(fits);
        }
    }
    if (count != NULL) { /* else its second connection has no privilege */
        (*count)++;
        conn->is_of_old = true;
    }
}

static void forget_old(struct mst__conn *conn)
{
    struct mst__map *hosts = &conn->server->silents.old_hosts;
    uint8_t memory[HOST_SIZE];
    if (!conn->is_of_old) {
        return;
    }
    conn->is_of_old = false;
    uint32_t *count = mst__map_get(hosts, host_of(conn, memory));
    MST_ASSERT(count != NULL && *count > 0);
    if (--*count == 0) {
        mst__map_remove(hosts, count);
        mst__kv_discharge(&conn->server->kv, mst__map_cost(hosts, HOST_SIZE));
    }
}

/* --- the list --- */

void mst__silent_enter(struct mst__conn *conn)
{
    struct mst__silents *silents = &conn->server->silents;
    conn->is_silent = true;
    conn->silent_next = NULL;
    conn->silent_prev = silents->last;
    if (silents->last == NULL) {
        silents->first = conn;
    } else {
        silents->last->silent_next = conn;
    }
    silents->last = conn;
}

void mst__silent_leave(struct mst__conn *conn)
{
    struct mst__silents *silents = &conn->server->silents;
    if (!conn->is_silent) {
        return;
    }
    conn->is_silent = false;
    if (conn->silent_prev == NULL) {
        silents->first = conn->silent_next;
    } else {
        conn->silent_prev->silent_next = conn->silent_next;
    }
    if (conn->silent_next == NULL) {
        silents->last = conn->silent_prev;
    } else {
        conn->silent_next->silent_prev = conn->silent_prev;
    }
}

void mst__silent_end(struct mst__conn *conn)
{
    mst__silent_leave(conn);
    forget_old(conn);
}

bool mst__silent_is_due(const struct mst_server *server)
{
    const struct mst__conn *conn = server->silents.first;
    return conn != NULL && mst__server_now_ms(server) - conn->active_ms >= MST_SILENT_MS;
}

bool mst__silent_make_room(struct mst_server *server)
{
    uint8_t memory[HOST_SIZE];
    while (mst__silent_is_due(server) && !mst__turns_is_over(server)) {
        struct mst__conn *conn = server->silents.first;
        bool is_second = mst__map_get(&server->silents.old_hosts, host_of(conn, memory)) != NULL;
        server->kv.steps += MST_STEPS_READ;
        mst__silent_leave(conn); /* it is not asked again if it stays */
        if (!conn->is_doomed && !is_second && mst__stream_has_input(&conn->io.stream) <= 0) {
            mst__conn_doom(conn, MST_WHY_SILENT, "nothing came in %lld ms, and its place is needed",
                           (long long)(mst__server_now_ms(server) - conn->active_ms));
            return true;
        }
    }
    return false;
}
