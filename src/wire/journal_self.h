/* wire/journal_self.h - how a record begins and ends, for journal.c and journal_state.c. */
#ifndef MST_WIRE_JOURNAL_SELF_H
#define MST_WIRE_JOURNAL_SELF_H

#include "wire/journal.h"
#include "wire/visit.h"

/* A record that is being written. */
struct mst__journal_making {
    struct mst__journal *journal;
    size_t before; /* its start */
    struct mst__visitor visitor;
};

/* Begin a record of @kind about @job. */
void mst__journal_make(struct mst__journal_making *making,
                       struct mst__journal *journal,
                       enum mst__journal_kind kind,
                       uint32_t job);

/* Finish it: 0, or the error with nothing appended. */
int mst__journal_made(struct mst__journal_making *making);

#endif /* MST_WIRE_JOURNAL_SELF_H */
