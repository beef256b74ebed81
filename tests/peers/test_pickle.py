"""Records between our codec and the real classes of torch, both ways."""

import json
import subprocess
import unittest

import peer
from peer import harness

import records


class Pickle:
    """Rules for each torch; the classes below choose one."""

    def setUp(self):
        harness.torch_python(self.which)
        self.process = peer.start(self.which, "torch_pickle.py", "1909", stdin=subprocess.PIPE)
        self.addCleanup(self.stop)
        self.theirs = []
        for line in self.process.stdout:
            line = json.loads(line)
            if "end" in line:
                return
            self.theirs.append(line)
        raise AssertionError(f"torch ended: {self.process.stderr.read().decode()[-2000:]}")

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def ask(self, raw_hex):
        self.process.stdin.write(raw_hex.encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"torch ended: {self.process.stderr.read().decode()[-2000:]}")
        answer = json.loads(line)
        self.assertNotIn("error", answer)
        return answer

    def test_both_ways(self):
        """Theirs read by us; ours of that loaded, used and written by them; theirs read again."""
        self.assertEqual(len(self.theirs), 7)
        for theirs in self.theirs:
            with self.subTest(nodes=len(theirs["content"]["last_heartbeats"])):
                (ours,) = records.tool([theirs["hex"]])
                self.assertEqual(records.content_of(ours), theirs["content"])
                loaded = self.ask(ours["hex"])
                self.assertEqual(loaded["content"], theirs["content"])
                self.assertEqual(loaded["unknown"], {})
                (again,) = records.tool([loaded["hex"]])
                self.assertEqual(again["dialect"], self.dialect)
                self.assertEqual(records.content_of(again), loaded["used"])

    def test_seal_and_strangers(self):
        """They carry our seal and marks along, and what we carried along for others."""
        (sealed,) = records.tool([self.theirs[3]["hex"]], "7", "3")
        self.assertGreater(sealed["ours"], 0)
        loaded = self.ask(sealed["hex"])
        self.assertEqual(set(loaded["unknown"]), {"muster_seal", "muster_nodes"})
        self.assertEqual(loaded["unknown"]["muster_seal"], "(7, 3)")
        (again,) = records.tool([loaded["hex"]])
        self.assertEqual(again["sealed"], [7, 3])
        self.assertEqual(again["ours"], sealed["ours"])


class OldPickle(Pickle, unittest.TestCase):
    which, dialect = "old", "D1"

    def test_list_of_spares(self):
        """An old agent keeps a list of spares that it found; so do we."""
        (ours,) = records.tool([self.theirs[0]["hex"]], "D3")
        loaded = self.ask(ours["hex"])
        self.assertEqual(loaded["unknown"], {"redundancy_list": "set()"})
        (again,) = records.tool([loaded["hex"]])
        self.assertEqual(again["dialect"], "D1")
        self.assertGreater(again["extra_size"], 0)
        twice = self.ask(again["hex"])
        self.assertEqual(twice["unknown"], {"redundancy_list": "set()"})


class NewPickle(Pickle, unittest.TestCase):
    which, dialect = "new", "D4"


if __name__ == "__main__":
    harness.main()
