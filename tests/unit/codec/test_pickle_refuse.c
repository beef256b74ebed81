/* unit/codec/test_pickle_refuse.c - input that the reader of records refuses, with the position
 * in the error. */
#include "codec/opcode.h"
#include "unit/codec/pickle_unit.h"

static const uint8_t allowed_opcodes[] = {
    MST_PICKLE_FRAME,        MST_PICKLE_STOP,           MST_PICKLE_MARK,
    MST_PICKLE_NONE,         MST_PICKLE_NEWTRUE,        MST_PICKLE_NEWFALSE,
    MST_PICKLE_BININT,       MST_PICKLE_BININT1,        MST_PICKLE_BININT2,
    MST_PICKLE_LONG1,        MST_PICKLE_BINUNICODE,     MST_PICKLE_SHORT_BINUNICODE,
    MST_PICKLE_BINUNICODE8,  MST_PICKLE_SHORT_BINBYTES, MST_PICKLE_BINBYTES,
    MST_PICKLE_EMPTY_DICT,   MST_PICKLE_SETITEM,        MST_PICKLE_SETITEMS,
    MST_PICKLE_EMPTY_SET,    MST_PICKLE_ADDITEMS,       MST_PICKLE_EMPTY_LIST,
    MST_PICKLE_APPEND,       MST_PICKLE_APPENDS,        MST_PICKLE_EMPTY_TUPLE,
    MST_PICKLE_TUPLE1,       MST_PICKLE_TUPLE2,         MST_PICKLE_TUPLE3,
    MST_PICKLE_TUPLE,        MST_PICKLE_MEMOIZE,        MST_PICKLE_BINPUT,
    MST_PICKLE_LONG_BINPUT,  MST_PICKLE_BINGET,         MST_PICKLE_LONG_BINGET,
    MST_PICKLE_STACK_GLOBAL, MST_PICKLE_GLOBAL,         MST_PICKLE_NEWOBJ,
    MST_PICKLE_REDUCE,       MST_PICKLE_BUILD,          MST_PICKLE_BINFLOAT,
};

/* Every byte as an opcode at byte 3: refused by name unless it is on the list. */
static void opcodes(void **state)
{
    (void)state;
    for (int opcode = 0; opcode < 256; opcode++) {
        struct mst__buf input;
        mst__buf_init(&input, MST_KIB(1));
        assemble_into(&input, "80 04 4e");
        assert_int_equal(mst__buf_append_u8(&input, (uint8_t)opcode), 0);
        bool is_allowed = memchr(allowed_opcodes, opcode, sizeof allowed_opcodes) != NULL;
        struct mst__state read;
        assert_int_equal(read_exact(mst__buf_bytes(&input), &read), MST_EPROTO);
        assert_int_equal(strstr(err.msg, "is not allowed in a record") == NULL, is_allowed);
        if (!is_allowed) {
            char wanted[80];
            (void)snprintf(wanted, sizeof wanted, "byte 3: opcode %s (0x%02x)",
                           mst__pickle_opcode_name((uint8_t)opcode), (unsigned)opcode);
            assert_non_null(strstr(err.msg, wanted));
        }
        mst__buf_close(&input);
    }
    assert_string_equal(mst__pickle_opcode_name(0x82), "EXT1");
    assert_string_equal(mst__pickle_opcode_name(0x92), "NEWOBJ_EX");
    assert_string_equal(mst__pickle_opcode_name('i'), "INST");
    assert_string_equal(mst__pickle_opcode_name('Q'), "BINPERSID");
    assert_string_equal(mst__pickle_opcode_name(0x00), "unknown");
}

