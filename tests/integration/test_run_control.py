"""`muster ps`, `logs`, `restart`, `drain` and `stop`: commands for a running job."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import harness
from agents import QUICK, Agent

ABSENT, TIMEOUT, CONNECT, CLOSED, PREEMPTED = 3, 4, 5, 8, 75

STAY = ('trap "exit 0" TERM; echo "at $RANK/$WORLD_SIZE $MUSTER_START_REASON '
        '$TORCHELASTIC_RESTART_COUNT"; echo "trouble $RANK" >&2; while :; do sleep 0.02; done')


class Control(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="muster-control-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.job = ["--rdzv-endpoint", f"127.0.0.1:{self.server.port}", "--rdzv-id", self.id()]

    def agent(self, name, nnodes="1:2", nproc=1, options=("--tee", "3")):
        agent = Agent("--nnodes", nnodes, "--nproc-per-node", nproc, *self.job, "--rdzv-conf",
                      QUICK, "--local-addr", name, "--log-dir", self.directory, *options, "--",
                      "sh", "-c", STAY)
        self.addCleanup(agent.close)
        return agent

    @staticmethod
    def muster(*args):
        told = harness.run(*args)
        told.stdout, told.stderr = told.stdout.decode(), told.stderr.decode()
        return told

    def ask(self, command, *args):
        return self.muster(command, *self.job, *args)

    def nodes(self):
        told = self.ask("ps", "--json")
        return [json.loads(line) for line in told.stdout.splitlines()]

    def wait_nodes(self, wanted):
        """Wait until the states of the nodes are as wanted; returns them."""
        deadline = time.monotonic() + harness.DEADLINE_S
        while True:
            nodes = self.nodes()
            if wanted(nodes):
                return nodes
            self.assertLess(time.monotonic(), deadline, nodes)
            time.sleep(0.02)

    def wait_up(self, name="up"):
        """Wait until the only worker has made its file, and its agent hears commands."""
        harness.wait_until(lambda: os.path.exists(f"{self.directory}/{name}"), "the worker")
        self.wait_nodes(lambda nodes: len(nodes) == 1)

    def two(self):
        first, second = self.agent("a", nnodes="2:2", nproc=2), self.agent("b", nnodes="2:2")
        nodes = self.wait_nodes(lambda nodes: len(nodes) == 2 and all(
            node["phase"] == "running" for node in nodes))
        return first, second, nodes

    def test_ps_and_logs(self):
        first, second, nodes = self.two()
        self.assertEqual([[worker["rank"] for worker in node["workers"]] for node in nodes],
                         sorted([[worker["rank"] for worker in node["workers"]] for node in nodes]))
        for agent in (first, second):
            for _ in range(2 if agent is first else 1):
                agent.next()
        table = self.ask("ps").stdout.splitlines()
        self.assertEqual(len(table), 4, table)
        for line in table[1:]:
            rank, _, pid, state, generation, restarts = line.split()[:6]
            self.assertEqual((state, generation, restarts), ("running", "1", "0"))
            self.assertTrue(os.path.exists(f"/proc/{pid}"))
            told = self.ask("logs", "--rank", rank)
            self.assertEqual(told.stdout, f"at {rank}/3 first 0\n", told.stderr)
            self.assertEqual(self.ask("logs", "--rank", rank, "--stderr").stdout,
                             f"trouble {rank}\n")
        self.assertEqual(self.ask("logs", "--rank", "1", "-n", "0").stdout, "")
        told = self.ask("logs", "--rank", "7", "--timeout", "300ms")
        self.assertEqual(told.returncode, TIMEOUT)
        self.assertIn("no node of the job has a worker of rank 7", told.stderr)

    def test_logs_on_a_terminal(self):
        """A terminal sees no control characters of the worker; a file has them."""
        agent = Agent(*self.job, "--log-dir", self.directory,
                      "--redirects", "3", "--", "sh", "-c",
                      'printf "a\\033[2J\\tb\\n"; : > up; sleep 1000', cwd=self.directory)
        self.addCleanup(agent.close)
        self.wait_up()
        self.assertEqual(self.ask("logs", "--rank", "0").stdout, "a\x1b[2J\tb\n")
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        with os.fdopen(theirs, "wb") as terminal:
            told = subprocess.run([harness.MUSTER, "logs", *self.job, "--rank", "0"], check=False,
                                  stdout=terminal, stderr=subprocess.PIPE,
                                  timeout=harness.DEADLINE_S)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertRegex(os.read(ours, 1000), rb"^a\\x1b\[2J +b\r\n$|^a\\x1b\[2J\tb\r\n$")

    def test_last_lines(self):
        """A line without its end is a line, too: a bar that shows progress."""
        for i, (text, last) in enumerate((("1\\n2\\n3\\n", "3\n"), ("1\\n2\\n3", "3"))):
            with self.subTest(text=text):
                self.job[3] = f"{self.id()}{i}"
                agent = Agent(*self.job, "--log-dir", self.directory, "--redirects", "3", "--",
                              "sh", "-c", f'printf "{text}"; : > up{i}; sleep 1000',
                              cwd=self.directory)
                self.addCleanup(agent.close)
                self.wait_up(f"up{i}")
                for lines, told in (("0", ""), ("1", last), ("2", "2\n" + last),
                                    ("9", "1\n2\n" + last)):
                    self.assertEqual(self.ask("logs", "--rank", "0", "-n", lines).stdout, told)

    def test_no_file(self):
        self.agent("a", nnodes="1", options=()).next()
        self.wait_nodes(lambda nodes: len(nodes) == 1 and nodes[0]["phase"] == "running")
        told = self.ask("logs", "--rank", "0")
        self.assertEqual(told.returncode, ABSENT)
        self.assertIn("stdout of rank 0 is in no file", told.stderr)
        self.assertIn("muster run --tee 3", told.stderr)

    def test_restart_and_follow(self):
        first, second, _ = self.two()
        follower = subprocess.Popen(
            [harness.MUSTER, "logs", *self.job, "--rank", "2", "-f"], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(follower.communicate)
        self.addCleanup(follower.kill)
        self.assertEqual(follower.stdout.readline(), "at 2/3 first 0\n")
        told = self.ask("restart")
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual(follower.stdout.readline(), "at 2/3 request 0\n")
        nodes = self.wait_nodes(lambda nodes: all(node["generation"] == 2 for node in nodes))
        self.assertEqual([node["restarts"] for node in nodes], [0, 0])
        self.assertEqual([agent.stderr().count("asked to restart") for agent in (first, second)],
                         [1, 0] if nodes[0]["pid"] == first.pid else [0, 1])
        time.sleep(0.5) # the agent looks for more five times a second
        follower.send_signal(signal.SIGINT)
        self.assertEqual(follower.wait(harness.DEADLINE_S), 128 + signal.SIGINT)
        self.assertEqual(follower.stdout.read(), "")

    def test_readers_are_killed(self):
        """A node has eight readers of logs. A killed one loses its place after 20 seconds, one that
        only waits does not."""
        self.agent("a", nnodes="1").next()
        self.wait_nodes(lambda nodes: len(nodes) == 1)

        def start():
            reader = subprocess.Popen([harness.MUSTER, "logs", *self.job, "--rank", "0", "-f"],
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.addCleanup(reader.communicate)
            self.addCleanup(reader.kill)
            return reader
        readers = [start() for _ in range(8)]
        for reader in readers:
            self.assertEqual(reader.stdout.readline(), b"at 0/1 first 0\n")
        told = self.ask("logs", "--rank", "0")
        self.assertEqual(told.returncode, ABSENT, told.stderr)
        self.assertIn("too many readers of logs on this node", told.stderr)
        for reader in readers[1:]:
            reader.kill()
        time.sleep(19)
        harness.wait_until(lambda: self.ask("logs", "--rank", "0").returncode == 0, "a free place",
                           20)
        # Nothing of the killed ones stays in the server.
        url = f"{self.server.url()}/muster.run/{self.id()}"
        harness.wait_until(lambda: self.muster("store", "list", url).stdout.count("/alive") == 1,
                           "only the keys of the reader that waits")
        self.assertEqual(self.ask("restart").returncode, 0)
        self.assertTrue(select.select([readers[0].stdout], [], [], harness.DEADLINE_S)[0])
        self.assertEqual(readers[0].stdout.readline(), b"at 0/1 request 0\n")

    def test_slow_reader(self):
        """The server keeps no more of a log than a reader takes soon."""
        size = 3000000
        agent = Agent(*self.job, "--log-dir", self.directory, "--redirects", "3", "--", "sh", "-c",
                      f"head -c {size} /dev/zero | tr '\\0' x; : > up; sleep 1000",
                      cwd=self.directory)
        self.addCleanup(agent.close)
        self.wait_up()
        reader = subprocess.Popen([harness.MUSTER, "logs", *self.job, "--rank", "0"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(reader.communicate)
        self.addCleanup(reader.kill)
        url = f"{self.server.url()}/muster.run/{self.id()}"
        command = harness.wait_until(
            lambda: self.muster("store", "get", url, "commands/1").stdout, "the command")
        queue = "logs/" + json.loads(command)["token"]

        def length():
            return int(self.muster("store", "len", url, queue).stdout)
        harness.wait_until(lambda: length() >= 16, "a full queue")
        time.sleep(0.5) # the agent looks for room five times a second
        self.assertEqual(length(), 16)
        self.assertEqual(len(reader.stdout.read()), size)
        self.assertEqual(reader.wait(harness.DEADLINE_S), 0)

    def test_restart_without_authority(self):
        """Without an authority, too, all workers get the reason of the restart."""
        self.job += ["--rdzv-backend", "c10d"]
        agents = self.two()[:2]
        told = self.ask("restart")
        self.assertEqual(told.returncode, 0, told.stderr)
        for agent in agents:
            agent.until("/3 request 0")
        told = self.ask("stop")
        self.assertEqual(told.returncode, 0, told.stderr)
        for agent in agents:
            self.assertEqual(agent.wait(), CLOSED, agent.stderr())
            self.assertTrue(agent.stderr().endswith("muster: the job was closed\n"), agent.stderr())

    def test_restart_and_loss_without_authority(self):
        """The reason of a restart is not that of the next."""
        self.job += ["--rdzv-backend", "c10d"]
        first, second = self.agent("a"), self.agent("b")
        for agent in (first, second):
            agent.until("/2")
        self.wait_nodes(lambda nodes: len(nodes) == 2 and all(
            node["phase"] == "running" for node in nodes) and
            nodes[0]["round"] == nodes[1]["round"])
        told = self.ask("restart")
        self.assertEqual(told.returncode, 0, told.stderr)
        for agent in (first, second):
            agent.until("/2 request 0")
        first.signal(signal.SIGKILL) # the node that has executed the restart
        second.until("at 0/1 leave 0")

    def test_drain(self):
        first = self.agent("a")
        second = self.agent("b")
        nodes = self.wait_nodes(lambda nodes: len(nodes) == 2 and all(
            node["phase"] == "running" and node["group_rank"] in (0, 1) and
            len(node["workers"]) == 1 for node in nodes) and
            nodes[0]["round"] == nodes[1]["round"])
        told = self.ask("drain", "--timeout", "300ms", "nobody")
        self.assertEqual(told.returncode, TIMEOUT)
        leaving = next(node["node"] for node in nodes if node["pid"] == second.pid)
        self.assertIn("no node 'nobody' of the job answers; muster ps shows", told.stderr)
        told = self.ask("drain", leaving)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual(second.wait(), PREEMPTED, second.stderr())
        nodes = self.wait_nodes(lambda nodes: len(nodes) == 1 and nodes[0]["phase"] == "running")
        self.assertEqual(nodes[0]["pid"], first.pid)
        # The answer was for the command only.
        keys = self.muster("store", "list", f"tcp://127.0.0.1:{self.server.port}").stdout
        self.assertIn(f"{self.id()}/commands/", keys)
        self.assertNotIn(f"{self.id()}/replies/", keys)

    def test_drain_within(self):
        """The operator's notice counts, and not that of the job."""
        agent = Agent(*self.job, "--rdzv-conf", QUICK, "--notice-signal", "USR1", "--notice", "1h",
                      "--", "sh", "-c", "trap 'echo noticed' USR1; trap 'echo told; exit 0' TERM; "
                      "echo here; while :; do sleep 0.02; done")
        self.addCleanup(agent.close)
        agent.until("here")
        self.wait_nodes(lambda nodes: len(nodes) == 1 and nodes[0]["phase"] == "running")
        told = self.ask("drain", "--within", "1s", "--force", self.name_of(agent))
        self.assertEqual(told.returncode, 0, told.stderr)
        agent.until("noticed")
        noticed_s = agent.at
        agent.until("told")
        self.assertGreater(agent.at - noticed_s, 0.8)
        self.assertEqual(agent.wait(), PREEMPTED, agent.stderr())

    def test_drain_is_sticky(self):
        """A node that has to leave does so although its round ends meanwhile."""
        options = ("--notice-signal", "USR1", "--notice", "1ms")
        first, leaves, dies = (self.agent(name, "1:3", options=options) for name in "abc")
        for agent in (first, leaves, dies):
            agent.until("/3")
        nodes = self.wait_nodes(lambda nodes: len(nodes) == 3 and all(
            node["phase"] == "running" for node in nodes))
        told = self.ask("drain", "--within", "1h",
                        next(node["node"] for node in nodes if node["pid"] == leaves.pid))
        self.assertEqual(told.returncode, 0, told.stderr)
        dies.signal(signal.SIGKILL)
        self.assertEqual(leaves.wait(), PREEMPTED, leaves.stderr())
        first.until("at 0/1")

    def name_of(self, agent):
        return next(node["node"] for node in self.nodes() if node["pid"] == agent.pid)

    def refuse_drain(self, agent, wants, leaves):
        told = self.ask("drain", self.name_of(agent))
        self.assertEqual(told.returncode, 1, told.stderr)
        self.assertIn(f"needs {wants} nodes and would have {leaves}: it would stop and wait for "
                      "others; --force drains nevertheless\n", told.stderr)

    def test_drain_below_the_minimum(self):
        """It is refused, without --force, unless a spare takes the place."""
        for backend in ("muster", "c10d"):
            with self.subTest(backend=backend):
                self.job[3:] = [self.id() + backend, "--rdzv-backend", backend]
                first, second, _ = self.two()
                self.refuse_drain(second, 2, 1)
                third = self.agent("c", nnodes="2:2")
                harness.wait_until(
                    lambda: json.loads(self.ask("status", "--json").stdout)["spares"], "the spare")
                told = self.ask("drain", self.name_of(second))
                self.assertEqual(told.returncode, 0, told.stderr)
                self.assertEqual(second.wait(), PREEMPTED, second.stderr())
                third.until("at ")
                self.wait_nodes(lambda nodes: len(nodes) == 2 and all(
                    node["phase"] == "running" for node in nodes))
                told = self.ask("drain", "--force", self.name_of(third))
                self.assertEqual(told.returncode, 0, told.stderr)
                self.assertIn("it would stop and wait for others\n", told.stderr)
                self.assertEqual(third.wait(), PREEMPTED, third.stderr())
                first.close()

    def test_drains_add_up(self):
        """Nodes that are drained already do not remain."""
        options = ("--notice-signal", "USR1", "--notice", "1ms")
        agents = [self.agent(name, "2:3", options=options) for name in "abc"]
        for agent in agents:
            agent.until("/3")
        self.wait_nodes(lambda nodes: len(nodes) == 3 and all(
            node["phase"] == "running" for node in nodes))
        told = self.ask("drain", "--within", "1h", self.name_of(agents[2]))
        self.assertEqual(told.returncode, 0, told.stderr)
        self.refuse_drain(agents[1], 2, 1)

    def test_stop(self):
        first, second, _ = self.two()
        told = self.ask("stop", "--reason", "enough of it")
        self.assertEqual(told.returncode, 0, told.stderr)
        for agent in (first, second):
            self.assertEqual(agent.wait(), CLOSED, agent.stderr())
            self.assertIn("enough of it", agent.stderr())
        self.assertEqual(self.ask("ps").returncode, ABSENT)

    def test_stop_of_nodes_that_serve(self):
        """The server of such a job ends with its node: `stop` does not look for it for long."""
        for backend in ("muster", "c10d"):
            with self.subTest(backend=backend):
                self.job = ["--rdzv-endpoint", f"127.0.0.1:{harness.free_port()}", "--rdzv-id",
                            self.id(), "--rdzv-backend", backend]
                first, second, _ = self.two()
                started = time.monotonic()
                told = self.ask("stop")
                self.assertEqual(told.returncode, 0, told.stderr)
                self.assertLess(time.monotonic() - started, 20)
                for agent in (first, second):
                    self.assertEqual(agent.wait(), CLOSED, agent.stderr())

    def test_killed(self):
        """The key of a killed agent stays. `ps` shows it as lost, if there is an authority. `stop`
        does not wait for it."""
        for backend in ("muster", "c10d"):
            with self.subTest(backend=backend):
                self.job[3:] = [self.id() + backend, "--rdzv-backend", backend]
                first, second = self.agent("a"), self.agent("b")
                for agent in (first, second):
                    agent.until("/2")
                self.wait_nodes(lambda nodes: len(nodes) == 2)
                second.signal(signal.SIGKILL)
                first.until("at 0/1")
                rows = [line.split() for line in self.ask("ps").stdout.splitlines()[1:]]
                self.assertEqual(sorted(row[3] for row in rows),
                                 ["lost" if backend == "muster" else "running", "running"], rows)
                told = self.ask("stop", "--timeout", "10s")
                self.assertEqual(told.returncode, 0, told.stderr)
                self.assertEqual(first.wait(), CLOSED, first.stderr())

    def test_killed_while_stopping(self):
        """An agent that ends during `stop` without removing its key is not waited for."""
        first = Agent("--nnodes", "1", *self.job, "--rdzv-conf", QUICK, "--", "sh", "-c",
                      "trap 'echo told' TERM; echo here; while :; do sleep 0.02; done")
        self.addCleanup(first.close)
        first.until("here")
        self.wait_nodes(lambda nodes: len(nodes) == 1 and nodes[0]["phase"] == "running")
        stop = subprocess.Popen([harness.MUSTER, "stop", *self.job, "--timeout", "20s"],
                                stderr=subprocess.PIPE, text=True)
        self.addCleanup(stop.communicate)
        self.addCleanup(stop.kill)
        first.until("told")
        self.assertIsNone(stop.poll())
        first.signal(signal.SIGKILL)
        self.assertEqual(stop.wait(harness.DEADLINE_S), 0)

    def test_server_ends_while_stopping(self):
        """`stop` cannot know about the agents, and says so."""
        server = harness.Server()
        self.addCleanup(server.kill)
        self.job[1] = f"127.0.0.1:{server.port}"
        agents = [Agent("--nnodes", "2", *self.job, "--rdzv-conf", QUICK, "--", "sh", "-c",
                        "trap 'echo told' TERM; echo here; while :; do sleep 0.02; done")
                  for _ in range(2)]
        for agent in agents:
            self.addCleanup(agent.close)
            agent.until("here")
        self.wait_nodes(lambda nodes: len(nodes) == 2)
        stop = subprocess.Popen([harness.MUSTER, "stop", *self.job], stderr=subprocess.PIPE,
                                text=True)
        self.addCleanup(stop.kill)
        for agent in agents:
            agent.until("told")
        time.sleep(1)  # `stop` looks at the agents every 50 ms
        server.kill()
        _, said = stop.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(stop.returncode, 0, said)
        self.assertEqual(said, "muster: the server has ended, 2 agents ran a moment before\n")

    def test_server_is_restarted(self):
        """Agents tell the new server their state, and take commands there, also if they were about
        to tell the old one."""
        script = 'echo "at $RANK $MUSTER_START_REASON"; trap "exit 0" TERM; ' \
                 f'while [ $RANK = 0 -o ! -e {self.directory}/go ]; do sleep 0.02; done'
        for is_telling in (False, True):
            with self.subTest(is_telling=is_telling):
                server = harness.Server()
                self.addCleanup(server.kill)
                self.job[1] = f"127.0.0.1:{server.port}"
                agent = Agent(*self.job, "--nproc-per-node", 2, "--", "sh", "-c", script)
                self.addCleanup(agent.close)
                agent.until("first", count=2)
                self.wait_nodes(lambda nodes: len(nodes) == 1 and nodes[0]["phase"] == "running")
                self.assertEqual(self.ask("restart").returncode, 0)
                agent.until("request", count=2)
                self.wait_nodes(lambda nodes: nodes[0]["generation"] == 2)
                if is_telling:
                    server.signal(signal.SIGSTOP)
                    ends = len(agent.events("exit"))
                    open(f"{self.directory}/go", "wb").close()
                    harness.wait_until(lambda: len(agent.events("exit")) > ends, "one worker's end")
                server.kill()
                server = harness.Server("--port", server.port)
                self.addCleanup(server.kill)
                self.wait_nodes(lambda nodes: len(nodes) == 1 and nodes[0]["generation"] == 2)
                told = self.ask("restart")
                self.assertEqual(told.returncode, 0, told.stderr)
                agent.until("at 0 request")

    def test_etcd(self):
        if os.environ.get("MUSTER_ETCD", "1") != "1" or shutil.which("etcd") is None:
            self.skipTest("no etcd")
        etcd = subprocess.Popen([harness.MUSTER, "etcd"], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL)
        self.addCleanup(etcd.stdout.close)
        self.addCleanup(etcd.wait)
        self.addCleanup(etcd.terminate)
        address = re.search(r"localhost:\d+", etcd.stdout.readline().decode()).group(0)
        self.job = ["--rdzv-backend", "etcd-v3", "--rdzv-endpoint", address, "--rdzv-id", "a/b c"]
        first, second = self.agent("a"), self.agent("b")

        def is_whole(nodes):
            return len(nodes) == 2 and all(node["phase"] == "running" for node in nodes) and (
                nodes[0]["round"] == nodes[1]["round"])

        for agent in (first, second):
            agent.until("/2")
        self.wait_nodes(is_whole)
        told = self.ask("restart")
        self.assertEqual(told.returncode, 0, told.stderr)
        for agent in (first, second):
            agent.until("/2 request 0")
        nodes = self.wait_nodes(is_whole)
        told = self.ask("drain", next(node["node"] for node in nodes if node["pid"] == second.pid))
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual(second.wait(), PREEMPTED, second.stderr())
        first.until("at 0/1")
        self.assertEqual(len(self.nodes()), 1)
        told = self.ask("logs", "--rank", "0")
        self.assertEqual(told.returncode, 2)
        self.assertIn("read the files below --log-dir", told.stderr)
        told = self.ask("stop", "--reason", "enough of it")
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual(first.wait(), CLOSED, first.stderr())
        self.assertIn("enough of it", first.stderr())

    def test_nobody_there(self):
        self.assertEqual(self.ask("ps").returncode, ABSENT)
        told = self.muster("ps", "--rdzv-endpoint", "127.0.0.1:1", "--rdzv-id", "x", "--timeout",
                           "200ms")
        self.assertIn(told.returncode, (CONNECT, TIMEOUT))
        for command, advice in (("ps", "muster status"), ("stop", "muster close"),
                                ("restart", "--max-restarts"), (("drain", "n"), "SIGTERM"),
                                (("logs", "--rank", "0"), "--log-dir")):
            with self.subTest(command=command):
                words = (command,) if isinstance(command, str) else command
                told = self.muster(*words, "--rdzv-backend", "etcd-v2", "--rdzv-id", "x")
                self.assertEqual(told.returncode, 2)
                self.assertIn("take no commands", told.stderr)
                self.assertIn(advice, told.stderr)


if __name__ == "__main__":
    harness.main()
