/* etcd/v3_message.h - requests and answers of the v3 API in the form of its JSON gateway.
 *
 * Pure: values to text and back. In answers, members that are zero, false or empty are missing;
 * 64-bit numbers are strings; errors have one form up to etcd 3.5, another since 3.6, and a third
 * in streams. */
#ifndef MST_ETCD_V3_MESSAGE_H
#define MST_ETCD_V3_MESSAGE_H

#include "etcd/v3.h"

/* etcd's default limit of 1.5 MiB, times 4/3 for base64, and room for higher settings. */
#define MST_V3_REQUEST_SIZE_MAX ((size_t)64 << 20)

/* --- requests: appended to @body. 0, MST_EINVAL (an empty key, for example), MST_ELIMIT,
 * MST_ENOMEM; on error @body is unchanged --- */

int mst__v3_write_range(struct mst__buf *body, const struct mst__v3_range *range);
int mst__v3_write_put(struct mst__buf *body, const struct mst__v3_put *put);
int mst__v3_write_delete(struct mst__buf *body, const struct mst__v3_delete *del);
int mst__v3_write_txn(struct mst__buf *body, const struct mst__v3_txn *txn);
/* TTL and ID; 0 omits the member, and etcd chooses. */
int mst__v3_write_lease(struct mst__buf *body, int64_t ttl_s, int64_t lease);
int mst__v3_write_compact(struct mst__buf *body, int64_t revision);
int mst__v3_write_authenticate(struct mst__buf *body, const char *user, const char *password);
/* One create_request and a newline: one body holds several. @from = 0: from now on. */
int mst__v3_write_watch(struct mst__buf *body, const struct mst__v3_watched *watched, int64_t from);

/* Whether @txn changes nothing in either branch. */
bool mst__v3_txn_is_read(const struct mst__v3_txn *txn);

/* --- errors --- */

/* How to react to an error of etcd. */
enum mst__v3_fate {
    MST_V3_REFUSED,   /* a repetition would fail as well */
    MST_V3_TRANSIENT, /* try another member, or later; a write may have been executed */
    MST_V3_TOKEN,     /* not executed: authenticate again */
    MST_V3_NO_PATH,   /* not executed: the path does not exist here */
};

struct mst__v3_error {
    enum mst__v3_fate fate;
    int code;          /* MST_E… if refused */
    int grpc;          /* gRPC code, or -1 */
    bool is_untried;   /* TRANSIENT: certainly not executed */
    char message[160]; /* printable */
};

/* Parse the error in the answer @body with HTTP @status, in any form. False if it is not an error:
 * status 200 without `error`. */
bool mst__v3_read_error(int status, struct mst_bytes body, struct mst__v3_error *ret_error);

/* Judge a gRPC code and its text. */
void mst__v3_judge(int grpc, struct mst_bytes message, struct mst__v3_error *ret_error);

/* --- answers of status 200. 0, MST_EPROTO with the error, MST_ELIMIT, MST_ENOMEM --- */

/* The answer of a range, a put or a delete; @result is empty. */
int mst__v3_read_range(struct mst_bytes body,
                       struct mst__v3_result *result,
                       struct mst_err *reterr);
int mst__v3_read_put(struct mst_bytes body, struct mst__v3_result *result, struct mst_err *reterr);
int mst__v3_read_delete(struct mst_bytes body,
                        struct mst__v3_result *result,
                        struct mst_err *reterr);
/* The answer must match @txn. */
int mst__v3_read_txn(struct mst_bytes body,
                     const struct mst__v3_txn *txn,
                     struct mst__v3_result *result,
                     struct mst_err *reterr);

struct mst__v3_lease {
    int64_t id;
    int64_t ttl_s; /* 0 or less: the lease is gone */
};

/* The answer of grant and time-to-live, and of keep-alive, which is the first line of a stream. */
int mst__v3_read_lease(struct mst_bytes body,
                       struct mst__v3_lease *ret_lease,
                       struct mst_err *reterr);
int mst__v3_read_keep_alive(struct mst_bytes body,
                            struct mst__v3_lease *ret_lease,
                            struct mst_err *reterr);
/* On the heap; MST_EPROTO if it contains a character that is not allowed in a header. */
int mst__v3_read_token(struct mst_bytes body, char **ret_token, struct mst_err *reterr);
int mst__v3_read_status(struct mst_bytes body,
                        struct mst__v3_status *ret_status,
                        struct mst_err *reterr);

/* --- the lines of a watch --- */

enum mst__v3_line_kind {
    MST_V3_LINE_CREATED,
    MST_V3_LINE_EVENTS,
    MST_V3_LINE_PROGRESS, /* no event up to its revision */
    MST_V3_LINE_CANCELED,
    MST_V3_LINE_ERROR,
};

struct mst__v3_line {
    enum mst__v3_line_kind kind;
    int64_t watch_id;
    int64_t revision; /* of the header */
    uint64_t member;
    int64_t compact_revision;   /* CANCELED: not 0 if this is the reason */
    struct mst__v3_error error; /* ERROR, and CANCELED for another reason */
    struct mst__v3_event *events;
    size_t event_count;
};

/* Release @ret_line with mst__v3_line_close, also after an error. */
int mst__v3_read_line(struct mst_bytes text, struct mst__v3_line *ret_line, struct mst_err *reterr);
void mst__v3_line_close(struct mst__v3_line *line);

void mst__v3_kv_close(struct mst__v3_kv *kv);

#endif /* MST_ETCD_V3_MESSAGE_H */
