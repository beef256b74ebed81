/* net/journal_file.h - the file of a journal, and the thread that writes it.
 *
 * What is appended waits in a bounded buffer. The thread takes it all, writes it, and has the disk
 * keep it (fdatasync) once a second. The caller is never kept waiting by a disk: the lock is not
 * held while the thread is in a system call that can block. */
#ifndef MST_NET_JOURNAL_FILE_H
#define MST_NET_JOURNAL_FILE_H

#include <muster/log.h>

#include "wire/journal.h"

struct mst__journal_file; /* opaque */

/**
 * Open the file at @path to append to it, or make it, for its owner alone. One that ends in the
 * middle of a record becomes PATH.1 first. @log is copied.
 *
 * Returns 0 and how large the file is; MST_EINVAL when it is no regular file or no journal,
 * MST_ESYS, MST_ENOMEM.
 */
int mst__journal_file_open(const char *path,
                           const struct mst_log *log,
                           struct mst__journal_file **ret_file,
                           uint64_t *ret_size,
                           struct mst_err *reterr);

/* Write what is left, and end; a disk that takes nothing is waited for MST_JOURNAL_CLOSE_MS. */
void mst__journal_file_close(struct mst__journal_file *file);

/* The journal to append to, until mst__journal_file_unlock. */
struct mst__journal *mst__journal_file_lock(struct mst__journal_file *file);
void mst__journal_file_unlock(struct mst__journal_file *file);

/* While locked. Another file begins with what is appended from now on. @renames: the present one
 * becomes PATH.1, else PATH is opened again. False while the last such wish is not carried out. */
bool mst__journal_file_cut(struct mst__journal_file *file, bool renames);

/* While locked. There was no room: until the thread has taken what is there, nothing needs to be
 * tried. */
void mst__journal_file_set_full(struct mst__journal_file *file);
bool mst__journal_file_is_full(const struct mst__journal_file *file);

/* While locked. Whether the thread could not write something since this was last asked. What comes
 * next has to begin with a BEGIN. */
bool mst__journal_file_take_failed(struct mst__journal_file *file);

#endif /* MST_NET_JOURNAL_FILE_H */
