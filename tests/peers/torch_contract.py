"""The contract between torch's agents and a rendezvous handler; one JSON line per check on stdout.

    torch_contract.py BACKEND HOST:PORT

Nodes are handlers in threads of this process. The caller runs this with torch's own handler and
with muster's, and compares the results. So the expectations are torch's real behaviour.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from datetime import timedelta

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.elastic.rendezvous.registry  # noqa: E402, F401
from torch.distributed.elastic import rendezvous as rdzv  # noqa: E402
from torch.distributed.elastic.events import handlers as event_handlers  # noqa: E402

import muster  # noqa: E402
import muster.torch  # noqa: E402

BACKEND, ENDPOINT = sys.argv[1:3]
PATIENCE_S = 60
ROUNDS = 1000
MEMORY_MAX = 4 << 20  # memory that an allocator may keep
CHECKS = []
IS_OURS = BACKEND != "c10d"
HAS_AUTHORITY = BACKEND in ("muster", "muster-etcd")  # the others share a record
HAS_INFO = hasattr(rdzv, "RendezvousInfo")
HAS_SPARES = hasattr(rdzv, "RendezvousGracefulExitError")

# Every key that one of torch's handlers reads, and those that torchrun adds.
TORCH_KEYS = {
    "join_timeout": "30", "last_call_timeout": "5", "close_timeout": "10", "heartbeat_timeout": "5",
    "keep_alive_interval": "5", "keep_alive_max_attempt": "3", "store_type": "tcp",
    "is_host": "false", "read_timeout": "60", "use_libuv": "true", "timeout": 900, "rank": 0,
    "etcd_prefix": "/torchelastic/p2p",
}


class Recorder(logging.Handler):
    """Collects torch's events."""

    def __init__(self):
        super().__init__()
        self.events = []

    def emit(self, record):
        self.events.append(json.loads(record.getMessage()))


RECORDER = Recorder()


def check(needs=True):
    def register(function):
        if needs:
            CHECKS.append(function)
        return function

    return register


class Node:
    """A handler. Calls that wait run in a thread."""

    def __init__(self, job, min_nodes=2, max_nodes=2, **config):
        config = {"join_timeout": PATIENCE_S, "last_call_timeout": 1, **config}
        endpoint = config.pop("endpoint", ENDPOINT)
        parameters = rdzv.RendezvousParameters(BACKEND, endpoint, job, min_nodes, max_nodes,
                                               **config)
        self.handler = rdzv.rendezvous_handler_registry.create_handler(parameters)

    def begin(self):
        self.outcome = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def run(self):
        try:
            answer = self.handler.next_rendezvous()
            if HAS_INFO:
                self.store, self.rank, self.world = answer.store, answer.rank, answer.world_size
                self.master = answer.bootstrap_store_info
            else:
                self.store, self.rank, self.world = answer
            self.outcome = "joined"
        except Exception as error:  # the checks compare its class
            self.outcome = type(error).__name__

    def end(self):
        self.thread.join(PATIENCE_S)
        return self.outcome or "still waiting"


def meet(*nodes):
    for node in nodes:
        node.begin()
    outcomes = {node.end() for node in nodes}
    if outcomes != {"joined"}:
        raise AssertionError(f"the nodes did not meet: {outcomes}")
    return nodes


def group(job, count=2, **options):
    return meet(*[Node(job, count, count, **options) for _ in range(count)])


def until(condition, what):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.05)
    return True


def raised(call, *args, **options):
    """The base class of the exception that a call raises."""
    try:
        call(*args, **options)
    except Exception as error:
        for kind in (ValueError, rdzv.RendezvousError):
            if isinstance(error, kind):
                return kind.__name__
        return type(error).__name__
    return "nothing"


@check()
def facts(job):
    handler = Node(job).handler
    return [handler.get_backend() == BACKEND, handler.get_run_id() == job,
            isinstance(handler, rdzv.RendezvousHandler),
            isinstance(getattr(handler, "use_agent_store", False), bool)]


