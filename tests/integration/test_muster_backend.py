"""Backend `muster`: real nodes as processes, with a server that decides for all of them."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
import unittest

import harness
from test_http import Page, needs_http
from test_join import (ABSENT, CHANGED, CLOSED, CONNECT, OK, SPARE, TIMEOUT, USAGE, Node,
                       is_running)

FAILED, EXPELLED = 1, 12

# Heartbeats so seldom that what is noticed soon is not noticed by silence.
SELDOM = "keep_alive_interval=60,last_call_timeout=100ms,join_timeout=30"
# Dead after a second of silence.
QUICK = "keep_alive_interval=250ms,keep_alive_max_attempt=4,last_call_timeout=100ms,join_timeout=30"


def gathering(conf):
    """Nodes started here get into the first round: it is sealed when it is full."""
    return conf.replace("last_call_timeout=100ms", "last_call_timeout=3")


class Case(unittest.TestCase):
    serve = ()

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="muster-backend-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.server = harness.Server(*self.serve)
        self.addCleanup(lambda: self.server.__exit__(None, None, None))
        self.endpoint = f"127.0.0.1:{self.server.port}"

    def restart(self, *args):
        """Another server instead of the killed one."""
        shutil.rmtree(self.server.directory, ignore_errors=True)
        self.server = harness.Server("--port", self.server.port, *args)

    def where(self, run_id="job"):
        return ("--rdzv-endpoint", self.endpoint, "--rdzv-id", run_id)

    def options(self, nodes, conf=SELDOM, run_id="job"):
        return ("--rdzv-backend", "muster", *self.where(run_id), "--nnodes", nodes, "--rdzv-conf",
                conf)

    def start(self, nodes, *args, **options):
        node = Node(*self.options(nodes, **options), *args)
        self.addCleanup(node.close)
        return node

    def named(self, nodes, name, *args, conf=SELDOM, **options):
        return self.start(nodes, *args, conf=f"{conf},node_name={name}", **options)

    def run_join(self, nodes, *args, **options):
        return harness.run("join", *self.options(nodes, **options), *args)

    def close_rendezvous(self, *args):
        return harness.run("close", *self.where(), "--timeout", "5s", *args)

    def status(self):
        result = harness.run("status", *self.where(), "--json")
        self.assertIn(result.returncode, (OK, ABSENT), result.stderr)
        return json.loads(result.stdout)

    def await_standing(self, count, standing):
        """Wait until so many nodes stand so."""

        def look():
            status = self.status()
            members = [member for group in ("participants", "waiting", "spares", "gone")
                       for member in status.get(group, ())]
            found = [member for member in members if member["standing"] == standing]
            return status if len(found) == count else None

        return harness.wait_until(look, f"{count} nodes that are {standing}")

    def expect(self, result, code, *said):
        error = result.stderr.decode()
        self.assertEqual(result.returncode, code, error)
        for text in said:
            self.assertIn(text, error)

    def check_joined(self, lines, round, world):
        """The lines of all members of a round agree."""
        self.assertEqual({line["round"] for line in lines}, {round})
        self.assertEqual({line["world_size"] for line in lines}, {world})
        self.assertEqual(sorted(line["rank"] for line in lines), list(range(world)))
        self.assertEqual(
            len({(line["epoch"], line["master_addr"], line["master_port"]) for line in lines}), 1)

    def silent(self, node, seconds):
        with self.assertRaisesRegex(AssertionError, "no further line"):
            node.next_text(timeout=seconds)

    def undisturbed(self, node, seconds):
        """Nothing is told but that the server was away, and for so long nothing at all."""
        said = []
        with self.assertRaisesRegex(AssertionError, "no further line"):
            while True:
                said.append(json.loads(node.next_text(timeout=seconds))["event"])
        self.assertIn(said, ([], ["unreachable", "reachable"]))


def connections(port):
    """How many connections there are to a port of this machine, seen from their clients."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return sum(row[3] == "01" and int(row[2].split(":")[1], 16) == port for row in rows)