static void beginnings_and_ends(void **state)
{
    (void)state;
    assert_refuses("", MST_EPROTO, "not a pickle");
    assert_refuses("80", MST_EPROTO, "not a pickle");
    assert_refuses("7d 2e", MST_EPROTO, "not a pickle");
    assert_refuses("80 01 4e 2e", MST_EPROTO, "protocol 1");
    assert_refuses("80 06 4e 2e", MST_EPROTO, "protocol 6");
    assert_refuses("80 04", MST_EPROTO, "byte 2, STOP: missing");
    assert_refuses("80 04 2e", MST_EPROTO, "not exactly one value");
    assert_refuses("80 04 4e 4e 2e", MST_EPROTO, "not exactly one value");
    assert_refuses("80 04 4e 28 2e", MST_EPROTO, "not exactly one value");
    assert_refuses("80 04 4e 2e 2e", MST_EPROTO, "bytes follow");
    assert_refuses("80 04 4e 2e", MST_EPROTO, "not of a rendezvous state");
    assert_refuses("80 04 @a1 2e", MST_EPROTO, "not of a rendezvous state");
    assert_refuses("80 04 @state 2e", MST_EPROTO, "not of a rendezvous state");
    assert_refuses("80 04 95 02 00 00 00 00 00 00 00 2e", MST_EPROTO, "frame is longer");
    assert_refuses("80 04 95 ff ff ff ff ff ff ff ff 2e", MST_EPROTO, "frame is longer");
    assert_refuses("80 04 80 04 4e 2e", MST_EPROTO, "opcode PROTO");
}

/* Lengths beyond the input, of any width. */
static void lengths(void **state)
{
    (void)state;
    static const char *const inputs[] = {
        "80 04 8c 02 61",
        "80 04 58 02 00 00 00 61",
        "80 04 58 ff ff ff ff 61",
        "80 04 8d 02 00 00 00 00 00 00 00 61",
        "80 04 8d ff ff ff ff ff ff ff ff 61",
        "80 04 43 02 61",
        "80 04 42 ff ff ff ff 61",
        "80 04 8a ff 61",
        "80 04 47 00 00 00 00 00 00 00",
        "80 04 4a 00 00 00",
        "80 04 4d 00",
        "80 04 4b",
        "80 04 4e 71",
        "80 04 4e 72 00 00 00",
        "80 04 68",
        "80 04 6a 00 00 00",
        "80 04 63 'datetime'",
        "80 04 63 'datetime' 0a 'datetime'",
        "80 04 63",
        "80 04 95 00 00 00 00 00 00 00",
    };
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        assert_refuses(inputs[i], MST_EPROTO, "the input ends inside of it");
    }
    assert_refuses("80 04 8c 01 ff 2e", MST_EPROTO, "not UTF-8");
    assert_refuses("80 04 8c 02 c0 80 2e", MST_EPROTO, "not UTF-8");
    assert_refuses("80 04 8c 03 e0 80 80 2e", MST_EPROTO, "not UTF-8");
    assert_refuses("80 04 8c 04 f4 90 80 80 2e", MST_EPROTO, "not UTF-8");
    assert_refuses("80 04 8c 09 'abcdefgh' c3 2e", MST_EPROTO, "not UTF-8");
}

/* Operations with too few or wrong operands. */
static void stack(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        const char *part;
    } cases[] = {
        {"80 04 81", "NEWOBJ: the stack holds too little"},
        {"80 04 52", "REDUCE: the stack holds too little"},
        {"80 04 62", "BUILD: the stack holds too little"},
        {"80 04 73", "SETITEM: the stack holds too little"},
        {"80 04 61", "APPEND: the stack holds too little"},
        {"80 04 85", "TUPLE1: the stack holds too little"},
        {"80 04 4e 87", "TUPLE3: the stack holds too little"},
        {"80 04 93", "STACK_GLOBAL: the stack holds too little"},
        {"80 04 94", "MEMOIZE: the stack holds too little"},
        {"80 04 75", "SETITEMS: there is no mark"},
        {"80 04 65", "APPENDS: there is no mark"},
        {"80 04 90", "ADDITEMS: there is no mark"},
        {"80 04 74", "TUPLE: there is no mark"},
        /* Values below a mark are out of reach. */
        {"80 04 7d 4e 28 4e 73", "SETITEM: the stack holds too little"},
        {"80 04 4e 28 85", "TUPLE1: the stack holds too little"},
        {"80 04 4e 28 94", "MEMOIZE: the stack holds too little"},
        {"80 04 28 4e 75", "SETITEMS: the stack holds too little"},
        {"80 04 7d 28 28 4e 4e 75", "SETITEMS: the stack holds too little"},
        {"80 04 7d 28 4e 75", "a key has no value"},
        {"80 04 5d 4e 4e 73", "of another kind"},
        {"80 04 7d 4e 61", "of another kind"},
        {"80 04 8f 28 4e 65", "of another kind"},
        {"80 04 5d 28 4e 90", "of another kind"},
        {"80 04 29 28 4e 65", "of another kind"},
        {"80 04 7d 5d 4e 73", "cannot be a key"},
        {"80 04 7d 5d 85 4e 73", "cannot be a key"},
        {"80 04 8f 28 7d 90", "cannot be a key"},
        {"80 04 4e 4e 93", "not text"},
        {"80 04 68 00", "BINGET: nothing was stored"},
        {"80 04 4e 71 05 68 04", "BINGET: nothing was stored"},
        {"80 04 6a 00 00 01 00", "LONG_BINGET: nothing was stored"},
        {"80 04 4e 72 ff ff ff ff 2e", "beyond all that could have been stored"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_refuses(cases[i].words, MST_EPROTO, cases[i].part);
    }
}

