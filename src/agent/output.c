/* agent/output.c - streams of workers, from their pipes to the console and to files.
 *
 * A stream is open while its worker runs. The loop watches its pipe unless the console is full.
 * Lines are put into the console's buffer, which is written once per turn. */
#include "agent/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/console.h"
#include "agent/line_format.h"
#include "agent/line_splitter.h"
#include "agent/log_tree.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"

#define STREAMS 2 /* stdout and stderr of a worker */

/* The last lines of a stream. */
struct tail {
    char lines[MST_OUTPUT_TAIL_LINES][MST_OUTPUT_TAIL_LINE_SIZE + 1];
    size_t count; /* all lines so far */
};

struct stream {
    struct mst__output *output;
    size_t local_rank;
    bool is_stderr;
    bool has_prefix;
    bool is_raw; /* bytes are copied unchanged: no other worker writes there */
    bool to_console;
    bool is_redirected;
    int fd;      /* read end of the pipe; -1 = none */
    int file_fd; /* log file of a tee; -1 = none */
    bool is_polling;
    uv_poll_t *poll; /* NULL = none; freed by the loop */
    struct mst__line_splitter splitter;
    struct mst__buf prefix;
    bool is_prefix_timed;
    struct tail *tail; /* only of stderr; NULL = no line yet */
};

struct mst__output {
    uv_loop_t *loop;
    struct mst__output_options options;
    struct mst__log_tree tree;
    int64_t generation;
    int64_t first_rank;
    int64_t *pids;
    char (*paths)[PATH_MAX];               /* last result of mst__output_path, per worker */
    struct stream *streams;                /* STREAMS per worker */
    struct mst__console consoles[STREAMS]; /* only one if stdout and stderr are the same file */
    size_t consoles_count, consoles_open;
    int filter_fds[STREAMS]; /* of this generation; -1 = not open yet */
    struct mst__json_writer json;
    bool is_file_broken; /* an error of a log file was reported */
    void (*flushed_cb)(void *arg);
    void *flushed_arg;
    uint8_t input[MST_OUTPUT_READ_SIZE];
};

static void on_readable(uv_poll_t *poll, int status, int events);

/* --- watching pipes --- */

static struct mst__console *console_at(struct mst__output *output, size_t which)
{
    return &output->consoles[which < output->consoles_count ? which : 0];
}

static bool is_all_written(const struct mst__output *output)
{
    bool is_it = true;
    for (size_t i = 0; i < output->consoles_count; i++) {
        is_it = is_it && mst__console_is_empty(&output->consoles[i]);
    }
    return is_it;
}

static struct mst__console *console_of(const struct stream *stream)
{
    return console_at(stream->output, stream->is_stderr ? 1 : 0);
}

static void watch(struct stream *stream)
{
    bool wants = stream->fd >= 0 && stream->poll != NULL &&
                 !(stream->to_console && mst__console_is_full(console_of(stream)));
    if (wants == stream->is_polling) {
        return;
    }
    stream->is_polling = wants;
    int rv =
        wants ? uv_poll_start(stream->poll, UV_READABLE, on_readable) : uv_poll_stop(stream->poll);
    MST_ASSERT(rv == 0);
}

/* The console has room again. */
static void on_room(void *arg)
{
    struct mst__output *output = arg;
    for (size_t i = 0; i < STREAMS * output->options.workers_count; i++) {
        watch(&output->streams[i]);
    }
    if (output->flushed_cb != NULL && is_all_written(output)) {
        void (*cb)(void *) = output->flushed_cb;
        output->flushed_cb = NULL;
        cb(output->flushed_arg);
    }
}

static void on_poll_closed(uv_handle_t *handle)
{
    mst__free(handle);
}

static void close_pipe(struct stream *stream)
{
    if (stream->poll != NULL) {
        uv_close((uv_handle_t *)stream->poll, on_poll_closed); /* also stops it */
        stream->poll = NULL;
        stream->is_polling = false;
    }
    if (stream->fd >= 0) {
        (void)close(stream->fd); /* only read from */
        stream->fd = -1;
    }
}

/* --- lines --- */

