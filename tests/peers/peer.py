"""Shared by the tests with real torch: running the drivers and reading their output."""

import atexit
import json
import os
import select
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "integration"))

import harness  # noqa: E402

# Start-up of torch included, on a busy machine.
DRIVER_TIMEOUT_S = 240

# Torch's warnings about failed connections come with long stack traces.
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}


# Our Python package, as it was built.
PACKAGE = os.environ.get("MUSTER_PYTHON", os.path.join(harness.ROOT, "build", "python"))


def installed():
    """A directory for PYTHONPATH that makes the package look installed: with its entry points, by
    which torch finds it."""
    if not _installed:
        directory = tempfile.mkdtemp(prefix="muster-test-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        about = os.path.join(directory, "muster-0.dist-info")
        os.mkdir(about)
        with open(os.path.join(harness.ROOT, "pyproject.toml"), encoding="utf-8") as file:
            points = re.search(r'entry-points."torchrun.handlers"\]\n(.*?)\n\n', file.read(), re.S)
        with open(os.path.join(about, "METADATA"), "w", encoding="ascii") as file:
            file.write("Metadata-Version: 2.1\nName: muster\nVersion: 0\n")
        with open(os.path.join(about, "entry_points.txt"), "w", encoding="ascii") as file:
            file.write("[torchrun.handlers]\n" + points.group(1).replace('"', "") + "\n")
        _installed.append(os.pathsep.join([directory, PACKAGE]))
    return _installed[0]


_installed = []


def plugin_python(which):
    """The interpreter that has torch and can import our package; else the test is skipped."""
    python = harness.torch_python(which)
    probe = subprocess.run(
        [python, "-c", "import muster"], env={**os.environ, "PYTHONPATH": installed()},
        stderr=subprocess.PIPE, check=False)
    if probe.returncode != 0:
        reason = probe.stderr.decode().strip().splitlines()[-1]
        raise unittest.SkipTest(f"{python} cannot import our package: {reason}")
    return python


class Forked:
    """A script with torch, in a fork of a process that has imported it; has the needed part of
    subprocess.Popen."""

    def __init__(self, control, args, env, stdin):
        self.args, self.returncode, self.readers, self.read = args, None, [], {}
        self.stdin = None
        theirs_in = os.open(os.devnull, os.O_RDONLY)
        if stdin == subprocess.PIPE:
            os.close(theirs_in)
            theirs_in, ours = os.pipe()
            self.stdin = os.fdopen(ours, "wb")
        out, theirs_out = os.pipe()
        err, theirs_err = os.pipe()
        report, theirs_report = os.pipe()
        self.stdout, self.stderr = os.fdopen(out, "rb"), os.fdopen(err, "rb")
        self.report = os.fdopen(report, "rb", buffering=0)
        theirs = [theirs_in, theirs_out, theirs_err, theirs_report]
        socket.send_fds(control, [json.dumps({"args": args, "env": env}).encode()], theirs)
        for fd in theirs:
            os.close(fd)
        pid = self.report.readline()
        if not pid:
            raise AssertionError("torch's process did not start")
        self.pid = int(pid)

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self.report], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            with self.report:
                self.returncode = os.waitstatus_to_exitcode(int(self.report.readline()))
        return self.returncode

    def kill(self):
        if self.returncode is None and not select.select([self.report], [], [], 0)[0]:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout=None):
        """Can be called again after a timeout."""
        if not self.readers:
            self.readers = [threading.Thread(target=self.read_all, args=(file,), daemon=True)
                            for file in (self.stdout, self.stderr)]
            for reader in self.readers:
                reader.start()
        self.wait(timeout)
        for reader in self.readers:
            reader.join()
        return self.read[self.stdout], self.read[self.stderr]

    def read_all(self, file):
        with file:
            self.read[file] = file.read()


_controls = {}


def control_of(which):
    """The socket of the process that forks those of the "old" or "new" torch."""
    if which not in _controls:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [harness.torch_python(which), os.path.join(HERE, "torch_fork.py"),
                 str(theirs.fileno())],
                stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                env={**os.environ, **QUIET, "PYTHONPATH": installed()})
        atexit.register(process.wait)
        atexit.register(ours.close)
        _controls[which] = ours
    return _controls[which]


def start(which, script, *args, env=None, stdin=subprocess.DEVNULL):
    """Start a driver under the "old" or "new" torch."""
    command = [os.path.join(HERE, script), *map(str, args)]
    return Forked(control_of(which), command, env or {}, stdin)


def finish(process, timeout=DRIVER_TIMEOUT_S):
    """Wait for a driver; returns (exit code, its JSON lines, the end of its stderr)."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += b"\n(killed: did not end in time)"
    lines = []
    for line in out.decode(errors="replace").splitlines():
        if line.startswith("{"):
            lines.append(json.loads(line))
    return process.returncode, lines, err.decode(errors="replace")[-3000:]


def checks(process):
    """The named checks of a torch_client driver, which must have come to its end."""
    return named(*finish(process))


def named(code, lines, err):
    """The named checks of a finished driver."""
    if code != 0 or not lines or not lines[-1].get("end"):
        last = lines[-1]["name"] if lines else "the start"
        raise AssertionError(f"the driver ended with {code} after {last}:\n{err}")
    return {line["name"]: line for line in lines[:-1]}


class TorchStore:
    """A store of real torch in a process of its own: TorchStore("old", "legacy"), "libuv", or
    "file" with a path."""

    def __init__(self, which, *args):
        self.process = start(which, "torch_store.py", *args, stdin=subprocess.PIPE)
        line = self.process.stdout.readline()
        if not line.strip().isdigit():
            self.process.kill()
            _, err = self.process.communicate()
            raise AssertionError(f"torch's store did not start: {err.decode()[-2000:]}")
        self.port = int(line)

    def url(self, rest=""):
        return f"tcp://127.0.0.1:{self.port}{rest}"

    def send(self, *call):
        """Begin a call; its answer is read with answer()."""
        self.process.stdin.write(json.dumps(call).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("torch's process has gone")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{answer['error']}: {answer['text']}")
        return answer["value"]

    def call(self, *call):
        self.send(*call)
        return self.answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("torch's process did not end by itself") from None
        finally:
            self.process.stdout.close()
            self.process.stderr.close()


class Cli:
    """`muster store` on one URL."""

    def __init__(self, case, url):
        self.case, self.url = case, url

    def run(self, verb, *words, options=(), input=None):
        return harness.run("store", verb, *options, self.url, *words, input=input, timeout=60)

    def expect(self, code, out, verb, *words, options=(), input=None):
        """The verb ends with this exit code and prints exactly this; None = anything."""
        result = self.run(verb, *words, options=options, input=input)
        what = f"{verb} {words}: {result.stderr.decode(errors='replace')}"
        self.case.assertEqual(result.returncode, code, what)
        if out is not None:
            wanted = out if isinstance(out, bytes) else out.encode()
            self.case.assertEqual(result.stdout, wanted, what)
        # "Absent" of check, del and cas is an answer, not an error.
        if code not in (0, 3, 6):
            self.case.assertNotEqual(result.stderr, b"", what)
        harness.check_report(result.stderr.decode(errors="replace"), verb)
        return result


OK, FAILED, USAGE, ABSENT, TIMEOUT, CONNECT, DIFFERS, UNKNOWN = range(8)
