/* agent/log_tree.h - the directories of an agent's logs: one per generation, never written again.
 *
 * A generation without files leaves no directory. */
#ifndef MST_AGENT_LOG_TREE_H
#define MST_AGENT_LOG_TREE_H

#include <limits.h>
#include <muster/error.h>
#include <stdbool.h>

struct mst__log_tree {
    bool has_files;
    bool is_temporary;
    char parent[PATH_MAX]; /* temporary directory that contains @root; "" = none */
    char root[PATH_MAX];   /* directory of this agent */
    size_t workers_count;
    int64_t generation, attempt, first_rank; /* of the present generation; generation 0 = none */
};

/* Make the directory of this agent. @log_dir: NULL = a temporary directory, "" = no files. Returns
 * 0 or MST_ESYS. */
int mst__log_tree_open(struct mst__log_tree *tree,
                       const char *log_dir,
                       const char *run_id,
                       size_t workers_count,
                       struct mst_err *reterr);

/* Make the directories of the next generation. Returns 0 or MST_ESYS. */
int mst__log_tree_begin(struct mst__log_tree *tree,
                        int64_t generation,
                        int64_t attempt,
                        int64_t first_rank,
                        struct mst_err *reterr);

/* Make the path of file @name of worker @local_rank, or of the generation if @local_rank is -1.
 * Returns false if the path is too long or there are no files. */
bool mst__log_tree_path(const struct mst__log_tree *tree,
                        int64_t local_rank,
                        const char *name,
                        char ret_path[PATH_MAX]);

/* Remove empty directories. If @removes_all, remove a temporary tree. */
void mst__log_tree_close(struct mst__log_tree *tree, bool removes_all);

#endif /* MST_AGENT_LOG_TREE_H */
