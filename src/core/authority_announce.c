/* core/authority_announce.c - an announcement: its checks and its effects.
 *
 * Everything that can be refused is checked first, then memory is reserved, then nothing can fail:
 * a refused announcement has changed nothing. */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/authority_members.h"
#include "core/authority_moves.h"
#include "core/saturate.h"

/* Names in sentences are cut off at this length. */
#define NAME_TOLD 40

struct announce {
    struct mst__authority *authority;
    const struct mst__announcement *said;
    struct mst__authority_member *old; /* the entry of the name, or NULL */
    bool is_same;                      /* @old is living and the same process */
    bool adopts;                       /* the claimed round becomes the current one */
    bool decides;                      /* no other node is there to agree with */
    enum mst__refusal refusal;
    struct mst_err *reterr;
};

/* The name of a member and its length, for "%.*s". */
static int told_size(struct mst_bytes name)
{
    return name.size > NAME_TOLD ? NAME_TOLD : (int)name.size;
}

#define TOLD(name) told_size(name), (const char *)(name).data

#define announce_refuse(announce, why, code, ...) \
    ((announce)->refusal = (why), mst__fail((announce)->reterr, (code), 0, __VA_ARGS__))

/* --- fields --- */

static bool is_text(struct mst_bytes text)
{
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < 0x20 || text.data[i] == 0x7f) {
            return false;
        }
    }
    return true;
}

static int announce_check_labels(struct announce *announce, size_t *ret_size)
{
    const struct mst__announcement *said = announce->said;
    if (said->labels_count > MST_AUTHORITY_LABELS_MAX) {
        return announce_refuse(announce, MST_REFUSAL_MALFORMED, MST_ELIMIT,
                               "node '%.*s' has %zu labels, at most %d are allowed",
                               TOLD(said->name), said->labels_count, MST_AUTHORITY_LABELS_MAX);
    }
    size_t size = 0;
    for (size_t i = 0; i < said->labels_count; i++) {
        const struct mst__label *label = &said->labels[i];
        if (label->key.size == 0 || !is_text(label->key) || !is_text(label->value)) {
            return announce_refuse(announce, MST_REFUSAL_MALFORMED, MST_EINVAL,
                                   "label %zu of node '%.*s' has no key or has control characters",
                                   i + 1, TOLD(said->name));
        }
        size = size + label->key.size + label->value.size + 2;
    }
    *ret_size = size;
    return 0;
}

static int announce_check_texts(struct announce *announce)
{
    const struct mst__announcement *said = announce->said;
    if (said->name.size == 0 || said->name.size > MST_AUTHORITY_NAME_SIZE_MAX ||
        !is_text(said->name)) {
        return announce_refuse(announce, MST_REFUSAL_MALFORMED, MST_EINVAL,
                               "a node's name has 1 to %d bytes and no control characters, "
                               "this one has %zu",
                               MST_AUTHORITY_NAME_SIZE_MAX, said->name.size);
    }
    if (said->address.size > MST_AUTHORITY_ADDRESS_SIZE_MAX || !is_text(said->address)) {
        return announce_refuse(announce, MST_REFUSAL_MALFORMED, MST_EINVAL,
                               "the address of node '%.*s' has more than %d bytes or control "
                               "characters",
                               TOLD(said->name), MST_AUTHORITY_ADDRESS_SIZE_MAX);
    }
    if (said->rank_by.size > MST_AUTHORITY_RANK_BY_SIZE_MAX || !is_text(said->rank_by)) {
        return announce_refuse(announce, MST_REFUSAL_MALFORMED, MST_EINVAL,
                               "the order of ranks that node '%.*s' asks for has more than %d "
                               "bytes or control characters",
                               TOLD(said->name), MST_AUTHORITY_RANK_BY_SIZE_MAX);
    }
    if (said->role.size > MST_AUTHORITY_ROLE_SIZE_MAX || !is_text(said->role)) {
        return announce_refuse(announce, MST_REFUSAL_MALFORMED, MST_EINVAL,
                               "the role of node '%.*s' has more than %d bytes or control "
                               "characters",
                               TOLD(said->name), MST_AUTHORITY_ROLE_SIZE_MAX);
    }
    size_t size;
    int rv = announce_check_labels(announce, &size);
    if (rv != 0) {
        return rv;
    }
    size += said->name.size + said->address.size + said->role.size + 3;
    if (size > MST_AUTHORITY_TEXT_SIZE_MAX) {
        return announce_refuse(announce, MST_REFUSAL_MALFORMED, MST_ELIMIT,
                               "name, address, labels and role of node '%.*s' have %zu bytes, at "
                               "most %d are allowed",
                               TOLD(said->name), size, MST_AUTHORITY_TEXT_SIZE_MAX);
    }
    return 0;
}

