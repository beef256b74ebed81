/* base/limits.h - every maximum in one place.
 * Hitting one is MST_ELIMIT or a closed connection, never growth. */
#ifndef MST_BASE_LIMITS_H
#define MST_BASE_LIMITS_H

#include "base/assert.h"

#define MST_KIB(n) ((size_t)(n) << 10)
#define MST_MIB(n) ((size_t)(n) << 20)
#define MST_GIB(n) ((size_t)(n) << 30)

/* A public struct that says its own size. Far more than any has, and little enough that a size
 * which was never set is found out before that many bytes are read. */
#define MST_SIZED_MAX MST_KIB(16)

/* How long a thread waits without doing what it does while it waits, see <muster/wait.h>: a person
 * who presses Ctrl-C takes a tenth of a second for "at once". */
#define MST_ON_WAIT_MS 50

/* Defaults of the server, each an option of `muster serve`. Key and value are PyTorch's own. */
#define MST_KEY_SIZE_DEFAULT MST_KIB(8)
#define MST_VALUE_SIZE_DEFAULT MST_MIB(8)
#define MST_MEMORY_DEFAULT MST_GIB(1)
#define MST_CONNECTIONS_DEFAULT 16384

/* What those options may be set to at most. */
#define MST_KEY_SIZE_MAX MST_MIB(1)
#define MST_VALUE_SIZE_MAX MST_GIB(1)
#define MST_CONNECTIONS_MAX 1000000

/* Keys in one CHECK, WAIT, MULTI_GET or MULTI_SET: PyTorch's own limit. */
#define MST_ITEMS_MAX 131072

/* A request with many keys, and the reply to one, all together. Never below what one request with
 * the largest key and values needs, see mst__wire_limits. */
#define MST_MESSAGE_SIZE_MAX MST_MIB(64)

/* The server's shared read buffer, and how much output of one connection is gathered before it is
 * handed to the kernel. */
#define MST_READ_SIZE MST_KIB(64)
#define MST_FLUSH_SIZE MST_KIB(256)

/* A list of keys is made and sent in parts of about this size: a fraction of a millisecond each. */
#define MST_LIST_PART_SIZE MST_KIB(16)

/* Values from this size on are sent from where the engine has them; a smaller one is copied, which
 * costs less than to keep account of who still sends it. */
#define MST_SHARED_SIZE_MIN MST_KIB(4)

/* Bytes per second that a request must arrive with, and replies be taken with, beyond the request
 * timeout, so that nobody holds memory for ever by sending or reading a byte now and then. */
#define MST_RATE_MIN MST_KIB(64)

/* Turns of the loop in which clients may bring news before a server is emptied all the same. */
#define MST_EMPTY_TURNS_MAX 100

/* How long that may take. It is milliseconds as a rule; a loop that needs longer does not run. */
#define MST_EMPTY_MS 10000

/* What one connection may cost in one turn of the loop, and all of them together, in steps of the
 * engine: some milliseconds, and below 20. A single request may exceed it. */
#define MST_TURN_STEPS 8192
#define MST_LOOP_STEPS (3 * MST_TURN_STEPS / 2)

/* Keys of a WAIT that are looked at, or given up, in one turn of the loop: 2 ms. More are looked at
 * in several turns. */
#ifndef MST_WAIT_PART /* the fuzzer has a small one */
#define MST_WAIT_PART 2048
#endif
static_assert(3 * MST_WAIT_PART <= MST_TURN_STEPS, "a key, its place, and one step");

/* Bytes of one connection after which the others are read first, and room that is offered to the
 * kernel while a large request arrives: less than a millisecond. Smaller reads cost a third more
 * processor time. */
#define MST_TURN_READ_SIZE MST_MIB(1)

/* What else counts, in the same steps: a connection that can be read, a KiB that is handed to the
 * kernel, a system call for somebody, a message to a job, closing a connection. */
#define MST_STEPS_READ 8
#define MST_STEPS_SENT 2
#define MST_STEPS_WRITE 16
#define MST_STEPS_MESSAGE 16
#define MST_STEPS_CLOSE 64

/* Connections that a server accepts in one turn of the loop, and others than the one being served
 * that it writes to: a system call each, of up to 20 us. */
