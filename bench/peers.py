"""What the benches share: torch's interpreters, runs with a limit, and how far they have come.

Torch's nodes change one record by compare-and-set without backing off. 128 of them, each a process,
take 5 to 11 s on two cores, and have taken more than 120 s where a hundred other processes wanted
these cores. So a run that takes too long is a result, too: a lower bound.
"""

import json
import os
import statistics
import subprocess
import sys
import time

BENCH = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(BENCH)

ENVIRONMENT = {**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1",
               "PYTHONWARNINGS": "ignore"}


class Failed(Exception):
    """A measurement could not be made."""


class TooLong(Failed):
    """A run had not ended at its limit."""

    def __init__(self, limit_s):
        super().__init__(f"no end after {limit_s} s")
        self.limit_s = limit_s


class Progress:
    """On a terminal one line that is written over and over, elsewhere a line for each step."""

    def __init__(self):
        self.is_terminal = sys.stderr.isatty()

    def say(self, text, is_step=True):
        if self.is_terminal:
            sys.stderr.write(f"\r\033[K{text}")
        elif is_step:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def clear(self):
        if self.is_terminal:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def run(command, limit_s, progress, what):
    """Run what prints JSON; the object in its last line. On a terminal the seconds go by."""
    began = time.monotonic()
    progress.say(what)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        while True:
            left_s = began + limit_s - time.monotonic()
            try:
                out, said = process.communicate(timeout=max(0, min(1, left_s)))
                break
            except subprocess.TimeoutExpired:
                if left_s <= 0:
                    process.kill()
                    process.communicate()
                    raise TooLong(limit_s) from None
                progress.say(f"{what}, {time.monotonic() - began:.0f} s", is_step=False)
            except BaseException:
                process.kill()
                raise
    if process.returncode != 0:
        raise Failed(f"{' '.join(command)} ended with {process.returncode}: {said[-1000:]}")
    return json.loads(out.splitlines()[-1])


class Torch:
    """An interpreter with torch, whose real handlers are measured."""

    def __init__(self, name, python):
        self.name, self.python = name, python

    def command(self, endpoint, nodes, options=None, death=False):
        return [self.python, os.path.join(BENCH, "torch_rendezvous.py"), endpoint, str(nodes),
                *(["--death"] if death else []),
                *(f"{key}={value}" for key, value in (options or {}).items())]


def find_torch(python, is_old):
    """The peer, or None after saying why not."""
    version = None
    if os.path.exists(python):
        probe = subprocess.run(
            [python, "-c", "import importlib.metadata as m; print(m.version('torch'))"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        version = probe.stdout.strip() if probe.returncode == 0 else None
    if version is None or version.startswith(("1.", "2.0.")) != is_old:
        wanted = "torch 1.13" if is_old else "torch 2.x"
        print(f"skipped {wanted}: {python} has {'torch ' + version if version else 'no torch'}")
        return None
    return Torch("torch-" + ".".join(version.split(".")[:2]), python)


def find_torches():
    """Those that are there: $MUSTER_TORCH_OLD (1.13) and $MUSTER_TORCH_NEW (2.x)."""
    pythons = ((os.environ.get("MUSTER_TORCH_OLD") or "/usr/bin/python3", True),
               (os.environ.get("MUSTER_TORCH_NEW") or
                os.path.join(ROOT, ".venv-torch/bin/python"), False))
    return [peer for peer in (find_torch(*where) for where in pythons) if peer is not None]


class Seconds:
    """The median of the runs that have ended; when none has, the limit, as a lower bound."""

    def __init__(self, ended, limits):
        self.ended, self.limits = ended, limits
        self.is_bound = not ended and bool(limits)
        self.value = (statistics.median(ended) if ended else min(limits) if limits else None)

    def text(self, digits=4):
        if self.value is None:
            return "-"
        return f"> {self.value:,}" if self.is_bound else f"{self.value:,.{digits}f}"

    def note(self):
        """What the median does not say; None when it says all."""
        if not self.limits:
            return None
        of = len(self.ended) + len(self.limits)
        return f"{len(self.limits)} of {of} runs took more than {min(self.limits)} s" + (
            ", the figure is of the others" if self.ended else "")
