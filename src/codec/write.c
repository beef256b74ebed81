/* codec/write.c - writes a record as a compact pickle: the memo holds repeated values only.
 *
 * Every piece reserves its maximum size and is then written without further checks. */
#include "base/assert.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/unicode.h"
#include "codec/datetime.h"
#include "codec/emit.h"
#include "codec/machine.h"
#include "codec/pickle.h"

#define MEMO_NONE UINT32_MAX
#define WRITE_GROUP_MAX 1000 /* items between a mark and its opcode, as in Python */
#define WRITE_HEAD_SIZE 512  /* the part before the participants, without the deadline */
#define WRITE_PIECE_SIZE 160 /* a node without its address, a time, or a name, with marks */

#define WRITE_TEXT(literal) mst_bytes_of((literal), sizeof(literal) - 1)

struct writer {
    struct mst__buf *output;
    const struct mst__state *state;
    uint8_t *to;    /* position in the last reservation */
    uint8_t *start; /* its start */
    size_t reserved;
    size_t nodes_count; /* different nodes in the record */
    size_t times_count;
    uint32_t memo_count;
    uint32_t module; /* memo indexes, MEMO_NONE = none */
    uint32_t node_class;
    uint32_t node_keys; /* of the first of three */
    uint32_t time_class;
    uint32_t utc;
    uint32_t *nodes; /* of each member */
};

/* --- pieces --- */

static int write_reserve(struct writer *writer, size_t size)
{
    int rv = 0;
    writer->start = mst__buf_reserve(writer->output, size, &rv);
    writer->to = writer->start;
    writer->reserved = size;
    if (writer->start == NULL) {
        MST_ASSERT(rv != 0);
        return rv;
    }
    return 0;
}

static void write_commit(struct writer *writer)
{
    size_t size = (size_t)(writer->to - writer->start);
    MST_ASSERT(size <= writer->reserved);
    mst__buf_commit(writer->output, size);
}

static inline void write_op(struct writer *writer, uint8_t opcode)
{
    *writer->to++ = opcode;
}

static inline void write_int(struct writer *writer, int64_t number)
{
    writer->to = mst__emit_int(writer->to, number);
}

static inline void write_text(struct writer *writer, struct mst_bytes text)
{
    writer->to = mst__emit_text(writer->to, text);
}

static inline void write_get(struct writer *writer, uint32_t index)
{
    writer->to = mst__emit_get(writer->to, index);
}

/* Put the last value into the memo if it will be used again. */
static inline uint32_t write_memoize(struct writer *writer, bool is_reused)
{
    if (!is_reused) {
        return MEMO_NONE;
    }
    write_op(writer, MST_PICKLE_MEMOIZE);
    return writer->memo_count++;
}

/* --- nodes and times --- */

static bool write_is_member(const struct mst__peer *member)
{
    return member->is_participant || member->is_waiting || member->is_spare ||
           member->has_heartbeat;
}

static bool write_is_reused(const struct mst__peer *member)
{
    return member->is_participant + member->is_waiting + member->is_spare + member->has_heartbeat >
           1;
}

/* The class and the names of the attributes, at the first node. */
static void write_first_node(struct writer *writer, const struct mst__node *node)
{
    bool is_reused = writer->nodes_count > 1;
    write_get(writer, writer->module);
    write_text(writer, WRITE_TEXT(MST_PICKLE_NODE));
    write_op(writer, MST_PICKLE_STACK_GLOBAL);
    writer->node_class = write_memoize(writer, is_reused);
    writer->to = mst__emit_raw(writer->to, ")\x81}(", 4);
    write_text(writer,
               writer->state->dialect == MST_RECORD_D1 ? WRITE_TEXT("fqdn") : WRITE_TEXT("addr"));
    writer->node_keys = write_memoize(writer, is_reused);
    write_text(writer, node->addr);
    write_text(writer, WRITE_TEXT("pid"));
    (void)write_memoize(writer, is_reused); /* the index after node_keys */
    write_int(writer, node->pid);
    write_text(writer, WRITE_TEXT("local_id"));
    (void)write_memoize(writer, is_reused); /* the next one */
    write_int(writer, node->local_id);
}

/* There is room for WRITE_PIECE_SIZE and the address. */
static void write_node(struct writer *writer, mst__peer_id id)
{
    const struct mst__peer *member = &writer->state->members[id];
    if (writer->nodes[id] != MEMO_NONE) {
        write_get(writer, writer->nodes[id]);
        return;
    }
    if (writer->node_class == MEMO_NONE) {
        write_first_node(writer, &member->node);
    } else {
        write_get(writer, writer->node_class);
        writer->to = mst__emit_raw(writer->to, ")\x81}(", 4);
        write_get(writer, writer->node_keys);
        write_text(writer, member->node.addr);
        write_get(writer, writer->node_keys + 1);
        write_int(writer, member->node.pid);
        write_get(writer, writer->node_keys + 2);
        write_int(writer, member->node.local_id);
    }
    write_op(writer, MST_PICKLE_SETITEMS);
    write_op(writer, MST_PICKLE_BUILD);
    writer->nodes[id] = write_memoize(writer, write_is_reused(member));
}