/* The latest plausible round, with a wide margin. */
static int64_t claim_round_max(const struct mst__authority *authority)
{
    int64_t known = mst__authority_round_next(authority) - 1;
    if (known == 0) {
        return MST_AUTHORITY_CLAIM_MAX;
    }
    int64_t max = known + MST_AUTHORITY_CLAIM_STEP_MAX;
    max = max > MST_AUTHORITY_CLAIM_MAX ? MST_AUTHORITY_CLAIM_MAX : max;
    return max > known ? max : known;
}

static int announce_check_numbers(struct announce *announce)
{
    const struct mst__announcement *said = announce->said;
    uint32_t members_max = announce->authority->options.members_max;
    if (said->nodes_min == 0 || said->nodes_max < said->nodes_min ||
        said->nodes_max > members_max || said->last_call_us < 0 || said->budget.window_us < 0) {
        return announce_refuse(announce, MST_REFUSAL_MALFORMED, MST_EINVAL,
                               "node '%.*s' asks for %u to %u nodes and a last call of %lld ms; "
                               "wanted are 1 <= min <= max <= %u and no negative time",
                               TOLD(said->name), said->nodes_min, said->nodes_max,
                               (long long)said->last_call_us / 1000, members_max);
    }
    if (said->workers > MST_NPROC_MAX) {
        return announce_refuse(announce, MST_REFUSAL_MALFORMED, MST_EINVAL,
                               "node '%.*s' has %u workers, at most %d are allowed",
                               TOLD(said->name), said->workers, MST_NPROC_MAX);
    }
    const struct mst__claim *claim = &said->claim;
    if (claim->round == 0 && !claim->holds) {
        return 0;
    }
    bool has_rank = claim->rank != MST_AUTHORITY_RANK_NONE;
    if (claim->round <= 0 || claim->round > claim_round_max(announce->authority) ||
        claim->epoch == 0 || claim->epoch > MST_AUTHORITY_EPOCH_MAX || claim->world == 0 ||
        claim->world > members_max || (has_rank && claim->rank >= claim->world) ||
        (claim->holds && !has_rank)) {
        return announce_refuse(announce, MST_REFUSAL_MALFORMED, MST_EINVAL,
                               "node '%.*s' claims rank %u of %u in round %lld, which no round has",
                               TOLD(said->name), claim->rank, claim->world,
                               (long long)claim->round);
    }
    return 0;
}

/* --- who it is --- */

static uint64_t announce_contact(const struct mst__announcement *said)
{
    return said->contact != 0 ? said->contact : said->incarnation;
}

static bool member_is_process(const struct mst__authority_member *member,
                              const struct mst__announcement *said)
{
    return said->incarnation == member->incarnation && said->session == member->session;
}

static bool member_has_replaced(const struct mst__authority_member *member, uint64_t session)
{
    for (size_t i = 0; i < MST_AUTHORITY_REPLACED_MAX; i++) {
        if (member->replaced[i] == session && session != 0) {
            return true;
        }
    }
    return false;
}

/* @member takes over the name of @old; the process of @old, and earlier ones, may not come back. */
static void member_succeed(struct mst__authority_member *member,
                           const struct mst__authority_member *old)
{
    size_t count = 0;
    bool is_same = member->incarnation == old->incarnation && member->session == old->session;
    if (!is_same) {
        member->replaced[count++] = old->session;
    }
    for (size_t i = 0; count < MST_AUTHORITY_REPLACED_MAX; i++) {
        member->replaced[count++] = old->replaced[i];
    }
}

