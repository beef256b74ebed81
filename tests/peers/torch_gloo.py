"""One rank of a Gloo process group that meets through an external store.

    torch_gloo.py store PORT RANK WORLD   a TCPStore client passed as store=
    torch_gloo.py env                     env://, everything from the environment
    torch_gloo.py restart                 the same as the command of `muster join --rejoin`

Prints one JSON line with what the collectives gave. With restart there are events, "started" and
then "met" or "unmet", and the rank goes on with collectives until it is stopped.
"""

import json
import os
import signal
import sys
import time
import warnings
from datetime import timedelta

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

PATIENCE = timedelta(seconds=60)
PAUSE_S = 0.02


def collect():
    """The results of the collectives."""
    rank, world = dist.get_rank(), dist.get_world_size()
    # Two floats each, so that a wrong order or a missing rank shows.
    tensor = torch.tensor([float(rank + 1), float(10 ** rank)])
    dist.all_reduce(tensor)
    gathered = [torch.zeros(1) for _ in range(world)]
    dist.all_gather(gathered, torch.tensor([float(rank)]))
    group = dist.new_group([0, world - 1])
    half = torch.tensor([1.0])
    if rank in (0, world - 1):
        dist.all_reduce(half, group=group)
    dist.barrier()
    return {
        "rank": rank,
        "world": world,
        "sum": tensor.tolist(),
        "gathered": [int(t.item()) for t in gathered],
        "pair": half.item(),
    }


def say(out, line):
    out.write(json.dumps(line) + "\n")
    out.flush()


def once(words):
    if words[0] == "store":
        port, rank, world = map(int, words[1:4])
        store = dist.TCPStore("127.0.0.1", port, world, False, PATIENCE)
        dist.init_process_group("gloo", store=dist.PrefixStore("job", store), rank=rank,
                                world_size=world, timeout=PATIENCE)
    else:
        dist.init_process_group("gloo", init_method="env://", timeout=PATIENCE)
    say(sys.stdout, collect())
    dist.destroy_process_group()


def restart():
    # Gloo writes to stdout, too, which is for events alone.
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    about = {"round": int(os.environ["MUSTER_ROUND"]), "worker": os.getpid()}
    say(out, {"event": "started", **about})
    has_met = False
    try:
        dist.init_process_group("gloo", init_method="env://", timeout=PATIENCE)
        say(out, {"event": "met", **about, "given": collect()})
        has_met = True
        while True:
            dist.all_reduce(torch.ones(1))
            time.sleep(PAUSE_S)
    except Exception as error:  # the test reports any exception
        if not has_met:
            say(out, {"event": "unmet", **about, "text": f"{type(error).__name__}: {error}"})
    # Another rank is gone. Its node is not: it waits for the next round, and stops this process.
    while True:
        signal.pause()


if __name__ == "__main__":
    if sys.argv[1] == "restart":
        restart()
    else:
        once(sys.argv[1:])