static void say_once(struct mst__output *output, const char *what)
{
    char text[PATH_MAX + 200];
    if (output->is_file_broken) {
        return;
    }
    output->is_file_broken = true;
    (void)snprintf(text, sizeof text, "muster: log files of workers are incomplete: %s: %s\n", what,
                   strerror(errno));
    mst__output_say(output, mst_bytes_str(text));
}

static void write_file(struct mst__output *output, int fd, struct mst_bytes text)
{
    while (text.size > 0 && fd >= 0) {
        ssize_t size = write(fd, text.data, text.size);
        if (size >= 0) {
            text = mst__bytes_skip(text, (size_t)size);
        } else if (errno != EINTR) {
            say_once(output, "cannot write");
            return;
        }
    }
}

static void remember(struct stream *stream, struct mst_bytes line, bool is_first)
{
    if (stream->tail == NULL) {
        stream->tail = mst__calloc(1, sizeof *stream->tail);
    }
    if (stream->tail == NULL || !is_first) {
        return; /* the first piece of a long line is enough */
    }
    char *to = stream->tail->lines[stream->tail->count++ % MST_OUTPUT_TAIL_LINES];
    size_t size = line.size < MST_OUTPUT_TAIL_LINE_SIZE ? line.size : MST_OUTPUT_TAIL_LINE_SIZE;
    memcpy(to, line.data, size);
    to[size] = '\0';
}

static struct mst__line_source source_of(const struct stream *stream)
{
    const struct mst__output *output = stream->output;
    return (struct mst__line_source){
        .role = output->options.role,
        .hostname = output->options.hostname,
        .rank = output->first_rank + (int64_t)stream->local_rank,
        .local_rank = output->options.local_first + (int64_t)stream->local_rank,
        .generation = output->generation,
        .pid = output->pids[stream->local_rank],
        .is_stderr = stream->is_stderr,
    };
}

static void make_prefix(struct stream *stream)
{
    struct mst__line_source source = source_of(stream);
    mst__buf_clear(&stream->prefix);
    (void)mst__line_prefix(stream->output->options.prefix_template, &source, mst__clock_wall_us(),
                           &stream->prefix); /* without memory, a shorter prefix */
}

static struct mst_bytes prefix_of(struct stream *stream)
{
    if (stream->is_prefix_timed) {
        make_prefix(stream);
    }
    return mst__buf_bytes(&stream->prefix);
}

static void show_line(struct stream *stream, const struct mst__line *line)
{
    struct mst__console *console = console_of(stream);
    struct mst__output *output = stream->output;
    struct mst_bytes text = line->text;
    if (output->options.is_json) {
        struct mst__line_source source = source_of(stream);
        bool is_part = !line->is_first || !line->is_last;
        mst__line_json(&output->json, &source, mst__clock_wall_us(), line->text, is_part);
        text = mst__buf_bytes(&output->json.text);
        if (output->json.code != 0) {
            console->lost_count += line->text.size;
            return;
        }
    } else if (stream->has_prefix) {
        (void)mst__console_put(console, prefix_of(stream)); /* the console counts lost bytes */
    }
    (void)mst__console_put(console, text);
    (void)mst__console_put(console, mst_bytes_str("\n"));
}

/* Copy the line to the file that collects matching lines of all teed workers. */
static void copy_filtered(struct stream *stream, const struct mst__line *line)
{
    struct mst__output *output = stream->output;
    size_t which = stream->is_stderr ? 1 : 0;
    char path[PATH_MAX];
    if (output->filter_fds[which] < 0) {
        if (!mst__log_tree_path(&output->tree, -1,
                                which == 1 ? "filtered_stderr.log" : "filtered_stdout.log", path)) {
            return;
        }
        output->filter_fds[which] =
            open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
        if (output->filter_fds[which] < 0) {
            say_once(output, path);
            return;
        }
    }
    write_file(output, output->filter_fds[which], prefix_of(stream));
    write_file(output, output->filter_fds[which], line->text);
    write_file(output, output->filter_fds[which], mst_bytes_str("\n"));
}

