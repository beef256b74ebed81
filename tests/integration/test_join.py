"""`muster join` and `muster close`: real nodes as processes, on one store, and what they print."""

import itertools
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import unittest.mock

import harness

OK, USAGE, ABSENT, TIMEOUT, CONNECT = 0, 2, 3, 4, 5
CLOSED, SPARE, STATE, CHANGED = 8, 9, 10, 11

# Dead after two seconds of silence, and no long last call.
QUICK = "keep_alive_interval=1,keep_alive_max_attempt=2,last_call_timeout=100ms,join_timeout=30"
EXPIRY_S = 2


class Node:
    """A `muster join` child process whose lines are read as they come."""

    def __init__(self, *args):
        self.lines = queue.Queue()
        self.texts = []
        self.process = subprocess.Popen(
            [harness.MUSTER, "join", *map(str, args)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            self.texts.append(line.decode())
            self.lines.put((time.monotonic(), line.decode()))
        self.lines.put((time.monotonic(), None))

    def next_text(self, timeout=None):
        try:
            self.at, text = self.lines.get(
                timeout=harness.DEADLINE_S if timeout is None else timeout)
        except queue.Empty:
            raise AssertionError(f"no further line after {self.texts}") from None
        if text is None:
            raise AssertionError(f"ended after {self.texts}: {self.process.stderr.read()}")
        return text

    def next(self, event, timeout=None):
        """The next line, which is of that event; self.at is when it came."""
        line = json.loads(self.next_text(timeout))
        if line["event"] != event:
            raise AssertionError(f"expected {event}, got {line} after {self.texts}")
        return line

    def until(self, event):
        """The next line of that event; other lines are skipped."""
        while True:
            line = json.loads(self.next_text())
            if line["event"] == event:
                return line

    def until_joined(self, world):
        """Into a round of that many. Some nodes are in one round more than others before that."""
        line = self.until("joined")
        while line["world_size"] != world:
            line = self.until("joined")
        return line

    def signal(self, number):
        if number == signal.SIGSTOP:
            harness.pause(self.process.pid)
        else:
            self.process.send_signal(number)

    def wait(self):
        """Its end; the exit code. Everything that it has said is in self.texts and self.stderr."""
        try:
            code = self.process.wait(harness.DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end after {self.texts}") from None
        self.thread.join()
        self.stderr = self.process.stderr.read().decode()
        harness.check_report(self.stderr, "the node")
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.thread.join()
        self.process.stdout.close()
        self.process.stderr.close()


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="muster-join-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.server = harness.Server()
        self.addCleanup(self.server.__exit__, None, None, None)
        self.endpoint = f"127.0.0.1:{self.server.port}"

    def options(self, nodes, conf=QUICK, run_id="job"):
        return ("--rdzv-backend", "c10d", "--rdzv-endpoint", self.endpoint, "--rdzv-id", run_id,
                "--nnodes", nodes, "--rdzv-conf", conf)

    def start(self, nodes, *args, **options):
        node = Node(*self.options(nodes, **options), *args)
        self.addCleanup(node.close)
        return node

    def run_join(self, nodes, *args, **options):
        return harness.run("join", *self.options(nodes, **options), *args)

    def close_rendezvous(self, run_id="job"):
        return harness.run(
            "close", "--rdzv-backend", "c10d", "--rdzv-endpoint", self.endpoint, "--rdzv-id",
            run_id, "--timeout", "5s")

    def status(self):
        result = harness.run("status", "--rdzv-backend", "c10d", "--rdzv-endpoint", self.endpoint,
                             "--rdzv-id", "job", "--json")
        self.assertIn(result.returncode, (OK, ABSENT), result.stderr)
        return json.loads(result.stdout)

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
        self.assertEqual(len({(line["master_addr"], line["master_port"]) for line in lines}), 1)
        # Ranks go by the nodes' names: the address, then the numbers.
        order = [re.fullmatch(r"(.*)_(\d+)_(\d+)", line["node"]).groups()
                 for line in sorted(lines, key=lambda line: line["rank"])]
        keys = [(address.encode(), int(pid), int(number)) for address, pid, number in order]
        self.assertEqual(keys, sorted(keys))


class Outcome(Case):
    def test_one_node(self):
        result = self.run_join("1")
        self.expect(result, OK)
        lines = result.stdout.decode().splitlines()
        self.assertEqual(len(lines), 1)
        line = json.loads(lines[0])
        self.assertEqual(
            list(line), ["event", "round", "rank", "world_size", "master_addr", "master_port",
                         "node"])
        self.assertEqual(
            (line["event"], line["round"], line["rank"], line["world_size"]), ("joined", 0, 0, 1))
        self.assertEqual(line["master_addr"], "127.0.0.1")
        self.assertIn(line["master_port"], range(1, 65536))
        self.assertRegex(line["node"], r"^.+_\d+_\d+$")

    def test_leaving_is_not_closing(self):
        first = json.loads(self.run_join("1").stdout)
        status = self.status()
        self.assertEqual(status["participants"], [])
        self.assertFalse(status["closed"])
        second = json.loads(self.run_join("1").stdout)
        self.assertEqual((first["round"], second["round"]), (0, 1))

    def test_two_nodes(self):
        nodes = [self.start("2"), self.start("2")]
        lines = [node.next("joined") for node in nodes]
        self.check_joined(lines, 0, 2)
        pids = [line["node"].split("_")[1] for line in lines]
        self.assertEqual(pids, [str(node.process.pid) for node in nodes])
        self.assertEqual([node.wait() for node in nodes], [OK, OK])

    def test_many(self):
        for count in range(3):
            nodes = [self.start("8", run_id=f"job{count}") for _ in range(8)]
            self.check_joined([node.next("joined") for node in nodes], 0, 8)
            self.assertEqual({node.wait() for node in nodes}, {OK})

    def test_last_call(self):
        nodes = [self.start("2:4"), self.start("2:4")]
        self.check_joined([node.next("joined") for node in nodes], 0, 2)

    def test_local_addr(self):
        nodes = [self.start("2", "--local-addr", name) for name in ("zeta", "alpha")]
        zeta, alpha = [node.next("joined") for node in nodes]
        self.assertEqual((zeta["rank"], alpha["rank"]), (1, 0))
        self.assertRegex(alpha["node"], rf"^alpha_{nodes[1].process.pid}_\d+$")
        self.assertEqual(zeta["master_addr"], "alpha")

    def test_host_of_the_store(self):
        # There is no server: the first node serves, and ends only when both have their outcome.
        for _ in range(5):
            endpoint = f"127.0.0.1:{harness.free_port()}"
            args = ("--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "job",
                    "--nnodes", "2")
            nodes = [Node(*args), Node(*args)]
            for node in nodes:
                self.addCleanup(node.close)
            self.check_joined([node.next("joined") for node in nodes], 0, 2)
            self.assertEqual([node.wait() for node in nodes], [OK, OK])

    def test_serving_is_told(self):
        for backend in ("muster", "c10d"):
            with self.subTest(backend=backend):
                args = ("--rdzv-backend", backend, "--rdzv-id", "job", "--rdzv-endpoint")
                endpoint = f"127.0.0.1:{harness.free_port()}"
                nodes = [Node(*args, endpoint, "--nnodes", "2") for _ in range(2)]
                for node in nodes:
                    self.addCleanup(node.close)
                self.assertEqual([node.wait() for node in nodes], [OK, OK])
                said = [node.stderr for node in nodes]
                self.assertEqual(sum(f"is serving on {endpoint}" in text for text in said), 1, said)
                # A port of its own choice is told, too.
                result = harness.run("join", *args, "127.0.0.1:0", "--nnodes", "1")
                self.expect(result, OK)
                self.assertRegex(result.stderr, rb"is serving on 127\.0\.0\.1:[1-9]\d*")
                # With a server no node reports that it serves.
                result = harness.run("join", *args, self.endpoint, "--nnodes", "1")
                self.expect(result, OK)
                self.assertEqual(result.stderr, b"")

    def test_serve(self):
        given = ("--rdzv-id", "job", "--nnodes", "1", "--rdzv-conf",
                 "join_timeout=500ms,read_timeout=500ms")
        for backend in ("muster", "c10d"):
            with self.subTest(backend=backend):
                args = ("join", "--rdzv-backend", backend, *given)
                port = harness.free_port()
                self.expect(
                    harness.run(*args, "--rdzv-endpoint", f"127.0.0.1:{port}", "--serve", "never"),
                    CONNECT, f"start one with: muster serve --port {port}")
                with socket.socket() as held:  # and nobody listens
                    held.bind(("127.0.0.1", 0))
                    port = held.getsockname()[1]
                    self.expect(harness.run(*args, "--rdzv-endpoint", f"127.0.0.1:{port}"),
                                CONNECT, f"port {port} belongs to a program")
                result = harness.run(*args, "--rdzv-endpoint", "127.0.0.1:0", "--serve", "always")
                self.expect(result, OK)
                self.assertIn(b"is serving on 127.0.0.1:", result.stderr)
                self.expect(
                    harness.run(*args, "--rdzv-endpoint", self.endpoint, "--serve", "always"),
                    CONNECT, "this node must serve")
        self.expect(harness.run("join", *given, "--serve", "maybe"), USAGE, "--serve: 'maybe'")
        self.expect(harness.run("join", *given, "--rdzv-backend", "etcd-v2", "--serve", "auto"),
                    USAGE, "do not serve")
        for command in ("serve", "join"):  # so that they find each other
            self.assertIn(b"29400", harness.run(command, "--help").stdout)

    def test_file_store(self):
        path = os.path.join(self.directory, "a file")
        args = ("--rdzv-backend", "c10d", "--rdzv-endpoint", path, "--rdzv-id", "job", "--nnodes",
                "2", "--rdzv-conf", "store_type=file")
        nodes = [Node(*args), Node(*args)]
        for node in nodes:
            self.addCleanup(node.close)
        self.check_joined([node.next("joined") for node in nodes], 0, 2)
        self.assertEqual([node.wait() for node in nodes], [OK, OK])

    def test_static(self):
        port = harness.free_port()
        nodes = []
        for rank in range(2):
            nodes.append(Node("--rdzv-backend", "static", "--rdzv-endpoint", f"127.0.0.1:{port}",
                              "--rdzv-id", "job", "--nnodes", "2", "--rdzv-conf",
                              f"rank={rank},timeout=20"))
            self.addCleanup(nodes[-1].close)
        for rank, node in enumerate(nodes):
            line = node.next("joined")
            self.assertEqual((line["rank"], line["world_size"]), (rank, 2))
            self.assertEqual((line["master_addr"], line["master_port"]), ("127.0.0.1", port))
        self.assertEqual([node.wait() for node in nodes], [OK, OK])

    def test_speed_and_memory(self):
        # The second of two nodes has its outcome soon after its start.
        waits = []
        for count in range(5):
            first = self.start("2", "--hold", "0", run_id=f"job{count}")
            harness.wait_until(
                lambda: harness.run("store", "check", self.server.url(),
                                    f"torch.rendezvous.job{count}").returncode == OK, "a record")
            started = time.monotonic()
            second = self.start("2", "--hold", "0", run_id=f"job{count}")
            second.next("joined")
            first.next("joined")
            waits.append(max(first.at, second.at) - started)
            with open(f"/proc/{second.process.pid}/status", encoding="ascii") as file:
                rss_kib = int(re.search(r"VmHWM:\s+(\d+)", file.read()).group(1))
            self.assertLess(rss_kib, harness.rss_bound_kib(6 * 1024))
        # On any machine, no step waits for a timer of a second.
        self.assertLess(sorted(waits)[2], 0.9 * harness.SLOWNESS)


class Changes(Case):
    def test_killed(self):
        nodes = [self.start("2:3", "--hold", "0", "--rejoin",
                            conf=QUICK.replace("100ms", "1s")) for _ in range(3)]
        lines = [node.next("joined") for node in nodes]
        self.check_joined(lines, 0, 3)
        victim = nodes[1]
        killed = time.monotonic()
        victim.signal(signal.SIGKILL)
        told = []
        for node in (nodes[0], nodes[2]):
            line = node.next("lost")
            self.assertEqual(line["nodes"], [lines[1]["node"]])
            self.assertEqual((line["round"], line["total"]), (0, 1))
            told.append(node.at - killed)
        # Silent for longer than it may be, and the time of one heartbeat on top of that.
        self.assertGreater(min(told), EXPIRY_S - 1.1)
        self.assertLess(min(told), (EXPIRY_S + 1) * harness.SLOWNESS)
        again = []
        for node in (nodes[0], nodes[2]):
            again.append(node.until("joined"))
            # With a second of last call.
            self.assertLess(node.at - killed - min(told), 2 * harness.SLOWNESS)
        self.check_joined(again, 1, 2)

    def test_killed_of_full(self):
        # Without other nodes there is no last call either.
        conf = QUICK + ",last_call_timeout=20"
        nodes = [self.start("2:3", "--hold", "0", "--rejoin", conf=conf) for _ in range(3)]
        self.check_joined([node.next("joined") for node in nodes], 0, 3)
        spare = self.start("2:3", "--hold", "0", "--rejoin", conf=conf)
        harness.wait_until(lambda: len(self.status()["spares"]) == 1, "a spare")
        nodes[0].signal(signal.SIGKILL)
        rest = nodes[1:]
        for node in rest:
            node.next("lost")
        told = max(node.at for node in rest)
        lines = [node.until("joined") for node in [*rest, spare]]
        self.check_joined(lines, 1, 3)
        self.assertLess(max(node.at for node in [*rest, spare]) - told, 1 * harness.SLOWNESS)

    def test_late_joiner(self):
        nodes = [self.start("2:4", "--hold", "0", "--rejoin") for _ in range(2)]
        self.check_joined([node.next("joined") for node in nodes], 0, 2)
        late = self.start("2:4", "--hold", "0", "--rejoin")
        waiting = nodes[0].next("waiting")
        self.assertEqual(waiting["round"], 0)
        self.assertGreaterEqual(waiting["nodes"], 1)
        # The last call may end before all are back; then there is one more round.
        lines = [node.until_joined(3) for node in [*nodes, late]]
        self.assertGreaterEqual(lines[0]["round"], 1)
        self.check_joined(lines, lines[0]["round"], 3)

    def test_each_change_counts_once(self):
        """A change ends one round: an outage in the next one is none."""
        args = ("--rdzv-endpoint", self.endpoint, "--rdzv-id", "job", "--nnodes", "1:2",
                "--rdzv-conf", QUICK, "--rejoin", "--hold", "1h", "--local-addr")
        node = Node(*args, "a")
        self.addCleanup(node.close)
        node.next("joined")
        other = Node(*args, "b")
        self.addCleanup(other.close)
        node.next("waiting")
        node.until_joined(2)
        other.signal(signal.SIGKILL)
        node.until("lost")
        node.until_joined(1)
        self.server.kill()
        node.until("unreachable")
        self.server = harness.Server("--port", self.server.port)
        self.addCleanup(self.server.kill)
        node.next("reachable")

    def test_reclaim(self):
        """After a restart, --job-reclaim counts for a node that does not come again."""
        options = ("--job-grace", "1h", "--job-reclaim", "300ms")
        self.server.kill()
        self.server = harness.Server("--port", self.server.port, *options)
        self.addCleanup(self.server.kill)
        args = ("--rdzv-endpoint", self.endpoint, "--rdzv-id", "job", "--nnodes", "1:2",
                "--rdzv-conf", QUICK, "--rejoin", "--hold", "1h")
        nodes = [Node(*args, "--local-addr", name) for name in "ab"]
        for node in nodes:
            self.addCleanup(node.close)
            node.until_joined(2)
        nodes[1].signal(signal.SIGKILL)
        self.server.kill()
        self.server = harness.Server("--port", self.server.port, *options)
        self.addCleanup(self.server.kill)
        nodes[0].until_joined(1)

    def test_waiting_without_rejoin(self):
        nodes = [self.start("1:2", "--hold", "0"), ]
        nodes[0].next("joined")
        late = self.start("1:2", "--hold", "0")
        self.assertEqual(nodes[0].next("waiting")["nodes"], 1)
        # It stays, so the other one waits; when it goes the other one gets its round.
        nodes[0].signal(signal.SIGTERM)
        self.assertEqual(nodes[0].wait(), OK)
        line = late.next("joined")
        self.assertEqual((line["round"], line["world_size"]), (1, 1))

    def test_leaving(self):
        # A node that leaves is noticed at once, not after it has expired.
        conf = "keep_alive_interval=60,keep_alive_max_attempt=3,join_timeout=30"
        nodes = [self.start("2", "--hold", "0", conf=conf) for _ in range(2)]
        lines = [node.next("joined") for node in nodes]
        nodes[0].signal(signal.SIGINT)
        self.assertEqual(nodes[0].wait(), OK)
        left = time.monotonic()
        line = nodes[1].next("lost")
        self.assertEqual(line["nodes"], [lines[0]["node"]])
        self.assertLess(nodes[1].at - left, 1 * harness.SLOWNESS)

    def test_hold_for_some_time(self):
        node = self.start("1", "--hold", "300ms")
        node.next("joined")
        began = node.at
        self.assertEqual(node.wait(), OK)
        self.assertGreater(time.monotonic() - began, 0.29)
        self.assertEqual(self.status()["participants"], [])

    def test_keep_alive(self):
        # No living node is lost, for longer than the expiry.
        nodes = [self.start("2", "--hold", "0",
                            conf="keep_alive_interval=200ms,keep_alive_max_attempt=3")
                 for _ in range(2)]
        for node in nodes:
            node.next("joined")
        with self.assertRaisesRegex(AssertionError, "no further line"):
            nodes[0].next_text(timeout=2)
        ages = [member["heartbeat_age_ms"] for member in self.status()["participants"]]
        self.assertEqual(len(ages), 2)
        self.assertLess(max(ages), 600)

    def test_stopped_is_expelled(self):
        nodes = [self.start("1:2", "--hold", "0", "--rejoin") for _ in range(2)]
        lines = [node.until_joined(2) for node in nodes]
        nodes[1].signal(signal.SIGSTOP)
        self.assertEqual(nodes[0].until("lost")["nodes"], [lines[1]["node"]])
        alone = nodes[0].until("joined")
        self.assertEqual(alone["world_size"], 1)
        nodes[1].signal(signal.SIGCONT)
        # It was counted as dead, is told so, and comes back.
        nodes[1].until("expelled")
        both = [node.until_joined(2) for node in nodes]
        self.assertGreater(both[0]["round"], alone["round"])


class Command(Case):
    def test_environment_and_exit_status(self):
        script = ('echo "$RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $MUSTER_ROUND '
                  '$TORCHELASTIC_USE_AGENT_STORE $TORCHELASTIC_RESTART_COUNT $RANK_FILE"; '
                  f'until test -e {self.directory}/go$RANK; do sleep 0.02; done; '
                  'test $RANK = 0 && exit 0; exit 41')
        with unittest.mock.patch.dict(os.environ, {"RANK": "7", "RANK_FILE": "ours"}):
            nodes = [self.start("2", "--local-addr", name, "--", "sh", "-c", script)
                     for name in ("a", "b")]
        for rank, node in enumerate(nodes):
            line = node.next("joined")
            self.assertEqual(line["rank"], rank)
            said = node.next_text().split()
            self.assertEqual(said[:5], [str(rank), "2", "a", str(line["master_port"]), "0"])
            self.assertIn(said[5], ("True", "False"))
            self.assertEqual(said[6:], ["0", "ours"])
        # The first one has done its part: it is gone, and the other one goes on.
        self.let_go(0)
        self.assertEqual(nodes[0].wait(), OK)
        self.let_go(1)
        self.assertEqual(nodes[1].wait(), 41)
        self.assertEqual(len(nodes[1].texts), 2)  # no node was lost

    def test_server_stays(self):
        """The serving node is done first and stays until the other one has reported its end."""
        for backend in ("muster", "c10d"):
            with self.subTest(backend=backend):
                endpoint = f"127.0.0.1:{harness.free_port()}"
                args = ("--rdzv-backend", backend, "--rdzv-endpoint", endpoint, "--rdzv-id", "job",
                        "--nnodes", "2", "--")
                path = os.path.join(self.directory, f"{backend}.done")
                serves = Node(*args, "true")
                self.addCleanup(serves.close)
                self.assertIn(b"is serving on", serves.process.stderr.readline())
                other = Node(*args, "sh", "-c", f"until test -e {path}; do sleep 0.02; done")
                self.addCleanup(other.close)
                for node in (serves, other):
                    node.next("joined")
                self.assertIn(b"stays until they are done", serves.process.stderr.readline())
                with open(path, "wb"):
                    pass
                self.assertEqual(other.wait(), OK)
                self.assertEqual(other.stderr, "")
                self.assertEqual(serves.next("closed")["outcome"], "finished")
                self.assertEqual(serves.wait(), OK)

    def test_failed_server_stays(self):
        """A node that serves and fails does not take the others along: they go on without it, or
        learn why the job has failed."""
        for backend, (restarts, count) in itertools.product(("muster", "c10d"),
                                                            ((1, 2), (1, 1), (0, 2))):
            with self.subTest(backend=backend, restarts=restarts, count=count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", 0))
                    endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
                args = ("--rdzv-backend", backend, "--rdzv-endpoint", endpoint, "--rdzv-id", "job",
                        "--nnodes", f"{count}:3", "--rejoin", "--rdzv-conf",
                        f"{QUICK},max_restarts={restarts}", "--", "sh", "-c")
                fail, done = (os.path.join(self.directory, f"{backend}{restarts}{count}.{name}")
                              for name in ("fail", "done"))
                serves = Node(*args, f"until test -e {fail}; do sleep 0.02; done; exit 3")
                self.addCleanup(serves.close)
                self.assertIn(b"is serving on", serves.process.stderr.readline())
                others = [Node(*args, f"until test -e {done}; do sleep 0.02; done")
                          for _ in range(count)]
                for node in others:
                    self.addCleanup(node.close)
                for node in (serves, *others):
                    node.until_joined(count + 1)
                open(fail, "wb").close()
                for node in others:
                    self.assertEqual(node.until("failed")["exit_status"], 3)
                    if restarts > 0:
                        node.until_joined(count)
                    else:
                        self.assertEqual(node.until("closed")["outcome"], "failed")
                if restarts > 0:
                    self.assertIn(b"stays until they are done", serves.process.stderr.readline())
                open(done, "wb").close()
                for node in (*others, serves):
                    self.assertEqual(node.wait(), 3 if node is serves else OK, node.stderr)

    def let_go(self, rank):
        with open(os.path.join(self.directory, f"go{rank}"), "wb"):
            pass

    def test_failed_command(self):
        # A failed node is lost to the others, and they are told why.
        for end, code, how in (("exit 3", 3, ("exit_status", 3)),
                               ("kill -9 $$", 128 + signal.SIGKILL, ("signal", 9))):
            with self.subTest(end=end):
                script = f"test $RANK = 0 && {end}; exec sleep 600"
                nodes = [self.start("2", "--local-addr", name, "--", "sh", "-c", script, run_id=end)
                         for name in ("a", "b")]
                names = [node.next("joined")["node"] for node in nodes]
                self.assertEqual(nodes[0].wait(), code)
                failed = nodes[1].next("failed")
                self.assertEqual((failed["node"], failed["rank"], failed.get(how[0]),
                                  failed["text"]), (names[0], 0, how[1], "sh"))
                self.assertEqual(nodes[1].next("lost")["nodes"], names[:1])
                self.assertEqual(nodes[1].wait(), CHANGED)

    def test_processes_left_behind(self):
        """What a stopped command has started ends with it, also if it ignores the signal."""
        node = self.start("1", "--", "sh", "-c",
                          "trap '' TERM; sleep 600 >/dev/null 2>&1 & trap - TERM; echo $!; wait")
        node.next("joined")
        left = int(node.next_text())
        self.addCleanup(lambda: is_running(left) and os.kill(left, signal.SIGKILL))
        node.signal(signal.SIGTERM)
        self.assertEqual(node.wait(), 128 + signal.SIGTERM)
        harness.wait_until(lambda: not is_running(left), "the end of the process")

    def test_outage_is_over(self):
        """A server that was away for a moment hears how the command has ended."""
        go = os.path.join(self.directory, "go")
        node = Node("--rdzv-endpoint", self.endpoint, "--rdzv-id", "job", "--nnodes", "1",
                    "--rdzv-conf", QUICK, "--", "sh", "-c",
                    f"until test -e {go}; do sleep 0.02; done")
        self.addCleanup(node.close)
        node.next("joined")
        self.server.kill()
        node.until("unreachable")
        self.server = harness.Server("--port", self.server.port)
        self.addCleanup(self.server.kill)
        node.until("reachable")
        open(go, "wb").close()
        self.assertEqual(node.wait(), OK, node.stderr)
        self.assertNotIn("were not told", node.stderr)

    def test_killed_command(self):
        self.expect(self.run_join("1", "--", "sh", "-c", "kill -KILL $$"), 128 + signal.SIGKILL)

    def test_no_command(self):
        result = self.run_join("1", "--", "./not-there")
        self.expect(result, 127, "not-there", "No such file")
        self.expect(self.run_join("1", "--", "/"), 126, "run '/'", "denied")

    def test_stopped_and_started_again(self):
        script = "trap 'echo bye; exit 0' TERM; echo up $RANK $WORLD_SIZE; sleep 600 & wait"
        nodes = [self.start("1:3", "--rejoin", "--", "sh", "-c", script)]
        nodes[0].next("joined")
        self.assertEqual(nodes[0].next_text(), "up 0 1\n")
        nodes.append(self.start("1:3", "--rejoin", "--", "sh", "-c", script))
        nodes[0].next("waiting")
        self.assertEqual(nodes[0].next_text(), "bye\n")
        for node in nodes:
            line = node.next("joined")
            self.assertEqual((line["round"], line["world_size"]), (1, 2))
            self.assertEqual(node.next_text(), f"up {line['rank']} 2\n")
        # A signal stops the command, and its exit status is ours.
        nodes[1].signal(signal.SIGTERM)
        self.assertEqual(nodes[1].next_text(), "bye\n")
        self.assertEqual(nodes[1].wait(), OK)
        nodes[0].next("lost")
        self.assertEqual(nodes[0].next_text(), "bye\n")
        self.assertEqual(nodes[0].next("joined")["world_size"], 1)
        # Killed, it would leave the command's own child behind, and with it this pipe open.
        self.assertEqual(nodes[0].next_text(), "up 0 1\n")
        nodes[0].signal(signal.SIGTERM)
        self.assertEqual(nodes[0].next_text(), "bye\n")
        self.assertEqual(nodes[0].wait(), OK)

    def test_changed_without_rejoin(self):
        node = self.start("1:2", "--", "sh", "-c", "echo up; exec sleep 600")
        node.next("joined")
        self.assertEqual(node.next_text(), "up\n")
        late = self.start("1:2", "--hold", "0")
        node.next("waiting")
        self.assertEqual(node.wait(), CHANGED)
        self.assertIn("--rejoin", node.stderr)
        self.assertEqual(late.next("joined")["world_size"], 1)

    def test_stubborn_command(self):
        # It ignores SIGTERM, and so does what it has started.
        script = "trap '' TERM; sleep 600 & echo $!; wait; wait; sleep 600"
        node = self.start("1", "--stop-timeout", "200ms", "--", "sh", "-c", script)
        node.next("joined")
        helper = int(node.next_text())
        began = time.monotonic()
        node.signal(signal.SIGTERM)
        self.assertEqual(node.wait(), 128 + signal.SIGKILL)
        self.assertGreater(time.monotonic() - began, 0.19)
        harness.wait_until(lambda: not is_running(helper), "the end of the whole group")

    def test_dies_with_us(self):
        node = self.start("1", "--", "sh", "-c", "echo $$; exec sleep 600")
        node.next("joined")
        command = int(node.next_text())
        self.assertNotEqual(os.getpgid(command), os.getpgid(node.process.pid))
        node.signal(signal.SIGKILL)
        harness.wait_until(lambda: not is_running(command), "the end of the command")

    def test_closed_runs_on(self):
        path = os.path.join(self.directory, "go")
        script = f"until test -e {path}; do sleep 0.02; done; exit 7"
        node = self.start("1", "--rejoin", "--", "sh", "-c", script)
        node.next("joined")
        self.expect(self.close_rendezvous(), OK)
        node.next("closed")
        with open(path, "wb"):
            pass
        self.assertEqual(node.wait(), 7)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def catches(pid, number):
    """Whether the process has a handler for the signal."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        mask = int(re.search(r"SigCgt:\s+([0-9a-f]+)", file.read()).group(1), 16)
    return mask >> (number - 1) & 1 == 1


class Ends(Case):
    def test_close(self):
        nodes = [self.start("2", "--hold", "0"), self.start("2", "--hold", "0", "--rejoin")]
        for node in nodes:
            node.next("joined")
        self.expect(self.close_rendezvous(), OK)
        for node in nodes:
            self.assertEqual(node.next_text(), '{"event":"closed"}\n')
            self.assertEqual(node.wait(), CLOSED)
        self.expect(self.close_rendezvous(), OK)  # again
        result = self.run_join("1")
        self.expect(result, CLOSED, "closed")
        self.assertEqual(json.loads(result.stdout),
                         {"event": "closed", "error": "rendezvous 'job': it is closed"})

    def test_close_while_joining(self):
        node = self.start("2")
        harness.wait_until(lambda: self.status()["participants"], "a participant")
        self.expect(self.close_rendezvous(), OK)
        self.assertEqual(node.wait(), CLOSED)

    def test_close_spare(self):
        node = self.start("1", "--hold", "0")
        node.next("joined")
        spare = self.start("1", "--hold", "0")
        harness.wait_until(lambda: self.status()["spares"], "a spare")
        self.expect(self.close_rendezvous(), OK)
        self.assertEqual(spare.wait(), SPARE)
        self.assertEqual(node.wait(), CLOSED)

    def test_close_option(self):
        self.expect(self.run_join("1", "--close"), OK)
        status = self.status()
        self.assertTrue(status["closed"])
        self.assertEqual(status["participants"], [])

    def test_close_nothing(self):
        self.expect(self.close_rendezvous("misspelt"), ABSENT, "no rendezvous 'misspelt'")
        self.assertEqual(
            harness.run("store", "num-keys", self.server.url()).stdout, b"0\n")

    def test_timeout(self):
        began = time.monotonic()
        result = self.run_join("2", conf="join_timeout=300ms")
        self.assertGreater(time.monotonic() - began, 0.29)
        self.expect(result, TIMEOUT)
        self.assertEqual(result.stdout, b"")
        self.assertEqual(self.status()["participants"], [])  # it has taken itself out

    def test_signal_while_joining(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            node = self.start("2")
            harness.wait_until(lambda: self.status()["participants"], "a participant")
            node.signal(number)
            self.assertEqual(node.wait(), 128 + number)
            self.assertEqual(self.status()["participants"], [])

    def test_second_signal(self):
        # The store hangs, so leaving would take long; a second signal ends the node at once.
        node = self.start("1", "--hold", "0")
        node.next("joined")
        self.server.signal(signal.SIGSTOP)
        try:
            node.signal(signal.SIGTERM)
            harness.wait_until(lambda: not catches(node.process.pid, signal.SIGTERM),
                               "the node to leave")
            node.signal(signal.SIGTERM)
            self.assertEqual(node.wait(), -signal.SIGTERM)
        finally:
            self.server.signal(signal.SIGCONT)

    def test_no_store(self):
        with socket.socket() as bound:  # and nobody listens
            bound.bind(("127.0.0.1", 0))
            endpoint = f"127.0.0.1:{bound.getsockname()[1]}"
            result = harness.run(
                "join", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "job",
                "--nnodes", "1",
                "--rdzv-conf", "is_host=false,join_timeout=500ms,read_timeout=500ms")
        self.assertIn(result.returncode, (CONNECT, TIMEOUT))
        self.assertIn(endpoint, result.stderr.decode())

    def test_store_goes(self):
        # The store dies: all nodes report it by name, and end when it does not come back.
        nodes = [self.start("2", "--hold", "0", conf=QUICK + ",read_timeout=1") for _ in range(2)]
        for node in nodes:
            node.next("joined")
        self.server.kill()
        for node in nodes:
            self.assertIn(self.endpoint, node.next("unreachable")["error"])
            self.assertEqual(node.wait(), CONNECT)
            self.assertIn(self.endpoint, node.stderr)

    def test_store_goes_before_the_command(self):
        # The command runs to its end, and the node does not wait for the missing store.
        node = self.start("1", "--", "sh", "-c",
                          f"until test -e {self.directory}/go; do sleep 0.02; done; exit 7")
        node.next("joined")
        self.server.kill()
        node.next("unreachable")
        with open(os.path.join(self.directory, "go"), "wb"):
            pass
        began = time.monotonic()
        self.assertEqual(node.wait(), 7)
        self.assertLess(time.monotonic() - began, 2)

    def test_no_record(self):
        stored = harness.run("store", "set", self.server.url(), "torch.rendezvous.job", "nonsense")
        self.assertEqual(stored.returncode, OK)
        self.expect(self.run_join("1"), STATE)
        self.expect(self.close_rendezvous(), STATE, "not a rendezvous")

    def test_reader_goes(self):
        # Without a reader of its lines it leaves the group, and says why.
        with open("/dev/full", "wb") as full:
            result = subprocess.run(
                [harness.MUSTER, "join", *self.options("1"), "--hold", "0"], stdout=full,
                stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=harness.DEADLINE_S)
        self.expect(result, 1, "standard output")
        self.assertEqual(self.status()["participants"], [])

    def test_names(self):
        """Nodes that agree in host name and process id, as those of containers do, have different
        names: neither expels the other."""
        for backend in ("muster", "c10d"):
            with self.subTest(backend=backend):
                ids = set()
                for run in range(3):
                    result = harness.run(
                        "join", "--rdzv-backend", backend, "--rdzv-endpoint", self.endpoint,
                        "--rdzv-id", f"names-{backend}-{run}", "--nnodes", "1",
                        "--local-addr", "same")
                    self.expect(result, OK)
                    node = json.loads(result.stdout)["node"]
                    number = re.fullmatch(r"same_\d+_(\d+)", node)
                    self.assertIsNotNone(number, node)
                    self.assertLess(int(number.group(1)), 2**31)
                    ids.add(number.group(1))
                self.assertEqual(len(ids), 3, ids)

    def test_events(self):
        path = os.path.join(self.directory, "events")
        self.expect(self.run_join("1", "--events", path), OK)
        with open(path, encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
        joined = [event for event in events if event["name"] == "next_rendezvous"]
        self.assertEqual((joined[-1]["node_state"], joined[-1]["rank"]), ("RUNNING", 0))
        self.assertEqual({event["run_id"] for event in events}, {"job"})
        self.expect(
            self.run_join("1", "--events", os.path.join(self.directory, "none", "events")), 1,
            "--events")

    def test_usage(self):
        given = ("--rdzv-id", "job", "--nnodes", "1")
        for args, said in (
            (("--nnodes", "1"), "--rdzv-id is missing"),
            (("--rdzv-id", "job"), "--nnodes is missing"),
            (("--rdzv-id", "job", "--nnodes", "1:x"), "--nnodes 1:x"),
            (("--rdzv-id", "job", "--nnodes", "3:2"), "2"),
            (("--rdzv-id", "job", "--nnodes", "0"), "0"),
            ((*given, "--rejoin"), "--rejoin makes sense"),
            ((*given, "--hold", "1", "--", "true"), "exclude each other"),
            ((*given, "--hold", "1", "--stop-timeout", "1s"), "--stop-timeout makes sense"),
            ((*given, "--hodl", "1"), "did you mean --hold?"),
            ((*given, "--rdzv-backend", "c10"), "c10d"),
            ((*given, "--rdzv-conf", "join_timeot=3"), "join_timeout"),
            ((*given, "--rdzv-conf", "join_timeout=soon"), "join_timeout"),
            ((*given, "--rdzv-conf", "join_timeout"), "join_timeout"),
            ((*given, "--rdzv-endpoint", "host:99999"), "port"),
            ((*given, "--log-level", "loud"), "--log-level"),
        ):
            with self.subTest(args=args):
                self.expect(harness.run("join", *args), USAGE, said)
        for command in ("join", "close"):
            with self.subTest(command=command):
                result = harness.run(command, "--help")
                self.expect(result, OK)
                self.assertIn(b"--rdzv-endpoint", result.stdout)

    def test_demo(self):
        began = time.monotonic()
        result = harness.run("demo", timeout=30)
        self.expect(result, OK)
        self.assertLess(time.monotonic() - began, 15)
        story = result.stdout.decode()
        for rank in range(4):
            self.assertIn(f"I am rank {rank} of 4", story)
        killed = re.search(r"kill -9 (node [A-D])", story).group(1)
        self.assertEqual(story.count(f"{killed} is gone"), 3)
        for rank in range(3):
            self.assertIn(f"I am rank {rank} of 3", story)
        newcomer = story[story.index("a newcomer starts"):]
        self.assertRegex(newcomer, r"node E +round \d+ is complete: I am rank \d of 4")
        self.assertEqual(newcomer.count("closed: I am done"), 4)


class Silence(Case):
    """The server hangs: it accepts connections and answers nothing. Nodes with a command end."""

    LEAVE_S = 5 * harness.SLOWNESS
    TELL_S = 10 + LEAVE_S

    def check(self, script, end, limit_s, statuses, *words):
        """Two nodes for each backend, which run the script when the server hangs; then end()."""
        nodes = [Node("--rdzv-backend", backend, "--rdzv-endpoint", self.endpoint, "--rdzv-id",
                      f"job-{backend}", "--nnodes", "2", "--", "sh", "-c",
                      f"echo started; {script}")
                 for backend in ("muster", "c10d") for _ in range(2)]
        for node in nodes:
            self.addCleanup(node.close)
        for node in nodes:
            node.next("joined")
            self.assertEqual(node.next_text(), "started\n")
        self.server.signal(signal.SIGSTOP)
        try:
            since = time.monotonic()
            end(nodes)
            found = []
            for node in nodes:
                found.append(node.wait())
                self.assertLess(time.monotonic() - since, limit_s, node.stderr)
                for word in words:
                    self.assertIn(word, node.stderr)
            self.assertEqual(sorted(found), statuses)
        finally:
            self.server.signal(signal.SIGCONT)

    def test_signal(self):
        def end(nodes):
            for node in nodes:
                node.signal(signal.SIGTERM)
        self.check("exec sleep 1000", end, self.LEAVE_S, [128 + signal.SIGTERM] * 4)

    def test_end(self):
        """The status of the command counts, and a warning names the server."""
        go = os.path.join(self.directory, "go")
        self.check(f"until test -e {go}; do sleep 0.02; done; exit $RANK",
                   lambda nodes: os.mkdir(go), self.TELL_S, [0, 0, 1, 1],
                   "the command has ended, and the others were not told: the rendezvous at "
                   f"{self.endpoint} could not be reached")


if __name__ == "__main__":
    harness.main()
