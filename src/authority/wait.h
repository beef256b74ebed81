/* authority/wait.h - calls of the application that wait for something of a member machine, the same
 * for its two drivers. In a task of the owner. */
#ifndef MST_AUTHORITY_WAIT_H
#define MST_AUTHORITY_WAIT_H

#include "base/until.h"
#include "handler/head.h"
#include "handler/work.h"

struct mst__wait {
    void *self; /* the handler, which begins with its head */
    const struct mst__member *member;
    const char *where; /* what messages call the authority */
    void (*step)(void *self, struct mst__member_event event);
    void (*turn)(void *self, struct mst__until until);
    /* Whether @word has come to where it had to; NULL = when it was said. */
    bool (*is_heard)(const void *self, const struct mst__word *word);
};

/* Want the next round, with @address, until there is one or it will not come; -1 = @join_us. The
 * round is withdrawn when this fails. */
int mst__wait_round(const struct mst__wait *wait,
                    const char *address,
                    int64_t timeout_ms,
                    int64_t join_us,
                    struct mst_err *reterr);

/* Say @word, for at most @timeout_ms. As mst_handler_finish. */
int mst__wait_word(const struct mst__wait *wait,
                   const struct mst__word *word,
                   int64_t timeout_ms,
                   struct mst_err *reterr);

#endif /* MST_AUTHORITY_WAIT_H */
