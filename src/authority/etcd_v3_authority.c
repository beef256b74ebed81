/* authority/etcd_v3_authority.c - keys to events, the state of the machine to a document.
 *
 * The document is made from the state of the machine, not from single effects. So it is right in
 * any order of events, and whichever node stored the last document. */
#include "authority/etcd_v3_authority.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/unicode.h"

/* How long to wait for the members of a round that is claimed but not stored: `round` was
 * deleted under a running job. */
#define RECLAIM_US 5000000

/* The state of a node's key. */
struct entry {
    mst__authority_id id; /* MST_AUTHORITY_NOBODY = not in the machine */
    uint64_t session;
    int64_t create_revision;
    int64_t lease;
};

/* --- life --- */

void mst__etcd_v3_authority_init(struct mst__etcd_v3_authority *authority)
{
    *authority = (struct mst__etcd_v3_authority){0};
}

static void seats_clear(struct mst__etcd_v3_authority *authority)
{
    for (uint32_t rank = 0; rank < authority->seats_count; rank++) {
        mst__free(authority->seats[rank].name);
    }
    mst__free(authority->seats);
    mst__free(authority->seats_created);
    authority->seats = NULL;
    authority->seats_created = NULL;
    authority->seats_count = 0;
    mst__map_close(&authority->ranks);
}

void mst__etcd_v3_authority_close(struct mst__etcd_v3_authority *authority)
{
    if (authority->is_built) {
        mst__authority_close(&authority->machine);
        seats_clear(authority);
        mst__map_close(&authority->entries);
    }
    mst__free(authority->letters);
    *authority = (struct mst__etcd_v3_authority){0};
}

static int fail_memory(struct mst_err *reterr)
{
    return mst__fail(reterr, MST_ENOMEM, 0, "authority");
}

/* --- the roster --- */

static struct mst_bytes session_key(const uint64_t *session)
{
    return mst_bytes_of((const uint8_t *)session, sizeof *session);
}

static uint32_t session_rank(const struct mst__etcd_v3_authority *authority, uint64_t session)
{
    const uint32_t *rank = mst__map_get(&authority->ranks, session_key(&session));
    return rank == NULL ? MST_AUTHORITY_RANK_NONE : *rank;
}

const struct mst__etcd_v3_seat *mst__etcd_v3_authority_seat(
    const struct mst__etcd_v3_authority *authority,
    uint32_t rank)
{
    return rank < authority->seats_count && authority->seats[rank].name != NULL
               ? &authority->seats[rank]
               : NULL;
}

static int seats_begin(struct mst__etcd_v3_authority *authority, uint32_t world)
{
    seats_clear(authority);
    authority->seats = mst__calloc(world + (size_t)1, sizeof *authority->seats);
    authority->seats_created = mst__calloc(world + (size_t)1, sizeof *authority->seats_created);
    bool is_made = authority->seats != NULL && authority->seats_created != NULL;
    authority->seats_count = is_made ? world : 0;
    return is_made ? 0 : MST_ENOMEM;
}

static int seats_put(struct mst__etcd_v3_authority *authority,
                     uint32_t rank,
                     uint64_t session,
                     const char *name,
                     const struct mst__worker_ranks *worker_ranks)
{
    if (rank >= authority->seats_count || authority->seats[rank].name != NULL ||
        mst__map_get(&authority->ranks, session_key(&session)) != NULL) {
        return 0; /* written by another program */
    }
    char *copy = mst__strdup(name);
    uint32_t *known = copy == NULL ? NULL : mst__map_add(&authority->ranks, session_key(&session));
    if (known == NULL) {
        mst__free(copy);
        return MST_ENOMEM;
    }
    *known = rank;
    authority->seats[rank] =
        (struct mst__etcd_v3_seat){.session = session, .name = copy, .worker_ranks = *worker_ranks};
    return 0;
}

