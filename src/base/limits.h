/* base/limits.h - every maximum in one place.
 * Hitting one is MST_ELIMIT or a closed connection, never growth. */
#ifndef MST_BASE_LIMITS_H
#define MST_BASE_LIMITS_H

#include "base/assert.h"

#define MST_KIB(n) ((size_t)(n) << 10)
#define MST_MIB(n) ((size_t)(n) << 20)
#define MST_GIB(n) ((size_t)(n) << 30)

/* The size of a public struct. Larger than any of them, and small enough to detect a size that was
 * never set before that many bytes are read. */
#define MST_SIZED_MAX MST_KIB(16)

/* How long a thread waits before it calls its mst_on_wait function again, see <muster/wait.h>:
 * after Ctrl-C, a tenth of a second feels immediate. */
#define MST_ON_WAIT_MS 50

/* Defaults of the server, each an option of `muster serve`. Key and value sizes are PyTorch's. */
#define MST_KEY_SIZE_DEFAULT MST_KIB(8)
#define MST_VALUE_SIZE_DEFAULT MST_MIB(8)
#define MST_MEMORY_DEFAULT MST_GIB(1)
#define MST_CONNECTIONS_DEFAULT 16384

/* Maxima of those options. */
#define MST_KEY_SIZE_MAX MST_MIB(1)
#define MST_VALUE_SIZE_MAX MST_GIB(1)
#define MST_CONNECTIONS_MAX 1000000

/* Keys in one CHECK, WAIT, MULTI_GET or MULTI_SET: PyTorch's own limit. */
#define MST_ITEMS_MAX 131072

/* A whole request with many keys, and its reply. At least the size of a request with the largest
 * key and values, see mst__wire_limits. */
#define MST_MESSAGE_SIZE_MAX MST_MIB(64)

/* The server's shared read buffer, and the output of one connection that is collected before it
 * goes to the kernel. */
#define MST_READ_SIZE MST_KIB(64)
#define MST_FLUSH_SIZE MST_KIB(256)

/* A list of keys is made and sent in parts of about this size: a fraction of a millisecond each. */
#define MST_LIST_PART_SIZE MST_KIB(16)

/* Larger values are sent from the engine's memory; smaller ones are copied, which is cheaper than
 * counting references. */
#define MST_SHARED_SIZE_MIN MST_KIB(4)

/* Bytes per second at which requests must arrive and replies be read, after the request timeout, so
 * that no peer holds memory for ever with a byte now and then. */
#define MST_RATE_MIN MST_KIB(64)

/* How many turns of the loop a server waits for arriving requests before it is emptied. */
#define MST_EMPTY_TURNS_MAX 100

/* The longest time to empty a server. It usually takes milliseconds; a loop that needs longer is
 * stuck. */
#define MST_EMPTY_MS 10000

/* Cost of one connection in one turn of the loop, and of all connections, in steps of the engine:
 * some milliseconds, below 20. A single request may exceed it. */
#ifndef MST_TURN_STEPS /* the fuzzer uses a small one */
#define MST_TURN_STEPS 8192
#endif
#define MST_LOOP_STEPS (3 * MST_TURN_STEPS / 2)

/* Keys of a WAIT that are examined, or given up, in one turn of the loop: 2 ms. The rest follows in
 * later turns. */
#ifndef MST_WAIT_PART /* the fuzzer uses a small one */
#define MST_WAIT_PART 2048
#endif
static_assert(3 * MST_WAIT_PART <= MST_TURN_STEPS, "a key, its place, and one step");

/* Bytes read from one connection before the others are read, and room offered to the kernel for a
 * large request: less than a millisecond. Smaller reads cost a third more CPU time. */
#define MST_TURN_READ_SIZE MST_MIB(1)

/* Costs of other work in the same steps: a readable connection, a KiB handed to the kernel, a
 * system call, a message to a job, closing a connection. */
#define MST_STEPS_READ 8
#define MST_STEPS_SENT 2
#define MST_STEPS_WRITE 16
#define MST_STEPS_MESSAGE 16
#define MST_STEPS_CLOSE 64

