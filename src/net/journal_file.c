/* net/journal_file.c - a thread that appends to a file, and begins another one on request.
 *
 * The mutex guards the buffer, the cut and the flags. The descriptor, the size and the buffer that
 * is being written belong to the thread. */
#include "net/journal_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

/* Records are collected for this time before they are written together, and synced after this time.
 * A failed write is retried after the latter. */
#define GATHER_MS 10
#define SYNC_MS 1000

/* Memory that an empty buffer keeps. */
#define KEPT_SIZE MST_KIB(256)

struct mst__journal_file {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* there is work for the thread, or it is done */
    pthread_t thread;
    struct mst_log log;
    struct mst__journal journal;
    bool has_cut; /* another file begins at cut_at of the buffer */
    bool cut_renames;
    size_t cut_at;
    bool is_full;
    bool is_idle; /* the thread sleeps until it is woken */
    bool has_failed;
    bool is_closing;
    bool is_done;
    /* Used by the thread only. */
    int fd; /* -1 = could not be opened */
    uint64_t size;
    struct mst__buf writing;
    int64_t synced_ms;
    bool is_dirty;   /* written, and perhaps not synced */
    bool is_failing; /* the last attempt failed, which was logged */
    char *old_path;
    char path[];
};

/* --- files --- */

/* Open the regular file at @path. A pipe without a reader is an error; it does not block. */
static int open_path(const char *path, struct mst_err *reterr)
{
    struct stat about;
    int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    if (fd < 0) {
        (void)mst__fail(reterr, MST_ESYS, errno, "journal '%.100s'", path);
        return -1;
    }
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        (void)mst__fail(reterr, MST_EINVAL, 0, "journal '%.100s': not a regular file", path);
        (void)close(fd); /* nothing was written */
        return -1;
    }
    return fd;
}

/* Read @fd from its beginning. *ret_size is the end of the last complete record; *ret_is_whole says
 * whether that is the end of the file. */
static int scan(int fd,
                const char *path,
                uint64_t *ret_size,
                bool *ret_is_whole,
                struct mst_err *reterr)
{
    struct mst__buf input;
    struct mst_bytes fields;
    size_t size = 0;
    int rv = 0;
    mst__buf_init(&input, MST_KIB(64) + MST_JOURNAL_RECORD_SIZE_MAX + MST_JOURNAL_HEAD_SIZE);
    *ret_size = 0;
    for (;;) {
        int code = 0;
        uint8_t *room = mst__buf_reserve(&input, MST_KIB(64), &code);
        ssize_t got = room == NULL ? -1 : read(fd, room, MST_KIB(64));
        if (got < 0) {
            rv = mst__fail(reterr, room == NULL ? code : MST_ESYS, errno, "journal '%.100s'", path);
            break;
        }
        mst__buf_commit(&input, (size_t)got);
        int state;
        while ((state = mst__journal_read(mst__buf_bytes(&input), &fields, &size)) == 1) {
            bool is_begin = fields.data[0] == MST_JOURNAL_BEGIN;
            if (*ret_size == 0 && !is_begin) {
                state = MST_EPROTO;
                break;
            }
            *ret_size += size;
            mst__buf_consume(&input, size);
        }
        if (state < 0 || got == 0) {
            break;
        }
    }
    *ret_is_whole = mst__buf_size(&input) == 0;
    if (rv == 0 && *ret_size == 0 && !*ret_is_whole) {
        rv = mst__fail(reterr, MST_EINVAL, 0, "'%.100s' exists and is not a journal", path);
    }
    mst__buf_close(&input);
    return rv;
}

static void file_log(const struct mst__journal_file *file, const char *event, const char *detail)
{
    mst__log(&file->log, MST_LOG_ERROR, event, "file=%s detail=%s", MST_LOG_TEXT(file->path),
             MST_LOG_TEXT(detail));
}

static void file_sync(struct mst__journal_file *file)
{
    if (file->fd >= 0 && file->is_dirty && fdatasync(file->fd) != 0) {
        file_log(file, "journal.unsynced", strerror(errno));
    }
    file->is_dirty = false;
    file->synced_ms = mst__clock_ms();
}

static void file_open(struct mst__journal_file *file, struct mst_err *reterr)
{
    struct stat about;
    file->fd = open_path(file->path, reterr);
    bool has_size = file->fd >= 0 && fstat(file->fd, &about) == 0;
    file->size = has_size ? (uint64_t)about.st_size : 0;
}

