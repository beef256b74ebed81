/* cli/replay.c - `muster replay`: prints the story of a server's journal. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/status_table.h"
#include "net/job_story.h"
#include "snapshot/snapshot.h"
#include "wire/job_status.h"
#include "wire/replay.h"

#define READ_SIZE MST_KIB(64)
#define LINE_SIZE (2 * MST_LOG_LINE_SIZE + 100)
#define SENTENCE_SIZE 512

struct teller {
    const char *only; /* the job to print; NULL = all */
    bool is_json, is_all;
    const char *until_text;
    bool has_until;
    int64_t until_us; /* time of day; with is_since: since the start of the journal */
    bool is_since;
    struct mst__replay replay;
    struct mst_log log;
    bool was_seen; /* the requested job, or any */
    bool has_gap;
    int rv; /* the first error of writing */
    struct mst_err err;
};

static const char replay_text[] =
    "Replay a journal that muster serve --journal has written. The recorded events are fed to the "
    "same state machine again. Each event and each message to nodes is printed on one line, and at "
    "the end the state of each job.\n"
    "\nA gap in the journal, for example after a full disk, is reported, and the replay continues "
    "from the next complete state. A damaged or truncated file is replayed as far as possible.";

/* --- lines --- */

static int64_t teller_wall_us(const struct teller *teller)
{
    return (int64_t)((uint64_t)teller->replay.wall_us + (uint64_t)teller->replay.last_us);
}

/* Print a line of the story, in the form of the server's log. */
static void on_line(void *arg, enum mst_log_level level, const char *line)
{
    struct teller *teller = arg;
    char stamp[MST_CLI_STAMP_SIZE];
    char text[LINE_SIZE];
    (void)level;
    mst__cli_format_stamp(teller_wall_us(teller), stamp);
    int length;
    if (teller->is_json) {
        char json[2 * MST_LOG_LINE_SIZE];
        mst__log_to_json(line, json, sizeof json);
        length = snprintf(text, sizeof text, "{\"time\":\"%s\",%s}\n", stamp, json);
    } else {
        length = snprintf(text, sizeof text, "%s %s\n", stamp, line);
    }
    if (teller->rv == 0) {
        teller->rv = mst__cli_write(mst_bytes_of(text, (size_t)length), &teller->err);
    }
}

/* Whether to print @job. */
static bool teller_wants(struct teller *teller, const struct mst__replay_job *job)
{
    bool is_it = teller->only == NULL || strcmp(teller->only, job->run_id) == 0;
    teller->was_seen = teller->was_seen || is_it;
    return is_it;
}

static struct mst__story story_of(const struct teller *teller, const struct mst__replay_job *job)
{
    return (struct mst__story){
        .log = &teller->log, .run_id = job->run_id, .authority = &job->authority};
}

/* --- the listener --- */

static void on_begun(void *arg, const struct mst__journal_begin *begin)
{
    struct teller *teller = arg;
    char software[MST_LOG_QUOTE_SIZE];
    if (teller->is_since) {
        teller->until_us += begin->wall_us; /* of the first BEGIN */
        teller->is_since = false;
    }
    mst__log(&teller->log, MST_LOG_INFO, "journal.begun", "version=%u muster=%s", begin->version,
             mst__log_quote(begin->software, software));
}

static void on_founded(void *arg, const struct mst__replay_job *job)
{
    struct teller *teller = arg;
    char text[SENTENCE_SIZE];
    if (teller_wants(teller, job)) {
        mst__authority_describe(&job->authority, job->authority.now_us, text, sizeof text);
        mst__log(&teller->log, MST_LOG_INFO, "job.state", "run=%s epoch=%" PRIu64 " state=%s",
                 MST_LOG_TEXT(job->run_id), job->authority.options.epoch, MST_LOG_TEXT(text));
    }
}

static void on_missing(void *arg, const struct mst__replay_job *job, uint64_t count)
{
    struct teller *teller = arg;
    char text[24] = "unknown";
    if (teller_wants(teller, job)) {
        teller->has_gap = true;
        if (count > 0) {
            (void)snprintf(text, sizeof text, "%" PRIu64, count); /* fits */
        }
        mst__log(&teller->log, MST_LOG_WARN, "journal.gap", "run=%s missing=%s",
                 MST_LOG_TEXT(job->run_id), text);
    }
}

