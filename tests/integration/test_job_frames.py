"""The messages of a job, byte by byte: connections and run ids."""

import struct
import time
import unittest

import harness

OPCODE_JOB = b"\x42"
ANNOUNCE, HEARTBEAT, LEAVE, STATUS, FINISH, RESTART = 1, 2, 3, 5, 7, 8
WELCOME, REFUSED, SEALED, SPARE, LOST, REOPENED, CLOSED, EXPELLED = 32, 33, 34, 36, 38, 39, 40, 41
STATUS_TOLD, PONG = 42, 43
NO_RANK = 0xFFFFFFFF


def text(data):
    data = data.encode()
    return struct.pack("<I", len(data)) + data


class Node:
    """A process of a node, which may have several connections."""

    def __init__(self, server, name="a", incarnation=1, run_id="job", expiry_us=60_000_000,
                 version=1, budget=None, is_new=None):
        self.server = server
        self.name = name
        self.incarnation = incarnation
        self.run_id = run_id
        self.expiry_us = expiry_us
        self.claim = (0, 0, 0, NO_RANK)
        self.version = version
        self.budget = budget
        self.is_new = is_new

    def connect(self, receive_buffer=None):
        wire = self.server.connect("C", receive_buffer=receive_buffer)
        wire.send(OPCODE_JOB)
        return wire

    def announce(self, wire, nodes=(1, 1)):
        """That it wants the next round."""
        body = struct.pack("<I", self.version) + text(self.run_id)
        body += struct.pack("<qq", 5_000_000, self.expiry_us)
        body += text(self.name) + struct.pack("<QQ", self.incarnation, self.incarnation * 7)
        body += text("127.0.0.1:1") + struct.pack("<IIq", *nodes, 0) + text("")
        body += struct.pack("<I", NO_RANK) + struct.pack("<QqII?", *self.claim, False)
        body += struct.pack("<?q", False, 0) + struct.pack("<I", 0)
        if self.budget is not None or self.is_new is not None:
            body += struct.pack("<Iq", *(self.budget or (NO_RANK, 0)))
        if self.is_new is not None:
            body += struct.pack("<?", self.is_new)
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


def receive_sealed(wire, restarts=0):
    """epoch, round, world, rank; restarts, why it has begun and the ranks of workers follow"""
    body = receive(wire, SEALED)
    size, = struct.unpack("<I", body[20:24])
    rank, told, start = struct.unpack("<III16x", body[24 + size:])
    assert told == restarts and 0 < start < 7, (told, start)
    return struct.unpack("<QqI", body[:20]) + (rank,)


class Opening(unittest.TestCase):
    def test_bytes(self):
        """The start of a connection as every release sends it, and a STATUS of version 1."""
        with harness.Server() as server, server.connect() as wire:
            wire.send(bytes.fromhex("00 cef7853c"
                                    "05 0100000000000000 0a00000000000000") + b"muster.job")
            wire.expect(b"\x00")
            wire.send(bytes.fromhex("42" "08000000 05 03000000") + b"abc")
            self.assertIn(b"abc", receive(wire, REFUSED))


class Frames(unittest.TestCase):
    def test_another_connection_replaces_the_first(self):
        """Late messages on the old connection must not be heard after those on the new one."""
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
        """A node of the forgotten run goes on above its last round; rounds are not mixed up."""
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


