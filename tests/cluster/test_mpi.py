#!/usr/bin/env python3
"""`muster run` as the program of a real mpirun of Open MPI."""

import functools
import os
import re
import signal
import time
import unittest

import cluster
import harness
import sshd

# All workers run after so long.
BEGUN_S = 10

SAY = ('echo "worker $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE on $(hostname) "'
       '"port ${MUSTER_STORE##*:}"')
# The same, and stay until the end. USR1 asks it to save its work.
STAY = f'trap "echo saved $RANK" USR1; {SAY}; while :; do sleep 0.05; done'


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
        first = '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || { [ $RANK != 2 ] || exit 3; sleep 600; }; '
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

    def test_killed(self):
        """The nodes notice that mpirun is gone, and nothing is left."""
        child = self.mpirun(4, script=STAY)
        child.until("worker", count=4)
        child.signal(signal.SIGKILL)
        child.wait()
        self.machines.check_nothing_left()

    def test_end_time(self):
        """The time that an option tells. With status 0 mpirun does not end the last ones that
        leave."""
        save = (f'{SAY}; trap "echo notice $RANK; : > $MUSTER_ACK_FILE" USR1; '
                'trap "echo stopped $RANK; exit 0" TERM; while :; do sleep 0.05; done')
        child = self.mpirun(4, "--notice-signal", "USR1", "--notice", "1h", "--end-time",
                            int(time.time()) + 3600 + BEGUN_S, "--preempt-status", "0", script=save)
        self.assertEqual(child.wait(), 0, child.stderr())
        self.assertEqual(sorted(line for line in child.lines if "worker" not in line), sorted(
            f"{what} {rank}" for rank in range(4) for what in ("notice", "stopped")))
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

    def test_killed(self):
        """As on one machine; the other one has a daemon of mpirun, which ends what is there."""
        child = self.mpirun(4, "--rdzv-endpoint", "n1:29500", hosts=self.HOSTS, script=STAY)
        child.until("worker", count=4)
        child.signal(signal.SIGKILL)
        child.wait()
        self.machines.check_nothing_left()

    def test_noise(self):
        """A banner, and what a shell prints, do no harm; mpirun passes them on."""
        child = self.mpirun(4, "--rdzv-endpoint", "n1:29500", hosts=("n1:2", "t2:2"))
        self.assertEqual(child.wait(), 0, child.stderr())
        child.lines = "\n".join(child.lines).replace(sshd.NOISE, "").splitlines()
        self.assertEqual(self.places(child, "29500"), self.PLACES)
        self.assertIn(sshd.BANNER, child.stderr())
        self.machines.check_nothing_left()

    def check_unusable(self, host, text):
        """mpirun names the host, and starts no task."""
        child = self.mpirun(2, "--rdzv-endpoint", "n1:29500", hosts=("n1", host))
        self.assertNotIn(child.wait(2 * harness.DEADLINE_S), (0, None), child.stderr())
        self.assertIn(text, child.stderr())
        self.assertEqual(child.lines, [])

    def test_refused(self):
        os.kill(self.machines[1].sshd, signal.SIGTERM)
        harness.wait_until(lambda: len(self.machines[1].processes()) == 1, "the end of sshd")
        self.addCleanup(self.machines.start_sshd, self.machines[1])
        self.check_unusable("n2", "connect to host n2 port 22: Connection refused")

    def test_password(self):
        self.check_unusable("a2", "Permission denied (password).")
        self.machines.check_nothing_left()

    def test_hangs(self):
        """If ssh does not wait for ever, nor does mpirun."""
        harness.pause(self.machines[1].sshd)
        self.addCleanup(self.machines.check_nothing_left)
        self.addCleanup(os.kill, self.machines[1].sshd, signal.SIGCONT)
        self.check_unusable("h2", "timed out during banner exchange")

    def test_power_off(self):
        """A machine goes dark in the middle of the job. The others go on without it, to their end,
        but mpirun waits for what it had there."""
        conf = "keep_alive_interval=500ms,keep_alive_max_attempt=4,last_call_timeout=5s"
        child = self.mpirun(2, "--rdzv-endpoint", "n1:29500", "--nnodes", "1:2", "--rdzv-conf",
                            conf, hosts=("n1", "n2"), script=(
                                f"{SAY}; [ $WORLD_SIZE = 2 ] || exit 0; "
                                "while :; do sleep 0.05; done"))
        child.until("worker", count=2)
        self.machines[1].power_off()
        try:
            child.until("worker 0 of 1, local 0 of 1 on n1")
            harness.wait_until(lambda: not cluster.processes("OMPI_COMM_WORLD_RANK="),
                               "the end of all agents")
            self.assertIsNone(child.process.poll())
            for pid in (child.pid, *cluster.processes("ssh\0-F")):
                os.kill(pid, signal.SIGKILL)
            child.wait()
        finally:
            self.machines[1].turn_on()
            self.machines.start_sshd(self.machines[1])
        self.machines.check_nothing_left()


if __name__ == "__main__":
    cluster.main("mpirun", *sshd.NEEDS)
