"""torch's own handlers meet: the counterpart of `muster bench rendezvous`.

    torch_rendezvous.py HOST:PORT NODES [--death] [--backend=NAME] [--meet] [KEY=VALUE...]

Each node is a thread with a handler, made by torch's registry, and a connection of its own. Time is
taken from the moment when all handlers exist until the last next_rendezvous has returned. With
--death the last node is a process, which is then killed. Torch does not tell of that; measured is
the best that can happen, all survivors call next_rendezvous at once. Prints one JSON object; torn
in it counts the nodes that were told another world than there is, which happens to torch's nodes
when they look after another one has left.
"""

import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.INFO)  # the handlers of etcd write a line for every step

from torch.distributed.elastic.rendezvous import api, registry  # noqa: E402


def make_handler(backend, endpoint, run_id, low, high, options):
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
    """(rank, world, when). With meets also where the workers meet is agreed on, as ours do it in
    the same call, torch in it from 2.4 on, and its agents right after it before."""
    info = handler.next_rendezvous()
    if not isinstance(info, tuple):
        return info.rank, info.world_size, time.monotonic()
    store, rank, world = info
    if meets and rank == 0:
        store.set("MASTER_ADDR", socket.gethostname().encode())
        store.set("MASTER_PORT", b"29500")
    if meets:
        store.get("MASTER_ADDR")
        store.get("MASTER_PORT")
    return rank, world, time.monotonic()


def victim(arguments):
    """In a process of its own: a node that will be killed. Returns its pid and two pipes."""
    down, up = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            handler = make_handler(*arguments)
            os.write(up[1], b"h")
            os.read(down[0], 1)
            outcome(handler)
            os.write(up[1], b"m")
            while True:
                signal.pause()
        finally:
            os._exit(1)
    os.close(up[1])
    return pid, down[1], up[0]


def await_victim(pipe):
    if os.read(pipe, 1) == b"":
        sys.exit("torch_rendezvous: the node that was to be killed has ended by itself")


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    death = "--death" in sys.argv
    backend = next((word.split("=", 1)[1] for word in sys.argv if word.startswith("--backend=")),
                   "c10d")
    endpoint, nodes = words[0], int(words[1])
    options = dict(word.split("=", 1) for word in words[2:])
    low = nodes - 1 if death else nodes
    arguments = (backend, endpoint, f"bench-{os.getpid()}", low, nodes, options)
    child = victim(arguments) if death else None
    barrier = threading.Barrier(low + 1)
    results = [[] for _ in range(low)]

    def run(result):
        handler = make_handler(*arguments)
        barrier.wait()
        result.append(outcome(handler, "--meet" in sys.argv))
        if death:
            barrier.wait()
            barrier.wait()
            result.append(outcome(handler))
        result.append(handler)  # it keeps its node alive as long as it lives

    threads = [threading.Thread(target=run, args=(result,), daemon=True) for result in results]
    for thread in threads:
        thread.start()
    if death:
        await_victim(child[2])
    barrier.wait()
    begin = time.monotonic()
    if death:
        os.write(child[1], b"g")
        await_victim(child[2])
        barrier.wait()
        killed = time.monotonic()
        os.kill(child[0], signal.SIGKILL)
        barrier.wait()
    for thread in threads:
        thread.join()
    line = {"bench": "rendezvous", "nodes": nodes,
            "seconds": round(max(result[0][2] for result in results) - begin, 6)}
    if death:
        line["reformed_seconds"] = round(max(result[1][2] for result in results) - killed, 6)
    last = [result[1 if death else 0] for result in results]
    line["torn"] = sum(world != low for _, world, _ in last)
    print(json.dumps(line), flush=True)
    # Without leaving, as ours; and without waiting for threads that sleep.
    os._exit(0)


if __name__ == "__main__":
    main()
