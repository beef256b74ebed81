"""The messages of a job, byte by byte: what the server does with connections and run ids."""

import struct
import time
import unittest

import harness

OPCODE_JOB = b"\x42"
ANNOUNCE, HEARTBEAT, LEAVE, STATUS, STORE, FINISH, RESTART = 1, 2, 3, 5, 6, 7, 8
WELCOME, REFUSED, SEALED, SPARE, REOPENED, CLOSED, EXPELLED = 32, 33, 34, 36, 39, 40, 41
STATUS_TOLD, PONG, STORE_REPLY, STORE_END = 42, 43, 44, 45
NO_RANK = 0xFFFFFFFF


def text(data):
    return struct.pack("<I", len(data)) + data.encode()


class Node:
    """A process of a node, which may have several connections."""

    def __init__(self, server, name="a", incarnation=1, run_id="job", expiry_us=60_000_000,
                 version=1, budget=None):
        self.server = server
        self.name = name
        self.incarnation = incarnation
        self.run_id = run_id
        self.expiry_us = expiry_us
        self.claim = (0, 0, 0, NO_RANK)
        self.version = version
        self.budget = budget

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
        if self.budget is not None:
            body += struct.pack("<Iq", *self.budget)
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
            # One who asks in the words of the first version hears of a member.
            for version, standing in ((b"", 3), (struct.pack("<I", 2), 6)):
                send(wires[1], STATUS, text("job") + version)
                body = receive(wires[1], STATUS_TOLD)
                self.assertIn(text("a") + text("127.0.0.1:1") + struct.pack("<I", standing), body)
            wires[0].socket.close()
            time.sleep(0.1)  # past the grace: it is not missed
            send(wires[1], FINISH, where + struct.pack("<i", 0) + text(""))
            for wire in (wires[1], waiting):
                body = receive(wire, CLOSED)
                self.assertEqual(body[-5:], struct.pack("<IB", 1, 0))
            server.wait_log("job.finished", "run=job")
            # Whoever comes later: success for who knows the word, closed for others.
            for version, code in ((2, -19), (1, -13)):
                late = Node(server, "d", version=version)
                wire = late.connect()
                late.announce(wire, nodes=(2, 2))
                self.assertEqual(struct.unpack("<iI", receive(wire, REFUSED)[:8]), (code, 1))
            self.assertNotIn("node.lost", server.log())

    def test_failures_have_a_budget(self):
        with harness.Server() as server:
            nodes, wires, where = self.meet(server, version=2, budget=(1, 0))
            told = struct.pack("<BI", 1, 1) + text("b") + self.CAUSE
            send(wires[1], RESTART, where + self.CAUSE)
            for wire in wires:
                body = receive(wire, REOPENED)
                self.assertEqual(struct.unpack("<qII", body[:16]), (2, 10, 1))
                self.assertEqual(body[-len(told):], told)
            send(wires[0], RESTART, where + self.CAUSE)  # follows from the first
            for node, wire in zip(nodes, wires):
                node.announce(wire, nodes=(2, 2))
                receive(wire, WELCOME)
            where = struct.pack("<Qq", *[receive_sealed(wire) for wire in wires][0][:2])
            send(wires[1], RESTART, where + self.CAUSE)
            for wire in wires:
                self.assertTrue(receive(wire, CLOSED).endswith(struct.pack("<I", 2) + told))
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


def request(operation, *parts):
    return harness.request("C", operation, *parts)