/* Restore the members of the stored round: from its seats, or from the letters with the ranks. */
static int seats_restore(struct mst__etcd_v3_authority *authority,
                         const struct mst__etcd_v3_stored *stored)
{
    const struct mst__etcd_v3_round *round = stored->round;
    int rv = seats_begin(authority, round->world);
    for (uint32_t rank = 0; round->seats != NULL && rank < round->world && rv == 0; rank++) {
        const struct mst__etcd_v3_seat *seat = &round->seats[rank];
        rv = seats_put(authority, rank, seat->session, seat->name, &seat->worker_ranks);
    }
    size_t count = stored->letters == NULL ? 0 : stored->letters->count;
    for (size_t i = 0; i < count && rv == 0; i++) {
        const struct mst__v3_kv *kv = &stored->letters->items[i];
        struct mst__etcd_v3_letter letter;
        struct mst_err ignored; /* an unreadable letter is no rank */
        uint64_t session;
        bool is_rank =
            mst__etcd_v3_key_session(mst_bytes_of(kv->key.data, kv->key.size), &session) &&
            mst__etcd_v3_letter_read(mst_bytes_of(kv->value.data, kv->value.size), &letter,
                                     &ignored) == 0 &&
            letter.kind == MST_ETCD_V3_LETTER_RANK && letter.epoch == round->epoch &&
            letter.round == round->round;
        if (is_rank) {
            rv = seats_put(authority, letter.rank, session, letter.name, &letter.worker_ranks);
        }
    }
    return rv;
}

/* A round was sealed just now: fill in its members. */
static int seats_seal(struct mst__etcd_v3_authority *authority)
{
    const struct mst__authority *machine = &authority->machine;
    int rv = seats_begin(authority, machine->world);
    for (uint32_t rank = 0; rank < machine->world && rv == 0; rank++) {
        const struct mst__authority_member *member = mst__authority_ranked(machine, rank);
        const struct entry *entry = member->driver;
        rv = seats_put(authority, rank, entry->session,
                       (const char *)mst__authority_name(member).data, &member->worker_ranks);
        authority->seats_created[rank] = member->session;
    }
    return rv;
}

/* --- letters --- */

static int letter_add(struct mst__etcd_v3_authority *authority,
                      const struct entry *entry,
                      enum mst__etcd_v3_letter_kind kind,
                      int code,
                      const char *text)
{
    if (authority->letters_count == authority->letters_capacity) {
        size_t capacity = authority->letters_capacity * 2 + 4;
        struct mst__etcd_v3_outgoing *letters =
            mst__realloc(authority->letters, capacity * sizeof *letters);
        if (letters == NULL) {
            return MST_ENOMEM;
        }
        authority->letters = letters;
        authority->letters_capacity = capacity;
    }
    struct mst__etcd_v3_outgoing *outgoing = &authority->letters[authority->letters_count++];
    *outgoing = (struct mst__etcd_v3_outgoing){
        .session = entry->session,
        .lease = entry->lease,
        .letter = {.kind = kind, .code = code},
    };
    (void)snprintf(outgoing->letter.text, sizeof outgoing->letter.text, "%s", text); /* cut off
                                                                                      * when long */
    /* A name may have been cut off within a character. */
    bool is_text = mst__unicode_is_utf8(mst_bytes_str(outgoing->letter.text));
    for (char *at = outgoing->letter.text; *at != '\0' && !is_text; at++) {
        *at = (uint8_t)*at >= 0x80 ? '?' : *at;
    }
    return 0;
}

/* Take all effects after every event: the next event may end a sealed round, and effects point
 * to entries. News for a single node that is not in `round` goes into a letter. */
static int effects_take(struct mst__etcd_v3_authority *authority)
{
    struct mst__authority_effect effect;
    int rv = 0;
    while (mst__authority_next_effect(&authority->machine, &effect)) {
        if (effect.kind == MST_TOLD_EXPELLED && effect.driver != NULL && rv == 0) {
            rv = letter_add(authority, effect.driver, MST_ETCD_V3_LETTER_EXPELLED, MST_EEXPELLED,
                            effect.text);
        } else if (effect.kind == MST_TOLD_SEALED && effect.id == MST_AUTHORITY_NOBODY && rv == 0) {
            rv = seats_seal(authority);
        }
    }
    return rv;
}

