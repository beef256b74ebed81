/* agent/output.h - output of workers: from pipes to whole lines on the console, to files, or both.
 *
 * Everything runs on the agent's loop, without a thread. Memory is bounded: if the console accepts
 * nothing, pipes are not read, and workers block as they would on the console itself. A worker
 * writes a redirected stream directly to its file; it does not pass through here.
 *
 * Files:
 *
 *   DIR/RUN_ID_XXXXXX/                        one per agent
 *     gen_G/                                  one per generation; later ones leave it unchanged
 *       rank_R.local_L/stdout.log stderr.log error.json heartbeat ack
 *       filtered_stdout.log filtered_stderr.log
 *     attempt_N/L -> ../gen_G/rank_R.local_L  torchrun's path; the last one of attempt N */
#ifndef MST_AGENT_OUTPUT_H
#define MST_AGENT_OUTPUT_H

#include <muster/error.h>
#include <stdbool.h>
#include <uv.h>

#include "agent/ranks.h"
#include "base/buf.h"

struct mst__output; /* opaque */

/* What the pointers refer to is borrowed and must outlive the output. */
struct mst__output_options {
    size_t workers_count;
    int64_t local_first; /* the LOCAL_RANK of worker 0, for texts */
    const char *log_dir; /* NULL = a temporary directory, "" = no files */
    bool needs_files;    /* else a temporary directory that cannot be made means: no files */
    bool keeps_logs;     /* keep a temporary directory after success */
    const char *run_id;
    const char *role;
    const char *hostname;
    const struct mst__rank_streams *redirects, *tee;
    const struct mst__rank_set *console_ranks;
    const char *const *stdout_filters, *const *stderr_filters; /* ended by NULL; NULL = none */
    const char *prefix_template;
    bool is_json;
    int stdout_fd, stderr_fd; /* of the console; the caller owns them */
    /* Called for each line of a worker; true if it took the line, which then goes nowhere. NULL =
     * none, and a single worker's output is copied as it comes, else in whole lines. */
    bool (*takes_line)(void *arg, size_t local_rank, bool is_stderr, struct mst_bytes line);
    void *takes_line_arg;
};

/* Returns 0, MST_ENOMEM, or MST_ESYS if a directory cannot be made. */
int mst__output_new(uv_loop_t *loop,
                    const struct mst__output_options *options,
                    struct mst__output **ret_output,
                    struct mst_err *reterr);

/* The log directory of this agent; "" = none. */
const char *mst__output_directory(const struct mst__output *output);

/* Begin a new generation of workers. All workers of the previous one must be finished. @first_rank
 * is the global rank of local rank 0. Returns 0 or MST_ESYS. */
int mst__output_begin(struct mst__output *output,
                      int64_t generation,
                      int64_t restart_count,
                      int64_t first_rank,
                      struct mst_err *reterr);

/* The path of the worker's file @name, such as "error.json", in this generation; NULL = no files.
 * Valid until the next call for this worker. */
const char *mst__output_path(struct mst__output *output, size_t local_rank, const char *name);

/* Open what becomes descriptors 1 and 2 of the worker, just before it starts. The caller passes
 * them on and must close them, also after an error if they are not -1. Returns 0, MST_ESYS or
 * MST_ENOMEM. */
int mst__output_open_worker(struct mst__output *output,
                            size_t local_rank,
                            int ret_fds[2],
                            struct mst_err *reterr);

/* Set the pid of a running worker, for ${pid} in prefixes. */
void mst__output_set_pid(struct mst__output *output, size_t local_rank, int64_t pid);

/* The worker has ended: read what is left in its pipes, and close them. Processes that it left
 * behind may still hold the pipes; they are not waited for. */
void mst__output_finish_worker(struct mst__output *output, size_t local_rank);

/* Append the last lines of the worker's stderr in this generation to @ret_text: at most
 * MST_OUTPUT_TAIL_LINES, from the file if stderr is redirected. The worker may be finished. Returns
 * 0, MST_ELIMIT or MST_ENOMEM. */
int mst__output_tail(struct mst__output *output, size_t local_rank, struct mst__buf *ret_text);

/* Whether all lines are written to the console. If not, @cb is called once when they are. */
bool mst__output_flushed(struct mst__output *output, void (*cb)(void *arg), void *arg);

/* Whether the console accepts nothing, so that workers are not read now. */
bool mst__output_is_full(const struct mst__output *output);

/* Write pending lines to the console. Blocks, and gives up after @timeout_ms. */
void mst__output_drain(struct mst__output *output, int64_t timeout_ms);

/* Write @text, which must end with a newline, to the console's stderr after the pending lines, so
 * that messages of the agent stand between whole lines of workers. */
void mst__output_say(struct mst__output *output, struct mst_bytes text);

/* The same on the console's stdout. */
void mst__output_print(struct mst__output *output, struct mst_bytes text);

/* Close everything, and remove a temporary directory if @is_success and it is not to be kept. The
 * memory is released when the loop has closed the handles: run the loop once more. Does nothing if
 * @output is NULL. */
void mst__output_free(struct mst__output *output, bool is_success);

#endif /* MST_AGENT_OUTPUT_H */
