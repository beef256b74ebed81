/* etcd/v3_self.h - what the files of the v3 client share: where its paths begin, its token, and
 * what is done about an error before it is one of the caller's. */
#ifndef MST_ETCD_V3_SELF_H
#define MST_ETCD_V3_SELF_H

#include "etcd/v3_message.h"

#define MST_V3_PATH_SIZE 64

/* What a request needs besides its body. */
struct mst__v3_access {
    char path[MST_V3_PATH_SIZE];
    unsigned prefix; /* which of the three it begins with */
    char *token;     /* a copy; NULL = none */
    uint64_t token_serial;
};

/* What one operation has tried so far; zeroed at its beginning. */
struct mst__v3_trial {
    unsigned prefixes; /* one bit for each that is not there */
    unsigned renewals; /* of the token */
    int64_t pause_ms;  /* the last one */
};

/**
 * Find out what a request of @path ("/kv/range") needs: with the first one which prefix this etcd
 * has; with @has_token a token, if there is a user and none was asked for yet.
 *
 * Returns 0, or an error of these two requests; never MST_EUNKNOWN. Released with
 * mst__v3_access_close, also after an error; @access was zeroed or is used again.
 */
int mst__v3_access(struct mst__v3 *v3,
                   const char *path,
                   bool has_token,
                   struct mst__until until,
                   struct mst__v3_access *access,
                   struct mst_err *reterr);
void mst__v3_access_close(struct mst__v3_access *access);

/**
 * etcd has answered @error: do what can be done about it, with a pause where that makes sense.
 * @is_write: it is not to be executed twice.
 *
 * Returns 0 when it is worth another try, else the error to be told.
 */
int mst__v3_recover(struct mst__v3 *v3,
                    const struct mst__v3_access *access,
                    const struct mst__v3_error *error,
                    bool is_write,
                    struct mst__until until,
                    struct mst__v3_trial *trial,
                    struct mst_err *reterr);

/* Pause before the next try, each time for longer. False when there is no time left, or the thread
 * was woken. */
bool mst__v3_pause(struct mst__v3_trial *trial, struct mst__until until);

/* Until when that pause would be, for those who cannot stay so long. */
int64_t mst__v3_pause_until_ms(struct mst__v3_trial *trial);

struct mst__http *mst__v3_http(struct mst__v3 *v3);
const struct mst_log *mst__v3_log(const struct mst__v3 *v3);

/* For tests: after how much silence it is asked whether the member is alive, and how long the
 * answer may take. */
void mst__v3_watch_set_patience(struct mst__v3_watch *watch, int64_t silence_ms, int64_t answer_ms);

#endif /* MST_ETCD_V3_SELF_H */