#define MST_ACCEPTS_MAX 256
#define MST_PUSHES_MAX 256

/* What the loop hands to the kernel at once when a peer has read something; less when there are so
 * many connections that all of them would exceed the share of a turn, but not so little that system
 * calls cost more than the bytes. */
#define MST_PIECE_SIZE MST_KIB(64)
#define MST_PIECE_SIZE_MIN MST_KIB(4)

/* Unsent answers to a node's messages beyond which its messages are not read: it does not read
 * either. An answer is 5 bytes as a rule. */
#define MST_TOLD_SIZE_MAX MST_KIB(64)

/* What the engine keeps of each of its two buffers (long replies, notices) for the next time: so
 * little that it need not be counted. */
#define MST_KEPT_SIZE_MAX MST_KIB(256)

/* Unsent notices that a watcher, and messages that a node, may leave behind before it is cut
 * off. */
#define MST_BACKLOG_SIZE_MAX MST_MIB(16)

/* Watched keys of one connection. */
#define MST_WATCHES_MAX 1024

/* Hosts that one server listens on. */
#define MST_LISTENERS_MAX 16

/* The metrics page: connections, memory for the request of each, the page itself. */
#define MST_HTTP_CONNECTIONS_MAX 64
#define MST_HTTP_REQUEST_SIZE_MAX MST_KIB(8)
#define MST_HTTP_PAGE_SIZE_MAX MST_KIB(128)
/* Snapshots of jobs that are being sent at a time: each is memory, some MiB of a large job. */
#define MST_HTTP_SNAPSHOTS_MAX 8

/* Jobs with series of their own on that page, and the longest run id of one: they take most of the
 * page, and a collector keeps every run id that it has ever seen. */
#define MST_METRICS_JOBS_MAX 64
#define MST_METRICS_RUN_ID_SIZE_MAX 128

/* The log of a command. Lines that wait to be written: some 2,000, as many as all events at their
 * limit make in a second. Lines of one event in any second: enough to see what happens, few enough
 * for a person to read. Events that are counted one by one: about twice as many as there are. How
 * long the end of the program waits for a stderr that takes nothing, and for one that is slow. */
#define MST_LOG_BUFFER_SIZE MST_KIB(256)
#define MST_LOG_LINES_PER_SECOND 20
#define MST_LOG_EVENTS_MAX 96
#define MST_LOG_FLUSH_MS 200
#define MST_LOG_FLUSH_MAX_MS 2000

/* How long a failed assertion waits for stderr before it ends the program without a word. */
#define MST_LAST_WORDS_S 1

/* Connections that one store handle opens, one per thread that is inside a call. */
#define MST_POOL_MAX 64

/* A file store's log. */
#define MST_FILE_STORE_SIZE_MAX MST_GIB(1)

/* Nodes in one record of a rendezvous. A record is moved as a whole for every change, so that far
 * fewer are sensible. */
#define MST_MEMBERS_MAX 8192

/* A record as pickle: its size, how deep its values and marks are nested, what the reader may
 * allocate for each byte of it, and the attributes we do not know: how many, and their size. */
#define MST_PICKLE_SIZE_MAX MST_MIB(16)
#define MST_PICKLE_DEPTH_MAX 64
#define MST_PICKLE_MEMORY_FACTOR 16
#define MST_PICKLE_EXTRAS_MAX 64
#define MST_PICKLE_EXTRA_SIZE_MAX MST_MIB(1)

/* Run ids that a server remembers although nobody is there: beyond that the one that was left first
 * is forgotten. Those with nodes are bounded by connections and memory. And how many of them one
 * connection may found or close that nobody knew: nodes need one, so that this is for strangers. */
#define MST_JOBS_IDLE_MAX 4096
#define MST_JOBS_FOUNDED_MAX 16
/* The journal of a server. A record is an event, an entry of a table or a part of a list, far below
 * this. What is not written yet waits in memory: two states of a job of 10,000 nodes, or minutes of
 * their heartbeats. The file is rotated at its size; below the least one, states would be most of
 * it. Ranks in one record. Jobs that a replay has at once: more than a server keeps. How long
 * the end waits for a disk. The latest time of an event: INT64_MAX is never. */