@check()
def round_of_three(job):
    nodes = group(job, 3)
    return [sorted(node.rank for node in nodes), [node.world for node in nodes],
            [node.handler.num_nodes_waiting() for node in nodes],
            [node.handler.is_closed() for node in nodes]]


@check()
def types(job):
    one, two = group(job)
    return [type(value).__name__ for value in (
        one.rank, one.world, one.handler.num_nodes_waiting(), one.handler.is_closed(),
        one.handler.get_run_id(), one.handler.get_backend(), two.handler.shutdown())]


@check()
def strange_names(job):
    """A run id may be any text. A run id that is a prefix of another one names another job."""
    name = f"{job} /%s:\u00e4"
    one, two = group(name), group(name + "/")
    one[0].store.set("key", "1")
    two[0].store.set("key", "2")
    one[0].handler.set_closed()
    return [one[1].store.get("key").decode(), two[1].store.get("key").decode(),
            one[0].handler.get_run_id() == name, two[0].handler.is_closed()]


@check(HAS_INFO)
def local_address(job):
    """Workers get the local address that a node gives."""
    nodes = meet(Node(job, local_addr="127.1.2.3"), Node(job, local_addr="127.1.2.3"))
    return [node.master.master_addr for node in nodes]


@check(BACKEND != "muster-etcd")
def addresses(job):
    """Host names and IPv6 addresses reach the same server."""
    port = ENDPOINT.rpartition(":")[2]
    nodes = meet(*[Node(job, 3, 3, endpoint=f"{host}:{port}", is_host=False)
                   for host in ("localhost", "[::1]", " 127.0.0.1")])
    return sorted(node.rank for node in nodes)


@check()
def wrong_addresses(job):
    return [raised(Node, job, endpoint=endpoint)
            for endpoint in ("127.0.0.1:port", "127.0.0.1:99999", "127.0.0.1:-1", "a b:1")]


@check(BACKEND != "muster-etcd")
def truth(job):
    """Values that count as false, and invalid values."""
    return [raised(Node, job, is_host=value)
            for value in (False, 0, "0", "false", "F", "No", "n", "maybe", "", 2)]


@check(HAS_INFO)
def master_is_the_same(job):
    nodes = group(job, 3)
    places = {(node.master.master_addr, node.master.master_port) for node in nodes}
    return [len(places), all(addr != "" and 0 < port < 65536 for addr, port in places)]


@check(not HAS_INFO and IS_OURS)
def master_is_chosen_once(job):
    """Agents before 2.4 write an address, and all read it. Some may have read before the write."""
    nodes = group(job, 3)

    def read():
        return {(node.store.get("MASTER_ADDR"), node.store.get("MASTER_PORT")) for node in nodes}

    places = read()
    for node in nodes:
        if node.rank == 0:
            node.store.set("MASTER_ADDR", b"chosen.example")
            node.store.set("MASTER_PORT", b"1")
    return len(places | read())


@check()
def store_is_shared(job):
    nodes = group(job, 3)
    for node in nodes:
        node.store.set(f"from/{node.rank}", f"value {node.rank}")
    seen = [[node.store.get(f"from/{i}").decode() for i in range(3)] for node in nodes]
    sums = [node.store.add("sum", 5) for node in nodes]
    nodes[0].store.wait(["from/0", "sum"], timedelta(seconds=5))
    return [seen, sums, nodes[1].store.get("sum").decode()]


@check(HAS_INFO)
def store_has_all_calls(job):
    """The store has the calls that agents use, and the extended ones."""
    one, two = (node.store for node in group(job))
    one.multi_set(["a", "b"], ["1", "2"])
    one.append("a", "23")
    return [[value.decode() for value in two.multi_get(["a", "b"])], two.check(["a", "b"]),
            two.check(["a", "missing"]), two.compare_set("c", "", "x").decode(),
            one.compare_set("c", "y", "z").decode(), one.delete_key("c"), one.delete_key("c")]


