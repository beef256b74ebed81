/* agent/hosts.h - which hosts agents are started on, as a tree, and the job as it is sent to each
 * of them. Pure.
 *
 * A host starts the agents of at most MST_HOSTS_CHILDREN_MAX others, so that neither the first one
 * nor any other has thousands of connections to open. The job goes to a host over the standard
 * input of a relay there, not as arguments, so that nothing has to be quoted and nothing is too
 * long:
 *
 * KEY SIZE\n BYTES\n    as often as needed
 *
 * with the keys of MST_RELAY_KEY_MAP, the last of them `go`. Behind it, lines `signal N` follow
 * until the end of the stream, which means: stop. */
#ifndef MST_AGENT_HOSTS_H
#define MST_AGENT_HOSTS_H

#include <muster/error.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/buf.h"

struct mst__host {
    const char *name;
    int64_t index; /* among all hosts of the job */
    int64_t slots; /* workers; 0 = as the options say */
};

struct mst__host_list {
    struct mst__host *hosts; /* of the arena */
    size_t count;
};

/* `a,b,node[01-16]`. 0; MST_EINVAL for what is no list, a host that is there twice or none at all;
 * MST_ELIMIT, MST_ENOMEM. */
int mst__hosts_parse(const char *text,
                     struct mst__arena *arena,
                     struct mst__host_list *ret_list,
                     struct mst_err *reterr);

/* The text of a host file: lines `NAME [slots=N]`, where a name may have ranges; `#` begins a
 * comment. The same. */
int mst__hosts_parse_file(struct mst_bytes text,
                          struct mst__arena *arena,
                          struct mst__host_list *ret_list,
                          struct mst_err *reterr);

/* Child @child of a host that has to start agents on @hosts: it is hosts[*ret_first], and it starts
 * the *ret_count ones behind that. False when there is no such child. */
bool mst__hosts_child(size_t hosts_count, size_t child, size_t *ret_first, size_t *ret_count);

/* --- the job of a relay --- */

#define MST_RELAY_KEY_MAP(X)                                                     \
    X(VERSION, "muster-relay") /* 1 */                                           \
    X(CWD, "cwd")              /* where to run */                                \
    X(ENV, "env")              /* NAME=value; several */                         \
    X(ARG, "arg")              /* of the agent, behind `run`; several */         \
    X(SSH, "ssh")              /* the command for hosts below, in words */       \
    X(MUSTER, "muster")        /* the program on hosts */                        \
    X(NEEDS_ALL, "needs-all")  /* 1: the loss of one host ends the job */        \
    X(PREEMPT, "preempt")      /* the status of a node that was told to leave */ \
    X(SELF, "self")            /* INDEX SLOTS NAME: this host */                 \
    X(HOST, "host")            /* the same: one below; several */                \
    X(GO, "go")

struct mst__relay_job {
    const char *cwd; /* NULL = ours */
    char *const *environment;
    size_t environment_count;
    char *const *arguments;
    size_t arguments_count;
    const char *ssh, *muster;
    bool needs_all;
    int preempt_status;
    bool has_self; /* an agent runs here */
    struct mst__host self;
    struct mst__host_list below;
};

/* Append the job of child @child of @job. 0, MST_ENOMEM, MST_ELIMIT. */
int mst__relay_job_write(const struct mst__relay_job *job, size_t child, struct mst__buf *text);

/* Read a job, whose texts are of @arena. 0 and the size of what was read; MST_EINVAL, MST_ENOMEM.
 * When the end is missing, it is 0 with a size of 0: read on. */
int mst__relay_job_read(struct mst_bytes text,
                        struct mst__arena *arena,
                        struct mst__relay_job *ret_job,
                        size_t *ret_size,
                        struct mst_err *reterr);

/* --- how it ends --- */

/* One status for many: see mst__relay_status. Zeroed: none has ended. */
struct mst__relay_result {
    int failed;  /* the first status of a failure */
    int neutral; /* the first of one that left, or was lost */
    size_t ok_count;
};

/* A host whose agent could not be started, or is lost: ssh's own status. */
#define MST_RELAY_LOST 255

void mst__relay_result_add(struct mst__relay_result *result, int status, int preempt_status);

/* A failure if there is one; else 0 if any has ended well; else what the first one says. */
int mst__relay_result_status(const struct mst__relay_result *result);

#endif /* MST_AGENT_HOSTS_H */
