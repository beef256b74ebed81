/* core/authority_members.h - the table of an authority's members: entries, names, lists, notices.
 *
 * What the authority's own files share. An entry is found by name or by id; ids carry a generation,
 * so that the id of a session that has ended finds nobody. Entries move when the table grows: no
 * pointer into it outlives mst__members_reserve. */
#ifndef MST_CORE_AUTHORITY_MEMBERS_H
#define MST_CORE_AUTHORITY_MEMBERS_H

#include "core/authority.h"

#define MST_INDEX_NONE UINT32_MAX
/* In the table of places: its member had finished and is gone. */
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

/* Whether the current round knows @member under its rank. */
bool mst__members_is_ranked(const struct mst__authority *authority,
                            const struct mst__authority_member *member);

/* Room for one more entry, and for sealing with all of them: 0, MST_ENOMEM, or MST_ELIMIT when
 * memory_max does not allow it. The same of the next one. */
int mst__members_reserve(struct mst__authority *authority);

/* Whoever has a rank, or had it, in the current round; MST_INDEX_NONE, MST_INDEX_RELEASED. Room for
 * @count ranks from @first on; those without have nobody. */
uint32_t mst__places_get(const struct mst__authority *authority, uint32_t rank);
void mst__places_set(struct mst__authority *authority, uint32_t rank, uint32_t index);
int mst__places_reserve(struct mst__authority *authority, uint32_t first, uint32_t count);
/* Nobody has any rank. */
void mst__places_clear(struct mst__authority *authority);

/* A fresh entry, of place FREE; room was reserved. */
struct mst__authority_member *mst__members_take(struct mst__authority *authority);

/* Give back the entry of one that is gone, unless it is remembered or has to be told. */
void mst__members_drop(struct mst__authority *authority, struct mst__authority_member *member);

/* Release the memory of the table. */
void mst__members_close(struct mst__authority *authority);

/* The entry of the living or gone session @id; NULL when there is none. */
struct mst__authority_member *mst__members_get(const struct mst__authority *authority,
                                               mst__authority_id id);

/* The entry that @name leads to, or NULL. */
struct mst__authority_member *mst__members_named(const struct mst__authority *authority,
                                                 struct mst_bytes name);

/* Room for @name: as mst__members_reserve. mst__members_name follows, and lets the name of @member
 * lead to it; another entry with that name gives it up. */
int mst__members_reserve_name(struct mst__authority *authority, struct mst_bytes name);
void mst__members_name(struct mst__authority *authority, struct mst__authority_member *member);
/* Forget the name of @member, if it leads there. */
void mst__members_unname(struct mst__authority *authority, struct mst__authority_member *member);

/* A copy of what @announcement says of its node: as mst__members_reserve. It is counted when a
 * member has it. */
int mst__members_text(const struct mst__authority *authority,
                      const struct mst__announcement *announcement,
                      char **ret_text,
                      uint16_t *ret_size);
/* @member has @text from now on, which may be NULL. */
void mst__members_set_text(struct mst__authority *authority,
                           struct mst__authority_member *member,
                           char *text,
                           uint16_t text_size);

/* Put @member at the end of the list of the present or absent, as is_absent says, heard at
 * authority->now_us; but for who has finished in a round that is whole, whose silence means
 * nothing. Take it out, if it is in one. */
void mst__members_link(struct mst__authority *authority, struct mst__authority_member *member);
void mst__members_unlink(struct mst__authority *authority, struct mst__authority_member *member);

/* Tell @member, which is present or has just ended; the last notice counts. */
void mst__members_notify(struct mst__authority *authority,
                         struct mst__authority_member *member,
                         enum mst__authority_effect_kind kind);
/* Take the next entry from the list of notices; its kind is in ret_kind. NULL at the end. */
struct mst__authority_member *mst__members_next_notice(struct mst__authority *authority,
                                                       enum mst__authority_effect_kind *ret_kind);

#endif /* MST_CORE_AUTHORITY_MEMBERS_H */
