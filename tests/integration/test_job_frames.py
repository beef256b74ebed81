"""The messages of a job, byte by byte: what the server does with connections and run ids."""

import struct
import unittest

import harness

OPCODE_JOB = b"\x42"
ANNOUNCE, HEARTBEAT, LEAVE = 1, 2, 3
WELCOME, SEALED, EXPELLED, PONG = 32, 34, 41, 43
NO_RANK = 0xFFFFFFFF


def text(data):
    return struct.pack("<I", len(data)) + data.encode()


class Node:
    """A process of a node, which may have several connections."""

    def __init__(self, server, name="a", incarnation=1):
        self.server = server
        self.name = name
        self.incarnation = incarnation
        self.claim = (0, 0, 0, NO_RANK)

    def connect(self):
        wire = self.server.connect("C")
        wire.send(OPCODE_JOB)
        return wire

    def announce(self, wire, nodes=(1, 1)):
        """That it wants the next round."""
        body = struct.pack("<I", 1) + text("job") + struct.pack("<qq", 5_000_000, 60_000_000)
        body += text(self.name) + struct.pack("<QQ", self.incarnation, self.incarnation * 7)
        body += text("127.0.0.1:1") + struct.pack("<IIq", *nodes, 0) + text("")
        body += struct.pack("<I", NO_RANK) + struct.pack("<QqII?", *self.claim, False)
        body += struct.pack("<?q", False, 0) + struct.pack("<I", 0)
        send(wire, ANNOUNCE, body)


def send(wire, kind, body=b""):
    wire.send(struct.pack("<IB", len(body) + 1, kind) + body)


def receive(wire, kind):
    """The body of the next message, which is of this kind."""
    size, got = struct.unpack("<IB", wire.receive(5))
    body = wire.receive(size - 1)
    if got != kind:
        raise AssertionError(f"expected message {kind}, got {got}: {body!r}")
    return body


def receive_sealed(wire):
    """epoch, round, world, rank"""
    body = receive(wire, SEALED)
    return struct.unpack("<QqI", body[:20]) + struct.unpack("<I", body[-4:])


class Frames(unittest.TestCase):
    def test_another_connection_replaces_the_first(self):
        """What is still under way on the old one must not be heard after what comes on the new."""
        with harness.Server("--log-level", "debug") as server:
            node = Node(server)
            old = node.connect()
            node.announce(old, nodes=(2, 2))
            receive(old, WELCOME)
            new = node.connect()
            node.announce(new, nodes=(2, 2))
            receive(new, WELCOME)
            old.expect_close()
            server.wait_log("why=superseded", old.peer_text())
            # The session is the same one and lives, past the grace for the old connection.
            other = Node(server, "b")
            wire = other.connect()
            other.announce(wire, nodes=(2, 2))
            receive(wire, WELCOME)
            self.assertEqual(receive_sealed(wire)[1:], (1, 2, 1))
            self.assertEqual(receive_sealed(new)[1:], (1, 2, 0))
            send(new, HEARTBEAT, b"\x01")
            receive(new, PONG)

    def test_new_process_replaces_the_old(self):
        with harness.Server() as server:
            node = Node(server)
            old = node.connect()
            node.announce(old, nodes=(2, 2))
            receive(old, WELCOME)
            node = Node(server, incarnation=2)
            new = node.connect()
            node.announce(new, nodes=(2, 2))
            receive(new, WELCOME)
            receive(old, EXPELLED)
            send(old, HEARTBEAT, b"\x01")  # of nobody
            old.socket.close()
            send(new, HEARTBEAT, b"\x01")
            receive(new, PONG)

    def test_run_that_was_forgotten(self):
        """Who was there before goes on above what it knows; no round is taken for another."""
        with harness.Server("--job-expiry", "10ms") as server:
            node = Node(server)
            wire = node.connect()
            node.announce(wire)
            receive(wire, WELCOME)
            epoch, number, world, rank = receive_sealed(wire)
            self.assertEqual((number, world, rank), (1, 1, 0))
            send(wire, LEAVE)
            server.wait_log("job.forgotten")
            newcomer = Node(server, "b")
            other = newcomer.connect()
            newcomer.announce(other)
            receive(other, WELCOME)
            again = receive_sealed(other)
            self.assertEqual(again[1], 1)
            self.assertNotEqual(again[0], epoch)
            send(other, LEAVE)
            server.wait_log("job.forgotten", count=2)
            node.claim = (epoch, number, world, rank)
            node.announce(wire)
            receive(wire, WELCOME)
            last = receive_sealed(wire)
            self.assertEqual(last[1], 2)
            self.assertNotIn(last[0], (epoch, again[0]))


if __name__ == "__main__":
    harness.main()
