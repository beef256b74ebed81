"""Run every block of Python in the documentation, and the commands for the package.

The blocks of a page run one after the other at one server. A block that makes a node runs in as
many processes as the round has room for, so that there is no last call.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from package import Case, harness, muster  # noqa: I001
from pages import blocks, run_shell, with_free_ports

PAGES = ["docs/python.md", "docs/quickstart.md"]

# Python blocks stand for parts of a program: with what that may be, and perhaps of a coroutine.
RUN = """
import ast, asyncio, inspect, sys
import muster
names = {"muster": muster, "my_address": "here", "work": lambda addresses, is_over: True}
code = compile(sys.argv[1], "block", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
coroutine = eval(code, names)
if code.co_flags & inspect.CO_COROUTINE:
    asyncio.run(coroutine)
"""


class Pages(Case):
    def setUp(self):
        self.at = harness.Server()
        self.addCleanup(self.at.__exit__, None, None, None)

    def start(self, text):
        process = subprocess.Popen([sys.executable, "-u", "-c", RUN, text], text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        self.addCleanup(process.kill)
        return process

    def end(self, process):
        printed, _ = process.communicate(timeout=3 * harness.DEADLINE_S)
        self.assertEqual(process.returncode, 0, printed)
        return printed

    def run_block(self, text):
        """Those which end by themselves."""
        room = re.search(r"nodes=\(?(?:\d+, )?(\d+)", text)
        processes = [self.start(text) for _ in range(int(room[1]) if room else 1)]
        return [self.end(process) for process in processes]

    def here(self, text):
        """A block at our server. A block that makes a server has its own port."""
        if "muster.Server" in text:
            return with_free_ports(text)
        return re.sub(r"\b(node0|localhost):29400\b", f"127.0.0.1:{self.at.port}", text)

    def blocks(self, page, needle):
        found = [self.here(text) for _, text in blocks(page, "python") if needle in text]
        self.assertTrue(found, f"{page} has no block with {needle}")
        return found

    def test_rendezvous(self):
        for page in PAGES:
            for text in self.blocks(page, ".next("):
                with self.subTest(page=page, text=text):
                    ranks = {int(re.search(r"\d+", printed)[0]) for printed in self.run_block(text)}
                    self.assertEqual(ranks, {0, 1, 2, 3})

    def test_asyncio(self):
        """One of two is killed, and the other is told."""
        text, = self.blocks("docs/python.md", "next_async")
        nodes = [self.start(text), self.start(text)]
        at = f"127.0.0.1:{self.at.port}"

        def is_running():
            return [job for job in muster.jobs(at) if job["phase"] == "running"]

        harness.wait_until(is_running, "the round", harness.DEADLINE_S)
        nodes.pop().send_signal(signal.SIGKILL)
        self.assertRegex(self.end(nodes[0]), r"^lost: \['.+'\]\n$")

    def test_stores_and_servers(self):
        store = self.store(f"tcp://127.0.0.1:{self.at.port}")
        store.multi_set(["a", "b"], ["1", "2"])
        node = self.rendezvous(f"127.0.0.1:{self.at.port}", "my-job")
        node.next()
        for needle in ("muster.Store", "muster.Server", "muster.status"):
            for text in self.blocks("docs/python.md", needle):
                with self.subTest(text=text):
                    self.run_block(text)
        self.assertEqual((store.get("greeting"), store.get("arrived")), (b"hello", b"1"))

    def test_every_block_is_run(self):
        """By one of the above."""
        for page in PAGES:
            for _, text in blocks(page, "python"):
                self.assertRegex(text, r"\.next\(|next_async|muster\.(Store|Server|status)\(")

    def test_shell(self):
        directory = tempfile.mkdtemp(prefix="muster-test-")
        self.addCleanup(shutil.rmtree, directory)
        path = [directory, os.path.dirname(harness.MUSTER), os.environ["PATH"]]
        # A sanitizer that is loaded before the interpreter is too much for a shell.
        env = {"PATH": os.pathsep.join(path), "LD_PRELOAD": ""}
        with open(os.path.join(directory, "python"), "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o755)
            file.write(f'#!/bin/sh\nLD_PRELOAD="{os.environ.get("LD_PRELOAD", "")}" '
                       f'exec "{sys.executable}" "$@"\n')
        found = [text for page in PAGES for kind, text in blocks(page, "sh") if kind == "python"]
        self.assertTrue(found)
        for text in found:
            with self.subTest(text=text):
                self.assertIn("muster", run_shell(self, "bash", with_free_ports(text), directory,
                                                  env))


if __name__ == "__main__":
    harness.main()
