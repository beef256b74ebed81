"""A client that sends invalid bytes to `muster serve` loses its connection, with one log line
that names the peer and the reason; memory stays bounded, and other clients notice nothing."""

import os
import random
import signal
import struct
import threading
import time
import unittest

import harness
from harness import Server, VALIDATE, Wire, field, i64, request, u64

# A bystander's round trip, on a busy machine and under sanitizers too.
DELAY_MAX_S = 2.0


class Bystander:
    """A client that is served all the while; afterwards it has seen no error and no delay."""

    def __init__(self, server):
        self.wire = server.connect("C")
        self.stop = threading.Event()
        self.error = None
        self.count = 0
        self.worst_s = 0.0
        self.thread = threading.Thread(target=self.work)

    def work(self):
        try:
            while not self.stop.is_set():
                start = time.monotonic()
                self.count += 1
                if self.wire.add("/bystander", 1) != self.count:
                    raise AssertionError("a wrong sum")
                self.worst_s = max(self.worst_s, time.monotonic() - start)
                self.stop.wait(0.001)
        except Exception as error:
            self.error = error

    def __enter__(self):
        self.thread.start()
        harness.wait_until(lambda: self.count > 1 or self.error, "the bystander to be served")
        return self

    def __exit__(self, kind, *_):
        self.stop.set()
        self.thread.join(harness.DEADLINE_S)
        self.wire.close()
        if kind is None:
            if self.error is not None:
                raise AssertionError(f"the bystander saw {self.error!r}")
            if self.worst_s > DELAY_MAX_S:
                raise AssertionError(f"the bystander waited {self.worst_s:.3f} s")