static int announce_check_process(struct announce *announce)
{
    const struct mst__announcement *said = announce->said;
    const struct mst__authority_member *old = announce->old;
    if (old == NULL) {
        return 0;
    }
    uint64_t contact = announce_contact(said);
    struct mst_bytes address = mst__authority_address(old);
    if (contact < old->contact || member_has_replaced(old, said->session)) {
        return announce_refuse(announce, MST_REFUSAL_STALE, MST_EEXPELLED,
                               "replaced by a newer process of node '%.*s', at '%.*s'; nodes need "
                               "different names",
                               TOLD(said->name), TOLD(address));
    }
    bool is_living = mst__members_is_living(old);
    bool is_process = member_is_process(old, said);
    announce->is_same = is_living && is_process;
    if (is_living && !is_process && contact == old->contact) {
        return announce_refuse(announce, MST_REFUSAL_TWIN, MST_EEXPELLED,
                               "another process at '%.*s' is node '%.*s', and neither is newer; "
                               "nodes need different names",
                               TOLD(address), TOLD(said->name));
    }
    return 0;
}

/* --- what it wants --- */

static bool budget_is_equal(const struct mst__budget *a, const struct mst__budget *b)
{
    bool is_other = a->restarts_max != b->restarts_max || a->window_us != b->window_us;
    return a->is_limited == b->is_limited && !(a->is_limited && is_other);
}

/* "any number of restarts", "3 restarts", "3 restarts in 60000 ms" */
static void budget_text(const struct mst__budget *budget, char *ret_text, size_t ret_size)
{
    if (!budget->is_limited) {
        (void)snprintf(ret_text, ret_size, "any number of restarts");
    } else if (budget->window_us == 0) {
        (void)snprintf(ret_text, ret_size, "%u restarts", budget->restarts_max);
    } else {
        (void)snprintf(ret_text, ret_size, "%u restarts in %lld ms", budget->restarts_max,
                       (long long)budget->window_us / 1000);
    }
}

static int announce_check_budget(struct announce *announce)
{
    const struct mst__authority_settings *settings = &announce->authority->settings;
    const struct mst__announcement *said = announce->said;
    if (budget_is_equal(&said->budget, &settings->budget)) {
        return 0;
    }
    char asked[60];
    char known[60];
    budget_text(&said->budget, asked, sizeof asked);
    budget_text(&settings->budget, known, sizeof known);
    return announce_refuse(announce, MST_REFUSAL_SETTINGS, MST_EINVAL,
                           "node '%.*s' asks for %s, this run has %s, as node '%.*s' said; all "
                           "have to agree",
                           TOLD(said->name), asked, known, NAME_TOLD, settings->setter);
}

static int announce_check_fixed(struct announce *announce)
{
    const struct mst__authority_settings *settings = &announce->authority->settings;
    const struct mst__announcement *said = announce->said;
    if (said->is_fixed == settings->is_fixed) {
        return 0;
    }
    return announce_refuse(announce, MST_REFUSAL_SETTINGS, MST_EINVAL,
                           "node '%.*s' asks for a run that %s, this run %s, as node '%.*s' said; "
                           "all have to agree",
                           TOLD(said->name), said->is_fixed ? "does not grow" : "may grow",
                           settings->is_fixed ? "does not grow" : "may grow", NAME_TOLD,
                           settings->setter);
}

static int announce_check_workers(struct announce *announce)
{
    const struct mst__authority_settings *settings = &announce->authority->settings;
    const struct mst__announcement *said = announce->said;
    if ((said->workers > 0) == settings->has_workers) {
        return 0;
    }
    return announce_refuse(announce, MST_REFUSAL_SETTINGS, MST_EINVAL,
                           "node '%.*s' %s how many workers it starts, and node '%.*s' of this run "
                           "%s; all have to agree (an older muster does not say)",
                           TOLD(said->name), said->workers > 0 ? "says" : "does not say", NAME_TOLD,
                           settings->setter, settings->has_workers ? "does" : "does not");
}

