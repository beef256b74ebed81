#!/usr/bin/env python3
"""A full server, of memory or of connections: what its clients, its log and its page say."""

import subprocess
import unittest

import harness
from harness import field, u64
from test_http import needs_http, serve

ASK = b"\x05" + u64(1) + field("muster.refusal")
HEAD = b"\xffmuster!"
MEMORY = r"the server is full: \d+ of 1048576 bytes of --max-memory are used"
CONNECTIONS = "the server is full: 3 connections, its --max-connections"


def get(page, path):
    """The status, and the text."""
    return page.open(path)[::2]


def store(server, *args, input=None):
    return harness.run("store", *args[:1], server.url(), *args[1:], input=input)


@needs_http
class Full(unittest.TestCase):
    def fill(self, server):
        """Until a value of 60 KB does not fit: what the client of the first such one says."""
        for index in range(40):
            result = store(server, "set", f"/fill/{index}", "-", input=b"x" * 60000)
            if result.returncode != 0:
                return result
        self.fail("everything fits")

    def test_memory(self):
        with serve("--max-memory", "1M") as (server, page):
            self.assertEqual(get(page, "/readyz"), (200, "ok\n"))
            refused = self.fill(server)
            self.assertEqual(refused.returncode, 1)
            self.assertRegex(refused.stderr.decode(), MEMORY)
            self.assertNotIn("limits on keys", refused.stderr.decode())
            status, text = get(page, "/readyz")
            self.assertEqual(status, 503)
            self.assertRegex(text, f"^{MEMORY}\n$")
            self.assertEqual(get(page, "/healthz"), (200, "ok\n"))
            self.assertGreater(page.metrics()['muster_connections_closed_total{why="memory"}'], 0)
            self.assertEqual(page.metrics()['muster_connections_closed_total{why="limit"}'], 0)
            self.assertGreater(page.metrics()['muster_full_refused_total{of="memory"}'], 0)
            self.assertEqual(page.metrics()['muster_full{of="memory"}'], 1)
            (line,) = server.wait_log("ev=server.full")
            self.assertRegex(line, "of=memory .*" + MEMORY)
            # What is there can be read, and removed: then there is room again.
            self.assertEqual(len(store(server, "get", "/fill/0", "--raw").stdout), 60000)
            for index in range(6):
                self.assertEqual(store(server, "del", f"/fill/{index}").returncode, 0)
            self.assertEqual(get(page, "/readyz"), (200, "ok\n"))
            self.assertEqual(store(server, "set", "/again", "-", input=b"x" * 60000).returncode, 0)

    def test_page_that_does_not_fit(self):
        """A page for which there is no room, which then comes without series, is no client that
        was refused."""
        with serve("--max-memory", "1M") as (server, page):
            with server.connect("C") as wire:
                for index in range(3000):
                    wire.set(f"/fill/{index}", "x" * 500)
                    metrics = page.metrics() if index > 1200 else {"muster_memory_bytes": 0}
                    room = (1 << 20) - metrics["muster_memory_bytes"]
                    if room < 6000:
                        break
                self.assertLess(room, 6000)
                self.assertEqual(metrics['muster_full_refused_total{of="memory"}'], 0)
                self.assertEqual(metrics['muster_full{of="memory"}'], 0)
                self.assertEqual(get(page, "/readyz"), (200, "ok\n"))
                wire.set("/more", "x")

    def test_operations_that_are_not_repeated(self):
        """Their client knows that nothing was done."""
        with serve("--max-memory", "1M") as (server, _):
            self.fill(server)
            for args in (("append", "/more", "-"), ("push", "/queue", "-")):
                result = store(server, *args, input=b"x" * 100000)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertRegex(result.stderr.decode(), MEMORY)
            self.assertEqual(store(server, "get", "/more").returncode, 3)

    def test_limits_are_others(self):
        with serve("--max-key", "64") as (server, page):
            refused = store(server, "set", "k" * 64, "v")
            self.assertEqual(refused.returncode, 1)
            self.assertIn("key of 65 bytes, the limit is 64", refused.stderr.decode())
            self.assertEqual(get(page, "/readyz"), (200, "ok\n"))
            metrics = page.metrics()
            self.assertEqual(metrics['muster_connections_closed_total{why="limit"}'], 1)
            self.assertEqual(metrics['muster_connections_closed_total{why="memory"}'], 0)

    def test_connections(self):
        with serve("--max-connections", 3) as (server, page):
            wires = [server.connect("C") for _ in range(3)]
            for wire in wires:
                wire.sync()
            self.assertEqual(get(page, "/readyz"), (503, CONNECTIONS + "\n"))
            self.assertEqual(get(page, "/healthz"), (200, "ok\n"))
            refused = store(server, "get", "/k", "--timeout", "500ms")
            self.assertEqual(refused.returncode, 5)
            self.assertIn(CONNECTIONS, refused.stderr.decode())
            where = ("--rdzv-endpoint", f"127.0.0.1:{server.port}")
            node = harness.run("join", *where, "--rdzv-id", "job", "--nnodes", "1",
                               "--rdzv-conf", "join_timeout=1")
            self.assertNotEqual(node.returncode, 0)
            self.assertIn(CONNECTIONS, node.stderr.decode())
            look = harness.run("status", *where, "--timeout", "1s")
            self.assertIn(CONNECTIONS, look.stderr.decode())
            (line,) = server.wait_log("ev=server.full")
            self.assertRegex(line, "of=connections .*" + CONNECTIONS)
            self.assertGreater(page.metrics()['muster_full_refused_total{of="connections"}'], 2)
            self.assertEqual(page.metrics()['muster_full{of="connections"}'], 1)
            # Torch's client has not asked: it sees the end, and not a byte.
            with server.connect() as torch:
                torch.send(b"\x00\xce\xf7\x85\x3c\x0d" + b"ping")
                torch.expect_close()
            with server.connect("C") as wire:
                wire.send(ASK)
                wire.expect(HEAD)
            wires.pop().close()
            harness.wait_until(lambda: get(page, "/readyz") == (200, "ok\n"), "a place")
            self.assertEqual(store(server, "set", "/k", "v").returncode, 0)
            for wire in wires:
                wire.close()

    def test_client_waits_for_a_place(self):
        """A refused client tries again until its time is over."""
        with serve("--max-connections", 3) as (server, _):
            wires = [server.connect("C") for _ in range(3)]
            for wire in wires:
                wire.sync()
            waiting = subprocess.Popen([harness.MUSTER, "store", "set", server.url(), "/k", "v"])
            self.addCleanup(waiting.kill)
            server.wait_log("ev=server.full")
            wires.pop().close()
            self.assertEqual(waiting.wait(harness.DEADLINE_S), 0)
            for wire in wires:
                wire.close()

    def test_silent_connections(self):
        """They hold no place that somebody needs."""
        with serve("--max-connections", 3) as (server, page):
            wires = [server.connect() for _ in range(3)]
            harness.wait_until(lambda: page.metrics()["muster_connections"] == 3, "all three")
            # As long as it takes until the first one has been silent for 5 s.
            result = store(server, "set", "/k", "v", "--timeout", "30s")
            self.assertEqual(result.returncode, 0, result.stderr)
            wires[0].expect_close()
            self.assertTrue(wires[1].is_silent() and wires[2].is_silent())
            self.assertEqual(page.metrics()['muster_connections_closed_total{why="silent"}'], 1)
            for wire in wires:
                wire.close()


if __name__ == "__main__":
    harness.main()
