"""`muster status`: empty, forming, running and closed rendezvous, and records that torch wrote."""

import base64
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import harness
from test_job_frames import Node as FrameNode
from test_job_frames import (CLOSED, FINISH, REFUSED, REOPENED, RESTART, STATUS, WELCOME, receive,
                             receive_sealed, send, text)
from test_join import ABSENT, CONNECT, OK, QUICK, STATE, TIMEOUT, USAGE, Node

VECTORS = os.path.join(harness.ROOT, "tests", "vectors", "pickle-vectors.json")
KEY = "torch.rendezvous.job"


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="muster-status-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.server = harness.Server()
        self.addCleanup(self.server.__exit__, None, None, None)
        self.where = ("--rdzv-backend", "c10d", "--rdzv-endpoint",
                      f"127.0.0.1:{self.server.port}", "--rdzv-id", "job")

    def start(self, nodes, *args, conf=QUICK):
        node = Node(*self.where, "--nnodes", nodes, "--rdzv-conf", conf, *args)
        self.addCleanup(node.close)
        return node

    def status(self, *args, code=OK):
        result = harness.run("status", *self.where, *args)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout.decode()

    def json(self, *args, code=OK):
        text = self.status("--json", *args, code=code)
        self.assertEqual(text.count("\n"), 1)
        return json.loads(text)

    def store(self, value):
        if isinstance(value, str):
            value = value.encode()
        result = harness.run("store", "set", self.server.url(), KEY, "-", input=value)
        self.assertEqual(result.returncode, OK, result.stderr)

    def keys(self):
        return harness.run("store", "num-keys", self.server.url()).stdout


class Record(Case):
    def test_none(self):
        self.assertIn("There is no such rendezvous", self.status(code=ABSENT))
        status = self.json(code=ABSENT)
        self.assertEqual((status["exists"], status["dialect"]), (False, None))
        self.assertEqual(self.keys(), b"0\n")  # looking has made none

    def test_empty(self):
        self.store("Y2FuaW1hZGFt")
        self.assertIn("waiting for the first node", self.status())
        status = self.json("--nnodes", "3:4")
        self.assertEqual((status["exists"], status["dialect"], status["round"]), (True, None, 0))
        self.assertIn("waiting for 3 more nodes (0 of min 3)", status["summary"])

    def test_forming(self):
        self.start("3")
        status = harness.wait_until(
            lambda: self.participants(1), "a participant")
        self.assertFalse(status["complete"])
        self.assertIsNone(status["participants"][0]["rank"])
        self.assertIn("1 is there, fewer than the minimum", status["summary"])
        self.assertIn(
            "waiting for 2 more nodes (1 of min 3).", self.status("--nnodes", "3:4"))

    def participants(self, count):
        result = harness.run("status", *self.where, "--json")
        status = json.loads(result.stdout) if result.returncode == OK else {"participants": []}
        return status if len(status["participants"]) == count else None

    def test_last_call(self):
        conf = "last_call_timeout=60"
        nodes = [self.start("2:4", conf=conf), self.start("2:4", conf=conf)]
        status = harness.wait_until(lambda: self.participants(2), "two participants")
        self.assertGreater(status["last_call_ms"], 30000)
        self.assertLessEqual(status["last_call_ms"], 60000)
        self.assertRegex(status["summary"], r"until the last call ends in \d\d\.\d s\.")
        self.assertIn("up to 2 more nodes (2 of max 4)", self.status("--nnodes", "2:4"))
        for node in nodes:
            node.signal(signal.SIGTERM)

    def test_running(self):
        nodes = [self.start("2", "--hold", "0") for _ in range(2)]
        lines = sorted((node.next("joined") for node in nodes), key=lambda line: line["rank"])
        status = self.json()
        self.assertEqual((status["round"], status["complete"], status["closed"]), (0, True, False))
        self.assertEqual([member["node"] for member in status["participants"]],
                         [line["node"] for line in lines])
        self.assertEqual([member["rank"] for member in status["participants"]], [0, 1])
        for member, line in zip(status["participants"], lines):
            self.assertEqual(line["node"],
                             f"{member['addr']}_{member['pid']}_{member['local_id']}")
            self.assertLess(abs(member["heartbeat_age_ms"]), 10000)
        self.assertEqual((status["waiting"], status["spares"]), ([], []))
        self.assertIn("is running with 2 nodes", status["summary"])
        table = self.status()
        self.assertIn("rendezvous job: round 0, running\n", table)
        for line in lines:
            self.assertRegex(
                table, rf"member +{line['rank']}  {re.escape(line['node'])} +\d+\.\d s ago")

    def test_waiting_and_spares(self):
        node = self.start("1:2", "--hold", "0", conf="last_call_timeout=10ms,join_timeout=30")
        node.next("joined")
        late = self.start("1:2", "--hold", "0")
        node.next("waiting")
        status = self.json()
        self.assertEqual([member["pid"] for member in status["waiting"]], [late.process.pid])
        self.assertIn("1 node is waiting for the 1 participant of round 0 to leave",
                      status["summary"])
        self.assertRegex(self.status(), rf"queued +-  \S+_{late.process.pid}_\d+ ")

    def test_closed(self):
        node = self.start("1", "--hold", "0")
        node.next("joined")
        self.assertEqual(harness.run("close", *self.where).returncode, OK)
        status = self.json()
        self.assertTrue(status["closed"])
        self.assertIn("closed", status["summary"])
        self.assertIn(", closed\n", self.status())

    def test_file(self):
        path = os.path.join(self.directory, "not there: yet?")
        where = ("--rdzv-endpoint", path, "--rdzv-backend", "c10d", "--rdzv-id", "job",
                 "--rdzv-conf", "store_type=file")
        result = harness.run("status", *where)
        self.assertEqual(result.returncode, ABSENT, result.stderr)
        self.assertFalse(os.path.exists(path))
        node = Node(*where, "--nnodes", "1", "--hold", "0")
        self.addCleanup(node.close)
        node.next("joined")
        for endpoint in (path, os.path.relpath(path, self.directory)):
            result = harness.run("status", "--rdzv-endpoint", endpoint, *where[2:], "--json",
                                 cwd=self.directory)
            self.assertEqual(result.returncode, OK, result.stderr)
            self.assertEqual(json.loads(result.stdout)["participants"][0]["pid"], node.process.pid)


