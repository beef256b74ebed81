#!/usr/bin/env python3
"""Jobs over a network that fails: cuts of both ways and of one, losses and delays. Three machines
run nodes, the fourth a server or an etcd."""

import functools
import itertools
import os
import socket
import time
import unittest
import urllib.request

import cluster
import harness

INTERVAL_S, ATTEMPTS = 1, 6
EXPIRY_S = INTERVAL_S * ATTEMPTS
# A cut of TCP lasts longer than that of the network: after two seconds, the next attempt to send
# comes after up to three.
SHORT_S = 2
# A node that is silent for the expiry is lost, and the others have started again, after so much
# more: up to an interval passes before the first heartbeat that is lost.
BOUND_S = INTERVAL_S + 4 * harness.SLOWNESS
# A node is back so soon after the end of a long cut. TCP tries again after up to twice the time of
# the cut, unless the node gives the connection up before.
BACK_S = 2 * EXPIRY_S + 4 * harness.SLOWNESS
READ_TIMEOUT_S = 60

# Of a packet from machine to machine, whose wires have half of it each.
DELAY_S, LOSS = 0.05, 0.01

TIMEOUT, NO_CONNECTION = 4, 5

_numbers = itertools.count(1)


@functools.cache
def started():
    return cluster.Network(4)


class Job:
    """A job of two or three nodes on the first machines."""

    def __init__(self, case, *options, conf="", script="until [ -e $END ]; do sleep 0.05; done"):
        self.machines = case.machines
        self.path = f"{cluster.RUN}/job{next(_numbers)}"
        script = ('echo "worker $RANK of $WORLD_SIZE, $TORCHELASTIC_RESTART_COUNT restarts"; '
                  f'trap "exit 0" TERM; END={self.path}; {script}')
        conf = (f"keep_alive_interval={INTERVAL_S},keep_alive_max_attempt={ATTEMPTS},"
                f"last_call_timeout=2,join_timeout=60,read_timeout={READ_TIMEOUT_S},{conf}")
        self.nodes = []
        for machine in case.machines[:3]:
            node = machine.start(
                harness.MUSTER, "run", "--rdzv-backend", case.backend, "--rdzv-endpoint",
                case.endpoint, "--rdzv-id", self.path, "--nnodes", "2:3", "--local-addr",
                machine.address, "--rdzv-conf", conf.rstrip(","), *options, "--", "sh", "-c",
                script)
            case.addCleanup(node.close)
            self.nodes.append(node)
        self.wait(3)

    def wait(self, size, nodes=None):
        """Wait until all of these nodes work in a world of this size; returns when the last one
        began."""
        ends = []
        for node in nodes or self.nodes:
            node.until(f"of {size},")
            ends.append(node.at)
        return max(ends)

    def finish(self):
        """Let all workers succeed."""
        with open(self.path, "w", encoding="ascii"):
            pass
        for node in self.nodes:
            if node.wait(2 * harness.DEADLINE_S) != 0:
                raise AssertionError(f"ended with {node.process.returncode} after {node.lines}: "
                                     f"{node.stderr()}")


class NetworkCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.machines = started()
        cls.server = cls.machines[3]
        cls.endpoint = cls.begin(cls.backend)

    def setUp(self):
        self.addCleanup(self.mend)

    def mend(self):
        for machine in self.machines:
            machine.mend()

    @classmethod
    def begin(cls, backend):
        """Start what the nodes of the backend meet at; returns its endpoint."""
        return cls.begin_etcd() if backend == "etcd-v3" else cls.begin_server()

    @classmethod
    def begin_server(cls):
        cls.serving = cls.server.start(harness.MUSTER, "serve", "--host", cls.server.address)
        cls.addClassCleanup(cls.serving.close)
        harness.wait_until(lambda: "29400" in cls.serving.stderr(), "the server")
        return f"{cls.server.address}:29400"

    @classmethod
    def begin_etcd(cls):
        url = f"http://{cls.server.address}:2379"
        cls.serving = cls.server.start(
            "etcd", "--data-dir", f"{cluster.TMP}/etcd", "--listen-client-urls", url,
            "--advertise-client-urls", url, "--listen-peer-urls", "http://127.0.0.1:0",
            "--log-level", "error")
        cls.addClassCleanup(cls.serving.close)

        def is_healthy():
            try:
                with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
                    return b"true" in answer.read()
            except OSError:
                return False

        harness.wait_until(is_healthy, "etcd", 60)
        return f"{cls.server.address}:2379"


