/* core/legacy.h - one node's work on a legacy rendezvous, as a step function without I/O.
 *
 * An event goes in, one effect comes out; the caller executes it with one request and feeds the
 * answer as the next event. Between operations the machine is idle and remembers the document,
 * its round and the expiry of its keys. Time and randomness are arguments. No write is repeated:
 * the document is read again, and shows by our nonce whether the write has arrived. */
#ifndef MST_CORE_LEGACY_H
#define MST_CORE_LEGACY_H

#include "core/legacy_doc.h"

/* TTLs of the peers, in seconds. */
#define MST_LEGACY_TTL_SETUP 5
#define MST_LEGACY_TTL_DOC 10 /* of a frozen document, or a joinable one with enough nodes */
#define MST_LEGACY_TTL_KEY 10 /* of rank_<r>, and of our own muster_<nonce> */
#define MST_LEGACY_TTL_JOB 7200

/* Time for a late or cancelled operation to remove its entries. */
#define MST_LEGACY_TIDY_US 2000000

#define MST_LEGACY_PATH_MAX 4096

enum mst__legacy_operation {
    /* Create the job's directory and the version counter. Needed once before all else; harmless
     * if repeated. */
    MST_LEGACY_OP_SETUP,
    /* Enter a round, leaving the current one. OK, CLOSED, TIMEOUT, CANCELLED, MISMATCH, STATE.
     * Failed requests are retried until the deadline. */
    MST_LEGACY_OP_NEXT,
    /* Read the document, and the keys of our round, for mst__legacy_changes. OK, or CONNECTION. */
    MST_LEGACY_OP_LOOK,
    /* Wait for news in mst__legacy_changes, and keep our keys alive: OK if there is news,
     * TIMEOUT at the deadline, CANCELLED. Failed requests are retried; being expelled is news. */
    MST_LEGACY_OP_WATCH,
    /* Refresh the keys that are due, see mst__legacy_beat_us. OK, or CONNECTION: retry soon. */
    MST_LEGACY_OP_BEAT,
    /* Close for good. OK, CONNECTION, TIMEOUT. */
    MST_LEGACY_OP_CLOSE,
    /* Leave the current round, so that the others need not wait for our key to expire. OK also
     * without a round; CONNECTION, TIMEOUT. */
    MST_LEGACY_OP_LEAVE,
};

/*
 *             begin               answer, failed, unknown
 *     IDLE ----------> ASKING <----------------------------+
 *      ^                |  |  ^                            |
 *      |    finished    |  |  | time, change, cancel       |
 *      +----------------+  v  |                            |
 *      |               WAITING                             |
 *      |                                                   |
 *      +---------------------------------------------------+
 */
enum mst__legacy_phase {
    MST_LEGACY_IDLE,
    MST_LEGACY_ASKING,  /* a request is under way */
    MST_LEGACY_WAITING, /* a long poll or a pause */
};

/* --- effects --- */

enum mst__legacy_effect_kind {
    MST_LEGACY_GET,    /* @key: ANSWER with the node; FAILED, BROKEN */
    MST_LEGACY_PUT,    /* ANSWER; FAILED if nothing was written for certain, else UNKNOWN */
    MST_LEGACY_DELETE, /* the same */
    MST_LEGACY_LIST,   /* the directory @key, not recursive: ANSWER with entries; FAILED */
    MST_LEGACY_WAIT,   /* one long poll of @key, not recursive, from @from_index on: ANSWER; TIME at
                          @until_us; FAILED, BROKEN; CANCEL */
    MST_LEGACY_PAUSE,  /* TIME at @until_us; CANCEL */
    MST_LEGACY_DONE,   /* the operation has ended: @outcome */
};

enum mst__legacy_if {
    MST_LEGACY_ALWAYS,
    MST_LEGACY_IF_ABSENT,  /* prevExist=false */
    MST_LEGACY_IF_PRESENT, /* prevExist=true */
    MST_LEGACY_IF_INDEX,   /* prevIndex = @previous_index, never 0 */
};

#define MST_LEGACY_NO_TTL (-1) /* the field is not sent, which removes a TTL */

enum mst__legacy_result {
    MST_LEGACY_OK,
    MST_LEGACY_RESULT_CLOSED,
    MST_LEGACY_TIMEOUT,
    MST_LEGACY_CANCELLED,
    MST_LEGACY_CONNECTION, /* the last request has failed; the caller has the error */
    MST_LEGACY_MISMATCH,   /* living nodes have other limits: theirs_min, theirs_max */
    MST_LEGACY_STATE,      /* the data is not a document, or its state is unexpected */
};