class Torch(Case):
    def setUp(self):
        super().setUp()
        with open(VECTORS, encoding="utf-8") as file:
            self.vectors = {vector["id"]: vector for vector in json.load(file)["vectors"]}

    def store_vector(self, name):
        vector = self.vectors[name]
        self.store(base64.b64encode(bytes.fromhex(vector["hex"])))
        return vector["content"]

    def test_all_dialects(self):
        for dialect in ("D1", "D2", "D3", "D4"):
            with self.subTest(dialect=dialect):
                content = self.store_vector(f"{dialect}/complete_three/p4")
                status = self.json()
                self.assertEqual(status["dialect"], dialect)
                self.assertEqual(status["round"], content["round"])
                self.assertTrue(status["complete"])
                self.assertEqual(
                    sorted((member["addr"], member["pid"], member["local_id"], member["rank"])
                           for member in status["participants"]),
                    sorted((*self.node(entry), entry["rank"])
                           for entry in content["participants"]))
                self.assertIn("3 participants have been silent", status["summary"])

    @staticmethod
    def node(entry):
        node = entry["node"] if "node" in entry else entry
        if isinstance(node, dict):
            return node.get("addr", node.get("fqdn")), node["pid"], node["local_id"]
        return tuple(node)

    def test_waiters(self):
        content = self.store_vector("D1/complete_with_waiters/p4")
        status = self.json()
        self.assertEqual(
            sorted((member["addr"], member["pid"], member["local_id"])
                   for member in status["waiting"]),
            sorted(self.node(entry) for entry in content["wait_list"]))

    def test_spares(self):
        content = self.store_vector("D4/redundancy_three/p4")
        status = self.json()
        self.assertEqual(len(status["spares"]), len(content["redundancy_list"]))
        self.assertIn("spares stand by", status["summary"])
        self.assertRegex(self.status(), r"spare +-  ")

    def test_last_call_over(self):
        self.store_vector("D4/two_joining_deadline/p4")
        status = self.json()
        self.assertLess(status["last_call_ms"], 0)
        self.assertIn("to complete it", status["summary"])

    def test_unusual(self):
        # Names from a record are not commands for a terminal.
        self.store_vector("D4/addresses/p4")
        table = self.status().encode()
        self.assertNotRegex(table, rb"[\x00-\x09\x0b-\x1f\x7f]")
        self.json()
        self.store_vector("D4/many_120/p4")
        self.assertEqual(len(self.json()["participants"]), 120)

    def test_clock_ahead(self):
        # A heartbeat from the future is shown as such.
        self.store_vector("D4/datetime_edges/p4")
        self.assertIn("ahead of our clock", self.status())