static void on_forgotten(void *arg, const struct mst__replay_job *job)
{
    struct teller *teller = arg;
    const struct mst__story story = story_of(teller, job);
    if (teller_wants(teller, job)) {
        mst__story_forgotten(&story);
    }
}

static void tell_announced(struct teller *teller,
                           const struct mst__replay_job *job,
                           const struct mst__announcement *said)
{
    const struct mst__claim *claim = &said->claim;
    char name[MST_LOG_QUOTE_SIZE];
    char address[MST_LOG_QUOTE_SIZE];
    char knows[80] = "";
    if (claim->round > 0) {
        (void)snprintf(knows, sizeof knows, " knows=%" PRId64 " holds=%s", claim->round,
                       claim->holds ? "yes" : "no"); /* fits */
    }
    mst__log(&teller->log, MST_LOG_INFO, "node.announced",
             "run=%s node=%s address=%s connection=%" PRIu64 " incarnation=%" PRIu64
             " min=%u max=%u%s",
             MST_LOG_TEXT(job->run_id), mst__log_quote(said->name, name),
             mst__log_quote(said->address, address), said->contact, said->incarnation,
             said->nodes_min, said->nodes_max, knows);
}

static void on_fed(void *arg,
                   const struct mst__replay_job *job,
                   const struct mst__authority_event *event)
{
    struct teller *teller = arg;
    const struct mst__story story = story_of(teller, job);
    char name[MST_LOG_QUOTE_SIZE];
    char text[MST_LOG_QUOTE_SIZE];
    bool is_small =
        event->kind == MST_AUTHORITY_EVENT_HEARD || event->kind == MST_AUTHORITY_EVENT_TIME;
    char connection[40] = "";
    if (!teller_wants(teller, job) || (is_small && !teller->is_all)) {
        return;
    }
    if (event->kind == MST_AUTHORITY_EVENT_DISCONNECTED) {
        (void)snprintf(connection, sizeof connection, " connection=%" PRIuPTR,
                       (uintptr_t)event->driver); /* fits */
    }
    switch (event->kind) {
        case MST_AUTHORITY_EVENT_ANNOUNCED:
        case MST_AUTHORITY_EVENT_KEPT:
            tell_announced(teller, job, event->announcement);
            return;
        case MST_AUTHORITY_EVENT_FAILED:
            mst__story_failed(&story, event->id, event->round, event->cause);
            return;
        case MST_AUTHORITY_EVENT_SHUT:
            mst__log(&teller->log, MST_LOG_INFO, "job.shut", "run=%s by=%s reason=%s",
                     MST_LOG_TEXT(job->run_id), mst__log_quote(event->owner, name),
                     mst__log_quote(event->reason, text));
            return;
        case MST_AUTHORITY_EVENT_LEFT:
        case MST_AUTHORITY_EVENT_DEAD:
            return; /* the end of the session is printed */
        case MST_AUTHORITY_EVENT_DISCONNECTED:
        case MST_AUTHORITY_EVENT_HEARD:
        case MST_AUTHORITY_EVENT_FINISHED:
        case MST_AUTHORITY_EVENT_LEAVING:
            (void)snprintf(text, sizeof text, "node.%s",
                           mst__authority_event_name(event->kind)); /* fits */
            mst__log(&teller->log, MST_LOG_INFO, text, "run=%s node=%s%s",
                     MST_LOG_TEXT(job->run_id), mst__story_node(&story, event->id, name),
                     connection);
            return;
        case MST_AUTHORITY_EVENT_TIME:
        case MST_AUTHORITY_EVENT_RESTORED:
        case MST_AUTHORITY_EVENT_SETTLED:
            (void)snprintf(text, sizeof text, "job.%s",
                           mst__authority_event_name(event->kind)); /* fits */
            mst__log(&teller->log, MST_LOG_INFO, text, "run=%s", MST_LOG_TEXT(job->run_id));
            return;
    }
}

