"""Nodes of a rendezvous with torch's own handlers, each in a process of its own.

    torch_node.py SOCKET

Torch is imported once; then every connection to the unix socket SOCKET gets a process that was
forked for it and that obeys: a line of JSON in, a line of JSON out, until the connection ends. So a
node costs milliseconds, and killing its process kills that node alone. The server ends with its
stdin. It prints the version of torch when it is ready.

Commands are {"do": name, ...}; the answer is {"answer": ...} or {"error": class, "text": ...}.

    create    make a handler with torch's registry: backend, endpoint, run_id, min, max, options,
              and keep_alive = [interval, attempts]; answers the node's name and the store's port
    join      take part as an agent does: next_rendezvous, then look at num_nodes_waiting every
              100 ms, and next_rendezvous again when it is not 0. Each outcome is a line of its own,
              {"event": "joined", "round", "rank", "world_size", "master_addr", "master_port"},
              {"event": "closed"}, {"event": "graceful"} or {"event": "failed", "text"}
    stay      the same without looking: one next_rendezvous, then only torch's keep-alives
    reenter   what an agent does whose workers have failed: next_rendezvous again, while it joins
    waiting   num_nodes_waiting
    is_closed, set_closed, shutdown
    record    what the handler knows of the record, after asking for it anew
"""

import json
import logging
import os
import re
import select
import signal
import socket
import sys
import threading
import time
import warnings

warnings.filterwarnings("ignore")
# All nodes share the log, and the handlers of etcd write a line for every step.
logging.disable(logging.INFO)

import torch  # noqa: E402
import torch.distributed.elastic.rendezvous as rdzv  # noqa: E402
import torch.distributed.elastic.rendezvous.registry as registry  # noqa: E402
from torch.distributed.elastic.rendezvous import api  # noqa: E402
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (  # noqa: E402
    DynamicRendezvousHandler)

# Torch names the module only where it finds python-etcd.
try:
    from torch.distributed.elastic.rendezvous.etcd_rendezvous import EtcdRendezvousHandler
except ImportError:
    EtcdRendezvousHandler = ()

AGENT_INTERVAL_S = 0.1

# The state cache of the real handler lasts for a second; older than this, it is read anew.
CACHE_S = 1.05