class Server(Case):
    """The status of a server's own jobs."""

    def setUp(self):
        super().setUp()
        self.where = ("--rdzv-endpoint", f"127.0.0.1:{self.server.port}")

    def announce(self, run_id, names, nodes):
        """Nodes that only announce themselves."""
        wires = []
        for name in names:
            node = FrameNode(self.server, name=name, run_id=run_id)
            wire = node.connect()
            self.addCleanup(wire.close)
            node.announce(wire, nodes=nodes)
            receive(wire, WELCOME)
            wires.append(wire)
        return wires

    def test_list(self):
        self.assertIn("has no jobs", self.status())
        self.announce("one", ["a", "b"], (3, 4))
        self.announce("two", ["a"], (1, 1))
        table = self.status().splitlines()
        self.assertRegex(table[1], r"^one  open +0 +0 +3:4 +2 +0$")
        self.assertRegex(table[2], r"^two  running +1 +1 +1:1 +0 +0$")
        listed = self.json()
        self.assertEqual(listed["total"], 2)
        self.assertEqual([(job["run_id"], job["phase"], job["waiting"], job["participants"])
                          for job in listed["jobs"]],
                         [("one", "open", 2, 0), ("two", "running", 0, 1)])

    def test_similar(self):
        self.announce("training-7", ["a"], (1, 1))
        text = self.status("--rdzv-id", "trainign-7", code=ABSENT)
        self.assertIn("similar: 'training-7'", text)
        self.assertNotIn("similar", self.status("--rdzv-id", "x", code=ABSENT))
        result = harness.run("close", *self.where, "--rdzv-id", "traning-7")
        self.assertEqual(result.returncode, ABSENT)
        self.assertIn(b"similar: 'training-7'", result.stderr)

    def test_many_nodes_share_lines(self):
        self.announce("job", [f"n{i}" for i in range(1, 61)], (60, 60))
        self.announce("job", ["x", "s1", "s2", "s3"], (60, 60))
        table = self.status("--rdzv-id", "job")
        self.assertRegex(table, r"\nmember +60 +0-59  n\[1-60\]; heard of \d")
        self.assertRegex(table, r"\nspare +4 +-  s\[1-3\], x; heard of ")
        self.assertEqual(len(table.splitlines()), 5)
        every = self.status("--rdzv-id", "job", "--all")
        self.assertEqual(len(re.findall(r"^member +\d+  n\d+ ", every, re.M)), 60)

    def test_filters(self):
        self.announce("job", ["n1", "n2", "n10", "s"], (3, 3))
        for args, names in (
            (("--state", "spare"), ["s"]),
            (("--node", "n[1-2],s"), ["n1", "n2", "s"]),
            (("--node", "n[1-2],s", "--state", "member"), ["n1", "n2"]),
            (("--state", "late"), []),
        ):
            with self.subTest(args=args):
                table = self.status("--rdzv-id", "job", *args)
                self.assertEqual(re.findall(r"^(?:member|spare) +\S+  (\S+)", table, re.M), names)
                status = self.json("--rdzv-id", "job", *args)
                self.assertEqual([node["node"] for node in
                                  status["participants"] + status["spares"]], names)

    def test_how_work_has_ended(self):
        """A failure with its node, budget and cause; finished nodes; the outcome."""
        nodes = [FrameNode(self.server, name, version=2, budget=(1, 0)) for name in ("a", "b")]
        wires = [node.connect() for node in nodes]

        def meet(restarts):
            for node, wire in zip(nodes, wires):
                self.addCleanup(wire.close)
                node.announce(wire, nodes=(2, 2))
                receive(wire, WELCOME)
            sealed = [receive_sealed(wire, restarts) for wire in wires]
            for node, one in zip(nodes, sealed):
                node.claim = one
            return struct.pack("<Qq", *sealed[0][:2])

        failure = struct.pack("<IiIq", 3, 0, 9, 0) + text("out of memory")
        send(wires[1], RESTART, meet(0) + failure)
        for wire in wires:
            receive(wire, REOPENED)
        where = meet(1)
        table = self.status("--rdzv-id", "job")
        self.assertIn(", running, 2 to 2 nodes, 1 of 1 restarts used\n", table)
        self.assertRegex(table, r"\nlast failure: node 'b' \(rank 1\), worker 3: .*signal 9.*: "
                                r"out of memory\n")
        send(wires[0], FINISH, where + struct.pack("<i", 0) + text(""))
        self.server.wait_log("node.finished", "node=a")
        status = self.json("--rdzv-id", "job")
        self.assertEqual((status["finished"], status["restarts_total"], status["restarts_left"],
                          status["outcome"]), (1, 1, 0, None))
        self.assertEqual([node["standing"] for node in status["participants"]],
                         ["finished", "member"])
        self.assertEqual((status["cause"]["node"], status["cause"]["signal"]), ("b", 9))
        send(wires[1], RESTART, where + struct.pack("<IiIq", 0, 7, 0, 0) + text(""))
        receive(wires[1], CLOSED)
        status = self.json("--rdzv-id", "job")
        self.assertEqual((status["outcome"], status["cause"]["status"]), ("failed", 7))
        self.assertRegex(self.status("--rdzv-id", "job"), r", failed, .*\n.*exit status 7")
        self.assertRegex(self.status(), r"\njob  failed ")

    def test_older_server(self):
        """A STATUS of version 2 without a run id is refused."""
        wire = FrameNode(self.server).connect()
        self.addCleanup(wire.close)
        send(wire, STATUS, text("") + struct.pack("<I", 2))
        self.assertEqual(struct.unpack("<i", receive(wire, REFUSED)[:4])[0], -7)


