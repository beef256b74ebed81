/* handler/stay.c - asks the server of this node who needs it.
 *
 * The server knows the nodes of its own jobs. Those of backend c10d, also torch's, are in records
 * among its keys. There nobody notices a death but the nodes themselves, so records count as long
 * as any of them changes: living nodes write their heartbeats there. */
#include "handler/stay.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/siphash.h"
#include "base/until.h"
#include "codec/pickle.h"
#include "handler/settings.h"

/* How often to check who needs the server, and the time for its answer. */
#define LOOK_MS 250
#define ANSWER_MS 5000

/* How long nodes of a closed rendezvous may take to read its last messages, and how often to check
 * whether they have. */
#define PARTING_MS 2500
#define PARTING_LOOK_US 20000

/* --- jobs --- */

static void count_job(struct mst__stay *stay,
                      struct mst_bytes run_id,
                      bool is_closed,
                      uint64_t nodes)
{
    struct mst__needs *needs = &stay->needs;
    if (is_closed) {
        bool is_ours = mst__bytes_equal(run_id, mst_bytes_str(stay->events->run_id));
        needs->parting += is_ours ? 0 : nodes;
        return;
    }
    needs->nodes += nodes;
    if (nodes > 0 && needs->jobs++ < MST_STAY_NAMED_MAX) {
        size_t used = strlen(needs->names);
        size_t size = run_id.size < MST_STAY_ID_SHOWN ? run_id.size : MST_STAY_ID_SHOWN;
        (void)snprintf(needs->names + used, sizeof needs->names - used,
                       "%srun '%.*s' (%" PRIu64 " %s)", used == 0 ? "" : ", ", (int)size,
                       (const char *)run_id.data, nodes, nodes == 1 ? "node" : "nodes"); /* fits */
    }
}

/* Count the nodes that have the server as their authority. */
static int ask_jobs(struct mst__stay *stay, struct mst_err *reterr)
{
    const struct mst__job_message question = {
        .type = MST_JOB_STATUS,
        .u.question = {.run_id = mst_bytes_of("", 0), .version = MST_JOB_VERSION}};
    struct mst__until until = mst__until_in(ANSWER_MS);
    struct mst__job_message answer;
    int rv =
        stay->client == NULL ? mst__job_client_open(stay->server, until, &stay->client, reterr) : 0;
    rv = rv == 0 ? mst__job_client_send(stay->client, &question, until, reterr) : rv;
    rv = rv == 0 ? mst__job_client_receive(stay->client, until, &answer, reterr) : rv;
    if (rv == 0 && answer.type != MST_JOB_JOBS_TOLD) {
        rv = mst__fail(reterr, MST_EPROTO, 0, "job server %.60s: unexpected answer '%s'",
                       stay->where, mst__job_type_name(answer.type));
    }
    if (rv == 0) {
        struct mst_bytes jobs = answer.u.list.jobs;
        struct mst__job_entry entry;
        while (mst__job_entry_next(&jobs, &entry)) {
            count_job(stay, entry.run_id, entry.phase == MST_AUTHORITY_CLOSED,
                      (uint64_t)entry.members + entry.waiting + entry.spares);
        }
    }
    return rv;
}

/* --- records --- */

/* The run id, if @key may have a record; empty for the keys of rounds and jobs, in which a number
 * or a word stands between the id and a slash. */
static struct mst_bytes run_id_of(struct mst_bytes key)
{
    struct mst_bytes prefix = mst_bytes_str(MST_RECORD_PREFIX);
    struct mst_bytes none = mst_bytes_of(NULL, 0);
    if (!mst__bytes_start_with(key, prefix)) {
        return none;
    }
    struct mst_bytes run_id = mst__bytes_skip(key, prefix.size);
    for (size_t i = 0, word = 0; i < run_id.size; i++) {
        struct mst_bytes text = mst_bytes_of(run_id.data + word, i - word);
        int64_t number = 0;
        if (run_id.data[i] == '.') {
            word = i + 1;
        } else if (run_id.data[i] == '/' && word > 0 &&
                   (mst__bytes_equal(text, mst_bytes_str(MST_RECORD_JOB)) ||
                    mst__number_parse(text, 0, INT64_MAX, &number))) {
            return none;
        }
    }
    return run_id;
}

/* Count the nodes in the record @text, if it is one. */
static void count_record(struct mst__stay *stay, struct mst_bytes run_id, struct mst_bytes text)
{
    struct mst__buf pickle;
    struct mst__state state;
    mst__buf_init(&pickle, MST_PICKLE_SIZE_MAX);
    mst__state_init(&state);
    if (mst__base64_read(&pickle, text) == 0 &&
        mst__pickle_read(mst__buf_bytes(&pickle), &state, NULL) == 0) {
        count_job(stay, run_id, state.closed, state.heartbeats.count);
        stay->records += state.closed ? 0 : mst__fingerprint(text);
    }
    mst__state_close(&state);
    mst__buf_close(&pickle);
}

