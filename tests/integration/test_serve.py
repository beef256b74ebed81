"""`muster serve` as a process: where it listens, what it obeys, how it starts and stops."""

import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness
from harness import Server, Wire, field, i64, request, run, u64


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def listening(pid):
    """The TCP addresses on which a process listens, as the kernel has them: {(host, port)}."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            continue
        found = re.fullmatch(r"socket:\[(\d+)\]", target)
        if found:
            inodes.add(found.group(1))
    result = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        if not os.path.exists(f"/proc/{pid}/net/{table}"):
            continue
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as file:
            for line in list(file)[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    raw, port = fields[1].split(":")
                    # The kernel prints 32-bit words in host order.
                    words = [bytes.fromhex(raw[i:i + 8])[::-1] for i in range(0, len(raw), 8)]
                    result.add((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    return result


def read_port(path):
    """The content of a port file; None while there is none, as when another server begins."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except FileNotFoundError:
        return None


def successor_port(server):
    """Of a server whose port file is another's."""
    found = re.search(r"listening on tcp://127.0.0.1:(\d+)", server.stdout())
    return int(found.group(1)) if found else None


def use(address, dialect="C"):
    """One whole exchange."""
    with Wire(address, dialect) as wire:
        wire.set("/used", "yes")
        assert wire.get("/used") == b"yes"


