/* cli/store.c - `muster store`: reads and writes any store from a shell.
 *
 * A table has one row per verb: its arguments, its options, its function. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "base/number.h"
#include "base/unicode.h"
#include "cli/cli.h"
#include "cli/log.h"
#include "cli/rdzv.h"

#define COMMAND "muster store"

/* Keys of one call. */
#define STORE_KEYS_MAX 4096

/* The options. */
struct settings {
    int64_t timeout_ms;
    int64_t key_size_max;
    int64_t value_size_max;
    bool hex;
    bool hex_keys;
    bool bare_keys;
    bool raw;
    bool wait;
};

/* One run of a verb. */
struct job {
    const struct settings *settings;
    struct mst_store *store;
    char **words; /* after the URL */
    size_t words_count;
    struct mst__buf *decoded; /* one per word: its bytes, if they were needed */
    struct mst_err err;
};

/* --- words to bytes --- */

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Convert the hexadecimal text in @buf to bytes, in place; white space between the pairs is
 * skipped. */
static int decode_hex(struct mst__buf *buf, const char *what, struct mst_err *reterr)
{
    struct mst_bytes text = mst__buf_bytes(buf);
    uint8_t *to = buf->memory + buf->start;
    size_t size = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (is_space(text.data[i])) {
            continue;
        }
        int high = mst__number_hex_digit(text.data[i]);
        int low = i + 1 < text.size ? mst__number_hex_digit(text.data[i + 1]) : -1;
        if (high < 0 || low < 0) {
            return mst__fail(reterr, MST_EINVAL, 0,
                             "the %s is not hexadecimal: pairs of 0-9 and a-f", what);
        }
        to[size++] = (uint8_t)(high * 16 + low);
        i++;
    }
    mst__buf_truncate(buf, size);
    return 0;
}

static int read_stdin(struct mst__buf *buf, struct mst_err *reterr)
{
    for (;;) {
        int rv = 0;
        uint8_t *to = mst__buf_reserve(buf, 1, &rv);
        if (to == NULL) {
            return mst__fail(reterr, rv, 0, "value from standard input, larger than %zu bytes",
                             buf->size_max);
        }
        size_t room = buf->capacity - buf->end;
        size_t room_max = buf->size_max - mst__buf_size(buf);
        size_t got = fread(to, 1, room < room_max ? room : room_max, stdin);
        mst__buf_commit(buf, got);
        if (got == 0) {
            return ferror(stdin) == 0
                       ? 0
                       : mst__fail(reterr, MST_ESYS, 0, "cannot read standard input");
        }
    }
}

/* The bytes of word @index. */
static int job_decode(struct job *job,
                      size_t index,
                      bool hex,
                      bool dash_is_stdin,
                      const char *what,
                      struct mst_bytes *ret_bytes)
{
    MST_ASSERT(index < job->words_count);
    struct mst__buf *buf = &job->decoded[index];
    /* Hexadecimal text is twice as long as its bytes; one more byte shows excess. */
    mst__buf_init(buf, 3 * (size_t)job->settings->value_size_max + MST_KIB(64));
    int rv = 0;
    if (dash_is_stdin && strcmp(job->words[index], "-") == 0) {
        rv = read_stdin(buf, &job->err);
    } else {
        rv = mst__buf_append(buf, mst_bytes_str(job->words[index]));
        rv = rv == 0 ? 0 : mst__fail(&job->err, rv, 0, "%s", what);
    }
    if (rv == 0 && hex) {
        rv = decode_hex(buf, what, &job->err);
    }
    if (rv == 0) {
        *ret_bytes = mst__buf_bytes(buf);
    }
    return rv;
}

static int job_key(struct job *job, struct mst_bytes *ret_key)
{
    return job_decode(job, 0, job->settings->hex_keys, false, "key", ret_key);
}

static int job_value(struct job *job, size_t index, const char *what, struct mst_bytes *ret_value)
{
    return job_decode(job, index, job->settings->hex, true, what, ret_value);
}

