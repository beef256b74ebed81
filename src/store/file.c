/* store/file.c - a store in a file that processes share, compatible with PyTorch's FileStore.
 *
 * The file is a log of records: u32 size, key, u32 size, value. Users' keys begin with `/`; a key
 * with a leading `-` deletes the key that it names; others (`refcount/`, `cleanup/`) are torch's
 * own. Writers append under an exclusive flock, readers read new records under a shared one. So
 * only a killed writer can leave a partial record: readers stop before it, the next writer
 * truncates it.
 *
 * Every operation opens the file anew, as torch does: a replaced file is noticed, and the lock
 * excludes threads as well as processes. A mutex guards the map of what has been read; it is only
 * taken with the file lock held, and only while reading. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fork.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/number.h"
#include "store/backoff.h"
#include "store/store.h"
#include "wire/wire.h"

/* Waiting is polling. */
#define FILE_LOOK_MS_FIRST 1
#define FILE_LOOK_MS_MAX 10

#define FILE_READ_SIZE MST_KIB(64)

struct file_value {
    uint8_t *data;
    size_t size;
};

struct file {
    struct mst__storage storage; /* first: the storage is cast to this struct */
    char *path;
    pthread_mutex_t mutex; /* guards everything below */
    struct mst__map map;   /* of struct file_value */
    struct mst__buf input; /* read, not yet parsed; empty between operations */
    int held_fd; /* keeps the file that was read, so that its inode number is not reused */
    dev_t device;
    ino_t inode;
    off_t position; /* the map is up to date to this point */
};

/* An open, locked file, for one operation. */
struct file_lock {
    int fd; /* -1: there is no file yet */
    bool exclusive;
    off_t size;
};

/* --- locking --- */

static void lock_release(struct file_lock *lock)
{
    if (lock->fd >= 0) {
        (void)mst__fork_close(lock->fd); /* releases the lock; the kernel has all writes */
        lock->fd = -1;
    }
}

