/* agent/group.c - signals to workers, and their ends. */
#include "agent/group.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"

/* --- what workers leave behind --- */

/* The parent of process @pid; 0 = it is not there. */
static pid_t parent_of(long pid)
{
    char path[40];
    char line[512];
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    size_t size = fread(line, 1, sizeof line - 1, file);
    (void)fclose(file); /* it was only read */
    line[size] = '\0';
    const char *name_end = strrchr(line, ')'); /* the name may have anything in it */
    int parent = 0;
    char state = ' ';
    if (name_end == NULL || sscanf(name_end + 1, " %c %d", &state, &parent) != 2) {
        return 0;
    }
    return state == 'Z' ? 0 : (pid_t)parent;
}

/* Kill all our children. No worker is among them. */
static void kill_children(void)
{
    DIR *processes = opendir("/proc");
    if (processes == NULL) {
        return; /* nothing can be found out; they are told as left */
    }
    pid_t self = getpid();
    for (const struct dirent *entry = readdir(processes); entry != NULL;
         entry = readdir(processes)) {
        if (isdigit((unsigned char)entry->d_name[0])) {
            long pid = strtol(entry->d_name, NULL, 10);
            if (parent_of(pid) == self) {
                (void)kill((pid_t)pid, SIGKILL); /* it may have ended */
            }
        }
    }
    (void)closedir(processes); /* it was only read */
}

/* Whether there is no child of ours any more. Those that have ended are taken away before. */
static bool is_childless(void)
{
    siginfo_t info = {0};
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
}

/* --- ends --- */

static uint32_t find(const struct mst__group *group, pid_t pid)
{
    for (uint32_t i = 0; i < group->count; i++) {
        if (group->pids[i] == pid) {
            return i;
        }
    }
    return UINT32_MAX;
}

static void tell_last(struct mst__group *group)
{
    if (group->has_last) {
        group->has_last = false;
        (void)uv_timer_stop(&group->sweep); /* cannot fail */
        group->ended(group->arg, group->last, group->last_status, group->last_signal);
    }
}

/* All workers have ended: what they have left behind goes, too. */
static void sweep(struct mst__group *group)
{
    if (is_childless() || mst__clock_ms() >= group->sweep_ms) {
        tell_last(group);
    } else {
        kill_children();
    }
}

static void on_sweep(uv_timer_t *timer)
{
    sweep(timer->data);
}

static void end_worker(struct mst__group *group, uint32_t worker, const siginfo_t *info)
{
    bool is_exit = info->si_code == CLD_EXITED;
    int status = is_exit ? info->si_status : 0;
    int signal = is_exit ? 0 : info->si_status;
    group->pids[worker] = 0;
    group->running_count--;
    if (group->running_count > 0) {
        group->ended(group->arg, worker, status, signal);
        return;
    }
    MST_ASSERT(!group->has_last);
    group->has_last = true;
    group->last = worker;
    group->last_status = status;
    group->last_signal = signal;
    group->sweep_ms = mst__clock_deadline_ms(MST_GROUP_SWEEP_MS);
}

/* Processes have ended: workers, and what was left of some. */
static void on_child(uv_signal_t *handle, int number)
{
    struct mst__group *group = handle->data;
    (void)number;
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
            break;
        }
        uint32_t worker = find(group, info.si_pid);
        if (worker != UINT32_MAX) {
            /* While the process is not collected its number cannot be another group's. */
            (void)kill(-info.si_pid, SIGKILL); /* nobody may be left */
        }
        siginfo_t ignored;
        if (waitid(P_PID, (id_t)info.si_pid, &ignored, WEXITED | WNOHANG) != 0) {
            break;
        }
        if (worker != UINT32_MAX) {
            end_worker(group, worker, &info);
        }
    }
    if (group->has_last) {
        /* A process that is killed between two looks leaves its children to us. */
        (void)uv_timer_start(&group->sweep, on_sweep, MST_GROUP_LOOK_MS, MST_GROUP_LOOK_MS);
        sweep(group);
    }
}

/* --- life --- */

int mst__group_init(struct mst__group *group,
                    uv_loop_t *loop,
                    uint32_t count,
                    mst__group_ended_fn ended,
                    void *arg,
                    struct mst_err *reterr)
{
    *group = (struct mst__group){.count = count, .ended = ended, .arg = arg};
    (void)uv_timer_init(loop, &group->sweep); /* cannot fail */
    group->sweep.data = group;
    group->child.data = group;
    int reason = uv_signal_init(loop, &group->child);
    if (reason == 0) {
        reason = uv_signal_start(&group->child, on_child, SIGCHLD);
    }
    if (reason != 0) {
        return mst__fail(reterr, MST_ESYS, -reason, "signal handler");
    }
    group->pids = mst__calloc(count, sizeof *group->pids);
    if (group->pids == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "%u workers", count);
    }
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "become the reaper of what workers start");
    }
    return 0;
}

void mst__group_stop(struct mst__group *group)
{
    uv_close((uv_handle_t *)&group->sweep, NULL);
    uv_close((uv_handle_t *)&group->child, NULL);
}

void mst__group_close(struct mst__group *group)
{
    mst__free(group->pids);
    group->pids = NULL;
}

int mst__group_start(struct mst__group *group,
                     uint32_t worker,
                     const struct mst__spawn_worker *spawn,
                     struct mst_err *reterr)
{
    MST_ASSERT(group->pids[worker] == 0 && !group->has_last);
    pid_t pid = 0;
    int rv = mst__spawn_worker(spawn, &pid, reterr);
    if (rv == 0) {
        group->pids[worker] = pid;
        group->running_count++;
    }
    return rv;
}

/* --- signals --- */

void mst__group_signal(struct mst__group *group, uint32_t worker, int signal)
{
    for (uint32_t i = 0; i < group->count; i++) {
        pid_t pid = group->pids[i];
        if (pid != 0 && (worker == UINT32_MAX || worker == i)) {
            (void)kill(group->signals_all ? -pid : pid, signal); /* it may have ended */
        }
    }
}

void mst__group_kill(struct mst__group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        if (group->pids[i] != 0) {
            (void)kill(-group->pids[i], SIGKILL);
        }
    }
}
