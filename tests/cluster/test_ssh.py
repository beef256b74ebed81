#!/usr/bin/env python3
"""`muster run --hosts` with a real OpenSSH: four machines."""

import functools
import os
import signal
import socket
import time
import unittest

import cluster
import harness
import sshd
from agents import Child

CONNECT = 5
PREEMPTED = 75
# All workers run after so long.
BEGUN_S = 10
TERMINATED = 128 + signal.SIGTERM

SAY = 'echo "worker $RANK of $WORLD_SIZE on $(hostname)"'
STAY = f'trap "echo saved $RANK; exit 0" TERM; {SAY}; while :; do sleep 0.05; done'
# An agent that is told nothing ends after read_timeout, and a silent node is lost after two
# seconds.
CONF = "keep_alive_interval=500ms,keep_alive_max_attempt=4,last_call_timeout=100ms,read_timeout=10"


@functools.cache
def started():
    return sshd.Ssh()


class SshCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.machines = started()

    def launch(self, hosts, *options, script=SAY):
        child = Child(harness.MUSTER, "run", "--hosts", hosts, "--ssh", sshd.SSH, "--rdzv-conf",
                      CONF, *options, "--", "sh", "-c", script, cwd=cluster.RUN)
        self.addCleanup(child.close)
        return child

    def check(self, child, status, *lines):
        self.assertEqual(child.wait(3 * harness.DEADLINE_S), status, child.stderr())
        self.assertEqual(sorted(child.lines), sorted(lines), child.stderr())
        self.machines.check_nothing_left()

    def start(self, hosts, count, *options, script=STAY):
        """A job whose workers are all at work."""
        child = self.launch(hosts, *options, script=script)
        child.until("worker", count=count)
        return child


class Works(SshCase):
    def test_hosts(self):
        child = self.launch("n[1-4]", "--nproc-per-node", "2")
        self.check(child, 0, *(f"worker {rank} of 8 on n{rank // 2 + 1}" for rank in range(8)))

    def test_restart(self):
        """All workers start again after the failure of one."""
        first = '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || { [ $RANK != 2 ] || exit 3; sleep 600; }; '
        child = self.launch("n[1-4]", "--max-restarts", "1", script=first + SAY)
        self.check(child, 0, *(f"worker {rank} of 4 on n{rank + 1}" for rank in range(4)))

    def test_two_jobs(self):
        """Two jobs on the same hosts at the same time."""
        end = f"{cluster.RUN}/{self.id()}"
        say = f"{SAY}; until [ -e {end} ]; do sleep 0.05; done"
        jobs = [self.launch("n[1-2]", script=say) for _ in range(2)]
        for job in jobs:
            self.assertEqual(sorted(job.until("worker", count=2)),
                             ["worker 0 of 2 on n1", "worker 1 of 2 on n2"])
        with open(end, "w", encoding="ascii"):
            pass
        for job in jobs:
            self.assertEqual(job.wait(), 0, job.stderr())
        self.machines.check_nothing_left()

    def test_failure(self):
        """The status is that of the worker that failed first."""
        child = self.launch("n[1-4]", script="[ $RANK != 2 ] || exit 7; sleep 600")
        self.check(child, 7)
        self.assertEqual(child.stderr().count("Root Cause"), 1, child.stderr())

    def test_tree(self):
        """More hosts than one process starts: relays start relays, with the same ssh."""
        hosts = [f"m{number:02}-n{number % 4 + 1}" for number in range(36)]
        child = self.launch(",".join(hosts), "--rdzv-endpoint", "n1:29999")
        self.check(child, 0, *(f"worker {rank} of 36 on n{rank % 4 + 1}" for rank in range(36)))

    def test_noise(self):
        """A banner, and what a shell prints, are not the job's output."""
        child = self.launch("talks@n1,talks@n2")
        self.check(child, 0, "worker 0 of 2 on n1", "worker 1 of 2 on n2")
        for line in (sshd.BANNER, *sshd.NOISE.splitlines()):
            self.assertIn(line, child.stderr())


