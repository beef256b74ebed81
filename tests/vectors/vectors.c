/* vectors/vectors.c - run vectors: FILE… of JSON lines, or of one JSON document, of any kind.
 *
 * The kind of a line is told from the line itself. The last line of output is
 * `N passed, N failed`; the exit status is 0 only if none failed. */
#include "vectors/vectors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A line is of the first kind whose member it has. */
static const struct {
    const char *member;
    vectors_line_fn run;
} line_kinds[] = {
    {"kind", vectors_endpoint_line}, {"steps", vectors_sequence_line},
    {"op", vectors_decide_line},     {"dead", vectors_sanitize_line},
    {"action", vectors_apply_line},  {"ranks", vectors_ranks_line},
};

/* A document is of the first kind whose member it has. */
static const struct {
    const char *member;
    vectors_document_fn run;
} document_kinds[] = {
    {"reject_vectors", vectors_pickle_document},
};

#define WHY_SIZE 1000
#define FAILURES_SHOWN_MAX 50

void vectors_count_one(struct vectors_count *count, const char *id, int rv, const char *why)
{
    if (rv == 0) {
        count->passed++;
        return;
    }
    count->failed++;
    if (count->failed <= FAILURES_SHOWN_MAX) {
        (void)printf("FAIL %s: %s\n", id == NULL ? "?" : id, why);
    }
}

static vectors_line_fn find_line_kind(const json_t *line)
{
    for (size_t i = 0; i < sizeof line_kinds / sizeof line_kinds[0]; i++) {
        if (json_object_get(line, line_kinds[i].member) != NULL) {
            return line_kinds[i].run;
        }
    }
    return NULL;
}

static vectors_document_fn find_document_kind(const json_t *document)
{
    for (size_t i = 0; i < sizeof document_kinds / sizeof document_kinds[0]; i++) {
        if (json_object_get(document, document_kinds[i].member) != NULL) {
            return document_kinds[i].run;
        }
    }
    return NULL;
}

static void run_line(const char *path,
                     size_t number,
                     const char *text,
                     size_t size,
                     struct vectors_count *count)
{
    char where[300];
    (void)snprintf(where, sizeof where, "%s:%zu", path, number);
    json_error_t error;
    json_t *line = json_loadb(text, size, JSON_ALLOW_NUL, &error);
    if (line == NULL) {
        vectors_count_one(count, where, -1, error.text);
        return;
    }
    const char *id = vectors_text(line, "id");
    vectors_line_fn run = find_line_kind(line);
    char why[WHY_SIZE] = "no reason given";
    if (run == NULL) {
        vectors_count_one(count, id == NULL ? where : id, -1, "a line of no known kind");
    } else {
        vectors_count_one(count, id == NULL ? where : id, run(line, why, sizeof why), why);
    }
    json_decref(line);
}

/* A document spreads over several lines; a file of lines has a whole object in its first one. */
static bool run_document(const char *text, size_t size, struct vectors_count *count)
{
    json_error_t error;
    json_t *document = json_loadb(text, size, JSON_ALLOW_NUL, &error);
    if (document == NULL) {
        return false;
    }
    vectors_document_fn run = find_document_kind(document);
    if (run != NULL) {
        run(document, count);
    }
    json_decref(document);
    return run != NULL;
}

static void run_text(const char *path, const char *text, size_t size, struct vectors_count *count)
{
    if (run_document(text, size, count)) {
        return;
    }
    size_t number = 0;
    const char *end = text + size;
    while (text < end) {
        number++;
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *line_end = newline == NULL ? end : newline;
        if (line_end > text) {
            run_line(path, number, text, (size_t)(line_end - text), count);
        }
        text = newline == NULL ? end : newline + 1;
    }
}

/* The whole of a file, to be released with free; NULL with errno set. */
static char *read_file(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL;
    }
    size_t size = 0;
    size_t capacity = (size_t)1 << 20;
    char *text = malloc(capacity);
    while (text != NULL) {
        size += fread(text + size, 1, capacity - size, file);
        if (size < capacity) {
            break;
        }
        capacity *= 2;
        char *larger = realloc(text, capacity);
        if (larger == NULL) {
            free(text);
        }
        text = larger;
    }
    if (text != NULL && ferror(file)) {
        free(text);
        text = NULL;
    }
    (void)fclose(file); /* it was only read */
    *ret_size = size;
    return text;
}

int main(int argc, char **argv)
{
    struct vectors_count count = {0, 0};
    if (argc < 2) {
        (void)fprintf(stderr, "usage: vectors FILE...\n");
        vectors_count_one(&count, "usage", -1, "no file was named");
    }
    for (int i = 1; i < argc; i++) {
        size_t size;
        char *text = read_file(argv[i], &size);
        if (text == NULL) {
            vectors_count_one(&count, argv[i], -1, strerror(errno));
            continue;
        }
        size_t before = count.passed + count.failed;
        run_text(argv[i], text, size, &count);
        if (count.passed + count.failed == before) {
            vectors_count_one(&count, argv[i], -1, "there is no vector in it");
        }
        free(text);
    }
    if (count.failed > FAILURES_SHOWN_MAX) {
        (void)printf("and %zu failures more\n", count.failed - FAILURES_SHOWN_MAX);
    }
    (void)printf("%zu passed, %zu failed\n", count.passed, count.failed);
    return count.failed == 0 ? 0 : 1;
}
