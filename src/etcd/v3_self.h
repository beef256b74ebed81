/* etcd/v3_self.h - shared by the files of the v3 client: path prefixes, the token, and recovery
 * from errors. */
#ifndef MST_ETCD_V3_SELF_H
#define MST_ETCD_V3_SELF_H

#include "etcd/v3_message.h"

#define MST_V3_PATH_SIZE 64

/* What a request needs besides its body. */
struct mst__v3_access {
    char path[MST_V3_PATH_SIZE];
    unsigned prefix; /* index of the path prefix */
    char *token;     /* a copy; NULL = none */
    uint64_t token_serial;
};

/* The attempts of one operation; zeroed at its beginning. */
struct mst__v3_trial {
    unsigned prefixes; /* one bit for each missing prefix */
    unsigned renewals; /* of the token */
    int64_t pause_ms;  /* the last pause */
};

/**
 * Prepare a request of @path ("/kv/range"): find the prefix of this etcd at the first one, and with
 * @has_token get a token, if there is a user and no token yet.
 *
 * Returns 0, or an error of these two requests; never MST_EUNKNOWN. Release with
 * mst__v3_access_close, also after an error; @access is zeroed, or used before.
 */
int mst__v3_access(struct mst__v3 *v3,
                   const char *path,
                   bool has_token,
                   struct mst__until until,
                   struct mst__v3_access *access,
                   struct mst_err *reterr);
void mst__v3_access_close(struct mst__v3_access *access);

/**
 * Recover from @error of etcd, with a pause if that makes sense. @is_write: the request must not be
 * executed twice.
 *
 * Returns 0 if a retry is worthwhile, else the error to return.
 */
int mst__v3_recover(struct mst__v3 *v3,
                    const struct mst__v3_access *access,
                    const struct mst__v3_error *error,
                    bool is_write,
                    struct mst__until until,
                    struct mst__v3_trial *trial,
                    struct mst_err *reterr);

/* Pause before the next attempt, longer each time. False if there is no time left, or the thread
 * was woken. */
bool mst__v3_pause(struct mst__v3_trial *trial, struct mst__until until);

/* The end of that pause, for callers that cannot wait so long. */
int64_t mst__v3_pause_until_ms(struct mst__v3_trial *trial);

struct mst__http *mst__v3_http(struct mst__v3 *v3);
const struct mst_log *mst__v3_log(const struct mst__v3 *v3);

/* For tests: the silence after which the member is checked, and the time for its answer. */
void mst__v3_watch_set_patience(struct mst__v3_watch *watch, int64_t silence_ms, int64_t answer_ms);

#endif /* MST_ETCD_V3_SELF_H */