static int announce_check_settings(struct announce *announce)
{
    const struct mst__authority *authority = announce->authority;
    const struct mst__authority_settings *settings = &authority->settings;
    const struct mst__announcement *said = announce->said;
    bool is_old_living = announce->old != NULL && mst__members_is_living(announce->old);
    uint32_t others = authority->living_count - (is_old_living ? 1 : 0);
    if (others >= authority->options.members_max ||
        authority->used_count / 3 >= authority->options.members_max) {
        return announce_refuse(announce, MST_REFUSAL_FULL, MST_ELIMIT,
                               "%u nodes are here, and no more than %u are allowed", others,
                               authority->options.members_max);
    }
    announce->decides = others == 0 || !settings->is_set;
    if (announce->decides) {
        return 0;
    }
    const char *setter = settings->setter;
    if (said->nodes_min != settings->nodes_min || said->nodes_max != settings->nodes_max) {
        return announce_refuse(announce, MST_REFUSAL_SETTINGS, MST_EINVAL,
                               "node '%.*s' asks for %u to %u nodes, this run has %u to %u, as "
                               "node '%.*s' said; all have to agree",
                               TOLD(said->name), said->nodes_min, said->nodes_max,
                               settings->nodes_min, settings->nodes_max, NAME_TOLD, setter);
    }
    if (said->last_call_us != settings->last_call_us) {
        return announce_refuse(announce, MST_REFUSAL_SETTINGS, MST_EINVAL,
                               "node '%.*s' asks for a last call of %lld ms, this run has %lld "
                               "ms, as node '%.*s' said; all have to agree",
                               TOLD(said->name), (long long)said->last_call_us / 1000,
                               (long long)settings->last_call_us / 1000, NAME_TOLD, setter);
    }
    struct mst_bytes rank_by = mst_bytes_str(settings->rank_by);
    if (rank_by.size != said->rank_by.size ||
        (rank_by.size > 0 && memcmp(rank_by.data, said->rank_by.data, rank_by.size) != 0)) {
        return announce_refuse(announce, MST_REFUSAL_SETTINGS, MST_EINVAL,
                               "node '%.*s' wants ranks by '%.*s', this run has '%.*s', as node "
                               "'%.*s' said; all have to agree",
                               TOLD(said->name), TOLD(said->rank_by), TOLD(rank_by), NAME_TOLD / 2,
                               setter);
    }
    int rv = announce_check_fixed(announce);
    rv = rv == 0 ? announce_check_workers(announce) : rv;
    return rv == 0 ? announce_check_budget(announce) : rv;
}

/* The claimed round against the current one: by number, then by epoch. */
static int claim_compare(const struct mst__claim *claim, const struct mst__authority *authority)
{
    if (claim->round != authority->round) {
        return claim->round < authority->round ? -1 : 1;
    }
    return claim->epoch < authority->round_epoch ? -1 : claim->epoch > authority->round_epoch;
}

static bool claim_is_current(const struct mst__claim *claim, const struct mst__authority *authority)
{
    return claim->round > 0 && claim_compare(claim, authority) == 0 &&
           claim->world == authority->world;
}

static bool claim_is_free(const struct mst__claim *claim, const struct mst__authority *authority)
{
    return claim_is_current(claim, authority) && claim->rank != MST_AUTHORITY_RANK_NONE &&
           mst__places_get(authority, claim->rank) == MST_INDEX_NONE;
}

static int announce_refuse_claim(struct announce *announce, const char *because)
{
    const struct mst__authority *authority = announce->authority;
    const struct mst__claim *claim = &announce->said->claim;
    return announce_refuse(announce, MST_REFUSAL_CLAIM, MST_EEXPELLED,
                           "node '%.*s' holds rank %u of %u in round %lld, but %s (round %lld, "
                           "%u nodes): it has to announce itself for the next one",
                           TOLD(announce->said->name), claim->rank, claim->world,
                           (long long)claim->round, because, (long long)authority->round,
                           authority->world);
}

