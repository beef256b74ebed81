/* cli/status.c - `muster status`: who takes part in a rendezvous, read from its record.
 *
 * The record is looked at from outside, so everything but the heartbeats' ages is what the nodes
 * themselves go by. The ages are by our wall clock and the nodes' own: clocks that are off show. */
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/expect.h"
#include "cli/json.h"
#include "cli/look_etcd.h"
#include "cli/look_job.h"
#include "cli/rdzv.h"
#include "core/expire.h"

#define COMMAND "muster status"
#define TEXT_SIZE_MAX MST_MIB(16)
#define NAME_SIZE 320 /* of a node, as it is shown */

static const char status_text[] =
    "Show who takes part in a rendezvous, with which rank and how long ago each was heard of, who "
    "waits, who stands by, and what the round is waiting for. Of backend muster the server tells "
    "it; of the others the record is read, without joining and without changing anything, and it "
    "may have been written by PyTorch, of any release.\n"
    "Exit status: 0 shown, 1 failed, 2 wrong arguments, 3 there is none, 4 timeout, 5 no "
    "connection, 10 what is stored is no rendezvous.";

struct status {
    struct mst__rdzv rdzv;
    const char *nodes;
    int64_t nodes_min, nodes_max; /* 0 = not given */
    int64_t timeout_ms;
    int64_t interval_ms;
    bool json;
    bool watch;
    const char *expect_text; /* NULL = not given */
    struct mst__expect expect;
    struct mst__look look;
    int64_t now_us;
    struct mst__buf text;
    int code; /* of text: 0, or why it is not whole */
};

/* --- text --- */

static void put(struct status *status, const char *format, ...) MST_PRINTF(2, 3);

static void put(struct status *status, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t size = length < 0 ? 0 : (size_t)length < sizeof text ? (size_t)length : sizeof text - 1;
    if (status->code == 0) {
        status->code = mst__buf_append(&status->text, mst_bytes_of(text, size));
    }
}

/* Text from a record. Returns how many characters that makes. */
static size_t put_foreign(struct status *status, struct mst_bytes text)
{
    return mst__cli_put_foreign(&status->text, text, &status->code);
}

static double seconds(int64_t us)
{
    return (double)us / 1e6;
}

static const char *plural(size_t count)
{
    return count == 1 ? "" : "s";
}

/* --- what the record says --- */

/* Who has been silent for longer than a node may. */
static size_t count_silent(const struct status *status)
{
    const struct mst__state *state = &status->look.state;
    int64_t expiry_us = mst__expire_after_us(&status->look.settings);
    size_t count = 0;
    for (size_t i = 0; i < state->participants.count; i++) {
        const struct mst__peer *member = &state->members[state->participants.ids[i]];
        if (!member->has_heartbeat || status->now_us - member->heartbeat_us > expiry_us) {
            count++;
        }
    }
    return count;
}

static void put_summary_complete(struct status *status)
{
    const struct mst__state *state = &status->look.state;
    size_t count = state->participants.count;
    size_t waiting = state->waiting.count;
    if (waiting > 0) {
        put(status,
            "%zu node%s %s waiting for the %zu participant%s of round %" PRId64
            " to leave; then round %" PRId64 " begins.",
            waiting, plural(waiting), waiting == 1 ? "is" : "are", count, plural(count),
            state->round, state->round + 1);
    } else {
        put(status, "Round %" PRId64 " is running with %zu node%s and waiting for nobody.",
            state->round, count, plural(count));
    }
}

/* Min nodes have come and the round takes more for a while. */
static void put_summary_last_call(struct status *status)
{
    const struct mst__state *state = &status->look.state;
    size_t count = state->participants.count;
    int64_t left_us = state->deadline_us - status->now_us;
    if (left_us < 0) {
        put(status,
            "The last call of round %" PRId64
            " ended %.1f s ago; it is waiting for one of its %zu participant%s to complete it.",
            state->round, seconds(-left_us), count, plural(count));
    } else if (status->nodes_max > (int64_t)count) {
        int64_t more = status->nodes_max - (int64_t)count;
        put(status,
            "Round %" PRId64 " is waiting for up to %" PRId64 " more node%s (%zu of max %" PRId64
            ") until the last call ends in %.1f s.",
            state->round, more, plural((size_t)more), count, status->nodes_max, seconds(left_us));
    } else {
        put(status,
            "Round %" PRId64 " has the nodes that it needs (%zu) and is waiting for more until the "
            "last call ends in %.1f s.",
            state->round, count, seconds(left_us));
    }
}

