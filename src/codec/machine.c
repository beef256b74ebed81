/* codec/machine.c - runs a pickle of the allow-listed subset, one function per opcode.
 *
 * Time is linear in the input; memory is at most MST_PICKLE_MEMORY_FACTOR times its size, plus a
 * constant. */
#include "codec/machine.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/unicode.h"
#include "codec/datetime.h"
#include "codec/opcode.h"
#include "codec/stack.h"

#define MACHINE_MEMORY_BASE MST_KIB(64)
#define MACHINE_NAME_SHOWN 60 /* bytes of a foreign name in a message */
#define PROTOCOL_MIN 2
#define PROTOCOL_MAX 5

struct machine_class {
    const char *module;
    const char *name;
};

static const struct machine_class machine_classes[MST_CLASS_COUNT] = {
    [MST_CLASS_STATE] = {MST_PICKLE_MODULE, MST_PICKLE_STATE},
    [MST_CLASS_NODE] = {MST_PICKLE_MODULE, MST_PICKLE_NODE},
    [MST_CLASS_DATETIME] = {"datetime", "datetime"},
    [MST_CLASS_TIMEZONE] = {"datetime", "timezone"},
    [MST_CLASS_TIMEDELTA] = {"datetime", "timedelta"},
    [MST_CLASS_SET] = {"builtins", "set"},
};

/* --- operations: plain values --- */

static int op_frame(struct mst__machine *machine)
{
    uint64_t size;
    int rv = mst__machine_take_number(machine, 8, &size);
    if (rv == 0 && size > machine->input.size - machine->offset) {
        rv = mst__machine_refuse(machine, "the frame is longer than the input");
    }
    return rv;
}

static int op_none(struct mst__machine *machine)
{
    return mst__machine_push(machine, mst__machine_value(MST_VALUE_NONE, 0, 0));
}

static int op_newtrue(struct mst__machine *machine)
{
    return mst__machine_push(machine, mst__machine_value(MST_VALUE_TRUE, 0, 0));
}

static int op_newfalse(struct mst__machine *machine)
{
    return mst__machine_push(machine, mst__machine_value(MST_VALUE_FALSE, 0, 0));
}

static int machine_push_int(struct mst__machine *machine, size_t size)
{
    uint64_t raw;
    int rv = mst__machine_take_number(machine, size, &raw);
    return rv != 0
               ? rv
               : mst__machine_push(machine, mst__machine_value(MST_VALUE_INT, (uint32_t)raw, 0));
}

static int op_binint(struct mst__machine *machine)
{
    return machine_push_int(machine, 4);
}

static int op_binint1(struct mst__machine *machine)
{
    return machine_push_int(machine, 1);
}

static int op_binint2(struct mst__machine *machine)
{
    return machine_push_int(machine, 2);
}

/* Two's complement, little-endian, at most 8 bytes. */
static int64_t machine_load_int(const uint8_t *bytes, size_t size)
{
    uint64_t raw = size > 0 && (bytes[size - 1] & 0x80) != 0 ? UINT64_MAX : 0;
    for (size_t i = size; i-- > 0;) {
        raw = raw << 8 | bytes[i];
    }
    return (int64_t)raw;
}

static int op_long1(struct mst__machine *machine)
{
    uint64_t size;
    int rv = mst__machine_take_number(machine, 1, &size);
    const uint8_t *bytes = rv == 0 ? mst__machine_take(machine, size) : NULL;
    if (bytes == NULL) {
        return MST_EPROTO;
    }
    /* Bytes that only repeat the sign are dropped. */
    while (size > 1 && bytes[size - 1] == ((bytes[size - 2] & 0x80) != 0 ? 0xff : 0x00)) {
        size--;
    }
    size_t offset = (size_t)(bytes - machine->input.data);
    return mst__machine_push(
        machine, size <= 4
                     ? mst__machine_value(MST_VALUE_INT, (uint32_t)machine_load_int(bytes, size), 0)
                     : mst__machine_value(MST_VALUE_LONG, offset, size));
}

bool mst__machine_number(const struct mst__machine *machine,
                         const struct mst__value *value,
                         int64_t *ret_number)
{
    if (value->kind == MST_VALUE_INT) {
        *ret_number = (int32_t)value->at;
        return true;
    }
    if (value->kind != MST_VALUE_LONG || value->size > 8) {
        return false;
    }
    *ret_number = machine_load_int(machine->input.data + value->at, value->size);
    return true;
}