struct mst__legacy_outcome {
    enum mst__legacy_result result;
    /* Of an OK NEXT. The round's directory v_<version>/kv exists. */
    int64_t version;
    int64_t rank;
    int64_t world;
    /* Of MISMATCH. */
    int64_t theirs_min, theirs_max;
};

/* Pointers are valid until the next step. Keys begin with a slash and end without one. */
struct mst__legacy_effect {
    enum mst__legacy_effect_kind kind;
    const char *key;
    bool is_doc; /* GET, WAIT, PUT: @key is the document: parse the value, or write @doc */
    /* PUT, DELETE */
    enum mst__legacy_if condition;
    uint64_t previous_index;
    const struct mst__legacy_doc *doc;
    struct mst_bytes value; /* without a document; not sent for a refresh or a directory */
    int64_t ttl_s;
    bool is_dir;     /* PUT: make a directory; DELETE: with all below it */
    bool is_refresh; /* PUT: renews ttl_s, keeps the value, wakes no watcher */
    /* WAIT, PAUSE */
    uint64_t from_index;
    int64_t until_us; /* monotonic */
    /* DONE */
    struct mst__legacy_outcome outcome;
};

/* --- events --- */

enum mst__legacy_event_kind {
    MST_LEGACY_EVENT_BEGIN,   /* idle: operation, deadline_us */
    MST_LEGACY_EVENT_ANSWER,  /* asking, waiting: the answer of etcd: code and its fields */
    MST_LEGACY_EVENT_FAILED,  /* asking, waiting: no answer, and nothing was written */
    MST_LEGACY_EVENT_UNKNOWN, /* asking: no answer, and it may have been written */
    MST_LEGACY_EVENT_BROKEN,  /* asking, waiting: the value is not a document */
    MST_LEGACY_EVENT_TIME,    /* waiting: until_us is reached */
    MST_LEGACY_EVENT_CANCEL,  /* waiting: end the operation and remove our entries */
};

/* A child of a listed directory. */
struct mst__legacy_entry {
    const char *name; /* the last component of its key */
    struct mst_bytes value;
    bool has_ttl;
    int64_t ttl_s;
};

/* All is borrowed for the step. */
struct mst__legacy_event {
    enum mst__legacy_event_kind kind;
    enum mst__legacy_operation operation;
    int64_t deadline_us; /* monotonic */
    /* etcd's code: 0 or 100, 101, 105, ... A long poll that reports a deletion or expiry, of the
     * key or of a directory above it, has 100; 400 and 401 are passed on. */
    int code;
    uint64_t index;    /* X-Etcd-Index; for a long poll: the modifiedIndex of the change */
    uint64_t modified; /* modifiedIndex of the node, of GET, PUT and WAIT with code 0 */
    struct mst__legacy_doc *doc; /* GET and WAIT with is_doc and code 0; taken, and empty
                                  * afterwards */
    struct mst_bytes value;      /* GET without is_doc */
    const struct mst__legacy_entry *entries; /* LIST */
    size_t entry_count;
};

/* --- the machine --- */

struct mst__legacy_options {
    const char *prefix; /* it gets one leading and no trailing slash; copied */
    const char *run_id; /* copied */
    mst__legacy_nonce nonce;
    int64_t nodes_min, nodes_max;
    int64_t last_call_us; /* at least 1.3 s, so that peers can come */
};

/* Counters since the start of the machine. */
struct mst__legacy_stats {
    uint64_t requests; /* long polls included */
    uint64_t swaps;    /* attempts to change the document */
    uint64_t losses;   /* of those: another node was faster */
};

/* The keys below v_<n> at their last listing. */
struct mst__legacy_listing {
    bool is_known;
    int64_t version;
    int64_t asked_us;                 /* time of the request */
    struct mst__legacy_nonces nodes;  /* nodes with a key and our limits */
    struct mst__legacy_nonces others; /* nodes with a key and other limits */
    int64_t *node_ttls_s;             /* of nodes */
    int64_t *rank_ttls_s;             /* by rank: of its key, -1 = none */
    size_t rank_count;
};

/* The state of the rendezvous. */
struct mst__legacy_changes {
    bool is_known; /* the document was read, and no error since */
    bool closed;
    bool expelled; /* our key in the round has expired; the others may go on without us */
    bool is_over;  /* our round has ended: another one has replaced it, or there is none */
    /* Nodes that wait for the next round. With is_over at least one: the node that has ended it.
     * Muster nodes without a key do not count, and none counts if there is no room. */
    int64_t waiting_count;
    size_t lost_count; /* members of our round whose key is gone: legacy->lost[rank] */
};

/* Plain data; callers may read it but not write. */
struct mst__legacy {
    struct mst__legacy_options options; /* prefix and run_id are NULL */
    char *job;                          /* <prefix>/run_<run_id> */
    char *active;                       /* …/rdzv/active_version */
    char *counter;                      /* …/rdzv/version_counter */
    enum mst__legacy_phase phase;
    enum mst__legacy_operation operation;
    int64_t deadline_us;
    struct mst__legacy_stats stats;
    int ask; /* the last request: enum mst__legacy_ask */

