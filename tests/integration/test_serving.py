"""Nodes that serve others: for whom, for how long, and who serves instead."""

import os
import shutil
import signal
import subprocess
import tempfile
import unittest

import harness
from agents import QUICK, Agent

OK, UNREACHABLE, TERMINATED = 0, 5, 128 + signal.SIGTERM

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


class Names(Case):
    """Host names that are known later or never: agents with a hosts file of their own."""

    def setUp(self):
        super().setUp()
        self.hosts = f"{self.directory}/hosts"
        self.write(self.hosts, "127.0.0.1 localhost\n")
        self.write(f"{self.directory}/nsswitch", "hosts: files\n")
        mount = f"mount --bind {self.hosts} /etc/hosts && " \
                f"mount --bind {self.directory}/nsswitch /etc/nsswitch.conf"
        # Root does not need a user namespace, and a container may not have them.
        user = [] if os.geteuid() == 0 else ["-r"]
        self.wrapper = ["unshare", *user, "--mount", "--uts", "sh", "-c",
                        f'hostname pod-0 && {mount} && exec "$@"', "sh"]
        if subprocess.run([*self.wrapper, "true"], capture_output=True, check=False).returncode:
            self.skipTest("mount namespaces are not allowed")
        self.endpoint = f"late.test:{harness.free_port()}"

    def write(self, path, text, mode="w"):
        with open(path, mode, encoding="utf-8") as file:
            file.write(text)

    def named(self, *options, join_timeout=harness.DEADLINE_S):
        agent = Agent("--rdzv-endpoint", self.endpoint, "--rdzv-id", "named", "--rdzv-conf",
                      f"{QUICK},join_timeout={join_timeout}", *options, "--", "sh", "-c",
                      "echo at $RANK/$WORLD_SIZE", wrapper=self.wrapper)
        self.addCleanup(agent.close)
        return agent

    def await_retry(self, agent):
        harness.wait_until(lambda: "resolve.again host=late.test" in agent.stderr(), "a retry")

    def test_name_is_known_later(self):
        """The name of this machine, too: then the first node serves."""
        for serve in ("never", "auto"):
            with self.subTest(serve=serve):
                self.write(self.hosts, "127.0.0.1 localhost\n")
                if serve == "never":
                    server = harness.Server()
                    self.addCleanup(server.__exit__, None, None, None)
                    self.endpoint = f"late.test:{server.port}"
                else:
                    self.endpoint = f"late.test:{harness.free_port()}"
                agents = [self.named("--nnodes", "2", "--serve", serve) for _ in range(2)]
                for agent in agents:
                    self.await_retry(agent)
                    self.assertIsNone(agent.process.poll())
                self.write(self.hosts, "127.0.0.1 late.test\n", mode="a")
                self.assertEqual([agent.wait() for agent in agents], [OK, OK],
                                 agents[0].stderr() + agents[1].stderr())
                self.assertEqual(sorted(agent.lines[0] for agent in agents), ["at 0/2", "at 1/2"])

    def test_own_name_is_known_later(self):
        """A pod's hosts file has its full name; the name server learns the short one later."""
        self.write(self.hosts, "127.0.0.1 pod-0.sub.ns.svc pod-0\n", mode="a")
        self.endpoint = f"pod-0.sub:{harness.free_port()}"
        agent = self.named("--nnodes", "1", "--rdzv-backend", "c10d", "--log-level", "info")
        harness.wait_until(lambda: "is serving on pod-0.sub" in agent.stderr(), "the server")
        harness.wait_until(lambda: "resolve.again host=pod-0.sub" in agent.stderr(), "a retry")
        self.write(self.hosts, "127.0.0.1 pod-0.sub\n", mode="a")
        self.assertEqual(agent.wait(), OK, agent.stderr())

    def test_wrong_name(self):
        """It is tried until join_timeout; the sentence has the name."""
        agent = self.named("--nnodes", "2", join_timeout=1)
        self.assertEqual(agent.wait(), UNREACHABLE, agent.stderr())
        self.assertGreater(agent.end - agent.start, 0.9)
        self.assertRegex(agent.stderr(), "muster: .*late.test.*for [1-9]+ s; is the name right")

    def test_signal_ends_it(self):
        agent = self.named("--nnodes", "2")
        self.await_retry(agent)
        agent.signal(signal.SIGTERM)
        self.assertEqual(agent.wait(), TERMINATED, agent.stderr())


if __name__ == "__main__":
    harness.main()