/* Check whether the claimed round is taken over, and whether its holder may stay in it. */
static int announce_check_claim(struct announce *announce)
{
    const struct mst__authority *authority = announce->authority;
    const struct mst__claim *claim = &announce->said->claim;
    if (claim->round == 0) {
        return 0;
    }
    bool is_inherited = authority->round == 0 || authority->round_epoch != authority->options.epoch;
    /* Messages of one process on two connections may come in the wrong order, the old ones
     * first. */
    bool is_same_contact =
        announce->is_same && announce_contact(announce->said) == announce->old->contact;
    announce->adopts = !is_same_contact && is_inherited &&
                       claim->epoch != authority->options.epoch &&
                       claim_compare(claim, authority) > 0;
    announce->is_same = announce->is_same && !announce->adopts;
    if (!claim->holds || announce->adopts) {
        return 0;
    }
    if (claim_compare(claim, authority) != 0) {
        return announce_refuse_claim(announce, "another one is current");
    }
    if (claim->world != authority->world) {
        return announce_refuse_claim(announce, "it has another size");
    }
    if (announce->is_same) {
        bool is_it =
            announce->old->place == MST_PLACE_HOLDING && announce->old->rank == claim->rank;
        return is_it ? 0 : announce_refuse_claim(announce, "it has come back from it");
    }
    bool has_other = announce->old != NULL && mst__members_is_ranked(authority, announce->old);
    if (has_other || !claim_is_free(claim, authority)) {
        return announce_refuse_claim(announce, "that place is another's, or was lost");
    }
    return authority->unknown_count > 0 ? 0 : announce_refuse_claim(announce, "it was given up");
}

/* --- effects --- */

static void settings_take(struct mst__authority *authority, const struct mst__announcement *said)
{
    struct mst__authority_settings *settings = &authority->settings;
    *settings = (struct mst__authority_settings){
        .is_set = true,
        .is_fixed = said->is_fixed,
        .has_workers = said->workers > 0,
        .nodes_min = said->nodes_min,
        .nodes_max = said->nodes_max,
        .last_call_us = said->last_call_us,
        .budget = said->budget,
    };
    if (said->rank_by.size > 0) {
        memcpy(settings->rank_by, said->rank_by.data, said->rank_by.size);
    }
    memcpy(settings->setter, said->name.data, said->name.size);
}

static void member_say(struct mst__authority *authority,
                       struct mst__authority_member *member,
                       const struct mst__announcement *said,
                       char *text,
                       uint16_t text_size)
{
    mst__members_set_text(authority, member, text, text_size);
    member->labels_count = (uint16_t)said->labels_count;
    member->role_size = (uint16_t)said->role.size;
    member->workers = said->workers;
    member->pinned_rank = said->pinned_rank;
    member->incarnation = said->incarnation;
    member->session = said->session;
    member->contact = announce_contact(said);
    member->expiry_us = said->expiry_us > authority->options.expiry_us
                            ? said->expiry_us
                            : authority->options.expiry_us;
    member->has_skew = said->has_wall;
    member->skew_us =
        said->has_wall ? mst__saturate_subtract(said->wall_us, said->wall_here_us) : 0;
}

/* A known process announces itself: it comes back, or repeats an announcement. */
static void announce_again(struct announce *announce)
{
    struct mst__authority *authority = announce->authority;
    struct mst__authority_member *member = announce->old;
    const struct mst__claim *claim = &announce->said->claim;
    mst__authority_attach(authority, member, announce->said->driver);
    if (member->place == MST_PLACE_WAITING) {
        mst__authority_tell_standing(authority, member);
        return;
    }
    bool is_over = authority->phase == MST_AUTHORITY_OPEN;
    /* For a node that knows this round number or a later one from another authority, this round
     * would mean nothing: the number alone must grow. */
    bool knows_other = claim->round >= authority->round && claim_compare(claim, authority) != 0;
    if (claim->holds && !is_over) {
        if (authority->waiting_told > 0) {
            mst__members_notify(authority, member, MST_TOLD_WAITING);
        }
    } else if (!claim->holds && (knows_other || claim_is_current(claim, authority))) {
        mst__authority_come_back(authority, member);
    } else if (!claim->holds && is_over) {
        /* It is unknown whether the node was told the round before it sent this. Only a node that
         * knows the round can come back from it. */
        mst__members_notify(authority, member, MST_TOLD_SEALED);
    } else {
        mst__authority_tell_standing(authority, member);
    }
}