class Addresses(unittest.TestCase):
    def test_free_port_is_written_and_printed(self):
        with Server() as server:
            self.assertGreater(server.port, 0)
            with open(server.port_file, encoding="ascii") as file:
                self.assertEqual(file.read(), f"{server.port}\n")
            self.assertIn(f"127.0.0.1:{server.port}", server.stdout())
            self.assertEqual(listening(server.pid), {("127.0.0.1", server.port)})
            # Nothing but the port file is left beside it.
            self.assertEqual(sorted(os.listdir(server.directory)), ["port", "stderr", "stdout"])
            use(server.address)

    def test_given_port(self):
        port = harness.free_port()
        with Server("--port", port) as server:
            self.assertEqual(server.port, port)

    def test_default_is_loopback_only(self):
        with Server(hosts=()) as server:
            hosts = {host for host, _ in listening(server.pid)}
            self.assertEqual(hosts, {"127.0.0.1", "::1"} if has_ipv6() else {"127.0.0.1"})
            self.assertEqual({port for _, port in listening(server.pid)}, {server.port})

    @unittest.skipUnless(has_ipv6(), "this machine has no IPv6")
    def test_ipv6(self):
        with Server(hosts=("::1",)) as server:
            self.assertEqual(listening(server.pid), {("::1", server.port)})
            self.assertIn(f"[::1]:{server.port}", server.stdout())
            use(("::1", server.port))
            with self.assertRaises(ConnectionRefusedError):
                Wire(("127.0.0.1", server.port))

    @unittest.skipUnless(has_ipv6(), "this machine has no IPv6")
    def test_dual_stack(self):
        for host in ("::", "*"):
            with self.subTest(f"dual stack by {host}"), Server(hosts=(host,)) as server:
                use(("::1", server.port))
                use(("127.0.0.1", server.port))
                self.assertEqual(listening(server.pid), {("::", server.port)})

    @unittest.skipUnless(has_ipv6(), "this machine has no IPv6")
    def test_ipv6_only(self):
        with Server("--ipv6-only", hosts=("::",)) as server:
            use(("::1", server.port))
            with self.assertRaises(ConnectionRefusedError):
                Wire(("127.0.0.1", server.port))

    def test_any_ipv4(self):
        with Server(hosts=("0.0.0.0",)) as server:
            self.assertEqual(listening(server.pid), {("0.0.0.0", server.port)})
            use(("127.0.0.1", server.port))
            use(("127.0.0.2", server.port))

    @unittest.skipUnless(has_ipv6(), "this machine has no IPv6")
    def test_several_hosts(self):
        hosts = ("127.0.0.1", "127.0.0.3", "::1")
        with Server(hosts=hosts) as server:
            self.assertEqual(listening(server.pid), {(host, server.port) for host in hosts})
            for host in hosts:
                use((host, server.port))
                self.assertIn(host, server.stdout())
            with self.assertRaises(ConnectionRefusedError):
                Wire(("127.0.0.2", server.port))
            # One data set behind all of them.
            with Wire(("127.0.0.1", server.port), "C") as one:
                one.set("/shared", "x")
                one.sync()
            with Wire(("::1", server.port), "C") as other:
                self.assertEqual(other.get("/shared"), b"x")

    @unittest.skipUnless(has_ipv6(), "this machine has no IPv6")
    def test_both_wildcards(self):
        with Server(hosts=("0.0.0.0", "::")) as server:
            self.assertEqual(listening(server.pid), {("0.0.0.0", server.port), ("::", server.port)})
            use(("127.0.0.1", server.port))
            use(("::1", server.port))

    def test_a_name(self):
        with Server(hosts=("localhost",)) as server:
            hosts = {host for host, _ in listening(server.pid)}
            self.assertTrue(hosts and hosts <= {"127.0.0.1", "::1"}, hosts)

    def test_unix_socket(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "socket")
            with Server(hosts=("unix:" + path,)) as server:
                self.assertEqual(server.port, 0)
                self.assertEqual(listening(server.pid), set())
                self.assertIn("unix:" + path, server.stdout())
                use(path)
                use(path, "A")
            self.assertFalse(os.path.exists(path), "the socket file was left behind")

    def test_unix_and_tcp(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "socket")
            with Server(hosts=("unix:" + path, "127.0.0.1")) as server:
                with Wire(path, "C") as local:
                    local.set("/k", "v")
                    local.sync()
                with server.connect("A") as remote:
                    self.assertEqual(remote.get("/k"), b"v")

    def test_unix_socket_of_a_killed_server(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "socket")
            with Server(hosts=("unix:" + path,)) as first:
                first.kill()
                self.assertTrue(os.path.exists(path))
                with Server(hosts=("unix:" + path,)):
                    use(path)

    def test_unix_socket_in_use(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "socket")
            with Server(hosts=("unix:" + path,)):
                second = run("serve", "--host", "unix:" + path)
                self.assertNotEqual(second.returncode, 0)
                self.assertIn(path, second.stderr.decode())
                use(path)

    def test_unix_path_is_a_file(self):
        """A file that is not a socket is not removed."""
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "precious")
            with open(path, "w", encoding="ascii") as file:
                file.write("data")
            result = run("serve", "--host", "unix:" + path)
            self.assertNotEqual(result.returncode, 0)
            with open(path, encoding="ascii") as file:
                self.assertEqual(file.read(), "data")

    def test_address_in_use(self):
        with Server() as server:
            second = run("serve", "--host", "127.0.0.1", "--port", server.port)
            self.assertEqual(second.returncode, 1)
            message = second.stderr.decode()
            self.assertIn(f"127.0.0.1:{server.port}", message)
            self.assertIn("in use", message.lower())
            self.assertIn("join with --serve never", message)
            use(server.address)
        # Of others it is not known what they are.
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            taken = run("serve", "--host", "127.0.0.1", "--port", other.getsockname()[1])
            self.assertEqual(taken.returncode, 1)
            self.assertNotIn(b"--serve", taken.stderr)

    def test_several_hosts_all_or_nothing(self):
        with socket.socket() as free, socket.socket() as taken:
            # One that nobody has at the first address; at the second we take it.
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            taken.bind(("127.0.0.2", port))
            taken.listen()
            free.close()
            result = run("serve", "--host", "127.0.0.1", "--host", "127.0.0.2", "--port", port)
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"127.0.0.2:{port}", result.stderr.decode())

    def test_address_of_another_machine(self):
        result = run("serve", "--host", "192.0.2.1", "--port", "0")
        self.assertEqual(result.returncode, 1)
        self.assertIn("192.0.2.1", result.stderr.decode())

    def test_port_file_that_cannot_be_written(self):
        result = run("serve", "--host", "127.0.0.1", "--port", "0", "--port-file",
                     "/nonexistent/dir/port")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent/dir/port", result.stderr.decode())

    def test_port_file_is_no_regular_file(self):
        """A file that is not a port file is not changed."""
        with tempfile.TemporaryDirectory() as directory:
            place = {name: os.path.join(directory, name)
                     for name in ("dir", "pipe", "link", "file")}
            os.mkdir(place["dir"])
            os.mkfifo(place["pipe"])
            with open(place["file"], "w", encoding="ascii") as file:
                file.write("precious")
            os.symlink(place["file"], place["link"])
            # No device: whoever breaks this and is root would replace it.
            for path in (place["dir"], place["pipe"], place["link"]):
                with self.subTest(path=path):
                    before = os.lstat(path)
                    result = run("serve", "--host", "127.0.0.1", "--port", "0", "--port-file", path)
                    self.assertEqual(result.returncode, 2)
                    self.assertIn(f"port file '{path}' is a", result.stderr.decode())
                    self.assertIn("not a regular file", result.stderr.decode())
                    after = os.lstat(path)
                    self.assertEqual((before.st_ino, before.st_mode), (after.st_ino, after.st_mode))
            with open(place["file"], encoding="ascii") as file:
                self.assertEqual(file.read(), "precious")
            self.assertEqual(len(os.listdir(directory)), 4)

    def test_port_file_of_an_earlier_server(self):
        """It is gone before anything else happens, and ours goes with us."""
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "port")
            with open(path, "w", encoding="ascii") as file:
                file.write("12345\n")
            result = run("serve", "--host", "192.0.2.1", "--port", "0", "--port-file", path)
            self.assertEqual(result.returncode, 1)
            self.assertEqual(os.listdir(directory), [])
        with Server() as server:
            server.terminate()
            self.assertFalse(os.path.exists(server.port_file))

    def test_port_file_of_a_successor(self):
        with Server() as server:
            with Server("--port-file", server.port_file, wait=False) as successor:
                harness.wait_until(lambda: successor_port(successor) is not None and
                                   read_port(server.port_file) == successor_port(successor),
                                   "the successor's port")
                server.terminate()
                self.assertEqual(read_port(server.port_file), successor_port(successor))


