/* authority/wait.c - calls of the application that wait for a member machine. */
#include "authority/wait.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/number.h"
#include "core/saturate.h"

int mst__wait_round(const struct mst__wait *wait,
                    const struct mst__wait_place *place,
                    int64_t timeout_ms,
                    int64_t join_us,
                    int *ret_fd,
                    struct mst_err *reterr)
{
    const struct mst__member *member = wait->member;
    const struct mst__owner *owner = &((const struct mst__head *)wait->self)->owner;
    int64_t timeout_us = timeout_ms < 0 ? join_us : mst__saturate_multiply(timeout_ms, 1000);
    int64_t begin_us = mst__clock_us();
    *ret_fd = -1;
    int rv =
        mst__bootstrap_reserve(place->params->local_addr, place->endpoint,
                               mst__until_by(owner->cancel_fd, timeout_us / 1000 + 1),
                               &place->params->log, place->addr, ret_fd, place->address, reterr);
    if (rv != 0) {
        return rv == MST_ECANCELED ? mst__owner_fail_cancelled(reterr) : rv;
    }
    wait->step(wait->self, (struct mst__member_event){.kind = MST_MEMBER_EVENT_WANTED,
                                                      .address = mst_bytes_str(place->address),
                                                      .timeout_us = timeout_us,
                                                      .spent_us = mst__clock_us() - begin_us});
    while (member->phase == MST_MEMBER_JOINING && !mst__owner_is_cancelled(owner)) {
        wait->turn(wait->self, mst__until_by(owner->cancel_fd, INT64_MAX));
    }
    if (member->phase == MST_MEMBER_JOINING) {
        wait->step(wait->self, (struct mst__member_event){.kind = MST_MEMBER_EVENT_LEAVE});
        return mst__owner_fail_cancelled(reterr);
    }
    return member->err.code == 0 ? 0 : mst__err_pass(reterr, member->err.code, &member->err);
}

static bool is_heard(const struct mst__wait *wait, const struct mst__word *word)
{
    return mst__member_is_heard(wait->member) &&
           (wait->is_heard == NULL || wait->is_heard(wait->self, word));
}

int mst__wait_word(const struct mst__wait *wait,
                   const struct mst__word *word,
                   int64_t timeout_ms,
                   struct mst_err *reterr)
{
    const struct mst__member *member = wait->member;
    const struct mst__owner *owner = &((const struct mst__head *)wait->self)->owner;
    if (member->phase == MST_MEMBER_OUT) {
        return mst__fail(reterr, MST_EINVAL, 0, "no round is joined");
    }
    timeout_ms = mst__min(timeout_ms, word->limit_ms);
    struct mst__until until = mst__until_by(owner->cancel_fd, timeout_ms);
    wait->step(wait->self, mst__word_event(word));
    while (!is_heard(wait, word) && !mst__owner_is_cancelled(owner) && !mst__until_is_over(until)) {
        wait->turn(wait->self, until);
    }
    if (member->word_err.code != 0) {
        return mst__err_pass(reterr, member->word_err.code, &member->word_err);
    }
    if (is_heard(wait, word)) {
        return 0;
    }
    return mst__owner_is_cancelled(owner)
               ? mst__owner_fail_cancelled(reterr)
               : mst__fail(reterr, MST_ECONN, 0,
                           "%.60s does not answer; the report is sent when it does", wait->where);
}
