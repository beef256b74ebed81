/* agent/settings_read.c - interpret and check the settings of `muster run`. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "agent/settings_self.h"
#include "base/bytes.h"
#include "base/endpoint.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/number.h"
#include "base/signal_name.h"
#include "base/unicode.h"
#include "handler/registry.h"

#define PORT_STATIC 29500
#define DURATION_MS_MAX ((int64_t)10 * 365 * 86400 * 1000)
#define END_TIME_S_MAX 253402300799 /* end of year 9999 */
#define FILTERS_MAX 64
#define ID_SIZE 40

/* --- helpers --- */

static const struct mst__setting_value *value_of(const struct mst__run_settings *settings,
                                                 enum mst__setting setting)
{
    return &settings->values[setting];
}

static const char *text_of(const struct mst__run_settings *settings, enum mst__setting setting)
{
    return settings->values[setting].text;
}

static bool is_on(const struct mst__run_settings *settings, enum mst__setting setting)
{
    return settings->values[setting].text != NULL;
}

static int wrong(const struct mst__setting_value *value, const char *wants, struct mst_err *reterr)
{
    return mst__fail(reterr, MST_EINVAL, 0, "%s: '%.60s' is not %s", value->origin, value->text,
                     wants);
}

static int no_memory(struct mst_err *reterr)
{
    return mst__fail(reterr, MST_ENOMEM, 0, "settings");
}

/* Set a value that follows from other settings. */
static void derive(struct mst__run_settings *settings,
                   enum mst__setting setting,
                   const char *text,
                   const char *origin)
{
    settings->values[setting] =
        (struct mst__setting_value){.text = text, .origin = origin, .source = MST_SOURCE_DERIVED};
}

static int read_number(const struct mst__setting_value *value,
                       int64_t min,
                       int64_t max,
                       int64_t *ret_number,
                       struct mst_err *reterr)
{
    if (mst__number_parse(mst_bytes_str(value->text), min, max, ret_number)) {
        return 0;
    }
    char wants[80];
    (void)snprintf(wants, sizeof wants, "a number from %" PRId64 " to %" PRId64, min, max);
    return wrong(value, wants, reterr);
}

static int read_duration(const struct mst__setting_value *value,
                         int64_t *ret_ms,
                         struct mst_err *reterr)
{
    if (mst__number_parse_duration(value->text, ret_ms) && *ret_ms <= DURATION_MS_MAX) {
        return 0;
    }
    return wrong(value, "a duration such as 250ms, 1.5s, 30, 5m", reterr);
}

/* Find the value among @words, which ends with NULL. */
static int read_word(const struct mst__setting_value *value,
                     const char *const *words,
                     int *ret_index,
                     struct mst_err *reterr)
{
    char wants[160] = "";
    size_t used = 0;
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(value->text, words[i]) == 0) {
            *ret_index = i;
            return 0;
        }
        const char *between = i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ";
        int size = snprintf(wants + used, sizeof wants - used, "%s%s", between, words[i]);
        used += size < 0 || (size_t)size >= sizeof wants - used ? 0 : (size_t)size;
    }
    return wrong(value, wants, reterr);
}

/* Take the part of @text up to @separator, as a copy in the arena; NULL if there is no memory. */
static const char *take_part(struct mst__arena *arena, const char **text, char separator)
{
    const char *at = strchr(*text, separator);
    size_t size = at == NULL ? strlen(*text) : (size_t)(at - *text);
    const char *part = mst__arena_text(arena, mst_bytes_of(*text, size));
    *text += size + (at == NULL ? 0 : 1);
    return part;
}

/* --- nodes and workers --- */

static int read_nodes(struct mst__run_settings *settings, struct mst_err *reterr)
{
    const struct mst__setting_value *value = value_of(settings, MST_SETTING_NNODES);
    const char *colon = strchr(value->text, ':');
    size_t size = colon == NULL ? strlen(value->text) : (size_t)(colon - value->text);
    bool is_valid = mst__number_parse(mst_bytes_of(value->text, size), 1, MST_AUTHORITY_MEMBERS_MAX,
                                      &settings->nodes_min);
    settings->nodes_max = settings->nodes_min;
    if (is_valid && colon != NULL) {
        is_valid = mst__number_parse(mst_bytes_str(colon + 1), 1, MST_AUTHORITY_MEMBERS_MAX,
                                     &settings->nodes_max);
    }
    if (!is_valid || settings->nodes_min > settings->nodes_max) {
        return wrong(value, "a number of nodes above 0, or MIN:MAX with MIN not above MAX", reterr);
    }
    return 0;
}

