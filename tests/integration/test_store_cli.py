"""`muster store`: every verb, exact bytes, exit codes, timeouts, on a server and on a file."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import harness

OK, FAILED, USAGE, ABSENT, TIMEOUT, CONNECT, DIFFERS, UNKNOWN = range(8)


def store(*args, input=None):
    return harness.run("store", *args, input=input)


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="muster-test-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def expect(self, result, code, out=None, err=None):
        """The exit code, and what was printed."""
        self.assertEqual(result.returncode, code, (result.args, result.stdout, result.stderr))
        harness.check_report(result.stderr.decode(errors="replace"), "muster store")
        if out is not None:
            self.assertEqual(result.stdout, out, result.args)
        if err is None:
            self.assertEqual(result.stderr, b"", result.args)
        else:
            self.assertIn(err, result.stderr.decode(), result.args)

    def start(self, *args):
        """A `muster store` that is expected to wait."""
        process = subprocess.Popen(
            [harness.MUSTER, "store", *args], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self.addCleanup(process.kill)
        return process

    def finish(self, process, code, out):
        got, err = process.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual((process.returncode, got), (code, out), err)


class Verbs:
    """Mixed into a case per kind of store; self.url is where it is."""

    def test_values(self):
        self.expect(store("get", self.url, "k"), ABSENT, b"", "get 'k': no such key")
        self.expect(store("set", self.url, "k", "hello"), OK, b"")
        self.expect(store("get", self.url, "k"), OK, b"hello\n")
        self.expect(store("get", self.url, "k", "--raw"), OK, b"hello")
        self.expect(store("get", self.url, "k", "--hex"), OK, b"68656c6c6f\n")
        self.expect(store("append", self.url, "k", "--", "-x"), OK, b"")
        self.expect(store("get", self.url, "k"), OK, b"hello-x\n")
        self.expect(store("del", self.url, "k"), OK, b"")
        self.expect(store("del", self.url, "k"), ABSENT, b"")
        self.expect(store("set", self.url, "k", ""), OK, b"")
        self.expect(store("get", self.url, "k", "--raw"), OK, b"")

    def test_bytes(self):
        every = bytes(range(256)) * 300
        self.expect(store("set", self.url, "all", "-", input=every), OK, b"")
        self.expect(store("get", self.url, "all", "--raw"), OK, every)
        self.expect(store("get", self.url, "all", "--hex"), OK, every.hex().encode() + b"\n")
        self.expect(store("set", self.url, "h", "00fF 0a", "--hex"), OK, b"")
        self.expect(store("get", self.url, "h", "--raw"), OK, b"\x00\xff\n")
        self.expect(store("get", self.url, "h"), OK, b"\\x00\\xff\n\n")
        self.expect(store("set", self.url, "h", "-", "--hex", input=b"c3a9\n5c\n"), OK, b"")
        self.expect(store("get", self.url, "h"), OK, b"\xc3\xa9\\\n")
        self.expect(store("set", self.url, "h", "5cff", "--hex"), OK, b"")
        self.expect(store("get", self.url, "h"), OK, b"\\\\\\xff\n")
        for bad in ("0", "0g", "zz"):
            with self.subTest(hex=bad):
                self.expect(store("set", self.url, "h", bad, "--hex"), USAGE, b"", "hexadecimal")

    def test_keys(self):
        self.expect(store("set", self.url, "6100ff", "v", "--hex-keys"), OK, b"")
        self.expect(store("set", self.url, "l1\nl2", "w"), OK, b"")
        self.assertEqual(
            sorted(store("list", self.url).stdout.splitlines()), [b"a\\x00\\xff", b"l1\\x0al2"])
        self.assertEqual(
            sorted(store("list", self.url, "--hex-keys").stdout.split()),
            [b"6100ff", b"6c310a6c32"])
        self.assertIn(
            store("list", self.url, "--raw").stdout,
            (b"a\0\xff\0l1\nl2\0", b"l1\nl2\0a\0\xff\0"))
        self.expect(store("get", self.url, "6100ff", "--hex-keys"), OK, b"v\n")

    def test_numbers(self):
        self.expect(store("add", self.url, "n"), OK, b"1\n")
        self.expect(store("add", self.url, "n", "5"), OK, b"6\n")
        self.expect(store("add", self.url, "n", "-8"), OK, b"-2\n")
        self.expect(store("add", "--timeout", "5s", self.url, "n", "--", "-1"), OK, b"-3\n")
        self.expect(store("get", self.url, "n"), OK, b"-3\n")
        self.expect(store("add", self.url, "n", "one"), USAGE, b"", "DELTA 'one'")
        self.expect(store("set", self.url, "t", "abc"), OK, b"")
        self.expect(store("add", self.url, "t"), FAILED, b"", "not a number")
        self.expect(store("get", self.url, "t"), OK, b"abc\n")

    def test_cas(self):
        self.expect(store("cas", self.url, "c", "x", "y"), ABSENT, b"")
        self.expect(store("cas", self.url, "c", "", "y"), OK, b"y\n")
        self.expect(store("cas", self.url, "c", "x", "z"), DIFFERS, b"y\n")
        self.expect(store("cas", self.url, "c", "", "z"), DIFFERS, b"y\n")
        self.expect(store("cas", self.url, "c", "y", "-", "--raw", input=b"a\0b"), OK, b"a\0b")
        self.expect(store("cas", self.url, "c", "-", "-", input=b""), USAGE, b"", "both")

    def test_check_wait(self):
        self.expect(store("check", self.url, "a", "b"), ABSENT, b"")
        self.expect(store("set", self.url, "a", "1"), OK)
        self.expect(store("check", self.url, "a", "b"), ABSENT, b"")
        started = time.monotonic()
        self.expect(
            store("wait", self.url, "a", "b", "--timeout", "1s"), TIMEOUT, b"", "wait 'a'")
        self.assertGreaterEqual(time.monotonic() - started, 0.19)
        self.expect(
            store("get", "--wait", self.url, "b", "--timeout", "1s"), TIMEOUT, b"", "get 'b'")
        waiting = [
            self.start("wait", self.url, "a", "b"),
            self.start("get", "--wait", self.url, "b"),
        ]
        self.expect(store("set", self.url, "b", "2"), OK)
        self.finish(waiting[0], OK, b"")
        self.finish(waiting[1], OK, b"2\n")
        self.expect(store("check", self.url, "a", "b"), OK, b"")

    def test_list_and_prefix(self):
        under = self.with_prefix("p/q")
        self.expect(store("set", under, "k", "v"), OK)
        self.expect(store("set", self.url, "other", "v"), OK)
        self.expect(store("get", self.url, "p/q/k"), OK, b"v\n")
        self.expect(store("list", under), OK, b"k\n")
        self.expect(store("list", self.with_prefix("p")), OK, b"q/k\n")
        self.assertEqual(sorted(store("list", self.url).stdout.split()), [b"other", b"p/q/k"])
        self.expect(store("num-keys", under), OK, b"2\n")

    def test_barrier(self):
        self.expect(
            store("barrier", self.url, "lonely", "2", "--timeout", "1s"), TIMEOUT, b"",
            "barrier 'lonely'")
        for url in (self.url, self.with_prefix("p")):
            first = self.start("barrier", url, "bar", "3")
            second = self.start("barrier", url, "bar", "3")
            self.expect(store("barrier", url, "bar", "3"), OK, b"")
            self.finish(first, OK, b"")
            self.finish(second, OK, b"")
        self.expect(store("barrier", self.url, "bar", "0"), USAGE, b"", "SIZE")

    def test_barrier_again(self):
        """A participant that gives up does not count, and a barrier can be used again."""
        for url in (self.url, self.with_prefix("p")):
            for _ in range(3):
                for _ in range(2):
                    self.expect(
                        store("barrier", url, "b", "2", "--timeout", "300ms"), TIMEOUT, b"",
                        "barrier 'b'")
                first = self.start("barrier", url, "b", "2")
                self.expect(store("barrier", url, "b", "2"), OK, b"")
                self.finish(first, OK, b"")

    def test_stopped_participant(self):
        """A signal makes it leave, also where nobody would notice its death."""
        for url in (self.url, self.with_prefix("p")):
            for number in (signal.SIGINT, signal.SIGTERM):
                key = f"b{number}"
                stopped = self.start("barrier", url, key, "2")
                harness.wait_until(
                    lambda: OK in (store("check", url, name).returncode
                                   for name in (key, f"{key}/participants")), "the arrival")
                stopped.send_signal(number)
                self.finish(stopped, 128 + number, b"")
                self.expect(
                    store("barrier", url, key, "2", "--timeout", "300ms"), TIMEOUT, b"", "barrier")


class TorchKeys:
    """Mixed into a case per store whose keys begin with torch's prefix."""

    def test_bare_keys(self):
        self.expect(store("set", self.url, "k", "torch's"), OK)
        self.expect(store("set", "--bare-keys", self.url, "init/", "2"), OK)
        self.expect(store("check", self.url, "init/"), ABSENT, b"")
        self.expect(store("get", "--bare-keys", self.url, "/k"), OK, b"torch's\n")
        self.assertEqual(
            sorted(store("list", "--bare-keys", self.url).stdout.split()), [b"/k", b"init/"])