    /* The document. */
    bool is_known;
    bool exists;
    struct mst__legacy_doc doc;
    uint64_t doc_index;  /* its modifiedIndex */
    uint64_t from_index; /* the next long poll begins here */
    uint64_t seen_index; /* an answer with a smaller index is from a lagging member */
    unsigned stale_count;
    int64_t changed_us;          /* when the document last changed */
    int64_t status_us;           /* and its status or version */
    int64_t read_us;             /* when etcd last confirmed it */
    int64_t asked_us;            /* time of the last request */
    int64_t trip_us;             /* duration of the last request */
    struct mst__legacy_doc next; /* the document to write */
    struct mst__legacy_listing listing;

    /* NEXT. */
    bool is_tidying;   /* our entries are being removed; the result is tidy_outcome */
    bool has_written;  /* the document may have our entries */
    bool is_withdrawn; /* our own key was deleted */
    bool is_counter_absent;
    bool is_caller; /* we reached the minimum: we end the last call, and others only if we do not */
    bool is_held;   /* the hold before the next write has begun; it ends at held_us */
    bool is_store_made;
    bool is_cleaning; /* we have made the round final, and remove the oldest one that we know */
    struct mst__legacy_outcome tidy_outcome;
    int64_t tidy_us;
    int64_t joined_version; /* the last version whose document had us before it was final */
    int64_t claimed;        /* the version that we took from the counter; 0 = none */
    uint64_t counter_index; /* with counter_value; 0 = not read */
    int64_t counter_value;
    int64_t enough_version; /* the last version that reached the minimum, and when */
    int64_t enough_us;
    int64_t held_us;
    int64_t look_us;      /* when to list the keys even if nothing changes */
    uint64_t wrote_index; /* index of our last write: the last writer gathers later nodes */
    int64_t gather_us;
    unsigned losses;   /* consecutive */
    unsigned failures; /* consecutive */

    /* Our keys, muster_<nonce> and rank_<r>. A key may exist from the request on; has_… after
     * its answer. The times are those of the request and of the answer. */
    bool has_key;
    bool has_rank;
    bool has_job;
    int64_t key_version; /* 0 = none */
    int64_t key_us;
    int64_t rank_version; /* 0 = none */
    int64_t rank;
    int64_t rank_us;
    int64_t rank_done_us;
    int64_t job_us;
    int64_t beat_try_us; /* no refresh before this, after a failure */

    /* Our current round. */
    bool is_member;
    bool is_expelled; /* our key is gone */
    int64_t version;
    int64_t world;
    uint8_t *lost; /* by rank: the key is gone, or the node has left */
    size_t lost_count;
    struct mst__legacy_changes told; /* as reported by the last WATCH */
    int64_t old_versions[2];         /* earlier rounds of muster nodes only; 0 = none */

    char path[MST_LEGACY_PATH_MAX]; /* of the effect */
    char text[64];
};

/* Returns 0; MST_ENOMEM; MST_EINVAL if a path would be too long. Close it in any case. */
int mst__legacy_init(struct mst__legacy *legacy, const struct mst__legacy_options *options);
void mst__legacy_close(struct mst__legacy *legacy);

/**
 * Feed @event at @now_us (monotonic, never falling), with @seed a fresh random number. @ret_effect
 * is the next step.
 *
 * Returns 0; MST_EINVAL if the event is not allowed in this phase, with nothing changed;
 * MST_ENOMEM, MST_ELIMIT: the operation has ended, the machine is idle and will read again.
 */
int mst__legacy_step(struct mst__legacy *legacy,
                     const struct mst__legacy_event *event,
                     int64_t now_us,
                     uint64_t seed,
                     struct mst__legacy_effect *ret_effect);

/* End an operation if the caller cannot continue: the machine is idle and will read again. */
void mst__legacy_abort(struct mst__legacy *legacy);

/* When a BEAT is due: monotonic; INT64_MAX if there are no keys to keep alive. */
int64_t mst__legacy_beat_us(const struct mst__legacy *legacy);

/* `<prefix>/run_<id>/rdzv/v_<version>/<name>`, or without @name the directory itself. False if
 * it does not fit. */
bool mst__legacy_path(const struct mst__legacy *legacy,
                      int64_t version,
                      const char *name,
                      char *ret_path,
                      size_t size);

/* The state at the last read. */
void mst__legacy_changes(const struct mst__legacy *legacy, struct mst__legacy_changes *ret_changes);

#endif /* MST_CORE_LEGACY_H */
