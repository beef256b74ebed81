#!/usr/bin/env python3
"""`muster run` as the program of a real mpirun of Open MPI."""

import functools
import re
import signal
import unittest

import cluster
import harness
import sshd

SAY = ('echo "worker $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE on $(hostname) "'
       '"port ${MUSTER_STORE##*:}"')
# The same, and stay until the end. USR1 asks it to save its work.
STAY = f'{SAY}; trap "echo saved $RANK" USR1; while :; do sleep 0.05; done'


@functools.cache
def started():
    return sshd.Ssh(2)


class MpiCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.machines = started()

    def mpirun(self, count, *options, script=SAY, hosts=(), machine=0):
        """mpirun on a machine, with tasks there, or on the hosts that it reaches over ssh."""
        where = ("--host", ",".join(hosts)) if hosts else ("--oversubscribe",)
        child = self.machines[machine].start(
            "mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", sshd.SSH, "-np", count,
            *where, harness.MUSTER, "run", *options, "--", "sh", "-c", script)
        self.addCleanup(child.close)
        return child

    def places(self, child, port=r"\d+"):
        """What the workers said, sorted, without the port, which all of them have to say."""
        found = [re.fullmatch(rf"(worker .*) port ({port})/?.*", line) for line in child.lines]
        self.assertNotIn(None, found, child.lines)
        self.assertEqual(len({match.group(2) for match in found}), 1, child.lines)
        return sorted(match.group(1) for match in found)


class OneMachine(MpiCase):
    """All tasks are on the machine of mpirun, and no option is given."""

    def test_ranks(self):
        child = self.mpirun(4)
        self.assertEqual(child.wait(), 0, child.stderr())
        self.assertEqual(self.places(child),
                         [f"worker {rank} of 4, local {rank} of 4 on n1" for rank in range(4)])
        self.machines.check_nothing_left()

    def test_restart(self):
        first = '[ $MUSTER_GENERATION = 2 ] || { [ $RANK != 2 ] || exit 3; sleep 600; }; '
        child = self.mpirun(4, "--max-restarts", "1", script=first + SAY)
        self.assertEqual(child.wait(), 0, child.stderr())
        self.assertEqual(len(self.places(child)), 4)
        self.machines.check_nothing_left()

    def test_failure(self):
        """mpirun ends with the status of the worker that failed first; no worker stays."""
        child = self.mpirun(4, script="[ $RANK != 2 ] || exit 7; sleep 600")
        self.assertEqual(child.wait(), 7, child.stderr())
        self.assertIn("rank      : 2 ", child.stderr())
        self.machines.check_nothing_left()

    def test_two_jobs(self):
        """Jobs on one machine at the same time have ports of their own."""
        first, second = (self.mpirun(2, script=STAY) for _ in range(2))
        ports = set()
        for child in (first, second):
            lines = child.until("worker", count=2)
            self.assertEqual([line.partition(",")[0] for line in sorted(lines)],
                             ["worker 0 of 2", "worker 1 of 2"])
            ports.update(line.rpartition(" ")[2].partition("/")[0] for line in lines)
        self.assertEqual(len(ports), 2, ports)
        for child in (first, second):
            child.signal(signal.SIGTERM)
            child.wait()
        self.machines.check_nothing_left()

    def test_signals(self):
        """mpirun passes USR1 on. A TERM ends everything; mpirun waits a second before it passes
        that on, and almost none before it kills."""
        child = self.mpirun(4, script=STAY)
        child.until("worker", count=4)
        child.signal(signal.SIGUSR1)
        self.assertEqual(sorted(child.until("saved", count=4)),
                         [f"saved {rank}" for rank in range(4)])
        child.signal(signal.SIGTERM)
        self.assertNotEqual(child.wait(), 0, child.stderr())
        self.machines.check_nothing_left()


class TwoMachines(MpiCase):
    """mpirun starts tasks over ssh. No variable names the first host, so that an option has to."""

    HOSTS = ("n1:2", "n2:2")
    PLACES = [f"worker {rank} of 4, local {rank % 2} of 2 on n{rank // 2 + 1}" for rank in range(4)]

    def test_ranks(self):
        child = self.mpirun(4, "--rdzv-endpoint", "n1:29500", hosts=self.HOSTS)
        self.assertEqual(child.wait(), 0, child.stderr())
        self.assertEqual(self.places(child, "29500"), self.PLACES)
        self.machines.check_nothing_left()

    def test_no_endpoint(self):
        """It is asked for, by all tasks."""
        child = self.mpirun(4, hosts=self.HOSTS)
        self.assertEqual(child.wait(), 2, child.stderr())
        self.assertIn("--rdzv-endpoint", child.stderr())
        self.machines.check_nothing_left()

    def test_failure(self):
        child = self.mpirun(4, "--rdzv-endpoint", "n1:29500", hosts=self.HOSTS,
                            script="[ $RANK != 2 ] || exit 7; sleep 600")
        self.assertEqual(child.wait(), 7, child.stderr())
        self.machines.check_nothing_left()


if __name__ == "__main__":
    cluster.main("mpirun", *sshd.NEEDS)
