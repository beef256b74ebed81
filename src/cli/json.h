/* cli/json.h - building JSON lines for standard output. */
#ifndef MST_CLI_JSON_H
#define MST_CLI_JSON_H

#include <muster/error.h>
#include <stdbool.h>

#include "base/buf.h"

/* One line in the making. An error sticks and is told by mst__cli_json_print. */
struct mst__cli_json {
    struct mst__buf text;
    int code;       /* 0, or why the line is not whole */
    bool has_value; /* at this place of the line: a comma comes before the next one */
};

void mst__cli_json_init(struct mst__cli_json *json);
void mst__cli_json_close(struct mst__cli_json *json);

/* An object ('{') or an array ('['), under @name; NULL at the top and within an array. The same
 * holds for the values below. */
void mst__cli_json_begin(struct mst__cli_json *json, const char *name, char bracket);
void mst__cli_json_end(struct mst__cli_json *json, char bracket);

/* What is not UTF-8 becomes the replacement character. */
void mst__cli_json_text(struct mst__cli_json *json, const char *name, struct mst_bytes value);
void mst__cli_json_number(struct mst__cli_json *json, const char *name, int64_t value);
/* Six digits count. @value is finite. */
void mst__cli_json_real(struct mst__cli_json *json, const char *name, double value);
void mst__cli_json_bool(struct mst__cli_json *json, const char *name, bool value);
void mst__cli_json_null(struct mst__cli_json *json, const char *name);

/* Write the line to standard output at once, in one write where the system lets us, and empty it.
 * 0, MST_ENOMEM, MST_ELIMIT, MST_ESYS. */
int mst__cli_json_print(struct mst__cli_json *json, struct mst_err *reterr);

/* Append text to @text that anybody may have written, as mst__unicode_take_shown has it. Nothing is
 * done after an error in @rv. Returns how many characters that makes. */
size_t mst__cli_put_foreign(struct mst__buf *text, struct mst_bytes foreign, int *rv);

/* Write @text to standard output at once. 0 or MST_ESYS. */
int mst__cli_write(struct mst_bytes text, struct mst_err *reterr);

#endif /* MST_CLI_JSON_H */
