/* core/authority_moves.h - what the authority's own files do to a run and its members. */
#ifndef MST_CORE_AUTHORITY_MOVES_H
#define MST_CORE_AUTHORITY_MOVES_H

#include "core/authority.h"

/* Why a session was ended by the authority. */
enum mst__expelled {
    MST_EXPELLED_SILENT,   /* not heard of */
    MST_EXPELLED_REPLACED, /* by a newer process of the node */
    MST_EXPELLED_OVER,     /* held a round, and others claim a later one */
    MST_EXPELLED_LATE,     /* did not come back in time */
};

/* Whether a round runs or is being taken over. */
static inline bool mst__authority_is_whole(const struct mst__authority *authority)
{
    return authority->phase == MST_AUTHORITY_RUNNING ||
           authority->phase == MST_AUTHORITY_RECLAIMING;
}

/* The phase is another one from now on. */
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

/* @cause is that of the last failure. */
void mst__authority_take_cause(struct mst__authority *authority, const struct mst__cause *cause);

/* The round that runs or is reclaimed is over, because of the member with @rank; nothing if it is
 * already. */
void mst__authority_reopen(struct mst__authority *authority,
                           enum mst__authority_why why,
                           uint32_t rank);

/* @member, a new entry or one that holds a round no longer, waits from now on. */
void mst__authority_wait(struct mst__authority *authority, struct mst__authority_member *member);

/* @member, which holds the round, wants the next one. */
void mst__authority_come_back(struct mst__authority *authority,
                              struct mst__authority_member *member);

/* @member has the connection @driver and was heard just now. */
void mst__authority_attach(struct mst__authority *authority,
                           struct mst__authority_member *member,
                           void *driver);

/* End the session of @member, who knows that. */
void mst__authority_part(struct mst__authority *authority,
                         struct mst__authority_member *member,
                         enum mst__authority_ended how);

/* @member has not finished, after all. */
void mst__authority_unfinish(struct mst__authority *authority,
                             struct mst__authority_member *member);

/* The round is not whole any more: who has finished is called back, or released. */
void mst__authority_call_finished(struct mst__authority *authority);

/* All members of the round have finished: the job has. */
void mst__authority_finish(struct mst__authority *authority);

/* Too few are left, because members that had finished are gone: the job has failed. */
void mst__authority_give_out(struct mst__authority *authority);

/* End the session of @member, tell it why, and drop the entry if nothing else needs it. */
void mst__authority_expel(struct mst__authority *authority,
                          struct mst__authority_member *member,
                          enum mst__expelled why);

/* Tell @member, which may have missed something, how it stands. */
void mst__authority_tell_standing(struct mst__authority *authority,
                                  struct mst__authority_member *member);

/* The round (@epoch, @round), which another authority sealed with @world members, is the current
 * one and its places can be claimed. Who holds another one is expelled. Room was reserved. */
void mst__authority_adopt(struct mst__authority *authority,
                          uint64_t epoch,
                          int64_t round,
                          uint32_t world);

/* Seal, or go on, if the time for it has come. To be called behind every event. */
void mst__authority_advance(struct mst__authority *authority);

#endif /* MST_CORE_AUTHORITY_MOVES_H */