static int machine_push_bytes(struct mst__machine *machine, size_t header, bool is_text)
{
    uint64_t size;
    int rv = mst__machine_take_number(machine, header, &size);
    const uint8_t *bytes = rv == 0 ? mst__machine_take(machine, size) : NULL;
    if (bytes == NULL) {
        return MST_EPROTO;
    }
    if (is_text && !mst__unicode_is_pickled(mst_bytes_of(bytes, (size_t)size))) {
        return mst__machine_refuse(machine, "the text is not UTF-8");
    }
    size_t offset = (size_t)(bytes - machine->input.data);
    return mst__machine_push(machine, mst__machine_value(is_text ? MST_VALUE_TEXT : MST_VALUE_BYTES,
                                                         offset, (size_t)size));
}

static int op_short_binunicode(struct mst__machine *machine)
{
    return machine_push_bytes(machine, 1, true);
}

static int op_binunicode(struct mst__machine *machine)
{
    return machine_push_bytes(machine, 4, true);
}

static int op_binunicode8(struct mst__machine *machine)
{
    return machine_push_bytes(machine, 8, true);
}

static int op_short_binbytes(struct mst__machine *machine)
{
    return machine_push_bytes(machine, 1, false);
}

static int op_binbytes(struct mst__machine *machine)
{
    return machine_push_bytes(machine, 4, false);
}

static int op_binfloat(struct mst__machine *machine)
{
    const uint8_t *bytes = mst__machine_take(machine, 8);
    if (bytes == NULL) {
        return MST_EPROTO;
    }
    size_t offset = (size_t)(bytes - machine->input.data);
    return mst__machine_push(machine, mst__machine_value(MST_VALUE_FLOAT, offset, 8));
}

/* --- operations: containers --- */

static int op_mark(struct mst__machine *machine)
{
    if (machine->marks_count == MST_PICKLE_DEPTH_MAX) {
        return mst__machine_fail(machine, MST_ELIMIT, "too many marks");
    }
    machine->marks[machine->marks_count++] = (uint32_t)machine->bottom;
    machine->bottom = machine->stack_count;
    return 0;
}

static int op_empty_dict(struct mst__machine *machine)
{
    return mst__machine_push_object(machine, MST_VALUE_DICT);
}

static int op_empty_set(struct mst__machine *machine)
{
    return mst__machine_push_object(machine, MST_VALUE_SET);
}

static int op_empty_list(struct mst__machine *machine)
{
    return mst__machine_push_object(machine, MST_VALUE_LIST);
}

static int op_setitem(struct mst__machine *machine)
{
    int rv = mst__machine_need(machine, 3);
    return rv != 0 ? rv : mst__machine_fill(machine, MST_VALUE_DICT, machine->stack_count - 2);
}

static int op_append(struct mst__machine *machine)
{
    int rv = mst__machine_need(machine, 2);
    return rv != 0 ? rv : mst__machine_fill(machine, MST_VALUE_LIST, machine->stack_count - 1);
}

static int op_setitems(struct mst__machine *machine)
{
    return mst__machine_fill_marked(machine, MST_VALUE_DICT);
}

static int op_additems(struct mst__machine *machine)
{
    return mst__machine_fill_marked(machine, MST_VALUE_SET);
}

static int op_appends(struct mst__machine *machine)
{
    return mst__machine_fill_marked(machine, MST_VALUE_LIST);
}

static int op_empty_tuple(struct mst__machine *machine)
{
    return mst__machine_make_tuple(machine, 0);
}

static int op_tuple1(struct mst__machine *machine)
{
    return mst__machine_make_tuple(machine, 1);
}

static int op_tuple2(struct mst__machine *machine)
{
    return mst__machine_make_tuple(machine, 2);
}

static int op_tuple3(struct mst__machine *machine)
{
    return mst__machine_make_tuple(machine, 3);
}

static int op_tuple(struct mst__machine *machine)
{
    size_t first;
    size_t count;
    int rv = mst__machine_unmark(machine, &first, &count);
    return rv != 0 ? rv : mst__machine_make_tuple(machine, count);
}

/* --- operations: the memo --- */

