/* core/legacy.h - one node's dealings with a legacy rendezvous, a step function without I/O.
 *
 * Events go in, one effect comes out; the caller carries it out, one request each, and feeds the
 * answer as the next event. Between operations the machine is idle and remembers the document, the
 * round that it is in and when its keys expire. Time and randomness are arguments. Nothing is ever
 * sent twice: whatever became of a write, the document is read and says by our nonce whether it has
 * happened. */
#ifndef MST_CORE_LEGACY_H
#define MST_CORE_LEGACY_H

#include "core/legacy_doc.h"

/* What the peers use, in seconds. */
#define MST_LEGACY_TTL_SETUP 5
#define MST_LEGACY_TTL_DOC 10 /* frozen, and joinable with enough nodes */
#define MST_LEGACY_TTL_KEY 10 /* of rank_<r>, and of our own muster_<nonce> */
#define MST_LEGACY_TTL_JOB 7200

/* How long an operation that is late, or was cancelled, may take to leave things tidy. */
#define MST_LEGACY_TIDY_US 2000000

#define MST_LEGACY_PATH_MAX 4096

enum mst__legacy_operation {
    /* Make the job's directory and the counter of versions exist. To be done once before all else,
     * and harmless when repeated. */
    MST_LEGACY_OP_SETUP,
    /* Enter a round, leaving the one that we are in. OK, CLOSED, TIMEOUT, CANCELLED, MISMATCH,
     * STATE. Connections that fail are tried again until the deadline. */
    MST_LEGACY_OP_NEXT,
    /* Read the document, and the keys of our round, for mst__legacy_changes. OK, or CONNECTION. */
    MST_LEGACY_OP_LOOK,
    /* Wait for mst__legacy_changes to have news, keeping our keys alive: OK when there are, TIMEOUT
     * at the deadline, CANCELLED. What fails is tried again; that we are expelled is news. */
    MST_LEGACY_OP_WATCH,
    /* Refresh the keys that are due, see mst__legacy_beat_us. OK, or CONNECTION: again soon, while
     * the membership lasts. */
    MST_LEGACY_OP_BEAT,
    /* Close for good. OK, CONNECTION, TIMEOUT. */
    MST_LEGACY_OP_CLOSE,
    /* Leave the round that we are in, so that the others need not wait for our key to expire. OK
     * also when we are in none; CONNECTION, TIMEOUT. */
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
    MST_LEGACY_PUT,    /* ANSWER; FAILED when surely nothing was written, else UNKNOWN */
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

#define MST_LEGACY_NO_TTL (-1) /* the field is not sent, which takes a TTL away */

enum mst__legacy_result {
    MST_LEGACY_OK,
    MST_LEGACY_RESULT_CLOSED,
    MST_LEGACY_TIMEOUT,
    MST_LEGACY_CANCELLED,
    MST_LEGACY_CONNECTION, /* the last request has failed; the caller knows why */
    MST_LEGACY_MISMATCH,   /* living nodes have other limits: theirs_min, theirs_max */
    MST_LEGACY_STATE,      /* what is stored is no document, or not as it must be */
};

struct mst__legacy_outcome {
    enum mst__legacy_result result;
    /* Of a NEXT that is OK. The round's directory v_<version>/kv exists. */
    int64_t version;
    int64_t rank;
    int64_t world;
    /* Of MISMATCH. */
    int64_t theirs_min, theirs_max;
};

/* What it points to is valid until the next step. Keys begin with a slash and end without one. */
struct mst__legacy_effect {
    enum mst__legacy_effect_kind kind;
    const char *key;
    bool is_doc; /* GET, WAIT, PUT: @key is the document: parse the value, or write @doc */
    /* PUT, DELETE */
    enum mst__legacy_if condition;
    uint64_t previous_index;
    const struct mst__legacy_doc *doc;
    struct mst_bytes value; /* without a document; of a refresh and of a directory none is sent */
    int64_t ttl_s;
    bool is_dir;     /* PUT: make a directory; DELETE: with all below it */
    bool is_refresh; /* PUT: ttl_s anew, the value stays, nobody is woken */
    /* WAIT, PAUSE */
    uint64_t from_index;
    int64_t until_us; /* monotonic */
    /* DONE */
    struct mst__legacy_outcome outcome;
};

/* --- events --- */

enum mst__legacy_event_kind {
    MST_LEGACY_EVENT_BEGIN,   /* idle: operation, deadline_us */
    MST_LEGACY_EVENT_ANSWER,  /* asking, waiting: what etcd said: code and what belongs to it */
    MST_LEGACY_EVENT_FAILED,  /* asking, waiting: no answer; surely nothing was written */
    MST_LEGACY_EVENT_UNKNOWN, /* asking: no answer, and it may have been written */
    MST_LEGACY_EVENT_BROKEN,  /* asking, waiting: the value is no document */
    MST_LEGACY_EVENT_TIME,    /* waiting: until_us is reached */
    MST_LEGACY_EVENT_CANCEL,  /* waiting: end the operation, taking entries back */
};

/* A child of a directory that was listed. */
struct mst__legacy_entry {
    const char *name; /* the last component of its key */
    struct mst_bytes value;
    bool has_ttl;
    int64_t ttl_s;
};

/* Everything is borrowed for the step. */
struct mst__legacy_event {
    enum mst__legacy_event_kind kind;
    enum mst__legacy_operation operation;
    int64_t deadline_us; /* monotonic */
    /* etcd's code: 0 or 100, 101, 105, ... A long poll that tells of a deletion or an expiry, of
     * the key or of a directory above it, has 100, and 400 and 401 are passed on. */
    int code;
    uint64_t index;    /* X-Etcd-Index; of a long poll: the modifiedIndex of what it tells */
    uint64_t modified; /* modifiedIndex of the node, of GET, PUT and WAIT with code 0 */
    struct mst__legacy_doc *doc; /* GET and WAIT with is_doc and code 0; taken, it is empty then */
    struct mst_bytes value;      /* GET without is_doc */
    const struct mst__legacy_entry *entries; /* LIST */
    size_t entry_count;
};

/* --- the machine --- */

struct mst__legacy_options {
    const char *prefix; /* any; it gets one leading and no trailing slash. Copied. */
    const char *run_id; /* copied */
    mst__legacy_nonce nonce;
    int64_t nodes_min, nodes_max;
    int64_t last_call_us; /* at least 1.3 s are taken, so that everybody can come */
};

/* Counted since the machine began. */
struct mst__legacy_stats {
    uint64_t requests; /* long polls included */
    uint64_t swaps;    /* attempts to change the document */
    uint64_t losses;   /* of those: another one was quicker */
};

/* What the keys below v_<n> have said when they were last listed. */
struct mst__legacy_listing {
    bool is_known;
    int64_t version;
    int64_t asked_us;                 /* not older than that */
    struct mst__legacy_nonces nodes;  /* with a key, and the same limits as ours */
    struct mst__legacy_nonces others; /* with a key, and other limits */
    int64_t *node_ttls_s;             /* of nodes */
    int64_t *rank_ttls_s;             /* by rank: of its key, -1 = none */
    size_t rank_count;
};

/* How things stand. */
struct mst__legacy_changes {
    bool is_known; /* the document was read, and nothing has failed since */
    bool closed;
    bool
        expelled; /* we were in a round, our key has expired, and the others may go on without us */
    bool is_over; /* we were in a round, and another one has taken its place, or none */
    /* Nodes that wait for the next round. With is_over at least one: who has ended it waits for us.
     * Those of muster whose key is gone do not count, nor do any when there is no room for one. */
    int64_t waiting_count;
    size_t lost_count; /* members of our round whose key is gone: legacy->lost[rank] */
};

/* Plain data; the fields are the machine's own, to be read and not written. */
struct mst__legacy {
    struct mst__legacy_options options; /* prefix and run_id are NULL */
    char *job;                          /* <prefix>/run_<run_id> */
    char *active;                       /* …/rdzv/active_version */
    char *counter;                      /* …/rdzv/version_counter */
    enum mst__legacy_phase phase;
    enum mst__legacy_operation operation;
    int64_t deadline_us;
    struct mst__legacy_stats stats;
    int ask; /* what was asked for last: enum mst__legacy_ask */