class Ends(unittest.TestCase):
    """Work that is done, and work that fails."""

    CAUSE = struct.pack("<IiIq", 2, 7, 0, 99) + text("boom")

    def meet(self, server, names="ab", **more):
        """Connections of nodes that are in a round, and that round."""
        nodes = [Node(server, name, **more) for name in names]
        wires = [node.connect() for node in nodes]
        for node, wire in zip(nodes, wires):
            node.announce(wire, nodes=(2, 2))
            receive(wire, WELCOME)
        sealed = [receive_sealed(wire) for wire in wires]
        for node, one in zip(nodes, sealed):
            node.claim = one
        return nodes, wires, struct.pack("<Qq", *sealed[0][:2])

    def test_all_finish(self):
        with harness.Server("--job-grace", "10ms") as server:
            nodes, wires, where = self.meet(server, version=2)
            spare = Node(server, "c", version=2)
            waiting = spare.connect()
            spare.announce(waiting, nodes=(2, 2))
            receive(waiting, WELCOME)
            receive(waiting, SPARE)
            send(wires[0], FINISH, where + struct.pack("<i", 0) + text("done"))
            server.wait_log("node.finished", "node=a")
            # A client of version 1 gets the standing `member`.
            for version, standing in ((b"", 3), (struct.pack("<I", 2), 6)):
                send(wires[1], STATUS, text("job") + version)
                body = receive(wires[1], STATUS_TOLD)
                self.assertIn(text("a") + text("127.0.0.1:1") + struct.pack("<I", standing), body)
            wires[0].socket.close()
            time.sleep(0.1)  # past the grace: it is not missed
            send(wires[1], FINISH, where + struct.pack("<i", 0) + text(""))
            for wire in (wires[1], waiting):
                body = receive(wire, CLOSED)
                self.assertEqual(body[-9:], struct.pack("<IB", 1, 0) + text(""))  # no report
            server.wait_log("job.finished", "run=job")
            # Later nodes: success for those that know FINISHED, closed for others.
            for version, code in ((2, -19), (1, -13)):
                late = Node(server, "d", version=version)
                wire = late.connect()
                late.announce(wire, nodes=(2, 2))
                self.assertEqual(struct.unpack("<iI", receive(wire, REFUSED)[:8]), (code, 1))
            self.assertNotIn("node.lost", server.log())

    def test_another_job_of_a_finished_id(self):
        """It begins on request, when the old one has no node left."""
        with harness.Server("--job-grace", "10ms") as server:
            nodes, wires, where = self.meet(server, version=3)
            for wire in wires:
                send(wire, FINISH, where + struct.pack("<i", 0) + text(""))
            for wire in wires:
                receive(wire, CLOSED)

            def ask(is_new, version=3):
                node = Node(server, "d", version=version, is_new=is_new)
                wire = node.connect()
                node.announce(wire, nodes=(1, 1))
                size, kind = struct.unpack("<IB", wire.receive(5))
                return kind, wire.receive(size - 1), wire

            for is_new, said in (
                    (False, b"job 'job' has finished; --new begins another, or wait 10m"),
                    (True, b"job 'job' has finished, and 2 of its nodes are still here")):
                kind, body, _ = ask(is_new)
                self.assertEqual(kind, REFUSED)
                self.assertIn(said, body)
            # One of the second version is told what it was told before.
            kind, body, _ = ask(None, version=2)
            self.assertNotIn(b"--new", body)
            for wire in wires:
                wire.socket.close()
            time.sleep(0.1)  # past the grace
            self.assertEqual(ask(False)[0], REFUSED)
            kind, _, wire = ask(True)
            self.assertEqual(kind, WELCOME)
            epoch, number, world, _ = receive_sealed(wire)
            self.assertEqual((number, world), (1, 1))
            self.assertGreater(epoch, struct.unpack("<Q", where[:8])[0])
            server.wait_log("job.forgotten", "run=job")
            # It is a job like any other: a node that asks for a new one now joins it.
            other = Node(server, "e", version=3, is_new=True)
            wire = other.connect()
            other.announce(wire, nodes=(1, 1))
            receive(wire, WELCOME)
            receive(wire, SPARE)

    def test_failures_have_a_budget(self):
        with harness.Server() as server:
            nodes, wires, where = self.meet(server, version=2, budget=(1, 0))
            told = struct.pack("<BI", 1, 1) + text("b") + self.CAUSE + text("two\nlines")
            send(wires[1], RESTART, where + self.CAUSE + text("two\nlines"))
            for wire in wires:
                body = receive(wire, REOPENED)
                self.assertEqual(struct.unpack("<qII", body[:16]), (2, 10, 1))
                self.assertEqual(body[-len(told):], told)
            send(wires[0], RESTART, where + self.CAUSE)  # follows from the first
            for node, wire in zip(nodes, wires):
                node.announce(wire, nodes=(2, 2))
                receive(wire, WELCOME)
            where = struct.pack("<Qq", *[receive_sealed(wire, 1) for wire in wires][0][:2])
            send(wires[1], RESTART, where + self.CAUSE)  # of an earlier version: without a report
            told = struct.pack("<IBI", 2, 1, 1) + text("b") + self.CAUSE + text("")
            for wire in wires:
                self.assertTrue(receive(wire, CLOSED).endswith(told))
            server.wait_log("node.failed", "first=yes", count=2)
            server.wait_log("node.failed", "first=no")
            server.wait_log("job.failed", "by=b", "restarts=1")

    def test_budgets_agree(self):
        with harness.Server() as server:
            for budget, code in (((1, 0), None), ((2, 0), -1), (None, -1)):
                node = Node(server, str(budget), version=2, budget=budget)
                wire = node.connect()
                node.announce(wire, nodes=(2, 2))
                if code is None:
                    receive(wire, WELCOME)
                else:
                    self.assertEqual(struct.unpack("<iI", receive(wire, REFUSED)[:8]), (code, 2))

    def test_words_of_nobody(self):
        with harness.Server() as server:
            node = Node(server, version=2)
            wire = node.connect()
            send(wire, FINISH, struct.pack("<Qqi", 1, 1, 0) + text(""))
            send(wire, RESTART, struct.pack("<Qq", 1, 1) + self.CAUSE)
            node.announce(wire, nodes=(2, 2))
            receive(wire, WELCOME)
            send(wire, FINISH, struct.pack("<Qqi", 1, 1, 0) + text(""))
            send(wire, HEARTBEAT, b"\x01")
            receive(wire, PONG)


if __name__ == "__main__":
    harness.main()
