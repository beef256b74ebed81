"""One suite for all engines of a rendezvous, with nodes as processes.

ENGINES lists the engines and their features. A case that needs a missing feature is skipped. The
cases of an engine run in a pool of threads, because they mostly wait; a test waits for the outcome
of its case.
"""

import concurrent.futures
import itertools
import json
import pathlib
import re
import signal
import sys
import tempfile
import time
import unittest

import etcd_cluster
import harness
from nodes import CLOSED, PATIENCE_S, SPARE, JoinNode, check_rounds, settle

OK, USAGE, ABSENT, CONNECT = 0, 2, 3, 5

# Cases of an engine that run at once.
WORKERS = 6

# Time on top of that of the options, on a busy machine.
SLACK_S = harness.DEADLINE_S / 4

# Silence after which a node is lost. It is longer in a slow build, where a living node may get no
# processor for seconds.
EXPIRY_S = max(2, round(2 * harness.SLOWNESS))

# Rare heartbeats: a loss that is noticed soon is not noticed by silence.
SELDOM = {"keep_alive_interval": 30, "keep_alive_max_attempt": 3}

# Why an engine lacks a feature.
LACKS = {
    "authority": "its nodes change a record, which has neither limits nor names for ranks",
    "survivor": "what decides goes with the node that hosts it",
}

# notice_s: a death is noticed within so many seconds.
ENGINES = {
    "muster": {"backend": "muster", "features": {"authority", "survivor"}, "notice_s": EXPIRY_S},
    "muster_hosted": {"backend": "muster", "features": {"authority"}, "notice_s": EXPIRY_S},
    "etcd_v3": {"backend": "etcd-v3", "features": {"authority", "survivor"},
                "notice_s": EXPIRY_S + 1},
    "c10d": {"backend": "c10d", "features": {"survivor"}, "notice_s": EXPIRY_S + 1},
    "etcd_v2": {"backend": "etcd-v2", "features": {"survivor"}, "notice_s": EXPIRY_S + 1},
}

_numbers = itertools.count()


