#!/usr/bin/env python3
"""Many real nodes, at random killed, stopped and started again, and with them what decides.

Usage: chaos.py [--backend muster|etcd-v3] [--nodes N] [--spares N] [--seconds S] [--seed N]
                [--json FILE]

With `muster`, one `muster serve` is killed, stopped and started again on the same port; with
`etcd-v3`, the members of an etcd of three are, one at a time. The seed says what is done to whom
and when; when processes get the processor no seed can say, so that a seed repeats the faults and
not every step of what comes of them.

What all nodes have printed is checked in the end, and all nodes have to meet once the faults stop.
The binary is $MUSTER. The last lines name each property and say `N passed, N failed, N skipped`."""

import argparse
import collections
import json
import os
import random
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "integration"))
import etcd_cluster  # noqa: E402
import harness  # noqa: E402

INTERVAL_S, ATTEMPTS, LAST_CALL_S = 1, 3, 0.3
EXPIRY_S = INTERVAL_S * ATTEMPTS
GRACE_S, RECLAIM_S = 0.3, 2  # of the server
# Extra time for processes on a busy machine, beyond the times of the protocol.
SLACK_S = 2 * harness.DEADLINE_S
MEET_S = LAST_CALL_S + EXPIRY_S + RECLAIM_S + SLACK_S

# Events after which a node is no longer in the last reported round.
UNSETTLING = ("lost", "reopened", "waiting", "expelled", "queued", "spare")


def duration(seconds):
    """As options take it."""
    return f"{round(1000 * seconds)}ms"


