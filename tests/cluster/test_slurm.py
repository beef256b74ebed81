#!/usr/bin/env python3
"""`muster run` under a real Slurm: four machines."""

import contextlib
import os
import signal
import time

import cluster
import harness
import slurm
from slurm import SAY, SlurmCase, muster, places

# The same as SAY, and stay until the end; a TERM gives it a second of work to save what it has.
STAY = f'trap "sleep 1; echo saved $RANK; exit 0" TERM; {SAY}; while :; do sleep 0.05; done'

# Rank 2 fails, and all workers end after the restart.
FAIL_ONCE = ("[ $TORCHELASTIC_RESTART_COUNT = 1 ] || { [ $RANK != 2 ] || exit 3; sleep 600; }; "
             + SAY)

# A job that Slurm ends has its workers ended, and nothing of it is left, after so long at most.
END_S = 15


class Steps(SlurmCase):
    def test_srun(self):
        """One worker per machine, with ranks in the order of the machines, and no option given."""
        child = self.srun("-N4", *muster())
        self.assertEqual(child.wait(), 0, child.stderr())
        self.assertEqual(sorted(child.lines), places(4))
        self.check_nothing_left()

    def test_workers(self):
        child = self.srun("-N2", *muster("--nproc-per-node", "2"))
        self.assertEqual(child.wait(), 0, child.stderr())
        self.assertEqual(sorted(child.lines), places(4, 2))

    def test_restart(self):
        """All workers start again after the failure of one."""
        child = self.srun("-N4", *muster("--max-restarts", "1", script=FAIL_ONCE))
        self.assertEqual(child.wait(), 0, child.stderr())
        self.assertEqual(sorted(child.lines), places(4))
        self.assertIn("a worker of node 'n3", child.stderr())
        self.check_nothing_left()

    def test_failure(self):
        """srun ends with the status of the worker that failed first; no worker stays."""
        child = self.srun("-N4", *muster(script=f"{SAY}; [ $RANK != 2 ] || exit 3; sleep 600"))
        self.assertEqual(child.wait(), 3, child.stderr())
        self.assertRegex(child.stderr(), r"host +: n3\n +rank +: 2 .*\n +exitcode +: 3 ")
        self.check_nothing_left()

    def test_tasks(self):
        """With several tasks on a machine, each is a node with one worker."""
        child = self.srun("-N2", "--ntasks-per-node=2", *muster())
        self.assertEqual(child.wait(), 0, child.stderr())
        self.assertEqual(sorted(child.lines), places(4, 2))

    def test_array(self):
        """Each task of an array is a job of its own, though they share machines."""
        job = self.sbatch(f"srun {self.line()}", "-N2", "--array=0-3", "--open-mode=append",
                          f"--output={cluster.RUN}/out-%A")
        job.wait_state("COMPLETED")
        self.assertEqual(sorted(job.lines("worker")), sorted(places(2) * 4))

    def test_overlap(self):
        """Two steps of one job at once. The end of the first does nothing to the other."""
        job = self.sbatch(f"srun --overlap {self.line(script=SAY + '; echo one; sleep 2')} & "
                          "one=$!; "
                          f"srun --overlap {self.line(script=SAY + '; echo two; sleep 6')} & "
                          "two=$!; wait $one; echo first $?; wait $two; echo second $?", "-N2")
        job.wait_state("COMPLETED", timeout=2 * harness.DEADLINE_S)
        self.assertEqual(len(job.lines("first 0")), 1, job.output())
        self.assertEqual(len(job.lines("second 0")), 1, job.output())
        self.assertEqual(sorted(job.lines("worker")), sorted(places(2) * 2))
        self.check_nothing_left()

    def test_killed(self):
        """Slurm sees that srun is gone, and ends the step."""
        child = self.srun("-N4", *muster(script=STAY))
        child.until("worker", count=4)
        child.signal(signal.SIGKILL)
        child.wait()
        self.check_nothing_left()