static int job_keys(struct job *job, struct mst_bytes **ret_keys)
{
    struct mst_bytes *keys = mst__calloc(job->words_count, sizeof *keys);
    if (keys == NULL) {
        return mst__fail(&job->err, MST_ENOMEM, 0, "%zu keys", job->words_count);
    }
    int rv = 0;
    for (size_t i = 0; i < job->words_count && rv == 0; i++) {
        rv = job_decode(job, i, job->settings->hex_keys, false, "key", &keys[i]);
    }
    if (rv != 0) {
        mst__free(keys);
        return rv;
    }
    *ret_keys = keys;
    return 0;
}

/* --- bytes to output --- */

/* The size of the printable UTF-8 character at the front of @text; 0 = there is none. */
static size_t text_char(struct mst_bytes text)
{
    uint32_t c = 0;
    size_t size = mst__unicode_next(text, &c);
    return mst__unicode_is_shown(c) || c == '\n' || c == '\t' ? size : 0;
}

static bool is_text(struct mst_bytes bytes)
{
    for (size_t i = 0; i < bytes.size;) {
        size_t size = text_char(mst_bytes_of(bytes.data + i, bytes.size - i));
        if (size == 0) {
            return false;
        }
        i += size;
    }
    return true;
}

/* Print text unchanged, and escape other bytes, backslashes and, in a list, newlines. */
static void print_escaped(struct mst_bytes bytes, bool in_list)
{
    for (size_t i = 0; i < bytes.size;) {
        size_t size = text_char(mst_bytes_of(bytes.data + i, bytes.size - i));
        if (size == 0 || (in_list && bytes.data[i] == '\n')) {
            (void)printf("\\x%02x", bytes.data[i]); /* errors of stdout are checked at the end */
            size = 1;
        } else if (bytes.data[i] == '\\') {
            (void)fputs("\\\\", stdout);
        } else {
            (void)fwrite(bytes.data + i, 1, size, stdout);
        }
        i += size;
    }
}

static void print_hex(struct mst_bytes bytes)
{
    for (size_t i = 0; i < bytes.size; i++) {
        (void)printf("%02x", bytes.data[i]);
    }
}

/* Print one value, or one key of a list, which always ends with a newline. */
static void print_bytes(const struct settings *settings,
                        struct mst_bytes bytes,
                        bool hex,
                        bool in_list)
{
    if (settings->raw) {
        (void)fwrite(bytes.data, 1, bytes.size, stdout);
        if (in_list) {
            (void)putchar('\0');
        }
        return;
    }
    if (hex) {
        print_hex(bytes);
    } else if (is_text(bytes) && !(in_list && memchr(bytes.data, '\n', bytes.size) != NULL)) {
        (void)fwrite(bytes.data, 1, bytes.size, stdout);
    } else {
        print_escaped(bytes, in_list);
    }
    (void)putchar('\n');
}

static void print_value(const struct job *job, struct mst_buffer *value)
{
    print_bytes(job->settings, mst_bytes_of(value->data, value->size), job->settings->hex, false);
    mst_buffer_free(value);
}

/* --- verbs: each returns the exit code, or an MST_E code with job->err filled --- */

static int run_get(struct job *job)
{
    struct mst_bytes key;
    struct mst_buffer value = {0};
    int64_t timeout_ms = job->settings->timeout_ms;
    int rv = job_key(job, &key);
    if (rv == 0) {
        rv = job->settings->wait
                 ? mst_store_get(job->store, key, timeout_ms, &value, &job->err)
                 : mst_store_try_get(job->store, key, timeout_ms, &value, &job->err);
    }
    if (rv == 0) {
        print_value(job, &value);
    }
    return rv;
}

/* The type of mst_store_set, mst_store_append and mst_store_queue_push. */
typedef int (*write_fn)(struct mst_store *store,
                        struct mst_bytes key,
                        struct mst_bytes value,
                        int64_t timeout_ms,
                        struct mst_err *reterr);

static int run_write(struct job *job, write_fn write)
{
    struct mst_bytes key;
    struct mst_bytes value;
    int rv = job_key(job, &key);
    if (rv == 0) {
        rv = job_value(job, 1, "value", &value);
    }
    if (rv == 0) {
        rv = write(job->store, key, value, job->settings->timeout_ms, &job->err);
    }
    return rv;
}

static int run_set(struct job *job)
{
    return run_write(job, mst_store_set);
}

static int run_append(struct job *job)
{
    return run_write(job, mst_store_append);
}

