/* wire/job_status.c - makes the status of an authority. */
#include "wire/job_status.h"

#include "base/assert.h"

void mst__job_status_room_init(struct mst__job_status_room *room, size_t size_max)
{
    mst__buf_init(&room->members, size_max);
    mst__buf_init(&room->details, size_max);
}

void mst__job_status_room_close(struct mst__job_status_room *room)
{
    mst__buf_close(&room->members);
    mst__buf_close(&room->details);
}

/* In the form of the reader's version. */
static uint32_t standing_told(const struct mst__authority *authority,
                              const struct mst__authority_member *member,
                              uint32_t version)
{
    enum mst__authority_standing standing = mst__authority_standing(authority, member);
    bool is_unknown = standing == MST_STANDING_FINISHED && version < MST_JOB_VERSION_FINISH;
    return (uint32_t)(is_unknown ? MST_STANDING_MEMBER : standing);
}

static int write_detail(struct mst__buf *details, const struct mst__authority_member *member)
{
    struct mst__job_detail detail;
    bool is_gone = member->place == MST_PLACE_GONE;
    detail.gone = (uint32_t)(!is_gone              ? MST_JOB_GONE_NOT
                             : member->is_finished ? MST_JOB_GONE_FINISHED
                             : member->is_lost     ? MST_JOB_GONE_LOST
                                                   : MST_JOB_GONE_LEFT);
    detail.labels_count = member->labels_count;
    MST_ASSERT(detail.labels_count <= MST_AUTHORITY_LABELS_MAX);
    for (uint32_t i = 0; i < detail.labels_count; i++) {
        detail.labels[i] = mst__authority_label(member, i);
    }
    return mst__job_detail_write(details, &detail);
}

static void fill_members(const struct mst__authority *authority,
                         uint32_t version,
                         int64_t now_us,
                         bool has_times,
                         struct mst__job_status_room *room,
                         struct mst__job_status *status)
{
    const struct mst__authority_member *member;
    uint32_t cursor = 0;
    while (!status->is_cut && (member = mst__authority_next_member(authority, &cursor)) != NULL) {
        const struct mst__job_member told = {
            .name = mst__authority_name(member),
            .address = mst__authority_address(member),
            .standing = standing_told(authority, member, version),
            .rank = member->rank,
            .incarnation = member->incarnation,
            .silent_us = !has_times                  ? -1
                         : now_us > member->heard_us ? now_us - member->heard_us
                                                     : 0,
            .has_skew = member->has_skew,
            .skew_us = member->skew_us,
        };
        size_t before = mst__buf_size(&room->members);
        status->is_cut = mst__job_member_write(&room->members, &told) != 0;
        if (!status->is_cut && version >= MST_JOB_VERSION_LIST &&
            write_detail(&room->details, member) != 0) {
            mst__buf_truncate(&room->members, before);
            status->is_cut = true;
        }
        status->member_count += status->is_cut ? 0 : 1;
    }
    status->members = mst__buf_bytes(&room->members);
    status->details = mst__buf_bytes(&room->details);
}

void mst__job_status_fill(const struct mst__authority *authority,
                          uint32_t version,
                          int64_t now_us,
                          bool has_times,
                          struct mst__job_status_room *room,
                          struct mst__job_status *ret_status)
{
    const struct mst__authority_settings *settings = &authority->settings;
    mst__buf_clear(&room->members);
    mst__buf_clear(&room->details);
    mst__authority_describe(authority, now_us, room->sentence, sizeof room->sentence);
    *ret_status = (struct mst__job_status){
        .phase = (uint32_t)authority->phase,
        .epoch = authority->round == 0 ? authority->options.epoch : authority->round_epoch,
        .round = authority->round,
        .round_next = mst__authority_round_next(authority),
        .world = authority->world,
        .nodes_min = settings->is_set ? settings->nodes_min : 0,
        .nodes_max = settings->is_set ? mst__authority_nodes_max(authority) : 0,
        .last_call_us = settings->is_set ? settings->last_call_us : 0,
        .sentence = mst_bytes_str(room->sentence),
        .reason = mst_bytes_str(authority->close_reason),
        .owner = mst_bytes_str(authority->close_owner),
        .end = {.outcome = (uint32_t)authority->outcome, .has_cause = authority->has_cause},
        .restarts = authority->restarts,
        .restarts_total = authority->restarts_total,
        .finished = authority->finished_count + authority->released_count,
        .last_call_left_us = INT64_MAX,
    };
    if (authority->has_cause) {
        ret_status->end.cause = mst__authority_cause(authority);
    }
    if (settings->is_set) {
        ret_status->budget = settings->budget;
    }
    if (has_times && authority->last_call_us != INT64_MAX) {
        ret_status->last_call_left_us = authority->last_call_us - now_us;
    }
    fill_members(authority, version, now_us, has_times, room, ret_status);
}

void mst__job_entry_fill(const struct mst__authority *authority, struct mst__job_entry *ret_entry)
{
    uint32_t counts[MST_STANDING_COUNT];
    const struct mst__authority_settings *settings = &authority->settings;
    mst__authority_count_standings(authority, counts);
    *ret_entry = (struct mst__job_entry){
        .phase = (uint32_t)authority->phase,
        .epoch = authority->round == 0 ? authority->options.epoch : authority->round_epoch,
        .round = authority->round,
        .world = authority->world,
        .nodes_min = settings->is_set ? settings->nodes_min : 0,
        .nodes_max = settings->is_set ? mst__authority_nodes_max(authority) : 0,
        .members = counts[MST_STANDING_MEMBER] + counts[MST_STANDING_CALLED] +
                   counts[MST_STANDING_FINISHED],
        .waiting = counts[MST_STANDING_GATHERED] + counts[MST_STANDING_QUEUED],
        .spares = counts[MST_STANDING_SPARE],
        .finished = authority->finished_count + authority->released_count,
        .outcome = (uint32_t)authority->outcome,
        .reason = mst_bytes_str(authority->close_reason),
    };
}