class Cuts:
    """The tests of each backend."""

    # How often the workers start when all nodes have lost the server for longer than the expiry.
    starts_after_outage = 2

    def check_worlds(self, node, *sizes):
        """The worlds that a node was in, without any failure of its workers."""
        ends = [line.partition(" of ")[2] for line in node.lines]
        self.assertEqual(ends, [f"{size}, 0 restarts" for size in sizes], node.stderr())

    def lose(self, ways):
        """A cut of the third node that is longer than the expiry: the others go on without it, and
        it comes back when the cut is over."""
        job = Job(self)
        self.machines[2].cut(ways=ways)
        began = time.monotonic()
        again = job.wait(2, job.nodes[:2])
        self.assertGreater(again - began, EXPIRY_S - INTERVAL_S - 1)
        self.assertLess(again - began, EXPIRY_S + BOUND_S)
        self.machines[2].mend()
        mended = time.monotonic()
        self.assertLess(job.wait(3) - mended, BACK_S)
        job.finish()
        for node, world_sizes in zip(job.nodes, ((3, 2, 3), (3, 2, 3), (3, 3))):
            self.check_worlds(node, *world_sizes)

    def test_short(self):
        """Cuts that are shorter than the expiry cost nothing: of a node, of one way, of the
        server."""
        job = Job(self)
        for machine, ways in ((self.machines[2], ("in", "out")), (self.machines[2], ("in",)),
                              (self.machines[2], ("out",)), (self.server, ("in", "out"))):
            machine.cut(ways=ways)
            time.sleep(SHORT_S)
            machine.mend()
            time.sleep(SHORT_S)  # for TCP
        time.sleep(EXPIRY_S)
        job.finish()
        for node in job.nodes:
            self.check_worlds(node, 3)

    def test_cut(self):
        self.lose(("in", "out"))

    def test_cut_in(self):
        self.lose(("in",))

    def test_cut_out(self):
        self.lose(("out",))

    def test_server(self):
        """A cut of the server that is longer than the expiry and shorter than read_timeout: all
        nodes are lost there. They meet again in one round, and need nobody's help."""
        job = Job(self)
        self.server.cut()
        time.sleep(EXPIRY_S + BOUND_S)
        self.server.mend()
        mended = time.monotonic()
        if self.starts_after_outage == 2:
            self.assertLess(job.wait(3) - mended, BACK_S)
        else:
            time.sleep(EXPIRY_S)
        job.finish()
        for node in job.nodes:
            self.check_worlds(node, *[3] * self.starts_after_outage)

    def test_given_up(self):
        """A node that is cut off for longer than read_timeout stops its workers, and says why. It
        asks once per expiry, and waits as long for an answer."""
        job = Job(self, conf="read_timeout=5")
        self.machines[2].cut()
        began = time.monotonic()
        job.wait(2, job.nodes[:2])
        node = job.nodes.pop()
        self.assertEqual(node.wait(3 * harness.DEADLINE_S), NO_CONNECTION, node.stderr())
        self.assertLess(node.end - began, 2 * EXPIRY_S + 2 * 5 + 6 * harness.SLOWNESS)
        self.assertIn("muster: this node leaves: the rendezvous could not be reached for longer "
                      "than read_timeout", node.stderr())
        self.assertEqual(self.machines[2].processes(), {self.machines[2].pid})
        self.machines[2].mend()
        job.finish()


class Muster(Cuts, NetworkCase):
    backend = "muster"


class C10d(Cuts, NetworkCase):
    """The record is on the server, but the nodes judge each other: without the server, nobody."""

    backend = "c10d"
    starts_after_outage = 1


class EtcdV3(Cuts, NetworkCase):
    backend = "etcd-v3"


class Slow(NetworkCase):
    """Packets take 50 ms from machine to machine, and one of a hundred is lost."""

    @classmethod
    def setUpClass(cls):
        cls.machines = started()
        cls.server = cls.machines[3]
        for machine in cls.machines:
            machine.slow(DELAY_S / 2, LOSS / 2)

    def check(self, backend):
        """Nodes join, all start again after the failure of one, and end."""
        self.backend, self.endpoint = backend, self.begin(backend)
        job = Job(self, "--max-restarts", "1", script=(
            '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || [ $RANK != 1 ] || '
            '{ until [ -e $END.fail ]; do sleep 0.05; done; exit 3; }; '
            'until [ -e $END ]; do sleep 0.05; done'))
        with open(f"{job.path}.fail", "w", encoding="ascii"):
            pass
        job.wait(3)
        job.finish()
        for node in job.nodes:
            self.assertEqual([line.partition(" of ")[2] for line in node.lines],
                             ["3, 0 restarts", "3, 1 restarts"])

    def test_delay(self):
        """The wire is as slow as it should be: the answer of a port where nobody listens has one of
        them to pass."""
        times = []
        for _ in range(5):
            began = time.monotonic()
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection((self.server.address, 1), harness.DEADLINE_S)
            times.append(time.monotonic() - began)
        self.assertGreater(min(times), 2 * DELAY_S / 2)
        self.assertLess(min(times), 2 * DELAY_S)

    def test_muster(self):
        self.check("muster")

    def test_c10d(self):
        self.check("c10d")

    def test_etcd_v3(self):
        self.check("etcd-v3")


class Names(unittest.TestCase):
    """A name server that does not answer."""

    def test_silent_name_server(self):
        """A node gives up at the end of its join_timeout, not at that of the lookup."""
        machine = started()[0]
        with open(f"{cluster.RUN}/resolv.conf", "w", encoding="ascii") as file:
            file.write("nameserver 127.0.0.1\noptions timeout:20 attempts:1\n")
        self.addCleanup(os.truncate, f"{cluster.RUN}/resolv.conf", 0)
        server = machine.start("python3", "-c", "import socket, time; "
                               "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
                               "s.bind(('127.0.0.1', 53)); print('up', flush=True); "
                               "time.sleep(1000)")
        self.addCleanup(server.close)
        server.until("up")
        for backend in ("etcd-v2", "etcd-v3"):
            with self.subTest(backend=backend):
                node = machine.start(
                    harness.MUSTER, "run", "--rdzv-backend", backend, "--rdzv-endpoint",
                    "etcd.example", "--rdzv-id", "job", "--nnodes", "2", "--rdzv-conf",
                    "join_timeout=2", "--", "true")
                self.addCleanup(node.close)
                self.assertIn(node.wait(), (TIMEOUT, NO_CONNECTION), node.stderr())
                self.assertLess(node.end - node.start, 2 + 4 * harness.SLOWNESS)


if __name__ == "__main__":
    cluster.main("iptables", "etcd")