static void put_summary_open(struct status *status)
{
    const struct mst__state *state = &status->look.state;
    size_t count = state->participants.count;
    if (state->has_deadline) {
        put_summary_last_call(status);
    } else if (status->nodes_min > (int64_t)count) {
        int64_t more = status->nodes_min - (int64_t)count;
        put(status,
            "Round %" PRId64 " is waiting for %" PRId64 " more node%s (%zu of min %" PRId64 ").",
            state->round, more, plural((size_t)more), count, status->nodes_min);
    } else if (count == 0) {
        put(status, "Round %" PRId64 " is waiting for the first node.", state->round);
    } else if (status->nodes_min > 0) {
        put(status,
            "Round %" PRId64 " is waiting for one of its %zu participant%s to begin the last call.",
            state->round, count, plural(count));
    } else {
        put(status,
            "Round %" PRId64 " is waiting for more nodes: %zu %s there, fewer than the minimum.",
            state->round, count, count == 1 ? "is" : "are");
    }
}

static void put_legacy(struct status *status)
{
    if (status->code == 0) {
        status->code = mst__look_legacy_summary(&status->look, status->nodes_min, status->nodes_max,
                                                &status->text);
    }
}

static void put_legacy_table(struct status *status)
{
    if (status->code == 0) {
        status->code = mst__look_legacy_table(&status->look, &status->text);
    }
}

/* Who of those that should come is not there. */
static void put_missing(struct status *status)
{
    if (status->expect_text == NULL) {
        return;
    }
    size_t count = mst__expect_missing(&status->expect, false);
    size_t all = mst__map_count(&status->expect.map);
    put(status, "%s Of %zu node%s expected, %zu %s missing%s",
        status->look.exists && status->look.job != NULL ? "." : "", all, plural(all), count,
        count == 1 ? "is" : "are", count == 0 ? "" : ": ");
    mst__expect_put_missing(&status->expect, false, &status->text, &status->code);
    put(status, ".");
}

/* One sentence, or a few. */
static void put_summary_of_look(struct status *status)
{
    const struct mst__state *state = &status->look.state;
    if (status->look.is_legacy) {
        put_legacy(status);
        return;
    }
    if (status->look.exists && status->look.job != NULL) {
        status->code =
            status->code != 0 ? status->code : mst__look_job_summary(&status->look, &status->text);
        return;
    }
    if (!status->look.exists) {
        put(status, "There is no such rendezvous: nobody has tried to join it yet.");
        return;
    }
    if (state->closed) {
        put(status, "The rendezvous is closed: nobody can join it any more.");
        return;
    }
    if (state->complete) {
        put_summary_complete(status);
    } else {
        put_summary_open(status);
    }
    size_t silent = count_silent(status);
    if (silent > 0) {
        put(status, " %zu participant%s %s silent for more than %.0f s.", silent, plural(silent),
            silent == 1 ? "has been" : "have been",
            seconds(mst__expire_after_us(&status->look.settings)));
    }
    size_t spares = state->spares.count;
    if (spares > 0) {
        put(status, " %zu spare%s by.", spares, spares == 1 ? " stands" : "s stand");
    }
}

static void put_summary(struct status *status)
{
    put_summary_of_look(status);
    put_missing(status);
}

/* --- a table for people --- */

static bool is_late(const struct status *status, const struct mst__peer *member)
{
    return member->has_heartbeat && mst__look_is_late(status->now_us - member->heartbeat_us,
                                                      status->look.settings.keep_alive_interval_us);
}

