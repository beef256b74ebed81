"""A worker: trains a small model with DDP over gloo, saves after each step, resumes from there.

$PLACE/checkpoint is what rank 0 has saved; the training ends with step $STEPS. Each step says
`step N RANK/WORLD RESTARTS`."""

import os
import time

import torch
import torch.distributed as dist

PATH = os.path.join(os.environ["PLACE"], "checkpoint")
STEPS = int(os.environ["STEPS"])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = 0
    if os.path.exists(PATH):
        saved = torch.load(PATH)
        model.load_state_dict(saved["model"])
        first = saved["step"] + 1
    for step in range(first, STEPS):
        inputs = torch.randn(8, 4)
        loss = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = torch.ones(1)
        dist.all_reduce(total)
        assert total.item() == world, (total, world)
        if rank == 0:
            torch.save({"model": model.state_dict(), "step": step}, PATH + ".new")
            os.replace(PATH + ".new", PATH)
        print(f"step {step} {rank}/{world} {os.environ['TORCHELASTIC_RESTART_COUNT']}", flush=True)
        time.sleep(0.1)
    dist.barrier()
    dist.destroy_process_group()


main()
# Without a second of processor time in which torch takes itself apart.
os._exit(0)