/* --- nodes --- */

static int announce(struct mst__etcd_v3_authority *authority,
                    struct entry *entry,
                    struct mst__announcement *said,
                    int64_t now_us,
                    struct mst_err *reterr)
{
    struct mst__authority *machine = &authority->machine;
    struct mst_err err = {0};
    said->session = (uint64_t)entry->create_revision;
    said->has_wall = false; /* nobody knows how long ago the key was written */
    said->driver = entry;
    const struct mst__authority_event event = {
        .kind = MST_AUTHORITY_EVENT_KEPT, .now_us = now_us, .announcement = said};
    int rv = mst__authority_step(machine, &event, &err);
    if (rv == 0) {
        entry->id = machine->announced;
        return 0;
    }
    enum mst__refusal refusal = machine->refusal;
    if (refusal == MST_REFUSAL_MEMORY) {
        return fail_memory(reterr);
    }
    bool is_over = refusal == MST_REFUSAL_CLAIM || refusal == MST_REFUSAL_STALE;
    rv = refusal == MST_REFUSAL_CLOSED
             ? 0 /* `round` tells all nodes */
             : letter_add(authority, entry,
                          is_over ? MST_ETCD_V3_LETTER_EXPELLED : MST_ETCD_V3_LETTER_REFUSED,
                          err.code, err.msg);
    return rv == 0 ? 0 : fail_memory(reterr);
}

/* The report of a node. For another round, or a second time, it changes nothing. */
static void hear_word(struct mst__etcd_v3_authority *authority,
                      const struct entry *entry,
                      const struct mst__etcd_v3_word *word,
                      int64_t now_us)
{
    if (entry->id == MST_AUTHORITY_NOBODY || !word->is_said) {
        return;
    }
    const struct mst__authority_event event = {
        .kind = word->is_finish ? MST_AUTHORITY_EVENT_FINISHED : MST_AUTHORITY_EVENT_FAILED,
        .now_us = now_us,
        .id = entry->id,
        .epoch = word->epoch,
        .round = word->round,
        .cause = &word->cause,
    };
    (void)mst__authority_step(&authority->machine, &event, NULL); /* see above */
}

/* The node of @entry has left or is lost. */
static void part(struct mst__etcd_v3_authority *authority,
                 struct entry *entry,
                 bool has_left,
                 int64_t now_us)
{
    struct mst__authority *machine = &authority->machine;
    if (entry->id == MST_AUTHORITY_NOBODY) {
        return;
    }
    struct mst__authority_event event = {.kind = has_left ? MST_AUTHORITY_EVENT_LEFT
                                                          : MST_AUTHORITY_EVENT_DEAD,
                                         .now_us = now_us,
                                         .id = entry->id};
    /* Each returns MST_ENOTFOUND if the session was over before: then there is nothing to do. */
    (void)mst__authority_step(machine, &event, NULL);
    event.kind = MST_AUTHORITY_EVENT_DISCONNECTED;
    event.driver = entry;
    (void)mst__authority_step(machine, &event, NULL);
    entry->id = MST_AUTHORITY_NOBODY;
}

static struct entry *entry_for(struct mst__etcd_v3_authority *authority,
                               const struct mst__v3_kv *kv)
{
    struct mst_bytes key = mst_bytes_of(kv->key.data, kv->key.size);
    struct entry *entry = mst__map_get(&authority->entries, key);
    if (entry != NULL) {
        return entry;
    }
    entry = mst__map_add(&authority->entries, key);
    if (entry != NULL) {
        *entry = (struct entry){.id = MST_AUTHORITY_NOBODY};
    }
    return entry;
}

