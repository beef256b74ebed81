"""Groups of torch's real handlers and of `muster join` in one rendezvous, on one store.

    test_mixed.py [--repeat N] [--jobs N] [NAME...]

--repeat runs every scenario, or those whose names contain a NAME, N times in a row and prints how
often each has passed.

A scenario has a version of torch, and a server of the store: `muster
serve`, one of the muster nodes, or one of the torch nodes (then it is
torch's own server). Torch's nodes behave as
torchrun's agents do: they re-enter when num_nodes_waiting is not 0. Ours run with --rejoin.

Torch 2.13 runs with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 where one of its nodes may stay rank 0
while a new one of its nodes comes: with sharing its rank 0
publishes the workers' store in its first round only, and the
newcomer waits for that in vain. Keep-alives of torch 1.13 are fixed at
3 times 5 s; all scenarios but `hold` and `hold_short` lower that in the settings of the real
handler.
"""

import itertools

import mixed
from mixed import (
    FOUR, KINDS, OTHER, PATIENCE_S, SPARE, MusterNode, Scenario, TorchNode, harness, names)

VERSIONS = ("old", "new")
SERVERS = ("serve", "muster", "torch")


# --- the scenarios ---------------------------------------------------------------------------


def death(which, server, first):
    """Four meet; a node of each kind is killed in turn; a late one of each kind is let in."""
    with Scenario(which, server, 2, 4, mingled=first == "muster") as scenario:
        elder = mixed.death(scenario, first)
        # Ours were told of every loss and of every newcomer that they lived through.
        assert elder.of("lost"), elder.story()


def shared(which, server, leader):
    """The same with a store of rank 0's agent, which torch tells of in its first round only."""
    with Scenario(which, server, 2, 4, share=True, last=leader == "torch") as scenario:
        nodes = scenario.start(FOUR)
        done = scenario.settle(nodes)
        first = next(node for node in nodes if node.last_joined()["rank"] == 0)
        assert first.kind == leader, first
        for kind in KINDS:
            victim = [node for node in nodes if node.kind == kind][-1]
            victim.kill()
            nodes.remove(victim)
            done = scenario.settle(nodes, after=done)
            assert first.last_joined()["rank"] == 0
        if leader == "muster":
            nodes += scenario.start(["torch"])
            scenario.settle(nodes, after=done)


def late(which, server, kind):
    """A late node is seen by both kinds, which stay as they are until they re-enter."""
    with Scenario(which, server, 2, 4) as scenario:
        mixed.late(scenario, kind)


def close_members(which, server, closer):
    """The members of a round end when a node of either kind closes it."""
    with Scenario(which, server, 2, 4) as scenario:
        mixed.close_members(scenario, closer)


def close_waiting(which, server, closer):
    """Nodes that still wait for others end, too, and no node can enter afterwards."""
    with Scenario(which, server, 5, 5) as scenario:
        mixed.close_waiting(scenario, closer)


def spare(which, server, kind):
    """One too many waits without disturbing anybody, and is let in when a participant dies."""
    with Scenario(which, server, 3, 4, mingled=kind == "muster") as scenario:
        nodes = scenario.start(FOUR)
        first = scenario.settle(nodes)
        (extra,) = scenario.start([kind])
        if which == "new":
            harness.wait_until(lambda: scenario.record(nodes)["spares"], "the spare", PATIENCE_S)
            record = scenario.record(nodes)
            assert extra.name in (None, *record["spares"]), (extra.name, record)
        record = scenario.record(nodes)
        assert record["waiting"] == [], record
        assert record["round"] == first and record["participants"] == names(nodes), record
        assert all(len(node.of("joined")) == 1 for node in nodes)
        assert extra.last_joined() is None
        victim = [node for node in nodes if node.kind == OTHER[kind]][-1]
        victim.kill()
        nodes.remove(victim)
        scenario.settle([*nodes, extra], after=first)


def spare_closed(which, server, kind):
    """A spare that is not needed until the end ends without a failure."""
    with Scenario(which, server, 2, 2) as scenario:
        nodes = scenario.start(["torch", "muster"])
        scenario.settle(nodes)
        (extra,) = scenario.start([kind])
        harness.wait_until(lambda: scenario.record(nodes)["spares"], "the spare", PATIENCE_S)
        next(node for node in nodes if node.kind == OTHER[kind]).close_rendezvous()
        if kind == "torch":
            extra.wait("graceful")
        else:
            assert extra.ended() == SPARE, extra.story()


def hold(which, server):
    """Half a minute with the default keep-alives, twice their expiry: no node is expelled."""
    with Scenario(which, server, 4, 4) as scenario:
        mixed.hold(scenario, 30)


def hold_short(which, server):
    """The same with keep-alives of 3 times 1 s. Torch 1.13 is told so, too, and beats every 5 s."""
    with Scenario(which, server, 4, 4) as scenario:
        mixed.hold(scenario, 25, kinds=("torch", "muster", "muster", "muster"),
                   keep_alive_interval=1, keep_alive_max_attempt=3)


def static(which, server):
    """A static group of one each; rank 0 serves."""
    with Scenario(which, server, 2, 2) as scenario:
        # Its constructor waits for all members, so the port must be known before.
        scenario.endpoint = f"127.0.0.1:{harness.free_port()}"
        nodes = {}
        for kind in KINDS:
            rank = 0 if kind == server else 1
            if kind == "torch":
                nodes[kind] = TorchNode(scenario, backend="static", keep_alive=None, rank=rank,
                                        timeout=PATIENCE_S)
            else:
                nodes[kind] = MusterNode(scenario, backend="static", rank=rank,
                                         timeout=PATIENCE_S, words=("--hold", "0"))
            scenario.nodes.append(nodes[kind])
        scenario.nodes.sort(key=lambda node: node.kind != server)
        nodes["muster"].join()
        nodes["torch"].call("stay")
        for kind, node in nodes.items():
            joined = node.wait("joined")
            assert joined["rank"] == (0 if kind == server else 1), joined
            assert joined["world_size"] == 2, joined
            assert f"{joined['master_addr']}:{joined['master_port']}" == scenario.endpoint, joined


def all_scenarios():
    """(name, function): each version, each server, each kind."""
    plain = (death, late, close_members, close_waiting, spare)
    for which, server, kind in itertools.product(VERSIONS, SERVERS, KINDS):
        for function in plain:
            yield f"{function.__name__}-{which}-{server}-{kind}", function, (which, server, kind)
        if which == "new":
            for function in (spare_closed, shared):
                yield (f"{function.__name__}-{which}-{server}-{kind}", function,
                       (which, server, kind))
    for which, server in itertools.product(VERSIONS, SERVERS):
        yield f"hold-{which}-{server}", hold, (which, server)
    for server in SERVERS:
        yield f"hold_short-old-{server}", hold_short, ("old", server)
    for which, server in itertools.product(VERSIONS, KINDS):
        yield f"static-{which}-{server}", static, (which, server)


# --- running ---------------------------------------------------------------------------------


Mixed = mixed.case(all_scenarios, VERSIONS)


if __name__ == "__main__":
    mixed.main(__doc__, all_scenarios)
