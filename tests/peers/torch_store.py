"""A real torch store that obeys: calls come as lines of JSON on stdin, until it ends.

    torch_store.py libuv|legacy    a TCPStore server and its own client; prints the port first
    torch_store.py file PATH       a FileStore; prints 0 first
    torch_store.py etcd HOST PORT PREFIX   an EtcdStore; prints 0 first

A call is [method, arguments...]; text stands for the bytes of latin-1 where torch wants bytes. The
answer is one line of JSON: {"value": ...} or {"error": class, "text": ...}.
"""

import json
import sys
import warnings
from datetime import timedelta

warnings.filterwarnings("ignore")

import torch.distributed as dist  # noqa: E402

PATIENCE = timedelta(seconds=30)

if sys.argv[1] == "file":
    # More users than there will be, so that nobody removes the file at the end.
    store = dist.FileStore(sys.argv[2], 1000)
    store.set_timeout(PATIENCE)
    print(0, flush=True)
elif sys.argv[1] == "etcd":
    import etcd
    from torch.distributed.elastic.rendezvous.etcd_store import EtcdStore

    client = etcd.Client(host=sys.argv[2], port=int(sys.argv[3]))
    store = EtcdStore(client, sys.argv[4], timeout=PATIENCE)
    print(0, flush=True)
else:
    more = {} if not hasattr(dist.TCPStore, "append") else {"use_libuv": sys.argv[1] == "libuv"}
    store = dist.TCPStore("127.0.0.1", 0, None, True, PATIENCE, wait_for_workers=False, **more)
    print(store.port, flush=True)

for line in sys.stdin:
    method, *args = json.loads(line)
    if method == "set":
        args[1] = args[1].encode("latin-1")
    elif method == "wait":
        args[1] = timedelta(milliseconds=args[1])
    try:
        value = getattr(store, method)(*args)
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        answer = {"value": value}
    except (RuntimeError, LookupError) as error:
        answer = {"error": type(error).__name__, "text": str(error)}
    print(json.dumps(answer), flush=True)
