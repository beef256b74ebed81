/* golden/golden.c - runs a script of requests through the model server and compares the events with
 * the script's second half. See tests/golden/README.md for the language.
 *
 * A script runs many times: each request whole, each byte by byte, and cut in two at every
 * possible place. The events must be the same every time. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "golden/model.h"
#include "kv/entry.h"

#define LINE_SIZE_MAX 65536
#define NAME_SIZE_MAX 16
#define SEPARATOR "----\n"
#define TRANSCRIPT_SIZE_MAX MST_MIB(16)

/* How the bytes of a request are cut: not at all, everywhere, or once per run. */
enum cut { CUT_NOWHERE, CUT_EVERYWHERE, CUT_ONCE };

struct golden {
    struct mst__model model;
    struct mst__model_limits limits;
    bool is_started;
    char names[MST_MODEL_CONNS_MAX][NAME_SIZE_MAX];
    size_t names_count;
    struct mst__buf transcript;
    enum cut cut;
    size_t cut_at;    /* CUT_ONCE: the byte of the whole script's input before which to cut */
    size_t sent_size; /* bytes sent so far */
    size_t line;
};

static _Noreturn void golden_die(const struct golden *golden, const char *format, ...)
    MST_PRINTF(2, 3);

static _Noreturn void golden_die(const struct golden *golden, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "line %zu: ", golden->line);
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
    exit(2);
}

/* --- the transcript --- */

static void put(struct golden *golden, const char *format, ...) MST_PRINTF(2, 3);

static void put(struct golden *golden, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof text ||
        mst__buf_append(&golden->transcript, mst_bytes_of(text, (size_t)length)) != 0) {
        golden_die(golden, "transcript too large");
    }
}

/* Bytes in readable form; long ones by their beginning. */
static void put_quoted(struct golden *golden, struct mst_bytes bytes)
{
    size_t shown = bytes.size > 40 ? 16 : bytes.size;
    put(golden, "\"");
    for (size_t i = 0; i < shown; i++) {
        uint8_t c = bytes.data[i];
        bool plain = c >= ' ' && c < 0x7f && c != '"' && c != '\\';
        put(golden, plain ? "%c" : "\\x%02x", c);
    }
    put(golden, "\"");
    if (shown < bytes.size) {
        put(golden, "... (%zu bytes)", bytes.size);
    }
}

static void put_hex(struct golden *golden, struct mst_bytes bytes)
{
    size_t shown = bytes.size > 64 ? 16 : bytes.size;
    put(golden, " ");
    for (size_t i = 0; i < shown; i++) {
        put(golden, "%02x", bytes.data[i]);
    }
    if (shown < bytes.size) {
        put(golden, "... (%zu bytes)", bytes.size);
    }
}

/* @fixed bytes, then strs: length and content apart, as in docs/protocol.md. */
static void put_reply_bytes(struct golden *golden, struct mst_bytes bytes, size_t fixed)
{
    if (fixed > 0) {
        put_hex(golden, mst_bytes_of(bytes.data, fixed));
    }
    struct mst_bytes rest = mst__bytes_skip(bytes, fixed);
    while (rest.size > 0) {
        struct mst_bytes str = {0};
        struct mst_bytes length = mst_bytes_of(rest.data, 8);
        if (!mst__items_next(&rest, &str)) {
            golden_die(golden, "a reply is not made of strs");
        }
        put_hex(golden, length);
        if (str.size > 0) {
            put_hex(golden, str);
        }
    }
}

static void put_command(struct golden *golden, const struct mst__command *command)
{
    put(golden, "%s", mst__op_name(command->op));
    switch (command->op) {
        case MST_OP_NUM_KEYS:
        case MST_OP_LIST_KEYS:
        case MST_OP_CANCEL_WAIT:
            break;
        case MST_OP_PING:
            put(golden, " 0x%08llx", (unsigned long long)command->number);
            break;
        case MST_OP_CHECK:
        case MST_OP_WAIT:
        case MST_OP_MULTI_GET:
        case MST_OP_MULTI_SET: {
            put(golden, " %llu:", (unsigned long long)command->count);
            struct mst_bytes items = command->items;
            struct mst_bytes item;
            while (mst__items_next(&items, &item)) {
                put(golden, " ");
                put_quoted(golden, item);
            }
            break;
        }
        default:
            put(golden, " ");
            put_quoted(golden, command->key);
            break;
    }
    if (command->op == MST_OP_ADD || command->op == MST_OP_BARRIER) {
        put(golden, " %lld", (long long)command->number);
    }
    if (command->op == MST_OP_WAIT_CHANGE) {
        put(golden, " 0x%016llx", (unsigned long long)command->number);
    }
    if (command->op == MST_OP_COMPARE_SET) {
        put(golden, " ");
        put_quoted(golden, command->expected);
    }
    if (command->op == MST_OP_SET || command->op == MST_OP_COMPARE_SET ||
        command->op == MST_OP_APPEND || command->op == MST_OP_QUEUE_PUSH) {
        put(golden, " ");
        put_quoted(golden, command->value);
    }
}

