"""Our file store and torch's FileStore on one file, both ways."""

import os
import subprocess
import tempfile
import unittest

import peer
from peer import ABSENT, DIFFERS, OK, TIMEOUT, Cli, harness


class Files:
    """Rules for each torch; the classes below choose one."""

    def setUp(self):
        harness.torch_python(self.which)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "store")
        self.url = "file://" + self.path

    def test_they_read_what_we_write(self):
        cli = Cli(self, self.url)
        cli.expect(OK, "", "set", "k", "old")
        cli.expect(OK, "", "set", "k", "v")
        cli.expect(OK, "", "set", "empty", "")
        cli.expect(OK, "", "set", "bytes", "-", input=bytes(range(256)))
        cli.expect(OK, "7\n", "add", "n", "7")
        cli.expect(OK, "", "set", "gone", "x")
        cli.expect(OK, "", "del", "gone")
        cli.expect(OK, "first\n", "cas", "c", "", "first")
        cli.expect(OK, "", "append", "ap", "x")
        cli.expect(OK, "", "append", "ap", "y")
        with peer.TorchStore(self.which, "file", self.path) as torch:
            self.assertEqual(torch.call("get", "k"), "v")
            self.assertEqual(torch.call("get", "empty"), "")
            self.assertEqual(torch.call("get", "bytes"), bytes(range(256)).decode("latin-1"))
            self.assertEqual(torch.call("add", "n", 1), 8)
            self.assertEqual(torch.call("get", "ap"), "xy")
            self.assertEqual(torch.call("compare_set", "c", "first", "second"), "second")
            self.assertEqual(torch.call("compare_set", "c", "first", "third"), "second")
            with self.assertRaises(RuntimeError):
                torch.call("wait", ["gone"], 200)
            # Both count alike, their own bookkeeping included.
            cli.expect(OK, f"{torch.call('num_keys')}\n", "num-keys")
        cli.expect(OK, "8\n", "get", "n")
        cli.expect(DIFFERS, "second\n", "cas", "c", "first", "x")

    def test_we_read_what_they_write(self):
        cli = Cli(self, self.url)
        with peer.TorchStore(self.which, "file", self.path) as torch:
            torch.call("set", "k", "old")
            torch.call("set", "k", "v")
            torch.call("set", "empty", "")
            torch.call("set", "bytes", "\x00\xff\n")
            torch.call("add", "n", -3)
            torch.call("set", "gone", "x")
            torch.call("delete_key", "gone")
            torch.call("compare_set", "c", "", "first")
            cli.expect(OK, "v\n", "get", "k")
            cli.expect(OK, "\n", "get", "empty")
            cli.expect(OK, b"\x00\xff\n", "get", "bytes", options=["--raw"])
            cli.expect(OK, "-3\n", "get", "n")
            cli.expect(ABSENT, "", "get", "gone")
            cli.expect(ABSENT, "", "check", "gone", "k")
            cli.expect(OK, "", "check", "k", "n")
            cli.expect(OK, "first\n", "get", "c")
            cli.expect(OK, "1\n", "add", "n", "4")
            self.assertEqual(torch.call("get", "n"), "1")
            cli.expect(OK, f"{torch.call('num_keys')}\n", "num-keys")
            # Only users' keys, without torch's reference counts.
            listed = cli.expect(OK, None, "list").stdout.decode().split()
            self.assertEqual(sorted(listed), ["bytes", "c", "empty", "k", "n"])

    def test_large_values(self):
        cli = Cli(self, self.url)
        value = os.urandom(1 << 20) * 2
        cli.expect(OK, "", "set", "ours", "-", input=value)
        with peer.TorchStore(self.which, "file", self.path) as torch:
            self.assertEqual(torch.call("get", "ours"), value.decode("latin-1"))
            torch.call("set", "theirs", value[::-1].decode("latin-1"))
            cli.expect(OK, value[::-1], "get", "theirs", options=["--raw"])

    def test_waiting_for_each_other(self):
        cli = Cli(self, self.url)
        with peer.TorchStore(self.which, "file", self.path) as torch:
            torch.send("wait", ["ours"], 30000)
            cli.expect(OK, "", "set", "ours", "x")
            self.assertIsNone(torch.answer())
            process = subprocess.Popen(
                [harness.MUSTER, "store", "get", "--wait", "--timeout", "60s", self.url, "theirs"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            torch.call("set", "theirs", "y")
            out, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (0, b"y\n"), err)
            cli.expect(TIMEOUT, "", "wait", "never", options=["--timeout", "200ms"])

    def test_counting_together(self):
        """Adds of both at once: none is lost."""
        cli = Cli(self, self.url)
        with peer.TorchStore(self.which, "file", self.path) as torch:
            count = 60
            for _ in range(count):
                torch.send("add", "n", 1)
            for _ in range(count):
                result = cli.run("add", "n", "1")
                self.assertEqual(result.returncode, 0, result.stderr)
            for _ in range(count):
                torch.answer()
            self.assertEqual(torch.call("add", "n", 0), 2 * count, "a value was lost")
        cli.expect(OK, f"{2 * count}\n", "get", "n")

    def test_prefix(self):
        cli = Cli(self, self.url + "?prefix=outer")
        cli.expect(OK, "", "set", "k", "v")
        with peer.TorchStore(self.which, "file", self.path) as torch:
            self.assertEqual(torch.call("get", "outer/k"), "v")
            torch.call("set", "outer/theirs", "w")
            cli.expect(OK, "w\n", "get", "theirs")


class OldFiles(Files, unittest.TestCase):
    which = "old"


class NewFiles(Files, unittest.TestCase):
    which = "new"


if __name__ == "__main__":
    harness.main()
