#!/usr/bin/env python3
"""The metrics and health page of `muster serve --http`: its content, and that its clients, good
or bad, do not disturb the store."""

import contextlib
import http.client
import json
import os
import re
import resource
import signal
import socket
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import harness
from harness import Server
from test_job_frames import WELCOME, receive
from test_job_frames import Node as FrameNode

# What the build says it has; by hand, what the binary itself lists.
WITH_HTTP = os.environ.get("MUSTER_HTTP", "1" if b"--http" in harness.run(
    "serve", "--help").stdout else "0") == "1"

CONNECTIONS_MAX = 64  # of the page
RUN_ID_SIZE_MAX = 1024  # MST_JOB_RUN_ID_SIZE_MAX
SNAPSHOTS_MAX = 8  # of jobs, that are being sent
UNUSED = "127.0.0.77"  # an address of this machine where nothing else has the same port
needs_http = unittest.skipUnless(WITH_HTTP, "this muster was built without http")


class Page:
    """Where the page of a server is, and how to ask for it."""

    def __init__(self, server):
        match = harness.wait_until(
            lambda: re.search(r"^listening on http://(\S+):(\d+)$", server.stdout(), re.M),
            "the page's address on stdout")
        self.host = match[1].strip("[]")
        self.port = int(match[2])
        self.url = f"http://{match[1]}:{match[2]}"

    def open(self, path, method="GET", data=None):
        """(status, headers, body)"""
        request = urllib.request.Request(self.url + path, method=method, data=data)
        # No proxy of the environment stands between us and the server.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=harness.DEADLINE_S) as reply:
                return reply.status, reply.headers, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read().decode()

    def metrics(self):
        """The page's samples by name and labels: {'muster_ops_total{op="get"}': 3}"""
        status, headers, text = self.open("/metrics")
        assert status == 200, (status, text)
        return {name: float(value) if "." in value else int(value) for name, value in
                (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))}

    def connect(self):
        """A bare connection, with a deadline."""
        return harness.Wire((self.host, self.port))


@contextlib.contextmanager
def serve(*args, address="127.0.0.1:0", **more):
    with Server("--http", address, *args, **more) as server:
        yield server, Page(server)