static int open_store(struct mst__stay *stay, struct mst_err *reterr)
{
    struct mst_store_options options;
    mst_store_options_init(&options, sizeof options);
    options.value_size_max = MST_VALUE_SIZE_MAX; /* reading allocates only what is there */
    char *url = mst__endpoint_url(stay->server);
    if (url == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "store of %.60s", stay->where);
    }
    int rv = mst_store_open(url, &options, ANSWER_MS, &stay->store, reterr);
    mst__free(url);
    return rv;
}

/* Count the nodes of the records among the keys. */
static int ask_records(struct mst__stay *stay, struct mst_err *reterr)
{
    struct mst_keys keys = {0};
    const struct mst__needs before = stay->needs;
    uint64_t records = stay->records;
    int64_t now_ms = mst__clock_ms();
    int rv = stay->store == NULL ? open_store(stay, reterr) : 0;
    rv = rv == 0 ? mst_store_list(stay->store, ANSWER_MS, &keys, reterr) : rv;
    stay->records = 0;
    for (size_t i = 0; i < keys.count && rv == 0; i++) {
        struct mst_buffer text = {0};
        struct mst_bytes run_id = run_id_of(keys.keys[i]);
        if (run_id.size > 0) {
            rv = mst_store_try_get(stay->store, keys.keys[i], ANSWER_MS, &text, reterr);
            rv = rv == MST_ENOTFOUND ? 0 : rv; /* deleted meanwhile */
            count_record(stay, run_id, mst_bytes_of(text.data, text.size));
            mst_buffer_free(&text);
        }
    }
    mst_keys_free(&keys);
    if (stay->changed_ms == 0 || stay->records != records) {
        stay->changed_ms = now_ms;
    }
    if (now_ms - stay->changed_ms >= stay->records_ms) {
        stay->needs = before;
    }
    return rv;
}

/* --- staying --- */

static int ask(struct mst__stay *stay, struct mst_err *reterr)
{
    struct mst__needs *needs = &stay->needs;
    *needs = (struct mst__needs){.nodes = 0};
    int rv = ask_jobs(stay, reterr);
    rv = rv == 0 ? ask_records(stay, reterr) : rv;
    if (needs->jobs > MST_STAY_NAMED_MAX) {
        size_t used = strlen(needs->names);
        (void)snprintf(needs->names + used, sizeof needs->names - used, " and %" PRIu64 " more",
                       needs->jobs - MST_STAY_NAMED_MAX); /* fits */
    }
    return rv;
}

static void tell_begin(const struct mst__stay *stay)
{
    mst__event(stay->events, "linger", MST_NODE_RUNNING, -1, -1,
               "Node '%s' has left its job and still serves on %s, for %s; for %" PRId64
               " s at most, or until a signal.",
               stay->events->node, stay->where, stay->needs.names, stay->timeout_ms / 1000);
}

static void tell_end(const struct mst__stay *stay)
{
    mst__event(stay->events, "linger", MST_NODE_FAILED, -1, -1,
               "Node '%s' serves on %s no longer, although %s meet there: the time of linger is "
               "over. Use muster serve for several jobs.",
               stay->events->node, stay->where, stay->needs.names);
}

/* An mst__owner_look_fn. */
static int look(void *self, void *arg, struct mst_err *reterr)
{
    struct mst__stay *stay = self;
    (void)arg; /* there is none */
    if (mst__hosted_gave_way(stay->hosted)) {
        return 0;
    }
    int rv = ask(stay, reterr);
    if (rv == MST_ETIMEOUT) { /* what does not answer serves nobody */
        return mst__err_wrap(reterr, MST_ECONN, "the server of this node at %.60s", stay->where);
    }
    if (rv != 0) {
        return rv;
    }
    if (stay->needs.nodes == 0) {
        return 0;
    }
    if (!stay->is_told && stay->timeout_ms > 0) {
        tell_begin(stay);
    }
    stay->is_told = true;
    return mst__fail(reterr, MST_ETIMEOUT, 0, "%s still needs the server of this node at %.60s",
                     stay->needs.names, stay->where);
}

int mst__stay(struct mst__stay *stay, int64_t timeout_ms, struct mst_err *reterr)
{
    stay->timeout_ms = timeout_ms < 0 ? stay->linger_ms : timeout_ms;
    int rv =
        mst__owner_await_slowly(stay->owner, stay->timeout_ms, LOOK_MS, look, stay, NULL, reterr);
    if (rv == MST_ETIMEOUT && timeout_ms < 0) {
        tell_end(stay);
    }
    return rv;
}

void mst__stay_part(struct mst__stay *stay, bool (*is_needed)(void *arg), void *arg)
{
    int64_t until_ms = mst__clock_deadline_ms(PARTING_MS);
    while (mst__clock_ms() < until_ms && ask(stay, NULL) == 0 &&
           (stay->needs.parting > 0 || (is_needed != NULL && is_needed(arg)))) {
        (void)mst__until_pause(-1, mst__clock_us() + PARTING_LOOK_US); /* nothing wakes */
    }
}

void mst__stay_close(struct mst__stay *stay)
{
    mst__job_client_close(stay->client);
    mst_store_close(stay->store);
    stay->client = NULL;
    stay->store = NULL;
}