static void take_line(struct stream *stream, const struct mst__line *line)
{
    const struct mst__output_options *options = &stream->output->options;
    const char *const *filters =
        stream->is_stderr ? options->stderr_filters : options->stdout_filters;
    if (options->takes_line != NULL &&
        options->takes_line(options->takes_line_arg, stream->local_rank, stream->is_stderr,
                            line->text)) {
        return;
    }
    if (stream->is_stderr) {
        remember(stream, line->text, line->is_first);
    }
    if (stream->to_console && !stream->is_raw) {
        show_line(stream, line);
    }
    if (stream->file_fd >= 0 && filters != NULL && mst__line_matches(line->text, filters)) {
        copy_filtered(stream, line);
    }
}

static void take_bytes(struct stream *stream, struct mst_bytes bytes)
{
    struct mst__line line;
    write_file(stream->output, stream->file_fd, bytes);
    if (stream->to_console && stream->is_raw) {
        (void)mst__console_put(console_of(stream), bytes); /* the console counts lost bytes */
    }
    mst__line_splitter_feed(&stream->splitter, bytes);
    while (mst__line_splitter_next(&stream->splitter, &line)) {
        take_line(stream, &line);
    }
}

/* Read once. Returns the number of bytes, 0 at the end or after an error, -1 if there is nothing
 * now. */
static ssize_t read_some(struct stream *stream)
{
    struct mst__output *output = stream->output;
    ssize_t size = 0;
    do {
        size = read(stream->fd, output->input, sizeof output->input);
    } while (size < 0 && errno == EINTR);
    if (size > 0) {
        take_bytes(stream, mst_bytes_of(output->input, (size_t)size));
    }
    return size < 0 && errno != EAGAIN ? 0 : size;
}

static void end_stream(struct stream *stream)
{
    struct mst__line line;
    close_pipe(stream);
    if (mst__line_splitter_rest(&stream->splitter, &line)) {
        take_line(stream, &line);
    }
    mst__line_splitter_close(&stream->splitter);
    mst__line_splitter_init(&stream->splitter);
    if (stream->file_fd >= 0) {
        (void)close(stream->file_fd); /* failed writes were reported */
        stream->file_fd = -1;
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)events;
    struct stream *stream = poll->data;
    if (status < 0 || read_some(stream) == 0) {
        end_stream(stream);
    }
    mst__console_flush(console_of(stream));
    watch(stream);
}

/* --- opening --- */

static int open_log(struct stream *stream, int *ret_fd, struct mst_err *reterr)
{
    char path[PATH_MAX];
    if (!mst__log_tree_path(&stream->output->tree, (int64_t)stream->local_rank,
                            stream->is_stderr ? "stderr.log" : "stdout.log", path)) {
        *ret_fd = -1; /* no log files */
        return 0;
    }
    *ret_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
    return *ret_fd >= 0 ? 0 : mst__fail(reterr, MST_ESYS, errno, "open '%.150s'", path);
}

static int open_null(int *ret_fd, struct mst_err *reterr)
{
    *ret_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return *ret_fd >= 0 ? 0 : mst__fail(reterr, MST_ESYS, errno, "open '/dev/null'");
}

static int open_pipe(struct stream *stream, int *ret_fd, struct mst_err *reterr)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "pipe");
    }
    stream->fd = fds[0];
    *ret_fd = fds[1];
    stream->poll = mst__malloc(sizeof *stream->poll);
    if (stream->poll == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "pipe of a worker");
    }
    int rv =
        uv_poll_init(stream->output->loop, stream->poll, stream->fd); /* makes it nonblocking */
    if (rv != 0) {
        mst__free(stream->poll);
        stream->poll = NULL;
        return mst__fail(reterr, MST_ESYS, -rv, "pipe of a worker");
    }
    stream->poll->data = stream;
    watch(stream);
    return 0;
}

