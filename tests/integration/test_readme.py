#!/usr/bin/env python3
"""Every command that the README and the quick start tell people to type is run here.

Blocks of `sh` are run with bash, and with zsh if it is there, in an empty directory in which
`build` is the build directory. What else a fence may say:

  sh torch     needs PyTorch and the Python package; tests/peers runs it
  sh cluster   needs other machines or root: only its syntax is checked
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import harness

PAGES = ["README.md", "docs/quickstart.md"]
FENCE = re.compile(r"^```(\w+)( \w+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    """Blocks of a page: pairs of what the fence says and the text."""
    with open(os.path.join(harness.ROOT, page), encoding="utf-8") as file:
        text = file.read()
    return [(m[2] or "", m[3]) for m in FENCE.finditer(text) if m[1] == language]


def without_make(text):
    """`make` has targets that run this test; that they exist is looked at instead."""
    return re.sub(r"^make ", f"make -n -C {harness.ROOT} ", text, flags=re.MULTILINE)


class Readme(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="readme-")
        self.addCleanup(shutil.rmtree, self.directory)
        os.symlink(os.path.dirname(harness.MUSTER), os.path.join(self.directory, "build"))

    def run_block(self, shell, text):
        """In a session of its own, so that what it leaves in the background can be ended."""
        process = subprocess.Popen(
            [shell, "-e", "-c", without_make(text)],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=3 * harness.DEADLINE_S)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.assertEqual(process.returncode, 0, output.decode(errors="replace"))

    def test_commands(self):
        for page in PAGES:
            for number, (kind, text) in enumerate(blocks(page, "sh")):
                for shell in ["bash", "zsh"]:
                    with self.subTest(page=page, block=number, shell=shell):
                        if shutil.which(shell) is None:
                            self.skipTest(f"{shell} is not installed")
                        if kind == "":
                            self.run_block(shell, text)
                        else:
                            subprocess.run([shell, "-n", "-c", text], check=True)


if __name__ == "__main__":
    harness.main()