/* timezone(timedelta(0, 0, 0)), with the module's name under @module. */
static void write_utc(struct writer *writer, uint32_t module)
{
    if (writer->utc != MEMO_NONE) {
        write_get(writer, writer->utc);
        return;
    }
    write_get(writer, module);
    write_text(writer, WRITE_TEXT("timezone"));
    write_op(writer, MST_PICKLE_STACK_GLOBAL);
    write_get(writer, module);
    write_text(writer, WRITE_TEXT("timedelta"));
    write_op(writer, MST_PICKLE_STACK_GLOBAL);
    writer->to = mst__emit_raw(writer->to, "K\0K\0K\0\x87R\x85R", 10);
    writer->utc = write_memoize(writer, writer->times_count > 1);
}

/* There is room for WRITE_PIECE_SIZE. False if Python has no such time. */
static bool write_time(struct writer *writer, int64_t us)
{
    bool is_aware = writer->state->dialect == MST_RECORD_D4;
    uint32_t module = MEMO_NONE;
    if (writer->time_class != MEMO_NONE) {
        write_get(writer, writer->time_class);
    } else {
        write_text(writer, WRITE_TEXT("datetime"));
        module = write_memoize(writer, is_aware);
        write_text(writer, WRITE_TEXT("datetime"));
        write_op(writer, MST_PICKLE_STACK_GLOBAL);
        writer->time_class = write_memoize(writer, writer->times_count > 1);
    }
    write_op(writer, MST_PICKLE_SHORT_BINBYTES);
    write_op(writer, MST_DATETIME_SIZE);
    if (!mst__datetime_write(us, writer->to)) {
        return false;
    }
    writer->to += MST_DATETIME_SIZE;
    if (is_aware) {
        write_utc(writer, module);
    }
    write_op(writer, is_aware ? MST_PICKLE_TUPLE2 : MST_PICKLE_TUPLE1);
    write_op(writer, MST_PICKLE_REDUCE);
    return true;
}

/* --- attributes --- */

enum write_list { WRITE_PARTICIPANTS, WRITE_SET, WRITE_HEARTBEATS };

static int write_item(struct writer *writer, enum write_list list, mst__peer_id id)
{
    const struct mst__peer *member = &writer->state->members[id];
    int rv = write_reserve(writer, 2 * WRITE_PIECE_SIZE + member->node.addr.size);
    if (rv != 0) {
        return rv;
    }
    write_node(writer, id);
    if (list == WRITE_PARTICIPANTS) {
        write_int(writer, member->rank);
    } else if (list == WRITE_HEARTBEATS && !write_time(writer, member->heartbeat_us)) {
        return MST_EINVAL;
    }
    write_commit(writer);
    return 0;
}

static int write_members(struct writer *writer,
                         struct mst_bytes name,
                         enum write_list list,
                         const struct mst__peers *members)
{
    int rv = write_reserve(writer, WRITE_PIECE_SIZE);
    if (rv != 0) {
        return rv;
    }
    write_text(writer, name);
    write_op(writer, list == WRITE_SET ? MST_PICKLE_EMPTY_SET : MST_PICKLE_EMPTY_DICT);
    write_commit(writer);
    for (size_t i = 0; rv == 0 && i < members->count; i++) {
        if (i % WRITE_GROUP_MAX == 0) {
            rv = mst__buf_append_u8(writer->output, MST_PICKLE_MARK);
        }
        if (rv == 0) {
            rv = write_item(writer, list, members->ids[i]);
        }
        if (rv == 0 && (i % WRITE_GROUP_MAX == WRITE_GROUP_MAX - 1 || i + 1 == members->count)) {
            rv = mst__buf_append_u8(writer->output,
                                    list == WRITE_SET ? MST_PICKLE_ADDITEMS : MST_PICKLE_SETITEMS);
        }
    }
    return rv;
}

/* The nodes with a heartbeat that are muster's. */
static int write_marks(struct writer *writer)
{
    const struct mst__state *state = writer->state;
    struct mst__peers ours = {NULL, 0, 0};
    if (state->heartbeats.count == 0) {
        return 0;
    }
    ours.ids = mst__malloc(state->heartbeats.count * sizeof *ours.ids);
    if (ours.ids == NULL) {
        return MST_ENOMEM;
    }
    for (size_t i = 0; i < state->heartbeats.count; i++) {
        if (state->members[state->heartbeats.ids[i]].is_ours) {
            ours.ids[ours.count++] = state->heartbeats.ids[i];
        }
    }
    int rv =
        ours.count == 0 ? 0 : write_members(writer, WRITE_TEXT("muster_nodes"), WRITE_SET, &ours);
    mst__free(ours.ids);
    return rv;
}