static int read_nproc(struct mst__run_settings *settings, struct mst_err *reterr)
{
    const struct mst__setting_value *value = value_of(settings, MST_SETTING_NPROC);
    const struct mst__machine *machine = &settings->machine;
    bool is_auto = strcmp(value->text, "auto") == 0;
    if (strcmp(value->text, "cpu") == 0 || (is_auto && machine->gpus == 0)) {
        settings->nproc = machine->cpus;
    } else if (strcmp(value->text, "gpu") == 0 || is_auto) {
        settings->nproc = machine->gpus;
        if (machine->gpus == 0) {
            return mst__fail(reterr, MST_EINVAL, 0, "%s: there is no GPU on this node",
                             value->origin);
        }
    } else if (strcmp(value->text, "xpu") == 0) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "%s: XPUs cannot be counted here; give their number", value->origin);
    } else if (!mst__number_parse(mst_bytes_str(value->text), 1, MST_NPROC_MAX, &settings->nproc)) {
        return wrong(value, "a number of workers above 0, or auto, cpu or gpu", reterr);
    }
    return 0;
}

/* The local ranks of our workers. Several agents on a node share its local ranks, unless each has
 * GPUs of its own: then a local rank is the number of one of these. */
static int read_local(struct mst__run_settings *settings, struct mst_err *reterr)
{
    const struct mst__scheduler *scheduler = &settings->scheduler;
    int64_t rank = 0;
    int64_t size = 0;
    (void)reterr; /* without the scheduler's numbers, we are alone */
    settings->local_size = settings->nproc;
    if (scheduler->local_rank.text == NULL || scheduler->local_size.text == NULL ||
        !mst__number_parse(mst_bytes_str(scheduler->local_rank.text), 0, MST_NPROC_MAX, &rank) ||
        !mst__number_parse(mst_bytes_str(scheduler->local_size.text), rank + 1, MST_NPROC_MAX,
                           &size)) {
        return 0;
    }
    int64_t gpus = settings->machine.gpus;
    if (gpus == 0 || gpus >= size * settings->nproc) {
        settings->local_first = rank * settings->nproc;
        settings->local_size = size * settings->nproc;
    }
    return 0;
}

/* --- rendezvous --- */

/* Make a random run id, for a job on one node or one that is launched from here. */
static int make_id(struct mst__run_settings *settings, struct mst_err *reterr)
{
    char *id = mst__arena_take(&settings->arena, ID_SIZE);
    if (id == NULL) {
        return no_memory(reterr);
    }
    const uint8_t *r = settings->machine.random;
    (void)snprintf(id, ID_SIZE,
                   "%02x%02x%02x%02x-%02x%02x-4%01x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", r[0],
                   r[1], r[2], r[3], r[4], r[5], r[6] & 15, r[7], (r[8] & 0x3f) | 0x80, r[9], r[10],
                   r[11], r[12], r[13], r[14], r[15]);
    settings->run_id = id;
    derive(settings, MST_SETTING_RDZV_ID, id, "random");
    return 0;
}

static int be_standalone(struct mst__run_settings *settings,
                         const char *origin,
                         struct mst_err *reterr)
{
    settings->is_standalone = true;
    settings->backend = "muster";
    settings->endpoint = MST_ENDPOINT_UNIX;
    derive(settings, MST_SETTING_RDZV_BACKEND, settings->backend, origin);
    derive(settings, MST_SETTING_RDZV_ENDPOINT, settings->endpoint, origin);
    if (settings->nodes_max != 1) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "%s: a standalone job has one node, but nnodes is %.40s",
                         value_of(settings, MST_SETTING_STANDALONE)->origin,
                         text_of(settings, MST_SETTING_NNODES));
    }
    return settings->run_id != NULL ? 0 : make_id(settings, reterr);
}

/* Make the endpoint from master-addr and master-port. What is not given is the scheduler's. */
static int endpoint_of_master(struct mst__run_settings *settings, struct mst_err *reterr)
{
    const struct mst__setting_value *addr = value_of(settings, MST_SETTING_MASTER_ADDR);
    const struct mst__setting_value *port = value_of(settings, MST_SETTING_MASTER_PORT);
    struct mst__endpoint known = {.host = "127.0.0.1", .port = PORT_STATIC};
    int64_t number = 0;
    if (port->text != NULL && read_number(port, 0, UINT16_MAX, &number, reterr) != 0) {
        return MST_EINVAL;
    }
    if (value_of(settings, MST_SETTING_RDZV_ENDPOINT)->source == MST_SOURCE_SCHEDULER) {
        (void)mst__endpoint_parse_default(mst_bytes_str(settings->endpoint), PORT_STATIC, &known,
                                          NULL); /* if it is wrong, it does not help */
    }
    const char *host = addr->text != NULL ? addr->text : known.host;
    number = port->text != NULL ? number : known.port;
    size_t size = strlen(host) + 16;
    char *text = mst__arena_take(&settings->arena, size);
    if (text == NULL) {
        return no_memory(reterr);
    }
    bool is_bare_v6 = strchr(host, ':') != NULL && host[0] != '[';
    (void)snprintf(text, size, "%s%s%s:%" PRId64, is_bare_v6 ? "[" : "", host,
                   is_bare_v6 ? "]" : "", number);
    settings->endpoint = text;
    derive(settings, MST_SETTING_RDZV_ENDPOINT, text,
           addr->text != NULL   ? addr->origin
           : port->text != NULL ? port->origin
                                : "master-addr");
    return 0;
}

