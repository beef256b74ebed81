/* agent/control_keys.c - writes and reads commands and nodes as JSON. */
#include "agent/control_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/limits.h"

static const char *const kind_names[] = {
#define CONTROL_NAME(name, text) [MST_CONTROL_##name] = (text),
    MST_CONTROL_MAP(CONTROL_NAME)
#undef CONTROL_NAME
};
#define KINDS_COUNT (sizeof kind_names / sizeof kind_names[0])

/* --- reading --- */

/* Read a text member, cut off at @size; "" if there is none. */
static void read_text(struct mst_bytes object, const char *name, char *ret_text, size_t size)
{
    struct mst_bytes value;
    struct mst__buf text;
    mst__buf_init(&text, MST_CONTROL_TEXT_SIZE_MAX);
    ret_text[0] = '\0';
    if (mst__json_read_member(object, name, &value) && mst__json_read_text(value, &text)) {
        struct mst_bytes bytes = mst__buf_bytes(&text);
        size_t used = bytes.size < size - 1 ? bytes.size : size - 1;
        memcpy(ret_text, bytes.data, used);
        ret_text[used] = '\0';
    }
    mst__buf_close(&text);
}

static int64_t read_number(struct mst_bytes object, const char *name, int64_t preset)
{
    struct mst_bytes value;
    int64_t number = 0;
    return mst__json_read_member(object, name, &value) && mst__json_read_number(value, &number)
               ? number
               : preset;
}

static bool read_bool(struct mst_bytes object, const char *name)
{
    struct mst_bytes value;
    return mst__json_read_member(object, name, &value) && value.size == 4 &&
           memcmp(value.data, "true", 4) == 0;
}

/* --- commands --- */

static int finish(struct mst__json_writer *json, struct mst__buf *text)
{
    mst__json_put_end(json, '}');
    int rv = json->code;
    rv = rv == 0 ? mst__buf_append(text, mst__buf_bytes(&json->text)) : rv;
    mst__json_writer_close(json);
    return rv;
}

int mst__control_write(const struct mst__control_command *command, struct mst__buf *text)
{
    struct mst__json_writer json;
    mst__json_writer_init(&json, MST_CONTROL_TEXT_SIZE_MAX);
    mst__json_put_begin(&json, NULL, '{');
    mst__json_put_text(&json, "do", mst_bytes_str(kind_names[command->kind]));
    if (command->kind == MST_CONTROL_DRAIN) {
        mst__json_put_text(&json, "node", mst_bytes_str(command->node));
        mst__json_put_number(&json, "within_ms", command->within_ms);
    } else if (command->kind == MST_CONTROL_LOGS) {
        mst__json_put_number(&json, "rank", command->rank);
        mst__json_put_text(&json, "stream",
                           mst_bytes_str(command->is_stderr ? "stderr" : "stdout"));
        mst__json_put_number(&json, "lines", command->lines);
        mst__json_put_bool(&json, "follow", command->follows);
        mst__json_put_text(&json, "token", mst_bytes_str(command->token));
    }
    return finish(&json, text);
}

bool mst__control_read(struct mst_bytes text, struct mst__control_command *ret_command)
{
    struct mst_bytes object;
    char word[32];
    *ret_command = (struct mst__control_command){0};
    if (!mst__json_read_value(text, &object)) {
        return false;
    }
    read_text(object, "do", word, sizeof word);
    size_t kind = 0;
    while (kind < KINDS_COUNT && strcmp(word, kind_names[kind]) != 0) {
        kind++;
    }
    if (kind == KINDS_COUNT) {
        return false;
    }
    ret_command->kind = (enum mst__control_kind)kind;
    read_text(object, "node", ret_command->node, sizeof ret_command->node);
    read_text(object, "token", ret_command->token, sizeof ret_command->token);
    read_text(object, "stream", word, sizeof word);
    ret_command->within_ms = read_number(object, "within_ms", -1);
    ret_command->rank = read_number(object, "rank", -1);
    ret_command->is_stderr = strcmp(word, "stderr") == 0;
    ret_command->lines = read_number(object, "lines", -1);
    ret_command->follows = read_bool(object, "follow");
    return true;
}