static void put_member(struct status *status, mst__peer_id id, size_t width)
{
    const struct mst__peer *member = &status->look.state.members[id];
    char rank[24] = "-";
    if (member->is_participant && status->look.state.complete) {
        (void)snprintf(rank, sizeof rank, "%" PRId64, member->rank); /* fits */
    }
    const char *role = member->is_participant ? "participant"
                       : member->is_waiting   ? "waiting"
                                              : "spare";
    put(status, "%-11s  %5s  ", role, rank);
    size_t length = put_foreign(status, member->node.addr);
    char number[48];
    (void)snprintf(number, sizeof number, "_%" PRId64 "_%" PRId64, member->node.pid,
                   member->node.local_id); /* fits */
    length += strlen(number);
    put(status, "%s%*s  ", number, (int)(length < width ? width - length : 0), "");
    if (!member->has_heartbeat) {
        put(status, "never\n");
        return;
    }
    int64_t age_us = status->now_us - member->heartbeat_us;
    if (age_us < 0) {
        put(status, "%.1f s ahead of our clock\n", seconds(-age_us));
    } else {
        put(status, "%.1f s ago%s\n", seconds(age_us), is_late(status, member) ? ", late" : "");
    }
}

/* How wide the longest name is, about: bytes and characters differ for some. */
static size_t names_width(const struct mst__state *state)
{
    size_t width = 4;
    for (size_t i = 0; i < state->members_count; i++) {
        char name[NAME_SIZE];
        mst__node_format(&state->members[i].node, name, sizeof name);
        size_t length = strlen(name);
        width = length > width ? length : width;
    }
    return width;
}

/* The participants by rank: heap, or NULL. */
static mst__peer_id *by_rank(const struct mst__state *state)
{
    size_t count = state->participants.count;
    mst__peer_id *ids = mst__calloc(count + 1, sizeof *ids);
    for (size_t i = 0; i < count && ids != NULL; i++) {
        mst__peer_id id = state->participants.ids[i];
        size_t at = i;
        for (; at > 0 && state->members[ids[at - 1]].rank > state->members[id].rank; at--) {
            ids[at] = ids[at - 1];
        }
        ids[at] = id;
    }
    return ids;
}

static void put_members(struct status *status, const mst__peer_id *ids, size_t count, size_t width)
{
    for (size_t i = 0; i < count; i++) {
        put_member(status, ids[i], width);
    }
}

static void put_table(struct status *status, const mst__peer_id *ranked)
{
    const struct mst__state *state = &status->look.state;
    put(status, "rendezvous ");
    (void)put_foreign(status, mst_bytes_str(status->rdzv.run_id));
    if (status->look.is_legacy) {
        put_legacy_table(status);
    } else if (status->look.exists && status->look.job != NULL) {
        status->code =
            status->code != 0 ? status->code : mst__look_job_table(&status->look, &status->text);
    } else if (status->look.has_state) {
        put(status, ": round %" PRId64 ", %s, %s\n", state->round,
            state->complete ? "complete" : "not complete", state->closed ? "closed" : "open");
        if (state->members_count > 0) {
            size_t width = names_width(state);
            put(status, "%-11s  %5s  %-*s  %s\n", "", "rank", (int)width, "node", "heartbeat");
            put_members(status, ranked, state->participants.count, width);
            put_members(status, state->waiting.ids, state->waiting.count, width);
            put_members(status, state->spares.ids, state->spares.count, width);
        }
    } else {
        put(status, "\n");
    }
    put_summary(status);
    put(status, "\n");
}

/* --- JSON for programs --- */

static void json_members(const struct status *status,
                         struct mst__cli_json *json,
                         const char *name,
                         const mst__peer_id *ids,
                         size_t count)
{
    const struct mst__state *state = &status->look.state;
    mst__cli_json_begin(json, name, '[');
    for (size_t i = 0; i < count; i++) {
        const struct mst__peer *member = &state->members[ids[i]];
        char text[NAME_SIZE];
        mst__node_format(&member->node, text, sizeof text);
        mst__cli_json_begin(json, NULL, '{');
        mst__cli_json_text(json, "node", mst_bytes_str(text));
        mst__cli_json_text(json, "addr", member->node.addr);
        mst__cli_json_number(json, "pid", member->node.pid);
        mst__cli_json_number(json, "local_id", member->node.local_id);
        if (member->is_participant && state->complete) {
            mst__cli_json_number(json, "rank", member->rank);
        } else {
            mst__cli_json_null(json, "rank");
        }
        if (member->has_heartbeat) {
            mst__cli_json_number(json, "heartbeat_age_ms",
                                 (status->now_us - member->heartbeat_us) / 1000);
        } else {
            mst__cli_json_null(json, "heartbeat_age_ms");
        }
        mst__cli_json_bool(json, "late", is_late(status, member));
        mst__cli_json_end(json, '}');
    }
    mst__cli_json_end(json, ']');
}

