/* unit/codec/pickle_unit.h - pickles by hand: an assembler for opcodes, and records with one
 * attribute that is different. */
#ifndef MST_UNIT_PICKLE_UNIT_H
#define MST_UNIT_PICKLE_UNIT_H

#include "unit/unit.h"

#include <string.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/mem.h"
#include "codec/machine.h"
#include "codec/pickle.h"

/* The error of the last read. */
static struct mst_err err;

/* Words that stand for several others. */
static const char *const pickle_words[][2] = {
    {"@state", "63 'torch.distributed.elastic.rendezvous.dynamic_rendezvous' 0a "
               "'_RendezvousState' 0a 29 81"},
    {"@node",
     "63 'torch.distributed.elastic.rendezvous.dynamic_rendezvous' 0a '_NodeDesc' 0a 29 81"},
    {"@datetime", "63 'datetime' 0a 'datetime' 0a"},
    {"@timezone", "63 'datetime' 0a 'timezone' 0a"},
    {"@timedelta", "63 'datetime' 0a 'timedelta' 0a"},
    {"@set", "63 'builtins' 0a 'set' 0a"},
    {"@utc", "@timezone @timedelta 4b 00 4b 00 4b 00 87 52 85 52"},
    /* 2026-05-08T13:37:45.123456 */
    {"@bytes", "43 0a 07 ea 05 08 0d 25 2d 01 e2 40"},
    {"@naive", "@datetime @bytes 85 52"},
    {"@aware", "@datetime @bytes @utc 86 52"},
    {"@a1", "@node 7d 28 \"addr\" \"a\" \"pid\" 4b 01 \"local_id\" 4b 00 75 62"},
    {"@b2", "@node 7d 28 \"addr\" \"b\" \"pid\" 4b 02 \"local_id\" 4b 00 75 62"},
    {"@f1", "@node 7d 28 \"fqdn\" \"a\" \"pid\" 4b 01 \"local_id\" 4b 00 75 62"},
};
#define A_TIME_US INT64_C(1778247465123456)

/* Append the meaning of @words: bytes in hex, "text" as SHORT_BINUNICODE, 'characters', @words,
 * and `*N word`, which is the word N times. */
static inline void assemble_into(struct mst__buf *output, const char *words)
{
    while (*words != '\0') {
        if (*words == ' ') {
            words++;
            continue;
        }
        unsigned long times = 1;
        if (*words == '*') {
            char *end;
            times = strtoul(words + 1, &end, 10);
            words = end + 1;
        }
        const char *quote = *words == '"' || *words == '\'' ? strchr(words + 1, *words) : NULL;
        size_t size = quote != NULL ? (size_t)(quote - words) + 1 : strcspn(words, " ");
        for (unsigned long i = 0; i < times; i++) {
            if (quote != NULL) {
                if (*words == '"') {
                    uint8_t head[] = {0x8c, (uint8_t)(size - 2)};
                    assert_int_equal(mst__buf_append(output, mst_bytes_of(head, 2)), 0);
                }
                assert_int_equal(mst__buf_append(output, mst_bytes_of(words + 1, size - 2)), 0);
            } else if (*words == '@') {
                size_t word = 0;
                while (strlen(pickle_words[word][0]) != size ||
                       memcmp(pickle_words[word][0], words, size) != 0) {
                    word++;
                    assert_true(word < sizeof pickle_words / sizeof pickle_words[0]);
                }
                assemble_into(output, pickle_words[word][1]);
            } else {
                assert_int_equal(size, 2);
                assert_int_equal(
                    mst__buf_append_u8(output,
                                       (uint8_t)strtoul((char[]){words[0], words[1], 0}, NULL, 16)),
                    0);
            }
        }
        words += size;
    }
}

/* A record without nodes, D3 or D4. */
static const char *const pickle_attributes[][2] = {
    {"round", "4b 00"},        {"complete", "89"},        {"deadline", "4e"},
    {"closed", "89"},          {"participants", "7d"},    {"wait_list", "8f"},
    {"redundancy_list", "8f"}, {"last_heartbeats", "7d"},
};
#define ATTRIBUTES_COUNT (sizeof pickle_attributes / sizeof pickle_attributes[0])

