"""Blocks of code in pages of the documentation, and how those of a shell are run.

What a fence of `sh` may say besides:

  sh python    needs the Python package: tests/python/test_pages.py runs it
  sh torch     needs PyTorch: tests/peers/test_pages.py runs it
  sh install   builds the package: tests/python/test_wheel.py does the same
  sh cluster   needs other machines or root
"""

import os
import re
import signal
import subprocess
import tempfile

import harness

FENCE = re.compile(r"^```(\w+)( \w+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    """Blocks of a page: pairs of what the fence says besides the language, and the text."""
    with open(os.path.join(harness.ROOT, page), encoding="utf-8") as file:
        text = file.read()
    return [((m[2] or "").strip(), m[3]) for m in FENCE.finditer(text) if m[1] == language]


def with_free_ports(text):
    """A block with free ports in place of those that it names."""
    for port in set(re.findall(r"\b29\d\d\d\b", text)):
        text = text.replace(port, str(harness.free_port()))
    return text


def run_shell(case, shell, text, directory, env=None, timeout=3 * harness.DEADLINE_S):
    """Run a block, which must end well; what it prints. It has a session of its own, so that what
    it leaves in the background can be ended."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([shell, "-e", "-c", text], cwd=directory,
                                   env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(timeout)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            output.seek(0)
            printed = output.read().decode(errors="replace")
        case.assertEqual(process.returncode, 0, printed)
        return printed