/* The longest turn of the loop is known for a minute, in spans of this length: six, and the present
 * one. */
#define MST_LOOP_SPAN_MS 10000
#define MST_LOOP_SPANS 7

/* Connections that a server accepts, and other connections that it writes to, in one turn of the
 * loop: one system call each, up to 20 us. */
#define MST_ACCEPTS_MAX 256
#define MST_PUSHES_MAX 256

/* Connections beyond the maximum, which a full server accepts to say so, together with those that
 * stay open until a refused peer has read why; and the time that each has: clients send their first
 * bytes at once. How long a peer may send nothing at all before it loses its place to another, when
 * places are scarce: long enough for a client that was stopped for a moment. How often the log says
 * that the server is full. */
#define MST_SPARES_MAX 32
#define MST_SPARE_MS 2000
#define MST_SILENT_MS 5000
#define MST_FULL_LOG_MS 10000

/* Bytes handed to the kernel at once when a peer has read something. Less if all connections
 * together would exceed the share of a turn, but not so little that system calls cost more than the
 * bytes. */
#define MST_PIECE_SIZE MST_KIB(64)
#define MST_PIECE_SIZE_MIN MST_KIB(4)

/* Unsent answers to a node beyond which its messages are not read, because it does not read either.
 * An answer usually has 5 bytes. */
#define MST_TOLD_SIZE_MAX MST_KIB(64)

/* Memory that the engine keeps of each of its two buffers (long replies, notices): too little to be
 * counted. */
#define MST_KEPT_SIZE_MAX MST_KIB(256)

/* Unsent notices of a watcher, or messages of a node, beyond which its connection is closed. */
#define MST_BACKLOG_SIZE_MAX MST_MIB(16)

/* Watched keys of one connection. */
#define MST_WATCHES_MAX 1024

/* Hosts that one server listens on. */
#define MST_LISTENERS_MAX 16

/* The metrics page: connections, memory for the request of each, the page itself. */
#define MST_HTTP_CONNECTIONS_MAX 64
#define MST_HTTP_REQUEST_SIZE_MAX MST_KIB(8)
#define MST_HTTP_PAGE_SIZE_MAX MST_MIB(2)
/* Snapshots of jobs that are being sent at the same time: each takes some MiB for a large job. */
#define MST_HTTP_SNAPSHOTS_MAX 8

/* Jobs with their own series on that page, and the longest run id of one: they take most of the
 * page, some milliseconds to write it, and a collector keeps every run id that it has seen. */
#define MST_METRICS_JOBS_MAX 512
#define MST_METRICS_RUN_ID_SIZE_MAX 128

/* The log of a command. Buffered lines: some 2,000, as many as all events at their limit make in a
 * second. Lines of one event per second: enough to see what happens, few enough for a person to
 * read. Events that are counted separately: about twice as many as there are. How long the exit
 * waits for a stderr that is blocked, and for one that is slow. */
#define MST_LOG_BUFFER_SIZE MST_KIB(256)
#define MST_LOG_LINES_PER_SECOND 20
#define MST_LOG_EVENTS_MAX 96
#define MST_LOG_FLUSH_MS 200
#define MST_LOG_FLUSH_MAX_MS 2000

/* How long a failed assertion waits for stderr before it ends the program without a message. */
#define MST_LAST_WORDS_S 1

/* Connections of one store handle, one per thread inside a call that is answered at once; those of
 * calls that wait are not counted. */
#define MST_POOL_MAX 64

/* A file store's log. */
#define MST_FILE_STORE_SIZE_MAX MST_GIB(1)

/* Nodes in one record of a rendezvous. Every change moves the whole record, so far fewer are
 * sensible. */
#define MST_MEMBERS_MAX 8192

/* A record as a pickle: its size, the nesting of its values and marks, the memory that the reader
 * may allocate per byte, and the number and size of unknown attributes. */