class Launch(SlurmCase):
    """A batch script without srun: muster calls it."""

    def test_ranks(self):
        job = self.sbatch(self.launch_line(), "-N4")
        job.wait_state("COMPLETED")
        self.assertEqual(sorted(job.lines("worker")), places(4))

    def test_input(self):
        """The worker of rank 0 reads what the batch script gives to muster, and nobody holds it
        up."""
        line = self.launch_line(script="echo worker $RANK read $(wc -c)")
        job = self.sbatch(f"head -c 20000000 /dev/zero | {line}", "-N2")
        job.wait_state("COMPLETED")
        self.assertEqual(sorted(job.lines("worker")),
                         ["worker 0 read 20000000", "worker 1 read 0"])

    def test_status(self):
        """The status of the worker is that of the batch script."""
        script = f"{SAY}; [ $RANK != 1 ] || exit 3; sleep 600"
        job = self.sbatch(self.launch_line(script=script), "-N2")
        self.assertEqual(job.wait_state("FAILED")["ExitCode"], "3:0")
        self.check_nothing_left()

    def test_restart(self):
        job = self.sbatch(self.launch_line("--max-restarts", "1", script=FAIL_ONCE), "-N4")
        job.wait_state("COMPLETED")
        self.assertEqual(sorted(job.lines("worker", " of 4")), places(4))

    def test_two(self):
        """Two at once in one batch script, in a job of one machine and in one of two. Slurm lets
        steps share their CPUs if it is asked to."""
        for nodes in (1, 2):
            with self.subTest(nodes=nodes):
                both = f"{cluster.RUN}/both{nodes}"
                meet = f"{SAY}; : > {both}.$NAME; until [ -e {both}.a ] && [ -e {both}.b ]; do " \
                       "sleep 0.05; done"
                job = self.sbatch("export SLURM_OVERLAP=1; " + "".join(
                    f"(export NAME={name}; {self.launch_line(script=meet)}; "
                    f"echo ended {name} $?) & " for name in "ab") + "wait", f"-N{nodes}")
                job.wait_state("COMPLETED")
                self.assertEqual(sorted(job.lines("worker")), sorted(places(nodes) * 2))
                self.assertEqual(sorted(job.lines("ended ")), ["ended a 0", "ended b 0"])

    def test_killed(self):
        """The batch script is over, and so is the job."""
        job = self.sbatch(f"exec {self.launch_line(script=STAY)}", "-N4")
        job.wait_lines("worker", count=4)
        for pid in cluster.processes("srun\0--nodes"):
            with contextlib.suppress(ProcessLookupError):  # its other process has ended it
                os.kill(pid, signal.SIGKILL)
        job.wait_state("FAILED")
        self.check_nothing_left()


class Power(SlurmCase):
    """A machine that is switched off says nothing to anybody: no process is told, no connection is
    closed."""

    # After how long a silent node is lost, with the usual settings of muster, and for this Slurm.
    LOST_S = 15 + 5
    DOWN_S = 45

    def turn_off(self):
        self.slurm[3].power_off()
        self.addCleanup(self.slurm.turn_on, self.slurm[3])
        return time.monotonic()

    def test_no_kill(self):
        """The others go on without it."""
        stay = f"{SAY}; [ $WORLD_SIZE != 3 ] || exit 0; while :; do sleep 0.05; done"
        child = self.srun("-N4", "--no-kill", *muster("--nnodes", "3:4", script=stay))
        job = self.sbatch(self.launch_line("--nnodes", "3:4", script=stay), "-N4", "--no-kill")
        child.until("worker", count=4)
        job.wait_lines("worker", count=4)
        off = self.turn_off()
        again = child.until("of 3", count=3)
        self.assertLess(child.at - off, self.LOST_S)
        self.assertEqual(sorted(again), places(3))
        self.assertEqual(child.wait(self.DOWN_S), 0, child.stderr())
        self.assertIn("muster: node 'n4", child.stderr())
        job.wait_state("COMPLETED", timeout=self.DOWN_S)
        self.assertEqual(sorted(job.lines("of 3")), places(3))
        self.check_nothing_left()

    def test_kill(self):
        """Without --no-kill Slurm ends the step, and so do the agents."""
        child = self.srun("-N4", *muster(script=STAY))
        job = self.sbatch(self.launch_line(script=STAY), "-N4", "--no-requeue")
        child.until("worker", count=4)
        job.wait_lines("worker", count=4)
        self.turn_off()
        self.assertNotEqual(child.wait(self.DOWN_S), 0, child.stderr())
        job.wait_state("NODE_FAIL", timeout=self.DOWN_S)
        self.check_nothing_left()


