"""Signs of life of a node, and the cost of foreign connections: byte by byte."""

import struct
import time
import unittest

import harness
from test_job_frames import (EXPELLED, HEARTBEAT, LEAVE, PONG, WELCOME, Node, receive,
                             receive_sealed, send, text)

CLOSE, STATUS = 4, 5
REFUSED, CLOSED, STATUS_TOLD = 33, 40, 42
ELIMIT, EEXPELLED = -3, -18
FOUNDED_MAX, IDLE_MAX = 16, 4096


class Life(unittest.TestCase):
    def test_any_bytes_are_a_sign_of_life(self):
        """A node that asks for the status and sends no heartbeats is not silent."""
        with harness.Server() as server:
            node = Node(server, expiry_us=1_500_000)
            wire = node.connect()
            node.announce(wire)
            receive(wire, WELCOME)
            receive_sealed(wire)
            for _ in range(8):
                time.sleep(0.3)
                send(wire, STATUS, text("none"))
                receive(wire, REFUSED)
            send(wire, HEARTBEAT, b"\x01")
            receive(wire, PONG)


    def test_newer_connection_wins(self):
        """A restarted node whose clock is behind replaces its old process."""
        with harness.Server() as server:
            first = Node(server, incarnation=9000)
            waiting = first.connect()  # before the others, and says nothing yet
            old = first.connect()
            first.announce(old, nodes=(2, 2))
            receive(old, WELCOME)
            second = Node(server, incarnation=50)
            new = second.connect()
            second.announce(new, nodes=(2, 2))
            receive(new, WELCOME)
            self.assertIn(b"replaced by a newer process", receive(old, EXPELLED))
            # Late words of another process over an older connection, and of the one that was
            # replaced over a newer one: neither is the node.
            for node, wire in ((Node(server, incarnation=9999), waiting), (first, old),
                               (first, first.connect())):
                node.announce(wire, nodes=(2, 2))
                code, why = receive_refused(wire)
                self.assertEqual(code, EEXPELLED)
                self.assertIn("replaced by a newer process of node 'a'", why)
            send(new, HEARTBEAT, b"\x01")
            receive(new, PONG)

    def test_each_has_its_own_patience(self):
        """A node is lost after its own expiry, whatever others announce, in any order."""
        for order in (("hasty", "patient"), ("patient", "hasty")):
            with harness.Server() as server:
                wires = {}
                for name in order:
                    node = Node(server, name,
                                expiry_us=400_000 if name == "hasty" else 60_000_000)
                    wires[name] = node.connect()
                    node.announce(wires[name], nodes=(3, 3))
                    receive(wires[name], WELCOME)
                receive(wires["hasty"], EXPELLED)
                send(wires["patient"], HEARTBEAT, b"\x01")
                receive(wires["patient"], PONG)

    def test_forgotten_in_time(self):
        """Not before its time is over, and not much later."""
        with harness.Server("--job-expiry", "2s") as server:
            node = Node(server)
            wire = node.connect()
            node.announce(wire)
            receive(wire, WELCOME)
            receive_sealed(wire)
            began = time.monotonic()
            send(wire, LEAVE)
            server.wait_log("job.forgotten", timeout=3.7)
            self.assertGreaterEqual(time.monotonic() - began, 1.99)


def close(wire, run_id):
    send(wire, CLOSE, text(run_id) + text("why") + text("me"))


def receive_refused(wire):
    """code, text"""
    body = receive(wire, REFUSED)
    return struct.unpack("<i", body[:4])[0], body[12:].decode()


class Strangers(unittest.TestCase):
    def known(self, wire, run_id):
        """Whether the server remembers the run."""
        send(wire, STATUS, text(run_id))
        size, kind = struct.unpack("<IB", wire.receive(5))
        wire.receive(size - 1)
        return kind == STATUS_TOLD

    def node(self, server, **options):
        """A node that is in a round of its own, and its connection."""
        node = Node(server, **options)
        wire = node.connect()
        node.announce(wire)
        receive(wire, WELCOME)
        receive_sealed(wire)
        return wire

    def test_one_connection(self):
        """It may close or found a few unknown runs, without effect on those of others."""
        with harness.Server() as server:
            self.node(server, run_id="own")
            wire = Node(server).connect()
            for i in range(FOUNDED_MAX):
                close(wire, f"r{i}")
                receive(wire, CLOSED)
            for i in range(FOUNDED_MAX, 2 * FOUNDED_MAX):
                close(wire, f"r{i}")
                code, why = receive_refused(wire)
                self.assertEqual(code, ELIMIT)
                self.assertIn("this connection has named 16 new run ids", why)
            # What is known can be closed all the same.
            for run_id in ("r0", "own"):
                close(wire, run_id)
                receive(wire, CLOSED)
            # Nor does it help to announce oneself and leave.
            wire = Node(server).connect()
            for i in range(FOUNDED_MAX + 1):
                node = Node(server, run_id=f"a{i}")
                node.announce(wire)
                if i < FOUNDED_MAX:
                    receive(wire, WELCOME)
                    receive_sealed(wire)
                    send(wire, LEAVE)
                else:
                    self.assertEqual(receive_refused(wire)[0], ELIMIT)
            self.node(server, run_id="another")

    def test_refused_leaves_nothing(self):
        """A run without an accepted node is not remembered."""
        with harness.Server() as server:
            node = Node(server, run_id="none")
            wire = node.connect()
            node.announce(wire, nodes=(2, 1))
            receive_refused(wire)
            harness.wait_until(lambda: not self.known(wire, "none"), "nothing is known")

    def test_many_connections(self):
        """Runs without nodes make room for others, those without a round first."""
        with harness.Server() as server:
            wire = self.node(server, run_id="worked")
            send(wire, LEAVE)
            for _ in range(IDLE_MAX // FOUNDED_MAX + 1):
                stranger = Node(server).connect()
                name = stranger.peer_text()
                for i in range(FOUNDED_MAX):
                    close(stranger, f"{name}.{i}")
                for i in range(FOUNDED_MAX):
                    receive(stranger, CLOSED)
                stranger.socket.close()
            wire = self.node(server, run_id="new")
            self.assertTrue(self.known(wire, "worked"))
            self.assertTrue(self.known(wire, f"{name}.15"))
            forgotten = server.wait_log("job.forgotten", count=FOUNDED_MAX + 1)
            self.assertEqual(len(forgotten), FOUNDED_MAX + 1)

    def test_memory(self):
        """Jobs count under the limit for memory, and a round that is claimed costs nothing yet."""
        with harness.Server("--max-memory", "1M") as server:
            living = self.node(server, run_id="living")
            why = ""
            wires = []
            for i in range(1000):
                node = Node(server, run_id=f"run{i}")
                node.claim = (5, 7, 16384, 16383)
                wire = node.connect()
                node.announce(wire)
                size, kind = struct.unpack("<IB", wire.receive(5))
                body = wire.receive(size - 1)
                wires.append(wire)
                if kind == REFUSED:
                    self.assertEqual(struct.unpack("<i", body[:4])[0], ELIMIT)
                    why = body.decode(errors="replace")
                    break
            self.assertIn("--max-memory", why)
            self.assertGreater(len(wires), 60)
            send(living, HEARTBEAT, b"\x01")
            receive(living, PONG)


if __name__ == "__main__":
    harness.main()