static int machine_remember(struct mst__machine *machine, uint64_t index)
{
    int rv = mst__machine_need(machine, 1);
    if (rv != 0) {
        return rv;
    }
    if (index >= machine->input.size) {
        return mst__machine_refuse(machine, "the index is beyond all that could have been stored");
    }
    if (index >= machine->memo_capacity) {
        struct mst__value *places =
            mst__machine_grow(machine, machine->memo, &machine->memo_capacity, (size_t)index + 1,
                              sizeof *machine->memo, &rv);
        if (places == NULL) {
            return rv;
        }
        machine->memo = places;
    }
    while (machine->memo_size <= index) {
        machine->memo[machine->memo_size++] = mst__machine_value(MST_VALUE_NOTHING, 0, 0);
    }
    machine->memo_count += machine->memo[index].kind == MST_VALUE_NOTHING ? 1 : 0;
    machine->memo[index] = *mst__machine_top(machine);
    return 0;
}

static int op_memoize(struct mst__machine *machine)
{
    return machine_remember(machine, machine->memo_count);
}

static int op_binput(struct mst__machine *machine)
{
    uint64_t index;
    int rv = mst__machine_take_number(machine, 1, &index);
    return rv != 0 ? rv : machine_remember(machine, index);
}

static int op_long_binput(struct mst__machine *machine)
{
    uint64_t index;
    int rv = mst__machine_take_number(machine, 4, &index);
    return rv != 0 ? rv : machine_remember(machine, index);
}

static int machine_recall(struct mst__machine *machine, uint64_t index)
{
    if (index >= machine->memo_size || machine->memo[index].kind == MST_VALUE_NOTHING) {
        return mst__machine_refuse(machine, "nothing was stored under this index");
    }
    return mst__machine_push(machine, machine->memo[index]);
}

static int op_binget(struct mst__machine *machine)
{
    uint64_t index;
    int rv = mst__machine_take_number(machine, 1, &index);
    return rv != 0 ? rv : machine_recall(machine, index);
}

static int op_long_binget(struct mst__machine *machine)
{
    uint64_t index;
    int rv = mst__machine_take_number(machine, 4, &index);
    return rv != 0 ? rv : machine_recall(machine, index);
}

/* --- operations: classes and what is made of them --- */

/* A name of the input for a message: cut off, printable characters only. */
static const char *machine_show(struct mst_bytes name, char ret_text[MACHINE_NAME_SHOWN + 1])
{
    size_t size = name.size < MACHINE_NAME_SHOWN ? name.size : MACHINE_NAME_SHOWN;
    for (size_t i = 0; i < size; i++) {
        ret_text[i] = (char)(name.data[i] >= ' ' && name.data[i] <= '~' ? name.data[i] : '?');
    }
    ret_text[size] = '\0';
    return ret_text;
}

static int machine_push_class(struct mst__machine *machine,
                              struct mst_bytes module,
                              struct mst_bytes name)
{
    for (int type = 0; type < MST_CLASS_COUNT; type++) {
        if (mst__bytes_equal(module, mst_bytes_str(machine_classes[type].module)) &&
            mst__bytes_equal(name, mst_bytes_str(machine_classes[type].name))) {
            return mst__machine_push(machine, mst__machine_value(MST_VALUE_CLASS, (size_t)type, 0));
        }
    }
    char module_shown[MACHINE_NAME_SHOWN + 1];
    char name_shown[MACHINE_NAME_SHOWN + 1];
    return mst__fail(machine->reterr, MST_EPROTO, 0,
                     "record, byte %zu: '%s.%s' is not allowed in a record", machine->op_offset,
                     machine_show(module, module_shown), machine_show(name, name_shown));
}

static int op_stack_global(struct mst__machine *machine)
{
    int rv = mst__machine_need(machine, 2);
    if (rv != 0) {
        return rv;
    }
    struct mst__value name = *mst__machine_top(machine);
    struct mst__value module = machine->stack[machine->stack_count - 2];
    if (name.kind != MST_VALUE_TEXT || module.kind != MST_VALUE_TEXT) {
        return mst__machine_refuse(machine, "the name of a class is not text");
    }
    machine->stack_count -= 2;
    return machine_push_class(machine, mst__machine_bytes(machine, &module),
                              mst__machine_bytes(machine, &name));
}

/* Up to the next newline, which is dropped. */
static int machine_take_line(struct mst__machine *machine, struct mst_bytes *ret_line)
{
    const uint8_t *start = machine->input.data + machine->offset;
    size_t left = machine->input.size - machine->offset;
    const uint8_t *end = left == 0 ? NULL : memchr(start, '\n', left);
    if (end == NULL) {
        return mst__machine_refuse(machine, "the input ends inside of it");
    }
    *ret_line = mst_bytes_of(start, (size_t)(end - start));
    machine->offset += ret_line->size + 1;
    return 0;
}

