"""Shared by the tests of mixed groups: nodes of torch and of muster as processes, scenarios, those
that every store has, and their runner.

Torch's nodes behave as torchrun's agents do: they re-enter when num_nodes_waiting is not 0. Ours
run with --rejoin. A test file ends with `mixed.main(__doc__, all_scenarios)`.
"""

import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import peer
from peer import harness
from nodes import (  # noqa: F401
    CLOSED, PATIENCE_S, SPARE, JoinNode, Node, check_rounds, settle)

KINDS = ("torch", "muster")
OTHER = {"torch": "muster", "muster": "torch"}
FOUR = ("torch", "muster", "torch", "muster")

KEEP_ALIVE = (1, 3)
# Longer than torch needs to look at the record twice, so that all survivors are in one round.
LAST_CALL_S = 3

# The scenarios sleep most of the time, so several run at once.
JOBS = 6

_numbers = itertools.count()


def default_options(backend):
    """The default options of both kinds of nodes, by backend."""
    if backend == "static":
        return {}
    if backend == "etcd":
        return {"last_call_timeout": LAST_CALL_S, "timeout": PATIENCE_S}
    return {"last_call_timeout": LAST_CALL_S, "join_timeout": PATIENCE_S}


def sharing(is_on):
    """Whether workers use a store of rank 0's agent; both kinds obey this."""
    return {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0" if is_on else "1"}


class Zygote:
    """torch_node.py of one version; started once, forks the nodes."""

    started = {}
    lock = threading.Lock()

    @classmethod
    def of(cls, which, share=False):
        with cls.lock:
            key = which, share
            if key not in cls.started:
                cls.started[key] = cls(which, share)
            return cls.started[key]

    def __init__(self, which, share):
        self.directory = tempfile.mkdtemp(prefix="muster-test-")
        self.path = os.path.join(self.directory, "nodes")
        self.log = open(os.path.join(self.directory, "stderr"), "w+b")
        self.process = subprocess.Popen(
            [harness.torch_python(which), os.path.join(peer.HERE, "torch_node.py"), self.path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            env={**os.environ, **peer.QUIET, **sharing(share)})
        self.version = self.process.stdout.readline().decode().strip()
        if not self.version:
            raise AssertionError(f"torch's nodes did not start: {self.stderr()}")

    def stderr(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-3000:]

    @classmethod
    def stop_all(cls):
        for zygote in cls.started.values():
            zygote.process.stdin.close()
            try:
                zygote.process.wait(30)
            except subprocess.TimeoutExpired:
                zygote.process.kill()
                zygote.process.wait()
            zygote.process.stdout.close()
            zygote.log.close()
            shutil.rmtree(zygote.directory, ignore_errors=True)
        cls.started.clear()


class TorchNode(Node):
    kind = "torch"

    def __init__(self, scenario, backend="c10d", keep_alive=KEEP_ALIVE, **options):
        super().__init__()
        self.zygote = Zygote.of(scenario.which, scenario.share)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(self.zygote.path)
        self.input = self.socket.makefile("r", encoding="utf-8")
        self.pid = json.loads(self.input.readline())["pid"]
        self.answers = queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        options = {"read_timeout": PATIENCE_S, **default_options(backend), **options}
        made = self.call("create", backend=backend, endpoint=scenario.endpoint,
                         run_id=scenario.run_id, min=scenario.min, max=scenario.max,
                         options=options, keep_alive=keep_alive)
        self.name, self.port = made.get("node"), made.get("port")

    def __str__(self):
        return f"torch node {self.pid}"

    def read(self):
        try:
            for line in self.input:
                message = json.loads(line)
                if "event" in message:
                    self.add(message)
                else:
                    self.answers.put(message)
        except (OSError, ValueError):
            pass  # the process was killed
        self.answers.put({"error": "Gone", "text": "the process has ended"})
        self.gone()

    def call(self, name, **arguments):
        self.socket.sendall(json.dumps({"do": name, **arguments}).encode() + b"\n")
        try:
            answer = self.answers.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError(f"{self}: {name} took too long; {self.story()}") from None
        if "error" in answer:
            raise AssertionError(f"{self}: {name}: {answer['error']}: {answer['text']}; "
                                 f"{self.story()}")
        return answer["answer"]

    def join(self):
        self.call("join")

    def close_rendezvous(self):
        self.call("set_closed")

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.reader.join(PATIENCE_S)

    def stop(self):
        if not self.is_gone:
            self.socket.shutdown(socket.SHUT_RDWR)
            self.reader.join(PATIENCE_S)
        self.input.close()
        self.socket.close()

    def stderr(self):
        return f"torch's stderr: {self.zygote.stderr()}"


class MusterNode(JoinNode):
    def __init__(self, scenario, backend="c10d", keep_alive=KEEP_ALIVE,
                 words=("--hold", "0", "--rejoin"), **options):
        options = {**default_options(backend), **options}
        if backend in ("c10d", "etcd-v2"):
            options.setdefault("state_dialect", {"old": "D1", "new": "D4"}[scenario.which])
            if keep_alive is not None:
                interval, attempts = keep_alive
                options.setdefault("keep_alive_interval", interval)
                options.setdefault("keep_alive_max_attempt", attempts)
        known = ["--rdzv-backend", backend, "--rdzv-endpoint", scenario.endpoint,
                 "--rdzv-id", scenario.run_id]
        if options:
            known += ["--rdzv-conf", ",".join(f"{k}={v}" for k, v in options.items())]
        super().__init__(known, ["--nnodes", f"{scenario.min}:{scenario.max}", "--local-addr",
                                 scenario.local_addr, *words], sharing(scenario.share))


CLASSES = {"torch": TorchNode, "muster": MusterNode}


class Scenario:
    """One rendezvous, with the server of its store, and all nodes so far."""

    def __init__(self, which, server, min, max, share=False, mingled=False, last=False):
        self.which, self.server, self.min, self.max = which, server, min, max
        self.share = share
        # Nodes are ranked by address first, and torch's is the name of the machine. So ours come
        # first with a number, and last with a longer name; mingled, process ids decide, which say
        # nothing about who started first once they have begun anew.
        self.local_addr = "127.0.0.1"
        if mingled or last:
            self.local_addr = socket.getfqdn() + (".z" if last else "")
        self.run_id = f"mixed-{os.getpid()}-{next(_numbers)}"
        self.nodes = []
        self.serve = None
        self.endpoint = None

    def __enter__(self):
        harness.torch_python(self.which)
        if self.server == "serve":
            self.serve = harness.Server("--log-level", "debug")
            self.endpoint = f"127.0.0.1:{self.serve.port}"
        return self

    def __exit__(self, kind, value, trace):
        problems = []
        # The host goes last: the others leave in good order, for which they need the store.
        for node in reversed(self.nodes):
            try:
                node.stop()
            except Exception as error:  # all others have to be stopped, too
                problems.append(error)
        if self.serve is not None:
            self.serve.__exit__(kind, value, trace)
        if kind is None and problems:
            raise problems[0]

    def node(self, kind, **options):
        """A node that has not joined yet; the first of the kind that serves the store does so."""
        is_host = self.endpoint is None and kind == self.server
        if is_host:
            self.endpoint = "127.0.0.1:0"
            if kind == "muster":
                # Others must know the port before this node could tell it.
                self.endpoint = f"127.0.0.1:{harness.free_port()}"
        assert self.endpoint is not None, "the host comes first"
        if self.server != "serve" or kind == "torch":
            options["is_host"] = "true" if is_host else "false"
        node = CLASSES[kind](self, **options)
        if is_host and kind == "torch":
            self.endpoint = f"127.0.0.1:{node.port}"
        self.nodes.append(node)
        return node

    def start(self, kinds, **options):
        """Start nodes of these kinds, the host first; in the order of the kinds."""
        order = sorted(range(len(kinds)), key=lambda i: kinds[i] != self.server)
        nodes = [None] * len(kinds)
        for index in order:
            nodes[index] = self.node(kinds[index], **options)
            if kinds[index] == "muster":
                nodes[index].join()  # it serves from now on
        for node in nodes:
            if node.kind == "torch":
                node.join()
        return nodes

    # --- what must hold

    def settle(self, nodes, after=-1):
        """Wait until all nodes report one round later than `after` with themselves as its
        members; returns it."""
        done = settle(nodes, after)
        check_rounds(node for node in self.nodes if node.kind == "muster")
        return done

    def record(self, nodes):
        """The record as a torch node among them has it."""
        return next(node for node in nodes if node.kind == "torch").call("record")

    def joining_count(self, nodes):
        """How many take part in the round that gathers."""
        return len(self.record(nodes)["participants"])

    def check_members(self, nodes, round):
        """The store tells of this round with exactly these members."""
        record = self.record(nodes)
        assert record["complete"] and not record["closed"], record
        assert record["round"] == round, (record, round)
        assert record["participants"] == names(nodes), (record, names(nodes))

    def workers_fail(self, nodes):
        """The consequence of a member's death, unless the others notice it themselves."""


def names(nodes):
    return sorted(node.name for node in nodes)


# --- what happens in scenarios that every store has ------------------------------------------


def death(scenario, first):
    """Four meet; a node of each kind is killed in turn; a late one of each kind is let in. Returns
    a node of ours that has lived through all of it."""
    # The store's host must live on, so it is not the second of its kind.
    nodes = scenario.start(FOUR)
    done = scenario.settle(nodes)
    scenario.check_members(nodes, done)
    for kind in (first, OTHER[first]):
        victim = [node for node in nodes if node.kind == kind][-1]
        victim.kill()
        nodes.remove(victim)
        scenario.workers_fail(nodes)
        done = scenario.settle(nodes, after=done)
        scenario.check_members(nodes, done)
    for kind in (first, OTHER[first]):
        nodes += scenario.start([kind])
        done = scenario.settle(nodes, after=done)
        scenario.check_members(nodes, done)
    elder = next(node for node in nodes if node.kind == "muster")
    assert elder.of("waiting"), elder.story()
    return elder


def late(scenario, kind):
    """A late node is seen by both kinds, which stay as they are until they re-enter."""
    if scenario.server == "torch":
        torch = scenario.node("torch")
    muster = scenario.node("muster", words=("--hold", "0"))
    muster.join()
    if scenario.server != "torch":
        torch = scenario.node("torch")
    torch.call("stay")
    done = scenario.settle([torch, muster])
    (newcomer,) = scenario.start([kind])
    muster.wait("waiting")
    harness.wait_until(lambda: torch.call("waiting") == 1, "torch to see the late node")
    assert newcomer.last_joined() is None
    assert len(torch.of("joined")) == 1 and len(muster.of("joined")) == 1
    scenario.check_members([torch, muster], done)


def all_end(nodes):
    """All hear that it is closed, and end with that."""
    for node in nodes:
        node.wait("closed")
    for node in nodes:
        if node.kind == "muster":
            assert node.ended() == CLOSED, node.story()


def close_members(scenario, closer):
    """The members of a round end when a node of either kind closes it."""
    nodes = scenario.start(FOUR)
    scenario.settle(nodes)
    next(node for node in nodes if node.kind == closer).close_rendezvous()
    # Also where one of ours serves the store: it stays until torch's have looked.
    all_end(nodes)


def close_waiting(scenario, closer):
    """Nodes that still wait for others end, too, and no node can enter afterwards."""
    nodes = scenario.start(FOUR)
    extra = scenario.node(closer)
    harness.wait_until(lambda: scenario.joining_count(nodes) == 4, "all four to have joined",
                       PATIENCE_S)
    extra.close_rendezvous()
    all_end(nodes)
    for node in nodes:
        assert node.of("joined") == [], node.story()
    if scenario.server != "muster":
        for node in scenario.start(["torch", "muster"]):
            node.wait("closed")


def hold(scenario, hold_s, pause_s=0, kinds=FOUR, **options):
    """No node is expelled while nothing happens; checked every pause_s."""
    nodes = scenario.start(kinds, keep_alive=None, **options)
    first = scenario.settle(nodes)
    end = time.monotonic() + hold_s
    while time.monotonic() < end:
        scenario.check_members(nodes, first)
        time.sleep(pause_s)
    for node in nodes:
        assert len(node.of("joined")) == 1, node.story()
        assert node.of("lost", "waiting", "expelled", "closed") == [], node.story()


# --- running ---------------------------------------------------------------------------------


def check(case, scenarios, part, versions):
    """All scenarios of one function: (name, function, arguments), the first of which is a version
    of torch."""
    missing = set()
    for which in versions:
        try:
            harness.torch_python(which)
        except unittest.SkipTest as skip:
            missing.add(which)
            sys.stdout.write(f"SKIP torch {which}: {skip}\n")
    if len(missing) == len(versions):
        case.skipTest("no torch of any version that is asked for")
    chosen = [(name, function, args) for name, function, args in scenarios
              if function is part and args[0] not in missing]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        futures = {name: pool.submit(function, *args) for name, function, args in chosen}
    for name, future in futures.items():
        with case.subTest(name):
            future.result()


def case(all_scenarios, versions):
    """The test case of a file: a test for each function of its scenarios."""
    def test_of(part):
        return lambda self: check(self, all_scenarios(), part, versions)

    tests = {f"test_{function.__name__}": test_of(function)
             for _, function, _ in all_scenarios()}
    return type("Mixed", (unittest.TestCase,), {"__module__": "__main__", **tests})


def repeat(scenarios, count, jobs, wanted):
    """Run the scenarios again and again; False if one has failed."""
    chosen = [(name, function, args) for name, function, args in scenarios
              if not wanted or any(word in name for word in wanted)]
    passed = collections.Counter()
    for turn in range(count):
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            futures = {name: pool.submit(function, *args) for name, function, args in chosen}
        for name, future in futures.items():
            error = future.exception()
            if error is None:
                passed[name] += 1
            else:
                print(f"FAIL {name}, turn {turn + 1}: {type(error).__name__}: {error}", flush=True)
        print(f"turn {turn + 1} of {count}: {time.monotonic() - began:.0f} s", flush=True)
    for name, _, _ in chosen:
        print(f"{passed[name]:4} of {count} {name}")
    failed = sum(count - passed[name] for name, _, _ in chosen)
    print(f"{sum(passed.values())} passed, {failed} failed, 0 skipped")
    return failed == 0


def main(about, all_scenarios):
    """Run the file as its command line says; about is its docstring."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--repeat", type=int, help="run the scenarios so often")
    parser.add_argument("--jobs", type=int, default=JOBS, help="how many at once")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    try:
        if options.repeat is None:
            harness.main()
        elif not repeat(all_scenarios(), options.repeat, options.jobs, options.names):
            sys.exit(1)
    finally:
        Zygote.stop_all()