class Meeting(Case):
    def test_four_meet(self):
        nodes = [self.start("4", "--hold", "0") for _ in range(4)]
        lines = [node.next("joined") for node in nodes]
        self.check_joined(lines, 1, 4)
        # Where rank 0 is was said in the answer, and is in the store of the round as well.
        prefix = f"muster.job.{lines[0]['epoch']}.1"
        for key, value in (("MASTER_ADDR", lines[0]["master_addr"]),
                           ("MASTER_PORT", str(lines[0]["master_port"]))):
            found = harness.run("store", "get", self.server.url(), f"{prefix}/{key}")
            self.assertEqual(found.stdout.decode().strip(), value)
        # One for each, and that over which rank 0 wrote into the store of the round.
        self.assertEqual(connections(self.server.port), 5)
        for node in nodes:
            node.signal(signal.SIGTERM)
        self.assertEqual([node.wait() for node in nodes], [OK] * 4)

    def test_default_backend(self):
        result = harness.run("join", *self.where(), "--nnodes", "1")
        self.expect(result, OK)
        line = json.loads(result.stdout)
        self.assertEqual(
            list(line), ["event", "round", "rank", "world_size", "master_addr", "master_port",
                         "epoch", "node"])
        self.assertEqual((line["round"], line["rank"], line["world_size"]), (1, 0, 1))
        self.assertEqual(line["master_addr"], "127.0.0.1")
        self.assertIn(line["master_port"], range(1, 65536))
        self.assertRegex(line["node"], r"^.+_\d+_\d+$")

    def test_many_jobs(self):
        nodes = {run_id: [self.start("5", run_id=run_id) for _ in range(5)]
                 for run_id in ("one", "two", "three")}
        for group in nodes.values():
            self.check_joined([node.next("joined") for node in group], 1, 5)
            self.assertEqual({node.wait() for node in group}, {OK})

    def test_host(self):
        # There is no server. The node that may serve comes first, last, or wins the race.
        for conf in (("is_host=true", "is_host=false", "is_host=false"),
                     ("is_host=false", "is_host=false", "is_host=true"), ("", "", "")):
            with self.subTest(conf=conf):
                endpoint = f"127.0.0.1:{harness.free_port()}"
                nodes = []
                for given in conf:
                    nodes.append(Node("--rdzv-endpoint", endpoint, "--rdzv-id", "job", "--nnodes",
                                      "3", "--rdzv-conf", f"join_timeout=30,{given}".strip(",")))
                    self.addCleanup(nodes[-1].close)
                self.check_joined([node.next("joined") for node in nodes], 1, 3)
                self.assertEqual([node.wait() for node in nodes], [OK] * 3)

    def test_host_goes_last(self):
        # The node that serves has closed it: the others are told before it goes.
        endpoint = f"127.0.0.1:{harness.free_port()}"
        where = ("--rdzv-endpoint", endpoint, "--rdzv-id", "job", "--nnodes", "2")
        host = Node(*where, "--rdzv-conf", "is_host=true", "--hold", "300ms", "--close")
        self.addCleanup(host.close)
        other = Node(*where, "--rdzv-conf", "is_host=false", "--hold", "0")
        self.addCleanup(other.close)
        self.check_joined([node.next("joined") for node in (host, other)], 1, 2)
        self.assertEqual(other.until("closed"),
                         {"event": "closed", "reason": "a node has closed it"})
        self.assertEqual((other.wait(), host.wait()), (CLOSED, OK))

    def test_ranks_by_label(self):
        conf = SELDOM + ",rank_by=rack;host"
        labels = ("rack=r10;host=a", "rack=r2;host=b", "rack=r10;host=b", "rack=r2;host=a")
        nodes = [self.start("4", "--hold", "0", conf=f"{conf},labels={text}") for text in labels]
        lines = [node.next("joined") for node in nodes]
        self.check_joined(lines, 1, 4)
        self.assertEqual([line["rank"] for line in lines], [2, 1, 3, 0])

    def test_pinned_ranks(self):
        nodes = [self.named("3", name, "--hold", "0", conf=f"{SELDOM},rank={rank}")
                 for name, rank in (("a", 2), ("b", 0), ("c", 1))]
        self.assertEqual([node.next("joined")["rank"] for node in nodes], [2, 0, 1])

    def test_names_in_natural_order(self):
        nodes = [self.named("3", name, "--hold", "0") for name in ("node10", "node2", "node1")]
        self.assertEqual([node.next("joined")["rank"] for node in nodes], [2, 1, 0])

    def test_stores_undisturbed(self):
        # Clients of the store in every dialect on the same port, while nodes come and go.
        wires = {dialect: self.server.connect(dialect) for dialect in "ABC"}
        waiter = self.server.connect("C")
        waiter.send(harness.request("C", "wait", ["/later"]))
        for count in range(3):
            nodes = [self.start("3", "--hold", "0", run_id=f"job{count}") for _ in range(3)]
            for dialect, wire in wires.items():
                wire.send(harness.request(dialect, "set", f"/{dialect}", f"{count}"))
                wire.send(harness.request(dialect, "get", f"/{dialect}"))
                self.assertEqual(wire.receive(9), harness.field(f"{count}"))
            self.check_joined([node.next("joined") for node in nodes], 1, 3)
            nodes[0].signal(signal.SIGKILL)
            nodes[1].until("lost")
        wires["C"].send(harness.request("C", "set", "/later", "1"))
        self.assertEqual(waiter.receive(1), b"\0")


