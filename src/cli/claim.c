/* cli/claim.c - asks a node that serves at our port to give way, and takes the port. */
#include "cli/claim.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "net/job_client.h"
#include "net/resolve.h"

/* How long to try. A server that stops or gives way needs a second; the rest is for a slow
 * machine. */
#define TAKEN_MS 2000
#define GIVEN_MS 5000

/* Pauses between two attempts: of a port that is about to be free, and of another one. */
#define SOON_MS 20
#define LATER_MS 200

/* Time for the answer of one server, which is on this machine. */
#define ANSWER_MS 1000

struct claim {
    const struct mst_server_options *options;
    struct mst__until until;
};

/* Ask the server at @address. True if it gives way, at once or soon. */
static bool claim_at(const struct claim *claim, const struct sockaddr *address, socklen_t size)
{
    struct mst__endpoint endpoint = {.port = (uint16_t)claim->options->port};
    if (getnameinfo(address, size, endpoint.host, sizeof endpoint.host, NULL, 0, NI_NUMERICHOST) !=
        0) {
        return false;
    }
    const struct mst__job_message question = {
        .type = MST_JOB_STATUS,
        .u.question = {.run_id = mst_bytes_of("", 0), .version = MST_JOB_VERSION}};
    const struct mst__job_message wish = {.type = MST_JOB_GIVE_WAY};
    struct mst__until until = mst__until_sooner(claim->until, mst__clock_deadline_ms(ANSWER_MS));
    struct mst__job_client *client = NULL;
    struct mst__job_message answer;
    if (mst__job_client_ask(&endpoint, &question, until, &client, &answer, NULL) != 0) {
        return false; /* the error of the server says that the port is taken */
    }
    bool gives_way = answer.type == MST_JOB_JOBS_TOLD && answer.u.list.gives_way;
    if (gives_way) {
        char text[MST_ENDPOINT_TEXT_SIZE];
        mst__log(&claim->options->log, MST_LOG_WARN, "serve.claims", "address=%s jobs=%u",
                 MST_LOG_TEXT(mst__endpoint_format(&endpoint, text)), answer.u.list.total);
        gives_way = mst__job_client_send(client, &wish, until, NULL) == 0;
    }
    mst__job_client_finish(client, until);
    return gives_way;
}

static bool claim_of_interfaces(const struct claim *claim)
{
    struct ifaddrs *interfaces = NULL;
    bool gives_way = false;
    if (getifaddrs(&interfaces) != 0) {
        return false;
    }
    for (const struct ifaddrs *at = interfaces; at != NULL && !gives_way; at = at->ifa_next) {
        int family = at->ifa_addr == NULL ? AF_UNSPEC : at->ifa_addr->sa_family;
        if (family == AF_INET || family == AF_INET6) {
            gives_way = claim_at(claim, at->ifa_addr,
                                 family == AF_INET ? sizeof(struct sockaddr_in)
                                                   : sizeof(struct sockaddr_in6));
        }
    }
    freeifaddrs(interfaces);
    return gives_way;
}

static bool claim_of_host(const struct claim *claim, const char *host)
{
    struct mst__endpoint endpoint = {.port = (uint16_t)claim->options->port};
    struct addrinfo *addresses = NULL;
    if (strcmp(host, "*") == 0 || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0) {
        return claim_of_interfaces(claim);
    }
    (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", host); /* one cut off is not found */
    if (mst__endpoint_path(&endpoint) != NULL ||
        mst__resolve(&endpoint, claim->until, &addresses, NULL) != 0) {
        return false;
    }
    bool gives_way = false;
    for (const struct addrinfo *at = addresses; at != NULL && !gives_way; at = at->ai_next) {
        gives_way = claim_at(claim, at->ai_addr, at->ai_addrlen);
    }
    freeaddrinfo(addresses);
    return gives_way;
}

/* Call at the addresses where we want to listen: the node's clients must find us there. */
static bool claim_hosts(const struct claim *claim)
{
    static const char *const loopback[] = {"127.0.0.1", "::1"};
    const struct mst_server_options *options = claim->options;
    const char *const *hosts = options->hosts_count == 0 ? loopback : options->hosts;
    size_t count = options->hosts_count == 0 ? 2 : options->hosts_count;
    bool gives_way = false;
    for (size_t i = 0; i < count && !gives_way; i++) {
        gives_way = claim_of_host(claim, hosts[i]);
    }
    return gives_way;
}

int mst__claim_server(const struct mst_server_options *options,
                      struct mst_server **ret_server,
                      struct mst_err *reterr)
{
    struct claim claim = {.options = options, .until = mst__until_in(TAKEN_MS)};
    bool is_told = false;
    bool is_given = false;
    for (;;) {
        struct mst_err err = {0};
        int rv = mst_server_new(options, ret_server, &err);
        if (rv == 0) {
            return 0;
        }
        if (!mst__err_is_errno(&err, EADDRINUSE) || options->port == 0 ||
            options->listen_fds_count > 0 || mst__until_is_over(claim.until)) {
            return mst__err_pass(reterr, rv, &err);
        }
        if (!is_told) {
            char detail[MST_LOG_QUOTE_SIZE];
            mst__log(&options->log, MST_LOG_WARN, "serve.port_taken", "detail=%s wait_ms=%d",
                     mst__log_quote(mst_bytes_str(err.msg), detail), TAKEN_MS);
            is_told = true;
        }
        if (claim_hosts(&claim) && !is_given) {
            claim.until = mst__until_in(GIVEN_MS);
            is_given = true;
        }
        (void)poll(NULL, 0, is_given ? SOON_MS : LATER_MS); /* a signal ends the process */
    }
}
