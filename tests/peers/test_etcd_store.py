"""Our etcd2 store and torch's EtcdStore on one directory, both ways, and waiting for each other."""

import itertools
import subprocess
import unittest

import peer
from peer import ABSENT, DIFFERS, OK, TIMEOUT, Cli, harness

import etcd_cluster  # from the integration tests, as harness is

WHICH = "old"  # newer releases need python-etcd to be installed
numbers = itertools.count(1)


class EtcdStores(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        python = harness.torch_python(WHICH)
        probe = subprocess.run(
            [python, "-c", "import etcd"], stderr=subprocess.DEVNULL, check=False)
        if probe.returncode != 0:
            raise unittest.SkipTest("torch's python has no python-etcd")
        cls.etcd = etcd_cluster.Etcd(enable_v2=True)

    @classmethod
    def tearDownClass(cls):
        cls.etcd.stop()

    def setUp(self):
        self.path = f"/peers/{next(numbers)}"
        self.url = f"etcd2://{self.etcd.endpoint}{self.path}"
        self.cli = Cli(self, self.url)

    def torch(self):
        return peer.TorchStore(WHICH, "etcd", *self.etcd.address, self.path)

    def start(self, verb, *words):
        process = subprocess.Popen(
            [harness.MUSTER, "store", verb, "--timeout", "60s", self.url, *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        return process

    def finish(self, process, out):
        got, err = process.communicate(timeout=90)
        self.assertEqual((process.returncode, got), (OK, out), err)

    def test_they_read_what_we_write(self):
        cli = self.cli
        cli.expect(OK, "", "set", "k", "old")
        cli.expect(OK, "", "set", "k", "v")
        cli.expect(OK, "", "set", "empty", "")
        cli.expect(OK, "", "set", "bytes", "-", input=bytes(range(256)))
        cli.expect(OK, "", "set", "smile 😀 é/x", "text")
        cli.expect(OK, "7\n", "add", "n", "7")
        cli.expect(OK, "5\n", "add", "n", "-2")
        cli.expect(OK, "", "set", "gone", "x")
        cli.expect(OK, "", "del", "gone")
        cli.expect(OK, "first\n", "cas", "c", "", "first")
        cli.expect(OK, "second\n", "cas", "c", "first", "second")
        cli.expect(OK, "", "append", "ap", "x")
        cli.expect(OK, "", "append", "ap", "y")
        cli.expect(OK, "", "set", "?prefix", "no")  # a key like any other
        with self.torch() as torch:
            self.assertEqual(torch.call("get", "k"), "v")
            self.assertEqual(torch.call("get", "empty"), "")
            self.assertEqual(torch.call("get", "bytes"), bytes(range(256)).decode("latin-1"))
            self.assertEqual(torch.call("get", "smile 😀 é/x"), "text")
            self.assertEqual(torch.call("add", "n", 1), 6)
            self.assertEqual(torch.call("get", "ap"), "xy")
            self.assertEqual(torch.call("get", "c"), "second")
            self.assertTrue(torch.call("check", ["k", "n", "c"]))
            self.assertFalse(torch.call("check", ["k", "gone"]))
            torch.call("wait", ["k", "n", "ap"], 5000)
            with self.assertRaises(RuntimeError):
                torch.call("wait", ["gone"], 200)
        cli.expect(OK, "6\n", "get", "n")

    def test_we_read_what_they_write(self):
        cli = self.cli
        with self.torch() as torch:
            torch.call("set", "k", "old")
            torch.call("set", "k", "v")
            torch.call("set", "empty", "")
            torch.call("set", "bytes", "\x00\xff\n")
            torch.call("set", "smile 😀 é/x", "text")
            torch.call("add", "n", -3)
            cli.expect(OK, "v\n", "get", "k")
            cli.expect(OK, "\n", "get", "empty")
            cli.expect(OK, b"\x00\xff\n", "get", "bytes", options=["--raw"])
            cli.expect(OK, "text\n", "get", "smile 😀 é/x")
            cli.expect(OK, "-3\n", "get", "n")
            cli.expect(OK, "1\n", "add", "n", "4")
            self.assertEqual(torch.call("add", "n", 1), 2)
            cli.expect(ABSENT, "", "check", "k", "gone")
            cli.expect(OK, "", "check", "k", "n", "k")
            cli.expect(OK, "", "wait", "k", "n", "k")
            cli.expect(TIMEOUT, "", "wait", "k", "gone", options=["--timeout", "200ms"])
            cli.expect(DIFFERS, "v\n", "cas", "k", "x", "y")
            cli.expect(OK, "w\n", "cas", "k", "v", "w")
            self.assertEqual(torch.call("get", "k"), "w")
            cli.expect(OK, "", "append", "k", "!")
            self.assertEqual(torch.call("get", "k"), "w!")
            cli.expect(OK, "5\n", "num-keys")
            listed = cli.expect(OK, None, "list").stdout.decode().splitlines()
            self.assertEqual(sorted(listed), sorted(["k", "empty", "bytes", "n", "smile 😀 é/x"]))
            cli.expect(OK, "", "del", "empty")
            self.assertFalse(torch.call("check", ["empty"]))

    def test_they_wait_for_us(self):
        self.cli.expect(OK, "", "set", "there", "1")  # without a directory they would not wait
        with self.torch() as torch:
            torch.send("get", "late")
            self.cli.expect(OK, "", "set", "other", "1")
            self.cli.expect(OK, "", "set", "late", "come")
            self.assertEqual(torch.answer(), "come")
            for last, words in (("a", ("set", "a", "1")), ("b", ("add", "b", "2")),
                                ("c", ("cas", "c", "", "x")), ("d", ("append", "d", "y"))):
                torch.send("wait", ["there", last], 60000)
                self.cli.expect(OK, None, *words)
                torch.answer()

    def test_we_wait_for_them(self):
        # Without a directory, too.
        one = self.start("get", "--wait", "k")
        several = self.start("wait", "k", "n", "k", "m")
        with self.torch() as torch:
            torch.call("add", "n", 1)
            torch.call("set", "k", "come")
            self.finish(one, b"come\n")
            self.assertIsNone(several.poll())
            torch.call("set", "m", "")
            self.finish(several, b"")

    def test_barrier_of_theirs(self):
        # What torch's processes do where a store has no barrier, by hand.
        ours = [self.start("barrier", "b", "3"), self.start("barrier", "b", "3")]
        with self.torch() as torch:
            if torch.call("add", "b/num_members", 1) == 3:
                torch.call("set", "b/last_member", "1")
            torch.call("wait", ["b/last_member"], 60000)
        for process in ours:
            self.finish(process, b"")

    def test_adds_of_both(self):
        count = 40
        with self.torch() as torch:
            for _ in range(count):
                torch.send("add", "n", 1)
            for _ in range(count):
                self.cli.expect(OK, None, "add", "n", "1")
            sums = [torch.answer() for _ in range(count)]
            self.assertEqual(sums, sorted(set(sums)))
            self.assertEqual(torch.call("add", "n", 0), 2 * count)
        self.cli.expect(OK, f"{2 * count}\n", "get", "n")

    def test_keys_that_torch_cannot_find(self):
        # Their base64 has a slash. Between our nodes they work, with any keys of torch.
        cli = self.cli
        with self.torch() as torch:
            torch.call("set", "ab?xyz", "torch's")
            torch.call("set", "cd?", "torch's")
            for key in ("ab?xyz", "cd?"):
                cli.expect(ABSENT, "", "get", key)
                cli.expect(OK, "", "set", key, "ours")
                cli.expect(OK, "ours\n", "get", key)
                cli.expect(OK, "", "wait", key)
                with self.assertRaises(RuntimeError):
                    torch.call("wait", [key], 100)
            cli.expect(OK, "2\n", "num-keys")
            torch.call("set", "k", "v")
            cli.expect(OK, "v\n", "get", "k")
            self.assertEqual(torch.call("get", "k"), "v")

    def test_prefix(self):
        cli = Cli(self, self.url + "?prefix=outer")
        cli.expect(OK, "", "set", "k", "v")
        with self.torch() as torch:
            self.assertEqual(torch.call("get", "outer/k"), "v")
            torch.call("set", "outer/theirs", "w")
            cli.expect(OK, "w\n", "get", "theirs")

    def test_large_values(self):
        value = bytes(range(256)) * 4096
        self.cli.expect(OK, "", "set", "ours", "-", input=value)
        with self.torch() as torch:
            self.assertEqual(torch.call("get", "ours"), value.decode("latin-1"))
            torch.call("set", "theirs", value.decode("latin-1"))
        self.cli.expect(OK, value, "get", "theirs", options=["--raw"])


if __name__ == "__main__":
    harness.main()
