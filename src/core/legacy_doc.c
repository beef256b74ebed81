/* core/legacy_doc.c - the document of a legacy rendezvous as data: copies, ranks and their nodes.
 *
 * Invariant: ranks are 0 … participant_count - 1, and a nonce has one rank at most. */
#include "core/legacy_doc.h"

#include <muster/error.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/mem.h"

const char *mst__legacy_status_name(enum mst__legacy_status status)
{
    static const char *const names[] = {"setup", "joinable", "frozen", "final", "closed", ""};
    return names[status];
}

/* --- nonces --- */

void mst__legacy_nonce_format(mst__legacy_nonce nonce, char ret_text[MST_LEGACY_NONCE_SIZE])
{
    for (size_t i = 0; i < MST_LEGACY_NONCE_SIZE - 1; i++) {
        ret_text[i] = "0123456789abcdef"[(nonce >> (60 - 4 * i)) & 15];
    }
    ret_text[MST_LEGACY_NONCE_SIZE - 1] = '\0';
}

bool mst__legacy_nonce_parse(struct mst_bytes text, mst__legacy_nonce *ret_nonce)
{
    if (text.size != MST_LEGACY_NONCE_SIZE - 1) {
        return false;
    }
    mst__legacy_nonce nonce = 0;
    for (size_t i = 0; i < text.size; i++) {
        char digit = (char)text.data[i];
        if (digit >= '0' && digit <= '9') {
            nonce = nonce << 4 | (uint64_t)(digit - '0');
        } else if (digit >= 'a' && digit <= 'f') {
            nonce = nonce << 4 | (uint64_t)(digit - 'a' + 10);
        } else {
            return false;
        }
    }
    if (nonce == 0) {
        return false;
    }
    *ret_nonce = nonce;
    return true;
}

int mst__legacy_nonces_add(struct mst__legacy_nonces *nonces, mst__legacy_nonce nonce)
{
    if (nonces->count >= MST_MEMBERS_MAX) {
        return MST_ELIMIT;
    }
    if (nonces->count == nonces->capacity) {
        size_t capacity = nonces->capacity == 0 ? 8 : 2 * nonces->capacity;
        mst__legacy_nonce *items = mst__realloc(nonces->items, capacity * sizeof *items);
        if (items == NULL) {
            return MST_ENOMEM;
        }
        nonces->items = items;
        nonces->capacity = capacity;
    }
    nonces->items[nonces->count++] = nonce;
    return 0;
}

int64_t mst__legacy_nonces_find(const struct mst__legacy_nonces *nonces, mst__legacy_nonce nonce)
{
    for (size_t i = 0; i < nonces->count; i++) {
        if (nonces->items[i] == nonce) {
            return (int64_t)i;
        }
    }
    return -1;
}

void mst__legacy_nonces_remove(struct mst__legacy_nonces *nonces, mst__legacy_nonce nonce)
{
    int64_t at = mst__legacy_nonces_find(nonces, nonce);
    if (at < 0) {
        return;
    }
    nonces->count--;
    for (size_t i = (size_t)at; i < nonces->count; i++) {
        nonces->items[i] = nonces->items[i + 1];
    }
}

void mst__legacy_nonces_close(struct mst__legacy_nonces *nonces)
{
    mst__free(nonces->items);
    *nonces = (struct mst__legacy_nonces){NULL, 0, 0};
}

int mst__legacy_nonces_copy(struct mst__legacy_nonces *to, const struct mst__legacy_nonces *from)
{
    MST_ASSERT(to != from);
    to->count = 0;
    for (size_t i = 0; i < from->count; i++) {
        int rv = mst__legacy_nonces_add(to, from->items[i]);
        if (rv != 0) {
            return rv;
        }
    }
    return 0;
}

/* --- the document --- */

void mst__legacy_doc_init(struct mst__legacy_doc *doc)
{
    *doc = (struct mst__legacy_doc){.status = MST_LEGACY_SETUP};
}

static void buffer_close(struct mst_buffer *buffer)
{
    mst__free(buffer->data);
    *buffer = (struct mst_buffer){NULL, 0};
}

void mst__legacy_doc_close(struct mst__legacy_doc *doc)
{
    for (size_t i = 0; i < doc->keep_alive_count; i++) {
        mst__free(doc->keep_alives[i]);
    }
    mst__free(doc->keep_alives);
    mst__legacy_nonces_close(&doc->nodes);
    mst__legacy_nonces_close(&doc->waiting);
    mst__legacy_nonces_close(&doc->left);
    buffer_close(&doc->extra);
    buffer_close(&doc->muster_extra);
    mst__legacy_doc_init(doc);
}

void mst__legacy_doc_move(struct mst__legacy_doc *to, struct mst__legacy_doc *from)
{
    MST_ASSERT(to != from);
    mst__legacy_doc_close(to);
    *to = *from;
    mst__legacy_doc_init(from);
}

