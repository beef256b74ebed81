/* net/job_losses.c - a short list with a fixed size: it belongs to every job. */
#include "net/job_losses.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

static_assert(MST_JOB_LOST_NAMES_SIZE >= MST_AUTHORITY_NAME_SIZE_MAX, "one name fits");

static size_t name_offset(const struct mst__job_losses *losses, size_t index)
{
    size_t offset = 0;
    MST_ASSERT(index < losses->count);
    for (size_t i = 0; i < index; i++) {
        offset += losses->nodes[i].name_size;
    }
    return offset;
}

struct mst_bytes mst__job_losses_name(const struct mst__job_losses *losses, size_t index)
{
    return mst_bytes_of(losses->names + name_offset(losses, index), losses->nodes[index].name_size);
}

static void loss_remove(struct mst__job_losses *losses, size_t index)
{
    size_t offset = name_offset(losses, index);
    size_t size = losses->nodes[index].name_size;
    size_t after = losses->names_size - offset - size;
    memmove(losses->names + offset, losses->names + offset + size, after);
    losses->names_size -= size;
    losses->count--;
    memmove(losses->nodes + index, losses->nodes + index + 1,
            (losses->count - index) * sizeof losses->nodes[0]);
}

void mst__job_losses_forget(struct mst__job_losses *losses, struct mst_bytes name)
{
    for (size_t i = 0; i < losses->count; i++) {
        if (mst__bytes_equal(mst__job_losses_name(losses, i), name)) {
            loss_remove(losses, i);
            return;
        }
    }
}

void mst__job_losses_add(struct mst__job_losses *losses,
                         struct mst_bytes name,
                         int64_t round,
                         int64_t lost_us)
{
    MST_ASSERT(name.size <= MST_AUTHORITY_NAME_SIZE_MAX);
    mst__job_losses_forget(losses, name);
    while (losses->count == MST_JOB_LOST_MAX ||
           losses->names_size + name.size > MST_JOB_LOST_NAMES_SIZE) {
        loss_remove(losses, 0);
        losses->unlisted++;
    }
    losses->nodes[losses->count++] =
        (struct mst__job_loss){.round = round, .lost_us = lost_us, .name_size = name.size};
    memcpy(losses->names + losses->names_size, name.data, name.size);
    losses->names_size += name.size;
}