static void on_answered(void *arg,
                        const struct mst__replay_job *job,
                        const struct mst__authority_event *event,
                        int rv,
                        const struct mst_err *err)
{
    struct teller *teller = arg;
    char name[MST_LOG_QUOTE_SIZE];
    if (rv != 0 && event->kind == MST_AUTHORITY_EVENT_ANNOUNCED && teller_wants(teller, job)) {
        mst__log(&teller->log, MST_LOG_INFO, "node.refused", "run=%s node=%s code=%s detail=%s",
                 MST_LOG_TEXT(job->run_id), mst__log_quote(event->announcement->name, name),
                 mst_errname(rv), MST_LOG_TEXT(err->msg));
    }
}

static void on_told(void *arg,
                    const struct mst__replay_job *job,
                    const struct mst__authority_effect *effect)
{
    static const char *const events[] = {
        [MST_TOLD_SEALED] = "told.sealed",   [MST_TOLD_QUEUED] = "told.queued",
        [MST_TOLD_SPARE] = "told.spare",     [MST_TOLD_EXPELLED] = "told.expelled",
        [MST_TOLD_LOST] = "told.lost",       [MST_TOLD_REOPENED] = "told.reopened",
        [MST_TOLD_WAITING] = "told.waiting", [MST_TOLD_CLOSED] = "told.closed",
    };
    struct teller *teller = arg;
    const struct mst__story story = story_of(teller, job);
    char to[MST_LOG_QUOTE_SIZE] = "all";
    char what[100] = "";
    if (!teller_wants(teller, job)) {
        return;
    }
    if (effect->kind == MST_TOLD_EXPELLED) {
        (void)snprintf(to, sizeof to, "connection%" PRIuPTR, (uintptr_t)effect->driver); /* fits */
    } else if (effect->id != MST_AUTHORITY_NOBODY) {
        (void)mst__story_node(&story, effect->id, to);
    }
    if (effect->kind == MST_TOLD_WAITING) {
        (void)snprintf(what, sizeof what, " waiting=%u", effect->waiting_count); /* fits, all */
    } else if (effect->kind == MST_TOLD_LOST) {
        (void)snprintf(what, sizeof what, " lost=%zu total=%zu",
                       effect->lost_count + effect->lost_unlisted, effect->lost_total);
    } else if (effect->kind == MST_TOLD_REOPENED) {
        (void)snprintf(what, sizeof what, " next=%" PRId64, effect->round_next);
    }
    mst__log(&teller->log, MST_LOG_INFO, events[effect->kind],
             "run=%s to=%s round=%" PRId64 " nodes=%u%s", MST_LOG_TEXT(job->run_id), to,
             effect->round, effect->world, what);
}

static void on_moved(void *arg,
                     const struct mst__replay_job *job,
                     enum mst__authority_phase from,
                     enum mst__authority_phase to,
                     enum mst__authority_why why,
                     int64_t round)
{
    struct teller *teller = arg;
    const struct mst__story story = story_of(teller, job);
    if (teller_wants(teller, job)) {
        mst__story_moved(&story, from, to, why, round, -1);
    }
}

static void on_ended(void *arg,
                     const struct mst__replay_job *job,
                     const struct mst__authority_member *member,
                     enum mst__authority_ended how,
                     uint32_t count)
{
    struct teller *teller = arg;
    const struct mst__story story = story_of(teller, job);
    if (teller_wants(teller, job)) {
        mst__story_ended(&story, member, how, count);
    }
}

/* --- the final state --- */