static int run_push(struct job *job)
{
    return run_write(job, mst_store_queue_push);
}

/* Word @index as a number within the bounds. */
static int job_number(struct job *job,
                      size_t index,
                      const char *what,
                      int64_t min,
                      int64_t *ret_number)
{
    const char *word = job->words[index];
    if (!mst__number_parse(mst_bytes_str(word), min, INT64_MAX, ret_number)) {
        return mst__fail(&job->err, MST_EINVAL, 0,
                         "%s '%.40s' is not a number from %" PRId64 " to %" PRId64, what, word, min,
                         INT64_MAX);
    }
    return 0;
}

static int run_add(struct job *job)
{
    struct mst_bytes key;
    int64_t delta = 1;
    int64_t sum = 0;
    int rv = job_key(job, &key);
    if (rv == 0 && job->words_count > 1) {
        rv = job_number(job, 1, "DELTA", INT64_MIN, &delta);
    }
    if (rv == 0) {
        rv = mst_store_add(job->store, key, delta, job->settings->timeout_ms, &sum, &job->err);
    }
    if (rv == 0) {
        (void)printf("%" PRId64 "\n", sum);
    }
    return rv;
}

static int run_cas(struct job *job)
{
    struct mst_bytes key;
    struct mst_bytes expected;
    struct mst_bytes desired;
    struct mst_buffer value = {0};
    enum mst_compare_set outcome = MST_COMPARE_SET_DONE;
    int rv = job_key(job, &key);
    if (rv == 0 && strcmp(job->words[1], "-") == 0 && strcmp(job->words[2], "-") == 0) {
        rv = mst__fail(&job->err, MST_EINVAL, 0,
                       "EXPECTED and DESIRED cannot both come from standard input");
    }
    if (rv == 0) {
        rv = job_value(job, 1, "EXPECTED", &expected);
    }
    if (rv == 0) {
        rv = job_value(job, 2, "DESIRED", &desired);
    }
    if (rv == 0) {
        rv = mst_store_compare_set(job->store, key, expected, desired, job->settings->timeout_ms,
                                   &outcome, &value, &job->err);
    }
    if (rv != 0) {
        return rv;
    }
    if (outcome == MST_COMPARE_SET_ABSENT) {
        mst_buffer_free(&value);
        return MST_EXIT_ABSENT;
    }
    print_value(job, &value);
    return outcome == MST_COMPARE_SET_DONE ? MST_EXIT_OK : MST_EXIT_DIFFERS;
}

static int run_check(struct job *job)
{
    struct mst_bytes *keys = NULL;
    bool exist = false;
    int rv = job_keys(job, &keys);
    if (rv == 0) {
        rv = mst_store_check(job->store, keys, job->words_count, job->settings->timeout_ms, &exist,
                             &job->err);
        mst__free(keys);
    }
    return rv != 0 ? rv : exist ? MST_EXIT_OK : MST_EXIT_ABSENT;
}

static int run_wait(struct job *job)
{
    struct mst_bytes *keys = NULL;
    int rv = job_keys(job, &keys);
    if (rv == 0) {
        rv = mst_store_wait(job->store, keys, job->words_count, job->settings->timeout_ms,
                            &job->err);
        mst__free(keys);
    }
    return rv;
}

static int run_del(struct job *job)
{
    struct mst_bytes key;
    bool existed = false;
    int rv = job_key(job, &key);
    if (rv == 0) {
        rv = mst_store_delete(job->store, key, job->settings->timeout_ms, &existed, &job->err);
    }
    return rv != 0 ? rv : existed ? MST_EXIT_OK : MST_EXIT_ABSENT;
}

static int run_list(struct job *job)
{
    struct mst_keys keys = {0};
    int rv = mst_store_list(job->store, job->settings->timeout_ms, &keys, &job->err);
    if (rv != 0) {
        return rv;
    }
    for (size_t i = 0; i < keys.count; i++) {
        print_bytes(job->settings, keys.keys[i], job->settings->hex_keys, true);
    }
    mst_keys_free(&keys);
    return MST_EXIT_OK;
}

static int run_num_keys(struct job *job)
{
    int64_t count = 0;
    int rv = mst_store_num_keys(job->store, job->settings->timeout_ms, &count, &job->err);
    if (rv == 0) {
        (void)printf("%" PRId64 "\n", count);
    }
    return rv;
}

