/* core/authority_keep.c - converts the machine's state to its stored form, and back. */
#include "core/authority_keep.h"

#include "base/assert.h"
#include "base/err.h"
#include "core/authority_members.h"
#include "core/authority_moves.h"

/* --- to the store --- */

bool mst__authority_kept(const struct mst__authority *authority, struct mst__kept *ret_kept)
{
    bool is_running = authority->phase == MST_AUTHORITY_RUNNING;
    bool is_over = authority->phase == MST_AUTHORITY_OPEN && authority->held_count > 0;
    *ret_kept = (struct mst__kept){
        .epoch = authority->round_epoch,
        .round = authority->round,
        .world = authority->world,
        .first_world = authority->first_world,
        .is_over = is_over,
        .why = is_over ? authority->reopened_why : MST_AUTHORITY_WHY_NONE,
        .waiting = is_running ? authority->waiting_told : 0,
        .restarts = authority->restarts,
        .restarts_total = authority->restarts_total,
        .restarts_age_us =
            authority->restarts == 0 ? 0 : authority->now_us - authority->restarts_us,
        .has_cause = is_over && authority->reopened_why == MST_AUTHORITY_WHY_FAILED,
        .cause = mst__authority_cause(authority),
    };
    return is_running || is_over;
}

uint32_t mst__authority_gone(const struct mst__authority *authority,
                             const uint64_t *sessions,
                             bool *ret_is_gone)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < authority->world; rank++) {
        const struct mst__authority_member *member = mst__authority_ranked(authority, rank);
        bool is_there =
            member != NULL && member->place != MST_PLACE_GONE && member->session == sessions[rank];
        ret_is_gone[rank] = !is_there;
        count += !is_there;
    }
    return count;
}

uint32_t mst__authority_finished(const struct mst__authority *authority, bool *is_finished)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < authority->world; rank++) {
        const struct mst__authority_member *member = mst__authority_ranked(authority, rank);
        is_finished[rank] = is_finished[rank] || (member != NULL && member->is_finished);
        count += is_finished[rank];
    }
    return count;
}

/* --- sessions of one process --- */

int mst__authority_announce_kept(struct mst__authority *authority,
                                 const struct mst__announcement *announcement,
                                 struct mst_err *reterr)
{
    struct mst__authority_member *other = mst__members_named(authority, announcement->name);
    bool is_one = other != NULL && mst__members_is_living(other) &&
                  other->incarnation == announcement->incarnation;
    if (is_one && other->session > announcement->session) {
        authority->refusal = MST_REFUSAL_STALE;
        return mst__fail(reterr, MST_EEXPELLED, 0,
                         "this process has entered again since, with a newer session");
    }
    if (is_one && other->session < announcement->session) {
        mst__authority_part(authority, other, MST_AUTHORITY_ENDED_DEAD);
        mst__authority_advance(authority);
    }
    return mst__authority_announce(authority, announcement, reterr);
}

/* --- from the store --- */

/* Holders of the round, waiting nodes, returned nodes: in this order the machine takes a round over
 * and gives way to the next one as its predecessor would have. A process whose node has a newer one
 * is announced first, to be replaced and leave its rank, or last, to be refused: in between, it
 * could be sealed in. */
enum turn { TURN_HOLDING, TURN_WAITING, TURN_BACK, TURN_OLD };

struct rebuild {
    struct mst__authority *authority;
    const struct mst__kept *round;
    const struct mst__kept_session *sessions;
    size_t count;
    struct mst__map newest; /* node to the index of its newest session */
    const struct mst__kept_driver *driver;
};

static bool is_newer(const struct mst__kept_session *a, const struct mst__kept_session *b)
{
    return a->incarnation != b->incarnation ? a->incarnation > b->incarnation
                                            : a->session > b->session;
}