class BadInput(unittest.TestCase):
    def one_line(self, server, wire, *needles):
        """Exactly one log line about the peer, and it tells the reason."""
        peer = f"peer={wire.peer_text()} "
        server.wait_log(peer)
        with server.connect("C") as other:
            other.sync()
        lines = server.log_lines(peer)
        self.assertEqual(len(lines), 1, lines)
        for needle in needles:
            self.assertIn(needle, lines[0])
        self.assertIn(" warn ", lines[0])
        self.assertIn("detail=", lines[0])

    def refused(self, name, data, *needles, args=(), after=b""):
        """data ends the connection that sent it; `after` is what it is answered before that."""
        with self.subTest(name), Server(*args) as server, Bystander(server):
            wire = server.connect()
            before = server.rss_kib()
            wire.send(data)
            wire.expect(after)
            wire.expect_close()
            self.one_line(server, wire, *needles)
            self.assertLess(server.rss_kib() - before, harness.rss_bound_kib(8 * 1024))

    def test_unknown_opcode(self):
        for opcode in (12, 13, 18, 19, 0x40, 0x7F, 0x80, 0xFF):
            self.refused(f"opcode {opcode} first", bytes([opcode]) * 9, "why=protocol")
        for opcode in (0, 19, 31, 0x40, 0xFF):
            self.refused(f"opcode {opcode} in C", VALIDATE + bytes([opcode]) + b"\0" * 8,
                         "why=protocol", "dialect=C")

    def test_wrong_magic(self):
        self.refused("wrong magic", "00 01020384 05060788 00", "why=protocol")

    def test_second_validate(self):
        self.refused("second VALIDATE", VALIDATE + VALIDATE, "why=protocol")

    def test_good_requests_before_it_are_answered(self):
        self.refused("after good requests",
                     VALIDATE + request("C", "add", "/x", 3) + request("C", "num_keys") + b"\xfe",
                     "why=protocol", after=i64(3) + i64(2))

    def test_lengths_beyond_the_limits(self):
        big = [8193, 1 << 31, (1 << 32) + 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
        for size in big:
            self.refused(f"key of {size} in A", b"\x02" + u64(size), "why=limit")
            self.refused(f"key of {size} in C", VALIDATE + b"\x03" + u64(size), "why=limit")
        for size in [(8 << 20) + 1] + big[1:]:
            self.refused(f"value of {size}", VALIDATE + b"\x01" + field("/k") + u64(size),
                         "why=limit")
            self.refused(f"expected value of {size}", VALIDATE + b"\x02" + field("/k") + u64(size),
                         "why=limit")
            self.refused(f"desired value of {size}",
                         VALIDATE + b"\x02" + field("/k") + field("e") + u64(size), "why=limit")
            self.refused(f"queue item of {size}", VALIDATE + b"\x0e" + field("/k") + u64(size),
                         "why=limit")

    def test_counts_beyond_the_limits(self):
        for opcode in (5, 6, 10, 11):
            for count in (131073, 1 << 32, 1 << 63, (1 << 64) - 1):
                self.refused(f"opcode {opcode} with {count} items",
                             VALIDATE + bytes([opcode]) + u64(count), "why=limit")

    def test_many_items_that_are_too_much_together(self):
        """Each item is within its limit, all together are not: refused before they are held."""
        with Server() as server, Bystander(server):
            wire = server.connect("C")
            wire.send(b"\x0b" + u64(100))
            item = field("/k") + field(b"x" * (4 << 20))
            with self.assertRaises((OSError, AssertionError)):
                for _ in range(100):
                    wire.send(item)
                raise AssertionError("all of it was taken")
            self.one_line(server, wire, "why=limit")
            self.assertLess(server.rss_kib(), harness.rss_bound_kib(200 * 1024))

    def test_reply_that_would_be_too_large(self):
        """A MULTI_GET that names a large key again and again multiplies what is stored."""
        with Server() as server, Bystander(server):
            wire = server.connect("C")
            wire.set("/big", b"x" * (4 << 20))
            wire.request("multi_get", ["/big"] * 1000)
            wire.drain_until_close()
            self.one_line(server, wire, "why=limit")
            self.assertLess(server.rss_kib(), harness.rss_bound_kib(200 * 1024))

    def test_add_to_text(self):
        for text in ("abc", "", "-", " ", "99999999999999999999", "x10"):
            with self.subTest(f"add to '{text}'"), Server() as server, Bystander(server):
                wire = server.connect("C")
                wire.set("/t", text)
                wire.request("add", "/t", 1)
                wire.expect_close()
                self.one_line(server, wire, "why=not_a_number")
                with server.connect("C") as other:
                    self.assertEqual(other.get("/t"), text.encode())

    def test_port_scanner(self):
        """Connections that come and go, with nothing or next to nothing said, cost one line at
        most and never more."""
        with Server() as server, Bystander(server):
            before = server.rss_kib()
            for index in range(300):
                wire = server.connect()
                if index % 3 == 1:
                    wire.reset()
                else:
                    wire.close()
            wire = server.connect()
            wire.send(b"\r\n\r\n")
            wire.close()
            self.one_line(server, wire)
            probe = server.connect()
            probe.send(bytes.fromhex("deadbeef") * 4)
            probe.expect_close()
            self.one_line(server, probe, "why=protocol")
            # The silent ones are worth no warning.
            self.assertEqual(len(server.log_lines(" warn ")), 2)
            self.assertLess(server.rss_kib() - before, harness.rss_bound_kib(8 * 1024))

    def test_http(self):
        self.refused("GET", b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n",
                     "why=protocol")
        self.refused("POST", b"POST /api HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", "why=protocol")
        self.refused("GET in C", VALIDATE + b"GET / HTTP/1.1\r\n\r\n", "why=protocol", "dialect=C")

    def test_tls(self):
        random_bytes = bytes(range(32))
        hello = (b"\x01\x00\x00\xc4\x03\x03" + random_bytes + b"\x20" + random_bytes
                 + b"\x00\x08\x13\x02\x13\x03\x13\x01\x00\xff\x01\x00\x00\x73").ljust(200, b"\0")
        self.refused("TLS hello", b"\x16\x03\x01" + struct.pack(">H", len(hello)) + hello,
                     "why=protocol")

    def test_ssh(self):
        self.refused("SSH", b"SSH-2.0-OpenSSH_9.2p1\r\n", "why=protocol")

    def test_half_a_request_for_ever(self):
        starts = {
            "one zero": b"\x00",
            "four bytes of VALIDATE": VALIDATE[:4],
            "an opcode of A": b"\x03",
            "half a length": VALIDATE + b"\x01\x05\x00\x00",
            "half a key": VALIDATE + b"\x01" + u64(100) + b"/k",
            "half a value": VALIDATE + b"\x01" + field("/k") + u64(1 << 20) + b"x" * 1000,
            "half a list": VALIDATE + b"\x06" + u64(3) + field("/a"),
            "half a number": VALIDATE + b"\x04" + field("/n") + b"\x01",
        }
        for name, data in starts.items():
            with self.subTest(f"half a request: {name}"):
                with Server("--request-timeout", "300ms") as server, Bystander(server):
                    wire = server.connect()
                    start = time.monotonic()
                    wire.send(data)
                    wire.expect_close()
                    self.assertGreater(time.monotonic() - start, 0.25)
                    self.one_line(server, wire, "why=stuck_request")

    def test_a_byte_now_and_then(self):
        """The timeout is the request's, from its first byte on, and not of each byte."""
        with Server("--request-timeout", "500ms") as server, Bystander(server):
            wire = server.connect("C")
            wire.send(b"\x01" + field("/k") + u64(1000))

            def is_over():
                try:
                    wire.send(b"x")
                except OSError:
                    return True
                return False

            start = time.monotonic()
            harness.wait_until(is_over, "the end of the request's time")
            self.assertGreater(time.monotonic() - start, 0.4)
            self.one_line(server, wire, "why=stuck_request")

    def test_peer_that_leaves_in_the_middle(self):
        for name, leave in (("closes", Wire.close), ("resets", Wire.reset)):
            with self.subTest(f"{name} in the middle"), Server() as server, Bystander(server):
                wire = server.connect("C")
                wire.sync()  # it has been accepted, so the server knows its name
                wire.send(b"\x01" + field("/k") + u64(100) + b"x" * 50)
                leave(wire)
                self.one_line(server, wire, "why=half_request")
                with server.connect("C") as other:
                    self.assertFalse(other.check("/k"))

    def test_peer_that_left_before_it_was_accepted(self):
        """Its address comes with it; asked later the kernel would not know it any more."""
        with Server() as server, Bystander(server):
            server.signal(signal.SIGSTOP)
            wire = server.connect()
            peer = wire.peer_text()
            wire.send(VALIDATE + b"\x01" + field("/k") + u64(100) + b"x" * 50)
            wire.reset()
            server.signal(signal.SIGCONT)
            server.wait_log("why=half_request")
            (line,) = server.log_lines("conn.closed")
            self.assertIn(f"peer={peer} ", line)

    def test_never_reads(self):
        """Large replies for a client that does not read: bounded memory, then the end."""
        with Server("--request-timeout", "500ms") as server, Bystander(server):
            with server.connect("C") as setter:
                setter.set("/big", b"x" * (4 << 20))
                setter.sync()
            before = server.rss_kib()
            wires = [server.connect("C", receive_buffer=4096) for _ in range(4)]
            for wire in wires:
                for _ in range(50):
                    wire.request("get", "/big")
            peak = before
            for wire in wires:
                while not server.log_lines(f"peer={wire.peer_text()} "):
                    peak = max(peak, server.rss_kib())
                    with server.connect("C") as other:
                        other.sync()
                self.one_line(server, wire, "why=does_not_read")
            # 50 replies each would be 800 MiB; one or two each are held.
            self.assertLess(peak - before, harness.rss_bound_kib(100 * 1024))
            for wire in wires:
                self.assertLess(wire.drain_until_close(), 50 * (4 << 20))

    def test_never_reads_small_replies(self):
        """Endless requests whose answers are not read: the server stops reading, then closes."""
        with Server("--request-timeout", "500ms") as server, Bystander(server):
            before = server.rss_kib()
            wire = server.connect("C", receive_buffer=4096)
            batch = request("C", "num_keys") * 10000
            end = time.monotonic() + harness.DEADLINE_S
            try:
                while time.monotonic() < end:
                    wire.send(batch)
                self.fail("still open")
            except OSError:
                pass
            self.one_line(server, wire, "why=does_not_read")
            self.assertLess(server.rss_kib() - before, harness.rss_bound_kib(16 * 1024))

    def test_memory_hog(self):
        """Many large unfinished requests share one limit."""
        with Server("--max-memory", "32M") as server, Bystander(server):
            before = server.rss_kib()
            wires = []
            for _ in range(20):
                wire = server.connect("C")
                try:
                    wire.send(b"\x01" + field("/k") + u64(8 << 20) + b"x" * (7 << 20))
                except OSError:
                    pass  # refused while it was being sent
                wires.append(wire)
            server.wait_log("why=memory")
            self.assertLess(server.rss_kib() - before, harness.rss_bound_kib(80 * 1024))
            for wire in wires:
                wire.close()

            def room():
                with server.connect("C") as after:
                    try:
                        after.set("/after", b"x" * (4 << 20))
                        return after.num_keys() == 2
                    except (AssertionError, OSError):
                        return False

            # When they are gone there is room again.
            harness.wait_until(room, "room after the hogs have left")

    def test_noise(self):
        """Random bytes of every kind, from many connections, with and without a handshake."""
        seed = int.from_bytes(os.urandom(4), "big")
        generator = random.Random(seed)
        with self.subTest(f"noise with seed {seed}"):
            with Server("--request-timeout", "200ms", "--max-memory", "64M") as server:
                with Bystander(server):
                    for _ in range(300):
                        wire = server.connect()
                        data = generator.randbytes(generator.randrange(1, 200))
                        if generator.random() < 0.5:
                            # Small numbers reach deeper into the parser.
                            data = bytes(byte % 20 for byte in data)
                        if generator.random() < 0.7:
                            data = VALIDATE + data
                        try:
                            wire.send(data)
                        except OSError:
                            pass
                        if generator.random() < 0.3:
                            wire.reset()
                        else:
                            wire.close()
                    self.assertLess(server.rss_kib(), harness.rss_bound_kib(100 * 1024))


if __name__ == "__main__":
    harness.main()
