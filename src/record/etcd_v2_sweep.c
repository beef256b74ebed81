/* record/etcd_v2_sweep.c - removes the keys of a run whose record has expired.
 *
 * The record has a TTL, but the keys of its rounds have none. A reused run id counts its rounds
 * anew and would find them, so the node that creates the record removes them first. Keys older
 * than the read that found no record cannot be of the new run, even if several nodes read at
 * once. */
#include "base/bytes.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/log.h"
#include "record/etcd_v2.h"
#include "store/etcd.h"

/* Whether @key is of a round of @run_id, `torch.rendezvous.job.12/…`, or of its work. */
static bool is_of_run(struct mst_bytes key, struct mst_bytes run_id)
{
    struct mst_bytes prefix = mst_bytes_str(MST_RECORD_PREFIX);
    if (!mst__bytes_start_with(key, prefix)) {
        return false;
    }
    key = mst__bytes_skip(key, prefix.size);
    if (!mst__bytes_start_with(key, run_id)) {
        return false;
    }
    key = mst__bytes_skip(key, run_id.size);
    if (key.size == 0 || key.data[0] != '.') {
        return false;
    }
    if (mst__bytes_start_with(key, mst_bytes_str("." MST_RECORD_JOB "/"))) {
        return true;
    }
    size_t digits = 1;
    while (digits < key.size && key.data[digits] >= '0' && key.data[digits] <= '9') {
        digits++;
    }
    return digits > 1 && digits < key.size && key.data[digits] == '/';
}

/* Set whether @node is a key of a round of @run_id. Returns 0 or MST_ENOMEM. */
static int look_at(const struct mst__v2_node *node, const char *run_id, bool *ret_is_of_run)
{
    struct mst_bytes name = mst_bytes_str(node->key);
    size_t root = strlen(MST_ETCD_V2_STORE "/");
    *ret_is_of_run = false;
    if (node->is_dir || name.size <= root) {
        return 0;
    }
    struct mst__buf key;
    mst__buf_init(&key, name.size);
    int rv;
    if (mst__etcd2_name_read(mst__bytes_skip(name, root), &key, &rv)) {
        *ret_is_of_run = is_of_run(mst__buf_bytes(&key), mst_bytes_str(run_id));
    }
    mst__buf_close(&key);
    return rv;
}

int mst__etcd_v2_sweep(struct mst__v2 *v2,
                       const char *run_id,
                       uint64_t index_max,
                       struct mst__until until,
                       const struct mst_log *log,
                       struct mst_err *reterr)
{
    struct mst__v2_answer list;
    struct mst__v2_answer answer;
    mst__v2_answer_init(&list);
    mst__v2_answer_init(&answer);
    size_t count = 0;
    int rv = mst__v2_get(v2, MST_ETCD_V2_STORE, false, true, until, &list, reterr);
    for (size_t i = 0; rv == 0 && i < list.node.node_count; i++) {
        const struct mst__v2_node *node = &list.node.nodes[i];
        bool is_dead = false;
        rv = look_at(node, run_id, &is_dead);
        if (rv != 0) {
            rv = mst__fail(reterr, rv, 0, "keys of run '%.60s'", run_id);
        } else if (is_dead && node->modified <= index_max) {
            /* Bound to the listed version: a key that is written meanwhile stays. */
            const struct mst__v2_write write = {.key = node->key,
                                                .condition = MST_V2_IF_INDEX,
                                                .previous_index = node->modified,
                                                .ttl_s = MST_V2_NO_TTL};
            rv = mst__v2_delete(v2, &write, false, until, &answer, reterr);
            count += rv == 0 && answer.code == MST_V2_OK ? 1 : 0;
        }
    }
    if (count > 0) {
        char run[MST_LOG_QUOTE_SIZE];
        mst__log(log, MST_LOG_INFO, "rendezvous.swept", "run=%s keys=%zu",
                 mst__log_quote(mst_bytes_str(run_id), run), count);
    }
    mst__v2_answer_close(&list);
    mst__v2_answer_close(&answer);
    return rv;
}
