/* net/job_keys.c - finds and removes the keys of old rounds.
 *
 * No list of old rounds and runs is kept: a key names its round, and the jobs say whether it is
 * still needed. So the next sweep also removes keys that a straggler writes late. */
#include "net/job_keys.h"

#include "base/assert.h"
#include "base/limits.h"
#include "net/conn.h"
#include "net/server.h"
#include "wire/round_key.h"

/* Pause between two parts of a sweep, for other work. */
#define PAUSE_MS 1

/* Whether this server assigned @epoch. Other epochs are those of its predecessors, in claimed
 * rounds. */
static bool is_own_epoch(const struct mst__jobs *jobs, uint64_t epoch)
{
    return epoch >= jobs->keys.epoch_first && epoch < jobs->epoch;
}

static bool is_dead(void *arg, struct mst_bytes key)
{
    const struct mst_server *server = arg;
    const struct mst__jobs *jobs = &server->jobs;
    struct mst__round_key whose;
    if (!mst__round_key_read(key, &whose)) {
        return false;
    }
    bool is_own = is_own_epoch(jobs, whose.epoch);
    void *value = mst__map_get(&jobs->map, mst_bytes_of(whose.run_id, whose.run_id_size));
    if (value == NULL) {
        /* Its nodes may not have come back yet; they have as long as they had before. */
        int64_t open_ms = (int64_t)uv_now(&server->loop) - jobs->keys.opened_ms;
        return is_own || open_ms >= server->options.job_expiry_ms;
    }
    const struct mst__job *job = *(struct mst__job **)value;
    return (is_own && whose.epoch != job->authority.options.epoch) ||
           whose.round < job->authority.round - 1;
}

static void on_turn(uv_timer_t *timer)
{
    struct mst_server *server = timer->data;
    struct mst__job_keys *keys = &server->jobs.keys;
    if (mst__kv_is_busy(&server->kv)) {
        return; /* that must end first */
    }
    if (!keys->is_sweeping) {
        mst__kv_sweep_begin(&server->kv);
        keys->is_wanted = false;
    }
    keys->is_sweeping = mst__kv_sweep(&server->kv, MST_SWEEP_STEPS, is_dead, server);
    mst__conns_deliver(server);
    if (!keys->is_sweeping && !keys->is_wanted) {
        (void)uv_timer_stop(timer); /* always returns 0 */
    }
}

void mst__job_keys_open(struct mst_server *server)
{
    struct mst__job_keys *keys = &server->jobs.keys;
    *keys = (struct mst__job_keys){.epoch_first = server->jobs.epoch,
                                   .opened_ms = (int64_t)uv_now(&server->loop)};
    int rv = uv_timer_init(&server->loop, &keys->timer);
    MST_ASSERT(rv == 0);
    keys->timer.data = server;
}

void mst__job_keys_stop(struct mst_server *server)
{
    uv_close((uv_handle_t *)&server->jobs.keys.timer, NULL);
}

void mst__job_keys_want(struct mst_server *server)
{
    struct mst__job_keys *keys = &server->jobs.keys;
    keys->is_wanted = true;
    if (uv_is_active((const uv_handle_t *)&keys->timer) == 0) {
        int rv = uv_timer_start(&keys->timer, on_turn, 0, PAUSE_MS);
        MST_ASSERT(rv == 0);
    }
}

void mst__job_keys_look(struct mst__job *job)
{
    int64_t round = job->authority.round;
    if (round != job->keys_round) {
        job->keys_round = round;
        mst__job_keys_want(job->server);
    }
}