static int rebuild_compare(struct rebuild *rebuild)
{
    for (size_t i = 0; i < rebuild->count; i++) {
        const struct mst__kept_session *session = &rebuild->sessions[i];
        MST_ASSERT(rebuild->round != NULL || session->rank == MST_AUTHORITY_RANK_NONE);
        MST_ASSERT(rebuild->round != NULL || !session->has_failed);
        MST_ASSERT(session->has_word || !session->has_failed);
        size_t *newest = mst__map_get(&rebuild->newest, session->node);
        if (newest == NULL) {
            newest = mst__map_add(&rebuild->newest, session->node);
            if (newest == NULL) {
                return MST_ENOMEM;
            }
            *newest = i;
        } else if (is_newer(session, &rebuild->sessions[*newest])) {
            *newest = i;
        }
    }
    return 0;
}

/* Whether its failure is not yet decided: it holds its place until then. */
static bool is_undecided(const struct rebuild *rebuild, const struct mst__kept_session *session)
{
    if (!session->has_failed) {
        return false;
    }
    MST_ASSERT(rebuild->round != NULL);
    return !rebuild->round->is_over;
}

/* Whether the stored round, still running, knows that the member @rank has finished. */
static bool has_finished(const struct rebuild *rebuild, uint32_t rank)
{
    const struct mst__kept *round = rebuild->round;
    MST_ASSERT(round != NULL && rank < round->world);
    return !round->is_over && round->is_finished != NULL && round->is_finished[rank];
}

static enum turn turn_of(const struct rebuild *rebuild, size_t index)
{
    const struct mst__kept_session *session = &rebuild->sessions[index];
    const size_t *newest = mst__map_get(&rebuild->newest, session->node);
    bool is_newest = *newest == index;
    if (session->rank == MST_AUTHORITY_RANK_NONE) {
        return is_newest ? TURN_WAITING : TURN_OLD;
    }
    bool is_back = session->is_back && !is_undecided(rebuild, session);
    if (is_back && is_newest) {
        return TURN_BACK;
    }
    /* Its new wish took the place of its finish, and ended with the process: the stored finish
     * counts. In the round, it would be lost to the newer process. */
    return is_back && has_finished(rebuild, session->rank) ? TURN_OLD : TURN_HOLDING;
}

static int rebuild_turn(const struct rebuild *rebuild, enum turn turn)
{
    int rv = 0;
    for (size_t i = 0; i < rebuild->count && rv == 0; i++) {
        const struct mst__kept_session *session = &rebuild->sessions[i];
        /* A node that failed and is back waits after its failure. */
        bool is_turn = turn_of(rebuild, i) == turn ||
                       (turn == TURN_BACK && session->is_back && is_undecided(rebuild, session));
        if (session->is_ended || !is_turn) {
            continue;
        }
        if (turn == TURN_HOLDING) {
            MST_ASSERT(rebuild->round != NULL);
            const struct mst__claim holds = {
                .epoch = rebuild->round->epoch,
                .round = rebuild->round->round,
                .world = rebuild->round->world,
                .rank = session->rank,
                .holds = true,
            };
            rv = rebuild->driver->announce(rebuild->driver->arg, i, &holds);
        } else {
            rv = rebuild->driver->announce(rebuild->driver->arg, i, NULL);
        }
    }
    return rv;
}

/* Feed finishes and failures in a running round that the predecessor may have missed. */
static int rebuild_words(const struct rebuild *rebuild, bool has_failed)
{
    const struct mst__kept_driver *driver = rebuild->driver;
    bool runs = rebuild->round != NULL && !rebuild->round->is_over;
    int rv = 0;
    for (size_t i = 0; runs && i < rebuild->count && rv == 0; i++) {
        const struct mst__kept_session *session = &rebuild->sessions[i];
        if (!session->is_ended && session->has_word && session->has_failed == has_failed) {
            rv = driver->say(driver->arg, i);
        }
    }
    return rv;
}

bool mst__kept_announces(bool has_word, const struct mst__claim *claim, bool is_known)
{
    return !has_word || claim->round > 0 || !is_known;
}

/* Whether no member of the round is here, neither holding it nor back from it. */
static bool rebuild_is_deserted(const struct rebuild *rebuild)
{
    for (size_t i = 0; i < rebuild->count; i++) {
        const struct mst__kept_session *session = &rebuild->sessions[i];
        if (session->rank != MST_AUTHORITY_RANK_NONE && !session->is_ended) {
            return false;
        }
    }
    return true;
}

