"""torch's contract of a rendezvous handler: our plugins see what torch's own handler sees."""

import concurrent.futures
import contextlib
import os
import signal
import unittest

import peer
from peer import harness

import etcd_cluster

# What torch has no answer to compare with.
OURS = {
    "forked_child": [0, [0, 0]],
    "late_node_ends_nothing": ["RendezvousTimeoutError", True, False],
    "member_leaves": [[1, 1], [2, 2], [0, 0]],
    "refused_node_ends_nothing": ["RendezvousError", True, False, [0, 0]],
    "reports_while_waiting": ["RendezvousTimeoutError", 1, True, True],
    "server_restarts": ["v"] * 4,
    "store_of_ours": [["v", True, 60]] * 3,
    "unknown_key": True,
    "wrong_names": "ValueError",
}
ABSENT = {
    # The settings of nodes that share a record are not compared. The record is in the server.
    "muster-c10d": {"refused_node_ends_nothing", "server_restarts", "store_of_ours"},
    # No node serves an etcd, and this one has one address.
    "muster-etcd": {"addresses", "server_restarts", "store_of_ours", "truth"},
}
# Sharing a store with workers, torch's handler does not get a newcomer in.
THEIRS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


# torch 1.13 crashes now and then in Python 3.11, with its own handler in many threads, also without
# our package.
CRASHES_MAX = 5

HOSTS = "127.0.0.1", "::1"


class Contract(unittest.TestCase):
    def seen(self, which, checks):
        for name, line in checks.items():
            with self.subTest(f"{which} {name}"):
                self.assertEqual(line["detail"], "")
        return {name: line["seen"] for name, line in checks.items()}

    def run_driver(self, which, backend, endpoint):
        driver = peer.start(which, "torch_contract.py", backend, endpoint)
        return self.seen(f"{which} {backend}", peer.checks(driver))

    @staticmethod
    def run_torchs(which):
        """The checks of torch's own handler."""
        for _ in range(CRASHES_MAX):
            with harness.Server(hosts=HOSTS) as server:
                ended = peer.finish(peer.start(which, "torch_contract.py", "c10d",
                                               f"127.0.0.1:{server.port}", env=THEIRS))
            if which != "old" or ended[0] != -signal.SIGSEGV:
                break
        return peer.named(*ended)

    def compare(self, which):
        peer.plugin_python(which)
        ours = {}
        with harness.Server(hosts=HOSTS) as server, contextlib.ExitStack() as stack:
            endpoint = f"127.0.0.1:{server.port}"
            # Two at a time: each is a crowd of nodes.
            pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
            theirs = pool.submit(self.run_torchs, which)
            ours["muster"] = self.run_driver(which, "muster", endpoint)
            wanted = {**self.seen(f"{which} c10d", theirs.result()), **OURS}
            ours["muster-c10d"] = self.run_driver(which, "muster-c10d", endpoint)
            if os.environ.get("MUSTER_ETCD") != "0":
                etcd = stack.enter_context(etcd_cluster.Etcd())
                ours["muster-etcd"] = self.run_driver(which, "muster-etcd",
                                                      f"127.0.0.1:{etcd.port}")
        if which == "old":
            wanted["master_is_chosen_once"] = 1
        self.assertGreater(len(wanted), 20)
        self.assertIs(ours["muster"].pop("many_rounds"), True)
        for backend, seen in ours.items():
            self.assertEqual(set(seen), set(wanted) - ABSENT.get(backend, set()))
            for name, value in seen.items():
                with self.subTest(f"{which} {backend} {name}"):
                    self.assertEqual(value, wanted[name])

    def test_old(self):
        self.compare("old")

    def test_new(self):
        self.compare("new")


if __name__ == "__main__":
    harness.main()