static int buffer_copy(struct mst_buffer *to, const struct mst_buffer *from)
{
    if (from->size == 0) {
        return 0;
    }
    to->data = (uint8_t *)mst__memdup(from->data, from->size);
    if (to->data == NULL) {
        return MST_ENOMEM;
    }
    to->size = from->size;
    return 0;
}

static int copy_lists(struct mst__legacy_doc *to, const struct mst__legacy_doc *from)
{
    int rv = 0;
    for (size_t i = 0; rv == 0 && i < from->keep_alive_count; i++) {
        rv = mst__legacy_doc_add_keep_alive(to, from->keep_alives[i]);
    }
    rv = rv != 0 ? rv : mst__legacy_nonces_copy(&to->nodes, &from->nodes);
    rv = rv != 0 ? rv : mst__legacy_nonces_copy(&to->waiting, &from->waiting);
    rv = rv != 0 ? rv : mst__legacy_nonces_copy(&to->left, &from->left);
    rv = rv != 0 ? rv : buffer_copy(&to->extra, &from->extra);
    return rv != 0 ? rv : buffer_copy(&to->muster_extra, &from->muster_extra);
}

int mst__legacy_doc_copy(struct mst__legacy_doc *to, const struct mst__legacy_doc *from)
{
    MST_ASSERT(to != from);
    mst__legacy_doc_close(to);
    to->status = from->status;
    to->version = from->version;
    to->has_participants = from->has_participants;
    to->participant_count = from->participant_count;
    to->has_waiting = from->has_waiting;
    to->waiting_count = from->waiting_count;
    to->has_muster = from->has_muster;
    to->nodes_min = from->nodes_min;
    to->nodes_max = from->nodes_max;
    to->creator = from->creator;
    int rv = copy_lists(to, from);
    to->has_keep_alives = from->has_keep_alives;
    if (rv != 0) {
        mst__legacy_doc_close(to);
    }
    return rv;
}

/* --- keep-alives --- */

int mst__legacy_doc_add_keep_alive(struct mst__legacy_doc *doc, const char *path)
{
    if (doc->keep_alive_count >= MST_MEMBERS_MAX) {
        return MST_ELIMIT;
    }
    size_t size = (doc->keep_alive_count + 1) * sizeof *doc->keep_alives;
    char **keep_alives = mst__realloc(doc->keep_alives, size);
    if (keep_alives == NULL) {
        return MST_ENOMEM;
    }
    doc->keep_alives = keep_alives;
    keep_alives[doc->keep_alive_count] = mst__strdup(path);
    if (keep_alives[doc->keep_alive_count] == NULL) {
        return MST_ENOMEM;
    }
    doc->keep_alive_count++;
    doc->has_keep_alives = true;
    return 0;
}

/* --- ranks --- */

mst__legacy_nonce mst__legacy_doc_node(const struct mst__legacy_doc *doc, size_t rank)
{
    return rank < doc->nodes.count && rank < doc->participant_count ? doc->nodes.items[rank] : 0;
}

int64_t mst__legacy_doc_rank(const struct mst__legacy_doc *doc, mst__legacy_nonce nonce)
{
    MST_ASSERT(nonce != 0);
    int64_t rank = mst__legacy_nonces_find(&doc->nodes, nonce);
    return rank < (int64_t)doc->participant_count ? rank : -1;
}

bool mst__legacy_doc_is_ours(const struct mst__legacy_doc *doc)
{
    for (size_t i = 0; i < doc->participant_count; i++) {
        if (mst__legacy_doc_node(doc, i) == 0) {
            return false;
        }
    }
    return true;
}

int mst__legacy_doc_seat(struct mst__legacy_doc *doc, size_t rank, mst__legacy_nonce nonce)
{
    MST_ASSERT(rank < doc->participant_count);
    doc->has_muster = true;
    while (doc->nodes.count <= rank) {
        int rv = mst__legacy_nonces_add(&doc->nodes, 0);
        if (rv != 0) {
            return rv;
        }
    }
    doc->nodes.items[rank] = nonce;
    return 0;
}

int mst__legacy_doc_append(struct mst__legacy_doc *doc, mst__legacy_nonce nonce)
{
    if (doc->participant_count >= MST_MEMBERS_MAX) {
        return MST_ELIMIT;
    }
    doc->has_participants = true;
    doc->participant_count++;
    int rv = mst__legacy_doc_seat(doc, doc->participant_count - 1, nonce);
    if (rv != 0) {
        doc->participant_count--;
    }
    return rv;
}

bool mst__legacy_doc_unseat(struct mst__legacy_doc *doc, mst__legacy_nonce nonce)
{
    int64_t rank = mst__legacy_doc_rank(doc, nonce);
    if (rank < 0) {
        return false;
    }
    size_t last = doc->participant_count - 1;
    mst__legacy_nonce moved = mst__legacy_doc_node(doc, last);
    if (moved == 0) {
        return false;
    }
    doc->nodes.items[rank] = moved;
    doc->nodes.count = last;
    doc->participant_count = last;
    return true;
}