static size_t reply_fixed_size(const struct mst__reply *reply, size_t size)
{
    switch (reply->kind) {
        case MST_REPLY_BYTES:
        case MST_REPLY_ITEMS:
            return 0;
        case MST_REPLY_LIST:
        case MST_REPLY_POP:
            return 8;
        default:
            return size;
    }
}

static void on_event(void *arg, const struct mst__model_event *event)
{
    struct golden *golden = arg;
    put(golden, "%s ", golden->names[event->conn]);
    switch (event->kind) {
        case MST_MODEL_COMMAND:
            put_command(golden, event->command);
            break;
        case MST_MODEL_REPLY:
            put(golden, "<");
            put_reply_bytes(golden, event->bytes,
                            reply_fixed_size(event->reply, event->bytes.size));
            break;
        case MST_MODEL_NOTICE:
            put(golden, "<");
            put_reply_bytes(golden, event->bytes, 1);
            break;
        case MST_MODEL_CLOSED:
            put(golden, "closed %s: %s", mst_errname(event->err->code), event->err->msg);
            break;
    }
    put(golden, "\n");
}

/* --- the script --- */

static void golden_start(struct golden *golden)
{
    if (!golden->is_started) {
        mst__model_init(&golden->model, &golden->limits, on_event, golden);
        golden->is_started = true;
    }
}

static size_t conn_find(struct golden *golden, const char *name)
{
    for (size_t i = 0; i < golden->names_count; i++) {
        if (strcmp(golden->names[i], name) == 0) {
            return i;
        }
    }
    golden_die(golden, "no connection '%s'", name);
}

/* The next word of @at, or NULL. A word in quotes may hold spaces and keeps its first quote. */
static char *next_word(struct golden *golden, char **at)
{
    char *word = *at + strspn(*at, " \t\n|");
    if (*word == '\0') {
        return NULL;
    }
    char *end;
    if (*word == '"' || *word == '\'') {
        end = strchr(word + 1, *word);
        if (end == NULL) {
            golden_die(golden, "quote not closed");
        }
    } else {
        end = word + strcspn(word, " \t\n|");
    }
    *at = *end == '\0' ? end : end + 1;
    *end = '\0';
    return word;
}

static uint8_t hex_digit(struct golden *golden, char c)
{
    const char *digits = "0123456789abcdef";
    const char *found = c == '\0' ? NULL : strchr(digits, tolower((unsigned char)c));
    if (found == NULL) {
        golden_die(golden, "'%c' is no hex digit", c);
    }
    return (uint8_t)(found - digits);
}

static int64_t number_of(struct golden *golden, const char *text)
{
    int64_t number = 0;
    if (!mst__number_parse(mst_bytes_str(text), INT64_MIN, INT64_MAX, &number)) {
        golden_die(golden, "'%s' is no number", text);
    }
    return number;
}

/* One word of a request: hex, "str", 'raw text', #number, or *count,character as a str. */
static int encode_word(struct golden *golden, const char *word, struct mst__buf *bytes)
{
    if (word[0] == '"') {
        return mst__buf_append_str(bytes, mst_bytes_str(word + 1));
    }
    if (word[0] == '\'') {
        return mst__buf_append(bytes, mst_bytes_str(word + 1));
    }
    if (word[0] == '#') {
        return mst__buf_append_u64(bytes, (uint64_t)number_of(golden, word + 1));
    }
    if (word[0] == '*') {
        const char *comma = strchr(word, ',');
        int64_t count = 0;
        if (comma == NULL || comma[1] == '\0' ||
            !mst__number_parse(mst_bytes_of(word + 1, (size_t)(comma - word - 1)), 0, 1 << 20,
                               &count)) {
            golden_die(golden, "'%s' is not *count,character", word);
        }
        int rv = mst__buf_append_u64(bytes, (uint64_t)count);
        for (int64_t i = 0; rv == 0 && i < count; i++) {
            rv = mst__buf_append_u8(bytes, (uint8_t)comma[1]);
        }
        return rv;
    }
    int rv = 0;
    for (const char *c = word; rv == 0 && *c != '\0'; c += 2) {
        int high = hex_digit(golden, c[0]) << 4;
        rv = mst__buf_append_u8(bytes, (uint8_t)(high | hex_digit(golden, c[1])));
    }
    return rv;
}

