/* pickle_tool.c - the codec of records for scripts: what a pickle says, and how we write it.
 *
 *   pickle-tool [D1|D2|D3|D4] [ROUND COUNT]
 *
 * Each line of stdin is a pickle in hex; the answer to each is one line of JSON: the record and, as
 * `hex`, the pickle that we write of it, in the dialect given or else its own, with a seal if one
 * is given, and then with all nodes marked as ours; or `error` and `text`. A line that begins with
 * `=` is base64 instead, and is answered with `hex` or `error`. */
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/number.h"
#include "codec/pickle.h"

#define LINE_SIZE_MAX (2 * MST_PICKLE_SIZE_MAX + 64)

struct options {
    int dialect; /* 0 = that of the record */
    int64_t sealed_round;
    int64_t sealed_count; /* 0 = none */
};

static void print_text(struct mst_bytes text)
{
    (void)putchar('"');
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < ' ' || text.data[i] == '"' || text.data[i] == '\\') {
            (void)printf("\\u%04x", text.data[i]);
        } else {
            (void)putchar(text.data[i]);
        }
    }
    (void)putchar('"');
}

static void print_hex(struct mst_bytes bytes)
{
    (void)printf("\"hex\":\"");
    for (size_t i = 0; i < bytes.size; i++) {
        (void)printf("%02x", bytes.data[i]);
    }
    (void)printf("\"");
}

static void print_error(int code, const char *text)
{
    (void)printf("{\"error\":\"%s\",\"text\":", mst_errname(code));
    print_text(mst_bytes_str(text));
    (void)printf("}\n");
}

enum list_kind { LIST_RANKS, LIST_NODES, LIST_TIMES };

static void print_members(const struct mst__state *state,
                          const char *name,
                          const struct mst__peers *members,
                          enum list_kind kind)
{
    (void)printf("\"%s\":[", name);
    for (size_t i = 0; i < members->count; i++) {
        const struct mst__peer *member = &state->members[members->ids[i]];
        (void)printf("%s[[", i == 0 ? "" : ",");
        print_text(member->node.addr);
        (void)printf(",%lld,%lld]", (long long)member->node.pid, (long long)member->node.local_id);
        if (kind != LIST_NODES) {
            (void)printf(",%lld",
                         (long long)(kind == LIST_RANKS ? member->rank : member->heartbeat_us));
        }
        (void)printf("]");
    }
    (void)printf("],");
}

static void print_state(const struct mst__state *state, struct mst_bytes pickle)
{
    (void)printf("{\"dialect\":\"D%d\",\"round\":%lld,\"complete\":%s,\"closed\":%s,",
                 (int)state->dialect, (long long)state->round, state->complete ? "true" : "false",
                 state->closed ? "true" : "false");
    if (state->has_deadline) {
        (void)printf("\"deadline\":%lld,", (long long)state->deadline_us);
    } else {
        (void)printf("\"deadline\":null,");
    }
    print_members(state, "participants", &state->participants, LIST_RANKS);
    print_members(state, "wait_list", &state->waiting, LIST_NODES);
    print_members(state, "redundancy_list", &state->spares, LIST_NODES);
    print_members(state, "last_heartbeats", &state->heartbeats, LIST_TIMES);
    size_t ours = 0;
    for (size_t i = 0; i < state->heartbeats.count; i++) {
        ours += state->members[state->heartbeats.ids[i]].is_ours ? 1 : 0;
    }
    (void)printf("\"ours\":%zu,", ours);
    (void)printf("\"sealed\":[%lld,%lld],\"extra_size\":%zu,", (long long)state->sealed_round,
                 (long long)state->sealed_count, state->extra.size);
    print_hex(pickle);
    (void)printf("}\n");
}

static void answer_pickle(const struct options *options, struct mst_bytes bytes)
{
    struct mst__state state;
    mst__state_init(&state);
    struct mst_err err = {0};
    int rv = mst__pickle_read(bytes, &state, &err);
    if (rv != 0) {
        print_error(rv, err.msg);
        return;
    }
    if (options->dialect != 0) {
        state.dialect = (enum mst__record_dialect)options->dialect;
    }
    if (options->sealed_count > 0) {
        state.sealed_round = options->sealed_round;
        state.sealed_count = options->sealed_count;
        for (size_t i = 0; i < state.heartbeats.count; i++) {
            mst__state_mark(&state, state.heartbeats.ids[i]);
        }
    }
    struct mst__buf output;
    mst__buf_init(&output, MST_PICKLE_SIZE_MAX);
    rv = mst__pickle_write(&output, &state);
    if (rv == 0) {
        print_state(&state, mst__buf_bytes(&output));
    } else {
        print_error(rv, "write");
    }
    mst__buf_close(&output);
    mst__state_close(&state);
}

static void answer_base64(struct mst_bytes text)
{
    struct mst__buf output;
    mst__buf_init(&output, LINE_SIZE_MAX);
    int rv = mst__base64_read(&output, text);
    if (rv == 0) {
        (void)printf("{");
        print_hex(mst__buf_bytes(&output));
        (void)printf("}\n");
    } else {
        print_error(rv, "base64");
    }
    mst__buf_close(&output);
}

/* Hex in place: @line becomes bytes. False when it is not hex. */
static bool unhex(uint8_t *line, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    if (size % 2 != 0) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        const char *digit = line[i] == '\0' ? NULL : strchr(digits, line[i]);
        if (digit == NULL) {
            return false;
        }
        uint8_t value = (uint8_t)(digit - digits);
        line[i / 2] = (uint8_t)(i % 2 == 0 ? value << 4 : line[i / 2] | value);
    }
    return true;
}

static bool read_options(int argc, char **argv, struct options *ret_options)
{
    int next = 1;
    *ret_options = (struct options){0};
    if (next < argc && argv[next][0] == 'D') {
        if (argv[next][1] < '1' || argv[next][1] > '4' || argv[next][2] != '\0') {
            return false;
        }
        ret_options->dialect = argv[next++][1] - '0';
    }
    if (next + 1 < argc) {
        if (!mst__number_parse(mst_bytes_str(argv[next]), INT64_MIN, INT64_MAX,
                               &ret_options->sealed_round) ||
            !mst__number_parse(mst_bytes_str(argv[next + 1]), 1, INT64_MAX,
                               &ret_options->sealed_count)) {
            return false;
        }
        next += 2;
    }
    return next == argc;
}

int main(int argc, char **argv)
{
    struct options options;
    if (!read_options(argc, argv, &options)) {
        (void)fprintf(stderr, "usage: pickle-tool [D1|D2|D3|D4] [ROUND COUNT]\n");
        return 2;
    }
    char *line = mst__malloc(LINE_SIZE_MAX);
    if (line == NULL) {
        (void)fprintf(stderr, "pickle-tool: out of memory\n");
        return 1;
    }
    while (fgets(line, (int)LINE_SIZE_MAX, stdin) != NULL) {
        size_t size = strcspn(line, "\n");
        if (line[0] == '=') {
            answer_base64(mst_bytes_of(line + 1, size - 1));
        } else if (unhex((uint8_t *)line, size)) {
            answer_pickle(&options, mst_bytes_of(line, size / 2));
        } else {
            print_error(MST_EINVAL, "not hex");
        }
        (void)fflush(stdout); /* a reader that has gone ends us by a signal */
    }
    mst__free(line);
    return 0;
}
