"""`muster-bench` against `muster serve`, the floor, and servers that answer nonsense."""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import harness

OPS = ["set", "get", "add", "check", "compare_set", "set_get"]
SHORT = ["--connections", "4", "--duration", "50ms", "--warmup", "10ms"]
# What `muster-bench rendezvous --json` has with every backend, be it null.
FIGURES = ["join_s", "floor_s", "notice_s", "reform_s", "steady_cpu_pct", "steady_bytes_per_s",
           "requests_per_node", "watches_per_node"]


def run(*args):
    return harness.run(*args, program=harness.BENCH)


def bench(port, *args):
    return run("store", "--port", port, *args)


def results(done):
    if done.returncode != 0:
        raise AssertionError(f"exit {done.returncode}: {done.stderr.decode()}")
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


class FakeServer:
    """Answers the requests of each connection with the replies given, one per recv()."""

    def __init__(self, *replies):
        self.replies = replies
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection:
            try:
                for reply in self.replies:
                    request = connection.recv(65536)
                    if not request:
                        return
                    connection.sendall(reply(request) if callable(reply) else reply)
            except ConnectionError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(harness.DEADLINE_S)


class Load(unittest.TestCase):
    def check_result(self, result, op, connections, depth):
        self.assertEqual(result["bench"], "store.load")
        self.assertEqual(result["op"], op)
        self.assertEqual(result["connections"], connections)
        self.assertEqual(result["depth"], depth)
        self.assertEqual(result["value_size"], 64)
        self.assertEqual(result["errors"], 0)
        self.assertGreater(result["ops"], 0)
        self.assertGreater(result["seconds"], 0)
        # Both figures are rounded where they are printed.
        self.assertAlmostEqual(result["ops_per_s"] * result["seconds"] / result["ops"], 1, 3)
        self.assertGreater(result["p50_us"], 0)
        self.assertLessEqual(result["p50_us"], result["p99_us"])
        self.assertLessEqual(result["p99_us"], result["max_us"])

    def test_every_operation_in_both_dialects(self):
        with harness.Server() as server, server.connect("C") as wire:
            for protocol in ("torch-c", "torch-a"):
                with self.subTest(protocol=protocol):
                    found = results(bench(server.port, "--protocol", protocol, "--op", "all",
                                          "--json", "--label", "me", *SHORT))
                    self.assertEqual([r["op"] for r in found], OPS)
                    for result in found:
                        self.check_result(result, result["op"], 4, 1)
                        self.assertEqual(result["server"], "me")
                        self.assertEqual(result["protocol"], protocol)
                        self.assertNotIn("server_cpu_us_per_op", result)
                    self.assertEqual(wire.num_keys(), 0, "keys were left behind")

    def test_counts_what_the_server_does(self):
        """The server's own counter of ADDs tells how many were really done."""
        with harness.Server() as server:
            (result,) = results(bench(server.port, "--op", "add", "--connections", "4", "--depth",
                                      "5", "--requests", "1000", "--warmup", "0", "--json"))
            server.signal(signal.SIGUSR1)
            (line,) = server.wait_log("server.ops ", "add=")
            done = int(re.search(r" add=(\d+)", line).group(1))
        self.assertGreaterEqual(result["ops"], 1000)
        self.assertGreaterEqual(done, result["ops"])
        # At most what was under way at the beginning and at the end has not been counted.
        self.assertLessEqual(done, result["ops"] + 2 * 4 * 5)

    def test_warmup_does_not_count(self):
        with harness.Server() as server:
            (result,) = results(bench(server.port, "--op", "add", "--connections", "1",
                                      "--requests", "10", "--warmup", "100ms", "--json"))
        self.assertEqual(result["ops"], 10)

    def test_many_at_once(self):
        with harness.Server() as server:
            found = results(bench(server.port, "--op", "get", "--op", "add", "--depth", "16",
                                  "--json", *SHORT))
            self.assertEqual([r["op"] for r in found], ["get", "add"])
            for result in found:
                self.check_result(result, result["op"], 4, 16)

    def test_values_larger_than_a_socket_buffer(self):
        with harness.Server() as server:
            (result,) = results(bench(server.port, "--op", "compare_set", "--value-size", "3M",
                                      "--connections", "2", "--requests", "4", "--warmup", "0",
                                      "--json"))
            self.assertEqual(result["errors"], 0)
            self.assertGreaterEqual(result["ops"], 4)
            self.assertEqual(result["value_size"], 3 << 20)

    def test_cost_of_the_server(self):
        with harness.Server() as server:
            (result,) = results(bench(server.port, "--op", "get", "--server-pid", server.pid,
                                      "--json", *SHORT))
            self.assertGreater(result["server_cpu_us_per_op"], 0)
            self.assertGreater(result["client_cpu_us_per_op"], 0)
            self.assertGreater(result["rss_kib"], 0)
            # One thread cannot use more than the time that has passed.
            self.assertLessEqual(result["server_cpu_s"], 1.05 * result["seconds"])

    def test_table(self):
        with harness.Server() as server:
            done = bench(server.port, "--op", "get", "--op", "add", "--label", "ours", *SHORT)
            self.assertEqual(done.returncode, 0, done.stderr)
            head, get, add = done.stdout.decode().splitlines()
            self.assertEqual(head.split()[:2], ["server", "op"])
            self.assertEqual(get.split()[:2], ["ours", "get"])
            self.assertEqual(add.split()[:2], ["ours", "add"])

    def test_floor(self):
        path = os.path.join(os.path.dirname(harness.MUSTER), "bench", "floor")
        if not os.access(path, os.X_OK):
            self.skipTest(f"no {path}")
        with tempfile.TemporaryDirectory() as directory:
            port_file = os.path.join(directory, "port")
            process = subprocess.Popen([path, port_file], stdin=subprocess.DEVNULL)
            try:
                harness.wait_until(lambda: os.path.exists(port_file), "the floor's port")
                with open(port_file, encoding="ascii") as file:
                    port = int(file.read())
                found = results(bench(port, "--protocol", "floor", "--op", "all", "--depth", "3",
                                      "--storm", "50", "--json", *SHORT))
                self.assertEqual([r["op"] for r in found], ["storm", *OPS])
                self.assertEqual(sum(r["errors"] for r in found), 0)
            finally:
                process.kill()
                process.wait()


