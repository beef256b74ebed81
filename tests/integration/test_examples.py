"""The programs in examples/, as they are: the elastic worker in two languages in one job, the store
client, a backend of one's own, and Python with ctypes."""

import os
import re
import signal
import subprocess
import sys
import threading
import unittest

import harness

BUILD = os.path.abspath(os.environ["MUSTER_EXAMPLES"])
LIBRARY = os.environ["MUSTER_LIBRARY"]
HAS_CXX = os.path.exists(os.path.join(BUILD, "example-worker-cxx"))
# A real sanitizer's runtime would have to be loaded before Python is.
IS_SANITIZED = harness.rss_bound_kib(0) > 0
QUICK = "last_call_timeout=0.3"


class Program:
    """A process whose output can be read while it runs."""

    def __init__(self, case, *command, env=None):
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        case.addCleanup(self.close)

    def line(self, pattern):
        """Read on to the next line that matches; a program that does not come to it is killed."""
        deadline = threading.Timer(harness.DEADLINE_S, self.process.kill)
        deadline.start()
        try:
            for line in self.process.stdout:
                found = re.search(pattern, line)
                if found:
                    return found
        finally:
            deadline.cancel()
        raise AssertionError(f"it ended without '{pattern}': {self.process.stderr.read()}")

    def end(self):
        """Exit status, and the rest of its output."""
        out, err = self.process.communicate(timeout=harness.DEADLINE_S)
        harness.check_report(err, "the example")
        return self.process.returncode, out + err

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Examples(unittest.TestCase):
    def example(self, name, *args, env=None):
        return Program(self, os.path.join(BUILD, "example-" + name), *args, env=env)

    def worker(self, name, server, steps, *args):
        return self.example(name, f"127.0.0.1:{server.port}", "job", 2, 3, steps, QUICK, *args)

    def test_store(self):
        with harness.Server() as server:
            for url, visits in (("hash:", 1), (server.url(), 1), (server.url(), 2)):
                with self.subTest(url=url, visits=visits):
                    code, output = self.example("store", url).end()
                    self.assertEqual(code, 0, output)
                    self.assertIn("colour is green", output)
                    self.assertIn(f"this is visit {visits}", output)
                    self.assertIn("waiting for a key: ETIMEOUT", output)
                    self.assertIn("next job: sweep", output)
        code, output = self.example("store", "gopher:").end()
        self.assertEqual(code, 1)
        self.assertIn("gopher", output)

    def test_worker(self):
        """A third node comes, one is killed, one leaves; the others do all the steps."""
        names = ["worker", "worker-cxx" if HAS_CXX else "worker"]
        with harness.Server() as server:
            two = [self.worker(name, server, 60) for name in names]
            for worker in two:
                self.assertEqual(worker.line(r"of (\d), from step 0").group(1), "2")
            third = self.worker("worker", server, 60)
            for worker in (*two, third):
                worker.line(r"rank \d of 3, from step")
            third.process.kill()
            for worker in two:
                worker.line("lost: ")
                found = worker.line(r"rank \d of 2, from step (\d+)")
                self.assertGreater(int(found.group(1)), 0)
            for worker in two:
                code, output = worker.end()
                self.assertEqual(code, 0, output)
                self.assertIn("finished at step 60\nclosed\n", output)
            server.wait_log("ev=job.finished")

    def test_worker_stops(self):
        """Signals end a working program, and one that waits for a round."""
        for name in ["worker"] + ["worker-cxx"] * HAS_CXX:
            with self.subTest(name=name), harness.Server() as server:
                two = [self.worker(name, server, 100000) for _ in range(2)]
                for worker in two:
                    worker.line("rank")
                two[0].process.send_signal(signal.SIGTERM)
                code, output = two[0].end()
                self.assertEqual(code, 0, output)
                self.assertIn("stopped at step", output)
                server.wait_log("ev=node.left")
                two[1].process.send_signal(signal.SIGINT)
                code, output = two[1].end()
                self.assertEqual(code, 0, output)

    def test_backend(self):
        with harness.Server() as server:
            place = [f"127.0.0.1:{server.port}", "job"]
            nodes = [self.example("backend", *place, env={"RANK": str(rank), "WORLD_SIZE": "2"})
                     for rank in range(2)]
            for rank, node in enumerate(nodes):
                code, output = node.end()
                self.assertEqual(code, 0, output)
                self.assertIn(f"round 0: rank {rank} of 2\nround 1: rank {rank} of 2\n", output)
            env = {"RANK": "x", "WORLD_SIZE": "2"}
            code, output = self.example("backend", *place, env=env).end()
            self.assertEqual(code, 1)
            self.assertIn("variable RANK", output)
            code, output = self.example("backend", *place, "timeuot=1", env=env).end()
            self.assertIn("did you mean 'timeout'?", output)

    @unittest.skipIf(IS_SANITIZED, "Python has no sanitizer in it")
    def test_python(self):
        """Ctrl-C while it waits, and it can join all the same."""
        with harness.Server() as server:
            script = os.path.join(harness.ROOT, "examples", "join.py")
            node = Program(self, sys.executable, script, LIBRARY, f"127.0.0.1:{server.port}", "job",
                           2, 2)
            node.line("waiting")
            server.wait_log("ev=job.founded")
            node.process.send_signal(signal.SIGINT)
            node.line("interrupted")
            node.line("waiting again")
            other = Program(self, harness.MUSTER, "join", "--rdzv-endpoint",
                            f"127.0.0.1:{server.port}", "--rdzv-id", "job", "--nnodes", 2, "--",
                            "true")
            node.line(r"rank \d of 2")
            self.assertEqual(node.end()[0], 0)
            other.end()


if __name__ == "__main__":
    harness.main()