class Lost(SshCase):
    """Hosts that cannot be reached, or cannot any more."""

    def refuse(self, host, *texts):
        """A job that needs all hosts ends, and one that does not goes on without this one."""
        child = self.launch(f"n2,{host}", "--host-timeout", "5s", script=STAY)
        self.assertEqual(child.wait(), CONNECT, child.stderr())
        for text in texts:
            self.assertIn(text, child.stderr())
        child = self.launch(f"n2,{host}", "--host-timeout", "5s", "--nnodes", "1:2")
        self.assertEqual(child.wait(), 0, child.stderr())
        self.assertEqual(child.lines, ["worker 0 of 1 on n2"])
        for text in texts:
            self.assertIn(text, child.stderr())

    def test_refused(self):
        os.kill(self.machines[2].sshd, signal.SIGTERM)
        harness.wait_until(lambda: len(self.machines[2].processes()) == 1, "the end of sshd")
        self.addCleanup(self.machines.start_sshd, self.machines[2])
        self.refuse("n3", "ssh: connect to host n3 port 22: Connection refused",
                    "muster: host n3 is lost: status 255\n")

    def test_password(self):
        """ssh asks nobody."""
        self.refuse("asks@n3", "asks@n3: Permission denied (password).",
                    "muster: host asks@n3 is lost: status 255\n")
        self.machines.check_nothing_left()

    def test_unknown_key(self):
        self.machines.write("nobody", "")
        options = ("--ssh", f"{sshd.SSH} -oUserKnownHostsFile={sshd.DIRECTORY}/nobody")
        child = self.launch("n1", *options)
        self.check(child, CONNECT)
        self.assertIn("Host key verification failed.", child.stderr())

    def test_sshd_that_hangs(self):
        """The kernel connects, and nobody answers."""
        harness.pause(self.machines[2].sshd)
        self.addCleanup(os.kill, self.machines[2].sshd, signal.SIGCONT)
        self.refuse("n3", "muster: waiting for 1 of 2 hosts to answer: n3\n",
                    "muster: host n3 is lost: muster has not started there for 5 s "
                    "(--host-timeout)\n")

    def test_port_that_says_nothing(self):
        with socket.create_server((cluster.HEAD, 0)) as silent:
            self.machines.write("silent", f"{sshd.CLIENT}\nHost head\n"
                                f"Port {silent.getsockname()[1]}\n")
            child = self.launch("n2,head", "--host-timeout", "2s", "--ssh",
                                f"ssh -F {sshd.DIRECTORY}/silent")
            self.check(child, CONNECT)
        self.assertIn("muster: host head is lost: muster has not started there for 2 s",
                      child.stderr())

    def test_power_off(self):
        """A host goes dark in the middle of the job. The others go on without it, and with all
        needed, the job ends."""
        for nodes, status in (("3:4", 0), ("4", CONNECT)):
            with self.subTest(nodes=nodes):
                stay = f"{SAY}; [ $WORLD_SIZE != 3 ] || exit 0; while :; do sleep 0.05; done"
                # Time for all four to begin together: three would be the others already.
                child = self.start("n[1-4]", 4, "--nnodes", nodes, "--host-timeout", "5s",
                                   "--rdzv-conf", "last_call_timeout=5", script=stay)
                self.machines[3].power_off()
                try:
                    self.assertEqual(child.wait(3 * harness.DEADLINE_S), status, child.stderr())
                    self.assertIn("muster: host n4 is lost: silent for 5 s (--host-timeout)\n",
                                  child.stderr())
                    again = sorted(child.lines[4:])
                    self.assertEqual(again, [f"worker {rank} of 3 on n{rank + 1}"
                                             for rank in range(3)] if status == 0 else [])
                    self.machines.check_nothing_left()
                finally:
                    self.machines[3].turn_on()
                    self.machines.start_sshd(self.machines[3])