class Changes(Case):
    def test_killed(self):
        nodes = [self.start("2:4", "--hold", "0", "--rejoin", conf=gathering(SELDOM))
                 for _ in range(4)]
        lines = [node.next("joined") for node in nodes]
        self.check_joined(lines, 1, 4)
        killed = time.monotonic()
        nodes[1].signal(signal.SIGKILL)
        rest = [nodes[0], nodes[2], nodes[3]]
        for node in rest:
            self.assertEqual(node.next("lost"), {
                "event": "lost", "round": 1, "nodes": [lines[1]["node"]], "total": 1})
            # Its connection was closed; a second later it has not come back.
            self.assertGreater(node.at - killed, 0.9)
            self.assertLess(node.at - killed, 3 * harness.SLOWNESS)
        again = [node.until("joined") for node in rest]
        self.check_joined(again, 2, 3)

    def test_ranks_stay(self):
        nodes = {name: self.named("2:4", name, "--hold", "0", "--rejoin", conf=gathering(SELDOM))
                 for name in "abcd"}
        before = {name: node.next("joined")["rank"] for name, node in nodes.items()}
        last = next(name for name, rank in before.items() if rank == 3)
        first = next(name for name, rank in before.items() if rank == 1)
        nodes[first].signal(signal.SIGKILL)
        after = {name: node.until("joined")["rank"] for name, node in nodes.items()
                 if name != first}
        for name, rank in after.items():
            self.assertEqual(rank, 1 if name == last else before[name])

    def test_spare(self):
        nodes = [self.start("3", "--hold", "0", "--rejoin") for _ in range(3)]
        self.check_joined([node.next("joined") for node in nodes], 1, 3)
        spare = self.start("3", "--hold", "0", conf=SELDOM + ",join_timeout=500ms")
        self.assertEqual(spare.next("spare")["round"], 1)
        self.silent(nodes[0], 1)  # no member is asked to make room, and no spare is late
        nodes[0].signal(signal.SIGKILL)
        nodes[1].next("lost")
        told = nodes[1].at
        self.check_joined([node.until("joined") for node in (*nodes[1:], spare)], 2, 3)
        self.assertLess(spare.at - told, 1 * harness.SLOWNESS)

    def test_late(self):
        nodes = [self.start("2:4", "--hold", "0", "--rejoin") for _ in range(2)]
        self.check_joined([node.next("joined") for node in nodes], 1, 2)
        late = self.start("2:4", "--hold", "0", "--rejoin")
        self.assertEqual(late.next("queued")["round"], 1)
        lines = [nodes[0].until("joined"), nodes[1].until("joined"), late.next("joined")]
        self.check_joined(lines, 2, 3)
        self.assertTrue(any('"waiting"' in text for node in nodes for text in node.texts))

    def test_leaving_is_not_closing(self):
        nodes = [self.named("2", name, "--hold", "0") for name in "ab"]
        self.check_joined([node.next("joined") for node in nodes], 1, 2)
        nodes[0].signal(signal.SIGTERM)
        self.assertEqual(nodes[0].wait(), OK)
        left = time.monotonic()
        self.assertEqual(nodes[1].next("lost")["nodes"], ["a"])
        self.assertLess(nodes[1].at - left, 0.9 * harness.SLOWNESS)  # at once: it has said so
        self.assertEqual(nodes[1].next("reopened")["round"], 1)
        self.assertFalse(self.status()["closed"])
        nodes[1].signal(signal.SIGTERM)
        self.assertEqual(nodes[1].wait(), OK)
        again = json.loads(self.run_join("1").stdout)  # no other node is left to disagree
        self.assertEqual((again["round"], again["world_size"]), (2, 1))

    def test_stopped(self):
        # Silence, with the connection still there.
        nodes = [self.start("1:2", "--hold", "0", "--rejoin", conf=gathering(QUICK))
                 for _ in range(2)]
        lines = [node.next("joined") for node in nodes]
        self.check_joined(lines, 1, 2)
        stopped = time.monotonic()
        nodes[1].signal(signal.SIGSTOP)
        self.assertEqual(nodes[0].until("lost")["nodes"], [lines[1]["node"]])
        self.assertGreater(nodes[0].at - stopped, 0.7)
        self.assertLess(nodes[0].at - stopped, 3 * harness.SLOWNESS)
        alone = nodes[0].until("joined")
        self.assertEqual(alone["world_size"], 1)
        nodes[1].signal(signal.SIGCONT)
        nodes[1].until("expelled")
        both = [node.until("joined") for node in nodes]
        self.assertGreater(both[0]["round"], alone["round"])

    def test_twins(self):
        # Two processes with one name: the later one is the node. The other one tries again, once.
        first = self.named("1", "twin", "--hold", "0", "--rejoin")
        self.assertEqual(first.next("joined")["round"], 1)
        second = self.named("1", "twin", "--hold", "0", "--rejoin")
        self.assertEqual(second.next("joined")["round"], 2)
        first.next("expelled")
        self.assertEqual(first.wait(), EXPELLED)
        self.assertIn("replaced by a newer process of node 'twin'", first.stderr)
        self.silent(second, 0.5)

    def test_twins_that_wait(self):
        first = self.named("2", "twin", "--hold", "0")
        self.await_standing(1, "gathered")
        second = self.named("2", "twin", "--hold", "0")
        self.assertEqual(first.wait(), EXPELLED)
        self.assertIn("replaced by a newer process of node 'twin'", first.stderr)
        other = self.named("2", "other", "--hold", "0")
        self.check_joined([second.next("joined"), other.next("joined")], 1, 2)

    def test_ghost(self):
        # A node that starts again with its name takes the place of what is left of it.
        ghost = self.named("2", "a", "--hold", "0")
        other = self.named("2", "b", "--hold", "0", "--rejoin")
        before = ghost.next("joined")
        other.next("joined")
        ghost.signal(signal.SIGSTOP)
        again = self.named("2", "a", "--hold", "0")
        self.assertEqual(other.next("lost")["nodes"], ["a"])
        lines = [other.until("joined"), again.next("joined")]
        self.check_joined(lines, 2, 2)
        self.assertEqual(lines[1]["rank"], before["rank"])
        ghost.signal(signal.SIGCONT)
        ghost.next("expelled")
        self.assertEqual(ghost.wait(), EXPELLED)

    def test_command(self):
        script = ('echo "$RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $MUSTER_ROUND '
                  '$TORCHELASTIC_USE_AGENT_STORE $TORCHELASTIC_RESTART_COUNT"; '
                  f'until test -e {self.directory}/go$RANK; do sleep 0.02; done; '
                  'test $RANK = 0 && exit 0; exit 41')
        nodes = [self.named("2", name, "--local-addr", name, "--", "sh", "-c", script)
                 for name in ("a", "b")]
        for rank, node in enumerate(nodes):
            line = node.next("joined")
            self.assertEqual(node.next_text().split(),
                             [str(rank), "2", "a", str(line["master_port"]), "1", "False", "1"])
        # The first one does its part: it is gone, and the other one goes on.
        with open(os.path.join(self.directory, "go0"), "wb"):
            pass
        self.assertEqual(nodes[0].wait(), OK)
        status = self.status()
        self.assertEqual((status["phase"], status["finished"]), ("running", 1))
        with open(os.path.join(self.directory, "go1"), "wb"):
            pass
        self.assertEqual(nodes[1].wait(), 41)

    def test_failed_command(self):
        script = "test $RANK = 0 && exit 3; exec sleep 600"
        nodes = [self.named("2", name, "--", "sh", "-c", script) for name in ("a", "b")]
        for node in nodes:
            node.next("joined")
        self.assertEqual(nodes[0].wait(), 3)
        failed = nodes[1].next("failed")
        self.assertEqual((failed["node"], failed["rank"], failed["exit_status"]), ("a", 0, 3))
        self.assertEqual(nodes[1].wait(), CHANGED)

    def test_killed_command_without_a_budget(self):
        # The job ends for all, of the same cause.
        script = "test $RANK = 0 && kill -KILL $$; exec sleep 2"
        conf = gathering(SELDOM) + ",max_restarts=0"
        nodes = [self.named("2", name, "--", "sh", "-c", script, conf=conf) for name in ("a", "b")]
        for node in nodes:
            node.next("joined")
        self.assertEqual(nodes[0].wait(), 128 + signal.SIGKILL)
        failed = nodes[1].next("failed")
        self.assertEqual((failed["node"], failed["rank"], failed["signal"]), ("a", 0, 9))
        self.assertIn("signal 9", nodes[1].next("closed")["reason"])

    def test_port_of_the_workers(self):
        # What rank 0 was told can be bound by its workers.
        script = ("import os, socket; s = socket.socket(); "
                  "s.bind(('127.0.0.1', int(os.environ['MASTER_PORT'])))")
        self.expect(self.run_join("1", "--", "python3", "-c", script), OK)


