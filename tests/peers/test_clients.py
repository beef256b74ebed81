"""Real torch clients against our server: every operation, compared with torch's own server."""

import json
import unittest

import peer
from peer import harness


class Clients(unittest.TestCase):
    def compare(self, which, backend):
        """All checks hold with our server, and what the clients saw is what they see with
        theirs."""
        theirs_process = peer.start(which, "torch_client.py", "--alone", "--own", backend)
        with harness.Server("--log-level", "debug") as server:
            ours_process = peer.start(which, "torch_client.py", "--alone", "--port", server.port)
            ours = peer.checks(ours_process)
        theirs = peer.checks(theirs_process)
        self.assertGreater(len(ours), 30)
        for name, line in ours.items():
            with self.subTest(f"{which} {backend} {name}"):
                self.assertTrue(line["ok"], line["detail"])
                if line["fixed"]:
                    self.assertNotIn(name, theirs)
                elif name in theirs:
                    self.assertTrue(theirs[name]["ok"], f"torch itself: {theirs[name]['detail']}")
                    self.assertEqual(line["seen"], theirs[name]["seen"])
        # Nothing but the queues may be missing over there.
        missing = {name for name, line in ours.items() if not line["fixed"]} - set(theirs)
        self.assertTrue(all("queue" in name for name in missing), missing)
        if backend == "libuv" or which == "old":
            self.assertEqual(missing, set())

    def test_torch_old(self):
        self.compare("old", "legacy")

    def test_torch_new(self):
        self.compare("new", "libuv")

    def test_torch_new_legacy(self):
        self.compare("new", "legacy")

    def test_both_on_one_server(self):
        """Dialects A and C at once, on one port, with one data set."""
        harness.torch_python("old")
        harness.torch_python("new")
        with harness.Server() as server:
            drivers = {
                which: peer.start(which, "torch_client.py", "--port", server.port, "--tag", which)
                for which in ("old", "new")
            }
            for which, process in drivers.items():
                for name, line in peer.checks(process).items():
                    with self.subTest(f"both at once, {which} {name}"):
                        self.assertTrue(line["ok"], line["detail"])

    def test_one_writes_the_other_reads(self):
        """Both torch versions find each other's keys, and wait for each other."""
        harness.torch_python("old")
        harness.torch_python("new")
        with harness.Server() as server:
            drivers = {
                which: peer.start(which, "torch_pair.py", server.port, which)
                for which in ("old", "new")
            }
            for which, process in drivers.items():
                code, lines, err = peer.finish(process)
                with self.subTest(which):
                    self.assertEqual(code, 0, err)
                    self.assertEqual(lines, [{"count": 200, "told": "from " +
                                              ("new" if which == "old" else "old")}],
                                     json.dumps(lines))


if __name__ == "__main__":
    harness.main()