class Crowd(unittest.TestCase):
    def test_storm(self):
        with harness.Server() as server, server.connect("C") as wire:
            for protocol in ("torch-c", "torch-a"):
                with self.subTest(protocol=protocol):
                    (result,) = results(bench(server.port, "--storm", "300", "--protocol",
                                              protocol, "--server-pid", server.pid, "--json"))
                    self.assertEqual(result["bench"], "store.storm")
                    self.assertEqual(result["connections"], 300)
                    self.assertEqual(result["ops"], 300)
                    self.assertGreater(result["seconds"], 0)
                    self.assertGreater(result["server_cpu_s"], 0)
                    # The slowest was released when it was over.
                    self.assertLessEqual(result["max_us"], result["seconds"] * 1e6 + 1)
                    self.assertEqual(wire.num_keys(), 0, "keys were left behind")

    def test_idle_connections_are_there(self):
        with harness.Server("--log-level", "debug") as server:
            found = results(bench(server.port, "--idle", "100", "--memory", "--op", "get",
                                  "--server-pid", server.pid, "--json", *SHORT))
            memory, load = found
            self.assertEqual(memory["bench"], "store.memory")
            self.assertEqual(memory["idle"], 100)
            self.assertIn("rss_per_connection_bytes", memory)
            self.assertGreaterEqual(memory["rss_kib"], memory["rss_before_kib"])
            self.assertEqual(load["idle"], 100)
        with harness.Server("--max-connections", "50") as server:
            done = bench(server.port, "--idle", "100", "--op", "get", *SHORT)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn(b"idle connections", done.stderr)


