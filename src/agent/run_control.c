/* agent/run_control.c - publishes the state of a run, and executes commands. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/control_store.h"
#include "agent/run_self.h"
#include "base/clock.h"
#include "base/limits.h"

static void worker_at(void *arg, int64_t i, struct mst__control_worker *ret_worker)
{
    const struct mst__run *run = arg;
    *ret_worker = (struct mst__control_worker){
        .rank = run->assignment.first_rank + i,
        .local_rank = run->settings->local_first + i,
        .pid = run->last_pids[i],
        .is_running = run->group.pids[i] != 0,
    };
}

void mst__run_publish(struct mst__run *run)
{
    const struct mst__run_settings *settings = run->settings;
    if (run->control == NULL) {
        return;
    }
    struct mst__control_node node = {
        .pid = getpid(),
        .group_rank = run->round.rank,
        .generation = run->agent.generation,
        .round = run->round.round,
        .restarts = run->agent.restarts,
        .workers_count = run->agent.generation == 0 ? 0 : run->group.count,
        .nodes_min = settings->nodes_min,
        .is_leaving = run->agent.drains,
    };
    (void)snprintf(node.node, sizeof node.node, "%s", mst_handler_node(run->handler));
    (void)snprintf(node.host, sizeof node.host, "%s", settings->machine.hostname);
    (void)snprintf(node.role, sizeof node.role, "%s", settings->role);
    (void)snprintf(node.phase, sizeof node.phase, "%s", mst__agent_phase_name(run->agent.phase));
    (void)snprintf(node.log_dir, sizeof node.log_dir, "%s", mst__output_directory(run->output));
    struct mst__buf text;
    mst__buf_init(&text, MST_CONTROL_NODE_SIZE_MAX);
    if (mst__control_node_write(&node, worker_at, run, &text) == 0) {
        mst__control_publish(run->control, mst__buf_bytes(&text), node.log_dir, node.generation,
                             run->assignment.first_rank, node.workers_count);
    }
    mst__buf_close(&text);
}

/* Restart the workers on all nodes. An authority gives the other nodes the reason; without one,
 * this node does. */
static void ask_all(struct mst__run *run)
{
    if (mst__run_is_shared(run) && run->round.world_size > 1) {
        mst__run_call(run, mst__run_call_new(run, MST_CALL_ASKED));
    } else {
        mst__run_step(run, (struct mst__agent_event){.kind = MST_AGENT_EVENT_RESTART});
    }
}

/* A mst__control_fn. Only rank 0 executes a restart: when its workers stop, those of all nodes
 * do. */
static bool asked(void *arg, const struct mst__control_command *command)
{
    struct mst__run *run = arg;
    if (!run->has_agent || run->is_ended) {
        return false;
    }
    if (command->kind == MST_CONTROL_RESTART) {
        bool is_ours = run->round.rank == 0;
        if (is_ours) {
            mst__run_say(run, "muster: asked to restart the workers");
            ask_all(run);
        }
        return is_ours;
    }
    bool is_meant = strcmp(command->node, mst_handler_node(run->handler)) == 0 ||
                    strcmp(command->node, run->settings->machine.hostname) == 0;
    if (command->kind != MST_CONTROL_DRAIN || !is_meant) {
        return false;
    }
    mst__run_say(run, "muster: asked to leave the job");
    int64_t now_us = mst__clock_us();
    mst__run_step(
        run,
        (struct mst__agent_event){
            .kind = MST_AGENT_EVENT_DRAIN,
            .deadline_us = command->within_ms < 0 ? INT64_MAX : now_us + command->within_ms * 1000,
        });
    mst__run_publish(run);
    return true;
}

void mst__run_listen(struct mst__run *run)
{
    struct mst_err err; /* ignored: there are no commands then, and the job does not need them */
    bool is_asked = !run->settings->is_standalone && /* its server is private */
                    mst__control_store_kind(run->settings->backend) != MST_CONTROL_NOWHERE;
    if (is_asked && run->control == NULL && run->round.store != NULL && !run->is_ended) {
        (void)mst__control_new(&run->loop, run->round.store, run->options->params,
                               mst_handler_node(run->handler), asked, run, &run->control, &err);
        mst__run_publish(run);
    }
}