#define MST_JOURNAL_RECORD_SIZE_MAX MST_KIB(16)
#define MST_JOURNAL_BUFFER_SIZE MST_MIB(8)
#define MST_JOURNAL_SIZE_DEFAULT MST_MIB(64)
#define MST_JOURNAL_SIZE_MIN MST_KIB(64)
#define MST_JOURNAL_RANKS_MAX 2048
#define MST_JOURNAL_JOBS_MAX 1000000
#define MST_JOURNAL_CLOSE_MS 2000
#define MST_JOURNAL_TIME_MAX ((int64_t)1 << 62)
/* The size of a run id, and the longest time of an option. The silence that a node may ask for is
 * that of its whole run, and a machine that is dead without a word holds the run up for so long: an
 * hour is 240 times the default, and more than anybody waits for an accelerator or a file system
 * that hangs. */
#define MST_JOB_RUN_ID_SIZE_MAX 1024
#define MST_JOB_EXPIRY_US_MAX ((int64_t)3600 * 1000000)
#define MST_JOB_MS_MAX ((int64_t)366 * 24 * 3600 * 1000)

/* Keys that are looked at in one turn of the loop to see whether their round is over: below a
 * millisecond, so that nobody else notices; a million of them take a quarter of a second. */
#define MST_SWEEP_STEPS 4096

/* A run that one authority decides for: living nodes; the text of a node, all together and of each
 * part; names in a sentence. */
#define MST_AUTHORITY_MEMBERS_MAX 65536
#define MST_AUTHORITY_TEXT_SIZE_MAX 768
#define MST_AUTHORITY_NAME_SIZE_MAX 255
#define MST_AUTHORITY_ADDRESS_SIZE_MAX 255
#define MST_AUTHORITY_LABELS_MAX 16
#define MST_AUTHORITY_RANK_BY_SIZE_MAX 255
#define MST_AUTHORITY_REASON_SIZE_MAX 255
/* What a node says of its failed work: the last line of a worker, as a rule. */
#define MST_AUTHORITY_CAUSE_SIZE_MAX 255
#define MST_AUTHORITY_NAMES_TOLD 5
/* Processes that had the name of a node before the present one and may not come back: those of the
 * last restarts, which may still live beyond a network that was cut. */
#define MST_AUTHORITY_REPLACED_MAX 4

/* Numbers of rounds that an authority takes from others: from a node, when it knows of no round
 * itself, and above the last one when it does; and from a store. Each leaves room for more rounds
 * than there can be before the next bound, so that no claim makes the next round one that cannot be
 * claimed. Epochs are clocks in microseconds, or revisions. */
#define MST_AUTHORITY_CLAIM_MAX ((int64_t)1 << 61)
#define MST_AUTHORITY_CLAIM_STEP_MAX ((int64_t)1 << 32)
#define MST_AUTHORITY_ROUND_MAX ((int64_t)1 << 62)
#define MST_AUTHORITY_EPOCH_MAX INT64_MAX

/* Runs in a list that is told, the oldest ones: some milliseconds of the server's time. And those
 * with which a run id that nobody knows is compared, in as much time; of these the nearest are
 * named. */
#define MST_JOBS_LISTED_MAX 10000
#define MST_JOBS_COMPARED_MAX 1000
#define MST_JOBS_SIMILAR_MAX 3

/* Nodes of a job that have a line each in a table for people; more share lines. */
#define MST_STATUS_ROWS_MAX 40

/* A snapshot as JSON: the most nodes that there can be, with the longest texts. */
#define MST_SNAPSHOT_JSON_SIZE_MAX MST_MIB(256)

/* Names of nodes in a line for people: more than these are told as a number. */
#define MST_NAMES_SHOWN 20

/* Options of one rendezvous, and backends that programs add to the built-in ones. */
#define MST_OPTIONS_MAX 256
#define MST_REGISTRY_MAX 64

static_assert(MST_MESSAGE_SIZE_MAX > 2 * MST_VALUE_SIZE_DEFAULT + MST_KEY_SIZE_DEFAULT,
              "a COMPARE_SET of the default sizes must fit into one message");

/* Names of lost nodes that a handler keeps for one round: more than a person reads, and a tenth of
 * the largest job. How many are lost is counted without a bound. */
#define MST_LOST_NAMES_MAX 1024

