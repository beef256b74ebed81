"""One of two torch versions that meet in one store: torch_pair.py PORT old|new."""

import json
import sys
import warnings
from datetime import timedelta

warnings.filterwarnings("ignore")

import torch.distributed as dist  # noqa: E402

port, me = int(sys.argv[1]), sys.argv[2]
other = "new" if me == "old" else "old"
store = dist.TCPStore("127.0.0.1", port, 2, False, timedelta(seconds=120))
store.set(f"hello/{me}", f"from {me}")
told = store.get(f"hello/{other}").decode()
for _ in range(100):
    store.add("count", 1)
store.set(f"done/{me}", "1")
store.wait([f"done/{other}"], timedelta(seconds=120))
print(json.dumps({"count": store.add("count", 0), "told": told}), flush=True)