@check(BACKEND == "muster")
def store_of_ours(job):
    """A muster.Store becomes a store of torch with the same keys and the same timeout."""
    seen = []
    for url in (f"tcp://{ENDPOINT}", f"tcp://{ENDPOINT}?prefix={job}", "hash:"):
        ours = muster.Store(url, timeout=60)
        theirs = muster.torch.store(ours)
        theirs.set(f"{job} k", "v")
        seen.append([ours.get(f"{job} k").decode(), isinstance(theirs, dist.Store),
                     theirs.timeout.total_seconds() if HAS_INFO else 60])
    return seen


@check()
def store_times_out(job):
    store = group(job)[0].store
    store.set_timeout(timedelta(seconds=0.3))
    return [raised(store.get, "never"), raised(store.wait, ["never"], timedelta(seconds=0.3)),
            isinstance(store, dist.Store)]


@check()
def store_makes_process_groups(job):
    nodes = group(job, 3)
    sums = [None] * 3

    def reduce(node):
        gloo = dist.ProcessGroupGloo(dist.PrefixStore("pg", node.store), node.rank, node.world,
                                     timedelta(seconds=PATIENCE_S))
        tensor = torch.tensor([float(node.rank + 1)])
        gloo.allreduce([tensor]).wait()
        sums[node.rank] = tensor.item()

    threads = [threading.Thread(target=reduce, args=(node,), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return sums


@check()
def store_is_of_the_round(job):
    nodes = group(job)
    nodes[0].store.set("key", "old")
    meet(*nodes)
    value = nodes[1].store.compare_set("key", "", "new").decode()
    return [value, nodes[0].store.get("key").decode()]


@check(BACKEND == "muster")
def server_restarts(job):
    """Before the first round and between two: each round has a store that works."""
    server = muster.Server()
    port = server.port
    nodes = [Node(job, endpoint=f"127.0.0.1:{port}") for _ in range(2)]
    seen = []
    for _ in range(2):
        server.close()
        server = muster.Server(port=port)
        for name in ("first", "second"):
            meet(*nodes)
            nodes[0].store.set(name, b"v")
            seen.append(nodes[1].store.get(name).decode())
    for node in nodes:
        node.handler.shutdown()
    server.close()
    return seen


@check()
def member_comes_back(job):
    """One of two nodes enters the next round; the other is told, and follows."""
    one, two = group(job)
    one.begin()
    until(lambda: two.handler.num_nodes_waiting() > 0, "the other to be told")
    two.begin()
    return [one.end(), two.end(), sorted([one.rank, two.rank]),
            until(lambda: one.handler.num_nodes_waiting() == 0, "nobody to wait"),
            until(lambda: two.handler.num_nodes_waiting() == 0, "nobody to wait")]


@check()
def newcomer(job):
    nodes = meet(*[Node(job, 2, 3, last_call_timeout=5) for _ in range(2)])
    late = Node(job, 2, 3, last_call_timeout=5).begin()
    for node in nodes:
        until(lambda: node.handler.num_nodes_waiting() == 1, "the newcomer to be seen")
    meet(*nodes)
    return [late.end(), sorted(node.rank for node in (*nodes, late)), late.world,
            [node.world for node in nodes]]


@check(HAS_SPARES)
def spare(job):
    """A node beyond the maximum waits, the members are not told, and at the close it ends as not
    needed."""
    nodes = group(job)
    extra = Node(job, join_timeout=1).begin()
    time.sleep(3)
    seen = [[node.handler.num_nodes_waiting() for node in nodes], extra.outcome]
    nodes[0].handler.set_closed()
    return [seen, extra.end()]


@check()
def closed(job):
    one, two = group(job)
    one.handler.set_closed()
    one.handler.set_closed()
    return [one.handler.is_closed(), until(two.handler.is_closed, "the other to be told"),
            one.begin().end(), two.begin().end(), Node(job).begin().end()]


@check()
def closed_while_waiting(job):
    waiting, other = Node(job).begin(), Node(job)
    time.sleep(1)
    other.handler.set_closed()
    return [waiting.end(), other.handler.is_closed()]


@check()
def shut_down(job):
    one, two = group(job)
    return [one.handler.shutdown(), one.handler.shutdown(), one.handler.is_closed(),
            one.handler.num_nodes_waiting(), one.begin().end(),
            until(two.handler.is_closed, "the other to be told"), two.handler.shutdown()]


@check()
def shut_down_before_a_round(job):
    one, two = Node(job), Node(job)
    return [one.handler.shutdown(), until(two.handler.is_closed, "the other to be told"),
            two.begin().end()]


@check()
def nobody_has_been_there(job):
    handler = Node(job).handler
    return [handler.is_closed(), handler.num_nodes_waiting()]


@check()
def alone_for_too_long(job):
    began = time.monotonic()
    outcome = Node(job, join_timeout=3).begin().end()
    return [outcome, 2.9 < time.monotonic() - began < 30]


@check()
def round_after_a_timeout(job):
    one = Node(job, join_timeout=5)
    late = one.begin().end()
    two = Node(job).begin()
    return [late, one.begin().end(), two.end()]


@check()
def last_call(job):
    """A round with the minimum of nodes is complete when the last call is over."""
    began = time.monotonic()
    nodes = meet(*[Node(job, 2, 4, last_call_timeout=2) for _ in range(2)])
    return [[node.world for node in nodes], 1.9 < time.monotonic() - began < 20]


@check()
def events(job):
    nodes = group(job)
    nodes[0].handler.set_closed()
    mine = [event for event in RECORDER.events if event["run_id"] == job]
    return [sorted(event["rank"] for event in mine if "has joined" in event["message"]),
            "SUCCEEDED" in {event["node_state"] for event in mine}]


@check()
def torch_keys(job):
    return [raised(Node, f"{job} {key}", **{key: value}) for key, value in TORCH_KEYS.items()]


@check()
def wrong_settings(job):
    return [raised(Node, job, join_timeout="soon"), raised(Node, job, join_timeout=0),
            raised(Node, job, last_call_timeout=-1), raised(Node, job, close_timeout=0),
            raised(Node, ""), raised(Node, job, store_type="hash"), raised(Node, job, 0, 1),
            raised(Node, job, 3, 2), raised(Node, job, join_timeout=None)]


@check(IS_OURS)
def wrong_names(job):
    """Of expected nodes."""
    return raised(Node, job, expect="node[1")


@check(IS_OURS)
def unknown_key(job):
    """The error suggests a similar key."""
    try:
        Node(job, keep_alive_intervall=5)
    except ValueError as error:
        return "'keep_alive_interval'" in str(error)
    return False


@check(IS_OURS)
def member_leaves(job):
    """The others are told until they come back, and meet without the node that left. There is no
    last call if the handler knows that no other node will come."""
    last_call_s = PATIENCE_S if HAS_AUTHORITY else 1
    nodes = [Node(job, 2, 3, last_call_timeout=last_call_s) for _ in range(3)]
    meet(*nodes)
    nodes.pop().handler._rendezvous.close()
    for node in nodes:
        until(lambda: node.handler.num_nodes_waiting() > 0, "the loss to be told")
    still = [node.handler.num_nodes_waiting() for node in nodes]
    meet(*nodes)
    return [still, [node.world for node in nodes],
            [node.handler.num_nodes_waiting() for node in nodes]]


@check(HAS_AUTHORITY)
def refused_node_ends_nothing(job):
    """The shutdown of a refused node closes nothing. torch calls it after any result of a node."""
    nodes = group(job)
    stranger = Node(job, 1, 7)
    outcome = stranger.begin().end()
    return [outcome, stranger.handler.shutdown(), Node(job).handler.is_closed(),
            [node.handler.num_nodes_waiting() for node in nodes]]


@check(IS_OURS)
def late_node_ends_nothing(job):
    meet(Node(job, 2, 3), Node(job, 2, 3))
    late = Node(job, 2, 3, join_timeout=1)
    outcome = late.begin().end()
    return [outcome, late.handler.shutdown(), Node(job, 2, 3).handler.is_closed()]


class Stopped(Exception):
    pass


def signal_while_waiting(job):
    """A signal handler that raises ends the call. Signal handlers run in the main thread."""
    def stop(number, frame):
        raise Stopped

    signal.signal(signal.SIGALRM, stop)
    node, began = Node(job), time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    node.run()
    took = time.monotonic() - began
    if IS_OURS and took > 1.5:
        raise AssertionError(f"the signal was heard after {took - 1} s")
    if IS_OURS:
        ours = node.handler._rendezvous  # its name stays in the record for a moment

        def is_there():
            shown = muster.status(ENDPOINT, job, backend=ours.backend)
            return ours.node in str([shown["participants"], shown["waiting"]])

        until(lambda: not is_there(), "the node to withdraw")
    return [node.outcome, took < PATIENCE_S / 2]


def reports_while_waiting(job):
    """A wait logs warnings, which torchrun shows. Runs in the main thread."""
    lines = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("torch.distributed.elastic.rendezvous.muster")
    logger.addHandler(handler)
    node = Node(job, join_timeout=4, expect="absent[1-2];gone")
    node.run()
    logger.removeHandler(handler)
    about = [line for line in lines if "has waited 2 s" in line and job in line]
    text = "".join(about)
    return [node.outcome, len(about), "1 more needed" in text or not HAS_AUTHORITY,
            "missing: absent1, absent2, gone" in text]


def forked_child(job):
    """A forked child cannot use the handler, and its exit does not make the parent leave."""
    nodes = group(job)
    child = os.fork()
    if child == 0:
        told = {raised(nodes[0].handler.num_nodes_waiting), raised(nodes[0].handler.is_closed)}
        os._exit(0 if told == {"RendezvousError"} else 1)
    status = os.waitpid(child, 0)[1]
    time.sleep(1)
    return [status, [node.handler.num_nodes_waiting() for node in nodes]]


def many_rounds(job):
    """Rounds cost neither descriptors, nor threads, nor memory."""
    def used():
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        return len(os.listdir("/proc/self/fd")), threading.active_count(), pages * 4096

    nodes = group(job)
    for _ in range(50):
        meet(*nodes)
    before = used()
    for _ in range(ROUNDS):
        meet(*nodes)
    fds, threads, memory = (after - then for after, then in zip(used(), before))
    if fds > 0 or threads > 0 or memory > MEMORY_MAX:
        raise AssertionError(f"{fds} descriptors, {threads} threads, {memory} bytes more")
    return True


def run(function, results):
    job = function.__name__
    try:
        seen, detail = function(f"{BACKEND}-{job}"), ""
    except Exception:
        seen, detail = None, traceback.format_exc()
    results[job] = {"seen": seen, "detail": detail}


def main():
    muster.torch.register()
    results = {}
    if BACKEND == "muster":
        run(many_rounds, results)  # first, because it measures the process
    event_handlers._log_handlers["dynamic_rendezvous"] = RECORDER
    # All at once, because they mostly wait.
    threads = [threading.Thread(target=run, args=(function, results), daemon=True)
               for function in CHECKS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run(signal_while_waiting, results)
    if IS_OURS:
        run(reports_while_waiting, results)
        run(forked_child, results)
    for name, result in results.items():
        print(json.dumps({"name": name, **result}))
    print(json.dumps({"end": True}), flush=True)


if __name__ == "__main__":
    main()