static int write_head(struct writer *writer)
{
    const struct mst__state *state = writer->state;
    int rv = write_reserve(writer, WRITE_HEAD_SIZE + state->extra.size);
    if (rv != 0) {
        return rv;
    }
    writer->to = mst__emit_raw(writer->to, "\x80\x04", 2);
    write_text(writer, WRITE_TEXT(MST_PICKLE_MODULE));
    writer->module = write_memoize(writer, writer->nodes_count > 0);
    write_text(writer, WRITE_TEXT(MST_PICKLE_STATE));
    write_op(writer, MST_PICKLE_STACK_GLOBAL);
    writer->to = mst__emit_raw(writer->to, ")\x81}(", 4);
    /* Unknown attributes first: if one has a name of this dialect, ours counts. */
    writer->to = mst__emit_raw(writer->to, state->extra.data, state->extra.size);
    write_text(writer, WRITE_TEXT("round"));
    write_int(writer, state->round);
    write_text(writer, WRITE_TEXT("complete"));
    write_op(writer, state->complete ? MST_PICKLE_NEWTRUE : MST_PICKLE_NEWFALSE);
    write_text(writer, WRITE_TEXT("deadline"));
    if (!state->has_deadline) {
        write_op(writer, MST_PICKLE_NONE);
    } else if (!write_time(writer, state->deadline_us)) {
        return MST_EINVAL;
    }
    write_text(writer, WRITE_TEXT("closed"));
    write_op(writer, state->closed ? MST_PICKLE_NEWTRUE : MST_PICKLE_NEWFALSE);
    write_commit(writer);
    return 0;
}

/* The seal and the end. */
static int write_tail(struct writer *writer)
{
    const struct mst__state *state = writer->state;
    int rv = write_reserve(writer, WRITE_PIECE_SIZE);
    if (rv != 0) {
        return rv;
    }
    if (state->sealed_count > 0) {
        write_text(writer, WRITE_TEXT("muster_seal"));
        write_int(writer, state->sealed_round);
        write_int(writer, state->sealed_count);
        write_op(writer, MST_PICKLE_TUPLE2);
    }
    write_op(writer, MST_PICKLE_SETITEMS);
    write_op(writer, MST_PICKLE_BUILD);
    write_op(writer, MST_PICKLE_STOP);
    write_commit(writer);
    return 0;
}

static int write_state(struct writer *writer)
{
    const struct mst__state *state = writer->state;
    int rv = write_head(writer);
    if (rv == 0) {
        rv = write_members(writer, WRITE_TEXT("participants"), WRITE_PARTICIPANTS,
                           &state->participants);
    }
    if (rv == 0) {
        rv = write_members(writer, WRITE_TEXT("wait_list"), WRITE_SET, &state->waiting);
    }
    if (rv == 0 && state->dialect >= MST_RECORD_D3) {
        rv = write_members(writer, WRITE_TEXT("redundancy_list"), WRITE_SET, &state->spares);
    }
    if (rv == 0) {
        rv = write_members(writer, WRITE_TEXT("last_heartbeats"), WRITE_HEARTBEATS,
                           &state->heartbeats);
    }
    if (rv == 0) {
        rv = write_marks(writer);
    }
    return rv != 0 ? rv : write_tail(writer);
}

/* Count the nodes of the record, and check that peers can read them. */
static int write_prepare(struct writer *writer)
{
    const struct mst__state *state = writer->state;
    for (size_t i = 0; i < state->members_count; i++) {
        const struct mst__peer *member = &state->members[i];
        writer->nodes[i] = MEMO_NONE;
        if (!write_is_member(member)) {
            continue;
        }
        writer->nodes_count++;
        if (member->node.addr.size > MST_PICKLE_SIZE_MAX) {
            return MST_ELIMIT;
        }
        if (!mst__unicode_is_pickled(member->node.addr)) {
            return MST_EINVAL;
        }
    }
    return state->dialect < MST_RECORD_D3 && state->spares.count > 0 ? MST_EINVAL : 0;
}

int mst__pickle_write(struct mst__buf *output, const struct mst__state *state)
{
    MST_ASSERT(state->dialect >= MST_RECORD_D1);
    MST_ASSERT(state->dialect <= MST_RECORD_D4);
    size_t size_before = mst__buf_size(output);
    struct writer writer = {.output = output,
                            .state = state,
                            .times_count = state->heartbeats.count + (state->has_deadline ? 1 : 0),
                            .module = MEMO_NONE,
                            .node_class = MEMO_NONE,
                            .node_keys = MEMO_NONE,
                            .time_class = MEMO_NONE,
                            .utc = MEMO_NONE};
    writer.nodes = mst__malloc((state->members_count + 1) * sizeof *writer.nodes);
    if (writer.nodes == NULL) {
        return MST_ENOMEM;
    }
    int rv = write_prepare(&writer);
    if (rv == 0) {
        rv = write_state(&writer);
    }
    mst__free(writer.nodes);
    if (rv == 0 && mst__buf_size(output) - size_before > MST_PICKLE_SIZE_MAX) {
        rv = MST_ELIMIT;
    }
    if (rv != 0) {
        mst__buf_truncate(output, size_before);
    }
    return rv;
}
