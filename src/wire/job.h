/* wire/job.h - the messages between nodes and the authority of a job, in frames on the port of the
 * store. Pure: bytes to messages and back. docs/protocol.md describes every byte.
 *
 * A frame is a u32 with the size of the rest, a u8 with the type, and the fields of the message.
 * Integers are little-endian, a text is a u32 with its size and the bytes. Bytes after the known
 * fields are ignored, so that a later version can append fields. */
#ifndef MST_WIRE_JOB_H
#define MST_WIRE_JOB_H

#include <muster/error.h>

#include "base/buf.h"
#include "core/job_message.h"

#define MST_JOB_HEAD_SIZE 5

/* A frame without its head, except a status. */
#define MST_JOB_SIZE_MAX MST_KIB(64)

/* Append @message as a frame: 0, MST_ELIMIT, MST_ENOMEM; @output is then unchanged. */
int mst__job_write(struct mst__buf *output, const struct mst__job_message *message);

/* Put the ranks of a member and its workers into the frame of a SEALED, which has zeros there. */
void mst__job_patch_ranks(uint8_t *frame,
                          size_t size,
                          uint32_t rank,
                          const struct mst__worker_ranks *worker_ranks);

/* Append a member to the later status.members: 0, MST_ELIMIT, MST_ENOMEM. */
int mst__job_member_write(struct mst__buf *members, const struct mst__job_member *member);

/* Take the next member out of @members; false at the end, or if it is malformed. */
bool mst__job_member_next(struct mst_bytes *members, struct mst__job_member *ret_member);

/* The same for status.details and list.jobs. A missing detail is empty. */
int mst__job_detail_write(struct mst__buf *details, const struct mst__job_detail *detail);
bool mst__job_detail_next(struct mst_bytes *details, struct mst__job_detail *ret_detail);
int mst__job_entry_write(struct mst__buf *jobs, const struct mst__job_entry *entry);
bool mst__job_entry_next(struct mst_bytes *jobs, struct mst__job_entry *ret_entry);

/**
 * Read one frame from the front of @input; a status has at most @size_max bytes.
 *
 * Returns 1 with @ret_message, which borrows from @input, and the size of the frame in @ret_size; 0
 * if more is needed, @ret_size bytes in total as far as known; MST_EPROTO, MST_ELIMIT.
 */
int mst__job_read(struct mst_bytes input,
                  size_t size_max,
                  struct mst__job_message *ret_message,
                  size_t *ret_size,
                  struct mst_err *reterr);

#endif /* MST_WIRE_JOB_H */
