"""Workers of torch under `muster run`, when a node is told to go: the others train on, and no
restart is used. torch 1.13 with backend muster, a new one with etcd-v3."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import peer
from peer import harness
from agents import Agent

PATIENCE_S = 120
PREEMPTED = 75


class Drain:
    which = None
    steps = 40

    @classmethod
    def setUpClass(cls):
        harness.torch_python(cls.which)

    def start(self, backend, endpoint, place):
        agent = Agent("--rdzv-backend", backend, "--rdzv-endpoint", endpoint, "--rdzv-id", "job",
                      "--nnodes", "2:3", "--max-restarts", 3, "--rdzv-conf", "last_call_timeout=1",
                      "--local-addr", "127.0.0.1", "--log-dir", place, "--grace", "10s", "--",
                      harness.torch_python(self.which), "-u",
                      os.path.join(peer.HERE, "torch_train.py"),
                      env={**peer.QUIET, "PLACE": place, "STEPS": str(self.steps),
                           "GLOO_SOCKET_IFNAME": "lo"})
        self.addCleanup(agent.close)
        return agent

    def train(self, backend, endpoint, leave):
        """Three nodes train until @leave has had one go; the other two finish."""
        place = tempfile.mkdtemp(prefix="muster-drain-")
        self.addCleanup(shutil.rmtree, place, ignore_errors=True)
        agents = [self.start(backend, endpoint, place) for _ in range(3)]
        for agent in agents:
            while "/3 0" not in agent.next(PATIENCE_S):
                pass
        leave(agents[0])
        self.assertEqual(agents[0].wait(PATIENCE_S), PREEMPTED, agents[0].stderr())
        for agent in agents[1:]:
            self.assertEqual(agent.wait(PATIENCE_S), 0, agent.stderr())
            self.assertRegex(agent.lines[-1], rf"^step {self.steps - 1} [01]/2 0$")


class Old(Drain, unittest.TestCase):
    which = "old"

    def test_muster(self):
        with harness.Server() as server:
            endpoint = f"127.0.0.1:{server.port}"

            def drain(agent):
                options = ("--rdzv-endpoint", endpoint, "--rdzv-id", "job")
                listed = harness.run("ps", *options)
                node = re.search(rf"\S+_{agent.pid}_\d+", listed.stdout.decode())[0]
                told = harness.run("drain", *options, node)
                self.assertEqual(told.returncode, 0, told.stderr)

            self.train("muster", endpoint, drain)


class New(Drain, unittest.TestCase):
    which = "new"

    def test_etcd_v3(self):
        if os.environ.get("MUSTER_ETCD", "1") != "1" or shutil.which("etcd") is None:
            self.skipTest("no etcd")
        etcd = subprocess.Popen([harness.MUSTER, "etcd"], stdout=subprocess.PIPE)
        self.addCleanup(etcd.stdout.close)
        self.addCleanup(etcd.wait)
        self.addCleanup(etcd.terminate)
        endpoint = re.search(rb"localhost:\d+", etcd.stdout.readline())[0].decode()
        self.train("etcd-v3", endpoint, lambda agent: agent.signal(signal.SIGTERM))


if __name__ == "__main__":
    sys.exit(harness.main())
