#!/usr/bin/env python3
"""Every command that the README and the quick start tell people to type is run here.

Blocks of `sh` are run with bash, and with zsh if it is there, in an empty directory in which
`build` is the build directory. Of those that need more, only the syntax is checked here: see
pages.py.
"""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

import harness
from pages import blocks, run_shell, with_free_ports

PAGES = ["README.md", "docs/quickstart.md", "docs/torchrun.md", "docs/python.md"]


def as_run(text):
    """A block with free ports. `make` has targets that run this test: that they exist is looked at
    instead."""
    return re.sub(r"^make ", f"make -n -C {harness.ROOT} ", with_free_ports(text),
                  flags=re.MULTILINE)


class Readme(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="readme-")
        self.addCleanup(shutil.rmtree, self.directory)
        os.symlink(os.path.dirname(harness.MUSTER), os.path.join(self.directory, "build"))

    def try_commands(self, shell):
        if shutil.which(shell) is None:
            self.skipTest(f"{shell} is not installed")
        for page in PAGES:
            for number, (kind, text) in enumerate(blocks(page, "sh")):
                with self.subTest(page=page, block=number):
                    if kind == "":
                        run_shell(self, shell, as_run(text), self.directory)
                    else:
                        subprocess.run([shell, "-n", "-c", text], check=True)

    def test_bash(self):
        self.try_commands("bash")

    def test_zsh(self):
        self.try_commands("zsh")

    def test_no_comments(self):
        """zsh takes them for commands when they are pasted."""
        for page in PAGES:
            for _, text in blocks(page, "sh"):
                self.assertNotRegex(text, r"(^|\s)#")


if __name__ == "__main__":
    harness.main()
