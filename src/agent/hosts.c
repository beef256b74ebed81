/* agent/hosts.c - lists of hosts, the tree, and messages to relays. */
#include "agent/hosts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/number.h"
#include "base/text.h"

#define TIME_MS_MAX (INT64_C(1) << 40) /* more than any option allows */

/* --- lists --- */

/* Host names in order, each with its number of slots. */
struct gathering {
    struct mst__map map;
    int64_t slots;
};

static int add_host(void *arg, const char *name, struct mst_err *reterr)
{
    struct gathering *gathering = arg;
    struct mst_bytes key = mst_bytes_str(name);
    if (name[0] == '-' || strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789_.:@-%") != strlen(name)) {
        return mst__fail(reterr, MST_EINVAL, 0, "'%.60s' is not a host name", name);
    }
    if (mst__map_get(&gathering->map, key) != NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "host '%.60s' is given twice", name);
    }
    if (mst__map_count(&gathering->map) == MST_HOSTS_MAX) {
        return mst__fail(reterr, MST_ELIMIT, 0, "more than %d hosts", MST_HOSTS_MAX);
    }
    int64_t *slots = mst__map_add(&gathering->map, key);
    if (slots == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "hosts");
    }
    *slots = gathering->slots;
    return 0;
}

/* Make the list of the gathered hosts. Returns @rv if that is not 0. */
static int finish_list(struct gathering *gathering,
                       int rv,
                       struct mst__arena *arena,
                       struct mst__host_list *ret_list,
                       struct mst_err *reterr)
{
    size_t count = mst__map_count(&gathering->map);
    struct mst__host *hosts = rv != 0 ? NULL : mst__arena_take(arena, (count + 1) * sizeof *hosts);
    if (rv == 0 && count == 0) {
        rv = mst__fail(reterr, MST_EINVAL, 0, "the list has no host");
    } else if (rv == 0 && hosts == NULL) {
        rv = mst__fail(reterr, MST_ENOMEM, 0, "%zu hosts", count);
    }
    size_t i = 0;
    for (int64_t *at = mst__map_first(&gathering->map); rv == 0 && at != NULL;
         at = mst__map_next(at), i++) {
        hosts[i] = (struct mst__host){
            .name = mst__arena_text(arena, mst__map_key(at)), .index = (int64_t)i, .slots = *at};
        if (hosts[i].name == NULL) {
            rv = mst__fail(reterr, MST_ENOMEM, 0, "%zu hosts", count);
        }
    }
    mst__map_close(&gathering->map);
    if (rv == 0) {
        *ret_list = (struct mst__host_list){.hosts = hosts, .count = count};
    }
    return rv;
}

/* Names come from the command line, so their hashes need no secret key. */
static void begin_list(struct gathering *gathering)
{
    static const uint8_t key[MST_SIPHASH_KEY_SIZE] = {0};
    *gathering = (struct gathering){0};
    mst__map_init(&gathering->map, sizeof(int64_t), key);
}

int mst__hosts_parse(const char *text,
                     struct mst__arena *arena,
                     struct mst__host_list *ret_list,
                     struct mst_err *reterr)
{
    struct gathering gathering;
    begin_list(&gathering);
    int rv = mst__names_walk(text, add_host, &gathering, reterr);
    return finish_list(&gathering, rv, arena, ret_list, reterr);
}

static int parse_line(struct gathering *gathering, char *line, struct mst_err *reterr)
{
    line[strcspn(line, "#\r")] = '\0';
    char *name = line + strspn(line, " \t");
    size_t size = strcspn(name, " \t");
    char *rest = name + size;
    rest += strspn(rest, " \t");
    name[size] = '\0';
    if (*name == '\0') {
        return 0;
    }
    rest[strcspn(rest, " \t")] = '\0';
    gathering->slots = 0;
    if (*rest != '\0' &&
        (strncmp(rest, "slots=", 6) != 0 ||
         !mst__number_parse(mst_bytes_str(rest + 6), 1, MST_NPROC_MAX, &gathering->slots))) {
        return mst__fail(reterr, MST_EINVAL, 0, "'%.60s' after host '%.60s' is not slots=N", rest,
                         name);
    }
    return mst__names_walk(name, add_host, gathering, reterr);
}

