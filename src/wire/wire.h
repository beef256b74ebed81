/* wire/wire.h - the TCPStore protocol of PyTorch, both directions, three dialects.
 * Pure: bytes in, commands and replies out. docs/protocol.md describes every byte. */
#ifndef MST_WIRE_WIRE_H
#define MST_WIRE_WIRE_H

#include <muster/error.h>

#include "base/command.h"

/* What a connection speaks. A server starts at UNKNOWN and learns:
 *
 *   UNKNOWN --VALIDATE--> C
 *      |
 *      +--anything else--> LEGACY --opcode 9 to 11, or 8 with a value--> B
 *                            |
 *                            +--opcode 7 first, or 8 without a value--> A
 */
enum mst__dialect {
    MST_DIALECT_UNKNOWN,
    MST_DIALECT_LEGACY, /* A or B: the same so far */
    MST_DIALECT_A,      /* torch up to 2.0 */
    MST_DIALECT_B,      /* torch 2.1 */
    MST_DIALECT_C,      /* torch from 2.2 */
};

/* "A", "B", "C", "legacy" or "unknown". */
const char *mst__dialect_name(enum mst__dialect dialect);

#define MST_WIRE_MAGIC 0x3C85F7CEU
#define MST_WIRE_VALIDATE_SIZE 5

/* The opcode of dialect C behind which a connection is framed: wire/job.h. */
#define MST_WIRE_OPCODE_JOB 0x42

struct mst__wire_limits {
    size_t key_size_max;
    size_t value_size_max;
    size_t message_size_max; /* a whole request or reply */
};

/* Limits for the given key and value sizes: every kind of request fits into a message. */
struct mst__wire_limits mst__wire_limits(size_t key_size_max, size_t value_size_max);

/* --- server side: requests in, replies out --- */

enum mst__wire_result {
    MST_WIRE_MORE = 0,     /* the request is incomplete */
    MST_WIRE_REQUEST = 1,  /* a command was read */
    MST_WIRE_EITHER = 2,   /* a DELETE of dialect A, or the first part of an APPEND of dialect B */
    MST_WIRE_VALIDATE = 3, /* the greeting of dialect C: consumed, no answer */
    MST_WIRE_JOB = 4,      /* frames follow, see wire/job.h: the opcode is consumed */
};

/* One per connection. */
struct mst__wire_reader {
    enum mst__dialect dialect;
    bool greeted;        /* a request was read: the next is not the first */
    uint64_t items_left; /* of the unfinished request: strs not yet seen, */
    size_t items_end;    /* and where the seen ones end; 0 = not begun */
};

void mst__wire_reader_init(struct mst__wire_reader *reader);

/**
 * Read one request from the front of @input.
 *
 * MST_WIRE_REQUEST: @ret_command is filled (it borrows from @input) and @ret_size is the size of
 * the request. MST_WIRE_VALIDATE: the connection speaks C; @ret_size bytes were consumed, there is
 * no command. MST_WIRE_JOB: the same; the rest is for mst__job_read. MST_WIRE_MORE: nothing is
 * consumed; call again with the same start and at least @ret_size bytes. MST_WIRE_EITHER: as
 * MST_WIRE_MORE with one more byte wanted; if none arrives within a grace, mst__wire_settle_a
 * makes the next call read a DELETE. MST_EPROTO, MST_ELIMIT: the connection must end; @reterr has
 * the reason.
 */
int mst__wire_read_request(struct mst__wire_reader *reader,
                           const struct mst__wire_limits *limits,
                           struct mst_bytes input,
                           struct mst__command *ret_command,
                           size_t *ret_size,
                           struct mst_err *reterr);

/* Read the last CHECK, WAIT, MULTI_GET or MULTI_SET, of @size bytes, once more, without scanning it
 * again. */
void mst__wire_read_again(struct mst__wire_reader *reader, size_t size);

/* The peer was silent after MST_WIRE_EITHER: it speaks A. */
void mst__wire_settle_a(struct mst__wire_reader *reader);

/* Append @reply to @output: 0, MST_ELIMIT or MST_ENOMEM, @output is then unchanged. */
int mst__wire_write_reply(struct mst__buf *output, const struct mst__reply *reply);

/* The same for a reply that ends with bytes: the part before them. */
int mst__wire_write_reply_head(struct mst__buf *output, const struct mst__reply *reply);

enum mst__notice_kind { MST_NOTICE_UPDATED, MST_NOTICE_CREATED, MST_NOTICE_DELETED };

/* Append a notification of WATCH (dialect A) to @output; errors as above. */
int mst__wire_write_notice(struct mst__buf *output,
                           enum mst__notice_kind kind,
                           struct mst_bytes key,
                           struct mst_bytes old_value,
                           struct mst_bytes new_value);

/* --- client side: requests out, replies in --- */

/* Append VALIDATE. */
int mst__wire_write_validate(struct mst__buf *output);

/* Whether @dialect has @op. */
bool mst__wire_has_op(enum mst__dialect dialect, enum mst__op op);

/* Append @command in @dialect: 0, MST_ENOTSUP if it has no such operation, MST_ELIMIT or
 * MST_ENOMEM; on error @output is unchanged. */
int mst__wire_write_request(struct mst__buf *output,
                            enum mst__dialect dialect,
                            const struct mst__command *command);

/* Read the reply to @command from the front of @input. MST_WIRE_REQUEST here means: @ret_reply is
 * filled, and took @ret_size bytes. MST_WIRE_MORE and errors as in mst__wire_read_request. */
int mst__wire_read_reply(const struct mst__command *command,
                         const struct mst__wire_limits *limits,
                         struct mst_bytes input,
                         struct mst__reply *ret_reply,
                         size_t *ret_size,
                         struct mst_err *reterr);

#endif /* MST_WIRE_WIRE_H */