/* Choose where the stream goes, by the options. */
static void choose(struct stream *stream)
{
    const struct mst__output_options *options = &stream->output->options;
    int bit = stream->is_stderr ? MST_STREAM_STDERR : MST_STREAM_STDOUT;
    int64_t rank = (int64_t)stream->local_rank;
    bool is_teed = (mst__rank_streams_of(options->tee, rank) & bit) != 0;
    bool is_redirected = (mst__rank_streams_of(options->redirects, rank) & bit) != 0;
    stream->is_redirected = is_redirected && !is_teed;
    stream->has_prefix = is_teed;
    stream->to_console = !stream->is_redirected && mst__rank_set_has(options->console_ranks, rank);
    stream->is_raw =
        options->workers_count == 1 && !is_teed && !options->is_json && options->takes_line == NULL;
}

static int open_stream(struct stream *stream, int *ret_fd, struct mst_err *reterr)
{
    MST_ASSERT(stream->fd < 0);
    choose(stream);
    mst__free(stream->tail);
    stream->tail = NULL;
    stream->is_prefix_timed = strstr(stream->output->options.prefix_template, "${time}") != NULL;
    make_prefix(stream);
    int rv = 0;
    if (stream->has_prefix) {
        rv = open_log(stream, &stream->file_fd, reterr);
    }
    if (rv != 0) {
        return rv;
    }
    if (stream->is_redirected) {
        rv = open_log(stream, ret_fd, reterr);
        return rv != 0 || *ret_fd >= 0 ? rv : open_null(ret_fd, reterr);
    }
    if (!stream->to_console && stream->file_fd < 0 && !stream->is_stderr) {
        return open_null(ret_fd, reterr);
    }
    return open_pipe(stream, ret_fd, reterr);
}

int mst__output_open_worker(struct mst__output *output,
                            size_t local_rank,
                            int ret_fds[2],
                            struct mst_err *reterr)
{
    MST_ASSERT(local_rank < output->options.workers_count);
    output->pids[local_rank] = 0;
    ret_fds[0] = ret_fds[1] = -1;
    int rv = 0;
    for (size_t i = 0; i < STREAMS && rv == 0; i++) {
        rv = open_stream(&output->streams[STREAMS * local_rank + i], &ret_fds[i], reterr);
    }
    if (rv != 0) {
        mst__output_finish_worker(output, local_rank);
    }
    return rv;
}

void mst__output_set_pid(struct mst__output *output, size_t local_rank, int64_t pid)
{
    output->pids[local_rank] = pid;
    for (size_t i = 0; i < STREAMS; i++) {
        make_prefix(&output->streams[STREAMS * local_rank + i]);
    }
}

void mst__output_finish_worker(struct mst__output *output, size_t local_rank)
{
    for (size_t i = 0; i < STREAMS; i++) {
        struct stream *stream = &output->streams[STREAMS * local_rank + i];
        /* Read no more than a pipe holds: processes that the worker left behind may still write. */
        int held = stream->fd < 0 ? 0 : fcntl(stream->fd, F_GETPIPE_SZ);
        ssize_t size = 1;
        while (held > 0 && size > 0) {
            size = read_some(stream);
            held -= (int)size;
        }
        end_stream(stream);
        mst__console_flush(console_of(stream));
    }
}

/* --- the rest --- */

static void close_filters(struct mst__output *output)
{
    for (size_t i = 0; i < STREAMS; i++) {
        if (output->filter_fds[i] >= 0) {
            (void)close(output->filter_fds[i]); /* failed writes were reported */
        }
        output->filter_fds[i] = -1;
    }
}

int mst__output_begin(struct mst__output *output,
                      int64_t generation,
                      int64_t restart_count,
                      int64_t first_rank,
                      struct mst_err *reterr)
{
    close_filters(output);
    output->generation = generation;
    output->first_rank = first_rank;
    return mst__log_tree_begin(&output->tree, generation, restart_count, first_rank, reterr);
}

const char *mst__output_directory(const struct mst__output *output)
{
    return output->tree.has_files ? output->tree.root : "";
}

const char *mst__output_path(struct mst__output *output, size_t local_rank, const char *name)
{
    char *path = output->paths[local_rank];
    return mst__log_tree_path(&output->tree, (int64_t)local_rank, name, path) ? path : NULL;
}

