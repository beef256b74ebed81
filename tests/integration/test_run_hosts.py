"""`muster run --hosts`: agents on other hosts, with a stand-in for ssh that runs them here."""

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest

import harness
from agents import QUICK

CONNECT = 5

# HOST COMMAND; hosts whose name begins with `bad` cannot be reached.
SSH = """#!/bin/sh
case $1 in bad*) echo "ssh: connect to host $1" >&2; exit 255 ;; esac
FAKE_HOST=$1
export FAKE_HOST
echo "$1" >> "$SSH_LOG"
shift
cd / && exec sh -c "$*"
"""


class Hosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server()
        cls.directory = tempfile.mkdtemp(prefix="muster-hosts-")
        cls.ssh = os.path.join(cls.directory, "ssh")
        with open(cls.ssh, "w", encoding="utf-8") as file:
            file.write(SSH)
        os.chmod(cls.ssh, stat.S_IRWXU)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)
        shutil.rmtree(cls.directory, ignore_errors=True)

    def start(self, hosts, script, *options, env=None):
        self.log = os.path.join(self.directory, self.id())
        process = subprocess.Popen(
            [harness.MUSTER, "run", *hosts, "--ssh", self.ssh, "--rdzv-endpoint",
             f"127.0.0.1:{self.server.port}", "--rdzv-id", self.id(), "--rdzv-conf", QUICK,
             *options, "--", "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=self.directory, env={**os.environ, "SSH_LOG": self.log, **(env or {})})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_hosts(self, *args, **keywords):
        process = self.start(*args, **keywords)
        out, err = process.communicate(timeout=harness.DEADLINE_S)
        return process.returncode, out, err

    def test_sixty_four(self):
        """Every host runs its agent, in its order, and nobody starts more than 32."""
        script = 'echo "$FAKE_HOST $RANK $WORLD_SIZE $(pwd) $NCCL_X"; echo "err $RANK" >&2'
        status, out, err = self.run_hosts(["--hosts", "h[01-64]"], script, "--nproc-per-node", "1",
                                          env={"NCCL_X": "passed on", "MUSTER_HOSTS": "other"})
        self.assertEqual(status, 0, err)
        self.assertEqual(
            sorted(out.splitlines()),
            sorted(f"h{i + 1:02} {i} 64 {os.path.realpath(self.directory)} passed on"
                   for i in range(64)))
        self.assertEqual(sorted(err.splitlines()), sorted(f"err {i}" for i in range(64)))
        with open(self.log, encoding="utf-8") as file:
            self.assertEqual(sorted(file.read().split()), [f"h{i:02}" for i in range(1, 65)])

    def test_status_and_slots(self):
        hostfile = os.path.join(self.directory, "hostfile")
        with open(hostfile, "w", encoding="utf-8") as file:
            file.write("# two hosts\na slots=2\nb\n")
        status, out, err = self.run_hosts(
            ["--hostfile", hostfile],
            'echo "$FAKE_HOST $RANK"; [ $RANK != 2 ] || { sleep 0.3; exit 85; }',
            "--nproc-per-node", "1")
        self.assertEqual(status, 85, err)
        self.assertEqual(err.count("Root Cause"), 1, err) # not by each of the agents
        self.assertEqual(sorted(out.splitlines()), ["a 0", "a 1", "b 2"])

    def test_host_out_of_reach(self):
        """With a host that cannot be reached, a job that needs all of them ends at once; one that
        does not goes on without it."""
        status, out, err = self.run_hosts(["--hosts", "a,bad,b"], "echo no")
        self.assertEqual(status, CONNECT, err)
        self.assertEqual(out, "")
        self.assertIn("muster: host bad is lost: status 255", err)
        status, out, err = self.run_hosts(["--hosts", "a,bad2,b"], 'echo "of $WORLD_SIZE"',
                                          "--nnodes", "2:3")
        self.assertEqual(status, 0, err)
        self.assertEqual(out, "of 2\nof 2\n")

    def test_signals(self):
        # TERM, too: when one node is gone, the other one may hear of that first.
        script = ('trap "echo told $FAKE_HOST; exit 3" INT TERM; echo up $FAKE_HOST; '
                  'while :; do sleep 0.02; done')
        process = self.start(["--hosts", "a,b"], script)
        self.assertEqual(sorted(process.stdout.readline() for _ in range(2)), ["up a\n", "up b\n"])
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(sorted(out.splitlines()), ["told a", "told b"], err)
        self.assertEqual(process.returncode, 128 + signal.SIGINT, err)

    def test_killed_root_leaves_nobody(self):
        process = self.start(["--hosts", "c[01-34]"], "echo $$; exec sleep 300")
        pids = [int(process.stdout.readline()) for _ in range(34)]
        process.kill()
        process.wait()
        deadline = time.monotonic() + harness.DEADLINE_S
        while any(os.path.exists(f"/proc/{pid}") for pid in pids):
            self.assertLess(time.monotonic(), deadline, "workers are left behind")
            time.sleep(0.02)

    def test_refused(self):
        for hosts, options, text in ((["--hosts", "a,a"], (), "'a' is there twice"),
                                     (["--launch", "ssh"], (), "neither --hosts"),
                                     (["--hosts", "a"], ("--nnodes", "2"), "fewer than 2 nodes"),
                                     (["--hosts", "a"], ("--events", "fd:2"), "name a file")):
            with self.subTest(text):
                status, _, err = self.run_hosts(hosts, "true", *options)
                self.assertEqual(status, 2)
                self.assertIn(text, err)


if __name__ == "__main__":
    harness.main()
