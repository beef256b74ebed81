/* unit/core/member_unit.h - the machine of a node of an authority with short names for events, and
 * its effects as text. */
#ifndef MST_UNIT_MEMBER_UNIT_H
#define MST_UNIT_MEMBER_UNIT_H

#include <string.h>

#include "base/err.h"
#include "core/member.h"
#include "unit/unit.h"

#define SECOND_US 1000000

static struct mst__member member;
static int64_t now_us;

static inline int reset(void **state)
{
    (void)state;
    const struct mst__member_options options = {
        .self = {.name = mst_bytes_str("a"), .nodes_min = 1, .nodes_max = 4},
        .run_id = mst_bytes_str("job"),
        .where = "server:1",
        .beat_us = 2 * SECOND_US,
        .expiry_us = 6 * SECOND_US,
        .beats_per_answer = 3,
        .seed = 7,
    };
    now_us = 100 * SECOND_US;
    mst__member_init(&member, &options);
    return 0;
}

static inline void step(struct mst__member_event event)
{
    event.now_us = now_us;
    mst__member_step(&member, &event);
    mst__member_check(&member);
}

static inline void kind(enum mst__member_event_kind event)
{
    step((struct mst__member_event){.kind = event});
}

static inline void want(int64_t timeout_us)
{
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_WANTED,
                                    .address = mst_bytes_str("a:1"),
                                    .timeout_us = timeout_us});
}

static inline void hear(struct mst__job_message message)
{
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_HEARD, .message = &message});
}

static inline void hear_type(enum mst__job_type type)
{
    hear((struct mst__job_message){.type = type});
}

static inline void hear_welcome(uint32_t version)
{
    hear((struct mst__job_message){.type = MST_JOB_WELCOME, .u.welcome.version = version});
}

static inline void hear_round(enum mst__job_type type, int64_t round, uint32_t rank)
{
    hear((struct mst__job_message){
        .type = type, .u.round = {.epoch = 9, .round = round, .world = 2, .rank = rank}});
}

static inline void hear_refused(int code, enum mst__refusal refusal)
{
    hear((struct mst__job_message){.type = MST_JOB_REFUSED,
                                   .u.refused = {.code = code,
                                                 .refusal = (uint32_t)refusal,
                                                 .text = mst_bytes_str("because")}});
}

static inline void disconnect(int code)
{
    struct mst_err err;
    (void)mst__fail(&err, code, 0, "cut");
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_DISCONNECTED, .err = &err});
}

/* The effects of the last step are these, as "send:announce notice:lost sealed". */
static inline void effects_are(const char *expected)
{
    static const char *const kinds[] = {"connect", "disconnect", "send",  "explain",
                                        "sealed",  "failed",     "notice"};
#define NOTICE_NAME(name, text) (text), /* in the order of the enum */
    static const char *const notices[] = {MST_MEMBER_NOTICE_MAP(NOTICE_NAME)};
#undef NOTICE_NAME
    char text[200] = "";
    for (size_t i = 0; i < member.effects_count; i++) {
        const struct mst__member_effect *effect = &member.effects[i];
        size_t used = strlen(text);
        const char *detail = effect->kind == MST_MEMBER_SEND     ? mst__job_type_name(effect->type)
                             : effect->kind == MST_MEMBER_NOTICE ? notices[effect->notice]
                                                                 : "";
        (void)snprintf(text + used, sizeof text - used, "%s%s%s%s", used > 0 ? " " : "",
                       kinds[effect->kind], detail[0] != '\0' ? ":" : "", detail);
    }
    assert_string_equal(text, expected);
}

/* Wanted, connected and announced. */
static inline void announced(int64_t timeout_us)
{
    want(timeout_us);
    effects_are("");
    assert_int_equal(mst__member_due_us(&member), now_us);
    kind(MST_MEMBER_EVENT_TIME);
    effects_are("connect");
    kind(MST_MEMBER_EVENT_CONNECTED);
    effects_are("send:announce");
    hear_type(MST_JOB_WELCOME);
    effects_are("");
}

static inline void in_round(int64_t round)
{
    announced(INT64_MAX);
    hear_round(MST_JOB_SEALED, round, 1);
    effects_are("sealed");
    assert_int_equal(member.phase, MST_MEMBER_HOLDING);
}

static inline void finish(void)
{
    step((struct mst__member_event){
        .kind = MST_MEMBER_EVENT_FINISH, .status = 3, .text = mst_bytes_str("done")});
}

static inline void restart(void)
{
    const struct mst__cause cause = {.worker = 2, .signal = 9, .text = mst_bytes_str("boom")};
    step((struct mst__member_event){.kind = MST_MEMBER_EVENT_RESTART, .cause = &cause});
}

#endif /* MST_UNIT_MEMBER_UNIT_H */
