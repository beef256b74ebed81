/* codec/read.c - converts the values of a pickle to a record.
 *
 * The machine guarantees that they are finite and well-formed; this file checks that every
 * attribute has the type that the peers give it. */
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/err.h"
#include "codec/datetime.h"
#include "codec/extra.h"
#include "codec/machine.h"
#include "codec/pickle.h"

#define READ_EXTRA_SIZE_BASE MST_KIB(64)

enum read_attribute {
    READ_ROUND,
    READ_COMPLETE,
    READ_DEADLINE,
    READ_CLOSED,
    READ_PARTICIPANTS,
    READ_WAIT_LIST,
    READ_HEARTBEATS,
    READ_MANDATORY_COUNT,
    READ_SPARES = READ_MANDATORY_COUNT,
    READ_SEAL,
    READ_NODES,
    READ_ATTRIBUTE_COUNT,
};

static const char *const read_names[READ_ATTRIBUTE_COUNT] = {
    [READ_ROUND] = "round",
    [READ_COMPLETE] = "complete",
    [READ_DEADLINE] = "deadline",
    [READ_CLOSED] = "closed",
    [READ_PARTICIPANTS] = "participants",
    [READ_WAIT_LIST] = "wait_list",
    [READ_HEARTBEATS] = "last_heartbeats",
    [READ_SPARES] = "redundancy_list",
    [READ_SEAL] = "muster_seal",
    [READ_NODES] = "muster_nodes",
};

struct reader {
    struct mst__machine machine;
    struct mst__state *state;
    struct mst_err *reterr;
    const struct mst__value *attributes[READ_ATTRIBUTE_COUNT]; /* NULL = missing */
    const struct mst__value *extra_keys[MST_PICKLE_EXTRAS_MAX];
    const struct mst__value *extra_values[MST_PICKLE_EXTRAS_MAX];
    size_t extras_count;
    const struct mst__value *spares_key;
    bool has_fqdn, has_addr;   /* the field names of addresses */
    bool has_naive, has_aware; /* the kinds of times */
};

static int read_refuse(const struct reader *reader, enum read_attribute attribute, const char *why)
{
    return mst__fail(reader->reterr, MST_EPROTO, 0, "record, %s: %s", read_names[attribute], why);
}

/* An error of the state functions, which do not fill mst_err. */
static int read_fail(const struct reader *reader, enum read_attribute attribute, int code)
{
    return mst__fail(reader->reterr, code, 0, "record, %s: %s", read_names[attribute],
                     mst_strerror(code));
}

static bool read_is(const struct reader *reader, const struct mst__value *text, const char *name)
{
    size_t size = strlen(name);
    return text->size == size && memcmp(reader->machine.input.data + text->at, name, size) == 0;
}

/* --- nodes and times --- */

static int read_node(struct reader *reader,
                     enum read_attribute attribute,
                     uint32_t object,
                     struct mst__node *ret_node)
{
    const struct mst__value *addr = NULL;
    const struct mst__value *pid = NULL;
    const struct mst__value *local_id = NULL;
    bool is_fqdn = false;
    struct mst__machine_cursor cursor = mst__machine_items(&reader->machine, object);
    for (;;) {
        const struct mst__value *key = mst__machine_next(&reader->machine, &cursor);
        if (key == NULL) {
            break;
        }
        const struct mst__value *value = mst__machine_next(&reader->machine, &cursor);
        if (read_is(reader, key, "addr") || read_is(reader, key, "fqdn")) {
            bool is_key_fqdn = read_is(reader, key, "fqdn");
            if (addr != NULL && is_key_fqdn != is_fqdn) {
                return read_refuse(reader, attribute, "a node has both an addr and an fqdn");
            }
            is_fqdn = is_key_fqdn;
            addr = value;
        } else if (read_is(reader, key, "pid")) {
            pid = value;
        } else if (read_is(reader, key, "local_id")) {
            local_id = value;
        } else {
            return read_refuse(reader, attribute, "a node has an unknown attribute");
        }
    }
    *ret_node = (struct mst__node){0};
    if (addr == NULL || pid == NULL || local_id == NULL || addr->kind != MST_VALUE_TEXT ||
        !mst__machine_number(&reader->machine, pid, &ret_node->pid) ||
        !mst__machine_number(&reader->machine, local_id, &ret_node->local_id)) {
        return read_refuse(
            reader, attribute,
            "a node must have an address as text, pid and local_id as 64-bit integers");
    }
    reader->has_fqdn |= is_fqdn;
    reader->has_addr |= !is_fqdn;
    ret_node->addr = mst__machine_bytes(&reader->machine, addr);
    return 0;
}

