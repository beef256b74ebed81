/* agent/log_tree.c - makes and removes directories of logs. */
#include "agent/log_tree.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

#define RUN_ID_SHOWN 100
#define NFTW_DESCRIPTORS 16

/* Make @run_id a part of a file name: cut it off, and replace slashes and control characters. */
static void shown_id(const char *run_id, char ret_text[RUN_ID_SHOWN + 1])
{
    (void)snprintf(ret_text, RUN_ID_SHOWN + 1, "%s", run_id);
    for (char *at = ret_text; *at != '\0'; at++) {
        if (*at == '/' || (unsigned char)*at < ' ') {
            *at = '_';
        }
    }
}

/* Make all missing directories of @path. */
static int make_all(char *path, struct mst_err *reterr)
{
    for (char *at = path + 1;; at++) {
        char c = *at;
        if (c != '/' && c != '\0') {
            continue;
        }
        *at = '\0';
        int rv = mkdir(path, 0777);
        *at = c;
        if (rv != 0 && errno != EEXIST) {
            return mst__fail(reterr, MST_ESYS, errno, "mkdir '%.150s'", path);
        }
        if (c == '\0') {
            return 0;
        }
    }
}

static int make_unique(char path[PATH_MAX], struct mst_err *reterr)
{
    return mkdtemp(path) != NULL ? 0 : mst__fail(reterr, MST_ESYS, errno, "mkdir '%.150s'", path);
}

int mst__log_tree_open(struct mst__log_tree *tree,
                       const char *log_dir,
                       const char *run_id,
                       size_t workers_count,
                       struct mst_err *reterr)
{
    *tree = (struct mst__log_tree){.workers_count = workers_count};
    if (log_dir != NULL && *log_dir == '\0') {
        return 0;
    }
    char id[RUN_ID_SHOWN + 1];
    shown_id(run_id, id);
    char base[PATH_MAX];
    int rv = 0;
    if (log_dir == NULL) {
        const char *temporary = getenv("TMPDIR");
        temporary = temporary == NULL || *temporary == '\0' ? "/tmp" : temporary;
        (void)snprintf(base, sizeof base, "%s/muster_XXXXXX", temporary);
        rv = make_unique(base, reterr);
        tree->is_temporary = true;
        (void)snprintf(tree->parent, sizeof tree->parent, "%s", rv == 0 ? base : "");
    } else {
        (void)snprintf(base, sizeof base, "%s", log_dir);
        rv = make_all(base, reterr);
    }
    if (rv != 0) {
        return rv;
    }
    int size = snprintf(tree->root, sizeof tree->root, "%s/%s_XXXXXX", base, id);
    if (size < 0 || (size_t)size >= sizeof tree->root) {
        return mst__fail(reterr, MST_ESYS, ENAMETOOLONG, "mkdir '%.150s'", base);
    }
    rv = make_unique(tree->root, reterr);
    tree->has_files = rv == 0;
    if (rv != 0) {
        mst__log_tree_close(tree, true);
    }
    return rv;
}

/* Make a path: gen_2 or gen_2/rank_5.local_1, and @name. Returns false if it is too long. */
static bool make_path(const struct mst__log_tree *tree,
                      int64_t local_rank,
                      const char *name,
                      char ret_path[PATH_MAX])
{
    char worker[64] = "";
    if (local_rank >= 0) {
        (void)snprintf(worker, sizeof worker, "/rank_%" PRId64 ".local_%" PRId64,
                       tree->first_rank + local_rank, local_rank);
    }
    int size = snprintf(ret_path, PATH_MAX, "%s/gen_%" PRId64 "%s%s%s", tree->root,
                        tree->generation, worker, *name == '\0' ? "" : "/", name);
    return size > 0 && size < PATH_MAX;
}

bool mst__log_tree_path(const struct mst__log_tree *tree,
                        int64_t local_rank,
                        const char *name,
                        char ret_path[PATH_MAX])
{
    return tree->has_files && tree->generation != 0 && make_path(tree, local_rank, name, ret_path);
}

