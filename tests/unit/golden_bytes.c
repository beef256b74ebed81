/* unit/golden_bytes.c - reads, checks and rewrites files of bytes. */
#include "unit/golden_bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

#define FILE_SIZE_MAX MST_MIB(1)
#define HEX_PER_LINE 32
#define TEXT_PER_LINE 90
#define PRESENT "present"

/* One piece of a file. */
struct piece {
    char name[64];
    struct mst__buf text; /* its lines, without the indentation */
    struct mst__buf bytes;
};

/* A file that is being checked, or written anew. */
struct golden {
    const struct golden_format *format;
    const char *path;
    bool is_rewriting;
    bool is_present; /* its bytes are those of this tree, not of a release */
    size_t pieces_count;
    unsigned passed, failed;
    struct mst__buf output; /* the file anew */
};

static _Noreturn void die(const char *path, const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", path, what);
    exit(2);
}

static void append(struct mst__buf *buf, struct mst_bytes bytes)
{
    if (mst__buf_append(buf, bytes) != 0) {
        die("a piece", "too large");
    }
}

void golden_put(struct mst__buf *text, const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    int count = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (count < 0 || (size_t)count >= sizeof line) {
        die("a line", "too long");
    }
    append(text, mst_bytes_of(line, (size_t)count));
}

/* --- checking --- */

static void report(struct golden *golden,
                   const struct piece *piece,
                   bool is_right,
                   const char *what)
{
    golden->passed += is_right;
    golden->failed += !is_right;
    if (!is_right) {
        (void)fprintf(stderr, "%s: %s: %s\n", golden->path, piece->name, what);
    }
}

/* The first line in which @got differs from @wanted, on standard error. */
static void show_difference(struct mst_bytes wanted, struct mst_bytes got)
{
    size_t at = 0;
    size_t line = 0;
    while (at < wanted.size && at < got.size && wanted.data[at] == got.data[at]) {
        line = wanted.data[at] == '\n' ? at + 1 : line;
        at++;
    }
    const struct mst_bytes texts[] = {wanted, got};
    static const char *const names[] = {"wanted", "got"};
    for (size_t i = 0; i < 2; i++) {
        struct mst_bytes rest = mst__bytes_skip(texts[i], line);
        const uint8_t *end = rest.size == 0 ? NULL : memchr(rest.data, '\n', rest.size);
        int size = end == NULL ? (int)rest.size : (int)(end - rest.data);
        (void)fprintf(stderr, "  %s: %.*s\n", names[i], size, (const char *)rest.data);
    }
}

static void check_text(struct golden *golden,
                       const struct piece *piece,
                       struct mst_bytes got,
                       const char *what)
{
    struct mst_bytes wanted = mst__buf_bytes(&piece->text);
    bool is_right = mst__bytes_equal(wanted, got);
    report(golden, piece, is_right, what);
    if (!is_right) {
        show_difference(wanted, got);
    }
}

/* The index of @name among the pieces of this tree, or their count. */
static size_t find(const struct golden_format *format, const char *name)
{
    size_t index = 0;
    while (index < format->count && strcmp(format->name(index), name) != 0) {
        index++;
    }
    return index;
}

static void check_piece(struct golden *golden, const struct piece *piece)
{
    const struct golden_format *format = golden->format;
    struct mst_bytes bytes = mst__buf_bytes(&piece->bytes);
    struct mst__buf buf;
    mst__buf_init(&buf, FILE_SIZE_MAX);
    report(golden, piece, format->read(piece->name, bytes, &buf), "its bytes cannot be read");
    check_text(golden, piece, mst__buf_bytes(&buf), "its bytes are read as something else");
    size_t index = find(format, piece->name);
    report(golden, piece, index < format->count || !golden->is_present, "not of this tree");
    if (index < format->count) {
        mst__buf_clear(&buf);
        format->write(index, &buf);
        struct mst_bytes now = mst__buf_bytes(&buf);
        bool is_kept = golden->is_present ? mst__bytes_equal(now, bytes)
                                          : format->keeps(piece->name, bytes, now);
        report(golden, piece, is_kept, "this tree writes other bytes");
    }
    if (index < format->count && golden->is_present) {
        mst__buf_clear(&buf);
        format->tell(index, &buf);
        check_text(golden, piece, mst__buf_bytes(&buf), "this tree has other values");
    }
    mst__buf_close(&buf);
}

/* --- writing --- */

static void put_text(struct golden *golden, struct mst_bytes text)
{
    while (text.size > 0) {
        const uint8_t *end = memchr(text.data, '\n', text.size);
        size_t size = end == NULL ? text.size : (size_t)(end - text.data);
        golden_put(&golden->output, "  %.*s\n", (int)size, (const char *)text.data);
        text = mst__bytes_skip(text, end == NULL ? size : size + 1);
    }
}

static void put_bytes(struct golden *golden, struct mst_bytes bytes)
{
    size_t per_line = golden->format->is_text ? TEXT_PER_LINE : HEX_PER_LINE;
    while (bytes.size > 0) {
        size_t size = bytes.size < per_line ? bytes.size : per_line;
        golden_put(&golden->output, golden->format->is_text ? "| " : "=");
        for (size_t i = 0; i < size; i++) {
            golden_put(&golden->output, golden->format->is_text ? "%c" : " %02x", bytes.data[i]);
        }
        golden_put(&golden->output, "\n");
        bytes = mst__bytes_skip(bytes, size);
    }
}

