"""Groups of torch's real handlers and of `muster join` in one rendezvous, on one store.

    test_mixed.py [--repeat N] [--jobs N] [NAME...]

--repeat runs every scenario, or those whose names contain a NAME, N times in a row and prints how
often each has passed.

A scenario has a version of torch, and somebody who serves the store: `muster serve`, one of the
muster nodes, or one of the torch nodes (then it is torch's own server). Torch's nodes behave as
torchrun's agents do: they re-enter when num_nodes_waiting is not 0. Ours run with --rejoin.

Torch 2.13 runs with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 where one of its nodes may stay rank 0
while a new one of its nodes comes: with sharing its rank 0 tells where the workers meet in its
first round only, and the newcomer waits for that in vain. Keep-alives of torch 1.13 are fixed at
3 times 5 s; all scenarios but `hold` lower that in the settings of the real handler.
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

VERSIONS = ("old", "new")
SERVERS = ("serve", "muster", "torch")
KINDS = ("torch", "muster")
OTHER = {"torch": "muster", "muster": "torch"}

KEEP_ALIVE = (1, 3)
# Longer than torch needs to look at the record twice, so that all survivors are in one round.
LAST_CALL_S = 3
# Expiry, last call and all polling of a re-formation, on a busy machine.
PATIENCE_S = 60

CLOSED = 8  # exit codes of `muster join`
SPARE = 9

_numbers = itertools.count()


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


class Node:
    """What both kinds have in common: events, as they come."""

    def __init__(self):
        self.events = []
        self.changed = threading.Condition()
        self.is_gone = False

    def add(self, event):
        with self.changed:
            self.events.append({"at": time.monotonic(), **event})
            self.changed.notify_all()

    def gone(self):
        with self.changed:
            self.is_gone = True
            self.changed.notify_all()

    def of(self, *kinds):
        with self.changed:
            return [event for event in self.events if event["event"] in kinds]

    def last_joined(self):
        joined = self.of("joined")
        return joined[-1] if joined else None

    def wait(self, *kinds, count=1, timeout=PATIENCE_S):
        """Wait for the count-th event of one of the kinds."""
        end = time.monotonic() + timeout
        with self.changed:
            while True:
                found = [event for event in self.events if event["event"] in kinds]
                if len(found) >= count:
                    return found[count - 1]
                left = end - time.monotonic()
                if left <= 0 or self.is_gone:
                    raise AssertionError(f"{self}: no event {'/'.join(kinds)}; {self.story()}")
                self.changed.wait(left)

    def story(self):
        return f"its events: {self.events}; {self.stderr()}"


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
        options.setdefault("last_call_timeout", LAST_CALL_S)
        options.setdefault("join_timeout", PATIENCE_S)
        options.setdefault("read_timeout", PATIENCE_S)
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


class MusterNode(Node):
    kind = "muster"

    def __init__(self, scenario, backend="c10d", keep_alive=KEEP_ALIVE,
                 words=("--hold", "0", "--rejoin"), **options):
        super().__init__()
        if backend == "c10d":
            options.setdefault("last_call_timeout", LAST_CALL_S)
            options.setdefault("join_timeout", PATIENCE_S)
            options.setdefault("state_dialect", {"old": "D1", "new": "D4"}[scenario.which])
            if keep_alive is not None:
                interval, attempts = keep_alive
                options.setdefault("keep_alive_interval", interval)
                options.setdefault("keep_alive_max_attempt", attempts)
        self.options = ["--rdzv-backend", backend, "--rdzv-endpoint", scenario.endpoint,
                        "--rdzv-id", scenario.run_id]
        if options:
            self.options += ["--rdzv-conf", ",".join(f"{k}={v}" for k, v in options.items())]
        self.command = [harness.MUSTER, "join", *self.options,
                        "--nnodes", f"{scenario.min}:{scenario.max}", "--log-level", "debug"]
        self.command += ["--local-addr", scenario.local_addr, *words]
        self.env = {**os.environ, **sharing(scenario.share)}
        self.log = tempfile.TemporaryFile()
        self.process = None
        self.name = None

    def __str__(self):
        return f"muster node {self.process.pid if self.process else '(not started)'}"

    def join(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.log, env=self.env)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            self.name = event.get("node", self.name)
            self.add(event)
        self.gone()

    def close_rendezvous(self):
        done = subprocess.run([harness.MUSTER, "close", *self.options], timeout=PATIENCE_S,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise AssertionError(f"muster close ended with {done.returncode}: {done.stderr}")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join(PATIENCE_S)
        harness.check_report(self.stderr(), str(self))

    def ended(self):
        """Wait for it to end by itself; its exit code."""
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} does not end; {self.story()}") from None
        self.reader.join(PATIENCE_S)
        return code

    def stop(self):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
        code = self.ended()
        self.process.stdout.close()
        report = self.stderr()
        self.log.close()
        harness.check_report(report, str(self))
        # One that is told to stop leaves in good order; its exit code says whether it was a member.
        stopped = 0 if self.of("joined") else 128 + signal.SIGTERM
        if code not in (stopped, -signal.SIGKILL, CLOSED, SPARE):
            raise AssertionError(f"{self} ended with {code}: {report[-2000:]}")

    def stderr(self):
        if self.log.closed:
            return ""
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-6000:]


class Scenario:
    """One rendezvous: with it: who serves the store, and all nodes there have been."""

    def __init__(self, which, server, min, max, share=False, mingled=False):
        self.which, self.server, self.min, self.max = which, server, min, max
        self.share = share
        # Nodes are ranked by address first, and torch's is the name of the machine. So ours come
        # first with a number; mingled, process ids decide.
        self.local_addr = socket.getfqdn() if mingled else "127.0.0.1"
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
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", 0))
                    self.endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
        assert self.endpoint is not None, "the host comes first"
        if self.server != "serve" or kind == "torch":
            options["is_host"] = "true" if is_host else "false"
        node = {"torch": TorchNode, "muster": MusterNode}[kind](self, **options)
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

        def look():
            joined = [node.last_joined() for node in nodes]
            if any(event is None or event["round"] <= after for event in joined):
                return None
            rounds = {event["round"] for event in joined}
            worlds = {event["world_size"] for event in joined}
            return joined if len(rounds) == 1 and worlds == {len(nodes)} else None

        try:
            joined = harness.wait_until(look, "one round of all", PATIENCE_S)
        except AssertionError:
            stories = "\n".join(f"{node}: {node.story()}" for node in nodes)
            raise AssertionError(f"no round of all {len(nodes)} nodes after {after}:\n{stories}"
                                 ) from None
        ranks = [event["rank"] for event in joined]
        assert sorted(ranks) == list(range(len(nodes))), f"ranks {ranks}"
        masters = {(event["master_addr"], event["master_port"]) for event in joined}
        assert len(masters) == 1, f"the workers would meet at {masters}"
        self.check_rounds()
        return joined[0]["round"]

    def check_rounds(self):
        """Ours agree in every round, also in those that were over soon."""
        rounds = collections.defaultdict(list)
        for node in self.nodes:
            for event in node.of("joined"):
                if node.kind == "muster":
                    rounds[event["round"]].append(event)
        for number, events in rounds.items():
            worlds = {event["world_size"] for event in events}
            ranks = [event["rank"] for event in events]
            assert len(worlds) == 1, f"round {number}: worlds {worlds}"
            assert len(set(ranks)) == len(ranks), f"round {number}: ranks {ranks}"
            assert all(0 <= rank < min(worlds) for rank in ranks), f"round {number}: {events}"

    def record(self, nodes):
        """The record as a torch node among them has it."""
        return next(node for node in nodes if node.kind == "torch").call("record")


def names(nodes):
    return sorted(node.name for node in nodes)


# --- the scenarios ---------------------------------------------------------------------------


def death(which, server, first):
    """Four meet; a node of each kind is killed in turn; a late one of each kind is let in."""
    with Scenario(which, server, 2, 4, mingled=first == "muster") as scenario:
        # The store's host must live on, so it is not the second of its kind.
        nodes = scenario.start(["torch", "muster", "torch", "muster"])
        done = scenario.settle(nodes)
        assert scenario.record(nodes)["participants"] == names(nodes)
        for kind in (first, OTHER[first]):
            victim = [node for node in nodes if node.kind == kind][-1]
            victim.kill()
            nodes.remove(victim)
            done = scenario.settle(nodes, after=done)
            record = scenario.record(nodes)
            assert record["complete"], record
            assert record["participants"] == names(nodes), (record, names(nodes))
        for kind in (first, OTHER[first]):
            (late,) = scenario.start([kind])
            nodes.append(late)
            done = scenario.settle(nodes, after=done)
        # Ours were told of every loss and of every newcomer that they lived through.
        elder = next(node for node in nodes if node.kind == "muster")
        assert elder.of("lost"), elder.story()
        assert elder.of("waiting"), elder.story()


def shared(which, server, leader):
    """The same with a store of rank 0's agent, which torch tells of in its first round only."""
    with Scenario(which, server, 2, 4, share=True, mingled=leader == "torch") as scenario:
        nodes = scenario.start(["torch", "muster", "torch", "muster"])
        if leader == "torch" and server == "muster":
            # The muster node that serves has the lowest process id.
            leader = "muster"
        done = scenario.settle(nodes)
        first = next(node for node in nodes if node.last_joined()["rank"] == 0)
        assert first.kind == leader, first
        for kind in KINDS:
            victim = [node for node in nodes if node.kind == kind][-1]
            victim.kill()
            nodes.remove(victim)
            done = scenario.settle(nodes, after=done)
            assert first.last_joined()["rank"] == 0
        if leader == "muster":
            nodes += scenario.start(["torch"])
            scenario.settle(nodes, after=done)