/* What a record says. */
static void json_record(const struct status *status,
                        struct mst__cli_json *json,
                        const mst__peer_id *ranked)
{
    const struct mst__state *state = &status->look.state;
    mst__cli_json_number(json, "round", state->round);
    mst__cli_json_bool(json, "complete", state->complete);
    mst__cli_json_bool(json, "closed", state->closed);
    if (status->look.has_state) {
        char dialect[] = {'D', (char)('0' + (int)state->dialect), '\0'};
        mst__cli_json_text(json, "dialect", mst_bytes_str(dialect));
    } else {
        mst__cli_json_null(json, "dialect");
    }
    if (state->has_deadline) {
        mst__cli_json_number(json, "last_call_ms", (state->deadline_us - status->now_us) / 1000);
    } else {
        mst__cli_json_null(json, "last_call_ms");
    }
    json_members(status, json, "participants", ranked, state->participants.count);
    json_members(status, json, "waiting", state->waiting.ids, state->waiting.count);
    json_members(status, json, "spares", state->spares.ids, state->spares.count);
}

static int print_json(struct status *status, const mst__peer_id *ranked, struct mst_err *reterr)
{
    struct mst__cli_json json;
    mst__cli_json_init(&json);
    mst__cli_json_begin(&json, NULL, '{');
    mst__cli_json_text(&json, "run_id", mst_bytes_str(status->rdzv.run_id));
    mst__cli_json_bool(&json, "exists", status->look.exists);
    if (status->look.is_legacy) {
        mst__look_legacy_json(&status->look, &json);
    } else if (status->look.job != NULL) {
        mst__look_job_json(&status->look, &json);
    } else {
        json_record(status, &json, ranked);
    }
    if (status->expect_text != NULL) {
        mst__expect_json(&status->expect, &json);
    }
    put_summary(status);
    mst__cli_json_text(&json, "summary", mst__buf_bytes(&status->text));
    mst__cli_json_end(&json, '}');
    int rv = mst__cli_json_print(&json, reterr);
    mst__cli_json_close(&json);
    return rv;
}

/* --- the command --- */

static void see(void *arg, struct mst_bytes name)
{
    mst__expect_see(arg, name);
}

static int print_status(struct status *status, bool is_terminal, struct mst_err *reterr)
{
    mst__peer_id *ranked = by_rank(&status->look.state);
    if (ranked == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "participants");
    }
    status->now_us = mst__clock_wall_us();
    if (status->expect_text != NULL) {
        mst__expect_begin(&status->expect);
        mst__look_nodes(&status->look, see, &status->expect);
    }
    mst__buf_clear(&status->text);
    int rv = 0;
    if (status->json) {
        rv = print_json(status, ranked, reterr);
    } else {
        if (is_terminal) {
            put(status, "\033[H\033[2J"); /* a fresh screen */
        }
        put_table(status, ranked);
        if (status->watch && !is_terminal) {
            put(status, "\n");
        }
        rv = status->code != 0 ? mst__fail(reterr, status->code, 0, "status")
                               : mst__cli_write(mst__buf_bytes(&status->text), reterr);
    }
    mst__free(ranked);
    return rv;
}

/* Once, or for every change of the record until a signal ends us; on a terminal also in between,
 * since the ages grow. */
static int show(struct status *status, struct mst_err *reterr)
{
    bool is_terminal = status->watch && !status->json && isatty(STDOUT_FILENO) == 1;
    bool is_first = true;
    for (;;) {
        bool has_changed = false;
        int rv = mst__look_read(&status->look, status->timeout_ms, &has_changed, reterr);
        if (rv == 0 && (has_changed || is_first || is_terminal)) {
            rv = print_status(status, is_terminal, reterr);
        }
        if (rv != 0 || !status->watch) {
            return rv;
        }
        is_first = false;
        (void)poll(NULL, 0, (int)status->interval_ms); /* sooner does no harm */
    }
}