class Limits(unittest.TestCase):
    def test_max_connections(self):
        with Server("--max-connections", 3) as server:
            wires = [server.connect("C") for _ in range(3)]
            for wire in wires:
                wire.sync()
            extra = server.connect()
            extra.expect_close()
            server.wait_log("too_many_connections", extra.peer_text())
            self.assertEqual(wires[0].add("/n", 1), 1)
            # When one leaves there is room again.
            wires.pop().close()

            def try_again():
                with server.connect("C") as wire:
                    try:
                        return wire.add("/n", 1) > 0
                    except (AssertionError, OSError):
                        return False

            harness.wait_until(try_again, "room for another connection")
            for wire in wires:
                wire.close()

    def test_max_key(self):
        with Server("--max-key", 64) as server:
            with server.connect("C") as wire:
                wire.set("k" * 64, "v")
                self.assertEqual(wire.get("k" * 64), b"v")
            wire = server.connect("C")
            wire.request("get", "k" * 65)
            wire.expect_close()
            server.wait_log("why=limit", wire.peer_text())

    def test_max_value(self):
        with Server("--max-value", "1K") as server:
            with server.connect("C") as wire:
                wire.set("/k", "v" * 1024)
                self.assertEqual(wire.get("/k"), b"v" * 1024)
                # APPEND does not get around it.
                wire.request("append", "/k", "v")
                wire.request("num_keys")
                wire.expect_close()
                server.wait_log("why=limit", wire.peer_text())
            wire = server.connect("C")
            # Refused by the announced length: the value need not follow.
            wire.send(bytes([1]) + field("/k2") + u64(1025))
            wire.expect_close()
            server.wait_log("why=limit", wire.peer_text())
            with server.connect("C") as after:
                self.assertEqual(after.get("/k"), b"v" * 1024)
                self.assertEqual(after.num_keys(), 1)

    def test_large_values_when_allowed(self):
        with Server("--max-value", "40M") as server:
            with server.connect("C") as wire:
                value = os.urandom(1 << 20) * 32
                wire.set("/large", value)
                self.assertEqual(wire.get("/large"), value)

    def test_max_memory(self):
        with Server("--max-memory", "4M", "--max-value", "1M") as server:
            wire = server.connect("C")
            value = b"x" * 1000000
            # The request that does not fit ends the connection; earlier ones were executed.
            with self.assertRaises((OSError, AssertionError)):
                for index in range(10):
                    wire.set(f"/fill/{index}", value)
                wire.sync()
            server.wait_log("why=memory", wire.peer_text())
            self.assertLess(server.rss_kib(), harness.rss_bound_kib(40 * 1024))
            with server.connect("C") as after:
                count = after.num_keys()
                self.assertTrue(2 <= count <= 4, count)
                self.assertEqual(after.get("/fill/0"), value)
                # Deleting makes room.
                self.assertEqual(after.delete("/fill/0"), 1)
                after.set("/again", value[:900000])
                self.assertEqual(after.get("/again"), value[:900000])

    def test_idle_timeout(self):
        with Server("--idle-timeout", "300ms") as server:
            silent = server.connect()
            waiting = server.connect("C")
            waiting.request("wait", ["/late"])
            busy = server.connect("C")
            start = time.monotonic()
            while silent.is_silent():
                busy.add("/n", 1)
                self.assertLess(time.monotonic() - start, harness.DEADLINE_S)
            took = time.monotonic() - start
            silent.expect_close()
            self.assertGreater(took, 0.25)
            server.wait_log("why=idle", silent.peer_text())
            # A client that waits for a key is not idle.
            busy.set("/late", "x")
            waiting.expect("00")

    def test_no_idle_timeout_unless_asked(self):
        """And the silent second connection of old torch stays."""
        with Server("--request-timeout", "200ms") as server:
            silent = server.connect()
            half = server.connect("C")
            half.send(b"\x01\x05")
            half.expect_close()
            self.assertTrue(silent.is_silent())
            silent.send(request("A", "add", "/n", 1))
            silent.expect(i64(1))

    def test_descriptor_limit_warning(self):
        def lower():
            resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

        with Server("--max-connections", 5000, preexec_fn=lower) as server:
            (line,) = server.wait_log("serve.descriptors")
            self.assertIn(" warn ", line)
            self.assertIn("limit=128", line)
            self.assertIn("5000", line)
            use(server.address)
        with Server("--max-connections", 20, preexec_fn=lower) as server:
            use(server.address)
            server.wait_log("ev=server.listening")  # which comes later
            self.assertEqual(server.log_lines("serve.descriptors"), [])

    def test_soft_descriptor_limit_is_raised(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY and hard < 700:
            self.skipTest(f"the hard limit of {hard} descriptors leaves no room")

        def lower():
            resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))

        with Server("--max-connections", 300, preexec_fn=lower) as server:
            server.wait_log("ev=server.listening")  # which comes later
            self.assertEqual(server.log_lines("serve.descriptors"), [])
            wires = [server.connect("C") for _ in range(250)]
            for wire in wires:
                self.assertGreater(wire.add("/n", 1), 0)
            for wire in wires:
                wire.close()

    def test_out_of_descriptors(self):
        """Beyond the limit connections are turned away, and the server goes on."""
        def lower():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

        with Server(preexec_fn=lower) as server:
            first = server.connect("C")
            first.sync()
            crowd = [server.connect() for _ in range(100)]
            self.assertEqual(first.add("/n", 1), 1)
            for wire in crowd:
                wire.close()

            def try_again():
                with server.connect("C") as wire:
                    try:
                        return wire.add("/n", 1) > 0
                    except (AssertionError, OSError):
                        return False

            harness.wait_until(try_again, "a free descriptor")
            # Being out of descriptors must not make it spin.
            before = server.cpu_s()
            first.sync()
            self.assertLess(server.cpu_s() - before, 1)

    def test_backlog_warning(self):
        with open("/proc/sys/net/core/somaxconn", encoding="ascii") as file:
            somaxconn = int(file.read())
        if somaxconn >= 900000:
            self.skipTest(f"somaxconn is {somaxconn}, nothing exceeds it")
        with Server("--max-connections", somaxconn + 1) as server:
            (line,) = server.wait_log("serve.somaxconn")
            self.assertIn(" warn ", line)
            self.assertIn(f"somaxconn={somaxconn}", line)
        with Server("--max-connections", min(somaxconn, 1000)) as server:
            use(server.address)
            server.wait_log("ev=server.listening")  # which comes later
            self.assertEqual(server.log_lines("serve.somaxconn"), [])


