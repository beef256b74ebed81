/* wire/opcode.c - lookups in MST_OPCODE_MAP, both ways. */
#include "wire/opcode.h"

#include "base/assert.h"

static const struct mst__opcode opcodes[MST_OP_COUNT] = {
#define OPCODE_ROW(op, a, b, c, shape, reply) \
    [MST_OP_##op] = {(a), (b), (c), MST_SHAPE_##shape, MST_REPLY_##reply},
    MST_OPCODE_MAP(OPCODE_ROW)
#undef OPCODE_ROW
};

/* The reverse table: operation + 1 by opcode, 0 = none. An operation that a dialect lacks has a
 * slot after all opcodes, which is never used. */
#define OPCODE_END 0x42
#define OPCODE_SLOT(op, opcode) ((opcode) == MST_OPCODE_NONE ? OPCODE_END + MST_OP_##op : (opcode))

static const uint8_t ops_of_a[OPCODE_END + MST_OP_COUNT] = {
#define OPCODE_BACK(op, a, b, c, shape, reply) [OPCODE_SLOT(op, a)] = MST_OP_##op + 1,
    MST_OPCODE_MAP(OPCODE_BACK)
#undef OPCODE_BACK
};
static const uint8_t ops_of_b[OPCODE_END + MST_OP_COUNT] = {
#define OPCODE_BACK(op, a, b, c, shape, reply) [OPCODE_SLOT(op, b)] = MST_OP_##op + 1,
    MST_OPCODE_MAP(OPCODE_BACK)
#undef OPCODE_BACK
};
static const uint8_t ops_of_c[OPCODE_END + MST_OP_COUNT] = {
#define OPCODE_BACK(op, a, b, c, shape, reply) [OPCODE_SLOT(op, c)] = MST_OP_##op + 1,
    MST_OPCODE_MAP(OPCODE_BACK)
#undef OPCODE_BACK
};

const struct mst__opcode *mst__opcode_of(enum mst__op op)
{
    MST_ASSERT(op < MST_OP_COUNT);
    return &opcodes[op];
}

uint8_t mst__opcode_in(enum mst__dialect dialect, enum mst__op op)
{
    const struct mst__opcode *row = mst__opcode_of(op);
    switch (dialect) {
        case MST_DIALECT_A:
            return row->a;
        case MST_DIALECT_B:
            return row->b;
        case MST_DIALECT_C:
            return row->c;
        case MST_DIALECT_UNKNOWN:
        case MST_DIALECT_LEGACY:
            break;
    }
    return MST_OPCODE_NONE;
}

bool mst__opcode_find(enum mst__dialect dialect, uint8_t opcode, enum mst__op *ret_op)
{
    MST_ASSERT(dialect >= MST_DIALECT_A);
    const uint8_t *ops = dialect == MST_DIALECT_C   ? ops_of_c
                         : dialect == MST_DIALECT_B ? ops_of_b
                                                    : ops_of_a;
    if (opcode >= OPCODE_END || ops[opcode] == 0) {
        return false;
    }
    *ret_op = (enum mst__op)(ops[opcode] - 1);
    return true;
}