/* Release the places of finished nodes that are gone: they are not lost. 0 or MST_ENOMEM. */
static int rebuild_release(const struct rebuild *rebuild)
{
    struct mst__authority *authority = rebuild->authority;
    const struct mst__kept *round = rebuild->round;
    if (round == NULL || round->is_finished == NULL || authority->round != round->round) {
        return 0;
    }
    int rv = mst__places_reserve(authority, 0, authority->world);
    for (uint32_t rank = 0; rank < authority->world && rv == 0; rank++) {
        bool is_free = mst__places_get(authority, rank) == MST_INDEX_NONE;
        if (round->is_finished[rank] && is_free && authority->unknown_count > 0) {
            mst__places_set(authority, rank, MST_INDEX_RELEASED);
            authority->unknown_count--;
            authority->released_count++;
            MST_ASSERT(authority->released_count <= authority->world);
        }
    }
    return rv;
}

/* Until the round is settled, its places wait to be claimed, and nothing is sealed, unless it is
 * deserted and all its nodes come anew. */
static int rebuild_all(const struct rebuild *rebuild, int64_t now_us)
{
    struct mst__authority *authority = rebuild->authority;
    bool is_over = rebuild->round != NULL && rebuild->round->is_over;
    bool is_deserted = rebuild_is_deserted(rebuild);
    enum mst__authority_why why = is_over ? rebuild->round->why : MST_AUTHORITY_WHY_LOST;
    if (is_deserted) {
        /* Waiting nodes gather as if there had been no round: they have not survived one. */
        mst__authority_reopen(authority, why, MST_AUTHORITY_RANK_NONE);
    }
    int rv = rebuild_turn(rebuild, TURN_HOLDING);
    /* Before a newer process of its node comes: a finished node is then not lost. */
    rv = rv == 0 ? rebuild_words(rebuild, false) : rv;
    rv = rv == 0 ? rebuild_turn(rebuild, TURN_WAITING) : rv;
    rv = rv == 0 ? rebuild_words(rebuild, true) : rv;
    if (rv == 0 && is_over && !is_deserted) {
        mst__authority_reopen(authority, why, MST_AUTHORITY_RANK_NONE);
    }
    rv = rv == 0 ? rebuild_turn(rebuild, TURN_BACK) : rv;
    rv = rv == 0 ? rebuild_release(rebuild) : rv;
    if (rv == 0) {
        const struct mst__authority_event settled = {.kind = MST_AUTHORITY_EVENT_SETTLED,
                                                     .now_us = now_us};
        (void)mst__authority_step(authority, &settled, NULL); /* always 0 */
        rv = rebuild_turn(rebuild, TURN_OLD);
    }
    return rv;
}

int mst__authority_rebuild(struct mst__authority *authority,
                           const struct mst__kept *round,
                           const struct mst__kept_session *sessions,
                           size_t count,
                           const struct mst__kept_driver *driver,
                           int64_t now_us)
{
    struct rebuild rebuild = {
        .authority = authority,
        .round = round,
        .sessions = sessions,
        .count = count,
        .driver = driver,
    };
    int rv = 0;
    if (round != NULL) {
        const struct mst__authority_event restored = {.kind = MST_AUTHORITY_EVENT_RESTORED,
                                                      .now_us = now_us,
                                                      .epoch = round->epoch,
                                                      .round = round->round,
                                                      .world = round->world};
        rv = mst__authority_step(authority, &restored, NULL);
        uint32_t first = round->first_world > round->world ? round->first_world : round->world;
        authority->first_world = rebuild_is_deserted(&rebuild) ? 0 : first;
        authority->restarts = round->restarts;
        authority->restarts_total = round->restarts_total;
        MST_ASSERT(authority->restarts <= authority->restarts_total);
        authority->restarts_us = now_us - round->restarts_age_us;
        if (round->has_cause) {
            mst__authority_take_cause(authority, &round->cause);
        }
    }
    mst__map_init(&rebuild.newest, sizeof(size_t), authority->options.hash_key);
    rv = rv == 0 ? rebuild_compare(&rebuild) : rv;
    rv = rv == 0 ? rebuild_all(&rebuild, now_us) : rv;
    mst__map_close(&rebuild.newest);
    return rv;
}
