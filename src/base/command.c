/* base/command.c - names of operations, walking item lists. */
#include "base/command.h"

#include "base/bytes.h"

const char *mst__op_name(enum mst__op op)
{
    static const char *const names[MST_OP_COUNT] = {
#define OP_NAME(name, text) [MST_OP_##name] = (text),
        MST_OP_MAP(OP_NAME)
#undef OP_NAME
    };
    return names[op];
}

bool mst__items_next(struct mst_bytes *items, struct mst_bytes *ret_item)
{
    if (items->size < 8) {
        return false;
    }
    uint64_t size = mst__load_u64(items->data);
    if (size > items->size - 8) {
        return false;
    }
    *ret_item = mst_bytes_of(items->data + 8, (size_t)size);
    *items = mst__bytes_skip(*items, 8 + (size_t)size);
    return true;
}
