#!/usr/bin/env python3
"""Launchers under fire: many `muster run` with two workers each, on one server, for some seconds.

Agents and keepers are killed, agents and workers are stopped, workers fail and are killed, and have
children in sessions of their own; newcomers come. Afterwards
everybody is left in peace, and the job has to end well. From the event files and from /proc:

  * no agent has two generations of workers at once, and no worker outlives its agent
  * workers of one round have one world size, different ranks, and one count of restarts
  * restarts do not exceed the budget, and the rounds' count never goes back
  * every agent ends, and says the same of the job
  * no descriptor of the server stays open, and no process of the job is left

Usage: launchers.py [--agents N] [--seconds S] [--seed N]
"""

import argparse
import collections
import os
import random
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "integration"))

import harness  # noqa: E402
from agents import QUICK, Agent, is_alive  # noqa: E402

RESTARTS_MAX = 1000000

# Works until it is told that all is over, or fails now and then.
WORKER = """
trap 'exit 0' TERM
setsid sleep 86400 &
n=0
while [ ! -e "$PLACE/over" ]; do
    n=$((n + 1))
    [ ! -e "$PLACE/fail.$RANK" ] || { rm -f "$PLACE/fail.$RANK"; exit 3; }
    sleep 0.2
done
"""


class Chaos:
    def __init__(self, options):
        self.random = random.Random(options.seed)
        self.options = options
        self.place = tempfile.mkdtemp(prefix="muster-chaos-")
        self.agents = []
        self.stopped = {}
        self.leaving = []
        self.counts = collections.Counter()
        self.faults = []

    def start(self):
        agent = Agent("--nnodes", f"{self.options.agents // 2}:{self.options.agents}",
                      "--nproc-per-node", 2, "--rdzv-endpoint", f"127.0.0.1:{self.server.port}",
                      "--rdzv-id", "chaos", "--rdzv-conf", QUICK, "--max-restarts", RESTARTS_MAX,
                      "--give-up", 0, "--grace", "1s", "--log-dir", "/dev/null", "--", "sh", "-c",
                      WORKER, env={"PLACE": self.place})
        self.agents.append(agent)
        return agent

    def living(self):
        return [agent for agent in self.agents if agent.process.poll() is None]

    def worker_pids(self, agent):
        starts, ends = {}, set()
        for event in agent.events("start", "exit"):
            key = event["generation"], event["local_rank"]
            if event["event"] == "start":
                starts[key] = event["worker_pid"]
            else:
                ends.add(key)
        return [pid for key, pid in starts.items() if key not in ends]

    def processes(self):
        """All that have the job's place in their environment."""
        wanted, found = f"PLACE={self.place}".encode(), []
        for name in os.listdir("/proc"):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if name.isdigit() and wanted in file.read().split(b"\0"):
                        found.append(int(name))
            except OSError:
                pass  # it has ended, or is somebody's
        return found

    # --- faults ---

    def stop(self, pid):
        os.kill(pid, signal.SIGSTOP)
        self.stopped[pid] = time.monotonic() + self.random.uniform(0.2, 2)

    def wake(self, everybody=False):
        for pid, until in list(self.stopped.items()):
            if everybody or time.monotonic() > until:
                try:
                    os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    pass
                del self.stopped[pid]

    @staticmethod
    def kill_keeper(worker_pid):
        """If it is still the parent of that worker."""
        with open(f"/proc/{worker_pid}/stat", encoding="utf-8") as file:
            parent = int(file.read().rpartition(")")[2].split()[1])
        with open(f"/proc/{parent}/comm", encoding="utf-8") as file:
            if file.read() == "worker-keeper\n":
                os.kill(parent, signal.SIGKILL)

    def strike(self):
        living = self.living()
        agent = self.random.choice(living)
        kind = self.random.choice(("kill agent", "stop agent", "leave", "fail", "kill worker",
                                   "stop worker", "kill keeper"))
        try:
            if kind == "kill agent":
                agent.signal(signal.SIGKILL)
            elif kind == "stop agent":
                self.stop(agent.pid)
            elif kind == "leave":
                agent.signal(signal.SIGTERM)
                self.leaving.append(agent)
            elif kind == "fail":
                rank = self.random.randrange(self.options.agents)
                with open(os.path.join(self.place, f"fail.{rank}"), "wb"):
                    pass
            else:
                pids = [pid for pid in self.worker_pids(agent) if is_alive(pid)]
                if not pids:
                    return
                pid = self.random.choice(pids)
                if kind == "kill worker":
                    os.kill(pid, signal.SIGKILL)
                elif kind == "kill keeper":
                    self.kill_keeper(pid)
                else:
                    self.stop(pid)
        except (ProcessLookupError, FileNotFoundError):
            return
        self.counts[kind] += 1

    def rage(self):
        end = time.monotonic() + self.options.seconds
        while time.monotonic() < end:
            self.wake()
            if len(self.living()) < self.options.agents:
                self.start()
            if len(self.living()) > self.options.agents // 2:
                self.strike()
            time.sleep(self.random.uniform(0.02, 0.2))
        self.wake(everybody=True)
        for agent in self.leaving:  # else they count as the last ones, and end with another status
            agent.wait(60)
        for name in os.listdir(self.place):
            os.unlink(os.path.join(self.place, name))
        while len(self.living()) < self.options.agents:
            self.start()

    # --- what must be true ---

    def wrong(self, text):
        self.faults.append(text)

    def check_agent(self, agent):
        """One generation at a time; all workers are gone."""
        alive, last = {}, 0
        for event in agent.events("start", "exit"):
            key = event["generation"], event["local_rank"]
            if event["event"] == "start":
                others = [other for other in alive if other[0] != event["generation"]]
                if others:
                    self.wrong(f"{agent.pid} starts {key} beside {others}")
                if event["generation"] < last:
                    self.wrong(f"{agent.pid} goes back to {key}")
                last = event["generation"]
                alive[key] = event["worker_pid"]
            else:
                alive.pop(key, None)
        was_killed = agent.process.returncode == -signal.SIGKILL
        if alive and not was_killed:
            self.wrong(f"{agent.pid} has ended before {alive}")
        for key, pid in alive.items():
            try:
                harness.wait_until(lambda pid=pid: not is_alive(pid), "", timeout=5)
            except AssertionError:
                self.wrong(f"worker {pid} {key} of {agent.pid} is left behind")

    def check_rounds(self):
        rounds = collections.defaultdict(list)
        for agent in self.agents:
            for event in agent.events("start"):
                rounds[event["round"]].append((event, agent.pid))
        before = 0
        for number in sorted(rounds):
            events = [event for event, _ in rounds[number]]
            sizes = {event["world_size"] for event in events}
            restarts = {event["restarts"] for event in events}
            ranks = collections.Counter(event["rank"] for event in events)
            if len(sizes) != 1 or len(restarts) != 1:
                self.wrong(f"round {number} has world sizes {sizes} and restarts {restarts}")
            if max(ranks.values()) > 1:
                self.wrong(f"round {number} has ranks twice: {ranks.most_common(3)}")
            if min(restarts) < before:
                self.wrong(f"round {number} has {restarts} restarts, before it were {before}")
            before = max(restarts)
        return len(rounds), before

    def run(self):
        with harness.Server() as self.server:
            descriptors = f"/proc/{self.server.pid}/fd"
            before = len(os.listdir(descriptors))
            for _ in range(self.options.agents):
                self.start()
            self.rage()
            final = self.living()
            time.sleep(0.5)
            with open(os.path.join(self.place, "over"), "wb"):
                pass
            begin = time.monotonic()
            codes = collections.Counter()
            for agent in final:
                try:
                    codes[agent.wait(60)] += 1
                except AssertionError as error:
                    self.wrong(str(error)[-1500:])
                    agent.signal(signal.SIGKILL)
                    agent.process.wait()
            took = time.monotonic() - begin
            if set(codes) - {0}:
                self.wrong(f"the last agents have ended with {dict(codes)}: " + "".join(
                    agent.stderr()[-600:] for agent in final if agent.process.returncode != 0))
            for agent in self.agents:
                agent.process.wait()
                self.check_agent(agent)
            try:
                harness.wait_until(lambda: not self.processes(), "", 10)
            except AssertionError:
                self.wrong(f"processes {self.processes()} are left")
            rounds, restarts = self.check_rounds()
            try:
                harness.wait_until(lambda: len(os.listdir(descriptors)) <= before + 1, "", 10)
            except AssertionError:
                self.wrong(f"the server has {len(os.listdir(descriptors))} descriptors, it had "
                           f"{before}")
        print(f"seed {self.options.seed}: {len(self.agents)} agents, {rounds} rounds, {restarts} "
              f"restarts, {dict(self.counts)}; all ended within {took:.1f} s")

    def close(self):
        self.wake(everybody=True)
        for agent in self.agents:
            agent.close()
        shutil.rmtree(self.place, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chaos = Chaos(parser.parse_args())
    try:
        chaos.run()
    finally:
        chaos.close()
    for fault in chaos.faults:
        print(f"FAIL {fault}")
    print(f"{0 if chaos.faults else 1} passed, {len(chaos.faults)} failed, 0 skipped")
    return 1 if chaos.faults else 0


if __name__ == "__main__":
    sys.exit(main())
