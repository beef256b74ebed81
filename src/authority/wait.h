/* authority/wait.h - calls of the application that wait for a member machine, shared by its two
 * drivers. In a task of the owner. */
#ifndef MST_AUTHORITY_WAIT_H
#define MST_AUTHORITY_WAIT_H

#include "base/until.h"
#include "handler/head.h"
#include "handler/work.h"

struct mst__wait {
    void *self; /* the handler; its head is its first member */
    const struct mst__member *member;
    const char *where; /* name of the authority in messages */
    void (*step)(void *self, struct mst__member_event event);
    void (*turn)(void *self, struct mst__until until);
    /* Whether the report @word has arrived; NULL = when it was sent. */
    bool (*is_heard)(const void *self, const struct mst__word *word);
};

/* Ask for the next round, with @address, and wait until it is sealed or fails; -1 = @join_us.
 * After an error the request is withdrawn. */
int mst__wait_round(const struct mst__wait *wait,
                    const char *address,
                    int64_t timeout_ms,
                    int64_t join_us,
                    struct mst_err *reterr);

/* Report @word within @timeout_ms. As mst_handler_finish. */
int mst__wait_word(const struct mst__wait *wait,
                   const struct mst__word *word,
                   int64_t timeout_ms,
                   struct mst_err *reterr);

#endif /* MST_AUTHORITY_WAIT_H */
