/* codec/opcode.h - the opcodes of Python's pickle: those that the writer writes, that the reader
 * accepts, and that it refuses by name. */
#ifndef MST_CODEC_OPCODE_H
#define MST_CODEC_OPCODE_H

#include <stdint.h>

/* All of them, protocols 0 to 5. */
#define MST_PICKLE_MAP(X)     \
    X(0x28, MARK)             \
    X(0x29, EMPTY_TUPLE)      \
    X(0x2e, STOP)             \
    X(0x30, POP)              \
    X(0x31, POP_MARK)         \
    X(0x32, DUP)              \
    X(0x42, BINBYTES)         \
    X(0x43, SHORT_BINBYTES)   \
    X(0x46, FLOAT)            \
    X(0x47, BINFLOAT)         \
    X(0x49, INT)              \
    X(0x4a, BININT)           \
    X(0x4b, BININT1)          \
    X(0x4c, LONG)             \
    X(0x4d, BININT2)          \
    X(0x4e, NONE)             \
    X(0x50, PERSID)           \
    X(0x51, BINPERSID)        \
    X(0x52, REDUCE)           \
    X(0x53, STRING)           \
    X(0x54, BINSTRING)        \
    X(0x55, SHORT_BINSTRING)  \
    X(0x56, UNICODE)          \
    X(0x58, BINUNICODE)       \
    X(0x5d, EMPTY_LIST)       \
    X(0x61, APPEND)           \
    X(0x62, BUILD)            \
    X(0x63, GLOBAL)           \
    X(0x64, DICT)             \
    X(0x65, APPENDS)          \
    X(0x67, GET)              \
    X(0x68, BINGET)           \
    X(0x69, INST)             \
    X(0x6a, LONG_BINGET)      \
    X(0x6c, LIST)             \
    X(0x6f, OBJ)              \
    X(0x70, PUT)              \
    X(0x71, BINPUT)           \
    X(0x72, LONG_BINPUT)      \
    X(0x73, SETITEM)          \
    X(0x74, TUPLE)            \
    X(0x75, SETITEMS)         \
    X(0x7d, EMPTY_DICT)       \
    X(0x80, PROTO)            \
    X(0x81, NEWOBJ)           \
    X(0x82, EXT1)             \
    X(0x83, EXT2)             \
    X(0x84, EXT4)             \
    X(0x85, TUPLE1)           \
    X(0x86, TUPLE2)           \
    X(0x87, TUPLE3)           \
    X(0x88, NEWTRUE)          \
    X(0x89, NEWFALSE)         \
    X(0x8a, LONG1)            \
    X(0x8b, LONG4)            \
    X(0x8c, SHORT_BINUNICODE) \
    X(0x8d, BINUNICODE8)      \
    X(0x8e, BINBYTES8)        \
    X(0x8f, EMPTY_SET)        \
    X(0x90, ADDITEMS)         \
    X(0x91, FROZENSET)        \
    X(0x92, NEWOBJ_EX)        \
    X(0x93, STACK_GLOBAL)     \
    X(0x94, MEMOIZE)          \
    X(0x95, FRAME)            \
    X(0x96, BYTEARRAY8)       \
    X(0x97, NEXT_BUFFER)      \
    X(0x98, READONLY_BUFFER)

enum mst__pickle_opcode {
#define MST_PICKLE_ENUM(number, name) MST_PICKLE_##name = (number),
    MST_PICKLE_MAP(MST_PICKLE_ENUM)
#undef MST_PICKLE_ENUM
};

/* "BINGET" for 0x68; "unknown" if @opcode is not an opcode. Static memory. */
const char *mst__pickle_opcode_name(uint8_t opcode);

#endif /* MST_CODEC_OPCODE_H */
