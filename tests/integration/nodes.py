"""Nodes of a rendezvous as processes. A thread collects their events."""

import collections
import json
import os
import signal
import subprocess
import tempfile
import threading
import time

import harness

# Time for expiry, last call and polling until the next round, on a busy machine.
PATIENCE_S = 60

CLOSED = 8  # exit codes of `muster join`
SPARE = 9


class Node:
    """The common part of all kinds of nodes: a list of events."""

    def __init__(self):
        self.events = []
        self.changed = threading.Condition()
        self.is_gone = False

    def add(self, event):
        with self.changed:
            self.events.append({"at": time.monotonic(), **event})
            self.changed.notify_all()

    def gone(self):
        with self.changed:
            self.is_gone = True
            self.changed.notify_all()

    def of(self, *kinds):
        with self.changed:
            return [event for event in self.events if event["event"] in kinds]

    def last_joined(self):
        joined = self.of("joined")
        return joined[-1] if joined else None

    def wait(self, *kinds, count=1, timeout=PATIENCE_S):
        """Wait for event number `count` of these kinds; returns it."""
        end = time.monotonic() + timeout
        with self.changed:
            while True:
                found = [event for event in self.events if event["event"] in kinds]
                if len(found) >= count:
                    return found[count - 1]
                left = end - time.monotonic()
                if left <= 0 or self.is_gone:
                    raise AssertionError(f"{self}: no event {'/'.join(kinds)}; {self.story()}")
                self.changed.wait(left)

    def story(self):
        return f"its events: {self.events}; {self.stderr()}"


class JoinNode(Node):
    """A `muster join`; join() starts it. `muster close` also gets `options`; `words` are for `join`
    only."""

    kind = "muster"

    def __init__(self, options, words=(), env=None):
        super().__init__()
        self.options = list(options)
        self.command = [harness.MUSTER, "join", "--log-level", "debug", *self.options, *words]
        self.env = {**os.environ, **(env or {})}
        self.log = tempfile.TemporaryFile()
        self.process = None
        self.name = None

    def __str__(self):
        return f"muster node {self.process.pid if self.process else '(not started)'}"

    def join(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.log, env=self.env)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            self.name = event.get("node", self.name)
            self.add(event)
        self.gone()

    def close_rendezvous(self):
        done = subprocess.run([harness.MUSTER, "close", *self.options], timeout=PATIENCE_S,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise AssertionError(f"muster close ended with {done.returncode}: {done.stderr}")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join(PATIENCE_S)
        harness.check_report(self.stderr(), str(self))

    def ended(self):
        """Wait until the process ends by itself; returns its exit code."""
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} does not end; {self.story()}") from None
        self.reader.join(PATIENCE_S)
        return code

    def discard(self):
        """Close the files of an ended process; returns its log."""
        self.process.stdout.close()
        report = self.stderr()
        self.log.close()
        harness.check_report(report, str(self))
        return report

    def stop(self):
        if self.process is None:
            return
        runs = self.process.poll() is None
        if runs:
            self.process.terminate()
        code = self.ended()
        report = self.discard()
        # A stopped node leaves; its exit code shows whether it was a member, or how its command
        # ended. A node that ended by itself may have been a spare of a finished job.
        has_left = self.of("joined") and not (runs and "--" in self.command)
        stopped = 0 if has_left else 128 + signal.SIGTERM
        if code not in (stopped, -signal.SIGKILL, CLOSED, SPARE) and (runs or code != 0):
            raise AssertionError(f"{self} ended with {code}: {report[-2000:]}")

    def stderr(self):
        if self.log.closed:
            return ""
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-6000:]


# --- what must hold --------------------------------------------------------------------------


def settle(nodes, after=-1, timeout=PATIENCE_S):
    """Wait until all nodes, and no others, are in one round later than `after`; returns its
    number."""

    def look():
        joined = [node.last_joined() for node in nodes]
        if any(event is None or event["round"] <= after for event in joined):
            return None
        rounds = {event["round"] for event in joined}
        worlds = {event["world_size"] for event in joined}
        return joined if len(rounds) == 1 and worlds == {len(nodes)} else None

    def stories():
        return "\n".join(f"{node}: {node.story()}" for node in nodes)

    try:
        joined = harness.wait_until(look, "one round of all", timeout)
    except AssertionError:
        raise AssertionError(f"no round of all {len(nodes)} nodes after {after}:\n{stories()}"
                             ) from None
    ranks = [event["rank"] for event in joined]
    assert sorted(ranks) == list(range(len(nodes))), f"ranks {ranks}"
    masters = {(event["master_addr"], event["master_port"]) for event in joined}
    assert len(masters) == 1, f"the workers would meet at {masters}:\n{stories()}"
    return joined[0]["round"]


def check_rounds(nodes):
    """Check that the nodes agree on world size and ranks of every round, also of short ones."""
    rounds = collections.defaultdict(list)
    for node in nodes:
        for event in node.of("joined"):
            rounds[event["round"]].append(event)
    for number, events in rounds.items():
        worlds = {event["world_size"] for event in events}
        ranks = [event["rank"] for event in events]
        assert len(worlds) == 1, f"round {number}: worlds {worlds}"
        assert len(set(ranks)) == len(ranks), f"round {number}: ranks {ranks}"
        assert all(0 <= rank < min(worlds) for rank in ranks), f"round {number}: {events}"
