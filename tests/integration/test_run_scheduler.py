"""`muster run` under schedulers, with their variables and programs faked."""

import json
import os
import signal
import sys
import time

import harness
from agents import Agent, Child
from test_run import OK, PREEMPTED, USAGE, Case


class Slurm(Case):
    def squeue(self, script):
        """The environment of a Slurm job whose squeue is this script."""
        path = os.path.join(self.directory, "bin")
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "squeue"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + script)
        os.chmod(file.name, 0o755)
        return {"SLURM_JOB_ID": "7", "PATH": path + os.pathsep + os.environ["PATH"]}

    def test_end_time_from_squeue(self):
        """Without SLURM_JOB_END_TIME, squeue knows the end, and --explain shows its origin."""
        end = int(time.time() + 2 * harness.SLOWNESS) + 3600
        env = self.squeue('[ "$SLURM_TIME_FORMAT $*" = "%s --noheader --format=%e --jobs=7" ] && '
                          f"echo {end}")
        saves = 'trap "echo saving; touch $MUSTER_ACK_FILE" USR1; trap "exit 0" TERM; echo up; ' \
                'while :; do sleep 0.02; done'
        agent = self.shell(saves, "--standalone", "--notice-signal", "USR1", "--notice", "1h",
                           rdzv=False, env=env)
        self.assertEqual(agent.until("saving"), ["saving"])
        self.assertEqual(agent.wait(), PREEMPTED, agent.stderr())
        for script, line in ((f"echo {end}", rf"{end}  \(squeue\)"),
                             ("echo NONE", r"none  \(squeue says that the job has no end"),
                             ("exit 1", r"none  \(squeue is not there or has failed"),
                             ("sleep 1000 & sleep 1000", r"none  \(squeue gave no answer")):
            agent = self.shell("", "--standalone", "--explain", rdzv=False, env=self.squeue(script))
            self.assertEqual(agent.wait(), OK, agent.stderr())
            self.assertRegex("\n".join(agent.lines), "end-time +" + line)
        for array, name in (("7", "7_3"), ("6", "7")):
            agent = self.shell("", "--standalone", "--explain", rdzv=False, env={
                **self.squeue(f'[ "${{*##* }}" = --jobs={name} ] && yes {end}'),
                "SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": "3"})
            self.assertEqual(agent.wait(), OK, agent.stderr())
            self.assertRegex("\n".join(agent.lines), rf"end-time +{end}  \(squeue\)")
        agent = self.shell("echo up", "--standalone", "--notice-signal", "USR1", rdzv=False,
                           env=self.squeue("exit 1"))
        self.assertEqual(agent.wait(), OK, agent.stderr())
        self.assertIn("no notice before the end of the Slurm job, which is not known: squeue is "
                      "not there", agent.stderr())

    def test_signal_before_workers(self):
        """A signal that Slurm sends to a job's workers does not end an agent that has none yet, nor
        do the workers inherit what it does meanwhile."""
        env = self.squeue('kill -USR1 $PPID; kill -CONT $PPID; sleep 0.2; echo NONE')
        agent = self.shell("grep SigIgn /proc/self/status", "--standalone", "--notice-signal",
                           "USR1", rdzv=False, env=env)
        self.assertEqual(agent.wait(), OK, agent.stderr())
        self.assertEqual([int(line.split()[1], 16) & 1 << signal.SIGUSR1 - 1
                          for line in agent.lines], [0])

    def test_batch_script(self):
        """A batch script of several nodes is told how to start an agent on each."""
        env = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]",
               "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
        agent = Agent("--", "sh", "-c", "echo up", env=env)
        self.addCleanup(agent.close)
        self.assertEqual(agent.wait(), USAGE, agent.stderr())
        self.assertIn("use srun or --launch srun", agent.stderr())
        agent = self.shell("echo up", "--nnodes", "1", rdzv=False, env=env)
        self.assertEqual(agent.wait(), OK, agent.stderr())
        self.assertNotIn("srun", agent.stderr())
        # It may start the others by other means, and says where they meet.
        agent = self.shell("echo up", nnodes="1:2", env=env)
        self.assertEqual(agent.wait(), OK, agent.stderr())
        self.assertIn("muster: this is the batch script of a Slurm job of 2 nodes, and it runs on "
                      "one of them; srun or --launch srun would start agents on all\n",
                      agent.stderr())

    def test_tasks_of_a_node(self):
        """Tasks on one node have local ranks of that node, not all 0."""
        def env(task):
            return {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "1",
                    "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2",
                    "SLURM_NODEID": "0", "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)}
        agents = [self.shell('echo "$RANK $LOCAL_RANK $LOCAL_WORLD_SIZE ${local_rank}"; '
                             f'while [ ! -e {self.path("go")} ]; do sleep 0.02; done',
                             nnodes=2, env=env(task)) for task in range(2)]
        self.assertEqual(sorted(agent.next() for agent in agents), ["0 0 2 0", "1 1 2 1"])

        def listed():
            told = harness.run("ps", "--rdzv-endpoint", self.endpoint, "--rdzv-id", self.run_id,
                               "--json")
            return sorted(worker["local_rank"] for line in told.stdout.splitlines()
                          for worker in json.loads(line)["workers"])
        harness.wait_until(lambda: len(listed()) == 2, "both workers in the list")
        self.assertEqual(listed(), [0, 1])
        open(self.path("go"), "wb").close()
        self.assertEqual([agent.wait() for agent in agents], [OK, OK])


class OpenMpi(Case):
    # Starts its arguments, and is there until it is killed.
    MPIRUN = "import signal, subprocess, sys; subprocess.Popen(sys.argv[1:]); signal.pause()"

    def kill_launcher(self, env):
        """Kill the launcher of a node with this environment. The node goes on, with its output."""
        go = os.path.join(self.directory, self.id())
        work = f'trap "echo saved; exit 0" TERM; echo up; until [ -e {go} ]; do sleep 0.02; ' \
               "done; echo done"
        launcher = Child(sys.executable, "-c", self.MPIRUN, harness.MUSTER, "run", "--standalone",
                         "--", "sh", "-c", work, env=env)
        self.addCleanup(launcher.close)
        self.addCleanup(os.makedirs, go, exist_ok=True)  # ends a worker that goes on
        launcher.until("up")
        launcher.signal(signal.SIGKILL)
        launcher.process.wait(harness.DEADLINE_S)
        return launcher, go

    def test_killed_mpirun(self):
        """A mpirun that is killed ends nobody. The node notices it, and its workers save their
        work."""
        launcher, _ = self.kill_launcher({"OMPI_COMM_WORLD_SIZE": "1",
                                          "OMPI_COMM_WORLD_RANK": "0"})
        self.assertEqual(launcher.next(), "saved")
        self.assertIn("muster: mpirun is gone\n", launcher.stderr())

    def test_killed_parent(self):
        """Any other parent may end, such as a shell."""
        launcher, go = self.kill_launcher({})
        os.mkdir(go)
        self.assertEqual(launcher.next(), "done")


if __name__ == "__main__":
    harness.main()
