/* wire/journal.h - the events of a server's authorities as records of a file.
 *
 * Pure: events and states to bytes and back. docs/journal.md describes every byte. A record is a
 * checksum, its size and its fields, so that a partial record at the end of a file is recognised.
 * BEGIN starts a file, and each later run that appends to it. A job enters with the whole state of
 * its authority (JOB, MEMBERs, RANKS, READY), followed by its events in order, with TAKEN where an
 * effect was taken. So each file can be replayed alone. */
#ifndef MST_WIRE_JOURNAL_H
#define MST_WIRE_JOURNAL_H

#include "base/buf.h"
#include "core/authority.h"

#define MST_JOURNAL_VERSION 1
#define MST_JOURNAL_HEAD_SIZE 6

/* The first field of a BEGIN, therefore at a fixed place in each file. */
#define MST_JOURNAL_MAGIC "muster journal\n"

enum mst__journal_kind {
    MST_JOURNAL_BEGIN = 1,
    MST_JOURNAL_JOB,       /* the state of a job's authority begins */
    MST_JOURNAL_MEMBER,    /* the next entry of its table */
    MST_JOURNAL_RANKS,     /* some ranks that were lost, or released */
    MST_JOURNAL_READY,     /* the state is complete */
    MST_JOURNAL_TAKEN,     /* the next effect was taken, if there was one */
    MST_JOURNAL_GAP,       /* after a state: earlier events of this job are missing */
    MST_JOURNAL_FORGOTTEN, /* the server has forgotten the job */
    MST_JOURNAL_EVENT = 16 /* + enum mst__authority_event_kind */
};

struct mst__journal_begin {
    uint32_t version;
    struct mst_bytes software; /* "1.2.3" */
    int64_t wall_us;           /* the time of day at @now_us */
    int64_t now_us;
};

/* An event with everything that it refers to. Its driver, and that of its announcement, is the
 * number of the connection. */
struct mst__journal_event {
    struct mst__authority_event event;
    uint64_t contact; /* DISCONNECTED: number of the connection */
    bool is_starved;  /* an announcement that was refused for lack of memory */
    struct mst__announcement announcement;
    struct mst__label labels[MST_AUTHORITY_LABELS_MAX];
    struct mst__cause cause;
};

/* --- writing: journal.c, journal_state.c --- */

/* Appends to @output. Each call returns 0, or MST_ELIMIT or MST_ENOMEM with nothing appended. Times
 * are relative to the previous record. */
struct mst__journal {
    struct mst__buf output;
    int64_t last_us;
};

void mst__journal_init(struct mst__journal *journal, size_t size_max);
void mst__journal_close(struct mst__journal *journal);

int mst__journal_write_begin(struct mst__journal *journal, const struct mst__journal_begin *begin);

/* Record @event of @job. @contact: the number of the connection, for DISCONNECTED; an announcement
 * contains its own. @is_starved as above. */
int mst__journal_write_event(struct mst__journal *journal,
                             uint32_t job,
                             const struct mst__authority_event *event,
                             uint64_t contact,
                             bool is_starved);

/* TAKEN, FORGOTTEN, and GAP with the @count of missing events; 0 = not known. */
int mst__journal_write_mark(struct mst__journal *journal,
                            uint32_t job,
                            enum mst__journal_kind kind,
                            uint64_t count);

/* The whole state of @authority. The drivers of its members are the numbers of their
 * connections. */
int mst__journal_write_job(struct mst__journal *journal,
                           uint32_t job,
                           struct mst_bytes run_id,
                           const struct mst__authority *authority);

/* --- reading --- */

/**
 * Read the head of the record at the front of @input, and check its bytes.
 *
 * Returns 1 with the fields in @ret_fields, which borrow from @input, and the size of the record; 0
 * if @input ends before the record does; MST_EPROTO if it is damaged.
 */
int mst__journal_read(struct mst_bytes input, struct mst_bytes *ret_fields, size_t *ret_size);

/* A record, as far as it can be decoded without its job. */
struct mst__journal_record {
    enum mst__journal_kind kind;
    uint32_t job;
    int64_t now_us;
    union {
        struct mst__journal_begin begin;
        struct mst__journal_event event;
        uint64_t count;        /* GAP */
        struct mst_bytes rest; /* JOB, MEMBER, RANKS, READY: for mst__journal_restore */
    } u;
};

/* Decode @fields, which @ret_record borrows from; @last_us is the time of the previous record and
 * is set to that of this one. 0 or MST_EPROTO. */
int mst__journal_decode(struct mst_bytes fields,
                        int64_t *last_us,
                        struct mst__journal_record *ret_record);

/* The partial state of an authority. Zeroed: nothing was read yet. */
struct mst__journal_state {
    bool has_begun, is_ready;
    uint32_t members_left, lost_left, released_left;
    struct mst_bytes run_id; /* of JOB; borrowed from it */
};

/* Put @record, of kind JOB, MEMBER, RANKS or READY, into @authority. JOB initialises it, with
 * @options for values that the journal does not have; it must then be closed, also after an error.
 * After READY it has the recorded state. 0, MST_EPROTO, MST_ENOMEM. */
int mst__journal_restore(struct mst__journal_state *state,
                         const struct mst__journal_record *record,
                         const struct mst__authority_options *options,
                         struct mst__authority *authority);

#endif /* MST_WIRE_JOURNAL_H */
