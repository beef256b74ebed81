/* muster/muster.h - all that a program needs; <muster/backend.h> is for authors of backends, and
 * <muster/legacy.h> for programs that need the extra data of backend `etcd`. */
#ifndef MST_MUSTER_H
#define MST_MUSTER_H

#include <muster/error.h>
#include <muster/etcd.h>
#include <muster/log.h>
#include <muster/rendezvous.h>
#include <muster/server.h>
#include <muster/status.h>
#include <muster/store.h>
#include <muster/types.h>
#include <muster/version.h>
#include <muster/wait.h>

#endif /* MST_MUSTER_H */