def late(which, server, kind):
    """A late node is seen by both kinds, which stay as they are until they re-enter."""
    with Scenario(which, server, 2, 4) as scenario:
        if server == "torch":
            torch = scenario.node("torch")
        muster = scenario.node("muster", words=("--hold", "0"))
        muster.join()
        if server != "torch":
            torch = scenario.node("torch")
        torch.call("stay")
        scenario.settle([torch, muster])
        (newcomer,) = scenario.start([kind])
        muster.wait("waiting")
        harness.wait_until(lambda: torch.call("waiting") == 1, "torch to see the late node")
        assert newcomer.last_joined() is None
        assert len(torch.of("joined")) == 1 and len(muster.of("joined")) == 1


def close_members(which, server, closer):
    """The members of a round end when a node of either kind closes it."""
    with Scenario(which, server, 2, 4) as scenario:
        nodes = scenario.start(["torch", "muster", "torch", "muster"])
        scenario.settle(nodes)
        next(node for node in nodes if node.kind == closer).close_rendezvous()
        # Also where one of ours serves the store: it stays until torch's have looked.
        for node in nodes:
            node.wait("closed")
        for node in nodes:
            if node.kind == "muster":
                assert node.ended() == CLOSED, node.story()


def close_waiting(which, server, closer):
    """Nodes that still wait for others end, too, and nobody can enter afterwards."""
    with Scenario(which, server, 5, 5) as scenario:
        nodes = scenario.start(["torch", "muster", "torch", "muster"])
        extra = scenario.node(closer)
        harness.wait_until(
            lambda: len(scenario.record([n for n in scenario.nodes if n.kind == "torch"])
                        ["participants"]) == 4, "all four in the record", PATIENCE_S)
        extra.close_rendezvous()
        for node in nodes:
            node.wait("closed")
            assert node.of("joined") == []
        for node in nodes:
            if node.kind == "muster":
                assert node.ended() == CLOSED, node.story()
        if server != "muster":
            for node in scenario.start(["torch", "muster"]):
                node.wait("closed")


