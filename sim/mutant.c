/* sim/mutant.c - the switches of mutant.h. */
#include "sim/mutant.h"

#include <string.h>

#ifdef MST_MUTANTS
unsigned mst__mutant;

size_t mst__sim_mutant_count(void)
{
    size_t count = 0;
    while (mst__mutant_table[count].name != NULL) {
        count++;
    }
    return count;
}

bool mst__sim_mutant_set(const char *name)
{
    for (unsigned i = 0; i < mst__sim_mutant_count(); i++) {
        if (strcmp(mst__mutant_table[i].name, name) == 0) {
            mst__mutant = i + 1;
            return true;
        }
    }
    return false;
}

void mst__sim_mutant_list(FILE *to)
{
    for (size_t i = 0; i < mst__sim_mutant_count(); i++) {
        const struct mst__mutant_row *row = &mst__mutant_table[i];
        (void)fprintf(to, "%s\t%s\t%s\n", row->name, row->file, row->what); /* @to keeps an error */
    }
}
#else
size_t mst__sim_mutant_count(void)
{
    return 0;
}

bool mst__sim_mutant_set(const char *name)
{
    (void)name; /* there are no switches in this program */
    return false;
}

void mst__sim_mutant_list(FILE *to)
{
    (void)to; /* the list is empty */
}
#endif
