/* agent/run_workers.c - a generation of workers: their commands, starts and ends, and the files by
 * which they talk to the agent. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/numa.h"
#include "agent/run_self.h"
#include "agent/signal_survived.h"
#include "agent/worker_env.h"
#include "base/assert.h"
#include "base/err.h"
#include "base/signal_name.h"

#define HEARTBEAT_FILE "heartbeat"
#define ACK_FILE "ack"

/* --- starting --- */

/* The path of a file of the worker, valid as long as the generation. NULL = no files, or no memory,
 * which the next allocation reports. */
static const char *keep_path(struct mst__run *run, uint32_t worker, const char *name)
{
    const char *path = mst__output_path(run->output, worker, name);
    return path == NULL ? NULL : mst__arena_text(&run->arena, mst_bytes_str(path));
}

/* Why the round began: the same on all nodes, or without an authority, as this node sees it. */
static const char *reason_of(const struct mst__run *run)
{
    switch (run->round.start) {
        case MST_START_FIRST:
            return mst__agent_reason_name(MST_AGENT_REASON_FIRST);
        case MST_START_JOINED:
            return mst__agent_reason_name(MST_AGENT_REASON_JOIN);
        case MST_START_LOST:
        case MST_START_LEFT:
            return mst__agent_reason_name(MST_AGENT_REASON_LEAVE);
        case MST_START_FAILED:
            return mst__agent_reason_name(MST_AGENT_REASON_FAILURE);
        case MST_START_ASKED:
            return mst__agent_reason_name(MST_AGENT_REASON_REQUEST);
        case MST_START_UNKNOWN:
            break;
    }
    return mst__agent_reason_name(run->was_asked ? MST_AGENT_REASON_REQUEST : run->agent.reason);
}

static void place_of(struct mst__run *run, uint32_t worker, struct mst__worker_place *ret_place)
{
    const struct mst__assignment *part = &run->assignment;
    const struct mst_rendezvous *round = &run->round;
    *ret_place = (struct mst__worker_place){
        .rank = part->first_rank + worker,
        .world_size = part->world_size,
        .local_rank = run->settings->local_first + worker,
        .local_world_size = run->settings->local_size,
        .group_rank = round->rank,
        .group_world_size = round->world_size,
        .role_rank = part->role_first_rank + worker,
        .role_world_size = part->role_world_size,
        .master_addr = part->master_addr,
        .master_port = part->master_port,
        .use_agent_store = mst_handler_use_agent_store(run->handler),
        .round = round->round,
        .restart_count = run->agent.restarts,
        .generation = run->agent.generation,
        .start_reason = reason_of(run),
        .prev_world_size = run->prev_world_size,
        .store_url = run->store_url,
        .error_file = keep_path(run, worker, "error.json"),
        .ack_file = keep_path(run, worker, ACK_FILE),
        .heartbeat_file = keep_path(run, worker, HEARTBEAT_FILE),
        .timer_file = run->watchdog.loop == NULL ? NULL : run->watchdog.path,
    };
}

/* Prepare the start of a worker. Arguments and environment live as long as the generation; the
 * caller owns the descriptors. */
static int plan_worker(struct mst__run *run,
                       uint32_t worker,
                       struct mst__spawn_worker *spawn,
                       struct mst_err *reterr)
{
    const struct mst__run_settings *settings = run->settings;
    struct mst__worker_place place;
    struct mst__worker_command command = {0};
    struct mst__cpu_set *cpus = NULL;
    int fds[2] = {-1, -1};
    place_of(run, worker, &place);
    int rv = mst__worker_command_make(settings, &place, run->options->environment, &run->arena,
                                      &command, reterr);
    if (rv == 0 && settings->numa != MST_NUMA_OFF) {
        struct mst__cpu_set allowed;
        /* Other agents on this node use other GPUs; the CPUs that we may use are ours alone. */
        bool has_gpus = settings->machine.gpus > 0;
        mst__cpu_set_allowed(&allowed);
        cpus = mst__arena_take(&run->arena, sizeof *cpus);
        rv = cpus == NULL ? mst__fail(reterr, MST_ENOMEM, 0, "CPUs of a worker")
                          : mst__numa_cpus("", settings->numa, has_gpus ? place.local_rank : worker,
                                           has_gpus ? settings->local_size : settings->nproc,
                                           &allowed, cpus, reterr);
    }
    rv = rv == 0 ? mst__output_open_worker(run->output, worker, fds, reterr) : rv;
    *spawn = (struct mst__spawn_worker){
        .argv = command.argv,
        .environment = command.environment,
        .cwd = settings->cwd,
        .input_fd = place.rank == 0 ? STDIN_FILENO : -1, /* one reader: others would take parts */
        .output_fd = fds[0],
        .error_fd = fds[1],
        .cpus = cpus,
    };
    return rv;
}

