"""Reports of a waiting node, and late nodes: with every backend, as far as it can know."""

import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import etcd_cluster
import harness

OK, USAGE, TIMEOUT = 0, 2, 4
WITH_ETCD = os.environ.get("MUSTER_ETCD", "1") == "1"
LINE = re.compile(r"^muster: waiting (\d+) s: (.*) \((\w+) (\S+)\)$", re.MULTILINE)


class Node:
    """A `muster join` whose stderr can be read while it runs."""

    def __init__(self, directory, *args):
        self.error_path = tempfile.mktemp(dir=directory)
        with open(self.error_path, "wb") as error:
            self.process = subprocess.Popen(
                [harness.MUSTER, "join", *map(str, args)], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=error)

    def said(self):
        with open(self.error_path, encoding="utf-8") as error:
            return error.read()

    def lines(self):
        """Its reports of waiting: seconds, text, kind and place of what it looks at."""
        return [(int(s), *rest) for s, *rest in LINE.findall(self.said())]

    def await_text(self, text):
        """The seconds that it had waited when it told @text."""
        def find():
            return next((line for line in self.lines() if line[1] == text), None)
        harness.wait_until(lambda: find() is not None, f"'{text}' of {self.error_path}")
        return find()

    def wait(self):
        self.process.wait(harness.DEADLINE_S)
        self.process.stdout.close()
        harness.check_report(self.said(), "the node")
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="muster-waiting-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def start(self, *args):
        node = Node(self.directory, *args)
        self.addCleanup(node.close)
        return node

    def serve(self):
        server = harness.Server()
        self.addCleanup(server.__exit__, None, None, None)
        return f"127.0.0.1:{server.port}"

    def each(self, check, backends):
        """Call @check with each of @backends, all at once: they only wait."""
        with concurrent.futures.ThreadPoolExecutor(len(backends)) as pool:
            done = {backend: pool.submit(check, backend) for backend in backends}
        for backend, future in done.items():
            with self.subTest(backend=backend):
                future.result()

    def check_group(self, backend, kind, endpoint, named=True):
        """Each newcomer is reported, with the nodes still missing."""
        args = ("--rdzv-backend", backend, "--rdzv-endpoint", endpoint, "--rdzv-id", backend,
                "--nnodes", "3")
        expect = ("--expect", "node[1-3]") if named else ()
        first = self.start(*args, *expect, "--local-addr", "node1")
        end = ": node2, node3" if named else ""
        line = first.await_text(f"1 of 3 nodes here, 2 missing{end}")
        self.assertGreaterEqual(line[0], 2)
        self.assertEqual(line[2:], (kind, endpoint))
        second = self.start(*args, "--local-addr", "node3")
        first.await_text(f"2 of 3 nodes here, 1 missing{end[:7]}")
        third = self.start(*args, "--local-addr", "node2")
        self.assertEqual([node.wait() for node in (first, second, third)], [OK, OK, OK])
        self.assertEqual(third.said(), "")  # it has not waited