/* Deliver @bytes on @conn, cut as in this run. */
static void send_cut(struct golden *golden, size_t conn, struct mst_bytes bytes)
{
    for (size_t i = 0; i < bytes.size;) {
        size_t size = bytes.size - i;
        size_t offset = golden->sent_size;
        if (golden->cut == CUT_EVERYWHERE) {
            size = 1;
        } else if (golden->cut == CUT_ONCE && golden->cut_at > offset &&
                   golden->cut_at - offset < size) {
            size = golden->cut_at - offset;
        }
        /* A copy of exactly these bytes, so that reading beyond them is noticed. */
        char *piece = mst__memdup(bytes.data + i, size);
        if (piece == NULL) {
            golden_die(golden, "out of memory");
        }
        mst__model_feed(&golden->model, conn, mst_bytes_of(piece, size));
        mst__free(piece);
        mst__model_check(&golden->model);
        golden->sent_size += size;
        i += size;
    }
}

static void run_send(struct golden *golden, size_t conn, char *rest, bool settle)
{
    struct mst__buf bytes;
    mst__buf_init(&bytes, MST_MIB(64));
    char *word;
    while ((word = next_word(golden, &rest)) != NULL) {
        if (encode_word(golden, word, &bytes) != 0) {
            golden_die(golden, "request too large");
        }
    }
    if (!golden->model.conns[conn].is_open) {
        golden_die(golden, "'%s' is closed", golden->names[conn]);
    }
    send_cut(golden, conn, mst__buf_bytes(&bytes));
    if (settle) {
        mst__model_settle(&golden->model, conn);
    }
    mst__buf_close(&bytes);
}

/* `open NAME` or `open NAME C`: then it sends VALIDATE, as a client of dialect C does. */
static void run_open(struct golden *golden, char *rest)
{
    golden_start(golden);
    const char *name = next_word(golden, &rest);
    const char *dialect = next_word(golden, &rest);
    if (name == NULL || strlen(name) >= NAME_SIZE_MAX ||
        (dialect != NULL && strcmp(dialect, "C") != 0)) {
        golden_die(golden, "open NAME [C]");
    }
    size_t conn = 0;
    while (conn < golden->names_count && strcmp(golden->names[conn], name) != 0) {
        conn++;
    }
    if (conn == MST_MODEL_CONNS_MAX) {
        golden_die(golden, "too many connections");
    }
    if (conn == golden->names_count) {
        memcpy(golden->names[conn], name, strlen(name) + 1);
        golden->names_count++;
    }
    mst__model_open(&golden->model, conn);
    if (dialect != NULL) {
        char validate[] = "00 cef7853c";
        run_send(golden, conn, validate, false);
    }
}

static void run_limits(struct golden *golden, char *rest)
{
    if (golden->is_started) {
        golden_die(golden, "limits come first");
    }
    const char *word;
    while ((word = next_word(golden, &rest)) != NULL) {
        const char *value = strchr(word, '=');
        size_t name_size = strcspn(word, "=");
        size_t number = value == NULL ? 0 : (size_t)number_of(golden, value + 1);
        if (name_size == 3 && memcmp(word, "key", 3) == 0) {
            golden->limits.key_size_max = number;
        } else if (name_size == 5 && memcmp(word, "value", 5) == 0) {
            golden->limits.value_size_max = number;
        } else if (name_size == 6 && memcmp(word, "memory", 6) == 0) {
            golden->limits.memory_max = number;
        } else if (name_size == 7 && memcmp(word, "message", 7) == 0) {
            golden->limits.message_size_max = number;
        } else {
            golden_die(golden, "no limit '%s'", word);
        }
    }
}

