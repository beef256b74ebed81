/* wire/opcode.h - the opcode of each operation in each dialect, and the form of its request. */
#ifndef MST_WIRE_OPCODE_H
#define MST_WIRE_OPCODE_H

#include "wire/wire.h"

enum mst__wire_shape {
    MST_SHAPE_EMPTY,           /* nothing */
    MST_SHAPE_NONCE,           /* u32 */
    MST_SHAPE_KEY,             /* key */
    MST_SHAPE_KEY_NUMBER,      /* key, i64 */
    MST_SHAPE_KEY_VALUE,       /* key, value */
    MST_SHAPE_KEY_VALUE_VALUE, /* key, expected, desired */
    MST_SHAPE_KEYS,            /* u64 count, keys */
    MST_SHAPE_PAIRS,           /* u64 count, key and value in turn */
};

#define MST_OPCODE_NONE 0xff

/* operation, A, B, C, form of the request, kind of the reply. Opcode 0 of dialect C is VALIDATE,
 * which is part of the start of a connection and not an operation. Opcodes from 0x40 on are
 * ours. */
#define MST_OPCODE_MAP(X)                                                \
    X(SET, 0, 0, 1, KEY_VALUE, NONE)                                     \
    X(COMPARE_SET, 1, 1, 2, KEY_VALUE_VALUE, BYTES)                      \
    X(GET, 2, 2, 3, KEY, BYTES)                                          \
    X(ADD, 3, 3, 4, KEY_NUMBER, NUMBER)                                  \
    X(CHECK, 4, 4, 5, KEYS, STATUS)                                      \
    X(WAIT, 5, 5, 6, KEYS, STATUS)                                       \
    X(NUM_KEYS, 6, 6, 7, EMPTY, NUMBER)                                  \
    X(WATCH, 7, MST_OPCODE_NONE, MST_OPCODE_NONE, KEY, STATUS)           \
    X(DELETE, 8, 7, 8, KEY, NUMBER)                                      \
    X(APPEND, MST_OPCODE_NONE, 8, 9, KEY_VALUE, NONE)                    \
    X(MULTI_GET, MST_OPCODE_NONE, 9, 10, KEYS, ITEMS)                    \
    X(MULTI_SET, MST_OPCODE_NONE, 10, 11, PAIRS, NONE)                   \
    X(CANCEL_WAIT, MST_OPCODE_NONE, 11, 12, EMPTY, STATUS)               \
    X(PING, MST_OPCODE_NONE, MST_OPCODE_NONE, 13, NONCE, ECHO)           \
    X(QUEUE_PUSH, MST_OPCODE_NONE, MST_OPCODE_NONE, 14, KEY_VALUE, NONE) \
    X(QUEUE_POP, MST_OPCODE_NONE, MST_OPCODE_NONE, 15, KEY, POP)         \
    X(QUEUE_LEN, MST_OPCODE_NONE, MST_OPCODE_NONE, 16, KEY, NUMBER)      \
    X(LIST_KEYS, MST_OPCODE_NONE, MST_OPCODE_NONE, 17, EMPTY, LIST)      \
    X(BARRIER, MST_OPCODE_NONE, MST_OPCODE_NONE, 18, KEY_NUMBER, STATUS) \
    X(WAIT_CHANGE, MST_OPCODE_NONE, MST_OPCODE_NONE, 0x41, KEY_NUMBER, STATUS)

struct mst__opcode {
    uint8_t a, b, c;
    enum mst__wire_shape shape;
    enum mst__reply_kind reply;
};

/* The row of @op. */
const struct mst__opcode *mst__opcode_of(enum mst__op op);

/* The opcode of @op in @dialect (A, B or C), MST_OPCODE_NONE if it has none. */
uint8_t mst__opcode_in(enum mst__dialect dialect, enum mst__op op);

/* The operation with @opcode in @dialect (A, B or C); false if there is none. */
bool mst__opcode_find(enum mst__dialect dialect, uint8_t opcode, enum mst__op *ret_op);

#endif /* MST_WIRE_OPCODE_H */
