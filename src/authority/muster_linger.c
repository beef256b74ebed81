/* authority/muster_linger.c - the end of a node that serves others: its server ends with it, so it
 * stays until no node needs the server any more. */
#include <inttypes.h>
#include <stdio.h>

#include "authority/muster_self.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/until.h"

/* How long nodes of a closed rendezvous may take to read its last messages, and how often to check
 * whether they have. */
#define PARTING_MS 2500
#define PARTING_LOOK_US 20000

/* How often to check whether other jobs have nodes, and the time for our own server's answer. */
#define LOOK_MS 250
#define ANSWER_MS 5000

/* Jobs that are named in a sentence, and bytes of their ids. */
#define NAMED_MAX 3
#define ID_SHOWN 40

/* --- other jobs --- */

/* The nodes of the jobs of the server. */
struct needs {
    uint64_t nodes;                              /* of open jobs */
    uint64_t parting;                            /* of closed jobs but ours */
    char jobs[NAMED_MAX * (ID_SHOWN + 60) + 60]; /* "run 'a' (2 nodes), run 'b' (1 node)" */
};

struct stay {
    struct mst__muster *muster;
    struct mst__job_client *client; /* to our own server; NULL = not yet */
    struct needs needs;
    int64_t timeout_ms;
    bool is_told;
};

static void name_job(struct needs *needs, const struct mst__job_entry *entry, uint64_t nodes)
{
    size_t used = strlen(needs->jobs);
    size_t size = entry->run_id.size < ID_SHOWN ? entry->run_id.size : ID_SHOWN;
    (void)snprintf(needs->jobs + used, sizeof needs->jobs - used, "%srun '%.*s' (%" PRIu64 " %s)",
                   used == 0 ? "" : ", ", (int)size, (const char *)entry->run_id.data, nodes,
                   nodes == 1 ? "node" : "nodes"); /* fits */
}

static void count_needs(const struct mst__muster *muster,
                        const struct mst__job_list *list,
                        struct needs *ret_needs)
{
    struct mst_bytes jobs = list->jobs;
    struct mst__job_entry entry;
    uint64_t open_count = 0;
    *ret_needs = (struct needs){.nodes = 0};
    while (mst__job_entry_next(&jobs, &entry)) {
        uint64_t nodes = (uint64_t)entry.members + entry.waiting + entry.spares;
        if (nodes == 0) {
            continue;
        }
        if (entry.phase == MST_AUTHORITY_CLOSED) {
            bool is_ours = mst__bytes_equal(entry.run_id, mst_bytes_str(muster->params->run_id));
            ret_needs->parting += is_ours ? 0 : nodes;
            continue;
        }
        ret_needs->nodes += nodes;
        if (open_count++ < NAMED_MAX) {
            name_job(ret_needs, &entry, nodes);
        }
    }
    if (open_count > NAMED_MAX) {
        size_t used = strlen(ret_needs->jobs);
        (void)snprintf(ret_needs->jobs + used, sizeof ret_needs->jobs - used,
                       " and %" PRIu64 " more", open_count - NAMED_MAX); /* fits */
    }
}

static int ask_needs(struct stay *stay, struct mst_err *reterr)
{
    const struct mst__muster *muster = stay->muster;
    const struct mst__job_message question = {
        .type = MST_JOB_STATUS,
        .u.close = {.run_id = mst_bytes_of("", 0), .version = MST_JOB_VERSION}};
    struct mst__until until = mst__until_in(ANSWER_MS);
    struct mst__job_message answer;
    int rv = stay->client == NULL
                 ? mst__job_client_open(mst__muster_server(muster), until, &stay->client, reterr)
                 : 0;
    rv = rv == 0 ? mst__job_client_send(stay->client, &question, until, reterr) : rv;
    rv = rv == 0 ? mst__job_client_receive(stay->client, until, &answer, reterr) : rv;
    if (rv == 0 && answer.type != MST_JOB_JOBS_TOLD) {
        rv = mst__fail(reterr, MST_EPROTO, 0, "job server %.60s: unexpected answer '%s'",
                       muster->where, mst__job_type_name(answer.type));
    }
    if (rv == 0) {
        count_needs(muster, &answer.u.list, &stay->needs);
    }
    return rv;
}

