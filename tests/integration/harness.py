"""The common part of the integration tests: a server, raw sockets with deadlines, real peers.

Standard library only. The binary under test is $MUSTER, or build/muster of this project. A test
file ends with `harness.main()`, which prints one line for each skipped test and then
`N passed, N failed, N skipped`; every subTest counts as a test of its own.
"""

import contextlib
import os
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MUSTER = os.path.abspath(os.environ.get("MUSTER", os.path.join(ROOT, "build", "muster")))
# The load generator of the same build.
BENCH = os.path.join(os.path.dirname(MUSTER), "bench", "muster-bench")

# Limit of any wait for something that should come soon. It is long, because sanitizers and valgrind
# are slow; only a failed test waits so long.
DEADLINE_S = float(os.environ.get("MUSTER_TEST_DEADLINE", "20"))
# How much slower than a usual build this one may be.
SLOWNESS = DEADLINE_S / 20

# A shell makes background commands ignore SIGINT. The children of this process must not ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

_REPORT = re.compile(
    r"AddressSanitizer|LeakSanitizer|ThreadSanitizer|MemorySanitizer|runtime error:"
    r"|assertion|Assertion|==\d+== (?:Invalid|Conditional|Use of uninit)"
)


def wait_until(condition, what, timeout=None):
    """Poll until condition() is true and return its value; fail with `what` at the deadline."""
    end = time.monotonic() + (DEADLINE_S if timeout is None else timeout)
    pause = 0.001
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


# --- processes -------------------------------------------------------------------------------