static void dump_line(struct golden *golden, const struct mst__kv_place *first)
{
    static const char *const words[MST_KV_LINE_COUNT] = {
        [MST_KV_LINE_KEY] = "waits",
        [MST_KV_LINE_BARRIER] = "barrier",
        [MST_KV_LINE_CHANGE] = "change",
    };
    for (const struct mst__kv_place *place = first; place != NULL;
         place = mst__kv_place_next(place)) {
        size_t conn = 0;
        while (&golden->model.conns[conn].client != place->client) {
            conn++;
        }
        put(golden, " %s %s", words[place->line], golden->names[conn]);
    }
}

/* All stored values, in the order of their creation. */
static void run_dump(struct golden *golden)
{
    for (const struct mst__kv_entry *entry = mst__map_first(&golden->model.kv.map); entry != NULL;
         entry = mst__map_next(entry)) {
        put(golden, "dump ");
        put_quoted(golden, mst__map_key(entry));
        if (mst__kv_entry_exists(entry)) {
            put(golden, " = ");
            put_quoted(golden, mst__kv_entry_value(entry));
        }
        for (const struct mst__kv_block *item = entry->queue.first; item != NULL;
             item = item->u.next) {
            put(golden, " queued ");
            put_quoted(golden, mst_bytes_of(item->bytes, item->size));
        }
        for (size_t i = 0; i < MST_KV_LINE_COUNT; i++) {
            dump_line(golden, entry->lines[i]);
        }
        put(golden, "\n");
    }
    put(golden, "dump keys=%zu\n", golden->model.kv.keys_count);
}

static void run_line(struct golden *golden, char *line)
{
    if (line[0] == '#') {
        return;
    }
    char *rest = line;
    char *word = next_word(golden, &rest);
    if (word == NULL) {
        return;
    }
    if (strcmp(word, "open") == 0) {
        run_open(golden, rest);
    } else if (strcmp(word, "limits") == 0) {
        run_limits(golden, rest);
    } else if (strcmp(word, "dump") == 0) {
        run_dump(golden);
    } else if (strcmp(word, "title") == 0) {
        put(golden, "# %s", rest);
    } else if (strcmp(word, "close") == 0) {
        word = next_word(golden, &rest);
        size_t conn = conn_find(golden, word == NULL ? "" : word);
        mst__model_hang_up(&golden->model, conn);
    } else {
        size_t conn = conn_find(golden, word);
        const char *direction = next_word(golden, &rest);
        if (direction == NULL || (strcmp(direction, ">") != 0 && strcmp(direction, ">+") != 0)) {
            golden_die(golden, "%s > BYTES or %s >+ BYTES", word, word);
        }
        run_send(golden, conn, rest, strcmp(direction, ">") == 0);
    }
}

/* Run the script once; @golden then has the transcript, and @golden->sent_size the number of
 * sent bytes. */
static void run_script(struct golden *golden, struct mst_bytes script, enum cut cut, size_t cut_at)
{
    struct mst__buf transcript = golden->transcript;
    memset(golden, 0, sizeof *golden);
    golden->transcript = transcript;
    mst__buf_clear(&golden->transcript);
    golden->cut = cut;
    golden->cut_at = cut_at;
    golden->limits = (struct mst__model_limits){.key_size_max = MST_KEY_SIZE_DEFAULT,
                                                .value_size_max = MST_VALUE_SIZE_DEFAULT,
                                                .memory_max = MST_MEMORY_DEFAULT};
    static char line[LINE_SIZE_MAX];
    for (size_t at = 0; at < script.size;) {
        const uint8_t *end = memchr(script.data + at, '\n', script.size - at);
        size_t size = end == NULL ? script.size - at : (size_t)(end - (script.data + at)) + 1;
        golden->line++;
        if (size >= sizeof line) {
            golden_die(golden, "line too long");
        }
        memcpy(line, script.data + at, size);
        line[size] = '\0';
        run_line(golden, line);
        at += size;
    }
    golden_start(golden);
    mst__model_close(&golden->model);
}

/* --- files --- */

static void read_whole(const char *path, struct mst__buf *ret_text)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        (void)fprintf(stderr, "open '%s': %s\n", path, strerror(errno));
        exit(2);
    }
    mst__buf_init(ret_text, MST_MIB(16));
    int rv = 0;
    uint8_t *to;
    while ((to = mst__buf_reserve(ret_text, 4096, &rv)) != NULL) {
        size_t got = fread(to, 1, 4096, file);
        if (got == 0) {
            break;
        }
        mst__buf_commit(ret_text, got);
    }
    if (rv != 0 || ferror(file) != 0 || fclose(file) != 0) {
        (void)fprintf(stderr, "read '%s' failed\n", path);
        exit(2);
    }
}