int mst__hosts_parse_file(struct mst_bytes text,
                          struct mst__arena *arena,
                          struct mst__host_list *ret_list,
                          struct mst_err *reterr)
{
    struct gathering gathering;
    begin_list(&gathering);
    char *copy = mst__memdup(text.data, text.size);
    int rv = copy == NULL ? mst__fail(reterr, MST_ENOMEM, 0, "host file") : 0;
    for (char *line = copy; rv == 0 && line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        if (end != NULL) {
            *end++ = '\0';
        }
        rv = parse_line(&gathering, line, reterr);
        line = end;
    }
    mst__free(copy);
    return finish_list(&gathering, rv, arena, ret_list, reterr);
}

bool mst__hosts_child(size_t hosts_count, size_t child, size_t *ret_first, size_t *ret_count)
{
    size_t children = hosts_count < MST_HOSTS_CHILDREN_MAX ? hosts_count : MST_HOSTS_CHILDREN_MAX;
    if (child >= children) {
        return false;
    }
    size_t share = hosts_count / children;
    size_t extra = hosts_count % children;
    *ret_first = child * share + (child < extra ? child : extra);
    *ret_count = share + (child < extra ? 1 : 0) - 1;
    return true;
}

size_t mst__hosts_levels(size_t hosts_count)
{
    size_t levels = 0;
    while (hosts_count > 0) { /* the first child has the most hosts below it */
        size_t first = 0;
        (void)mst__hosts_child(hosts_count, 0, &first, &hosts_count); /* there is one */
        levels++;
    }
    return levels;
}

void mst__host_names_add(struct mst__host_names *names, const char *name)
{
    static const size_t rest_size = sizeof " and 65536 more";
    static_assert(MST_HOSTS_MAX <= 65536, "the longest rest has that size");
    size_t used = strlen(names->text);
    bool fits = used + strlen(name) + 2 + rest_size <= sizeof names->text;
    if (names->shown == names->count && fits) {
        (void)snprintf(names->text + used, sizeof names->text - used, "%s%s", used == 0 ? "" : ", ",
                       name);
        names->shown++;
    }
    names->count++;
}

const char *mst__host_names_end(struct mst__host_names *names)
{
    size_t used = strlen(names->text);
    if (names->shown < names->count) {
        (void)snprintf(names->text + used, sizeof names->text - used, "%s%zu more",
                       used == 0 ? "" : " and ", names->count - names->shown);
    }
    return names->text;
}

/* --- messages --- */

enum key {
#define KEY_ENUM(name, text) KEY_##name,
    MST_RELAY_KEY_MAP(KEY_ENUM)
#undef KEY_ENUM
};
#define KEY_COUNT (KEY_GO + 1)

static const char *const key_names[KEY_COUNT] = {
#define KEY_NAME(name, text) [KEY_##name] = (text),
    MST_RELAY_KEY_MAP(KEY_NAME)
#undef KEY_NAME
};

static void put(struct mst__buf *text, int *rv, enum key key, const char *value)
{
    if (value == NULL) {
        return;
    }
    mst__text_put(text, rv, "%s %zu\n", key_names[key], strlen(value));
    *rv = *rv == 0 ? mst__buf_append(text, mst_bytes_str(value)) : *rv;
    *rv = *rv == 0 ? mst__buf_append_u8(text, '\n') : *rv;
}

static void put_number(struct mst__buf *text, int *rv, enum key key, int64_t value)
{
    char number[24];
    (void)snprintf(number, sizeof number, "%" PRId64, value);
    put(text, rv, key, number);
}

static void put_host(struct mst__buf *text, int *rv, enum key key, const struct mst__host *host)
{
    char line[MST_AUTHORITY_NAME_SIZE_MAX + 64];
    (void)snprintf(line, sizeof line, "%" PRId64 " %" PRId64 " %s", host->index, host->slots,
                   host->name);
    put(text, rv, key, line);
}