def descriptors(server):
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def sockets(server):
    """How many of them the server has open."""
    count = 0
    for fd in os.listdir(f"/proc/{server.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            count += os.readlink(f"/proc/{server.pid}/fd/{fd}").startswith("socket:")
    return count


@contextlib.contextmanager
def paused(server):
    """Requests made in the block reach the server all at once."""
    def is_stopped():
        with open(f"/proc/{server.pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "T"

    server.signal(signal.SIGSTOP)
    try:
        harness.wait_until(is_stopped, "the server to pause")
        yield
    finally:
        server.signal(signal.SIGCONT)


def read_reply(wire):
    """All of a reply after which the server closes."""
    data = b""
    while True:
        part = wire.socket.recv(1 << 16)
        if not part:
            return data
        data += part


class Feature(unittest.TestCase):
    def test_option_is_there_or_says_why_not(self):
        listed = b"--http ADDRESS" in harness.run("serve", "--help").stdout
        self.assertEqual(listed, WITH_HTTP)
        for arguments in (["--http", "127.0.0.1:0"], ["--http=127.0.0.1:0"]):
            if WITH_HTTP:
                with Server(*arguments) as server:
                    Page(server)
                continue
            result = harness.run("serve", "--port", "0", *arguments)
            self.assertEqual(result.returncode, 2)
            self.assertIn(b"no option '--http': this muster was built without http",
                          result.stderr)
            self.assertEqual(result.stdout, b"")

    def test_off_unless_asked(self):
        with Server() as server:
            with server.connect("C") as wire:
                wire.sync()
            self.assertNotIn("http", server.stdout())


@needs_http
class Jobs(unittest.TestCase):
    """/jobs and /jobs/ID: the output of `muster status --json`."""

    def announce(self, server, run_id, names, nodes):
        for name in names:
            node = FrameNode(server, name=name, run_id=run_id)
            wire = node.connect()
            self.addCleanup(wire.close)
            node.announce(wire, nodes=nodes)
            receive(wire, WELCOME)

    def json(self, page, path, status=200):
        got, headers, text = page.open(path)
        self.assertEqual((got, headers["Content-Type"]), (status, "application/json"))
        return json.loads(text)

    @staticmethod
    def shown(server, *args):
        result = harness.run("status", "--json", "--rdzv-endpoint", f"127.0.0.1:{server.port}",
                             *args)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    @classmethod
    def timeless(cls, value):
        """Without what changes from one look to the next."""
        if isinstance(value, dict):
            return {name: cls.timeless(part) for name, part in value.items()
                    if name != "heartbeat_age_ms"}
        return [cls.timeless(part) for part in value] if isinstance(value, list) else value

    def test_one_after_the_other(self):
        """An answer that is sent makes room for the next, whatever it was."""
        with serve() as (server, page):
            self.announce(server, "job", ["n"], (2, 2))
            for path, status in (("/jobs", 200), ("/jobs/job", 200), ("/jobs/none", 404)) * (
                    SNAPSHOTS_MAX + 1):
                self.json(page, path, status)

    def test_same_as_status(self):
        with serve() as (server, page):
            self.assertEqual(self.json(page, "/jobs"), self.shown(server))
            self.announce(server, "job", ["n1", "n2", "s"], (2, 2))
            self.announce(server, "other", ["a"], (2, 2))
            self.assertEqual(self.json(page, "/jobs"), self.shown(server))
            self.assertEqual(self.json(page, "/jobs/"), self.json(page, "/jobs"))
            for job in ("job", "other"):
                self.assertEqual(self.timeless(self.json(page, f"/jobs/{job}")),
                                 self.timeless(self.shown(server, "--rdzv-id", job)))
            self.assertEqual(page.open("/jobs", method="HEAD")[0], 200)

    def check_schema(self, name, value, expected=()):
        """Every member is in the schema, and all that it requires are there."""
        with open(os.path.join(harness.ROOT, "docs", "jobs.schema.json"), encoding="utf-8") as file:
            part = json.load(file)["$defs"][name]
        self.assertEqual(set(value), set(part["required"]))
        self.assertEqual(set(part["properties"]) - set(part["required"]), set(expected))

    def test_schema(self):
        with serve() as (server, page):
            self.announce(server, "job", ["n"], (1, 1))
            job = self.json(page, "/jobs/job")
            self.check_schema("job", job, expected=["missing"])
            self.check_schema("node", job["participants"][0])
            jobs = self.json(page, "/jobs")
            self.check_schema("jobs", jobs)
            self.check_schema("entry", jobs["jobs"][0])
            self.check_schema("error", self.json(page, "/jobs/x", status=404))

    def test_ids_are_decoded(self):
        with serve() as (server, page):
            run_id = 'a/b c"?%é%41'
            self.announce(server, run_id, ["n"], (1, 1))
            told = self.json(page, "/jobs/" + urllib.parse.quote(run_id, safe=""))
            self.assertEqual(told["run_id"], run_id)
            self.assertEqual([job["run_id"] for job in self.json(page, "/jobs")["jobs"]],
                             [run_id])

    def test_longest_id(self):
        """An id that is longer than any is no job, also if it begins like one."""
        with serve() as (server, page):
            run_id = "x" * RUN_ID_SIZE_MAX
            self.announce(server, run_id, ["n"], (1, 1))
            self.assertEqual(self.json(page, "/jobs/" + run_id)["run_id"], run_id)
            self.json(page, "/jobs/" + run_id + "x", status=404)

    def test_unknown(self):
        with serve() as (server, page):
            self.announce(server, "training", ["n"], (1, 1))
            self.assertIn("similar: 'training'",
                          self.json(page, "/jobs/trainnig", status=404)["error"])
            for path in ("/jobs/%00x", "/jobs/%", "/jobs/%zz", "/jobs/training%"):
                self.json(page, path, status=404)

    def test_large_and_unread(self):
        """A large job is sent in parts; clients that do not read take a bounded number of
        places."""
        with serve() as (server, page):
            names = [f"n{i}" for i in range(300)]
            self.announce(server, "big", names, (300, 300))
            before = page.metrics()["muster_loop_turn_seconds_count"]
            size = len(page.open("/jobs/big")[2])
            turns = page.metrics()["muster_loop_turn_seconds_count"] - before
            self.assertGreater(turns, size // (16 << 10) + 3)  # beside those of the requests
            told = self.json(page, "/jobs/big")
            self.assertEqual([node["node"] for node in told["participants"]], names)
            wires = [page.connect() for _ in range(SNAPSHOTS_MAX)]
            for wire in wires:
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
                for _ in range(40):
                    wire.send(b"GET /jobs/big HTTP/1.1\r\nHost: x\r\n\r\n")
            harness.wait_until(lambda: page.open("/jobs")[0] == 503, "places to be taken")
            self.assertIn("ask again", self.json(page, "/jobs/big", status=503)["error"])
            self.assertEqual(page.open("/healthz")[0], 200)
            for wire in wires:
                wire.close()
            harness.wait_until(lambda: page.open("/jobs")[0] == 200, "places to be free")


@needs_http
class Pages(unittest.TestCase):
    def test_address_is_printed_and_logged(self):
        with serve() as (server, page):
            server.wait_log("ev=http.listening", f"address=127.0.0.1:{page.port}")
            self.assertNotEqual(page.port, server.port)

    def test_metrics_are_well_formed(self):
        """Every sample belongs to a metric that was described just before, once."""
        with serve() as (_, page):
            status, headers, text = page.open("/metrics")
            self.assertEqual(status, 200)
            self.assertEqual(headers["Content-Type"],
                             "text/plain; version=0.0.4; charset=utf-8")
            self.assertTrue(text.endswith("\n"))
            described, current = {}, None
            for line in text.splitlines():
                if line.startswith("# HELP "):
                    current = line.split(" ")[2]
                    self.assertNotIn(current, described)
                    described[current] = None
                elif line.startswith("# TYPE "):
                    _, _, name, kind = line.split(" ")
                    self.assertEqual(name, current)
                    self.assertIn(kind, ("gauge", "counter", "histogram"))
                    self.assertEqual(kind == "counter", name.endswith("_total"))
                    described[name] = 0
                else:
                    match = re.fullmatch(r'(\w+)(?:\{\w+="[^"\\]+"\})? (\d+|\d+\.\d+)', line)
                    self.assertIsNotNone(match, line)
                    self.assertIn(match[1], (current, f"{current}_bucket", f"{current}_sum",
                                             f"{current}_count"))
                    described[current] += 1
            for name in ("connections", "connections_accepted_total", "keys", "memory_bytes",
                         "memory_limit_bytes", "nodes", "received_bytes_total", "rendezvous",
                         "sent_bytes_total", "turn_steps_max", "waits_released_total", "build_info",
                         "rounds_total", "jobs_unlisted",
                         "loop_turn_seconds_max"):
                self.assertEqual(described.pop(f"muster_{name}"), 1, name)
            self.assertGreaterEqual(described.pop("muster_connections_closed_total"), 10)
            self.assertEqual(described.pop("muster_full"), 2)
            self.assertEqual(described.pop("muster_full_refused_total"), 2)
            self.assertGreaterEqual(described.pop("muster_ops_total"), 18)
            self.assertEqual(described.pop("muster_round_complete_seconds"), 12)
            self.assertEqual(described.pop("muster_loop_turn_seconds"), 8)
            self.assertEqual(described.pop("muster_nodes_standing"), 6)
            self.assertEqual(described.pop("muster_nodes_ended_total"), 9)
            self.assertEqual(described.pop("muster_restarts_total"), 1)
            self.assertEqual(described.pop("muster_jobs_closed_total"), 3)
            self.assertEqual(described, {})

    def test_metrics_count_what_happens(self):
        with serve("--max-memory", "64M") as (server, page):
            before = page.metrics()
            self.assertEqual(before["muster_memory_limit_bytes"], 64 << 20)
            self.assertEqual({name for name, value in before.items()
                              if value > 0 and "_loop_turn_" not in name},
                             {"muster_memory_limit_bytes",
                              next(n for n in before if n.startswith("muster_build_info{"))})

            one, two = server.connect("C"), server.connect("C")
            two.request("wait", ["/late"])
            for i in range(3):
                one.set(f"/key{i}", b"x" * 1000)
            for i in range(5):
                self.assertEqual(one.get("/key1"), b"x" * 1000)
            one.add("/n", 4)
            one.set("/late", "")
            two.expect("00")
            one.delete("/key0")
            now = page.metrics()
            wanted = {"set": 4, "get": 5, "add": 1, "wait": 1, "delete": 1}
            for name, value in now.items():
                if name.startswith("muster_ops_total"):
                    operation = re.search(r'op="(\w+)"', name)[1]
                    self.assertEqual(value, wanted.get(operation, 0), operation)
            self.assertEqual(now["muster_connections"], 2)
            self.assertEqual(now["muster_connections_accepted_total"], 2)
            self.assertEqual(now["muster_keys"], 4)
            self.assertEqual(now["muster_waits_released_total"], 1)
            self.assertGreater(now["muster_memory_bytes"], 2000)
            self.assertLess(now["muster_memory_bytes"], 1 << 16)
            requests = [("wait", ["/late"]), *[("set", f"/key{i}", b"x" * 1000) for i in range(3)],
                        *[("get", "/key1")] * 5, ("add", "/n", 4), ("set", "/late", ""),
                        ("delete", "/key0")]
            self.assertEqual(now["muster_received_bytes_total"],
                             2 * len(harness.VALIDATE) +
                             sum(len(harness.request("C", *r)) for r in requests))
            self.assertEqual(now["muster_sent_bytes_total"], 5 * 1008 + 8 + 1 + 8)

            two.close()
            one.send(b"\xff")
            one.expect_close()
            harness.wait_until(lambda: page.metrics()["muster_connections"] == 0, "both to end")
            now = page.metrics()
            closed = {re.search(r'why="(\w+)"', name)[1]: value for name, value in now.items()
                      if name.startswith("muster_connections_closed_total") and value}
            self.assertEqual(closed, {"peer_closed": 1, "protocol": 1})
            self.assertEqual(now["muster_connections_accepted_total"], 2)

    def test_version(self):
        version = re.search(rb"\d+\.\d+\.\d+", harness.run("--version").stdout)[0].decode()
        with serve() as (_, page):
            self.assertEqual(page.metrics()[f'muster_build_info{{version="{version}"}}'], 1)

    def test_health_and_index(self):
        with serve() as (_, page):
            self.assertEqual(page.open("/healthz")[::2], (200, "ok\n"))
            self.assertEqual(page.open("/readyz")[::2], (200, "ok\n"))
            status, headers, text = page.open("/")
            self.assertEqual(status, 200)
            self.assertTrue(headers["Content-Type"].startswith("text/plain"))
            self.assertIn("/metrics", text)
            self.assertIn("/healthz", text)
            self.assertIn("/readyz", text)

    def test_head(self):
        with serve() as (_, page):
            for path in ("/", "/metrics", "/healthz", "/readyz"):
                with self.subTest(path=path):
                    _, headers, text = page.open(path)
                    status, head, nothing = page.open(path, "HEAD")
                    self.assertEqual((status, nothing), (200, ""))
                    if path == "/metrics":  # whose figures change
                        self.assertGreater(int(head["Content-Length"]), 1000)
                    else:
                        self.assertEqual(int(head["Content-Length"]), len(text))
                    self.assertEqual(head["Content-Type"], headers["Content-Type"])

    def test_other_paths(self):
        with serve() as (_, page):
            for path in ("/x", "/metrics/", "/metricsx", "/healthz/a", "//metrics", "/%2e%2e/x"):
                with self.subTest(path=path):
                    self.assertEqual(page.open(path)[0], 404)
            self.assertEqual(page.open("/metrics?debug=1")[0], 200)

    def test_other_methods(self):
        with serve() as (_, page):
            for method, data in (("POST", b"a=1"), ("PUT", b"x" * 100), ("DELETE", None),
                                 ("OPTIONS", None), ("MUSTER", None)):
                with self.subTest(method=method):
                    status, headers, _ = page.open("/metrics", method, data)
                    self.assertEqual(status, 405)
                    self.assertEqual(headers["Allow"], "GET, HEAD")

    def test_connection_is_kept(self):
        """A scraper that comes back needs no new connection."""
        with serve() as (_, page):
            connection = http.client.HTTPConnection(page.host, page.port,
                                                    timeout=harness.DEADLINE_S)
            with contextlib.closing(connection):
                connection.connect()
                name = connection.sock.getsockname()
                for path, status in (("/metrics", 200), ("/x", 404), ("/metrics", 200)):
                    connection.request("GET", path)
                    reply = connection.getresponse()
                    reply.read()
                    self.assertEqual(reply.status, status)
                self.assertEqual(connection.sock.getsockname(), name)

    def test_requests_in_a_row(self):
        """Several requests that arrive at once are answered one after the other."""
        with serve() as (_, page), page.connect() as wire:
            wire.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" * 9 +
                      b"GET /healthz HTTP/1.0\r\n\r\n")
            self.assertEqual(read_reply(wire).count(b"\r\n\r\nok\n"), 10)


@needs_http
class Addresses(unittest.TestCase):
    def test_only_the_address_that_was_asked_for(self):
        with serve(address="127.0.0.1:0") as (_, page):
            with self.assertRaises(ConnectionRefusedError):
                harness.Wire(("127.0.0.2", page.port))

    def need_ipv6(self):
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError as error:
            self.skipTest(f"no IPv6 here: {error}")

    def test_ipv6(self):
        self.need_ipv6()
        with serve(address="[::1]:0") as (_, page):
            self.assertEqual(page.host, "::1")
            self.assertEqual(page.open("/healthz")[0], 200)
            with self.assertRaises(ConnectionRefusedError):
                harness.Wire((UNUSED, page.port))

    def test_everywhere(self):
        with serve(address="*:0") as (_, page):
            for host in ("127.0.0.1", "127.0.0.2"):
                with harness.Wire((host, page.port)) as wire:
                    wire.send(b"GET /healthz HTTP/1.0\r\n\r\n")
                    self.assertTrue(read_reply(wire).endswith(b"\r\n\r\nok\n"))

    def test_wildcard_of_ipv6(self):
        """It takes IPv4 too, as the store's does, unless told not to."""
        self.need_ipv6()
        with serve(address="[::]:0") as (_, page):
            harness.Wire(("127.0.0.1", page.port)).close()
            harness.Wire(("::1", page.port)).close()
        with serve("--ipv6-only", address="[::]:0") as (_, page):
            harness.Wire(("::1", page.port)).close()
            with self.assertRaises(ConnectionRefusedError):
                harness.Wire((UNUSED, page.port))

    def test_given_port_and_again(self):
        """The same port can be taken again at once, though connections have just ended there."""
        with serve() as (_, page):
            port = page.port
            self.assertEqual(page.open("/healthz")[0], 200)
            kept = page.connect()
            kept.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            kept.receive(12)
        kept.close()
        with serve(address=f"127.0.0.1:{port}") as (_, page):
            self.assertEqual(page.port, port)
            self.assertEqual(page.open("/healthz")[0], 200)

    def test_wrong_addresses(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for text, code, says in (("9090", 2, b"lacks a port"),
                                     ("localhost:http", 2, b"from 0 to 65535"),
                                     ("::1:9090", 2, b"brackets"),
                                     (address, 1, b"Address already in use")):
                with self.subTest(address=text):
                    result = harness.run("serve", "--port", "0", "--http", text)
                    self.assertEqual(result.returncode, code, result.stderr)
                    self.assertIn(b"http address '" + text.encode() + b"'", result.stderr)
                    self.assertIn(says, result.stderr)
                    self.assertEqual(result.stdout, b"")


@needs_http
class BadClients(unittest.TestCase):
    def check_store(self, server, page=None):
        with server.connect("C") as wire:
            start = time.monotonic()
            wire.set("/well", "yes")
            for _ in range(100):
                self.assertEqual(wire.get("/well"), b"yes")
            self.assertLess(time.monotonic() - start, 5)
        if page is not None:
            self.assertEqual(page.open("/healthz")[0], 200)

    def test_garbage(self):
        """Any bytes end the connection or get an error, and other clients notice nothing."""
        cases = {
            "text": b"garbage\r\n\r\n",
            "no path": b"GET\r\n\r\n",
            "no version": b"GET /metrics\r\n\r\n",
            "another protocol": b"GET /metrics FOO/1.1\r\n\r\n",
            "another version": b"GET /metrics HTTP/9.9\r\n\r\n",
            "a header without a colon": b"GET /metrics HTTP/1.1\r\nfoo\r\n\r\n",
            "a TLS client": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
            "a long path": b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n",
            "a long header": b"GET / HTTP/1.1\r\nA: " + b"a" * 100000 + b"\r\n\r\n",
            "many headers": b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20000 + b"\r\n",
            "a body on GET": b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabcdefghi",
            "a negative length": b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
            "an endless body": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" +
                               b"1000\r\n" + b"a" * 4096 + b"\r\n",
        }
        with serve() as (server, page):
            for name, data in cases.items():
                with self.subTest(name=name), page.connect() as wire:
                    # The server may close before all of it has been sent.
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        wire.send(data)
                    answer = b""
                    with contextlib.suppress(ConnectionResetError):
                        answer = read_reply(wire)
                    self.assertNotIn(b"200 OK", answer)
                    self.assertTrue(answer == b"" or re.match(rb"HTTP/1\.1 [45]", answer), answer)
                    self.check_store(server, page)
            self.assertLess(server.rss_kib(), 1 << 20)

    def test_store_client_at_the_wrong_door(self):
        with serve() as (server, page):
            for dialect in ("A", "C"):
                with page.connect() as wire:
                    wire.send(harness.VALIDATE if dialect == "C" else b"")
                    wire.send(harness.request(dialect, "set", "/a", "b"))
                    self.check_store(server, page)
            self.assertEqual(page.metrics()["muster_keys"], 1)

    def test_slow_client(self):
        """Half a request delays no other client, and its connection ends after a while, even if
        it keeps growing."""
        with serve() as (server, page):
            with page.connect() as slow, page.connect() as silent, page.connect() as busy:
                slow.send(b"GET /metr")
                busy.send(b"GET / HTTP/1.1\r\nHost: a\r\nA: ")
                self.check_store(server, page)
                cpu_before = server.cpu_s()

                def is_over():
                    try:
                        busy.send(b"a")
                    except OSError:
                        return True
                    return False

                start = time.monotonic()
                harness.wait_until(is_over, "the end of the busy one")
                self.assertGreater(time.monotonic() - start, 5)
                slow.expect_close()
                silent.expect_close()
                # Waiting for them was no work.
                self.assertLess(server.cpu_s() - cpu_before, 1)
            self.check_store(server, page)

    def test_client_that_does_not_read(self):
        """It is read no more, or cut off; either way what it costs has a bound."""
        with serve() as (server, page):
            self.check_store(server, page)
            memory_before = server.rss_kib()
            with harness.Wire((page.host, page.port), receive_buffer=4096) as greedy:
                greedy.socket.setblocking(False)
                sent = 0
                request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 20000

                def stuffed():
                    nonlocal sent
                    try:
                        sent += greedy.socket.send(request[sent % len(request):])
                    except (BlockingIOError, ConnectionError):
                        return True
                    return False

                harness.wait_until(stuffed, "the server to have had enough")
                self.check_store(server, page)
                self.assertLess(server.rss_kib() - memory_before,
                                harness.rss_bound_kib(32 << 10))

    def test_many_connections_are_bounded(self):
        """The oldest connection without an answer makes room for the next one."""
        with serve() as (server, page):
            before = sockets(server)
            self.assertEqual(before, 2)  # it listens for the store and for the page
            crowd = [page.connect() for _ in range(CONNECTIONS_MAX + 40)]
            for wire in crowd[-CONNECTIONS_MAX:]:
                wire.send(b"GET /health")
            harness.wait_until(lambda: sockets(server) == before + CONNECTIONS_MAX,
                               "the page to be full")
            for wire in crowd[:40]:
                wire.expect_close()
            start = time.monotonic()
            self.check_store(server, page)
            self.assertLess(time.monotonic() - start, 5)  # not by the others' timeout
            harness.wait_until(lambda: sockets(server) == before + CONNECTIONS_MAX - 1,
                               "one of the crowd to be gone for it")
            # Those that are left can still be answered; that all but one of them leave is one
            # event for the server, and the last.
            with paused(server):
                for wire in crowd[:-1]:
                    wire.close()
            crowd[-1].send(b"z HTTP/1.0\r\n\r\n")
            self.assertTrue(read_reply(crowd[-1]).endswith(b"ok\n"))
            crowd[-1].close()
            self.check_store(server, page)
            harness.wait_until(lambda: sockets(server) == before, "all of them to be closed")

    def test_out_of_descriptors(self):
        """The page has to wait; that must not cost the store its time."""
        def few_descriptors():
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

        with serve(preexec_fn=few_descriptors) as (server, page):
            first = server.connect("C")
            first.sync()
            crowd = []

            def is_full():
                crowd.append(server.connect())
                return descriptors(server) == 40

            harness.wait_until(is_full, "the descriptors to run out")
            with page.connect() as wire:
                wire.send(b"GET /healthz HTTP/1.0\r\n\r\n")
                cpu_before = server.cpu_s()
                start = time.monotonic()
                while time.monotonic() - start < 1:
                    first.sync()
                    time.sleep(0.02)
                self.assertTrue(wire.is_silent())
                self.assertLess(server.cpu_s() - cpu_before, 0.5)
                for other in crowd:
                    other.close()
                self.assertTrue(read_reply(wire).endswith(b"ok\n"))
            first.close()


@needs_http
class Stopping(unittest.TestCase):
    def test_clients_of_the_page_do_not_hold_it_up(self):
        with serve() as (server, page):
            idle = page.connect()
            half = page.connect()
            half.send(b"GET /metr")
            kept = page.connect()
            kept.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            self.assertEqual(kept.receive(15), b"HTTP/1.1 200 OK")
            start = time.monotonic()
            server.signal(signal.SIGTERM)
            self.assertEqual(server.wait(), 0)
            self.assertLess(time.monotonic() - start, 1.5)
            server.ended()
            kept.drain_until_close()
            for wire in (idle, half):
                wire.expect_close()
            for wire in (idle, half, kept):
                wire.close()

    def test_health_says_so(self):
        """While the server waits for a client of the store, the page says `stopping`."""
        with serve() as (server, page):
            greedy = server.connect("C", receive_buffer=4096)
            greedy.set("/big", b"x" * (8 << 20))
            greedy.sync()
            for _ in range(4):
                greedy.request("get", "/big")
            greedy.receive(1)  # its replies are under way, and more than the kernel takes
            self.assertEqual(page.open("/healthz")[::2], (200, "ok\n"))
            server.signal(signal.SIGTERM)
            server.wait_log("ev=server.stopping")
            self.assertEqual(page.open("/healthz")[::2], (503, "stopping\n"))
            self.assertEqual(page.open("/readyz")[::2], (503, "stopping\n"))
            self.assertEqual(page.open("/metrics")[0], 200)
            self.assertEqual(server.wait(), 0)
            server.ended()
            greedy.close()


if __name__ == "__main__":
    harness.main()
