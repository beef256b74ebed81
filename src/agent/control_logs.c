/* agent/control_logs.c - sends the log of a worker through a queue in the store. The queue has at
 * most MST_CONTROL_PIECES_MAX pieces. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/control_self.h"
#include "base/clock.h"
#include "base/number.h"

#define ALIVE_LOOK_MS 5000

static struct mst_bytes queue_key(const struct mst__control_reader *reader,
                                  const char *behind,
                                  char ret_text[MST_CONTROL_KEY_SIZE])
{
    (void)snprintf(ret_text, MST_CONTROL_KEY_SIZE, "logs/%s%s", reader->command.token, behind);
    return mst_bytes_str(ret_text);
}

static struct mst__control_place place_of(struct mst__control *control)
{
    pthread_mutex_lock(&control->mutex);
    struct mst__control_place place = control->place;
    pthread_mutex_unlock(&control->mutex);
    return place;
}

static bool has_rank(const struct mst__control_place *place, int64_t rank)
{
    return rank >= place->first_rank && rank < place->first_rank + place->workers_count;
}

/* --- the end of a reader --- */

static void close_reader(struct mst__control_reader *reader)
{
    if (reader->fd >= 0) {
        (void)close(reader->fd); /* it was only read */
    }
    *reader = (struct mst__control_reader){.fd = -1};
}

/* Send the reason for the end ("" = the log has ended) and close the reader. */
static int end_reader(struct mst__control *control,
                      struct mst__control_reader *reader,
                      const char *why,
                      int64_t timeout_ms)
{
    char key[MST_CONTROL_KEY_SIZE];
    char text[300];
    struct mst_err err;
    (void)snprintf(text, sizeof text, "e%s", why);
    int rv = mst_store_queue_push(control->store, queue_key(reader, "", key), mst_bytes_str(text),
                                  timeout_ms, &err);
    close_reader(reader);
    return rv;
}

/* Remove the queue of a reader that is gone. */
static void drop_reader(struct mst__control *control, struct mst__control_reader *reader)
{
    char key[MST_CONTROL_KEY_SIZE];
    bool existed;
    struct mst_err err; /* ignored: a few pieces stay in the store */
    (void)mst_store_delete(control->store, queue_key(reader, "", key), control->call_ms, &existed,
                           &err);
    (void)mst_store_delete(control->store, queue_key(reader, "/alive", key), control->call_ms,
                           &existed, &err);
    close_reader(reader);
}

/* --- files --- */

static int open_log(const struct mst__control_place *place,
                    const struct mst__control_command *command)
{
    char path[PATH_MAX + 128];
    (void)snprintf(path, sizeof path,
                   "%s/gen_%" PRId64 "/rank_%" PRId64 ".local_%" PRId64 "/%s.log", place->log_dir,
                   place->generation, command->rank, command->rank - place->first_rank,
                   command->is_stderr ? "stderr" : "stdout");
    return place->log_dir[0] == '\0' ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
}

static bool has_newline_at(int fd, off_t at)
{
    char last = '\0';
    return at >= 0 && pread(fd, &last, 1, at) == 1 && last == '\n';
}

/* Seek to the beginning of the last @lines lines; -1 = all. The last one may have no end yet. */
static void seek_lines(struct mst__control *control, int fd, int64_t lines)
{
    off_t at = lines < 0 ? 0 : lseek(fd, 0, SEEK_END);
    int64_t found = has_newline_at(fd, at - 1) ? -1 : 0; /* that one belongs to the last line */
    while (at > 0 && found < lines) {
        off_t begin = at > (off_t)sizeof control->piece ? at - (off_t)sizeof control->piece : 0;
        ssize_t size = pread(fd, control->piece, (size_t)(at - begin), begin);
        if (size <= 0) {
            break;
        }
        for (ssize_t i = size - 1; i >= 0 && found < lines; i--) {
            found += control->piece[i] == '\n' ? 1 : 0;
            at = begin + i + (found == lines ? 1 : 0);
        }
    }
    (void)lseek(fd, at, SEEK_SET); /* cannot fail on a file */
}

/* --- sending --- */