static int check_endpoint(const struct mst__run_settings *settings, struct mst_err *reterr)
{
    struct mst__endpoint endpoint;
    struct mst_err err;
    if (strstr(settings->endpoint, "://") != NULL || strchr(settings->endpoint, '/') != NULL ||
        strchr(settings->endpoint, ',') != NULL || settings->is_standalone) {
        return 0; /* a URL, a path or several endpoints: the backend parses it */
    }
    if (mst__endpoint_parse_default(mst_bytes_str(settings->endpoint), 29400, &endpoint, &err) !=
        0) {
        return mst__fail(reterr, MST_EINVAL, 0, "%s: '%.60s' is not host[:port]",
                         value_of(settings, MST_SETTING_RDZV_ENDPOINT)->origin, settings->endpoint);
    }
    return 0;
}

/* Whether master-addr or master-port is given, and by a source that takes precedence over that of
 * the endpoint. */
static bool names_master(const struct mst__run_settings *settings)
{
    const struct mst__setting_value *addr = value_of(settings, MST_SETTING_MASTER_ADDR);
    const struct mst__setting_value *port = value_of(settings, MST_SETTING_MASTER_PORT);
    enum mst__setting_source source = addr->source > port->source ? addr->source : port->source;
    return source > value_of(settings, MST_SETTING_RDZV_ENDPOINT)->source;
}

/* A batch script of several nodes that says neither how many agents there are nor where they meet
 * would wait for agents that nobody starts. */
static int check_batch(const struct mst__run_settings *settings, struct mst_err *reterr)
{
    const char *nodes = settings->scheduler.batch_nodes.text;
    bool is_told = value_of(settings, MST_SETTING_NNODES)->source != MST_SOURCE_DEFAULT ||
                   value_of(settings, MST_SETTING_RDZV_ENDPOINT)->source != MST_SOURCE_DEFAULT ||
                   names_master(settings) || is_on(settings, MST_SETTING_STANDALONE);
    return nodes == NULL || is_told
               ? 0
               : mst__fail(reterr, MST_EINVAL, 0,
                           "this is the batch script of a Slurm job of %.20s nodes, and it runs on "
                           "one of them: use srun or --launch srun, or --nnodes 1 for a job on "
                           "this node alone",
                           nodes);
}

static int read_rendezvous(struct mst__run_settings *settings, struct mst_err *reterr)
{
    settings->backend = text_of(settings, MST_SETTING_RDZV_BACKEND);
    settings->endpoint = text_of(settings, MST_SETTING_RDZV_ENDPOINT);
    settings->run_id = text_of(settings, MST_SETTING_RDZV_ID);
    settings->local_addr = text_of(settings, MST_SETTING_LOCAL_ADDR);
    settings->node_rank = -1;
    const struct mst__setting_value *rank = value_of(settings, MST_SETTING_NODE_RANK);
    if (rank->text != NULL &&
        read_number(rank, 0, MST_AUTHORITY_MEMBERS_MAX, &settings->node_rank, reterr) != 0) {
        return MST_EINVAL;
    }
    if (settings->launch != MST_LAUNCH_NONE) {
        /* The launched agents read the rest. */
        return settings->run_id != NULL ? 0 : make_id(settings, reterr);
    }
    if (check_batch(settings, reterr) != 0) {
        return MST_EINVAL;
    }
    bool has_master = names_master(settings);
    /* A job on one node does not need the scheduler's endpoint. */
    bool is_scheduled =
        value_of(settings, MST_SETTING_RDZV_ENDPOINT)->source == MST_SOURCE_SCHEDULER &&
        settings->nodes_max == 1;
    bool has_endpoint = settings->endpoint[0] != '\0' && !is_scheduled;
    bool is_given = mst__backend_can(settings->backend, MST_BACKEND_GIVEN);
    if (is_on(settings, MST_SETTING_STANDALONE)) {
        return be_standalone(settings, value_of(settings, MST_SETTING_STANDALONE)->origin, reterr);
    }
    bool is_default = value_of(settings, MST_SETTING_RDZV_BACKEND)->source == MST_SOURCE_DEFAULT;
    if (!has_endpoint && !has_master && settings->nodes_max == 1 && (is_default || is_given)) {
        return be_standalone(settings, "one node and no endpoint", reterr);
    }
    if ((has_master || (!has_endpoint && is_given)) && endpoint_of_master(settings, reterr) != 0) {
        return reterr == NULL ? MST_EINVAL : reterr->code;
    }
    bool is_url = strstr(settings->endpoint, "://") != NULL;
    if (settings->endpoint[0] == '\0' && settings->nodes_max > 1) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "--rdzv-endpoint is missing: where do the %.40s nodes meet?",
                         text_of(settings, MST_SETTING_NNODES));
    }
    if (settings->run_id == NULL && !is_url && settings->nodes_max > 1) {
        return mst__fail(reterr, MST_EINVAL, 0, "--rdzv-id is missing: which job is it?");
    }
    if (settings->run_id == NULL && !is_url) {
        int rv = make_id(settings, reterr);
        return rv == 0 ? check_endpoint(settings, reterr) : rv;
    }
    return check_endpoint(settings, reterr);
}