/* Names that are not on the list, and listed names with wrong arguments. */
static void classes(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        const char *part;
    } cases[] = {
        {"80 04 \"builtins\" \"eval\" 93", "'builtins.eval' is not allowed"},
        {"80 04 63 'os' 0a 'system' 0a", "'os.system' is not allowed"},
        {"80 04 63 'datetime' 0a 'date' 0a", "'datetime.date' is not allowed"},
        {"80 04 63 'datetime' 0a 0a", "'datetime.' is not allowed"},
        {"80 04 63 'bad' 1b '[2J' 0a 'name' 0a", "'bad?[2J.name' is not allowed"},
        {"80 04 \"torch.distributed.elastic.rendezvous.dynamic_rendezvous\" \"_Backoff\" 93",
         "_Backoff"},
        {"80 04 @datetime 29 81", "only states and nodes"},
        {"80 04 @set 29 81", "only states and nodes"},
        {"80 04 4e 29 81", "only states and nodes"},
        {"80 04 63 'torch.distributed.elastic.rendezvous.dynamic_rendezvous' 0a '_NodeDesc' 0a 4e "
         "85 81",
         "not an empty tuple"},
        {"80 04 63 'torch.distributed.elastic.rendezvous.dynamic_rendezvous' 0a '_NodeDesc' 0a 5d "
         "81",
         "not an empty tuple"},
        {"80 04 @node 7d 62 7d 62", "has its attributes already"},
        {"80 04 @node 94 85 68 00 7d 62", "before it has its attributes"},
        {"80 04 @node 4e 62", "not a dict for a state or a node"},
        {"80 04 @node 29 62", "not a dict for a state or a node"},
        {"80 04 7d 7d 62", "not a dict for a state or a node"},
        {"80 04 @node 7d 4e 4e 73 62", "name of an attribute is not text"},
        {"80 04 4e 29 52", "not a class and a tuple"},
        {"80 04 @set 5d 52", "not a class and a tuple"},
        {"80 04 @set 29 52", "not on the list"},
        {"80 04 @set 29 85 52", "not on the list"},
        {"80 04 @set 5d 5d 86 52", "not on the list"},
        {"80 04 @set 5d 28 5d 65 85 52", "cannot be a key"},
        {"80 04 @node 29 52", "not a class and a tuple"},
        {"80 04 63 'torch.distributed.elastic.rendezvous.dynamic_rendezvous' 0a '_NodeDesc' 0a 29 "
         "52",
         "not on the list"},
        {"80 04 @timedelta 4b 00 4b 00 86 52", "not on the list"},
        {"80 04 @timedelta 4b 00 4b 01 4b 00 87 52", "not on the list"},
        {"80 04 @timedelta 4b 00 4b 00 89 87 52", "not on the list"},
        {"80 04 @timedelta 28 4b 00 4b 00 4b 00 4b 00 74 52", "not on the list"},
        {"80 04 @timezone 29 52", "not on the list"},
        {"80 04 @timezone 4e 85 52", "not on the list"},
        {"80 04 @timezone @utc 85 52", "not on the list"},
        {"80 04 @datetime 29 52", "10 bytes"},
        {"80 04 @datetime 43 09 07 ea 05 08 0d 25 2d 01 e2 85 52", "10 bytes"},
        {"80 04 @datetime 43 0b 07 ea 05 08 0d 25 2d 01 e2 40 40 85 52", "10 bytes"},
        {"80 04 @datetime \"0123456789\" 85 52", "10 bytes"},
        {"80 04 @datetime @bytes 4e 86 52", "10 bytes"},
        {"80 04 @datetime @bytes @utc @utc 87 52", "10 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_refuses(cases[i].words, MST_EPROTO, cases[i].part);
    }
}

