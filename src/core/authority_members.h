/* core/authority_members.h - the table of an authority's members: entries, names, lists, notices.
 *
 * Shared by the authority's own files. An entry is found by name or by id; ids carry a generation,
 * so that the id of an ended session finds nothing. Entries move when the table grows: no pointer
 * into it outlives mst__members_reserve. */
#ifndef MST_CORE_AUTHORITY_MEMBERS_H
#define MST_CORE_AUTHORITY_MEMBERS_H

#include "core/authority.h"

#define MST_INDEX_NONE UINT32_MAX
/* In the table of places: the member had finished and is gone. */
#define MST_INDEX_RELEASED (UINT32_MAX - 1)

static inline struct mst__authority_member *mst__members_at(const struct mst__authority *authority,
                                                            uint32_t index)
{
    MST_ASSERT(index < authority->members_count);
    return &authority->members[index];
}

static inline uint32_t mst__members_index(const struct mst__authority *authority,
                                          const struct mst__authority_member *member)
{
    return (uint32_t)(member - authority->members);
}

static inline bool mst__members_is_living(const struct mst__authority_member *member)
{
    return member->place == MST_PLACE_WAITING || member->place == MST_PLACE_HOLDING;
}

/* Whether @member is in the current round under its rank. */
bool mst__members_is_ranked(const struct mst__authority *authority,
                            const struct mst__authority_member *member);

/* Reserve room for one more entry, and for a seal with all of them: 0, MST_ENOMEM, or MST_ELIMIT if
 * memory_max does not allow it. So does the next one. */
int mst__members_reserve(struct mst__authority *authority);

/* The member that has, or had, a rank in the current round; MST_INDEX_NONE, MST_INDEX_RELEASED.
 * Room for @count ranks from @first on; new ones are MST_INDEX_NONE. */
uint32_t mst__places_get(const struct mst__authority *authority, uint32_t rank);
void mst__places_set(struct mst__authority *authority, uint32_t rank, uint32_t index);
int mst__places_reserve(struct mst__authority *authority, uint32_t first, uint32_t count);
/* Clear all ranks. */
void mst__places_clear(struct mst__authority *authority);

/* A fresh entry, of place FREE; room was reserved. */
struct mst__authority_member *mst__members_take(struct mst__authority *authority);

/* Free the entry of a gone member, unless it is remembered or has a notice. */
void mst__members_drop(struct mst__authority *authority, struct mst__authority_member *member);

/* Release the memory of the table. */
void mst__members_close(struct mst__authority *authority);

/* The entry of the living or gone session @id; NULL if there is none. */
struct mst__authority_member *mst__members_get(const struct mst__authority *authority,
                                               mst__authority_id id);

/* The entry of @name, or NULL. */
struct mst__authority_member *mst__members_named(const struct mst__authority *authority,
                                                 struct mst_bytes name);

/* Reserve room for @name: as mst__members_reserve. Then mst__members_name assigns the name of
 * @member to it; another entry with that name loses it. */
int mst__members_reserve_name(struct mst__authority *authority, struct mst_bytes name);
void mst__members_name(struct mst__authority *authority, struct mst__authority_member *member);
/* Remove the name of @member, if it has one. */
void mst__members_unname(struct mst__authority *authority, struct mst__authority_member *member);

/* Copy the texts of @announcement: as mst__members_reserve. The copy is charged at once. */
int mst__members_text(struct mst__authority *authority,
                      const struct mst__announcement *announcement,
                      char **ret_text,
                      uint16_t *ret_size);
/* Free a copy that no member gets. */
void mst__members_drop_text(struct mst__authority *authority, char *text, uint16_t text_size);
/* Give the copy @text, or NULL, to @member. */
void mst__members_set_text(struct mst__authority *authority,
                           struct mst__authority_member *member,
                           char *text,
                           uint16_t text_size);

/* Append @member to a list of the present or to the absent ones, as is_absent says, heard at
 * authority->now_us; not if it has finished in a whole round, where its silence means nothing.
 * Remove it, if it is in a list. */
void mst__members_link(struct mst__authority *authority, struct mst__authority_member *member);
void mst__members_unlink(struct mst__authority *authority, struct mst__authority_member *member);

/* The present member that is lost next if it stays silent, *ret_due_us is when; NULL, INT64_MAX. */
struct mst__authority_member *mst__members_next_silent(const struct mst__authority *authority,
                                                       int64_t *ret_due_us);

/* Add a notice for @member, which is present or has just ended; the last notice counts. */
void mst__members_notify(struct mst__authority *authority,
                         struct mst__authority_member *member,
                         enum mst__authority_effect_kind kind);
/* Take the next entry from the list of notices; its kind is in ret_kind. NULL at the end. */
struct mst__authority_member *mst__members_next_notice(struct mst__authority *authority,
                                                       enum mst__authority_effect_kind *ret_kind);

#endif /* MST_CORE_AUTHORITY_MEMBERS_H */