/* @member has the name of @old now: end @old, and inherit its rank. */
static void announce_replace(struct mst__authority *authority,
                             struct mst__authority_member *old,
                             struct mst__authority_member *member)
{
    member_succeed(member, old);
    bool is_ranked = mst__members_is_ranked(authority, old);
    bool is_needed = is_ranked && old->is_finished && !mst__authority_is_whole(authority);
    if (is_ranked && old->is_finished && !is_needed) {
        /* The work of that rank is done; this process is for another round. */
        mst__places_set(authority, old->rank, MST_INDEX_RELEASED);
    } else if (is_ranked) {
        member->rank = old->rank;
        mst__places_set(authority, old->rank, mst__members_index(authority, member));
    }
    if (mst__members_is_living(old)) {
        mst__authority_expel(authority, old, MST_EXPELLED_REPLACED);
        authority->stats.replacements++;
    } else if (old->place == MST_PLACE_GONE) {
        mst__members_drop(authority, old);
    }
    MST_ASSERT(!is_needed || authority->released_count > 0);
    authority->released_count -= is_needed; /* the node has come again for the next round */
}

/* Put a new entry into the place of its claim, or let it wait. */
static void announce_place(struct announce *announce, struct mst__authority_member *member)
{
    struct mst__authority *authority = announce->authority;
    const struct mst__claim *claim = &announce->said->claim;
    bool binds = member->rank == MST_AUTHORITY_RANK_NONE && claim_is_free(claim, authority);
    bool was_unknown = binds && authority->unknown_count > 0;
    if (binds) {
        member->rank = claim->rank;
        mst__places_set(authority, claim->rank, mst__members_index(authority, member));
        authority->unknown_count -= was_unknown;
    }
    if (claim->holds) {
        MST_ASSERT(was_unknown);
        member->place = MST_PLACE_HOLDING;
        authority->held_count++;
        if (authority->phase == MST_AUTHORITY_OPEN) {
            mst__authority_tell_standing(authority, member); /* that it is over */
        }
        return;
    }
    if (was_unknown) {
        /* It came back while there was no authority. */
        mst__authority_reopen(authority, MST_AUTHORITY_WHY_RETURNED, claim->rank);
        member->is_returned = true;
    }
    mst__authority_wait(authority, member);
    mst__authority_tell_standing(authority, member);
}

static struct mst__authority_member *announce_new(struct announce *announce,
                                                  char *text,
                                                  uint16_t text_size)
{
    struct mst__authority *authority = announce->authority;
    const struct mst__announcement *said = announce->said;
    const struct mst__claim *claim = &said->claim;
    struct mst__authority_member *member = mst__members_take(authority);
    member_say(authority, member, said, text, text_size);
    member->order = authority->order_next++;
    member->driver = said->driver;
    mst__members_link(authority, member);
    authority->living_count++;
    /* The name first, so that it is not forgotten with its last owner. */
    mst__members_name(authority, member);
    if (announce->adopts) {
        mst__authority_adopt(authority, claim->epoch, claim->round, claim->world);
    }
    if (announce->old != NULL) {
        announce_replace(authority, announce->old, member);
    }
    if (announce->decides) {
        settings_take(authority, said);
    }
    announce_place(announce, member);
    return member;
}