/* The member for @value of @attribute. */
static int read_member(struct reader *reader,
                       enum read_attribute attribute,
                       const struct mst__value *value,
                       mst__peer_id *ret_id)
{
    if (value->kind != MST_VALUE_INSTANCE ||
        reader->machine.objects[value->at].type != MST_CLASS_NODE) {
        return read_refuse(reader, attribute, "something is not a node");
    }
    /* The same object again, as in most maps of heartbeats. */
    struct mst__object *object = &reader->machine.objects[value->at];
    if (object->note != MST_OBJECT_NONE) {
        *ret_id = object->note;
        return 0;
    }
    struct mst__node node;
    int rv = read_node(reader, attribute, value->at, &node);
    if (rv != 0) {
        return rv;
    }
    rv = mst__state_obtain(reader->state, &node, ret_id);
    if (rv != 0) {
        return read_fail(reader, attribute, rv);
    }
    object->note = *ret_id;
    return 0;
}

static int read_time(struct reader *reader,
                     enum read_attribute attribute,
                     const struct mst__value *value,
                     int64_t *ret_us)
{
    if (value->kind != MST_VALUE_AWARE_TIME && value->kind != MST_VALUE_NAIVE_TIME) {
        return read_refuse(reader, attribute, "something is not a datetime");
    }
    reader->has_aware |= value->kind == MST_VALUE_AWARE_TIME;
    reader->has_naive |= value->kind == MST_VALUE_NAIVE_TIME;
    bool is_date = mst__datetime_read(reader->machine.input.data + value->at, ret_us);
    MST_ASSERT(is_date);
    return 0;
}

/* --- attributes --- */

/* One key and value of a map, one member of a set. */
static int read_item(struct reader *reader,
                     enum read_attribute attribute,
                     mst__peer_id id,
                     const struct mst__value *value)
{
    int rv;
    if (attribute == READ_PARTICIPANTS) {
        int64_t rank;
        if (!mst__machine_number(&reader->machine, value, &rank)) {
            return read_refuse(reader, attribute, "a rank is not an integer of 64 bits");
        }
        rv = mst__state_put_participant(reader->state, id, rank);
    } else if (attribute == READ_HEARTBEATS) {
        int64_t us;
        rv = read_time(reader, attribute, value, &us);
        if (rv != 0) {
            return rv;
        }
        rv = mst__state_put_heartbeat(reader->state, id, us);
    } else if (attribute == READ_WAIT_LIST) {
        rv = mst__state_put_waiting(reader->state, id);
    } else {
        MST_ASSERT(attribute == READ_SPARES);
        rv = mst__state_put_spare(reader->state, id);
    }
    return rv == 0 ? 0 : read_fail(reader, attribute, rv);
}

static int read_collection(struct reader *reader, enum read_attribute attribute)
{
    const struct mst__value *from = reader->attributes[attribute];
    bool is_map = attribute == READ_PARTICIPANTS || attribute == READ_HEARTBEATS;
    if (from->kind != (is_map ? MST_VALUE_DICT : MST_VALUE_SET)) {
        return read_refuse(reader, attribute, is_map ? "is not a dict" : "is not a set");
    }
    struct mst__machine_cursor cursor = mst__machine_items(&reader->machine, from->at);
    for (;;) {
        const struct mst__value *key = mst__machine_next(&reader->machine, &cursor);
        if (key == NULL) {
            return 0;
        }
        const struct mst__value *value =
            is_map ? mst__machine_next(&reader->machine, &cursor) : NULL;
        mst__peer_id id;
        int rv = read_member(reader, attribute, key, &id);
        if (rv == 0) {
            rv = read_item(reader, attribute, id, value);
        }
        if (rv != 0) {
            return rv;
        }
    }
}

static int read_bool(const struct reader *reader, enum read_attribute attribute, bool *ret_value)
{
    const struct mst__value *value = reader->attributes[attribute];
    if (value->kind != MST_VALUE_FALSE && value->kind != MST_VALUE_TRUE) {
        return read_refuse(reader, attribute, "is not a bool");
    }
    *ret_value = value->kind == MST_VALUE_TRUE;
    return 0;
}

static int read_plain(struct reader *reader)
{
    struct mst__state *state = reader->state;
    if (!mst__machine_number(&reader->machine, reader->attributes[READ_ROUND], &state->round)) {
        return read_refuse(reader, READ_ROUND, "is not an integer of 64 bits");
    }
    int rv = read_bool(reader, READ_COMPLETE, &state->complete);
    if (rv == 0) {
        rv = read_bool(reader, READ_CLOSED, &state->closed);
    }
    if (rv == 0 && reader->attributes[READ_DEADLINE]->kind != MST_VALUE_NONE) {
        rv = read_time(reader, READ_DEADLINE, reader->attributes[READ_DEADLINE],
                       &state->deadline_us);
        state->has_deadline = rv == 0;
    }
    return rv;
}

