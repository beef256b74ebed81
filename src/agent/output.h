/* agent/output.h - output of workers: from pipes to whole lines on the console, to files, or both.
 *
 * Everything runs on the agent's loop; there is no thread. Memory is bounded: when the console
 * takes nothing, pipes are not read, and workers wait as they would for the console itself. A
 * stream that is redirected is the file itself, and nothing of it passes through here.
 *
 * Files:
 *
 *   DIR/RUN_ID_XXXXXX/                        one per agent
 *     gen_G/                                  one per generation, never removed or written again
 *       rank_R.local_L/stdout.log stderr.log error.json heartbeat ack
 *       filtered_stdout.log filtered_stderr.log
 *     attempt_N/L -> ../gen_G/rank_R.local_L  where torchrun's users look; the last of attempt N */
#ifndef MST_AGENT_OUTPUT_H
#define MST_AGENT_OUTPUT_H

#include <muster/error.h>
#include <stdbool.h>
#include <uv.h>

#include "agent/ranks.h"
#include "base/buf.h"

struct mst__output; /* opaque */

/* Borrowed for the life of the output. */
struct mst__output_options {
    size_t workers_count;
    const char *log_dir; /* NULL = a temporary one, "" = no files */
    bool keeps_logs;     /* a temporary one, after success */
    const char *run_id;
    const char *role;
    const char *hostname;
    const struct mst__rank_streams *redirects, *tee;
    const struct mst__rank_set *console_ranks;
    const char *const *stdout_filters, *const *stderr_filters; /* ended by NULL; NULL = none */
    const char *prefix_template;
    bool is_json;
    int stdout_fd, stderr_fd; /* of the console; stay the caller's */
};

/* 0, MST_ENOMEM, MST_ESYS (a directory cannot be made). */
int mst__output_new(uv_loop_t *loop,
                    const struct mst__output_options *options,
                    struct mst__output **ret_output,
                    struct mst_err *reterr);

/* The directory of this agent's logs; "" = none. */
const char *mst__output_directory(const struct mst__output *output);

/* A new generation of workers. All of the last one are finished. @first_rank is the global rank of
 * local rank 0. 0, MST_ENOMEM, MST_ESYS. */
int mst__output_begin(struct mst__output *output,
                      int64_t generation,
                      int64_t restart_count,
                      int64_t first_rank,
                      struct mst_err *reterr);

/* The path of a file of this worker's in this generation, such as "error.json"; NULL = no files.
 * Valid until the next generation. */
const char *mst__output_path(struct mst__output *output, size_t local_rank, const char *name);

/* What the worker gets as descriptors 1 and 2. The caller passes them on and closes them in any
 * case. Call it just before the worker starts. 0, MST_ESYS, MST_ENOMEM. */
int mst__output_open_worker(struct mst__output *output,
                            size_t local_rank,
                            int ret_fds[2],
                            struct mst_err *reterr);

/* It runs; for ${pid} in prefixes. */
void mst__output_set_pid(struct mst__output *output, size_t local_rank, int64_t pid);

/* The worker has ended: take what is left in its pipes and close them. Processes that it has left
 * behind and that hold the pipe do not keep us. */
void mst__output_finish_worker(struct mst__output *output, size_t local_rank);

/* The last lines of its stderr in this generation (MST_OUTPUT_TAIL_LINES, of the file if it is
 * redirected), also after it is finished. 0 or MST_ENOMEM; @ret_text is appended to. */
int mst__output_tail(struct mst__output *output, size_t local_rank, struct mst__buf *ret_text);

/* Whether all lines are on the console; else @cb is called once when they are. */
bool mst__output_flushed(struct mst__output *output, void (*cb)(void *arg), void *arg);

/* Write what can be written within @timeout_ms, blocking; then give up. */
void mst__output_drain(struct mst__output *output, int64_t timeout_ms);

/* Let lines of our own stand between whole lines of workers: write @text, which ends with a
 * newline, to the console's stderr behind what is there already. */
void mst__output_say(struct mst__output *output, struct mst_bytes text);

/* Close everything, and remove a temporary directory if @is_success and it is not to be kept. The
 * memory goes when the loop has closed the handles: run the loop once more. */
void mst__output_free(struct mst__output *output, bool is_success);

#endif /* MST_AGENT_OUTPUT_H */
