/* codec/stack.c - stack, objects and memory of the machine.
 *
 * Invariants: bottom <= stack_count; values below the uppermost mark are out of reach of all
 * operations except the one that removes the mark; an object is complete when it is put into
 * another one, and its contents and depth are final from then on. */
#include "codec/stack.h"

#include "base/err.h"
#include "base/mem.h"
#include "codec/opcode.h"

#define MACHINE_CAPACITY_MIN ((size_t)64)

static_assert(MST_PICKLE_SIZE_MAX < UINT32_MAX / MST_PICKLE_MEMORY_FACTOR, "indexes have 32 bits");
static_assert(MST_PICKLE_DEPTH_MAX < UINT8_MAX, "a depth has 8 bits");

void mst__machine_explain(const struct mst__machine *machine, int code, const char *why)
{
    uint8_t opcode = machine->op_offset < machine->input.size
                         ? machine->input.data[machine->op_offset]
                         : MST_PICKLE_STOP;
    mst__err_fill(machine->reterr, code, 0, "record, byte %zu, %s: %s", machine->op_offset,
                  mst__pickle_opcode_name(opcode), why);
}

void *mst__machine_grow(struct mst__machine *machine,
                        void *memory,
                        size_t *capacity,
                        size_t needed,
                        size_t size,
                        int *ret_code)
{
    size_t wanted = *capacity == 0 ? MACHINE_CAPACITY_MIN : 2 * *capacity;
    wanted = wanted < needed ? needed : wanted;
    size_t more = (wanted - *capacity) * size;
    if (more > machine->memory_left) {
        *ret_code = mst__machine_fail(machine, MST_ELIMIT, "needs too much memory for its size");
        return NULL;
    }
    void *grown = mst__realloc(memory, wanted * size);
    if (grown == NULL) {
        *ret_code = mst__machine_fail(machine, MST_ENOMEM, "out of memory");
        return NULL;
    }
    machine->memory_left -= more;
    *capacity = wanted;
    return grown;
}

int mst__machine_unmark(struct mst__machine *machine, size_t *ret_first, size_t *ret_count)
{
    if (machine->marks_count == 0) {
        return mst__machine_refuse(machine, "there is no mark");
    }
    *ret_first = machine->bottom;
    *ret_count = machine->stack_count - machine->bottom;
    machine->bottom = machine->marks[--machine->marks_count];
    MST_ASSERT(machine->bottom <= *ret_first);
    return 0;
}

int mst__machine_new_object(struct mst__machine *machine, uint32_t *ret_object)
{
    if (MST_UNLIKELY(machine->objects_count == machine->objects_capacity)) {
        int rv = 0;
        struct mst__object *objects =
            mst__machine_grow(machine, machine->objects, &machine->objects_capacity,
                              machine->objects_count + 1, sizeof *machine->objects, &rv);
        if (objects == NULL) {
            return rv;
        }
        machine->objects = objects;
    }
    *ret_object = (uint32_t)machine->objects_count++;
    machine->objects[*ret_object] =
        (struct mst__object){.first = MST_OBJECT_NONE, .last = MST_OBJECT_NONE, .depth = 1};
    return 0;
}

int mst__machine_push_object(struct mst__machine *machine, enum mst__value_kind kind)
{
    uint32_t object = 0;
    int rv = mst__machine_new_object(machine, &object);
    if (rv != 0) {
        return rv;
    }
    return mst__machine_push(machine, mst__machine_value(kind, object, 0));
}

int mst__machine_adopt(struct mst__machine *machine,
                       struct mst__object *whole,
                       const struct mst__value *value)
{
    if (value->kind < MST_VALUE_TUPLE) {
        return 0;
    }
    struct mst__object *part = &machine->objects[value->at];
    if (value->kind == MST_VALUE_INSTANCE && !part->is_built) {
        return mst__machine_refuse(machine, "an object is used before it has its attributes");
    }
    part->is_sealed = true;
    if (part->depth >= whole->depth) {
        if (part->depth >= MST_PICKLE_DEPTH_MAX) {
            return mst__machine_fail(machine, MST_ELIMIT, "values are nested too deeply");
        }
        whole->depth = (uint8_t)(part->depth + 1);
    }
    return 0;
}