static int announce_refuse_closed(struct announce *announce)
{
    const struct mst__authority *authority = announce->authority;
    switch (authority->outcome) {
        case MST_JOB_OUTCOME_FINISHED:
            return announce_refuse(announce, MST_REFUSAL_CLOSED, MST_EFINISHED,
                                   "the job has finished: %.150s", authority->close_reason);
        case MST_JOB_OUTCOME_FAILED:
            return announce_refuse(announce, MST_REFUSAL_CLOSED, MST_ECLOSED,
                                   "the job has failed: %.160s", authority->close_reason);
        case MST_JOB_OUTCOME_ASKED:
            break;
    }
    return announce_refuse(announce, MST_REFUSAL_CLOSED, MST_ECLOSED,
                           "the run was closed by '%.*s': %.100s", NAME_TOLD,
                           authority->close_owner, authority->close_reason);
}

static int announce_check(struct announce *announce)
{
    int rv = announce_check_texts(announce);
    if (rv == 0) {
        rv = announce_check_numbers(announce);
    }
    const struct mst__authority *authority = announce->authority;
    if (rv == 0 && authority->phase == MST_AUTHORITY_CLOSED) {
        rv = announce_refuse_closed(announce);
    }
    if (rv == 0) {
        announce->old = mst__members_named(authority, announce->said->name);
        rv = announce_check_process(announce);
    }
    if (rv == 0) {
        rv = announce_check_settings(announce);
    }
    return rv == 0 ? announce_check_claim(announce) : rv;
}

/* Reserve room for the claimed place. Those of others are reserved when they come. */
static int announce_reserve_place(struct announce *announce)
{
    const struct mst__claim *claim = &announce->said->claim;
    bool has_place = claim->round > 0 && claim->rank != MST_AUTHORITY_RANK_NONE &&
                     (announce->adopts || claim_is_current(claim, announce->authority));
    return has_place ? mst__places_reserve(announce->authority, claim->rank, 1) : 0;
}

static int announce_reserve(struct announce *announce, char **ret_text, uint16_t *ret_size)
{
    struct mst__authority *authority = announce->authority;
    const struct mst__announcement *said = announce->said;
    char *text = NULL;
    *ret_size = 0;
    int rv = mst__members_text(authority, said, &text, ret_size);
    if (rv == 0) {
        rv = mst__members_reserve(authority);
    }
    if (rv == 0) {
        rv = announce_reserve_place(announce);
    }
    if (rv == 0) {
        rv = mst__members_reserve_name(authority, said->name);
    }
    if (rv != 0) {
        mst__members_drop_text(authority, text, *ret_size);
        return announce_refuse(announce, MST_REFUSAL_MEMORY, rv, "there is no %s for node '%.*s'",
                               rv == MST_ELIMIT ? "room under --max-memory" : "memory",
                               TOLD(said->name));
    }
    announce->old = mst__members_named(authority, said->name);
    *ret_text = text;
    return 0;
}

int mst__authority_announce(struct mst__authority *authority,
                            const struct mst__announcement *announcement,
                            struct mst_err *reterr)
{
    struct announce announce = {
        .authority = authority,
        .said = announcement,
        .reterr = reterr,
    };
    authority->stats.announcements++;
    authority->memory_max = announcement->memory_max;
    char *text = NULL;
    uint16_t text_size = 0;
    int rv = announce_check(&announce);
    if (rv == 0) {
        rv = announce_reserve(&announce, &text, &text_size);
    }
    authority->refusal = announce.refusal;
    if (rv != 0) {
        authority->stats.refusals++;
        return rv;
    }
    const struct mst__claim *claim = &announcement->claim;
    if (claim->epoch != authority->options.epoch && claim->round > authority->round_floor) {
        authority->round_floor = claim->round;
    }
    struct mst__authority_member *member = announce.old;
    if (announce.is_same) {
        if (announce.decides) {
            settings_take(authority, announcement);
        }
        member_say(authority, member, announcement, text, text_size);
        announce_again(&announce);
    } else {
        member = announce_new(&announce, text, text_size);
    }
    authority->announced = mst__authority_id_of(authority, member);
    mst__authority_advance(authority);
    return 0;
}