static int read_seal(struct reader *reader)
{
    const struct mst__value *seal = reader->attributes[READ_SEAL];
    if (seal == NULL) {
        return 0;
    }
    if (seal->kind == MST_VALUE_TUPLE && reader->machine.objects[seal->at].count == 2) {
        struct mst__machine_cursor cursor = mst__machine_items(&reader->machine, seal->at);
        const struct mst__value *round = mst__machine_next(&reader->machine, &cursor);
        const struct mst__value *count = mst__machine_next(&reader->machine, &cursor);
        struct mst__state *state = reader->state;
        if (mst__machine_number(&reader->machine, round, &state->sealed_round) &&
            mst__machine_number(&reader->machine, count, &state->sealed_count) &&
            state->sealed_count > 0) {
            return 0;
        }
    }
    return read_refuse(reader, READ_SEAL, "is not a tuple of a round and a count above 0");
}

/* The nodes that are muster's. Peers preserve this attribute, so it may name nodes that are
 * gone. */
static int read_marks(struct reader *reader)
{
    const struct mst__value *nodes = reader->attributes[READ_NODES];
    if (nodes == NULL) {
        return 0;
    }
    if (nodes->kind != MST_VALUE_SET) {
        return read_refuse(reader, READ_NODES, "is not a set");
    }
    struct mst__machine_cursor cursor = mst__machine_items(&reader->machine, nodes->at);
    const struct mst__value *value;
    while ((value = mst__machine_next(&reader->machine, &cursor)) != NULL) {
        if (value->kind != MST_VALUE_INSTANCE ||
            reader->machine.objects[value->at].type != MST_CLASS_NODE) {
            return read_refuse(reader, READ_NODES, "something is not a node");
        }
        struct mst__node node;
        int rv = read_node(reader, READ_NODES, value->at, &node);
        if (rv != 0) {
            return rv;
        }
        mst__peer_id id = mst__state_find(reader->state, &node);
        if (id != MST_PEER_NONE && reader->state->members[id].has_heartbeat) {
            mst__state_mark(reader->state, id);
        }
    }
    return 0;
}

/* --- the record --- */

static int read_add_extra(struct reader *reader,
                          const struct mst__value *key,
                          const struct mst__value *value)
{
    struct mst_bytes name = mst__machine_bytes(&reader->machine, key);
    for (size_t i = 0; i < reader->extras_count; i++) {
        if (mst__bytes_equal(mst__machine_bytes(&reader->machine, reader->extra_keys[i]), name)) {
            reader->extra_values[i] = value; /* the last one counts */
            return 0;
        }
    }
    if (reader->extras_count == MST_PICKLE_EXTRAS_MAX) {
        return mst__fail(reader->reterr, MST_ELIMIT, 0, "record: more than %d unknown attributes",
                         MST_PICKLE_EXTRAS_MAX);
    }
    reader->extra_keys[reader->extras_count] = key;
    reader->extra_values[reader->extras_count++] = value;
    return 0;
}

/* Find the attributes of the state; the last one of a name counts. */
static int read_attributes(struct reader *reader, uint32_t object)
{
    struct mst__machine_cursor cursor = mst__machine_items(&reader->machine, object);
    for (;;) {
        const struct mst__value *key = mst__machine_next(&reader->machine, &cursor);
        if (key == NULL) {
            break;
        }
        const struct mst__value *value = mst__machine_next(&reader->machine, &cursor);
        int attribute = 0;
        while (attribute < READ_ATTRIBUTE_COUNT && !read_is(reader, key, read_names[attribute])) {
            attribute++;
        }
        if (attribute < READ_ATTRIBUTE_COUNT) {
            reader->attributes[attribute] = value;
            reader->spares_key = attribute == READ_SPARES ? key : reader->spares_key;
            continue;
        }
        int rv = read_add_extra(reader, key, value);
        if (rv != 0) {
            return rv;
        }
    }
    for (int i = 0; i < READ_MANDATORY_COUNT; i++) {
        if (reader->attributes[i] == NULL) {
            return read_refuse(reader, (enum read_attribute)i, "is missing");
        }
    }
    return 0;
}

