/* sim/authority/link.c - connections of the engine muster: in order in each direction, slow, held
 * back, torn, or half open; and announcements that come twice. */
#include "base/assert.h"
#include "base/mem.h"
#include "sim/authority/authority.h"

/* The second copy of a message is out of order. */
#define COPY 1

/* Delayed messages must not be overtaken: the epoch of an event is its number on the link, in
 * its direction. */
static struct mst__sim_event link_event(struct mst__sim_auth_link *link, bool to_server)
{
    return (struct mst__sim_event){.node = link->node,
                                   .id = link->id,
                                   .pid = (int64_t)link->life,
                                   .epoch = ++link->sent[to_server]};
}

struct mst__sim_auth_link *mst__sim_auth_link_open(struct mst__sim_auth *sim,
                                                   struct mst__sim_auth_node *node)
{
    if (sim->links_count == sim->links_capacity) {
        sim->links_capacity = sim->links_capacity == 0 ? 64 : 2 * sim->links_capacity;
        sim->links = mst__realloc(sim->links, sim->links_capacity * sizeof(void *));
        MST_ASSERT(sim->links != NULL);
    }
    struct mst__sim_auth_link *link = mst__calloc(1, sizeof *link);
    MST_ASSERT(link != NULL);
    sim->links[sim->links_count++] = link;
    link->id = sim->links_count;
    link->node = node->index;
    link->life = node->life;
    link->is_open_node = true;
    link->seat = MST_AUTHORITY_NOBODY;
    return link;
}

/* The arrival of a message that is sent now; never before that of an earlier one. */
static int64_t link_arrival_us(struct mst__sim_auth *sim,
                               struct mst__sim_auth_link *link,
                               bool to_server)
{
    int64_t *last_us = to_server ? &link->to_server_us : &link->to_node_us;
    int64_t time_us = sim->now_us + mst__sim_auth_delay(sim);
    time_us = time_us < *last_us ? *last_us : time_us;
    *last_us = time_us;
    return time_us;
}

void mst__sim_auth_link_send(struct mst__sim_auth *sim,
                             struct mst__sim_auth_link *link,
                             bool to_server,
                             bool can_repeat,
                             struct mst_bytes bytes)
{
    struct mst__sim_event event = link_event(link, to_server);
    event.bytes = mst__sim_auth_copy(bytes.data, bytes.size);
    event.size = bytes.size;
    int64_t time_us = link_arrival_us(sim, link, to_server);
    mst__sim_auth_at(sim, time_us, to_server ? MST_SIM_AUTH_TO_SERVER : MST_SIM_AUTH_TO_NODE,
                     event);
    if (can_repeat && !sim->is_calm && mst__sim_auth_chance(sim, sim->plan.twice_ppm)) {
        event.bytes = mst__sim_auth_copy(bytes.data, bytes.size);
        event.request = COPY;
        event.epoch = 0;
        mst__sim_auth_at(sim, time_us + mst__sim_auth_below(sim, MST_SIM_AUTH_COPY_US),
                         MST_SIM_AUTH_TO_SERVER, event);
    }
}

void mst__sim_auth_link_close(struct mst__sim_auth *sim,
                              struct mst__sim_auth_link *link,
                              bool by_server,
                              bool is_silent)
{
    if (by_server) {
        link->is_open_server = false;
    } else {
        link->is_open_node = false;
    }
    if (!is_silent) {
        mst__sim_auth_at(sim, link_arrival_us(sim, link, !by_server),
                         by_server ? MST_SIM_AUTH_HANGUP_NODE : MST_SIM_AUTH_HANGUP_SERVER,
                         link_event(link, !by_server));
    }
}

/* Until when the network delays a message that is due; 0 = it has arrived. */
static int64_t link_held_us(const struct mst__sim_auth *sim,
                            const struct mst__sim_auth_link *link,
                            bool to_server)
{
    int64_t cut_us = sim->nodes[link->node].cut_us;
    int64_t held_us = to_server && link->stalled_us > cut_us ? link->stalled_us : cut_us;
    return held_us > sim->now_us ? held_us : 0;
}

static bool event_is_end(const struct mst__sim_event *event)
{
    return (enum mst__sim_auth_kind)event->kind == MST_SIM_AUTH_HANGUP_SERVER;
}