class Systemd(unittest.TestCase):
    def test_notify(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "notify")
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.bind(path)
                manager.settimeout(harness.DEADLINE_S)
                with Server(env={"NOTIFY_SOCKET": path}, wait=False) as server:
                    self.assertEqual(manager.recv(4096).split(b"\n")[0], b"READY=1")
                    # Ready means ready: no retry here.
                    with open(server.port_file, encoding="ascii") as file:
                        server.port = int(file.read())
                    use(server.address)
                    server.signal(signal.SIGTERM)
                    self.assertEqual(manager.recv(4096).split(b"\n")[0], b"STOPPING=1")
                    self.assertEqual(server.wait(), 0)
                    server.ended()

    def test_notify_abstract(self):
        name = f"muster-test-{os.getpid()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind("\0" + name)
            manager.settimeout(harness.DEADLINE_S)
            with Server(env={"NOTIFY_SOCKET": "@" + name}):
                self.assertEqual(manager.recv(4096).split(b"\n")[0], b"READY=1")

    # Puts sockets where systemd would and becomes the server: LISTEN_PID must be its own pid.
    LAUNCHER = """
import os, sys
count = int(sys.argv[1])
fds = [int(fd) for fd in sys.argv[2].split(",")]
fds = [os.dup(fd) for fd in fds]
high = [os.dup2(fd, 100 + i) for i, fd in enumerate(fds)]
for i, fd in enumerate(high):
    os.dup2(fd, 3 + i)
os.environ["LISTEN_FDS"] = str(count)
os.environ["LISTEN_PID"] = str(os.getpid() + int(sys.argv[3]))
os.execv(sys.argv[4], sys.argv[4:])
"""

    def activated(self, sockets, pid_offset=0, args=(), **more):
        fds = [s.fileno() for s in sockets]
        wrapper = [sys.executable, "-c", self.LAUNCHER, str(len(fds)),
                   ",".join(map(str, fds)), str(pid_offset)]
        return Server(*args, hosts=(), wrapper=wrapper, pass_fds=fds, **more)

    def test_socket_activation(self):
        with socket.socket() as one, socket.socket() as two:
            for each in (one, two):
                each.bind(("127.0.0.1", 0))
                each.listen()
            # A connection that came before the server waits for it.
            early = Wire(one.getsockname(), "C")
            early.send(request("C", "add", "/n", 1))
            with self.activated([one, two]) as server:
                early.expect(i64(1))
                self.assertEqual(server.port, one.getsockname()[1])
                self.assertEqual(listening(server.pid),
                                 {one.getsockname(), two.getsockname()})
                use(one.getsockname())
                use(two.getsockname(), "A")
            # The manager's socket outlives the server.
            late = socket.create_connection(one.getsockname())
            late.close()
            early.close()

    def test_socket_activation_unix(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "socket")
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen()
                with self.activated([listener]):
                    use(path)
                self.assertTrue(os.path.exists(path), "it is the manager's file")

    def test_sockets_for_another_process(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            with self.activated([other], pid_offset=1) as server:
                # The descriptor was passed on, but it is not the server's to use.
                self.assertNotEqual(server.port, other.getsockname()[1])
                self.assertNotIn(str(other.getsockname()[1]), server.stdout())
                use(server.address)


class Stopping(unittest.TestCase):
    def test_answers_what_is_under_way(self):
        """Requests that have arrived are answered before the connection ends."""
        with Server() as server:
            wires = [server.connect("C") for _ in range(20)]
            for wire in wires:
                wire.sync()
            server.signal(signal.SIGSTOP)
            for wire in wires:
                for _ in range(50):
                    wire.request("add", "/n", 1)
            start = time.monotonic()
            server.signal(signal.SIGTERM)
            server.signal(signal.SIGCONT)
            self.assertEqual(server.wait(), 0)
            self.assertLess(time.monotonic() - start, 1.5)
            server.ended()
            sums = set()
            for wire in wires:
                sums |= {wire.receive_i64() for _ in range(50)}
                wire.expect_close()
            self.assertEqual(sums, set(range(1, 1001)))

    def test_leaves_within_a_second(self):
        """With any clients: waiting, silent, with half a request, never reading."""
        with Server() as server:
            waiting = server.connect("C")
            waiting.request("wait", ["/never"])
            silent = server.connect()
            half = server.connect("C")
            half.send(b"\x01\x05")
            greedy = server.connect("C", receive_buffer=4096)
            greedy.set("/big", b"x" * (8 << 20))
            for _ in range(4):
                greedy.request("get", "/big")
            with server.connect("C") as other:
                harness.wait_until(lambda: other.check("/big"), "the large value")
            start = time.monotonic()
            server.signal(signal.SIGTERM)
            self.assertEqual(server.wait(), 0)
            self.assertLess(time.monotonic() - start, 1.5)
            server.ended()
            waiting.expect_close()
            silent.expect_close()
            half.expect_close()
            greedy.close()

    def test_large_reply_is_finished(self):
        """A client that reads gets all of a reply that was under way."""
        with Server() as server:
            value = os.urandom(1 << 20) * 7
            wire = server.connect("C", receive_buffer=8192)
            wire.set("/big", value)
            wire.sync()
            wire.request("get", "/big")
            wire.expect(u64(len(value)))
            server.signal(signal.SIGTERM)
            self.assertEqual(wire.receive(len(value)), value)
            wire.expect_close()
            self.assertEqual(server.wait(), 0)
            server.ended()

    def test_no_new_connections(self):
        with Server() as server:
            with server.connect("C") as wire:
                wire.sync()
                server.signal(signal.SIGTERM)
                self.assertEqual(server.wait(), 0)
            with self.assertRaises(ConnectionRefusedError):
                server.connect()
            server.ended()

    def test_interrupt(self):
        with Server() as server:
            server.signal(signal.SIGINT)
            self.assertEqual(server.wait(), 0)
            server.ended()

    def test_second_start_on_the_same_port(self):
        """Connections in TIME_WAIT do not keep a restarted server off its port."""
        with Server() as first:
            port = first.port
            wire = first.connect("C")
            wire.sync()
            first.terminate()
            wire.expect_close()
            wire.close()
            with Server("--port", port) as second:
                use(second.address)


class Logging(unittest.TestCase):
    def test_counters(self):
        with Server() as server:
            with server.connect("C") as wire:
                for _ in range(7):
                    wire.add("/n", 1)
                wire.set("/k", "v")
                wire.sync()
                server.signal(signal.SIGUSR1)
                (line,) = server.wait_log("ev=server.counters")
                self.assertIn("keys=2", line)
                self.assertIn("connections=1", line)
                server.wait_log("ev=server.ops", " add=7", " set=1")
                # It goes on serving, and dumps again.
                wire.add("/n", 1)
                server.signal(signal.SIGUSR1)
                server.wait_log("ev=server.ops", " add=8")

    def test_json(self):
        with Server("--log-format", "json", "--log-level", "debug") as server:
            wire = server.connect()
            wire.send(b"\xff\"\\\n\x01")
            wire.expect_close()
            use(server.address)
            server.signal(signal.SIGUSR1)
            server.wait_log("server.counters")
            server.terminate()
            entries = [json.loads(line) for line in server.log().splitlines()]
            self.assertGreater(len(entries), 3)
            for entry in entries:
                self.assertIn(entry["level"], ("debug", "info", "warn", "error"))
                self.assertIn("ev", entry)
            (closed,) = [e for e in entries if e.get("peer") == wire.peer_text()
                         and e["ev"] == "conn.closed"]
            self.assertEqual(closed["why"], "protocol")
            self.assertEqual(closed["level"], "warn")

    def test_text(self):
        with Server() as server:
            use(server.address)
            server.terminate()
            for line in server.log().splitlines():
                self.assertRegex(line, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z (info|warn) ev=\S+")

    def test_level(self):
        with Server("--log-level", "error") as server:
            wire = server.connect()
            wire.send(b"\xff" * 32)
            wire.expect_close()
            server.terminate()
            self.assertEqual(server.log(), "")

    def test_file(self):
        """--log-file has the log, and SIGHUP opens it again."""
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "log")

            def has(name, text):
                try:
                    with open(os.path.join(directory, name), encoding="utf-8") as file:
                        return text in file.read()
                except FileNotFoundError:
                    return False

            with Server("--log-file", path) as server:
                harness.wait_until(lambda: has("log", "ev=server.listening"), "the log")
                os.rename(path, path + ".1")
                server.signal(signal.SIGHUP)
                harness.wait_until(lambda: has("log", "ev=log.reopened"), "the new log")
                bad_connections(server.address, 1)
                harness.wait_until(lambda: has("log", "ev=conn.closed"), "a line")
                self.assertFalse(has("log.1", "ev=conn.closed"))
                open_files = f"/proc/{server.pid}/fd"
                self.assertNotIn(path + ".1", [os.readlink(f"{open_files}/{fd}")
                                               for fd in os.listdir(open_files)])
                # It cannot be opened again: the old one is still good.
                os.rename(path, path + ".2")
                os.mkdir(path)
                server.signal(signal.SIGHUP)
                harness.wait_until(lambda: has("log.2", "ev=log.reopen_failed"), "the failure")
                use(server.address)
                server.terminate()
                self.assertTrue(has("log.2", "ev=server.stopped"))
                self.assertEqual(server.log(), "")

    def test_file_that_cannot_be_opened(self):
        result = run("serve", "--port", "0", "--log-file", "/nonexistent/log")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent/log", result.stderr.decode())

    def test_error_with_a_file(self):
        """It is on stderr, and in the log as well."""
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "log")
            result = run("serve", "--host", "192.0.2.1", "--port", "0", "--log-file", path)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr.decode(), r"\Amuster: listen on '192.0.2.1")
            with open(path, encoding="utf-8") as file:
                self.assertIn("error ev=serve.failed detail=\"listen on '192.0.2.1", file.read())

    def test_hangup_without_a_file(self):
        with Server() as server:
            server.signal(signal.SIGHUP)
            server.wait_log("info ev=log.hangup to=stderr")
            use(server.address)

    def test_quiet_about_good_clients(self):
        with Server() as server:
            server.wait_log("ev=server.listening")
            before = len(server.log().splitlines())
            for dialect in "ABC":
                with server.connect(dialect) as wire:
                    wire.add("/n", 1)
            with server.connect("C") as wire:
                wire.sync()
                self.assertEqual(len(server.log().splitlines()), before, server.log())