/* Parse @kv. @ret_valid false: it is not a node's, and does not count. */
static int node_read(struct mst__etcd_v3_authority *authority,
                     const struct mst__v3_kv *kv,
                     struct entry **ret_entry,
                     struct mst__etcd_v3_node *ret_node,
                     bool *ret_valid,
                     struct mst_err *reterr)
{
    struct mst_err ignored;
    uint64_t session;
    *ret_valid = false;
    if (!mst__etcd_v3_key_session(mst_bytes_of(kv->key.data, kv->key.size), &session)) {
        return 0;
    }
    int rv =
        mst__etcd_v3_node_read(mst_bytes_of(kv->value.data, kv->value.size), ret_node, &ignored);
    if (rv == MST_EPROTO) {
        return 0;
    }
    struct entry *entry = rv == 0 ? entry_for(authority, kv) : NULL;
    if (entry == NULL) {
        if (rv == 0) {
            mst__etcd_v3_node_close(ret_node);
        }
        return fail_memory(reterr);
    }
    if (ret_node->said.incarnation == 0) {
        ret_node->said.incarnation = (uint64_t)kv->create_revision;
    }
    entry->session = session;
    entry->create_revision = kv->create_revision;
    entry->lease = kv->lease;
    *ret_entry = entry;
    *ret_valid = true;
    return 0;
}

/* --- building --- */

struct build {
    struct mst__etcd_v3_authority *authority;
    const struct mst__etcd_v3_stored *stored;
    struct mst__kept_session *sessions; /* one for each node's key */
    int64_t now_us;
    struct mst_err *reterr;
};

static bool claims_round(const struct mst__claim *claim, const struct mst__etcd_v3_round *round)
{
    return claim->round > 0 && claim->round == round->round && claim->epoch == round->epoch &&
           claim->world == round->world;
}

/* The kept session of @kv. */
static int build_session(struct build *build,
                         const struct mst__v3_kv *kv,
                         struct mst__kept_session *ret_session)
{
    struct mst__etcd_v3_authority *authority = build->authority;
    const struct mst__etcd_v3_round *round = build->stored->round;
    struct mst__etcd_v3_node node;
    struct entry *entry;
    bool is_valid;
    *ret_session = (struct mst__kept_session){
        .node = mst_bytes_of(kv->key.data, kv->key.size),
        .rank = MST_AUTHORITY_RANK_NONE,
        .is_ended = true,
    };
    int rv = node_read(authority, kv, &entry, &node, &is_valid, build->reterr);
    if (rv != 0 || !is_valid) {
        return rv;
    }
    uint32_t rank = session_rank(authority, entry->session);
    bool has_seat = rank != MST_AUTHORITY_RANK_NONE;
    bool is_gone = has_seat && round->is_gone != NULL && round->is_gone[rank];
    const struct mst__etcd_v3_word *word = &node.word;
    *ret_session = (struct mst__kept_session){
        /* The part that all processes of a node share. */
        .node = mst_bytes_of(kv->key.data, kv->key.size - MST_ETCD_V3_SESSION_SIZE),
        .incarnation = node.said.incarnation,
        .session = (uint64_t)kv->create_revision,
        .rank = rank,
        .is_back = claims_round(&node.said.claim, round),
        .is_ended = node.has_left || is_gone,
        .has_word = word->is_said,
        .has_failed = word->is_said && !word->is_finish && round->round > 0 &&
                      word->round == round->round && word->epoch == round->epoch,
    };
    if (has_seat) {
        authority->seats_created[rank] = (uint64_t)kv->create_revision;
    }
    mst__etcd_v3_node_close(&node);
    return 0;
}

/* Feed the content of key @index: the report, or the announcement with @claim (may be NULL). */
static int build_hear(struct build *build,
                      size_t index,
                      bool is_word,
                      const struct mst__claim *claim)
{
    struct mst__etcd_v3_authority *authority = build->authority;
    struct mst__etcd_v3_node node;
    struct entry *entry;
    bool is_valid;
    int rv = node_read(authority, &build->stored->nodes->items[index], &entry, &node, &is_valid,
                       build->reterr);
    if (rv != 0 || !is_valid) {
        return rv;
    }
    if (claim != NULL) {
        node.said.claim = *claim;
    }
    if (is_word) {
        hear_word(authority, entry, &node.word, build->now_us);
    } else {
        rv = announce(authority, entry, &node.said, build->now_us, build->reterr);
    }
    mst__etcd_v3_node_close(&node);
    return rv == 0 ? effects_take(authority) : rv;
}