static void tell_begin(const struct stay *stay)
{
    const struct mst__muster *muster = stay->muster;
    mst__event(&muster->events, "linger", MST_NODE_RUNNING, -1, -1,
               "Node '%s' has left its job and still serves on %s, for %s; for %" PRId64
               " s at most, or until a signal.",
               muster->node, muster->where, stay->needs.jobs, stay->timeout_ms / 1000);
}

static void tell_end(const struct stay *stay)
{
    const struct mst__muster *muster = stay->muster;
    mst__event(&muster->events, "linger", MST_NODE_FAILED, -1, -1,
               "Node '%s' serves on %s no longer, although %s meet there: the time of linger is "
               "over. Use muster serve for several jobs.",
               muster->node, muster->where, stay->needs.jobs);
}

/* An mst__owner_look_fn. */
static int look(void *self, void *arg, struct mst_err *reterr)
{
    struct stay *stay = arg;
    (void)self; /* stay has it */
    if (!mst__muster_serves(stay->muster)) {
        return 0;
    }
    int rv = ask_needs(stay, reterr);
    if (rv != 0) {
        return rv == MST_ETIMEOUT ? MST_ECONN : rv; /* what does not answer serves nobody */
    }
    if (stay->needs.nodes == 0) {
        return 0;
    }
    if (!stay->is_told && stay->timeout_ms > 0) {
        tell_begin(stay);
    }
    stay->is_told = true;
    return mst__fail(reterr, MST_ETIMEOUT, 0, "%s still needs the server of this node at %.60s",
                     stay->needs.jobs, stay->muster->where);
}

int mst__muster_linger(void *self, int64_t timeout_ms, struct mst_err *reterr)
{
    struct mst__muster *muster = self;
    if (!mst__muster_serves(muster) || muster->is_private) {
        return 0;
    }
    struct stay stay = {.muster = muster,
                        .timeout_ms =
                            timeout_ms < 0 ? muster->settings.place.linger_ms : timeout_ms};
    int rv = mst__owner_await_slowly(&muster->head.owner, stay.timeout_ms, LOOK_MS, look, muster,
                                     &stay, reterr);
    if (rv == MST_ETIMEOUT && timeout_ms < 0) {
        tell_end(&stay);
    }
    mst__job_client_close(stay.client);
    return rv;
}

/* --- the last messages --- */

/* Count the other nodes of our job that should hear of its end before we leave: none, unless it is
 * closed or the round has only just begun. */
static int64_t count_parting(const struct mst__muster *muster)
{
    struct mst__job_client *client = NULL;
    struct mst__job_status status;
    int64_t others = 0;
    int64_t waiting;
    if (mst__muster_ask_status(muster, PARTING_MS, &client, &status, NULL) != 0) {
        return 0;
    }
    bool is_new = muster->sealed_ms != 0 && mst__clock_ms() - muster->sealed_ms < PARTING_MS;
    if (status.phase == MST_AUTHORITY_CLOSED || is_new) {
        mst__muster_count_nodes(muster, &status, &others, &waiting);
    }
    mst__job_client_close(client);
    return others;
}

void mst__muster_part(struct mst__muster *muster)
{
    struct stay stay = {.muster = muster};
    int64_t until_ms = mst__clock_deadline_ms(PARTING_MS);
    while (mst__clock_ms() < until_ms && ask_needs(&stay, NULL) == 0 &&
           (stay.needs.parting > 0 || count_parting(muster) > 0)) {
        (void)mst__until_pause(-1, mst__clock_ns() / 1000 + PARTING_LOOK_US); /* it is not
                                                                               * interrupted */
    }
    mst__job_client_close(stay.client);
}