/* Check that each part is `key=value`. The backend interprets the keys. */
static int check_conf(const struct mst__run_settings *settings, struct mst_err *reterr)
{
    for (size_t i = 0; i < settings->rdzv_conf.count; i++) {
        struct mst_bytes rest = mst_bytes_str(settings->rdzv_conf.values[i]);
        while (rest.size > 0) {
            const uint8_t *comma = memchr(rest.data, ',', rest.size);
            size_t size = comma == NULL ? rest.size : (size_t)(comma - rest.data);
            struct mst_bytes part = mst_bytes_of(rest.data, size);
            rest = mst__bytes_skip(rest, size + (comma == NULL ? 0 : 1));
            const uint8_t *equals = part.size == 0 ? NULL : memchr(part.data, '=', part.size);
            size_t key_size = equals == NULL ? 0 : (size_t)(equals - part.data);
            struct mst_bytes key = mst__unicode_trim(mst_bytes_of(part.data, key_size));
            struct mst_bytes value =
                equals == NULL
                    ? mst_bytes_of("", 0)
                    : mst__unicode_trim(mst_bytes_of(equals + 1, part.size - key_size - 1));
            if (key.size == 0 || value.size == 0) {
                return mst__fail(reterr, MST_EINVAL, 0, "%s: '%.*s' is not KEY=VALUE",
                                 value_of(settings, MST_SETTING_RDZV_CONF)->origin,
                                 (int)(part.size < 60 ? part.size : 60), (const char *)part.data);
            }
        }
    }
    return 0;
}

/* --- restarts --- */

/* Read `N` or `N/TIME`. */
static int read_count_per(const struct mst__setting_value *value,
                          int64_t *ret_count,
                          int64_t *ret_ms,
                          struct mst_err *reterr)
{
    const char *slash = strchr(value->text, '/');
    size_t size = slash == NULL ? strlen(value->text) : (size_t)(slash - value->text);
    *ret_ms = 0;
    bool is_valid =
        mst__number_parse(mst_bytes_of(value->text, size), 0, UINT32_MAX / 2, ret_count) &&
        (slash == NULL || (mst__number_parse_duration(slash + 1, ret_ms) && *ret_ms > 0 &&
                           *ret_ms <= DURATION_MS_MAX));
    return is_valid ? 0 : wrong(value, "a number, or one per time such as 3/1h", reterr);
}

static int read_backoff(struct mst__run_settings *settings, struct mst_err *reterr)
{
    const struct mst__setting_value *value = value_of(settings, MST_SETTING_RESTART_BACKOFF);
    const char *rest = value->text;
    const char *min = take_part(&settings->arena, &rest, ':');
    if (min == NULL) {
        return no_memory(reterr);
    }
    bool has_max = strchr(value->text, ':') != NULL;
    bool is_valid = mst__number_parse_duration(min, &settings->backoff_min_ms);
    settings->backoff_max_ms = settings->backoff_min_ms;
    if (is_valid && has_max) {
        is_valid = mst__number_parse_duration(rest, &settings->backoff_max_ms);
    }
    if (!is_valid || settings->backoff_min_ms > settings->backoff_max_ms ||
        settings->backoff_max_ms > DURATION_MS_MAX) {
        return wrong(value, "a pause such as 5s, or MIN:MAX such as 1s:60s", reterr);
    }
    return 0;
}