#define MST_PICKLE_SIZE_MAX MST_MIB(16)
#define MST_PICKLE_DEPTH_MAX 64
#define MST_PICKLE_MEMORY_FACTOR 16
#define MST_PICKLE_EXTRAS_MAX 64
#define MST_PICKLE_EXTRA_SIZE_MAX MST_MIB(1)

/* Run ids without nodes that a server remembers; beyond that it forgets the one that has been
 * without nodes the longest. Run ids with nodes are bounded by connections and memory. And new run
 * ids that one connection may found or close: nodes need one, so this bounds strangers. */
#define MST_JOBS_IDLE_MAX 4096
#define MST_JOBS_FOUNDED_MAX 16
/* The journal of a server. A record is an event, an entry of a table or a part of a list, far below
 * this. The buffer holds two states of a job of 10,000 nodes, or minutes of their heartbeats. The
 * file is rotated at its size; below the minimum, states would fill most of it. Ranks in one
 * record. Jobs in a replay: more than a server keeps. How long the exit waits for a disk. The
 * latest time of an event: INT64_MAX means never. */
#define MST_JOURNAL_RECORD_SIZE_MAX MST_KIB(16)
#define MST_JOURNAL_BUFFER_SIZE MST_MIB(8)
#define MST_JOURNAL_SIZE_DEFAULT MST_MIB(64)
#define MST_JOURNAL_SIZE_MIN MST_KIB(64)
#define MST_JOURNAL_RANKS_MAX 2048
#define MST_JOURNAL_JOBS_MAX 1000000
#define MST_JOURNAL_CLOSE_MS 2000
#define MST_JOURNAL_TIME_MAX ((int64_t)1 << 62)
/* The size of a run id, and the longest time of an option. The longest expiry of a node applies to
 * its whole run, and a machine that dies silently delays the run for that long: an hour is 240
 * times the default, and longer than any hang of an accelerator or file system that is worth
 * waiting for. */
#define MST_JOB_RUN_ID_SIZE_MAX 1024
#define MST_JOB_EXPIRY_US_MAX ((int64_t)3600 * 1000000)
#define MST_JOB_MS_MAX ((int64_t)366 * 24 * 3600 * 1000)

/* Lost nodes of earlier rounds that the status of a job names, and the size of their names: the
 * last ones; the others are counted. */
#define MST_JOB_LOST_MAX 8
#define MST_JOB_LOST_NAMES_SIZE 512

/* Keys that are examined in one turn of the loop to find those of old rounds: below a millisecond;
 * a million keys take a quarter of a second. */
#define MST_SWEEP_STEPS 4096

/* A run of one authority: living nodes; the texts of a node, together and each; names in a
 * sentence. */
#define MST_AUTHORITY_MEMBERS_MAX 65536
#define MST_AUTHORITY_TEXT_SIZE_MAX 1024
#define MST_AUTHORITY_NAME_SIZE_MAX 255
#define MST_AUTHORITY_ADDRESS_SIZE_MAX 255
#define MST_AUTHORITY_LABELS_MAX 16
#define MST_AUTHORITY_ROLE_SIZE_MAX 255
#define MST_AUTHORITY_RANK_BY_SIZE_MAX 255
#define MST_AUTHORITY_REASON_SIZE_MAX 255
/* The text of a failure: usually the last line of a worker. */
#define MST_AUTHORITY_CAUSE_SIZE_MAX 255
/* How long before it goes a node may say that it leaves. */
#define MST_AUTHORITY_LEAVING_US_MAX ((int64_t)86400 * 1000000)
/* The report of a failure: a stack trace, or the last lines of a worker. */
#define MST_AUTHORITY_REPORT_SIZE_MAX 4095
#define MST_AUTHORITY_NAMES_TOLD 5
/* Replaced processes of a node that may not come back: those of the last restarts, which may still
 * live behind a network partition. */
#define MST_AUTHORITY_REPLACED_MAX 4
/* Different expiries of a run's nodes that are told apart; with more, a node gets that of others
 * which may be silent for longer. */