static void dates(void **state)
{
    (void)state;
    static const char *const bytes[] = {
        "00 00 01 01 00 00 00 00 00 00", /* year 0 */
        "27 10 01 01 00 00 00 00 00 00", /* year 10000 */
        "07 ea 00 01 00 00 00 00 00 00", "07 ea 0d 01 00 00 00 00 00 00",
        "07 ea 01 00 00 00 00 00 00 00", "07 ea 01 20 00 00 00 00 00 00",
        "07 ea 04 1f 00 00 00 00 00 00", "07 ea 02 1d 00 00 00 00 00 00",
        "07 6c 02 1d 00 00 00 00 00 00", /* 1900 was no leap year */
        "07 ea 01 01 18 00 00 00 00 00", "07 ea 01 01 00 3c 00 00 00 00",
        "07 ea 01 01 00 00 3c 00 00 00", "07 ea 01 01 00 00 00 0f 42 40",
        "07 ea 8d 01 00 00 00 00 00 00",
    };
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        char words[120];
        (void)snprintf(words, sizeof words, "80 04 @datetime 43 0a %s 85 52", bytes[i]);
        assert_refuses(words, MST_EPROTO, "no such date");
    }
    static const char *const fine[] = {
        "00 01 01 01 00 00 00 00 00 00", "27 0f 0c 1f 17 3b 3b 0f 42 3f",
        "07 d0 02 1d 00 00 00 00 00 00", "07 e8 02 1d 00 00 00 00 00 00",
        "07 ea 85 08 0d 25 2d 01 e2 40", /* the second of two equal times */
    };
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        char words[120];
        (void)snprintf(words, sizeof words, "80 04 @datetime 43 0a %s 85 52 2e", fine[i]);
        assert_refuses(words, MST_EPROTO, "not of a rendezvous state");
    }
}

/* Nothing can contain itself, in any way. */
static void cycles(void **state)
{
    (void)state;
    static const char *const inputs[] = {
        "80 04 7d 94 4e 68 00 73",             /* a dict as its own value */
        "80 04 5d 94 68 00 61",                /* a list in itself */
        "80 04 5d 94 28 68 00 65",             /* the same with a mark */
        "80 04 5d 94 68 00 85 61",             /* by a tuple */
        "80 04 5d 94 5d 94 68 00 61 61",       /* by another list, which is full when it goes in */
        "80 04 5d 94 5d 94 61 68 01 68 00 61", /* by another list that is filled afterwards */
        "80 04 7d 94 4e 7d 94 73 68 01 4e 68 00 73",
        "80 04 5d 94 85 68 00 4e 61", /* a change from behind, though no cycle */
    };
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        assert_refuses(inputs[i], MST_EPROTO, "changes what is already part of another value");
    }
    assert_refuses("80 04 @node 94 7d 94 \"a\" 68 00 73", MST_EPROTO,
                   "before it has its attributes");
    /* A dict that is its own object's attributes and then grows. */
    assert_refuses("80 04 @node 7d 94 62 68 00 \"a\" 4e 73", MST_EPROTO, "already part of another");
}

