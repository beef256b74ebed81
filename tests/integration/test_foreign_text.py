"""Text that users and peers choose: run ids, names, reasons, keys. With any content, a terminal
sees no escape sequence, a log line stays one line, and JSON stays valid."""

import contextlib
import json
import os
import socket
import unittest

import harness
import test_job_frames as frames
from test_join import CLOSED, OK, USAGE, Node

# Clears the screen, sets the title, ends the line, forges a field, turns the text, and the control
# sequence introducer of eight bits.
EVIL = "\x1b[2J\x1b]0;x\x07\nev=forged why=\"no\\\" \u202e\u2028\x9b1m\x7f\tn\u00f6tig"
NAME = "n\u202en\u00f6tig"  # nodes refuse to be called worse
CONF = "last_call_timeout=100ms,join_timeout=30"


class Case(unittest.TestCase):
    def check(self, output, is_json=False):
        """Nothing but text and ends of lines."""
        text = output.decode() if isinstance(output, bytes) else output
        for c in text.replace("\n", ""):
            self.assertFalse(ord(c) < 0x20 or 0x7f <= ord(c) < 0xa0 or c in "\u202e\u2028",
                             repr(text))
        return [json.loads(line) for line in text.splitlines()] if is_json else text


class Job(Case):
    def where(self, server, run_id=EVIL):
        return ("--rdzv-endpoint", f"127.0.0.1:{server.port}", "--rdzv-id", run_id)

    def test_life(self):
        with harness.Server("--log-format", "json", "--log-level", "debug", "--job-expiry",
                            "100ms") as server:
            events = os.path.join(server.directory, "events")
            node = Node("--rdzv-backend", "muster", *self.where(server), "--nnodes", "1",
                        "--rdzv-conf", CONF + f",node_name={NAME}", "--hold", "0", "--events",
                        events, "--log-level", "debug")
            with contextlib.closing(node):
                joined = node.next("joined")
                self.assertEqual(joined["node"], NAME)
                self.check(harness.run("status", *self.where(server)).stdout)
                found = harness.run("status", *self.where(server), "--json")
                (status,) = self.check(found.stdout, is_json=True)
                self.assertEqual(status["run_id"], EVIL)
                self.assertEqual([member["node"] for member in status["participants"]], [NAME])
                found = harness.run("close", *self.where(server), "--reason", EVIL)
                self.assertEqual(found.returncode, OK, found.stderr)
                node.next("closed")
                self.assertEqual(node.wait(), CLOSED)
                self.check(node.stderr)
            with open(events, "rb") as file:
                self.check(file.read(), is_json=True)
            server.wait_log("job.forgotten")
            server.terminate()
            entries = self.check(server.log(), is_json=True)
            self.assertEqual([entry for entry in entries if entry["ev"] == "forged"], [])
            self.assertIn(EVIL, [entry.get("run") for entry in entries])

    def test_refused(self):
        """Errors name run ids."""
        with harness.Server("--run-id", "only") as server:
            found = harness.run("join", "--rdzv-backend", "muster", *self.where(server),
                                "--nnodes", "1", "--rdzv-conf", CONF)
            self.assertNotEqual(found.returncode, OK)
            self.assertIn("only", self.check(found.stderr))
            self.assertIn("\\x1b[2J", found.stderr.decode())

    def test_arguments(self):
        for words in (("join", "--" + EVIL), (EVIL,), ("serve", "--log-level", EVIL),
                      ("store", "get", "tcp://127.0.0.1:1" + EVIL, "k")):
            with self.subTest(words=words):
                found = harness.run(*words)
                self.assertEqual(found.returncode, USAGE, found.stderr)
                self.assertIn("\\x1b[2J", self.check(found.stderr))


class Store(Case):
    def test_keys_and_values(self):
        with harness.Server() as server:
            url = server.url()
            found = harness.run("store", "set", url, "a", EVIL)
            self.assertEqual(found.returncode, OK, found.stderr)
            found = harness.run("store", "set", url, EVIL.replace("\\", "").replace("\t", ""), "x")
            self.assertEqual(found.returncode, OK, found.stderr)
            self.assertIn(r"\x1b[2J\x1b]0;x", self.check(harness.run("store", "list", url).stdout))
            value = harness.run("store", "get", url, "a").stdout
            self.assertNotIn(b"\x1b", value)
            self.assertNotIn("\u202e".encode(), value)


class Agents(Case):
    """What agents say of themselves is in a store, where anybody can write."""

    def test_ps(self):
        said = {"node": NAME, "host": EVIL, "phase": EVIL[:8], "workers": []}
        with harness.Server() as server:
            where = ("--rdzv-endpoint", f"127.0.0.1:{server.port}", "--rdzv-id", "job")
            for number, text in enumerate((json.dumps(said, ensure_ascii=False),
                                           json.dumps(said, indent="\t"), EVIL)):
                key = f"muster.run/job/nodes/{number}"
                found = harness.run("store", "set", server.url(), key, text)
                self.assertEqual(found.returncode, OK, found.stderr)
            table = self.check(harness.run("ps", *where).stdout)
            self.assertEqual(table.count(r" \x1b[2J\x1b]0; "), 2, table)
            nodes = self.check(harness.run("ps", *where, "--json").stdout, is_json=True)
            self.assertEqual([node["node"] for node in nodes], [NAME] * 2)


class Frames(Case):
    def test_name(self):
        """A server refuses control characters in names, and takes all else."""
        name = "x\" ev=forged why=\"no\\\\"
        with harness.Server("--log-format", "json", "--log-level", "debug") as server:
            where = ("--rdzv-endpoint", f"127.0.0.1:{server.port}", "--rdzv-id", "job")
            node = frames.Node(server, name=name)
            wire = node.connect()
            node.announce(wire)
            frames.receive(wire, frames.WELCOME)
            frames.receive_sealed(wire)
            shown = self.check(harness.run("status", *where).stdout)
            self.assertIn(name, shown)
            (status,) = self.check(harness.run("status", *where, "--json").stdout, is_json=True)
            self.assertEqual([member["node"] for member in status["participants"]], [name])
            wire.close()
            server.terminate()
            entries = self.check(server.log(), is_json=True)
            self.assertEqual([entry for entry in entries if entry["ev"] == "forged"], [])

    def test_log_of_bytes_that_are_no_text(self):
        """A peer that sends anything at all as its first bytes."""
        with harness.Server("--log-format", "json") as server:
            for evil in (b"\x1b[2J\n\xff\xfe", b"GET /\x1b[2J\r\n\r\n", b'"\\' * 10):
                with socket.create_connection(server.address) as peer:
                    peer.sendall(evil)
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(100):
                        pass
            server.wait_log("conn.closed", count=2)
            server.terminate()
            self.check(server.log(), is_json=True)


if __name__ == "__main__":
    harness.main()