def spare(which, server, kind):
    """One too many waits without disturbing anybody, and is let in when a participant dies."""
    with Scenario(which, server, 3, 4, mingled=kind == "muster") as scenario:
        nodes = scenario.start(["torch", "muster", "torch", "muster"])
        first = scenario.settle(nodes)
        (extra,) = scenario.start([kind])
        if which == "new":
            harness.wait_until(lambda: scenario.record(nodes)["spares"], "the spare", PATIENCE_S)
            record = scenario.record(nodes)
            assert extra.name in (None, *record["spares"]), (extra.name, record)
        record = scenario.record(nodes)
        assert record["waiting"] == [], record
        assert record["round"] == first and record["participants"] == names(nodes), record
        assert all(len(node.of("joined")) == 1 for node in nodes)
        assert extra.last_joined() is None
        victim = [node for node in nodes if node.kind == OTHER[kind]][-1]
        victim.kill()
        nodes.remove(victim)
        scenario.settle([*nodes, extra], after=first)


def spare_closed(which, server, kind):
    """A spare that is not needed until the end ends without a failure."""
    with Scenario(which, server, 2, 2) as scenario:
        nodes = scenario.start(["torch", "muster"])
        scenario.settle(nodes)
        (extra,) = scenario.start([kind])
        harness.wait_until(lambda: scenario.record(nodes)["spares"], "the spare", PATIENCE_S)
        next(node for node in nodes if node.kind == OTHER[kind]).close_rendezvous()
        if kind == "torch":
            extra.wait("graceful")
        else:
            assert extra.ended() == SPARE, extra.story()


