/* codec/extra.c - writes values again, without the memo they came with.
 *
 * A shared value is written as often as it occurs; the limit of the output bounds that, since every
 * value takes at least a byte. Values are at most MST_PICKLE_DEPTH_MAX deep, so the path to a value
 * fits into an array, without recursion. */
#include "codec/extra.h"

#include "base/assert.h"
#include "codec/emit.h"

/* Opcodes of a class by name, and of timezone(timedelta(0, 0, 0)). */
#define EXTRA_CLASS(module, name) "c" module "\n" name "\n"
#define EXTRA_NO_SPAN EXTRA_CLASS("datetime", "timedelta") "K\0K\0K\0\x87R"
#define EXTRA_UTC EXTRA_CLASS("datetime", "timezone") EXTRA_NO_SPAN "\x85R"
#define EXTRA_NODE EXTRA_CLASS(MST_PICKLE_MODULE, MST_PICKLE_NODE) ")\x81"
#define EXTRA_DATETIME EXTRA_CLASS("datetime", "datetime")

/* The bytes of a literal, without its NUL. */
#define EXTRA_BYTES(literal) mst_bytes_of((literal), sizeof(literal) - 1)

/* A value whose items are being written. */
struct extra_level {
    struct mst__machine_cursor cursor;
    uint32_t count;
    uint8_t kind;
};

/* Text, bytes and numbers, which are in the input. */
static int extra_bytes(struct mst__buf *output, enum mst__value_kind kind, struct mst_bytes bytes)
{
    int rv = 0;
    uint8_t *start = mst__buf_reserve(output, MST_EMIT_BYTES_SIZE + bytes.size, &rv);
    if (start == NULL) {
        return rv;
    }
    uint8_t *to = start;
    if (kind == MST_VALUE_TEXT) {
        to = mst__emit_text(to, bytes);
    } else if (kind == MST_VALUE_BYTES) {
        to = mst__emit_bytes(to, bytes);
    } else if (kind == MST_VALUE_FLOAT) {
        *to++ = MST_PICKLE_BINFLOAT;
        to = mst__emit_raw(to, bytes.data, bytes.size);
    } else {
        MST_ASSERT(kind == MST_VALUE_LONG);
        MST_ASSERT(bytes.size <= UINT8_MAX);
        *to++ = MST_PICKLE_LONG1;
        *to++ = (uint8_t)bytes.size;
        to = mst__emit_raw(to, bytes.data, bytes.size);
    }
    mst__buf_commit(output, (size_t)(to - start));
    return 0;
}

static int extra_time(struct mst__buf *output,
                      const struct mst__machine *machine,
                      const struct mst__value *value)
{
    bool is_aware = value->kind == MST_VALUE_AWARE_TIME;
    int rv = mst__buf_append(output, EXTRA_BYTES(EXTRA_DATETIME));
    if (rv == 0) {
        rv = extra_bytes(output, MST_VALUE_BYTES, mst__machine_bytes(machine, value));
    }
    if (rv == 0 && is_aware) {
        rv = mst__buf_append(output, EXTRA_BYTES(EXTRA_UTC));
    }
    if (rv == 0) {
        rv = mst__buf_append(output, is_aware ? EXTRA_BYTES("\x86R") : EXTRA_BYTES("\x85R"));
    }
    return rv;
}

static int extra_int(struct mst__buf *output, int64_t number)
{
    int rv = 0;
    uint8_t *to = mst__buf_reserve(output, MST_EMIT_INT_SIZE, &rv);
    if (to != NULL) {
        mst__buf_commit(output, (size_t)(mst__emit_int(to, number) - to));
    }
    return rv;
}