bool mst__control_logs_begin(struct mst__control *control,
                             const struct mst__control_command *command)
{
    struct mst__control_place place = place_of(control);
    struct mst__control_reader *reader = NULL;
    if (!has_rank(&place, command->rank) || strchr(command->token, '/') != NULL) {
        return false;
    }
    for (size_t i = 0; i < MST_CONTROL_READERS_MAX && reader == NULL; i++) {
        reader = control->readers[i].is_used ? NULL : &control->readers[i];
    }
    struct mst__control_reader refused = {.fd = -1, .command = *command};
    if (reader == NULL) {
        (void)end_reader(control, &refused, "too many readers of logs on this node",
                         control->call_ms);
        return true;
    }
    int fd = open_log(&place, command);
    if (fd < 0) {
        char why[180];
        (void)snprintf(why, sizeof why,
                       "%s of rank %" PRId64 " is in no file: start the job with `muster run --tee "
                       "3` for console and files, or --redirects 3 for files%s",
                       command->is_stderr ? "stderr" : "stdout", command->rank,
                       place.log_dir[0] == '\0' ? ", and without --log-dir /dev/null" : "");
        (void)end_reader(control, &refused, why, control->call_ms);
        return true;
    }
    seek_lines(control, fd, command->lines);
    *reader = (struct mst__control_reader){
        .is_used = true,
        .command = *command,
        .fd = fd,
        .generation = place.generation,
        .alive = -1,
        .alive_ms = mst__clock_ms(),
        .looked_ms = mst__clock_ms(),
    };
    return true;
}

size_t mst__control_logs_count(const struct mst__control *control)
{
    size_t count = 0;
    for (size_t i = 0; i < MST_CONTROL_READERS_MAX; i++) {
        count += control->readers[i].is_used ? 1 : 0;
    }
    return count;
}

/* Whether the reader still reads. Checks the store every ALIVE_LOOK_MS. */
static bool is_alive(struct mst__control *control, struct mst__control_reader *reader)
{
    char key[MST_CONTROL_KEY_SIZE];
    struct mst_buffer value = {0};
    struct mst_err err;
    int64_t now_ms = mst__clock_ms();
    int64_t number = -1;
    if (now_ms - reader->looked_ms < ALIVE_LOOK_MS) {
        return true;
    }
    reader->looked_ms = now_ms;
    if (mst_store_try_get(control->store, queue_key(reader, "/alive", key), control->call_ms,
                          &value, &err) == 0) {
        (void)mst__number_parse_prefix(mst_bytes_of(value.data, value.size), &number);
        mst_buffer_free(&value);
    }
    if (number != reader->alive) {
        reader->alive = number;
        reader->alive_ms = now_ms;
    }
    return now_ms - reader->alive_ms < MST_CONTROL_SILENT_MS;
}

/* At the end of the file: end the reader, or continue with the file of the next generation. */
static int go_on(struct mst__control *control, struct mst__control_reader *reader)
{
    struct mst__control_place place = place_of(control);
    if (!reader->command.follows) {
        return end_reader(control, reader, "", control->call_ms);
    }
    if (place.generation == reader->generation) {
        return 0;
    }
    int fd = has_rank(&place, reader->command.rank) ? open_log(&place, &reader->command) : -1;
    if (fd < 0) {
        return end_reader(control, reader, "the rank is on another node now", control->call_ms);
    }
    (void)close(reader->fd); /* it was only read */
    reader->fd = fd;
    reader->generation = place.generation;
    return 0;
}

static int pump(struct mst__control *control, struct mst__control_reader *reader)
{
    char key[MST_CONTROL_KEY_SIZE];
    struct mst_err err;
    for (;;) {
        int64_t waiting = 0;
        int rv = mst_store_queue_len(control->store, queue_key(reader, "", key), control->call_ms,
                                     &waiting, &err);
        if (rv != 0 || waiting >= MST_CONTROL_PIECES_MAX) {
            return rv;
        }
        off_t at = lseek(reader->fd, 0, SEEK_CUR);
        control->piece[0] = 'd';
        ssize_t size = read(reader->fd, control->piece + 1, MST_CONTROL_PIECE_SIZE);
        if (size <= 0) {
            return go_on(control, reader);
        }
        rv = mst_store_queue_push(control->store, queue_key(reader, "", key),
                                  mst_bytes_of(control->piece, (size_t)size + 1), control->call_ms,
                                  &err);
        if (rv != 0) {
            (void)lseek(reader->fd, at, SEEK_SET); /* to read it again next time */
            return rv;
        }
    }
}

int mst__control_logs_pump(struct mst__control *control)
{
    int rv = 0;
    for (size_t i = 0; i < MST_CONTROL_READERS_MAX && rv == 0; i++) {
        struct mst__control_reader *reader = &control->readers[i];
        if (!reader->is_used) {
            continue;
        }
        if (is_alive(control, reader)) {
            rv = pump(control, reader);
        } else {
            drop_reader(control, reader);
        }
    }
    return rv;
}

void mst__control_logs_close(struct mst__control *control)
{
    control->call_ms = MST_CONTROL_END_MS;
    for (size_t i = 0; i < MST_CONTROL_READERS_MAX; i++) {
        struct mst__control_reader *reader = &control->readers[i];
        if (reader->is_used) {
            (void)pump(control, reader); /* as much as the queue accepts */
            if (reader->is_used) {
                (void)end_reader(control, reader, "", MST_CONTROL_END_MS);
            }
        }
    }
}
