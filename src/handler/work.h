/* handler/work.h - reports of a node's work, finish and restart, and the news of the job's end:
 * conversions between the public structs and those of core. */
#ifndef MST_HANDLER_WORK_H
#define MST_HANDLER_WORK_H

#include <muster/rendezvous.h>

#include "core/member.h"

/* A node's report of its work in a round. Do not copy it: the cause borrows its text. */
struct mst__word {
    bool is_finish;  /* the work is done; */
    bool is_leaving; /* the node will leave, in @in_us; without both it has failed */
    int64_t in_us;
    struct mst__cause cause; /* without rank and node; for finished work only status and text */
    char text[MST_AUTHORITY_CAUSE_SIZE_MAX + 1];
    char report[MST_AUTHORITY_REPORT_SIZE_MAX + 1];
    int64_t limit_ms; /* how long it may take to arrive, if that is less than the handler allows */
};

/* Texts are cut off at a character. In a sentence, control characters become blanks; those of a
 * report are for its readers to make visible. */
void mst__word_finish(struct mst__word *word, int status, const char *text);
void mst__word_restart(struct mst__word *word, const struct mst_failure *failure);
void mst__word_leaving(struct mst__word *word, int64_t in_ms);

/* @word as an event of a member machine; borrows from it. */
struct mst__member_event mst__word_event(const struct mst__word *word);

/* The round was reopened, or the job has ended, as @end says: note that in @changes. */
void mst__work_reopened(struct mst_changes *changes, const struct mst__job_end *end);
void mst__work_ended(struct mst_changes *changes, const struct mst__job_end *end);

/* The reason for a round, from a received enum mst__job_start. */
enum mst_start mst__work_start(uint32_t start);

#endif /* MST_HANDLER_WORK_H */