static int read_extras(struct reader *reader)
{
    if (reader->extras_count == 0) {
        return 0;
    }
    size_t size_max = READ_EXTRA_SIZE_BASE + MST_PICKLE_MEMORY_FACTOR * reader->machine.input.size;
    struct mst__buf output;
    mst__buf_init(&output,
                  size_max < MST_PICKLE_EXTRA_SIZE_MAX ? size_max : MST_PICKLE_EXTRA_SIZE_MAX);
    int rv = 0;
    size_t i = 0;
    while (rv == 0 && i < reader->extras_count) {
        rv = mst__extra_write(&output, &reader->machine, reader->extra_keys[i],
                              reader->extra_values[i]);
        i += rv == 0 ? 1 : 0;
    }
    if (rv == 0) {
        rv = mst__buf_release(&output, &reader->state->extra);
    }
    mst__buf_close(&output);
    if (rv != 0) {
        rv = mst__fail(reader->reterr, rv, 0,
                       "record: unknown attribute %zu cannot be preserved: %s", i + 1,
                       rv == MST_EPROTO ? "it refers to a class or a state" : mst_strerror(rv));
    }
    return rv;
}

/* The dialect of the record. */
static int read_dialect(struct reader *reader)
{
    bool has_spares = reader->attributes[READ_SPARES] != NULL;
    bool is_before_zones = reader->has_fqdn || !has_spares;
    if (reader->has_fqdn && reader->has_addr) {
        return mst__fail(reader->reterr, MST_EPROTO, 0,
                         "record: some nodes have an fqdn, others an addr");
    }
    if (reader->has_aware && (reader->has_naive || is_before_zones)) {
        return mst__fail(reader->reterr, MST_EPROTO, 0,
                         "record: times with a zone in a record of an older dialect");
    }
    if (reader->has_fqdn || (!has_spares && !reader->has_addr)) {
        reader->state->dialect = MST_RECORD_D1;
    } else if (!has_spares) {
        reader->state->dialect = MST_RECORD_D2;
    } else {
        reader->state->dialect = reader->has_naive ? MST_RECORD_D3 : MST_RECORD_D4;
    }
    return 0;
}

/* The spares come last: an agent of 1.13 has no such list but preserves one that it has found. It
 * is then an attribute like any other. */
static int read_spares(struct reader *reader)
{
    const struct mst__value *spares = reader->attributes[READ_SPARES];
    if (spares == NULL) {
        return 0;
    }
    if (reader->has_fqdn) {
        return read_add_extra(reader, reader->spares_key, spares);
    }
    int rv = read_collection(reader, READ_SPARES);
    if (rv == 0 && reader->has_fqdn) {
        rv = read_refuse(reader, READ_SPARES, "a node has an fqdn");
    }
    return rv;
}

static int read_state(struct reader *reader, const struct mst__value *root)
{
    if (root->kind != MST_VALUE_INSTANCE ||
        reader->machine.objects[root->at].type != MST_CLASS_STATE ||
        !reader->machine.objects[root->at].is_built) {
        return mst__fail(reader->reterr, MST_EPROTO, 0,
                         "record: a pickle, but not of a rendezvous state");
    }
    int rv = read_attributes(reader, root->at);
    if (rv == 0) {
        rv = read_plain(reader);
    }
    static const enum read_attribute collections[] = {READ_PARTICIPANTS, READ_WAIT_LIST,
                                                      READ_HEARTBEATS};
    for (size_t i = 0; rv == 0 && i < sizeof collections / sizeof collections[0]; i++) {
        rv = read_collection(reader, collections[i]);
    }
    if (rv == 0) {
        rv = read_spares(reader);
    }
    if (rv == 0) {
        rv = read_dialect(reader);
    }
    if (rv == 0) {
        rv = read_seal(reader);
    }
    if (rv == 0) {
        rv = read_marks(reader);
    }
    return rv != 0 ? rv : read_extras(reader);
}

int mst__pickle_read(struct mst_bytes bytes, struct mst__state *ret_state, struct mst_err *reterr)
{
    MST_ASSERT(ret_state->members_count == 0);
    if (bytes.size > MST_PICKLE_SIZE_MAX) {
        return mst__fail(reterr, MST_ELIMIT, 0, "record of %zu bytes: at most %zu are read",
                         bytes.size, MST_PICKLE_SIZE_MAX);
    }
    struct reader reader = {.state = ret_state, .reterr = reterr};
    struct mst__value root;
    int rv = mst__machine_run(&reader.machine, bytes, &root, reterr);
    if (rv == 0) {
        rv = read_state(&reader, &root);
    }
    mst__machine_close(&reader.machine);
    if (rv != 0) {
        mst__state_close(ret_state);
    }
    return rv;
}