/* The server is down, or does not know the connection. */
static void link_refuse(struct mst__sim_auth *sim,
                        struct mst__sim_auth_link *link,
                        const struct mst__sim_event *event)
{
    if (!event_is_end(event) && link->is_open_node) {
        mst__sim_auth_at(sim, link_arrival_us(sim, link, false), MST_SIM_AUTH_HANGUP_NODE,
                         link_event(link, false));
    }
}

static void link_to_server(struct mst__sim_auth *sim,
                           struct mst__sim_auth_link *link,
                           struct mst__sim_event *event)
{
    struct mst__sim_auth_server *server = &sim->server;
    if (server->down_us > sim->now_us) {
        link_refuse(sim, link, event);
    } else {
        mst__sim_auth_server_arrived(sim, event);
    }
}

bool mst__sim_auth_link_read(struct mst__sim_auth *sim, const struct mst__sim_event *event)
{
    struct mst__sim_auth_server *server = &sim->server;
    struct mst__sim_auth_link *link = sim->links[event->id - 1];
    bool is_copy = event->request == COPY;
    if (is_copy && (link->has_parted || !link->is_open_server)) {
        return true;
    }
    /* A node makes its connections one after the other: older ones are not accepted any more. */
    struct mst__sim_auth_node *node = mst__sim_auth_node(sim, link->node);
    if (!link->is_accepted && !event_is_end(event) && link->id > node->accepted) {
        node->accepted = link->id;
        link->is_accepted = true;
        link->is_open_server = true;
        link->server = server->starts;
        link->turn = server->turns;
    }
    if (!link->is_open_server || link->server != server->starts) {
        link_refuse(sim, link, event);
    } else if (link->turn == server->turns) {
        return false;
    } else if (event_is_end(event)) {
        mst__sim_auth_server_hangup(sim, link);
    } else {
        mst__sim_auth_server_receive(sim, link, mst_bytes_of(event->bytes, event->size));
    }
    return true;
}

static void link_to_node(struct mst__sim_auth *sim,
                         struct mst__sim_auth_link *link,
                         const struct mst__sim_event *event)
{
    struct mst__sim_auth_node *node = mst__sim_auth_node(sim, link->node);
    bool is_current = link->is_open_node && node->link == link && node->life == link->life;
    if (!is_current) {
        sim->stats.late++;
        return;
    }
    if ((enum mst__sim_auth_kind)event->kind == MST_SIM_AUTH_HANGUP_NODE) {
        mst__sim_auth_client_drop(sim, node);
    } else {
        mst__sim_auth_client_receive(sim, node, mst_bytes_of(event->bytes, event->size));
    }
}

void mst__sim_auth_link_arrive(struct mst__sim_auth *sim, struct mst__sim_event *event)
{
    struct mst__sim_auth_link *link = sim->links[event->id - 1];
    enum mst__sim_auth_kind kind = (enum mst__sim_auth_kind)event->kind;
    bool is_end = kind == MST_SIM_AUTH_HANGUP_SERVER || kind == MST_SIM_AUTH_HANGUP_NODE;
    bool to_server = kind == MST_SIM_AUTH_TO_SERVER || kind == MST_SIM_AUTH_HANGUP_SERVER;
    bool is_early = event->epoch > link->heard[to_server] + 1;
    int64_t held_us =
        is_early ? sim->now_us + MST_SIM_AUTH_ORDER_US : link_held_us(sim, link, to_server);
    if (link->is_hole) {
        return;
    }
    if (link->is_torn && !is_end) {
        held_us = 0;
    }
    if (held_us == 0 && event->epoch > link->heard[to_server]) {
        link->heard[to_server] = event->epoch;
    }
    if (link->is_torn && !is_end) {
        return;
    }
    if (held_us > 0) {
        int64_t *last_us = to_server ? &link->to_server_us : &link->to_node_us;
        *last_us = *last_us < held_us ? held_us : *last_us;
        mst__sim_auth_at(sim, held_us, kind, *event);
        event->bytes = NULL;
        return;
    }
    if (to_server) {
        link_to_server(sim, link, event);
    } else {
        link_to_node(sim, link, event);
    }
}