/* Begin another file. */
static void file_begin(struct mst__journal_file *file, bool renames)
{
    struct mst_err err;
    file_sync(file);
    if (file->fd >= 0) {
        (void)close(file->fd); /* write or fdatasync has reported errors */
    }
    if (renames && rename(file->path, file->old_path) != 0) {
        file_log(file, "journal.unrotated", strerror(errno));
    }
    file_open(file, &err);
    if (file->fd < 0) {
        file_log(file, "journal.unopened", err.msg);
    } else {
        mst__log(&file->log, MST_LOG_INFO, renames ? "journal.rotated" : "journal.reopened",
                 "file=%s", MST_LOG_TEXT(file->path));
    }
}

/* Write all of @bytes. On failure none of them is in the file. */
static bool file_write(struct mst__journal_file *file, struct mst_bytes bytes)
{
    struct mst_err err;
    if (file->fd < 0) {
        file_open(file, &err);
    }
    uint64_t before = file->size;
    while (file->fd >= 0 && bytes.size > 0) {
        ssize_t written = write(file->fd, bytes.data, bytes.size);
        if (written >= 0) {
            bytes = mst_bytes_of(bytes.data + written, bytes.size - (size_t)written);
            file->size += (uint64_t)written;
            file->is_dirty = true;
        } else if (errno != EINTR) {
            break;
        }
    }
    if (bytes.size == 0) {
        file->is_failing = false;
        return true;
    }
    if (!file->is_failing) {
        file_log(file, "journal.failed", file->fd < 0 ? err.msg : strerror(errno));
    }
    file->is_failing = true;
    if (file->fd >= 0 && ftruncate(file->fd, (off_t)before) == 0) {
        file->size = before;
    }
    return false;
}

/* --- the thread --- */

/* Wait for records or the end, and sync unsynced data in time. The mutex is held. */
static void wait_for_records(struct mst__journal_file *file)
{
    while (mst__buf_size(&file->journal.output) == 0 && !file->has_cut && !file->is_closing) {
        if (!file->is_dirty) {
            file->is_idle = true;
            (void)pthread_cond_wait(&file->changed, &file->mutex); /* cannot fail */
        } else if (mst__clock_ms() < file->synced_ms + SYNC_MS) {
            file->is_idle = true;
            mst__cond_wait_until(&file->changed, &file->mutex, file->synced_ms + SYNC_MS);
        } else {
            (void)pthread_mutex_unlock(&file->mutex); /* cannot fail, as the next ones */
            file_sync(file);
            (void)pthread_mutex_lock(&file->mutex);
        }
    }
    file->is_idle = false;
    int64_t end_ms = mst__clock_deadline_ms(file->is_failing ? SYNC_MS : GATHER_MS);
    while (!file->is_closing && mst__clock_ms() < end_ms) {
        mst__cond_wait_until(&file->changed, &file->mutex, end_ms);
    }
}

/* Drop records that refer to records that could not be written. */
static void forget_records(struct mst__journal_file *file)
{
    mst__buf_clear(&file->journal.output);
    file->cut_at = 0;
}

static void *run(void *arg)
{
    struct mst__journal_file *file = arg;
    bool is_over = false;
    while (!is_over) {
        (void)pthread_mutex_lock(&file->mutex);
        wait_for_records(file);
        if (file->has_failed) {
            forget_records(file);
        }
        struct mst__buf taken = file->journal.output;
        file->journal.output = file->writing;
        file->writing = taken;
        bool has_cut = file->has_cut;
        bool renames = file->cut_renames;
        size_t cut_at = has_cut ? file->cut_at : mst__buf_size(&taken);
        file->has_cut = false;
        file->is_full = false;
        is_over = file->is_closing;
        (void)pthread_mutex_unlock(&file->mutex);
        struct mst_bytes bytes = mst__buf_bytes(&taken);
        bool is_written = file_write(file, mst_bytes_of(bytes.data, cut_at));
        if (has_cut) {
            file_begin(file, renames);
            is_written = file_write(file, mst_bytes_of(bytes.data + cut_at, bytes.size - cut_at)) &&
                         is_written;
        }
        mst__buf_clear(&file->writing);
        if (file->writing.capacity > KEPT_SIZE) {
            mst__buf_close(&file->writing);
        }
        if (file->is_dirty && mst__clock_ms() >= file->synced_ms + SYNC_MS) {
            file_sync(file);
        }
        (void)pthread_mutex_lock(&file->mutex);
        file->has_failed = file->has_failed || !is_written;
        (void)pthread_mutex_unlock(&file->mutex);
    }
    file_sync(file);
    (void)pthread_mutex_lock(&file->mutex);
    file->is_done = true;
    (void)pthread_cond_broadcast(&file->changed);
    (void)pthread_mutex_unlock(&file->mutex);
    return NULL;
}