/* Of struct mst__kept_driver, like the next one. */
static int build_announce(void *arg, size_t index, const struct mst__claim *claim)
{
    return build_hear(arg, index, false, claim);
}

static int build_say(void *arg, size_t index)
{
    return build_hear(arg, index, true, NULL);
}

static int build_nodes(struct build *build)
{
    const struct mst__v3_kvs *nodes = build->stored->nodes;
    const struct mst__etcd_v3_round *round = build->stored->round;
    const struct mst__job_end end = mst__etcd_v3_round_end(round);
    int64_t age_us = mst__clock_wall_us() - round->restarts_wall_us;
    const struct mst__kept kept = {
        .epoch = round->epoch,
        .round = round->round,
        .world = round->world,
        .first_world = round->first_world,
        .is_over = round->state == MST_ETCD_V3_OPEN,
        .why = round->why,
        .restarts = round->restarts,
        .restarts_total = round->restarts_total,
        .restarts_age_us = round->restarts > 0 && age_us > 0 ? age_us : 0,
        .is_finished = round->is_finished,
        .has_cause = end.has_cause,
        .cause = end.cause,
    };
    int rv = 0;
    for (size_t i = 0; i < nodes->count && rv == 0; i++) {
        rv = build_session(build, &nodes->items[i], &build->sessions[i]);
    }
    const struct mst__kept_driver driver = {
        .announce = build_announce, .say = build_say, .arg = build};
    return rv == 0
               ? mst__authority_rebuild(&build->authority->machine, round->round > 0 ? &kept : NULL,
                                        build->sessions, nodes->count, &driver, build->now_us)
               : rv;
}

static int build_machine(struct mst__etcd_v3_authority *authority,
                         const struct mst__etcd_v3_stored *stored,
                         int64_t now_us,
                         struct mst_err *reterr)
{
    const struct mst__etcd_v3_round *round = stored->round;
    struct build build = {
        .authority = authority,
        .stored = stored,
        .sessions = mst__calloc(stored->nodes->count + 1, sizeof *build.sessions),
        .now_us = now_us,
        .reterr = reterr,
    };
    int rv = build.sessions == NULL ? MST_ENOMEM : 0;
    if (rv == 0 && round->round > 0) {
        rv = seats_restore(authority, stored);
    }
    rv = rv == 0 ? build_nodes(&build) : rv;
    mst__free(build.sessions);
    if (rv == 0 && round->state == MST_ETCD_V3_CLOSED) {
        const struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_SHUT,
                                                   .now_us = now_us,
                                                   .reason = mst_bytes_str(round->reason),
                                                   .owner = mst_bytes_str(round->owner)};
        (void)mst__authority_step(&authority->machine, &event, NULL); /* it cannot be closed yet */
    }
    rv = rv == 0 ? effects_take(authority) : rv;
    return rv == 0 ? 0 : fail_memory(reterr);
}

int mst__etcd_v3_authority_build(struct mst__etcd_v3_authority *authority,
                                 const struct mst__etcd_v3_stored *stored,
                                 int64_t now_us,
                                 struct mst_err *reterr)
{
    mst__etcd_v3_authority_close(authority);
    struct mst__authority_options options = {
        /* Revisions only grow, and sealing a round makes a new one. */
        .epoch = (uint64_t)stored->revision,
        .expiry_us = INT64_MAX,
        .grace_us = INT64_MAX,
        .reclaim_us = RECLAIM_US,
        .return_us = INT64_MAX,
        .members_max = MST_AUTHORITY_MEMBERS_MAX,
    };
    if (options.epoch <= stored->round->epoch) {
        options.epoch = stored->round->epoch + 1; /* restored from another etcd */
    }
    mst__clock_random(options.hash_key, sizeof options.hash_key);
    mst__authority_init(&authority->machine, &options);
    mst__map_init(&authority->entries, sizeof(struct entry), options.hash_key);
    mst__map_init(&authority->ranks, sizeof(uint32_t), options.hash_key);
    authority->is_built = true;
    int rv = build_machine(authority, stored, now_us, reterr);
    if (rv != 0) {
        mst__etcd_v3_authority_close(authority);
    }
    return rv;
}