static int op_global(struct mst__machine *machine)
{
    struct mst_bytes module;
    struct mst_bytes name;
    int rv = machine_take_line(machine, &module);
    if (rv == 0) {
        rv = machine_take_line(machine, &name);
    }
    return rv != 0 ? rv : machine_push_class(machine, module, name);
}

static int op_newobj(struct mst__machine *machine)
{
    int rv = mst__machine_need(machine, 2);
    if (rv != 0) {
        return rv;
    }
    const struct mst__value *args = mst__machine_top(machine);
    const struct mst__value *type = args - 1;
    if (type->kind != MST_VALUE_CLASS ||
        (type->at != MST_CLASS_STATE && type->at != MST_CLASS_NODE)) {
        return mst__machine_refuse(machine, "only states and nodes are made this way");
    }
    if (args->kind != MST_VALUE_TUPLE || args->at != MST_OBJECT_EMPTY_TUPLE) {
        return mst__machine_refuse(machine, "the arguments are not an empty tuple");
    }
    uint8_t name = (uint8_t)type->at;
    machine->stack_count -= 2;
    rv = mst__machine_push_object(machine, MST_VALUE_INSTANCE);
    if (rv == 0) {
        machine->objects[mst__machine_top(machine)->at].type = name;
    }
    return rv;
}

static int op_build(struct mst__machine *machine)
{
    int rv = mst__machine_need(machine, 2);
    if (rv != 0) {
        return rv;
    }
    const struct mst__value *attributes = mst__machine_top(machine);
    const struct mst__value *target = attributes - 1;
    if (target->kind != MST_VALUE_INSTANCE || attributes->kind != MST_VALUE_DICT) {
        return mst__machine_refuse(machine, "not a dict for a state or a node");
    }
    struct mst__object *instance = &machine->objects[target->at];
    if (instance->is_built || instance->is_sealed) {
        return mst__machine_refuse(machine, "the object has its attributes already");
    }
    struct mst__machine_cursor cursor = mst__machine_items(machine, attributes->at);
    for (const struct mst__value *key = mst__machine_next(machine, &cursor); key != NULL;
         key = mst__machine_next(machine, &cursor)) {
        if (key->kind != MST_VALUE_TEXT) {
            return mst__machine_refuse(machine, "the name of an attribute is not text");
        }
        (void)mst__machine_next(machine, &cursor); /* its value: a dict's items are pairs */
    }
    rv = mst__machine_adopt(machine, instance, attributes);
    if (rv != 0) {
        return rv;
    }
    const struct mst__object *dict = &machine->objects[attributes->at];
    instance->first = dict->first;
    instance->count = dict->count;
    instance->note = MST_OBJECT_NONE;
    instance->is_built = true;
    instance->is_hashable = instance->type == MST_CLASS_NODE;
    machine->stack_count--;
    return 0;
}

/* Get the items of a tuple of up to three arguments; returns their number. */
static uint32_t machine_args(const struct mst__machine *machine,
                             const struct mst__value *tuple,
                             struct mst__value ret_args[3])
{
    uint32_t count = machine->objects[tuple->at].count;
    struct mst__machine_cursor cursor = mst__machine_items(machine, tuple->at);
    for (uint32_t i = 0; i < count && i < 3; i++) {
        const struct mst__value *item = mst__machine_next(machine, &cursor);
        MST_ASSERT(item != NULL);
        ret_args[i] = *item;
    }
    return count;
}

static int reduce_datetime(struct mst__machine *machine,
                           const struct mst__value args[3],
                           uint32_t count,
                           struct mst__value *ret_value)
{
    if (count < 1 || count > 2 || args[0].kind != MST_VALUE_BYTES ||
        args[0].size != MST_DATETIME_SIZE || (count == 2 && args[1].kind != MST_VALUE_UTC)) {
        return mst__machine_refuse(machine, "a datetime is made of 10 bytes, and UTC at most");
    }
    int64_t us;
    if (!mst__datetime_read(machine->input.data + args[0].at, &us)) {
        return mst__machine_refuse(machine, "there is no such date");
    }
    *ret_value = mst__machine_value(count == 2 ? MST_VALUE_AWARE_TIME : MST_VALUE_NAIVE_TIME,
                                    args[0].at, MST_DATETIME_SIZE);
    return 0;
}