static void note_start(struct mst__run *run, uint32_t worker)
{
    struct mst__json_writer *line = mst__events_begin(&run->events, "start");
    if (line != NULL) {
        mst__json_put_number(line, "generation", run->agent.generation);
        mst__json_put_number(line, "round", run->round.round);
        mst__json_put_number(line, "restarts", run->agent.restarts);
        mst__json_put_number(line, "local_rank", run->settings->local_first + worker);
        mst__json_put_number(line, "rank", run->assignment.first_rank + worker);
        mst__json_put_number(line, "world_size", run->assignment.world_size);
        mst__json_put_number(line, "worker_pid", run->group.pids[worker]);
        mst__events_end(&run->events);
    }
}

static void close_fds(const struct mst__spawn_worker *spawn)
{
    if (spawn->output_fd >= 0) {
        (void)close(spawn->output_fd); /* the worker has a copy */
    }
    if (spawn->error_fd >= 0) {
        (void)close(spawn->error_fd);
    }
}

/* Plan and start all workers, and close their descriptors in this process. */
static int start_planned(struct mst__run *run,
                         struct mst__spawn_worker *spawns,
                         uint32_t *ret_failed,
                         struct mst_err *reterr)
{
    uint32_t planned = 0;
    int rv = 0;
    while (planned < run->group.count && rv == 0) {
        rv = plan_worker(run, planned, &spawns[planned], reterr);
        planned++;
    }
    rv = rv == 0 ? mst__group_start(&run->group, spawns, ret_failed, reterr) : rv;
    for (uint32_t i = 0; i < planned; i++) {
        close_fds(&spawns[i]);
    }
    return rv;
}

static int start_all(struct mst__run *run, uint32_t *ret_failed, struct mst_err *reterr)
{
    *ret_failed = 0;
    mst__watchdog_forget(&run->watchdog);
    mst__arena_close(&run->arena);
    int rv = mst__output_begin(run->output, run->agent.generation, run->agent.restarts,
                               run->assignment.first_rank, reterr);
    struct mst__spawn_worker *spawns =
        mst__arena_take(&run->arena, run->group.count * sizeof *spawns);
    if (rv == 0) {
        rv = spawns == NULL ? mst__fail(reterr, MST_ENOMEM, 0, "%u workers", run->group.count)
                            : start_planned(run, spawns, ret_failed, reterr);
    }
    for (uint32_t i = 0; i < run->group.count; i++) {
        run->beats_ns[i] = INT64_MIN; /* no heartbeat yet */
        if (run->group.pids[i] != 0) {
            run->last_pids[i] = run->group.pids[i];
            mst__output_set_pid(run->output, i, run->group.pids[i]);
            note_start(run, i);
        }
    }
    return rv;
}

void mst__run_start(struct mst__run *run)
{
    struct mst_err err;
    uint32_t failed;
    if (start_all(run, &failed, &err) != 0) {
        mst__run_step(run, (struct mst__agent_event){
                               .kind = MST_AGENT_EVENT_UNSTARTED,
                               .worker = failed,
                               .err = &err,
                               .status = mst__spawn_status(&err),
                           });
    }
}

/* --- ends --- */