/* --- following --- */

static int event_put(struct mst__etcd_v3_authority *authority,
                     const struct mst__v3_kv *kv,
                     int64_t now_us,
                     struct mst_err *reterr)
{
    struct mst__etcd_v3_node node;
    struct entry *entry;
    bool is_valid;
    int rv = node_read(authority, kv, &entry, &node, &is_valid, reterr);
    if (rv != 0 || !is_valid) {
        return rv;
    }
    hear_word(authority, entry, &node.word, now_us);
    if (node.has_left) {
        part(authority, entry, true, now_us);
    } else if (mst__kept_announces(node.word.is_said, &node.said.claim,
                                   entry->id != MST_AUTHORITY_NOBODY)) {
        rv = announce(authority, entry, &node.said, now_us, reterr);
    }
    mst__etcd_v3_node_close(&node);
    return rv;
}

int mst__etcd_v3_authority_event(struct mst__etcd_v3_authority *authority,
                                 const struct mst__v3_event *event,
                                 int64_t now_us,
                                 struct mst_err *reterr)
{
    int rv = 0;
    if (event->is_delete) {
        struct entry *entry =
            mst__map_get(&authority->entries, mst_bytes_of(event->kv.key.data, event->kv.key.size));
        if (entry != NULL) {
            part(authority, entry, false, now_us);
            mst__map_remove(&authority->entries, entry);
        }
    } else {
        rv = event_put(authority, &event->kv, now_us, reterr);
    }
    int taken = effects_take(authority);
    return rv != 0 ? rv : taken == 0 ? 0 : fail_memory(reterr);
}

int mst__etcd_v3_authority_tick(struct mst__etcd_v3_authority *authority,
                                int64_t now_us,
                                int64_t *ret_due_us,
                                struct mst_err *reterr)
{
    const struct mst__authority_event event = {.kind = MST_AUTHORITY_EVENT_TIME, .now_us = now_us};
    (void)mst__authority_step(&authority->machine, &event, NULL); /* always 0 */
    int rv = effects_take(authority);
    *ret_due_us = mst__authority_due_us(&authority->machine);
    return rv == 0 ? 0 : fail_memory(reterr);
}

/* --- what should be stored --- */

/* Add the name of @rank to the gone nodes, if there is room. */
static void gone_name(const struct mst__etcd_v3_authority *authority,
                      uint32_t rank,
                      struct mst__etcd_v3_round *round)
{
    const struct mst__etcd_v3_seat *seat = mst__etcd_v3_authority_seat(authority, rank);
    size_t used = strlen(round->gone);
    size_t size = seat == NULL ? 0 : strlen(seat->name);
    if (size > 0 && used + 1 + size < sizeof round->gone) {
        (void)snprintf(round->gone + used, sizeof round->gone - used, "%s%s", used == 0 ? "" : " ",
                       seat->name); /* fits */
    }
}

/* Count and name the members of a reopened round whose sessions have ended, even if a new
 * process has replaced them: lost members first, in the order of their loss. Returns 0 or
 * MST_ENOMEM. */