/* Append the last lines of a file. Reads only its last bytes. */
static int file_tail(const char *path, struct mst__buf *ret_text)
{
    static const size_t size_max = (size_t)MST_OUTPUT_TAIL_LINES * MST_OUTPUT_TAIL_LINE_SIZE;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int rv = 0;
    uint8_t *room = fd < 0 ? NULL : mst__malloc(size_max);
    off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    off_t begin = end > (off_t)size_max ? end - (off_t)size_max : 0;
    ssize_t size = room == NULL ? 0 : pread(fd, room, size_max, begin);
    size_t at = size > 0 ? (size_t)size : 0;
    size_t lines = 0;
    while (at > 0 && lines < MST_OUTPUT_TAIL_LINES) {
        at--;
        lines += room[at] == '\n' && at + 1 < (size_t)size ? 1 : 0;
    }
    at += lines == MST_OUTPUT_TAIL_LINES ? 1 : 0; /* skip the newline before them */
    if (size > 0) {
        rv = mst__buf_append(ret_text, mst_bytes_of(room + at, (size_t)size - at));
    }
    if (rv == 0 && size > 0 && room[size - 1] != '\n') {
        rv = mst__buf_append_u8(ret_text, '\n');
    }
    mst__free(room);
    if (fd >= 0) {
        (void)close(fd); /* only read from */
    }
    return rv;
}

int mst__output_tail(struct mst__output *output, size_t local_rank, struct mst__buf *ret_text)
{
    const struct stream *stream = &output->streams[STREAMS * local_rank + 1];
    char path[PATH_MAX];
    if (stream->is_redirected &&
        mst__log_tree_path(&output->tree, (int64_t)local_rank, "stderr.log", path)) {
        return file_tail(path, ret_text);
    }
    const struct tail *tail = stream->tail;
    size_t count = tail == NULL ? 0 : tail->count;
    size_t shown = count < MST_OUTPUT_TAIL_LINES ? count : MST_OUTPUT_TAIL_LINES;
    int rv = 0;
    for (size_t i = count - shown; i < count; i++) {
        mst__text_put(ret_text, &rv, "%s\n", tail->lines[i % MST_OUTPUT_TAIL_LINES]);
    }
    return rv;
}

bool mst__output_flushed(struct mst__output *output, void (*cb)(void *arg), void *arg)
{
    bool is_flushed =
        mst__console_is_empty(&output->consoles[0]) && mst__console_is_empty(&output->consoles[1]);
    output->flushed_cb = is_flushed ? NULL : cb;
    output->flushed_arg = arg;
    return is_flushed;
}

bool mst__output_is_full(const struct mst__output *output)
{
    bool is_it = false;
    for (size_t i = 0; i < output->consoles_count; i++) {
        is_it = is_it || mst__console_is_full(&output->consoles[i]);
    }
    return is_it;
}

void mst__output_drain(struct mst__output *output, int64_t timeout_ms)
{
    int64_t deadline_ms = mst__clock_deadline_ms(timeout_ms);
    for (size_t i = 0; i < output->consoles_count; i++) {
        mst__console_drain(&output->consoles[i], deadline_ms);
    }
}

static void put_text(struct mst__console *console, struct mst_bytes text)
{
    (void)mst__console_put(console, text); /* the console counts lost bytes */
    mst__console_flush(console);
}

void mst__output_say(struct mst__output *output, struct mst_bytes text)
{
    put_text(console_at(output, 1), text);
}

void mst__output_print(struct mst__output *output, struct mst_bytes text)
{
    put_text(console_at(output, 0), text);
}

