/* cli/look_v3.c - what the commands see of a rendezvous of backend `etcd-v3`. */
#include "cli/look_v3.h"

#include "authority/etcd_v3.h"
#include "authority/etcd_v3_self.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"

#define SENTENCE_SIZE 1000

struct mst__look_v3 {
    struct mst__etcd_v3_look look;
    const char *run_id; /* the params' own */
    struct mst__buf members;
    char sentence[SENTENCE_SIZE];
};

int mst__look_v3_open(const struct mst_params *params,
                      struct mst__look_v3 **ret_look,
                      struct mst_err *reterr)
{
    struct mst__look_v3 *look = mst__calloc(1, sizeof *look);
    if (look == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "rendezvous");
    }
    mst__buf_init(&look->members, MST_MIB(64));
    look->run_id = mst_params_run_id(params);
    int rv = mst__etcd_v3_look_open(&look->look, params, reterr);
    if (rv != 0) {
        mst__look_v3_close(look);
        return rv;
    }
    *ret_look = look;
    return 0;
}

void mst__look_v3_close(struct mst__look_v3 *look)
{
    if (look == NULL) {
        return;
    }
    mst__etcd_v3_look_close(&look->look);
    mst__buf_close(&look->members);
    mst__free(look);
}

static int write_members(struct mst__look_v3 *look, uint32_t *ret_count)
{
    const struct mst__authority *machine = &look->look.authority.machine;
    const struct mst__authority_member *member;
    uint32_t cursor = 0;
    int rv = 0;
    *ret_count = 0;
    mst__buf_clear(&look->members);
    while (rv == 0 && (member = mst__authority_next_member(machine, &cursor)) != NULL) {
        const struct mst__job_member told = {
            .name = mst__authority_name(member),
            .address = mst__authority_address(member),
            .standing = (uint32_t)mst__authority_standing(machine, member),
            .rank = member->rank,
            .incarnation = member->incarnation,
            .silent_us = -1, /* the lease knows */
        };
        rv = mst__job_member_write(&look->members, &told);
        (*ret_count)++;
    }
    return rv;
}

int mst__look_v3_read(struct mst__look_v3 *look,
                      int64_t timeout_ms,
                      struct mst__job_status *ret_status,
                      struct mst_err *reterr)
{
    int rv = mst__etcd_v3_look_read(&look->look, mst__until_in(timeout_ms), reterr);
    if (rv != 0) {
        return rv;
    }
    if (!look->look.exists) {
        return mst__fail(reterr, MST_ENOTFOUND, 0, "there is no rendezvous '%.60s' at %.80s",
                         look->run_id, mst__v3_where(look->look.v3));
    }
    uint32_t count;
    rv = write_members(look, &count);
    if (rv != 0) {
        return mst__fail(reterr, rv, 0, "%u members", count);
    }
    const struct mst__authority *machine = &look->look.authority.machine;
    const struct mst__authority_settings *settings = &machine->settings;
    mst__authority_describe(machine, mst__clock_ns() / 1000, look->sentence, sizeof look->sentence);
    *ret_status = (struct mst__job_status){
        .run_id = mst_bytes_str(look->run_id),
        .phase = (uint32_t)machine->phase,
        .epoch = machine->round_epoch,
        .round = machine->round,
        .round_next = mst__authority_round_next(machine),
        .world = machine->world,
        .nodes_min = settings->is_set ? settings->nodes_min : 0,
        .nodes_max = settings->is_set ? settings->nodes_max : 0,
        .last_call_us = settings->is_set ? settings->last_call_us : 0,
        .sentence = mst_bytes_str(look->sentence),
        .reason = mst_bytes_str(machine->close_reason),
        .owner = mst_bytes_str(machine->close_owner),
        .member_count = count,
        .members = mst__buf_bytes(&look->members),
    };
    return 0;
}

int mst__look_v3_shut(struct mst__look_v3 *look,
                      const char *reason,
                      const char *owner,
                      int64_t timeout_ms,
                      struct mst_err *reterr)
{
    struct mst__job_status ignored;
    int rv = mst__look_v3_read(look, timeout_ms, &ignored, reterr);
    return rv != 0 ? rv
                   : mst__etcd_v3_shut(look->look.v3, &look->look.keys, reason, owner,
                                       mst__until_in(timeout_ms), reterr);
}
