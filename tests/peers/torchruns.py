"""Jobs of torchrun agents and `muster run` launchers, as processes."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import peer
from nodes import Node
from peer import harness

# Time to start agents and workers, or to notice a loss, on a busy machine.
PATIENCE_S = 120
# To read the last lines of an agent that has ended. Workers that outlive it keep the pipe open.
READ_S = 5
# Mostly long enough for all agents to be in the first round.
LAST_CALL_S = 5
# Backends of the plugin with another name in `muster`.
OURS = {"muster-etcd": "etcd-v3"}


class Agent(Node):
    """A torchrun agent and its workers, whose lines are events."""

    # Exit status after SIGTERM.
    stopped = 1

    def __init__(self, job, *args, nnodes=None, conf="", steps=None):
        super().__init__()
        options = ["--nnodes", nnodes or job.nnodes, "--nproc_per_node", 1,
                   "--rdzv_backend", job.backend, "--rdzv_endpoint", job.endpoint,
                   "--rdzv_id", job.run_id, "--monitor_interval", 0.1,
                   "--rdzv_conf", ",".join(filter(None, [job.conf, conf])), *args]
        worker = [os.path.join(peer.HERE, "torch_worker.py"), job.directory]
        self.process = self.launch(job, options, worker + ([steps] if steps else []),
                                   {"TMPDIR": job.temporary, "LOGLEVEL": "INFO", **job.env})
        self.pid, self.errors = self.process.pid, []
        self.has_ended = False
        threading.Thread(target=self.read_events, daemon=True).start()
        self.reader = threading.Thread(target=self.read_errors, daemon=True)
        self.reader.start()

    def launch(self, job, options, worker, env):
        return peer.start(job.which, "torch_agent.py", *options, *worker, env=env)

    def __str__(self):
        return f"{type(self).__name__} {self.pid}"

    def read_events(self):
        for line in self.process.stdout:
            if line.startswith(b"{"):
                self.add(json.loads(line))

    def read_errors(self):
        for line in self.process.stderr:
            self.errors.append(line.decode(errors="replace"))

    def stderr(self):
        if self.has_ended:
            self.reader.join(READ_S)
        return "".join(self.errors)[-6000:]

    def last(self):
        """The first line of the last worker, or None."""
        started = self.of("started")
        return started[-1] if started else None

    def signal(self, number):
        os.kill(self.pid, number)

    def ended(self, timeout=PATIENCE_S):
        """Wait for the end of the agent; returns its status."""
        try:
            status = self.process.wait(timeout)
            self.has_ended = True
            return status
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} does not end; {self.story()}") from None


class OurC10d(Agent):
    """A torchrun agent with muster's c10d handler, for jobs of agents with torch's."""

    def launch(self, job, options, worker, env):
        return super().launch(job, [*options, "--rdzv_backend", "muster-c10d"], worker, env)


class Run(Agent):
    """A `muster run` instead of torchrun."""

    stopped = os.EX_TEMPFAIL

    def launch(self, job, options, worker, env):
        if job.backend == "c10d" and job.which == "old":
            options += ["--rdzv_conf", "state_dialect=D1"]
        command = [harness.MUSTER, "run", *options, "--local-addr", "127.0.0.1", "--",
                   sys.executable, *worker]
        return subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**os.environ, **env})


class Job(contextlib.ExitStack):
    """A job of agents. Leaving the block kills its processes."""

    def __init__(self, which, nnodes, backend="muster", endpoint=None, conf="", env=None):
        super().__init__()
        peer.plugin_python(which)
        self.which, self.nnodes, self.backend, self.endpoint = which, nnodes, backend, endpoint
        self.run_id, self.agents, self.env = "job", [], env or {}
        self.conf = conf or f"last_call_timeout={LAST_CALL_S},join_timeout={PATIENCE_S}"
        self.directory = tempfile.mkdtemp(prefix="muster-test-")
        self.temporary = os.path.join(self.directory, "tmp")
        os.mkdir(self.temporary)
        self.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self.callback(self.kill_all)

    def kill_all(self):
        for agent in self.agents:
            agent.process.kill()
            for event in agent.of("started"):
                with contextlib.suppress(OSError):
                    os.kill(event["worker"], signal.SIGKILL)

    def start(self, count=1, *args, kind=Agent, **options):
        agents = [kind(self, *args, **options) for _ in range(count)]
        self.agents += agents
        return agents

    def do(self, name):
        """Make a file that workers look for."""
        with open(os.path.join(self.directory, name), "w", encoding="ascii"):
            pass

    def is_there(self, name):
        return os.path.exists(os.path.join(self.directory, name))

    def settle(self, agents, after=()):
        """Wait until the workers of these agents, and no others, are in one round. Workers in
        `after` do not count. Returns their first lines."""

        def look():
            lines = [agent.last() for agent in agents]
            if not all(line and line["worker"] not in after for line in lines):
                return None
            is_one = len({line["master"] for line in lines}) == 1
            ranks = sorted(line["rank"] for line in lines)
            worlds = {line["world"] for line in lines}
            is_whole = ranks == list(range(len(agents))) and worlds == {len(agents)}
            return lines if is_one and is_whole else None

        try:
            return harness.wait_until(look, "", PATIENCE_S)
        except AssertionError:
            stories = "\n".join(agent.story() for agent in self.agents)
            raise AssertionError(f"no world of {len(agents)}: {stories}") from None

    def status(self):
        """The job as `muster status` shows it."""
        shown = harness.run("status", "--rdzv-endpoint", self.endpoint, "--rdzv-id", self.run_id,
                            "--rdzv-backend", OURS.get(self.backend, self.backend), "--json",
                            timeout=60)
        if not shown.stdout:
            raise AssertionError(f"status {shown.returncode}: {shown.stderr.decode()}")
        return json.loads(shown.stdout)

    def end(self, agents, statuses=None):
        """Let the workers succeed, and check the statuses of the agents, 0 by default."""
        self.do("end")
        found = [agent.ended() for agent in agents]
        wanted = statuses or [0] * len(agents)
        if found != wanted:
            stories = "\n".join(agent.story() for agent in agents)
            raise AssertionError(f"statuses {found} instead of {wanted}: {stories}")


def workers(lines):
    return {line["worker"] for line in lines}


def since(moment):
    return time.monotonic() - moment