static bool is_same_file(int a, int b)
{
    struct stat first;
    struct stat second;
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static void open_consoles(struct mst__output *output)
{
    int fds[STREAMS] = {output->options.stdout_fd, output->options.stderr_fd};
    output->consoles_count = is_same_file(fds[0], fds[1]) ? 1 : STREAMS;
    for (size_t i = 0; i < STREAMS; i++) {
        output->filter_fds[i] = -1;
        if (i < output->consoles_count) {
            mst__console_init(&output->consoles[i], output->loop, fds[i], on_room, output);
        }
    }
}

/* Whether a worker writes a log, or something else needs its files. */
static bool needs_files(const struct mst__output_options *options)
{
    bool needs = options->needs_files || options->log_dir != NULL;
    for (size_t i = 0; i < options->workers_count; i++) {
        needs = needs || mst__rank_streams_of(options->redirects, (int64_t)i) != 0 ||
                mst__rank_streams_of(options->tee, (int64_t)i) != 0;
    }
    return needs;
}

/* Open the directory of logs. If it cannot be made and is not needed, there are no files, and
 * @reterr has the reason. */
static int open_tree(struct mst__output *output,
                     const struct mst__output_options *options,
                     struct mst_err *reterr)
{
    reterr->code = 0;
    int rv = mst__log_tree_open(&output->tree, options->log_dir, options->run_id,
                                options->workers_count, reterr);
    return rv == MST_ESYS && !needs_files(options) ? 0 : rv;
}

static void say_no_files(struct mst__output *output, const struct mst_err *why)
{
    char text[sizeof why->msg + 100];
    (void)snprintf(text, sizeof text, "muster: workers have no files: %s (see --log-dir)\n",
                   why->msg);
    mst__output_say(output, mst_bytes_str(text));
}

int mst__output_new(uv_loop_t *loop,
                    const struct mst__output_options *options,
                    struct mst__output **ret_output,
                    struct mst_err *reterr)
{
    size_t count = options->workers_count;
    struct mst__output *output = mst__calloc(1, sizeof *output);
    int64_t *pids = mst__calloc(count, sizeof *pids);
    char(*paths)[PATH_MAX] = mst__calloc(count, sizeof *paths);
    struct stream *streams = mst__calloc(STREAMS * count, sizeof *streams);
    int rv = 0;
    if (output == NULL || pids == NULL || paths == NULL || streams == NULL) {
        rv = mst__fail(reterr, MST_ENOMEM, 0, "output of %zu workers", count);
        goto fail;
    }
    rv = open_tree(output, options, reterr);
    if (rv != 0) {
        goto fail;
    }
    output->loop = loop;
    output->options = *options;
    output->pids = pids;
    output->paths = paths;
    output->streams = streams;
    mst__json_writer_init(&output->json, MST_OUTPUT_LINE_SIZE_MAX * 7);
    open_consoles(output);
    for (size_t i = 0; i < STREAMS * count; i++) {
        struct stream *stream = &streams[i];
        *stream = (struct stream){.output = output,
                                  .local_rank = i / STREAMS,
                                  .is_stderr = i % STREAMS == 1,
                                  .fd = -1,
                                  .file_fd = -1};
        mst__line_splitter_init(&stream->splitter);
        mst__buf_init(&stream->prefix, MST_OUTPUT_PREFIX_SIZE_MAX);
    }
    if (reterr->code != 0) {
        say_no_files(output, reterr);
    }
    *ret_output = output;
    return 0;
fail:
    mst__free(streams);
    mst__free(paths);
    mst__free(pids);
    mst__free(output);
    return rv;
}

static void on_console_closed(void *arg)
{
    struct mst__output *output = arg;
    output->consoles_open--;
    if (output->consoles_open > 0) {
        return;
    }
    mst__free(output->streams);
    mst__free(output->paths);
    mst__free(output->pids);
    mst__free(output);
}

void mst__output_free(struct mst__output *output, bool is_success)
{
    if (output == NULL) {
        return;
    }
    for (size_t i = 0; i < output->options.workers_count; i++) {
        mst__output_finish_worker(output, i);
    }
    for (size_t i = 0; i < STREAMS * output->options.workers_count; i++) {
        mst__line_splitter_close(&output->streams[i].splitter);
        mst__buf_close(&output->streams[i].prefix);
        mst__free(output->streams[i].tail);
    }
    close_filters(output);
    mst__log_tree_close(&output->tree, is_success && !output->options.keeps_logs);
    mst__json_writer_close(&output->json);
    output->consoles_open = output->consoles_count;
    for (size_t i = 0; i < output->consoles_count; i++) {
        mst__console_close(&output->consoles[i], on_console_closed);
    }
}