/* The run at the end of the items that belongs to @object, begun if necessary. */
static struct mst__value *machine_run_of(struct mst__machine *machine, struct mst__object *object)
{
    struct mst__value *items = machine->items;
    uint32_t last = object->last;
    uint32_t index = (uint32_t)machine->items_count;
    if (last == MST_OBJECT_NONE) {
        object->first = index;
    } else if (last + 1 + items[last].size == index) {
        return &items[last];
    } else {
        items[last].at = index;
    }
    machine->items_count++;
    object->last = index;
    items[index] = mst__machine_value(MST_VALUE_RUN, MST_OBJECT_NONE, 0);
    return &items[index];
}

/* Append copies of @count values, which are on the stack, to the items of @object. */
static int machine_add(struct mst__machine *machine,
                       uint32_t object,
                       const struct mst__value *values,
                       size_t count)
{
    if (machine->items_capacity - machine->items_count < count + 1) {
        int rv = 0;
        struct mst__value *items =
            mst__machine_grow(machine, machine->items, &machine->items_capacity,
                              machine->items_count + count + 1, sizeof *machine->items, &rv);
        if (items == NULL) {
            return rv;
        }
        machine->items = items;
    }
    struct mst__object *whole = &machine->objects[object];
    if (count > 0) {
        struct mst__value *run = machine_run_of(machine, whole);
        struct mst__value *to = &machine->items[machine->items_count];
        for (size_t i = 0; i < count; i++) {
            int rv = mst__machine_adopt(machine, whole, &values[i]);
            if (rv != 0) {
                return rv;
            }
            to[i] = values[i];
        }
        machine->items_count += count;
        run->size = (run->size + (uint32_t)count) & 0x3ffffff;
        whole->count += (uint32_t)count;
    }
    /* Checked last: a value that was put into itself is sealed by now. */
    return whole->is_sealed
               ? mst__machine_refuse(machine, "changes what is already part of another value")
               : 0;
}

int mst__machine_check_hashable(const struct mst__machine *machine,
                                const struct mst__value *values,
                                size_t count,
                                size_t step)
{
    for (size_t i = 0; i < count; i += step) {
        if (!mst__machine_is_hashable(machine, &values[i])) {
            return mst__machine_refuse(machine, "a list, set or dict cannot be a key");
        }
    }
    return 0;
}

int mst__machine_fill(struct mst__machine *machine, enum mst__value_kind kind, size_t first)
{
    if (first <= machine->bottom) {
        return mst__machine_refuse(machine, "the stack holds too little");
    }
    const struct mst__value *target = &machine->stack[first - 1];
    if (target->kind != kind) {
        return mst__machine_refuse(machine, "what is to be filled is of another kind");
    }
    const struct mst__value *values = &machine->stack[first];
    size_t count = machine->stack_count - first;
    int rv = 0;
    if (kind == MST_VALUE_DICT) {
        if (count % 2 != 0) {
            return mst__machine_refuse(machine, "a key has no value");
        }
        rv = mst__machine_check_hashable(machine, values, count, 2);
    } else if (kind == MST_VALUE_SET) {
        rv = mst__machine_check_hashable(machine, values, count, 1);
    }
    if (rv == 0) {
        rv = machine_add(machine, target->at, values, count);
    }
    if (rv == 0) {
        machine->stack_count = first;
    }
    return rv;
}

int mst__machine_fill_marked(struct mst__machine *machine, enum mst__value_kind kind)
{
    size_t first;
    size_t count;
    int rv = mst__machine_unmark(machine, &first, &count);
    return rv != 0 ? rv : mst__machine_fill(machine, kind, first);
}

int mst__machine_make_tuple(struct mst__machine *machine, size_t count)
{
    int rv = mst__machine_need(machine, count);
    if (rv != 0) {
        return rv;
    }
    size_t first = machine->stack_count - count;
    uint32_t object = MST_OBJECT_EMPTY_TUPLE;
    if (count > 0) {
        rv = mst__machine_new_object(machine, &object);
        if (rv == 0) {
            rv = machine_add(machine, object, &machine->stack[first], count);
        }
        if (rv != 0) {
            return rv;
        }
        struct mst__object *tuple = &machine->objects[object];
        tuple->is_sealed = true;
        tuple->is_hashable = true;
        for (size_t i = first; i < machine->stack_count; i++) {
            tuple->is_hashable &= mst__machine_is_hashable(machine, &machine->stack[i]);
        }
    }
    machine->stack_count = first;
    return mst__machine_push(machine, mst__machine_value(MST_VALUE_TUPLE, object, 0));
}