static int run_pop(struct job *job)
{
    struct mst_bytes key;
    struct mst_buffer value = {0};
    int rv = job_key(job, &key);
    if (rv == 0) {
        rv = mst_store_queue_pop(job->store, key, job->settings->wait, job->settings->timeout_ms,
                                 &value, &job->err);
    }
    if (rv == 0) {
        print_value(job, &value);
    }
    return rv;
}

static int run_len(struct job *job)
{
    struct mst_bytes key;
    int64_t count = 0;
    int rv = job_key(job, &key);
    if (rv == 0) {
        rv = mst_store_queue_len(job->store, key, job->settings->timeout_ms, &count, &job->err);
    }
    if (rv == 0) {
        (void)printf("%" PRId64 "\n", count);
    }
    return rv;
}

static struct mst_store *volatile waiting_store;
static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
    int saved_errno = errno;
    stop_signal = number;
    mst_store_interrupt(waiting_store);
    errno = saved_errno;
}

/* Set what signals do, except those that are ignored, as with nohup. */
static void handle_signals(void (*handler)(int))
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction action;
        (void)sigaction(numbers[i], NULL, &action); /* cannot fail, nor can the other */
        if (action.sa_handler != SIG_IGN) {
            action = (struct sigaction){.sa_handler = handler, .sa_flags = (int)SA_RESETHAND};
            (void)sigaction(numbers[i], &action, NULL);
        }
    }
}

/* A participant that a signal stops leaves, because not every store notices its death. The second
 * signal ends it at once. */
static int run_barrier(struct job *job)
{
    struct mst_bytes key;
    int64_t size = 0;
    int rv = job_key(job, &key);
    if (rv == 0) {
        rv = job_number(job, 1, "SIZE", 1, &size);
    }
    if (rv == 0) {
        waiting_store = job->store;
        handle_signals(on_signal);
        rv = mst_store_barrier(job->store, key, size, job->settings->timeout_ms, &job->err);
        handle_signals(SIG_DFL);
    }
    return rv == MST_ECANCELED ? MST_EXIT_SIGNAL + stop_signal : rv;
}

/* --- the table --- */

/* Options that only some verbs have. */
#define TAKES_WAIT 1u
#define TAKES_HEX 2u
#define TAKES_RAW 4u
#define TAKES_VALUE (TAKES_HEX)
#define GIVES_VALUE (TAKES_HEX | TAKES_RAW)

struct verb {
    const char *name;
    const char *arguments;
    size_t words_min, words_max;
    unsigned takes;
    int (*run)(struct job *job);
};

static const struct verb verbs[] = {
    {"get", "KEY", 1, 1, GIVES_VALUE | TAKES_WAIT, run_get},
    {"set", "KEY VALUE", 2, 2, TAKES_VALUE, run_set},
    {"add", "KEY [DELTA]", 1, 2, 0, run_add},
    {"cas", "KEY EXPECTED DESIRED", 3, 3, GIVES_VALUE, run_cas},
    {"check", "KEY...", 1, STORE_KEYS_MAX, 0, run_check},
    {"wait", "KEY...", 1, STORE_KEYS_MAX, 0, run_wait},
    {"del", "KEY", 1, 1, 0, run_del},
    {"append", "KEY VALUE", 2, 2, TAKES_VALUE, run_append},
    {"list", "", 0, 0, TAKES_RAW, run_list},
    {"num-keys", "", 0, 0, 0, run_num_keys},
    {"push", "KEY VALUE", 2, 2, TAKES_VALUE, run_push},
    {"pop", "KEY", 1, 1, GIVES_VALUE | TAKES_WAIT, run_pop},
    {"len", "KEY", 1, 1, 0, run_len},
    {"barrier", "KEY SIZE", 2, 2, 0, run_barrier},
};
#define VERBS_COUNT (sizeof verbs / sizeof verbs[0])