class Hanging(SlurmCase):
    """A machine whose slurmd hangs when a job begins. srun names it, and ends what it started."""

    # slurmctld and srun wait for answers for about ten seconds, and either may be the first.
    END_S = 45
    NAMED = "failed on node n4: |Node failure on n4"

    def test_hangs(self):
        machine = self.slurm[3]
        pid, = machine.processes().intersection(cluster.processes("slurmd\0-N"))
        harness.pause(pid)
        self.addCleanup(self.slurm.start_slurmd, machine)
        self.addCleanup(os.kill, pid, signal.SIGKILL)
        child = self.srun("-N4", *muster(script=STAY))
        job = self.sbatch(self.launch_line(script=STAY), "-N4", "--no-requeue")
        self.assertNotEqual(child.wait(self.END_S), 0, child.stderr())
        self.assertRegex(child.stderr(), self.NAMED)
        job.wait_state("FAILED", "NODE_FAIL", timeout=self.END_S)
        self.assertRegex(job.output(), self.NAMED)
        self.check_nothing_left()


class EndsCase(SlurmCase):
    """Slurm ends jobs of srun, and of `muster run --launch srun` in its place."""

    def submit(self, *options, script=STAY):
        """Both ways, at the same time on the same machines."""
        return [self.sbatch(f"srun {self.line(script=script)}", *options),
                self.sbatch(f"exec {self.launch_line(script=script)}", *options)]


class Stopping(EndsCase):
    def test_preempted(self):
        """Slurm takes the machines for a more urgent job. It sends TERM more than once, and all
        workers save their work. Then the job runs again, from the beginning."""
        once = f'[ -z "$SLURM_RESTART_COUNT" ] || {{ {SAY}; exit 0; }}; '
        jobs = self.submit("-N4", "--requeue", "--open-mode=append", script=once + STAY)
        for job in jobs:
            job.wait_lines("worker", count=4)
        urgent = self.sbatch("srun hostname", "-N4", "-p", "high", "--exclusive")
        for job in jobs:
            job.wait_lines("saved", count=4, timeout=END_S)
        urgent.wait_state("COMPLETED")
        for job in jobs:
            fields = job.wait_state("COMPLETED", timeout=2 * harness.DEADLINE_S)
            self.assertEqual(fields["Restarts"], "1")
            self.assertEqual(sorted(job.lines("worker")), sorted(places(4) * 2))
            self.assertEqual(sorted(job.lines("saved")), [f"saved {rank}" for rank in range(4)])
        self.check_nothing_left()

    def test_scancel(self):
        jobs = self.submit("-N4")
        for job in jobs:
            job.wait_lines("worker", count=4)
            job.cancel()
        for job in jobs:
            job.wait_state("CANCELLED", timeout=END_S)
            self.assertEqual(sorted(job.lines("saved")), [f"saved {rank}" for rank in range(4)])
        self.check_nothing_left()


class TimeLimit(EndsCase):
    def test_limit(self):
        jobs = self.submit("-N2", "--time=1")
        for job in jobs:
            job.wait_lines("worker", count=2)
        for job in jobs:
            job.wait_state("TIMEOUT", timeout=slurm.LIMIT_S)
            self.assertEqual(sorted(job.lines("saved")), ["saved 0", "saved 1"])
        self.check_nothing_left()


if __name__ == "__main__":
    cluster.main(*slurm.NEEDS)