/* That record with up to four other attributes: name, words, name, words, ... NULL. No words: the
 * attribute is left out. */
static inline void assemble_record(struct mst__buf *output, const char *const changes[])
{
    mst__buf_init(output, MST_MIB(64));
    assemble_into(output, "80 04 @state 7d 28");
    for (size_t i = 0; i < ATTRIBUTES_COUNT; i++) {
        bool is_changed = false;
        for (size_t j = 0; changes[j] != NULL; j += 2) {
            is_changed |= strcmp(changes[j], pickle_attributes[i][0]) == 0;
        }
        if (!is_changed) {
            uint8_t head[] = {0x8c, (uint8_t)strlen(pickle_attributes[i][0])};
            assert_int_equal(mst__buf_append(output, mst_bytes_of(head, 2)), 0);
            assert_int_equal(mst__buf_append(output, mst_bytes_str(pickle_attributes[i][0])), 0);
            assemble_into(output, pickle_attributes[i][1]);
        }
    }
    for (size_t j = 0; changes[j] != NULL; j += 2) {
        if (changes[j + 1][0] != '\0') {
            uint8_t head[] = {0x8c, (uint8_t)strlen(changes[j])};
            assert_int_equal(mst__buf_append(output, mst_bytes_of(head, 2)), 0);
            assert_int_equal(mst__buf_append(output, mst_bytes_str(changes[j])), 0);
            assemble_into(output, changes[j + 1]);
        }
    }
    assemble_into(output, "75 62 2e");
}

#define RECORD(output, ...) \
    assemble_record((output), (const char *const[]){__VA_ARGS__, NULL, NULL})

/* Read @bytes from a block of exactly their size. */
static inline int read_exact(struct mst_bytes bytes, struct mst__state *ret_state)
{
    uint8_t *copy = mst__malloc(bytes.size == 0 ? 1 : bytes.size);
    assert_non_null(copy);
    if (bytes.size > 0) {
        memcpy(copy, bytes.data, bytes.size);
    }
    err = (struct mst_err){0};
    mst__state_init(ret_state);
    int rv = mst__pickle_read(mst_bytes_of(copy, bytes.size), ret_state, &err);
    mst__free(copy);
    if (rv != 0) {
        assert_int_equal(err.code, rv);
        assert_true(err.msg[0] != '\0');
        assert_int_equal(ret_state->members_count, 0);
        assert_null(ret_state->extra.data);
    }
    return rv;
}

/* Read the assembled record, which ends it; fails with the reason if it is refused. */
static inline void assert_reads(struct mst__buf *input, struct mst__state *ret_state)
{
    if (read_exact(mst__buf_bytes(input), ret_state) != 0) {
        fail_msg("refused: %s", err.msg);
        abort(); /* not reached, which analyzers do not know */
    }
    mst__buf_close(input);
}

/* It is refused with @code, and the reason has @part in it. */
static inline void assert_refused(struct mst__buf *input, int code, const char *part)
{
    struct mst__state state;
    int rv = read_exact(mst__buf_bytes(input), &state);
    if (rv != code || strstr(err.msg, part) == NULL) {
        fail_msg("gives %s: %s; wanted %s: %s", mst_errname(rv), err.msg, mst_errname(code), part);
    }
    mst__state_close(&state);
    mst__buf_close(input);
}

/* The same for opcodes that are the whole input. */
static inline void assert_refuses(const char *words, int code, const char *part)
{
    struct mst__buf input;
    mst__buf_init(&input, MST_MIB(64));
    assemble_into(&input, words);
    assert_refused(&input, code, part);
}

static inline mst__peer_id member(const struct mst__state *state, const char *addr, int64_t pid)
{
    struct mst__node node = {.addr = mst_bytes_str(addr), .pid = pid};
    return mst__state_find(state, &node);
}

#endif /* MST_UNIT_PICKLE_UNIT_H */
