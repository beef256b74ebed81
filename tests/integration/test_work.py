"""The end of work: processes whose work is done or has failed, at a `muster serve`."""

import itertools
import json
import os
import subprocess
import tempfile
import time
import unittest

import harness
from nodes import PATIENCE_S

NODE = os.environ["MUSTER_WORK_NODE"]
OPTIONS = "is_host=0,join_timeout=60,last_call_timeout=50ms,keep_alive_interval=300ms"
BACKENDS = ("muster", "c10d")

_numbers = itertools.count()


class Job:
    def __init__(self, server, backend, nodes=3, options=""):
        host, port = server.address
        self.backend = backend
        self.endpoint = f"{host}:{port}"
        self.run_id = f"work-{next(_numbers)}"
        self.arguments = [NODE, backend, self.endpoint, self.run_id, str(nodes),
                          OPTIONS + options]
        self.nodes = []

    def start(self, *words):
        """A node; its lines come when it has ended."""
        node = subprocess.Popen(self.arguments + list(words), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        self.nodes.append(node)
        return node

    def has_spare(self):
        result = subprocess.run(
            [harness.MUSTER, "status", "--json", "--rdzv-backend", self.backend, "--rdzv-endpoint",
             self.endpoint, "--rdzv-id", self.run_id],
            stdout=subprocess.PIPE, check=True)
        return len(json.loads(result.stdout)["spares"]) == 1

    def lines(self, node):
        """The output of @node without its rounds, and its exit code."""
        out, errors = node.communicate(timeout=PATIENCE_S)
        if errors:
            raise AssertionError(errors)
        return [line for line in out.splitlines() if not line.startswith("round ")], node.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            node.kill()
            node.communicate()


class Work(unittest.TestCase):
    def setUp(self):
        self.server = harness.Server("--job-grace", "300ms")
        self.addCleanup(self.server.terminate)

        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "go")

    def go(self):
        """Nodes that wait for it say their word."""
        with open(self.path, "w", encoding="ascii"):
            pass

    def meet(self, job, *words):
        """Nodes with these words for each; all are in the first round."""
        nodes = [job.start(*text.split()) for text in words]
        for node in nodes:
            self.assertTrue(node.stdout.readline().startswith("round "))
        return nodes

    def each(self, **more):
        for backend in BACKENDS:
            if os.path.exists(self.path):
                os.remove(self.path)
            with self.subTest(backend=backend), Job(self.server, backend, **more) as job:
                yield job

    def test_all_finish(self):
        for job in self.each():
            nodes = [job.start("finish") for _ in range(3)]
            for node in nodes:
                self.assertEqual(job.lines(node), (["finished"], 0))

    def test_spares_succeed_with_the_job(self):
        for job in self.each():
            members = self.meet(job, *[f"finish@{self.path}"] * 3)
            spare = job.start("hold")
            harness.wait_until(job.has_spare, "the spare")
            self.go()
            for node in members:
                self.assertEqual(job.lines(node), (["finished"], 0))
            lines, code = job.lines(spare)
            self.assertRegex(lines[0], "^EFINISHED .*the job has finished")
            self.assertEqual(code, 0)
            # A later node may have meant another job of this id.
            lines, code = job.lines(job.start("hold"))
            self.assertRegex(lines[0], "^E(CLOSED|FINISHED) .*has finished")

    def test_one_fails_within_the_budget(self):
        for job in self.each(options=",max_restarts=1"):
            nodes = self.meet(job, f"fail@{self.path} finish", "finish", "hold finish")
            self.go()
            self.assertEqual(job.lines(nodes[0]), (["finished"], 0))
            for node in nodes[1:]:
                self.assertEqual(job.lines(node), (["back after a failure", "finished"], 0))

    def test_one_fails_beyond_the_budget(self):
        for job in self.each(options=",max_restarts=0"):
            nodes = self.meet(job, f"fail@{self.path}", "finish", "hold")
            self.go()
            first, code = job.lines(nodes[0])
            self.assertEqual(code, 1)
            self.assertRegex(first[0], "^ECLOSED .*signal 9: out of memory")
            causes = [job.lines(node)[0] for node in nodes[1:]]
            self.assertRegex(causes[0][0], "^failed rank=[0-2] signal=9 node=.* text=out of mem")
            self.assertEqual(causes[0], causes[1])

    def test_finished_one_is_not_missed(self):
        for how in ("leave", "die"):
            for job in self.each():
                # Not before all know of their round: where there is only a record, a node that is
                # gone by then has not been in it.
                first = f"{self.path}-first"
                gone, *others = self.meet(job, f"{how}@{first}", *[f"finish@{self.path}"] * 2)
                with open(first, "w", encoding="ascii"):
                    pass
                self.assertEqual(job.lines(gone), ([], 0))
                os.remove(first)
                if how == "die":
                    time.sleep(1.2)  # longer than a node may be silent, or without a connection
                self.go()
                for node in others:
                    self.assertEqual(job.lines(node), (["finished"], 0))


if __name__ == "__main__":
    harness.main()