/* Open the file and lock it. A missing file is an empty store for a reader. */
static int lock_try(struct file *file, struct file_lock *lock, struct mst_err *reterr)
{
    int flags = lock->exclusive ? O_RDWR | O_CREAT : O_RDONLY;
    /* A forked child that kept it would keep the lock. */
    lock->fd = mst__fork_own(open(file->path, flags | O_CLOEXEC, 0644));
    if (lock->fd < 0) {
        if (errno == ENOENT && !lock->exclusive) {
            return 0;
        }
        return mst__fail(reterr, MST_ESYS, errno, "open '%s'", file->path);
    }
    if (flock(lock->fd, (lock->exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) {
        return 0;
    }
    int sys = errno;
    lock_release(lock);
    if (sys == EWOULDBLOCK || sys == EINTR) {
        return mst__fail(reterr, MST_ETIMEOUT, 0, "'%s' is locked by another process", file->path);
    }
    return mst__fail(reterr, MST_ESYS, sys, "lock '%s'", file->path);
}

static int lock_take(struct file *file,
                     bool exclusive,
                     struct mst__until until,
                     struct file_lock *ret_lock,
                     struct mst_err *reterr)
{
    struct mst__backoff backoff;
    mst__backoff_init(&backoff, FILE_LOOK_MS_FIRST, FILE_LOOK_MS_MAX);
    for (;;) {
        struct file_lock lock = {.fd = -1, .exclusive = exclusive};
        int rv = lock_try(file, &lock, reterr);
        struct stat status = {.st_nlink = 1};
        if (rv == 0 && lock.fd >= 0 && fstat(lock.fd, &status) != 0) {
            rv = mst__fail(reterr, MST_ESYS, errno, "stat '%s'", file->path);
        }
        if (rv == 0 && lock.fd >= 0 && !S_ISREG(status.st_mode)) {
            rv = mst__fail(reterr, MST_EINVAL, 0, "'%s' is not a regular file", file->path);
        }
        if (rv == 0 && status.st_nlink > 0) {
            lock.size = status.st_size;
            *ret_lock = lock;
            return 0;
        }
        lock_release(&lock);
        /* It was removed between open and lock: there may be a new one. */
        if (rv != 0 && rv != MST_ETIMEOUT) {
            return rv;
        }
        if (!mst__backoff_pause(&backoff, until)) {
            return mst__fail(reterr, MST_ETIMEOUT, 0, "'%s' stayed locked until the deadline",
                             file->path);
        }
    }
}

/* --- reading --- */

static void map_forget(struct file *file, struct mst_bytes key)
{
    struct file_value *value = mst__map_get(&file->map, key);
    if (value != NULL) {
        mst__free(value->data);
        mst__map_remove(&file->map, value);
    }
}

static void map_clear(struct file *file)
{
    for (struct file_value *value = mst__map_first(&file->map); value != NULL;
         value = mst__map_next(value)) {
        mst__free(value->data);
    }
    mst__map_close(&file->map);
}

static int map_put(struct file *file, struct mst_bytes key, struct mst_bytes value)
{
    uint8_t *data = (uint8_t *)mst__memdup(value.data, value.size);
    if (data == NULL) {
        return MST_ENOMEM;
    }
    struct file_value *entry = mst__map_get(&file->map, key);
    if (entry == NULL) {
        entry = mst__map_add(&file->map, key);
        if (entry == NULL) {
            mst__free(data);
            return MST_ENOMEM;
        }
    }
    mst__free(entry->data);
    *entry = (struct file_value){.data = data, .size = value.size};
    return 0;
}

static int map_apply(struct file *file, struct mst_bytes key, struct mst_bytes value)
{
    if (key.size > 0 && key.data[0] == '-') {
        map_forget(file, mst__bytes_skip(key, 1));
        return 0;
    }
    return map_put(file, key, value);
}

/* Take one field off the front of @rest. False if it is incomplete; MST_EPROTO in @ret_code if it
 * is malformed. */
static bool record_field(struct mst_bytes *rest,
                         size_t size_min,
                         size_t size_max,
                         struct mst_bytes *ret_field,
                         int *ret_code)
{
    if (rest->size < 4) {
        return false;
    }
    uint32_t size = mst__load_u32(rest->data);
    if (size > size_max || size < size_min) {
        *ret_code = MST_EPROTO;
        return false;
    }
    if (rest->size - 4 < size) {
        return false;
    }
    *ret_field = mst_bytes_of(rest->data + 4, size);
    *rest = mst__bytes_skip(*rest, 4 + (size_t)size);
    return true;
}

/* Apply the complete records at the front of the input. */
static int parse_records(struct file *file, struct mst_err *reterr)
{
    for (;;) {
        struct mst_bytes rest = mst__buf_bytes(&file->input);
        struct mst_bytes key;
        struct mst_bytes value;
        int rv = 0;
        if (!record_field(&rest, 1, MST_KEY_SIZE_MAX, &key, &rv) ||
            !record_field(&rest, 0, MST_VALUE_SIZE_MAX, &value, &rv)) {
            if (rv == 0) {
                return 0;
            }
            return mst__fail(reterr, rv, 0, "'%s' is not a store: no record at offset %lld",
                             file->path, (long long)file->position);
        }
        rv = map_apply(file, key, value);
        if (rv != 0) {
            return mst__fail(reterr, rv, 0, "record of '%s'", file->path);
        }
        size_t size = mst__buf_size(&file->input) - rest.size;
        mst__buf_consume(&file->input, size);
        file->position += (off_t)size;
    }
}

/* Check that the locked file is the one that was read, and is not shorter. */
static void notice_replaced(struct file *file, const struct file_lock *lock)
{
    struct stat status = {0};
    bool same = lock->fd >= 0 && file->held_fd >= 0 && fstat(lock->fd, &status) == 0 &&
                status.st_dev == file->device && status.st_ino == file->inode;
    if (same && lock->size >= file->position) {
        return;
    }
    map_clear(file);
    file->position = 0;
    if (!same && file->held_fd >= 0) {
        (void)mst__fork_close(file->held_fd); /* it was only held, never written */
        file->held_fd = -1;
    }
}

/* Keep a descriptor of the file; not a duplicate, which would keep the lock as well. Without it the
 * file is read anew every time, which is slow but correct. */
static void hold(struct file *file, const struct file_lock *lock)
{
    struct stat locked;
    struct stat held;
    if (file->held_fd >= 0) {
        return;
    }
    int fd = mst__fork_own(open(file->path, O_RDONLY | O_CLOEXEC));
    if (fd < 0) {
        return;
    }
    if (fstat(lock->fd, &locked) != 0 || fstat(fd, &held) != 0 || locked.st_dev != held.st_dev ||
        locked.st_ino != held.st_ino) {
        (void)mst__fork_close(fd); /* replaced at this moment */
        return;
    }
    file->held_fd = fd;
    file->device = held.st_dev;
    file->inode = held.st_ino;
}

/* Bring the map up to date. The mutex is held. */
static int refresh(struct file *file, const struct file_lock *lock, struct mst_err *reterr)
{
    notice_replaced(file, lock);
    if (lock->fd < 0) {
        return 0;
    }
    if (lock->size > (off_t)MST_FILE_STORE_SIZE_MAX) {
        return mst__fail(reterr, MST_ELIMIT, 0, "'%s' has %lld bytes, the limit is %zu", file->path,
                         (long long)lock->size, MST_FILE_STORE_SIZE_MAX);
    }
    hold(file, lock);
    int rv = 0;
    off_t at = file->position;
    while (rv == 0 && at < lock->size) {
        size_t room =
            lock->size - at < (off_t)FILE_READ_SIZE ? (size_t)(lock->size - at) : FILE_READ_SIZE;
        uint8_t *to = mst__buf_reserve(&file->input, room, &rv);
        if (to == NULL) {
            rv = mst__fail(reterr, rv, 0, "read '%s'", file->path);
            break;
        }
        ssize_t got = pread(lock->fd, to, room, at);
        if (got > 0) {
            mst__buf_commit(&file->input, (size_t)got);
            at += got;
            rv = parse_records(file, reterr);
        } else if (got == 0) {
            break; /* truncated by a process that does not lock */
        } else if (errno != EINTR) {
            rv = mst__fail(reterr, MST_ESYS, errno, "read '%s'", file->path);
        }
    }
    mst__buf_close(&file->input);
    return rv;
}

/* --- writing --- */

static int append_field(struct mst__buf *records, const char *front, struct mst_bytes field)
{
    size_t front_size = strlen(front);
    if (field.size > UINT32_MAX - front_size) {
        return MST_ELIMIT;
    }
    int rv = mst__buf_append_u32(records, (uint32_t)(front_size + field.size));
    if (rv == 0) {
        rv = mst__buf_append(records, mst_bytes_of(front, front_size));
    }
    return rv != 0 ? rv : mst__buf_append(records, field);
}

/* A record for @key with @front before it. */
static int append_record(struct mst__buf *records,
                         const char *front,
                         struct mst_bytes key,
                         struct mst_bytes value)
{
    int rv = append_field(records, front, key);
    return rv != 0 ? rv : append_field(records, "", value);
}

/* Write @records after the last complete one: all or none of them. */
static int write_records(struct file *file,
                         struct file_lock *lock,
                         struct mst_bytes records,
                         struct mst_err *reterr)
{
    MST_ASSERT(lock->exclusive);
    if (records.size > MST_FILE_STORE_SIZE_MAX - (size_t)file->position) {
        return mst__fail(reterr, MST_ELIMIT, 0,
                         "'%s' would exceed its limit of %zu bytes; it only grows, start a new one",
                         file->path, MST_FILE_STORE_SIZE_MAX);
    }
    if (lock->size > file->position && ftruncate(lock->fd, file->position) != 0) {
        return mst__fail(reterr, MST_ESYS, errno, "truncate a partial record of '%s'", file->path);
    }
    size_t written = 0;
    while (written < records.size) {
        ssize_t took = pwrite(lock->fd, records.data + written, records.size - written,
                              file->position + (off_t)written);
        if (took >= 0) {
            written += (size_t)took;
        } else if (errno != EINTR) {
            int sys = errno;
            (void)!ftruncate(lock->fd, file->position); /* else the next writer truncates it */
            return mst__fail(reterr, MST_ESYS, sys, "write '%s'", file->path);
        }
    }
    return 0;
}

/* --- operations --- */

static struct mst_bytes value_bytes(const struct file_value *value)
{
    return value == NULL ? mst_bytes_of(NULL, 0) : mst_bytes_of(value->data, value->size);
}

/* Memory for a write. */
struct file_write {
    struct mst__buf records; /* to be written */
    struct mst__buf value;   /* a new value that is made from the old one */
};

static int write_compare_set(struct file *file,
                             const struct mst__command *command,
                             struct file_write *write,
                             struct mst__answer *result)
{
    const struct file_value *present = mst__map_get(&file->map, command->key);
    bool matches = present == NULL ? command->expected.size == 0
                                   : mst__bytes_equal(value_bytes(present), command->expected);
    result->reply = (struct mst__reply){.kind = MST_REPLY_BYTES, .found = present != NULL};
    int rv = 0;
    if (matches) {
        rv = append_record(&write->records, "", command->key, command->value);
    }
    struct mst_bytes now = matches ? command->value : value_bytes(present);
    return rv != 0 ? rv : mst__answer_take(result, now);
}

static int write_add(struct file *file,
                     const struct mst__command *command,
                     struct file_write *write,
                     struct mst__answer *result)
{
    const struct file_value *present = mst__map_get(&file->map, command->key);
    int64_t number = 0;
    if (present != NULL && !mst__number_parse_prefix(value_bytes(present), &number)) {
        return MST_ETYPE;
    }
    number = (int64_t)((uint64_t)number + (uint64_t)command->number);
    char text[MST_NUMBER_SIZE];
    size_t size = mst__number_format(number, text);
    result->reply = (struct mst__reply){.kind = MST_REPLY_NUMBER, .number = number};
    return append_record(&write->records, "", command->key, mst_bytes_of(text, size));
}

static int write_append(struct file *file,
                        const struct mst__command *command,
                        struct file_write *write)
{
    const struct file_value *present = mst__map_get(&file->map, command->key);
    int rv = mst__buf_append(&write->value, value_bytes(present));
    if (rv == 0) {
        rv = mst__buf_append(&write->value, command->value);
    }
    return rv != 0
               ? rv
               : append_record(&write->records, "", command->key, mst__buf_bytes(&write->value));
}

static int write_delete(struct file *file,
                        const struct mst__command *command,
                        struct file_write *write,
                        struct mst__answer *result)
{
    bool present = mst__map_get(&file->map, command->key) != NULL;
    result->reply = (struct mst__reply){.kind = MST_REPLY_NUMBER, .number = present ? 1 : 0};
    return present ? append_record(&write->records, "-", command->key, mst_bytes_of(NULL, 0)) : 0;
}

static int write_multi_set(const struct mst__command *command, struct file_write *write)
{
    struct mst_bytes items = command->items;
    struct mst_bytes key;
    struct mst_bytes value;
    int rv = 0;
    while (rv == 0 && mst__items_next(&items, &key) && mst__items_next(&items, &value)) {
        rv = append_record(&write->records, "", key, value);
    }
    return rv;
}

/* Compute the records that @command adds, and its answer. */
static int prepare_write(struct file *file,
                         const struct mst__command *command,
                         struct file_write *write,
                         struct mst__answer *result)
{
    switch (command->op) {
        case MST_OP_SET:
            return append_record(&write->records, "", command->key, command->value);
        case MST_OP_COMPARE_SET:
            return write_compare_set(file, command, write, result);
        case MST_OP_ADD:
            return write_add(file, command, write, result);
        case MST_OP_APPEND:
            return write_append(file, command, write);
        case MST_OP_DELETE:
            return write_delete(file, command, write, result);
        default:
            MST_ASSERT(command->op == MST_OP_MULTI_SET);
            return write_multi_set(command, write);
    }
}

static int execute_write(struct file *file,
                         const struct mst__command *command,
                         struct mst__until until,
                         struct mst__answer *result,
                         struct mst_err *reterr)
{
    struct file_lock lock;
    int rv = lock_take(file, true, until, &lock, reterr);
    if (rv != 0) {
        return rv;
    }
    struct file_write write;
    const struct mst_store_options *options = &file->storage.options;
    mst__buf_init(&write.records, MST_FILE_STORE_SIZE_MAX);
    mst__buf_init(&write.value, options->value_size_max);
    result->reply = (struct mst__reply){.kind = MST_REPLY_NONE};
    (void)pthread_mutex_lock(&file->mutex); /* a default mutex: cannot fail */
    rv = refresh(file, &lock, reterr);
    if (rv == 0) {
        rv = prepare_write(file, command, &write, result);
        if (rv != 0) {
            rv = mst__fail(reterr, rv, 0, "%s", mst_strerror(rv));
        }
    }
    if (rv == 0 && mst__buf_size(&write.records) > 0) {
        rv = write_records(file, &lock, mst__buf_bytes(&write.records), reterr);
    }
    (void)pthread_mutex_unlock(&file->mutex);
    lock_release(&lock);
    mst__buf_close(&write.records);
    mst__buf_close(&write.value);
    return rv;
}

static int read_list(struct file *file, struct mst__answer *result)
{
    int rv = 0;
    int64_t count = 0;
    for (const struct file_value *value = mst__map_first(&file->map); value != NULL && rv == 0;
         value = mst__map_next(value)) {
        rv = mst__buf_append_str(&result->memory, mst__map_key(value));
        count++;
    }
    result->reply = (struct mst__reply){
        .kind = MST_REPLY_LIST, .number = count, .bytes = mst__buf_bytes(&result->memory)};
    return rv;
}

static bool all_exist(struct file *file, const struct mst__command *command)
{
    struct mst_bytes items = command->items;
    struct mst_bytes key;
    for (uint64_t i = 0; i < command->count && mst__items_next(&items, &key); i++) {
        if (mst__map_get(&file->map, key) == NULL) {
            return false;
        }
    }
    return true;
}

/* Answer @command from the map. */
static int answer_read(struct file *file,
                       const struct mst__command *command,
                       struct mst__answer *result)
{
    const struct file_value *value;
    switch (command->op) {
        case MST_OP_GET:
            value = mst__map_get(&file->map, command->key);
            result->reply = (struct mst__reply){.kind = MST_REPLY_BYTES, .found = value != NULL};
            return mst__answer_take(result, value_bytes(value));
        case MST_OP_NUM_KEYS:
            result->reply = (struct mst__reply){.kind = MST_REPLY_NUMBER,
                                                .number = (int64_t)mst__map_count(&file->map)};
            return 0;
        case MST_OP_LIST_KEYS:
            return read_list(file, result);
        default:
            MST_ASSERT(command->op == MST_OP_CHECK || command->op == MST_OP_WAIT);
            result->reply = (struct mst__reply){
                .kind = MST_REPLY_STATUS,
                .status = all_exist(file, command) ? MST_STATUS_READY : MST_STATUS_NOT_READY,
            };
            return 0;
    }
}

static int execute_read(struct file *file,
                        const struct mst__command *command,
                        struct mst__until until,
                        struct mst__answer *result,
                        struct mst_err *reterr)
{
    struct file_lock lock;
    int rv = lock_take(file, false, until, &lock, reterr);
    if (rv != 0) {
        return rv;
    }
    (void)pthread_mutex_lock(&file->mutex); /* a default mutex: cannot fail */
    rv = refresh(file, &lock, reterr);
    if (rv == 0) {
        rv = answer_read(file, command, result);
        if (rv != 0) {
            rv = mst__fail(reterr, rv, 0, "answer");
        }
    }
    (void)pthread_mutex_unlock(&file->mutex);
    lock_release(&lock);
    return rv;
}

/* Poll until all keys exist. */
static int execute_wait(struct file *file,
                        const struct mst__command *command,
                        struct mst__until until,
                        struct mst__answer *result,
                        struct mst_err *reterr)
{
    struct mst__backoff backoff;
    mst__backoff_init(&backoff, FILE_LOOK_MS_FIRST, FILE_LOOK_MS_MAX);
    for (;;) {
        int rv = execute_read(file, command, until, result, reterr);
        if (rv != 0 || result->reply.status == MST_STATUS_READY) {
            return rv;
        }
        if (!mst__backoff_pause(&backoff, until)) {
            return mst__fail(reterr, MST_ETIMEOUT, 0, "not in '%s' when the deadline passed",
                             file->path);
        }
    }
}

static int file_execute(struct mst__storage *storage,
                        const struct mst__command *command,
                        struct mst__until until,
                        struct mst__answer *result,
                        struct mst_err *reterr)
{
    struct file *file = (struct file *)storage;
    switch (command->op) {
        case MST_OP_SET:
        case MST_OP_COMPARE_SET:
        case MST_OP_ADD:
        case MST_OP_APPEND:
        case MST_OP_DELETE:
        case MST_OP_MULTI_SET:
            return execute_write(file, command, until, result, reterr);
        case MST_OP_GET:
        case MST_OP_CHECK:
        case MST_OP_NUM_KEYS:
        case MST_OP_LIST_KEYS:
            return execute_read(file, command, until, result, reterr);
        case MST_OP_WAIT:
            return execute_wait(file, command, until, result, reterr);
        default:
            return mst__fail(reterr, MST_ENOTSUP, 0, "a file store has no %s",
                             mst__op_name(command->op));
    }
}

static void file_free(struct mst__storage *storage)
{
    struct file *file = (struct file *)storage;
    map_clear(file);
    mst__buf_close(&file->input);
    if (file->held_fd >= 0) {
        (void)mst__fork_close(file->held_fd); /* it was only held, never written */
    }
    (void)pthread_mutex_destroy(&file->mutex); /* no thread holds it */
    mst__free(file->path);
    mst__free(file->storage.url);
    mst__free(file);
}

/* Fail early if the path can never work. The first write creates the file. */
static int check_path(const char *path, struct mst_err *reterr)
{
    struct stat status;
    if (stat(path, &status) == 0) {
        return S_ISREG(status.st_mode)
                   ? 0
                   : mst__fail(reterr, MST_EINVAL, 0, "'%s' is not a regular file", path);
    }
    if (errno != ENOENT) {
        return mst__fail(reterr, MST_ESYS, errno, "stat '%s'", path);
    }
    char *copy = mst__strdup(path);
    if (copy == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "path '%s'", path);
    }
    const char *directory = dirname(copy);
    int rv = 0;
    if (stat(directory, &status) != 0) {
        rv = mst__fail(reterr, MST_ESYS, errno, "directory of '%s'", path);
    } else if (!S_ISDIR(status.st_mode)) {
        rv = mst__fail(reterr, MST_EINVAL, 0, "'%s' is not a directory", directory);
    }
    mst__free(copy);
    return rv;
}

int mst__file_open(const struct mst__url *url,
                   const struct mst_store_options *options,
                   struct mst__storage **ret_storage,
                   struct mst_err *reterr)
{
    static const struct mst__storage_ops ops = {.execute = file_execute, .free = file_free};
    int rv = check_path(url->path, reterr);
    if (rv != 0) {
        return rv;
    }
    struct file *file = mst__calloc(1, sizeof *file);
    char *path = mst__strdup(url->path);
    char *own_url = mst__url_text("file://", url->path);
    if (file == NULL || path == NULL || own_url == NULL) {
        mst__free(file);
        mst__free(path);
        mst__free(own_url);
        return mst__fail(reterr, MST_ENOMEM, 0, "file store '%s'", url->path);
    }
    file->storage.ops = &ops;
    file->storage.key_root = options->bare_keys ? "" : "/";
    file->storage.options = *options;
    atomic_init(&file->storage.handles, 0);
    file->storage.url = own_url;
    file->path = path;
    file->held_fd = -1;
    uint8_t hash_key[MST_SIPHASH_KEY_SIZE];
    mst__clock_random(hash_key, sizeof hash_key);
    mst__map_init(&file->map, sizeof(struct file_value), hash_key);
    mst__buf_init(&file->input, MST_FILE_STORE_SIZE_MAX);
    (void)pthread_mutex_init(&file->mutex, NULL); /* never fails on Linux */
    *ret_storage = &file->storage;
    return 0;
}