def free_port():
    """A free port. It is below the ports that the kernel assigns, so that no connection of another
    test takes it meanwhile."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(20000, 32768)))
            return probe.getsockname()[1]


def run(*args, program=MUSTER, input=None, timeout=None, env=None, cwd=None):
    """Run the binary with args to its end; returns a CompletedProcess with bytes output."""
    return subprocess.run(
        [program, *map(str, args)],
        input=input,
        stdin=None if input is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=DEADLINE_S if timeout is None else timeout,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )


def pause(pid):
    """Stop a process until SIGCONT. Returns when all of its threads have stopped: the signal stops
    them one after the other, and they may still answer meanwhile."""

    def is_still():
        states = set()
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8") as file:
                states.add(file.read().rsplit(")", 1)[1].split()[0])
        return states == {"T"}

    os.kill(pid, signal.SIGSTOP)
    wait_until(is_still, f"process {pid} to stand still")


def rss_bound_kib(kib):
    """A bound for resident memory. It is larger with sanitizers, which keep freed memory and have
    shadow memory."""
    with open(MUSTER, "rb") as file:
        image = file.read()
    sanitized = b"__asan_init" in image or b"__tsan_init" in image
    return kib + 600 * 1024 if sanitized else kib


def check_report(text, whose):
    """Fail if text holds a report of a sanitizer, of valgrind or of an assertion."""
    for line in text.splitlines():
        if _REPORT.search(line):
            raise AssertionError(f"{whose} reported: {line}\n{text[-4000:]}")


class Server:
    """A `muster serve` child process.

    with Server("--max-key", "64") as server:
        wire = server.connect()

    hosts: the values of --host, () for none. Without --port, the server takes a free port. Leaving
    the block stops the server, and fails the test if the server had died, ended with an error, or
    logged a sanitizer's report.
    """

    def __init__(self, *args, hosts=("127.0.0.1",), env=None, wrapper=(), preexec_fn=None,
                 pass_fds=(), wait=True):
        self.directory = tempfile.mkdtemp(prefix="muster-test-")
        self.port_file = os.path.join(self.directory, "port")
        self.log_path = os.path.join(self.directory, "stderr")
        self.out_path = os.path.join(self.directory, "stdout")
        self.port = None
        self.stopped = False
        command = [*wrapper, MUSTER, "serve", "--port-file", self.port_file]
        for host in hosts:
            command += ["--host", host]
        if "--port" not in args:
            command += ["--port", "0"]
        command += [str(arg) for arg in args]
        self.command = command
        with open(self.log_path, "wb") as log, open(self.out_path, "wb") as out:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env={**os.environ, **(env or {})},
                preexec_fn=preexec_fn,
                pass_fds=pass_fds,
            )
        if wait:
            try:
                self.wait_port()
            except BaseException:
                self.process.kill()
                self.process.wait()
                raise

    def wait_port(self):
        """Wait for the port file; returns the port, 0 if the server has no TCP socket."""

        def read_port():
            if self.process.poll() is not None:
                raise AssertionError(
                    f"server ended with {self.process.returncode} at start: {self.log()}"
                )
            try:
                with open(self.port_file, encoding="ascii") as file:
                    text = file.read()
            except FileNotFoundError:
                return None
            return text if text.endswith("\n") else None

        self.port = int(wait_until(read_port, "the port file"))
        return self.port

    @property
    def pid(self):
        return self.process.pid

    @property
    def address(self):
        return ("127.0.0.1", self.port)

    def url(self, prefix=""):
        return f"tcp://127.0.0.1:{self.port}{prefix}"

    def connect(self, dialect=None, address=None, receive_buffer=None):
        return Wire(address or self.address, dialect=dialect, receive_buffer=receive_buffer)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def log_lines(self, *needles):
        """Log lines that contain all of the needles."""
        return [line for line in self.log().splitlines() if all(n in line for n in needles)]

    def wait_log(self, *needles, count=1, timeout=None):
        """Wait for `count` log lines with all of the needles; returns them."""

        def look():
            lines = self.log_lines(*needles)
            return lines if len(lines) >= count else None

        try:
            return wait_until(look, "log", timeout)
        except AssertionError:
            raise AssertionError(
                f"no {count} log lines with {needles}; the log is:\n{self.log()}"
            ) from None

    def stdout(self):
        with open(self.out_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def rss_kib(self):
        """Resident memory now."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1])
        raise AssertionError("no VmRSS")

    def cpu_s(self):
        """CPU seconds used so far."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def signal(self, number):
        if number == signal.SIGSTOP:
            pause(self.pid)
        else:
            self.process.send_signal(number)

    def wait(self, timeout=None):
        """Wait for the process to end by itself; returns its exit code."""
        try:
            return self.process.wait(DEADLINE_S if timeout is None else timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"server did not end; log:\n{self.log()}") from None

    def terminate(self):
        """Send SIGTERM, wait, and check exit code and log."""
        if self.stopped:
            return
        self.stopped = True
        died = self.process.poll()
        if died is None:
            self.process.terminate()
            try:
                code = self.wait()
            except AssertionError:
                self.process.kill()
                self.process.wait()
                raise
        log = self.log()
        check_report(log, "the server")
        if died is not None:
            raise AssertionError(f"the server had died with {died}; log:\n{log}")
        if code != 0:
            raise AssertionError(f"the server ended with {code}; log:\n{log}")

    def kill(self):
        """Send SIGKILL, wait, and check the log."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if not self.stopped:
            self.stopped = True
            check_report(self.log(), "the server")

    def ended(self):
        """Check the log of a server that the test has seen end by itself."""
        self.stopped = True
        check_report(self.log(), "the server")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                self.terminate()
            else:
                if self.process.poll() is None:
                    self.process.kill()
                    self.process.wait()
                sys.stderr.write(f"--- server log ---\n{self.log()[-4000:]}\n")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


# --- raw sockets -----------------------------------------------------------------------------

OPCODES = {
    "A": {"set": 0, "compare_set": 1, "get": 2, "add": 3, "check": 4, "wait": 5, "num_keys": 6,
          "watch": 7, "delete": 8},
    "B": {"set": 0, "compare_set": 1, "get": 2, "add": 3, "check": 4, "wait": 5, "num_keys": 6,
          "delete": 7, "append": 8, "multi_get": 9, "multi_set": 10, "cancel_wait": 11},
    "C": {"set": 1, "compare_set": 2, "get": 3, "add": 4, "check": 5, "wait": 6, "num_keys": 7,
          "delete": 8, "append": 9, "multi_get": 10, "multi_set": 11, "cancel_wait": 12,
          "ping": 13, "queue_push": 14, "queue_pop": 15, "queue_len": 16, "list": 17,
          "barrier": 18, "wait_change": 0x41},
}
VALIDATE = bytes.fromhex("00cef7853c")