/* In the form of muster status. */
static int tell_state(struct teller *teller, const struct mst__replay_job *job)
{
    struct mst__job_status_room room;
    struct mst__job_status status;
    int rv = 0;
    mst__job_status_room_init(&room, MST_CLI_LINE_SIZE_MAX / 4);
    mst__job_status_fill(&job->authority, MST_JOB_VERSION, job->authority.now_us, true, &room,
                         &status);
    status.run_id = mst_bytes_of(job->run_id, job->run_id_size);
    struct mst__snapshot *snapshot = mst__snapshot_of_job("muster", &status, &rv);
    mst__job_status_room_close(&room);
    if (snapshot == NULL) {
        return mst__fail(&teller->err, rv, 0, "no memory for the state of a job");
    }
    if (teller->is_json) {
        struct mst_buffer json = {0};
        rv = mst_status_json(&snapshot->status, &json, &teller->err);
        rv = rv == 0 ? mst__cli_write(mst_bytes_of(json.data, json.size), &teller->err) : rv;
        mst_buffer_free(&json);
    } else {
        struct mst__buf text;
        mst__buf_init(&text, MST_CLI_LINE_SIZE_MAX);
        rv = mst__buf_append(&text, mst_bytes_str("\n"));
        mst__status_table(&snapshot->status, teller->is_all, &text, &rv);
        rv = rv == 0 ? mst__cli_write(mst__buf_bytes(&text), &teller->err)
                     : mst__fail(&teller->err, rv, 0, "no memory for the state of a job");
        mst__buf_close(&text);
    }
    mst__snapshot_free(snapshot);
    return rv;
}

static int tell_states(struct teller *teller)
{
    void *cursor = NULL;
    const struct mst__replay_job *job;
    int rv = teller->rv;
    while (rv == 0 && (job = mst__replay_next(&teller->replay, &cursor)) != NULL) {
        rv = teller_wants(teller, job) ? tell_state(teller, job) : 0;
    }
    return rv;
}

/* --- the file --- */

/* Whether the record @fields is after --until. */
static bool is_beyond(const struct teller *teller, struct mst_bytes fields)
{
    struct mst__journal_record record;
    int64_t last_us = teller->replay.last_us;
    if (!teller->has_until || teller->is_since ||
        mst__journal_decode(fields, &last_us, &record) != 0) {
        return false;
    }
    int64_t wall_us = record.kind == MST_JOURNAL_BEGIN
                          ? record.u.begin.wall_us
                          : (int64_t)((uint64_t)teller->replay.wall_us + (uint64_t)last_us);
    return wall_us > teller->until_us;
}

/* Replay all complete records in @input; @offset is the position of the first one in the file. 0 to
 * continue, 1 at the end of the story, or the error. */
static int tell_records(struct teller *teller, struct mst__buf *input, uint64_t *offset)
{
    struct mst_bytes fields;
    size_t size = 0;
    int state;
    while ((state = mst__journal_read(mst__buf_bytes(input), &fields, &size)) == 1) {
        if (is_beyond(teller, fields)) {
            return 1;
        }
        int rv = mst__replay_take(&teller->replay, fields);
        if (rv != 0) {
            return mst__fail(&teller->err, rv == MST_EPROTO ? MST_ESTATE : rv, 0,
                             "the record at offset %" PRIu64 " is invalid%s", *offset,
                             *offset == 0 ? ": not a journal, or of another version" : "");
        }
        if (teller->rv != 0) {
            return teller->rv;
        }
        mst__buf_consume(input, size);
        *offset += size;
    }
    return state == 0 ? 0
                      : mst__fail(&teller->err, MST_ESTATE, 0, "damaged at offset %" PRIu64 "%s",
                                  *offset, *offset == 0 ? ": this is not a journal" : "");
}

static int tell_file(struct teller *teller, int fd, const char *path)
{
    struct mst__buf input;
    uint64_t offset = 0;
    int rv = 0;
    mst__buf_init(&input, READ_SIZE + MST_JOURNAL_RECORD_SIZE_MAX + MST_JOURNAL_HEAD_SIZE);
    while (rv == 0) {
        int code = 0;
        uint8_t *room = mst__buf_reserve(&input, READ_SIZE, &code);
        ssize_t got = room == NULL ? -1 : read(fd, room, READ_SIZE);
        if (got < 0) {
            rv = mst__fail(&teller->err, room == NULL ? code : MST_ESYS, errno, "'%.100s'", path);
        } else if (got == 0) {
            size_t left = mst__buf_size(&input);
            rv = left == 0 ? 1
                           : mst__fail(&teller->err, MST_ESTATE, 0,
                                       "the file ends within the record at offset %" PRIu64
                                       ": %zu bytes are left over",
                                       offset, left);
        } else {
            mst__buf_commit(&input, (size_t)got);
            rv = tell_records(teller, &input, &offset);
        }
    }
    mst__buf_close(&input);
    return rv == 1 ? 0 : rv;
}