    /* The document. */
    bool is_known;
    bool exists;
    struct mst__legacy_doc doc;
    uint64_t doc_index;  /* its modifiedIndex */
    uint64_t from_index; /* where a long poll goes on */
    uint64_t seen_index; /* an older answer is another member's, lagging behind */
    unsigned stale_count;
    int64_t changed_us;          /* when the document was last seen to change */
    int64_t status_us;           /* and its status or version */
    int64_t read_us;             /* when it was last heard of */
    int64_t asked_us;            /* the last request */
    int64_t trip_us;             /* how long the last one took */
    struct mst__legacy_doc next; /* what is being written */
    struct mst__legacy_listing listing;

    /* NEXT. */
    bool is_tidying;   /* the entries are being taken back; for which result: tidy_outcome */
    bool has_written;  /* something of ours may be in the document */
    bool is_withdrawn; /* our own key was deleted */
    bool is_counter_absent;
    bool is_caller; /* it was us who reached the minimum: we end the last call, others only if we
                     * do not */
    bool is_held;   /* the hold before the next write has begun: it ends at held_us */
    bool is_store_made;
    bool is_cleaning; /* we have made the round final, and remove the oldest that we know of */
    struct mst__legacy_outcome tidy_outcome;
    int64_t tidy_us;
    int64_t joined_version; /* whose document was seen with us in it before it was final */
    int64_t claimed;        /* the version that we have taken from the counter; 0 = none */
    uint64_t counter_index; /* as read, with the value; 0 = not read */
    int64_t counter_value;
    int64_t enough_version; /* whose count was seen to reach the minimum, and when */
    int64_t enough_us;
    int64_t held_us;
    int64_t look_us;      /* when the keys are to be listed, even if nothing changes */
    uint64_t wrote_index; /* of our last write: who wrote last gathers what comes after it */
    int64_t gather_us;
    unsigned losses;   /* in a row */
    unsigned failures; /* in a row */

