/* codec/machine.h - the stack machine that decomposes a pickle into values, without interpreting
 * them.
 *
 * Values refer to the input, which must outlive them, and to objects of the machine. A value that
 * was put into another one is sealed and never changes again, so no value can contain itself, and
 * values can be walked without care. Depth is bounded. */
#ifndef MST_CODEC_MACHINE_H
#define MST_CODEC_MACHINE_H

#include <muster/error.h>
#include <stdbool.h>

#include "base/limits.h"

/* The module of the peers' classes. */
#define MST_PICKLE_MODULE "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
#define MST_PICKLE_STATE "_RendezvousState"
#define MST_PICKLE_NODE "_NodeDesc"

enum mst__value_kind {
    MST_VALUE_NOTHING, /* an unwritten place of the memo */
    MST_VALUE_NONE,
    MST_VALUE_FALSE,
    MST_VALUE_TRUE,
    MST_VALUE_INT,   /* of 32 bits */
    MST_VALUE_LONG,  /* wider: two's complement, little-endian, in the input, as short as
                        possible */
    MST_VALUE_FLOAT, /* its eight bytes are in the input */
    MST_VALUE_TEXT,
    MST_VALUE_BYTES,
    MST_VALUE_CLASS,
    MST_VALUE_NO_SPAN,    /* timedelta(0, 0, 0) */
    MST_VALUE_UTC,        /* timezone(timedelta(0, 0, 0)) */
    MST_VALUE_NAIVE_TIME, /* a valid datetime; its bytes are in the input */
    MST_VALUE_AWARE_TIME, /* the same, in UTC */
    MST_VALUE_TUPLE,      /* values from here on have an object */
    MST_VALUE_LIST,
    MST_VALUE_SET,
    MST_VALUE_DICT, /* items: key, value, key, value */
    MST_VALUE_INSTANCE,
    MST_VALUE_RUN, /* only among the items: the head of items that came together */
};

/* The class names that a record may contain. */
enum mst__value_class {
    MST_CLASS_STATE,
    MST_CLASS_NODE,
    MST_CLASS_DATETIME,
    MST_CLASS_TIMEZONE,
    MST_CLASS_TIMEDELTA,
    MST_CLASS_SET,
    MST_CLASS_COUNT,
};

/* There are many values, and most of the time is spent moving them. */
struct mst__value {
    uint32_t kind : 6;
    uint32_t size : 26; /* size in the input; items of a run */
    uint32_t at;        /* number, class, index of the object or the next run, or input offset */
};
static_assert(sizeof(struct mst__value) == 8, "a value fits into a register");
static_assert(MST_PICKLE_SIZE_MAX < 1 << 26, "a value can be as long as the input");

struct mst__object {
    uint32_t first; /* run of items, or MST_OBJECT_NONE */
    union {
        uint32_t last; /* run of items, or MST_OBJECT_NONE */
        uint32_t note; /* of an instance: for the caller, MST_OBJECT_NONE at first */
    };
    uint32_t count; /* items in all runs */
    uint8_t depth;  /* 1 = holds no object */
    uint8_t type;   /* of an instance: enum mst__value_class */
    bool is_sealed;
    bool is_hashable : 1; /* can be a key */
    bool is_built : 1;    /* an instance: has its attributes, which are its items */
};
#define MST_OBJECT_NONE UINT32_MAX
#define MST_OBJECT_EMPTY_TUPLE 0

struct mst__machine {
    struct mst_bytes input;
    size_t offset;    /* of the next byte */
    size_t op_offset; /* of the current opcode */
    size_t memory_left;
    struct mst__value *stack;
    size_t stack_count, stack_capacity;
    struct mst__value *memo;
    size_t memo_count; /* places written */
    size_t memo_size, memo_capacity;
    struct mst__object *objects;
    size_t objects_count, objects_capacity;
    struct mst__value *items;
    size_t items_count, items_capacity;
    size_t bottom; /* stack position of the uppermost mark, the limit of most operations */
    uint32_t marks[MST_PICKLE_DEPTH_MAX];
    size_t marks_count;
    struct mst_err *reterr;
};

/* Run @input, which has at most MST_PICKLE_SIZE_MAX bytes: 0 and its value; MST_EPROTO, MST_ELIMIT,
 * MST_ENOMEM. Close @machine in any case. */
int mst__machine_run(struct mst__machine *machine,
                     struct mst_bytes input,
                     struct mst__value *ret_value,
                     struct mst_err *reterr);
void mst__machine_close(struct mst__machine *machine);

/* Text or bytes of a value, in the input. */
static inline struct mst_bytes mst__machine_bytes(const struct mst__machine *machine,
                                                  const struct mst__value *value)
{
    return mst_bytes_of(machine->input.data + value->at, value->size);
}

/* An integer; false if it is not one or has more than 64 bits. */
bool mst__machine_number(const struct mst__machine *machine,
                         const struct mst__value *value,
                         int64_t *ret_number);

/* Walk the items of an object in their order. */
struct mst__machine_cursor {
    uint32_t at;   /* next item */
    uint32_t left; /* in this run */
    uint32_t next; /* run, or MST_OBJECT_NONE */
};

static inline struct mst__machine_cursor mst__machine_items(const struct mst__machine *machine,
                                                            uint32_t object)
{
    return (struct mst__machine_cursor){.next = machine->objects[object].first};
}

/* The next item, NULL at the end. */
static inline const struct mst__value *mst__machine_next(const struct mst__machine *machine,
                                                         struct mst__machine_cursor *cursor)
{
    if (cursor->left == 0) {
        if (cursor->next == MST_OBJECT_NONE) {
            return NULL;
        }
        const struct mst__value *run = &machine->items[cursor->next];
        *cursor = (struct mst__machine_cursor){
            .at = cursor->next + 1, .left = run->size, .next = run->at};
    }
    cursor->left--;
    return &machine->items[cursor->at++];
}

#endif /* MST_CODEC_MACHINE_H */
