"""One rank of a Gloo process group that meets through an external store.

    torch_gloo.py store PORT RANK WORLD   a TCPStore client passed as store=
    torch_gloo.py env                     env://, everything from the environment

Prints one JSON line with what the collectives gave.
"""

import json
import os
import sys
import warnings
from datetime import timedelta

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

PATIENCE = timedelta(seconds=60)

if sys.argv[1] == "store":
    port, rank, world = map(int, sys.argv[2:5])
    store = dist.TCPStore("127.0.0.1", port, world, False, PATIENCE)
    dist.init_process_group("gloo", store=dist.PrefixStore("job", store), rank=rank,
                            world_size=world, timeout=PATIENCE)
else:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method="env://", timeout=PATIENCE)

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
print(json.dumps({
    "rank": dist.get_rank(),
    "world": dist.get_world_size(),
    "sum": tensor.tolist(),
    "gathered": [int(t.item()) for t in gathered],
    "pair": half.item(),
}), flush=True)
dist.destroy_process_group()