#define MST_AUTHORITY_EXPIRIES_MAX 8

/* Round numbers that an authority accepts: from a node if it knows no round itself, above its last
 * round if it does, and from a store. Each bound leaves room for more rounds than there can be
 * before the next bound, so that no claim makes the next round unclaimable. Epochs are clocks in
 * microseconds, or revisions. */
#define MST_AUTHORITY_CLAIM_MAX ((int64_t)1 << 61)
#define MST_AUTHORITY_CLAIM_STEP_MAX ((int64_t)1 << 32)
#define MST_AUTHORITY_ROUND_MAX ((int64_t)1 << 62)
#define MST_AUTHORITY_EPOCH_MAX INT64_MAX

/* Runs in a list of jobs, the oldest ones: some milliseconds of the server's time. Run ids that an
 * unknown one is compared with, in as much time, and the nearest ones that are named. */
#define MST_JOBS_LISTED_MAX 10000
#define MST_JOBS_COMPARED_MAX 1000
#define MST_JOBS_SIMILAR_MAX 3

/* Nodes of a job that have one line each in a table for people; more nodes share lines. */
#define MST_STATUS_ROWS_MAX 40

/* A snapshot as JSON: the maximum of nodes with the longest texts. */
#define MST_SNAPSHOT_JSON_SIZE_MAX MST_MIB(256)

/* Names of nodes in a line for people; the rest is a number. */
#define MST_NAMES_SHOWN 20

/* Options of one rendezvous, and backends that programs add to the built-in ones. */
#define MST_OPTIONS_MAX 256
#define MST_REGISTRY_MAX 64

static_assert(MST_MESSAGE_SIZE_MAX > 2 * MST_VALUE_SIZE_DEFAULT + MST_KEY_SIZE_DEFAULT,
              "a COMPARE_SET of the default sizes must fit into one message");

/* Names of lost nodes that a handler keeps for one round: more than a person reads, and a tenth of
 * the largest job. The number of lost nodes has no bound. */
#define MST_LOST_NAMES_MAX 1024

/* The launcher. Workers of one node: far more than a machine has CPUs or GPUs, and few enough that
 * their pipes fit below the usual limit of descriptors. */
#define MST_NPROC_MAX 4096
/* A line of a worker's output; a longer line is split. Most are below 200 bytes, and JSON dumps
 * below this. */
#define MST_OUTPUT_LINE_SIZE_MAX MST_KIB(64)
/* Output buffered for the console, per stream; beyond it, pipes are not read. It holds one line of
 * the largest size from each of some workers. */
#define MST_OUTPUT_CONSOLE_SIZE_MAX MST_MIB(1)
/* The bound for the last output of workers that have ended: the pipes of a hundred workers. */
#define MST_OUTPUT_CONSOLE_HARD_MAX MST_MIB(16)
/* Bytes read from one stream before the next has its turn: even if each is an empty line with the
 * longest prefix, the result fits. */
#define MST_OUTPUT_READ_SIZE MST_KIB(8)
#define MST_OUTPUT_PREFIX_SIZE_MAX 512
/* Lines of stderr in the report of a failure, and the bytes kept of each. */
#define MST_OUTPUT_TAIL_LINES 20
#define MST_OUTPUT_TAIL_LINE_SIZE 512
/* Bytes read of a worker's error file. A call stack has some KiB. */
#define MST_ERROR_FILE_SIZE_MAX MST_KIB(256)
/* Nesting of JSON that other programs have written. */
#define MST_JSON_DEPTH_MAX 64
/* A line of the event file. */
#define MST_EVENT_SIZE_MAX MST_KIB(256)
/* Hosts of a job, and children that each of them may start. */
#define MST_HOSTS_MAX 65536
#define MST_HOSTS_CHILDREN_MAX 32
/* Commands to a running job; the state of a node, with the maximum of workers; pieces of a log, and
 * how many are queued for a reader; readers of one agent at the same time; how long a reader may be
 * silent. */
