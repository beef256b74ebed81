#!/usr/bin/env python3
"""What a real Slurm tells of the end of a job: signals, and the time."""

import time

import cluster
import harness
import slurm
from slurm import SlurmCase, muster


class AgentsCase(SlurmCase):
    """Slurm sends signals to the agents alone, as it does with proctrack/cgroup. With linuxproc it
    sends them to all processes below these, too."""

    proctrack = "pgid"


class Signals(AgentsCase):
    """Signals that #SBATCH --signal asks for."""

    # Rank 0 handles the signal, and then writes a file; rank 1 has no handler, and waits for it.
    HANDLER = ('if [ $RANK = 0 ]; then trap "echo told 0; : > $FLAG" USR1; fi; echo worker $RANK; '
               'until [ -e $FLAG ]; do sleep 0.05; done; echo went on $RANK')

    def submit(self, name, script, *options):
        """A job of a minute on two machines, which gets USR1 in its first half minute."""
        flag = f"{cluster.RUN}/{self.id()}.{name}"
        return self.sbatch(f"export FLAG={flag}; {script}", "-N2", "--time=1", *options)

    def check(self, job, *told):
        """Both workers went on to their end."""
        job.wait_state("COMPLETED", timeout=slurm.LIMIT_S)
        lines = [line for line in job.output().splitlines()
                 if not line.startswith(("muster: ", "srun: "))]
        self.assertEqual(sorted(lines), sorted([
            "worker 0", "worker 1", *told, "went on 0", "went on 1"]), job.output())
        self.assertEqual(len(job.lines("SIGUSR1 is not passed on to 1 worker")),
                         told.count("told 0"), job.output())

    def test_signal(self):
        """The workers that handle the signal get it; the others live on, and a line names them.
        With B: it goes to the batch script alone: one that has become `muster run --launch srun`
        passes it on, and one that waits for srun does not."""
        steps = self.submit("steps", f"srun {self.line(script=self.HANDLER)}", "--signal=USR1@30")
        launch = self.submit("launch", "exec " + self.launch_line(script=self.HANDLER),
                             "--signal=B:USR1@30")
        batch = self.submit("batch", f"trap 'echo batch told; : > $FLAG' USR1; "
                            f"srun {self.line(script=self.HANDLER)} & srun=$!; "
                            "wait $srun; wait $srun", "--signal=B:USR1@30")
        self.check(steps, "told 0")
        self.check(launch, "told 0")
        self.check(batch, "batch told")
        self.check_nothing_left()


class End(AgentsCase):
    """The end of the allocation, which this Slurm tells nobody who does not ask squeue."""

    def test_explain(self):
        """All nodes say the same, and where it is from."""
        child = self.srun("-N2", "--time=5", *muster("--explain"))
        self.assertEqual(child.wait(), 0, child.stderr())
        ends = [line.split() for line in child.lines if line.startswith("end-time")]
        self.assertEqual(len(ends), 2, child.lines)
        self.assertEqual(ends[0], ends[1])
        self.assertEqual(ends[0][2], "(squeue)")
        self.assertAlmostEqual(int(ends[0][1]), time.time() + 5 * 60, delta=harness.DEADLINE_S)

    def test_explain_unlimited(self):
        child = self.srun("-N1", *muster("--explain"))
        self.assertEqual(child.wait(), 0, child.stderr())
        line, = [line for line in child.lines if line.startswith("end-time")]
        self.assertIn("none  (squeue says that the job has no end)", line)

    def test_explain_array(self):
        """Each task of an array finds its own end, also that which has the number of the array, by
        which squeue names all of them."""
        tasks = range(7)
        flag = f"{cluster.RUN}/{self.id()}"
        job = self.sbatch(f"until [ -e {flag} ]; do sleep 0.05; done; "
                          f"echo task $SLURM_ARRAY_TASK_ID "
                          f"$({self.line('--explain')} | grep ^end-time); "
                          f": > {flag}.$SLURM_ARRAY_TASK_ID; "  # squeue must see all of them
                          f"until [ $(ls {flag}.* | wc -l) = {len(tasks)} ]; do sleep 0.05; done",
                          "-N1", f"--array=0-{tasks[-1]}", "--open-mode=append", "--time=5",
                          f"--output={cluster.RUN}/out-%A")
        harness.wait_until(lambda: all(fields["JobState"] == "RUNNING" for fields in job.fields())
                           and len(job.fields()) == len(tasks), "all tasks")
        for task in tasks:
            cluster.command("scontrol", "update", f"jobid={job.number}_{task}",
                            f"timelimit={10 * (task + 1)}")
        with open(flag, "w", encoding="utf-8"):
            job.wait_state("COMPLETED")
        ends = {int(line.split()[1]): line.split()[3:] for line in job.lines("end-time")}
        for task in tasks:
            self.assertEqual(ends[task][1], "(squeue)", job.output())
            self.assertAlmostEqual(int(ends[task][0]), time.time() + 600 * (task + 1),
                                   delta=2 * harness.DEADLINE_S)

    def test_notice(self):
        """Each node gets notice at the same time before the end, saves its work, and leaves. The
        job is over before Slurm ends it."""
        save = ('trap "echo notice $RANK \\$((END - \\$(date +%s))); : > $MUSTER_ACK_FILE" USR1; '
                'trap "echo stopped $RANK; exit 0" TERM; echo worker $RANK; '
                'while :; do sleep 0.05; done')
        options = ("--notice-signal", "USR1", "--notice", "45s")
        end = "export END=$(SLURM_TIME_FORMAT=%s squeue -h -o %e -j $SLURM_JOB_ID); "
        jobs = [self.sbatch(f"{end} srun {self.line(*options, script=save)}", "-N2", "--time=1"),
                self.sbatch(f"{end} exec {self.launch_line(*options, script=save)}", "-N2",
                            "--time=1")]
        for job in jobs:
            fields = job.wait_state("FAILED", timeout=2 * harness.DEADLINE_S)
            self.assertEqual(fields["ExitCode"], "75:0")
            self.assertEqual(sorted(job.lines("stopped")), ["stopped 0", "stopped 1"],
                             job.output())
            left = sorted(line.split() for line in job.lines("notice ") if line[0] == "n")
            self.assertEqual([rank for _, rank, _ in left], ["0", "1"], job.output())
            for _, _, seconds in left:
                self.assertAlmostEqual(int(seconds), 45, delta=3)
        self.check_nothing_left()


if __name__ == "__main__":
    cluster.main(*slurm.NEEDS)