static int reduce_set(struct mst__machine *machine,
                      const struct mst__value *list,
                      struct mst__value *ret_value)
{
    uint32_t object = 0;
    int rv = mst__machine_new_object(machine, &object);
    if (rv != 0) {
        return rv;
    }
    struct mst__machine_cursor cursor = mst__machine_items(machine, list->at);
    for (const struct mst__value *item = mst__machine_next(machine, &cursor); item != NULL;
         item = mst__machine_next(machine, &cursor)) {
        rv = mst__machine_check_hashable(machine, item, 1, 1);
        if (rv != 0) {
            return rv;
        }
    }
    /* The set shares the items of the list, so neither may grow. */
    const struct mst__object *from = &machine->objects[list->at];
    MST_ASSERT(from->is_sealed);
    struct mst__object *set = &machine->objects[object];
    set->first = from->first;
    set->count = from->count;
    set->depth = from->depth;
    set->is_sealed = true;
    *ret_value = mst__machine_value(MST_VALUE_SET, object, 0);
    return 0;
}

static int op_reduce(struct mst__machine *machine)
{
    int rv = mst__machine_need(machine, 2);
    if (rv != 0) {
        return rv;
    }
    const struct mst__value *tuple = mst__machine_top(machine);
    const struct mst__value *type = tuple - 1;
    if (type->kind != MST_VALUE_CLASS || tuple->kind != MST_VALUE_TUPLE) {
        return mst__machine_refuse(machine, "not a class and a tuple of arguments");
    }
    struct mst__value args[3] = {{0}};
    uint32_t count = machine_args(machine, tuple, args);
    struct mst__value value = {0};
    if (type->at == MST_CLASS_DATETIME) {
        rv = reduce_datetime(machine, args, count, &value);
    } else if (type->at == MST_CLASS_SET && count == 1 && args[0].kind == MST_VALUE_LIST) {
        rv = reduce_set(machine, &args[0], &value);
    } else if (type->at == MST_CLASS_TIMEZONE && count == 1 && args[0].kind == MST_VALUE_NO_SPAN) {
        value.kind = MST_VALUE_UTC;
    } else if (type->at == MST_CLASS_TIMEDELTA && count == 3 && args[0].kind == MST_VALUE_INT &&
               args[1].kind == MST_VALUE_INT && args[2].kind == MST_VALUE_INT &&
               (args[0].at | args[1].at | args[2].at) == 0) {
        value.kind = MST_VALUE_NO_SPAN;
    } else {
        rv = mst__machine_refuse(machine, "the class and its arguments are not on the list");
    }
    if (rv != 0) {
        return rv;
    }
    machine->stack_count -= 2;
    return mst__machine_push(machine, value);
}

/* --- running --- */

/* Other opcodes are refused. PROTO is allowed only at the start, STOP ends the loop. */
static int (*const machine_ops[256])(struct mst__machine *machine) = {
    [MST_PICKLE_FRAME] = op_frame,
    [MST_PICKLE_MARK] = op_mark,
    [MST_PICKLE_NONE] = op_none,
    [MST_PICKLE_NEWTRUE] = op_newtrue,
    [MST_PICKLE_NEWFALSE] = op_newfalse,
    [MST_PICKLE_BININT] = op_binint,
    [MST_PICKLE_BININT1] = op_binint1,
    [MST_PICKLE_BININT2] = op_binint2,
    [MST_PICKLE_LONG1] = op_long1,
    [MST_PICKLE_BINFLOAT] = op_binfloat,
    [MST_PICKLE_SHORT_BINUNICODE] = op_short_binunicode,
    [MST_PICKLE_BINUNICODE] = op_binunicode,
    [MST_PICKLE_BINUNICODE8] = op_binunicode8,
    [MST_PICKLE_SHORT_BINBYTES] = op_short_binbytes,
    [MST_PICKLE_BINBYTES] = op_binbytes,
    [MST_PICKLE_EMPTY_DICT] = op_empty_dict,
    [MST_PICKLE_SETITEM] = op_setitem,
    [MST_PICKLE_SETITEMS] = op_setitems,
    [MST_PICKLE_EMPTY_SET] = op_empty_set,
    [MST_PICKLE_ADDITEMS] = op_additems,
    [MST_PICKLE_EMPTY_LIST] = op_empty_list,
    [MST_PICKLE_APPEND] = op_append,
    [MST_PICKLE_APPENDS] = op_appends,
    [MST_PICKLE_EMPTY_TUPLE] = op_empty_tuple,
    [MST_PICKLE_TUPLE1] = op_tuple1,
    [MST_PICKLE_TUPLE2] = op_tuple2,
    [MST_PICKLE_TUPLE3] = op_tuple3,
    [MST_PICKLE_TUPLE] = op_tuple,
    [MST_PICKLE_MEMOIZE] = op_memoize,
    [MST_PICKLE_BINPUT] = op_binput,
    [MST_PICKLE_LONG_BINPUT] = op_long_binput,
    [MST_PICKLE_BINGET] = op_binget,
    [MST_PICKLE_LONG_BINGET] = op_long_binget,
    [MST_PICKLE_STACK_GLOBAL] = op_stack_global,
    [MST_PICKLE_GLOBAL] = op_global,
    [MST_PICKLE_NEWOBJ] = op_newobj,
    [MST_PICKLE_REDUCE] = op_reduce,
    [MST_PICKLE_BUILD] = op_build,
};