def hold(which, server):
    """Half a minute with the default keep-alives, twice their expiry: nobody is expelled."""
    with Scenario(which, server, 4, 4) as scenario:
        nodes = scenario.start(["torch", "muster", "torch", "muster"], keep_alive=None)
        first = scenario.settle(nodes)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            record = scenario.record(nodes)
            assert record["participants"] == names(nodes), record
            assert record["round"] == first and record["complete"], record
        for node in nodes:
            assert len(node.of("joined")) == 1, node.story()
            assert node.of("lost", "waiting", "expelled", "closed") == [], node.story()


def static(which, server):
    """A static group of one each; rank 0 is the one that serves."""
    with Scenario(which, server, 2, 2) as scenario:
        # Its constructor waits for all members, so nobody can tell the port: one that was free.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            scenario.endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
        nodes = {}
        for kind in KINDS:
            rank = 0 if kind == server else 1
            if kind == "torch":
                nodes[kind] = TorchNode(scenario, backend="static", keep_alive=None, rank=rank,
                                        timeout=PATIENCE_S)
            else:
                nodes[kind] = MusterNode(scenario, backend="static", rank=rank,
                                         timeout=PATIENCE_S, words=("--hold", "0"))
            scenario.nodes.append(nodes[kind])
        scenario.nodes.sort(key=lambda node: node.kind != server)
        nodes["muster"].join()
        nodes["torch"].call("stay")
        for kind, node in nodes.items():
            joined = node.wait("joined")
            assert joined["rank"] == (0 if kind == server else 1), joined
            assert joined["world_size"] == 2, joined
            assert f"{joined['master_addr']}:{joined['master_port']}" == scenario.endpoint, joined


def all_scenarios():
    """(name, function): each version, each server, each kind."""
    plain = (death, late, close_members, close_waiting, spare)
    for which, server, kind in itertools.product(VERSIONS, SERVERS, KINDS):
        for function in plain:
            yield f"{function.__name__}-{which}-{server}-{kind}", function, (which, server, kind)
        if which == "new":
            for function in (spare_closed, shared):
                yield (f"{function.__name__}-{which}-{server}-{kind}", function,
                       (which, server, kind))
    for which, server in itertools.product(VERSIONS, SERVERS):
        yield f"hold-{which}-{server}", hold, (which, server)
    for which, server in itertools.product(VERSIONS, KINDS):
        yield f"static-{which}-{server}", static, (which, server)


# --- running ---------------------------------------------------------------------------------

# The scenarios sleep most of the time, so several run at once.
JOBS = 4


class Mixed(unittest.TestCase):
    def check(self, part):
        """All scenarios of one function."""
        missing = set()
        for which in VERSIONS:
            try:
                harness.torch_python(which)
            except unittest.SkipTest as skip:
                missing.add(which)
                sys.stdout.write(f"SKIP torch {which}: {skip}\n")
        if len(missing) == len(VERSIONS):
            self.skipTest("no torch of either version")
        chosen = [(name, function, args) for name, function, args in all_scenarios()
                  if function is part and args[0] not in missing]
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            futures = {name: pool.submit(function, *args) for name, function, args in chosen}
        for name, future in futures.items():
            with self.subTest(name):
                future.result()

    def test_death(self):
        self.check(death)

    def test_late(self):
        self.check(late)

    def test_close_members(self):
        self.check(close_members)

    def test_close_waiting(self):
        self.check(close_waiting)

    def test_spare(self):
        self.check(spare)

    def test_shared(self):
        self.check(shared)

    def test_spare_closed(self):
        self.check(spare_closed)

    def test_hold(self):
        self.check(hold)

    def test_static(self):
        self.check(static)


def repeat(count, jobs, wanted):
    """Run the scenarios again and again; False if one has failed."""
    chosen = [(name, function, args) for name, function, args in all_scenarios()
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, help="run the scenarios so often")
    parser.add_argument("--jobs", type=int, default=JOBS, help="how many at once")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    try:
        if options.repeat is None:
            harness.main()
        elif not repeat(options.repeat, options.jobs, options.names):
            sys.exit(1)
    finally:
        Zygote.stop_all()


if __name__ == "__main__":
    main()
