"""`muster run` and real torchrun agents in one job, over c10d: ranks, failures of either kind of
worker, a newcomer, the end. With torch 1.13 and a new one."""

import os
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

    def until(self, needle, count=1):
        with self.changed:
            found = lambda: [line for line in self.lines if needle in line]  # noqa: E731
            if not self.changed.wait_for(lambda: len(found()) >= count, PATIENCE_S):
                raise AssertionError(f"no {needle} in {self.lines}")
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
        ours.until("at muster 0/3 0/2", count=2)
        theirs.until("/3 1/2", 3)
        self.finish(ours, theirs)

    def test_newcomers(self):
        # An agent of torch 2.x that shares its store with workers notices a newcomer late or never,
        # whoever that is.
        self.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        theirs = self.torchrun(nnodes="1:2")
        theirs.until("/2 0/1", 2)
        ours = self.muster(nnodes="1:2")
        theirs.until("/3 0/2", 2)
        ours.until("at muster 2/3 1/2")
        self.finish(ours, theirs)


class Training:
    """Workers of torch under launchers of ours: they train, are killed, and go on. Nearly all of
    the time is the import of torch, once for each worker of each round."""

    which = None
    steps = 60
    nproc = 1

    @classmethod
    def setUpClass(cls):
        harness.torch_python(cls.which)

    def train(self, backend):
        server = harness.Server()
        self.addCleanup(server.__exit__, None, None, None)
        place = tempfile.mkdtemp(prefix="muster-train-")
        self.addCleanup(shutil.rmtree, place, ignore_errors=True)
        conf = "keep_alive_interval=2,keep_alive_max_attempt=3,last_call_timeout=1"
        env = {**peer.QUIET, "PLACE": place, "STEPS": str(self.steps), "GLOO_SOCKET_IFNAME": "lo"}

        def start():
            agent = Agent("--rdzv-backend", backend, "--rdzv-endpoint",
                          f"127.0.0.1:{server.port}", "--rdzv-id", "job", "--nnodes", "2:3",
                          "--nproc-per-node", self.nproc, "--max-restarts", 3, "--rdzv-conf", conf,
                          "--local-addr", "127.0.0.1", "--log-dir", place, "--grace", "10s", "--",
                          harness.torch_python(self.which), "-u",
                          os.path.join(peer.HERE, "torch_train.py"), env=env)
            self.addCleanup(agent.close)
            return agent

        def until(agent, needle):
            while needle not in agent.next(PATIENCE_S):
                pass

        whole, less = 3 * self.nproc, 2 * self.nproc
        agents = [start() for _ in range(3)]
        for agent in agents:
            until(agent, f"/{whole} 0")
        # A worker is killed.
        os.kill(agents[0].events("start")[-1]["worker_pid"], signal.SIGKILL)
        for agent in agents:
            until(agent, f"/{whole} 1")
        # A node is lost.
        agents[0].signal(signal.SIGKILL)
        for agent in agents[1:]:
            until(agent, f"/{less} ")
        # A node comes.
        agents.append(start())
        for agent in agents[1:]:
            until(agent, f"/{whole} ")
        for agent in agents[1:]:
            self.assertEqual(agent.wait(PATIENCE_S), 0, agent.stderr())
        last = [line for line in agents[1].lines if line.startswith(f"step {self.steps - 1} ")]
        self.assertEqual(len(last), self.nproc, agents[1].lines[-6:])

    def test_muster(self):
        self.train("muster")


class OldTraining(Training, unittest.TestCase):
    """The quicker import: with several workers on a node."""

    which = "old"
    nproc = 2


class NewTraining(Training, unittest.TestCase):
    which = "new"

    def test_c10d(self):
        self.train("c10d")


class Old(Mixed, unittest.TestCase):
    which = "old"


class New(Mixed, unittest.TestCase):
    which = "new"


if __name__ == "__main__":
    sys.exit(harness.main())
