"""torchrun agents meet, lose one, and let one in: what bench/torchrun measures.

    torch_agents.py BACKEND HOST:PORT start|silent|failing|newcomer LIMIT_S

Each agent is a process, forked after torch was imported, that runs torchrun's main. It has one
worker, a shell that says who it is and sleeps: so the time is that of the agents. Prints one JSON
object: start, all agents ready until all workers run; and then, for a job of three

    silent      an agent is killed, its worker too, and the other workers say nothing
    failing     the same, and a worker of another agent is killed one second later
    newcomer    the third agent comes when two run, ready

until the workers of the new world run; null when that has not come within the limit.
"""

import contextlib
import ctypes
import json
import logging
import os
import select
import signal
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import torch.distributed.run  # noqa: E402

PR_SET_PDEATHSIG = 1
FAIL_AFTER_S = 1.0
START_S = 120
# torchrun makes one dollar of two.
WORKER = 'echo "$RANK $WORLD_SIZE $MASTER_PORT $$$$"; exec sleep 300'


class Agent:
    """A process that has imported everything, and begins when it is told to."""

    def __init__(self, backend, endpoint, run_id, conf):
        go, self.go = os.pipe()
        self.output, out = os.pipe()
        self.lines, self.rest = [], b""
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid != 0:
            os.close(go)
            os.close(out)
            return
        try:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.setpgid(0, 0)
            os.close(self.go)
            os.dup2(out, 1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            if os.getppid() == parent and os.read(go, 1):
                self.run(backend, endpoint, run_id, conf)
        finally:
            os._exit(1)

    @staticmethod
    def run(backend, endpoint, run_id, conf):
        torch.distributed.run.main([
            "--nnodes", "2:3", "--nproc_per_node", "1", "--rdzv_backend", backend,
            "--rdzv_endpoint", endpoint, "--rdzv_id", run_id, "--rdzv_conf", conf,
            "--max_restarts", "5", "--monitor_interval", "0.1", "--no_python", "sh", "-c", WORKER])

    def begin(self):
        os.write(self.go, b"g")

    def hear(self):
        """Take what the workers have said: rank, world, port of the workers' store, process."""
        said = os.read(self.output, 65536)
        *whole, self.rest = (self.rest + said).split(b"\n")
        self.lines += [[int(word) for word in line.split()] for line in whole]

    def worker(self):
        return self.lines[-1][3]

    def kill(self):
        """The agent and the worker, as when the machine goes."""
        for pid in [self.pid, *(line[3] for line in self.lines[-1:])]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def world_of(agents, known):
    """Whether the last workers are one world that is not @known."""
    if not all(agent.lines for agent in agents):
        return False
    last = [agent.lines[-1] for agent in agents]
    ports = {line[2] for line in last}
    return (sorted(line[0] for line in last) == list(range(len(agents))) and
            {line[1] for line in last} == {len(agents)} and len(ports) == 1 and
            not ports & known)


def settle(agents, limit_s, known=frozenset()):
    """Wait until the workers of these agents are one world; when that was, or None."""
    end = time.monotonic() + limit_s
    while not world_of(agents, known):
        left_s = end - time.monotonic()
        if left_s <= 0:
            return None
        ready, _, _ = select.select([agent.output for agent in agents], [], [], left_s)
        for agent in agents:
            if agent.output in ready:
                agent.hear()
    return time.monotonic()


def measure(kind, limit_s, make):
    agents = [make() for _ in range(3)]
    late = agents.pop() if kind == "newcomer" else None
    try:
        time.sleep(1)  # until they wait for the word
        began = time.monotonic()
        for agent in agents:
            agent.begin()
        started = settle(agents, START_S)
        if started is None:
            sys.exit("torch_agents: the agents did not meet")
        if kind == "start":
            return began, started
        known = {agent.lines[-1][2] for agent in agents}
        time.sleep(2)
        began = time.monotonic()
        if late:
            late.begin()
            agents.append(late)
            late = None
        else:
            agents.pop().kill()
        if kind == "failing":
            time.sleep(FAIL_AFTER_S)
            with contextlib.suppress(ProcessLookupError):  # it may have been stopped already
                os.kill(agents[0].worker(), signal.SIGKILL)
        return began, settle(agents, limit_s, known)
    finally:
        for agent in [*agents, *([late] if late else [])]:
            agent.kill()


def main():
    backend, endpoint, kind, limit_s = sys.argv[1:5]
    logging.disable(logging.CRITICAL)
    # A newcomer means a last call: the others run before it is here.
    conf = f"last_call_timeout={1 if kind == 'newcomer' else 30},join_timeout=300,is_host=false"
    run_id = f"bench-{os.getpid()}"
    if backend == "muster":
        import muster._torch_handler  # noqa: F401
        import muster.torch
        muster.torch.register()
    began, ended = measure(kind, float(limit_s), lambda: Agent(backend, endpoint, run_id, conf))
    print(json.dumps({"seconds": None if ended is None else round(ended - began, 3)}))


if __name__ == "__main__":
    main()
