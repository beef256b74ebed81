"""Our client, by way of `muster store`, against the servers of real torch and, for comparison, our
own: every verb, its output and its exit code, and that torch's clients see the same data."""

import os
import subprocess
import time
import unittest

import peer
from peer import ABSENT, CONNECT, DIFFERS, FAILED, OK, TIMEOUT, Cli, harness


class Verbs:
    """Rules for every server. The classes below choose one; with a foreign server there is also
    a store of torch."""

    has_list = True
    has_queues = True

    def test_set_get(self):
        cli = Cli(self, self.url())
        cli.expect(OK, "", "set", "k", "v")
        cli.expect(OK, "v\n", "get", "k")
        cli.expect(OK, "", "set", "k", "")
        cli.expect(OK, "\n", "get", "k")
        cli.expect(OK, b"", "get", "k", options=["--raw"])
        cli.expect(ABSENT, "", "get", "none")
        cli.expect(OK, "", "set", "u\u00e9\u2603", "\u20ac")
        cli.expect(OK, "\u20ac\n", "get", "u\u00e9\u2603")
        self.torch_sees("\u00e2\u0082\u00ac", "get", "u\u00e9\u2603")

    def test_exact_bytes(self):
        cli = Cli(self, self.url())
        value = bytes(range(256)) * 2
        cli.expect(OK, "", "set", "b", "-", input=value)
        cli.expect(OK, value, "get", "b", options=["--raw"])
        cli.expect(OK, value.hex() + "\n", "get", "b", options=["--hex"])
        self.torch_sees(value.decode("latin-1"), "get", "b")
        cli.expect(OK, "", "set", "h", "00ff0a", options=["--hex"])
        cli.expect(OK, b"\x00\xff\n", "get", "h", options=["--raw"])
        if self.torch:
            self.torch.call("set", "from-torch", "\x00\xfe")
            cli.expect(OK, b"\x00\xfe", "get", "from-torch", options=["--raw"])

    def test_large_values(self):
        cli = Cli(self, self.url())
        for size in (65536, (1 << 20) + 1, 8 << 20):
            value = os.urandom(size)
            cli.expect(OK, "", "set", "large", "-", input=value)
            cli.expect(OK, value, "get", "large", options=["--raw"])
        cli.expect(OK, "", "del", "large")

    def test_add(self):
        cli = Cli(self, self.url())
        cli.expect(OK, "5\n", "add", "n", "5")
        cli.expect(OK, "-2\n", "add", "n", "-7")
        cli.expect(OK, "-1\n", "add", "n")
        cli.expect(OK, "-1\n", "get", "n")
        if self.torch:
            self.assertEqual(self.torch.call("add", "n", 10), 9)
            cli.expect(OK, "9\n", "add", "n", "0")
        cli.expect(OK, "", "set", "text", "abc")
        result = cli.expect(FAILED, "", "add", "text", "1")
        self.assertIn(b"not a number", result.stderr)
        cli.expect(OK, "abc\n", "get", "text")

    def test_cas(self):
        cli = Cli(self, self.url())
        cli.expect(ABSENT, "", "cas", "c", "expected", "new")
        cli.expect(ABSENT, "", "get", "c")
        cli.expect(OK, "v1\n", "cas", "c", "", "v1")
        cli.expect(DIFFERS, "v1\n", "cas", "c", "bad", "v2")
        cli.expect(DIFFERS, "v1\n", "cas", "c", "", "v2")
        cli.expect(OK, "v2\n", "cas", "c", "v1", "v2")
        self.torch_sees("v2", "get", "c")

    def test_check_del(self):
        cli = Cli(self, self.url())
        cli.expect(OK, "", "set", "a", "1")
        cli.expect(OK, "", "set", "b", "")
        cli.expect(OK, "", "check", "a", "b")
        cli.expect(ABSENT, "", "check", "a", "none")
        cli.expect(OK, "", "del", "b")
        cli.expect(ABSENT, "", "del", "b")
        cli.expect(ABSENT, "", "check", "a", "b")

    def test_append(self):
        cli = Cli(self, self.url())
        cli.expect(OK, "", "append", "ap", "xy")
        cli.expect(OK, "", "append", "ap", "z")
        cli.expect(OK, "xyz\n", "get", "ap")
        self.torch_sees("xyz", "get", "ap")

    def test_wait(self):
        cli = Cli(self, self.url())
        cli.expect(OK, "", "set", "here", "1")
        cli.expect(OK, "", "wait", "here", "here")
        start = time.monotonic()
        cli.expect(TIMEOUT, "", "wait", "here", "never", options=["--timeout", "300ms"])
        took = time.monotonic() - start
        self.assertTrue(0.29 < took < 10, took)
        cli.expect(TIMEOUT, "", "get", "never", options=["--wait", "--timeout", "200ms"])

    def test_wait_woken(self):
        """By each other, and by torch."""
        for name, options in (("wait", []), ("get", ["--wait"])):
            key = f"late-{name}"
            process = subprocess.Popen(
                [harness.MUSTER, "store", name, "--timeout", "60s", *options, self.url(), key],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                if self.torch:
                    self.torch.call("set", key, "now")
                else:
                    Cli(self, self.url()).expect(OK, "", "set", key, "now")
                out, err = process.communicate(timeout=60)
            finally:
                process.kill()
                process.wait()
            self.assertEqual(process.returncode, 0, err)
            self.assertEqual(out, b"" if name == "wait" else b"now\n")

    def test_num_keys(self):
        cli = Cli(self, self.url())
        before = int(cli.run("num-keys").stdout)
        cli.expect(OK, "", "set", "num/a", "1")
        cli.expect(OK, "1\n", "add", "num/b", "1")
        cli.expect(OK, f"{before + 2}\n", "num-keys")
        self.torch_sees(before + 2, "num_keys")

    def test_list(self):
        cli = Cli(self, self.url("/listed"))
        if not self.has_list:
            result = cli.expect(FAILED, "", "list")
            self.assertIn(b"list", result.stderr)
            return
        cli.expect(OK, "", "list")
        for key in ("a", "b/c", "line\nbreak"):
            cli.expect(OK, "", "set", key, "1")
        result = cli.expect(OK, None, "list", options=["--raw"])
        self.assertEqual(sorted(result.stdout.split(b"\0")[:-1]), [b"a", b"b/c", b"line\nbreak"])

    def test_prefix(self):
        """A prefix in the URL is torch's PrefixStore."""
        cli = Cli(self, self.url("/outer"))
        cli.expect(OK, "", "set", "k", "v")
        self.torch_sees("v", "get", "outer/k")
        Cli(self, self.url()).expect(OK, "v\n", "get", "outer/k")

    def test_queue(self):
        cli = Cli(self, self.url())
        if not self.has_queues:
            for verb in (("push", "q", "x"), ("pop", "q"), ("len", "q")):
                result = cli.expect(FAILED, "", *verb)
                self.assertIn(b"has no queue", result.stderr)
            return
        cli.expect(OK, "0\n", "len", "q")
        cli.expect(OK, "", "push", "q", "a")
        cli.expect(OK, "", "push", "q", "")
        cli.expect(OK, "2\n", "len", "q")
        self.torch_sees(2, "queue_len", "q")
        cli.expect(OK, "a\n", "pop", "q")
        cli.expect(OK, "\n", "pop", "q", options=["--wait"])
        cli.expect(ABSENT, "", "pop", "q")
        cli.expect(TIMEOUT, "", "pop", "q", options=["--wait", "--timeout", "200ms"])
        if self.torch:
            self.torch.call("queue_push", "q", "torch's")
            cli.expect(OK, "torch's\n", "pop", "q", options=["--wait"])

    def test_barrier(self):
        cli = Cli(self, self.url())
        others = [subprocess.Popen(
            [harness.MUSTER, "store", "barrier", "--timeout", "60s", self.url(), "bar", "3"],
            stderr=subprocess.PIPE) for _ in range(2)]
        try:
            cli.expect(OK, "", "barrier", "bar", "3", options=["--timeout", "60s"])
            for other in others:
                _, err = other.communicate(timeout=60)
                self.assertEqual(other.returncode, 0, err)
        finally:
            for other in others:
                other.kill()
                other.wait()
        cli.expect(TIMEOUT, "", "barrier", "alone", "2", options=["--timeout", "200ms"])

    def torch_sees(self, wanted, *call):
        if self.torch:
            self.assertEqual(self.torch.call(*call), wanted)

    def url(self, rest=""):
        return self.server.url(rest)


class TorchServer(Verbs):
    @classmethod
    def setUpClass(cls):
        cls.torch = cls.server = peer.TorchStore(*cls.torch_args)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def test_torch_waits_for_us(self):
        self.torch.send("wait", ["ours"], 30000)
        Cli(self, self.url()).expect(OK, "", "set", "ours", "x")
        self.assertIsNone(self.torch.answer())


class Old(TorchServer, unittest.TestCase):
    """1.13: dialect A."""

    torch_args = ("old", "legacy")
    has_list = False
    has_queues = False


class NewLibuv(TorchServer, unittest.TestCase):
    torch_args = ("new", "libuv")


class NewLegacy(TorchServer, unittest.TestCase):
    torch_args = ("new", "legacy")
    has_queues = False


class Ours(Verbs, unittest.TestCase):
    torch = None

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)


class Gone(unittest.TestCase):
    def test_server_of_torch_that_has_gone(self):
        for which, backend in (("old", "legacy"), ("new", "libuv")):
            with self.subTest(f"{which} {backend} has gone"):
                server = peer.TorchStore(which, backend)
                cli = Cli(self, server.url())
                try:
                    cli.expect(OK, "", "set", "k", "v")
                finally:
                    server.__exit__()
                start = time.monotonic()
                cli.expect(CONNECT, "", "get", "k", options=["--timeout", "500ms"])
                self.assertLess(time.monotonic() - start, 10)


if __name__ == "__main__":
    harness.main()