static void limits(void **state)
{
    (void)state;
    assert_refuses("80 04 *64 28 4e 2e", MST_EPROTO, "not exactly one value");
    assert_refuses("80 04 *65 28 4e 2e", MST_ELIMIT, "too many marks");
    assert_refuses("80 04 29 *64 85 2e", MST_ELIMIT, "nested too deeply");
    assert_refuses("80 04 29 *63 85 2e", MST_EPROTO, "not of a rendezvous state");
    assert_refuses("80 04 *100000 5d 2e", MST_ELIMIT, "EMPTY_LIST: needs too much memory");
    struct mst__buf input;
    mst__buf_init(&input, MST_MIB(64));
    assemble_into(&input, "80 04 *16777216 4e 2e");
    assert_refused(&input, MST_ELIMIT, "at most 16777216 are read");
}

/* A tuple of the same tuple twice, and so on: small here, huge when written out. */
static void unfolding(void **state)
{
    (void)state;
    char words[700] = "29";
    for (unsigned i = 0; i < 40; i++) {
        size_t size = strlen(words);
        (void)snprintf(words + size, sizeof words - size, " 71 %02x 68 %02x 86", i, i);
    }
    struct mst__buf input;
    RECORD(&input, "unknown", words);
    assert_refused(&input, MST_ELIMIT, "unknown attribute 1 cannot be preserved");
    /* As a value that is not carried along it costs nothing. */
    RECORD(&input, "round", words);
    assert_refused(&input, MST_EPROTO, "round: is not an integer");
}

static void too_many_unknown(void **state)
{
    (void)state;
    struct mst__buf input;
    mst__buf_init(&input, MST_KIB(64));
    assemble_into(&input, "80 04 @state 7d 28");
    for (unsigned i = 0; i <= MST_PICKLE_EXTRAS_MAX; i++) {
        char words[20];
        (void)snprintf(words, sizeof words, "\"x%02u\" 4e", i);
        assemble_into(&input, words);
    }
    assemble_into(&input, "75 62 2e");
    assert_refused(&input, MST_ELIMIT, "more than 64 unknown attributes");
}

static void missing_attributes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ATTRIBUTES_COUNT; i++) {
        const char *name = pickle_attributes[i][0];
        struct mst__buf input;
        RECORD(&input, name, "");
        if (strcmp(name, "redundancy_list") == 0) {
            struct mst__state read;
            assert_reads(&input, &read);
            assert_int_equal(read.dialect, MST_RECORD_D1);
            mst__state_close(&read);
        } else {
            char part[60];
            (void)snprintf(part, sizeof part, "%s: is missing", name);
            assert_refused(&input, MST_EPROTO, part);
        }
    }
}

static void wrong_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *words;
        const char *part;
    } cases[] = {
        {"round", "4e", "not an integer"},
        {"round", "88", "not an integer"},
        {"round", "47 00 00 00 00 00 00 00 00", "not an integer"},
        {"round", "8a 09 00 00 00 00 00 00 00 80 00", "not an integer"},
        {"complete", "4b 01", "not a bool"},
        {"complete", "4e", "not a bool"},
        {"closed", "\"x\"", "not a bool"},
        {"deadline", "4b 00", "not a datetime"},
        {"deadline", "@utc", "not a datetime"},
        {"participants", "8f", "not a dict"},
        {"participants", "4e", "not a dict"},
        {"participants", "7d 4b 01 4b 00 73", "not a node"},
        {"participants", "7d @state 7d 62 4b 00 73", "cannot be a key"},
        {"participants", "7d @a1 4e 73", "rank is not an integer"},
        {"participants", "7d @a1 88 73", "rank is not an integer"},
        {"wait_list", "7d", "not a set"},
        {"wait_list", "5d", "not a set"},
        {"wait_list", "29", "not a set"},
        {"wait_list", "8f 28 \"a\" 90", "not a node"},
        {"redundancy_list", "4e", "not a set"},
        {"redundancy_list", "8f 28 @f1 90", "fqdn"},
        {"last_heartbeats", "8f", "not a dict"},
        {"last_heartbeats", "7d @a1 4b 00 73", "not a datetime"},
        {"last_heartbeats", "7d @a1 4e 73", "not a datetime"},
        {"muster_seal", "4e", "not a tuple"},
        {"muster_seal", "29", "not a tuple"},
        {"muster_seal", "4b 01 4b 00 86", "not a tuple"},
        {"muster_seal", "4b 01 88 86", "not a tuple"},
        {"muster_seal", "4b 01 4b 01 4b 01 87", "not a tuple"},
        {"muster_nodes", "4e", "not a set"},
        {"muster_nodes", "7d", "not a set"},
        {"muster_nodes", "8f 28 4b 01 90", "not a node"},
        {"muster_nodes", "8f 28 @node 7d \"addr\" \"a\" 73 62 90", "a node must have"},
        {"unknown", "@datetime", "cannot be preserved: it refers to a class"},
        {"unknown", "5d @set 61", "unknown attribute 1"},
        {"unknown", "@state 7d 62", "cannot be preserved"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__buf input;
        RECORD(&input, cases[i].name, cases[i].words);
        assert_refused(&input, MST_EPROTO, cases[i].part);
    }
}