class OnServer(Verbs, TorchKeys, Case):
    def setUp(self):
        super().setUp()
        self.server = harness.Server()
        self.addCleanup(self.server.__exit__, None, None, None)
        self.url = self.server.url()

    def with_prefix(self, prefix):
        return f"{self.url}/{prefix}"

    def test_killed_participant(self):
        """The server forgets it, and removes the key of the barrier with it."""
        for url in (self.url, self.with_prefix("p")):
            dead = self.start("barrier", url, "b", "2")
            # Not `wait`: a wait from before the first participant ends with the barrier.
            harness.wait_until(
                lambda: store("check", url, "b").returncode == OK, "the barrier's begin")
            dead.kill()
            dead.wait()
            harness.wait_until(
                lambda: store("check", url, "b").returncode == ABSENT, "the barrier's end")
            self.expect(
                store("barrier", url, "b", "2", "--timeout", "300ms"), TIMEOUT, b"", "barrier 'b'")

    def test_queue(self):
        self.expect(store("pop", self.url, "q"), ABSENT, b"", "empty")
        self.expect(store("push", self.url, "q", "one"), OK, b"")
        self.expect(store("push", self.url, "q", "-", input=b"\x00two"), OK, b"")
        self.expect(store("len", self.url, "q"), OK, b"2\n")
        self.expect(store("pop", self.url, "q"), OK, b"one\n")
        self.expect(store("pop", self.url, "q", "--raw"), OK, b"\x00two")
        self.expect(
            store("pop", self.url, "q", "--wait", "--timeout", "1s"), TIMEOUT, b"", "pop")
        waiting = self.start("pop", "--wait", self.url, "q")
        self.expect(store("push", self.url, "q", "three"), OK, b"")
        self.finish(waiting, OK, b"three\n")

    def test_stopped_server(self):
        # It is there, but does not answer.
        self.server.signal(signal.SIGSTOP)
        try:
            self.expect(
                store("get", self.url, "k", "--timeout", "200ms"), TIMEOUT, b"", "no answer")
        finally:
            self.server.signal(signal.SIGCONT)

    def test_larger_values(self):
        big = bytes(9 << 20)
        self.expect(store("set", self.url, "big", "-", input=big), FAILED, b"", "limit")
        # More than the server takes, which it says.
        self.expect(
            store("set", self.url, "big", "-", "--max-value", "16M", input=big), FAILED, b"",
            "value of 9437184 bytes, the limit is 8388608")
        with harness.Server("--max-value", "16M") as larger:
            self.expect(
                store("set", larger.url(), "big", "-", "--max-value", "16M", input=big), OK, b"")
            self.expect(
                store("get", larger.url(), "big", "--raw", "--max-value", "16M"), OK, big)
        self.server.wait_log("why=limit")


