/* agent/hosts.h - the hosts of a job as a tree, and the message that sends the job to each. Pure.
 *
 * A host starts agents on at most MST_HOSTS_CHILDREN_MAX others, so that no host opens thousands of
 * connections. A relay on each host reads the job from its standard input: arguments would need
 * quoting and have a maximum length. The message is a sequence of
 *
 * KEY SIZE\n BYTES\n
 *
 * with the keys of MST_RELAY_KEY_MAP; `go` is the last. Lines may follow: `signal N` stops the
 * agents, `hasten N` ends their grace, `forward N` is only passed on. `input N` is followed by
 * N bytes of input for the agent of the first host, N = 0 is its end. The end of the stream means:
 * stop. A relay that has its job prints the word of the job as a line, and again while it runs.
 * That of the first host prints the word and a + when it has passed on a part of the input. */
#ifndef MST_AGENT_HOSTS_H
#define MST_AGENT_HOSTS_H

#include <muster/error.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/limits.h"

struct mst__host {
    const char *name;
    int64_t index; /* among all hosts of the job */
    int64_t slots; /* workers; 0 = not given */
};

struct mst__host_list {
    struct mst__host *hosts; /* in the arena */
    size_t count;
};

/* Parse `a,b,node[01-16]`. Returns 0; MST_EINVAL if the list is malformed, empty, or names a host
 * twice; MST_ELIMIT; MST_ENOMEM. */
int mst__hosts_parse(const char *text,
                     struct mst__arena *arena,
                     struct mst__host_list *ret_list,
                     struct mst_err *reterr);

/* Parse the text of a host file: lines `NAME [slots=N]`. A name may have ranges; `#` begins a
 * comment. Returns the same codes. */
int mst__hosts_parse_file(struct mst_bytes text,
                          struct mst__arena *arena,
                          struct mst__host_list *ret_list,
                          struct mst_err *reterr);

/* Find child @child of a host that starts agents on @hosts_count hosts: the child is number
 * *ret_first, and starts the *ret_count hosts after it. Returns false if there is no such child. */
bool mst__hosts_child(size_t hosts_count, size_t child, size_t *ret_first, size_t *ret_count);

/* The levels of the tree below a host that starts agents on @hosts_count hosts. */
size_t mst__hosts_levels(size_t hosts_count);

/* Names of hosts for a message; zeroed: none. */
struct mst__host_names {
    char text[MST_RELAY_NAMES_SIZE];
    size_t shown, count;
};

void mst__host_names_add(struct mst__host_names *names, const char *name);

/* Returns the text: the names, separated by commas, and how many more did not fit. Valid as long as
 * @names. Call it once, at the end. */
const char *mst__host_names_end(struct mst__host_names *names);

/* --- the job of a relay --- */

#define MST_RELAY_KEY_MAP(X)                                                      \
    X(VERSION, "muster-relay") /* 2 */                                            \
    X(CWD, "cwd")              /* where to run */                                 \
    X(ENV, "env")              /* NAME=value; several */                          \
    X(ARG, "arg")              /* of the agent, after `run`; several */           \
    X(SSH, "ssh")              /* the ssh command, split at spaces */             \
    X(MUSTER, "muster")        /* path of muster on the hosts */                  \
    X(NEEDS_ALL, "needs-all")  /* 1: the loss of one host ends the job */         \
    X(PREEMPT, "preempt")      /* exit status of a node that was drained */       \
    X(GRACE, "grace-ms")       /* of the agents */                                \
    X(HOST_MS, "host-ms")      /* how long a host may be silent */                \
    X(WORD, "word")            /* what a relay prints to show that it is there */ \
    X(SELF, "self")            /* INDEX SLOTS NAME: this host */                  \
    X(HOST, "host")            /* the same for a host below; several */           \
    X(GO, "go")

/* The word is random, so that no worker prints it. */
#define MST_RELAY_WORD_SIZE 33

struct mst__relay_job {
    const char *cwd; /* NULL = the current one */
    char *const *environment;
    size_t environment_count;
    char *const *arguments;
    size_t arguments_count;
    const char *ssh, *muster;
    bool needs_all;
    int64_t preempt_status, grace_ms, host_ms;
    const char *word; /* of MST_RELAY_WORD_SIZE - 1 characters */
    bool has_self;    /* an agent runs here */
    struct mst__host self;
    struct mst__host_list below;
};

/* Append the message for child @child. Returns 0, MST_ENOMEM or MST_ELIMIT. */
int mst__relay_job_write(const struct mst__relay_job *job, size_t child, struct mst__buf *text);

/* Read a message; its texts are copied into @arena. Returns 0 and the size of the message, or the
 * size 0 if the message is incomplete; MST_EINVAL; MST_ENOMEM. */
int mst__relay_job_read(struct mst_bytes text,
                        struct mst__arena *arena,
                        struct mst__relay_job *ret_job,
                        size_t *ret_size,
                        struct mst_err *reterr);

/* --- how it ends --- */

/* The statuses of several hosts, see mst__relay_result_status. Zeroed: none has ended. */
struct mst__relay_result {
    int failed;  /* status of the first failure */
    int neutral; /* status of the first node that left or was lost */
    size_t ok_count;
};

/* The status of a host that is lost, or whose agent could not be started; ssh returns it, too. */
#define MST_RELAY_LOST 255

void mst__relay_result_add(struct mst__relay_result *result, int status, int64_t preempt_status);

/* The first failure; without one, 0 if any host succeeded, or else the first status. */
int mst__relay_result_status(const struct mst__relay_result *result);

#endif /* MST_AGENT_HOSTS_H */
