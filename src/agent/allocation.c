/* agent/allocation.c - runs squeue. The releases of Slurm before 23.02 do not set
 * SLURM_JOB_END_TIME. */
#include "agent/allocation.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/spawn.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/number.h"
#include "base/until.h"

/* Time for squeue, which asks a controller that may be busy or out of reach. */
#define ANSWER_MS 5000
#define ANSWER_SIZE 64

/* Read the first line that arrives at @fd by @until, up to the size of the answer, which ends with
 * '\0'. Returns whether its end was seen. */
static bool read_answer(int fd, struct mst__until until, char ret_answer[ANSWER_SIZE])
{
    size_t used = 0;
    bool is_whole = false;
    while (!is_whole && used < ANSWER_SIZE - 1 && mst__until_ready(until, fd, POLLIN) == 0) {
        ssize_t got = read(fd, ret_answer + used, ANSWER_SIZE - 1 - used);
        is_whole = got == 0 || (got > 0 && memchr(ret_answer + used, '\n', (size_t)got) != NULL);
        used += got > 0 ? (size_t)got : 0;
        if (got < 0 && errno != EINTR && errno != EAGAIN) {
            break;
        }
    }
    ret_answer[used] = '\0';
    return is_whole;
}

/* Run squeue and read its answer. */
static int ask(const char *job, char ret_answer[ANSWER_SIZE], struct mst_err *reterr)
{
    char jobs[60];
    (void)snprintf(jobs, sizeof jobs, "--jobs=%.40s", job);
    char *const argv[] = {(char *)"env",
                          (char *)"SLURM_TIME_FORMAT=%s",
                          (char *)"squeue",
                          (char *)"--noheader",
                          (char *)"--format=%e",
                          jobs,
                          NULL};
    int fds[2] = {-1, -1};
    pid_t pid = 0;
    int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null_fd < 0 || pipe2(fds, O_CLOEXEC) != 0) {
        int sys = errno;
        if (null_fd >= 0) {
            (void)close(null_fd); /* never used */
        }
        return mst__fail(reterr, MST_ESYS, sys, "a pipe from squeue");
    }
    const struct mst__spawn_worker command = {
        .argv = argv, .environment = environ, .output_fd = fds[1], .error_fd = null_fd};
    int rv = mst__spawn_worker(&command, &pid, reterr);
    (void)close(fds[1]); /* the child has it; the same below */
    (void)close(null_fd);
    if (rv == 0) {
        int status = 0;
        bool is_whole = read_answer(fds[0], mst__until_in(ANSWER_MS), ret_answer);
        (void)kill(-pid, SIGKILL); /* its session; if it has ended, it is not reaped yet */
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        bool has_failed = is_whole && ret_answer[0] == '\0';
        rv = !is_whole    ? mst__fail(reterr, MST_ETIMEOUT, 0, "squeue gave no answer within %d s",
                                      ANSWER_MS / 1000)
             : has_failed ? mst__fail(reterr, MST_ESTATE, 0, "squeue is not there or has failed")
                          : 0;
    }
    (void)close(fds[0]); /* it was only read */
    return rv;
}

/* A signal that is for workers does not end the agent before there are any. The agent's loop takes
 * these signals over. */
static void ignore_forwarded(const struct mst__run_settings *settings)
{
    const struct mst__signal_list *list = &settings->forward_signals;
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    for (size_t i = 0; i < list->count; i++) {
        (void)sigaction(list->numbers[i], &ignore, NULL); /* cannot fail: they were checked */
    }
}

static void tell(struct mst__run_settings *settings, const char *why)
{
    const char *text = mst__arena_text(&settings->arena, mst_bytes_str(why));
    settings->end_time_none = text == NULL ? "out of memory" : text;
}

void mst__allocation_find_end(struct mst__run_settings *settings)
{
    struct mst__setting_value *value = &settings->values[MST_SETTING_END_TIME];
    const char *job = settings->scheduler.slurm_job;
    char answer[ANSWER_SIZE];
    char text[MST_NUMBER_SIZE + 1];
    struct mst_err err = {0};
    int64_t end_s = 0;
    bool matters = settings->notice_signal != 0 || settings->is_explain;
    if (value->text != NULL || !matters || job == NULL) {
        settings->end_time_none = "no variable has it";
        return;
    }
    ignore_forwarded(settings);
    if (ask(job, answer, &err) != 0) {
        settings->end_time_is_unknown = true;
        tell(settings, err.msg);
        return;
    }
    /* Without a limit, squeue writes NONE or N/A. */
    answer[strcspn(answer, " \n")] = '\0';
    if (!mst__number_parse(mst_bytes_str(answer), 1, INT64_MAX, &end_s)) {
        tell(settings, "squeue says that the job has no end");
        return;
    }
    (void)snprintf(text, sizeof text, "%" PRId64, end_s); /* fits */
    const char *kept = mst__arena_text(&settings->arena, mst_bytes_str(text));
    if (kept == NULL) {
        tell(settings, "out of memory");
        return;
    }
    *value = (struct mst__setting_value){
        .text = kept, .origin = "squeue", .source = MST_SOURCE_SCHEDULER};
    settings->end_time_s = end_s;
}