class Server(Case):
    def test_group(self):
        endpoint = self.serve()
        self.each(lambda backend: self.check_group(backend, "server", endpoint),
                  ("muster", "c10d"))

    def test_file(self):
        path = os.path.join(self.directory, "file")
        node = self.start("--rdzv-backend", "c10d", "--rdzv-endpoint", path, "--rdzv-id", "job",
                          "--nnodes", "2:4", "--rdzv-conf", "store_type=file")
        line = node.await_text("1 of 2 to 4 nodes here, 1 missing")
        self.assertEqual(line[2:], ("file", path))

    def test_told_again(self):
        """Without a change, too, but not all the time."""
        node = self.start("--rdzv-endpoint", self.serve(), "--rdzv-id", "job", "--nnodes", "2")
        harness.wait_until(lambda: len(node.lines()) == 2, "a second line", timeout=60)
        first, second = node.lines()
        self.assertEqual(first[1:], second[1:])
        self.assertGreaterEqual(second[0] - first[0], 9)

    def test_nobody_serves(self):
        endpoint = "127.0.0.1:1"
        node = self.start("--rdzv-endpoint", endpoint, "--rdzv-id", "job", "--nnodes", "2",
                          "--serve", "never")
        line = node.await_text("who is here cannot be seen: 127.0.0.1:1: Connection refused")
        self.assertEqual(line[2:], ("server", endpoint))

    def test_beside_a_round(self):
        args = ("--rdzv-endpoint", self.serve(), "--rdzv-id", "job", "--nnodes", "1")
        member = self.start(*args, "--hold", "0")
        member.process.stdout.readline()
        self.start(*args).await_text("round 1 runs with 1 node, 1 waiting for the next")

    def test_who_had_been_there(self):
        """A node that times out reports it, and so does the last one, when all others are gone."""
        endpoint = self.serve()

        def check(backend):
            args = ("--rdzv-backend", backend, "--rdzv-endpoint", endpoint, "--rdzv-id", backend,
                    "--nnodes", "4", "--expect", "node[1-4]", "--rdzv-conf")
            last = self.start(*args, "join_timeout=7", "--local-addr", "node1")
            others = [self.start(*args, "join_timeout=4", "--local-addr", f"node{number}")
                      for number in (2, 3)]
            self.assertEqual([node.wait() for node in others], [TIMEOUT, TIMEOUT])
            last.await_text("1 of 4 nodes here, 3 missing: node[2-4]")
            self.assertEqual(last.wait(), TIMEOUT)
            for node in (*others, last):
                had = re.search(r"3 nodes had been here: (.*); never seen: node4\n", node.said())
                self.assertIsNotNone(had, node.said())
                hosts = sorted(name.split("_")[0] for name in had.group(1).split(", "))
                self.assertEqual(hosts, ["node1", "node2", "node3"])

        self.each(check, ("muster", "c10d"))

    def test_short_of_time(self):
        """A node with less time than the first report takes."""
        node = self.start("--rdzv-endpoint", self.serve(), "--rdzv-id", "job", "--nnodes", "2",
                          "--local-addr", "alone", "--rdzv-conf", "join_timeout=0.4")
        self.assertEqual(node.wait(), TIMEOUT)
        self.assertRegex(node.said(), r"1 node had been here: alone_\d+_\d+\n")

    def test_gone_nodes_had_not_been_here(self):
        """Nodes of the last round that have left it are not among those that were here."""
        args = ("--rdzv-endpoint", self.serve(), "--rdzv-id", "job", "--nnodes", "2")
        members = [self.start(*args, "--hold", "0", "--local-addr", name)
                   for name in ("left", "stays")]
        for member in members:
            member.process.stdout.readline()
        members[0].process.terminate()
        members[0].process.wait(harness.DEADLINE_S)
        alone = self.start(*args, "--local-addr", "alone", "--rdzv-conf", "join_timeout=0.4")
        self.assertEqual(alone.wait(), TIMEOUT)
        self.assertRegex(alone.said(),
                         r"2 nodes had been here: stays_\d+_\d+, alone_\d+_\d+\n")

    def test_usage(self):
        given = ("--rdzv-id", "job", "--nnodes", "1", "--expect")
        for args, said in (
            (("node[3-1]",), "--expect: 'node3-1': not a range"),
            (("a,a",), "--expect: 'a': given twice"),
            (("a", "--rdzv-backend", "static"), "have no names"),
        ):
            for command in ("join", "status"):
                with self.subTest(args=args, command=command):
                    result = harness.run(command, *given, *args)
                    self.assertEqual(result.returncode, USAGE, result.stderr)
                    self.assertIn(said, result.stderr.decode())


class Status(Case):
    def status(self, *args):
        result = harness.run("status", *self.where, *args)
        self.assertEqual(result.returncode, OK, result.stderr)
        return result.stdout.decode()

    def late(self):
        members = json.loads(self.status("--json"))["participants"]
        return {member["node"].split("_")[0] for member in members if member["late"]}

    def test_late(self):
        """A member that says nothing for half a turn too long is marked, before it is given up."""
        endpoint = self.serve()
        conf = "keep_alive_interval=500ms,keep_alive_max_attempt=100"
        for backend in ("muster", "c10d"):
            with self.subTest(backend=backend):
                self.where = ("--rdzv-backend", backend, "--rdzv-endpoint", endpoint, "--rdzv-id",
                              backend, "--rdzv-conf", conf)
                nodes = [self.start(*self.where, "--nnodes", "2", "--hold", "0", "--local-addr",
                                    name) for name in ("well", "stuck")]
                for node in nodes:
                    node.process.stdout.readline()
                nodes[1].process.send_signal(signal.SIGSTOP)
                harness.wait_until(lambda: self.late() == {"stuck"}, "the stopped one to be late")
                self.assertRegex(self.status(), r"stuck_\S+ .* s ago, late\n")
                only = json.loads(self.status("--json", "--state", "late"))["participants"]
                self.assertEqual([node["node"].split("_")[0] for node in only], ["stuck"])
                nodes[1].process.send_signal(signal.SIGCONT)
                harness.wait_until(lambda: self.late() == set(), "it to be back")

    def test_expect(self):
        endpoint = self.serve()
        for backend in ("muster", "c10d"):
            with self.subTest(backend=backend):
                self.where = ("--rdzv-backend", backend, "--rdzv-endpoint", endpoint, "--rdzv-id",
                              backend)
                node = self.start(*self.where, "--nnodes", "1", "--hold", "0", "--local-addr",
                                  "node02")
                node.process.stdout.readline()
                self.assertIn(". Of 4 nodes expected, 3 are missing: node01, node03, x.\n",
                              self.status("--expect", "node[01-03],x"))
                self.assertEqual(
                    json.loads(self.status("--json", "--expect", "node[01-03]"))["missing"],
                    ["node01", "node03"])
                self.assertIn(". Of 1 node expected, 0 are missing.\n",
                              self.status("--expect", "node02"))
                self.assertNotIn("missing", json.loads(self.status("--json")))


@unittest.skipUnless(WITH_ETCD, "built without etcd")
class AtEtcd(Case):
    def test_group(self):
        with etcd_cluster.Etcd(enable_v2=True) as etcd:
            endpoint = "{}:{}".format(*etcd.address)
            self.each(
                lambda backend: self.check_group(backend, "etcd", endpoint, backend != "etcd"),
                ("etcd-v3", "etcd-v2", "etcd"))


if __name__ == "__main__":
    harness.main()