#define MST_CONTROL_TEXT_SIZE_MAX MST_KIB(4)
#define MST_CONTROL_NODE_SIZE_MAX MST_MIB(1)
#define MST_CONTROL_PIECE_SIZE MST_KIB(64)
#define MST_CONTROL_PIECES_MAX 16
#define MST_CONTROL_READERS_MAX 8
#define MST_CONTROL_SILENT_MS 20000
/* How often followed logs are checked, how long a call may take, and how long the exit of an agent
 * waits for the end of a log and for the removal of its state. */
#define MST_CONTROL_LOOK_MS 200
#define MST_CONTROL_CALL_MS 10000
#define MST_CONTROL_END_MS 100
#define MST_CONTROL_GONE_MS 1000
/* At an etcd: how long the keys of a job stay after its last agent is gone. */
#define MST_CONTROL_LEASE_S 60
/* The job that is sent to a relay: the names of all hosts, an environment, a command line. */
#define MST_RELAY_JOB_SIZE_MAX MST_MIB(64)
/* How long a relay waits for more of its job. The least --host-timeout. What a relay gets to end
 * beyond the grace of the workers, for each level of the tree below it; a host that never answered
 * has no workers, and gets this alone. How long a killed process is waited for: the kernel may hold
 * it. Names of hosts in one message. A part of the launcher's input. */
#define MST_RELAY_JOB_WAIT_MS 60000
#define MST_RELAY_HOST_MS_MIN 100
#define MST_RELAY_END_MS 5000
#define MST_RELAY_KILL_MS 2000
#define MST_RELAY_NAMES_SIZE 256
#define MST_RELAY_INPUT_MAX MST_KIB(16)

/* Processes that workers leave behind are killed when the last worker ends: the time for that,
 * longer than the kernel needs for any process that can be killed, and how often to check. How long
 * after SIGKILL a worker counts as stuck; writing a core of many gigabytes must fit. The size of a
 * failure report, with a traceback and the last lines. How long a node waits for that report at the
 * end, and for the ranks of a round; the latter as torch's agents do. How often an answer to a
 * notice is checked. */
#define MST_GROUP_SWEEP_MS 2000
#define MST_GROUP_LOOK_MS 20
#define MST_AGENT_KILL_MS 30000
#define MST_AGENT_BLOCK_SIZE_MAX MST_KIB(64)
#define MST_AGENT_BLOCK_MS 1000
#define MST_AGENT_CHECK_MS 200 /* to check the store before a failure is reported */
#define MST_AGENT_ASSIGN_MS 60000
#define MST_AGENT_END_MS 300000 /* for the other nodes to finish, if only torch's barrier tells */
#define MST_AGENT_ACK_MS 50
/* How long the report of an end may take to arrive when the job ends with it in any case: a restart
 * of a server takes a second or two, and a node that has finished should not be taken for lost
 * because of one. The pause before a report is repeated. How long leaving may take: schedulers kill
 * half a minute after their signal, and workers get most of that. */
#define MST_AGENT_TELL_MS 10000
#define MST_AGENT_AGAIN_MS 500
#define MST_AGENT_LEAVE_MS 2000
/* How long a node waits for the others to read that it leaves, before it signals its workers. */
#define MST_AGENT_LEAVING_MS 200
#define MST_AGENT_DRAIN_MS 2000

/* A barrier of a store: how long a call whose time is over takes to leave it, how often a waiting
 * participant looks whether all have come, where the store does not tell, and how many barriers of
 * a handle may have failed without a trace of whether they count it. */
#define MST_BARRIER_LEAVE_MS 1000
#define MST_BARRIER_LOOK_MS 1000
#define MST_BARRIERS_IN_DOUBT_MAX 64

/* Timers of the workers of a node, far more than scopes in a program, and a line that sets one:
 * torch's lines are short enough for atomic writes to a pipe. */
#define MST_WATCHDOG_TIMERS_MAX 4096
#define MST_WATCHDOG_LINE_SIZE_MAX MST_KIB(8)

#endif /* MST_BASE_LIMITS_H */
