"""`muster run` and real torchrun agents in one job, over c10d: ranks, failures of either kind of
worker, a newcomer, the end. And training with workers of torch. With torch 1.13 and a new one."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import peer
from peer import harness
from agents import Agent

PATIENCE_S = 120
PREEMPTED = 75

# torch 1.13 does not start on Python 3.11 without this: how it reads its own default of --tee.
OLD_TORCHRUN = """
import sys
from torch.distributed.elastic.multiprocessing.api import Std
Std.from_str = classmethod(lambda cls, text: Std(int(text)))
from torch.distributed.run import main
main(sys.argv[1:])
"""

# The first worker of kind $FAIL fails once; then all end when they are told to.
WORKER = """
echo at $KIND $RANK/$WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT
if [ $KIND = "$FAIL" ] && mkdir $PLACE/failed 2>/dev/null; then
    sleep 0.5; exit 4
fi
while [ ! -e $PLACE/go ]; do sleep 0.1; done
"""


class Torchrun:
    """A torchrun agent whose workers' lines are read as they come."""

    def __init__(self, which, args, env):
        command = [harness.torch_python(which)]
        command += ["-c", OLD_TORCHRUN] if which == "old" else ["-m", "torch.distributed.run"]
        self.lines, self.changed = [], threading.Condition()
        self.process = subprocess.Popen(
            [*command, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={**os.environ, **peer.QUIET, **env})
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.decode().strip())
                self.changed.notify_all()

    def until(self, needle, count=1, beside=None):
        """The lines with the needle. If they do not come, the failure shows what the agent @beside
        this one says."""
        with self.changed:
            found = lambda: [line for line in self.lines if needle in line]  # noqa: E731
            if not self.changed.wait_for(lambda: len(found()) >= count, PATIENCE_S):
                story = "" if beside is None else f"; beside it: {beside.stderr()}"
                raise AssertionError(f"no {needle} in {self.lines}{story}")
            return found()

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Mixed:
    which = None

    @classmethod
    def setUpClass(cls):
        harness.torch_python(cls.which)

    def setUp(self):
        self.server = harness.Server()
        self.addCleanup(self.server.__exit__, None, None, None)
        self.place = tempfile.mkdtemp(prefix="muster-mixed-")
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        self.env = {"PLACE": self.place}

    def options(self, nnodes, conf):
        dialect = ",state_dialect=D1" if self.which == "old" else ""
        yield from ("--rdzv_backend=c10d", f"--nnodes={nnodes}", "--max_restarts=1",
                    f"--rdzv_endpoint=127.0.0.1:{self.server.port}", "--rdzv_id=job")
        yield f"--rdzv_conf={conf}" + (dialect if "is_host" not in conf else "")

    def torchrun(self, nnodes="2", fail=""):
        agent = Torchrun(
            self.which,
            (*self.options(nnodes, "is_host=0,last_call_timeout=1"), "--nproc_per_node=2",
             "--monitor_interval=0.1", "--no_python", "/bin/sh", "-c", WORKER),
            {**self.env, "KIND": "torch", "FAIL": fail})
        self.addCleanup(agent.close)
        return agent

    def muster(self, nnodes="2", fail="", addr="zz"):
        agent = Agent(*self.options(nnodes, "last_call_timeout=1"), "--nproc-per-node", 1,
                      "--local-addr", addr, "--log-dir", self.place, "--", "sh", "-c", WORKER,
                      env={**self.env, "KIND": "muster", "FAIL": fail})
        self.addCleanup(agent.close)
        return agent

    def finish(self, ours, theirs):
        with open(os.path.join(self.place, "go"), "wb"):
            pass
        self.assertEqual(ours.wait(PATIENCE_S), 0, ours.stderr())
        self.assertEqual(theirs.process.wait(PATIENCE_S), 0)

    def test_our_worker_fails(self):
        """As the last rank."""
        theirs, ours = self.torchrun(fail="muster"), self.muster(fail="muster")
        theirs.until("/3 0/2", 4)
        ours.until("at muster 2/3 1/2", count=2)
        self.assertEqual(ours.lines[-1].split()[-1], theirs.lines[-1].split()[-1])
        self.finish(ours, theirs)

    def test_their_worker_fails(self):
        """With ours as rank 0."""
        theirs, ours = self.torchrun(fail="torch"), self.muster(fail="torch", addr="127.0.0.1")
        theirs.until("/3 1/2", 3)  # first: torch may take long to start
        ours.until("at muster 0/3 0/2", count=2)
        self.finish(ours, theirs)

    def test_newcomers(self):
        # An agent of torch 2.x that shares its store with workers notices a newcomer late or never,
        # whoever that is.
        self.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        theirs = self.torchrun(nnodes="1:2")
        theirs.until("/2 0/1", 2)
        ours = self.muster(nnodes="1:2")
        theirs.until("/3 0/2", 2, beside=ours)
        ours.until("at muster 2/3 1/2")
        self.finish(ours, theirs)