static int read_restarts(struct mst__run_settings *settings, struct mst_err *reterr)
{
    static const char *const joins[] = {"restart", "next-restart", "never", NULL};
    static const char *const statuses[] = {"worker", "torchrun", NULL};
    int on_join = 0;
    int status = 0;
    int64_t preempt = 0;
    int rv = read_count_per(value_of(settings, MST_SETTING_MAX_RESTARTS), &settings->max_restarts,
                            &settings->max_restarts_window_ms, reterr);
    rv = rv == 0 ? read_count_per(value_of(settings, MST_SETTING_GIVE_UP), &settings->give_up_count,
                                  &settings->give_up_ms, reterr)
                 : rv;
    rv = rv == 0 ? read_backoff(settings, reterr) : rv;
    rv = rv == 0 ? read_word(value_of(settings, MST_SETTING_ON_JOIN), joins, &on_join, reterr) : rv;
    rv = rv == 0 ? read_word(value_of(settings, MST_SETTING_EXIT_STATUS), statuses, &status, reterr)
                 : rv;
    rv = rv == 0
             ? read_number(value_of(settings, MST_SETTING_PREEMPT_STATUS), 0, 255, &preempt, reterr)
             : rv;
    rv = rv == 0 ? read_number(value_of(settings, MST_SETTING_EXCLUDE_AFTER), 0, UINT32_MAX / 2,
                               &settings->exclude_after, reterr)
                 : rv;
    settings->on_join = (enum mst__on_join)on_join;
    settings->is_exit_torchrun = status == 1;
    settings->preempt_status = (int)preempt;
    if (rv == 0 && settings->give_up_count > 0 && settings->give_up_ms == 0) {
        return wrong(value_of(settings, MST_SETTING_GIVE_UP), "0, or N/TIME such as 10/3s", reterr);
    }
    return rv;
}

/* --- signals and times --- */

static int read_signal(const struct mst__setting_value *value,
                       int *ret_number,
                       struct mst_err *reterr)
{
    *ret_number = mst__signal_number(mst_bytes_str(value->text));
    return *ret_number != 0 ? 0 : wrong(value, "the name of a signal such as SIGTERM", reterr);
}

static int read_signals(const struct mst__setting_value *value,
                        struct mst__signal_list *ret_list,
                        struct mst_err *reterr)
{
    *ret_list = (struct mst__signal_list){0};
    const char *text = strcmp(value->text, "none") == 0 ? "" : value->text;
    for (const char *rest = text; *rest != '\0';) {
        size_t size = strcspn(rest, ",");
        int number = mst__signal_number(mst__unicode_trim(mst_bytes_of(rest, size)));
        if (number == 0 || number == SIGKILL || number == SIGSTOP || number == SIGCHLD) {
            return mst__fail(reterr, MST_EINVAL, 0,
                             "%s: '%.*s' is not a signal that can be handled", value->origin,
                             (int)(size < 60 ? size : 60), rest);
        }
        if (ret_list->count == MST_SIGNALS_MAX) {
            return mst__fail(reterr, MST_EINVAL, 0, "%s: more than %d signals", value->origin,
                             MST_SIGNALS_MAX);
        }
        ret_list->numbers[ret_list->count++] = number;
        rest += size + (rest[size] == ',' ? 1 : 0);
    }
    return 0;
}

static bool is_in(const struct mst__signal_list *list, int number)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->numbers[i] == number) {
            return true;
        }
    }
    return false;
}

/* The default leaves alone what the user's shell, or nohup, has made this process ignore. */
static bool stays_ignored(const struct mst__run_settings *settings, int number)
{
    bool is_of_terminal = number == SIGHUP || number == SIGINT || number == SIGQUIT;
    return value_of(settings, MST_SETTING_SIGNALS)->source == MST_SOURCE_DEFAULT &&
           is_of_terminal && (settings->machine.ignored_signals >> (number - 1) & 1) != 0;
}

/* A signal that stops the workers is passed on anyway. */
static void sort_signals(struct mst__run_settings *settings)
{
    const struct mst__signal_list stop = settings->stop_signals;
    const struct mst__signal_list forward = settings->forward_signals;
    settings->stop_signals.count = 0;
    for (size_t i = 0; i < stop.count; i++) {
        if (!stays_ignored(settings, stop.numbers[i])) {
            settings->stop_signals.numbers[settings->stop_signals.count++] = stop.numbers[i];
        }
    }
    settings->forward_signals.count = 0;
    for (size_t i = 0; i < forward.count; i++) {
        if (!is_in(&stop, forward.numbers[i])) {
            settings->forward_signals.numbers[settings->forward_signals.count++] =
                forward.numbers[i];
        }
    }
}