class Restart(Case):
    def test_within_the_grace(self):
        # Members go on in their round, and the numbering continues.
        nodes = [self.named("2:3", name, "--hold", "0", "--rejoin", conf=gathering(SELDOM))
                 for name in "abc"]
        lines = [node.until("joined") for node in nodes]
        self.check_joined(lines, 1, 3)
        before = self.status()
        self.server.kill()
        self.restart()
        status = self.await_standing(3, "member")
        self.assertEqual((status["phase"], status["round"], status["epoch"]),
                         ("running", 1, before["epoch"]))
        self.assertEqual({member["node"]: member["rank"] for member in status["participants"]},
                         {member["node"]: member["rank"] for member in before["participants"]})
        for node in nodes:
            self.undisturbed(node, 0.5)
        nodes[2].signal(signal.SIGKILL)
        again = [node.until("joined") for node in nodes[:2]]
        self.check_joined(again, 2, 2)
        self.assertGreater(again[0]["epoch"], lines[0]["epoch"])

    def test_beyond_the_grace(self):
        nodes = [self.named("2:3", name, "--hold", "0", "--rejoin", conf=gathering(QUICK))
                 for name in "abc"]
        lines = [node.until("joined") for node in nodes]
        self.check_joined(lines, 1, 3)
        nodes[1].signal(signal.SIGSTOP)
        self.server.kill()
        self.restart("--job-reclaim", "300ms")
        rest = [nodes[0], nodes[2]]
        again = [node.until("joined") for node in rest]
        self.check_joined(again, 2, 2)
        for node in rest:
            told = [json.loads(text) for text in node.texts if '"lost"' in text]
            self.assertEqual(told[0]["total"], 1)
        # The round is over for the node that was away.
        nodes[1].signal(signal.SIGCONT)
        nodes[1].until("expelled")
        three = [node.until("joined") for node in nodes]
        self.check_joined(three, 3, 3)

    def test_while_waiting(self):
        nodes = [self.start("3", "--hold", "0") for _ in range(2)]
        self.await_standing(2, "gathered")
        self.server.kill()
        self.restart()
        self.await_standing(2, "gathered")
        nodes.append(self.start("3", "--hold", "0"))
        self.check_joined([node.next("joined") for node in nodes], 1, 3)

    def test_server_goes(self):
        # It does not come back: all nodes report it by name, and end.
        nodes = [self.start("2", "--hold", "0", conf=SELDOM + ",read_timeout=1") for _ in range(2)]
        for node in nodes:
            node.next("joined")
        self.server.kill()
        for node in nodes:
            self.assertIn(self.endpoint, node.next("unreachable")["error"])
            self.assertEqual(node.wait(), CONNECT)
            self.assertIn(self.endpoint, node.stderr)

    def test_server_hangs(self):
        # It is there and says nothing: noticed, and nothing is lost when it goes on.
        node = self.start("1", "--hold", "0", conf=QUICK)
        node.next("joined")
        self.server.signal(signal.SIGSTOP)
        try:
            node.next("unreachable")
        finally:
            self.server.signal(signal.SIGCONT)
        node.next("reachable")
        self.assertEqual(self.await_standing(1, "member")["round"], 1)

    def test_server_pauses(self):
        # Stopped for less than the expiry, but for longer than that lacks the last heartbeat: what
        # its nodes have said meanwhile is in its sockets, and counts.
        conf = QUICK.replace("250ms", "500ms")
        nodes = [self.start("8", "--hold", "0", conf=gathering(conf)) for _ in range(8)]
        for node in nodes:
            node.next("joined")
        for _ in range(2):
            self.server.signal(signal.SIGSTOP)
            time.sleep(1.9)
            self.server.signal(signal.SIGCONT)
            for node in nodes:
                self.undisturbed(node, 0.2)
        self.assertEqual(self.await_standing(8, "member")["round"], 1)

    def test_command_survives(self):
        node = self.start("1", "--", "sh", "-c",
                          f"until test -e {self.directory}/go; do sleep 0.02; done; exit 7")
        node.next("joined")
        self.server.kill()
        node.next("unreachable")
        self.restart()
        node.next("reachable")
        with open(os.path.join(self.directory, "go"), "wb"):
            pass
        self.assertEqual(node.wait(), 7)