class Store(unittest.TestCase):
    """The bytes of all STOREs of a connection are one stream of requests."""

    def member(self, server):
        """The connection of a node that is in a round."""
        node = Node(server)
        wire = node.connect()
        node.announce(wire)
        receive(wire, WELCOME)
        receive_sealed(wire)
        return wire

    def replies(self, wire, size):
        """What the next STORE_REPLYs hold, which is so much."""
        got = bytearray()
        while len(got) < size:
            body = receive(wire, STORE_REPLY)
            self.assertNotEqual(body, b"")
            got += body
        self.assertEqual(len(got), size)
        return bytes(got)

    def alive(self, wire):
        """It is a member, and nothing else was said to it."""
        send(wire, HEARTBEAT, b"\x01")
        receive(wire, PONG)

    def test_any_pieces(self):
        """One request in many frames with others between them, and many requests in one."""
        with harness.Server() as server:
            wire = self.member(server)
            requests = request("set", "/k", "value")
            requests += request("add", "/n", 2) + request("get", "/k")
            for i in range(len(requests) - 1):
                send(wire, STORE, requests[i:i + 1])
                send(wire, HEARTBEAT, b"\x00")
            self.assertEqual(self.replies(wire, 8), harness.i64(2))
            send(wire, STORE, requests[-1:])
            self.assertEqual(self.replies(wire, 13), harness.field("value"))
            send(wire, STORE, requests * 100)
            self.assertEqual(self.replies(wire, 2100), b"".join(
                harness.i64(2 * i + 4) + harness.field("value") for i in range(100)))
            send(wire, STORE, request("set", "/k", "v"))  # is not answered
            self.alive(wire)

    def test_a_wait_holds_up_nothing(self):
        with harness.Server() as server:
            wire = self.member(server)
            send(wire, STORE, request("wait", ["/k"]))
            self.alive(wire)
            send(wire, STORE, request("add", "/n", 1))
            self.assertEqual(self.replies(wire, 8), harness.i64(1))
            other = server.connect("C")
            other.set("/k", "v")
            self.assertEqual(self.replies(wire, 1), b"\x00")
            self.alive(wire)

    def test_large_values(self):
        """In pieces on the way there; on the way back in frames that are gathered for one read."""
        with harness.Server() as server:
            wire = self.member(server)
            value = bytes(range(256)) * 16384
            stream = request("set", "/k", value)
            for at in range(0, len(stream), 60000):
                send(wire, STORE, stream[at:at + 60000])
                send(wire, HEARTBEAT, b"\x00")
            send(wire, STORE, request("get", "/k") * 20)
            for _ in range(20):
                self.assertEqual(self.replies(wire, 8 + len(value)), harness.field(value))
            self.alive(wire)

    def test_largest_value(self):
        """Larger than any other frame may be."""
        with harness.Server("--max-value", "66M") as server:
            wire = self.member(server)
            value = b"x" * (66 << 20)
            stream = request("set", "/k", value) + request("get", "/k")
            for at in range(0, len(stream), 1 << 20):
                send(wire, STORE, stream[at:at + (1 << 20)])
            self.assertEqual(self.replies(wire, 8 + len(value)), harness.field(value))
            self.alive(wire)

    def test_refused(self):
        """What the server does not want ends the stream, and not the connection."""
        refused = {
            "not_a_number": request("add", "/text", 1),
            "protocol": b"\xfe",
            "limit": request("set", "/k", "x" * 5000),
        }
        with harness.Server("--max-value", "4096") as server:
            wire = self.member(server)
            send(wire, STORE, request("set", "/text", "abc"))
            count = 0
            for why, bad in refused.items():
                before = request("add", "/n", 1)
                send(wire, STORE, before + bad + before)
                send(wire, STORE, before)
                count += 1
                self.assertEqual(self.replies(wire, 8), harness.i64(count))
                self.assertNotEqual(receive(wire, STORE_END), b"")
                server.wait_log("ev=store.ended", f"why={why}", wire.peer_text())
                send(wire, STORE, before)  # of the same stream, which is over
                self.alive(wire)
                send(wire, STORE)
                self.assertEqual(receive(wire, STORE_REPLY), b"")
                self.alive(wire)

    def test_begin_anew(self):
        """Half a request, a wait and a place in a barrier are forgotten."""
        with harness.Server() as server:
            wire = self.member(server)
            other = server.connect("C")
            send(wire, STORE, request("wait", ["/k"]) + request("set", "/half", "value")[:-1])
            send(wire, STORE)
            self.assertEqual(receive(wire, STORE_REPLY), b"")
            other.set("/k", "v")
            other.sync()
            send(wire, STORE, request("num_keys"))
            self.assertEqual(self.replies(wire, 8), harness.i64(1))
            send(wire, STORE, request("barrier", "/b", 2))
            send(wire, STORE)
            self.assertEqual(receive(wire, STORE_REPLY), b"")
            other.request("barrier", "/b", 2)
            other.request("num_keys")
            self.alive(wire)
            send(wire, STORE, request("barrier", "/b", 2))
            self.assertEqual(self.replies(wire, 1), b"\x00")

    def test_half_a_request(self):
        """It has its time, however often the node is heard meanwhile."""
        with harness.Server("--request-timeout", "300ms") as server:
            wire = self.member(server)
            send(wire, STORE, request("set", "/k", "value")[:-1])

            def heard():
                send(wire, HEARTBEAT, b"\x00")
                return server.log_lines("ev=store.ended", "why=stuck_request")

            harness.wait_until(heard, "the end of the stream")
            receive(wire, STORE_END)
            self.alive(wire)
            send(wire, STORE)
            self.assertEqual(receive(wire, STORE_REPLY), b"")
            send(wire, STORE, request("num_keys"))
            self.assertEqual(self.replies(wire, 8), harness.i64(0))

    def test_does_not_read(self):
        """Its replies are not kept without end, and its requests wait."""
        with harness.Server("--request-timeout", "300ms") as server:
            other = server.connect("C")
            other.set("/k", b"x" * (4 << 20))
            other.sync()
            wire = self.member(server)
            before = server.rss_kib()
            send(wire, STORE, request("get", "/k") * 1000)
            server.wait_log("why=does_not_read", wire.peer_text())
            self.assertLess(server.rss_kib() - before, harness.rss_bound_kib(64 << 10))

    def test_slow_reader_lives(self):
        """A node whose replies are under way for longer than its expiry is heard all the time."""
        with harness.Server() as server:
            other = server.connect("C")
            value = bytes(range(256)) * 32768
            other.set("/k", value)
            other.sync()
            node = Node(server, expiry_us=1_000_000)
            wire = node.connect(receive_buffer=1 << 16)
            node.announce(wire)
            receive(wire, WELCOME)
            receive_sealed(wire)
            send(wire, STORE, request("get", "/k"))
            end = time.monotonic() + 2.5
            while time.monotonic() < end:
                send(wire, HEARTBEAT, b"\x00")
                time.sleep(0.2)  # as often as the node says something; it reads nothing
            self.assertEqual(self.replies(wire, 8 + len(value)), harness.field(value))
            self.alive(wire)

    def test_gone_while_waiting(self):
        """A wait ends with its connection."""
        with harness.Server() as server:
            wire = self.member(server)
            send(wire, STORE, request("barrier", "/b", 2))
            self.alive(wire)
            wire.reset()
            other = server.connect("C")
            third = server.connect("C")
            harness.wait_until(lambda: not other.check("/b"), "the barrier without it")
            other.request("barrier", "/b", 2)
            third.request("barrier", "/b", 2)
            self.assertEqual(other.receive(1) + third.receive(1), b"\x00\x00")


if __name__ == "__main__":
    harness.main()