static void rewrite(const char *path, struct mst_bytes script, struct mst_bytes transcript)
{
    FILE *file = fopen(path, "wbe");
    if (file == NULL || fwrite(script.data, 1, script.size, file) != script.size ||
        fputs(SEPARATOR, file) < 0 ||
        fwrite(transcript.data, 1, transcript.size, file) != transcript.size || fclose(file) != 0) {
        (void)fprintf(stderr, "write '%s': %s\n", path, strerror(errno));
        exit(2);
    }
}

/* Show the first line in which @is differs from @wanted. */
static void show_difference(struct mst_bytes wanted, struct mst_bytes is)
{
    size_t start = 0;
    size_t line = 1;
    for (size_t i = 0; i < wanted.size && i < is.size && wanted.data[i] == is.data[i]; i++) {
        if (is.data[i] == '\n') {
            start = i + 1;
            line++;
        }
    }
    struct mst_bytes sides[] = {mst__bytes_skip(wanted, start), mst__bytes_skip(is, start)};
    static const char *const labels[] = {"wanted", "is"};
    for (size_t i = 0; i < 2; i++) {
        const uint8_t *end = sides[i].size == 0 ? NULL : memchr(sides[i].data, '\n', sides[i].size);
        int size = end == NULL ? (int)sides[i].size : (int)(end - sides[i].data);
        (void)fprintf(stderr, "  output line %zu %s: %.*s\n", line, labels[i], size,
                      sides[i].size == 0 ? "" : (const char *)sides[i].data);
    }
}

/* Whether this way of cutting gives @wanted. */
static bool run_matches(struct golden *golden,
                        struct mst_bytes script,
                        struct mst_bytes wanted,
                        enum cut cut,
                        size_t cut_at)
{
    run_script(golden, script, cut, cut_at);
    struct mst_bytes is = mst__buf_bytes(&golden->transcript);
    if (mst__bytes_equal(is, wanted)) {
        return true;
    }
    if (cut == CUT_ONCE) {
        (void)fprintf(stderr, "cut before byte %zu:\n", cut_at);
    } else {
        (void)fprintf(stderr, cut == CUT_NOWHERE ? "whole requests:\n" : "byte by byte:\n");
    }
    show_difference(wanted, is);
    return false;
}

static bool check_file(struct golden *golden, const char *path, bool is_rewrite)
{
    struct mst__buf text;
    read_whole(path, &text);
    struct mst_bytes script = mst__buf_bytes(&text);
    struct mst_bytes wanted = {0};
    for (size_t at = 0; at < script.size; at++) {
        struct mst_bytes rest = mst__bytes_skip(script, at);
        if ((at == 0 || script.data[at - 1] == '\n') &&
            mst__bytes_start_with(rest, mst_bytes_str(SEPARATOR))) {
            wanted = mst__bytes_skip(rest, strlen(SEPARATOR));
            script.size = at;
            break;
        }
    }
    bool ok = true;
    if (is_rewrite) {
        run_script(golden, script, CUT_NOWHERE, 0);
        rewrite(path, script, mst__buf_bytes(&golden->transcript));
    } else {
        ok = run_matches(golden, script, wanted, CUT_NOWHERE, 0);
        size_t size = golden->sent_size;
        ok = ok && run_matches(golden, script, wanted, CUT_EVERYWHERE, 0);
        size_t step = size > 8192 ? size / 512 : 1; /* long values are uniform inside */
        for (size_t at = 1; ok && at < size; at += step) {
            ok = run_matches(golden, script, wanted, CUT_ONCE, at);
        }
    }
    (void)printf("%s %s\n", ok ? "ok" : "FAILED", path);
    mst__buf_close(&text);
    return ok;
}

int main(int argc, char **argv)
{
    static struct golden golden;
    mst__buf_init(&golden.transcript, TRANSCRIPT_SIZE_MAX);
    bool is_rewrite = argc > 1 && strcmp(argv[1], "--rewrite") == 0;
    int failed = 0;
    int passed = 0;
    for (int i = is_rewrite ? 2 : 1; i < argc; i++) {
        bool ok = check_file(&golden, argv[i], is_rewrite);
        passed += ok ? 1 : 0;
        failed += ok ? 0 : 1;
    }
    mst__buf_close(&golden.transcript);
    (void)printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
}