static void bad_nodes(void **state)
{
    (void)state;
    static const struct {
        const char *attributes;
        const char *part;
    } cases[] = {
        {"", "must have an address"},
        {"\"addr\" \"a\" \"pid\" 4b 01", "must have an address"},
        {"\"pid\" 4b 01 \"local_id\" 4b 00", "must have an address"},
        {"\"addr\" 4e \"pid\" 4b 01 \"local_id\" 4b 00", "must have an address"},
        {"\"addr\" \"a\" \"pid\" \"1\" \"local_id\" 4b 00", "must have an address"},
        {"\"addr\" \"a\" \"pid\" 4b 01 \"local_id\" 88", "must have an address"},
        {"\"addr\" \"a\" \"pid\" 8a 09 00 00 00 00 00 00 00 80 00 \"local_id\" 4b 00",
         "must have an address"},
        {"\"addr\" \"a\" \"fqdn\" \"a\" \"pid\" 4b 01 \"local_id\" 4b 00",
         "both an addr and an fqdn"},
        {"\"addr\" \"a\" \"pid\" 4b 01 \"local_id\" 4b 00 \"zone\" 4e", "unknown attribute"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[200];
        (void)snprintf(words, sizeof words, "8f 28 @node 7d 28 %s 75 62 90", cases[i].attributes);
        struct mst__buf input;
        RECORD(&input, "wait_list", words);
        assert_refused(&input, MST_EPROTO, cases[i].part);
    }
}

/* No release writes such mixtures. */
static void mixed_dialects(void **state)
{
    (void)state;
    struct mst__buf input;
    RECORD(&input, "wait_list", "8f 28 @a1 @f1 90");
    assert_refused(&input, MST_EPROTO, "others an addr");
    RECORD(&input, "last_heartbeats", "7d 28 @a1 @naive @b2 @aware 75");
    assert_refused(&input, MST_EPROTO, "times with a zone");
    RECORD(&input, "deadline", "@naive", "last_heartbeats", "7d @a1 @aware 73");
    assert_refused(&input, MST_EPROTO, "times with a zone");
    RECORD(&input, "redundancy_list", "", "last_heartbeats", "7d @a1 @aware 73");
    assert_refused(&input, MST_EPROTO, "times with a zone");
    RECORD(&input, "last_heartbeats", "7d @f1 @aware 73");
    assert_refused(&input, MST_EPROTO, "times with a zone");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opcodes),
        cmocka_unit_test(beginnings_and_ends),
        cmocka_unit_test(lengths),
        cmocka_unit_test(stack),
        cmocka_unit_test(classes),
        cmocka_unit_test(dates),
        cmocka_unit_test(cycles),
        cmocka_unit_test(limits),
        cmocka_unit_test(unfolding),
        cmocka_unit_test(too_many_unknown),
        cmocka_unit_test(missing_attributes),
        cmocka_unit_test(wrong_kinds),
        cmocka_unit_test(bad_nodes),
        cmocka_unit_test(mixed_dialects),
    };
    return MST_RUN_TESTS(tests);
}
