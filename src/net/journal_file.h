/* net/journal_file.h - the file of a journal, and the thread that writes it.
 *
 * Appended records wait in a bounded buffer. The thread writes them and syncs the file (fdatasync)
 * once a second. The caller never waits for a disk: the thread does not hold the lock in a system
 * call that can block. */
#ifndef MST_NET_JOURNAL_FILE_H
#define MST_NET_JOURNAL_FILE_H

#include <muster/log.h>

#include "wire/journal.h"

struct mst__journal_file; /* opaque */

/**
 * Open the file at @path to append to it, or create it with mode 0600. A file that ends inside a
 * record becomes PATH.1 first. @log is copied.
 *
 * Returns 0 and the size of the file; MST_EINVAL if it is not a regular file or not a journal,
 * MST_ESYS, MST_ENOMEM.
 */
int mst__journal_file_open(const char *path,
                           const struct mst_log *log,
                           struct mst__journal_file **ret_file,
                           uint64_t *ret_size,
                           struct mst_err *reterr);

/* Write the rest and end. A disk that is blocked has MST_JOURNAL_CLOSE_MS. */
void mst__journal_file_close(struct mst__journal_file *file);

/* Lock the journal to append to it, until mst__journal_file_unlock. */
struct mst__journal *mst__journal_file_lock(struct mst__journal_file *file);
void mst__journal_file_unlock(struct mst__journal_file *file);

/* While locked. Begin another file with the next record. @renames: the present file becomes PATH.1,
 * else PATH is opened again. False while the last such request is pending. */
bool mst__journal_file_cut(struct mst__journal_file *file, bool renames);

/* While locked. There was no room: do not append until the thread has taken the buffer. */
void mst__journal_file_set_full(struct mst__journal_file *file);
bool mst__journal_file_is_full(const struct mst__journal_file *file);

/* While locked. Whether a write has failed since the last call. The next record must then be a
 * BEGIN. */
bool mst__journal_file_take_failed(struct mst__journal_file *file);

#endif /* MST_NET_JOURNAL_FILE_H */