class Ends(Case):
    def test_no_record(self):
        for value in ("nonsense", "", base64.b64encode(b"cos\nsystem\n(S'true'\ntR.")):
            with self.subTest(value=value):
                self.store(value)
                result = harness.run("status", *self.where)
                self.assertEqual(result.returncode, STATE, result.stderr)
                self.assertIn(b"not a rendezvous", result.stderr)

    def test_no_server(self):
        self.server.kill()
        result = harness.run("status", *self.where, "--timeout", "200ms")
        self.assertEqual(result.returncode, CONNECT, result.stderr)

    def test_stopped_server(self):
        self.server.signal(signal.SIGSTOP)
        try:
            result = harness.run("status", *self.where, "--timeout", "200ms")
        finally:
            self.server.signal(signal.SIGCONT)
        self.assertEqual(result.returncode, TIMEOUT, result.stderr)

    def test_usage(self):
        for args, code, said in (
            (("--rdzv-backend", "c10d"), USAGE, "--rdzv-id is missing"),
            (("--watch",), USAGE, "--rdzv-id"),
            (("--rdzv-id", "j", "--state", "dead"), USAGE, "'dead' is not gathered"),
            (("--rdzv-id", "j", "--node", "n[1"), USAGE, "missing ']'"),
            (("--rdzv-id", "j", "--rdzv-backend", "etcd", "--node", "n"), USAGE, "have no names"),
            (("--rdzv-id", "j", "--jsn"), USAGE, "did you mean --json?"),
            (("--rdzv-id", "j", "--nnodes", "x"), USAGE, "--nnodes x"),
            (("--rdzv-id", "j", "--rdzv-backend", "zookeeper"), USAGE, "zookeeper"),
            (("--rdzv-id", "j", "--rdzv-backend", "static"), ABSENT, "no record"),
            (("--rdzv-id", "j", "--rdzv-backend", "c10d", "--rdzv-conf", "store_type=file"), USAGE,
             "path"),
        ):
            with self.subTest(args=args):
                result = harness.run("status", *args)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(said, result.stderr.decode())

    def test_watch(self):
        process = subprocess.Popen(
            [harness.MUSTER, "status", *self.where, "--json", "--watch", "--interval", "10ms"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertFalse(json.loads(process.stdout.readline())["exists"])
        node = self.start("1", "--hold", "0")
        node.next("joined")
        while not json.loads(process.stdout.readline())["complete"]:
            pass
        self.assertEqual(harness.run("close", *self.where).returncode, OK)
        while not json.loads(process.stdout.readline())["closed"]:
            pass

    def test_watch_table(self):
        process = subprocess.Popen(
            [harness.MUSTER, "status", *self.where, "--watch", "--interval", "10ms"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"rendezvous job\n")
        self.store("Y2FuaW1hZGFt")
        end = time.monotonic() + harness.DEADLINE_S
        while b"waiting for the first node" not in process.stdout.readline():
            self.assertLess(time.monotonic(), end)


if __name__ == "__main__":
    harness.main()