    /* Our keys, muster_<nonce> and rank_<r>. One may exist from when it is asked for; has_… once
     * that was answered. The times are those of asking, and of the answer. */
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
    int64_t beat_try_us; /* not before then, after a failure */

    /* The round that we are in. */
    bool is_member;
    bool is_expelled; /* our key is gone */
    int64_t version;
    int64_t world;
    uint8_t *lost; /* by rank: the key is gone, or the node has left */
    size_t lost_count;
    struct mst__legacy_changes told; /* when the last WATCH has ended */
    int64_t old_versions[2];         /* rounds before, of muster nodes only; 0 = none */

    char path[MST_LEGACY_PATH_MAX]; /* of the effect */
    char text[64];
};

/* 0; MST_ENOMEM; MST_EINVAL when a path would be too long. It can be closed either way. */
int mst__legacy_init(struct mst__legacy *legacy, const struct mst__legacy_options *options);
void mst__legacy_close(struct mst__legacy *legacy);

/**
 * Feed @event at @now_us (monotonic, never falling), with @seed a fresh random number. @ret_effect
 * is what to do next.
 *
 * Returns 0; MST_EINVAL when the phase does not know the event, then nothing has changed;
 * MST_ENOMEM, MST_ELIMIT: the operation has ended, the machine is idle and will read again.
 */
int mst__legacy_step(struct mst__legacy *legacy,
                     const struct mst__legacy_event *event,
                     int64_t now_us,
                     uint64_t seed,
                     struct mst__legacy_effect *ret_effect);

/* End an operation from outside, when the caller cannot go on: the machine is idle, and will read
 * again. */
void mst__legacy_abort(struct mst__legacy *legacy);

/* When a BEAT is due: monotonic, INT64_MAX when there is nothing to keep alive. */
int64_t mst__legacy_beat_us(const struct mst__legacy *legacy);

/* `<prefix>/run_<id>/rdzv/v_<version>/<name>`, or without @name the directory itself. False when it
 * does not fit. */
bool mst__legacy_path(const struct mst__legacy *legacy,
                      int64_t version,
                      const char *name,
                      char *ret_path,
                      size_t size);

/* How things stand, as last read. */
void mst__legacy_changes(const struct mst__legacy *legacy, struct mst__legacy_changes *ret_changes);

#endif /* MST_CORE_LEGACY_H */
