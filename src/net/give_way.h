/* net/give_way.h - a node's server that ends when a `muster serve` of the same machine wants its
 * port. Those who meet there find the new server, as after a restart of the old one. */
#ifndef MST_NET_GIVE_WAY_H
#define MST_NET_GIVE_WAY_H

#include <muster/error.h>
#include <stdbool.h>

struct mst_server;
struct mst__conn;

/* Let @server give way from now on. From any thread. */
void mst__give_way_allow(struct mst_server *server);

/* Whether @server has done so: it has ended or is about to. From any thread. */
bool mst__give_way_is_done(const struct mst_server *server);

/* Whether the server of @conn gives way to its peer. It must be on this machine, and has to call
 * at an address where all clients of the server can call: a server on the loopback address alone
 * cannot take the place of one that serves other machines. */
bool mst__give_way_is_for(const struct mst__conn *conn);

/* The peer of @conn has sent GIVE_WAY. False, with a sentence, if the server does not give way to
 * it. */
bool mst__give_way_take(const struct mst__conn *conn, struct mst_err *reterr);

#endif /* MST_NET_GIVE_WAY_H */