class Training:
    """Workers of torch under launchers of ours: two on each of three nodes. They train, a worker is
    killed, an agent is killed and another one comes, a node leaves; the rest finish. Nearly all of
    the time is the import of torch, once for each worker of each round. A new torch takes long, so
    rounds between the first and the last one end while workers import it."""

    which = None
    steps = 40
    nproc = 2
    trains_always = False

    @classmethod
    def setUpClass(cls):
        harness.torch_python(cls.which)

    def start(self):
        conf = "keep_alive_interval=2,keep_alive_max_attempt=3,last_call_timeout=1"
        agent = Agent(*self.job, "--nnodes", "2:3", "--nproc-per-node", self.nproc,
                      "--max-restarts", 5, "--rdzv-conf", conf, "--local-addr", "127.0.0.1",
                      "--log-dir", self.place, "--grace", "10s", "--",
                      harness.torch_python(self.which), "-u",
                      os.path.join(peer.HERE, "torch_train.py"),
                      env={**peer.QUIET, "PLACE": self.place, "STEPS": str(self.steps),
                           "GLOO_SOCKET_IFNAME": "lo"})
        self.addCleanup(agent.close)
        return agent

    def leave(self, agent):
        listed = harness.run("ps", *self.job)
        node = re.search(rf"\S+_{agent.pid}_\S+", listed.stdout.decode())
        self.assertIsNotNone(node, listed)
        told = harness.run("drain", *self.job, node[0])
        self.assertEqual(told.returncode, 0, told.stderr)

    def until_started(self, agents, world, round_min):
        """Until all workers run in one round of that world, from @round_min on; the round."""

        def round_of(agent):
            last = agent.events("start")[-self.nproc:]
            rounds = {event["round"] for event in last if event["world_size"] == world}
            return rounds.pop() if len(last) == self.nproc and len(rounds) == 1 else -1

        def found():
            rounds = {round_of(agent) for agent in agents}
            return len(rounds) == 1 and rounds.pop() >= round_min

        harness.wait_until(found, f"a round of {world} workers", PATIENCE_S)
        return round_of(agents[0])

    def train(self, backend, endpoint):
        self.job = ("--rdzv-backend", backend, "--rdzv-endpoint", endpoint, "--rdzv-id", "job")
        self.place = tempfile.mkdtemp(prefix="muster-train-")
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)

        def until(agent, needle):
            while needle not in agent.next(PATIENCE_S):
                pass

        def restarts(some):
            counts = {agent.events("start")[-1]["restarts"] for agent in some}
            self.assertEqual(len(counts), 1, counts)
            return counts.pop()

        whole, less = 3 * self.nproc, 2 * self.nproc
        agents = [self.start() for _ in range(3)]
        for agent in agents:
            until(agent, f"/{whole} ")
        first = self.until_started(agents, whole, 0)
        os.kill(agents[0].events("start")[-1]["worker_pid"], signal.SIGKILL)
        second = self.until_started(agents, whole, first + 1)
        self.assertGreater(restarts(agents), 0)
        if self.trains_always:
            for agent in agents:
                until(agent, f"/{whole} {restarts(agents)}")
        agents[0].signal(signal.SIGKILL)
        agents.append(self.start())
        self.until_started(agents[1:], whole, second + 1)
        before = restarts(agents[1:])
        if self.trains_always:
            for agent in agents[1:]:
                until(agent, f"/{whole} {before}")
        # Workers that fail because a node leaves use no restart.
        self.leave(agents[1])
        self.assertEqual(agents[1].wait(PATIENCE_S), PREEMPTED, agents[1].stderr())
        for agent in agents[2:]:
            self.assertEqual(agent.wait(PATIENCE_S), 0, agent.stderr())
            last = [line for line in agent.lines if line.startswith(f"step {self.steps - 1} ")]
            self.assertEqual(len(last), self.nproc, agent.lines[-6:])
            self.assertTrue(all(line.endswith(f"/{less} {before}") for line in last), last)


class OldTraining(Training, unittest.TestCase):
    which = "old"
    trains_always = True

    def test_muster(self):
        with harness.Server() as server:
            self.train("muster", f"127.0.0.1:{server.port}")


class NewTrainingMuster(Training, unittest.TestCase):
    which = "new"

    def test_muster(self):
        with harness.Server() as server:
            self.train("muster", f"127.0.0.1:{server.port}")


class NewTrainingC10d(Training, unittest.TestCase):
    which = "new"

    def leave(self, agent):
        agent.signal(signal.SIGTERM)

    def test_c10d(self):
        with harness.Server() as server:
            self.train("c10d", f"127.0.0.1:{server.port}")


class NewTrainingEtcd(Training, unittest.TestCase):
    which = "new"

    def test_etcd_v3(self):
        if os.environ.get("MUSTER_ETCD", "1") != "1" or shutil.which("etcd") is None:
            self.skipTest("no etcd")
        etcd = subprocess.Popen([harness.MUSTER, "etcd"], stdout=subprocess.PIPE)
        self.addCleanup(etcd.stdout.close)
        self.addCleanup(etcd.wait)
        self.addCleanup(etcd.terminate)
        address = re.search(rb"localhost:\d+", etcd.stdout.readline())[0].decode()
        self.train("etcd-v3", address)


class Old(Mixed, unittest.TestCase):
    which = "old"


class New(Mixed, unittest.TestCase):
    which = "new"


if __name__ == "__main__":
    sys.exit(harness.main())
