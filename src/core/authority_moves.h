/* core/authority_moves.h - changes of a run and its members, for the authority's own files. */
#ifndef MST_CORE_AUTHORITY_MOVES_H
#define MST_CORE_AUTHORITY_MOVES_H

#include "core/authority.h"

/* Why a session was ended by the authority. */
enum mst__expelled {
    MST_EXPELLED_SILENT,   /* was silent */
    MST_EXPELLED_REPLACED, /* was replaced by a newer process of the node */
    MST_EXPELLED_OVER,     /* held a round, and others claim a later one */
    MST_EXPELLED_LATE,     /* did not come back in time */
};

/* Whether a round is running or being taken over. */
static inline bool mst__authority_is_whole(const struct mst__authority *authority)
{
    return authority->phase == MST_AUTHORITY_RUNNING ||
           authority->phase == MST_AUTHORITY_RECLAIMING;
}

/* Change the phase. */
void mst__authority_move(struct mst__authority *authority,
                         enum mst__authority_phase to,
                         enum mst__authority_why why);

/* The events ANNOUNCED, KEPT, FINISHED and FAILED, SHUT. */
int mst__authority_announce(struct mst__authority *authority,
                            const struct mst__announcement *announcement,
                            struct mst_err *reterr);
int mst__authority_announce_kept(struct mst__authority *authority,
                                 const struct mst__announcement *announcement,
                                 struct mst_err *reterr);
int mst__authority_hear_word(struct mst__authority *authority,
                             struct mst__authority_member *member,
                             const struct mst__authority_event *event);
int mst__authority_shut(struct mst__authority *authority,
                        struct mst_bytes reason,
                        struct mst_bytes owner);

/* Store the cause of the last failure. */
void mst__authority_take_cause(struct mst__authority *authority, const struct mst__cause *cause);

/* End the round that runs or is reclaimed, because of the member with @rank; does nothing if it is
 * over. */
void mst__authority_reopen(struct mst__authority *authority,
                           enum mst__authority_why why,
                           uint32_t rank);

/* Let @member, a new entry or one that no longer holds a round, wait. */
void mst__authority_wait(struct mst__authority *authority, struct mst__authority_member *member);

/* @member, which holds the round, wants the next one. */
void mst__authority_come_back(struct mst__authority *authority,
                              struct mst__authority_member *member);

/* @member has the connection @driver and was just heard. */
void mst__authority_attach(struct mst__authority *authority,
                           struct mst__authority_member *member,
                           void *driver);

/* End the session of @member, which knows that. */
void mst__authority_part(struct mst__authority *authority,
                         struct mst__authority_member *member,
                         enum mst__authority_ended how);

/* @member has not finished after all. */
void mst__authority_unfinish(struct mst__authority *authority,
                             struct mst__authority_member *member);

/* The round is no longer whole: call finished members back, or release them. */
void mst__authority_call_finished(struct mst__authority *authority);

/* All members of the round have finished: close the job as finished. */
void mst__authority_finish(struct mst__authority *authority);

/* Too few nodes are left because finished members are gone: close the job as failed. */
void mst__authority_give_out(struct mst__authority *authority);

/* End the session of @member, tell it why, and drop the entry if it is not needed. */
void mst__authority_expel(struct mst__authority *authority,
                          struct mst__authority_member *member,
                          enum mst__expelled why);

/* Tell @member, which may have missed something, its standing. */
void mst__authority_tell_standing(struct mst__authority *authority,
                                  struct mst__authority_member *member);

/* Make the round (@epoch, @round), which another authority sealed with @world members, the current
 * one; its places can be claimed. Members that hold another round are expelled. Room was
 * reserved. */
void mst__authority_adopt(struct mst__authority *authority,
                          uint64_t epoch,
                          int64_t round,
                          uint32_t world);

/* Seal a round, or advance otherwise, if it is time. Call it after every event. */
void mst__authority_advance(struct mst__authority *authority);

#endif /* MST_CORE_AUTHORITY_MOVES_H */