class OnFile(Verbs, TorchKeys, Case):
    def setUp(self):
        super().setUp()
        self.url = "file://" + os.path.join(self.directory, "store")

    def with_prefix(self, prefix):
        return f"{self.url}?prefix={prefix}"

    def test_queue(self):
        self.expect(store("push", self.url, "q", "v"), FAILED, b"", "no queue_push")

    def test_killed_writers(self):
        # Writers that are killed at any moment leave a store that works, and lose nothing that was
        # answered.
        done = 0
        for index in range(20):
            process = self.start("append", self.url, "k", "x" * 50000)
            if index % 2:
                process.kill()
            process.communicate(timeout=harness.DEADLINE_S)
            done += process.returncode == OK
        value = store("get", self.url, "k", "--raw").stdout
        self.assertEqual(len(value) % 50000, 0)
        self.assertGreaterEqual(len(value), done * 50000)
        self.assertLessEqual(len(value), 20 * 50000)


class Usage(Case):
    def test_usage(self):
        for args, said in (
            ((), "missing arguments"),
            (("get",), "missing arguments"),
            (("gte", "hash:", "k"), "did you mean get?"),
            (("get", "hash:"), "usage: muster store get URL KEY"),
            (("get", "hash:", "a", "b"), "usage: muster store get URL KEY"),
            (("set", "hash:", "a", "b", "--wait"), "--wait cannot be combined with 'set'"),
            (("num-keys", "hash:", "--raw"), "--raw cannot be combined"),
            (("add", "hash:", "k", "--hex"), "--hex cannot be combined"),
            (("get", "hash:", "k", "--hex", "--raw"), "exclude each other"),
            (("get", "hash:", "k", "--timeout", "soon"), "is not a duration"),
            (("get", "hash:", "k", "--tiemout", "1s"), "did you mean --timeout?"),
            (("get", "etcd://h:2379", "k"), "unknown scheme, known are: tcp://"),
            (("get", "tcp://h", "k"), "lacks a port"),
            (("get", "tcp://::1:5", "k"), "brackets"),
            (("get", "file://x", "k"), "three slashes"),
        ):
            with self.subTest(args=args):
                self.expect(store(*args), USAGE, b"", said)

    def test_help(self):
        result = store("--help")
        self.expect(result, OK)
        for word in (b"num-keys", b"--timeout", b"--raw", b"tcp://host:port"):
            self.assertIn(word, result.stdout)

    def test_no_server(self):
        with socket.socket() as bound:  # and nobody listens
            bound.bind(("127.0.0.1", 0))
            self.expect(
                store("get", f"tcp://127.0.0.1:{bound.getsockname()[1]}", "k",
                      "--timeout", "300ms"),
                CONNECT, b"", "Connection refused")
        missing = os.path.join(self.directory, "none")
        self.expect(
            store("get", f"unix://{missing}", "k", "--timeout", "100ms"), CONNECT, b"",
            "No such file")

    def test_unix(self):
        path = os.path.join(self.directory, "socket")
        with harness.Server(hosts=(f"unix:{path}", "127.0.0.1")) as server:
            self.expect(store("set", f"unix://{path}?prefix=p", "k", "v"), OK, b"")
            self.expect(store("get", server.url(), "p/k"), OK, b"v\n")

    def test_full_output(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run(
                [harness.MUSTER, "store", "num-keys", "hash:"], stdout=full,
                stderr=subprocess.PIPE, timeout=harness.DEADLINE_S)
        self.assertEqual(result.returncode, FAILED)
        self.assertIn(b"standard output", result.stderr)

    def test_hash(self):
        self.expect(store("add", "hash:", "n", "3"), OK, b"3\n")


if __name__ == "__main__":
    harness.main()