def full_pipe():
    """A pipe that takes no more: (read end, write end)."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 512)
    except BlockingIOError:
        os.set_blocking(writer, True)
    return reader, writer


def bad_connections(address, count):
    """Each costs the server a line."""
    for _ in range(count):
        with Wire(address) as wire:
            wire.send(b"\xff" * 32)
            wire.expect_close()


class FullLog(unittest.TestCase):
    def start(self, stderr, *args):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        port_file = os.path.join(directory.name, "port")
        process = subprocess.Popen(
            [harness.MUSTER, "serve", "--port", "0", "--port-file", port_file, *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def read_port():
            try:
                with open(port_file, encoding="ascii") as file:
                    return int(file.read())
            except FileNotFoundError:
                return None

        return process, ("127.0.0.1", harness.wait_until(read_port, "the port file"))

    def test_nobody_reads(self):
        """The server serves and obeys signals, although not a byte of its log is taken."""
        reader, writer = full_pipe()
        process, address = self.start(writer)
        os.close(writer)
        bad_connections(address, 100)
        use(address)
        for _ in range(3):
            process.send_signal(signal.SIGUSR1)
        use(address)
        process.terminate()
        self.assertEqual(process.wait(harness.DEADLINE_S), 0)
        os.close(reader)

    def test_join_ends(self):
        """So do nodes."""
        reader, writer = full_pipe()
        with Server() as server:
            process = subprocess.Popen(
                [harness.MUSTER, "join", "--rdzv-backend", "muster", "--rdzv-endpoint",
                 f"127.0.0.1:{server.port}", "--rdzv-id", "full", "--nnodes", "1", "--hold", "0",
                 "--log-level", "debug"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=writer)
            os.close(writer)
            self.addCleanup(process.kill)
            with process.stdout as stdout:
                ready, _, _ = select.select([stdout], [], [], harness.DEADLINE_S)
                self.assertTrue(ready, "it has not joined")
                self.assertIn(b"joined", stdout.readline())
                process.terminate()
                self.assertEqual(process.wait(harness.DEADLINE_S), 0)
        os.close(reader)

    def test_reader_is_gone(self):
        reader, writer = os.pipe()
        process, address = self.start(writer)
        os.close(writer)
        os.close(reader)
        bad_connections(address, 5)
        use(address)
        process.terminate()
        self.assertEqual(process.wait(harness.DEADLINE_S), 0)

    def test_flood(self):
        """Of one event there are 20 lines in any second, and a summary counts the others."""
        count = 500
        with Server() as server:
            began = time.monotonic()
            bad_connections(server.address, count)
            took_s = time.monotonic() - began

            def all_told():
                lines = server.log_lines("ev=conn.closed ")
                told = [int(re.search(r" count=(\d+)", line).group(1)) for line in
                        server.log_lines("warn ev=log.suppressed event=conn.closed ")]
                return len(lines) + sum(told) == count and (lines, told)

            lines, told = harness.wait_until(all_told, "the summary")
            self.assertGreaterEqual(len(lines), 20)
            self.assertLessEqual(len(lines), 20 * (int(took_s) + 1))
            self.assertLessEqual(len(told), took_s + 2)
            self.assertGreater(sum(told), 0)

    def test_the_summary_comes_at_the_end(self):
        with Server() as server:
            bad_connections(server.address, 30)
            server.terminate()
            lines = server.log_lines("ev=conn.closed ")
            told = server.log_lines("ev=log.suppressed event=conn.closed ")
            self.assertEqual(len(lines) + sum(int(line.rsplit("=", 1)[1]) for line in told), 30)
            self.assertTrue(server.log_lines("ev=server.stopped"))

    def test_fatal_errors_come_out(self):
        with Server() as server:
            found = run("serve", "--host", "127.0.0.1", "--port", server.port)
            self.assertEqual(found.returncode, 1)
            self.assertIn(b"muster: listen on", found.stderr)


class Dialects(unittest.TestCase):
    def test_all_three_at_once(self):
        """Threads of clients in every dialect count in one counter, see each other's keys and
        release each other."""
        with Server() as server:
            problems = []

            def work(dialect, index):
                try:
                    with server.connect(dialect) as wire:
                        for _ in range(100):
                            wire.add("/n", 1)
                        wire.set(f"/done/{dialect}{index}", dialect)
                        wire.request("wait", [f"/done/{d}{i}" for d in "ABC" for i in range(4)])
                        wire.expect("00")
                        if wire.get("/n") != b"1200":
                            problems.append(f"{dialect}{index} sees {wire.get('/n')}")
                        wire.set(f"/mine/{dialect}{index}", "x")
                        if wire.delete(f"/mine/{dialect}{index}") != 1:
                            problems.append(f"{dialect}{index}: delete")
                        if wire.compare_set("/n", "1200", "1200") != b"1200":
                            problems.append(f"{dialect}{index}: compare_set")
                except Exception as error:
                    problems.append(f"{dialect}{index}: {error!r}")

            threads = [threading.Thread(target=work, args=(d, i)) for d in "ABC" for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            self.assertEqual(problems, [])
            self.assertFalse(any(thread.is_alive() for thread in threads))

    def test_byte_by_byte(self):
        """Every split of a conversation is answered as if it had come at once."""
        talk = {
            "A": (request("A", "set", "/k", "v") + request("A", "get", "/k")
                  + request("A", "add", "/n", 5) + request("A", "check", ["/k", "/zz"])
                  + request("A", "wait", ["/k", "/n"]) + request("A", "num_keys"),
                  field("v") + i64(5) + b"\x01" + b"\x00" + i64(2)),
            "B": (request("B", "multi_set", [("/k", "v"), ("/l", "")])
                  + request("B", "multi_get", ["/k", "/l"]) + request("B", "append", "/k", "w")
                  + request("B", "get", "/k") + request("B", "cancel_wait")
                  + request("B", "delete", "/k"),
                  field("v") + field("") + field("vw") + b"\x01" + i64(1)),
            "C": (harness.VALIDATE + bytes([13]) + b"\x11\x22\x33\x44"
                  + request("C", "queue_push", "/q", "x") + request("C", "queue_len", "/q")
                  + request("C", "queue_pop", "/q") + request("C", "wait", ["/no"])
                  + request("C", "cancel_wait") + request("C", "barrier", "/b", 1)
                  + request("C", "list"),
                  b"\x11\x22\x33\x44" + i64(1) + i64(1) + field("x") + b"\x01" + b"\x00"
                  + i64(1) + field("/b")),
        }
        for dialect, (sent, expected) in talk.items():
            with self.subTest(f"byte by byte in {dialect}"), Server() as server:
                with server.connect() as wire:
                    for index in range(len(sent)):
                        wire.send(sent[index:index + 1])
                    wire.expect(expected)

    def test_delete_of_a_and_append_of_b(self):
        """Opcode 8 is both; what follows, or does not follow, decides."""
        with Server() as server:
            with server.connect("A") as a:
                a.set("/k", "v")
                self.assertEqual(a.delete("/k"), 1)
                self.assertEqual(a.delete("/k"), 0)
            with server.connect("B") as b:
                b.set("/k", "v")
                b.request("append", "/k", "w")
                self.assertEqual(b.get("/k"), b"vw")
                self.assertEqual(b.delete("/k"), 1)

    def test_half_a_request_stalls_nobody(self):
        with Server() as server:
            halves = []
            for start in ("00", "00ce", "0005", "03050000", "ff"[:0]):
                wire = server.connect()
                wire.send(start)
                halves.append(wire)
            with server.connect("C") as wire:
                start = time.monotonic()
                for index in range(200):
                    self.assertEqual(wire.add("/n", 1), index + 1)
                self.assertLess(time.monotonic() - start, 5)
            for wire in halves:
                self.assertTrue(wire.is_silent())
                wire.close()

    def test_timed_out_wait_of_dialect_a(self):
        """1.13 gives up a wait without a word; its next answer is the next answer."""
        with Server() as server, server.connect("A") as quitter, server.connect("A") as writer:
            quitter.request("wait", ["/late"])
            self.assertEqual(quitter.add("/n", 1), 1)
            writer.set("/late", "x")
            writer.sync()
            self.assertEqual(quitter.num_keys(), 2)

    def test_cancel_is_answered_once(self):
        with Server() as server, server.connect("C") as waiter, server.connect("C") as writer:
            waiter.request("cancel_wait")
            waiter.expect("01")
            waiter.send(request("C", "wait", ["/k"]) + request("C", "cancel_wait"))
            waiter.expect("01")
            writer.set("/k", "x")
            writer.sync()
            self.assertEqual(waiter.num_keys(), 1)

    def test_compare_set_wakes(self):
        for dialect in "ABC":
            with self.subTest(f"compare_set of {dialect} wakes"), Server() as server:
                with server.connect("C") as waiter, server.connect(dialect) as writer:
                    waiter.request("wait", ["/k"])
                    self.assertEqual(writer.compare_set("/k", "x", "y"), b"x")
                    waiter.request("num_keys")
                    waiter.expect(i64(0))
                    self.assertEqual(writer.compare_set("/k", "", "y"), b"y")
                    waiter.expect("00")

    def test_dead_participant_of_a_barrier(self):
        """A vanished participant does not count; the barrier waits for a living one."""
        with Server("--log-level", "debug") as server:
            dead = server.connect("C")
            dead.request("barrier", "/b", 2)
            with server.connect("C") as other:
                harness.wait_until(lambda: other.check("/b"), "the barrier's key")
                dead.reset()
                harness.wait_until(lambda: not other.check("/b"), "the dead one to be forgotten")
                with server.connect("C") as first, server.connect("C") as second:
                    first.request("barrier", "/b", 2)
                    harness.wait_until(lambda: other.check("/b"), "the barrier's key")
                    self.assertTrue(first.is_silent())
                    second.request("barrier", "/b", 2)
                    first.expect("00")
                    second.expect("00")
                self.assertEqual(other.get("/b"), b"2")

    def test_watch_of_dialect_a(self):
        """C++ clients of old torch hear of changes on a connection of their own."""
        with Server() as server, server.connect("A") as watcher, server.connect("C") as writer:
            # A second connection that begins with opcode 7 is B's delete unless it has shown
            # dialect A; a delete of A does that.
            self.assertEqual(watcher.delete("/none"), 0)
            watcher.request("watch", "/wk")
            watcher.expect("03")
            writer.set("/wk", "v1")
            writer.set("/wk", "v2")
            writer.add("/other", 1)
            self.assertEqual(writer.delete("/wk"), 1)
            watcher.expect(b"\x01" + field("/wk") + field("") + field("v1"))
            watcher.expect(b"\x00" + field("/wk") + field("v1") + field("v2"))
            watcher.expect(b"\x02" + field("/wk") + field("v2") + field(""))

    def test_watch_of_a_barrier_that_is_left(self):
        """A client that leaves a barrier by closing its connection changes the key, and watchers
        hear of it without any request."""
        with Server() as server, server.connect("A") as watcher:
            self.assertEqual(watcher.delete("/none"), 0)
            watcher.request("watch", "/b")
            watcher.expect("03")
            with server.connect("C") as first:
                first.request("barrier", "/b", 3)
                watcher.expect(b"\x01" + field("/b") + field("") + field("1"))
                with server.connect("C") as second:
                    second.request("barrier", "/b", 3)
                    watcher.expect(b"\x00" + field("/b") + field("1") + field("2"))
                watcher.expect(b"\x00" + field("/b") + field("2") + field("1"))
            watcher.expect(b"\x02" + field("/b") + field("1") + field(""))


class CommandLine(unittest.TestCase):
    def test_help(self):
        result = run("serve", "--help")
        self.assertEqual(result.returncode, 0)
        text = result.stdout.decode()
        for option in ("host", "port", "port-file", "max-connections", "max-memory", "max-key",
                       "max-value", "idle-timeout", "request-timeout", "log-format"):
            self.assertIn("--" + option, text)
        self.assertEqual(result.stderr, b"")
        for line in text.splitlines():
            self.assertLessEqual(len(line), 100)

    def test_misspelt_option(self):
        result = run("serve", "--max-conections", "5")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--max-connections", result.stderr.decode())
        self.assertIn("--max-conections", result.stderr.decode())

    def test_wrong_values(self):
        for args in (("--port", "65536"), ("--port", "-1"), ("--port", "http"), ("--port", ""),
                     ("--max-key", "0"), ("--max-key", "2G"), ("--max-value", "12Q"),
                     ("--idle-timeout", "soon"), ("--max-connections", "0"),
                     ("--log-format", "xml"), ("--log-level", "loud"), ("--port",), ("stray",)):
            with self.subTest(f"refused: {' '.join(args)}"):
                result = run("serve", *args)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertNotEqual(result.stderr, b"")
                if len(args) == 2:
                    self.assertIn(args[0].lstrip("-"), result.stderr.decode())

    def test_unknown_command(self):
        result = run("serv")
        self.assertEqual(result.returncode, 2)
        self.assertIn("serv", result.stderr.decode())

    def test_closed_stdout(self):
        """It serves even if its output is not read."""
        with tempfile.TemporaryDirectory() as directory:
            port_file = os.path.join(directory, "port")
            read_end, write_end = os.pipe()
            os.close(read_end)
            process = subprocess.Popen(
                [harness.MUSTER, "serve", "--host", "127.0.0.1", "--port", "0", "--port-file",
                 port_file], stdout=write_end, stderr=subprocess.DEVNULL)
            os.close(write_end)
            try:
                harness.wait_until(lambda: os.path.exists(port_file), "the port file")
                with open(port_file, encoding="ascii") as file:
                    use(("127.0.0.1", int(file.read())))
            finally:
                process.terminate()
                self.assertEqual(process.wait(harness.DEADLINE_S), 0)


if __name__ == "__main__":
    harness.main()