def u64(number):
    return struct.pack("<Q", number)


def i64(number):
    return struct.pack("<q", number)


def field(data):
    """A key or a value on the wire."""
    if isinstance(data, str):
        data = data.encode()
    return u64(len(data)) + data


def request(dialect, operation, *parts):
    """A request: str and bytes become fields, int an i64, a list its count and its items."""
    out = bytes([OPCODES[dialect][operation]])
    for part in parts:
        if isinstance(part, int):
            out += i64(part)
        elif isinstance(part, (list, tuple)):
            out += u64(len(part)) + b"".join(
                field(item) if isinstance(item, (str, bytes)) else b"".join(map(field, item))
                for item in part
            )
        else:
            out += field(part)
    return out


class Wire:
    """One raw connection. address: (host, port) or a unix path. Requests need a dialect; with "C",
    the handshake is sent at once."""

    def __init__(self, address, dialect=None, timeout=None, receive_buffer=None):
        self.timeout = DEADLINE_S if timeout is None else timeout
        self.dialect = dialect
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.settimeout(self.timeout)
            self.socket.connect(address)
        else:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            self.socket = socket.socket(family, socket.SOCK_STREAM)
            self.socket.settimeout(self.timeout)
            if receive_buffer is not None:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            self.socket.connect(address)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.name = self.socket.getsockname()
        if dialect == "C":
            self.send(VALIDATE)

    def peer_text(self):
        """The name of this client in the server's log: 127.0.0.1:40312 or [::1]:40312."""
        host, port = self.name[0], self.name[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def send(self, data):
        """Send bytes, or hex digits with spaces."""
        self.socket.sendall(bytes.fromhex(data) if isinstance(data, str) else data)

    def receive(self, size):
        """Receive exactly `size` bytes before the deadline."""
        end = time.monotonic() + self.timeout
        data = bytearray()
        while len(data) < size:
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError(f"got {len(data)} of {size} bytes in time: {data[:64].hex()}")
            self.socket.settimeout(left)
            try:
                part = self.socket.recv(min(size - len(data), 1 << 20))
            except socket.timeout:
                continue
            if not part:
                raise AssertionError(
                    f"closed after {len(data)} of {size} bytes: {data[:64].hex()}"
                )
            data += part
        return bytes(data)

    def expect(self, data):
        """Check that these bytes (or hex digits) come next."""
        wanted = bytes.fromhex(data) if isinstance(data, str) else data
        got = self.receive(len(wanted))
        if got != wanted:
            raise AssertionError(f"expected {wanted[:64].hex()}, got {got[:64].hex()}")

    def receive_field(self):
        (size,) = struct.unpack("<Q", self.receive(8))
        return self.receive(size)

    def receive_i64(self):
        return struct.unpack("<q", self.receive(8))[0]

    def is_silent(self):
        """Whether nothing has arrived and the connection is open."""
        return not select.select([self.socket], [], [], 0)[0]

    def expect_close(self, timeout=None):
        """Check that the server ends the connection, by FIN or RST, without another byte."""
        self.socket.settimeout(self.timeout if timeout is None else timeout)
        try:
            data = self.socket.recv(64)
        except ConnectionResetError:
            return
        except socket.timeout:
            raise AssertionError("the connection is still open") from None
        if data:
            raise AssertionError(f"expected a close, got {data.hex()}")

    def drain_until_close(self, timeout=None):
        """Read until the server closes the connection; returns the byte count."""
        end = time.monotonic() + (self.timeout if timeout is None else timeout)
        count = 0
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError("the connection is still open")
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return count
            except socket.timeout:
                continue
            if not data:
                return count
            count += len(data)

    def request(self, operation, *parts):
        self.send(request(self.dialect, operation, *parts))

    # The calls of a synchronous client, in the dialect of this connection.

    def set(self, key, value):
        self.request("set", key, value)

    def get(self, key):
        self.request("get", key)
        return self.receive_field()

    def add(self, key, delta):
        self.request("add", key, delta)
        return self.receive_i64()

    def check(self, *keys):
        self.request("check", list(keys))
        return self.receive(1) == b"\x00"

    def compare_set(self, key, expected, desired):
        self.request("compare_set", key, expected, desired)
        return self.receive_field()

    def delete(self, key):
        self.request("delete", key)
        return self.receive_i64()

    def num_keys(self):
        self.request("num_keys")
        return self.receive_i64()

    def sync(self):
        """Wait until the server has processed all earlier requests."""
        return self.num_keys()

    def reset(self):
        """Close with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# --- real peers ------------------------------------------------------------------------------


def torch_python(which):
    """The interpreter with torch: "old" (1.13, dialect A) or "new" (2.x, dialect C). Skips the test
    if there is none."""
    variable = {"old": "MUSTER_TORCH_OLD", "new": "MUSTER_TORCH_NEW"}[which]
    default = {"old": "/usr/bin/python3", "new": os.path.join(ROOT, ".venv-torch/bin/python")}
    path = os.environ.get(variable) or default[which]
    if path not in _torch_versions:
        version = None
        if os.path.exists(path):
            probe = subprocess.run(
                [path, "-c", "import importlib.metadata as m; print(m.version('torch'))"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
            )
            if probe.returncode == 0:
                version = probe.stdout.decode().strip()
        _torch_versions[path] = version
    version = _torch_versions[path]
    if version is None:
        raise unittest.SkipTest(f"no torch in {path} (set {variable})")
    is_old = version.startswith(("1.", "2.0."))
    if is_old != (which == "old"):
        raise unittest.SkipTest(f"{path} has torch {version}, not {which} (set {variable})")
    return path


_torch_versions = {}


# --- running ---------------------------------------------------------------------------------


class _Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.passed = 0
        self.failed = 0
        self.skipped_count = 0
        self.with_subtests = set()

    def startTest(self, test):
        super().startTest(test)
        self.started_s = time.monotonic()

    def _say(self, text):
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def _failed(self, test, err):
        self.failed += 1
        self._say(f"FAIL {test}:\n{self._exc_info_to_string(err, test)}")

    def addSuccess(self, test):
        if test.id() not in self.with_subtests:
            self.passed += 1
        self._say(f"ok {test} {time.monotonic() - self.started_s:.1f} s")

    def addFailure(self, test, err):
        self._failed(test, err)

    def addError(self, test, err):
        self._failed(test, err)

    def addSubTest(self, test, subtest, err):
        self.with_subtests.add(test.id())
        if err is None:
            self.passed += 1
        else:
            self._failed(subtest, err)

    def addSkip(self, test, reason):
        self.skipped_count += 1
        name = test.id() if hasattr(test, "id") else str(test)
        self._say(f"SKIP {name}: {reason}")


def _names(module, loader, by):
    """The names of the module's test classes, or of its tests as Class.test."""
    for name, item in sorted(vars(module).items()):
        if isinstance(item, type) and issubclass(item, unittest.TestCase):
            tests = loader.getTestCaseNames(item)
            if by == "test":
                yield from (f"{name}.{test}" for test in tests)
            elif tests:
                yield name


def main(module="__main__"):
    """Run the tests of the module, or those named on the command line. With --list=class or
    --list=test, only print the names."""
    # A write to a dead peer must fail with EPIPE, not end the test.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    if not os.access(MUSTER, os.X_OK):
        sys.exit(f"no binary at {MUSTER}: build it, or set MUSTER")
    module = sys.modules[module]
    loader = unittest.defaultTestLoader
    for by in ("class", "test"):
        if f"--list={by}" in sys.argv:
            print(*_names(module, loader, by), sep="\n")
            sys.exit()
    names = [arg for arg in sys.argv[1:] if not arg.startswith("-")]
    suite = loader.loadTestsFromModule(module)
    if names:
        suite = loader.loadTestsFromNames(names, module)
    result = _Result()
    suite.run(result)
    result._say(f"{result.passed} passed, {result.failed} failed, {result.skipped_count} skipped")
    if result.failed:
        sys.exit(1)
    # Meson's status for "skipped".
    sys.exit(77 if result.skipped_count and not result.passed else 0)