int mst__relay_job_write(const struct mst__relay_job *job, size_t child, struct mst__buf *text)
{
    size_t first = 0;
    size_t count = 0;
    int rv = 0;
    if (!mst__hosts_child(job->below.count, child, &first, &count)) {
        return MST_EINVAL;
    }
    put(text, &rv, KEY_VERSION, "2");
    put(text, &rv, KEY_CWD, job->cwd);
    for (size_t i = 0; i < job->environment_count; i++) {
        put(text, &rv, KEY_ENV, job->environment[i]);
    }
    for (size_t i = 0; i < job->arguments_count; i++) {
        put(text, &rv, KEY_ARG, job->arguments[i]);
    }
    put(text, &rv, KEY_SSH, job->ssh);
    put(text, &rv, KEY_MUSTER, job->muster);
    put(text, &rv, KEY_NEEDS_ALL, job->needs_all ? "1" : NULL);
    put_number(text, &rv, KEY_PREEMPT, job->preempt_status);
    put_number(text, &rv, KEY_GRACE, job->grace_ms);
    put_number(text, &rv, KEY_HOST_MS, job->host_ms);
    put(text, &rv, KEY_WORD, job->word);
    put_host(text, &rv, KEY_SELF, &job->below.hosts[first]);
    for (size_t i = first + 1; i <= first + count; i++) {
        put_host(text, &rv, KEY_HOST, &job->below.hosts[i]);
    }
    put(text, &rv, KEY_GO, "");
    return rv;
}

static int malformed(int code, struct mst_err *reterr)
{
    return mst__fail(reterr, code, 0, "malformed job for a relay; is muster here another version?");
}

/* Take the next key and value. *ret_whole is false if they are incomplete. Fails with MST_EINVAL if
 * the message is malformed. */
static int next_pair(struct mst_bytes *rest,
                     enum key *ret_key,
                     struct mst_bytes *ret_value,
                     bool *ret_whole,
                     struct mst_err *reterr)
{
    *ret_whole = false;
    const uint8_t *newline = rest->size == 0 ? NULL : memchr(rest->data, '\n', rest->size);
    if (newline == NULL) {
        return rest->size < 64 ? 0 : malformed(MST_EINVAL, reterr);
    }
    struct mst_bytes line = mst_bytes_of(rest->data, (size_t)(newline - rest->data));
    for (size_t i = 0; i < KEY_COUNT; i++) {
        size_t size = strlen(key_names[i]);
        int64_t value_size = 0;
        if (line.size <= size + 1 || memcmp(line.data, key_names[i], size) != 0 ||
            line.data[size] != ' ' ||
            !mst__number_parse(mst__bytes_skip(line, size + 1), 0, MST_RELAY_JOB_SIZE_MAX,
                               &value_size)) {
            continue;
        }
        struct mst_bytes value = mst__bytes_skip(*rest, line.size + 1);
        if (value.size < (size_t)value_size + 1) {
            return 0;
        }
        *ret_key = (enum key)i;
        *ret_value = mst_bytes_of(value.data, (size_t)value_size);
        *rest = mst__bytes_skip(value, (size_t)value_size + 1);
        *ret_whole = true;
        return 0;
    }
    return malformed(MST_EINVAL, reterr);
}

/* Read `INDEX SLOTS NAME`. Returns 0, MST_ENOMEM or MST_EINVAL. */
static int read_host(struct mst_bytes value, struct mst__arena *arena, struct mst__host *ret_host)
{
    char *text = mst__arena_text(arena, value);
    char *slots = text == NULL ? NULL : strchr(text, ' ');
    char *name = slots == NULL ? NULL : strchr(slots + 1, ' ');
    if (text == NULL) {
        return MST_ENOMEM;
    }
    if (name == NULL ||
        !mst__number_parse(mst_bytes_of(text, (size_t)(slots - text)), 0, MST_HOSTS_MAX,
                           &ret_host->index) ||
        !mst__number_parse(mst_bytes_of(slots + 1, (size_t)(name - slots - 1)), 0, MST_NPROC_MAX,
                           &ret_host->slots)) {
        return MST_EINVAL;
    }
    ret_host->name = name + 1;
    return 0;
}

/* The second pass of mst__relay_job_read, which fills in the job. */
struct filling {
    struct mst__arena *arena;
    struct mst__relay_job *job;
    char **environment, **arguments;
};

static int take_number(struct mst_bytes value, int64_t min, int64_t max, int64_t *ret_number)
{
    return mst__number_parse(value, min, max, ret_number) ? 0 : MST_EINVAL;
}