static int read_stopping(struct mst__run_settings *settings, struct mst_err *reterr)
{
    static const char *const scopes[] = {"leader", "group", NULL};
    int scope = 0;
    const struct mst__setting_value *grace = value_of(settings, MST_SETTING_GRACE);
    if (grace->text == NULL) {
        grace = value_of(settings, MST_SETTING_SHUTDOWN_TIMEOUT);
    }
    int rv = read_duration(grace, &settings->grace_ms, reterr);
    rv = rv == 0 ? read_signals(value_of(settings, MST_SETTING_SIGNALS), &settings->stop_signals,
                                reterr)
                 : rv;
    rv = rv == 0 ? read_signals(value_of(settings, MST_SETTING_FORWARD_SIGNALS),
                                &settings->forward_signals, reterr)
                 : rv;
    rv = rv == 0 ? read_signal(value_of(settings, MST_SETTING_STOP_SIGNAL), &settings->stop_signal,
                               reterr)
                 : rv;
    rv = rv == 0 ? read_word(value_of(settings, MST_SETTING_SIGNAL_SCOPE), scopes, &scope, reterr)
                 : rv;
    rv = rv == 0
             ? read_duration(value_of(settings, MST_SETTING_NOTICE), &settings->notice_ms, reterr)
             : rv;
    if (rv == 0 && is_on(settings, MST_SETTING_NOTICE_SIGNAL)) {
        rv = read_signal(value_of(settings, MST_SETTING_NOTICE_SIGNAL), &settings->notice_signal,
                         reterr);
    }
    if (rv == 0 && is_on(settings, MST_SETTING_END_TIME)) {
        rv = read_number(value_of(settings, MST_SETTING_END_TIME), 0, END_TIME_S_MAX,
                         &settings->end_time_s, reterr);
    }
    rv = rv == 0 ? read_duration(value_of(settings, MST_SETTING_HANG_TIMEOUT), &settings->hang_ms,
                                 reterr)
                 : rv;
    rv = rv == 0 ? read_duration(value_of(settings, MST_SETTING_STARTUP_TIMEOUT),
                                 &settings->startup_ms, reterr)
                 : rv;
    sort_signals(settings);
    settings->signal_scope = (enum mst__signal_scope)scope;
    settings->kills_on_second = is_on(settings, MST_SETTING_KILL_ON_SECOND);
    settings->preflight = text_of(settings, MST_SETTING_PREFLIGHT);
    return rv;
}

/* --- the program --- */

static bool ends_in_py(const char *program)
{
    size_t size = strlen(program);
    return size > 3 && strcmp(program + size - 3, ".py") == 0;
}

static int read_program(struct mst__run_settings *settings, struct mst_err *reterr)
{
    bool is_module = is_on(settings, MST_SETTING_MODULE);
    bool is_plain = is_on(settings, MST_SETTING_NO_PYTHON);
    if (is_module && is_plain) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "%s and %s exclude each other: a module is run by Python",
                         value_of(settings, MST_SETTING_MODULE)->origin,
                         value_of(settings, MST_SETTING_NO_PYTHON)->origin);
    }
    const char *program = settings->program == NULL ? NULL : settings->program[0];
    settings->program_kind = is_module ? MST_PROGRAM_MODULE : MST_PROGRAM_PLAIN;
    if (!is_module && !is_plain && program != NULL && ends_in_py(program)) {
        settings->program_kind = MST_PROGRAM_SCRIPT;
    }
    const char *interpreter = mst__env_get(settings->environment, "PYTHON_EXEC");
    settings->interpreter = interpreter != NULL ? interpreter : "python3";
    settings->role = text_of(settings, MST_SETTING_ROLE);
    settings->cwd = text_of(settings, MST_SETTING_CWD);
    settings->is_virtual_local_rank = is_on(settings, MST_SETTING_VIRTUAL_LOCAL_RANK);
    for (size_t i = 0; i < settings->env.count; i++) {
        const char *equals = strchr(settings->env.values[i], '=');
        if (equals == NULL || equals == settings->env.values[i]) {
            return mst__fail(reterr, MST_EINVAL, 0, "%s: '%.60s' is not NAME=VALUE",
                             value_of(settings, MST_SETTING_ENV)->origin, settings->env.values[i]);
        }
    }
    return 0;
}