/* --- life --- */

static void file_free(struct mst__journal_file *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd); /* synced before */
    }
    mst__journal_close(&file->journal);
    mst__buf_close(&file->writing);
    (void)pthread_cond_destroy(&file->changed); /* no thread waits */
    (void)pthread_mutex_destroy(&file->mutex);  /* no thread holds it */
    mst__free(file->old_path);
    mst__free(file);
}

static void init_locks(struct mst__journal_file *file)
{
    mst__cond_init(&file->changed);
    (void)pthread_mutex_init(&file->mutex, NULL);
}

int mst__journal_file_open(const char *path,
                           const struct mst_log *log,
                           struct mst__journal_file **ret_file,
                           uint64_t *ret_size,
                           struct mst_err *reterr)
{
    size_t size = strlen(path) + 1;
    struct mst__journal_file *file = mst__calloc(1, sizeof *file + size);
    char *old_path = mst__malloc(size + 2);
    if (file == NULL || old_path == NULL) {
        mst__free(file);
        mst__free(old_path);
        return mst__fail(reterr, MST_ENOMEM, 0, "journal");
    }
    file->old_path = old_path;
    memcpy(file->path, path, size);
    (void)snprintf(old_path, size + 2, "%s.1", path); /* fits */
    file->log = *log;
    init_locks(file);
    mst__journal_init(&file->journal, MST_JOURNAL_BUFFER_SIZE);
    mst__buf_init(&file->writing, MST_JOURNAL_BUFFER_SIZE);
    file->fd = open_path(path, reterr);
    bool is_whole = true;
    int rv = file->fd < 0 ? MST_ESYS : scan(file->fd, path, &file->size, &is_whole, reterr);
    if (rv != 0) {
        goto fail;
    }
    if (!is_whole) {
        file_begin(file, true);
    }
    int reason = mst__thread_start(&file->thread, run, file);
    if (reason != 0) {
        rv = mst__fail(reterr, MST_ESYS, reason, "thread (journal)");
        goto fail;
    }
    *ret_file = file;
    *ret_size = file->size;
    return 0;
fail:
    file_free(file);
    return rv;
}

void mst__journal_file_close(struct mst__journal_file *file)
{
    if (file == NULL) {
        return;
    }
    int64_t end_ms = mst__clock_deadline_ms(MST_JOURNAL_CLOSE_MS);
    (void)pthread_mutex_lock(&file->mutex); /* cannot fail, as the others */
    file->is_closing = true;
    (void)pthread_cond_broadcast(&file->changed);
    while (!file->is_done && mst__clock_ms() < end_ms) {
        mst__cond_wait_until(&file->changed, &file->mutex, end_ms);
    }
    bool is_done = file->is_done;
    (void)pthread_mutex_unlock(&file->mutex);
    if (is_done) {
        (void)pthread_join(file->thread, NULL); /* the thread is about to exit */
        file_free(file);
    } else {
        file_log(file, "journal.abandoned", "the disk does not take what is left");
        (void)pthread_detach(file->thread); /* it ends with the process and keeps its memory */
    }
}

/* --- appending --- */

struct mst__journal *mst__journal_file_lock(struct mst__journal_file *file)
{
    (void)pthread_mutex_lock(&file->mutex); /* cannot fail */
    return &file->journal;
}

void mst__journal_file_unlock(struct mst__journal_file *file)
{
    if (file->is_idle && (mst__buf_size(&file->journal.output) > 0 || file->has_cut)) {
        (void)pthread_cond_signal(&file->changed);
    }
    (void)pthread_mutex_unlock(&file->mutex);
}

bool mst__journal_file_cut(struct mst__journal_file *file, bool renames)
{
    if (file->has_cut) {
        return false;
    }
    file->has_cut = true;
    file->cut_renames = renames;
    file->cut_at = mst__buf_size(&file->journal.output);
    return true;
}

void mst__journal_file_set_full(struct mst__journal_file *file)
{
    file->is_full = true;
}

bool mst__journal_file_is_full(const struct mst__journal_file *file)
{
    return file->is_full;
}

bool mst__journal_file_take_failed(struct mst__journal_file *file)
{
    bool has_failed = file->has_failed;
    if (has_failed) {
        forget_records(file);
    }
    file->has_failed = false;
    return has_failed;
}
