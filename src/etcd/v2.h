/* etcd/v2.h - the v2 API of etcd: keys in directories, TTLs, compare-and-swap, long polls.
 *
 * Several threads may call at once. A conditional write is never sent twice: if its result is
 * unknown, the call returns MST_EUNKNOWN, and the caller must read and decide. */
#ifndef MST_ETCD_V2_H
#define MST_ETCD_V2_H

#include "etcd/http.h"

/* etcd's error codes that are answers, not failures. */
enum mst__v2_code {
    MST_V2_OK = 0,
    MST_V2_NOT_FOUND = 100,
    MST_V2_COMPARE_FAILED = 101,
    MST_V2_NOT_FILE = 102,
    MST_V2_NOT_DIR = 104,
    MST_V2_EXISTS = 105,
    MST_V2_ROOT = 107,
    MST_V2_DIR_NOT_EMPTY = 108,
    MST_V2_WATCHER_CLEARED = 400,
    MST_V2_INDEX_CLEARED = 401,
};

struct mst__v2_node {
    char *key; /* "/a/b"; "" for the root */
    struct mst_buffer value;
    bool is_dir;
    bool has_ttl;
    int64_t ttl_s;
    uint64_t modified;
    uint64_t created;
    struct mst__v2_node *nodes; /* children of a listed directory, sorted by name */
    size_t node_count;
};

enum mst__v2_action {
    MST_V2_GET,
    MST_V2_SET,
    MST_V2_CREATE,
    MST_V2_UPDATE,
    MST_V2_COMPARE_AND_SWAP,
    MST_V2_COMPARE_AND_DELETE,
    MST_V2_DELETE,
    MST_V2_EXPIRE,
};

struct mst__v2_answer {
    enum mst__v2_code code; /* if not OK, only index, cause and message are valid */
    uint64_t index;         /* X-Etcd-Index, or the index of an event: a wait continues from index +
                               1 */
    enum mst__v2_action action;
    bool is_created; /* status 201 */
    struct mst__v2_node node;
    bool has_previous;
    struct mst__v2_node previous;
    char message[96]; /* of an error */
    char cause[160];
};

void mst__v2_answer_init(struct mst__v2_answer *answer);
/* Release the memory; the answer can be used again. */
void mst__v2_answer_close(struct mst__v2_answer *answer);

/**
 * Parse the answer of @where ("http://node0:2379", for messages) into @answer, which is
 * initialised; on error it is empty.
 *
 * Returns 0 or, as all calls below, MST_ENOTSUP, MST_EAUTH, MST_EUNKNOWN, MST_EINVAL, MST_EPROTO or
 * MST_ENOMEM.
 */
int mst__v2_answer_read(const struct mst__http_response *response,
                        const char *where,
                        struct mst__v2_answer *answer,
                        struct mst_err *reterr);

struct mst__v2;

/* Sends nothing. 0, MST_EINVAL, MST_ENOMEM. */
int mst__v2_new(const struct mst__http_options *options,
                struct mst__v2 **ret_v2,
                struct mst_err *reterr);
void mst__v2_free(struct mst__v2 *v2);
const char *mst__v2_where(const struct mst__v2 *v2);
size_t mst__v2_current(const struct mst__v2 *v2); /* see mst__http_current */

/* The number of requests sent, including long polls. */
uint64_t mst__v2_requests(const struct mst__v2 *v2);

#define MST_V2_NO_TTL (-1)

/* The condition of a write. */
enum mst__v2_if {
    MST_V2_ALWAYS,
    MST_V2_IF_ABSENT,  /* prevExist=false */
    MST_V2_IF_PRESENT, /* prevExist=true */
    MST_V2_IF_VALUE,   /* prevValue; an empty value cannot be compared: MST_EINVAL */
    MST_V2_IF_INDEX,   /* prevIndex; 0 cannot be compared: MST_EINVAL */
};

/* Zeroed, except for the key and ttl_s = MST_V2_NO_TTL, it sets an empty value without a TTL. */
struct mst__v2_write {
    const char *key; /* "/a/b", not encoded; a leading slash is optional */
    enum mst__v2_if condition;
    struct mst_bytes previous_value;
    uint64_t previous_index;
    struct mst_bytes value;
    bool is_dir;
    bool is_refresh; /* extends the TTL, keeps the value, notifies no watcher; needs ttl_s */
    int64_t ttl_s;   /* MST_V2_NO_TTL also removes a TTL */
};

/**
 * Keys and values must be UTF-8, else MST_EINVAL: etcd would return them changed. Double slashes in
 * keys count as one; the components `.` and `..` are refused.
 *
 * Common to all calls below: 0 with answer->code for all answers about keys. Else MST_ENOTSUP if
 * this etcd has its v2 API off, or has none (3.6 and later), with a message that says how to switch
 * it on; MST_EAUTH; MST_ECONN, MST_ETIMEOUT, MST_EUNKNOWN (also for failures of etcd during an
 * election, codes 300 and 301), MST_ECANCELED; MST_EPROTO, MST_ELIMIT, MST_ENOMEM, MST_EINVAL. The
 * caller initialises @answer; the call empties it first.
 *
 * Reads and refreshes (except refreshes bound to an index) are repeated with other endpoints; those
 * that etcd could not execute for lack of a leader, until the deadline. Reads never return
 * MST_EUNKNOWN.
 */
int mst__v2_get(struct mst__v2 *v2,
                const char *key,
                bool is_recursive,
                bool is_quorum,
                struct mst__until until,
                struct mst__v2_answer *answer,
                struct mst_err *reterr);
int mst__v2_put(struct mst__v2 *v2,
                const struct mst__v2_write *write,
                struct mst__until until,
                struct mst__v2_answer *answer,
                struct mst_err *reterr);
/* condition: ALWAYS, IF_VALUE or IF_INDEX. is_dir and @is_recursive are those of the API. */
int mst__v2_delete(struct mst__v2 *v2,
                   const struct mst__v2_write *write,
                   bool is_recursive,
                   struct mst__until until,
                   struct mst__v2_answer *answer,
                   struct mst_err *reterr);

/**
 * One long poll: the first event at @key, or below it with @is_recursive, whose index is at least
 * @from_index; with 0 the next event. MST_ETIMEOUT if there is none before the deadline. Code
 * MST_V2_INDEX_CLEARED: read, and wait from there. MST_ECONN if the answer was cut off: read again.
 */
int mst__v2_wait(struct mst__v2 *v2,
                 const char *key,
                 bool is_recursive,
                 uint64_t from_index,
                 struct mst__until until,
                 struct mst__v2_answer *answer,
                 struct mst_err *reterr);

#endif /* MST_ETCD_V2_H */
