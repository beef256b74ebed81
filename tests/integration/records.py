"""Rendezvous records in Python: stand-ins for torch's classes, random states, and our codec.

A content is what a record says, in a form that can be compared: maps as lists in their order, sets
sorted, nodes as [address, pid, local_id], times as microseconds since 1970.
"""

import json
import os
import subprocess
import sys
import types
from datetime import datetime, timedelta, timezone

import harness

MODULE = "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
DIALECTS = ("D1", "D2", "D3", "D4")
TOOL = os.environ.get("MUSTER_PICKLE_TOOL",
                      os.path.join(os.path.dirname(harness.MUSTER), "tests", "pickle-tool"))


def tool(lines, *args):
    """Our answers to lines of hex, or of base64 with a "=" before it."""
    raw = [line if isinstance(line, bytes) else line.encode() for line in lines]
    result = subprocess.run([TOOL, *args], input=b"".join(line + b"\n" for line in raw),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            timeout=harness.DEADLINE_S)
    text = result.stderr.decode(errors="replace")
    harness.check_report(text, "pickle-tool")
    if result.returncode != 0:
        raise AssertionError(f"pickle-tool ended with {result.returncode}: {text}")
    answers = [json.loads(line.decode("utf-8", "surrogatepass"))
               for line in result.stdout.splitlines()]
    if len(answers) != len(lines):
        raise AssertionError(f"{len(answers)} answers to {len(lines)} lines")
    return answers


# --- the peers' classes ----------------------------------------------------------------------


class Classes:
    """A module's _RendezvousState and _NodeDesc."""

    def __init__(self, module):
        self.module = module

    def node(self, dialect, addr, pid, local_id):
        node = object.__new__(self.module._NodeDesc)
        node.__dict__.update({"fqdn" if dialect == "D1" else "addr": addr, "pid": pid,
                              "local_id": local_id})
        return node

    def state(self, dialect):
        state = object.__new__(self.module._RendezvousState)
        state.__dict__.update(round=0, complete=False, deadline=None, closed=False,
                              participants={}, wait_list=set())
        if dialect in ("D3", "D4"):
            state.redundancy_list = set()
        state.last_heartbeats = {}
        return state


def stand_ins():
    """A module of the right name with classes that behave like torch's, for any dialect."""

    class _RendezvousState:
        pass

    class _NodeDesc:
        """Equal and hashable by value like the frozen dataclass it stands for."""

        def key(self):
            return (self.__dict__.get("addr", self.__dict__.get("fqdn")), self.pid, self.local_id)

        def __eq__(self, other):
            return isinstance(other, _NodeDesc) and self.key() == other.key()

        def __hash__(self):
            return hash(self.key())

    name = ""
    for part in MODULE.split("."):
        name = f"{name}.{part}" if name else part
        sys.modules[name] = types.ModuleType(name)
    module = sys.modules[MODULE]
    for cls in (_RendezvousState, _NodeDesc):
        cls.__module__, cls.__qualname__ = MODULE, cls.__name__
        setattr(module, cls.__name__, cls)
    return Classes(module)


# --- states ----------------------------------------------------------------------------------

EPOCH = datetime(1970, 1, 1)
ADDRS = ("node1.example.org", "10.0.0.9", "2001:db8::1", "bücher.example", "x" * 300, "", "😀")


def random_number(rng):
    return rng.choice((0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**40, 2**63 - 1,
                       rng.randrange(5000), rng.randrange(1 << 32)))


def random_time(rng, dialect):
    time = datetime(1, 1, 1) + timedelta(microseconds=rng.randrange(315537897600 * 10**6))
    if rng.random() < 0.7:
        time = EPOCH + timedelta(microseconds=1778247465123456 + rng.randrange(10**9))
    return time.replace(tzinfo=timezone.utc) if dialect == "D4" else time


def random_state(rng, classes, dialect, count=None):
    state = classes.state(dialect)
    state.round = random_number(rng)
    state.complete, state.closed = rng.random() < 0.5, rng.random() < 0.2
    if rng.random() < 0.4:
        state.deadline = random_time(rng, dialect)
    for i in range(rng.randrange(8) if count is None else count):
        addr = rng.choice(ADDRS) if count is None else f"n{i:04}.rack-a.example.org"
        node = classes.node(dialect, addr, random_number(rng), rng.randrange(3))
        where = rng.random()
        if where < 0.6:
            state.participants[node] = rng.randrange(3000)
        elif where < 0.8 or dialect in ("D1", "D2"):
            state.wait_list.add(node)
        else:
            state.redundancy_list.add(node)
        if rng.random() < 0.9:
            # Equal but not the same object, as after a waiting node has joined.
            if rng.random() < 0.2:
                node = classes.node(dialect, addr, node.pid, node.local_id)
            state.last_heartbeats[node] = random_time(rng, dialect)
    return state


# --- contents --------------------------------------------------------------------------------


def node_content(node):
    addr = node.__dict__["fqdn"] if "fqdn" in node.__dict__ else node.__dict__["addr"]
    return [addr, node.pid, node.local_id]


def time_content(time):
    if time is None:
        return None
    return (time.replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1)


def content(state):
    """Of a Python object. The zone of times is part of it."""
    times = [time for time in (state.deadline, *state.last_heartbeats.values()) if time is not None]
    return {
        "zones": sorted({str(time.tzinfo) for time in times}),
        "round": state.round,
        "complete": state.complete,
        "closed": state.closed,
        "deadline": time_content(state.deadline),
        "participants": [[node_content(n), rank] for n, rank in state.participants.items()],
        "wait_list": sorted(map(node_content, state.wait_list)),
        "redundancy_list": sorted(map(node_content, state.__dict__.get("redundancy_list", ()))),
        "last_heartbeats": [[node_content(n), time_content(t)]
                            for n, t in state.last_heartbeats.items()],
    }


def content_of(answer):
    """Of an answer of our codec."""
    if "error" in answer:
        raise AssertionError(f"{answer['error']}: {answer['text']}")
    has_times = answer["deadline"] is not None or answer["last_heartbeats"]
    zone = "UTC" if answer["dialect"] == "D4" else "None"
    return {
        "zones": [zone] if has_times else [],
        **{name: answer[name] for name in ("round", "complete", "closed", "deadline",
                                           "participants", "last_heartbeats")},
        "wait_list": sorted(node for (node,) in answer["wait_list"]),
        "redundancy_list": sorted(node for (node,) in answer["redundancy_list"]),
    }
