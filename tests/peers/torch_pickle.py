"""The real _RendezvousState of this torch: pickles in hex come as lines on stdin.

First it prints what it pickles itself: one JSON line {"hex": ..., "content": ...} per random state,
made by its own constructors. Then it answers each line with {"hex": ..., "content": ...} of what it
loaded, used as an agent uses it, and pickled again; or {"error": ...}.
"""

import json
import os
import pickle
import random
import sys
import warnings
from datetime import datetime, timezone

warnings.filterwarnings("ignore")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "integration"))

import torch.distributed.elastic.rendezvous.dynamic_rendezvous as dynamic  # noqa: E402

import records  # noqa: E402

NODE_FIELD = next(iter(dynamic._NodeDesc.__dataclass_fields__))
DIALECT = "D1" if NODE_FIELD == "fqdn" else "D4"


def say(**line):
    print(json.dumps(line), flush=True)


def real(state):
    """The same content in objects that torch's constructors made."""

    def node(n):
        addr, pid, local_id = records.node_content(n)
        return dynamic._NodeDesc(addr, pid, local_id)

    new = dynamic._RendezvousState()
    for name in ("round", "complete", "deadline", "closed"):
        setattr(new, name, getattr(state, name))
    new.participants = {node(n): rank for n, rank in state.participants.items()}
    new.wait_list = {node(n) for n in state.wait_list}
    if DIALECT == "D4":
        new.redundancy_list = {node(n) for n in state.redundancy_list}
    new.last_heartbeats = {node(n): time for n, time in state.last_heartbeats.items()}
    return new


def use(state):
    """What an agent does with a record: lookups by its own node, arithmetic on times, a write."""
    now = datetime.now(timezone.utc) if DIALECT == "D4" else datetime.utcnow()
    for n in list(state.participants) + list(state.wait_list):
        me = dynamic._NodeDesc(getattr(n, NODE_FIELD), n.pid, n.local_id)
        assert me == n and hash(me) == hash(n) and repr(n)
        assert me in state.participants or me in state.wait_list
    for time in state.last_heartbeats.values():
        assert (now - time) is not None and (now > time) in (True, False)
    assert state.deadline is None or (state.deadline < now) in (True, False)
    sorted(state.participants, key=lambda n: (getattr(n, NODE_FIELD), n.pid, n.local_id))
    me = dynamic._NodeDesc("me.example.org", 4711, 0)
    state.participants[me] = 0
    state.last_heartbeats[me] = now
    state.wait_list.discard(me)


rng = random.Random(int(sys.argv[1]))
classes = records.Classes(dynamic)
for count in (0, 1, 2, 3, 8, 90, 1001):
    state = real(records.random_state(rng, classes, DIALECT, count))
    say(hex=pickle.dumps(state).hex(), content=records.content(state), dialect=DIALECT)
say(end=True)

for line in sys.stdin:
    try:
        state = pickle.loads(bytes.fromhex(line))
        content = records.content(state)
        unknown = {name: repr(value) for name, value in state.__dict__.items()
                   if name not in dynamic._RendezvousState().__dict__}
        use(state)
        say(content=content, unknown=unknown, hex=pickle.dumps(state).hex(),
            used=records.content(state))
    except Exception as error:  # whatever it is, the caller wants to see it
        say(error=f"{type(error).__name__}: {error}")