/* The piece of a release keeps its bytes; only what this tree makes of them is written anew. */
static void rewrite_piece(struct golden *golden, const struct piece *piece)
{
    struct mst__buf text;
    struct mst_bytes bytes = mst__buf_bytes(&piece->bytes);
    mst__buf_init(&text, FILE_SIZE_MAX);
    if (!golden->format->read(piece->name, bytes, &text)) {
        die(golden->path, piece->name);
    }
    golden_put(&golden->output, "\npiece %s\n", piece->name);
    put_text(golden, mst__buf_bytes(&text));
    put_bytes(golden, bytes);
    mst__buf_close(&text);
}

static void rewrite_present(struct golden *golden)
{
    const struct golden_format *format = golden->format;
    for (size_t i = 0; i < format->count; i++) {
        struct mst__buf buf;
        mst__buf_init(&buf, FILE_SIZE_MAX);
        format->tell(i, &buf);
        golden_put(&golden->output, "\npiece %s\n", format->name(i));
        put_text(golden, mst__buf_bytes(&buf));
        mst__buf_clear(&buf);
        format->write(i, &buf);
        put_bytes(golden, mst__buf_bytes(&buf));
        mst__buf_close(&buf);
    }
}

/* --- files --- */

static void read_hex(struct golden *golden, const char *line, struct mst__buf *bytes)
{
    for (const char *at = line; *at != '\0';) {
        char *end;
        unsigned long byte = strtoul(at, &end, 16);
        if (end == at || byte > UINT8_MAX) {
            die(golden->path, line);
        }
        append(bytes, mst_bytes_of(&(uint8_t){(uint8_t)byte}, 1));
        at = end;
    }
}

static void piece_end(struct golden *golden, struct piece *piece)
{
    if (piece->name[0] != '\0') {
        golden->pieces_count++;
        if (!golden->is_rewriting) {
            check_piece(golden, piece);
        } else if (!golden->is_present) {
            rewrite_piece(golden, piece);
        }
    }
    mst__buf_close(&piece->text);
    mst__buf_close(&piece->bytes);
    piece->name[0] = '\0';
}

static void piece_begin(struct piece *piece, const char *name)
{
    (void)snprintf(piece->name, sizeof piece->name, "%s", name);
    mst__buf_init(&piece->text, FILE_SIZE_MAX);
    mst__buf_init(&piece->bytes, FILE_SIZE_MAX);
}

/* @line has no end of line. */
static void take_line(struct golden *golden, struct piece *piece, const char *line)
{
    static const char head[] = "release ";
    bool has_piece = piece->name[0] != '\0';
    if (line[0] == '#' || strncmp(line, head, strlen(head)) == 0) {
        golden->is_present = golden->is_present || strcmp(line + strlen(head), PRESENT) == 0;
        golden_put(&golden->output, "%s\n", line);
    } else if (strncmp(line, "piece ", 6) == 0) {
        piece_end(golden, piece);
        piece_begin(piece, line + 6);
    } else if (has_piece && strncmp(line, "  ", 2) == 0) {
        golden_line(&piece->text, "%s", line + 2);
    } else if (has_piece && line[0] == '=') {
        read_hex(golden, line + 1, &piece->bytes);
    } else if (has_piece && strncmp(line, "| ", 2) == 0) {
        append(&piece->bytes, mst_bytes_str(line + 2));
    } else if (line[0] != '\0') {
        die(golden->path, line);
    }
}

static void write_file(const struct golden *golden)
{
    struct mst_bytes all = mst__buf_bytes(&golden->output);
    FILE *file = fopen(golden->path, "wbe");
    if (file == NULL || fwrite(all.data, 1, all.size, file) != all.size || fclose(file) != 0) {
        die(golden->path, strerror(errno));
    }
}

static void run_file(struct golden *golden)
{
    struct piece piece = {.name = ""};
    char line[4096];
    golden->is_present = false;
    golden->pieces_count = 0;
    mst__buf_init(&golden->output, FILE_SIZE_MAX);
    FILE *file = fopen(golden->path, "re");
    if (file == NULL) {
        die(golden->path, strerror(errno));
    }
    while (fgets(line, sizeof line, file) != NULL) {
        size_t size = strlen(line);
        if (size == 0 || line[size - 1] != '\n') {
            die(golden->path, "a line is too long");
        }
        line[size - 1] = '\0';
        take_line(golden, &piece, line);
    }
    (void)fclose(file); /* only read */
    piece_end(golden, &piece);
    if (golden->is_rewriting && golden->is_present) {
        rewrite_present(golden);
    } else if (golden->is_present || golden->pieces_count == 0) {
        (void)snprintf(piece.name, sizeof piece.name, "all of it");
        report(golden, &piece, golden->pieces_count == golden->format->count, "pieces are missing");
    }
    if (golden->is_rewriting) {
        write_file(golden);
    }
    mst__buf_close(&golden->output);
}

int golden_main(int argc, char **argv, const struct golden_format *format)
{
    struct golden golden = {.format = format};
    int first = 1;
    if (argc > 1 && strcmp(argv[1], "--rewrite") == 0) {
        golden.is_rewriting = true;
        first++;
    }
    if (first == argc) {
        (void)fprintf(stderr, "usage: %s [--rewrite] FILE...\n", argv[0]);
        return 2;
    }
    for (int i = first; i < argc; i++) {
        golden.path = argv[i];
        run_file(&golden);
    }
    (void)printf("%u passed, %u failed, 0 skipped\n", golden.passed, golden.failed);
    return golden.failed == 0 ? 0 : 1;
}
