"""Nodes that serve others: for whom, for how long, and who serves instead."""

import shutil
import signal
import tempfile
import unittest

import harness
from agents import QUICK, Agent

OK, TERMINATED = 0, 128 + signal.SIGTERM

# Prints its rank, and runs until SIGTERM.
STAY = 'trap "exit 0" TERM; echo at $RANK/$WORLD_SIZE; while :; do sleep 0.02; done'

# Prints its rank, and runs until the file in $GO exists.
UNTIL = 'echo at $RANK/$WORLD_SIZE; while ! [ -e $GO ]; do sleep 0.02; done'


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="muster-serving-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.endpoint = f"127.0.0.1:{harness.free_port()}"

    def agent(self, run_id, script, *options, env=None):
        agent = Agent("--rdzv-endpoint", self.endpoint, "--rdzv-id", run_id, "--nnodes", "1:2",
                      "--rdzv-conf", QUICK, *options, "--", "sh", "-c", script, env=env)
        self.addCleanup(agent.close)
        return agent

    def go(self, name):
        """Variables for a worker of UNTIL, and what lets it end."""
        path = f"{self.directory}/{name}"

        def release():
            with open(path, "x", encoding="utf-8"):
                pass
        return {"GO": path}, release


class Lingering(Case):
    """Two jobs at one endpoint; the one whose node serves is over first."""

    def two_jobs(self, *options):
        first_env, end_first = self.go("first")
        second_env, end_second = self.go("second")
        serves = self.agent("first", UNTIL, *options, env=first_env)
        serves.until("at 0/1")
        other = self.agent("second", UNTIL, env=second_env)
        other.until("at 0/1")
        end_first()
        return serves, other, end_second

    def test_other_job_goes_on(self):
        serves, other, end_second = self.two_jobs()
        harness.wait_until(lambda: "run 'second' (1 node)" in serves.stderr(), "the line")
        self.assertIsNone(other.process.poll())
        end_second()
        self.assertEqual(other.wait(), OK, other.stderr())
        self.assertEqual(serves.wait(), OK, serves.stderr())
        self.assertNotIn("cannot be reached", other.stderr())

    def test_signal_ends_it(self):
        """The exit status is that of its own job."""
        serves, other, _ = self.two_jobs("--forward-signals", "USR1")
        harness.wait_until(lambda: "run 'second' (1 node)" in serves.stderr(), "the line")
        serves.signal(signal.SIGUSR1)  # is for workers, and there are none
        serves.signal(signal.SIGTERM)
        self.assertEqual(serves.wait(), OK, serves.stderr())
        self.assertIsNone(other.process.poll())

    def test_bounded(self):
        serves, other, _ = self.two_jobs("--linger", "50ms")
        self.assertEqual(serves.wait(), OK, serves.stderr())
        self.assertIn("no longer, although run 'second' (1 node)", serves.stderr())
        self.assertIsNone(other.process.poll())

    def test_stopped_node_does_not_stay(self):
        serves = self.agent("first", STAY)
        serves.until("at 0/1")
        other = self.agent("second", STAY)
        other.until("at 0/1")
        serves.signal(signal.SIGTERM)
        self.assertEqual(serves.wait(), TERMINATED, serves.stderr())
        self.assertNotIn("second", serves.stderr())


if __name__ == "__main__":
    harness.main()
