"""A worker of a torchrun agent, which tells of itself in lines of JSON on stdout.

    torch_worker.py DIRECTORY           silent: it talks to no other worker
    torch_worker.py DIRECTORY STEPS     trains with torch, with checkpoints in DIRECTORY

A silent one ends well when there is a file `end` or `end-RANK` in the directory, or no directory,
and fails when there is one of the name `fail-RANK`, which it removes.
"""

import json
import os
import sys
import time

LOOK_S = 0.02
STEP_S = 0.05
PATIENCE_S = 60


def say(event, **more):
    env = os.environ
    line = {"event": event, "rank": int(env["RANK"]), "world": int(env["WORLD_SIZE"]),
            "master": f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}", "worker": os.getpid(),
            "restarts": int(env["TORCHELASTIC_RESTART_COUNT"]), **more}
    # At once, so that lines of several workers are not mixed.
    os.write(1, (json.dumps(line) + "\n").encode())


def wait(directory):
    rank = os.environ["RANK"]
    fail = os.path.join(directory, f"fail-{rank}")
    ends = [os.path.join(directory, name) for name in ("end", f"end-{rank}")]
    while os.path.isdir(directory) and not any(map(os.path.exists, ends)):
        if os.path.exists(fail):
            os.remove(fail)
            sys.exit(3)
        time.sleep(LOOK_S)


def train(directory, steps):
    """Fit a line. Every step is a checkpoint, and the next round goes on from the last one."""
    import warnings
    warnings.filterwarnings("ignore")
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE_S))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    path, step = os.path.join(directory, "checkpoint"), 0
    if os.path.exists(path):
        kept = torch.load(path)
        model.load_state_dict(kept["model"])
        step = kept["step"]
    dist.barrier()
    say("resumed", step=step, total=world)
    while step < steps:
        inputs = torch.tensor([[float((step + rank) % 3)]])
        loss = ((model(inputs) - (2 * inputs + 1)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0:
            torch.save({"model": model.state_dict(), "step": step}, path + ".new")
            os.replace(path + ".new", path)
        time.sleep(STEP_S)
    slope = next(model.parameters()).item()
    say("trained", step=step, slope=round(slope, 1))
    dist.destroy_process_group()


if __name__ == "__main__":
    say("started")
    if len(sys.argv) > 2:
        train(sys.argv[1], int(sys.argv[2]))
    else:
        wait(sys.argv[1])