static const char synopsis[] = "get [--wait] URL KEY\n"
                               "set URL KEY VALUE\n"
                               "add URL KEY [DELTA]\n"
                               "cas URL KEY EXPECTED DESIRED\n"
                               "check URL KEY...\n"
                               "wait URL KEY...\n"
                               "del URL KEY\n"
                               "append URL KEY VALUE\n"
                               "list URL\n"
                               "num-keys URL\n"
                               "push URL KEY VALUE\n"
                               "pop [--wait] URL KEY\n"
                               "len URL KEY\n"
                               "barrier URL KEY SIZE";

static const char text[] =
    "Read and write a store. URL is tcp://host:port[/prefix], unix:///path, file:///path, hash:, "
    "etcd2://host:port/directory or etcd3://host:port/root, each with ?prefix=... if wanted. A "
    "VALUE of - is read from standard input.\n"
    "Exit status: 0 done, 1 failed, 2 wrong arguments, 3 absent, 4 timeout, 5 no connection, 6 "
    "another value, 7 connection lost and outcome unknown.";

static const struct verb *find_verb(const char *name)
{
    const char *names[VERBS_COUNT];
    for (size_t i = 0; i < VERBS_COUNT; i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return &verbs[i];
        }
        names[i] = verbs[i].name;
    }
    const char *nearest = mst__nearest(name, names, VERBS_COUNT);
    if (nearest != NULL) {
        (void)mst__cli_usage_error(COMMAND, "there is no '%s'; did you mean %s?", name, nearest);
    } else {
        (void)mst__cli_usage_error(COMMAND, "there is no '%s'", name);
    }
    return NULL;
}

/* Check words and options against the verb; prints an error. */
static bool check_usage(const struct verb *verb, size_t words, const struct settings *settings)
{
    const struct {
        const char *name;
        bool given;
        unsigned needs;
    } options[] = {
        {"--wait", settings->wait, TAKES_WAIT},
        {"--hex", settings->hex, TAKES_HEX},
        {"--raw", settings->raw, TAKES_RAW},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (options[i].given && (verb->takes & options[i].needs) == 0) {
            (void)mst__cli_usage_error(COMMAND, "%s cannot be combined with '%s'", options[i].name,
                                       verb->name);
            return false;
        }
    }
    if (settings->raw && (settings->hex || settings->hex_keys)) {
        (void)mst__cli_usage_error(COMMAND, "--raw and hexadecimal output exclude each other");
        return false;
    }
    if (words < verb->words_min || words > verb->words_max) {
        (void)mst__cli_usage_error(COMMAND, "usage: " COMMAND " %s URL %s", verb->name,
                                   verb->arguments);
        return false;
    }
    return true;
}

/* --- running --- */

static int open_store(const char *url, struct job *job)
{
    struct mst_store_options options;
    mst_store_options_init(&options, sizeof options);
    options.key_size_max = (size_t)job->settings->key_size_max;
    options.value_size_max = (size_t)job->settings->value_size_max;
    options.bare_keys = job->settings->bare_keys;
    return mst_store_open(url, &options, job->settings->timeout_ms, &job->store, &job->err);
}

/* No server listens there: print advice, if it could be ours. */
static void advise(const char *address, const struct mst_err *err)
{
    struct mst__url url;
    if (mst__url_parse(address, &url, NULL) == 0) {
        if (url.scheme == MST_URL_TCP) {
            mst__rdzv_advise(err, &url.endpoint);
        }
        mst__url_close(&url);
    }
}

static int run_verb(const struct verb *verb,
                    const char *url,
                    char **words,
                    size_t words_count,
                    const struct settings *settings)
{
    struct job job = {.settings = settings, .words = words, .words_count = words_count};
    int rv = 0;
    job.decoded = mst__calloc(words_count + 1, sizeof *job.decoded);
    if (job.decoded == NULL) {
        rv = mst__fail(&job.err, MST_ENOMEM, 0, "%zu words", words_count);
    }
    if (rv == 0) {
        rv = open_store(url, &job);
    }
    if (rv == 0) {
        rv = verb->run(&job);
    }
    mst_store_close(job.store);
    for (size_t i = 0; i < words_count && job.decoded != NULL; i++) {
        mst__buf_close(&job.decoded[i]);
    }
    mst__free(job.decoded);
    if (rv < 0) {
        int exit_code = mst__cli_fail(&job.err);
        advise(url, &job.err);
        return exit_code;
    }
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        mst__cli_say("muster: cannot write to standard output");
        return MST_EXIT_FAILED;
    }
    return rv;
}