/* Make a path: attempt_0 or attempt_0/1. Returns false if it is too long. */
static bool attempt_path(const struct mst__log_tree *tree,
                         int64_t local_rank,
                         char ret_path[PATH_MAX])
{
    char worker[32] = "";
    if (local_rank >= 0) {
        (void)snprintf(worker, sizeof worker, "/%" PRId64, local_rank);
    }
    int size =
        snprintf(ret_path, PATH_MAX, "%s/attempt_%" PRId64 "%s", tree->root, tree->attempt, worker);
    return size > 0 && size < PATH_MAX;
}

/* Remove the empty directories of the last generation, and the links to them. */
static void remove_empty(const struct mst__log_tree *tree)
{
    char path[PATH_MAX];
    if (tree->generation == 0 || !tree->has_files) {
        return;
    }
    bool removes = true;
    for (size_t i = 0; i < tree->workers_count; i++) {
        bool is_removed = make_path(tree, (int64_t)i, "", path) && rmdir(path) == 0;
        removes = removes && is_removed;
        if (is_removed && attempt_path(tree, (int64_t)i, path)) {
            (void)unlink(path); /* see link_attempt */
        }
    }
    if (removes && make_path(tree, -1, "", path) && rmdir(path) == 0 &&
        attempt_path(tree, -1, path)) {
        (void)rmdir(path); /* an earlier generation may have links there */
    }
}

/* Link attempt_N/L to the directory of worker L: a convenience, so failures do not matter. */
static void link_attempt(const struct mst__log_tree *tree, int64_t local_rank)
{
    char path[PATH_MAX];
    char target[128];
    (void)snprintf(target, sizeof target, "../gen_%" PRId64 "/rank_%" PRId64 ".local_%" PRId64,
                   tree->generation, tree->first_rank + local_rank, local_rank);
    if (!attempt_path(tree, local_rank, path)) {
        return;
    }
    (void)unlink(path);
    int rv = symlink(target, path);
    (void)rv;
}

/* Make the directory of the generation (@local_rank -1) or of a worker. Returns 0 or MST_ESYS. */
static int make_directory(const struct mst__log_tree *tree,
                          int64_t local_rank,
                          struct mst_err *reterr)
{
    char path[PATH_MAX];
    int reason = ENAMETOOLONG;
    if (make_path(tree, local_rank, "", path)) {
        reason = mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : errno;
    }
    return reason == 0 ? 0 : mst__fail(reterr, MST_ESYS, reason, "mkdir '%.150s'", path);
}

int mst__log_tree_begin(struct mst__log_tree *tree,
                        int64_t generation,
                        int64_t attempt,
                        int64_t first_rank,
                        struct mst_err *reterr)
{
    char path[PATH_MAX];
    remove_empty(tree);
    tree->generation = generation;
    tree->attempt = attempt;
    tree->first_rank = first_rank;
    if (!tree->has_files) {
        return 0;
    }
    int rv = make_directory(tree, -1, reterr);
    if (rv == 0 && attempt_path(tree, -1, path)) {
        (void)mkdir(path, 0700); /* see link_attempt */
    }
    for (size_t i = 0; i < tree->workers_count && rv == 0; i++) {
        rv = make_directory(tree, (int64_t)i, reterr);
        if (rv == 0) {
            link_attempt(tree, (int64_t)i);
        }
    }
    return rv;
}

static int remove_one(const char *path, const struct stat *stat, int kind, struct FTW *ftw)
{
    (void)stat;
    (void)kind;
    (void)ftw;
    (void)remove(path); /* on failure, the directory above stays */
    return 0;
}

void mst__log_tree_close(struct mst__log_tree *tree, bool removes_all)
{
    remove_empty(tree);
    if (tree->is_temporary && removes_all && tree->parent[0] != '\0') {
        (void)nftw(tree->parent, remove_one, NFTW_DESCRIPTORS, FTW_DEPTH | FTW_PHYS);
    } else if (tree->has_files) {
        (void)rmdir(tree->root); /* only if it is empty */
        if (tree->parent[0] != '\0') {
            (void)rmdir(tree->parent); /* only if it is empty */
        }
    }
    tree->has_files = false;
}