static void note_end(struct mst__run *run, uint32_t worker, int status, int signal)
{
    struct mst__json_writer *line = mst__events_begin(&run->events, "exit");
    if (line != NULL) {
        mst__json_put_number(line, "generation", run->agent.generation);
        mst__json_put_number(line, "local_rank", run->settings->local_first + worker);
        mst__json_put_number(line, "rank", run->assignment.first_rank + worker);
        mst__json_put_number(line, "exit_status", status);
        mst__json_put_number(line, "signal", signal);
        mst__events_end(&run->events);
    }
}

void mst__run_ended(void *arg, uint32_t worker, int status, int signal)
{
    struct mst__run *run = arg;
    mst__output_finish_worker(run->output, worker);
    note_end(run, worker, status, signal);
    mst__run_step(run, (struct mst__agent_event){
                           .kind = MST_AGENT_EVENT_EXITED,
                           .worker = worker,
                           .status = status,
                           .signal = (uint32_t)signal,
                       });
}

/* --- files of workers --- */

/* Get the time of the file @name of the worker, in nanoseconds since 1970. Another machine's clock
 * may have made it, so it is only compared with earlier times of the same file. Returns false if
 * there is no file. */
static bool touched_ns(struct mst__run *run, uint32_t worker, const char *name, int64_t *ret_ns)
{
    const char *path = mst__output_path(run->output, worker, name);
    struct stat status;
    if (path == NULL || stat(path, &status) != 0) {
        return false;
    }
    *ret_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
    return true;
}

void mst__run_look_beats(struct mst__run *run)
{
    bool is_watched = run->settings->hang_ms != 0 || run->settings->startup_ms != 0;
    for (uint32_t i = 0; i < run->group.count && is_watched; i++) {
        int64_t beat_ns = 0;
        if (run->group.pids[i] != 0 && touched_ns(run, i, HEARTBEAT_FILE, &beat_ns) &&
            beat_ns != run->beats_ns[i]) {
            run->beats_ns[i] = beat_ns;
            mst__run_step(run,
                          (struct mst__agent_event){.kind = MST_AGENT_EVENT_BEAT, .worker = i});
        }
    }
}

void mst__run_look_acks(struct mst__run *run)
{
    for (uint32_t i = 0; i < run->group.count && run->agent.notice_us != INT64_MAX; i++) {
        const struct mst__agent_worker *worker = &run->agent.options.workers[i];
        int64_t ignored_ns;
        bool has_answered = run->group.pids[i] != 0 && worker->is_noticed && !worker->has_saved &&
                            touched_ns(run, i, ACK_FILE, &ignored_ns);
        if (has_answered) {
            mst__run_step(run,
                          (struct mst__agent_event){.kind = MST_AGENT_EVENT_SAVED, .worker = i});
        }
    }
}

void mst__run_forget_ack(struct mst__run *run, uint32_t worker)
{
    const char *path = mst__output_path(run->output, worker, ACK_FILE);
    if (path != NULL) {
        (void)unlink(path); /* usually there is none */
    }
}

/* --- signals that not every worker can get --- */

void mst__run_look_handlers(struct mst__run *run)
{
    int signal = run->settings->notice_signal;
    for (uint32_t i = 0; i < run->group.count && run->agent.notice_us != INT64_MAX; i++) {
        bool hears = run->group.pids[i] != 0 && !run->agent.options.workers[i].is_noticed &&
                     mst__signal_is_survived(run->group.pids[i], signal);
        if (hears) {
            mst__run_step(run,
                          (struct mst__agent_event){.kind = MST_AGENT_EVENT_HEARS, .worker = i});
        }
    }
}

void mst__run_forward(struct mst__run *run, int signal)
{
    uint32_t deaf_count = 0;
    for (uint32_t i = 0; i < run->group.count; i++) {
        if (run->group.pids[i] == 0) {
            continue;
        }
        if (mst__signal_is_survived(run->group.pids[i], signal)) {
            mst__group_signal(&run->group, i, signal);
        } else {
            deaf_count++;
        }
    }
    if (deaf_count > 0) {
        const char *name = mst__signal_name(signal);
        mst__run_say(run, "muster: %s is not passed on to %u worker%s: no handler, it would end %s",
                     name != NULL ? name : strsignal(signal), deaf_count,
                     deaf_count == 1 ? "" : "s", deaf_count == 1 ? "it" : "them");
    }
}