class Failures(unittest.TestCase):
    def expect(self, done, code, *needles):
        self.assertEqual(done.returncode, code, done.stderr)
        for needle in needles:
            self.assertIn(needle, done.stderr.decode())

    def test_nobody_listens(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))  # bound and not listening: refused
            port = holder.getsockname()[1]
            self.expect(bench(port), 5, f"connect to '127.0.0.1:{port}'")

    def test_server_speaks_something_else(self):
        with FakeServer(b"-ERR unknown command\r\n") as fake:
            self.expect(bench(fake.port), 1, "--protocol", f"127.0.0.1:{fake.port}")

    def test_server_hangs_up(self):
        with FakeServer(lambda request: request[6:10]) as fake:  # greets and leaves
            self.expect(bench(fake.port, "--connections", "1"), 5, f"127.0.0.1:{fake.port}")

    def test_wrong_values_are_noticed(self):
        right = harness.field(bytes(ord("a") + i % 26 for i in range(64)))
        wrong = harness.field(b"a" * 64)
        greeting = lambda request: request[6:10]
        with FakeServer(greeting, b"\x00", right, right, wrong) as fake:
            self.expect(bench(fake.port, "--connections", "1", "--op", "get"), 1,
                        "unexpected answer")

    def test_usage(self):
        for args in (
            ["sundial", "--port", "1"],
            ["rendezvous", "--port", "1"],
            ["rendezvous", "--nodes", "1", "--death"],
            ["store"],
            ["store", "--port", "1", "--op", "fly"],
            ["store", "--port", "1", "--protocol", "http"],
            ["store", "--port", "1", "--memory"],
            ["store", "--port", "1", "--depth", "0"],
            [],
        ):
            with self.subTest(args=args):
                done = run(*args)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertTrue(done.stderr)

    def test_help(self):
        for args, usage in (((), "muster-bench store"), (("store",), "muster-bench store --port"),
                            (("rendezvous",), "muster-bench rendezvous [options]")):
            with self.subTest(args=args):
                done = run(*args, "--help")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"Usage: {usage}", done.stdout.decode())

    def test_output_that_nobody_can_write(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([harness.BENCH, "rendezvous", "--nodes", "2", "--steady", "0"],
                                  stdout=full, stderr=subprocess.PIPE, timeout=harness.DEADLINE_S)
        self.expect(done, 1, "cannot write to standard output")

    def test_no_such_process(self):
        with harness.Server() as server:
            child = subprocess.Popen(["true"])
            child.wait()  # its number is free again, and not soon given away
            done = bench(server.port, "--server-pid", child.pid, "--op", "get", *SHORT)
            self.expect(done, 1, str(child.pid))


class Meetings(unittest.TestCase):
    def meet(self, server, *args):
        return self.rendezvous("--rdzv-backend", "c10d", "--rdzv-endpoint",
                               f"127.0.0.1:{server.port}", "--steady", "0", *args)

    def rendezvous(self, *args):
        done = run("rendezvous", "--json", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        (result,) = results(done)
        self.assertEqual(result["bench"], "rendezvous")
        for name in FIGURES:
            self.assertIsInstance(result[name], (int, float, type(None)), name)
        return result

    def assert_measured(self, result, *names):
        """These have a figure, the others are null."""
        self.assertEqual({name for name in FIGURES if result[name] is not None}, set(names))

    def test_rendezvous(self):
        with harness.Server() as server:
            result = self.meet(server, "--nodes", "6", "--rdzv-conf", "is_host=false")
            self.assertEqual(result["nodes"], 6)
            self.assertGreater(result["seconds"], 0)
            self.assertNotIn("told_seconds", result)

    def test_figures_at_a_server(self):
        """Figures that were not requested or cannot be known are null."""
        always = ("join_s", "requests_per_node", "watches_per_node")
        with harness.Server() as server:
            for backend, conf in (("c10d", "is_host=false,keep_alive_interval=50ms"),
                                  ("muster", "is_host=false,keep_alive_interval=50ms")):
                with self.subTest(backend=backend):
                    words = ("--backend", backend, "--rdzv-endpoint", f"127.0.0.1:{server.port}",
                             "--nodes", "4", "--rdzv-conf", conf)
                    result = self.rendezvous(*words, "--steady", "0")
                    self.assertEqual(result["backend"], backend)
                    self.assert_measured(result, *always)
                    # A question, and what the node says of itself or stores.
                    self.assertGreaterEqual(result["requests_per_node"], 2)
                    result = self.rendezvous(*words, "--steady", "400ms", "--floor",
                                             "--server-pid", str(server.pid))
                    self.assert_measured(result, *always, "floor_s", "steady_cpu_pct",
                                         "steady_bytes_per_s")
                    self.assertGreater(result["floor_s"], 0)
                    # Eight times in this time each has told that it lives.
                    self.assertGreater(result["steady_bytes_per_s"], 10)
                    self.assertGreater(result["steady_cpu_pct"], 0)
                    if backend == "muster":
                        self.assertEqual(result["watches_per_node"], 0)
                    result = self.rendezvous(*words, "--death", "--steady", "0", "--rdzv-conf",
                                             "last_call_timeout=100ms")
                    self.assert_measured(result, *always, "notice_s", "reform_s")

    def test_figures_with_a_server_of_its_own(self):
        result = self.rendezvous("--nodes", "20", "--steady", "0")
        figures = ("join_s", "notice_s", "reform_s", "requests_per_node", "watches_per_node")
        self.assert_measured(result, *figures)
        self.assertEqual(result["backend"], "muster")
        self.assertEqual(result["requests_per_node"], 2)
        self.assertEqual(result["watches_per_node"], 0)
        result = self.rendezvous("--nodes", "20", "--steady", "100ms", "--floor")
        self.assert_measured(result, *figures, "floor_s", "steady_cpu_pct", "steady_bytes_per_s")

    def test_figures_alone(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        result = self.rendezvous("--backend", "static", "--rdzv-endpoint", f"127.0.0.1:{port}",
                                 "--rdzv-conf", "rank=0", "--nodes", "1", "--steady", "10ms")
        self.assert_measured(result, "join_s", "requests_per_node", "watches_per_node",
                             "steady_bytes_per_s")

    def test_server_pid(self):
        done = run("rendezvous", "--nodes", "2", "--server-pid", "1")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"--rdzv-endpoint", done.stderr)
        child = subprocess.Popen(["true"])
        child.wait()  # its number is free again, and not soon given away
        with harness.Server() as server:
            done = run("rendezvous", "--nodes", "2", "--rdzv-endpoint", f"127.0.0.1:{server.port}",
                       "--server-pid", str(child.pid), "--rdzv-conf", "is_host=false")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(str(child.pid).encode(), done.stderr)

    def test_rendezvous_death(self):
        """A death cannot be known before the expiry, minus the age of the last heartbeat."""
        with harness.Server() as server:
            conf = ("is_host=false,keep_alive_interval=200ms,keep_alive_max_attempt=3,"
                    "last_call_timeout=100ms")
            result = self.meet(server, "--nodes", "3", "--death", "--rdzv-conf", conf)
            self.assertGreater(result["told_seconds"], 0.35)
            self.assertGreater(result["reformed_seconds"], result["told_seconds"] + 0.1)

    def test_rendezvous_without_the_last(self):
        """A round that is sealed before the last node comes is not the round of all."""
        for _ in range(3):
            with self.subTest(), harness.Server() as server:
                conf = ("is_host=false,keep_alive_interval=200ms,keep_alive_max_attempt=3,"
                        "last_call_timeout=1ms,join_timeout=10")
                result = self.meet(server, "--nodes", "3", "--death", "--rdzv-conf", conf)
                self.assertGreater(result["told_seconds"], 0.35)

    def test_rendezvous_fails(self):
        with harness.Server() as server:
            done = run("rendezvous", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                       f"127.0.0.1:{server.port}", "--nodes", "2", "--rdzv-conf",
                       "is_host=false,state_dialect=D9")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(b"state_dialect", done.stderr)


if __name__ == "__main__":
    harness.main()