class Ends(SshCase):
    def test_killed_launcher(self):
        """Nothing is left anywhere."""
        child = self.start("n[1-4]", 4)
        child.signal(signal.SIGKILL)
        child.wait()
        self.machines.check_nothing_left()
        harness.wait_until(lambda: not cluster.processes(sshd.CONFIG), "the end of ssh")

    def test_killed_launcher_of_a_host_that_hangs(self):
        harness.pause(self.machines[2].sshd)
        self.addCleanup(self.machines.check_nothing_left)
        self.addCleanup(os.kill, self.machines[2].sshd, signal.SIGCONT)
        child = self.launch("n2,n3")
        harness.wait_until(lambda: "waiting for 1 of 2 hosts" in child.stderr(), "n2")
        child.signal(signal.SIGKILL)
        child.wait()
        harness.wait_until(lambda: not cluster.processes(sshd.CONFIG), "the end of ssh")

    def test_forwarded_signal(self):
        """USR1 asks the workers of all hosts to save their work, and they go on."""
        child = self.start("n[1-4]", 4, script=(
            f'trap "echo saved $RANK; SAVED=1" USR1; {SAY}; until [ $SAVED ]; do sleep 0.05; done'))
        child.signal(signal.SIGUSR1)
        self.check(child, 0, *child.lines[:4], *(f"saved {rank}" for rank in range(4)))

    def test_end_time(self):
        """The time that an option tells: notice at the same time on all hosts."""
        save = ('trap "echo notice $RANK; : > $MUSTER_ACK_FILE" USR1; '
                f'trap "echo stopped $RANK; exit 0" TERM; {SAY}; while :; do sleep 0.05; done')
        child = self.launch("n[1-4]", "--notice-signal", "USR1", "--notice", "1h", "--end-time",
                            int(time.time()) + 3600 + BEGUN_S, script=save)
        self.check(child, PREEMPTED, *(f"worker {rank} of 4 on n{rank + 1}" for rank in range(4)),
                   *(f"{what} {rank}" for rank in range(4) for what in ("notice", "stopped")))

    def test_signal(self):
        """The workers of all hosts are stopped, and may save their work."""
        child = self.start("n[1-4]", 4)
        child.signal(signal.SIGTERM)
        self.check(child, TERMINATED, *child.lines[:4], *(f"saved {rank}" for rank in range(4)))

    def test_second_signal(self):
        """It ends a long grace, if it may."""
        child = self.start("n[1-4]", 4, "--grace", "1h", "--kill-on-second", "--stop-signal",
                           "TERM", script=f'trap "echo told $RANK" TERM; {SAY}; '
                           "while :; do sleep 0.05; done")
        child.signal(signal.SIGTERM)
        child.until("told", count=4)
        began = time.monotonic()
        child.signal(signal.SIGTERM)
        self.assertEqual(child.wait(), TERMINATED, child.stderr())
        self.assertLess(child.end - began, 10 * harness.SLOWNESS)
        self.machines.check_nothing_left()

    def test_signal_with_a_host_that_hangs(self):
        """The host is given up, and the others save their work."""
        harness.pause(self.machines[2].sshd)
        self.addCleanup(self.machines.check_nothing_left)
        self.addCleanup(os.kill, self.machines[2].sshd, signal.SIGCONT)
        child = self.start("n2,n3", 1, "--nnodes", "1:2")
        child.signal(signal.SIGTERM)
        self.assertEqual(child.wait(), TERMINATED, child.stderr())
        self.assertEqual(child.lines[1:], ["saved 0"], child.stderr())
        self.assertIn("muster: host n3: not stopped in 5 s, given up\n", child.stderr())

    def test_session_that_stops(self):
        """sshd's process for a session stands still: the host is lost, and what is there ends by
        itself when it goes on."""
        child = self.start("n[1-4]", 4, "--host-timeout", "5s")
        machine = self.machines[3]
        sessions = [pid for pid in cluster.is_below(machine.sshd) if pid in machine.processes()]
        for pid in sessions:
            harness.pause(pid)
        try:
            self.assertEqual(child.wait(3 * harness.DEADLINE_S), CONNECT, child.stderr())
            self.assertIn("muster: host n4 is lost: silent for 5 s (--host-timeout)\n",
                          child.stderr())
        finally:
            for pid in sessions:
                os.kill(pid, signal.SIGCONT)
        self.machines.check_nothing_left()


if __name__ == "__main__":
    cluster.main(*sshd.NEEDS)
