/* authority/wait.h - calls of the application that wait for a member machine, shared by its two
 * drivers. In a task of the owner. */
#ifndef MST_AUTHORITY_WAIT_H
#define MST_AUTHORITY_WAIT_H

#include "base/until.h"
#include "handler/bootstrap.h"
#include "handler/head.h"
#include "handler/params.h"
#include "handler/work.h"

struct mst__wait {
    void *self; /* the handler; its head is its first member */
    const struct mst__member *member;
    const char *where; /* name of the authority in messages */
    void (*step)(void *self, struct mst__member_event event);
    void (*turn)(void *self, struct mst__until until);
    /* Whether the report @word has arrived; NULL = when the member is heard. */
    bool (*is_heard)(const void *self, const struct mst__word *word);
};

/* How others reach our workers: the arguments and results of mst__bootstrap_reserve. */
struct mst__wait_place {
    const struct mst_params *params;
    const struct mst__endpoint *endpoint;
    char *addr;    /* MST_HOST_SIZE bytes; empty = not known yet */
    char *address; /* MST_ENDPOINT_TEXT_SIZE bytes */
};

/* Reserve a port at @place, ask for the next round with its address, and wait until the round is
 * sealed or fails; -1 = @join_us. After an error the request is withdrawn. The caller closes
 * @ret_fd if it is not -1, after the outcome is known. */
int mst__wait_round(const struct mst__wait *wait,
                    const struct mst__wait_place *place,
                    int64_t timeout_ms,
                    int64_t join_us,
                    int *ret_fd,
                    struct mst_err *reterr);

/* Report @word within @timeout_ms. As mst_handler_finish. */
int mst__wait_word(const struct mst__wait *wait,
                   const struct mst__word *word,
                   int64_t timeout_ms,
                   struct mst_err *reterr);

#endif /* MST_AUTHORITY_WAIT_H */