/* --- the command --- */

/* "2026-01-31T12:00:00.5Z", or "+90s" since the start of the journal. */
static bool parse_until(struct teller *teller)
{
    const char *text = teller->until_text;
    teller->has_until = text != NULL;
    if (text == NULL) {
        return true;
    }
    if (text[0] == '+') {
        int64_t ms = 0;
        teller->is_since = true;
        bool is_duration = mst__option_duration(text + 1, &ms) && ms < INT64_MAX / 2000;
        teller->until_us = ms * 1000;
        return is_duration;
    }
    struct tm parts = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &parts);
    if (rest == NULL) {
        return false;
    }
    int64_t fraction_us = 0;
    if (*rest == '.') {
        int64_t unit_us = 100000;
        for (rest++; *rest >= '0' && *rest <= '9'; rest++, unit_us /= 10) {
            fraction_us += (*rest - '0') * unit_us;
        }
    }
    teller->until_us = (int64_t)timegm(&parts) * 1000000 + fraction_us;
    return strcmp(rest, "Z") == 0;
}

static int replay_with(struct teller *teller, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        (void)mst__fail(&teller->err, errno == ENOENT ? MST_ENOTFOUND : MST_ESYS, errno,
                        "journal '%.100s'", path);
        return mst__cli_fail(&teller->err);
    }
    const struct mst__replay_listener listener = {.begun = on_begun,
                                                  .founded = on_founded,
                                                  .missing = on_missing,
                                                  .forgotten = on_forgotten,
                                                  .fed = on_fed,
                                                  .answered = on_answered,
                                                  .told = on_told,
                                                  .moved = on_moved,
                                                  .ended = on_ended,
                                                  .arg = teller};
    teller->log = (struct mst_log){.fn = on_line, .arg = teller, .level = MST_LOG_DEBUG};
    mst__replay_init(&teller->replay, &listener);
    int rv = tell_file(teller, fd, path);
    struct mst_err err = teller->err;
    bool has_written = teller->rv == 0;
    if (has_written && tell_states(teller) != 0) {
        err = teller->err;
        rv = err.code;
    } else if (rv == 0 && teller->only != NULL && !teller->was_seen) {
        rv = mst__fail(&err, MST_ENOTFOUND, 0, "there is no job '%.100s' in '%.100s'", teller->only,
                       path);
    }
    mst__replay_close(&teller->replay);
    (void)close(fd); /* only read */
    return rv == 0 ? MST_EXIT_OK : mst__cli_fail(&err);
}

int mst__cli_replay(int argc, char **argv)
{
    struct teller teller = {.only = NULL};
    const struct mst__option options[] = {
        {"job", "ID", "Print only this job.", MST_OPTION_TEXT, &teller.only, 0, 0},
        {"until", "TIME",
         "Stop at this time: 2026-01-31T12:00:00Z, or +90s after the start of the journal.",
         MST_OPTION_TEXT, &teller.until_text, 0, 0},
        {"all", NULL, "Also print each heartbeat and each tick.", MST_OPTION_FLAG, &teller.is_all,
         0, 0},
        {"json", NULL, "Print lines of JSON.", MST_OPTION_FLAG, &teller.is_json, 0, 0},
    };
    const struct mst__usage usage = {
        .command = "muster replay",
        .synopsis = "FILE [options]",
        .text = replay_text,
        .options = options,
        .options_count = sizeof options / sizeof options[0],
        .arguments_min = 1,
        .arguments_max = 1,
    };
    int arguments = 0;
    int exit_code = 0;
    if (!mst__options_parse(&usage, argc, argv, &arguments, &exit_code)) {
        return exit_code;
    }
    if (!parse_until(&teller)) {
        return mst__cli_usage_error("muster replay",
                                    "--until: '%s' is not a time such as "
                                    "2026-01-31T12:00:00Z or +90s",
                                    teller.until_text);
    }
    return replay_with(&teller, argv[arguments]);
}
