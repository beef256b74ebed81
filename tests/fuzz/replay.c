/* fuzz/replay.c - runs a fuzz target on files: the corpus as an ordinary test, and a finding
 * with any compiler. */
#include <errno.h>
#include <stdint.h>

#include "base/mem.h"

enum { FILE_SIZE_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rbe");
        uint8_t *data = mst__malloc(FILE_SIZE_MAX);
        if (file == NULL || data == NULL) {
            (void)fprintf(stderr, "open '%s': %s\n", argv[i], strerror(errno));
            return 1;
        }
        size_t size = fread(data, 1, FILE_SIZE_MAX, file);
        bool failed = ferror(file) != 0;
        (void)fclose(file); /* it was only read */
        if (failed) {
            (void)fprintf(stderr, "read '%s' failed\n", argv[i]);
            return 1;
        }
        /* A block of exactly this size, so that reading beyond it is noticed. */
        uint8_t *exact = mst__realloc(data, size == 0 ? 1 : size);
        (void)LLVMFuzzerTestOneInput(exact == NULL ? data : exact, size); /* always 0 */
        mst__free(exact);
    }
    (void)printf("%d passed, 0 failed, 0 skipped\n", argc - 1);
    return argc > 1 ? 0 : 1;
}
