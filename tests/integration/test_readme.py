#!/usr/bin/env python3
"""Every command that the README and the quick start tell people to type is run here.

Blocks of `sh` are run with bash, and with zsh if it is there, in an empty directory in which
`build` is the build directory. What else a fence may say:

  sh torch     needs PyTorch: only its syntax is checked here; tests/peers/test_torchrun.py has
               agents with such commands
  sh cluster   needs other machines or root: only its syntax is checked
"""

import os
import re
import shutil
import signal
import socket
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


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def as_run(text):
    """A block with free ports in place of those that it names. `make` has targets that run this
    test: that they exist is looked at instead."""
    for port in set(re.findall(r"\b29\d\d\d\b", text)):
        text = text.replace(port, str(free_port()))
    return re.sub(r"^make ", f"make -n -C {harness.ROOT} ", text, flags=re.MULTILINE)


class Readme(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="readme-")
        self.addCleanup(shutil.rmtree, self.directory)
        os.symlink(os.path.dirname(harness.MUSTER), os.path.join(self.directory, "build"))

    def run_block(self, shell, text):
        """In a session of its own, so that what it leaves in the background can be ended."""
        process = subprocess.Popen(
            [shell, "-e", "-c", as_run(text)],
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

    def try_commands(self, shell):
        if shutil.which(shell) is None:
            self.skipTest(f"{shell} is not installed")
        for page in PAGES:
            for number, (kind, text) in enumerate(blocks(page, "sh")):
                with self.subTest(page=page, block=number):
                    if kind == "":
                        self.run_block(shell, text)
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
