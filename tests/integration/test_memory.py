"""The promise of `--max-memory`: resident memory stays near it, with any data.

Each test fills a small server until it refuses more, and checks its peak. With
MEMORY_MIB=64 in the environment the limit is another one, and the figures are printed.
"""

import os
import unittest

import harness
from harness import Server, request

MEMORY_MIB = int(os.environ.get("MEMORY_MIB", "32"))
BOUND_KIB = MEMORY_MIB * 1024 * 5 // 4 + 16 * 1024

# Requests of one write: enough to keep the server busy.
BATCH_SIZE = 1 << 18

with open(harness.MUSTER, "rb") as muster_file:
    IMAGE = muster_file.read()
IS_SANITIZED = b"__asan_init" in IMAGE or b"__tsan_init" in IMAGE


def send_all(wire, requests):
    """Send all, with a question after each batch: how many were sent before the server refused."""
    batch, count, sent = bytearray(), 0, 0
    try:
        for one in requests:
            batch += one
            count += 1
            if len(batch) >= BATCH_SIZE:
                wire.send(bytes(batch))
                wire.sync()
                batch.clear()
                sent = count
        wire.send(bytes(batch))
        wire.sync()
        return count
    except (OSError, AssertionError):
        return sent


def endless(make):
    number = 0
    while True:
        yield make(number)
        number += 1


def key(number):
    return f"/{number:x}"


def peak_kib(server):
    with open(f"/proc/{server.pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    raise AssertionError("no VmHWM")


@unittest.skipIf(IS_SANITIZED, "sanitizers keep freed memory and shadow all of it")
class Memory(unittest.TestCase):
    def setUp(self):
        self.server = Server("--max-memory", f"{MEMORY_MIB}M")
        self.server.__enter__()
        self.addCleanup(self.server.__exit__, None, None, None)

    def fill(self, requests):
        with self.server.connect("C") as wire:
            return send_all(wire, requests)

    def check(self):
        peak, now = peak_kib(self.server), self.server.rss_kib()
        if "MEMORY_MIB" in os.environ:
            print(f"  {self.id().rsplit('.', 1)[1]}: peak {peak / 1024:.1f} MiB, "
                  f"then {now / 1024:.1f} MiB, bound {BOUND_KIB / 1024:.1f} MiB", flush=True)
        self.assertLessEqual(peak, BOUND_KIB)

    def test_queue_of_tiny_items(self):
        push = request("C", "queue_push", "/q", "x")
        count = self.fill(endless(lambda number: push))
        self.assertGreater(count, MEMORY_MIB * 10000)
        self.check()

    def test_tiny_keys(self):
        count = self.fill(endless(lambda number: request("C", "set", key(number), "")))
        self.assertGreater(count, MEMORY_MIB * 2000)
        self.check()

    def watchers(self, count):
        """Connections of dialect A: each shows it, and the server believes it after a while."""
        wires = [self.server.connect("A") for _ in range(count)]
        self.addCleanup(lambda: [wire.close() for wire in wires])
        for wire in wires:
            wire.request("delete", "/none")
        for wire in wires:
            wire.receive(8)
        return wires

    def watch(self, wires, make_key):
        """1,024 keys each, until the server refuses."""
        count = 0
        try:
            for wire in wires:
                for _ in range(4):
                    wire.send(b"".join(request("A", "watch", make_key(count + i))
                                       for i in range(256)))
                    wire.expect(b"\x03" * 256)
                    count += 256
        except (OSError, AssertionError):
            pass
        return count

    def test_watches(self):
        count = self.watch(self.watchers(4 * MEMORY_MIB), key)
        self.assertGreater(count, MEMORY_MIB * 2000)
        self.check()

    def test_watches_of_the_same_keys(self):
        count = self.watch(self.watchers(8 * MEMORY_MIB), lambda number: key(number % 1024))
        self.assertEqual(count, 8 * MEMORY_MIB * 1024)
        self.check()

    def test_waits(self):
        wires = []
        self.addCleanup(lambda: [wire.close() for wire in wires])
        try:
            while True:
                wire = self.server.connect("C")
                wires.append(wire)
                number = len(wires) * 4096
                wire.request("wait", [key(number + i) for i in range(4096)])
                wire.sync()
        except (OSError, AssertionError):
            pass
        self.check()

    def churn(self, sizes, keep):
        """Fill with values of one size, delete all but every keep-th, and so on with the next."""
        number = 0
        for size in sizes:
            first = number
            value = bytes(size)
            count = self.fill(request("C", "set", key(first + i), value)
                              for i in range(MEMORY_MIB << 20))
            number += count
            with self.server.connect("C") as wire:
                for i in range(0, count, 512):
                    keys = [j for j in range(i, min(i + 512, count)) if j % keep]
                    wire.send(b"".join(request("C", "delete", key(first + j)) for j in keys))
                    wire.receive(8 * len(keys))

    def test_churn_that_leaves_some(self):
        self.churn([1, 1500, 20000], 16)
        self.check()


if __name__ == "__main__":
    harness.main()