/* --- nodes --- */

int mst__control_node_write(const struct mst__control_node *node,
                            void (*worker_at)(void *arg,
                                              int64_t i,
                                              struct mst__control_worker *ret_worker),
                            void *arg,
                            struct mst__buf *text)
{
    struct mst__json_writer json;
    mst__json_writer_init(&json, MST_CONTROL_NODE_SIZE_MAX);
    mst__json_put_begin(&json, NULL, '{');
    mst__json_put_text(&json, "node", mst_bytes_str(node->node));
    mst__json_put_text(&json, "host", mst_bytes_str(node->host));
    mst__json_put_number(&json, "pid", node->pid);
    mst__json_put_text(&json, "role", mst_bytes_str(node->role));
    mst__json_put_text(&json, "phase", mst_bytes_str(node->phase));
    mst__json_put_number(&json, "group_rank", node->group_rank);
    mst__json_put_number(&json, "generation", node->generation);
    mst__json_put_number(&json, "round", node->round);
    mst__json_put_number(&json, "restarts", node->restarts);
    mst__json_put_number(&json, "nodes_min", node->nodes_min);
    mst__json_put_bool(&json, "leaving", node->is_leaving);
    mst__json_put_text(&json, "log_dir", mst_bytes_str(node->log_dir));
    mst__json_put_number(&json, "workers_count", node->workers_count);
    mst__json_put_begin(&json, "workers", '[');
    for (int64_t i = 0; i < node->workers_count; i++) {
        struct mst__control_worker worker = {0};
        worker_at(arg, i, &worker);
        mst__json_put_begin(&json, NULL, '{');
        mst__json_put_number(&json, "rank", worker.rank);
        mst__json_put_number(&json, "local_rank", worker.local_rank);
        mst__json_put_number(&json, "pid", worker.pid);
        mst__json_put_bool(&json, "running", worker.is_running);
        mst__json_put_end(&json, '}');
    }
    mst__json_put_end(&json, ']');
    return finish(&json, text);
}

bool mst__control_node_read(struct mst_bytes text,
                            struct mst__control_node *ret_node,
                            struct mst_bytes *ret_workers)
{
    struct mst_bytes object;
    *ret_workers = mst_bytes_of("", 0);
    *ret_node = (struct mst__control_node){0};
    if (!mst__json_read_value(text, &object) || object.data[0] != '{') {
        return false;
    }
    read_text(object, "node", ret_node->node, sizeof ret_node->node);
    read_text(object, "host", ret_node->host, sizeof ret_node->host);
    read_text(object, "role", ret_node->role, sizeof ret_node->role);
    read_text(object, "phase", ret_node->phase, sizeof ret_node->phase);
    read_text(object, "log_dir", ret_node->log_dir, sizeof ret_node->log_dir);
    ret_node->pid = read_number(object, "pid", 0);
    ret_node->group_rank = read_number(object, "group_rank", -1);
    ret_node->generation = read_number(object, "generation", 0);
    ret_node->round = read_number(object, "round", 0);
    ret_node->restarts = read_number(object, "restarts", 0);
    ret_node->workers_count = read_number(object, "workers_count", 0);
    ret_node->nodes_min = read_number(object, "nodes_min", 0);
    ret_node->is_leaving = read_bool(object, "leaving");
    if (mst__json_read_member(object, "workers", ret_workers) &&
        !mst__json_read_begin(ret_workers)) {
        *ret_workers = mst_bytes_of("", 0);
    }
    return ret_node->node[0] != '\0';
}

bool mst__control_worker_next(struct mst_bytes *workers, struct mst__control_worker *ret_worker)
{
    struct mst_bytes item;
    if (!mst__json_read_item(workers, &item)) {
        return false;
    }
    *ret_worker = (struct mst__control_worker){
        .rank = read_number(item, "rank", -1),
        .local_rank = read_number(item, "local_rank", -1),
        .pid = read_number(item, "pid", 0),
        .is_running = read_bool(item, "running"),
    };
    return true;
}
