/* codec/opcode.c - names of pickle's opcodes, for messages. */
#include "codec/opcode.h"

#include <stddef.h>

const char *mst__pickle_opcode_name(uint8_t opcode)
{
    static const char *const names[256] = {
#define MST_PICKLE_NAME(number, name) [(number)] = #name,
        MST_PICKLE_MAP(MST_PICKLE_NAME)
#undef MST_PICKLE_NAME
    };
    return names[opcode] == NULL ? "unknown" : names[opcode];
}