/* Start with about the size of a record of many nodes, so that growing moves little. */
static int machine_presize(struct mst__machine *machine)
{
    int rv = 0;
    machine->items = mst__machine_grow(machine, NULL, &machine->items_capacity,
                                       machine->input.size / 5, sizeof *machine->items, &rv);
    if (machine->items != NULL) {
        machine->objects =
            mst__machine_grow(machine, NULL, &machine->objects_capacity, machine->input.size / 24,
                              sizeof *machine->objects, &rv);
    }
    return rv;
}

static int machine_begin(struct mst__machine *machine)
{
    struct mst_bytes input = machine->input;
    if (input.size < 2 || input.data[0] != MST_PICKLE_PROTO) {
        return mst__fail(machine->reterr, MST_EPROTO, 0,
                         "record of %zu bytes: not a pickle, which begins with PROTO", input.size);
    }
    if (input.data[1] < PROTOCOL_MIN || input.data[1] > PROTOCOL_MAX) {
        return mst__fail(machine->reterr, MST_EPROTO, 0,
                         "record: pickle protocol %d, only %d to %d are known", input.data[1],
                         PROTOCOL_MIN, PROTOCOL_MAX);
    }
    machine->offset = 2;
    machine->memory_left = MACHINE_MEMORY_BASE + MST_PICKLE_MEMORY_FACTOR * input.size;
    uint32_t object = 0;
    int rv = machine_presize(machine);
    if (rv == 0) {
        rv = mst__machine_new_object(machine, &object);
    }
    if (rv == 0) {
        MST_ASSERT(object == MST_OBJECT_EMPTY_TUPLE);
        machine->objects[object].is_sealed = true;
        machine->objects[object].is_hashable = true;
    }
    return rv;
}

int mst__machine_run(struct mst__machine *machine,
                     struct mst_bytes input,
                     struct mst__value *ret_value,
                     struct mst_err *reterr)
{
    MST_ASSERT(input.size <= MST_PICKLE_SIZE_MAX);
    *machine = (struct mst__machine){.input = input, .reterr = reterr};
    int rv = machine_begin(machine);
    while (rv == 0) {
        machine->op_offset = machine->offset;
        if (machine->offset == input.size) {
            return mst__machine_refuse(machine, "missing, the input ends without it");
        }
        uint8_t opcode = input.data[machine->offset++];
        if (opcode == MST_PICKLE_STOP) {
            break;
        }
        if (machine_ops[opcode] == NULL) {
            return mst__fail(reterr, MST_EPROTO, 0,
                             "record, byte %zu: opcode %s (0x%02x) is not allowed in a record",
                             machine->op_offset, mst__pickle_opcode_name(opcode), opcode);
        }
        rv = machine_ops[opcode](machine);
    }
    if (rv != 0) {
        return rv;
    }
    if (machine->stack_count != 1 || machine->marks_count != 0) {
        return mst__machine_refuse(machine, "not exactly one value is left");
    }
    if (machine->offset != input.size) {
        return mst__machine_refuse(machine, "bytes follow it");
    }
    *ret_value = *mst__machine_top(machine);
    return 0;
}

void mst__machine_close(struct mst__machine *machine)
{
    mst__free(machine->stack);
    mst__free(machine->memo);
    mst__free(machine->objects);
    mst__free(machine->items);
    *machine = (struct mst__machine){0};
}