/* A value without items. */
static int extra_leaf(struct mst__buf *output,
                      const struct mst__machine *machine,
                      const struct mst__value *value)
{
    switch (value->kind) {
        case MST_VALUE_NONE:
            return mst__buf_append_u8(output, MST_PICKLE_NONE);
        case MST_VALUE_FALSE:
            return mst__buf_append_u8(output, MST_PICKLE_NEWFALSE);
        case MST_VALUE_TRUE:
            return mst__buf_append_u8(output, MST_PICKLE_NEWTRUE);
        case MST_VALUE_INT:
            return extra_int(output, (int32_t)value->at);
        case MST_VALUE_NO_SPAN:
            return mst__buf_append(output, EXTRA_BYTES(EXTRA_NO_SPAN));
        case MST_VALUE_UTC:
            return mst__buf_append(output, EXTRA_BYTES(EXTRA_UTC));
        case MST_VALUE_NAIVE_TIME:
        case MST_VALUE_AWARE_TIME:
            return extra_time(output, machine, value);
        case MST_VALUE_CLASS:
            return MST_EPROTO;
        default:
            return extra_bytes(output, (enum mst__value_kind)value->kind,
                               mst__machine_bytes(machine, value));
    }
}

/* The part before the items. */
static int extra_open(struct mst__buf *output,
                      const struct mst__machine *machine,
                      const struct mst__value *value)
{
    const struct mst__object *object = &machine->objects[value->at];
    struct mst_bytes opening;
    if (value->kind == MST_VALUE_DICT) {
        opening = EXTRA_BYTES("}(");
    } else if (value->kind == MST_VALUE_SET) {
        opening = EXTRA_BYTES("\x8f(");
    } else if (value->kind == MST_VALUE_LIST) {
        opening = EXTRA_BYTES("](");
    } else if (value->kind == MST_VALUE_TUPLE) {
        opening = object->count > 3 ? EXTRA_BYTES("(") : EXTRA_BYTES("");
    } else if (object->type == MST_CLASS_NODE) {
        opening = EXTRA_BYTES(EXTRA_NODE "}(");
    } else {
        return MST_EPROTO; /* a state within the state */
    }
    /* Python writes nothing for an empty container; an empty group would also be correct. */
    if (object->count == 0 && value->kind != MST_VALUE_TUPLE) {
        opening.size--;
    }
    return mst__buf_append(output, opening);
}

/* The part after the items. */
static int extra_close(struct mst__buf *output, const struct extra_level *level)
{
    static const uint8_t tuples[] = {MST_PICKLE_EMPTY_TUPLE, MST_PICKLE_TUPLE1, MST_PICKLE_TUPLE2,
                                     MST_PICKLE_TUPLE3, MST_PICKLE_TUPLE};
    if (level->kind == MST_VALUE_TUPLE) {
        return mst__buf_append_u8(output, tuples[level->count > 3 ? 4 : level->count]);
    }
    int rv = 0;
    if (level->count > 0) {
        rv = mst__buf_append_u8(output, level->kind == MST_VALUE_SET    ? MST_PICKLE_ADDITEMS
                                        : level->kind == MST_VALUE_LIST ? MST_PICKLE_APPENDS
                                                                        : MST_PICKLE_SETITEMS);
    }
    if (rv == 0 && level->kind == MST_VALUE_INSTANCE) {
        rv = mst__buf_append_u8(output, MST_PICKLE_BUILD);
    }
    return rv;
}

static int extra_value(struct mst__buf *output,
                       const struct mst__machine *machine,
                       const struct mst__value *value)
{
    struct extra_level levels[MST_PICKLE_DEPTH_MAX];
    size_t depth = 0;
    for (;;) {
        int rv;
        if (value->kind < MST_VALUE_TUPLE) {
            rv = extra_leaf(output, machine, value);
        } else {
            rv = extra_open(output, machine, value);
            MST_ASSERT(depth < MST_PICKLE_DEPTH_MAX);
            levels[depth++] = (struct extra_level){.cursor = mst__machine_items(machine, value->at),
                                                   .count = machine->objects[value->at].count,
                                                   .kind = (uint8_t)value->kind};
        }
        value = NULL;
        while (rv == 0 && depth > 0 && value == NULL) {
            value = mst__machine_next(machine, &levels[depth - 1].cursor);
            if (value == NULL) {
                rv = extra_close(output, &levels[--depth]);
            }
        }
        if (rv != 0 || value == NULL) {
            return rv;
        }
    }
}

int mst__extra_write(struct mst__buf *output,
                     const struct mst__machine *machine,
                     const struct mst__value *key,
                     const struct mst__value *value)
{
    int rv = extra_bytes(output, MST_VALUE_TEXT, mst__machine_bytes(machine, key));
    return rv != 0 ? rv : extra_value(output, machine, value);
}