static int gone_fill(const struct mst__etcd_v3_authority *authority,
                     struct mst__etcd_v3_round *round)
{
    const struct mst__authority *machine = &authority->machine;
    /* The round was stored with its seats, or sealed here. */
    MST_ASSERT(authority->seats_count == machine->world);
    bool *is_gone = mst__calloc(machine->world + (size_t)1, sizeof *is_gone);
    bool *is_told = mst__calloc(machine->world + (size_t)1, sizeof *is_told);
    if (is_gone == NULL || is_told == NULL) {
        mst__free(is_gone);
        mst__free(is_told);
        return MST_ENOMEM;
    }
    round->gone_count = mst__authority_gone(machine, authority->seats_created, is_gone);
    round->gone[0] = '\0';
    for (uint32_t rank = 0; rank < machine->world; rank++) {
        const struct mst__authority_member *member = mst__authority_ranked(machine, rank);
        bool has_finished =
            member != NULL && member->place == MST_PLACE_GONE && member->is_finished;
        if (is_gone[rank] && has_finished) { /* finished nodes are not lost */
            is_told[rank] = true;
            round->gone_count--;
        }
    }
    for (uint32_t i = 0; i < machine->lost_count; i++) {
        gone_name(authority, machine->lost[i], round);
        is_told[machine->lost[i]] = true;
    }
    for (uint32_t rank = 0; rank < machine->world; rank++) {
        if (is_gone[rank] && !is_told[rank]) {
            gone_name(authority, rank, round);
        }
    }
    mst__free(is_told);
    mst__free(round->is_gone);
    round->is_gone = is_gone;
    return 0;
}

/* A new document for the round that the machine has sealed. */
static int sealed_fill(const struct mst__etcd_v3_authority *authority,
                       const struct mst__etcd_v3_round *stored,
                       struct mst__etcd_v3_round *round)
{
    const struct mst__authority *machine = &authority->machine;
    struct mst__etcd_v3_round sealed = {
        .state = MST_ETCD_V3_RUNNING,
        .epoch = machine->round_epoch,
        .round = machine->round,
        .before = stored->round,
        .world = machine->world,
        .first_world =
            machine->first_world > machine->world ? machine->first_world : machine->world,
        .restarts_before = machine->round_restarts,
        .start = machine->round_start,
        .is_sharded = machine->world > MST_ETCD_V3_SEATS_MAX,
        .seats = authority->seats, /* borrowed for the copy */
    };
    const struct mst__authority_member *first = mst__authority_ranked(machine, 0);
    if (first != NULL) {
        (void)snprintf(sealed.address, sizeof sealed.address, "%s",
                       (const char *)mst__authority_address(first).data); /* fits */
    }
    if (sealed.is_sharded) {
        sealed.seats = NULL;
    }
    return mst__etcd_v3_round_copy(&sealed, round);
}

/* Fill in the end of work: used restarts and the cause of a failure. */
static void work_fill(const struct mst__authority *machine,
                      const struct mst__kept *kept,
                      bool has_cause,
                      struct mst__etcd_v3_round *round)
{
    if (round->restarts_total != kept->restarts_total) {
        round->restarts_total = kept->restarts_total;
        round->restarts = kept->restarts;
        round->restarts_wall_us = mst__clock_wall_us() - kept->restarts_age_us;
    }
    round->has_cause = has_cause;
    if (has_cause) {
        const struct mst__cause cause = mst__authority_cause(machine);
        round->cause = cause;
        round->cause.node = mst_bytes_str(""); /* the texts are stored apart */
        round->cause.text = mst_bytes_str("");
        round->cause.report = mst_bytes_str("");
        memcpy(round->cause_node, machine->cause_node, sizeof round->cause_node);
        memcpy(round->cause_text, machine->cause_text, sizeof round->cause_text);
        memcpy(round->cause_report, machine->cause_report, sizeof round->cause_report);
    }
}

static bool is_same_round(const struct mst__etcd_v3_round *stored,
                          const struct mst__authority *machine)
{
    return stored->round == machine->round && stored->epoch == machine->round_epoch;
}

/* Fill in the finished members, including those that are gone, from the stored document. Returns
 * 0 or MST_ENOMEM. */