class Node:
    def __init__(self, connection):
        self.input = connection.makefile("r", encoding="utf-8")
        self.output = connection.makefile("w", encoding="utf-8")
        self.lock = threading.Lock()
        self.handler = None
        self.endpoint = None
        self.store = None
        self.failed_workers = threading.Event()

    def say(self, **line):
        with self.lock:
            self.output.write(json.dumps(line) + "\n")
            self.output.flush()

    # --- commands

    def create(self, backend, endpoint, run_id, min, max, options, keep_alive=None):
        local_addr = options.pop("local_addr", None)
        is_old = not hasattr(rdzv, "RendezvousInfo")
        if keep_alive is not None and not is_old:
            options["keep_alive_interval"], options["keep_alive_max_attempt"] = keep_alive
        self.endpoint = endpoint
        more = {} if is_old else {"local_addr": local_addr}
        params = api.RendezvousParameters(backend, endpoint, run_id, min, max, **more, **options)
        self.handler = registry.get_rendezvous_handler(params)
        if not isinstance(self.handler, DynamicRendezvousHandler):
            return {}
        if keep_alive is not None and is_old:
            # Fixed in this version and not an option yet: lowered from outside, in the settings
            # that all parts of the real handler share, so that a death takes seconds to show.
            settings = self.handler.settings
            interval, attempts = keep_alive
            object.__setattr__(settings, "keep_alive_interval",
                               type(settings.keep_alive_interval)(seconds=interval))
            object.__setattr__(settings, "keep_alive_max_attempt", attempts)
        store = self.handler._store
        return {"node": str(self.handler._this_node).strip("'"),
                "port": store.port if hasattr(store, "port") else None}

    def next(self):
        info = self.handler.next_rendezvous()
        if isinstance(info, tuple):
            return self.next_old(*info)
        bootstrap = info.bootstrap_store_info
        return {"rank": info.rank, "world_size": info.world_size,
                "master_addr": bootstrap.master_addr, "master_port": bootstrap.master_port}

    def next_old(self, store, rank, world_size):
        """What the agent of this version does next: rank 0 tells where the workers meet, which is
        the endpoint of a static group, else a free port."""
        self.store = store
        if rank == 0:
            if self.handler.get_backend() == "static":
                host, port = self.endpoint.rsplit(":", 1)
            else:
                host = socket.gethostname()
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", 0))
                    port = probe.getsockname()[1]
            store.set("MASTER_ADDR", host.encode())
            store.set("MASTER_PORT", str(port).encode())
        return {"rank": rank, "world_size": world_size,
                "master_addr": store.get("MASTER_ADDR").decode(),
                "master_port": int(store.get("MASTER_PORT"))}

    def round(self):
        if isinstance(self.handler, EtcdRendezvousHandler):
            # It tells the round to nobody, but the store of the round lies below its name.
            return int(re.search(r"/v_(\d+)/kv/$", self.store.prefix).group(1))
        if not isinstance(self.handler, DynamicRendezvousHandler):
            return 0
        return self.handler._state_holder.state.round

    def take_part(self, looks):
        try:
            while True:
                outcome = self.next()
                self.say(event="joined", round=self.round(), **outcome)
                if not looks:
                    return
                while self.handler.num_nodes_waiting() == 0:
                    if self.handler.is_closed():
                        self.say(event="closed")
                        return
                    if self.failed_workers.wait(AGENT_INTERVAL_S):
                        break
                self.failed_workers.clear()
        except api.RendezvousClosedError:
            self.say(event="closed")
        except getattr(api, "RendezvousGracefulExitError", ()):
            self.say(event="graceful")
        except Exception as error:  # whatever it is, the test wants to know
            self.say(event="failed", text=f"{type(error).__name__}: {error}")

    def join(self, looks=True):
        threading.Thread(target=self.take_part, args=(looks,), daemon=True).start()

    def stay(self):
        self.join(looks=False)

    def reenter(self):
        self.failed_workers.set()

    def waiting(self):
        return self.handler.num_nodes_waiting()

    def is_closed(self):
        return self.handler.is_closed()

    def set_closed(self):
        self.handler.set_closed()

    def shutdown(self):
        return self.handler.shutdown()

    def record(self):
        time.sleep(CACHE_S)
        with self.handler._heartbeat_lock:
            self.handler._state_holder.sync()
            state = self.handler._state_holder.state

            def names(nodes):
                return sorted(str(node).strip("'") for node in nodes)

            return {
                "round": state.round,
                "complete": state.complete,
                "closed": state.closed,
                "participants": names(state.participants),
                "waiting": names(state.wait_list),
                "spares": names(getattr(state, "redundancy_list", ())),
            }

    # --- obeying

    COMMANDS = ("create", "join", "stay", "reenter", "waiting", "is_closed", "set_closed",
                "shutdown", "record")

    def run(self):
        for line in self.input:
            command = json.loads(line)
            name = command.pop("do")
            if name not in self.COMMANDS:
                raise ValueError(f"no such command: {name}")
            try:
                self.say(answer=getattr(self, name)(**command))
            except Exception as error:  # goes to the test
                self.say(error=type(error).__name__, text=str(error))


def serve(path):
    # Nobody waits for the nodes; the test knows how they ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    print(torch.__version__, flush=True)
    while True:
        ready = select.select([listener, sys.stdin], [], [])[0]
        if sys.stdin in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            node = Node(connection)
            node.say(pid=os.getpid())
            try:
                node.run()
            finally:
                # Threads of the store may still be busy.
                os._exit(0)
        connection.close()


if __name__ == "__main__":
    serve(sys.argv[1])
