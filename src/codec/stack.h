/* codec/stack.h - building blocks for the operations of the machine, for the machine only.
 *
 * Functions that return int: 0, or an error that is in machine->reterr. */
#ifndef MST_CODEC_STACK_H
#define MST_CODEC_STACK_H

#include "base/assert.h"
#include "codec/machine.h"

/* Fill machine->reterr: "record, byte 17, BUILD: why". */
void mst__machine_explain(const struct mst__machine *machine, int code, const char *why);

/* The same, and the value is @code or, for malformed input, MST_EPROTO. Macros, so that analyzers
 * see the error code. */
#define mst__machine_fail(machine, code, why) \
    (mst__machine_explain((machine), (code), (why)), (code))
#define mst__machine_refuse(machine, why) mst__machine_fail((machine), MST_EPROTO, (why))

/* Grow @memory from @capacity to at least @needed elements of @size bytes; NULL with the error in
 * @ret_code and @memory unchanged. */
void *mst__machine_grow(struct mst__machine *machine,
                        void *memory,
                        size_t *capacity,
                        size_t needed,
                        size_t size,
                        int *ret_code);

/* Remove the uppermost mark; the values above it are @ret_count at @ret_first, still on the
 * stack. */
int mst__machine_unmark(struct mst__machine *machine, size_t *ret_first, size_t *ret_count);

int mst__machine_new_object(struct mst__machine *machine, uint32_t *ret_object);
int mst__machine_push_object(struct mst__machine *machine, enum mst__value_kind kind);

/* Make @value a part of @whole. */
int mst__machine_adopt(struct mst__machine *machine,
                       struct mst__object *whole,
                       const struct mst__value *value);

/* Check that every @step-th of @count values can be a key or a member of a set. */
int mst__machine_check_hashable(const struct mst__machine *machine,
                                const struct mst__value *values,
                                size_t count,
                                size_t step);

/* Move the values from @first on, or those above the uppermost mark, to the container below them,
 * which must be of @kind. */
int mst__machine_fill(struct mst__machine *machine, enum mst__value_kind kind, size_t first);
int mst__machine_fill_marked(struct mst__machine *machine, enum mst__value_kind kind);

/* Make a tuple of the uppermost @count values. */
int mst__machine_make_tuple(struct mst__machine *machine, size_t count);

static inline struct mst__value mst__machine_value(enum mst__value_kind kind,
                                                   size_t at,
                                                   size_t size)
{
    return (struct mst__value){
        .kind = (uint32_t)kind & 0x3f, .size = (uint32_t)size & 0x3ffffff, .at = (uint32_t)at};
}

static inline int mst__machine_push(struct mst__machine *machine, struct mst__value value)
{
    if (MST_UNLIKELY(machine->stack_count == machine->stack_capacity)) {
        int rv = 0;
        struct mst__value *stack =
            mst__machine_grow(machine, machine->stack, &machine->stack_capacity,
                              machine->stack_count + 1, sizeof *machine->stack, &rv);
        if (stack == NULL) {
            return rv;
        }
        machine->stack = stack;
    }
    machine->stack[machine->stack_count++] = value;
    return 0;
}

/* The next @size bytes, or NULL at the end of the input. */
static inline const uint8_t *mst__machine_take(struct mst__machine *machine, uint64_t size)
{
    if (MST_UNLIKELY(size > machine->input.size - machine->offset)) {
        (void)mst__machine_refuse(machine, "the input ends inside of it"); /* NULL says it */
        return NULL;
    }
    const uint8_t *bytes = machine->input.data + machine->offset;
    machine->offset += (size_t)size;
    return bytes;
}

/* A little-endian number of 1, 2, 4 or 8 bytes. */
static inline int mst__machine_take_number(struct mst__machine *machine,
                                           size_t size,
                                           uint64_t *ret_number)
{
    const uint8_t *bytes = mst__machine_take(machine, size);
    if (bytes == NULL) {
        return MST_EPROTO;
    }
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++) {
        number |= (uint64_t)bytes[i] << (8 * i);
    }
    *ret_number = number;
    return 0;
}

/* Check that there are @count values above the uppermost mark. */
static inline int mst__machine_need(const struct mst__machine *machine, size_t count)
{
    return MST_LIKELY(machine->stack_count - machine->bottom >= count)
               ? 0
               : mst__machine_refuse(machine, "the stack holds too little");
}

static inline struct mst__value *mst__machine_top(const struct mst__machine *machine)
{
    MST_ASSERT(machine->stack_count > 0);
    return &machine->stack[machine->stack_count - 1];
}

static inline bool mst__machine_is_hashable(const struct mst__machine *machine,
                                            const struct mst__value *value)
{
    return value->kind < MST_VALUE_TUPLE || machine->objects[value->at].is_hashable;
}

#endif /* MST_CODEC_STACK_H */