static int take_pair(struct filling *filling, enum key key, struct mst_bytes value)
{
    struct mst__relay_job *job = filling->job;
    if (key == KEY_SELF || key == KEY_HOST) {
        job->has_self = job->has_self || key == KEY_SELF;
        return read_host(value, filling->arena,
                         key == KEY_SELF ? &job->self : &job->below.hosts[job->below.count++]);
    }
    char *text = mst__arena_text(filling->arena, value);
    if (text == NULL) {
        return MST_ENOMEM;
    }
    switch (key) {
        case KEY_VERSION:
            return strcmp(text, "2") == 0 ? 0 : MST_EINVAL;
        case KEY_CWD:
            job->cwd = text;
            break;
        case KEY_ENV:
            filling->environment[job->environment_count++] = text;
            break;
        case KEY_ARG:
            filling->arguments[job->arguments_count++] = text;
            break;
        case KEY_SSH:
            job->ssh = text;
            break;
        case KEY_MUSTER:
            job->muster = text;
            break;
        case KEY_NEEDS_ALL:
            job->needs_all = true;
            break;
        case KEY_WORD:
            job->word = text;
            return strlen(text) == MST_RELAY_WORD_SIZE - 1 ? 0 : MST_EINVAL;
        case KEY_GRACE:
            return take_number(value, 0, TIME_MS_MAX, &job->grace_ms);
        case KEY_HOST_MS:
            return take_number(value, MST_RELAY_HOST_MS_MIN, TIME_MS_MAX, &job->host_ms);
        case KEY_PREEMPT:
            return take_number(value, 0, 255, &job->preempt_status);
        case KEY_SELF:
        case KEY_HOST:
        case KEY_GO:
            break;
    }
    return 0;
}

int mst__relay_job_read(struct mst_bytes text,
                        struct mst__arena *arena,
                        struct mst__relay_job *ret_job,
                        size_t *ret_size,
                        struct mst_err *reterr)
{
    size_t counts[KEY_COUNT] = {0};
    struct mst_bytes rest = text;
    struct mst_bytes value;
    enum key key = KEY_VERSION;
    bool is_whole = false;
    *ret_size = 0;
    while (counts[KEY_GO] == 0) {
        int rv = next_pair(&rest, &key, &value, &is_whole, reterr);
        if (rv != 0 || !is_whole) {
            return rv;
        }
        counts[key]++;
    }
    *ret_job = (struct mst__relay_job){0};
    struct filling filling = {
        .arena = arena,
        .job = ret_job,
        .environment = mst__arena_take(arena, (counts[KEY_ENV] + 1) * sizeof(char *)),
        .arguments = mst__arena_take(arena, (counts[KEY_ARG] + 1) * sizeof(char *)),
    };
    ret_job->below.hosts =
        mst__arena_take(arena, (counts[KEY_HOST] + 1) * sizeof(struct mst__host));
    int rv =
        filling.environment == NULL || filling.arguments == NULL || ret_job->below.hosts == NULL
            ? MST_ENOMEM
            : 0;
    size_t size = text.size - rest.size;
    rest = text;
    key = KEY_VERSION;
    while (rv == 0 && key != KEY_GO) {
        rv = next_pair(&rest, &key, &value, &is_whole, reterr);
        rv = rv == 0 ? take_pair(&filling, key, value) : rv;
    }
    ret_job->environment = filling.environment;
    ret_job->arguments = filling.arguments;
    static const enum key needed[] = {KEY_VERSION, KEY_SELF,    KEY_SSH, KEY_MUSTER,
                                      KEY_GRACE,   KEY_HOST_MS, KEY_WORD};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0] && rv == 0; i++) {
        rv = counts[needed[i]] == 1 ? 0 : MST_EINVAL;
    }
    if (rv != 0) {
        return malformed(rv, reterr);
    }
    *ret_size = size;
    return 0;
}

/* --- statuses --- */

void mst__relay_result_add(struct mst__relay_result *result, int status, int64_t preempt_status)
{
    if (status == 0) {
        result->ok_count++;
    } else if (status == MST_RELAY_LOST || status == preempt_status) {
        result->neutral = result->neutral != 0 ? result->neutral : status;
    } else {
        result->failed = result->failed != 0 ? result->failed : status;
    }
}

int mst__relay_result_status(const struct mst__relay_result *result)
{
    if (result->failed != 0) {
        return result->failed;
    }
    return result->ok_count > 0 ? 0 : result->neutral;
}