class Ends(Case):
    def test_close_with_reason(self):
        nodes = [self.start("2", "--hold", "0") for _ in range(2)]
        for node in nodes:
            node.next("joined")
        spare = self.start("2", "--hold", "0")
        spare.next("spare")
        self.expect(self.close_rendezvous("--reason", "the budget is spent"), OK)
        for node in nodes:
            self.assertEqual(node.next("closed")["reason"], "the budget is spent")
            self.assertEqual(node.wait(), CLOSED)
        self.assertIn("the budget is spent", spare.next("closed")["error"])
        self.assertEqual(spare.wait(), SPARE)
        self.assertIn("the budget is spent", spare.stderr)
        # The first reason stays.
        self.expect(self.close_rendezvous("--reason", "another one"), OK)
        self.expect(self.run_join("2"), CLOSED, "the budget is spent", "muster close")
        status = self.status()
        self.assertEqual((status["closed"], status["reason"]), (True, "the budget is spent"))
        self.assertIn("muster close", status["closed_by"])
        self.assertIn("the budget is spent", status["summary"])

    def test_another_job_of_a_closed_id(self):
        node = self.start("1", "--hold", "0")
        before = node.next("joined")
        self.expect(self.close_rendezvous("--reason", "enough"), OK)
        self.assertEqual(node.wait(), CLOSED)
        self.expect(self.run_join("1"), CLOSED, "enough", "--new begins another, or wait 10m")
        first, second = (self.start("2", "--new", "--hold", "0") for _ in range(2))
        joined = first.next("joined"), second.next("joined")
        self.assertEqual([line["round"] for line in joined], [1, 1])
        self.assertGreater(joined[0]["epoch"], before["epoch"])
        # While the old one has nodes, the new one waits for them.
        self.expect(self.close_rendezvous(), OK)
        for node in (first, second):
            self.assertEqual(node.wait(), CLOSED)
        held = self.start("1", "--new", "--", "sleep", "60")
        held.next("joined")
        self.expect(self.close_rendezvous(), OK)
        held.next("closed")
        events = os.path.join(self.directory, "events")
        late = self.start("1", "--new", "--hold", "0", "--events", events)

        def waits():
            with contextlib.suppress(FileNotFoundError), open(events, encoding="utf-8") as file:
                return "and 1 of its nodes is still here" in file.read()
            return False

        harness.wait_until(waits, "a node that waits")
        held.signal(signal.SIGTERM)
        self.assertEqual(late.next("joined")["round"], 1)
        result = harness.run("join", "--rdzv-backend", "c10d", "--rdzv-id", "j", "--nnodes", "1",
                             "--new")
        self.assertEqual(result.returncode, USAGE, result.stderr)

    def test_close_while_joining(self):
        node = self.start("2")
        self.await_standing(1, "gathered")
        self.expect(self.close_rendezvous(), OK)
        self.assertEqual(node.wait(), CLOSED)

    def test_close_option(self):
        self.expect(self.run_join("1", "--close"), OK)
        status = self.status()
        self.assertTrue(status["closed"])
        self.assertEqual(status["participants"], [])

    def test_close_nothing(self):
        self.expect(harness.run("close", *self.where("misspelt")), ABSENT,
                    "no rendezvous 'misspelt'")
        self.assertEqual(harness.run("status", *self.where("misspelt")).returncode, ABSENT)

    def test_reason_without_a_place(self):
        self.expect(self.close_rendezvous("--rdzv-backend", "c10d", "--reason", "x"), USAGE,
                    "--reason", "c10d")

    def test_timeout_names_what_is_missing(self):
        result = self.run_join("3", conf="join_timeout=300ms,node_name=a")
        self.expect(result, TIMEOUT, "300 ms", "2 more needed for the minimum of 3")
        self.assertEqual(self.status()["waiting"], [])  # it has taken itself out
        nodes = [self.named("2", name, "--hold", "0") for name in "ab"]
        for node in nodes:
            node.next("joined")
        nodes[0].signal(signal.SIGKILL)
        nodes[1].next("lost")
        result = self.run_join("2", conf="last_call_timeout=100ms,join_timeout=300ms,node_name=c")
        self.expect(result, TIMEOUT, "not back yet: b", "a (lost)")

    def test_signal_while_joining(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            node = self.start("2")
            self.await_standing(1, "gathered")
            node.signal(number)
            self.assertEqual(node.wait(), 128 + number)
            self.assertEqual(self.status()["waiting"], [])

    def test_conflicting_settings(self):
        self.named("2:4", "first")
        self.await_standing(1, "gathered")
        for nodes, conf, said in (
            ("3:5", SELDOM, ("3 to 5", "2 to 4", "'first'")),
            ("2:4", SELDOM.replace("100ms", "200ms"), ("200 ms", "100 ms")),
            ("2:4", SELDOM + ",rank_by=rack", ("'rack'", "''")),
        ):
            with self.subTest(nodes=nodes, conf=conf):
                self.expect(self.run_join(nodes, conf=conf), USAGE, *said)

    def test_no_server(self):
        with socket.socket() as bound:  # and nobody listens
            bound.bind(("127.0.0.1", 0))
            endpoint = f"127.0.0.1:{bound.getsockname()[1]}"
            result = harness.run(
                "join", "--rdzv-endpoint", endpoint, "--rdzv-id", "job", "--nnodes", "1",
                "--rdzv-conf", "is_host=false,join_timeout=500ms")
        self.expect(result, CONNECT, endpoint)

    def test_other_server(self):
        # A server with the protocol of stores and without jobs, like torch's.
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()

            def answer():
                peer, _ = listener.accept()
                with peer:
                    peer.recv(100)
                    peer.sendall(b"\1\1")  # neither key is there
                    peer.recv(100)

            thread = threading.Thread(target=answer, daemon=True)
            thread.start()
            endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
            result = harness.run(
                "join", "--rdzv-endpoint", endpoint, "--rdzv-id", "job", "--nnodes", "1",
                "--rdzv-conf", "is_host=false,join_timeout=10")
            thread.join()
        self.expect(result, FAILED, endpoint, "backend c10d")

    def test_usage(self):
        for conf, said in (
            ("join_timeot=3", "join_timeout"),
            ("node_nam=x", "node_name"),
            ("labels=rack", "labels"),
            ("labels==x", "labels"),
            ("rank_by=;", "rank_by"),
            ("rank=1", "rank"),
            ("rank=first", "rank"),
            ("node_name=a b", "node_name"),
            (f"node_name={'x' * 256}", "node_name"),
            (f"labels={';'.join(f'k{i}=v' for i in range(17))}", "labels"),
            ("keep_alive_interval=0", "keep_alive_interval"),
            ("store_type=file", "store_type"),
        ):
            with self.subTest(conf=conf):
                self.expect(self.run_join("1", conf=conf), USAGE, said)

    def test_status(self):
        nodes = [self.named("2:3", name, "--hold", "0", "--rejoin", conf=gathering(SELDOM))
                 for name in ("n10", "n2", "n1")]
        for node in nodes:
            node.until("joined")
        self.await_standing(3, "member")
        table = harness.run("status", *self.where()).stdout.decode()
        self.assertRegex(table.splitlines()[0],
                         r"^rendezvous job: round \d+ of epoch \d+, running, 2 to 3 nodes$")
        names = re.findall(r"^member +(\d) +(n\d+)", table, re.MULTILINE)
        self.assertEqual(names, [("0", "n1"), ("1", "n2"), ("2", "n10")])
        self.assertIn("runs with 3 nodes", table)
        ages = [member["heartbeat_age_ms"] for member in self.status()["participants"]]
        self.assertLess(max(ages), 20000)

    def test_status_watch(self):
        process = harness.subprocess.Popen(
            [harness.MUSTER, "status", *self.where(), "--json", "--watch", "--interval", "10ms"],
            stdin=harness.subprocess.DEVNULL, stdout=harness.subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertFalse(json.loads(process.stdout.readline())["exists"])
        node = self.start("1", "--hold", "0")
        node.next("joined")
        while not json.loads(process.stdout.readline())["complete"]:
            pass
        self.expect(self.close_rendezvous(), OK)
        while not json.loads(process.stdout.readline())["closed"]:
            pass

    def test_command_dies_with_us(self):
        node = self.start("1", "--", "sh", "-c", "echo $$; exec sleep 600")
        node.next("joined")
        command = int(node.next_text())
        node.signal(signal.SIGKILL)
        harness.wait_until(lambda: not is_running(command), "the end of the command")


class OneJob(Case):
    serve = ("--run-id", "mine")

    def test_wrong_job(self):
        self.expect(self.run_join("1"), USAGE, "'mine'", "'job'")
        self.expect(self.run_join("1", run_id="mine"), OK)


@needs_http
class Metrics(Case):
    serve = ("--http", "127.0.0.1:0")

    def test_counts(self):
        page = Page(self.server)
        for run_id, count in (("one", 2), ("two", 3)):
            nodes = [self.start(str(count), "--hold", "0", run_id=run_id) for _ in range(count)]
            for node in nodes:
                node.next("joined")
        metrics = page.metrics()
        self.assertEqual((metrics["muster_rendezvous"], metrics["muster_nodes"]), (2, 5))

    def test_connections_of_a_node(self):
        """From joining to leaving: one, and another one if it uses the store of its rounds."""
        page = Page(self.server)
        nodes = [self.start("3", "--", "true") for _ in range(3)]
        self.assertEqual([node.wait() for node in nodes], [OK] * 3)
        metrics = page.metrics()
        # Rank 0 says where it is. What the others say of their work needs no store.
        self.assertEqual(metrics['muster_ops_total{op="multi_set"}'], 1)
        self.assertEqual(metrics["muster_connections_accepted_total"], 4)
        # Closing needs no other one when it is done by a node.
        nodes = [self.start("2", "--hold", "0", "--close", run_id="other") for _ in range(2)]
        for node in nodes:
            node.next("joined")
        nodes[0].signal(signal.SIGTERM)
        for node in nodes:
            node.wait()
        self.assertEqual(page.metrics()["muster_connections_accepted_total"], 7)


class ShortGrace(Case):
    serve = ("--job-grace", "0", "--job-expiry", "100ms")

    def test_lost_at_once(self):
        nodes = [self.start("2", "--hold", "0") for _ in range(2)]
        for node in nodes:
            node.next("joined")
        killed = time.monotonic()
        nodes[0].signal(signal.SIGKILL)
        nodes[1].next("lost")
        self.assertLess(nodes[1].at - killed, 0.9 * harness.SLOWNESS)

    def test_forgotten(self):
        self.expect(self.run_join("1"), OK)
        harness.wait_until(lambda: not self.status()["exists"], "the job to be forgotten")
        self.server.wait_log("job.forgotten")

    def forget(self):
        harness.wait_until(lambda: not self.status()["exists"], "the job to be forgotten")

    def test_keys_of_a_forgotten_job_go(self):
        with self.server.connect("C") as wire:
            wire.set("/muster.job", "a key of somebody else")
            script = f"until test -e {self.directory}/go; do sleep 0.02; done"
            nodes = [self.named("2", name, "--", "sh", "-c", script) for name in ("a", "b")]
            for node in nodes:
                node.next("joined")
            harness.wait_until(lambda: wire.num_keys() > 1, "the keys of the round")
            with open(os.path.join(self.directory, "go"), "wb"):
                pass
            for node in nodes:
                self.assertEqual(node.wait(), OK)
            self.forget()
            harness.wait_until(lambda: wire.num_keys() == 1, "only the key of somebody else")

    def test_run_id_used_again(self):
        # Both of the first job have succeeded. That says nothing about nodes of the same names in
        # the next job of this run id.
        nodes = [self.named("2", name, "--", "true") for name in ("a", "b")]
        for node in nodes:
            self.assertEqual(node.wait(), OK)
        self.forget()
        nodes = [self.named("2", name, "--", "sleep", "600") for name in ("a", "b")]
        for node in nodes:
            self.assertEqual(node.next("joined")["round"], 1)
        nodes[0].signal(signal.SIGKILL)
        self.assertEqual(nodes[1].next("lost")["nodes"], ["a"])
        self.assertEqual(nodes[1].wait(), CHANGED)


if __name__ == "__main__":
    harness.main()
