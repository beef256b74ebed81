/* vectors/vectors.h - the data-driven test: lines of JSON with inputs and expected results.
 *
 * Each kind of line has its own file with one function for a line (or one for a whole document),
 * and one row in the dispatch table of vectors.c. */
#ifndef MST_VECTORS_VECTORS_H
#define MST_VECTORS_VECTORS_H

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/settings.h"
#include "core/state.h"

/* Run one line: 0 if it holds; else -1 with a sentence in @why. It must release all its memory:
 * the test runs under a leak checker. */
typedef int (*vectors_line_fn)(const json_t *line, char *why, size_t why_size);

int vectors_decide_line(const json_t *line, char *why, size_t why_size);
int vectors_apply_line(const json_t *line, char *why, size_t why_size);
int vectors_sanitize_line(const json_t *line, char *why, size_t why_size);
int vectors_sequence_line(const json_t *line, char *why, size_t why_size);
int vectors_ranks_line(const json_t *line, char *why, size_t why_size);
/* All lines that have a `kind`: endpoint, config, bool, int, params, handler, c10d. */
int vectors_endpoint_line(const json_t *line, char *why, size_t why_size);

struct vectors_count {
    size_t passed;
    size_t failed;
};

/* Count one vector, and print its id and @why if it failed (@rv is not 0). */
void vectors_count_one(struct vectors_count *count, const char *id, int rv, const char *why);

/* Run a file that is one JSON document; every vector in it is counted by vectors_count_one. */
typedef void (*vectors_document_fn)(const json_t *document, struct vectors_count *count);

/* pickle-vectors.json: the document with `vectors` and `reject_vectors`. */
void vectors_pickle_document(const json_t *document, struct vectors_count *count);

/* Write the reason into @why; the value is -1, so that `return vectors_differ(...)` fails. */
#define vectors_differ(why, why_size, ...) ((void)snprintf((why), (why_size), __VA_ARGS__), -1)

/* Read what the lines have in common. The text of a node is borrowed from the JSON. All return 0,
 * or -1 with the reason when the line has not the described form. */
int vectors_read_node(const json_t *json, struct mst__node *ret_node);
int vectors_read_settings(const json_t *json,
                          struct mst__settings *ret_settings,
                          char *why,
                          size_t why_size);
/* @ret_state is initialised and empty. Without a redundancy_list its dialect is D1, else D4. */
int vectors_read_state(const json_t *json,
                       struct mst__state *ret_state,
                       char *why,
                       size_t why_size);
/* 0 when equal; else the first difference in @why, put behind the word @what. */
int vectors_compare_state(const struct mst__state *got,
                          const struct mst__state *wanted,
                          const char *what,
                          char *why,
                          size_t why_size);

/* The members of a JSON object; a missing or wrong one is 0, false or NULL. */
int64_t vectors_int(const json_t *object, const char *name);
bool vectors_bool(const json_t *object, const char *name);
const char *vectors_text(const json_t *object, const char *name);

/* What an action or error is called in the lines; NULL for none of them. */
const char *vectors_action_name(int action);

#endif /* MST_VECTORS_VECTORS_H */