static int read_cpus(struct mst__run_settings *settings, struct mst_err *reterr)
{
    static const char *const modes[] = {"node", "socket", "exclusive", "core-complex", NULL};
    const struct mst__setting_value *omp = value_of(settings, MST_SETTING_OMP);
    if (is_on(settings, MST_SETTING_NUMA_BINDING)) {
        int mode = 0;
        int rv = read_word(value_of(settings, MST_SETTING_NUMA_BINDING), modes, &mode, reterr);
        if (rv != 0) {
            return rv;
        }
        settings->numa = (enum mst__numa_mode)(mode + 1);
    }
    if (strcmp(omp->text, "keep") == 0 ||
        mst__env_get(settings->environment, "OMP_NUM_THREADS") != NULL) {
        settings->omp_threads = 0;
        return 0;
    }
    if (strcmp(omp->text, "auto") == 0) {
        int64_t threads = settings->machine.cpus / settings->nproc;
        settings->omp_threads = threads > 0 ? threads : 1;
        return 0;
    }
    return mst__number_parse(mst_bytes_str(omp->text), 1, MST_NPROC_MAX, &settings->omp_threads)
               ? 0
               : wrong(omp, "a number above 0, auto or keep", reterr);
}

/* --- output --- */

/* Read texts between commas. Two commas stand for one in a text. */
static int read_filters(struct mst__run_settings *settings,
                        enum mst__setting setting,
                        const char ***ret_filters,
                        struct mst_err *reterr)
{
    const struct mst__setting_value *value = value_of(settings, setting);
    const char **filters = mst__arena_take(&settings->arena, (FILTERS_MAX + 1) * sizeof *filters);
    char *text = mst__arena_text(&settings->arena, mst_bytes_str(value->text));
    if (filters == NULL || text == NULL) {
        return no_memory(reterr);
    }
    *ret_filters = filters;
    size_t count = 0;
    char *begin = text;
    char *to = text;
    for (const char *from = text;; from++) {
        bool is_comma = from[0] == ',' && from[1] == ',';
        if (*from != '\0' && (*from != ',' || is_comma)) {
            *to++ = *from;
            from += is_comma ? 1 : 0;
            continue;
        }
        bool is_end = *from == '\0';
        *to = '\0';
        if (to > begin && count == FILTERS_MAX) {
            return mst__fail(reterr, MST_EINVAL, 0, "%s: more than %d texts", value->origin,
                             FILTERS_MAX);
        }
        if (to > begin) {
            filters[count++] = begin;
        }
        begin = ++to;
        if (is_end) {
            return 0;
        }
    }
}

static int prefixed(const struct mst__setting_value *value, int rv, struct mst_err *reterr)
{
    return rv == 0 ? 0 : mst__err_wrap(reterr, rv, "%s", value->origin);
}

static int read_output(struct mst__run_settings *settings, struct mst_err *reterr)
{
    static const char *const formats[] = {"text", "json", NULL};
    const struct mst__setting_value *redirects = value_of(settings, MST_SETTING_REDIRECTS);
    const struct mst__setting_value *tee = value_of(settings, MST_SETTING_TEE);
    const struct mst__setting_value *filter = value_of(settings, MST_SETTING_LOCAL_RANKS_FILTER);
    int format = 0;
    int rv = prefixed(
        redirects, mst__rank_streams_parse(redirects->text, &settings->redirects, reterr), reterr);
    rv = rv == 0 ? prefixed(tee, mst__rank_streams_parse(tee->text, &settings->tee, reterr), reterr)
                 : rv;
    rv = rv == 0
             ? prefixed(filter, mst__rank_set_parse(filter->text, &settings->console_ranks, reterr),
                        reterr)
             : rv;
    rv = rv == 0 ? read_filters(settings, MST_SETTING_DUPLICATE_STDOUT, &settings->stdout_filters,
                                reterr)
                 : rv;
    rv = rv == 0 ? read_filters(settings, MST_SETTING_DUPLICATE_STDERR, &settings->stderr_filters,
                                reterr)
                 : rv;
    rv = rv == 0 ? read_word(value_of(settings, MST_SETTING_LOG_FORMAT), formats, &format, reterr)
                 : rv;
    const char *log_dir = text_of(settings, MST_SETTING_LOG_DIR);
    settings->log_dir = log_dir != NULL && strcmp(log_dir, "/dev/null") == 0 ? "" : log_dir;
    settings->keeps_logs = is_on(settings, MST_SETTING_KEEP_LOGS);
    settings->prefix_template = text_of(settings, MST_SETTING_PREFIX_TEMPLATE);
    settings->is_log_json = format == 1;
    settings->events = text_of(settings, MST_SETTING_EVENTS);
    settings->log_level = text_of(settings, MST_SETTING_LOG_LEVEL);
    return rv;
}