/* The launcher. Workers of one node: far more than a machine has CPUs or GPUs, and few enough that
 * their pipes fit below the usual limit of descriptors. */
#define MST_NPROC_MAX 4096
/* A line of a worker's output; a longer one comes in pieces. Most are below 200 bytes, and dumps of
 * JSON below this. */
#define MST_OUTPUT_LINE_SIZE_MAX MST_KIB(64)
/* Output that waits for the console, per stream; beyond that, pipes are not read. One line of the
 * largest size from each of some workers fits. */
#define MST_OUTPUT_CONSOLE_SIZE_MAX MST_MIB(1)
/* The bound that even the last words of workers that have ended cannot exceed: the pipes of a
 * hundred workers. */
#define MST_OUTPUT_CONSOLE_HARD_MAX MST_MIB(16)
/* Bytes of one stream that are taken before another one has its turn: if each is an empty line with
 * the longest prefix, what is made of them still fits. */
#define MST_OUTPUT_READ_SIZE MST_KIB(8)
#define MST_OUTPUT_PREFIX_SIZE_MAX 512
/* Lines of stderr that a report of a failure shows, and the most bytes of each that are kept. */
#define MST_OUTPUT_TAIL_LINES 20
#define MST_OUTPUT_TAIL_LINE_SIZE 512
/* What is read of a worker's report of its failure. A call stack has some KiB. */
#define MST_ERROR_FILE_SIZE_MAX MST_KIB(256)
/* How deep JSON that others have written may be nested. */
#define MST_JSON_DEPTH_MAX 64
/* A line of the event file. */
#define MST_EVENT_SIZE_MAX MST_KIB(256)
/* Hosts that agents are started on, and children that each of them may start. */
#define MST_HOSTS_MAX 65536
#define MST_HOSTS_CHILDREN_MAX 32
/* Commands to a running job and what is asked with them; what a node says of itself, with the most
 * workers; pieces of a log on their way to its reader, and how many wait for it at most; readers
 * that one agent serves at a time; how long one may be silent. */
#define MST_CONTROL_TEXT_SIZE_MAX MST_KIB(4)
#define MST_CONTROL_NODE_SIZE_MAX MST_MIB(1)
#define MST_CONTROL_PIECE_SIZE MST_KIB(64)
#define MST_CONTROL_PIECES_MAX 16
#define MST_CONTROL_READERS_MAX 8
#define MST_CONTROL_SILENT_MS 20000
/* How often logs that are followed are looked at, how long a call may take, and how long the end of
 * an agent waits for its last word. */
#define MST_CONTROL_LOOK_MS 200
#define MST_CONTROL_CALL_MS 10000
#define MST_CONTROL_END_MS 100
/* What is sent to such a host: the names of all hosts, an environment, a command line. */
#define MST_RELAY_JOB_SIZE_MAX MST_MIB(64)

/* What workers leave behind is killed when the last of them ends: how long that may take, longer
 * than the kernel needs for what it can kill at all, and how often to look. How long after SIGKILL
 * a worker counts as stuck: one that writes a core of many gigabytes is not. What
 * is told of a failure, with a traceback and the last lines. How long somebody waits for that
 * text at the end, and for the ranks of a round; the latter as torch's agents do. How often an
 * answer to a notice is looked for. */
#define MST_GROUP_SWEEP_MS 2000
#define MST_GROUP_LOOK_MS 20
#define MST_AGENT_KILL_MS 30000
#define MST_AGENT_BLOCK_SIZE_MAX MST_KIB(64)
#define MST_AGENT_BLOCK_MS 1000
#define MST_AGENT_CHECK_MS 200 /* for a look at the store before a failure is told */
#define MST_AGENT_ASSIGN_MS 60000
#define MST_AGENT_END_MS 300000 /* for the others to finish, where only torch's barrier tells */
#define MST_AGENT_ACK_MS 50
#define MST_AGENT_DRAIN_MS 2000

/* Timers that the workers of a node may have at once, far more than scopes in a program, and a line
 * that sets one: torch's are below the size of which a pipe takes all or nothing. */
#define MST_WATCHDOG_TIMERS_MAX 4096
#define MST_WATCHDOG_LINE_SIZE_MAX MST_KIB(8)

#endif /* MST_BASE_LIMITS_H */