class Job:
    """The nodes of one rendezvous."""

    def __init__(self, engine, limits, endpoint=None, **conf):
        self.engine = engine
        self.limits = limits
        self.run_id = f"engines-{next(_numbers)}"
        self.conf = {"keep_alive_interval": 1, "keep_alive_max_attempt": EXPIRY_S,
                     "last_call_timeout": "500ms", "join_timeout": PATIENCE_S, **conf}
        self.held = None
        self.endpoint = endpoint or engine.endpoint
        self.is_guest = endpoint is not None
        if self.endpoint is None:  # the first node serves
            self.held = etcd_cluster.hold_port()
            self.endpoint = "127.0.0.1:{}".format(self.held.getsockname()[1])
        self.nodes = []

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        problems = []
        for node in reversed(self.nodes):  # the first node may serve the others
            try:
                node.process.send_signal(signal.SIGCONT)
                node.stop()
            except Exception as error:  # the other nodes must be stopped, too
                problems.append(error)
        if self.held is not None:
            self.held.close()
        if kind is None and problems:
            raise problems[0]
        if kind is None:
            check_rounds(self.nodes)

    def where(self):
        return ["--rdzv-backend", self.engine.backend, "--rdzv-endpoint", self.endpoint,
                "--rdzv-id", self.run_id]

    def options(self, conf):
        host = {}
        if self.engine.is_hosted:
            is_host = not self.nodes and not self.is_guest
            host = {"is_host": "true" if is_host else "false"}
        text = ",".join(f"{key}={value}" for key, value in {**self.conf, **host, **conf}.items())
        return [*self.where(), "--rdzv-conf", text]

    def start(self, *words, limits=None, addr="127.0.0.1", **conf):
        """Start a node that stays and rejoins, unless `words` are given."""
        words = words or ("--hold", "0", "--rejoin")
        node = JoinNode(self.options(conf), ["--nnodes", limits or self.limits, "--local-addr",
                                             addr, *words])
        self.nodes.append(node)
        node.join()
        return node

    def meet(self, count, *words, **conf):
        """Start `count` nodes; returns them and the number of their first round."""
        nodes = [self.start(*words, **conf) for _ in range(count)]
        return nodes, settle(nodes)

    def join(self, *words, limits=None, **conf):
        """Run a node that does not stay to its end."""
        return harness.run("join", *self.options(conf), "--nnodes", limits or self.limits, *words,
                           timeout=PATIENCE_S)

    def close_rendezvous(self):
        done = harness.run("close", *self.where(), "--timeout", "10s")
        if done.returncode != OK:
            raise AssertionError(f"muster close ended with {done.returncode}: {done.stderr}")

    def status(self):
        done = harness.run("status", *self.where(), "--nnodes", self.limits, "--json")
        if done.returncode == CONNECT and self.engine.is_hosted:
            return None  # the serving node has not started yet
        if done.returncode not in (OK, ABSENT):
            raise AssertionError(f"muster status ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def await_status(self, condition, what):
        def look():
            status = self.status()
            return status if status is not None and condition(status) else None

        return harness.wait_until(look, what)


def told(node, kind):
    """Wait for the first event of that kind; returns it and the time of its arrival."""
    event = node.wait(kind)
    return event, event["at"]


# --- cases: each gets an engine, and a TestCase to assert with -------------------------------


def dense_ranks(engine, case):
    """Nodes meet in one round, with ranks without gaps."""
    with engine.job("6:6") as job:
        nodes, _ = job.meet(6)
        for node in nodes:
            case.assertEqual(len(node.of("joined")), 1, node.story())


def last_call(engine, case):
    """A round with nodes_min nodes waits for more, for the time of the last call."""
    call_s = max(3, round(3 * harness.SLOWNESS))  # enough for the third node to start
    with engine.job("2:4", last_call_timeout=call_s) as job:
        began = time.monotonic()
        nodes, _ = job.meet(3, "--hold", "0")
        took = max(node.last_joined()["at"] for node in nodes) - began
        case.assertGreater(took, call_s - 0.1)
        case.assertLess(took, call_s + SLACK_S)


def max_at_once(engine, case):
    """A round with nodes_max nodes is sealed at once."""
    with engine.job("1:3", last_call_timeout=50) as job:
        began = time.monotonic()
        nodes, _ = job.meet(3)
        took = max(node.last_joined()["at"] for node in nodes) - began
        case.assertLess(took, SLACK_S)


def killed(engine, case):
    """All others are told the name of a dead node in time, and continue without it."""
    with engine.job("2:4") as job:
        nodes, first = job.meet(4)
        # The oldest node, which may be the authority, but not one that hosts the server.
        victim = nodes[1 if engine.is_hosted else 0]
        rest = [node for node in nodes if node is not victim]
        began = time.monotonic()
        victim.kill()
        for node in rest:
            event, at = told(node, "lost")
            case.assertEqual((event["nodes"], event["total"]), ([victim.name], 1))
            case.assertLess(at - began, engine.notice_s + SLACK_S)
        settle(rest, after=first)
        case.assertFalse(job.status()["closed"])


def leaving(engine, case):
    """All others know at once that a node has left, and the rendezvous stays open."""
    with engine.job("2:4", **SELDOM) as job:
        nodes, first = job.meet(4)
        began = time.monotonic()
        nodes[2].process.terminate()
        case.assertEqual(nodes[2].ended(), OK, nodes[2].story())
        rest = [nodes[0], nodes[1], nodes[3]]
        for node in rest:
            event, at = told(node, "lost")
            case.assertEqual(event["nodes"], [nodes[2].name])
            case.assertLess(at - began, SLACK_S)
        second = settle(rest, after=first)
        case.assertFalse(job.status()["closed"])
        settle([*rest, job.start()], after=second)


def late_waits(engine, case):
    """A late node waits as long as the members do not come back."""
    with engine.job("2:4", **SELDOM) as job:
        nodes, first = job.meet(2, "--hold", "0", last_call_timeout="500ms")
        late = job.start("--hold", "0")
        for node in nodes:
            case.assertGreaterEqual(told(node, "waiting")[0]["nodes"], 1)
        status = job.await_status(lambda status: status["waiting"], "somebody who waits")
        case.assertEqual(len(status["waiting"]), 1)
        case.assertEqual(late.of("joined"), [])
        case.assertEqual({node.last_joined()["round"] for node in nodes}, {first})
        if "survivor" in engine.features:
            # When the members leave, the waiting nodes get a round.
            other = job.start("--hold", "0")
            for node in nodes:
                node.process.terminate()
                node.ended()
            case.assertGreater(settle([late, other]), first)


def late_is_let_in(engine, case):
    with engine.job("2:4", **SELDOM) as job:
        nodes, first = job.meet(2)
        late = job.start()
        settle([*nodes, late], after=first)
        case.assertTrue(all(node.of("waiting") or node.of("reopened") for node in nodes))


def spare(engine, case):
    """A spare disturbs no node, and takes the place of a dead one without a last call."""
    # A node that gets no processor for a while must not be expelled.
    with engine.job("3:3", last_call_timeout=50, keep_alive_max_attempt=8) as job:
        nodes, first = job.meet(3)
        extra = job.start()
        status = job.await_status(lambda status: status["spares"], "a spare")
        case.assertEqual(len(status["spares"]), 1)
        for node in nodes:
            case.assertEqual([event["event"] for event in node.events], ["joined"])
        nodes[1].kill()
        rest = [nodes[0], nodes[2], extra]
        lost_at = max(told(node, "lost")[1] for node in (nodes[0], nodes[2]))
        settle(rest, after=first)
        case.assertLess(max(node.last_joined()["at"] for node in rest) - lost_at, SLACK_S)


def closed(engine, case):
    """After a close, all nodes end and later nodes are refused, with the right exit codes."""
    with engine.job("2:2", **SELDOM) as job:
        nodes, _ = job.meet(2)
        extra = job.start()
        job.await_status(lambda status: status["spares"], "a spare")
        job.close_rendezvous()
        for node in nodes[::-1]:
            node.wait("closed")
            case.assertEqual(node.ended(), CLOSED, node.story())
        case.assertEqual(extra.ended(), SPARE, extra.story())
        if "survivor" in engine.features:
            case.assertTrue(job.status()["closed"])
            again = job.join()
            case.assertEqual(again.returncode, CLOSED, again.stderr)
            case.assertEqual(again.stdout.decode().count("joined"), 0)


def closed_while_joining(engine, case):
    with engine.job("3:3", **SELDOM) as job:
        nodes = [job.start() for _ in range(2)]
        job.await_status(lambda status: len(status["participants"]) + len(status["waiting"]) == 2,
                         "two nodes that wait")
        job.close_rendezvous()
        for node in nodes[::-1]:
            case.assertEqual(node.ended(), CLOSED, node.story())
            case.assertEqual(node.of("joined"), [])


def conflicting_limits(engine, case):
    """A node with other limits is refused; the message has its limits and those of the job."""
    with engine.job("2:4") as job:
        job.start(node_name="first")
        job.await_status(lambda status: status["waiting"] or status["participants"], "a node")
        for limits, wanted in (("3:4", "3 to 4"), ("2:5", "2 to 5")):
            done = job.join(limits=limits)
            case.assertEqual(done.returncode, USAGE, done.stderr)
            case.assertIn(wanted, done.stderr.decode())
            case.assertIn("2 to 4", done.stderr.decode())
        # The others are not disturbed.
        nodes = [job.nodes[0], job.start()]
        settle(nodes)


def run_ids(engine, case):
    """Two jobs at one endpoint do not disturb each other."""
    with engine.job("2:2", **SELDOM) as one:
        with Job(engine, "2:2", endpoint=one.endpoint, **SELDOM) as two:
            nodes = [one.start()]
            others = [two.start() for _ in range(2)]
            nodes.append(one.start())
            settle(nodes)
            settle(others)
            two.close_rendezvous()
            for node in others:
                case.assertEqual(node.ended(), CLOSED, node.story())
            case.assertFalse(one.status()["closed"])
            for node in nodes:
                case.assertEqual([event["event"] for event in node.events], ["joined"])


def status_says(engine, case):
    """The status of an open and of a running round, with a sentence."""
    with engine.job("2:3", last_call_timeout=1, **SELDOM) as job:
        first = job.start()
        status = job.await_status(lambda status: status["waiting"] or status["participants"],
                                  "a node")
        case.assertRegex(status["summary"], r"\b1 more\b.*\b(min|minimum)\b.*\b2\b")
        case.assertFalse(status["complete"])
        case.assertEqual((status["phase"], status["needed"], status["nodes_min"]), ("open", 1, 2))
        nodes = [first, job.start()]
        number = settle(nodes)
        status = job.await_status(lambda status: status["complete"], "a complete round")
        case.assertEqual(status["round"], number)
        case.assertRegex(status["summary"], r"\brun(s|ning)\b.*\b2 nodes\b")
        case.assertEqual({node["node"] for node in status["participants"]},
                         {node.name for node in nodes})
        case.assertEqual([node["rank"] for node in status["participants"]], [0, 1])
        case.assertEqual({node["standing"] for node in status["participants"]}, {"member"})
        case.assertEqual((status["phase"], status["needed"], status["world_size"]),
                         ("running", 0, 2))
        text = harness.run("status", *job.where(), "--nnodes", job.limits).stdout.decode()
        case.assertIn(status["summary"], re.sub(r"\s+", " ", text))


def bootstrap(engine, case):
    """All nodes get the address that rank 0 has given, and one port."""
    with engine.job("3:3") as job:
        nodes = {f"127.0.0.{i + 1}": job.start(addr=f"127.0.0.{i + 1}") for i in range(3)}
        settle(list(nodes.values()))
        lines = {addr: node.last_joined() for addr, node in nodes.items()}
        first = next(addr for addr, line in lines.items() if line["rank"] == 0)
        case.assertEqual({line["master_addr"] for line in lines.values()}, {first})
        case.assertEqual(len({line["master_port"] for line in lines.values()}), 1)
        case.assertIn(lines[first]["master_port"], range(1, 65536))


def finished(engine, case):
    """A finished node is not lost; when all have finished, a spare ends with success."""
    with engine.job("3:3", **SELDOM) as job, tempfile.TemporaryDirectory() as directory:
        script = f"until test -e {directory}/$RANK; do sleep 0.02; done"
        nodes = [job.start("--", "sh", "-c", script) for _ in range(3)]
        settle(nodes)
        spare_node = job.start()
        job.await_status(lambda status: status["waiting"] or status["spares"], "a spare")
        for node in reversed(nodes):  # the first node may serve the others
            pathlib.Path(directory, str(node.last_joined()["rank"])).touch()
            case.assertEqual(node.ended(), OK, node.story())
            # A serving node stays to the end of the job, and gets the event.
            events = [event["event"] for event in node.events]
            case.assertIn(events, [["joined"], ["joined", "closed"]][:2 if node is nodes[0] else 1])
        case.assertEqual(spare_node.ended(), OK, spare_node.story())
        case.assertEqual(spare_node.of("joined"), [])


def stopped(engine, case):
    """A stopped node is lost; when it continues, it is told that it is expelled, and rejoins."""
    with engine.job("1:3") as job:
        nodes, first = job.meet(3)
        harness.pause(nodes[2].process.pid)
        began = time.monotonic()
        for node in nodes[:2]:
            event, at = told(node, "lost")
            case.assertEqual(event["nodes"], [nodes[2].name])
            case.assertLess(at - began, engine.notice_s + SLACK_S)
        second = settle(nodes[:2], after=first)
        nodes[2].process.send_signal(signal.SIGCONT)
        nodes[2].wait("expelled")
        settle(nodes, after=second)


def paused_shortly(engine, case):
    """A node that is stopped for less than its expiry is not lost."""
    with engine.job("2:2", keep_alive_interval=2, keep_alive_max_attempt=10) as job:
        nodes, _ = job.meet(2)
        harness.pause(nodes[1].process.pid)
        until = time.monotonic() + 3  # longer than the time between its heartbeats
        harness.wait_until(lambda: time.monotonic() > until, "three seconds to pass")
        nodes[1].process.send_signal(signal.SIGCONT)
        case.assertEqual(len(job.status()["participants"]), 2)
        for node in nodes:
            case.assertEqual([event["event"] for event in node.events
                              if "reachable" not in event["event"]], ["joined"])


def sticky_ranks(engine, case):
    """Nodes keep their ranks, except ranks beyond the new world size, which fill the gaps."""
    with engine.job("2:5") as job:
        nodes = {name: job.start(node_name=name) for name in ("a", "b", "c", "d", "e")}
        first = settle(list(nodes.values()))
        before = {name: node.last_joined()["rank"] for name, node in nodes.items()}
        # Not the first node, which may serve the others.
        victim = next(name for name, rank in before.items()
                      if name != "a" and rank not in (4, before["a"]))
        nodes.pop(victim).kill()
        settle(list(nodes.values()), after=first)
        for name, node in nodes.items():
            wanted = before[victim] if before[name] == 4 else before[name]
            case.assertEqual(node.last_joined()["rank"], wanted, f"{name} of {before}")


def pinned_ranks(engine, case):
    with engine.job("4:4") as job:
        nodes = {"a": job.start(node_name="a", rank=3), "b": job.start(node_name="b"),
                 "c": job.start(node_name="c", rank=0), "d": job.start(node_name="d", rank=2)}
        settle(list(nodes.values()))
        case.assertEqual({name: node.last_joined()["rank"] for name, node in nodes.items()},
                         {"a": 3, "b": 1, "c": 0, "d": 2})


def ranks_by_label(engine, case):
    """Nodes with equal labels get neighbouring ranks; names are in natural order."""
    places = (("n10", "rack=r10;host=a"), ("n9", "rack=r2;host=b"), ("n1", "rack=r10;host=b"),
              ("n2", "rack=r2;host=a"), ("n8", "rack=r2;host=b"))
    with engine.job("5:5", rank_by="rack;host") as job:
        nodes = [job.start(node_name=name, labels=labels) for name, labels in places]
        settle(nodes)
        case.assertEqual([node.last_joined()["rank"] for node in nodes], [3, 2, 4, 0, 1])


def returning(engine, case):
    """A new process of a node replaces the old one at once, and gets its rank."""
    with engine.job("3:3", **SELDOM) as job:
        nodes = [job.start(node_name=name) for name in ("a", "b", "c")]
        first = settle(nodes)
        before = nodes[1].last_joined()["rank"]
        harness.pause(nodes[1].process.pid)
        began = time.monotonic()
        again = job.start(node_name="b")
        settle([nodes[0], again, nodes[2]], after=first)
        case.assertLess(again.last_joined()["at"] - began, SLACK_S)
        case.assertEqual(again.last_joined()["rank"], before)
        nodes[1].kill()


# The cases with the features that they need.
CASES = (
    (dense_ranks, None), (last_call, None), (max_at_once, None), (killed, None), (leaving, None),
    (late_waits, None), (late_is_let_in, None), (spare, None), (closed, None),
    (closed_while_joining, None), (conflicting_limits, "authority"), (run_ids, None),
    (status_says, None), (bootstrap, None), (finished, None), (stopped, None),
    (paused_shortly, None), (sticky_ranks, "authority"), (pinned_ranks, "authority"),
    (ranks_by_label, "authority"), (returning, "authority"),
)


# --- one TestCase for each engine ------------------------------------------------------------


class Engine(unittest.TestCase):
    """The cases of one engine. make_engines makes the subclasses."""

    is_hosted = False
    endpoint = None

    @classmethod
    def job(cls, limits, **conf):
        return Job(cls, limits, **conf)

    @classmethod
    def setUpClass(cls):
        started = cls.start_decider()
        cls.pool = concurrent.futures.ThreadPoolExecutor(WORKERS)
        # Cleanups run in reverse order: first the running cases end.
        cls.addClassCleanup(started)
        cls.addClassCleanup(cls.pool.shutdown, cancel_futures=True)
        wanted = [word for word in sys.argv[1:] if not word.startswith("-")]
        cls.outcomes = {}
        for function, feature in CASES:
            name = f"{cls.__name__}.test_{function.__name__}"
            if feature in (None, *cls.features) and (
                    not wanted or name in wanted or cls.__name__ in wanted):
                cls.outcomes[function] = cls.pool.submit(function, cls, unittest.TestCase())

    @classmethod
    def start_decider(cls):
        """Start the server or the etcd of the engine; returns a function that stops it."""
        if cls.is_hosted:
            return lambda: None
        if cls.backend in ("muster", "c10d"):
            server = harness.Server()
            cls.endpoint = f"127.0.0.1:{server.port}"
            return lambda: server.__exit__(None, None, None)
        etcd = etcd_cluster.Etcd(enable_v2=cls.backend == "etcd-v2")
        cls.endpoint = etcd.endpoint
        return etcd.stop


def make_test(function, feature):
    def test(self):
        if feature not in (None, *self.features):
            self.skipTest(f"not with {self.backend}: {LACKS[feature]}")
        self.outcomes[function].result()

    test.__doc__ = function.__doc__
    return test


def make_engines():
    for name, engine in ENGINES.items():
        body = {**engine, "is_hosted": name.endswith("_hosted"), "__module__": __name__}
        for function, feature in CASES:
            body[f"test_{function.__name__}"] = make_test(function, feature)
        yield name, type(name, (Engine,), body)


globals().update(make_engines())
del Engine  # has no tests of its own


if __name__ == "__main__":
    harness.main()
