"""A cluster of Slurm: slurmctld and munged beside the test program, a slurmd on each machine.
SlurmCase is the common part of the tests with it."""

import functools
import os
import re
import shlex
import unittest

import cluster
import harness
from agents import Child

NEEDS = ("slurmctld", "slurmd", "srun", "munged")

# What a worker says of its place.
SAY = 'echo "worker $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE on $(hostname)"'

# Slurm counts limits in minutes, and looks every half minute.
LIMIT_S = 60 + 60

CONF = """
ClusterName=test
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
# How soon a job that is queued again may start.
AuthInfo=cred_expire=5
StateSaveLocation={run}/slurm/state
SlurmdSpoolDir={run}/slurm/spool-%n
SlurmctldPidFile={run}/slurm/slurmctld.pid
SlurmdPidFile={run}/slurm/slurmd-%n.pid
SlurmctldLogFile={run}/slurm/slurmctld.log
SlurmdLogFile={run}/slurm/slurmd-%n.log
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
# A node that is silent for so long is down. SIGKILL follows SIGTERM after so long.
SlurmdTimeout=8
KillWait=6
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[1-{count}] CPUs=16
PartitionName=low Nodes=ALL Default=YES PriorityTier=1
PartitionName=high Nodes=ALL PriorityTier=2 PreemptMode=OFF
"""


class Slurm(cluster.Network):
    def __init__(self, proctrack, count=4):
        # Before the machines are made, which see what is mounted then.
        cluster.command("mount", "-t", "tmpfs", "tmpfs", "/etc/slurm")
        super().__init__(count)
        for name in ("munge", "slurm", "slurm/state"):
            os.mkdir(f"{cluster.RUN}/{name}")
        with open("/etc/slurm/slurm.conf", "w", encoding="ascii") as file:
            file.write(CONF.format(run=cluster.RUN, count=count, proctrack=proctrack))
        # Not used for anything, but slurmd wants one.
        with open("/etc/slurm/cgroup.conf", "w", encoding="ascii") as file:
            file.write("CgroupPlugin=cgroup/v1\n")
        self.start_munged()
        cluster.command("slurmctld")
        for machine in self.machines:
            os.mkdir(f"{cluster.RUN}/slurm/spool-{machine.name}")
            self.start_slurmd(machine)
        self.wait_idle()

    @staticmethod
    def start_munged():
        """One for all machines: its socket is in a directory that they share."""
        directory = f"{cluster.RUN}/munge"
        descriptor = os.open(f"{directory}/key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, os.urandom(32))
        os.close(descriptor)
        cluster.command(
            "munged", "--force", f"--key-file={directory}/key",
            f"--socket={directory}/munge.socket.2", f"--pid-file={directory}/pid",
            f"--log-file={directory}/log", f"--seed-file={directory}/seed")

    @staticmethod
    def start_slurmd(machine):
        machine.run("slurmd", "-N", machine.name)

    def turn_on(self, machine):
        """Turn on a machine that is off."""
        machine.turn_on()
        self.start_slurmd(machine)

    def wait_idle(self):
        """Wait until no job runs, and all machines can take one."""
        def look():
            states = cluster.command("sinfo", "-h", "-N", "-p", "low", "-o", "%t").split()
            return set(states) == {"idle"} and not cluster.command("squeue", "-h").strip()

        harness.wait_until(look, "an idle cluster", 3 * harness.DEADLINE_S)

    @staticmethod
    def srun(*args, **keywords):
        """A step, of a job of its own unless --jobid says otherwise."""
        return Child("srun", *args, **keywords)

    @staticmethod
    def sbatch(script, *options):
        """Submit a job; returns its Job. `script` is the body of a shell script."""
        told = cluster.command("sbatch", "--parsable", f"--output={cluster.RUN}/out-%j",
                               *options, "--wrap", script)
        return Job(int(told))

    @staticmethod
    def log():
        texts = []
        for name in sorted(os.listdir(f"{cluster.RUN}/slurm")):
            if name.endswith(".log"):
                with open(f"{cluster.RUN}/slurm/{name}", encoding="utf-8") as file:
                    texts.append(f"--- {name}\n{file.read()[-2000:]}")
        return "".join(texts)


@functools.cache
def started(proctrack):
    """The cluster of this program."""
    return Slurm(proctrack)


class Job:
    """A batch job, or an array of them."""

    def __init__(self, number):
        self.number = number

    def fields(self):
        """What Slurm knows of the job, or of each task of the array."""
        text = cluster.command("scontrol", "-o", "show", "job", self.number)
        return [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in text.splitlines() if line]

    def output(self):
        try:
            with open(f"{cluster.RUN}/out-{self.number}", encoding="utf-8",
                      errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def lines(self, *needles):
        return [line for line in self.output().splitlines() if all(n in line for n in needles)]

    def wait_lines(self, *needles, count=1, timeout=None):
        """Wait for `count` lines with all of the needles in the output; returns them."""
        def look():
            lines = self.lines(*needles)
            return lines if len(lines) >= count else None

        try:
            return harness.wait_until(look, "lines", timeout)
        except AssertionError:
            raise AssertionError(f"no {count} lines with {needles}: {self.output()}\n"
                                 f"{self.fields()}") from None

    def wait_state(self, *states, timeout=None):
        """Wait until the job, or each task, is in one of the states; returns the fields of one."""
        def look():
            tasks = self.fields()
            return tasks[0] if all(task["JobState"] in states for task in tasks) else None

        try:
            return harness.wait_until(look, "state", timeout)
        except AssertionError:
            raise AssertionError(f"not {states}: {self.fields()}\n{self.output()}") from None

    def cancel(self, *options):
        cluster.command("scancel", *options, self.number)


# --- tests ----------------------------------------------------------------------------------------


def muster(*options, script=SAY):
    return [harness.MUSTER, "run", *options, "--", "sh", "-c", script]


def places(world, per_node=1):
    """What the workers of a job on the first machines say, sorted."""
    return sorted(f"worker {rank} of {world}, local {rank % per_node} of {per_node} on "
                  f"n{rank // per_node + 1}" for rank in range(world))


class SlurmCase(unittest.TestCase):
    """The tests of a program share its cluster, and leave it idle."""

    proctrack = "linuxproc"

    @classmethod
    def setUpClass(cls):
        cls.slurm = started(cls.proctrack)

    def setUp(self):
        self.jobs = []
        # Every process of this test has its name in its environment.
        self.mark = f"MUSTER_TEST_OF={self.id()}"
        self.addCleanup(self.clean_up)

    def clean_up(self):
        for job in self.jobs:
            job.cancel("--quiet")
        self.slurm.wait_idle()

    def srun(self, *args, **keywords):
        name, value = self.mark.split("=")
        child = self.slurm.srun(*args, env={name: value}, **keywords)
        self.addCleanup(child.close)
        return child

    def sbatch(self, script, *options):
        job = self.slurm.sbatch(script, "--export", f"ALL,{self.mark}", *options)
        self.jobs.append(job)
        return job

    def line(self, *options, script=SAY):
        """The command of muster() as a line of a shell script."""
        return shlex.join(muster(*options, script=script))

    def launch_line(self, *options, script=SAY):
        return self.line("--launch", "srun", *options, script=script)

    def check_nothing_left(self):
        """No process of this test's jobs is on any machine, or soon none is."""
        harness.wait_until(lambda: not cluster.processes(self.mark), "the end of all processes")