/* --- options of torchrun that are refused or have no effect --- */

static int read_torchrun(struct mst__run_settings *settings, struct mst_err *reterr)
{
    static const char *const methods[] = {"spawn", "fork", "forkserver", NULL};
    static const char *const handlers[] = {"null", "console", NULL};
    static const char *const levels[] = {"debug", "info", "warn", "error", NULL};
    int index = 0;
    int64_t ms = 0;
    if (is_on(settings, MST_SETTING_RUN_PATH)) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "%s cannot be honoured: the agent has no Python to run the script in",
                         value_of(settings, MST_SETTING_RUN_PATH)->origin);
    }
    const struct mst__setting_value *specs = value_of(settings, MST_SETTING_LOGS_SPECS);
    if (strcmp(specs->text, "default") != 0) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "%s: '%.40s' cannot be honoured: plug-ins of torchrun are Python",
                         specs->origin, specs->text);
    }
    const struct mst__setting_value *interval = value_of(settings, MST_SETTING_MONITOR_INTERVAL);
    int rv = read_duration(interval, &ms, reterr);
    if (rv == 0 && ms == 0) {
        rv = wrong(interval, "above 0", reterr);
    }
    rv = rv == 0 ? read_word(value_of(settings, MST_SETTING_START_METHOD), methods, &index, reterr)
                 : rv;
    rv =
        rv == 0 ? read_word(value_of(settings, MST_SETTING_LOG_LEVEL), levels, &index, reterr) : rv;
    index = 0;
    rv = rv == 0 ? read_word(value_of(settings, MST_SETTING_EVENT_LOG_HANDLER), handlers, &index,
                             reterr)
                 : rv;
    if (rv == 0 && index == 1 && settings->events == NULL) {
        settings->events = "fd:2";
        derive(settings, MST_SETTING_EVENTS, "fd:2",
               value_of(settings, MST_SETTING_EVENT_LOG_HANDLER)->origin);
    }
    return rv;
}

/* --- other hosts --- */

static int read_hosts(struct mst__run_settings *settings, struct mst_err *reterr)
{
    static const char *const launches[] = {"ssh", "srun", NULL};
    static const char *const serves[] = {"auto", "never", "always", NULL};
    settings->hosts = text_of(settings, MST_SETTING_HOSTS);
    settings->hostfile = text_of(settings, MST_SETTING_HOSTFILE);
    settings->ssh = text_of(settings, MST_SETTING_SSH);
    settings->serve = text_of(settings, MST_SETTING_SERVE);
    int index = 0;
    int rv = read_word(value_of(settings, MST_SETTING_SERVE), serves, &index, reterr);
    rv = rv == 0
             ? read_duration(value_of(settings, MST_SETTING_LINGER), &settings->linger_ms, reterr)
             : rv;
    const struct mst__setting_value *host = value_of(settings, MST_SETTING_HOST_TIMEOUT);
    rv = rv == 0 ? read_duration(host, &settings->host_ms, reterr) : rv;
    if (rv == 0 && settings->host_ms < MST_RELAY_HOST_MS_MIN) {
        rv = wrong(host, "a duration from 100ms on", reterr);
    }
    if (rv == 0 && is_on(settings, MST_SETTING_LAUNCH)) {
        rv = read_word(value_of(settings, MST_SETTING_LAUNCH), launches, &index, reterr);
        settings->launch = index == 0 ? MST_LAUNCH_SSH : MST_LAUNCH_SRUN;
    }
    if (rv == 0 && settings->hosts != NULL && settings->hostfile != NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "%s and %s exclude each other",
                         value_of(settings, MST_SETTING_HOSTS)->origin,
                         value_of(settings, MST_SETTING_HOSTFILE)->origin);
    }
    if (settings->launch == MST_LAUNCH_NONE &&
        (settings->hosts != NULL || settings->hostfile != NULL)) {
        settings->launch = MST_LAUNCH_SSH;
    }
    return rv;
}

int mst__run_settings_interpret(struct mst__run_settings *settings, struct mst_err *reterr)
{
    static int (*const steps[])(struct mst__run_settings *, struct mst_err *) = {
        read_hosts,    read_nodes,   read_nproc, read_local,  read_rendezvous, read_restarts,
        read_stopping, read_program, read_cpus,  read_output, read_torchrun,
    };
    int rv = check_conf(settings, reterr);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && rv == 0; i++) {
        rv = steps[i](settings, reterr);
    }
    settings->is_dry_run = is_on(settings, MST_SETTING_DRY_RUN);
    settings->is_explain = is_on(settings, MST_SETTING_EXPLAIN);
    return rv;
}
