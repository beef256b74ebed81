"""torch's own handlers meet: the counterpart of `muster-bench rendezvous`.

    torch_rendezvous.py HOST:PORT NODES [--death] [--backend=NAME] [--meet] [KEY=VALUE...]

Each node is a process, forked after torch was imported, with a handler made by torch's registry. In
one interpreter its lock would be measured and not the rendezvous. Time is taken from the moment
when all handlers exist until the last next_rendezvous has returned. With --death the last node is
then killed. Torch does not report that; measured is the best that can happen, all survivors call
next_rendezvous at once. Prints one JSON object; torn in it counts the nodes that were told another
world than there is, which happens to torch's nodes when they look after another one has left.
"""

import ctypes
import json
import logging
import os
import signal
import socket
import sys
import time
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.INFO)  # the handlers of etcd write a line for every step

from torch.distributed.elastic.rendezvous import api, registry  # noqa: E402

PR_SET_PDEATHSIG = 1


def make_handler(backend, endpoint, run_id, low, high, options):
    if backend.startswith("muster"):
        import muster.torch
        muster.torch.register()
    is_old = not hasattr(api, "RendezvousInfo")
    params = api.RendezvousParameters(backend, endpoint, run_id, low, high, is_host="false",
                                      **options)
    handler = registry.get_rendezvous_handler(params)
    if is_old and "keep_alive_interval" in options:
        # No option in this version: lowered from outside, in the settings of the real handler.
        settings = handler.settings
        object.__setattr__(settings, "keep_alive_interval", type(settings.keep_alive_interval)(
            seconds=int(options["keep_alive_interval"])))
        object.__setattr__(settings, "keep_alive_max_attempt",
                           int(options["keep_alive_max_attempt"]))
    return handler


def outcome(handler, meets=False):
    """[world, when]. With meets also where the workers meet is agreed on, as ours do it in the same
    call, torch in it from 2.4 on, and its agents right after it before."""
    info = handler.next_rendezvous()
    if not isinstance(info, tuple):
        return [info.world_size, time.monotonic()]
    store, rank, world = info
    if meets and rank == 0:
        store.set("MASTER_ADDR", socket.gethostname().encode())
        store.set("MASTER_PORT", b"29500")
    if meets:
        store.get("MASTER_ADDR")
        store.get("MASTER_PORT")
    return [world, time.monotonic()]


class Node:
    """A process that makes a handler, says so, and then calls next_rendezvous each time it is told
    to. It lives until it is killed, because the handler keeps its node alive."""

    def __init__(self, others, arguments, meets):
        self.socket, child_end = socket.socketpair()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid != 0:
            child_end.close()
            self.lines = self.socket.makefile("r", encoding="ascii")
            return
        try:
            # No node stays behind when the parent is killed at a limit of time.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            for node in (self, *others):
                node.socket.close()
            if os.getppid() == parent:
                Node.work(child_end, make_handler(*arguments), meets)
        except BaseException:  # pylint: disable=broad-except
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)

    @staticmethod
    def work(child_end, handler, meets):
        child_end.sendall(b'"ready"\n')
        while child_end.recv(1):
            child_end.sendall(json.dumps(outcome(handler, meets)).encode() + b"\n")

    def tell(self):
        self.socket.sendall(b"g")

    def hear(self):
        line = self.lines.readline()
        if not line:
            sys.exit("torch_rendezvous: a node has ended by itself")
        return json.loads(line)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def meet(nodes):
    """Let them call next_rendezvous: when that was, and what each was told."""
    begin = time.monotonic()
    for node in nodes:
        node.tell()
    return begin, [node.hear() for node in nodes]


def measure(nodes, death):
    for node in nodes:
        node.hear()
    begin, results = meet(nodes)
    line = {"bench": "rendezvous", "nodes": len(nodes),
            "seconds": round(max(when for _, when in results) - begin, 6)}
    if death:
        nodes.pop().kill()
        killed, results = meet(nodes)
        line["reformed_seconds"] = round(max(when for _, when in results) - killed, 6)
    line["torn"] = sum(world != len(nodes) for world, _ in results)
    return line


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    death = "--death" in sys.argv
    backend = next((word.split("=", 1)[1] for word in sys.argv if word.startswith("--backend=")),
                   "c10d")
    endpoint, count = words[0], int(words[1])
    options = dict(word.split("=", 1) for word in words[2:])
    low = count - 1 if death else count
    arguments = (backend, endpoint, f"bench-{os.getpid()}", low, count, options)
    nodes = []
    try:
        for _ in range(count):
            nodes.append(Node(nodes, arguments, "--meet" in sys.argv))
        print(json.dumps(measure(nodes, death)), flush=True)
    finally:
        # Without leaving, as ours.
        for node in nodes:
            node.kill()


if __name__ == "__main__":
    main()