static int finished_fill(const struct mst__authority *machine, struct mst__etcd_v3_round *round)
{
    uint32_t finished = machine->finished_count + machine->released_count;
    if (finished == 0 && round->is_finished == NULL) {
        return 0;
    }
    if (round->is_finished == NULL) {
        round->is_finished = mst__calloc(machine->world + (size_t)1, sizeof *round->is_finished);
    }
    if (round->is_finished == NULL) {
        return MST_ENOMEM;
    }
    round->finished_count = mst__authority_finished(machine, round->is_finished);
    return 0;
}

/* The document of the machine's current round, from @stored or new. */
static int round_begin(const struct mst__etcd_v3_authority *authority,
                       const struct mst__etcd_v3_round *stored,
                       struct mst__etcd_v3_round *ret_round)
{
    if (is_same_round(stored, &authority->machine)) {
        return mst__etcd_v3_round_copy(stored, ret_round);
    }
    int rv = sealed_fill(authority, stored, ret_round);
    if (rv == 0) {
        ret_round->restarts = stored->restarts;
        ret_round->restarts_total = stored->restarts_total;
        ret_round->restarts_wall_us = stored->restarts_wall_us;
    }
    return rv;
}

/* The job has ended: all have finished, or it failed more often than its budget allows. */
static int wants_end(const struct mst__etcd_v3_authority *authority,
                     const struct mst__etcd_v3_round *stored,
                     const struct mst__kept *kept,
                     struct mst__etcd_v3_round *ret_round)
{
    const struct mst__authority *machine = &authority->machine;
    int rv = round_begin(authority, stored, ret_round);
    if (rv != 0) {
        return rv;
    }
    ret_round->state = MST_ETCD_V3_CLOSED;
    ret_round->waiting = 0;
    ret_round->outcome = machine->outcome;
    (void)snprintf(ret_round->reason, sizeof ret_round->reason, "%s", machine->close_reason);
    (void)snprintf(ret_round->owner, sizeof ret_round->owner, "%s", machine->close_owner); /* fit */
    work_fill(machine, kept, machine->outcome == MST_JOB_OUTCOME_FAILED, ret_round);
    return 0;
}

int mst__etcd_v3_authority_wants(struct mst__etcd_v3_authority *authority,
                                 const struct mst__etcd_v3_round *stored,
                                 bool *ret_wants,
                                 struct mst__etcd_v3_round *ret_round)
{
    const struct mst__authority *machine = &authority->machine;
    struct mst__kept kept;
    *ret_wants = false;
    bool is_kept = mst__authority_kept(machine, &kept);
    if (stored->state != MST_ETCD_V3_CLOSED && machine->phase == MST_AUTHORITY_CLOSED) {
        *ret_wants = true;
        return wants_end(authority, stored, &kept, ret_round);
    }
    if (stored->state == MST_ETCD_V3_CLOSED || !is_kept) {
        return 0;
    }
    struct mst__etcd_v3_round round;
    int rv = round_begin(authority, stored, &round);
    if (rv != 0) {
        return rv;
    }
    round.state = kept.is_over ? MST_ETCD_V3_OPEN : MST_ETCD_V3_RUNNING;
    round.waiting = kept.waiting;
    round.why = kept.why;
    work_fill(machine, &kept, kept.has_cause, &round);
    if (finished_fill(machine, &round) != 0) {
        mst__etcd_v3_round_close(&round);
        return MST_ENOMEM;
    }
    if (kept.is_over && gone_fill(authority, &round) != 0) {
        mst__etcd_v3_round_close(&round);
        return MST_ENOMEM;
    }
    *ret_wants = !is_same_round(stored, machine) || stored->state != round.state ||
                 stored->waiting != round.waiting || stored->why != round.why ||
                 stored->restarts_total != round.restarts_total ||
                 stored->finished_count != round.finished_count ||
                 stored->gone_count != round.gone_count;
    if (*ret_wants) {
        *ret_round = round;
    } else {
        mst__etcd_v3_round_close(&round);
    }
    return 0;
}
