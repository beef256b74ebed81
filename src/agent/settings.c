/* agent/settings.c - the table, and the choice among several values. settings_read.c interprets the
 * values. */
#include "agent/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "agent/settings_self.h"
#include "base/assert.h"
#include "base/err.h"
#include "base/number.h"

#define VARIABLE_SIZE 64

const struct mst__setting_info *mst__setting_info(enum mst__setting setting)
{
    static const struct mst__setting_info infos[MST_SETTING_COUNT] = {
#define SETTING_INFO(id, name, kind, argument, preset, other, help) \
    [MST_SETTING_##id] = {(name), MST_SETTING_##kind, (argument), (preset), (other), (help)},
        MST_SETTING_MAP(SETTING_INFO)
#undef SETTING_INFO
    };
    return &infos[setting];
}

/* Write "PET_NPROC_PER_NODE" for prefix "PET_" and name "nproc-per-node". */
static const char *variable_name(const char *prefix, const char *name, char ret_text[VARIABLE_SIZE])
{
    size_t used = strlen(prefix);
    MST_ASSERT(used + strlen(name) < VARIABLE_SIZE);
    memcpy(ret_text, prefix, used);
    for (; *name != '\0'; name++) {
        ret_text[used++] = *name == '-' ? '_' : (char)toupper((unsigned char)*name);
    }
    ret_text[used] = '\0';
    return ret_text;
}

/* "--nproc-per-node", in the arena; NULL if there is no memory. */
static const char *option_name(struct mst__arena *arena, const char *name)
{
    char *text = mst__arena_take(arena, VARIABLE_SIZE);
    if (text != NULL) {
        (void)snprintf(text, VARIABLE_SIZE, "--%s", name);
    }
    return text;
}

/* Take the value of @variable. Returns false if it is not set. The origin is NULL if there is no
 * memory. */
static bool take_variable(struct mst__run_settings *settings,
                          struct mst__setting_value *value,
                          const char *variable,
                          enum mst__setting_source source)
{
    const char *text = mst__env_get(settings->environment, variable);
    if (text == NULL) {
        return false;
    }
    *value = (struct mst__setting_value){
        .text = text,
        .origin = mst__arena_text(&settings->arena, mst_bytes_str(variable)),
        .source = source,
    };
    return true;
}

static bool take_scheduler(struct mst__setting_value *value,
                           const struct mst__scheduler_value *known)
{
    if (known == NULL || known->text == NULL) {
        return false;
    }
    *value = (struct mst__setting_value){
        .text = known->text, .origin = known->origin, .source = MST_SOURCE_SCHEDULER};
    return true;
}

static const struct mst__scheduler_value *scheduler_value(const struct mst__scheduler *scheduler,
                                                          enum mst__setting setting)
{
    switch (setting) {
        case MST_SETTING_NNODES:
            return &scheduler->nnodes;
        case MST_SETTING_NPROC:
            return &scheduler->nproc;
        case MST_SETTING_RDZV_ID:
            return &scheduler->id;
        case MST_SETTING_RDZV_ENDPOINT:
            return &scheduler->endpoint;
        case MST_SETTING_NODE_RANK:
            return &scheduler->node_rank;
        case MST_SETTING_END_TIME:
            return &scheduler->end_time;
        default:
            return NULL;
    }
}

static void pick(struct mst__run_settings *settings,
                 const struct mst__setting_input *input,
                 enum mst__setting setting)
{
    const struct mst__setting_info *info = mst__setting_info(setting);
    struct mst__setting_value *value = &settings->values[setting];
    char name[VARIABLE_SIZE];
    if (input->texts[setting] != NULL) {
        *value = (struct mst__setting_value){
            .text = input->texts[setting],
            .origin = option_name(&settings->arena, info->name),
            .source = MST_SOURCE_OPTION,
        };
        return;
    }
    if (take_variable(settings, value, variable_name("MUSTER_", info->name, name),
                      MST_SOURCE_MUSTER) ||
        take_variable(settings, value, variable_name("PET_", info->name, name), MST_SOURCE_PET) ||
        (info->other != NULL && take_variable(settings, value, info->other, MST_SOURCE_PET)) ||
        take_scheduler(value, scheduler_value(&settings->scheduler, setting))) {
        return;
    }
    if (info->preset != NULL) {
        *value = (struct mst__setting_value){
            .text = info->preset, .origin = "default", .source = MST_SOURCE_DEFAULT};
    }
}

/* A flag in a variable is a number, as in torchrun. */
static int check_flag(struct mst__setting_value *value, struct mst_err *reterr)
{
    int64_t number = 0;
    if (value->text == NULL || value->source == MST_SOURCE_OPTION) {
        return 0;
    }
    if (!mst__number_parse(mst_bytes_str(value->text), INT64_MIN, INT64_MAX, &number)) {
        return mst__fail(reterr, MST_EINVAL, 0, "%s: '%.60s' is not a number: 1 is on, 0 is off",
                         value->origin, value->text);
    }
    value->text = number != 0 ? "1" : NULL;
    return 0;
}

/* Take the list of the command line, or else the one value of a variable. */
static void pick_list(const struct mst__setting_value *value,
                      const struct mst__setting_list *given,
                      struct mst__setting_list *ret_list)
{
    *ret_list = *given;
    if (given->count == 0 && value->text != NULL) {
        *ret_list = (struct mst__setting_list){.values = {value->text}, .count = 1};
    }
}

int mst__run_settings_read(const struct mst__setting_input *input,
                           struct mst__env environment,
                           const struct mst__scheduler *scheduler,
                           const struct mst__machine *machine,
                           char *const *program,
                           struct mst__run_settings *ret_settings,
                           struct mst_err *reterr)
{
    struct mst__run_settings *settings = ret_settings;
    *settings = (struct mst__run_settings){
        .environment = environment,
        .scheduler = *scheduler,
        .machine = *machine,
        .program = program,
    };
    int rv = 0;
    for (size_t i = 0; i < MST_SETTING_COUNT && rv == 0; i++) {
        pick(settings, input, (enum mst__setting)i);
        if (mst__setting_info((enum mst__setting)i)->kind == MST_SETTING_FLAG) {
            rv = check_flag(&settings->values[i], reterr);
        }
    }
    for (size_t i = 0; i < MST_SETTING_COUNT && rv == 0; i++) {
        if (settings->values[i].text != NULL && settings->values[i].origin == NULL) {
            rv = mst__fail(reterr, MST_ENOMEM, 0, "settings");
        }
    }
    pick_list(&settings->values[MST_SETTING_RDZV_CONF], &input->rdzv_conf, &settings->rdzv_conf);
    pick_list(&settings->values[MST_SETTING_ENV], &input->env, &settings->env);
    rv = rv == 0 ? mst__run_settings_interpret(settings, reterr) : rv;
    if (rv != 0) {
        mst__run_settings_close(settings);
    }
    return rv;
}

void mst__run_settings_adopt(struct mst__run_settings *settings, struct mst__arena *arena)
{
    mst__arena_close(&settings->scheduler_arena);
    settings->scheduler_arena = *arena;
    *arena = (struct mst__arena){0};
}

void mst__run_settings_close(struct mst__run_settings *settings)
{
    mst__arena_close(&settings->scheduler_arena);
    mst__arena_close(&settings->arena);
    *settings = (struct mst__run_settings){0};
}