class Process:
    """One life of a node."""

    def __init__(self, slot, command, log_path):
        self.slot = slot
        self.log_path = log_path
        self.events = []
        self.rest = b""
        self.is_stopped = False
        self.is_killed = False
        self.code = None
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=log)
        os.set_blocking(self.process.stdout.fileno(), False)

    def __str__(self):
        return f"node {self.slot} (process {self.process.pid})"

    def read(self):
        """Whatever it has printed; False at the end."""
        try:
            data = os.read(self.process.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        if not data:
            return False
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.events.append({"at": time.monotonic(), **json.loads(line)})
        return True

    def of(self, kind):
        return [event for event in self.events if event["event"] == kind]

    def signal(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def story(self, count=12):
        return "\n".join(f"    {event}" for event in self.events[-count:]) + self.log()[-600:]


# --- who decides -----------------------------------------------------------------------------


class Serve:
    """A `muster serve` that is killed and started again."""

    backend = "muster"

    def __init__(self, directory):
        self.directory = directory
        self.lives = 0
        self.held = etcd_cluster.hold_port()
        self.endpoint = "127.0.0.1:{}".format(self.held.getsockname()[1])
        self.process = None
        self.is_stopped = False
        self.crashes = []
        self.start()

    def start(self):
        port_file = os.path.join(self.directory, f"port-{self.lives}")
        with open(os.path.join(self.directory, f"serve-{self.lives}.log"), "wb") as log:
            self.process = subprocess.Popen(
                [harness.MUSTER, "serve", "--host", "127.0.0.1", "--port",
                 self.endpoint.split(":")[1], "--port-file", port_file, "--job-grace",
                 duration(GRACE_S), "--job-reclaim", duration(RECLAIM_S)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
        self.lives += 1

    def faults(self, chaos):
        """One fault; when it is over, and what ends it."""
        if self.process is None or self.is_stopped:
            return None
        if chaos.random.random() < 0.7:
            self.end(signal.SIGKILL)
            return "server killed", chaos.random.choice((0, 0.2, 1, 4)), self.start
        self.process.send_signal(signal.SIGSTOP)
        self.is_stopped = True
        return "server stopped", chaos.random.uniform(0.2, 2 * EXPIRY_S), self.resume

    def resume(self):
        self.process.send_signal(signal.SIGCONT)
        self.is_stopped = False

    def end(self, number):
        if self.process.poll() is not None:
            self.crashes.append(f"the server ended with {self.process.returncode}")
        self.process.send_signal(number)
        self.process.wait(harness.DEADLINE_S)
        self.process = None

    def check(self):
        """It runs, and none of them has reported anything."""
        if self.process.poll() is not None:
            self.crashes.append(f"the server ended with {self.process.returncode}")
        if self.crashes:
            raise AssertionError("; ".join(self.crashes))
        for life in range(self.lives):
            with open(os.path.join(self.directory, f"serve-{life}.log"), encoding="utf-8",
                      errors="replace") as file:
                harness.check_report(file.read(), f"server {life}")

    def close(self):
        if self.process is not None:
            self.end(signal.SIGKILL)
        self.held.close()


class Members:
    """An etcd of three of which one at a time is killed or stopped."""

    backend = "etcd-v3"

    def __init__(self, directory):
        del directory  # it has one of its own
        self.cluster = etcd_cluster.Cluster(3)
        self.endpoint = self.cluster.endpoint
        self.victim = None

    def faults(self, chaos):
        if self.victim is not None:
            return None
        self.victim = chaos.random.choice(self.cluster.members)
        if chaos.random.random() < 0.6:
            self.victim.kill()
            return f"{self.victim.name} killed", chaos.random.uniform(0.2, 5), self.start
        self.victim.pause()
        return (f"{self.victim.name} stopped", chaos.random.uniform(0.2, 2 * EXPIRY_S),
                self.resume)

    def start(self):
        self.victim.start()
        self.wait_back()

    def resume(self):
        self.victim.resume()
        self.wait_back()

    def wait_back(self):
        # Before the next one goes this one has to be back, or there is no majority.
        self.cluster.wait_healthy(self.victim)
        self.victim = None

    def check(self):
        self.cluster.wait_healthy()

    def close(self):
        self.cluster.stop()


# --- the run ---------------------------------------------------------------------------------


class Chaos:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.min = max(1, options.nodes // 2)
        self.max = options.nodes - options.spares
        self.directory = tempfile.mkdtemp(prefix="muster-chaos-")
        self.selector = selectors.DefaultSelector()
        self.processes = []  # all that ever were
        self.slots = {}  # the one that lives, by slot
        self.due = []  # (when, what) that ends a fault
        self.counts = collections.Counter()
        self.decider = None
        self.has_ended = False  # a node by itself, which is one of the things to be found

    def start_node(self, slot):
        conf = (f"keep_alive_interval={INTERVAL_S},keep_alive_max_attempt={ATTEMPTS},"
                f"last_call_timeout={duration(LAST_CALL_S)},join_timeout=600,read_timeout=120")
        if slot % 2 == 0:
            conf += f",node_name=node{slot}"  # one that comes back; the others are new every time
        if self.decider.backend == "muster":
            conf += ",is_host=false"
        command = [harness.MUSTER, "join", "--rdzv-backend", self.decider.backend,
                   "--rdzv-endpoint", self.decider.endpoint, "--rdzv-id", "chaos",
                   "--nnodes", f"{self.min}:{self.max}", "--rdzv-conf", conf, "--hold", "0",
                   "--rejoin", "--local-addr", "127.0.0.1"]
        process = Process(slot, command,
                          os.path.join(self.directory, f"node-{len(self.processes)}.log"))
        self.processes.append(process)
        self.slots[slot] = process
        self.selector.register(process.process.stdout, selectors.EVENT_READ, process)

    def turn(self, until):
        """Read events until then, and end the faults that are due."""
        while True:
            now = time.monotonic()
            for item in [item for item in self.due if item[0] <= now]:
                self.due.remove(item)
                item[1]()
            left = min([until, *(item[0] for item in self.due)]) - time.monotonic()
            for key, _ in self.selector.select(max(0, left)):
                self.read(key.data)
            if time.monotonic() >= until:
                return

    def read(self, process):
        if process.read():
            return
        self.selector.unregister(process.process.stdout)
        process.process.stdout.close()
        process.code = process.process.wait(harness.DEADLINE_S)
        self.has_ended = self.has_ended or not process.is_killed

    # --- faults ---

    def later(self, seconds, what):
        self.due.append((time.monotonic() + seconds, what))

    def kill_node(self, slot):
        process = self.slots.pop(slot, None)
        if process is None:
            return
        self.counts["nodes killed"] += 1
        process.is_killed = True
        process.signal(signal.SIGKILL)
        self.later(self.random.choice((0, 0.1, 1, 3, 6)), lambda: self.start_node(slot))

    def stop_node(self, slot):
        process = self.slots.get(slot)
        if process is None or process.is_stopped:
            return
        self.counts["nodes stopped"] += 1
        process.is_stopped = True
        process.signal(signal.SIGSTOP)
        self.later(self.random.uniform(0.1, 3 * EXPIRY_S), lambda: self.resume_node(process))

    @staticmethod
    def resume_node(process):
        process.is_stopped = False
        process.signal(signal.SIGCONT)

    def hurt_decider(self):
        fault = self.decider.faults(self)
        if fault is not None:
            what, seconds, end = fault
            self.counts[re.sub(r"^\S+", "decider", what)] += 1
            self.later(seconds, end)

    def hurt(self):
        slots = range(self.options.nodes)
        choice = self.random.random()
        if choice < 0.5:
            self.kill_node(self.random.choice(slots))
        elif choice < 0.75:
            self.stop_node(self.random.choice(slots))
        elif choice < 0.85:  # a rack
            first = self.random.choice(slots)
            for slot in slots[first : first + max(2, len(slots) // 20)]:
                self.kill_node(slot)
        else:
            self.hurt_decider()

    # --- the end ---

    def members(self):
        """The processes whose last event is the newest round, with that event."""
        last = {}
        for process in self.slots.values():
            told = [event for event in process.events
                    if event["event"] == "joined" or event["event"] in UNSETTLING]
            if told and told[-1]["event"] == "joined":
                last[process] = told[-1]
        return last

    def meet(self):
        """No more faults: all meet in one round, or stand by."""
        while self.due:
            self.turn(min(item[0] for item in self.due))
        began = time.monotonic()
        wanted = min(self.options.nodes, self.max)
        while True:
            last = self.members()
            rounds = {(event["epoch"], event["round"]) for event in last.values()}
            worlds = {event["world_size"] for event in last.values()}
            if len(last) == wanted and len(rounds) == 1 and worlds == {wanted}:
                self.counts["ms to meet"] = round(1000 * (time.monotonic() - began))
                return
            if self.has_ended or time.monotonic() - began > MEET_S:
                others = [process for process in self.slots.values() if process not in last]
                stories = "\n".join(f"  {process}:\n{process.story()}" for process in others[:5])
                raise AssertionError(
                    f"{len(last)} of {wanted} nodes are in rounds {sorted(rounds)} of {worlds}; "
                    f"some of the others:\n{stories}\n{self.status()}")
            self.turn(time.monotonic() + 0.05)

    def status(self):
        done = harness.run("status", "--rdzv-backend", self.decider.backend, "--rdzv-endpoint",
                           self.decider.endpoint, "--rdzv-id", "chaos", "--json")
        try:
            return json.loads(done.stdout).get("summary")
        except ValueError:
            return done.stderr.decode(errors="replace")

    def stay(self):
        """No more faults, for longer than the expiry."""
        before = {process: len(process.events) for process in self.members()}
        self.turn(time.monotonic() + 1.5 * EXPIRY_S)
        for process, count in before.items():
            if len(process.events) != count:
                raise AssertionError(f"{process} was disturbed:\n{process.story()}")

    def run(self):
        """All faults; whether the nodes meet in the end is among the checks."""
        decider = Serve if self.options.backend == "muster" else Members
        self.decider = decider(self.directory)
        for slot in range(self.options.nodes):
            self.start_node(slot)
        end = time.monotonic() + self.options.seconds
        while time.monotonic() < end and not self.has_ended:
            self.hurt()
            # Bursts, and times that suffice for a round.
            pause = self.random.choice((0, 0.05, 0.3, 1, 2.5))
            self.turn(min(end, time.monotonic() + pause))

    def close(self, keep):
        for process in self.slots.values():
            process.signal(signal.SIGCONT)
            process.signal(signal.SIGKILL)
            process.process.wait(harness.DEADLINE_S)
        for key in list(self.selector.get_map().values()):
            key.data.process.stdout.close()
        self.selector.close()
        if self.decider is not None:
            self.decider.close()
        if keep:
            print(f"what the processes have logged is in {self.directory}")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    # --- what must hold ---

    def rounds(self):
        """All that was told about each round: (epoch, round) to [(process, event)]."""
        found = collections.defaultdict(list)
        for process in self.processes:
            for event in process.of("joined"):
                found[event["epoch"], event["round"]].append((process, event))
        return found

    def check_rounds_were_sealed(self):
        """Whatever else is checked was checked on something."""
        rounds = self.rounds()
        self.counts["rounds"] = len(rounds)
        least = 3 if self.options.seconds >= 10 else 1
        if len(rounds) < least:
            raise AssertionError(f"{len(rounds)} rounds were sealed, not {least}")

    def check_one_world(self):
        for number, told in self.rounds().items():
            for key in ("world_size", "master_addr", "master_port"):
                values = {event[key] for _, event in told}
                if len(values) != 1:
                    raise AssertionError(f"round {number}: {key} is {sorted(values)}")

    def check_ranks(self):
        """At most one node has a rank, and no rank is beyond the world."""
        for number, told in self.rounds().items():
            holders = collections.defaultdict(list)
            for process, event in told:
                holders[event["rank"]].append(str(process))
                if not 0 <= event["rank"] < event["world_size"]:
                    raise AssertionError(f"round {number}, {process}: {event}")
            for rank, names in holders.items():
                if len(names) > 1:
                    raise AssertionError(f"round {number}: rank {rank} is that of {names}")

    def check_limits(self):
        for number, told in self.rounds().items():
            for process, event in told:
                if not self.min <= event["world_size"] <= self.max:
                    raise AssertionError(f"round {number}, {process}: {event}; "
                                         f"{self.min} to {self.max} were wanted")

    def check_rounds_grow(self):
        """A process hears of ever higher rounds, and never of an older epoch."""
        for process in self.processes:
            last = None
            for event in process.of("joined"):
                now = (event["round"], event["epoch"])
                if last is not None and (now[0] <= last[0] or now[1] < last[1]):
                    raise AssertionError(f"{process}: round and epoch {now} after {last}")
                last = now

    def check_one_round_per_number(self):
        """Who has lived through two epochs has not seen one number used twice, nor has a node under
        its name: with what went before, a later life is never told an older round."""
        lives = collections.defaultdict(list)
        for process in self.processes:
            lives[process.slot] += process.of("joined")
        for slot, events in lives.items():
            seen = [(event["epoch"], event["round"]) for event in events]
            if seen != sorted(set(seen)):
                raise AssertionError(f"node {slot} was told of epoch and round {seen}")

    def check_lost_is_of_the_round(self):
        """A change that a node hears of is in its own round."""
        for process in self.processes:
            current = None
            for event in process.events:
                if event["event"] == "joined":
                    current = event["round"]
                elif event["event"] in ("lost", "waiting", "reopened"):
                    if event["round"] != current:
                        raise AssertionError(f"{process}: {event} in round {current}")

    def check_nobody_gave_up(self):
        """A node that is not killed stays, with any faults around it."""
        for process in self.processes:
            harness.check_report(process.log(), str(process))
            if process.code is not None and not process.is_killed:
                raise AssertionError(f"{process} ended with {process.code}:\n{process.story()}")

    def check_decider(self):
        self.decider.check()

    def check_all_meet(self):
        self.meet()

    def check_nobody_is_disturbed(self):
        self.stay()

    # In this order: what is told while they meet is checked as well.
    CHECKS = (
        check_all_meet, check_nobody_is_disturbed, check_rounds_were_sealed, check_one_world,
        check_ranks, check_limits, check_rounds_grow, check_one_round_per_number,
        check_lost_is_of_the_round, check_nobody_gave_up, check_decider,
    )


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--backend", choices=("muster", "etcd-v3"), default="muster")
    parser.add_argument("--nodes", type=int, help="default: 200 with muster, 50 with etcd-v3")
    parser.add_argument("--spares", type=int, default=0,
                        help="how many more nodes there are than a round takes; default 0")
    parser.add_argument("--seconds", type=float, default=90, help="of faults; default 90")
    parser.add_argument("--seed", type=int, help="default: a new one")
    parser.add_argument("--json", help="append the counts, as one line of JSON, to this file")
    options = parser.parse_args()
    if options.nodes is None:
        options.nodes = 200 if options.backend == "muster" else 50
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 32)
    if not 0 <= options.spares < options.nodes:
        parser.error(f"--spares {options.spares}: less than the {options.nodes} nodes, at least 0")
    return options


def main():
    options = parse_options()
    if not os.access(harness.MUSTER, os.X_OK):
        sys.exit(f"no binary at {harness.MUSTER}: build it, or set MUSTER")
    if options.backend == "etcd-v3":
        try:
            etcd_cluster.find_etcd()
        except unittest.SkipTest as skip:
            print(f"SKIP chaos: {skip}\n0 passed, 0 failed, 1 skipped")
            sys.exit(77)
    print(f"chaos: backend {options.backend}, {options.nodes} nodes, {options.spares} spares, "
          f"{options.seconds:g} s, seed {options.seed}", flush=True)
    chaos = Chaos(options)
    passed = failed = 0
    is_done = False
    try:
        chaos.run()
        for check in Chaos.CHECKS:
            name = check.__name__.removeprefix("check_")
            try:
                check(chaos)
            except AssertionError as error:
                failed += 1
                print(f"FAIL {name} (seed {options.seed}): {error}")
            else:
                passed += 1
                print(f"ok {name}")
        is_done = True
    finally:
        chaos.close(keep=failed > 0 or not is_done)
    print(", ".join(f"{count} {what}" for what, count in sorted(chaos.counts.items())))
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.write(json.dumps({**vars(options), **chaos.counts, "failed": failed}) + "\n")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