static bool is_negative_number(const char *word)
{
    return word[0] == '-' && word[1] >= '0' && word[1] <= '9';
}

/* `add URL KEY -3`: the number is not an option. Moves a negative number behind a `--` at the end.
 * The result has room for one more word and ends with NULL. */
static void shield_number(int *argc, char **argv)
{
    static char dashes[] = "--";
    int at = 1;
    while (at < *argc && strcmp(argv[at], "--") != 0 && !is_negative_number(argv[at])) {
        at++;
    }
    if (at == *argc || !is_negative_number(argv[at])) {
        return;
    }
    char *number = argv[at];
    memmove(&argv[at], &argv[at + 1], (size_t)(*argc - at - 1) * sizeof argv[0]);
    argv[*argc - 1] = dashes;
    argv[*argc] = number;
    *argc += 1;
    argv[*argc] = NULL;
}

static int store_run(int argc, char **argv)
{
    struct settings settings = {
        .timeout_ms = 10000,
        .key_size_max = (int64_t)MST_KEY_SIZE_DEFAULT,
        .value_size_max = (int64_t)MST_VALUE_SIZE_DEFAULT,
    };
    const struct mst__option options[] = {
        {"timeout", "DURATION",
         "Limit for the whole command, connecting included, such as 250ms, 10s, 5m. Default 10s.",
         MST_OPTION_DURATION, &settings.timeout_ms, 0, 0},
        {"wait", NULL, "With get and pop: wait until there is something, up to the timeout.",
         MST_OPTION_FLAG, &settings.wait, 0, 0},
        {"hex", NULL, "Values, in arguments, standard input and output, are hexadecimal.",
         MST_OPTION_FLAG, &settings.hex, 0, 0},
        {"hex-keys", NULL, "Keys, in arguments and in the output of list, are hexadecimal.",
         MST_OPTION_FLAG, &settings.hex_keys, 0, 0},
        {"bare-keys", NULL,
         "Use keys exactly as stored. Without it, each key is prefixed with /, as in PyTorch's "
         "stores.",
         MST_OPTION_FLAG, &settings.bare_keys, 0, 0},
        {"raw", NULL,
         "Print the bytes of a value without a newline; end each key of a list with a NUL.",
         MST_OPTION_FLAG, &settings.raw, 0, 0},
        {"max-key", "SIZE", "Refuse longer keys, prefix included. Default 8K, as servers have it.",
         MST_OPTION_SIZE, &settings.key_size_max, 1, (int64_t)MST_KEY_SIZE_MAX},
        {"max-value", "SIZE", "Refuse larger values. Default 8M, as servers have it.",
         MST_OPTION_SIZE, &settings.value_size_max, 1, (int64_t)MST_VALUE_SIZE_MAX},
    };
    const struct mst__usage usage = {
        .command = COMMAND,
        .synopsis = synopsis,
        .text = text,
        .options = options,
        .options_count = sizeof options / sizeof options[0],
        .arguments_min = 2,
        .arguments_max = STORE_KEYS_MAX + 2,
    };
    int first = 0;
    int exit_code = MST_EXIT_OK;
    if (!mst__options_parse(&usage, argc, argv, &first, &exit_code)) {
        return exit_code;
    }
    const struct verb *verb = find_verb(argv[first]);
    size_t words_count = (size_t)(argc - first - 2);
    if (verb == NULL || !check_usage(verb, words_count, &settings)) {
        return MST_EXIT_USAGE;
    }
    return run_verb(verb, argv[first + 1], argv + first + 2, words_count, &settings);
}

int mst__cli_store(int argc, char **argv)
{
    bool is_add = false;
    for (int i = 1; i < argc; i++) {
        is_add = is_add || strcmp(argv[i], "add") == 0;
    }
    if (!is_add) {
        return store_run(argc, argv);
    }
    char **words = mst__calloc((size_t)argc + 2, sizeof *words);
    if (words == NULL) {
        mst__cli_say("muster: out of memory");
        return MST_EXIT_FAILED;
    }
    memcpy(words, argv, (size_t)argc * sizeof *words);
    int count = argc;
    shield_number(&count, words);
    int exit_code = store_run(count, words);
    mst__free(words);
    return exit_code;
}
