/* sim/mutant.h - switches that break one rule each, to show that the simulator finds it.
 *
 * In muster-sim there are none. In the second program, of the tests, the sources under test were
 * copied with the changes of sim/mutate built in, each behind its number in mst__mutant. */
#ifndef MST_SIM_MUTANT_H
#define MST_SIM_MUTANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#ifdef MST_MUTANTS
#define MST_SIM_MUTANT_USAGE                                 \
    "  --mutants        list the rules that can be broken\n" \
    "  --mutant NAME    break one\n"

/* The mutant that is on, 0 = none. */
extern unsigned mst__mutant;

/* All there are, made by sim/mutate; the last one has no name. */
struct mst__mutant_row {
    const char *name;
    const char *file;
    const char *what;
};
extern const struct mst__mutant_row mst__mutant_table[];
#else
#define MST_SIM_MUTANT_USAGE ""
#endif

/* Break the rule @name; false when there is no such switch. */
bool mst__sim_mutant_set(const char *name);
size_t mst__sim_mutant_count(void);
void mst__sim_mutant_list(FILE *to);

#endif /* MST_SIM_MUTANT_H */