static int status_with(struct status *status)
{
    struct mst_params *params = NULL;
    struct mst_err err;
    int exit_code = MST_EXIT_OK;
    bool is_url = mst__rdzv_is_url(&status->rdzv);
    int64_t nodes_max = status->nodes_max > 0 || is_url ? status->nodes_max : 1;
    int64_t nodes_min = status->nodes_min > 0 || is_url ? status->nodes_min : 1;
    if (!mst__rdzv_params(&status->rdzv, nodes_min, nodes_max, NULL, &params, &exit_code)) {
        return exit_code;
    }
    status->rdzv.run_id = mst_params_run_id(params);
    if (is_url) {
        status->nodes_min = mst_params_nodes_min(params);
        status->nodes_max = mst_params_nodes_max(params);
    }
    if (status->expect_text != NULL && !mst__expect_is_possible(mst_params_backend(params))) {
        exit_code = mst__cli_usage_error(COMMAND, "--expect: backend '%.40s' knows no names",
                                         mst_params_backend(params));
        mst_params_free(params);
        return exit_code;
    }
    mst__buf_init(&status->text, TEXT_SIZE_MAX);
    int rv = mst__look_open(&status->look, params, status->timeout_ms, &err);
    if (rv == 0) {
        rv = show(status, &err);
    }
    if (rv == MST_ENOTSUP && strcmp(mst_params_backend(params), "static") == 0) {
        (void)mst__cli_fail(&err);
        exit_code = MST_EXIT_ABSENT;
    } else if (rv != 0) {
        exit_code = mst__rdzv_fail(&status->rdzv, params, &err);
    } else if (!status->look.exists) {
        exit_code = MST_EXIT_ABSENT;
    }
    mst__look_close(&status->look);
    mst__buf_close(&status->text);
    mst_params_free(params);
    return exit_code;
}

int mst__cli_status(int argc, char **argv)
{
    struct status status = {
        .rdzv = {MST_RDZV_DEFAULTS(COMMAND)},
        .timeout_ms = 10000,
        .interval_ms = 500,
    };
    const struct mst__option options[] = {
        MST_RDZV_OPTIONS(status.rdzv),
        {"nnodes", "MIN:MAX",
         "What the nodes were told, which a record does not say: then it can be said how many are "
         "missing.",
         MST_OPTION_TEXT, &status.nodes, 0, 0},
        {"expect", "NODES",
         "Which nodes should be there, by their names or hosts, such as node[1-20],master: then "
         "the "
         "missing are named.",
         MST_OPTION_TEXT, &status.expect_text, 0, 0},
        {"json", NULL, "Print one line of JSON instead of a table.", MST_OPTION_FLAG, &status.json,
         0, 0},
        {"watch", NULL, "Go on, and print again when the record changes, until interrupted.",
         MST_OPTION_FLAG, &status.watch, 0, 0},
        {"interval", "DURATION", "With --watch: how often to look. Default 500ms.",
         MST_OPTION_DURATION, &status.interval_ms, 1, 3600000},
        {"timeout", "DURATION", "How long a look may take, connecting included. Default 10s.",
         MST_OPTION_DURATION, &status.timeout_ms, 1, (int64_t)86400 * 1000},
    };
    const struct mst__usage usage = {
        .command = COMMAND,
        .synopsis = "--rdzv-id ID [--rdzv-endpoint ENDPOINT] [options]",
        .text = status_text,
        .options = options,
        .options_count = sizeof options / sizeof options[0],
    };
    int arguments = 0;
    int exit_code = MST_EXIT_OK;
    if (!mst__options_parse(&usage, argc, argv, &arguments, &exit_code)) {
        return exit_code;
    }
    if (status.nodes != NULL &&
        !mst__rdzv_nodes(status.nodes, &status.nodes_min, &status.nodes_max)) {
        return mst__cli_usage_error(
            COMMAND, "--nnodes %s: give MIN:MAX, such as 2:4, or one number", status.nodes);
    }
    struct mst_err err;
    if (status.expect_text != NULL &&
        mst__expect_parse(status.expect_text, &status.expect, &err) != 0) {
        mst__expect_close(&status.expect);
        return mst__cli_usage_error(COMMAND, "--expect: %s", err.msg);
    }
    exit_code = status_with(&status);
    mst__expect_close(&status.expect);
    return exit_code;
}
