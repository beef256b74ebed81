"""Gloo process groups of real torch that meet through our server, or through the store that a
`muster join` serves for the workers of a round."""

import json
import os
import signal
import unittest

import mixed
import peer
from peer import harness

WORLD = 4
RESTARTS = 6
# All workers import torch and meet, or the first of them gives up, on a busy machine.
WORKERS_S = 120


def given(rank, world):
    """The results of the collectives for a rank."""
    return {
        "rank": rank,
        "world": world,
        "sum": [float(sum(range(1, world + 1))), float(int("1" * world))],
        "gathered": list(range(world)),
        "pair": 2.0 if rank in (0, world - 1) else 1.0,
    }


class Gloo(unittest.TestCase):
    def check_ranks(self, processes):
        seen = []
        for process in processes:
            code, lines, err = peer.finish(process)
            self.assertEqual(code, 0, err)
            self.assertEqual(len(lines), 1, err)
            seen.append(lines[0])
        for rank, line in enumerate(sorted(seen, key=lambda entry: entry["rank"])):
            with self.subTest(f"{self.id()} rank {rank}"):
                self.assertEqual(line, given(rank, WORLD), json.dumps(line))

    def through_store(self, which):
        harness.torch_python(which)
        with harness.Server() as server:
            self.check_ranks([
                peer.start(which, "torch_gloo.py", "store", server.port, rank, WORLD)
                for rank in range(WORLD)
            ])
            # They did meet here.
            with server.connect("C") as wire:
                self.assertGreater(wire.num_keys(), WORLD)

    def through_environment(self, which):
        harness.torch_python(which)
        with harness.Server() as server:
            self.check_ranks([
                peer.start(which, "torch_gloo.py", "env", env={
                    "TORCHELASTIC_USE_AGENT_STORE": "True",
                    "TORCHELASTIC_RESTART_COUNT": "0",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(server.port),
                    "RANK": str(rank),
                    "WORLD_SIZE": str(WORLD),
                })
                for rank in range(WORLD)
            ])
            with server.connect("C") as wire:
                self.assertGreater(wire.num_keys(), WORLD)

    def test_old_store(self):
        self.through_store("old")

    def test_new_store(self):
        self.through_store("new")

    def test_old_environment(self):
        self.through_environment("old")

    def test_new_environment(self):
        self.through_environment("new")


class Restart(unittest.TestCase):
    """Three `muster join` whose commands are workers. The first serves the store of the nodes, and
    that of the workers on one port through all rounds."""

    def start(self, scenario, count):
        python = harness.torch_python(scenario.which)
        worker = os.path.join(peer.HERE, "torch_gloo.py")
        return scenario.start(["muster"] * count,
                              words=("--rejoin", "--", python, worker, "restart"))

    @staticmethod
    def told(node, round, *kinds):
        """The output of the worker of this round."""
        return next((event for event in node.of(*kinds) if event["round"] == round), None)

    def check_round(self, nodes, round):
        """All workers of the round have met, and their collectives give what they must."""
        def told(*kinds):
            return [self.told(node, round, *kinds) for node in nodes]

        try:
            harness.wait_until(lambda: all(told("met")) or any(told("unmet")),
                               f"the workers of round {round}", WORKERS_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {told('met', 'unmet')}") from None
        self.assertEqual(told("unmet"), [None] * len(nodes))
        wanted = [given(node.last_joined()["rank"], len(nodes)) for node in nodes]
        self.assertEqual([event["given"] for event in told("met")], wanted)

    def lose(self, scenario, node, is_worker, round):
        """Kill a node together with its worker, or a worker, which ends its node."""
        if not is_worker:
            node.kill()
            return
        started = harness.wait_until(lambda: self.told(node, round, "started"),
                                     "a worker to start", WORKERS_S)
        os.kill(started["worker"], signal.SIGKILL)
        self.assertEqual(node.ended(), 128 + signal.SIGKILL, node.story())
        scenario.nodes.remove(node)
        node.discard()

    def restart(self, which):
        with mixed.Scenario(which, "muster", 3, 3, share=True) as scenario:
            nodes = self.start(scenario, 1)
            # Ranks are ordered by address first, so the serving node keeps rank 0.
            scenario.local_addr = "127.0.0.2"
            nodes += self.start(scenario, 2)
            port = nodes[0].wait("joined")["master_port"]
            done = scenario.settle(nodes)
            self.check_round(nodes, done)
            for turn in range(RESTARTS):
                self.lose(scenario, nodes.pop(1 + turn % 2), turn // 2 % 2 == 0, done)
                nodes += self.start(scenario, 1)
                done = scenario.settle(nodes, after=done)
                # The former server serves again.
                self.assertEqual(nodes[0].last_joined()["rank"], 0)
                self.assertEqual(nodes[0].last_joined()["master_port"], port)
                with self.subTest(f"{self.id()} restart {turn + 1}"):
                    self.check_round(nodes, done)

    def test_old(self):
        self.restart("old")

    def test_new(self):
        self.restart("new")


if __name__ == "__main__":
    # A proxy for other machines has no business between ranks of one.
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        os.environ.pop(name, None)
    harness.main()
