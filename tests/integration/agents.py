"""`muster run` as child processes, with the lines of their workers as they come."""

import json
import os
import queue
import subprocess
import tempfile
import threading
import time

import harness

# A node is lost after a second of silence, or more in slow builds; the last call is short.
QUICK = f"keep_alive_interval={300 * harness.SLOWNESS:.0f}ms,keep_alive_max_attempt=3," \
        "last_call_timeout=100ms,join_timeout=30"


class Child:
    """A command. self.lines has the lines of its standard output."""

    def __init__(self, *command, env=None, cwd=None, stdin=subprocess.DEVNULL):
        self.lines = []
        self.queue = queue.Queue()
        self.stderr_file = tempfile.TemporaryFile()
        self.start = time.monotonic()
        self.process = subprocess.Popen(
            [*map(str, command)],
            stdin=stdin, stdout=subprocess.PIPE, stderr=self.stderr_file,
            env={**os.environ, **(env or {})}, cwd=cwd)
        self.pid = self.process.pid
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            text = line.decode(errors="replace").rstrip("\n")
            self.lines.append(text)
            self.queue.put((time.monotonic(), text))
        self.queue.put((time.monotonic(), None))

    def stderr(self):
        self.stderr_file.seek(0)
        return self.stderr_file.read().decode(errors="replace")

    def next(self, timeout=None):
        """The next line; self.at is the time of its arrival."""
        try:
            self.at, text = self.queue.get(
                timeout=harness.DEADLINE_S if timeout is None else timeout)
        except queue.Empty:
            raise AssertionError(f"no further line after {self.lines}: {self.stderr()}") from None
        if text is None:
            raise AssertionError(f"ended after {self.lines}: {self.stderr()}")
        return text

    def until(self, *needles, count=1):
        """The next `count` lines with all of the needles. Skips other lines."""
        found = []
        while len(found) < count:
            line = self.next()
            if all(needle in line for needle in needles):
                found.append(line)
        return found

    def signal(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self, timeout=None):
        """Wait for the end of the command; returns its exit code."""
        try:
            code = self.process.wait(harness.DEADLINE_S if timeout is None else timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end after {self.lines}: {self.stderr()}") from None
        self.end = time.monotonic()
        self.thread.join(harness.DEADLINE_S)
        harness.check_report(self.stderr(), "the child")
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.thread.join(harness.DEADLINE_S)
        self.process.stdout.close()
        self.stderr_file.close()


class Agent(Child):
    """One launcher. self.lines has the lines of its workers."""

    def __init__(self, *args, wrapper=(), **keywords):
        self.events_file = tempfile.NamedTemporaryFile()
        super().__init__(*wrapper, harness.MUSTER, "run", "--events", self.events_file.name, *args,
                         **keywords)

    def story(self):
        """The agent's own lines on stderr, without those about a wait."""
        return "".join(line for line in self.stderr().splitlines(keepends=True)
                       if line.startswith("muster: ") and " waiting " not in line)

    def events(self, *names):
        with open(self.events_file.name, encoding="utf-8") as file:
            whole = file.read().split("\n")[:-1] # the rest of a line may come while this reads
        events = [json.loads(line) for line in whole]
        return [event for event in events if not names or event["event"] in names]

    def close(self):
        super().close()
        self.events_file.close()


def is_alive(pid):
    """Whether the process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # gone before the open, or before the read
        return False
